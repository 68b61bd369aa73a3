/* SPDX-License-Identifier: MIT */

/* What tests/conform does not ask of every store. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "key/key.h"
#include "store/file/file.h"
#include "store/store.h"

#define HOUR_NS ((int64_t)3600 * 1000000000)

/* The real system with a wall clock that a test moves. */
static int64_t shift_ns;

static uint64_t shifted_realtime(const struct ki_sys *sys)
{
	return ki_sys_posix.realtime_ns(sys) + (uint64_t)shift_ns;
}

static struct ki_sys shifted_sys(void)
{
	struct ki_sys sys = ki_sys_posix;

	shift_ns = 0;
	sys.realtime_ns = shifted_realtime;
	return sys;
}

static struct kiln_tier *open_store(const struct ki_sys *sys,
				    const char *directory, uint64_t bytes_max,
				    uint32_t flags)
{
	struct ki_store_options options = { .sys = sys,
					    .directory = directory,
					    .bytes_max = bytes_max,
					    .flags = flags };
	struct kiln_tier *tier = NULL;

	assert_int_equal(ki_store_file_open(&options, &tier), KILN_OK);
	return tier;
}

static struct kiln_key *key_of(unsigned n)
{
	struct kiln_key *key = kiln_key_new();

	kiln_key_add(key, "n", &n, sizeof(n));
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	return key;
}

static enum kiln_status put(struct kiln_tier *tier, unsigned n,
			    const void *value, size_t size, unsigned flags)
{
	struct kiln_key *key = key_of(n);
	enum kiln_status status =
		tier->ops->put(tier, key, NULL, 0, value, size, flags);

	kiln_key_free(key);
	return status;
}

static enum kiln_status get(struct kiln_tier *tier, unsigned n)
{
	struct kiln_key *key = key_of(n);
	struct kiln_blob *blob = NULL;
	enum kiln_status status = tier->ops->get(tier, key, &blob, NULL);

	kiln_blob_unref(blob);
	kiln_key_free(key);
	return status;
}

/* The path of an entry, from malloc(). */
static char *path_of(const char *directory, unsigned n)
{
	struct kiln_key *key = key_of(n);
	char digits[2 * KILN_DIGEST_BYTES + 1];
	char *path;

	ki_hex(key->digest, KILN_DIGEST_BYTES, digits);
	assert_true(asprintf(&path, "%s/kiln.files/%.2s/%s", directory, digits,
			     digits) > 0);
	kiln_key_free(key);
	return path;
}

static int exists(const char *path)
{
	struct stat st;

	return !lstat(path, &st);
}

/* S13 */
static void a_damaged_entry_is_put_aside_and_made_anew(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_store(&ki_sys_posix, directory, 0, 0);
	char *path = path_of(directory, 1);
	char *aside = harness_path(directory, "kiln.files/quarantine");
	char *bytes, *twin;
	size_t size;

	assert_int_equal(put(tier, 1, "value", 5, 0), KILN_OK);
	bytes = harness_read(path, &size);
	bytes[size - 1] ^= 1;
	harness_write(path, bytes, size);
	free(bytes);
	assert_int_equal(get(tier, 1), KILN_E_FORMAT);
	assert_false(exists(path));
	assert_true(exists(aside));
	assert_int_equal(get(tier, 1), KILN_MISS);
	assert_int_equal(put(tier, 1, "value", 5, 0), KILN_OK);
	assert_int_equal(get(tier, 1), KILN_OK);

	/* A create-only put finds damage under the name, too. */
	harness_write(path, "junk", 4);
	assert_int_equal(put(tier, 1, "value", 5, 0), KILN_OK);
	assert_int_equal(get(tier, 1), KILN_OK);

	/* S12: a rename into the quarantine that was cut short. */
	assert_int_equal(unlink(path), 0);
	twin = harness_path(aside, strrchr(path, '/') + 1);
	assert_int_equal(link(twin, path), 0);
	assert_int_equal(get(tier, 1), KILN_E_FORMAT);
	assert_false(exists(path));
	assert_int_equal(put(tier, 1, "value", 5, 0), KILN_OK);
	assert_int_equal(get(tier, 1), KILN_OK);
	free(twin);
	tier->ops->close(tier);
	free(aside);
	free(path);
	free(directory);
}

