/* SPDX-License-Identifier: MIT */

/* A kiln that holds no values in memory: look-ups are the store's own. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/inspect.h>
#include <kiln/kiln.h>
#include <kiln/tier.h>

#include "harness/harness.h"

#include "memory/slots.h"
#include "store/store.h"
#include "sys/sys.h"

#define VALUE_BYTES 3000
#define N_KEYS	    600

static char *directory;

static struct kiln *open_kiln(uint64_t bytes_max, uint32_t flags)
{
	struct kiln_options options;
	struct kiln *kiln;
	char url[4200];

	snprintf(url, sizeof(url), "log:%s", directory);
	kiln_options_init(&options);
	options.store_url = url;
	options.store_bytes_max = bytes_max;
	options.flags = KILN_OPEN_NO_MEMORY | flags;
	if (kiln_open(&options, &kiln) || kiln_store_status(kiln))
		abort();
	return kiln;
}

static struct kiln_key *key_of(unsigned number)
{
	struct kiln_key *key = kiln_key_new();

	kiln_key_add(key, "number", &number, sizeof(number));
	if (kiln_key_finish(key))
		abort();
	return key;
}

static void fill(uint8_t value[VALUE_BYTES], unsigned number)
{
	for (size_t i = 0; i < VALUE_BYTES; i++)
		value[i] = (uint8_t)(number + i / 256 + i * 7);
}

static enum kiln_status put(struct kiln *kiln, unsigned number, unsigned flags)
{
	struct kiln_key *key = key_of(number);
	uint8_t value[VALUE_BYTES];
	enum kiln_status status;

	fill(value, number);
	status = kiln_put(kiln, key, value, sizeof(value), NULL, flags);
	kiln_key_free(key);
	return status;
}

static int is_right(const struct kiln_blob *blob, unsigned number)
{
	uint8_t value[VALUE_BYTES];

	fill(value, number);
	return kiln_blob_size(blob) == VALUE_BYTES &&
	       !memcmp(kiln_blob_data(blob), value, VALUE_BYTES);
}

/* KILN_E_FORMAT stands for wrong bytes. */
static enum kiln_status get(struct kiln *kiln, unsigned number)
{
	struct kiln_key *key = key_of(number);
	struct kiln_blob *blob;
	enum kiln_status status = kiln_get(kiln, key, &blob);

	if (!status) {
		status = is_right(blob, number) ? KILN_OK : KILN_E_FORMAT;
		kiln_blob_unref(blob);
	}
	kiln_key_free(key);
	return status;
}

static uint64_t counter(struct kiln *kiln, enum kiln_counter which)
{
	struct kiln_stats stats;

	kiln_stats_init(&stats);
	assert_int_equal(kiln_stats(kiln, &stats), KILN_OK);
	return stats.counters[which];
}

static void without_values_in_memory_every_hit_is_the_stores(void **state)
{
	struct kiln *kiln = open_kiln(8 << 20, 0);
	struct kiln_stats stats;

	assert_int_equal(put(kiln, 1, 0), KILN_OK);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(get(kiln, 1), KILN_OK);
		assert_int_equal(get(kiln, 2), KILN_MISS);
	}
	assert_int_equal(counter(kiln, KILN_COUNT_HITS_STORE), 5);
	assert_int_equal(counter(kiln, KILN_COUNT_HITS_MEMORY), 0);
	assert_int_equal(counter(kiln, KILN_COUNT_MISSES), 5);
	assert_int_equal(counter(kiln, KILN_COUNT_BYTES_READ), 5 * VALUE_BYTES);
	kiln_stats_init(&stats);
	assert_int_equal(kiln_stats(kiln, &stats), KILN_OK);
	assert_int_equal(stats.memory_bytes, 0);
	kiln_close(kiln);
}

static void hits_say_what_they_saved(void **state)
{
	struct kiln *kiln = open_kiln(8 << 20, 0);
	struct kiln_metadata *metadata = kiln_metadata_new();
	struct kiln_key *key = key_of(1);

	kiln_metadata_add_u64(metadata, KILN_META_BUILD_TIME, 1000);
	assert_int_equal(kiln_put(kiln, key, "", 0, metadata, 0), KILN_OK);
	for (int i = 0; i < 3; i++) {
		struct kiln_blob *blob;

		assert_int_equal(kiln_get(kiln, key, &blob), KILN_OK);
		kiln_blob_unref(blob);
	}
	assert_int_equal(counter(kiln, KILN_COUNT_SAVED_NS), 3000);
	kiln_metadata_free(metadata);
	kiln_key_free(key);
	kiln_close(kiln);
}

