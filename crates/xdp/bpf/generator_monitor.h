/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * The books of NetSync Monitor's requests. Each is owed a delay response and a Sync, with a
 * follow-up unless the Sync tells its own time, and is received when all of them are there. Sync
 * and follow-up carry no token: they are matched by the client that they came to and the number
 * that they carry.
 */
#ifndef HOROLOG_GENERATOR_MONITOR_H
#define HOROLOG_GENERATOR_MONITOR_H

#include "generator.h"
#include "generator_offset.h"

/* A request, and what came of it. */
struct exchange {
	struct bpf_spin_lock lock;	/* answers may come in on several processors */
	__u32 sequence;		/* with EXCHANGE_SYNC once the Sync is there */
	__u64 intended_ns;
	__u64 receive_ns;	/* when the master received it, since its epoch; 0 until it said so */
	__u64 transmit_ns;	/* when the Sync left; 0 until it said so */
	__u64 sync_ns;		/* when it was received here, monotonic */
};
_Static_assert(sizeof(struct exchange) == 40, "exchange");

#define EXCHANGE_SYNC (1U << 31)

/* The latest requests of each lane, by their sequence number modulo how many are kept. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct exchange);
} exchanges SEC(".maps");

/* For each client the sequence number of its latest request, plus 1; 0 before the first. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} latest SEC(".maps");

/* An answer, or a part of one. */
struct part {
	enum { PART_DELAY, PART_SYNC, PART_FOLLOW_UP } kind;
	__u64 ns;		/* the time that it tells; 0 for a Sync with a follow-up */
	bool untraceable;	/* of a master whose time can be traced to nothing */
};

static __always_inline struct exchange *exchange_of(const struct generator_config *cfg,
						    __u32 lane, __u32 sequence)
{
	__u32 index = lane * (cfg->exchange_mask + 1) + (sequence & cfg->exchange_mask);

	return bpf_map_lookup_elem(&exchanges, &index);
}

/* Opens the books of a request that is about to leave. */
static __always_inline void open_exchange(const struct generator_config *cfg,
					  const struct request *request, __u64 intended_ns)
{
	struct exchange *exchange = exchange_of(cfg, request->lane, request->sequence);
	__u32 client = request->address - cfg->first_client;
	__u32 *last = bpf_map_lookup_elem(&latest, &client);

	if (!exchange || !last)
		return;
	bpf_spin_lock(&exchange->lock);
	exchange->sequence = request->sequence;
	exchange->intended_ns = intended_ns;
	exchange->receive_ns = 0;
	exchange->transmit_ns = 0;
	bpf_spin_unlock(&exchange->lock);
	*last = request->sequence + 1;
}

/* The lane that plays a client, and how many it plays. */
struct player {
	__u32 lane;
	__u32 clients;
};

static __always_inline struct player player_of(const struct generator_config *cfg, __u32 client)
{
	__u32 more = cfg->lanes_with_one_more, each = cfg->clients_per_lane;
	__u32 first = more * (each + 1);	/* client of the first lane without one more */
	struct player player = {};

	if (client < first) {
		player.lane = client / (each + 1);
		player.clients = each + 1;
	} else if (each) {
		player.lane = more + (client - first) / each;
		player.clients = each;
	}
	return player;
}

/* How many of its lane's requests came after the latest one of a client with this number, up to
 * its very latest, at `last`; -1 where none of its last ones has it. A number comes again after
 * 2^16 requests, so that no more are looked at. What was asked before the lane's sequence numbers
 * started again at 0, every 2^27 requests, is not found once the client has asked again. */
static __always_inline long back_to(__u32 last, __u16 number, __u32 clients)
{
	__u32 back = (last - number) & 0xffff;

	return back == 0 || (clients && back % clients == 0) ? back : -1;
}

/* The master's timescale is its own affair: what it is ahead of UTC by, in whole seconds, is known
 * from the first Sync of each lane in a trial, and taken off. */
struct timescale {
	__s64 ahead_ns;
	__u64 trial_start_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LANES_MAX);
	__type(key, __u32);
	__type(value, struct timescale);
} timescales SEC(".maps");

/* The nearest number of whole seconds, in ns. */
static __always_inline __s64 whole_seconds(__s64 ns)
{
	__u64 magnitude = ns < 0 ? -(__u64)ns : ns;

	magnitude = (magnitude + NS_PER_S / 2) / NS_PER_S * NS_PER_S;
	return ns < 0 ? -(__s64)magnitude : (__s64)magnitude;
}

