//! BPF programs (`bpf/*.bpf.c`), the layouts that they share with Rust, and their loader. Links
//! hold the programs, so they are removed when the process ends, however it ends; nothing
//! is pinned and nothing is left behind.
//!
//! Every decision of the programs has a model in Rust: `horolog-server` has the responder's and
//! `horolog-load` the generator's.

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
    ClientCounts, EXPONENTIAL_ENTRIES, HISTOGRAM_BUCKETS, INVALID_REASONS, LANE_PORT_BASE,
    LANES_MAX, LIST_PREFIXES_MAX, LaneCounts, LaneOffsetCounts, LanePosition, LimitRules,
    RATE_SEGMENTS_MAX, RateSegment, RawHistogram,
};
pub use attach::{AttachMode, Attachment, Interface, reported_redirect_support, supports_redirect};
pub use error::XdpError;
pub use generator::{
    Generator, GeneratorCounts, GeneratorSettings, OffsetSettings, Protocol, TrialSettings,
};
pub use kernel_timer::{KernelDelays, KernelTimer};
pub use limits::{LimitSettings, ListedPrefix, ResponderSettings};
pub use ptp::{PtpPort, PtpTransport};
pub use reflector::XdpReflector;
pub use relay::{
    RELAY_INTERFACES_MAX, RELAY_LENGTH_MAX, RelayChild, RelayChildCounts, RelayCounts, RelayGroup,
    RelayGroupCounts, RelayGroupError, RelayLimit, RelayPassed, RelayPrograms, RelayRateState,
    RelayRefusal, RelaySettings, RemovedChildren, RemovedGroup,
};
pub use reply_drop::{ReplyDrop, ReplyDropSettings};
pub use responder::{
    AdmissionRefusal, ClockUpdate, ClockWriter, InterleavedRequests, PassedReason, ReplyPath,
    Responder, ResponderCounts, Station,
};
pub use sink::Sink;
pub use stream::{
    STREAM_MARK_LEN, StreamChild, StreamFrame, StreamLane, StreamSink, StreamSource, StreamTrial,
};
pub use test_run::{TestRunOutcome, XdpAction, live_frames_supported};
pub use xsk::{XskDrops, XskFrame, XskSocket};
