/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restless: arrays that come and go and are used now in one way and now in another, all at
 * random, so that memory fills, drains and is never at rest. It sleeps most of the time, for
 * runs that are long by the clock and short by instructions. --size: the most in use at a time.
 * --work: milliseconds by the clock, unless a line comes before.
 *
 * Every word that is written is known in a sum over words and places, which is compared before
 * an array goes, and at the end.
 */
#include "../rng.h"
#include "suite.h"
#include "sweeps.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum {
	ARRAYS = 12,
	LARGEST = 5,  /* an array takes a part of --size, at most a fifth of it */
	BLOCK = 8192, /* words of a turn of an array in order */
	SINGLE = 768, /* ... of one at random */
	PAGE = 4096,
};

enum use { IDLE, READ, WRITE, LOOK_UP, UPDATE, USES };

struct array {
	uint64_t *words, sum;
	size_t bytes, count, at;
	enum use use;
};

static const double SHORTEST_S = 0.02;
static struct array arrays[ARRAYS];
static size_t in_use;
static uint64_t checked;
static volatile uint64_t sink;

static uint64_t factor(size_t i)
{
	return 2 * i + 1;
}

static void come(struct array *array, size_t bytes, uint64_t seed)
{
	array->words =
	    mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (array->words == MAP_FAILED) {
		array->words = NULL;
		return;
	}
	*array = (struct array){.words = array->words, .bytes = bytes, .count = bytes / 8};
	/* A word in eight, one of each line: time goes into use, not into beginnings. */
	for (size_t i = 0; i < array->count; i += 8) {
		array->words[i] = mix64(seed ^ i);
		array->sum += array->words[i] * factor(i);
	}
	in_use += bytes;
}

static bool check(const struct array *array)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < array->count; i += 8)
		sum += array->words[i] * factor(i);
	checked++;
	return sum == array->sum;
}

static bool leave(struct array *array)
{
	const bool ok = check(array);

	munmap(array->words, array->bytes);
	in_use -= array->bytes;
	array->words = NULL;
	return ok;
}

static uint64_t turn(struct array *array, uint64_t *state)
{
	uint64_t got = 0;

	if (array->use == READ || array->use == WRITE) {
		const uint64_t more = array->use == WRITE ? *state >> 32 : 0;

		for (size_t i = array->at; i < array->at + BLOCK && i < array->count; i += 8) {
			got += array->words[i];
			if (more) {
				array->words[i] += more;
				array->sum += more * factor(i);
			}
		}
		array->at = array->at + BLOCK < array->count ? array->at + BLOCK : 0;
	}
	for (unsigned int n = 0; array->use >= LOOK_UP && n < SINGLE; n++) {
		const size_t i = rng_below(state, (uint32_t)(array->count / 8)) * (size_t)8;

		got += array->words[i];
		if (array->use == UPDATE) {
			array->words[i] += got;
			array->sum += got * factor(i);
		}
	}
	return got;
}

/* Other arrays, and another use of each: memory is filled, or drained, to a random part. */
static bool change(const struct suite *suite, uint64_t *state)
{
	const size_t wanted = suite->size / 16 * (4 + rng_below(state, 13));
	bool ok = true;

	for (unsigned int tries = 0; tries < 64 && in_use != wanted; tries++) {
		struct array *array = &arrays[rng_below(state, ARRAYS)];
		const size_t least = 256ul << 10, most = suite->size / LARGEST;
		size_t bytes = least + rng_below(state, (uint32_t)(most / PAGE)) * (size_t)PAGE;

		if (in_use > wanted && array->words)
			ok = leave(array) && ok;
		else if (in_use < wanted && !array->words && in_use + bytes <= suite->size)
			come(array, bytes, *state);
	}
	for (unsigned int n = 0; n < ARRAYS; n++)
		if (rng_below(state, 2))
			arrays[n].use = (enum use)rng_below(state, USES);
	return ok;
}

/* Whether somebody has had enough. */
static bool told_to_end(void)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	struct stat kind;

	if (fstat(STDIN_FILENO, &kind) || !S_ISFIFO(kind.st_mode))
		return false;
	return poll(&input, 1, 0) == 1;
}

static void pause_s(double seconds)
{
	struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};

	nanosleep(&t, NULL);
}

int main(int argc, char **argv)
{
	/* A turn of all arrays takes about 1 / n of the time. Now and then all of it, but not for
	 * long. */
	static const unsigned int one_in[] = {400, 200, 100, 50, 1};
	struct suite suite = {.name = "restless", .size = 64ul << 20, .work = 1000, .seed = 1};
	uint64_t state, places;
	double began, now, until = 0, busy = 1;
	bool ok = true;

	suite_options(&suite, argc, argv);
	state = mix64(suite.seed);
	places = ~state; /* of its own: what changes does not depend on how fast it is */
	printf("{\"event\": \"arrays\", \"arrays\": {");
	tell_end();
	suite_start(&suite);
	began = now = clock_s(CLOCK_MONOTONIC);
	while (now < began + (double)suite.work / 1e3 && !told_to_end()) {
		double took;

		if (now >= until) {
			ok = change(&suite, &state) && ok;
			busy = one_in[rng_below(&state, 5)];
			now = clock_s(CLOCK_MONOTONIC);
			until = now + (busy > 1 ? 4 + rng_below(&state, 16) : 0.25);
		}
		for (unsigned int n = 0; n < ARRAYS; n++)
			if (arrays[n].words)
				sink += turn(&arrays[n], &places);
		took = clock_s(CLOCK_MONOTONIC) - now;
		if (busy > 1)
			pause_s(took * busy > SHORTEST_S ? took * (busy - 1) : SHORTEST_S);
		now = clock_s(CLOCK_MONOTONIC);
	}
	suite_stop();
	await();
	tell_sweeps(0, NULL);
	for (unsigned int n = 0; n < ARRAYS; n++) {
		if (!arrays[n].words)
			continue;
		suite_spoil(&suite, arrays[n].words, arrays[n].bytes);
		ok = leave(&arrays[n]) && ok;
	}
	suite_count(suite.size);
	return suite_end(&suite, suite.work, ok && checked, mix64(suite.seed));
}
