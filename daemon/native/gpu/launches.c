/* SPDX-License-Identifier: Apache-2.0 */
#include "launches.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { UNMARKED = UINT16_MAX, FORGOTTEN = UINT16_MAX - 1 };

struct waiting {
	struct tg_span span;
	uint16_t mark; /* the event behind it; UNMARKED: none yet, FORGOTTEN: it did not run */
	uint16_t stream;
};

struct mark {
	CUevent event;
	uint32_t waiting; /* spans that wait for it; 0: it is free */
	bool passed;
};

struct tg_launches {
	pthread_mutex_t lock;
	struct waiting waiting[TG_WAITING];
	uint32_t head, count;
	struct mark mark[TG_MARKS];
	bool no_events; /* the driver refused to make one */
	struct {
		CUstream stream;
		uint64_t marked_ns, launched_ns;
		uint32_t open; /* spans without a mark */
	} stream[TG_STREAMS];
	uint32_t streams;
	uint32_t ticket, turn_spans;
	uint8_t turn;
	uint8_t *start;	     /* by chunk: the turn in which an address began there, 0: none */
	uint32_t *ticket_of; /* by chunk: the launch that took it last */
};

int tg_launches_open(struct tg_client *c)
{
	struct tg_launches *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->start = calloc(c->max_chunks, sizeof(*l->start));
	l->ticket_of = calloc(c->max_chunks, sizeof(*l->ticket_of));
	if (!l->start || !l->ticket_of) {
		free(l->start);
		free(l->ticket_of);
		free(l);
		return -ENOMEM;
	}
	pthread_mutex_init(&l->lock, NULL);
	l->turn = 1;
	c->launches = l;
	return 0;
}

void tg_launches_close(struct tg_client *c)
{
	struct tg_launches *l = c->launches;

	if (!l)
		return;
	for (uint32_t i = 0; i < TG_MARKS; i++)
		if (l->mark[i].event)
			c->driver.event_destroy(l->mark[i].event);
	pthread_mutex_destroy(&l->lock);
	free(l->start);
	free(l->ticket_of);
	free(l);
	c->launches = NULL;
}

bool tg_launches_watching(struct tg_client *c)
{
	return c->launches && __atomic_load_n(&c->attached, __ATOMIC_RELAXED);
}

void tg_launches_begin(struct tg_client *c, struct tg_spans *spans)
{
	spans->count = 0;
	spans->ticket = __atomic_add_fetch(&c->launches->ticket, 1, __ATOMIC_RELAXED);
}

static void add(struct tg_client *c, struct tg_spans *spans, uint64_t addr, uint64_t bytes)
{
	if (spans->count == TG_LAUNCH_SPANS)
		__atomic_add_fetch(&c->stats.spans_dropped, 1, __ATOMIC_RELAXED);
	else
		spans->span[spans->count++] = (struct tg_span){addr, bytes};
}

/* From the chunk of `addr` to the next at which an address began of late. */
static void add_from(struct tg_client *c, struct tg_spans *spans, const struct tg_range *range,
		     uint64_t addr)
{
	struct tg_launches *l = c->launches;
	uint32_t at = (uint32_t)((addr - range->addr) / TG_CHUNK_BYTES), end = at + 1;
	uint32_t chunk = range->first + at;
	uint8_t turn = l->turn, before = (uint8_t)(turn - 1);

	l->start[chunk] = turn;
	if (l->ticket_of[chunk] == spans->ticket)
		return;
	l->ticket_of[chunk] = spans->ticket;
	while (end < range->count) {
		uint8_t seen = l->start[range->first + end];

		if (seen && (seen == turn || seen == before))
			break;
		end++;
	}
	add(c, spans, range->addr + at * TG_CHUNK_BYTES, (end - at) * TG_CHUNK_BYTES);
}

