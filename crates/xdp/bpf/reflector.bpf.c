// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Returns every UDP frame for one port with its addresses and ports swapped and nothing else
 * changed: the upper limit of the link and the driver. The benchmarks compare the responder with
 * it.
 *
 * A swap leaves all checksums right.
 */
#include "net.h"

const volatile __be16 port;

SEC("xdp.frags")
int reflect(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethernet *ethernet = (void *)(long)ctx->data;
	struct ipv4 *ip = (void *)(ethernet + 1);
	struct udp *udp = (void *)(ip + 1);
	__u8 mac[6];
	__be32 address;
	__be16 source;

	if ((void *)(udp + 1) > end || ethernet->type != bpf_htons(TYPE_IPV4) ||
	    ip->version_and_length != 0x45 || ip->protocol != PROTOCOL_UDP ||
	    udp->destination != port)
		return XDP_PASS;
	__builtin_memcpy(mac, ethernet->source, 6);
	__builtin_memcpy(ethernet->source, ethernet->destination, 6);
	__builtin_memcpy(ethernet->destination, mac, 6);
	address = ip->source;
	ip->source = ip->destination;
	ip->destination = address;
	source = udp->source;
	udp->source = udp->destination;
	udp->destination = source;
	return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
