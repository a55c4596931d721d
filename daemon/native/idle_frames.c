/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page frames of a process, from its pagemap (Documentation/admin-guide/mm/pagemap.rst). Where the
 * kernel has PAGEMAP_SCAN it says first which pages are there and which are mapped as 2 MiB, so
 * that memory that was reserved only costs nothing. Older kernels say neither: all entries are
 * read, and each page is a unit of its own.
 */
#include <errno.h>
#include <stdlib.h>

#include "idle.h"

#define ENTRY_PRESENT (UINT64_C(1) << 63)
#define ENTRY_EXCLUSIVE (UINT64_C(1) << 56)
#define ENTRY_FRAME ((UINT64_C(1) << 55) - 1)

int tierd_idle_reader_new(const struct tierd_idle_calls *calls, struct tierd_idle_reader **out)
{
	struct tierd_idle_reader *reader = calloc(1, sizeof(*reader));

	if (reader == NULL)
		return -ENOMEM;
	reader->calls = calls != NULL ? *calls : idle_calls;
	*out = reader;
	return 0;
}

void tierd_idle_reader_free(struct tierd_idle_reader *reader)
{
	free(reader);
}

/* Whether a step can take in more. */
static bool has_space(const struct tierd_idle_reader *reader, uint64_t most)
{
	return reader->units < most && reader->entries_read < STEP_ENTRIES;
}

/* Entries of pages [start, start + count) into reader->entry; their number or a negative errno. */
static int64_t read_entries(struct tierd_idle_reader *reader, int pagemap, uint64_t start,
			    size_t count)
{
	int64_t got = reader->calls.read(pagemap, reader->entry, count * sizeof(*reader->entry),
					 (int64_t)(start * sizeof(*reader->entry)));

	/* The address space is gone, or a new one has taken its place. */
	if (got == 0)
		return -ESRCH;
	return got < 0 ? got : got / (int64_t)sizeof(*reader->entry);
}

static int add_unit(struct tierd_idle_reader *reader, uint64_t vpn, uint64_t entry, uint8_t state)
{
	struct unit *unit = &reader->unit[reader->units];
	uint64_t pfn = entry & ENTRY_FRAME;

	if (!(entry & ENTRY_PRESENT))
		return 0;
	if (pfn == 0)
		return -EPERM;
	if (!(entry & ENTRY_EXCLUSIVE))
		state |= UNIT_SHARED;
	if (state & UNIT_HUGE) {
		pfn -= vpn & (HUGE_PAGES - 1);
		vpn &= ~(uint64_t)(HUGE_PAGES - 1);
		/* A range that began before this one may have had the rest of it. */
		if (reader->units > 0 && unit[-1].vpn == vpn)
			return 0;
	}
	*unit = (struct unit){.vpn = vpn, .pfn = pfn, .state = state};
	reader->units++;
	return 0;
}

/* Single pages in [start, end); `*next` is where there was no space for more. */
static int add_pages(struct tierd_idle_reader *reader, int pagemap, uint64_t start, uint64_t end,
		     uint64_t most, uint64_t *next)
{
	while (start < end && has_space(reader, most)) {
		uint64_t count = end - start;
		int64_t got;

		if (count > most - reader->units)
			count = most - reader->units;
		if (count > PAGEMAP_ENTRIES)
			count = PAGEMAP_ENTRIES;
		got = read_entries(reader, pagemap, start, count);
		if (got < 0)
			return (int)got;
		for (int64_t i = 0; i < got; i++) {
			int err = add_unit(reader, start + (uint64_t)i, reader->entry[i], 0);

			if (err != 0)
				return err;
		}
		start += (uint64_t)got;
		reader->entries_read += (uint64_t)got;
	}
	*next = start;
	return 0;
}

