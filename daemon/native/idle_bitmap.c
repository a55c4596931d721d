/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's flags of page frames: /sys/kernel/mm/page_idle/bitmap, a bit for each frame, and
 * /proc/kpageflags, a word for each.
 *
 * To read a bit that is set the kernel goes through all mappings of the frame, clears their
 * accessed bits, and clears the frame's flag if one was set (page_idle_clear_pte_refs() in
 * mm/page_idle.c); to set one it does the same first. It marks what was accessed as young, for
 * reclaim. So to check and to mark a page cost one walk each, and to check one that was not marked
 * costs little. A bit that is clear does not say why: the page was accessed, or it is a later page
 * of a large folio, or on no LRU list. The page flags of those, and only of those, say which.
 *
 * Words without units are not read, for each of their 64 frames costs a miss of the cache.
 */
#include <errno.h>
#include <string.h>

#include "idle.h"

/* uapi/linux/kernel-page-flags.h */
#define FLAG_LRU (UINT64_C(1) << 5)
#define FLAG_HEAD (UINT64_C(1) << 15)
#define FLAG_TAIL (UINT64_C(1) << 16)
#define FLAG_NOPAGE (UINT64_C(1) << 20)

/* So many page flags that nobody asked for cost as much as another call. */
enum { FLAG_GAP = 16 };

static uint64_t frame_word(uint64_t pfn)
{
	return pfn / WORD_FRAMES;
}

static uint64_t frame_bit(uint64_t pfn)
{
	return UINT64_C(1) << pfn % WORD_FRAMES;
}

/* What the file does not have reads as `missing`. */
static int read_at(struct tierd_idle *idle, int fd, uint64_t *to, uint64_t first, size_t count,
		   int missing)
{
	int64_t got = idle->calls.read(fd, to, count * sizeof(*to), (int64_t)(first * sizeof(*to)));

	idle->stats.reads++;
	if (got < 0)
		return (int)got;
	memset((char *)to + got, missing, count * sizeof(*to) - (size_t)got);
	return 0;
}

int idle_read_words(struct tierd_idle *idle, uint64_t first, size_t count)
{
	idle->stats.read_words += count;
	/*
	 * Idle, as nobody knows of an access: memory went off line, or these are the last frames of
	 * all, of whose word the kernel tells no part.
	 */
	return read_at(idle, idle->bitmap, idle->word, first, count, 0xff);
}

static int write_words(struct tierd_idle *idle, uint64_t first, size_t count)
{
	int64_t put = idle->calls.write(idle->bitmap, idle->word, count * sizeof(*idle->word),
					(int64_t)(first * sizeof(*idle->word)));

	idle->stats.writes++;
	/* ENXIO: behind the last frame. */
	return put < 0 && put != -ENXIO ? (int)put : 0;
}

/* The end of the run of keys from `begin` on whose words follow one another. */
static size_t run_end(struct tierd_idle *idle, size_t begin)
{
	const uint64_t first = frame_word(unit_of(idle, idle->sorted[begin])->pfn);
	uint64_t last = first;
	size_t end = begin + 1;

	for (; end < idle->units; end++) {
		uint64_t word = frame_word(unit_of(idle, idle->sorted[end])->pfn);

		if (word > last + 1 || word - first >= CALL_WORDS)
			break;
		last = word;
	}
	return end;
}

/* The first frame of the folio of a later one, and its flags; false where it is not known. */
static int find_head(struct tierd_idle *idle, uint64_t pfn, uint64_t *head, uint64_t *flags)
{
	const uint64_t start = pfn & ~(uint64_t)(WINDOW - 1);

	*head = pfn;
	if (idle->window_start != start) {
		int err = read_at(idle, idle->flags, idle->window, start, WINDOW, 0);

		idle->window_start = err == 0 ? start : UINT64_MAX;
		if (err != 0)
			return err;
	}
	while (*head > start && !(idle->window[*head - start] & FLAG_HEAD))
		--*head;
	*flags = idle->window[*head - start];
	return 0;
}

/* A unit that is part of a larger folio is what the folio is. */
static int check_tail(struct tierd_idle *idle, const struct tierd_idle_step *step,
		      struct unit *unit, const struct unit *before)
{
	uint64_t head, flags;
	int err = find_head(idle, unit->pfn, &head, &flags);

	if (err != 0)
		return err;
	idle->stats.tails++;
	unit->state |= UNIT_TAIL;
	unit->pfn = head;
	if (!(flags & FLAG_HEAD) || !(flags & FLAG_LRU)) {
		unit->state |= UNIT_UNTRACKED;
		return 0;
	}
	/* Another page of the folio has been here already, and it may have been marked again. */
	if (before != NULL && before->pfn == head) {
		unit->state |= before->state & (UNIT_ACCESSED | UNIT_UNTRACKED);
		return 0;
	}
	if (step->folio == head && step->folio_round == step->round) {
		unit->state |= step->folio_state;
		return 0;
	}
	err = idle_read_words(idle, frame_word(head), 1);
	if (err == 0 && !(idle->word[0] & frame_bit(head)))
		unit->state |= UNIT_ACCESSED;
	return err;
}

