//! Statistics of a measurement: latency histograms, loss and rate arithmetic, duplicate detection,
//! the search for the highest rate that a server sustains, and the evaluation of a clock's offsets.
//!
//! Everything here is a pure function or a plain data structure. The crate opens no files, reads no
//! clock and starts no thread: instants come in as arguments, the caller runs the trials, and
//! results are returned as data. The same code therefore serves every engine, and the tests need no
//! network.

pub mod allan;
pub mod bootstrap;
pub mod buckets;
pub mod duplicate_window;
mod exact_summary;
pub mod histogram;
pub mod line;
pub mod loss;
pub mod recorder;
pub mod search;
pub mod signed;

pub use duplicate_window::{DuplicateWindow, MarkOutcome};
pub use exact_summary::ExactSummary;
pub use histogram::{Histogram, Summary};
pub use recorder::Recorder;
pub use search::{LossGoal, Search, SearchConfig, SearchOutcome, SearchStep, TrialOutcome};
pub use signed::{SignedRecorder, SignedSummary};
