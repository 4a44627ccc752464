//! Load on a server for NTS key establishment: clients that each open a connection, shake hands in
//! full, take keys and cookies, and begin again. Nothing is resumed and nothing is retried; how
//! fast it goes is up to the server, so no rate is planned and none is missed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use horolog_ke::{KeClient, KeError};
use horolog_record::{
    Code, EstablishmentResult, EstablishmentTrial, FailureReason, Finding, Host, LOAD_SCHEMA, Mode,
    Severity, Target, rfc3339_now,
};
use horolog_stats::Recorder;

use crate::error::LoadError;
use crate::limit::Limit;
use crate::nts::{Algorithm, NtsError, Trust};
use crate::target::{self, Family, TargetName};
use crate::trial::distribution;

/// Clients unless a number is asked for: enough to keep every core of a server busy over a link
/// with some delay.
pub const CONNECTIONS: usize = 32;

/// The most clients: each is a thread.
pub const CONNECTIONS_MAX: usize = 4096;

/// Bytes of each client's stack; TLS needs a few ten thousand.
const STACK: usize = 256 * 1024;

/// The pause after a failure, so that a server that refuses at once is not asked in a tight loop.
const PAUSE: Duration = Duration::from_millis(10);

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
    /// Clients, from 1 to [`CONNECTIONS_MAX`].
    pub connections: usize,
    /// How long new establishments are begun.
    pub duration: Duration,
    /// How long one may take.
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

/// Runs it until its time is over or `stop` says so.
pub fn run(
    options: &EstablishmentOptions,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<EstablishmentResult, LoadError> {
    if !(1..=CONNECTIONS_MAX).contains(&options.connections) {
        return Err(LoadError::Connections(options.connections));
    }
    let address = options.target.resolve(options.family)?;
    target::permit(address.ip(), options.i_own_this_target)?;
    let algorithms = [Algorithm::AesSivCmac256, Algorithm::Aes128GcmSiv].map(Algorithm::number);
    let client = KeClient::new(&options.trust, &algorithms).map_err(NtsError::from)?;
    let started = rfc3339_now();
    let begun = Instant::now();
    let counts = all_clients(options, address, &client, stop)?;
    let trial = record(options.connections, counts.0, begun.elapsed());
    let findings = findings(&trial, counts.1);
    let trials = vec![trial];
    let judge = |limit: &Limit| limit.judge_establishments(&trials);
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
        limits,
        findings,
    })
}

/// Lets all clients work, and adds up what they counted; also what the first failure was.
fn all_clients(
    options: &EstablishmentOptions,
    address: SocketAddr,
    client: &KeClient,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<(Counts, Option<String>), LoadError> {
    let name = options.name.as_deref().unwrap_or(options.target.host());
    let deadline = Instant::now() + options.duration;
    let one = || {
        let mut counts = Counts::default();
        while Instant::now() < deadline && !stop() {
            let begun = Instant::now();
            counts.sent += 1;
            match client.establish(name, address, options.timeout) {
                Ok(_) => counts.times.record(begun.elapsed().as_nanos() as u64),
                Err(error) => {
                    counts.failed(&error);
                    thread::sleep(PAUSE);
                }
            }
        }
        counts
    };
    let mut sum = Counts::default();
    thread::scope(|scope| {
        let threads = (0..options.connections).map(|_| {
            let builder = thread::Builder::new().stack_size(STACK);
            builder.spawn_scoped(scope, one)
        });
        // All are begun before the first is waited for.
        let threads: Vec<_> = threads.collect::<Result<_, _>>()?;
        for thread in threads {
            sum.merge(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        Ok(())
    })
    .map_err(|source| LoadError::System { action: "start a thread for each client", source })?;
    let first = sum.first_failure.take();
    Ok((sum, first))
}

fn record(connections: usize, counts: Counts, took: Duration) -> EstablishmentTrial {
    let received = counts.times.count();
    EstablishmentTrial {
        achieved_rate: received as f64 / took.as_secs_f64().max(1e-9),
        duration_s: took.as_secs_f64(),
        clients: connections as u64,
        sent: counts.sent,
        received,
        lost: counts.sent - received,
        failures: counts.failures,
        handshake_ns: distribution(&counts.times),
    }
}

fn findings(trial: &EstablishmentTrial, first_failure: Option<String>) -> Vec<Finding> {
    let Some(first) = first_failure else { return Vec::new() };
    let (code, severity) = match trial.received {
        0 => (Code::NoReplies, Severity::Error),
        _ => (Code::EstablishmentsFailed, Severity::Warning),
    };
    let message = format!("{} of {} key establishments failed: {first}", trial.lost, trial.sent);
    let advice = "a server may limit connections by number and by address; this host may have run \
                  out of ports; a certificate has to be for the name and trusted by --ca";
    vec![Finding { code, severity, message, advice: advice.to_owned(), trial: Some(0) }]
}

#[cfg(test)]
mod tests {
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
    fn failures_are_doubts_and_nothing_but_failures_is_an_error() {
        let severity = |trial: &EstablishmentTrial| {
            let first = (trial.lost > 0).then(|| "no".to_owned());
            findings(trial, first).first().map(|finding| finding.severity)
        };
        assert_eq!(severity(&trial(5, 0)), None);
        assert_eq!(severity(&trial(5, 1)), Some(Severity::Warning));
        assert_eq!(severity(&trial(0, 1)), Some(Severity::Error));
    }
}
