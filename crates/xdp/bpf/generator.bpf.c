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
#include "net.h"
#include "abi.h"
#include "histogram.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct generator_config);
} config SEC(".maps");

/* One entry for each processor: the lane that sends there. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lane);
} lanes SEC(".maps");

/* One entry for each processor, so that nobody else writes it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tally);
} tallies SEC(".maps");

/* SEEN_WORDS for each lane: a bit for every sequence number that has been answered. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SEEN_WORDS);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

/* For each client the receive timestamp, in host order, of the last reply that it got, which its
 * next request in interleaved mode refers to. The verifying side writes it and the sending side
 * reads it, perhaps on another processor: either sees a whole word, and an old one is no error. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} origins SEC(".maps");

/* Exponential quantiles of mean 1, scaled by 2^16. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, EXPONENTIAL_ENTRIES);
	__type(key, __u32);
	__type(value, __u32);
} exponential SEC(".maps");

static __always_inline __u64 next_interval(const struct generator_config *cfg, __u64 mean)
{
	__u32 *quantile, draw;

	if (!cfg->exponential)
		return mean;
	draw = bpf_get_prandom_u32() & (EXPONENTIAL_ENTRIES - 1);
	quantile = bpf_map_lookup_elem(&exponential, &draw);
	if (!quantile)
		return mean;
	return (mean >> 16) * *quantile + (((mean & 0xffff) * *quantile) >> 16);
}

/* Copies the request into the frame by 8 bytes; its length is one of the two that NTP gives. */
static __always_inline void copy_request(__u8 *frame, const __u8 *request, __u32 length)
{
	__u32 i;

#pragma unroll
	for (i = 0; i + 8 <= length; i += 8)
		*(__u64 *)(frame + i) = *(const __u64 *)(request + i);
#pragma unroll
	for (i = length & ~7U; i + 2 <= length; i += 2)
		*(__u16 *)(frame + i) = *(const __u16 *)(request + i);
}

/* The timestamps of a request. */
struct stamps {
	__be64 origin;
	__be64 receive;
	__be64 transmit;
};

/* Writes the timestamps and returns the sum of their words. */
static __always_inline __u64 stamp(struct ntp *ntp, const struct generator_config *cfg,
				   const struct stamps *stamps)
{
	ntp->transmit = stamps->transmit;
	if (!cfg->interleaved)
		return sum64(stamps->transmit);
	ntp->origin = stamps->origin;
	ntp->receive = stamps->receive;
	return sum64(stamps->origin) + sum64(stamps->receive) + sum64(stamps->transmit);
}

static __always_inline int fill_ipv4(void *data, void *end, const struct generator_config *cfg,
				     __u32 address, __be16 port, const struct stamps *stamps)
{
	struct ethernet *ethernet = data;
	struct ipv4 *ip = (void *)(ethernet + 1);
	struct udp *udp = (void *)(ip + 1);
	struct ntp *ntp = (void *)(udp + 1);
	__be32 source = bpf_htonl(address);

	if ((void *)(ntp + 1) > end)
		return -1;
	copy_request(data, cfg->request,
		     sizeof(*ethernet) + sizeof(*ip) + sizeof(*udp) + sizeof(*ntp));
	ip->source = source;
	ip->checksum = fold(cfg->ip_sum + source);
	udp->source = port;
	udp->checksum = udp_fold(cfg->udp_sum + source + port + stamp(ntp, cfg, stamps));
	return 0;
}

static __always_inline int fill_ipv6(void *data, void *end, const struct generator_config *cfg,
				     __u32 address, __be16 port, const struct stamps *stamps)
{
	struct ethernet *ethernet = data;
	struct ipv6 *ip = (void *)(ethernet + 1);
	struct udp *udp = (void *)(ip + 1);
	struct ntp *ntp = (void *)(udp + 1);
	__be32 source = bpf_htonl(address);

	if ((void *)(ntp + 1) > end)
		return -1;
	copy_request(data, cfg->request,
		     sizeof(*ethernet) + sizeof(*ip) + sizeof(*udp) + sizeof(*ntp));
	ip->source[3] = source;
	udp->source = port;
	udp->checksum = udp_fold(cfg->udp_sum + source + port + stamp(ntp, cfg, stamps));
	return 0;
}

