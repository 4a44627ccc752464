//! How a clock is disciplined by a receiver's pulses: which second each pulse is ([`Labeller`]),
//! what the pulses say of the clock's offset and frequency, and by what it is to be steered
//! ([`Servo`]); what an oscillator does meanwhile and when nothing comes any more ([`Oscillator`]).
//!
//! Pure: nothing here reads a clock, opens a device or starts a thread. Instants come in as
//! arguments and what is to be done goes out as values, so the same code steers a clock, only
//! computes, and runs through weeks of simulated time in seconds.
//!
//! Whoever has the devices calls it so, and tells the servo the time about once a second:
//!
//! ```
//! use horolog_discipline::{LabelSettings, Labeller, Pulse, Servo, ServoSettings};
//! use horolog_time::Timestamp;
//!
//! let mut labeller = Labeller::new(LabelSettings::default());
//! let mut servo = Servo::new(ServoSettings::default());
//! let pulse = Pulse {
//!     monotonic: Timestamp::from_timespec(100, 0),
//!     realtime: Timestamp::from_timespec(1_800_000_000, 250),
//!     sequence: 1,
//! };
//! // No sentence has named a second yet: the pulse says nothing, and says why.
//! let decision = match labeller.pulse(&pulse) {
//!     Ok(labelled) => Some(servo.pulse(&labelled, pulse.monotonic)),
//!     Err(_doubt) => servo.tick(pulse.monotonic),
//! };
//! assert_eq!(decision, None);
//! assert!(!servo.state().is_synchronised());
//! ```
//!
//! An offset is the clock's reading minus UTC, as IEEE 1588's offsetFromMaster is the slave's minus
//! the master's: positive where the clock is ahead.

mod doubt;
mod grid;
mod holdover;
mod kalman;
mod label;
mod log;
mod measurement;
mod oscillator;
mod pulse;
mod servo;
mod settings;
pub mod simulation;
mod stability;

pub use doubt::{PulseDoubt, SentenceDoubt};
pub use label::{Coarse, Labeller};
pub use log::{ClockErrorEntry, Verdict};
pub use oscillator::{Oscillator, Temperature};
pub use pulse::{LabelledPulse, Pulse, Sentence};
pub use servo::{Command, Decision, Estimate, Servo, State};
pub use settings::{LabelSettings, ServoSettings};
pub use stability::Stability;
