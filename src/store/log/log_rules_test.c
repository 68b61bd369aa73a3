/* SPDX-License-Identifier: MIT */

/*
 * Rules of the store that no other test would miss, one by one; docs/rules.md
 * says where the others are tested.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "store/log/log_test.h"

static struct ki_log *log_of(struct store *store)
{
	return (struct ki_log *)store->tier;
}

static struct log_header *header_of(struct store *store)
{
	return store_index(store)->header;
}

static uint32_t tail_of(struct store *store)
{
	return log_tail_segment(header_of(store)->tail);
}

static char *segment_of(struct store *store, uint32_t number)
{
	char name[32];

	snprintf(name, sizeof(name), "kiln.%08x.val", (unsigned)number);
	return harness_path(store->directory, name);
}

static void roll(struct store *store, unsigned number)
{
	header_of(store)->tail = 0;
	if (store_put(store, number, 100, 0))
		abort();
}

/* ---- Records ----------------------------------------------------------- */

/* The same bytes under another number are not the record. */
static void a_record_counts_in_its_own_segment_alone(void **state)
{
	struct store store = store_new(1 << 20, 0);
	char *from, *to, *data;
	uint32_t number;
	uint64_t slot;
	size_t size;

	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	number = tail_of(&store);
	from = segment_of(&store, number);
	roll(&store, 2);
	to = segment_of(&store, number + 1);
	data = harness_read(from, &size);
	harness_write(to, data, size);
	for (slot = 0; slot < store_index(&store)->n_buckets * LOG_WORDS;
	     slot++) {
		uint64_t word = store_index(&store)->words[slot];

		if (word && log_word_segment(word, number) == number)
			store_index(&store)->words[slot] = log_word(
				log_word_tag(word), (uint8_t)(word >> 40),
				number + 1, log_word_units(word));
	}
	store_reopen(&store);
	assert_int_not_equal(store_get(&store, 1, 100), KILN_OK);
	free(data);
	free(to);
	free(from);
	store_free(&store);
}

/* Also a field that nothing else would tell. */
static void every_field_of_a_header_is_checked(void **state)
{
	struct store store = store_new(1 << 20, 0);
	char *path, *data;
	struct log_record *record;
	size_t size;

	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	path = segment_of(&store, tail_of(&store));
	store_close(&store);
	data = harness_read(path, &size);
	record = (struct log_record *)(void *)data;
	record->used_s ^= 1;
	harness_write(path, data, size);
	store_open(&store);
	assert_int_equal(store_get(&store, 1, 100), KILN_E_FORMAT);
	free(data);
	free(path);
	store_free(&store);
}

/* ---- Numbers ----------------------------------------------------------- */

static void a_number_is_above_all_that_are_there(void **state)
{
	struct store store = store_new(1 << 20, 0);
	char *path;
	uint32_t number;

	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	number = tail_of(&store);
	path = segment_of(&store, number + 7);
	harness_write(path, "x", 1);
	roll(&store, 2);
	assert_int_equal(tail_of(&store), number + 8);
	assert_int_equal(store_get(&store, 1, 100), KILN_OK);
	assert_int_equal(store_get(&store, 2, 100), KILN_OK);
	free(path);
	store_free(&store);
}

/* A tail that went back, for a handle that does not know better. */
static void what_is_not_empty_is_not_written_to(void **state)
{
	struct store store = store_new(1 << 20, 0);
	struct store other = store_beside(&store, 0);
	uint32_t number;

	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	number = tail_of(&store);
	header_of(&store)->tail = log_tail_word(number, 0);
	assert_int_equal(store_put(&other, 2, 100, 0), KILN_OK);
	assert_int_equal(tail_of(&store), number + 1);
	assert_int_equal(store_get(&store, 1, 100), KILN_OK);
	assert_int_equal(store_get(&store, 2, 100), KILN_OK);
	store_free(&other);
	store_free(&store);
}

/* Nor what a handle has seen taken, though its writer left it empty. */
static void what_was_taken_is_not_taken_again(void **state)
{
	static const char zeros[4096];
	struct store store = store_new(1 << 20, 0);
	uint32_t number;
	char *path;
	int fd;

	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	number = tail_of(&store);
	path = segment_of(&store, number);
	fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, zeros, sizeof(zeros), 0), sizeof(zeros));
	close(fd);
	header_of(&store)->tail = log_tail_word(number, 0);
	assert_int_equal(store_put(&store, 2, 100, 0), KILN_OK);
	assert_int_equal(tail_of(&store), number + 1);
	free(path);
	store_free(&store);
}

