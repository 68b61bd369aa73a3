/* SPDX-License-Identifier: MIT */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"

#include "store/log/log_test.h"

/* ---- Wipe and disappearance ------------------------------------------ */

static void a_wipe_is_seen_by_another_handle(void **state)
{
	struct store a = store_new(8 << 20, 0);
	struct store b = store_beside(&a, 0);
	struct kiln_key *key = test_key(1);
	const uint64_t *generation;
	uint64_t before;
	struct kiln_blob *blob, *own;
	unsigned i;

	assert_int_equal(kiln_blob_copy("own", 3, &own), KILN_OK);
	for (i = 0; i < 10; i++)
		assert_int_equal(store_put(&a, i, 100, 0), KILN_OK);
	assert_true(b.tier->is_live(b.tier, own));
	assert_int_equal(b.tier->ops->get(b.tier, key, &blob, NULL), KILN_OK);
	generation = b.tier->generation;
	before = *generation;
	assert_int_equal(a.tier->ops->wipe(a.tier), KILN_OK);
	assert_int_not_equal(*generation, before);
	assert_false(b.tier->is_live(b.tier, blob));
	assert_false(b.tier->is_live(b.tier, own));
	assert_ptr_not_equal(b.tier->generation, generation);
	for (i = 0; i < 10; i++) {
		assert_int_equal(store_get(&a, i, 100), KILN_MISS);
		assert_int_equal(store_get(&b, i, 100), KILN_MISS);
	}
	assert_int_equal(store_put(&b, 1, 60, 0), KILN_OK);
	assert_int_equal(store_get(&a, 1, 60), KILN_OK);
	assert_true(test_value_is(blob, 1));
	assert_true(b.tier->is_live(b.tier, own));
	kiln_blob_unref(own);
	kiln_blob_unref(blob);
	kiln_key_free(key);
	store_free(&b);
	store_free(&a);
}

/* S16 */
static void a_directory_that_vanishes_is_made_again(void **state)
{
	static const uint32_t ways[] = { 0, KILN_OPEN_COPY, KILN_OPEN_GUEST };
	unsigned i;

	for (i = 0; i < 3; i++) {
		struct store a = store_new(8 << 20, ways[i]);
		struct store b = store_beside(&a, 0);

		assert_int_equal(store_put(&a, 1, 100, 0), KILN_OK);
		assert_int_equal(store_get(&b, 1, 100), KILN_OK);
		harness_remove(a.directory);
		assert_int_equal(store_remove(&a, 1), KILN_MISS);
		assert_int_equal(store_get(&a, 1, 100), KILN_MISS);
		assert_int_equal(store_put(&a, 2, 100, 0), KILN_OK);
		assert_int_equal(store_get(&a, 2, 100), KILN_OK);
		assert_int_equal(store_put(&b, 2, 100, 0), KILN_EXISTS);
		assert_int_equal(store_get(&b, 2, 100), KILN_OK);
		assert_int_equal(store_get(&b, 1, 100), KILN_MISS);
		store_free(&b);
		store_free(&a);
	}
}

static void a_segment_removed_by_hand_is_a_miss(void **state)
{
	struct store store = store_new(8 << 20, 0);
	struct ki_log *log = (struct ki_log *)store.tier;
	char path[KI_PATH_MAX];
	unsigned i;

	for (i = 0; i < 10; i++)
		assert_int_equal(store_put(&store, i, 100, 0), KILN_OK);
	assert_int_equal(
		ki_log_segment_path(
			log, log_tail_segment(log->index->header->tail), path),
		0);
	store_close(&store);
	assert_int_equal(unlink(path), 0);
	store_open(&store);
	assert_int_equal(store_get(&store, 1, 100), KILN_MISS);
	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	assert_int_equal(store_get(&store, 1, 100), KILN_OK);
	store_free(&store);
}

static void another_user_version_wipes(void **state)
{
	struct store a = store_new(8 << 20, 0);
	struct kiln_store_info info;

	assert_int_equal(store_put(&a, 1, 100, 0), KILN_OK);
	store_close(&a);
	a.options.user_version = 7;
	store_open(&a);
	assert_int_equal(store_get(&a, 1, 100), KILN_MISS);
	assert_int_equal(store_put(&a, 2, 100, 0), KILN_OK);
	store_reopen(&a);
	assert_int_equal(store_get(&a, 2, 100), KILN_OK);
	assert_int_equal(a.tier->ops->info(a.tier, &info), KILN_OK);
	assert_int_equal(info.user_version, 7);
	store_close(&a);
	a.options.user_version = 0;
	store_open(&a);
	assert_int_equal(store_get(&a, 2, 100), KILN_OK);
	store_free(&a);
}

