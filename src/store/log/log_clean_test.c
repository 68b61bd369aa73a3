/* SPDX-License-Identifier: MIT */

/* What gc may let go of besides the oldest segments. */

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "store/log/log_test.h"

#define SIZE 1000

static struct kiln_gc_report cleaned(struct store *store)
{
	static const struct kiln_gc_options options;
	struct kiln_gc_report report;

	assert_int_equal(store->tier->ops->gc(store->tier, &options, NULL, NULL,
					      &report),
			 KILN_OK);
	return report;
}

static uint32_t tail_of(struct store *store)
{
	struct ki_log *log = (struct ki_log *)store->tier;

	return log_tail_segment(log->index->header->tail);
}

static char *segment_of(struct store *store, uint32_t number)
{
	char name[32];

	snprintf(name, sizeof(name), "kiln.%08x.val", number);
	return harness_path(store->directory, name);
}

/* As if nobody had written there for so long. */
static void let_rest(struct store *store, uint32_t number, time_t seconds)
{
	char *path = segment_of(store, number);
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT } };
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	times[1] = st.st_mtim;
	times[1].tv_sec -= seconds;
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	free(path);
}

static int is_there(struct store *store, uint32_t number)
{
	char *path = segment_of(store, number);
	int there = !access(path, F_OK);

	free(path);
	return there;
}

/* Put new keys until the tail is in another segment; the next key. */
static unsigned fill_segment(struct store *store, unsigned n)
{
	uint32_t tail = tail_of(store);

	while (tail_of(store) == tail)
		assert_int_equal(store_put(store, n++, SIZE, 0), KILN_OK);
	return n;
}

static void segments_without_life_go_if_none_before_them_has_any(void **state)
{
	struct store store = store_new(16 << 20, 0);
	unsigned second, third, end, n;
	uint32_t middle, live;

	assert_int_equal(store_put(&store, 0, SIZE, 0), KILN_OK);
	second = fill_segment(&store, 1);
	middle = tail_of(&store);
	third = fill_segment(&store, second);
	live = tail_of(&store);
	end = fill_segment(&store, third);
	/* The last put of each loop went to the next segment. */
	for (n = second; n + 1 < third; n++)
		assert_int_equal(store_remove(&store, n), KILN_OK);
	assert_int_equal(store_remove(&store, second - 1), KILN_OK);

	let_rest(&store, middle, 7000);
	let_rest(&store, live, 7000);
	assert_int_equal(cleaned(&store).n_segments, 0);
	assert_true(is_there(&store, middle));
	for (n = 0; n + 1 < second; n++)
		assert_int_equal(store_remove(&store, n), KILN_OK);
	assert_int_equal(cleaned(&store).n_segments, 2);
	assert_false(is_there(&store, middle));
	assert_true(is_there(&store, live));

	store_reopen(&store);
	for (n = second; n + 1 < third; n++)
		assert_int_equal(store_get(&store, n, SIZE), KILN_MISS);
	for (n = third; n < end; n++)
		assert_int_equal(store_get(&store, n, SIZE), KILN_OK);
	for (n = second; n < third; n++)
		assert_int_equal(store_put(&store, n, SIZE, KILN_PUT_REPLACE),
				 KILN_OK);
	for (n = second; n < third; n++)
		assert_int_equal(store_get(&store, n, SIZE), KILN_OK);
	store_free(&store);
}

static void the_segment_of_the_highest_number_stays(void **state)
{
	struct store store = store_new(16 << 20, 0);
	uint32_t large;

	assert_int_equal(store_put(&store, 1, SIZE, 0), KILN_OK);
	large = tail_of(&store) + 1;
	assert_int_equal(store_put(&store, 2, 3 << 20, 0), KILN_OK);
	assert_true(is_there(&store, large));
	{
		/* The word goes, as a full bucket would take it. */
		struct ki_log *log = (struct ki_log *)store.tier;
		struct log_index *index = log->index;
		uint64_t slot, word;

		for (slot = 0; slot < index->n_buckets * LOG_WORDS; slot++) {
			word = index->words[slot];
			if (word &&
			    log_word_segment(word, ki_log_min_live(index)) ==
				    large)
				assert_true(
					ki_log_word_swap(index, slot, word, 0));
		}
	}
	let_rest(&store, large, 7200);
	assert_int_equal(cleaned(&store).n_segments, 0);
	assert_true(is_there(&store, large));
	assert_int_equal(store_put(&store, 3, 3 << 20, 0), KILN_OK);
	assert_int_equal(cleaned(&store).n_segments, 1);
	assert_false(is_there(&store, large));
	assert_int_equal(store_get(&store, 3, 3 << 20), KILN_OK);
	store_free(&store);
}

/* One removes large values over and over, and no look takes that for damage. */
static int remove_or_verify(unsigned index, void *arg)
{
	struct store *store = arg;
	struct kiln_verify_report report;
	unsigned i;

	for (i = 0; i < 40 && index; i++)
		if (store_put(store, 7, 2 << 20, 0) || store_remove(store, 7))
			return 1;
	for (i = 0; i < 40 && !index; i++)
		if (store->tier->ops->verify(store->tier, 0, NULL, NULL,
					     &report) ||
		    report.n_damaged)
			return 1;
	return 0;
}

static void a_removal_on_its_way_is_no_damage(void **state)
{
	struct store store = store_new(32 << 20, 0);

	assert_int_equal(harness_threads(2, remove_or_verify, &store), 0);
	store_free(&store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			segments_without_life_go_if_none_before_them_has_any),
		cmocka_unit_test(the_segment_of_the_highest_number_stays),
		cmocka_unit_test(a_removal_on_its_way_is_no_damage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
