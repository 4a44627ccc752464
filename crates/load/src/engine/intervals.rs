//! What an engine hands over while a trial runs: the counts of each interval, once all lanes have
//! closed it. It adds up and judges nothing.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use horolog_sys::clock::MonotonicClock;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use horolog_record::{LOOK_EVERY, SoFar};

use super::so_far::Looking;
use crate::account::{Closed, TrialCounts};
use crate::plan::TrialPlan;

/// Who takes the counts of the intervals of a trial. A trial without intervals is one.
pub trait Intervals {
    /// The next interval, all lanes together.
    fn closed(&mut self, counts: TrialCounts);

    /// Time has passed since the trial began; several times a second. Breaking ends the trial.
    fn tick(&mut self, _elapsed: Span) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Whether looks at what was counted so far are wanted.
    fn looks(&self) -> bool {
        false
    }

    /// What was counted so far, twice a second where that is wanted.
    fn look(&mut self, _elapsed: Span, _so_far: &SoFar) {}
}

/// Between two looks at whether a trial is to end: for those with intervals in time for the end of
/// a phase, for the others as seldom as a person does not notice.
pub(super) fn look(plan: &TrialPlan) -> Duration {
    Duration::from_millis(if plan.course.is_some() { 20 } else { 100 })
}

/// All intervals as one.
pub(super) struct Whole<'a> {
    pub(super) counts: TrialCounts,
    pub(super) flow: &'a mut dyn FnMut() -> ControlFlow<()>,
}

impl Intervals for Whole<'_> {
    fn closed(&mut self, counts: TrialCounts) {
        self.counts.merge(&counts);
    }

    fn tick(&mut self, _: Span) -> ControlFlow<()> {
        (self.flow)()
    }
}

/// Puts the books of several lanes together, interval by interval.
pub(super) struct Gathering {
    lanes: usize,
    first: u64,
    /// For each interval from the first on how many lanes have closed it, and what they counted.
    parts: VecDeque<(usize, TrialCounts)>,
}

impl Gathering {
    pub(super) const fn new(lanes: usize) -> Self {
        Self { lanes, first: 0, parts: VecDeque::new() }
    }

    /// Takes a lane's book, and hands over what is complete by it.
    pub(super) fn add(&mut self, (number, counts): Closed, intervals: &mut dyn Intervals) {
        let place = number.saturating_sub(self.first) as usize;
        while self.parts.len() <= place {
            self.parts.push_back((0, TrialCounts::default()));
        }
        let (closed, sum) = &mut self.parts[place];
        *closed += 1;
        sum.merge(&counts);
        while self.parts.front().is_some_and(|(closed, _)| *closed == self.lanes) {
            self.hand_over(intervals);
        }
    }

    /// Takes the books that come in from lanes that began at `start`, until all of them have ended.
    /// Sets `stop` when the trial is to end early, which is asked for at least as often as `look`,
    /// and lets who looks on see what they have counted so far.
    pub(super) fn gather(
        mut self,
        books: &Receiver<Closed>,
        (start, stop): (Timestamp<Monotonic>, &AtomicBool),
        (look, mut looking): (Duration, Option<Looking<'_>>),
        intervals: &mut dyn Intervals,
    ) {
        loop {
            match books.recv_timeout(look) {
                Ok(book) => self.add(book, intervals),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let elapsed = MonotonicClock.now() - start;
            if intervals.tick(elapsed).is_break() {
                stop.store(true, Ordering::Relaxed);
            }
            if let Some(looking) = &mut looking {
                looking.hand_over(start, elapsed, intervals);
            }
        }
        self.finish(intervals);
    }

    /// Hands over the rest: intervals that not every lane has reached.
    pub(super) fn finish(mut self, intervals: &mut dyn Intervals) {
        while !self.parts.is_empty() {
            self.hand_over(intervals);
        }
    }

    fn hand_over(&mut self, intervals: &mut dyn Intervals) {
        if let Some((_, counts)) = self.parts.pop_front() {
            self.first += 1;
            intervals.closed(counts);
        }
    }
}

/// Puts the intervals of the parts of a mix together that one thread has; those of an only part are
/// handed through.
pub(super) struct Shares<'a> {
    gathering: Gathering,
    /// Intervals that each part has told of.
    told: Vec<u64>,
    next_look: Span,
    intervals: &'a mut dyn Intervals,
}

/// What one part hands over to.
pub(super) struct Share<'s, 'a> {
    index: usize,
    shares: &'s mut Shares<'a>,
}

impl<'a> Shares<'a> {
    pub(super) fn new(parts: usize, intervals: &'a mut dyn Intervals) -> Self {
        let (gathering, told) = (Gathering::new(parts), vec![0; parts]);
        Self { gathering, told, next_look: LOOK_EVERY, intervals }
    }

    pub(super) fn part(&mut self, index: usize) -> Share<'_, 'a> {
        Share { index, shares: self }
    }

    /// Time has passed; breaking ends the trial.
    pub(super) fn tick(&mut self, elapsed: Span) -> ControlFlow<()> {
        self.intervals.tick(elapsed)
    }

    /// Whether it is time for a look that is wanted.
    pub(super) fn look_is_due(&mut self, elapsed: Span) -> bool {
        let is_due = self.intervals.looks() && elapsed >= self.next_look;
        if is_due {
            self.next_look = elapsed + LOOK_EVERY;
        }
        is_due
    }

    /// What was counted so far.
    pub(super) fn look(&mut self, elapsed: Span, so_far: &SoFar) {
        self.intervals.look(elapsed, so_far);
    }

    /// Hands over the rest.
    pub(super) fn finish(self) {
        self.gathering.finish(self.intervals);
    }
}

impl Intervals for Share<'_, '_> {
    fn closed(&mut self, counts: TrialCounts) {
        let (index, Shares { gathering, told, intervals, .. }) = (self.index, &mut *self.shares);
        let count = told.len();
        let counts = if count > 1 { counts.as_part(index, count) } else { counts };
        gathering.add((told[index], Box::new(counts)), *intervals);
        told[index] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sent(Vec<u64>);

    impl Intervals for Sent {
        fn closed(&mut self, counts: TrialCounts) {
            self.0.push(counts.sent);
        }
    }

    #[test]
    fn an_interval_is_handed_over_once_all_lanes_have_closed_it() {
        let book = |number, sent| (number, Box::new(TrialCounts { sent, ..Default::default() }));
        let (mut gathering, mut taken) = (Gathering::new(2), Sent(Vec::new()));
        for (number, sent) in [(0, 1), (1, 10), (2, 100)] {
            gathering.add(book(number, sent), &mut taken);
        }
        assert!(taken.0.is_empty());
        gathering.add(book(0, 5), &mut taken);
        assert_eq!(taken.0, [6]);
        gathering.add(book(1, 50), &mut taken);
        gathering.finish(&mut taken);
        assert_eq!(taken.0, [6, 60, 100]);
    }
}
