/* SPDX-License-Identifier: MIT */

/*
 * Of two records of one key the later one counts, by the order that it took
 * when it was put, wherever the record lies and whoever looks.
 */

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "store/log/log_test.h"

#define KEY	  1
#define LARGE	  300000 /* a file of its own in a store of 1 MiB */
#define SMALL	  1000
#define FILLER	  3000
#define FILE_SIZE 32768

/* ---- Records laid out by hand ------------------------------------------ */

/* Values are told apart by their size. */
struct laid {
	uint32_t segment;
	uint32_t units;
	uint32_t order_segment;
	uint32_t order_units;
	uint32_t flags;
	size_t size;
};

#define RECORDS_MAX 5

static const struct {
	const char *name;
	struct laid records[RECORDS_MAX];
	size_t expected; /* 0: nothing */
} rows[] = {
	{ "a large value, then a small one that replaces it",
	  { { 7, 0, 5, 10, LOG_OWN_FILE, 300 },
	    { 5, 20, 5, 20, LOG_REPLACES, 100 } },
	  100 },
	{ "a small one, then a large one that replaces it",
	  { { 7, 0, 5, 20, LOG_OWN_FILE | LOG_REPLACES, 300 },
	    { 5, 10, 5, 10, LOG_REPLACES, 100 } },
	  300 },
	{ "a large one, removed, its file left behind",
	  { { 7, 0, 5, 10, LOG_OWN_FILE | LOG_REPLACES, 300 },
	    { 5, 20, 5, 20, LOG_TOMBSTONE, 0 } },
	  0 },
	{ "removed, then a large one",
	  { { 7, 0, 5, 20, LOG_OWN_FILE, 300 },
	    { 5, 10, 5, 10, LOG_TOMBSTONE, 0 } },
	  300 },
	{ "a large one, a small one, a large one",
	  { { 6, 0, 5, 10, LOG_OWN_FILE, 300 },
	    { 5, 20, 5, 20, LOG_REPLACES, 100 },
	    { 7, 0, 5, 30, LOG_OWN_FILE | LOG_REPLACES, 400 } },
	  400 },
	{ "two large ones, the older moved to a higher number",
	  { { 9, 0, 5, 10, LOG_OWN_FILE | LOG_REPLACES, 300 },
	    { 7, 0, 5, 20, LOG_OWN_FILE | LOG_REPLACES, 400 } },
	  400 },
	{ "a small one, copied, replaced before the copy was led to",
	  { { 5, 10, 5, 10, 0, 100 },
	    { 6, 0, 6, 0, LOG_REPLACES, 200 },
	    { 6, 40, 5, 10, LOG_COPY, 100 } },
	  200 },
	{ "the same, the first one's segment gone",
	  { { 6, 0, 6, 0, LOG_REPLACES, 200 },
	    { 6, 40, 5, 10, LOG_COPY | LOG_REPLACES, 100 } },
	  200 },
	{ "a large one, a small one that was copied since",
	  { { 7, 0, 5, 10, LOG_OWN_FILE | LOG_REPLACES, 300 },
	    { 8, 0, 5, 20, LOG_COPY | LOG_REPLACES, 100 } },
	  100 },
	{ "copied, then removed, then put by one that does not replace",
	  { { 6, 40, 5, 10, LOG_COPY, 100 },
	    { 6, 20, 6, 20, LOG_TOMBSTONE, 0 },
	    { 6, 60, 6, 60, 0, 200 } },
	  200 },
	{ "removed, and a copy of before",
	  { { 6, 20, 6, 20, LOG_TOMBSTONE, 0 },
	    { 6, 40, 5, 10, LOG_COPY, 100 } },
	  0 },
	{ "two that do not replace: the second found nothing",
	  { { 5, 10, 5, 10, 0, 100 }, { 5, 40, 5, 40, 0, 200 } },
	  200 },
	{ "one that does not replace found something, and was taken back",
	  { { 5, 10, 5, 10, LOG_REPLACES, 100 },
	    { 5, 40, 5, 40, LOG_VOID, 200 } },
	  100 },
	{ "removed where it lay, and a copy that came too late",
	  { { 5, 10, 5, 10, LOG_TOMBSTONE, 100 },
	    { 6, 40, 5, 10, LOG_COPY, 100 } },
	  0 },
	{ "only one, which was taken back",
	  { { 5, 10, 5, 10, LOG_VOID, 100 } },
	  0 },
	{ "across the end of the numbers",
	  { { 2, 0, UINT32_MAX, 10, LOG_OWN_FILE | LOG_REPLACES, 300 },
	    { 1, 20, 1, 20, LOG_REPLACES, 100 } },
	  100 },
};