static void build_one(const struct kiln_key *key, void *arg,
		      struct kiln_build_result *result)
{
	uint8_t value[VALUE_BYTES];

	++*(int *)arg;
	fill(value, 1);
	if (kiln_blob_copy(value, sizeof(value), &result->blob))
		abort();
}

static void get_or_build_looks_into_the_store_too(void **state)
{
	struct kiln *kiln = open_kiln(8 << 20, 0);
	struct kiln_key *key = key_of(1);
	int n_builds = 0;

	for (int i = 0; i < 5; i++) {
		struct kiln_build_result result;

		kiln_build_result_init(&result);
		assert_int_equal(kiln_get_or_build(kiln, key, build_one,
						   &n_builds, &result),
				 KILN_OK);
		assert_int_equal(result.source,
				 i ? KILN_FROM_STORE : KILN_FROM_BUILD);
		assert_true(is_right(result.blob, 1));
		kiln_build_result_fini(&result);
	}
	assert_int_equal(n_builds, 1);
	assert_int_equal(counter(kiln, KILN_COUNT_HITS_STORE), 4);
	assert_int_equal(counter(kiln, KILN_COUNT_MISSES), 1);
	assert_int_equal(counter(kiln, KILN_COUNT_BUILDS), 1);
	kiln_key_free(key);
	kiln_close(kiln);
}

#define N_HELD 40

static void *drop_all(void *arg)
{
	struct kiln_blob **blobs = arg;

	for (int i = 0; i < N_HELD; i += 2)
		kiln_blob_unref(blobs[i]);
	return NULL;
}

/* Handles are used again, by whoever dropped them, and never while held. */
static void every_value_held_has_a_handle_of_its_own(void **state)
{
	struct kiln *kiln = open_kiln(8 << 20, 0);
	struct kiln_blob *blobs[N_HELD];
	pthread_t thread;

	for (unsigned i = 0; i < N_HELD; i++) {
		assert_int_equal(put(kiln, i, 0), KILN_OK);
		assert_int_equal(get(kiln, i), KILN_OK);
	}
	for (int round = 0; round < 3; round++) {
		for (unsigned i = 0; i < N_HELD; i++) {
			struct kiln_key *key = key_of(i);

			assert_int_equal(kiln_get(kiln, key, &blobs[i]),
					 KILN_OK);
			kiln_key_free(key);
		}
		for (unsigned i = 0; i < N_HELD; i++)
			assert_true(is_right(kiln_blob_ref(blobs[i]), i));
		for (unsigned i = 0; i < N_HELD; i++)
			kiln_blob_unref(blobs[i]);
		pthread_create(&thread, NULL, drop_all, blobs);
		pthread_join(thread, NULL);
		for (unsigned i = 1; i < N_HELD; i += 2) {
			assert_true(is_right(blobs[i], i));
			kiln_blob_unref(blobs[i]);
		}
	}
	kiln_close(kiln);
}

static void a_value_outlives_its_entry_and_the_kiln(void **state)
{
	struct kiln *kiln = open_kiln(8 << 20, 0);
	struct kiln_key *key = key_of(1);
	struct kiln_blob *blob;

	assert_int_equal(put(kiln, 1, 0), KILN_OK);
	assert_int_equal(get(kiln, 1), KILN_OK);
	assert_int_equal(kiln_get(kiln, key, &blob), KILN_OK);
	assert_int_equal(kiln_wipe(kiln), KILN_OK);
	assert_int_equal(get(kiln, 1), KILN_MISS);
	kiln_close(kiln);
	assert_true(is_right(blob, 1));
	kiln_blob_unref(blob);
	kiln_key_free(key);
}

/* ---- While others change the store ------------------------------------------ */

#define N_THREADS 6

struct crowd {
	struct kiln *kiln;
	_Atomic unsigned n_hits;
};

/* The first two put, remove and wipe; the others look, and hold on for a
   while to what they found. */
