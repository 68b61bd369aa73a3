/* SPDX-License-Identifier: MIT */

#include "harness/harness.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kiln/inspect.h>
#include <kiln/kiln.h>
#include <kiln/tier.h>

#include "core/cache.h"
#include "harness/shelf.h"
#include "key/key.h"

/* ---- Keys, kilns, builds --------------------------------------------------- */

static struct kiln_key *key_of(unsigned number)
{
	struct kiln_key *key = kiln_key_new();
	char text[32];

	snprintf(text, sizeof(text), "kernel %u", number);
	kiln_key_add_string(key, "source", text);
	if (kiln_key_finish(key))
		abort();
	return key;
}

static struct kiln *open_with(struct kiln_options options, struct shelf *first,
			      struct shelf *second)
{
	struct kiln_tier *tiers[2];
	struct kiln *kiln;

	if (first)
		tiers[options.n_tiers++] = shelf_tier(first);
	if (second)
		tiers[options.n_tiers++] = shelf_tier(second);
	options.tiers = tiers;
	if (kiln_open(&options, &kiln))
		abort();
	return kiln;
}

static struct kiln_options defaults(void)
{
	struct kiln_options options;

	kiln_options_init(&options);
	return options;
}

/* What a build does, and how often it was asked to. */
struct work {
	enum kiln_build_kind kind;
	const char *text;
	struct kiln *kiln;
	unsigned wait_for; /* so many threads wait for this build */
	_Atomic unsigned n_builds;
};

static uint64_t counter(struct kiln *kiln, enum kiln_counter which)
{
	struct kiln_stats stats;

	kiln_stats_init(&stats);
	if (kiln_stats(kiln, &stats))
		return UINT64_MAX;
	return stats.counters[which];
}

static void build_text(const struct kiln_key *key, void *arg,
		       struct kiln_build_result *result)
{
	struct work *work = arg;

	atomic_fetch_add(&work->n_builds, 1);
	while (work->wait_for &&
	       counter(work->kiln, KILN_COUNT_WAITED) < work->wait_for)
		sched_yield();
	result->kind = work->kind;
	if (work->kind == KILN_BUILD_OK) {
		if (kiln_blob_copy(work->text, strlen(work->text) + 1,
				   &result->blob))
			abort();
		return;
	}
	result->code = -11;
	result->message = strdup(work->text);
}

/* What get_or_build of a key gave, in words. */
static const char *outcome(struct kiln *kiln, unsigned number,
			   struct work *work, char out[128])
{
	static const char *const sources[] = { "memory", "store", "build",
					       "flight", "failure" };
	struct kiln_key *key = key_of(number);
	struct kiln_build_result result;
	enum kiln_status status;

	kiln_build_result_init(&result);
	status = kiln_get_or_build(kiln, key, build_text, work, &result);
	if (status == KILN_OK)
		snprintf(out, 128, "%s from %s",
			 (const char *)kiln_blob_data(result.blob),
			 sources[result.source]);
	else if (status == KILN_E_BUILD)
		snprintf(out, 128, "%s, %d from %s", result.message,
			 result.code, sources[result.source]);
	else
		snprintf(out, 128, "%s", kiln_status_name(status));
	kiln_build_result_fini(&result);
	kiln_key_free(key);
	return out;
}

#define assert_outcome(kiln, number, work, text)                               \
	do {                                                                   \
		char out_[128];                                                \
		assert_string_equal(outcome(kiln, number, work, out_), text);  \
	} while (0)

/* The text of an entry, or the status. */
static const char *got(struct kiln *kiln, unsigned number, char out[128])
{
	struct kiln_key *key = key_of(number);
	struct kiln_blob *blob;
	enum kiln_status status = kiln_get(kiln, key, &blob);

	snprintf(out, 128, "%s",
		 status ? kiln_status_name(status)
			: (const char *)kiln_blob_data(blob));
	if (!status)
		kiln_blob_unref(blob);
	kiln_key_free(key);
	return out;
}

#define assert_got(kiln, number, text)                                         \
	do {                                                                   \
		char out_[128];                                                \
		assert_string_equal(got(kiln, number, out_), text);            \
	} while (0)

static enum kiln_status put(struct kiln *kiln, unsigned number,
			    const char *text, unsigned flags)
{
	struct kiln_key *key = key_of(number);
	enum kiln_status status =
		kiln_put(kiln, key, text, strlen(text) + 1, NULL, flags);

	kiln_key_free(key);
	return status;
}

/* ---- The lookup path ------------------------------------------------------- */

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

struct crowd {
	struct kiln *kilns[4];
	unsigned n_kilns;
	struct work work;
	_Atomic unsigned n_wrong;
};

static int ask_for_one(unsigned index, void *arg)
{
	struct crowd *crowd = arg;
	char out[128];

	outcome(crowd->kilns[index % crowd->n_kilns], 1, &crowd->work, out);
	if (strncmp(out, "one from ", 9))
		atomic_fetch_add(&crowd->n_wrong, 1);
	return 0;
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
				 work.n_builds);
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

/* ---- Metadata -------------------------------------------------------------- */

