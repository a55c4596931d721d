/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A way is one word: tag, dirty bit, valid bit. A set's words are kept in the order of their last
 * use, so the least recent one is always the last, and 16 ways are one line of the host's cache.
 */
#include "cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { VALID = 1, DIRTY = 2, TAG_SHIFT = 2, MAX_WAYS = 64 };

static bool is_power_of_2(uint64_t value)
{
	return value && !(value & (value - 1));
}

int cache_init(struct cache *cache, uint64_t bytes, unsigned int ways, unsigned int line)
{
	uint64_t sets;

	if (!ways || ways > MAX_WAYS || line < 8 || line > 4096 || !is_power_of_2(line))
		return -EINVAL;
	sets = bytes / ((uint64_t)ways * line);
	if (!is_power_of_2(sets) || sets * ways * line != bytes || sets > 1u << 24)
		return -EINVAL;
	cache->way_count = ways;
	cache->line_log2 = (unsigned int)__builtin_ctz(line);
	cache->set_log2 = (unsigned int)__builtin_ctzll(sets);
	cache->set_mask = sets - 1;
	cache->ways = aligned_alloc(64, (sets * ways * sizeof(uint32_t) + 63) / 64 * 64);
	if (!cache->ways)
		return -ENOMEM;
	cache_clear(cache);
	return 0;
}

void cache_free(struct cache *cache)
{
	free(cache->ways);
	cache->ways = NULL;
}

void cache_clear(struct cache *cache)
{
	memset(cache->ways, 0, (cache->set_mask + 1) * cache->way_count * sizeof(uint32_t));
}

enum cache_event cache_access(struct cache *cache, uint64_t address, bool store, uint64_t *evicted)
{
	const uint64_t line = address >> cache->line_log2, set = line & cache->set_mask;
	const uint32_t wanted = (uint32_t)(line >> cache->set_log2) << TAG_SHIFT | VALID;
	uint32_t *ways = cache->ways + set * cache->way_count;
	const unsigned int last = cache->way_count - 1;
	const uint32_t dirty = store ? DIRTY : 0;
	uint32_t victim;

	for (unsigned int i = 0; i <= last; i++) {
		const uint32_t way = ways[i];

		if ((way & ~(uint32_t)DIRTY) != wanted)
			continue;
		memmove(ways + 1, ways, i * sizeof(*ways));
		ways[0] = way | dirty;
		return CACHE_HIT;
	}
	victim = ways[last];
	memmove(ways + 1, ways, last * sizeof(*ways));
	ways[0] = wanted | dirty;
	if (!(victim & DIRTY))
		return CACHE_MISS;
	*evicted = ((uint64_t)(victim >> TAG_SHIFT) << cache->set_log2 | set) << cache->line_log2;
	return CACHE_MISS_EVICT;
}
