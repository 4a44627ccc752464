//! Looks at a run while it goes on: what the engine has counted so far, put beside what was counted
//! before and what was planned. It sees what it is given and asks for nothing.

use std::ops::ControlFlow;
use std::time::Instant;

use horolog_record::{Look, LookCounts, LookPart, Percentiles, SoFar};
use horolog_time::Span;

use super::Observer;
use crate::account::TrialCounts;
use crate::engine::Intervals;

/// The part that is under way, as it was planned.
#[derive(Clone, Debug)]
pub(crate) struct Under<'a> {
    /// Its number, and what it is called.
    pub(crate) index: usize,
    pub(crate) name: &'a str,
    /// Requests per second that are planned at this instant, where any are.
    pub(crate) rate: Option<f64>,
    /// When it began, from the beginning of what the engine counts together; and how long it is.
    pub(crate) begun_s: f64,
    pub(crate) duration_s: f64,
}

/// What is remembered from one look to the next.
#[derive(Debug)]
pub(crate) struct Lookout {
    begun: Instant,
    /// What was counted before what the engine counts now.
    before: LookCounts,
    /// What the engine had counted when the part began that is under way, and which that is.
    part: (usize, LookCounts),
    /// When the engine was last looked at, and what it had counted.
    last: (f64, LookCounts),
}

impl Lookout {
    pub(crate) fn new() -> Self {
        let zero = LookCounts::default();
        Self { begun: Instant::now(), before: zero, part: (0, zero), last: (0.0, zero) }
    }

    /// The engine begins to count from 0, with this part.
    pub(crate) fn begin(&mut self, part: usize) {
        let zero = LookCounts::default();
        (self.part, self.last) = ((part, zero), (0.0, zero));
    }

    /// What can be said when the engine has counted this so long after it began.
    pub(crate) fn look(&mut self, under: &Under<'_>, elapsed: Span, so_far: &SoFar) -> Look {
        let (now, counts) = (elapsed.as_seconds(), so_far.counts);
        if under.index != self.part.0 {
            // It began between two looks: what is not known to be its own is left out.
            self.part = (under.index, self.last.1);
        }
        let (then, counted) = std::mem::replace(&mut self.last, (now, counts));
        let gained = counts.since(&counted);
        let per_second = |count: u64| count as f64 / (now - then).max(1e-9);
        let mut all = self.before;
        all.add(&counts);
        Look {
            at_s: self.begun.elapsed().as_secs_f64(),
            offered_rate: under.rate,
            sent_rate: per_second(gained.sent),
            received_rate: per_second(gained.received),
            byte_rate: None,
            unanswered_ratio: gained.unanswered() as f64 / gained.sent.max(1) as f64,
            counts: all,
            part: LookPart {
                index: under.index,
                name: under.name.to_owned(),
                elapsed_s: (now - under.begun_s).max(0.0),
                duration_s: Some(under.duration_s),
                counts: counts.since(&self.part.1),
            },
            latency_ns: Percentiles::of_recorder(&so_far.latency),
            lateness_ns: Percentiles::of_recorder(&so_far.lateness),
        }
    }

    /// The last look at what the engine counted together, when all of it is there, part by part:
    /// of the last part, with rates that are those of the whole part.
    pub(crate) fn end<'c>(
        &mut self,
        under: &Under<'_>,
        parts: impl Iterator<Item = &'c TrialCounts>,
    ) -> Option<Look> {
        let (mut so_far, mut last) = (SoFar::default(), None);
        for counts in parts {
            so_far.counts.add(&counts.look());
            last = Some(counts);
        }
        let last = last?;
        so_far.latency.merge(&last.rtt);
        so_far.lateness.merge(&last.lateness);
        let elapsed = Span::from_ns(((under.begun_s + under.duration_s) * 1e9) as i64);
        let look = self.look(under, elapsed, &so_far);
        self.before.add(&so_far.counts);
        let counts = last.look();
        let per_second = |count: u64| count as f64 / under.duration_s.max(1e-9);
        Some(Look {
            sent_rate: per_second(counts.sent),
            received_rate: per_second(counts.received),
            unanswered_ratio: counts.unanswered() as f64 / counts.sent.max(1) as f64,
            part: LookPart { elapsed_s: under.duration_s, counts, ..look.part },
            ..look
        })
    }
}

/// A trial of one rate, counted as a whole, of which the observer may want looks.
pub(crate) struct Watched<'a> {
    pub(crate) counts: TrialCounts,
    pub(crate) stopped: bool,
    pub(crate) observer: &'a mut dyn Observer,
    pub(crate) lookout: &'a mut Lookout,
    pub(crate) under: Under<'a>,
}

impl Intervals for Watched<'_> {
    fn closed(&mut self, counts: TrialCounts) {
        self.counts.merge(&counts);
    }

    fn tick(&mut self, _: Span) -> ControlFlow<()> {
        let flow = self.observer.flow();
        self.stopped |= flow.is_break();
        flow
    }

    fn looks(&self) -> bool {
        self.observer.looks()
    }

    fn look(&mut self, elapsed: Span, so_far: &SoFar) {
        let look = self.lookout.look(&self.under, elapsed, so_far);
        self.observer.look(look);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn so_far(sent: u64, received: u64) -> SoFar {
        let counts = LookCounts { sent, received, ..LookCounts::default() };
        SoFar { counts, ..SoFar::default() }
    }

    fn under(index: usize) -> Under<'static> {
        Under { index, name: "", rate: Some(100.0), begun_s: index as f64, duration_s: 1.0 }
    }

    #[test]
    fn rates_are_of_what_came_since_the_last_look_and_counts_of_all_trials() {
        let mut lookout = Lookout::new();
        lookout.begin(0);
        let first = lookout.look(&under(0), Span::from_ms(500), &so_far(50, 40));
        assert_eq!((first.sent_rate as u64, first.received_rate as u64), (100, 80));
        assert_eq!((first.counts.sent, first.part.counts.sent), (50, 50));
        let trial = TrialCounts { sent: 100, received: 90, ..TrialCounts::default() };
        let last = lookout.end(&under(0), std::iter::once(&trial)).unwrap();
        assert_eq!((last.sent_rate as u64, last.received_rate as u64), (100, 90));
        assert!((last.unanswered_ratio - 0.1).abs() < 1e-9, "{last:?}");
        lookout.begin(1);
        let next = lookout.look(&under(1), Span::from_ms(500), &so_far(10, 10));
        assert_eq!((next.counts.sent, next.part.counts.sent), (110, 10));
        assert_eq!((next.sent_rate as u64, next.unanswered_ratio), (20, 0.0));
    }

    #[test]
    fn phases_of_a_course_are_told_apart() {
        let mut lookout = Lookout::new();
        lookout.begin(0);
        lookout.look(&under(0), Span::from_ms(900), &so_far(90, 90));
        let second = lookout.look(&under(1), Span::from_ms(1_400), &so_far(140, 140));
        assert_eq!((second.counts.sent, second.part.counts.sent), (140, 50));
        assert!((second.part.elapsed_s - 0.4).abs() < 1e-9);
    }
}
