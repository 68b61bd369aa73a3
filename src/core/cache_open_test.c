/* SPDX-License-Identifier: MIT */

/* Options, those of other versions, and stores that cannot be used. */

#include <stdio.h>
#include <string.h>

#include "harness/harness.h"
#include "harness/shelf.h"

#include "core/cache_test.h"

static void remember(void *arg, enum kiln_log_level level, const char *message)
{
	if (level == KILN_LOG_ERROR)
		snprintf(arg, 256, "%s", message);
}

static void wrong_options_are_named(void **state)
{
	struct kiln_tier *no_tier = NULL;
	const char *no_key = "a:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo";
	const struct {
		const char *name;
		struct kiln_options change;
	} rows[] = {
		{ "flags", { .flags = 1u << 30 } },
		{ "failure_policy",
		  { .failure_policy = (enum kiln_failure_policy)9 } },
		{ "flags", { .flags = KILN_OPEN_SESSION } },
		{ "flags",
		  { .flags = KILN_OPEN_SESSION, .store_url = "file:/tmp" } },
		{ "flags",
		  { .flags = KILN_OPEN_SESSION | KILN_OPEN_READONLY,
		    .store_url = "log:/tmp" } },
		{ "flags",
		  { .flags = KILN_OPEN_SESSION | KILN_OPEN_GUEST,
		    .store_url = "log:/tmp" } },
		{ "store_quota_bytes", { .store_quota_bytes = 1 } },
		{ "memory_order",
		  { .memory_order = (enum kiln_memory_order)3 } },
		{ "store_url", { .store_url = "nonsense:/tmp" } },
		{ "store_url", { .store_url = "" } },
		{ "tiers", { .n_tiers = 1 } },
		{ "tiers", { .n_tiers = 1, .tiers = &no_tier } },
		{ "trusted_keys", { .n_trusted_keys = 1 } },
		{ "trusted_keys",
		  { .n_trusted_keys = 1, .trusted_keys = &no_key } },
		{ "signing_key", { .signing_key = "default" } },
		{ "n_tiers", { .n_tiers = 100, .tiers = &no_tier } },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_options options = rows[i].change;
		char message[256] = "";
		struct kiln *kiln;

		options.size = sizeof(options);
		options.log = remember;
		options.log_arg = message;
		if (options.n_tiers == 100)
			options.n_tiers = 8;
		if (options.n_tiers == 8) {
			struct kiln_tier *tiers[8] = { NULL };

			options.tiers = tiers;
			assert_int_equal(kiln_open(&options, &kiln),
					 KILN_E_INVALID);
		} else {
			assert_int_equal(kiln_open(&options, &kiln),
					 KILN_E_INVALID);
		}
		assert_non_null(strstr(message, rows[i].name));
	}
}

static void tiers_are_closed_when_opening_fails(void **state)
{
	struct shelf *shelf = shelf_new();
	struct kiln_tier *tier = shelf_tier(shelf);
	struct kiln_options options = defaults();
	struct kiln *kiln;

	options.tiers = &tier;
	options.n_tiers = 1;
	options.flags = 1u << 31;
	assert_int_equal(kiln_open(&options, &kiln), KILN_E_INVALID);
	assert_int_equal(shelf_calls(shelf).close, 1);
	shelf_free(shelf);
}

static void options_of_other_versions_are_understood(void **state)
{
	struct {
		struct kiln_options options;
		uint64_t later;
	} newer = { .later = 0 };
	struct kiln_options older = { .size = offsetof(struct kiln_options,
						       failure_ttl_ms) };
	struct kiln *kiln;

	kiln_options_init(&newer.options);
	newer.options.size = sizeof(newer);
	assert_int_equal(kiln_open(&newer.options, &kiln), KILN_OK);
	kiln_close(kiln);
	newer.later = 1;
	assert_int_equal(kiln_open(&newer.options, &kiln), KILN_E_INVALID);
	assert_int_equal(kiln_open(&older, &kiln), KILN_OK);
	kiln_close(kiln);
	assert_int_equal(kiln_open(NULL, &kiln), KILN_OK);
	kiln_close(kiln);
}

static void a_store_that_cannot_be_used_costs_the_store(void **state)
{
	static const char *const urls[] = {
		"log:/proc/nowhere",
		"file:/proc/nowhere",
		"log:/dev/null/x",
	};

	for (size_t i = 0; i < 3; i++) {
		struct kiln_options options = defaults();
		struct work work = { .text = "one" };
		char message[256] = "";
		struct kiln *kiln;

		options.store_url = urls[i];
		options.log = remember;
		options.log_arg = message;
		assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
		assert_true(kiln_store_status(kiln) < 0);
		assert_non_null(strstr(message, "nowhere")
					? message
					: strstr(message, "null"));
		assert_outcome(kiln, 1, &work, "one from build");
		assert_outcome(kiln, 1, &work, "one from memory");
		assert_int_equal(put(kiln, 2, "two", 0),
				 kiln_store_status(kiln));
		assert_got(kiln, 2, "two");
		assert_in_range(counter(kiln, KILN_COUNT_MISS_UNAVAILABLE), 1,
				2);
		kiln_close(kiln);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wrong_options_are_named),
		cmocka_unit_test(tiers_are_closed_when_opening_fails),
		cmocka_unit_test(options_of_other_versions_are_understood),
		cmocka_unit_test(a_store_that_cannot_be_used_costs_the_store),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