static void lay(struct store *store, const struct laid *laid)
{
	struct kiln_key *key = test_key(KEY);
	uint8_t *value = test_value(KEY, laid->size);
	static uint8_t bytes[4096];
	struct log_record *record = (void *)bytes;
	char path[KI_PATH_MAX];
	FILE *file;

	memset(bytes, 0, sizeof(bytes));
	ki_log_record_init(record, key, 0, laid->size, laid->flags, 0);
	record->order = log_order(laid->order_segment, laid->order_units);
	memcpy(bytes + sizeof(*record), key->record.data, key->record.size);
	memcpy(bytes + log_value_offset(record), value, laid->size);
	record->body_sum = ki_xxh3_64_pieces(
		(struct ki_piece[]){ { key->record.data, key->record.size },
				     { value, laid->size } },
		2);
	ki_log_record_seal(record, laid->segment);
	snprintf(path, sizeof(path), "%s/kiln.%08x.val", store->directory,
		 laid->segment);
	file = fopen(path, access(path, F_OK) ? "w" : "r+");
	assert_non_null(file);
	assert_int_equal(fseek(file, (long)(laid->units * LOG_UNIT), SEEK_SET),
			 0);
	assert_int_equal(
		fwrite(bytes, (size_t)log_record_bytes(record), 1, file), 1);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(truncate(path, FILE_SIZE), 0);
	free(value);
	kiln_key_free(key);
}

static void lose_index(struct store *store)
{
	char *path = harness_path(store->directory, "kiln.idx");

	store_close(store);
	assert_int_equal(unlink(path), 0);
	store_open(store);
	free(path);
}

static void an_index_made_anew_leads_to_the_latest(void **state)
{
	size_t i, n;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct store store = store_new(1 << 20, 0);
		size_t size = 0;
		enum kiln_status status;

		for (n = 0; n < RECORDS_MAX && rows[i].records[n].segment; n++)
			lay(&store, &rows[i].records[n]);
		lose_index(&store);
		status = store_get_any(&store, KEY, &size);
		if (status != (rows[i].expected ? KILN_OK : KILN_MISS) ||
		    size != rows[i].expected)
			fail_msg("%s: %s, %zu bytes", rows[i].name,
				 kiln_status_name(status), size);
		store_free(&store);
	}
}

/* ---- Put, and their index lost ------------------------------------------ */

/* What is there before a step and not after it, as when its process was killed
   before it could unlink. */
static char kept[KI_PATH_MAX], path_of_kept[KI_PATH_MAX];

static void keep_large(struct store *store)
{
	char pattern[KI_PATH_MAX];
	glob_t found;

	snprintf(pattern, sizeof(pattern), "%s/kiln.*.val", store->directory);
	assert_int_equal(glob(pattern, 0, NULL, &found), 0);
	snprintf(path_of_kept, sizeof(path_of_kept), "%s",
		 found.gl_pathv[found.gl_pathc - 1]);
	globfree(&found);
	snprintf(kept, sizeof(kept), "%s/kept", store->directory);
	assert_int_equal(link(path_of_kept, kept), 0);
}

static void bring_back(void)
{
	assert_int_not_equal(access(path_of_kept, F_OK), 0);
	assert_int_equal(rename(kept, path_of_kept), 0);
}

static void what_replaced_a_large_value_stays(void **state)
{
	struct store store = store_new(1 << 20, 0);

	assert_int_equal(store_put(&store, 0, SMALL, 0), KILN_OK);
	assert_int_equal(store_put(&store, KEY, LARGE, 0), KILN_OK);
	keep_large(&store);
	assert_int_equal(store_put(&store, KEY, SMALL, KILN_PUT_REPLACE),
			 KILN_OK);
	bring_back();
	lose_index(&store);
	assert_int_equal(store_get(&store, KEY, SMALL), KILN_OK);
	/* And again, from what is there by then. */
	assert_int_equal(store_put(&store, KEY, LARGE + 1, KILN_PUT_REPLACE),
			 KILN_OK);
	lose_index(&store);
	assert_int_equal(store_get(&store, KEY, LARGE + 1), KILN_OK);
	store_free(&store);
}

