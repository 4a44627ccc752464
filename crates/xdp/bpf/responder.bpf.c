// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * XDP engine of the server: answers NTP client requests of basic and interleaved mode on ingress.
 *
 * It implements exactly the subset that horolog_server::decide_frame describes, and a test drives
 * both over the same frames. Requests outside the subset are passed to the network stack, where the
 * socket engine decides, or, if they are longer than a header, redirected to an AF_XDP socket of
 * that engine; nothing is guessed, and nothing is dropped except what limits and lists refuse. Time
 * comes from a clock page; after its expiry nothing is answered.
 */
#include "net.h"
#include "checksum.h"
#include "grandmaster.h"
#include "interleaved.h"
#include "limits.h"
#include "listening.h"
#include "monitor.h"
#include "reply.h"

#define FLAGS_OR_OFFSET 0x3fff	/* more-fragments bit and fragment offset */
#define DONT_FRAGMENT 0x4000

/* Programs that answer PTP: by transmission, by redirect, and for NetSync Monitor; empty without
 * PTP. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 3);
	__type(key, __u32);
	__type(value, __u32);
} masters SEC(".maps");

/* AF_XDP sockets of all interfaces, those of each interface contiguous, by receive queue ... */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} queues SEC(".maps");

/* ... and the row of each interface in it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct queue_row);
} queue_rows SEC(".maps");

/* Verdict in addition to the kernel's: redirect the request to an AF_XDP socket. */
#define REDIRECT_TO_XSK 64

/* A request that passed classification: the input of the reply. */
struct request {
	const struct station *station; /* destination MAC address */
	__u8 destination_mac[6];
	__u8 source_mac[6];
	struct vlan tag;
	__be16 outer_type;	/* EtherType of the frame, 0x8100 if it is tagged */
	__u32 link_len;
	__be16 source_port;
	__be16 destination_port;
	bool pass_interleaved;	/* the sockets answer requests that may be in interleaved mode */
};

static __always_inline bool is_client_request(const struct ntp *ntp)
{
	__u8 version = (ntp->leap_version_mode >> 3) & 7;
	__u8 mode = ntp->leap_version_mode & 7;

	return (mode == MODE_CLIENT || mode == MODE_SYMMETRIC_ACTIVE) && version >= 1 &&
	       version <= 4;
}

/*
 * Checks the client and, if it is to get a reply, writes one into `ntp`. Returns the verdict for
 * the frame: XDP_TX with the sum of the reply's words in `sum`, XDP_DROP, XDP_PASS or
 * REDIRECT_TO_XSK.
 */
static __always_inline int serve(struct responder_state *own, const struct clock_page *page,
				 const struct request *request, const struct client *client,
				 struct ntp *ntp, __u64 *sum)
{
	__u64 now_ns = bpf_ktime_get_ns();
	enum admission admission = ADMIT;
	__be64 origin, receive;
	bool interleaved, symmetric;

	if (config.limits) {
		admission = admit_client(client, now_ns);
		own->last_checked_ns = now_ns;
		if (admission >= ADMIT) {
			own->admitted++;
		} else {
			own->refused[admission]++;
			if (admission < KISS_RATE)
				return XDP_DROP;
		}
	}
	if (client->is_long)
		return REDIRECT_TO_XSK;
	interleaved = (config.interleaved || request->pass_interleaved) &&
		      admission == ADMIT && may_be_interleaved(ntp);
	if (interleaved && request->pass_interleaved)
		return pass(own, PASSED_INTERLEAVED);
	origin = ntp->origin;
	receive = ntp->receive;
	symmetric = is_symmetric(ntp);
	*sum = write_reply(ntp, own, page, now_ns);
	if (!*sum)
		return pass(own, PASSED_NO_CLOCK);
	if (interleaved)
		*sum = interleave(own, ntp, client, origin, receive, *sum);
	if (config.limits && admission != ADMIT)
		*sum = write_kiss(ntp, admission);
	if (symmetric)
		own->answered_symmetric++;
	return XDP_TX;
}

static __always_inline void swap_link(void *data, const struct request *request)
{
	struct ethernet *ethernet = data;

	__builtin_memcpy(ethernet->destination, request->source_mac, 6);
	__builtin_memcpy(ethernet->source, request->destination_mac, 6);
	ethernet->type = request->outer_type;
	if (request->link_len != sizeof(*ethernet))
		*(struct vlan *)(ethernet + 1) = request->tag;
}