static void build_with_metadata(const struct kiln_key *key, void *arg,
				struct kiln_build_result *result)
{
	result->metadata = kiln_metadata_new();
	kiln_metadata_add_string(result->metadata, KILN_META_OPTIONS, "-O2");
	kiln_metadata_add_u64(result->metadata, KILN_META_BUILD_TIME, 7000000);
	if (kiln_blob_copy("one", 4, &result->blob))
		abort();
}

static void an_entry_says_where_it_comes_from(void **state)
{
	struct kiln_options options = defaults();
	struct shelf *shelf = shelf_new();
	struct kiln_key *key = key_of(1);
	struct kiln_build_result result;
	struct kiln_blob *value, *metadata;
	struct kiln *kiln;
	const void *data;
	uint64_t number;
	size_t size;

	options.name_space = "tests";
	kiln = open_with(options, shelf, NULL);
	kiln_build_result_init(&result);
	assert_int_equal(kiln_get_or_build(kiln, key, build_with_metadata, NULL,
					   &result),
			 KILN_OK);
	assert_null(result.metadata);
	kiln_build_result_fini(&result);
	assert_int_equal(kiln_get_entry(kiln, key, &value, &metadata), KILN_OK);
	data = kiln_blob_data(metadata);
	size = kiln_blob_size(metadata);
	assert_int_equal(
		kiln_metadata_find_u64(data, size, KILN_META_CREATED, &number),
		KILN_OK);
	assert_true(number > 1600000000);
	assert_int_equal(kiln_metadata_find_u64(data, size,
						KILN_META_BUILD_TIME, &number),
			 KILN_OK);
	assert_int_equal(number, 7000000);
	assert_int_equal(kiln_metadata_find(data, size, KILN_META_NAMESPACE,
					    &data, &size),
			 KILN_OK);
	assert_memory_equal(data, "tests", size);
	data = kiln_blob_data(metadata);
	size = kiln_blob_size(metadata);
	assert_int_equal(kiln_metadata_find(data, size, KILN_META_APPLICATION,
					    &data, &size),
			 KILN_OK);
	assert_memory_equal((const char *)data + size - 10, "test_cache", 10);
	/* Saved: what the entry's build took. */
	assert_int_equal(counter(kiln, KILN_COUNT_SAVED_NS), 7000000);
	kiln_blob_unref(value);
	kiln_blob_unref(metadata);
	kiln_key_free(key);
	kiln_close(kiln);
	shelf_free(shelf);
}

/* ---- Parts of it ----------------------------------------------------------- */

static void put_replace_remove_and_wipe(void **state)
{
	for (int with_store = 0; with_store < 2; with_store++) {
		struct shelf *shelf = with_store ? shelf_new() : NULL;
		struct kiln *kiln = open_with(defaults(), shelf, NULL);
		struct kiln_key *key = key_of(1);

		assert_int_equal(put(kiln, 1, "one", 0), KILN_OK);
		assert_got(kiln, 1, "one");
		assert_int_equal(put(kiln, 1, "two", 0), KILN_EXISTS);
		assert_got(kiln, 1, "one");
		assert_int_equal(put(kiln, 1, "two", KILN_PUT_REPLACE),
				 KILN_OK);
		assert_got(kiln, 1, "two");
		assert_int_equal(kiln_remove(kiln, key), KILN_OK);
		assert_int_equal(kiln_remove(kiln, key), KILN_MISS);
		assert_got(kiln, 1, "KILN_MISS");
		assert_int_equal(put(kiln, 1, "one", 0), KILN_OK);
		assert_got(kiln, 1, "one");
		assert_int_equal(kiln_wipe(kiln), KILN_OK);
		assert_got(kiln, 1, "KILN_MISS");
		kiln_prefetch(kiln, (const struct kiln_key *const *)&key, 1);
		kiln_key_free(key);
		kiln_close(kiln);
		if (shelf)
			shelf_free(shelf);
	}
}

static void a_value_that_the_store_refuses_is_in_memory(void **state)
{
	struct shelf *shelf = shelf_new();
	struct kiln *kiln = open_with(defaults(), shelf, NULL);

	shelf_fail_put(shelf, KILN_E_FULL);
	assert_int_equal(put(kiln, 1, "one", 0), KILN_E_FULL);
	assert_got(kiln, 1, "one");
	assert_int_equal(counter(kiln, KILN_COUNT_PUTS_DROPPED), 1);
	kiln_close(kiln);
	shelf_free(shelf);
}

static void memory_follows_what_others_do_to_the_store(void **state)
{
	struct shelf *shelf = shelf_new();
	struct kiln *kiln = open_with(defaults(), shelf, NULL);
	struct kiln *other = open_with(defaults(), shelf, NULL);
	struct work work = { .text = "one" };

	assert_outcome(kiln, 1, &work, "one from build");
	assert_outcome(kiln, 1, &work, "one from memory");
	assert_int_equal(kiln_wipe(other), KILN_OK);
	assert_outcome(kiln, 1, &work, "one from build");
	assert_int_equal(put(other, 1, "two", KILN_PUT_REPLACE), KILN_OK);
	assert_outcome(kiln, 1, &work, "two from store");
	kiln_close(kiln);
	kiln_close(other);
	shelf_free(shelf);
}

