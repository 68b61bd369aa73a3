/* SPDX-License-Identifier: MIT */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "store/log/log_test.h"

/* ---- The bound, looked at after every system call that can add to it ---- */

static const char *watched;
static uint64_t most_seen;

static uint64_t directory_bytes(const char *path)
{
	uint64_t inodes[2048], bytes = 0;
	size_t n = 0, i;
	DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		struct stat st;

		if (fstatat(dirfd(dir), entry->d_name, &st,
			    AT_SYMLINK_NOFOLLOW) ||
		    !S_ISREG(st.st_mode))
			continue;
		for (i = 0; i < n && inodes[i] != st.st_ino; i++)
			;
		if (i < n)
			continue;
		inodes[n++] = st.st_ino;
		bytes += (uint64_t)(st.st_size > st.st_blocks * 512
					    ? st.st_size
					    : st.st_blocks * 512);
	}
	if (dir)
		closedir(dir);
	return bytes;
}

static void look(void)
{
	uint64_t bytes = directory_bytes(watched);

	if (bytes > most_seen)
		most_seen = bytes;
}

static int watched_fallocate(const struct ki_sys *sys, int fd, uint64_t offset,
			     uint64_t size)
{
	int err = ki_sys_posix.fallocate(&ki_sys_posix, fd, offset, size);

	look();
	return err;
}

static int watched_link(const struct ki_sys *sys, const char *from,
			const char *to)
{
	int err = ki_sys_posix.link(&ki_sys_posix, from, to);

	look();
	return err;
}

static int watched_rename_new(const struct ki_sys *sys, const char *from,
			      const char *to)
{
	int err = ki_sys_posix.rename_new(&ki_sys_posix, from, to);

	look();
	return err;
}

static ssize_t watched_pwritev(const struct ki_sys *sys, int fd,
			       const struct ki_piece *pieces, int n_pieces,
			       uint64_t offset)
{
	ssize_t n = ki_sys_posix.pwritev(&ki_sys_posix, fd, pieces, n_pieces,
					 offset);

	if (offset == 0)
		look();
	return n;
}

static struct ki_sys watching(const char *directory)
{
	struct ki_sys sys = ki_sys_posix;

	sys.fallocate = watched_fallocate;
	sys.link = watched_link;
	sys.rename_new = watched_rename_new;
	sys.pwritev = watched_pwritev;
	watched = directory;
	most_seen = 0;
	return sys;
}

static void the_bound_is_never_exceeded(void **state)
{
	static const struct {
		uint64_t bytes_max;
		size_t size_max;
		uint64_t fill;
		enum kiln_eviction eviction;
	} rows[] = {
		{ 1 << 20, 3000, 5 << 20, KILN_EVICT_BY_USE },
		{ 1 << 20, 200000, 4 << 20, KILN_EVICT_BY_USE },
		{ 4 << 20, 40000, 12 << 20, KILN_EVICT_BY_USE },
		{ 24 << 20, 3 << 20, 48 << 20, KILN_EVICT_BY_USE },
		{ 1 << 20, 3000, 5 << 20, KILN_EVICT_BY_COST },
		{ 1 << 20, 200000, 4 << 20, KILN_EVICT_BY_COST },
		{ 4 << 20, 40000, 12 << 20, KILN_EVICT_BY_COST },
		{ 24 << 20, 3 << 20, 48 << 20, KILN_EVICT_BY_COST },
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct store store = { .directory = harness_directory() };
		struct ki_sys sys = watching(store.directory);
		uint64_t random = 7, bytes = 0;
		unsigned number = 0, found = 0, n;
		size_t size;

		store.options = (struct ki_store_options){
			.sys = &sys,
			.directory = store.directory,
			.bytes_max = rows[i].bytes_max,
		};
		store_open(&store);
		assert_int_equal(store.tier->ops->set_eviction(
					 store.tier, rows[i].eviction),
				 KILN_OK);
		while (bytes < rows[i].fill) {
			/* Small ones often, large ones sometimes. */
			size = (size_t)(harness_random(&random) %
					rows[i].size_max);
			if (harness_random(&random) % 4)
				size /= 20;
			assert_int_equal(store_put(&store, number, size, 0),
					 KILN_OK);
			assert_int_equal(store_get(&store, number, size),
					 KILN_OK);
			number++;
			bytes += size + 200;
		}
		for (n = 0; n < number; n++)
			found += store_get_any(&store, n, &size) == KILN_OK;
		assert_true(most_seen <= rows[i].bytes_max);
		assert_true(most_seen > rows[i].bytes_max / 2);
		assert_true(found > number / 20);
		assert_true(found < number);
		store_free(&store);
	}
}