/* Nor does one that is open follow, or wipe in turn. */
static void a_handle_stays_out_of_another_user_version(void **state)
{
	struct store a = store_new(8 << 20, 0), b;

	store_close(&a);
	a.options.user_version = 7;
	store_open(&a);
	assert_int_equal(store_put(&a, 1, 100, 0), KILN_OK);
	b = store_beside(&a, 0);
	store_close(&b);
	b.options.user_version = 8;
	store_open(&b);
	assert_int_equal(store_put(&b, 2, 100, 0), KILN_OK);
	assert_int_equal(store_get(&a, 1, 100), KILN_MISS);
	assert_int_equal(store_get(&a, 2, 100), KILN_MISS);
	assert_int_equal(store_put(&a, 3, 100, 0), KILN_E_FORMAT);
	assert_int_equal(store_remove(&a, 2), KILN_E_FORMAT);
	assert_int_equal(a.tier->ops->wipe(a.tier), KILN_E_FORMAT);
	assert_int_equal(store_get(&b, 2, 100), KILN_OK);
	assert_int_equal(store_get(&b, 3, 100), KILN_MISS);
	/* Until it is opened anew, and then the other does. */
	store_reopen(&a);
	assert_int_equal(store_put(&a, 4, 100, 0), KILN_OK);
	assert_int_equal(store_get(&b, 2, 100), KILN_MISS);
	assert_int_equal(store_get(&b, 4, 100), KILN_MISS);
	store_close(&b);
	store_free(&a);
}

/* S17 */
static void a_newer_format_is_left_alone(void **state)
{
	struct store store = store_new(8 << 20, 0);
	char *path = harness_path(store.directory, "kiln.idx");
	size_t size, after_size;
	char *data, *after;
	struct log_header *header;

	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	store_close(&store);
	data = harness_read(path, &size);
	header = (struct log_header *)(void *)data;
	header->fixed.version = LOG_VERSION + 1;
	ki_log_fixed_seal(header);
	harness_write(path, data, size);
	assert_int_equal(ki_store_log_open(&store.options, &store.tier),
			 KILN_E_FORMAT);
	store.tier = NULL;
	after = harness_read(path, &after_size);
	assert_int_equal(size, after_size);
	assert_memory_equal(data, after, size);
	free(after);
	free(data);
	free(path);
	store_free(&store);
}

/* ---- Odd places ------------------------------------------------------ */

static enum kiln_status try_open(const char *directory, uint32_t flags)
{
	struct ki_store_options options = { .sys = &ki_sys_posix,
					    .directory = directory,
					    .bytes_max = 8 << 20,
					    .flags = flags };
	struct kiln_tier *tier;
	enum kiln_status status = ki_store_log_open(&options, &tier);

	if (!status)
		tier->ops->close(tier);
	return status;
}

/* S28, S37 */
static void places_that_are_not_ours_are_refused(void **state)
{
	char *base = harness_directory();
	char *real = harness_path(base, "real");
	char *link = harness_path(base, "link");
	char *slashed = harness_path(base, "link/");
	char *file = harness_path(base, "file");
	char *deep = harness_path(base, "a/b/c");
	char *below = harness_path(base, "file/store");
	char *open_parent = harness_path(base, "open");
	char *inside = harness_path(base, "open/store");

	assert_int_equal(mkdir(real, 0700), 0);
	assert_int_equal(symlink(real, link), 0);
	harness_write(file, "x", 1);
	assert_int_equal(try_open(real, 0), KILN_OK);
	assert_int_equal(try_open(link, 0), KILN_E_OWNER);
	assert_int_equal(try_open(slashed, 0), KILN_E_OWNER);
	assert_int_equal(
		try_open(link, KILN_OPEN_READONLY | KILN_OPEN_ANY_OWNER),
		KILN_OK);
	assert_int_equal(try_open(file, 0), KILN_E_OWNER);
	assert_int_equal(try_open(below, 0), KILN_E_IO);
	assert_int_equal(try_open(deep, 0), KILN_OK);
	assert_int_equal(chmod(real, 0777), 0);
	assert_int_equal(try_open(real, 0), KILN_E_OWNER);
	assert_int_equal(try_open(real, KILN_OPEN_SHARED), KILN_E_OWNER);
	assert_int_equal(chmod(real, 0770), 0);
	assert_int_equal(try_open(real, KILN_OPEN_SHARED), KILN_OK);
	assert_int_equal(chmod(real, 0700), 0);
	assert_int_equal(mkdir(open_parent, 0700), 0);
	assert_int_equal(mkdir(inside, 0700), 0);
	assert_int_equal(try_open(inside, 0), KILN_OK);
	assert_int_equal(chmod(open_parent, 0777), 0);
	assert_int_equal(try_open(inside, 0), KILN_E_OWNER);
	assert_int_equal(chmod(open_parent, 01777), 0);
	assert_int_equal(try_open(inside, 0), KILN_OK);
	if (!geteuid() && !chown(real, 12345, 12345)) {
		assert_int_equal(try_open(real, 0), KILN_E_OWNER);
		assert_int_equal(try_open(real, KILN_OPEN_READONLY),
				 KILN_E_OWNER);
		assert_int_equal(try_open(real, KILN_OPEN_READONLY |
							KILN_OPEN_ANY_OWNER),
				 KILN_OK);
	}
	free(inside);
	free(open_parent);
	free(below);
	free(deep);
	free(file);
	free(slashed);
	free(link);
	free(real);
	free(base);
}

/* The name of the segment that a new store will make next. */
static void name_first_segment(struct store *store, char name[32])
{
	struct ki_log *log;

	store_open(store);
	log = (struct ki_log *)store->tier;
	snprintf(name, 32, "kiln.%08x.val",
		 (unsigned)(uint32_t)log->index->header->next_number);
	store_close(store);
}

