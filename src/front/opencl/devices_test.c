/* SPDX-License-Identifier: MIT */

/*
 * The layer and what belongs to devices and vendors (tests/opencl/devices.c):
 * each script prints the same natively, cold, while it is captured, and warm.
 */

#include "harness/harness.h"

#include <stdlib.h>
#include <string.h>

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
};

static void a_program_cannot_tell(void **state)
{
	const struct row *row = *state;
	struct place place;
	char *native, *cold, *warm;

	place_init(&place);
	set_all(&place, row->switches);
	native = run(&place, 0, row->script, row->options);
	assert_non_null(strstr(native, "exit 0\n"));
	cold = run(&place, 1, row->script, row->options);
	same(native, cold);
	prime_with(&place, row->script, row->options);
	warm = run(&place, 1, row->script, row->options);
	same(native, warm);
	assert_int_equal(calls(&place, "build-source"), row->n_from_source);
	assert_int_equal(calls(&place, "build-binary"), row->n_from_binary);
	free(native);
	free(cold);
	free(warm);
	place_fini(&place);
}

int main(void)
{
	enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };
	struct CMUnitTest tests[N_ROWS];
	size_t i;

	for (i = 0; i < N_ROWS; i++)
		tests[i] = (struct CMUnitTest){
			.name = rows[i].name,
			.test_func = a_program_cannot_tell,
			.initial_state = (void *)&rows[i],
		};
	return cmocka_run_group_tests_name("opencl-devices", tests, NULL, NULL);
}
