/* SPDX-License-Identifier: MIT */

/* Directories that drivers wrote; the test says so where there are none. */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "store/neo/helpers_test.h"

static void what_drivers_wrote_is_looked_at_and_left_alone(void **state)
{
	static const char *const names[] = { "neo_25.05_flat",
					     "neo_head_2026-08_tree",
					     "ocloc_22.43_debian12" };
	const char *root = getenv("KILN_TEST_NEO_DATA");

	if (!root || access(root, R_OK)) {
		print_message("# not tried: no real directories here "
			      "(KILN_TEST_NEO_DATA)\n");
		return;
	}
	for (unsigned i = 0; i < 3; i++) {
		char *directory = harness_path(root, names[i]);
		struct kiln_tier *tier = open_with(
			&ki_sys_posix, directory, 0,
			KILN_OPEN_READONLY | KILN_OPEN_ANY_OWNER, NULL);
		struct kiln_verify_report report;
		struct kiln_cursor cursor = { { 0 } };
		struct kiln_entry entry;

		assert_int_equal(neo_of(tier)->layout,
				 i == 1 ? KILN_NEO_TREE : KILN_NEO_FLAT);
		assert_int_equal(
			tier->ops->verify(tier, 0, NULL, NULL, &report),
			KILN_OK);
		assert_int_equal(report.n_damaged, 0);
		assert_int_equal(bytes_of(tier), i == 2 ? 0 : 7184);
		assert_int_equal(tier->ops->list(tier, &cursor, &entry),
				 KILN_END);
		tier->ops->close(tier);
		free(directory);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			what_drivers_wrote_is_looked_at_and_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
