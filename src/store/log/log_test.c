/* SPDX-License-Identifier: MIT */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "store/log/log_test.h"

/* ---- Contract -------------------------------------------------------- */

static void what_was_put_is_found(void **state)
{
	static const size_t sizes[] = {
		0, 1, 63, 64, 4096, 65536, 70001, 300000, 1 << 21, 5000001
	};
	struct store store = store_new(64 << 20, 0);
	size_t i;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		assert_int_equal(store_put(&store, (unsigned)i, sizes[i], 0),
				 KILN_OK);
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		assert_int_equal(store_get(&store, (unsigned)i, sizes[i]),
				 KILN_OK);
	assert_int_equal(store_get(&store, 1000, 1), KILN_MISS);
	store_reopen(&store);
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		assert_int_equal(store_get(&store, (unsigned)i, sizes[i]),
				 KILN_OK);
	store_free(&store);
}

static void metadata_comes_back(void **state)
{
	struct store store = store_new(8 << 20, 0);
	struct kiln_key *key = test_key(1);
	struct kiln_blob *value, *metadata;

	assert_int_equal(store.tier->ops->put(store.tier, key, "about", 5,
					      "value", 5, 0),
			 KILN_OK);
	assert_int_equal(
		store.tier->ops->get(store.tier, key, &value, &metadata),
		KILN_OK);
	assert_int_equal(kiln_blob_size(metadata), 5);
	assert_memory_equal(kiln_blob_data(metadata), "about", 5);
	assert_memory_equal(kiln_blob_data(value), "value", 5);
	assert_int_equal((uintptr_t)kiln_blob_data(value) % 8, 0);
	kiln_blob_unref(metadata);
	store_free(&store);
	/* A view outlives the store. */
	assert_memory_equal(kiln_blob_data(value), "value", 5);
	kiln_blob_unref(value);
	kiln_key_free(key);
}

static void a_create_only_put_leaves_what_is_there(void **state)
{
	struct store store = store_new(8 << 20, 0);

	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	assert_int_equal(store_put(&store, 1, 200, 0), KILN_EXISTS);
	assert_int_equal(store_get(&store, 1, 100), KILN_OK);
	assert_int_equal(store_put(&store, 1, 200, KILN_PUT_REPLACE), KILN_OK);
	assert_int_equal(store_get(&store, 1, 200), KILN_OK);
	store_free(&store);
}

static void what_was_removed_is_gone(void **state)
{
	static const size_t sizes[] = { 100, 3 << 20 };
	struct store store = store_new(64 << 20, 0);
	size_t i;

	for (i = 0; i < 2; i++) {
		assert_int_equal(store_remove(&store, 1), KILN_MISS);
		assert_int_equal(store_put(&store, 1, sizes[i], 0), KILN_OK);
		assert_int_equal(store_remove(&store, 1), KILN_OK);
		assert_int_equal(store_get(&store, 1, sizes[i]), KILN_MISS);
		assert_int_equal(store_remove(&store, 1), KILN_MISS);
	}
	store_reopen(&store);
	assert_int_equal(store_get(&store, 1, 100), KILN_MISS);
	store_free(&store);
}

static void a_list_names_every_entry_once(void **state)
{
	struct store store = store_new(8 << 20, 0);
	unsigned char seen[300] = { 0 };
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;
	unsigned i, n = 0;

	for (i = 0; i < 300; i++)
		assert_int_equal(store_put(&store, i, 10 + i, 0), KILN_OK);
	while (store.tier->ops->list(store.tier, &cursor, &entry) == KILN_OK) {
		unsigned number = test_key_number(entry.record);

		assert_true(number < 300);
		assert_false(seen[number]);
		seen[number] = 1;
		assert_int_equal(entry.value_size, 10 + number);
		kiln_blob_unref(entry.record);
		kiln_blob_unref(entry.metadata);
		n++;
	}
	assert_int_equal(n, 300);
	store_free(&store);
}

/* Both buckets of a key fill up long before the whole index. */
static void while_an_index_can_grow_nothing_is_crowded_out(void **state)
{
	struct store store = store_new(0, 0);
	struct ki_log *log = (struct ki_log *)store.tier;
	unsigned i;

	for (i = 0; i < 49152; i++)
		assert_int_equal(store_put(&store, i, 1, 0), KILN_OK);
	assert_int_equal(log->index->header->n_crowded_out, 0);
	store_free(&store);
}

static void two_handles_of_one_process_see_each_other(void **state)
{
	struct store a = store_new(8 << 20, 0);
	struct store b = store_beside(&a, 0);

	assert_int_equal(store_put(&a, 1, 100, 0), KILN_OK);
	assert_int_equal(store_get(&b, 1, 100), KILN_OK);
	assert_int_equal(store_put(&b, 1, 50, 0), KILN_EXISTS);
	assert_int_equal(store_remove(&b, 1), KILN_OK);
	assert_int_equal(store_get(&a, 1, 100), KILN_MISS);
	store_free(&b);
	store_free(&a);
}

static void every_way_of_reading_finds_the_same(void **state)
{
	static const struct {
		const char *name;
		uint32_t flags;
	} rows[] = {
		{ "mapped", 0 },
		{ "mapped, always verified", KILN_OPEN_VERIFY_ALWAYS },
		{ "copied", KILN_OPEN_COPY },
		{ "guest", KILN_OPEN_GUEST },
		{ "shared", KILN_OPEN_SHARED },
		{ "read only", KILN_OPEN_READONLY },
		{ "to look at", KILN_OPEN_READONLY | KILN_OPEN_ANY_OWNER },
	};
	struct store store = store_new(64 << 20, 0);
	unsigned i, j;

	for (j = 0; j < 20; j++)
		assert_int_equal(store_put(&store, j, j * j * 1000, 0),
				 KILN_OK);
	assert_int_equal(store_put(&store, 99, 3 << 20, 0), KILN_OK);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct store other = store_beside(&store, rows[i].flags);

		for (j = 0; j < 20; j++)
			assert_int_equal(store_get(&other, j, j * j * 1000),
					 KILN_OK);
		assert_int_equal(store_get(&other, 99, 3 << 20), KILN_OK);
		assert_int_equal(store_get(&other, 50, 1), KILN_MISS);
		if (!(rows[i].flags & KILN_OPEN_READONLY)) {
			assert_int_equal(store_put(&other, 200 + i, 5000, 0),
					 KILN_OK);
			assert_int_equal(store_get(&store, 200 + i, 5000),
					 KILN_OK);
			assert_int_equal(store_put(&other, 300 + i, 3 << 20, 0),
					 KILN_OK);
			assert_int_equal(store_get(&store, 300 + i, 3 << 20),
					 KILN_OK);
		}
		store_free(&other);
	}
	store_free(&store);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_put_is_found),
		cmocka_unit_test(metadata_comes_back),
		cmocka_unit_test(a_create_only_put_leaves_what_is_there),
		cmocka_unit_test(what_was_removed_is_gone),
		cmocka_unit_test(a_list_names_every_entry_once),
		cmocka_unit_test(
			while_an_index_can_grow_nothing_is_crowded_out),
		cmocka_unit_test(two_handles_of_one_process_see_each_other),
		cmocka_unit_test(every_way_of_reading_finds_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