/* Takes the offset of a Sync that was received at `sync_ns`, monotonic, and left at `transmit_ns`,
 * after a request that was due at `intended_ns` and came at `receive_ns`. */
static __always_inline void take_offset_ptp(const struct generator_config *cfg, __u32 lane,
					    __u64 intended_ns, __u64 sync_ns,
					    __u64 receive_ns, __u64 transmit_ns)
{
	struct timescale *timescale = bpf_map_lookup_elem(&timescales, &lane);
	__u64 earlier_ns = asked.mean_of_server ? (transmit_ns - receive_ns) / 2 : 0;
	__s64 raw_ns = utc_of(cfg, sync_ns) - (transmit_ns - earlier_ns);

	if (!timescale)
		return;
	if (timescale->trial_start_ns != cfg->trial_start_ns) {
		timescale->ahead_ns = whole_seconds(-raw_ns);
		timescale->trial_start_ns = cfg->trial_start_ns;
	}
	record_offset(cfg, intended_ns, raw_ns + timescale->ahead_ns);
}

/* Counts one of the answers that a request is owed. */
static __always_inline int take_part(struct tally *tally, const struct generator_config *cfg,
				     __u32 lane, struct exchange *exchange, __u32 sequence,
				     const struct part *part, __u64 now_ns)
{
	__u64 receive_ns, transmit_ns, sync_ns, response_ns = 0, age_ns;
	__u64 intended_ns;
	bool is_kept, had_sync, has_sync, was_whole, is_whole, is_known, is_wrong = false;

	bpf_spin_lock(&exchange->lock);
	is_kept = (exchange->sequence & ~EXCHANGE_SYNC) == sequence;
	had_sync = has_sync = exchange->sequence & EXCHANGE_SYNC;
	receive_ns = exchange->receive_ns;
	transmit_ns = exchange->transmit_ns;
	sync_ns = exchange->sync_ns;
	intended_ns = exchange->intended_ns;
	age_ns = now_ns - intended_ns;
	was_whole = had_sync && transmit_ns;
	if (part->kind == PART_DELAY) {
		is_known = receive_ns;
		receive_ns = part->ns;
	} else if (part->kind == PART_FOLLOW_UP) {
		is_known = transmit_ns;
		transmit_ns = part->ns;
	} else {
		is_known = had_sync;
		has_sync = true;
		sync_ns = now_ns;
		if (part->ns)
			transmit_ns = part->ns;
	}
	if (receive_ns && transmit_ns) {
		response_ns = transmit_ns - receive_ns;
		is_wrong = response_ns > HISTOGRAM_MAX;
	}
	if (is_kept && !is_known && !is_wrong) {
		exchange->receive_ns = receive_ns;
		exchange->transmit_ns = transmit_ns;
		exchange->sync_ns = sync_ns;
		exchange->sequence = sequence | (has_sync ? EXCHANGE_SYNC : 0);
	}
	bpf_spin_unlock(&exchange->lock);

	if (!is_kept) {
		tally->late++;
		return XDP_DROP;
	}
	tally = book_of(tally, cfg, intended_ns);
	if (is_known) {
		tally->duplicate++;
		return XDP_DROP;
	}
	if (is_wrong)
		return invalid(tally, INVALID_TIMESTAMP);
	is_whole = has_sync && transmit_ns;
	if (is_whole && receive_ns)
		tally->answered++;
	if (age_ns > cfg->reply_timeout_ns) {
		tally->late++;
		return XDP_DROP;
	}
	if (part->kind == PART_DELAY) {
		tally->delay++;
		if (part->untraceable)
			tally->unsynchronised++;
	}
	if (is_whole && !was_whole)
		tally->sync_follow_up++;
	if (is_whole && receive_ns) {
		tally->received++;
		record(&tally->rtt_ns, age_ns);
		record(&tally->response_ns, response_ns);
		if (asked.clients)
			count_answered(expected_address(cfg, lane, sequence) - cfg->first_client);
		if (asked.offsets)
			take_offset_ptp(cfg, lane, intended_ns, sync_ns, receive_ns, transmit_ns);
	}
	return XDP_DROP;
}

#endif
