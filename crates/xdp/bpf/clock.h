/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Time from the clock page: the same expression as Timebase::ntp_at in Rust.
 */
#ifndef HOROLOG_CLOCK_H
#define HOROLOG_CLOCK_H

#include "abi.h"

#define RATE_SHIFT 29

/* Compilers must not read a shared field twice or reorder these reads; the active slot is not
 * written for a whole page update interval, and its sequence is still compared at the end. */
#define READ_ONCE(field) (*(volatile typeof(field) *)&(field))

static __always_inline __u64 ntp_at(const struct clock_slot *slot, __u64 now_ns)
{
	__s64 distance = now_ns - slot->anchor_ns;
	__u64 anchor = slot->ntp_at_anchor;

	if (now_ns >= slot->step_at_ns)
		anchor += slot->step;
	if (distance < 0)
		return anchor - (((__u64)-distance * slot->rate) >> RATE_SHIFT);
	return anchor + (((__u64)distance * slot->rate) >> RATE_SHIFT);
}

#endif
