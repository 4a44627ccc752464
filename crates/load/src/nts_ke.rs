//! Load on an NTS-KE server: clients that each open a connection, run a full TLS handshake, receive
//! keys and cookies, and start again. No session is resumed and nothing is retried. The rate is
//! determined by the server, so that no intended rate exists or is missed, or by a search.

mod live;
mod search;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use horolog_ke::{ExchangePhase, KeClient, KeError};
use horolog_record::{
    Distribution, FailureReason, Finding, FindingCode, Host, LOAD_SCHEMA, NtsKeResult, NtsKeTrial,
    RequestMode, SearchKind, SearchResult, Severity, Target, rfc3339_now,
};
use horolog_stats::{Recorder, Search, SearchConfig};

use crate::error::LoadError;
use crate::findings;
use crate::limit::LoadLimit;
use crate::nts::{Algorithm, NtsError, TrustAnchors};
use crate::target::{self, AddressFamily, TargetName};
use live::NtsKeSampler;
use search::{NtsKeSearchOutcome, SearchContext};

pub use live::NtsKeObserver;

/// Default number of clients: enough to keep every core of a server busy over a link with some
/// delay.
pub const CONNECTIONS: usize = 32;

/// Most clients of a search, which uses no more than its rates need.
pub const SEARCH_CONNECTIONS: usize = 512;

/// Timeout of an NTS-KE exchange in a search.
pub const SEARCH_TIMEOUT: Duration = Duration::from_millis(100);

/// Most clients: each is a thread.
pub const CONNECTIONS_MAX: usize = 4096;

/// Stack size of each client in bytes; TLS needs some tens of thousands.
const STACK: usize = 256 * 1024;

/// Pause after a failure, so that a server that refuses at once is not polled in a tight loop.
const PAUSE: Duration = Duration::from_millis(10);

/// Pacing of the NTS-KE exchanges.
#[derive(Clone, Debug)]
pub enum NtsKeJob {
    /// Closed loop of this duration: each client starts the next exchange on completion of the
    /// last.
    ClosedLoop(Duration),
    /// Search for the highest intended rate at which the goal is met.
    Search {
        /// Name of the search.
        kind: SearchKind,
        /// Rates, goal and durations of the trials.
        config: SearchConfig,
    },
}

/// Options of an NTS-KE load.
#[derive(Clone, Debug)]
pub struct NtsKeLoadOptions {
    /// Target server.
    pub target: TargetName,
    /// Address family to use for a name.
    pub family: Option<AddressFamily>,
    /// Name in its certificate; `None` takes the name of the target.
    pub name: Option<String>,
    /// The user declares a public target as their own.
    pub i_own_this_target: bool,
    /// Trusted certificates.
    pub trust: TrustAnchors,
    /// Number of clients, from 1 to [`CONNECTIONS_MAX`]; in a search, the limit.
    pub connections: usize,
    /// Job of the clients.
    pub job: NtsKeJob,
    /// Timeout of one exchange; in a search, counted from its intended start.
    pub timeout: Duration,
    /// Limits of the run.
    pub limits: Vec<LoadLimit>,
    /// Command line, for the record.
    pub command: Vec<String>,
}

/// Counts of one client.
#[derive(Default)]
struct NtsKeClientCounts {
    sent: u64,
    times: Recorder,
    failures: BTreeMap<FailureReason, u64>,
    first_failure: Option<FailureDescription>,
}

/// Description of a failure, and a remedy.
type FailureDescription = (String, &'static str);

impl NtsKeClientCounts {
    /// Counts an exchange completed after `time`. If this host was slow to process it, that may
    /// exceed the timeout.
    fn took(&mut self, time: Duration, timeout: Duration, address: SocketAddr) {
        if time <= timeout {
            self.times.record(time.as_nanos() as u64);
        } else {
            self.failed(&KeError::TimedOut { address, phase: ExchangePhase::Rest });
        }
    }

    fn failed(&mut self, error: &KeError) {
        *self.failures.entry(reason(error)).or_default() += 1;
        self.first_failure.get_or_insert_with(|| (error.to_string(), error.hint()));
    }

    fn merge(&mut self, other: Self) {
        self.sent += other.sent;
        self.times.merge(&other.times);
        for (reason, count) in other.failures {
            *self.failures.entry(reason).or_default() += count;
        }
        self.first_failure = self.first_failure.take().or(other.first_failure);
    }
}

const fn reason(error: &KeError) -> FailureReason {
    match error {
        KeError::TimedOut { .. } => FailureReason::Timeout,
        KeError::Tls(_) | KeError::NotNtsKe => FailureReason::Tls,
        KeError::ClosedEarly(ExchangePhase::Connecting | ExchangePhase::Handshake) => {
            FailureReason::Connection
        }
        KeError::ClosedEarly(_)
        | KeError::TooLong
        | KeError::BadResponse(_)
        | KeError::NotOffered(_) => FailureReason::Response,
        KeError::Refused { .. } | KeError::NoProtocol | KeError::NoAlgorithm => {
            FailureReason::Refused
        }
        _ => FailureReason::Connection,
    }
}

impl NtsKeLoadOptions {
    /// Refuses invalid options, before the run is announced.
    pub fn check(&self) -> Result<(), LoadError> {
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            return Err(LoadError::Connections(self.connections));
        }
        if let NtsKeJob::Search { config, .. } = self.job {
            Search::new(config)?;
        }
        Ok(())
    }

    fn host(&self) -> &str {
        self.name.as_deref().unwrap_or(self.target.host_without_zone())
    }
}

