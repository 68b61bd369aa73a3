/* SPDX-License-Identifier: MIT */

/*
 * The layer and what belongs to devices and vendors (tests/opencl/devices.c):
 * each script prints the same natively, cold, while it is captured, and warm.
 */

#include "harness/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "opencl/place.h"

struct row {
	const char *name;
	const char *script;
	const char *options;
	const char *switches;
	unsigned n_from_source; /* builds of this kind when warm */
	unsigned n_from_binary;
};

static const struct row rows[] = {
	{ "vendors' functions that are given a program", "vendors", "-DK=2",
	  NULL, 0, 2 },
	{ "an unknown extension after a known one", "vendors-late", "-DK=2",
	  NULL, 1, 1 },
	{ "an unknown extension late", "unknown-late", "-DK=2", NULL, 4, 3 },
	{ "some of the devices", "some-devices", "-DK=2", "DEVICES=2", 8, 2 },
	{ "some of the devices, which answer for all", "some-devices", "-DK=2",
	  "DEVICES=2 WHOLE_BUILDS=1", 8, 2 },
	{ "no options, and empty ones", "no-options", "", NULL, 0, 4 },
	{ "some fail", "some-fail", "-DK=2", "DEVICES=2", 4, 1 },
	{ "some fail, for all", "some-fail", "-DK=2",
	  "DEVICES=2 WHOLE_BUILDS=1", 4, 1 },
	{ "one of two devices", "one-of-two", "-DK=2", "DEVICES=2", 0, 3 },
	{ "one of two, alone", "one-of-two", "-DK=2",
	  "DEVICES=2 WHOLE_BUILDS=1", 0, 3 },
	{ "one of two devices of different names", "one-of-two", "-DK=2",
	  "DEVICES=2 NAMES=first,second", 0, 3 },
	{ "one device after the other's notification (S57)", "built-within",
	  "-DK=2", "DEVICES=2", 2, 1 },
	{ "two equal parts of a device", "equal-parts", "-DK=2", NULL, 0, 2 },
	{ "two equal parts, which programs hold", "equal-parts", "-DK=2",
	  "HOLD_DEVICES=1", 0, 2 },
	{ "one part of a device", "counted-part", "-DK=2", NULL, 0, 2 },
	{ "one part, which programs hold", "counted-part", "-DK=2",
	  "HOLD_DEVICES=1", 0, 2 },
	{ "many contexts, released first", "many-contexts", "-DK=2", NULL, 0,
	  4 },
};

static void a_program_cannot_tell(void **state)
{
	const struct row *row = *state;
	struct place place;
	char *native, *cold, *warm;
	int n_living;

	place_init(&place);
	set_all(&place, row->switches);
	native = run(&place, 0, row->script, row->options);
	n_living = living(&place);
	assert_non_null(strstr(native, "exit 0\n"));
	cold = run(&place, 1, row->script, row->options);
	same(native, cold);
	assert_true(lets_go(&place, n_living));
	prime_with(&place, row->script, row->options);
	warm = run(&place, 1, row->script, row->options);
	same(native, warm);
	assert_true(lets_go(&place, n_living));
	if (calls(&place, "build-source") != row->n_from_source ||
	    calls(&place, "build-binary") != row->n_from_binary)
		print_error("%u from source, %u from binary\n",
			    calls(&place, "build-source"),
			    calls(&place, "build-binary"));
	assert_int_equal(calls(&place, "build-source"), row->n_from_source);
	assert_int_equal(calls(&place, "build-binary"), row->n_from_binary);
	free(native);
	free(cold);
	free(warm);
	place_fini(&place);
}

/* A part differs from the whole in nothing that binaries depend on. */
static void an_entry_of_the_whole_serves_a_part(void **state)
{
	struct place place;
	char *native, *warm;

	place_init(&place);
	native = run(&place, 0, "counted-part", "-DK=2");
	prime(&place, "-DK=2");
	warm = run(&place, 1, "counted-part", "-DK=2");
	same(native, warm);
	assert_int_equal(calls(&place, "build-source"), 0);
	assert_int_equal(calls(&place, "build-binary"), 2);
	free(native);
	free(warm);
	place_fini(&place);
}

