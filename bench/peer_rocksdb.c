/* SPDX-License-Identifier: MIT */

/* RocksDB with values in blob files and no write-ahead log (what is not yet
   flushed is lost with the process). */

#include <stdlib.h>
#include <string.h>

#include <rocksdb/c.h>

#include "bench.h"
#include "peers.h"

struct store {
	rocksdb_t *db;
	rocksdb_options_t *options;
	rocksdb_readoptions_t *reading;
	rocksdb_writeoptions_t *writing;
	char *scratch;
	size_t scratch_size;
};

static void *open_rocksdb(const char *directory, uint64_t bytes_max,
			  unsigned flags)
{
	struct store *store = calloc(1, sizeof(*store));
	char *error = NULL;

	(void)bytes_max;
	if (flags & STORE_EVICTS)
		bench_fail("RocksDB: no eviction");
	if (!store)
		bench_fail("no memory");
	store->options = rocksdb_options_create();
	rocksdb_options_set_create_if_missing(store->options, 1);
	rocksdb_options_set_enable_blob_files(store->options, 1);
	rocksdb_options_set_min_blob_size(store->options, 1024);
	rocksdb_options_set_compression(store->options, 0);
	store->reading = rocksdb_readoptions_create();
	store->writing = rocksdb_writeoptions_create();
	rocksdb_writeoptions_disable_WAL(store->writing, 1);
	store->db = rocksdb_open(store->options, directory, &error);
	if (error)
		bench_fail("RocksDB: %s", error);
	return store;
}

static void close_rocksdb(void *arg)
{
	struct store *store = arg;

	rocksdb_close(store->db);
	rocksdb_options_destroy(store->options);
	rocksdb_readoptions_destroy(store->reading);
	rocksdb_writeoptions_destroy(store->writing);
	free(store->scratch);
	free(store);
}

static void put(void *arg, const struct item *item, const void *value,
		size_t size)
{
	size_t whole = item->record_size + size;
	struct store *store = arg;
	char *error = NULL;

	if (store->scratch_size < whole) {
		free(store->scratch);
		store->scratch = malloc(whole);
		store->scratch_size = whole;
		if (!store->scratch)
			bench_fail("no memory");
	}
	memcpy(store->scratch, item->record, item->record_size);
	memcpy(store->scratch + item->record_size, value, size);
	rocksdb_put(store->db, store->writing, (const char *)item->digest, 16,
		    store->scratch, whole, &error);
	if (error)
		bench_fail("RocksDB: %s", error);
}

/* The value in a pinned slice, or NULL. */
static rocksdb_pinnableslice_t *find(struct store *store,
				     const struct item *item,
				     const char **out_value, size_t *out_size)
{
	rocksdb_pinnableslice_t *slice;
	char *error = NULL;
	const char *whole;
	size_t size;

	slice = rocksdb_get_pinned(store->db, store->reading,
				   (const char *)item->digest, 16, &error);
	if (error)
		bench_fail("RocksDB: %s", error);
	if (!slice)
		return NULL;
	whole = rocksdb_pinnableslice_value(slice, &size);
	if (size < item->record_size ||
	    memcmp(whole, item->record, item->record_size)) {
		rocksdb_pinnableslice_destroy(slice);
		return NULL;
	}
	*out_value = whole + item->record_size;
	*out_size = size - item->record_size;
	return slice;
}

static size_t get(void *arg, const struct item *item, void *buffer,
		  size_t capacity)
{
	rocksdb_pinnableslice_t *slice;
	const char *value;
	size_t size;

	slice = find(arg, item, &value, &size);
	if (!slice)
		return 0;
	if (size > capacity)
		bench_fail("RocksDB: a wrong size");
	memcpy(buffer, value, size);
	rocksdb_pinnableslice_destroy(slice);
	return size;
}

static int64_t view(void *arg, const struct item *item)
{
	rocksdb_pinnableslice_t *slice;
	const char *value;
	int64_t sum;
	size_t size;

	slice = find(arg, item, &value, &size);
	if (!slice)
		return -1;
	sum = peer_touch(value, size);
	rocksdb_pinnableslice_destroy(slice);
	return sum;
}

const struct peer peer_rocksdb = { "RocksDB", 1,   open_rocksdb, close_rocksdb,
				   put,	      get, view };
