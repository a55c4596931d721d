/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system calls tierd makes, as the kernel has them: results or negative errno,
 * no policy. Structures that older headers lack are declared here.
 */
#ifndef TIERD_SYS_H
#define TIERD_SYS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "tierd_native.h"

/* /proc/PID/pagemap, open for reading. */
int sys_open_pagemap(int pid);

/* move_pages(2) with MPOL_MF_MOVE, and process_madvise(2) (Linux 5.10), which gives bytes. */
long sys_move_pages(int pid, unsigned long count, void **pages, const int *nodes, int *status);
int64_t sys_advise(int pidfd, const struct iovec *range, size_t ranges, int advice);

/* Whether the process behind a pidfd has ended. */
bool sys_exited(int pidfd);

/* MemFree of a node's meminfo, open as `fd`, in bytes; 0 where it cannot be read. */
uint64_t sys_node_free(int fd);

uint64_t sys_monotonic_ns(void);
uint64_t sys_thread_cpu_ns(void);

/* Sleep while `*word` is `expected`, for at most `timeout_ns`; may wake early. */
void sys_wait(atomic_uint *word, unsigned int expected, uint64_t timeout_ns);
void sys_wake(atomic_uint *word);

#endif