static void live_numbers_never_span_too_much(void **state)
{
	struct store store = store_new(0, 0);
	char *path;
	uint32_t number;

	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	number = tail_of(&store);
	path = segment_of(&store, number);
	header_of(&store)->next_number =
		log_number_word(number + LOG_SPAN_MAX - 2);
	roll(&store, 2);
	assert_int_not_equal(access(path, F_OK), 0);
	assert_true(tail_of(&store) - ki_log_min_live(store_index(&store)) <
		    LOG_SPAN_MAX);
	assert_int_equal(store_get(&store, 2, 100), KILN_OK);
	free(path);
	store_free(&store);
}

static unsigned count_dead(struct store *store)
{
	struct log_index *index = store_index(store);
	uint64_t slot;
	unsigned n = 0;

	for (slot = 0; slot < index->n_buckets * LOG_WORDS; slot++) {
		uint64_t word = index->words[slot];

		n += word && !log_word_is_live(word, ki_log_min_live(index));
	}
	return n;
}

static void crossing_a_span_clears_dead_words(void **state)
{
	struct store store = store_new(1 << 20, 0);
	struct log_header *header = header_of(&store);
	const uint32_t border = 3 * LOG_SPAN_MAX;
	unsigned i;

	header->min_live = log_number_word(border - 20);
	header->next_number = header->min_live;
	header->tail = 0;
	/* One of a segment that has been gone for long. */
	store_index(&store)->words[0] = log_word(1, 1, border - 100, 0);
	assert_int_equal(count_dead(&store), 1);
	for (i = 0; log_is_before(ki_log_min_live(store_index(&store)), border);
	     i++)
		assert_int_equal(store_put(&store, i, 3000, 0), KILN_OK);
	assert_int_equal(count_dead(&store), 0);
	store_free(&store);
}

/* ---- The bound --------------------------------------------------------- */

static struct log_census census_of(struct store *store)
{
	struct log_census census, counted;

	if (ki_log_census_take(log_of(store), 0, &census))
		abort();
	counted = census;
	counted.files = NULL;
	ki_log_census_fini(&census);
	return counted;
}

static uint64_t grows_by(struct store *store, const char *name)
{
	uint64_t before = census_of(store).bytes;
	char *path = harness_path(store->directory, name);
	char *data = calloc(1, 8192);

	harness_write(path, data, 8192);
	free(data);
	free(path);
	return census_of(store).bytes - before;
}

static void everything_of_the_store_is_counted_and_nothing_else(void **state)
{
	static const struct {
		const char *name;
		int counts;
	} rows[] = {
		{ "kiln.00000001.val", 1 },
		{ "kiln.tmp.1.1", 1 },
		{ "kiln.src.00000001.val", 1 },
		{ "kiln.quarantine/00000001.0", 1 },
		{ "other.00000001.val", 0 },
		{ "kiln.tmp.idx", 0 },
	};
	struct store store = store_new(8 << 20, 0);
	char *directory = harness_path(store.directory, "kiln.quarantine");
	size_t i;

	assert_int_equal(mkdir(directory, 0700), 0);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].counts)
			assert_true(grows_by(&store, rows[i].name) >= 8192);
		else
			assert_int_equal(grows_by(&store, rows[i].name), 0);
	free(directory);
	store_free(&store);
}

/* As a mover that was killed between link and unlink leaves it. */
static void a_file_of_two_names_is_counted_once(void **state)
{
	struct store store = store_new(8 << 20, 0);
	char *from, *to;
	uint64_t before;

	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	from = segment_of(&store, tail_of(&store));
	to = segment_of(&store, tail_of(&store) + 1);
	before = census_of(&store).bytes;
	assert_int_equal(link(from, to), 0);
	assert_int_equal(census_of(&store).bytes, before);
	free(to);
	free(from);
	store_free(&store);
}

static void a_bounded_store_has_few_files(void **state)
{
	struct store store = store_new(64 << 20, 0);
	uint32_t number;
	unsigned i;
	char *path;

	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	number = tail_of(&store);
	for (i = 0; i < LOG_FILES_MAX + 20; i++) {
		path = segment_of(&store, number + 1 + i);
		harness_write(path, "x", 1);
		free(path);
	}
	roll(&store, 2);
	assert_true(census_of(&store).n_files <= LOG_FILES_MAX);
	assert_int_equal(store_get(&store, 2, 100), KILN_OK);
	store_free(&store);
}

