/* SPDX-License-Identifier: MIT */

/*
 * What happens at the edges: full buckets, the smallest bound, words and records
 * that no writer leaves.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"

#include "store/log/log_test.h"

static struct log_index *index_of(struct store *store)
{
	return store_index(store);
}

/* ---- Full buckets ------------------------------------------------------ */

#define N_WORDS (2 * LOG_WORDS)

/* The slots of both buckets of a key. */
static void slots_of(struct store *store, unsigned number,
		     uint64_t out_slots[N_WORDS])
{
	struct kiln_key *key = test_key(number);
	uint64_t first[2];
	unsigned i;

	ki_log_slots_of(index_of(store), key->digest_low, key->digest_high,
			first);
	for (i = 0; i < N_WORDS; i++)
		out_slots[i] = first[i / LOG_WORDS] + i % LOG_WORDS;
	kiln_key_free(key);
}

/* A word that is none of the key's, in the segment so far from the oldest. */
static uint64_t strange_word(struct store *store, unsigned number, int distance)
{
	struct kiln_key *key = test_key(number);
	uint16_t tag = ki_log_tag_of(key->digest_low) ^ 1;

	kiln_key_free(key);
	return log_word(tag, 1,
			ki_log_min_live(index_of(store)) + (uint32_t)distance,
			7);
}

#define N_NONE N_WORDS

/* Of words in segments 1 to 16 from the oldest, in turn. */
static void the_word_goes_that_is_missed_least(void **state)
{
	static const struct {
		const char *name;
		unsigned dead;	   /* the one that is; N_NONE */
		unsigned unmarked; /* all if N_NONE */
		int all_marked;
		unsigned goes;
		unsigned n_crowded_out;
	} rows[] = {
		{ "a dead one", 9, N_NONE, 0, 9, 0 },
		{ "the oldest", N_NONE, N_NONE, 0, 5, 1 },
		{ "the one not used", N_NONE, 11, 1, 11, 1 },
		{ "the oldest used", N_NONE, N_NONE, 1, 5, 1 },
	};
	size_t i;
	unsigned j;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct store store = store_new(1 << 20, 0);
		struct log_index *index = index_of(&store);
		uint64_t slots[N_WORDS], before[N_WORDS];

		slots_of(&store, 1, slots);
		for (j = 0; j < N_WORDS; j++) {
			unsigned distance = 1 + (j + N_WORDS - 5) % N_WORDS;

			before[j] = strange_word(
				&store, 1,
				j == rows[i].dead ? -9 : (int)distance);
			index->words[slots[j]] = before[j];
			index->marks[slots[j]] =
				rows[i].all_marked && j != rows[i].unmarked;
		}
		assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
		for (j = 0; j < N_WORDS; j++)
			if ((index->words[slots[j]] != before[j]) !=
			    (j == rows[i].goes))
				fail_msg("%s: word %u", rows[i].name, j);
		assert_int_equal(index->header->n_crowded_out,
				 rows[i].n_crowded_out);
		assert_int_equal(store_get(&store, 1, 100), KILN_OK);
		store_free(&store);
	}
}

/* Or the next one to be put there would push out the one of before. */
static void where_all_were_used_all_begin_anew(void **state)
{
	struct store store = store_new(1 << 20, 0);
	struct log_index *index = index_of(&store);
	uint64_t slots[N_WORDS];
	unsigned j;

	slots_of(&store, 1, slots);
	for (j = 0; j < N_WORDS; j++) {
		index->words[slots[j]] = strange_word(&store, 1, 1);
		index->marks[slots[j]] = 1;
	}
	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	for (j = 0; j < N_WORDS; j++)
		assert_int_equal(index->marks[slots[j]], 0);
	store_free(&store);
}

static void who_may_not_evict_pushes_nobody_out(void **state)
{
	struct store store = store_new(1 << 20, KILN_OPEN_REFUSE_FULL);
	uint64_t slots[N_WORDS], word = strange_word(&store, 1, 1);
	unsigned j;

	slots_of(&store, 1, slots);
	for (j = 0; j < N_WORDS; j++)
		index_of(&store)->words[slots[j]] = word;
	assert_int_equal(store_put(&store, 1, 100, 0), KILN_E_FULL);
	for (j = 0; j < N_WORDS; j++)
		assert_int_equal(index_of(&store)->words[slots[j]], word);
	store_free(&store);
}

