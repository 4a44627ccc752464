//! Simulation of the complete chain: an oscillator with its noises, a receiver's pulses and
//! sentences with their faults, the labeller and the servo, and, on the same noise, the method that
//! sets the clock at every pulse. Weeks take seconds, and the same seed gives the same numbers.

mod clock;
mod noise;
mod outcome;
mod receiver;
mod settings;

use std::collections::BTreeMap;

use horolog_time::{Monotonic, NS_PER_S, Span, SplitMix64, Timestamp, Utc};

use crate::{Pulse, PulseLabeller, Sentence, Servo, ServoCommand};
use clock::{ModelledClock, PulseSteppedClock};
use noise::SimulatedOscillator;
use receiver::{SimulatedReceiver, SimulationEvent};

pub use outcome::{
    RECOVERED_NS, ReceiverOutageOutcome, SETTLING_S, SimulationOutcome, SimulationSample,
};
pub use settings::{FaultPeriod, SimulationSettings, TimestampDelay};

/// Start of the simulated time, 2027-01-15T08:00:00Z.
const EPOCH_S: i64 = 1_800_000_000;
/// Reading of the monotonic clock at the start.
const BOOT_NS: i64 = 1_000 * NS_PER_S;

/// Running simulation.
struct SimulationInProgress<'a> {
    settings: &'a SimulationSettings,
    labeller: PulseLabeller,
    servo: Servo,
    /// Steered clock.
    steered: ModelledClock,
    /// Initial offset of the steered clock plus the sum of its steps, in ns; the monotonic clock
    /// has neither.
    total_steps_ns: f64,
    set_per_pulse: PulseSteppedClock,
    frequency_ppb: f64,
    sequence: u64,
    outcome: SimulationOutcome,
}

/// Runs a simulation from its beginning to its end.
#[must_use]
pub fn simulate(settings: &SimulationSettings) -> SimulationOutcome {
    simulate_while(settings, || true)
}

/// Runs a simulation while `should_continue`, called before each second, returns true.
#[must_use]
pub fn simulate_while(
    settings: &SimulationSettings,
    mut should_continue: impl FnMut() -> bool,
) -> SimulationOutcome {
    let mut seeds = SplitMix64::new(settings.seed);
    let mut frequency = SimulatedOscillator::new(settings.oscillator, seeds.next_u64());
    let mut receiver = SimulatedReceiver::new(&mut seeds);
    let mut simulation = SimulationInProgress::new(settings);
    for second in (0..settings.duration_s).take_while(|_| should_continue()) {
        simulation.frequency_ppb = frequency.next();
        for (at, event) in receiver.events_of_second(settings, second) {
            simulation.handle(at, event);
        }
        simulation.end_second((second as i64 + 1) * NS_PER_S);
    }
    simulation.outcome
}

impl<'a> SimulationInProgress<'a> {
    fn new(settings: &'a SimulationSettings) -> Self {
        Self {
            settings,
            labeller: PulseLabeller::new(settings.label),
            servo: Servo::new(settings.servo),
            steered: ModelledClock::new(settings.initial_offset_ns),
            total_steps_ns: settings.initial_offset_ns,
            set_per_pulse: PulseSteppedClock::new(settings.initial_offset_ns),
            frequency_ppb: 0.0,
            sequence: 0,
            outcome: SimulationOutcome::new(settings.outages.clone()),
        }
    }

    fn advance_clocks(&mut self, at: i64) {
        self.steered.advance(at, self.frequency_ppb);
        self.set_per_pulse.clock.advance(at, self.frequency_ppb);
    }

    /// Returns the monotonic clock at `at`: slewed like the steered clock, never stepped.
    fn monotonic(&self, at: i64) -> Timestamp<Monotonic> {
        Timestamp::from_ns(BOOT_NS + at + (self.steered.error - self.total_steps_ns).round() as i64)
    }

    fn handle(&mut self, at: i64, event: SimulationEvent) {
        self.advance_clocks(at);
        match event {
            SimulationEvent::Pulse => self.handle_pulse(at),
            SimulationEvent::Sentence(named_second) => self.handle_sentence(at, named_second),
            SimulationEvent::Sample => self.record_sample(at),
        }
    }

    fn handle_pulse(&mut self, at: i64) {
        self.set_per_pulse.set_at_pulse(at);
        self.sequence += 1;
        let clock_reading = EPOCH_S * NS_PER_S + at + self.steered.error.round() as i64;
        let pulse = Pulse {
            monotonic: self.monotonic(at),
            realtime: Timestamp::<Utc>::from_ns(clock_reading),
            sequence: self.sequence,
        };
        match self.labeller.label_pulse(&pulse) {
            Ok(labelled) => {
                self.outcome.wrong_labels += u64::from(
                    (labelled.second().as_ns() - EPOCH_S * NS_PER_S - at).abs() > NS_PER_S / 4,
                );
                let decision = self.servo.process_pulse(&labelled, pulse.monotonic);
                increment(&mut self.outcome.verdicts, decision.entry.verdict.name());
                self.apply_command(decision.command);
            }
            Err(reject) => increment(&mut self.outcome.pulse_rejects, reject.kind()),
        }
    }

    fn handle_sentence(&mut self, at: i64, named_second: i64) {
        self.set_per_pulse.record_sentence(named_second);
        let sentence = Sentence {
            second: Timestamp::from_timespec(EPOCH_S + named_second, 0),
            received: self.monotonic(at),
            is_valid: true,
            is_leap_second: false,
        };
        if let Err(reject) = self.labeller.add_sentence(&sentence) {
            increment(&mut self.outcome.sentence_rejects, reject.kind());
        }
    }

    fn end_second(&mut self, at: i64) {
        self.advance_clocks(at);
        if let Some(decision) = self.servo.tick(self.monotonic(at)) {
            self.apply_command(decision.command);
        }
    }

    fn apply_command(&mut self, command: Option<ServoCommand>) {
        let Some(command) = command else { return };
        self.steered.correction = command.frequency_ppb;
        if let Some(step) = command.step {
            self.steered.error += step.as_ns() as f64;
            self.total_steps_ns += step.as_ns() as f64;
            self.outcome.steps += 1;
        }
    }

    /// Samples the time that a client would receive, against true time.
    fn record_sample(&mut self, at: i64) {
        let estimate = self.servo.estimate(self.monotonic(at));
        let correction = match estimate {
            Some(estimate) if !self.settings.servo.is_steering => estimate.offset,
            _ => Span::ZERO,
        };
        self.outcome.push_sample(SimulationSample {
            steered_ns: self.steered.error.round() as i64 - correction.as_ns(),
            set_per_pulse_ns: self.set_per_pulse.clock.error.round() as i64,
            uncertainty_ns: estimate.map(|estimate| estimate.uncertainty_ns),
            state: self.servo.state(),
        });
    }
}

fn increment(counts: &mut BTreeMap<&'static str, u64>, name: &'static str) {
    *counts.entry(name).or_default() += 1;
}

#[cfg(test)]
mod tests;
