/* SPDX-License-Identifier: MIT */

#include "harness/harness.h"

#include <string.h>

#include <kiln/kiln.h>

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

#define S  ((int64_t)1000000000)
#define MS ((uint64_t)1000000)
#define N  3

/* Of each: when it was used, bytes, its build.  What goes first, by letters. */
static const struct by_cost_row {
	const char *name;
	int64_t now;
	struct ki_evictable entries[N];
	const char *order;
} by_cost_rows[] = {
	{ "where nobody knows, as by last use",
	  100 * S,
	  { { 9, 50 * S, 0, 0, 0 },
	    { 1, 10 * S, 0, 1, 0 },
	    { 5, 90 * S, 0, 2, 0 } },
	  "bac" },
	{ "so where all cost the same",
	  100 * S,
	  { { 10, 50 * S, MS, 0, 0 },
	    { 10, 10 * S, MS, 1, 0 },
	    { 10, 90 * S, MS, 2, 0 } },
	  "bac" },
	{ "what was built fast goes first",
	  100 * S,
	  { { 1000, 10 * S, 64 * MS, 0, 0 },
	    { 1000, 11 * S, MS, 1, 0 },
	    { 1000, 12 * S, 8 * MS, 2, 0 } },
	  "bca" },
	{ "what is large, of those that took as long",
	  100 * S,
	  { { 1000, 10 * S, MS, 0, 0 },
	    { 64000, 11 * S, MS, 1, 0 },
	    { 8000, 12 * S, MS, 2, 0 } },
	  "bca" },
	{ "four times as dear stays twice as long",
	  1000 * S,
	  { { 1000, 900 * S, MS, 0, 0 },
	    { 1000, 750 * S, 4 * MS, 1, 0 },
	    { 1000, 850 * S, 4 * MS, 2, 0 } },
	  "bac" },
	{ "nothing is so dear that it stays for ever",
	  1000 * S,
	  { { 1000, 0, KI_EVICT_BUILD_NS_MAX, 0, 0 },
	    { 1000, 999 * S, 1, 1, 0 },
	    { 1000, 1000 * S, 1, 2, 0 } },
	  "abc" },
	{ "nor can it say so",
	  1000 * S,
	  { { 1000, 0, UINT64_MAX, 0, 0 },
	    { 1000, 999 * S, 1, 1, 0 },
	    { 1000, 1000 * S, 1, 2, 0 } },
	  "abc" },
	{ "what is damaged goes before all (S33)",
	  1000 * S,
	  { { 1000, 1 * S, MS, 0, 0 },
	    { 1000, 2 * S, MS, 1, 0 },
	    { 1000, KI_EVICT_FIRST, 0, 2, 0 } },
	  "cab" },
	{ "what was used later than now was used now (S33)",
	  100 * S,
	  { { 10, INT64_MAX, 0, 0, 0 },
	    { 10, 99 * S, 0, 1, 0 },
	    { 10, 50 * S, 0, 2, 0 } },
	  "cba" },
	{ "all of it: as by last use (S33)",
	  -S,
	  { { 10, 3 * S, 0, 0, 0 },
	    { 10, 1 * S, 0, 1, 0 },
	    { 10, 2 * S, 0, 2, 0 } },
	  "bca" },
	{ "nothing has no bytes",
	  100 * S,
	  { { 0, 10 * S, MS, 0, 0 },
	    { 0, 20 * S, 0, 1, 0 },
	    { 0, 30 * S, 0, 2, 0 } },
	  "abc" },
};

static void by_cost_what_is_cheap_and_large_goes_first(void **state)
{
	const size_t n = sizeof(by_cost_rows) / sizeof(by_cost_rows[0]);

	(void)state;
	for (size_t i = 0; i < n; i++) {
		const struct by_cost_row *row = &by_cost_rows[i];
		struct ki_evictable entries[N];
		char order[N + 1] = { 0 };

		memcpy(entries, row->entries, sizeof(entries));
		ki_evict_order_by_cost(entries, N, row->now);
		for (size_t j = 0; j < N; j++)
			order[j] = (char)('a' + entries[j].id);
		if (strcmp(order, row->order) != 0)
			fail_msg("%s: %s instead of %s", row->name, order,
				 row->order);
	}
	ki_evict_order_by_cost(NULL, 0, 0);
}

