/* SPDX-License-Identifier: MIT */

/*
 * One call of a store fails, with everything else as it should be: what upstream
 * asks call by call.  tests/fault lets every call of every operation fail.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/interpose.h"

#include "store/neo/helpers_test.h"

enum call {
	NONE,
	OPEN_CONFIG,
	LOCK_CONFIG,
	READ_CONFIG,
	OPEN_DIRECTORY,
	READ_DIRECTORY,
	LOOK_AT_ENTRY,
	UNLINK,
	UNLINK_BUT_ONE,
	OPEN_TEMPORARY,
	WRITE_TEMPORARY,
	MEASURE_TEMPORARY,
	CLOSE_TEMPORARY,
	MAKE_DIRECTORY,
	RENAME_TEMPORARY,
	OPEN_TRACE,
	WRITE_TRACE,
};

static enum call failing;
static int failing_err;
static int config_fd, temporary_fd, trace_fd;
static unsigned n_failed;

static int fails(enum call call)
{
	if (failing != call)
		return 0;
	n_failed++;
	return failing_err;
}

static int failing_open(const struct ki_sys *sys, const char *path,
			unsigned flags, unsigned mode)
{
	const int is_config = strstr(path, "/config.file") != NULL;
	const int is_temporary = strstr(path, "/cl_cache.") != NULL;
	const int is_trace = strstr(path, ".trace") || strstr(path, ".input");
	int fd = 0;

	if (is_config)
		fd = fails(OPEN_CONFIG);
	if (is_temporary)
		fd = fails(OPEN_TEMPORARY);
	if (is_trace)
		fd = fails(OPEN_TRACE);
	if (!fd)
		fd = real->open(real, path, flags, mode);
	if (is_config)
		config_fd = fd;
	if (is_temporary)
		temporary_fd = fd;
	if (is_trace)
		trace_fd = fd;
	return fd;
}

static int failing_close(const struct ki_sys *sys, int fd)
{
	const int is_temporary = fd == temporary_fd;
	int err = real->close(real, fd);

	if (fd == temporary_fd)
		temporary_fd = -1;
	if (fd == config_fd)
		config_fd = -1;
	if (fd == trace_fd)
		trace_fd = -1;
	/* One that fails has closed. */
	return is_temporary && fails(CLOSE_TEMPORARY) ? failing_err : err;
}

static int failing_try_flock(const struct ki_sys *sys, int fd,
			     enum ki_lock_kind kind)
{
	int err = fails(LOCK_CONFIG);

	return err ? err : real->try_flock(real, fd, kind);
}

static ssize_t failing_pread(const struct ki_sys *sys, int fd, void *data,
			     size_t size, uint64_t offset)
{
	int err = fd == config_fd ? fails(READ_CONFIG) : 0;

	return err ? err : real->pread(real, fd, data, size, offset);
}

static ssize_t failing_pwritev(const struct ki_sys *sys, int fd,
			       const struct ki_piece *pieces, int n_pieces,
			       uint64_t offset)
{
	int err = fd == temporary_fd ? fails(WRITE_TEMPORARY)
		  : fd == trace_fd   ? fails(WRITE_TRACE)
				     : 0;

	return err ? err : real->pwritev(real, fd, pieces, n_pieces, offset);
}

static int failing_fstat(const struct ki_sys *sys, int fd,
			 struct ki_file_info *out_info)
{
	int err = fd == temporary_fd ? fails(MEASURE_TEMPORARY) : 0;

	return err ? err : real->fstat(real, fd, out_info);
}

static int failing_opendir(const struct ki_sys *sys, const char *path,
			   struct ki_dir **out_dir)
{
	int err = fails(OPEN_DIRECTORY);

	return err ? err : real->opendir(real, path, out_dir);
}

static int failing_readdir(const struct ki_sys *sys, struct ki_dir *dir,
			   const char **out_name)
{
	int err = fails(READ_DIRECTORY);

	return err ? err : real->readdir(real, dir, out_name);
}

static int failing_lstat(const struct ki_sys *sys, const char *path,
			 struct ki_file_info *out_info)
{
	int err = strstr(path, "_cache") ? fails(LOOK_AT_ENTRY) : 0;

	return err ? err : real->lstat(real, path, out_info);
}

static int failing_unlink(const struct ki_sys *sys, const char *path)
{
	int err = 0;

	if (strstr(path, "_cache") && !strstr(path, "/cl_cache.")) {
		err = fails(UNLINK);
		if (!err && failing == UNLINK_BUT_ONE && n_failed++)
			err = failing_err;
	}
	return err ? err : real->unlink(real, path);
}

static int failing_mkdir(const struct ki_sys *sys, const char *path,
			 unsigned mode)
{
	int err = fails(MAKE_DIRECTORY);

	return err ? err : real->mkdir(real, path, mode);
}

static int failing_rename_new(const struct ki_sys *sys, const char *from,
			      const char *to)
{
	int err = fails(RENAME_TEMPORARY);

	return err ? err : real->rename_new(real, from, to);
}

