/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Replies to NetSync Monitor: a reply leaves in three copies, and on egress the first becomes the
 * delay response, the second a Sync and the third its Follow_Up.
 *
 * All frames that leave by one interface in one batch pass the program that the first of them was
 * sent to (the kernel keeps one for each batch, kernel/bpf/devmap.c). So there is only one program,
 * it distinguishes the copies by their order, and replies sent by redirect pass it too.
 */
#ifndef HOROLOG_MONITOR_H
#define HOROLOG_MONITOR_H

#include "grandmaster.h"

enum monitor_part {
	PART_DELAY_RESPONSE,
	PART_SYNC,
	PART_FOLLOW_UP,
	MONITOR_PARTS,
};

#define TIME_LEN (sizeof(struct ptp) + sizeof(struct ptp_timestamp))

struct copies {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, MONITOR_PARTS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bpf_devmap_val));
};

/* By interface: the interface itself, once for each part, with `finish_copy`. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 256);
	__type(key, __u32);
	__array(values, struct copies);
} ptp_copies SEC(".maps");

/* Reply whose copies are on egress at this CPU: its client, and its progress. */
struct leaving {
	__be64 clock;
	__be16 port;
	__be16 sequence;
	__u32 part;
	bool has_left;		/* the Sync has left, at ... */
	struct ptp_timestamp at;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct leaving);
} ptp_leaving SEC(".maps");

static __always_inline void *copies_by(struct xdp_md *ctx)
{
	__u32 interface = ctx->ingress_ifindex;

	return bpf_map_lookup_elem(&ptp_copies, &interface);
}

/* Sends a reply back by a redirect. */
static __always_inline int redirect_back(struct xdp_md *ctx)
{
	void *copies;

	if (config.ptp_monitor) {
		copies = copies_by(ctx);
		if (copies)
			return bpf_redirect_map(copies, 0, 0);
	}
	return bpf_redirect(ctx->ingress_ifindex, 0);
}

/* Answers a NetSync Monitor request; everything else is passed. */
static __always_inline int master_monitor(struct xdp_md *ctx)
{
	struct responder_state *own = own_state();
	void *copies = copies_by(ctx);
	int verdict;

	if (!own || !copies)
		return XDP_PASS;
	verdict = master(ctx, true);
	if (verdict != XDP_REDIRECT)
		return verdict;
	own->answered_ptp_monitor++;
	return bpf_redirect_map(copies, 0, BPF_F_BROADCAST);
}

static __always_inline bool is_unfinished(const struct ptp *header)
{
	return (header->sdo_and_type & 0xf) == PTP_DELAY_RESPONSE && header->control == UNFINISHED;
}

/* Returns the part that a copy becomes. */
static __always_inline enum monitor_part next_part(struct leaving *leaving,
						   const struct ptp_delay_response *response)
{
	__be64 clock = *(const __be64 *)response->clock;
	__be16 sequence = response->header.sequence;

	if (leaving->clock == clock && leaving->port == response->port &&
	    leaving->sequence == sequence && leaving->part < PART_FOLLOW_UP)
		return ++leaving->part;
	leaving->clock = clock;
	leaving->port = response->port;
	leaving->sequence = sequence;
	return leaving->part = PART_DELAY_RESPONSE;
}

/* Turns a copy into a Sync that leaves now, or its Follow_Up; returns false if no time can be
 * served. */
static __always_inline bool write_time_message(struct leaving *leaving, struct ptp *header,
					       enum monitor_part part)
{
	bool is_sync = part == PART_SYNC;
	struct clock_page *page;
	__u32 zero = 0;

	if (is_sync) {
		page = bpf_map_lookup_elem(&clock_pages, &zero);
		leaving->has_left = page && ptp_now(page, &leaving->at);
	}
	if (!leaving->has_left)
		return false;
	header->sdo_and_type = (header->sdo_and_type & 0xf0) | (is_sync ? PTP_SYNC : PTP_FOLLOW_UP);
	header->length = bpf_htons(TIME_LEN);
	header->flags[0] = PTP_UNICAST | (is_sync ? PTP_TWO_STEP : 0);
	*(__be64 *)header->correction = 0;
	header->control = is_sync ? 0 : 2;
	*(struct ptp_timestamp *)(header + 1) = leaving->at;
	return true;
}

/* Writes the ports and the length of a Sync or its Follow_Up. Returns the sum of the datagram. */
static __always_inline __u64 time_udp(struct udp *udp, enum monitor_part part, const __u16 length)
{
	__be16 port = bpf_htons(part == PART_SYNC ? PTP_EVENT_PORT : PTP_GENERAL_PORT);
	const __u32 *words = (const void *)(udp + 1);
	__u64 sum;
	__u32 i;

	udp->source = port;
	udp->destination = port;
	udp->length = bpf_htons(sizeof(*udp) + length);
	sum = bpf_htons(PROTOCOL_UDP) + 2 * (__u64)udp->length + 2 * (__u64)port;
	for (i = 0; i < TIME_LEN / 4; i++)
		sum += words[i];
	return sum;
}