/* Between two consecutive random sources; see horolog_load::clients, which says why. */
#define SCATTER 1327217909ULL

static __always_inline __u32 address_of(const struct generator_config *cfg, __u32 client_base,
					__u32 client, __u32 sequence)
{
	__u64 scattered;

	if (cfg->random_room) {
		scattered = ((__u64)client_base + sequence) * SCATTER + (__u32)cfg->key;
		return cfg->first_client + scattered % cfg->random_room;
	}
	return cfg->first_client + client_base + client;
}

/* What a client was last answered; NULL in basic mode. */
static __always_inline __u64 *origin_of(const struct generator_config *cfg, __u32 address)
{
	__u32 client = address - cfg->first_client;

	return cfg->interleaved ? bpf_map_lookup_elem(&origins, &client) : NULL;
}

static __always_inline struct stamps stamps_of(const struct generator_config *cfg, __u32 address,
					       __u64 intended_ns, __u32 sequence)
{
	__u64 token = (intended_ns & TOKEN_TIME_MASK) << TOKEN_TIME_SHIFT |
		      (sequence & TOKEN_SEQUENCE_MASK) << TOKEN_SEQUENCE_SHIFT;
	struct stamps stamps = {};
	__u64 *origin = origin_of(cfg, address);

	token ^= cfg->key;
	stamps.transmit = bpf_cpu_to_be64(token);
	stamps.receive = bpf_cpu_to_be64(token ^ TOKEN_RECEIVE);
	if (origin)
		stamps.origin = bpf_cpu_to_be64(*origin);
	return stamps;
}

/* Opens the sequence number for its first reply: a word of 64 is cleared when its first is sent. */
static __always_inline void open_sequence(__u32 lane, __u32 sequence)
{
	__u32 index = (lane & (LANES_MAX - 1)) * SEEN_WORDS + ((sequence >> 6) & (SEEN_WORDS - 1));
	__u64 *word;

	if (sequence & 63)
		return;
	word = bpf_map_lookup_elem(&seen, &index);
	if (word)
		*word = 0;
}

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

static __always_inline int generate(struct xdp_md *ctx, const struct generator_config *cfg)
{
	__u32 processor = bpf_get_smp_processor_id();
	struct lane *lane = bpf_map_lookup_elem(&lanes, &processor);
	__u64 now_ns = bpf_ktime_get_ns();
	struct tally *tally;
	struct stamps stamps;
	__u64 intended_ns;
	void *data, *end;
	__u32 address;
	__be16 port;
	int failed;

	if (!lane || !lane->active || lane->done)
		return XDP_DROP;
	intended_ns = lane->start_ns + (lane->next >> 16);
	if (lane->next >= lane->end || now_ns >= lane->give_up_ns) {
		lane->done = 1;
		return XDP_DROP;
	}
	if (now_ns < intended_ns)
		return XDP_DROP;
	tally = bpf_map_lookup_elem(&tallies, &processor);
	if (!tally)
		return XDP_DROP;

	/* A peer may have changed the frame's length on its way. */
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (end - data != cfg->request_len) {
		if (bpf_xdp_adjust_tail(ctx, (int)cfg->request_len - (int)(end - data)))
			return XDP_DROP;
		data = (void *)(long)ctx->data;
		end = (void *)(long)ctx->data_end;
	}

	address = address_of(cfg, lane->client_base, lane->client, lane->sequence);
	stamps = stamps_of(cfg, address, intended_ns, lane->sequence);
	port = bpf_htons(LANE_PORT_BASE + lane->number);
	if (cfg->ipv6)
		failed = fill_ipv6(data, end, cfg, address, port, &stamps);
	else
		failed = fill_ipv4(data, end, cfg, address, port, &stamps);
	if (failed)
		return XDP_DROP;
	open_sequence(lane->number, lane->sequence);
	advance(lane, cfg, now_ns);
	record(&tally->lateness_ns, now_ns - intended_ns);
	return bpf_redirect(cfg->interface, 0);
}