static void a_readonly_kiln_writes_nothing(void **state)
{
	struct kiln_options options = defaults();
	struct shelf *shelf = shelf_new();
	struct kiln *kiln = open_with(options, shelf, NULL);
	struct work work = { .text = "one" };
	struct shelf_calls before, after;
	struct kiln_key *key = key_of(1);

	assert_int_equal(put(kiln, 1, "one", 0), KILN_OK);
	kiln_close(kiln);
	before = shelf_calls(shelf);
	options.flags = KILN_OPEN_READONLY;
	kiln = open_with(options, shelf, NULL);
	assert_outcome(kiln, 1, &work, "one from store");
	assert_outcome(kiln, 2, &work, "one from build");
	assert_outcome(kiln, 2, &work, "one from memory");
	assert_int_equal(put(kiln, 3, "one", 0), KILN_E_READONLY);
	assert_int_equal(kiln_remove(kiln, key), KILN_E_READONLY);
	assert_int_equal(kiln_wipe(kiln), KILN_E_READONLY);
	assert_int_equal(kiln_set_limit(kiln, 1), KILN_E_READONLY);
	kiln_note_build(kiln, 1);
	assert_int_equal(kiln_builds_now(kiln), 0);
	kiln_close(kiln);
	after = shelf_calls(shelf);
	assert_int_equal(after.put, before.put);
	assert_int_equal(after.remove, 0);
	assert_int_equal(after.wipe, 0);
	assert_int_equal(after.count, before.count);
	kiln_key_free(key);
	shelf_free(shelf);
}

static void a_guest_holds_no_values_in_memory(void **state)
{
	struct kiln_options options = defaults();
	struct shelf *shelf = shelf_new();
	struct work work = { .text = "one" };
	struct kiln_stats stats;
	struct kiln *kiln;

	options.flags = KILN_OPEN_GUEST;
	kiln = open_with(options, shelf, NULL);
	assert_outcome(kiln, 1, &work, "one from build");
	assert_outcome(kiln, 1, &work, "one from store");
	assert_got(kiln, 1, "one");
	kiln_stats_init(&stats);
	assert_int_equal(kiln_stats(kiln, &stats), KILN_OK);
	assert_int_equal(stats.memory_bytes, 0);
	kiln_close(kiln);
	shelf_free(shelf);
}

/* S47 */
static void trimming_gives_memory_back(void **state)
{
	struct kiln_options options = defaults();
	struct kiln_stats stats;
	struct kiln *kiln;
	char text[1000];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	options.memory_bytes_max = 100000;
	kiln = open_with(options, NULL, NULL);
	kiln_stats_init(&stats);
	for (unsigned i = 0; i < 500; i++) {
		assert_int_equal(put(kiln, i, text, 0), KILN_OK);
		assert_int_equal(kiln_stats(kiln, &stats), KILN_OK);
		assert_true(stats.memory_bytes <= 100000);
	}
	assert_true(stats.memory_entries > 50);
	kiln_trim(kiln, 10000);
	assert_int_equal(kiln_stats(kiln, &stats), KILN_OK);
	assert_true(stats.memory_bytes <= 10000);
	kiln_close(kiln);
}

#define S_NS UINT64_C(1000000000)

/* Design 6: above 90 percent the tier is halved, once in 10 s, not below an
   eighth of its bound.  S47 */
static void short_memory_halves_the_tier(void **state)
{
	static const struct {
		const char *name;
		int percent;
		uint64_t now_s;
		uint64_t entries_max; /* afterwards, of 800 */
		uint64_t entries_min;
	} rows[] = {
		{ "unknown", -1, 100, 800, 800 },
		{ "at the limit", 90, 101, 800, 800 },
		{ "above", 91, 102, 400, 380 },
		{ "again too soon", 99, 111, 400, 380 },
		{ "again", 99, 112, 200, 180 },
		{ "once more", 99, 130, 110, 90 },
		{ "not below an eighth", 99, 150, 110, 90 },
	};
	struct kiln_options options = defaults();
	struct kiln_stats stats;
	struct kiln *kiln;
	char text[1000];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	/* 800 fill it. */
	options.memory_bytes_max = 0;
	kiln = open_with(options, NULL, NULL);
	kiln_stats_init(&stats);
	assert_int_equal(put(kiln, 0, text, 0), KILN_OK);
	assert_int_equal(kiln_stats(kiln, &stats), KILN_OK);
	kiln_close(kiln);
	options.memory_bytes_max = stats.memory_bytes * 803;
	kiln = open_with(options, NULL, NULL);
	for (unsigned i = 0; i < 800; i++)
		assert_int_equal(put(kiln, i, text, 0), KILN_OK);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		ki_kiln_relieve(kiln, rows[i].percent, rows[i].now_s * S_NS);
		assert_int_equal(kiln_stats(kiln, &stats), KILN_OK);
		if (stats.memory_entries > rows[i].entries_max ||
		    stats.memory_entries < rows[i].entries_min)
			fail_msg("%s: %llu entries", rows[i].name,
				 (unsigned long long)stats.memory_entries);
	}
	kiln_close(kiln);
}

/* ---- The store as a whole -------------------------------------------------- */

