//! BPF programs (`bpf/*.bpf.c`), the memory layouts that they share with Rust, and their loader.
//! Programs are held by BPF links and never pinned, so the kernel removes them when the process
//! ends, even by SIGKILL.
//!
//! The decisions of the larger programs have reference implementations in Rust: those of the
//! responder in `horolog-server`, those of the generator in `horolog-load`, those of the relay in
//! `horolog-relay`.

#![allow(
    unsafe_code,
    reason = "calls into libbpf and reads of shared maps; every block says why it is sound"
)]

mod abi;
mod attach;
mod core_senders;
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
    ClientCounts, EXPONENTIAL_ENTRIES, GeneratorLane, INVALID_REASONS, LANE_PORT_BASE, LANES_MAX,
    LIST_PREFIXES_MAX, LaneCounts, LaneServerOffsetCounts, LimitRules, RATE_SEGMENTS_MAX,
    RateSegment, RawHistogram,
};
pub use attach::{AttachMode, Attachment, Interface, reported_redirect_support, supports_redirect};
pub use core_senders::CoreSenders;
pub use error::XdpError;
pub use generator::{
    Generator, GeneratorCounts, GeneratorSettings, RequestProtocol, ServerOffsetSettings,
    TrialSettings,
};
pub use kernel_timer::{KernelTimerProgram, TimerHandlerDelays};
pub use limits::{LimitTableSettings, ListedPrefix, ResponderSettings};
pub use ptp::{PtpPort, PtpTransport};
pub use reflector::XdpReflector;
pub use relay::{
    RELAY_INTERFACES_MAX, RELAY_LENGTH_MAX, RelayChild, RelayChildCounts, RelayCounts,
    RelayDropReason, RelayGroup, RelayGroupCounts, RelayGroupError, RelayPacketRateLimit,
    RelayPassedReason, RelayPrograms, RelayTableCapacities, RelayTheoreticalArrivalTimes,
    RemovedChildren, RemovedGroup,
};
pub use reply_drop::{ReplyDropProgram, ReplyDropSettings};
pub use responder::{
    AdmissionRefusal, ClockPageUpdate, InterleavedHandling, PassedReason, Responder,
    ResponderClockPageWriter, ResponderCounts, StationAddress, XdpReplySendAction,
};
pub use sink::CountingSink;
pub use stream::{
    STREAM_MARK_LEN, StreamChildCounts, StreamFrameTemplate, StreamLane, StreamSink, StreamSource,
    StreamTrialExpectation,
};
pub use test_run::{TestRunOutcome, XdpAction, live_frames_supported};
pub use xsk::{XskDropCounter, XskFrame, XskSocket};
