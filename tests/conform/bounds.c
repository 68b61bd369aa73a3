/* SPDX-License-Identifier: MIT */

/* Bounds: what goes, what stays, and that they hold. */

#include <stdlib.h>
#include <string.h>

#include "conform/conform.h"

/* S47 */
static void the_bound_is_never_passed_and_the_newest_stays(void **state)
{
	static const size_t sizes[] = { 100, 5000, 20000, 60000, 9000 };
	char *directory = harness_directory();
	struct kiln_tier *tier = open_bounded(directory, BOUND, 0);
	unsigned n_left = 0;

	for (unsigned n = 0; n < 800; n++) {
		assert_int_equal(put_numbered(tier, n, sizes[n % 5], 0),
				 KILN_OK);
		assert_int_equal(get_numbered(tier, n), KILN_OK);
		if (n % 16)
			continue;
		assert_true(bytes_of(tier) <= BOUND);
		if (kind->persists)
			assert_true(disk_bytes(directory) <= BOUND);
	}
	for (unsigned n = 0; n < 800; n++) {
		int status = get_numbered(tier, n);

		assert_true(status == KILN_OK || status == KILN_MISS);
		n_left += status == KILN_OK;
	}
	/* Half of the bound at least is of use. */
	assert_true(n_left > (unsigned)(BOUND / 2 / 19000));
	tier->ops->close(tier);
	free(directory);
}

/* Nothing but values so large that they have files of their own. */
static void large_values_alone_make_room_for_each_other(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_bounded(directory, BOUND, 0);

	assert_int_equal(put_numbered(tier, 0, 100, 0), KILN_OK);
	for (unsigned n = 1; n < 40; n++) {
		assert_int_equal(put_numbered(tier, n, 500000 + n, 0), KILN_OK);
		assert_int_equal(get_numbered(tier, n), KILN_OK);
		assert_true(bytes_of(tier) <= BOUND);
	}
	tier->ops->close(tier);
	free(directory);
}

#define USED 51 /* it took long to build: that counts by cost */

static void what_is_used_is_not_evicted(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_bounded(directory, BOUND, 0);

	assert_int_equal(put_numbered(tier, USED, 20000, 0), KILN_OK);
	for (unsigned n = 0; n < 600; n++) {
		shift_ns += HOUR_NS;
		if (n != USED)
			assert_int_equal(put_numbered(tier, n, 20000, 0),
					 KILN_OK);
		assert_int_equal(get_numbered(tier, USED), KILN_OK);
	}
	assert_int_equal(get_numbered(tier, 0), KILN_MISS);
	shift_ns = 0;
	tier->ops->close(tier);
	free(directory);
}

static void a_store_that_refuses_keeps_what_it_has(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier =
		open_bounded(directory, BOUND, KILN_OPEN_REFUSE_FULL);
	struct kiln_key *key = numbered_key(0);
	enum kiln_status status = KILN_OK;
	unsigned n;

	for (n = 0; n < 1000 && !status; n++)
		status = put_numbered(tier, n, 20000, 0);
	assert_int_equal(status, KILN_E_FULL);
	assert_true(n > BOUND / 2 / 20000);
	for (unsigned i = 0; i + 1 < n; i++)
		assert_int_equal(get_numbered(tier, i), KILN_OK);
	assert_int_equal(get_numbered(tier, n - 1), KILN_MISS);
	if (tier->ops->wipe) {
		assert_int_equal(tier->ops->wipe(tier), KILN_OK);
		assert_int_equal(put_numbered(tier, n, 20000, 0), KILN_OK);
	}
	tier->ops->close(tier);
	kiln_key_free(key);
	free(directory);
}

static void what_can_never_fit_is_refused_and_costs_nothing(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_bounded(directory, BOUND, 0);

	assert_int_equal(put_numbered(tier, 1, 1000, 0), KILN_OK);
	assert_int_equal(put_numbered(tier, 2, 2 * BOUND, 0), KILN_E_TOO_LARGE);
	assert_int_equal(get_numbered(tier, 1), KILN_OK);
	assert_int_equal(get_numbered(tier, 2), KILN_MISS);
	tier->ops->close(tier);
	free(directory);
}