/* S15: nothing is followed, nothing blocks. */
static void foreign_things_under_our_names_are_left_alone(void **state)
{
	static const char names[][32] = { "kiln.idx", "kiln.lock", "kiln.spare",
					  "" };
	unsigned i, what;

	for (i = 0; i < 4; i++)
		for (what = 0; what < 3; what++) {
			char *directory = harness_directory();
			char *path, name[32];
			struct store store = {
				.options = { .sys = &ki_sys_posix,
					     .directory = directory,
					     .bytes_max = 8 << 20 },
				.directory = directory,
			};
			struct stat before, after;

			strcpy(name, names[i]);
			if (!*name)
				name_first_segment(&store, name);
			path = harness_path(directory, name);
			if (what == 0)
				assert_int_equal(mkdir(path, 0700), 0);
			else if (what == 1)
				assert_int_equal(mkfifo(path, 0600), 0);
			else
				assert_int_equal(symlink("nowhere", path), 0);
			assert_int_equal(lstat(path, &before), 0);
			if (!ki_store_log_open(&store.options, &store.tier)) {
				enum kiln_status status =
					store_put(&store, 1, 100, 0);

				if (!status)
					status = store_get(&store, 1, 100);
				assert_true(status <= KILN_OK);
			} else {
				store.tier = NULL;
			}
			assert_int_equal(lstat(path, &after), 0);
			if (i < 2)
				assert_int_equal(before.st_ino, after.st_ino);
			free(path);
			store_free(&store);
		}
}

/* ---- Read only, full, no locks --------------------------------------- */

static unsigned n_writes;
static int write_error;

static int no_open(const struct ki_sys *sys, const char *path, unsigned flags,
		   unsigned mode)
{
	if (flags & (KI_OPEN_WRITE | KI_OPEN_CREATE)) {
		n_writes++;
		return write_error;
	}
	return ki_sys_posix.open(&ki_sys_posix, path, flags, mode);
}

static int no_two_names(const struct ki_sys *sys, const char *a, const char *b)
{
	n_writes++;
	return write_error;
}

static int no_one_name(const struct ki_sys *sys, const char *path)
{
	n_writes++;
	return write_error;
}

static int no_mkdir(const struct ki_sys *sys, const char *path, unsigned mode)
{
	n_writes++;
	return write_error;
}

static struct ki_sys refusing(int error)
{
	struct ki_sys sys = ki_sys_posix;

	sys.open = no_open;
	sys.link = no_two_names;
	sys.rename = no_two_names;
	sys.rename_new = no_two_names;
	sys.unlink = no_one_name;
	sys.mkdir = no_mkdir;
	n_writes = 0;
	write_error = error;
	return sys;
}

/* S30 */
static void a_read_only_store_is_read_without_any_write(void **state)
{
	struct store store = store_new(8 << 20, 0);
	struct store other = { .options = store.options };
	struct ki_sys sys = refusing(-EROFS);
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;
	struct kiln_verify_report report;
	unsigned way;

	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	assert_int_equal(store_put(&store, 2, 3 << 20, 0), KILN_OK);
	other.options.sys = &sys;
	for (way = 0; way < 2; way++) {
		/* Asked for, and found out. */
		other.options.flags = way ? 0 : KILN_OPEN_READONLY;
		n_writes = 0;
		store_open(&other);
		assert_true(way || !n_writes);
		n_writes = 0;
		assert_int_equal(store_get(&other, 1, 100), KILN_OK);
		assert_int_equal(store_get(&other, 2, 3 << 20), KILN_OK);
		assert_int_equal(store_get(&other, 3, 1), KILN_MISS);
		assert_int_equal(store_put(&other, 3, 1, 0), KILN_E_READONLY);
		assert_int_equal(store_remove(&other, 1), KILN_E_READONLY);
		assert_int_equal(other.tier->ops->wipe(other.tier),
				 KILN_E_READONLY);
		assert_int_equal(other.tier->ops->set_limit(other.tier, 0),
				 KILN_E_READONLY);
		memset(&cursor, 0, sizeof(cursor));
		assert_int_equal(
			other.tier->ops->list(other.tier, &cursor, &entry),
			KILN_OK);
		kiln_blob_unref(entry.record);
		kiln_blob_unref(entry.metadata);
		assert_int_equal(other.tier->ops->verify(other.tier, 0, NULL,
							 NULL, &report),
				 KILN_OK);
		assert_int_equal(report.n_entries, 2);
		store_close(&other);
		assert_int_equal(n_writes, 0);
	}
	store_free(&store);
}

static void without_permission_to_write_it_is_only_read(void **state)
{
	static const int errors[] = { -EACCES, -EPERM };
	struct store store = store_new(8 << 20, 0);
	struct store other = { .options = store.options };
	unsigned i;

	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	for (i = 0; i < 2; i++) {
		struct ki_sys sys = refusing(errors[i]);

		other.options.sys = &sys;
		store_open(&other);
		assert_int_equal(store_get(&other, 1, 100), KILN_OK);
		assert_int_equal(store_put(&other, 2, 1, 0), KILN_E_READONLY);
		store_close(&other);
	}
	store_free(&store);
}

