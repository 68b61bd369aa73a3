/* SPDX-License-Identifier: MIT */

/*
 * Byte 0 belongs to a process that has stopped: how long whoever needs it waits.
 * The clock is the test's own, and only sleeping moves it.
 */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"

#include "store/log/log_test.h"

#define MS ((uint64_t)1000000)

static uint64_t now_ns, slept_ns;

static uint64_t clock_by_hand(const struct ki_sys *sys)
{
	return now_ns;
}

static void sleep_by_hand(const struct ki_sys *sys, uint64_t ns)
{
	now_ns += ns;
	slept_ns += ns;
}

static struct ki_sys by_hand;

/* A store whose byte 0 can be held. */
struct place {
	struct store store;
	int fd; /* of the lock file */
};

static struct place place_new(uint64_t bytes_max)
{
	struct place place = { .store = store_new(bytes_max, 0) };
	char *path = harness_path(place.store.directory, "kiln.lock");

	by_hand = ki_sys_posix;
	by_hand.monotonic_ns = clock_by_hand;
	by_hand.sleep_ns = sleep_by_hand;
	if (!now_ns)
		now_ns = ki_sys_posix.monotonic_ns(&ki_sys_posix);
	store_close(&place.store);
	place.store.options.sys = &by_hand;
	store_open(&place.store);
	place.fd = ki_sys_posix.open(&ki_sys_posix, path,
				     KI_OPEN_READ | KI_OPEN_WRITE, 0);
	assert_true(place.fd >= 0);
	free(path);
	return place;
}

static void place_free(struct place *place)
{
	(void)ki_sys_posix.close(&ki_sys_posix, place->fd);
	store_free(&place->store);
}

static void stop(const struct place *place)
{
	assert_int_equal(ki_sys_posix.try_lock(&ki_sys_posix, place->fd,
					       KI_LOCK_EXCLUSIVE,
					       LOG_LOCK_STRUCTURE, 1),
			 0);
}

static void go_on(const struct place *place)
{
	assert_int_equal(ki_sys_posix.unlock(&ki_sys_posix, place->fd,
					     LOG_LOCK_STRUCTURE, 1),
			 0);
}

/* S21 */
static void a_put_waits_20_ms_and_no_more(void **state)
{
	static const size_t sizes[] = { 100, 3 << 20 };
	struct place place = place_new(32 << 20);
	struct store *store = &place.store;
	size_t i;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		stop(&place);
		slept_ns = 0;
		store_index(store)->header->tail = 0;
		assert_int_equal(store_put(store, 1 + (unsigned)i, sizes[i], 0),
				 KILN_E_TIMEOUT);
		assert_int_equal(slept_ns, 20 * MS);
		go_on(&place);
		assert_int_equal(store_put(store, 1 + (unsigned)i, sizes[i], 0),
				 KILN_OK);
	}
	place_free(&place);
}

/* S21 */
static void a_change_that_is_held_up_keeps_nobody_from_opening(void **state)
{
	static const struct {
		uint64_t retired;
		enum kiln_status found, found_later;
	} rows[] = {
		{ LOG_RETIRED_GROWN, KILN_OK, KILN_OK },
		{ LOG_RETIRED_WIPED, KILN_MISS, KILN_MISS },
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct place place = place_new(8 << 20);
		struct store *store = &place.store, late;
		int again;

		assert_int_equal(store_put(store, 1, 100, 0), KILN_OK);
		stop(&place);
		store_index(store)->header->retired = rows[i].retired;
		for (again = 0; again < 3; again++) {
			slept_ns = 0;
			late = store_beside(store, 0);
			assert_int_equal(slept_ns, (again ? 20 : 250) * MS);
			assert_int_equal(store_get(&late, 1, 100),
					 rows[i].found);
			assert_int_equal(store_put(&late, 2, 100, 0),
					 KILN_E_TIMEOUT);
			if (again < 2)
				store_close(&late);
		}

		/* It dies, or goes on: those who wait for it need not reopen. */
		go_on(&place);
		assert_int_equal(store_put(&late, 2, 100, 0), KILN_OK);
		assert_int_equal(store_get(&late, 2, 100), KILN_OK);
		assert_int_equal(store_get(&late, 1, 100), rows[i].found_later);
		store_close(&late);
		place_free(&place);
	}
}

/* ---- Where there is no store without it ------------------------------- */

static enum kiln_status open_beside(const struct place *place)
{
	struct store late = { .options = place->store.options };
	enum kiln_status status = ki_store_log_open(&late.options, &late.tier);

