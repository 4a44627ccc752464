//! From labelled pulses to an estimate of the clock and to commands for it.
//!
//! The filter follows the clock as it would run untouched; commands are counted apart
//! ([`correction`]). So steering a clock and only computing use the same filter and know the same.
//! No single pulse moves the estimate by more than the filter's gain times the gate: what is
//! farther off is not believed, and several in a row must agree before the filter begins anew with
//! them.

mod acquisition;
mod correction;
mod jump;
mod state;

use horolog_time::{Monotonic, Span, Timestamp};

use crate::holdover::{Known, dispersion_ns};
use crate::kalman::Kalman;
use crate::measurement::{Lag, PulseNoise};
use crate::{ClockErrorEntry, LabelledPulse, ServoSettings, Stability, Verdict};
use acquisition::{Acquisition, Start};
use correction::Correction;
use jump::ClockJumps;

pub use state::{Command, Decision, Estimate, State};

/// Good pulses in a row that lock a clock.
const LOCK_PULSES: u32 = 8;
/// A clock is locked while its offset is within so many deviations of the pulses' noise, or within
/// so many ns.
const LOCK_DEVIATIONS: f64 = 5.0;
const LOCK_NS: f64 = 1_000.0;
/// Unexplained pulses in a row after which the clock is not taken for right any more.
const JUMP_PULSES_MIN: u32 = acquisition::PULSES as u32;
/// A filter that lags doubts its frequency by so much of the gate over a second.
const LAG_SHARE: f64 = 0.25;

/// The filter that runs and what it knew at its last good pulse.
#[derive(Clone, Debug)]
struct Track {
    filter: Kalman,
    lag: Lag,
    good_at: Timestamp<Monotonic>,
    good: Known,
    good_in_a_row: u32,
}

/// Estimates a clock, and steers it if so set.
#[derive(Clone, Debug)]
pub struct Servo {
    settings: ServoSettings,
    state: State,
    /// What all phases of the filter are counted from.
    origin: Option<Span>,
    correction: Option<Correction>,
    track: Option<Track>,
    acquisition: Acquisition,
    noise: PulseNoise,
    jumps: ClockJumps,
    stability: Stability,
}

impl Servo {
    /// One that knows nothing of the clock yet.
    #[must_use]
    pub fn new(settings: ServoSettings) -> Self {
        Self {
            settings,
            state: State::Starting,
            origin: None,
            correction: None,
            track: None,
            acquisition: Acquisition::default(),
            noise: PulseNoise::new(settings.noise_initial_ns),
            jumps: ClockJumps::default(),
            stability: Stability::default(),
        }
    }

    /// How well the clock is known.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Standard deviation of a pulse, in ns, by the pulses; `None` until there were enough.
    #[must_use]
    pub fn noise_ns(&self) -> Option<f64> {
        self.noise.is_measured().then(|| self.noise.deviation_ns())
    }

    /// The stability of the clock and of its oscillator, by the pulses of the last hours.
    #[must_use]
    pub fn stability(&self) -> &Stability {
        &self.stability
    }

    /// By how much somebody else has set the clock since the last pulse, where its distance from
    /// the monotonic clock is now `realtime_minus_monotonic`.
    #[must_use]
    pub fn moved(&self, realtime_minus_monotonic: Span) -> Option<Span> {
        self.jumps.moved(realtime_minus_monotonic)
    }

    /// The clock has been set by this much as UTC was, at a leap second: it is as right as before.
    pub fn expect_step(&mut self, step: Span) {
        self.jumps.expect(step);
    }

    /// UTC has stepped by this much at a leap second, at `at`, and the clock has not.
    pub fn leap_without_clock(&mut self, step: Span, at: Timestamp<Monotonic>) {
        if let Some(correction) = &mut self.correction {
            correction.change(at, correction.frequency, -step);
        }
    }

    /// Commands nothing any more until [`Self::resume`], and goes on to estimate. What it gives is
    /// to be done at `at`: the frequency with which no slew goes on.
    pub fn suspend(&mut self, at: Timestamp<Monotonic>) -> Option<Command> {
        let estimate = self.estimate(at).filter(|_| self.settings.is_steering);
        self.settings.is_steering = false;
        let most = self.settings.frequency_max_ppb;
        let frequency_ppb = (-estimate?.frequency_ppb).clamp(-most, most);
        let correction = self.correction.as_mut()?;
        correction.change(at, frequency_ppb, Span::ZERO);
        Some(Command { frequency_ppb, step: None })
    }

    /// Commands again.
    pub fn resume(&mut self) {
        self.settings.is_steering = true;
    }

