/* SPDX-License-Identifier: MIT */

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "conform/conform.h"

const struct kind *kind;

/* The real system with a wall clock that a test moves. */
int64_t shift_ns;

static uint64_t shifted_realtime(const struct ki_sys *sys)
{
	return ki_sys_posix.realtime_ns(sys) + (uint64_t)shift_ns;
}

struct ki_store_options options_of(const char *directory)
{
	static struct ki_sys sys;

	sys = ki_sys_posix;
	sys.realtime_ns = shifted_realtime;
	return (struct ki_store_options){ .sys = &sys, .directory = directory };
}

struct kiln_tier *open_with(const struct ki_store_options *options)
{
	struct kiln_tier *tier = NULL;

	assert_int_equal(kind->open(options, &tier), KILN_OK);
	assert_non_null(tier->ops->get);
	assert_non_null(tier->ops->close);
	assert_int_equal(tier->ops->version, KILN_TIER_VERSION);
	return tier;
}

struct kiln_tier *open_in(const char *directory)
{
	struct ki_store_options options = options_of(directory);

	return open_with(&options);
}

struct kiln_tier *open_bounded(const char *directory, uint64_t bytes_max,
			       uint32_t flags)
{
	struct ki_store_options options = options_of(directory);

	options.bytes_max = bytes_max;
	options.flags = flags;
	return open_with(&options);
}

uint64_t bytes_of(struct kiln_tier *tier)
{
	struct kiln_store_info info;

	assert_int_equal(tier->ops->info(tier, &info), KILN_OK);
	return info.bytes;
}

uint64_t disk_bytes(const char *directory)
{
	return kind_disk_bytes(kind, directory);
}

void each_file(const char *directory, file_fn *visit, void *arg)
{
	DIR *dir = opendir(directory);
	struct dirent *entry;

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		char *path = harness_path(directory, entry->d_name);
		struct stat st;

		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") &&
		    !lstat(path, &st)) {
			visit(path, &st, arg);
			if (S_ISDIR(st.st_mode))
				each_file(path, visit, arg);
		}
		free(path);
	}
	closedir(dir);
}

unsigned count_listed(struct kiln_tier *tier, uint64_t *out_bytes)
{
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;
	enum kiln_status status;
	unsigned n = 0;

	*out_bytes = 0;
	while (!(status = tier->ops->list(tier, &cursor, &entry))) {
		n++;
		*out_bytes += entry.value_size;
		assert_int_equal(kiln_blob_size(entry.metadata),
				 NUMBERED_METADATA_BYTES);
		kiln_blob_unref(entry.record);
		kiln_blob_unref(entry.metadata);
	}
	assert_int_equal(status, KILN_END);
	return n;
}
