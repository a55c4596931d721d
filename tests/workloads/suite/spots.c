/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spots: a pointer chase through 16 pages of each 2 MiB of one long array, in random order over
 * all of it. With --huge each 2 MiB is one folio of which a thirty-second is in use. --work:
 * sweeps. Each line's number is summed on the way; the pages that are not in use are looked at in
 * the end.
 */
#include "chain.h"
#include "suite.h"
#include "sweeps.h"

#include <stdlib.h>

enum {
	PAGE_LINES = 4096 / sizeof(struct line),
	FOLIO_PAGES = 512,
	BUSY = 16,
	APART = FOLIO_PAGES / BUSY,
};

/* The n-th page in use: one of each `APART`, another one in each folio. */
static size_t busy_page(size_t n)
{
	return n * APART + mix64(n / BUSY) % APART;
}

/* Line i of those in use. */
static struct line *spot(struct line *lines, size_t i)
{
	return lines + busy_page(i / PAGE_LINES) * PAGE_LINES + i % PAGE_LINES;
}

/* Sattolo's algorithm: a random permutation that is one cycle. */
static void link_spots(struct line *lines, uint32_t count, uint64_t seed)
{
	uint32_t *next = malloc(count * sizeof(*next));
	uint64_t state = mix64(seed);

	if (!next)
		abort();
	for (uint32_t i = 0; i < count; i++)
		next[i] = i;
	for (uint32_t i = count - 1; i; i--) {
		uint32_t j = rng_below(&state, i), swap = next[i];

		next[i] = next[j];
		next[j] = swap;
	}
	for (uint32_t i = 0; i < count; i++) {
		spot(lines, i)->next = spot(lines, next[i]);
		spot(lines, i)->number = mix64(i + seed);
	}
	free(next);
}

int main(int argc, char **argv)
{
	struct suite suite = {.name = "spots", .size = 192ul << 20, .work = 100, .seed = 1};
	uint64_t sum = 0, wanted = 0;
	struct line *lines, *at;
	size_t bytes, pages;
	uint32_t count;
	bool ok = true;

	suite_options(&suite, argc, argv);
	bytes = suite.size & ~((2ul << 20) - 1);
	pages = bytes / 4096;
	count = (uint32_t)(pages / APART * PAGE_LINES);
	lines = suite_alloc(&suite, bytes);
	for (size_t page = 0; page < pages; page++)
		lines[page * PAGE_LINES].number = mix64(page + suite.seed);
	link_spots(lines, count, suite.seed);
	at = spot(lines, 0);
	tell_array(true, "spots", lines, bytes, getpid());
	tell_end();
	suite_start(&suite);
	for (uint64_t i = 0; i < suite.work; i++) {
		const double begun = sweep_begins(i, suite.work);

		for (uint32_t n = 0; n < count; n++, at = at->next)
			sum += at->number;
		sweep_ends(i, begun);
	}
	suite_stop();
	tell_sweeps(suite.work, NULL);
	suite_spoil(&suite, lines, bytes);
	for (uint32_t i = 0; i < count; i++)
		wanted += mix64(i + suite.seed);
	for (size_t page = 0, n = 0; page < pages; page++) {
		if (n < pages / APART && page == busy_page(n))
			n++;
		else
			ok = ok && lines[page * PAGE_LINES].number == mix64(page + suite.seed);
	}
	for (uint32_t i = 0; i < count; i++)
		ok = ok && spot(lines, i)->number == mix64(i + suite.seed);
	return suite_end(&suite, suite.work,
			 ok && sum == suite.work * wanted && at == spot(lines, 0), sum);
}