static void the_store_can_be_looked_into(void **state)
{
	struct shelf *shelf = shelf_new();
	struct kiln *kiln = open_with(defaults(), shelf, NULL);
	struct kiln_verify_report report;
	struct kiln_store_counters *counters = calloc(1, sizeof(*counters));
	struct kiln_store_info info;
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;
	enum kiln_status status;
	unsigned n = 0;

	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(put(kiln, i, "text", 0), KILN_OK);
	while (!(status = kiln_list(kiln, &cursor, &entry))) {
		assert_int_equal(entry.value_size, 5);
		kiln_entry_fini(&entry);
		n++;
	}
	assert_int_equal(status, KILN_END);
	assert_int_equal(n, 10);
	assert_int_equal(kiln_verify(kiln, 0, NULL, NULL, &report), KILN_OK);
	assert_int_equal(report.n_entries, 10);
	assert_int_equal(kiln_verify(kiln, 8, NULL, NULL, &report),
			 KILN_E_INVALID);
	assert_int_equal(kiln_store_info(kiln, &info), KILN_OK);
	assert_string_equal(info.kind, "shelf");
	assert_int_equal(kiln_set_limit(kiln, 1), KILN_E_UNSUPPORTED);
	kiln_note_build(kiln, 1);
	assert_int_equal(kiln_builds_now(kiln), 1);
	kiln_note_build(kiln, 0);
	assert_int_equal(kiln_builds_now(kiln), 0);
	assert_int_equal(kiln_store_counters(kiln, counters), KILN_OK);
	assert_int_equal(kiln_store_counters_zero(kiln), KILN_OK);
	free(counters);
	kiln_close(kiln);

	kiln = open_with(defaults(), NULL, NULL);
	assert_int_equal(kiln_list(kiln, &cursor, &entry), KILN_E_UNSUPPORTED);
	assert_int_equal(kiln_verify(kiln, 0, NULL, NULL, &report),
			 KILN_E_UNSUPPORTED);
	assert_int_equal(kiln_builds_now(kiln), 0);
	kiln_close(kiln);
	shelf_free(shelf);
}

static void counters_have_names(void **state)
{
	assert_string_equal(kiln_counter_name(KILN_COUNT_HITS_STORE),
			    "hits_store");
	assert_string_equal(kiln_counter_words(KILN_COUNT_HITS_STORE),
			    "hits in the store");
	for (unsigned i = 0; i < KILN_N_COUNTERS; i++)
		assert_non_null(kiln_counter_name(i));
	assert_null(kiln_counter_name(KILN_N_COUNTERS));
	assert_null(kiln_counter_words(KILN_N_COUNTERS));
}

/* ---- Options --------------------------------------------------------------- */

static void remember(void *arg, enum kiln_log_level level, const char *message)
{
	if (level == KILN_LOG_ERROR)
		snprintf(arg, 256, "%s", message);
}

static void wrong_options_are_named(void **state)
{
	struct kiln_tier *no_tier = NULL;
	const struct {
		const char *name;
		struct kiln_options change;
	} rows[] = {
		{ "flags", { .flags = 1u << 30 } },
		{ "failure_policy",
		  { .failure_policy = (enum kiln_failure_policy)9 } },
		{ "store_url", { .store_url = "nonsense:/tmp" } },
		{ "store_url", { .store_url = "" } },
		{ "tiers", { .n_tiers = 1 } },
		{ "tiers", { .n_tiers = 1, .tiers = &no_tier } },
		{ "n_tiers", { .n_tiers = 100, .tiers = &no_tier } },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_options options = rows[i].change;
		char message[256] = "";
		struct kiln *kiln;

		options.size = sizeof(options);
		options.log = remember;
		options.log_arg = message;
		if (options.n_tiers == 100)
			options.n_tiers = 8;
		if (options.n_tiers == 8) {
			struct kiln_tier *tiers[8] = { NULL };

			options.tiers = tiers;
			assert_int_equal(kiln_open(&options, &kiln),
					 KILN_E_INVALID);
		} else {
			assert_int_equal(kiln_open(&options, &kiln),
					 KILN_E_INVALID);
		}
		assert_non_null(strstr(message, rows[i].name));
	}
}

static void tiers_are_closed_when_opening_fails(void **state)
{
	struct shelf *shelf = shelf_new();
	struct kiln_tier *tier = shelf_tier(shelf);
	struct kiln_options options = defaults();
	struct kiln *kiln;

	options.tiers = &tier;
	options.n_tiers = 1;
	options.flags = 1u << 31;
	assert_int_equal(kiln_open(&options, &kiln), KILN_E_INVALID);
	assert_int_equal(shelf_calls(shelf).close, 1);
	shelf_free(shelf);
}

static void options_of_other_versions_are_understood(void **state)
{
	struct {
		struct kiln_options options;
		uint64_t later;
	} newer = { .later = 0 };
	struct kiln_options older = { .size = offsetof(struct kiln_options,
						       failure_ttl_ms) };
	struct kiln *kiln;

	kiln_options_init(&newer.options);
	newer.options.size = sizeof(newer);
	assert_int_equal(kiln_open(&newer.options, &kiln), KILN_OK);
	kiln_close(kiln);
	newer.later = 1;
	assert_int_equal(kiln_open(&newer.options, &kiln), KILN_E_INVALID);
	assert_int_equal(kiln_open(&older, &kiln), KILN_OK);
	kiln_close(kiln);
	assert_int_equal(kiln_open(NULL, &kiln), KILN_OK);
	kiln_close(kiln);
}

/* ---- Process life ---------------------------------------------------------- */

