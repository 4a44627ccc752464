// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Application-layer multicast below the host: one packet in, a unicast copy out for each child of
 * its group.
 *
 * `relay` runs where packets arrive. It judges a packet once, takes out of its checksums what each
 * copy has of its own, and has the kernel make the copies (a devmap that is broadcast to). `copy`
 * runs where they leave and writes what is the child's. Whatever is no plain packet goes up, as it
 * was, to who makes copies with sockets.
 *
 * A copy does not say whose it is, and a program for each child could not either: what leaves by
 * one interface in one batch all goes through the program of the first of it (the kernel keeps one
 * for each batch, kernel/bpf/devmap.c). But copies leave an interface in the order of the map's
 * entries. So `relay` numbers packets, and `copy` counts the copies of a packet that have left by
 * the interface: the count and the interface make the child's row. A slot's map and rows are never
 * changed while they are in use; another set of children is another slot.
 */
#include "relay.h"

/* Makes a frame the child's. */
static __always_inline void address_ipv4(struct ipv4 *ip, struct udp *udp,
					 const struct relay_row *row)
{
	ip->source = row->source[0];
	ip->destination = row->destination[0];
	ip->checksum = fold((__u64)ip->checksum + row->address_sum);
	if (udp->checksum)
		udp->checksum = udp_fold((__u64)udp->checksum + row->address_sum + row->port_sum);
}

static __always_inline void address_ipv6(struct ipv6 *ip, struct udp *udp,
					 const struct relay_row *row)
{
	__builtin_memcpy(ip->source, row->source, 16);
	__builtin_memcpy(ip->destination, row->destination, 16);
	udp->checksum = udp_fold((__u64)udp->checksum + row->address_sum + row->port_sum);
}

/* The row of the child whose copy leaves next by an interface; none if it is nobody's. */
static __always_inline const struct relay_row *next_row(struct relay_state *own, __u32 interface,
							const struct relay_tag *tag)
{
	const struct relay_interface *place = bpf_map_lookup_elem(&relay_interfaces, &interface);
	struct relay_leaving *leaving;
	const struct relay_slot *slot;
	__u32 number, index = tag->slot;
	__u64 position;

	if (!place || !place->leaves)
		return 0;
	number = (place->leaves - 1) & (RELAY_INTERFACES_MAX - 1);
	leaving = &own->leaving[number];
	if (leaving->packet != tag->packet) {
		leaving->packet = tag->packet;
		leaving->copies = 0;
	}
	position = leaving->copies++;
	slot = bpf_map_lookup_elem(&relay_slots, &index);
	if (!slot || position >= slot->rows[number].count)
		return 0;
	index = slot->rows[number].first + position;
	return bpf_map_lookup_elem(&relay_rows, &index);
}

SEC("xdp/devmap")
int copy(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethernet *ethernet = (void *)(long)ctx->data;
	struct ipv4 *ipv4 = (void *)(ethernet + 1);
	struct ipv6 *ipv6 = (void *)(ethernet + 1);
	__u32 index, payload_len, processor = bpf_get_smp_processor_id();
	struct relay_child_counts *counts;
	struct relay_state *own = own_state();
	const struct relay_row *row;
	struct udp *udp;

	if (!own || (void *)(ipv4 + 1) + sizeof(*udp) > end)
		return XDP_DROP;
	row = next_row(own, ctx->egress_ifindex, (const void *)ethernet);
	if (!row) {
		own->strays++;
		return XDP_DROP;
	}
	index = processor * config.children + row->child;
	counts = bpf_map_lookup_elem(&relay_child_counts, &index);
	if (!counts)
		return XDP_DROP;
	if (row->unresolved) {
		counts->unresolved++;
		return XDP_DROP;
	}
	if (ethernet->type == bpf_htons(TYPE_IPV4)) {
		udp = (void *)(ipv4 + 1);
		address_ipv4(ipv4, udp, row);
	} else {
		udp = (void *)(ipv6 + 1);
		if ((void *)(udp + 1) > end)
			return XDP_DROP;
		address_ipv6(ipv6, udp, row);
	}
	udp->source = row->source_port;
	udp->destination = row->destination_port;
	__builtin_memcpy(ethernet, row->destination_mac, 12);
	counts->copies++;
	payload_len = bpf_ntohs(udp->length) - sizeof(*udp);
	counts->bytes += payload_len;
	index = own->batch_len++ & (RELAY_BULK - 1);
	own->batch[index] = row->child << RELAY_PAYLOAD_BITS | payload_len;
	return XDP_PASS;
}

/* Runs right after a driver was given the copies that `copy` has just made on this processor. It
 * takes them from the front, as many as it has room for. */
