/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * What the BPF programs and user space agree upon: the layouts that stand in maps. src/abi.rs says
 * the same in Rust, and both sides assert the sizes. Whoever changes one changes the other.
 *
 * All fields are in the machine's byte order unless their type says big-endian.
 */
#ifndef HOROLOG_ABI_H
#define HOROLOG_ABI_H

#include <linux/types.h>

/* ---- the responder ---- */

/* Around a leap second: UTC jumps, a smeared clock runs a little slower or faster for a day. */
#define TIMELINES 2
#define TIMELINE_STEPPED 0

/* One complete set of what a reply says of the server's clock on one timeline, and its time base.
 * What every reply reads is in the first 64 bytes but for the instant of the step. */
struct clock_slot {
	__u64 sequence;		/* odd while the slot is being written */
	__u64 anchor_ns;	/* monotonic instant of the anchor */
	__u64 ntp_at_anchor;	/* NTP time at the anchor, 32.32 */
	__u64 expires_ns;	/* monotonic instant from which on nothing is served from here */
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
	__u64 active;		/* which slot is to be read, 0 or 1 */
	__u64 listen_epoch;	/* grows with every change of the listen set */
	__u64 reserved[6];
	struct clock_slot slots[2][TIMELINES];
};
_Static_assert(sizeof(struct clock_page) == 64 + 2 * TIMELINES * 128, "clock_page");

/* An address and port that requests are answered at; an IPv4 address is mapped (::ffff:a.b.c.d). */
struct listen_key {
	__u8 address[16];
	__be16 port;
	__u16 reserved;
};
_Static_assert(sizeof(struct listen_key) == 20, "listen_key");

/* The AF_XDP sockets of an interface in the map of all: the first, and how many stand in a row. */
struct queue_row {
	__u32 first;
	__u32 count;
};
_Static_assert(sizeof(struct queue_row) == 8, "queue_row");

/* Why a frame went on to the network stack. */
enum passed_reason {
	PASSED_NOT_NTP,		/* not UDP over IP to an address and port served here */
	PASSED_MALFORMED,	/* lengths or the IPv4 checksum do not fit, or trailing bytes */
	PASSED_FRAGMENT,	/* a piece of a packet */
	PASSED_ADDRESS,		/* a source that must not be answered, or a group address */
	PASSED_LENGTH,		/* not exactly one NTP header */
	PASSED_REQUEST,		/* a version or mode that is not a plain client request */
	PASSED_NO_CLOCK,	/* the clock page has expired */
	PASSED_INTERLEAVED,	/* the sockets have better transmit timestamps for it */
	PASSED_REASONS,
};

/* What is decided about a client before anything else is. */
enum admission {
	DROP_LIMITED,		/* the client asked too often */
	DROP_DENIED,		/* the lists deny it */
	DROP_NEWCOMERS,		/* too many clients that were not known before */
	KISS_RATE,		/* it asked too often and is told so, once */
	KISS_DENY,		/* the lists deny it, and it is told so */
	REFUSALS,
	ADMIT = REFUSALS,
};

/* What stays the same while the program is loaded. */
struct responder_config {
	__u64 key[2];		/* of the hash of addresses */
	__u64 ipv4_mask;	/* of what counts as one client; words as they lie in a packet */
	__u64 ipv6_mask[2];
	__u32 limit_sets_mask;	/* number of sets less 1; the number is a power of two */
	__u32 interleaved_mask;	/* the same of the clients remembered for interleaved mode */
	__u8 limits;		/* whether anything is limited or listed */
	__u8 interleaved;	/* whether clients are remembered for interleaved mode */
	__u8 hand_over;		/* whether requests with more than a header go to AF_XDP sockets */
	__u8 ptp_monitor;	/* whether NetSync Monitor is answered */
	__u8 reserved[4];
};
_Static_assert(sizeof(struct responder_config) == 56, "responder_config");