static void a_large_value_that_was_removed_stays_away(void **state)
{
	struct store store = store_new(1 << 20, 0);

	assert_int_equal(store_put(&store, 0, SMALL, 0), KILN_OK);
	assert_int_equal(store_put(&store, KEY, LARGE, KILN_PUT_REPLACE),
			 KILN_OK);
	keep_large(&store);
	assert_int_equal(store_remove(&store, KEY), KILN_OK);
	bring_back();
	lose_index(&store);
	assert_int_equal(store_get(&store, KEY, LARGE), KILN_MISS);
	assert_int_equal(store_put(&store, KEY, LARGE + 1, 0), KILN_OK);
	lose_index(&store);
	assert_int_equal(store_get(&store, KEY, LARGE + 1), KILN_OK);
	store_free(&store);
}

/* Its tombstone needs room of which the tail has none. */
static void what_is_removed_stays_away_from_a_full_tail(void **state)
{
	struct store store = store_new(1 << 20, 0);
	struct ki_log *log = (struct ki_log *)store.tier;
	uint64_t tail;

	assert_int_equal(store_put(&store, KEY, SMALL, 0), KILN_OK);
	tail = log->index->header->tail;
	log->index->header->tail = log_tail_word(
		log_tail_segment(tail),
		(uint32_t)(ki_log_segment_bytes_for(1 << 20, 0) / LOG_UNIT));
	assert_int_equal(store_remove(&store, KEY), KILN_OK);
	lose_index(&store);
	assert_int_equal(store_get(&store, KEY, SMALL), KILN_MISS);
	store_free(&store);
}

/* Nor is there room for one while another holds byte 0. */
static void what_is_removed_stays_away_while_nothing_rolls(void **state)
{
	static const size_t sizes[] = { SMALL, LARGE };
	unsigned i;

	for (i = 0; i < 2; i++) {
		struct store store = store_new(2 << 20, 0);
		struct store holder = store_beside(&store, 0);
		struct ki_log *log = (struct ki_log *)holder.tier;
		struct ki_lock lock;

		assert_int_equal(store_put(&store, KEY, SMALL + 1, 0), KILN_OK);
		assert_int_equal(
			store_put(&store, KEY, sizes[i], KILN_PUT_REPLACE),
			KILN_OK);
		log->index->header->tail = 0;
		assert_int_equal(ki_log_structure_begin(log, &lock, 0),
				 KILN_OK);
		assert_int_equal(store_remove(&store, KEY), KILN_OK);
		ki_log_structure_end(log, &lock);
		store_close(&holder);
		lose_index(&store);
		assert_int_equal(store_get(&store, KEY, sizes[i]), KILN_MISS);
		assert_int_equal(store_put(&store, KEY, SMALL + 2, 0), KILN_OK);
		lose_index(&store);
		assert_int_equal(store_get(&store, KEY, SMALL + 2), KILN_OK);
		store_free(&store);
	}
}

static int is_failing;

static int cannot_open(const struct ki_sys *sys, const char *path,
		       unsigned flags, unsigned mode)
{
	if (is_failing && strstr(path, ".val") && (flags & KI_OPEN_WRITE))
		return -EIO;
	return ki_sys_posix.open(&ki_sys_posix, path, flags, mode);
}

static void a_removal_that_may_not_last_says_so(void **state)
{
	struct store store = store_new(2 << 20, 0);
	struct ki_sys sys = ki_sys_posix;
	struct ki_log *log;

	store_close(&store);
	sys.open = cannot_open;
	store.options.sys = &sys;
	store_open(&store);
	assert_int_equal(store_put(&store, KEY, SMALL, 0), KILN_OK);
	log = (struct ki_log *)store.tier;
	log->index->header->tail = 0;
	is_failing = 1;
	assert_int_equal(store_remove(&store, KEY), KILN_E_IO);
	assert_int_equal(store_get(&store, KEY, SMALL), KILN_MISS);
	is_failing = 0;
	store_free(&store);
}

/* ---- Two at once ---------------------------------------------------------- */

static struct store other;
static size_t other_size;
static unsigned other_flags;
static int is_armed;

