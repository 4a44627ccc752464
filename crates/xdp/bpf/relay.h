/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Shared parts of `relay` and `copy`: their maps, the tag that a copy carries from the one to the
 * other, and the sums for checksums.
 *
 * Between the two a frame has no MAC addresses, but a `relay_tag`, and instead of checksums the
 * sums (RFC 1071) of the fields that are the same in all copies: `copy` adds the others. A sum is
 * never 0, so that a UDP checksum of 0 still means none.
 */
#ifndef HOROLOG_RELAY_H
#define HOROLOG_RELAY_H

#include "abi.h"
#include "checksum.h"
#include "clock.h"
#include "net.h"

#define NOT_WHOLE 0x3fff	/* of `flags_and_offset`: more fragments, or an offset */
#define NEVER_FRAGMENT 0x4000
#define TRAFFIC_CLASS 0x0ff00000 /* of `version_class_flow` */
#define CHARGE_ATTEMPTS 16

const volatile struct relay_config config;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct listen_key);
	__type(value, __u32);	/* the group's number */
} relay_numbers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct relay_source_key);
	__type(value, __u8);
} relay_sources SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct relay_endpoint_key);
	__type(value, __u8);
} relay_endpoints SEC(".maps");

/* Ports at which groups listen, and so the source ports of copies: a bit for each. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, (1 << 16) / RELAY_PORTS_OF_WORD);
	__type(key, __u32);
	__type(value, __u64);
} relay_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, RELAY_INTERFACE_INDICES);
	__type(key, __u32);
	__type(value, struct relay_interface);
} relay_interfaces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct relay_group);
} relay_groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct relay_fan_out);
} relay_fan_out SEC(".maps");

/* Two for each group: the one in use, and the one in preparation. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct relay_slot);
} relay_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct relay_row);
} relay_rows SEC(".maps");

struct copies {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bpf_devmap_val));
};

/* By slot: an entry for each child, in the order of the rows, with the child's interface and
 * `copy`. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct copies);
} relay_copies SEC(".maps");

/* The next three maps have entries for each CPU, which is their only writer. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct relay_state);
} relay_states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct relay_slot_counts);
} relay_slot_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct relay_child_counts);
} relay_child_counts SEC(".maps");

/* Identifies the packet of a copy, in place of its MAC addresses: 12 bytes. */
struct relay_tag {
	__u64 packet;
	__u32 slot;
};

static __always_inline struct relay_state *own_state(void)
{
	__u32 processor = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&relay_states, &processor);
}

/* Returns the number of the group of packets to this address and port. */
static __always_inline const __u32 *group_at(const __be32 *address, bool ipv6, __be16 port)
{
	struct listen_key key = {};

	if (ipv6) {
		__builtin_memcpy(key.address, address, 16);
	} else {
		key.address[10] = 0xff;
		key.address[11] = 0xff;
		__builtin_memcpy(&key.address[12], address, 4);
	}
	key.port = port;
	return bpf_map_lookup_elem(&relay_numbers, &key);
}

/* Returns a sum in 16 bits, of which 0 has its other form. */
static __always_inline __u16 narrow(__u64 sum)
{
	__u16 narrow = ~fold(sum);

	return narrow ? narrow : 0xffff;
}

/* Returns a sum without some of its summands. */
static __always_inline __u16 without(__u64 sum, __u64 summands)
{
	return narrow(sum + fold(summands));
}

/* Returns the sum of the fields that are the same in all copies, for a complete checksum. */
static __always_inline __u16 whole_sum(__be16 length, __u64 payload)
{
	return narrow(pseudo_sum(length, length) + payload);
}

/* Sends the copies of a frame, which the kernel makes. */
static __always_inline int send_copies(struct ethernet *ethernet, void *map,
				       const struct relay_tag *tag)
{
	struct relay_tag *frame_tag = (void *)ethernet;

	frame_tag->packet = tag->packet;
	frame_tag->slot = tag->slot;
	return bpf_redirect_map(map, 0, BPF_F_BROADCAST);
}

#endif
