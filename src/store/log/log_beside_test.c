/* SPDX-License-Identifier: MIT */

/*
 * A put that is held up between two of its steps while others remove its key:
 * what was removed does not come back.
 */

#include <unistd.h>

#include "harness/harness.h"

#include "store/log/log_test.h"

#define KEY    1
#define SMALL  1000
#define FILLER 3000

static struct store other;
static unsigned next_key;

/* ---- Where it is held up ------------------------------------------------ */

/* A word of another key with this one's tag: each look at the buckets reads its
   record, at this place of its file. */
static uint64_t looked_at;
static unsigned n_looks, look_to_stop_at;

struct row {
	const char *name;
	unsigned flags; /* of the put that is held up */
	unsigned look;	/* the one in which it is, from 0 */
	int is_after;	/* the read comes after its own word's */
	int replaces;	/* an entry is there before */
	void (*others)(void);
	enum kiln_status answer;
	size_t found; /* afterwards; 0: nothing */
};

static const struct row *row;

static ssize_t held_up(const struct ki_sys *sys, int fd, void *data,
		       size_t size, uint64_t offset)
{
	if (offset == looked_at && n_looks++ == look_to_stop_at)
		row->others();
	return ki_sys_posix.pread(&ki_sys_posix, fd, data, size, offset);
}

/* The first place of the first bucket is looked at before what a put chooses,
   which is in the emptier one; the last of the second after it. */
static void add_a_word_to_look_at(struct store *store, int is_after)
{
	struct log_index *index = store_index(store);
	struct kiln_key *key = test_key(KEY);
	uint64_t slots[2], slot = 0, word;

	assert_int_equal(store_put(store, 50, SMALL, 0), KILN_OK);
	assert_int_equal(store_put(store, 51, SMALL, 0), KILN_OK);
	while (!log_word_units(index->words[slot]))
		slot++;
	word = index->words[slot];
	looked_at = log_word_units(word) * (uint64_t)LOG_UNIT;
	word &= ~((uint64_t)LOG_TAG_MASK << 48);
	word |= (uint64_t)ki_log_tag_of(key->digest_low) << 48;
	ki_log_slots_of(index, key->digest_low, key->digest_high, slots);
	slot = is_after ? slots[1] + LOG_WORDS - 1 : slots[0];
	assert_int_equal(index->words[slot], 0);
	index->words[slot] = word;
	kiln_key_free(key);
}

/* ---- What others do meanwhile ------------------------------------------- */

static void remove_it(void)
{
	assert_int_equal(store_remove(&other, KEY), KILN_OK);
}

static void settle_and_remove(void)
{
	assert_int_equal(store_put(&other, KEY, SMALL + 1, 0), KILN_EXISTS);
	assert_int_equal(store_get(&other, KEY, SMALL), KILN_OK);
	remove_it();
}

static void grow(void)
{
	struct log_index *index = store_index(&other);
	uint64_t n_buckets = index->n_buckets;

	index->header->n_entries = n_buckets * LOG_WORDS;
	assert_int_equal(store_put(&other, next_key++, SMALL, 0), KILN_OK);
	index = store_index(&other);
	assert_int_equal(index->n_buckets, 2 * n_buckets);
}

static void remove_and_grow(void)
{
	assert_int_equal(store_get(&other, KEY, SMALL), KILN_OK);
	remove_it();
	grow();
}

static void replace_remove_and_grow(void)
{
	assert_int_equal(store_put(&other, KEY, SMALL + 1, KILN_PUT_REPLACE),
			 KILN_OK);
	remove_it();
	grow();
}

static void remove_create_and_grow(void)
{
	remove_it();
	assert_int_equal(store_put(&other, KEY, SMALL + 1, 0), KILN_OK);
	grow();
}

/* Of one that was put later and is not decided yet. */
static void remove_grow_and_begin(void)
{
	struct log_index *index;
	uint64_t slot = 0;

	remove_it();
	grow();
	assert_int_equal(store_put(&other, KEY, SMALL + 1, 0), KILN_OK);
	assert_int_equal(store_get(&other, KEY, SMALL + 1), KILN_OK);
	index = store_index(&other);
	while (!index->marks[slot])
		slot++;
	index->words[slot] |= LOG_TENTATIVE;
}

static void grow_and_remove(void)
{
	grow();
	remove_it();
}

/* Where the record of the tentative word lies. */
static char marked[KI_PATH_MAX];
static uint64_t marked_at;

static void note_record(void)
{
	struct log_index *index = store_index(&other);
	uint64_t slot = 0;

	while (!log_word_is_tentative(index->words[slot]))
		slot++;
	marked_at = log_word_units(index->words[slot]) * (uint64_t)LOG_UNIT;
	assert_int_equal(
		ki_log_segment_path((struct ki_log *)other.tier,
				    log_word_segment(index->words[slot],
						     ki_log_min_live(index)),
				    marked),
		0);
}

static int is_tombstone(void)
{
	struct log_record record;
	FILE *file = fopen(marked, "r");

	assert_non_null(file);
	assert_int_equal(fseek(file, (long)marked_at, SEEK_SET), 0);
	assert_int_equal(fread(&record, sizeof(record), 1, file), 1);
	assert_int_equal(fclose(file), 0);
	return !!(record.flags & LOG_TOMBSTONE);
}