/* Just before our record is written, another puts its own. */
static ssize_t overtaken(const struct ki_sys *sys, int fd,
			 const struct ki_piece *pieces, int n_pieces,
			 uint64_t offset)
{
	if (is_armed && n_pieces > 1) {
		is_armed = 0;
		assert_int_equal(
			store_put(&other, KEY, other_size, other_flags),
			KILN_OK);
	}
	return ki_sys_posix.pwritev(&ki_sys_posix, fd, pieces, n_pieces,
				    offset);
}

static const struct {
	size_t size, overtaking;
	unsigned flags; /* of the one that overtakes */
	size_t expected;
} races[] = {
	{ SMALL, SMALL + 1, KILN_PUT_REPLACE, SMALL + 1 },
	{ LARGE, SMALL + 1, KILN_PUT_REPLACE, SMALL + 1 },
	{ SMALL, LARGE + 1, KILN_PUT_REPLACE, LARGE + 1 },
	{ LARGE, LARGE + 1, KILN_PUT_REPLACE, LARGE + 1 },
	/* It found nothing, so ours cannot have come before. */
	{ SMALL, SMALL + 1, 0, SMALL },
	{ LARGE, SMALL + 1, 0, LARGE },
	{ SMALL, LARGE + 1, 0, SMALL },
};

/* Who was overtaken is replaced, and all agree on that. */
static void what_is_found_is_what_an_index_made_anew_finds(void **state)
{
	size_t i;

	for (i = 0; i < sizeof(races) / sizeof(races[0]); i++) {
		struct store store = store_new(2 << 20, 0);
		struct ki_sys sys = ki_sys_posix;

		store_close(&store);
		sys.pwritev = overtaken;
		store.options.sys = &sys;
		store_open(&store);
		other = store_beside(&store, 0);
		store_close(&other);
		other.options.sys = &ki_sys_posix;
		store_open(&other);
		assert_int_equal(store_put(&store, 0, SMALL, 0), KILN_OK);

		other_size = races[i].overtaking;
		other_flags = races[i].flags;
		is_armed = 1;
		assert_int_equal(
			store_put(&store, KEY, races[i].size, KILN_PUT_REPLACE),
			KILN_OK);
		assert_false(is_armed);
		assert_int_equal(store_get(&other, KEY, races[i].expected),
				 KILN_OK);
		store_close(&other);
		lose_index(&store);
		assert_int_equal(store_get(&store, KEY, races[i].expected),
				 KILN_OK);
		store_free(&store);
	}
}

/* ---- Two that only create ------------------------------------------------ */

static _Atomic uint64_t *hidden_slot;
static uint64_t hidden_word;

/* Just before our record is written, one that took its room before ours is
   led to. */
static ssize_t preceded(const struct ki_sys *sys, int fd,
			const struct ki_piece *pieces, int n_pieces,
			uint64_t offset)
{
	if (is_armed && n_pieces > 1) {
		is_armed = 0;
		*hidden_slot = hidden_word;
	}
	return ki_sys_posix.pwritev(&ki_sys_posix, fd, pieces, n_pieces,
				    offset);
}

static void hide_word(struct store *store)
{
	struct log_index *index = store_index(store);
	uint64_t slot = 0;

	while (!index->words[slot])
		slot++;
	hidden_slot = &index->words[slot];
	hidden_word = atomic_exchange(hidden_slot, 0);
}

/* Whichever of them took its room first. */
static void of_two_that_create_the_settled_one_is_found_anew(void **state)
{
	unsigned i;

	for (i = 0; i < 4; i++) {
		struct store store = store_new(2 << 20, 0);
		struct ki_sys sys = ki_sys_posix;

		store_close(&store);
		store.options.flags = i / 2 ? KILN_OPEN_GUEST : 0;
		sys.pwritev = i % 2 ? preceded : overtaken;
		store.options.sys = &sys;
		store_open(&store);
		other = store_beside(&store, 0);
		store_close(&other);
		other.options.sys = &ki_sys_posix;
		store_open(&other);
		other_size = SMALL + 1;
		other_flags = 0;
		if (i % 2) {
			assert_int_equal(store_put(&other, KEY, SMALL + 1, 0),
					 KILN_OK);
			hide_word(&other);
		}
		is_armed = 1;
		assert_int_equal(store_put(&store, KEY, SMALL, 0), KILN_EXISTS);
		assert_false(is_armed);
		assert_int_equal(store_get(&other, KEY, SMALL + 1), KILN_OK);
		store_close(&other);
		lose_index(&store);
		assert_int_equal(store_get(&store, KEY, SMALL + 1), KILN_OK);
		store_free(&store);
	}
}

