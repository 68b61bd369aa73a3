/* SPDX-License-Identifier: MIT */

/* What the tool does with one namespace, on every kind of store. */

#include "testing.h"
#include "harness/harness.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/kiln.h>

#define SIZE  3000
#define N_OF  10
#define N_ALL (3 * N_OF)

static const char *program;
static const char *const kinds[] = { "log", "file", "neo", "sycl" };
#define N_KINDS (sizeof(kinds) / sizeof(*kinds))

/* ---- Around it ------------------------------------------------------------------ */

/* `arguments` ends with NULL. */
static struct ended ask(const char *store, const char *const *arguments)
{
	struct spawn spawn = {
		.program = program,
		.variables = { "XDG_CONFIG_HOME=/nowhere", "HOME=/nowhere",
			       "KILN_NAMESPACE", "COLUMNS" },
	};
	int i;

	for (i = 0; arguments[i]; i++)
		spawn.arguments[i] = arguments[i];
	spawn.arguments[i] = "--store";
	spawn.arguments[i + 1] = store;
	return spawn_run(&spawn);
}

#define ASK(store, ...) ask(store, (const char *const[]){ __VA_ARGS__, NULL })

static void assert_refused(struct ended ended, int status, const char *words)
{
	assert_int_equal(status_of(&ended), status);
	assert_string_equal(ended.out, "");
	assert_non_null(strstr(ended.err, words));
	ended_free(&ended);
}

static json_t *json_of(struct ended ended)
{
	json_t *json;

	assert_string_equal(ended.err, "");
	assert_int_equal(status_of(&ended), 0);
	json = json_loads(ended.out, 0, NULL);
	assert_non_null(json);
	ended_free(&ended);
	return json;
}

static long number(const json_t *json, const char *name)
{
	const json_t *value = json_object_get(json, name);

	assert_true(json_is_integer(value));
	return (long)json_integer_value(value);
}

/* ---- Entries -------------------------------------------------------------------- */

static void put_as(const char *store, const char *name_space,
		   const char *application, unsigned first)
{
	static const char value[SIZE];
	struct kiln_options options;
	struct kiln *kiln;

	kiln_options_init(&options);
	options.store_url = store;
	options.name_space = name_space;
	options.application = application;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	for (unsigned n = first; n < first + N_OF; n++) {
		struct kiln_key *key = kiln_key_new();

		kiln_key_add(key, "number", &n, sizeof(n));
		assert_int_equal(kiln_key_finish(key), KILN_OK);
		assert_int_equal(
			kiln_put(kiln, key, value, sizeof(value), NULL, 0),
			KILN_OK);
		kiln_key_free(key);
	}
	kiln_close(kiln);
}

/* Ten of "nightly", of "blender" and of "crack" each. */
static char *filled(const char *kind)
{
	char *directory = harness_directory(), *store;

	assert_true(asprintf(&store, "%s:%s", kind, directory) > 0);
	put_as(store, "nightly", "/usr/bin/blender", 0);
	put_as(store, NULL, "/usr/bin/blender", 100);
	put_as(store, NULL, "/opt/bin/crack", 200);
	free(directory);
	return store;
}

static size_t count(const char *store, const char *name_space)
{
	json_t *json = json_of(name_space ? ASK(store, "ls", "--json",
						"--namespace", name_space)
					  : ASK(store, "ls", "--json"));
	size_t n = json_array_size(json_object_get(json, "entries"));

	json_decref(json);
	return n;
}

/* ---- gc, clear ------------------------------------------------------------------- */

static void gc_is_of_one_namespace(void **state)
{
	for (size_t i = 0; i < N_KINDS; i++) {
		char *store = filled(kinds[i]);
		json_t *json = json_of(ASK(store, "gc", "--json", "--namespace",
					   "blender", "--max-size", "16K"));
		struct ended ended;

		assert_in_range(number(json, "evicted"), 5, 6);
		assert_true(number(json, "bytes_after") <= 16384);
		assert_int_equal(count(store, "blender"),
				 N_OF - number(json, "evicted"));
		assert_int_equal(count(store, "nightly"), N_OF);
		assert_int_equal(count(store, "crack"), N_OF);
		json_decref(json);
		ended = ASK(store, "gc", "--namespace", "nobody");
		assert_int_equal(status_of(&ended), 0);
		assert_string_equal(ended.out,
				    "freed 0 bytes, 0 bytes are left\n");
		ended_free(&ended);
		free(store);
	}
}

static void clear_is_of_one_namespace(void **state)
{
	for (size_t i = 0; i < N_KINDS; i++) {
		char *store = filled(kinds[i]);
		json_t *json = json_of(
			ASK(store, "clear", "--json", "--namespace", "crack"));

		assert_int_equal(number(json, "entries_removed"), N_OF);
		assert_true(number(json, "bytes_freed") > N_OF * SIZE);
		assert_int_equal(count(store, NULL), N_ALL - N_OF);
		assert_int_equal(count(store, "crack"), 0);
		json_decref(json);
		free(store);
	}
}

/* ---- Quotas ----------------------------------------------------------------------- */

/* The only one that there is. */
static json_t *quota_of(const char *store, const char *verb)
{
	json_t *json = json_of(ASK(store, verb, "--json"));
	json_t *rows = json_object_get(json, "namespaces");
	json_t *row = json_incref(json_array_get(rows, 0));

	assert_int_equal(json_array_size(rows), 1);
	json_decref(json);
	return row;
}