/*
 * One word for each client, 0 where there is none: 16 bits of the hash, 4 of the lists' epoch at
 * which the client was last looked up (1 to 15; 0 where it is to be looked up again), 1 that tells
 * whether it was sent a kiss since it was last answered, and 43 of the theoretical arrival time
 * (GCRA, ITU-T I.371, annex A) in units of 1,024 ns, modulo 104 days.
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

/* What clients are held to; user space changes it while the program runs. */
struct limit_rules {
	__u64 interval;		/* units of 1,024 ns for each request; 0: as many as they like */
	__u64 tolerance;	/* units that a client may be ahead of its rate */
	__u64 idle;		/* units after which a silent client's place is free */
	__u64 newcomer_interval_ns; /* for each request of a client without a place; 0: no limit */
	__u64 newcomer_tolerance_ns;
	__u64 deny_interval_ns;	/* between two DENY kisses; 0: none is sent */
	__u32 epoch;		/* 1 to 15; another with every change of the lists */
	__u8 kiss_rate;		/* whether RATE kisses are sent */
	__u8 lists;		/* whether there are lists */
	__u8 others_denied;	/* whether who is in no list is denied */
	__u8 lists_are_finer;	/* a listed prefix is longer than what counts as one client */
};
_Static_assert(sizeof(struct limit_rules) == 56, "limit_rules");

/* Theoretical arrival times that all clients share, in ns, each on lines of its own. */
struct limit_totals {
	__u64 newcomers;	/* whose request is one header ... */
	__u64 reserved[15];
	__u64 long_newcomers;	/* ... or longer */
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

/* What is remembered of a client's last reply: see horolog_server::InterleavedTable. */
struct interleaved_slot {
	__u64 both;		/* receive ^ transmit timestamp */
	__u64 transmit;
};
_Static_assert(sizeof(struct interleaved_slot) == 16, "interleaved_slot");

/* What one processor keeps for itself; nobody else writes it. The first line serves every reply. */
struct responder_state {
	__u64 answered_ipv4;
	__u64 answered_ipv6;
	__u64 answered_interleaved; /* of these */
	__u64 known_epoch;	/* the listen set's epoch at which ... */
	__u32 known_port;	/* ... this port (as in the packet) and ... */
	__u32 known_ipv6;	/* ... (whether of IPv6) ... */
	__be32 known_address[4];/* ... this address were found in it, with ... */
	__u64 known_timeline;	/* ... this timeline */
	__u64 judged_ns;	/* when a client was last judged; 0 before the first */
	__u64 passed[PASSED_REASONS];
	__u64 admitted;		/* requests that limits and lists let through */
	__u64 refused[REFUSALS];
	__u64 handed_over;	/* longer requests given to AF_XDP sockets */
	__u64 answered_ptp;	/* requests for the delay */
	__u64 answered_ptp_monitor; /* requests of NetSync Monitor */
	__u64 reserved[6];
};
_Static_assert(sizeof(struct responder_state) == 256, "responder_state");

/* ---- PTP ---- */

/* Seconds from the epoch of NTP to that of PTP, modulo 2^32. */
#define PTP_EPOCH_IN_NTP 2208988800U
/* The version of what is sent, with the minor one, and the interval of what has none. */
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

/* A client that NetSync Monitor is answered: a prefix of its address, at a port. An IPv4 address
 * stands in the first four bytes. */
struct ptp_client_key {
	__u32 length;		/* of the prefix, in bits, with those of the port */
	struct ptp_port_key port;
	__u8 address[16];
};
_Static_assert(sizeof(struct ptp_client_key) == 28, "ptp_client_key");

/* What a port answers: requests to the group, to itself, and of NetSync Monitor. */
#define PTP_PORT_MULTICAST 1
#define PTP_PORT_HYBRID 2
#define PTP_PORT_MONITOR 4

/* Lengths of the TLV that answers NetSync Monitor, by the address in it. */
#define PTP_MONITOR_LEN(address_len) (74 + (address_len))
#define PTP_MONITOR_MAX 96

/* A port that is a master now. */
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
	__u8 address[16];	/* where answers to the group come from; IPv4 is mapped */
	__u8 monitor[PTP_MONITOR_MAX]; /* the TLV that answers NetSync Monitor, and zeroes */
};
_Static_assert(sizeof(struct ptp_port) == 136, "ptp_port");

