/* SPDX-License-Identifier: Apache-2.0 */
#include "samples.h"

#include "../../include/neoprof_window.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NODES = 64 };

static uint8_t *base;
static uint32_t since[NODES]; /* misses of a node since its last sample */

int samples_open(const char *window)
{
	int fd = open(window, O_RDWR | O_CLOEXEC);
	struct stat status;
	void *map;

	if (fd < 0 || fstat(fd, &status)) {
		fprintf(stderr, "tierd-lab: the window %s: %s\n", window, strerror(errno));
		if (fd >= 0)
			close(fd);
		return -1;
	}
	if (status.st_size < (off_t)NPW_SAMPLES_END) {
		close(fd);
		return 0;
	}
	map = mmap(NULL, NPW_SAMPLES_END, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (map == MAP_FAILED) {
		fprintf(stderr, "tierd-lab: mapping the window %s: %s\n", window, strerror(errno));
		return -1;
	}
	base = map;
	return 0;
}

void samples_miss(unsigned int node, uint64_t page, bool store)
{
	uint64_t *head, *ring;
	uint32_t period;

	if (!base)
		return;
	period = __atomic_load_n((uint32_t *)(void *)(base + NPW_SAMPLES_PERIOD), __ATOMIC_RELAXED);
	if (!period || ++since[node % NODES] < period)
		return;
	since[node % NODES] = 0;
	head = (uint64_t *)(void *)(base + NPW_SAMPLES_HEAD);
	ring = (uint64_t *)(void *)(base + NPW_SAMPLES_RING);
	ring[*head % NPW_SAMPLES_SLOTS] = page << 8 | (uint64_t)(node % NODES) << 1 | store;
	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
}
