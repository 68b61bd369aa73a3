/* SPDX-License-Identifier: MIT */

/* Where kiln report puts its page, and its numbers as JSON.  What the page looks
   like is tested in a browser, tests/report. */

#include "testing.h"
#include "harness/harness.h"

#include <fcntl.h>
#include <jansson.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kiln/inspect.h>

static const char *program;

static struct spawn report(const char *directory, const char *argument)
{
	static char setting[600];
	struct spawn spawn = { .program = program,
			       .arguments = { "report", argument } };

	snprintf(setting, sizeof(setting), "KILN_DIR=%s", directory);
	spawn.variables[0] = setting;
	spawn.variables[1] = "XDG_CONFIG_HOME=/nowhere";
	return spawn;
}

static struct ended ask(const char *directory, const char *argument)
{
	struct spawn spawn = report(directory, argument);

	return spawn_run(&spawn);
}

static void put(struct kiln *kiln, unsigned number, const char *application,
		uint64_t build_ns)
{
	struct kiln_metadata *metadata = kiln_metadata_new();
	struct kiln_key *key = kiln_key_new();
	char value[2000] = { 0 };

	kiln_metadata_add_u64(metadata, KILN_META_CREATED, 1000000 + number);
	kiln_metadata_add_u64(metadata, KILN_META_BUILD_TIME, build_ns);
	kiln_metadata_add_string(metadata, KILN_META_APPLICATION, application);
	kiln_key_add(key, "number", &number, sizeof(number));
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	assert_int_equal(kiln_put(kiln, key, value, sizeof(value), metadata, 0),
			 KILN_OK);
	kiln_key_free(key);
	kiln_metadata_free(metadata);
}

/* 400 entries of 300 applications: more than are told apart. */
static char *filled(void)
{
	char *directory = harness_directory(), url[600], name[32];
	struct kiln_options options;
	struct kiln *kiln;

	snprintf(url, sizeof(url), "log:%s", directory);
	kiln_options_init(&options);
	options.store_url = url;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	for (unsigned i = 0; i < 400; i++) {
		snprintf(name, sizeof(name), "/bin/%u", i < 100 ? 0 : i);
		put(kiln, i, name, i % 7 * 1000);
	}
	assert_int_equal(kiln_set_namespace_limit(kiln, "0", 5000000), KILN_OK);
	kiln_count(kiln, KILN_COUNT_MISSES, 5);
	kiln_close(kiln);
	return directory;
}

static int is_page(const char *text)
{
	return !strncmp(text, "<!DOCTYPE html>\n", 16) &&
	       strstr(text, "</html>\n") != NULL;
}

static size_t n_files(const char *directory)
{
	struct ended ended;
	struct spawn spawn = { .program = "/bin/ls",
			       .arguments = { "-A", directory } };
	size_t n = 0;

	ended = spawn_run(&spawn);
	for (const char *c = ended.out; *c; c++)
		n += *c == '\n';
	ended_free(&ended);
	return n;
}

static void a_page_goes_to_a_file_or_to_standard_output(void **state)
{
	char *directory = filled(), *elsewhere = harness_directory();
	char *path = harness_path(elsewhere, "kiln.html"), *page;
	struct ended ended;
	size_t size;

	harness_write(path, "old", 3);
	ended = ask(directory, path);
	assert_int_equal(status_of(&ended), 0);
	assert_string_equal(ended.out, "");
	assert_string_equal(ended.err, "");
	ended_free(&ended);
	page = harness_read(path, &size);
	assert_true(is_page(page));
	assert_int_equal(n_files(elsewhere), 1);
	free(page);
	for (unsigned i = 0; i < 2; i++) {
		ended = ask(directory, i ? "-" : NULL);
		assert_int_equal(status_of(&ended), 0);
		assert_true(is_page(ended.out));
		ended_free(&ended);
	}
	free(path);
	free(elsewhere);
	free(directory);
}

static void a_page_that_cannot_be_written_leaves_what_was(void **state)
{
	static const char *const rows[] = { "/dev/full", "/nowhere/kiln.html",
					    "/proc/kiln.html" };
	char *directory = filled();

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ended ended = ask(directory, rows[i]);

		if (status_of(&ended) != 1 ||
		    !strstr(ended.err, "cannot write"))
			fail_msg("%s: %d, %s", rows[i], status_of(&ended),
				 ended.err);
		ended_free(&ended);
	}
	assert_int_equal(access("/dev/full", F_OK), 0);
	free(directory);
}

static void become_output(void *fd)
{
	dup2(*(int *)fd, STDOUT_FILENO);
}

static void a_terminal_gets_no_page(void **state)
{
	char *directory = filled();
	struct spawn spawn = report(directory, NULL);
	struct ended ended;
	int ours, its;

	assert_int_equal(openpty(&ours, &its, NULL, NULL, NULL), 0);
	spawn.before = become_output;
	spawn.arg = &its;
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 2);
	assert_non_null(strstr(ended.err, "kiln report kiln.html"));
	ended_free(&ended);
	close(its);
	close(ours);
	free(directory);
}

