/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Where requests are answered and by which clock, to whom, what the program counts, and what each
 * processor remembers of it.
 */
#ifndef HOROLOG_LISTENING_H
#define HOROLOG_LISTENING_H

#include "abi.h"
#include "clock.h"
#include "net.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct listen_key);
	__type(value, __u8);	/* the timeline that is served there */
} listen_set SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct clock_page);
} clock_pages SEC(".maps");

/* One entry for each processor, so that nobody else writes it; user space maps and sums them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct responder_state);
} states SEC(".maps");

static __always_inline struct responder_state *own_state(void)
{
	__u32 processor = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&states, &processor);
}

static __always_inline int pass(struct responder_state *own, enum passed_reason reason)
{
	own->passed[reason]++;
	return XDP_PASS;
}

/*
 * Whether requests to this address and port are answered here. Nearly all of them go to the same
 * one, so the last that was found is remembered; looking it up costs more than the whole reply.
 */
static __always_inline bool is_listening(struct responder_state *own, const struct clock_page *page,
					 const __be32 *address, bool ipv6, __be16 port)
{
	__u64 epoch = READ_ONCE(page->listen_epoch);
	struct listen_key key = {};
	const __u8 *timeline;

	if (own->known_epoch == epoch && own->known_port == port && own->known_ipv6 == ipv6 &&
	    own->known_address[0] == address[0] &&
	    (!ipv6 || (own->known_address[1] == address[1] &&
		       own->known_address[2] == address[2] &&
		       own->known_address[3] == address[3])))
		return true;
	if (ipv6) {
		__builtin_memcpy(key.address, address, 16);
	} else {
		key.address[10] = 0xff;
		key.address[11] = 0xff;
		__builtin_memcpy(&key.address[12], address, 4);
	}
	key.port = port;
	timeline = bpf_map_lookup_elem(&listen_set, &key);
	if (!timeline)
		return false;
	own->known_timeline = *timeline;
	own->known_epoch = epoch;
	own->known_port = port;
	own->known_ipv6 = ipv6;
	__builtin_memcpy(own->known_address, address, ipv6 ? 16 : 4);
	return true;
}

/* Whether whoever has this address can be answered there. */
static __always_inline bool is_answerable_ipv4(__be32 source, __be32 destination)
{
	__u8 first = bpf_ntohl(source) >> 24;

	return first != 0 && first != 127 && first < 224 && source != destination;
}

static __always_inline bool is_answerable_ipv6(const struct ipv6 *ip)
{
	const __be32 *source = ip->source;
	const __be32 *destination = ip->destination;

	if ((bpf_ntohl(source[0]) >> 24) == 0xff)
		return false;
	/* Unspecified, loopback and IPv4-mapped addresses all begin with 64 zero bits. */
	if (!(source[0] | source[1])) {
		if (!source[2] && (source[3] == 0 || source[3] == bpf_htonl(1)))
			return false;
		if (source[2] == bpf_htonl(0xffff))
			return false;
	}
	return source[0] != destination[0] || source[1] != destination[1] ||
	       source[2] != destination[2] || source[3] != destination[3];
}

#endif
