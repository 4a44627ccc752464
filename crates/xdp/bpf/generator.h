/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Shared parts of the load generator's two sides, for all protocols: settings, maps, the simulated
 * clients, the request token, and the bitmap of answered requests.
 */
#ifndef HOROLOG_GENERATOR_H
#define HOROLOG_GENERATOR_H

#include "net.h"
#include "abi.h"
#include "histogram.h"

/* Kind of requests. Set before loading, so that the kernel removes the code of other protocols from
 * the program. One object, because the compiler may reorder several. */
const volatile struct {
	__u8 protocol;		/* one of enum protocol */
	bool multicast;		/* to a group of hosts, which replies are sent to as well */
	bool offsets;		/* measured from the server's transmit timestamps, ... */
	bool mean_of_server;	/* ... or from the mean of its receive and transmit timestamps */
	bool load_profile;	/* the rate may change, and intervals may have separate counts */
	bool clients;		/* each client is counted separately */
	bool ethernet;		/* frames have no IP header, and clients no addresses */
	bool chained;		/* one of several kinds of requests, each with a program */
} options;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct generator_config);
} config SEC(".maps");

/* One entry for each CPU, which is its only writer; with load profiles one for each of its interval
 * counts. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lane_counts);
} lane_counts SEC(".maps");

/* Requests of each client, and replies to it in time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct client_counts);
} clients SEC(".maps");

/* Number of sequence numbers of each lane used before this trial. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LANES_MAX);
	__type(key, __u32);
	__type(value, __u32);
} sequences_before SEC(".maps");

/* DUPLICATE_WORDS for each lane: a bit for every sequence number that has been answered. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DUPLICATE_WORDS);
	__type(key, __u32);
	__type(value, __u64);
} answered_bits SEC(".maps");

/* A request to be built. */
struct request {
	__u64 token;
	__u32 address;		/* low 32 bits of its source, host order */
	__u32 lane;
	__u32 sequence;
};

/* A reply with the values for the checks, of either address family. */
struct reply {
	void *payload;
	void *end;		/* of the frame */
	__u32 address;		/* low 32 bits of its destination, host order */
	__u16 port;
	__u16 udp_len;
};

/* Decoded token. */
struct request_id {
	__u64 age_ns;		/* since the intended send time */
	__u32 sequence;
	bool receive;		/* the token was the request's receive timestamp */
};

/* Distance of two consecutive random sources; see horolog_load::clients for the reason. */
#define SCATTER 1327217909ULL

static __always_inline __u32 address_of(const struct generator_config *cfg, __u32 client_base,
					__u32 client, __u32 sequence)
{
	__u64 scattered;

	if (cfg->random_addresses) {
		scattered = ((__u64)client_base + sequence) * SCATTER + (__u32)cfg->key;
		return cfg->first_client + scattered % cfg->random_addresses;
	}
	return cfg->first_client + client_base + client;
}

/* Returns the address from which the request with this sequence number was sent. */
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

/* Returns true if an address is a simulated client's. */
static __always_inline bool is_simulated(const struct generator_config *cfg, __u32 address)
{
	__u32 clients = cfg->lanes * cfg->clients_per_lane + cfg->lanes_with_one_more;

	return address - cfg->first_client <
	       (cfg->random_addresses ? cfg->random_addresses : clients);
}

static __always_inline __u64 token_of(const struct generator_config *cfg, __u64 intended_ns,
				      __u32 sequence)
{
	return cfg->key ^ ((intended_ns & TOKEN_TIME_MASK) << TOKEN_TIME_SHIFT |
			   (sequence & TOKEN_SEQUENCE_MASK) << TOKEN_SEQUENCE_SHIFT);
}

static __always_inline struct request_id request_id_of(const struct generator_config *cfg,
						       __u64 token, __u64 now_ns)
{
	struct request_id id;

	token ^= cfg->key;
	id.age_ns = ((now_ns & TOKEN_TIME_MASK) - (token >> TOKEN_TIME_SHIFT)) &
			  TOKEN_TIME_MASK;
	id.sequence = token >> TOKEN_SEQUENCE_SHIFT & TOKEN_SEQUENCE_MASK;
	id.receive = token & TOKEN_RECEIVE;
	return id;
}

/* Returns true if the intended send time lies before this trial; also while the next one is being
 * prepared, and its start lies ahead. */
static __always_inline bool is_before_trial(const struct generator_config *cfg,
					    const struct request_id *id, __u64 now_ns)
{
	return now_ns < cfg->trial_start_ns || id->age_ns > now_ns - cfg->trial_start_ns;
}

/* Returns true if a lane used this number before this trial. */
static __always_inline bool was_used_before(__u32 lane, __u32 sequence)
{
	__u32 *numbers = bpf_map_lookup_elem(&sequences_before, &lane);

	return numbers && sequence < *numbers;
}

