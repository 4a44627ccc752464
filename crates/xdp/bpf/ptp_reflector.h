/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Shared parts of the PTP reflectors: the frames that they answer, and the headers of a reply.
 * Their clock is the monotonic one, unrelated to the time of day.
 */
#ifndef HOROLOG_PTP_REFLECTOR_H
#define HOROLOG_PTP_REFLECTOR_H

#include "net.h"

/* Locally administered clock identity, which no device has. */
#define REFLECTOR_CLOCK 0x0200fffffe000001ULL

/* Returns true if a frame holds a delay request over IPv4 whose message has this length. */
static __always_inline bool is_delay_request(void *data, void *end, __u16 length)
{
	struct ethernet *ethernet = data;
	struct ipv4 *ip = (void *)(ethernet + 1);
	struct udp *udp = (void *)(ip + 1);
	struct ptp *ptp = (void *)(udp + 1);

	return (void *)(ptp + 1) <= end && ethernet->type == bpf_htons(TYPE_IPV4) &&
	       ip->version_and_length == 0x45 && ip->protocol == PROTOCOL_UDP &&
	       udp->destination == bpf_htons(PTP_EVENT_PORT) &&
	       udp->length == bpf_htons(sizeof(*udp) + length) &&
	       (ptp->sdo_and_type & 0xf) == PTP_DELAY_REQUEST;
}

/* Swaps the addresses of a frame, so that it returns to its sender. */
static __always_inline void swap_addresses(struct ethernet *ethernet, struct ipv4 *ip)
{
	__be32 address = ip->source;
	__u8 mac[6];

	__builtin_memcpy(mac, ethernet->source, 6);
	__builtin_memcpy(ethernet->source, ethernet->destination, 6);
	__builtin_memcpy(ethernet->destination, mac, 6);
	ip->source = ip->destination;
	ip->destination = address;
}

/* Sets the type, length and ports of the message in a frame. */
static __always_inline void write_message_headers(struct ipv4 *ip, struct udp *udp, struct ptp *ptp,
						  __u8 type, __u16 length, __u16 port)
{
	__be16 total = bpf_htons(sizeof(*ip) + sizeof(*udp) + length);

	/* The words that change are the length and the checksum itself (RFC 1624). */
	ip->checksum = fold((__u16)~ip->checksum + (__u16)~ip->total_length + total);
	ip->total_length = total;
	udp->source = bpf_htons(port);
	udp->destination = bpf_htons(port);
	udp->length = bpf_htons(sizeof(*udp) + length);
	udp->checksum = 0;
	ptp->sdo_and_type = type;
	ptp->length = bpf_htons(length);
	*(__be64 *)ptp->clock = bpf_cpu_to_be64(REFLECTOR_CLOCK);
	ptp->port = bpf_htons(1);
}

static __always_inline void write_now(struct ptp_timestamp *timestamp)
{
	__u64 now_ns = bpf_ktime_get_ns();

	timestamp->seconds[0] = 0;
	*(__be32 *)&timestamp->seconds[1] = bpf_htonl(now_ns / 1000000000);
	*(__be32 *)timestamp->nanoseconds = bpf_htonl(now_ns % 1000000000);
}

/* Turns a request into a delay response of this many bytes, which the frame must have. */
static __always_inline void respond(struct ipv4 *ip, struct udp *udp,
				    struct ptp_delay_response *response, __u16 length)
{
	__builtin_memcpy(response->clock, response->header.clock, 8);
	response->port = response->header.port;
	write_now(&response->receive);
	write_message_headers(ip, udp, &response->header, PTP_DELAY_RESPONSE, length,
			      PTP_GENERAL_PORT);
}

#endif
