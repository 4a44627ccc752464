//! Time types of Horolog: timestamps tagged with their timescale, the fixed-point formats of NTP,
//! and the linear time base from which both engines of the server derive time. Also a simulated
//! clock and pseudo-random numbers for simulations, leap seconds, and the parsing of times, rates
//! and sizes.
//!
//! The crate makes no system call and reads no clock: a clock is passed in as a [`Clock`], so that
//! everything built on it also runs in simulated time.

mod clock;
mod grid;
pub mod leap;
mod ntp;
mod random;
pub mod text;
mod timebase;
mod timestamp;

pub use clock::{Clock, SimulatedClock, measure_precision};
pub use grid::TimeGrid;
pub use ntp::{NtpShort, NtpTimestamp, UNIX_EPOCH_IN_NTP_SECONDS};
pub use random::SplitMix64;
pub use timebase::{NO_STEP, NOMINAL_RATE, RATE_SHIFT, Timebase};
pub use timestamp::{Monotonic, Span, Timescale, Timestamp, Utc};

/// Nanoseconds in a second.
pub const NS_PER_S: i64 = 1_000_000_000;