/* ---- the generator ---- */

/* What the target is asked for. */
enum protocol {
	PROTOCOL_NTP,
	PROTOCOL_PTP_DELAY,	/* the delay request-response mechanism */
	PROTOCOL_PTP_MONITOR,	/* the same with linuxptp's NetSync Monitor */
};

/* Time, sequence number, and which of a request's timestamps it is: TOKEN_RECEIVE or 0. */
#define TOKEN_SEQUENCE_BITS 27
#define TOKEN_SEQUENCE_MASK ((1ULL << TOKEN_SEQUENCE_BITS) - 1)
#define TOKEN_SEQUENCE_SHIFT 1
#define TOKEN_TIME_SHIFT 28
#define TOKEN_RECEIVE 1
#define TOKEN_TIME_MASK ((1ULL << 36) - 1)

/* Bits that one lane keeps to know a second reply to the same request by. */
#define SEEN_BITS_LOG2 24
#define SEEN_WORDS (1U << (SEEN_BITS_LOG2 - 6))

#define LANE_PORT_BASE 32768
#define LANES_MAX 64

/* HdrHistogram's layout with two significant digits up to 2^36 - 1. */
#define HISTOGRAM_BUCKETS 3840
#define HISTOGRAM_MAX ((1ULL << 36) - 1)

#define EXPONENTIAL_ENTRIES 65536

/* Ethernet, IPv6, UDP and NTP, or a request of NetSync Monitor, which is shorter by 2. */
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
	INVALID_REASONS,
};

/* What one processor counts; nobody else writes it. */
struct tally {
	__u64 received;
	__u64 duplicate;
	__u64 late;
	__u64 unsynchronised;
	__u64 invalid[INVALID_REASONS];
	__u64 late_earlier;	/* to requests of earlier trials */
	__u64 interleaved;	/* of the received ones, those in interleaved mode */
	__u64 answered;		/* requests that got all that they are owed, in time or late */
	__u64 delay;		/* first answers in time to requests for the delay */
	__u64 sync_follow_up;	/* requests whose Sync, and what belongs to it, came in time */
	__u64 left_out;		/* requests of a phase that was over before they were made */
	__u64 first_sent_ns;	/* in a book of an interval alone; 0 before the first */
	__u64 last_sent_ns;
	__u64 reserved[7];
	struct histogram rtt_ns;
	struct histogram response_ns;
	struct histogram lateness_ns;
};
_Static_assert(sizeof(struct tally) == 256 + 3 * (32 + 8 * HISTOGRAM_BUCKETS), "tally");

/* Bits of the lower half of a magnitude, of 36 bits, so that their squares add up in 64 bits. */
#define OFFSET_HALF_BITS 18

/* Offsets of the server's timestamps that one processor took; nobody else writes it. */
struct offset_tally {
	__u64 squares_high;	/* sums of the squares of the magnitudes' upper halves, ... */
	__u64 products;		/* ... of the halves' products ... */
	__u64 squares_low;	/* ... and of the squares of the lower ones */
	__u64 clamped;		/* magnitudes above HISTOGRAM_MAX, which count as that */
	struct histogram negative; /* magnitudes of those below zero */
	struct histogram positive;
};
_Static_assert(sizeof(struct offset_tally) == 32 + 2 * (32 + 8 * HISTOGRAM_BUCKETS),
	       "offset_tally");

