/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * PTP part of the load generator: delay requests, with and without NetSync Monitor's extension, and
 * the verification of their replies, in the order of horolog_load::ptp. The token is in the
 * sender's clock identity, the lane in its port number.
 */
#ifndef HOROLOG_GENERATOR_PTP_H
#define HOROLOG_GENERATOR_PTP_H

#include "generator.h"
#include "generator_monitor.h"

/* A delay request, NetSync Monitor's addition to it, a TLV without content (14.1), and the addition
 * to every message over IPv6 (D.5). */
#define PTP_REQUEST_LEN (sizeof(struct ptp) + sizeof(struct ptp_timestamp))
#define PTP_EXTENSION_LEN 4
#define PTP_IPV6_PADDING_LEN 2
/* Most padding of the shortest frame without IP. */
#define ETHERNET_PADDING_MAX 46

/* NetSync Monitor's response: the type of its TLV, the lengths before and after the address in it,
 * and the position of the time's flags, from its end. */
#define MONITOR_RESPONSE 0x21ff
#define MONITOR_HEAD_LEN 6
#define MONITOR_FOOT_LEN 64
#define MONITOR_FLAGS_FROM_END 12
#define MONITOR_TRACEABLE 0x30
/* Further TLVs are not examined. */
#define EXTENSIONS_MAX 8

/* Content of the TLVs of a message. */
enum extension_content {
	EXTENSION_NONE,		/* none of the expected ones */
	EXTENSION_MALFORMED,	/* they do not end where the message does */
	EXTENSION_INVALID,	/* NetSync Monitor's first one is invalid */
	EXTENSION_UNTRACEABLE,	/* the master's time is not traceable ... */
	EXTENSION_TRACEABLE,	/* ... or is traceable to a reference */
};

/* Port of each lane's master: the sender of the first valid reply. */
struct master {
	__be64 clock;
	__u32 port;
	__u32 is_known;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LANES_MAX);
	__type(key, __u32);
	__type(value, struct master);
} masters SEC(".maps");

static __always_inline int build_ptp_request(struct ethernet *ethernet, void *end, __u32 ip_len,
					     __u32 extension_len,
					     const struct generator_config *cfg,
					     const struct request *request)
{
	__u32 padding_len = ip_len == sizeof(struct ipv6) ? PTP_IPV6_PADDING_LEN : 0;
	__u32 payload_len = PTP_REQUEST_LEN + extension_len + padding_len;
	__u32 headers_len = sizeof(*ethernet) + ip_len + (ip_len ? sizeof(struct udp) : 0);
	struct ptp *ptp = (void *)ethernet + headers_len;
	__be64 clock = bpf_cpu_to_be64(request->token);
	__be16 port = bpf_htons(request->lane + 1);
	__be16 sequence = bpf_htons(request->sequence);

	if ((void *)ptp + payload_len > end)
		return -1;
	copy_request((void *)ethernet, cfg->request, headers_len + payload_len);
	*(__be64 *)ptp->clock = clock;
	ptp->port = port;
	ptp->sequence = sequence;
	if (!ip_len)
		return 0;
	/* The template is that of lane 0, port 1. */
	complete(ethernet, ip_len, cfg, request->address,
		 sum64(clock) + bpf_htons(request->lane) + sequence);
	return 0;
}

/* In a group all clients' messages are received, and those that match no request are ignored. */
static __always_inline int unmatched(struct lane_counts *counts, enum invalid_reason reason)
{
	return options.multicast ? XDP_PASS : invalid(counts, reason);
}

/* Returns the length of a message of this type without optional additions. */
static __always_inline __u16 ptp_len(__u8 type)
{
	switch (type) {
	case PTP_SYNC:
	case PTP_DELAY_REQUEST:
	case PTP_FOLLOW_UP:
	case PTP_SIGNALING:
		return 44;
	case PTP_DELAY_RESPONSE:
	case PTP_PEER_REQUEST:
	case PTP_PEER_RESPONSE:
	case PTP_PEER_FOLLOW_UP:
		return sizeof(struct ptp_delay_response);
	case PTP_ANNOUNCE:
		return 64;
	case PTP_MANAGEMENT:
		return 48;
	default:
		return sizeof(struct ptp);
	}
}

/* Returns the nanoseconds since the epoch; 0 if the timestamp is invalid, or after the year 2262.
 */
static __always_inline __u64 timestamp_ns(const struct ptp_timestamp *timestamp)
{
	__u64 seconds = (__u64)bpf_ntohs(timestamp->seconds[0]) << 32 |
			bpf_ntohl(*(__be32 *)&timestamp->seconds[1]);
	__u32 nanoseconds = bpf_ntohl(*(__be32 *)timestamp->nanoseconds);
	__u64 ns = seconds * 1000000000 + nanoseconds;

	if (nanoseconds >= 1000000000 || seconds > (1ULL << 63) / 1000000000 || ns >> 63)
		return 0;
	return ns;
}

