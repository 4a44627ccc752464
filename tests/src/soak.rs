//! The long test: `horolog-scenarios soak --minutes N`, which `make soak` calls. A server with all
//! that a public one has (XDP and sockets, limits, NTS, interleaved mode) runs in a private host
//! and is loaded, round after round, at twice what it was found to hold, with plain, interleaved
//! and authenticated requests. A slow client asks beside that all the time.
//!
//! After every load it checks that
//!
//! - every reply is valid, answers a request of its own client, and comes once; those to
//!   authenticated requests are authentic; late ones are among the lost;
//! - what was sent was received or lost, and the losses add up by place;
//! - the server counts no fewer replies than came, and no more than there were requests.
//!
//! After every round it checks that
//!
//! - the slow client was answered, and told the right time in every reply: no further off than half
//!   the round trip and a margin, by the machine's own clock, which both ends share;
//! - the threads of the start are all alive, and memory, open files and threads have not grown
//!   since the first round;
//! - the clock page was never older than it may be, and no request was left alone because of it,
//!   or because it had waited for longer than a page lives, which the server counts as the same.
//!
//! At the end the server ends when it is told to, and nothing of it is left.
//!
//! It does not check how fast anything is: twice the capacity is only what was asked of the
//! generator, which shares the machine and may send less, and the line of a round says what it
//! sent. A generator that can send half of that is a second behind its schedule after two; from
//! then on every reply is too late, because waiting counts from the intended instant, and a line
//! with few answered says so. They were answered all the same, and are checked as all others. It
//! does not check the time against another clock, key establishment under load, a change of keys
//! (`--nts-rotation`), reloading, or a real network card. What a server should do when a round
//! fails is not its business: it ends with the first fault.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_load::LoadOptions;
use horolog_load::nts::{
    AeadAlgorithm, KE_PORT, NtsOptions, SESSIONS_DEFAULT, SessionCount, TrustAnchors,
};
use horolog_record::{LoadEngineKind as LoadEngine, LossLocation, Trial};
use horolog_time::Span;
use horolog_wire::ntp::LeapIndicator;
use serde_json::Value;
use tempfile::TempDir;

use crate::client;
use crate::load_accounting::{at_one_rate, run_with_all_counters};
use crate::load_command::{check_sums, only_trial, result_of};
use crate::process::{Engine, Server, resident_bytes, server_address};
use crate::resource_leaks::Resources;
use crate::scenario::Need;
use crate::scenarios;

/// What calls it, as the first argument of this program.
pub(crate) const MODE: &str = "soak";

/// How long each kind of load lasts in a round of the long test, and in the short one.
const LOAD: Duration = Duration::from_secs(10);
const SHORT_LOAD: Duration = Duration::from_millis(700);
/// Long enough for what a load left behind, such as connections, to be gone.
const TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How often the slow client asks, how long it waits for a reply, and how many times it tries.
const QUERY_INTERVAL: Duration = Duration::from_secs(1);
const QUERY_TIMEOUT: Duration = Duration::from_millis(200);
const QUERY_ATTEMPTS: usize = 5;
/// How far a reply's time may be from right beyond half its round trip: the page extrapolates, and
/// the machine's clock may be slewed meanwhile.
const OFFSET_MARGIN: Span = Span::from_ns(10_000_000);
/// Growth that is none: what allocators keep back.
const GROWTH_MAX: u64 = 2 << 20;
/// Requests that a status and its load may be apart by: those that are under way.
const UNDER_WAY: u64 = 16;
/// Life of a clock page, the default of `--clock-expiry`.
const PAGE_LIFE_NS: u64 = 1_000_000_000;

/// All scenarios.
pub(crate) fn all() -> Vec<libtest_mimic::Trial> {
    use crate::soak;
    Vec::from(scenarios!(&[Need::Root], soak: two_short_repetitions_pass))
}

