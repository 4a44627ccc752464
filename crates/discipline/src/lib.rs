//! Discipline of a clock by the pulses of a receiver: the second of each pulse
//! ([`PulseLabeller`]), the offset and frequency of the clock that follow from the pulses, and the
//! commands that steer it ([`Servo`]); the behaviour of an oscillator between pulses and in
//! holdover ([`OscillatorModel`]).
//!
//! Pure: nothing here reads a clock, opens a device or starts a thread. Instants are arguments and
//! actions are return values, so the same code steers a clock, only computes, and runs through
//! weeks of simulated time in seconds.
//!
//! The owner of the devices calls it as follows, and passes the time to the servo about once a
//! second:
//!
//! ```
//! use horolog_discipline::{PulseLabellerSettings, Pulse, PulseLabeller, Servo, ServoSettings};
//! use horolog_time::Timestamp;
//!
//! let mut labeller = PulseLabeller::new(PulseLabellerSettings::default());
//! let mut servo = Servo::new(ServoSettings::default());
//! let pulse = Pulse {
//!     monotonic: Timestamp::from_timespec(100, 0),
//!     realtime: Timestamp::from_timespec(1_800_000_000, 250),
//!     sequence: 1,
//! };
//! // No sentence has named a second yet: the pulse is rejected, with the reason.
//! let decision = match labeller.label_pulse(&pulse) {
//!     Ok(labelled) => Some(servo.process_pulse(&labelled, pulse.monotonic)),
//!     Err(_reject) => servo.tick(pulse.monotonic),
//! };
//! assert_eq!(decision, None);
//! assert!(!servo.state().is_synchronised());
//! ```
//!
//! An offset is the clock's reading minus UTC, as IEEE 1588's offsetFromMaster is the slave's minus
//! the master's: positive if the clock is ahead.

mod holdover;
mod kalman;
mod label;
mod log;
mod measurement;
mod oscillator;
mod plausibility;
mod pulse;
mod recent_pulses;
mod reject;
mod servo;
mod settings;
pub mod simulation;
mod stability;

pub use label::{PulseLabeller, SentenceOnlyTime};
pub use log::{ClockErrorLogEntry, PulseVerdict};
pub use oscillator::{OscillatorModel, TemperatureCycle};
pub use plausibility::{
    ImplausibilityReason, PlausibilityEvidence, PlausibilityJudge, PlausibilityReason,
    PlausibilityReference, PlausibilityRuleParameters, is_within_a_day, rollover_count,
};
pub use pulse::{LabelledPulse, Pulse, Sentence};
pub use reject::{PulseRejectReason, SentenceRejectReason};
pub use servo::{Servo, ServoCommand, ServoDecision, ServoEstimate, SynchronisationState};
pub use settings::{PulseLabellerSettings, ServoSettings};
pub use stability::PulseOffsetHistory;
