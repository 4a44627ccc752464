// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Lets everything pass. On a virtual link, XDP_TX at one end reaches the other only if that runs a
 * program, too.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
