/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where this thread's memory comes from, and what the kernel allocates for it: set_mempolicy(2).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tierd_native.h"

/* uapi/linux/mempolicy.h */
enum { PREFERRED = 1, NODE_BITS = 8 * sizeof(((struct tierd_mempolicy *)0)->nodes) };

int tierd_mempolicy_prefer(int node, struct tierd_mempolicy *before)
{
	uint64_t nodes[sizeof(before->nodes) / sizeof(before->nodes[0])] = {0};

	memset(before, 0, sizeof(*before));
	if (node < 0 || node >= NODE_BITS)
		return -EINVAL;
	nodes[node / 64] = UINT64_C(1) << node % 64;
	/* The kernel reads one bit less than the number given. */
	if (syscall(SYS_get_mempolicy, &before->mode, before->nodes, NODE_BITS, NULL, 0) != 0 ||
	    syscall(SYS_set_mempolicy, PREFERRED, nodes, NODE_BITS + 1) != 0)
		return -errno;
	return 0;
}

int tierd_mempolicy_restore(const struct tierd_mempolicy *before)
{
	return syscall(SYS_set_mempolicy, before->mode, before->nodes, NODE_BITS + 1) != 0 ? -errno
											   : 0;
}