/* Another user made the index anew meanwhile. */
static void permission_that_went_makes_it_read_only(void **state)
{
	struct store store = store_new(8 << 20, 0);
	struct store other = store_beside(&store, 0);
	struct ki_sys sys = ki_sys_posix;
	struct kiln_verify_report report;

	store_close(&store);
	store.options.sys = &sys;
	store_open(&store);
	assert_int_equal(other.tier->ops->wipe(other.tier), KILN_OK);
	assert_int_equal(store_put(&other, 1, 100, 0), KILN_OK);
	sys.open = no_open;
	write_error = -EACCES;
	assert_int_equal(store_get(&store, 1, 100), KILN_OK);
	assert_int_equal(store_put(&store, 2, 100, 0), KILN_E_READONLY);
	assert_int_equal(store_remove(&store, 1), KILN_E_READONLY);
	assert_int_equal(store.tier->ops->verify(store.tier, KILN_VERIFY_REPAIR,
						 NULL, NULL, &report),
			 KILN_E_READONLY);
	assert_int_equal(
		store.tier->ops->verify(store.tier, 0, NULL, NULL, &report),
		KILN_OK);
	assert_int_equal(store.tier->ops->wipe(store.tier), KILN_E_READONLY);
	store.tier->ops->note_build(store.tier, 1);
	store.tier->ops->note_build(store.tier, 0);
	store_free(&other);
	store_free(&store);
}

static int no_locks(const struct ki_sys *sys, int fd, enum ki_lock_kind kind,
		    uint64_t offset, uint64_t size)
{
	return write_error;
}

static void without_locks_what_is_there_is_used(void **state)
{
	static const int errors[] = { -ENOLCK, -ENOSYS, -EPERM };
	unsigned i;

	for (i = 0; i < 3; i++) {
		struct store store = store_new(8 << 20, 0);
		struct store other = { .options = store.options };
		struct ki_sys sys = ki_sys_posix;
		struct kiln_tier_lock *lock;
		struct kiln_key *key = test_key(1);

		write_error = errors[i];
		sys.try_lock = no_locks;
		assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
		other.options.sys = &sys;
		store_open(&other);
		assert_int_equal(store_get(&other, 1, 100), KILN_OK);
		assert_int_equal(store_put(&other, 1, 100, 0), KILN_EXISTS);
		assert_int_equal(store_put(&other, 2, 100, 0), KILN_OK);
		assert_int_equal(store_get(&store, 2, 100), KILN_OK);
		assert_int_equal(store_put(&other, 3, 3 << 20, 0),
				 KILN_E_UNSUPPORTED);
		assert_int_equal(
			other.tier->ops->lock(other.tier, key, 10, &lock),
			KILN_E_UNSUPPORTED);
		store_close(&other);
		kiln_key_free(key);

		/* Nothing can be made without. */
		store_close(&store);
		harness_remove(store.directory);
		assert_int_equal(ki_store_log_open(&other.options, &other.tier),
				 KILN_E_UNSUPPORTED);
		store_free(&store);
	}
}

static int fallocate_error;

/* ---- A lock that others always have ---------------------------------------- */

static const struct ki_store_options *others;
static uint64_t slept_ns;

/* They have made the store when they have it for the first time. */
static int always_locked(const struct ki_sys *sys, int fd,
			 enum ki_lock_kind kind, uint64_t offset, uint64_t size)
{
	struct store other = { .options = *others };

	if (!slept_ns) {
		store_open(&other);
		store_close(&other);
	}
	return -EAGAIN;
}

static void sleep_at_once(const struct ki_sys *sys, uint64_t ns)
{
	slept_ns += ns;
}

static uint64_t slept_monotonic(const struct ki_sys *sys)
{
	return ki_sys_posix.monotonic_ns(&ki_sys_posix) + slept_ns;
}

/* It is made while this one waits to make it. */
static void opening_finds_what_others_made_who_never_let_go(void **state)
{
	char *directory = harness_directory();
	struct ki_store_options options = {
		.sys = &ki_sys_posix,
		.directory = directory,
		.bytes_max = 1 << 20,
	};
	struct store store = { .options = options, .directory = directory };
	struct ki_sys sys = ki_sys_posix;

	others = &options;
	sys.try_lock = always_locked;
	sys.sleep_ns = sleep_at_once;
	sys.monotonic_ns = slept_monotonic;
	store.options.sys = &sys;
	slept_ns = 0;
	assert_int_equal(ki_store_log_open(&store.options, &store.tier),
			 KILN_OK);
	assert_true(slept_ns < 1000000000);
	assert_int_equal(store_get(&store, 1, 1), KILN_MISS);
	store_free(&store);
}

static int no_fallocate(const struct ki_sys *sys, int fd, uint64_t offset,
			uint64_t size)
{
	if (fallocate_error)
		return fallocate_error;
	return ki_sys_posix.fallocate(&ki_sys_posix, fd, offset, size);
}