/* Writes the UDP header of the reply; `sum` is that of the pseudo-header's addresses and the
 * payload. */
static __always_inline void write_reply_udp(struct udp *udp, const struct request *request,
					    __u64 sum)
{
	sum += bpf_htons(PROTOCOL_UDP);
	sum += bpf_htons(UDP_NTP_LEN);	/* in the pseudo-header ... */
	sum += bpf_htons(UDP_NTP_LEN);	/* ... and in the header */
	sum += request->source_port;
	sum += request->destination_port;
	udp->source = request->destination_port;
	udp->destination = request->source_port;
	udp->length = bpf_htons(UDP_NTP_LEN);
	udp->checksum = udp_fold(sum);
}

/* Returns true if requests longer than a header are processed: rate-limited, or redirected. */
static __always_inline bool handles_long_requests(void)
{
	return config.limits || config.redirect_long;
}

/* Checks the fields common to both families. Returns a reason to pass the request to the stack, or
 * -1. */
static __always_inline int reason_to_pass(const struct udp *udp, const struct ntp *ntp)
{
	if (udp->length != bpf_htons(UDP_NTP_LEN) &&
	    (!handles_long_requests() || bpf_ntohs(udp->length) < UDP_NTP_LEN))
		return PASSED_LENGTH;
	if (udp->source == 0)
		return PASSED_ADDRESS;
	if (!is_client_request(ntp))
		return PASSED_REQUEST;
	return -1;
}

/*
 * Returns true if the datagram fills the rest of the frame; its NTP header was verified to be
 * there. A further buffer of the frame is not checked for, which would cost every request a call:
 * drivers fill the first one, which is longer than any request that is answered here.
 */
static __always_inline bool ends_with(const struct udp *udp, const void *end)
{
	if (!handles_long_requests())
		return (void *)udp + UDP_NTP_LEN == end;
	return end - (void *)udp == bpf_ntohs(udp->length);
}

/* Returns true if the UDP checksum of a request is valid; `addresses` is their sum. */
static __always_inline bool has_valid_udp_checksum(struct xdp_md *ctx, const struct udp *udp,
						   __u64 addresses)
{
	__u32 offset = (void *)(udp + 1) - (void *)(long)ctx->data;

	if (!handles_long_requests() || udp->length == bpf_htons(UDP_NTP_LEN))
		return has_valid_checksum(udp, addresses, sum_words(udp + 1, NTP_LEN));
	return has_valid_checksum(udp, addresses,
				  payload_sum(ctx, offset, bpf_ntohs(udp->length) - sizeof(*udp)));
}