/* Returns the index of the word of `answered_bits` for a sequence number. */
static __always_inline __u32 answered_word(__u32 lane, __u32 sequence)
{
	return (lane & (LANES_MAX - 1)) * DUPLICATE_WORDS +
	       ((sequence >> 6) & (DUPLICATE_WORDS - 1));
}

/* Prepares the sequence number for its first reply: a word of 64 is cleared when its first is sent.
 */
static __always_inline void open_sequence(__u32 lane, __u32 sequence)
{
	__u32 index = answered_word(lane, sequence);
	__u64 *word;

	if (sequence & 63)
		return;
	word = bpf_map_lookup_elem(&answered_bits, &index);
	if (word)
		*word = 0;
}

/* Returns true if the request with this sequence number was answered before; marks it as answered.
 */
static __always_inline bool test_and_set_answered(__u32 lane, __u32 sequence)
{
	__u32 index = answered_word(lane, sequence);
	__u64 bit = 1ULL << (sequence & 63);
	__u64 *word = bpf_map_lookup_elem(&answered_bits, &index);

	return word && (__sync_fetch_and_or(word, bit) & bit);
}

/* Returns the index of this CPU's counts for the interval that contains an instant. For an interval
 * closed long ago it is the oldest open one, and after the last interval the last one. */
static __always_inline __u32 interval_counts_index(const struct generator_config *cfg, __u64 at_ns)
{
	__u32 processor = bpf_get_smp_processor_id();
	__u64 first, number = 0;

	if (!options.load_profile || !cfg->interval_ns)
		return processor;
	first = *(volatile __u64 *)&cfg->first_interval;
	if (at_ns > cfg->trial_start_ns)
		number = (at_ns - cfg->trial_start_ns) / cfg->interval_ns;
	if (number > cfg->last_interval)
		number = cfg->last_interval;
	if (number < first)
		number = first;
	if (number - first > cfg->intervals_mask)
		number = first + cfg->intervals_mask;
	return (number & cfg->intervals_mask) * cfg->processors + processor;
}

/* Returns this CPU's counts for the present interval. */
static __always_inline struct lane_counts *
current_interval_counts(const struct generator_config *cfg)
{
	__u32 index = options.load_profile ? interval_counts_index(cfg, bpf_ktime_get_ns()) :
				      bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&lane_counts, &index);
}

/* Returns the counts for a request with this intended send time; `counts` if there is only one set.
 */
static __always_inline struct lane_counts *interval_counts(struct lane_counts *counts,
							   const struct generator_config *cfg,
							   __u64 intended_ns)
{
	__u32 index;
	struct lane_counts *of_interval;

	if (!options.load_profile)
		return counts;
	index = interval_counts_index(cfg, intended_ns);
	of_interval = bpf_map_lookup_elem(&lane_counts, &index);
	return of_interval ? of_interval : counts;
}

static __always_inline void count_request(__u32 client)
{
	struct client_counts *counts = bpf_map_lookup_elem(&clients, &client);

	if (counts)
		counts->requests++; /* only its lane writes it */
}

static __always_inline void count_reply(__u32 client)
{
	struct client_counts *counts = bpf_map_lookup_elem(&clients, &client);

	if (counts)
		__sync_fetch_and_add(&counts->replies, 1);
}

static __always_inline int invalid(struct lane_counts *counts, enum invalid_reason reason)
{
	counts->invalid[reason]++;
	return XDP_DROP;
}

/* Counts a reply that is valid in itself; returns true if it is the first and in time. */
static __always_inline bool is_received(struct lane_counts *counts,
					const struct generator_config *cfg, __u32 lane,
					const struct request_id *id)
{
	if (test_and_set_answered(lane, id->sequence)) {
		counts->duplicate++;
		return false;
	}
	counts->answered++;
	if (id->age_ns > cfg->reply_timeout_ns) {
		counts->late++;
		return false;
	}
	counts->received++;
	record(&counts->rtt_ns, id->age_ns);
	if (options.clients)
		count_reply(expected_address(cfg, lane, id->sequence) - cfg->first_client);
	return true;
}

/* Copies a part of the request into the frame by 8 bytes; the length is even. */
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

/* Completes a frame whose UDP source port and payload are set: the source and the checksums. `sum`
 * is that of the words after the IP header that differ from the template. */
static __always_inline void complete(struct ethernet *ethernet, __u32 ip_len,
				     const struct generator_config *cfg, __u32 address, __u64 sum)
{
	struct udp *udp = (void *)(ethernet + 1) + ip_len;
	__be32 source = bpf_htonl(address);

	if (ip_len == sizeof(struct ipv4)) {
		struct ipv4 *ip = (void *)(ethernet + 1);

		ip->source = source;
		ip->checksum = fold(cfg->ip_sum + source);
	} else {
		struct ipv6 *ip = (void *)(ethernet + 1);

		ip->source[3] = source;
	}
	udp->checksum = udp_fold(cfg->udp_sum + source + sum);
}

#endif