/* Checks the requirements of all replies. Returns a reason to refuse one, or -1. */
static __always_inline int refuse_ptp(const struct ptp *ptp, const struct generator_config *cfg,
				      enum extension_content content)
{
	if (ptp->domain != cfg->domain || ptp->sdo_and_type >> 4 || ptp->minor_sdo)
		return INVALID_DOMAIN;
	if (!(ptp->flags[0] & PTP_UNICAST) != options.multicast)
		return INVALID_FLAGS;
	return content == EXTENSION_MALFORMED ? INVALID_LENGTH : -1;
}

static __always_inline bool is_from_master(const struct ptp *ptp, __u32 lane)
{
	struct master *master = bpf_map_lookup_elem(&masters, &lane);
	__be64 clock = *(__be64 *)ptp->clock;

	if (!master)
		return false;
	if (master->is_known)
		return master->clock == clock && master->port == ptp->port;
	master->clock = clock;
	master->port = ptp->port;
	master->is_known = 1;
	return true;
}

/* Returns the state of the time in NetSync Monitor's TLV, whose value has this length. */
static __always_inline enum extension_content monitor_content(__be16 *extension, __u32 value_len,
							      void *end)
{
	__u8 *flags = (__u8 *)extension + PTP_EXTENSION_LEN + value_len - MONITOR_FLAGS_FROM_END;

	if (value_len < MONITOR_HEAD_LEN + MONITOR_FOOT_LEN || (void *)(extension + 5) > end ||
	    value_len != MONITOR_HEAD_LEN + bpf_ntohs(extension[4]) + MONITOR_FOOT_LEN ||
	    (void *)(flags + 1) > end)
		return EXTENSION_INVALID;
	return *flags & MONITOR_TRACEABLE ? EXTENSION_TRACEABLE : EXTENSION_UNTRACEABLE;
}

/* Returns the content of the TLVs of a message of `length` bytes, from `at` on. */
static __always_inline enum extension_content extensions_content(void *message, __u32 at,
								 __u32 length, void *end)
{
	enum extension_content content = EXTENSION_NONE;
	__be16 *extension;
	__u32 value_len, i;

	for (i = 0; i < EXTENSIONS_MAX; i++) {
		if (at == length)
			return content;
		at &= 0x7ff;
		extension = message + at;
		if (at + PTP_EXTENSION_LEN > length || (void *)(extension + 2) > end)
			return EXTENSION_MALFORMED;
		value_len = bpf_ntohs(extension[1]);
		at += PTP_EXTENSION_LEN + value_len;
		if (at > length || value_len & 1)
			return EXTENSION_MALFORMED;
		if (options.protocol == PROTOCOL_PTP_MONITOR && content == EXTENSION_NONE &&
		    extension[0] == bpf_htons(MONITOR_RESPONSE))
			content = monitor_content(extension, value_len & 0x7ff, end);
	}
	return content;
}

static __always_inline int verify_delay_response(struct lane_counts *counts,
						 const struct generator_config *cfg,
						 const struct reply *reply,
						 enum extension_content content)
{
	struct ptp_delay_response *response = reply->payload;
	__u64 now_ns = bpf_ktime_get_ns();
	struct part part = { .kind = PART_DELAY };
	struct exchange *exchange;
	struct request_id id;
	bool has_number;
	__u32 lane;
	int reason;

	if ((void *)(response + 1) > reply->end)
		return unmatched(counts, INVALID_LENGTH);
	lane = bpf_ntohs(response->port) - 1;
	if (options.multicast && lane >= cfg->lanes)
		return XDP_PASS;
	reason = refuse_ptp(&response->header, cfg, content);
	if (reason >= 0)
		return invalid(counts, reason);
	if (lane >= cfg->lanes)
		return invalid(counts, INVALID_ORIGIN);
	part.ns = timestamp_ns(&response->receive);
	if (!part.ns)
		return invalid(counts, INVALID_TIMESTAMP);
	if (options.protocol == PROTOCOL_PTP_MONITOR) {
		if (content < EXTENSION_UNTRACEABLE)
			return invalid(counts, INVALID_MONITOR);
		part.untraceable = content == EXTENSION_UNTRACEABLE;
	}
	id = request_id_of(cfg, bpf_be64_to_cpu(*(__be64 *)response->clock), now_ns);
	has_number = bpf_ntohs(response->header.sequence) == (__u16)id.sequence;
	/* Another client's clock identity may resemble a token, but rarely with the same sequence
	 * ID. */
	if (id.age_ns > now_ns - cfg->run_start_ns || id.receive ||
	    (options.multicast && !has_number))
		return unmatched(counts, INVALID_ORIGIN);
	if (is_before_trial(cfg, &id, now_ns)) {
		if (!was_used_before(lane, id.sequence))
			return unmatched(counts, INVALID_ORIGIN);
		counts->late_earlier++;
		return XDP_DROP;
	}
	if (!options.multicast && !options.ethernet &&
	    reply->address != expected_address(cfg, lane, id.sequence))
		return invalid(counts, INVALID_CLIENT);
	if (!has_number)
		return invalid(counts, INVALID_SEQUENCE);
	if (!is_from_master(&response->header, lane))
		return invalid(counts, INVALID_SOURCE);
	if (options.protocol == PROTOCOL_PTP_MONITOR) {
		exchange = exchange_of(cfg, lane, id.sequence);
		if (!exchange)
			return XDP_DROP;
		return count_part(counts, cfg, lane, exchange, id.sequence, &part, now_ns);
	}
	counts = interval_counts(counts, cfg, now_ns - id.age_ns);
	if (is_received(counts, cfg, lane, &id))
		counts->delay++;
	return XDP_DROP;
}

