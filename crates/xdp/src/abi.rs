//! Layouts of the BPF maps, as `bpf/abi.h` defines them in C. Both sides assert the sizes; a change
//! to one requires a change to the other.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct clock_slot` after its sequence.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ClockFields {
    pub(crate) anchor_ns: u64,
    pub(crate) ntp_at_anchor: u64,
    pub(crate) expires_ns: u64,
    pub(crate) rate: u32,
    pub(crate) leap: u8,
    pub(crate) stratum: u8,
    pub(crate) precision: i8,
    pub(crate) leap_after: u8,
    pub(crate) root_delay: [u8; 4],
    pub(crate) root_dispersion: [u8; 4],
    pub(crate) reference_id: [u8; 4],
    pub(crate) tai_minus_utc_s: i16,
    pub(crate) tai_is_known: u16,
    pub(crate) reference: [u8; 8],
    pub(crate) step_at_ns: u64,
    pub(crate) step: u64,
    pub(crate) reserved2: [u64; 6],
}

/// `struct clock_slot`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ClockSlot {
    pub(crate) sequence: u64,
    pub(crate) fields: ClockFields,
}

/// `struct clock_page`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ClockPage {
    pub(crate) active: u64,
    pub(crate) listen_epoch: u64,
    pub(crate) reserved: [u64; 6],
    pub(crate) slots: [[ClockSlot; TIMELINES]; 2],
}

/// `TIMELINES`.
pub(crate) const TIMELINES: usize = 2;

/// `struct listen_key`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ListenKey {
    pub(crate) address: [u8; 16],
    pub(crate) port: [u8; 2],
    pub(crate) reserved: [u8; 2],
}

/// `struct station`.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct StationKey {
    pub(crate) interface: u32,
    pub(crate) protocol: [u8; 2],
    pub(crate) identifier: [u8; 2],
    pub(crate) mac: [u8; 6],
    pub(crate) padding: [u8; 2],
}

/// `XSK_FRAME_MAX`.
pub(crate) const XSK_FRAME_MAX: usize = 2048 - 256;

/// `struct queue_row`: the `AF_XDP` sockets of an interface in the map of all.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct QueueRow {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// `struct ptp_port_key`.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct PtpPortKey {
    pub(crate) interface: u32,
    pub(crate) transport: u32,
}

/// `struct ptp_client_key`.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct PtpClientKey {
    pub(crate) length: u32,
    pub(crate) port: PtpPortKey,
    pub(crate) address: [u8; 16],
}

pub(crate) const PTP_PORT_MULTICAST: u8 = 1;
pub(crate) const PTP_PORT_HYBRID: u8 = 2;
pub(crate) const PTP_PORT_MONITOR: u8 = 4;

/// `PTP_MONITOR_LEN`.
pub(crate) const fn ptp_monitor_len(address_len: usize) -> usize {
    74 + address_len
}

pub(crate) const PTP_MONITOR_MAX: usize = 96;

/// `struct ptp_port`.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct PtpPortFields {
    pub(crate) clock: [u8; 8],
    pub(crate) port: [u8; 2],
    pub(crate) domain: u8,
    pub(crate) sdo_major: u8,
    pub(crate) sdo_minor: u8,
    pub(crate) log_min_delay_req: i8,
    pub(crate) flags: u8,
    pub(crate) reserved: u8,
    pub(crate) mac: [u8; 6],
    pub(crate) reserved2: [u8; 2],
    pub(crate) address: [u8; 16],
    pub(crate) monitor: [u8; PTP_MONITOR_MAX],
}

/// `PASSED_REASONS` of `enum passed_reason`.
pub(crate) const PASSED_REASONS: usize = 8;
/// `REFUSALS` of `enum admission`.
pub(crate) const REFUSALS: usize = 5;
/// `LIST_PREFIXES_MAX`.
pub const LIST_PREFIXES_MAX: usize = 1 << 20;
/// `LIMIT_WAYS`.
pub(crate) const LIMIT_WAYS: usize = 4;
pub(crate) const LISTED_ALLOWED: u8 = 1;
pub(crate) const LISTED_DENIED: u8 = 2;

