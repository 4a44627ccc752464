// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The server's fast body: answers NTP client requests of basic and interleaved mode where they
 * arrive, in XDP.
 *
 * It knows exactly the subset that horolog_server::frame describes, and a test drives both over the
 * same frames. Whatever is not in the subset goes up to the network stack, where the socket body
 * decides, or, if it has more than a header, to an AF_XDP socket of that body; nothing is
 * guessed, and nothing is dropped but what limits and lists turn away. Time comes from a clock
 * page; past its expiry nothing is answered.
 */
#include "net.h"
#include "answer.h"
#include "grandmaster.h"
#include "interleaved.h"
#include "limits.h"
#include "listening.h"
#include "monitor.h"

#define FLAGS_OR_OFFSET 0x3fff	/* more-fragments bit and fragment offset */
#define DONT_FRAGMENT 0x4000

/* What PTP is answered by: by transmission, by redirect, and what is NetSync Monitor's; empty where
 * there is no PTP. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 3);
	__type(key, __u32);
	__type(value, __u32);
} masters SEC(".maps");

/* The AF_XDP sockets of all interfaces, each interface's in a row, by receive queue ... */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} queues SEC(".maps");

/* ... and where an interface's row is. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct queue_row);
} queue_places SEC(".maps");

/* A verdict beside the kernel's: the request is to be given to an AF_XDP socket. */
#define HAND_OVER 64

/* A request that passed classification: what the reply is made from. */
struct request {
	__u8 destination_mac[6];
	__u8 source_mac[6];
	struct vlan tag;
	__be16 outer_type;	/* as the frame has it, 0x8100 where it is tagged */
	__u32 link_len;
	__be16 source_port;
	__be16 destination_port;
	bool pass_interleaved;	/* the sockets answer what may be of interleaved mode */
};

static __always_inline bool is_client_request(const struct ntp *ntp)
{
	__u8 version = (ntp->leap_version_mode >> 3) & 7;
	__u8 mode = ntp->leap_version_mode & 7;

	return mode == 3 && version >= 1 && version <= 4;
}

/*
 * Judges the client and, if it is to have a reply, writes one into `ntp`. Returns the verdict for
 * the frame: XDP_TX with the sum of the reply's words in `sum`, XDP_DROP, XDP_PASS or HAND_OVER.
 */
static __always_inline int serve(struct responder_state *own, const struct clock_page *page,
				 const struct request *request, const struct client *client,
				 struct ntp *ntp, __u64 *sum)
{
	__u64 now_ns = bpf_ktime_get_ns();
	enum admission admission = ADMIT;
	__be64 origin, receive;
	bool interleaved;

