/* SPDX-License-Identifier: MIT */

/* Tiers that do something in the middle of a look-up, or between two. */

#include <stdatomic.h>
#include <stdlib.h>

#include "harness/harness.h"
#include "harness/shelf.h"

#include "core/cache_test.h"

/* ---- A removal in the middle of a look-up ------------------------------------ */

static void close_nothing(struct kiln_tier *tier)
{
}

struct little {
	struct kiln_tier tier;
	int has;
	int is_near;
};

static struct kiln *removing;
static const struct kiln_key *removed_key;
static int remove_meanwhile;

static enum kiln_status little_get(struct kiln_tier *tier,
				   const struct kiln_key *key,
				   struct kiln_blob **out_value,
				   struct kiln_blob **out_metadata)
{
	if (!((struct little *)tier)->has)
		return KILN_MISS;
	if (out_metadata && kiln_blob_copy(NULL, 0, out_metadata))
		abort();
	return kiln_blob_copy("old", 3, out_value);
}

static enum kiln_status little_put(struct kiln_tier *tier,
				   const struct kiln_key *key,
				   const void *metadata, size_t metadata_size,
				   const void *value, size_t value_size,
				   unsigned flags)
{
	struct little *little = (struct little *)tier;

	if (little->is_near && remove_meanwhile) {
		remove_meanwhile = 0;
		assert_int_equal(kiln_remove(removing, removed_key), KILN_OK);
	}
	little->has = 1;
	return KILN_OK;
}

static enum kiln_status little_remove(struct kiln_tier *tier,
				      const struct kiln_key *key)
{
	struct little *little = (struct little *)tier;
	int had = little->has;

	little->has = 0;
	return had ? KILN_OK : KILN_MISS;
}

static void what_is_removed_while_it_is_copied_stays_removed(void **state)
{
	static const struct kiln_tier_ops ops = {
		.version = KILN_TIER_VERSION,
		.name = "little",
		.get = little_get,
		.put = little_put,
		.remove = little_remove,
		.close = close_nothing,
	};
	struct little near = { .tier = { .ops = &ops }, .is_near = 1 };
	struct little far = { .tier = { .ops = &ops }, .has = 1 };
	struct kiln_tier *tiers[] = { &near.tier, &far.tier };
	struct kiln_options options = defaults();
	struct kiln_key *key = key_of(1);
	struct kiln_blob *blob;

	options.tiers = tiers;
	options.n_tiers = 2;
	assert_int_equal(kiln_open(&options, &removing), KILN_OK);
	removed_key = key;
	remove_meanwhile = 1;
	assert_int_equal(kiln_get(removing, key, &blob), KILN_OK);
	kiln_blob_unref(blob);
	assert_int_equal(remove_meanwhile, 0);
	assert_int_equal(near.has, 0);
	assert_int_equal(kiln_get(removing, key, &blob), KILN_MISS);

	/* Otherwise the near one learns it. */
	far.has = 1;
	assert_int_equal(kiln_get(removing, key, &blob), KILN_OK);
	kiln_blob_unref(blob);
	assert_int_equal(near.has, 1);
	kiln_close(removing);
	kiln_key_free(key);
}

/* ---- A tier that moves on ---------------------------------------------------- */

static struct kiln *swept;
static uint64_t moving_generation;
static unsigned n_asked, n_asked_too_late;

static enum kiln_status moving_get(struct kiln_tier *tier,
				   const struct kiln_key *key,
				   struct kiln_blob **out_value,
				   struct kiln_blob **out_metadata)
{
	enum kiln_status status = moving_generation
					  ? KILN_MISS
					  : kiln_blob_copy("old", 3, out_value);

	if (!status && out_metadata)
		status = kiln_blob_copy(NULL, 0, out_metadata);
	return status;
}

static int moving_is_live(struct kiln_tier *tier, const struct kiln_blob *blob)
{
	n_asked++;
	n_asked_too_late += atomic_load(&swept->seen[0]) == moving_generation;
	return 0;
}

/* The hot path of other threads takes what is in memory as long as `seen` is
   up to date. */
static void what_a_tier_dropped_is_swept_before_it_counts_as_seen(void **state)
{
	static const struct kiln_tier_ops ops = {
		.version = KILN_TIER_VERSION,
		.name = "moving",
		.get = moving_get,
		.close = close_nothing,
	};
	struct kiln_tier tier = { .ops = &ops,
				  .generation = &moving_generation,
				  .is_live = moving_is_live };
	struct kiln_tier *tiers[] = { &tier };
	struct kiln_options options = defaults();
	struct kiln_key *key = key_of(1);
	struct kiln_blob *blob;

	options.tiers = tiers;
	options.n_tiers = 1;
	moving_generation = 0;
	assert_int_equal(kiln_open(&options, &swept), KILN_OK);
	assert_int_equal(kiln_get(swept, key, &blob), KILN_OK);
	kiln_blob_unref(blob);
	__atomic_store_n(&moving_generation, 1, __ATOMIC_SEQ_CST);
	assert_int_equal(kiln_get(swept, key, &blob), KILN_MISS);
	assert_int_equal(n_asked, 1);
	assert_int_equal(n_asked_too_late, 0);
	kiln_close(swept);
	kiln_key_free(key);
}

static unsigned n_got;

static enum kiln_status counting_get(struct kiln_tier *tier,
				     const struct kiln_key *key,
				     struct kiln_blob **out_value,
				     struct kiln_blob **out_metadata)
{
	enum kiln_status status = kiln_blob_copy("new", 4, out_value);

	n_got++;
	if (!status && out_metadata)
		status = kiln_blob_copy(NULL, 0, out_metadata);
	return status;
}

static int always_live(struct kiln_tier *tier, const struct kiln_blob *blob)
{
	return 1;
}

/* Design 6: a store that rolled forgets who is in use; the first hit in memory
   tells it. */
static void the_first_hit_after_a_roll_marks_the_entry_again(void **state)
{
	static const struct kiln_tier_ops ops = {
		.version = KILN_TIER_VERSION,
		.name = "counting",
		.get = counting_get,
		.close = close_nothing,
	};
	struct kiln_tier tier = { .ops = &ops,
				  .generation = &moving_generation,
				  .is_live = always_live };
	struct kiln_tier *tiers[] = { &tier };
	struct kiln_options options = defaults();
	struct kiln *kiln;

	options.tiers = tiers;
	options.n_tiers = 1;
	moving_generation = 0;
	n_got = 0;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	assert_got(kiln, 1, "new");
	assert_got(kiln, 1, "new");
	assert_int_equal(n_got, 1);
	for (unsigned i = 2; i < 5; i++) {
		__atomic_store_n(&moving_generation, i, __ATOMIC_SEQ_CST);
		for (int j = 0; j < 3; j++)
			assert_got(kiln, 1, "new");
		assert_int_equal(n_got, i);
	}
	kiln_close(kiln);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			the_first_hit_after_a_roll_marks_the_entry_again),
		cmocka_unit_test(
			what_a_tier_dropped_is_swept_before_it_counts_as_seen),
		cmocka_unit_test(
			what_is_removed_while_it_is_copied_stays_removed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