/// The long test in short, so that it stays alive.
fn two_short_repetitions_pass() -> Result<()> {
    soak(SHORT_LOAD, |rounds, _| rounds < 2, |_| ())
}

/// The long test, as a program.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let long = || -> Result<()> {
        let minutes = match arguments {
            [flag, number] if flag == "--minutes" => number.parse::<u32>().ok(),
            _ => None,
        };
        let minutes = minutes.filter(|minutes| *minutes > 0);
        let minutes = minutes.context("write soak --minutes N, with a whole number of minutes")?;
        let time = Duration::from_secs(60 * u64::from(minutes));
        let before = Resources::snapshot()?;
        soak(LOAD, |_, elapsed| elapsed < time, |line| println!("soak: {line}"))?;
        // This lab has no names: a named one that came meanwhile is somebody else's.
        let left = before.left_behind()?.unwrap_or_default();
        let own: Vec<_> = left.split(", ").filter(|one| !one.starts_with("namespace ")).collect();
        ensure!(own.concat().is_empty(), "left behind: {}", own.join(", "));
        Ok(())
    };
    match long() {
        Ok(()) => {
            println!("soak: everything held");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("soak: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Rounds with loads of this length for as long as `goes_on` says so of their number and the time
/// since the first one began, but at least one; each is told of in a line.
fn soak(
    load: Duration,
    goes_on: impl Fn(u32, Duration) -> bool,
    report: impl Fn(&str),
) -> Result<()> {
    let soak = Soak::start()?;
    let slow = SlowClient::default();
    let outcome = thread::scope(|scope| {
        let querying = scope.spawn(|| slow.query(soak.lab.client(), soak.at));
        let outcome = soak.rounds(load, &slow, goes_on, report);
        slow.stop.store(true, Relaxed);
        let attempts = querying.join().map_err(|_| anyhow!("the slow client panicked"))?;
        attempts.context("the slow client").and(outcome)
    });
    let server = Arc::into_inner(soak.server).context("a load has not let go of the server")?;
    let ended = server.end("TERM")?;
    outcome.with_context(|| ended.stderr.clone())?;
    ensure!(ended.status.success(), "the server ended with {}: {}", ended.status, ended.stderr);
    Ok(())
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Plain,
    Interleaved,
    Nts,
}

impl Kind {
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

/// A client that asks once a second, over a socket of its own each time.
#[derive(Default)]
struct SlowClient {
    stop: AtomicBool,
    attempts: AtomicU64,
    answered: AtomicU64,
    offset_max_ns: AtomicI64,
}

impl SlowClient {
    /// Asks until it is told to stop or is told a wrong time.
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

    /// Whether a reply came, which has to be right.
    fn try_once(&self, host: &LabHost, server: SocketAddr) -> Result<bool> {
        let socket = client::socket(host, server, QUERY_TIMEOUT)?;
        let reply = match client::query(&socket, server) {
            Ok(reply) => reply,
            Err(error) if is_timeout(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        let header = reply.header;
        ensure!((header.leap, header.stratum) == (LeapIndicator::None, 1), "{header:?}");
        let round_trip = reply.received.since(reply.sent);
        let bound = Span::from_ns(round_trip.as_ns() / 2) + OFFSET_MARGIN;
        let offset = reply.offset();
        ensure!((-bound..=bound).contains(&offset), "{offset:?} off, at most {bound:?}: {reply:?}");
        self.offset_max_ns.fetch_max(offset.as_ns().abs(), Relaxed);
        self.answered.fetch_add(1, Relaxed);
        Ok(true)
    }
}

/// Whether nothing came at all.
fn is_timeout(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    matches!(kind, Some(io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut))
}

/// What the server has of the machine.
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

    /// Whether these are no more than those of before.
    fn has_not_grown(&self, before: &Self) -> bool {
        let bytes_max = before.resident_bytes + before.resident_bytes / 20 + GROWTH_MAX;
        self.resident_bytes <= bytes_max
            && self.files <= before.files
            && self.threads.len() <= before.threads.len()
    }
}

/// A server under the long test.
struct Soak {
    lab: Lab,
    at: SocketAddr,
    server: Arc<Server>,
    pid: u32,
    threads: BTreeSet<u32>,
    certificate: String,
    /// Holds the certificate.
    _files: TempDir,
}

impl Soak {
    fn start() -> Result<Self> {
        let cores = thread::available_parallelism()?.get() as u32;
        let lab = Lab::new(&LabConfig { queues: cores, ..LabConfig::default() })?;
        let (at, files) = (server_address(&lab, false)?, TempDir::new()?);
        let [certificate, key] = crate::server_nts::certificate(at.ip(), files.path())?
            .map(|path| path.display().to_string());
        let mut arguments = vec!["--stratum", "1", "--nts-cert", &certificate, "--nts-key", &key];
        // Limits that are judged for every request and reached by none.
        arguments.extend(["--limit-rate", "10k", "--limit-new-clients", "10M"]);
        arguments.extend(["--deny", "198.51.100.0/24", "--nts-ke-rate-per-prefix", "0"]);
        let server = Server::start(lab.server(), Engine::Xdp, &[at], &arguments)?;
        let pid = server.status()?["pid"].as_u64().context("no pid")? as u32;
        let threads = ResourceUse::read(pid)?.threads;
        let server = Arc::new(server);
        Ok(Self { lab, at, server, pid, threads, certificate, _files: files })
    }

    fn rounds(
        &self,
        load: Duration,
        slow: &SlowClient,
        goes_on: impl Fn(u32, Duration) -> bool,
        report: impl Fn(&str),
    ) -> Result<()> {
        let mut capacities = Vec::new();
        for kind in Kind::ALL {
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
                let trial = trial.with_context(|| format!("round {round}, {}", kind.name()))?;
                let name = kind.name();
                let Trial { sent, received, achieved_rate, lost_at, .. } = trial;
                let answered =
                    format!("{name} {received} of {sent} answered at {achieved_rate:.0}/s");
                let lost = lost_at.iter().filter(|(_, count)| **count > 0);
                let lost: Vec<_> = lost
                    .map(|(location, count)| format!("{count} {}", lost_in(*location)))
                    .collect();
                line.push(if lost.is_empty() {
                    answered
                } else {
                    format!("{answered}, lost: {}", lost.join(", "))
                });
            }
            let held = self.check(first.as_ref()).with_context(|| format!("round {round}"))?;
            let answered = slow.answered.load(Relaxed) - answered;
            ensure!(answered > 0, "round {round}: the slow client was not answered once");
            line.push(format!(
                "{:.1} MiB, {} files, {} threads",
                held.resident_bytes as f64 / f64::from(1 << 20),
                held.files,
                held.threads.len()
            ));
            let offset_max_us = slow.offset_max_ns.load(Relaxed) / 1_000;
            line.push(format!("slow client: {answered} replies, at most {offset_max_us} us off"));
            report(&format!("round {round}: {}", line.join("; ")));
            first.get_or_insert(held);
        }
        Ok(())
    }

    /// The highest rate that the server holds.
    fn capacity(&self, kind: Kind) -> Result<f64> {
        let target = self.at.ip().to_string();
        let mut arguments = vec![target.as_str(), "--search", "ndr", "--loss-ratio", "0.01%"];
        arguments.extend(["-t", "0.1"]);
        arguments.extend(kind.arguments(&self.certificate));
        let result = result_of(self.lab.client(), &arguments)?;
        Ok(result.search.context("the search did not end")?.rate.max(1_000.0))
    }

    /// What is asked for, as the flags of [`Kind::arguments`] say it.
    fn options(&self, kind: Kind, run: (f64, Duration)) -> Result<LoadOptions> {
        let options = at_one_rate(self.at, run)?;
        let nts = || -> Result<NtsOptions> {
            Ok(NtsOptions {
                ke_server: options.target.with_port(KE_PORT),
                name: None,
                trust: TrustAnchors::from_pem_file(Some(Path::new(&self.certificate)))?,
                algorithms: vec![AeadAlgorithm::AesSivCmac256],
                sessions: SessionCount::Shared(SESSIONS_DEFAULT),
                share: 100,
            })
        };
        Ok(match kind {
            Kind::Plain => LoadOptions { engine: Some(LoadEngine::Xdp), ..options },
            Kind::Interleaved => {
                LoadOptions { engine: Some(LoadEngine::Xdp), interleaved: true, ..options }
            }
            Kind::Nts => {
                let nts = Some(nts()?);
                LoadOptions { engine: Some(LoadEngine::Packet), nts, ..options }
            }
        })
    }

    /// Loads the server at this rate and checks every reply.
    fn load(&self, kind: Kind, rate: f64, time: Duration, slow: &SlowClient) -> Result<Trial> {
        let (before, attempts) = (self.server.status()?, slow.attempts.load(Relaxed));
        let result =
            run_with_all_counters(&self.lab, &self.server, self.options(kind, (rate, time))?)?;
        let (after, attempts) = (self.server.status()?, slow.attempts.load(Relaxed) - attempts);
        let trial = only_trial(&result)?;
        check_sums(trial)?;
        ensure!(trial.received > 0, "no reply: {trial:?}");
        ensure!(trial.invalid_total() == 0, "invalid replies: {:?}", trial.invalid);
        ensure!(trial.duplicate == 0, "{} replies came twice", trial.duplicate);
        ensure!(trial.late <= trial.lost, "{} late, but {} lost", trial.late, trial.lost);
        let responses = trial.responses;
        let as_requested = match kind {
            Kind::Plain => responses.basic == trial.received,
            Kind::Interleaved => responses.interleaved > 0,
            Kind::Nts => responses.nts == trial.received,
        };
        ensure!(as_requested, "not what was asked for: {responses:?} of {}", trial.received);
        let answered = answered(&after)? - answered(&before)?;
        let (least, most) = (trial.received + trial.late, trial.sent + attempts + UNDER_WAY);
        ensure!(
            (least..=most).contains(&answered),
            "the server counts {answered} replies instead of {least} to {most}"
        );
        Ok(trial.clone())
    }

    /// Checks what the server has and what it says of itself, against what it had after the first
    /// round.
    fn check(&self, first: Option<&ResourceUse>) -> Result<ResourceUse> {
        let status = self.server.status()?;
        let gap_ns = count(&status, "/clock/gap_max_ns")?;
        ensure!(gap_ns < PAGE_LIFE_NS, "the clock page was not renewed for {gap_ns} ns");
        let expired = count(&status, "/counters/expired")?;
        ensure!(
            expired == 0,
            "{expired} requests were left alone, because the page had expired or they had waited \
             for longer than it lives (it was renewed after {gap_ns} ns at the most): {status}"
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

fn count(status: &Value, pointer: &str) -> Result<u64> {
    let value = status.pointer(pointer).and_then(Value::as_u64);
    value.with_context(|| format!("no {pointer}: {status}"))
}

/// Where requests, or replies to them, were lost.
const fn lost_in(location: LossLocation) -> &'static str {
    match location {
        LossLocation::Generator => "not sent",
        LossLocation::OwnRing => "at the generator's interface",
        LossLocation::Link => "on the link",
        LossLocation::Interface => "at the server's interface",
        LossLocation::Socket => "at its sockets",
        LossLocation::Server => "in the server",
        LossLocation::Late => "too late",
        LossLocation::Invalid => "not valid",
        LossLocation::Unknown => "somewhere",
    }
}

/// Replies of both engines.
fn answered(status: &Value) -> Result<u64> {
    let paths =
        ["/counters/answered", "/xdp_counters/answered_ipv4", "/xdp_counters/answered_ipv6"];
    paths.iter().map(|path| count(status, path)).sum()
}