/* ---- Carried over to behind what replaces it ------------------------------ */

static unsigned next_key;
static uint32_t place_of_ours;

/* Where its word is, and the segment that it leads to. */
static uint32_t find_place(struct store *store, uint64_t *out_slot)
{
	struct ki_log *log = (struct ki_log *)store->tier;
	_Atomic uint64_t *stripe = ki_log_enter(log);
	struct kiln_key *key = test_key(KEY);
	struct log_found found = { 0 };

	assert_int_equal(ki_log_find(log, store_index(store), key, &found),
			 KILN_OK);
	ki_log_view_close(&found.view);
	kiln_key_free(key);
	ki_log_leave(log, stripe);
	*out_slot = found.slot;
	return found.view.number;
}

static uint32_t newest_of(struct store *store)
{
	return (uint32_t)store_index(store)->header->next_number - 1;
}

static int has_segment(struct store *store, uint32_t number)
{
	char path[KI_PATH_MAX];

	assert_int_equal(
		ki_log_segment_path((struct ki_log *)store->tier, number, path),
		0);
	return !access(path, F_OK);
}

/* Our room is taken; others put until what we replace was carried over. */
static ssize_t held_up(const struct ki_sys *sys, int fd,
		       const struct ki_piece *pieces, int n_pieces,
		       uint64_t offset)
{
	if (is_armed && n_pieces > 1) {
		uint64_t slot;
		uint32_t before = find_place(&other, &slot);

		is_armed = 0;
		place_of_ours = newest_of(&other);
		while (find_place(&other, &slot) == before)
			assert_int_equal(
				store_put(&other, next_key++, FILLER, 0),
				KILN_OK);
	}
	return ki_sys_posix.pwritev(&ki_sys_posix, fd, pieces, n_pieces,
				    offset);
}

/* The copy is on its way when the word is swapped for what replaces. */
static ssize_t replaced_by_then(const struct ki_sys *sys, int fd,
				const struct ki_piece *pieces, int n_pieces,
				uint64_t offset)
{
	const struct log_record *record = pieces[0].data;

	if (is_armed && n_pieces == 1 && pieces[0].size > sizeof(*record) &&
	    record->magic == LOG_RECORD_MAGIC && (record->flags & LOG_COPY)) {
		is_armed = 0;
		*hidden_slot = hidden_word;
	}
	return ki_sys_posix.pwritev(&ki_sys_posix, fd, pieces, n_pieces,
				    offset);
}

static void a_copy_that_came_too_late_is_not_found_anew(void **state)
{
	struct store store = store_new(1 << 20, 0);
	struct ki_sys sys = ki_sys_posix;
	struct log_index *index;
	uint64_t slot, word;
	uint32_t first, second;
	size_t size = 0;

	store_close(&store);
	sys.pwritev = replaced_by_then;
	store.options.sys = &sys;
	store_open(&store);
	index = store_index(&store);
	assert_int_equal(store_put(&store, KEY, SMALL, 0), KILN_OK);
	(void)find_place(&store, &slot);
	word = index->words[slot];
	first = newest_of(&store);
	for (next_key = 100; newest_of(&store) == first; next_key++)
		assert_int_equal(store_put(&store, next_key, FILLER, 0),
				 KILN_OK);
	assert_int_equal(store_put(&store, KEY, SMALL + 1, KILN_PUT_REPLACE),
			 KILN_OK);
	second = find_place(&store, &slot);
	hidden_slot = &index->words[slot];
	hidden_word = atomic_exchange(hidden_slot, word);
	index->marks[slot] = 1;
	is_armed = 1;
	while (is_armed)
		assert_int_equal(store_put(&store, next_key++, FILLER, 0),
				 KILN_OK);
	index->marks[slot] = 0;
	while (has_segment(&store, second))
		assert_int_equal(store_put(&store, next_key++, FILLER, 0),
				 KILN_OK);
	lose_index(&store);
	assert_int_equal(store_get_any(&store, KEY, &size), KILN_MISS);
	store_free(&store);
}

