/* SPDX-License-Identifier: Apache-2.0 */
#include "profile.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* QEMU forgets translations and makes them again; a block stays what it is. */
struct profile_block {
	uint64_t vaddr;
	uint64_t executed[TIMING_OWNERS];
	struct profile_block *next; /* with the same hash */
	uint32_t instructions;
};

enum { BUCKETS_LOG2 = 17 };

static struct profile_block *buckets[1u << BUCKETS_LOG2];
static uint64_t dropped;

struct profile_block *profile_block(uint64_t vaddr, uint32_t instructions)
{
	struct profile_block **place = &buckets[vaddr * 0x9e3779b97f4a7c15 >> (64 - BUCKETS_LOG2)];
	struct profile_block *block;

	for (block = *place; block; block = block->next)
		if (block->vaddr == vaddr && block->instructions == instructions)
			return block;
	block = calloc(1, sizeof(*block));
	if (!block) {
		dropped++;
		return NULL;
	}
	block->vaddr = vaddr;
	block->instructions = instructions;
	block->next = *place;
	*place = block;
	return block;
}

void profile_executed(struct profile_block *block, enum timing_owner owner)
{
	block->executed[owner]++;
}

static struct profile_block *after(struct profile_block *block, size_t *bucket)
{
	block = block ? block->next : NULL;
	while (!block && *bucket < 1u << BUCKETS_LOG2)
		block = buckets[(*bucket)++];
	return block;
}

void profile_clear(void)
{
	struct profile_block *block = NULL;
	size_t bucket = 0;

	while ((block = after(block, &bucket)))
		for (unsigned int i = 0; i < TIMING_OWNERS; i++)
			block->executed[i] = 0;
}

static uint64_t all_of(const struct profile_block *block)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < TIMING_OWNERS; i++)
		sum += block->executed[i];
	return sum;
}

int profile_write(const char *path)
{
	struct profile_block *block = NULL;
	FILE *out = fopen(path, "w");
	size_t bucket = 0;

	if (!out)
		return -errno;
	while ((block = after(block, &bucket))) {
		if (!all_of(block))
			continue;
		fprintf(out, "%" PRIx64 " %" PRIu32, block->vaddr, block->instructions);
		for (unsigned int i = 0; i < TIMING_OWNERS; i++)
			fprintf(out, " %" PRIu64, block->executed[i]);
		fputs("\n", out);
	}
	fprintf(out, "dropped %" PRIu64 "\n", dropped);
	return fclose(out) ? -errno : 0;
}