static int take_part(unsigned index, void *arg)
{
	struct crowd *crowd = arg;
	struct kiln_blob *held[8] = { 0 };
	unsigned number_of[8] = { 0 }, i;
	uint64_t random = index + 1;
	int failed = 0;

	for (i = 0; i < 3000 && !failed; i++) {
		unsigned number = (unsigned)(harness_random(&random) % N_KEYS);
		struct kiln_key *key;

		if (index < 2) {
			enum kiln_status status =
				put(crowd->kiln, number,
				    i % 3 ? 0 : KILN_PUT_REPLACE);

			failed = status < 0 && status != KILN_E_TIMEOUT;
			if (index && i % 1000 == 999)
				(void)kiln_wipe(crowd->kiln);
			continue;
		}
		key = key_of(number);
		if (held[i % 8])
			failed = !is_right(held[i % 8], number_of[i % 8]);
		kiln_blob_unref(held[i % 8]);
		held[i % 8] = NULL;
		number_of[i % 8] = number;
		if (!kiln_get(crowd->kiln, key, &held[i % 8])) {
			failed |= !is_right(held[i % 8], number);
			crowd->n_hits++;
		}
		kiln_key_free(key);
	}
	for (i = 0; i < 8; i++)
		kiln_blob_unref(held[i]);
	return failed;
}

/* S24 */
static void looking_while_others_evict_and_wipe_never_shows_wrong_bytes(
	void **state)
{
	struct crowd crowd = { .kiln = open_kiln(2 << 20, 0) };

	for (unsigned i = 0; i < N_KEYS; i++)
		assert_true(put(crowd.kiln, i, 0) >= 0);
	assert_int_equal(harness_threads(N_THREADS, take_part, &crowd), 0);
	assert_true(crowd.n_hits);
	kiln_close(crowd.kiln);
}

/* ---- Pins ------------------------------------------------------------------- */

struct pinned {
	struct kiln_tier *store;
	struct kiln_key *key;
	pthread_barrier_t looked, changed;
	int is_right;
};

/* Stop in the middle of a look, and go on when the store has moved on. */
static void *look_for_long(void *arg)
{
	struct pinned *pinned = arg;
	struct ki_slot *slot = ki_slot_enter();
	struct kiln_glance found;

	if (pinned->store->ops->glance(pinned->store, pinned->key, &found))
		abort();
	pthread_barrier_wait(&pinned->looked);
	pthread_barrier_wait(&pinned->changed);
	pinned->is_right =
		found.metadata_size == 4 && !memcmp(found.metadata, "meta", 4);
	ki_slot_leave(slot);
	return NULL;
}

/* Nobody has a reference to the holder: only the pin keeps its segment mapped. */
static void what_a_glance_sees_stays_while_it_is_pinned(void **state)
{
	struct ki_store_options options = { .sys = &ki_sys_posix,
					    .directory = directory,
					    .bytes_max = 2 << 20 };
	struct pinned pinned = { .key = key_of(1) };
	uint8_t value[VALUE_BYTES];
	struct kiln_blob *blob;
	pthread_t thread;

	fill(value, 1);
	assert_int_equal(ki_store_log_open(&options, &pinned.store), KILN_OK);
	assert_int_equal(pinned.store->ops->put(pinned.store, pinned.key,
						"meta", 4, value, sizeof(value),
						0),
			 KILN_OK);
	assert_int_equal(
		pinned.store->ops->get(pinned.store, pinned.key, &blob, NULL),
		KILN_OK);
	kiln_blob_unref(blob);
	pthread_barrier_init(&pinned.looked, NULL, 2);
	pthread_barrier_init(&pinned.changed, NULL, 2);
	pthread_create(&thread, NULL, look_for_long, &pinned);
	pthread_barrier_wait(&pinned.looked);
	for (unsigned i = 2; i < 2000; i++) {
		struct kiln_key *key = key_of(i);

		assert_int_equal(pinned.store->ops->put(pinned.store, key, "",
							0, value, sizeof(value),
							0),
				 KILN_OK);
		kiln_key_free(key);
	}
	assert_int_equal(pinned.store->ops->wipe(pinned.store), KILN_OK);
	pthread_barrier_wait(&pinned.changed);
	pthread_join(thread, NULL);
	assert_true(pinned.is_right);
	pthread_barrier_destroy(&pinned.looked);
	pthread_barrier_destroy(&pinned.changed);
	pinned.store->ops->close(pinned.store);
	kiln_key_free(pinned.key);
}

static int set_up(void **state)
{
	directory = harness_directory();
	return 0;
}

static int tear_down(void **state)
{
	free(directory);
	return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(without_values_in_memory_every_hit_is_the_stores),
		TEST(hits_say_what_they_saved),
		TEST(get_or_build_looks_into_the_store_too),
		TEST(every_value_held_has_a_handle_of_its_own),
		TEST(a_value_outlives_its_entry_and_the_kiln),
		TEST(what_a_glance_sees_stays_while_it_is_pinned),
		TEST(looking_while_others_evict_and_wipe_never_shows_wrong_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