static void an_index_made_anew_keeps_the_bound(void **state)
{
	static const uint64_t bounds[] = { 3 << 20, 4 << 20 };
	static const uint64_t deltas[KILN_N_COUNTERS] = { 1 };
	static const char junk[LOG_HEADER_BYTES];
	size_t i;

	for (i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
		struct store store = store_new(bounds[i], 0);
		char *path = harness_path(store.directory, "kiln.idx");
		struct ki_sys sys = watching(store.directory);
		unsigned n;
		int fd;

		store.tier->ops->count(store.tier, deltas);
		for (n = 0; n * 7000 < bounds[i] * 2; n++)
			assert_int_equal(store_put(&store, n, 7000, 0),
					 KILN_OK);
		store_close(&store);
		fd = open(path, O_RDWR);
		assert_int_equal(pwrite(fd, junk, sizeof(junk), 0),
				 sizeof(junk));
		close(fd);
		store.options.sys = &sys;
		store_open(&store);
		assert_int_equal(store_get(&store, n - 1, 7000), KILN_OK);
		assert_int_equal(store_put(&store, n, 7000, 0), KILN_OK);
		assert_true(most_seen > bounds[i] / 2);
		assert_true(most_seen <= bounds[i]);
		free(path);
		store_free(&store);
	}
}

static void entries_in_use_survive_eviction(void **state)
{
	struct store store = store_new(8 << 20, 0);
	unsigned i, used = 0, unused = 0;
	size_t size;

	assert_int_equal(store_put(&store, 100, 2 << 20, 0), KILN_OK);
	for (i = 0; i < 10; i++)
		assert_int_equal(store_put(&store, i, 3000, 0), KILN_OK);
	for (i = 1000; i < 5000; i++) {
		assert_int_equal(store_put(&store, i, 3000, 0), KILN_OK);
		if (i % 50 == 0) {
			/* 0 to 4 and the large one are used, 5 to 9 not. */
			for (used = 0; used < 5; used++)
				assert_int_equal(store_get(&store, used, 3000),
						 KILN_OK);
			assert_int_equal(store_get(&store, 100, 2 << 20),
					 KILN_OK);
		}
	}
	for (i = 5; i < 10; i++)
		unused += store_get_any(&store, i, &size) == KILN_OK;
	assert_int_equal(unused, 0);
	store_free(&store);
}

static void a_full_store_that_may_not_evict_says_so(void **state)
{
	struct store store = store_new(2 << 20, KILN_OPEN_REFUSE_FULL);
	enum kiln_status status = KILN_OK;
	unsigned n, i;

	for (n = 0; n < 2000 && !status; n++)
		status = store_put(&store, n, 3000, 0);
	assert_int_equal(status, KILN_E_FULL);
	assert_true(n > 300);
	for (i = 0; i < n - 1; i++)
		assert_int_equal(store_get(&store, i, 3000), KILN_OK);
	assert_int_equal(store_put(&store, 5000, 1 << 20, 0), KILN_E_FULL);
	store_free(&store);
}

static void a_value_that_can_never_fit_is_too_large(void **state)
{
	struct store store = store_new(2 << 20, 0);

	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	assert_int_equal(store_put(&store, 2, 3 << 20, 0), KILN_E_TOO_LARGE);
	assert_int_equal(store_get(&store, 1, 100), KILN_OK);
	store_free(&store);
}

static void a_bound_that_can_hold_nothing_is_an_error(void **state)
{
	char *directory = harness_directory();
	struct ki_store_options options = { .sys = &ki_sys_posix,
					    .directory = directory,
					    .bytes_max = 4096 };
	struct kiln_tier *tier;

	assert_int_equal(ki_store_log_open(&options, &tier), KILN_E_FULL);
	free(directory);
}

