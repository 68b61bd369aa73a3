/* SPDX-License-Identifier: MIT */

/*
 * When the directory is counted and when config.file is believed, and what
 * counts; docs/formats/neo-situations.md has where the rest is.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
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

/* Somebody else makes config.file just before we would. */
static int count_open(const struct ki_sys *sys, const char *path,
		      unsigned flags, unsigned mode)
{
	static const uint8_t sum[8] = { SUM & 255, SUM >> 8 & 255, SUM >> 16 };

	if (is_late && (flags & KI_OPEN_EXCLUSIVE) &&
	    !strcmp(path, to_be_made)) {
		harness_write(to_be_made, sum, sizeof(sum));
		is_late = 0;
	}
	return real->open(real, path, flags, mode);
}

static struct ki_sys counting(void)
{
	struct ki_sys sys = ki_sys_posix;

	INTERPOSE(&sys, count, opendir);
	INTERPOSE(&sys, count, open);
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
	assert_int_equal(n_opened, 0);
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
		cmocka_unit_test(what_cannot_be_counted_is_not_added_to),
		cmocka_unit_test(only_regular_files_in_their_place_count),
		cmocka_unit_test(what_can_never_fit_is_refused_before_the_lock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
