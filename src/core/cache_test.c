/* SPDX-License-Identifier: MIT */

/* The look-up path: which tier is asked when, who builds, who waits. */

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/shelf.h"

#include "core/cache_test.h"

static void a_kiln_works_without_a_store(void **state)
{
	struct kiln *kiln = open_with(defaults(), NULL, NULL);
	struct work work = { .text = "one" };

	assert_int_equal(kiln_store_status(kiln), KILN_MISS);
	assert_outcome(kiln, 1, &work, "one from build");
	assert_outcome(kiln, 1, &work, "one from memory");
	assert_got(kiln, 1, "one");
	assert_got(kiln, 2, "KILN_MISS");
	assert_int_equal(work.n_builds, 1);
	assert_int_equal(counter(kiln, KILN_COUNT_HITS_MEMORY), 2);
	assert_int_equal(counter(kiln, KILN_COUNT_MISSES), 2);
	assert_int_equal(counter(kiln, KILN_COUNT_BUILDS), 1);
	kiln_close(kiln);
	kiln_close(NULL);
}

static void tiers_are_asked_in_order_and_filled(void **state)
{
	struct shelf *near = shelf_new(), *far = shelf_new();
	struct kiln *other = open_with(defaults(), far, NULL);
	struct kiln *kiln = open_with(defaults(), near, far);
	struct work work = { .text = "one" };

	assert_outcome(other, 1, &work, "one from build");
	assert_outcome(kiln, 1, &work, "one from store");
	assert_int_equal(shelf_n_entries(near), 1);
	assert_outcome(kiln, 1, &work, "one from memory");
	assert_outcome(kiln, 2, &work, "one from build");
	assert_int_equal(shelf_n_entries(near), 2);
	assert_int_equal(shelf_n_entries(far), 2);
	kiln_close(kiln);

	kiln = open_with(defaults(), near, far);
	assert_outcome(kiln, 1, &work, "one from store");
	assert_int_equal(counter(kiln, KILN_COUNT_HITS_STORE), 1);
	assert_int_equal(counter(kiln, KILN_COUNT_BYTES_READ), 4);
	kiln_close(kiln);
	kiln_close(other);
	shelf_free(near);
	shelf_free(far);
}

static void a_failing_tier_is_a_miss(void **state)
{
	static const struct {
		enum kiln_status get;
		enum kiln_status put;
		enum kiln_counter counted;
	} rows[] = {
		{ KILN_E_IO, KILN_E_IO, KILN_COUNT_MISS_UNAVAILABLE },
		{ KILN_E_FORMAT, KILN_OK, KILN_COUNT_MISS_DAMAGED },
		{ KILN_E_COLLISION, KILN_OK, KILN_COUNT_COLLISIONS },
		{ KILN_OK, KILN_E_FULL, KILN_COUNT_MISS_FULL },
		{ KILN_OK, KILN_E_TIMEOUT, KILN_COUNT_MISS_BUSY },
		{ KILN_OK, KILN_E_TOO_LARGE, KILN_COUNT_PUTS_DROPPED },
		{ KILN_OK, KILN_E_NO_MEMORY, KILN_COUNT_PUTS_DROPPED },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct shelf *shelf = shelf_new();
		struct kiln *kiln = open_with(defaults(), shelf, NULL);
		struct work work = { .text = "one" };
		uint64_t counted;

		shelf_fail_get(shelf, rows[i].get);
		shelf_fail_put(shelf, rows[i].put);
		assert_outcome(kiln, 1, &work, "one from build");
		assert_outcome(kiln, 1, &work, "one from memory");
		counted = counter(kiln, rows[i].counted);
		/* A collision is met again under the build lock. */
		assert_in_range(counted, 1,
				rows[i].get == KILN_E_COLLISION ? 2 : 1);
		kiln_close(kiln);
		shelf_free(shelf);
	}
}

static void count_line(void *arg, enum kiln_log_level level,
		       const char *message)
{
	*(unsigned *)arg += level == KILN_LOG_ERROR;
}

