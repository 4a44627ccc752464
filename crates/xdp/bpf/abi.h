/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Layouts of the maps shared by the BPF programs and user space. src/abi.rs defines the same in
 * Rust, and both sides assert the sizes. A change to one requires a change to the other.
 *
 * All fields are in host byte order unless their type says big-endian.
 */
#ifndef HOROLOG_ABI_H
#define HOROLOG_ABI_H

#include <linux/types.h>

/* ---- the responder ---- */

/* Around a leap second: UTC jumps, a smeared clock runs a little slower or faster for a day. */
#define TIMELINES 2
#define TIMELINE_STEPPED 0

/* Complete set of the clock values of a reply on one timeline, and its time base. The fields read
 * for every reply are in the first 64 bytes, except the instant of the step. */
struct clock_slot {
	__u64 sequence;		/* odd while the slot is being written */
	__u64 anchor_ns;	/* monotonic instant of the anchor */
	__u64 ntp_at_anchor;	/* NTP time at the anchor, 32.32 */
	__u64 expires_ns;	/* monotonic instant from which on it must not be served */
	__u32 rate;		/* NTP units per ns, scaled by 2^29 */
	__u8 leap;
	__u8 stratum;
	__s8 precision;
	__u8 leap_after;	/* instead of leap from the step on */
	__be32 root_delay;
	__be32 root_dispersion;
	__be32 reference_id;
	__s16 tai_minus_utc_s;	/* before the step; PTP counts TAI ... */
	__u16 tai_is_known;	/* ... or UTC where this is 0 */
	__be64 reference;
	__u64 step_at_ns;	/* monotonic instant from which on ... */
	__u64 step;		/* ... this much of NTP time is added, modulo 2^64 */
	__u64 reserved2[6];
};
_Static_assert(sizeof(struct clock_slot) == 128, "clock_slot");

struct clock_page {
	__u64 active;		/* slot to be read, 0 or 1 */
	__u64 listen_epoch;	/* grows with every change of the listen set */
	__u64 reserved[6];
	struct clock_slot slots[2][TIMELINES];
};
_Static_assert(sizeof(struct clock_page) == 64 + 2 * TIMELINES * 128, "clock_page");

/* Address and port at which requests are answered; an IPv4 address is mapped (::ffff:a.b.c.d). */
struct listen_key {
	__u8 address[16];
	__be16 port;
	__u16 reserved;
};
_Static_assert(sizeof(struct listen_key) == 20, "listen_key");

/* MAC address of this host at an interface, in a VLAN with its tag's identifier or, with zeroes, in
 * none. */
#define VLAN_IDENTIFIER 0x0fff
struct station {
	__u32 interface;
	__be16 protocol;
	__be16 identifier;
	__u8 mac[6];
	__u8 padding[2];
};
_Static_assert(sizeof(struct station) == 16, "station");

/* Longest frame that an AF_XDP socket accepts: its buffer less the headroom that the kernel
 * requires. */
#define XSK_FRAME_MAX (2048 - 256)

/* AF_XDP sockets of an interface in the map of all: index of the first, and their number. */
struct queue_row {
	__u32 first;
	__u32 count;
};
_Static_assert(sizeof(struct queue_row) == 8, "queue_row");

/* Reason for which a frame was passed to the network stack. */
enum passed_reason {
	PASSED_NOT_NTP,		/* not UDP over IP to a served address and port, or in a VLAN
				 * that this host has no interface in */
	PASSED_MALFORMED,	/* lengths or a checksum do not fit, or trailing bytes */
	PASSED_FRAGMENT,	/* a fragment of a packet */
	PASSED_ADDRESS,		/* a source that must not be answered, or a group address */
	PASSED_LENGTH,		/* not exactly one NTP header */
	PASSED_REQUEST,		/* a version or mode that is not answered here */
	PASSED_NO_CLOCK,	/* the clock page has expired */
	PASSED_INTERLEAVED,	/* the sockets have better transmit timestamps for it */
	PASSED_REASONS,
};

