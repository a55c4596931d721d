/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queries of the table: the hottest and the coldest of a node, and single pages.
 *
 * A pass over all slots finds what matches, many at a time, by their tags. Where slots are counted
 * by warmth, it passes over what cannot be among the best. What is left is sorted.
 */
#include "heat_rank.h"
#include "heat_table.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { LEAST_ROOM = 1024, SAMPLE = 256 };

/* True heat is stored heat times a gain, with a relative rounding error below this. */
static const float SLACK = 0x1p-20F;

/* A question, and its best matches so far: when there is no room for more, the worse half goes. */
struct query {
	/* TIERD_NODE_UNPLACED: what is of any and not lately confirmed. */
	uint8_t node;
	bool hottest;
	/* Huge folios only. */
	bool huge;
	const uint8_t *among;
	/* Colder slots, or hotter ones where the coldest are asked for, are passed over. */
	uint8_t warmth;
	/* All that are wanted come before it. */
	struct rank worst;
	struct rank *rank;
	size_t n;
	size_t room;
	size_t most;
	/* A pass ends when it has so many. */
	size_t enough;
};

/* Keep the best `most`: there are more. Worse ones are not taken any more. */
static void drop_worse(struct query *query)
{
	uint32_t bits;
	float stored;

	rank_select(query->rank, query->n, query->most);
	query->n = query->most;
	query->worst = query->rank[0];
	for (size_t i = 1; i < query->n; i++) {
		if (rank_before(&query->worst, &query->rank[i]))
			query->worst = query->rank[i];
	}
	bits = query->hottest ? ~query->worst.order : query->worst.order;
	memcpy(&stored, &bits, sizeof(stored));
	query->warmth = warmth_of(stored);
}

/* What the tags do not tell. */
static inline bool asked_for(const struct tierd_heat *heat, const struct query *query,
			     const struct slot *slot)
{
	if (query->among != NULL && query->among[key_target(slot_key(slot))] == 0)
		return false;
	if (query->huge && !slot_huge(slot))
		return false;
	return query->node != TIERD_NODE_UNPLACED || slot_unplaced(heat, slot);
}

static inline void take(const struct tierd_heat *heat, struct query *query, uint64_t i,
			bool hottest, bool plain)
{
	const struct slot *slot = &heat->slots[i];
	const struct rank item = {order_of(hottest, slot->heat), (uint32_t)i, slot_key(slot)};

	if (!rank_before(&item, &query->worst) || (!plain && !asked_for(heat, query, slot)))
		return;
	if (query->n == query->room) {
		drop_worse(query);
		if (!rank_before(&item, &query->worst))
			return;
	}
	query->rank[query->n++] = item;
}

typedef uint8_t bytes __attribute__((vector_size(16)));
enum { AT_ONCE = sizeof(bytes), PARTS = TAGS_AT_ONCE / AT_ONCE };

/* A bit for each byte that matches. */
static inline uint64_t bits_of(bytes hit)
{
#ifdef __SSE2__
	return (unsigned int)_mm_movemask_epi8((__m128i)hit);
#else
	uint64_t bits = 0;

	for (unsigned int i = 0; i < AT_ONCE; i++)
		bits |= (uint64_t)(hit[i] & 1) << i;
	return bits;
#endif
}

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

/* Most slots are passed over, many at a time, by their tags. `plain`: these tell all. */
__attribute__((always_inline)) static inline void
pass_over(struct tierd_heat *heat, struct query *query, bool hottest, bool plain)
{
	uint64_t first;

	for (first = 0; first < slot_count(heat) && query->n < query->enough;
	     first += TAGS_AT_ONCE) {
		uint64_t left = 0;

#pragma GCC unroll 4
		for (unsigned int i = 0; i < PARTS; i++)
			left |= bits_of(matches(heat, first + AT_ONCE * i, query->node, hottest,
						plain, query->warmth))
				<< (AT_ONCE * i);
		for (; left != 0; left &= left - 1)
			take(heat, query, first + (unsigned int)__builtin_ctzll(left), hottest,
			     plain);
	}
	heat->stats.compared += first;
}