/* A reply as the checks need it, whichever family it came in. */
struct reply {
	struct ntp *ntp;
	__u32 address;		/* low 32 bits of where it went, host order */
	__u16 port;
	__u32 payload_len;
};

static __always_inline int invalid(struct tally *tally, enum invalid_reason reason)
{
	tally->invalid[reason]++;
	return XDP_DROP;
}

/* Whether the request with this sequence number had an answer before; marks that it has one now. */
static __always_inline bool was_seen(__u32 lane, __u32 sequence)
{
	__u32 index = (lane & (LANES_MAX - 1)) * SEEN_WORDS + ((sequence >> 6) & (SEEN_WORDS - 1));
	__u64 bit = 1ULL << (sequence & 63);
	__u64 *word = bpf_map_lookup_elem(&seen, &index);

	return word && (__sync_fetch_and_or(word, bit) & bit);
}

/* The address that the request with this sequence number came from. */
static __always_inline __u32 expected_address(const struct generator_config *cfg, __u32 lane,
					      __u32 sequence)
{
	__u32 more = cfg->lanes_with_one_more;
	__u32 clients = cfg->clients_per_lane + (lane < more ? 1 : 0);
	__u32 base = lane * cfg->clients_per_lane + (lane < more ? lane : more);

	if (!clients)
		return 0;
	return address_of(cfg, base, sequence % clients, sequence);
}

/* Units of 2^-32 s, less than 2^63, to the nearest ns. */
static __always_inline __u64 units_to_ns(__u64 units)
{
	return (units >> 32) * 1000000000 +
	       (((units & 0xffffffff) * 1000000000 + (1ULL << 31)) >> 32);
}

/* Checks what only a time server's reply has. Returns a reason to refuse it, or -1. */
static __always_inline int refuse(const struct ntp *ntp, bool interleaved)
{
	__u8 leap = ntp->leap_version_mode >> 6;
	__u64 receive = bpf_be64_to_cpu(ntp->receive);
	__u64 transmit = bpf_be64_to_cpu(ntp->transmit);

	if (ntp->stratum == 0 || ntp->stratum > 16)
		return INVALID_STRATUM;
	if ((leap == 3) != (ntp->stratum == 16))
		return INVALID_LEAP;
	if (!transmit)
		return INVALID_TIMESTAMP;
	if (interleaved) /* the transmit timestamp is that of an earlier reply, however long ago */
		return (__s64)(receive - transmit) < 0 ? INVALID_TIMESTAMP : -1;
	if ((__s64)(transmit - receive) < 0 || units_to_ns(transmit - receive) > HISTOGRAM_MAX)
		return INVALID_TIMESTAMP;
	return -1;
}

static __always_inline int judge(struct tally *tally, const struct generator_config *cfg,
				 const struct reply *reply)
{
	const struct ntp *ntp = reply->ntp;
	__u64 now_ns = bpf_ktime_get_ns();
	__u32 lane = reply->port - LANE_PORT_BASE;
	__u64 token, age_ns, response_ns = 0, *origin;
	bool interleaved;
	__u32 sequence;
	int reason;

	if ((ntp->leap_version_mode & 7) != (cfg->echo ? 3 : 4))
		return invalid(tally, INVALID_MODE);
	if (((ntp->leap_version_mode >> 3) & 7) != cfg->version)
		return invalid(tally, INVALID_VERSION);
	token = bpf_be64_to_cpu(cfg->echo ? ntp->transmit : ntp->origin) ^ cfg->key;
	age_ns = ((now_ns & TOKEN_TIME_MASK) - (token >> TOKEN_TIME_SHIFT)) & TOKEN_TIME_MASK;
	sequence = token >> TOKEN_SEQUENCE_SHIFT & TOKEN_SEQUENCE_MASK;
	interleaved = token & TOKEN_RECEIVE;
	if (age_ns > now_ns - cfg->run_start_ns || (interleaved && !cfg->interleaved))
		return invalid(tally, INVALID_ORIGIN);
	/* Also while the next trial is being readied, and its start lies ahead. */
	if (now_ns < cfg->trial_start_ns || age_ns > now_ns - cfg->trial_start_ns) {
		tally->late_earlier++;
		return XDP_DROP;
	}
	if (lane >= cfg->lanes || reply->address != expected_address(cfg, lane, sequence))
		return invalid(tally, INVALID_CLIENT);
	if (!cfg->echo) {
		reason = refuse(ntp, interleaved);
		if (reason >= 0)
			return invalid(tally, reason);
		if (!interleaved)
			response_ns = units_to_ns(bpf_be64_to_cpu(ntp->transmit) -
						  bpf_be64_to_cpu(ntp->receive));
	}

	if (was_seen(lane, sequence)) {
		tally->duplicate++;
		return XDP_DROP;
	}
	if (age_ns > cfg->reply_timeout_ns) {
		tally->late++;
		return XDP_DROP;
	}
	tally->received++;
	if (ntp->stratum == 16)
		tally->unsynchronised++;
	record(&tally->rtt_ns, age_ns);
	if (interleaved)
		tally->interleaved++;
	else
		record(&tally->response_ns, response_ns);
	origin = origin_of(cfg, reply->address);
	if (origin)
		*origin = bpf_be64_to_cpu(ntp->receive);
	return XDP_DROP;
}

