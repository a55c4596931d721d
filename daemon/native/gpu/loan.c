/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loans: memory of a neighbour that the program fills itself, as a cache (tierd_gpu.h).
 *
 * A block is managed memory with the neighbour as preferred location, used from home where it
 * is. So whatever the program does, the driver serves the lender: it evicts managed memory.
 *
 * The library reports memory to the daemon before it takes it and after it freed it. Whatever it
 * sees used on the neighbour it so knows whose that is.
 */
#include "client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define DUE_MS 40u /* until the daemon has said otherwise */

void tg_loans_open(struct tg_client *c)
{
	c->loans.fd = -1;
	c->loans.due_ms = DUE_MS;
	pthread_cond_init(&c->loans.told, NULL);
}

static int home_of(const struct tg_client *c)
{
	return c->options.device;
}

static struct tg_loan_account *account(struct tg_client *c, int device)
{
	if (device < 0 || device >= c->devices || device == home_of(c))
		return NULL;
	return &c->loans.at[device];
}

/* Whether a daemon that serves the device is there. */
static int served(const struct tg_client *c, int device)
{
	bool numbered = false;

	for (int i = 0; i < TG_MAX_DEVICES; i++)
		numbered |= c->number_of[i] >= 0;
	if (!c->attached || !numbered)
		return -ENOTCONN;
	return c->number_of[device] < 0 ? -ENODEV : 0;
}

static void say(struct tg_client *c, struct tg_loan_account *loan)
{
	loan->news = true;
	c->loans.said++;
	tg_link_wake(c);
}

static void signal_change(struct tg_client *c)
{
	uint64_t one = 1;
	ssize_t ret;

	if (c->loans.fd < 0)
		return;
	ret = write(c->loans.fd, &one, sizeof(one));
	(void)ret; /* full: it is readable already */
}

/* Steps that were taken are over. */
static void settle(struct tg_loan_account *loan)
{
	while (loan->steps && loan->held <= loan->step[0].granted)
		memmove(&loan->step[0], &loan->step[1], --loan->steps * sizeof(loan->step[0]));
}

static void regrant(struct tg_client *c, struct tg_loan_account *loan, uint64_t granted,
		    uint32_t due_ms)
{
	struct tg_loan_step *last;

	loan->granted = granted;
	while (loan->steps && loan->step[loan->steps - 1].granted < granted)
		loan->steps--; /* more is granted again */
	last = loan->steps ? &loan->step[loan->steps - 1] : NULL;
	if (loan->held <= granted)
		loan->steps = 0;
	else if (last && (loan->steps == TG_LOAN_STEPS || last->granted == granted))
		last->granted = granted; /* due as it was: rather too soon */
	else
		loan->step[loan->steps++] = (struct tg_loan_step){
		    .granted = granted,
		    .due_ns = tg_now(c) + due_ms * 1000000ull,
		};
	settle(loan);
	signal_change(c);
}

void tg_loans_grant(struct tg_client *c, const struct tgw_grant *grants, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		int number = grants[i].device;

		if (number < 0 || number >= TG_MAX_DEVICES || c->ordinal_of[number] < 0)
			continue;
		if (grants[i].due_ms)
			c->loans.due_ms = grants[i].due_ms;
		regrant(c, &c->loans.at[c->ordinal_of[number]], grants[i].granted,
			grants[i].due_ms ? grants[i].due_ms : c->loans.due_ms);
	}
}

void tg_loans_resay(struct tg_client *c)
{
	for (int device = 0; device < c->devices; device++) {
		struct tg_loan_account *loan = &c->loans.at[device];

		if (loan->wanted || loan->held)
			say(c, loan);
	}
}

void tg_loans_heartbeat(struct tg_client *c)
{
	for (int device = 0; device < c->devices; device++)
		if (c->loans.at[device].used)
			say(c, &c->loans.at[device]);
}

uint32_t tg_loans_take(struct tg_client *c, struct tgw_loan *out, uint32_t most)
{
	uint32_t count = 0;

	if (c->loans.drained == c->loans.said)
		return 0;
	for (int device = 0; device < c->devices && count < most; device++) {
		struct tg_loan_account *loan = &c->loans.at[device];

		if (!loan->news || c->number_of[device] < 0)
			continue;
		loan->news = loan->used = false;
		out[count++] = (struct tgw_loan){
		    .device = c->number_of[device],
		    .wanted = loan->wanted,
		    .held = loan->held,
		};
	}
	c->loans.drained = c->loans.said;
	return count;
}