/* A sending processor: where it stands in its schedule. */
struct lane {
	__u64 start_ns;		/* monotonic instant that the schedule counts from */
	__u64 next;		/* next intended instant since start_ns, in 2^-16 ns */
	__u64 interval;		/* mean interval, in 2^-16 ns */
	__u64 end;		/* no request is intended from here on, in 2^-16 ns */
	__u64 give_up_ns;	/* monotonic instant from which on nothing is sent at all */
	__u64 sent;
	__u64 first_sent_ns;
	__u64 last_sent_ns;
	__u32 number;		/* 0 .. LANES_MAX - 1 */
	__u32 sequence;		/* of the next request */
	__u32 sequence_end;	/* where the sequence starts again at 0 */
	__u32 client;		/* of the next request, counted within this lane */
	__u32 clients;		/* how many clients this lane plays */
	__u32 client_base;	/* how many clients the lanes before it play */
	__u32 active;		/* whether this processor is to send */
	__u32 done;		/* set by the program when its schedule has ended */
	__u64 leg_end;		/* on a course: the end of this leg, in 2^-16 ns, ... */
	__u64 phase_over_ns;	/* ... when what is left of its phase is left out, monotonic, ... */
	__u32 leg;		/* ... and its number */
	__u32 legs;		/* how many there are; 0 without a course */
	__u32 reserved[2];
};
_Static_assert(sizeof(struct lane) == 128, "lane");

/* The most legs of a lane's course. */
#define LEGS_MAX (1U << 14)

/* A part of a lane's course with one rate: instants in 2^-16 ns since the lane's start. */
struct leg {
	__u64 begin;
	__u64 end;
	__u64 first;		/* the first request's, with constant intervals; at the end if none */
	__u64 interval;		/* mean interval */
	__u64 phase_over_ns;	/* since the start: what is left of its phase is left out from here on */
	__u64 rest;		/* requests of its phase behind this leg */
	__u32 next_phase;	/* number of the next phase's first leg */
	__u32 reserved;
};
_Static_assert(sizeof(struct leg) == 56, "leg");

/* What one client asked and was answered, in time. */
struct asked_answered {
	__u32 asked;
	__u32 answered;
};
_Static_assert(sizeof(struct asked_answered) == 8, "asked_answered");

/* What stays the same through a run, or through a trial. */
struct generator_config {
	__u64 key;		/* whitens the token */
	__u64 run_start_ns;	/* no request is older than this */
	__u64 trial_start_ns;	/* replies to older requests are late */
	__u64 reply_timeout_ns;
	__u64 exponential;	/* whether intervals are exponentially distributed */
	__u32 interface;	/* index of the interface to send by */
	__u32 request_len;	/* bytes of the frame */
	__u32 ipv6;
	__u32 random_room;	/* 0: clients in turn; else scattered over so many */
	__u32 first_client;	/* low 32 bits of the first simulated address, host order */
	__u32 lanes;
	__u32 clients_per_lane;	/* every lane plays this many ... */
	__u32 lanes_with_one_more; /* ... and the first few one more */
	__be16 target_port;
	__u8 version;
	__u8 echo;		/* the target sends requests back as they are: a reflector */
	__u8 interleaved;	/* requests are in interleaved mode */
	__u8 domain;		/* PTP's */
	__u8 reserved[2];
	__u32 exchange_mask;	/* number of exchanges kept for each lane less 1; a power of two */
	__u32 books_mask;	/* number of books of each processor less 1; a power of two */
	__u32 processors;	/* that there are books for */
	__u32 reserved2;
	__u64 interval_ns;	/* which a book is for; 0: one is for all */
	__u64 first_book;	/* numbers of the first and the last interval whose books are open */
	__u64 last_book;
	__s64 realtime_ahead_ns; /* of the monotonic clock */
	__s64 offset_correction_ns; /* taken off every offset */
	__u64 ip_sum;		/* sum of the IPv4 header's words but source and checksum */
	__u64 udp_sum;		/* sum of pseudo-header, UDP header and payload words that stay */
	__u8 target[16];	/* server's address; IPv4 in the first 4 bytes */
	__u8 prefix[16];	/* IPv6 prefix of the clients; the low 32 bits are replaced */
	__u8 request[REQUEST_MAX]; /* the frame, complete but for what changes */
};
_Static_assert(sizeof(struct generator_config) == 152 + 32 + REQUEST_MAX, "generator_config");

