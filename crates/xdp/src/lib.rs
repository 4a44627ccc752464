//! The BPF programs (`bpf/*.bpf.c`), the layouts that they share with Rust, and their loader. Links
//! hold the programs in place, so they go when the process goes, however it dies; nothing is
//! pinned and nothing is left behind.
//!
//! The programs decide nothing that is not decided in Rust as well: `horolog-server` holds the
//! responder's model and `horolog-load` the generator's.

#![allow(
    unsafe_code,
    reason = "calls into libbpf and reads of shared maps; every block says why it is sound"
)]

mod abi;
mod attach;
mod error;
mod generator;
mod kernel_timer;
mod limits;
mod map;
mod object;
mod ptp;
mod reflector;
mod relay;
mod reply_drop;
mod responder;
mod sink;
mod stream;
mod test_run;
mod xsk;

pub use abi::{
    AskedAnswered, EXPONENTIAL_ENTRIES, HISTOGRAM_BUCKETS, INVALID_REASONS, LANE_PORT_BASE,
    LANES_MAX, LEGS_MAX, LIST_PREFIXES_MAX, Lane, Leg, LimitRules, OffsetTally, RawHistogram,
    Tally,
};
pub use attach::{AttachMode, Attachment, Interface, says_of_redirects, takes_redirects};
pub use error::XdpError;
pub use generator::{
    Counted, Generator, GeneratorSettings, OffsetSettings, Protocol, TrialSettings,
};
pub use kernel_timer::{KernelDelays, KernelTimer};
pub use limits::{LimitSettings, ListedPrefix, ResponderSettings};
pub use ptp::{PtpPort, PtpTransport};
pub use reflector::Reflector;
pub use relay::{
    RELAY_INTERFACES_MAX, RELAY_LENGTH_MAX, Relay, RelayChild, RelayChildCounts, RelayCounts,
    RelayError, RelayFormer, RelayGone, RelayGroup, RelayGroupCounts, RelayLimit, RelayMeters,
    RelayPassed, RelayRefusal, RelaySettings,
};
pub use reply_drop::{ReplyDrop, ReplyDropSettings};
pub use responder::{
    ClockEdition, ClockWriter, InterleavedRequests, PassedReason, Refusal, ReplyPath, Responder,
    ResponderCounts,
};
pub use sink::Sink;
pub use stream::{
    STREAM_MARK_LEN, StreamChild, StreamFrame, StreamLane, StreamSink, StreamSource, StreamTrial,
};
pub use test_run::{Outcome, Verdict, live_frames_supported};
pub use xsk::{XskDrops, XskFrame, XskSocket};
