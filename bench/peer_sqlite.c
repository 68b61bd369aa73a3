/* SPDX-License-Identifier: MIT */

/* SQLite with a write-ahead log, mapped, nothing synced. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include "bench.h"
#include "peers.h"

struct store {
	sqlite3 *db;
	sqlite3_stmt *put;
	sqlite3_stmt *get;
};

static void check(struct store *store, int result, const char *what)
{
	if (result != SQLITE_OK)
		bench_fail("SQLite: %s: %s", what, sqlite3_errmsg(store->db));
}

static void *open_sqlite(const char *directory, uint64_t bytes_max,
			 unsigned flags)
{
	static const char setup[] =
		"PRAGMA busy_timeout=20000; PRAGMA journal_mode=WAL;"
		"PRAGMA synchronous=OFF; PRAGMA mmap_size=4294967296;"
		"CREATE TABLE IF NOT EXISTS items (digest BLOB PRIMARY KEY,"
		" record BLOB, value BLOB) WITHOUT ROWID;";
	struct store *store = calloc(1, sizeof(*store));
	char path[4096];

	(void)bytes_max;
	if (flags & STORE_EVICTS)
		bench_fail("SQLite: no eviction");
	if (!store)
		bench_fail("no memory");
	snprintf(path, sizeof(path), "%s/sqlite", directory);
	check(store, sqlite3_open(path, &store->db), "open");
	check(store, sqlite3_exec(store->db, setup, NULL, NULL, NULL), "setup");
	check(store,
	      sqlite3_prepare_v2(
		      store->db,
		      "INSERT OR IGNORE INTO items VALUES (?1, ?2, ?3)", -1,
		      &store->put, NULL),
	      "prepare");
	check(store,
	      sqlite3_prepare_v2(
		      store->db,
		      "SELECT record, value FROM items WHERE digest = ?1", -1,
		      &store->get, NULL),
	      "prepare");
	return store;
}

static void close_sqlite(void *arg)
{
	struct store *store = arg;

	sqlite3_finalize(store->put);
	sqlite3_finalize(store->get);
	sqlite3_close(store->db);
	free(store);
}

static void put(void *arg, const struct item *item, const void *value,
		size_t size)
{
	struct store *store = arg;

	sqlite3_bind_blob(store->put, 1, item->digest, 16, SQLITE_STATIC);
	sqlite3_bind_blob(store->put, 2, item->record, (int)item->record_size,
			  SQLITE_STATIC);
	sqlite3_bind_blob(store->put, 3, value, (int)size, SQLITE_STATIC);
	if (sqlite3_step(store->put) != SQLITE_DONE)
		bench_fail("SQLite: put: %s", sqlite3_errmsg(store->db));
	sqlite3_reset(store->put);
}

static size_t get(void *arg, const struct item *item, void *buffer,
		  size_t capacity)
{
	struct store *store = arg;
	size_t size = 0;

	sqlite3_bind_blob(store->get, 1, item->digest, 16, SQLITE_STATIC);
	if (sqlite3_step(store->get) == SQLITE_ROW &&
	    (size_t)sqlite3_column_bytes(store->get, 0) == item->record_size &&
	    !memcmp(sqlite3_column_blob(store->get, 0), item->record,
		    item->record_size)) {
		size = (size_t)sqlite3_column_bytes(store->get, 1);
		if (size > capacity)
			bench_fail("SQLite: a wrong size");
		memcpy(buffer, sqlite3_column_blob(store->get, 1), size);
	}
	sqlite3_reset(store->get);
	return size;
}

const struct peer peer_sqlite = { "SQLite", 0,	 open_sqlite, close_sqlite,
				  put,	    get, NULL };
