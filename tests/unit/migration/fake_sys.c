/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel to test the mover with: move_pages as mm/migrate.c (Linux 6.12) does it, for
 * pages that are busy, refused or without room as told, and a clock of its own.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "agent.h"
#include "fake_sys.h"
#include "sys.h"

enum { FIRST_PAGE = 0x1000, BLOCK_PAGES = 512 };

static struct {
	int node;
	int busy;
	int error;
} pages[FAKE_PAGES];

static int64_t room[FAKE_NODES], kept[FAKE_NODES];
static uint64_t now_ns, cpu_ns, ns_per_page, exit_ns, stop_ns, calls, longest_wait, asked;
static uint64_t log_ns[FAKE_LOG], log_pages[FAKE_LOG], log_n;
static struct tierd_mover *stop_mover;
static bool joined[FAKE_PAGES / BLOCK_PAGES], no_scan;
static uint64_t scans;

void fake_reset(uint64_t page_ns)
{
	memset(pages, 0, sizeof(pages));
	memset(joined, 0, sizeof(joined));
	no_scan = false;
	scans = 0;
	for (int i = 0; i < FAKE_NODES; i++)
		room[i] = FAKE_PAGES, kept[i] = 0;
	now_ns = 1000000000;
	cpu_ns = calls = log_n = longest_wait = asked = 0;
	ns_per_page = page_ns;
	exit_ns = UINT64_MAX / 2;
	stop_ns = UINT64_MAX;
	stop_mover = NULL;
}

void fake_page(int page, int node, int busy, int error)
{
	pages[page].node = node;
	pages[page].busy = busy;
	pages[page].error = error;
}

int fake_node(int page)
{
	return pages[page].node;
}

/* The 2 MiB that `page` is of are mapped as one folio. */
void fake_join(int page)
{
	joined[page / BLOCK_PAGES] = true;
}

/* A kernel without PAGEMAP_SCAN. */
void fake_no_scan(void)
{
	no_scan = true;
}

uint64_t fake_scans(void)
{
	return scans;
}

void fake_room(int node, int64_t free_pages)
{
	room[node] = free_pages;
}

/* So many of a node's free pages are with a CPU, and not in MemFree. */
void fake_hold(int node, int64_t free_pages)
{
	kept[node] = free_pages;
}

int64_t fake_room_left(int node)
{
	return room[node];
}

void fake_exit_at(uint64_t time_ns)
{
	exit_ns = time_ns;
}

void fake_stop_at(struct tierd_mover *mover, uint64_t time_ns)
{
	stop_mover = mover;
	stop_ns = time_ns;
}

uint64_t fake_now(void)
{
	return now_ns;
}

uint64_t fake_calls(void)
{
	return calls;
}

/* How often a node was asked what is free on it. */
uint64_t fake_asked(void)
{
	return asked;
}

uint64_t fake_log(uint64_t *time_ns, uint64_t *moved)
{
	memcpy(time_ns, log_ns, log_n * sizeof(*log_ns));
	memcpy(moved, log_pages, log_n * sizeof(*log_pages));
	return log_n;
}

static void pass_time(uint64_t ns, bool busy)
{
	now_ns += ns;
	cpu_ns += busy ? ns : 0;
	if (stop_mover != NULL && now_ns >= stop_ns) {
		struct tierd_mover *mover = stop_mover;

		stop_mover = NULL;
		tierd_mover_stop(mover, 1);
	}
}

void fake_pass(uint64_t ns)
{
	pass_time(ns, false);
}

/* A node's meminfo is its number here. */
uint64_t sys_node_free(int fd)
{
	asked++;
	return fd >= 0 && fd < FAKE_NODES && room[fd] > kept[fd]
		   ? (uint64_t)(room[fd] - kept[fd]) * 4096
		   : 0;
}

/* Only whether there is something mapped huge is told: that is all the mover asks. */
int agent_mapped(int pid, size_t n, void *const *address, uint64_t length, int *categories)
{
	(void)pid;
	if (no_scan)
		return -ENOTTY;
	for (size_t i = 0; i < n; i++) {
		const uint64_t start = (uint64_t)(uintptr_t)address[i];
		int first = (int)(start >> 12) - FIRST_PAGE;
		int last = (int)((start + length) >> 12) - FIRST_PAGE;

		scans++;
		categories[i] = 0;
		for (int page = first; page < last; page++) {
			if (joined[page / BLOCK_PAGES])
				categories[i] = TIERD_PAGE_PRESENT | TIERD_PAGE_HUGE;
		}
	}
	return 0;
}

