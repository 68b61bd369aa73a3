/* SPDX-License-Identifier: MIT */

/*
 * LMDB as fast as it goes: mapped for writing, nothing synced, one transaction
 * for each put, read transactions renewed.  It has no eviction; where one is
 * asked for it gets a FIFO of its own, a second table from a number to the
 * digest that was put then, kept in the same transaction.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include <lmdb.h>

#include "bench.h"
#include "peers.h"

struct store {
	MDB_env *env;
	MDB_dbi items;
	MDB_dbi order;
	MDB_txn *reader;
	uint64_t bytes_max; /* 0: it does not evict */
};

#define CHECK(call)                                                            \
	do {                                                                   \
		int err_ = (call);                                             \
		if (err_)                                                      \
			bench_fail("LMDB: %s: %s", #call, mdb_strerror(err_)); \
	} while (0)

static void *open_lmdb(const char *directory, uint64_t bytes_max,
		       unsigned flags)
{
	struct store *store = calloc(1, sizeof(*store));
	MDB_txn *txn;

	if (!store)
		bench_fail("no memory");
	if (flags & STORE_EVICTS)
		store->bytes_max = bytes_max;
	CHECK(mdb_env_create(&store->env));
	/* Twice the bound, so that freed pages do not make it fail. */
	CHECK(mdb_env_set_mapsize(store->env, store->bytes_max
						      ? 4 * store->bytes_max
						      : (size_t)16 << 30));
	CHECK(mdb_env_set_maxdbs(store->env, 2));
	CHECK(mdb_env_set_maxreaders(store->env, 256));
	CHECK(mdb_env_open(store->env, directory,
			   MDB_NOSYNC | MDB_WRITEMAP | MDB_NOTLS, 0600));
	CHECK(mdb_txn_begin(store->env, NULL, 0, &txn));
	CHECK(mdb_dbi_open(txn, "items", MDB_CREATE, &store->items));
	CHECK(mdb_dbi_open(txn, "order", MDB_CREATE | MDB_INTEGERKEY,
			   &store->order));
	CHECK(mdb_txn_commit(txn));
	CHECK(mdb_txn_begin(store->env, NULL, MDB_RDONLY, &store->reader));
	mdb_txn_reset(store->reader);
	return store;
}

static void close_lmdb(void *arg)
{
	struct store *store = arg;

	mdb_txn_abort(store->reader);
	mdb_env_close(store->env);
	free(store);
}

/* The FIFO's order table holds number -> digest and size. */
struct place {
	uint8_t digest[16];
	uint64_t size;
};

static uint64_t last_number(MDB_cursor *cursor)
{
	MDB_val number, place;

	if (mdb_cursor_get(cursor, &number, &place, MDB_LAST))
		return 0;
	return *(uint64_t *)number.mv_data;
}

/*
 * Make room for one more of this size, oldest first.  How much is held is
 * told by the pages in use, as LMDB knows them.
 */
static void evict(struct store *store, MDB_txn *txn, MDB_cursor *cursor,
		  size_t size)
{
	MDB_val number, data, key;
	struct place place;
	MDB_stat stat;
	uint64_t held;

	for (;;) {
		CHECK(mdb_stat(txn, store->items, &stat));
		held = (stat.ms_branch_pages + stat.ms_leaf_pages +
			stat.ms_overflow_pages) *
		       (uint64_t)stat.ms_psize;
		if (held + size <= store->bytes_max ||
		    mdb_cursor_get(cursor, &number, &data, MDB_FIRST))
			return;
		memcpy(&place, data.mv_data, sizeof(place));
		key = (MDB_val){ sizeof(place.digest), place.digest };
		CHECK(mdb_del(txn, store->items, &key, NULL));
		CHECK(mdb_cursor_del(cursor, 0));
	}
}

static void enqueue(struct store *store, MDB_txn *txn, const struct item *item,
		    size_t size)
{
	struct place place = { .size = size };
	MDB_val key, data = { sizeof(place), &place };
	MDB_cursor *cursor;
	uint64_t number;

	memcpy(place.digest, item->digest, sizeof(place.digest));
	CHECK(mdb_cursor_open(txn, store->order, &cursor));
	evict(store, txn, cursor, size);
	number = last_number(cursor) + 1;
	key = (MDB_val){ sizeof(number), &number };
	CHECK(mdb_cursor_put(cursor, &key, &data, MDB_APPEND));
	mdb_cursor_close(cursor);
}

static void put(void *arg, const struct item *item, const void *value,
		size_t size)
{
	size_t whole = item->record_size + size;
	MDB_val key = { 16, (void *)(uintptr_t)item->digest };
	MDB_val data = { whole, NULL };
	struct store *store = arg;
	MDB_txn *txn;
	int err;

	CHECK(mdb_txn_begin(store->env, NULL, 0, &txn));
	if (store->bytes_max)
		enqueue(store, txn, item, whole);
	err = mdb_put(txn, store->items, &key, &data, MDB_RESERVE);
	if (err)
		bench_fail("LMDB: put: %s", mdb_strerror(err));
	memcpy(data.mv_data, item->record, item->record_size);
	memcpy((char *)data.mv_data + item->record_size, value, size);
	CHECK(mdb_txn_commit(txn));
}

/* The value within a renewed transaction; 0 if it is not there. */
static int find(struct store *store, const struct item *item, MDB_val *out)
{
	MDB_val key = { 16, (void *)(uintptr_t)item->digest };

	CHECK(mdb_txn_renew(store->reader));
	if (mdb_get(store->reader, store->items, &key, out) ||
	    out->mv_size < item->record_size ||
	    memcmp(out->mv_data, item->record, item->record_size))
		return 0;
	out->mv_data = (char *)out->mv_data + item->record_size;
	out->mv_size -= item->record_size;
	return 1;
}

static size_t get(void *arg, const struct item *item, void *buffer,
		  size_t capacity)
{
	struct store *store = arg;
	size_t size = 0;
	MDB_val value;

	if (find(store, item, &value) && value.mv_size <= capacity) {
		size = value.mv_size;
		memcpy(buffer, value.mv_data, size);
	}
	mdb_txn_reset(store->reader);
	return size;
}

static int64_t view(void *arg, const struct item *item)
{
	struct store *store = arg;
	int64_t sum = -1;
	MDB_val value;

	if (find(store, item, &value))
		sum = peer_touch(value.mv_data, value.mv_size);
	mdb_txn_reset(store->reader);
	return sum;
}

const struct peer peer_lmdb = {
	"LMDB", 0, open_lmdb, close_lmdb, put, get, view
};