static _Atomic int stop;

struct busy {
	struct kiln *kiln;
	pthread_t threads[3];
};

static void *keep_busy(void *arg)
{
	struct work work = { .text = "one" };
	char out[128];

	for (unsigned i = 0; !atomic_load(&stop); i++) {
		outcome(arg, i % 40, &work, out);
		if (i % 8 == 0)
			put(arg, i % 40, "two", KILN_PUT_REPLACE);
	}
	return NULL;
}

static void start(struct busy *busy, struct kiln *kiln)
{
	busy->kiln = kiln;
	atomic_store(&stop, 0);
	for (int i = 0; i < 3; i++)
		if (pthread_create(&busy->threads[i], NULL, keep_busy, kiln))
			abort();
}

static void end(struct busy *busy)
{
	atomic_store(&stop, 1);
	for (int i = 0; i < 3; i++)
		pthread_join(busy->threads[i], NULL);
}

/* In a forked child: the number of the first call that answers wrongly. */
static int use_inherited(struct kiln *kiln)
{
	struct work work = { .text = "one" };
	struct kiln_stats stats;
	struct kiln_verify_report report;
	struct kiln_store_info info;
	struct kiln_key *key = key_of(1);
	struct kiln_blob *blob;
	char out[128];

	kiln_stats_init(&stats);
	if (strcmp(outcome(kiln, 1, &work, out), "KILN_E_FORKED"))
		return 1;
	if (strcmp(got(kiln, 1, out), "KILN_E_FORKED"))
		return 2;
	if (put(kiln, 1, "x", 0) != KILN_E_FORKED)
		return 3;
	if (kiln_remove(kiln, key) != KILN_E_FORKED)
		return 4;
	if (kiln_wipe(kiln) != KILN_E_FORKED)
		return 5;
	if (kiln_stats(kiln, &stats) != KILN_E_FORKED)
		return 6;
	if (kiln_verify(kiln, 0, NULL, NULL, &report) != KILN_E_FORKED)
		return 7;
	if (kiln_store_info(kiln, &info) != KILN_E_FORKED)
		return 8;
	if (kiln_get_entry(kiln, key, &blob, &blob) != KILN_E_FORKED)
		return 9;
	kiln_trim(kiln, 0);
	kiln_count(kiln, KILN_COUNT_MISSES, 1);
	kiln_close(kiln);
	kiln_key_free(key);

	/* A kiln of the child's own. */
	kiln = open_with(defaults(), NULL, NULL);
	if (strcmp(outcome(kiln, 1, &work, out), "one from build"))
		return 10;
	if (strcmp(outcome(kiln, 1, &work, out), "one from memory"))
		return 11;
	kiln_close(kiln);
	return 0;
}

/* S40: whatever the other threads held at that moment. */
static void a_forked_child_is_told_and_may_close(void **state)
{
	struct shelf *shelf = shelf_new();
	struct kiln *kiln = open_with(defaults(), shelf, NULL);
	struct work work = { .text = "one" };
	struct busy busy;
	int wrong = 0;

	start(&busy, kiln);
	for (int i = 0; i < 10; i++) {
		int status;
		pid_t pid = fork();

		if (!pid)
			_exit(use_inherited(kiln));
		if (waitpid(pid, &status, 0) != pid || status)
			wrong = status ? status : -1;
	}
	end(&busy);
	assert_int_equal(wrong, 0);
	assert_outcome(kiln, 1000, &work, "one from build");
	kiln_close(kiln);
	shelf_free(shelf);
}

static void nothing(int signal)
{
}

/* S43: a storm of signals whose handler does not restart calls. */
static void signals_change_nothing(void **state)
{
	struct sigaction storm = { .sa_handler = nothing }, before, during;
	struct itimerval timer = { { 0, 300 }, { 0, 300 } }, none = { 0 };
	struct shelf *shelf = shelf_new();
	struct kiln *kiln = open_with(defaults(), shelf, NULL);
	struct crowd crowd = {
		.kilns = { kiln },
		.n_kilns = 1,
		.work = { .text = "one", .kiln = kiln, .wait_for = 15 },
	};

	sigaction(SIGALRM, &storm, &before);
	setitimer(ITIMER_REAL, &timer, NULL);
	harness_threads(16, ask_for_one, &crowd);
	setitimer(ITIMER_REAL, &none, NULL);
	sigaction(SIGALRM, &before, &during);
	assert_int_equal(crowd.n_wrong, 0);
	assert_int_equal(crowd.work.n_builds, 1);
	assert_ptr_equal(during.sa_handler, nothing);
	kiln_close(kiln);
	shelf_free(shelf);
}

struct closing {
	struct kiln *kiln;
	_Atomic int building;
	_Atomic int built;
};

static void build_while_closing(const struct kiln_key *key, void *arg,
				struct kiln_build_result *result)
{
	struct closing *closing = arg;

	atomic_store(&closing->building, 1);
	/* The kiln is being closed once it refuses other calls. */
	while (counter(closing->kiln, KILN_COUNT_MISSES) != UINT64_MAX)
		sched_yield();
	atomic_store(&closing->built, 1);
	if (kiln_blob_copy("one", 4, &result->blob))
		abort();
}

