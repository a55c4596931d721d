/* SPDX-License-Identifier: Apache-2.0 */
/* Which pages are hot: contiguous in the address space, or scattered at random. */
#ifndef TIERD_WORKLOAD_LAYOUT_H
#define TIERD_WORKLOAD_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct layout {
	size_t pages;	 /* pages in all */
	size_t hot;	 /* the first `hot` of `order` are hot, the rest cold */
	uint32_t *order; /* a permutation of the page numbers */
};

/* Makes the layout number `round` (0, 1, ...): every round has another hot set,
 * disjoint from the one before where the hot share allows. 0 or -ENOMEM. */
int layout_make(struct layout *out, size_t pages, size_t hot, bool scattered, uint64_t seed,
		unsigned int round);
void layout_free(struct layout *layout);

/* Writes "base_address pages hot" and then the hot page numbers, one a line. 0 or -errno. */
int layout_write(const struct layout *layout, const char *path, uintptr_t base);

#endif
