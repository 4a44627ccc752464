// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Answers every PTP delay request over IPv4 on ingress, with the minimum that makes a valid reply:
 * the upper limit of a link and a driver. Reference for the load generator in benchmarks.
 */
#include "ptp_reflector.h"

#define REQUEST_LEN (sizeof(struct ptp) + sizeof(struct ptp_timestamp))

SEC("xdp.frags")
int reflect(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethernet *ethernet = (void *)(long)ctx->data;
	struct ptp_delay_response *response;
	struct ipv4 *ip;
	struct udp *udp;

	if (!is_delay_request(ethernet, end, REQUEST_LEN) ||
	    bpf_xdp_adjust_tail(ctx, sizeof(*response) - REQUEST_LEN))
		return XDP_PASS;
	end = (void *)(long)ctx->data_end;
	ethernet = (void *)(long)ctx->data;
	ip = (void *)(ethernet + 1);
	udp = (void *)(ip + 1);
	response = (void *)(udp + 1);
	if ((void *)(response + 1) > end)
		return XDP_DROP;
	swap_addresses(ethernet, ip);
	respond(ip, udp, response, sizeof(*response));
	return XDP_TX;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
