/* SPDX-License-Identifier: MIT */

/* kiln without a store or a bound. */

#include <kiln/kiln.h>

#include "tables.h"

static void *open_table(size_t n_max)
{
	struct kiln_options options;
	struct kiln *kiln;

	(void)n_max;
	kiln_options_init(&options);
	options.memory_bytes_max = 0;
	if (kiln_open(&options, &kiln))
		bench_fail("no kiln");
	return kiln;
}

static void close_table(void *table)
{
	kiln_close(table);
}

static void put(void *table, const struct table_item *item, const void *value,
		size_t size)
{
	if (kiln_put(table, item->key, value, size, NULL, KILN_PUT_REPLACE))
		bench_fail("a value was not put");
}

static void never_build(const struct kiln_key *key, void *arg,
			struct kiln_build_result *result)
{
	bench_fail("a build instead of a hit");
}

static void hits(void *table, const struct table_item *items, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct kiln_build_result result;

		kiln_build_result_init(&result);
		if (kiln_get_or_build(table, items[i].key, never_build, NULL,
				      &result))
			bench_fail("no hit");
		bench_use(result.blob);
		kiln_blob_unref(result.blob);
	}
}

static uint64_t look(void *table, const struct table_item *item)
{
	struct kiln_blob *blob;
	uint64_t first;

	if (kiln_get(table, item->key, &blob))
		return UINT64_MAX;
	memcpy(&first, kiln_blob_data(blob), sizeof(first));
	kiln_blob_unref(blob);
	return first;
}

const struct table table_kiln = { .name = "kiln",
				  .open = open_table,
				  .close = close_table,
				  .put = put,
				  .hits = hits,
				  .look = look };
