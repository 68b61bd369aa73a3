/* SPDX-License-Identifier: MIT */

/* Evictions by cost: what is cheap to build again and large goes first. */

#include "harness/harness.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "store/log/log_test.h"

#define MS     ((uint64_t)1000000)
#define BOUND  ((uint64_t)2 << 20)
#define CHEAP  0u /* entries of a kind have numbers from here on */
#define DEAR   100000u
#define UNSAID UINT64_MAX

static void by_cost(struct store *store)
{
	assert_int_equal(
		store->tier->ops->set_eviction(store->tier, KILN_EVICT_BY_COST),
		KILN_OK);
}

static void put_built(struct store *store, unsigned number, size_t size,
		      uint64_t build_ns)
{
	struct kiln_metadata *metadata = kiln_metadata_new();
	struct kiln_key *key = test_key(number);
	uint8_t *value = test_value(number, size);
	const void *bytes;
	size_t n;

	if (build_ns != UNSAID)
		kiln_metadata_add_u64(metadata, KILN_META_BUILD_TIME, build_ns);
	assert_int_equal(kiln_metadata_bytes(metadata, &bytes, &n), KILN_OK);
	assert_int_equal(store->tier->ops->put(store->tier, key, bytes, n,
					       value, size, 0),
			 KILN_OK);
	free(value);
	kiln_key_free(key);
	kiln_metadata_free(metadata);
}

/* How many of `n` from a number on are there, looked up once. */
static unsigned n_found(struct store *store, unsigned from, unsigned n)
{
	unsigned found = 0, i;
	size_t size;

	for (i = 0; i < n; i++)
		found += !store_get_any(store, from + i, &size);
	return found;
}

/* ---- The choice ------------------------------------------------------ */

static const struct choice {
	const char *name;
	size_t cheap_size, dear_size;
	uint64_t cheap_ns, dear_ns;
	int is_set_late; /* when the store is full already */
} choices[] = {
	{ "built fast goes first, in shared segments", 2000, 2000, MS,
	  1000 * MS },
	{ "built fast goes first, in files of their own", 60000, 60000, MS,
	  1000 * MS },
	{ "built fast goes first, among what was there before", 60000, 60000,
	  MS, 1000 * MS, 1 },
	{ "large goes first, where both took as long", 60000, 2000, 100 * MS,
	  100 * MS },
	{ "what says nothing goes before what took long", 30000, 30000, UNSAID,
	  100000 * MS },
	{ "what took no time says nothing", 30000, 30000, MS, 0 },
	{ "nor does what took for ever (S33)", 30000, 30000, UINT64_MAX - 1,
	  100000 * MS },
};

static void what_is_cheap_to_build_goes_first(void **state)
{
	const struct choice *choice = *state;
	struct store store = store_new(BOUND, 0);
	/* Later on nothing is left of before. */
	unsigned pairs = (unsigned)(BOUND * (choice->is_set_late ? 6 : 3) / 2 /
				    (choice->cheap_size + choice->dear_size));
	unsigned i, cheap, dear;

	if (!choice->is_set_late)
		by_cost(&store);
	for (i = 0; i < pairs; i++) {
		if (choice->is_set_late && i == pairs / 2)
			by_cost(&store);
		put_built(&store, CHEAP + i, choice->cheap_size,
			  choice->cheap_ns);
		put_built(&store, DEAR + i, choice->dear_size, choice->dear_ns);
	}
	cheap = n_found(&store, CHEAP, pairs);
	dear = n_found(&store, DEAR, pairs);
	assert_true(dear > cheap + pairs / 10);
	store_free(&store);
}

static void what_took_long_goes_too_if_nobody_asks_for_it(void **state)
{
	struct store store = store_new(BOUND, 0);
	unsigned i;

	(void)state;
	by_cost(&store);
	for (i = 0; i < 10; i++)
		put_built(&store, DEAR + i, 60000, 100 * MS);
	/* Sixteen times what it holds, each used once. */
	for (i = 0; i < 16 * BOUND / 60000; i++) {
		put_built(&store, CHEAP + i, 60000, 10 * MS);
		(void)n_found(&store, CHEAP + i, 1);
	}
	assert_int_equal(n_found(&store, DEAR, 10), 0);
	store_free(&store);
}

