/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's move commands: queued, checked against what is true now, few under way on
 * each path so that what is not started can be taken back, reported one by one. Commands
 * for neighbouring chunks on the same path are carried out by one call.
 *
 * Nothing goes to a neighbour without a lease for it. What is free there the driver does
 * not tell usefully: memory that was left behind counts as used (harvest.py counts it).
 */
#include "client.h"

#include <errno.h>
#include <string.h>

int tg_queue(struct tg_client *c, const struct tgw_move *move)
{
	struct tg_ring *ring = move->flags & TGW_URGENT ? &c->urgent : &c->normal;
	struct tg_chunk *chunk;

	if (move->chunk >= c->max_chunks)
		return -EINVAL;
	chunk = &c->chunk[move->chunk];
	if (chunk->state == TG_FREE || chunk->state == TG_MOVING) {
		tg_report_state(c, move->chunk, move, chunk->state == TG_FREE ? ESTALE : EBUSY);
		return 0;
	}
	if (ring->count == TG_QUEUE) {
		c->stats.moves_dropped++;
		tg_report_state(c, move->chunk, move, ENOBUFS);
		return 0;
	}
	chunk->state = TG_QUEUED; /* an older move of the chunk is passed over */
	chunk->sequence = move->sequence;
	ring->move[ring->count++] = *move;
	return 0;
}

static bool current(const struct tg_client *c, const struct tgw_move *move)
{
	const struct tg_chunk *chunk = &c->chunk[move->chunk];

	return chunk->state == TG_QUEUED && chunk->sequence == move->sequence;
}

static void give_up(struct tg_client *c, const struct tgw_move *move, int status)
{
	c->chunk[move->chunk].state = TG_IDLE;
	if (status == ECANCELED)
		c->stats.moves_cancelled++;
	else
		c->stats.moves_refused++;
	tg_report_state(c, move->chunk, move, status);
}

/* One chunk of a flight has arrived, or with `status` has not. */
static void land_chunk(struct tg_client *c, const struct tg_flight *f, const struct tgw_move *move,
		       int status)
{
	struct tg_chunk *chunk = &c->chunk[move->chunk];

	chunk->state = TG_IDLE;
	if (status) {
		c->stats.moves_failed++;
	} else {
		c->stats.moves_done++;
		c->stats.bytes_moved += TG_CHUNK_BYTES;
		tg_set_location(c, chunk, f->to);
	}
	/* A kernel wanted it at home in the meantime: the driver brought it back. */
	if (chunk->touched && !chunk->in_place)
		tg_set_location(c, chunk, tg_home(c));
	chunk->touched = false;
	tg_report_state(c, move->chunk, move, -status);
}

/* What has left home is used from there where it is, until it is moved again. */
static void map_run(struct tg_client *c, const struct tg_flight *f)
{
	for (uint32_t i = 0; i < f->count; i++)
		if (c->chunk[f->first + i].touched)
			return; /* it is at home again */
	for (uint32_t i = 0; i < f->count; i++)
		tg_set_location(c, &c->chunk[f->first + i], f->to);
	tg_in_place(c, &c->chunk[f->first], f->count, true);
}

static void land(struct tg_client *c, struct tg_flight *f, int status)
{
	f->used = false;
	c->on_path[tg_place(f->from)][tg_place(f->to)]--;
	c->toward[tg_place(f->to)] -= f->count;
	c->stats.inflight -= f->count;
	if (!status && f->move[0].flags & TGW_IN_PLACE)
		map_run(c, f);
	for (uint32_t i = 0; i < f->count; i++)
		land_chunk(c, f, &f->move[i], status);
}

/*
 * A move ended. An error belongs to its stream, not to one copy on it: the driver tells it
 * once to whoever asks first, so nothing that was under way there is believed.
 */
