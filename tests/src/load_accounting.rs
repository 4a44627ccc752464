//! Scenarios of complete runs of `horolog load`: against Debian's chronyd and `horolog serve`,
//! whose counters must agree with the result, and against servers that lose requests in known ways.
//! Achieved rates are for the benchmarks.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
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
use horolog_load::{LoadOptions, LoadProcedure, LoadRun};
use horolog_record::{FindingCode, LoadEngineKind, LoadResult, LossLocation, Trial};
use tempfile::TempDir;

use crate::load_command::{ENGINES, check_sums, has_finding, only_trial, result_of};
use crate::process::{self, Server, run_to_end, server_address};

const TIMEOUT: Duration = Duration::from_secs(10);
/// Request rate that every server achieves, even on a busy machine.
const RATE: &str = "5000";
const TIME: &str = "0.2";
const REQUESTS: u64 = 1_000;

/// Debian's chronyd as a server, with a command socket for chronyc, and files only in its own
/// directory. It does not control this machine's clock (`-x`).
pub(crate) struct Chronyd {
    process: RunningProgram,
    directory: TempDir,
}

impl Chronyd {
    pub(crate) fn start(host: &LabHost) -> Result<Self> {
        // chronyd refuses a socket directory that other users can read.
        let private = Permissions::from_mode(0o700);
        let directory = tempfile::Builder::new().permissions(private).tempdir()?;
        let path = |name: &str| directory.path().join(name).display().to_string();
        let (socket, pid) = (path("chronyd.sock"), path("chronyd.pid"));
        let mut command = host.command("chronyd");
        command.args(["-x", "-d", "-u", "root", "-f", "/dev/null", "allow all", "local stratum 1"]);
        command.args(["cmdport 0", &format!("bindcmdaddress {socket}"), &format!("pidfile {pid}")]);
        let mut process = RunningProgram::start(&mut command)?;
        let ready = || read_statistics(directory.path()).is_ok();
        process.await_ready(TIMEOUT, ready)?;
        Ok(Self { process, directory })
    }

    /// Returns the path of the command socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("chronyd.sock")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns chronyd's numbers of received NTP packets and of dropped ones among them.
    pub(crate) fn statistics(&self) -> Result<(u64, u64)> {
        read_statistics(self.directory.path())
    }