/* There is no room for a tombstone, nor for a roll. */
static void mark_and_create(void)
{
	struct store holder = store_beside(&other, 0);
	struct ki_log *log = (struct ki_log *)holder.tier;
	struct ki_lock lock;
	uint64_t tail;

	note_record();
	tail = atomic_exchange(&store_index(&other)->header->tail, 0);
	assert_int_equal(ki_log_structure_begin(log, &lock, 0), KILN_OK);
	remove_it();
	ki_log_structure_end(log, &lock);
	store_close(&holder);
	assert_true(is_tombstone());
	store_index(&other)->header->tail = tail;
	assert_int_equal(store_put(&other, KEY, SMALL + 1, 0), KILN_OK);
}

static uint32_t newest(void)
{
	return (uint32_t)store_index(&other)->header->next_number - 1;
}

static void remove_and_evict(void)
{
	struct ki_log *log = (struct ki_log *)other.tier;
	char path[KI_PATH_MAX];

	assert_int_equal(ki_log_segment_path(log, newest(), path), 0);
	remove_it();
	while (!access(path, F_OK))
		assert_int_equal(store_put(&other, next_key++, FILLER, 0),
				 KILN_OK);
}

/* ---- Held up -------------------------------------------------------------- */

static const struct row rows[] = {
	{ "a create-only put's tentative word is removed", 0, 2, 0, 0,
	  remove_it, KILN_OK, 0 },
	{ "it is settled by another, and removed", 0, 2, 0, 0,
	  settle_and_remove, KILN_OK, 0 },
	{ "removed where it lay, and created by another", 0, 2, 0, 0,
	  mark_and_create, KILN_EXISTS, SMALL + 1 },
	{ "a replacing put's word is removed", KILN_PUT_REPLACE, 1, 0, 0,
	  remove_it, KILN_OK, 0 },
	{ "the same, and its segment goes", KILN_PUT_REPLACE, 1, 1, 0,
	  remove_and_evict, KILN_OK, 0 },
	{ "removed, and the index grows", KILN_PUT_REPLACE, 1, 0, 0,
	  remove_and_grow, KILN_OK, 0 },
	{ "replaced, removed, and the index grows", KILN_PUT_REPLACE, 1, 0, 0,
	  replace_remove_and_grow, KILN_OK, 0 },
	{ "removed, created by another, and the index grows", KILN_PUT_REPLACE,
	  1, 0, 0, remove_create_and_grow, KILN_OK, SMALL + 1 },
	{ "removed, the index grows, another is being created",
	  KILN_PUT_REPLACE, 1, 0, 0, remove_grow_and_begin, KILN_OK, 0 },
	{ "the index grows, and then it is removed there", KILN_PUT_REPLACE, 1,
	  1, 0, grow_and_remove, KILN_E_TIMEOUT, 0 },
	{ "the same of a create-only put", 0, 2, 1, 0, grow_and_remove,
	  KILN_E_TIMEOUT, 0 },
	{ "the index grows, nothing is removed", KILN_PUT_REPLACE, 1, 1, 0,
	  grow, KILN_OK, SMALL },
	{ "the same of a create-only put", 0, 2, 1, 0, grow, KILN_OK, SMALL },
	{ "the index grows before the word is out", KILN_PUT_REPLACE, 0, 1, 0,
	  grow, KILN_OK, SMALL },
	{ "the same of one that takes another's place", KILN_PUT_REPLACE, 0, 1,
	  1, grow, KILN_OK, SMALL },
	{ "what it takes the place of is removed", KILN_PUT_REPLACE, 0, 1, 1,
	  grow_and_remove, KILN_E_TIMEOUT, 0 },
	{ "the index grows before a create-only put's is", 0, 1, 1, 0, grow,
	  KILN_OK, SMALL },
};

static void what_was_removed_beside_a_put_stays_away(void **state)
{
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct store store = store_new(1 << 20, 0);
		struct ki_sys sys = ki_sys_posix;
		enum kiln_status answer, found, found_by_other;
		size_t size = 0, size_of_other = 0;

		row = &rows[i];
		store_close(&store);
		looked_at = UINT64_MAX;
		sys.pread = held_up;
		store.options.sys = &sys;
		store.options.flags = KILN_OPEN_COPY;
		store_open(&store);
		other = store_beside(&store, 0);
		store_close(&other);
		other.options.sys = &ki_sys_posix;
		store_open(&other);
		add_a_word_to_look_at(&other, row->is_after);
		if (row->replaces)
			assert_int_equal(store_put(&other, KEY, SMALL + 2, 0),
					 KILN_OK);
		next_key = 100;
		marked_at = 0;
		n_looks = 0;
		look_to_stop_at = row->look;
		answer = store_put(&store, KEY, SMALL, row->flags);
		if (n_looks <= look_to_stop_at)
			fail_msg("%s: it was not held up", row->name);
		n_looks = look_to_stop_at + 1;
		found = store_get_any(&store, KEY, &size);
		found_by_other = store_get_any(&other, KEY, &size_of_other);
		if (answer != row->answer ||
		    found != (row->found ? KILN_OK : KILN_MISS) ||
		    found_by_other != found || size != row->found ||
		    size_of_other != row->found)
			fail_msg(
				"%s: %s, then %s, %zu bytes, and %s, %zu bytes",
				row->name, kiln_status_name(answer),
				kiln_status_name(found), size,
				kiln_status_name(found_by_other),
				size_of_other);
		assert_true(!marked_at || is_tombstone());
		store_close(&other);
		store_free(&store);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_removed_beside_a_put_stays_away),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
