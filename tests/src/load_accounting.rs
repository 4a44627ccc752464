//! Scenarios of whole runs of `horolog load`: against Debian's chronyd and against `horolog serve`,
//! whose own counters must agree, and against servers that lose requests in known ways. Nothing is
//! timed: achieved rates are for the benchmarks.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost, RunningProgram};
use horolog_load::loss_attribution::{ServerRequestCounts, UdpCounts};
use horolog_load::ramp::Ramp;
use horolog_load::{LoadObserver, LoadOptions, LoadProcedure, LoadRun};
use horolog_record::{FindingCode, LoadEngineKind, LoadResult, LossLocation, Trial};
use tempfile::TempDir;

use crate::load_command::{ENGINES, check_sums, has, only_trial, result_of};
use crate::process::{self, Server, run_to_end, server_address};

const TIMEOUT: Duration = Duration::from_secs(10);
/// A rate that every server here holds, also while the machine does something else.
const RATE: &str = "5000";
const TIME: &str = "0.2";
const REQUESTS: u64 = 1_000;

/// Debian's chronyd as a server, with a socket for chronyc and nothing outside its directory. It
/// leaves this machine's clock alone (`-x`).
pub(crate) struct Chronyd {
    process: RunningProgram,
    directory: TempDir,
}

impl Chronyd {
    pub(crate) fn start(host: &LabHost) -> Result<Self> {
        // chronyd makes no socket where others may look in.
        let private = Permissions::from_mode(0o700);
        let directory = tempfile::Builder::new().permissions(private).tempdir()?;
        let path = |name: &str| directory.path().join(name).display().to_string();
        let (socket, pid) = (path("chronyd.sock"), path("chronyd.pid"));
        let mut command = host.command("chronyd");
        command.args(["-x", "-d", "-u", "root", "-f", "/dev/null", "allow all", "local stratum 1"]);
        command.args(["cmdport 0", &format!("bindcmdaddress {socket}"), &format!("pidfile {pid}")]);
        let mut process = RunningProgram::start(&mut command)?;
        let ready = || statistics(directory.path()).is_ok();
        process.await_ready(TIMEOUT, ready)?;
        Ok(Self { process, directory })
    }

    /// Where it takes commands.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("chronyd.sock")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// What chronyc says of NTP packets: received, and dropped of these.
    pub(crate) fn statistics(&self) -> Result<(u64, u64)> {
        statistics(self.directory.path())
    }

    /// What has become of requests: received by chronyd, dropped of these, and not received because
    /// its socket was full, which the kernel counts.
    fn counters(&self, host: &LabHost, ipv6: bool) -> Result<[u64; 3]> {
        let (received, dropped) = self.statistics()?;
        let name = if ipv6 { "snmp6" } else { "snmp" };
        let path = format!("/proc/thread-self/net/{name}");
        let text = host.run(|| fs::read_to_string(path))??;
        let parse = if ipv6 { UdpCounts::parse_snmp6 } else { UdpCounts::parse_snmp };
        let udp = parse(&text).with_context(|| format!("no counters of UDP in {text}"))?;
        Ok([received, dropped, udp.receive_buffer_errors])
    }
}

/// What `chronyc serverstats` says of NTP packets: received, and dropped of these.
fn statistics(directory: &Path) -> Result<(u64, u64)> {
    let mut command = Command::new("chronyc");
    command.arg("-h").arg(directory.join("chronyd.sock")).arg("serverstats");
    let output = run_to_end(&mut command, TIMEOUT)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let number = |name: &str| -> Result<u64> {
        let line = text.lines().find(|line| line.starts_with(name));
        let number = line.and_then(|line| line.rsplit(' ').next());
        let number = number.with_context(|| format!("chronyc tells no '{name}': {text}"))?;
        Ok(number.parse()?)
    };
    Ok((number("NTP packets received")?, number("NTP packets dropped")?))
}

/// chronyd counts as many requests as each engine says that it sent, and each engine as many
/// replies as chronyd sent, over both IP versions.
pub(crate) fn chronyd_counts_the_same() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let chronyd = Chronyd::start(lab.server())?;
    for engine in ENGINES {
        for ipv6 in [false, true] {
            let target = server_address(&lab, ipv6)?.ip().to_string();
            let before = chronyd.counters(lab.server(), ipv6)?;
            let arguments =
                [&target, "--engine", engine.name(), "-r", "2000-10000", "-x", "5", "-t", TIME];
            let result = result_of(lab.client(), &arguments)?;
            let after = chronyd.counters(lab.server(), ipv6)?;
            let [received, dropped, overflown] = [0, 1, 2].map(|of: usize| after[of] - before[of]);
            let sum = |count: fn(&Trial) -> u64| result.trials.iter().map(count).sum::<u64>();
            ensure!(result.trials.len() == 2 && result.engine == engine, "{result:?}");
            let sent = sum(|trial| trial.sent);
            ensure!(
                sent == received + overflown,
                "{engine:?} sent {sent}, chronyd received {received} and missed {overflown}"
            );
            let replies = sum(|trial| trial.received);
            ensure!(replies == received - dropped, "{engine:?} received {replies} replies");
            for trial in &result.trials {
                check_clean(trial).with_context(|| format!("{engine:?} to {target}"))?;
            }
        }
    }
    Ok(())
}

