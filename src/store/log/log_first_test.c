/* SPDX-License-Identifier: MIT */

/* The first look-up of a handle, which maps nothing. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"

#include "store/log/log_test.h"

static unsigned n_maps;
static int reads_badly;

static int counted_map(const struct ki_sys *sys, int fd, uint64_t offset,
		       size_t size, unsigned flags, void **out_data)
{
	n_maps++;
	return ki_sys_posix.map(&ki_sys_posix, fd, offset, size, flags,
				out_data);
}

static ssize_t watched_pread(const struct ki_sys *sys, int fd, void *data,
			     size_t size, uint64_t offset)
{
	if (reads_badly && offset >= LOG_HEADER_BYTES)
		return -EIO;
	return ki_sys_posix.pread(&ki_sys_posix, fd, data, size, offset);
}

/* No look at the path becomes due, however long the test is kept waiting. */
static uint64_t no_time_passes(const struct ki_sys *sys)
{
	return 1;
}

static const struct ki_sys *watched_sys(void)
{
	static struct ki_sys sys;

	sys = ki_sys_posix;
	sys.map = counted_map;
	sys.pread = watched_pread;
	sys.coarse_ns = no_time_passes;
	n_maps = 0;
	reads_badly = 0;
	return &sys;
}

/* A store with entry 1, and a handle that was just opened. */
struct pair {
	struct store maker;
	struct store late;
};

static struct pair pair_new(size_t size, uint32_t flags)
{
	struct pair pair = { .maker = store_new(8 << 20, 0) };

	assert_int_equal(store_put(&pair.maker, 1, size, 0), KILN_OK);
	pair.late.options = pair.maker.options;
	pair.late.options.flags = flags;
	pair.late.options.sys = watched_sys();
	store_open(&pair.late);
	return pair;
}

static void pair_free(struct pair *pair)
{
	store_free(&pair->late);
	store_free(&pair->maker);
}

static struct log_index *late_index(const struct pair *pair)
{
	return ((struct ki_log *)pair->late.tier)->index;
}

static void the_first_look_maps_nothing_and_the_second_does(void **state)
{
	static const struct {
		size_t size;
		uint32_t flags;
		unsigned n_first, n_second;
	} rows[] = {
		{ 100, 0, 0, 2 },
		{ 100, KILN_OPEN_READONLY, 0, 2 },
		{ 100, KILN_OPEN_COPY, 0, 1 },
		{ 0, 0, 0, 2 },
		{ 30000, 0, 0, 2 },
		{ 100000, 0, 2, 2 },
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct pair pair = pair_new(rows[i].size, rows[i].flags);

		assert_int_equal(store_get(&pair.late, 1, rows[i].size),
				 KILN_OK);
		assert_int_equal(n_maps, rows[i].n_first);
		assert_int_equal(store_get(&pair.late, 1, rows[i].size),
				 KILN_OK);
		assert_int_equal(n_maps, rows[i].n_second);
		assert_int_equal(store_get(&pair.late, 2, 100), KILN_MISS);
		pair_free(&pair);
	}
}

static void a_first_look_in_vain_leaves_it_open_for_a_put(void **state)
{
	struct pair pair = pair_new(100, 0);

	assert_int_equal(store_get(&pair.late, 2, 100), KILN_MISS);
	assert_int_equal(n_maps, 0);
	assert_int_equal(store_put(&pair.late, 2, 100, 0), KILN_OK);
	assert_int_equal(store_get(&pair.maker, 2, 100), KILN_OK);
	pair_free(&pair);
}

static void wipe(struct pair *pair)
{
	assert_int_equal(pair->maker.tier->ops->wipe(pair->maker.tier),
			 KILN_OK);
}

static void remove_one(struct pair *pair)
{
	assert_int_equal(store_remove(&pair->maker, 1), KILN_OK);
}

static void replace(struct pair *pair)
{
	assert_int_equal(store_put(&pair->maker, 1, 300, KILN_PUT_REPLACE),
			 KILN_OK);
}

static void wipe_and_replace(struct pair *pair)
{
	wipe(pair);
	replace(pair);
}

static void grow(struct pair *pair)
{
	struct ki_log *log = (struct ki_log *)pair->maker.tier;

	assert_int_equal(ki_log_grow(log, store_index(&pair->maker)), KILN_OK);
	replace(pair);
}

static void what_happened_since_it_was_opened_is_seen(void **state)
{
	static const struct {
		void (*change)(struct pair *pair);
		enum kiln_status found;
	} rows[] = {
		{ wipe, KILN_MISS },	       { remove_one, KILN_MISS },
		{ replace, KILN_OK },	       { grow, KILN_OK },
		{ wipe_and_replace, KILN_OK },
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct pair pair = pair_new(100, 0);

		rows[i].change(&pair);
		assert_int_equal(store_get(&pair.late, 1, 300), rows[i].found);
		assert_int_equal(store_get(&pair.late, 1, 300), rows[i].found);
		pair_free(&pair);
	}
}