static struct ki_sys failing_sys(void)
{
	struct ki_sys sys = ki_sys_posix;

	INTERPOSE(&sys, failing, open);
	INTERPOSE(&sys, failing, close);
	INTERPOSE(&sys, failing, try_flock);
	INTERPOSE(&sys, failing, pread);
	INTERPOSE(&sys, failing, pwritev);
	INTERPOSE(&sys, failing, fstat);
	INTERPOSE(&sys, failing, opendir);
	INTERPOSE(&sys, failing, readdir);
	INTERPOSE(&sys, failing, lstat);
	INTERPOSE(&sys, failing, unlink);
	INTERPOSE(&sys, failing, mkdir);
	INTERPOSE(&sys, failing, rename_new);
	failing = NONE;
	config_fd = temporary_fd = trace_fd = -1;
	return sys;
}

static void begin_failing(enum call call, int err)
{
	n_failed = 0;
	failing_err = err;
	failing = call;
}

/* Of a store of one entry beside another's. */
static void a_store_that_fails_leaves_nothing(void **state)
{
	static const struct {
		const char *name;
		enum call call;
		int err;
		enum kiln_status status;
		int is_new; /* config.file is to be made */
		int is_tree;
	} rows[] = {
		{ "open config.file", OPEN_CONFIG, -EACCES, KILN_E_IO, 0, 0 },
		{ "make config.file", OPEN_CONFIG, -EROFS, KILN_E_READONLY, 1,
		  0 },
		{ "no locks", LOCK_CONFIG, -ENOLCK, KILN_E_IO, 0, 0 },
		{ "no locks, new", LOCK_CONFIG, -ENOLCK, KILN_E_IO, 1, 0 },
		{ "read config.file", READ_CONFIG, -EIO, KILN_E_IO, 0, 0 },
		{ "count, opendir", OPEN_DIRECTORY, -EIO, KILN_E_IO, 1, 0 },
		{ "count, no memory", OPEN_DIRECTORY, -ENOMEM, KILN_E_NO_MEMORY,
		  1, 0 },
		{ "count, readdir", READ_DIRECTORY, -EIO, KILN_E_IO, 1, 0 },
		{ "count, lstat", LOOK_AT_ENTRY, -EIO, KILN_E_IO, 1, 0 },
		{ "make a temporary", OPEN_TEMPORARY, -EACCES, KILN_E_IO, 0,
		  0 },
		{ "no room for it", OPEN_TEMPORARY, -ENOSPC, KILN_E_FULL, 0,
		  0 },
		{ "write", WRITE_TEMPORARY, -EIO, KILN_E_IO, 0, 0 },
		{ "no room", WRITE_TEMPORARY, -ENOSPC, KILN_E_FULL, 0, 0 },
		{ "over quota", WRITE_TEMPORARY, -EDQUOT, KILN_E_FULL, 0, 0 },
		{ "measure", MEASURE_TEMPORARY, -EIO, KILN_E_IO, 0, 0 },
		{ "close", CLOSE_TEMPORARY, -EIO, KILN_E_IO, 0, 0 },
		{ "close, no room", CLOSE_TEMPORARY, -ENOSPC, KILN_E_FULL, 0,
		  0 },
		{ "mkdir", MAKE_DIRECTORY, -EACCES, KILN_E_IO, 0, 1 },
		{ "mkdir, no room", MAKE_DIRECTORY, -ENOSPC, KILN_E_FULL, 0,
		  1 },
		{ "rename", RENAME_TEMPORARY, -EIO, KILN_E_IO, 0, 0 },
		{ "rename, tree", RENAME_TEMPORARY, -EIO, KILN_E_IO, 0, 1 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char *directory = harness_directory();
		char *config = harness_path(directory, "config.file");
		struct ki_sys sys = failing_sys();
		struct kiln_tier *tier =
			open_with(&sys, directory, 1 << 20, 0,
				  rows[i].is_tree ? "tree" : "flat");
		enum kiln_status status;
		uint64_t sum;

		free(plant(directory, "0123456789abcdef.cl_cache", 5000, 1));
		assert_int_equal(put(tier, 1, 3000), KILN_OK);
		if (rows[i].is_new)
			assert_int_equal(unlink(config), 0);
		begin_failing(rows[i].call, rows[i].err);
		status = put(tier, 2, 4000);
		failing = NONE;
		if (status != rows[i].status || !n_failed)
			fail_msg("%s: %s, %u calls failed", rows[i].name,
				 kiln_status_name(status), n_failed);
		assert_int_equal(n_names(directory, "^cl_cache"), 0);
		assert_int_equal(get(tier, 1), KILN_OK);
		assert_int_equal(get(tier, 2), KILN_MISS);
		sum = sum_of(directory);
		if (sum != 8000 && (exists(config) || !rows[i].is_new) &&
		    rows[i].call != LOCK_CONFIG)
			fail_msg("%s: a sum of %llu", rows[i].name,
				 (unsigned long long)sum);
		assert_int_equal(put(tier, 2, 4000), KILN_OK);
		assert_int_equal(get(tier, 2), KILN_OK);
		assert_int_equal(sum_of(directory), 12000);
		tier->ops->close(tier);
		free(config);
		free(directory);
	}
}

/* Nothing at all can be removed, or too little. */
static void an_eviction_that_fails_writes_what_is_left(void **state)
{
	static const struct {
		enum call call;
		uint64_t sum;
	} rows[] = { { UNLINK, 80000 }, { UNLINK_BUT_ONE, 70000 } };

	for (unsigned i = 0; i < 2; i++) {
		char *directory = harness_directory();
		struct ki_sys sys = failing_sys();
		struct kiln_tier *tier =
			open_with(&sys, directory, 100000, 0, NULL);

		for (unsigned n = 0; n < 8; n++)
			assert_int_equal(put(tier, n, 10000), KILN_OK);
		begin_failing(rows[i].call, -EACCES);
		assert_int_equal(put(tier, 20, 60000), KILN_E_FULL);
		failing = NONE;
		assert_int_equal(sum_of(directory), rows[i].sum);
		assert_int_equal(sum_there(directory), rows[i].sum);
		assert_int_equal(get(tier, 20), KILN_MISS);
		assert_int_equal(put(tier, 20, 60000), KILN_OK);
		assert_int_equal(sum_of(directory), sum_there(directory));
		assert_true(bytes_of(tier) <= 100000);
		tier->ops->close(tier);
		free(directory);
	}
}

static void a_trace_that_cannot_be_written_costs_nothing_else(void **state)
{
	static const enum call calls[] = { OPEN_TRACE, WRITE_TRACE };

	for (unsigned i = 0; i < 2; i++) {
		char *directory = harness_directory();
		struct ki_sys sys = failing_sys();
		struct kiln_tier *tier = open_with(&sys, directory, 0, 0, NULL);

		neo_of(tier)->traces = 1;
		begin_failing(calls[i], -ENOSPC);
		assert_int_equal(put(tier, 1, 100), KILN_OK);
		assert_int_equal(get(tier, 1), KILN_OK);
		failing = NONE;
		assert_true(n_failed > 0);
		assert_int_equal(n_names(directory, "\\.trace"), 0);
		assert_int_equal(n_names(directory, "\\.input"), 0);
		assert_int_equal(get(tier, 1), KILN_OK);
		assert_int_equal(n_names(directory, "\\.trace$"), 1);
		assert_int_equal(n_names(directory, "\\.input$"), 1);
		tier->ops->close(tier);
		free(directory);
	}
}

/* Another has the lock of the root's, or of one below. */
static void counts_whose_lock_is_taken_are_left_out(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "stats");
	struct kiln_tier *tier =
		open_with(&ki_sys_posix, directory, 0, 0, "tree");
	struct ki_neo_lookups lookups;
	int fd;

	neo_of(tier)->keeps_stats = 1;
	assert_int_equal(put(tier, 1, 100), KILN_OK);
	assert_int_equal(get(tier, 1), KILN_OK);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	assert_int_equal(get(tier, 1), KILN_OK);
	assert_int_equal(get(tier, 2), KILN_MISS);
	close(fd);
	assert_int_equal(get(tier, 1), KILN_OK);
	assert_int_equal(ki_neo_read_lookups(neo_of(tier), &lookups), 0);
	assert_int_equal(lookups.n_hits, 2);
	assert_int_equal(lookups.n_misses, 0);
	tier->ops->close(tier);
	free(path);
	free(directory);
}

