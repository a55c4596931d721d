/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for an agent. One that sleeps for longer than an answer may take is not waited for any
 * more. One that ran meanwhile, or waited for a processor, is only slow.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "agent.h"
#include "sys.h"

enum {
	/* A call sleeps if the agent was active for less than this part of the time, and one that
	 * is active is waited for so many times. */
	SLEEPS = 50,
	SLOW = 20,
};

bool agent_answers(int fd, int timeout_ms)
{
	struct pollfd waits = {.fd = fd, .events = POLLIN};
	const uint64_t end = sys_monotonic_ns() + (uint64_t)timeout_ms * 1000000;
	int ready;

	while ((ready = poll(&waits, 1, timeout_ms)) == -1 && errno == EINTR) {
		const uint64_t now = sys_monotonic_ns();

		timeout_ms = now < end ? (int)((end - now) / 1000000) : 0;
	}
	return ready == 1;
}

/*
 * Nanoseconds that an agent ran and waited for a processor, 0 if that is not known.
 * Source: /proc/PID/schedstat, Documentation/scheduler/sched-stats.rst.
 */
static uint64_t activity_ns(const struct agent_call *call)
{
	unsigned long long ran, waited;
	char path[40], text[96];
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", call->agent);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd == -1)
		return 0;
	got = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (got <= 0)
		return 0;
	text[got] = '\0';
	return sscanf(text, "%llu %llu", &ran, &waited) == 2 ? ran + waited : 0;
}

bool agent_waited_for(int fd, const struct agent_call *call, int sleep_ms)
{
	const uint64_t least = (uint64_t)sleep_ms * 1000000 / SLEEPS;
	uint64_t before = activity_ns(call);

	for (int i = 0; i < SLOW; i++) {
		uint64_t now;

		if (agent_answers(fd, sleep_ms))
			return true;
		now = activity_ns(call);
		if (now < before + least)
			return false;
		before = now;
	}
	return false;
}
