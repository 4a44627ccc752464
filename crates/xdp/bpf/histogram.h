/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Recording of a value in the histogram of abi.h.
 */
#ifndef HOROLOG_HISTOGRAM_H
#define HOROLOG_HISTOGRAM_H

#include "net.h"
#include "abi.h"

/* Returns the index of the bucket of a value of at most HISTOGRAM_MAX, as in
 * horolog_stats::buckets: with s = floor(log2(value | 128)) - 7, the index is s * 128 + (value >>
 * s). */
static __always_inline __u32 bucket_of(__u64 value)
{
	__u32 shift = 0;
	__u64 wide = value >> 8;	/* shift is the number of bits of this */

	/* BPF has no instruction that counts leading zeroes. */
	if (wide >> 16) { shift += 16; wide >>= 16; }
	if (wide >> 8) { shift += 8; wide >>= 8; }
	if (wide >> 4) { shift += 4; wide >>= 4; }
	if (wide >> 2) { shift += 2; wide >>= 2; }
	if (wide >> 1) { shift += 1; wide >>= 1; }
	shift += wide;
	return shift * 128 + (value >> shift);
}

static __always_inline void record(struct histogram *histogram, __u64 value)
{
	__u32 bucket;

	if (value > HISTOGRAM_MAX)
		value = HISTOGRAM_MAX;
	bucket = bucket_of(value);
	/* The bound must be verified on the very register that indexes. */
	barrier_var(bucket);
	if (bucket >= HISTOGRAM_BUCKETS)
		return;
	histogram->buckets[bucket]++;
	histogram->count++;
	histogram->sum += value;
	if (value < histogram->min)
		histogram->min = value;
	if (value > histogram->max)
		histogram->max = value;
}

#endif