/* S33.  Whatever is said of its build, in metadata of whoever, and however cheap
   all others are. */
static void nothing_stays_for_ever_for_what_it_cost(void **state)
{
	static const uint64_t costs[] = {
		UNSAID, UNSAID - 1,	  0,
		1,	3600 * 1000 * MS, 24 * 3600 * 1000 * MS
	};
	struct store store = store_new(BOUND, 0);
	unsigned n = sizeof(costs) / sizeof(costs[0]), i;

	(void)state;
	by_cost(&store);
	for (i = 0; i < n; i++) {
		put_built(&store, DEAR + i, 60000, costs[i]);
		put_built(&store, DEAR + n + i, 2000, costs[i]);
	}
	for (i = 0; i < 40 * BOUND / 60000; i++)
		put_built(&store, CHEAP + i, 60000, 1000);
	assert_int_equal(n_found(&store, DEAR, 2 * n), 0);
	store_free(&store);
}

static void what_is_used_stays_before_what_is_not(void **state)
{
	struct store store = store_new(BOUND, 0);
	unsigned i;

	(void)state;
	by_cost(&store);
	for (i = 0; i < 10; i++)
		put_built(&store, DEAR + i, 60000, 10 * MS);
	for (i = 0; i < 8 * BOUND / 60000; i++) {
		put_built(&store, CHEAP + i, 60000, 10 * MS);
		assert_int_equal(n_found(&store, DEAR, 10), 10);
	}
	store_free(&store);
}

/* By use it would be the newest. */
static void the_newest_goes_where_it_is_the_cheapest(void **state)
{
	struct store store = store_new(BOUND, 0);
	unsigned n = (unsigned)(BOUND / 60000), i;

	(void)state;
	by_cost(&store);
	for (i = 0; i < n * 3 / 4; i++)
		put_built(&store, DEAR + i, 60000, 1000 * MS);
	for (i = 0; i < n * 2; i++)
		put_built(&store, CHEAP + i, 60000, MS);
	assert_true(n_found(&store, DEAR, n * 3 / 4) >= n / 2);
	store_free(&store);
}

/* ---- Large files that go out of their turn --------------------------- */

#define VICTIM 7u

static void lose_index(const struct store *store)
{
	char *path = harness_path(store->directory, "kiln.idx");

	assert_int_equal(unlink(path), 0);
	free(path);
}

/* A large record that replaced a small one and was built fast, then others until
   it goes; the small one still lies in its segment. */
static struct store store_with_victim(void)
{
	struct store store = store_new(BOUND, 0);
	struct kiln_key *key = test_key(VICTIM);
	uint8_t *value = test_value(VICTIM, 60000);
	size_t size;
	unsigned i;

	by_cost(&store);
	put_built(&store, VICTIM, 2000, 1000 * MS);
	put_built(&store, VICTIM + 1, 2000, 1000 * MS);
	assert_int_equal(store.tier->ops->put(store.tier, key, NULL, 0, value,
					      60000, KILN_PUT_REPLACE),
			 KILN_OK);
	for (i = 0; !store_get_any(&store, VICTIM, &size); i++)
		put_built(&store, DEAR + i, 60000, 100000 * MS);
	/* It alone went, and out of its turn. */
	assert_int_equal(n_found(&store, DEAR, i), i);
	assert_int_equal(n_found(&store, VICTIM + 1, 1), 1);
	free(value);
	kiln_key_free(key);
	return store;
}

static void what_went_uncovers_nothing_older(void **state)
{
	struct store store = store_with_victim();

	(void)state;
	store_close(&store);
	lose_index(&store);
	store_open(&store);
	assert_int_equal(n_found(&store, VICTIM, 1), 0);
	assert_int_equal(n_found(&store, VICTIM + 1, 1), 1);
	store_free(&store);
}

static void what_went_can_be_put_again(void **state)
{
	struct store store = store_with_victim();

	(void)state;
	put_built(&store, VICTIM, 2000, 1000 * MS);
	store_close(&store);
	lose_index(&store);
	store_open(&store);
	assert_int_equal(n_found(&store, VICTIM, 1), 1);
	store_free(&store);
}

/* Files removed by hand while words lead there: there is nothing to win by
   evicting these. */