/// Every reply was valid and came once and in time.
fn check_clean(trial: &Trial) -> Result<()> {
    check_sums(trial)?;
    ensure!(trial.invalid.is_empty(), "invalid replies: {:?}", trial.invalid);
    ensure!((trial.duplicate, trial.late) == (0, 0), "duplicates or late replies: {trial:?}");
    Ok(())
}

/// What a server reports as received and answered by both of its engines; `None` while it does
/// not answer.
pub(crate) fn counters(status: &serde_json::Value) -> Option<ServerRequestCounts> {
    let count = |pointer: &str| status.pointer(pointer).and_then(serde_json::Value::as_u64);
    let in_kernel = count("/xdp_counters/answered_ipv4").unwrap_or(0)
        + count("/xdp_counters/answered_ipv6").unwrap_or(0);
    Some(ServerRequestCounts {
        received: count("/counters/received")? + in_kernel,
        answered: count("/counters/answered")? + in_kernel,
    })
}

/// `horolog serve` counts the same as each engine of the generator, over both IP versions and with
/// clients in turn as well as scattered.
pub(crate) fn the_server_counts_the_same(body: process::Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let addresses = [server_address(&lab, false)?, server_address(&lab, true)?];
    let server = Server::start(lab.server(), body, &addresses, &[])?;
    let server_counts = || {
        let status = server.status()?;
        let counters = counters(&status).context("the server tells no counters")?;
        let dropped = status.pointer("/counters/dropped").and_then(serde_json::Value::as_u64);
        // What its sockets had no room for was sent to it as well.
        Ok::<_, anyhow::Error>((counters.received + dropped.unwrap_or(0), counters.answered))
    };
    for engine in ENGINES {
        for (address, spacing) in [(addresses[0], None), (addresses[1], Some("--exponential"))] {
            let before = server_counts()?;
            let target = address.ip().to_string();
            let mut arguments = vec![&*target, "--engine", engine.name(), "-r", RATE, "-t", TIME];
            arguments.extend(spacing);
            if engine != LoadEngineKind::Udp && spacing.is_some() {
                arguments.push("--random-sources");
            }
            let result = result_of(lab.client(), &arguments)?;
            let trial = only_trial(&result)?;
            let after = server_counts()?;
            let counted = (after.0 - before.0, after.1 - before.1);
            let by_generator = (trial.sent, trial.received);
            ensure!(by_generator == counted, "{engine:?} {address}: {by_generator:?} {counted:?}");
            check_clean(trial)?;
            ensure!(
                spacing.is_some()
                    || trial.sent == REQUESTS
                    || has(&result, FindingCode::GeneratorBehind)
            );
        }
    }
    Ok(())
}

/// Watches a run and says nothing.
struct NullObserver;

