/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sqlite: SQLite with its database in memory: point queries and updates by primary key after
 * Zipf 0.99, nine to one, a hundred in a transaction. --work: statements.
 *
 * Every row's content follows from its key and how often it was updated, and each query checks
 * the row it got. At the end SQLite's own integrity check runs over all of it.
 */
#include "suite.h"
#include "zipf.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTENT = 400, ROW_BYTES = 520, BATCH = 100 };

static sqlite3 *db;

static void check(int status, int expected)
{
	if (status == expected)
		return;
	fprintf(stderr, "sqlite: %s\n", sqlite3_errmsg(db));
	exit(1);
}

static void run(const char *sql)
{
	check(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
}

static sqlite3_stmt *prepare(const char *sql)
{
	sqlite3_stmt *statement;

	check(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
	return statement;
}

static void content_of(uint64_t key, uint64_t updates, uint64_t *content)
{
	for (unsigned int i = 0; i < CONTENT / 8; i++)
		content[i] = mix64(key * 64 + i) + updates;
}

static void write_row(sqlite3_stmt *statement, uint64_t key, uint64_t updates)
{
	uint64_t content[CONTENT / 8];

	content_of(key, updates, content);
	check(sqlite3_bind_int64(statement, 1, (sqlite3_int64)updates), SQLITE_OK);
	check(sqlite3_bind_blob(statement, 2, content, CONTENT, SQLITE_STATIC), SQLITE_OK);
	check(sqlite3_bind_int64(statement, 3, (sqlite3_int64)key), SQLITE_OK);
	check(sqlite3_step(statement), SQLITE_DONE);
	sqlite3_reset(statement);
}

static bool read_row(sqlite3_stmt *statement, uint64_t key, uint64_t *updates)
{
	uint64_t content[CONTENT / 8];
	bool ok;

	check(sqlite3_bind_int64(statement, 1, (sqlite3_int64)key), SQLITE_OK);
	check(sqlite3_step(statement), SQLITE_ROW);
	*updates = (uint64_t)sqlite3_column_int64(statement, 0);
	content_of(key, *updates, content);
	ok = sqlite3_column_bytes(statement, 1) == CONTENT &&
	     !memcmp(sqlite3_column_blob(statement, 1), content, CONTENT);
	sqlite3_reset(statement);
	return ok;
}

static bool intact(void)
{
	sqlite3_stmt *statement = prepare("PRAGMA integrity_check");
	bool ok;

	check(sqlite3_step(statement), SQLITE_ROW);
	ok = !strcmp((const char *)sqlite3_column_text(statement, 0), "ok");
	sqlite3_finalize(statement);
	return ok;
}

int main(int argc, char **argv)
{
	struct suite suite = {.name = "sqlite", .size = 256ul << 20, .work = 200000, .seed = 1};
	uint64_t rows, state, wrong = 0, answer = 0, updates = 0;
	sqlite3_stmt *insert, *query, *update;
	struct zipf zipf;

	suite_options(&suite, argc, argv);
	rows = suite.size / ROW_BYTES;
	check(sqlite3_open(":memory:", &db), SQLITE_OK);
	run("CREATE TABLE t (k INTEGER PRIMARY KEY, n INTEGER, v BLOB)");
	insert = prepare("INSERT INTO t (n, v, k) VALUES (?, ?, ?)");
	query = prepare("SELECT n, v FROM t WHERE k = ?");
	update = prepare("UPDATE t SET n = ?, v = ? WHERE k = ?");
	run("BEGIN");
	for (uint64_t key = 0; key < rows; key++)
		write_row(insert, key, 0);
	run("COMMIT");
	suite_count((size_t)sqlite3_memory_used());
	zipf_make(&zipf, rows, 0.99);
	state = mix64(suite.seed);
	suite_start(&suite);
	for (uint64_t i = 0; i < suite.work; i++) {
		uint64_t key = zipf_item(&zipf, &state);

		if (i % BATCH == 0)
			run("BEGIN");
		wrong += !read_row(query, key, &updates);
		answer = answer * 31 + updates;
		if (i % 10 == 9)
			write_row(update, key, updates + 1);
		if (i % BATCH == BATCH - 1 || i + 1 == suite.work)
			run("COMMIT");
	}
	suite_stop();
	if (suite.spoil)
		run("UPDATE t SET n = n + 1 WHERE k % 2");
	for (uint64_t key = 0; key < rows; key++)
		wrong += !read_row(query, key, &updates);
	return suite_end(&suite, suite.work, !wrong && intact(), answer);
}
