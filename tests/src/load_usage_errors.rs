//! Scenarios of impossible and of interrupted loads. An impossible load ends with the correct exit
//! status and one line on the cause and the remedy, and sends nothing. Neither kind leaves a BPF
//! program attached.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_record::{FindingCode, LoadEngineKind, LoadResult};
use horolog_wire::prefix::Prefix;

use crate::isolation::check_nothing_attached;
use crate::load_command::{StartedProgram, TIMEOUT, UnprivilegedCopy, has_finding, load, parse};
use crate::process::{self, Server, run_to_end, server_address};
use crate::usage_error::{
    ENVIRONMENT, RefusalCase, USAGE, case, check_all_refused, check_error_line, check_refusal,
};

/// Exit status after a second SIGINT.
const INTERRUPTED_STATUS: i32 = 130;
/// Longest time to the end of a run after a second SIGINT; a trial takes much longer.
const END_TIME_MAX: Duration = Duration::from_secs(2);
/// First words of the line that reports the start of a run.
const START_LINE: &str = "horolog: loading ";

/// Addresses of the target, which exists, and of the client's host.
const TARGET: &str = "192.0.2.2";
const OWN: &str = "192.0.2.1";
const TARGET_IPV6: &str = "2001:db8:0:1::2";
/// Public address, to which the client has a route that stays in the lab.
const PUBLIC: &str = "8.8.8.8";

/// Requests that are refused before the run begins, with any privileges.
const CASES: [RefusalCase; 31] = [
    case(&[TARGET, "-i", "nosuch0"], ENVIRONMENT, &["'nosuch0'", "ip link"]),
    case(&["203.0.113.9"], ENVIRONMENT, &["203.0.113.9", "ip route get"]),
    case(&[OWN, "--engine", "xdp"], ENVIRONMENT, &[OWN, "'xdp'", "--engine udp"]),
    case(&[OWN, "--engine", "packet"], ENVIRONMENT, &[OWN, "'packet'", "--engine udp"]),
    case(&[PUBLIC], USAGE, &[PUBLIC, "--i-own-this-target"]),
    case(&["::ffff:8.8.8.8"], USAGE, &["8.8.8.8", "--i-own-this-target"]),
    case(&["224.0.1.1"], USAGE, &["224.0.1.1", "unicast"]),
    case(&["255.255.255.255"], USAGE, &["255.255.255.255", "unicast"]),
    case(&["fe80::1"], USAGE, &["fe80::1", "%eth0"]),
    case(&["no/such/name"], USAGE, &["no/such/name", "ADDRESS"]),
    case(&["192.0.2.2:0"], USAGE, &["192.0.2.2:0", "ADDRESS"]),
    case(&[TARGET, "-s", "8.8.8.0/24"], USAGE, &["8.8.8.0/24", "10.64.0.0/10"]),
    case(&[TARGET, "-s", "172.16.0.0/11"], USAGE, &["172.0.0.0/11", "10.64.0.0/10"]),
    case(&[TARGET, "-s", "192.0.2.0/24"], USAGE, &["192.0.2.0/24", TARGET, "another network"]),
    case(&[TARGET, "-s", "192.0.2.0/31"], USAGE, &["192.0.2.0/31", OWN, "another network"]),
    case(&[TARGET_IPV6, "-s", "10.0.0.0/8"], USAGE, &["10.0.0.0/8", TARGET_IPV6, "IPv6"]),
    case(&[TARGET, "-s", "fd00::/64"], USAGE, &["fd00::/64", TARGET, "IPv4"]),
    case(&[TARGET, "-s", "10.0.0.0/8", "--engine", "udp"], ENVIRONMENT, &["'udp'", "--engine"]),
    case(&[TARGET, "-s", "10.0.0.0/30", "-c", "3"], USAGE, &["10.0.0.0/30", "2 clients", "wider"]),
    case(&[TARGET, "-c", "0"], USAGE, &["clients", "0"]),
    case(&[TARGET, "-c", "1000001"], USAGE, &["1000000", "1000001"]),
    case(&[TARGET, "--threads", "0"], USAGE, &["threads", "0"]),
    case(&[TARGET, "--ntp-version", "5"], USAGE, &["5", "1 to 4"]),
    case(&[TARGET, "--timeout", "61"], USAGE, &["61", "1 ms to 60 s"]),
    case(&[TARGET, "-x", "1"], USAGE, &["1 is not a valid multiplier", "above 1"]),
    case(&[TARGET, "-r", "1e300"], USAGE, &["1e300", "another rate"]),
    case(&[TARGET, "-r", "0.000001", "-s", "10.0.0.0/8"], USAGE, &["1e-6", "another rate"]),
    case(&[TARGET, "-t", "0.0001"], USAGE, &["100", "1 ms"]),
    case(&[TARGET, "--search", "ndr", "-r", "1-2"], USAGE, &["no request", "raise"]),
    case(&[TARGET, "-4", "-6"], USAGE, &["-4", "-6"]),
    case(&[TARGET, "-d", TARGET], USAGE, &["-d"]),
];

