/* SPDX-License-Identifier: MIT */

/* Stores on disk, which other processes change. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"
#include "harness/shelf.h"

#include "core/cache_test.h"

static const char *const kinds[] = { "log:", "file:" };

static char *url_of(const char *kind, const char *directory)
{
	char *url;

	if (asprintf(&url, "%s%s/store", kind, directory) < 0)
		abort();
	return url;
}

static struct kiln *open_url(const char *url, uint32_t flags)
{
	struct kiln_options options = defaults();
	struct kiln *kiln;

	options.store_url = url;
	options.flags = flags;
	if (kiln_open(&options, &kiln))
		abort();
	return kiln;
}

static void a_store_keeps_entries(void **state)
{
	for (size_t i = 0; i < 2; i++) {
		char *directory = harness_directory();
		char *url = url_of(kinds[i], directory);
		struct kiln *kiln = open_url(url, 0);
		struct work work = { .text = "one" };

		assert_int_equal(kiln_store_status(kiln), KILN_OK);
		assert_outcome(kiln, 1, &work, "one from build");
		assert_outcome(kiln, 1, &work, "one from memory");
		assert_int_equal(put(kiln, 2, "two", 0), KILN_OK);
		assert_got(kiln, 2, "two");
		kiln_close(kiln);
		kiln = open_url(url, 0);
		assert_outcome(kiln, 1, &work, "one from store");
		assert_outcome(kiln, 1, &work, "one from memory");
		assert_got(kiln, 2, "two");
		kiln_close(kiln);
		kiln = open_url(url, KILN_OPEN_GUEST);
		assert_outcome(kiln, 1, &work, "one from store");
		assert_outcome(kiln, 1, &work, "one from store");
		kiln_close(kiln);
		free(url);
		free(directory);
	}
}

static void a_wipe_by_another_empties_memory(void **state)
{
	for (size_t i = 0; i < 2; i++) {
		char *directory = harness_directory();
		char *url = url_of(kinds[i], directory);
		struct kiln *kiln = open_url(url, 0);
		struct kiln *other = open_url(url, 0);
		struct work work = { .text = "one" };

		assert_outcome(kiln, 1, &work, "one from build");
		assert_outcome(kiln, 1, &work, "one from memory");
		assert_int_equal(kiln_wipe(other), KILN_OK);
		if (i == 0) /* file: nothing tells other processes */
			assert_outcome(kiln, 1, &work, "one from build");
		kiln_close(other);
		kiln_close(kiln);
		free(url);
		free(directory);
	}
}

/* The look that brought it mapped nothing which could tell. */
static void a_wipe_after_the_first_look_empties_memory(void **state)
{
	char *directory = harness_directory();
	char *url = url_of("log:", directory);
	struct kiln *other = open_url(url, 0), *kiln;
	struct work work = { .text = "one" };

	assert_outcome(other, 1, &work, "one from build");
	kiln = open_url(url, 0);
	assert_outcome(kiln, 1, &work, "one from store");
	assert_int_equal(kiln_wipe(other), KILN_OK);
	assert_outcome(kiln, 1, &work, "one from build");
	assert_outcome(kiln, 1, &work, "one from memory");
	kiln_close(kiln);
	kiln_close(other);
	free(url);
	free(directory);
}

/* S16.  Hits in memory alone never meet the store; now and then it looks. */
static void a_store_that_is_removed_whole_empties_memory(void **state)
{
	const uint64_t deadline = ki_sys_posix.monotonic_ns(&ki_sys_posix) +
				  HARNESS_HANG_S * S_NS;
	char *directory = harness_directory();
	char *url = url_of("log:", directory);
	struct kiln *kiln = open_url(url, 0);
	struct kiln_key *key = key_of(1);
	struct work work = { .text = "one" };
	struct kiln_blob *blob;

	assert_outcome(kiln, 1, &work, "one from build");
	assert_outcome(kiln, 1, &work, "one from memory");
	harness_remove(directory);
	while (!kiln_get(kiln, key, &blob)) {
		kiln_blob_unref(blob);
		assert_true(ki_sys_posix.monotonic_ns(&ki_sys_posix) <
			    deadline);
	}
	assert_outcome(kiln, 1, &work, "one from build");
	kiln_close(kiln);
	kiln_key_free(key);
	free(url);
	free(directory);
}

/* Builds leave a byte each in a file that all processes share. */
static void build_and_say_so(const struct kiln_key *key, void *arg,
			     struct kiln_build_result *result)
{
	FILE *file = fopen(arg, "a");

	if (!file || fputc('x', file) == EOF || fclose(file) ||
	    kiln_blob_copy("one", 4, &result->blob))
		abort();
}

