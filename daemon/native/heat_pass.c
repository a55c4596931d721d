/* SPDX-License-Identifier: Apache-2.0 */
/* Passes over all slots, by their tags; what they find is kept within bounds. */
#include "heat_pass.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { FIRST_ROOM = 512 };

/* Put the best `most` first, in any order (Hoare's selection). */
static void select_most(struct best *best)
{
	struct rank *rank = best->rank;
	size_t low = 0, high = best->n - 1;

	while (low < high) {
		const struct rank pivot = rank[low + (high - low) / 2];
		size_t i = low, j = high;

		for (;;) {
			struct rank swap;

			while (rank_before(&rank[i], &pivot))
				i++;
			while (rank_before(&pivot, &rank[j]))
				j--;
			if (i >= j)
				break;
			swap = rank[i];
			rank[i++] = rank[j];
			rank[j--] = swap;
		}
		/* All up to j are no worse than all behind it. */
		if (j == high)
			j--;
		if (j >= best->most)
			high = j;
		else
			low = j + 1;
	}
}

void heat_drop_worse(struct best *best)
{
	select_most(best);
	best->n = best->most;
	best->worst = best->rank[0];
	for (size_t i = 1; i < best->n; i++) {
		if (rank_before(&best->worst, &best->rank[i]))
			best->worst = best->rank[i];
	}
}

/* Room for one more; the worse half goes where there is as much as may be. */
static int make_room(struct best *best)
{
	const size_t whole = 2 * best->most;
	size_t room = best->room == 0 ? FIRST_ROOM : best->room * 2;
	struct rank *rank;

	if (best->room >= whole) {
		heat_drop_worse(best);
		return 0;
	}
	room = room < whole ? room : whole;
	rank = realloc(best->rank, room * sizeof(*rank));
	if (rank == NULL)
		return -ENOMEM;
	best->rank = rank;
	best->room = room;
	return 0;
}

/*
 * What the worst that stayed rules out. The limit is a little wide, for what is compared are
 * true heats, which are rounded.
 */
static uint8_t limit_of(const struct tierd_heat *heat, const struct question *question,
			const struct rank *worst)
{
	const float stored = rank_heat(question->hottest, worst) * heat->gain;

	if (question->hottest)
		return stored > 0.0F ? warmth_of(stored * (1.0F - HEAT_SLACK))
				     : (uint8_t)question->last;
	return warmth_of(stored * (1.0F + HEAT_SLACK));
}

typedef uint8_t bytes __attribute__((vector_size(16)));
enum { AT_ONCE = sizeof(bytes), PARTS = TAGS_AT_ONCE / AT_ONCE };

/* Which slots are of the node and warm, or cold, enough. */
static inline bytes matches(const struct tierd_heat *heat, uint64_t first, uint8_t node,
			    bool hottest, bool plain, uint8_t warmth)
{
	const bytes nodes = *(const bytes *)(const void *)(heat->tags.node + first);
	const bytes warm = *(const bytes *)(const void *)(heat->tags.warmth + first);
	/* A free slot has the number of what is unplaced. */
	const bytes here =
	    !plain && node == TIERD_NODE_UNPLACED ? (bytes)(nodes != node) : (bytes)(nodes == node);

	return here & (hottest ? (bytes)(warm >= warmth) : (bytes)(warm <= warmth));
}

/* A bit each. */
static inline uint64_t bits_of(const bytes *hit)
{
	uint64_t bits = 0;

#pragma GCC unroll 4
	for (unsigned int i = 0; i < PARTS; i++) {
#ifdef __SSE2__
		bits |= (uint64_t)(unsigned int)_mm_movemask_epi8((__m128i)hit[i]) << (AT_ONCE * i);
#else
		for (unsigned int j = 0; j < AT_ONCE; j++)
			bits |= (uint64_t)(hit[i][j] & 1) << (AT_ONCE * i + j);
#endif
	}
	return bits;
}

/* What the tags do not tell. */
static inline bool asked_for(const struct tierd_heat *heat, const struct question *question,
			     const struct slot *slot)
{
	if (question->among != NULL && question->among[key_target(slot_key(slot))] == 0)
		return false;
	if (question->huge && !slot_huge(slot))
		return false;
	return question->node != TIERD_NODE_UNPLACED || slot_unplaced(heat, slot);
}

/* Most slots are passed over, many at a time, by their tags. `plain`: these tell all. */
__attribute__((always_inline)) static inline int pass_over(const struct tierd_heat *heat,
							   const struct question *question,
							   bool hottest, bool plain,
							   struct best *best)
{
	const uint8_t node = question->node;
	uint8_t warmth = (uint8_t)question->warmth;
	struct rank worst = best->worst;

	for (uint64_t first = 0; first < slot_count(heat); first += TAGS_AT_ONCE) {
		bytes hit[PARTS], any = {0};
		uint64_t left[2];

#pragma GCC unroll 4
		for (unsigned int i = 0; i < PARTS; i++) {
			hit[i] = matches(heat, first + AT_ONCE * i, node, hottest, plain, warmth);
			any |= hit[i];
		}
		memcpy(left, &any, sizeof(left));
		if ((left[0] | left[1]) == 0)
			continue;
		if (best->n >= best->enough)
			break;
		for (left[0] = bits_of(hit); left[0] != 0; left[0] &= left[0] - 1) {
			const uint64_t i = first + (unsigned int)__builtin_ctzll(left[0]);
			const struct slot *slot = &heat->slots[i];
			const struct rank item = {
			    .order = order_of(hottest, slot->heat * heat->inverse_gain),
			    .slot = (uint32_t)i,
			    .key = slot_key(slot)};

			if (!rank_before(&item, &worst) ||
			    (!plain && !asked_for(heat, question, slot)))
				continue;
			if (best->n == best->room) {
				if (make_room(best) != 0)
					return -ENOMEM;
				if (rank_before(&best->worst, &worst)) {
					worst = best->worst;
					warmth = limit_of(heat, question, &worst);
					if (!rank_before(&item, &worst))
						continue;
				}
			}
			best->rank[best->n++] = item;
		}
	}
	return 0;
}

int heat_pass(const struct tierd_heat *heat, const struct question *question, struct best *best)
{
	const bool plain =
	    question->among == NULL && !question->huge && question->node != TIERD_NODE_UNPLACED;

	best->n = 0;
	if (!plain)
		return pass_over(heat, question, question->hottest, false, best);
	return question->hottest ? pass_over(heat, question, true, true, best)
				 : pass_over(heat, question, false, true, best);
}

float tierd_heat_least(struct tierd_heat *heat, int node)
{
	const unsigned int row = counted_at((uint8_t)node);
	unsigned int warmth = 0, most = WARMTHS - 1;
	float least = INFINITY;

	if (row < COUNTED) {
		while (warmth < WARMTHS && heat->warm[row][warmth] == 0)
			warmth++;
		if (warmth == 0)
			return 0.0F;
		if (warmth == WARMTHS)
			return INFINITY;
		most = warmth;
	}
	for (uint64_t first = 0; first < slot_count(heat); first += AT_ONCE) {
		const bytes hit = matches(heat, first, (uint8_t)node, false, true, (uint8_t)most);
		uint64_t hits[2];

		memcpy(hits, &hit, sizeof(hits));
		if ((hits[0] | hits[1]) == 0)
			continue;
		for (unsigned int i = 0; i < AT_ONCE; i++)
			if (hit[i] != 0 && heat->slots[first + i].heat < least)
				least = heat->slots[first + i].heat;
	}
	return least * heat->inverse_gain;
}
