/* SPDX-License-Identifier: MIT */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"

#include "store/log/log_test.h"

#define N_THREADS 8

static struct store store;
static _Atomic unsigned n_created[32];

static int create_all(unsigned index, void *arg)
{
	unsigned i;
	size_t size;

	for (i = 0; i < 32; i++) {
		enum kiln_status status =
			store_put_patiently(&store, i, index + 1);

		if (status == KILN_OK)
			n_created[i]++;
		else if (status != KILN_EXISTS)
			return 1;
		if (store_get_any(&store, i, &size))
			return 1;
	}
	return 0;
}

static void of_many_threads_exactly_one_creates(void **state)
{
	unsigned i;

	store = store_new(8 << 20, 0);
	assert_int_equal(harness_threads(N_THREADS, create_all, NULL), 0);
	for (i = 0; i < 32; i++)
		assert_int_equal(n_created[i], 1);
	store_free(&store);
}

/* Puts, gets, views held for a while, removals; over the bound many times. */
static int use(unsigned index, void *arg)
{
	struct kiln_blob *held[16] = { 0 };
	unsigned held_number[16] = { 0 };
	uint64_t random = index;
	unsigned i;
	int failed = 0;

	for (i = 0; i < 400 && !failed; i++) {
		unsigned number = (unsigned)(harness_random(&random) % 500);
		size_t size = (size_t)(harness_random(&random) % 5000);
		struct kiln_key *key = test_key(number);
		enum kiln_status status;

		status = store_put(&store, number, size,
				   i % 2 ? KILN_PUT_REPLACE : 0);
		failed = status < 0 && status != KILN_E_TIMEOUT;
		kiln_blob_unref(held[i % 16]);
		held[i % 16] = NULL;
		held_number[i % 16] = number;
		(void)store.tier->ops->get(store.tier, key, &held[i % 16],
					   NULL);
		if (i % 40 == 0)
			(void)store_remove(&store, number);
		if (i % 100 == 50 && index == 0)
			(void)store.tier->ops->wipe(store.tier);
		kiln_key_free(key);
	}
	for (i = 0; i < 16; i++) {
		failed |= held[i] && !test_value_is(held[i], held_number[i]);
		kiln_blob_unref(held[i]);
	}
	return failed;
}

static void threads_of_one_handle_share_it(void **state)
{
	static const uint32_t ways[] = { 0, KILN_OPEN_COPY, KILN_OPEN_GUEST };
	unsigned i;

	for (i = 0; i < 3; i++) {
		store = store_new(1 << 20, ways[i]);
		assert_int_equal(harness_threads(N_THREADS, use, NULL), 0);
		assert_int_equal(store_put(&store, 1000, 100, 0), KILN_OK);
		assert_int_equal(store_get(&store, 1000, 100), KILN_OK);
		store_free(&store);
	}
}

static int look(unsigned index, void *arg)
{
	unsigned i;

	for (i = 0; i < 3; i++)
		if (store_get(&store, 1, 100) ||
		    (index % 4 == 3 &&
		     store_put_patiently(&store, index, 50) < 0))
			return 1;
	return 0;
}

/* One of them goes by pread, while others map. */
static void threads_that_look_first_at_once_all_find(void **state)
{
	unsigned i;

	store = store_new(8 << 20, 0);
	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	for (i = 0; i < 20; i++) {
		store_reopen(&store);
		assert_int_equal(harness_threads(N_THREADS, look, NULL), 0);
	}
	store_free(&store);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_many_threads_exactly_one_creates),
		cmocka_unit_test(threads_of_one_handle_share_it),
		cmocka_unit_test(threads_that_look_first_at_once_all_find),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
