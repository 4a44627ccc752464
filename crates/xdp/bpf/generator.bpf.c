// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The load generator inside the kernel: one half makes and paces requests, the other matches,
 * verifies and counts replies, both without leaving the driver's path.
 *
 * `generate` is run by BPF_PROG_TEST_RUN with live frames, one long call on each sending processor.
 * It is asked for a frame far more often than one is due and drops the frame while it is early, so
 * the schedule's instants are kept to a fraction of a microsecond without a timer. Frames come back
 * as the server left them, so every byte is written each time.
 *
 * `verify` runs where replies arrive. It drops what it has counted, so replies to simulated clients
 * never reach the network stack, and lets all else pass.
 *
 * Both are one program, attached to the interface: a program that is attached nowhere takes the
 * kernel some 20 ms to set up for each call. Frames to be made show the loopback interface, where
 * the test run puts them, as the one that they came in by.
 */
#include "generator.h"
#include "generator_course.h"
#include "generator_ntp.h"
#include "generator_ptp.h"

/* One entry for each processor: the lane that sends there. */
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

/* Makes a request of a frame of the right length, whose IP header has ip_len bytes; 0 where it has
 * none. */
static __always_inline int ask(struct ethernet *ethernet, void *end, __u32 ip_len,
			       const struct generator_config *cfg, const struct request *request)
{
	switch (asked.protocol) {
	case PROTOCOL_PTP_DELAY:
		return ask_ptp(ethernet, end, ip_len, 0, cfg, request);
	case PROTOCOL_PTP_MONITOR:
		return ask_ptp(ethernet, end, ip_len, PTP_EXTENSION_LEN, cfg, request);
	default:
		return ip_len ? ask_ntp(ethernet, end, ip_len, cfg, request) : -1;
	}
}

static __always_inline int generate(struct xdp_md *ctx, const struct generator_config *cfg)
{
	__u32 processor = bpf_get_smp_processor_id();
	struct lane *lane = bpf_map_lookup_elem(&lanes, &processor);
	__u64 now_ns = bpf_ktime_get_ns();
	struct request request;
	struct tally *tally;
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
	if (now_ns < intended_ns && !is_past_leg(lane))
		return XDP_DROP;
	tally = bpf_map_lookup_elem(&tallies, &processor);
	if (!tally)
		return XDP_DROP;
	if (is_on_course(lane) && !stays_on_leg(lane, tally, cfg, now_ns))
		return XDP_DROP;

	/* A peer may have changed the frame's length on its way, and the kernel takes the one that the
	 * frame began with for the right one until the program changes it. */
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
	if (asked.ethernet)
		failed = ask(data, end, 0, cfg, &request);
	else if (cfg->ipv6)
		failed = ask(data, end, sizeof(struct ipv6), cfg, &request);
	else
		failed = ask(data, end, sizeof(struct ipv4), cfg, &request);
	if (failed)
		return XDP_DROP;
	if (asked.protocol == PROTOCOL_PTP_MONITOR)
		open_exchange(cfg, &request, intended_ns);
	else
		open_sequence(lane->number, lane->sequence);
	advance(lane, cfg, now_ns);
	if (asked.clients)
		count_asked(request.address - cfg->first_client);
	if (asked.courses) {
		tally = book_of(tally, cfg, intended_ns);
		if (!tally->first_sent_ns)
			tally->first_sent_ns = now_ns;
		tally->last_sent_ns = now_ns;
	}
	record(&tally->lateness_ns, now_ns - intended_ns);
	return bpf_redirect(cfg->interface, 0);
}

/* Whether an IPv4 packet goes from the target to a simulated client, or to the group. */
static __always_inline bool is_reply_ipv4(const struct generator_config *cfg,
					  const struct ipv4 *ip)
{
	const struct ipv4 *request = (const void *)cfg->request + sizeof(struct ethernet);

	return ip->version_and_length == 0x45 && ip->protocol == PROTOCOL_UDP &&
	       ip->source == *(const __be32 *)cfg->target &&
	       (asked.multicast ? ip->destination == request->destination :
			    is_simulated(cfg, bpf_ntohl(ip->destination)));
}

