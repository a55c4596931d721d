/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits to be promoted: one entry a page, the hottest at hand. A heap over a pool of
 * candidates, with a table from page to candidate, so that an interval costs what it changes
 * and not what waits.
 */
#include <string.h>

#include "promote.h"

static bool before(const struct waiting *waiting, struct waiter a, struct waiter b)
{
	if (a.heat != b.heat)
		return a.heat > b.heat;
	return waiting->pool[a.index].page < waiting->pool[b.index].page;
}

static void put(struct waiting *waiting, size_t at, struct waiter waiter)
{
	waiting->heap[at] = waiter;
	waiting->at[waiter.index] = (uint16_t)at;
}

static void rise(struct waiting *waiting, size_t at, struct waiter waiter)
{
	while (at > 0 && before(waiting, waiter, waiting->heap[(at - 1) / 2])) {
		put(waiting, at, waiting->heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	put(waiting, at, waiter);
}

/* A place that is empty is filled from below down to a leaf; that leaf. */
static size_t sink(struct waiting *waiting, size_t at)
{
	for (size_t child = 2 * at + 1; child < waiting->n; child = 2 * at + 1) {
		if (child + 1 < waiting->n &&
		    before(waiting, waiting->heap[child + 1], waiting->heap[child]))
			child++;
		put(waiting, at, waiting->heap[child]);
		at = child;
	}
	return at;
}

static size_t home_of(uint64_t page)
{
	return (size_t)(hash_key(page) >> 32) % WAITING_SLOTS;
}

/* The slot that holds a page's candidate, or the free one where it would be. */
static size_t slot_of(const struct waiting *waiting, uint64_t page)
{
	size_t slot = home_of(page);

	while (waiting->slot[slot] != 0 && waiting->pool[waiting->slot[slot] - 1].page != page)
		slot = (slot + 1) % WAITING_SLOTS;
	return slot;
}

static void clear_slot(struct waiting *waiting, size_t hole)
{
	for (size_t i = (hole + 1) % WAITING_SLOTS; waiting->slot[i] != 0;
	     i = (i + 1) % WAITING_SLOTS) {
		size_t home = home_of(waiting->pool[waiting->slot[i] - 1].page);

		/* Back to the hole, unless its home lies after the hole. */
		if ((i - home) % WAITING_SLOTS < (i - hole) % WAITING_SLOTS)
			continue;
		waiting->slot[hole] = waiting->slot[i];
		hole = i;
	}
	waiting->slot[hole] = 0;
}

void waiting_clear(struct waiting *waiting)
{
	waiting->n = 0;
	memset(waiting->slot, 0, sizeof(waiting->slot));
	memset(waiting->of_node, 0, sizeof(waiting->of_node));
	for (size_t i = 0; i < CANDIDATES_MAX; i++)
		waiting->heap[i].index = (uint16_t)i;
}

void waiting_add(struct waiting *waiting, const struct candidate *candidate)
{
	size_t slot = slot_of(waiting, candidate->page);
	struct candidate *known;
	uint16_t index;

	if (waiting->slot[slot] != 0) {
		index = (uint16_t)(waiting->slot[slot] - 1);
		known = &waiting->pool[index];
		if (candidate->hot.heat > known->hot.heat) {
			waiting->of_node[known->node]--;
			waiting->of_node[candidate->node]++;
			*known = *candidate;
			rise(waiting, waiting->at[index],
			     (struct waiter){candidate->hot.heat, index});
		}
		return;
	}
	/* Beyond the heap's end lie the indices that are free. */
	index = waiting->heap[waiting->n].index;
	waiting->pool[index] = *candidate;
	waiting->slot[slot] = (uint16_t)(index + 1);
	waiting->of_node[candidate->node]++;
	rise(waiting, waiting->n++, (struct waiter){candidate->hot.heat, index});
}

static void take_out(struct waiting *waiting, uint16_t index)
{
	const struct candidate *candidate = &waiting->pool[index];
	size_t at = waiting->at[index];
	struct waiter last = waiting->heap[--waiting->n];

	clear_slot(waiting, slot_of(waiting, candidate->page));
	waiting->of_node[candidate->node]--;
	/* The last is one of the coldest: from the leaf it has but a short way up, if any. */
	if (last.index != index)
		rise(waiting, sink(waiting, at), last);
	waiting->heap[waiting->n].index = index;
}

struct candidate waiting_pop(struct waiting *waiting)
{
	uint16_t index = waiting->heap[0].index;

	take_out(waiting, index);
	return waiting->pool[index];
}

bool waiting_remove(struct waiting *waiting, uint64_t page)
{
	size_t slot = slot_of(waiting, page);

	if (waiting->slot[slot] == 0)
		return false;
	take_out(waiting, (uint16_t)(waiting->slot[slot] - 1));
	return true;
}

size_t waiting_since(struct waiting *waiting, uint64_t seen_ns, struct candidate *out)
{
	size_t found = 0;

	for (size_t i = 0; i < waiting->n; i++) {
		const struct candidate *candidate = &waiting->pool[waiting->heap[i].index];

		if (candidate->seen_ns <= seen_ns)
			out[found++] = *candidate;
	}
	for (size_t i = 0; i < found; i++)
		waiting_remove(waiting, out[i].page);
	return found;
}