static void *build_one(void *arg)
{
	struct closing *closing = arg;
	struct kiln_key *key = key_of(1);
	struct kiln_build_result result;

	kiln_build_result_init(&result);
	if (kiln_get_or_build(closing->kiln, key, build_while_closing, closing,
			      &result))
		abort();
	kiln_build_result_fini(&result);
	kiln_key_free(key);
	return NULL;
}

static void closing_waits_for_calls_in_progress(void **state)
{
	struct shelf *shelf = shelf_new();
	struct closing closing = { .kiln = open_with(defaults(), shelf, NULL) };
	pthread_t thread;

	if (pthread_create(&thread, NULL, build_one, &closing))
		abort();
	while (!atomic_load(&closing.building))
		sched_yield();
	kiln_close(closing.kiln);
	assert_int_equal(closing.built, 1);
	assert_int_equal(shelf_n_entries(shelf), 1);
	pthread_join(thread, NULL);
	shelf_free(shelf);
}

static struct kiln *never_closed;
static struct shelf *never_freed;

/* What happens at exit, with threads at work: S42. */
static int leave_open(unsigned index, void *arg)
{
	struct busy busy;
	struct work work = { .text = "one" };
	char out[128];

	never_freed = shelf_new();
	never_closed = open_with(defaults(), never_freed, NULL);
	outcome(never_closed, 1, &work, out);
	start(&busy, never_closed);
	if (index)
		exit(0);
	_exit(0);
}

static void a_process_may_end_with_a_kiln_open(void **state)
{
	assert_int_equal(harness_processes(6, leave_open, NULL, HARNESS_HANG_S),
			 0);
}

static void blobs_outlive_the_kiln(void **state)
{
	struct kiln *kiln = open_with(defaults(), NULL, NULL);
	struct kiln_key *key = key_of(1);
	struct kiln_blob *blob;

	assert_int_equal(put(kiln, 1, "one", 0), KILN_OK);
	assert_int_equal(kiln_get(kiln, key, &blob), KILN_OK);
	kiln_close(kiln);
	assert_string_equal(kiln_blob_data(blob), "one");
	kiln_blob_unref(blob);
	kiln_key_free(key);
}

static int use_heavily(unsigned index, void *arg)
{
	uint64_t seed = index + 1;
	struct crowd *crowd = arg;
	char out[128], text[128];

	for (int i = 0; i < 400; i++) {
		unsigned number = (unsigned)(harness_random(&seed) % 30);
		unsigned what = (unsigned)(harness_random(&seed) % 16);
		struct kiln *kiln = crowd->kilns[index % crowd->n_kilns];
		struct kiln_key *key = key_of(number);

		snprintf(text, sizeof(text), "kernel %u", number);
		if (what == 0)
			kiln_remove(kiln, key);
		else if (what == 1)
			put(kiln, number, text, KILN_PUT_REPLACE);
		else if (what == 2)
			kiln_trim(kiln, 3000);
		else if (what == 3 && number == 7)
			kiln_wipe(kiln);
		else if (strcmp(got(kiln, number, out), text) &&
			 strcmp(out, "KILN_MISS"))
			atomic_fetch_add(&crowd->n_wrong, 1);
		if (what > 8) {
			struct work work = { .text = text };

			outcome(kiln, number, &work, out);
			if (strncmp(out, text, strlen(text)))
				atomic_fetch_add(&crowd->n_wrong, 1);
		}
		kiln_key_free(key);
	}
	return 0;
}

static void many_threads_do_everything(void **state)
{
	struct kiln_options options = defaults();
	struct shelf *near = shelf_new(), *far = shelf_new();
	struct crowd crowd = { .n_kilns = 2 };

	options.memory_bytes_max = 8000;
	for (unsigned i = 0; i < 2; i++)
		crowd.kilns[i] = open_with(options, near, far);
	harness_threads(8, use_heavily, &crowd);
	for (unsigned i = 0; i < 2; i++)
		kiln_close(crowd.kilns[i]);
	assert_int_equal(crowd.n_wrong, 0);
	assert_int_equal(shelf_calls(near).open_locks, 0);
	shelf_free(near);
	shelf_free(far);
}

/* ---- Stores on disk -------------------------------------------------------- */

static const char *const kinds[] = { "log:", "file:" };

static char *url_of(const char *kind, const char *directory)
{
	char *url;

	if (asprintf(&url, "%s%s/store", kind, directory) < 0)
		abort();
	return url;
}

static struct kiln *open_url(const char *url, uint32_t flags)
{
	struct kiln_options options = defaults();
	struct kiln *kiln;

	options.store_url = url;
	options.flags = flags;
	if (kiln_open(&options, &kiln))
		abort();
	return kiln;
}

static void a_store_keeps_entries(void **state)
{
	for (size_t i = 0; i < 2; i++) {
		char *directory = harness_directory();
		char *url = url_of(kinds[i], directory);
		struct kiln *kiln = open_url(url, 0);
		struct work work = { .text = "one" };

		assert_int_equal(kiln_store_status(kiln), KILN_OK);
		assert_outcome(kiln, 1, &work, "one from build");
		assert_outcome(kiln, 1, &work, "one from memory");
		assert_int_equal(put(kiln, 2, "two", 0), KILN_OK);
		assert_got(kiln, 2, "two");
		kiln_close(kiln);
		kiln = open_url(url, 0);
		assert_outcome(kiln, 1, &work, "one from store");
		assert_outcome(kiln, 1, &work, "one from memory");
		assert_got(kiln, 2, "two");
		kiln_close(kiln);
		kiln = open_url(url, KILN_OPEN_GUEST);
		assert_outcome(kiln, 1, &work, "one from store");
		assert_outcome(kiln, 1, &work, "one from store");
		kiln_close(kiln);
		free(url);
		free(directory);
	}
}