static int late_mkdir(const struct ki_sys *sys, const char *path, unsigned mode)
{
	n_failed += !real->mkdir(real, path, 0775);
	return real->mkdir(real, path, mode);
}

static void directories_that_another_makes_meanwhile_are_used(void **state)
{
	char *place = harness_directory();
	char *directory = harness_path(place, "neo");
	struct ki_sys sys = ki_sys_posix;
	struct kiln_tier *tier;

	INTERPOSE(&sys, late, mkdir);
	n_failed = 0;
	tier = open_with(&sys, directory, 0, 0, "tree");
	assert_int_equal(n_failed, 1);
	assert_int_equal(put(tier, 1, 100), KILN_OK);
	assert_int_equal(n_failed, 3);
	assert_int_equal(get(tier, 1), KILN_OK);
	assert_int_equal(sum_of(directory), 100);
	tier->ops->close(tier);
	free(directory);
	free(place);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_store_that_fails_leaves_nothing),
		cmocka_unit_test(an_eviction_that_fails_writes_what_is_left),
		cmocka_unit_test(
			a_trace_that_cannot_be_written_costs_nothing_else),
		cmocka_unit_test(counts_whose_lock_is_taken_are_left_out),
		cmocka_unit_test(
			directories_that_another_makes_meanwhile_are_used),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
