/* SPDX-License-Identifier: MIT */

/* Whatever is wrong costs a program its cache, and the log one line. */

#include "harness/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "front/guest.h"

static const struct {
	const char *name;
	const char *value; /* below the test's directory if it begins with / */
	int is_cached;
	const char *words; /* NULL: nothing is told */
} rows[] = {
	{ "NEO_CACHE_DIR", "/missing/deep", 1, NULL },
	{ "NEO_CACHE_DIR", "/file", 0, "/file: is not a directory" },
	{ "NEO_CACHE_DIR", "/open", 0, "/open: can be written by everyone" },
	{ "NEO_CACHE_DIR", "/link", 0, "/link: is a symbolic link" },
	{ "NEO_CACHE_DIR", "relative", 0, "does not begin at the root" },
	{ "NEO_CACHE_PERSISTENT", "0", 0, "NEO_CACHE_PERSISTENT turns" },
	{ "NEO_CACHE_PERSISTENT", "yes", 0, "Intel's driver reads 0" },
	{ "NEO_CACHE_PERSISTENT", "true", 1, "Intel's driver reads 0" },
	{ "NEO_CACHE_MAX_SIZE", "1GB", 0, "Intel's driver reads 1 byte" },
	{ "NEO_CACHE_MAX_SIZE", "1M", 1, "Intel's driver reads 1 byte" },
};

static size_t row;

/* The guest of a process is opened once. */
static int be_a_program(unsigned index, void *arg)
{
	char *path = harness_path(arg, rows[row].value + 1), *log, *text;
	const char *end;
	int result = 0;

	log = harness_path(arg, "log");
	setenv("HOME", arg, 1);
	setenv("KILN_LOG", log, 1);
	setenv("KILN_STORE", "neo:", 1);
	setenv(rows[row].name, *rows[row].value == '/' ? path : rows[row].value,
	       1);
	if (!!ki_guest(NULL) != rows[row].is_cached)
		result = 1;
	text = harness_read(log, NULL);
	end = text ? strchr(text, '\n') : NULL;
	if (!text != !rows[row].words)
		result = 2;
	else if (text && (!end || end[1]))
		result = 3; /* another number of lines than one */
	else if (text && !strstr(text, rows[row].words))
		result = 4;
	free(text);
	free(log);
	free(path);
	return result;
}

static void what_the_drivers_variables_say_costs_one_line(void **state)
{
	static const char *const variables[] = {
		"KILN_DIR",	      "KILN_CONFIG",	     "XDG_CONFIG_HOME",
		"XDG_CACHE_HOME",     "NEO_CACHE_DIR",	     "KILN_MAX_SIZE",
		"NEO_CACHE_MAX_SIZE", "NEO_CACHE_PERSISTENT"
	};

	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		unsetenv(variables[i]);
	for (row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		char *directory = harness_directory();
		char *file = harness_path(directory, "file"),
		     *open = harness_path(directory, "open"),
		     *link = harness_path(directory, "link");

		print_message("# %s=%s\n", rows[row].name, rows[row].value);
		harness_write(file, "", 0);
		if (mkdir(open, 0700) || chmod(open, 0777) ||
		    symlink(directory, link))
			abort();
		assert_int_equal(
			harness_processes(1, be_a_program, directory, 30), 0);
		free(file);
		free(open);
		free(link);
		free(directory);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_the_drivers_variables_say_costs_one_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