/* S29 */
static void a_full_medium_makes_room_or_drops_the_put(void **state)
{
	struct ki_sys sys = ki_sys_posix;
	struct store store = store_new(2 << 20, 0);
	unsigned i, stored = 0;

	store_close(&store);
	sys.fallocate = no_fallocate;
	store.options.sys = &sys;
	store_open(&store);
	fallocate_error = 0;
	for (i = 0; i < 100; i++)
		assert_int_equal(store_put(&store, i, 3000, 0), KILN_OK);
	fallocate_error = -ENOSPC;
	for (i = 100; i < 200; i++) {
		enum kiln_status status = store_put(&store, i, 3000, 0);

		assert_true(!status || status == KILN_E_FULL);
		stored += !status;
	}
	assert_true(stored < 100);
	assert_int_equal(store_put(&store, 500, 1 << 20, 0), KILN_E_FULL);
	fallocate_error = 0;
	for (i = 300; i < 400; i++)
		assert_int_equal(store_put(&store, i, 3000, 0), KILN_OK);
	for (i = 390; i < 400; i++)
		assert_int_equal(store_get(&store, i, 3000), KILN_OK);
	store_free(&store);
}

/* ---- Time ------------------------------------------------------------ */

static uint64_t clock_offset_s;

static uint64_t shifted_realtime(const struct ki_sys *sys)
{
	return ki_sys_posix.realtime_ns(&ki_sys_posix) +
	       clock_offset_s * 1000000000;
}

static void entries_unused_for_too_long_go(void **state)
{
	struct ki_sys sys = ki_sys_posix;
	struct store store = store_new(8 << 20, 0);

	store_close(&store);
	harness_remove(store.directory);
	sys.realtime_ns = shifted_realtime;
	store.options.sys = &sys;
	store.options.age_max_s = 6400;
	clock_offset_s = 0;
	store_open(&store);
	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	assert_int_equal(store_put(&store, 2, 100, 0), KILN_OK);
	clock_offset_s = 5000;
	assert_int_equal(store_get(&store, 1, 100), KILN_OK);
	clock_offset_s = 8000;
	assert_int_equal(store_get(&store, 2, 100), KILN_MISS);
	assert_int_equal(store_get(&store, 1, 100), KILN_OK);
	/* S33: a clock that is put back removes nothing. */
	clock_offset_s = 0;
	assert_int_equal(store_get(&store, 1, 100), KILN_OK);
	clock_offset_s = 16000;
	assert_int_equal(store_get(&store, 1, 100), KILN_MISS);
	store_free(&store);
}

/* ---- Locks and forks ------------------------------------------------- */

