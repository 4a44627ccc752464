//! A stream of numbered and timed packets, and the sink that takes the copies of it that somebody
//! else makes: what a benchmark of a relay needs on both of its sides, at as little cost as can be.
//! What is sent when, and what the counts mean, is for the caller to say.

mod abi;
mod sink;
mod source;

pub use abi::{STREAM_MARK_LEN, StreamLane};
pub use sink::{StreamChild, StreamSink, StreamTrial};
pub use source::{StreamFrame, StreamSource};
