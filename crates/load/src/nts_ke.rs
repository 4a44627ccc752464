//! Load on an NTS-KE server. Each client opens a connection, runs a full TLS handshake, receives
//! keys and cookies, and starts again; sessions are not resumed and failures are not retried. In a
//! closed loop the server determines the rate; in a search the generator does.

mod search;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use horolog_ke::{NtsKeClient, NtsKeError, NtsKeExchangePhase};
use horolog_record::{
    CapacitySearchGoal, CapacitySearchResult, Distribution, Finding, FindingCode, Host,
    LOAD_SCHEMA, LiveCounts, LiveSampler, LoadTarget, NtsKeFailureReason, NtsKeLoadResult,
    NtsKeTrial, PartPlan, Percentiles, Progress, ProgressSlots, RequestMode, RequestValues,
    RunObserver, Severity, lock_slot, rfc3339_now,
};
use horolog_stats::{Histogram, Search, SearchConfig};

use crate::error::LoadError;
use crate::findings;
use crate::limit::LoadMetricLimit;
use crate::nts::{AeadAlgorithm, NtsError, TrustAnchors};
use crate::target::{self, AddressFamily, TargetName};
use search::{NtsKeLoadOutcome, NtsKeTrialContext};

/// Default number of clients: enough to keep every core of a server busy over a link with some
/// delay.
pub const CONNECTIONS_DEFAULT: usize = 32;

/// Default limit of the clients in a search, which uses only as many as a rate requires.
pub const SEARCH_CONNECTIONS_DEFAULT: usize = 512;

/// Timeout of an NTS-KE exchange in a search.
pub const SEARCH_TIMEOUT: Duration = Duration::from_millis(100);

/// Most clients: each is a thread.
pub const CONNECTIONS_MAX: usize = 4096;

/// Stack size of a client thread, in bytes; TLS needs several tens of KiB.
const STACK_LEN: usize = 256 * 1024;

/// Pause of a client after a failure in a closed loop, so that a server that refuses at once is not
/// polled in a tight loop.
const FAILURE_PAUSE: Duration = Duration::from_millis(10);

/// Job of the clients: closed loop or search.
#[derive(Clone, Debug)]
pub enum NtsKeLoadProcedure {
    /// Closed loop of this duration: each client starts the next exchange on completion of the
    /// last.
    ClosedLoop(Duration),
    /// Search for the highest intended rate at which the goal is met.
    Search {
        /// Goal of the search, as named in the result.
        kind: CapacitySearchGoal,
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
    /// Expected name in the server's certificate; `None` uses the host name of the target.
    pub name: Option<String>,
    /// True if the user declares a public target as their own.
    pub i_own_this_target: bool,
    /// Trusted certificates.
    pub trust: TrustAnchors,
    /// Number of clients, from 1 to [`CONNECTIONS_MAX`]; in a search, the limit.
    pub connections: usize,
    /// Job of the clients.
    pub job: NtsKeLoadProcedure,
    /// Timeout of one exchange; in a search, counted from its intended start.
    pub timeout: Duration,
    /// Limits of the run.
    pub limits: Vec<LoadMetricLimit>,
    /// Command line, for the record.
    pub command: Vec<String>,
}

/// Counts and durations of the exchanges of one or several clients.
#[derive(Default)]
struct NtsKeClientCounts {
    sent: u64,
    times: Histogram,
    failures: BTreeMap<NtsKeFailureReason, u64>,
    first_failure: Option<FailureDescription>,
}

/// Progress of all clients in a trial; `None` if it is not observed.
#[derive(Clone, Copy)]
struct NtsKeProgress<'a>(Option<&'a Mutex<Progress>>);

impl<'a> NtsKeProgress<'a> {
    fn new(slots: Option<&'a ProgressSlots>) -> Self {
        Self(slots.and_then(|slots| slots.slot(0)))
    }

    fn count_started(self) {
        if let Some(slot) = self.0 {
            lock_slot(slot).counts.sent += 1;
        }
    }

    fn count_completed(self, time: Duration) {
        if let Some(slot) = self.0 {
            let mut progress = lock_slot(slot);
            progress.counts.received += 1;
            progress.latency.record(time.as_nanos() as u64);
        }
    }
}

/// Returns a trial as planned.
fn trial_plan(index: usize, intended_rate: Option<f64>, duration: Duration) -> PartPlan {
    let duration_s = Some(duration.as_secs_f64());
    PartPlan { index, intended_rate, duration_s, ..PartPlan::default() }
}