/* ---- The smallest bound ------------------------------------------------ */

static enum kiln_status try_bound(const char *directory, uint64_t bytes_max,
				  struct store *store)
{
	*store = (struct store){ .options = { .sys = &ki_sys_posix,
					      .directory = directory,
					      .bytes_max = bytes_max } };
	return ki_store_log_open(&store->options, &store->tier);
}

/* Index, two segments, lock and counters: found by halving. */
static void the_smallest_bound_holds_two_segments(void **state)
{
	uint64_t refused = 4096, taken = 1 << 20;
	char *directory = harness_directory();
	struct store store;
	unsigned i, n = 0;
	size_t size;

	while (taken - refused > 1) {
		uint64_t middle = refused + (taken - refused) / 2;
		enum kiln_status status = try_bound(directory, middle, &store);

		assert_true(!status || status == KILN_E_FULL);
		store_close(&store);
		harness_remove(directory);
		*(status ? &refused : &taken) = middle;
	}
	assert_int_equal(try_bound(directory, taken, &store), KILN_OK);
	assert_true(index_of(&store)->size +
			    2 * ki_log_segment_bytes_for(taken, 0) +
			    KI_COUNTERS_BYTES + KI_LOCKS_BYTES <=
		    taken);
	for (i = 0; i < 100; i++) {
		assert_int_equal(store_put(&store, i, 500, 0), KILN_OK);
		assert_int_equal(store_get(&store, i, 500), KILN_OK);
		assert_true(harness_disk_bytes(directory) <= taken);
	}
	for (i = 0; i < 100; i++)
		n += !store_get_any(&store, i, &size);
	assert_true(n > 1);

	/* The same for one that is lowered later, whose index is larger. */
	assert_int_equal(store.tier->ops->set_limit(store.tier, refused),
			 KILN_E_FULL);
	assert_int_equal(store.tier->ops->set_limit(store.tier, taken),
			 KILN_OK);
	store_close(&store);
	free(directory);
}

/* ---- What no writer leaves --------------------------------------------- */

static char *tail_path(struct store *store)
{
	char name[32];

	snprintf(name, sizeof(name), "kiln.%08x.val",
		 (unsigned)log_tail_segment(index_of(store)->header->tail));
	return harness_path(store->directory, name);
}

static void no_word_leads_to_a_tombstone(void **state)
{
	struct store store = store_new(1 << 20, 0);
	struct kiln_key *key = test_key(1);
	struct kiln_blob *blob;
	uint64_t slots[N_WORDS], tail;

	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	tail = index_of(&store)->header->tail;
	assert_int_equal(store_remove(&store, 1), KILN_OK);
	slots_of(&store, 1, slots);
	index_of(&store)->words[slots[0]] =
		log_word(ki_log_tag_of(key->digest_low), 4,
			 log_tail_segment(tail), log_tail_units(tail));
	assert_int_equal(store.tier->ops->get(store.tier, key, &blob, NULL),
			 KILN_E_FORMAT);
	kiln_key_free(key);
	store_free(&store);
}

/* Sums and all else are right, but it is not said to be a record. */
static void what_has_another_magic_is_no_record(void **state)
{
	struct store store = store_new(1 << 20, 0);
	struct log_record *record;
	char *path, *data;
	size_t size;

	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	path = tail_path(&store);
	data = harness_read(path, &size);
	record = (struct log_record *)(void *)data;
	record->magic ^= 1;
	ki_log_record_seal(record, record->segment);
	harness_write(path, data, size);
	assert_int_equal(store_get(&store, 1, 100), KILN_E_FORMAT);
	free(data);
	free(path);
	store_free(&store);
}

/* A create-only put that died before it was decided: used, by its mark, and
   still not brought along when its segment goes. */