static void a_quota_is_set_shown_and_taken_back(void **state)
{
	for (size_t i = 0; i < N_KINDS; i++) {
		char *store = filled(kinds[i]);
		struct ended ended = ASK(store, "config", "--namespace",
					 "blender", "--max-size", "16K");
		json_t *row;

		assert_int_equal(status_of(&ended), 0);
		assert_memory_equal(ended.out, "blender  1", 10);
		assert_non_null(strstr(ended.out, " KiB of 16.0 KiB\n"));
		ended_free(&ended);
		assert_true(count(store, "blender") < N_OF);
		assert_int_equal(count(store, "nightly"), N_OF);
		row = quota_of(store, "config");
		assert_string_equal(
			json_string_value(json_object_get(row, "name")),
			"blender");
		assert_int_equal(number(row, "bytes_max"), 16384);
		assert_in_range(number(row, "bytes"), SIZE, 16384);
		assert_in_range(number(row, "evicted"), 5, 6);
		assert_int_equal(number(row, "not_stored"), 0);
		json_decref(row);
		json_decref(quota_of(store, "stats"));
		ended = ASK(store, "stats");
		assert_non_null(strstr(ended.out, "\nquota of blender  "));
		ended_free(&ended);

		ended = ASK(store, "config", "--namespace", "blender",
			    "--max-size", "0");
		assert_string_equal(ended.out,
				    "blender  no quota of its own\n");
		ended_free(&ended);
		ended = ASK(store, "config", "--namespace", "blender");
		assert_string_equal(ended.out,
				    "blender  no quota of its own\n");
		ended_free(&ended);
		free(store);
	}
}

static void each_other_namespace_has_a_quota(void **state)
{
	char *store = filled("log");
	struct ended ended =
		ASK(store, "config", "--namespace", "*", "--max-size", "16K");

	assert_string_equal(ended.out, "*  16.0 KiB each\n");
	ended_free(&ended);
	assert_true(count(store, NULL) <= 3 * 6);
	ended = ASK(store, "config");
	assert_non_null(strstr(ended.out, "quota     *: 16.0 KiB each\n"));
	assert_non_null(strstr(ended.out, " of 16.0 KiB (as all others)\n"));
	ended_free(&ended);
	free(store);
}

static void doctor_tells_of_what_a_quota_kept_out(void **state)
{
	static const char wide[2000];
	char *store = filled("log"), *variable;
	struct spawn spawn = {
		.program = program,
		.arguments = { "doctor" },
		.variables = { "XDG_CONFIG_HOME=/nowhere", "HOME=/nowhere" },
	};
	struct ended ended =
		ASK(store, "config", "--namespace", "wide", "--max-size", "1K");
	struct kiln_options options;
	struct kiln *kiln;
	struct kiln_key *key = kiln_key_new();

	ended_free(&ended);
	kiln_options_init(&options);
	options.store_url = store;
	options.name_space = "wide";
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	assert_int_equal(kiln_put(kiln, key, wide, sizeof(wide), NULL, 0),
			 KILN_E_TOO_LARGE);
	kiln_key_free(key);
	kiln_close(kiln);
	assert_true(asprintf(&variable, "KILN_STORE=%s", store) > 0);
	spawn.variables[2] = variable;
	ended = spawn_run(&spawn);
	assert_non_null(strstr(ended.out, "1 put of wide not stored"));
	ended_free(&ended);
	free(variable);
	free(store);
}

/* ---- What is no use ----------------------------------------------------------------- */

static void what_cannot_be_is_said(void **state)
{
	char *store = filled("log"), *directory = harness_directory();
	char *pack = harness_path(directory, "a.pack"), *url;
	struct ended ended = ASK(store, "export", pack);

	assert_int_equal(status_of(&ended), 0);
	ended_free(&ended);
	assert_true(asprintf(&url, "pack:%s", pack) > 0);
	assert_refused(ASK(url, "gc", "--namespace", "blender"), 5,
		       "is a pack and never changed");
	assert_refused(ASK(url, "clear", "--namespace", "blender"), 5,
		       "is a pack and never changed");
	assert_refused(
		ASK(url, "config", "--namespace", "a", "--max-size", "1M"), 5,
		"is a pack and never changed");
	assert_refused(ASK(store, "gc", "--namespace", ""), 2, "--namespace");
	assert_refused(ASK(store, "clear", "--namespace", "*"), 2,
		       "--namespace");
	assert_refused(ASK(store, "gc", "--namespace=a", "--quarantine"), 2,
		       "--quarantine");
	assert_refused(ASK(store, "config", "--max-size", "1M"), 2,
		       "--max-size goes with --namespace");
	assert_refused(ASK(store, "config", "--namespace=a", "--limit", "1M"),
		       2, "use --max-size");
	assert_refused(
		ASK(store, "config", "--namespace=a", "--max-size", "much"), 2,
		"'much' is no size");
	assert_refused(ASK(store, "config", "--namespace=", "--max-size", "1M"),
		       2, "a name has 1 to 127 bytes");
	free(url);
	free(pack);
	free(directory);
	free(store);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gc_is_of_one_namespace),
		cmocka_unit_test(clear_is_of_one_namespace),
		cmocka_unit_test(a_quota_is_set_shown_and_taken_back),
		cmocka_unit_test(each_other_namespace_has_a_quota),
		cmocka_unit_test(doctor_tells_of_what_a_quota_kept_out),
		cmocka_unit_test(what_cannot_be_is_said),
	};

	program = argc > 1 ? argv[1] : "kiln";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