static uint64_t tail_bytes(struct store *store)
{
	char *path = segment_of(store, tail_of(store));
	struct stat st;
	uint64_t bytes = stat(path, &st) ? 0 : (uint64_t)st.st_size;

	free(path);
	return bytes;
}

static void segments_have_the_size_that_the_bound_gives_them(void **state)
{
	struct store store = store_new(64 << 20, 0);
	unsigned i;
	char *path;

	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	assert_int_equal(tail_bytes(&store), 2 << 20);
	store_free(&store);

	/* Without a bound they double with every 64. */
	store = store_new(0, 0);
	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	assert_int_equal(tail_bytes(&store), 16 << 20);
	for (i = 0; i < 64; i++) {
		path = segment_of(&store, tail_of(&store) + 1 + i);
		harness_write(path, "x", 1);
		free(path);
	}
	roll(&store, 2);
	assert_int_equal(tail_bytes(&store), 32 << 20);
	store_free(&store);
}

/* ---- Locks ------------------------------------------------------------- */

static char *lock_path;
static unsigned n_tries;

/* Between the lock and the look at it, someone removes the file. */
static int lock_and_lose(const struct ki_sys *sys, int fd,
			 enum ki_lock_kind kind, uint64_t offset, uint64_t size)
{
	int err = ki_sys_posix.try_lock(&ki_sys_posix, fd, kind, offset, size);

	if (!n_tries++ && unlink(lock_path))
		abort();
	return err;
}

static void a_lock_on_a_file_that_is_gone_is_none(void **state)
{
	struct store a = store_new(8 << 20, 0);
	struct store b = store_beside(&a, 0);
	struct kiln_key *key = test_key(1);
	struct kiln_tier_lock *lock, *other;
	struct ki_sys sys = ki_sys_posix;

	assert_int_equal(store_put(&a, 1, 100, 0), KILN_OK);
	store_close(&a);
	sys.try_lock = lock_and_lose;
	a.options.sys = &sys;
	store_open(&a);
	lock_path = harness_path(a.directory, "kiln.lock");
	n_tries = 0;
	assert_int_equal(a.tier->ops->lock(a.tier, key, 1000, &lock), KILN_OK);
	assert_int_equal(b.tier->ops->lock(b.tier, key, 5, &other),
			 KILN_E_TIMEOUT);
	a.tier->ops->unlock(a.tier, lock);
	free(lock_path);
	kiln_key_free(key);
	store_free(&b);
	store_free(&a);
}

/* ---- Opening ----------------------------------------------------------- */

static unsigned n_walks;

static int counted_opendir(const struct ki_sys *sys, const char *path,
			   struct ki_dir **out_dir)
{
	n_walks++;
	return ki_sys_posix.opendir(&ki_sys_posix, path, out_dir);
}

/* S46: neither opening nor a look-up depends on how much is there. */
static void opening_and_looking_up_walk_nothing(void **state)
{
	struct store store = store_new(4 << 20, 0);
	struct ki_sys sys = ki_sys_posix;
	unsigned i;

	for (i = 0; i < 500; i++)
		assert_int_equal(store_put(&store, i, 3000, 0), KILN_OK);
	store_close(&store);
	sys.opendir = counted_opendir;
	store.options.sys = &sys;
	n_walks = 0;
	store_open(&store);
	assert_int_equal(store_get(&store, 499, 3000), KILN_OK);
	assert_int_equal(store_get(&store, 10000, 1), KILN_MISS);
	assert_int_equal(n_walks, 0);
	store_free(&store);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_record_counts_in_its_own_segment_alone),
		cmocka_unit_test(every_field_of_a_header_is_checked),
		cmocka_unit_test(a_number_is_above_all_that_are_there),
		cmocka_unit_test(what_is_not_empty_is_not_written_to),
		cmocka_unit_test(what_was_taken_is_not_taken_again),
		cmocka_unit_test(live_numbers_never_span_too_much),
		cmocka_unit_test(crossing_a_span_clears_dead_words),
		cmocka_unit_test(
			everything_of_the_store_is_counted_and_nothing_else),
		cmocka_unit_test(a_file_of_two_names_is_counted_once),
		cmocka_unit_test(a_bounded_store_has_few_files),
		cmocka_unit_test(
			segments_have_the_size_that_the_bound_gives_them),
		cmocka_unit_test(a_lock_on_a_file_that_is_gone_is_none),
		cmocka_unit_test(opening_and_looking_up_walk_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