/// Reports the end of a trial.
fn report_trial(sampler: &mut LiveSampler<'_, NtsKeTrial>, index: usize, trial: &NtsKeTrial) {
    let part_counts =
        LiveCounts { sent: trial.sent, received: trial.received, ..LiveCounts::default() };
    let latency_ns = trial.handshake_ns.as_ref().map(Percentiles::from_distribution);
    let ended = RequestValues { part_counts, latency_ns, ..RequestValues::default() };
    let duration = Duration::from_secs_f64(trial.duration_s);
    let plan = trial_plan(index, trial.intended_rate, duration);
    sampler.finish(&plan, trial.duration_s, &part_counts, ended);
    sampler.observer.part_ended(index, trial);
}

/// Description of a failure, and a remedy.
type FailureDescription = (String, &'static str);

impl NtsKeClientCounts {
    /// Counts a completed exchange; as timed out if `time` exceeds `timeout`, which is possible if
    /// this host was slow to process it.
    fn record_completed(&mut self, time: Duration, timeout: Duration, address: SocketAddr) {
        if time <= timeout {
            self.times.record(time.as_nanos() as u64);
        } else {
            self.record_failed(&NtsKeError::TimedOut {
                address,
                phase: NtsKeExchangePhase::PartialResponse,
            });
        }
    }

    fn record_failed(&mut self, error: &NtsKeError) {
        *self.failures.entry(failure_reason(error)).or_default() += 1;
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

const fn failure_reason(error: &NtsKeError) -> NtsKeFailureReason {
    match error {
        NtsKeError::TimedOut { .. } => NtsKeFailureReason::Timeout,
        NtsKeError::Tls(_) | NtsKeError::NotNtsKe => NtsKeFailureReason::Tls,
        NtsKeError::ClosedEarly(NtsKeExchangePhase::Connecting | NtsKeExchangePhase::Handshake) => {
            NtsKeFailureReason::Connection
        }
        NtsKeError::ClosedEarly(_)
        | NtsKeError::TooLong
        | NtsKeError::BadResponse(_)
        | NtsKeError::NotOffered(_) => NtsKeFailureReason::Response,
        NtsKeError::Refused { .. } | NtsKeError::NoProtocol | NtsKeError::NoAlgorithm => {
            NtsKeFailureReason::Refused
        }
        _ => NtsKeFailureReason::Connection,
    }
}

impl NtsKeLoadOptions {
    /// Returns an error for invalid options, before the run begins.
    pub fn check(&self) -> Result<(), LoadError> {
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            return Err(LoadError::Connections(self.connections));
        }
        if let NtsKeLoadProcedure::Search { config, .. } = self.job {
            Search::new(config)?;
        }
        Ok(())
    }

    fn host(&self) -> &str {
        self.name.as_deref().unwrap_or(self.target.host_without_zone())
    }
}

/// Runs the load until it is complete or `stop` returns true. `observer` is called after each trial
/// and, if it wants snapshots, during it.
pub fn run(
    options: &NtsKeLoadOptions,
    stop: &(dyn Fn() -> bool + Sync),
    observer: &mut (dyn RunObserver<NtsKeTrial> + Send),
) -> Result<NtsKeLoadResult, LoadError> {
    options.check()?;
    let address = options.target.resolve(options.family, None)?;
    target::check_permitted(address.ip(), options.i_own_this_target)?;
    let algorithms =
        [AeadAlgorithm::AesSivCmac256, AeadAlgorithm::Aes128GcmSiv].map(AeadAlgorithm::number);
    let client = NtsKeClient::new(&options.trust, &algorithms).map_err(NtsError::from)?;
    let started = rfc3339_now();
    let context = NtsKeTrialContext { options, address, client: &client, stop };
    let mut sampler = LiveSampler::new(observer);
    let NtsKeLoadOutcome { trials, search, first_failure } = match options.job {
        NtsKeLoadProcedure::ClosedLoop(duration) => {
            let begun = Instant::now();
            let (counts, first_failure) = all_clients(&context, duration, &mut sampler)?;
            let trial = trial_record(options.connections, counts, begun.elapsed());
            report_trial(&mut sampler, 0, &trial);
            NtsKeLoadOutcome { trials: vec![trial], search: None, first_failure }
        }
        NtsKeLoadProcedure::Search { kind, config } => {
            search::search((kind, config), &context, &mut sampler)?
        }
    };
    let findings = findings(&trials, search.as_ref(), first_failure, stop());
    let judge = |limit: &LoadMetricLimit| limit.evaluate_nts_ke(&trials, search.as_ref());
    let limits = options.limits.iter().map(judge).collect();
    Ok(NtsKeLoadResult {
        schema: LOAD_SCHEMA.to_owned(),
        started,
        command: options.command.clone(),
        host: Host::read(),
        target: LoadTarget {
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

/// Runs all clients in a closed loop for `duration`. Returns the sum of their counts and the first
/// failure.
fn all_clients(
    context: &NtsKeTrialContext<'_>,
    duration: Duration,
    sampler: &mut LiveSampler<'_, NtsKeTrial>,
) -> Result<(NtsKeClientCounts, Option<FailureDescription>), LoadError> {
    let deadline = Instant::now() + duration;
    let run_client = |progress: NtsKeProgress<'_>| {
        let mut counts = NtsKeClientCounts::default();
        while Instant::now() < deadline && !(context.stop)() {
            let begun = Instant::now();
            counts.sent += 1;
            progress.count_started();
            let options = context.options;
            match context.client.exchange_keys(options.host(), context.address, options.timeout) {
                Ok(_) => {
                    let time = begun.elapsed();
                    counts.times.record(time.as_nanos() as u64);
                    progress.count_completed(time);
                }
                Err(error) => {
                    counts.record_failed(&error);
                    thread::sleep(FAILURE_PAUSE);
                }
            }
        }
        counts
    };
    let counts = sampler.sample_during(&trial_plan(0, None, duration), 1, |slots| {
        let progress = NtsKeProgress::new(slots);
        run_client_threads(context.options.connections, || run_client(progress))
    })?;
    let mut sum = NtsKeClientCounts::default();
    for counts in counts {
        sum.merge(counts);
    }
    let first = sum.first_failure.take();
    Ok((sum, first))
}

/// Runs `work` in one thread per client and returns the results.
fn run_client_threads<T: Send>(
    clients: usize,
    work: impl Fn() -> T + Sync,
) -> Result<Vec<T>, LoadError> {
    thread::scope(|scope| {
        let builder = || thread::Builder::new().stack_size(STACK_LEN);
        let threads: io::Result<Vec<_>> =
            (0..clients).map(|_| builder().spawn_scoped(scope, &work)).collect();
        let action = "start a thread for each client";
        let threads = threads.map_err(|source| LoadError::System { action, source })?;
        let join = |thread: thread::ScopedJoinHandle<'_, T>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        Ok(threads.into_iter().map(join).collect())
    })
}

fn trial_record(connections: usize, counts: NtsKeClientCounts, elapsed: Duration) -> NtsKeTrial {
    let received = counts.times.count();
    NtsKeTrial {
        intended_rate: None,
        achieved_rate: received as f64 / elapsed.as_secs_f64().max(1e-9),
        duration_s: elapsed.as_secs_f64(),
        clients: connections as u64,
        sent: counts.sent,
        received,
        lost: counts.sent - received,
        failures: counts.failures,
        handshake_ns: Distribution::from_histogram(&counts.times),
    }
}

/// Returns the findings. Rates of a search may exceed what the server sustains, so failures are
/// reported only if the search met its goal at no rate.
fn findings(
    trials: &[NtsKeTrial],
    search: Option<&CapacitySearchResult>,
    first_failure: Option<FailureDescription>,
    interrupted: bool,
) -> Vec<Finding> {
    let sum = |count: fn(&NtsKeTrial) -> u64| trials.iter().map(count).sum::<u64>();
    let (sent, received) = (sum(|trial| trial.sent), sum(|trial| trial.received));
    let goal_met = search.is_some_and(|search| search.lower.is_some());
    let failed = first_failure.filter(|_| !goal_met).map(|(first, advice)| {
        let (code, severity) = match received {
            0 => (FindingCode::NoReplies, Severity::Error),
            _ => (FindingCode::NtsKeFailed, Severity::Warning),
        };
        let failed = sent - received;
        let message = format!("{failed} of {sent} NTS-KE exchanges failed; first error: {first}");
        Finding { code, severity, message, advice: advice.to_owned(), trial: None }
    });
    let mut findings: Vec<_> = failed.into_iter().collect();
    findings.extend(search.and_then(findings::search_unfinished));
    findings.extend(interrupted.then(findings::run_interrupted));
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
        (0..lost).for_each(|_| counts.record_failed(&NtsKeError::NoAlgorithm));
        trial_record(4, counts, Duration::from_secs(2))
    }

    #[test]
    fn the_rate_is_of_what_gave_keys() {
        let trial = trial(30, 10);
        assert!((trial.achieved_rate - 15.0).abs() < 1e-9);
        assert_eq!((trial.sent, trial.received, trial.lost), (40, 30, 10));
        assert_eq!(trial.failures, BTreeMap::from([(NtsKeFailureReason::Refused, 10)]));
        assert_eq!(trial.handshake_ns.unwrap().count, 30);
    }

    #[test]
    fn keys_that_come_too_late_are_none() {
        let (mut counts, address) =
            (NtsKeClientCounts::default(), SocketAddr::from(([192, 0, 2, 1], 4460)));
        for ms in [10, 100, 101] {
            counts.record_completed(Duration::from_millis(ms), Duration::from_millis(100), address);
        }
        assert_eq!(counts.times.count(), 2);
        assert_eq!(counts.failures, BTreeMap::from([(NtsKeFailureReason::Timeout, 1)]));
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
