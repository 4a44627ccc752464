//! Reader of the XDP engine's counts: one set for the trial, or one for each interval of a load
//! profile. An interval is read when no reply to its requests can be in time any more. A request
//! and its outcome count in the interval of the intended send time, as in the other engines; an
//! invalid reply in the interval of its arrival.

use horolog_record::{InvalidReplyReason, LiveCounts, Progress};
use horolog_stats::SignedHistogram;
use horolog_time::{Span, Timestamp};
use horolog_xdp::{Generator, LaneCounts};

use crate::engine::IntervalSink;
use crate::fairness::ClientReplyCounts;
use crate::load_profile::LoadProfile;
use crate::offset::ServerOffsetCounts;
use crate::plan::RunPlan;
use crate::request_tracker::{INTERVAL_CLOSE_DELAY, PtpReplyCounts, TrialCounts};

/// Longest delay of the reading thread for which there are enough intervals in the program.
const READ_DELAY_MAX: Span = Span::from_ms(1000);

/// Returns the number of intervals of length `interval` that may be open at the same time, a power
/// of two.
pub(super) fn open_interval_count(interval: Span, timeout: Span) -> u32 {
    let open =
        (timeout + INTERVAL_CLOSE_DELAY + READ_DELAY_MAX).as_ns() / interval.as_ns().max(1) + 3;
    (open as u32).next_power_of_two()
}

/// Reader of the interval counts of a running trial.
pub(super) struct IntervalReader<'a> {
    generator: &'a Generator,
    plan: &'a RunPlan,
    /// Length of an interval and number of intervals; `None` without a load profile.
    intervals: Option<(Span, u64)>,
    /// Number of the first open interval.
    first: u64,
    /// True if the program no longer writes to the first open interval, so that the next
    /// [`IntervalReader::poll`] may read it.
    is_close_pending: bool,
    /// Answered requests in the closed intervals, and their longest round trip in ns.
    closed_replies: (u64, u64),
    /// Replies in the closed intervals that complete no request: invalid ones, and one of several.
    incomplete: u64,
    /// Counts of the closed intervals.
    closed_counts: LiveCounts,
}

impl<'a> IntervalReader<'a> {
    pub(super) fn new(
        generator: &'a Generator,
        plan: &'a RunPlan,
        profile: Option<&LoadProfile>,
    ) -> Self {
        let length = |profile: &LoadProfile| Span::from_ns(profile.interval().as_nanos() as i64);
        let intervals = profile.map(|profile| (length(profile), profile.interval_count()));
        Self {
            generator,
            plan,
            intervals,
            first: 0,
            is_close_pending: false,
            closed_replies: (0, 0),
            incomplete: 0,
            closed_counts: LiveCounts::default(),
        }
    }

    /// Returns the number of the interval at `elapsed` after the start, at most the last one and at
    /// least the first open one; 0 without a load profile.
    fn number(&self, elapsed: Span) -> u64 {
        self.intervals.map_or(0, |(length, count)| {
            let number = elapsed.as_ns().max(0) / length.as_ns().max(1);
            (number as u64).min(count.saturating_sub(1)).max(self.first)
        })
    }

    /// Returns the number of requests with all replies that they expect, late ones included, and
    /// the longest round trip.
    pub(super) fn answered(&self, elapsed: Span) -> (u64, Span) {
        let (open, longest) = self.generator.answered_and_rtt(self.first, self.number(elapsed));
        (self.closed_replies.0 + open, Span::from_ns(self.closed_replies.1.max(longest) as i64))
    }

    /// Returns the number of replies that complete no request: invalid ones, and one of several.
    pub(super) fn incomplete(&self, elapsed: Span) -> u64 {
        self.incomplete + self.incomplete_in(self.first, self.number(elapsed))
    }

    fn incomplete_in(&self, first: u64, last: u64) -> u64 {
        let counted = self.generator.counts_in_intervals(first, last);
        counted.invalid + counted.ptp_messages
    }

    /// Adds the counts so far to `progress`, and the histograms of the last complete interval, or
    /// of the current one if it is the first open one. Histograms of other intervals are not read,
    /// because reading contends with the program for memory.
    pub(super) fn publish_progress(&self, elapsed: Span, progress: &mut Progress) {
        let latest = self.number(elapsed);
        let open = self.generator.counts_in_intervals(self.first, latest);
        progress.counts.add(&self.closed_counts);
        progress.counts.add(&LiveCounts {
            sent: open.sent,
            received: open.received,
            late: open.late,
            duplicate: open.duplicate,
            unsynchronised: if self.plan.requests.behaviour().ptp_counts().is_some() {
                0
            } else {
                open.unsynchronised
            },
            invalid: open.invalid,
            ..LiveCounts::default()
        });
        let shown = latest.saturating_sub(1).max(self.first);
        for processor in 0..self.generator.processors() {
            let lane_counts = self.generator.interval_counts(shown, processor);
            progress.latency.merge(&lane_counts.rtt_ns.to_histogram());
            progress.lateness.merge(&lane_counts.lateness_ns.to_histogram());
        }
    }

