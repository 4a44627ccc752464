/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Admission: prefix lists, a rate limit for each client and one for all new clients together. The
 * same as horolog_server::Limiter, which gives the reasons; a test compares the two.
 *
 * No shared memory is written for a request that is not admitted, except once for a kiss. Two CPUs
 * that serve the same client at once may lose one charge between them; a lock would cost more than
 * that.
 */
#ifndef HOROLOG_LIMITS_H
#define HOROLOG_LIMITS_H

#include "abi.h"
#include "clock.h"
#include "hash.h"

#define WRITE_ONCE(field, value) (*(volatile typeof(field) *)&(field) = (value))

const volatile struct responder_config config;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct limit_set);
} limit_sets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct limit_rules);
} limit_rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct limit_totals);
} limit_totals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2 * LIST_PREFIXES_MAX); /* old ones go after new ones are added */
	__type(key, struct list_key_ipv4);
	__type(value, __u8);
} list_ipv4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2 * LIST_PREFIXES_MAX);
	__type(key, struct list_key_ipv6);
	__type(value, __u8);
} list_ipv6 SEC(".maps");

/* A client: its address as two words as they lie in the packet, an IPv4 one under MAPPED. */
struct client {
	__u64 high;
	__u64 low;
	bool ipv6;
	bool is_long;	/* the request is longer than one NTP header */
};

/* Keys are filled field by field: a template of one would be placed beside `config`. */
static __always_inline bool is_denied(const struct limit_rules *rules, const struct client *client)
{
	__u8 *listed;

	if (client->ipv6) {
		struct list_key_ipv6 key;

		key.length = 128;
		__builtin_memcpy(&key.address[0], &client->high, 8);
		__builtin_memcpy(&key.address[8], &client->low, 8);
		listed = bpf_map_lookup_elem(&list_ipv6, &key);
	} else {
		struct list_key_ipv4 key;
		__u32 address = (__u32)client->low;

		key.length = 32;
		__builtin_memcpy(key.address, &address, 4);
		listed = bpf_map_lookup_elem(&list_ipv4, &key);
	}
	return listed ? *listed == LISTED_DENIED : rules->others_denied;
}

/* Charges a shared bucket whose limit is in ns; returns false if it is over its limit. */
static __always_inline bool charge(__u64 *arrival, __u64 interval, __u64 tolerance, __u64 now_ns)
{
	__u64 last = READ_ONCE(*arrival);
	__u64 at = last > now_ns ? last : now_ns;

	if (at - now_ns > tolerance)
		return false;
	WRITE_ONCE(*arrival, at + interval);
	return true;
}

static __always_inline __u64 client_hash(const struct client *client)
{
	__u64 hash;

	if (client->ipv6)
		hash = hash_words(client->high & config.ipv6_mask[0],
				  client->low & config.ipv6_mask[1], config.hash_key[0], config.hash_key[1]);
	else
		hash = hash_words(0, client->low & config.ipv4_mask, config.hash_key[0], config.hash_key[1]);
	return client->is_long ? hash_again(hash) : hash;
}

static __always_inline enum admission deny(const struct limit_rules *rules,
					   struct limit_totals *totals,
					   const struct client *client, __u64 now_ns)
{
	if (rules->deny_interval_ns && !client->is_long &&
	    charge(&totals->denials, rules->deny_interval_ns, 0, now_ns))
		return KISS_DENY;
	return DROP_DENIED;
}

/* Returns the entry in a set for a new client: an empty one, or one whose client has long been
 * idle. */
static __always_inline __u64 *free_entry(struct limit_set *set, const struct limit_rules *rules,
					 __u64 now)
{
	__u64 age;
	int i;

#pragma unroll
	for (i = 0; i < LIMIT_WAYS; i++) {
		__u64 word = READ_ONCE(set->words[i]);

		/* A time ahead of now is a small one, so its age is a large one: check it first. */
		age = (now - word) & ARRIVAL_MASK;
		if (!word || (age >= rules->idle &&
			      ((word - now) & ARRIVAL_MASK) > rules->tolerance + rules->interval))
			return &set->words[i];
	}
	return 0;
}

static __always_inline enum admission admit_new_client(const struct limit_rules *rules,
						       struct limit_totals *totals,
						       struct limit_set *set, __u64 head,
						       bool is_long, __u64 now_ns)
{
	__u64 *new_clients = is_long ? &totals->long_new_clients : &totals->new_clients;
	__u64 now = (now_ns >> LIMIT_UNIT_SHIFT) & ARRIVAL_MASK;
	__u64 *entry;

	if (rules->new_client_interval_ns &&
	    !charge(new_clients, rules->new_client_interval_ns,
		    rules->new_client_tolerance_ns, now_ns))
		return DROP_NEW_CLIENTS;
	entry = free_entry(set, rules, now);
	if (entry)
		WRITE_ONCE(*entry, head | ((now + rules->interval) & ARRIVAL_MASK));
	return ADMIT;
}

static __always_inline enum admission admit_known_client(const struct limit_rules *rules,
							 __u64 *entry, __u64 word, __u64 head,
							 bool may_kiss, __u64 now_ns)
{
	__u64 now = (now_ns >> LIMIT_UNIT_SHIFT) & ARRIVAL_MASK;
	__u64 ahead = (word - now) & ARRIVAL_MASK;

	/* Further ahead than any bucket can be means in the past. */
	if (ahead > rules->tolerance + rules->interval)
		ahead = 0;
	if (ahead > rules->tolerance) {
		if (!rules->kiss_rate || !may_kiss || (word & KISSED))
			return DROP_LIMITED;
		WRITE_ONCE(*entry, head | KISSED | (word & ARRIVAL_MASK));
		return KISS_RATE;
	}
	WRITE_ONCE(*entry, head | ((now + ahead + rules->interval) & ARRIVAL_MASK));
	return ADMIT;
}

static __noinline enum admission admit_client(const struct client *client, __u64 now_ns)
{
	__u64 hash = client_hash(client), head, word;
	__u32 zero = 0, index = hash & config.limit_sets_mask;
	struct limit_set *set = bpf_map_lookup_elem(&limit_sets, &index);
	const struct limit_rules *rules = bpf_map_lookup_elem(&limit_rules, &zero);
	struct limit_totals *totals = bpf_map_lookup_elem(&limit_totals, &zero);
	__u64 *entry = 0;
	int i;

	if (!set || !rules || !totals)
		return ADMIT;
	head = (hash & TAG_MASK) | (__u64)(rules->epoch & 15) << EPOCH_SHIFT;
#pragma unroll
	for (i = 0; i < LIMIT_WAYS; i++) {
		__u64 candidate = READ_ONCE(set->words[i]);

		if (!entry && candidate && !((candidate ^ hash) & TAG_MASK)) {
			entry = &set->words[i];
			word = candidate;
		}
	}
	/* A client whose word has this epoch was found in the lists when it was written. */
	if (rules->lists && (!entry || rules->lists_are_finer ||
			     ((word ^ head) & (15ULL << EPOCH_SHIFT))) &&
	    is_denied(rules, client))
		return deny(rules, totals, client, now_ns);
	if (!entry)
		return admit_new_client(rules, totals, set, head, client->is_long, now_ns);
	return admit_known_client(rules, entry, word, head, !client->is_long, now_ns);
}

#endif
