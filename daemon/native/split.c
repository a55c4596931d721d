/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Splitting 2 MiB folios of other processes.
 *
 * The kernel (mm/madvise.c, madvise_cold_or_pageout_pte_range) splits a folio of which only a part
 * is advised to be cold, if one process alone maps it and nobody holds on to it. It does not report
 * whether it did, so that is checked afterwards. The one page that is advised, the folio's last,
 * loses its accessed bit and its place among the active pages; nothing else changes.
 */
#include <errno.h>

#include "agent.h"
#include "mover.h"
#include "sys.h"

static uint8_t fate_of_errno(int err)
{
	switch (err) {
	case ENOENT: /* no such process, and no such mapping */
	case ESRCH:
	case ENOMEM:
	case EFAULT:
		return TIERD_SPLIT_GONE;
	case EPERM:
	case EACCES:
	case EINVAL: /* locked or special memory */
	case ENOSYS:
	case ENOTTY: /* no PAGEMAP_SCAN */
		return TIERD_SPLIT_REFUSED;
	default:
		return TIERD_SPLIT_FAILED;
	}
}

/* How a block of 2 MiB is mapped: FATE_OPEN if as one folio. */
static uint8_t look(int pid, uint64_t start)
{
	void *const address = (void *)(uintptr_t)start;
	int found;
	const int result = agent_mapped(pid, 1, &address, HUGE_BYTES, &found);

	if (result < 0 || found < 0)
		return fate_of_errno(result < 0 ? -result : -found);
	if (found == 0)
		return TIERD_SPLIT_GONE;
	return (found & TIERD_PAGE_HUGE) != 0 ? FATE_OPEN : TIERD_SPLIT_ALREADY;
}

static uint8_t split_one(int pid, uint64_t start)
{
	uint8_t view = look(pid, start);
	const uint64_t end = (start + HUGE_BYTES) >> PAGE_SHIFT;
	const struct tierd_span last = {.start = end - 1, .end = end};
	int64_t result;

	if (view != FATE_OPEN)
		return view;
	result = tierd_advise(pid, &last, 1, TIERD_ADVICE_COLD);
	if (result < 0)
		return fate_of_errno((int)-result);
	view = look(pid, start);
	if (view == FATE_OPEN)
		return TIERD_SPLIT_REFUSED;
	return view == TIERD_SPLIT_ALREADY ? TIERD_SPLIT_DONE : view;
}

void tierd_mover_split(struct tierd_mover *mover, const uint64_t *page, size_t n,
		       const struct tierd_process *process, size_t processes, uint8_t *fate)
{
	uint64_t cpu_start = tierd_thread_cpu_ns(), start = sys_monotonic_ns();
	const struct tierd_process *of = NULL;

	for (size_t i = 0; i < n; i++)
		fate[i] = TIERD_SPLIT_NOT_TRIED;
	for (size_t i = 0; i < n && atomic_load(&mover->stop) == 0; i++) {
		of = mover_process(process, processes, key_target(page[i]));
		if (of == NULL || of->pidfd < 0 || sys_exited(of->pidfd))
			fate[i] = TIERD_SPLIT_GONE;
		else
			fate[i] = split_one(of->pid, key_vpn(key_head(page[i])) << PAGE_SHIFT);
	}
	mover_used_cpu(mover, start, tierd_thread_cpu_ns() - cpu_start);
}
