/* SPDX-License-Identifier: MIT */

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "base/bytes.h"
#include "key/key.h"
#include "store/neo/helpers_test.h"

struct kiln_tier *open_with(const struct ki_sys *sys, const char *directory,
			    uint64_t bytes_max, uint32_t flags,
			    const char *layout)
{
	struct ki_store_options options = { .sys = sys,
					    .directory = directory,
					    .bytes_max = bytes_max,
					    .name = layout,
					    .flags = flags };
	struct kiln_tier *tier = NULL;

	assert_int_equal(ki_store_neo_open(&options, &tier), KILN_OK);
	return tier;
}

struct kiln_tier *open_at(const char *directory, uint64_t bytes_max)
{
	return open_with(&ki_sys_posix, directory, bytes_max, 0, NULL);
}

struct ki_neo *neo_of(struct kiln_tier *tier)
{
	return (struct ki_neo *)tier;
}

struct kiln_key *key_of(unsigned n)
{
	struct kiln_key *key = kiln_key_new();

	kiln_key_add(key, "n", &n, sizeof(n));
	if (kiln_key_finish(key))
		abort();
	return key;
}

enum kiln_status put_flags(struct kiln_tier *tier, unsigned n, size_t size,
			   unsigned flags)
{
	struct kiln_key *key = key_of(n);
	char *value = malloc(size + 1);
	enum kiln_status status;

	memset(value, (int)(n % 251 + 1), size);
	status = tier->ops->put(tier, key, NULL, 0, value, size, flags);
	free(value);
	kiln_key_free(key);
	return status;
}

enum kiln_status put(struct kiln_tier *tier, unsigned n, size_t size)
{
	return put_flags(tier, n, size, 0);
}

enum kiln_status get(struct kiln_tier *tier, unsigned n)
{
	struct kiln_key *key = key_of(n);
	struct kiln_blob *blob = NULL;
	enum kiln_status status = tier->ops->get(tier, key, &blob, NULL);
	const uint8_t *data = status ? NULL : kiln_blob_data(blob);

	for (size_t i = 0; !status && i < kiln_blob_size(blob); i++)
		if (data[i] != n % 251 + 1)
			status = KILN_E_INVALID;
	kiln_blob_unref(blob);
	kiln_key_free(key);
	return status;
}

char *path_of(struct kiln_tier *tier, unsigned n)
{
	struct kiln_key *key = key_of(n);
	char name[KILN_NEO_NAME_BYTES];

	ki_neo_name_key(neo_of(tier), key, NULL, 0, name);
	kiln_key_free(key);
	return harness_path(neo_of(tier)->directory, name);
}

int exists(const char *path)
{
	struct stat st;

	return !lstat(path, &st);
}

uint64_t sum_of(const char *directory)
{
	char *path = harness_path(directory, "config.file"), *bytes;
	uint64_t noted = UINT64_MAX;
	size_t size;

	bytes = harness_read(path, &size);
	if (bytes && size == 8)
		noted = ki_get_u64(bytes);
	free(bytes);
	free(path);
	return noted;
}

static uint64_t sum;

static int add_entry(const char *path, const struct stat *info, int kind,
		     struct FTW *place)
{
	const char *dot = strrchr(path + place->base, '.');

	if (kind == FTW_F && S_ISREG(info->st_mode) && dot &&
	    (!strcmp(dot, KILN_NEO_OPENCL) ||
	     !strcmp(dot, KILN_NEO_LEVEL_ZERO) || !strcmp(dot, KILN_NEO_OCLOC)))
		sum += (uint64_t)info->st_size;
	return 0;
}

uint64_t sum_there(const char *directory)
{
	sum = 0;
	assert_int_equal(nftw(directory, add_entry, 8, FTW_PHYS), 0);
	return sum;
}

void write_sum(const char *directory, const void *bytes, size_t size)
{
	char *path = harness_path(directory, "config.file");

	harness_write(path, bytes, size);
	free(path);
}

void set_age(const char *path, int hours)
{
	struct timespec times[2];

	clock_gettime(CLOCK_REALTIME, &times[0]);
	times[0].tv_sec -= 3600 * hours;
	times[1] = times[0];
	assert_int_equal(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW),
			 0);
}

void set_use(const char *path, int hours)
{
	struct timespec times[2] = { { 0 }, { .tv_nsec = UTIME_OMIT } };

	clock_gettime(CLOCK_REALTIME, &times[0]);
	times[0].tv_sec -= 3600 * hours;
	assert_int_equal(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW),
			 0);
}

void set_use_of(struct kiln_tier *tier, unsigned n, int hours)
{
	char *path = path_of(tier, n);

	set_use(path, hours);
	free(path);
}

uint64_t bytes_of(struct kiln_tier *tier)
{
	struct kiln_store_info info;

	assert_int_equal(tier->ops->info(tier, &info), KILN_OK);
	return info.bytes;
}

char *plant(const char *directory, const char *name, size_t size, int hours)
{
	char *path = harness_path(directory, name);
	char *bytes = calloc(1, size + 1);

	memset(bytes, 'i', size);
	harness_write(path, bytes, size);
	set_age(path, hours);
	free(bytes);
	return path;
}

void replace_file(const char *path, const char *bytes, size_t size)
{
	char temporary[KI_PATH_MAX];

	snprintf(temporary, sizeof(temporary), "%s.theirs", path);
	harness_write(temporary, bytes, size);
	assert_int_equal(rename(temporary, path), 0);
}

unsigned n_names(const char *directory, const char *part)
{
	char command[KI_PATH_MAX + 64];
	unsigned n = 0;
	FILE *found;

	snprintf(command, sizeof(command), "ls -A '%s' | grep -c '%s'",
		 directory, part);
	found = popen(command, "r");
	assert_non_null(found);
	assert_int_equal(fscanf(found, "%u", &n), 1);
	pclose(found);
	return n;
}