    /// Returns the numbers of requests that chronyd received, that it dropped of these, and that
    /// overflowed its socket by the kernel's count.
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

/// Returns the numbers of received NTP packets, and of dropped ones among them, from `chronyc
/// serverstats`.
fn read_statistics(directory: &Path) -> Result<(u64, u64)> {
    let mut command = Command::new("chronyc");
    command.arg("-h").arg(directory.join("chronyd.sock")).arg("serverstats");
    let output = run_to_end(&mut command, TIMEOUT)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let number = |name: &str| -> Result<u64> {
        let line = text.lines().find(|line| line.starts_with(name));
        let number = line.and_then(|line| line.rsplit(' ').next());
        let number = number.with_context(|| format!("chronyc reports no '{name}': {text}"))?;
        Ok(number.parse()?)
    };
    Ok((number("NTP packets received")?, number("NTP packets dropped")?))
}

/// The requests and replies that each engine counts agree with the counts of chronyd, over both IP
/// versions.
pub(crate) fn generator_agrees_with_chronyd() -> Result<()> {
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
            let [received, dropped, overflowed] = [0, 1, 2].map(|of: usize| after[of] - before[of]);
            let sum = |count: fn(&Trial) -> u64| result.trials.iter().map(count).sum::<u64>();
            ensure!(result.trials.len() == 2 && result.engine == engine, "{result:?}");
            let sent = sum(|trial| trial.sent);
            ensure!(
                sent == received + overflowed,
                "{engine:?} sent {sent}, chronyd received {received} and missed {overflowed}"
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

/// Checks that all replies were valid, unique and in time.
fn check_clean(trial: &Trial) -> Result<()> {
    check_sums(trial)?;
    ensure!(trial.invalid.is_empty(), "invalid replies: {:?}", trial.invalid);
    ensure!((trial.duplicate, trial.late) == (0, 0), "duplicates or late replies: {trial:?}");
    Ok(())
}

/// Returns the requests that both engines of a server received and answered; `None` if the status
/// contains no counters.
pub(crate) fn request_counts(status: &serde_json::Value) -> Option<ServerRequestCounts> {
    let count = |pointer: &str| status.pointer(pointer).and_then(serde_json::Value::as_u64);
    let in_kernel = count("/xdp_counters/answered_ipv4").unwrap_or(0)
        + count("/xdp_counters/answered_ipv6").unwrap_or(0);
    Some(ServerRequestCounts {
        received: count("/counters/received")? + in_kernel,
        answered: count("/counters/answered")? + in_kernel,
    })
}

/// The counts of `horolog serve` and of each engine of the generator agree, over both IP versions,
/// with clients in turn and at random.
pub(crate) fn generator_agrees_with_the_server(engine_of_server: process::Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let addresses = [server_address(&lab, false)?, server_address(&lab, true)?];
    let server = Server::start(lab.server(), engine_of_server, &addresses, &[])?;
    let server_counts = || {
        let status = server.status()?;
        let counters = request_counts(&status).context("the server reports no counters")?;
        let dropped = status.pointer("/counters/dropped").and_then(serde_json::Value::as_u64);
        // Requests that overflowed the server's sockets were sent as well.
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
                    || has_finding(&result, FindingCode::GeneratorBehind)
            );
        }
    }
    Ok(())
}

/// Runs a load at one rate, with the counters of the lab's namespaces and of the server.
fn run_at_rate(
    lab: &Lab,
    server: &Arc<Server>,
    target: SocketAddr,
    engine: LoadEngineKind,
    run: (f64, Duration),
) -> Result<LoadResult> {
    run_with_all_counters(
        lab,
        server,
        LoadOptions { engine: Some(engine), ..options_at_rate(target, run)? },
    )
}

/// Returns the options of a run at one rate.
pub(crate) fn options_at_rate(
    target: SocketAddr,
    (rate, duration): (f64, Duration),
) -> Result<LoadOptions> {
    let ramp = Ramp { min: rate, max: rate, multiplier: 2.0, duration };
    Ok(LoadOptions::new(target.to_string().parse()?, LoadProcedure::Ramp(ramp)))
}

/// Runs a load with the counters of the lab's namespaces and of the server.
pub(crate) fn run_with_all_counters(
    lab: &Lab,
    server: &Arc<Server>,
    options: LoadOptions,
) -> Result<LoadResult> {
    let queried = Arc::clone(server);
    let options = LoadOptions {
        namespaces: vec![lab.server().netns.clone()],
        counter_source: Some(Box::new(move || request_counts(&queried.status().ok()?))),
        ..options
    };
    Ok(lab.client().run(move || LoadRun::prepare(options)?.run(&mut ()))??)
}

pub(crate) fn lost_at(trial: &Trial, location: LossLocation) -> u64 {
    trial.lost_at.get(&location).copied().unwrap_or(0)
}

/// Losses of a server that is stopped in the middle of a run are located at its sockets, except for
/// requests that lie unread in them. The counts add up without the server's own.
pub(crate) fn losses_of_a_stopped_server_are_located(
    engine_of_server: process::Engine,
) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let server =
        Server::start(lab.server(), engine_of_server, &[at], &["--clock-expiry", "200ms"])?;
    let server = Arc::new(server);
    let run = (100_000.0, Duration::from_millis(1_500));
    let result = thread::scope(|scope| {
        let stop = scope.spawn(|| {
            thread::sleep(Duration::from_millis(300));
            server.signal("STOP")
        });
        let result = run_at_rate(&lab, &server, at, LoadEngineKind::Packet, run);
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

/// Replies that an XDP server sends to an interface that does not receive them are lost at the
/// generator's own ring, except for the content of two rings.
pub(crate) fn a_full_receive_ring_is_found() -> Result<()> {
    const RING: u64 = 256;
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let arguments = ["--xdp-reply", "transmit"];
    let server = Server::start(lab.server(), process::Engine::Xdp, &[at], &arguments)?;
    let run = (20_000.0, Duration::from_millis(250));
    let result = run_at_rate(&lab, &Arc::new(server), at, LoadEngineKind::Packet, run)?;
    let trial = only_trial(&result)?;
    check_sums(trial)?;
    ensure!(trial.lost > 4 * RING && trial.lost == trial.sent, "{trial:?}");
    ensure!(lost_at(trial, LossLocation::OwnRing) + 2 * RING >= trial.lost, "{:?}", trial.lost_at);
    ensure!(has_finding(&result, FindingCode::ReceiveRingOverflow), "{:?}", result.findings);
    Ok(())
}

/// A flood above the server's capacity is lost at its interface or sockets, and only requests that
/// were sent are counted.
pub(crate) fn a_flood_is_accounted_for() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    for engine_of_server in process::Engine::ALL {
        let server = Server::start(lab.server(), engine_of_server, &[at], &["--threads", "1"])?;
        let run = (20_000_000.0, Duration::from_millis(300));
        let result = run_at_rate(&lab, &Arc::new(server), at, LoadEngineKind::Xdp, run)?;
        let trial = only_trial(&result)?;
        check_sums(trial)?;
        let planned = 6_000_000;
        ensure!(trial.sent < planned, "the whole flood was sent: {trial:?}");
        ensure!(has_finding(&result, FindingCode::GeneratorBehind), "{:?}", result.findings);
        ensure!(trial.invalid.is_empty() && trial.duplicate == 0, "{trial:?}");
        let known = trial.lost - lost_at(trial, LossLocation::Unknown);
        ensure!(known >= trial.lost / 2, "most losses are not located: {:?}", trial.lost_at);
    }
    Ok(())
}

/// A schedule is sent completely, or a finding reports the delay of the generator, and the achieved
/// rate is that of the requests sent.
pub(crate) fn an_unsent_schedule_is_a_finding() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), process::Engine::Socket, &[at], &[])?;
    let target = at.ip().to_string();
    for engine in ENGINES {
        // A rate that can be achieved, one that does not divide a second, and one above every
        // engine's capacity.
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
    let behind = has_finding(result, FindingCode::GeneratorBehind);
    ensure!(trial.sent <= planned, "more than planned");
    ensure!(trial.sent == planned || behind, "less than planned, without a finding");
    let is_slow = trial.achieved_rate < 0.999 * trial.intended_rate;
    ensure!(is_slow == behind || trial.sent < planned, "behind: {behind}");
    // The first and last request of a schedule are one interval less than its duration apart.
    let sent_s = trial.sent as f64 / trial.achieved_rate;
    ensure!(sent_s > 0.9 * trial.duration_s && sent_s < trial.duration_s + 0.2, "{sent_s} s");
    Ok(())
}