    /// How long ago the last good pulse was, in a clock that holds over.
    #[must_use]
    pub fn held_over(&self, now: Timestamp<Monotonic>) -> Option<Span> {
        let track = self.track.as_ref().filter(|_| self.state == State::Holdover)?;
        Some(now - track.good_at)
    }

    /// What is known of the clock at `at`, which is not before the last pulse.
    #[must_use]
    pub fn estimate(&self, at: Timestamp<Monotonic>) -> Option<Estimate> {
        let (track, correction) = (self.track.as_ref()?, self.correction.as_ref()?);
        let mut filter = track.filter.clone();
        filter.advance(at);
        let elapsed = (at - track.good_at).as_seconds().max(0.0);
        Some(Estimate {
            at,
            offset: correction.with(at, filter.phase(), self.origin?),
            rate_ppb: filter.frequency() + correction.frequency,
            frequency_ppb: filter.frequency(),
            uncertainty_ns: dispersion_ns(&self.settings.oscillator, &track.good, elapsed),
        })
    }

    /// Takes a pulse whose second is known. What it commands is to be done at `done_at`, which may
    /// be later than the pulse.
    pub fn pulse(&mut self, pulse: &LabelledPulse, done_at: Timestamp<Monotonic>) -> Decision {
        let (at, offset) = (pulse.pulse.monotonic, pulse.offset());
        let origin = *self.origin.get_or_insert(offset);
        let initial = self.settings.initial_frequency_ppb;
        let correction = self.correction.get_or_insert_with(|| Correction::new(at, initial));
        let phase = correction.without(at, offset, origin);
        let knew_nothing = self.track.is_none();
        let jump = self.jumps.take(&pulse.pulse);
        let (verdict, innovation_ns) = self.take(at, phase, jump);
        if verdict == Verdict::Accepted {
            self.stability.take(at, (offset - origin).as_ns() as f64, phase);
        }
        self.judge(at);
        let decision = self.decide((at, done_at.max(at)), verdict, knew_nothing);
        let entry = ClockErrorEntry {
            utc_ns: Some(pulse.utc.as_ns()),
            measured_ns: Some(offset.as_ns()),
            innovation_ns,
            ..decision.entry
        };
        Decision { entry, ..decision }
    }

    /// Is to be called about once a second while no labelled pulse comes: the clock holds over, and
    /// in the end it is unsynchronised. `None` while a pulse may still come.
    pub fn tick(&mut self, now: Timestamp<Monotonic>) -> Option<Decision> {
        let track = self.track.as_mut()?;
        if now - track.good_at < self.settings.holdover_after {
            return None;
        }
        track.filter.advance(now);
        self.noise.interrupt();
        self.judge(now);
        Some(self.decide((now, now), Verdict::Missing, false))
    }

    /// Gives a pulse to the filter, or to those with which one begins.
    fn take(
        &mut self,
        at: Timestamp<Monotonic>,
        phase: f64,
        jump: Option<Span>,
    ) -> (Verdict, Option<f64>) {
        let gate = self.settings.gate_deviations;
        let mut innovation = None;
        if let Some(track) = &mut self.track {
            track.filter.advance(at);
            let variance = self.noise.deviation_ns().powi(2);
            let mut found = track.filter.innovation(phase, variance);
            if let (Some(jump), Some(correction)) = (jump, &mut self.correction)
                && found.normalised().abs() > gate
            {
                let without = track.filter.innovation(phase - jump.as_ns() as f64, variance);
                if without.normalised().abs() <= gate {
                    correction.change(at, correction.frequency, jump);
                    found = without;
                }
            }
            self.noise.take(found);
            innovation = Some(found.value);
            if found.normalised().abs() <= gate {
                track.filter.update(found, variance);
                if track.lag.take(found) {
                    track.filter.doubt_frequency((LAG_SHARE * gate).powi(2) * found.variance);
                }
                track.good_at = at;
                track.good = track.filter.known();
                track.good_in_a_row += 1;
                self.acquisition.clear();
                return (Verdict::Accepted, innovation);
            }
            track.good_in_a_row = 0;
        }
        let noise = self.noise.deviation_ns();
        let start =
            self.acquisition.take((at, phase), (gate, noise), self.settings.frequency_max_ppb);
        let verdict = match (start, innovation) {
            (Some(start), None) => self.begin(&start),
            (Some(start), Some(jump)) if self.believes(jump) => self.begin(&start),
            (_, None) => Verdict::Awaited,
            (_, Some(_)) if self.acquisition.taken() >= JUMP_PULSES_MIN => Verdict::Jump,
            (_, Some(_)) => Verdict::Outlier,
        };
        (verdict, innovation)
    }

