/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's move commands: queued, checked against what is true now, few under way on
 * each path so that what is not started can be taken back, reported one by one.
 *
 * Nothing goes to a neighbour without a lease for it, nor when its free memory, as the
 * driver tells at that moment, would fall below the neighbour's floor.
 */
#include "client.h"

#include <errno.h>
#include <string.h>

#define SCAN 128u /* queued moves looked at in one turn */

static int home_of(const struct tg_client *c)
{
	return c->options.device;
}

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

void tg_cancel(struct tg_client *c, const uint32_t *chunks, uint32_t count)
{
	for (uint32_t i = 0; i < c->normal.count; i++) {
		struct tgw_move *move = &c->normal.move[i];
		bool named = !count;

		for (uint32_t j = 0; j < count && !named; j++)
			named = chunks[j] == move->chunk;
		if (named && move->flags & TGW_PREFETCH && current(c, move))
			give_up(c, move, ECANCELED);
	}
}

static void land(struct tg_client *c, struct tg_flight *f, int status)
{
	struct tg_chunk *chunk = &c->chunk[f->chunk];

	if (!status)
		status = tg_copy_finish(c, f);
	chunk->state = TG_IDLE;
	c->on_path[tg_place(f->from)][tg_place(f->to)]--;
	f->used = false;
	c->stats.inflight--;
	if (status) {
		c->stats.moves_failed++;
	} else {
		c->stats.moves_done++;
		c->stats.bytes_moved += TG_CHUNK_BYTES;
		if (f->move.op == TGW_OP_COPY && f->to == TG_HOST)
			chunk->host_copy = true;
		else
			tg_set_location(c, chunk, f->to);
		if (f->move.op == TGW_OP_COPY && f->from == TG_HOST)
			chunk->host_copy = true;
	}
	if (chunk->touched && !chunk->in_place) {
		/* A kernel wanted it at home in the meantime: the driver brought it back. */
		tg_set_location(c, chunk, home_of(c));
		chunk->host_copy = false;
		chunk->astray = chunk->read_mostly;
		if (!chunk->pins && chunk->astray)
			tg_gather(c, chunk);
	}
	chunk->touched = false;
	tg_report_state(c, f->chunk, &f->move, -status);
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
		if (f->used && f->from == from && f->to == to)
			land(c, f, status);
	}
}

