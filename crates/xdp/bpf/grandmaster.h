/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Replies of a PTP port to delay requests, over UDP and on Ethernet: the XDP engine's
 * implementation of horolog_ptp::DelayResponder. Unknown messages, and those that it must not
 * answer, are passed to the sockets.
 *
 * With `tlv_len`, NetSync Monitor requests are answered, with a TLV of this length; monitor.h
 * finishes such a reply.
 */
#ifndef HOROLOG_GRANDMASTER_H
#define HOROLOG_GRANDMASTER_H

#include "abi.h"
#include "checksum.h"
#include "clock.h"
#include "limits.h"
#include "listening.h"
#include "net.h"

#define PTP_GROUP_IPV4 0xe0000181	/* 224.0.1.129 */
#define REQUEST_LEN (sizeof(struct ptp) + sizeof(struct ptp_timestamp))
#define RESPONSE_LEN sizeof(struct ptp_delay_response)
#define MONITOR_REQUEST 0x21fe0000	/* NetSync Monitor's TLV, which is empty */
#define IPV6_PADDING 2			/* after every message (IEEE 1588-2019, annex D.5) */

#define PTP_CONTROL_DELAY_RESPONSE 3
/* In the field `control`: monitor.h must finish this reply. No message has this value. */
#define UNFINISHED 0xff

static __always_inline __u32 delay_request_len(const __u32 tlv_len)
{
	return REQUEST_LEN + (tlv_len ? sizeof(__be32) : 0);
}

/* Ports in master state, by interface and transport. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	/* A replaced entry is not reused while a program may still read it. */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 256);
	__type(key, struct ptp_port_key);
	__type(value, struct ptp_port);
} ptp_ports SEC(".maps");

/* Addresses of this host that accept requests over UDP; an IPv4 address is mapped. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct ptp_address);
	__type(value, __u8);
} ptp_addresses SEC(".maps");

/* Clients whose NetSync Monitor requests a port answers over UDP. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct ptp_client_key);
	__type(value, __u8);
} ptp_clients SEC(".maps");

static __always_inline const struct ptp_port *ptp_port_of(struct xdp_md *ctx, __u32 transport)
{
	struct ptp_port_key key = { .interface = ctx->ingress_ifindex, .transport = transport };

	return bpf_map_lookup_elem(&ptp_ports, &key);
}

/* Writes the served time in PTP's format; returns false if there is none. */
static __always_inline bool ptp_now(const struct clock_page *page, struct ptp_timestamp *now)
{
	const struct clock_slot *slot = &page->slots[READ_ONCE(page->active) & 1][TIMELINE_STEPPED];
	__u64 sequence = READ_ONCE(slot->sequence);
	__u64 now_ns = bpf_ktime_get_ns();
	__u64 ntp = ntp_at(slot, now_ns);
	__u32 seconds, nanoseconds;

	if (now_ns >= slot->expires_ns || slot->leap == 3)
		return false;
	/* TAI has no leap seconds; UTC, used if TAI is unknown, has. */
	if (slot->tai_is_known && now_ns >= slot->step_at_ns)
		ntp -= slot->step;
	seconds = (ntp >> 32) - PTP_EPOCH_IN_NTP + (slot->tai_is_known ? slot->tai_minus_utc_s : 0);
	nanoseconds = ((ntp & 0xffffffff) * 1000000000) >> 32;
	if ((sequence & 1) || READ_ONCE(slot->sequence) != sequence)
		return false;
	now->seconds[0] = 0;
	*(__be32 *)&now->seconds[1] = bpf_htonl(seconds);
	*(__be32 *)now->nanoseconds = bpf_htonl(nanoseconds);
	return true;
}

/* Returns true if this is a delay request of this length that the port answers. */
static __always_inline bool is_request(const struct ptp *ptp, const struct ptp_port *port,
				       __u32 length)
{
	return ptp->sdo_and_type == (port->sdo_major << 4 | PTP_DELAY_REQUEST) &&
	       (ptp->version & 0xf) == PTP_VERSION && ptp->length == bpf_htons(length) &&
	       ptp->domain == port->domain && ptp->minor_sdo == port->sdo_minor &&
	       *(__be64 *)ptp->clock != port->clock;
}

