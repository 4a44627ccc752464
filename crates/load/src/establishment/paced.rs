//! Key establishments at a planned rate, and the search for the highest one that a server keeps up
//! with. A server with too much to do does not drop handshakes, it keeps them waiting; so one that
//! has not given keys within the timeout, counted from when it was due, is lost.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use horolog_ke::KeClient;
use horolog_record::{Distribution, EstablishmentTrial, SearchKind, SearchResult};
use horolog_stats::loss::Rate;
use horolog_stats::{Search, SearchConfig, Step, TrialOutcome};

use super::looking::{Looking, Place};
use super::{Counts, EstablishmentOptions, each_client};
use crate::error::LoadError;
use crate::run::result_of;

/// What the threads of a trial get to be there by its beginning.
const LEAD: Duration = Duration::from_millis(20);

/// What a search came to.
pub(super) struct Found {
    pub(super) trials: Vec<EstablishmentTrial>,
    /// `None` where it was ended before it was through.
    pub(super) search: Option<SearchResult>,
    pub(super) first_failure: Option<String>,
}

/// Searches until the rate is found or `stop` says so.
pub(super) fn search(
    (kind, config): (SearchKind, SearchConfig),
    asking: &Asking<'_>,
    looking: &mut Looking<'_>,
) -> Result<Found, LoadError> {
    let mut search = Search::new(config)?;
    let mut found = Found { trials: Vec::new(), search: None, first_failure: None };
    loop {
        let (rate, duration) = match search.next() {
            Step::Trial { rate, duration } => (rate, duration),
            Step::Done(outcome) => {
                found.search = Some(result_of(kind, &config, &outcome));
                return Ok(found);
            }
        };
        let (trial, failure) = asking.trial(rate, duration, looking)?;
        let outcome = TrialOutcome {
            offered_rate: rate,
            achieved_rate: trial.achieved_rate,
            sent: trial.sent,
            lost: trial.lost,
            duration,
        };
        looking.end(&trial);
        found.trials.push(trial);
        found.first_failure = found.first_failure.or(failure);
        if (asking.stop)() {
            return Ok(found);
        }
        search.record(&outcome);
    }
}

/// Who is asked, and by whom.
pub(super) struct Asking<'a> {
    pub(super) options: &'a EstablishmentOptions,
    pub(super) address: SocketAddr,
    pub(super) client: &'a KeClient,
    pub(super) stop: &'a (dyn Fn() -> bool + Sync),
}

/// When which establishment is due.
struct Schedule {
    begin: Instant,
    rate: f64,
    planned: u64,
    next: AtomicU64,
}

impl Schedule {
    /// The next one's due time; nobody else gets the same.
    fn take(&self) -> Option<Instant> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.planned)
            .then(|| self.begin + Duration::from_secs_f64(number as f64 / self.rate))
    }
}

/// What one thread did, with the first and the last instant at which it began something.
#[derive(Default)]
struct Share {
    counts: Counts,
    span: Option<(Instant, Instant)>,
}

impl Share {
    fn begins(&mut self, now: Instant) {
        self.counts.sent += 1;
        self.span = Some((self.span.map_or(now, |(first, _)| first), now));
    }

    fn merge(&mut self, other: Self) {
        self.counts.merge(other.counts);
        let both = self.span.zip(other.span);
        self.span = both.map(|((a, b), (c, d))| (a.min(c), b.max(d))).or(self.span).or(other.span);
    }
}

impl Asking<'_> {
    /// One trial, and what went wrong first in it.
    fn trial(
        &self,
        rate: f64,
        duration: Duration,
        looking: &mut Looking<'_>,
    ) -> Result<(EstablishmentTrial, Option<String>), LoadError> {
        let timeout = self.options.timeout;
        // As many as can be under way before the first of them is lost, and the one that waits.
        let wanted = (rate * timeout.as_secs_f64()).ceil() as usize + 1;
        let clients = wanted.min(self.options.connections);
        let schedule = Schedule {
            begin: Instant::now() + LEAD,
            rate,
            planned: (rate * duration.as_secs_f64()).round().max(1.0) as u64,
            next: AtomicU64::new(0),
        };
        let place = looking.place();
        let work = || self.work(&schedule, &place);
        let shares = each_client(clients, work, |over| {
            looking.watch(over, &place, (Some(rate), duration));
        })?;
        let mut sum = Share::default();
        for share in shares {
            sum.merge(share);
        }
        let Share { mut counts, span } = sum;
        let failure = counts.first_failure.take();
        let received = counts.times.count();
        let begun = span.and_then(|(first, last)| {
            Rate::from_span(counts.sent, 0, (last - first).as_nanos() as u64)
        });
        let trial = EstablishmentTrial {
            offered_rate: Some(rate),
            achieved_rate: begun.map_or(0.0, Rate::per_second),
            duration_s: duration.as_secs_f64(),
            clients: clients as u64,
            sent: counts.sent,
            received,
            lost: counts.sent - received,
            failures: counts.failures,
            handshake_ns: Distribution::of_recorder(&counts.times),
        };
        Ok((trial, failure))
    }

    fn work(&self, schedule: &Schedule, place: &Place) -> Share {
        let (mut share, timeout) = (Share::default(), self.options.timeout);
        while let Some(due) = schedule.take().filter(|_| !(self.stop)()) {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let now = Instant::now();
            let left = (due + timeout).saturating_duration_since(now);
            // Too late to be in time. All clients wait for the server then, or this machine for a
            // processor: what is not begun lowers the rate that was reached.
            if left.is_zero() {
                continue;
            }
            share.begins(now);
            place.begins();
            match self.client.establish(self.options.host(), self.address, left) {
                Ok(_) => {
                    let time = due.elapsed();
                    share.counts.took(time, timeout, self.address);
                    if time <= timeout {
                        place.took(time);
                    }
                }
                Err(error) => share.counts.failed(&error),
            }
        }
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_establishment_is_due_once_and_in_time() {
        let begin = Instant::now();
        let schedule = Schedule { begin, rate: 4.0, planned: 3, next: AtomicU64::new(0) };
        let due: Vec<_> = std::iter::from_fn(|| schedule.take()).collect();
        let expected = [0, 250, 500].map(|ms| begin + Duration::from_millis(ms));
        assert_eq!(due, expected);
    }

    #[test]
    fn the_span_of_all_threads_is_from_the_first_to_the_last() {
        let at = |ms| Instant::now() + Duration::from_millis(ms);
        let (early, middle, late) = (at(0), at(1_000), at(2_000));
        let share = |instants: &[Instant]| {
            let mut share = Share::default();
            for &instant in instants {
                share.begins(instant);
            }
            share
        };
        let mut sum = share(&[middle]);
        sum.merge(share(&[]));
        sum.merge(share(&[early, late]));
        assert_eq!((sum.counts.sent, sum.span), (3, Some((early, late))));
    }
}