static __always_inline int respond_ipv4(struct xdp_md *ctx, struct responder_state *own,
					const struct clock_page *page, struct request *request)
{
	void *end = (void *)(long)ctx->data_end;
	void *data = (void *)(long)ctx->data;
	struct ipv4 *ip = data + request->link_len;
	__u32 header_len, options_len, i;
	struct client client;
	__be32 source, destination;
	struct udp *udp;
	struct ntp *ntp;
	__u64 sum = 0;
	int reason, verdict;

	if ((void *)(ip + 1) > end)
		return pass(own, PASSED_MALFORMED);
	if (ip->protocol != PROTOCOL_UDP)
		return pass(own, PASSED_NOT_NTP);
	header_len = (ip->version_and_length & 0xf) * 4;
	if (ip->version_and_length >> 4 != 4 || header_len < sizeof(*ip))
		return pass(own, PASSED_MALFORMED);
	if (ip->flags_and_offset & bpf_htons(FLAGS_OR_OFFSET))
		return pass(own, PASSED_FRAGMENT);
	udp = (void *)ip + header_len;
	ntp = (void *)(udp + 1);
	if ((void *)(udp + 1) > end)
		return pass(own, PASSED_MALFORMED);

	source = ip->source;
	destination = ip->destination;
	if (!is_listening(own, page, &destination, false, udp->destination))
		return pass(own, PASSED_NOT_NTP);
	if (!is_own_station(own, page, request->station))
		return pass(own, PASSED_ADDRESS);
	if ((void *)(ntp + 1) > end)
		return pass(own, PASSED_LENGTH);
	reason = reason_to_pass(udp, ntp);
	if (reason >= 0)
		return pass(own, reason);
	if (!ends_with(udp, end) ||
	    bpf_ntohs(ip->total_length) != header_len + bpf_ntohs(udp->length))
		return pass(own, PASSED_MALFORMED);
	for (i = 0; i < sizeof(*ip) / 4; i++)
		sum += ((__u32 *)ip)[i];
	options_len = header_len - sizeof(*ip);
	if (options_len) {
		__u32 *word = (void *)(ip + 1), *next;

		for (i = 0; i < 10; i++) {
			if (i * 4 >= options_len)
				break;
			next = word + 1;
			/* Without this the compiler compares `word` with `end - 1`, which the
			 * verifier refuses. */
			barrier_var(next);
			if ((void *)next > end)
				return pass(own, PASSED_MALFORMED);
			sum += *word;
			word = next;
		}
	}
	if (fold(sum))
		return pass(own, PASSED_MALFORMED);
	if (!is_answerable_ipv4(source, destination))
		return pass(own, PASSED_ADDRESS);
	if (!has_valid_udp_checksum(ctx, udp, (__u64)source + destination))
		return pass(own, PASSED_MALFORMED);

	request->source_port = udp->source;
	request->destination_port = udp->destination;
	client.ipv6 = false;
	client.high = 0;
	client.low = MAPPED | source;
	client.is_long = udp->length != bpf_htons(UDP_NTP_LEN);
	verdict = serve(own, page, request, &client, ntp, &sum);
	if (verdict != XDP_TX)
		return verdict;

	/* The reply has no options: the frame starts where 20 bytes of header fit before UDP. */
	if (options_len) {
		if (bpf_xdp_adjust_head(ctx, options_len))
			return XDP_ABORTED;
		data = (void *)(long)ctx->data;
		end = (void *)(long)ctx->data_end;
		ip = data + request->link_len;
		udp = (void *)(ip + 1);
		if ((void *)(udp + 1) > end)
			return XDP_ABORTED;
	}
	write_reply_udp(udp, request, sum + source + destination);
	ip->version_and_length = 0x45;
	ip->traffic_class = 0;
	ip->total_length = bpf_htons(sizeof(*ip) + UDP_NTP_LEN);
	ip->identification = 0;
	ip->flags_and_offset = bpf_htons(DONT_FRAGMENT);
	ip->time_to_live = 64;
	ip->protocol = PROTOCOL_UDP;
	ip->source = destination;
	ip->destination = source;
	sum = bpf_htons(0x4500);
	sum += bpf_htons(sizeof(*ip) + UDP_NTP_LEN);
	sum += bpf_htons(DONT_FRAGMENT);
	sum += bpf_htons(64 << 8 | PROTOCOL_UDP);
	ip->checksum = fold(sum + source + destination);
	swap_link(data, request);
	own->answered_ipv4++;
	return XDP_TX;
}

