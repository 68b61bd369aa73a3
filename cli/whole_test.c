/* SPDX-License-Identifier: MIT */

/*
 * The whole way: a program that knows nothing of kiln, the loader, the layer,
 * the store, the spool, the worker, and the tool's view of it; on the driver
 * stand-in.
 */

#include "testing.h"
#include "harness/harness.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *program; /* kiln */
static const char *example;
static const char *driver;

static struct spawn tool(const char *directory, const char *name,
			 const char *option)
{
	static char dir[600], vendors[600];
	struct spawn spawn = { .program = program };

	snprintf(dir, sizeof(dir), "KILN_DIR=%s", directory);
	snprintf(vendors, sizeof(vendors), "OCL_ICD_VENDORS=%s", driver);
	spawn.arguments[0] = name;
	spawn.arguments[1] = option;
	spawn.variables[0] = dir;
	spawn.variables[1] = vendors;
	spawn.variables[2] = "OPENCL_LAYERS";
	spawn.variables[3] = "XDG_CONFIG_HOME=/nowhere";
	return spawn;
}

static json_t *ask(const char *directory, const char *name, int status)
{
	struct spawn spawn = tool(directory, name, "--json");
	struct ended ended = spawn_run(&spawn);
	json_t *json = json_loads(ended.out, 0, NULL);

	assert_int_equal(status_of(&ended), status);
	assert_non_null(json);
	ended_free(&ended);
	return json;
}

static int counter(const char *directory, const char *name)
{
	json_t *json = ask(directory, "stats", 0);
	const json_t *counters = json_object_get(json, "counters");
	int value = (int)json_integer_value(json_object_get(counters, name));

	json_decref(json);
	return value;
}

/* `kiln run OPTION EXAMPLE`, which must end well; what it said besides. */
static char *run_example(const char *directory, const char *option,
			 const char *variable)
{
	struct spawn spawn = tool(directory, "run", option);
	struct ended ended;

	spawn.arguments[2] = example;
	spawn.variables[4] = variable;
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 0);
	assert_string_equal(ended.out, "ok\n");
	free(ended.out);
	return ended.err;
}

static void doctor_says_that_it_works(void **state)
{
	char *directory = harness_directory();
	json_t *json = ask(directory, "doctor", 0);

	assert_true(json_is_true(json_object_get(json, "works")));
	json_decref(json);
	free(directory);
}

static void the_second_run_is_warm(void **state)
{
	char *directory = harness_directory();
	char *said = run_example(directory, "--wait", NULL);
	json_t *json, *entries, *entry;
	const char *application;

	assert_string_equal(said, "");
	free(said);
	assert_int_equal(counter(directory, "builds"), 1);
	assert_int_equal(counter(directory, "jobs_done"), 1);
	json = ask(directory, "ls", 0);
	entries = json_object_get(json, "entries");
	assert_int_equal(json_array_size(entries), 1);
	entry = json_array_get(entries, 0);
	application = json_string_value(json_object_get(entry, "application"));
	assert_non_null(strstr(application, "one_kernel"));
	json_decref(json);

	said = run_example(directory, "--", NULL);
	assert_string_equal(said, "");
	free(said);
	assert_int_equal(counter(directory, "builds"), 1);
	assert_int_equal(counter(directory, "hits_store"), 1);
	free(directory);
}

/* And ends up in the format of Intel's driver. */
static void run_takes_a_store_of_any_kind(void **state)
{
	static const char *const layouts[] = { "flat", "tree" };

	for (int i = 0; i < 2; i++) {
		char *directory = harness_directory(), *url;
		struct spawn spawn = tool("/nowhere", "run", "--wait");
		struct ended ended;
		json_t *json, *entry;

		assert_true(asprintf(&url, "neo:%s#%s", directory, layouts[i]) >
			    0);
		spawn.arguments[2] = "--store";
		spawn.arguments[3] = url;
		spawn.arguments[4] = example;
		ended = spawn_run(&spawn);
		assert_int_equal(status_of(&ended), 0);
		assert_string_equal(ended.out, "ok\n");
		assert_string_equal(ended.err, "");
		ended_free(&ended);

		spawn = tool("/nowhere", "ls", "--json");
		spawn.arguments[2] = url;
		ended = spawn_run(&spawn);
		json = json_loads(ended.out, 0, NULL);
		entry = json_array_get(json_object_get(json, "entries"), 0);
		assert_true(json_is_false(json_object_get(entry, "foreign")));
		assert_non_null(strstr(
			json_string_value(json_object_get(entry, "file")),
			".cl_cache"));
		assert_int_equal(json_string_value(json_object_get(
					 entry, "file"))[1] == '/',
				 i);
		json_decref(json);
		ended_free(&ended);
		free(url);
		free(directory);
	}
}

static void wait_sees_what_runs_behind(void **state)
{
	char *directory = harness_directory();
	char *said = run_example(directory, "--", NULL);
	json_t *json = ask(directory, "wait", 0);

	assert_string_equal(said, "");
	free(said);
	assert_int_equal(json_integer_value(json_object_get(json, "left")), 0);
	json_decref(json);
	assert_int_equal(counter(directory, "jobs_done"), 1);
	free(directory);
}

/* One line, the program's own status, and no second try. */
static void jobs_that_no_worker_may_make_are_named(void **state)
{
	char *directory = harness_directory();
	char *said = run_example(directory, "--wait", "KILN_TEST_ICD_TYPE=gpu");

	assert_non_null(strstr(said, "1 job: no worker may make it here ("));
	assert_ptr_equal(strchr(said, '\n') + 1, said + strlen(said));
	free(said);
	assert_int_equal(counter(directory, "jobs_done"), 0);
	free(directory);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(doctor_says_that_it_works),
		cmocka_unit_test(the_second_run_is_warm),
		cmocka_unit_test(run_takes_a_store_of_any_kind),
		cmocka_unit_test(wait_sees_what_runs_behind),
		cmocka_unit_test(jobs_that_no_worker_may_make_are_named),
	};

	if (argc < 4)
		return 77;
	program = argv[1];
	example = argv[2];
	driver = realpath(argv[3], NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