static void a_wipe_by_another_empties_memory(void **state)
{
	for (size_t i = 0; i < 2; i++) {
		char *directory = harness_directory();
		char *url = url_of(kinds[i], directory);
		struct kiln *kiln = open_url(url, 0);
		struct kiln *other = open_url(url, 0);
		struct work work = { .text = "one" };

		assert_outcome(kiln, 1, &work, "one from build");
		assert_outcome(kiln, 1, &work, "one from memory");
		assert_int_equal(kiln_wipe(other), KILN_OK);
		if (i == 0) /* file: nothing tells other processes */
			assert_outcome(kiln, 1, &work, "one from build");
		kiln_close(other);
		kiln_close(kiln);
		free(url);
		free(directory);
	}
}

/* The look that brought it mapped nothing which could tell. */
static void a_wipe_after_the_first_look_empties_memory(void **state)
{
	char *directory = harness_directory();
	char *url = url_of("log:", directory);
	struct kiln *other = open_url(url, 0), *kiln;
	struct work work = { .text = "one" };

	assert_outcome(other, 1, &work, "one from build");
	kiln = open_url(url, 0);
	assert_outcome(kiln, 1, &work, "one from store");
	assert_int_equal(kiln_wipe(other), KILN_OK);
	assert_outcome(kiln, 1, &work, "one from build");
	assert_outcome(kiln, 1, &work, "one from memory");
	kiln_close(kiln);
	kiln_close(other);
	free(url);
	free(directory);
}

/* S16.  Hits in memory alone never meet the store; now and then it looks. */
static void a_store_that_is_removed_whole_empties_memory(void **state)
{
	const uint64_t deadline = ki_sys_posix.monotonic_ns(&ki_sys_posix) +
				  HARNESS_HANG_S * S_NS;
	char *directory = harness_directory();
	char *url = url_of("log:", directory);
	struct kiln *kiln = open_url(url, 0);
	struct kiln_key *key = key_of(1);
	struct work work = { .text = "one" };
	struct kiln_blob *blob;

	assert_outcome(kiln, 1, &work, "one from build");
	assert_outcome(kiln, 1, &work, "one from memory");
	harness_remove(directory);
	while (!kiln_get(kiln, key, &blob)) {
		kiln_blob_unref(blob);
		assert_true(ki_sys_posix.monotonic_ns(&ki_sys_posix) <
			    deadline);
	}
	assert_outcome(kiln, 1, &work, "one from build");
	kiln_close(kiln);
	kiln_key_free(key);
	free(url);
	free(directory);
}

/* Builds leave a byte each in a file that all processes share. */
static void build_and_say_so(const struct kiln_key *key, void *arg,
			     struct kiln_build_result *result)
{
	FILE *file = fopen(arg, "a");

	if (!file || fputc('x', file) == EOF || fclose(file) ||
	    kiln_blob_copy("one", 4, &result->blob))
		abort();
}

struct processes {
	char *url;
	char *builds;
};

static int build_in_process(unsigned index, void *arg)
{
	struct processes *processes = arg;
	struct kiln *kiln = open_url(processes->url, 0);
	struct kiln_key *key = key_of(1);
	struct kiln_build_result result;
	int wrong;

	kiln_build_result_init(&result);
	wrong = kiln_get_or_build(kiln, key, build_and_say_so,
				  processes->builds, &result) != KILN_OK ||
		strcmp(kiln_blob_data(result.blob), "one");
	kiln_build_result_fini(&result);
	kiln_key_free(key);
	kiln_close(kiln);
	return wrong;
}

/* S19, with fewer processes. */
static void many_processes_build_once(void **state)
{
	for (size_t i = 0; i < 2; i++) {
		char *directory = harness_directory();
		struct processes processes = {
			url_of(kinds[i], directory),
			harness_path(directory, "builds"),
		};
		size_t n_builds = 0;

		assert_int_equal(harness_processes(12, build_in_process,
						   &processes, HARNESS_HANG_S),
				 0);
		free(harness_read(processes.builds, &n_builds));
		assert_int_equal(n_builds, 1);
		free(processes.builds);
		free(processes.url);
		free(directory);
	}
}

static void a_store_that_cannot_be_used_costs_the_store(void **state)
{
	static const char *const urls[] = {
		"log:/proc/nowhere",
		"file:/proc/nowhere",
		"log:/dev/null/x",
	};

	for (size_t i = 0; i < 3; i++) {
		struct kiln_options options = defaults();
		struct work work = { .text = "one" };
		char message[256] = "";
		struct kiln *kiln;

		options.store_url = urls[i];
		options.log = remember;
		options.log_arg = message;
		assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
		assert_true(kiln_store_status(kiln) < 0);
		assert_non_null(strstr(message, "nowhere")
					? message
					: strstr(message, "null"));
		assert_outcome(kiln, 1, &work, "one from build");
		assert_outcome(kiln, 1, &work, "one from memory");
		assert_int_equal(put(kiln, 2, "two", 0),
				 kiln_store_status(kiln));
		assert_got(kiln, 2, "two");
		assert_in_range(counter(kiln, KILN_COUNT_MISS_UNAVAILABLE), 1,
				2);
		kiln_close(kiln);
	}
}

