/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks in the instruction stream: a no-op that does nothing on any processor, and that the
 * lab's plugin knows by its displacement when it translates the instruction. The region that
 * a benchmark measures lies between MARK_START and MARK_STOP; the others say whose the
 * process is.
 */
#ifndef MARK_H
#define MARK_H

#define MARK_START() __asm__ volatile("nopl 0x74696501(%%rax)" ::: "memory")
#define MARK_STOP() __asm__ volatile("nopl 0x74696502(%%rax)" ::: "memory")

#define MARK_WORKLOAD() __asm__ volatile("nopl 0x74696503(%%rax)" ::: "memory")
#define MARK_DAEMON() __asm__ volatile("nopl 0x74696504(%%rax)" ::: "memory")

#endif
