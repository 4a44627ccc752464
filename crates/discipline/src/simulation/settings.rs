//! Settings of a simulation.

use crate::{OscillatorModel, PulseLabellerSettings, ServoSettings};

/// Delay of a timestamp after its edge.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TimestampDelay {
    /// Constant part, in ns. It shifts both methods alike, so it is not noise; 0 unless set.
    pub constant_ns: f64,
    /// Share of timestamps with an additional delay, by other interrupts or sleeping cores (0 to
    /// 1).
    pub tail_share: f64,
    /// Mean of the additional delay, which is exponentially distributed, in ns.
    pub tail_mean_ns: f64,
}

/// Period of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultPeriod {
    /// Start, in seconds of the simulation.
    pub begin_s: u64,
    /// Length, in seconds.
    pub length_s: u64,
}

impl FaultPeriod {
    /// Returns true if this second is within it.
    #[must_use]
    pub fn contains(&self, second: u64) -> bool {
        second.checked_sub(self.begin_s).is_some_and(|since| since < self.length_s)
    }
}

/// Complete settings of a simulation; the same settings give the same numbers.
#[derive(Clone, PartialEq, Debug)]
pub struct SimulationSettings {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Simulated time, in seconds.
    pub duration_s: u64,
    /// Oscillator of the clock.
    pub oscillator: OscillatorModel,
    /// Clock minus true time at the start, in ns.
    pub initial_offset_ns: f64,
    /// White noise of a pulse, as a standard deviation in ns.
    pub pulse_noise_ns: f64,
    /// Period of the receiver's clock, to whose edges it aligns pulses, in ns; data sheets call the
    /// effect sawtooth or quantisation error.
    pub quantisation_ns: f64,
    /// Delay of the timestamps of edges.
    pub latency: TimestampDelay,
    /// Mean time from a second to its sentence, in ms.
    pub sentence_lag_ms: f64,
    /// Standard deviation of the time from a second to its sentence, in ms.
    pub sentence_jitter_ms: f64,
    /// Share of sentences that are wrong by seconds, years or 1024 weeks, come a second late, or
    /// are lost.
    pub bad_sentences: f64,
    /// Probability of a false pulse in each second, at a random instant.
    pub false_pulses: f64,
    /// Share of pulses that are lost.
    pub missing_pulses: f64,
    /// Pulses in a second.
    pub pulses_per_second: u32,
    /// Periods without pulses and sentences.
    pub outages: Vec<FaultPeriod>,
    /// Period in which sentences name another second, and the difference in seconds.
    pub spoof: Option<(FaultPeriod, i64)>,
    /// Settings of the labeller.
    pub label: PulseLabellerSettings,
    /// Settings of the servo, whose oscillator model need not match the simulated one.
    pub servo: ServoSettings,
}

impl Default for SimulationSettings {
    fn default() -> Self {
        Self {
            seed: 1,
            duration_s: 86_400,
            oscillator: OscillatorModel::RASPBERRY_PI,
            initial_offset_ns: 300e6,
            pulse_noise_ns: 100.0,
            // One period of 48 MHz, the clock of u-blox's M8 receivers.
            quantisation_ns: 21.0,
            latency: TimestampDelay { constant_ns: 0.0, tail_share: 0.01, tail_mean_ns: 10_000.0 },
            sentence_lag_ms: 120.0,
            sentence_jitter_ms: 10.0,
            bad_sentences: 0.0,
            false_pulses: 0.0,
            missing_pulses: 0.0,
            pulses_per_second: 1,
            outages: Vec::new(),
            spoof: None,
            label: PulseLabellerSettings::default(),
            servo: ServoSettings::default(),
        }
    }
}
