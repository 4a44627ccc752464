//! Search for the highest intended rate of NTS-KE exchanges. An overloaded server delays handshakes
//! instead of dropping them, so an exchange is lost if it is not complete within the timeout, which
//! starts at the intended start.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use horolog_ke::NtsKeClient;
use horolog_record::{
    CapacitySearchGoal, CapacitySearchResult, Distribution, LiveSampler, NtsKeTrial,
};
use horolog_stats::loss::AchievedRate;
use horolog_stats::{Search, SearchConfig, SearchStep, TrialOutcome};

use super::{
    FailureDescription, NtsKeClientCounts, NtsKeLoadOptions, NtsKeProgress, report_trial,
    run_client_threads, trial_plan,
};
use crate::error::LoadError;
use crate::run::search_result;

/// Time from the creation of a trial's schedule to its first exchange, in which threads start.
const START_DELAY: Duration = Duration::from_millis(20);

/// Trials of a load, and the result of a search.
pub(super) struct NtsKeLoadOutcome {
    pub(super) trials: Vec<NtsKeTrial>,
    /// Result of the search; `None` in a closed loop, or if the search was ended early.
    pub(super) search: Option<CapacitySearchResult>,
    pub(super) first_failure: Option<FailureDescription>,
}

/// Runs trials until the search is complete or `stop` returns true.
pub(super) fn search(
    (kind, config): (CapacitySearchGoal, SearchConfig),
    context: &NtsKeTrialContext<'_>,
    sampler: &mut LiveSampler<'_, NtsKeTrial>,
) -> Result<NtsKeLoadOutcome, LoadError> {
    let mut search = Search::new(config)?;
    let mut found = NtsKeLoadOutcome { trials: Vec::new(), search: None, first_failure: None };
    loop {
        let (rate, duration) = match search.next() {
            SearchStep::Trial { rate, duration } => (rate, duration),
            SearchStep::Done(outcome) => {
                found.search = Some(search_result(kind, &config, &outcome));
                return Ok(found);
            }
        };
        let index = found.trials.len();
        let (trial, failure) = context.run_trial(index, (rate, duration), sampler)?;
        let outcome = TrialOutcome {
            intended_rate: rate,
            achieved_rate: trial.achieved_rate,
            sent: trial.sent,
            lost: trial.lost,
            duration,
        };
        report_trial(sampler, index, &trial);
        found.trials.push(trial);
        found.first_failure = found.first_failure.or(failure);
        if (context.stop)() {
            return Ok(found);
        }
        search.record(&outcome);
    }
}

/// Parameters that all trials of a load share.
pub(super) struct NtsKeTrialContext<'a> {
    pub(super) options: &'a NtsKeLoadOptions,
    pub(super) address: SocketAddr,
    pub(super) client: &'a NtsKeClient,
    pub(super) stop: &'a (dyn Fn() -> bool + Sync),
}

/// Intended start times of the exchanges of a trial, shared by its threads.
struct ExchangeSchedule {
    begin: Instant,
    rate: f64,
    planned: u64,
    next: AtomicU64,
}

impl ExchangeSchedule {
    /// Takes the next intended start time; `None` at the end of the schedule.
    fn next_start(&self) -> Option<Instant> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.planned)
            .then(|| self.begin + Duration::from_secs_f64(number as f64 / self.rate))
    }
}

/// Counts of one thread, with the first and the last instant at which it started an exchange.
#[derive(Default)]
struct NtsKeThreadCounts {
    counts: NtsKeClientCounts,
    span: Option<(Instant, Instant)>,
}

impl NtsKeThreadCounts {
    fn record_start(&mut self, now: Instant) {
        self.counts.sent += 1;
        self.span = Some((self.span.map_or(now, |(first, _)| first), now));
    }

    fn merge(&mut self, other: Self) {
        self.counts.merge(other.counts);
        let both = self.span.zip(other.span);
        self.span = both.map(|((a, b), (c, d))| (a.min(c), b.max(d))).or(self.span).or(other.span);
    }
}

