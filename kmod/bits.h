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
	__u64 aged = ((*word >> 1) & 0x7f7f7f7f7f7f7f7full) | tierd_spread(accessed);
	__u64 mask;

	/* Nearly always. */
	if ((present & ours) == 0xff) {
		*word = aged;
		return aged;
	}
	mask = (tierd_spread(ours) >> 7) * 0xff;
	aged &= mask & (tierd_spread(present) >> 7) * 0xff;
	*word = (*word & ~mask) | aged;
	return aged;
}

/* How many bits each of eight histories has: one byte each. */
static inline __u64 tierd_history_count(__u64 histories)
{
	__u64 count = histories - ((histories >> 1) & 0x5555555555555555ull);

	count = (count & 0x3333333333333333ull) + ((count >> 2) & 0x3333333333333333ull);
	return (count + (count >> 4)) & 0x0f0f0f0f0f0f0f0full;
}

/* Pages of eight that the three scans before the last one found accessed: high bits of bytes. */
static inline __u64 tierd_history_steady(__u64 histories)
{
	return ((histories & 0x7070707070707070ull) + 0x1010101010101010ull) &
	       0x8080808080808080ull;
}

/* How many high bits of bytes are set, of a word that has no others. */
static inline unsigned int tierd_marks(__u64 marks)
{
	return (marks >> 7) * 0x0101010101010101ull >> 56;
}

/* What tierd_history_reach() asks of counts: that they are `least` or more. */
static inline __u64 tierd_history_least(unsigned int least)
{
	return (0x80 - least) * 0x0101010101010101ull;
}

/* Which of eight counts are enough: one bit each. */
static inline __u8 tierd_history_reach(__u64 count, __u64 least)
{
	/* The high bit of byte n to bit n. */
	return (((count + least) & 0x8080808080808080ull) >> 7) * 0x0102040810204080ull >> 56;
}

#endif
