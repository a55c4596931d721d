/* SPDX-License-Identifier: Apache-2.0 */
/* What the client tells the daemon, kept in rings until it is sent; the full ones count. */
#include "client.h"

#include <errno.h>
#include <string.h>
#include <time.h>

uint64_t tg_now(const struct tg_client *c)
{
	struct timespec now;

	if (c->options.clock_ns)
		return c->options.clock_ns();
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void tg_report_use(struct tg_client *c, uint32_t chunk, uint32_t bytes)
{
	uint32_t pages = (bytes + 4095) / 4096;

	c->stats.uses++;
	if (!c->attached)
		return;
	if (c->uses == TG_REPORTS) {
		c->stats.uses_dropped++;
		return;
	}
	c->use[(c->use_head + c->uses++) % TG_REPORTS] = (struct tgw_use){
	    .chunk = chunk,
	    .pages = (uint16_t)(pages > 512 ? 512 : pages),
	    .time_ns = tg_now(c),
	};
	if (c->uses % 16 == 0)
		tg_link_wake(c);
}

/* What is true of a chunk now. False: nothing that the daemon could be told. */
static bool describe(struct tg_client *c, uint32_t chunk, struct tgw_state *out)
{
	const struct tg_chunk *at = &c->chunk[chunk];
	int number = TG_HOST;

	if (at->state == TG_FREE || at->location == TG_NO_PLACE)
		return false;
	if (at->location != TG_HOST) {
		number = c->number_of[at->location];
		if (number < 0)
			return false; /* the daemon has not said how it numbers GPUs */
	}
	*out = (struct tgw_state){
	    .chunk = chunk,
	    .location = (int16_t)number,
	    .flags = at->in_place ? TGW_IN_PLACE : 0,
	    .time_ns = tg_now(c),
	};
	return true;
}

void tg_report_state(struct tg_client *c, uint32_t chunk, const struct tgw_move *move, int status)
{
	struct tgw_state state;

	if (!c->attached || !describe(c, chunk, &state))
		return;
	if (c->reports == TG_REPORTS) {
		c->stats.states_dropped++;
		c->resync = 0; /* and all of them are told again */
		return;
	}
	state.status = (uint8_t)status;
	state.sequence = move ? move->sequence : 0;
	c->report[(c->report_head + c->reports++) % TG_REPORTS] = state;
	tg_link_wake(c);
}

void tg_report_change(struct tg_client *c, uint32_t first, uint32_t count, bool live)
{
	if (!c->attached)
		return; /* a daemon that comes is told everything */
	if (c->changes == TG_CHANGES) {
		c->stats.states_dropped++;
		return;
	}
	c->change[c->changes++] = (struct tgw_chunks){first, count, live, 0};
	tg_link_wake(c);
}

struct packet {
	struct tgw_header head;
	uint8_t body[TGW_MAX_BYTES - sizeof(struct tgw_header)];
};

static int finish(struct packet *p, enum tgw_type type, size_t count, size_t each)
{
	p->head = (struct tgw_header){
	    .type = (uint16_t)type,
	    .count = (uint16_t)count,
	    .bytes = (uint32_t)(sizeof(p->head) + count * each),
	};
	return (int)p->head.bytes;
}

static int hello(struct tg_client *c, struct packet *p)
{
	struct tgw_hello *hello = (struct tgw_hello *)(void *)p->body;

	*hello = (struct tgw_hello){
	    .version = TGW_VERSION,
	    .role = (uint32_t)c->options.role,
	    .max_chunks = c->max_chunks,
	};
	memcpy(hello->uuid, c->uuid, sizeof(hello->uuid));
	memcpy(hello->name, c->name, sizeof(hello->name));
	for (int device = 0; device < c->devices; device++)
		if (!c->driver.device_uuid(hello->visible_uuid[hello->visible], device))
			hello->visible++;
	c->greeted = true;
	return finish(p, TGW_HELLO, 1, sizeof(*hello));
}

static size_t fits(size_t room, size_t each, uint32_t have)
{
	size_t most = (room - sizeof(struct tgw_header)) / each;

	return have < most ? have : most;
}

static int take_changes(struct tg_client *c, struct packet *p, size_t room)
{
	size_t count = fits(room, sizeof(c->change[0]), c->changes);

	memcpy(p->body, c->change, count * sizeof(c->change[0]));
	c->changes -= (uint32_t)count;
	memmove(c->change, c->change + count, c->changes * sizeof(c->change[0]));
	return finish(p, TGW_CHUNKS, count, sizeof(c->change[0]));
}

static int take_loans(struct tg_client *c, struct packet *p)
{
	uint32_t count = tg_loan_drain(c, (struct tgw_loan *)(void *)p->body, TGW_MAX_GPUS);

	return count ? finish(p, TGW_LOAN, count, sizeof(struct tgw_loan)) : 0;
}

static int take_states(struct tg_client *c, struct packet *p, size_t room)
{
	size_t count = fits(room, sizeof(c->report[0]), c->reports);

	for (size_t i = 0; i < count; i++)
		memcpy(p->body + i * sizeof(c->report[0]),
		       &c->report[(c->report_head + i) % TG_REPORTS], sizeof(c->report[0]));
	c->report_head = (c->report_head + (uint32_t)count) % TG_REPORTS;
	c->reports -= (uint32_t)count;
	return finish(p, TGW_STATE, count, sizeof(c->report[0]));
}

/* All chunks, a message at a time: for a daemon that comes, and after lost reports. */
static int take_resync(struct tg_client *c, struct packet *p, size_t room)
{
	size_t most = fits(room, sizeof(struct tgw_state), UINT32_MAX), count = 0;

	while (count < most && c->resync < c->max_chunks) {
		struct tgw_state state;

		if (!describe(c, c->resync++, &state))
			continue;
		memcpy(p->body + count++ * sizeof(state), &state, sizeof(state));
	}
	return count ? finish(p, TGW_STATE, count, sizeof(struct tgw_state)) : 0;
}

static int take_uses(struct tg_client *c, struct packet *p, size_t room)
{
	size_t count = fits(room, sizeof(c->use[0]), c->uses);

	for (size_t i = 0; i < count; i++)
		memcpy(p->body + i * sizeof(c->use[0]), &c->use[(c->use_head + i) % TG_REPORTS],
		       sizeof(c->use[0]));
	c->use_head = (c->use_head + (uint32_t)count) % TG_REPORTS;
	c->uses -= (uint32_t)count;
	return finish(p, TGW_USE, count, sizeof(c->use[0]));
}

static int alive(struct tg_client *c, struct packet *p)
{
	struct tgw_alive *alive = (struct tgw_alive *)(void *)p->body;

	*alive = (struct tgw_alive){
	    .time_ns = tg_now(c),
	    .uses_dropped = c->stats.uses_dropped,
	    .states_dropped = c->stats.states_dropped,
	    .moves_dropped = c->stats.moves_dropped,
	    .launches = c->stats.launches,
	    .launches_untold = c->stats.launches_untold,
	    .spans_dropped = c->stats.spans_dropped,
	};
	c->alive_due = false;
	return finish(p, TGW_ALIVE, 1, sizeof(*alive));
}

int tg_drain(struct tg_client *c, void *message, size_t room)
{
	struct packet packet;
	int bytes = 0;

	if (room < sizeof(struct tgw_header) + sizeof(struct tgw_hello))
		return -EMSGSIZE;
	if (room > sizeof(packet))
		room = sizeof(packet);
	pthread_mutex_lock(&c->lock);
	if (!c->attached)
		bytes = 0;
	else if (!c->greeted)
		bytes = hello(c, &packet);
	else if ((bytes = take_loans(c, &packet)) > 0)
		; /* first: an allocation may wait for it */
	else if (c->changes)
		bytes = take_changes(c, &packet, room);
	else if (c->reports)
		bytes = take_states(c, &packet, room);
	else if (c->resync < c->max_chunks && (bytes = take_resync(c, &packet, room)) > 0)
		; /* the next call goes on with it */
	else if (c->uses)
		bytes = take_uses(c, &packet, room);
	else if (c->alive_due)
		bytes = alive(c, &packet);
	pthread_mutex_unlock(&c->lock);
	memcpy(message, &packet, (size_t)bytes);
	return bytes;
}

static void learn_gpus(struct tg_client *c, const struct tgw_gpu *gpus, uint32_t count)
{
	for (int i = 0; i < TGW_MAX_GPUS; i++)
		c->ordinal_of[i] = c->number_of[i] = -1;
	for (int device = 0; device < c->devices; device++) {
		uint8_t uuid[16];

		if (c->driver.device_uuid(uuid, device))
			continue;
		for (uint32_t i = 0; i < count && i < TGW_MAX_GPUS; i++)
			if (!memcmp(uuid, gpus[i].uuid, sizeof(uuid))) {
				c->ordinal_of[i] = device;
				c->number_of[device] = (int)i;
			}
	}
	c->resync = 0;
	tg_loan_say_again(c);
}

static void learn_leases(struct tg_client *c, const struct tgw_lease *leases, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		int device = tg_ordinal(c, leases[i].device);

		if (device >= 0)
			c->grant[device] =
			    (struct tg_grant){leases[i].chunks, leases[i].borrowed_bytes};
	}
}

