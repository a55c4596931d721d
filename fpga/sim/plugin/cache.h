/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last-level cache: set-associative, write-back, write-allocate, true LRU, sets by a hash of
 * the physical address.
 * Owns: which lines are in it and which of them are dirty. Must not touch: where memory lies.
 * One thread at a time.
 */
#ifndef TIERD_LAB_CACHE_H
#define TIERD_LAB_CACHE_H

#include <stdbool.h>
#include <stdint.h>

struct cache {
	uint32_t *ways; /* sets x ways; the first of a set was used last */
	unsigned int way_count, line_log2, set_log2, mix_shift;
	uint64_t set_mask, line_mask;
};

/* What an access made the memory do. */
enum cache_event {
	CACHE_HIT,
	CACHE_MISS,	  /* the line is read from memory */
	CACHE_MISS_EVICT, /* that, and *evicted is written back */
};

/*
 * bytes = sets x ways x line; line and the number of sets are powers of 2; 1 to 64 ways.
 * 0, -EINVAL (no such cache) or -ENOMEM. Physical addresses may have 46 bits or more
 * (30 + log2 of sets and line).
 */
int cache_init(struct cache *cache, uint64_t bytes, unsigned int ways, unsigned int line);
void cache_free(struct cache *cache);

/* An access to the line of physical address `address`; *evicted is an address of a line. */
enum cache_event cache_access(struct cache *cache, uint64_t address, bool store, uint64_t *evicted);

/* Forget everything; dirty lines are not written back. */
void cache_clear(struct cache *cache);

#endif