static int index_of(const void *address)
{
	return (int)((uintptr_t)address >> 12) - FIRST_PAGE;
}

/* Migrate queue [start, end): the number that failed, or -ENOMEM. */
static long flush(int start, int end, unsigned long count, void **addresses, const int *nodes,
		  int *status, const bool *queued)
{
	long failed = 0, err = 0;

	for (int i = start; i < end; i++) {
		int page = index_of(addresses[i]);

		if (!queued[i])
			continue;
		pass_time(ns_per_page, true);
		if (pages[page].busy > 0) {
			pages[page].busy--;
			failed++;
			continue;
		}
		if (room[nodes[i]] == 0) {
			err = -ENOMEM;
			break;
		}
		room[nodes[i]]--;
		room[pages[page].node]++;
		pages[page].node = nodes[i];
		if (log_n < FAKE_LOG) {
			log_ns[log_n] = now_ns;
			log_pages[log_n++] = 1;
		}
	}
	if (err != 0)
		return err;
	if (failed != 0)
		return failed + (long)count - end;
	for (int i = start; i < end; i++) {
		if (queued[i])
			status[i] = nodes[i];
	}
	return 0;
}

static long move(unsigned long count, void **addresses, const int *nodes, int *status)
{
	static bool queued[FAKE_PAGES];
	int start = 0, current = -1;
	long err;

	memset(queued, 0, sizeof(queued));
	for (int i = 0; i < (int)count; i++) {
		int page = index_of(addresses[i]);

		if (nodes[i] < 0 || nodes[i] >= FAKE_NODES) {
			err = flush(start, i, count, addresses, nodes, status, queued);
			return err < 0 ? err : -ENODEV;
		}
		if (current != nodes[i]) {
			err = flush(start, i, count, addresses, nodes, status, queued);
			if (err != 0)
				return err;
			start = i;
			current = nodes[i];
		}
		if (pages[page].error == 0 && pages[page].node != nodes[i]) {
			queued[i] = true;
			continue;
		}
		status[i] = pages[page].error != 0 ? -pages[page].error : nodes[i];
		err = flush(start, i, count, addresses, nodes, status, queued);
		if (err != 0)
			return err > 0 ? err - 1 : err;
		start = i + 1;
	}
	return flush(start, (int)count, count, addresses, nodes, status, queued);
}

long tierd_move_pages(int pid, unsigned long count, void **addresses, const int *nodes, int *status)
{
	(void)pid;
	if (now_ns >= exit_ns + FAKE_EXIT_NS)
		return -ESRCH;
	/* While a process exits its memory goes first; a pidfd tells only of the end. */
	if (now_ns >= exit_ns) {
		pass_time(ns_per_page, true);
		return -EINVAL;
	}
	if (nodes != NULL) {
		calls++;
		return move(count, addresses, nodes, status);
	}
	for (unsigned long i = 0; i < count; i++) {
		int page = index_of(addresses[i]);

		status[i] = pages[page].error == ENOENT ? -ENOENT : pages[page].node;
	}
	return 0;
}

bool sys_exited(int pidfd)
{
	(void)pidfd;
	return now_ns >= exit_ns + FAKE_EXIT_NS;
}

uint64_t sys_monotonic_ns(void)
{
	return now_ns;
}

uint64_t tierd_thread_cpu_ns(void)
{
	return cpu_ns;
}

void sys_wait(atomic_uint *word, unsigned int expected, uint64_t timeout_ns)
{
	(void)word;
	(void)expected;
	if (timeout_ns > longest_wait)
		longest_wait = timeout_ns;
	/* A stop in the middle of a wait ends the wait. */
	if (stop_mover != NULL && stop_ns > now_ns && stop_ns - now_ns < timeout_ns)
		timeout_ns = stop_ns - now_ns;
	pass_time(timeout_ns, false);
}

void sys_wake(atomic_uint *word)
{
	(void)word;
}
