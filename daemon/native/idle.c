/* SPDX-License-Identifier: Apache-2.0 */
/* A step of a scan by idle page tracking: tierd_idle.h says what it is, idle.h who does what. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "idle.h"

int tierd_idle_new(int bitmap, int flags, uint64_t frames, uint64_t history_bytes,
		   const struct tierd_idle_calls *calls, struct tierd_idle **out)
{
	struct tierd_idle *idle = calloc(1, sizeof(*idle));
	int err = -ENOMEM;

	if (idle == NULL)
		return err;
	idle->calls = calls != NULL ? *calls : idle_calls;
	idle->users = 1;
	idle->bitmap = bitmap;
	idle->flags = flags;
	idle->history_limit = history_bytes;
	err = idle_shared_new(idle, frames);
	if (err != 0) {
		free(idle);
		return err;
	}
	*out = idle;
	return 0;
}

void tierd_idle_free(struct tierd_idle *idle)
{
	if (idle == NULL || --idle->users > 0)
		return;
	idle_shared_free(idle);
	free(idle->span);
	free(idle->node);
	free(idle);
}

int tierd_idle_nodes(struct tierd_idle *idle, const struct tierd_span *span, const int16_t *node,
		     size_t n)
{
	struct tierd_span *spans = malloc((n + 1) * sizeof(*spans));
	int16_t *nodes = malloc((n + 1) * sizeof(*nodes));

	if (spans == NULL || nodes == NULL) {
		free(spans);
		free(nodes);
		return -ENOMEM;
	}
	memcpy(spans, span, n * sizeof(*spans));
	memcpy(nodes, node, n * sizeof(*nodes));
	free(idle->span);
	free(idle->node);
	idle->span = spans;
	idle->node = nodes;
	idle->spans = n;
	return 0;
}

const struct tierd_idle_stats *tierd_idle_stats(const struct tierd_idle *idle)
{
	return &idle->stats;
}

/* By eleven bits at a time, from the lowest of the frame's on; digits that all have are left out.
 */
static void sort_units(struct tierd_idle *idle)
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

static int read_and_write(struct tierd_idle *idle, struct tierd_idle_step *step)
{
	const enum tierd_idle_mode mode = step->mode;
	const uint8_t again = mode == TIERD_IDLE_MARK ? 0 : UNIT_ACCESSED | UNIT_UNTRACKED;
	int err;

	if (mode == TIERD_IDLE_MARK)
		err = idle_shared_before_mark(idle);
	else
		err = idle_check(idle, step);
	if (err != 0)
		return err;
	if (mode != TIERD_IDLE_MARK && idle->units > 0) {
		const struct unit *last = &idle->unit[idle->units - 1];

		step->folio = last->pfn;
		step->folio_round = step->round;
		step->folio_state = last->state & (UNIT_ACCESSED | UNIT_UNTRACKED);
	}
	/* A folio of which no unit is the first page is marked at no other time. */
	if (mode == TIERD_IDLE_CHECK)
		return idle_mark_folios(idle, UNIT_TAIL);
	err = idle_mark(idle, again);
	if (err == 0)
		idle_shared_marked(idle, again);
	return err;
}

int tierd_idle_scan(struct tierd_idle *idle, struct tierd_idle_histories *histories,
		    const struct tierd_idle_reader *reader, struct tierd_idle_step *step,
		    struct tierd_hot_record *record)
{
	int err;

	if (step->report_scans == 0)
		return -EINVAL;
	idle_shared_step(idle);
	memcpy(idle->unit, reader->unit, reader->units * sizeof(*reader->unit));
	step->units = idle->units = reader->units;
	step->start = reader->start;
	step->next = reader->next;
	step->done = reader->done;
	sort_units(idle);
	step->records = step->pages = step->accessed = 0;
	step->became_hot = step->newly_hot = step->steady = step->newly_idle = 0;
	err = read_and_write(idle, step);
	if (err != 0)
		return err;
	idle_visit(idle, histories, step, record);
	idle->stats.pages += step->pages;
	idle->stats.accessed += step->accessed;
	for (size_t i = 0; i < idle->units && step->mode != TIERD_IDLE_MARK; i++) {
		if (idle->unit[i].state & UNIT_UNTRACKED)
			idle->stats.untracked += unit_pages(&idle->unit[i]);
	}
	return 0;
}
