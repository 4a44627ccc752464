/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * The rate on a course: legs of one rate each, which user space has planned. The program only goes
 * from one to the next; what is in flight knows nothing of it.
 */
#ifndef HOROLOG_GENERATOR_COURSE_H
#define HOROLOG_GENERATOR_COURSE_H

#include "generator.h"

/* LEGS_MAX for each lane. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct leg);
} legs SEC(".maps");

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

static __always_inline bool is_on_course(const struct lane *lane)
{
	return asked.courses && lane->legs;
}

/* Whether the lane's next request is none of its leg. */
static __always_inline bool is_past_leg(const struct lane *lane)
{
	return is_on_course(lane) && lane->next >= lane->leg_end;
}

static __always_inline struct leg *leg_of(const struct lane *lane)
{
	__u32 index = (lane->number & (LANES_MAX - 1)) * LEGS_MAX + (lane->leg & (LEGS_MAX - 1));

	return bpf_map_lookup_elem(&legs, &index);
}

/* Counts what is left of the lane's phase as left out, in the book of the next request. */
static __always_inline void leave_out(struct tally *tally, const struct generator_config *cfg,
				      const struct lane *lane, const struct leg *leg)
{
	__u64 left = lane->leg_end - lane->next, interval = lane->interval;

	tally = book_of(tally, cfg, lane->start_ns + (lane->next >> 16));
	tally->left_out += leg->rest;
	if (interval)
		tally->left_out += (left + interval - 1) / interval;
}

/* Whether the lane stays on its leg. If not, goes to the next one, or past the phase where that is
 * over and the lane is behind: it must not make up for one phase in the next. */
static __always_inline bool stays_on_leg(struct lane *lane, struct tally *tally,
					 const struct generator_config *cfg, __u64 now_ns)
{
	bool is_behind = !is_past_leg(lane);
	struct leg *leg;

	if (is_behind && now_ns < lane->phase_over_ns)
		return true;
	leg = leg_of(lane);
	if (!leg)
		return false;
	if (is_behind) {
		leave_out(tally, cfg, lane, leg);
		lane->leg = leg->next_phase;
	} else {
		lane->leg++;
	}
	leg = leg_of(lane);
	if (!leg || lane->leg >= lane->legs) {
		lane->done = 1;
		return false;
	}
	lane->interval = leg->interval;
	lane->leg_end = leg->end;
	lane->phase_over_ns = lane->start_ns + leg->phase_over_ns;
	lane->next = cfg->exponential ? leg->begin + next_interval(cfg, leg->interval) : leg->first;
	return false;
}

#endif