static void what_was_found_first_lives_as_long_as_the_store(void **state)
{
	struct pair pair = pair_new(100, 0);
	struct kiln_key *key = test_key(1);
	struct kiln_blob *blob;
	struct kiln_tier *tier = pair.late.tier;
	const uint64_t *generation;

	assert_null(tier->generation);
	assert_int_equal(tier->ops->get(tier, key, &blob, NULL), KILN_OK);
	generation = tier->generation;
	assert_non_null(generation);
	assert_int_not_equal(*generation, 0);
	assert_true(tier->is_live(tier, blob));
	assert_ptr_not_equal(tier->generation, generation);
	wipe(&pair);
	assert_false(tier->is_live(tier, blob));
	assert_true(test_value_is(blob, 1));
	kiln_blob_unref(blob);
	kiln_key_free(key);
	pair_free(&pair);
}

/* That another one is shown follows from what was shown, not from a header that
   only who looks first may read. */
static void a_store_that_is_gone_has_another_generation(void **state)
{
	int has_looked;

	for (has_looked = 0; has_looked < 2; has_looked++) {
		struct pair pair = pair_new(100, 0);
		struct kiln_tier *tier = pair.late.tier;
		char *path = harness_path(pair.maker.directory, "kiln.idx");
		uint64_t shown = 0;

		if (has_looked) {
			assert_int_equal(store_get(&pair.late, 1, 100),
					 KILN_OK);
			shown = *tier->generation;
		} else {
			late_index(&pair)->has_looked = 1;
		}
		assert_int_equal(remove(path), 0);
		assert_int_equal(store_get(&pair.late, 1, 100), KILN_MISS);
		assert_int_equal(*tier->generation, ~shown);
		free(path);
		pair_free(&pair);
	}
}

static void a_first_hit_is_marked(void **state)
{
	struct pair pair = pair_new(100, 0);
	const struct log_index *index = store_index(&pair.maker);
	uint64_t slot, n_marks = 0;

	assert_int_equal(store_get(&pair.late, 1, 100), KILN_OK);
	for (slot = 0; slot < index->n_buckets * LOG_WORDS; slot++) {
		assert_true(!index->marks[slot] || index->words[slot]);
		n_marks += index->marks[slot] == 1;
	}
	assert_int_equal(n_marks, 1);
	pair_free(&pair);
}

static void damage_met_first_is_cleared_at_once(void **state)
{
	struct pair pair = pair_new(100, 0);
	uint64_t tail = store_index(&pair.maker)->header->tail;
	char path[KI_PATH_MAX];
	int fd;

	assert_int_equal(ki_log_segment_path((struct ki_log *)pair.maker.tier,
					     log_tail_segment(tail), path),
			 0);
	fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, "damage", 6, 150), 6);
	close(fd);
	assert_int_equal(store_get(&pair.late, 1, 100), KILN_E_FORMAT);
	assert_int_equal(store_get(&pair.late, 1, 100), KILN_MISS);
	assert_int_equal(store_index(&pair.maker)->header->n_entries, 0);
	pair_free(&pair);
}

static void what_cannot_be_read_is_an_error(void **state)
{
	struct pair pair = pair_new(100, 0);

	reads_badly = 1;
	assert_int_equal(store_get(&pair.late, 1, 100), KILN_E_IO);
	reads_badly = 0;
	assert_int_equal(store_get(&pair.late, 1, 100), KILN_OK);
	pair_free(&pair);
}

/* The program closed our number, and another file of its own has it now. */
static void a_descriptor_that_became_another_file_is_left_alone(void **state)
{
	int close_early;

	for (close_early = 0; close_early < 2; close_early++) {
		struct pair pair = pair_new(100, 0);
		char *path = harness_path(pair.maker.directory, "foreign"),
		     *now;
		char *before = calloc(1, 65536);
		int kept = late_index(&pair)->fd, fd;
		size_t size;

		harness_write(path, before, 65536);
		fd = open(path, O_RDWR);
		assert_int_equal(dup2(fd, kept), kept);
		close(fd);
		if (!close_early)
			assert_int_equal(store_get(&pair.late, 1, 100),
					 KILN_OK);
		store_close(&pair.late);
		assert_int_equal(pwrite(kept, "mine", 4, 0), 4);
		assert_int_equal(pwrite(kept, "\0\0\0\0", 4, 0), 4);
		close(kept);
		now = harness_read(path, &size);
		assert_int_equal(size, 65536);
		assert_memory_equal(before, now, size);
		free(now);
		free(before);
		free(path);
		pair_free(&pair);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			the_first_look_maps_nothing_and_the_second_does),
		cmocka_unit_test(a_first_look_in_vain_leaves_it_open_for_a_put),
		cmocka_unit_test(what_happened_since_it_was_opened_is_seen),
		cmocka_unit_test(
			what_was_found_first_lives_as_long_as_the_store),
		cmocka_unit_test(a_store_that_is_gone_has_another_generation),
		cmocka_unit_test(a_first_hit_is_marked),
		cmocka_unit_test(damage_met_first_is_cleared_at_once),
		cmocka_unit_test(what_cannot_be_read_is_an_error),
		cmocka_unit_test(
			a_descriptor_that_became_another_file_is_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
