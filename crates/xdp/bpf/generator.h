/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * What the load generator's halves share, whatever is asked of the target: settings, maps, who the
 * simulated clients are, the token that a request carries, and the books of answered requests.
 */
#ifndef HOROLOG_GENERATOR_H
#define HOROLOG_GENERATOR_H

#include "net.h"
#include "abi.h"
#include "histogram.h"

/* What is asked. It is known before loading, so that the kernel leaves out of the program what
 * another protocol takes. One object, because the compiler lays out several as it likes. */
const volatile struct {
	__u8 protocol;		/* one of enum protocol */
	bool multicast;		/* to a group of hosts, where replies to all of them come too */
	bool offsets;		/* those of the server's transmit timestamps are taken, ... */
	bool mean_of_server;	/* ... or of the mean of its receive and transmit timestamps */
	bool courses;		/* the rate may change, and intervals may have books of their own */
	bool clients;		/* each client is counted apart */
	bool ethernet;		/* frames have no IP header, and clients no addresses */
	bool chained;		/* one of several kinds of requests, each with a program */
} asked;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct generator_config);
} config SEC(".maps");

/* One entry for each processor, so that nobody else writes it; on courses as many for each book. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tally);
} tallies SEC(".maps");

/* For each client what it asked and was answered. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct asked_answered);
} clients SEC(".maps");

/* How many numbers of each lane were asked before this trial. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LANES_MAX);
	__type(key, __u32);
	__type(value, __u32);
} asked_before SEC(".maps");

/* SEEN_WORDS for each lane: a bit for every sequence number that has been answered. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SEEN_WORDS);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

/* A request that is to be made. */
struct request {
	__u64 token;
	__u32 address;		/* low 32 bits of its source, host order */
	__u32 lane;
	__u32 sequence;
};

/* A reply as the checks need it, whichever family it came in. */
struct reply {
	void *payload;
	void *end;		/* of the frame */
	__u32 address;		/* low 32 bits of where it went, host order */
	__u16 port;
	__u16 udp_len;
};

/* What a token asked. */
struct question {
	__u64 age_ns;		/* since the intended instant */
	__u32 sequence;
	bool receive;		/* it was the request's receive timestamp */
};

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

/* Whether an address is one of the simulated clients'. */
static __always_inline bool is_simulated(const struct generator_config *cfg, __u32 address)
{
	__u32 clients = cfg->lanes * cfg->clients_per_lane + cfg->lanes_with_one_more;

	return address - cfg->first_client < (cfg->random_room ? cfg->random_room : clients);
}

static __always_inline __u64 token_of(const struct generator_config *cfg, __u64 intended_ns,
				      __u32 sequence)
{
	return cfg->key ^ ((intended_ns & TOKEN_TIME_MASK) << TOKEN_TIME_SHIFT |
			   (sequence & TOKEN_SEQUENCE_MASK) << TOKEN_SEQUENCE_SHIFT);
}

static __always_inline struct question question_of(const struct generator_config *cfg,
						   __u64 token, __u64 now_ns)
{
	struct question question;

	token ^= cfg->key;
	question.age_ns = ((now_ns & TOKEN_TIME_MASK) - (token >> TOKEN_TIME_SHIFT)) &
			  TOKEN_TIME_MASK;
	question.sequence = token >> TOKEN_SEQUENCE_SHIFT & TOKEN_SEQUENCE_MASK;
	question.receive = token & TOKEN_RECEIVE;
	return question;
}

/* Whether its instant lies before this trial; also while the next one is being readied, and its
 * start lies ahead. */
static __always_inline bool is_before_trial(const struct generator_config *cfg,
					    const struct question *question, __u64 now_ns)
{
	return now_ns < cfg->trial_start_ns || question->age_ns > now_ns - cfg->trial_start_ns;
}

/* Whether a lane asked something with this number before this trial. */
static __always_inline bool was_asked_before(__u32 lane, __u32 sequence)
{
	__u32 *numbers = bpf_map_lookup_elem(&asked_before, &lane);

	return numbers && sequence < *numbers;
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

/* Whether the request with this sequence number had an answer before; marks that it has one now. */
static __always_inline bool was_seen(__u32 lane, __u32 sequence)
{
	__u32 index = (lane & (LANES_MAX - 1)) * SEEN_WORDS + ((sequence >> 6) & (SEEN_WORDS - 1));
	__u64 bit = 1ULL << (sequence & 63);
	__u64 *word = bpf_map_lookup_elem(&seen, &index);

	return word && (__sync_fetch_and_or(word, bit) & bit);
}

/* Index of this processor's book of the interval in which an instant is. One that was closed long
 * ago stands in the oldest that is open, and what comes after the last interval in its. */
static __always_inline __u32 book_index(const struct generator_config *cfg, __u64 at_ns)
{
	__u32 processor = bpf_get_smp_processor_id();
	__u64 first, number = 0;

	if (!asked.courses || !cfg->interval_ns)
		return processor;
	first = *(volatile __u64 *)&cfg->first_book;
	if (at_ns > cfg->trial_start_ns)
		number = (at_ns - cfg->trial_start_ns) / cfg->interval_ns;
	if (number > cfg->last_book)
		number = cfg->last_book;
	if (number < first)
		number = first;
	if (number - first > cfg->books_mask)
		number = first + cfg->books_mask;
	return (number & cfg->books_mask) * cfg->processors + processor;
}

/* This processor's book of the present interval. */
static __always_inline struct tally *present_book(const struct generator_config *cfg)
{
	__u32 index = asked.courses ? book_index(cfg, bpf_ktime_get_ns()) :
				      bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&tallies, &index);
}

/* The book of a request that was due then; `tally` where there is but one. */
static __always_inline struct tally *book_of(struct tally *tally,
					     const struct generator_config *cfg,
					     __u64 intended_ns)
{
	__u32 index;
	struct tally *book;

	if (!asked.courses)
		return tally;
	index = book_index(cfg, intended_ns);
	book = bpf_map_lookup_elem(&tallies, &index);
	return book ? book : tally;
}

static __always_inline void count_asked(__u32 client)
{
	struct asked_answered *counts = bpf_map_lookup_elem(&clients, &client);

	if (counts)
		counts->asked++; /* by its lane alone */
}

static __always_inline void count_answered(__u32 client)
{
	struct asked_answered *counts = bpf_map_lookup_elem(&clients, &client);

	if (counts)
		__sync_fetch_and_add(&counts->answered, 1);
}

static __always_inline int invalid(struct tally *tally, enum invalid_reason reason)
{
	tally->invalid[reason]++;
	return XDP_DROP;
}

/* Counts a reply that is right in itself; returns whether it is the first and in time. */
static __always_inline bool is_received(struct tally *tally, const struct generator_config *cfg,
					__u32 lane, const struct question *question)
{
	if (was_seen(lane, question->sequence)) {
		tally->duplicate++;
		return false;
	}
	tally->answered++;
	if (question->age_ns > cfg->reply_timeout_ns) {
		tally->late++;
		return false;
	}
	tally->received++;
	record(&tally->rtt_ns, question->age_ns);
	if (asked.clients)
		count_answered(expected_address(cfg, lane, question->sequence) - cfg->first_client);
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

/* Completes a frame whose UDP source port and payload stand: the source and the checksums. `sum`
 * is that of the words behind the IP header that are not the template's. */
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