static __always_inline int finish_ipv4(struct xdp_md *ctx, struct leaving *leaving)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ipv4 *ip = data + sizeof(struct ethernet);
	struct udp *udp = (void *)(ip + 1);
	struct ptp_delay_response *response = (void *)(udp + 1);
	enum monitor_part part;
	__u64 sum;
	__u32 i;

	if ((void *)(response + 1) > end || udp->destination != bpf_htons(PTP_GENERAL_PORT) ||
	    !is_unfinished(&response->header))
		return XDP_PASS;
	part = next_part(leaving, response);
	if (part == PART_DELAY_RESPONSE) {
		response->header.control = PTP_CONTROL_DELAY_RESPONSE;
		return XDP_PASS;
	}
	if (bpf_xdp_adjust_tail(ctx, -(int)(RESPONSE_LEN + PTP_MONITOR_LEN(4) - TIME_LEN)))
		return XDP_DROP;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	ip = data + sizeof(struct ethernet);
	udp = (void *)(ip + 1);
	if ((void *)(udp + 1) + TIME_LEN > end ||
	    !write_time_message(leaving, (void *)(udp + 1), part))
		return XDP_DROP;
	sum = time_udp(udp, part, TIME_LEN);
	udp->checksum = udp_fold(sum + ip->source + ip->destination);
	ip->total_length = bpf_htons(sizeof(*ip) + sizeof(*udp) + TIME_LEN);
	ip->checksum = 0;
	sum = 0;
	for (i = 0; i < sizeof(*ip) / 4; i++)
		sum += ((__u32 *)ip)[i];
	ip->checksum = fold(sum);
	return XDP_PASS;
}

static __always_inline int finish_ipv6(struct xdp_md *ctx, struct leaving *leaving)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ipv6 *ip = data + sizeof(struct ethernet);
	struct udp *udp = (void *)(ip + 1);
	struct ptp_delay_response *response = (void *)(udp + 1);
	enum monitor_part part;
	__u64 sum;
	__u32 i;

	if ((void *)(response + 1) > end || udp->destination != bpf_htons(PTP_GENERAL_PORT) ||
	    !is_unfinished(&response->header))
		return XDP_PASS;
	part = next_part(leaving, response);
	if (part == PART_DELAY_RESPONSE) {
		response->header.control = PTP_CONTROL_DELAY_RESPONSE;
		return XDP_PASS;
	}
	if (bpf_xdp_adjust_tail(ctx, -(int)(RESPONSE_LEN + PTP_MONITOR_LEN(16) - TIME_LEN)))
		return XDP_DROP;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	ip = data + sizeof(struct ethernet);
	udp = (void *)(ip + 1);
	if ((void *)(udp + 1) + TIME_LEN + IPV6_PADDING > end ||
	    !write_time_message(leaving, (void *)(udp + 1), part))
		return XDP_DROP;
	*(__u16 *)((void *)(udp + 1) + TIME_LEN) = 0;
	sum = time_udp(udp, part, TIME_LEN + IPV6_PADDING);
	for (i = 0; i < 4; i++)
		sum += (__u64)ip->source[i] + ip->destination[i];
	udp->checksum = udp_fold(sum);
	ip->payload_length = udp->length;
	return XDP_PASS;
}

static __always_inline int finish_ethernet(struct xdp_md *ctx, struct leaving *leaving)
{
	const __u32 time_end = sizeof(struct ethernet) + TIME_LEN;
	const int reply_len = sizeof(struct ethernet) + RESPONSE_LEN + PTP_MONITOR_LEN(6);
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ptp_delay_response *response = data + sizeof(struct ethernet);
	enum monitor_part part;

	if ((void *)(response + 1) > end || !is_unfinished(&response->header))
		return XDP_PASS;
	part = next_part(leaving, response);
	if (part == PART_DELAY_RESPONSE) {
		response->header.control = PTP_CONTROL_DELAY_RESPONSE;
		return XDP_PASS;
	}
	if (bpf_xdp_adjust_tail(ctx, ETHERNET_MIN - reply_len))
		return XDP_DROP;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + ETHERNET_MIN > end ||
	    !write_time_message(leaving, data + sizeof(struct ethernet), part))
		return XDP_DROP;
	__builtin_memset(data + time_end, 0, ETHERNET_MIN - time_end);
	return XDP_PASS;
}

/* Turns a copy into its part; other frames leave unchanged. */
static __always_inline int finish(struct xdp_md *ctx)
{
	struct ethernet *ethernet = (void *)(long)ctx->data;
	struct leaving *leaving;
	__u32 zero = 0;

	leaving = bpf_map_lookup_elem(&ptp_leaving, &zero);
	if (!leaving || (void *)(ethernet + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	switch (ethernet->type) {
	case bpf_htons(TYPE_IPV4):
		return finish_ipv4(ctx, leaving);
	case bpf_htons(TYPE_IPV6):
		return finish_ipv6(ctx, leaving);
	case bpf_htons(TYPE_PTP):
		return finish_ethernet(ctx, leaving);
	default:
		return XDP_PASS;
	}
}

#endif
