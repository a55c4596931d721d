/* SPDX-License-Identifier: Apache-2.0 */
/*
 * To be loaded before QEMU (LD_PRELOAD): its main loop never sleeps for longer than 20
 * microseconds, so it looks at the vCPU at moments of the host's clock, as on a busy host and
 * thousands of times as often. After a thousand turns it makes the file that RESTLESS_FILE names.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

typedef int poll_function(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);

int ppoll(struct pollfd *files, nfds_t count, const struct timespec *limit, const sigset_t *signals)
{
	static unsigned int turns;
	const struct timespec brief = {.tv_nsec = 20000};
	poll_function *real = (poll_function *)(uintptr_t)dlsym(RTLD_NEXT, "ppoll");

	if (gettid() == getpid()) {
		limit = &brief;
		if (++turns == 1000 && getenv("RESTLESS_FILE"))
			close(creat(getenv("RESTLESS_FILE"), 0644));
	}
	return real(files, count, limit, signals);
}
