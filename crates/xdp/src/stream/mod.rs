//! Source of numbered, timestamped packets, and sink of the copies that a relay makes of them: both
//! ends of a relay benchmark, at the lowest possible cost. The caller plans the schedule and
//! interprets the counts.

mod sink;
mod source;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::RawHistogram;

pub use sink::{StreamChildCounts, StreamSink, StreamTrialExpectation};
pub use source::{StreamFrameTemplate, StreamSource};

/// `STREAM_HEADERS`: length of the Ethernet, IPv4 and UDP headers, in bytes.
pub(super) const HEADERS_LEN: usize = 14 + 20 + 8;
/// Length of `struct stream_mark`, the smallest payload of a stream packet, in bytes.
pub const STREAM_MARK_LEN: usize = 24;
/// `WINDOW` of `stream_sink.bpf.c`: most packets of a lane that may be in flight.
pub(super) const IN_FLIGHT_PACKETS_MAX: u32 = 1 << 16;

/// `struct stream_config`: constants of the source.
#[derive(Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct RawStreamConfig {
    pub(super) udp_sum: u64,
    pub(super) headers: [u8; 40],
    pub(super) interface: u32,
    pub(super) reserved: u32,
}

/// `struct stream_lane`: schedule and progress of a sending CPU. Times after `start_ns` are in
/// 2^-16 ns since the start.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StreamLane {
    /// Start of the schedule on the monotonic clock, in ns.
    pub start_ns: u64,
    /// Intended send time of the next packet, in 2^-16 ns since the start.
    pub next: u64,
    /// Time between two packets, in 2^-16 ns.
    pub interval: u64,
    /// End of the schedule, in 2^-16 ns since the start.
    pub end: u64,
    /// Lateness above which a packet and all after it are postponed, in 2^-16 ns.
    pub late_max: u64,
    /// Number of packets sent, which is the number of the next one.
    pub sent: u64,
    /// Monotonic instant of the first packet sent, in ns.
    pub first_sent_ns: u64,
    /// Monotonic instant of the last packet sent, in ns.
    pub last_sent_ns: u64,
    /// Number of the trial that the packets belong to.
    pub trial: u32,
    /// Number of the lane, below the number of lanes.
    pub number: u32,
    /// 1 if the lane sends, otherwise 0.
    pub active: u32,
    /// 1 if the schedule is complete, otherwise 0.
    pub done: u32,
    /// Padding that keeps lanes apart in the CPUs' caches.
    pub reserved: [u64; 6],
}

/// `struct stream_expected`: packets that the sink expects in a trial.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RawStreamTrialExpectation {
    pub(super) trial: u32,
    pub(super) children: u32,
    pub(super) lanes: u32,
    pub(super) payload_len: u32,
    pub(super) first_port: u16,
    pub(super) timed: u16,
    pub(super) reserved: u32,
}

/// `struct stream_count`: packets for one child from one lane on one CPU.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RawStreamChildCounts {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) next: u64,
    pub(super) disordered: u64,
    pub(super) sum: u64,
    pub(super) squares: u64,
    pub(super) damaged: u64,
    pub(super) reserved: u64,
}

/// `struct stream_delays`: delays of the first and the last copy of each packet, counted by one
/// CPU.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RawStreamDelays {
    pub(super) first: RawHistogram,
    pub(super) last: RawHistogram,
}

const _: () = {
    assert!(size_of::<RawStreamConfig>() == 56);
    assert!(size_of::<StreamLane>() == 128);
    assert!(size_of::<RawStreamTrialExpectation>() == 24);
    assert!(size_of::<RawStreamChildCounts>() == 64);
    assert!(size_of::<RawStreamDelays>() == 2 * size_of::<RawHistogram>());
};