static __always_inline int respond_ipv6(struct xdp_md *ctx, struct responder_state *own,
					const struct clock_page *page, struct request *request)
{
	void *end = (void *)(long)ctx->data_end;
	void *data = (void *)(long)ctx->data;
	struct ipv6 *ip = data + request->link_len;
	struct udp *udp = (void *)(ip + 1);
	struct ntp *ntp = (void *)(udp + 1);
	struct client client;
	__be32 source[4], destination[4];
	__u64 sum, addresses;
	int reason, verdict;

	if ((void *)(ip + 1) > end)
		return pass(own, PASSED_MALFORMED);
	if (ip->next_header != PROTOCOL_UDP)
		return pass(own, PASSED_NOT_NTP);
	if (bpf_ntohl(ip->version_class_flow) >> 28 != 6)
		return pass(own, PASSED_MALFORMED);
	if ((void *)(udp + 1) > end)
		return pass(own, PASSED_MALFORMED);

	__builtin_memcpy(source, ip->source, 16);
	__builtin_memcpy(destination, ip->destination, 16);
	if (!is_listening(own, page, destination, true, udp->destination))
		return pass(own, PASSED_NOT_NTP);
	if (!is_own_station(own, page, request->station))
		return pass(own, PASSED_ADDRESS);
	if ((void *)(ntp + 1) > end)
		return pass(own, PASSED_LENGTH);
	reason = reason_to_pass(udp, ntp);
	if (reason >= 0)
		return pass(own, reason);
	/* Over IPv6 every datagram has a checksum (RFC 8200, section 8.1). */
	if (!ends_with(udp, end) || ip->payload_length != udp->length || !udp->checksum)
		return pass(own, PASSED_MALFORMED);
	if (!is_answerable_ipv6(ip))
		return pass(own, PASSED_ADDRESS);
	addresses = address_sum(source) + address_sum(destination);
	if (!has_valid_udp_checksum(ctx, udp, addresses))
		return pass(own, PASSED_MALFORMED);

	request->source_port = udp->source;
	request->destination_port = udp->destination;
	client.ipv6 = true;
	__builtin_memcpy(&client.high, &source[0], 8);
	__builtin_memcpy(&client.low, &source[2], 8);
	client.is_long = udp->length != bpf_htons(UDP_NTP_LEN);
	verdict = serve(own, page, request, &client, ntp, &sum);
	if (verdict != XDP_TX)
		return verdict;
	write_reply_udp(udp, request, sum + addresses);
	ip->version_class_flow = bpf_htonl(6 << 28);
	ip->payload_length = bpf_htons(UDP_NTP_LEN);
	ip->next_header = PROTOCOL_UDP;
	ip->hop_limit = 64;
	__builtin_memcpy(ip->source, destination, 16);
	__builtin_memcpy(ip->destination, source, 16);
	swap_link(data, request);
	own->answered_ipv6++;
	return XDP_TX;
}

/*
 * Redirects the request to the AF_XDP socket of its receive queue, with the monotonic instant
 * before it; without a socket, or if that is impossible, it is passed.
 */
static __always_inline int redirect_to_xsk(struct xdp_md *ctx, struct responder_state *own)
{
	__u32 interface = ctx->ingress_ifindex;
	const struct queue_row *row;
	__u64 *received_ns;

	/* The kernel drops frames that do not fit into the socket's buffer. */
	if (!is_linear(ctx) || ctx->data_end - ctx->data > XSK_FRAME_MAX)
		return pass(own, PASSED_LENGTH);
	/* The socket's reader serves UTC. */
	if (!config.redirect_long || own->known_timeline != TIMELINE_STEPPED)
		return pass(own, PASSED_LENGTH);
	row = bpf_map_lookup_elem(&queue_rows, &interface);
	/* Queues may have been added since. */
	if (!row || ctx->rx_queue_index >= row->count ||
	    bpf_xdp_adjust_meta(ctx, -(int)sizeof(*received_ns)))
		return pass(own, PASSED_LENGTH);
	received_ns = (void *)(long)ctx->data_meta;
	if ((void *)(received_ns + 1) > (void *)(long)ctx->data)
		return XDP_ABORTED;
	*received_ns = bpf_ktime_get_ns();
	if (bpf_redirect_map(&queues, row->first + ctx->rx_queue_index, XDP_PASS) != XDP_REDIRECT)
		return pass(own, PASSED_LENGTH);
	own->to_af_xdp++;
	return XDP_REDIRECT;
}

static __always_inline int decide_ip(struct xdp_md *ctx, struct responder_state *own,
				     const struct clock_page *page, struct request *request,
				     __be16 type)
{
	struct ethernet *ethernet = (void *)(long)ctx->data;
	int verdict;

	if ((void *)(ethernet + 1) > (void *)(long)ctx->data_end)
		return XDP_PASS;
	if (type != bpf_htons(TYPE_IPV4) && type != bpf_htons(TYPE_IPV6))
		return pass(own, PASSED_NOT_NTP);
	if ((ethernet->destination[0] | ethernet->source[0]) & 1)
		return pass(own, PASSED_ADDRESS);
	__builtin_memcpy(request->destination_mac, ethernet->destination, 6);
	__builtin_memcpy(request->source_mac, ethernet->source, 6);
	if (type == bpf_htons(TYPE_IPV4))
		verdict = respond_ipv4(ctx, own, page, request);
	else
		verdict = respond_ipv6(ctx, own, page, request);
	return verdict == REDIRECT_TO_XSK ? redirect_to_xsk(ctx, own) : verdict;
}

