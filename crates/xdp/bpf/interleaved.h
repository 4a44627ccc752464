/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Interleaved mode (RFC 9769): state of each client's last reply, and a reply that refers to it.
 * The same as horolog_server::InterleavedTable; a test compares the two.
 */
#ifndef HOROLOG_INTERLEAVED_H
#define HOROLOG_INTERLEAVED_H

#include "abi.h"
#include "hash.h"
#include "limits.h"
#include "reply.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct interleaved_slot);
} interleaved_slots SEC(".maps");

/* Returns true if the request may be in interleaved mode: its origin can be a receive timestamp of
 * this server. In symmetric mode that would need an association. */
static __always_inline bool may_be_interleaved(const struct ntp *ntp)
{
	return !is_symmetric(ntp) && ntp->origin && !(ntp->origin & ODD) &&
	       ntp->receive != ntp->transmit;
}

/*
 * Turns the basic reply in `ntp` into an interleaved one if the state that the request refers to is
 * stored, stores this reply, and returns the new sum.
 */
static __always_inline __u64 interleave(struct responder_state *own, struct ntp *ntp,
					const struct client *client, __be64 origin,
					__be64 receive, __u64 sum)
{
	__u64 hash = hash_words(client->high, client->low, config.hash_key[0], config.hash_key[1]);
	__u32 index = hash & config.interleaved_mask;
	struct interleaved_slot *slot = bpf_map_lookup_elem(&interleaved_slots, &index);
	__u64 both, transmit, now = bpf_be64_to_cpu(ntp->transmit);
	__be64 saved;

	if (!slot)
		return sum;
	both = READ_ONCE(slot->both);
	transmit = READ_ONCE(slot->transmit);
	WRITE_ONCE(slot->both, 1);	/* receive and transmit differ only in the lowest bit */
	WRITE_ONCE(slot->transmit, now);
	if (!transmit || (both ^ transmit) != bpf_be64_to_cpu(origin))
		return sum;
	saved = bpf_cpu_to_be64(transmit);
	sum -= sum64(ntp->origin) + sum64(ntp->transmit);
	ntp->origin = receive;
	ntp->transmit = saved;
	own->answered_interleaved++;
	return sum + sum64(receive) + sum64(saved);
}

#endif
