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
#include <unistd.h>

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
static uint8_t look(int pagemap, uint64_t start)
{
	const int64_t found = batch_mapped(pagemap, start, HUGE_BYTES);

	if (found < 0)
		return fate_of_errno((int)-found);
	if (found == 0)
		return TIERD_SPLIT_GONE;
	return (found & TIERD_PAGE_HUGE) != 0 ? FATE_OPEN : TIERD_SPLIT_ALREADY;
}

static uint8_t split_one(int pidfd, int pagemap, uint64_t start)
{
	uint8_t view = look(pagemap, start);
	int result;

	if (view != FATE_OPEN)
		return view;
	result = tierd_advise_cold(pidfd, start + HUGE_BYTES - PAGE_BYTES, PAGE_BYTES);
	if (result < 0)
		return fate_of_errno(-result);
	view = look(pagemap, start);
	if (view == FATE_OPEN)
		return TIERD_SPLIT_REFUSED;
	return view == TIERD_SPLIT_ALREADY ? TIERD_SPLIT_DONE : view;
}

void tierd_mover_split(struct tierd_mover *mover, const uint64_t *page, size_t n,
		       const struct tierd_process *process, size_t processes, uint8_t *fate)
{
	uint64_t cpu_start = sys_thread_cpu_ns(), start = sys_monotonic_ns();
	const struct tierd_process *of = NULL;
	int pagemap = -ESRCH;

	for (size_t i = 0; i < n; i++)
		fate[i] = TIERD_SPLIT_NOT_TRIED;
	for (size_t i = 0; i < n && atomic_load(&mover->stop) == 0; i++) {
		if (i == 0 || key_target(page[i]) != key_target(page[i - 1])) {
			if (pagemap >= 0)
				close(pagemap);
			of = mover_process(process, processes, key_target(page[i]));
			pagemap = of == NULL || of->pidfd < 0 ? -ESRCH : sys_open_pagemap(of->pid);
		}
		if (of == NULL || of->pidfd < 0 || sys_exited(of->pidfd))
			fate[i] = TIERD_SPLIT_GONE;
		else if (pagemap < 0)
			fate[i] = fate_of_errno(-pagemap);
		else
			fate[i] =
			    split_one(of->pidfd, pagemap, key_vpn(key_head(page[i])) << PAGE_SHIFT);
	}
	if (pagemap >= 0)
		close(pagemap);
	mover_used_cpu(mover, start, sys_thread_cpu_ns() - cpu_start);
}
