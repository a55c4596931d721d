/* SPDX-License-Identifier: Apache-2.0 */
/*
 * To be loaded before QEMU (LD_PRELOAD) where two runs have to be the same run.
 *
 * QEMU's software TLB grows and shrinks by how full it was in the last 100 ms of the host's clock,
 * which it asks for whenever it is emptied. How large it is decides which translations are walked
 * again, and those set accessed bits, which the guest sees. Here a thread's clock goes on by a
 * millisecond each time it is asked. Nothing else of QEMU that matters to a guest with counted
 * instructions and a calendar on that clock (-rtc clock=vm) asks for the time of day.
 */
#include <sys/time.h>

__attribute__((visibility("default"))) int gettimeofday(struct timeval *restrict now,
							void *restrict zone)
{
	static _Thread_local long asked;

	(void)zone;
	asked++;
	now->tv_sec = 1000000000 + asked / 1000;
	now->tv_usec = asked % 1000 * 1000;
	return 0;
}
