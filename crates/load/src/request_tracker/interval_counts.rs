//! Counts of a lane for the whole trial, or for each interval of its load profile. A request and
//! its outcome count in the interval of the intended send time, so each interval adds up, although
//! its replies may arrive in a later one.

use std::collections::VecDeque;

use horolog_record::{LiveCounts, Progress};
use horolog_time::{Monotonic, Span, Timestamp};

use super::TrialCounts;

/// Number of a closed interval, and its counts.
pub type ClosedInterval = (u64, Box<TrialCounts>);

/// Counts of the open intervals.
#[derive(Debug)]
pub(super) struct OpenIntervalCounts {
    start: Timestamp<Monotonic>,
    /// Length of an interval; `None` if one set covers the trial.
    interval: Option<Span>,
    /// Number of the first open interval.
    first_open: u64,
    open: VecDeque<Box<TrialCounts>>,
    /// Sum of the closed intervals, for the live view.
    closed_counts: LiveCounts,
    /// Counts with which an interval begins: `Some(0)` in optional fields that these requests have.
    initial: TrialCounts,
    /// Start and end of the last open interval.
    current: (Timestamp<Monotonic>, Timestamp<Monotonic>),
}

impl OpenIntervalCounts {
    pub(super) fn new(
        start: Timestamp<Monotonic>,
        interval: Option<Span>,
        initial: TrialCounts,
    ) -> Self {
        let end = interval.map_or(Timestamp::from_ns(i64::MAX), |interval| start + interval);
        let open = VecDeque::from([Box::new(initial.clone())]);
        // By rounding, a request may be due just before the start: the first interval begins at
        // `i64::MIN`.
        Self {
            start,
            interval,
            first_open: 0,
            open,
            closed_counts: LiveCounts::default(),
            initial,
            current: (Timestamp::from_ns(i64::MIN), end),
        }
    }

    /// Moves the start, before anything is counted.
    pub(super) fn set_start(&mut self, start: Timestamp<Monotonic>) {
        *self = Self::new(start, self.interval, std::mem::take(&mut self.initial));
    }

    /// Returns the counts of the interval that contains `intended`; those of the oldest open
    /// interval if that one is closed.
    #[inline]
    pub(super) fn counts_at(&mut self, intended: Timestamp<Monotonic>) -> &mut TrialCounts {
        if (self.current.0..self.current.1).contains(&intended) {
            return self.latest_counts();
        }
        self.find_or_open(intended)
    }

    #[cold]
    fn find_or_open(&mut self, intended: Timestamp<Monotonic>) -> &mut TrialCounts {
        let Some(interval) = self.interval else { return self.latest_counts() };
        let number = ((intended - self.start).as_ns() / interval.as_ns()).max(0) as u64;
        let index = number.saturating_sub(self.first_open) as usize;
        while self.open.len() <= index {
            self.open.push_back(Box::new(self.initial.clone()));
            let last = self.first_open as i64 + self.open.len() as i64 - 1;
            let begin = self.start + Span::from_ns(last * interval.as_ns());
            self.current = (begin, begin + interval);
        }
        &mut self.open[index]
    }

    /// Returns the counts of the latest interval.
    pub(super) fn latest_counts(&mut self) -> &mut TrialCounts {
        if self.open.is_empty() {
            self.open.push_back(Box::new(self.initial.clone()));
        }
        let last = self.open.len() - 1;
        &mut self.open[last]
    }

    /// Closes the first interval if it ended more than `timeout` before `now` and a later one is
    /// open.
    pub(super) fn close_first(
        &mut self,
        now: Timestamp<Monotonic>,
        timeout: Span,
    ) -> Option<ClosedInterval> {
        let interval = self.interval?.as_ns();
        let end = self.start + Span::from_ns((self.first_open as i64 + 1) * interval);
        // The latest interval stays open, because later counts belong to it.
        (now - end > timeout && self.open.len() > 1).then(|| self.close_oldest()).flatten()
    }

