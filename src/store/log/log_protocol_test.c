/* SPDX-License-Identifier: MIT */

/* What a process may find that another left half-way, or does meanwhile. */

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"

#include "store/log/log_test.h"

static struct log_header *header_of(struct store *store)
{
	return store_index(store)->header;
}

static unsigned count_found(struct store *store, unsigned from, unsigned to)
{
	unsigned n = 0;
	size_t size;

	for (; from < to; from++)
		n += store_get_any(store, from, &size) == KILN_OK;
	return n;
}

/* ---- Held up ----------------------------------------------------------- */

static struct store meanwhile;
static unsigned n_calls, hold_at, next_number;
static int with_wipe;

/* Enough to evict everything that was there, some of it twice. */
static void do_much(void)
{
	struct ki_lock lock;
	unsigned i;
	size_t size;

	/* Who is held up may have byte 0: then a wipe would only wait. */
	if (ki_log_structure_begin((struct ki_log *)meanwhile.tier, &lock, 0))
		return;
	ki_log_structure_end((struct ki_log *)meanwhile.tier, &lock);
	if (with_wipe)
		(void)meanwhile.tier->ops->wipe(meanwhile.tier);
	for (i = 0; i < 600; i++) {
		enum kiln_status status =
			store_put(&meanwhile, next_number, 3000, 0);

		if (status)
			abort();
		(void)store_get_any(&meanwhile, next_number++, &size);
	}
}

static void call(void)
{
	unsigned n = n_calls++;

	if (n == hold_at)
		do_much();
}

static ssize_t held_pwritev(const struct ki_sys *sys, int fd,
			    const struct ki_piece *pieces, int n_pieces,
			    uint64_t offset)
{
	ssize_t n;

	call();
	n = ki_sys_posix.pwritev(&ki_sys_posix, fd, pieces, n_pieces, offset);
	call();
	return n;
}

/* Not of an index that is being opened, which is under the handle's mutex. */
static ssize_t held_pread(const struct ki_sys *sys, int fd, void *data,
			  size_t size, uint64_t offset)
{
	ssize_t n;

	if (size == LOG_HEAD_BYTES)
		return ki_sys_posix.pread(&ki_sys_posix, fd, data, size,
					  offset);
	call();
	n = ki_sys_posix.pread(&ki_sys_posix, fd, data, size, offset);
	call();
	return n;
}

static int held_rename(const struct ki_sys *sys, const char *from,
		       const char *to)
{
	call();
	return ki_sys_posix.rename(&ki_sys_posix, from, to);
}

static int held_rename_new(const struct ki_sys *sys, const char *from,
			   const char *to)
{
	call();
	return ki_sys_posix.rename_new(&ki_sys_posix, from, to);
}

static int held_link(const struct ki_sys *sys, const char *from, const char *to)
{
	call();
	return ki_sys_posix.link(&ki_sys_posix, from, to);
}

/* S21: a writer is stopped at any of its steps, while others go on for long. */
static void a_writer_that_was_stopped_hurts_nobody(void **state)
{
	static const size_t sizes[] = { 3000, 200000 };
	static const uint32_t ways[] = { 0, KILN_OPEN_GUEST };
	unsigned i, done, key = 0;
	size_t size;

	for (i = 0; i < 8; i++) {
		struct store store = store_new(1 << 20, 0);
		struct ki_sys sys = ki_sys_posix;

		store_close(&store);
		meanwhile = store_beside(&store, 0);
		sys.pwritev = held_pwritev;
		sys.pread = held_pread;
		sys.rename = held_rename;
		sys.rename_new = held_rename_new;
		sys.link = held_link;
		store.options.sys = &sys;
		store.options.flags = ways[i / 2 % 2];
		hold_at = UINT32_MAX;
		store_open(&store);
		with_wipe = i >= 4;
		next_number = 100000;
		for (hold_at = 0, done = 0; !done; hold_at++) {
			enum kiln_status status;

			n_calls = 0;
			key++;
			status = store_put(&store, key, sizes[i % 2],
					   key % 2 ? KILN_PUT_REPLACE : 0);
			done = n_calls <= hold_at;
			n_calls = UINT32_MAX / 2;
			assert_true(status == KILN_OK ||
				    status == KILN_E_TIMEOUT);
			(void)store_get_any(&store, key, &size);
			(void)store_get_any(&meanwhile, key, &size);
			(void)count_found(&meanwhile, next_number - 50,
					  next_number);
		}
		assert_true(hold_at > 2);
		assert_int_equal(store_put(&store, 99999, 3000, 0), KILN_OK);
		assert_int_equal(store_get(&meanwhile, 99999, 3000), KILN_OK);
		store_free(&meanwhile);
		store_free(&store);
	}
}

