//! NTS-KE exchanges at an intended rate, and the search for the highest sustained one. An
//! overloaded server does not drop handshakes, it delays them; so an exchange that is not complete
//! within the timeout, counted from its intended start, is lost.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use horolog_ke::KeClient;
use horolog_record::{Distribution, NtsKeTrial, SearchKind, SearchResult};
use horolog_stats::loss::Rate;
use horolog_stats::{Search, SearchConfig, SearchStep, TrialOutcome};

use super::live::{NtsKeProgress, NtsKeSampler};
use super::{FailureDescription, NtsKeClientCounts, NtsKeLoadOptions, each_client};
use crate::error::LoadError;
use crate::run::result_of;

/// Time for the threads of a trial to start before its beginning.
const LEAD: Duration = Duration::from_millis(20);

/// Result of a search.
pub(super) struct NtsKeSearchOutcome {
    pub(super) trials: Vec<NtsKeTrial>,
    /// Search result; `None` if the search was ended early.
    pub(super) search: Option<SearchResult>,
    pub(super) first_failure: Option<FailureDescription>,
}

/// Searches until the rate is found or `stop` is set.
pub(super) fn search(
    (kind, config): (SearchKind, SearchConfig),
    context: &SearchContext<'_>,
    sampler: &mut NtsKeSampler<'_>,
) -> Result<NtsKeSearchOutcome, LoadError> {
    let mut search = Search::new(config)?;
    let mut found = NtsKeSearchOutcome { trials: Vec::new(), search: None, first_failure: None };
    loop {
        let (rate, duration) = match search.next() {
            SearchStep::Trial { rate, duration } => (rate, duration),
            SearchStep::Done(outcome) => {
                found.search = Some(result_of(kind, &config, &outcome));
                return Ok(found);
            }
        };
        let (trial, failure) = context.trial(rate, duration, sampler)?;
        let outcome = TrialOutcome {
            intended_rate: rate,
            achieved_rate: trial.achieved_rate,
            sent: trial.sent,
            lost: trial.lost,
            duration,
        };
        sampler.end(&trial);
        found.trials.push(trial);
        found.first_failure = found.first_failure.or(failure);
        if (context.stop)() {
            return Ok(found);
        }
        search.record(&outcome);
    }
}

/// Target and clients of a search.
pub(super) struct SearchContext<'a> {
    pub(super) options: &'a NtsKeLoadOptions,
    pub(super) address: SocketAddr,
    pub(super) client: &'a KeClient,
    pub(super) stop: &'a (dyn Fn() -> bool + Sync),
}

/// Intended start times of the exchanges.
struct ExchangeSchedule {
    begin: Instant,
    rate: f64,
    planned: u64,
    next: AtomicU64,
}

impl ExchangeSchedule {
    /// Returns the start time of the next exchange; each is returned once.
    fn take(&self) -> Option<Instant> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.planned)
            .then(|| self.begin + Duration::from_secs_f64(number as f64 / self.rate))
    }
}

/// Counts of one thread, with the first and the last instant at which it started an exchange.
#[derive(Default)]
struct ThreadCounts {
    counts: NtsKeClientCounts,
    span: Option<(Instant, Instant)>,
}

impl ThreadCounts {
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

impl SearchContext<'_> {
    /// Runs one trial; also returns its first failure.
    fn trial(
        &self,
        rate: f64,
        duration: Duration,
        sampler: &mut NtsKeSampler<'_>,
    ) -> Result<(NtsKeTrial, Option<FailureDescription>), LoadError> {
        let timeout = self.options.timeout;
        // The most that can be in flight before the first of them is lost, and the one that waits.
        let wanted = (rate * timeout.as_secs_f64()).ceil() as usize + 1;
        let clients = wanted.min(self.options.connections);
        let schedule = ExchangeSchedule {
            begin: Instant::now() + LEAD,
            rate,
            planned: (rate * duration.as_secs_f64()).round().max(1.0) as u64,
            next: AtomicU64::new(0),
        };
        let progress = sampler.progress_for_trial();
        let work = || self.work(&schedule, &progress);
        let shares = each_client(clients, work, |over| {
            sampler.watch(over, &progress, (Some(rate), duration));
        })?;
        let mut sum = ThreadCounts::default();
        for share in shares {
            sum.merge(share);
        }
        let ThreadCounts { mut counts, span } = sum;
        let failure = counts.first_failure.take();
        let received = counts.times.count();
        let begun = span.and_then(|(first, last)| {
            Rate::from_span(counts.sent, 0, (last - first).as_nanos() as u64)
        });
        let trial = NtsKeTrial {
            intended_rate: Some(rate),
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

    fn work(&self, schedule: &ExchangeSchedule, progress: &NtsKeProgress) -> ThreadCounts {
        let (mut share, timeout) = (ThreadCounts::default(), self.options.timeout);
        while let Some(due) = schedule.take().filter(|_| !(self.stop)()) {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let now = Instant::now();
            let left = (due + timeout).saturating_duration_since(now);
            // Too late to finish in time. All clients wait for the server then, or this host lacks
            // CPU time: exchanges that are not started lower the achieved rate.
            if left.is_zero() {
                continue;
            }
            share.begins(now);
            progress.begins();
            match self.client.exchange_keys(self.options.host(), self.address, left) {
                Ok(_) => {
                    let time = due.elapsed();
                    share.counts.took(time, timeout, self.address);
                    if time <= timeout {
                        progress.completed(time);
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
    fn each_exchange_is_due_once_and_in_time() {
        let begin = Instant::now();
        let schedule = ExchangeSchedule { begin, rate: 4.0, planned: 3, next: AtomicU64::new(0) };
        let due: Vec<_> = std::iter::from_fn(|| schedule.take()).collect();
        let expected = [0, 250, 500].map(|ms| begin + Duration::from_millis(ms));
        assert_eq!(due, expected);
    }

    #[test]
    fn the_span_of_all_threads_is_from_the_first_to_the_last() {
        let at = |ms| Instant::now() + Duration::from_millis(ms);
        let (early, middle, late) = (at(0), at(1_000), at(2_000));
        let share = |instants: &[Instant]| {
            let mut share = ThreadCounts::default();
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