static void by_cost_as_many_go_as_need_to(void **state)
{
	struct ki_evictable entries[] = {
		{ .bytes = 10, .used_ns = 1, .build_ns = 64 * MS, .id = 1 },
		{ .bytes = 10, .used_ns = 2, .build_ns = MS, .id = 2 },
	};

	(void)state;
	assert_int_equal(ki_evict_choose_by_cost(entries, 2, 20, S), 0);
	assert_int_equal(ki_evict_choose_by_cost(entries, 2, 19, S), 1);
	assert_int_equal(entries[0].id, 2);
	assert_int_equal(ki_evict_choose_by_cost(entries, 2, 9, S), 2);
	assert_int_equal(ki_evict_choose_by_cost(NULL, 0, 0, S), 0);
}

/* ---- Files --------------------------------------------------------------------- */

struct file {
	char letter;
	int64_t used_ns;
	uint64_t build_ns;
	int stays;
};

static int files_by_last_use(const void *a, const void *b, void *names)
{
	const struct file *x = a, *y = b;

	if (x->stays != y->stays)
		return x->stays - y->stays;
	return x->used_ns < y->used_ns ? -1 : x->used_ns > y->used_ns;
}

static int weigh_file(const void *what, struct ki_evictable *out_entry)
{
	const struct file *file = what;

	*out_entry = (struct ki_evictable){ .bytes = 1000,
					    .used_ns = file->used_ns,
					    .build_ns = file->build_ns };
	return !file->stays;
}

static void files_go_in_the_order_of_their_weights(void **state)
{
	static const struct ki_evict_files kind = {
		.size = sizeof(struct file),
		.by_last_use = files_by_last_use,
		.weigh = weigh_file,
	};
	static const struct row {
		size_t n;
		int by_cost;
		const char *order;
	} rows[] = {
		{ 5, 0, "adbec" }, /* c and e stay: behind the others */
		{ 5, 1, "badec" }, { 2, 1, "ba" }, { 1, 1, "a" }, { 0, 1, "" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct file files[] = {
			{ 'a', 10 * S, 64 * MS, 0 },
			{ 'b', 30 * S, MS, 0 },
			{ 'c', 20 * S, MS, 1 },
			{ 'd', 20 * S, 64 * MS, 0 },
			{ 'e', 10 * S, MS, 1 },
		};
		char order[6] = { 0 };

		ki_evict_sort(&kind, files, rows[i].n, NULL, rows[i].by_cost,
			      40 * S);
		for (size_t j = 0; j < rows[i].n; j++)
			order[j] = files[j].letter;
		assert_string_equal(order, rows[i].order);
	}
	ki_evict_sort(&kind, NULL, 0, NULL, 0, 0);
}

/* S33 */
static void a_build_time_that_cannot_be_is_none(void **state)
{
	static const struct row {
		uint64_t said, taken;
	} rows[] = {
		{ 0, 0 },
		{ 1, 1 },
		{ KI_EVICT_BUILD_NS_MAX, KI_EVICT_BUILD_NS_MAX },
		{ KI_EVICT_BUILD_NS_MAX + 1, 0 },
		{ UINT64_MAX, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_metadata *metadata = kiln_metadata_new();
		const void *bytes;
		size_t size;

		kiln_metadata_add_u64(metadata, KILN_META_BUILD_TIME,
				      rows[i].said);
		assert_int_equal(kiln_metadata_bytes(metadata, &bytes, &size),
				 KILN_OK);
		assert_true(ki_evict_build_ns(bytes, size) == rows[i].taken);
		assert_true(ki_evict_build_ns(bytes, size - 1) == 0);
		kiln_metadata_free(metadata);
	}
	assert_true(ki_evict_build_ns("metadata", 8) == 0);
	assert_true(ki_evict_build_ns(NULL, 0) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_cost_what_is_cheap_and_large_goes_first),
		cmocka_unit_test(by_cost_as_many_go_as_need_to),
		cmocka_unit_test(files_go_in_the_order_of_their_weights),
		cmocka_unit_test(a_build_time_that_cannot_be_is_none),
		cmocka_unit_test(the_least_recently_used_go_until_it_fits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
