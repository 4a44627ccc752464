//! The layouts that stand in BPF maps, as `bpf/abi.h` says them in C. Both sides assert the sizes;
//! whoever changes one changes the other.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct clock_slot` behind its sequence.
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
    pub(crate) hand_over: u8,
    pub(crate) ptp_monitor: u8,
    pub(crate) reserved: [u8; 4],
}

/// `struct limit_set`: four clients, a word each.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct LimitSet {
    pub(crate) words: [u64; LIMIT_WAYS],
}

/// `struct limit_rules`: what clients are held to. A unit is 1,024 ns.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LimitRules {
    /// Units for each request of a client; 0 leaves clients unlimited.
    pub interval: u64,
    /// Units that a client may be ahead of its rate.
    pub tolerance: u64,
    /// Units after which the place of a silent client is free.
    pub idle: u64,
    /// Nanoseconds for each request of a client that has no place, reckoned apart for requests of
    /// one header and for longer ones; 0 leaves them unlimited.
    pub newcomer_interval_ns: u64,
    /// Nanoseconds that all of them together may be ahead of their rate.
    pub newcomer_tolerance_ns: u64,
    /// Nanoseconds between two DENY kisses; 0 sends none.
    pub deny_interval_ns: u64,
    /// 1 to 15; another with every change of the lists.
    pub epoch: u32,
    /// Whether RATE kisses are sent: 0 or 1.
    pub kiss_rate: u8,
    /// Whether there are lists: 0 or 1.
    pub lists: u8,
    /// Whether who is in no list is denied: 0 or 1.
    pub others_denied: u8,
    /// Whether a listed prefix is longer than what counts as one client: 0 or 1.
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
    pub(crate) judged_ns: u64,
    pub(crate) passed: [u64; PASSED_REASONS],
    pub(crate) admitted: u64,
    pub(crate) refused: [u64; REFUSALS],
    pub(crate) handed_over: u64,
    pub(crate) answered_ptp: u64,
    pub(crate) answered_ptp_monitor: u64,
    pub(crate) reserved: [u64; 6],
}

pub(crate) const SEEN_BITS_LOG2: u32 = 24;
pub(crate) const SEEN_WORDS: u32 = 1 << (SEEN_BITS_LOG2 - 6);

/// Source port of the first lane; the others follow.
pub const LANE_PORT_BASE: u16 = 32768;
/// How many processors may send at once.
pub const LANES_MAX: usize = 64;

/// `LEGS_MAX`.
pub const LEGS_MAX: usize = 1 << 14;
/// Buckets of a histogram: `HdrHistogram` with two significant digits up to 2^36 - 1 ns.
pub const HISTOGRAM_BUCKETS: usize = 3840;
/// Entries of the table of exponential quantiles.
pub const EXPONENTIAL_ENTRIES: usize = 65536;
pub(crate) const REQUEST_MAX: usize = 112;
/// `INVALID_REASONS` of `enum invalid_reason`.
pub const INVALID_REASONS: usize = 13;

/// `struct histogram`: values in ns in buckets, with what the buckets lose.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawHistogram {
    /// Values recorded.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// The smallest, `u64::MAX` when there is none.
    pub min: u64,
    /// The largest.
    pub max: u64,
    /// Values in each bucket.
    pub buckets: [u64; HISTOGRAM_BUCKETS],
}

/// `struct tally`: what one processor counted.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Tally {
    /// Valid replies in time.
    pub received: u64,
    /// Further replies to a request that was answered.
    pub duplicate: u64,
    /// Valid replies after the time allowed, to requests of this trial.
    pub late: u64,
    /// Of the valid replies in time, those that say "unsynchronised".
    pub unsynchronised: u64,
    /// Invalid replies by reason.
    pub invalid: [u64; INVALID_REASONS],
    /// Valid replies to requests of earlier trials.
    pub late_earlier: u64,
    /// Of the valid replies in time, those in interleaved mode.
    pub interleaved: u64,
    /// Requests that got all replies that they are owed, in time or late.
    pub answered: u64,
    /// First PTP delay responses in time.
    pub delay: u64,
    /// Requests whose PTP Sync came in time, and its follow-up where it has one.
    pub sync_follow_up: u64,
    /// Requests of a phase that was over before they were made.
    pub left_out: u64,
    /// When the first request of an interval was sent, monotonic, in ns; 0 before, and where there
    /// are no intervals.
    pub first_sent_ns: u64,
    /// The same of the last one.
    pub last_sent_ns: u64,
    pub(crate) reserved: [u64; 7],
    /// From the intended send instant to the receipt of the reply.
    pub rtt_ns: RawHistogram,
    /// The server's transmit less its receive timestamp.
    pub response_ns: RawHistogram,
    /// From the intended to the real send instant.
    pub lateness_ns: RawHistogram,
}