/* What is mapped as 2 MiB, of [start, end). */
static int add_huge(struct tierd_idle_reader *reader, int pagemap, uint64_t start, uint64_t end,
		    uint64_t most, uint64_t *next)
{
	while (start < end && reader->units < most) {
		int64_t got = read_entries(reader, pagemap, start, 1);
		int err = got < 0 ? (int)got : add_unit(reader, start, reader->entry[0], UNIT_HUGE);

		if (err != 0)
			return err;
		start = (start & ~(uint64_t)(HUGE_PAGES - 1)) + HUGE_PAGES;
	}
	*next = start < end ? start : end;
	return 0;
}

/* By PAGEMAP_SCAN; -ENOTTY or -EINVAL where the kernel has none. */
static int scan_units(struct tierd_idle_reader *reader, int pagemap, uint64_t start, uint64_t end,
		      uint64_t most, uint64_t *next)
{
	uint64_t walk_end = 0;
	/* The walk holds the lock of the address space, and what does not fit is walked again. */
	int64_t found =
	    reader->calls.present(pagemap, start << PAGE_SHIFT, end << PAGE_SHIFT, TIERD_IDLE_UNITS,
				  reader->region, PAGEMAP_REGIONS, &walk_end);

	if (found < 0)
		return (int)found;
	if (found == 0) {
		/* Some kernels find nothing where there is no address space any more. */
		int64_t got = read_entries(reader, pagemap, start, 1);

		if (got < 0)
			return (int)got;
	}
	*next = walk_end >> PAGE_SHIFT;
	for (int64_t i = 0; i < found; i++) {
		const struct tierd_region *region = &reader->region[i];
		const uint64_t first = region->start >> PAGE_SHIFT,
			       last = region->end >> PAGE_SHIFT;
		uint64_t at = first;
		int err = region->categories & TIERD_PAGE_HUGE
			      ? add_huge(reader, pagemap, first, last, most, &at)
			      : add_pages(reader, pagemap, first, last, most, &at);

		if (err != 0)
			return err;
		if (at < last) {
			*next = at;
			return 0;
		}
		/* The limit ended the walk inside of 2 MiB, all of which are one unit. */
		if (region->categories & TIERD_PAGE_HUGE && last == *next)
			*next = (last + HUGE_PAGES - 1) & ~(uint64_t)(HUGE_PAGES - 1);
	}
	if (*next > end)
		*next = end;
	return 0;
}

/* The units in pages [start, end), at most `most` in all; `*next` is where to go on. */
static int find_units(struct tierd_idle_reader *reader, int pagemap, uint64_t start, uint64_t end,
		      uint64_t most, uint64_t *next)
{
	*next = start;
	while (*next < end && has_space(reader, most)) {
		const uint64_t from = *next;
		int err = -ENOTTY;

		if (!reader->plain_pagemap)
			err = scan_units(reader, pagemap, from, end, most, next);
		if (err == -ENOTTY || err == -EINVAL) {
			reader->plain_pagemap = true;
			/* No more at a time than it takes to look at an empty part of the space. */
			err = add_pages(reader, pagemap, from, end, most, next);
		}
		if (err != 0)
			return err;
		if (*next <= from)
			*next = from + 1;
	}
	return 0;
}

int tierd_idle_read(struct tierd_idle_reader *reader, int pagemap, const struct tierd_span *range,
		    size_t ranges, uint64_t start, uint64_t stop, uint64_t most)
{
	uint64_t next = start;

	reader->done = false;
	reader->units = 0;
	reader->entries_read = 0;
	if (most == 0 || most > TIERD_IDLE_UNITS)
		return -EINVAL;
	while (has_space(reader, most)) {
		const size_t at = span_at(range, ranges, next);
		uint64_t end;
		int err;

		if (next >= stop || at == ranges || range[at].start >= stop) {
			reader->done = true;
			break;
		}
		if (next < range[at].start)
			next = range[at].start;
		end = range[at].end < stop ? range[at].end : stop;
		err = find_units(reader, pagemap, next, end, most, &next);
		if (err != 0)
			return err;
	}
	reader->start = start;
	reader->next = next;
	return 0;
}