/* S06: what an entry answers for is never made of another file in its place. */
static void a_header_that_changes_later_changes_nothing(void **state)
{
	static const struct {
		const char *script, *switches;
		unsigned n_hits;
	} runs[] = {
		{ "header-changed", NULL, 2 },
		{ "header-changed", "POOR_BINARIES=0", 2 },
		{ "header-changed-between", "DEVICES=2", 0 },
	};
	size_t i;

	for (i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		struct place place;
		char *native, *cold, *warm, *options;

		place_init(&place);
		set_all(&place, runs[i].switches);
		assert_true(asprintf(&options, "-I%s", place.directory) > 0);
		native = run(&place, 0, runs[i].script, options);
		assert_non_null(strstr(native, "exit 0\n"));
		cold = run(&place, 1, runs[i].script, options);
		same(native, cold);
		prime_with(&place, runs[i].script, options);
		warm = run(&place, 1, runs[i].script, options);
		same(native, warm);
		assert_int_equal(counter(&place, KILN_COUNT_HITS_STORE),
				 runs[i].n_hits);
		free(native);
		free(cold);
		free(warm);
		free(options);
		place_fini(&place);
	}
}

/* ---- A real driver ------------------------------------------------------- */

static const struct row pocl_rows[] = {
	{ "PoCL: some of the devices", "some-devices", "-DK=2", NULL, 8, 2 },
	{ "PoCL: no options, and empty ones", "no-options", "", NULL, 0, 4 },
	{ "PoCL: one of two devices", "one-of-two", "-DK=2", NULL, 0, 3 },
	/* Its programs have the whole; a build for a part is all its own. */
	{ "PoCL: two equal parts", "equal-parts", "-DK=2", "pthread", 0, 1 },
	{ "PoCL: many contexts", "many-contexts", "-DK=2", "pthread", 0, 4 },
};

static char *run_on_pocl(struct place *place, int with_layer,
			 const struct row *row)
{
	char *cache = harness_path(place->directory, "pocl"), *text;

	assert_int_equal(mkdir(cache, 0700), 0);
	set(place, "POCL_CACHE_DIR", cache);
	text = run(place, with_layer, row->script, row->options);
	harness_remove(cache);
	free(cache);
	return text;
}

/* Every run finds PoCL's own cache empty. */
static void on_pocl_too(void **state)
{
	const struct row *row = *state;
	struct place place;
	char *native, *cold, *warm;
	uint64_t n_hits;

	place_init(&place);
	set(&place, "OCL_ICD_VENDORS", "pocl.icd");
	set(&place, "POCL_DEVICES",
	    row->switches ? row->switches : "pthread basic");
	native = run_on_pocl(&place, 0, row);
	/* No PoCL here, or no processor to split. */
	if (strstr(native, "exit 2\n") || strstr(native, "parts: 0\n")) {
		free(native);
		place_fini(&place);
		HARNESS_LEAVE_OUT("no such devices here");
	}
	set(&place, "KILN_TEST_CAPTURE", "1");
	cold = run_on_pocl(&place, 1, row);
	same(native, cold);
	n_hits = counter(&place, KILN_COUNT_HITS_STORE);
	unset(&place, "KILN_TEST_CAPTURE");
	warm = run_on_pocl(&place, 1, row);
	same(native, warm);
	assert_int_equal(counter(&place, KILN_COUNT_HITS_STORE) - n_hits,
			 row->n_from_binary);
	assert_int_equal(counter(&place, KILN_COUNT_MISS_REFUSED), 0);
	free(native);
	free(cold);
	free(warm);
	place_fini(&place);
}

int main(int argc, char **argv)
{
	enum {
		N_ROWS = sizeof(rows) / sizeof(rows[0]),
		N_POCL_ROWS = sizeof(pocl_rows) / sizeof(pocl_rows[0]),
	};
	struct CMUnitTest tests[N_ROWS + 2], pocl_tests[N_POCL_ROWS];
	size_t i;

	for (i = 0; i < N_POCL_ROWS; i++)
		pocl_tests[i] = (struct CMUnitTest){
			.name = pocl_rows[i].name,
			.test_func = on_pocl_too,
			.initial_state = (void *)&pocl_rows[i],
		};
	if (argc > 1 && !strcmp(argv[1], "pocl"))
		return cmocka_run_group_tests_name("opencl-devices-pocl",
						   pocl_tests, NULL, NULL);
	for (i = 0; i < N_ROWS; i++)
		tests[i] = (struct CMUnitTest){
			.name = rows[i].name,
			.test_func = a_program_cannot_tell,
			.initial_state = (void *)&rows[i],
		};
	tests[i++] = (struct CMUnitTest)cmocka_unit_test(
		an_entry_of_the_whole_serves_a_part);
	tests[i] = (struct CMUnitTest)cmocka_unit_test(
		a_header_that_changes_later_changes_nothing);
	return cmocka_run_group_tests_name("opencl-devices", tests, NULL, NULL);
}
