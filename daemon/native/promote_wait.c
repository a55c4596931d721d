/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits to be promoted: one entry a page, the hottest at hand. A heap over a pool of
 * candidates, with a table from page to candidate, so that an interval costs what it changes
 * and not what waits.
 */
#include <stdlib.h>
#include <string.h>

#include "promote.h"

static bool before(const struct waiting *waiting, uint16_t a, uint16_t b)
{
	const struct candidate *left = &waiting->pool[a], *right = &waiting->pool[b];

	if (left->heat != right->heat)
		return left->heat > right->heat;
	return left->page < right->page;
}

static void put(struct waiting *waiting, size_t at, uint16_t index)
{
	waiting->heap[at] = index;
	waiting->pool[index].at = (uint16_t)at;
}

static void rise(struct waiting *waiting, size_t at, uint16_t index)
{
	while (at > 0 && before(waiting, index, waiting->heap[(at - 1) / 2])) {
		put(waiting, at, waiting->heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	put(waiting, at, index);
}

static void sink(struct waiting *waiting, size_t at, uint16_t index)
{
	for (;;) {
		size_t child = 2 * at + 1;

		if (child >= waiting->n)
			break;
		if (child + 1 < waiting->n &&
		    before(waiting, waiting->heap[child + 1], waiting->heap[child]))
			child++;
		if (!before(waiting, waiting->heap[child], index))
			break;
		put(waiting, at, waiting->heap[child]);
		at = child;
	}
	put(waiting, at, index);
}

static size_t home_of(uint64_t page)
{
	uint64_t hash = page * UINT64_C(0x9E3779B97F4A7C15);

	return (size_t)(hash >> 32) % WAITING_SLOTS;
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

void waiting_init(struct waiting *waiting)
{
	for (size_t i = 0; i < CANDIDATES_MAX; i++)
		waiting->heap[i] = (uint16_t)i;
}

bool waiting_add(struct waiting *waiting, const struct candidate *candidate)
{
	size_t slot = slot_of(waiting, candidate->page);
	struct candidate *known;
	uint16_t index;

	if (waiting->slot[slot] != 0) {
		index = (uint16_t)(waiting->slot[slot] - 1);
		known = &waiting->pool[index];
		if (candidate->heat > known->heat) {
			uint16_t at = known->at;

			waiting->of_node[known->node]--;
			waiting->of_node[candidate->node]++;
			*known = *candidate;
			rise(waiting, at, index);
		}
		return true;
	}
	if (waiting->n == CANDIDATES_MAX)
		return false;
	/* Beyond the heap's end lie the indices that are free. */
	index = waiting->heap[waiting->n];
	waiting->pool[index] = *candidate;
	waiting->slot[slot] = (uint16_t)(index + 1);
	waiting->of_node[candidate->node]++;
	rise(waiting, waiting->n++, index);
	return true;
}

static void take_out(struct waiting *waiting, uint16_t index)
{
	const struct candidate *candidate = &waiting->pool[index];
	size_t at = candidate->at;
	uint16_t last = waiting->heap[--waiting->n];

	clear_slot(waiting, slot_of(waiting, candidate->page));
	waiting->of_node[candidate->node]--;
	waiting->heap[waiting->n] = index;
	if (last == index)
		return;
	if (at > 0 && before(waiting, last, waiting->heap[(at - 1) / 2]))
		rise(waiting, at, last);
	else
		sink(waiting, at, last);
}

struct candidate waiting_pop(struct waiting *waiting)
{
	uint16_t index = waiting->heap[0];

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

size_t waiting_since(struct waiting *waiting, uint64_t seen_ns, struct candidate *out, size_t room)
{
	size_t found = 0;

	for (size_t i = 0; i < waiting->n && found < room; i++) {
		const struct candidate *candidate = &waiting->pool[waiting->heap[i]];

		if (candidate->seen_ns <= seen_ns)
			out[found++] = *candidate;
	}
	for (size_t i = 0; i < found; i++)
		waiting_remove(waiting, out[i].page);
	return found;
}

/* Sinks without the table of places: for sorting in place. */
static void sink_worst(struct waiting *waiting, size_t at, size_t n)
{
	uint16_t index = waiting->heap[at];

	for (;;) {
		size_t child = 2 * at + 1;

		if (child >= n)
			break;
		if (child + 1 < n &&
		    before(waiting, waiting->heap[child], waiting->heap[child + 1]))
			child++;
		if (!before(waiting, index, waiting->heap[child]))
			break;
		waiting->heap[at] = waiting->heap[child];
		at = child;
	}
	waiting->heap[at] = index;
}

size_t waiting_beyond(struct waiting *waiting, size_t keep, struct candidate *out)
{
	size_t n = waiting->n, found = 0;

	if (n <= keep)
		return 0;
	/* Heap sort with the coldest on top puts the hottest first. */
	for (size_t i = n / 2; i-- > 0;)
		sink_worst(waiting, i, n);
	for (size_t i = n; i-- > 1;) {
		uint16_t top = waiting->heap[0];

		waiting->heap[0] = waiting->heap[i];
		waiting->heap[i] = top;
		sink_worst(waiting, 0, i);
	}
	/* What is in order is a heap. */
	for (size_t i = 0; i < n; i++)
		waiting->pool[waiting->heap[i]].at = (uint16_t)i;
	while (waiting->n > keep) {
		uint16_t index = waiting->heap[waiting->n - 1];

		out[found++] = waiting->pool[index];
		take_out(waiting, index);
	}
	return found;
}