static int take_moves(struct tg_client *c, const struct tgw_move *moves, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct tgw_move move = moves[i];

		if (move.chunk >= c->max_chunks)
			return -EINVAL;
		if (move.dest != TG_HOST) {
			move.dest = (int16_t)tg_ordinal(c, move.dest);
			if (move.dest < 0) {
				c->stats.moves_refused++;
				tg_report_state(c, move.chunk, &move, ENODEV);
				continue;
			}
		}
		if (tg_queue(c, &move))
			return -EINVAL;
	}
	return 0;
}

static size_t record_bytes(enum tgw_type type)
{
	switch (type) {
	case TGW_WELCOME:
		return sizeof(struct tgw_welcome);
	case TGW_GPUS:
		return sizeof(struct tgw_gpu);
	case TGW_MOVE:
		return sizeof(struct tgw_move);
	case TGW_LEASE:
		return sizeof(struct tgw_lease);
	case TGW_GRANT:
		return sizeof(struct tgw_grant);
	case TGW_REFUSED:
		return sizeof(struct tgw_refused);
	default:
		return 0;
	}
}

int tg_feed(struct tg_client *c, const void *message, size_t bytes)
{
	struct packet packet;
	int ret = 0;

	if (bytes < sizeof(packet.head) || bytes > sizeof(packet))
		return -EMSGSIZE;
	memcpy(&packet, message, bytes);
	if (packet.head.bytes != bytes ||
	    bytes != sizeof(packet.head) + packet.head.count * record_bytes(packet.head.type))
		return -EPROTO;
	pthread_mutex_lock(&c->lock);
	c->heard_ns = tg_now(c);
	switch (packet.head.type) {
	case TGW_WELCOME:
		if (packet.head.count)
			c->heartbeat_ms = ((struct tgw_welcome *)(void *)packet.body)->heartbeat_ms;
		c->stats.refused = 0;
		break;
	case TGW_REFUSED:
		if (packet.head.count)
			c->stats.refused = ((struct tgw_refused *)(void *)packet.body)->status;
		ret = -ECONNREFUSED;
		break;
	case TGW_GPUS:
		learn_gpus(c, (struct tgw_gpu *)(void *)packet.body, packet.head.count);
		break;
	case TGW_MOVE:
		ret = take_moves(c, (struct tgw_move *)(void *)packet.body, packet.head.count);
		break;
	case TGW_LEASE:
		learn_leases(c, (struct tgw_lease *)(void *)packet.body, packet.head.count);
		break;
	case TGW_GRANT:
		tg_loan_heard(c, (struct tgw_grant *)(void *)packet.body, packet.head.count);
		break;
	case TGW_PING:
		tg_loan_say_used(c);
		c->alive_due = true;
		break;
	default:
		ret = -EPROTO;
	}
	pthread_mutex_unlock(&c->lock);
	return ret;
}