    /// Publishes the sum of all intervals, and the histograms of the latest complete interval, or
    /// of the only one.
    pub(super) fn publish_progress(&self, progress: &mut Progress) {
        progress.clear();
        progress.counts = self.closed_counts;
        self.open.iter().for_each(|counts| progress.counts.add(&counts.live_counts()));
        if let Some(counts) = self.open.get(self.open.len().saturating_sub(2)) {
            progress.latency.merge(&counts.rtt);
            progress.lateness.merge(&counts.lateness);
        }
    }

    fn close_oldest(&mut self) -> Option<ClosedInterval> {
        let counts = self.open.pop_front()?;
        self.closed_counts.add(&counts.live_counts());
        self.first_open += 1;
        Some((self.first_open - 1, counts))
    }

    /// Closes all open intervals, in order.
    pub(super) fn close_all(mut self) -> Vec<ClosedInterval> {
        std::iter::from_fn(|| self.close_oldest()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp<Monotonic> = Timestamp::from_ns(5_000_000_000);

    fn at(ms: i64) -> Timestamp<Monotonic> {
        START + Span::from_ms(ms)
    }

    #[test]
    fn one_set_of_counts_is_for_all_where_there_are_no_intervals() {
        let mut intervals = OpenIntervalCounts::new(START, None, TrialCounts::default());
        for ms in [-1, 0, 1_000_000] {
            intervals.counts_at(at(ms)).sent += 1;
        }
        assert!(intervals.close_first(at(1 << 40), Span::ZERO).is_none());
        let all = intervals.close_all();
        assert_eq!((all.len(), all[0].0, all[0].1.sent), (1, 0, 3));
    }

    #[test]
    fn requests_count_in_their_own_interval() {
        let mut intervals =
            OpenIntervalCounts::new(START, Some(Span::from_ms(100)), TrialCounts::default());
        for ms in [0, 99, 100, 350, 110, -1, 399] {
            intervals.counts_at(at(ms)).sent += 1;
        }
        let closed = intervals.close_first(at(121), Span::from_ms(20)).unwrap();
        assert_eq!((closed.0, closed.1.sent), (0, 3));
        assert!(intervals.close_first(at(219), Span::from_ms(20)).is_none());
        intervals.counts_at(at(50)).late += 1; // too late for its own interval
        let rest: Vec<_> =
            intervals.close_all().into_iter().map(|(n, c)| (n, c.sent, c.late)).collect();
        assert_eq!(rest, [(1, 2, 1), (2, 0, 0), (3, 2, 0)]);
    }

    #[test]
    fn published_progress_covers_all_intervals() {
        let mut intervals =
            OpenIntervalCounts::new(START, Some(Span::from_ms(100)), TrialCounts::default());
        let mut progress = Progress::default();
        for (ms, rtt) in [(0, 10), (110, 20), (210, 30)] {
            let counts = intervals.counts_at(at(ms));
            (counts.sent, counts.received) = (2, 1);
            counts.rtt.record(rtt);
        }
        for _ in 0..2 {
            intervals.publish_progress(&mut progress);
            assert_eq!((progress.counts.sent, progress.counts.received), (6, 3));
            // The last interval is still going on.
            assert_eq!((progress.latency.count(), progress.latency.max()), (1, Some(20)));
            intervals.close_first(at(250), Span::ZERO).unwrap();
        }
        let mut only = OpenIntervalCounts::new(START, None, TrialCounts::default());
        only.counts_at(at(1)).rtt.record(7);
        only.publish_progress(&mut progress);
        assert_eq!((progress.counts.sent, progress.latency.max()), (0, Some(7)));
    }

    #[test]
    fn the_latest_interval_is_not_closed_before_the_end() {
        let mut intervals =
            OpenIntervalCounts::new(START, Some(Span::from_ms(100)), TrialCounts::default());
        assert!(intervals.close_first(at(100_000), Span::ZERO).is_none());
        intervals.latest_counts().refused += 1;
        assert_eq!(intervals.close_all()[0].1.refused, 1);
    }
}