/* S15 */
static void foreign_things_under_our_names_are_misses(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_store(&ki_sys_posix, directory, 0, 0);
	struct kiln_verify_report report;
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;

	for (unsigned n = 0; n < 5; n++) {
		char *path = path_of(directory, n);

		assert_int_equal(put(tier, n, "value", 5, 0), KILN_OK);
		assert_int_equal(unlink(path), 0);
		switch (n) {
		case 0:
			assert_int_equal(mkdir(path, 0700), 0);
			break;
		case 1:
			assert_int_equal(mkfifo(path, 0600), 0);
			break;
		case 2:
			assert_int_equal(symlink("/etc/passwd", path), 0);
			break;
		case 3:
			assert_int_equal(symlink(path, path), 0);
			break;
		case 4:
			assert_int_equal(symlink("/nowhere", path), 0);
			break;
		}
		assert_int_equal(get(tier, n), KILN_MISS);
		assert_true(exists(path));
		free(path);
	}
	assert_int_equal(tier->ops->verify(tier, KILN_VERIFY_REPAIR, NULL, NULL,
					   &report),
			 KILN_OK);
	assert_int_equal(report.n_entries, 0);
	assert_int_equal(report.n_damaged, 0);
	assert_int_equal(tier->ops->list(tier, &cursor, &entry), KILN_END);
	tier->ops->close(tier);
	free(directory);
}

/* S15: nor are they moved or written over. */
static void a_put_leaves_foreign_things_alone(void **state)
{
	static const unsigned flags[] = { 0, KILN_PUT_REPLACE };
	char *directory = harness_directory();
	struct kiln_tier *tier = open_store(&ki_sys_posix, directory, 0, 0);
	struct stat before, after;

	for (unsigned n = 0; n < 6; n++) {
		char *path = path_of(directory, n);

		assert_int_equal(put(tier, n, "value", 5, 0), KILN_OK);
		assert_int_equal(unlink(path), 0);
		switch (n % 3) {
		case 0:
			assert_int_equal(mkdir(path, 0700), 0);
			break;
		case 1:
			assert_int_equal(mkfifo(path, 0600), 0);
			break;
		case 2:
			assert_int_equal(symlink("/nowhere", path), 0);
			break;
		}
		assert_int_equal(lstat(path, &before), 0);
		assert_int_equal(put(tier, n, "value", 5, flags[n / 3]),
				 KILN_E_COLLISION);
		assert_int_equal(lstat(path, &after), 0);
		assert_int_equal(before.st_ino, after.st_ino);
		assert_int_equal(before.st_mode, after.st_mode);
		free(path);
	}
	tier->ops->close(tier);
	free(directory);
}

static void a_claimed_name_does_not_block_a_put(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_store(&ki_sys_posix, directory, 0, 0);
	char *path = path_of(directory, 1);

	assert_int_equal(put(tier, 1, "value", 5, 0), KILN_OK);
	harness_write(path, "", 0);
	assert_int_equal(get(tier, 1), KILN_MISS);
	assert_int_equal(put(tier, 1, "value", 5, 0), KILN_OK);
	assert_int_equal(get(tier, 1), KILN_OK);
	tier->ops->close(tier);
	free(path);
	free(directory);
}

/* ---- Others in between ------------------------------------------------------- */

/* Everything of the real system, and at one moment somebody else comes in. */
static struct {
	struct ki_sys sys;
	char *directory;
	int has_linked, has_renamed, dies_at_unlink;
} between;

