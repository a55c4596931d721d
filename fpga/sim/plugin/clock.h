/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What time it is in the guest, in nanoseconds since the plugin was loaded.
 * Owns: the choice of a clock. Must not touch: the cards.
 */
#ifndef TIERD_LAB_CLOCK_H
#define TIERD_LAB_CLOCK_H

#include <stdint.h>

enum clock_kind {
	CLOCK_KIND_HOST,	 /* no -icount: guest time is host time */
	CLOCK_KIND_VIRTUAL,	 /* -icount: QEMU's virtual clock */
	CLOCK_KIND_INSTRUCTIONS, /* -icount in a QEMU that does not export that clock:
				  * instructions only, times when all CPUs sleep do not count */
};

/* icount_shift below 0: the machine is not counted by instructions. `instructions` tells how many
 * have been executed. */
void clock_init(int icount_shift, uint64_t (*instructions)(void));
enum clock_kind clock_kind(void);
const char *clock_name(void);

/* Never goes back. To be called by one thread at a time. */
uint64_t clock_ns(void);

#endif
