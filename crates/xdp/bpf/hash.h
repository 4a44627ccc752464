/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Keyed hash of addresses: the same as horolog_server::AddressHashKey, which documents its purpose.
 */
#ifndef HOROLOG_HASH_H
#define HOROLOG_HASH_H

#include "net.h"

/* Upper part of an IPv4 address in IPv6 notation. */
#define MAPPED (0xffffULL << 32)

#define HASH_FIRST 0xbf58476d1ce4e5b9ULL
#define HASH_SECOND 0x94d049bb133111ebULL

static __always_inline __u64 hash_words(__u64 high, __u64 low, __u64 first_key, __u64 second_key)
{
	__u64 hash = (high ^ first_key) * HASH_FIRST;

	hash = (hash ^ hash >> 32) + (low ^ second_key);
	hash = (hash ^ hash >> 32) * HASH_SECOND;
	hash = (hash ^ hash >> 29) * HASH_FIRST;
	return hash ^ hash >> 32;
}

/* Returns another hash of the same, which cannot be related to the first without the key. */
static __always_inline __u64 hash_again(__u64 hash)
{
	hash *= HASH_SECOND;
	return hash ^ hash >> 32;
}

#endif
