/* SPDX-License-Identifier: MIT */

#include "harness/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/inspect.h>

#include "core/cache.h"

#define LONG                                                                   \
	"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"     \
	"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde"

static void a_name_that_was_given_comes_before_that_of_the_program(void **state)
{
	static const struct {
		const char *name_space, *application, *expected;
	} rows[] = {
		{ NULL, NULL, NULL },
		{ "", "", NULL },
		{ "nightly", "/usr/bin/blender", "nightly" },
		{ "", "/usr/bin/blender", "blender" },
		{ NULL, "/opt/other/blender", "blender" },
		{ NULL, "blender", "blender" },
		{ NULL, "/usr/bin/", NULL },
		{ "a/b", NULL, "a/b" },
		{ LONG, NULL, LONG },
		{ LONG "f", NULL, LONG },
		{ NULL, "/" LONG "f", LONG },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct kiln_metadata *metadata = kiln_metadata_new();
		char name[KILN_NAMESPACE_BYTES] = "";
		enum kiln_status status;
		const void *bytes;
		size_t size;

		if (rows[i].name_space)
			kiln_metadata_add_string(metadata, KILN_META_NAMESPACE,
						 rows[i].name_space);
		if (rows[i].application)
			kiln_metadata_add_string(metadata,
						 KILN_META_APPLICATION,
						 rows[i].application);
		assert_int_equal(kiln_metadata_bytes(metadata, &bytes, &size),
				 KILN_OK);
		status = kiln_namespace_of(bytes, size, name);
		assert_int_equal(status,
				 rows[i].expected ? KILN_OK : KILN_MISS);
		assert_string_equal(name,
				    rows[i].expected ? rows[i].expected : "");
		kiln_metadata_free(metadata);
	}
	assert_int_equal(kiln_namespace_of("damaged", 7,
					   (char[KILN_NAMESPACE_BYTES]){ 0 }),
			 KILN_MISS);
	assert_int_equal(
		kiln_namespace_of(NULL, 0, (char[KILN_NAMESPACE_BYTES]){ 0 }),
		KILN_MISS);
}

static void only_a_store_on_disk_that_can_be_written_has_quotas(void **state)
{
	struct kiln_options options;
	struct kiln_namespace row;
	struct kiln *kiln;
	size_t position = 0;

	kiln_options_init(&options);
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	assert_int_equal(kiln_set_namespace_limit(kiln, "a", 1 << 20),
			 KILN_E_UNSUPPORTED);
	assert_int_equal(kiln_next_namespace(kiln, &position, &row),
			 KILN_E_UNSUPPORTED);
	assert_int_equal(kiln_gc_namespace(kiln, "a", NULL, NULL, NULL, NULL),
			 KILN_E_UNSUPPORTED);
	kiln_close(kiln);
}

static void names_that_are_none_are_refused(void **state)
{
	static const char *const names[] = { NULL, "", LONG "f" };
	char *directory = harness_directory();
	struct kiln_options options;
	struct kiln_gc_report report;
	struct kiln *kiln;
	char url[4096] = "log:";

	kiln_options_init(&options);
	options.store_url = strcat(url, directory);
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		assert_int_equal(kiln_set_namespace_limit(kiln, names[i], 1000),
				 KILN_E_INVALID);
		assert_int_equal(kiln_gc_namespace(kiln, names[i], NULL, NULL,
						   NULL, &report),
				 KILN_E_INVALID);
	}
	assert_int_equal(kiln_gc_namespace(kiln, KILN_NAMESPACE_OTHERS, NULL,
					   NULL, NULL, &report),
			 KILN_E_INVALID);
	kiln_close(kiln);
	free(directory);
}

/* ---- Accounts ------------------------------------------------------------------ */

#define PUT_BYTES 1000

static uint64_t account(struct kiln *kiln)
{
	struct kiln_namespace row;
	size_t position = 0;

	assert_int_equal(kiln_next_namespace(kiln, &position, &row), KILN_OK);
	return row.bytes;
}

static void claim_for_a(struct kiln *kiln, struct ki_claim *claim)
{
	struct kiln_metadata *metadata = kiln_metadata_new();
	const void *bytes;
	size_t size;

	kiln_metadata_add_string(metadata, KILN_META_NAMESPACE, "a");
	assert_int_equal(kiln_metadata_bytes(metadata, &bytes, &size), KILN_OK);
	assert_int_equal(ki_quota_claim(kiln, bytes, size, PUT_BYTES, claim),
			 KILN_OK);
	kiln_metadata_free(metadata);
}

/* b, e: a counting begins and ends, which never finds the entry; c: claim; p: it was
   put; r: it was not. */
static void a_counting_beside_a_put_leaves_no_account_too_low(void **state)
{
	static const struct {
		const char *steps;
		uint64_t least, most;
	} rows[] = {
		{ "cp", PUT_BYTES, PUT_BYTES },
		{ "cr", 0, 0 },
		{ "bcpe", PUT_BYTES, PUT_BYTES },
		{ "bcep", PUT_BYTES, PUT_BYTES },
		{ "cbep", PUT_BYTES, PUT_BYTES },
		{ "cbpe", PUT_BYTES, PUT_BYTES },
		{ "cbre", 0, 0 },
		{ "cber", 0, 0 },
		{ "bcre", 0, 0 },
		{ "bcer", 0, PUT_BYTES },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char *directory = harness_directory(), url[600];
		struct ki_quota_turn turn = { .name_space = "" };
		struct ki_claim claim = { .name_space = "" };
		struct kiln_options options;
		struct kiln *kiln;

		snprintf(url, sizeof(url), "log:%s", directory);
		kiln_options_init(&options);
		options.store_url = url;
		assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
		assert_int_equal(kiln_set_namespace_limit(kiln, "a", 1 << 20),
				 KILN_OK);
		for (const char *step = rows[i].steps; *step; step++)
			switch (*step) {
			case 'b':
				ki_quota_begin_turn(kiln, "a", &turn);
				break;
			case 'e':
				ki_quota_end_turn(kiln, &turn, 0, 0);
				break;
			case 'c':
				claim_for_a(kiln, &claim);
				break;
			case 'p':
				ki_quota_confirm(kiln, &claim);
				break;
			default:
				ki_quota_return(kiln, &claim);
			}
		assert_in_range(account(kiln), rows[i].least, rows[i].most);
		kiln_close(kiln);
		free(directory);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			a_name_that_was_given_comes_before_that_of_the_program),
		cmocka_unit_test(
			only_a_store_on_disk_that_can_be_written_has_quotas),
		cmocka_unit_test(names_that_are_none_are_refused),
		cmocka_unit_test(
			a_counting_beside_a_put_leaves_no_account_too_low),
	};

	return cmocka_run_group_tests_name("namespace", tests, NULL, NULL);
}