    /// Whether pulses that are so far off and agree with one another are to be followed.
    fn believes(&self, jump_ns: f64) -> bool {
        let is_small = jump_ns.abs() <= self.settings.jump_max.as_ns() as f64;
        is_small || self.acquisition.taken() >= self.settings.jump_pulses
    }

    fn begin(&mut self, start: &Start) -> Verdict {
        let filter = Kalman::new(
            &self.settings.oscillator,
            start.at,
            (start.phase, start.frequency),
            (start.phase_variance, start.frequency_variance),
        );
        let good = filter.known();
        self.track =
            Some(Track { filter, lag: Lag::default(), good_at: start.at, good, good_in_a_row: 0 });
        self.acquisition.clear();
        self.noise.interrupt();
        self.state = State::Locking;
        Verdict::Acquired
    }

    /// The state at `now`.
    fn judge(&mut self, now: Timestamp<Monotonic>) {
        let (Some(track), Some(estimate)) = (&self.track, self.estimate(now)) else { return };
        let settings = &self.settings;
        let age = now - track.good_at;
        let bound = LOCK_NS.max(LOCK_DEVIATIONS * self.noise.deviation_ns());
        let is_near = !settings.is_steering || (estimate.offset.as_ns() as f64).abs() <= bound;
        let has_settled = self.noise.is_measured() && track.good_in_a_row >= LOCK_PULSES;
        let is_lost = estimate.uncertainty_ns > settings.holdover_uncertainty_max.as_ns() as f64
            || age > settings.holdover_max
            || self.acquisition.taken() >= JUMP_PULSES_MIN;
        self.state = if is_lost {
            State::Unsynchronised
        } else if age > settings.holdover_after {
            State::Holdover
        } else if is_near && (self.state == State::Locked || has_settled) {
            State::Locked
        } else {
            State::Locking
        };
    }

    /// What is to be done at `done_at`, with the entry of `now`.
    fn decide(
        &mut self,
        (now, done_at): (Timestamp<Monotonic>, Timestamp<Monotonic>),
        verdict: Verdict,
        is_start: bool,
    ) -> Decision {
        let estimate = self.estimate(now);
        let command = self
            .estimate(done_at)
            .filter(|_| self.settings.is_steering)
            .map(|estimate| self.command(&estimate, is_start));
        if let (Some(command), Some(correction)) = (command, &mut self.correction) {
            let step = command.step.unwrap_or_default();
            correction.change(done_at, command.frequency_ppb, step);
            self.jumps.expect(step);
        }
        let entry = ClockErrorEntry {
            monotonic_ns: now.as_ns(),
            utc_ns: None,
            measured_ns: None,
            innovation_ns: None,
            verdict,
            offset_ns: estimate.map(|estimate| estimate.offset.as_ns()),
            uncertainty_ns: estimate.map(|estimate| estimate.uncertainty_ns),
            frequency_ppb: estimate.map(|estimate| estimate.frequency_ppb),
            noise_ns: self.noise.deviation_ns(),
            command_ppb: command.map(|command| command.frequency_ppb),
            step_ns: command.and_then(|command| command.step).map(Span::as_ns),
            state: self.state,
        };
        Decision { entry, command }
    }

    /// The frequency that brings the clock to UTC in its time, or a step; of a clock that is lost,
    /// the one with which no slew goes on.
    fn command(&self, estimate: &Estimate, is_start: bool) -> Command {
        let settings = &self.settings;
        let most = settings.frequency_max_ppb;
        if !self.state.is_synchronised() {
            let frequency_ppb = (-estimate.frequency_ppb).clamp(-most, most);
            return Command { frequency_ppb, step: None };
        }
        let limit = if is_start { Some(settings.step_at_start) } else { settings.step_later };
        let distance = Span::from_ns(estimate.offset.as_ns().saturating_abs());
        let step = limit.is_some_and(|limit| distance > limit).then_some(-estimate.offset);
        let rest = if step.is_some() { 0.0 } else { estimate.offset.as_ns() as f64 };
        let time = match self.state {
            State::Locked => settings.time_constant_locked_s,
            _ => settings.time_constant_locking_s,
        };
        let slew = (rest / time).clamp(-settings.slew_max_ppb, settings.slew_max_ppb);
        let frequency_ppb = (-estimate.frequency_ppb - slew).clamp(-most, most);
        Command { frequency_ppb, step }
    }
}

#[cfg(test)]
mod tests;
