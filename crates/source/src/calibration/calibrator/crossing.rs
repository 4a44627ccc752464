//! How a calibration crosses a leap second. UTC steps at its instant; the clock steps when the
//! kernel has it step, late, or never. Until it has, or will not any more, time is counted as the
//! clock counts it, as the server does while it passes the leap second; so neither a pulse nor a
//! report is off by that second.

use horolog_discipline::{ClockErrorEntry, Decision, LabelledPulse};
use horolog_time::leap::Leap;
use horolog_time::{NS_PER_S, Span, Timestamp, Utc};

use super::{Calibrator, MOVED_MIN};
use crate::Look;

/// How long a clock may take to step: longer than a server passes a leap second, which counts the
/// second as owed from then on.
const PATIENCE: Span = Span::from_ms(6_000);
/// So far may a clock be off that steps at the end of its own day.
const SAME_INSTANT: Span = Span::from_ms(250);
/// Pulses wait for less until they are taken.
const PULSES_WAIT: Span = Span::from_ns(60 * NS_PER_S);

/// How far the crossing of the announced leap second has come.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Crossing {
    /// The one that was seen to lie ahead.
    ahead: Option<Leap>,
    /// The one that was crossed: clock and UTC are counted from behind it.
    made: Option<Leap>,
}

impl Crossing {
    /// Whether a leap second that UTC is past is still to be crossed, so long behind it.
    pub(super) fn awaits(&self, leap: Leap, behind: Span) -> bool {
        self.ahead == Some(leap) && self.made != Some(leap) && behind <= PATIENCE + PATIENCE
    }
}

fn is_same(a: Span, b: Span) -> bool {
    (a - b).as_ns().saturating_abs() <= MOVED_MIN.as_ns()
}

impl Calibrator {
    /// UTC by what is known of the clock; before a leap second is crossed, without its step.
    pub(super) fn utc(&self, look: &Look) -> Timestamp<Utc> {
        let moved = self.servo.moved(look.realtime_minus_monotonic).unwrap_or_default();
        let estimate = self.servo.estimate(look.monotonic);
        look.realtime() - moved - estimate.map_or(Span::ZERO, |estimate| estimate.offset)
    }

    /// The announced leap second that is not crossed yet.
    fn to_cross(&self) -> Option<Leap> {
        self.leaps.announced.filter(|leap| Some(*leap) != self.crossing.made)
    }

    /// Goes on to `look`, across a leap second where the clock has stepped, or should have.
    pub(super) fn cross_leap(&mut self, look: &Look) {
        let Some(leap) = self.to_cross() else { return };
        let behind = self.utc(look) - leap.instant();
        if let Some(step) = self.leap_passed(look) {
            self.servo.expect_step(step);
            self.crossing.made = Some(leap);
        } else if behind < Span::ZERO {
            self.crossing.ahead = Some(leap);
        } else if behind > PATIENCE && self.crossing.ahead == Some(leap) {
            // Where sentences contradict it, nobody knows whether there was one.
            if !self.labeller.is_disputed() {
                self.servo.leap_without_clock(leap.step(), look.monotonic);
            }
            self.crossing.made = Some(leap);
        }
    }

    /// The step of a leap second that was announced, if the clock has made it and that is not
    /// taken into account yet.
    pub(super) fn leap_passed(&self, look: &Look) -> Option<Span> {
        let leap = self.to_cross()?;
        let moved = self.servo.moved(look.realtime_minus_monotonic)?;
        let behind = self.utc(look) - leap.instant();
        let is_then = (-SAME_INSTANT..=PATIENCE).contains(&behind);
        (is_then && is_same(moved, leap.step())).then_some(moved)
    }

    /// A pulse as the clock counted when it came.
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
            // It came before the clock stepped.
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
        let decision = self.servo.pulse(&clocked, self.looked);
        let utc_ns = Some(labelled.utc.as_ns());
        let decision = Decision { entry: ClockErrorEntry { utc_ns, ..decision.entry }, ..decision };
        // What the clock shows before its step is of no use to others.
        let is_usual = clocked.utc == labelled.utc;
        self.carry_out(&decision, is_usual.then_some(labelled));
    }
}
