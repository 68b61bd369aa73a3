/* SPDX-License-Identifier: MIT */

/*
 * No table, but the least that a hit must do which compares the whole key
 * record: go from a digest to a record, by one pointer, and compare.  Nothing
 * is counted, no reference is taken, no writer could come.
 */

#include <kiln/kiln.h>

#include "tables.h"

struct kept {
	struct table_digest digest;
	size_t size;
	unsigned char record[];
};

struct bare {
	size_t mask;
	struct kept *places[]; /* at most half are taken */
};

static void *open_table(size_t n_max)
{
	size_t n = 1;
	struct bare *bare;

	while (n < 2 * n_max)
		n *= 2;
	bare = calloc(1, sizeof(*bare) + n * sizeof(*bare->places));
	if (!bare)
		bench_fail("no memory");
	bare->mask = n - 1;
	return bare;
}

static void close_table(void *table)
{
	struct bare *bare = table;

	for (size_t i = 0; i <= bare->mask; i++)
		free(bare->places[i]);
	free(bare);
}

/* The place that has the digest, or a free one. */
static inline struct kept **place_of(struct bare *bare,
				     struct table_digest digest)
{
	size_t i = digest.low & bare->mask;

	while (bare->places[i] && (bare->places[i]->digest.low != digest.low ||
				   bare->places[i]->digest.high != digest.high))
		i = (i + 1) & bare->mask;
	return &bare->places[i];
}

/* The value does not matter. */
static void put(void *table, const struct table_item *item, const void *value,
		size_t value_size)
{
	struct kept **place = place_of(table, table_digest_of(item)), *kept;
	size_t size;
	const void *record = kiln_key_record(item->key, &size);

	if (*place)
		return;
	kept = malloc(sizeof(*kept) + size);
	if (!kept)
		bench_fail("no memory");
	kept->digest = table_digest_of(item);
	kept->size = size;
	memcpy(kept->record, record, size);
	*place = kept;
}

static void hits(void *table, const struct table_item *items, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct kept *kept =
			*place_of(table, table_digest_of(&items[i]));
		size_t size;
		const void *record = kiln_key_record(items[i].key, &size);

		if (!kept || kept->size != size ||
		    memcmp(kept->record, record, size))
			bench_fail("no hit");
		bench_use(kept);
	}
}

static uint64_t look(void *table, const struct table_item *item)
{
	struct kept *kept = *place_of(table, table_digest_of(item));

	return kept ? kept->digest.low : UINT64_MAX;
}

const struct table table_bare = { .name = "a bare compare of records",
				  .open = open_table,
				  .close = close_table,
				  .put = put,
				  .hits = hits,
				  .look = look };
