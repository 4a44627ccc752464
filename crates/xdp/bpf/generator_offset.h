/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Offset of the server's timestamps, relative to the instant at which this program receives the
 * reply in the driver's receive path: the expressions of horolog_load::offset.
 */
#ifndef HOROLOG_GENERATOR_OFFSET_H
#define HOROLOG_GENERATOR_OFFSET_H

#include "generator.h"

#define NS_PER_S 1000000000LL
/* Seconds from NTP's epoch to Unix's (RFC 5905, figure 4). */
#define UNIX_EPOCH_IN_NTP 2208988800ULL

/* Offsets for each entry of `lane_counts`; a single entry if none are measured. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lane_offset_counts);
} offsets SEC(".maps");

/* For each client the receive time of its last reply in interleaved mode, in ns of UTC since 1970;
 * 0 if there was none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} last_received SEC(".maps");

static __always_inline __u64 utc_of(const struct generator_config *cfg, __u64 monotonic_ns)
{
	return monotonic_ns + cfg->realtime_minus_monotonic_ns;
}

static __always_inline __u64 ns_to_units(__u64 ns)
{
	return (ns / NS_PER_S) << 32 | ((ns % NS_PER_S) << 32) / NS_PER_S;
}

/* Returns the lead of one NTP timestamp over another, to the nearest ns. */
static __always_inline __s64 ntp_difference_ns(__u64 later, __u64 earlier)
{
	__s64 units = later - earlier;

	return (units >> 32) * NS_PER_S +
	       (__s64)(((__u64)(units & 0xffffffff) * NS_PER_S + (1ULL << 31)) >> 32);
}

/* Counts an offset from the reply to a request with this intended send time. */
static __always_inline void record_offset(const struct generator_config *cfg, __u64 intended_ns,
					  __s64 offset_ns)
{
	__u32 index = interval_counts_index(cfg, intended_ns);
	struct lane_offset_counts *counts = bpf_map_lookup_elem(&offsets, &index);
	__u64 magnitude, high, low;

	if (!counts)
		return;
	offset_ns -= cfg->offset_correction_ns;
	magnitude = offset_ns < 0 ? -(__u64)offset_ns : offset_ns;
	if (magnitude > HISTOGRAM_MAX) {
		magnitude = HISTOGRAM_MAX;
		counts->clamped++;
	}
	if (offset_ns < 0)
		record(&counts->negative, magnitude);
	else
		record(&counts->positive, magnitude);
	high = magnitude >> OFFSET_HALF_BITS;
	low = magnitude & ((1ULL << OFFSET_HALF_BITS) - 1);
	counts->squares_high += high * high;
	counts->products += high * low;
	counts->squares_low += low * low;
}

/* Records the offset of a server that received a request at `receive` and answered it at
 * `transmit`, not before that, with the reply received at `utc_ns` here. */
static __always_inline void measure_offset(const struct generator_config *cfg, __u64 intended_ns,
					   __u64 utc_ns, __u64 receive, __u64 transmit)
{
	__u64 server = transmit;

	if (options.mean_of_server)
		server = receive + ns_to_units((__u64)ntp_difference_ns(transmit, receive) / 2);
	record_offset(cfg, intended_ns,
		      ntp_difference_ns(ns_to_units(utc_ns) + (UNIX_EPOCH_IN_NTP << 32), server));
}

/* Records the offset of a reply. One in basic mode carries its own timestamps, if any. One in
 * interleaved mode carries the transmit time of the client's last reply, to the request that the
 * server received at `referred`. */
static __always_inline void measure_offset_ntp(const struct generator_config *cfg, __u32 client,
					       const struct ntp *ntp,
					       const struct request_id *id,
					       __u64 referred, __u64 now_ns, bool has_times)
{
	__u64 intended_ns = now_ns - id->age_ns;
	__u64 utc_ns = utc_of(cfg, now_ns), transmit = bpf_be64_to_cpu(ntp->transmit);
	__u64 *last = cfg->interleaved ? bpf_map_lookup_elem(&last_received, &client) : NULL;

	/* If the request was scheduled before that reply arrived, this one refers to an older. */
	if (!id->receive) {
		if (has_times)
			measure_offset(cfg, intended_ns, utc_ns, bpf_be64_to_cpu(ntp->receive),
				       transmit);
	} else if (last && transmit && *last && *last <= utc_of(cfg, intended_ns) &&
		   ntp_difference_ns(transmit, referred) >= 0) {
		measure_offset(cfg, intended_ns, *last, referred, transmit);
	}
	if (last)
		*last = utc_ns;
}

#endif