/*
 * Where slots are counted, finds the warmth beyond which none is wanted. Returns how many a pass
 * finds, SIZE_MAX if that is not known.
 */
static size_t narrow(const struct tierd_heat *heat, struct query *query)
{
	const unsigned int row = counted_at(query->node);
	const uint8_t last = query->warmth;
	size_t sum;

	if (row >= COUNTED || query->among != NULL || query->huge)
		return SIZE_MAX;
	query->warmth = query->hottest ? WARMTHS - 1 : 0;
	for (sum = heat->warm[row][query->warmth]; sum < query->most && query->warmth != last;
	     sum += heat->warm[row][query->warmth])
		query->warmth = (uint8_t)(query->warmth + (query->hottest ? -1 : 1));
	return sum;
}

static void pass(struct tierd_heat *heat, struct query *query, size_t enough)
{
	query->n = 0;
	query->enough = enough;
	if (query->among != NULL || query->huge || query->node == TIERD_NODE_UNPLACED)
		pass_over(heat, query, query->hottest, false);
	else if (query->hottest)
		pass_over(heat, query, true, true);
	else
		pass_over(heat, query, false, true);
}

/*
 * Of many more than are wanted, `found`, some tell what the wanted ones come before, but for
 * chance (Floyd and Rivest, 1975). Slots lie in the order of their hashes: any are a sample.
 */
static bool guess_worst(struct tierd_heat *heat, struct query *query, size_t found)
{
	const float share = (float)query->most / (float)found * (float)SAMPLE;
	const size_t at = (size_t)(share + 2.0F * sqrtf(share)) + 2;

	if (found == SIZE_MAX || at >= SAMPLE || query->room < SAMPLE + TAGS_AT_ONCE)
		return false;
	pass(heat, query, SAMPLE);
	if (query->n < SAMPLE)
		return false;
	rank_sort(query->rank, query->rank + query->room, query->n, false);
	query->worst = query->rank[at];
	return true;
}

/* `in_order`: sort them, though they be no more than are wanted. */
static int find(struct tierd_heat *heat, struct query *query, bool in_order)
{
	const struct rank worst = query->worst;
	const size_t found = narrow(heat, query);

	query->room = 2 * query->most > LEAST_ROOM ? 2 * query->most : LEAST_ROOM;
	if (query->room > found)
		query->room = found;
	if (query->room == 0 || query->most == 0)
		return 0;
	/* The second half is for sorting. */
	query->rank = malloc(2 * query->room * sizeof(*query->rank));
	if (query->rank == NULL)
		return -ENOMEM;
	if (guess_worst(heat, query, found)) {
		pass(heat, query, SIZE_MAX);
		if (query->n < query->most)
			query->worst = worst;
	}
	if (query->n < query->most || query->enough != SIZE_MAX)
		pass(heat, query, SIZE_MAX);
	/* To find the best of them costs half as much as to sort them. */
	if (query->n > query->most + (in_order ? query->most / 2 : 0))
		drop_worse(query);
	if (in_order)
		rank_sort(query->rank, query->rank + query->room, query->n, false);
	if (query->n > query->most)
		query->n = query->most;
	return 0;
}

float tierd_heat_least(struct tierd_heat *heat, int node)
{
	struct query query = {.node = (uint8_t)node,
			      .warmth = WARMTHS - 1,
			      .worst = {UINT32_MAX, 0, UINT64_MAX},
			      .most = 1};
	float least = INFINITY;

	if (counted_at(query.node) < COUNTED && heat->warm[counted_at(query.node)][0] > 0)
		return 0.0F;
	if (find(heat, &query, true) == 0 && query.n > 0)
		least = heat->slots[query.rank[0].slot].heat * heat->inverse_gain;
	free(query.rank);
	return least;
}

