/* SPDX-License-Identifier: MIT */

/*
 * When the directory is counted and when config.file is believed, and what
 * counts; docs/formats/neo-situations.md has where the rest is.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/interpose.h"

#include "store/neo/helpers_test.h"

#define SUM 70000

static unsigned n_opened; /* directories */
static const char *to_be_made;
static int is_late, is_refused;

static int count_opendir(const struct ki_sys *sys, const char *path,
			 struct ki_dir **out_dir)
{
	n_opened++;
	return is_refused ? -EIO : real->opendir(real, path, out_dir);
}

static void make_late(void)
{
	static const uint8_t sum[8] = { SUM & 255, SUM >> 8 & 255, SUM >> 16 };

	harness_write(to_be_made, sum, sizeof(sum));
	is_late = 0;
}

/* Somebody else makes config.file just before we would. */
static int late_rename_new(const struct ki_sys *sys, const char *from,
			   const char *to)
{
	if (is_late && !strcmp(to, to_be_made))
		make_late();
	return real->rename_new(real, from, to);
}

/* Or has made it, and gets to his sum while we wait. */
static void late_sleep_ns(const struct ki_sys *sys, uint64_t ns)
{
	if (is_late)
		make_late();
	real->sleep_ns(real, ns);
}

static struct ki_sys counting(void)
{
	struct ki_sys sys = ki_sys_posix;

	INTERPOSE(&sys, count, opendir);
	INTERPOSE(&sys, late, rename_new);
	n_opened = 0;
	is_late = is_refused = 0;
	return sys;
}

static void a_sum_that_is_there_is_believed(void **state)
{
	char *directory = harness_directory();
	char *config = harness_path(directory, "config.file");
	struct ki_sys sys = counting();
	struct kiln_tier *tier;

	free(plant(directory, "0123456789abcdef.cl_cache", 5000, 1));
	tier = open_with(&sys, directory, 1 << 20, 0, NULL);
	assert_int_equal(put(tier, 1, 100), KILN_OK);
	assert_int_equal(sum_of(directory), 5100);
	assert_true(n_opened > 0);
	n_opened = 0;
	assert_int_equal(put(tier, 2, 100), KILN_OK);
	assert_int_equal(sum_of(directory), 5200);
	assert_int_equal(n_opened, 0);
	/* Whoever deletes it has it counted. */
	assert_int_equal(unlink(config), 0);
	assert_int_equal(put(tier, 3, 100), KILN_OK);
	assert_int_equal(sum_of(directory), 5300);
	assert_true(n_opened > 0);
	tier->ops->close(tier);
	free(config);
	free(directory);
}

static void who_makes_config_file_meanwhile_has_counted(void **state)
{
	char *directory = harness_directory();
	char *config = harness_path(directory, "config.file");
	struct ki_sys sys = counting();
	struct kiln_tier *tier;

	tier = open_with(&sys, directory, 1 << 20, 0, NULL);
	to_be_made = config;
	is_late = 1;
	assert_int_equal(put(tier, 1, 100), KILN_OK);
	assert_int_equal(is_late, 0);
	assert_int_equal(sum_of(directory), SUM + 100);
	tier->ops->close(tier);
	free(config);
	free(directory);
}

/* A flat original that made it counts when it has the lock, without what a tree
   has by then, and writes that over whatever is there. */
static void an_empty_config_file_is_left_to_its_maker(void **state)
{
	char *directory = harness_directory();
	char *config = harness_path(directory, "config.file");
	struct ki_sys sys = counting();
	struct kiln_tier *tier = open_with(&sys, directory, 1 << 20, 0, NULL);

	INTERPOSE(&sys, late, sleep_ns);
	to_be_made = config;
	harness_write(config, "", 0);
	is_late = 1;
	assert_int_equal(put(tier, 1, 100), KILN_OK);
	assert_int_equal(is_late, 0);
	assert_int_equal(sum_of(directory), SUM + 100);
	/* Of one that is gone nothing comes. */
	harness_write(config, "", 0);
	assert_int_equal(put(tier, 2, 100), KILN_OK);
	assert_int_equal(sum_of(directory), 200);
	tier->ops->close(tier);
	free(config);
	free(directory);
}

