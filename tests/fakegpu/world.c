/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world: one mapping that all processes of a test share. It holds the tables and the
 * bytes of every block, once for the host and once for each GPU frame, so that a copy
 * that did not happen shows.
 *
 * FAKEGPU_WORLD names the file of a world that processes share, FAKEGPU_TOPOLOGY,
 * FAKEGPU_GPU_BYTES and FAKEGPU_PAYLOAD describe one that is made on first use.
 */
#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC 0x66677533u
#define PAGE 4096u

struct fg_world *fg_w;
static int world_fd = -1;
static int own_tenant = FG_NONE;
static _Thread_local int used_tenant = FG_NONE;
static _Thread_local uint64_t blocked_until;
static struct sigaction old_segv;
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

int fg_self(void)
{
	return used_tenant != FG_NONE ? used_tenant : own_tenant;
}

void fg_block_until(uint64_t when)
{
	blocked_until = when;
	if (!fg_w->manual)
		fg_settle(when);
}

uint64_t fg_blocked_until(void)
{
	return blocked_until;
}

/* What the owning process may do with the block's addresses, as UVM maps CPU pages. */
void fg_cpu_protect(const struct fg_block *block)
{
	int rights = PROT_NONE;

	if (fg_w->payload != FG_BLOCK_BYTES || block->kind != FG_MANAGED)
		return;
	if (fg_w->range[block->range].owner != own_tenant)
		return;
	if (block->op == FG_NONE && block->resident & 1u << FG_HOST)
		rights = block->resident == 1u << FG_HOST ? PROT_READ | PROT_WRITE : PROT_READ;
	mprotect((void *)(uintptr_t)block->va, FG_BLOCK_BYTES, rights);
}

/* A CPU access to a managed block that is not on the host: UVM brings it there. */
static void on_segv(int signal, siginfo_t *info, void *context)
{
	uint64_t addr = (uint64_t)(uintptr_t)info->si_addr;
	struct fg_block *block = NULL;

	if (fg_w && !fg_lock()) {
		block = fg_find(addr);
		if (block && block->kind == FG_MANAGED && !block->lost) {
			uint64_t when = fg_w->now;

			fg_wait_block(block, &when);
			if (!(block->resident & 1u << FG_HOST))
				fg_migrate(block, FG_HOST, &when, FG_NONE);
			else
				fg_make_writable(block, FG_HOST);
			fg_wait_block(block, &when);
			fg_block_until(when);
			fg_cpu_protect(block);
		} else {
			block = NULL;
		}
		fg_unlock();
	}
	if (block)
		return;
	if (old_segv.sa_flags & SA_SIGINFO && old_segv.sa_sigaction) {
		old_segv.sa_sigaction(signal, info, context);
		return;
	}
	sigaction(SIGSEGV, &old_segv, NULL); /* the access comes again and ends the process */
}

static void watch_faults(void)
{
	struct sigaction action = {.sa_sigaction = on_segv, .sa_flags = SA_SIGINFO | SA_NODEFER};

	if (fg_w->payload == FG_BLOCK_BYTES)
		sigaction(SIGSEGV, &action, &old_segv);
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
		gpu->frames = gpu->free_frames = gpu->least_free =
		    (int32_t)(gpu->total_bytes / FG_BLOCK_BYTES);
		gpu->lru_head = gpu->lru_tail = FG_NONE;
		gpu->free_head = next;
		for (int32_t i = 0; i < gpu->frames; i++, next++)
			*fg_frame_at(next) = (struct fg_frame){
			    .block = FG_NONE,
			    .last_owner = FG_NONE,
			    .next = i + 1 < gpu->frames ? next + 1 : FG_NONE,
			};
	}
}

static int world_make(const struct fg_config *config)
{
	struct fg_world plan = {.payload = config->payload ? config->payload : 64};
	pthread_mutexattr_t attr;

	strncpy(plan.name, config->topology ? config->topology : "v100x4", sizeof(plan.name) - 1);
	plan.max_blocks = config->max_blocks ? config->max_blocks : 65536;
	plan.scrub = config->scrub;
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

/* Whether the process that made a tenant is gone: it held a lock on the tenant's byte. */
static bool tenant_died(int slot)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};

	if (slot == own_tenant || !fg_w->tenant[slot].used || !fg_w->tenant[slot].own_process)
		return false;
	return !fcntl(world_fd, F_OFD_GETLK, &lock) && lock.l_type == F_UNLCK;
}

