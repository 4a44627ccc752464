// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Answers every request for the delay of PTP over IPv4 where it comes in, with the least that makes
 * the answer right: what a link and a driver can do at most. The benchmarks hold the load generator
 * against it. Its clock is the monotonic one, which says nothing of the time.
 */
#include "net.h"

#define GROWTH (sizeof(struct ptp_delay_response) - sizeof(struct ptp) - \
		sizeof(struct ptp_timestamp))
/* An identity of nobody's: locally administered. */
#define CLOCK 0x0200fffffe000001ULL

static __always_inline void answer(struct ethernet *ethernet, struct ipv4 *ip, struct udp *udp,
				   struct ptp_delay_response *response)
{
	__u64 now_ns = bpf_ktime_get_ns();
	__u16 total = bpf_ntohs(ip->total_length) + GROWTH;
	__be32 address = ip->source;
	__u8 mac[6];

	__builtin_memcpy(mac, ethernet->source, 6);
	__builtin_memcpy(ethernet->source, ethernet->destination, 6);
	__builtin_memcpy(ethernet->destination, mac, 6);
	ip->source = ip->destination;
	ip->destination = address;
	/* The words that change are the length and the checksum itself (RFC 1624). */
	ip->checksum = fold((__u16)~ip->checksum + (__u16)~ip->total_length + bpf_htons(total));
	ip->total_length = bpf_htons(total);
	udp->source = bpf_htons(PTP_GENERAL_PORT);
	udp->destination = bpf_htons(PTP_GENERAL_PORT);
	udp->length = bpf_htons(sizeof(*udp) + sizeof(*response));
	udp->checksum = 0;
	response->header.sdo_and_type = PTP_DELAY_RESPONSE;
	response->header.length = bpf_htons(sizeof(*response));
	__builtin_memcpy(response->clock, response->header.clock, 8);
	response->port = response->header.port;
	*(__be64 *)response->header.clock = bpf_cpu_to_be64(CLOCK);
	response->header.port = bpf_htons(1);
	response->header.control = 3;
	response->receive.seconds[0] = 0;
	*(__be32 *)&response->receive.seconds[1] = bpf_htonl(now_ns / 1000000000);
	*(__be32 *)response->receive.nanoseconds = bpf_htonl(now_ns % 1000000000);
}

SEC("xdp")
int reflect(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethernet *ethernet = (void *)(long)ctx->data;
	struct ipv4 *ip = (void *)(ethernet + 1);
	struct udp *udp = (void *)(ip + 1);
	struct ptp *ptp = (void *)(udp + 1);

	if ((void *)(ptp + 1) > end || ethernet->type != bpf_htons(TYPE_IPV4) ||
	    ip->version_and_length != 0x45 || ip->protocol != PROTOCOL_UDP ||
	    udp->destination != bpf_htons(PTP_EVENT_PORT) ||
	    udp->length != bpf_htons(sizeof(*udp) + sizeof(*ptp) + sizeof(struct ptp_timestamp)) ||
	    (ptp->sdo_and_type & 0xf) != PTP_DELAY_REQUEST ||
	    bpf_xdp_adjust_tail(ctx, GROWTH))
		return XDP_PASS;
	end = (void *)(long)ctx->data_end;
	ethernet = (void *)(long)ctx->data;
	ip = (void *)(ethernet + 1);
	udp = (void *)(ip + 1);
	if ((void *)(udp + 1) + sizeof(struct ptp_delay_response) > end)
		return XDP_DROP;
	answer(ethernet, ip, udp, (void *)(udp + 1));
	return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
