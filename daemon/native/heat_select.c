/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to the table: hottest and coldest of a node, and single pages. */
#include "heat_table.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 * The best of what a pass over the slots offers. There is room for twice as many as are wanted;
 * when it is full the worse half goes, and what is worse than all that stay is not taken any more.
 */
struct best {
	struct rank *rank;
	size_t n;
	size_t room;
	size_t most;
	bool hottest;
	/* The worst that stayed, once any went. */
	bool full;
	struct rank worst;
};

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

			while (rank_before(best->hottest, &rank[i], &pivot))
				i++;
			while (rank_before(best->hottest, &pivot, &rank[j]))
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

static void drop_worse(struct best *best)
{
	select_most(best);
	best->n = best->most;
	best->worst = best->rank[0];
	for (size_t i = 1; i < best->n; i++) {
		if (rank_before(best->hottest, &best->worst, &best->rank[i]))
			best->worst = best->rank[i];
	}
	best->full = true;
}

static int offer(struct best *best, struct rank item)
{
	if (best->full && !rank_before(best->hottest, &item, &best->worst))
		return 0;
	if (best->n == best->room) {
		const size_t whole = 2 * best->most;
		size_t room = best->room == 0 ? FIRST_ROOM : best->room * 2;
		struct rank *rank;

		if (best->room == whole) {
			drop_worse(best);
		} else {
			room = room < whole ? room : whole;
			rank = realloc(best->rank, room * sizeof(*rank));
			if (rank == NULL)
				return -ENOMEM;
			best->rank = rank;
			best->room = room;
		}
	}
	best->rank[best->n++] = item;
	return 0;
}

static float idle_seconds(const struct tierd_heat *heat, const struct slot *slot)
{
	if (slot->moved == 0)
		return INFINITY;
	return (float)(uint16_t)(moved_tick(heat) - slot->moved) * (TICK_NS * 1e-9F);
}

/*
 * A stored heat that no page which is wanted lies beyond: below it for the hottest, above it
 * for the coldest. It is a little wide, for what is compared are true heats, which are rounded.
 */
static float limit_of(const struct tierd_heat *heat, const struct best *best, float least)
{
	const float slack = 0x1p-20F;
	float limit = least * heat->gain;

	if (best->hottest) {
		if (best->full && best->worst.heat > least)
			limit = best->worst.heat * heat->gain;
		if (least >= 0.0F)
			return fmaxf(limit * (1.0F - slack), 0x1p-149F);
		return limit;
	}
	return best->full ? best->worst.heat * heat->gain * (1.0F + slack) : INFINITY;
}

static int offer_slot(const struct tierd_heat *heat, uint64_t i, float least, const uint8_t *among,
		      struct best *best)
{
	const struct slot *slot = &heat->slots[i];
	struct rank item = {
	    .heat = slot->heat * heat->inverse_gain, .key = slot_key(slot), .slot = i};

	if (best->hottest && !(item.heat > least))
		return 0;
	if (among != NULL && among[key_target(item.key)] == 0)
		return 0;
	return offer(best, item);
}

typedef uint8_t bytes __attribute__((vector_size(TAGS_AT_ONCE)));

/* Which of sixteen slots are of the node and warm, or cold, enough: a bit each, eight apart. */
static inline void matches(const struct tierd_heat *heat, uint64_t first, uint8_t node,
			   const struct best *best, uint8_t warmth, uint64_t *hits)
{
	const uint64_t ones = UINT64_C(0x0101010101010101);
	const bytes *nodes = (const void *)(heat->tags.node + first);
	const bytes *warm = (const void *)(heat->tags.warmth + first);
	bytes hit;

	hit = (bytes)(*nodes == node) &
	      (best->hottest ? (bytes)(*warm >= warmth) : (bytes)(*warm <= warmth));
	memcpy(hits, &hit, sizeof(hit));
	hits[0] &= ones;
	hits[1] &= ones;
}