/* By the thread that drained the last message: it is in the socket now. */
void tg_loans_sent(struct tg_client *c)
{
	if (c->loans.sent == c->loans.drained)
		return;
	pthread_mutex_lock(&c->lock);
	c->loans.sent = c->loans.drained;
	pthread_cond_broadcast(&c->loans.told);
	pthread_mutex_unlock(&c->lock);
}

/* No daemon, no grant; the time to give back runs. */
void tg_loans_detach(struct tg_client *c)
{
	for (int device = 0; device < c->devices; device++) {
		struct tg_loan_account *loan = &c->loans.at[device];

		if (loan->granted || loan->held)
			regrant(c, loan, 0, c->loans.due_ms);
	}
	pthread_cond_broadcast(&c->loans.told);
}

/* A block comes to the neighbour no more, and kernels bring it home. */
static void unplace(struct tg_client *c, struct tg_loan_block *block)
{
	tg_advise(&c->driver, block->addr, block->bytes, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION,
		  block->device);
	tg_advise(&c->driver, block->addr, block->bytes, CU_MEM_ADVISE_UNSET_ACCESSED_BY,
		  home_of(c));
	block->unplaced = true;
	c->loans.at[block->device].unplaced += block->bytes;
}

void tg_loans_overdue(struct tg_client *c)
{
	uint64_t now = tg_now(c);

	for (int device = 0; device < c->devices; device++) {
		struct tg_loan_account *loan = &c->loans.at[device];
		uint64_t keep = UINT64_MAX;

		for (uint32_t i = 0; i < loan->steps && loan->step[i].due_ns < now; i++)
			keep = loan->step[i].granted;
		for (uint32_t i = 0; i < c->loans.blocks; i++) {
			struct tg_loan_block *block = &c->loans.block[i];

			if (keep == UINT64_MAX || loan->held - loan->unplaced <= keep)
				break;
			if (block->device == device && !block->unplaced)
				unplace(c, block);
		}
	}
}

int tg_loan_want(struct tg_client *c, int device, uint64_t bytes)
{
	struct tg_loan_account *loan;
	int ret = -EINVAL;

	pthread_mutex_lock(&c->lock);
	loan = account(c, device);
	if (loan) {
		loan->wanted = bytes;
		say(c, loan);
		ret = served(c, device);
	}
	pthread_mutex_unlock(&c->lock);
	return ret;
}

int tg_loan_used(struct tg_client *c, int device)
{
	struct tg_loan_account *loan;

	pthread_mutex_lock(&c->lock);
	loan = account(c, device);
	if (loan)
		loan->used = true; /* is said with the next sign of life */
	pthread_mutex_unlock(&c->lock);
	return loan ? 0 : -EINVAL;
}

int tg_loan_state(struct tg_client *c, int device, struct tg_loan *out)
{
	const struct tg_loan_account *loan;
	int ret = -EINVAL;

	pthread_mutex_lock(&c->lock);
	loan = account(c, device);
	if (loan) {
		*out = (struct tg_loan){
		    .wanted = loan->wanted,
		    .granted = loan->granted,
		    .held = loan->held,
		    .due_ns = loan->steps ? loan->step[0].due_ns : 0,
		};
		ret = served(c, device);
	}
	pthread_mutex_unlock(&c->lock);
	return ret;
}

int tg_loan_fd(struct tg_client *c)
{
	int fd;

	pthread_mutex_lock(&c->lock);
	if (c->loans.fd < 0)
		c->loans.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	fd = c->loans.fd < 0 ? -errno : c->loans.fd;
	pthread_mutex_unlock(&c->lock);
	return fd;
}

static int make_stream(struct tg_client *c, int device)
{
	int ret = tg_reach(c, device);

	if (ret)
		return ret;
	ret = tg_enter(c, home_of(c));
	if (ret)
		return ret;
	if (!c->loans.stream)
		ret = tg_errno(c->driver.stream_create(&c->loans.stream, CU_STREAM_NON_BLOCKING));
	tg_leave(c);
	return ret;
}

/* Counts `bytes` as held, and waits until the daemon was told. */
static int reserve(struct tg_client *c, struct tg_loan_account *loan, int device, size_t bytes,
		   bool *reserved)
{
	uint64_t said;
	int ret = served(c, device);

	if (!ret && loan->held + bytes > loan->granted)
		ret = -ENOSPC;
	if (!ret)
		ret = make_stream(c, device);
	if (ret)
		return ret;
	loan->held += bytes;
	*reserved = true;
	say(c, loan);
	said = c->loans.said;
	while (c->threaded && c->attached && c->loans.sent < said)
		pthread_cond_wait(&c->loans.told, &c->lock);
	if (!c->attached)
		return -ENOTCONN;
	return loan->held > loan->granted ? -ENOSPC : 0; /* it may have fallen meanwhile */
}

