/* SPDX-License-Identifier: MIT */

/*
 * kiln's own store: not a model of it, but the store, with entries of the sizes
 * and build times of the trace.  Its bound is the capacity and what it has
 * beside its segments (index, counters, locks): these are needed by all, and
 * the others here have none.  Segments count as they are, with what is empty.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/inspect.h>
#include <kiln/kiln.h>

#include "bench.h"
#include "eviction_policies.h"

#define FRAME_BYTES  160 /* of a record here, besides its value, about */
#define SLACK_BYTES  8192
#define PLENTY_BYTES ((uint64_t)1 << 20)

static struct kiln *open_store(const char *folder, uint64_t bytes_max)
{
	struct kiln_options options;
	struct kiln *kiln;
	char url[BENCH_FOLDER_BYTES + 16];

	snprintf(url, sizeof(url), "log:%s/store", folder);
	kiln_options_init(&options);
	options.store_url = url;
	options.store_bytes_max = bytes_max;
	options.flags = KILN_OPEN_NO_MEMORY;
	if (kiln_open(&options, &kiln) || kiln_store_status(kiln))
		bench_fail("%s: there is no store", url);
	return kiln;
}

/* What it has without segments. */
static uint64_t bytes_beside(const char *folder, uint64_t capacity)
{
	/* Enough for a store, however small the trace is. */
	struct kiln *kiln = open_store(folder, capacity + PLENTY_BYTES);
	struct kiln_store_info info;

	if (kiln_store_info(kiln, &info))
		bench_fail("%s: nothing is known of the store", folder);
	kiln_close(kiln);
	bench_remove_tree(folder);
	return info.bytes + SLACK_BYTES;
}

static struct kiln_key *key_of(uint32_t entry)
{
	struct kiln_key *key = kiln_key_new();

	kiln_key_add(key, "entry", &entry, sizeof(entry));
	if (kiln_key_finish(key))
		bench_fail("out of memory");
	return key;
}

static void put(struct kiln *kiln, const struct kiln_key *key,
		const struct eviction_entry *entry)
{
	struct kiln_metadata *metadata = kiln_metadata_new();
	size_t size =
		entry->bytes > FRAME_BYTES ? entry->bytes - FRAME_BYTES : 1;
	void *value = calloc(1, size);
	enum kiln_status status;

	if (!value)
		bench_fail("out of memory");
	kiln_metadata_add_u64(metadata, KILN_META_BUILD_TIME,
			      (uint64_t)(entry->build_s * 1e9));
	status = kiln_put(kiln, key, value, size, metadata, 0);
	if (status && status != KILN_E_TOO_LARGE)
		bench_fail("put: %s", kiln_status_name(status));
	kiln_metadata_free(metadata);
	free(value);
}

/* Whether it was found. */
static int look_up(struct kiln *kiln, const struct eviction_trace *trace,
		   uint32_t entry)
{
	struct kiln_key *key = key_of(entry);
	struct kiln_blob *blob;
	int is_hit = !kiln_get(kiln, key, &blob);

	if (is_hit)
		kiln_blob_unref(blob);
	else
		put(kiln, key, &trace->entries[entry]);
	kiln_key_free(key);
	return is_hit;
}

struct eviction_outcome eviction_replay_store(
	const struct eviction_trace *trace, uint64_t capacity, int by_cost)
{
	struct eviction_outcome outcome = { .n_hits = 0 };
	uint8_t *was_seen = calloc(trace->n_entries, 1);
	char folder[BENCH_FOLDER_BYTES];
	struct kiln *kiln;

	if (!was_seen)
		bench_fail("out of memory");
	bench_make_folder(folder, 2 * capacity);
	kiln = open_store(folder, capacity + bytes_beside(folder, capacity));
	if (by_cost && kiln_set_eviction(kiln, KILN_EVICT_BY_COST))
		bench_fail("%s: the store cannot evict by cost", trace->name);
	for (size_t i = 0; i < trace->n_lookups; i++) {
		const uint32_t entry = trace->lookups[i];

		if (look_up(kiln, trace, entry))
			outcome.n_hits++;
		else if (was_seen[entry])
			outcome.rebuilt_s += trace->entries[entry].build_s;
		was_seen[entry] = 1;
	}
	kiln_close(kiln);
	bench_remove_tree(folder);
	free(was_seen);
	return outcome;
}