/* ---- the counting sink ---- */

/* What one processor counted, on a line of its own. */
struct sink_count {
	__u64 frames;
	__u64 reserved[7];
};
_Static_assert(sizeof(struct sink_count) == 64, "sink_count");

/* What timer.bpf.c is asked for, and how far it is. */
struct timer_plan {
	__u64 due;		/* the next expiry, monotonic, in ns */
	__u64 left;		/* expiries that are still to come */
	__u64 distance_min;	/* from a handler to the next expiry, in ns, at least */
	__u64 distance_span;	/* and up to so much more, at random */
	__u64 flags;		/* of the timer */
	__u64 error;		/* 1: the kernel would not arm it */
	__u64 elsewhere;	/* handlers that ran on another core */
	__u64 core;		/* where it was armed */
};
_Static_assert(sizeof(struct timer_plan) == 64, "timer_plan");

/* ---- the relay ---- */

/* The most interfaces that copies leave by, and what their indices stay below. */
#define RELAY_INTERFACES_MAX 64
#define RELAY_INTERFACE_INDICES (1U << 16)
/* Copies that a driver is given at once: DEV_MAP_BULK_SIZE of kernel/bpf/devmap.c. */
#define RELAY_BULK 16
/* Bits that hold the length of a payload. */
#define RELAY_PAYLOAD_BITS 12
/* In place of a slot: the network stack has the group. */
#define RELAY_NO_SLOT (~0ULL)

/* Why a packet went on to the network stack. */
enum relay_passed {
	RELAY_PASSED_OTHER,	/* not a whole UDP packet without options to a group */
	RELAY_PASSED_MALFORMED,	/* lengths do not fit, trailing bytes, no checksum over IPv6 */
	RELAY_PASSED_LONG,	/* longer than every copy may be */
	RELAY_PASSED_NO_CHILDREN, /* the group has none here */
	RELAY_PASSED_REASONS,
};

/* Why a packet to a group was dropped. */
enum relay_refusal {
	RELAY_REFUSED_SOURCE,	/* the group does not take packets from there */
	RELAY_REFUSED_CHILD,	/* one of the group's children sent it */
	RELAY_REFUSED_ONESELF,	/* the relay itself sent it */
	RELAY_REFUSED_HOPS,	/* it may not go further */
	RELAY_REFUSED_RATE,	/* the group had too many */
	RELAY_REFUSED_FAN_OUT,	/* all groups together made too many copies */
	RELAY_REFUSALS,
};

/* What an address is to a group, in bits. */
#define RELAY_SOURCE_ALLOWED 1	/* it may send */
#define RELAY_SOURCE_CHILD 2	/* the group has a child there */
#define RELAY_SOURCE_OWN 4	/* it is this host's */
/* Ports in a word of the set of those that groups listen at. */
#define RELAY_PORTS_OF_WORD 64

/* What stays the same while the program is loaded. */
struct relay_config {
	__u32 slots;		/* two for each group */
	__u32 children;		/* that there are counters for */
};
_Static_assert(sizeof(struct relay_config) == 8, "relay_config");

/* Who may send to a group: a prefix of an address, which stands in the first bytes. */
struct relay_source_key {
	__u32 length;		/* of the prefix, in bits, with those of the group */
	__u32 group;
	__u8 address[16];
};
_Static_assert(sizeof(struct relay_source_key) == 24, "relay_source_key");

/* Where a child of a group listens: nothing that is sent from there is copied. */
struct relay_end_key {
	__u32 group;
	__be16 port;
	__u16 reserved;
	__u8 address[16];	/* as in the key of sources */
};
_Static_assert(sizeof(struct relay_end_key) == 24, "relay_end_key");

