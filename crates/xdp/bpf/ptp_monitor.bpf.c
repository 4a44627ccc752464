// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Answers every NetSync Monitor request over IPv4 on ingress: one copy of the frame for the delay
 * response, one for the Sync and one for its Follow_Up, each completed on egress. Reference for the
 * load generator in benchmarks.
 *
 * All copies that leave by one interface in one batch pass the program of the first, so there is
 * only one program, which distinguishes them by their order.
 */
#include "ptp_reflector.h"

#define REQUEST_LEN (sizeof(struct ptp) + sizeof(struct ptp_timestamp) + 4)
#define SYNC_LEN (sizeof(struct ptp) + sizeof(struct ptp_timestamp))

/* NetSync Monitor's TLV, with an IPv4 address in it. */
struct monitor_response {
	struct ptp_delay_response delay;
	__be16 number;
	__be16 length;
	__u8 port_state;
	__u8 reserved;
	__be16 protocol;
	__be16 address_len;
	__u8 address[4];
	__u8 foot[64];
};

#define FLAGS_AT 52		/* of the time, in the last part */
#define TRACEABLE 0x30

#define PARTS 3

/* Ingress interface of frames, once for each part. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, PARTS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bpf_devmap_val));
} copies SEC(".maps");

/* Request whose copies are leaving, and the number that have left. */
struct leaving {
	__be64 clock;
	__u64 parts;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct leaving);
} leaving SEC(".maps");

SEC("xdp.frags")
int reflect(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethernet *ethernet = (void *)(long)ctx->data;
	struct monitor_response *response;

	if (!is_delay_request(ethernet, end, REQUEST_LEN) ||
	    bpf_xdp_adjust_tail(ctx, sizeof(*response) - REQUEST_LEN))
		return XDP_PASS;
	end = (void *)(long)ctx->data_end;
	ethernet = (void *)(long)ctx->data;
	if ((void *)(ethernet + 1) + sizeof(struct ipv4) > end)
		return XDP_DROP;
	swap_addresses(ethernet, (void *)(ethernet + 1));
	return bpf_redirect_map(&copies, 0, BPF_F_BROADCAST);
}

static __always_inline int delay_response(struct ipv4 *ip, struct udp *udp, void *end)
{
	struct monitor_response *response = (void *)(udp + 1);

	if ((void *)(response + 1) > end)
		return XDP_DROP;
	__builtin_memset(response->foot, 0, sizeof(response->foot));
	response->number = bpf_htons(0x21ff);
	response->length = bpf_htons(sizeof(*response) - sizeof(response->delay) - 4);
	response->protocol = bpf_htons(1);
	response->address_len = bpf_htons(sizeof(response->address));
	response->foot[FLAGS_AT] = TRACEABLE;
	respond(ip, udp, &response->delay, sizeof(*response));
	return XDP_PASS;
}

static __always_inline int time_message(struct xdp_md *ctx, __u8 type, __u16 port)
{
	void *end;
	struct ethernet *ethernet;
	struct ipv4 *ip;
	struct udp *udp;
	struct ptp *ptp;

	if (bpf_xdp_adjust_tail(ctx, (int)SYNC_LEN - (int)sizeof(struct monitor_response)))
		return XDP_DROP;
	end = (void *)(long)ctx->data_end;
	ethernet = (void *)(long)ctx->data;
	ip = (void *)(ethernet + 1);
	udp = (void *)(ip + 1);
	ptp = (void *)(udp + 1);
	if ((void *)ptp + SYNC_LEN > end)
		return XDP_DROP;
	write_message_headers(ip, udp, ptp, type, SYNC_LEN, port);
	if (type == PTP_SYNC)
		ptp->flags[0] |= PTP_TWO_STEP;
	write_now((void *)(ptp + 1));
	return XDP_PASS;
}

SEC("xdp.frags/devmap")
int finish_copy(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethernet *ethernet = (void *)(long)ctx->data;
	struct ipv4 *ip = (void *)(ethernet + 1);
	struct udp *udp = (void *)(ip + 1);
	struct ptp *ptp = (void *)(udp + 1);
	__u32 zero = 0;
	struct leaving *now = bpf_map_lookup_elem(&leaving, &zero);
	__be64 clock;

	if (!now || (void *)(ptp + 1) > end)
		return XDP_DROP;
	clock = *(__be64 *)ptp->clock;
	now->parts = now->clock == clock ? now->parts + 1 : 1;
	now->clock = clock;
	switch (now->parts) {
	case 1:
		return delay_response(ip, udp, end);
	case 2:
		return time_message(ctx, PTP_SYNC, PTP_EVENT_PORT);
	default:
		return time_message(ctx, PTP_FOLLOW_UP, PTP_GENERAL_PORT);
	}
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