static void what_replaces_does_not_go_before_what_it_replaced(void **state)
{
	static const size_t sizes[] = { SMALL + 1, LARGE };
	unsigned i;

	for (i = 0; i < 2; i++) {
		struct store store = store_new(1 << 20, 0);
		struct ki_sys sys = ki_sys_posix;
		size_t size = 0;
		uint64_t slot;
		uint32_t first;

		store_close(&store);
		sys.pwritev = held_up;
		store.options.sys = &sys;
		store_open(&store);
		other = store_beside(&store, 0);
		store_close(&other);
		other.options.sys = &ki_sys_posix;
		store_open(&other);
		assert_int_equal(store_put(&store, KEY, SMALL, 0), KILN_OK);
		assert_int_equal(store_get(&store, KEY, SMALL), KILN_OK);
		first = newest_of(&store);
		for (next_key = 100; newest_of(&store) == first; next_key++)
			assert_int_equal(store_put(&store, next_key, FILLER, 0),
					 KILN_OK);
		is_armed = 1;
		assert_int_equal(
			store_put(&store, KEY, sizes[i], KILN_PUT_REPLACE),
			KILN_OK);
		assert_false(is_armed);
		assert_int_equal(store_get(&other, KEY, sizes[i]), KILN_OK);
		(void)find_place(&other, &slot);
		store_index(&other)->marks[slot] = 0;
		while (has_segment(&other, place_of_ours))
			assert_int_equal(
				store_put(&other, next_key++, FILLER, 0),
				KILN_OK);
		store_close(&other);
		lose_index(&store);
		if (!store_get_any(&store, KEY, &size))
			assert_int_equal(size, sizes[i]);
		store_free(&store);
	}
}

/* ---- What no word leads to ------------------------------------------------ */

static char *path_of(struct store *store, uint32_t number)
{
	char name[32];

	snprintf(name, sizeof(name), "kiln.%08x.val", number);
	return harness_path(((struct ki_log *)store->tier)->directory, name);
}

/* As if nobody had written there for so long. */
static void let_rest(const char *path, time_t seconds)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT } };
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	times[1] = st.st_mtim;
	times[1].tv_sec -= seconds;
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* As a full bucket would take it. */
static void lose_word(struct store *store)
{
	struct log_index *index = store_index(store);
	uint64_t slot;

	(void)find_place(store, &slot);
	index->words[slot] = 0;
}

static void fill_segment(struct store *store)
{
	uint32_t tail = newest_of(store);

	while (newest_of(store) == tail)
		assert_int_equal(store_put(store, next_key++, FILLER, 0),
				 KILN_OK);
}

/* What says so lies in a segment in which nothing lives. */
static void gc_keeps_what_says_that_older_records_are_over(void **state)
{
	static const struct kiln_gc_options options;
	struct kiln_gc_report report;
	int is_removed;

	for (is_removed = 0; is_removed < 2; is_removed++) {
		struct store store = store_new(1 << 20, 0);
		size_t size = SMALL + 1;
		unsigned first, n;
		uint32_t middle;
		char *path;

		next_key = 100;
		assert_int_equal(store_put(&store, KEY, SMALL, 0), KILN_OK);
		fill_segment(&store);
		first = next_key;
		middle = newest_of(&store);
		if (is_removed) {
			assert_int_equal(store_remove(&store, KEY), KILN_OK);
		} else {
			assert_int_equal(store_put(&store, KEY, SMALL + 1,
						   KILN_PUT_REPLACE),
					 KILN_OK);
			lose_word(&store);
		}
		fill_segment(&store);
		fill_segment(&store);
		for (n = first - 1; n < next_key; n++)
			(void)store_remove(&store, n);
		path = path_of(&store, middle);
		let_rest(path, 7200);
		free(path);
		assert_int_equal(store.tier->ops->gc(store.tier, &options, NULL,
						     NULL, &report),
				 KILN_OK);
		lose_index(&store);
		assert_int_equal(store_get_any(&store, KEY, &size),
				 is_removed ? KILN_MISS : KILN_OK);
		assert_int_equal(size, SMALL + 1);
		store_free(&store);
	}
}

