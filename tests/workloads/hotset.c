/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hotset: random updates of memory of which a known part is hot.
 *
 * Knows each page's access weight, asks the kernel where its pages are, prints one JSON
 * object an interval with the share of accesses served by each node, and at the end
 * checks a checksum of its whole memory: every update adds r to one word and r * weight
 * of that word's place to the sum, so a lost, stale or misplaced page shows.
 */
#include "layout.h"
#include "options.h"
#include "place.h"
#include "rng.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 64, LINES_PER_PAGE = PLACE_PAGE / LINE, SAMPLE = 4096 };

struct worker {
	pthread_t thread;
	uint64_t state, sum, updates;
};

static char *memory;
static _Atomic(struct layout *) current;
static atomic_bool stopping;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void die(const char *what, int error)
{
	fprintf(stderr, "hotset: %s: %s\n", what, strerror(error));
	exit(1);
}

static _Atomic uint64_t *word_of(size_t page, size_t line)
{
	return (_Atomic uint64_t *)(memory + page * PLACE_PAGE + line * LINE);
}

static uint64_t weight_of(size_t page, size_t line)
{
	return mix64(page * LINES_PER_PAGE + line) | 1;
}

static void touch_page(size_t page)
{
	for (size_t line = 0; line < LINES_PER_PAGE; line++)
		atomic_store_explicit(word_of(page, line), mix64(~(page * LINES_PER_PAGE + line)),
				      memory_order_relaxed);
}

/* Hot pages on the slow node; cold pages on the fast one as long as it keeps `leave_free`. */
static void populate(const struct layout *layout)
{
	bool placed = opt.fast_node >= 0 && opt.slow_node >= 0;

	if (placed && place_prefer(opt.slow_node))
		die("set_mempolicy", errno);
	for (size_t i = 0; i < layout->hot; i++)
		touch_page(layout->order[i]);
	if (placed && place_prefer(opt.fast_node))
		die("set_mempolicy", errno);
	for (size_t i = layout->hot; i < layout->pages; i++) {
		if (placed && i % 512 == 0) {
			long long room = place_node_free(opt.fast_node);

			if (room >= 0 && (size_t)room <= opt.leave_free &&
			    place_prefer(opt.slow_node))
				die("set_mempolicy", errno);
		}
		touch_page(layout->order[i]);
	}
	if (placed && place_prefer(-1))
		die("set_mempolicy", errno);
}

static void update(struct worker *self, const struct layout *layout, uint32_t hot_cut)
{
	uint64_t r = rng_next(&self->state);
	size_t line = r % LINES_PER_PAGE;
	uint32_t page;

	if ((uint32_t)(r >> 32) < hot_cut)
		page = layout->order[rng_below(&self->state, (uint32_t)layout->hot)];
	else
		page =
		    layout->order[layout->hot +
				  rng_below(&self->state, (uint32_t)(layout->pages - layout->hot))];
	atomic_fetch_add_explicit(word_of(page, line), r, memory_order_relaxed);
	self->sum += r * weight_of(page, line);
	self->updates++;
}

static void *work(void *arg)
{
	uint32_t hot_cut = (uint32_t)(opt.hot_access * 4294967295.0);
	double per_second = (double)opt.rate / opt.threads;
	struct worker *self = arg;
	double start = now();

	while (!atomic_load_explicit(&stopping, memory_order_relaxed)) {
		const struct layout *layout = atomic_load(&current);
		uint64_t due = self->updates + 256;

		if (opt.rate) {
			const struct timespec pause = {0, 1000000};

			due = (uint64_t)((now() - start) * per_second);
			if (due <= self->updates)
				nanosleep(&pause, NULL);
			/* Never catch up for more than a tenth of a second of stall. */
			if ((double)(due - self->updates) > per_second / 10 &&
			    due > self->updates) {
				start += (double)(due - self->updates) / per_second - 0.1;
				due = self->updates + (uint64_t)(per_second / 10);
			}
		}
		while (self->updates < due)
			update(self, layout, hot_cut);
	}
	return NULL;
}

static uint64_t memory_sum(void)
{
	uint64_t sum = 0;

	for (size_t page = 0; page < opt.size / PLACE_PAGE; page++)
		for (size_t line = 0; line < LINES_PER_PAGE; line++)
			sum += atomic_load_explicit(word_of(page, line), memory_order_relaxed) *
			       weight_of(page, line);
	return sum;
}

/* Prints "name": {"node": share, ...} over the hot and cold pages, by access weight. */
static double print_shares(const struct layout *layout, size_t stride)
{
	size_t hot[PLACE_MAX_NODES + 1], cold[PLACE_MAX_NODES + 1];
	size_t hot_total = 0, cold_total = 0;
	const char *comma = "";
	double fast = 0;
	int ret;

	ret = place_count(memory, layout, 0, layout->hot, stride, hot);
	if (!ret)
		ret = place_count(memory, layout, layout->hot, layout->pages, stride * 8, cold);
	if (ret)
		die("move_pages", -ret);
	for (int n = 0; n <= PLACE_MAX_NODES; n++) {
		hot_total += hot[n];
		cold_total += cold[n];
	}
	printf("\"share\": {");
	for (int n = 0; n < PLACE_MAX_NODES; n++) {
		double share = 0;

		if (!hot[n] && !cold[n])
			continue;
		if (hot_total)
			share += opt.hot_access * (double)hot[n] / (double)hot_total;
		if (cold_total)
			share += (1 - opt.hot_access) * (double)cold[n] / (double)cold_total;
		printf("%s\"%d\": %.4f", comma, n, share);
		comma = ", ";
		if (n == opt.fast_node)
			fast = share;
	}
	printf("}, \"hot_on_node\": {");
	comma = "";
	for (int n = 0; n < PLACE_MAX_NODES; n++)
		if (hot[n]) {
			printf("%s\"%d\": %.4f", comma, n, (double)hot[n] / (double)hot_total);
			comma = ", ";
		}
	printf("}");
	return fast;
}