/// Runs the load until it is complete or `stop` is set; `follower` is called after each trial.
pub fn run(
    options: &NtsKeLoadOptions,
    stop: &(dyn Fn() -> bool + Sync),
    follower: &mut dyn NtsKeObserver,
) -> Result<NtsKeResult, LoadError> {
    options.check()?;
    let address = options.target.resolve(options.family, None)?;
    target::permit(address.ip(), options.i_own_this_target)?;
    let algorithms = [Algorithm::AesSivCmac256, Algorithm::Aes128GcmSiv].map(Algorithm::number);
    let client = KeClient::new(&options.trust, &algorithms).map_err(NtsError::from)?;
    let started = rfc3339_now();
    let context = SearchContext { options, address, client: &client, stop };
    let mut sampler = NtsKeSampler::new(follower);
    let NtsKeSearchOutcome { trials, search, first_failure } = match options.job {
        NtsKeJob::ClosedLoop(duration) => {
            let begun = Instant::now();
            let (counts, first_failure) = all_clients(&context, duration, &mut sampler)?;
            let trial = record(options.connections, counts, begun.elapsed());
            sampler.end(&trial);
            NtsKeSearchOutcome { trials: vec![trial], search: None, first_failure }
        }
        NtsKeJob::Search { kind, config } => {
            search::search((kind, config), &context, &mut sampler)?
        }
    };
    let findings = findings(&trials, search.as_ref(), first_failure, stop());
    let judge = |limit: &LoadLimit| limit.judge_nts_ke(&trials, search.as_ref());
    let limits = options.limits.iter().map(judge).collect();
    Ok(NtsKeResult {
        schema: LOAD_SCHEMA.to_owned(),
        started,
        command: options.command.clone(),
        host: Host::read(),
        target: Target {
            address: address.ip(),
            port: address.port(),
            name: options.target.name().map(str::to_owned),
            interface: None,
            mac: None,
            source_network: None,
        },
        mode: RequestMode::NtsKe,
        trials,
        search,
        limits,
        findings,
    })
}

/// Runs all clients for this long, and adds up their counts; also returns the first failure.
fn all_clients(
    context: &SearchContext<'_>,
    duration: Duration,
    sampler: &mut NtsKeSampler<'_>,
) -> Result<(NtsKeClientCounts, Option<FailureDescription>), LoadError> {
    let deadline = Instant::now() + duration;
    let progress = sampler.progress_for_trial();
    let one = || {
        let mut counts = NtsKeClientCounts::default();
        while Instant::now() < deadline && !(context.stop)() {
            let begun = Instant::now();
            counts.sent += 1;
            progress.begins();
            let options = context.options;
            match context.client.exchange_keys(options.host(), context.address, options.timeout) {
                Ok(_) => {
                    let time = begun.elapsed();
                    counts.times.record(time.as_nanos() as u64);
                    progress.completed(time);
                }
                Err(error) => {
                    counts.failed(&error);
                    thread::sleep(PAUSE);
                }
            }
        }
        counts
    };
    let counts = each_client(context.options.connections, one, |over| {
        sampler.watch(over, &progress, (None, duration));
    })?;
    let mut sum = NtsKeClientCounts::default();
    for counts in counts {
        sum.merge(counts);
    }
    let first = sum.first_failure.take();
    Ok((sum, first))
}