/* ---- The same name again ------------------------------------------------- */

static struct store other;
static int steps;

/* ---- Carried over meanwhile ---------------------------------------------- */

static char carried_path[KI_PATH_MAX]; /* the first segment's */

static void *evict_it(void *arg)
{
	unsigned i;

	for (i = 0; i < 1000 && !access(carried_path, F_OK); i++)
		if (store_put(&meanwhile, next_number++, 3000, 0))
			abort();
	return NULL;
}

/* On the way to the segment's file, another evicts it (in a thread, because
   the one that opens may hold a lock of the same rank). */
static int late_open(const struct ki_sys *sys, const char *path, unsigned flags,
		     unsigned mode)
{
	pthread_t thread;

	if (!strcmp(path, carried_path) &&
	    (pthread_create(&thread, NULL, evict_it, NULL) ||
	     pthread_join(thread, NULL)))
		abort();
	return ki_sys_posix.open(&ki_sys_posix, path, flags, mode);
}

static void what_is_removed_while_it_is_carried_over_stays_away(void **state)
{
	static const uint32_t ways[] = { 0, KILN_OPEN_GUEST };
	unsigned i;

	for (i = 0; i < 2; i++) {
		struct store store = store_new(1 << 20, 0);
		struct ki_sys sys = ki_sys_posix;

		assert_int_equal(store_put(&store, 0, 3000, 0), KILN_OK);
		snprintf(carried_path, sizeof(carried_path), "%s/kiln.%08x.val",
			 store.directory,
			 log_tail_segment(header_of(&store)->tail));
		assert_int_equal(access(carried_path, F_OK), 0);
		assert_int_equal(store_get(&store, 0, 3000), KILN_OK);
		store_close(&store);
		meanwhile = store_beside(&store, 0);
		next_number = 1;
		sys.open = late_open;
		store.options.sys = &sys;
		store.options.flags = ways[i];
		store_open(&store);

		assert_int_equal(store_remove(&store, 0), KILN_OK);
		assert_int_not_equal(access(carried_path, F_OK), 0);
		assert_int_equal(store_get(&meanwhile, 0, 3000), KILN_MISS);
		carried_path[0] = '\0';
		store_close(&meanwhile);
		store_free(&store);
	}
}

static void remove_all(const char *directory)
{
	char command[KI_PATH_MAX + 64];

	snprintf(command, sizeof(command), "rm -f '%s'/kiln.*", directory);
	assert_int_equal(system(command), 0);
}

/* Just before the segment is opened everything is removed and begun anew. */
static int open_late(const struct ki_sys *sys, const char *path, unsigned flags,
		     unsigned mode)
{
	if (!steps && strstr(path, ".val") && (flags & KI_OPEN_WRITE)) {
		steps = 1;
		remove_all(other.directory);
		assert_int_equal(store_put(&other, 500, 10, 0), KILN_OK);
	}
	return ki_sys_posix.open(&ki_sys_posix, path, flags, mode);
}

/* Just before the record is written another lies there, known to be good. */
static ssize_t write_late(const struct ki_sys *sys, int fd,
			  const struct ki_piece *pieces, int n_pieces,
			  uint64_t offset)
{
	if (steps == 1 && n_pieces > 1) {
		steps = 2;
		assert_int_equal(store_put(&other, 501, 3000, 0), KILN_OK);
		assert_int_equal(store_get(&other, 501, 3000), KILN_OK);
	}
	return ki_sys_posix.pwritev(&ki_sys_posix, fd, pieces, n_pieces,
				    offset);
}

/* S21: a store that was removed and made again shares no file with writers
   of the old one that have not noticed yet. */
