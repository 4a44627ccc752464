/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * The keyed hash of addresses: the same as horolog_server::HashKey, which says what it is good for.
 */
#ifndef HOROLOG_HASH_H
#define HOROLOG_HASH_H

#include "net.h"

/* What stands above an IPv4 address when it is written as an IPv6 one. */
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

/* Another hash of the same, which nobody can relate to the first without the key. */
static __always_inline __u64 hash_again(__u64 hash)
{
	hash *= HASH_SECOND;
	return hash ^ hash >> 32;
}

#endif
