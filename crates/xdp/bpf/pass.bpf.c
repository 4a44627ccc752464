// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Lets everything pass. A virtual link takes frames from XDP only when its other end runs a program,
 * and the in-kernel generator is quick to call only when its program has been attached once.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
