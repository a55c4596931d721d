/* SPDX-License-Identifier: Apache-2.0 */
/*
 * updates, and moving: random updates of 64-bit words; nine of ten go to a tenth of the pages,
 * scattered over all memory. Hot pages are touched last, so that first touch leaves them
 * where there was still room. Under the name `moving` another tenth is hot from the middle on;
 * those pages were touched just before. --work: updates.
 *
 * Each update adds a number to a word, and that number times the word's weight to a sum; at
 * the end all words must give this sum.
 */
#include "suite.h"

#include "../rng.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, LINE = 64, LINES = PAGE / LINE, HOT_PERCENT = 10, HOT_UPDATES = 90 };

/* So many updates are counted at once. */
enum { PART = 1024 };

static char *memory;
static uint32_t *order; /* cold pages first; the last tenth is hot, then the tenth before */
static uint32_t pages, hot;

static uint64_t *word_of(uint32_t page, uint32_t line)
{
	return (uint64_t *)(memory + (size_t)page * PAGE + line * LINE);
}

static uint64_t weight_of(uint32_t page, uint32_t line)
{
	return mix64((uint64_t)page * LINES + line) | 1;
}

static uint64_t sum_of_memory(void)
{
	uint64_t sum = 0;

	for (uint32_t page = 0; page < pages; page++)
		for (uint32_t line = 0; line < LINES; line++)
			sum += *word_of(page, line) * weight_of(page, line);
	return sum;
}

static void populate(const struct suite *suite)
{
	uint64_t state = mix64(suite->seed);

	memory = suite_alloc(suite, suite->size);
	pages = (uint32_t)(suite->size / PAGE);
	hot = pages * HOT_PERCENT / 100;
	order = malloc(pages * sizeof(*order));
	if (!order)
		exit(1);
	for (uint32_t i = 0; i < pages; i++)
		order[i] = i;
	for (uint32_t i = pages - 1; i; i--) {
		uint32_t other = rng_below(&state, i + 1), page = order[i];

		order[i] = order[other];
		order[other] = page;
	}
	for (uint32_t i = 0; i < pages; i++)
		for (uint32_t line = 0; line < LINES; line++)
			*word_of(order[i], line) = mix64(~((uint64_t)order[i] * LINES + line));
}

/* `count` updates with the hot pages order[first..first + hot); what they add to the sum. */
static uint64_t update(uint64_t *state, uint64_t count, uint32_t first)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < count; i++) {
		uint64_t r = rng_next(state);
		uint32_t line = r % LINES, page;

		if (rng_below(state, 100) < HOT_UPDATES)
			page = order[first + rng_below(state, hot)];
		else
			page = order[rng_below(state, pages)];
		*word_of(page, line) += r;
		sum += r * weight_of(page, line);
	}
	return sum;
}

/* The same, told of by parts: between them, so that telling costs an update nothing. */
static uint64_t update_by_parts(uint64_t *state, uint64_t count, uint32_t first)
{
	uint64_t sum = 0, part;

	for (; count; count -= part) {
		part = count < PART ? count : PART;
		sum += update(state, part, first);
		suite_progress(part);
	}
	return sum;
}

int main(int argc, char **argv)
{
	const char *slash = strrchr(argv[0], '/');
	struct suite suite = {
	    .size = 256ul << 20, .work = 10000000, .seed = 1, .can_be_endless = true};
	uint64_t state, expected, found, done = 0;
	bool moves;

	suite.name = slash ? slash + 1 : argv[0];
	moves = !strcmp(suite.name, "moving");
	suite_options(&suite, argc, argv);
	populate(&suite);
	expected = sum_of_memory();
	state = mix64(suite.seed + 1);
	suite_start(&suite);
	for (; suite_goes_on(&suite, done); done += suite.work) {
		expected += update_by_parts(&state, suite.work / 2, pages - hot);
		expected += update_by_parts(&state, suite.work - suite.work / 2,
					    pages - (moves ? 2 : 1) * hot);
	}
	suite_stop();
	suite_spoil(&suite, memory, suite.size);
	found = sum_of_memory();
	return suite_end(&suite, done, found == expected, found);
}