static void what_cannot_be_counted_is_not_added_to(void **state)
{
	char *directory = harness_directory();
	struct ki_sys sys = counting();
	struct kiln_tier *tier = open_with(&sys, directory, 1 << 20, 0, NULL);

	free(plant(directory, "0123456789abcdef.cl_cache", 5000, 1));
	is_refused = 1;
	assert_int_equal(put(tier, 1, 100), KILN_E_IO);
	assert_int_equal(get(tier, 1), KILN_MISS);
	is_refused = 0;
	assert_int_equal(put(tier, 1, 100), KILN_OK);
	assert_int_equal(sum_of(directory), 5100);
	tier->ops->close(tier);
	free(directory);
}

static void only_regular_files_in_their_place_count(void **state)
{
	static const char *const directories[] = {
		"0000000000000001.cl_cache", "a", "a/b", "a/b/c", "a/bc", "g"
	};
	static const struct {
		const char *name;
		size_t size;
	} files[] = { { "a/b/ab00000000000000.cl_cache", 1 },
		      { "a/b/ab00000000000000.l0_cache", 20 },
		      { "a/b/ab00000000000000.ocloc_cache", 300 },
		      { "ab00000000000000.cl_cache", 4000 },
		      { "a/b/c/ab00000000000000.cl_cache", 50000 },
		      { "a/bc/ab00000000000000.cl_cache", 50000 },
		      { "a/ab00000000000000.cl_cache", 50000 },
		      { "g/ab00000000000000.cl_cache", 50000 },
		      { "cl_cache.AbCdEf", 50000 },
		      { "ab00000000000000.cl_cache.old", 50000 },
		      { "ab00000000000000.trace", 50000 },
		      { "stats", 50000 } };
	char *directory = harness_directory(), *path;
	struct kiln_tier *tier;

	for (unsigned i = 0; i < sizeof(directories) / sizeof(*directories);
	     i++) {
		path = harness_path(directory, directories[i]);
		assert_int_equal(mkdir(path, 0700), 0);
		free(path);
	}
	for (unsigned i = 0; i < sizeof(files) / sizeof(*files); i++)
		free(plant(directory, files[i].name, files[i].size, 0));
	path = harness_path(directory, "0000000000000002.cl_cache");
	assert_int_equal(mkfifo(path, 0600), 0);
	free(path);
	tier = open_with(&ki_sys_posix, directory, 1 << 20, 0, "tree");
	assert_int_equal(put(tier, 1, 60000), KILN_OK);
	assert_int_equal(sum_of(directory), 64321);
	tier->ops->close(tier);
	free(directory);
}

/* ---- Who finds no sum leaves one ---------------------------------------------- */

static enum kiln_status put_again(struct kiln_tier *tier)
{
	return put(tier, 0, 4096);
}

static enum kiln_status put_where_a_driver_is(struct kiln_tier *tier)
{
	return put(tier, 1, 100);
}

static enum kiln_status put_another(struct kiln_tier *tier)
{
	return put(tier, 2, 100);
}

static enum kiln_status put_in_place(struct kiln_tier *tier)
{
	return put_flags(tier, 0, 50, KILN_PUT_REPLACE);
}

/* What is there lacks some of the bytes; has them all. */
static enum kiln_status put_over_torn(struct kiln_tier *tier)
{
	return put(tier, 3, 3000);
}

static enum kiln_status put_over_same(struct kiln_tier *tier)
{
	return put(tier, 4, 3000);
}

static enum kiln_status remove_own(struct kiln_tier *tier)
{
	struct kiln_key *key = key_of(0);
	enum kiln_status status = tier->ops->remove(tier, key);

