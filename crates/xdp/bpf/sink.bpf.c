// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Counts every IPv4 UDP frame for one port and drops it: the part of a load that arrives if there
 * are no replies. The benchmarks count the requests really sent with it.
 */
#include "net.h"
#include "abi.h"

const volatile __be16 port;

/* One entry for each CPU, which is its only writer. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sink_count);
} counts SEC(".maps");

SEC("xdp.frags")
int count(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethernet *ethernet = (void *)(long)ctx->data;
	struct ipv4 *ip = (void *)(ethernet + 1);
	struct udp *udp = (void *)(ip + 1);
	__u32 processor = bpf_get_smp_processor_id();
	struct sink_count *count;

	if ((void *)(udp + 1) > end || ethernet->type != bpf_htons(TYPE_IPV4) ||
	    ip->version_and_length != 0x45 || ip->protocol != PROTOCOL_UDP ||
	    udp->destination != port)
		return XDP_PASS;
	count = bpf_map_lookup_elem(&counts, &processor);
	if (!count)
		return XDP_PASS;
	count->frames++;
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
