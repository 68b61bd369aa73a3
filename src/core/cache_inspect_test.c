/* SPDX-License-Identifier: MIT */

/* What is asked of the store as a whole. */

#include <stdlib.h>

#include "harness/harness.h"
#include "harness/shelf.h"

#include "core/cache_test.h"

static void the_store_can_be_looked_into(void **state)
{
	struct shelf *shelf = shelf_new();
	struct kiln *kiln = open_with(defaults(), shelf, NULL);
	struct kiln_verify_report report;
	struct kiln_store_counters *counters = calloc(1, sizeof(*counters));
	struct kiln_store_info info;
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;
	enum kiln_status status;
	unsigned n = 0;

	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(put(kiln, i, "text", 0), KILN_OK);
	while (!(status = kiln_list(kiln, &cursor, &entry))) {
		assert_int_equal(entry.value_size, 5);
		kiln_entry_fini(&entry);
		n++;
	}
	assert_int_equal(status, KILN_END);
	assert_int_equal(n, 10);
	assert_int_equal(kiln_verify(kiln, 0, NULL, NULL, &report), KILN_OK);
	assert_int_equal(report.n_entries, 10);
	assert_int_equal(kiln_verify(kiln, 8, NULL, NULL, &report),
			 KILN_E_INVALID);
	assert_int_equal(kiln_store_info(kiln, &info), KILN_OK);
	assert_string_equal(info.kind, "shelf");
	assert_int_equal(kiln_set_limit(kiln, 1), KILN_E_UNSUPPORTED);
	kiln_note_build(kiln, 1);
	assert_int_equal(kiln_builds_now(kiln), 1);
	kiln_note_build(kiln, 0);
	assert_int_equal(kiln_builds_now(kiln), 0);
	assert_int_equal(kiln_store_counters(kiln, counters), KILN_OK);
	assert_int_equal(kiln_store_counters_zero(kiln), KILN_OK);
	free(counters);
	kiln_close(kiln);

	kiln = open_with(defaults(), NULL, NULL);
	assert_int_equal(kiln_list(kiln, &cursor, &entry), KILN_E_UNSUPPORTED);
	assert_int_equal(kiln_verify(kiln, 0, NULL, NULL, &report),
			 KILN_E_UNSUPPORTED);
	assert_int_equal(kiln_builds_now(kiln), 0);
	kiln_close(kiln);
	shelf_free(shelf);
}

static struct kiln *open_url(const char *kind, const char *directory,
			     uint32_t flags)
{
	char url[4200];
	struct kiln_options options;
	struct kiln *kiln;

	snprintf(url, sizeof(url), "%s:%s", kind, directory);
	kiln_options_init(&options);
	options.store_url = url;
	options.flags = flags;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	assert_int_equal(kiln_store_status(kiln), KILN_OK);
	return kiln;
}

/* Rows are opened in order, in one directory for each kind. */
static void sources_are_kept_by_those_that_may(void **state)
{
	static const struct {
		const char *name;
		const char *kind;
		uint32_t flags;
		enum kiln_status kept, found;
	} rows[] = {
		{ "log", "log", 0, KILN_OK, KILN_OK },
		{ "told not to", "log", KILN_OPEN_NO_SOURCES,
		  KILN_E_UNSUPPORTED, KILN_OK },
		{ "read only", "log", KILN_OPEN_READONLY, KILN_E_READONLY,
		  KILN_OK },
		{ "to look at", "log", KILN_OPEN_READONLY | KILN_OPEN_ANY_OWNER,
		  KILN_E_READONLY, KILN_OK },
		{ "file", "file", 0, KILN_E_UNSUPPORTED, KILN_E_UNSUPPORTED },
	};
	char *directories[] = { harness_directory(), harness_directory() };
	struct kiln_blob *blob;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_kept source = { "text", 4, { 0 }, 1 };
		struct kiln *kiln = open_url(
			rows[i].kind, directories[rows[i].kind[0] == 'f'],
			rows[i].flags);

		print_message("# %s\n", rows[i].name);
		assert_int_equal(kiln_keep_sources(kiln, &source, 1),
				 rows[i].kept);
		assert_int_equal(source.is_kept, rows[i].kept == KILN_OK);
		assert_int_equal(kiln_find_source(kiln, source.digest, &blob),
				 rows[i].found);
		if (rows[i].found == KILN_OK) {
			assert_int_equal(kiln_blob_size(blob), 4);
			assert_memory_equal(kiln_blob_data(blob), "text", 4);
			kiln_blob_unref(blob);
		}
		source.digest[0] ^= 1;
		assert_true(kiln_find_source(kiln, source.digest, &blob) !=
			    KILN_OK);
		assert_int_equal(kiln_keep_sources(kiln, NULL, 0),
				 rows[i].kept);
		kiln_close(kiln);
	}
	free(directories[0]);
	free(directories[1]);
}

static void counters_have_names(void **state)
{
	assert_string_equal(kiln_counter_name(KILN_COUNT_HITS_STORE),
			    "hits_store");
	assert_string_equal(kiln_counter_words(KILN_COUNT_HITS_STORE),
			    "hits in the store");
	for (unsigned i = 0; i < KILN_N_COUNTERS; i++)
		assert_non_null(kiln_counter_name(i));
	assert_null(kiln_counter_name(KILN_N_COUNTERS));
	assert_null(kiln_counter_words(KILN_N_COUNTERS));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_store_can_be_looked_into),
		cmocka_unit_test(sources_are_kept_by_those_that_may),
		cmocka_unit_test(counters_have_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
