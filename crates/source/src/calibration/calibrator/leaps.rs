//! Leap seconds in a calibration: the next leap second, TAI minus UTC, and the announcement of both
//! to the kernel while this calibration steers the clock; no other program does it then.
//!
//! Precedence: the server's list, then the receiver's report, then the kernel's flag if another
//! program has set it.

use horolog_sys::adjtimex::PendingLeap;
use horolog_time::leap::{LeapKind, LeapSecond};
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};

use super::{Calibrator, LEAP_MARGIN};
use crate::calibration::receiver_leaps::{ReceiverLeapSeconds, describe};
use crate::{CalibrationStatus, ClockReadings, NextLeap, ReceiverLeapReport, ServerLeapSeconds};

const DAY: Span = Span::from_ns(86_400 * NS_PER_S);
/// Time around a leap second in which the present TAI minus UTC is uncertain.
const TAI_UNCERTAIN_TIME: Span = Span::from_ns(10 * NS_PER_S);

/// Leap seconds from all origins, and their announcements.
#[derive(Clone, Default, Debug)]
pub(super) struct CalibrationLeapSeconds {
    /// Leap seconds from the server's list and configuration.
    server: ServerLeapSeconds,
    /// Leap seconds reported by the receiver.
    receiver: ReceiverLeapSeconds,
    /// Kernel's leap flag, and its TAI minus UTC in seconds; `None` before they are known.
    kernel: Option<(PendingLeap, i32)>,
    /// Leap second at the end of this day, for the kernel and for estimates.
    pub(super) today: PendingLeap,
    /// Leap second last announced to the labeller; `None` if there is none or it was withdrawn.
    pub(super) announced: Option<LeapSecond>,
    /// Leap second last announced to the kernel by this calibration; `None` before the first.
    announced_to_kernel: Option<LeapSecond>,
    completed: Option<LeapSecond>,
    /// True if the flag of this day was set in the kernel by another program.
    is_kernel_flag: bool,
    /// Instant of the last step of the clock. A step makes the kernel forget when its leap second
    /// is due; it computes that again only after its flag has been cleared (`ntp_clear`).
    stepped_at: Option<Timestamp<Monotonic>>,
}

fn to_pending_leap(kind: LeapKind) -> PendingLeap {
    match kind {
        LeapKind::Insert => PendingLeap::Insert,
        LeapKind::Delete => PendingLeap::Delete,
    }
}

impl CalibrationLeapSeconds {
    /// Returns the next leap second, and false if it is known only from the kernel; `None` if none
    /// is known.
    fn next_leap(&self, realtime: Timestamp<Utc>) -> Option<(LeapSecond, bool)> {
        let is_ahead = |leap: &LeapSecond| Some(*leap) != self.completed;
        if self.server.has_list {
            return self.server.next.filter(is_ahead).map(|leap| (leap, true));
        }
        if let Some(reported) = self.receiver.next(&self.server) {
            return reported.leap().filter(is_ahead).map(|leap| (leap, true));
        }
        let kind = match self.kernel?.0 {
            PendingLeap::None => return None,
            PendingLeap::Insert => LeapKind::Insert,
            PendingLeap::Delete => LeapKind::Delete,
        };
        let leap = LeapSecond::at_end_of_day(realtime, kind);
        // The kernel's flag stays set after the leap second until a program clears it.
        let is_stale = self.completed.is_some_and(|passed| leap.midnight - passed.midnight <= DAY);
        (!is_stale && self.announced_to_kernel != Some(leap)).then_some((leap, false))
    }

    /// Records a step of the clock by this calibration.
    pub(super) fn clock_stepped(&mut self, now: Timestamp<Monotonic>) {
        self.stepped_at = Some(now);
    }

    /// Returns the leap second to announce to the kernel at `now`: none for [`LEAP_MARGIN`] after a
    /// step of the clock, so that the kernel's flag is cleared.
    pub(super) fn leap_to_announce(&mut self, now: Timestamp<Monotonic>) -> PendingLeap {
        if self.stepped_at.is_some_and(|stepped| now - stepped < LEAP_MARGIN) {
            return PendingLeap::None;
        }
        self.stepped_at = None;
        self.today
    }

    /// Returns the leap flag to leave in the kernel when steering ends: that of another program;
    /// none of this calibration's own, which no program would withdraw.
    pub(super) fn leap_to_leave(&self) -> PendingLeap {
        if self.is_kernel_flag { self.today } else { PendingLeap::None }
    }

