// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Takes the copies of a stream where they arrive, counts them for each child, and drops them, so
 * that receiving costs as little as it can. A child is a UDP port.
 *
 * The count, the sum and the sum of squares of the sequence numbers together say whether each
 * packet came exactly once, on whichever processors. The order is judged on each of them. Latencies
 * are taken only where they are asked for: then the copies of each packet are counted, which tells
 * the first and the last.
 */
#include "stream.h"
#include "histogram.h"

#define WINDOW (1 << 16)	/* packets of a lane that may be under way */
#define ATTEMPTS 8

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stream_expected);
} expected SEC(".maps");

/* By processor, lane and child. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stream_count);
} counts SEC(".maps");

/* By lane and sequence number: which packet it is, above 16 bits that say how many copies came. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} under_way SEC(".maps");

/* One entry for each processor. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stream_delays);
} delays SEC(".maps");

/* How many copies of a packet have come with this one; 0 if that is not known. */
static __always_inline __u32 number_of_copy(const struct stream_mark *mark)
{
	__u32 index = mark->lane * WINDOW + (mark->sequence & (WINDOW - 1));
	__u64 tag = (__u64)mark->trial << 48 | (__u64)(__u32)mark->sequence << 16;
	__u64 *place = bpf_map_lookup_elem(&under_way, &index);
	int i;

	if (!place)
		return 0;
	for (i = 0; i < ATTEMPTS; i++) {
		__u64 before = *(volatile __u64 *)place;
		__u64 after = (before >> 16) == (tag >> 16) ? before + 1 : tag + 1;

		if (__sync_val_compare_and_swap(place, before, after) == before)
			return after & 0xffff;
	}
	return 0;
}

static __always_inline void time(const struct stream_expected *wanted,
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

SEC("xdp")
int take(struct xdp_md *ctx)
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
		time(wanted, mark, processor);
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