/// `struct responder_config`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ResponderConfig {
    pub(crate) key: [u64; 2],
    pub(crate) ipv4_mask: u64,
    pub(crate) ipv6_mask: [u64; 2],
    pub(crate) limit_sets_mask: u32,
    pub(crate) interleaved_mask: u32,
    pub(crate) limits: u8,
    pub(crate) interleaved: u8,
    pub(crate) redirect_long: u8,
    pub(crate) ptp_monitor: u8,
    pub(crate) reserved: [u8; 4],
}

/// `struct limit_set`: four clients, a word each.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct LimitSet {
    pub(crate) words: [u64; LIMIT_WAYS],
}

/// `struct limit_rules`: limits of the clients. A unit is 1,024 ns.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LimitRules {
    /// Units for each request of a client; 0 leaves clients unlimited.
    pub interval: u64,
    /// Units that a client may be ahead of its rate.
    pub tolerance: u64,
    /// Units after which the entry of an idle client is free.
    pub idle: u64,
    /// Nanoseconds for each request of a client without an entry, counted separately for requests
    /// of one header and for longer ones; 0 leaves them unlimited.
    pub new_client_interval_ns: u64,
    /// Nanoseconds that all of them together may be ahead of their rate.
    pub new_client_tolerance_ns: u64,
    /// Nanoseconds between two DENY kisses; 0 sends none.
    pub deny_interval_ns: u64,
    /// 1 to 15; changed with every change of the lists.
    pub epoch: u32,
    /// RATE kisses are sent: 0 or 1.
    pub kiss_rate: u8,
    /// There are lists: 0 or 1.
    pub lists: u8,
    /// Clients in no list are denied: 0 or 1.
    pub others_denied: u8,
    /// A listed prefix is longer than that of one client: 0 or 1.
    pub lists_are_finer: u8,
}

/// `struct list_key_ipv4`.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct ListKeyIpv4 {
    pub(crate) length: u32,
    pub(crate) address: [u8; 4],
}

/// `struct list_key_ipv6`.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct ListKeyIpv6 {
    pub(crate) length: u32,
    pub(crate) address: [u8; 16],
}

/// `struct responder_state`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ResponderState {
    pub(crate) answered_ipv4: u64,
    pub(crate) answered_ipv6: u64,
    pub(crate) answered_interleaved: u64,
    pub(crate) known_epoch: u64,
    pub(crate) known_port: u32,
    pub(crate) known_ipv6: u32,
    pub(crate) known_address: [u8; 16],
    pub(crate) known_timeline: u64,
    pub(crate) last_checked_ns: u64,
    pub(crate) passed: [u64; PASSED_REASONS],
    pub(crate) admitted: u64,
    pub(crate) refused: [u64; REFUSALS],
    pub(crate) to_af_xdp: u64,
    pub(crate) answered_ptp: u64,
    pub(crate) answered_ptp_monitor: u64,
    pub(crate) answered_symmetric: u64,
    pub(crate) station_epoch: u64,
    pub(crate) station: [u64; 2],
    pub(crate) reserved: [u64; 2],
}

pub(crate) const DUPLICATE_BITS_LOG2: u32 = 24;
pub(crate) const DUPLICATE_WORDS: u32 = 1 << (DUPLICATE_BITS_LOG2 - 6);

/// Source port of the first lane; the others follow.
pub const LANE_PORT_BASE: u16 = 32768;
/// Most CPUs that may send at once.
pub const LANES_MAX: usize = 64;

/// `RATE_SEGMENTS_MAX`.
pub const RATE_SEGMENTS_MAX: usize = 1 << 14;
/// Buckets of a histogram: `HdrHistogram` with two significant digits up to 2^36 - 1 ns.
pub const HISTOGRAM_BUCKETS: usize = 3840;
/// Entries of the table of exponential quantiles.
pub const EXPONENTIAL_ENTRIES: usize = 65536;
pub(crate) const REQUEST_MAX: usize = 112;
/// `INVALID_REASONS` of `enum invalid_reason`.
pub const INVALID_REASONS: usize = 17;

