/* SPDX-License-Identifier: MIT */

#include "harness/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/neo/environment.h"

#define HOME "HOME=/home/u"
#define GIB  ((uint64_t)1 << 30)

/* Read by value: the directory and more are in there. */
static struct ki_neo_environment *read_them(const char *const *variables)
{
	struct ki_neo_environment *environment = malloc(sizeof(*environment));

	if (!environment)
		abort();
	ki_neo_environment_read(variables, environment);
	return environment;
}

static int has_line(const struct ki_neo_environment *environment,
		    const char *words)
{
	for (size_t i = 0; i < environment->n_lines; i++)
		if (strstr(environment->lines[i], words))
			return 1;
	return 0;
}

static void defaults_are_those_of_the_driver(void **state)
{
	const char *const variables[] = { HOME, NULL };
	struct ki_neo_environment *environment = read_them(variables);

	assert_false(environment->is_wrong);
	assert_int_equal(environment->n_lines, 0);
	assert_true(environment->is_on);
	assert_int_equal(environment->bytes_max, GIB);
	assert_false(environment->keeps_stats);
	assert_false(environment->traces);
	assert_false(environment->messages);
	free(environment);
}

static void the_directory_is_chosen_as_the_driver_does(void **state)
{
	static const struct {
		const char *variables[4];
		const char *directory;
		const char *why;
	} rows[] = {
		{ { HOME },
		  "/home/u/.cache/neo_compiler_cache",
		  "$HOME/.cache" },
		{ { HOME, "XDG_CACHE_HOME=/x" },
		  "/x/neo_compiler_cache",
		  "$XDG_CACHE_HOME" },
		{ { "HOME=/home/u/" },
		  "/home/u/.cache/neo_compiler_cache",
		  "$HOME/.cache" },
		{ { HOME, "XDG_CACHE_HOME=/x/" },
		  "/x/neo_compiler_cache",
		  "$XDG_CACHE_HOME" },
		{ { HOME, "XDG_CACHE_HOME=/x", "NEO_CACHE_DIR=/n" },
		  "/n",
		  "NEO_CACHE_DIR" },
		{ { "NEO_CACHE_DIR=/n/m//" }, "/n/m", "NEO_CACHE_DIR" },
		{ { HOME, "XDG_CACHE_HOME=", "NEO_CACHE_DIR=" },
		  "/home/u/.cache/neo_compiler_cache",
		  "$HOME/.cache" },
		{ { HOME, "XDG_CACHE_HOME=x" },
		  "/home/u/.cache/neo_compiler_cache",
		  "$HOME/.cache" },
		{ { "HOME=/" }, "", "none" },
		{ { NULL }, "", "none" },
		{ { HOME, "NEO_CACHE_PERSISTENT=0" },
		  "",
		  "NEO_CACHE_PERSISTENT" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ki_neo_environment *environment =
			read_them(rows[i].variables);

		assert_string_equal(environment->directory, rows[i].directory);
		assert_non_null(strstr(environment->why, rows[i].why));
		free(environment);
	}
}

/* What the driver makes of each, and what kiln does. */
static void what_the_driver_misreads_is_told(void **state)
{
	static const struct {
		const char *variable;
		int is_wrong;
		int is_on;
		uint64_t bytes_max;
		const char *words; /* NULL: nothing is to be told */
		const char *theirs;
	} rows[] = {
		{ "NEO_CACHE_PERSISTENT=1", 0, 1, GIB, NULL, NULL },
		{ "NEO_CACHE_PERSISTENT=0", 0, 0, GIB, NULL, NULL },
		{ "NEO_CACHE_PERSISTENT=false", 0, 0, GIB, NULL, NULL },
		{ "NEO_CACHE_PERSISTENT=off", 0, 0, GIB, NULL, NULL },
		{ "NEO_CACHE_PERSISTENT=true", 0, 1, GIB, "on here",
		  "reads 0 and caches nothing" },
		{ "NEO_CACHE_PERSISTENT=on", 0, 1, GIB, "on here",
		  "reads 0 and caches nothing" },
		{ "NEO_CACHE_PERSISTENT=", 0, 1, GIB, "counts as unset",
		  "reads 0 and caches nothing" },
		{ "NEO_CACHE_PERSISTENT=yes", 1, 1, GIB, "not a yes or no",
		  "reads 0 and caches nothing" },
		{ "NEO_CACHE_PERSISTENT=2", 1, 1, GIB, "not a yes or no",
		  "reads 2 and caches" },
		{ "NEO_CACHE_MAX_SIZE=1000", 0, 1, 1000, NULL, NULL },
		{ "NEO_CACHE_MAX_SIZE=0", 0, 1, 0, NULL, NULL },
		{ "NEO_CACHE_MAX_SIZE=1G", 0, 1, GIB, "1.00 GiB here",
		  "reads 1 byte;" },
		{ "NEO_CACHE_MAX_SIZE=512M", 0, 1, 512 << 20, "512.0 MiB here",
		  "reads 512 bytes" },
		{ "NEO_CACHE_MAX_SIZE=18446744073709551615", 0, 1, UINT64_MAX,
		  "here", "reads 9223372036854775807 bytes" },
		{ "NEO_CACHE_MAX_SIZE=", 0, 1, GIB, "counts as unset",
		  "no limit" },
		{ "NEO_CACHE_MAX_SIZE=1GB", 1, 1, GIB, "not a size",
		  "reads 1 byte)" },
		{ "NEO_CACHE_MAX_SIZE=abc", 1, 1, GIB, "not a size",
		  "reads no limit" },
		{ "NEO_CACHE_MAX_SIZE=-1", 1, 1, GIB, "not a size",
		  "reads no limit" },
		{ "NEO_CACHE_MAX_SIZE=1e9", 1, 1, GIB, "not a size",
		  "reads 1 byte)" },
		{ "NEO_CACHE_DIR=here", 1, 1, GIB, "does not begin at the root",
		  "working directory" },
		{ "XDG_CACHE_HOME=here", 0, 1, GIB, "passed over", "here" },
		{ "NEO_CACHE_STATS=yes", 0, 1, GIB, "not a yes or no",
		  "counts as unset" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *const variables[] = { HOME, rows[i].variable,
						  NULL };
		struct ki_neo_environment *environment = read_them(variables);
		const size_t size = strcspn(rows[i].variable, "=");

		assert_int_equal(environment->is_wrong, rows[i].is_wrong);
		assert_int_equal(environment->is_on, rows[i].is_on);
		assert_int_equal(environment->bytes_max, rows[i].bytes_max);
		assert_int_equal(environment->n_lines,
				 rows[i].words && !rows[i].is_wrong);
		if (rows[i].is_wrong) {
			assert_memory_equal(environment->wrong,
					    rows[i].variable, size);
			assert_non_null(
				strstr(environment->wrong, rows[i].words));
			assert_non_null(
				strstr(environment->wrong, rows[i].theirs));
		} else if (rows[i].words) {
			assert_memory_equal(environment->lines[0],
					    rows[i].variable, size);
			assert_true(has_line(environment, rows[i].words));
			assert_true(has_line(environment, rows[i].theirs));
		}
		free(environment);
	}
}

/*
 * Seven values that people write, in each variable: what holds here (-: nothing is
 * cached), and the words of the line, if there is one, with what the driver reads.
 */
static void what_people_write_is_read_or_told(void **state)
{
	static const char *const values[] = { "true", "1GB", "abc", "",
					      "0",    "1",   "-1" };
	static const struct {
		const char *variable;
		const char *held; /* by letters, one for each value */
		const char *words[7];
	} rows[] = {
		{ "NEO_CACHE_PERSISTENT",
		  "1--101-",
		  { "on here; Intel's driver reads 0 and caches nothing",
		    "not a yes or no, and nothing is cached here; use 1 or 0 "
		    "(Intel's driver reads 1 and caches)",
		    "(Intel's driver reads 0 and caches nothing)",
		    "counts as unset here; Intel's driver reads 0 and caches "
		    "nothing",
		    NULL, NULL, "(Intel's driver reads -1 and caches)" } },
		{ "NEO_CACHE_MAX_SIZE",
		  "---g01-",
		  { "(Intel's driver reads no limit)",
		    "not a size, and nothing is cached here; use a number of "
		    "bytes (Intel's driver reads 1 byte)",
		    "(Intel's driver reads no limit)",
		    "counts as unset here, which is 1G; Intel's driver reads 0",
		    NULL, NULL, "(Intel's driver reads no limit)" } },
		{ "NEO_CACHE_DIR",
		  "---h---",
		  { "root", "root", "root", NULL, "root", "root", "root" } },
		{ "NEO_CACHE_STATS",
		  "1000010",
		  { NULL, "counts as unset", "counts as unset", NULL, NULL,
		    NULL, "counts as unset" } },
		{ "BinaryCacheTrace",
		  "1000010",
		  { NULL, "counts as unset", "counts as unset", NULL, NULL,
		    NULL, "counts as unset" } },
		{ "PrintDebugMessages",
		  "1000010",
		  { NULL, "counts as unset", "counts as unset", NULL, NULL,
		    NULL, "counts as unset" } },
		{ "NEOReadDebugKeys",
		  "1111011",
		  { NULL, "counts as unset", "counts as unset", NULL, NULL,
		    NULL, "counts as unset" } },
	};
	const size_t n_values = sizeof(values) / sizeof(values[0]);

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) * n_values; i++) {
		const size_t row = i / n_values, v = i % n_values;
		const char *words = rows[row].words[v], *line;
		char variable[64], held;
		const char *const variables[] = { HOME, variable,
						  row == 6 ? "BinaryCacheTrace"
							     "=1"
							   : NULL,
						  NULL };
		struct ki_neo_environment *found;

		snprintf(variable, sizeof(variable), "%s=%s",
			 rows[row].variable, values[v]);
		print_message("# %s\n", variable);
		found = read_them(variables);
		held = row == 0	  ? (char)('0' + found->is_on)
		       : row == 1 ? (char)(found->bytes_max == GIB
						   ? 'g'
						   : '0' + found->bytes_max)
		       : row == 2 ? (char)(*found->directory ? 'h' : '-')
		       : row == 3 ? (char)('0' + found->keeps_stats)
		       : row == 5 ? (char)('0' + found->messages)
				  : (char)('0' + found->traces);
		assert_int_equal(found->is_wrong ? '-' : held,
				 rows[row].held[v]);
		assert_int_equal(found->n_lines + (size_t)found->is_wrong,
				 words != NULL);
		line = found->is_wrong ? found->wrong : found->lines[0];
		if (words) {
			assert_memory_equal(line, variable,
					    strlen(rows[row].variable));
			assert_non_null(strstr(line, words));
		}
		free(found);
	}
}