/* S47 */
static void a_lower_limit_holds_at_once_and_for_everyone(void **state)
{
	struct store store = store_new(20 << 20, 0);
	struct store other = store_beside(&store, 0);
	unsigned i, found = 0;
	size_t size;

	for (i = 0; i < 5000; i++)
		assert_int_equal(store_put(&store, i, 5000, 0), KILN_OK);
	assert_int_equal(store.tier->ops->set_limit(store.tier, 4 << 20),
			 KILN_OK);
	assert_true(directory_bytes(store.directory) <= 4 << 20);
	for (i = 5000; i < 5500; i++)
		assert_int_equal(store_put(&other, i, 5000, 0), KILN_OK);
	assert_true(directory_bytes(store.directory) <= 4 << 20);
	/* The newest are kept. */
	assert_int_equal(store_get(&store, 5499, 5000), KILN_OK);
	for (i = 0; i < 5500; i++)
		found += store_get_any(&store, i, &size) == KILN_OK;
	assert_true(found > 300);
	assert_int_equal(store.tier->ops->set_limit(store.tier, 0), KILN_OK);
	for (i = 6000; i < 8000; i++)
		assert_int_equal(store_put(&other, i, 5000, 0), KILN_OK);
	for (i = 6000; i < 8000; i++)
		assert_int_equal(store_get(&store, i, 5000), KILN_OK);
	store_free(&other);
	store_free(&store);
}

/* S47: what is left of entries of 4000 bytes. */
static void a_lower_limit_keeps_the_newest_and_what_was_used(void **state)
{
	static const struct {
		uint64_t before, after;
		unsigned n;	   /* the oldest 10 are used */
		size_t first;	   /* put first, and used; 0: none */
		size_t large;	   /* put last; 0: none */
		unsigned n_newest; /* that are left at least */
	} rows[] = {
		/* All of it is less than a segment of before. */
		{ 256 << 20, 6 << 20, 1000, 0, 0, 650 },
		{ 256 << 20, 6 << 20, 3000, 0, 0, 650 },
		{ 256 << 20, 6 << 20, 1000, 0, 7 << 20, 650 },
		/* Full. */
		{ 12 << 20, 3 << 20, 3000, 0, 0, 450 },
		{ 0, 6 << 20, 1000, 0, 0, 650 },
		/* The newest need the room of what is large, old and used. */
		{ 256 << 20, 6 << 20, 3000, 3 << 20, 0, 650 },
		{ 24 << 20, 6 << 20, 4000, 3 << 20, 0, 650 },
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct store store = { .directory = harness_directory() };
		struct ki_sys sys = watching(store.directory);
		unsigned n = rows[i].n, found = 0, used;

		store.options = (struct ki_store_options){
			.sys = &sys,
			.directory = store.directory,
			.bytes_max = rows[i].before,
		};
		store_open(&store);
		if (rows[i].first)
			assert_int_equal(
				store_put(&store, n + 2, rows[i].first, 0),
				KILN_OK);
		while (found < n)
			assert_int_equal(store_put(&store, found++, 4000, 0),
					 KILN_OK);
		for (used = 0; store_get(&store, used, 4000); used++)
			;
		for (n = used; n < used + 10; n++)
			assert_int_equal(store_get(&store, n, 4000), KILN_OK);
		n = rows[i].n;
		if (rows[i].first)
			assert_int_equal(
				store_get(&store, n + 2, rows[i].first),
				KILN_OK);
		if (rows[i].large)
			assert_int_equal(store_put(&store, n, rows[i].large, 0),
					 KILN_OK);
		assert_int_equal(
			store.tier->ops->set_limit(store.tier, rows[i].after),
			KILN_OK);
		assert_true(directory_bytes(store.directory) <= rows[i].after);
		assert_true(!rows[i].before || most_seen <= rows[i].before);
		for (found = 0; !store_get(&store, n - 1 - found, 4000);)
			found++;
		assert_true(found >= rows[i].n_newest);
		for (found = 0; found < 10; found++)
			assert_int_equal(store_get(&store, used + found, 4000),
					 KILN_OK);
		assert_int_equal(store_put(&store, n + 1, 4000, 0), KILN_OK);
		store_free(&store);
	}
}