static int link_and_remove(const struct ki_sys *sys, const char *from,
			   const char *to)
{
	int err = ki_sys_posix.link(&ki_sys_posix, from, to);

	if (err == -EEXIST && !between.has_linked++) {
		struct kiln_tier *other =
			open_store(&ki_sys_posix, between.directory, 0, 0);
		struct kiln_key *key = key_of(1);

		assert_int_equal(other->ops->remove(other, key), KILN_OK);
		kiln_key_free(key);
		other->ops->close(other);
	}
	return err;
}

static int put_and_rename(const struct ki_sys *sys, const char *from,
			  const char *to)
{
	if (strstr(to, "/quarantine/") && !between.has_renamed++) {
		struct kiln_tier *other =
			open_store(&ki_sys_posix, between.directory, 0, 0);

		assert_int_equal(put(other, 1, "other's", 7, KILN_PUT_REPLACE),
				 KILN_OK);
		other->ops->close(other);
	}
	return ki_sys_posix.rename(&ki_sys_posix, from, to);
}

static int die_or_unlink(const struct ki_sys *sys, const char *path)
{
	if (between.dies_at_unlink && !strstr(path, KI_TEMPORARY_SUFFIX))
		_exit(9);
	return ki_sys_posix.unlink(&ki_sys_posix, path);
}

static const struct ki_sys *sys_between(char *directory)
{
	memset(&between, 0, sizeof(between));
	between.directory = directory;
	between.sys = ki_sys_posix;
	between.sys.link = link_and_remove;
	between.sys.rename = put_and_rename;
	between.sys.unlink = die_or_unlink;
	return &between.sys;
}

static void expect_bytes(struct kiln_tier *tier, unsigned n, const char *value)
{
	struct kiln_key *key = key_of(n);
	struct kiln_blob *blob = NULL;

	assert_int_equal(tier->ops->get(tier, key, &blob, NULL), KILN_OK);
	assert_int_equal(kiln_blob_size(blob), strlen(value));
	assert_memory_equal(kiln_blob_data(blob), value, strlen(value));
	kiln_blob_unref(blob);
	kiln_key_free(key);
}

static void a_name_that_was_freed_meanwhile_is_tried_again(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier =
		open_store(sys_between(directory), directory, 0, 0);
	char *aside = harness_path(directory, "kiln.files/quarantine");

	assert_int_equal(put(tier, 1, "first", 5, 0), KILN_OK);
	assert_int_equal(put(tier, 1, "mine", 4, 0), KILN_OK);
	expect_bytes(tier, 1, "mine");
	assert_true(between.has_linked);
	assert_false(exists(aside)); /* nothing was damaged */
	tier->ops->close(tier);
	free(aside);
	free(directory);
}

/* Whoever finds it: a look-up, a removal, a create-only put. */
static void only_the_damaged_file_is_put_aside(void **state)
{
	for (int who = 0; who < 3; who++) {
		char *directory = harness_directory();
		struct kiln_tier *tier =
			open_store(sys_between(directory), directory, 0, 0);
		char *path = path_of(directory, 1);
		struct kiln_key *key = key_of(1);

		between.has_linked = 1; /* nobody removes here */
		assert_int_equal(put(tier, 1, "value", 5, 0), KILN_OK);
		harness_write(path, "junk", 4);
		switch (who) {
		case 0:
			assert_int_equal(get(tier, 1), KILN_E_FORMAT);
			break;
		case 1:
			assert_int_equal(tier->ops->remove(tier, key),
					 KILN_MISS);
			break;
		case 2:
			assert_int_equal(put(tier, 1, "mine", 4, 0),
					 KILN_EXISTS);
			break;
		}
		assert_true(between.has_renamed);
		expect_bytes(tier, 1, "other's");
		kiln_key_free(key);
		free(path);
		tier->ops->close(tier);
		free(directory);
	}
}

static enum kiln_status open_version(const struct ki_sys *sys,
				     const char *directory,
				     uint64_t user_version,
				     struct kiln_tier **out_tier)
{
	struct ki_store_options options = { .sys = sys,
					    .directory = directory,
					    .user_version = user_version };

