// SPDX-License-Identifier: Apache-2.0
/*
 * Touches known pages a known number of times, each touch a page fault.
 *
 *   touch PAGES ROUNDS [CPU]
 *
 * Page i is written in rounds 0 to i % ROUNDS, so it faults 1 + i % ROUNDS times: before
 * each round the pages are given back to the kernel. Prints its pid and the address of
 * the first page, then obeys lines on its standard input:
 *
 *   go         do all rounds, then print "done FAULTS"
 *   cpu N      run on CPU N from now on, print "cpu N"
 *   spin MS    read all pages again and again for that long, print "spun READS"
 *   quit       end (so does the end of the input)
 */
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL

static void die(const char *what)
{
	fprintf(stderr, "touch: %s: %s\n", what, strerror(errno));
	exit(1);
}

static unsigned long number(const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (end == text || *end) {
		fprintf(stderr, "touch: \"%s\" is no number\n", text);
		exit(2);
	}
	return value;
}

static void run_on(unsigned long cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
}

static unsigned long touch(volatile uint8_t *memory, unsigned long pages, unsigned long rounds)
{
	unsigned long faults = 0;

	for (unsigned long round = 0; round < rounds; round++) {
		if (madvise((void *)memory, pages * PAGE, MADV_DONTNEED))
			die("madvise");
		for (unsigned long page = 0; page < pages; page++) {
			if (page % rounds < round)
				continue;
			memory[page * PAGE] = (uint8_t)round;
			faults++;
		}
	}
	return faults;
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static unsigned long spin(volatile uint8_t *memory, unsigned long pages, unsigned long ms)
{
	uint64_t end = now_ms() + ms;
	unsigned long reads = 0;

	do {
		for (unsigned long page = 0; page < pages; page++, reads++)
			(void)memory[page * PAGE];
	} while (now_ms() < end);
	return reads;
}

int main(int argc, char **argv)
{
	unsigned long pages, rounds;
	uint8_t *memory;
	char line[64];

	if (argc < 3 || argc > 4) {
		fprintf(stderr, "usage: touch PAGES ROUNDS [CPU]\n");
		return 2;
	}
	pages = number(argv[1]);
	rounds = number(argv[2]);
	if (!pages || !rounds) {
		fprintf(stderr, "touch: nothing to do\n");
		return 2;
	}
	if (argc == 4)
		run_on(number(argv[3]));
	memory =
	    mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		die("mmap");
	/* A huge page would take one fault for many pages. */
	if (madvise(memory, pages * PAGE, MADV_NOHUGEPAGE) && errno != EINVAL)
		die("madvise");
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("%d %lu\n", getpid(), (unsigned long)memory);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (!strcmp(line, "go")) {
			printf("done %lu\n", touch(memory, pages, rounds));
		} else if (!strncmp(line, "cpu ", 4)) {
			run_on(number(line + 4));
			printf("%s\n", line);
		} else if (!strncmp(line, "spin ", 5)) {
			printf("spun %lu\n", spin(memory, pages, number(line + 5)));
		} else if (!strcmp(line, "quit")) {
			break;
		} else {
			fprintf(stderr, "touch: \"%s\" is no command\n", line);
			return 2;
		}
	}
	return 0;
}
