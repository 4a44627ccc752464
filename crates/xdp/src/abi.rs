//! Layouts of the BPF maps, as `bpf/abi.h` defines them in C. Both sides assert the sizes; a change
//! to one requires a change to the other.

use horolog_stats::buckets::COUNTS as HISTOGRAM_BUCKETS;
use horolog_stats::{Histogram, SignedHistogram};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Fields of `struct clock_slot` after its sequence: the clock values of one timeline.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ClockSlotFields {
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

/// `struct clock_slot`: clock values with a sequence lock (odd while they are written).
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ClockSlot {
    pub(crate) sequence: u64,
    pub(crate) fields: ClockSlotFields,
}

/// `struct clock_page`: two sets of slots, one of which is active; a set has one slot for each
/// timeline.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ClockPage {
    pub(crate) active: u64,
    pub(crate) listen_epoch: u64,
    pub(crate) reserved: [u64; 6],
    pub(crate) slots: [[ClockSlot; TIMELINES]; 2],
}

/// `TIMELINES`: number of timelines, which are UTC with leap seconds stepped and UTC with them
/// smeared.
pub(crate) const TIMELINES: usize = 2;

/// `struct listen_key`: address and port at which requests are answered.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ListenKey {
    pub(crate) address: [u8; 16],
    pub(crate) port: [u8; 2],
    pub(crate) reserved: [u8; 2],
}

/// `struct station`: MAC address, VLAN and interface at which this host accepts frames.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct StationKey {
    pub(crate) interface: u32,
    pub(crate) protocol: [u8; 2],
    pub(crate) identifier: [u8; 2],
    pub(crate) mac: [u8; 6],
    pub(crate) padding: [u8; 2],
}

/// `XSK_FRAME_MAX`: longest frame redirected to an `AF_XDP` socket, in bytes.
pub(crate) const XSK_FRAME_MAX: usize = 2048 - 256;

/// `struct queue_row`: range of one interface's `AF_XDP` sockets in the map of all queues.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct SocketRange {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// `struct ptp_port_key`: interface and transport of a PTP port.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct PtpPortKey {
    pub(crate) interface: u32,
    pub(crate) transport: u32,
}

/// `struct ptp_client_key`: key of the longest-prefix-match map of clients permitted to use
/// `NetSync` Monitor, with the port at which they may.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct PtpMonitorClientPrefix {
    pub(crate) length: u32,
    pub(crate) port: PtpPortKey,
    pub(crate) address: [u8; 16],
}

pub(crate) const PTP_PORT_MULTICAST: u8 = 1;
pub(crate) const PTP_PORT_HYBRID: u8 = 2;
pub(crate) const PTP_PORT_MONITOR: u8 = 4;

/// `PTP_MONITOR_LEN`: length of the `NetSync` Monitor TLV in bytes, by the length of its address.
pub(crate) const fn ptp_monitor_len(address_len: usize) -> usize {
    74 + address_len
}

pub(crate) const PTP_MONITOR_MAX: usize = 96;

/// `struct ptp_port`: fields of a PTP port for its replies.
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

/// Number of reasons in `enum passed_reason`.
pub(crate) const PASSED_REASONS: usize = 8;
/// Number of refusals in `enum admission`.
pub(crate) const REFUSALS: usize = 5;
/// `LIST_PREFIXES_MAX`: most prefixes in the allow and deny lists; the map of each IP version holds
/// twice as many during a change.
pub const LIST_PREFIXES_MAX: usize = 1 << 20;
/// `LIMIT_WAYS`: clients in one set of the set-associative rate-limit table.
pub(crate) const LIMIT_WAYS: usize = 4;
pub(crate) const LISTED_ALLOWED: u8 = 1;
pub(crate) const LISTED_DENIED: u8 = 2;

/// `struct responder_config`: constants of a loaded responder.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawResponderConfig {
    pub(crate) hash_key: [u64; 2],
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

/// `struct limit_set`: one set of the rate-limit table, with one word for each of its clients.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct LimitTableSet {
    pub(crate) words: [u64; LIMIT_WAYS],
}

/// `struct limit_rules`: rate limits of clients. Times are in units of 1,024 ns unless the name
/// ends in `_ns`.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LimitRules {
    /// Cost of each request of a client, in units of 1,024 ns; 0 sets no limit.
    pub interval: u64,
    /// Time by which a client may be ahead of its rate (tolerance of the GCRA), in units of 1,024
    /// ns.
    pub tolerance: u64,
    /// Time without a request after which the entry of a client may be reused, in units of 1,024
    /// ns.
    pub idle: u64,
    /// Cost of a request of a new client, in ns; 0 sets no limit. Requests of exactly one header
    /// and longer ones are limited separately.
    pub new_client_interval_ns: u64,
    /// Time by which all new clients together may be ahead of their rate, in ns.
    pub new_client_tolerance_ns: u64,
    /// Least time between two DENY kisses (`KoD`), in ns; 0 sends none.
    pub deny_interval_ns: u64,
    /// Epoch of the lists, 1 to 15: an entry of the rate-limit table from another epoch is checked
    /// against the lists again.
    pub epoch: u32,
    /// 1 if RATE kisses (`KoD`) are sent, otherwise 0.
    pub kiss_rate: u8,
    /// 1 if there are allow or deny lists, otherwise 0.
    pub lists: u8,
    /// 1 if clients in no list are denied, otherwise 0.
    pub others_denied: u8,
    /// 1 if a listed prefix is longer than the prefix that counts as one client, otherwise 0.
    pub lists_are_finer: u8,
}