void tg_launches_scan(struct tg_client *c, struct tg_spans *spans, const void *words, size_t bytes)
{
	uint64_t low, width;

	pthread_rwlock_rdlock(&c->ranges_lock);
	if (!c->ranges) {
		pthread_rwlock_unlock(&c->ranges_lock);
		return;
	}
	low = c->range[0].addr;
	width = c->range[c->ranges - 1].addr + c->range[c->ranges - 1].bytes - low;
	for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
		struct tg_range *range;
		uint64_t word;

		memcpy(&word, (const char *)words + at, sizeof(word));
		if (word - low >= width)
			continue;
		range = tg_range_at(c, word);
		if (range)
			add_from(c, spans, range, word);
	}
	pthread_rwlock_unlock(&c->ranges_lock);
}

void tg_launches_exact(struct tg_client *c, struct tg_spans *spans, uint64_t addr, size_t bytes)
{
	struct tg_range *range;

	pthread_rwlock_rdlock(&c->ranges_lock);
	range = tg_range_at(c, addr);
	if (range && bytes) {
		uint64_t most = range->addr + range->bytes - addr;

		add(c, spans, addr, bytes < most ? bytes : most);
	}
	pthread_rwlock_unlock(&c->ranges_lock);
}

static uint16_t slot_of(struct tg_launches *l, CUstream stream)
{
	for (uint32_t i = 0; i < l->streams; i++)
		if (l->stream[i].stream == stream)
			return (uint16_t)i;
	if (l->streams == TG_STREAMS)
		return (uint16_t)((uintptr_t)stream / 64 % TG_STREAMS);
	l->stream[l->streams].stream = stream;
	return (uint16_t)l->streams++;
}

/* Everything of the stream that waits without a mark gets this one, and so does what
 * streams left that have been idle since. The last free mark is for what all streams left:
 * spans are reported in their order, so that no mark would ever be free again if all of
 * them waited behind a span without one. */
static void give_mark(struct tg_launches *l, uint16_t slot, struct mark *mark, bool last,
		      uint64_t now)
{
	for (uint32_t i = 0; i < l->count; i++) {
		struct waiting *w = &l->waiting[(l->head + i) % TG_WAITING];

		if (w->mark != UNMARKED)
			continue;
		if (w->stream != slot && !last &&
		    now - l->stream[w->stream].launched_ns < TG_STALE_NS)
			continue;
		w->mark = (uint16_t)(mark - l->mark);
		mark->waiting++;
		l->stream[w->stream].open--;
	}
}

/* What was launched while the stream captured has not run. */
static void forget_open(struct tg_launches *l, uint16_t slot)
{
	for (uint32_t i = 0; i < l->count; i++) {
		struct waiting *w = &l->waiting[(l->head + i) % TG_WAITING];

		if (w->stream == slot && w->mark == UNMARKED) {
			w->span.bytes = 0;
			w->mark = FORGOTTEN;
		}
	}
	l->stream[slot].open = 0;
}

/* A free mark with an event, if there is one, and whether it is the last one. To know that, an
 * event more than is needed is made: the driver may refuse the next. */
static struct mark *free_mark(struct tg_client *c, bool *last)
{
	struct tg_launches *l = c->launches;
	struct mark *found = NULL;
	uint32_t ready = 0;

	for (uint32_t i = 0; i < TG_MARKS; i++)
		if (!l->mark[i].waiting && l->mark[i].event) {
			found = &l->mark[i];
			ready++;
		}
	for (uint32_t i = 0; i < TG_MARKS && ready < 2 && !l->no_events; i++) {
		struct mark *mark = &l->mark[i];

		if (mark->event)
			continue;
		if (c->driver.event_create(&mark->event, CU_EVENT_DISABLE_TIMING)) {
			mark->event = NULL;
			l->no_events = true; /* from now on those that there are have to do */
			break;
		}
		found = mark;
		ready++;
	}
	*last = ready == 1;
	return found;
}

/* An event behind everything of one stream. Not while the stream captures: it would be in
 * the graph. */
static void set_mark(struct tg_client *c, uint16_t slot, CUstream stream, uint64_t now)
{
	struct tg_launches *l = c->launches;
	struct mark *mark;
	int capturing = 0;
	bool last;

	if (c->driver.stream_capturing && c->driver.stream_capturing(stream, &capturing))
		return; /* another stream captures, and this one would take part in it */
	if (capturing) {
		forget_open(l, slot);
		return;
	}
	mark = free_mark(c, &last);
	if (!mark || c->driver.event_record(mark->event, stream))
		return;
	mark->passed = false;
	give_mark(l, slot, mark, last, now);
}