/* Decision about a client before anything else. */
enum admission {
	DROP_LIMITED,		/* the client exceeded its rate */
	DROP_DENIED,		/* the lists deny it */
	DROP_NEW_CLIENTS,	/* too many new clients */
	KISS_RATE,		/* it exceeded its rate and gets a RATE kiss, once */
	KISS_DENY,		/* the lists deny it, and it gets a DENY kiss */
	REFUSALS,
	ADMIT = REFUSALS,
};

/* Constant settings of a loaded program. */
struct responder_config {
	__u64 hash_key[2];	/* of the hash of addresses */
	__u64 ipv4_mask;	/* of the bits that identify a client; words as in a packet */
	__u64 ipv6_mask[2];
	__u32 limit_sets_mask;	/* number of sets less 1; the number is a power of two */
	__u32 interleaved_mask;	/* the same of the table for interleaved mode */
	__u8 limits;		/* 1 if there are limits or lists */
	__u8 interleaved;	/* 1 if there is state for interleaved mode */
	__u8 redirect_long;	/* 1 if longer requests are redirected to AF_XDP sockets */
	__u8 ptp_monitor;	/* 1 if NetSync Monitor requests are answered */
	__u8 reserved[4];
};
_Static_assert(sizeof(struct responder_config) == 56, "responder_config");

/*
 * One word for each client, 0 for an empty entry: 16 bits of the hash, 4 of the lists' epoch of the
 * client's last lookup (1 to 15; 0 if another lookup is due), 1 that is set if it was sent a kiss
 * since its last reply, and 43 of the theoretical arrival time (GCRA, ITU-T I.371, annex A) in
 * units of 1,024 ns, modulo 104 days.
 */
#define LIMIT_WAYS 4
#define LIMIT_UNIT_SHIFT 10
#define ARRIVAL_MASK ((1ULL << 43) - 1)
#define KISSED (1ULL << 43)
#define EPOCH_SHIFT 44
#define TAG_MASK (0xffffULL << 48)

struct limit_set {
	__u64 words[LIMIT_WAYS];
};
_Static_assert(sizeof(struct limit_set) == 32, "limit_set");

/* Limits of the clients; user space changes them while the program runs. */
struct limit_rules {
	__u64 interval;		/* units of 1,024 ns for each request; 0: no limit */
	__u64 tolerance;	/* units that a client may be ahead of its rate */
	__u64 idle;		/* units after which an idle client's entry is free */
	__u64 new_client_interval_ns; /* for each request of a new client; 0: no limit */
	__u64 new_client_tolerance_ns;
	__u64 deny_interval_ns;	/* between two DENY kisses; 0: none is sent */
	__u32 epoch;		/* 1 to 15; incremented with every change of the lists */
	__u8 kiss_rate;		/* 1 if RATE kisses are sent */
	__u8 lists;		/* 1 if there are lists */
	__u8 others_denied;	/* 1 if clients in no list are denied */
	__u8 lists_are_finer;	/* a listed prefix is longer than that of one client */
};
_Static_assert(sizeof(struct limit_rules) == 56, "limit_rules");

/* Theoretical arrival times that all clients share, in ns, each on its own cache lines. */
struct limit_totals {
	__u64 new_clients;	/* requests of one header ... */
	__u64 reserved[15];
	__u64 long_new_clients;	/* ... or longer */
	__u64 reserved2[15];
	__u64 denials;
	__u64 reserved3[15];
};
_Static_assert(sizeof(struct limit_totals) == 384, "limit_totals");

#define LIST_PREFIXES_MAX (1U << 20)
#define LISTED_ALLOWED 1
#define LISTED_DENIED 2

struct list_key_ipv4 {
	__u32 length;
	__u8 address[4];
};

struct list_key_ipv6 {
	__u32 length;
	__u8 address[16];
};

/* State of a client's last reply: see horolog_server::InterleavedTable. */
struct interleaved_slot {
	__u64 both;		/* receive ^ transmit timestamp */
	__u64 transmit;
};
_Static_assert(sizeof(struct interleaved_slot) == 16, "interleaved_slot");