/// Command lines that the parser refuses.
const MALFORMED: [RefusalCase; 10] = [
    case(&[TARGET, "-r", "0"], USAGE, &["'0'", "--rate"]),
    case(&[TARGET, "-r", "-5"], USAGE, &["-5"]),
    case(&[TARGET, "--rate=-5"], USAGE, &["'-5'", "--rate"]),
    case(&[TARGET, "-r", "2k-1k"], USAGE, &["'2k-1k'", "--rate", "lower"]),
    case(&[TARGET, "-r", "nan"], USAGE, &["'nan'", "--rate"]),
    case(&[TARGET, "-r", "1e999"], USAGE, &["'1e999'", "--rate"]),
    case(&[TARGET, "-t", "0"], USAGE, &["'0'", "--time"]),
    case(&[TARGET, "-s", "10.0.0.0/33"], USAGE, &["10.0.0.0/33", "--source"]),
    case(&[TARGET, "-m", "02:00"], USAGE, &["'02:00'", "--mac"]),
    case(&[], USAGE, &["TARGET"]),
];

/// Address on the link that no host has.
const UNUSED_ADDRESS: &str = "198.18.7.7";

/// Returns the number of packets that a host's interface has sent (`proc_net_dev(5)`).
fn sent_packets(host: &LabHost) -> Result<u64> {
    let table = host.run(|| fs::read_to_string("/proc/thread-self/net/dev"))??;
    let interface = &host.first_interface().name;
    let numbers = table
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'))
        .with_context(|| format!("{interface} is not in {table}"))?;
    let sent = numbers.split_whitespace().nth(9).context("no number of packets sent")?;
    Ok(sent.parse()?)
}

fn check_refused(cases: &[RefusalCase]) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let client = lab.client();
    let server = Some(lab.server().first_interface().ipv4.into());
    let public = Prefix::host(IpAddr::V4(PUBLIC.parse::<Ipv4Addr>()?));
    client.netlink()?.add_route(public, server, client.first_interface().index)?;
    check_all_refused(cases, |arguments| run_to_end(&mut load(client, arguments)?, TIMEOUT))?;
    check_nothing_attached(client)
}

/// Impossible requests are refused, and leave nothing attached.
pub(crate) fn impossible_requests_are_refused() -> Result<()> {
    check_refused(&CASES)
}

/// Malformed command lines are refused in one line.
pub(crate) fn malformed_command_lines_are_refused() -> Result<()> {
    check_refused(&MALFORMED)
}

