// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Delay of handlers of the kernel's timer: a kernel timer is armed for an instant at a random
 * distance, its callback reads the clock first, records its delay, and arms the timer again until
 * the requested number of expiries. No packet is touched: the program is called once, which arms
 * the first timer.
 */
#include "net.h"
#include "abi.h"
#include "histogram.h"

#define CLOCK_MONOTONIC 1
/* The header of an older kernel has no names for these flags. */
#define TIMER_ABSOLUTE (1 << 0)
#define TIMER_ON_CORE (1 << 1)

/* Plan from user space, and its progress. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct timer_plan);
} plans SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct histogram);
} delays SEC(".maps");

struct expiry {
	struct bpf_timer timer;
};

/* A map with a timer in it cannot be shared with user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct expiry);
} expiries SEC(".maps");

static int expired(void *map, __u32 *key, struct expiry *expiry)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 zero = 0;
	struct timer_plan *plan = bpf_map_lookup_elem(&plans, &zero);
	struct histogram *histogram = bpf_map_lookup_elem(&delays, &zero);
	__u64 distance;

	if (!plan || !histogram || !plan->remaining)
		return 0;
	/* A reading before the expiry is an error of the clock, not of the kernel's timer. */
	record(histogram, now > plan->due ? now - plan->due : 0);
	if (bpf_get_smp_processor_id() != plan->core)
		plan->elsewhere++;
	plan->remaining--;
	if (!plan->remaining)
		return 0;
	distance = plan->distance_min;
	if (plan->distance_span)
		distance += bpf_get_prandom_u32() % plan->distance_span;
	plan->due = bpf_ktime_get_ns() + distance;
	if (bpf_timer_start(&expiry->timer, plan->due, plan->flags)) {
		plan->error = 1;
		plan->remaining = 0;
	}
	return 0;
}

SEC("xdp.frags")
int arm(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct timer_plan *plan = bpf_map_lookup_elem(&plans, &zero);
	struct expiry *expiry = bpf_map_lookup_elem(&expiries, &zero);
	long error;

	if (!plan || !expiry)
		return XDP_ABORTED;
	/* It fails if it was initialised before, which is harmless. */
	bpf_timer_init(&expiry->timer, &expiries, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&expiry->timer, expired);
	plan->core = bpf_get_smp_processor_id();
	plan->flags = TIMER_ABSOLUTE | TIMER_ON_CORE;
	error = bpf_timer_start(&expiry->timer, plan->due, plan->flags);
	if (error) {
		/* Linux before 6.7 cannot tie a timer to a core. */
		plan->flags = TIMER_ABSOLUTE;
		error = bpf_timer_start(&expiry->timer, plan->due, plan->flags);
	}
	if (error) {
		plan->error = 1;
		plan->remaining = 0;
	}
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
