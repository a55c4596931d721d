/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames that several processes map. A frame has one flag: what the scan of one target finds
 * accessed, the scan of the next would not. So a word for each frame keeps when it was found
 * accessed, and whether it is marked. A target asks whether that was after it had marked the frame.
 *
 * The words are reserved for all frames and take memory only around those that are shared: 1 MiB
 * for 1 GiB of them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>

#include "idle.h"

/* A word: bit 0, it is marked; the others, the step that found it accessed, 0 for none. */
enum { MARKED = 1 };

int idle_shared_new(struct tierd_idle *idle, uint64_t frames)
{
	void *words;

	if (frames == 0)
		return 0;
	words = mmap(NULL, frames * sizeof(*idle->frame), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (words == MAP_FAILED)
		return -errno;
	idle->frame = words;
	idle->frames = frames;
	return 0;
}

void idle_shared_free(struct tierd_idle *idle)
{
	if (idle->frame != NULL)
		munmap(idle->frame, idle->frames * sizeof(*idle->frame));
}

/* Steps come round after weeks, and those that are compared are a few scans apart. */
void idle_shared_step(struct tierd_idle *idle)
{
	idle->step += MARKED + 1;
	if (idle->step == 0)
		idle->step += MARKED + 1;
}

static uint32_t *word_of(struct tierd_idle *idle, const struct unit *unit)
{
	return unit->pfn < idle->frames ? &idle->frame[unit->pfn] : NULL;
}

int idle_shared_before_mark(struct tierd_idle *idle)
{
	uint64_t have = UINT64_MAX;

	for (size_t i = 0; i < idle->units; i++) {
		const struct unit *unit = unit_of(idle, idle->sorted[i]);
		uint32_t *word = unit->state & UNIT_SHARED ? word_of(idle, unit) : NULL;

		if (word == NULL || !(*word & MARKED))
			continue;
		if (have != unit->pfn / WORD_FRAMES) {
			int err = idle_read_words(idle, unit->pfn / WORD_FRAMES, 1);

			if (err != 0)
				return err;
			have = unit->pfn / WORD_FRAMES;
		}
		if (!(idle->word[0] >> unit->pfn % WORD_FRAMES & 1))
			*word = idle->step;
	}
	return 0;
}

void idle_shared_marked(struct tierd_idle *idle, uint8_t states)
{
	for (size_t i = 0; i < idle->units; i++) {
		const struct unit *unit = &idle->unit[i];
		uint32_t *word = unit->state & UNIT_SHARED ? word_of(idle, unit) : NULL;

		if (word != NULL && (states == 0 || unit->state & states))
			*word |= MARKED;
	}
}

bool idle_shared_accessed(struct tierd_idle *idle, const struct unit *unit, uint32_t since)
{
	uint32_t *word = word_of(idle, unit), found;
	const bool accessed = unit->state & UNIT_ACCESSED;

	idle->stats.shared += unit_pages(unit);
	if (word == NULL) {
		idle->stats.unshared += unit_pages(unit);
		return accessed;
	}
	found = *word & ~(uint32_t)MARKED;
	if (accessed) {
		*word = idle->step | (*word & MARKED);
		return true;
	}
	if (found != 0 && since != 0 && (int32_t)(found - since) > 0)
		return true;
	*word &= MARKED;
	return false;
}
