//! The books that the in-kernel generator keeps of a trial: one for the whole of it, or one for
//! each interval of a course, read when no reply can be in time for it any more. A request and all
//! that becomes of it stand in the book of the interval in which it was due, as with the other
//! engines; an invalid reply in that of the interval in which it came.

use horolog_record::{InvalidReason, LookCounts, SoFar};
use horolog_stats::{Recorder, SignedRecorder};
use horolog_time::{Span, Timestamp};
use horolog_xdp::{Generator, OffsetTally, RawHistogram, Tally};

use crate::account::{CLOSING, PtpCounts, TrialCounts};
use crate::course::Course;
use crate::engine::Intervals;
use crate::fairness::Asked;
use crate::offset::OffsetCounts;
use crate::plan::RunPlan;

/// How long the thread that reads books may be held up.
const HELD_UP: Span = Span::from_ms(1000);

/// Books that may be open at the same time in a run whose courses have such intervals.
pub(super) fn count(interval: Span, timeout: Span) -> u32 {
    let open = (timeout + CLOSING + HELD_UP).as_ns() / interval.as_ns().max(1) + 3;
    (open as u32).next_power_of_two()
}

/// The books of a trial that is under way.
pub(super) struct Books<'a> {
    generator: &'a Generator,
    plan: &'a RunPlan,
    /// The length of an interval, and how many there are.
    intervals: Option<(Span, u64)>,
    /// The number of the first open book.
    first: u64,
    /// Whether nobody writes in it any more since the last look.
    is_left: bool,
    /// Requests that were answered in the books that are closed, and the longest round trip there.
    closed: (u64, u64),
    /// What stood in the books that are closed.
    counted: LookCounts,
}

impl<'a> Books<'a> {
    pub(super) fn new(
        generator: &'a Generator,
        plan: &'a RunPlan,
        course: Option<&Course>,
    ) -> Self {
        let length = |course: &Course| Span::from_ns(course.interval().as_nanos() as i64);
        let intervals = course.map(|course| (length(course), course.intervals()));
        Self {
            generator,
            plan,
            intervals,
            first: 0,
            is_left: false,
            closed: (0, 0),
            counted: LookCounts::default(),
        }
    }

    /// The number of the interval so long after the beginning.
    fn number(&self, elapsed: Span) -> u64 {
        self.intervals.map_or(0, |(length, count)| {
            let number = elapsed.as_ns().max(0) / length.as_ns().max(1);
            (number as u64).min(count.saturating_sub(1)).max(self.first)
        })
    }

    /// Requests that got all replies that they are owed so far, late ones included, and the longest
    /// round trip.
    pub(super) fn answered(&self, elapsed: Span) -> (u64, Span) {
        let (open, longest) = self.generator.answered_in(self.first, self.number(elapsed));
        (self.closed.0 + open, Span::from_ns(self.closed.1.max(longest) as i64))
    }

    /// Says what was counted so far: all of it, and the times of the last interval that has all its
    /// requests, or else of the only one. The numbers of all books are read, of the histograms only
    /// those that are shown: who reads them takes the memory from who writes in them.
    pub(super) fn so_far(&self, elapsed: Span, told: &mut SoFar) {
        let latest = self.number(elapsed);
        let open = self.generator.counted_in(self.first, latest);
        told.counts.add(&self.counted);
        told.counts.add(&LookCounts {
            sent: open.sent,
            received: open.received,
            late: open.late,
            duplicate: open.duplicate,
            invalid: open.invalid,
            ..LookCounts::default()
        });
        let shown = latest.saturating_sub(1).max(self.first);
        for processor in 0..self.generator.processors() {
            let tally = self.generator.book(shown, processor);
            told.latency.merge(&recorder(&tally.rtt_ns));
            told.lateness.merge(&recorder(&tally.lateness_ns));
        }
    }