/* State of one CPU, which is its only writer. The first cache line serves every reply. */
struct responder_state {
	__u64 answered_ipv4;
	__u64 answered_ipv6;
	__u64 answered_interleaved; /* included above */
	__u64 known_epoch;	/* the listen set's epoch at which ... */
	__u32 known_port;	/* ... this port (as in the packet) and ... */
	__u32 known_ipv6;	/* ... (whether of IPv6) ... */
	__be32 known_address[4];/* ... this address were found in it, with ... */
	__u64 known_timeline;	/* ... this timeline */
	__u64 last_checked_ns;	/* last check of limits and lists; 0 before the first */
	__u64 passed[PASSED_REASONS];
	__u64 admitted;		/* requests that passed limits and lists */
	__u64 refused[REFUSALS];
	__u64 to_af_xdp;	/* longer requests redirected to AF_XDP sockets */
	__u64 answered_ptp;	/* delay requests */
	__u64 answered_ptp_monitor; /* NetSync Monitor requests */
	__u64 answered_symmetric; /* answered in symmetric passive mode, included above */
	__u64 station_epoch;	/* the listen set's epoch at which ... */
	__u64 station[2];	/* ... this MAC address was found to be this host's */
	__u64 reserved[2];
};
_Static_assert(sizeof(struct responder_state) == 256, "responder_state");

/* ---- PTP ---- */

/* Seconds from the epoch of NTP to that of PTP, modulo 2^32. */
#define PTP_EPOCH_IN_NTP 2208988800U
/* Version of the messages sent, with the minor one, and the interval of those that have none. */
#define PTP_VERSION_SENT 0x12
#define PTP_NO_INTERVAL 0x7f

enum ptp_transport {
	PTP_OVER_IPV4,
	PTP_OVER_IPV6,
	PTP_OVER_ETHERNET,
};

struct ptp_port_key {
	__u32 interface;
	__u32 transport;
};
_Static_assert(sizeof(struct ptp_port_key) == 8, "ptp_port_key");

struct ptp_address {
	__u8 bytes[16];
};

/* Client whose NetSync Monitor requests are answered: a prefix of its address, at a port. An IPv4
 * address is in the first four bytes. */
struct ptp_client_key {
	__u32 length;		/* of the prefix and the port, in bits */
	struct ptp_port_key port;
	__u8 address[16];
};
_Static_assert(sizeof(struct ptp_client_key) == 28, "ptp_client_key");

/* Requests that a port answers: to the group, to itself, and of NetSync Monitor. */
#define PTP_PORT_MULTICAST 1
#define PTP_PORT_HYBRID 2
#define PTP_PORT_MONITOR 4

/* Lengths of the TLV in replies to NetSync Monitor, by the length of its address. */
#define PTP_MONITOR_LEN(address_len) (74 + (address_len))
#define PTP_MONITOR_MAX 96

/* A port in master state. */
struct ptp_port {
	__be64 clock;		/* its identity */
	__be16 port;		/* its number */
	__u8 domain;
	__u8 sdo_major;		/* four bits */
	__u8 sdo_minor;
	__s8 log_min_delay_req;
	__u8 flags;
	__u8 reserved;
	__u8 mac[6];
	__u8 reserved2[2];
	__u8 address[16];	/* source of replies to the group; IPv4 is mapped */
	__u8 monitor[PTP_MONITOR_MAX]; /* TLV in replies to NetSync Monitor, and zeroes */
};
_Static_assert(sizeof(struct ptp_port) == 136, "ptp_port");

/* ---- the generator ---- */

/* Protocol of the requests. */
enum protocol {
	PROTOCOL_NTP,
	PROTOCOL_PTP_DELAY,	/* the delay request-response mechanism */
	PROTOCOL_PTP_MONITOR,	/* the same with linuxptp's NetSync Monitor */
};

/* Time, sequence number, and the bit that distinguishes a request's timestamps: TOKEN_RECEIVE or 0.
 */