struct processes {
	char *url;
	char *builds;
};

static int build_in_process(unsigned index, void *arg)
{
	struct processes *processes = arg;
	struct kiln *kiln = open_url(processes->url, 0);
	struct kiln_key *key = key_of(1);
	struct kiln_build_result result;
	int wrong;

	kiln_build_result_init(&result);
	wrong = kiln_get_or_build(kiln, key, build_and_say_so,
				  processes->builds, &result) != KILN_OK ||
		strcmp(kiln_blob_data(result.blob), "one");
	kiln_build_result_fini(&result);
	kiln_key_free(key);
	kiln_close(kiln);
	return wrong;
}

/* S19, with fewer processes. */
static void many_processes_build_once(void **state)
{
	for (size_t i = 0; i < 2; i++) {
		char *directory = harness_directory();
		struct processes processes = {
			url_of(kinds[i], directory),
			harness_path(directory, "builds"),
		};
		size_t n_builds = 0;

		assert_int_equal(harness_processes(12, build_in_process,
						   &processes, HARNESS_HANG_S),
				 0);
		free(harness_read(processes.builds, &n_builds));
		assert_int_equal(n_builds, 1);
		free(processes.builds);
		free(processes.url);
		free(directory);
	}
}

static void counters_are_kept_by_the_store(void **state)
{
	static const uint32_t flags[] = { 0, KILN_OPEN_GUEST };
	struct kiln_store_counters *counters = calloc(1, sizeof(*counters));

	for (size_t i = 0; i < 2; i++) {
		char *directory = harness_directory();
		char *url = url_of("log:", directory);
		struct kiln *kiln = open_url(url, flags[i]), *reader;
		struct work work = { .text = "one" };

		assert_outcome(kiln, 1, &work, "one from build");
		assert_got(kiln, 1, "one");
		/* A guest's program may be killed at any moment, but hits wait:
		   cache_exit_test.c. */
		if (!flags[i])
			kiln_close(kiln);
		reader = open_url(url, 0);
		assert_int_equal(kiln_store_counters(reader, counters),
				 KILN_OK);
		assert_int_equal(counters->total[KILN_COUNT_BUILDS], 1);
		assert_int_equal(counters->total[KILN_COUNT_PUTS], 1);
		if (flags[i])
			kiln_close(kiln);
		assert_int_equal(kiln_store_counters(reader, counters),
				 KILN_OK);
		assert_int_equal(counters->total[KILN_COUNT_HITS_MEMORY] +
					 counters->total[KILN_COUNT_HITS_STORE],
				 1);
		kiln_close(reader);
		free(url);
		free(directory);
	}
	free(counters);
}

/* Another process is at the counters just now. */
static void what_could_not_be_counted_is_counted_later(void **state)
{
	const struct ki_sys *sys = &ki_sys_posix;
	struct kiln_store_counters *counters = calloc(1, sizeof(*counters));

	for (size_t i = 0; i < 2; i++) {
		char *directory = harness_directory();
		char *url = url_of(kinds[i], directory);
		char *path = harness_path(directory, "store/kiln.stats");
		struct kiln *kiln = open_url(url, KILN_OPEN_GUEST);
		struct work work = { .text = "one" };
		int fd;

		kiln_count(kiln, KILN_COUNT_JOBS_DONE, 1);
		fd = sys->open(sys, path, KI_OPEN_READ | KI_OPEN_WRITE, 0);
		assert_int_equal(
			sys->try_lock(sys, fd, KI_LOCK_EXCLUSIVE, 0, 1), 0);
		assert_outcome(kiln, 1, &work, "one from build");
		assert_got(kiln, 1, "one");
		assert_int_equal(sys->close(sys, fd), 0);
		assert_got(kiln, 1, "one");
		assert_int_equal(kiln_store_counters(kiln, counters), KILN_OK);
		assert_int_equal(counters->total[KILN_COUNT_JOBS_DONE], 1);
		assert_int_equal(counters->total[KILN_COUNT_BUILDS], 1);
		assert_int_equal(counters->total[KILN_COUNT_HITS_STORE], 2);
		kiln_close(kiln);
		free(path);
		free(url);
		free(directory);
	}
	free(counters);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_store_keeps_entries),
		cmocka_unit_test(a_wipe_by_another_empties_memory),
		cmocka_unit_test(a_wipe_after_the_first_look_empties_memory),
		cmocka_unit_test(a_store_that_is_removed_whole_empties_memory),
		cmocka_unit_test(many_processes_build_once),
		cmocka_unit_test(counters_are_kept_by_the_store),
		cmocka_unit_test(what_could_not_be_counted_is_counted_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