    /// Hands over the first open book where no reply can be in time for it any more. Only at the
    /// next look is it read, when the program has ended what it was about to write.
    pub(super) fn look(&mut self, elapsed: Span, intervals: &mut dyn Intervals) {
        let Some((length, count)) = self.intervals else { return };
        if self.is_left {
            self.is_left = false;
            let counts = self.close();
            intervals.closed(counts);
        }
        let end = Span::from_ns((self.first as i64 + 1) * length.as_ns());
        let patience = Span::from_ns(self.plan.reply_timeout.as_nanos() as i64) + CLOSING;
        if elapsed - end > patience && self.first + 1 < count {
            self.generator.set_first_book(self.first + 1);
            self.is_left = true;
        }
    }

    /// Hands over all that is open when nothing is running any more; `rest` belongs to the last
    /// book, which is that of the instant `reached`.
    pub(super) fn finish(
        mut self,
        reached: Span,
        rest: &TrialCounts,
        intervals: &mut dyn Intervals,
    ) {
        let last = self.number(reached);
        while self.first < last {
            let counts = self.close();
            intervals.closed(counts);
        }
        let mut counts = self.close();
        // What came after the end of one that was ended early is told of at its end.
        let behind = self.intervals.map_or(0, |(_, intervals)| intervals - self.first);
        for _ in 0..behind.min(self.generator.books().into()) {
            counts.merge(&self.close());
        }
        counts.merge(rest);
        intervals.closed(counts);
    }

    /// Takes the first open book.
    fn close(&mut self) -> TrialCounts {
        let number = self.first;
        let (answered, longest) = self.generator.answered_in(number, number);
        self.closed = (self.closed.0 + answered, self.closed.1.max(longest));
        let counts = self.read(number);
        self.counted.add(&counts.look());
        if self.intervals.is_some() {
            self.generator.clear_book(number);
        }
        self.first += 1;
        counts
    }

    /// Adds up what all processors counted.
    fn read(&self, number: u64) -> TrialCounts {
        let mut counts = TrialCounts::default();
        let mut offsets = SignedRecorder::new();
        for processor in 0..self.generator.processors() {
            counts.merge(&self.counted(&self.generator.book(number, processor)));
            if self.plan.offset.is_some() {
                offsets.merge(&signed(&self.generator.offsets(number, processor)));
            }
        }
        // Every reply has an instant.
        let stamped = counts.received;
        counts.offsets = self.plan.offset.map(|_| OffsetCounts { stamped, offsets });
        counts
    }

    /// What one processor counted.
    fn counted(&self, tally: &Tally) -> TrialCounts {
        let mut invalid = [0; InvalidReason::ALL.len()];
        invalid[..tally.invalid.len()].copy_from_slice(&tally.invalid);
        let instant = |ns: u64| (ns > 0).then(|| Timestamp::from_ns(ns as i64));
        TrialCounts {
            planned: tally.left_out,
            sent: tally.lateness_ns.count,
            first_sent: instant(tally.first_sent_ns),
            last_sent: instant(tally.last_sent_ns),
            received: tally.received,
            interleaved: tally.interleaved,
            ptp: self.plan.ptp.map(|_| PtpCounts {
                delay: tally.delay,
                sync_follow_up: tally.sync_follow_up,
                ..PtpCounts::default()
            }),
            duplicate: tally.duplicate,
            late: tally.late + tally.late_earlier,
            late_earlier: tally.late_earlier,
            invalid,
            server_unsynchronised: tally.unsynchronised,
            rtt: recorder(&tally.rtt_ns),
            response: recorder(&tally.response_ns),
            lateness: recorder(&tally.lateness_ns),
            ..TrialCounts::default()
        }
    }
}

/// What each client asked and was answered.
pub(super) fn clients(generator: &Generator) -> Vec<Asked> {
    let asked =
        |one: horolog_xdp::AskedAnswered| Asked { asked: one.asked, answered: one.answered };
    generator.clients().map(asked).collect()
}

fn signed(tally: &OffsetTally) -> SignedRecorder {
    let [negative, positive] = [&tally.negative, &tally.positive].map(recorder);
    SignedRecorder::from_parts(negative, positive, tally.squares(), tally.clamped)
}

fn recorder(raw: &RawHistogram) -> Recorder {
    // The program keeps to the layout, so the kernel's table is never refused.
    Recorder::from_raw(&raw.buckets, raw.sum.into(), raw.min, raw.max).unwrap_or_default()
}