	kiln_key_free(key);
	return status;
}

static enum kiln_status remove_a_drivers(struct kiln_tier *tier)
{
	struct kiln_key *key;
	enum kiln_status status;

	assert_int_equal(ki_neo_foreign_key("0123456789abcdef.l0_cache", &key),
			 KILN_OK);
	status = tier->ops->remove(tier, key);
	kiln_key_free(key);
	return status;
}

static enum kiln_status get_damaged(struct kiln_tier *tier)
{
	char *path = path_of(tier, 0);
	struct timespec times[2];
	struct stat info;
	char bytes[4096] = { 0 };

	assert_int_equal(stat(path, &info), 0);
	harness_write(path, bytes, sizeof(bytes));
	times[0] = info.st_atim;
	times[1] = info.st_mtim;
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	free(path);
	return get(tier, 0);
}

static enum kiln_status get_replaced(struct kiln_tier *tier)
{
	char *path = path_of(tier, 0), bytes[4096] = "theirs";

	replace_file(path, bytes, sizeof(bytes));
	free(path);
	return get(tier, 0);
}

static enum kiln_status open_as_another_version(struct kiln_tier *tier)
{
	const struct ki_store_options options = {
		.sys = neo_of(tier)->sys,
		.directory = neo_of(tier)->directory,
		.user_version = 7,
	};
	struct kiln_tier *other;
	enum kiln_status status = ki_store_neo_open(&options, &other);

	if (!status)
		other->ops->close(other);
	return status;
}

static enum kiln_status ask_for_info(struct kiln_tier *tier)
{
	struct kiln_store_info info;

	return tier->ops->info(tier, &info);
}

static enum kiln_status collect(struct kiln_tier *tier)
{
	const struct kiln_gc_options options = { 0 };
	struct kiln_gc_report report;

	return tier->ops->gc(tier, &options, NULL, NULL, &report);
}

static enum kiln_status verify_sum(struct kiln_tier *tier)
{
	struct kiln_verify_report report;

	return tier->ops->verify(tier, KILN_VERIFY_ACCOUNTING, NULL, NULL,
				 &report);
}

static enum kiln_status set_limit(struct kiln_tier *tier)
{
	return tier->ops->set_limit(tier, 500000);
}

static enum kiln_status wipe(struct kiln_tier *tier)
{
	return tier->ops->wipe(tier);
}

static const struct operation {
	const char *name;
	enum kiln_status (*run)(struct kiln_tier *tier);
	enum kiln_status status; /* where all goes well */
} operations[] = {
	{ "put again", put_again, KILN_EXISTS },
	{ "put, name taken", put_where_a_driver_is, KILN_E_COLLISION },
	{ "put", put_another, KILN_OK },
	{ "replace", put_in_place, KILN_OK },
	{ "put over a torn file", put_over_torn, KILN_OK },
	{ "put over the same bytes", put_over_same, KILN_OK },
	{ "remove", remove_own, KILN_OK },
	{ "remove a driver's", remove_a_drivers, KILN_OK },
	{ "get, damaged", get_damaged, KILN_E_FORMAT },
	{ "get, replaced", get_replaced, KILN_MISS },
	{ "another version", open_as_another_version, KILN_OK },
	{ "info", ask_for_info, KILN_OK },
	{ "gc", collect, KILN_OK },
	{ "verify", verify_sum, KILN_OK },
	{ "set limit", set_limit, KILN_OK },
	{ "wipe", wipe, KILN_OK },
};
#define N_OPERATIONS (sizeof(operations) / sizeof(*operations))

