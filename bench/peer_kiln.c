/* SPDX-License-Identifier: MIT */

/* kiln itself, as a library user has it, but without its memory tier unless
   that is asked for: what is measured is the store. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/kiln.h>

#include "bench.h"
#include "peers.h"

static void *open_kiln(const char *kind, const char *directory,
		       uint64_t bytes_max, unsigned flags)
{
	struct kiln_options options;
	struct kiln *kiln;
	char url[4096];

	snprintf(url, sizeof(url), "%s:%s", kind, directory);
	kiln_options_init(&options);
	options.store_url = url;
	options.store_bytes_max = flags & STORE_EVICTS ? bytes_max : 0;
	if (!(flags & STORE_MEMORY))
		options.flags |= KILN_OPEN_NO_MEMORY;
	if (flags & STORE_READS)
		options.flags |= KILN_OPEN_COPY;
	if (flags & STORE_GUEST)
		options.flags |= KILN_OPEN_GUEST;
	if (kiln_open(&options, &kiln))
		bench_fail("kiln: cannot open");
	if (kiln_store_status(kiln))
		bench_fail("kiln: no store: %s",
			   kiln_status_name(kiln_store_status(kiln)));
	return kiln;
}

static void *open_log(const char *directory, uint64_t bytes_max, unsigned flags)
{
	return open_kiln("log", directory, bytes_max, flags);
}

static void *open_neo(const char *directory, uint64_t bytes_max, unsigned flags)
{
	return open_kiln("neo", directory, bytes_max, flags);
}

static void close_kiln(void *store)
{
	kiln_close(store);
}

static void put(void *store, const struct item *item, const void *value,
		size_t size)
{
	enum kiln_status status =
		kiln_put(store, item->key, value, size, NULL, 0);

	if (status && status != KILN_EXISTS && status != KILN_E_TIMEOUT)
		bench_fail("kiln: put: %s", kiln_status_name(status));
}

static size_t get(void *store, const struct item *item, void *buffer,
		  size_t capacity)
{
	struct kiln_blob *blob;
	size_t size;

	if (kiln_get(store, item->key, &blob))
		return 0;
	size = kiln_blob_size(blob);
	if (size > capacity)
		bench_fail("kiln: a wrong size");
	memcpy(buffer, kiln_blob_data(blob), size);
	kiln_blob_unref(blob);
	return size;
}

static int64_t view(void *store, const struct item *item)
{
	struct kiln_blob *blob;
	int64_t sum;

	if (kiln_get(store, item->key, &blob))
		return -1;
	sum = peer_touch(kiln_blob_data(blob), kiln_blob_size(blob));
	kiln_blob_unref(blob);
	return sum;
}

const struct peer peer_kiln = {
	"kiln", 0, open_log, close_kiln, put, get, view
};

/* In a directory of Intel's. */
const struct peer peer_kiln_neo = { "kiln, neo", 0,   open_neo, close_kiln,
				    put,	 get, view };