/* Returns true if this is a NetSync Monitor request that the port answers. */
static __always_inline bool is_monitor_request(const struct ptp *ptp, const struct ptp_port *port)
{
	const void *tlv = (const void *)ptp + REQUEST_LEN;

	return port->flags & PTP_PORT_MONITOR && *(const __be32 *)tlv == bpf_htonl(MONITOR_REQUEST);
}

static __always_inline bool is_admitted(struct xdp_md *ctx, __u32 transport, const void *address,
					const __u32 address_len)
{
	struct ptp_client_key key = {};

	key.length = 8 * (sizeof(key.port) + address_len);
	key.port.interface = ctx->ingress_ifindex;
	key.port.transport = transport;
	__builtin_memcpy(key.address, address, address_len);
	return bpf_map_lookup_elem(&ptp_clients, &key);
}

/* Turns a request into its reply (IEEE 1588-2019, 11.3.2). */
static __always_inline void write_delay_response(struct ptp_delay_response *response,
						 const struct ptp_port *port, bool group,
						 const struct ptp_timestamp *receive,
						 const __u32 tlv_len)
{
	struct ptp *header = &response->header;

	__builtin_memcpy(response->clock, header->clock, 8);
	response->port = header->port;
	response->receive = *receive;
	header->sdo_and_type = port->sdo_major << 4 | PTP_DELAY_RESPONSE;
	header->version = PTP_VERSION_SENT;
	header->length = bpf_htons(RESPONSE_LEN + tlv_len);
	header->flags[0] = group ? 0 : PTP_UNICAST;
	header->flags[1] = 0;
	header->type_specific[0] = 0;
	header->type_specific[1] = 0;
	*(__be64 *)header->clock = port->clock;
	header->port = port->port;
	header->control = PTP_CONTROL_DELAY_RESPONSE;
	header->interval = group ? port->log_min_delay_req : PTP_NO_INTERVAL;
	if (tlv_len)
		__builtin_memcpy(response + 1, port->monitor, tlv_len);
}

/* Returns the sum over a reply, which ends in half a word, and over the TLV after it. */
static __always_inline __u64 sum_response(const struct ptp_delay_response *response,
					  const struct ptp_port *port, const __u32 tlv_len)
{
	const __u32 *words = (const void *)response;
	__u64 sum = 0;
	__u32 i;

	for (i = 0; i < RESPONSE_LEN / 4; i++)
		sum += words[i];
	sum += *(const __u16 *)&words[RESPONSE_LEN / 4];
	words = (const void *)port->monitor;
	for (i = 0; i < tlv_len; i += 4)
		sum += words[i / 4];
	return sum;
}

static __always_inline bool serves(const struct ptp_port *port, bool group)
{
	return port->flags & (group ? PTP_PORT_MULTICAST : PTP_PORT_HYBRID);
}

static __always_inline bool is_mac(const __u8 *mac, __u16 first, __u16 second, __u16 third)
{
	const __be16 *words = (const void *)mac;

	return words[0] == bpf_htons(first) && words[1] == bpf_htons(second) &&
	       words[2] == bpf_htons(third);
}

/* Returns true if a single station sent this frame to the port or, if permitted, to the group's
 * address. */
static __always_inline bool is_addressed_to_port(const struct ethernet *ethernet,
						 const struct ptp_port *port, bool group,
						 bool is_groups)
{
	if (ethernet->source[0] & 1)
		return false;
	return group ? is_groups : is_same_mac(ethernet->destination, port->mac);
}

/* Returns the verdict for a reply: it is sent, or marked for monitor.h to finish. */
static __always_inline int reply_verdict(struct responder_state *own, struct ptp *header,
					 const __u32 tlv_len)
{
	if (tlv_len) {
		header->control = UNFINISHED;
		return XDP_REDIRECT;
	}
	own->answered_ptp++;
	return XDP_TX;
}

