/* SPDX-License-Identifier: MIT */

/* "neo:" or "sycl:" without a directory: the environment of Intel's driver, or of
   SYCL, says where. */

#include "harness/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kiln/inspect.h>

#define LINE_BYTES 512

static char *root;
static char first_line[LINE_BYTES];
static unsigned n_lines;

static void remember(void *arg, enum kiln_log_level level, const char *message)
{
	if (level != KILN_LOG_TRACE && !n_lines++)
		snprintf(first_line, sizeof(first_line), "%s", message);
}

static void set(const char *name, const char *value)
{
	assert_int_equal(value ? setenv(name, value, 1) : unsetenv(name), 0);
}

/* With NEO_CACHE_DIR and SYCL_CACHE_DIR a name in the test's directory. */
static struct kiln *open_named(const char *name, const char *url)
{
	char *path = harness_path(root, name);
	struct kiln_options options;
	struct kiln *kiln = NULL;

	n_lines = 0;
	set("NEO_CACHE_DIR", path);
	set("SYCL_CACHE_DIR", path);
	kiln_options_init(&options);
	options.store_url = url;
	options.log = remember;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	free(path);
	return kiln;
}

static enum kiln_status put(struct kiln *kiln, unsigned n, size_t size)
{
	struct kiln_key *key = kiln_key_new();
	char *value = calloc(1, size);
	enum kiln_status status;

	kiln_key_add(key, "n", &n, sizeof(n));
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	status = kiln_put(kiln, key, value, size, NULL, 0);
	kiln_key_free(key);
	free(value);
	return status;
}

static void a_missing_directory_is_made_for_its_owner_alone(void **state)
{
	struct kiln *kiln = open_named("deep/made", "neo:");
	char *path = harness_path(root, "deep/made");
	struct stat st;

	assert_int_equal(kiln_store_status(kiln), KILN_OK);
	assert_int_equal(put(kiln, 1, 100), KILN_OK);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(n_lines, 0);
	kiln_close(kiln);
	free(path);
}

static void the_layout_may_stand_behind(void **state)
{
	struct kiln *kiln = open_named("tree", "neo:#tree");
	char *path = harness_path(root, "tree/f");
	unsigned n = 0;
	struct stat st;

	assert_int_equal(kiln_store_status(kiln), KILN_OK);
	/* Names are hashes: in a while there is one that begins with f. */
	while (stat(path, &st) && n < 500)
		assert_int_equal(put(kiln, n++, 10), KILN_OK);
	assert_true(n < 500);
	kiln_close(kiln);
	free(path);
}

static void a_limit_of_the_environment_holds(void **state)
{
	struct kiln_store_info info;
	struct kiln *kiln;

	set("NEO_CACHE_MAX_SIZE", "20000");
	kiln = open_named("limited", "neo:");
	for (unsigned n = 0; n < 20; n++)
		assert_int_equal(put(kiln, n, 3000), KILN_OK);
	assert_int_equal(kiln_store_info(kiln, &info), KILN_OK);
	assert_int_equal(info.bytes_max, 20000);
	assert_true(info.bytes <= 20000);
	kiln_close(kiln);
	set("NEO_CACHE_MAX_SIZE", NULL);
}

