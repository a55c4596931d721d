/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One move_pages call, and the result of each folio in it.
 *
 * The kernel (mm/migrate.c, do_pages_move) queues pages until the destination
 * changes or a page cannot be queued, then migrates the queue. When some of a queue
 * cannot be migrated it gives up: the statuses of that queue and of all later pages
 * stay as they were, and the result is the number not migrated, or a negative errno.
 * So statuses start out as UNTOUCHED, and what stays so is asked for again.
 */
#include "mover.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "agent.h"
#include "sys.h"

enum { UNTOUCHED = INT_MIN, PROBES = 4, LOOK_STEP = 16 };

static uint8_t fate_of_errno(int err)
{
	switch (err) {
	case ENOENT: /* not present: unmapped, swapped, never touched */
	case EFAULT: /* no mapping there, or the shared zero page */
	case ESRCH:
	case EINVAL: /* the process has no memory any more: it is on its way out */
		return TIERD_GONE;
	case EBUSY:
	case EAGAIN:
		return TIERD_BUSY;
	case EACCES: /* mapped by other processes too, or not in the target's cpuset */
	case EPERM:
	case ENODEV:
		return TIERD_REFUSED;
	case ENOMEM:
		return TIERD_NO_ROOM;
	default:
		return TIERD_FAILED;
	}
}

static void settle(struct batch *batch, size_t i, int err)
{
	batch->fate[i] = fate_of_errno(err);
	batch->error[i] = err;
}

void batch_settle_open(struct batch *batch, int err)
{
	for (size_t i = 0; i < batch->n; i++) {
		if (batch->fate[i] == FATE_OPEN)
			settle(batch, i, err);
	}
}

/*
 * Ask the kernel for the nodes of the first n of batch->asked: batch->status, which is `unknown`
 * where it does not say. A negative errno if it says nothing.
 */
static long batch_ask(struct batch *batch, int pid, size_t n, int unknown)
{
	for (size_t k = 0; k < n; k++) {
		batch->ask_address[k] = batch->address[batch->asked[k]];
		batch->status[k] = unknown;
	}
	return n == 0 ? 0 : tierd_move_pages(pid, n, batch->ask_address, NULL, batch->status);
}

/* Look up the first `asked` of batch->asked; how many were not where they were thought. */
static size_t look_at(struct batch *batch, int pid, size_t asked)
{
	const long result = batch_ask(batch, pid, asked, -EIO);
	size_t elsewhere = 0;

	if (result < 0) {
		batch_settle_open(batch, (int)-result);
		return 0;
	}
	for (size_t k = 0; k < asked; k++) {
		size_t i = batch->asked[k];

		elsewhere += batch->status[k] != batch->before[i];
		batch->before[i] = batch->after[i] = batch->status[k];
		if (batch->status[k] == batch->dest[i])
			batch->fate[i] = TIERD_ALREADY_THERE;
		else if (batch->status[k] < 0)
			settle(batch, i, -batch->status[k]);
	}
	return elsewhere;
}

static bool must_look(const struct batch *batch, size_t i, const uint8_t *order)
{
	return i % LOOK_STEP == 0 || i == batch->n - 1 || batch->before[i] < 0 ||
	       batch->before[i] == batch->dest[i] || order[batch->item[i]] >= HUGE_ORDER;
}

void batch_look(struct batch *batch, int pid, const uint8_t *order, bool all)
{
	size_t asked = 0, rest = 0;

	for (size_t i = 0; i < batch->n; i++) {
		if (all || must_look(batch, i, order))
			batch->asked[asked++] = i;
		else
			batch->rest[rest++] = i;
	}
	if (look_at(batch, pid, asked) == 0 || rest == 0)
		return;
	memcpy(batch->asked, batch->rest, rest * sizeof(batch->rest[0]));
	look_at(batch, pid, rest);
}

static bool same_block(const void *one, const void *other)
{
	return (uintptr_t)one / HUGE_BYTES == (uintptr_t)other / HUGE_BYTES;
}

/*
 * Pages that have become part of a 2 MiB folio since they were planned: khugepaged
 * (mm/khugepaged.c) joins them, and moving one of them moves all, 512 times what was decided on
 * budgeted. So pages are checked directly before a call. Without PAGEMAP_SCAN (Linux 6.7) they are
 * moved as planned, and so are pages that are joined between the check and the call.
 */
void batch_settle_joined(struct batch *batch, int pid, const uint8_t *order)
{
	size_t asked = 0, joined = 0;

	for (size_t i = 0; i < batch->n; i++) {
		if (batch->fate[i] != FATE_OPEN || order[batch->item[i]] >= HUGE_ORDER)
			continue;
		/* One entry maps all 2 MiB or none of them. */
		if (asked == 0 || !same_block(batch->ask_address[asked - 1], batch->address[i]))
			batch->ask_address[asked++] = batch->address[i];
	}
	if (asked == 0 ||
	    agent_mapped(pid, asked, batch->ask_address, PAGE_BYTES, batch->status) != 0)
		return;
	for (size_t i = 0, k = 0; i < batch->n; i++) {
		if (batch->fate[i] != FATE_OPEN || order[batch->item[i]] >= HUGE_ORDER)
			continue;
		if (!same_block(batch->ask_address[k], batch->address[i]))
			k++;
		if (batch->status[k] > 0 && (batch->status[k] & TIERD_PAGE_HUGE) != 0) {
			batch->fate[i] = TIERD_JOINED;
			batch->asked[joined++] = i;
		}
	}
	/* Not where they were, if most of their folio was elsewhere. */
	(void)batch_ask(batch, pid, joined, -1);
	for (size_t k = 0; k < joined; k++)
		batch->after[batch->asked[k]] = batch->status[k];
}

