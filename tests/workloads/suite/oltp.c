/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oltp: transactions on a table in memory with optimistic concurrency control, in the manner of
 * Silo (Tu et al., SOSP 2013): records are read with their version, writes are kept aside, and
 * a commit locks what it writes, checks what it read and installs new versions. Under YCSB A's
 * load: ten records a transaction after Zipf 0.99, half of them read, half read and written.
 * --work: transactions, by two threads. Whoever meets a lock gives the CPU to others: on a machine
 * with one, its owner waits for just that, and to spin is to wait for the end of the time slice.
 *
 * A write adds to the record's payload; the sum over the table must be that of all commits, and
 * the versions must tell as many writes.
 */
#include "suite.h"
#include "zipf.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 2, RECORDS = 10, WORDS = 14 };

struct record {
	_Atomic uint64_t version; /* odd: locked */
	uint64_t key;
	_Atomic uint64_t word[WORDS];
};

struct worker {
	pthread_t thread;
	uint64_t state, transactions, sum, writes, aborts, seen;
};

static struct record *table;
static uint32_t *bucket; /* open addressing: number of the record plus one */
static uint64_t bucket_mask;
static struct zipf zipf;

static struct record *find(uint64_t key)
{
	for (uint64_t i = mix64(key) & bucket_mask;; i = (i + 1) & bucket_mask)
		if (bucket[i] && table[bucket[i] - 1].key == key)
			return &table[bucket[i] - 1];
}

static uint64_t stable_read(struct record *record, uint64_t *seen)
{
	for (;;) {
		uint64_t version = atomic_load_explicit(&record->version, memory_order_acquire);
		uint64_t sum = 0;

		if (version & 1) {
			sched_yield();
			continue;
		}
		for (unsigned int w = 0; w < WORDS; w++)
			sum += atomic_load_explicit(&record->word[w], memory_order_relaxed);
		atomic_thread_fence(memory_order_acquire);
		if (atomic_load_explicit(&record->version, memory_order_relaxed) == version) {
			*seen += sum;
			return version;
		}
	}
}

static void unlock(struct record **locked, unsigned int count, bool changed)
{
	for (unsigned int i = 0; i < count; i++)
		atomic_fetch_add_explicit(&locked[i]->version, changed ? 1 : -1ul,
					  memory_order_release);
}

/* Sorted by address, so that locks are always taken in one order. */
static void sort(struct record **records, unsigned int count)
{
	for (unsigned int i = 1; i < count; i++)
		for (unsigned int j = i; j && records[j] < records[j - 1]; j--) {
			struct record *swap = records[j];

			records[j] = records[j - 1];
			records[j - 1] = swap;
		}
}

static bool transact(struct worker *self)
{
	struct record *record[RECORDS], *write[RECORDS];
	uint64_t version[RECORDS], add = 0, start = self->state;
	unsigned int writes = 0, locked = 0;

	for (unsigned int i = 0; i < RECORDS; i++) {
		bool fresh = true;

		record[i] = find(zipf_item(&zipf, &self->state));
		version[i] = stable_read(record[i], &self->seen);
		for (unsigned int j = 0; j < i; j++)
			fresh = fresh && record[j] != record[i];
		if (fresh && i % 2)
			write[writes++] = record[i];
	}
	sort(write, writes);
	for (; locked < writes; locked++) {
		uint64_t now = atomic_load_explicit(&write[locked]->version, memory_order_relaxed);

		if (now & 1 ||
		    !atomic_compare_exchange_strong(&write[locked]->version, &now, now + 1))
			goto abort;
	}
	for (unsigned int i = 0; i < RECORDS; i++) {
		uint64_t now = atomic_load(&record[i]->version);
		bool own = false;

		for (unsigned int j = 0; j < writes; j++)
			own = own || write[j] == record[i];
		if (now != version[i] + own)
			goto abort;
	}
	for (unsigned int i = 0; i < writes; i++) {
		uint64_t r = mix64(start + i);

		atomic_fetch_add_explicit(&write[i]->word[r % WORDS], r, memory_order_relaxed);
		add += r;
	}
	unlock(write, writes, true);
	self->sum += add;
	self->writes += writes;
	return true;
abort:
	unlock(write, locked, false);
	self->aborts++;
	return false;
}

static void *work(void *arg)
{
	struct worker *self = arg;

	for (uint64_t i = 0; i < self->transactions; i++)
		while (!transact(self))
			sched_yield();
	return NULL;
}

static uint64_t populate(const struct suite *suite)
{
	uint64_t records = suite->size / (sizeof(struct record) + 2 * sizeof(*bucket)),
		 slots = 1024;

	while (slots < records * 3 / 2)
		slots <<= 1;
	bucket_mask = slots - 1;
	table = suite_alloc(suite, records * sizeof(*table));
	bucket = suite_alloc(suite, slots * sizeof(*bucket));
	for (uint64_t n = 0; n < records; n++) {
		uint64_t i = mix64(n) & bucket_mask;

		table[n].key = n;
		for (unsigned int w = 0; w < WORDS; w++)
			table[n].word[w] = 1;
		while (bucket[i])
			i = (i + 1) & bucket_mask;
		bucket[i] = (uint32_t)n + 1;
	}
	return records;
}

int main(int argc, char **argv)
{
	struct suite suite = {.name = "oltp", .size = 256ul << 20, .work = 200000, .seed = 1};
	uint64_t records, expected, sum = 0, writes = 0, versions = 0;
	static struct worker workers[THREADS];

	suite_options(&suite, argc, argv);
	records = populate(&suite);
	zipf_make(&zipf, records, 0.99);
	expected = records * WORDS;
	suite_start(&suite);
	for (unsigned int t = 0; t < THREADS; t++) {
		workers[t].state = mix64(suite.seed * THREADS + t);
		workers[t].transactions = suite.work / THREADS;
		if (pthread_create(&workers[t].thread, NULL, work, &workers[t]))
			return 1;
	}
	for (unsigned int t = 0; t < THREADS; t++)
		pthread_join(workers[t].thread, NULL);
	suite_stop();
	suite_spoil(&suite, table, records * sizeof(*table));
	for (unsigned int t = 0; t < THREADS; t++) {
		expected += workers[t].sum;
		writes += workers[t].writes;
	}
	for (uint64_t n = 0; n < records; n++) {
		versions += atomic_load(&table[n].version);
		for (unsigned int w = 0; w < WORDS; w++)
			sum += atomic_load(&table[n].word[w]);
	}
	return suite_end(&suite, suite.work / THREADS * THREADS,
			 sum == expected && versions == 2 * writes, sum);
}
