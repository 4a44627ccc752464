// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Passes everything: the minimal program for a test run with live frames.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp.frags")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