static void a_late_writer_meets_no_file_of_a_newer_store(void **state)
{
	static const uint32_t ways[] = { 0, KILN_OPEN_GUEST };
	size_t i;

	for (i = 0; i < 2; i++) {
		struct store late = store_new(8 << 20, 0);
		struct ki_sys sys = ki_sys_posix;

		other = store_beside(&late, 0);
		other.directory = late.directory;
		assert_int_equal(store_put(&late, 1, 1000, 0), KILN_OK);
		store_close(&late);
		sys.open = open_late;
		sys.pwritev = write_late;
		late.options.sys = &sys;
		late.options.flags = ways[i];
		store_open(&late);
		steps = 0;
		assert_int_equal(store_put(&late, 2, 100, 0), KILN_OK);
		assert_int_equal(steps, 2);
		assert_int_equal(store_get(&other, 501, 3000), KILN_OK);
		assert_int_equal(store_get(&other, 500, 10), KILN_OK);
		assert_int_equal(store_get(&late, 2, 100), KILN_OK);
		other.directory = NULL;
		store_free(&other);
		store_free(&late);
	}
}

/* ---- Numbers -------------------------------------------------------------- */

static void segment_numbers_cross_every_border(void **state)
{
	static const uint32_t borders[] = { 1u << 17, 1u << 18, 3u << 17, 0 };
	size_t i;
	unsigned n;

	for (i = 0; i < sizeof(borders) / sizeof(borders[0]); i++) {
		struct store store = store_new(1 << 20, 0);
		struct log_header *header = header_of(&store);

		header->min_live = log_number_word(borders[i] - 20);
		header->next_number = log_number_word(borders[i] - 20);
		header->tail = 0;
		for (n = 0; n < 800; n++) {
			assert_int_equal(store_put(&store, n, 3000, 0),
					 KILN_OK);
			assert_int_equal(store_get(&store, 0, 3000), KILN_OK);
		}
		assert_true(log_is_before(borders[i] + 40,
					  log_tail_segment(header->tail)));
		assert_true(count_found(&store, 0, 800) > 150);
		store_free(&store);
	}
}

/* Words that outlived 2^18 numbers mean other segments, and no other bytes. */
static void old_words_find_nothing(void **state)
{
	struct store store = store_new(1 << 20, 0);
	struct log_header *header = header_of(&store);
	unsigned n;

	for (n = 0; n < 100; n++)
		assert_int_equal(store_put(&store, n, 3000, 0), KILN_OK);
	header->min_live =
		log_number_word((uint32_t)header->min_live + (1u << 18));
	header->next_number = header->min_live;
	header->tail = 0;
	assert_int_equal(count_found(&store, 0, 100), 0);
	for (n = 0; n < 100; n++)
		assert_int_equal(store_put(&store, n, 2000, 0), KILN_OK);
	for (n = 90; n < 100; n++)
		assert_int_equal(store_get(&store, n, 2000), KILN_OK);
	store_free(&store);
}

/* ---- Left behind -------------------------------------------------------------- */

static void another_boot_begins_a_new_segment(void **state)
{
	struct store store = store_new(8 << 20, 0);
	uint32_t before;

	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	before = log_tail_segment(header_of(&store)->tail);
	header_of(&store)->boot_id[0] ^= 1;
	store_reopen(&store);
	assert_int_equal(store_get(&store, 1, 100), KILN_OK);
	assert_int_equal(store_put(&store, 2, 100, 0), KILN_OK);
	assert_true(log_is_before(before,
				  log_tail_segment(header_of(&store)->tail)));
	assert_int_equal(store_get(&store, 1, 100), KILN_OK);
	assert_int_equal(store_get(&store, 2, 100), KILN_OK);
	store_free(&store);
}

/* Without /proc nobody knows which boot this is: those change nothing. */
static void who_does_not_know_the_boot_goes_on_in_the_segment(void **state)
{
	struct store store = store_new(8 << 20, 0);
	struct store blind = store_beside(&store, 0);
	struct ki_log *log = (struct ki_log *)blind.tier;
	uint32_t before;
	unsigned i;

	assert_int_equal(store_put(&store, 0, 100, 0), KILN_OK);
	before = log_tail_segment(header_of(&store)->tail);
	log->boot_id[0] = log->boot_id[1] = 0;
	for (i = 1; i < 9; i++)
		assert_int_equal(store_put(i % 2 ? &blind : &store, i, 100, 0),
				 KILN_OK);
	assert_int_equal(log_tail_segment(header_of(&store)->tail), before);

	/* Also where it was first. */
	assert_int_equal(store.tier->ops->wipe(store.tier), KILN_OK);
	assert_int_equal(store_put(&blind, 0, 100, 0), KILN_OK);
	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	before = log_tail_segment(header_of(&store)->tail);
	for (i = 2; i < 9; i++)
		assert_int_equal(store_put(i % 2 ? &blind : &store, i, 100, 0),
				 KILN_OK);
	assert_int_equal(log_tail_segment(header_of(&store)->tail), before);
	store_free(&blind);
	store_free(&store);
}

