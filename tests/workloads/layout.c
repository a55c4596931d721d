/* SPDX-License-Identifier: Apache-2.0 */
#include "layout.h"

#include "rng.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void fill_scattered(uint32_t *order, size_t pages, size_t hot, uint64_t seed,
			   unsigned int round)
{
	size_t shift = pages - round * hot % pages; /* pages: none */
	uint32_t *shuffled = order;
	uint64_t state = seed;

	for (size_t i = 0; i < pages; i++)
		order[i] = (uint32_t)i;
	for (size_t i = pages - 1; i > 0; i--) {
		size_t j = rng_below(&state, (uint32_t)i + 1);
		uint32_t swap = shuffled[i];

		shuffled[i] = shuffled[j];
		shuffled[j] = swap;
	}
	/*
	 * The same shuffle each round; the hot prefix slides along it from behind: what was
	 * populated last, and so is on the slow node, becomes hot next.
	 */
	for (size_t i = 0; shift < pages && i < hot; i++) {
		size_t j = (shift + i) % pages;
		uint32_t swap = order[i];

		order[i] = order[j];
		order[j] = swap;
	}
}

static void fill_contiguous(uint32_t *order, size_t pages, size_t hot, unsigned int round)
{
	size_t first = (pages * 2 / 5 + round * (hot + pages / 7)) % (pages - hot + 1);
	size_t next = 0;

	for (size_t i = 0; i < hot; i++)
		order[next++] = (uint32_t)(first + i);
	for (size_t i = 0; i < pages; i++)
		if (i < first || i >= first + hot)
			order[next++] = (uint32_t)i;
}

int layout_make(struct layout *out, size_t pages, size_t hot, bool scattered, uint64_t seed,
		unsigned int round)
{
	out->order = malloc(pages * sizeof(*out->order));
	if (!out->order)
		return -ENOMEM;
	out->pages = pages;
	out->hot = hot;
	if (scattered)
		fill_scattered(out->order, pages, hot, seed, round);
	else
		fill_contiguous(out->order, pages, hot, round);
	return 0;
}

void layout_free(struct layout *layout)
{
	free(layout->order);
	layout->order = NULL;
}

int layout_write(const struct layout *layout, const char *path, uintptr_t base)
{
	FILE *file = fopen(path, "w");
	int ret = 0;

	if (!file)
		return -errno;
	fprintf(file, "%#" PRIxPTR " %zu %zu\n", base, layout->pages, layout->hot);
	for (size_t i = 0; i < layout->hot; i++)
		fprintf(file, "%" PRIu32 "\n", layout->order[i]);
	if (ferror(file))
		ret = -EIO;
	if (fclose(file) && !ret)
		ret = -errno;
	return ret;
}