/* What an interface is to the relay. */
struct relay_interface {
	__u8 leaves;		/* its number among those that copies leave by, and 1; 0: none do */
	__u8 is_own;		/* what comes in by it was put there by the relay itself */
	__u8 mac[6];		/* its own; zeroes: whatever comes in is for this host */
};
_Static_assert(sizeof(struct relay_interface) == 8, "relay_interface");

struct relay_group {
	__u64 slot;		/* where the group's children are now, or RELAY_NO_SLOT */
	__u64 reserved[7];
	__u64 arrival;		/* theoretical arrival time, monotonic, in ns (GCRA) */
	__u64 reserved2[7];
};
_Static_assert(sizeof(struct relay_group) == 128, "relay_group");

/* The limit of all groups together. */
struct relay_fan_out {
	__u64 tolerance_ns;	/* that copies may be ahead of their rate; 0: there is none */
	__u64 reserved[7];
	__u64 arrival;
	__u64 reserved2[7];
};
_Static_assert(sizeof(struct relay_fan_out) == 128, "relay_fan_out");

struct relay_span {
	__u32 first;
	__u32 count;
};

/* A group's children at a time. Nothing of it changes while a program may read it: what changes is
 * made in the group's other slot. */
struct relay_slot {
	__u32 group;
	__u32 length_max;	/* bytes of the packet, its IP header included */
	__u32 interface;	/* that packets come in by; 0: any */
	__u8 hops_max;		/* that copies leave with */
	__u8 hops_anew;		/* they do so whatever the packet had */
	__u16 reserved;
	__u64 interval_ns;	/* for each packet; 0: as many as there are */
	__u64 tolerance_ns;
	__u64 copies_ns;	/* what the copies of a packet cost of all groups' limit */
	struct relay_span rows[RELAY_INTERFACES_MAX]; /* of what leaves by each interface */
};
_Static_assert(sizeof(struct relay_slot) == 40 + 8 * RELAY_INTERFACES_MAX, "relay_slot");

/* What a child's copy has of its own. IPv4 addresses stand in the first four bytes. */
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
	__u32 unresolved;	/* nobody knows its MAC address */
};
_Static_assert(sizeof(struct relay_row) == 64, "relay_row");

/* The packet whose copies left last by an interface, and how many of them did. */
struct relay_leaving {
	__u64 packet;
	__u64 copies;
};

/* What one processor keeps for itself; nobody else writes it. */
struct relay_state {
	__u64 packets;		/* that copies were made of; names the last of them, too */
	__u64 strays;		/* copies that were nobody's: none, as long as the kernel keeps order */
	__u64 passed[RELAY_PASSED_REASONS];
	__u32 batch_len;	/* copies that the driver is being given, ... */
	__u32 batch[RELAY_BULK]; /* ... whose they are, and in the lower bits their payloads */
	__u32 reserved[3];
	struct relay_leaving leaving[RELAY_INTERFACES_MAX];
};
_Static_assert(sizeof(struct relay_state) == 128 + 16 * RELAY_INTERFACES_MAX, "relay_state");

/* What one processor counted of a slot's packets. Bytes are those of UDP payloads. */
struct relay_slot_counts {
	__u64 packets;
	__u64 bytes;		/* of these */
	__u64 refused[RELAY_REFUSALS];
	__u64 refused_bytes;
	__u64 reserved[7];
};
_Static_assert(sizeof(struct relay_slot_counts) == 128, "relay_slot_counts");

/* What one processor counted of a child's copies. */
struct relay_child_counts {
	__u64 copies;		/* given to the driver */
	__u64 bytes;
	__u64 unresolved;	/* dropped, because nobody knows the child's MAC address */
	__u64 driver_full;	/* of those given to the driver, the ones that it had no room for */
};
_Static_assert(sizeof(struct relay_child_counts) == 32, "relay_child_counts");

#endif