/* Whether an address is one of the simulated clients'. */
static __always_inline bool is_simulated(const struct generator_config *cfg, __u32 address)
{
	__u32 clients = cfg->lanes * cfg->clients_per_lane + cfg->lanes_with_one_more;

	return address - cfg->first_client < (cfg->random_room ? cfg->random_room : clients);
}

static __always_inline int verify(struct xdp_md *ctx, const struct generator_config *cfg)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethernet *ethernet = (void *)(long)ctx->data;
	__u32 processor = bpf_get_smp_processor_id();
	struct reply reply;
	struct tally *tally;
	struct udp *udp;

	if ((void *)(ethernet + 1) > end)
		return XDP_PASS;
	if (cfg->ipv6) {
		struct ipv6 *ip = (void *)(ethernet + 1);
		const __be32 *target = (const __be32 *)cfg->target;
		const __be32 *prefix = (const __be32 *)cfg->prefix;

		udp = (void *)(ip + 1);
		if (ethernet->type != bpf_htons(TYPE_IPV6) || (void *)(udp + 1) > end ||
		    ip->next_header != PROTOCOL_UDP ||
		    ip->source[0] != target[0] || ip->source[1] != target[1] ||
		    ip->source[2] != target[2] || ip->source[3] != target[3] ||
		    ip->destination[0] != prefix[0] || ip->destination[1] != prefix[1] ||
		    ip->destination[2] != prefix[2])
			return XDP_PASS;
		reply.address = bpf_ntohl(ip->destination[3]);
	} else {
		struct ipv4 *ip = (void *)(ethernet + 1);

		udp = (void *)(ip + 1);
		if (ethernet->type != bpf_htons(TYPE_IPV4) || (void *)(udp + 1) > end ||
		    ip->version_and_length != 0x45 || ip->protocol != PROTOCOL_UDP ||
		    ip->source != *(const __be32 *)cfg->target)
			return XDP_PASS;
		reply.address = bpf_ntohl(ip->destination);
	}
	if (udp->source != cfg->target_port || !is_simulated(cfg, reply.address))
		return XDP_PASS;
	tally = bpf_map_lookup_elem(&tallies, &processor);
	if (!tally)
		return XDP_PASS;
	reply.port = bpf_ntohs(udp->destination);
	reply.ntp = (void *)(udp + 1);
	if ((void *)(reply.ntp + 1) > end || udp->length != bpf_htons(UDP_NTP_LEN))
		return invalid(tally, INVALID_LENGTH);
	return judge(tally, cfg, &reply);
}

SEC("xdp")
int load(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct generator_config *cfg = bpf_map_lookup_elem(&config, &zero);

	if (!cfg)
		return XDP_PASS;
	if (ctx->ingress_ifindex == cfg->interface)
		return verify(ctx, cfg);
	return generate(ctx, cfg);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