static int n_open_faults;

static int open_without_boot(const struct ki_sys *sys, const char *path,
			     unsigned flags, unsigned mode)
{
	if (strstr(path, "boot_id") && n_open_faults) {
		n_open_faults--;
		return -EMFILE;
	}
	return ki_sys_posix.open(&ki_sys_posix, path, flags, mode);
}

/* For want of a descriptor: that passes. */
static void who_could_not_ask_for_the_boot_asks_again(void **state)
{
	struct store store = store_new(8 << 20, 0);
	struct ki_sys sys = ki_sys_posix;
	uint32_t before;

	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	before = log_tail_segment(header_of(&store)->tail);
	header_of(&store)->boot_id[0] ^= 1;
	store_close(&store);
	sys.open = open_without_boot;
	store.options.sys = &sys;
	store_open(&store);
	n_open_faults = 2;
	assert_int_equal(store_put(&store, 2, 100, 0), KILN_OK);
	assert_int_equal(store_put(&store, 3, 100, 0), KILN_OK);
	assert_int_equal(n_open_faults, 0);
	assert_int_equal(log_tail_segment(header_of(&store)->tail), before);
	assert_int_equal(store_put(&store, 4, 100, 0), KILN_OK);
	assert_true(log_is_before(before,
				  log_tail_segment(header_of(&store)->tail)));
	assert_int_equal(count_found(&store, 1, 5), 4);
	store_free(&store);
}

/* The index is older than the segment: its tail lies among records. */
static void a_tail_among_records_is_left(void **state)
{
	struct store store = store_new(8 << 20, 0);
	uint32_t number;
	unsigned n;

	for (n = 0; n < 10; n++)
		assert_int_equal(store_put(&store, n, 100, 0), KILN_OK);
	number = log_tail_segment(header_of(&store)->tail);
	header_of(&store)->tail = log_tail_word(number, 0);
	for (n = 10; n < 20; n++)
		assert_int_equal(store_put(&store, n, 100, 0), KILN_OK);
	assert_int_equal(count_found(&store, 0, 20), 20);
	assert_true(log_is_before(number,
				  log_tail_segment(header_of(&store)->tail)));
	store_free(&store);
}

/* Where another one wrote since: the maker of the segment looks through its
   mapping, others and guests read. */
static void nobody_writes_over_what_another_one_wrote(void **state)
{
	static const uint32_t ways[] = { 0, KILN_OPEN_COPY, KILN_OPEN_GUEST };
	unsigned i, n = 0;

	for (i = 0; i < 3; i++) {
		struct store maker = store_new(8 << 20, ways[i]);
		struct store beside = store_beside(&maker, ways[i]);
		struct store *const writers[] = { &maker, &beside, &maker };
		unsigned w;

		for (w = 0; w < 2; w++, n += 4) {
			uint64_t tail;

			assert_int_equal(store_put(writers[w], n, 100, 0),
					 KILN_OK);
			tail = header_of(&maker)->tail;
			assert_int_equal(
				store_put(writers[w + 1], n + 1, 100, 0),
				KILN_OK);
			assert_int_equal(store_get(&beside, n + 1, 100),
					 KILN_OK);
			header_of(&maker)->tail = tail;
			assert_int_equal(store_put(writers[w], n + 2, 100, 0),
					 KILN_OK);
			assert_int_equal(count_found(&beside, n, n + 3), 3);
			assert_true(log_is_before(
				log_tail_segment(tail),
				log_tail_segment(header_of(&maker)->tail)));
		}
		store_free(&beside);
		store_free(&maker);
	}
}

static uint64_t clock_offset_ns;

static uint64_t moved_coarse_ns(const struct ki_sys *sys)
{
	return ki_sys_posix.coarse_ns(&ki_sys_posix) + clock_offset_ns;
}

/* Pages that were filled with zeros and have left the memory since, as far as a
   test can have them: it is looked by pread whether they are empty. */
