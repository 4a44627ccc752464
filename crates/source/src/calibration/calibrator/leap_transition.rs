//! Leap transition of a calibration. UTC steps at the leap; the clock steps when the kernel steps
//! it, late, or never. Until it has stepped, or will not any more, time is counted as the clock
//! counts it, as the server does during the leap transition; so neither a pulse nor a report is off
//! by that second.

use horolog_discipline::{ClockErrorEntry, Decision, LabelledPulse};
use horolog_time::leap::LeapSecond;
use horolog_time::{NS_PER_S, Span, Timestamp, Utc};

use super::{Calibrator, MOVED_MIN};
use crate::ClockReadings;

/// Maximum time for the clock to step: longer than a server's leap transition, which counts the
/// second as owed from then on.
const STEP_TIMEOUT: Span = Span::from_ms(6_000);
/// Maximum offset of a clock that steps at the end of its own day.
const SAME_INSTANT: Span = Span::from_ms(250);
/// Upper limit of the time for which pulses wait until they are taken.
const PULSES_WAIT: Span = Span::from_ns(60 * NS_PER_S);

/// Progress of the transition of the announced leap second.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct LeapTransitionProgress {
    /// Leap second that was ahead.
    ahead: Option<LeapSecond>,
    /// Leap second whose transition is complete: clock and UTC are counted from after it.
    made: Option<LeapSecond>,
}

impl LeapTransitionProgress {
    /// Returns true if a leap second that UTC passed this long ago still has its transition ahead.
    pub(super) fn awaits(&self, leap: LeapSecond, behind: Span) -> bool {
        self.ahead == Some(leap) && self.made != Some(leap) && behind <= STEP_TIMEOUT + STEP_TIMEOUT
    }
}

fn is_same(a: Span, b: Span) -> bool {
    (a - b).as_ns().saturating_abs() <= MOVED_MIN.as_ns()
}

impl Calibrator {
    /// Returns UTC by the estimate of the clock; before the leap transition, without its step.
    pub(super) fn utc(&self, readings: &ClockReadings) -> Timestamp<Utc> {
        let moved = self.servo.moved(readings.realtime_minus_monotonic).unwrap_or_default();
        let estimate = self.servo.estimate(readings.monotonic);
        readings.realtime() - moved - estimate.map_or(Span::ZERO, |estimate| estimate.offset)
    }

    /// Returns the announced leap second whose transition is not complete yet.
    fn to_cross(&self) -> Option<LeapSecond> {
        self.leaps.announced.filter(|leap| Some(*leap) != self.crossing.made)
    }

    /// Advances to `readings`, through a leap transition if the clock has stepped, or should have.
    pub(super) fn cross_leap(&mut self, readings: &ClockReadings) {
        let Some(leap) = self.to_cross() else { return };
        let behind = self.utc(readings) - leap.instant();
        if let Some(step) = self.leap_passed(readings) {
            self.servo.expect_step(step);
            self.crossing.made = Some(leap);
        } else if behind < Span::ZERO {
            self.crossing.ahead = Some(leap);
        } else if behind > STEP_TIMEOUT && self.crossing.ahead == Some(leap) {
            // If sentences contradict it, the leap is uncertain.
            if !self.labeller.is_disputed() {
                self.servo.leap_without_clock(leap.step(), readings.monotonic);
            }
            self.crossing.made = Some(leap);
        }
    }

    /// Returns the step of an announced leap second, if the clock has made it and it is not
    /// accounted for yet.
    pub(super) fn leap_passed(&self, readings: &ClockReadings) -> Option<Span> {
        let leap = self.to_cross()?;
        let moved = self.servo.moved(readings.realtime_minus_monotonic)?;
        let behind = self.utc(readings) - leap.instant();
        let is_then = (-SAME_INSTANT..=STEP_TIMEOUT).contains(&behind);
        (is_then && is_same(moved, leap.step())).then_some(moved)
    }

    /// Returns a pulse as the clock counted when it arrived.
    fn as_clocked(&self, labelled: &LabelledPulse) -> LabelledPulse {
        let mut clocked = *labelled;
        let Some(leap) = self.leaps.announced else { return clocked };
        let since = labelled.second() - leap.midnight;
        if !(Span::ZERO..PULSES_WAIT).contains(&since) {
            return clocked;
        }
        let pulse = &mut clocked.pulse;
        let distance = pulse.realtime.as_ns().saturating_sub(pulse.monotonic.as_ns());
        let moved = self.servo.moved(Span::from_ns(distance)).unwrap_or_default();
        if self.crossing.made == Some(leap) {
            // It arrived before the clock stepped.
            if is_same(moved, -leap.step()) {
                pulse.realtime = pulse.realtime + leap.step();
            }
        } else if self.crossing.ahead == Some(leap) && is_same(moved, Span::ZERO) {
            clocked.utc = clocked.utc - leap.step();
        }
        clocked
    }

    /// Takes a pulse whose second is known.
    pub(super) fn take_labelled(&mut self, labelled: &LabelledPulse) {
        let clocked = self.as_clocked(labelled);
        let decision = self.servo.pulse(&clocked, self.clocks_read_at);
        let utc_ns = Some(labelled.utc.as_ns());
        let decision = Decision { entry: ClockErrorEntry { utc_ns, ..decision.entry }, ..decision };
        // The clock's reading before its step is of no use to other programs.
        let is_usual = clocked.utc == labelled.utc;
        self.carry_out(&decision, is_usual.then_some(labelled));
    }
}