static int place(struct tg_client *c, int device, size_t bytes, CUdeviceptr *at)
{
	const struct tg_driver *d = &c->driver;
	int ret = tg_errno(d->context_push(c->context[home_of(c)]));

	if (ret)
		return ret;
	ret = tg_errno(d->mem_alloc_managed(at, bytes, CU_MEM_ATTACH_GLOBAL));
	if (!ret) {
		ret = tg_advise(d, *at, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device);
		if (!ret)
			ret = tg_advise(d, *at, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, home_of(c));
		if (!ret)
			ret = tg_prefetch(d, *at, bytes, device, c->loans.stream);
		if (ret)
			d->mem_free(*at);
	}
	tg_leave(c);
	return ret;
}

static int remember(struct tg_client *c, const struct tg_loan_block *block)
{
	if (c->loans.blocks == c->loans.room) {
		uint32_t room = c->loans.room ? 2 * c->loans.room : 64;
		void *more = realloc(c->loans.block, room * sizeof(*block));

		if (!more)
			return -ENOMEM;
		c->loans.block = more;
		c->loans.room = room;
	}
	c->loans.block[c->loans.blocks++] = *block;
	return 0;
}

int tg_loan_alloc(struct tg_client *c, int device, size_t bytes, uint64_t *addr)
{
	struct tg_loan_block block = {.device = device};
	struct tg_loan_account *loan;
	bool reserved = false;
	CUdeviceptr at = 0;
	int ret;

	if (!bytes || bytes > SIZE_MAX - TG_CHUNK_BYTES)
		return -EINVAL;
	bytes = (bytes + TG_CHUNK_BYTES - 1) / TG_CHUNK_BYTES * TG_CHUNK_BYTES;
	pthread_mutex_lock(&c->lock);
	loan = account(c, device);
	ret = loan ? reserve(c, loan, device, bytes, &reserved) : -EINVAL;
	pthread_mutex_unlock(&c->lock);
	if (!reserved)
		return ret;
	if (!ret)
		ret = place(c, device, bytes, &at);
	pthread_mutex_lock(&c->lock);
	block.addr = at;
	block.bytes = bytes;
	if (!ret) {
		ret = remember(c, &block);
		if (ret && !tg_enter(c, home_of(c))) {
			c->driver.mem_free(at);
			tg_leave(c);
		}
	}
	if (ret) {
		loan->held -= bytes;
		settle(loan);
		say(c, loan);
	}
	pthread_mutex_unlock(&c->lock);
	if (!ret)
		*addr = at;
	return ret;
}

int tg_loan_free(struct tg_client *c, uint64_t addr)
{
	struct tg_loan_account *loan;
	struct tg_loan_block was;
	uint32_t i = 0;
	int ret;

	pthread_mutex_lock(&c->lock);
	while (i < c->loans.blocks && c->loans.block[i].addr != addr)
		i++;
	if (i == c->loans.blocks) {
		pthread_mutex_unlock(&c->lock);
		return -ENOENT;
	}
	was = c->loans.block[i];
	memmove(&c->loans.block[i], &c->loans.block[i + 1], (--c->loans.blocks - i) * sizeof(was));
	pthread_mutex_unlock(&c->lock);
	/* Without the lock: it waits for kernels, and messages must not. */
	ret = tg_errno(c->driver.context_push(c->context[home_of(c)]));
	if (!ret) {
		ret = tg_errno(c->driver.mem_free(addr));
		tg_leave(c);
	}
	pthread_mutex_lock(&c->lock);
	loan = &c->loans.at[was.device];
	loan->held -= was.bytes;
	loan->unplaced -= was.unplaced ? was.bytes : 0;
	settle(loan);
	say(c, loan);
	pthread_mutex_unlock(&c->lock);
	return ret;
}

void tg_loans_close(struct tg_client *c)
{
	if (c->loans.stream && !tg_enter(c, home_of(c))) {
		for (uint32_t i = 0; i < c->loans.blocks; i++)
			c->driver.mem_free(c->loans.block[i].addr);
		c->driver.stream_destroy(c->loans.stream);
		tg_leave(c);
	}
	free(c->loans.block);
	if (c->loans.fd >= 0)
		close(c->loans.fd);
	pthread_cond_destroy(&c->loans.told);
}
