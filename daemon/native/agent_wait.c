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
#include <string.h>
#include <unistd.h>

#include "agent.h"
#include "sys.h"
#include "tierd_native.h"

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

/* The beginning of a file of a thread's; false if there is none. */
static bool read_thread(int tid, const char *name, char *text, size_t size)
{
	char path[40];
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", tid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd == -1)
		return false;
	got = read(fd, text, size - 1);
	close(fd);
	if (got <= 0)
		return false;
	text[got] = '\0';
	return true;
}

/*
 * Nanoseconds that a thread ran and waited for a processor, 0 if that is not known.
 * Source: /proc/PID/schedstat, Documentation/scheduler/sched-stats.rst.
 */
static uint64_t activity_ns(int tid)
{
	unsigned long long ran, waited;
	char text[96];

	if (!read_thread(tid, "schedstat", text, sizeof(text)))
		return 0;
	return sscanf(text, "%llu %llu", &ran, &waited) == 2 ? ran + waited : 0;
}

/* Whether it runs or waits for a processor now: its wait is counted only when it has ended. */
static bool is_runnable(int tid)
{
	char text[96];
	const char *state;

	if (!read_thread(tid, "stat", text, sizeof(text)))
		return false;
	state = strrchr(text, ')');
	return state != NULL && strncmp(state, ") R", 3) == 0;
}

int tierd_slept(int tid, uint64_t waited_ns, uint64_t *active_ns)
{
	const uint64_t before = *active_ns;

	*active_ns = activity_ns(tid);
	return *active_ns < before + waited_ns / SLEEPS && !is_runnable(tid);
}

bool agent_waited_for(int fd, const struct agent_call *call, int sleep_ms)
{
	uint64_t active_ns = activity_ns(call->agent);

	for (int i = 0; i < SLOW; i++) {
		if (agent_answers(fd, sleep_ms))
			return true;
		if (tierd_slept(call->agent, (uint64_t)sleep_ms * 1000000, &active_ns))
			return false;
	}
	return false;
}