#define TOKEN_SEQUENCE_BITS 27
#define TOKEN_SEQUENCE_MASK ((1ULL << TOKEN_SEQUENCE_BITS) - 1)
#define TOKEN_SEQUENCE_SHIFT 1
#define TOKEN_TIME_SHIFT 28
#define TOKEN_RECEIVE 1
#define TOKEN_TIME_MASK ((1ULL << 36) - 1)

/* Bits of one lane that detect a duplicate reply to the same request. */
#define DUPLICATE_BITS_LOG2 24
#define DUPLICATE_WORDS (1U << (DUPLICATE_BITS_LOG2 - 6))

#define LANE_PORT_BASE 32768
#define LANES_MAX 64

/* HdrHistogram's layout with two significant digits up to 2^36 - 1. */
#define HISTOGRAM_BUCKETS 3840
#define HISTOGRAM_MAX ((1ULL << 36) - 1)

#define EXPONENTIAL_ENTRIES 65536

/* Ethernet, IPv6, UDP and NTP, or a NetSync Monitor request, which is shorter by 2. */
#define REQUEST_MAX 112

struct histogram {
	__u64 count;
	__u64 sum;
	__u64 min;
	__u64 max;
	__u64 buckets[HISTOGRAM_BUCKETS];
};

enum invalid_reason {
	INVALID_LENGTH,
	INVALID_MODE,
	INVALID_VERSION,
	INVALID_ORIGIN,
	INVALID_CLIENT,
	INVALID_STRATUM,
	INVALID_LEAP,
	INVALID_TIMESTAMP,
	INVALID_DOMAIN,
	INVALID_FLAGS,
	INVALID_SEQUENCE,
	INVALID_SOURCE,
	INVALID_MONITOR,
	INVALID_KISS_RATE,
	INVALID_KISS_DENY,
	INVALID_KISS_RSTR,
	INVALID_KISS_OTHER,
	INVALID_REASONS,
};

/* Counts of one CPU, which is their only writer. */
struct lane_counts {
	__u64 received;
	__u64 duplicate;
	__u64 late;
	__u64 unsynchronised;
	__u64 invalid[INVALID_REASONS];
	__u64 late_earlier;	/* to requests of earlier trials */
	__u64 interleaved;	/* received replies in interleaved mode */
	__u64 answered;		/* requests answered in full, in time or late */
	__u64 delay;		/* first valid replies in time to delay requests */
	__u64 sync_follow_up;	/* requests with Sync, and Follow_Up if any, received in time */
	__u64 omitted;		/* requests omitted because their phase was over */
	__u64 first_sent_ns;	/* in the counts of an interval only; 0 before the first */
	__u64 last_sent_ns;
	__u64 reserved[3];
	struct histogram rtt_ns;
	struct histogram response_ns;
	struct histogram lateness_ns;
};
_Static_assert(sizeof(struct lane_counts) == 256 + 3 * (32 + 8 * HISTOGRAM_BUCKETS), "lane_counts");

/* Bits of the lower half of a magnitude, of 36 bits, so that their squares add up in 64 bits. */
#define OFFSET_HALF_BITS 18

/* Offsets of the server's timestamps measured by one CPU, which is their only writer. */
struct lane_offset_counts {
	__u64 squares_high;	/* sums of the squares of the magnitudes' upper halves, ... */
	__u64 products;		/* ... of the halves' products ... */
	__u64 squares_low;	/* ... and of the squares of the lower ones */
	__u64 clamped;		/* magnitudes above HISTOGRAM_MAX, counted as that */
	struct histogram negative; /* magnitudes of the negative ones */
	struct histogram positive;
};
_Static_assert(sizeof(struct lane_offset_counts) == 32 + 2 * (32 + 8 * HISTOGRAM_BUCKETS),
	       "lane_offset_counts");

