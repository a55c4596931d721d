/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plugins have no function that reads the guest's clock. With -icount the guest's sleeps are
 * skipped, so instructions alone do not tell it either. A QEMU with loadable modules (Debian's)
 * exports qemu_clock_get_ns() to those, and so to plugins. Called by a vCPU's thread between
 * instructions it would refuse, as the running slice is not accounted yet; for a thread without a
 * vCPU it gives the time at which the slice began. Slices end at the next timer, so that is late by
 * one timer tick of the guest at most, and the same in every run.
 */
#include "clock.h"

#include <dlfcn.h>
#include <stddef.h>
#include <time.h>

enum { QEMU_CLOCK_VIRTUAL = 1 };

static enum clock_kind kind;
static int shift;
static uint64_t (*executed)(void);
static int64_t (*virtual_ns)(int type);
static uint64_t begin, latest;

/* QEMU's thread-local "the vCPU that I am", or NULL if it is not exported. */
static void **current_cpu(void)
{
	return dlsym(RTLD_DEFAULT, "current_cpu");
}

static uint64_t read_clock(void)
{
	static _Thread_local void **current;
	struct timespec now;
	uint64_t ns;
	void *self;

	switch (kind) {
	case CLOCK_KIND_VIRTUAL:
		if (!current)
			current = current_cpu();
		self = *current;
		*current = NULL;
		ns = (uint64_t)virtual_ns(QEMU_CLOCK_VIRTUAL);
		*current = self;
		return ns;
	case CLOCK_KIND_INSTRUCTIONS:
		return executed() << shift;
	default:
		clock_gettime(CLOCK_MONOTONIC, &now);
		return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	}
}

void clock_init(int icount_shift, uint64_t (*instructions)(void))
{
	shift = icount_shift;
	executed = instructions;
	*(void **)&virtual_ns = dlsym(RTLD_DEFAULT, "qemu_clock_get_ns");
	if (icount_shift < 0)
		kind = CLOCK_KIND_HOST;
	else if (virtual_ns && current_cpu())
		kind = CLOCK_KIND_VIRTUAL;
	else
		kind = CLOCK_KIND_INSTRUCTIONS;
	/* The machine is not made yet: its virtual clock stands at 0. */
	begin = kind == CLOCK_KIND_HOST ? read_clock() : 0;
}

enum clock_kind clock_kind(void)
{
	return kind;
}

const char *clock_name(void)
{
	static const char *const names[] = {"host", "virtual", "instructions"};

	return names[kind];
}

uint64_t clock_ns(void)
{
	const uint64_t ns = read_clock() - begin;

	if (ns > latest)
		latest = ns;
	return latest;
}
