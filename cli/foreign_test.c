/* SPDX-License-Identifier: MIT */

/* The tool in a directory of Intel's driver, and the driver's variables. */

#include "testing.h"
#include "harness/harness.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kiln/inspect.h>

#include "base/hash.h"

static const char *program;

/* With the driver's variables as given, and nothing else that matters. */
static struct spawn tool(const char *variable, const char *home)
{
	static char setting[600];
	struct spawn spawn = { .program = program };

	snprintf(setting, sizeof(setting), "HOME=%s", home);
	spawn.variables[0] = setting;
	spawn.variables[1] = "KILN_DIR";
	spawn.variables[2] = "OPENCL_LAYERS";
	spawn.variables[3] = "XDG_CONFIG_HOME=/nowhere";
	spawn.variables[4] = "XDG_CACHE_HOME";
	spawn.variables[5] = "COLUMNS";
	spawn.variables[6] = variable;
	return spawn;
}

static struct ended ask(const char *variable, const char *home,
			const char *verb, const char *first, const char *second)
{
	struct spawn spawn = tool(variable, home);

	spawn.arguments[0] = verb;
	spawn.arguments[1] = first;
	spawn.arguments[2] = second;
	return spawn_run(&spawn);
}

/* ---- Settings ------------------------------------------------------------------ */

static const json_t *find_setting(const json_t *json, const char *name)
{
	const json_t *settings = json_object_get(json, "settings");

	for (size_t i = 0; i < json_array_size(settings); i++) {
		const json_t *setting = json_array_get(settings, i);

		if (!strcmp(json_string_value(json_object_get(setting, "name")),
			    name))
			return setting;
	}
	return NULL;
}

