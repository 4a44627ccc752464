/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * What both halves of the relay know: its maps, what a copy carries from the one to the other, and
 * the sums that checksums are made of.
 *
 * Between the halves a frame has no MAC addresses, but a `relay_tag`, and where checksums stand the
 * sums (RFC 1071) of what is the same in all copies: `copy` adds what is not. A sum is never 0, so
 * that a UDP checksum of 0 still says that there is none.
 */
#ifndef HOROLOG_RELAY_H
#define HOROLOG_RELAY_H

#include "abi.h"
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
	__type(key, struct relay_end_key);
	__type(value, __u8);
} relay_ends SEC(".maps");

/* The ports that groups listen at, and so those that copies come from: a bit for each. */
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

/* Two for each group: the one in use, and the one that is being made. */
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

/* The next three have entries for each processor, so that nobody else writes them. */
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

/* Which packet a copy is of, in place of its MAC addresses: 12 bytes. */
struct relay_tag {
	__u64 packet;
	__u32 slot;
};

static __always_inline struct relay_state *own_state(void)
{
	__u32 processor = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&relay_states, &processor);
}

/* The number of the group that packets to this address and port belong to. */
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

/* A sum in 16 bits, of which 0 has its other form. */
static __always_inline __u16 narrow(__u64 sum)
{
	__u16 narrow = ~fold(sum);

	return narrow ? narrow : 0xffff;
}

/* What is left of a sum without some of its summands. */
static __always_inline __u16 without(__u64 sum, __u64 summands)
{
	return narrow(sum + fold(summands));
}

static __always_inline __u64 address_sum(const __be32 *address)
{
	return (__u64)address[0] + address[1] + address[2] + address[3];
}

/* What a sum of the addresses becomes by the rest of the pseudo-header. */
static __always_inline __u64 pseudo_sum(__u64 addresses, __be16 length)
{
	return addresses + bpf_htons(PROTOCOL_UDP) + length;
}

/*
 * Whether a checksum is none yet, but the sum of the pseudo-header for a network card to complete.
 * So a packet comes that was sent on this machine, by a virtual link. A complete checksum that is
 * the same by chance is only computed once more.
 */
static __always_inline bool is_partial(__u16 checksum, __u64 pseudo)
{
	return checksum == (__u16)~fold(pseudo);
}

/* Adds what is left of a payload in chunks, of which there are no more than `most`. */
#define ADD_CHUNKS(chunk, most)							\
	for (i = 0; i < (most); i++) {						\
		if (length < (chunk) || at + (chunk) > end)			\
			break;							\
		sum = bpf_csum_diff(0, 0, at, (chunk), sum);			\
		at += (chunk);							\
		length -= (chunk);						\
	}

#define CHUNK 256
#define SMALL_CHUNK 32
/* No frame is longer: the kernel copies only what fits into a page with what stands around it. */
#define CHUNKS (4096 / CHUNK)

/* The sum of a payload behind an IP header and that of UDP. */
static __noinline __u64 payload_sum(struct xdp_md *ctx, __u32 ip_len, __u32 length)
{
	void *end = (void *)(long)ctx->data_end;
	void *at = (void *)(long)ctx->data + sizeof(struct ethernet) + sizeof(struct udp);
	__u32 i;
	__s64 sum = 0;
	__u64 last = 0;

	at += ip_len == sizeof(struct ipv6) ? sizeof(struct ipv6) : sizeof(struct ipv4);
	ADD_CHUNKS(CHUNK, CHUNKS)
	ADD_CHUNKS(SMALL_CHUNK, CHUNK / SMALL_CHUNK - 1)
	ADD_CHUNKS(4, SMALL_CHUNK / 4 - 1)
	if (length & 2) {
		if (at + 2 <= end)
			last += *(__u16 *)at;
		at += 2;
	}
	if ((length & 1) && at + 1 <= end)
		last += bpf_htons((__u16)(*(__u8 *)at << 8));
	return (__u64)(__u32)sum + last;
}

/* The sum for a complete checksum of what is the same in all copies. */
static __always_inline __u16 whole_sum(struct xdp_md *ctx, __u32 ip_len, __be16 length,
				       __u32 payload_len)
{
	return narrow(pseudo_sum(length, length) + payload_sum(ctx, ip_len, payload_len));
}

/* Has the kernel make the copies of a frame. */
static __always_inline int send_copies(struct ethernet *ethernet, void *map,
				       const struct relay_tag *tag)
{
	struct relay_tag *place = (void *)ethernet;

	place->packet = tag->packet;
	place->slot = tag->slot;
	return bpf_redirect_map(map, 0, BPF_F_BROADCAST);
}

#endif
