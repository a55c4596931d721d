/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Access histories of eight pages at a time: one byte a page in a 64-bit word, page n in
 * byte n. Nothing here needs the kernel; tests/unit/kmod compares it with a model.
 */
#ifndef TIERD_BITS_H
#define TIERD_BITS_H

#include <linux/types.h>

/* Bit n of a byte becomes the highest bit of byte n. */
static inline __u64 tierd_spread(__u8 bits)
{
	__u64 each = bits * 0x0101010101010101ull & 0x8040201008040201ull;

	return (each + 0x7f7f7f7f7f7f7f7full) & 0x8080808080808080ull;
}

/*
 * Ages the histories of those eight pages that are ours and adds this scan's bits. Pages
 * that are not present lose theirs: what is mapped there later is another page. Returns
 * the histories of ours.
 */
static inline __u64 tierd_history_age(__u8 *history, __u8 accessed, __u8 present, __u8 ours)
{
	__u64 *word = (__u64 *)history;
	__u64 aged = (*word >> 1) & 0x7f7f7f7f7f7f7f7full;
	__u64 mask = (tierd_spread(ours) >> 7) * 0xff;

	aged |= tierd_spread(accessed);
	if (present != 0xff)
		aged &= (tierd_spread(present) >> 7) * 0xff;
	aged &= mask;
	*word = (*word & ~mask) | aged;
	return aged;
}

/* Which of eight histories have at least `least` bits set: one bit each. */
static inline __u8 tierd_history_seen(__u64 histories, unsigned int least)
{
	__u64 count = histories - ((histories >> 1) & 0x5555555555555555ull);

	count = (count & 0x3333333333333333ull) + ((count >> 2) & 0x3333333333333333ull);
	count = (count + (count >> 4)) & 0x0f0f0f0f0f0f0f0full;
	count += (0x80 - least) * 0x0101010101010101ull;
	/* The high bit of byte n to bit n. */
	return ((count & 0x8080808080808080ull) >> 7) * 0x0102040810204080ull >> 56;
}

#endif