static void a_lower_limit_holds_at_once(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_bounded(directory, 4 * BOUND, 0);

	for (unsigned n = 0; n < 400; n++)
		assert_int_equal(put_numbered(tier, n, 20000, 0), KILN_OK);
	assert_true(bytes_of(tier) > BOUND);
	assert_int_equal(tier->ops->set_limit(tier, BOUND), KILN_OK);
	assert_true(bytes_of(tier) <= BOUND);
	if (kind->persists)
		assert_true(disk_bytes(directory) <= BOUND);
	assert_int_equal(put_numbered(tier, 400, 20000, 0), KILN_OK);
	assert_int_equal(get_numbered(tier, 400), KILN_OK);
	tier->ops->close(tier);
	free(directory);
}

/* S24 */
static void what_was_handed_out_outlives_its_eviction(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_bounded(directory, BOUND, 0);
	struct kiln_blob *small, *large;
	struct kiln_key *keys[] = { numbered_key(0), numbered_key(1) };

	assert_int_equal(put_numbered(tier, 0, 1000, 0), KILN_OK);
	assert_int_equal(put_numbered(tier, 1, 300000, 0), KILN_OK);
	assert_int_equal(tier->ops->get(tier, keys[0], &small, NULL), KILN_OK);
	assert_int_equal(tier->ops->get(tier, keys[1], &large, NULL), KILN_OK);
	for (unsigned n = 2; n < 1200; n++)
		assert_int_equal(put_numbered(tier, n, 9000, 0), KILN_OK);
	assert_int_equal(get_numbered(tier, 0), KILN_MISS);
	assert_true(
		is_value_of(0, kiln_blob_data(small), kiln_blob_size(small)));
	tier->ops->close(tier);
	assert_true(
		is_value_of(1, kiln_blob_data(large), kiln_blob_size(large)));
	kiln_blob_unref(small);
	kiln_blob_unref(large);
	kiln_key_free(keys[0]);
	kiln_key_free(keys[1]);
	free(directory);
}

/* S33 */
static void a_clock_that_jumps_costs_nothing(void **state)
{
	static const int64_t jumps[] = { -24, 24 * 3650, -24, 1, -1, 0 };
	char *directory = harness_directory();
	struct kiln_tier *tier = open_bounded(directory, BOUND, 0);
	struct kiln_tier *other = open_bounded(directory, BOUND, 0);
	struct kiln_key *key = numbered_key(0);
	struct kiln_tier_lock *lock = NULL, *second;

	assert_int_equal(put_numbered(tier, 0, 9000, 0), KILN_OK);
	if (kind->persists)
		assert_int_equal(tier->ops->lock(tier, key, 0, &lock), KILN_OK);
	for (unsigned i = 0; i < sizeof(jumps) / sizeof(jumps[0]); i++) {
		shift_ns = jumps[i] * HOUR_NS;
		for (unsigned n = 1; n < 60; n++) {
			unsigned number = 1000 * i + n;

			assert_int_equal(put_numbered(tier, number, 9000, 0),
					 KILN_OK);
			assert_int_equal(get_numbered(tier, number), KILN_OK);
		}
		/* What was put and used just now is what was used last. */
		for (unsigned n = 30; n < 60; n++)
			assert_int_equal(get_numbered(tier, 1000 * i + n),
					 KILN_OK);
		assert_true(bytes_of(tier) <= BOUND);
		if (lock)
			assert_int_equal(
				other->ops->lock(other, key, 0, &second),
				KILN_E_TIMEOUT);
	}
	shift_ns = 0;
	if (lock)
		tier->ops->unlock(tier, lock);
	tier->ops->close(tier);
	other->ops->close(other);
	kiln_key_free(key);
	free(directory);
}

const struct row bounds_rows[] = {
	ROW(the_bound_is_never_passed_and_the_newest_stays, 0),
	ROW(large_values_alone_make_room_for_each_other, 0),
	ROW(what_is_used_is_not_evicted, 0),
	ROW(a_store_that_refuses_keeps_what_it_has, 0),
	ROW(what_can_never_fit_is_refused_and_costs_nothing, 0),
	ROW(a_lower_limit_holds_at_once, LIMIT),
	ROW(what_was_handed_out_outlives_its_eviction, 0),
	ROW(a_clock_that_jumps_costs_nothing, 0),
	ROWS_END,
};
