/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's view of managed memory: what it may touch, and its faults. */
#include "world.h"

#include <signal.h>
#include <sys/mman.h>

static struct sigaction old_segv;

/* What the owning process may do with the block's addresses, as UVM maps CPU pages. */
void fg_cpu_protect(const struct fg_block *block)
{
	int rights = PROT_NONE;

	if (fg_w->payload != FG_BLOCK_BYTES || block->kind != FG_MANAGED)
		return;
	if (!fg_is_own(fg_w->range[block->range].owner))
		return;
	if (block->op == FG_NONE && block->resident & 1u << FG_HOST)
		rights = PROT_READ | PROT_WRITE;
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
				fg_migrate(block, FG_HOST, FG_BLOCK_BYTES, &when, FG_NONE);
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

void fg_cpu_watch(void)
{
	struct sigaction action = {.sa_sigaction = on_segv, .sa_flags = SA_SIGINFO | SA_NODEFER};

	if (fg_w->payload == FG_BLOCK_BYTES)
		sigaction(SIGSEGV, &action, &old_segv);
}

void fg_cpu_unwatch(void)
{
	if (fg_w->payload == FG_BLOCK_BYTES)
		sigaction(SIGSEGV, &old_segv, NULL);
}
