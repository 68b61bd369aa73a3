/* SPDX-License-Identifier: MIT */

/* Parts of the path by themselves: metadata, get, put, remove, trim. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"
#include "harness/shelf.h"

#include "core/cache_test.h"

/* ---- Metadata -------------------------------------------------------------- */

static void build_with_metadata(const struct kiln_key *key, void *arg,
				struct kiln_build_result *result)
{
	result->metadata = kiln_metadata_new();
	kiln_metadata_add_string(result->metadata, KILN_META_OPTIONS, "-O2");
	kiln_metadata_add_u64(result->metadata, KILN_META_BUILD_TIME, 7000000);
	if (kiln_blob_copy("one", 4, &result->blob))
		abort();
}

static void an_entry_says_where_it_comes_from(void **state)
{
	struct kiln_options options = defaults();
	struct shelf *shelf = shelf_new();
	struct kiln_key *key = key_of(1);
	struct kiln_build_result result;
	struct kiln_blob *value, *metadata;
	struct kiln *kiln;
	const void *data;
	uint64_t number;
	size_t size;

	options.name_space = "tests";
	kiln = open_with(options, shelf, NULL);
	kiln_build_result_init(&result);
	assert_int_equal(kiln_get_or_build(kiln, key, build_with_metadata, NULL,
					   &result),
			 KILN_OK);
	assert_null(result.metadata);
	kiln_build_result_fini(&result);
	assert_int_equal(kiln_get_entry(kiln, key, &value, &metadata), KILN_OK);
	data = kiln_blob_data(metadata);
	size = kiln_blob_size(metadata);
	assert_int_equal(
		kiln_metadata_find_u64(data, size, KILN_META_CREATED, &number),
		KILN_OK);
	assert_true(number > 1600000000);
	assert_int_equal(kiln_metadata_find_u64(data, size,
						KILN_META_BUILD_TIME, &number),
			 KILN_OK);
	assert_int_equal(number, 7000000);
	assert_int_equal(kiln_metadata_find(data, size, KILN_META_NAMESPACE,
					    &data, &size),
			 KILN_OK);
	assert_memory_equal(data, "tests", size);
	data = kiln_blob_data(metadata);
	size = kiln_blob_size(metadata);
	assert_int_equal(kiln_metadata_find(data, size, KILN_META_APPLICATION,
					    &data, &size),
			 KILN_OK);
	assert_memory_equal((const char *)data + size -
				    strlen(program_invocation_short_name),
			    program_invocation_short_name,
			    strlen(program_invocation_short_name));
	/* Saved: what the entry's build took. */
	assert_int_equal(counter(kiln, KILN_COUNT_SAVED_NS), 7000000);
	kiln_blob_unref(value);
	kiln_blob_unref(metadata);
	kiln_key_free(key);
	kiln_close(kiln);
	shelf_free(shelf);
}

/* ---- Parts of it ----------------------------------------------------------- */

static void put_replace_remove_and_wipe(void **state)
{
	for (int with_store = 0; with_store < 2; with_store++) {
		struct shelf *shelf = with_store ? shelf_new() : NULL;
		struct kiln *kiln = open_with(defaults(), shelf, NULL);
		struct kiln_key *key = key_of(1);

		assert_int_equal(put(kiln, 1, "one", 0), KILN_OK);
		assert_got(kiln, 1, "one");
		assert_int_equal(put(kiln, 1, "two", 0), KILN_EXISTS);
		assert_got(kiln, 1, "one");
		assert_int_equal(put(kiln, 1, "two", KILN_PUT_REPLACE),
				 KILN_OK);
		assert_got(kiln, 1, "two");
		assert_int_equal(kiln_remove(kiln, key), KILN_OK);
		assert_int_equal(kiln_remove(kiln, key), KILN_MISS);
		assert_got(kiln, 1, "KILN_MISS");
		assert_int_equal(put(kiln, 1, "one", 0), KILN_OK);
		assert_got(kiln, 1, "one");
		assert_int_equal(kiln_wipe(kiln), KILN_OK);
		assert_got(kiln, 1, "KILN_MISS");
		kiln_prefetch(kiln, (const struct kiln_key *const *)&key, 1);
		kiln_key_free(key);
		kiln_close(kiln);
		if (shelf)
			shelf_free(shelf);
	}
}

static void a_value_that_the_store_refuses_is_in_memory(void **state)
{
	struct shelf *shelf = shelf_new();
	struct kiln *kiln = open_with(defaults(), shelf, NULL);

	shelf_fail_put(shelf, KILN_E_FULL);
	assert_int_equal(put(kiln, 1, "one", 0), KILN_E_FULL);
	assert_got(kiln, 1, "one");
	assert_int_equal(counter(kiln, KILN_COUNT_PUTS_DROPPED), 1);
	kiln_close(kiln);
	shelf_free(shelf);
}

static void memory_follows_what_others_do_to_the_store(void **state)
{
	struct shelf *shelf = shelf_new();
	struct kiln *kiln = open_with(defaults(), shelf, NULL);
	struct kiln *other = open_with(defaults(), shelf, NULL);
	struct work work = { .text = "one" };

	assert_outcome(kiln, 1, &work, "one from build");
	assert_outcome(kiln, 1, &work, "one from memory");
	assert_int_equal(kiln_wipe(other), KILN_OK);
	assert_outcome(kiln, 1, &work, "one from build");
	assert_int_equal(put(other, 1, "two", KILN_PUT_REPLACE), KILN_OK);
	assert_outcome(kiln, 1, &work, "two from store");
	kiln_close(kiln);
	kiln_close(other);
	shelf_free(shelf);
}