    /// Delivers the first open interval if no reply can be in time for it any more. It is read at
    /// the next call, when the program's pending writes to it are finished.
    pub(super) fn poll(&mut self, elapsed: Span, intervals: &mut dyn IntervalSink) {
        let Some((length, count)) = self.intervals else { return };
        if self.is_close_pending {
            self.is_close_pending = false;
            let counts = self.close();
            intervals.deliver_interval(counts);
        }
        let end = Span::from_ns((self.first as i64 + 1) * length.as_ns());
        let timeout = self.plan.reply_timeout + INTERVAL_CLOSE_DELAY;
        if elapsed - end > timeout && self.first + 1 < count {
            self.generator.set_first_interval(self.first + 1);
            self.is_close_pending = true;
        }
    }

    /// Delivers all open intervals after the program has ended. The last one contains the instant
    /// `ended_at`, since the start of the trial, and `trial_counts` is added to it.
    pub(super) fn finish(
        mut self,
        ended_at: Span,
        trial_counts: &TrialCounts,
        intervals: &mut dyn IntervalSink,
    ) {
        let last = self.number(ended_at);
        while self.first < last {
            let counts = self.close();
            intervals.deliver_interval(counts);
        }
        let mut counts = self.close();
        // Adds replies that the program counted in intervals after the end of a trial that was
        // ended early.
        let intervals_left = self.intervals.map_or(0, |(_, intervals)| intervals - self.first);
        for _ in 0..intervals_left.min(self.generator.intervals().into()) {
            counts.merge(&self.close());
        }
        counts.merge(trial_counts);
        intervals.deliver_interval(counts);
    }

    /// Reads and clears the first open interval.
    fn close(&mut self) -> TrialCounts {
        let number = self.first;
        let (answered, longest) = self.generator.answered_and_rtt(number, number);
        self.closed_replies =
            (self.closed_replies.0 + answered, self.closed_replies.1.max(longest));
        self.incomplete += self.incomplete_in(number, number);
        let counts = self.read(number);
        self.closed_counts.add(&counts.live_counts());
        if self.intervals.is_some() {
            self.generator.clear_interval(number);
        }
        self.first += 1;
        counts
    }

    /// Returns the sum over all CPUs of the counts of an interval.
    fn read(&self, number: u64) -> TrialCounts {
        let mut counts = TrialCounts::default();
        let mut offsets = SignedHistogram::new();
        for processor in 0..self.generator.processors() {
            counts.merge(&self.trial_counts(&self.generator.interval_counts(number, processor)));
            if self.plan.offset.is_some() {
                offsets.merge(&self.generator.interval_offsets(number, processor).to_histogram());
            }
        }
        // The program timestamps every reply.
        let timestamped = counts.received;
        counts.offsets = self.plan.offset.map(|_| ServerOffsetCounts { timestamped, offsets });
        counts
    }

    /// Returns the counts of one CPU.
    fn trial_counts(&self, lane_counts: &LaneCounts) -> TrialCounts {
        let mut invalid = [0; InvalidReplyReason::ALL.len()];
        invalid[..lane_counts.invalid.len()].copy_from_slice(&lane_counts.invalid);
        let instant = |ns: u64| (ns > 0).then(|| Timestamp::from_ns(ns as i64));
        TrialCounts {
            planned: lane_counts.omitted,
            sent: lane_counts.lateness_ns.count,
            first_sent: instant(lane_counts.first_sent_ns),
            last_sent: instant(lane_counts.last_sent_ns),
            received: lane_counts.received,
            interleaved: lane_counts.interleaved,
            ptp: self.plan.requests.behaviour().ptp_counts().map(|counts| PtpReplyCounts {
                delay: lane_counts.delay,
                sync_follow_up: lane_counts.sync_follow_up,
                ..counts
            }),
            duplicate: lane_counts.duplicate,
            late: lane_counts.late + lane_counts.late_earlier,
            late_earlier: lane_counts.late_earlier,
            invalid,
            server_unsynchronised: lane_counts.unsynchronised,
            rtt: lane_counts.rtt_ns.to_histogram(),
            response: lane_counts.response_ns.to_histogram(),
            lateness: lane_counts.lateness_ns.to_histogram(),
            ..TrialCounts::default()
        }
    }
}

/// Returns the requests and replies of each client.
pub(super) fn client_counts(generator: &Generator) -> Vec<ClientReplyCounts> {
    let reply_counts = |one: horolog_xdp::ClientCounts| ClientReplyCounts {
        requests: one.requests,
        answered: one.replies,
    };
    generator.clients().map(reply_counts).collect()
}