SEC("raw_tp/xdp_devmap_xmit")
int count_full(struct bpf_raw_tracepoint_args *args)
{
	__u32 i, index, count, processor = bpf_get_smp_processor_id();
	__s32 sent = (__s32)args->args[2];
	struct relay_state *own = own_state();
	struct relay_child_counts *counts;

	if (!own)
		return 0;
	count = own->batch_len;
	own->batch_len = 0;
	for (i = 0; i < RELAY_BULK; i++) {
		if (i >= count)
			break;
		if ((__s32)i < sent)
			continue;
		index = processor * config.children + (own->batch[i] >> RELAY_PAYLOAD_BITS);
		counts = bpf_map_lookup_elem(&relay_child_counts, &index);
		if (!counts)
			continue;
		counts->driver_full++;
		counts->bytes -= own->batch[i] & ((1 << RELAY_PAYLOAD_BITS) - 1);
	}
	return 0;
}

/* Leaves a packet to the network stack. */
static __always_inline int pass(struct relay_state *own, enum relay_passed reason)
{
	own->passed[reason]++;
	return XDP_PASS;
}

/* A packet of a group, as far as it is judged by. */
struct arrived {
	const __u8 *mac;	/* that it was sent to */
	const __be32 *source;
	__be16 port;		/* that it was sent from */
	bool ipv6;
	__u8 hops;		/* that it has left; once it is admitted, those of its copies */
	__u32 length;		/* with its IP header */
	__u32 payload_len;
};

static __always_inline void copy_address(__u8 *to, const struct arrived *packet)
{
	if (packet->ipv6)
		__builtin_memcpy(to, packet->source, 16);
	else
		__builtin_memcpy(to, packet->source, 4);
}

/* What the address that sent a packet is to a group. */
static __always_inline __u8 source_of(__u32 group, const struct arrived *packet)
{
	struct relay_source_key key = { .group = group };
	const __u8 *listed;

	key.length = 32 + (packet->ipv6 ? 128 : 32);
	copy_address(key.address, packet);
	listed = bpf_map_lookup_elem(&relay_sources, &key);
	return listed ? *listed : 0;
}

/* Whether a child of the group listens where a packet was sent from. */
static __always_inline bool is_of_child(__u32 group, const struct arrived *packet)
{
	struct relay_end_key key = { .group = group, .port = packet->port };

	copy_address(key.address, packet);
	return bpf_map_lookup_elem(&relay_ends, &key);
}

/* Whether a group listens at the port that a packet was sent from. */
static __always_inline bool is_of_group_port(const struct arrived *packet)
{
	__u16 port = bpf_ntohs(packet->port);
	__u32 word = port / RELAY_PORTS_OF_WORD;
	const __u64 *ports = bpf_map_lookup_elem(&relay_ports, &word);

	return ports && (*ports >> (port % RELAY_PORTS_OF_WORD) & 1);
}

/*
 * Whether a packet came in as one that the network stack takes for this host's groups: by the
 * interface that the group is joined on, to this host's MAC address or many, and not with a source
 * address that nobody sends from over a link.
 */
static __always_inline bool came_properly(const struct relay_interface *place, __u32 interface,
					  const struct relay_slot *slot,
					  const struct arrived *packet)
{
	__u32 first = bpf_ntohl(packet->source[0]);
	bool has_mac;

	if (place && place->is_own)
		return true;
	if (slot->interface && slot->interface != interface)
		return false;
	if (packet->ipv6) {
		if (first >> 24 == 0xff ||
		    (!packet->source[0] && !packet->source[1]))
			return false;
	} else if (first >> 24 == 0 || first >> 24 == 127 || first >> 28 >= 0xe) {
		return false;
	}
	if (!place || packet->mac[0] & 1)
		return true;
	has_mac = place->mac[0] | place->mac[1] | place->mac[2] | place->mac[3] | place->mac[4] |
		  place->mac[5];
	return !has_mac || is_same_mac(packet->mac, place->mac);
}

/* Charges what a packet costs; false when that is over the limit. All processors charge the same
 * bucket, and none of them loses a charge: who is overtaken looks again. */
static __always_inline bool charge(__u64 *arrival, __u64 cost, __u64 tolerance, __u64 now)
{
	int i;

	for (i = 0; i < CHARGE_ATTEMPTS; i++) {
		__u64 last = READ_ONCE(*arrival);
		__u64 at = last > now ? last : now;

		if (at - now + cost > tolerance)
			return false;
		if (__sync_val_compare_and_swap(arrival, last, at + cost) == last)
			return true;
	}
	return false;
}