/* Sending CPU: its position in its schedule. */
struct lane {
	__u64 start_ns;		/* monotonic instant that the schedule counts from */
	__u64 next;		/* next intended send time since start_ns, in 2^-16 ns */
	__u64 interval;		/* mean interval, in 2^-16 ns */
	__u64 end;		/* end of the schedule, in 2^-16 ns */
	__u64 give_up_ns;	/* monotonic instant after which nothing is sent */
	__u64 sent;
	__u64 first_sent_ns;
	__u64 last_sent_ns;
	__u32 number;		/* 0 .. LANES_MAX - 1 */
	__u32 sequence;		/* of the next request */
	__u32 sequence_end;	/* sequence number at which numbering restarts at 0 */
	__u32 client;		/* of the next request, counted within this lane */
	__u32 clients;		/* clients of this lane */
	__u32 client_base;	/* clients of the lanes before it */
	__u32 active;		/* 1 if this CPU must send */
	__u32 done;		/* set by the program when its schedule has ended */
	__u64 segment_end;	/* in a load profile: end of this segment, in 2^-16 ns, ... */
	__u64 phase_over_ns;	/* ... when the rest of its phase is omitted, monotonic, ... */
	__u32 segment;		/* ... and its number */
	__u32 segments;		/* number of segments; 0 without a load profile */
	__u32 reserved[2];
};
_Static_assert(sizeof(struct lane) == 128, "lane");

/* Most rate segments of a lane's load profile. */
#define RATE_SEGMENTS_MAX (1U << 14)

/* Rate segment of a lane's load profile: instants in 2^-16 ns since the lane's start. */
struct rate_segment {
	__u64 begin;
	__u64 end;
	__u64 first;		/* first request, with constant intervals; the end if none */
	__u64 interval;		/* mean interval */
	__u64 phase_over_ns;	/* since the start: the rest of its phase is omitted from here on */
	__u64 remaining_requests;	/* requests of its phase after this segment */
	__u32 next_phase;	/* number of the next phase's first segment */
	__u32 reserved;
};
_Static_assert(sizeof(struct rate_segment) == 56, "rate_segment");

/* Requests of one client, and replies to it in time. */
struct client_counts {
	__u32 requests;
	__u32 replies;
};
_Static_assert(sizeof(struct client_counts) == 8, "client_counts");

/* Constant settings of a run, or of a trial. */
struct generator_config {
	__u64 key;		/* whitens the token */
	__u64 run_start_ns;	/* no request is older than this */
	__u64 trial_start_ns;	/* replies to older requests are late */
	__u64 reply_timeout_ns;
	__u64 exponential;	/* 1 if intervals are exponentially distributed */
	__u32 interface;	/* index of the interface to send by */
	__u32 request_len;	/* bytes of the frame */
	__u32 ipv6;
	__u32 random_addresses;	/* 0: clients in turn; otherwise scattered over this number */
	__u32 first_client;	/* low 32 bits of the first simulated address, host order */
	__u32 lanes;
	__u32 clients_per_lane;	/* every lane has this many ... */
	__u32 lanes_with_one_more; /* ... and the first few one more */
	__be16 target_port;
	__u8 version;
	__u8 echo;		/* the target returns requests unchanged: a reflector */
	__u8 interleaved;	/* requests are in interleaved mode */
	__u8 domain;		/* PTP domain */
	__u8 reserved[2];
	__u32 exchange_mask;	/* exchanges stored for each lane, a power of two, less 1 */
	__u32 intervals_mask;	/* interval counts of each CPU, a power of two, less 1 */
	__u32 processors;	/* number of CPUs with counts */
	__u32 reserved2;
	__u64 interval_ns;	/* length of an interval; 0: one set of counts for all */
	__u64 first_interval;	/* numbers of the first and the last open interval */
	__u64 last_interval;
	__s64 realtime_minus_monotonic_ns; /* of the monotonic clock */
	__s64 offset_correction_ns; /* subtracted from every offset */
	__u64 ip_sum;		/* sum of the IPv4 header's words but source and checksum */
	__u64 udp_sum;		/* sum of the constant words of pseudo-header, UDP and payload */
	__u8 target[16];	/* server's address; IPv4 in the first 4 bytes */
	__u8 prefix[16];	/* IPv6 prefix of the clients; the low 32 bits are replaced */
	__u8 request[REQUEST_MAX]; /* frame, complete except for the fields that change */
};
_Static_assert(sizeof(struct generator_config) == 152 + 32 + REQUEST_MAX, "generator_config");

