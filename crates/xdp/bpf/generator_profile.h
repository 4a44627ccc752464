/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Rate in a load profile: rate segments, planned by user space. The program only moves from one to
 * the next; requests in flight are not affected.
 */
#ifndef HOROLOG_GENERATOR_PROFILE_H
#define HOROLOG_GENERATOR_PROFILE_H

#include "generator.h"

/* RATE_SEGMENTS_MAX for each lane. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rate_segment);
} rate_segments SEC(".maps");

/* Exponential quantiles of mean 1, scaled by 2^16. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, EXPONENTIAL_ENTRIES);
	__type(key, __u32);
	__type(value, __u32);
} exponential SEC(".maps");

static __always_inline __u64 next_interval(const struct generator_config *cfg, __u64 mean)
{
	__u32 *quantile, draw;

	if (!cfg->exponential)
		return mean;
	draw = bpf_get_prandom_u32() & (EXPONENTIAL_ENTRIES - 1);
	quantile = bpf_map_lookup_elem(&exponential, &draw);
	if (!quantile)
		return mean;
	return (mean >> 16) * *quantile + (((mean & 0xffff) * *quantile) >> 16);
}

static __always_inline bool has_load_profile(const struct lane *lane)
{
	return options.load_profile && lane->segments;
}

/* Returns true if the lane's next request is after its segment. */
static __always_inline bool is_past_segment(const struct lane *lane)
{
	return has_load_profile(lane) && lane->next >= lane->segment_end;
}

static __always_inline struct rate_segment *segment_of(const struct lane *lane)
{
	__u32 index = (lane->number & (LANES_MAX - 1)) * RATE_SEGMENTS_MAX +
		      (lane->segment & (RATE_SEGMENTS_MAX - 1));

	return bpf_map_lookup_elem(&rate_segments, &index);
}

/* Counts the rest of the lane's phase as omitted, in the interval of the next request. */
static __always_inline void count_omitted(struct lane_counts *counts,
					   const struct generator_config *cfg,
					   const struct lane *lane,
					   const struct rate_segment *segment)
{
	__u64 left = lane->segment_end - lane->next, interval = lane->interval;

	counts = interval_counts(counts, cfg, lane->start_ns + (lane->next >> 16));
	counts->omitted += segment->remaining_requests;
	if (interval)
		counts->omitted += (left + interval - 1) / interval;
}

/* Returns true if the lane stays in its segment. If not, moves to the next one, or past the phase
 * if that is over and the lane is behind schedule: it must not catch up on a phase in the next. */
static __always_inline bool stays_in_segment(struct lane *lane, struct lane_counts *counts,
					     const struct generator_config *cfg, __u64 now_ns)
{
	bool is_behind = !is_past_segment(lane);
	struct rate_segment *segment;

	if (is_behind && now_ns < lane->phase_over_ns)
		return true;
	segment = segment_of(lane);
	if (!segment)
		return false;
	if (is_behind) {
		count_omitted(counts, cfg, lane, segment);
		lane->segment = segment->next_phase;
	} else {
		lane->segment++;
	}
	segment = segment_of(lane);
	if (!segment || lane->segment >= lane->segments) {
		lane->done = 1;
		return false;
	}
	lane->interval = segment->interval;
	lane->segment_end = segment->end;
	lane->phase_over_ns = lane->start_ns + segment->phase_over_ns;
	lane->next = cfg->exponential ? segment->begin + next_interval(cfg, segment->interval) :
					segment->first;
	return false;
}

#endif