/// `struct list_key_ipv4`: key of the longest-prefix-match map of IPv4 lists.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct PrefixListKeyIpv4 {
    pub(crate) length: u32,
    pub(crate) address: [u8; 4],
}

/// `struct list_key_ipv6`: key of the longest-prefix-match map of IPv6 lists.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct PrefixListKeyIpv6 {
    pub(crate) length: u32,
    pub(crate) address: [u8; 16],
}

/// `struct responder_state`: counters and cached lookups of one CPU.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ResponderCpuState {
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

/// `RATE_SEGMENTS_MAX`: most rate segments of a lane.
pub const RATE_SEGMENTS_MAX: usize = 1 << 14;
/// Entries of the table of exponential quantiles.
pub const EXPONENTIAL_ENTRIES: usize = 65536;
pub(crate) const REQUEST_MAX: usize = 112;
/// Number of reasons in `enum invalid_reason`.
pub const INVALID_REASONS: usize = 17;

/// `struct histogram`: values in ns by bucket, with their exact count, sum and extremes.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawHistogram {
    /// Number of values recorded.
    pub count: u64,
    /// Sum of the values, in ns.
    pub sum: u64,
    /// Smallest value in ns, `u64::MAX` if there is none.
    pub min: u64,
    /// Largest value in ns, 0 if there is none.
    pub max: u64,
    /// Number of values in each bucket.
    pub buckets: [u64; HISTOGRAM_BUCKETS],
}

impl RawHistogram {
    /// Returns the histogram; empty if the counts are damaged.
    #[must_use]
    pub fn to_histogram(&self) -> Histogram {
        Histogram::from_raw(&self.buckets, self.sum.into(), self.min, self.max).unwrap_or_default()
    }
}

/// `struct lane_counts`: replies, and send times of requests, counted by one CPU in one interval.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LaneCounts {
    /// Valid replies within the timeout.
    pub received: u64,
    /// Further replies to a request that already had one.
    pub duplicate: u64,
    /// Valid replies after the timeout, to requests of this trial.
    pub late: u64,
    /// Valid replies within the timeout whose leap indicator is 3 (unsynchronised).
    pub unsynchronised: u64,
    /// Invalid replies, in the order of `enum invalid_reason`.
    pub invalid: [u64; INVALID_REASONS],
    /// Valid replies to requests of earlier trials.
    pub late_earlier: u64,
    /// Valid replies within the timeout in interleaved mode.
    pub interleaved: u64,
    /// Requests with all their replies, within the timeout or late.
    pub answered: u64,
    /// First PTP delay responses to a request, within the timeout.
    pub delay: u64,
    /// Requests whose PTP Sync, and `Follow_Up` of a two-step Sync, came within the timeout.
    pub sync_follow_up: u64,
    /// Requests omitted because the end of their phase had passed.
    pub omitted: u64,
    /// Send time of the first request of an interval on the monotonic clock, in ns; 0 before it,
    /// and if there are no intervals.
    pub first_sent_ns: u64,
    /// Send time of the last request of an interval on the monotonic clock, in ns; 0 before it, and
    /// if there are no intervals.
    pub last_sent_ns: u64,
    pub(crate) reserved: [u64; 3],
    /// Round trip: time from the intended send time of a request to the receipt of its reply, in
    /// ns.
    pub rtt_ns: RawHistogram,
    /// Response time of the server: its transmit timestamp minus its receive timestamp, in ns.
    pub response_ns: RawHistogram,
    /// Send lateness of requests: actual minus intended send time, in ns.
    pub lateness_ns: RawHistogram,
}

/// `OFFSET_HALF_BITS`: width of the lower half into which an offset is split for its square.
const OFFSET_HALF_BITS: u32 = 18;

/// `struct lane_offset_counts`: offsets of the server's timestamps measured by one CPU, in ns.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LaneServerOffsetCounts {
    pub(crate) squares_high: u64,
    pub(crate) products: u64,
    pub(crate) squares_low: u64,
    /// Offsets whose magnitude exceeded the range of the histograms; counted at its end.
    pub clamped: u64,
    /// Magnitudes of the negative offsets.
    pub negative: RawHistogram,
    /// Non-negative offsets.
    pub positive: RawHistogram,
}