static void an_old_segment_is_looked_at_without_its_mapping(void **state)
{
	struct store store = store_new(8 << 20, 0);
	struct ki_sys sys = ki_sys_posix;
	char path[KI_PATH_MAX];
	uint32_t number;

	sys.coarse_ns = moved_coarse_ns;
	((struct ki_log *)store.tier)->sys = &sys;
	assert_int_equal(store_put(&store, 1, 9000, 0), KILN_OK);
	number = log_tail_segment(header_of(&store)->tail);
	assert_int_equal(
		ki_log_segment_path((struct ki_log *)store.tier, number, path),
		0);
	assert_int_equal(truncate(path, 8192), 0);
	clock_offset_ns = LOG_ZEROED_NS;
	assert_int_equal(store_put(&store, 3, 9000, 0), KILN_OK);
	clock_offset_ns = 0;
	assert_true(log_is_before(number,
				  log_tail_segment(header_of(&store)->tail)));
	assert_int_equal(store_get(&store, 3, 9000), KILN_OK);
	store_free(&store);
}

static void a_change_that_was_left_half_way_is_finished(void **state)
{
	static const struct {
		const char *name;
		uint64_t retired;
		int while_open;
		unsigned left;
	} rows[] = {
		{ "growing, found on opening", LOG_RETIRED_GROWN, 0, 10 },
		{ "growing, found in use", LOG_RETIRED_GROWN, 1, 10 },
		{ "wiping, found on opening", LOG_RETIRED_WIPED, 0, 0 },
		{ "wiping, found in use", LOG_RETIRED_WIPED, 1, 0 },
		{ "damage", 0x1234, 0, 10 },
	};
	size_t i;
	unsigned n;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct store store = store_new(8 << 20, 0);

		for (n = 0; n < 10; n++)
			assert_int_equal(store_put(&store, n, 100, 0), KILN_OK);
		header_of(&store)->retired = rows[i].retired;
		if (rows[i].retired == LOG_RETIRED_GROWN)
			header_of(&store)->tail = 0;
		if (!rows[i].while_open)
			store_reopen(&store);
		assert_int_equal(count_found(&store, 0, 10), rows[i].left);
		assert_int_equal(store_put(&store, 20, 100, 0), KILN_OK);
		assert_int_equal(store_get(&store, 20, 100), KILN_OK);
		assert_int_equal(count_found(&store, 0, 10), rows[i].left);
		store_free(&store);
	}
}

static void leftovers_go_with_the_next_roll(void **state)
{
	struct store store = store_new(1 << 20, 0);
	char *temporary = harness_path(store.directory, "kiln.tmp.1.1");
	char *foreign = harness_path(store.directory, "other.tmp.1.1");
	char *similar = harness_path(store.directory, "kiln.tmp.idx");
	char *junk = calloc(1, 200000);
	unsigned n;

	harness_write(temporary, junk, 200000);
	harness_write(foreign, junk, 100);
	harness_write(similar, junk, 100); /* of a store named kiln.tmp */
	for (n = 0; n < 50; n++)
		assert_int_equal(store_put(&store, n, 3000, 0), KILN_OK);
	assert_int_not_equal(access(temporary, F_OK), 0);
	assert_int_equal(access(foreign, F_OK), 0);
	assert_int_equal(access(similar, F_OK), 0);
	free(junk);
	free(similar);
	free(foreign);
	free(temporary);
	store_free(&store);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_writer_that_was_stopped_hurts_nobody),
		cmocka_unit_test(
			what_is_removed_while_it_is_carried_over_stays_away),
		cmocka_unit_test(a_late_writer_meets_no_file_of_a_newer_store),
		cmocka_unit_test(segment_numbers_cross_every_border),
		cmocka_unit_test(old_words_find_nothing),
		cmocka_unit_test(another_boot_begins_a_new_segment),
		cmocka_unit_test(
			who_does_not_know_the_boot_goes_on_in_the_segment),
		cmocka_unit_test(who_could_not_ask_for_the_boot_asks_again),
		cmocka_unit_test(a_tail_among_records_is_left),
		cmocka_unit_test(nobody_writes_over_what_another_one_wrote),
		cmocka_unit_test(
			an_old_segment_is_looked_at_without_its_mapping),
		cmocka_unit_test(a_change_that_was_left_half_way_is_finished),
		cmocka_unit_test(leftovers_go_with_the_next_roll),
	};

	/* Many small stores: in memory where there is such a place. */
	if (!access("/dev/shm", W_OK))
		setenv("TMPDIR", "/dev/shm", 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