/* Most slots are passed over, sixteen at a time, by their tags. */
static int pass_of_node(const struct tierd_heat *heat, uint8_t node, float least,
			const uint8_t *among, struct best *best)
{
	uint8_t warmth = warmth_of(limit_of(heat, best, least));

	for (uint64_t first = 0; first < slot_count(heat); first += TAGS_AT_ONCE) {
		uint64_t hits[2];

		matches(heat, first, node, best, warmth, hits);
		if ((hits[0] | hits[1]) == 0)
			continue;
		for (unsigned int half = 0; half < 2; half++) {
			for (; hits[half] != 0; hits[half] &= hits[half] - 1) {
				unsigned int at = (unsigned int)__builtin_ctzll(hits[half]) / 8;
				int err =
				    offer_slot(heat, first + 8 * half + at, least, among, best);

				if (err != 0)
					return err;
			}
		}
		if (best->full)
			warmth = warmth_of(limit_of(heat, best, least));
	}
	return 0;
}

static int pass_of_unplaced(const struct tierd_heat *heat, float least, const uint8_t *among,
			    struct best *best)
{
	uint64_t left = table_unplaced(heat);

	for (uint64_t i = 0; left > 0 && i < slot_count(heat); i++) {
		int err;

		if (!slot_used(&heat->slots[i]) || !slot_unplaced(heat, &heat->slots[i]))
			continue;
		left--;
		err = offer_slot(heat, i, least, among, best);
		if (err != 0)
			return err;
	}
	return 0;
}

int64_t tierd_heat_select(struct tierd_heat *heat, int node, int hottest, float min_heat,
			  const uint8_t *among, size_t n, uint64_t *page, float *value, int16_t *on,
			  uint8_t *order, float *idle_s)
{
	struct best best = {.hottest = hottest != 0,
			    .most = n < heat->tracked ? n : (size_t)heat->tracked};
	int err;

	if (best.most == 0)
		return 0;
	err = node == TIERD_NODE_UNPLACED
		  ? pass_of_unplaced(heat, min_heat, among, &best)
		  : pass_of_node(heat, (uint8_t)node, min_heat, among, &best);
	if (best.n > best.most)
		drop_worse(&best);
	if (err == 0)
		err = heat_rank_sort(best.hottest, best.rank, best.n);
	for (size_t i = 0; err == 0 && i < best.n; i++) {
		const struct slot *slot = &heat->slots[best.rank[i].slot];

		page[i] = slot_key(slot);
		value[i] = best.rank[i].heat;
		on[i] = slot->node == TIERD_NODE_UNKNOWN ? -1 : slot->node;
		order[i] = slot_huge(slot) ? HUGE_ORDER : 0;
		idle_s[i] = idle_seconds(heat, slot);
	}
	free(best.rank);
	return err == 0 ? (int64_t)best.n : err;
}

int tierd_heat_lookup(struct tierd_heat *heat, uint64_t page, float *value, int16_t *node,
		      uint8_t *order, float *idle_s)
{
	const struct slot *slot = table_find(heat, page, hash_key(page));

	if (slot == NULL)
		return -ENOENT;
	*value = slot->heat * heat->inverse_gain;
	*node = slot->node == TIERD_NODE_UNKNOWN ? -1 : slot->node;
	*order = slot_huge(slot) ? HUGE_ORDER : 0;
	*idle_s = idle_seconds(heat, slot);
	return 0;
}

void tierd_heat_where(struct tierd_heat *heat, const uint64_t *page, size_t n, int16_t *node)
{
	for (size_t i = 0; i < n; i++) {
		const struct slot *slot = NULL;
		uint64_t head = key_head(page[i]);

		if (heat->huge != 0 && filter_hit(heat, page[i]))
			slot = table_find(heat, head, hash_key(head));
		if (slot == NULL || !slot_huge(slot))
			slot = table_find(heat, page[i], hash_key(page[i]));
		node[i] = slot == NULL || slot->node == TIERD_NODE_UNKNOWN ? -1 : slot->node;
	}
}