impl LaneServerOffsetCounts {
    /// Returns the histogram of the offsets.
    #[must_use]
    pub fn to_histogram(&self) -> SignedHistogram {
        let [high, products, low] =
            [self.squares_high, self.products, self.squares_low].map(u128::from);
        let squares = (high << (2 * OFFSET_HALF_BITS)) + (products << (OFFSET_HALF_BITS + 1)) + low;
        let [negative, positive] = [&self.negative, &self.positive].map(RawHistogram::to_histogram);
        SignedHistogram::from_parts(negative, positive, squares, self.clamped)
    }
}

/// `struct lane`: schedule and progress of the generator's lane that a CPU sends.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct GeneratorLane {
    /// Start of the schedule on the monotonic clock, in ns.
    pub start_ns: u64,
    /// Next intended send time since the start, in 2^-16 ns.
    pub next: u64,
    /// Mean interval between requests, in 2^-16 ns.
    pub interval: u64,
    /// End of the schedule, in 2^-16 ns since the start.
    pub end: u64,
    /// Instant on the monotonic clock after which nothing more is sent, in ns.
    pub give_up_ns: u64,
    /// Number of requests sent since the schedule was set.
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
    /// Next client, counted within the lane from 0.
    pub client: u32,
    /// Number of clients of the lane.
    pub clients: u32,
    /// Number of clients of all lanes before this one.
    pub client_base: u32,
    /// 1 if this CPU sends, otherwise 0.
    pub active: u32,
    /// Flag that the program sets to 1 at the end of the schedule or at `give_up_ns`.
    pub done: u32,
    /// End of the present rate segment of a load profile, in 2^-16 ns since the start.
    pub segment_end: u64,
    /// Instant on the monotonic clock after which the rest of the phase of a load profile is
    /// omitted, in ns.
    pub phase_over_ns: u64,
    /// Number of the present rate segment.
    pub segment: u32,
    /// Number of rate segments; 0 without a load profile.
    pub segments: u32,
    /// Padding that keeps lanes apart in the CPUs' caches.
    pub reserved: [u32; 2],
}

/// `struct rate_segment`: piece of a lane's load profile with one rate; times in 2^-16 ns since the
/// start.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RateSegment {
    /// Start of the segment, in 2^-16 ns since the start of the schedule.
    pub begin: u64,
    /// End of the segment, in 2^-16 ns since the start of the schedule.
    pub end: u64,
    /// Intended send time of the first request if requests are evenly spaced, in 2^-16 ns since the
    /// start of the schedule; the end of the segment if there is none.
    pub first: u64,
    /// Mean interval between requests, in 2^-16 ns.
    pub interval: u64,
    /// Instant after which the rest of the phase is omitted, in ns since the start of the schedule.
    pub phase_over_ns: u64,
    /// Number of requests of the phase after this segment.
    pub remaining_requests: u64,
    /// Number of the next phase's first segment.
    pub next_phase: u32,
    /// Padding to a multiple of 8 bytes.
    pub reserved: u32,
}

/// `struct client_counts`: counts of one simulated client.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ClientCounts {
    /// Requests sent.
    pub requests: u32,
    /// Requests answered within the timeout.
    pub replies: u32,
}

/// `struct generator_config`: constant settings of a run and of the present trial.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawGeneratorConfig {
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
    pub(crate) realtime_minus_monotonic_ns: i64,
    pub(crate) offset_correction_ns: i64,
    pub(crate) ip_sum: u64,
    pub(crate) udp_sum: u64,
    pub(crate) target: [u8; 16],
    pub(crate) prefix: [u8; 16],
    pub(crate) request: [u8; REQUEST_MAX],
}

/// `struct sink_count`: frames counted by one CPU.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct SinkFrameCount {
    pub(crate) frames: u64,
    pub(crate) reserved: [u64; 7],
}

const _: () = {
    assert!(size_of::<ClockSlot>() == 128);
    assert!(size_of::<ClockPage>() == 64 + 4 * 128);
    assert!(size_of::<ListenKey>() == 20);
    assert!(size_of::<StationKey>() == 16);
    assert!(size_of::<SocketRange>() == 8);
    assert!(size_of::<RawResponderConfig>() == 56);
    assert!(size_of::<LimitTableSet>() == 32);
    assert!(size_of::<LimitRules>() == 56);
    assert!(size_of::<ResponderCpuState>() == 256);
    assert!(size_of::<LaneCounts>() == 256 + 3 * (32 + 8 * HISTOGRAM_BUCKETS));
    assert!(size_of::<LaneServerOffsetCounts>() == 32 + 2 * (32 + 8 * HISTOGRAM_BUCKETS));
    assert!(size_of::<GeneratorLane>() == 128);
    assert!(size_of::<RateSegment>() == 56);
    assert!(size_of::<ClientCounts>() == 8);
    assert!(size_of::<SinkFrameCount>() == 64);
    assert!(size_of::<RawGeneratorConfig>() == 152 + 32 + REQUEST_MAX);
};