static void a_large_file_that_was_left_behind_goes(void **state)
{
	struct store store = store_new(2 << 20, 0);

	next_key = 100;
	assert_int_equal(store_put(&store, KEY, LARGE, 0), KILN_OK);
	keep_large(&store);
	assert_int_equal(store_put(&store, KEY, SMALL, KILN_PUT_REPLACE),
			 KILN_OK);
	bring_back();
	fill_segment(&store);
	assert_int_equal(access(path_of_kept, F_OK), 0);
	store_reopen(&store);
	let_rest(path_of_kept, 120);
	fill_segment(&store);
	assert_int_not_equal(access(path_of_kept, F_OK), 0);
	lose_index(&store);
	assert_int_equal(store_get(&store, KEY, SMALL), KILN_OK);
	store_free(&store);
}

static void what_a_large_one_replaced_stays_away_when_that_goes(void **state)
{
	struct store store = store_new(2 << 20, 0);
	size_t size;

	next_key = 100;
	assert_int_equal(store_put(&store, KEY, SMALL, 0), KILN_OK);
	assert_int_equal(store_put(&store, KEY, LARGE, KILN_PUT_REPLACE),
			 KILN_OK);
	keep_large(&store);
	lose_word(&store);
	store_reopen(&store);
	let_rest(path_of_kept, 120);
	fill_segment(&store);
	assert_int_not_equal(access(path_of_kept, F_OK), 0);
	lose_index(&store);
	assert_int_equal(store_get_any(&store, KEY, &size), KILN_MISS);
	store_free(&store);
}

/* Its file is written; others wait for so long that it is taken for one that
   was left behind. */
static ssize_t held_up_since(const struct ki_sys *sys, int fd,
			     const struct ki_piece *pieces, int n_pieces,
			     uint64_t offset)
{
	ssize_t n = ki_sys_posix.pwritev(&ki_sys_posix, fd, pieces, n_pieces,
					 offset);

	if (is_armed && n_pieces > 1) {
		char *path = path_of(&other, newest_of(&other));

		is_armed = 0;
		let_rest(path, 120);
		fill_segment(&other);
		assert_int_not_equal(access(path, F_OK), 0);
		free(path);
	}
	return n;
}

static void a_put_whose_file_was_taken_writes_anew(void **state)
{
	static const unsigned flags[] = { 0, KILN_PUT_REPLACE };
	unsigned i;

	for (i = 0; i < 2; i++) {
		struct store store = store_new(2 << 20, 0);
		struct ki_sys sys = ki_sys_posix;

		next_key = 100;
		store_close(&store);
		sys.pwritev = held_up_since;
		store.options.sys = &sys;
		store_open(&store);
		other = store_beside(&store, 0);
		store_close(&other);
		other.options.sys = &ki_sys_posix;
		store_open(&other);
		is_armed = 1;
		assert_int_equal(store_put(&store, KEY, LARGE, flags[i]),
				 KILN_OK);
		assert_false(is_armed);
		assert_int_equal(store_get(&other, KEY, LARGE), KILN_OK);
		store_close(&other);
		lose_index(&store);
		assert_int_equal(store_get(&store, KEY, LARGE), KILN_OK);
		store_free(&store);
	}
}

/* A put brings its word out when its file was already taken for one that was
   left behind, and finds it there. */
static int publish_meanwhile(const struct ki_sys *sys, const char *path,
			     unsigned flags, unsigned mode)
{
	if (is_armed && !strcmp(path, path_of_kept)) {
		is_armed = 0;
		*hidden_slot = hidden_word;
	}
	return ki_sys_posix.open(&ki_sys_posix, path, flags, mode);
}

static void a_large_file_that_is_led_to_meanwhile_stays(void **state)
{
	struct store store = store_new(2 << 20, 0);
	struct ki_sys sys = ki_sys_posix;
	uint64_t slot;
	size_t size;

	next_key = 100;
	assert_int_equal(store_put(&store, KEY, SMALL, 0), KILN_OK);
	assert_int_equal(store_put(&store, KEY, LARGE, KILN_PUT_REPLACE),
			 KILN_OK);
	(void)find_place(&store, &slot);
	snprintf(path_of_kept, sizeof(path_of_kept), "%s/kiln.%08x.val",
		 store.directory, newest_of(&store));
	store_close(&store);
	sys.open = publish_meanwhile;
	store.options.sys = &sys;
	store_open(&store);
	fill_segment(&store);
	let_rest(path_of_kept, 120);
	store_reopen(&store);
	hidden_slot = &store_index(&store)->words[slot];
	hidden_word = atomic_exchange(hidden_slot, 0);
	is_armed = 1;
	fill_segment(&store);
	assert_false(is_armed);
	assert_int_equal(access(path_of_kept, F_OK), 0);
	assert_int_equal(store_get(&store, KEY, LARGE), KILN_OK);
	lose_index(&store);
	assert_int_equal(store_get_any(&store, KEY, &size), KILN_OK);
	assert_int_equal(size, LARGE);
	store_free(&store);
}

