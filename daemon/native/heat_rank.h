/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of slots by stored heat, which is in the order of the true one, and then by key. */
#ifndef TIERD_HEAT_RANK_H
#define TIERD_HEAT_RANK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * A selected slot. Heat is never negative, so that its bits are in the order of its values: `order`
 * is these, inverted where the hottest come first.
 */
struct rank {
	uint32_t order;
	uint32_t slot;
	uint64_t key;
};

static inline uint32_t order_of(bool hottest, float heat)
{
	uint32_t bits;

	memcpy(&bits, &heat, sizeof(bits));
	return hottest ? ~bits : bits;
}

/* Whether `a` comes before `b` in the answer. */
static inline bool rank_before(const struct rank *a, const struct rank *b)
{
	return a->order != b->order ? a->order < b->order : a->key < b->key;
}

/* `spare` has space for as many; `by_key`: their heat is equal. */
void rank_sort(struct rank *rank, struct rank *spare, size_t n, bool by_key);
/* Put the best `most` first, in any order. */
void rank_select(struct rank *rank, size_t n, size_t most);

#endif