/* Verifies a Sync, or its Follow_Up. */
static __always_inline int verify_sync(struct lane_counts *counts,
				       const struct generator_config *cfg,
				       const struct reply *reply, __u8 type,
				       enum extension_content content)
{
	struct ptp *ptp = reply->payload;
	struct ptp_timestamp *timestamp = (void *)(ptp + 1);
	__u32 client = reply->address - cfg->first_client;
	struct client_lane client_lane = client_lane_of(cfg, client);
	__u64 now_ns = bpf_ktime_get_ns();
	struct part part = { .kind = type == PTP_SYNC ? PART_SYNC : PART_FOLLOW_UP };
	struct exchange *exchange;
	__u32 *last, sequence;
	long back;
	int reason;

	if ((void *)(timestamp + 1) > reply->end)
		return invalid(counts, INVALID_LENGTH);
	reason = refuse_ptp(ptp, cfg, content);
	if (reason >= 0)
		return invalid(counts, reason);
	if (type == PTP_FOLLOW_UP || !(ptp->flags[0] & PTP_TWO_STEP)) {
		part.ns = timestamp_ns(timestamp);
		if (!part.ns)
			return invalid(counts, INVALID_TIMESTAMP);
	}
	last = bpf_map_lookup_elem(&latest, &client);
	if (!last || !*last)
		return invalid(counts, INVALID_SEQUENCE);
	sequence = *last - 1;
	back = requests_since(sequence, bpf_ntohs(ptp->sequence), client_lane.clients);
	if (back < 0 || back > sequence)
		return invalid(counts, INVALID_SEQUENCE);
	if (!is_from_master(ptp, client_lane.lane))
		return invalid(counts, INVALID_SOURCE);
	sequence -= back;
	exchange = exchange_of(cfg, client_lane.lane, sequence);
	if (!exchange)
		return XDP_DROP;
	if (exchange->intended_ns < cfg->trial_start_ns) {
		counts->late_earlier++;
		return XDP_DROP;
	}
	return count_part(counts, cfg, client_lane.lane, exchange, sequence, &part, now_ns);
}

static __always_inline int verify_ptp(struct lane_counts *counts,
				      const struct generator_config *cfg,
				      const struct reply *reply)
{
	struct ptp *ptp = reply->payload;
	__u16 payload_len = reply->udp_len - sizeof(struct udp);
	__u16 length, padding_max = options.ethernet ? ETHERNET_PADDING_MAX :
				    cfg->ipv6 ? PTP_IPV6_PADDING_LEN : 0;
	enum extension_content content;
	__u8 type;

	if (reply->udp_len < sizeof(struct udp) + sizeof(*ptp) || (void *)(ptp + 1) > reply->end)
		return unmatched(counts, INVALID_LENGTH);
	if ((ptp->version & 0xf) != PTP_VERSION)
		return unmatched(counts, INVALID_VERSION);
	length = bpf_ntohs(ptp->length);
	type = ptp->sdo_and_type & 0xf;
	if (length < ptp_len(type) || length > payload_len || payload_len - length > padding_max)
		return unmatched(counts, INVALID_LENGTH);
	content = extensions_content(ptp, ptp_len(type), length, reply->end);
	if (type == PTP_DELAY_RESPONSE)
		return verify_delay_response(counts, cfg, reply, content);
	if (options.protocol == PROTOCOL_PTP_MONITOR && (type == PTP_SYNC || type == PTP_FOLLOW_UP))
		return verify_sync(counts, cfg, reply, type, content);
	return unmatched(counts, INVALID_MODE);
}

#endif
