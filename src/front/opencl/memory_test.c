/* SPDX-License-Identifier: MIT */

/*
 * S44: memory that runs out inside the layer is no reason for a program to see
 * anything else than natively, and none of the driver's programs are left over.
 * Each script runs as often as the layer asks for memory (tests/opencl/starve.c).
 */

#include "harness/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "opencl/place.h"

static const char *step = "1";

struct row {
	const char *name;
	const char *script;
	const char *switches;
	int is_warm, is_lasting;
};

static const struct row rows[] = {
	{ "all of one program, warm, one fails", "everything", NULL, 1, 0 },
	{ "all of one program, warm, the rest fail", "everything", NULL, 1, 1 },
	{ "all of one program, cold, one fails", "everything", NULL, 0, 0 },
	{ "all of one program, cold, the rest fail", "everything", NULL, 0, 1 },
	{ "compiled and linked, warm, one fails", "separate-asked", NULL, 1,
	  0 },
	{ "compiled and linked, warm, the rest fail", "separate-asked", NULL, 1,
	  1 },
	{ "compiled and linked, cold, one fails", "separate-asked", NULL, 0,
	  0 },
	{ "compiled and linked, cold, the rest fail", "separate-asked", NULL, 0,
	  1 },
	{ "notified from threads, warm, one fails", "separate-notified",
	  "ASYNC=1", 1, 0 },
	{ "notified from threads, cold, the rest fail", "separate-notified",
	  "ASYNC=1", 0, 1 },
	{ "an extension comes late, warm, one fails", "unknown-late", NULL, 1,
	  0 },
	{ "an extension comes late, warm, the rest fail", "unknown-late", NULL,
	  1, 1 },
	{ "IL and its constants, warm, one fails", "il", NULL, 1, 0 },
	{ "IL and its constants, warm, the rest fail", "il", NULL, 1, 1 },
	{ "variables of what is linked, warm, one fails", "linked-counting",
	  NULL, 1, 0 },
	{ "vendors' functions, warm, one fails", "vendors", NULL, 1, 0 },
	{ "one of two devices, warm, one fails", "one-of-two", "DEVICES=2", 1,
	  0 },
	{ "one of two devices, warm, the rest fail", "one-of-two", "DEVICES=2",
	  1, 1 },
	{ "binaries, warm, one fails", "binaries", NULL, 1, 0 },
};

/* Let the program run as long as something fails. */
static void starve(struct place *place, const char *directory,
		   const struct row *row)
{
	char *how, *text;

	assert_true(asprintf(&how, "%s %s %d", directory, step,
			     row->is_lasting) > 0);
	set(place, "KILN_TEST_STARVE", how);
	if (getenv("KILN_TEST_STARVE_WHERE"))
		set(place, "KILN_TEST_STARVE_WHERE", "1");
	if (!row->is_warm) {
		set(place, "KILN_TEST_STARVE_STORE", "1");
		set(place, "KILN_TEST_CAPTURE", "1");
	} else {
		set(place, "KILN_READONLY", "1");
	}
	text = run_program(place, getenv("KILN_TEST_CALLS_PROGRAM"),
			   getenv("KILN_TEST_STARVED_LAYER"), row->script,
			   "-DK=2");
	assert_string_equal(text, "exit 0\n");
	free(text);
	free(how);
}

/* Where kernels of a shadow have been, no other program can make the next one:
   without memory there is none, nor a link of what cannot be compiled for it.
   The program is told so. */
static int is_told(const char *native, const char *line)
{
	static const char told[] = ": -6\n";
	const char *colon = strchr(line, ':');
	size_t size = colon ? (size_t)(colon - line) : 0;

	return size && !strncmp(colon, told, strlen(told)) &&
	       !strncmp(native, line, size) &&
	       (!strncmp(line, "kernel", 6) || !strncmp(line, "link", 4));
}

/* Whether a round printed what the program prints natively. */
static int is_same(const char *directory, const char *native,
		   unsigned long round, int status)
{
	char name[64], *path, *text;
	size_t size = strlen(native) - strlen("exit 0\n"), i = 0, start;
	int same;

	snprintf(name, sizeof(name), "%lu.out", round);
	path = harness_path(directory, name);
	text = harness_read(path, NULL);
	assert_non_null(text);
	same = !status && strlen(text) == size && !memcmp(text, native, size);
	while (!same && i < size && text[i] == native[i])
		i++;
	for (start = i; start && native[start - 1] != '\n'; start--)
		;
	same = same || is_told(native + start, text + start);
	if (!same)
		print_error("%lu: status %d: expected %.*s; got %.*s\n", round,
			    status, (int)strcspn(native + start, "\n"),
			    native + start, (int)strcspn(text + start, "\n"),
			    text + start);
	free(text);
	free(path);
	return same;
}

/* Whether the driver has no more programs in the end than natively. */
static int is_clean(struct place *place, const char *directory,
		    unsigned long round, int n_native)
{
	char name[64], *before = place->calls;
	int ok;

	snprintf(name, sizeof(name), "%lu.calls", round);
	place->calls = harness_path(directory, name);
	ok = lets_go(place, n_native);
	free(place->calls);
	place->calls = before;
	if (!ok)
		print_error("%lu: programs are left\n", round);
	return ok;
}

static void a_program_cannot_tell(void **state)
{
	const struct row *row = *state;
	struct place place;
	char *native, *directory, *path, *text, *line, *save;
	int n_native, n_wrong = 0, status, n_rounds = 0;
	unsigned long round;

	place_init(&place);
	directory = harness_path(place.directory, "rounds");
	assert_int_equal(mkdir(directory, 0700), 0);
	set(&place, "KILN_TEST_ICD_EXTENSION_FUNCTIONS", "clNobodyKnowsKILN");
	set_all(&place, row->switches);
	native = run(&place, 0, row->script, "-DK=2");
	n_native = living(&place);
	assert_non_null(strstr(native, "exit 0\n"));
	if (row->is_warm) {
		set(&place, "KILN_TEST_CAPTURE", "1");
		free(run(&place, 1, row->script, "-DK=2"));
		unset(&place, "KILN_TEST_CAPTURE");
	}
	starve(&place, directory, row);
	path = harness_path(directory, "rounds");
	text = save = harness_read(path, NULL);
	while ((line = strsep(&save, "\n")) && *line) {
		assert_int_equal(sscanf(line, "%lu %d", &round, &status), 2);
		n_wrong += !is_same(directory, native, round, status) ||
			   !is_clean(&place, directory, round, n_native);
		n_rounds++;
	}
	assert_true(n_rounds > 1);
	if (n_wrong)
		print_error("%d of %d rounds are wrong, in %s\n", n_wrong,
			    n_rounds, directory);
	assert_int_equal(n_wrong, 0);
	free(text);
	free(path);
	free(native);
	free(directory);
	place_fini(&place);
}

int main(int argc, char **argv)
{
	enum { N = sizeof(rows) / sizeof(rows[0]) };
	struct CMUnitTest tests[N];
	size_t i;

	if (argc > 1)
		step = argv[1];
	for (i = 0; i < N; i++)
		tests[i] = (struct CMUnitTest){
			.name = rows[i].name,
			.test_func = a_program_cannot_tell,
			.initial_state = (void *)(uintptr_t)&rows[i]
		};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
