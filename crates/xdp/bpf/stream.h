/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Shared parts of the source of a stream and its sink: the mark of each packet, and the layouts
 * that src/stream/abi.rs has as well. A change to one requires a change to the other.
 */
#ifndef HOROLOG_STREAM_H
#define HOROLOG_STREAM_H

#include "net.h"
#include "abi.h"

#define STREAM_HEADERS (sizeof(struct ethernet) + sizeof(struct ipv4) + sizeof(struct udp))

/* Start of each packet's payload, in host byte order: a stream stays on this host. */
struct stream_mark {
	__u32 trial;
	__u32 lane;
	__u64 sequence;		/* within the lane, from 0 */
	__u64 sent_ns;		/* monotonic */
};
_Static_assert(sizeof(struct stream_mark) == 24, "stream_mark");

struct stream_config {
	__u64 udp_sum;		/* of pseudo-header and datagram without checksum and mark */
	__u64 headers[5];	/* of a packet, up to the UDP checksum */
	__u32 interface;	/* to send by */
	__u32 reserved;
};
_Static_assert(sizeof(struct stream_config) == 56, "stream_config");

/* Position of a CPU in its schedule; times after `start_ns` are in 2^-16 ns. */
struct stream_lane {
	__u64 start_ns;		/* monotonic */
	__u64 next;		/* intended send time of the next packet */
	__u64 interval;
	__u64 end;
	__u64 late_max;		/* a packet later than this is postponed, with all after it */
	__u64 sent;
	__u64 first_sent_ns;
	__u64 last_sent_ns;
	__u32 trial;
	__u32 number;
	__u32 active;
	__u32 done;
	__u64 reserved[6];
};
_Static_assert(sizeof(struct stream_lane) == 128, "stream_lane");

struct stream_expected {
	__u32 trial;
	__u32 children;
	__u32 lanes;
	__u32 payload_len;
	__u16 first_port;	/* of the children, whose ports are consecutive; in host order */
	__u16 timed;		/* 1 if latencies are measured */
	__u32 reserved;
};
_Static_assert(sizeof(struct stream_expected) == 24, "stream_expected");

/* Counts of one CPU for a child of a lane. */
struct stream_count {
	__u64 packets;
	__u64 bytes;		/* of payload */
	__u64 next;		/* after the highest sequence number received */
	__u64 disordered;	/* not above the one before: out of order, or a duplicate */
	__u64 sum;		/* of all sequence numbers ... */
	__u64 squares;		/* ... and of their squares, modulo 2^64 */
	__u64 damaged;		/* of another length */
	__u64 reserved;
};
_Static_assert(sizeof(struct stream_count) == 64, "stream_count");

/* Delays of a packet's first copy, and of its last. */
struct stream_delays {
	struct histogram first;
	struct histogram last;
};

#endif
