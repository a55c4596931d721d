/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* uapi: linux/mempolicy.h, asm-generic/mman-common.h, asm-generic/unistd.h */
enum { MPOL_MF_MOVE = 1 << 1, COLD = 20, PROCESS_MADVISE = 440 };

#define PAGEMAP_SCAN_IOCTL _IOWR('f', 16, struct sys_pm_scan)

long sys_move_pages(int pid, unsigned long count, void **pages, const int *nodes, int *status)
{
	long result = syscall(SYS_move_pages, pid, count, pages, nodes, status, MPOL_MF_MOVE);

	return result == -1 ? -errno : result;
}

int sys_pagemap_scan(int fd, struct sys_pm_scan *scan)
{
	int result = ioctl(fd, PAGEMAP_SCAN_IOCTL, scan);

	return result == -1 ? -errno : result;
}

int sys_open_pagemap(int pid)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd == -1 ? -errno : fd;
}

int sys_advise_cold(int pidfd, uint64_t start, uint64_t length)
{
	struct iovec range = {.iov_base = (void *)(uintptr_t)start, .iov_len = length};
	long result = syscall(PROCESS_MADVISE, pidfd, &range, 1UL, COLD, 0U);

	return result == -1 ? -errno : 0;
}

bool sys_exited(int pidfd)
{
	struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};

	return poll(&poll_fd, 1, 0) == 1;
}

uint64_t sys_node_free(int fd)
{
	static const char NAME[] = "MemFree:";
	char text[1024];
	const char *at;
	ssize_t length;

	length = pread(fd, text, sizeof(text) - 1, 0);
	if (length <= 0)
		return 0;
	text[length] = '\0';
	at = strstr(text, NAME);
	return at == NULL ? 0 : strtoull(at + sizeof(NAME) - 1, NULL, 10) * 1024;
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
