//! Intervals by looking at counters that go on counting, for an engine that keeps no books of them:
//! what was sent and what came in each interval, with no pause between two. Pure.
//!
//! What is under way at the end of an interval would look lost in it and found in the next. So an
//! interval is told of only when none of its replies can be in time any more, and what was lost up
//! to its end is the least that was missing at any look since then: no less than was lost, and more
//! by no more than was under way at every one of these looks.

use std::collections::VecDeque;

use horolog_stats::Recorder;
use horolog_time::Span;

use crate::account::TrialCounts;

/// An interval, as far as counters tell.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Requests that left in it.
    pub sent: u64,
    /// Those of them that stayed without a valid reply in time.
    pub lost: u64,
    /// Late replies that came in it.
    pub late: u64,
    /// Invalid replies that came in it.
    pub invalid: u64,
    /// Round trips of the replies that came in it, in ns.
    pub rtt: Recorder,
}

/// Looks at the counters at the end of each interval.
#[derive(Debug)]
pub(super) struct Samples {
    interval: Span,
    /// How many intervals a reply may take.
    patience: usize,
    /// The counters at the last look.
    last: TrialCounts,
    looks: i64,
    /// Intervals that are not told of yet, each with what was missing at its end.
    waiting: VecDeque<(Sample, u64)>,
    /// What is told to be lost so far.
    lost: u64,
}

impl Samples {
    pub(super) fn new(interval: Span, timeout: Span) -> Self {
        let patience = (timeout.as_ns() / interval.as_ns().max(1)) as usize + 2;
        let (last, waiting) = (TrialCounts::default(), VecDeque::new());
        Self { interval, patience, last, looks: 0, waiting, lost: 0 }
    }

    /// Whether an interval ended, this long after the beginning.
    pub(super) fn due(&self, elapsed: Span) -> bool {
        elapsed.as_ns() >= (self.looks + 1) * self.interval.as_ns()
    }

    /// Takes the counters at the end of an interval, and gives one that can be told of.
    pub(super) fn look(&mut self, counts: TrialCounts) -> Option<Sample> {
        self.looks += 1;
        let sample = self.gained(&counts);
        self.waiting.push_back((sample, counts.lost()));
        self.last = counts;
        (self.waiting.len() > self.patience).then(|| self.tell()).flatten()
    }

    /// Takes the counters when all replies are there, for the `intervals` that there were in all,
    /// and gives all that were not told of.
    pub(super) fn finish(mut self, counts: TrialCounts, intervals: u64) -> Vec<Sample> {
        let mut rest = Vec::new();
        if self.looks < intervals as i64 {
            rest.extend(self.look(counts));
        } else {
            // What came after the last interval belongs to it.
            let gained = self.gained(&counts);
            if let Some((sample, missing)) = self.waiting.back_mut() {
                *missing = counts.lost();
                sample.sent += gained.sent;
                sample.late += gained.late;
                sample.invalid += gained.invalid;
                sample.rtt.merge(&gained.rtt);
            }
        }
        rest.extend(std::iter::from_fn(|| self.tell()));
        rest
    }

    /// What was counted since the last look; nothing of it is lost yet.
    fn gained(&self, counts: &TrialCounts) -> Sample {
        let invalid = |counts: &TrialCounts| counts.invalid.iter().sum::<u64>();
        Sample {
            sent: counts.sent.saturating_sub(self.last.sent),
            lost: 0,
            late: counts.late.saturating_sub(self.last.late),
            invalid: invalid(counts).saturating_sub(invalid(&self.last)),
            rtt: counts.rtt.since(&self.last.rtt),
        }
    }

    fn tell(&mut self) -> Option<Sample> {
        let least = self.waiting.iter().map(|(_, missing)| *missing).min()?;
        let (mut sample, _) = self.waiting.pop_front()?;
        sample.lost = least.saturating_sub(self.lost).min(sample.sent);
        self.lost += sample.lost;
        Some(sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counts(sent: u64, received: u64) -> TrialCounts {
        let mut counts = TrialCounts { sent, received, ..TrialCounts::default() };
        (0..received).for_each(|_| counts.rtt.record(1000));
        counts
    }

    fn samples() -> Samples {
        Samples::new(Span::from_ms(100), Span::from_ms(150))
    }

    #[test]
    fn what_is_under_way_is_not_lost() {
        let mut samples = samples();
        assert!(!samples.due(Span::from_ms(99)) && samples.due(Span::from_ms(100)));
        assert!(samples.look(counts(10, 8)).is_none());
        assert!(samples.look(counts(20, 15)).is_none());
        assert!(samples.look(counts(30, 28)).is_none());
        let first = samples.look(counts(40, 39)).unwrap();
        assert_eq!((first.sent, first.lost, first.rtt.count()), (10, 1, 8));
        let rest = samples.finish(counts(50, 49), 5);
        let rest: Vec<_> = rest.iter().map(|one| (one.sent, one.lost)).collect();
        assert_eq!(rest, [(10, 0), (10, 0), (10, 0), (10, 0)]);
    }

    #[test]
    fn a_loss_stands_in_its_interval() {
        let mut samples = samples();
        let all = [(10, 10), (20, 10), (30, 20), (40, 30), (50, 40), (60, 50)];
        let mut told: Vec<_> =
            all.iter().filter_map(|&(s, r)| samples.look(counts(s, r))).collect();
        told.extend(samples.finish(counts(60, 50), 6));
        let lost: Vec<_> = told.iter().map(|one| one.lost).collect();
        assert_eq!(lost, [0, 10, 0, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn intervals_add_up(steps in prop::collection::vec((0u64..100, 0u64..100, 0u64..30), 1..30)) {
            let mut samples = samples();
            let (mut sent, mut received, mut under_way) = (0, 0, 0);
            let mut told = Vec::new();
            for (asked, answered, left) in steps.iter().copied() {
                sent += asked;
                let answered = answered.min(asked) + under_way;
                under_way = left.min(answered);
                received += answered - under_way;
                told.extend(samples.look(counts(sent, received)));
            }
            let last = counts(sent, received + under_way);
            told.extend(samples.finish(last.clone(), steps.len() as u64));
            prop_assert_eq!(told.len(), steps.len());
            prop_assert_eq!(told.iter().map(|one| one.sent).sum::<u64>(), sent);
            let count: u64 = told.iter().map(|one| one.rtt.count()).sum();
            prop_assert_eq!(count, last.received);
            let lost: u64 = told.iter().map(|one| one.lost).sum();
            // No less than was lost, but where an interval would have to lose more than it sent.
            prop_assert!(lost <= last.lost() + 30 * steps.len() as u64);
        }
    }
}
