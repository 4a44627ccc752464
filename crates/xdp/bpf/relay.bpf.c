// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * In-kernel application-layer multicast: one packet in, a unicast copy out for each child of its
 * group.
 *
 * `relay` runs on ingress. It checks a packet once, removes from its checksums the fields that
 * differ between copies, and has the kernel make the copies (broadcast to a devmap). `copy` runs on
 * egress and writes the child's fields. Other packets are passed unchanged to the relay's sockets.
 *
 * A copy does not identify its child, and a program for each child could not either: all frames
 * that leave by one interface in one batch pass the program of the first of them (the kernel keeps
 * one for each batch, kernel/bpf/devmap.c). But copies leave an interface in the order of the map's
 * entries. So `relay` numbers packets, and `copy` counts the copies of a packet that have left by
 * the interface: the count and the interface determine the child's row. A slot's map and rows are
 * never changed while they are in use; another set of children is another slot.
 */
#include "relay.h"

/* Addresses a frame to the child. */
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

/* Returns the row of the child whose copy is next on egress of an interface; NULL if none is. */
static __always_inline const struct relay_row *next_row(struct relay_state *own, __u32 interface,
							const struct relay_tag *tag)
{
	const struct relay_interface *entry = bpf_map_lookup_elem(&relay_interfaces, &interface);
	struct relay_leaving *leaving;
	const struct relay_slot *slot;
	__u32 number, index = tag->slot;
	__u64 position;

	if (!entry || !entry->egress_number)
		return 0;
	number = (entry->egress_number - 1) & (RELAY_INTERFACES_MAX - 1);
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

SEC("xdp.frags/devmap")
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

/* Runs right after a driver was sent the copies that `copy` has just made on this CPU. The driver
 * accepts them from the front, as many as it has room for. */
SEC("raw_tp/xdp_devmap_xmit")
int count_driver_drops(struct bpf_raw_tracepoint_args *args)
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

/* Passes a packet to the network stack. */
static __always_inline int pass(struct relay_state *own, enum relay_passed reason)
{
	own->passed[reason]++;
	return XDP_PASS;
}

/* A packet of a group, with the fields that are checked. */
struct ingress_packet {
	const __u8 *mac;	/* destination MAC address */
	const __be32 *source;
	__be16 port;		/* source port */
	bool ipv6;
	__u8 hops;		/* hop limit; once it is admitted, that of its copies */
	bool to_group;		/* by its IP address */
	__u32 length;		/* with its IP header */
	__u32 payload_len;
};

static __always_inline void copy_address(__u8 *to, const struct ingress_packet *packet)
{
	if (packet->ipv6)
		__builtin_memcpy(to, packet->source, 16);
	else
		__builtin_memcpy(to, packet->source, 4);
}

/* Returns the role of a packet's source address for a group. */
static __always_inline __u8 source_of(__u32 group, const struct ingress_packet *packet)
{
	struct relay_source_key key = { .group = group };
	const __u8 *listed;

	key.length = 32 + (packet->ipv6 ? 128 : 32);
	copy_address(key.address, packet);
	listed = bpf_map_lookup_elem(&relay_sources, &key);
	return listed ? *listed : 0;
}

/* Returns true if a child of the group listens on a packet's source address and port. */
static __always_inline bool is_from_child(__u32 group, const struct ingress_packet *packet)
{
	struct relay_endpoint_key key = { .group = group, .port = packet->port };

	copy_address(key.address, packet);
	return bpf_map_lookup_elem(&relay_endpoints, &key);
}

/* Returns true if a group listens on a packet's source port. */
static __always_inline bool is_from_group_port(const struct ingress_packet *packet)
{
	__u16 port = bpf_ntohs(packet->port);
	__u32 word = port / RELAY_PORTS_OF_WORD;
	const __u64 *ports = bpf_map_lookup_elem(&relay_ports, &word);

	return ports && (*ports >> (port % RELAY_PORTS_OF_WORD) & 1);
}

/*
 * Returns true if the network stack would accept a packet for this host's groups: it arrived by the
 * interface that the group is joined on, to this host's MAC address or, for a multicast group,
 * to a multicast one, and not with a source address that is invalid on a link.
 */
static __always_inline bool has_valid_ingress(const struct relay_interface *entry, __u32 interface,
					      const struct relay_slot *slot,
					      const struct ingress_packet *packet)
{
	__u32 first = bpf_ntohl(packet->source[0]);
	bool has_mac;

	if (entry && entry->is_own)
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
	if (packet->mac[0] & 1)
		return packet->to_group;
	if (!entry)
		return true;
	has_mac = entry->mac[0] | entry->mac[1] | entry->mac[2] | entry->mac[3] | entry->mac[4] |
		  entry->mac[5];
	return !has_mac || is_same_mac(packet->mac, entry->mac);
}

/* Charges the cost of a packet; returns false if that is over the limit. All CPUs charge the same
 * bucket, and none of them loses a charge: one that was overtaken retries. */
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

/* Checks the rates of the group and of all copies; returns RELAY_REFUSALS if they permit a packet.
 */
static __always_inline enum relay_refusal check_rates(struct relay_group *group,
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

/* Returns the reason for which a packet from such a source is refused; RELAY_REFUSALS if it is not.
 * The order is that of the model (`horolog_relay::decide`). */
static __always_inline enum relay_refusal refusal_of(__u8 source, struct relay_group *group,
						     const struct relay_slot *slot,
						     struct ingress_packet *packet)
{
	if (!(source & RELAY_SOURCE_ALLOWED))
		return RELAY_REFUSED_SOURCE;
	if (source & RELAY_SOURCE_OWN && is_from_group_port(packet))
		return RELAY_REFUSED_ONESELF;
	if (source & RELAY_SOURCE_CHILD && is_from_child(slot->group, packet))
		return RELAY_REFUSED_CHILD;
	if (slot->hops_reset)
		packet->hops = slot->hops_max;
	else if (packet->hops)
		packet->hops = packet->hops <= slot->hops_max ? packet->hops - 1 : slot->hops_max;
	if (!packet->hops)
		return RELAY_REFUSED_HOPS;
	return check_rates(group, slot);
}

/*
 * Returns the action for a packet of a group: XDP_REDIRECT if it is to be copied. Then `map` is the
 * map that makes the copies and `tag` identifies them.
 */
static __always_inline int admit(struct xdp_md *ctx, struct relay_state *own, __u32 number,
				 struct ingress_packet *packet, void **map, struct relay_tag *tag)
{
	__u32 index, interface = ctx->ingress_ifindex, processor = bpf_get_smp_processor_id();
	const struct relay_interface *entry = bpf_map_lookup_elem(&relay_interfaces, &interface);
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
	/* The network stack determines whether a packet with an address of this host may arrive by
	 * a link. */
	if (!has_valid_ingress(entry, interface, slot, packet) ||
	    (source & RELAY_SOURCE_OWN && !(entry && entry->is_own)))
		return pass(own, RELAY_PASSED_OTHER);
	refusal = refusal_of(source, group, slot, packet);
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

/* Returns true if a frame holds a packet of this length and at most the padding of the minimum
 * frame. */
static __always_inline bool fits(struct xdp_md *ctx, __u32 length)
{
	__u32 frame = ctx->data_end - ctx->data, whole = sizeof(struct ethernet) + length;

	return frame == whole || (frame > whole && frame <= ETHERNET_MIN);
}

/* Returns true if the checksum of a header without options is right. */
static __always_inline bool header_fits(const struct ipv4 *ip)
{
	const __u32 *words = (const void *)ip;
	__u64 sum = (__u64)words[0] + words[1] + words[2] + words[3] + words[4];

	return !fold(sum);
}

#define PAYLOAD_AT(ip) (sizeof(struct ethernet) + sizeof(ip) + sizeof(struct udp))

static __always_inline int relay_ipv4(struct xdp_md *ctx, struct relay_state *own)
{
	void *end = (void *)(long)ctx->data_end, *map;
	struct ethernet *ethernet = (void *)(long)ctx->data;
	struct ipv4 *ip = (void *)(ethernet + 1);
	struct udp *udp = (void *)(ip + 1);
	struct ingress_packet packet = {};
	struct relay_tag tag;
	const __u32 *group;
	__u64 ends, payload, sum;
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
	packet.to_group = bpf_ntohl(ip->destination) >> 28 == 0xe;
	ends = (__u64)(__u32)ip->source + (__u32)ip->destination;
	payload = udp->checksum ? payload_sum(ctx, PAYLOAD_AT(*ip), packet.payload_len) : 0;
	if (!has_valid_checksum(udp, ends, payload))
		return pass(own, RELAY_PASSED_MALFORMED);
	verdict = admit(ctx, own, *group, &packet, &map, &tag);
	if (verdict != XDP_REDIRECT)
		return verdict;
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
			udp->checksum = whole_sum(udp->length, payload);
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
	struct ingress_packet packet = { .ipv6 = true };
	struct relay_tag tag;
	const __u32 *group;
	__u64 ends, payload, sum;
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
	packet.to_group = bpf_ntohl(ip->destination[0]) >> 24 == 0xff;
	ends = address_sum(ip->source) + address_sum(ip->destination);
	payload = payload_sum(ctx, PAYLOAD_AT(*ip), packet.payload_len);
	if (!has_valid_checksum(udp, ends, payload))
		return pass(own, RELAY_PASSED_MALFORMED);
	verdict = admit(ctx, own, *group, &packet, &map, &tag);
	if (verdict != XDP_REDIRECT)
		return verdict;
	ip->version_class_flow &= ~bpf_htonl(TRAFFIC_CLASS);
	ip->hop_limit = packet.hops;
	sum = pseudo_sum(ends, udp->length);
	ends += (__u64)udp->source + udp->destination;
	if (is_partial(udp->checksum, sum))
		udp->checksum = whole_sum(udp->length, payload);
	else
		udp->checksum = without((__u64)(__u16)~udp->checksum, ends);
	return send_copies(ethernet, map, &tag);
}

SEC("xdp.frags")
int relay(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethernet *ethernet = (void *)(long)ctx->data;
	struct relay_state *own = own_state();

	if (!own || (void *)(ethernet + 1) > end)
		return XDP_PASS;
	if (!is_linear(ctx))
		return pass(own, RELAY_PASSED_LONG);
	if (ethernet->type == bpf_htons(TYPE_IPV4))
		return relay_ipv4(ctx, own);
	if (ethernet->type == bpf_htons(TYPE_IPV6))
		return relay_ipv6(ctx, own);
	return pass(own, RELAY_PASSED_OTHER);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
