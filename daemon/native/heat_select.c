/* SPDX-License-Identifier: Apache-2.0 */
/* Queries of the table: hottest and coldest of a node, and single pages. */
#include "heat_pass.h"
#include "heat_table.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE = 256 };

static float idle_seconds(uint16_t tick, const struct slot *slot)
{
	if (slot->moved == 0)
		return INFINITY;
	return (float)(uint16_t)(tick - slot->moved) * (TICK_NS * 1e-9F);
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
	if (row >= COUNTED || question->among != NULL || question->huge)
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
 * Whether a slot beyond the last warmth of the scan could be among the best as well. Compared
 * heat is rounded, so that its lower key may come before the worst of them.
 */
static bool may_be_beyond(const struct tierd_heat *heat, const struct question *question,
			  const struct best *best)
{
	float edge, worst;

	if (question->beyond < 0 || best->n < best->most)
		return false;
	edge = warmth_edge((unsigned int)question->beyond + question->hottest) * heat->inverse_gain;
	worst = rank_heat(best->hottest, &best->rank[best->most - 1]);
	return question->hottest ? worst <= edge : worst >= edge;
}

static int sort_best(struct best *best, bool in_order)
{
	struct rank *spare;

	if (!in_order && best->n <= best->most)
		return 0;

	/* To find the best of them costs half as much as to sort them. */
	if (best->n > best->most + best->most / 2)
		heat_drop_worse(best);
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

/* What all that are asked for come before. */
static struct rank no_bar(const struct question *question)
{
	/* Least heat below 0 leaves nothing out; what is added makes -0 be 0. */
	if (question->hottest && !(question->least < 0.0F))
		return (struct rank){.order = order_of(true, question->least + 0.0F)};
	return (struct rank){.order = UINT32_MAX, .key = UINT64_MAX};
}

/*
 * Of many more than are wanted, `found`, some tell what the wanted ones come before, but for
 * chance (Floyd and Rivest, 1975). Slots lie in the order of their hashes: any are a sample.
 */
static int guess_bar(const struct tierd_heat *heat, const struct question *question, size_t found,
		     struct best *best)
{
	const float share = (float)best->most / (float)found * (float)SAMPLE;
	const size_t at = (size_t)(share + 2.0F * sqrtf(share)) + 2;
	struct rank spare[SAMPLE + TAGS_AT_ONCE];
	int err;

	if (at >= SAMPLE || best->room < SAMPLE + TAGS_AT_ONCE)
		return 0;
	best->enough = SAMPLE;
	err = heat_pass(heat, question, best);
	best->enough = SIZE_MAX;
	if (err != 0 || best->n < SAMPLE)
		return err;
	heat_rank_sort(best->hottest, best->rank, spare, best->n);
	best->worst = best->rank[at];
	return 0;
}

/* Room for as many as may be found, or twice as many as are wanted. */
static int make_first_room(struct best *best, size_t found)
{
	const size_t room = found < 2 * best->most ? found : 2 * best->most;

	if (found == SIZE_MAX || room <= best->room)
		return 0;
	free(best->rank);
	best->rank = malloc(room * sizeof(*best->rank));
	best->room = best->rank == NULL ? 0 : room;
	return best->rank == NULL ? -ENOMEM : 0;
}

/* The best of one warmth after another, until none beyond can be among them. */
static int find_best(const struct tierd_heat *heat, struct question *question, struct best *best,
		     bool in_order)
{
	size_t wanted = best->most;

	for (;;) {
		const size_t found = narrow(heat, question, wanted);
		bool guessed = false;
		int err;

		best->n = 0;
		if (found == 0)
			return 0;
		best->worst = no_bar(question);
		err = make_first_room(best, found);
		if (err == 0 && found != SIZE_MAX && found / 2 > best->most) {
			err = guess_bar(heat, question, found, best);
			guessed = true;
		}
		if (err == 0)
			err = heat_pass(heat, question, best);
		if (err == 0 && guessed && best->n < best->most) {
			best->worst = no_bar(question);
			err = heat_pass(heat, question, best);
		}
		if (err == 0)
			err = sort_best(best, in_order);
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
	return least >= 0.0F ? warmth_of(fmaxf(least * heat->gain * (1.0F - HEAT_SLACK), 0x1p-149F))
			     : 0;
}

int64_t tierd_heat_select(struct tierd_heat *heat, int node, int hottest, int huge, float min_heat,
			  const uint8_t *among, size_t n, uint64_t *page, float *value, int16_t *on,
			  uint8_t *order, float *idle_s)
{
	struct best best = {.hottest = hottest != 0,
			    .enough = SIZE_MAX,
			    .most = n < heat->tracked ? n : (size_t)heat->tracked};
	struct question question = {.node = (uint8_t)node,
				    .hottest = best.hottest,
				    .huge = huge != 0,
				    .least = min_heat,
				    .among = among};
	const uint16_t tick = moved_tick(heat);
	int err;

	if (node == TIERD_NODE_UNPLACED && table_unplaced(heat) == of_unknown_node(heat))
		question.node = TIERD_NODE_UNKNOWN;
	question.last = best.hottest ? hotter_than(heat, min_heat) : WARMTHS - 1;
	if (question.huge && best.most > heat->huge)
		best.most = heat->huge;
	/* Where pages are is asked of all of them together, in any order. */
	err = best.most == 0 ? 0 : find_best(heat, &question, &best, node != TIERD_NODE_UNPLACED);
	for (size_t i = 0; err == 0 && i < best.n; i++) {
		const struct slot *slot = &heat->slots[best.rank[i].slot];

		page[i] = best.rank[i].key;
		value[i] = rank_heat(best.hottest, &best.rank[i]);
		on[i] = slot->node == TIERD_NODE_UNKNOWN ? -1 : slot->node;
		order[i] = slot_huge(slot) ? HUGE_ORDER : 0;
		idle_s[i] = idle_seconds(tick, slot);
	}
	free(best.rank);
	return err == 0 ? (int64_t)best.n : err;
}

int tierd_heat_lookup(struct tierd_heat *heat, uint64_t page, float *value, int16_t *node,
		      uint8_t *order, float *idle_s)
{
	const struct slot *slot = table_find(heat, page);

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
		const struct slot *slot = table_folio(heat, page[i]);

		node[i] = slot == NULL || slot->node == TIERD_NODE_UNKNOWN ? -1 : slot->node;
	}
}