	return ki_store_file_open(&options, out_tier);
}

/* S11: killed while it makes room for the next version. */
static void nothing_of_another_user_version_is_a_hit(void **state)
{
	char *directory = harness_directory();
	const struct ki_sys *sys = sys_between(directory);
	struct kiln_tier *old, *tier;
	pid_t child;
	int status;

	assert_int_equal(open_version(&ki_sys_posix, directory, 1, &old),
			 KILN_OK);
	assert_int_equal(put(old, 1, "of the first", 12, 0), KILN_OK);
	child = fork();
	if (!child) {
		between.dies_at_unlink = 1;
		(void)open_version(sys, directory, 2, &tier);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(WEXITSTATUS(status), 9);
	assert_int_equal(open_version(&ki_sys_posix, directory, 2, &tier),
			 KILN_OK);
	assert_int_equal(get(tier, 1), KILN_MISS);
	assert_int_equal(put(tier, 2, "of the second", 13, 0), KILN_OK);
	assert_int_equal(put(old, 1, "of the first", 12, 0), KILN_E_FORMAT);
	assert_int_equal(get(old, 2), KILN_MISS);
	old->ops->close(old);
	tier->ops->close(tier);
	free(directory);
}

/* Not even where it was written by who did not know yet. */
static void a_file_says_of_which_user_version_it_is(void **state)
{
	char *directory = harness_directory();
	char *path = path_of(directory, 1);
	struct kiln_tier *tier;
	size_t size;
	char *bytes;

	assert_int_equal(open_version(&ki_sys_posix, directory, 1, &tier),
			 KILN_OK);
	assert_int_equal(put(tier, 1, "of the first", 12, 0), KILN_OK);
	bytes = harness_read(path, &size);
	tier->ops->close(tier);
	assert_int_equal(open_version(&ki_sys_posix, directory, 2, &tier),
			 KILN_OK);
	harness_write(path, bytes, size);
	assert_int_equal(get(tier, 1), KILN_MISS);
	assert_int_equal(put(tier, 1, "of the second", 13, 0), KILN_OK);
	expect_bytes(tier, 1, "of the second");
	tier->ops->close(tier);
	free(bytes);
	free(path);
	free(directory);
}

/* A wipe by who has not looked for a while, and after one by another. */
static void what_others_have_set_is_changed_from_as_it_is(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *a = open_store(&ki_sys_posix, directory, 64 << 20, 0);
	struct kiln_tier *b = open_store(&ki_sys_posix, directory, 64 << 20, 0);
	struct kiln_store_info info;
	uint64_t generations[3];

	assert_int_equal(b->ops->set_limit(b, 4 << 20), KILN_OK);
	assert_int_equal(b->ops->wipe(b), KILN_OK);
	generations[0] = *b->generation;
	generations[1] = *a->generation;
	assert_int_equal(a->ops->wipe(a), KILN_OK);
	generations[2] = *a->generation;
	assert_int_not_equal(generations[0], generations[1]);
	assert_int_not_equal(generations[2], generations[0]);
	assert_int_not_equal(generations[2], generations[1]);
	assert_int_equal(a->ops->info(a, &info), KILN_OK);
	assert_int_equal(info.bytes_max, 4 << 20);
	a->ops->close(a);
	b->ops->close(b);
	free(directory);
}

/* S34: by our own note of the last use, not by access times. */
static void a_hit_after_a_minute_renews_the_last_use(void **state)
{
	char *directory = harness_directory();
	struct ki_sys sys = shifted_sys();
	struct kiln_tier *tier = open_store(&sys, directory, 0, 0);
	char *path = path_of(directory, 1);
	struct timespec old[2] = { { 1000, 0 }, { 1000, 0 } };
	struct stat before, after;

	assert_int_equal(put(tier, 1, "value", 5, 0), KILN_OK);
	assert_int_equal(stat(path, &before), 0);
	assert_int_equal(get(tier, 1), KILN_OK);
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);

	assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
	assert_int_equal(get(tier, 1), KILN_OK);
	assert_int_equal(stat(path, &after), 0);
	assert_true(after.st_mtim.tv_sec > 1000);

	/* S33: a time in the future, left by a clock that was wrong. */
	old[1].tv_sec = after.st_mtim.tv_sec + 1000000;
	assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
	assert_int_equal(get(tier, 1), KILN_OK);
	assert_int_equal(stat(path, &after), 0);
	assert_true(after.st_mtim.tv_sec < old[1].tv_sec);
	tier->ops->close(tier);
	free(path);
	free(directory);
}

