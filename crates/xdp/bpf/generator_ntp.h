/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * NTP's part of the load generator: requests in basic and interleaved mode, and what their replies
 * are held against. The token stands in the transmit timestamp.
 */
#ifndef HOROLOG_GENERATOR_NTP_H
#define HOROLOG_GENERATOR_NTP_H

#include "generator.h"
#include "generator_offset.h"

/* For each client the receive timestamp, in host order, of the last reply that it got, which its
 * next request in interleaved mode refers to. The verifying side writes it and the sending side
 * reads it, perhaps on another processor: either sees a whole word, and an old one is no error. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} origins SEC(".maps");

/* What a client was last answered; NULL in basic mode. */
static __always_inline __u64 *origin_of(const struct generator_config *cfg, __u32 address)
{
	__u32 client = address - cfg->first_client;

	return cfg->interleaved ? bpf_map_lookup_elem(&origins, &client) : NULL;
}

/* Writes the timestamps and returns the sum of their words. */
static __always_inline __u64 stamp(struct ntp *ntp, const struct generator_config *cfg,
				   const struct request *request)
{
	__be64 transmit = bpf_cpu_to_be64(request->token), receive, origin = 0;
	__u64 *last;

	ntp->transmit = transmit;
	if (!cfg->interleaved)
		return sum64(transmit);
	last = origin_of(cfg, request->address);
	if (last)
		origin = bpf_cpu_to_be64(*last);
	/* A first request is a basic one (RFC 9769, section 2). */
	if (!origin)
		return sum64(transmit);
	receive = bpf_cpu_to_be64(request->token ^ TOKEN_RECEIVE);
	ntp->origin = origin;
	ntp->receive = receive;
	return sum64(origin) + sum64(receive) + sum64(transmit);
}

static __always_inline int ask_ntp(struct ethernet *ethernet, void *end, __u32 ip_len,
				   const struct generator_config *cfg,
				   const struct request *request)
{
	struct udp *udp = (void *)(ethernet + 1) + ip_len;
	struct ntp *ntp = (void *)(udp + 1);
	__be16 port = bpf_htons(LANE_PORT_BASE + request->lane);

	if ((void *)(ntp + 1) > end)
		return -1;
	copy_request((void *)ethernet, cfg->request,
		     sizeof(*ethernet) + ip_len + sizeof(*udp) + sizeof(*ntp));
	udp->source = port;
	complete(ethernet, ip_len, cfg, request->address, port + stamp(ntp, cfg, request));
	return 0;
}

/* Units of 2^-32 s, less than 2^63, to the nearest ns. */
static __always_inline __u64 units_to_ns(__u64 units)
{
	return (units >> 32) * 1000000000 +
	       (((units & 0xffffffff) * 1000000000 + (1ULL << 31)) >> 32);
}

/* Checks what only a time server's reply has. Returns a reason to refuse it, or -1. */
static __always_inline int refuse_ntp(const struct ntp *ntp, bool interleaved)
{
	__u8 leap = ntp->leap_version_mode >> 6;
	__u64 receive = bpf_be64_to_cpu(ntp->receive);
	__u64 transmit = bpf_be64_to_cpu(ntp->transmit);

	if (ntp->stratum == 0 || ntp->stratum > 16)
		return INVALID_STRATUM;
	if ((leap == 3) != (ntp->stratum == 16))
		return INVALID_LEAP;
	if (!transmit)
		return INVALID_TIMESTAMP;
	if (interleaved) /* the transmit timestamp is that of an earlier reply, however long ago */
		return (__s64)(receive - transmit) < 0 ? INVALID_TIMESTAMP : -1;
	if ((__s64)(transmit - receive) < 0 || units_to_ns(transmit - receive) > HISTOGRAM_MAX)
		return INVALID_TIMESTAMP;
	return -1;
}

/* An interleaved reply tells when the one before left. When that one's request came is known,
 * unless the client has none, or its replies overtook each other.
 */
static __always_inline void record_earlier_response(struct tally *tally, __u64 receive,
						    __u64 transmit)
{
	__u64 units = transmit - receive;

	if (receive && transmit && (__s64)units >= 0 && units_to_ns(units) <= HISTOGRAM_MAX)
		record(&tally->response_ns, units_to_ns(units));
}

static __always_inline int judge_ntp(struct tally *tally, const struct generator_config *cfg,
				     const struct reply *reply)
{
	const struct ntp *ntp = reply->payload;
	__u64 now_ns = bpf_ktime_get_ns();
	__u32 lane = reply->port - LANE_PORT_BASE;
	__u64 response_ns = 0, *origin;
	struct question question;
	int reason;

	if ((void *)(ntp + 1) > reply->end || reply->udp_len != UDP_NTP_LEN)
		return invalid(tally, INVALID_LENGTH);
	if ((ntp->leap_version_mode & 7) != (cfg->echo ? 3 : 4))
		return invalid(tally, INVALID_MODE);
	if (((ntp->leap_version_mode >> 3) & 7) != cfg->version)
		return invalid(tally, INVALID_VERSION);
	question = question_of(cfg, bpf_be64_to_cpu(cfg->echo ? ntp->transmit : ntp->origin),
			       now_ns);
	if (question.age_ns > now_ns - cfg->run_start_ns ||
	    (question.receive && !cfg->interleaved))
		return invalid(tally, INVALID_ORIGIN);
	if (is_before_trial(cfg, &question, now_ns)) {
		if (!was_asked_before(lane, question.sequence))
			return invalid(tally, INVALID_ORIGIN);
		tally->late_earlier++;
		return XDP_DROP;
	}
	if (lane >= cfg->lanes || reply->address != expected_address(cfg, lane, question.sequence))
		return invalid(tally, INVALID_CLIENT);
	if (!cfg->echo) {
		reason = refuse_ntp(ntp, question.receive);
		if (reason >= 0)
			return invalid(tally, reason);
		if (!question.receive)
			response_ns = units_to_ns(bpf_be64_to_cpu(ntp->transmit) -
						  bpf_be64_to_cpu(ntp->receive));
	}
	tally = book_of(tally, cfg, now_ns - question.age_ns);
	if (!is_received(tally, cfg, lane, &question))
		return XDP_DROP;
	if (ntp->stratum == 16)
		tally->unsynchronised++;
	origin = origin_of(cfg, reply->address);
	if (asked.offsets)
		take_offset_ntp(cfg, reply->address - cfg->first_client, ntp, &question,
				origin ? *origin : 0, now_ns);
	if (question.receive) {
		tally->interleaved++;
		if (origin)
			record_earlier_response(tally, *origin, bpf_be64_to_cpu(ntp->transmit));
	} else {
		record(&tally->response_ns, response_ns);
	}
	if (origin)
		*origin = bpf_be64_to_cpu(ntp->receive);
	return XDP_DROP;
}

#endif
