//! Scenarios of `horolog counters`: it serves the counters only to clients that have the token, and
//! `horolog load` locates losses on another host with them. Lab hosts have no names that could be
//! resolved, so the counter snapshot is the only connection between the two.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Output;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_counters::CounterSnapshot;
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_record::{FindingCode, LoadResult, LossLocation};
use horolog_wire::prefix::Prefix;
use tempfile::TempDir;

use crate::load_accounting::{Chronyd, lost_at};
use crate::load_command::{
    StartedProgram, TIMEOUT, UnprivilegedCopy, check_sums, load, only_trial, parse, result_of,
};
use crate::process::{Engine, Server, binary, run_to_end, server_address, signal_to};
use crate::scenario::{Need, Queue, Scenario, scenario};
use crate::usage_error::{ENVIRONMENT, USAGE, check_refusal};
use crate::{ROOT, counters, scenarios};

const PORT: u16 = 9323;
const TOKEN: &str = "0123456789abcdef";
const CHRONYD: &[Need] = &[Need::Root, Need::Peer("chronyd"), Need::Peer("chronyc")];

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(CHRONYD, counters:
        losses_of_a_stopped_chronyd_are_located,
        the_snapshot_agrees_with_chronyd,
    ));
    all.extend(scenarios!(ROOT, counters:
        an_unavailable_snapshot_is_a_finding,
        requests_without_token_are_refused,
        load_without_readable_counters_is_refused,
        counters_that_need_root_are_named,
        packets_dropped_by_a_router_are_lost_on_the_link,
    ));
    for engine in Engine::ALL {
        let name = format!("counters::losses_of_a_stopped_server_are_located::{}", engine.name());
        let losses = scenario(name, ROOT, move || losses_of_a_stopped_server_are_located(engine));
        all.push(losses.in_queue(Queue::Measuring));
    }
    all
}

/// File with a token, readable only by its owner.
struct TokenFile(TempDir);

impl TokenFile {
    fn new(token: &str) -> Result<Self> {
        let file = Self(TempDir::new()?);
        fs::write(file.path(), format!("{token}\n"))?;
        fs::set_permissions(file.path(), Permissions::from_mode(0o600))?;
        Ok(file)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("token")
    }

    fn text(&self) -> String {
        self.path().display().to_string()
    }
}

/// Running `horolog counters` on a lab host.
struct Counters {
    started: StartedProgram,
    at: SocketAddr,
    token: TokenFile,
}

impl Counters {
    fn start(host: &LabHost, arguments: &[&str]) -> Result<Self> {
        let token = TokenFile::new(TOKEN)?;
        let at = SocketAddr::from((host.first_interface().ipv4, PORT));
        let mut command = host.command(binary()?);
        command.args(["counters", "--listen", &at.to_string(), "--token-file"]);
        command.arg(token.path()).args(arguments);
        let mut started = StartedProgram::start(&mut command)?;
        started.wait_until(|_, stderr| stderr.contains("counters at http://"))?;
        Ok(Self { started, at, token })
    }

    /// Returns the flags with which `horolog load` reads these counters.
    fn flags(&self) -> [String; 4] {
        let url = format!("http://{}", self.at);
        ["--counters".into(), url, "--counters-token-file".into(), self.token.text()]
    }

    /// Reads the counter snapshot from `host`.
    fn snapshot(&self, host: &LabHost, query: &str) -> Result<CounterSnapshot> {
        let reply = fetch(host, self.at, &get(&format!("/counters{query}"), Some(TOKEN)))?;
        let body = reply.split_once("\r\n\r\n").with_context(|| reply.clone())?.1;
        CounterSnapshot::parse(body.as_bytes()).map_err(anyhow::Error::msg)
    }
}

fn get(target: &str, token: Option<&str>) -> String {
    let field =
        token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    format!("GET {target} HTTP/1.1\r\nHost: x\r\n{field}\r\n")
}

fn fetch(host: &LabHost, at: SocketAddr, request: &str) -> Result<String> {
    let mut stream = host.run(|| TcpStream::connect(at))??;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(request.as_bytes())?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply)
}

