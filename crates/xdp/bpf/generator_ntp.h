/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * NTP part of the load generator: requests in basic and interleaved mode, and the verification of
 * their replies. The token is in the transmit timestamp.
 */
#ifndef HOROLOG_GENERATOR_NTP_H
#define HOROLOG_GENERATOR_NTP_H

#include "generator.h"
#include "generator_offset.h"

/* For each client the receive timestamp, in host order, of its last reply, which its next request
 * in interleaved mode refers to. The verifying side writes it and the sending side reads it,
 * perhaps on another CPU: either accesses a whole word, and an old one is no error. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} origins SEC(".maps");

/* Returns the origin of a client's last reply; NULL in basic mode. */
static __always_inline __u64 *origin_of(const struct generator_config *cfg, __u32 address)
{
	__u32 client = address - cfg->first_client;

	return cfg->interleaved ? bpf_map_lookup_elem(&origins, &client) : NULL;
}

/* Writes the timestamps and returns the sum of their words. */
static __always_inline __u64 write_timestamps(struct ntp *ntp, const struct generator_config *cfg,
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

static __always_inline int build_ntp_request(struct ethernet *ethernet, void *end, __u32 ip_len,
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
	complete(ethernet, ip_len, cfg, request->address,
		 port + write_timestamps(ntp, cfg, request));
	return 0;
}

/* Converts units of 2^-32 s, less than 2^63, to the nearest ns. */
static __always_inline __u64 units_to_ns(__u64 units)
{
	return (units >> 32) * 1000000000 +
	       (((units & 0xffffffff) * 1000000000 + (1ULL << 31)) >> 32);
}

/* Four characters of a reference identifier, in host order. */
#define KISS(a, b, c, d) ((__u32)(a) << 24 | (b) << 16 | (c) << 8 | (d))

/* Returns the reason to refuse a kiss-o'-death, or -1 for any other reply of stratum 0; the codes
 * of horolog_wire::ntp. */
static __always_inline int refuse_kiss(const struct ntp *ntp)
{
	switch (bpf_ntohl(ntp->reference_id)) {
	case KISS('R', 'A', 'T', 'E'):
		return INVALID_KISS_RATE;
	case KISS('D', 'E', 'N', 'Y'):
		return INVALID_KISS_DENY;
	case KISS('R', 'S', 'T', 'R'):
		return INVALID_KISS_RSTR;
	case KISS('A', 'C', 'S', 'T'):
	case KISS('A', 'U', 'T', 'H'):
	case KISS('A', 'U', 'T', 'O'):
	case KISS('B', 'C', 'S', 'T'):
	case KISS('C', 'R', 'Y', 'P'):
	case KISS('D', 'R', 'O', 'P'):
	case KISS('M', 'C', 'S', 'T'):
	case KISS('N', 'K', 'E', 'Y'):
	case KISS('N', 'T', 'S', 'N'):
	case KISS('R', 'M', 'O', 'T'):
		return INVALID_KISS_OTHER;
	}
	return -1;
}

/* Returns true if the server reports itself as unsynchronised. */
static __always_inline bool is_unsynchronised(const struct ntp *ntp)
{
	return ntp->stratum == 0 || ntp->stratum == 16 || ntp->leap_version_mode >> 6 == 3;
}

/* Returns true if a reply has the server's timestamps: one that is not synchronised may have none.
 */
static __always_inline bool has_times(const struct ntp *ntp)
{
	return !is_unsynchronised(ntp) || (ntp->receive && ntp->transmit);
}

/* Checks the fields specific to a time server's reply. Returns a reason to refuse it, or -1. */
static __always_inline int refuse_ntp(const struct ntp *ntp, bool interleaved)
{
	__u64 receive = bpf_be64_to_cpu(ntp->receive);
	__u64 transmit = bpf_be64_to_cpu(ntp->transmit);
	int reason = ntp->stratum == 0 ? refuse_kiss(ntp) : -1;

	if (reason >= 0)
		return reason;
	if (ntp->stratum > 16 && !is_unsynchronised(ntp))
		return INVALID_STRATUM;
	if (!has_times(ntp))
		return -1;
	if (!transmit)
		return INVALID_TIMESTAMP;
	if (interleaved) /* the transmit timestamp is that of an earlier reply, however long ago */
		return (__s64)(receive - transmit) < 0 ? INVALID_TIMESTAMP : -1;
	if ((__s64)(transmit - receive) < 0 || units_to_ns(transmit - receive) > HISTOGRAM_MAX)
		return INVALID_TIMESTAMP;
	return -1;
}

/* An interleaved reply carries the transmit time of the one before. The receive time of that one's
 * request is known, unless the client has none, or its replies overtook each other.
 */
static __always_inline void record_earlier_response(struct lane_counts *counts, __u64 receive,
						    __u64 transmit)
{
	__u64 units = transmit - receive;

	if (receive && transmit && (__s64)units >= 0 && units_to_ns(units) <= HISTOGRAM_MAX)
		record(&counts->response_ns, units_to_ns(units));
}

static __always_inline int verify_ntp(struct lane_counts *counts,
				      const struct generator_config *cfg,
				      const struct reply *reply)
{
	const struct ntp *ntp = reply->payload;
	__u64 now_ns = bpf_ktime_get_ns();
	__u32 lane = reply->port - LANE_PORT_BASE;
	__u64 response_ns = 0, *origin;
	struct request_id id;
	int reason;

	if ((void *)(ntp + 1) > reply->end || reply->udp_len != UDP_NTP_LEN)
		return invalid(counts, INVALID_LENGTH);
	if ((ntp->leap_version_mode & 7) != (cfg->echo ? 3 : 4))
		return invalid(counts, INVALID_MODE);
	if (((ntp->leap_version_mode >> 3) & 7) != cfg->version)
		return invalid(counts, INVALID_VERSION);
	id = request_id_of(cfg, bpf_be64_to_cpu(cfg->echo ? ntp->transmit : ntp->origin),
			   now_ns);
	if (id.age_ns > now_ns - cfg->run_start_ns ||
	    (id.receive && !cfg->interleaved))
		return invalid(counts, INVALID_ORIGIN);
	if (is_before_trial(cfg, &id, now_ns)) {
		if (!was_used_before(lane, id.sequence))
			return invalid(counts, INVALID_ORIGIN);
		counts->late_earlier++;
		return XDP_DROP;
	}
	if (lane >= cfg->lanes || reply->address != expected_address(cfg, lane, id.sequence))
		return invalid(counts, INVALID_CLIENT);
	if (!cfg->echo) {
		reason = refuse_ntp(ntp, id.receive);
		if (reason >= 0)
			return invalid(counts, reason);
		if (!id.receive && has_times(ntp))
			response_ns = units_to_ns(bpf_be64_to_cpu(ntp->transmit) -
						  bpf_be64_to_cpu(ntp->receive));
	}
	counts = interval_counts(counts, cfg, now_ns - id.age_ns);
	if (!is_received(counts, cfg, lane, &id))
		return XDP_DROP;
	if (!cfg->echo && is_unsynchronised(ntp))
		counts->unsynchronised++;
	origin = origin_of(cfg, reply->address);
	if (options.offsets)
		measure_offset_ntp(cfg, reply->address - cfg->first_client, ntp, &id,
				   origin ? *origin : 0, now_ns, has_times(ntp));
	if (id.receive) {
		counts->interleaved++;
		if (origin)
			record_earlier_response(counts, *origin, bpf_be64_to_cpu(ntp->transmit));
	} else if (cfg->echo || has_times(ntp)) {
		record(&counts->response_ns, response_ns);
	}
	if (origin)
		*origin = bpf_be64_to_cpu(ntp->receive);
	return XDP_DROP;
}

#endif