static __always_inline void write_reply_ethernet(struct ethernet *ethernet,
						 const struct ptp_port *port, bool group)
{
	/* A reply to a group's request goes to the same group. */
	if (!group)
		__builtin_memcpy(ethernet->destination, ethernet->source, 6);
	__builtin_memcpy(ethernet->source, port->mac, 6);
}

static __always_inline void write_reply_ports(struct udp *udp, __u16 length)
{
	udp->source = bpf_htons(PTP_GENERAL_PORT);
	udp->destination = bpf_htons(PTP_GENERAL_PORT);
	udp->length = bpf_htons(sizeof(*udp) + length);
}

/* Returns the part of the header and the pseudo-header of UDP in the sum. */
static __always_inline __u64 sum_udp(__u16 length)
{
	return bpf_htons(PROTOCOL_UDP) + 2 * bpf_htons(sizeof(struct udp) + length) +
	       2 * bpf_htons(PTP_GENERAL_PORT);
}

/* Returns true if a frame ends there. Both comparisons are necessary: the verifier uses the first.
 */
static __always_inline bool is_end(void *at, void *end)
{
	if (at > end)
		return false;
	barrier_var(at);
	return at == end;
}

static __always_inline int master_ipv4(struct xdp_md *ctx, struct responder_state *own,
				       const struct clock_page *page, const __u32 tlv_len)
{
	const __u32 headers = sizeof(struct ethernet) + sizeof(struct ipv4) + sizeof(struct udp);
	const __u32 request_len = delay_request_len(tlv_len), reply_len = RESPONSE_LEN + tlv_len;
	const struct ptp_port *port = ptp_port_of(ctx, PTP_OVER_IPV4);
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethernet *ethernet = data;
	struct ipv4 *ip = data + sizeof(*ethernet);
	struct udp *udp = (void *)(ip + 1);
	struct ptp_delay_response *response = (void *)(udp + 1);
	struct ptp_address address = {};
	struct ptp_timestamp now;
	__be32 source, destination;
	__u64 sum = 0;
	bool group;
	__u32 i;

	if (!port || !is_end(data + headers + request_len, end))
		return XDP_PASS;
	if (ip->version_and_length != 0x45 || ip->protocol != PROTOCOL_UDP ||
	    (ip->flags_and_offset & bpf_htons(0x3fff)) ||
	    ip->total_length != bpf_htons(sizeof(*ip) + sizeof(*udp) + request_len) ||
	    udp->length != bpf_htons(sizeof(*udp) + request_len) ||
	    udp->destination != bpf_htons(PTP_EVENT_PORT) ||
	    !is_request(&response->header, port, request_len))
		return XDP_PASS;
	for (i = 0; i < sizeof(*ip) / 4; i++)
		sum += ((__u32 *)ip)[i];
	source = ip->source;
	destination = ip->destination;
	group = destination == bpf_htonl(PTP_GROUP_IPV4);
	if (fold(sum) || !has_valid_checksum(udp, (__u64)source + destination,
					     sum_words(response, request_len)) ||
	    !serves(port, group) || !is_answerable_ipv4(source, destination) ||
	    !is_addressed_to_port(ethernet, port, group,
				  is_mac(ethernet->destination, 0x0100, 0x5e00, 0x0181)))
		return XDP_PASS;
	if (!group) {
		address.bytes[10] = 0xff;
		address.bytes[11] = 0xff;
		__builtin_memcpy(&address.bytes[12], &destination, 4);
		if (!bpf_map_lookup_elem(&ptp_addresses, &address))
			return XDP_PASS;
	}
	if (tlv_len && (group || !is_monitor_request(&response->header, port) ||
			!is_admitted(ctx, PTP_OVER_IPV4, &source, sizeof(source))))
		return XDP_PASS;
	if (!ptp_now(page, &now) || bpf_xdp_adjust_tail(ctx, reply_len - request_len))
		return XDP_PASS;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	ethernet = data;
	ip = data + sizeof(*ethernet);
	udp = (void *)(ip + 1);
	response = (void *)(udp + 1);
	if ((void *)(response + 1) + tlv_len > end)
		return XDP_ABORTED;
	write_delay_response(response, port, group, &now, tlv_len);
	write_reply_ports(udp, reply_len);
	ip->source = group ? *(__be32 *)&port->address[12] : destination;
	ip->destination = group ? destination : source;
	ip->traffic_class = 0;
	ip->total_length = bpf_htons(sizeof(*ip) + sizeof(*udp) + reply_len);
	ip->identification = 0;
	ip->flags_and_offset = bpf_htons(0x4000);
	ip->time_to_live = group ? 1 : 64;
	sum = (__u64)ip->source + ip->destination;
	udp->checksum = udp_fold(sum + sum_udp(reply_len) +
				 sum_response(response, port, tlv_len));
	ip->checksum = 0;
	sum = 0;
	for (i = 0; i < sizeof(*ip) / 4; i++)
		sum += ((__u32 *)ip)[i];
	ip->checksum = fold(sum);
	write_reply_ethernet(ethernet, port, group);
	return reply_verdict(own, &response->header, tlv_len);
}