impl NtsKeTrialContext<'_> {
    /// Runs one trial; also returns its first failure.
    fn run_trial(
        &self,
        index: usize,
        (rate, duration): (f64, Duration),
        sampler: &mut LiveSampler<'_, NtsKeTrial>,
    ) -> Result<(NtsKeTrial, Option<FailureDescription>), LoadError> {
        let timeout = self.options.timeout;
        // The exchanges that can be in flight before the first one times out, and one that waits
        // for its start.
        let wanted = (rate * timeout.as_secs_f64()).ceil() as usize + 1;
        let clients = wanted.min(self.options.connections);
        let schedule = ExchangeSchedule {
            begin: Instant::now() + START_DELAY,
            rate,
            planned: (rate * duration.as_secs_f64()).round().max(1.0) as u64,
            next: AtomicU64::new(0),
        };
        let plan = trial_plan(index, Some(rate), duration);
        let thread_counts = sampler.sample_during(&plan, 1, |slots| {
            let progress = NtsKeProgress::new(slots);
            run_client_threads(clients, || self.run_exchanges(&schedule, progress))
        })?;
        let mut sum = NtsKeThreadCounts::default();
        for share in thread_counts {
            sum.merge(share);
        }
        let NtsKeThreadCounts { mut counts, span } = sum;
        let failure = counts.first_failure.take();
        let received = counts.times.count();
        let achieved_rate = span.and_then(|(first, last)| {
            AchievedRate::from_span(counts.sent, 0, (last - first).as_nanos() as u64)
        });
        let trial = NtsKeTrial {
            intended_rate: Some(rate),
            achieved_rate: achieved_rate.map_or(0.0, AchievedRate::per_second),
            duration_s: duration.as_secs_f64(),
            clients: clients as u64,
            sent: counts.sent,
            received,
            lost: counts.sent - received,
            failures: counts.failures,
            handshake_ns: Distribution::from_histogram(&counts.times),
        };
        Ok((trial, failure))
    }

    fn run_exchanges(
        &self,
        schedule: &ExchangeSchedule,
        progress: NtsKeProgress<'_>,
    ) -> NtsKeThreadCounts {
        let (mut thread_counts, timeout) = (NtsKeThreadCounts::default(), self.options.timeout);
        while let Some(intended) = schedule.next_start().filter(|_| !(self.stop)()) {
            thread::sleep(intended.saturating_duration_since(Instant::now()));
            let now = Instant::now();
            let remaining = (intended + timeout).saturating_duration_since(now);
            // Too late to complete in time: all clients wait for the server, or this host lacks CPU
            // time. Skipped exchanges lower the achieved rate.
            if remaining.is_zero() {
                continue;
            }
            thread_counts.record_start(now);
            progress.count_started();
            match self.client.exchange_keys(self.options.host(), self.address, remaining) {
                Ok(_) => {
                    let time = intended.elapsed();
                    thread_counts.counts.record_completed(time, timeout, self.address);
                    if time <= timeout {
                        progress.count_completed(time);
                    }
                }
                Err(error) => thread_counts.counts.record_failed(&error),
            }
        }
        thread_counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_exchange_is_due_once_and_in_time() {
        let begin = Instant::now();
        let schedule = ExchangeSchedule { begin, rate: 4.0, planned: 3, next: AtomicU64::new(0) };
        let due: Vec<_> = std::iter::from_fn(|| schedule.next_start()).collect();
        let expected = [0, 250, 500].map(|ms| begin + Duration::from_millis(ms));
        assert_eq!(due, expected);
    }

    #[test]
    fn the_span_of_all_threads_is_from_the_first_to_the_last() {
        let at = |ms| Instant::now() + Duration::from_millis(ms);
        let (early, middle, late) = (at(0), at(1_000), at(2_000));
        let share = |instants: &[Instant]| {
            let mut share = NtsKeThreadCounts::default();
            for &instant in instants {
                share.record_start(instant);
            }
            share
        };
        let mut sum = share(&[middle]);
        sum.merge(share(&[]));
        sum.merge(share(&[early, late]));
        assert_eq!((sum.counts.sent, sum.span), (3, Some((early, late))));
    }
}
