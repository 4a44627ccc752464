/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Conversion of a request's NTP header into the reply's: with the time, from a clock page, or into
 * a kiss. Equivalent to horolog_server::decide and its reply; a test compares the two.
 */
#ifndef HOROLOG_REPLY_H
#define HOROLOG_REPLY_H

#include "abi.h"
#include "clock.h"
#include "net.h"

/* Lowest bit of a timestamp: 0 in every receive timestamp, 1 in every transmit timestamp. */
#define ODD bpf_cpu_to_be64(1)

#define MODE_SYMMETRIC_ACTIVE 1
#define MODE_CLIENT 3

/* Returns true if the request is in symmetric active mode. */
static __always_inline bool is_symmetric(const struct ntp *ntp)
{
	return (ntp->leap_version_mode & 7) == MODE_SYMMETRIC_ACTIVE;
}

/*
 * Turns the request's NTP header into the reply's and returns the sum of its words, or 0 if no time
 * can be served. The words are summed as they are written, each once.
 *
 * The clock is read once, and the reading stands for receipt and transmission alike. Some 50 ns lie
 * between the two, less than the uncertainty of either: the frame arrived before the driver's poll
 * began and is sent when it ends. A second reading would take longer than the rest of the reply.
 */
static __always_inline __u64 write_reply(struct ntp *ntp, const struct responder_state *own,
					 const struct clock_page *page, __u64 now_ns)
{
	/* The destination was just looked up, so its timeline is known. */
	const struct clock_slot *slot =
		&page->slots[READ_ONCE(page->active) & 1][own->known_timeline & 1];
	__u64 sequence = READ_ONCE(slot->sequence);
	__u8 leap = slot->leap;
	__be64 now;
	__u64 sum;

	if (now_ns >= slot->expires_ns)
		return 0;
	if (now_ns >= slot->step_at_ns)
		leap = slot->leap_after;
	now = bpf_cpu_to_be64(ntp_at(slot, now_ns));
	/* Client is answered by server, symmetric active by passive: the next mode each. */
	ntp->leap_version_mode = leap << 6 | ((ntp->leap_version_mode & 0x3f) + 1);
	ntp->stratum = slot->stratum;
	ntp->precision = slot->precision;
	ntp->root_delay = slot->root_delay;
	ntp->root_dispersion = slot->root_dispersion;
	ntp->reference_id = slot->reference_id;
	ntp->reference = slot->reference;
	ntp->origin = ntp->transmit;
	ntp->receive = now & ~ODD;
	ntp->transmit = now | ODD;
	/* If the slot changed meanwhile, the frame is left with a wrong checksum, so that it is not
	 * answered. */
	if ((sequence & 1) || READ_ONCE(slot->sequence) != sequence)
		return 0;
	sum = *(__u32 *)ntp;
	sum += slot->root_delay;
	sum += slot->root_dispersion;
	sum += slot->reference_id;
	sum += sum64(slot->reference);
	sum += sum64(ntp->origin);
	return sum + 2 * sum64(now & ~ODD) + sum64(ODD);
}

/* Turns the reply in `ntp` into a kiss (RFC 5905, section 7.4) and returns the new sum. */
static __always_inline __u64 write_kiss(struct ntp *ntp, enum admission code)
{
	__u64 sum = 0;
	__u32 i;

	ntp->leap_version_mode |= 3 << 6;
	ntp->stratum = 0;
	ntp->root_delay = 0;
	ntp->root_dispersion = 0;
	ntp->reference_id = bpf_htonl(code == KISS_RATE ? 0x52415445 : 0x44454e59);
	ntp->reference = 0;
	for (i = 0; i < NTP_LEN / 4; i++)
		sum += ((__u32 *)ntp)[i];
	return sum;
}

#endif