/* Entry 0 is kiln's; the names of 1, 3 and 4 are taken. */
static struct kiln_tier *open_peopled(const struct ki_sys *sys,
				      const char *directory)
{
	struct kiln_tier *tier = open_with(sys, directory, 1 << 20, 0, "flat");
	char *path = path_of(tier, 3), bytes[3000];

	assert_int_equal(put(tier, 0, 4096), KILN_OK);
	memset(bytes, 4, sizeof(bytes));
	memset(bytes + 1024, 0, sizeof(bytes) - 1024);
	harness_write(path, bytes, sizeof(bytes));
	free(path);
	path = path_of(tier, 4);
	memset(bytes, 5, sizeof(bytes));
	harness_write(path, bytes, sizeof(bytes));
	free(path);
	path = path_of(tier, 1);
	harness_write(path, "intel", 5);
	free(path);
	free(plant(directory, "0123456789abcdef.l0_cache", 60000, 0));
	free(plant(directory, "a0123456789abcdef.cl_cache", 900, 0));
	return tier;
}

static void check_sum(const char *directory, const struct operation *operation,
		      const char *state)
{
	const uint64_t sum = sum_of(directory), there = sum_there(directory);

	if (sum != there)
		fail_msg("%s, config.file %s: sum %llu of %llu",
			 operation->name, state, (unsigned long long)sum,
			 (unsigned long long)there);
}

static void set_sum(const char *directory, uint64_t sum)
{
	uint8_t bytes[8];

	ki_put_u64(bytes, sum);
	write_sum(directory, bytes, sizeof(bytes));
}

/* S49.  An original reads the bytes that are missing as zeros. */
static void whoever_finds_no_sum_leaves_the_right_one(void **state)
{
	static const char *const states[] = { "none", "empty", "short",
					      "right" };

	for (unsigned i = 0; i < 4 * N_OPERATIONS; i++) {
		const struct operation *operation = &operations[i / 4];
		char *directory = harness_directory();
		char *config = harness_path(directory, "config.file");
		struct kiln_tier *tier = open_peopled(&ki_sys_posix, directory);

		if (i % 4 == 0)
			assert_int_equal(unlink(config), 0);
		else if (i % 4 < 3)
			write_sum(directory, "\1\1\1\1", i % 4 == 1 ? 0 : 4);
		else
			set_sum(directory, sum_there(directory));
		assert_int_equal(operation->run(tier), operation->status);
		check_sum(directory, operation, states[i % 4]);
		tier->ops->close(tier);
		free(config);
		free(directory);
	}
}

/* Where power was lost before or after the sum was written. */
static void what_is_taken_over_is_counted_once(void **state)
{
	static const struct operation rows[] = {
		{ "torn", put_over_torn, KILN_OK },
		{ "same", put_over_same, KILN_OK },
	};

	for (unsigned i = 0; i < 4; i++) {
		char *directory = harness_directory();
		struct kiln_tier *tier = open_peopled(&ki_sys_posix, directory);

		set_sum(directory, sum_there(directory) - i / 2 * 3000);
		assert_int_equal(rows[i % 2].run(tier), KILN_OK);
		check_sum(directory, &rows[i % 2],
			  i / 2 ? "lacks it" : "right");
		tier->ops->close(tier);
		free(directory);
	}
}

/* Directories cannot be read, or nothing can be written into config.file: then
   it stays what it was.  An original may wait for the lock of it, and would have
   one of a file that is no more. */
static ssize_t refuse_pwritev(const struct ki_sys *sys, int fd,
			      const struct ki_piece *pieces, int n_pieces,
			      uint64_t offset)
{
	if (is_refused && n_pieces == 1 && pieces->size == 8 && !offset)
		return -ENOSPC;
	return real->pwritev(real, fd, pieces, n_pieces, offset);
}

static void prepare_config(const char *directory, const char *config,
			   unsigned state)
{
	if (state == 0)
		assert_int_equal(unlink(config), 0);
	else if (state == 1)
		write_sum(directory, "\1\1\1", 3);
	else
		set_sum(directory, sum_there(directory));
}

