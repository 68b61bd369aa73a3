/* SPDX-License-Identifier: MIT */

/*
 * A directory of a hundred thousand entries of a driver's, full: what one store
 * looks at and removes stays within its steps, and once all of them have been
 * looked at they go in the order of their last use.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/interpose.h"

#include "base/bytes.h"
#include "conform/kinds.h"
#include "store/neo/neo.h"

#define N_FILES	   100000u
#define FILE_BYTES 16u
#define VALUE	   100
#define LIMIT	   ((uint64_t)N_FILES * FILE_BYTES)
#define STEPS_MAX  1000

/* A store's own record twice, and its value, in files of these. */
#define NEED_MAX 64

static unsigned n_looked, n_removed;

static int count_lstat(const struct ki_sys *sys, const char *path,
		       struct ki_file_info *out_info)
{
	n_looked++;
	return real->lstat(real, path, out_info);
}

static int count_unlink(const struct ki_sys *sys, const char *path)
{
	n_removed++;
	return real->unlink(real, path);
}

/* Names have nothing to do with the order of use: n is when it was last. */
static void name_file(unsigned n, char name[32])
{
	snprintf(name, 32, "%08x%08x.cl_cache", n * 2654435761u, n);
}

static void make_files(const char *directory)
{
	int place = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	static const char bytes[FILE_BYTES];
	uint8_t sum[8];
	char name[32];

	for (unsigned n = 0; n < N_FILES; n++) {
		const struct timespec times[2] = { { 1500000000 + n, 0 },
						   { 1400000000, 0 } };
		int fd;

		name_file(n, name);
		fd = openat(place, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0 || write(fd, bytes, sizeof(bytes)) < 0 ||
		    futimens(fd, times))
			fail_msg("%s cannot be made", name);
		close(fd);
	}
	ki_put_u64(sum, LIMIT);
	int fd = openat(place, "config.file", O_WRONLY | O_CREAT, 0600);
	assert_int_equal(write(fd, sum, sizeof(sum)), sizeof(sum));
	close(fd);
	close(place);
}

/* How many are gone, and of these how many that were used later than as many
   others. */
static unsigned look_at_order(const char *directory, unsigned *out_n_early)
{
	int place = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	static uint8_t is_gone[N_FILES];
	unsigned n_gone = 0;
	char name[32];

	for (unsigned n = 0; n < N_FILES; n++) {
		name_file(n, name);
		is_gone[n] = !!faccessat(place, name, F_OK, 0);
		n_gone += is_gone[n];
	}
	*out_n_early = 0;
	for (unsigned n = n_gone; n < N_FILES; n++)
		*out_n_early += is_gone[n];
	close(place);
	return n_gone;
}

static void each_store_takes_its_step_and_the_oldest_go(void **state)
{
	char *directory = harness_directory();
	struct ki_sys sys = ki_sys_posix;
	const struct ki_store_options options = { .sys = &sys,
						  .directory = directory,
						  .bytes_max = LIMIT };
	unsigned n, n_early, n_gone, n_sampling = 0;
	struct kiln_tier *tier;

	make_files(directory);
	INTERPOSE(&sys, count, lstat);
	INTERPOSE(&sys, count, unlink);
	assert_int_equal(ki_store_neo_open(&options, &tier), KILN_OK);
	for (n = 0; n < STEPS_MAX; n++) {
		n_looked = n_removed = 0;
		assert_int_equal(put_numbered(tier, n, VALUE, 0), KILN_OK);
		assert_in_range(n_removed, 0, KI_NEO_STEP + NEED_MAX);
		assert_in_range(n_looked, 0,
				KI_NEO_LOOKS + 2 * (KI_NEO_STEP + NEED_MAX));
		n_sampling += n_looked >= KI_NEO_LOOKS;
		if (n && !((struct ki_neo *)tier)->plan.is_active)
			break;
	}
	assert_in_range(n, 1, STEPS_MAX - 1);
	assert_true(kind_disk_bytes(kind_find("neo"), directory) <=
		    LIMIT - LIMIT / 3 + LIMIT / 16);
	n_gone = look_at_order(directory, &n_early);
	assert_in_range(n_gone, N_FILES / 4, N_FILES / 2);
	/* Only what the first stores needed at once. */
	assert_in_range(n_sampling, 1, N_FILES / KI_NEO_LOOKS + 2);
	assert_in_range(n_early, 0, n_sampling * NEED_MAX);
	tier->ops->close(tier);
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_store_takes_its_step_and_the_oldest_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