static void large_files_that_are_gone_stop_no_eviction(void **state)
{
	struct store store = store_new(BOUND, 0);
	struct kiln_store_info info;
	unsigned i;
	DIR *dir;

	(void)state;
	by_cost(&store);
	for (i = 0; i < BOUND / 60000 / 2; i++)
		put_built(&store, CHEAP + i, 60000, MS);
	dir = opendir(store.directory);
	assert_non_null(dir);
	for (struct dirent *one; (one = readdir(dir));)
		if (strstr(one->d_name, ".val"))
			(void)unlinkat(dirfd(dir), one->d_name, 0);
	closedir(dir);
	for (i = 0; i < 2 * BOUND / 60000; i++) {
		put_built(&store, DEAR + i, 60000, 1000 * MS);
		assert_int_equal(n_found(&store, DEAR + i, 1), 1);
	}
	assert_int_equal(store.tier->ops->info(store.tier, &info), KILN_OK);
	assert_true(info.bytes <= BOUND);
	assert_int_equal(n_found(&store, CHEAP, BOUND / 60000 / 2), 0);
	store_free(&store);
}

/* ---- The setting ----------------------------------------------------- */

static enum kiln_eviction eviction_of(const struct store *store)
{
	struct kiln_store_info info;

	assert_int_equal(store->tier->ops->info(store->tier, &info), KILN_OK);
	return info.eviction;
}

static void a_store_is_made_to_evict_by_use(void **state)
{
	struct store store = store_new(BOUND, 0);

	(void)state;
	assert_int_equal(eviction_of(&store), KILN_EVICT_BY_USE);
	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	store_reopen(&store);
	assert_int_equal(eviction_of(&store), KILN_EVICT_BY_USE);
	store_free(&store);
}

static void the_choice_is_the_stores_own(void **state)
{
	struct store store = store_new(BOUND, 0), beside;
	unsigned i;

	(void)state;
	beside = store_beside(&store, 0);
	by_cost(&store);
	assert_int_equal(eviction_of(&beside), KILN_EVICT_BY_COST);
	assert_int_equal(store.tier->ops->set_limit(store.tier, 2 * BOUND),
			 KILN_OK);
	assert_int_equal(eviction_of(&beside), KILN_EVICT_BY_COST);
	/* The index grows. */
	for (i = 0; i < 20000; i++)
		assert_int_equal(store_put(&beside, i, 10, 0), KILN_OK);
	store_reopen(&store);
	assert_int_equal(eviction_of(&store), KILN_EVICT_BY_COST);
	assert_int_equal(
		store.tier->ops->set_eviction(store.tier, KILN_EVICT_BY_USE),
		KILN_OK);
	assert_int_equal(eviction_of(&beside), KILN_EVICT_BY_USE);
	store_close(&beside);
	store_free(&store);
}

/* Both copies of what does not change, by which the file is known for an index. */
static void damage_index(const struct store *store)
{
	static const uint8_t junk[128] = { 0x5a };
	char *path = harness_path(store->directory, "kiln.idx");
	int fd = open(path, O_WRONLY);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, junk, sizeof(junk), 0), sizeof(junk));
	assert_int_equal(pwrite(fd, junk, sizeof(junk), 3968), sizeof(junk));
	close(fd);
	free(path);
}

static void damage_limits(const struct store *store)
{
	static const uint8_t junk[8] = { 0xff };
	char *path = harness_path(store->directory, "kiln.idx");
	int fd = open(path, O_WRONLY);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, junk, sizeof(junk),
				offsetof(struct log_header, limits)),
			 sizeof(junk));
	close(fd);
	free(path);
}

/* What becomes of the choice, and of a bound that was set for everyone; the
   entries stay. */
static const struct loss {
	const char *name;
	void (*lose)(const struct store *store);
	enum kiln_eviction then;
	uint64_t bound;
} losses[] = {
	{ "an index that is damaged hands on what was set (S13)", damage_index,
	  KILN_EVICT_BY_COST, 2 * BOUND },
	{ "one without limits goes by use (S13)", damage_limits,
	  KILN_EVICT_BY_USE, BOUND },
	{ "one that was removed knew it alone", lose_index, KILN_EVICT_BY_USE,
	  BOUND },
};

