// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * In-kernel load generator: the sending side builds and paces requests, the verifying side matches,
 * verifies and counts replies, both without leaving the driver's path.
 *
 * `generate` is run by BPF_PROG_TEST_RUN with live frames, one long call on each sending CPU. It is
 * called for frames far more often than the rate requires and drops the frame while it is early, so
 * intended send times are met to a fraction of a microsecond without a timer. Frames return as the
 * server modified them, so every byte is written each time.
 *
 * `verify` runs on received packets. It drops the replies that it has counted, so replies to
 * simulated clients never reach the network stack, and passes everything else.
 *
 * Both are one program, attached to the interface: a program that is not attached takes the kernel
 * some 20 ms to set up for each call. Frames to be built have the loopback interface as their
 * ingress interface, where the test run puts them.
 */
#include "generator.h"
#include "generator_ntp.h"
#include "generator_profile.h"
#include "generator_ptp.h"

/* One entry for each CPU: the lane that sends there. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lane);
} lanes SEC(".maps");

/* Moves the lane to its next request. */
static __always_inline void advance(struct lane *lane, const struct generator_config *cfg,
				    __u64 now_ns)
{
	if (!lane->sent)
		lane->first_sent_ns = now_ns;
	lane->last_sent_ns = now_ns;
	lane->sent++;
	lane->next += next_interval(cfg, lane->interval);
	lane->sequence++;
	lane->client++;
	if (lane->client >= lane->clients)
		lane->client = 0;
	if (lane->sequence >= lane->sequence_end) {
		lane->sequence = 0;
		lane->client = 0;
	}
}

/* Builds a request in a frame of the right length, whose IP header has ip_len bytes; 0 if it has
 * none. */
static __always_inline int build_request(struct ethernet *ethernet, void *end, __u32 ip_len,
					 const struct generator_config *cfg,
					 const struct request *request)
{
	switch (options.protocol) {
	case PROTOCOL_PTP_DELAY:
		return build_ptp_request(ethernet, end, ip_len, 0, cfg, request);
	case PROTOCOL_PTP_MONITOR:
		return build_ptp_request(ethernet, end, ip_len, PTP_EXTENSION_LEN, cfg, request);
	default:
		return ip_len ? build_ntp_request(ethernet, end, ip_len, cfg, request) : -1;
	}
}

static __always_inline int generate(struct xdp_md *ctx, const struct generator_config *cfg)
{
	__u32 processor = bpf_get_smp_processor_id();
	struct lane *lane = bpf_map_lookup_elem(&lanes, &processor);
	__u64 now_ns = bpf_ktime_get_ns();
	struct request request;
	struct lane_counts *counts;
	__u64 intended_ns;
	void *data, *end;
	int failed;

	if (!lane || !lane->active || lane->done)
		return XDP_DROP;
	intended_ns = lane->start_ns + (lane->next >> 16);
	if (lane->next >= lane->end || now_ns >= lane->give_up_ns) {
		lane->done = 1;
		return XDP_DROP;
	}
	if (now_ns < intended_ns && !is_past_segment(lane))
		return XDP_DROP;
	counts = bpf_map_lookup_elem(&lane_counts, &processor);
	if (!counts)
		return XDP_DROP;
	if (has_load_profile(lane) && !stays_in_segment(lane, counts, cfg, now_ns))
		return XDP_DROP;

	/* The far end may have changed the frame's length, and the kernel assumes the original one
	 * until the program changes it. */
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (end - data != cfg->request_len) {
		if (bpf_xdp_adjust_tail(ctx, (int)cfg->request_len - (int)(end - data)))
			return XDP_DROP;
		data = (void *)(long)ctx->data;
		end = (void *)(long)ctx->data_end;
	}

	request.address = address_of(cfg, lane->client_base, lane->client, lane->sequence);
	request.token = token_of(cfg, intended_ns, lane->sequence);
	request.lane = lane->number;
	request.sequence = lane->sequence;
	if (options.ethernet)
		failed = build_request(data, end, 0, cfg, &request);
	else if (cfg->ipv6)
		failed = build_request(data, end, sizeof(struct ipv6), cfg, &request);
	else
		failed = build_request(data, end, sizeof(struct ipv4), cfg, &request);
	if (failed)
		return XDP_DROP;
	if (options.protocol == PROTOCOL_PTP_MONITOR)
		open_exchange(cfg, &request, intended_ns);
	else
		open_sequence(lane->number, lane->sequence);
	advance(lane, cfg, now_ns);
	if (options.clients)
		count_request(request.address - cfg->first_client);
	if (options.load_profile) {
		counts = interval_counts(counts, cfg, intended_ns);
		if (!counts->first_sent_ns)
			counts->first_sent_ns = now_ns;
		counts->last_sent_ns = now_ns;
	}
	record(&counts->lateness_ns, now_ns - intended_ns);
	return bpf_redirect(cfg->interface, 0);
}

/* Returns true if an IPv4 packet goes from the target to a simulated client, or to the group. */
static __always_inline bool is_reply_ipv4(const struct generator_config *cfg,
					  const struct ipv4 *ip)
{
	const struct ipv4 *request = (const void *)cfg->request + sizeof(struct ethernet);

	return ip->version_and_length == 0x45 && ip->protocol == PROTOCOL_UDP &&
	       ip->source == *(const __be32 *)cfg->target &&
	       (options.multicast ? ip->destination == request->destination :
			    is_simulated(cfg, bpf_ntohl(ip->destination)));
}

