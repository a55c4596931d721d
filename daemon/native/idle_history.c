/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Access histories: a byte a page, bit 7 for the last scan, as the kernel module keeps them
 * (docs/reference/kmod.md), in chunks of 2 MiB of a process. What is mapped as a whole has the
 * first one of its chunk. A page that is not present loses its history.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "idle.h"
#include "tierd.h"

enum {
	NEWEST = 0x80,
	/* Three scans in a row before the last; the last two of eight and no other. */
	STEADY = 0x70,
	JUST_BEGUN = 0xc0,
	FEWEST_SLOTS = 64,
	/* Pages that stay hot are reported in turns, eight neighbours at a time. */
	TURN_PAGES = 8
};

struct chunk {
	uint64_t number;
	uint32_t round; /* the scan that last met it */
	uint32_t since; /* the step that last marked its pages */
	bool huge;
	uint8_t history[HUGE_PAGES];
	uint8_t hot[HUGE_PAGES / 8];
};

struct tierd_idle_histories {
	struct tierd_idle *idle;
	struct chunk **slot; /* a power of two of them, at most half of them used */
	size_t slots, chunks;
	struct tierd_span *span;
	size_t spans, span_used;
};

int tierd_idle_histories_new(struct tierd_idle *idle, struct tierd_idle_histories **out)
{
	struct tierd_idle_histories *histories = calloc(1, sizeof(*histories));

	if (histories == NULL)
		return -ENOMEM;
	histories->idle = idle;
	idle->users++;
	*out = histories;
	return 0;
}

void tierd_idle_histories_free(struct tierd_idle_histories *histories)
{
	if (histories == NULL)
		return;
	tierd_idle_forget(histories);
	free(histories->slot);
	free(histories->span);
	tierd_idle_free(histories->idle);
	free(histories);
}

int tierd_idle_ranges(struct tierd_idle_histories *histories, const struct tierd_span *span,
		      size_t n)
{
	struct tierd_span *kept = malloc((n + 1) * sizeof(*kept));

	if (kept == NULL)
		return -ENOMEM;
	memcpy(kept, span, n * sizeof(*kept));
	free(histories->span);
	histories->span = kept;
	histories->spans = n;
	return 0;
}

static bool range_after(const struct tierd_idle_histories *histories, uint64_t page,
			struct tierd_span *range)
{
	const size_t at = span_at(histories->span, histories->spans, page);

	if (at == histories->spans)
		return false;
	*range = histories->span[at];
	return true;
}

static void free_chunk(struct tierd_idle_histories *histories, struct chunk *chunk)
{
	free(chunk);
	histories->chunks--;
	histories->idle->stats.history_bytes -= sizeof(*chunk);
}

void tierd_idle_forget(struct tierd_idle_histories *histories)
{
	for (size_t i = 0; i < histories->slots; i++) {
		if (histories->slot[i] != NULL)
			free_chunk(histories, histories->slot[i]);
		histories->slot[i] = NULL;
	}
}

/* Where a chunk is, or would be. */
static struct chunk **find_slot(struct chunk **slot, size_t slots, uint64_t number)
{
	size_t at = (hash_key(number) >> 32) & (slots - 1);

	while (slot[at] != NULL && slot[at]->number != number)
		at = (at + 1) & (slots - 1);
	return &slot[at];
}

/* Another number of slots, with the chunks in them that are met in `round` (0: all). */
static bool resize(struct tierd_idle_histories *histories, size_t slots, uint32_t round)
{
	struct chunk **slot = calloc(slots, sizeof(struct chunk *));

	if (slot == NULL)
		return false;
	for (size_t i = 0; i < histories->slots; i++) {
		struct chunk *chunk = histories->slot[i];

		if (chunk != NULL && round != 0 && chunk->round != round)
			free_chunk(histories, chunk);
		else if (chunk != NULL)
			*find_slot(slot, slots, chunk->number) = chunk;
	}
	free(histories->slot);
	histories->slot = slot;
	histories->slots = slots;
	return true;
}

