/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to the table: hottest and coldest of a node, and single pages. */
#include "heat_table.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/*
 * The best of what a pass over the slots offers. Where it is not known how many these are, there
 * is room for twice as many as are wanted at most; when it is full the worse half goes, and what
 * is worse than all that stay is not taken any more.
 */
struct best {
	struct rank *rank;
	size_t n;
	size_t room;
	size_t most;
	bool hottest;
	/* What is wanted comes before this: the worst that stayed, once any went. */
	struct rank worst;
};

/* What a pass looks for. */
struct question {
	/* TIERD_NODE_UNPLACED: what is of any and not lately confirmed. */
	uint8_t node;
	bool hottest;
	float least;
	const uint8_t *among;
	/* The least warmth of the hottest, the most of the coldest: of all, and in the next pass.
	 */
	unsigned int last;
	unsigned int warmth;
	/* The next warmth beyond that any slot has and that is asked for; -1 if there is none. */
	int beyond;
};

enum { FIRST_ROOM = 512 };
static const float SLACK = 0x1p-20F;

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
}

/* Room for one more; the worse half goes where there is as much as may be. */
static int make_room(struct best *best)
{
	const size_t whole = 2 * best->most;
	size_t room = best->room == 0 ? FIRST_ROOM : best->room * 2;
	struct rank *rank;

	if (best->room >= whole) {
		drop_worse(best);
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

static float idle_seconds(uint16_t tick, const struct slot *slot)
{
	if (slot->moved == 0)
		return INFINITY;
	return (float)(uint16_t)(tick - slot->moved) * (TICK_NS * 1e-9F);
}

/*
 * What the worst that stayed rules out. The limit is a little wide, for what is compared are
 * true heats, which are rounded.
 */
static uint8_t limit_of(const struct tierd_heat *heat, const struct question *question,
			const struct rank *worst)
{
	const float stored = worst->heat * heat->gain;

	if (question->hottest)
		return stored > 0.0F ? warmth_of(stored * (1.0F - SLACK)) : (uint8_t)question->last;
	return warmth_of(stored * (1.0F + SLACK));
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
		for (left[0] = bits_of(hit); left[0] != 0; left[0] &= left[0] - 1) {
			const uint64_t i = first + (unsigned int)__builtin_ctzll(left[0]);
			const struct slot *slot = &heat->slots[i];
			const struct rank item = {.heat = slot->heat * heat->inverse_gain,
						  .slot = (uint32_t)i,
						  .key = slot_key(slot)};

			if (!rank_before(hottest, &item, &worst) ||
			    (!plain && !asked_for(heat, question, slot)))
				continue;
			if (best->n == best->room) {
				if (make_room(best) != 0)
					return -ENOMEM;
				if (rank_before(hottest, &best->worst, &worst)) {
					worst = best->worst;
					warmth = limit_of(heat, question, &worst);
					if (!rank_before(hottest, &item, &worst))
						continue;
				}
			}
			best->rank[best->n++] = item;
		}
	}
	return 0;
}

static int pass(const struct tierd_heat *heat, const struct question *question, struct best *best)
{
	const bool plain = question->among == NULL && question->node != TIERD_NODE_UNPLACED;

	/* Before all that are wanted comes what is hotter than the least, or no colder than any. */
	best->worst = question->hottest ? (struct rank){.heat = question->least}
					: (struct rank){.heat = INFINITY, .key = UINT64_MAX};
	best->n = 0;
	if (!plain)
		return pass_over(heat, question, question->hottest, false, best);
	return question->hottest ? pass_over(heat, question, true, true, best)
				 : pass_over(heat, question, false, true, best);
}

/*
 * Where slots are counted by warmth, a pass need not find more than are wanted, and those that
 * share the last warmth with them. Returns how many it may find; SIZE_MAX if that is not known.
 */
static size_t narrow(const struct tierd_heat *heat, struct question *question, size_t most)
{
	const unsigned int row = counted_at(question->node);
	const int step = question->hottest ? -1 : 1;
	const int last = (int)question->last;
	int warmth = question->hottest ? WARMTHS - 1 : 0;
	size_t sum = 0;

	question->beyond = -1;
	question->warmth = question->last;
	if (row >= COUNTED || question->among != NULL)
		return SIZE_MAX;
	for (; sum < most && step * warmth <= step * last; warmth += step)
		sum += heat->warm[row][warmth];
	question->warmth = (unsigned int)(warmth - step);
	for (; step * warmth <= step * last && heat->warm[row][warmth] == 0; warmth += step)
		;
	if (step * warmth <= step * last)
		question->beyond = warmth;
	return sum;
}

/*
 * Whether a slot beyond the last warmth that was looked at could be among the best as well: what
 * is compared is rounded, so that its lower key may come before the worst of them.
 */
static bool may_be_beyond(const struct tierd_heat *heat, const struct question *question,
			  const struct best *best)
{
	float edge;

	if (question->beyond < 0 || best->n < best->most)
		return false;
	edge = warmth_edge((unsigned int)question->beyond + question->hottest) * heat->inverse_gain;
	return question->hottest ? best->rank[best->most - 1].heat <= edge
				 : best->rank[best->most - 1].heat >= edge;
}

static int sort_best(struct best *best)
{
	struct rank *spare;

	/* To find the best of them costs half as much as to sort them. */
	if (best->n > best->most + best->most / 2)
		drop_worse(best);
	if (best->n == 0)
		return 0;
	spare = malloc(best->n * sizeof(*spare));
	if (spare == NULL)
		return -ENOMEM;
	heat_rank_sort(best->hottest, best->rank, spare, best->n);
	free(spare);
	if (best->n > best->most)
		best->n = best->most;
	return 0;
}

/* The best of one warmth after another, until none beyond can be among them. */
static int find_best(const struct tierd_heat *heat, struct question *question, struct best *best)
{
	size_t wanted = best->most;

	for (;;) {
		const size_t found = narrow(heat, question, wanted);
		size_t room;
		int err;

		best->n = 0;
		if (found == 0)
			return 0;
		room = found < 2 * best->most ? found : 2 * best->most;
		if (found != SIZE_MAX && room > best->room) {
			free(best->rank);
			best->rank = malloc(room * sizeof(*best->rank));
			best->room = best->rank == NULL ? 0 : room;
			if (best->rank == NULL)
				return -ENOMEM;
		}
		err = pass(heat, question, best);
		if (err == 0)
			err = sort_best(best);
		if (err != 0 || !may_be_beyond(heat, question, best))
			return err;
		wanted = found + 1;
	}
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

/* A warmth that no page of more heat lies below. */
static unsigned int hotter_than(const struct tierd_heat *heat, float least)
{
	return least >= 0.0F ? warmth_of(fmaxf(least * heat->gain * (1.0F - SLACK), 0x1p-149F)) : 0;
}

int64_t tierd_heat_select(struct tierd_heat *heat, int node, int hottest, float min_heat,
			  const uint8_t *among, size_t n, uint64_t *page, float *value, int16_t *on,
			  uint8_t *order, float *idle_s)
{
	struct best best = {.hottest = hottest != 0,
			    .most = n < heat->tracked ? n : (size_t)heat->tracked};
	struct question question = {
	    .node = (uint8_t)node, .hottest = best.hottest, .least = min_heat, .among = among};
	const uint16_t tick = moved_tick(heat);
	int err;

	if (node == TIERD_NODE_UNPLACED && table_unplaced(heat) == of_unknown_node(heat))
		question.node = TIERD_NODE_UNKNOWN;
	question.last = best.hottest ? hotter_than(heat, min_heat) : WARMTHS - 1;
	err = best.most == 0 ? 0 : find_best(heat, &question, &best);
	for (size_t i = 0; err == 0 && i < best.n; i++) {
		const struct slot *slot = &heat->slots[best.rank[i].slot];

		page[i] = best.rank[i].key;
		value[i] = best.rank[i].heat;
		on[i] = slot->node == TIERD_NODE_UNKNOWN ? -1 : slot->node;
		order[i] = slot_huge(slot) ? HUGE_ORDER : 0;
		idle_s[i] = idle_seconds(tick, slot);
	}
	free(best.rank);
	return err == 0 ? (int64_t)best.n : err;
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

int tierd_heat_lookup(struct tierd_heat *heat, uint64_t page, float *value, int16_t *node,
		      uint8_t *order, float *idle_s)
{
	const struct slot *slot = table_find(heat, page, hash_key(page));

	if (slot == NULL)
		return -ENOENT;
	*value = slot->heat * heat->inverse_gain;
	*node = slot->node == TIERD_NODE_UNKNOWN ? -1 : slot->node;
	*order = slot_huge(slot) ? HUGE_ORDER : 0;
	*idle_s = idle_seconds(moved_tick(heat), slot);
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
