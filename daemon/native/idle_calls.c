/* SPDX-License-Identifier: Apache-2.0 */
/* The system calls of a scan by idle page tracking: results or negative errno, as in sys.c. */
#define _GNU_SOURCE
#include <errno.h>
#include <unistd.h>

#include "idle.h"

static int64_t call_read(int fd, void *to, size_t bytes, int64_t offset)
{
	ssize_t got = pread(fd, to, bytes, offset);

	return got < 0 ? -errno : got;
}

static int64_t call_write(int fd, const void *from, size_t bytes, int64_t offset)
{
	ssize_t put = pwrite(fd, from, bytes, offset);

	return put < 0 ? -errno : put;
}

static int64_t call_present(int fd, uint64_t start, uint64_t end, uint64_t max_pages,
			    struct tierd_region *region, size_t regions, uint64_t *walk_end)
{
	return tierd_pagemap_scan(fd, start, end, TIERD_PAGE_PRESENT, TIERD_PAGE_PFNZERO, max_pages,
				  region, regions, walk_end);
}

const struct tierd_idle_calls idle_calls = {
    .read = call_read,
    .write = call_write,
    .present = call_present,
};