/// `OFFSET_HALF_BITS`.
const OFFSET_HALF_BITS: u32 = 18;

/// `struct offset_tally`: offsets of the server's timestamps that one processor took.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OffsetTally {
    pub(crate) squares_high: u64,
    pub(crate) products: u64,
    pub(crate) squares_low: u64,
    /// Magnitudes that were too large for a histogram.
    pub clamped: u64,
    /// Magnitudes of the offsets below zero.
    pub negative: RawHistogram,
    /// The offsets from zero on.
    pub positive: RawHistogram,
}

impl OffsetTally {
    /// The sum of the squares of all of them.
    #[must_use]
    pub fn squares(&self) -> u128 {
        let [high, products, low] =
            [self.squares_high, self.products, self.squares_low].map(u128::from);
        (high << (2 * OFFSET_HALF_BITS)) + (products << (OFFSET_HALF_BITS + 1)) + low
    }
}

/// `struct lane`: where a sending processor stands in its schedule.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Lane {
    /// Monotonic instant that the schedule counts from, in ns.
    pub start_ns: u64,
    /// Next intended instant since the start, in 2^-16 ns.
    pub next: u64,
    /// Mean interval, in 2^-16 ns.
    pub interval: u64,
    /// No request is intended from here on, in 2^-16 ns since the start.
    pub end: u64,
    /// Monotonic instant from which on nothing is sent at all, in ns.
    pub give_up_ns: u64,
    /// Requests sent.
    pub sent: u64,
    /// When the first was sent, monotonic, in ns.
    pub first_sent_ns: u64,
    /// When the last was sent, monotonic, in ns.
    pub last_sent_ns: u64,
    /// The lane's number.
    pub number: u32,
    /// Sequence number of the next request.
    pub sequence: u32,
    /// Where the sequence starts again at 0.
    pub sequence_end: u32,
    /// Client of the next request, counted within the lane.
    pub client: u32,
    /// Clients that the lane plays.
    pub clients: u32,
    /// Clients that the lanes before it play.
    pub client_base: u32,
    /// Whether this processor is to send: 0 or 1.
    pub active: u32,
    /// Set to 1 by the program when the schedule has ended.
    pub done: u32,
    /// On a course: where its leg ends, in 2^-16 ns since the start.
    pub leg_end: u64,
    /// On a course: from when on what is left of its phase is left out, monotonic, in ns.
    pub phase_over_ns: u64,
    /// The number of its leg.
    pub leg: u32,
    /// How many there are; 0 without a course.
    pub legs: u32,
    /// Keeps lanes apart in the processors' caches.
    pub reserved: [u32; 2],
}

/// `struct leg`: a part of a lane's course with one rate; instants in 2^-16 ns since the start.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Leg {
    /// Where it begins.
    pub begin: u64,
    /// Where it ends.
    pub end: u64,
    /// Its first request, where intervals are constant; its end where it has none.
    pub first: u64,
    /// Mean interval.
    pub interval: u64,
    /// From when on what is left of its phase is left out, in ns since the start.
    pub phase_over_ns: u64,
    /// Requests of its phase behind this leg.
    pub rest: u64,
    /// The number of the next phase's first leg.
    pub next_phase: u32,
    /// Nothing.
    pub reserved: u32,
}

/// `struct asked_answered`: what one client asked, and was answered in time.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct AskedAnswered {
    /// Requests.
    pub asked: u32,
    /// Requests that were answered in time.
    pub answered: u32,
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
    pub(crate) random_room: u32,
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
    pub(crate) books_mask: u32,
    pub(crate) processors: u32,
    pub(crate) reserved2: u32,
    pub(crate) interval_ns: u64,
    pub(crate) first_book: u64,
    pub(crate) last_book: u64,
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
    assert!(size_of::<QueueRow>() == 8);
    assert!(size_of::<ResponderConfig>() == 56);
    assert!(size_of::<LimitSet>() == 32);
    assert!(size_of::<LimitRules>() == 56);
    assert!(size_of::<ResponderState>() == 256);
    assert!(size_of::<Tally>() == 256 + 3 * (32 + 8 * HISTOGRAM_BUCKETS));
    assert!(size_of::<OffsetTally>() == 32 + 2 * (32 + 8 * HISTOGRAM_BUCKETS));
    assert!(size_of::<Lane>() == 128);
    assert!(size_of::<Leg>() == 56);
    assert!(size_of::<AskedAnswered>() == 8);
    assert!(size_of::<SinkCount>() == 64);
    assert!(size_of::<GeneratorConfig>() == 152 + 32 + REQUEST_MAX);
};