impl LoadObserver for NullObserver {
    fn trial_ended(&mut self, _: usize, _: &Trial) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Runs a load by the library, which is told of the lab's namespaces and may ask the server, so
/// that it can read all counters that there are.
fn run_with_counters(
    lab: &Lab,
    server: &Arc<Server>,
    target: SocketAddr,
    engine: LoadEngineKind,
    run: (f64, Duration),
) -> Result<LoadResult> {
    run_with_all_counters(
        lab,
        server,
        LoadOptions { engine: Some(engine), ..at_one_rate(target, run)? },
    )
}

/// A run at one rate for so long.
pub(crate) fn at_one_rate(
    target: SocketAddr,
    (rate, duration): (f64, Duration),
) -> Result<LoadOptions> {
    let ramp = Ramp { min: rate, max: rate, multiplier: 2.0, duration };
    Ok(LoadOptions::new(target.to_string().parse()?, LoadProcedure::Ramp(ramp)))
}

/// Does that run, in which all counters are read that there are.
pub(crate) fn run_with_all_counters(
    lab: &Lab,
    server: &Arc<Server>,
    options: LoadOptions,
) -> Result<LoadResult> {
    let queried = Arc::clone(server);
    let options = LoadOptions {
        namespaces: vec![lab.server().netns.clone()],
        counter_source: Some(Box::new(move || counters(&queried.status().ok()?))),
        ..options
    };
    Ok(lab.client().run(move || LoadRun::prepare(options)?.run(&mut NullObserver))??)
}

pub(crate) fn lost_at(trial: &Trial, location: LossLocation) -> u64 {
    trial.lost_at.get(&location).copied().unwrap_or(0)
}

/// What a server that is stopped midway has no room for is found at its sockets; what lies in
/// them unanswered no counter tells. The counts add up, although the server does not tell its
/// own.
pub(crate) fn a_stopped_server_s_losses_are_found(body: process::Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let server = Server::start(lab.server(), body, &[at], &["--clock-expiry", "200ms"])?;
    let server = Arc::new(server);
    let run = (100_000.0, Duration::from_millis(1_500));
    let result = thread::scope(|scope| {
        let stop = scope.spawn(|| {
            thread::sleep(Duration::from_millis(300));
            server.signal("STOP")
        });
        let result = run_with_counters(&lab, &server, at, LoadEngineKind::Packet, run);
        stop.join().map_err(|_| anyhow::anyhow!("panicked"))??;
        server.signal("CONT")?;
        result
    })?;
    let trial = only_trial(&result)?;
    check_sums(trial)?;
    ensure!(trial.received > 0 && trial.lost > trial.sent / 10, "{trial:?}");
    ensure!(lost_at(trial, LossLocation::Socket) > 0, "no loss at the socket: {:?}", trial.lost_at);
    Ok(())
}

/// Replies that an XDP server sends back into an interface that does not take them are the
/// generator's own loss, but for what lies in the two rings.
pub(crate) fn a_full_receive_ring_is_found() -> Result<()> {
    const RING: u64 = 256;
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let arguments = ["--xdp-reply", "transmit"];
    let server = Server::start(lab.server(), process::Engine::Xdp, &[at], &arguments)?;
    let run = (20_000.0, Duration::from_millis(250));
    let result = run_with_counters(&lab, &Arc::new(server), at, LoadEngineKind::Packet, run)?;
    let trial = only_trial(&result)?;
    check_sums(trial)?;
    ensure!(trial.lost > 4 * RING && trial.lost == trial.sent, "{trial:?}");
    ensure!(lost_at(trial, LossLocation::OwnRing) + 2 * RING >= trial.lost, "{:?}", trial.lost_at);
    ensure!(has(&result, FindingCode::ReceiveRingOverflow), "{:?}", result.findings);
    Ok(())
}

/// A flood that no server takes is lost at the server's interface or sockets, and what really
/// left is what counts.
pub(crate) fn a_flood_is_accounted_for() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    for body in process::Engine::ALL {
        let server = Server::start(lab.server(), body, &[at], &["--threads", "1"])?;
        let run = (20_000_000.0, Duration::from_millis(300));
        let result = run_with_counters(&lab, &Arc::new(server), at, LoadEngineKind::Xdp, run)?;
        let trial = only_trial(&result)?;
        check_sums(trial)?;
        let planned = 6_000_000;
        ensure!(trial.sent < planned, "nobody sends that many: {trial:?}");
        ensure!(has(&result, FindingCode::GeneratorBehind), "{:?}", result.findings);
        ensure!(trial.invalid.is_empty() && trial.duplicate == 0, "{trial:?}");
        let known = trial.lost - lost_at(trial, LossLocation::Unknown);
        ensure!(known >= trial.lost / 2, "most of it is not known: {:?}", trial.lost_at);
    }
    Ok(())
}

/// A schedule is sent to the last request, or the result says that the generator was behind, and
/// the rate is that of what was sent.
pub(crate) fn an_unsent_schedule_is_a_finding() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), process::Engine::Socket, &[at], &[])?;
    let target = at.ip().to_string();
    for engine in ENGINES {
        // One that is held, one that does not divide a second, and one that nobody can hold.
        for (rate, seconds, planned) in
            [("2000", "0.25", 500), ("7k", "0.3", 2_100), ("20M", "0.05", 1_000_000)]
        {
            let arguments = [&target, "--engine", engine.name(), "-r", rate, "-t", seconds];
            let result = result_of(lab.client(), &arguments)?;
            let trial = only_trial(&result)?;
            check_schedule(&result, trial, planned)
                .with_context(|| format!("{engine:?} at {rate}/s: {trial:?}"))?;
        }
    }
    Ok(())
}

fn check_schedule(result: &LoadResult, trial: &Trial, planned: u64) -> Result<()> {
    check_sums(trial)?;
    let behind = has(result, FindingCode::GeneratorBehind);
    ensure!(trial.sent <= planned, "more than planned");
    ensure!(trial.sent == planned || behind, "less than planned, without a doubt");
    let is_slow = trial.achieved_rate < 0.999 * trial.intended_rate;
    ensure!(is_slow == behind || trial.sent < planned, "behind: {behind}");
    // First and last request of a schedule lie one interval less than its duration apart.
    let sent_s = trial.sent as f64 / trial.achieved_rate;
    ensure!(sent_s > 0.9 * trial.duration_s && sent_s < trial.duration_s + 0.2, "{sent_s} s");
    Ok(())
}