/* ---- the counting sink ---- */

/* Counts of one CPU, on their own cache line. */
struct sink_count {
	__u64 frames;
	__u64 reserved[7];
};
_Static_assert(sizeof(struct sink_count) == 64, "sink_count");

/* Plan of timer.bpf.c, and its progress. */
struct timer_plan {
	__u64 due;		/* next expiry, monotonic, in ns */
	__u64 remaining;		/* expiries to come */
	__u64 distance_min;	/* least time from a handler to the next expiry, in ns */
	__u64 distance_span;	/* random addition to it, at most */
	__u64 flags;		/* of the timer */
	__u64 error;		/* 1: the kernel refused to arm it */
	__u64 elsewhere;	/* handlers that ran on another core */
	__u64 core;		/* core on which it was armed */
};
_Static_assert(sizeof(struct timer_plan) == 64, "timer_plan");

/* ---- the relay ---- */

/* Most egress interfaces of copies, and the limit of their indices. */
#define RELAY_INTERFACES_MAX 64
#define RELAY_INTERFACE_INDICES (1U << 16)
/* Copies that a driver takes at once: DEV_MAP_BULK_SIZE of kernel/bpf/devmap.c. */
#define RELAY_BULK 16
/* Bits that hold the length of a payload. */
#define RELAY_PAYLOAD_BITS 12
/* Instead of a slot: the network stack handles the group. */
#define RELAY_NO_SLOT (~0ULL)

/* Reason for which a packet was passed to the network stack. */
enum relay_passed {
	RELAY_PASSED_OTHER,	/* not a whole UDP packet without options to a group */
	RELAY_PASSED_MALFORMED,	/* lengths do not fit, trailing bytes, no checksum over IPv6 */
	RELAY_PASSED_LONG,	/* longer than the limit of every copy */
	RELAY_PASSED_NO_CHILDREN, /* the group has no children here */
	RELAY_PASSED_REASONS,
};

/* Reason for which a packet to a group was refused. */
enum relay_refusal {
	RELAY_REFUSED_SOURCE,	/* the group does not accept packets from this source */
	RELAY_REFUSED_CHILD,	/* one of the group's children sent it */
	RELAY_REFUSED_ONESELF,	/* the relay itself sent it */
	RELAY_REFUSED_HOPS,	/* its hop limit is used up */
	RELAY_REFUSED_RATE,	/* the group exceeded its rate */
	RELAY_REFUSED_FAN_OUT,	/* all groups together exceeded the copy rate */
	RELAY_REFUSALS,
};

/* Role of an address for a group, in bits. */
#define RELAY_SOURCE_ALLOWED 1	/* it may send */
#define RELAY_SOURCE_CHILD 2	/* the group has a child there */
#define RELAY_SOURCE_OWN 4	/* it is this host's */
/* Ports in a word of the set of ports at which groups listen. */
#define RELAY_PORTS_OF_WORD 64

/* Constant settings of a loaded program. */
struct relay_config {
	__u32 slots;		/* two for each group */
	__u32 children;		/* number of children with counters */
};
_Static_assert(sizeof(struct relay_config) == 8, "relay_config");

/* Permitted source of a group: a prefix of an address, which is in the first bytes. */
struct relay_source_key {
	__u32 length;		/* of the prefix and the group, in bits */
	__u32 group;
	__u8 address[16];
};
_Static_assert(sizeof(struct relay_source_key) == 24, "relay_source_key");

/* Address and port at which a child of a group listens: packets sent from there are not copied. */
struct relay_endpoint_key {
	__u32 group;
	__be16 port;
	__u16 reserved;
	__u8 address[16];	/* as in the key of sources */
};
_Static_assert(sizeof(struct relay_endpoint_key) == 24, "relay_endpoint_key");