static void tentative_words_are_not_carried_over(void **state)
{
	struct store store = store_new(1 << 20, 0);
	struct log_index *index = index_of(&store);
	uint64_t slots[N_WORDS];
	uint32_t number;
	unsigned i, n = 0;

	slots_of(&store, 1, slots);
	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	number = log_tail_segment(index->header->tail);
	for (i = 0; i < N_WORDS; i++)
		if (index->words[slots[i]]) {
			index->words[slots[i]] |= LOG_TENTATIVE;
			index->marks[slots[i]] = 1;
			n++;
		}
	assert_int_equal(n, 1);
	for (i = 100; !log_is_before(number, ki_log_min_live(index)); i++)
		assert_int_equal(store_put(&store, i, 3000, 0), KILN_OK);
	assert_int_equal(store_put(&store, 1, 50, 0), KILN_OK);
	assert_int_equal(store_get(&store, 1, 50), KILN_OK);
	store_free(&store);
}

/* ---- Two names --------------------------------------------------------- */

/* As where names can only be given by link and the writer dies before the old
   one is removed. */
static int link_only(const struct ki_sys *sys, const char *from, const char *to)
{
	return ki_sys_posix.link(&ki_sys_posix, from, to);
}

static unsigned count_shared_inodes(const struct store *store)
{
	struct log_census census;
	unsigned n = 0;
	size_t i, j;

	if (ki_log_census_take((struct ki_log *)store->tier, 0, &census))
		abort();
	for (i = 0; i < census.n_files; i++)
		for (j = 0; j < i; j++)
			n += census.files[i].inode &&
			     census.files[i].inode == census.files[j].inode;
	ki_log_census_fini(&census);
	return n;
}

static void a_spare_that_became_a_segment_is_no_spare(void **state)
{
	struct store store = store_new(1 << 20, 0);
	struct ki_sys sys = ki_sys_posix;
	unsigned i;

	store_close(&store);
	sys.rename_new = link_only;
	store.options.sys = &sys;
	store_open(&store);
	for (i = 0; i < 100; i++) {
		assert_int_equal(store_put(&store, i, 3000, 0), KILN_OK);
		assert_int_equal(count_shared_inodes(&store), 0);
	}
	for (i = 0; i < 100; i++)
		assert_int_equal(store_get(&store, i, 3000), KILN_OK);
	store_free(&store);
}

static int unlink_fails(const struct ki_sys *sys, const char *path)
{
	return -EIO;
}

/* Each put would have gone where nothing is found, until that was full. */
static void puts_go_on_where_a_tail_went_and_none_followed(void **state)
{
	struct store store = store_new(1 << 20, 0);
	struct ki_sys sys = ki_sys_posix;
	struct log_census census;
	struct ki_log *log;

	store_close(&store);
	store.options.sys = &sys;
	store_open(&store);
	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	log = (struct ki_log *)store.tier;
	assert_int_equal(ki_log_census_take(log, 1, &census), KILN_OK);
	sys.unlink = unlink_fails;
	assert_int_equal(ki_log_evict_oldest(log, index_of(&store), &census),
			 KILN_E_IO);
	sys.unlink = ki_sys_posix.unlink;
	ki_log_census_fini(&census);
	assert_int_equal(store_get(&store, 1, 100), KILN_MISS);
	assert_int_equal(store_put(&store, 2, 100, 0), KILN_OK);
	assert_int_equal(store_get(&store, 2, 100), KILN_OK);
	store_free(&store);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_word_goes_that_is_missed_least),
		cmocka_unit_test(where_all_were_used_all_begin_anew),
		cmocka_unit_test(who_may_not_evict_pushes_nobody_out),
		cmocka_unit_test(the_smallest_bound_holds_two_segments),
		cmocka_unit_test(no_word_leads_to_a_tombstone),
		cmocka_unit_test(what_has_another_magic_is_no_record),
		cmocka_unit_test(tentative_words_are_not_carried_over),
		cmocka_unit_test(a_spare_that_became_a_segment_is_no_spare),
		cmocka_unit_test(
			puts_go_on_where_a_tail_went_and_none_followed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