static void a_build_lock_excludes_and_ends_with_its_holder(void **state)
{
	struct store a = store_new(8 << 20, 0);
	struct store b = store_beside(&a, 0);
	struct kiln_key *key = test_key(1), *other = test_key(2);
	struct kiln_tier_lock *lock, *second;
	int gate[2], status;
	pid_t child;
	char byte;

	assert_int_equal(a.tier->ops->lock(a.tier, key, 0, &lock), KILN_OK);
	assert_int_equal(b.tier->ops->lock(b.tier, key, 5, &second),
			 KILN_E_TIMEOUT);
	assert_int_equal(b.tier->ops->lock(b.tier, other, 0, &second), KILN_OK);
	b.tier->ops->unlock(b.tier, second);
	/* S40, S41: a child that lives on keeps no lock. */
	assert_int_equal(pipe(gate), 0);
	child = fork();
	if (!child) {
		close(gate[1]);
		_exit(read(gate[0], &byte, 1) < 0);
	}
	close(gate[0]);
	a.tier->ops->unlock(a.tier, lock);
	assert_int_equal(
		b.tier->ops->lock(b.tier, key, HARNESS_HANG_S * 1000, &second),
		KILN_OK);
	b.tier->ops->unlock(b.tier, second);
	close(gate[1]);
	assert_int_equal(waitpid(child, &status, 0), child);

	/* S20: a holder that is killed. */
	assert_int_equal(pipe(gate), 0);
	child = fork();
	if (!child) {
		struct store c = store_beside(&a, 0);

		if (c.tier->ops->lock(c.tier, key, 0, &lock))
			_exit(1);
		if (write(gate[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(gate[0], &byte, 1), 1);
	assert_int_equal(b.tier->ops->lock(b.tier, key, 5, &second),
			 KILN_E_TIMEOUT);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(
		b.tier->ops->lock(b.tier, key, HARNESS_HANG_S * 1000, &second),
		KILN_OK);
	b.tier->ops->unlock(b.tier, second);
	close(gate[0]);
	close(gate[1]);
	kiln_key_free(other);
	kiln_key_free(key);
	store_free(&b);
	store_free(&a);
}

static int open_without_proc(const struct ki_sys *sys, const char *path,
			     unsigned flags, unsigned mode)
{
	if (!strncmp(path, "/proc/", 6))
		return -ENOENT;
	return ki_sys_posix.open(&ki_sys_posix, path, flags, mode);
}

/* The number of the holder's process becomes one that nobody has. */
static void let_holder_be_unknown(const struct store *store,
				  const struct kiln_key *key)
{
	char *path = harness_path(store->directory, "kiln.lock");
	const uint64_t digest[2] = { key->digest_low, key->digest_high };
	uint32_t nobody = INT32_MAX;
	size_t size, at;
	char *data = harness_read(path, &size);
	int fd = open(path, O_WRONLY);

	for (at = 0; memcmp(data + at, digest, sizeof(digest)); at += 32)
		assert_true(at + 64 <= size);
	assert_int_equal(pwrite(fd, &nobody, sizeof(nobody),
				(off_t)(at + sizeof(digest))),
			 sizeof(nobody));
	close(fd);
	free(data);
	free(path);
}

/* Without a boot, the holder may be one of another machine. */
static void who_knows_no_boot_takes_nobody_for_dead(void **state)
{
	static const struct {
		enum kiln_status found;
		uint32_t wait_ms;
	} rows[] = {
		{ KILN_OK, HARNESS_HANG_S * 1000 },
		{ KILN_E_TIMEOUT, 700 },
	};
	struct ki_sys sys = ki_sys_posix;
	struct kiln_key *key = test_key(1);
	int i;

	for (i = 0; i < 2; i++) {
		struct store a = store_new(8 << 20, 0);
		struct store b = store_beside(&a, 0);
		struct kiln_tier_lock *lock, *second;

		if (i)
			sys.open = open_without_proc;
		((struct ki_log *)a.tier)->locks.sys = &sys;
		((struct ki_log *)b.tier)->locks.sys = &sys;
		assert_int_equal(a.tier->ops->lock(a.tier, key, 0, &lock),
				 KILN_OK);
		let_holder_be_unknown(&a, key);
		assert_int_equal(b.tier->ops->lock(b.tier, key, rows[i].wait_ms,
						   &second),
				 rows[i].found);
		if (!rows[i].found)
			b.tier->ops->unlock(b.tier, second);
		a.tier->ops->unlock(a.tier, lock);
		store_free(&b);
		store_free(&a);
	}
	kiln_key_free(key);
}

/* S40 */
static void a_forked_child_may_close(void **state)
{
	struct store store = store_new(8 << 20, KILN_OPEN_COPY);
	int status;
	pid_t child;

	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	assert_int_equal(store_get(&store, 1, 100), KILN_OK);
	store.tier->ops->note_build(store.tier, 1);
	child = fork();
	if (!child) {
		store_close(&store);
		store_open(&store);
		_exit(store_get(&store, 1, 100) ||
		      store_put(&store, 2, 100, 0));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(store_get(&store, 2, 100), KILN_OK);
	assert_int_equal(store.tier->ops->builds_now(store.tier), 1);
	store.tier->ops->note_build(store.tier, 0);
	assert_int_equal(store.tier->ops->builds_now(store.tier), 0);
	store_free(&store);
}

static void who_builds_is_known_and_the_dead_do_not_count(void **state)
{
	struct store store = store_new(8 << 20, 0);
	int gate[2], back[2], status;
	pid_t child;
	char byte;

	assert_int_equal(store.tier->ops->builds_now(store.tier), 0);
	assert_int_equal(pipe(gate), 0);
	assert_int_equal(pipe(back), 0);
	child = fork();
	if (!child) {
		struct store c = store_beside(&store, KILN_OPEN_GUEST);

		c.tier->ops->note_build(c.tier, 1);
		c.tier->ops->note_build(c.tier, 1);
		c.tier->ops->note_build(c.tier, 0);
		if (write(gate[1], "x", 1) != 1)
			_exit(1);
		_exit(read(back[0], &byte, 1) != 1);
	}
	assert_int_equal(read(gate[0], &byte, 1), 1);
	assert_int_equal(store.tier->ops->builds_now(store.tier), 1);
	assert_int_equal(write(back[1], "x", 1), 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(store.tier->ops->builds_now(store.tier), 0);
	close(gate[0]);
	close(gate[1]);
	close(back[0]);
	close(back[1]);
	store_free(&store);
}

static void two_handles_of_one_process_build_apart(void **state)
{
	struct store a = store_new(8 << 20, 0);
	struct store b = store_beside(&a, 0);

	a.tier->ops->note_build(a.tier, 1);
	b.tier->ops->note_build(b.tier, 1);
	a.tier->ops->note_build(a.tier, 0);
	assert_int_equal(a.tier->ops->builds_now(a.tier), 1);
	store_close(&b);
	assert_int_equal(a.tier->ops->builds_now(a.tier), 0);
	a.tier->ops->note_build(a.tier, 1);
	assert_int_equal(a.tier->ops->builds_now(a.tier), 1);
	store_free(&a);
}

static unsigned count_descriptors(void)
{
	unsigned n = 0;
	int fd;

	for (fd = 3; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void in_a_guest_no_descriptor_outlives_a_call(void **state)
{
	struct store store = store_new(2 << 20, 0);
	unsigned before, i;

	store_close(&store);
	store.options.flags = KILN_OPEN_GUEST;
	before = count_descriptors();
	store_open(&store);
	assert_int_equal(count_descriptors(), before);
	for (i = 0; i < 1000; i++) {
		assert_int_equal(store_put(&store, i, 3000, 0), KILN_OK);
		assert_int_equal(store_get(&store, i, 3000), KILN_OK);
		assert_int_equal(count_descriptors(), before);
	}
	assert_int_equal(store.tier->ops->wipe(store.tier), KILN_OK);
	assert_int_equal(count_descriptors(), before);
	store_free(&store);
}

static uint64_t bytes_read;

static ssize_t counted_pread(const struct ki_sys *sys, int fd, void *data,
			     size_t size, uint64_t offset)
{
	bytes_read += size;
	return ki_sys_posix.pread(&ki_sys_posix, fd, data, size, offset);
}

static int cannot_populate(const struct ki_sys *sys, const void *data,
			   size_t size)
{
	return -EINVAL;
}

static void a_guest_reads_of_the_index_what_it_looks_at(void **state)
{
	struct store store = store_new(64 << 20, 0);
	struct ki_sys sys = ki_sys_posix;

	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	store_close(&store);
	sys.pread = counted_pread;
	store.options.sys = &sys;
	store.options.flags = KILN_OPEN_GUEST;
	bytes_read = 0;
	store_open(&store);
	assert_int_equal(store_get(&store, 1, 100), KILN_OK);
	assert_in_range(bytes_read, 1, 32768);

	/* Where there is no other way it reads all. */
	sys.populate = cannot_populate;
	store_reopen(&store);
	assert_int_equal(store_get(&store, 1, 100), KILN_OK);
	assert_true(bytes_read > store_index(&store)->size);
	store_free(&store);
}

/* Pages that the medium cannot give, as far as a test can have them. */
static void a_guest_gets_no_signal_from_an_index_cut_short(void **state)
{
	struct store store = store_new(64 << 20, KILN_OPEN_GUEST);
	char *path = harness_path(store.directory, "kiln.idx");
	struct kiln_cursor cursor = { 0 };
	struct kiln_verify_report report;
	struct kiln_entry entry;
	unsigned i;

	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	assert_int_equal(truncate(path, LOG_HEADER_BYTES), 0);
	for (i = 0; i < 4; i++) {
		assert_int_equal(store_get(&store, i, 100), KILN_E_IO);
		assert_int_equal(store_put(&store, i, 100, 0), KILN_E_IO);
		assert_int_equal(
			store_put(&store, i, 2 << 20, KILN_PUT_REPLACE),
			KILN_E_IO);
		assert_int_equal(store_remove(&store, i), KILN_E_IO);
	}
	assert_int_equal(store.tier->ops->list(store.tier, &cursor, &entry),
			 KILN_E_IO);
	assert_int_equal(
		store.tier->ops->verify(store.tier, 0, NULL, NULL, &report),
		KILN_E_IO);
	assert_int_equal(store.tier->ops->set_limit(store.tier, 32 << 20),
			 KILN_E_IO);
	assert_int_equal(store.tier->ops->wipe(store.tier), KILN_OK);
	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	assert_int_equal(store_get(&store, 1, 100), KILN_OK);
	free(path);
	store_free(&store);
}

/* Descriptors of segments: all, or those without a name. */
static unsigned count_segments(int only_gone)
{
	unsigned n_found = 0;
	int fd;

	for (fd = 3; fd < 1024; fd++) {
		char name[64], where[4096];
		ssize_t n;

		snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
		n = readlink(name, where, sizeof(where) - 1);
		if (n <= 0)
			continue;
		where[n] = '\0';
		n_found += strstr(where, ".val") &&
			   (!only_gone || strstr(where, "(deleted)"));
	}
	return n_found;
}

static void who_only_reads_keeps_few_segments_and_none_that_is_gone(
	void **state)
{
	struct store writer = store_new(8 << 20, KILN_OPEN_GUEST);
	struct store reader = store_beside(&writer, KILN_OPEN_COPY);
	unsigned i, round, first;
	size_t size;

	/* Each has a file of its own. */
	for (i = 0; i < 110; i++)
		assert_int_equal(store_put(&writer, i, 131200, 0), KILN_OK);
	for (round = 0; round < 3; round++)
		for (i = 0; i < 110; i++)
			(void)store_get_any(&reader, i, &size);
	assert_in_range(count_segments(0), 32, LOG_DESCRIPTORS_OPEN + 1);

	for (first = 1000; first < 1060; first += 20) {
		for (i = first; i < first + 20; i++)
			assert_int_equal(store_put(&writer, i, 131200, 0),
					 KILN_OK);
		assert_int_equal(store_get(&reader, first + 19, 131200),
				 KILN_OK);
		assert_int_equal(count_segments(1), 0);
	}
	assert_int_equal(writer.tier->ops->wipe(writer.tier), KILN_OK);
	assert_int_equal(store_get(&reader, 1059, 131200), KILN_MISS);
	assert_int_equal(count_segments(0), 0);
	store_free(&reader);
	store_free(&writer);
}

/* The program closes a number of ours and opens a file of its own there. */
static void a_descriptor_that_became_another_file_is_left_alone(void **state)
{
	struct store store = store_new(8 << 20, KILN_OPEN_COPY);
	char *path = harness_path(store.directory, "mine");
	unsigned i;
	int fd;
	size_t size, n_zeros = 1 << 18;
	char *zeros = calloc(1, n_zeros), *data;

	/* As long and as empty as a segment. */
	assert_int_equal(store_put(&store, 1, 3000, 0), KILN_OK);
	assert_int_equal(store_get(&store, 1, 3000), KILN_OK);
	harness_write(path, zeros, n_zeros);
	for (fd = 3; fd < 64; fd++) {
		struct stat st;
		char name[64], where[4096];
		ssize_t n;

		snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
		n = readlink(name, where, sizeof(where) - 1);
		if (n <= 0 || fstat(fd, &st))
			continue;
		where[n] = '\0';
		if (strstr(where, ".val")) {
			int other = open(path, O_RDWR);

			dup2(other, fd);
			close(other);
		}
	}
	for (i = 10; i < 20; i++)
		assert_int_equal(store_put(&store, i, 3000, 0), KILN_OK);
	store_free(&store);
	data = harness_read(path, &size);
	assert_int_equal(size, n_zeros);
	assert_memory_equal(data, zeros, n_zeros);
	free(data);
	free(zeros);
	free(path);
}

static unsigned n_torn;

/* Half of the head is from before, half from after a change. */
static ssize_t torn_pread(const struct ki_sys *sys, int fd, void *data,
			  size_t size, uint64_t offset)
{
	ssize_t n = ki_sys_posix.pread(&ki_sys_posix, fd, data, size, offset);

	if (n_torn && size == KI_STATS_BYTES) {
		((uint8_t *)data)[100] ^= 1;
		n_torn--;
	}
	return n;
}

static void counters_that_are_being_written_are_read_again(void **state)
{
	static const uint64_t deltas[KILN_N_COUNTERS] = { 1 };
	struct store store = store_new(2 << 20, 0);
	struct ki_sys sys = ki_sys_posix;
	struct kiln_store_counters *counters = malloc(sizeof(*counters));

	store_close(&store);
	sys.pread = torn_pread;
	store.options.sys = &sys;
	store_open(&store);
	assert_int_equal(store.tier->ops->count(store.tier, deltas), KILN_OK);
	n_torn = 3;
	assert_int_equal(store.tier->ops->counters(store.tier, counters),
			 KILN_OK);
	assert_int_equal(counters->total[0], 1);
	n_torn = 1000;
	assert_int_equal(store.tier->ops->counters(store.tier, counters),
			 KILN_E_FORMAT);
	free(counters);
	store_free(&store);
}

static void counters_add_up(void **state)
{
	struct store a = store_new(2 << 20, 0);
	struct store b = store_beside(&a, 0);
	struct kiln_store_counters *counters = malloc(sizeof(*counters));
	uint64_t deltas[KILN_N_COUNTERS] = { 0 };

	deltas[KILN_COUNT_MISSES] = 3;
	deltas[KILN_COUNT_BUILDS] = 1;
	a.tier->ops->count(a.tier, deltas);
	b.tier->ops->count(b.tier, deltas);
	assert_int_equal(a.tier->ops->counters(a.tier, counters), KILN_OK);
	assert_int_equal(counters->total[KILN_COUNT_MISSES], 6);
	assert_int_equal(counters->total[KILN_COUNT_BUILDS], 2);
	assert_int_equal(counters->hours[0][2] + counters->hours[1][2], 6);
	assert_int_equal(a.tier->ops->zero_counters(a.tier), KILN_OK);
	assert_int_equal(b.tier->ops->counters(b.tier, counters), KILN_OK);
	assert_int_equal(counters->total[KILN_COUNT_MISSES], 0);
	free(counters);
	store_free(&b);
	store_free(&a);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_wipe_is_seen_by_another_handle),
		cmocka_unit_test(
			opening_finds_what_others_made_who_never_let_go),
		cmocka_unit_test(a_directory_that_vanishes_is_made_again),
		cmocka_unit_test(a_segment_removed_by_hand_is_a_miss),
		cmocka_unit_test(another_user_version_wipes),
		cmocka_unit_test(a_handle_stays_out_of_another_user_version),
		cmocka_unit_test(a_newer_format_is_left_alone),
		cmocka_unit_test(places_that_are_not_ours_are_refused),
		cmocka_unit_test(foreign_things_under_our_names_are_left_alone),
		cmocka_unit_test(a_read_only_store_is_read_without_any_write),
		cmocka_unit_test(without_permission_to_write_it_is_only_read),
		cmocka_unit_test(permission_that_went_makes_it_read_only),
		cmocka_unit_test(without_locks_what_is_there_is_used),
		cmocka_unit_test(a_full_medium_makes_room_or_drops_the_put),
		cmocka_unit_test(entries_unused_for_too_long_go),
		cmocka_unit_test(
			a_build_lock_excludes_and_ends_with_its_holder),
		cmocka_unit_test(who_knows_no_boot_takes_nobody_for_dead),
		cmocka_unit_test(a_forked_child_may_close),
		cmocka_unit_test(who_builds_is_known_and_the_dead_do_not_count),
		cmocka_unit_test(two_handles_of_one_process_build_apart),
		cmocka_unit_test(in_a_guest_no_descriptor_outlives_a_call),
		cmocka_unit_test(a_guest_reads_of_the_index_what_it_looks_at),
		cmocka_unit_test(
			a_guest_gets_no_signal_from_an_index_cut_short),
		cmocka_unit_test(
			who_only_reads_keeps_few_segments_and_none_that_is_gone),
		cmocka_unit_test(
			a_descriptor_that_became_another_file_is_left_alone),
		cmocka_unit_test(counters_add_up),
		cmocka_unit_test(
			counters_that_are_being_written_are_read_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