static void end_move(struct tg_client *c, struct tg_flight *f, int status)
{
	int from = f->from, to = f->to;

	if (!status) {
		land(c, f, 0);
		return;
	}
	for (int i = 0; i < TG_MAX_INFLIGHT; i++) {
		f = &c->flight[i];
		if (!f->used || f->from != from || f->to != to)
			continue;
		if (f->calling)
			f->failed = status;
		else
			land(c, f, status);
	}
}

/* Whatever is planned for a chunk is off; what is under way is waited for. */
bool tg_settle_chunk(struct tg_client *c, struct tg_chunk *chunk)
{
	uint32_t index = tg_index(c, chunk);
	bool waited = false;

	if (chunk->state == TG_QUEUED) {
		struct tgw_move move = {.chunk = index, .sequence = chunk->sequence};

		give_up(c, &move, ECANCELED);
		return false;
	}
	for (int i = 0; i < TG_MAX_INFLIGHT && chunk->state == TG_MOVING; i++) {
		struct tg_flight *f = &c->flight[i];

		while (f->used && f->calling && index - f->first < f->count) {
			pthread_cond_wait(&c->called, &c->lock);
			waited = true;
		}
		if (f->used && index - f->first < f->count)
			end_move(c, f, tg_copy_wait(c, f));
	}
	return waited;
}

void tg_cancel_all(struct tg_client *c, bool wait)
{
	for (int turn = 0; turn < 2; turn++) {
		struct tg_ring *ring = turn ? &c->normal : &c->urgent;

		for (uint32_t i = 0; i < ring->count; i++)
			if (current(c, &ring->move[i]))
				give_up(c, &ring->move[i], ECANCELED);
		ring->count = 0;
	}
	for (int i = 0; wait && i < TG_MAX_INFLIGHT; i++)
		if (c->flight[i].used)
			end_move(c, &c->flight[i], tg_copy_wait(c, &c->flight[i]));
}

/* Whether a move may be carried out as things are: 0, or why not (positive errno). */
static int may_go(struct tg_client *c, const struct tgw_move *move)
{
	const struct tg_chunk *chunk = &c->chunk[move->chunk];
	int to = move->dest;

	if (chunk->location == TG_NO_PLACE || chunk->location == to)
		return ESTALE;
	if (chunk->pins && to != tg_home(c))
		return EBUSY;
	if (to == TG_HOST || to == tg_home(c))
		return 0;
	if (to >= c->devices)
		return ENODEV;
	return c->here[to] + c->toward[to] >= c->grant[to].chunks ? EDQUOT : 0;
}

static struct tg_flight *free_flight(struct tg_client *c)
{
	for (int i = 0; i < TG_MAX_INFLIGHT; i++)
		if (!c->flight[i].used)
			return &c->flight[i];
	return NULL;
}

static void board(struct tg_client *c, struct tg_flight *f, const struct tgw_move *move)
{
	f->first = f->count && f->first < move->chunk ? f->first : move->chunk;
	f->move[f->count++] = *move;
	c->chunk[move->chunk].state = TG_MOVING;
	c->toward[tg_place(f->to)]++;
	c->stats.inflight++;
}

/* Whether a queued move is of a chunk beside those of the flight, and goes the same way. */
static bool joins(struct tg_client *c, const struct tg_flight *f, const struct tgw_move *move)
{
	const struct tg_chunk *first = &c->chunk[f->first], *chunk = &c->chunk[move->chunk];
	const struct tg_range *range = tg_range_at(c, first->addr);

	return (move->chunk == f->first + f->count || move->chunk + 1 == f->first) &&
	       move->chunk - range->first < range->count && move->dest == f->to &&
	       !((move->flags ^ f->move[0].flags) & TGW_IN_PLACE) && current(c, move) &&
	       chunk->location == f->from && !may_go(c, move);
}

/* Those that join have no destination any more in `later`. */
static void gather_run(struct tg_client *c, struct tg_flight *f, struct tgw_move *later,
		       uint32_t count)
{
	uint32_t most = f->to == TG_HOST ? TG_HOST_RUN : TG_RUN, before;

	do {
		before = f->count;
		for (uint32_t i = 0; i < count && f->count < most; i++)
			if (joins(c, f, &later[i])) {
				board(c, f, &later[i]);
				later[i].dest = TG_NO_PLACE;
			}
	} while (f->count > before);
}

