/* SPDX-License-Identifier: Apache-2.0 */
/*
 * QEMU's plugin interface cannot move the clock of a TCG guest: qemu_plugin_update_ns() only waits
 * for it. The clock is instructions << shift plus a bias, to which QEMU adds the sleeps that
 * it skips. A QEMU with loadable modules exports the structure with the bias, but no header
 * tells where in it the bias is: it is the only word with the bias' value, and adding to
 * it must move the clock by as much. If that does not hold, nothing is moved and QEMU ends.
 */
#include "pace.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { STATE_WORDS = 12 }; /* of QEMU's struct TimersState, in QEMU 10 */
static double step_ns;	   /* of guest time, that the clock may be behind */

static struct {
	void (*async_run_on_cpu)(void *cpu, void (*run)(void *cpu, uint64_t data), uint64_t data);
	int64_t (*icount_get)(void), (*icount_get_raw)(void);
	int64_t *state;
} qemu;
static int64_t *bias;
static int shift;
static double scale, given_ns;
static bool enabled, pending;

static int complain(const char *what)
{
	fprintf(stderr, "tierd-lab: pace=: %s\n", what);
	return -1;
}

/* A vCPU's own "the CPU that I am". */
static void *this_cpu(void)
{
	static _Thread_local void **current;

	if (!current)
		current = dlsym(RTLD_DEFAULT, "current_cpu");
	return current ? *current : NULL;
}

int pace_init(int icount_shift, double guest_ns_per_ns, double behind_ns)
{
	*(void **)&qemu.async_run_on_cpu = dlsym(RTLD_DEFAULT, "async_run_on_cpu");
	*(void **)&qemu.icount_get = dlsym(RTLD_DEFAULT, "icount_get");
	*(void **)&qemu.icount_get_raw = dlsym(RTLD_DEFAULT, "icount_get_raw");
	qemu.state = dlsym(RTLD_DEFAULT, "timers_state");
	if (icount_shift < 0)
		return complain("needs a machine with icount");
	if (!qemu.async_run_on_cpu || !qemu.icount_get || !qemu.icount_get_raw || !qemu.state ||
	    !dlsym(RTLD_DEFAULT, "current_cpu"))
		return complain("this QEMU does not export its clock");
	shift = icount_shift;
	scale = guest_ns_per_ns;
	step_ns = behind_ns;
	enabled = true;
	return 0;
}

static int64_t bias_now(void)
{
	return qemu.icount_get() - (qemu.icount_get_raw() << shift);
}

static bool find_bias(void)
{
	const int64_t value = bias_now();
	unsigned int found = 0;

	for (unsigned int i = 0; i < STATE_WORDS; i++)
		if (qemu.state[i] == value) {
			bias = &qemu.state[i];
			found++;
		}
	if (!value || found != 1)
		return false;
	(*bias)++;
	return bias_now() == value + 1;
}

/* Between two slices of the vCPU, under QEMU's big lock: timers that are due now run next. */
static void advance(void *cpu, uint64_t ns)
{
	(void)cpu;
	if (!bias && !find_bias()) {
		complain("the clock of this QEMU is not where it was expected");
		_Exit(1);
	}
	*bias += (int64_t)ns;
	__atomic_store_n(&pending, false, __ATOMIC_RELEASE);
}

void pace_waited(double waited_ns)
{
	const double owed = waited_ns * scale - given_ns;

	if (!enabled || owed < step_ns || __atomic_load_n(&pending, __ATOMIC_ACQUIRE))
		return;
	pending = true;
	given_ns += (double)(uint64_t)owed;
	qemu.async_run_on_cpu(this_cpu(), advance, (uint64_t)owed);
}