/* Whether the group's rate and that of all copies allow a packet; RELAY_REFUSALS if they do. */
static __always_inline enum relay_refusal meter(struct relay_group *group,
						const struct relay_slot *slot)
{
	__u32 zero = 0;
	struct relay_fan_out *all = bpf_map_lookup_elem(&relay_fan_out, &zero);
	__u64 now, tolerance = all ? READ_ONCE(all->tolerance_ns) : 0;

	if (!slot->interval_ns && !tolerance)
		return RELAY_REFUSALS;
	now = bpf_ktime_get_ns();
	if (slot->interval_ns &&
	    !charge(&group->arrival, slot->interval_ns, slot->tolerance_ns, now))
		return RELAY_REFUSED_RATE;
	if (all && tolerance && !charge(&all->arrival, slot->copies_ns, tolerance, now))
		return RELAY_REFUSED_FAN_OUT;
	return RELAY_REFUSALS;
}

/* Why a packet from such a source is refused; RELAY_REFUSALS if it is not. The order is that of
 * the model (`horolog_relay::decide`). */
static __always_inline enum relay_refusal judge(__u8 source, struct relay_group *group,
						const struct relay_slot *slot,
						struct arrived *packet)
{
	if (!(source & RELAY_SOURCE_ALLOWED))
		return RELAY_REFUSED_SOURCE;
	if (source & RELAY_SOURCE_OWN && is_of_group_port(packet))
		return RELAY_REFUSED_ONESELF;
	if (source & RELAY_SOURCE_CHILD && is_of_child(slot->group, packet))
		return RELAY_REFUSED_CHILD;
	if (slot->hops_anew)
		packet->hops = slot->hops_max;
	else if (packet->hops)
		packet->hops = packet->hops <= slot->hops_max ? packet->hops - 1 : slot->hops_max;
	if (!packet->hops)
		return RELAY_REFUSED_HOPS;
	return meter(group, slot);
}

/*
 * Says what becomes of a packet of a group: XDP_REDIRECT if it is to be copied. Then `map` is what
 * makes the copies and `tag` what they are told by.
 */
static __always_inline int admit(struct xdp_md *ctx, struct relay_state *own, __u32 number,
				 struct arrived *packet, void **map, struct relay_tag *tag)
{
	__u32 index, interface = ctx->ingress_ifindex, processor = bpf_get_smp_processor_id();
	const struct relay_interface *place = bpf_map_lookup_elem(&relay_interfaces, &interface);
	struct relay_group *group = bpf_map_lookup_elem(&relay_groups, &number);
	struct relay_slot_counts *counts;
	const struct relay_slot *slot;
	enum relay_refusal refusal;
	__u8 source;

	if (!group)
		return pass(own, RELAY_PASSED_OTHER);
	tag->slot = READ_ONCE(group->slot);
	slot = bpf_map_lookup_elem(&relay_slots, &tag->slot);
	*map = bpf_map_lookup_elem(&relay_copies, &tag->slot);
	index = processor * config.slots + tag->slot;
	counts = bpf_map_lookup_elem(&relay_slot_counts, &index);
	if (!slot || !*map || !counts)
		return pass(own, RELAY_PASSED_NO_CHILDREN);
	if (packet->length > slot->length_max)
		return pass(own, RELAY_PASSED_LONG);
	source = source_of(slot->group, packet);
	/* The network stack knows whether what seems to come from this host may come by a link. */
	if (!came_properly(place, interface, slot, packet) ||
	    (source & RELAY_SOURCE_OWN && !(place && place->is_own)))
		return pass(own, RELAY_PASSED_OTHER);
	refusal = judge(source, group, slot, packet);
	if (refusal < RELAY_REFUSALS) {
		counts->refused[refusal]++;
		counts->refused_bytes += packet->payload_len;
		return XDP_DROP;
	}
	counts->packets++;
	counts->bytes += packet->payload_len;
	tag->packet = ++own->packets;
	return XDP_REDIRECT;
}

/* Whether a frame holds a packet of this length and at most what fills up the least frame. */
static __always_inline bool fits(struct xdp_md *ctx, __u32 length)
{
	__u32 frame = ctx->data_end - ctx->data, whole = sizeof(struct ethernet) + length;

	return frame == whole || (frame > whole && frame <= ETHERNET_MIN);
}

/* Whether the checksum of a header without options is right. */
static __always_inline bool header_fits(const struct ipv4 *ip)
{
	const __u32 *words = (const void *)ip;
	__u64 sum = (__u64)words[0] + words[1] + words[2] + words[3] + words[4];

	return !fold(sum);
}