/// No packet is sent to a public target without `--i-own-this-target`. A load of a permitted target
/// shows that the packet count would reveal one.
pub(crate) fn a_public_target_is_sent_nothing() -> Result<()> {
    // IPv6 sends packets on its own.
    let lab = Lab::new(&LabConfig { ipv6: false, ..LabConfig::default() })?;
    let client = lab.client();
    let server = Some(lab.server().first_interface().ipv4.into());
    let public = Prefix::host(IpAddr::V4(PUBLIC.parse::<Ipv4Addr>()?));
    client.netlink()?.add_route(public, server, client.first_interface().index)?;
    let before = sent_packets(client)?;
    for engine in ["auto", "udp", "packet", "xdp"] {
        let output = run_to_end(&mut load(client, &[PUBLIC, "--engine", engine])?, TIMEOUT)?;
        check_refusal(&output, USAGE, &[PUBLIC, "--i-own-this-target"])?;
    }
    ensure!(sent_packets(client)? == before, "something was sent");
    let arguments = [TARGET, "--engine", "packet", "-r", "1k", "-t", "0.01"];
    let output = run_to_end(&mut load(client, &arguments)?, TIMEOUT)?;
    ensure!(sent_packets(client)? >= before + 10, "{output:?}");
    Ok(())
}

/// A neighbour whose MAC address does not resolve is reported.
pub(crate) fn an_unreachable_neighbour_is_named() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let client = lab.client();
    let unused = Prefix::host(IpAddr::V4(UNUSED_ADDRESS.parse::<Ipv4Addr>()?));
    client.netlink()?.add_route(unused, None, client.first_interface().index)?;
    let output = run_to_end(&mut load(client, &[UNUSED_ADDRESS, "--engine", "xdp"])?, TIMEOUT)?;
    check_refusal(&output, ENVIRONMENT, &[UNUSED_ADDRESS, "MAC address"])?;
    check_nothing_attached(client)
}

/// The faster engines report the privileges that they need, and `auto` without them falls back to
/// sockets and reports this.
pub(crate) fn missing_privileges_are_named() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), process::Engine::Socket, &[at], &[])?;
    let unprivileged = UnprivilegedCopy::new()?;
    let run = |arguments: &[&str]| {
        let mut command = unprivileged.command(lab.client().command("setpriv"));
        run_to_end(command.args(["load", "ntp", TARGET]).args(arguments), TIMEOUT)
    };
    check_refusal(&run(&["--engine", "xdp"])?, ENVIRONMENT, &["BPF", "CAP_BPF", "root"])?;
    check_refusal(&run(&["--engine", "packet"])?, ENVIRONMENT, &["veth0", "CAP_NET_RAW", "root"])?;
    check_refusal(
        &run(&["-s", "10.0.0.0/8"])?,
        ENVIRONMENT,
        &["CAP_BPF", "CAP_NET_RAW", "source network"],
    )?;
    let output = run(&["-r", "1k", "-t", "0.2", "--json", "r.json"])?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{stderr}");
    check_error_line(&stderr, &[START_LINE, "engine udp"])?;
    let result: LoadResult = parse(&fs::read(unprivileged.path("r.json"))?)?;
    ensure!(
        result.engine == LoadEngineKind::Udp && has_finding(&result, FindingCode::EngineFallback),
        "{result:?}"
    );
    for better in ["'xdp'", "'packet'"] {
        let is_reported =
            |message: &str| message.contains(better) && message.contains("'udp' is used");
        ensure!(
            result.findings.iter().any(|one| is_reported(&one.message)),
            "{:?}",
            result.findings
        );
    }
    let table = String::from_utf8_lossy(&output.stdout);
    ensure!(table.contains("'udp' is used") && table.contains("CAP_BPF"), "{table}");
    Ok(())
}

/// A file that cannot be written is reported before the run begins.
pub(crate) fn a_file_that_cannot_be_written_is_named() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    for option in ["--json", "--html"] {
        for path in ["/proc/nowhere/result", "/proc/self/result", "."] {
            let arguments = [TARGET, "-r", "1k", "-t", "0.1", option, path];
            let output = run_to_end(&mut load(lab.client(), &arguments)?, TIMEOUT)?;
            check_refusal(&output, ENVIRONMENT, &["cannot write", path])
                .with_context(|| format!("{option} {path}"))?;
        }
    }
    check_nothing_attached(lab.client())
}