/// `struct histogram`: values in ns in buckets, with what the buckets lose.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawHistogram {
    /// Values recorded.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// Smallest value, `u64::MAX` if there is none.
    pub min: u64,
    /// Largest value.
    pub max: u64,
    /// Values in each bucket.
    pub buckets: [u64; HISTOGRAM_BUCKETS],
}

/// `struct lane_counts`: counts of one CPU.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LaneCounts {
    /// Valid replies in time.
    pub received: u64,
    /// Further replies to a request that was answered.
    pub duplicate: u64,
    /// Valid replies after the timeout, to requests of this trial.
    pub late: u64,
    /// Of the valid replies in time, those with "unsynchronised".
    pub unsynchronised: u64,
    /// Invalid replies by reason.
    pub invalid: [u64; INVALID_REASONS],
    /// Valid replies to requests of earlier trials.
    pub late_earlier: u64,
    /// Of the valid replies in time, those in interleaved mode.
    pub interleaved: u64,
    /// Requests answered in full, in time or late.
    pub answered: u64,
    /// First PTP delay responses in time.
    pub delay: u64,
    /// Requests whose PTP Sync came in time, and its `Follow_Up` if it has one.
    pub sync_follow_up: u64,
    /// Requests omitted because their phase was over.
    pub left_out: u64,
    /// Send time of the first request of an interval, monotonic, in ns; 0 before, and without
    /// intervals.
    pub first_sent_ns: u64,
    /// Send time of the last request of an interval, monotonic, in ns; 0 likewise.
    pub last_sent_ns: u64,
    pub(crate) reserved: [u64; 3],
    /// Time from the intended send time to the receipt of the reply.
    pub rtt_ns: RawHistogram,
    /// Server's transmit less its receive timestamp.
    pub response_ns: RawHistogram,
    /// Send lateness.
    pub lateness_ns: RawHistogram,
}

/// `OFFSET_HALF_BITS`.
const OFFSET_HALF_BITS: u32 = 18;

/// `struct lane_offset_counts`: offsets of the server's timestamps measured by one CPU.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LaneOffsetCounts {
    pub(crate) squares_high: u64,
    pub(crate) products: u64,
    pub(crate) squares_low: u64,
    /// Magnitudes that were too large for a histogram.
    pub clamped: u64,
    /// Magnitudes of the offsets below zero.
    pub negative: RawHistogram,
    /// Offsets from zero on.
    pub positive: RawHistogram,
}

impl LaneOffsetCounts {
    /// Returns the sum of the squares of all of them.
    #[must_use]
    pub fn squares(&self) -> u128 {
        let [high, products, low] =
            [self.squares_high, self.products, self.squares_low].map(u128::from);
        (high << (2 * OFFSET_HALF_BITS)) + (products << (OFFSET_HALF_BITS + 1)) + low
    }
}

/// `struct lane`: position of a sending CPU in its schedule.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LanePosition {
    /// Monotonic instant that the schedule counts from, in ns.
    pub start_ns: u64,
    /// Next intended send time since the start, in 2^-16 ns.
    pub next: u64,
    /// Mean interval, in 2^-16 ns.
    pub interval: u64,
    /// End of the schedule, in 2^-16 ns since the start.
    pub end: u64,
    /// Monotonic instant after which nothing is sent, in ns.
    pub give_up_ns: u64,
    /// Requests sent.
    pub sent: u64,
    /// Send time of the first request, monotonic, in ns.
    pub first_sent_ns: u64,
    /// Send time of the last request, monotonic, in ns.
    pub last_sent_ns: u64,
    /// Number of the lane.
    pub number: u32,
    /// Sequence number of the next request.
    pub sequence: u32,
    /// Sequence number at which numbering restarts at 0.
    pub sequence_end: u32,
    /// Client of the next request, counted within the lane.
    pub client: u32,
    /// Clients of the lane.
    pub clients: u32,
    /// Clients of the lanes before it.
    pub client_base: u32,
    /// This CPU must send: 0 or 1.
    pub active: u32,
    /// Set to 1 by the program when the schedule has ended.
    pub done: u32,
    /// In a load profile: end of the rate segment, in 2^-16 ns since the start.
    pub segment_end: u64,
    /// In a load profile: instant from which on the rest of the phase is omitted, monotonic, in ns.
    pub phase_over_ns: u64,
    /// Number of the rate segment.
    pub segment: u32,
    /// Number of rate segments; 0 without a load profile.
    pub segments: u32,
    /// Padding that keeps lanes apart in the CPUs' caches.
    pub reserved: [u32; 2],
}

