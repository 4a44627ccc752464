/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Addresses at which requests are answered and their clocks, permitted clients, the program's
 * counters, and the state of each CPU.
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
	__type(value, __u8);	/* timeline that is served there */
} listen_set SEC(".maps");

/* MAC addresses of this host, by interface and VLAN. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct station);
	__type(value, __u8);
} stations SEC(".maps");

/* Broadcast addresses of this host's networks. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __be32);
	__type(value, __u8);
} broadcasts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct clock_page);
} clock_pages SEC(".maps");

/* One entry for each CPU, which is its only writer; user space maps and sums them. */
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
 * Returns true if requests to this address and port are answered here. Nearly all of them have the
 * same one, so the last match is cached; a lookup costs more than the whole reply.
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

/*
 * Returns true if the network stack would accept a frame to this station: an interface in
 * promiscuous mode also receives frames for other hosts, and other VLANs. The last match is cached,
 * as in is_listening().
 */
static __always_inline bool is_own_station(struct responder_state *own,
					   const struct clock_page *page,
					   const struct station *station)
{
	__u64 epoch = READ_ONCE(page->listen_epoch);
	const __u64 *words = (const void *)station;

	if (own->station_epoch == epoch && own->station[0] == words[0] &&
	    own->station[1] == words[1])
		return true;
	if (!bpf_map_lookup_elem(&stations, station))
		return false;
	own->station_epoch = epoch;
	own->station[0] = words[0];
	own->station[1] = words[1];
	return true;
}

/* Returns true for a broadcast address. Its two lowest bits are set, since a network that has one
 * has at least four addresses; so three quarters of all clients need no lookup. */
static __always_inline bool is_broadcast(__be32 address)
{
	return (address & bpf_htonl(3)) == bpf_htonl(3) &&
	       bpf_map_lookup_elem(&broadcasts, &address);
}

/* Returns true if a client with this address can be answered. */
static __always_inline bool is_answerable_ipv4(__be32 source, __be32 destination)
{
	__u8 first = bpf_ntohl(source) >> 24;

	return first != 0 && first != 127 && first < 224 && source != destination &&
	       !is_broadcast(source);
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
