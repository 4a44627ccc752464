// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Receives the copies of a stream on ingress, counts them for each child, and drops them, so that
 * receiving costs as little as possible. A child is a UDP port.
 *
 * The count, the sum and the sum of squares of the sequence numbers together verify that each
 * packet arrived exactly once, on any CPUs. The order is checked on each of them. Latencies are
 * measured only if requested: then the copies of each packet are counted, which identifies the
 * first and the last.
 */
#include "stream.h"
#include "histogram.h"

#define WINDOW (1 << 16)	/* packets of a lane that may be in flight */
#define ATTEMPTS 8

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stream_expected);
} expected SEC(".maps");

/* By CPU, lane and child. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stream_count);
} counts SEC(".maps");

/* By lane and sequence number: identity of the packet, above 16 bits with the number of copies
 * received. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} in_flight SEC(".maps");

/* One entry for each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stream_delays);
} delays SEC(".maps");

/* Returns the number of copies of a packet that have arrived, including this one; 0 if unknown. */
static __always_inline __u32 number_of_copy(const struct stream_mark *mark)
{
	__u32 index = mark->lane * WINDOW + (mark->sequence & (WINDOW - 1));
	__u64 tag = (__u64)mark->trial << 48 | (__u64)(__u32)mark->sequence << 16;
	__u64 *entry = bpf_map_lookup_elem(&in_flight, &index);
	int i;

	if (!entry)
		return 0;
	for (i = 0; i < ATTEMPTS; i++) {
		__u64 before = *(volatile __u64 *)entry;
		__u64 after = (before >> 16) == (tag >> 16) ? before + 1 : tag + 1;

		if (__sync_val_compare_and_swap(entry, before, after) == before)
			return after & 0xffff;
	}
	return 0;
}

static __always_inline void record_delay(const struct stream_expected *wanted,
					 const struct stream_mark *mark, __u32 processor)
{
	__u32 number = number_of_copy(mark);
	struct stream_delays *own;
	__u64 delay_ns;

	if (number != 1 && number != wanted->children)
		return;
	own = bpf_map_lookup_elem(&delays, &processor);
	if (!own)
		return;
	delay_ns = bpf_ktime_get_ns() - mark->sent_ns;
	if (number == 1)
		record(&own->first, delay_ns);
	if (number == wanted->children)
		record(&own->last, delay_ns);
}

SEC("xdp.frags")
int receive(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethernet *ethernet = (void *)(long)ctx->data;
	struct ipv4 *ip = (void *)(ethernet + 1);
	struct udp *udp = (void *)(ip + 1);
	struct stream_mark *mark = (void *)(udp + 1);
	__u32 zero = 0, index, processor = bpf_get_smp_processor_id();
	const struct stream_expected *wanted = bpf_map_lookup_elem(&expected, &zero);
	__u32 child, payload_len;
	struct stream_count *count;

	if (!wanted || (void *)(mark + 1) > end || ethernet->type != bpf_htons(TYPE_IPV4) ||
	    ip->version_and_length != 0x45 || ip->protocol != PROTOCOL_UDP)
		return XDP_PASS;
	child = (__u32)bpf_ntohs(udp->destination) - wanted->first_port;
	if (child >= wanted->children)
		return XDP_PASS;
	if (mark->trial != wanted->trial || mark->lane >= wanted->lanes)
		return XDP_DROP;
	index = (processor * wanted->lanes + mark->lane) * wanted->children + child;
	count = bpf_map_lookup_elem(&counts, &index);
	if (!count)
		return XDP_DROP;
	payload_len = bpf_ntohs(udp->length) - sizeof(*udp);
	if (payload_len != wanted->payload_len)
		count->damaged++;
	count->packets++;
	count->bytes += payload_len;
	count->sum += mark->sequence;
	count->squares += mark->sequence * mark->sequence;
	if (mark->sequence < count->next)
		count->disordered++;
	else
		count->next = mark->sequence + 1;
	if (wanted->timed)
		record_delay(wanted, mark, processor);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
