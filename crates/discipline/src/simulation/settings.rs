//! What is simulated.

use crate::{LabelSettings, Oscillator, ServoSettings};

/// How late a timestamp is behind its edge.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Latency {
    /// Always, in ns. It shifts both methods alike and is no noise; 0 unless set.
    pub constant_ns: f64,
    /// How often it is longer: other interrupts, sleeping cores.
    pub tail_share: f64,
    /// By how much then in the mean, with an exponential distribution, in ns.
    pub tail_mean_ns: f64,
}

/// A time in which something is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Period {
    /// When it begins, in seconds of the simulation.
    pub begin_s: u64,
    /// How long it takes, in seconds.
    pub length_s: u64,
}

impl Period {
    /// Whether it is within this second.
    #[must_use]
    pub fn contains(&self, second: u64) -> bool {
        second.checked_sub(self.begin_s).is_some_and(|since| since < self.length_s)
    }
}

/// Everything that a simulation needs; the same settings give the same numbers.
#[derive(Clone, PartialEq, Debug)]
pub struct SimulationSettings {
    /// The start of all random numbers.
    pub seed: u64,
    /// How long, in seconds.
    pub duration_s: u64,
    /// The clock's oscillator.
    pub oscillator: Oscillator,
    /// By how much the clock is ahead at the start, in ns.
    pub initial_offset_ns: f64,
    /// White noise of a pulse, as a standard deviation in ns.
    pub pulse_noise_ns: f64,
    /// The period of the receiver's own clock, to whose edges it puts pulses, in ns: what
    /// datasheets call the sawtooth or quantisation error.
    pub quantisation_ns: f64,
    /// How late edges are seen.
    pub latency: Latency,
    /// How long after its second a sentence comes, in ms, and the deviation of that.
    pub sentence_lag_ms: f64,
    /// See `sentence_lag_ms`.
    pub sentence_jitter_ms: f64,
    /// Share of sentences that are wrong by seconds, years or 1024 weeks, come a second late, or
    /// are lost.
    pub bad_sentences: f64,
    /// False pulses for each true one, anywhere in the second.
    pub false_pulses: f64,
    /// Share of pulses that are lost.
    pub missing_pulses: f64,
    /// Pulses in a second.
    pub pulses_per_second: u32,
    /// Times without pulses and sentences.
    pub outages: Vec<Period>,
    /// A time in which sentences name another second, and by how many.
    pub spoof: Option<(Period, i64)>,
    /// The labeller.
    pub label: LabelSettings,
    /// The servo, which need not know the oscillator as it is.
    pub servo: ServoSettings,
}

impl Default for SimulationSettings {
    fn default() -> Self {
        Self {
            seed: 1,
            duration_s: 86_400,
            oscillator: Oscillator::RASPBERRY_PI,
            initial_offset_ns: 300e6,
            pulse_noise_ns: 100.0,
            // One period of 48 MHz, the clock of u-blox's M8 receivers.
            quantisation_ns: 21.0,
            latency: Latency { constant_ns: 0.0, tail_share: 0.01, tail_mean_ns: 10_000.0 },
            sentence_lag_ms: 120.0,
            sentence_jitter_ms: 10.0,
            bad_sentences: 0.0,
            false_pulses: 0.0,
            missing_pulses: 0.0,
            pulses_per_second: 1,
            outages: Vec::new(),
            spoof: None,
            label: LabelSettings::default(),
            servo: ServoSettings::default(),
        }
    }
}
