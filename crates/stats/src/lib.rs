//! What a measurement adds up to: latency histograms, loss and rate arithmetic, duplicate
//! detection, the search for the highest rate that a server sustains, and what a series of offsets
//! says of a clock.
//!
//! Everything here is a pure function or a plain data structure. It opens nothing, reads no clock
//! and starts no thread: instants come in as arguments, trials are run by the caller, and a result
//! goes out as data. So the same code serves every engine, and the tests need no network.

pub mod allan;
pub mod bootstrap;
pub mod buckets;
pub mod histogram;
pub mod line;
pub mod loss;
pub mod recorder;
pub mod search;
pub mod signed;
mod spread;
pub mod window;

pub use histogram::{Histogram, Summary};
pub use recorder::Recorder;
pub use search::{LossGoal, Search, SearchConfig, SearchOutcome, Step, TrialOutcome};
pub use signed::{SignedRecorder, SignedSummary};
pub use spread::Spread;
pub use window::{Mark, SeenWindow};
