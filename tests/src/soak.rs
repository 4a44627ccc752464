//! Long-running test: `horolog-scenarios soak --minutes N`, which `make soak` calls. A server with
//! all features of a public one (XDP and sockets, limits, NTS, interleaved mode) runs on a lab host
//! and is loaded in repetitions, at twice its capacity, with plain, interleaved and authenticated
//! requests, while a slow client polls it.
//!
//! After every load it checks that
//!
//! - every reply is valid, belongs to a request of its own client, and is received once; replies to
//!   authenticated requests are authentic; late ones are among the lost;
//! - every request that was sent was received or lost, and the losses add up by location;
//! - the server counts no fewer replies than were received, and no more than there were requests.
//!
//! After every repetition it checks that
//!
//! - the slow client received replies, each with the right time: within half the RTT and a margin,
//!   by the host's clock, which both ends share;
//! - all initial threads are alive, and memory, open files and threads have not grown since the
//!   first repetition;
//! - the clock page never exceeded its life, and no request was dropped for that reason, or because
//!   it had waited for longer than that life, which the server counts as the same.
//!
//! At the end the server ends on SIGTERM, and leaves nothing behind.
//!
//! Speed is not checked: twice the capacity is only the intended rate of the generator, which
//! shares the host and may send less; the line of a repetition contains the achieved rate. A
//! generator that achieves half the intended rate is a second behind its schedule after two
//! seconds; from then on every reply is late, because response times count from the intended send
//! time, and the line shows few replies. Late replies are checked like all others. The time is not
//! compared with another clock; NTS-KE under load, key rotation (`--nts-rotation`), reloads and
//! physical NICs are not tested. The test ends with the first failure.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_load::LoadOptions;
use horolog_load::mix::RequestMix;
use horolog_load::nts::{
    AeadAlgorithm, KE_PORT, NtsOptions, SESSIONS_DEFAULT, SessionCount, TrustAnchors,
};
use horolog_load::request_kind::{NtpRequestOptions, NtsSessionSource};
use horolog_record::{LoadEngineKind as LoadEngine, LossLocation, Trial};
use horolog_time::Span;
use horolog_wire::ntp::LeapIndicator;
use serde_json::Value;
use tempfile::TempDir;

use crate::client;
use crate::isolation::isolated;
use crate::load_accounting::{options_at_rate, run_with_all_counters};
use crate::load_command::{check_sums, only_trial, result_of};
use crate::process::{Engine, Server, resident_bytes, server_address};
use crate::scenario::{Need, Scenario};
use crate::{scenarios, soak};

/// First argument of this program that selects the long-running test.
pub(crate) const MODE: &str = "soak";
/// First argument with which this program runs that test in its namespaces.
pub(crate) const ISOLATED_MODE: &str = "soak-isolated";

/// Duration of each kind of load in a repetition of the long-running test.
const LOAD_DURATION: Duration = Duration::from_secs(10);
/// Duration of each kind of load in a repetition of the short test.
const SHORT_LOAD_DURATION: Duration = Duration::from_millis(200);
/// Time in which remains of a load, such as connections, disappear.
const TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Polling interval of the slow client.
const QUERY_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait of the slow client for a reply.
const QUERY_TIMEOUT: Duration = Duration::from_millis(200);
/// Number of attempts of the slow client per poll.
const QUERY_ATTEMPTS: usize = 5;
/// Largest error of a reply's time beyond half the RTT: the page extrapolates, and the host's clock
/// may be slewed.
const OFFSET_MARGIN: Span = Span::from_ns(10_000_000);
/// Growth in bytes that allocators may cause by memory that they retain.
const GROWTH_BYTES_MAX: u64 = 2 << 20;
/// Requests in flight, by which the counts of the server and of its load may differ.
const IN_FLIGHT_MAX: u64 = 16;
/// Life of a clock page, the default of `--clock-expiry`.
const PAGE_LIFE_NS: u64 = 1_000_000_000;

pub(crate) fn all() -> Vec<Scenario> {
    Vec::from(scenarios!(&[Need::Root], soak: two_short_repetitions_pass))
}

/// Short form of the long-running test, which keeps it in working order.
fn two_short_repetitions_pass() -> Result<()> {
    soak(SHORT_LOAD_DURATION, |rounds, _| rounds < 2, |_| ())
}

/// Runs the long-running test as a program: `--minutes N`, isolated as a scenario is.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let minutes = match arguments {
        [flag, number] if flag == "--minutes" => number.parse::<u32>().ok(),
        _ => None,
    };
    let minutes = minutes.filter(|minutes| *minutes > 0);
    let minutes = minutes.context("soak requires --minutes N, a whole number of minutes")?;
    let mut command = isolated(&env::current_exe()?, &[ISOLATED_MODE, &minutes.to_string()])?;
    ensure!(command.status()?.success(), "soak failed, or left something behind");
    Ok(())
}

