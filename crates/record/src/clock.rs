//! The result of `horolog clock simulate`: how far a clock is off that is disciplined by a
//! receiver's pulses, and beside it one that is set at every pulse, on the same noise.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{AllanDeviation, Figures, Finding, Host, LimitResult};

/// The schema's name and version.
pub const CLOCK_SCHEMA: &str = "horolog.clock/1";

/// A whole simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockResult {
    /// [`CLOCK_SCHEMA`].
    pub schema: String,
    /// When the run began, RFC 3339.
    pub started: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// The machine that simulated; nothing in the figures comes of it.
    pub host: Host,
    /// What all random numbers began with: the same seed gives the same figures.
    pub seed: u64,
    /// Simulated time, in seconds.
    pub duration_s: u64,
    /// The clock's oscillator.
    pub oscillator: ClockOscillator,
    /// Pulses, sentences and what was wrong with them.
    pub conditions: ClockConditions,
    /// Whether the clock was steered; else its error was estimated and taken off.
    pub steered: bool,
    /// The second in which the servo first said that it is locked; absent where it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_after_s: Option<u64>,
    /// The two methods.
    pub methods: Vec<ClockMethod>,
    /// What became of pulses and sentences.
    pub counts: ClockCounts,
    /// The limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Doubts about the figures.
    pub findings: Vec<Finding>,
}

/// An oscillator by its noises (IEEE 1139), each as the Allan deviation that it has alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockOscillator {
    /// Its name.
    pub name: String,
    /// How far its frequency is from nominal, in parts per billion.
    pub frequency_ppb: f64,
    /// White frequency modulation, at 1 s, in parts per billion.
    pub white_fm_ppb: f64,
    /// Flicker frequency modulation, in parts per billion.
    pub flicker_fm_ppb: f64,
    /// Random walk of the frequency, at 1 s, in parts per billion.
    pub random_walk_fm_ppb: f64,
    /// Ageing, in parts per billion a day.
    pub ageing_ppb_per_day: f64,
    /// How far the temperature moves the frequency either way, in parts per billion.
    pub temperature_ppb: f64,
    /// The time of one up and down of the temperature, in seconds.
    pub temperature_period_s: f64,
}

/// Pulses, sentences and their faults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockConditions {
    /// Standard deviation of a pulse, in ns.
    pub pulse_noise_ns: f64,
    /// The steps in which the receiver places pulses, in ns.
    pub quantisation_ns: f64,
    /// How late every timestamp is, in ns.
    pub latency_ns: f64,
    /// How often it is later.
    pub latency_tail: f64,
    /// By how much then, in the mean, in ns.
    pub latency_tail_ns: f64,
    /// Pulses in a second.
    pub pulses_per_second: u32,
    /// Share of sentences that are wrong, late or lost.
    pub bad_sentences: f64,
    /// False pulses for each true one.
    pub false_pulses: f64,
    /// Share of pulses that are lost.
    pub missing_pulses: f64,
}

/// One way to keep a clock right, and how right it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockMethod {
    /// Which.
    pub kind: ClockMethodKind,
    /// The clock's error in service, once a second at any instant of it, in ns: from the second in
    /// which the servo was first locked, without outages and the minute after each. Absent where
    /// there was no such second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_ns: Option<Figures>,
    /// The overlapping Allan deviation of that.
    pub allan: Vec<AllanDeviation>,
    /// What became of it in outages and after.
    pub outages: Vec<ClockOutage>,
    /// The error over the whole time, stretch by stretch.
    pub series: Vec<ClockStretch>,
}

/// The methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockMethodKind {
    /// Labeller, filter and servo.
    Servo,
    /// The clock is set at every pulse, as Liu, Wu and Wang 2020, section 2.2.3, do.
    SetAtPulse,
}

/// A time without pulses and sentences.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockOutage {
    /// When it began, in seconds of the simulation.
    pub begin_s: u64,
    /// How long it took, in seconds.
    pub length_s: u64,
    /// The largest error in it, in ns.
    pub error_max_ns: u64,
    /// Seconds from its end to the one from which on the error was within 1 µs for a minute; absent
    /// where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered_after_s: Option<u64>,
}

/// The lowest and the highest error of a stretch of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockStretch {
    /// Its first second.
    pub begin_s: u64,
    /// The lowest error in it, in ns.
    pub min_ns: i64,
    /// The highest error in it, in ns.
    pub max_ns: i64,
}

/// What became of pulses and sentences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockCounts {
    /// Pulses whose second was known, by what the servo made of them.
    pub pulses: BTreeMap<String, u64>,
    /// Pulses whose second was not sure, by the reason.
    pub pulse_doubts: BTreeMap<String, u64>,
    /// Sentences that did not count, by the reason.
    pub sentence_doubts: BTreeMap<String, u64>,
    /// Pulses that were given a wrong second.
    pub wrong_labels: u64,
    /// Steps of the clock.
    pub steps: u64,
}