/* In the state of before: none, short, right. */
static void check_config(const char *directory, const char *config,
			 unsigned state, const struct stat *before,
			 const char *name)
{
	struct stat after = { 0 };
	const int is_there = !stat(config, &after);

	if (state == 0 ? is_there
		       : !is_there || after.st_ino != before->st_ino ||
				 after.st_size != before->st_size)
		fail_msg("%s, %u: config.file is not as it was", name, state);
	/* Others' entries are in it: it is not too low, whoever died. */
	if (state == 2 && sum_of(directory) < sum_there(directory))
		fail_msg("%s: a sum that is too low", name);
}

static void where_no_sum_can_be_had_config_file_stays_as_it_was(void **state)
{
	for (unsigned i = 0; i < 6 * N_OPERATIONS; i++) {
		const struct operation *operation = &operations[i / 6];
		char *directory = harness_directory();
		char *config = harness_path(directory, "config.file");
		struct ki_sys sys = counting();
		struct kiln_tier *tier;
		struct stat before;

		if (i % 2) {
			sys.opendir = real->opendir;
			INTERPOSE(&sys, refuse, pwritev);
		}
		tier = open_peopled(&sys, directory);
		prepare_config(directory, config, i / 2 % 3);
		(void)stat(config, &before);
		is_refused = 1;
		(void)operation->run(tier);
		check_config(directory, config, i / 2 % 3, &before,
			     operation->name);
		is_refused = 0;
		assert_int_equal(put(tier, 5, 100), KILN_OK);
		if (i / 2 % 3 < 2)
			check_sum(directory, operation, "none");
		tier->ops->close(tier);
		free(config);
		free(directory);
	}
}

/* The record of one that did not come to be is not left to be looked past. */
static void replacements_that_cannot_be_counted_leave_nothing(void **state)
{
	char *directory = harness_directory();
	struct ki_sys sys = counting();
	struct kiln_tier *tier;
	uint64_t before;

	INTERPOSE(&sys, refuse, pwritev);
	tier = open_peopled(&sys, directory);
	set_sum(directory, sum_there(directory));
	before = ki_records_totals(neo_of(tier)->records).bytes;
	is_refused = 1;
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(put_flags(tier, 0, 5000, KILN_PUT_REPLACE),
				 KILN_E_FULL);
	is_refused = 0;
	assert_int_equal(ki_records_totals(neo_of(tier)->records).bytes,
			 before);
	assert_int_equal(put(tier, 0, 4096), KILN_EXISTS);
	assert_int_equal(get(tier, 0), KILN_OK);
	assert_int_equal(put_flags(tier, 0, 5000, KILN_PUT_REPLACE), KILN_OK);
	assert_int_equal(sum_of(directory), sum_there(directory));
	tier->ops->close(tier);
	free(directory);
}

/* S49: an original takes the lock of what we have made, and believes it. */
static const char *overtaken;
static uint64_t sum_found;

static int overtake_try_flock(const struct ki_sys *sys, int fd,
			      enum ki_lock_kind kind)
{
	const char *directory = overtaken;

	overtaken = NULL;
	if (directory) {
		sum_found = sum_of(directory);
		free(plant(directory, "0123456789abcdef.l0_cache", 700, 0));
		set_sum(directory, sum_found + 700);
	}
	return real->try_flock(real, fd, kind);
}

static void config_file_comes_with_its_sum_whoever_locks_it_first(void **state)
{
	char *directory = harness_directory();
	char *config = harness_path(directory, "config.file");
	struct ki_sys sys = counting();
	struct kiln_tier *tier;

	tier = open_with(&sys, directory, 1 << 20, 0, NULL);
	free(plant(directory, "0123456789abcdef.cl_cache", 5000, 1));
	INTERPOSE(&sys, overtake, try_flock);
	overtaken = directory;
	assert_int_equal(put(tier, 1, 100), KILN_OK);
	assert_null(overtaken);
	assert_int_equal(sum_found, 5000);
	assert_int_equal(sum_there(directory), 5000 + 700 + 100);
	assert_int_equal(sum_of(directory), sum_there(directory));
	tier->ops->close(tier);
	free(config);
	free(directory);
}

