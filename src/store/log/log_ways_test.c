/* SPDX-License-Identifier: MIT */

/*
 * The ways of opening a store: what is checked, how values are read, which
 * modes files have, and where a handle looks.
 */

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "store/log/log_test.h"

static struct log_index *index_of(struct store *store)
{
	return store_index(store);
}

static enum kiln_status get_blob(struct store *store, unsigned number,
				 struct kiln_blob **out_blob)
{
	struct kiln_key *key = test_key(number);
	enum kiln_status status =
		store->tier->ops->get(store->tier, key, out_blob, NULL);

	kiln_key_free(key);
	return status;
}

/* In the one segment that has anything. */
static void flip_value(struct store *store, unsigned number, size_t size)
{
	uint8_t *value = test_value(number, size);
	char name[32], *path, *data, *place;
	size_t bytes;

	snprintf(name, sizeof(name), "kiln.%08x.val",
		 (unsigned)log_tail_segment(index_of(store)->header->tail));
	path = harness_path(store->directory, name);
	data = harness_read(path, &bytes);
	place = memmem(data, bytes, value, size);
	assert_non_null(place);
	place[size / 2] ^= 1;
	harness_write(path, data, bytes);
	free(data);
	free(path);
	free(value);
}

/* What was right at its first hit may have changed since. */
static void guests_and_shared_stores_check_every_hit(void **state)
{
	static const struct {
		uint32_t flags;
		enum kiln_status status;
	} rows[] = {
		{ 0, KILN_OK },
		{ KILN_OPEN_COPY, KILN_OK },
		{ KILN_OPEN_VERIFY_ALWAYS, KILN_E_FORMAT },
		{ KILN_OPEN_SHARED, KILN_E_FORMAT },
		{ KILN_OPEN_GUEST, KILN_E_FORMAT },
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct store store = store_new(1 << 20, 0);
		struct store other = store_beside(&store, rows[i].flags);
		struct kiln_blob *blob = NULL;

		assert_int_equal(store_put(&store, 1, 1000, 0), KILN_OK);
		(void)index_of(&other);
		assert_int_equal(store_get(&other, 1, 1000), KILN_OK);
		flip_value(&store, 1, 1000);
		assert_int_equal(get_blob(&other, 1, &blob), rows[i].status);
		kiln_blob_unref(blob);
		store_free(&other);
		store_free(&store);
	}
}

static int is_in_a_segment(const void *address)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long from, to;
	char line[4096];
	int found = 0;

	assert_non_null(maps);
	while (!found && fgets(line, sizeof(line), maps))
		found = sscanf(line, "%lx-%lx", &from, &to) == 2 &&
			(unsigned long)address >= from &&
			(unsigned long)address < to && strstr(line, ".val");
	fclose(maps);
	return found;
}

static void values_are_mapped_or_read_as_was_asked_for(void **state)
{
	static const struct {
		uint32_t flags;
		int is_mapped;
	} rows[] = {
		{ 0, 1 },
		{ KILN_OPEN_VERIFY_ALWAYS, 1 },
		{ KILN_OPEN_READONLY, 1 },
		{ KILN_OPEN_COPY, 0 },
		{ KILN_OPEN_SHARED, 0 },
		{ KILN_OPEN_GUEST, 0 },
	};
	struct store store = store_new(1 << 20, 0);
	size_t i;

	assert_int_equal(store_put(&store, 1, 1000, 0), KILN_OK);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct store other = store_beside(&store, rows[i].flags);
		struct kiln_blob *blob;

		(void)index_of(&other); /* the first look maps nothing */
		assert_int_equal(get_blob(&other, 1, &blob), KILN_OK);
		assert_int_equal(is_in_a_segment(kiln_blob_data(blob)),
				 rows[i].is_mapped);
		kiln_blob_unref(blob);
		store_free(&other);
	}
	store_free(&store);
}