/// `struct rate_segment`: part of a lane's load profile; instants in 2^-16 ns since the start.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RateSegment {
    /// Start of the segment.
    pub begin: u64,
    /// End of the segment.
    pub end: u64,
    /// First request, if intervals are constant; the end if there is none.
    pub first: u64,
    /// Mean interval.
    pub interval: u64,
    /// Instant from which on the rest of the phase is omitted, in ns since the start.
    pub phase_over_ns: u64,
    /// Requests of its phase after this segment.
    pub rest: u64,
    /// Number of the next phase's first segment.
    pub next_phase: u32,
    /// Padding.
    pub reserved: u32,
}

/// `struct client_counts`: requests of one client, and replies to it in time.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ClientCounts {
    /// Requests.
    pub requests: u32,
    /// Requests that were answered in time.
    pub replies: u32,
}

/// `struct generator_config`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct GeneratorConfig {
    pub(crate) key: u64,
    pub(crate) run_start_ns: u64,
    pub(crate) trial_start_ns: u64,
    pub(crate) reply_timeout_ns: u64,
    pub(crate) exponential: u64,
    pub(crate) interface: u32,
    pub(crate) request_len: u32,
    pub(crate) ipv6: u32,
    pub(crate) random_addresses: u32,
    pub(crate) first_client: u32,
    pub(crate) lanes: u32,
    pub(crate) clients_per_lane: u32,
    pub(crate) lanes_with_one_more: u32,
    pub(crate) target_port: [u8; 2],
    pub(crate) version: u8,
    pub(crate) echo: u8,
    pub(crate) interleaved: u8,
    pub(crate) domain: u8,
    pub(crate) reserved: [u8; 2],
    pub(crate) exchange_mask: u32,
    pub(crate) intervals_mask: u32,
    pub(crate) processors: u32,
    pub(crate) reserved2: u32,
    pub(crate) interval_ns: u64,
    pub(crate) first_interval: u64,
    pub(crate) last_interval: u64,
    pub(crate) realtime_ahead_ns: i64,
    pub(crate) offset_correction_ns: i64,
    pub(crate) ip_sum: u64,
    pub(crate) udp_sum: u64,
    pub(crate) target: [u8; 16],
    pub(crate) prefix: [u8; 16],
    pub(crate) request: [u8; REQUEST_MAX],
}

/// `struct sink_count`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct SinkCount {
    pub(crate) frames: u64,
    pub(crate) reserved: [u64; 7],
}

const _: () = {
    assert!(size_of::<ClockSlot>() == 128);
    assert!(size_of::<ClockPage>() == 64 + 4 * 128);
    assert!(size_of::<ListenKey>() == 20);
    assert!(size_of::<StationKey>() == 16);
    assert!(size_of::<QueueRow>() == 8);
    assert!(size_of::<ResponderConfig>() == 56);
    assert!(size_of::<LimitSet>() == 32);
    assert!(size_of::<LimitRules>() == 56);
    assert!(size_of::<ResponderState>() == 256);
    assert!(size_of::<LaneCounts>() == 256 + 3 * (32 + 8 * HISTOGRAM_BUCKETS));
    assert!(size_of::<LaneOffsetCounts>() == 32 + 2 * (32 + 8 * HISTOGRAM_BUCKETS));
    assert!(size_of::<LanePosition>() == 128);
    assert!(size_of::<RateSegment>() == 56);
    assert!(size_of::<ClientCounts>() == 8);
    assert!(size_of::<SinkCount>() == 64);
    assert!(size_of::<GeneratorConfig>() == 152 + 32 + REQUEST_MAX);
};