static void an_entry_unused_for_too_long_is_gone(void **state)
{
	char *directory = harness_directory();
	char *path = path_of(directory, 1);
	struct ki_sys sys = shifted_sys();
	struct ki_store_options options = { .sys = &sys,
					    .directory = directory,
					    .age_max_s = 7200 };
	struct kiln_tier *tier;

	assert_int_equal(ki_store_file_open(&options, &tier), KILN_OK);
	assert_int_equal(put(tier, 1, "value", 5, 0), KILN_OK);
	shift_ns = HOUR_NS;
	assert_int_equal(get(tier, 1), KILN_OK);
	shift_ns = -24 * HOUR_NS;
	assert_int_equal(get(tier, 1), KILN_OK);
	shift_ns = 3 * HOUR_NS;
	assert_int_equal(get(tier, 1), KILN_MISS);
	assert_false(exists(path));
	tier->ops->close(tier);
	free(path);
	free(directory);
}

static void a_dead_writers_temporary_is_swept(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier =
		open_store(&ki_sys_posix, directory, (uint64_t)1 << 20, 0);
	struct timespec old[2] = { { 1000, 0 }, { 1000, 0 } };
	struct kiln_verify_report report;
	char *entry = path_of(directory, 1);
	char *dead, *alive;

	assert_int_equal(put(tier, 1, "value", 5, 0), KILN_OK);
	assert_true(asprintf(&dead, "%s.0000000000000001.tmp", entry) > 0);
	assert_true(asprintf(&alive, "%s.0000000000000002.tmp", entry) > 0);
	harness_write(dead, "half", 4);
	harness_write(alive, "half", 4);
	assert_int_equal(utimensat(AT_FDCWD, dead, old, 0), 0);
	assert_int_equal(tier->ops->verify(tier, KILN_VERIFY_REPAIR, NULL, NULL,
					   &report),
			 KILN_OK);
	assert_false(exists(dead));
	assert_true(exists(alive));
	assert_int_equal(report.n_entries, 1);
	tier->ops->close(tier);
	free(alive);
	free(dead);
	free(entry);
	free(directory);
}

/* S49 */
static void a_lost_account_is_counted_anew(void **state)
{
	char *directory = harness_directory();
	char *usage = harness_path(directory, "kiln.files/usage");
	const uint64_t bytes_max = (uint64_t)1 << 20;
	struct kiln_tier *tier =
		open_store(&ki_sys_posix, directory, bytes_max, 0);
	struct kiln_store_info info;
	static char value[30000];

	for (unsigned n = 0; n < 100; n++) {
		if (n % 10 == 3)
			unlink(usage);
		if (n % 10 == 7)
			harness_write(usage, "junk", 4);
		assert_int_equal(put(tier, n, value, sizeof(value), 0),
				 KILN_OK);
		assert_int_equal(tier->ops->info(tier, &info), KILN_OK);
		assert_true(info.bytes <= bytes_max);
		assert_int_equal(get(tier, n), KILN_OK);
	}
	tier->ops->close(tier);
	free(usage);
	free(directory);
}

