/* SPDX-License-Identifier: MIT */

/* What glance.c answers and what it leaves to find.c. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"

#include "store/log/log_test.h"

/* Neither a hit nor a miss: get() is to be asked. */
#define ASK_GET KILN_E_TIMEOUT

/* Only the test says when a look at the path is due. */
static uint64_t now_ns = 1;

static uint64_t clock_by_hand(const struct ki_sys *sys)
{
	return now_ns;
}

static const struct ki_sys *still_sys(void)
{
	static struct ki_sys sys;

	sys = ki_sys_posix;
	sys.coarse_ns = clock_by_hand;
	return &sys;
}

static struct store still_store(uint64_t bytes_max)
{
	struct store store = store_new(bytes_max, 0);

	store_close(&store);
	store.options.sys = still_sys();
	store_open(&store);
	return store;
}

static enum kiln_status glance(struct store *store, unsigned number,
			       size_t size)
{
	struct kiln_key *key = test_key(number);
	struct kiln_glance found;
	struct kiln_blob *blob;
	enum kiln_status status =
		store->tier->ops->glance(store->tier, key, &found);

	if (!status) {
		assert_int_equal(found.value_size, size);
		assert_int_equal(kiln_blob_copy(found.value, size, &blob),
				 KILN_OK);
		assert_true(test_value_is(blob, number));
		assert_int_equal(found.metadata_size, 4);
		assert_memory_equal(found.metadata, "meta", 4);
		kiln_blob_unref(blob);
	}
	kiln_key_free(key);
	return status;
}

static void a_glance_finds_what_was_checked_before(void **state)
{
	struct store store = still_store(8 << 20);

	assert_int_equal(store_put(&store, 1, 3000, 0), KILN_OK);
	assert_int_equal(glance(&store, 1, 3000), ASK_GET);
	assert_int_equal(store_get(&store, 1, 3000), KILN_OK);
	assert_int_equal(glance(&store, 1, 3000), KILN_OK);
	assert_int_equal(glance(&store, 2, 0), KILN_MISS);
	store_reopen(&store);
	assert_int_equal(glance(&store, 1, 3000), ASK_GET);
	store_free(&store);
}

static void a_glance_follows_replacing_and_removing(void **state)
{
	struct store store = still_store(8 << 20);
	struct store other = store_beside(&store, 0);

	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	assert_int_equal(store_get(&store, 1, 100), KILN_OK);
	assert_int_equal(store_put(&other, 1, 200, KILN_PUT_REPLACE), KILN_OK);
	assert_int_equal(glance(&store, 1, 200), ASK_GET);
	assert_int_equal(store_get(&store, 1, 200), KILN_OK);
	assert_int_equal(glance(&store, 1, 200), KILN_OK);
	assert_int_equal(store_remove(&other, 1), KILN_OK);
	assert_int_equal(glance(&store, 1, 0), KILN_MISS);
	assert_int_equal(other.tier->ops->wipe(other.tier), KILN_OK);
	assert_int_equal(glance(&store, 1, 0), ASK_GET);
	store_close(&other);
	store_free(&store);
}

/* The bytes behind a view, which the mapping shows too. */
static void damage(struct store *store, size_t at)
{
	struct ki_log *log = (struct ki_log *)store->tier;
	uint32_t number = log_tail_segment(log->index->header->tail);
	char path[KI_PATH_MAX];
	uint8_t byte;
	int fd;

	assert_int_equal(ki_log_segment_path(log, number, path), 0);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
	byte ^= 0x40;
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
	close(fd);
}

/* S13: sizes that are wrong lead nowhere. */
static void a_header_is_checked_at_each_glance(void **state)
{
	for (size_t at = 0; at < sizeof(struct log_record); at++) {
		struct store store = still_store(8 << 20);

		assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
		assert_int_equal(store_get(&store, 1, 100), KILN_OK);
		assert_int_equal(glance(&store, 1, 100), KILN_OK);
		damage(&store, at);
		assert_int_equal(glance(&store, 1, 100), ASK_GET);
		assert_int_not_equal(store_get(&store, 1, 100), KILN_OK);
		store_free(&store);
	}
}

static void a_glance_never_shows_what_was_evicted(void **state)
{
	struct store store = still_store(4 << 20);
	unsigned i, n_found = 0;

	for (i = 0; i < 4000; i++) {
		assert_int_equal(store_put(&store, i, 4000, 0), KILN_OK);
		assert_int_equal(store_get(&store, i, 4000), KILN_OK);
		if (i % 100)
			continue;
		for (unsigned old = i / 2; old < i; old += 7)
			n_found += glance(&store, old, 4000) == KILN_OK;
	}
	assert_true(n_found);
	assert_int_not_equal(glance(&store, 0, 4000), KILN_OK);
	store_free(&store);
}

static void some_handles_are_not_for_glances(void **state)
{
	static const struct {
		const char *why;
		uint32_t flags;
		uint64_t age_max_s;
	} cases[] = {
		{ "values are read", KILN_OPEN_COPY, 0 },
		{ "values are checked each time", KILN_OPEN_VERIFY_ALWAYS, 0 },
		{ "a guest", KILN_OPEN_GUEST, 0 },
		{ "age is limited", 0, 3600 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct store store = { .directory = harness_directory() };

		store.options = (struct ki_store_options){
			.sys = still_sys(),
			.directory = store.directory,
			.bytes_max = 8 << 20,
			.flags = cases[i].flags,
			.age_max_s = cases[i].age_max_s,
		};
		store_open(&store);
		assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
		assert_int_equal(store_get(&store, 1, 100), KILN_OK);
		if (glance(&store, 1, 100) != ASK_GET)
			fail_msg("%s", cases[i].why);
		store_free(&store);
	}
}

/* S16 */
static void a_glance_leaves_the_look_at_the_path_to_get(void **state)
{
	struct store store = still_store(8 << 20);

	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	assert_int_equal(store_get(&store, 1, 100), KILN_OK);
	assert_int_equal(glance(&store, 1, 100), KILN_OK);
	harness_remove(store.directory);
	now_ns += 2000000000u;
	assert_int_equal(glance(&store, 1, 100), ASK_GET);
	assert_int_equal(store_get(&store, 1, 100), KILN_MISS);
	store_free(&store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_glance_finds_what_was_checked_before),
		cmocka_unit_test(a_glance_follows_replacing_and_removing),
		cmocka_unit_test(a_header_is_checked_at_each_glance),
		cmocka_unit_test(a_glance_never_shows_what_was_evicted),
		cmocka_unit_test(some_handles_are_not_for_glances),
		cmocka_unit_test(a_glance_leaves_the_look_at_the_path_to_get),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
