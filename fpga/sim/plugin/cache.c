/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A way is one word: tag, dirty bit, valid bit. A set's words are kept in the order of their last
 * use, so the least recent one is always the last, and 16 ways are one line of the host's cache.
 *
 * Sets are chosen by a hash of the whole line number, as processors choose slices. With the plain
 * number, pages of one program that lie side by side never compete for a set, and pages that were
 * moved do: moving hot pages would look worse than it is. The hash is a permutation, so that the
 * number comes back out of set and tag.
 */
#include "cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { VALID = 1, DIRTY = 2, TAG_SHIFT = 2, TAG_BITS = 30, MAX_WAYS = 64 };

/* 2^64 by the golden ratio, odd, and what undoes a multiplication by it. */
static const uint64_t factor = 0x9e3779b97f4a7c15, inverse = 0xf1de83e19937733du;

static bool is_power_of_2(uint64_t value)
{
	return value && !(value & (value - 1));
}

static uint64_t mixed(const struct cache *cache, uint64_t line)
{
	line = line * factor & cache->line_mask;
	return line ^ line >> cache->mix_shift;
}

static uint64_t unmixed(const struct cache *cache, uint64_t line)
{
	line ^= line >> cache->mix_shift;
	return line * inverse & cache->line_mask;
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
	cache->line_mask = ((uint64_t)1 << (TAG_BITS + cache->set_log2)) - 1;
	cache->mix_shift = (TAG_BITS + cache->set_log2 + 1) / 2;
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
	const uint64_t line = mixed(cache, address >> cache->line_log2);
	const uint64_t set = line & cache->set_mask;
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
	*evicted = unmixed(cache, (uint64_t)(victim >> TAG_SHIFT) << cache->set_log2 | set)
		   << cache->line_log2;
	return CACHE_MISS_EVICT;
}
