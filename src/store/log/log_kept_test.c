/* SPDX-License-Identifier: MIT */

/* What is in use stays where something else fails or grows, and what was wiped
   stays away. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"

#include "store/log/log_test.h"

#define SIZE   2000
#define N_USED 20

/* A store of 4 MiB that has evicted, with the oldest of its entries in use. */
static unsigned fill(struct store *store)
{
	unsigned n, first;

	for (n = 0; n < 2500; n++)
		assert_int_equal(store_put(store, n, SIZE, 0), KILN_OK);
	for (first = 0; store_get(store, first, SIZE); first++)
		;
	assert_true(first > 0);
	for (n = first; n < first + N_USED; n++)
		assert_int_equal(store_get(store, n, SIZE), KILN_OK);
	return first;
}

static void check_used(struct store *store, unsigned first)
{
	unsigned n;

	for (n = first; n < first + N_USED; n++)
		assert_int_equal(store_get(store, n, SIZE), KILN_OK);
}

static uint64_t n_evicted(struct store *store)
{
	struct kiln_store_counters counters;

	assert_int_equal(store->tier->ops->counters(store->tier, &counters),
			 KILN_OK);
	return counters.total[KILN_COUNT_EVICTED];
}

static void growth_carries_over_what_is_in_use(void **state)
{
	struct store store = store_new(4 << 20, 0);
	unsigned first = fill(&store), i;
	uint64_t before = n_evicted(&store);
	uint64_t n_entries = store_index(&store)->header->n_entries;

	for (i = 0; i < 4; i++) {
		assert_int_equal(ki_log_grow((struct ki_log *)store.tier,
					     store_index(&store)),
				 KILN_OK);
		(void)store_get(&store, first, SIZE);
	}
	assert_true(store_index(&store)->header->n_entries < n_entries);
	assert_int_equal(n_evicted(&store) - before,
			 n_entries - store_index(&store)->header->n_entries);
	check_used(&store, first);
	store_free(&store);
}

/* ---- A shortage ------------------------------------------------------------ */

static int is_short, n_short;

static int open_in_shortage(const struct ki_sys *sys, const char *path,
			    unsigned flags, unsigned mode)
{
	if (is_short && !(flags & KI_OPEN_WRITE) && strstr(path, ".val")) {
		n_short++;
		return -EMFILE;
	}
	return ki_sys_posix.open(&ki_sys_posix, path, flags, mode);
}

/* S29 */
static void a_shortage_of_descriptors_evicts_nothing_in_use(void **state)
{
	struct store store = { .directory = harness_directory() };
	struct ki_sys sys = ki_sys_posix;
	unsigned first, n;

	sys.open = open_in_shortage;
	store.options = (struct ki_store_options){
		.sys = &sys,
		.directory = store.directory,
		.bytes_max = 4 << 20,
	};
	store_open(&store);
	first = fill(&store);
	is_short = 1;
	for (n = 5000; !n_short; n++)
		(void)store_put(&store, n, SIZE, 0);
	is_short = 0;
	check_used(&store, first);
	for (n = 6000; n < 6100; n++)
		assert_int_equal(store_put(&store, n, SIZE, 0), KILN_OK);
	store_free(&store);
}

/* Nothing is put aside of what the file has not. */
static void what_is_not_there_is_not_said_to_be_kept(void **state)
{
	struct store store = store_new(4 << 20, 0);
	struct kiln_verify_report report;
	char path[KI_PATH_MAX];

	assert_int_equal(store_put(&store, 1, 5000, 0), KILN_OK);
	assert_int_equal(store_put(&store, 2, 500, 0), KILN_OK);
	assert_int_equal(
		ki_log_segment_path((struct ki_log *)store.tier,
				    ki_log_min_live(store_index(&store)), path),
		0);
	store_close(&store);
	assert_int_equal(truncate(path, 4096), 0);
	store_open(&store);
	assert_int_equal(store.tier->ops->verify(store.tier, KILN_VERIFY_REPAIR,
						 NULL, NULL, &report),
			 KILN_OK);
	assert_int_equal(report.n_repaired, 2);
	assert_int_equal(report.n_dropped, 1);
	store_free(&store);
}

/* ---- Files that stay --------------------------------------------------------- */

static int unlink_no_segment(const struct ki_sys *sys, const char *path)
{
	return strstr(path, ".val") ? -EPERM
				    : ki_sys_posix.unlink(&ki_sys_posix, path);
}

static enum kiln_status wipe(struct store *store)
{
	return store->tier->ops->wipe(store->tier);
}

/* The caller asked for nothing to be removed: that nothing is found is enough. */
static enum kiln_status open_other_version(struct store *store)
{
	store->options.user_version = 2;
	store_reopen(store);
	return KILN_OK;
}