/* A process that ended took its memory with it. Only the world's lock holder calls this. */
void fg_reap(void)
{
	for (int slot = 0; slot < FG_MAX_TENANTS; slot++)
		if (tenant_died(slot)) {
			fg_reap_tenant(slot);
			fg_w->tenant[slot] = (struct fg_tenant){0};
		}
}

static int tenant_take(bool own_process)
{
	for (int slot = 0; slot < FG_MAX_TENANTS; slot++) {
		if (fg_w->tenant[slot].used)
			continue;
		fg_w->tenant[slot] = (struct fg_tenant){
		    .used = true,
		    .own_process = own_process,
		    .serial = ++fg_w->serials,
		};
		return slot;
	}
	return FG_NONE;
}

static int join(void)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};

	pthread_mutex_lock(&fg_w->lock);
	fg_reap();
	own_tenant = tenant_take(true);
	lock.l_start = own_tenant;
	if (own_tenant != FG_NONE)
		fcntl(world_fd, F_OFD_SETLK, &lock);
	pthread_mutex_unlock(&fg_w->lock);
	watch_faults();
	return own_tenant == FG_NONE ? -EUSERS : 0;
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
		ret = join();
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
	for (int slot = 0; slot < FG_MAX_TENANTS; slot++)
		if (slot == own_tenant ||
		    (fg_w->tenant[slot].used && !fg_w->tenant[slot].own_process))
			fg_tenant_kill(slot);
	if (fg_w->payload == FG_BLOCK_BYTES)
		sigaction(SIGSEGV, &old_segv, NULL);
	munmap(fg_w, fg_w->size);
	close(world_fd);
	fg_w = NULL;
	world_fd = own_tenant = used_tenant = FG_NONE;
}

static int open_from_environment(void)
{
	const char *bytes = getenv("FAKEGPU_GPU_BYTES"), *payload = getenv("FAKEGPU_PAYLOAD");
	struct fg_config config = {
	    .topology = getenv("FAKEGPU_TOPOLOGY"),
	    .gpu_bytes = bytes ? strtoull(bytes, NULL, 0) : 0,
	    .payload = payload ? (uint32_t)strtoul(payload, NULL, 0) : 0,
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

int fg_tenant_new(void)
{
	int slot;

	if (fg_lock())
		return -ENODEV;
	slot = tenant_take(false);
	fg_unlock();
	return slot == FG_NONE ? -EUSERS : slot;
}

void fg_tenant_use(int slot)
{
	used_tenant = slot;
}

void fg_tenant_kill(int slot)
{
	if (fg_lock())
		return;
	fg_reap_tenant(slot);
	fg_w->tenant[slot] = (struct fg_tenant){0};
	fg_unlock();
}

int fg_gpu_count(void)
{
	int count;

	if (fg_lock())
		return -ENODEV;
	count = fg_w->gpus;
	fg_unlock();
	return count;
}

int fg_stats(int gpu, struct fg_gpu_stats *out)
{
	struct fg_gpu *g;

	if (fg_lock())
		return -ENODEV;
	fg_reap();
	g = &fg_w->gpu[gpu];
	*out = g->stats;
	out->lost = g->lost;
	out->total_bytes = (uint64_t)g->frames * FG_BLOCK_BYTES;
	out->free_bytes = (uint64_t)g->free_frames * FG_BLOCK_BYTES;
	out->least_free_bytes = (uint64_t)g->least_free * FG_BLOCK_BYTES;
	fg_unlock();
	return 0;
}

uint64_t fg_now(void)
{
	return fg_w ? __atomic_load_n(&fg_w->now, __ATOMIC_RELAXED) : 0;
}

void fg_set_manual(int manual)
{
	if (fg_lock())
		return;
	fg_w->manual = manual;
	fg_unlock();
}

void fg_set_now(uint64_t now)
{
	if (fg_lock())
		return;
	fg_settle(now);
	fg_unlock();
}

void fg_fail_allocations(int count)
{
	if (fg_lock())
		return;
	fg_w->fail_allocations = count;
	fg_unlock();
}
