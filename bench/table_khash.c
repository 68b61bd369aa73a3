/* SPDX-License-Identifier: MIT */

/* khash under a pthread rwlock. */

#include <pthread.h>

#include <khash.h>

#include "tables.h"

#define HASH_OF(digest) ((khint_t)(digest).low)
#define IS_EQUAL(a, b)	((a).low == (b).low && (a).high == (b).high)

KHASH_INIT(values, struct table_digest, struct table_value *, 1, HASH_OF,
	   IS_EQUAL)

struct locked {
	pthread_rwlock_t lock;
	khash_t(values) * values;
};

static void *open_table(size_t n_max)
{
	struct locked *locked = calloc(1, sizeof(*locked));

	if (!locked || pthread_rwlock_init(&locked->lock, NULL))
		bench_fail("no memory");
	locked->values = kh_init(values);
	/* It grows at 0.77. */
	if (!locked->values ||
	    kh_resize(values, locked->values, (khint_t)(n_max + n_max / 2)) < 0)
		bench_fail("no memory");
	return locked;
}

static void close_table(void *table)
{
	struct locked *locked = table;
	khint_t i;

	for (i = kh_begin(locked->values); i != kh_end(locked->values); i++)
		if (kh_exist(locked->values, i))
			table_value_unref(kh_value(locked->values, i));
	kh_destroy(values, locked->values);
	pthread_rwlock_destroy(&locked->lock);
	free(locked);
}

static void put(void *table, const struct table_item *item, const void *value,
		size_t size)
{
	struct table_value *new = table_value_new(value, size), *old = NULL;
	struct locked *locked = table;
	int made;
	khint_t i;

	pthread_rwlock_wrlock(&locked->lock);
	i = kh_put(values, locked->values, table_digest_of(item), &made);
	if (made < 0)
		bench_fail("no memory");
	if (!made)
		old = kh_value(locked->values, i);
	kh_value(locked->values, i) = new;
	pthread_rwlock_unlock(&locked->lock);
	table_value_unref(old);
}

static inline struct table_value *get(void *table,
				      const struct table_item *item)
{
	struct locked *locked = table;
	struct table_value *value = NULL;
	khint_t i;

	pthread_rwlock_rdlock(&locked->lock);
	i = kh_get(values, locked->values, table_digest_of(item));
	if (i != kh_end(locked->values))
		value = table_value_ref(kh_value(locked->values, i));
	pthread_rwlock_unlock(&locked->lock);
	return value;
}

TABLE_LOOK_UPS(get)

const struct table table_khash = { .name = "khash + rwlock",
				   .open = open_table,
				   .close = close_table,
				   .put = put,
				   .hits = hits,
				   .look = look };