static void a_lost_choice_is_told(void **state)
{
	const struct loss *loss = *state;
	struct store store = store_new(BOUND, 0);
	struct kiln_store_info info;

	by_cost(&store);
	assert_int_equal(store.tier->ops->set_limit(store.tier, 2 * BOUND),
			 KILN_OK);
	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	store_close(&store);
	loss->lose(&store);
	store_open(&store);
	assert_int_equal(n_found(&store, 1, 1), 1);
	assert_int_equal(eviction_of(&store), loss->then);
	assert_int_equal(ki_log_goes_by_cost(store_index(&store)),
			 loss->then == KILN_EVICT_BY_COST);
	assert_int_equal(store.tier->ops->info(store.tier, &info), KILN_OK);
	assert_int_equal(info.bytes_max, loss->bound);
	/* It can be told again. */
	by_cost(&store);
	assert_int_equal(eviction_of(&store), KILN_EVICT_BY_COST);
	store_free(&store);
}

static void a_wipe_leaves_the_choice(void **state)
{
	struct store store = store_new(BOUND, 0);

	(void)state;
	by_cost(&store);
	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	assert_int_equal(store.tier->ops->wipe(store.tier), KILN_OK);
	assert_int_equal(eviction_of(&store), KILN_EVICT_BY_COST);
	store_free(&store);
}

/* `kiln config` in every start script costs nothing. */
static void telling_it_again_forgets_nothing(void **state)
{
	struct store store = store_new(BOUND, 0);
	struct log_index *index = store_index(&store);
	uint64_t slot, n = 0;
	unsigned i;

	(void)state;
	by_cost(&store);
	for (i = 0; i < 3 * BOUND / 60000; i++)
		put_built(&store, i, 60000, 10 * MS);
	by_cost(&store);
	for (slot = 0; slot < index->n_buckets * LOG_WORDS; slot++)
		n += index->marks[slot] > LOG_MARK_USED;
	assert_true(n > 0);
	store_free(&store);
}

static void marks_of_chance_cost_no_entry_that_fits(void **state)
{
	struct store store = store_new(BOUND, 0);
	struct log_index *index = store_index(&store);
	uint64_t slot;
	unsigned i;

	(void)state;
	by_cost(&store);
	for (i = 0; i < 20; i++)
		put_built(&store, i, 60000, i * MS);
	for (slot = 0; slot < index->n_buckets * LOG_WORDS; slot++)
		index->marks[slot] = (uint8_t)(slot * 151);
	assert_int_equal(n_found(&store, 0, 20), 20);
	for (i = 20; i < 300; i++)
		put_built(&store, i, 60000, i * MS);
	assert_int_equal(n_found(&store, 299, 1), 1);
	store_free(&store);
}

int main(void)
{
	enum { N_LOSSES = sizeof(losses) / sizeof(*losses) };
	enum { N = sizeof(choices) / sizeof(*choices) };
	struct CMUnitTest tests[12 + N + N_LOSSES] = {
		cmocka_unit_test(nothing_stays_for_ever_for_what_it_cost),
		cmocka_unit_test(what_went_uncovers_nothing_older),
		cmocka_unit_test(what_went_can_be_put_again),
		cmocka_unit_test(large_files_that_are_gone_stop_no_eviction),
		cmocka_unit_test(a_wipe_leaves_the_choice),
		cmocka_unit_test(telling_it_again_forgets_nothing),
		cmocka_unit_test(what_took_long_goes_too_if_nobody_asks_for_it),
		cmocka_unit_test(what_is_used_stays_before_what_is_not),
		cmocka_unit_test(the_newest_goes_where_it_is_the_cheapest),
		cmocka_unit_test(a_store_is_made_to_evict_by_use),
		cmocka_unit_test(the_choice_is_the_stores_own),
		cmocka_unit_test(marks_of_chance_cost_no_entry_that_fits),
	};

	for (int i = 0; i < N; i++)
		tests[12 + i] = (struct CMUnitTest){
			.name = choices[i].name,
			.test_func = what_is_cheap_to_build_goes_first,
			.initial_state = (void *)(uintptr_t)&choices[i],
		};
	for (int i = 0; i < N_LOSSES; i++)
		tests[12 + N + i] = (struct CMUnitTest){
			.name = losses[i].name,
			.test_func = a_lost_choice_is_told,
			.initial_state = (void *)(uintptr_t)&losses[i],
		};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
