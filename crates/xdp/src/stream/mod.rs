//! Stream of numbered and timestamped packets, and the sink of the copies that a relay makes of it:
//! both ends of a relay benchmark, at the least possible cost. The caller determines the schedule
//! and interprets the counts.

mod abi;
mod sink;
mod source;

pub use abi::{STREAM_MARK_LEN, StreamLane};
pub use sink::{StreamChild, StreamSink, StreamTrial};
pub use source::{StreamFrame, StreamSource};