static void a_readonly_kiln_writes_nothing(void **state)
{
	struct kiln_options options = defaults();
	struct shelf *shelf = shelf_new();
	struct kiln *kiln = open_with(options, shelf, NULL);
	struct work work = { .text = "one" };
	struct shelf_calls before, after;
	struct kiln_key *key = key_of(1);

	assert_int_equal(put(kiln, 1, "one", 0), KILN_OK);
	kiln_close(kiln);
	before = shelf_calls(shelf);
	options.flags = KILN_OPEN_READONLY;
	kiln = open_with(options, shelf, NULL);
	assert_outcome(kiln, 1, &work, "one from store");
	assert_outcome(kiln, 2, &work, "one from build");
	assert_outcome(kiln, 2, &work, "one from memory");
	assert_int_equal(put(kiln, 3, "one", 0), KILN_E_READONLY);
	assert_int_equal(kiln_remove(kiln, key), KILN_E_READONLY);
	assert_int_equal(kiln_wipe(kiln), KILN_E_READONLY);
	assert_int_equal(kiln_set_limit(kiln, 1), KILN_E_READONLY);
	kiln_note_build(kiln, 1);
	assert_int_equal(kiln_builds_now(kiln), 0);
	kiln_close(kiln);
	after = shelf_calls(shelf);
	assert_int_equal(after.put, before.put);
	assert_int_equal(after.remove, 0);
	assert_int_equal(after.wipe, 0);
	assert_int_equal(after.count, before.count);
	kiln_key_free(key);
	shelf_free(shelf);
}

static void a_guest_holds_no_values_in_memory(void **state)
{
	struct kiln_options options = defaults();
	struct shelf *shelf = shelf_new();
	struct work work = { .text = "one" };
	struct kiln_stats stats;
	struct kiln *kiln;

	options.flags = KILN_OPEN_GUEST;
	kiln = open_with(options, shelf, NULL);
	assert_outcome(kiln, 1, &work, "one from build");
	assert_outcome(kiln, 1, &work, "one from store");
	assert_got(kiln, 1, "one");
	kiln_stats_init(&stats);
	assert_int_equal(kiln_stats(kiln, &stats), KILN_OK);
	assert_int_equal(stats.memory_bytes, 0);
	kiln_close(kiln);
	shelf_free(shelf);
}

/* S47 */
static void trimming_gives_memory_back(void **state)
{
	struct kiln_options options = defaults();
	struct kiln_stats stats;
	struct kiln *kiln;
	char text[1000];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	options.memory_bytes_max = 100000;
	kiln = open_with(options, NULL, NULL);
	kiln_stats_init(&stats);
	for (unsigned i = 0; i < 500; i++) {
		assert_int_equal(put(kiln, i, text, 0), KILN_OK);
		assert_int_equal(kiln_stats(kiln, &stats), KILN_OK);
		assert_true(stats.memory_bytes <= 100000);
	}
	assert_true(stats.memory_entries > 50);
	kiln_trim(kiln, 10000);
	assert_int_equal(kiln_stats(kiln, &stats), KILN_OK);
	assert_true(stats.memory_bytes <= 10000);
	kiln_close(kiln);
}

/* Design 6: above 90 percent the tier is halved, once in 10 s, not below an
   eighth of its bound.  S47 */
static void short_memory_halves_the_tier(void **state)
{
	static const struct {
		const char *name;
		int percent;
		uint64_t now_s;
		uint64_t entries_max; /* afterwards, of 800 */
		uint64_t entries_min;
	} rows[] = {
		{ "unknown", -1, 100, 800, 800 },
		{ "at the limit", 90, 101, 800, 800 },
		{ "above", 91, 102, 400, 380 },
		{ "again too soon", 99, 111, 400, 380 },
		{ "again", 99, 112, 200, 180 },
		{ "once more", 99, 130, 110, 90 },
		{ "not below an eighth", 99, 150, 110, 90 },
	};
	struct kiln_options options = defaults();
	struct kiln_stats stats;
	struct kiln *kiln;
	char text[1000];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	/* 800 fill it. */
	options.memory_bytes_max = 0;
	kiln = open_with(options, NULL, NULL);
	kiln_stats_init(&stats);
	assert_int_equal(put(kiln, 0, text, 0), KILN_OK);
	assert_int_equal(kiln_stats(kiln, &stats), KILN_OK);
	kiln_close(kiln);
	options.memory_bytes_max = stats.memory_bytes * 803;
	kiln = open_with(options, NULL, NULL);
	for (unsigned i = 0; i < 800; i++)
		assert_int_equal(put(kiln, i, text, 0), KILN_OK);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		ki_kiln_relieve(kiln, rows[i].percent, rows[i].now_s * S_NS);
		assert_int_equal(kiln_stats(kiln, &stats), KILN_OK);
		if (stats.memory_entries > rows[i].entries_max ||
		    stats.memory_entries < rows[i].entries_min)
			fail_msg("%s: %llu entries", rows[i].name,
				 (unsigned long long)stats.memory_entries);
	}
	kiln_close(kiln);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_entry_says_where_it_comes_from),
		cmocka_unit_test(put_replace_remove_and_wipe),
		cmocka_unit_test(a_value_that_the_store_refuses_is_in_memory),
		cmocka_unit_test(memory_follows_what_others_do_to_the_store),
		cmocka_unit_test(a_readonly_kiln_writes_nothing),
		cmocka_unit_test(a_guest_holds_no_values_in_memory),
		cmocka_unit_test(trimming_gives_memory_back),
		cmocka_unit_test(short_memory_halves_the_tier),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