/* Why the bits of the units of keys [begin, end) are clear. */
static int check_flags(struct tierd_idle *idle, const struct tierd_idle_step *step, size_t begin,
		       size_t end)
{
	const uint64_t first = unit_of(idle, idle->sorted[begin])->pfn;
	const uint64_t last = unit_of(idle, idle->sorted[end - 1])->pfn;
	int err = read_at(idle, idle->flags, idle->flag, first, last - first + 1, 0);

	for (size_t i = begin; i < end && err == 0; i++) {
		struct unit *unit = unit_of(idle, idle->sorted[i]);
		const uint64_t flags = idle->flag[unit->pfn - first];

		if (!(unit->state & UNIT_ACCESSED))
			continue;
		unit->state &= (uint8_t)~UNIT_ACCESSED;
		if (flags & FLAG_TAIL)
			err = check_tail(idle, step, unit,
					 i > 0 ? unit_of(idle, idle->sorted[i - 1]) : NULL);
		else if (flags & FLAG_LRU && !(flags & FLAG_NOPAGE))
			unit->state |= UNIT_ACCESSED;
		else
			unit->state |= UNIT_UNTRACKED;
	}
	return err;
}

/* Takes ACCESSED for "the bit is clear" and finds out what that means. */
static int check_clear(struct tierd_idle *idle, const struct tierd_idle_step *step)
{
	size_t begin = 0;

	while (begin < idle->units) {
		uint64_t first, last;
		size_t end;
		int err;

		if (!(unit_of(idle, idle->sorted[begin])->state & UNIT_ACCESSED)) {
			begin++;
			continue;
		}
		first = last = unit_of(idle, idle->sorted[begin])->pfn;
		for (end = begin + 1; end < idle->units; end++) {
			const struct unit *unit = unit_of(idle, idle->sorted[end]);

			if (unit->pfn > last + FLAG_GAP || unit->pfn - first >= CALL_WORDS)
				break;
			if (unit->state & UNIT_ACCESSED)
				last = unit->pfn;
		}
		while (!(unit_of(idle, idle->sorted[end - 1])->state & UNIT_ACCESSED))
			end--;
		err = check_flags(idle, step, begin, end);
		if (err != 0)
			return err;
		begin = end;
	}
	return 0;
}

int idle_check(struct tierd_idle *idle, const struct tierd_idle_step *step)
{
	size_t begin = 0;

	idle->window_start = UINT64_MAX;
	while (begin < idle->units) {
		const size_t end = run_end(idle, begin);
		const uint64_t first = frame_word(unit_of(idle, idle->sorted[begin])->pfn);
		const uint64_t last = frame_word(unit_of(idle, idle->sorted[end - 1])->pfn);
		int err = idle_read_words(idle, first, last - first + 1);

		if (err != 0)
			return err;
		for (; begin < end; begin++) {
			struct unit *unit = unit_of(idle, idle->sorted[begin]);

			if (!(idle->word[frame_word(unit->pfn) - first] & frame_bit(unit->pfn)))
				unit->state |= UNIT_ACCESSED;
		}
	}
	return check_clear(idle, step);
}

/* Tails stand in the list by their own frames, which are not those to mark. */
int idle_mark_folios(struct tierd_idle *idle, uint8_t states)
{
	uint64_t before = UINT64_MAX;
	int err = 0;

	for (size_t i = 0; i < idle->units && err == 0; i++) {
		const struct unit *unit = unit_of(idle, idle->sorted[i]);

		if (unit->state & UNIT_TAIL && !(unit->state & states))
			continue;
		/* The first page of a folio is marked by itself, if it is here. */
		if (!(unit->state & UNIT_TAIL) || unit->pfn == before) {
			before = unit->pfn;
			continue;
		}
		before = unit->pfn;
		idle->word[0] = frame_bit(before);
		err = write_words(idle, frame_word(before), 1);
	}
	return err;
}

int idle_mark(struct tierd_idle *idle, uint8_t states)
{
	uint64_t first = 0, count = 0;
	int err = 0;

	for (size_t i = 0; i < idle->units && err == 0; i++) {
		const struct unit *unit = unit_of(idle, idle->sorted[i]);
		const uint64_t word = frame_word(unit->pfn);

		if (unit->state & UNIT_TAIL || (states != 0 && !(unit->state & states)))
			continue;
		if (count > 0 && (word > first + count || word - first >= CALL_WORDS)) {
			err = write_words(idle, first, count);
			count = 0;
		}
		if (count == 0)
			first = word;
		if (word == first + count)
			idle->word[count++] = 0;
		idle->word[word - first] |= frame_bit(unit->pfn);
	}
	if (count > 0 && err == 0)
		err = write_words(idle, first, count);
	return err == 0 ? idle_mark_folios(idle, states) : err;
}
