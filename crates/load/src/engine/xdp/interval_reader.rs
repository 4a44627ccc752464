//! Counts of the in-kernel generator for a trial: one set for all of it, or one for each interval
//! of a profile, read once no reply can be in time for it any more. A request and its outcome count
//! in the interval in which it was due, as with the other engines; an invalid reply in the interval
//! in which it arrived.

use horolog_record::{InvalidReason, LiveCounts, Progress};
use horolog_stats::{Recorder, SignedRecorder};
use horolog_time::{Span, Timestamp};
use horolog_xdp::{Generator, LaneCounts, LaneOffsetCounts, RawHistogram};

use crate::engine::IntervalSink;
use crate::fairness::ClientReplyCounts;
use crate::load_profile::LoadProfile;
use crate::offset::OffsetCounts;
use crate::plan::RunPlan;
use crate::request_tracker::{INTERVAL_CLOSE_DELAY, PtpCounts, TrialCounts};

/// Longest delay that the reading thread tolerates.
const HELD_UP: Span = Span::from_ms(1000);

/// Returns the number of intervals that may be open at the same time in a run whose profiles have
/// such intervals.
pub(super) fn count(interval: Span, timeout: Span) -> u32 {
    let open = (timeout + INTERVAL_CLOSE_DELAY + HELD_UP).as_ns() / interval.as_ns().max(1) + 3;
    (open as u32).next_power_of_two()
}

/// Reader of the interval counts of a running trial.
pub(super) struct IntervalReader<'a> {
    generator: &'a Generator,
    plan: &'a RunPlan,
    /// Length of an interval, and the number of intervals.
    intervals: Option<(Span, u64)>,
    /// Number of the first open interval.
    first: u64,
    /// True if the program has stopped writing to it since the last check.
    is_left: bool,
    /// Requests answered in the closed intervals, and the longest round trip there.
    closed: (u64, u64),
    /// Replies in the closed intervals that complete no request.
    incomplete: u64,
    /// Counts of the closed intervals.
    counted: LiveCounts,
}

impl<'a> IntervalReader<'a> {
    pub(super) fn new(
        generator: &'a Generator,
        plan: &'a RunPlan,
        profile: Option<&LoadProfile>,
    ) -> Self {
        let length = |profile: &LoadProfile| Span::from_ns(profile.interval().as_nanos() as i64);
        let intervals = profile.map(|profile| (length(profile), profile.intervals()));
        Self {
            generator,
            plan,
            intervals,
            first: 0,
            is_left: false,
            closed: (0, 0),
            incomplete: 0,
            counted: LiveCounts::default(),
        }
    }

    /// Returns the number of the interval at `elapsed` after the start.
    fn number(&self, elapsed: Span) -> u64 {
        self.intervals.map_or(0, |(length, count)| {
            let number = elapsed.as_ns().max(0) / length.as_ns().max(1);
            (number as u64).min(count.saturating_sub(1)).max(self.first)
        })
    }

    /// Returns the requests that have received all replies expected so far, late ones included, and
    /// the longest round trip.
    pub(super) fn answered(&self, elapsed: Span) -> (u64, Span) {
        let (open, longest) = self.generator.answered_in(self.first, self.number(elapsed));
        (self.closed.0 + open, Span::from_ns(self.closed.1.max(longest) as i64))
    }

    /// Returns the replies so far that complete no request: invalid ones and parts of a reply.
    pub(super) fn incomplete(&self, elapsed: Span) -> u64 {
        self.incomplete + self.incomplete_in(self.first, self.number(elapsed))
    }

    fn incomplete_in(&self, first: u64, last: u64) -> u64 {
        let counted = self.generator.counted_in(first, last);
        counted.invalid + counted.parts
    }