/* S47 */
static void a_lower_limit_is_refused_by_who_may_not_evict(void **state)
{
	struct store store = store_new(16 << 20, KILN_OPEN_REFUSE_FULL);
	struct kiln_store_info before, after;
	unsigned i;

	for (i = 0; i < 1000; i++)
		assert_int_equal(store_put(&store, i, 4000, 0), KILN_OK);
	assert_int_equal(store.tier->ops->info(store.tier, &before), KILN_OK);
	assert_int_equal(store.tier->ops->set_limit(store.tier, 3 << 20),
			 KILN_E_FULL);
	assert_int_equal(store.tier->ops->info(store.tier, &after), KILN_OK);
	assert_int_equal(after.bytes_max, before.bytes_max);
	assert_int_equal(after.bytes, before.bytes);
	/* What holds it already, or will without the spare, is not. */
	assert_int_equal(store.tier->ops->set_limit(store.tier, 8 << 20),
			 KILN_OK);
	assert_int_equal(store.tier->ops->info(store.tier, &after), KILN_OK);
	assert_int_equal(after.bytes_max, 8 << 20);
	assert_int_equal(after.n_entries, before.n_entries);
	store_free(&store);
}

static void the_index_grows_and_loses_nothing(void **state)
{
	struct store store = store_new(1 << 20, 0);
	struct store other = store_beside(&store, KILN_OPEN_COPY);
	struct kiln_store_info info;
	struct ki_log *log = (struct ki_log *)store.tier;
	uint64_t n_before = log->index->n_buckets;
	unsigned i, found = 0;
	size_t size;

	for (i = 0; i < 1400; i++) {
		assert_int_equal(store_put(&store, i, 10, 0), KILN_OK);
		if (i % 7 == 0)
			assert_int_equal(store_remove(&other, i), KILN_OK);
	}
	assert_true(log->index->n_buckets > n_before);
	for (i = 0; i < 1400; i++) {
		int there = store_get_any(&other, i, &size) == KILN_OK;

		assert_false(there && i % 7 == 0);
		found += (unsigned)there;
	}
	assert_true(found > 1100);
	assert_int_equal(store.tier->ops->info(store.tier, &info), KILN_OK);
	assert_true(info.n_entries >= found);
	assert_true(info.n_entries <= found + 50);
	store_free(&other);
	store_free(&store);
}

/* A segment that was let go of stays readable for who has a view of it. */
static void a_view_outlives_its_segment(void **state)
{
	struct store store = store_new(1 << 20, 0);
	struct kiln_key *key = test_key(1);
	const uint64_t *generation;
	uint64_t before;
	struct kiln_blob *blob;
	unsigned i;

	assert_int_equal(store_put(&store, 1, 3000, 0), KILN_OK);
	assert_int_equal(store.tier->ops->get(store.tier, key, &blob, NULL),
			 KILN_OK);
	generation = store.tier->generation;
	before = *generation;
	assert_true(store.tier->is_live(store.tier, blob));
	for (i = 10; i < 2000; i++)
		assert_int_equal(store_put(&store, i, 3000, 0), KILN_OK);
	assert_int_not_equal(*store.tier->generation, before);
	assert_false(store.tier->is_live(store.tier, blob));
	assert_true(test_value_is(blob, 1));
	store_free(&store);
	assert_true(test_value_is(blob, 1));
	kiln_blob_unref(blob);
	kiln_key_free(key);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_bound_is_never_exceeded),
		cmocka_unit_test(an_index_made_anew_keeps_the_bound),
		cmocka_unit_test(entries_in_use_survive_eviction),
		cmocka_unit_test(a_full_store_that_may_not_evict_says_so),
		cmocka_unit_test(a_value_that_can_never_fit_is_too_large),
		cmocka_unit_test(a_bound_that_can_hold_nothing_is_an_error),
		cmocka_unit_test(a_lower_limit_holds_at_once_and_for_everyone),
		cmocka_unit_test(
			a_lower_limit_keeps_the_newest_and_what_was_used),
		cmocka_unit_test(a_lower_limit_is_refused_by_who_may_not_evict),
		cmocka_unit_test(the_index_grows_and_loses_nothing),
		cmocka_unit_test(a_view_outlives_its_segment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