/* Role of an interface for the relay. */
struct relay_interface {
	__u8 egress_number;	/* its number among the egress interfaces, plus 1; 0: none */
	__u8 is_own;		/* its ingress packets were sent by the relay itself */
	__u8 mac[6];		/* its MAC address; zeroes: all packets are for this host */
};
_Static_assert(sizeof(struct relay_interface) == 8, "relay_interface");

struct relay_group {
	__u64 slot;		/* the group's children at present, or RELAY_NO_SLOT */
	__u64 reserved[7];
	__u64 arrival;		/* theoretical arrival time, monotonic, in ns (GCRA) */
	__u64 reserved2[7];
};
_Static_assert(sizeof(struct relay_group) == 128, "relay_group");

/* Limit of all groups together. */
struct relay_fan_out {
	__u64 tolerance_ns;	/* that copies may be ahead of their rate; 0: no limit */
	__u64 reserved[7];
	__u64 arrival;
	__u64 reserved2[7];
};
_Static_assert(sizeof(struct relay_fan_out) == 128, "relay_fan_out");

struct relay_span {
	__u32 first;
	__u32 count;
};

/* Children of a group at a time. It does not change while a program may read it: changes are made
 * in the group's other slot. */
struct relay_slot {
	__u32 group;
	__u32 length_max;	/* bytes of the packet, its IP header included */
	__u32 interface;	/* ingress interface of its packets; 0: any */
	__u8 hops_max;		/* highest hop limit of copies */
	__u8 hops_reset;	/* 1: copies leave with hops_max, whatever the hop limit received */
	__u16 reserved;
	__u64 interval_ns;	/* for each packet; 0: no limit */
	__u64 tolerance_ns;
	__u64 copies_ns;	/* cost of a packet's copies in the limit of all groups */
	struct relay_span rows[RELAY_INTERFACES_MAX]; /* children by interface */
};
_Static_assert(sizeof(struct relay_slot) == 40 + 8 * RELAY_INTERFACES_MAX, "relay_slot");

/* Fields of a child's copy. IPv4 addresses are in the first four bytes. */
struct relay_row {
	__u8 destination_mac[6];
	__u8 source_mac[6];
	__be16 source_port;
	__be16 destination_port;
	__be32 source[4];
	__be32 destination[4];
	__u32 address_sum;	/* of the words of both addresses (RFC 1071) ... */
	__u32 port_sum;		/* ... and of both ports */
	__u32 child;		/* its counters */
	__u32 unresolved;	/* its MAC address is unknown */
};
_Static_assert(sizeof(struct relay_row) == 64, "relay_row");

/* Packet of the last copies on egress of an interface, and their number. */
struct relay_leaving {
	__u64 packet;
	__u64 copies;
};

/* State of one CPU, which is its only writer. */
struct relay_state {
	__u64 packets;		/* packets that were copied; also identifies the last of them */
	__u64 strays;		/* copies without a child: none while the kernel preserves order */
	__u64 passed[RELAY_PASSED_REASONS];
	__u32 batch_len;	/* copies being sent to the driver, ... */
	__u32 batch[RELAY_BULK]; /* ... their children, and below these the payload lengths */
	__u32 reserved[3];
	struct relay_leaving leaving[RELAY_INTERFACES_MAX];
};
_Static_assert(sizeof(struct relay_state) == 128 + 16 * RELAY_INTERFACES_MAX, "relay_state");

/* Counts of one CPU for a slot's packets. Bytes are those of UDP payloads. */
struct relay_slot_counts {
	__u64 packets;
	__u64 bytes;		/* bytes of these */
	__u64 refused[RELAY_REFUSALS];
	__u64 refused_bytes;
	__u64 reserved[7];
};
_Static_assert(sizeof(struct relay_slot_counts) == 128, "relay_slot_counts");

/* Counts of one CPU for a child's copies. */
struct relay_child_counts {
	__u64 copies;		/* sent to the driver */
	__u64 bytes;
	__u64 unresolved;	/* dropped, because the child's MAC address is unknown */
	__u64 driver_full;	/* sent to the driver, and dropped by it for lack of room */
};
_Static_assert(sizeof(struct relay_child_counts) == 32, "relay_child_counts");

#endif