/* Takes the oldest span off. */
static struct tg_span take_oldest(struct tg_launches *l)
{
	const struct waiting *w = &l->waiting[l->head];

	if (w->mark == UNMARKED)
		l->stream[w->stream].open--;
	else if (w->mark != FORGOTTEN)
		l->mark[w->mark].waiting--;
	l->head = (l->head + 1) % TG_WAITING;
	l->count--;
	return w->span;
}

void tg_launches_end(struct tg_client *c, const struct tg_spans *spans, CUstream stream, bool told)
{
	struct tg_launches *l = c->launches;
	uint64_t now = tg_now(c);
	uint16_t slot;

	pthread_mutex_lock(&l->lock);
	c->stats.launches++;
	c->stats.launches_untold += !told;
	slot = slot_of(l, stream);
	for (uint32_t i = 0; i < spans->count; i++) {
		if (l->count == TG_WAITING) {
			take_oldest(l);
			c->stats.spans_dropped++;
		}
		l->waiting[(l->head + l->count++) % TG_WAITING] = (struct waiting){
		    .span = spans->span[i],
		    .mark = UNMARKED,
		    .stream = slot,
		};
		l->stream[slot].open++;
	}
	l->stream[slot].launched_ns = now;
	l->turn_spans += spans->count;
	if (l->turn_spans >= TG_FORGET_SPANS) {
		l->turn_spans = 0;
		l->turn = l->turn == UINT8_MAX ? 1 : (uint8_t)(l->turn + 1);
	}
	if (l->stream[slot].open && (now - l->stream[slot].marked_ns >= TG_MARK_NS ||
				     l->stream[slot].open >= TG_MARK_SPANS)) {
		l->stream[slot].marked_ns = now;
		set_mark(c, slot, stream, now);
	}
	pthread_mutex_unlock(&l->lock);
}

int tg_launched(struct tg_client *c, const uint64_t *addresses, size_t count, void *stream)
{
	struct tg_spans spans;
	int ret = c->launches ? 0 : tg_launches_open(c);

	if (ret)
		return ret;
	tg_launches_begin(c, &spans);
	tg_launches_scan(c, &spans, addresses, count * sizeof(*addresses));
	tg_launches_end(c, &spans, stream, true);
	return 0;
}

/* Asks which marks have passed. Returns whether one has not. */
static bool pass_marks(struct tg_client *c)
{
	struct tg_launches *l = c->launches;
	bool more = false;

	for (uint32_t i = 0; i < TG_MARKS; i++) {
		struct mark *mark = &l->mark[i];

		if (!mark->waiting || mark->passed)
			continue;
		mark->passed = c->driver.event_query(mark->event) != CUDA_ERROR_NOT_READY;
		more |= !mark->passed;
	}
	return more;
}

static bool has_run(const struct tg_launches *l, const struct waiting *w)
{
	return w->mark == FORGOTTEN || (w->mark != UNMARKED && l->mark[w->mark].passed);
}

/* What has run, from the oldest launch on. */
static uint32_t take_run(struct tg_launches *l, struct tg_span *out)
{
	uint32_t taken = 0;

	while (taken < TG_BATCH && l->count && has_run(l, &l->waiting[l->head]))
		out[taken++] = take_oldest(l);
	return taken;
}

bool tg_launches_poll(struct tg_client *c)
{
	struct tg_launches *l = c->launches;
	struct tg_span run[TG_BATCH];
	uint32_t taken;
	bool more;

	if (!l)
		return false;
	pthread_mutex_lock(&l->lock);
	more = pass_marks(c);
	pthread_mutex_unlock(&l->lock);
	do {
		pthread_mutex_lock(&l->lock);
		taken = take_run(l, run);
		pthread_mutex_unlock(&l->lock);
		for (uint32_t i = 0; i < taken; i++)
			if (run[i].bytes)
				tg_used(c, run[i].addr, run[i].bytes);
	} while (taken == TG_BATCH);
	return more;
}