/* The tail went back to where records are. */
static void no_two_records_have_one_place_in_the_order(void **state)
{
	struct store store = store_new(2 << 20, 0);
	struct log_header *header;

	assert_int_equal(store_put(&store, KEY, SMALL, 0), KILN_OK);
	store_reopen(&store);
	header = store_index(&store)->header;
	header->tail = log_tail_word(log_tail_segment(header->tail), 0);
	assert_int_equal(store_put(&store, KEY, LARGE, KILN_PUT_REPLACE),
			 KILN_OK);
	assert_int_equal(store_get(&store, KEY, LARGE), KILN_OK);
	assert_int_equal(store_put(&store, KEY, SMALL + 1, KILN_PUT_REPLACE),
			 KILN_OK);
	lose_index(&store);
	assert_int_equal(store_get(&store, KEY, SMALL + 1), KILN_OK);
	store_free(&store);
}

/* ---- Removed while the index was made anew --------------------------------- */

/* The words are cleared, the tombstone is about to be written. */
static uint64_t made_anew_by_then(const struct ki_sys *sys)
{
	if (is_armed) {
		struct ki_log *log = (struct ki_log *)other.tier;

		is_armed = 0;
		memset(&log->index->header->fixed, 0, sizeof(struct log_fixed));
		memset(&log->index->header->fixed_again, 0,
		       sizeof(struct log_fixed));
		store_close(&other);
		store_open(&other);
		assert_int_equal(store_get(&other, KEY, SMALL), KILN_OK);
	}
	return ki_sys_posix.realtime_ns(&ki_sys_posix);
}

static void what_was_removed_while_the_index_was_made_stays_away(void **state)
{
	struct store store = store_new(1 << 20, 0);
	struct ki_sys sys = ki_sys_posix;
	size_t size;

	store_close(&store);
	sys.realtime_ns = made_anew_by_then;
	store.options.sys = &sys;
	store_open(&store);
	other = store_beside(&store, 0);
	store_close(&other);
	other.options.sys = &ki_sys_posix;
	store_open(&other);
	assert_int_equal(store_put(&other, KEY + 1, SMALL, 0), KILN_OK);
	assert_int_equal(store_put(&store, KEY, SMALL, 0), KILN_OK);
	is_armed = 1;
	assert_int_equal(store_remove(&store, KEY), KILN_OK);
	assert_false(is_armed);
	assert_int_equal(store_get_any(&store, KEY, &size), KILN_MISS);
	assert_int_equal(store_get_any(&other, KEY, &size), KILN_MISS);
	store_close(&other);
	store_free(&store);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_index_made_anew_leads_to_the_latest),
		cmocka_unit_test(what_replaced_a_large_value_stays),
		cmocka_unit_test(a_large_value_that_was_removed_stays_away),
		cmocka_unit_test(what_is_removed_stays_away_from_a_full_tail),
		cmocka_unit_test(
			what_is_removed_stays_away_while_nothing_rolls),
		cmocka_unit_test(a_removal_that_may_not_last_says_so),
		cmocka_unit_test(
			what_is_found_is_what_an_index_made_anew_finds),
		cmocka_unit_test(
			of_two_that_create_the_settled_one_is_found_anew),
		cmocka_unit_test(
			what_replaces_does_not_go_before_what_it_replaced),
		cmocka_unit_test(a_copy_that_came_too_late_is_not_found_anew),
		cmocka_unit_test(
			gc_keeps_what_says_that_older_records_are_over),
		cmocka_unit_test(a_large_file_that_was_left_behind_goes),
		cmocka_unit_test(
			what_a_large_one_replaced_stays_away_when_that_goes),
		cmocka_unit_test(a_put_whose_file_was_taken_writes_anew),
		cmocka_unit_test(a_large_file_that_is_led_to_meanwhile_stays),
		cmocka_unit_test(no_two_records_have_one_place_in_the_order),
		cmocka_unit_test(
			what_was_removed_while_the_index_was_made_stays_away),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
