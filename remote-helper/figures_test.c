/* SPDX-License-Identifier: MIT */

#include "harness/harness.h"

#include "figures.h"

static void a_percentile_is_near_and_never_too_small(void **state)
{
	static const uint64_t rows[] = {
		0,   1,	   2,	 3,	 4,	 5,	  7,	   100,
		999, 1000, 4097, 123456, 777777, 2000000, 60000000
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct figures figures = { 0 };
		uint64_t ns = rows[i] * 1000, got;

		figures_time(&figures, ns);
		got = figures_percentile_ns(&figures, 50);
		assert_true(got > ns);
		assert_true(rows[i] < 4 || got <= ns + ns / 4);
		assert_int_equal(got, figures_percentile_ns(&figures, 99));
	}
}

static void percentiles_are_of_all(void **state)
{
	struct figures figures = { 0 };

	assert_int_equal(figures_percentile_ns(&figures, 99), 0);
	for (unsigned i = 1; i <= 1000; i++)
		figures_time(&figures, (uint64_t)i * 1000000);
	assert_in_range(figures_percentile_ns(&figures, 50) / 1000000, 500,
			625);
	assert_in_range(figures_percentile_ns(&figures, 99) / 1000000, 990,
			1240);
	assert_int_equal(figures.least_ns, 1000000);
}

static void what_takes_for_ever_is_counted(void **state)
{
	struct figures figures = { 0 };

	figures_time(&figures, UINT64_MAX);
	assert_true(figures_percentile_ns(&figures, 50) > 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_percentile_is_near_and_never_too_small),
		cmocka_unit_test(percentiles_are_of_all),
		cmocka_unit_test(what_takes_for_ever_is_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
