/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Headers that the programs read and write, and the one's-complement arithmetic over them.
 *
 * None of them has padding. They are not declared packed, although fields lie unaligned in a frame:
 * the compiler would then read them by bytes, and the processors of hosts with native XDP read
 * unaligned words at no cost.
 */
#ifndef HOROLOG_NET_H
#define HOROLOG_NET_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define TYPE_IPV4 0x0800
#define TYPE_PTP 0x88f7
#define TYPE_IPV6 0x86dd
#define TYPE_VLAN 0x8100
#define TYPE_SERVICE_VLAN 0x88a8
#define PROTOCOL_UDP 17
#define ETHERNET_MIN 60	/* without the checksum (IEEE 802.3, 4.4.2) */

#define NTP_LEN 48
#define UDP_NTP_LEN (8 + NTP_LEN)

struct ethernet {
	__u8 destination[6];
	__u8 source[6];
	__be16 type;
};

static __always_inline bool is_same_mac(const __u8 *one, const __u8 *other)
{
	const __u16 *a = (const void *)one, *b = (const void *)other;

	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2];
}

struct vlan {
	__be16 control;
	__be16 type;
};

struct ipv4 {
	__u8 version_and_length;
	__u8 traffic_class;
	__be16 total_length;
	__be16 identification;
	__be16 flags_and_offset;
	__u8 time_to_live;
	__u8 protocol;
	__u16 checksum;
	__be32 source;
	__be32 destination;
};

struct ipv6 {
	__be32 version_class_flow;
	__be16 payload_length;
	__u8 next_header;
	__u8 hop_limit;
	__be32 source[4];
	__be32 destination[4];
};

struct udp {
	__be16 source;
	__be16 destination;
	__be16 length;
	__u16 checksum;
};

struct ntp {
	__u8 leap_version_mode;
	__u8 stratum;
	__s8 poll;
	__s8 precision;
	__be32 root_delay;
	__be32 root_dispersion;
	__be32 reference_id;
	__be64 reference;
	__be64 origin;
	__be64 receive;
	__be64 transmit;
};

#define PTP_EVENT_PORT 319
#define PTP_GENERAL_PORT 320

#define PTP_VERSION 2
#define PTP_SYNC 0x0
#define PTP_DELAY_REQUEST 0x1
#define PTP_PEER_REQUEST 0x2
#define PTP_PEER_RESPONSE 0x3
#define PTP_FOLLOW_UP 0x8
#define PTP_DELAY_RESPONSE 0x9
#define PTP_PEER_FOLLOW_UP 0xa
#define PTP_ANNOUNCE 0xb
#define PTP_SIGNALING 0xc
#define PTP_MANAGEMENT 0xd
#define PTP_TWO_STEP 0x02	/* in the first byte of flags */
#define PTP_UNICAST 0x04

/* IEEE 1588-2019, 13.3: the common header. Its length is not a multiple of 4, so larger fields are
 * split into halves; a reader takes all of one at once. */
struct ptp {
	__u8 sdo_and_type;
	__u8 version;		/* the minor one in the upper half */
	__be16 length;		/* of the message, in bytes */
	__u8 domain;
	__u8 minor_sdo;
	__u8 flags[2];
	__be16 correction[4];
	__be16 type_specific[2];
	__be16 clock[4];	/* of the source port: the clock's identity ... */
	__be16 port;		/* ... and the port's number */
	__be16 sequence;
	__u8 control;
	__s8 interval;
};

struct ptp_timestamp {
	__be16 seconds[3];
	__be16 nanoseconds[2];
};

/* 13.8: reply to a delay request. */
struct ptp_delay_response {
	struct ptp header;
	struct ptp_timestamp receive;
	__be16 clock[4];	/* of the requesting port */
	__be16 port;
};

/*
 * Returns true if all of a frame lies in one buffer; the programs read no other. One that does not
 * (its MTU is above some 3,500 bytes) is passed to the network stack.
 */
static __always_inline bool is_linear(struct xdp_md *ctx)
{
	return bpf_xdp_get_buff_len(ctx) == (__u64)(ctx->data_end - ctx->data);
}

/* Returns both halves of a 64-bit value as summands (RFC 1071: any width, any byte order, folded
 * last). */
static __always_inline __u64 sum64(__u64 value)
{
	return (value >> 32) + (__u32)value;
}

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum >> 32) + (__u32)sum;
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return (__u16)~sum;
}

/* Folds a UDP checksum; zero is sent as its other form, because zero means "none" (RFC 768). */
static __always_inline __u16 udp_fold(__u64 sum)
{
	__u16 checksum = fold(sum);

	return checksum ? checksum : 0xffff;
}

#endif
