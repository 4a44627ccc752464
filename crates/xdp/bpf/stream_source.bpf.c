// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Sends a stream: numbered and timestamped packets to one address at an exact rate, for a benchmark
 * of forwarders. It is run by BPF_PROG_TEST_RUN with live frames, one long call on each sending
 * CPU, as generator.bpf.c is; a frame before its intended send time is dropped.
 *
 * A delayed source does not send missed packets in a burst, which would fill rings and
 * buffers at an unintended rate: the schedule continues from then.
 */
#include "stream.h"

#define LOOPBACK 1	/* ingress interface of the frames of a test run */
#define CHECKSUM (STREAM_HEADERS - 2)

const volatile struct stream_config stream;
_Static_assert(CHECKSUM == sizeof(stream.headers), "all but the checksum");

/* One entry for each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stream_lane);
} lanes SEC(".maps");

/* Postpones a schedule whose next packet is too late. */
static __always_inline void postpone(struct stream_lane *lane, __u64 now_ns)
{
	__u64 now = (now_ns - lane->start_ns) << 16;

	if (now > lane->next + lane->late_max)
		lane->next = now;
}

SEC("xdp.frags")
int send(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end, *data = (void *)(long)ctx->data;
	struct stream_mark *mark = data + STREAM_HEADERS;
	__u32 processor = bpf_get_smp_processor_id();
	struct stream_lane *lane;
	__u64 now_ns, sum;
	__u32 i;

	if (ctx->ingress_ifindex != LOOPBACK)
		return XDP_PASS;
	lane = bpf_map_lookup_elem(&lanes, &processor);
	if (!lane || !lane->active || lane->done || (void *)(mark + 1) > end)
		return XDP_DROP;
	now_ns = bpf_ktime_get_ns();
	if (now_ns < lane->start_ns + (lane->next >> 16))
		return XDP_DROP;
	postpone(lane, now_ns);
	if (lane->next >= lane->end) {
		lane->done = 1;
		return XDP_DROP;
	}
	/* The forwarder of the previous frame may have overwritten all of its headers. */
	for (i = 0; i < CHECKSUM / sizeof(__u64); i++)
		((__u64 *)data)[i] = stream.headers[i];
	mark->trial = lane->trial;
	mark->lane = lane->number;
	mark->sequence = lane->sent;
	mark->sent_ns = now_ns;
	sum = stream.udp_sum + mark->trial + mark->lane + sum64(lane->sent) + sum64(now_ns);
	*(__u16 *)(data + CHECKSUM) = udp_fold(sum);
	if (!lane->sent)
		lane->first_sent_ns = now_ns;
	lane->last_sent_ns = now_ns;
	lane->sent++;
	lane->next += lane->interval;
	return bpf_redirect(stream.interface, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
