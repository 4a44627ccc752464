/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * PTP's part of the load generator: requests for the delay, with and without NetSync Monitor's
 * extension, and what the answers are held against, in the order of horolog_load::ptp. The token
 * stands in the identity of the clock that asks, the lane in the number of its port.
 */
#ifndef HOROLOG_GENERATOR_PTP_H
#define HOROLOG_GENERATOR_PTP_H

#include "generator.h"
#include "generator_monitor.h"

/* A request for the delay, what NetSync Monitor's has behind it, an extension without content
 * (14.1), and what every message has over IPv6 (D.5). */
#define PTP_REQUEST_LEN (sizeof(struct ptp) + sizeof(struct ptp_timestamp))
#define PTP_EXTENSION_LEN 4
#define PTP_IPV6_PADDING_LEN 2
/* What fills up the shortest frame without IP, at most. */
#define ETHERNET_PADDING_MAX 46

/* NetSync Monitor's answer: the number of its extension, what stands before and behind the address
 * in it, and where, from its end, the flags of the time are. */
#define MONITOR_RESPONSE 0x21ff
#define MONITOR_HEAD_LEN 6
#define MONITOR_FOOT_LEN 64
#define MONITOR_FLAGS_FROM_END 12
#define MONITOR_TRACEABLE 0x30
/* More extensions are not looked through. */
#define EXTENSIONS_MAX 8

/* What the extensions of a message say. */
enum told {
	TOLD_NOTHING,		/* nothing that was asked for */
	TOLD_MALFORMED,		/* they do not end where the message does */
	TOLD_NONSENSE,		/* the first of NetSync Monitor is none */
	TOLD_UNTRACEABLE,	/* the master's time can be traced to nothing ... */
	TOLD_TRACEABLE,		/* ... or to a reference */
};

/* The port that answers each lane: the one whose answer was the first that is right. */
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