/* The same of an IPv6 packet. */
static __always_inline bool is_reply_ipv6(const struct generator_config *cfg,
					  const struct ipv6 *ip)
{
	const struct ipv6 *request = (const void *)cfg->request + sizeof(struct ethernet);
	const __be32 *target = (const __be32 *)cfg->target;
	const __be32 *prefix = asked.multicast ? request->destination : (const __be32 *)cfg->prefix;

	return ip->next_header == PROTOCOL_UDP &&
	       ip->source[0] == target[0] && ip->source[1] == target[1] &&
	       ip->source[2] == target[2] && ip->source[3] == target[3] &&
	       ip->destination[0] == prefix[0] && ip->destination[1] == prefix[1] &&
	       ip->destination[2] == prefix[2] &&
	       (asked.multicast ? ip->destination[3] == prefix[3] :
			    is_simulated(cfg, bpf_ntohl(ip->destination[3])));
}

/* Whether a datagram between these ports can be a reply. */
static __always_inline bool is_reply_udp(const struct generator_config *cfg,
					 const struct udp *udp)
{
	if (asked.protocol == PROTOCOL_NTP)
		return udp->source == cfg->target_port;
	return udp->source == udp->destination && (udp->source == bpf_htons(PTP_EVENT_PORT) ||
						   udp->source == bpf_htons(PTP_GENERAL_PORT));
}

/* Whether a frame of PTP without IP comes from the target to this host, or to the group. */
static __always_inline bool is_reply_ethernet(const struct generator_config *cfg,
					      const struct ethernet *ethernet)
{
	const struct ethernet *request = (const void *)cfg->request;
	const __u8 *own = asked.multicast ? request->destination : request->source;

	return ethernet->type == bpf_htons(TYPE_PTP) &&
	       is_same_mac(ethernet->source, cfg->target) &&
	       is_same_mac(ethernet->destination, own);
}

static __always_inline int verify_ethernet(const struct generator_config *cfg,
					   struct ethernet *ethernet, void *end)
{
	struct tally *tally = present_book(cfg);
	struct reply reply = { .payload = ethernet + 1, .end = end };

	if (!tally || !is_reply_ethernet(cfg, ethernet))
		return XDP_PASS;
	/* All answers come to one address, that of the only client where they tell clients apart. */
	reply.address = cfg->first_client;
	reply.udp_len = sizeof(struct udp) + (end - reply.payload);
	return judge_ptp(tally, cfg, &reply);
}

static __always_inline int verify(struct xdp_md *ctx, const struct generator_config *cfg)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethernet *ethernet = (void *)(long)ctx->data;
	struct reply reply;
	struct tally *tally;
	struct udp *udp;

	if ((void *)(ethernet + 1) > end)
		return XDP_PASS;
	if (asked.ethernet)
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
	tally = present_book(cfg);
	if (!tally || !is_reply_udp(cfg, udp))
		return XDP_PASS;
	reply.payload = udp + 1;
	reply.end = end;
	reply.port = bpf_ntohs(udp->destination);
	reply.udp_len = bpf_ntohs(udp->length);
	if (asked.protocol == PROTOCOL_NTP)
		return judge_ntp(tally, cfg, &reply);
	return judge_ptp(tally, cfg, &reply);
}

/* The generator of the next kind of requests in a mix. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} next SEC(".maps");

/* A frame that is not due for one kind of requests may be due for the next, and a packet that is no
 * reply to the one may be a reply to the other. */
SEC("xdp")
int load(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct generator_config *cfg = bpf_map_lookup_elem(&config, &zero);
	int verdict;

	if (!cfg)
		return XDP_PASS;
	if (ctx->ingress_ifindex == cfg->interface) {
		verdict = verify(ctx, cfg);
		if (asked.chained && verdict == XDP_PASS)
			bpf_tail_call(ctx, &next, 0);
		return verdict;
	}
	verdict = generate(ctx, cfg);
	if (asked.chained && verdict == XDP_DROP)
		bpf_tail_call(ctx, &next, 0);
	return verdict;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