	if (config.limits) {
		admission = judge(client, now_ns);
		own->judged_ns = now_ns;
		if (admission >= ADMIT) {
			own->admitted++;
		} else {
			own->refused[admission]++;
			if (admission < KISS_RATE)
				return XDP_DROP;
		}
	}
	if (client->is_long)
		return HAND_OVER;
	interleaved = (config.interleaved || request->pass_interleaved) &&
		      admission == ADMIT && looks_interleaved(ntp);
	if (interleaved && request->pass_interleaved)
		return pass(own, PASSED_INTERLEAVED);
	origin = ntp->origin;
	receive = ntp->receive;
	*sum = answer(ntp, own, page, now_ns);
	if (!*sum)
		return pass(own, PASSED_NO_CLOCK);
	if (interleaved)
		*sum = interleave(own, ntp, client, origin, receive, *sum);
	if (config.limits && admission != ADMIT)
		*sum = kiss(ntp, admission);
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

/* The UDP header of the reply; `sum` is that of the pseudo-header's addresses and the payload. */
static __always_inline void answer_udp(struct udp *udp, const struct request *request, __u64 sum)
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

/* Whether requests with more than a header are of any concern: to be limited, or handed over. */
static __always_inline bool takes_longer(void)
{
	return config.limits || config.hand_over;
}

/* Checks what both families share. Returns a reason to pass the request up, or -1. */
static __always_inline int refuse(const struct udp *udp, const struct ntp *ntp)
{
	if (udp->length != bpf_htons(UDP_NTP_LEN) &&
	    (!takes_longer() || bpf_ntohs(udp->length) < UDP_NTP_LEN))
		return PASSED_LENGTH;
	if (udp->source == 0)
		return PASSED_ADDRESS;
	if (!is_client_request(ntp))
		return PASSED_REQUEST;
	return -1;
}

/* Whether the datagram is all that is left of the frame; its NTP header was found to be there. */
static __always_inline bool ends_with(const struct udp *udp, const void *end)
{
	if (!takes_longer())
		return (void *)udp + UDP_NTP_LEN == end;
	return end - (void *)udp == bpf_ntohs(udp->length);
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
	if ((void *)(ntp + 1) > end)
		return pass(own, PASSED_LENGTH);
	reason = refuse(udp, ntp);
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
	answer_udp(udp, request, sum + source + destination);
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
	__u64 sum, addresses = 0;
	int reason, verdict, i;

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
	if ((void *)(ntp + 1) > end)
		return pass(own, PASSED_LENGTH);
	reason = refuse(udp, ntp);
	if (reason >= 0)
		return pass(own, reason);
	/* Over IPv6 there is no datagram without a checksum (RFC 8200, section 8.1). */
	if (!ends_with(udp, end) || ip->payload_length != udp->length || !udp->checksum)
		return pass(own, PASSED_MALFORMED);
	if (!is_answerable_ipv6(ip))
		return pass(own, PASSED_ADDRESS);

	request->source_port = udp->source;
	request->destination_port = udp->destination;
	client.ipv6 = true;
	__builtin_memcpy(&client.high, &source[0], 8);
	__builtin_memcpy(&client.low, &source[2], 8);
	client.is_long = udp->length != bpf_htons(UDP_NTP_LEN);
	verdict = serve(own, page, request, &client, ntp, &sum);
	if (verdict != XDP_TX)
		return verdict;
	for (i = 0; i < 4; i++)
		addresses += (__u64)source[i] + destination[i];
	answer_udp(udp, request, sum + addresses);
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
 * Gives the request to the AF_XDP socket of the queue that it came in by, with the monotonic
 * instant in front of it; without one, or if that cannot be, it goes up.
 */
static __always_inline int hand_over(struct xdp_md *ctx, struct responder_state *own)
{
	__u32 interface = ctx->ingress_ifindex;
	const struct queue_row *row;
	__u64 *stamp;

	/* Whoever reads there serves UTC. */
	if (!config.hand_over || own->known_timeline != TIMELINE_STEPPED)
		return pass(own, PASSED_LENGTH);
	row = bpf_map_lookup_elem(&queue_places, &interface);
	/* Queues may have been added since. */
	if (!row || ctx->rx_queue_index >= row->count ||
	    bpf_xdp_adjust_meta(ctx, -(int)sizeof(*stamp)))
		return pass(own, PASSED_LENGTH);
	stamp = (void *)(long)ctx->data_meta;
	if ((void *)(stamp + 1) > (void *)(long)ctx->data)
		return XDP_ABORTED;
	*stamp = bpf_ktime_get_ns();
	if (bpf_redirect_map(&queues, row->first + ctx->rx_queue_index, XDP_PASS) != XDP_REDIRECT)
		return pass(own, PASSED_LENGTH);
	own->handed_over++;
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
	return verdict == HAND_OVER ? hand_over(ctx, own) : verdict;
}

/* Answers, or lets pass; what is answered is in the frame when this returns XDP_TX. */
static __always_inline int decide(struct xdp_md *ctx, bool pass_interleaved)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethernet *ethernet = (void *)(long)ctx->data;
	struct vlan *tag = (void *)(ethernet + 1);
	struct responder_state *own = own_state();
	struct clock_page *page;
	struct request request;
	__u32 zero = 0;
	__be16 type;

	page = bpf_map_lookup_elem(&clock_pages, &zero);
	if (!own || !page || (void *)(ethernet + 1) > end)
		return XDP_PASS;
	/* Two calls, each with a length that the compiler knows. */
	request.pass_interleaved = pass_interleaved;
	request.outer_type = type = ethernet->type;
	request.link_len = sizeof(*ethernet);
	if (type != bpf_htons(TYPE_VLAN) && type != bpf_htons(TYPE_SERVICE_VLAN))
		return decide_ip(ctx, own, page, &request, type);
	if ((void *)(tag + 1) > end)
		return pass(own, PASSED_MALFORMED);
	request.tag = *tag;
	request.link_len = sizeof(*ethernet) + sizeof(*tag);
	return decide_ip(ctx, own, page, &request, tag->type);
}

/*
 * What NTP has nothing to do with may be PTP's. It is answered by programs of their own, so that
 * those who serve NTP alone pay nothing for it.
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
 * The same, with a redirect to the interface that the request came in by instead of XDP_TX. On a
 * virtual link (veth), XDP_TX puts the reply into the other end's ring, but wakes that end only if
 * it runs an XDP program itself; a redirect wakes it whenever it can take frames.
 */
static __always_inline int redirect(struct xdp_md *ctx, bool pass_interleaved)
{
	int verdict = decide(ctx, pass_interleaved);

	if (verdict == XDP_PASS)
		bpf_tail_call(ctx, &masters, MASTER_REDIRECTS);
	return verdict == XDP_TX ? redirect_back(ctx) : verdict;
}

SEC("xdp")
int respond(struct xdp_md *ctx)
{
	return transmit(ctx, false);
}

SEC("xdp")
int respond_by_redirect(struct xdp_md *ctx)
{
	return redirect(ctx, false);
}

/* Both again, where the sockets have better transmit timestamps for interleaved mode. */
SEC("xdp")
int respond_basic(struct xdp_md *ctx)
{
	return transmit(ctx, true);
}

SEC("xdp")
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

SEC("xdp")
int answer_delay(struct xdp_md *ctx)
{
	return respond_master(ctx);
}

SEC("xdp")
int answer_delay_by_redirect(struct xdp_md *ctx)
{
	int verdict = respond_master(ctx);

	return verdict == XDP_TX ? redirect_back(ctx) : verdict;
}

SEC("xdp")
int answer_monitor(struct xdp_md *ctx)
{
	return master_monitor(ctx);
}

SEC("xdp/devmap")
int finish_copy(struct xdp_md *ctx)
{
	return finish(ctx);
}

/* The same for test runs, which the kernel does not give to programs of a map. */
SEC("xdp")
int finish_copy_alone(struct xdp_md *ctx)
{
	return finish(ctx);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