static __always_inline int ask_ptp(struct ethernet *ethernet, void *end, __u32 ip_len,
				   __u32 extension_len, const struct generator_config *cfg,
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

/* In a group everybody's messages are seen, and what cannot be told from others' is not judged. */
static __always_inline int strange(struct tally *tally, enum invalid_reason reason)
{
	return asked.multicast ? XDP_PASS : invalid(tally, reason);
}

/* Length of a message of this type without what may follow it. */
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

/* Nanoseconds since the epoch; 0 where the timestamp is none, or lies behind the year 2262. */
static __always_inline __u64 instant(const struct ptp_timestamp *timestamp)
{
	__u64 seconds = (__u64)bpf_ntohs(timestamp->seconds[0]) << 32 |
			bpf_ntohl(*(__be32 *)&timestamp->seconds[1]);
	__u32 nanoseconds = bpf_ntohl(*(__be32 *)timestamp->nanoseconds);
	__u64 ns = seconds * 1000000000 + nanoseconds;

	if (nanoseconds >= 1000000000 || seconds > (1ULL << 63) / 1000000000 || ns >> 63)
		return 0;
	return ns;
}

/* Checks what all answers have to have. Returns a reason to refuse it, or -1. */
static __always_inline int refuse_ptp(const struct ptp *ptp, const struct generator_config *cfg,
				      enum told told)
{
	if (ptp->domain != cfg->domain || ptp->sdo_and_type >> 4 || ptp->minor_sdo)
		return INVALID_DOMAIN;
	if (!(ptp->flags[0] & PTP_UNICAST) != asked.multicast)
		return INVALID_FLAGS;
	return told == TOLD_MALFORMED ? INVALID_LENGTH : -1;
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

/* What NetSync Monitor's extension, whose value has this length, says of the time. */
static __always_inline enum told monitor(__be16 *extension, __u32 value_len, void *end)
{
	__u8 *flags = (__u8 *)extension + PTP_EXTENSION_LEN + value_len - MONITOR_FLAGS_FROM_END;

	if (value_len < MONITOR_HEAD_LEN + MONITOR_FOOT_LEN || (void *)(extension + 5) > end ||
	    value_len != MONITOR_HEAD_LEN + bpf_ntohs(extension[4]) + MONITOR_FOOT_LEN ||
	    (void *)(flags + 1) > end)
		return TOLD_NONSENSE;
	return *flags & MONITOR_TRACEABLE ? TOLD_TRACEABLE : TOLD_UNTRACEABLE;
}

/* What the extensions say that a message of `length` bytes has from `at` on. */
static __always_inline enum told extensions(void *message, __u32 at, __u32 length, void *end)
{
	enum told told = TOLD_NOTHING;
	__be16 *extension;
	__u32 value_len, i;

	for (i = 0; i < EXTENSIONS_MAX; i++) {
		if (at == length)
			return told;
		at &= 0x7ff;
		extension = message + at;
		if (at + PTP_EXTENSION_LEN > length || (void *)(extension + 2) > end)
			return TOLD_MALFORMED;
		value_len = bpf_ntohs(extension[1]);
		at += PTP_EXTENSION_LEN + value_len;
		if (at > length || value_len & 1)
			return TOLD_MALFORMED;
		if (asked.protocol == PROTOCOL_PTP_MONITOR && told == TOLD_NOTHING &&
		    extension[0] == bpf_htons(MONITOR_RESPONSE))
			told = monitor(extension, value_len & 0x7ff, end);
	}
	return told;
}

static __always_inline int judge_delay(struct tally *tally, const struct generator_config *cfg,
				       const struct reply *reply, enum told told)
{
	struct ptp_delay_response *response = reply->payload;
	__u64 now_ns = bpf_ktime_get_ns();
	struct part part = { .kind = PART_DELAY };
	struct exchange *exchange;
	struct question question;
	bool has_number;
	__u32 lane;
	int reason;

	if ((void *)(response + 1) > reply->end)
		return strange(tally, INVALID_LENGTH);
	lane = bpf_ntohs(response->port) - 1;
	if (asked.multicast && lane >= cfg->lanes)
		return XDP_PASS;
	reason = refuse_ptp(&response->header, cfg, told);
	if (reason >= 0)
		return invalid(tally, reason);
	if (lane >= cfg->lanes)
		return invalid(tally, INVALID_ORIGIN);
	part.ns = instant(&response->receive);
	if (!part.ns)
		return invalid(tally, INVALID_TIMESTAMP);
	if (asked.protocol == PROTOCOL_PTP_MONITOR) {
		if (told < TOLD_UNTRACEABLE)
			return invalid(tally, INVALID_MONITOR);
		part.untraceable = told == TOLD_UNTRACEABLE;
	}
	question = question_of(cfg, bpf_be64_to_cpu(*(__be64 *)response->clock), now_ns);
	has_number = bpf_ntohs(response->header.sequence) == (__u16)question.sequence;
	/* Another one's clock may look like a token, but hardly with the same number. */
	if (question.age_ns > now_ns - cfg->run_start_ns || question.receive ||
	    (asked.multicast && !has_number))
		return strange(tally, INVALID_ORIGIN);
	if (is_before_trial(cfg, &question, now_ns)) {
		if (!was_asked_before(lane, question.sequence))
			return strange(tally, INVALID_ORIGIN);
		tally->late_earlier++;
		return XDP_DROP;
	}
	if (!asked.multicast && !asked.ethernet &&
	    reply->address != expected_address(cfg, lane, question.sequence))
		return invalid(tally, INVALID_CLIENT);
	if (!has_number)
		return invalid(tally, INVALID_SEQUENCE);
	if (!is_from_master(&response->header, lane))
		return invalid(tally, INVALID_SOURCE);
	if (asked.protocol == PROTOCOL_PTP_MONITOR) {
		exchange = exchange_of(cfg, lane, question.sequence);
		if (!exchange)
			return XDP_DROP;
		return take_part(tally, cfg, lane, exchange, question.sequence, &part, now_ns);
	}
	tally = book_of(tally, cfg, now_ns - question.age_ns);
	if (is_received(tally, cfg, lane, &question))
		tally->delay++;
	return XDP_DROP;
}

/* A Sync, or what follows it. */
static __always_inline int judge_sync(struct tally *tally, const struct generator_config *cfg,
				      const struct reply *reply, __u8 type, enum told told)
{
	struct ptp *ptp = reply->payload;
	struct ptp_timestamp *timestamp = (void *)(ptp + 1);
	__u32 client = reply->address - cfg->first_client;
	struct player player = player_of(cfg, client);
	__u64 now_ns = bpf_ktime_get_ns();
	struct part part = { .kind = type == PTP_SYNC ? PART_SYNC : PART_FOLLOW_UP };
	struct exchange *exchange;
	__u32 *last, sequence;
	long back;
	int reason;

	if ((void *)(timestamp + 1) > reply->end)
		return invalid(tally, INVALID_LENGTH);
	reason = refuse_ptp(ptp, cfg, told);
	if (reason >= 0)
		return invalid(tally, reason);
	if (type == PTP_FOLLOW_UP || !(ptp->flags[0] & PTP_TWO_STEP)) {
		part.ns = instant(timestamp);
		if (!part.ns)
			return invalid(tally, INVALID_TIMESTAMP);
	}
	last = bpf_map_lookup_elem(&latest, &client);
	if (!last || !*last)
		return invalid(tally, INVALID_SEQUENCE);
	sequence = *last - 1;
	back = back_to(sequence, bpf_ntohs(ptp->sequence), player.clients);
	if (back < 0 || back > sequence)
		return invalid(tally, INVALID_SEQUENCE);
	if (!is_from_master(ptp, player.lane))
		return invalid(tally, INVALID_SOURCE);
	sequence -= back;
	exchange = exchange_of(cfg, player.lane, sequence);
	if (!exchange)
		return XDP_DROP;
	if (exchange->intended_ns < cfg->trial_start_ns) {
		tally->late_earlier++;
		return XDP_DROP;
	}
	return take_part(tally, cfg, player.lane, exchange, sequence, &part, now_ns);
}

static __always_inline int judge_ptp(struct tally *tally, const struct generator_config *cfg,
				     const struct reply *reply)
{
	struct ptp *ptp = reply->payload;
	__u16 payload_len = reply->udp_len - sizeof(struct udp);
	__u16 length, padding_max = asked.ethernet ? ETHERNET_PADDING_MAX :
				    cfg->ipv6 ? PTP_IPV6_PADDING_LEN : 0;
	enum told told;
	__u8 type;

	if (reply->udp_len < sizeof(struct udp) + sizeof(*ptp) || (void *)(ptp + 1) > reply->end)
		return strange(tally, INVALID_LENGTH);
	if ((ptp->version & 0xf) != PTP_VERSION)
		return strange(tally, INVALID_VERSION);
	length = bpf_ntohs(ptp->length);
	type = ptp->sdo_and_type & 0xf;
	if (length < ptp_len(type) || length > payload_len || payload_len - length > padding_max)
		return strange(tally, INVALID_LENGTH);
	told = extensions(ptp, ptp_len(type), length, reply->end);
	if (type == PTP_DELAY_RESPONSE)
		return judge_delay(tally, cfg, reply, told);
	if (asked.protocol == PROTOCOL_PTP_MONITOR && (type == PTP_SYNC || type == PTP_FOLLOW_UP))
		return judge_sync(tally, cfg, reply, type, told);
	return strange(tally, INVALID_MODE);
}

#endif