/// A closed standard output affects neither the measurement nor its files.
pub(crate) fn a_closed_output_loses_no_result() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), process::Engine::Socket, &[at], &[])?;
    let mut arguments = vec![TARGET, "--engine", "udp", "-r", "1k", "-t", "0.1"];
    arguments.extend(["--json", "r.json", "--html", "r.html"]);
    let mut command = load(lab.client(), &arguments)?;
    let mut run = StartedProgram::start_with(&mut command, std::process::Stdio::piped())?;
    // The head of the table is either written already or fails.
    drop(run.child.stdout.take());
    let (status, _) = run.end()?;
    ensure!(status.success(), "{status}: {}", run.read("stderr")?);
    let result: LoadResult = parse(run.read("r.json")?.as_bytes())?;
    ensure!(result.trials.len() == 1, "{:?}", result.trials);
    ensure!(run.read("r.html")?.contains("</html>"), "no HTML report");
    Ok(())
}

/// SIGINT ends a run after the current trial, with the result so far.
pub(crate) fn an_interrupted_run_keeps_its_result() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), process::Engine::Socket, &[at], &[])?;
    for engine in ["udp", "packet", "xdp"] {
        let mut arguments = vec![TARGET, "--engine", engine, "-r", "1k-2k", "-x", "1.01"];
        arguments.extend(["-t", "0.3", "--json", "r.json"]);
        let mut run = StartedProgram::start(&mut load(lab.client(), &arguments)?)?;
        // The head of the table has two lines.
        run.wait_until(|stdout, _| stdout.lines().count() >= 4)?;
        run.signal("INT")?;
        let (status, _) = run.end()?;
        let stderr = run.read("stderr")?;
        ensure!(status.success() && stderr.contains("ending early"), "{stderr}");
        let result: LoadResult = parse(run.read("r.json")?.as_bytes())?;
        let trials = result.trials.len();
        ensure!((2..20).contains(&trials), "{trials} trials with {engine}");
        ensure!(result.trials.iter().all(|trial| trial.sent > 0), "{:?}", result.trials);
        ensure!(run.read("stdout")?.contains("Lost in all trials"), "no summary");
        check_nothing_attached(lab.client())?;
    }
    Ok(())
}

/// A second SIGINT ends a run at once, in the middle of a trial.
pub(crate) fn a_second_interrupt_ends_at_once() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    for engine in ["udp", "packet", "xdp"] {
        let arguments = [TARGET, "--engine", engine, "-r", "1k", "-t", "60", "--json", "r.json"];
        let mut run = StartedProgram::start(&mut load(lab.client(), &arguments)?)?;
        run.wait_until(|stdout, _| stdout.lines().count() >= 2)?;
        run.signal("INT")?;
        run.wait_until(|_, stderr| stderr.contains("once more"))?;
        run.signal("INT")?;
        let (status, took) = run.end()?;
        ensure!(
            status.code() == Some(INTERRUPTED_STATUS) && took < END_TIME_MAX,
            "{status} after {took:?}"
        );
        ensure!(run.files()? == ["stderr", "stdout"], "left behind: {:?}", run.files()?);
        check_nothing_attached(lab.client())?;
        check_no_ingress_program(lab.client())?;
    }
    Ok(())
}

/// Checks that no program is attached to the host's ingress: an XDP engine starts only without one.
/// `bpftool` and `tc` may be missing.
fn check_no_ingress_program(host: &LabHost) -> Result<()> {
    let arguments = [TARGET, "--engine", "xdp", "-r", "1k", "-t", "0.01"];
    let output = run_to_end(&mut load(host, &arguments)?, TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(stderr.starts_with(START_LINE), "{stderr}");
    Ok(())
}
