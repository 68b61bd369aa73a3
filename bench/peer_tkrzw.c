/* SPDX-License-Identifier: MIT */

/* tkrzw's file hash table, mapped.  One process has it open. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tkrzw_langc.h>

#include "bench.h"
#include "peers.h"

static void *open_tkrzw(const char *directory, uint64_t bytes_max,
			unsigned flags)
{
	char path[4096];
	TkrzwDBM *dbm;

	(void)bytes_max;
	if (flags & STORE_EVICTS)
		bench_fail("tkrzw: no eviction");
	snprintf(path, sizeof(path), "%s/store.tkh", directory);
	dbm = tkrzw_dbm_open(path, true, "num_buckets=200000");
	if (!dbm)
		bench_fail("tkrzw: cannot open");
	return dbm;
}

static void close_tkrzw(void *store)
{
	tkrzw_dbm_close(store);
}

static void put(void *store, const struct item *item, const void *value,
		size_t size)
{
	static char *scratch;
	static size_t scratch_size;
	size_t whole = item->record_size + size;

	if (scratch_size < whole) {
		free(scratch);
		scratch = malloc(whole);
		scratch_size = whole;
		if (!scratch)
			bench_fail("no memory");
	}
	memcpy(scratch, item->record, item->record_size);
	memcpy(scratch + item->record_size, value, size);
	if (!tkrzw_dbm_set(store, (const char *)item->digest, 16, scratch,
			   (int32_t)whole, true))
		bench_fail("tkrzw: put");
}

struct visit {
	const struct item *item;
	void *buffer;
	size_t capacity;
	size_t size;
	int64_t sum;
};

static const char *visit(void *arg, const char *key, int32_t key_size,
			 const char *whole, int32_t whole_size,
			 int32_t *new_size)
{
	struct visit *visit = arg;
	size_t record_size = visit->item->record_size;

	(void)key;
	(void)key_size;
	(void)new_size;
	if (!whole || (size_t)whole_size < record_size ||
	    memcmp(whole, visit->item->record, record_size))
		return TKRZW_REC_PROC_NOOP;
	visit->size = (size_t)whole_size - record_size;
	if (visit->buffer && visit->size <= visit->capacity)
		memcpy(visit->buffer, whole + record_size, visit->size);
	else
		visit->sum = peer_touch(whole + record_size, visit->size);
	return TKRZW_REC_PROC_NOOP;
}

static size_t get(void *store, const struct item *item, void *buffer,
		  size_t capacity)
{
	struct visit arg = { item, buffer, capacity, 0, -1 };

	tkrzw_dbm_process(store, (const char *)item->digest, 16, visit, &arg,
			  false);
	return arg.size;
}

static int64_t view(void *store, const struct item *item)
{
	struct visit arg = { item, NULL, 0, 0, -1 };

	tkrzw_dbm_process(store, (const char *)item->digest, 16, visit, &arg,
			  false);
	return arg.sum;
}

const struct peer peer_tkrzw = { "tkrzw", 1,   open_tkrzw, close_tkrzw,
				 put,	  get, view };