/* S49: a power loss brought back what `usage` said long before. */
static void after_another_boot_all_is_counted_first(void **state)
{
	char *directory = harness_directory();
	char *usage = harness_path(directory, "kiln.files/usage");
	const uint64_t bytes_max = (uint64_t)1 << 20;
	struct kiln_tier *tier =
		open_store(&ki_sys_posix, directory, bytes_max, 0);
	static char value[10000];
	size_t size;
	char *early;

	assert_int_equal(put(tier, 0, value, sizeof(value), 0), KILN_OK);
	early = harness_read(usage, &size);
	for (unsigned n = 1; n < 60; n++)
		assert_int_equal(put(tier, n, value, sizeof(value), 0),
				 KILN_OK);
	tier->ops->close(tier);
	harness_write(usage, early, size);

	tier = open_store(&ki_sys_posix, directory, bytes_max, 0);
	((struct ki_file_store *)tier)->writer.boot ^= 1;
	for (unsigned n = 60; n < 120; n++) {
		assert_int_equal(put(tier, n, value, sizeof(value), 0),
				 KILN_OK);
		assert_true(harness_disk_bytes(directory) <= bytes_max);
	}
	tier->ops->close(tier);
	free(early);
	free(usage);
	free(directory);
}

/* S31: what a network file system may answer. */
static int no_locks(const struct ki_sys *sys, int fd, enum ki_lock_kind kind,
		    uint64_t offset, uint64_t size)
{
	return -ENOLCK;
}

static int no_links(const struct ki_sys *sys, const char *from, const char *to)
{
	return -EOPNOTSUPP;
}

static int stale_open(const struct ki_sys *sys, const char *path,
		      unsigned flags, unsigned mode)
{
	return flags & KI_OPEN_WRITE ? ki_sys_posix.open(sys, path, flags, mode)
				     : -ESTALE;
}

static void without_locks_and_links_all_but_single_flight_works(void **state)
{
	char *directory = harness_directory();
	struct ki_sys sys = ki_sys_posix;
	struct kiln_key *key = key_of(1);
	struct kiln_tier_lock *lock;
	struct kiln_store_info info;
	struct kiln_tier *tier;
	static char value[30000];

	sys.try_lock = no_locks;
	sys.link = no_links;
	tier = open_store(&sys, directory, (uint64_t)1 << 20, 0);
	for (unsigned n = 0; n < 60; n++) {
		assert_int_equal(put(tier, n, value, sizeof(value), 0),
				 KILN_OK);
		assert_int_equal(put(tier, n, value, sizeof(value), 0),
				 KILN_EXISTS);
		assert_int_equal(get(tier, n), KILN_OK);
	}
	assert_int_equal(tier->ops->info(tier, &info), KILN_OK);
	assert_true(info.bytes <= (uint64_t)1 << 20);
	assert_int_equal(tier->ops->lock(tier, key, 0, &lock),
			 KILN_E_UNSUPPORTED);
	tier->ops->close(tier);
	kiln_key_free(key);
	free(directory);
}

static void a_stale_handle_is_a_miss(void **state)
{
	char *directory = harness_directory();
	struct ki_sys sys = ki_sys_posix;
	struct kiln_tier *tier = open_store(&sys, directory, 0, 0);

	assert_int_equal(put(tier, 1, "value", 5, 0), KILN_OK);
	sys.open = stale_open;
	assert_int_equal(get(tier, 1), KILN_MISS);
	sys.open = ki_sys_posix.open;
	assert_int_equal(get(tier, 1), KILN_OK);
	tier->ops->close(tier);
	free(directory);
}

/* S17 */
static void a_newer_stores_files_are_left_alone(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.files/settings");
	struct ki_store_options options = { .sys = &ki_sys_posix,
					    .directory = directory };
	struct kiln_tier *tier = open_store(&ki_sys_posix, directory, 0, 0);
	size_t size, again_size;
	char *bytes, *again;

	tier->ops->close(tier);
	bytes = harness_read(path, &size);
	bytes[4]++;
	ki_put_u64(bytes + 56, ki_xxh3_64(bytes, 56));
	harness_write(path, bytes, size);
	assert_int_equal(ki_store_file_open(&options, &tier), KILN_E_FORMAT);
	again = harness_read(path, &again_size);
	assert_int_equal(size, again_size);
	assert_memory_equal(bytes, again, size);
	free(again);
	free(bytes);
	free(path);
	free(directory);
}

