/* SPDX-License-Identifier: MIT */

/*
 * Words that a create-only put left tentative because it was killed: they are
 * made by hand here, from the words of puts that came to their end.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"

#include "store/log/log_test.h"

static struct ki_log *log_of(const struct store *store)
{
	return (struct ki_log *)store->tier;
}

static _Atomic uint64_t *words_of(const struct store *store)
{
	return store_index(store)->words;
}

static uint64_t slot_of(const struct store *store, unsigned number)
{
	struct ki_log *log = log_of(store);
	_Atomic uint64_t *stripe = ki_log_enter(log);
	struct kiln_key *key = test_key(number);
	struct log_found found = { 0 };

	if (ki_log_find(log, log->index, key, &found))
		abort();
	ki_log_view_close(&found.view);
	kiln_key_free(key);
	ki_log_leave(log, stripe);
	return found.slot;
}

/* Put, and take the word back to where it was before it was settled. */
static uint64_t leave_tentative(struct store *store, unsigned number,
				size_t size)
{
	uint64_t slot;

	if (store_put(store, number, size, 0))
		abort();
	slot = slot_of(store, number);
	words_of(store)[slot] |= LOG_TENTATIVE;
	return slot;
}

/* A word of another record of the key into the bucket of `slot`. */
static uint64_t put_beside(struct store *store, uint64_t slot, uint64_t word)
{
	uint64_t other = slot - slot % LOG_WORDS;

	while (words_of(store)[other])
		other++;
	words_of(store)[other] = word;
	return other;
}

static unsigned count_listed(struct store *store)
{
	struct kiln_cursor cursor = { 0 };
	struct kiln_entry entry;
	unsigned n = 0;

	while (!store->tier->ops->list(store->tier, &cursor, &entry)) {
		kiln_blob_unref(entry.record);
		kiln_blob_unref(entry.metadata);
		n++;
	}
	return n;
}

static void what_was_not_settled_is_not_found(void **state)
{
	struct store store = store_new(1 << 20, 0);
	struct kiln_verify_report report;
	uint64_t slot = leave_tentative(&store, 1, 100);

	assert_int_equal(store_get(&store, 1, 100), KILN_MISS);
	assert_int_equal(count_listed(&store), 0);
	assert_int_equal(
		store.tier->ops->verify(store.tier, 0, NULL, NULL, &report),
		KILN_OK);
	assert_int_equal(report.n_entries, 0);
	assert_int_equal(report.n_damaged, 0);
	assert_true(log_word_is_tentative(words_of(&store)[slot]));
	store_free(&store);
}

static void the_next_put_settles_what_a_dead_one_left(void **state)
{
	static const uint32_t ways[] = { 0, KILN_OPEN_COPY, KILN_OPEN_GUEST };
	static const size_t sizes[] = { 100, 200000 };
	unsigned i;

	for (i = 0; i < 6; i++) {
		struct store store = store_new(1 << 20, 0), next;
		size_t size = sizes[i / 3];

		(void)leave_tentative(&store, 1, size);
		next = store_beside(&store, ways[i % 3]);
		assert_int_equal(store_put(&next, 1, 50, 0), KILN_EXISTS);
		assert_int_equal(store_get(&next, 1, size), KILN_OK);
		assert_int_equal(store_get(&store, 1, size), KILN_OK);
		assert_int_equal(count_listed(&store), 1);
		store_close(&next);
		store_free(&store);
	}
}

static void of_two_that_were_left_the_lower_one_stays(void **state)
{
	struct store store = store_new(1 << 20, 0);
	uint64_t slot = leave_tentative(&store, 1, 100), other;
	uint64_t lower = words_of(&store)[slot];

	words_of(&store)[slot] = 0;
	slot = leave_tentative(&store, 1, 200);
	other = put_beside(&store, slot, lower);
	assert_int_equal(store_put(&store, 1, 50, 0), KILN_EXISTS);
	assert_int_equal(store_get(&store, 1, 100), KILN_OK);
	assert_int_equal(words_of(&store)[slot], 0);
	assert_int_equal(words_of(&store)[other], lower & ~LOG_TENTATIVE);
	store_free(&store);
}

