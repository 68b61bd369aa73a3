/* SPDX-License-Identifier: MIT */

/*
 * A directory shared by kiln and an original: processes that store by the
 * driver's own protocol, step by step as it is described, beside kiln's.  After
 * every step, under the lock, the sum in config.file is that of the files, and
 * not above the limit.
 */

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "conform/kinds.h"

#define LIMIT	((uint64_t)120000)
#define N_STEPS 60

/* ---- The original, flat ------------------------------------------------------ */

struct found {
	char path[512];
	time_t used;
	uint64_t size;
};

static int by_use(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	return x->used < y->used ? -1 : x->used > y->used;
}

static unsigned gather(const char *directory, struct found *files, unsigned max)
{
	DIR *dir = opendir(directory);
	struct dirent *entry;
	unsigned n = 0;

	while (dir && n < max && (entry = readdir(dir))) {
		struct stat st;

		if (!strstr(entry->d_name, ".cl_cache") &&
		    !strstr(entry->d_name, ".l0_cache"))
			continue;
		snprintf(files[n].path, sizeof(files[n].path), "%s/%.200s",
			 directory, entry->d_name);
		if (stat(files[n].path, &st))
			continue;
		files[n].used = st.st_atim.tv_sec;
		files[n++].size = (uint64_t)st.st_size;
	}
	if (dir)
		closedir(dir);
	return n;
}

static uint64_t evict(const char *directory)
{
	static struct found files[4096];
	const unsigned n = gather(directory, files, 4096);
	uint64_t removed = 0;

	qsort(files, n, sizeof(files[0]), by_use);
	for (unsigned i = 0; i < n && removed <= LIMIT / 3; i++)
		if (!unlink(files[i].path))
			removed += files[i].size;
	return removed;
}

static int lock_config(const char *directory)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/config.file", directory);
	fd = open(path, O_RDWR);
	if (fd >= 0 && flock(fd, LOCK_EX)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static int store_as_an_original(const char *directory, const char *name,
				const char *data, size_t size)
{
	char temporary[512], path[512];
	int result = -1, part, fd = lock_config(directory);
	uint64_t total = 0;

	if (fd < 0)
		return -1;
	snprintf(path, sizeof(path), "%s/%s", directory, name);
	snprintf(temporary, sizeof(temporary), "%s/cl_cache.XXXXXX", directory);
	if (pread(fd, &total, sizeof(total), 0) < 0 || !access(path, F_OK))
		goto out;
	if (LIMIT < total + size) {
		total -= evict(directory);
		(void)!pwrite(fd, &total, sizeof(total), 0);
		if (LIMIT < total + size)
			goto out;
	}
	part = mkstemp(temporary);
	if (part < 0)
		goto out;
	if (pwrite(part, data, size, 0) < 0 || close(part) ||
	    rename(temporary, path))
		goto out;
	total += size;
	(void)!pwrite(fd, &total, sizeof(total), 0);
	result = 0;
out:
	flock(fd, LOCK_UN);
	close(fd);
	return result;
}

/* ---- Together ---------------------------------------------------------------- */

/* 0 if the sum is true and within the limit. */
static int account_is_wrong(const char *directory)
{
	static struct found files[4096];
	uint64_t total = 0, sum = 0;
	int fd = lock_config(directory);

	if (fd < 0)
		return 1;
	if (pread(fd, &total, sizeof(total), 0) != sizeof(total))
		total = UINT64_MAX;
	for (unsigned n = gather(directory, files, 4096); n--;)
		sum += files[n].size;
	close(fd);
	return total != sum || sum > LIMIT;
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
			(void)store_as_an_original(directory, name, data, size);
		} else {
			status = put_numbered(tier, n, size, 0);
			if (status && status != KILN_E_TIMEOUT)
				return 2;
			status = get_numbered(tier, n);
			if (status != KILN_OK && status != KILN_MISS)
				return 3;
		}
		if (account_is_wrong(directory))
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
	assert_int_equal(harness_processes(4, take_steps, directory, 40), 0);
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kiln_and_originals_keep_one_account),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