/* Answers the request or passes it; the reply is in the frame when this returns XDP_TX. */
static __always_inline int decide(struct xdp_md *ctx, bool pass_interleaved)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethernet *ethernet = (void *)(long)ctx->data;
	struct vlan *tag = (void *)(ethernet + 1);
	struct responder_state *own = own_state();
	struct clock_page *page;
	struct station station = { .interface = ctx->ingress_ifindex };
	struct request request;
	__u32 zero = 0;
	__be16 type;

	page = bpf_map_lookup_elem(&clock_pages, &zero);
	if (!own || !page || (void *)(ethernet + 1) > end)
		return XDP_PASS;
	__builtin_memcpy(station.mac, ethernet->destination, 6);
	/* Two calls, each with a length that the compiler knows. */
	request.pass_interleaved = pass_interleaved;
	request.station = &station;
	request.outer_type = type = ethernet->type;
	request.link_len = sizeof(*ethernet);
	if (type != bpf_htons(TYPE_VLAN) && type != bpf_htons(TYPE_SERVICE_VLAN))
		return decide_ip(ctx, own, page, &request, type);
	if ((void *)(tag + 1) > end)
		return pass(own, PASSED_MALFORMED);
	/* Identifier 0 is none: the tag only carries a priority (IEEE 802.1Q, section 9.6). */
	if (tag->control & bpf_htons(VLAN_IDENTIFIER)) {
		station.protocol = type;
		station.identifier = tag->control & bpf_htons(VLAN_IDENTIFIER);
	}
	request.tag = *tag;
	request.link_len = sizeof(*ethernet) + sizeof(*tag);
	return decide_ip(ctx, own, page, &request, tag->type);
}

/*
 * Frames other than NTP may be PTP. Separate programs answer them, so that PTP costs nothing where
 * only NTP is served.
 */
#define MASTER_TRANSMITS 0
#define MASTER_REDIRECTS 1
#define MASTER_MONITORS 2

static __always_inline int transmit(struct xdp_md *ctx, bool pass_interleaved)
{
	int verdict = decide(ctx, pass_interleaved);

	if (verdict == XDP_PASS)
		bpf_tail_call(ctx, &masters, MASTER_TRANSMITS);
	return verdict;
}

/*
 * Answers by a redirect to the ingress interface of the request instead of XDP_TX. On a veth link,
 * XDP_TX puts the reply into the peer's ring, but wakes the peer only if it runs an XDP program
 * itself; a redirect wakes it whenever it can receive frames.
 */
static __always_inline int redirect(struct xdp_md *ctx, bool pass_interleaved)
{
	int verdict = decide(ctx, pass_interleaved);

	if (verdict == XDP_PASS)
		bpf_tail_call(ctx, &masters, MASTER_REDIRECTS);
	return verdict == XDP_TX ? redirect_back(ctx) : verdict;
}

SEC("xdp.frags")
int respond(struct xdp_md *ctx)
{
	return transmit(ctx, false);
}

SEC("xdp.frags")
int respond_by_redirect(struct xdp_md *ctx)
{
	return redirect(ctx, false);
}

/* Both variants again, for sockets with better transmit timestamps for interleaved mode. */
SEC("xdp.frags")
int respond_basic(struct xdp_md *ctx)
{
	return transmit(ctx, true);
}

SEC("xdp.frags")
int respond_basic_by_redirect(struct xdp_md *ctx)
{
	return redirect(ctx, true);
}

static __always_inline int respond_master(struct xdp_md *ctx)
{
	int verdict = master(ctx, false);

	if (config.ptp_monitor && verdict == XDP_PASS)
		bpf_tail_call(ctx, &masters, MASTER_MONITORS);
	return verdict;
}

SEC("xdp.frags")
int respond_delay(struct xdp_md *ctx)
{
	return respond_master(ctx);
}

SEC("xdp.frags")
int respond_delay_by_redirect(struct xdp_md *ctx)
{
	int verdict = respond_master(ctx);

	return verdict == XDP_TX ? redirect_back(ctx) : verdict;
}

SEC("xdp.frags")
int respond_monitor(struct xdp_md *ctx)
{
	return master_monitor(ctx);
}

SEC("xdp.frags/devmap")
int finish_copy(struct xdp_md *ctx)
{
	return finish(ctx);
}

/* Variant for test runs, which the kernel does not support for programs of a map. */
SEC("xdp.frags")
int finish_copy_alone(struct xdp_md *ctx)
{
	return finish(ctx);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