static void limits_of_sycls_environment_hold_in_its_dialect(void **state)
{
	static const struct {
		const char *dialect;
		const char *max_size;
		const char *disable; /* eviction */
		uint64_t bytes_max;
	} rows[] = {
		{ "seed", "2", NULL, 2 << 20 },
		{ "dpcpp", "30000", NULL, 30000 },
		/* Of which the seed's megabytes would be too many. */
		{ "dpcpp", "10000000000000", NULL, 10000000000000 },
		/* Then it is the options'. */
		{ "dpcpp", NULL, NULL, (uint64_t)1 << 30 },
		{ "dpcpp", NULL, "1", (uint64_t)1 << 30 },
		/* Then there is none. */
		{ "seed", NULL, "1", 0 },
		{ "seed", "2", "1", 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_store_info info;
		struct kiln *kiln;

		set("SYCL_CACHE_DIALECT", rows[i].dialect);
		set("SYCL_CACHE_MAX_SIZE", rows[i].max_size);
		set("SYCL_CACHE_EVICTION_DISABLE", rows[i].disable);
		kiln = open_named("sycl", "sycl:");
		assert_int_equal(kiln_store_status(kiln), KILN_OK);
		assert_int_equal(put(kiln, (unsigned)i, 100), KILN_OK);
		assert_int_equal(kiln_store_info(kiln, &info), KILN_OK);
		assert_string_equal(info.kind, "sycl");
		assert_int_equal(info.bytes_max, rows[i].bytes_max);
		kiln_close(kiln);
	}
	set("SYCL_CACHE_DIALECT", NULL);
	set("SYCL_CACHE_MAX_SIZE", NULL);
	set("SYCL_CACHE_EVICTION_DISABLE", NULL);
}

/* What kiln keeps there itself does not make the directory DPC++'s. */
static void the_dialect_stays_when_kiln_has_stored(void **state)
{
	char *sum = harness_path(root, "stays/cache_size.txt");

	set("SYCL_CACHE_MAX_SIZE", "2");
	for (unsigned i = 0; i < 2; i++) {
		struct kiln *kiln = open_named("stays", "sycl:");
		struct kiln_store_info info;

		assert_int_equal(put(kiln, i, 100), KILN_OK);
		assert_int_equal(kiln_store_info(kiln, &info), KILN_OK);
		assert_int_equal(info.bytes_max, 2 << 20);
		assert_int_equal(access(sum, F_OK), 0);
		kiln_close(kiln);
	}
	set("SYCL_CACHE_MAX_SIZE", NULL);
	free(sum);
}

/* Nor does it stay kiln's once DPC++ writes its sum there. */
static void the_dialect_changes_when_dpcpp_joins(void **state)
{
	char *sum = harness_path(root, "joined/cache_size.txt");
	struct kiln_store_info info;
	struct kiln *kiln;

	set("SYCL_CACHE_MAX_SIZE", "50000");
	kiln = open_named("joined", "sycl:");
	assert_int_equal(put(kiln, 1, 100), KILN_OK);
	assert_int_equal(kiln_store_info(kiln, &info), KILN_OK);
	assert_int_equal(info.bytes_max, (uint64_t)50000 << 20);
	kiln_close(kiln);
	harness_write(sum, "1000", 4);
	for (unsigned i = 2; i < 4; i++) {
		kiln = open_named("joined", "sycl:");
		assert_int_equal(put(kiln, i, 100), KILN_OK);
		assert_int_equal(kiln_store_info(kiln, &info), KILN_OK);
		assert_int_equal(info.bytes_max, 50000);
		kiln_close(kiln);
	}
	set("SYCL_CACHE_MAX_SIZE", NULL);
	free(sum);
}

static void what_is_refused_is_told_and_costs_the_cache(void **state)
{
	static const struct {
		const char *url;
		const char *name;
		const char *value;
		enum kiln_status status;
		const char *words;
	} rows[] = {
		{ "neo:", "NEO_CACHE_PERSISTENT", "0", KILN_MISS,
		  "turns the cache off" },
		{ "neo:", "NEO_CACHE_PERSISTENT", "yes", KILN_E_INVALID,
		  "NEO_CACHE_PERSISTENT" },
		{ "neo:", "NEO_CACHE_MAX_SIZE", "1GB", KILN_E_INVALID,
		  "NEO_CACHE_MAX_SIZE" },
		{ "sycl:", "SYCL_CACHE_MAX_SIZE", "1K", KILN_E_INVALID,
		  "SYCL_CACHE_MAX_SIZE" },
		{ "sycl:", "SYCL_CACHE_DIALECT", "intel", KILN_E_INVALID,
		  "seed or dpcpp" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln *kiln;

		set(rows[i].name, rows[i].value);
		kiln = open_named("refused", rows[i].url);
		assert_int_equal(kiln_store_status(kiln), rows[i].status);
		assert_int_equal(n_lines, 1);
		assert_non_null(strstr(first_line, rows[i].words));
		kiln_close(kiln);
		set(rows[i].name, NULL);
	}
}

/* What was switched off is as not given; this is a store that cannot be had. */
static void a_place_that_cannot_be_named_is_a_fault(void **state)
{
	static const char *const urls[] = { "neo:", "sycl:" };
	static const char *const names[] = { "NEO_CACHE_DIR", "SYCL_CACHE_DIR",
					     "XDG_CACHE_HOME", "HOME" };
	char *home = strdup(getenv("HOME") ? getenv("HOME") : "/");

	for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
		struct kiln_options options;
		struct kiln *kiln;

		for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++)
			set(names[n], NULL);
		n_lines = 0;
		kiln_options_init(&options);
		options.store_url = urls[i];
		options.log = remember;
		assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
		assert_int_equal(kiln_store_status(kiln), KILN_E_IO);
		assert_int_equal(n_lines, 1);
		assert_non_null(strstr(first_line, "HOME name no directory"));
		kiln_close(kiln);
	}
	set("HOME", home);
	free(home);
}

static void a_directory_that_is_none_or_not_ours_is_refused(void **state)
{
	static const char *const names[] = { "file", "open", "link" };
	char *file = harness_path(root, "file"),
	     *open = harness_path(root, "open"),
	     *link = harness_path(root, "link");

	harness_write(file, "", 0);
	assert_int_equal(mkdir(open, 0700), 0);
	assert_int_equal(chmod(open, 0777), 0);
	assert_int_equal(symlink(root, link), 0);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct kiln *kiln = open_named(names[i], "neo:");

		assert_true(kiln_store_status(kiln) < 0);
		assert_true(n_lines > 0);
		assert_non_null(strstr(first_line, names[i]));
		kiln_close(kiln);
	}
	free(file);
	free(open);
	free(link);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			a_missing_directory_is_made_for_its_owner_alone),
		cmocka_unit_test(the_layout_may_stand_behind),
		cmocka_unit_test(a_limit_of_the_environment_holds),
		cmocka_unit_test(
			limits_of_sycls_environment_hold_in_its_dialect),
		cmocka_unit_test(the_dialect_stays_when_kiln_has_stored),
		cmocka_unit_test(the_dialect_changes_when_dpcpp_joins),
		cmocka_unit_test(what_is_refused_is_told_and_costs_the_cache),
		cmocka_unit_test(a_place_that_cannot_be_named_is_a_fault),
		cmocka_unit_test(
			a_directory_that_is_none_or_not_ours_is_refused),
	};
	int status;

	root = harness_directory();
	unsetenv("NEO_CACHE_PERSISTENT");
	unsetenv("NEO_CACHE_MAX_SIZE");
	unsetenv("SYCL_CACHE_DIALECT");
	unsetenv("SYCL_CACHE_MAX_SIZE");
	unsetenv("SYCL_CACHE_THRESHOLD");
	status = cmocka_run_group_tests(tests, NULL, NULL);
	free(root);
	return status;
}