/// Runs the long-running test in this process, for so many minutes.
pub(crate) fn run_isolated(minutes: &str) -> Result<()> {
    let time = Duration::from_secs(60 * minutes.parse::<u64>()?);
    soak(LOAD_DURATION, |_, elapsed| elapsed < time, |line| println!("soak: {line}"))?;
    println!("soak: all checks passed");
    Ok(())
}

/// Runs repetitions with loads of this duration, at least one, while `goes_on` returns true for
/// their number and the time since the start of the first; reports each in one line.
fn soak(
    load: Duration,
    goes_on: impl Fn(u32, Duration) -> bool,
    report: impl Fn(&str),
) -> Result<()> {
    let soak = Soak::start()?;
    let slow = SlowClient::default();
    let outcome = thread::scope(|scope| {
        let querying = scope.spawn(|| slow.query(soak.lab.client(), soak.at));
        let outcome = soak.run_repetitions(load, &slow, goes_on, report);
        slow.stop.store(true, Relaxed);
        let attempts = querying.join().map_err(|_| anyhow!("the slow client panicked"))?;
        attempts.context("the slow client").and(outcome)
    });
    let server = Arc::into_inner(soak.server).context("a load still uses the server")?;
    let ended = server.end("TERM")?;
    outcome.with_context(|| ended.stderr.clone())?;
    ensure!(ended.status.success(), "the server ended with {}: {}", ended.status, ended.stderr);
    Ok(())
}

/// Kind of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SoakRequestKind {
    Plain,
    Interleaved,
    Nts,
}

impl SoakRequestKind {
    const ALL: [Self; 3] = [Self::Plain, Self::Interleaved, Self::Nts];

    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Interleaved => "interleaved",
            Self::Nts => "NTS",
        }
    }

    fn arguments(self, certificate: &str) -> Vec<&str> {
        match self {
            Self::Plain => vec!["--engine", "xdp"],
            Self::Interleaved => vec!["--engine", "xdp", "--interleaved"],
            Self::Nts => vec!["--engine", "packet", "--nts", "--ca", certificate],
        }
    }
}

/// Client that polls once per second, each time over a new socket.
#[derive(Default)]
struct SlowClient {
    stop: AtomicBool,
    attempts: AtomicU64,
    answered: AtomicU64,
    offset_max_ns: AtomicI64,
}

impl SlowClient {
    /// Polls until it is stopped or receives a wrong time.
    fn query(&self, host: &LabHost, server: SocketAddr) -> Result<()> {
        while !self.stop.load(Relaxed) {
            let begun = Instant::now();
            for _ in 0..QUERY_ATTEMPTS {
                self.attempts.fetch_add(1, Relaxed);
                if self.try_once(host, server)? {
                    break;
                }
            }
            while begun.elapsed() < QUERY_INTERVAL && !self.stop.load(Relaxed) {
                thread::sleep(POLL_INTERVAL / 2);
            }
        }
        Ok(())
    }