/* S61 */
static void gone_and_full_outputs_are_as_elsewhere(void **state)
{
	char *directory = filled();
	struct spawn spawn = report(directory, NULL);
	int full = open("/dev/full", O_WRONLY), ends[2];
	struct ended ended;

	spawn.before = become_output;
	spawn.arg = &full;
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 1);
	ended_free(&ended);
	assert_int_equal(pipe(ends), 0);
	close(ends[0]);
	spawn.arg = &ends[1];
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 0);
	assert_string_equal(ended.err, "");
	ended_free(&ended);
	close(ends[1]);
	close(full);
	free(directory);
}

static void json_has_the_numbers_of_the_page(void **state)
{
	char *directory = filled();
	struct ended ended = ask(directory, "--json");
	json_t *json = json_loads(ended.out, 0, NULL), *list, *first;
	json_int_t n = 0;
	size_t i;

	assert_int_equal(status_of(&ended), 0);
	assert_non_null(json);
	assert_int_equal(json_integer_value(json_object_get(json, "schema")),
			 1);
	assert_int_equal(json_integer_value(json_object_get(json, "entries")),
			 400);
	list = json_object_get(json, "applications");
	assert_int_equal(json_array_size(list), 257);
	json_array_foreach(list, i, first) n +=
		json_integer_value(json_object_get(first, "entries"));
	assert_int_equal(n, 400);
	assert_string_equal(json_string_value(json_object_get(
				    json_array_get(list, 0), "name")),
			    "/bin/0");
	list = json_object_get(json, "namespaces");
	assert_int_equal(json_array_size(list), 257);
	first = json_array_get(list, 0);
	assert_string_equal(json_string_value(json_object_get(first, "name")),
			    "0");
	assert_int_equal(json_integer_value(json_object_get(first, "entries")),
			 100);
	assert_int_equal(
		json_integer_value(json_object_get(first, "bytes_max")),
		5000000);
	assert_int_equal(json_integer_value(json_object_get(
				 json_array_get(list, 1), "bytes_max")),
			 0);
	list = json_object_get(json, "slowest");
	assert_int_equal(json_array_size(list), 10);
	json_array_foreach(list, i, first) assert_int_equal(
		json_integer_value(json_object_get(first, "build_ns")), 6000);
	list = json_object_get(json, "next_to_go");
	json_array_foreach(list, i, first) assert_int_equal(
		json_integer_value(json_object_get(first, "created")),
		1000000 + i);
	list = json_object_get(json, "hours");
	assert_int_equal(json_array_size(list), 1);
	json_decref(json);
	ended_free(&ended);
	free(directory);
}

/* The rest has no name, whatever it is shown as. */
static void a_namespace_may_be_called_others(void **state)
{
	char *directory = filled(), url[600];
	unsigned n_own = 0, n_rest = 0;
	struct kiln_options options;
	json_t *json, *group;
	struct ended ended;
	struct kiln *kiln;
	size_t i;

	snprintf(url, sizeof(url), "log:%s", directory);
	kiln_options_init(&options);
	options.store_url = url;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	for (unsigned n = 0; n < 100; n++)
		put(kiln, 1000 + n, "/bin/others", 0);
	assert_int_equal(kiln_set_namespace_limit(kiln, "others", 7000000),
			 KILN_OK);
	kiln_close(kiln);
	ended = ask(directory, "--json");
	json = json_loads(ended.out, 0, NULL);
	assert_non_null(json);
	json_array_foreach(json_object_get(json, "namespaces"), i, group)
	{
		const int is_rest =
			json_is_true(json_object_get(group, "is_rest"));

		if (strcmp(json_string_value(json_object_get(group, "name")),
			   "others") != 0)
			continue;
		assert_int_equal(
			json_integer_value(json_object_get(group, "bytes_max")),
			is_rest ? 0 : 7000000);
		n_rest += is_rest;
		n_own += !is_rest;
	}
	assert_int_equal(n_own, 1);
	assert_int_equal(n_rest, 1);
	json_decref(json);
	ended_free(&ended);
	free(directory);
}

/* Of entries of one size; of some nobody knows what they cost. */
static void by_cost_what_was_built_fast_is_next(void **state)
{
	char *directory = filled();
	struct spawn spawn = report(directory, "--eviction");
	struct ended ended;
	json_t *json, *list, *first;
	size_t i;

	spawn.arguments[0] = "config";
	spawn.arguments[2] = "cost";
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 0);
	ended_free(&ended);
	ended = ask(directory, "--json");
	json = json_loads(ended.out, 0, NULL);
	list = json_object_get(json, "next_to_go");
	assert_int_equal(json_array_size(list), 10);
	json_array_foreach(list, i, first) assert_int_equal(
		json_integer_value(json_object_get(first, "build_ns")), 1000);
	json_decref(json);
	ended_free(&ended);
	ended = ask(directory, "-");
	assert_non_null(strstr(ended.out, "built fast before the rest"));
	ended_free(&ended);
	free(directory);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_page_goes_to_a_file_or_to_standard_output),
		cmocka_unit_test(a_page_that_cannot_be_written_leaves_what_was),
		cmocka_unit_test(a_terminal_gets_no_page),
		cmocka_unit_test(gone_and_full_outputs_are_as_elsewhere),
		cmocka_unit_test(json_has_the_numbers_of_the_page),
		cmocka_unit_test(a_namespace_may_be_called_others),
		cmocka_unit_test(by_cost_what_was_built_fast_is_next),
	};

	program = argc > 1 ? argv[1] : "kiln";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
