/* SPDX-License-Identifier: MIT */

#include "harness/harness.h"

#include "store/evict.h"

/* S47 */
static void the_least_recently_used_go_until_it_fits(void **state)
{
	static const struct row {
		const char *name;
		uint64_t bytes_max;
		int64_t used_before;
		size_t n;
		uint64_t ids[4];
	} rows[] = {
		{ "everything fits", 100, INT64_MIN, 0, { 0 } },
		{ "exactly fits", 10, INT64_MIN, 0, { 0 } },
		{ "one byte over: the oldest", 9, INT64_MIN, 1, { 7 } },
		{ "ties go by id", 6, INT64_MIN, 2, { 7, 3 } },
		{ "nothing may stay", 0, INT64_MIN, 4, { 7, 3, 5, 1 } },
		{ "too old goes though it fits", 100, 2, 1, { 7 } },
		{ "both rules", 3, 2, 3, { 7, 3, 5 } },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ki_evictable entries[] = {
			{ .bytes = 3, .used_ns = 9, .id = 1 },
			{ .bytes = 3, .used_ns = 2, .id = 5 },
			{ .bytes = 3, .used_ns = 2, .id = 3 },
			{ .bytes = 1, .used_ns = -4, .id = 7 },
		};
		size_t n = ki_evict_choose(entries, 4, rows[i].bytes_max,
					   rows[i].used_before);

		if (n != rows[i].n)
			fail_msg("%s: %zu instead of %zu", rows[i].name, n,
				 rows[i].n);
		for (size_t j = 0; j < n; j++)
			if (entries[j].id != rows[i].ids[j])
				fail_msg("%s: victim %zu", rows[i].name, j);
	}
	assert_int_equal(ki_evict_choose(NULL, 0, 0, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_least_recently_used_go_until_it_fits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