/* ---- What cannot be read ------------------------------------------------------- */

static const char *unreadable;

static int hide_opendir(const struct ki_sys *sys, const char *path,
			struct ki_dir **out_dir)
{
	n_opened++;
	return unreadable && !strcmp(path, unreadable)
		       ? -EACCES
		       : real->opendir(real, path, out_dir);
}

/* Kiln's own entries are in it: no less than these, and no put counts again. */
static void a_fan_that_cannot_be_read_is_not_counted_by_each_put(void **state)
{
	char *directory = harness_directory(), *path, *config;
	struct ki_sys sys = counting();
	struct kiln_tier *tier;

	INTERPOSE(&sys, hide, opendir);
	tier = open_with(&sys, directory, 1 << 20, 0, "tree");
	assert_int_equal(put(tier, 1, 3000), KILN_OK);
	path = path_of(tier, 1);
	*strrchr(path, '/') = '\0';
	unreadable = path;
	config = harness_path(directory, "config.file");
	for (unsigned i = 0; i < 3; i++) {
		if (i == 0)
			assert_int_equal(unlink(config), 0);
		else
			write_sum(directory, "\1\0\0\0\0\0\0", i == 1 ? 8 : 2);
		(void)put(tier, 10 * i + 2, 100);
		assert_true(sum_of(directory) >= 3000);
		n_opened = 0;
		assert_int_equal(put(tier, 10 * i + 3, 100), KILN_OK);
		assert_int_equal(n_opened, 0);
	}
	unreadable = NULL;
	tier->ops->close(tier);
	free(config);
	free(path);
	free(directory);
}

/* ---- Who tells ------------------------------------------------------------------ */

struct listener {
	const char *config;
	unsigned n_told;
	int was_locked;
};

static void hear(void *arg, enum kiln_log_level level, const char *line)
{
	struct listener *listener = arg;
	int fd = open(listener->config, O_RDWR | O_CLOEXEC);

	listener->n_told++;
	listener->was_locked |= flock(fd, LOCK_EX | LOCK_NB) != 0;
	close(fd);
}

static void who_is_told_of_damage_may_take_as_long_as_he_likes(void **state)
{
	char *directory = harness_directory();
	char *config = harness_path(directory, "config.file");
	struct listener listener = { .config = config };
	const struct ki_store_options options = { .sys = &ki_sys_posix,
						  .directory = directory,
						  .name = "flat",
						  .log = hear,
						  .log_arg = &listener };
	struct kiln_tier *tier = NULL;

	assert_int_equal(ki_store_neo_open(&options, &tier), KILN_OK);
	assert_int_equal(put(tier, 0, 4096), KILN_OK);
	assert_int_equal(get_damaged(tier), KILN_E_FORMAT);
	assert_int_equal(listener.n_told, 1);
	assert_int_equal(listener.was_locked, 0);
	tier->ops->close(tier);
	free(config);
	free(directory);
}

/* ---- A tree that comes meanwhile ------------------------------------------------- */

/* Living records are counted twice: room to write them anew. */
static uint64_t spoken_for(struct kiln_tier *tier, const char *directory)
{
	const struct ki_records_totals totals =
		ki_records_totals(neo_of(tier)->records);

	return sum_there(directory) + totals.bytes + totals.bytes_living;
}

/* Names get four bytes longer by what making room has seen: the limit holds, of
   whatever size the key is. */
