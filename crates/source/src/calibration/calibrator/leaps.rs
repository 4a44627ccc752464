//! Leap seconds in a calibration: which one is next, that the kernel makes it where its clock is
//! steered here, and what is said of TAI. Nobody else tells the kernel of one then.
//!
//! Whose word counts: the server's list, then the receiver's, then the kernel's flag as somebody
//! else has set it.

use horolog_sys::adjtimex::PendingLeap;
use horolog_time::leap::{Leap, LeapKind};
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};

use super::{Calibrator, LEAP_NEAR};
use crate::calibration::told::{ToldLeaps, words};
use crate::{CalibrationStatus, KnownLeaps, LeapReport, Look, NextLeap};

const DAY: Span = Span::from_ns(86_400 * NS_PER_S);
/// So close to a leap second nobody says for sure which number holds.
const NUMBER_IN_DOUBT: Span = Span::from_ns(10 * NS_PER_S);

/// What is known of leap seconds, and what was made of it.
#[derive(Clone, Default, Debug)]
pub(super) struct Leaps {
    /// What the server knows.
    known: KnownLeaps,
    /// What the receiver says.
    told: ToldLeaps,
    /// What the kernel says, with its TAI minus UTC.
    kernel: Option<(PendingLeap, i32)>,
    /// The leap second of this day, for the kernel and for those that ask.
    pub(super) today: PendingLeap,
    /// The leap second that the labeller was told of last.
    pub(super) announced: Option<Leap>,
    /// The one of which the kernel was told here.
    declared: Option<Leap>,
    passed: Option<Leap>,
    /// The flag of this day is the kernel's own, which somebody else has set.
    is_foreign: bool,
    /// When the clock was stepped: with that the kernel forgets when its leap second is, and does
    /// not work it out anew before its flag has been down (`ntp_clear`).
    stepped: Option<Timestamp<Monotonic>>,
}

fn pending(kind: LeapKind) -> PendingLeap {
    match kind {
        LeapKind::Insert => PendingLeap::Insert,
        LeapKind::Delete => PendingLeap::Delete,
    }
}

impl Leaps {
    /// The leap second that is next, and whether it is known from elsewhere than the kernel.
    fn next(&self, realtime: Timestamp<Utc>) -> Option<(Leap, bool)> {
        let is_ahead = |leap: &Leap| Some(*leap) != self.passed;
        if self.known.has_list {
            return self.known.next.filter(is_ahead).map(|leap| (leap, true));
        }
        if let Some(told) = self.told.next(&self.known) {
            return told.leap().filter(is_ahead).map(|leap| (leap, true));
        }
        let kind = match self.kernel?.0 {
            PendingLeap::None => return None,
            PendingLeap::Insert => LeapKind::Insert,
            PendingLeap::Delete => LeapKind::Delete,
        };
        let leap = Leap::at_end_of_day(realtime, kind);
        // Its flag stays up after the leap until somebody takes it down.
        let is_stale = self.passed.is_some_and(|passed| leap.midnight - passed.midnight <= DAY);
        (!is_stale && self.declared != Some(leap)).then_some((leap, false))
    }

    /// Notes a step that was made here.
    pub(super) fn clock_stepped(&mut self, now: Timestamp<Monotonic>) {
        self.stepped = Some(now);
    }

    /// The leap second to tell the kernel of at `now`.
    pub(super) fn declares(&mut self, now: Timestamp<Monotonic>) -> PendingLeap {
        if self.stepped.is_some_and(|stepped| now - stepped < LEAP_NEAR) {
            return PendingLeap::None;
        }
        self.stepped = None;
        self.today
    }

    /// The leap second that stays with a kernel that is left alone: that of somebody else, and none
    /// that nobody would take back.
    pub(super) fn left_behind(&self) -> PendingLeap {
        if self.is_foreign { self.today } else { PendingLeap::None }
    }

