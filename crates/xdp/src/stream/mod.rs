//! Source of numbered, timestamped packets, and sink of the copies that a relay makes of them: both
//! ends of a relay benchmark, at the lowest possible cost. The caller plans the schedule and
//! interprets the counts.

mod abi;
mod sink;
mod source;

pub use abi::{STREAM_MARK_LEN, StreamLane};
pub use sink::{StreamChildCounts, StreamSink, StreamTrial};
pub use source::{StreamFrame, StreamSource};