static void a_longer_name_has_room_made_for_it(void **state)
{
	for (unsigned i = 0; i < 8; i++) {
		char *directory = harness_directory();
		char *fan = harness_path(directory, "a");
		const uint64_t limit = 20000;
		struct kiln_tier *tier = open_at(directory, limit);
		char value[20000] = "", text[8] = "";
		struct kiln_key *key = kiln_key_new();
		uint64_t left;

		kiln_key_add(key, "k", text, i);
		assert_int_equal(kiln_key_finish(key), KILN_OK);
		assert_int_equal(put(tier, 1, 6000), KILN_OK);
		left = limit - spoken_for(tier, directory);
		/* As the record is with a short name. */
		left -= 2 * ((96 + 25 + key->record.size + 7) & ~(size_t)7);
		assert_int_equal(mkdir(fan, 0700), 0);
		write_sum(directory, "", 0);
		assert_int_equal(tier->ops->put(tier, key, NULL, 0, value,
						(size_t)left, 0),
				 KILN_OK);
		assert_int_equal(ki_neo_layout(neo_of(tier)), KILN_NEO_TREE);
		assert_true(spoken_for(tier, directory) <= limit);
		tier->ops->close(tier);
		kiln_key_free(key);
		free(fan);
		free(directory);
	}
}

static char *moved_from, *moved_to;

/* While the lock is waited for the directory is moved away, and another made. */
static int move_try_flock(const struct ki_sys *sys, int fd,
			  enum ki_lock_kind kind)
{
	static const uint8_t sum[8] = { SUM & 255, SUM >> 8 & 255, SUM >> 16 };

	if (moved_to &&
	    (rename(moved_from, moved_to) || mkdir(moved_from, 0700)))
		abort();
	if (moved_to) {
		moved_to = NULL;
		free(plant(moved_from, "00000000000000aa.cl_cache", SUM, 1));
		write_sum(moved_from, sum, sizeof(sum));
	}
	return real->try_flock(real, fd, kind);
}

static void a_lock_of_a_directory_that_was_moved_away_is_none(void **state)
{
	char *place = harness_directory();
	char *directory = harness_path(place, "cache");
	char *old = harness_path(place, "old");
	struct ki_sys sys = counting();
	struct kiln_tier *tier = open_with(&sys, directory, 1 << 20, 0, NULL);

	assert_int_equal(put(tier, 1, 1000), KILN_OK);
	INTERPOSE(&sys, move, try_flock);
	moved_from = directory;
	moved_to = old;
	assert_int_equal(put(tier, 2, 100), KILN_OK);
	assert_null(moved_to);
	assert_int_equal(sum_of(old), 1000);
	assert_int_equal(sum_there(old), 1000);
	assert_int_equal(sum_there(directory), SUM + 100);
	assert_int_equal(sum_of(directory), SUM + 100);
	assert_int_equal(get(tier, 2), KILN_OK);
	tier->ops->close(tier);
	free(old);
	free(directory);
	free(place);
}

/* ---- Whoever dies ------------------------------------------------------------- */

static unsigned n_left; /* calls to live */

static void live_on(void)
{
	if (n_left && !--n_left)
		_exit(9);
}

static ssize_t mortal_pwritev(const struct ki_sys *sys, int fd,
			      const struct ki_piece *pieces, int n_pieces,
			      uint64_t offset)
{
	live_on();
	return real->pwritev(real, fd, pieces, n_pieces, offset);
}

static int mortal_rename(const struct ki_sys *sys, const char *from,
			 const char *to)
{
	live_on();
	return real->rename(real, from, to);
}

static int mortal_rename_new(const struct ki_sys *sys, const char *from,
			     const char *to)
{
	live_on();
	return real->rename_new(real, from, to);
}

static int mortal_unlink(const struct ki_sys *sys, const char *path)
{
	live_on();
	return real->unlink(real, path);
}

static enum kiln_status put_larger_in_place(struct kiln_tier *tier)
{
	return put_flags(tier, 0, 9000, KILN_PUT_REPLACE);
}

static enum kiln_status put_and_evict(struct kiln_tier *tier)
{
	neo_of(tier)->bytes_max = 75000;
	return put(tier, 6, 8000);
}