/* Starts a move, and those of `later` that go with it. */
static int take_off(struct tg_client *c, const struct tgw_move *move, struct tgw_move *later,
		    uint32_t count)
{
	struct tg_flight *f = free_flight(c);
	int ret;

	if (!f)
		return EAGAIN;
	ret = may_go(c, move);
	if (!ret && move->dest != TG_HOST && tg_reach(c, move->dest))
		ret = ENODEV;
	if (ret)
		return ret;
	f->from = c->chunk[move->chunk].location;
	f->to = move->dest;
	f->count = 0;
	f->failed = 0;
	f->used = f->calling = true;
	c->on_path[tg_place(f->from)][tg_place(f->to)]++;
	board(c, f, move);
	gather_run(c, f, later, count);
	ret = tg_copy_prepare(c, f);
	if (!ret) {
		pthread_mutex_unlock(&c->lock);
		ret = tg_copy_call(c, f);
		pthread_mutex_lock(&c->lock);
	}
	f->calling = false;
	pthread_cond_broadcast(&c->called);
	if (!ret)
		ret = f->failed;
	if (!ret) /* a call to the host has waited for it */
		ret = f->to == TG_HOST ? tg_copy_poll(c, f) : -EAGAIN;
	if (ret != -EAGAIN)
		end_move(c, f, ret);
	return 0;
}

/* Carries out one queued move. False: its path is full or the turn is over; it stays. */
static bool try_move(struct tg_client *c, const struct tgw_move *move, struct tgw_move *later,
		     uint32_t count)
{
	const struct tg_chunk *chunk = &c->chunk[move->chunk];
	uint32_t most = c->options.inflight;
	int status;

	if (!current(c, move))
		return true;
	if (tg_now(c) - c->turn_ns > TG_TURN_NS)
		return false;
	if (chunk->location != TG_NO_PLACE &&
	    c->on_path[tg_place(chunk->location)][tg_place(move->dest)] >= most)
		return false;
	status = take_off(c, move, later, count);
	if (status && status != EAGAIN)
		give_up(c, move, status);
	return status != EAGAIN;
}

/* What stays queued goes back in front of what came meanwhile. */
static void start_some(struct tg_client *c, struct tg_ring *ring)
{
	uint32_t count = ring->count < TG_WINDOW ? ring->count : TG_WINDOW, kept = 0;
	struct tgw_move window[TG_WINDOW];

	memcpy(window, ring->move, count * sizeof(window[0]));
	ring->count -= count;
	memmove(ring->move, &ring->move[count], ring->count * sizeof(window[0]));
	for (uint32_t i = 0; i < count; i++) {
		struct tgw_move move = window[i];

		if (move.dest == TG_NO_PLACE)
			continue; /* it has gone with another */
		if (!try_move(c, &move, &window[i + 1], count - i - 1))
			window[kept++] = move;
	}
	memmove(&ring->move[kept], ring->move, ring->count * sizeof(window[0]));
	memcpy(ring->move, window, kept * sizeof(window[0]));
	ring->count += kept;
}

/* Ends what has ended, starts what may start. Returns how many moves are under way or wait. */
int tg_run_moves(struct tg_client *c)
{
	c->turn_ns = tg_now(c);
	for (int i = 0; i < TG_MAX_INFLIGHT; i++) {
		struct tg_flight *f = &c->flight[i];
		int status;

		if (!f->used || f->calling)
			continue;
		status = tg_copy_poll(c, f);
		if (status != -EAGAIN)
			end_move(c, f, status);
	}
	start_some(c, &c->urgent);
	if (!c->urgent.count)
		start_some(c, &c->normal); /* the process's moves follow each other */
	c->stats.queued = c->urgent.count + c->normal.count;
	return (int)(c->stats.inflight + c->stats.queued);
}