/* Slots whose node is not known: all that are unplaced, where no place is old. */
static uint64_t of_unknown_node(const struct tierd_heat *heat)
{
	const uint32_t *warm = heat->warm[counted_at(TIERD_NODE_UNKNOWN)];
	uint64_t sum = 0;

	for (unsigned int warmth = 0; warmth < WARMTHS; warmth++)
		sum += warm[warmth];
	return sum;
}

/* What a question tells of a folio, at place `i` of its answer. */
static inline void tell(const struct tierd_heat *heat, uint16_t tick, const struct slot *slot,
			size_t i, float *value, int16_t *node, uint8_t *order, float *idle_s)
{
	value[i] = slot->heat * heat->inverse_gain;
	node[i] = slot->node == TIERD_NODE_UNKNOWN ? -1 : slot->node;
	order[i] = slot_huge(slot) ? HUGE_ORDER : 0;
	idle_s[i] =
	    slot->moved == 0 ? INFINITY : (float)(uint16_t)(tick - slot->moved) * (TICK_NS * 1e-9F);
}

int64_t tierd_heat_select(struct tierd_heat *heat, int node, int hottest, int huge, float min_heat,
			  const uint8_t *among, size_t n, uint64_t *page, float *value, int16_t *on,
			  uint8_t *order, float *idle_s)
{
	struct query query = {.node = (uint8_t)node,
			      .hottest = hottest != 0,
			      .huge = huge != 0,
			      .among = among,
			      .warmth = hottest ? 0 : WARMTHS - 1,
			      .worst = {UINT32_MAX, 0, UINT64_MAX},
			      .most = n < heat->stats.tracked ? n : (size_t)heat->stats.tracked};
	const uint16_t tick = moved_tick(heat);
	size_t told = 0;
	int err;

	if (node == TIERD_NODE_UNPLACED && table_unplaced(heat) == of_unknown_node(heat))
		query.node = TIERD_NODE_UNKNOWN;
	if (query.huge && query.most > heat->stats.huge)
		query.most = heat->stats.huge;
	/* Least heat below 0 leaves nothing out. */
	if (query.hottest && min_heat >= 0.0F) {
		const float stored = fabsf(min_heat) * heat->gain * (1.0F - SLACK);

		query.worst = (struct rank){.order = order_of(true, stored)};
		query.warmth = warmth_of(fmaxf(stored, 0x1p-149F));
	}
	/* Where pages are is asked of all of them together, in any order. */
	err = find(heat, &query, node != TIERD_NODE_UNPLACED);
	for (size_t i = 0; i < query.n; i++) {
		const struct slot *slot = &heat->slots[query.rank[i].slot];

		if (query.hottest && slot->heat * heat->inverse_gain <= min_heat)
			continue;
		page[told] = query.rank[i].key;
		tell(heat, tick, slot, told++, value, on, order, idle_s);
	}
	free(query.rank);
	return err == 0 ? (int64_t)told : err;
}

int tierd_heat_lookup(struct tierd_heat *heat, uint64_t page, float *value, int16_t *node,
		      uint8_t *order, float *idle_s)
{
	const struct slot *slot = table_find(heat, page);

	if (slot == NULL)
		return -ENOENT;
	tell(heat, moved_tick(heat), slot, 0, value, node, order, idle_s);
	return 0;
}

void tierd_heat_where(struct tierd_heat *heat, const uint64_t *page, size_t n, int16_t *node)
{
	for (size_t i = 0; i < n; i++) {
		const struct slot *slot = table_folio(heat, page[i]);

		node[i] = slot == NULL || slot->node == TIERD_NODE_UNKNOWN ? -1 : slot->node;
	}
}

void tierd_heat_of(struct tierd_heat *heat, const uint64_t *page, size_t n, float *value)
{
	for (size_t i = 0; i < n; i++) {
		const struct slot *slot = table_folio(heat, page[i]);

		value[i] = slot == NULL ? 0.0F : slot->heat * heat->inverse_gain;
		if (slot != NULL && slot_huge(slot))
			value[i] *= (float)HUGE_PAGES;
	}
}
