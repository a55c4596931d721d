/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world: one mapping that all processes of a test share. It holds the tables and the
 * bytes of every block, once for the host and once for each GPU frame, so that a copy
 * that did not happen shows.
 *
 * FAKEGPU_WORLD names the file of a world that processes share, FAKEGPU_TOPOLOGY,
 * FAKEGPU_GPU_BYTES, FAKEGPU_PAYLOAD, FAKEGPU_BATCH and FAKEGPU_CONTEXT_BYTES describe one
 * that is made on first use.
 */
#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC 0x66677533u
#define PAGE 4096u
#define BATCH 64u		   /* uvm_perf_pma_batch_nonpinned_order is 6 */
#define CONTEXT_BYTES (523u << 20) /* measured on an H100, driver 580 */

struct fg_world *fg_w;
static int world_fd = -1;
static pthread_mutex_t attach_lock = PTHREAD_MUTEX_INITIALIZER;

struct fg_frame *fg_frame_at(int32_t index)
{
	return (struct fg_frame *)((char *)fg_w + fg_w->frames_at) + index;
}

struct fg_block *fg_block_at(int32_t index)
{
	return (struct fg_block *)((char *)fg_w + fg_w->blocks_at) + index;
}

int32_t fg_block_index(const struct fg_block *block)
{
	return (int32_t)(block - fg_block_at(0));
}

uint8_t *fg_frame_bytes(int32_t frame)
{
	return (uint8_t *)fg_w + fg_w->gpu_arena_at + (uint64_t)frame * fg_w->payload;
}

uint8_t *fg_host_bytes(const struct fg_block *block)
{
	return (uint8_t *)fg_w + fg_w->host_arena_at +
	       (uint64_t)fg_block_index(block) * fg_w->payload;
}

static uint64_t page_up(uint64_t bytes)
{
	return (bytes + PAGE - 1) / PAGE * PAGE;
}

static void lists_setup(void)
{
	int32_t next = 0;

	for (int g = 0; g < fg_w->gpus; g++) {
		struct fg_gpu *gpu = &fg_w->gpu[g];

		gpu->first_frame = next;
		gpu->frames = gpu->least_room = (int32_t)(gpu->total_bytes / FG_BLOCK_BYTES);
		for (int i = 0; i < FG_LISTS; i++)
			gpu->list[i] = (struct fg_list){FG_NONE, FG_NONE, 0};
		for (int32_t i = 0; i < gpu->frames; i++, next++) {
			*fg_frame_at(next) =
			    (struct fg_frame){.block = FG_NONE, .last_owner = FG_NONE};
			fg_list_append(g, next, FG_ON_FREE);
		}
	}
}

static int world_make(const struct fg_config *config)
{
	struct fg_world plan = {.payload = config->payload ? config->payload : 64};
	pthread_mutexattr_t attr;

	strncpy(plan.name, config->topology ? config->topology : "v100x4", sizeof(plan.name) - 1);
	plan.max_blocks = config->max_blocks ? config->max_blocks : 65536;
	plan.scrub = config->scrub;
	plan.batch = config->batch ? config->batch : BATCH;
	plan.context_bytes = config->context_bytes;
	plan.next_done = UINT64_MAX;
	for (int g = 0; g < FG_MAX_GPUS; g++)
		plan.gpu[g].total_bytes = config->gpu_bytes;
	fg_links_setup(&plan);
	for (int g = 0; g < plan.gpus; g++)
		plan.frames += (uint32_t)(plan.gpu[g].total_bytes / FG_BLOCK_BYTES);
	plan.frames_at = page_up(sizeof(plan));
	plan.blocks_at = page_up(plan.frames_at + plan.frames * sizeof(struct fg_frame));
	plan.gpu_arena_at = page_up(plan.blocks_at + plan.max_blocks * sizeof(struct fg_block));
	plan.host_arena_at = page_up(plan.gpu_arena_at + (uint64_t)plan.frames * plan.payload);
	plan.size = page_up(plan.host_arena_at + (uint64_t)plan.max_blocks * plan.payload);
	if (ftruncate(world_fd, (off_t)plan.size))
		return -errno;
	fg_w = mmap(NULL, plan.size, PROT_READ | PROT_WRITE, MAP_SHARED, world_fd, 0);
	if (fg_w == MAP_FAILED) {
		fg_w = NULL;
		return -errno;
	}
	*fg_w = plan;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&fg_w->lock, &attr);
	pthread_mutexattr_destroy(&attr);
	lists_setup();
	__atomic_store_n(&fg_w->magic, MAGIC, __ATOMIC_RELEASE);
	return 0;
}

static int world_attach(void)
{
	struct fg_world head;

	if (pread(world_fd, &head, sizeof(head), 0) != sizeof(head) || head.magic != MAGIC)
		return -EINVAL;
	fg_w = mmap(NULL, head.size, PROT_READ | PROT_WRITE, MAP_SHARED, world_fd, 0);
	if (fg_w == MAP_FAILED) {
		fg_w = NULL;
		return -errno;
	}
	return 0;
}

int fg_world_open(const char *path, const struct fg_config *config)
{
	struct flock whole = {
	    .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1 << 20, .l_len = 1};
	int ret;

	if (fg_w)
		return -EBUSY;
	world_fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666)
			: memfd_create("fakegpu", MFD_CLOEXEC);
	if (world_fd < 0)
		return -errno;
	fcntl(world_fd, F_OFD_SETLKW, &whole);
	ret = path && lseek(world_fd, 0, SEEK_END) > 0 ? world_attach() : world_make(config);
	whole.l_type = F_UNLCK;
	fcntl(world_fd, F_OFD_SETLK, &whole);
	if (!ret)
		ret = fg_join(world_fd);
	if (ret) {
		close(world_fd);
		world_fd = -1;
	}
	return ret;
}

void fg_world_close(void)
{
	if (!fg_w)
		return;
	fg_part();
	munmap(fg_w, fg_w->size);
	close(world_fd);
	fg_w = NULL;
	world_fd = -1;
}

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

static int open_from_environment(void)
{
	struct fg_config config = {
	    .topology = getenv("FAKEGPU_TOPOLOGY"),
	    .gpu_bytes = number("FAKEGPU_GPU_BYTES", 0),
	    .payload = (uint32_t)number("FAKEGPU_PAYLOAD", 0),
	    .batch = (uint32_t)number("FAKEGPU_BATCH", BATCH),
	    .context_bytes = number("FAKEGPU_CONTEXT_BYTES", CONTEXT_BYTES),
	};
	int ret = 0;

	pthread_mutex_lock(&attach_lock);
	if (!fg_w)
		ret = fg_world_open(getenv("FAKEGPU_WORLD"), &config);
	pthread_mutex_unlock(&attach_lock);
	return ret;
}

int fg_lock(void)
{
	if (!fg_w && open_from_environment())
		return CUDA_ERROR_NO_DEVICE;
	if (pthread_mutex_lock(&fg_w->lock) == EOWNERDEAD) {
		pthread_mutex_consistent(&fg_w->lock);
		fg_reap();
	}
	return 0;
}

void fg_unlock(void)
{
	pthread_mutex_unlock(&fg_w->lock);
}