static __always_inline bool is_group_ipv6(const __be32 *address)
{
	/* ff0e::181 */
	return address[0] == bpf_htonl(0xff0e0000) && !address[1] && !address[2] &&
	       address[3] == bpf_htonl(0x181);
}

static __always_inline int master_ipv6(struct xdp_md *ctx, struct responder_state *own,
				       const struct clock_page *page, const __u32 tlv_len)
{
	const __u32 headers = sizeof(struct ethernet) + sizeof(struct ipv6) + sizeof(struct udp);
	const __u32 request_len = delay_request_len(tlv_len), reply_len = RESPONSE_LEN + tlv_len;
	const struct ptp_port *port = ptp_port_of(ctx, PTP_OVER_IPV6);
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethernet *ethernet = data;
	struct ipv6 *ip = data + sizeof(*ethernet);
	struct udp *udp = (void *)(ip + 1);
	struct ptp_delay_response *response = (void *)(udp + 1);
	struct ptp_address address;
	struct ptp_timestamp now;
	void *padding;
	__be32 source[4];
	__u64 sum = 0;
	bool group;
	__u32 i;

	if (!port || !is_end(data + headers + request_len + IPV6_PADDING, end))
		return XDP_PASS;
	if (bpf_ntohl(ip->version_class_flow) >> 28 != 6 || ip->next_header != PROTOCOL_UDP ||
	    ip->payload_length != bpf_htons(sizeof(*udp) + request_len + IPV6_PADDING) ||
	    udp->length != ip->payload_length || !udp->checksum ||
	    udp->destination != bpf_htons(PTP_EVENT_PORT) ||
	    !is_request(&response->header, port, request_len) || !is_answerable_ipv6(ip))
		return XDP_PASS;
	sum = sum_words(response, request_len) + *(__u16 *)((void *)response + request_len);
	if (!has_valid_checksum(udp, address_sum(ip->source) + address_sum(ip->destination), sum))
		return XDP_PASS;
	sum = 0;
	group = is_group_ipv6(ip->destination);
	if (!serves(port, group) ||
	    !is_addressed_to_port(ethernet, port, group,
				  is_mac(ethernet->destination, 0x3333, 0x0000, 0x0181)))
		return XDP_PASS;
	__builtin_memcpy(address.bytes, ip->destination, 16);
	if (!group && !bpf_map_lookup_elem(&ptp_addresses, &address))
		return XDP_PASS;
	if (tlv_len && (group || !is_monitor_request(&response->header, port) ||
			!is_admitted(ctx, PTP_OVER_IPV6, ip->source, sizeof(ip->source))))
		return XDP_PASS;
	if (!ptp_now(page, &now) || bpf_xdp_adjust_tail(ctx, reply_len - request_len))
		return XDP_PASS;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	ethernet = data;
	ip = data + sizeof(*ethernet);
	udp = (void *)(ip + 1);
	response = (void *)(udp + 1);
	padding = (void *)(response + 1) + tlv_len;
	if (padding + IPV6_PADDING > end)
		return XDP_ABORTED;
	write_delay_response(response, port, group, &now, tlv_len);
	*(__u16 *)padding = 0;
	write_reply_ports(udp, reply_len + IPV6_PADDING);
	if (group) {
		__builtin_memcpy(ip->source, port->address, 16);
	} else {
		__builtin_memcpy(source, ip->source, 16);
		__builtin_memcpy(ip->source, ip->destination, 16);
		__builtin_memcpy(ip->destination, source, 16);
	}
	ip->version_class_flow = bpf_htonl(6 << 28);
	ip->payload_length = bpf_htons(sizeof(*udp) + reply_len + IPV6_PADDING);
	ip->hop_limit = group ? 1 : 64;
	for (i = 0; i < 4; i++)
		sum += (__u64)ip->source[i] + ip->destination[i];
	udp->checksum = udp_fold(sum + sum_udp(reply_len + IPV6_PADDING) +
				 sum_response(response, port, tlv_len));
	write_reply_ethernet(ethernet, port, group);
	return reply_verdict(own, &response->header, tlv_len);
}