/* Not even a mark that is there. */
static void a_second_hit_writes_nothing(void **state)
{
	struct store store = store_new(1 << 20, 0);
	struct log_index *index = index_of(&store);

	assert_int_equal(store_put(&store, 1, 1000, 0), KILN_OK);
	assert_int_equal(store_get(&store, 1, 1000), KILN_OK);
	assert_int_equal(mprotect(index->header, index->size, PROT_READ), 0);
	assert_int_equal(store_get(&store, 1, 1000), KILN_OK);
	assert_int_equal(store_get(&store, 2, 0), KILN_MISS);
	assert_int_equal(
		mprotect(index->header, index->size, PROT_READ | PROT_WRITE),
		0);
	store_free(&store);
}

/* ---- Modes ------------------------------------------------------------- */

static void check_modes(const char *directory, unsigned directory_mode,
			unsigned mode)
{
	DIR *dir = opendir(directory);
	struct dirent *entry;
	struct stat st;
	char *path;

	assert_non_null(dir);
	assert_int_equal(stat(directory, &st), 0);
	assert_int_equal(st.st_mode & 07777, directory_mode);
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		path = harness_path(directory, entry->d_name);
		assert_int_equal(stat(path, &st), 0);
		if (S_ISDIR(st.st_mode))
			check_modes(path, directory_mode, mode);
		else if ((st.st_mode & 07777) != mode)
			fail_msg("%s has mode %o", path,
				 (unsigned)st.st_mode & 07777);
		free(path);
	}
	closedir(dir);
}

/* Index, segments, spare, a large value, lock, counters, quarantine: whatever
   the umask. */
static void the_group_can_use_what_is_shared_and_nobody_else(void **state)
{
	static const struct {
		uint32_t flags;
		mode_t mask;
		unsigned directory_mode;
		unsigned mode;
	} rows[] = {
		{ 0, 0, 0700, 0600 },
		{ KILN_OPEN_SHARED, 0077, 02770, 0660 },
	};
	uint64_t deltas[KILN_N_COUNTERS] = { 1 };
	struct kiln_verify_report report;
	struct kiln_tier_lock *lock;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *parent = harness_directory();
		char *directory = harness_path(parent, "store");
		struct kiln_key *key = test_key(1);
		struct store store = { .directory = directory };
		mode_t before = umask(rows[i].mask);

		store.options.sys = &ki_sys_posix;
		store.options.directory = directory;
		store.options.bytes_max = 32 << 20;
		store.options.flags = rows[i].flags;
		store_open(&store);
		assert_int_equal(store_put(&store, 1, 1000, 0), KILN_OK);
		assert_int_equal(store_put(&store, 2, 3 << 20, 0), KILN_OK);
		assert_int_equal(
			store.tier->ops->lock(store.tier, key, 0, &lock),
			KILN_OK);
		store.tier->ops->unlock(store.tier, lock);
		assert_int_equal(store.tier->ops->count(store.tier, deltas),
				 KILN_OK);
		flip_value(&store, 1, 1000);
		assert_int_equal(store.tier->ops->verify(store.tier,
							 KILN_VERIFY_REPAIR,
							 NULL, NULL, &report),
				 KILN_OK);
		check_modes(directory, rows[i].directory_mode, rows[i].mode);
		umask(before);
		kiln_key_free(key);
		store_free(&store);
		free(parent);
	}
}

/* ---- Following the path ------------------------------------------------ */

static uint64_t now_ns;
static unsigned n_looks;

static uint64_t coarse_by_hand(const struct ki_sys *sys)
{
	return now_ns;
}

static int counted_stat(const struct ki_sys *sys, const char *path,
			struct ki_file_info *out_info)
{
	/* What lies above is looked at as well. */
	n_looks += strstr(path, "kiln.") != NULL;
	return ki_sys_posix.stat(&ki_sys_posix, path, out_info);
}

/* Removed without a word to those who have it open, and made anew. */
static void a_look_up_follows_the_path_once_a_second(void **state)
{
	struct store store = store_new(1 << 20, 0), other;
	struct ki_sys sys = ki_sys_posix;
	unsigned i;

	sys.coarse_ns = coarse_by_hand;
	sys.stat = counted_stat;
	now_ns = ki_sys_posix.coarse_ns(&ki_sys_posix);
	store_close(&store);
	store.options.sys = &sys;
	store_open(&store);
	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	assert_int_equal(store_get(&store, 1, 100), KILN_OK);

	harness_remove(store.directory);
	other = store_beside(&store, 0);
	assert_int_equal(store_put(&other, 2, 200, 0), KILN_OK);
	n_looks = 0;
	for (i = 0; i < 100; i++)
		assert_int_equal(store_get(&store, 3, 0), KILN_MISS);
	assert_int_equal(n_looks, 0);
	now_ns += 1100000000;
	assert_int_equal(store_get(&store, 1, 100), KILN_MISS);
	assert_int_equal(store_get(&store, 2, 200), KILN_OK);
	assert_int_equal(n_looks, 1);
	store_free(&other);
	store_free(&store);
}

