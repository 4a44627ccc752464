//! Result of `horolog clock simulate`: error of a simulated clock that is disciplined by a
//! receiver's pulses, compared with a clock that is stepped at every pulse, on the same noise.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{AllanDeviation, ExactSummary, Finding, Host, LimitResult};

/// The schema's name and version.
pub const CLOCK_SCHEMA: &str = "horolog.clock/2";

/// Result of one simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockSimulateResult {
    /// [`CLOCK_SCHEMA`].
    pub schema: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Command line of the run.
    pub command: Vec<String>,
    /// Host that ran the simulation; the values do not depend on it.
    pub host: Host,
    /// Seed of all random numbers: the same seed gives the same values.
    pub seed: u64,
    /// Simulated time, in seconds.
    pub duration_s: u64,
    /// Oscillator of the clock.
    pub oscillator: OscillatorParameters,
    /// Noise, delays and faults of the pulses and sentences.
    pub conditions: SimulatedPulseConditions,
    /// True if the simulated clock was steered; false if its error was only estimated and
    /// subtracted.
    pub steered: bool,
    /// Time from the start until the servo first reported lock, in seconds; absent if it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_after_s: Option<u64>,
    /// Results of both discipline methods.
    pub methods: Vec<DisciplineResult>,
    /// Outcomes of pulses and sentences.
    pub counts: PulseOutcomeCounts,
    /// Limits of `--fail-if`.
    pub limits: Vec<LimitResult>,
    /// Findings about the result.
    pub findings: Vec<Finding>,
}

/// Parameters of the simulated oscillator: frequency offset, noise (IEEE 1139), ageing and
/// temperature effect. Each noise is stated as the Allan deviation that it alone would cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OscillatorParameters {
    /// Name of the oscillator.
    pub name: String,
    /// Offset of its frequency from nominal, in parts per billion.
    pub frequency_ppb: f64,
    /// White frequency modulation, at 1 s, in parts per billion.
    pub white_fm_ppb: f64,
    /// Flicker frequency modulation, in parts per billion.
    pub flicker_fm_ppb: f64,
    /// Random walk of the frequency, at 1 s, in parts per billion.
    pub random_walk_fm_ppb: f64,
    /// Ageing, in parts per billion per day.
    pub ageing_ppb_per_day: f64,
    /// Amplitude of the frequency change with temperature (±), in parts per billion.
    pub temperature_ppb: f64,
    /// Period of one temperature cycle, in seconds.
    pub temperature_period_s: f64,
}

/// Noise, delays and faults of the pulses and sentences.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimulatedPulseConditions {
    /// Standard deviation of a pulse, in ns.
    pub pulse_noise_ns: f64,
    /// Resolution of the receiver's pulses, in ns.
    pub quantisation_ns: f64,
    /// Delay of every timestamp, in ns.
    pub latency_ns: f64,
    /// Share of timestamps with an additional delay.
    pub latency_tail: f64,
    /// Mean of that additional delay, in ns.
    pub latency_tail_ns: f64,
    /// Pulses per second.
    pub pulses_per_second: u32,
    /// Share of sentences that are wrong, late or lost.
    pub bad_sentences: f64,
    /// Number of false pulses per true pulse.
    pub false_pulses: f64,
    /// Share of pulses that are lost, from 0 to 1.
    pub missing_pulses: f64,
}

/// Error of the clock under one discipline method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DisciplineResult {
    /// Discipline method.
    pub kind: DisciplineMethod,
    /// Clock error in service, sampled at any instant once a second, in ns: from the second in
    /// which the servo first locked, excluding outages and the minute after each. Absent if there
    /// was no such second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_ns: Option<ExactSummary>,
    /// Overlapping Allan deviation of that error.
    pub allan: Vec<AllanDeviation>,
    /// Behaviour during and after outages.
    pub outages: Vec<PulseOutageResult>,
    /// Time series of the error over the whole simulation.
    pub series: Vec<ClockErrorRange>,
}

/// Methods by which the simulated clock is disciplined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DisciplineMethod {
    /// Labelling of the pulses with seconds, Kalman filter and servo.
    Servo,
    /// Step of the clock at every pulse, as in Liu, Wu and Wang 2020, section 2.2.3.
    SetAtPulse,
}

/// Period without pulses and sentences.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PulseOutageResult {
    /// Start of the outage, in seconds since the start of the simulation.
    pub begin_s: u64,
    /// Length, in seconds.
    pub length_s: u64,
    /// Largest magnitude of the error in the outage, in ns.
    pub error_max_ns: u64,
    /// Time from the end of the outage until the error stayed within 1 µs for a minute, in seconds;
    /// absent if it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered_after_s: Option<u64>,
}

/// Lowest and highest error in an interval of several seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockErrorRange {
    /// First second of the interval, since the start of the simulation.
    pub begin_s: u64,
    /// Lowest error in the interval, in ns.
    pub min_ns: i64,
    /// Highest error in the interval, in ns.
    pub max_ns: i64,
}

/// Outcomes of pulses and sentences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PulseOutcomeCounts {
    /// Pulses that were assigned to a second, by verdict of the servo.
    pub pulses: BTreeMap<String, u64>,
    /// Pulses with an uncertain second, by reject reason.
    pub pulse_rejects: BTreeMap<String, u64>,
    /// Rejected sentences, by reason.
    pub sentence_rejects: BTreeMap<String, u64>,
    /// Pulses assigned to a wrong second.
    pub wrong_labels: u64,
    /// Steps of the clock.
    pub steps: u64,
}
