/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's clock follows modelled time. With -icount an instruction takes 2^shift ns of guest
 * time, whatever memory does; here the waiting for memory is added, in the same scale as the
 * instructions: 4 ns of guest time for 1 ns of waiting if an instruction is 250 ps in the
 * model and 1 ns in the guest. So timers, schedulers and daemons see a machine whose memory
 * has these latencies, only that all of its time passes as many times faster as the scale says.
 */
#ifndef TIERD_LAB_PACE_H
#define TIERD_LAB_PACE_H

/*
 * 0, or -1 after a message on stderr. scale: guest nanoseconds for a modelled one; behind_ns: guest
 * time by which the clock may be behind, so that it need not be moved for each miss.
 */
int pace_init(int icount_shift, double scale, double behind_ns);

/* So much was waited since the start, in modelled nanoseconds; by a vCPU's thread. */
void pace_waited(double waited_ns);

#endif