/// Returns the results of one thread for each client. Meanwhile `watch` runs for as long as a
/// sender of its channel exists; all threads hold one until they end.
fn each_client<T: Send>(
    clients: usize,
    work: impl Fn() -> T + Sync,
    watch: impl FnOnce(&Receiver<Infallible>),
) -> Result<Vec<T>, LoadError> {
    let (alive, over) = mpsc::channel();
    thread::scope(|scope| {
        let threads: io::Result<Vec<_>> = (0..clients)
            .map(|_| {
                let (work, alive) = (&work, alive.clone());
                let builder = thread::Builder::new().stack_size(STACK);
                builder.spawn_scoped(scope, move || {
                    let _alive = alive;
                    work()
                })
            })
            .collect();
        drop(alive);
        let action = "start a thread for each client";
        let threads = threads.map_err(|source| LoadError::System { action, source })?;
        watch(&over);
        let join = |thread: thread::ScopedJoinHandle<'_, T>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        Ok(threads.into_iter().map(join).collect())
    })
}

fn record(connections: usize, counts: NtsKeClientCounts, took: Duration) -> NtsKeTrial {
    let received = counts.times.count();
    NtsKeTrial {
        intended_rate: None,
        achieved_rate: received as f64 / took.as_secs_f64().max(1e-9),
        duration_s: took.as_secs_f64(),
        clients: connections as u64,
        sent: counts.sent,
        received,
        lost: counts.sent - received,
        failures: counts.failures,
        handshake_ns: Distribution::of_recorder(&counts.times),
    }
}

/// Returns the findings. A search goes up to rates at which exchanges fail, so failures are a
/// finding only if it met the goal at none of its rates.
fn findings(
    trials: &[NtsKeTrial],
    search: Option<&SearchResult>,
    first_failure: Option<FailureDescription>,
    interrupted: bool,
) -> Vec<Finding> {
    let sum = |count: fn(&NtsKeTrial) -> u64| trials.iter().map(count).sum::<u64>();
    let (sent, received) = (sum(|trial| trial.sent), sum(|trial| trial.received));
    let held = search.is_some_and(|search| search.lower.is_some());
    let failed = first_failure.filter(|_| !held).map(|(first, advice)| {
        let (code, severity) = match received {
            0 => (FindingCode::NoReplies, Severity::Error),
            _ => (FindingCode::NtsKeFailed, Severity::Warning),
        };
        let failed = sent - received;
        let message = format!("{failed} of {sent} NTS-KE exchanges failed; first error: {first}");
        Finding { code, severity, message, advice: advice.to_owned(), trial: None }
    });
    let mut findings: Vec<_> = failed.into_iter().collect();
    findings.extend(search.and_then(findings::unfinished));
    findings.extend(interrupted.then(findings::interrupted));
    findings
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    fn trial(received: u64, lost: u64) -> NtsKeTrial {
        let mut counts =
            NtsKeClientCounts { sent: received + lost, ..NtsKeClientCounts::default() };
        (0..received).for_each(|_| counts.times.record(1_000_000));
        (0..lost).for_each(|_| counts.failed(&KeError::NoAlgorithm));
        record(4, counts, Duration::from_secs(2))
    }

    #[test]
    fn the_rate_is_of_what_gave_keys() {
        let trial = trial(30, 10);
        assert!((trial.achieved_rate - 15.0).abs() < 1e-9);
        assert_eq!((trial.sent, trial.received, trial.lost), (40, 30, 10));
        assert_eq!(trial.failures, BTreeMap::from([(FailureReason::Refused, 10)]));
        assert_eq!(trial.handshake_ns.unwrap().count, 30);
    }

    #[test]
    fn keys_that_come_too_late_are_none() {
        let (mut counts, address) =
            (NtsKeClientCounts::default(), SocketAddr::from(([192, 0, 2, 1], 4460)));
        for ms in [10, 100, 101] {
            counts.took(Duration::from_millis(ms), Duration::from_millis(100), address);
        }
        assert_eq!(counts.times.count(), 2);
        assert_eq!(counts.failures, BTreeMap::from([(FailureReason::Timeout, 1)]));
    }

    #[test]
    fn failures_are_findings_and_nothing_but_failures_is_an_error() {
        let severity = |trial: &NtsKeTrial| {
            let first = (trial.lost > 0).then(|| ("no".to_owned(), "do"));
            let all = findings(slice::from_ref(trial), None, first, false);
            all.first().map(|finding| finding.severity)
        };
        assert_eq!(severity(&trial(5, 0)), None);
        assert_eq!(severity(&trial(5, 1)), Some(Severity::Warning));
        assert_eq!(severity(&trial(0, 1)), Some(Severity::Error));
    }
}
