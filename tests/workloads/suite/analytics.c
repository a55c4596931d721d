/* SPDX-License-Identifier: Apache-2.0 */
/*
 * analytics: windows of a stream, sorted and merged (after StreamBox-HBM, ASPLOS 2019). Records
 * are large and lie still; of a window only small pairs of key and record number are moved. Each
 * sweep is a window: sources deliver sorted runs of pairs, three passes merge them from one key
 * array to the other and back, and a last one reads them and looks some records up. --work:
 * windows.
 */
#include "../rng.h"
#include "suite.h"
#include "sweeps.h"

enum { RUNS = 8, LOOKED_UP = 8 };

struct pair {
	uint64_t key, record;
};

struct record {
	uint64_t number, value, pad[14];
};

static uint64_t hash(const struct pair *pair)
{
	return pair->key * 0x9e3779b97f4a7c15 + pair->record;
}

/* A window's pairs, in RUNS sorted runs; the sum of their hashes. */
static uint64_t deliver(struct pair *pairs, size_t count, uint32_t records, uint64_t seed)
{
	const size_t run = count / RUNS;
	uint64_t sum = 0, state = seed;

	for (size_t r = 0; r < RUNS; r++)
		for (size_t i = 0; i < run; i++) {
			struct pair *pair = &pairs[r * run + i];

			state = state * 6364136223846793005 + 1442695040888963407;
			pair->key = (i << 16) + (state >> 48);
			pair->record = (state >> 32) * records >> 32;
			sum += hash(pair);
		}
	return sum;
}

/* Merges neighbouring runs of `run` pairs. */
static void merge(const struct pair *restrict from, struct pair *restrict to, size_t count,
		  size_t run)
{
	for (size_t begin = 0; begin < count; begin += 2 * run) {
		const struct pair *one = from + begin, *other = one + run;
		const struct pair *const one_end = other, *const end = other + run;

		while (one < one_end && other < end) {
			const bool first = one->key <= other->key;

			*to++ = first ? *one : *other;
			one += first;
			other += !first;
		}
		while (one < one_end)
			*to++ = *one++;
		while (other < end)
			*to++ = *other++;
	}
}

/* Whether pairs are sorted, are those that were delivered, and name records that are right. */
static bool reduce(const struct pair *pairs, size_t count, const struct record *records,
		   uint64_t wanted, uint64_t *answer)
{
	uint64_t sum = 0, before = 0, wrong = 0;

	for (size_t i = 0; i < count; i++) {
		wrong |= pairs[i].key < before;
		before = pairs[i].key;
		sum += hash(&pairs[i]);
		if (i % LOOKED_UP == 0) {
			const struct record *record = &records[pairs[i].record];

			wrong |= record->number ^ pairs[i].record;
			*answer = *answer * 31 + record->value;
		}
	}
	return !wrong && sum == wanted;
}

int main(int argc, char **argv)
{
	struct suite suite = {.name = "analytics", .size = 32ul << 20, .work = 100, .seed = 1};
	struct pair *keys[2];
	struct record *records;
	size_t bytes, large, count;
	uint32_t number;
	uint64_t answer = 0;
	bool ok = true;

	suite_options(&suite, argc, argv);
	bytes = suite.size / 8;
	large = suite.size - 2 * bytes;
	number = (uint32_t)(large / sizeof(*records));
	count = bytes / sizeof(struct pair) / RUNS * RUNS;
	records = suite_alloc(&suite, large);
	for (uint32_t i = 0; i < number; i++)
		records[i] = (struct record){.number = i, .value = mix64(i ^ suite.seed)};
	for (unsigned int n = 0; n < 2; n++) {
		keys[n] = suite_alloc(&suite, bytes);
		suite_touch(&suite, keys[n], bytes);
	}
	tell_array(true, "records", records, large, getpid());
	tell_array(false, "k0", keys[0], bytes, getpid());
	tell_array(false, "k1", keys[1], bytes, getpid());
	tell_end();
	suite_start(&suite);
	for (uint64_t i = 0; i < suite.work; i++) {
		uint64_t wanted;
		const double began = sweep_begins(i, suite.work);

		wanted = deliver(keys[0], count, number, mix64(suite.seed + i));
		for (unsigned int p = 0; 1u << p < RUNS; p++)
			merge(keys[p % 2], keys[(p + 1) % 2], count, count / RUNS << p);
		ok = reduce(keys[1], count, records, wanted, &answer) && ok;
		sweep_ends(i, began);
	}
	suite_stop();
	tell_sweeps(suite.work, NULL);
	suite_spoil(&suite, records, large);
	for (uint32_t i = 0; i < number; i++)
		ok = ok && records[i].number == i && records[i].value == mix64(i ^ suite.seed);
	return suite_end(&suite, suite.work, ok, answer);
}
