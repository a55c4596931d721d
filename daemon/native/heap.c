/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the C library does with memory that is given back.
 *
 * Each tick needs some MiB for a short time. By default the library asks the kernel for each large
 * piece and gives it back at once: then the kernel clears 2 MiB pages for it, takes them
 * from the fast node, which is kept nearly full, and compacts that node to find them. So the heap
 * keeps what it has. What it, stacks and mappings grow by is 4 KiB pages, as many as are touched:
 * where 2 MiB pages are always given, the kernel cleared 36,000 pages in eleven seconds of a
 * benchmark (docs/research/lab-notebook/trials.md), and 10,000 since this process has none.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "tierd_native.h"

/* Of 64-bit systems: half of what an arena of another thread is made of. */
enum { LARGEST_PIECE = 32 << 20, LEAST_PAGE = 4096 };

int tierd_keep_heap(size_t kept, size_t claimed)
{
	const int most = kept < INT_MAX ? (int)kept : INT_MAX;
	volatile unsigned char *piece;
	int small;

	if (mallopt(M_MMAP_THRESHOLD, LARGEST_PIECE) != 1 || mallopt(M_ARENA_MAX, 1) != 1 ||
	    mallopt(M_TRIM_THRESHOLD, most) != 1)
		return 0;
	small = prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0;
	piece = claimed > 0 && claimed < LARGEST_PIECE ? malloc(claimed) : NULL;
	for (size_t at = 0; piece != NULL && at < claimed; at += LEAST_PAGE)
		piece[at] = 0;
	free((void *)piece);
	return small;
}
