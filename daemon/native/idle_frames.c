/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page frames of a process, from its pagemap (Documentation/admin-guide/mm/pagemap.rst). Where the
 * kernel has PAGEMAP_SCAN it says first which pages are there and which are mapped as 2 MiB, so
 * that memory that was reserved only costs nothing. Older kernels say neither: all entries are
 * read, and each page is a unit of its own.
 */
#include <errno.h>
#include <string.h>

#include "idle.h"

#define ENTRY_PRESENT (UINT64_C(1) << 63)
#define ENTRY_EXCLUSIVE (UINT64_C(1) << 56)
#define ENTRY_FRAME ((UINT64_C(1) << 55) - 1)

/* Entries of pages [start, start + count) into idle->entry; their number or a negative errno. */
static int64_t read_entries(struct tierd_idle *idle, int pagemap, uint64_t start, size_t count)
{
	int64_t got = idle->calls.read(pagemap, idle->entry, count * sizeof(*idle->entry),
				       (int64_t)(start * sizeof(*idle->entry)));

	/* The address space is gone, or a new one has taken its place. */
	if (got == 0)
		return -ESRCH;
	return got < 0 ? got : got / (int64_t)sizeof(*idle->entry);
}

static int add_unit(struct tierd_idle *idle, uint64_t vpn, uint64_t entry, uint8_t state)
{
	struct unit *unit = &idle->unit[idle->units];
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
		if (idle->units > 0 && unit[-1].vpn == vpn)
			return 0;
	}
	*unit = (struct unit){.vpn = vpn, .pfn = pfn, .state = state};
	idle->units++;
	return 0;
}

/* Single pages in [start, end); `*next` is where there was no space for more. */
static int add_pages(struct tierd_idle *idle, int pagemap, uint64_t start, uint64_t end,
		     uint64_t most, uint64_t *next)
{
	while (start < end && idle_has_space(idle, most)) {
		uint64_t count = end - start;
		int64_t got;

		if (count > most - idle->units)
			count = most - idle->units;
		if (count > PAGEMAP_ENTRIES)
			count = PAGEMAP_ENTRIES;
		got = read_entries(idle, pagemap, start, count);
		if (got < 0)
			return (int)got;
		for (int64_t i = 0; i < got; i++) {
			int err = add_unit(idle, start + (uint64_t)i, idle->entry[i], 0);

			if (err != 0)
				return err;
		}
		start += (uint64_t)got;
		idle->entries_read += (uint64_t)got;
	}
	*next = start;
	return 0;
}

/* What is mapped as 2 MiB, of [start, end). */
static int add_huge(struct tierd_idle *idle, int pagemap, uint64_t start, uint64_t end,
		    uint64_t most, uint64_t *next)
{
	while (start < end && idle->units < most) {
		int64_t got = read_entries(idle, pagemap, start, 1);
		int err = got < 0 ? (int)got : add_unit(idle, start, idle->entry[0], UNIT_HUGE);

		if (err != 0)
			return err;
		start = (start & ~(uint64_t)(HUGE_PAGES - 1)) + HUGE_PAGES;
	}
	*next = start < end ? start : end;
	return 0;
}

/* By PAGEMAP_SCAN; -ENOTTY or -EINVAL where the kernel has none. */
static int scan_units(struct tierd_idle *idle, int pagemap, uint64_t start, uint64_t end,
		      uint64_t most, uint64_t *next)
{
	uint64_t walk_end = 0;
	/* The walk holds the lock of the address space, and what does not fit is walked again. */
	int64_t found =
	    idle->calls.present(pagemap, start << PAGE_SHIFT, end << PAGE_SHIFT, TIERD_IDLE_UNITS,
				idle->region, PAGEMAP_REGIONS, &walk_end);

	if (found < 0)
		return (int)found;
	if (found == 0) {
		/* Some kernels find nothing where there is no address space any more. */
		int64_t got = read_entries(idle, pagemap, start, 1);

		if (got < 0)
			return (int)got;
	}
	*next = walk_end >> PAGE_SHIFT;
	for (int64_t i = 0; i < found; i++) {
		const struct tierd_region *region = &idle->region[i];
		const uint64_t first = region->start >> PAGE_SHIFT,
			       last = region->end >> PAGE_SHIFT;
		uint64_t at = first;
		int err = region->categories & TIERD_PAGE_HUGE
			      ? add_huge(idle, pagemap, first, last, most, &at)
			      : add_pages(idle, pagemap, first, last, most, &at);

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

int idle_units(struct tierd_idle *idle, int pagemap, uint64_t start, uint64_t end, uint64_t most,
	       uint64_t *next)
{
	*next = start;
	while (*next < end && idle_has_space(idle, most)) {
		const uint64_t from = *next;
		int err = -ENOTTY;

		if (!idle->plain_pagemap)
			err = scan_units(idle, pagemap, from, end, most, next);
		if (err == -ENOTTY || err == -EINVAL) {
			idle->plain_pagemap = true;
			/* No more at a time than it takes to look at an empty part of the space. */
			err = add_pages(idle, pagemap, from, end, most, next);
		}
		if (err != 0)
			return err;
		if (*next <= from)
			*next = from + 1;
	}
	return 0;
}

/* By eleven bits at a time, from the lowest of the frame's on; digits that all have are left out.
 */
void idle_sort(struct tierd_idle *idle)
{
	enum { DIGIT = 11, VALUES = 1 << DIGIT };
	uint64_t *from = idle->sorted, *to = idle->scratch, differ = 0;
	const size_t n = idle->units;

	for (size_t i = 0; i < n; i++) {
		from[i] = idle->unit[i].pfn << UNIT_BITS | i;
		differ |= from[i] ^ from[0];
	}
	for (unsigned int shift = UNIT_BITS; shift < 64; shift += DIGIT) {
		uint32_t at[VALUES] = {0}, sum = 0;

		if ((differ >> shift & (VALUES - 1)) == 0)
			continue;
		for (size_t i = 0; i < n; i++)
			at[from[i] >> shift & (VALUES - 1)]++;
		for (size_t value = 0; value < VALUES; value++) {
			uint32_t count = at[value];

			at[value] = sum;
			sum += count;
		}
		for (size_t i = 0; i < n; i++)
			to[at[from[i] >> shift & (VALUES - 1)]++] = from[i];
		uint64_t *swapped = from;

		from = to;
		to = swapped;
	}
	if (from != idle->sorted)
		memcpy(idle->sorted, from, n * sizeof(*from));
}
