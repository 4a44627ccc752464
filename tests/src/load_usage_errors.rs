//! Scenarios of loads that are impossible or interrupted: each ends with the right exit status and
//! one line on the cause and the remedy, sends nothing, and leaves nothing behind. If a run began,
//! the line that reports it comes first.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_record::{FindingCode, LoadEngineKind, LoadResult};
use horolog_sys::netlink::Prefix;

use crate::load_command::{Started, TIMEOUT, UnprivilegedCopy, has, load, parse};
use crate::process::{self, Server, run_to_end, server_address};
use crate::resource_leaks::nothing_is_attached;
use crate::usage_error::{Case, ENVIRONMENT, USAGE, case, check, check_line, expect_all};

/// Exit status of a program that a second SIGINT ended.
const INTERRUPTED: i32 = 130;
/// A second SIGINT ends a run at once, in the middle of a trial that would take much longer.
const AT_ONCE: Duration = Duration::from_secs(2);
/// What a run says as it begins.
const BEGINNING: &str = "horolog: loading ";

/// The target, which is there, and this host's own address.
const TARGET: &str = "192.0.2.2";
const OWN: &str = "192.0.2.1";
const TARGET_IPV6: &str = "2001:db8:0:1::2";
/// A public address, to which the lab has a route; that leads into the lab.
const PUBLIC: &str = "8.8.8.8";

/// What is refused before the run begins, whoever asks.
const CASES: [Case; 31] = [
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

/// What the parser of the command line refuses.
const MALFORMED: [Case; 10] = [
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

/// An address on the link that nobody has.
const UNUSED_ADDRESS: &str = "198.18.7.7";

/// Packets that a host's interface has sent (`proc_net_dev(5)`).
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

fn refused(cases: &[Case]) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let client = lab.client();
    let server = Some(lab.server().first_interface().ipv4.into());
    let public = Prefix::host(IpAddr::V4(PUBLIC.parse::<Ipv4Addr>()?));
    client.netlink()?.add_route(public, server, client.first_interface().index)?;
    expect_all(cases, |arguments| run_to_end(&mut load(client, arguments)?, TIMEOUT))?;
    nothing_is_attached(client)
}

/// What cannot be is refused, with nothing left attached.
pub(crate) fn impossible_requests_are_refused() -> Result<()> {
    refused(&CASES)
}

/// A command line that is malformed is refused in one line as well.
pub(crate) fn malformed_command_lines_are_refused() -> Result<()> {
    refused(&MALFORMED)
}

/// A public target that nobody calls their own is sent nothing at all. That the count would show it
/// is seen from a target that may be loaded.
pub(crate) fn a_public_target_is_sent_nothing() -> Result<()> {
    // IPv6 would send of its own accord.
    let lab = Lab::new(&LabConfig { ipv6: false, ..LabConfig::default() })?;
    let client = lab.client();
    let server = Some(lab.server().first_interface().ipv4.into());
    let public = Prefix::host(IpAddr::V4(PUBLIC.parse::<Ipv4Addr>()?));
    client.netlink()?.add_route(public, server, client.first_interface().index)?;
    let before = sent_packets(client)?;
    for engine in ["auto", "udp", "packet", "xdp"] {
        let output = run_to_end(&mut load(client, &[PUBLIC, "--engine", engine])?, TIMEOUT)?;
        check(&output, USAGE, &[PUBLIC, "--i-own-this-target"])?;
    }
    ensure!(sent_packets(client)? == before, "something was sent");
    let arguments = [TARGET, "--engine", "packet", "-r", "1k", "-t", "0.01"];
    let output = run_to_end(&mut load(client, &arguments)?, TIMEOUT)?;
    ensure!(sent_packets(client)? >= before + 10, "{output:?}");
    Ok(())
}

/// A neighbour that does not tell its MAC address is named.
pub(crate) fn an_unreachable_neighbour_is_named() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let client = lab.client();
    let unused = Prefix::host(IpAddr::V4(UNUSED_ADDRESS.parse::<Ipv4Addr>()?));
    client.netlink()?.add_route(unused, None, client.first_interface().index)?;
    let output = run_to_end(&mut load(client, &[UNUSED_ADDRESS, "--engine", "xdp"])?, TIMEOUT)?;
    check(&output, ENVIRONMENT, &[UNUSED_ADDRESS, "MAC address"])?;
    nothing_is_attached(client)
}

