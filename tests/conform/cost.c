/* SPDX-License-Identifier: MIT */

/*
 * cost KIND: a store that is told to evict by cost, for each kind that can be.
 */

#include <stdio.h>
#include <stdlib.h>

#include "harness/harness.h"

#include "conform/kinds.h"

#define BOUND  ((uint64_t)3 << 20)
#define SIZE   30000
#define N_FIT  ((unsigned)(BOUND / SIZE))
#define MS     ((uint64_t)1000000)
#define CHEAP  0u /* entries of a kind have numbers from here on */
#define DEAR   100000u
#define UNSAID UINT64_MAX

static const struct kind *kind;

static struct kiln_tier *open_with(const char *directory, uint32_t flags)
{
	struct ki_store_options options = { .sys = &ki_sys_posix,
					    .directory = directory,
					    .bytes_max = BOUND,
					    .flags = flags };
	struct kiln_tier *tier = NULL;

	assert_int_equal(kind->open(&options, &tier), KILN_OK);
	return tier;
}

static void tell(struct kiln_tier *tier, enum kiln_eviction eviction)
{
	assert_int_equal(tier->ops->set_eviction(tier, eviction), KILN_OK);
}

static struct kiln_tier *open_by_cost(const char *directory)
{
	struct kiln_tier *tier = open_with(directory, 0);

	tell(tier, KILN_EVICT_BY_COST);
	return tier;
}

static enum kiln_eviction eviction_of(struct kiln_tier *tier)
{
	struct kiln_store_info info;

	assert_int_equal(tier->ops->info(tier, &info), KILN_OK);
	return info.eviction;
}

static void put_built(struct kiln_tier *tier, unsigned n, uint64_t build_ns)
{
	struct kiln_metadata *metadata = kiln_metadata_new();
	struct kiln_key *key = numbered_key(n);
	void *value = malloc(SIZE);
	const void *bytes;
	size_t size;

	assert_non_null(value);
	fill_value(n, value, SIZE);
	/* Not the first thing that they say. */
	kiln_metadata_add_string(metadata, KILN_META_APPLICATION, "tests");
	if (build_ns != UNSAID)
		kiln_metadata_add_u64(metadata, KILN_META_BUILD_TIME, build_ns);
	assert_int_equal(kiln_metadata_bytes(metadata, &bytes, &size), KILN_OK);
	assert_int_equal(tier->ops->put(tier, key, bytes, size, value, SIZE, 0),
			 KILN_OK);
	free(value);
	kiln_key_free(key);
	kiln_metadata_free(metadata);
}

/* How many of `n` from a number on are there. */
static unsigned n_found(struct kiln_tier *tier, unsigned from, unsigned n)
{
	unsigned found = 0;

	for (unsigned i = from; i < from + n; i++) {
		struct kiln_key *key = numbered_key(i);
		struct kiln_blob *blob;

		if (!tier->ops->get(tier, key, &blob, NULL)) {
			assert_true(is_value_of(i, kiln_blob_data(blob),
						kiln_blob_size(blob)));
			kiln_blob_unref(blob);
			found++;
		}
		kiln_key_free(key);
	}
	return found;
}

static void close_it(struct kiln_tier *tier, char *directory)
{
	tier->ops->close(tier);
	free(directory);
}

/* ---- The choice ------------------------------------------------------ */

static void put_pairs(struct kiln_tier *tier, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		put_built(tier, CHEAP + i, MS);
		put_built(tier, DEAR + i, 1000 * MS);
	}
}

static void what_was_built_fast_goes_first(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_by_cost(directory);

	(void)state;
	put_pairs(tier, N_FIT);
	assert_true(n_found(tier, DEAR, N_FIT) >
		    n_found(tier, CHEAP, N_FIT) + N_FIT / 10);
	close_it(tier, directory);
}

/* As the store does that nobody told: neither kind is favoured. */
static void told_to_go_by_use_again_it_does(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_by_cost(directory);
	unsigned cheap, dear;

	(void)state;
	tell(tier, KILN_EVICT_BY_USE);
	put_pairs(tier, N_FIT);
	cheap = n_found(tier, CHEAP, N_FIT);
	dear = n_found(tier, DEAR, N_FIT);
	assert_true(cheap + 2 >= dear && dear + 2 >= cheap);
	close_it(tier, directory);
}