/// Loads a server that stops in the middle of a trial, without and with counters, and checks that
/// losses at the socket are found only with them.
fn load_stopped_server(
    lab: &Lab,
    target: &str,
    counters: &Counters,
    signal: impl Fn(&str) -> Result<()>,
) -> Result<LoadResult> {
    let run = [target, "--engine", "packet", "-r", "50k", "-t", "1.6", "--json", "result.json"];
    // While the server is stopped, more requests arrive than its socket's buffer holds.
    let run_with_stop = |arguments: &[&str]| {
        let mut run = StartedProgram::start(&mut load(lab.client(), arguments)?)?;
        run.wait_until(|_, stderr| stderr.contains("loading"))?;
        thread::sleep(Duration::from_millis(400));
        signal("STOP")?;
        let (status, _) = run.end()?;
        signal("CONT")?;
        ensure!(status.success(), "{}", run.read("stderr")?);
        let result: LoadResult = parse(run.read("result.json")?.as_bytes())?;
        let trial = only_trial(&result)?;
        check_sums(trial)?;
        ensure!(trial.received > 0 && trial.lost > trial.sent / 10, "{trial:?}");
        Ok::<_, anyhow::Error>(result)
    };
    let without = run_with_stop(&run)?;
    let locations = &only_trial(&without)?.lost_at;
    let at_socket = locations.get(&LossLocation::Socket);
    ensure!(at_socket.is_none(), "losses at the socket without counters: {locations:?}");
    let flags = counters.flags();
    let with = run_with_stop(&[&run[..], &flags.each_ref().map(String::as_str)].concat())?;
    let trial = only_trial(&with)?;
    ensure!(
        lost_at(trial, LossLocation::Socket) > 0,
        "no losses at the socket: {:?}, {:?}",
        trial.lost_at,
        with.findings
    );
    Ok(with)
}

/// A stopped chronyd does not read its socket: losses by overflow are located there, and its
/// missing statistics are a finding.
pub(crate) fn losses_of_a_stopped_chronyd_are_located() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let chronyd = Chronyd::start(lab.server())?;
    let socket = chronyd.socket().display().to_string();
    let counters = Counters::start(lab.server(), &["--chronyd", &socket])?;
    let target = server_address(&lab, false)?.ip().to_string();
    let pid = chronyd.pid();
    let result = load_stopped_server(&lab, &target, &counters, |name| signal_to(pid, name))?;
    // Few requests lie unanswered in its small buffer, where no counter counts them.
    let trial = only_trial(&result)?;
    ensure!(lost_at(trial, LossLocation::Socket) > trial.lost / 2, "{:?}", trial.lost_at);
    let unread: Vec<_> = result
        .findings
        .iter()
        .filter(|finding| finding.code == FindingCode::CountersUnavailable)
        .collect();
    ensure!(unread.iter().any(|one| one.message.contains("chronyd: no reply")), "{unread:?}");
    Ok(())
}

fn losses_of_a_stopped_server_are_located(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let server = Server::start(lab.server(), engine, &[at], &["--clock-expiry", "200ms"])?;
    let socket = server.socket().display().to_string();
    let counters = Counters::start(lab.server(), &["--status-socket", &socket])?;
    load_stopped_server(&lab, &at.ip().to_string(), &counters, |name| server.signal(name)).map(drop)
}

/// The snapshot contains chronyd's own counts, and only the requested interface and port.
pub(crate) fn the_snapshot_agrees_with_chronyd() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let chronyd = Chronyd::start(lab.server())?;
    let socket = chronyd.socket().display().to_string();
    let counters = Counters::start(lab.server(), &["--chronyd", &socket])?;
    let target = lab.server().first_interface().ipv4;
    let query = format!("?address={target}&port=123");
    let read = || counters.snapshot(lab.client(), &query);
    let before = read()?;
    let target = target.to_string();
    let run = [&target, "--engine", "udp", "-r", "2000", "-t", "0.2"];
    let sent = only_trial(&result_of(lab.client(), &run)?)?.sent;
    ensure!(sent > 0, "nothing was sent");
    let after = read()?;
    let [of_before, of_after] = [&before, &after].map(|snapshot| snapshot.servers.first());
    let of_before = of_before.context("chronyd is missing before the load")?;
    let of_after = of_after.context("chronyd is missing after the load")?;
    ensure!(of_after.program == "chronyd" && of_after.received - of_before.received == sent);
    ensure!(of_after.answered == of_after.received && after.unavailable.is_empty(), "{after:?}");
    let [interface] = &after.interfaces[..] else { anyhow::bail!("{:?}", after.interfaces) };
    ensure!(interface.name == lab.server().first_interface().name, "{interface:?}");
    ensure!(interface.rx_packets - before.interfaces[0].rx_packets >= sent, "{interface:?}");
    ensure!(!after.sockets.is_empty() && after.sockets.iter().all(|one| one.port == 123));
    let chronyc_received = chronyd.statistics()?.0;
    ensure!(
        of_after.received == chronyc_received,
        "chronyc counts {chronyc_received}: {of_after:?}"
    );
    Ok(())
}