void tierd_idle_sweep(struct tierd_idle_histories *histories, uint32_t round)
{
	for (size_t i = 0; i < histories->slots; i++) {
		if (histories->slot[i] != NULL && histories->slot[i]->round != round) {
			resize(histories, histories->slots, round);
			return;
		}
	}
}

/* The chunk of a page, made if there is none; NULL where there is no memory for it. */
static struct chunk *chunk_of(struct tierd_idle_histories *histories, uint64_t page)
{
	struct tierd_idle_stats *stats = &histories->idle->stats;
	const uint64_t number = page / HUGE_PAGES;
	struct chunk *chunk = NULL;

	if (histories->slots > 0)
		chunk = *find_slot(histories->slot, histories->slots, number);
	if (chunk != NULL)
		return chunk;
	if (stats->history_bytes + sizeof(*chunk) > histories->idle->history_limit)
		goto full;
	if (2 * (histories->chunks + 1) > histories->slots &&
	    !resize(histories, histories->slots > 0 ? 2 * histories->slots : FEWEST_SLOTS, 0))
		goto full;
	chunk = calloc(1, sizeof(*chunk));
	if (chunk == NULL)
		goto full;
	chunk->number = number;
	*find_slot(histories->slot, histories->slots, number) = chunk;
	histories->chunks++;
	stats->history_bytes += sizeof(*chunk);
	return chunk;
full:
	stats->history_full++;
	return NULL;
}

/* 2 MiB are mapped as a whole now: it was used whenever one of its pages was; or they are not. */
static void set_huge(struct chunk *chunk, bool huge)
{
	if (chunk->huge == huge)
		return;
	chunk->huge = huge;
	if (!huge) {
		memset(chunk->history, chunk->history[0], sizeof(chunk->history));
		memset(chunk->hot, chunk->hot[0] & 1 ? 0xff : 0, sizeof(chunk->hot));
		return;
	}
	for (size_t i = 1; i < HUGE_PAGES; i++)
		chunk->history[0] |= chunk->history[i];
	for (size_t i = 0; i < sizeof(chunk->hot); i++)
		chunk->hot[0] |= chunk->hot[i] ? 1 : 0;
}

static int16_t node_of(struct tierd_idle *idle, uint64_t pfn)
{
	const struct tierd_span *span = idle->span;

	/* Neighbours mostly are on one node. */
	if (idle->span_used >= idle->spans || pfn < span[idle->span_used].start ||
	    pfn >= span[idle->span_used].end)
		idle->span_used = span_at(span, idle->spans, pfn);
	if (idle->span_used == idle->spans || pfn < span[idle->span_used].start)
		return -1;
	return idle->node[idle->span_used];
}

static void forget_pages(struct chunk *chunk, uint64_t from, uint64_t to)
{
	for (uint64_t page = from; page < to; page++) {
		const size_t at = page % HUGE_PAGES;

		chunk->history[at] = 0;
		chunk->hot[at / 8] &= (uint8_t)~(1U << at % 8);
	}
}

/* Ages the history of a unit, and makes a record of it if it is hot and it is its turn. */
static void age_unit(struct tierd_idle *idle, struct chunk *chunk, const struct unit *unit,
		     struct tierd_idle_step *step, struct tierd_hot_record *record)
{
	const size_t at = unit->state & UNIT_HUGE ? 0 : unit->vpn % HUGE_PAGES;
	const uint8_t bit = (uint8_t)(1U << at % 8);
	const bool was = chunk->hot[at / 8] & bit;
	const uint64_t pages = unit_pages(unit);
	bool accessed = unit->state & UNIT_ACCESSED, hot;
	uint8_t history;
	int seen;