/* Returns true if an IPv6 packet goes from the target to a simulated client, or to the group. */
static __always_inline bool is_reply_ipv6(const struct generator_config *cfg,
					  const struct ipv6 *ip)
{
	const struct ipv6 *request = (const void *)cfg->request + sizeof(struct ethernet);
	const __be32 *target = (const __be32 *)cfg->target;
	const __be32 *prefix =
		options.multicast ? request->destination : (const __be32 *)cfg->prefix;

	return ip->next_header == PROTOCOL_UDP &&
	       ip->source[0] == target[0] && ip->source[1] == target[1] &&
	       ip->source[2] == target[2] && ip->source[3] == target[3] &&
	       ip->destination[0] == prefix[0] && ip->destination[1] == prefix[1] &&
	       ip->destination[2] == prefix[2] &&
	       (options.multicast ? ip->destination[3] == prefix[3] :
			    is_simulated(cfg, bpf_ntohl(ip->destination[3])));
}

/* Returns true if a datagram with these ports can be a reply. */
static __always_inline bool is_reply_udp(const struct generator_config *cfg,
					 const struct udp *udp)
{
	if (options.protocol == PROTOCOL_NTP)
		return udp->source == cfg->target_port;
	return udp->source == udp->destination && (udp->source == bpf_htons(PTP_EVENT_PORT) ||
						   udp->source == bpf_htons(PTP_GENERAL_PORT));
}

/* Returns true if a PTP frame without IP goes from the target to this host, or to the group. */
static __always_inline bool is_reply_ethernet(const struct generator_config *cfg,
					      const struct ethernet *ethernet)
{
	const struct ethernet *request = (const void *)cfg->request;
	const __u8 *own = options.multicast ? request->destination : request->source;

	return ethernet->type == bpf_htons(TYPE_PTP) &&
	       is_same_mac(ethernet->source, cfg->target) &&
	       is_same_mac(ethernet->destination, own);
}

static __always_inline int verify_ethernet(const struct generator_config *cfg,
					   struct ethernet *ethernet, void *end)
{
	struct lane_counts *counts = current_interval_counts(cfg);
	struct reply reply = { .payload = ethernet + 1, .end = end };

	if (!counts || !is_reply_ethernet(cfg, ethernet))
		return XDP_PASS;
	/* All replies have one destination, the address of the only client if addresses distinguish
	 * clients. */
	reply.address = cfg->first_client;
	reply.udp_len = sizeof(struct udp) + (end - reply.payload);
	return verify_ptp(counts, cfg, &reply);
}

static __always_inline int verify(struct xdp_md *ctx, const struct generator_config *cfg)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethernet *ethernet = (void *)(long)ctx->data;
	struct reply reply;
	struct lane_counts *counts;
	struct udp *udp;

	if ((void *)(ethernet + 1) > end)
		return XDP_PASS;
	if (options.ethernet)
		return verify_ethernet(cfg, ethernet, end);
	if (cfg->ipv6) {
		struct ipv6 *ip = (void *)(ethernet + 1);

		udp = (void *)(ip + 1);
		if (ethernet->type != bpf_htons(TYPE_IPV6) || (void *)(udp + 1) > end ||
		    !is_reply_ipv6(cfg, ip))
			return XDP_PASS;
		reply.address = bpf_ntohl(ip->destination[3]);
	} else {
		struct ipv4 *ip = (void *)(ethernet + 1);

		udp = (void *)(ip + 1);
		if (ethernet->type != bpf_htons(TYPE_IPV4) || (void *)(udp + 1) > end ||
		    !is_reply_ipv4(cfg, ip))
			return XDP_PASS;
		reply.address = bpf_ntohl(ip->destination);
	}
	counts = current_interval_counts(cfg);
	if (!counts || !is_reply_udp(cfg, udp))
		return XDP_PASS;
	reply.payload = udp + 1;
	reply.end = end;
	reply.port = bpf_ntohs(udp->destination);
	reply.udp_len = bpf_ntohs(udp->length);
	if (options.protocol == PROTOCOL_NTP)
		return verify_ntp(counts, cfg, &reply);
	return verify_ptp(counts, cfg, &reply);
}

/* Generator of the next kind of requests in a mix. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} next SEC(".maps");

/* A frame that is early for one kind of requests may be in time for the next, and a packet that is
 * no reply to the one may be a reply to the other. */
SEC("xdp.frags")
int load(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct generator_config *cfg = bpf_map_lookup_elem(&config, &zero);
	int verdict;

	if (!cfg)
		return XDP_PASS;
	if (ctx->ingress_ifindex == cfg->interface) {
		verdict = verify(ctx, cfg);
		if (options.chained && verdict == XDP_PASS)
			bpf_tail_call(ctx, &next, 0);
		return verdict;
	}
	verdict = generate(ctx, cfg);
	if (options.chained && verdict == XDP_DROP)
		bpf_tail_call(ctx, &next, 0);
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
