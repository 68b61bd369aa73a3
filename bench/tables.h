/* SPDX-License-Identifier: MIT */
#ifndef KILN_BENCH_TABLES_H
#define KILN_BENCH_TABLES_H

/*
 * Tables in memory to be measured, kiln's memory tier among them.
 *
 * All find a counted value by a digest of 16 bytes that the caller has
 * beforehand; a hit is to find it, to take a reference and to drop it.  The
 * peers compare the digest and nothing else; kiln compares the whole key record
 * too, as it always does.  What fails ends the benchmark.
 *
 * Each table walks the items in its own file, so that what can be inlined is.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kiln_key;

/* They lie in the order in which they are asked for. */
struct table_item {
	uint8_t digest[16];
	const struct kiln_key *key; /* the same for kiln */
};

struct table {
	const char *name;
	void *(*open)(size_t n_max); /* made for so many */
	void (*close)(void *table);
	/* Around all that a thread does; NULL: nothing. */
	void (*enter)(void);
	void (*leave)(void);
	/* Replaces what is there. */
	void (*put)(void *table, const struct table_item *item,
		    const void *value, size_t size);
	/* A hit for each of n items. */
	void (*hits)(void *table, const struct table_item *items, size_t n);
	/* The value's first 8 bytes, or UINT64_MAX if it is not there. */
	uint64_t (*look)(void *table, const struct table_item *item);
};

extern const struct table table_kiln, table_map, table_khash, table_lfht,
	table_tbb, table_cuckoo, table_bare;

/* ---- What the peers keep ------------------------------------------------- */

struct table_digest {
	uint64_t low, high;
};

static inline struct table_digest table_digest_of(const struct table_item *item)
{
	struct table_digest digest;

	memcpy(&digest, item->digest, sizeof(digest));
	return digest;
}

struct table_value {
	size_t refs;
	size_t size;
};

static inline unsigned char *table_value_bytes(struct table_value *value)
{
	return (unsigned char *)(value + 1);
}

static inline struct table_value *table_value_new(const void *data, size_t size)
{
	struct table_value *value =
		(struct table_value *)malloc(sizeof(*value) + size);

	if (!value)
		bench_fail("no memory");
	value->refs = 1;
	value->size = size;
	memcpy(table_value_bytes(value), data, size);
	return value;
}

static inline struct table_value *table_value_ref(struct table_value *value)
{
	__atomic_fetch_add(&value->refs, 1, __ATOMIC_RELAXED);
	return value;
}

static inline void table_value_unref(struct table_value *value)
{
	if (value && __atomic_fetch_sub(&value->refs, 1, __ATOMIC_ACQ_REL) == 1)
		free(value);
}

/* The two functions that come of `get`, which takes a reference or NULL. */
#define TABLE_LOOK_UPS(get)                                                    \
	static void hits(void *table, const struct table_item *items,          \
			 size_t n)                                             \
	{                                                                      \
		for (size_t i = 0; i < n; i++) {                               \
			struct table_value *value = get(table, &items[i]);     \
                                                                               \
			if (!value)                                            \
				bench_fail("no hit");                          \
			bench_use(value);                                      \
			table_value_unref(value);                              \
		}                                                              \
	}                                                                      \
	static uint64_t look(void *table, const struct table_item *item)       \
	{                                                                      \
		struct table_value *value = get(table, item);                  \
		uint64_t first = UINT64_MAX;                                   \
                                                                               \
		if (value)                                                     \
			memcpy(&first, table_value_bytes(value),               \
			       sizeof(first));                                 \
		table_value_unref(value);                                      \
		return first;                                                  \
	}

#ifdef __cplusplus
}
#endif
#endif /* KILN_BENCH_TABLES_H */
