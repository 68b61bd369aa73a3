/* SPDX-License-Identifier: MIT */

/* The environment of Intel's compiler: in the key, or no cache. */

#include "harness/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front/neo.h"
#include "front/opencl/driver.h"

static void forget_all(void)
{
	for (size_t i = 0; ki_neo_code_variables[i]; i++)
		unsetenv(ki_neo_code_variables[i]);
	unsetenv("IGC_Surprise");
	unsetenv("IGC_TotalGRFNum2");
	unsetenv("IGC_");
}

static void what_is_in_the_key_is_no_surprise(void **state)
{
	forget_all();
	assert_false(ki_neo_is_unknown_set());
	for (size_t i = 0; ki_neo_code_variables[i]; i++) {
		setenv(ki_neo_code_variables[i], "1", 1);
		assert_false(ki_neo_is_unknown_set());
	}
	forget_all();
}

static void any_other_of_igc_ends_caching(void **state)
{
	static const char *const rows[] = { "IGC_Surprise", "IGC_TotalGRFNum2",
					    "IGC_" };

	forget_all();
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		setenv(rows[i], "1", 1);
		assert_true(ki_neo_is_unknown_set());
		forget_all();
		assert_false(ki_neo_is_unknown_set());
	}
}

/* What NEO reads without NEOReadDebugKeys. */
static void what_changes_code_is_known(void **state)
{
	static const char *const rows[] = {
		"IGC_VISAOptions",    "IGC_TotalGRFNum",
		"NEO_FP64_EMULATION", "OverrideDefaultFP64Settings",
		"ForceOCLVersion",    "ONEAPI_PVC_SEND_WAR_WA",
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		size_t n = 0;

		while (ki_neo_code_variables[n] &&
		       strcmp(ki_neo_code_variables[n], rows[i]) != 0)
			n++;
		assert_non_null(ki_neo_code_variables[n]);
	}
}

static void the_opencl_driver_has_the_same_variables(void **state)
{
	const struct ki_cl_driver_row *row =
		ki_cl_driver_of_library("libigdrcl.so");

	assert_true(ki_cl_driver_is_known(row));
	assert_ptr_equal(row->driver.code_variables, ki_neo_code_variables);
	assert_ptr_equal(row->refused_variables, ki_neo_refused_variables);
	assert_ptr_equal(row->parts, ki_neo_parts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_in_the_key_is_no_surprise),
		cmocka_unit_test(any_other_of_igc_ends_caching),
		cmocka_unit_test(what_changes_code_is_known),
		cmocka_unit_test(the_opencl_driver_has_the_same_variables),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
