/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Tracking of NetSync Monitor requests. The replies to each are a delay response and a Sync, with a
 * Follow_Up if the Sync is two-step, and it is received when all of them have arrived. Sync and
 * Follow_Up carry no token: they are matched by the client that received them and their sequence
 * ID.
 */
#ifndef HOROLOG_GENERATOR_MONITOR_H
#define HOROLOG_GENERATOR_MONITOR_H

#include "generator.h"
#include "generator_offset.h"

/* A request and its replies so far. */
struct exchange {
	struct bpf_spin_lock lock;	/* replies may arrive on several CPUs */
	__u32 sequence;		/* with EXCHANGE_SYNC once the Sync has arrived */
	__u64 intended_ns;
	__u64 receive_ns;	/* when the master received it, since its epoch; 0 until reported */
	__u64 transmit_ns;	/* when the Sync left; 0 until reported */
	__u64 sync_ns;		/* when it was received here, monotonic */
};
_Static_assert(sizeof(struct exchange) == 40, "exchange");

#define EXCHANGE_SYNC (1U << 31)

/* Latest requests of each lane, by their sequence number modulo the number stored. */
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

/* A reply, or a part of one. */
struct part {
	enum { PART_DELAY, PART_SYNC, PART_FOLLOW_UP } kind;
	__u64 ns;		/* time that it carries; 0 for a two-step Sync */
	bool untraceable;	/* of a master whose time is not traceable */
};

static __always_inline struct exchange *exchange_of(const struct generator_config *cfg,
						    __u32 lane, __u32 sequence)
{
	__u32 index = lane * (cfg->exchange_mask + 1) + (sequence & cfg->exchange_mask);

	return bpf_map_lookup_elem(&exchanges, &index);
}

/* Creates the state of a request that is about to be sent. */
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

/* Lane of a client, and the lane's number of clients. */
struct client_lane {
	__u32 lane;
	__u32 clients;
};

static __always_inline struct client_lane client_lane_of(const struct generator_config *cfg,
							 __u32 client)
{
	__u32 more = cfg->lanes_with_one_more, each = cfg->clients_per_lane;
	__u32 first = more * (each + 1);	/* client of the first lane without one more */
	struct client_lane client_lane = {};

	if (client < first) {
		client_lane.lane = client / (each + 1);
		client_lane.clients = each + 1;
	} else if (each) {
		client_lane.lane = more + (client - first) / each;
		client_lane.clients = each;
	}
	return client_lane;
}

/* Returns the number of the lane's requests after the latest one of a client whose sequence ID is
 * `number`, up to its very latest, `last`; -1 if none of its recent ones has it. Sequence IDs
 * repeat after 2^16 requests, so no more are searched. A request from before the lane's sequence
 * numbers restarted at 0, every 2^27 requests, is not found once the client has sent another. */
static __always_inline long requests_since(__u32 last, __u16 number, __u32 clients)
{
	__u32 back = (last - number) & 0xffff;

	return back == 0 || (clients && back % clients == 0) ? back : -1;
}

/* The master's timescale is arbitrary: its lead over UTC, in whole seconds, is taken from the first
 * Sync of each lane in a trial, and subtracted. */
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

/* Returns the nearest number of whole seconds, in ns. */
static __always_inline __s64 whole_seconds(__s64 ns)
{
	__u64 magnitude = ns < 0 ? -(__u64)ns : ns;

	magnitude = (magnitude + NS_PER_S / 2) / NS_PER_S * NS_PER_S;
	return ns < 0 ? -(__s64)magnitude : (__s64)magnitude;
}

/* Records the offset of a Sync that was received at `sync_ns`, monotonic, and left at
 * `transmit_ns`, after a request with the intended send time `intended_ns` that arrived at
 * `receive_ns`. */
static __always_inline void measure_offset_ptp(const struct generator_config *cfg, __u32 lane,
					       __u64 intended_ns, __u64 sync_ns,
					       __u64 receive_ns, __u64 transmit_ns)
{
	struct timescale *timescale = bpf_map_lookup_elem(&timescales, &lane);
	__u64 earlier_ns = options.mean_of_server ? (transmit_ns - receive_ns) / 2 : 0;
	__s64 raw_ns = utc_of(cfg, sync_ns) - (transmit_ns - earlier_ns);

	if (!timescale)
		return;
	if (timescale->trial_start_ns != cfg->trial_start_ns) {
		timescale->ahead_ns = whole_seconds(-raw_ns);
		timescale->trial_start_ns = cfg->trial_start_ns;
	}
	record_offset(cfg, intended_ns, raw_ns + timescale->ahead_ns);
}

/* Counts one of several replies to a request. */
static __always_inline int count_part(struct lane_counts *counts,
				      const struct generator_config *cfg, __u32 lane,
				      struct exchange *exchange, __u32 sequence,
				      const struct part *part, __u64 now_ns)
{
	__u64 receive_ns, transmit_ns, sync_ns, response_ns = 0, age_ns;
	__u64 intended_ns;
	bool is_current, had_sync, has_sync, was_complete, is_complete, is_known, is_wrong = false;

	bpf_spin_lock(&exchange->lock);
	is_current = (exchange->sequence & ~EXCHANGE_SYNC) == sequence;
	had_sync = has_sync = exchange->sequence & EXCHANGE_SYNC;
	receive_ns = exchange->receive_ns;
	transmit_ns = exchange->transmit_ns;
	sync_ns = exchange->sync_ns;
	intended_ns = exchange->intended_ns;
	age_ns = now_ns - intended_ns;
	was_complete = had_sync && transmit_ns;
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
	if (is_current && !is_known && !is_wrong) {
		exchange->receive_ns = receive_ns;
		exchange->transmit_ns = transmit_ns;
		exchange->sync_ns = sync_ns;
		exchange->sequence = sequence | (has_sync ? EXCHANGE_SYNC : 0);
	}
	bpf_spin_unlock(&exchange->lock);

	if (!is_current) {
		counts->late++;
		return XDP_DROP;
	}
	counts = interval_counts(counts, cfg, intended_ns);
	if (is_known) {
		counts->duplicate++;
		return XDP_DROP;
	}
	if (is_wrong)
		return invalid(counts, INVALID_TIMESTAMP);
	is_complete = has_sync && transmit_ns;
	if (is_complete && receive_ns)
		counts->answered++;
	if (age_ns > cfg->reply_timeout_ns) {
		counts->late++;
		return XDP_DROP;
	}
	if (part->kind == PART_DELAY) {
		counts->delay++;
		if (part->untraceable)
			counts->unsynchronised++;
	}
	if (is_complete && !was_complete)
		counts->sync_follow_up++;
	if (is_complete && receive_ns) {
		counts->received++;
		record(&counts->rtt_ns, age_ns);
		record(&counts->response_ns, response_ns);
		if (options.clients)
			count_reply(expected_address(cfg, lane, sequence) - cfg->first_client);
		if (options.offsets)
			measure_offset_ptp(cfg, lane, intended_ns, sync_ns, receive_ns,
					   transmit_ns);
	}
	return XDP_DROP;
}

#endif