/// An ordinary user is told what the better engines need, and with `auto` gets sockets and is told
/// so.
pub(crate) fn missing_privileges_are_named() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), process::Engine::Socket, &[at], &[])?;
    let unprivileged = UnprivilegedCopy::new()?;
    let run = |arguments: &[&str]| {
        let mut command = unprivileged.command(lab.client().command("setpriv"));
        run_to_end(command.args(["load", "ntp", TARGET]).args(arguments), TIMEOUT)
    };
    check(&run(&["--engine", "xdp"])?, ENVIRONMENT, &["BPF", "CAP_BPF", "root"])?;
    check(&run(&["--engine", "packet"])?, ENVIRONMENT, &["veth0", "CAP_NET_RAW", "root"])?;
    check(
        &run(&["-s", "10.0.0.0/8"])?,
        ENVIRONMENT,
        &["CAP_BPF", "CAP_NET_RAW", "source network"],
    )?;
    let output = run(&["-r", "1k", "-t", "0.2", "--json", "r.json"])?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{stderr}");
    check_line(&stderr, &[BEGINNING, "engine udp"])?;
    let result: LoadResult = parse(&fs::read(unprivileged.path("r.json"))?)?;
    ensure!(
        result.engine == LoadEngineKind::Udp && has(&result, FindingCode::EngineFallback),
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

/// A file that cannot be written is complained of before anything is measured.
pub(crate) fn a_file_that_cannot_be_written_is_named() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    for option in ["--json", "--html"] {
        for path in ["/proc/nowhere/result", "/proc/self/result", "."] {
            let arguments = [TARGET, "-r", "1k", "-t", "0.1", option, path];
            let output = run_to_end(&mut load(lab.client(), &arguments)?, TIMEOUT)?;
            check(&output, ENVIRONMENT, &["cannot write", path])
                .with_context(|| format!("{option} {path}"))?;
        }
    }
    nothing_is_attached(lab.client())
}

/// A reader of the table that goes away costs neither the measurement nor its files.
pub(crate) fn a_closed_output_loses_no_result() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), process::Engine::Socket, &[at], &[])?;
    let mut arguments = vec![TARGET, "--engine", "udp", "-r", "1k", "-t", "0.1"];
    arguments.extend(["--json", "r.json", "--html", "r.html"]);
    let mut command = load(lab.client(), &arguments)?;
    let mut run = Started::start_with(&mut command, std::process::Stdio::piped())?;
    // The table's head has been written, or finds nobody.
    drop(run.child.stdout.take());
    let (status, _) = run.end()?;
    ensure!(status.success(), "{status}: {}", run.read("stderr")?);
    let result: LoadResult = parse(run.read("r.json")?.as_bytes())?;
    ensure!(result.trials.len() == 1, "{:?}", result.trials);
    ensure!(run.read("r.html")?.contains("</html>"), "no page");
    Ok(())
}

/// SIGINT ends a run after the trial that runs, with the result so far.
pub(crate) fn an_interrupted_run_keeps_its_result() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), process::Engine::Socket, &[at], &[])?;
    for engine in ["udp", "packet", "xdp"] {
        let mut arguments = vec![TARGET, "--engine", engine, "-r", "1k-2k", "-x", "1.01"];
        arguments.extend(["-t", "0.3", "--json", "r.json"]);
        let mut run = Started::start(&mut load(lab.client(), &arguments)?)?;
        // The table's head takes two lines.
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
        nothing_is_attached(lab.client())?;
    }
    Ok(())
}

/// A second SIGINT ends it at once, in the middle of a trial.
pub(crate) fn a_second_interrupt_ends_at_once() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    for engine in ["udp", "packet", "xdp"] {
        let arguments = [TARGET, "--engine", engine, "-r", "1k", "-t", "60", "--json", "r.json"];
        let mut run = Started::start(&mut load(lab.client(), &arguments)?)?;
        run.wait_until(|stdout, _| stdout.lines().count() >= 2)?;
        run.signal("INT")?;
        run.wait_until(|_, stderr| stderr.contains("once more"))?;
        run.signal("INT")?;
        let (status, took) = run.end()?;
        ensure!(status.code() == Some(INTERRUPTED) && took < AT_ONCE, "{status} after {took:?}");
        ensure!(run.files()? == ["stderr", "stdout"], "left behind: {:?}", run.files()?);
        nothing_is_attached(lab.client())?;
        no_ingress_program(lab.client())?;
    }
    Ok(())
}

/// Checks that no program sits at the host's ingress; `bpftool` or `tc` would have to be there to
/// ask, so a second engine is asked to begin, which it does only where nobody else is.
fn no_ingress_program(host: &LabHost) -> Result<()> {
    let arguments = [TARGET, "--engine", "xdp", "-r", "1k", "-t", "0.01"];
    let output = run_to_end(&mut load(host, &arguments)?, TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(stderr.starts_with(BEGINNING), "{stderr}");
    Ok(())
}