/* ---- Age --------------------------------------------------------------- */

static uint64_t now_s;

static uint64_t date_by_hand(const struct ki_sys *sys)
{
	return now_s * 1000000000;
}

/* A sweep is every quarter of the age limit: this one comes in between. */
static void what_has_just_become_too_old_is_no_hit(void **state)
{
	struct store store = store_new(1 << 20, 0);
	struct ki_sys sys = ki_sys_posix;
	const uint64_t begin_s = 1000000000;

	harness_remove(store.directory);
	store_close(&store);
	sys.realtime_ns = date_by_hand;
	store.options.sys = &sys;
	store.options.age_max_s = 1000;
	now_s = begin_s;
	store_open(&store);
	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	now_s = begin_s + 500;
	assert_int_equal(store_put(&store, 2, 100, 0), KILN_OK);
	now_s = begin_s + 990;
	assert_int_equal(store_get(&store, 3, 0), KILN_MISS);
	assert_int_equal(index_of(&store)->header->aged_s, now_s);
	now_s = begin_s + 1005;
	assert_int_equal(store_get(&store, 1, 100), KILN_MISS);
	assert_int_equal(store_get(&store, 2, 100), KILN_OK);
	assert_int_equal(index_of(&store)->header->aged_s, begin_s + 990);
	store_free(&store);
}

/* S46 */
static void a_hit_sweeps_a_few_slots_and_all_hits_all_of_them(void **state)
{
	struct store store = store_new(8 << 20, 0), other;
	struct ki_sys sys = ki_sys_posix;
	const uint64_t begin_s = 1000000000;
	struct log_header *header;
	uint64_t before, now, n_slots;
	unsigned n, hits;

	harness_remove(store.directory);
	store_close(&store);
	sys.realtime_ns = date_by_hand;
	store.options.sys = &sys;
	store.options.age_max_s = 1000;
	now_s = begin_s;
	store_open(&store);
	for (n = 0; n < 3000; n++)
		assert_int_equal(store_put(&store, n, 10, 0), KILN_OK);
	now_s = begin_s + 900;
	other = store_beside(&store, 0);
	header = index_of(&store)->header;
	n_slots = index_of(&store)->n_buckets * LOG_WORDS;
	assert_true(n_slots > 3 * LOG_SWEEP_BY_HIT);
	for (hits = 0; header->n_swept < n_slots; hits++)
		(void)store_get(&store, 5000, 0);
	assert_int_equal(header->n_entries, 3000);

	/* All have become too old, and two look. */
	now_s = begin_s + 1200;
	for (hits = 0; header->n_entries; hits++) {
		before = header->n_entries;
		(void)store_get(hits % 2 ? &store : &other, 5000, 0);
		now = header->n_entries;
		assert_true(before - now <= LOG_SWEEP_BY_HIT);
		assert_int_equal(header->aged_s, now_s);
		assert_true(hits <= n_slots / LOG_SWEEP_BY_HIT + 1);
	}
	assert_true(hits > 3);
	store_free(&other);
	store_free(&store);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(guests_and_shared_stores_check_every_hit),
		cmocka_unit_test(values_are_mapped_or_read_as_was_asked_for),
		cmocka_unit_test(a_second_hit_writes_nothing),
		cmocka_unit_test(
			the_group_can_use_what_is_shared_and_nobody_else),
		cmocka_unit_test(a_look_up_follows_the_path_once_a_second),
		cmocka_unit_test(what_has_just_become_too_old_is_no_hit),
		cmocka_unit_test(
			a_hit_sweeps_a_few_slots_and_all_hits_all_of_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