static void expect_mode(const char *directory, const char *name, unsigned mode)
{
	char *path = harness_path(directory, name);
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	if ((st.st_mode & 07777) != mode)
		fail_msg("%s: mode %o", path, st.st_mode & 07777);
	free(path);
}

/* S35 */
static void a_shared_store_is_open_to_the_group_whatever_the_umask(void **state)
{
	char *directory = harness_directory();
	char *below = harness_path(directory, "store");
	struct kiln_key *key = key_of(1);
	mode_t before = umask(077);
	struct kiln_tier *tier = open_store(
		&ki_sys_posix, below, (uint64_t)1 << 20, KILN_OPEN_SHARED);
	char digits[2 * KILN_DIGEST_BYTES + 1], name[64];
	struct kiln_tier_lock *lock;

	assert_int_equal(put(tier, 1, "value", 5, 0), KILN_OK);
	assert_int_equal(tier->ops->lock(tier, key, 0, &lock), KILN_OK);
	tier->ops->unlock(tier, lock);
	umask(before);
	ki_hex(key->digest, KILN_DIGEST_BYTES, digits);
	expect_mode(below, "kiln.files", 02770);
	expect_mode(below, "kiln.files/settings", 0660);
	expect_mode(below, "kiln.files/usage", 0660);
	expect_mode(below, "kiln.files/lock", 0660);
	snprintf(name, sizeof(name), "kiln.files/%.2s", digits);
	expect_mode(below, name, 02770);
	snprintf(name, sizeof(name), "kiln.files/%.2s/%s", digits, digits);
	expect_mode(below, name, 0660);
	tier->ops->close(tier);
	kiln_key_free(key);
	free(below);
	free(directory);
}

static void a_bound_too_small_for_anything_is_refused(void **state)
{
	char *directory = harness_directory();
	struct ki_store_options options = { .sys = &ki_sys_posix,
					    .directory = directory,
					    .bytes_max = 1000 };
	struct kiln_tier *tier;

	assert_int_equal(ki_store_file_open(&options, &tier), KILN_E_FULL);
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_damaged_entry_is_put_aside_and_made_anew),
		cmocka_unit_test(foreign_things_under_our_names_are_misses),
		cmocka_unit_test(a_put_leaves_foreign_things_alone),
		cmocka_unit_test(a_claimed_name_does_not_block_a_put),
		cmocka_unit_test(
			a_name_that_was_freed_meanwhile_is_tried_again),
		cmocka_unit_test(only_the_damaged_file_is_put_aside),
		cmocka_unit_test(nothing_of_another_user_version_is_a_hit),
		cmocka_unit_test(a_file_says_of_which_user_version_it_is),
		cmocka_unit_test(what_others_have_set_is_changed_from_as_it_is),
		cmocka_unit_test(a_hit_after_a_minute_renews_the_last_use),
		cmocka_unit_test(an_entry_unused_for_too_long_is_gone),
		cmocka_unit_test(a_dead_writers_temporary_is_swept),
		cmocka_unit_test(a_lost_account_is_counted_anew),
		cmocka_unit_test(after_another_boot_all_is_counted_first),
		cmocka_unit_test(
			without_locks_and_links_all_but_single_flight_works),
		cmocka_unit_test(a_stale_handle_is_a_miss),
		cmocka_unit_test(a_newer_stores_files_are_left_alone),
		cmocka_unit_test(
			a_shared_store_is_open_to_the_group_whatever_the_umask),
		cmocka_unit_test(a_bound_too_small_for_anything_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