static void counters_are_kept_by_the_store(void **state)
{
	static const uint32_t flags[] = { 0, KILN_OPEN_GUEST };
	struct kiln_store_counters *counters = calloc(1, sizeof(*counters));

	for (size_t i = 0; i < 2; i++) {
		char *directory = harness_directory();
		char *url = url_of("log:", directory);
		struct kiln *kiln = open_url(url, flags[i]), *reader;
		struct work work = { .text = "one" };

		assert_outcome(kiln, 1, &work, "one from build");
		assert_got(kiln, 1, "one");
		/* A guest may end at any moment. */
		if (!flags[i])
			kiln_close(kiln);
		reader = open_url(url, 0);
		assert_int_equal(kiln_store_counters(reader, counters),
				 KILN_OK);
		assert_int_equal(counters->total[KILN_COUNT_BUILDS], 1);
		assert_int_equal(counters->total[KILN_COUNT_PUTS], 1);
		assert_int_equal(counters->total[KILN_COUNT_HITS_MEMORY] +
					 counters->total[KILN_COUNT_HITS_STORE],
				 1);
		if (flags[i])
			kiln_close(kiln);
		kiln_close(reader);
		free(url);
		free(directory);
	}
	free(counters);
}

/* Another process is at the counters just now. */
static void what_could_not_be_counted_is_counted_later(void **state)
{
	const struct ki_sys *sys = &ki_sys_posix;
	struct kiln_store_counters *counters = calloc(1, sizeof(*counters));

	for (size_t i = 0; i < 2; i++) {
		char *directory = harness_directory();
		char *url = url_of(kinds[i], directory);
		char *path = harness_path(directory, "store/kiln.stats");
		struct kiln *kiln = open_url(url, KILN_OPEN_GUEST);
		struct work work = { .text = "one" };
		int fd;

		kiln_count(kiln, KILN_COUNT_JOBS_DONE, 1);
		fd = sys->open(sys, path, KI_OPEN_READ | KI_OPEN_WRITE, 0);
		assert_int_equal(
			sys->try_lock(sys, fd, KI_LOCK_EXCLUSIVE, 0, 1), 0);
		assert_outcome(kiln, 1, &work, "one from build");
		assert_got(kiln, 1, "one");
		assert_int_equal(sys->close(sys, fd), 0);
		assert_got(kiln, 1, "one");
		assert_int_equal(kiln_store_counters(kiln, counters), KILN_OK);
		assert_int_equal(counters->total[KILN_COUNT_JOBS_DONE], 1);
		assert_int_equal(counters->total[KILN_COUNT_BUILDS], 1);
		assert_int_equal(counters->total[KILN_COUNT_HITS_STORE], 2);
		kiln_close(kiln);
		free(path);
		free(url);
		free(directory);
	}
	free(counters);
}

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
		cmocka_unit_test(
			the_first_hit_after_a_roll_marks_the_entry_again),
		cmocka_unit_test(
			what_a_tier_dropped_is_swept_before_it_counts_as_seen),
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
		cmocka_unit_test(an_entry_says_where_it_comes_from),
		cmocka_unit_test(put_replace_remove_and_wipe),
		cmocka_unit_test(a_value_that_the_store_refuses_is_in_memory),
		cmocka_unit_test(memory_follows_what_others_do_to_the_store),
		cmocka_unit_test(a_readonly_kiln_writes_nothing),
		cmocka_unit_test(a_guest_holds_no_values_in_memory),
		cmocka_unit_test(trimming_gives_memory_back),
		cmocka_unit_test(short_memory_halves_the_tier),
		cmocka_unit_test(the_store_can_be_looked_into),
		cmocka_unit_test(counters_have_names),
		cmocka_unit_test(wrong_options_are_named),
		cmocka_unit_test(tiers_are_closed_when_opening_fails),
		cmocka_unit_test(options_of_other_versions_are_understood),
		cmocka_unit_test(a_forked_child_is_told_and_may_close),
		cmocka_unit_test(signals_change_nothing),
		cmocka_unit_test(closing_waits_for_calls_in_progress),
		cmocka_unit_test(a_process_may_end_with_a_kiln_open),
		cmocka_unit_test(blobs_outlive_the_kiln),
		cmocka_unit_test(many_threads_do_everything),
		cmocka_unit_test(a_store_keeps_entries),
		cmocka_unit_test(a_wipe_by_another_empties_memory),
		cmocka_unit_test(a_wipe_after_the_first_look_empties_memory),
		cmocka_unit_test(a_store_that_is_removed_whole_empties_memory),
		cmocka_unit_test(many_processes_build_once),
		cmocka_unit_test(a_store_that_cannot_be_used_costs_the_store),
		cmocka_unit_test(
			what_is_removed_while_it_is_copied_stays_removed),
		cmocka_unit_test(counters_are_kept_by_the_store),
		cmocka_unit_test(what_could_not_be_counted_is_counted_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