/// `horolog counters` ends in the middle of a run: the run completes, its sums hold, and a finding
/// names the address.
pub(crate) fn an_unavailable_snapshot_is_a_finding() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
    let socket = server.socket().display().to_string();
    let mut counters = Counters::start(lab.server(), &["--status-socket", &socket])?;
    let flags = counters.flags();
    let (target, out) = (at.ip().to_string(), "result.json");
    let mut command = load(lab.client(), &[&target, "-r", "1k-4k", "-x", "1.1", "-t", "0.2"])?;
    command.args(["--engine", "udp", "--json", out]).args(&flags);
    let mut run = StartedProgram::start(&mut command)?;
    // The row of a completed trial contains its intended rate.
    let rows = |text: &str| text.lines().filter(|line| line.contains("1000")).count();
    run.wait_until(|stdout, _| rows(stdout) > 0)?;
    counters.started.child.kill()?;
    let (status, _) = run.end()?;
    ensure!(status.success(), "{status}: {}", run.read("stderr")?);
    let result: LoadResult = parse(run.read(out)?.as_bytes())?;
    ensure!(result.trials.len() > 2, "{} trials", result.trials.len());
    result.trials.iter().try_for_each(check_sums)?;
    let finding =
        result.findings.iter().find(|finding| finding.code == FindingCode::CountersUnavailable);
    let finding = finding.context("no finding of unavailable counters")?;
    ensure!(finding.message.contains(&counters.at.to_string()), "{}", finding.message);
    Ok(())
}

/// Without the token, every request gets status 401 and no content; with it, only valid GET
/// requests are served.
pub(crate) fn requests_without_token_are_refused() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let mut counters = Counters::start(lab.server(), &[])?;
    let fetch = |request: &str| fetch(lab.client(), counters.at, request);
    let wrong = [None, Some(""), Some("0123456789abcdee"), Some("0123456789abcdef0")];
    for (target, token) in ["/counters", "/counters.txt", "/nothing", "/counters?x"]
        .into_iter()
        .flat_map(|target| wrong.map(|token| (target, token)))
    {
        let reply = fetch(&get(target, token))?;
        ensure!(reply.starts_with("HTTP/1.0 401 "), "{target} {token:?}: {reply}");
        ensure!(!reply.contains("interface") && reply.contains("Bearer"), "{reply}");
    }
    for (request, code) in [
        (get("/counters", Some(TOKEN)), "200"),
        (get("/counters.txt", Some(TOKEN)), "200"),
        (get("/counters?port=x", Some(TOKEN)), "400"),
        (get("/", Some(TOKEN)), "404"),
        (get("/counters", Some(TOKEN)).replace("GET", "POST"), "405"),
        ("x".repeat(5_000), "400"),
    ] {
        let reply = fetch(&request)?;
        ensure!(reply.starts_with(&format!("HTTP/1.0 {code} ")), "{request}: {reply}");
    }
    counters.started.signal("TERM")?;
    let (status, _) = counters.started.end()?;
    let stderr = counters.started.read("stderr")?;
    ensure!(status.success() && !stderr.contains(TOKEN), "{status}: {stderr}");
    Ok(())
}

/// An invalid URL, token or token file is refused before the load, in one line without the token.
pub(crate) fn load_without_readable_counters_is_refused() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let metrics = SocketAddr::new(at.ip(), 9123).to_string();
    let _server = Server::start(lab.server(), Engine::Socket, &[at], &["--metrics", &metrics])?;
    let counters = Counters::start(lab.server(), &[])?;
    let (right, wrong) = (counters.token.text(), TokenFile::new("fedcba9876543210")?);
    let open = TokenFile::new(TOKEN)?;
    fs::set_permissions(open.path(), Permissions::from_mode(0o644))?;
    let (snapshot, host) = (format!("http://{}", counters.at), counters.at.ip());
    let (wrong, open) = (wrong.text(), open.text());
    let (closed, other) = (format!("http://{host}:9"), format!("http://{metrics}"));
    let cases: [(&str, &str, i32, &[&str]); 7] = [
        (&snapshot, &wrong, USAGE, &["refused the token"]),
        (&snapshot, &open, USAGE, &["mode 644", "chmod o="]),
        (&snapshot, "/nothing", USAGE, &["/nothing", "token file"]),
        (&closed, &right, ENVIRONMENT, &["horolog counters", ":9"]),
        (&other, &right, USAGE, &["not a counter snapshot", "404"]),
        ("https://192.0.2.2", &right, USAGE, &["--counters", "tunnel"]),
        ("192.0.2.2:9323", &right, USAGE, &["--counters", "http://HOST:PORT"]),
    ];
    let target = at.ip().to_string();
    for (url, token, status, named) in cases {
        let flags = [&target, "--engine", "udp", "--counters", url, "--counters-token-file", token];
        let output = run_to_end(&mut load(lab.client(), &flags)?, TIMEOUT)?;
        check_refusal(&output, status, named).with_context(|| format!("{url} {token}"))?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(!stderr.contains("0123456789") && !stderr.contains("fedcba98"), "{stderr}");
    }
    let mut nothing = lab.server().command(binary()?);
    check_refusal(&run_to_end(nothing.arg("counters"), TIMEOUT)?, USAGE, &["--listen", "--once"])
}