static __always_inline int master_ethernet(struct xdp_md *ctx, struct responder_state *own,
					   const struct clock_page *page, const __u32 tlv_len)
{
	const __u32 request_len = delay_request_len(tlv_len);
	const int reply_len = sizeof(struct ethernet) + RESPONSE_LEN + tlv_len;
	const struct ptp_port *port = ptp_port_of(ctx, PTP_OVER_ETHERNET);
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethernet *ethernet = data;
	struct ptp_delay_response *response = data + sizeof(*ethernet);
	struct ptp_timestamp now;
	bool group;

	if (!port || (void *)response + request_len > end ||
	    !is_request(&response->header, port, request_len))
		return XDP_PASS;
	group = is_mac(ethernet->destination, 0x011b, 0x1900, 0x0000);
	if (!serves(port, group) || !is_addressed_to_port(ethernet, port, group, group))
		return XDP_PASS;
	if (tlv_len && (group || !is_monitor_request(&response->header, port)))
		return XDP_PASS;
	/* A request is shorter than the minimum frame, so bytes after it are ignored. */
	if (!ptp_now(page, &now) || bpf_xdp_adjust_tail(ctx, reply_len - (int)(end - data)))
		return XDP_PASS;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	ethernet = data;
	response = data + sizeof(*ethernet);
	if ((void *)(response + 1) + tlv_len > end)
		return XDP_ABORTED;
	write_delay_response(response, port, group, &now, tlv_len);
	write_reply_ethernet(ethernet, port, group);
	return reply_verdict(own, &response->header, tlv_len);
}

/* Answers a delay request, or one of NetSync Monitor; everything else is passed. */
static __always_inline int master(struct xdp_md *ctx, const bool monitor)
{
	struct ethernet *ethernet = (void *)(long)ctx->data;
	struct responder_state *own = own_state();
	struct clock_page *page;
	__u32 zero = 0;

	page = bpf_map_lookup_elem(&clock_pages, &zero);
	if (!own || !page || (void *)(ethernet + 1) > (void *)(long)ctx->data_end ||
	    !is_linear(ctx))
		return XDP_PASS;
	switch (ethernet->type) {
	case bpf_htons(TYPE_IPV4):
		return master_ipv4(ctx, own, page, monitor ? PTP_MONITOR_LEN(4) : 0);
	case bpf_htons(TYPE_IPV6):
		return master_ipv6(ctx, own, page, monitor ? PTP_MONITOR_LEN(16) : 0);
	case bpf_htons(TYPE_PTP):
		return master_ethernet(ctx, own, page, monitor ? PTP_MONITOR_LEN(6) : 0);
	default:
		return XDP_PASS;
	}
}

#endif