static void what_was_wiped_and_is_still_there_stays_away(void **state)
{
	static const struct {
		enum kiln_status (*act)(struct store *store);
		enum kiln_status status;
	} rows[] = { { wipe, KILN_E_IO }, { open_other_version, KILN_OK } };
	struct ki_sys sys = ki_sys_posix;
	size_t i;

	sys.unlink = unlink_no_segment;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct store store = store_new(16 << 20, 0);
		char *path = harness_path(store.directory, "kiln.idx");
		int again;

		assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
		assert_int_equal(store_put(&store, 2, 2 << 20, 0), KILN_OK);
		store.options.user_version = 1;
		store_reopen(&store);
		assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
		assert_int_equal(store_put(&store, 2, 2 << 20, 0), KILN_OK);
		store.options.sys = &sys;
		store_reopen(&store);
		assert_int_equal(rows[i].act(&store), rows[i].status);
		assert_int_equal(store_get(&store, 1, 100), KILN_MISS);
		assert_int_equal(store_put(&store, 3, 100, 0), KILN_OK);
		store.options.sys = &ki_sys_posix;
		for (again = 0; again < 2; again++) {
			store_close(&store);
			assert_int_equal(unlink(path), 0);
			store_open(&store);
			assert_int_equal(store_get(&store, 1, 100), KILN_MISS);
			assert_int_equal(store_get(&store, 2, 2 << 20),
					 KILN_MISS);
			assert_int_equal(store_get(&store, 3, 100), KILN_OK);
		}
		assert_int_equal(wipe(&store), KILN_OK);
		free(path);
		store_free(&store);
	}
}

/* ---- Beside a verify --------------------------------------------------------- */

#define N_CHECKED 300

static struct store checked, other;

static void wipe_now(void)
{
	assert_int_equal(wipe(&other), KILN_OK);
}

static void grow_now(void)
{
	assert_int_equal(
		ki_log_grow((struct ki_log *)other.tier, store_index(&other)),
		KILN_OK);
}

static void (*meanwhile)(void);

static void act_once(void *arg, uint64_t done, uint64_t total)
{
	void (*act)(void) = meanwhile;

	meanwhile = NULL;
	if (act)
		act();
}

/* The last byte of the value of key 7. */
static void damage_one(void)
{
	uint8_t *value = test_value(7, SIZE), *found;
	char path[KI_PATH_MAX];
	size_t size;
	char *data;

	assert_int_equal(ki_log_segment_path(
				 (struct ki_log *)checked.tier,
				 ki_log_min_live(store_index(&checked)), path),
			 0);
	data = harness_read(path, &size);
	found = memmem(data, size, value, SIZE);
	assert_non_null(found);
	found[SIZE - 1] ^= 1;
	harness_write(path, data, size);
	free(data);
	free(value);
}

static void a_verify_is_of_the_store_as_it_is_at_its_end(void **state)
{
	static const struct {
		void (*act)(void);
		unsigned flags;
		uint64_t n_entries, n_damaged, n_repaired, n_damaged_later;
	} rows[] = {
		{ wipe_now, 0, 0, 0, 0, 0 },
		{ wipe_now, KILN_VERIFY_REPAIR, 0, 0, 0, 0 },
		{ grow_now, 0, N_CHECKED - 1, 1, 0, 1 },
		{ grow_now, KILN_VERIFY_REPAIR, N_CHECKED - 1, 1, 1, 0 },
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_verify_report report;
		unsigned n;

		checked = store_new(32 << 20, 0);
		for (n = 0; n < N_CHECKED; n++)
			assert_int_equal(store_put(&checked, n, SIZE, 0),
					 KILN_OK);
		damage_one();
		other = store_beside(&checked, 0);
		meanwhile = rows[i].act;
		assert_int_equal(
			checked.tier->ops->verify(checked.tier, rows[i].flags,
						  act_once, NULL, &report),
			KILN_OK);
		assert_null(meanwhile);
		assert_int_equal(report.n_entries, rows[i].n_entries);
		assert_int_equal(report.n_damaged, rows[i].n_damaged);
		assert_int_equal(report.n_repaired, rows[i].n_repaired);
		assert_int_equal(report.n_gone, 0);
		assert_int_equal(checked.tier->ops->verify(checked.tier, 0,
							   NULL, NULL, &report),
				 KILN_OK);
		assert_int_equal(report.n_entries, rows[i].n_entries);
		assert_int_equal(report.n_damaged, rows[i].n_damaged_later);
		store_free(&other);
		store_free(&checked);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(growth_carries_over_what_is_in_use),
		cmocka_unit_test(
			a_shortage_of_descriptors_evicts_nothing_in_use),
		cmocka_unit_test(what_is_not_there_is_not_said_to_be_kept),
		cmocka_unit_test(what_was_wiped_and_is_still_there_stays_away),
		cmocka_unit_test(a_verify_is_of_the_store_as_it_is_at_its_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