	store_close(&late);
	return status;
}

static enum kiln_status open_other_version(const struct place *place)
{
	struct place other = *place;

	other.store.options.user_version = 7;
	return open_beside(&other);
}

/* Through a handle that was there when the index was removed. */
static enum kiln_status put_one(const struct place *place)
{
	struct store store = place->store;

	return store_put(&store, 1, 100, 0);
}

/* S21: one wait in ten seconds, of the process and for each store. */
static void a_process_waits_once_for_a_store_it_cannot_make(void **state)
{
	static const struct {
		enum kiln_status (*attempt)(const struct place *place);
		int keeps_index;
	} rows[] = {
		{ open_beside, 0 },
		{ put_one, 0 },
		{ open_other_version, 1 },
	};
	size_t i;
	int again;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct place place = place_new(8 << 20);
		char *path = harness_path(place.store.directory, "kiln.idx");

		if (!rows[i].keeps_index)
			assert_int_equal(remove(path), 0);
		stop(&place);
		for (again = 0; again < 4; again++) {
			slept_ns = 0;
			assert_int_equal(rows[i].attempt(&place),
					 KILN_E_TIMEOUT);
			assert_int_equal(slept_ns, (again ? 20 : 2000) * MS);
		}
		now_ns += LOG_VAIN_NS;
		slept_ns = 0;
		assert_int_equal(rows[i].attempt(&place), KILN_E_TIMEOUT);
		assert_int_equal(slept_ns, 2000 * MS);

		/* Who gets it is patient again. */
		go_on(&place);
		assert_int_equal(rows[i].attempt(&place), KILN_OK);
		if (!rows[i].keeps_index) {
			assert_int_equal(remove(path), 0);
			stop(&place);
			slept_ns = 0;
			assert_int_equal(rows[i].attempt(&place),
					 KILN_E_TIMEOUT);
			assert_int_equal(slept_ns, 2000 * MS);
		}
		free(path);
		place_free(&place);
	}
}

/* ---- Repair -------------------------------------------------------------- */

#define N_DAMAGED 5

static unsigned n_said;

static void count_warnings(void *arg, enum kiln_log_level level,
			   const char *message)
{
	n_said += level == KILN_LOG_WARNING;
}

/* The last byte of the values of keys 0 to N_DAMAGED - 1. */
static void damage(struct store *store)
{
	char path[KI_PATH_MAX];
	unsigned i;
	size_t size;
	char *data;

	assert_int_equal(
		ki_log_segment_path((struct ki_log *)store->tier,
				    ki_log_min_live(store_index(store)), path),
		0);
	data = harness_read(path, &size);
	for (i = 0; i < N_DAMAGED; i++) {
		uint8_t *value = test_value(i, 500);
		uint8_t *found = memmem(data, size, value, 500);

		assert_non_null(found);
		found[499] ^= 1;
		free(value);
	}
	harness_write(path, data, size);
	free(data);
}

/* S13, S21 */
static void a_repair_waits_once_for_all_that_is_damaged(void **state)
{
	static const struct {
		int is_stopped;
		uint64_t n_dropped, slept_ms;
		unsigned n_said;
	} rows[] = {
		{ 0, 0, 0, 0 },
		{ 1, N_DAMAGED, 2000, 1 },
	};
	size_t i;
	unsigned n;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct place place = place_new(8 << 20);
		struct store *store = &place.store;
		struct kiln_verify_report report;

		store->options.log = count_warnings;
		store_reopen(store);
		for (n = 0; n < N_DAMAGED + 1; n++)
			assert_int_equal(store_put(store, n, 500, 0), KILN_OK);
		damage(store);
		if (rows[i].is_stopped)
			stop(&place);
		slept_ns = 0;
		n_said = 0;
		assert_int_equal(store->tier->ops->verify(store->tier,
							  KILN_VERIFY_REPAIR,
							  NULL, NULL, &report),
				 KILN_OK);
		assert_int_equal(report.n_entries, 1);
		assert_int_equal(report.n_repaired, N_DAMAGED);
		assert_int_equal(report.n_dropped, rows[i].n_dropped);
		assert_int_equal(slept_ns, rows[i].slept_ms * MS);
		assert_int_equal(n_said, rows[i].n_said);
		place_free(&place);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_put_waits_20_ms_and_no_more),
		cmocka_unit_test(
			a_change_that_is_held_up_keeps_nobody_from_opening),
		cmocka_unit_test(
			a_process_waits_once_for_a_store_it_cannot_make),
		cmocka_unit_test(a_repair_waits_once_for_all_that_is_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
