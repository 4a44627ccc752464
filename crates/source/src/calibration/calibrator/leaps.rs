//! Leap seconds in a calibration: the next one, its announcement to the kernel if the clock is
//! steered here, and TAI minus UTC. No other program announces it to the kernel then.
//!
//! Precedence: the server's list, then the receiver's report, then the kernel's flag if another
//! program has set it.

use horolog_sys::adjtimex::PendingLeap;
use horolog_time::leap::{LeapKind, LeapSecond};
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};

use super::{Calibrator, LEAP_NEAR};
use crate::calibration::receiver_leaps::{ReceiverLeaps, words};
use crate::{CalibrationStatus, ClockReadings, KnownLeaps, LeapReport, NextLeap};

const DAY: Span = Span::from_ns(86_400 * NS_PER_S);
/// Distance from a leap second within which the present TAI minus UTC is uncertain.
const UNCERTAIN_NEAR_LEAP: Span = Span::from_ns(10 * NS_PER_S);

/// Leap seconds from all origins, and their announcements.
#[derive(Clone, Default, Debug)]
pub(super) struct Leaps {
    /// Leap seconds as the server has them.
    known: KnownLeaps,
    /// Leap seconds as the receiver reports them.
    receiver: ReceiverLeaps,
    /// Leap second as the kernel reports it, with its TAI minus UTC.
    kernel: Option<(PendingLeap, i32)>,
    /// Leap second of this day, for the kernel and for reports.
    pub(super) today: PendingLeap,
    /// Leap second last announced to the labeller.
    pub(super) announced: Option<LeapSecond>,
    /// Leap second announced to the kernel here.
    declared: Option<LeapSecond>,
    passed: Option<LeapSecond>,
    /// True if the flag of this day is the kernel's own, set by another program.
    is_foreign: bool,
    /// Instant at which the clock was stepped: with that the kernel loses the instant of its leap
    /// second, and does not compute it anew before its flag has been cleared (`ntp_clear`).
    stepped: Option<Timestamp<Monotonic>>,
}

fn pending(kind: LeapKind) -> PendingLeap {
    match kind {
        LeapKind::Insert => PendingLeap::Insert,
        LeapKind::Delete => PendingLeap::Delete,
    }
}

impl Leaps {
    /// Returns the next leap second, and true if it has an origin other than the kernel.
    fn next(&self, realtime: Timestamp<Utc>) -> Option<(LeapSecond, bool)> {
        let is_ahead = |leap: &LeapSecond| Some(*leap) != self.passed;
        if self.known.has_list {
            return self.known.next.filter(is_ahead).map(|leap| (leap, true));
        }
        if let Some(reported) = self.receiver.next(&self.known) {
            return reported.leap().filter(is_ahead).map(|leap| (leap, true));
        }
        let kind = match self.kernel?.0 {
            PendingLeap::None => return None,
            PendingLeap::Insert => LeapKind::Insert,
            PendingLeap::Delete => LeapKind::Delete,
        };
        let leap = LeapSecond::at_end_of_day(realtime, kind);
        // Its flag stays set after the leap until some program clears it.
        let is_stale = self.passed.is_some_and(|passed| leap.midnight - passed.midnight <= DAY);
        (!is_stale && self.declared != Some(leap)).then_some((leap, false))
    }

    /// Notes a step that was made here.
    pub(super) fn clock_stepped(&mut self, now: Timestamp<Monotonic>) {
        self.stepped = Some(now);
    }

    /// Returns the leap second to announce to the kernel at `now`.
    pub(super) fn declares(&mut self, now: Timestamp<Monotonic>) -> PendingLeap {
        if self.stepped.is_some_and(|stepped| now - stepped < LEAP_NEAR) {
            return PendingLeap::None;
        }
        self.stepped = None;
        self.today
    }

    /// Returns the leap second that stays with a kernel that is left alone: that of another
    /// program, and none that no program would withdraw.
    pub(super) fn leap_left_in_kernel(&self) -> PendingLeap {
        if self.is_foreign { self.today } else { PendingLeap::None }
    }