static void a_settled_one_stays_whatever_was_left_beside(void **state)
{
	struct store store = store_new(1 << 20, 0);
	uint64_t slot = leave_tentative(&store, 1, 100);
	uint64_t left = words_of(&store)[slot];

	words_of(&store)[slot] = 0;
	assert_int_equal(store_put(&store, 1, 200, 0), KILN_OK);
	(void)put_beside(&store, slot_of(&store, 1), left);
	assert_int_equal(store_put(&store, 1, 50, 0), KILN_EXISTS);
	assert_int_equal(store_get(&store, 1, 200), KILN_OK);
	store_free(&store);
}

static void what_was_left_and_is_torn_is_not_settled(void **state)
{
	struct store store = store_new(1 << 20, 0);
	uint64_t slot = leave_tentative(&store, 1, 1000);
	uint32_t min_live = ki_log_min_live(store_index(&store));
	char path[KI_PATH_MAX];
	uint64_t word = words_of(&store)[slot];
	char *bytes;
	size_t size;

	assert_int_equal(ki_log_segment_path(log_of(&store),
					     log_word_segment(word, min_live),
					     path),
			 0);
	store_close(&store);
	bytes = harness_read(path, &size);
	bytes[log_word_units(word) * LOG_UNIT + 900] ^= 1;
	harness_write(path, bytes, size);
	free(bytes);
	store_open(&store);
	assert_int_equal(store_put(&store, 1, 50, 0), KILN_OK);
	assert_int_equal(store_get(&store, 1, 50), KILN_OK);
	store_free(&store);
}

static void what_was_left_is_replaced_and_removed(void **state)
{
	struct store store = store_new(1 << 20, 0);

	(void)leave_tentative(&store, 1, 100);
	assert_int_equal(store_put(&store, 1, 200, KILN_PUT_REPLACE), KILN_OK);
	assert_int_equal(store_get(&store, 1, 200), KILN_OK);
	(void)leave_tentative(&store, 2, 100);
	assert_int_equal(store_remove(&store, 2), KILN_OK);
	assert_int_equal(store_put(&store, 2, 300, 0), KILN_OK);
	assert_int_equal(store_get(&store, 2, 300), KILN_OK);
	assert_int_equal(count_listed(&store), 2);
	store_free(&store);
}

static void what_was_left_grows_along_and_goes_with_its_segment(void **state)
{
	struct store store = store_new(1 << 20, 0);
	uint64_t n_slots = store_index(&store)->n_buckets * LOG_WORDS;
	unsigned i;
	size_t size;

	(void)leave_tentative(&store, 1, 100);
	for (i = 1000; store_index(&store)->n_buckets * LOG_WORDS == n_slots;
	     i++)
		assert_int_equal(store_put(&store, i, 8, 0), KILN_OK);
	assert_int_equal(store_put(&store, 1, 50, 0), KILN_EXISTS);
	assert_int_equal(store_get(&store, 1, 100), KILN_OK);

	/* Even if its mark says that it was used. */
	store_index(&store)->marks[leave_tentative(&store, 2, 100)] = 1;
	for (i = 10000; i < 11000; i++)
		assert_int_equal(store_put(&store, i, 3000, 0), KILN_OK);
	assert_int_equal(store_put(&store, 2, 50, 0), KILN_OK);
	assert_int_equal(store_get_any(&store, 2, &size), KILN_OK);
	assert_int_equal(size, 50);
	store_free(&store);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_not_settled_is_not_found),
		cmocka_unit_test(the_next_put_settles_what_a_dead_one_left),
		cmocka_unit_test(of_two_that_were_left_the_lower_one_stays),
		cmocka_unit_test(a_settled_one_stays_whatever_was_left_beside),
		cmocka_unit_test(what_was_left_and_is_torn_is_not_settled),
		cmocka_unit_test(what_was_left_is_replaced_and_removed),
		cmocka_unit_test(
			what_was_left_grows_along_and_goes_with_its_segment),
	};

	/* Many small stores: in memory where there is such a place. */
	if (!access("/dev/shm", W_OK))
		setenv("TMPDIR", "/dev/shm", 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