static void config_shows_the_variables_of_the_driver(void **state)
{
	static const struct {
		const char *variable;
		const char *name;
		const char *value;
		const char *origin;
	} rows[] = {
		{ "NEO_CACHE_MAX_SIZE=5000", "NEO_CACHE_MAX_SIZE", "5000",
		  "environment" },
		{ NULL, "NEO_CACHE_MAX_SIZE", "1G", "default" },
		{ NULL, "NEO_CACHE_DIR", "/home/u/.cache/neo_compiler_cache",
		  "$HOME/.cache" },
		{ "NEO_CACHE_DIR=/n", "NEO_CACHE_DIR", "/n", "environment" },
		{ NULL, "NEO_CACHE_PERSISTENT", "1", "default" },
		{ "BinaryCacheTrace=1", "BinaryCacheTrace", "1",
		  "environment" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct ended ended = ask(rows[i].variable, "/home/u", "config",
					 "--json", NULL);
		json_t *json = json_loads(ended.out, 0, NULL);
		const json_t *setting = find_setting(json, rows[i].name);

		assert_int_equal(status_of(&ended), 0);
		assert_string_equal(
			json_string_value(json_object_get(setting, "value")),
			rows[i].value);
		assert_string_equal(
			json_string_value(json_object_get(setting, "origin")),
			rows[i].origin);
		json_decref(json);
		ended_free(&ended);
	}
}

/* ---- Stores ----------------------------------------------------------------------- */

static struct kiln *open_neo(const char *home)
{
	struct kiln_options options;
	struct kiln *kiln;
	char *url;

	assert_true(asprintf(&url, "neo:%s/.cache/neo_compiler_cache", home) >
		    0);
	kiln_options_init(&options);
	options.store_url = url;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	assert_int_equal(kiln_store_status(kiln), KILN_OK);
	free(url);
	return kiln;
}

static void put(struct kiln *kiln, const char *front, const char *options,
		const char *variable, char out[2 * KILN_DIGEST_BYTES + 1])
{
	struct kiln_metadata *metadata = kiln_metadata_new();
	struct kiln_key *key = kiln_key_new();

	kiln_key_add_string(key, "kind", "levelzero module 1");
	kiln_key_add_string(key, "options", options);
	kiln_key_add_digest(key, "il", "spir-v", 6);
	if (variable)
		kiln_key_add_string(key, "environment IGC_TotalGRFNum",
				    variable);
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	kiln_metadata_add_string(metadata, KILN_META_FRONT, front);
	assert_int_equal(kiln_put(kiln, key, "value", 5, metadata, 0), KILN_OK);
	ki_hex(kiln_key_digest(key), KILN_DIGEST_BYTES, out);
	kiln_metadata_free(metadata);
	kiln_key_free(key);
}

static void why_names_the_field_that_differs(void **state)
{
	static const char *const fronts[] = { "levelzero", "opencl" };
	char first[2 * KILN_DIGEST_BYTES + 1], second[sizeof(first)],
		third[sizeof(first)];

	for (size_t i = 0; i < 2; i++) {
		char *home = harness_directory();
		struct kiln *kiln = open_neo(home);
		struct ended ended;

		put(kiln, fronts[i], "-DTILE=8", NULL, first);
		put(kiln, fronts[i], "-DTILE=16", NULL, second);
		put(kiln, fronts[i], "-DTILE=16", "256", third);
		kiln_close(kiln);
		ended = ask("KILN_STORE=neo:", home, "why", first, second);
		assert_int_equal(status_of(&ended), 0);
		assert_non_null(strstr(ended.out,
				       "\n  options: -DTILE=8 -> -DTILE=16\n"));
		ended_free(&ended);
		/* Alone, against the nearest. */
		ended = ask("KILN_STORE=neo:", home, "why", third, NULL);
		assert_int_equal(status_of(&ended), 0);
		second[6] = '\0';
		assert_non_null(strstr(ended.out, second));
		assert_non_null(strstr(ended.out,
				       "\n  environment IGC_TotalGRFNum: "
				       "(none) -> 256\n"));
		ended_free(&ended);
		free(home);
	}
}

static void a_store_without_directory_is_the_environments(void **state)
{
	static const char *const urls[] = { "--store=neo:", "--store=neo:#flat",
					    NULL };
	static const char *const variables[] = { NULL, NULL,
						 "KILN_STORE=neo:" };
	char *home = harness_directory(), key[2 * KILN_DIGEST_BYTES + 1];
	struct kiln *kiln = open_neo(home);

	put(kiln, "opencl", "-w", NULL, key);
	kiln_close(kiln);
	key[6] = '\0';
	for (size_t i = 0; i < sizeof(urls) / sizeof(*urls); i++) {
		struct ended ended =
			ask(variables[i], home, "ls", urls[i], NULL);

		assert_int_equal(status_of(&ended), 0);
		assert_non_null(strstr(ended.out, key));
		ended_free(&ended);
	}
	free(home);
}

static size_t n_lines(const char *text)
{
	size_t n = 0;

	while ((text = strchr(text, '\n'))) {
		text++;
		n++;
	}
	return n;
}

/* Who only looks is told and looks; who changes a store must not guess. */
static void what_is_wrong_with_variables_is_said(void **state)
{
	static const struct {
		const char *variable;
		int look, change; /* exit statuses */
		const char *words;
	} rows[] = {
		{ "NEO_CACHE_PERSISTENT=0", 5, 5, "NEO_CACHE_PERSISTENT" },
		{ "NEO_CACHE_PERSISTENT=true", 0, 0,
		  "on here; Intel's driver reads 0 and caches nothing" },
		{ "NEO_CACHE_PERSISTENT=yes", 0, 2, "Intel's driver reads 0" },
		{ "NEO_CACHE_PERSISTENT=", 0, 0, "Intel's driver reads 0" },
		{ "NEO_CACHE_PERSISTENT=1", 0, 0, NULL },
		{ "NEO_CACHE_MAX_SIZE=1GB", 0, 2, "Intel's driver reads 1 b" },
		{ "NEO_CACHE_MAX_SIZE=abc", 0, 2, "reads no limit" },
		{ "NEO_CACHE_MAX_SIZE=-1", 0, 2, "reads no limit" },
		{ "NEO_CACHE_MAX_SIZE=", 0, 0, "reads 0, no limit" },
		{ "NEO_CACHE_MAX_SIZE=0", 0, 0, NULL },
		{ "NEO_CACHE_MAX_SIZE=1M", 0, 0, "Intel's driver reads 1 b" },
		{ "NEO_CACHE_DIR=here", 2, 2, "Intel's driver begins at" },
	};
	static const struct {
		const char *verb, *option;
		int changes;
	} verbs[] = {
		{ "ls", NULL, 0 },	  { "stats", NULL, 0 },
		{ "verify", NULL, 0 },	  { "gc", NULL, 1 },
		{ "stats", "--zero", 1 },
	};
	const size_t n_verbs = sizeof(verbs) / sizeof(*verbs);
	const size_t n_rows = sizeof(rows) / sizeof(*rows);
	char *home = harness_directory(), key[2 * KILN_DIGEST_BYTES + 1];
	struct kiln *kiln = open_neo(home);

	put(kiln, "opencl", "-w", NULL, key);
	kiln_close(kiln);
	for (size_t i = 0; i < n_rows * n_verbs; i++) {
		const size_t row = i / n_verbs, verb = i % n_verbs;
		struct ended ended =
			ask(rows[row].variable, home, verbs[verb].verb,
			    "--store=neo:", verbs[verb].option);

		print_message("# %s %s\n", rows[row].variable,
			      verbs[verb].verb);
		assert_int_equal(status_of(&ended), verbs[verb].changes
							    ? rows[row].change
							    : rows[row].look);
		assert_int_equal(n_lines(ended.err), rows[row].words != NULL);
		if (rows[row].words) {
			assert_memory_equal(ended.err, "kiln: ", 6);
			assert_non_null(strstr(ended.err, rows[row].words));
		}
		if (!verb && !rows[row].look)
			assert_int_equal(n_lines(ended.out), 2);
		ended_free(&ended);
	}
	for (size_t i = 0; i < n_rows; i++) {
		struct ended ended = ask(rows[i].variable, home, "show", key,
					 "--store=neo:");

		assert_int_equal(status_of(&ended), rows[i].look);
		ended_free(&ended);
		/* Nobody asked for a store of Intel's. */
		ended = ask(rows[i].variable, home, "ls", NULL, NULL);
		assert_int_equal(status_of(&ended), 0);
		assert_string_equal(ended.err, "");
		ended_free(&ended);
	}
	free(home);
}

/* ---- Running ------------------------------------------------------------------------- */

static void a_program_gets_the_store_that_is_named(void **state)
{
	static const struct {
		const char *url;
		int status;
		const char *store;
	} rows[] = {
		{ "--store=neo:", 0, "neo:\n" },
		{ "--store=neo:#tree", 0, "neo:#tree\n" },
		{ "--store=neo:/some/where", 0, "neo:/some/where\n" },
		{ "--store=log:here#name", 0, "/here#name\n" },
		{ "--store=nonsense:/x", 0, "\n" },
	};
	char *home = harness_directory();

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct spawn spawn = tool("KILN_STORE", home);
		struct ended ended;
		size_t size = strlen(rows[i].store), got;

		spawn.arguments[0] = "run";
		spawn.arguments[1] = rows[i].url;
		spawn.arguments[2] = "--";
		spawn.arguments[3] = "sh";
		spawn.arguments[4] = "-c";
		spawn.arguments[5] = "echo \"$KILN_STORE\"";
		ended = spawn_run(&spawn);
		got = strlen(ended.out);
		assert_int_equal(status_of(&ended), rows[i].status);
		assert_true(got >= size);
		assert_string_equal(ended.out + got - size, rows[i].store);
		ended_free(&ended);
	}
	free(home);
}

/* And to the program nothing else. */
static void what_the_driver_misreads_is_said_of_a_run(void **state)
{
	char *home = harness_directory();
	struct spawn spawn = tool("NEO_CACHE_PERSISTENT=true", home);
	struct ended ended;

	spawn.variables[7] = "KILN_NO_SETTING=1";
	spawn.arguments[0] = "run";
	spawn.arguments[1] = "--store=neo:";
	spawn.arguments[2] = "--";
	spawn.arguments[3] = "true";
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 0);
	assert_string_equal(ended.out, "");
	assert_int_equal(n_lines(ended.err), 1);
	assert_non_null(strstr(ended.err, "kiln: NEO_CACHE_PERSISTENT: "));
	ended_free(&ended);
	free(home);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(config_shows_the_variables_of_the_driver),
		cmocka_unit_test(why_names_the_field_that_differs),
		cmocka_unit_test(a_store_without_directory_is_the_environments),
		cmocka_unit_test(what_is_wrong_with_variables_is_said),
		cmocka_unit_test(a_program_gets_the_store_that_is_named),
		cmocka_unit_test(what_the_driver_misreads_is_said_of_a_run),
	};

	if (argc < 2)
		return 1;
	program = argv[1];
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
