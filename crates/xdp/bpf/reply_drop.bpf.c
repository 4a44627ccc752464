// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Drops replies to simulated clients after the packet sockets and before the network stack, so that
 * the AF_PACKET engine needs no firewall rule. Everything else is passed.
 */
#include "net.h"

#include <linux/pkt_cls.h>

/* One object, because the compiler may reorder several. */
const volatile struct {
	__be32 target[4];	/* the target's address; IPv4 in the first word */
	__be32 network[4];	/* the simulated clients' network, likewise */
	__be32 mask[4];
	__u16 ports[2];		/* the target's first and last */
	__u32 ipv6;
} filter;

static __always_inline bool is_simulated(const __be32 *address, int words)
{
	int i;

	for (i = 0; i < words; i++)
		if ((address[i] & filter.mask[i]) != filter.network[i])
			return false;
	return true;
}

static __always_inline bool is_target(const __be32 *address, int words)
{
	int i;

	for (i = 0; i < words; i++)
		if (address[i] != filter.target[i])
			return false;
	return true;
}

SEC("tc")
int drop_replies(struct __sk_buff *skb)
{
	struct {
		struct ethernet ethernet;
		union {
			struct ipv4 v4;
			struct ipv6 v6;
		};
	} __attribute__((packed)) head;
	__u32 header_len = filter.ipv6 ? sizeof(head.v6) : sizeof(head.v4);
	__be32 source[4] = {}, destination[4] = {};
	struct udp udp;
	__u8 protocol;
	__u16 port;

	if (skb->protocol != (filter.ipv6 ? bpf_htons(TYPE_IPV6) : bpf_htons(TYPE_IPV4)))
		return TC_ACT_UNSPEC;
	if (filter.ipv6) {
		if (bpf_skb_load_bytes(skb, sizeof(head.ethernet), &head.v6, sizeof(head.v6)))
			return TC_ACT_UNSPEC;
		protocol = head.v6.next_header;
		__builtin_memcpy(source, head.v6.source, 16);
		__builtin_memcpy(destination, head.v6.destination, 16);
	} else {
		if (bpf_skb_load_bytes(skb, sizeof(head.ethernet), &head.v4, sizeof(head.v4)))
			return TC_ACT_UNSPEC;
		if (head.v4.version_and_length != 0x45)
			return TC_ACT_UNSPEC;
		protocol = head.v4.protocol;
		source[0] = head.v4.source;
		destination[0] = head.v4.destination;
	}
	if (protocol != PROTOCOL_UDP || !is_target(source, filter.ipv6 ? 4 : 1) ||
	    !is_simulated(destination, filter.ipv6 ? 4 : 1))
		return TC_ACT_UNSPEC;
	if (bpf_skb_load_bytes(skb, sizeof(head.ethernet) + header_len, &udp, sizeof(udp)))
		return TC_ACT_UNSPEC;
	port = bpf_ntohs(udp.source);
	if (port < filter.ports[0] || port > filter.ports[1])
		return TC_ACT_UNSPEC;
	return TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
