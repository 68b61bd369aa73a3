/* SPDX-License-Identifier: MIT */

/* What a sound pack does. */

#include "store/pack/pack_test.h"

static void what_is_written_is_read(void **state)
{
	static const unsigned rows[] = { 0, 1, 45, 46, 47, 200 };
	char *directory = harness_directory();

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *path = write_pack(directory, rows[i]);
		struct kiln_tier *tier = NULL;

		assert_int_equal(kiln_pack_open(path, NULL, &tier), KILN_OK);
		assert_int_equal(count_hits(tier, rows[i]), rows[i]);
		assert_int_equal(get(tier, rows[i]), KILN_MISS);
		assert_int_equal(count_listed(tier), rows[i]);
		tier->ops->close(tier);
		assert_int_equal(remove(path), 0);
		free(path);
	}
	harness_remove(directory);
	free(directory);
}

static void entries_are_listed_in_the_order_of_adding(void **state)
{
	enum { N = 100 };
	char *directory = harness_directory();
	char *path = write_pack(directory, N);
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_tier *tier = NULL;
	struct kiln_entry entry;

	assert_int_equal(kiln_pack_open(path, NULL, &tier), KILN_OK);
	for (unsigned n = 0; n < N; n++) {
		struct kiln_key *key = key_of(n);
		size_t size;
		const void *record = kiln_key_record(key, &size);

		assert_int_equal(tier->ops->list(tier, &cursor, &entry),
				 KILN_OK);
		assert_int_equal(kiln_blob_size(entry.record), size);
		assert_memory_equal(kiln_blob_data(entry.record), record, size);
		assert_memory_equal(entry.digest, kiln_key_digest(key),
				    KILN_DIGEST_BYTES);
		assert_int_equal(entry.value_size, size_of(n));
		kiln_entry_fini(&entry);
		kiln_key_free(key);
	}
	assert_int_equal(tier->ops->list(tier, &cursor, &entry), KILN_END);
	tier->ops->close(tier);
	harness_remove(directory);
	free(path);
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_is_read),
		cmocka_unit_test(entries_are_listed_in_the_order_of_adding),
	};

	return cmocka_run_group_tests_name("pack", tests, NULL, NULL);
}