/* 1 if it died at its n-th call. */
static int dies(struct kiln_tier *tier, const struct operation *operation,
		unsigned n)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		n_left = n;
		_exit(operation->run(tier) == operation->status ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_in_set(WEXITSTATUS(status), ((LargestIntegralType[]){ 0, 9 }),
		      2);
	return WEXITSTATUS(status) == 9;
}

/* S11 */
static void whoever_dies_leaves_a_sum_that_is_not_too_low(void **state)
{
	static const struct operation rows[] = {
		{ "put", put_another, KILN_OK },
		{ "put over a torn file", put_over_torn, KILN_OK },
		{ "put over the same bytes", put_over_same, KILN_OK },
		{ "replace, smaller", put_in_place, KILN_OK },
		{ "replace, larger", put_larger_in_place, KILN_OK },
		{ "evict", put_and_evict, KILN_OK },
		{ "remove", remove_own, KILN_OK },
		{ "remove a driver's", remove_a_drivers, KILN_OK },
	};
	unsigned n_deaths = 0;

	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		int died = 1;

		for (unsigned n = 1; died; n++) {
			char *directory = harness_directory();
			struct ki_sys sys = ki_sys_posix;
			struct kiln_tier *tier;

			INTERPOSE(&sys, mortal, pwritev);
			INTERPOSE(&sys, mortal, rename);
			INTERPOSE(&sys, mortal, rename_new);
			INTERPOSE(&sys, mortal, unlink);
			n_left = 0;
			tier = open_peopled(&sys, directory);
			set_sum(directory, sum_there(directory));
			died = dies(tier, &rows[i], n);
			n_deaths += (unsigned)died;
			if (sum_of(directory) < sum_there(directory))
				fail_msg("%s, call %u: sum %llu of %llu",
					 rows[i].name, n,
					 (unsigned long long)sum_of(directory),
					 (unsigned long long)sum_there(
						 directory));
			tier->ops->close(tier);
			free(directory);
		}
	}
	assert_true(n_deaths > 24);
}

/* With the lock in another's hand. */
static void what_can_never_fit_is_refused_before_the_lock(void **state)
{
	char *directory = harness_directory();
	char *config = harness_path(directory, "config.file");
	struct kiln_tier *tier = open_at(directory, 10000);
	int fd;

	assert_int_equal(put(tier, 1, 100), KILN_OK);
	fd = open(config, O_RDWR);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	assert_int_equal(put(tier, 2, 10001), KILN_E_TOO_LARGE);
	assert_int_equal(put(tier, 3, 9990), KILN_E_TOO_LARGE);
	close(fd);
	assert_int_equal(put(tier, 2, 100), KILN_OK);
	tier->ops->close(tier);
	free(config);
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sum_that_is_there_is_believed),
		cmocka_unit_test(who_makes_config_file_meanwhile_has_counted),
		cmocka_unit_test(an_empty_config_file_is_left_to_its_maker),
		cmocka_unit_test(what_cannot_be_counted_is_not_added_to),
		cmocka_unit_test(only_regular_files_in_their_place_count),
		cmocka_unit_test(whoever_finds_no_sum_leaves_the_right_one),
		cmocka_unit_test(what_is_taken_over_is_counted_once),
		cmocka_unit_test(
			where_no_sum_can_be_had_config_file_stays_as_it_was),
		cmocka_unit_test(
			replacements_that_cannot_be_counted_leave_nothing),
		cmocka_unit_test(
			a_fan_that_cannot_be_read_is_not_counted_by_each_put),
		cmocka_unit_test(
			who_is_told_of_damage_may_take_as_long_as_he_likes),
		cmocka_unit_test(a_longer_name_has_room_made_for_it),
		cmocka_unit_test(
			config_file_comes_with_its_sum_whoever_locks_it_first),
		cmocka_unit_test(
			a_lock_of_a_directory_that_was_moved_away_is_none),
		cmocka_unit_test(whoever_dies_leaves_a_sum_that_is_not_too_low),
		cmocka_unit_test(what_can_never_fit_is_refused_before_the_lock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