/* Prints "map": a digit a page in order of address, 1 if it is on the fast node, plus 2 if hot. */
static void print_map(const struct layout *layout)
{
	char *hot = calloc(layout->pages, 1);
	int node[SAMPLE];

	if (!hot)
		die("map", ENOMEM);
	for (size_t i = 0; i < layout->hot; i++)
		hot[layout->order[i]] = 2;
	printf(", \"map\": \"");
	for (size_t page = 0; page < layout->pages; page += SAMPLE) {
		size_t n = layout->pages - page < SAMPLE ? layout->pages - page : SAMPLE;
		int ret = place_of(memory, page, n, node);

		if (ret)
			die("move_pages", -ret);
		for (size_t i = 0; i < n; i++)
			putchar('0' + hot[page + i] + (node[i] == opt.fast_node));
	}
	putchar('"');
	free(hot);
}

static void report(const char *event, double t, const struct worker *workers, bool exact)
{
	const struct layout *layout = atomic_load(&current);
	size_t stride = exact || layout->hot < SAMPLE ? 1 : layout->hot / SAMPLE;
	uint64_t updates = 0;
	double fast;

	for (unsigned int i = 0; i < opt.threads; i++)
		updates += workers[i].updates;
	printf("{\"event\": \"%s\", \"t\": %.3f, \"clock\": %.3f, \"updates\": %llu, ", event, t,
	       now(), (unsigned long long)updates);
	fast = print_shares(layout, stride);
	printf(", \"fast_share\": %.4f, \"hot_pages\": %zu, \"pages\": %zu", fast, layout->hot,
	       layout->pages);
	if (exact && opt.map)
		print_map(layout);
}

static void run(struct worker *workers)
{
	double start = now(), next_move = opt.move_after, t = 0;
	unsigned int round = 0;

	report("start", 0, workers, true);
	printf(", \"pid\": %d}\n", (int)getpid());
	while (!atomic_load(&stopping) && t < opt.seconds) {
		double wake = t + opt.interval;

		while (!atomic_load(&stopping) && (t = now() - start) < wake)
			usleep(10000);
		if (next_move > 0 && t >= next_move) {
			struct layout *fresh = malloc(sizeof(*fresh));

			if (!fresh || layout_make(fresh, opt.size / PLACE_PAGE, opt.hot,
						  opt.scattered, opt.seed, ++round))
				die("layout", ENOMEM);
			/* The old layout is leaked on purpose: workers may still read it. */
			atomic_store(&current, fresh);
			next_move += opt.move_after;
			printf("{\"event\": \"hot_set_moved\", \"t\": %.3f}\n", t);
		}
		report("sample", t, workers, false);
		printf("}\n");
	}
	atomic_store(&stopping, true);
}

static void stop(int signal)
{
	(void)signal;
	atomic_store(&stopping, true);
}

int main(int argc, char **argv)
{
	static struct worker workers[MAX_THREADS];
	static struct layout first;
	uint64_t expected = 0;
	double start;
	bool ok;

	options_parse(argc, argv);
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGTERM, stop);
	signal(SIGINT, stop);
	memory = mmap(NULL, opt.size + (2ul << 20), PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		die("mmap", errno);
	memory = (char *)(((uintptr_t)memory + (2ul << 20) - 1) & ~((2ul << 20) - 1));
	if (madvise(memory, opt.size, opt.huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE))
		die("madvise", errno);
	if (layout_make(&first, opt.size / PLACE_PAGE, opt.hot, opt.scattered, opt.seed, 0))
		die("layout", ENOMEM);
	populate(&first);
	atomic_store(&current, &first);
	if (opt.hot_file) {
		int ret = layout_write(&first, opt.hot_file, (uintptr_t)memory);

		if (ret)
			die(opt.hot_file, -ret);
	}
	if (opt.check)
		expected = memory_sum();

	start = now();
	for (unsigned int i = 0; i < opt.threads; i++) {
		workers[i].state = mix64(opt.seed * MAX_THREADS + i);
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			die("pthread_create", EAGAIN);
	}
	run(workers);
	for (unsigned int i = 0; i < opt.threads; i++) {
		pthread_join(workers[i].thread, NULL);
		expected += workers[i].sum;
	}
	ok = !opt.check || memory_sum() == expected;
	report("end", now() - start, workers, true);
	printf(", \"checksum_ok\": %s}\n", !opt.check ? "null" : ok ? "true" : "false");
	return ok ? 0 : 1;
}