static __always_inline int relay_ipv4(struct xdp_md *ctx, struct relay_state *own)
{
	void *end = (void *)(long)ctx->data_end, *map;
	struct ethernet *ethernet = (void *)(long)ctx->data;
	struct ipv4 *ip = (void *)(ethernet + 1);
	struct udp *udp = (void *)(ip + 1);
	struct arrived packet = {};
	struct relay_tag tag;
	const __u32 *group;
	__u64 ends, sum;
	int verdict;

	if ((void *)(udp + 1) > end || ip->version_and_length != 0x45 ||
	    ip->protocol != PROTOCOL_UDP || (ip->flags_and_offset & bpf_htons(NOT_WHOLE)))
		return pass(own, RELAY_PASSED_OTHER);
	group = group_at(&ip->destination, false, udp->destination);
	if (!group)
		return pass(own, RELAY_PASSED_OTHER);
	packet.length = bpf_ntohs(ip->total_length);
	packet.payload_len = packet.length - sizeof(*ip) - sizeof(*udp);
	if (!fits(ctx, packet.length) ||
	    packet.length != sizeof(*ip) + bpf_ntohs(udp->length) ||
	    packet.length < sizeof(*ip) + sizeof(*udp) || !header_fits(ip))
		return pass(own, RELAY_PASSED_MALFORMED);
	packet.mac = ethernet->destination;
	packet.source = &ip->source;
	packet.port = udp->source;
	packet.hops = ip->time_to_live;
	verdict = admit(ctx, own, *group, &packet, &map, &tag);
	if (verdict != XDP_REDIRECT)
		return verdict;
	ends = (__u64)(__u32)ip->source + (__u32)ip->destination;
	sum = ends + bpf_htons(ip->traffic_class) + ip->flags_and_offset +
	      bpf_htons(ip->time_to_live << 8);
	ip->traffic_class = 0;
	ip->flags_and_offset = bpf_htons(NEVER_FRAGMENT);
	ip->time_to_live = packet.hops;
	ip->checksum = without((__u64)(__u16)~ip->checksum + bpf_htons(NEVER_FRAGMENT) +
			       bpf_htons(packet.hops << 8), sum);
	if (udp->checksum) {
		sum = pseudo_sum(ends, udp->length);
		ends += (__u64)udp->source + udp->destination;
		if (is_partial(udp->checksum, sum))
			udp->checksum = whole_sum(ctx, sizeof(*ip), udp->length, packet.payload_len);
		else
			udp->checksum = without((__u64)(__u16)~udp->checksum, ends);
	}
	return send_copies(ethernet, map, &tag);
}

static __always_inline int relay_ipv6(struct xdp_md *ctx, struct relay_state *own)
{
	void *end = (void *)(long)ctx->data_end, *map;
	struct ethernet *ethernet = (void *)(long)ctx->data;
	struct ipv6 *ip = (void *)(ethernet + 1);
	struct udp *udp = (void *)(ip + 1);
	struct arrived packet = { .ipv6 = true };
	struct relay_tag tag;
	const __u32 *group;
	__u64 ends, sum;
	int verdict;

	if ((void *)(udp + 1) > end || ip->next_header != PROTOCOL_UDP ||
	    (ip->version_class_flow & bpf_htonl(0xf0000000)) != bpf_htonl(0x60000000))
		return pass(own, RELAY_PASSED_OTHER);
	group = group_at(ip->destination, true, udp->destination);
	if (!group)
		return pass(own, RELAY_PASSED_OTHER);
	packet.payload_len = bpf_ntohs(udp->length) - sizeof(*udp);
	packet.length = sizeof(*ip) + bpf_ntohs(ip->payload_length);
	if (!fits(ctx, packet.length) || ip->payload_length != udp->length || !udp->checksum ||
	    packet.length < sizeof(*ip) + sizeof(*udp))
		return pass(own, RELAY_PASSED_MALFORMED);
	packet.mac = ethernet->destination;
	packet.source = ip->source;
	packet.port = udp->source;
	packet.hops = ip->hop_limit;
	verdict = admit(ctx, own, *group, &packet, &map, &tag);
	if (verdict != XDP_REDIRECT)
		return verdict;
	ip->version_class_flow &= ~bpf_htonl(TRAFFIC_CLASS);
	ip->hop_limit = packet.hops;
	ends = address_sum(ip->source) + address_sum(ip->destination);
	sum = pseudo_sum(ends, udp->length);
	ends += (__u64)udp->source + udp->destination;
	if (is_partial(udp->checksum, sum))
		udp->checksum = whole_sum(ctx, sizeof(*ip), udp->length, packet.payload_len);
	else
		udp->checksum = without((__u64)(__u16)~udp->checksum, ends);
	return send_copies(ethernet, map, &tag);
}

SEC("xdp")
int relay(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethernet *ethernet = (void *)(long)ctx->data;
	struct relay_state *own = own_state();

	if (!own || (void *)(ethernet + 1) > end)
		return XDP_PASS;
	if (ethernet->type == bpf_htons(TYPE_IPV4))
		return relay_ipv4(ctx, own);
	if (ethernet->type == bpf_htons(TYPE_IPV6))
		return relay_ipv6(ctx, own);
	return pass(own, RELAY_PASSED_OTHER);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