	if (unit->state & UNIT_SHARED)
		accessed = idle_shared_accessed(idle, unit, chunk->since);
	/* A first scan finds what was never marked. */
	accessed = accessed && step->age > 0;
	step->pages += unit->state & UNIT_UNTRACKED ? 0 : pages;
	step->accessed += accessed ? pages : 0;
	history = (uint8_t)(chunk->history[at] >> 1 | (accessed ? NEWEST : 0));
	chunk->history[at] = history;
	if ((history & STEADY) == STEADY) {
		step->steady += pages;
		step->newly_idle += history & NEWEST ? 0 : pages;
	}
	seen = __builtin_popcount(history);
	hot = seen >= step->hot_scans || (was && seen > step->cold_scans);
	chunk->hot[at / 8] = (uint8_t)(hot ? chunk->hot[at / 8] | bit : chunk->hot[at / 8] & ~bit);
	if (hot && !was && step->age >= TIERD_HISTORY) {
		step->became_hot++;
		step->newly_hot += history == JUST_BEGUN;
	}
	if (!hot || (was && (unit->vpn / (unit->state & UNIT_HUGE ? HUGE_PAGES : TURN_PAGES) +
			     step->round) %
				    step->report_scans !=
				0))
		return;
	record[step->records++] = (struct tierd_hot_record){
	    .page = step->key | unit->vpn,
	    .time_ns = step->now_ns,
	    .kind = TIERD_RECORD_PAGE,
	    .flags = (uint8_t)(TIERD_PAGE_HOT | (was ? 0 : TIERD_PAGE_CHANGED) |
			       (unit->state & UNIT_HUGE ? TIERD_PAGE_PMD : 0) |
			       (unit->state & UNIT_SHARED ? TIERD_PAGE_SHARED : 0)),
	    .order = unit->state & UNIT_HUGE ? HUGE_ORDER : 0,
	    .card = history,
	    .node = node_of(idle, unit->pfn),
	    .count = step->age,
	};
}

/* The units from `*i` on in pages [from, to), which are of one chunk. */
static void visit_chunk(struct tierd_idle *idle, struct tierd_idle_histories *histories,
			uint64_t from, uint64_t to, size_t *i, struct tierd_idle_step *step,
			struct tierd_hot_record *record)
{
	const bool any = *i < idle->units && idle->unit[*i].vpn < to;
	struct chunk *chunk = any ? chunk_of(histories, from) : NULL;

	if (chunk != NULL) {
		set_huge(chunk, idle->unit[*i].state & UNIT_HUGE);
		/* A range that ends within 2 MiB that are mapped as a whole: once a scan is enough.
		 */
		if (step->mode != TIERD_IDLE_MARK && chunk->huge && chunk->round == step->round)
			chunk = NULL;
		else if (step->mode != TIERD_IDLE_MARK)
			chunk->round = step->round;
	}
	for (; *i < idle->units && idle->unit[*i].vpn < to; (*i)++) {
		const struct unit *unit = &idle->unit[*i];

		if (chunk == NULL || step->mode == TIERD_IDLE_MARK)
			continue;
		if (!chunk->huge) {
			forget_pages(chunk, from, unit->vpn);
			from = unit->vpn + 1;
		}
		age_unit(idle, chunk, unit, step, record);
	}
	if (chunk == NULL)
		return;
	if (step->mode != TIERD_IDLE_MARK && !chunk->huge)
		forget_pages(chunk, from, to);
	if (step->mode != TIERD_IDLE_CHECK)
		chunk->since = idle->step;
}

void idle_visit(struct tierd_idle *idle, struct tierd_idle_histories *histories,
		struct tierd_idle_step *step, struct tierd_hot_record *record)
{
	uint64_t at = step->start;
	struct tierd_span range;
	size_t i = 0;

	while (i < idle->units && at < step->next && range_after(histories, at, &range)) {
		const uint64_t end = range.end < step->next ? range.end : step->next;

		at = range.start > at ? range.start : at;
		while (at < end) {
			const uint64_t rest = (at / HUGE_PAGES + 1) * HUGE_PAGES;
			const uint64_t to = rest < end ? rest : end;

			visit_chunk(idle, histories, at, to, &i, step, record);
			at = to;
		}
	}
}
