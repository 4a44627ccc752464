//! Load on a server for NTS key establishment: clients that each open a connection, shake hands in
//! full, take keys and cookies, and begin again. Nothing is resumed and nothing is retried. How
//! fast it goes is up to the server, so that no rate is planned and none is missed, or else up to a
//! search.

mod looking;
mod paced;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use horolog_ke::{KeClient, KeError};
use horolog_record::{
    Code, Distribution, EstablishmentResult, EstablishmentTrial, FailureReason, Finding, Host,
    LOAD_SCHEMA, Mode, SearchKind, SearchResult, Severity, Target, rfc3339_now,
};
use horolog_stats::{Recorder, Search, SearchConfig};

use crate::error::LoadError;
use crate::findings;
use crate::limit::Limit;
use crate::nts::{Algorithm, NtsError, Trust};
use crate::target::{self, Family, TargetName};
use looking::Looking;
use paced::{Asking, Found};

pub use looking::Follower;

/// Clients unless a number is asked for: enough to keep every core of a server busy over a link
/// with some delay.
pub const CONNECTIONS: usize = 32;

/// The most clients of a search, which takes no more than its rates need.
pub const SEARCH_CONNECTIONS: usize = 512;

/// How long an establishment may take in a search.
pub const SEARCH_TIMEOUT: Duration = Duration::from_millis(100);

/// The most clients: each is a thread.
pub const CONNECTIONS_MAX: usize = 4096;

/// Bytes of each client's stack; TLS needs a few ten thousand.
const STACK: usize = 256 * 1024;

/// The pause after a failure, so that a server that refuses at once is not asked in a tight loop.
const PAUSE: Duration = Duration::from_millis(10);

/// How establishments follow one another.
#[derive(Clone, Debug)]
pub enum EstablishmentJob {
    /// Each client begins anew as soon as it has been answered, for so long.
    Eager(Duration),
    /// They are begun at planned rates, of which the highest is searched for that keeps the goal.
    Search {
        /// What it is called.
        kind: SearchKind,
        /// The rates, the goal and the lengths of trials.
        config: SearchConfig,
    },
}

/// What a run is asked to do.
#[derive(Clone, Debug)]
pub struct EstablishmentOptions {
    /// The server.
    pub target: TargetName,
    /// Which address of a name to take.
    pub family: Option<Family>,
    /// The name that its certificate is for; `None` takes the one that it is called by.
    pub name: Option<String>,
    /// The user says that a public target is theirs.
    pub i_own_this_target: bool,
    /// Whose certificates are trusted.
    pub trust: Trust,
    /// Clients, from 1 to [`CONNECTIONS_MAX`]; in a search, at most.
    pub connections: usize,
    /// What they do.
    pub job: EstablishmentJob,
    /// How long one may take; in a search, from when it was due.
    pub timeout: Duration,
    /// What the run is held against.
    pub limits: Vec<Limit>,
    /// The command line, for the record.
    pub command: Vec<String>,
}

/// What one client counted.
#[derive(Default)]
struct Counts {
    sent: u64,
    times: Recorder,
    failures: BTreeMap<FailureReason, u64>,
    first_failure: Option<String>,
}

impl Counts {
    /// Keys were given after so long. Where this machine was slow to see them, that may be too long
    /// after all.
    fn took(&mut self, time: Duration, timeout: Duration, address: SocketAddr) {
        if time <= timeout {
            self.times.record(time.as_nanos() as u64);
        } else {
            self.failed(&KeError::TimedOut(address));
        }
    }

    fn failed(&mut self, error: &KeError) {
        *self.failures.entry(reason(error)).or_default() += 1;
        self.first_failure.get_or_insert_with(|| error.to_string());
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
        KeError::TimedOut(_) => FailureReason::Timeout,
        KeError::Tls(_) | KeError::NotNtsKe => FailureReason::Tls,
        KeError::Truncated | KeError::TooLong | KeError::BadResponse(_) => FailureReason::Response,
        KeError::Refused { .. } | KeError::NoProtocol | KeError::NoAlgorithm => {
            FailureReason::Refused
        }
        _ => FailureReason::Connection,
    }
}

impl EstablishmentOptions {
    /// Refuses what cannot be, before anybody is told that it begins.
    pub fn check(&self) -> Result<(), LoadError> {
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            return Err(LoadError::Connections(self.connections));
        }
        if let EstablishmentJob::Search { config, .. } = self.job {
            Search::new(config)?;
        }
        Ok(())
    }

    fn host(&self) -> &str {
        self.name.as_deref().unwrap_or(self.target.host())
    }
}

