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

/* One complete set of what a reply says of the server's clock, and the linear time base. */
struct clock_slot {
	__u64 sequence;		/* odd while the slot is being written */
	__u64 anchor_ns;	/* monotonic instant of the anchor */
	__u64 ntp_at_anchor;	/* NTP time at the anchor, 32.32 */
	__u64 expires_ns;	/* monotonic instant from which on nothing is served from here */
	__u32 rate;		/* NTP units per ns, scaled by 2^29 */
	__u8 leap;
	__u8 stratum;
	__s8 precision;
	__u8 reserved;
	__be32 root_delay;
	__be32 root_dispersion;
	__be32 reference_id;
	__be32 reserved2;
	__be64 reference;
};
_Static_assert(sizeof(struct clock_slot) == 64, "clock_slot");

struct clock_page {
	__u64 active;		/* which slot is to be read, 0 or 1 */
	__u64 listen_epoch;	/* grows with every change of the listen set */
	__u64 reserved[6];
	struct clock_slot slots[2];
};
_Static_assert(sizeof(struct clock_page) == 192, "clock_page");

/* An address and port that requests are answered at; an IPv4 address is mapped (::ffff:a.b.c.d). */
struct listen_key {
	__u8 address[16];
	__be16 port;
	__u16 reserved;
};
_Static_assert(sizeof(struct listen_key) == 20, "listen_key");

/* Why a frame went on to the network stack. */
enum passed_reason {
	PASSED_NOT_NTP,		/* not UDP over IP to an address and port served here */
	PASSED_MALFORMED,	/* lengths or the IPv4 checksum do not fit, or trailing bytes */
	PASSED_FRAGMENT,	/* a piece of a packet */
	PASSED_ADDRESS,		/* a source that must not be answered, or a group address */
	PASSED_LENGTH,		/* not exactly one NTP header */
	PASSED_REQUEST,		/* a version or mode that is not a plain client request */
	PASSED_NO_CLOCK,	/* the clock page has expired */
	PASSED_REASONS,
};

/* What one processor keeps for itself; nobody else writes it. */
struct responder_state {
	__u64 answered_ipv4;
	__u64 answered_ipv6;
	__u64 passed[PASSED_REASONS];
	__u64 known_epoch;	/* the listen set's epoch at which ... */
	__u32 known_port;	/* ... this port (as in the packet) and ... */
	__u32 known_ipv6;	/* ... (whether of IPv6) ... */
	__be32 known_address[4];/* ... this address were found in it */
	__u64 reserved[3];
};
_Static_assert(sizeof(struct responder_state) == 128, "responder_state");

/* ---- the generator ---- */

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

/* Ethernet, IPv6, UDP and NTP: the longest request. */
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
	__u64 reserved[2];
	struct histogram rtt_ns;
	struct histogram response_ns;
	struct histogram lateness_ns;
};
_Static_assert(sizeof(struct tally) == 128 + 3 * (32 + 8 * HISTOGRAM_BUCKETS), "tally");

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
	__u32 reserved[8];
};
_Static_assert(sizeof(struct lane) == 128, "lane");

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
	__u32 random_room;	/* 0: clients in turn; else they are drawn from so many */
	__u32 first_client;	/* low 32 bits of the first simulated address, host order */
	__u32 lanes;
	__u32 clients_per_lane;	/* every lane plays this many ... */
	__u32 lanes_with_one_more; /* ... and the first few one more */
	__be16 target_port;
	__u8 version;
	__u8 echo;		/* the target sends requests back as they are: a reflector */
	__u8 interleaved;	/* requests are in interleaved mode */
	__u8 reserved[3];
	__u64 ip_sum;		/* sum of the IPv4 header's words but source and checksum */
	__u64 udp_sum;		/* sum of pseudo-header, UDP header and payload words that stay */
	__u8 target[16];	/* server's address; IPv4 in the first 4 bytes */
	__u8 prefix[16];	/* IPv6 prefix of the clients; the low 32 bits are replaced */
	__u8 request[REQUEST_MAX]; /* the frame, complete but for what changes */
};
_Static_assert(sizeof(struct generator_config) == 96 + 32 + REQUEST_MAX, "generator_config");

#endif