    /// Publishes the counts so far: all of them, and the times of the last interval that has all
    /// its requests, or otherwise of the only one. The numbers of all intervals are read, of the
    /// histograms only those that are shown: reading contends with the program for the memory.
    pub(super) fn so_far(&self, elapsed: Span, progress: &mut Progress) {
        let latest = self.number(elapsed);
        let open = self.generator.counted_in(self.first, latest);
        progress.counts.add(&self.counted);
        progress.counts.add(&LiveCounts {
            sent: open.sent,
            received: open.received,
            late: open.late,
            duplicate: open.duplicate,
            unsynchronised: if self.plan.ptp.is_some() { 0 } else { open.unsynchronised },
            invalid: open.invalid,
            ..LiveCounts::default()
        });
        let shown = latest.saturating_sub(1).max(self.first);
        for processor in 0..self.generator.processors() {
            let tally = self.generator.interval(shown, processor);
            progress.latency.merge(&recorder(&tally.rtt_ns));
            progress.lateness.merge(&recorder(&tally.lateness_ns));
        }
    }

    /// Delivers the first open interval if no reply can be in time for it any more. It is read only
    /// at the next call, after the program has finished its pending writes.
    pub(super) fn poll(&mut self, elapsed: Span, intervals: &mut dyn IntervalSink) {
        let Some((length, count)) = self.intervals else { return };
        if self.is_left {
            self.is_left = false;
            let counts = self.close();
            intervals.closed(counts);
        }
        let end = Span::from_ns((self.first as i64 + 1) * length.as_ns());
        let timeout =
            Span::from_ns(self.plan.reply_timeout.as_nanos() as i64) + INTERVAL_CLOSE_DELAY;
        if elapsed - end > timeout && self.first + 1 < count {
            self.generator.set_first_interval(self.first + 1);
            self.is_left = true;
        }
    }

    /// Delivers all open intervals when nothing is running any more; `rest` belongs to the last
    /// interval, that of the instant `reached`.
    pub(super) fn finish(
        mut self,
        reached: Span,
        rest: &TrialCounts,
        intervals: &mut dyn IntervalSink,
    ) {
        let last = self.number(reached);
        while self.first < last {
            let counts = self.close();
            intervals.closed(counts);
        }
        let mut counts = self.close();
        // Replies after an interval that was ended early are counted at the end.
        let behind = self.intervals.map_or(0, |(_, intervals)| intervals - self.first);
        for _ in 0..behind.min(self.generator.intervals().into()) {
            counts.merge(&self.close());
        }
        counts.merge(rest);
        intervals.closed(counts);
    }

    /// Closes the first open interval.
    fn close(&mut self) -> TrialCounts {
        let number = self.first;
        let (answered, longest) = self.generator.answered_in(number, number);
        self.closed = (self.closed.0 + answered, self.closed.1.max(longest));
        self.incomplete += self.incomplete_in(number, number);
        let counts = self.read(number);
        self.counted.add(&counts.live_counts());
        if self.intervals.is_some() {
            self.generator.clear_interval(number);
        }
        self.first += 1;
        counts
    }

    /// Adds up the counts of all CPUs.
    fn read(&self, number: u64) -> TrialCounts {
        let mut counts = TrialCounts::default();
        let mut offsets = SignedRecorder::new();
        for processor in 0..self.generator.processors() {
            counts.merge(&self.counted(&self.generator.interval(number, processor)));
            if self.plan.offset.is_some() {
                offsets.merge(&signed(&self.generator.offsets(number, processor)));
            }
        }
        // Every reply has a timestamp.
        let timestamped = counts.received;
        counts.offsets = self.plan.offset.map(|_| OffsetCounts { timestamped, offsets });
        counts
    }

    /// Returns the counts of one CPU.
    fn counted(&self, tally: &LaneCounts) -> TrialCounts {
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

/// Returns the requests and replies of each client.
pub(super) fn clients(generator: &Generator) -> Vec<ClientReplyCounts> {
    let reply_counts = |one: horolog_xdp::ClientCounts| ClientReplyCounts {
        count_request: one.requests,
        answered: one.replies,
    };
    generator.clients().map(reply_counts).collect()
}

fn signed(tally: &LaneOffsetCounts) -> SignedRecorder {
    let [negative, positive] = [&tally.negative, &tally.positive].map(recorder);
    SignedRecorder::from_parts(negative, positive, tally.squares(), tally.clamped)
}

fn recorder(raw: &RawHistogram) -> Recorder {
    // The program keeps to the layout, so the kernel's table is never refused.
    Recorder::from_raw(&raw.buckets, raw.sum.into(), raw.min, raw.max).unwrap_or_default()
}