    /// Returns TAI minus UTC for the kernel, if the kernel's value differs.
    pub(super) fn tai_to_declare(&self, realtime: Timestamp<Utc>) -> Option<i32> {
        let distance_ns = |leap: LeapSecond| (realtime - leap.instant()).as_ns().abs();
        let near =
            self.announced.map(distance_ns).is_some_and(|ns| ns <= UNCERTAIN_NEAR_LEAP.as_ns());
        let known_s =
            self.known.tai_minus_utc_s.or_else(|| self.receiver.tai_minus_utc_s(&self.known))?;
        let (_, kernel_s) = self.kernel?;
        (!near && kernel_s != known_s).then_some(known_s)
    }

    /// Returns the next leap second as reported by the receiver.
    pub(super) fn receiver_next(&self) -> Option<LeapSecond> {
        self.receiver.next(&self.known).and_then(NextLeap::leap)
    }

    /// Returns TAI minus UTC as reported by the receiver.
    pub(super) fn tai_minus_utc_s(&self) -> Option<i32> {
        self.receiver.tai_minus_utc_s(&self.known)
    }
}

impl Calibrator {
    /// Takes the leap seconds of the server.
    pub(in crate::calibration) fn update_known_leaps(&mut self, known: KnownLeaps) {
        self.leaps.known = known;
    }

    /// Takes the receiver's report of leap seconds.
    pub(in crate::calibration) fn leap_report(&mut self, report: &LeapReport) {
        // A report is read by the system clock.
        let is_near = |offset: Span| offset.as_ns().saturating_abs() <= UNCERTAIN_NEAR_LEAP.as_ns();
        let estimate = self.servo.estimate(self.clocks_read_at);
        let is_clock_right = self.servo.state().is_synchronised()
            && estimate.is_some_and(|estimate| is_near(estimate.offset));
        self.leaps.receiver.take(report, self.realtime, is_clock_right);
    }

    /// Advances to `readings`: announces the next leap second to the labeller, or withdraws it
    /// if it was withdrawn.
    pub(super) fn advance_leaps(&mut self, readings: &ClockReadings) {
        let (realtime, utc) = (readings.realtime(), self.utc(readings));
        if let Some(kernel) = readings.kernel {
            self.leaps.kernel = Some((kernel.leap, kernel.tai_offset_s));
        }
        let leaps = &mut self.leaps;
        if leaps.stepped.is_some() {
            return;
        }
        if let Some(leap) = leaps.announced {
            let behind = utc - leap.instant();
            let is_passed = leaps.passed == Some(leap);
            // It cannot be withdrawn any more, and until it is over the kernel's flag stays.
            if !is_passed && (-LEAP_NEAR..=LEAP_NEAR).contains(&behind) {
                return;
            }
            if !is_passed && behind > LEAP_NEAR {
                leaps.passed = Some(leap);
                leaps.receiver.pass(leap);
            }
            if behind > LEAP_NEAR && self.crossing.awaits(leap, behind) {
                leaps.today = PendingLeap::None;
                return;
            }
        }
        let next = leaps.next(realtime);
        (leaps.today, leaps.is_foreign) = (PendingLeap::None, false);
        if let Some((leap, is_known)) = next {
            leaps.is_foreign = !is_known;
            // The kernel takes its flag for the day that its clock shows.
            let has_clock =
                self.control.is_none() || self.servo.estimate(readings.monotonic).is_some();
            let left = leap.midnight - realtime;
            let is_today = left > Span::ZERO && left < DAY - LEAP_NEAR;
            if !is_known || (is_today && has_clock) {
                leaps.today = pending(leap.kind);
            }
            if is_known && self.control.is_some() {
                leaps.declared = Some(leap);
            }
        }
        // The kernel forgets one that is past; seconds are counted across it all the same.
        if next.is_none() && leaps.announced.is_some() && leaps.announced == leaps.passed {
            return;
        }
        leaps.announced = next.map(|(leap, _)| leap);
        self.labeller.announce(leaps.announced);
    }

    /// Adds the leap second fields to the status.
    pub(super) fn with_leaps(&self, status: CalibrationStatus) -> CalibrationStatus {
        let leaps = &self.leaps;
        let next = leaps.announced.filter(|leap| Some(*leap) != leaps.passed);
        CalibrationStatus {
            tai_minus_utc_s: leaps.tai_minus_utc_s(),
            pending_leap: next.map(|leap| words(&leap)),
            leap_rejection: leaps.receiver.rejection(&leaps.known),
            ..status
        }
    }
}