/* S33.  Whatever is said of its build, in metadata of whoever. */
static void nothing_stays_for_ever_for_what_it_cost(void **state)
{
	static const uint64_t costs[] = { UNSAID, UNSAID - 1, 0, 1,
					  (uint64_t)24 * 3600 * 1000 * MS };
	const unsigned n = sizeof(costs) / sizeof(costs[0]);
	char *directory = harness_directory();
	struct kiln_tier *tier = open_by_cost(directory);

	(void)state;
	for (unsigned i = 0; i < n; i++)
		put_built(tier, DEAR + i, costs[i]);
	for (unsigned i = 0; i < 40 * N_FIT; i++)
		put_built(tier, CHEAP + i, MS);
	assert_int_equal(n_found(tier, DEAR, n), 0);
	close_it(tier, directory);
}

static void where_nothing_is_said_the_newest_stay(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_by_cost(directory);
	unsigned n = 3 * N_FIT;

	(void)state;
	for (unsigned i = 0; i < n; i++)
		put_built(tier, i, UNSAID);
	assert_int_equal(n_found(tier, 0, N_FIT), 0);
	assert_int_equal(n_found(tier, n - N_FIT / 3, N_FIT / 3), N_FIT / 3);
	close_it(tier, directory);
}

/* ---- The setting ----------------------------------------------------- */

static void a_new_store_goes_by_use(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_with(directory, 0);

	(void)state;
	assert_int_equal(eviction_of(tier), KILN_EVICT_BY_USE);
	close_it(tier, directory);
}

static void the_choice_is_the_stores_own(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *beside = open_with(directory, 0), *tier;
	struct kiln_gc_options gc = { .bytes_max = BOUND / 2 };
	struct kiln_gc_report report;

	(void)state;
	tier = open_by_cost(directory);
	tell(tier, KILN_EVICT_BY_COST);
	assert_int_equal(eviction_of(beside), KILN_EVICT_BY_COST);
	for (unsigned i = 0; i < 2 * N_FIT; i++)
		put_built(tier, i, i * MS);
	assert_int_equal(tier->ops->gc(tier, &gc, NULL, NULL, &report),
			 KILN_OK);
	assert_int_equal(tier->ops->set_limit(tier, BOUND / 2), KILN_OK);
	assert_int_equal(eviction_of(tier), KILN_EVICT_BY_COST);
	assert_int_equal(tier->ops->wipe(tier), KILN_OK);
	assert_int_equal(eviction_of(tier), KILN_EVICT_BY_COST);
	tier->ops->close(tier);
	tier = open_with(directory, KILN_OPEN_READONLY);
	assert_int_equal(eviction_of(tier), KILN_EVICT_BY_COST);
	assert_int_equal(tier->ops->set_eviction(tier, KILN_EVICT_BY_USE),
			 KILN_E_READONLY);
	tier->ops->close(tier);
	tell(beside, KILN_EVICT_BY_USE);
	tier = open_with(directory, 0);
	assert_int_equal(eviction_of(tier), KILN_EVICT_BY_USE);
	tier->ops->close(tier);
	close_it(beside, directory);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_built_fast_goes_first),
		cmocka_unit_test(told_to_go_by_use_again_it_does),
		cmocka_unit_test(nothing_stays_for_ever_for_what_it_cost),
		cmocka_unit_test(where_nothing_is_said_the_newest_stay),
		cmocka_unit_test(a_new_store_goes_by_use),
		cmocka_unit_test(the_choice_is_the_stores_own),
	};

	kind = argc > 1 ? kind_find(argv[1]) : NULL;
	if (!kind || !kind->has_eviction || kind->by_cost) {
		fprintf(stderr, "usage: cost KIND\n");
		return 2;
	}
	return _cmocka_run_group_tests(kind->name, tests,
				       sizeof(tests) / sizeof(tests[0]), NULL,
				       NULL);
}
