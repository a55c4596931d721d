/* SPDX-License-Identifier: Apache-2.0 */
#include "suite.h"

#include "mark.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static size_t allocated;
static double began, ended;
static uint64_t uncounted, *counted = &uncounted;
static volatile sig_atomic_t asked_to_end;

static void die(const struct suite *suite, const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", suite->name, what, strerror(errno));
	exit(1);
}

static uint64_t number(const struct suite *suite, const char *text)
{
	char *end;
	uint64_t value;

	errno = 0;
	value = strtoull(text, &end, 0);
	switch (*end) {
	case 'G':
		value <<= 10; /* fall through */
	case 'M':
		value <<= 10; /* fall through */
	case 'K':
		value <<= 10;
		end++;
	}
	if (errno || end == text || *end || *text == '-') {
		errno = EINVAL;
		die(suite, text);
	}
	return value;
}

static void end_asked(int number)
{
	(void)number;
	asked_to_end = 1;
}

/* From here on work is counted in the file, and SIGTERM ends it. */
static void begin_endless(const struct suite *suite)
{
	struct sigaction action = {.sa_handler = end_asked, .sa_flags = SA_RESTART};
	int fd = open(suite->endless, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0 || ftruncate(fd, sizeof(*counted)))
		die(suite, suite->endless);
	counted = mmap(NULL, sizeof(*counted), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (counted == MAP_FAILED || sigaction(SIGTERM, &action, NULL))
		die(suite, suite->endless);
}

void suite_options(struct suite *suite, int argc, char **argv)
{
	static const struct option options[] = {
	    {"size", required_argument, NULL, 's'}, {"work", required_argument, NULL, 'w'},
	    {"seed", required_argument, NULL, 'r'}, {"huge", no_argument, NULL, 'H'},
	    {"spoil", no_argument, NULL, 'S'},	    {"endless", required_argument, NULL, 'e'},
	    {"help", no_argument, NULL, 'h'},	    {NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 's':
			suite->size = number(suite, optarg);
			break;
		case 'w':
			suite->work = number(suite, optarg);
			break;
		case 'r':
			suite->seed = number(suite, optarg);
			break;
		case 'S':
			suite->spoil = true;
			break;
		case 'e':
			suite->endless = optarg;
			break;
		case 'H':
			suite->huge = true;
			break;
		default:
			fprintf(stderr,
				"usage: %s [--size BYTES] [--work N] [--seed N] [--huge] [--spoil] "
				"[--endless FILE]\n",
				suite->name);
			exit(c == 'h' ? 0 : 2);
		}
	}
	if (optind != argc || suite->size < 1 << 20 || !suite->work) {
		fprintf(stderr, "%s: takes no arguments, at least 1M of --size, and --work\n",
			suite->name);
		exit(2);
	}
	if (suite->endless && !suite->can_be_endless) {
		fprintf(stderr, "%s: does not know --endless\n", suite->name);
		exit(2);
	}
	if (suite->endless)
		begin_endless(suite);
}

void *suite_alloc(const struct suite *suite, size_t bytes)
{
	const size_t huge = 2ul << 20;
	char *memory;

	memory = mmap(NULL, bytes + huge, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		die(suite, "mmap");
	memory = (char *)(((uintptr_t)memory + huge - 1) & ~(huge - 1));
	if (madvise(memory, bytes, suite->huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) &&
	    errno != EINVAL)
		die(suite, "madvise");
	allocated += bytes;
	return memory;
}

void suite_touch(const struct suite *suite, void *memory, size_t bytes)
{
	const size_t page = 4096;

	if (madvise(memory, (bytes + page - 1) / page * page, MADV_POPULATE_WRITE))
		die(suite, "madvise");
}

void suite_count(size_t bytes)
{
	allocated += bytes;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void suite_start(const struct suite *suite)
{
	struct stat input;
	char c;

	printf("{\"event\": \"ready\", \"workload\": \"%s\", \"pid\": %d, \"bytes\": %zu}\n",
	       suite->name, suite->pid ? suite->pid : (int)getpid(), allocated);
	fflush(stdout);
	if (!fstat(STDIN_FILENO, &input) && S_ISFIFO(input.st_mode))
		while (read(STDIN_FILENO, &c, 1) == 1 && c != '\n')
			;
	began = now();
	MARK_START();
}

void suite_stop(void)
{
	MARK_STOP();
	ended = now();
}

void suite_progress(uint64_t operations)
{
	*counted += operations;
}

bool suite_goes_on(const struct suite *suite, uint64_t done)
{
	return suite->endless ? !asked_to_end : done < suite->work;
}

void suite_spoil(const struct suite *suite, void *memory, size_t bytes)
{
	if (suite->spoil)
		memset((char *)memory + (bytes < 4096 ? 0 : bytes / 2 & ~4095ul), 0,
		       bytes < 4096 ? bytes : 4096);
}

int suite_end(const struct suite *suite, uint64_t operations, bool ok, uint64_t answer)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	printf("{\"event\": \"end\", \"workload\": \"%s\", \"seconds\": %.6f, "
	       "\"operations\": %" PRIu64 ", \"bytes\": %zu, \"max_rss\": %ld, "
	       "\"answer\": \"%016" PRIx64 "\", \"ok\": %s}\n",
	       suite->name, ended - began, operations, allocated, usage.ru_maxrss << 10, answer,
	       ok ? "true" : "false");
	return !ok;
}
