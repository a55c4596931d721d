/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* uapi: linux/mempolicy.h, asm-generic/mman-common.h, asm-generic/unistd.h */
enum {
	MPOL_PREFERRED = 1,
	MPOL_MF_MOVE = 1 << 1,
	PROCESS_MADVISE = 440,
	NODE_BITS = 8 * sizeof(((struct tierd_mempolicy *)0)->nodes),
};

/* struct pm_scan_arg: see Documentation/admin-guide/mm/pagemap.rst. */
struct pm_scan {
	uint64_t size;
	uint64_t flags;
	uint64_t start;
	uint64_t end;
	uint64_t walk_end;
	uint64_t vec;
	uint64_t vec_len;
	uint64_t max_pages;
	uint64_t category_inverted;
	uint64_t category_mask;
	uint64_t category_anyof_mask;
	uint64_t return_mask;
};

#define PAGEMAP_SCAN _IOWR('f', 16, struct pm_scan)

long sys_move_pages(int pid, unsigned long count, void **pages, const int *nodes, int *status)
{
	long result = syscall(SYS_move_pages, pid, count, pages, nodes, status, MPOL_MF_MOVE);

	return result == -1 ? -errno : result;
}

int64_t tierd_pagemap_scan(int fd, uint64_t start, uint64_t end, uint64_t need, uint64_t without,
			   uint64_t max_pages, struct tierd_region *region, size_t regions,
			   uint64_t *walk_end)
{
	struct pm_scan scan = {
	    .size = sizeof(scan),
	    .start = start,
	    .end = end,
	    .vec = (uint64_t)(uintptr_t)region,
	    .vec_len = regions,
	    .max_pages = max_pages,
	    .category_inverted = without,
	    .category_mask = need | without,
	    .return_mask = TIERD_PAGE_HUGE,
	};
	int found = ioctl(fd, PAGEMAP_SCAN, &scan);

	*walk_end = scan.walk_end;
	return found == -1 ? -errno : found;
}

int sys_open_pagemap(int pid)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd == -1 ? -errno : fd;
}

int64_t sys_advise(int pidfd, const struct iovec *range, size_t ranges, int advice)
{
	long result = syscall(PROCESS_MADVISE, pidfd, range, ranges, advice, 0U);

	return result == -1 ? -errno : result;
}

bool sys_exited(int pidfd)
{
	struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};

	return poll(&poll_fd, 1, 0) == 1;
}

int tierd_mempolicy_prefer(int node, struct tierd_mempolicy *before)
{
	uint64_t nodes[sizeof(before->nodes) / sizeof(before->nodes[0])] = {0};

	memset(before, 0, sizeof(*before));
	if (node < 0 || node >= NODE_BITS)
		return -EINVAL;
	nodes[node / 64] = UINT64_C(1) << node % 64;
	/* The kernel reads one bit less than the number given. */
	if (syscall(SYS_get_mempolicy, &before->mode, before->nodes, NODE_BITS, NULL, 0) != 0 ||
	    syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes, NODE_BITS + 1) != 0)
		return -errno;
	return 0;
}

int tierd_mempolicy_restore(const struct tierd_mempolicy *before)
{
	return syscall(SYS_set_mempolicy, before->mode, before->nodes, NODE_BITS + 1) == 0 ? 0
											   : -errno;
}

/* Of a node's meminfo, whose first two lines these are. */
static int read_memory(int fd, uint64_t *total, uint64_t *free_bytes)
{
	unsigned long total_kib, free_kib;
	char text[256];
	ssize_t length = pread(fd, text, sizeof(text) - 1, 0);
	int end = 0;

	if (length < 0)
		return -errno;
	text[length] = '\0';
	sscanf(text, "Node %*d MemTotal: %lu kB Node %*d MemFree: %lu kB%n", &total_kib, &free_kib,
	       &end);
	if (end == 0)
		return -EINVAL;
	*total = total_kib * 1024;
	*free_bytes = free_kib * 1024;
	return 0;
}

uint64_t sys_node_free(int fd)
{
	uint64_t total, free_bytes;

	return read_memory(fd, &total, &free_bytes) == 0 ? free_bytes : 0;
}

int tierd_node_memory(const char *path, uint64_t *total, uint64_t *free_bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), error;

	if (fd == -1)
		return -errno;
	error = read_memory(fd, total, free_bytes);
	close(fd);
	return error;
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t sys_monotonic_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

uint64_t sys_thread_cpu_ns(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

void sys_wait(atomic_uint *word, unsigned int expected, uint64_t timeout_ns)
{
	struct timespec timeout = {
	    .tv_sec = (time_t)(timeout_ns / 1000000000),
	    .tv_nsec = (long)(timeout_ns % 1000000000),
	};

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, &timeout, NULL, 0);
}

void sys_wake(atomic_uint *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