static void a_long_value_is_refused_and_cut_in_the_line(void **state)
{
	static char longest[6000] = "NEO_CACHE_DIR=/";
	const char *const variables[] = { HOME, longest, NULL };
	struct ki_neo_environment *environment;

	memset(longest + strlen(longest), 'x', 5000);
	environment = read_them(variables);
	assert_true(environment->is_wrong);
	assert_non_null(strstr(environment->wrong, "is too long"));
	assert_string_equal(environment->directory, "");
	free(environment);
}

static void debug_keys_are_read_unless_forbidden(void **state)
{
	static const struct {
		const char *variables[4];
		int traces;
		int messages;
	} rows[] = {
		{ { "BinaryCacheTrace=1" }, 1, 0 },
		{ { "PrintDebugMessages=1" }, 0, 1 },
		{ { "BinaryCacheTrace=0", "PrintDebugMessages=0" }, 0, 0 },
		{ { "BinaryCacheTrace=1", "PrintDebugMessages=1",
		    "NEOReadDebugKeys=1" },
		  1,
		  1 },
		{ { "BinaryCacheTrace=1", "PrintDebugMessages=1",
		    "NEOReadDebugKeys=0" },
		  0,
		  0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ki_neo_environment *environment =
			read_them(rows[i].variables);

		assert_int_equal(environment->traces, rows[i].traces);
		assert_int_equal(environment->messages, rows[i].messages);
		free(environment);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_are_those_of_the_driver),
		cmocka_unit_test(the_directory_is_chosen_as_the_driver_does),
		cmocka_unit_test(what_the_driver_misreads_is_told),
		cmocka_unit_test(what_people_write_is_read_or_told),
		cmocka_unit_test(a_long_value_is_refused_and_cut_in_the_line),
		cmocka_unit_test(debug_keys_are_read_unless_forbidden),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
