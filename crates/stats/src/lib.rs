//! Statistics of a measurement: latency histograms, loss and rate arithmetic, duplicate detection,
//! the search for the highest rate that a server sustains, and the evaluation of a clock's offsets.
//!
//! Everything here is a pure function or a data structure. The crate does no I/O, reads no clock
//! and starts no thread: callers pass instants and run the trials. So all engines share this code,
//! and its tests need no network.

pub mod allan;
pub mod bootstrap;
pub mod buckets;
pub mod duplicate_window;
mod exact_summary;
pub mod histogram;
pub mod line;
pub mod loss;
pub mod search;
pub mod signed;

pub use duplicate_window::{DuplicateWindow, SequenceMarkOutcome};
pub use exact_summary::ExactSummary;
pub use histogram::{Histogram, HistogramSummary};
pub use search::{GoalLossRatio, Search, SearchConfig, SearchOutcome, SearchStep, TrialOutcome};
pub use signed::{SignedHistogram, SignedSummary};