    /// Returns true if a reply was received, which must be right.
    fn try_once(&self, host: &LabHost, server: SocketAddr) -> Result<bool> {
        let socket = client::socket(host, server, QUERY_TIMEOUT)?;
        let reply = match client::query(&socket, server) {
            Ok(reply) => reply,
            Err(error) if is_timeout(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        let header = reply.header;
        ensure!((header.leap, header.stratum) == (LeapIndicator::None, 1), "{header:?}");
        ensure!(reply.has_offset(Span::ZERO, OFFSET_MARGIN), "{reply:?}");
        self.offset_max_ns.fetch_max(reply.offset().as_ns().abs(), Relaxed);
        self.answered.fetch_add(1, Relaxed);
        Ok(true)
    }
}

/// Returns true if nothing was received at all.
fn is_timeout(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    matches!(kind, Some(io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut))
}

/// Resources that the server uses.
#[derive(Clone, Debug)]
struct ResourceUse {
    resident_bytes: u64,
    files: usize,
    threads: BTreeSet<u32>,
}

impl ResourceUse {
    fn read(pid: u32) -> Result<Self> {
        let process = Path::new("/proc").join(pid.to_string());
        let resident_bytes = resident_bytes(pid)?;
        let numbers = |name: &str| -> Result<BTreeSet<u32>> {
            let entries = fs::read_dir(process.join(name))?;
            let number = |name: std::ffi::OsString| name.to_string_lossy().parse().ok();
            Ok(entries.filter_map(|entry| number(entry.ok()?.file_name())).collect())
        };
        let files = numbers("fd")?.len();
        Ok(Self { resident_bytes, files, threads: numbers("task")? })
    }

    /// Returns true if the use does not exceed that of before.
    fn has_not_grown(&self, before: &Self) -> bool {
        let bytes_max = before.resident_bytes + before.resident_bytes / 20 + GROWTH_BYTES_MAX;
        self.resident_bytes <= bytes_max
            && self.files <= before.files
            && self.threads.len() <= before.threads.len()
    }
}

/// Server under the long-running test.
struct Soak {
    lab: Lab,
    at: SocketAddr,
    server: Arc<Server>,
    pid: u32,
    threads: BTreeSet<u32>,
    certificate: String,
    /// Directory of the certificate.
    _files: TempDir,
}

impl Soak {
    fn start() -> Result<Self> {
        let cores = thread::available_parallelism()?.get() as u32;
        let lab = Lab::new(&LabConfig { queues: cores, ..LabConfig::default() })?;
        let (at, files) = (server_address(&lab, false)?, TempDir::new()?);
        let [certificate, key] = crate::server_nts::write_certificate(at.ip(), files.path())?
            .map(|path| path.display().to_string());
        let mut arguments = vec!["--stratum", "1", "--nts-cert", &certificate, "--nts-key", &key];
        // Limits that are checked for every request and reached by none.
        arguments.extend(["--limit-rate", "10k", "--limit-new-clients", "10M"]);
        arguments.extend(["--deny", "198.51.100.0/24", "--nts-ke-rate-per-prefix", "0"]);
        let server = Server::start(lab.server(), Engine::Xdp, &[at], &arguments)?;
        let pid = server.status()?["pid"].as_u64().context("no pid")? as u32;
        let threads = ResourceUse::read(pid)?.threads;
        let server = Arc::new(server);
        Ok(Self { lab, at, server, pid, threads, certificate, _files: files })
    }

    fn run_repetitions(
        &self,
        load: Duration,
        slow: &SlowClient,
        goes_on: impl Fn(u32, Duration) -> bool,
        report: impl Fn(&str),
    ) -> Result<()> {
        let mut capacities = Vec::new();
        for kind in SoakRequestKind::ALL {
            let capacity = self.capacity(kind).with_context(|| kind.name())?;
            report(&format!("{}: {capacity:.0}/s without loss", kind.name()));
            capacities.push((kind, capacity));
        }
        let (begun, mut round, mut first) = (Instant::now(), 0, None);
        while round == 0 || goes_on(round, begun.elapsed()) {
            round += 1;
            let answered = slow.answered.load(Relaxed);
            let mut line = Vec::new();
            for &(kind, capacity) in &capacities {
                let trial = self.load(kind, 2.0 * capacity, load, slow);
                let trial =
                    trial.with_context(|| format!("repetition {round}, {}", kind.name()))?;
                let name = kind.name();
                let Trial { sent, received, achieved_rate, lost_at, .. } = trial;
                let answered =
                    format!("{name} {received} replies to {sent} requests at {achieved_rate:.0}/s");
                let lost = lost_at.iter().filter(|(_, count)| **count > 0);
                let lost: Vec<_> = lost
                    .map(|(location, count)| format!("{count} {}", location_text(*location)))
                    .collect();
                line.push(if lost.is_empty() {
                    answered
                } else {
                    format!("{answered}, lost: {}", lost.join(", "))
                });
            }
            let resources =
                self.check(first.as_ref()).with_context(|| format!("repetition {round}"))?;
            let answered = slow.answered.load(Relaxed) - answered;
            ensure!(answered > 0, "repetition {round}: no reply to the slow client");
            line.push(format!(
                "{:.1} MiB, {} files, {} threads",
                resources.resident_bytes as f64 / f64::from(1 << 20),
                resources.files,
                resources.threads.len()
            ));
            let offset_max_us = slow.offset_max_ns.load(Relaxed) / 1_000;
            line.push(format!("slow client: {answered} replies, offset up to {offset_max_us} us"));
            report(&format!("repetition {round}: {}", line.join("; ")));
            first.get_or_insert(resources);
        }
        Ok(())
    }

    /// Searches the highest rate without loss.
    fn capacity(&self, kind: SoakRequestKind) -> Result<f64> {
        let target = self.at.ip().to_string();
        let mut arguments = vec![target.as_str(), "--search", "ndr", "--loss-ratio", "0.01%"];
        arguments.extend(["-t", "0.1"]);
        arguments.extend(kind.arguments(&self.certificate));
        let result = result_of(self.lab.client(), &arguments)?;
        Ok(result.search.context("no result of the search")?.rate.max(1_000.0))
    }

    /// Returns the options that are equivalent to the flags of [`SoakRequestKind::arguments`].
    fn options(&self, kind: SoakRequestKind, run: (f64, Duration)) -> Result<LoadOptions> {
        let options = options_at_rate(self.at, run)?;
        let nts = || -> Result<NtsSessionSource> {
            Ok(NtsSessionSource::Exchanges(NtsOptions {
                ke_server: options.target.with_port(KE_PORT),
                name: None,
                trust: TrustAnchors::from_pem_file(Some(Path::new(&self.certificate)))?,
                algorithms: vec![AeadAlgorithm::AesSivCmac256],
                sessions: SessionCount::Shared(SESSIONS_DEFAULT),
                share: 100,
            }))
        };
        let (engine, requests) = match kind {
            SoakRequestKind::Plain => (LoadEngine::Xdp, RequestMix::default()),
            SoakRequestKind::Interleaved => {
                (LoadEngine::Xdp, RequestMix::only(NtpRequestOptions::interleaved()))
            }
            SoakRequestKind::Nts => (LoadEngine::Packet, RequestMix::only(nts()?)),
        };
        Ok(LoadOptions { engine: Some(engine), requests, ..options })
    }

    /// Loads the server at `rate` and checks every reply.
    fn load(
        &self,
        kind: SoakRequestKind,
        rate: f64,
        time: Duration,
        slow: &SlowClient,
    ) -> Result<Trial> {
        let (before, attempts) = (self.server.status()?, slow.attempts.load(Relaxed));
        let result =
            run_with_all_counters(&self.lab, &self.server, self.options(kind, (rate, time))?)?;
        let (after, attempts) = (self.server.status()?, slow.attempts.load(Relaxed) - attempts);
        let trial = only_trial(&result)?;
        check_sums(trial)?;
        ensure!(trial.received > 0, "no reply: {trial:?}");
        ensure!(trial.invalid_total() == 0, "invalid replies: {:?}", trial.invalid);
        ensure!(trial.duplicate == 0, "{} duplicate replies", trial.duplicate);
        ensure!(trial.late <= trial.lost, "{} late, but {} lost", trial.late, trial.lost);
        let responses = trial.responses;
        let as_requested = match kind {
            SoakRequestKind::Plain => responses.basic == trial.received,
            SoakRequestKind::Interleaved => responses.interleaved > 0,
            SoakRequestKind::Nts => responses.nts == trial.received,
        };
        ensure!(as_requested, "replies of another kind: {responses:?} of {}", trial.received);
        let answered = reply_count(&after)? - reply_count(&before)?;
        let (least, most) = (trial.received + trial.late, trial.sent + attempts + IN_FLIGHT_MAX);
        ensure!(
            (least..=most).contains(&answered),
            "the server counts {answered} replies instead of {least} to {most}"
        );
        Ok(trial.clone())
    }

    /// Checks the server's status and the growth of its resources since the first repetition.
    fn check(&self, first: Option<&ResourceUse>) -> Result<ResourceUse> {
        let status = self.server.status()?;
        let gap_ns = read_counter(&status, "/clock/gap_max_ns")?;
        ensure!(gap_ns < PAGE_LIFE_NS, "the clock page was not updated for {gap_ns} ns");
        let expired = read_counter(&status, "/counters/expired")?;
        ensure!(
            expired == 0,
            "{expired} requests were dropped, because the page had expired or they had waited for \
             longer than its life (longest time between two updates: {gap_ns} ns): {status}"
        );
        let begun = Instant::now();
        loop {
            let held = ResourceUse::read(self.pid)?;
            let dead: Vec<_> = self.threads.difference(&held.threads).collect();
            ensure!(dead.is_empty(), "threads {dead:?} have ended");
            if first.is_none_or(|first| held.has_not_grown(first)) {
                return Ok(held);
            }
            ensure!(begun.elapsed() < TIMEOUT, "grown from {first:?} to {held:?}");
            thread::sleep(POLL_INTERVAL);
        }
    }
}

fn read_counter(status: &Value, pointer: &str) -> Result<u64> {
    let value = status.pointer(pointer).and_then(Value::as_u64);
    value.with_context(|| format!("no {pointer}: {status}"))
}

/// Returns the location of a loss, in words.
const fn location_text(location: LossLocation) -> &'static str {
    match location {
        LossLocation::Generator => "not sent",
        LossLocation::OwnRing => "at the generator's interface",
        LossLocation::Link => "on the link",
        LossLocation::Interface => "at the server's interface",
        LossLocation::Socket => "at its sockets",
        LossLocation::Server => "in the server",
        LossLocation::Late => "too late",
        LossLocation::Invalid => "not valid",
        LossLocation::Unknown => "at an unknown location",
    }
}

/// Returns the number of replies of both engines.
fn reply_count(status: &Value) -> Result<u64> {
    let paths =
        ["/counters/answered", "/xdp_counters/answered_ipv4", "/xdp_counters/answered_ipv6"];
    paths.iter().map(|path| read_counter(status, path)).sum()
}