/* Whatever is planned for a chunk is off; what is under way is waited for. */
void tg_settle_chunk(struct tg_client *c, struct tg_chunk *chunk)
{
	if (chunk->state == TG_QUEUED) {
		struct tgw_move move = {.chunk = tg_index(c, chunk), .sequence = chunk->sequence};

		give_up(c, &move, ECANCELED);
		return;
	}
	for (int i = 0; i < TG_MAX_INFLIGHT && chunk->state == TG_MOVING; i++) {
		struct tg_flight *f = &c->flight[i];

		if (f->used && f->chunk == tg_index(c, chunk))
			end_move(c, f, tg_copy_wait(c, f));
	}
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

static uint32_t incoming(const struct tg_client *c, int to)
{
	uint32_t sum = 0;

	for (int from = 0; from < TG_PLACES; from++)
		sum += c->on_path[from][to];
	return sum;
}

/* Whether the destination may take one more chunk: 0, or why not (positive errno). */
static int admit(struct tg_client *c, const struct tgw_move *move)
{
	uint64_t floor_bytes = 0, free_bytes = 0;
	int to = move->dest;

	if (to == TG_HOST)
		return 0;
	if (to >= c->devices)
		return ENODEV;
	if (to != home_of(c)) {
		if (c->here[to] + incoming(c, to) >= c->grant[to].chunks)
			return EDQUOT;
		floor_bytes = c->grant[to].floor_bytes;
	}
	if (tg_room(c, to, &free_bytes))
		return ENODEV;
	return free_bytes < floor_bytes + TG_CHUNK_BYTES ? ENOSPC : 0;
}

/* What needs no copy. Returns a positive errno, 0 when done. */
static int at_once(struct tg_client *c, const struct tgw_move *move)
{
	struct tg_chunk *chunk = &c->chunk[move->chunk];
	int ret = -EOPNOTSUPP;

	if (move->op == TGW_OP_DROP) {
		if (!chunk->host_copy || move->dest != TG_HOST)
			return ESTALE;
		ret = tg_keep_only(c, chunk, TG_HOST);
		if (!ret)
			tg_set_location(c, chunk, TG_HOST);
	} else if (move->op == TGW_OP_MAP || move->op == TGW_OP_UNMAP) {
		if (chunk->location == TG_NO_PLACE || chunk->read_mostly)
			return ESTALE;
		ret = tg_in_place(c, chunk, move->op == TGW_OP_MAP);
	}
	return -ret;
}

static struct tg_flight *free_flight(struct tg_client *c)
{
	for (int i = 0; i < TG_MAX_INFLIGHT; i++)
		if (!c->flight[i].used)
			return &c->flight[i];
	return NULL;
}

static int take_off(struct tg_client *c, const struct tgw_move *move)
{
	struct tg_chunk *chunk = &c->chunk[move->chunk];
	struct tg_flight *f = free_flight(c);
	int ret;

	if (!f)
		return EAGAIN;
	if (chunk->location == TG_NO_PLACE || chunk->location == move->dest)
		return ESTALE;
	/* A use came before the command: a copy of this would leave the host without one. */
	if (move->op == TGW_OP_COPY && move->dest != TG_HOST && chunk->location != TG_HOST)
		return ESTALE;
	if (chunk->pins && move->dest != home_of(c))
		return EBUSY;
	ret = admit(c, move);
	if (ret)
		return ret;
	f->chunk = move->chunk;
	f->from = chunk->location;
	f->to = move->dest;
	f->move = *move;
	ret = tg_copy_start(c, f);
	if (ret)
		return -ret;
	f->used = true;
	chunk->state = TG_MOVING;
	c->on_path[tg_place(f->from)][tg_place(f->to)]++;
	c->stats.inflight++;
	return 0;
}

/* Starts one queued move. False: its path is full, and it stays queued. */
static bool try_move(struct tg_client *c, const struct tgw_move *move)
{
	const struct tg_chunk *chunk = &c->chunk[move->chunk];
	uint32_t most = c->options.inflight;
	int status;

	if (!current(c, move))
		return true;
	if (move->op == TGW_OP_MOVE || move->op == TGW_OP_COPY) {
		if (chunk->location != TG_NO_PLACE &&
		    c->on_path[tg_place(chunk->location)][tg_place(move->dest)] >= most)
			return false;
		status = take_off(c, move);
		if (!status)
			return true;
		if (status == EAGAIN)
			return false;
	} else {
		status = at_once(c, move);
		if (!status) {
			c->stats.moves_done++;
			c->chunk[move->chunk].state = TG_IDLE;
			tg_report_state(c, move->chunk, move, 0);
			return true;
		}
	}
	give_up(c, move, status);
	return true;
}

static void start_some(struct tg_client *c, struct tg_ring *ring)
{
	uint32_t scan = ring->count < SCAN ? ring->count : SCAN, kept = 0;

	for (uint32_t i = 0; i < scan; i++) {
		struct tgw_move move = ring->move[i];

		if (!try_move(c, &move))
			ring->move[kept++] = move;
	}
	memmove(&ring->move[kept], &ring->move[scan], (ring->count - scan) * sizeof(ring->move[0]));
	ring->count -= scan - kept;
}

/* Ends what has ended, starts what may start. Returns how many moves are under way. */
int tg_run_moves(struct tg_client *c)
{
	for (int i = 0; i < TG_MAX_INFLIGHT; i++) {
		struct tg_flight *f = &c->flight[i];
		int status;

		if (!f->used)
			continue;
		status = tg_copy_poll(c, f);
		if (status != -EAGAIN)
			end_move(c, f, status);
	}
	start_some(c, &c->urgent);
	start_some(c, &c->normal);
	c->stats.queued = c->urgent.count + c->normal.count;
	return (int)c->stats.inflight;
}