/// Runs it until it is through or `stop` says so; `follower` hears of each trial when it is over.
pub fn run(
    options: &EstablishmentOptions,
    stop: &(dyn Fn() -> bool + Sync),
    follower: &mut dyn Follower,
) -> Result<EstablishmentResult, LoadError> {
    options.check()?;
    let address = options.target.resolve(options.family)?;
    target::permit(address.ip(), options.i_own_this_target)?;
    let algorithms = [Algorithm::AesSivCmac256, Algorithm::Aes128GcmSiv].map(Algorithm::number);
    let client = KeClient::new(&options.trust, &algorithms).map_err(NtsError::from)?;
    let started = rfc3339_now();
    let asking = Asking { options, address, client: &client, stop };
    let mut looking = Looking::new(follower);
    let Found { trials, search, first_failure } = match options.job {
        EstablishmentJob::Eager(duration) => {
            let begun = Instant::now();
            let (counts, first_failure) = all_clients(&asking, duration, &mut looking)?;
            let trial = record(options.connections, counts, begun.elapsed());
            looking.end(&trial);
            Found { trials: vec![trial], search: None, first_failure }
        }
        EstablishmentJob::Search { kind, config } => {
            paced::search((kind, config), &asking, &mut looking)?
        }
    };
    let findings = findings(&trials, search.as_ref(), first_failure, stop());
    let judge = |limit: &Limit| limit.judge_establishments(&trials, search.as_ref());
    let limits = options.limits.iter().map(judge).collect();
    Ok(EstablishmentResult {
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
        mode: Mode::NtsKe,
        trials,
        search,
        limits,
        findings,
    })
}

/// Lets all clients work for this long, and adds up what they counted; also what the first failure
/// was.
fn all_clients(
    asking: &Asking<'_>,
    duration: Duration,
    looking: &mut Looking<'_>,
) -> Result<(Counts, Option<String>), LoadError> {
    let deadline = Instant::now() + duration;
    let place = looking.place();
    let one = || {
        let mut counts = Counts::default();
        while Instant::now() < deadline && !(asking.stop)() {
            let begun = Instant::now();
            counts.sent += 1;
            place.begins();
            let options = asking.options;
            match asking.client.establish(options.host(), asking.address, options.timeout) {
                Ok(_) => {
                    let time = begun.elapsed();
                    counts.times.record(time.as_nanos() as u64);
                    place.took(time);
                }
                Err(error) => {
                    counts.failed(&error);
                    thread::sleep(PAUSE);
                }
            }
        }
        counts
    };
    let counts = each_client(asking.options.connections, one, |over| {
        looking.watch(over, &place, (None, duration));
    })?;
    let mut sum = Counts::default();
    for counts in counts {
        sum.merge(counts);
    }
    let first = sum.first_failure.take();
    Ok((sum, first))
}

/// What a thread of each client gives. Meanwhile `watch` goes on for as long as somebody holds the
/// other end of what it gets, which all of them do until they have ended.
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
        let given = |thread: thread::ScopedJoinHandle<'_, T>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        Ok(threads.into_iter().map(given).collect())
    })
}

fn record(connections: usize, counts: Counts, took: Duration) -> EstablishmentTrial {
    let received = counts.times.count();
    EstablishmentTrial {
        offered_rate: None,
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

/// What there is to doubt. A search goes where establishments fail, so failures are a finding of
/// it only where none of its rates held.
fn findings(
    trials: &[EstablishmentTrial],
    search: Option<&SearchResult>,
    first_failure: Option<String>,
    interrupted: bool,
) -> Vec<Finding> {
    let sum = |count: fn(&EstablishmentTrial) -> u64| trials.iter().map(count).sum::<u64>();
    let (sent, received) = (sum(|trial| trial.sent), sum(|trial| trial.received));
    let held = search.is_some_and(|search| search.lower.is_some());
    let failed = first_failure.filter(|_| !held).map(|first| {
        let (code, severity) = match received {
            0 => (Code::NoReplies, Severity::Error),
            _ => (Code::EstablishmentsFailed, Severity::Warning),
        };
        let failed = sent - received;
        let message = format!("{failed} of {sent} key establishments failed, at first: {first}");
        let advice = "a server may limit connections by number and by address; this host may have \
                      run out of ports; a certificate has to be for the name and trusted by --ca";
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

    fn trial(received: u64, lost: u64) -> EstablishmentTrial {
        let mut counts = Counts { sent: received + lost, ..Counts::default() };
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
        let (mut counts, address) = (Counts::default(), SocketAddr::from(([192, 0, 2, 1], 4460)));
        for ms in [10, 100, 101] {
            counts.took(Duration::from_millis(ms), Duration::from_millis(100), address);
        }
        assert_eq!(counts.times.count(), 2);
        assert_eq!(counts.failures, BTreeMap::from([(FailureReason::Timeout, 1)]));
    }

    #[test]
    fn failures_are_doubts_and_nothing_but_failures_is_an_error() {
        let severity = |trial: &EstablishmentTrial| {
            let first = (trial.lost > 0).then(|| "no".to_owned());
            let all = findings(slice::from_ref(trial), None, first, false);
            all.first().map(|finding| finding.severity)
        };
        assert_eq!(severity(&trial(5, 0)), None);
        assert_eq!(severity(&trial(5, 1)), Some(Severity::Warning));
        assert_eq!(severity(&trial(0, 1)), Some(Severity::Error));
    }
}
