/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * How far the server's timestamps are off, against the instant at which this program sees the reply
 * in the driver's receive path: the expressions of horolog_load::offset.
 */
#ifndef HOROLOG_GENERATOR_OFFSET_H
#define HOROLOG_GENERATOR_OFFSET_H

#include "generator.h"

#define NS_PER_S 1000000000LL
/* Seconds from NTP's epoch to Unix's (RFC 5905, figure 4). */
#define UNIX_EPOCH_IN_NTP 2208988800ULL

/* Those of each book in `tallies`; one alone where none are taken. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct offset_tally);
} offsets SEC(".maps");

/* For each client when its last reply in interleaved mode was received, in ns of UTC since 1970; 0
 * where there was none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} last_received SEC(".maps");

static __always_inline __u64 utc_of(const struct generator_config *cfg, __u64 monotonic_ns)
{
	return monotonic_ns + cfg->realtime_ahead_ns;
}

static __always_inline __u64 ns_to_units(__u64 ns)
{
	return (ns / NS_PER_S) << 32 | ((ns % NS_PER_S) << 32) / NS_PER_S;
}

/* What one NTP timestamp is ahead of another, to the nearest ns. */
static __always_inline __s64 since(__u64 later, __u64 earlier)
{
	__s64 units = later - earlier;

	return (units >> 32) * NS_PER_S +
	       (__s64)(((__u64)(units & 0xffffffff) * NS_PER_S + (1ULL << 31)) >> 32);
}

/* Counts an offset that the answer to a request of this instant tells. */
static __always_inline void record_offset(const struct generator_config *cfg, __u64 intended_ns,
					  __s64 offset_ns)
{
	__u32 index = book_index(cfg, intended_ns);
	struct offset_tally *tally = bpf_map_lookup_elem(&offsets, &index);
	__u64 magnitude, high, low;

	if (!tally)
		return;
	offset_ns -= cfg->offset_correction_ns;
	magnitude = offset_ns < 0 ? -(__u64)offset_ns : offset_ns;
	if (magnitude > HISTOGRAM_MAX) {
		magnitude = HISTOGRAM_MAX;
		tally->clamped++;
	}
	if (offset_ns < 0)
		record(&tally->negative, magnitude);
	else
		record(&tally->positive, magnitude);
	high = magnitude >> OFFSET_HALF_BITS;
	low = magnitude & ((1ULL << OFFSET_HALF_BITS) - 1);
	tally->squares_high += high * high;
	tally->products += high * low;
	tally->squares_low += low * low;
}

/* Takes the offset of a server that received a request at `receive` and answered it at `transmit`,
 * not before that, with the answer received at `utc_ns` here. */
static __always_inline void take_offset(const struct generator_config *cfg, __u64 intended_ns,
					__u64 utc_ns, __u64 receive, __u64 transmit)
{
	__u64 server = transmit;

	if (asked.mean_of_server)
		server = receive + ns_to_units((__u64)since(transmit, receive) / 2);
	record_offset(cfg, intended_ns, since(ns_to_units(utc_ns) + (UNIX_EPOCH_IN_NTP << 32), server));
}

/* A reply in basic mode tells of itself. One in interleaved mode tells when the client's last reply
 * left, to the request that the server received at `referred`. */
static __always_inline void take_offset_ntp(const struct generator_config *cfg, __u32 client,
					    const struct ntp *ntp,
					    const struct question *question,
					    __u64 referred, __u64 now_ns)
{
	__u64 intended_ns = now_ns - question->age_ns;
	__u64 utc_ns = utc_of(cfg, now_ns), transmit = bpf_be64_to_cpu(ntp->transmit);
	__u64 *last = cfg->interleaved ? bpf_map_lookup_elem(&last_received, &client) : NULL;

	/* Of a request that was due before that reply came, the answer tells of an older one. */
	if (!question->receive)
		take_offset(cfg, intended_ns, utc_ns, bpf_be64_to_cpu(ntp->receive), transmit);
	else if (last && *last && *last <= utc_of(cfg, intended_ns) &&
		 since(transmit, referred) >= 0)
		take_offset(cfg, intended_ns, *last, referred, transmit);
	if (last)
		*last = utc_ns;
}

#endif
