/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tlbtick PERIOD_US: one process pinned on each CPU that wakes at this period.
 *
 * An emulator keeps translations far longer than hardware does: while one task runs
 * alone on an emulated CPU, an accessed bit that was cleared is not set again, because
 * the page's translation never leaves the emulator's TLB. Switching to another address
 * space empties it, as the few thousand entries of a real TLB would have emptied long
 * before. Lab runs that judge accessed bits start this beside the workload, and say so.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void tick(int cpu, long period_us)
{
	struct timespec pause = {period_us / 1000000, period_us % 1000000 * 1000};
	cpu_set_t set;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set)) {
		fprintf(stderr, "tlbtick: CPU %d: %s\n", cpu, strerror(errno));
		_exit(1);
	}
	for (;;)
		nanosleep(&pause, NULL);
}

int main(int argc, char **argv)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	long period_us = argc == 2 ? strtol(argv[1], NULL, 10) : 0;

	if (period_us <= 0) {
		fprintf(stderr, "usage: tlbtick PERIOD_US\n");
		return 2;
	}
	for (int cpu = 0; cpu < cpus; cpu++) {
		pid_t pid = fork();

		if (pid < 0) {
			perror("tlbtick: fork");
			return 1;
		}
		if (!pid)
			tick(cpu, period_us);
	}
	while (wait(NULL) > 0)
		;
	return 1;
}