    /// TAI minus UTC to tell the kernel, where it says another.
    pub(super) fn tai_to_declare(&self, realtime: Timestamp<Utc>) -> Option<i32> {
        let in_doubt = |leap: Leap| (realtime - leap.instant()).as_ns().abs();
        let near = self.announced.map(in_doubt).is_some_and(|ns| ns <= NUMBER_IN_DOUBT.as_ns());
        let known_s =
            self.known.tai_minus_utc_s.or_else(|| self.told.tai_minus_utc_s(&self.known))?;
        let (_, kernel_s) = self.kernel?;
        (!near && kernel_s != known_s).then_some(known_s)
    }

    /// The leap second that is next as the receiver says it.
    pub(super) fn told_next(&self) -> Option<Leap> {
        self.told.next(&self.known).and_then(NextLeap::leap)
    }

    /// TAI minus UTC as the receiver says it.
    pub(super) fn tai_minus_utc_s(&self) -> Option<i32> {
        self.told.tai_minus_utc_s(&self.known)
    }
}

impl Calibrator {
    /// Takes what the server knows of leap seconds.
    pub(in crate::calibration) fn know_leaps(&mut self, known: KnownLeaps) {
        self.leaps.known = known;
    }

    /// Takes what the receiver says of them.
    pub(in crate::calibration) fn leap_report(&mut self, report: &LeapReport) {
        // A report is read by the system clock.
        let is_near = |offset: Span| offset.as_ns().saturating_abs() <= NUMBER_IN_DOUBT.as_ns();
        let estimate = self.servo.estimate(self.looked);
        let is_clock_right = self.servo.state().is_synchronised()
            && estimate.is_some_and(|estimate| is_near(estimate.offset));
        self.leaps.told.take(report, self.realtime, is_clock_right);
    }

    /// Goes on to `look`: what is next is announced to the labeller, and one that was taken back is
    /// taken back there.
    pub(super) fn see_leaps(&mut self, look: &Look) {
        let (realtime, utc) = (look.realtime(), self.utc(look));
        if let Some(kernel) = look.kernel {
            self.leaps.kernel = Some((kernel.leap, kernel.tai_offset_s));
        }
        let leaps = &mut self.leaps;
        if leaps.stepped.is_some() {
            return;
        }
        if let Some(leap) = leaps.announced {
            let behind = utc - leap.instant();
            let is_passed = leaps.passed == Some(leap);
            // It cannot be taken back any more, and until it is over the kernel's flag stays.
            if !is_passed && (-LEAP_NEAR..=LEAP_NEAR).contains(&behind) {
                return;
            }
            if !is_passed && behind > LEAP_NEAR {
                leaps.passed = Some(leap);
                leaps.told.pass(leap);
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
            let has_clock = self.control.is_none() || self.servo.estimate(look.monotonic).is_some();
            let left = leap.midnight - realtime;
            let is_today = left > Span::ZERO && left < DAY - LEAP_NEAR;
            if !is_known || (is_today && has_clock) {
                leaps.today = pending(leap.kind);
            }
            if is_known && self.control.is_some() {
                leaps.declared = Some(leap);
            }
        }
        // The kernel forgets one that is past; across it seconds are counted all the same.
        if next.is_none() && leaps.announced.is_some() && leaps.announced == leaps.passed {
            return;
        }
        leaps.announced = next.map(|(leap, _)| leap);
        self.labeller.announce(leaps.announced);
    }

    /// What the status says of leap seconds.
    pub(super) fn with_leaps(&self, status: CalibrationStatus) -> CalibrationStatus {
        let leaps = &self.leaps;
        let next = leaps.announced.filter(|leap| Some(*leap) != leaps.passed);
        CalibrationStatus {
            tai_minus_utc_s: leaps.tai_minus_utc_s(),
            pending_leap: next.map(|leap| words(&leap)),
            leap_doubt: leaps.told.doubt(&leaps.known),
            ..status
        }
    }
}
