//! The layouts of a stream, as `bpf/stream.h` says them in C. Both sides assert the sizes; whoever
//! changes one changes the other.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::RawHistogram;

/// `STREAM_HEADERS`: of Ethernet, IPv4 and UDP.
pub(super) const HEADERS: usize = 14 + 20 + 8;
/// `struct stream_mark`: the least payload of a stream, in bytes.
pub const STREAM_MARK_LEN: usize = 24;
/// `WINDOW` of `stream_sink.bpf.c`.
pub(super) const WINDOW: u32 = 1 << 16;

/// `struct stream_config`.
#[derive(Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Config {
    pub(super) udp_sum: u64,
    pub(super) headers: [u8; 40],
    pub(super) interface: u32,
    pub(super) reserved: u32,
}

/// `struct stream_lane`: where a processor stands in its schedule. Times behind `start_ns` are in
/// 2^-16 ns.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StreamLane {
    /// Monotonic instant of the start, in ns.
    pub start_ns: u64,
    /// When the next packet is due.
    pub next: u64,
    /// Between two packets.
    pub interval: u64,
    /// When the schedule is over.
    pub end: u64,
    /// What is later than this is put off, and all behind it.
    pub late_max: u64,
    /// Packets sent.
    pub sent: u64,
    /// Monotonic instant of the first, in ns.
    pub first_sent_ns: u64,
    /// And of the last.
    pub last_sent_ns: u64,
    /// Which trial the packets are of.
    pub trial: u32,
    /// The lane's number, below the number of lanes.
    pub number: u32,
    /// Whether it sends, 0 or 1.
    pub active: u32,
    /// Whether its schedule is over, 0 or 1.
    pub done: u32,
    /// None.
    pub reserved: [u64; 6],
}

/// `struct stream_expected`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Expected {
    pub(super) trial: u32,
    pub(super) children: u32,
    pub(super) lanes: u32,
    pub(super) payload_len: u32,
    pub(super) first_port: u16,
    pub(super) timed: u16,
    pub(super) reserved: u32,
}

/// `struct stream_count`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Count {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) next: u64,
    pub(super) disordered: u64,
    pub(super) sum: u64,
    pub(super) squares: u64,
    pub(super) damaged: u64,
    pub(super) reserved: u64,
}

/// `struct stream_delays`.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Delays {
    pub(super) first: RawHistogram,
    pub(super) last: RawHistogram,
}

const _: () = {
    assert!(size_of::<Config>() == 56);
    assert!(size_of::<StreamLane>() == 128);
    assert!(size_of::<Expected>() == 24);
    assert!(size_of::<Count>() == 64);
    assert!(size_of::<Delays>() == 2 * size_of::<RawHistogram>());
};
