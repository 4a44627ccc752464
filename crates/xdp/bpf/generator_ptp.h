/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * PTP's part of the load generator: requests for the delay, with and without NetSync Monitor's
 * extension, and what the replies are held against. The token stands in the identity of the clock
 * that asks, the lane in the number of its port.
 */
#ifndef HOROLOG_GENERATOR_PTP_H
#define HOROLOG_GENERATOR_PTP_H

#include "generator.h"

/* A request for the delay, what NetSync Monitor's has behind it, an extension without content
 * (14.1), and what every message has over IPv6 (D.5). */
#define PTP_REQUEST_LEN (sizeof(struct ptp) + sizeof(struct ptp_timestamp))
#define PTP_EXTENSION_LEN 4
#define PTP_IPV6_PADDING_LEN 2

static __always_inline int ask_ptp(struct ethernet *ethernet, void *end, __u32 ip_len,
				   __u32 extension_len, const struct generator_config *cfg,
				   const struct request *request)
{
	__u32 padding_len = ip_len == sizeof(struct ipv6) ? PTP_IPV6_PADDING_LEN : 0;
	__u32 payload_len = PTP_REQUEST_LEN + extension_len + padding_len;
	struct udp *udp = (void *)(ethernet + 1) + ip_len;
	struct ptp *ptp = (void *)(udp + 1);
	__be64 clock = bpf_cpu_to_be64(request->token);
	__be16 port = bpf_htons(request->lane + 1);
	__be16 sequence = bpf_htons(request->sequence);

	if ((void *)ptp + payload_len > end)
		return -1;
	copy_request((void *)ethernet, cfg->request,
		     sizeof(*ethernet) + ip_len + sizeof(*udp) + payload_len);
	*(__be64 *)ptp->clock = clock;
	ptp->port = port;
	ptp->sequence = sequence;
	complete(ethernet, ip_len, cfg, request->address, sum64(clock) + port + sequence);
	return 0;
}

#endif
