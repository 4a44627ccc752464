/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Verification of a received datagram's UDP checksum, as in the network stack (RFC 1122, section
 * 4.1.3.4).
 */
#ifndef HOROLOG_CHECKSUM_H
#define HOROLOG_CHECKSUM_H

#include "net.h"

/* Returns the sum of the pseudo-header, from that of its addresses. */
static __always_inline __u64 pseudo_sum(__u64 addresses, __be16 length)
{
	return addresses + bpf_htons(PROTOCOL_UDP) + length;
}

static __always_inline __u64 address_sum(const __be32 *address)
{
	return (__u64)address[0] + address[1] + address[2] + address[3];
}

/*
 * Returns true if a checksum is incomplete: the sum of the pseudo-header, for a NIC to complete. A
 * datagram from this host arrives like this over a virtual link. A complete checksum can have the
 * same value by chance; the program cannot distinguish it, and accepts it.
 */
static __always_inline bool is_partial(__u16 checksum, __u64 pseudo)
{
	return checksum == (__u16)~fold(pseudo);
}

/* Returns true if the checksum is right, partial or absent; `addresses` and `payload` are sums. */
static __always_inline bool has_valid_checksum(const struct udp *udp, __u64 addresses,
					       __u64 payload)
{
	__u64 pseudo = pseudo_sum(addresses, udp->length);
	const __u32 *words = (const void *)udp;

	return !udp->checksum || !fold(pseudo + payload + words[0] + words[1]) ||
	       is_partial(udp->checksum, pseudo);
}

/* Returns the sum of a payload whose length is known to the compiler and a multiple of 4. */
static __always_inline __u64 sum_words(const void *payload, const __u32 length)
{
	const __u32 *words = payload;
	__u64 sum = 0;
	__u32 i;

	for (i = 0; i < length / 4; i++)
		sum += words[i];
	return sum;
}

/* Adds the rest of a payload in chunks, at most `most` of them. */
#define ADD_CHUNKS(chunk, most)							\
	for (i = 0; i < (most); i++) {						\
		if (length < (chunk) || at + (chunk) > end)			\
			break;							\
		sum = bpf_csum_diff(0, 0, at, (chunk), sum);			\
		at += (chunk);							\
		length -= (chunk);						\
	}

#define CHUNK 256
#define SMALL_CHUNK 32
/* No buffer is longer than a page. */
#define CHUNKS (4096 / CHUNK)
#define PAYLOAD_OFFSET_MAX 128

/* Returns the sum of a payload of any length, `offset` bytes from the start of the frame. Not
 * static, so that the verifier checks its loops once and not for every state of every caller. */
__noinline __u64 payload_sum(struct xdp_md *ctx, __u32 offset, __u32 length)
{
	void *end = (void *)(long)ctx->data_end;
	void *at = (void *)(long)ctx->data;
	__u32 i;
	__s64 sum = 0;
	__u64 last = 0;

	if (offset > PAYLOAD_OFFSET_MAX)
		return 0;
	at += offset;
	ADD_CHUNKS(CHUNK, CHUNKS)
	ADD_CHUNKS(SMALL_CHUNK, CHUNK / SMALL_CHUNK - 1)
	ADD_CHUNKS(4, SMALL_CHUNK / 4 - 1)
	if (length & 2) {
		if (at + 2 <= end)
			last += *(__u16 *)at;
		at += 2;
	}
	if ((length & 1) && at + 1 <= end)
		last += bpf_htons((__u16)(*(__u8 *)at << 8));
	return (__u64)(__u32)sum + last;
}

#endif