    /// Returns TAI minus UTC in seconds to set in the kernel; `None` if the kernel's value is right
    /// or unknown, or the right one is unknown or, near a leap second, uncertain.
    pub(super) fn tai_to_set(&self, realtime: Timestamp<Utc>) -> Option<i32> {
        let distance_ns = |leap: LeapSecond| (realtime - leap.step_instant()).as_ns().abs();
        let is_near_leap =
            self.announced.map(distance_ns).is_some_and(|ns| ns <= TAI_UNCERTAIN_TIME.as_ns());
        let known_s =
            self.server.tai_minus_utc_s.or_else(|| self.receiver.tai_minus_utc_s(&self.server))?;
        let (_, kernel_s) = self.kernel?;
        (!is_near_leap && kernel_s != known_s).then_some(known_s)
    }

    /// Returns the next leap second as reported by the receiver; `None` if it reports none, or its
    /// report is not used.
    pub(super) fn receiver_next(&self) -> Option<LeapSecond> {
        self.receiver.next(&self.server).and_then(NextLeap::leap)
    }

    /// Returns TAI minus UTC in seconds as reported by the receiver; `None` if it is not confirmed
    /// or contradicts the server's.
    pub(super) fn tai_minus_utc_s(&self) -> Option<i32> {
        self.receiver.tai_minus_utc_s(&self.server)
    }
}

impl Calibrator {
    /// Takes the leap seconds of the server.
    pub(in crate::calibration) fn update_known_leaps(&mut self, known: ServerLeapSeconds) {
        self.leaps.server = known;
    }

    /// Takes the receiver's report of leap seconds.
    pub(in crate::calibration) fn leap_report(&mut self, report: &ReceiverLeapReport) {
        // Reports of the next leap second are decoded with the time of the system clock.
        let is_near_zero =
            |offset: Span| offset.as_ns().saturating_abs() <= TAI_UNCERTAIN_TIME.as_ns();
        let estimate = self.servo.estimate(self.clocks_read_at);
        let is_clock_correct = self.servo.state().is_synchronised()
            && estimate.is_some_and(|estimate| is_near_zero(estimate.offset));
        self.leaps.receiver.apply_report(report, self.realtime, is_clock_correct);
    }

    /// Advances to `readings`: announces the next leap second to the labeller, or withdraws one
    /// that is no longer expected.
    pub(super) fn advance_leaps(&mut self, readings: &ClockReadings) {
        let (realtime, utc) = (readings.realtime(), self.utc(readings));
        if let Some(kernel) = readings.kernel {
            self.leaps.kernel = Some((kernel.leap, kernel.tai_offset_s));
        }
        let leaps = &mut self.leaps;
        if leaps.stepped_at.is_some() {
            return;
        }
        if let Some(leap) = leaps.announced {
            let elapsed = utc - leap.step_instant();
            let is_passed = leaps.completed == Some(leap);
            // Around the leap second nothing is withdrawn, and the flag of the kernel stays.
            if !is_passed && (-LEAP_MARGIN..=LEAP_MARGIN).contains(&elapsed) {
                return;
            }
            if !is_passed && elapsed > LEAP_MARGIN {
                leaps.completed = Some(leap);
                leaps.receiver.leap_completed(leap);
            }
            if elapsed > LEAP_MARGIN && self.leap_transition.is_pending(leap, elapsed) {
                leaps.today = PendingLeap::None;
                return;
            }
        }
        let next = leaps.next_leap(realtime);
        (leaps.today, leaps.is_kernel_flag) = (PendingLeap::None, false);
        if let Some((leap, is_external)) = next {
            leaps.is_kernel_flag = !is_external;
            // The kernel applies its flag at the end of the day that its own clock shows.
            let has_clock =
                self.steering.is_none() || self.servo.estimate(readings.monotonic).is_some();
            let remaining = leap.midnight - realtime;
            let is_today = remaining > Span::ZERO && remaining < DAY - LEAP_MARGIN;
            if !is_external || (is_today && has_clock) {
                leaps.today = to_pending_leap(leap.kind);
            }
            if is_external && self.steering.is_some() {
                leaps.announced_to_kernel = Some(leap);
            }
        }
        // The kernel forgets a past leap second, but pulses and sentences are still counted across
        // it.
        if next.is_none() && leaps.announced.is_some() && leaps.announced == leaps.completed {
            return;
        }
        leaps.announced = next.map(|(leap, _)| leap);
        self.labeller.announce_leap(leaps.announced);
    }

    /// Adds the leap second fields to the status.
    pub(super) fn with_leaps(&self, status: CalibrationStatus) -> CalibrationStatus {
        let leaps = &self.leaps;
        let next = leaps.announced.filter(|leap| Some(*leap) != leaps.completed);
        CalibrationStatus {
            tai_minus_utc_s: leaps.tai_minus_utc_s(),
            pending_leap: next.map(|leap| describe(&leap)),
            leap_rejection: leaps.receiver.rejection(&leaps.server),
            ..status
        }
    }
}