/* S39: one message, not hundreds. */
static void trouble_with_a_tier_is_told_once(void **state)
{
	static const struct {
		enum kiln_status get;
		enum kiln_status put;
		unsigned n_lines;
	} rows[] = {
		{ KILN_OK, KILN_OK, 0 },	 { KILN_E_IO, KILN_OK, 1 },
		{ KILN_E_IO, KILN_E_IO, 2 },	 { KILN_OK, KILN_E_FULL, 1 },
		{ KILN_OK, KILN_E_READONLY, 1 }, { KILN_OK, KILN_E_TIMEOUT, 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_options options = defaults();
		struct shelf *shelf = shelf_new();
		struct work work = { .text = "one" };
		unsigned n_lines = 0;
		struct kiln *kiln;

		options.log = count_line;
		options.log_arg = &n_lines;
		kiln = open_with(options, shelf, NULL);
		shelf_fail_get(shelf, rows[i].get);
		shelf_fail_put(shelf, rows[i].put);
		for (unsigned n = 0; n < 20; n++)
			assert_outcome(kiln, n, &work, "one from build");
		assert_int_equal(n_lines, rows[i].n_lines);
		kiln_close(kiln);
		shelf_free(shelf);
	}
}

/* A front end tries what it finds; what comes of it is counted by its word. */
static void a_front_counts_what_it_made_of_an_entry(void **state)
{
	static const struct {
		enum kiln_status get;
		int is_there;
		enum kiln_counter outcome;
	} rows[] = {
		{ KILN_OK, 1, KILN_COUNT_HITS_STORE },
		{ KILN_OK, 0, KILN_COUNT_MISS_NEW },
		{ KILN_E_FORMAT, 1, KILN_COUNT_MISS_DAMAGED },
		{ KILN_E_IO, 1, KILN_COUNT_MISS_UNAVAILABLE },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct shelf *shelf = shelf_new();
		struct kiln *kiln = open_with(defaults(), shelf, NULL);
		struct kiln_blob *value = NULL, *metadata = NULL;
		struct kiln_key *key = key_of(1);
		enum kiln_counter outcome = KILN_N_COUNTERS;
		const int is_hit = rows[i].outcome == KILN_COUNT_HITS_STORE;

		if (rows[i].is_there)
			assert_int_equal(put(kiln, 1, "one", 0), KILN_OK);
		kiln_trim(kiln, 0);
		shelf_fail_get(shelf, rows[i].get);
		assert_int_equal(
			kiln_find_entry(kiln, key, &value, &metadata, &outcome),
			is_hit ? KILN_OK : KILN_MISS);
		assert_int_equal(outcome, rows[i].outcome);
		assert_int_equal(counter(kiln, outcome), 0);
		assert_int_equal(counter(kiln, KILN_COUNT_MISSES), 0);
		kiln_count_lookup(kiln, outcome, value, metadata);
		assert_int_equal(counter(kiln, outcome), 1);
		assert_int_equal(counter(kiln, KILN_COUNT_MISSES), !is_hit);
		assert_int_equal(counter(kiln, KILN_COUNT_BYTES_READ),
				 is_hit ? 4 : 0);
		kiln_blob_unref(value);
		kiln_blob_unref(metadata);
		kiln_key_free(key);
		kiln_close(kiln);
		shelf_free(shelf);
	}
}

/* S18 */
static void many_threads_build_once(void **state)
{
	struct shelf *shelf = shelf_new();
	struct kiln *kiln = open_with(defaults(), shelf, NULL);
	struct crowd crowd = {
		.kilns = { kiln },
		.n_kilns = 1,
		.work = { .text = "one", .kiln = kiln, .wait_for = 63 },
	};

	harness_threads(64, ask_for_one, &crowd);
	assert_int_equal(crowd.n_wrong, 0);
	assert_int_equal(crowd.work.n_builds, 1);
	assert_int_equal(counter(kiln, KILN_COUNT_WAITED), 63);
	assert_int_equal(counter(kiln, KILN_COUNT_BUILDS), 1);
	/* Once, once more under the build lock, and for the store's view. */
	assert_int_equal(shelf_calls(shelf).get, 3);
	assert_int_equal(shelf_calls(shelf).put, 1);
	assert_int_equal(shelf_calls(shelf).open_locks, 0);
	kiln_close(kiln);
	shelf_free(shelf);
}

/* Kilns on one medium stand for processes. */
static void many_kilns_on_one_store_build_once(void **state)
{
	struct shelf *shelf = shelf_new();
	struct crowd crowd = { .n_kilns = 4, .work = { .text = "one" } };

	for (unsigned i = 0; i < 4; i++)
		crowd.kilns[i] = open_with(defaults(), shelf, NULL);
	harness_threads(16, ask_for_one, &crowd);
	assert_int_equal(crowd.n_wrong, 0);
	assert_int_equal(crowd.work.n_builds, 1);
	for (unsigned i = 0; i < 4; i++)
		kiln_close(crowd.kilns[i]);
	shelf_free(shelf);
}

static void trouble_with_the_build_lock_only_costs_the_lock(void **state)
{
	static const struct {
		enum kiln_status status;
		uint32_t flags;
		enum kiln_counter counted;
		uint64_t n_counted;
		unsigned n_calls;
	} rows[] = {
		{ KILN_E_TIMEOUT, 0, KILN_COUNT_LOCK_TIMEOUTS, 1, 1 },
		{ KILN_E_UNSUPPORTED, 0, KILN_COUNT_NO_LOCKS, 1, 1 },
		{ KILN_E_IO, 0, KILN_COUNT_NO_LOCKS, 1, 1 },
		{ KILN_OK, KILN_OPEN_NO_BUILD_LOCK, KILN_COUNT_NO_LOCKS, 0, 0 },
		{ KILN_OK, KILN_OPEN_READONLY, KILN_COUNT_NO_LOCKS, 0, 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_options options = defaults();
		struct shelf *shelf = shelf_new();
		struct work work = { .text = "one" };
		struct kiln *kiln;

		options.flags = rows[i].flags;
		kiln = open_with(options, shelf, NULL);
		shelf_fail_lock(shelf, rows[i].status);
		assert_outcome(kiln, 1, &work, "one from build");
		assert_int_equal(counter(kiln, rows[i].counted),
				 rows[i].n_counted);
		assert_int_equal(shelf_calls(shelf).lock, rows[i].n_calls);
		kiln_close(kiln);
		shelf_free(shelf);
	}
}

/* S22 */
static void failures_reach_the_caller_and_obey_the_policy(void **state)
{
	static const struct {
		enum kiln_failure_policy policy;
		enum kiln_build_kind kind;
		const char *second;
	} rows[] = {
		{ KILN_FAILURE_RETRY, KILN_BUILD_FAILED, "no, -11 from build" },
		{ KILN_FAILURE_KEEP, KILN_BUILD_FAILED,
		  "no, -11 from failure" },
		{ KILN_FAILURE_KEEP_FOR, KILN_BUILD_FAILED,
		  "no, -11 from failure" },
		{ KILN_FAILURE_KEEP, KILN_BUILD_SPURIOUS,
		  "no, -11 from build" },
		{ KILN_FAILURE_KEEP, KILN_BUILD_RESOURCES,
		  "no, -11 from build" },
		{ KILN_FAILURE_KEEP, KILN_BUILD_UNCACHED,
		  "no, -11 from build" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_options options = defaults();
		struct shelf *shelf = shelf_new();
		struct work work = { .text = "no", .kind = rows[i].kind };
		struct kiln *kiln;

		options.failure_policy = rows[i].policy;
		options.failure_ttl_ms = 100000;
		kiln = open_with(options, shelf, NULL);
		assert_outcome(kiln, 1, &work, "no, -11 from build");
		assert_outcome(kiln, 1, &work, rows[i].second);
		assert_int_equal(shelf_calls(shelf).put, 0);
		assert_int_equal(counter(kiln, KILN_COUNT_BUILD_FAILURES),
				 rows[i].kind == KILN_BUILD_UNCACHED
					 ? 0
					 : work.n_builds);
		/* A value put meanwhile ends it. */
		assert_int_equal(put(kiln, 1, "yes", 0), KILN_OK);
		assert_outcome(kiln, 1, &work, "yes from store");
		kiln_close(kiln);
		shelf_free(shelf);
	}
}

static void build_nothing(const struct kiln_key *key, void *arg,
			  struct kiln_build_result *result)
{
}

static void a_success_without_a_blob_breaks_the_contract(void **state)
{
	struct kiln *kiln = open_with(defaults(), NULL, NULL);
	struct kiln_key *key = key_of(1);
	struct kiln_build_result result;

	kiln_build_result_init(&result);
	assert_int_equal(
		kiln_get_or_build(kiln, key, build_nothing, NULL, &result),
		KILN_E_INVALID);
	kiln_key_free(key);
	kiln_close(kiln);
}

struct nesting {
	struct kiln *kiln;
	enum kiln_status same, other;
};

static void build_nested(const struct kiln_key *key, void *arg,
			 struct kiln_build_result *result)
{
	struct nesting *nesting = arg;
	struct work work = { .text = "inner" };
	struct kiln_build_result inner;
	struct kiln_key *other = key_of(2);

	kiln_build_result_init(&inner);
	nesting->same = kiln_get_or_build(nesting->kiln, key, build_text, &work,
					  &inner);
	nesting->other = kiln_get_or_build(nesting->kiln, other, build_text,
					   &work, &inner);
	kiln_build_result_fini(&inner);
	kiln_key_free(other);
	if (kiln_blob_copy("outer", 6, &result->blob))
		abort();
}

/* S23 */
static void a_build_may_use_the_kiln_but_not_for_its_own_key(void **state)
{
	struct shelf *shelf = shelf_new();
	struct kiln *kiln = open_with(defaults(), shelf, NULL);
	struct nesting nesting = { .kiln = kiln };
	struct kiln_key *key = key_of(1);
	struct kiln_build_result result;

	kiln_build_result_init(&result);
	assert_int_equal(
		kiln_get_or_build(kiln, key, build_nested, &nesting, &result),
		KILN_OK);
	assert_int_equal(nesting.same, KILN_E_INVALID);
	assert_int_equal(nesting.other, KILN_OK);
	assert_string_equal(kiln_blob_data(result.blob), "outer");
	assert_got(kiln, 2, "inner");
	kiln_build_result_fini(&result);
	kiln_key_free(key);
	kiln_close(kiln);
	shelf_free(shelf);
}

static void build_and_fork(const struct kiln_key *key, void *arg,
			   struct kiln_build_result *result)
{
	struct nesting *nesting = arg;
	struct work work = { .text = "inner" };
	pid_t child = fork();
	int status;

	if (!child) {
		struct kiln_build_result inner;
		struct kiln_key *other = key_of(2);

		kiln_build_result_init(&inner);
		_exit(kiln_get_or_build(nesting->kiln, key, build_text, &work,
					&inner) != KILN_E_FORKED ||
		      kiln_get_or_build(nesting->kiln, other, build_text, &work,
					&inner) != KILN_E_FORKED);
	}
	nesting->same = waitpid(child, &status, 0) == child && !status
				? KILN_OK
				: KILN_E_IO;
	if (kiln_blob_copy("outer", 6, &result->blob))
		abort();
}

/* S23 */
static void a_build_may_fork(void **state)
{
	struct shelf *shelf = shelf_new();
	struct kiln *kiln = open_with(defaults(), shelf, NULL);
	struct nesting nesting = { .kiln = kiln, .same = KILN_E_IO };
	struct kiln_key *key = key_of(1);
	struct kiln_build_result result;

	kiln_build_result_init(&result);
	assert_int_equal(
		kiln_get_or_build(kiln, key, build_and_fork, &nesting, &result),
		KILN_OK);
	assert_int_equal(nesting.same, KILN_OK);
	assert_string_equal(kiln_blob_data(result.blob), "outer");
	assert_int_equal(shelf_calls(shelf).open_locks, 0);
	kiln_build_result_fini(&result);
	kiln_key_free(key);
	kiln_close(kiln);
	shelf_free(shelf);
}

/* S02: on the way of a hit too, by a key of the same size. */
static void an_equal_digest_is_no_hit(void **state)
{
	struct kiln *kiln = open_with(defaults(), NULL, NULL);
	struct kiln_key *one = key_of(1), *other = key_of(2);
	struct kiln_blob *blob;

	other->digest_low = one->digest_low;
	other->digest_high = one->digest_high;
	assert_int_equal(kiln_put(kiln, one, "one", 4, NULL, 0), KILN_OK);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(kiln_get(kiln, one, &blob), KILN_OK);
		kiln_blob_unref(blob);
		assert_int_equal(kiln_get(kiln, other, &blob), KILN_MISS);
	}
	kiln_key_free(other);
	kiln_key_free(one);
	kiln_close(kiln);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_equal_digest_is_no_hit),
		cmocka_unit_test(a_kiln_works_without_a_store),
		cmocka_unit_test(tiers_are_asked_in_order_and_filled),
		cmocka_unit_test(a_failing_tier_is_a_miss),
		cmocka_unit_test(a_front_counts_what_it_made_of_an_entry),
		cmocka_unit_test(trouble_with_a_tier_is_told_once),
		cmocka_unit_test(many_threads_build_once),
		cmocka_unit_test(many_kilns_on_one_store_build_once),
		cmocka_unit_test(
			trouble_with_the_build_lock_only_costs_the_lock),
		cmocka_unit_test(failures_reach_the_caller_and_obey_the_policy),
		cmocka_unit_test(a_success_without_a_blob_breaks_the_contract),
		cmocka_unit_test(
			a_build_may_use_the_kiln_but_not_for_its_own_key),
		cmocka_unit_test(a_build_may_fork),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