/*
 * How many 4 KiB pages of a huge folio are on `dest`: a few are asked for first.
 * `*head_node` becomes the node of the first page, if that is known.
 */
static uint32_t huge_pages_on(int pid, void *head, int dest, uint32_t *present, int *head_node)
{
	void *address[HUGE_PAGES];
	int status[HUGE_PAGES];
	uint32_t on_dest = 0;
	size_t step = HUGE_PAGES / PROBES, n = 0;

	for (size_t page = 0; page < HUGE_PAGES; page += step)
		address[n++] = (char *)head + page * PAGE_BYTES;
	address[n++] = (char *)head + (HUGE_PAGES - 1) * PAGE_BYTES;
	*present = HUGE_PAGES;
	if (tierd_move_pages(pid, n, address, NULL, status) < 0)
		return 0;
	if (status[0] >= 0)
		*head_node = status[0];
	for (size_t i = 0; i < n; i++)
		on_dest += status[i] == dest;
	if (on_dest == n)
		return HUGE_PAGES;
	/* Split on the way, or not moved: count. */
	for (size_t page = 0; page < HUGE_PAGES; page++)
		address[page] = (char *)head + page * PAGE_BYTES;
	if (tierd_move_pages(pid, HUGE_PAGES, address, NULL, status) < 0)
		return 0;
	on_dest = *present = 0;
	for (size_t page = 0; page < HUGE_PAGES; page++) {
		on_dest += status[page] == dest;
		*present += status[page] >= 0;
	}
	return on_dest;
}

static bool same_dest(const struct batch *batch, size_t first, size_t end)
{
	for (size_t k = first; k < end; k++) {
		if (batch->ask_dest[k] != batch->ask_dest[first])
			return false;
	}
	return true;
}

/* The kernel's results of the requested pages; those left UNTOUCHED are looked up. */
static void read_statuses(struct batch *batch, size_t asked, long result)
{
	size_t first = asked, end;
	int why = result < 0 ? (int)-result : EBUSY;

	for (size_t k = 0; k < asked; k++) {
		size_t i = batch->asked[k];

		if (batch->status[k] == batch->dest[i])
			batch->fate[i] = TIERD_MOVED;
		else if (batch->status[k] >= 0)
			settle(batch, i, EBUSY);
		else if (batch->status[k] != UNTOUCHED)
			settle(batch, i, -batch->status[k]);
		else if (first == asked)
			first = k;
	}
	if (first == asked)
		return;
	/*
	 * A node that may not be moved to ends the call after the queue before it was
	 * migrated, and the kernel does not report that queue's result.
	 */
	if ((why == ENODEV || why == EACCES) && !same_dest(batch, first, asked)) {
		batch->unclear = true;
		return;
	}
	/* The queue in which the kernel gave up: up to a new destination or a page refused. */
	for (end = first; end < asked; end++) {
		if (batch->status[end] != UNTOUCHED ||
		    batch->ask_dest[end] != batch->ask_dest[first])
			break;
		settle(batch, batch->asked[end], why);
	}
}

/* Untouched pages may have moved nevertheless; folios may have been split. */
static void verify(struct batch *batch, int pid, size_t asked, const uint8_t *order)
{
	size_t doubtful = 0;

	for (size_t k = 0; k < asked; k++) {
		size_t i = batch->asked[k];
		bool huge = order[batch->item[i]] >= HUGE_ORDER;

		batch->moved_pages[i] = batch->fate[i] == TIERD_MOVED;
		if (huge && batch->fate[i] != TIERD_GONE) {
			uint32_t present;
			uint32_t pages = huge_pages_on(pid, batch->address[i], batch->dest[i],
						       &present, &batch->after[i]);

			batch->moved_pages[i] = pages;
			if (pages > 0 && pages == present)
				batch->fate[i] = TIERD_MOVED;
			else if (pages > 0 || batch->fate[i] == TIERD_MOVED)
				/* In part: it was split, for the destination had no room. */
				settle(batch, i, pages == 0 ? EBUSY : ENOMEM);
		} else if (batch->status[k] == UNTOUCHED) {
			batch->asked[doubtful++] = i;
		}
	}
	(void)batch_ask(batch, pid, doubtful, -ESRCH);
	for (size_t k = 0; k < doubtful; k++) {
		size_t i = batch->asked[k];

		if (batch->status[k] == batch->dest[i]) {
			batch->fate[i] = TIERD_MOVED;
			batch->moved_pages[i] = 1;
		} else if (batch->status[k] < 0) {
			settle(batch, i, -batch->status[k]);
		} else {
			batch->after[i] = batch->status[k];
		}
	}
}

void batch_move(struct batch *batch, int pid, const uint8_t *order, uint64_t *call_ns)
{
	size_t asked = 0;
	uint64_t start;
	long result;

	*call_ns = 0;
	batch->unclear = false;
	for (size_t i = 0; i < batch->n; i++) {
		batch->after[i] = batch->before[i];
		if (batch->fate[i] != FATE_OPEN)
			continue;
		batch->ask_address[asked] = batch->address[i];
		batch->ask_dest[asked] = batch->dest[i];
		batch->status[asked] = UNTOUCHED;
		batch->asked[asked++] = i;
	}
	if (asked == 0)
		return;
	start = sys_monotonic_ns();
	result = tierd_move_pages(pid, asked, batch->ask_address, batch->ask_dest, batch->status);
	*call_ns = sys_monotonic_ns() - start;
	read_statuses(batch, asked, result);
	verify(batch, pid, asked, order);
}
