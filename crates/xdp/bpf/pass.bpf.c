// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Lets everything pass: the least that a test run with live frames can be tried with.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
