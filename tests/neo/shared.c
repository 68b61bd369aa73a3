/* SPDX-License-Identifier: MIT */

/*
 * A directory shared by kiln and an original: processes that store by the
 * driver's own protocol (original.h), beside kiln's.  After every step, under
 * the lock, the sum in config.file is that of the files, and not above the limit.
 * Where kiln is alone, kiln.records counts too, and at every moment.
 */

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/harness.h"
#include "harness/interpose.h"

#include "conform/kinds.h"
#include "original.h"

#define LIMIT	((uint64_t)120000)
#define N_STEPS 60

/* Of entries, kiln.records, and all that is being written. */
static uint64_t all_bytes(const char *directory)
{
	DIR *dir = opendir(directory);
	struct dirent *entry;
	uint64_t bytes = 0;

	while (dir && (entry = readdir(dir))) {
		struct stat st;

		if ((strstr(entry->d_name, "cl_cache") ||
		     strstr(entry->d_name, "kiln.records")) &&
		    !fstatat(dirfd(dir), entry->d_name, &st,
			     AT_SYMLINK_NOFOLLOW))
			bytes += (uint64_t)st.st_size;
	}
	if (dir)
		closedir(dir);
	return bytes;
}

/* 0 if the sum is true and within the limit; where no original fills that, which
   does not count them, with `records`. */
static int account_is_wrong(const char *directory, int records)
{
	uint64_t total, sum, bytes;
	int fd = original_lock(directory, &total);

	if (fd < 0)
		return 1;
	sum = original_sum(directory);
	bytes = records ? all_bytes(directory) : sum;
	original_unlock(fd);
	return total != sum || bytes > LIMIT;
}

static int take_steps(unsigned index, void *arg)
{
	const char *directory = arg;
	const struct ki_store_options options = { .sys = &ki_sys_posix,
						  .directory = directory,
						  .bytes_max = LIMIT };
	static char data[16384];
	uint64_t random = index + 1;
	struct kiln_tier *tier;
	char name[32];

	if (ki_store_neo_open(&options, &tier))
		return 1;
	for (unsigned i = 0; i < N_STEPS; i++) {
		const size_t size = 8 + harness_random(&random) % 12000;
		const unsigned n = index * 1000 + i;
		int status;

		if (index % 2) {
			snprintf(name, sizeof(name), "%016x.cl_cache", n);
			(void)original_store(directory, LIMIT, name, data,
					     size);
		} else {
			status = put_numbered(tier, n, size, 0);
			if (status && status != KILN_E_TIMEOUT)
				return 2;
			status = get_numbered(tier, n);
			if (status != KILN_OK && status != KILN_MISS)
				return 3;
		}
		if (account_is_wrong(directory, 0))
			return 4;
	}
	tier->ops->close(tier);
	return 0;
}

static void kiln_and_originals_keep_one_account(void **state)
{
	char *directory = harness_directory();
	const struct ki_store_options options = { .sys = &ki_sys_posix,
						  .directory = directory };
	struct kiln_tier *tier;

	assert_int_equal(ki_store_neo_open(&options, &tier), KILN_OK);
	assert_int_equal(put_numbered(tier, 99999, 100, 0), KILN_OK);
	tier->ops->close(tier);
	assert_int_equal(
		harness_processes(4, take_steps, directory, HARNESS_HANG_S), 0);
	free(directory);
}

/* ---- Kiln alone -------------------------------------------------------------- */

static enum kiln_status take_kiln_step(struct kiln_tier *tier, unsigned i,
				       uint64_t *random)
{
	const size_t most = i / 50 % 2 ? 60 : 6000;
	const size_t size = 8 + harness_random(random) % most;
	const unsigned n = (unsigned)(harness_random(random) % 400);
	enum kiln_status status =
		put_numbered(tier, n, size, i % 2 ? KILN_PUT_REPLACE : 0);

	return status == KILN_EXISTS ? KILN_OK : status;
}

static int take_kiln_steps(unsigned index, void *arg)
{
	const char *directory = arg;
	const struct ki_store_options options = { .sys = &ki_sys_posix,
						  .directory = directory,
						  .bytes_max = LIMIT };
	uint64_t random = index + 1;
	struct kiln_tier *tier;

	if (ki_store_neo_open(&options, &tier))
		return 1;
	for (unsigned i = 0; i < 2 * N_STEPS; i++) {
		enum kiln_status status = take_kiln_step(tier, i, &random);

		if (status && status != KILN_E_TIMEOUT)
			return 2;
		if (account_is_wrong(directory, 1))
			return 4;
	}
	tier->ops->close(tier);
	return 0;
}

static void kilns_keep_records_and_all_within_the_limit(void **state)
{
	char *directory = harness_directory();

	assert_int_equal(harness_processes(4, take_kiln_steps, directory,
					   HARNESS_HANG_S),
			 0);
	free(directory);
}

static const char *watched;
static uint64_t most_bytes;

static ssize_t watch_pwritev(const struct ki_sys *sys, int fd,
			     const struct ki_piece *pieces, int n_pieces,
			     uint64_t offset)
{
	ssize_t n = real->pwritev(real, fd, pieces, n_pieces, offset);
	uint64_t bytes = all_bytes(watched);

	if (bytes > most_bytes)
		most_bytes = bytes;
	return n;
}

static void between_two_calls_nothing_passes_the_limit(void **state)
{
	char *directory = harness_directory();
	struct ki_sys sys = ki_sys_posix;
	const struct ki_store_options options = { .sys = &sys,
						  .directory = directory,
						  .bytes_max = LIMIT };
	struct kiln_tier *tier;
	uint64_t random = 1;

	watched = directory;
	INTERPOSE(&sys, watch, pwritev);
	assert_int_equal(ki_store_neo_open(&options, &tier), KILN_OK);
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(take_kiln_step(tier, i, &random), KILN_OK);
	assert_in_range(most_bytes, LIMIT / 2, LIMIT);
	tier->ops->close(tier);
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kilns_keep_records_and_all_within_the_limit),
		cmocka_unit_test(between_two_calls_nothing_passes_the_limit),
		cmocka_unit_test(kiln_and_originals_keep_one_account),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