/// Without root, kernel counters are reported, and items that need root are listed as unavailable.
pub(crate) fn counters_that_need_root_are_named() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let user = UnprivilegedCopy::new()?;
    let closed = tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir()?;
    let socket = closed.path().join("chronyd.sock");
    let run = |more: &[&str]| -> Result<Output> {
        let mut command = user.command(lab.server().command("setpriv"));
        command.args(["counters", "--once"]).args(more).arg("--chronyd").arg(&socket);
        run_to_end(&mut command, TIMEOUT)
    };
    let output = run(&["--json"])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let snapshot = CounterSnapshot::parse(&output.stdout).map_err(anyhow::Error::msg)?;
    ensure!(snapshot.udp_ipv4.is_some() && snapshot.softnet.is_some(), "{snapshot:?}");
    ensure!(snapshot.interfaces.iter().any(|one| one.name == lab.server().first_interface().name));
    let [unread] = &snapshot.unavailable[..] else { anyhow::bail!("{:?}", snapshot.unavailable) };
    ensure!(unread.item == "chronyd" && unread.reason.contains("root"), "{unread:?}");
    let output = run(&[])?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(text.contains("not read: chronyd") && text.contains("UDP over IPv4"), "{text}");
    check_refusal(&run(&["--interface", "nosuch0"])?, ENVIRONMENT, &["'nosuch0'"])
}

/// A router without a route to half of the clients drops their replies: the loss location is the
/// link, as neither end lost them.
pub(crate) fn packets_dropped_by_a_router_are_lost_on_the_link() -> Result<()> {
    let lab = Lab::new(&LabConfig { hosts: 3, ..LabConfig::default() })?;
    let (router, generator, far) = (lab.host(0), lab.host(1), lab.host(2));
    let [near_address, far_address] =
        [generator, far].map(|host| IpAddr::from(host.first_interface().ipv4));
    let routers = [0, 1].map(|port| IpAddr::from(router.interfaces[port].ipv4));
    let route = |host: &LabHost, to: Prefix, gateway: IpAddr, port: usize| -> Result<()> {
        Ok(host.netlink()?.add_route(to, Some(gateway), host.interfaces[port].index)?)
    };
    router.run(|| fs::write("/proc/sys/net/ipv4/ip_forward", "1"))??;
    route(generator, Prefix::host(far_address), routers[0], 0)?;
    route(far, Prefix::host(near_address), routers[1], 0)?;
    route(router, "10.77.0.0/17".parse()?, near_address, 0)?;
    let at = SocketAddr::from((far_address, 123));
    let server = Server::start(far, Engine::Socket, &[at], &[])?;
    let socket = server.socket().display().to_string();
    let counters = Counters::start(far, &["--status-socket", &socket])?;
    let (flags, target) = (counters.flags(), far_address.to_string());
    let run = [&target, "--engine", "packet", "-r", "2000", "-t", "0.5", "-s", "10.77.0.0/16"];
    let flags = flags.each_ref().map(String::as_str);
    let result = result_of(generator, &[&run[..], &["--random-sources"], &flags].concat())?;
    let trial = only_trial(&result)?;
    check_sums(trial)?;
    ensure!(trial.lost > trial.sent / 4 && trial.received > trial.sent / 4, "{trial:?}");
    // Other packets that the generator received hide the same number of losses.
    ensure!(lost_at(trial, LossLocation::Link) + 20 >= trial.lost, "{:?}", trial.lost_at);
    Ok(())
}
