/* SPDX-License-Identifier: MIT */

/*
 * What tests/conform does not ask of every store: names, layouts, the defects
 * of the originals, one test each, and how eviction goes.  tests/neo has the
 * company of an original.
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

#include "base/bytes.h"
#include "key/key.h"
#include "store/neo/neo.h"

#define HOUR_NS ((int64_t)3600 * 1000000000)

static struct kiln_tier *open_with(const struct ki_sys *sys,
				   const char *directory, uint64_t bytes_max,
				   uint32_t flags, const char *layout)
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

static struct kiln_tier *open_at(const char *directory, uint64_t bytes_max)
{
	return open_with(&ki_sys_posix, directory, bytes_max, 0, NULL);
}

static struct ki_neo *neo_of(struct kiln_tier *tier)
{
	return (struct ki_neo *)tier;
}

static struct kiln_key *key_of(unsigned n)
{
	struct kiln_key *key = kiln_key_new();

	kiln_key_add(key, "n", &n, sizeof(n));
	if (kiln_key_finish(key))
		abort();
	return key;
}

static enum kiln_status put_flags(struct kiln_tier *tier, unsigned n,
				  size_t size, unsigned flags)
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

static enum kiln_status put(struct kiln_tier *tier, unsigned n, size_t size)
{
	return put_flags(tier, n, size, 0);
}

/* KILN_OK only with the right bytes. */
static enum kiln_status get(struct kiln_tier *tier, unsigned n)
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

/* The path of key n's entry, from malloc(). */
static char *path_of(struct kiln_tier *tier, unsigned n)
{
	struct kiln_key *key = key_of(n);
	char name[KILN_NEO_NAME_BYTES];

	ki_neo_name_key(neo_of(tier), key, NULL, 0, name);
	kiln_key_free(key);
	return harness_path(neo_of(tier)->directory, name);
}

static int exists(const char *path)
{
	struct stat st;

	return !lstat(path, &st);
}

static uint64_t sum_of(const char *directory)
{
	char *path = harness_path(directory, "config.file"), *bytes;
	uint64_t sum = UINT64_MAX;
	size_t size;

	bytes = harness_read(path, &size);
	if (bytes && size == 8)
		sum = ki_get_u64(bytes);
	free(bytes);
	free(path);
	return sum;
}

static void write_sum(const char *directory, const void *bytes, size_t size)
{
	char *path = harness_path(directory, "config.file");

	harness_write(path, bytes, size);
	free(path);
}

/* Last used so many hours ago. */
static void set_age(const char *path, int hours)
{
	struct timespec times[2];

	clock_gettime(CLOCK_REALTIME, &times[0]);
	times[0].tv_sec -= 3600 * hours;
	times[1] = times[0];
	assert_int_equal(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW),
			 0);
}

static void set_use(const char *path, int hours)
{
	struct timespec times[2] = { { 0 }, { .tv_nsec = UTIME_OMIT } };

	clock_gettime(CLOCK_REALTIME, &times[0]);
	times[0].tv_sec -= 3600 * hours;
	assert_int_equal(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW),
			 0);
}

static void set_use_of(struct kiln_tier *tier, unsigned n, int hours)
{
	char *path = path_of(tier, n);

	set_use(path, hours);
	free(path);
}

static uint64_t bytes_of(struct kiln_tier *tier)
{
	struct kiln_store_info info;

	assert_int_equal(tier->ops->info(tier, &info), KILN_OK);
	return info.bytes;
}

/* An entry as an original leaves it. */
static char *plant(const char *directory, const char *name, size_t size,
		   int hours)
{
	char *path = harness_path(directory, name);
	char *bytes = calloc(1, size + 1);

	memset(bytes, 'i', size);
	harness_write(path, bytes, size);
	set_age(path, hours);
	free(bytes);
	return path;
}

/* As writers do: written elsewhere, then renamed over what is there. */
static void replace_file(const char *path, const char *bytes, size_t size)
{
	char temporary[KI_PATH_MAX];

	snprintf(temporary, sizeof(temporary), "%s.theirs", path);
	harness_write(temporary, bytes, size);
	assert_int_equal(rename(temporary, path), 0);
}

/* ---- Names and files ----------------------------------------------------------------- */

static void an_entry_is_the_bare_value_under_a_hashed_name(void **state)
{
	static const char *const layouts[] = { "flat", "tree" };

	for (unsigned i = 0; i < 2; i++) {
		char *directory = harness_directory(), *path, *bytes;
		struct kiln_tier *tier =
			open_with(&ki_sys_posix, directory, 0, 0, layouts[i]);
		struct stat st;
		size_t size;

		assert_int_equal(put(tier, 7, 3000), KILN_OK);
		path = path_of(tier, 7);
		bytes = harness_read(path, &size);
		assert_non_null(bytes);
		assert_int_equal(size, 3000);
		assert_int_equal(bytes[2999], 8);
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_mode & 07777, 0600);
		assert_int_equal(sum_of(directory), 3000);
		assert_int_equal(put(tier, 8, 2000), KILN_OK);
		assert_int_equal(sum_of(directory), 5000);
		tier->ops->close(tier);
		free(bytes);
		free(path);
		free(directory);
	}
}

static void the_front_names_the_extension(void **state)
{
	char *directory = harness_directory(), *path;
	struct kiln_tier *tier = open_at(directory, 0);
	struct kiln_metadata *metadata = kiln_metadata_new();
	struct kiln_key *key = key_of(1);
	char name[KILN_NEO_NAME_BYTES];
	struct kiln_blob *blob;
	const void *bytes;
	size_t size;

	kiln_metadata_add_string(metadata, KILN_META_FRONT, "levelzero");
	assert_int_equal(kiln_metadata_bytes(metadata, &bytes, &size), KILN_OK);
	ki_neo_name_key(neo_of(tier), key, bytes, size, name);
	assert_string_equal(strchr(name, '.'), ".l0_cache");
	assert_int_equal(tier->ops->put(tier, key, bytes, size, "value", 5, 0),
			 KILN_OK);
	path = harness_path(directory, name);
	assert_true(exists(path));
	assert_int_equal(tier->ops->get(tier, key, &blob, NULL), KILN_OK);
	kiln_blob_unref(blob);
	tier->ops->close(tier);
	kiln_key_free(key);
	kiln_metadata_free(metadata);
	free(path);
	free(directory);
}

static void a_drivers_entry_is_no_ones_hit_and_not_overwritten(void **state)
{
	char *directory = harness_directory(), *path, *bytes;
	struct kiln_tier *tier = open_at(directory, 0);
	size_t size;

	path = path_of(tier, 1);
	harness_write(path, "intel", 5);
	assert_int_equal(get(tier, 1), KILN_MISS);
	assert_int_equal(put(tier, 1, 100), KILN_E_COLLISION);
	assert_int_equal(put_flags(tier, 1, 100, KILN_PUT_REPLACE),
			 KILN_E_COLLISION);
	assert_int_equal(get(tier, 1), KILN_MISS);
	/* And where one comes in the place of ours. */
	assert_int_equal(put(tier, 2, 100), KILN_OK);
	free(path);
	path = path_of(tier, 2);
	replace_file(path, "intel", 5);
	assert_int_equal(get(tier, 2), KILN_MISS);
	assert_int_equal(put_flags(tier, 2, 100, KILN_PUT_REPLACE),
			 KILN_E_COLLISION);
	bytes = harness_read(path, &size);
	assert_string_equal(bytes, "intel");
	tier->ops->close(tier);
	free(bytes);
	free(path);
	free(directory);
}

static void what_lost_its_record_is_taken_over_by_the_same_bytes(void **state)
{
	char *directory = harness_directory();
	char *records = harness_path(directory, "kiln.records");
	struct kiln_tier *tier = open_at(directory, 0);

	assert_int_equal(put(tier, 1, 100000), KILN_OK);
	assert_int_equal(unlink(records), 0);
	tier->ops->close(tier);
	tier = open_at(directory, 0);
	assert_int_equal(get(tier, 1), KILN_MISS);
	assert_int_equal(put(tier, 1, 99999), KILN_E_COLLISION);
	assert_int_equal(put(tier, 1, 100000), KILN_OK);
	assert_int_equal(get(tier, 1), KILN_OK);
	assert_int_equal(sum_of(directory), 100000);
	tier->ops->close(tier);
	free(records);
	free(directory);
}

/* S02: the hash cut to 8 bits. */
static void names_that_meet_never_give_a_wrong_value(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_at(directory, 0);
	unsigned n_stored = 0, n_collisions = 0;

	neo_of(tier)->name_mask = 0xff;
	for (unsigned n = 0; n < 1000; n++) {
		enum kiln_status status = put(tier, n, 100 + n);

		assert_true(status == KILN_OK || status == KILN_E_COLLISION);
		n_stored += status == KILN_OK;
		n_collisions += status == KILN_E_COLLISION;
	}
	assert_in_range(n_stored, 200, 256);
	assert_true(n_collisions > 0);
	for (unsigned n = 0; n < 1000; n++) {
		enum kiln_status status = get(tier, n);

		assert_true(status == KILN_OK || status == KILN_MISS);
		n_stored -= status == KILN_OK;
	}
	assert_int_equal(n_stored, 0);
	tier->ops->close(tier);
	free(directory);
}

/* ---- Layouts -------------------------------------------------------------------------- */

static void a_layout_is_told_by_what_is_there(void **state)
{
	char *directory = harness_directory();
	char *fan = harness_path(directory, "a");
	char *file = harness_path(directory, "b");
	struct ki_store_options options = { .sys = &ki_sys_posix,
					    .directory = directory,
					    .name = "round" };
	struct kiln_tier *tier = open_at(directory, 0);

	assert_int_equal(neo_of(tier)->layout, KILN_NEO_FLAT);
	tier->ops->close(tier);
	harness_write(file, "no directory", 12);
	tier = open_at(directory, 0);
	assert_int_equal(neo_of(tier)->layout, KILN_NEO_FLAT);
	tier->ops->close(tier);
	assert_int_equal(mkdir(fan, 0700), 0);
	tier = open_at(directory, 0);
	assert_int_equal(neo_of(tier)->layout, KILN_NEO_TREE);
	tier->ops->close(tier);
	tier = open_with(&ki_sys_posix, directory, 0, 0, "flat");
	assert_int_equal(neo_of(tier)->layout, KILN_NEO_FLAT);
	tier->ops->close(tier);
	assert_int_equal(ki_store_neo_open(&options, &tier), KILN_E_INVALID);
	free(file);
	free(fan);
	free(directory);
}

/* S17 */
static void a_tree_reads_and_first_evicts_what_a_flat_one_left(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_at(directory, 0);

	for (unsigned n = 0; n < 10; n++)
		assert_int_equal(put(tier, n, 10000), KILN_OK);
	tier->ops->close(tier);
	tier = open_with(&ki_sys_posix, directory, 220000, 0, "tree");
	for (unsigned n = 0; n < 10; n++)
		assert_int_equal(get(tier, n), KILN_OK);
	for (unsigned n = 10; n < 20; n++)
		assert_int_equal(put(tier, n, 10000), KILN_OK);
	assert_int_equal(sum_of(directory), 200000);
	/* Those of the tree were used longest ago. */
	for (unsigned n = 10; n < 20; n++)
		set_use_of(tier, n, 100);
	assert_int_equal(put(tier, 20, 20000), KILN_OK);
	for (unsigned n = 10; n <= 20; n++)
		assert_int_equal(get(tier, n), KILN_OK);
	assert_true(sum_of(directory) <= 220000 / 3 * 2 + 20000);
	tier->ops->close(tier);
	free(directory);
}

/* ---- Defects of the originals ------------------------------------------------------------ */

static int n_writes_left;

static ssize_t full_pwritev(const struct ki_sys *sys, int fd,
			    const struct ki_piece *pieces, int n_pieces,
			    uint64_t offset)
{
	struct ki_piece half = { pieces->data, pieces->size / 2 };

	if (n_writes_left-- > 0)
		return ki_sys_posix.pwritev(&ki_sys_posix, fd, pieces, n_pieces,
					    offset);
	/* What fits is written, the rest is refused. */
	return half.size ? ki_sys_posix.pwritev(&ki_sys_posix, fd, &half, 1,
						offset)
			 : -ENOSPC;
}

static unsigned n_names(const char *directory, const char *part)
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

/* S29 */
static void a_full_disk_publishes_nothing_cut_short(void **state)
{
	char *directory = harness_directory();
	struct ki_sys sys = ki_sys_posix;
	struct kiln_tier *tier = open_with(&sys, directory, 0, 0, NULL);

	assert_int_equal(put(tier, 1, 5000), KILN_OK);
	sys.pwritev = full_pwritev;
	for (int n = 0; n < 3; n++) {
		enum kiln_status status;

		n_writes_left = n;
		status = put(tier, 2, 5000);
		sys.pwritev = ki_sys_posix.pwritev;
		assert_int_equal(n_names(directory, "cl_cache\\."), 0);
		if (n < 2) {
			assert_int_equal(status, KILN_E_FULL);
			assert_int_equal(get(tier, 2), KILN_MISS);
			assert_int_equal(sum_of(directory), 5000);
		}
		sys.pwritev = full_pwritev;
	}
	sys.pwritev = ki_sys_posix.pwritev;
	assert_int_equal(get(tier, 1), KILN_OK);
	(void)put(tier, 2, 5000);
	assert_int_equal(get(tier, 2), KILN_OK);
	assert_int_equal(sum_of(directory), 10000);
	tier->ops->close(tier);
	free(directory);
}

static void an_empty_file_is_no_entry_and_makes_way(void **state)
{
	char *directory = harness_directory(), *path;
	struct kiln_tier *tier =
		open_with(&ki_sys_posix, directory, 0, 0, "tree");

	assert_int_equal(put(tier, 2, 10), KILN_OK);
	path = path_of(tier, 2);
	replace_file(path, "", 0);
	assert_int_equal(get(tier, 2), KILN_MISS);
	assert_int_equal(put(tier, 2, 10), KILN_OK);
	assert_int_equal(get(tier, 2), KILN_OK);
	tier->ops->close(tier);
	free(path);
	free(directory);
}

static void a_sum_that_is_too_low_does_not_wrap(void **state)
{
	static const uint8_t low[8] = { 100 };
	char *directory = harness_directory();
	struct kiln_tier *tier = open_at(directory, 12000);

	for (unsigned n = 0; n < 3; n++)
		assert_int_equal(put(tier, n, 3000), KILN_OK);
	write_sum(directory, low, sizeof(low));
	assert_int_equal(put(tier, 3, 2000), KILN_OK);
	assert_int_equal(sum_of(directory), 11000);
	write_sum(directory, low, sizeof(low));
	assert_int_equal(put(tier, 4, 3000), KILN_OK);
	assert_true(sum_of(directory) <= 12000);
	assert_true(bytes_of(tier) <= 12000);
	assert_int_equal(get(tier, 4), KILN_OK);
	tier->ops->close(tier);
	free(directory);
}

/* Of a driver's entries alone, which nothing else knows of. */
static void a_low_sum_of_foreign_entries_is_put_right_by_eviction(void **state)
{
	static const uint8_t low[8] = { 100 };
	char *directory = harness_directory();
	struct kiln_tier *tier = open_at(directory, 12000);

	free(plant(directory, "0000000000000001.cl_cache", 5000, 9));
	free(plant(directory, "0000000000000002.l0_cache", 5000, 8));
	write_sum(directory, low, sizeof(low));
	for (unsigned n = 0; n < 6; n++)
		assert_int_equal(put(tier, n, 3000), KILN_OK);
	assert_true(harness_disk_bytes(directory) > 0);
	assert_true(bytes_of(tier) <= 12000);
	assert_int_equal(n_names(directory, "^0000"), 0);
	tier->ops->close(tier);
	free(directory);
}

/* S49 */
static void a_config_file_that_is_short_or_garbage_is_counted_anew(void **state)
{
	static const uint8_t garbage[][8] = {
		{ 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f },
		{ 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff },
		{ 0, 0, 0, 0, 0, 0, 0, 0x80 },
		{ 0 },
	};
	char *directory = harness_directory();
	struct kiln_tier *tier = open_at(directory, 1 << 20);
	uint64_t expected = 0;
	unsigned n = 0;

	free(plant(directory, "0000000000000001.cl_cache", 700, 0));
	free(plant(directory, "0000000000000002.l0_cache", 70, 0));
	free(plant(directory, "0000000000000003.ocloc_cache", 7, 0));
	expected = 770;
	for (size_t size = 0; size <= 8; size++) {
		write_sum(directory, garbage[0], size);
		assert_int_equal(put(tier, n++, 1000), KILN_OK);
		expected += 1000;
		assert_int_equal(sum_of(directory), expected);
	}
	for (size_t i = 1; i < 4; i++) {
		write_sum(directory, garbage[i], 8);
		assert_int_equal(put(tier, n++, 1000), KILN_OK);
		expected += 1000;
		assert_int_equal(sum_of(directory), expected);
	}
	tier->ops->close(tier);
	free(directory);
}

static int64_t clock_shift;

static uint64_t shifted_realtime(const struct ki_sys *sys)
{
	return ki_sys_posix.realtime_ns(sys) + (uint64_t)clock_shift;
}

static void orphan_temporaries_go_when_they_are_old(void **state)
{
	char *directory = harness_directory(), *young;
	struct ki_sys sys = ki_sys_posix;
	struct kiln_tier *tier = open_with(&sys, directory, 0, 0, NULL);
	struct kiln_gc_options options = { 0 };
	struct kiln_gc_report report;

	sys.realtime_ns = shifted_realtime;
	clock_shift = 0;
	free(plant(directory, "cl_cache.Ab3xYz", 100, 0));
	free(plant(directory, "cl_cache.longer_name", 100, 0));
	assert_int_equal(tier->ops->gc(tier, &options, NULL, NULL, &report),
			 KILN_OK);
	assert_int_equal(report.n_temporaries, 0);
	clock_shift = 2 * HOUR_NS;
	young = plant(directory, "cl_cache.QQQQQQ", 100, 0);
	{
		struct timespec times[2] = { { .tv_sec = 0 } };

		clock_gettime(CLOCK_REALTIME, &times[0]);
		times[0].tv_sec += 2 * 3600;
		times[1] = times[0];
		assert_int_equal(utimensat(AT_FDCWD, young, times, 0), 0);
	}
	assert_int_equal(tier->ops->gc(tier, &options, NULL, NULL, &report),
			 KILN_OK);
	clock_shift = 0;
	assert_int_equal(report.n_temporaries, 1);
	assert_int_equal(n_names(directory, "Ab3xYz"), 0);
	assert_int_equal(n_names(directory, "longer_name"), 1);
	assert_true(exists(young));
	tier->ops->close(tier);
	free(young);
	free(directory);
}

/* S34: as if the mount never wrote times of access. */
static void what_is_used_stays_whatever_the_mount_writes(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_at(directory, 100000);

	for (unsigned n = 0; n < 9; n++) {
		assert_int_equal(put(tier, n, 10000), KILN_OK);
		set_use_of(tier, n, 20 - (int)n);
	}
	/* The oldest ones, and nothing else. */
	assert_int_equal(get(tier, 0), KILN_OK);
	assert_int_equal(get(tier, 1), KILN_OK);
	assert_int_equal(put(tier, 9, 20000), KILN_OK);
	assert_int_equal(get(tier, 0), KILN_OK);
	assert_int_equal(get(tier, 1), KILN_OK);
	assert_int_equal(get(tier, 2), KILN_MISS);
	assert_int_equal(get(tier, 3), KILN_MISS);
	assert_int_equal(get(tier, 8), KILN_OK);
	assert_int_equal(get(tier, 9), KILN_OK);
	tier->ops->close(tier);
	free(directory);
}

static void only_kilns_own_get_a_time_of_use(void **state)
{
	char *directory = harness_directory(), *path;
	struct kiln_tier *tier = open_at(directory, 0);
	struct stat before, after;

	assert_int_equal(put(tier, 1, 10), KILN_OK);
	path = path_of(tier, 1);
	set_use(path, 5);
	assert_int_equal(stat(path, &before), 0);
	assert_int_equal(get(tier, 1), KILN_OK);
	assert_int_equal(stat(path, &after), 0);
	assert_true(after.st_atim.tv_sec - before.st_atim.tv_sec > 4 * 3600);
	assert_int_equal(after.st_mtim.tv_sec, before.st_mtim.tv_sec);
	assert_int_equal(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
	replace_file(path, "foreign", 7);
	set_age(path, 5);
	assert_int_equal(stat(path, &before), 0);
	assert_int_equal(get(tier, 1), KILN_MISS);
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(after.st_atim.tv_sec, before.st_atim.tv_sec);
	tier->ops->close(tier);
	free(path);
	free(directory);
}

/* S15 */
static void a_link_that_leads_nowhere_stops_nothing(void **state)
{
	static const char *const layouts[] = { "flat", "tree" };

	for (unsigned i = 0; i < 2; i++) {
		char *directory = harness_directory(), *link, *loop, *pipe;
		struct kiln_tier *tier = open_with(&ki_sys_posix, directory,
						   50000, 0, layouts[i]);

		assert_int_equal(put(tier, 0, 9000), KILN_OK);
		link = harness_path(directory, "0000000000000001.cl_cache");
		loop = harness_path(directory, "b");
		pipe = harness_path(directory, "0000000000000002.cl_cache");
		assert_int_equal(symlink("nowhere", link), 0);
		(void)symlink(".", loop);
		assert_int_equal(mkfifo(pipe, 0600), 0);
		write_sum(directory, "", 0);
		for (unsigned n = 1; n < 20; n++)
			assert_int_equal(put(tier, n, 9000), KILN_OK);
		assert_true(bytes_of(tier) <= 50000);
		assert_int_equal(get(tier, 19), KILN_OK);
		assert_true(exists(link) && exists(pipe));
		tier->ops->close(tier);
		free(pipe);
		free(loop);
		free(link);
		free(directory);
	}
}

static void the_extension_in_a_directorys_name_makes_no_entry(void **state)
{
	char *place = harness_directory();
	char *directory = harness_path(place, "my.cl_cache");
	char *stats, *near;
	struct kiln_tier *tier =
		open_with(&ki_sys_posix, directory, 50000, 0, "tree");

	stats = plant(directory, "stats", 24, 1000);
	near = plant(directory, "0.cl_cache.old", 24, 1000);
	for (unsigned n = 0; n < 20; n++)
		assert_int_equal(put(tier, n, 9000), KILN_OK);
	assert_true(exists(stats) && exists(near));
	assert_int_equal(get(tier, 19), KILN_OK);
	assert_int_equal(sum_of(directory) % 9000, 0);
	tier->ops->close(tier);
	free(near);
	free(stats);
	free(directory);
	free(place);
}

/* S35 */
static void a_shared_store_is_readable_to_its_group(void **state)
{
	static const char *const layouts[] = { "flat", "tree" };

	for (unsigned i = 0; i < 2; i++) {
		char *place = harness_directory(), *path, *file;
		char *directory = harness_path(place, "shared");
		mode_t mask = umask(077);
		struct kiln_tier *tier =
			open_with(&ki_sys_posix, directory, 0, KILN_OPEN_SHARED,
				  layouts[i]);
		static const char *const files[] = { "config.file",
						     "kiln.records" };
		struct stat st;

		assert_int_equal(put(tier, 1, 100), KILN_OK);
		umask(mask);
		path = path_of(tier, 1);
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_mode & 07777, 0660);
		for (unsigned f = 0; f < 2; f++) {
			file = harness_path(directory, files[f]);
			assert_int_equal(stat(file, &st), 0);
			assert_int_equal(st.st_mode & 0777, 0660);
			free(file);
		}
		*strrchr(path, '/') = '\0';
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_mode & 07777, 02770);
		tier->ops->close(tier);
		free(path);
		free(directory);
		free(place);
	}
}

/* S13 */
static void a_bad_binary_is_a_miss_and_makes_way(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_at(directory, 0);

	for (unsigned n = 0; n < 4; n++) {
		char *path, *bytes;
		struct timespec times[2];
		struct stat st;
		size_t size;

		assert_int_equal(put(tier, n, 500), KILN_OK);
		path = path_of(tier, n);
		bytes = harness_read(path, &size);
		assert_int_equal(stat(path, &st), 0);
		bytes[250] ^= 1;
		harness_write(path, bytes, n == 1 ? 250 : size);
		/* Also where nothing but the bytes tells. */
		times[0] = st.st_atim;
		times[1] = st.st_mtim;
		if (n == 2)
			assert_int_equal(utimensat(AT_FDCWD, path, times, 0),
					 0);
		assert_true(get(tier, n) != KILN_OK);
		assert_false(exists(path));
		assert_int_equal(put(tier, n, 500), KILN_OK);
		assert_int_equal(get(tier, n), KILN_OK);
		free(bytes);
		free(path);
	}
	assert_int_equal(sum_of(directory), 2000);
	tier->ops->close(tier);
	free(directory);
}

static void as_much_goes_as_is_needed(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_at(directory, 100000);

	for (unsigned n = 0; n < 9; n++)
		assert_int_equal(put(tier, n, 10000), KILN_OK);
	/* Far more than a third. */
	assert_int_equal(put(tier, 100, 95000), KILN_OK);
	assert_int_equal(get(tier, 100), KILN_OK);
	assert_int_equal(sum_of(directory), 95000);
	assert_true(bytes_of(tier) <= 100000);
	tier->ops->close(tier);
	free(directory);
}

/* S21, S31 */
static void a_lock_is_waited_for_a_moment_only(void **state)
{
	char *directory = harness_directory();
	char *config = harness_path(directory, "config.file");
	struct kiln_tier *tier = open_at(directory, 0);
	const struct ki_sys *sys = &ki_sys_posix;
	uint64_t begin, end;
	int fd;

	assert_int_equal(put(tier, 1, 100), KILN_OK);
	fd = open(config, O_RDWR);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	begin = sys->monotonic_ns(sys);
	assert_int_equal(put(tier, 2, 100), KILN_E_TIMEOUT);
	end = sys->monotonic_ns(sys);
	assert_true(end - begin >= KI_NEO_PUT_NS);
	assert_true(end - begin < 20 * KI_NEO_PUT_NS);
	assert_int_equal(get(tier, 1), KILN_OK);
	assert_int_equal(get(tier, 2), KILN_MISS);
	close(fd);
	assert_int_equal(put(tier, 2, 100), KILN_OK);
	tier->ops->close(tier);
	free(config);
	free(directory);
}

static int no_flock(const struct ki_sys *sys, int fd, enum ki_lock_kind kind)
{
	return -ENOLCK;
}

/* S31 */
static void without_locks_nothing_is_stored_and_hits_go_on(void **state)
{
	char *directory = harness_directory();
	struct ki_sys sys = ki_sys_posix;
	struct kiln_tier *tier = open_with(&sys, directory, 0, 0, NULL);

	assert_int_equal(put(tier, 1, 100), KILN_OK);
	sys.try_flock = no_flock;
	assert_int_equal(put(tier, 2, 100), KILN_E_IO);
	assert_int_equal(get(tier, 1), KILN_OK);
	tier->ops->close(tier);
	free(directory);
}

/* ---- Eviction -------------------------------------------------------------------------------- */

static void the_least_recently_used_go_in_order_until_a_third_is_free(
	void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_at(directory, 320000);
	unsigned n;

	for (n = 0; n < 30; n++) {
		assert_int_equal(put(tier, n, 10000), KILN_OK);
		/* Not in the order of their making. */
		set_use_of(tier, n, 1 + (int)(n * 7 % 30));
	}
	assert_int_equal(put(tier, 30, 20000), KILN_OK);
	for (n = 0; n < 30; n++)
		assert_int_equal(get(tier, n),
				 1 + n * 7 % 30 > 21 ? KILN_MISS : KILN_OK);
	assert_in_range(sum_of(directory), 200000, 320000 / 3 * 2 + 20000);
	tier->ops->close(tier);
	free(directory);
}

static void a_drivers_entries_take_their_turn(void **state)
{
	char *directory = harness_directory(), *old, *young;
	struct kiln_tier *tier = open_at(directory, 100000);

	old = plant(directory, "0123456789abcdef.cl_cache", 30000, 50);
	young = plant(directory, "0123456789abcdef.l0_cache", 20000, 0);
	for (unsigned n = 0; n < 4; n++) {
		assert_int_equal(put(tier, n, 10000), KILN_OK);
		set_use_of(tier, n, 20);
	}
	assert_int_equal(sum_of(directory), 90000);
	assert_int_equal(put(tier, 10, 20000), KILN_OK);
	assert_false(exists(old));
	assert_true(exists(young));
	assert_int_equal(sum_of(directory), 80000);
	tier->ops->close(tier);
	free(old);
	free(young);
	free(directory);
}

/* A directory that is large for the steps that are set. */
static void a_large_directory_is_evicted_in_steps(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_at(directory, 400000);
	uint64_t before, after, lowest = UINT64_MAX;
	unsigned n;

	neo_of(tier)->looks_max = 32;
	neo_of(tier)->step_max = 4;
	for (n = 0; n < 320; n++) {
		assert_int_equal(put(tier, n, 1000), KILN_OK);
		set_use_of(tier, n, 500 - (int)n);
	}
	for (unsigned i = 0; i < 120; i++, n++) {
		before = sum_of(directory);
		assert_int_equal(put(tier, n, 1000), KILN_OK);
		after = sum_of(directory);
		assert_true(before + 1000 - after <= 5000);
		assert_true(bytes_of(tier) <= 400000);
		lowest = after < lowest ? after : lowest;
	}
	assert_true(lowest < 250000);
	/* The youngest are all there. */
	for (unsigned i = n - 120; i < n; i++)
		assert_int_equal(get(tier, i), KILN_OK);
	assert_int_equal(get(tier, 0), KILN_MISS);
	tier->ops->close(tier);
	free(directory);
}

static void all_at_once_is_an_option(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_at(directory, 400000);
	unsigned n = 0;

	neo_of(tier)->looks_max = 32;
	neo_of(tier)->step_max = SIZE_MAX;
	while (n < 320)
		assert_int_equal(put(tier, n++, 1000), KILN_OK);
	neo_of(tier)->looks_max = SIZE_MAX;
	while (sum_of(directory) > 300000 && n < 500)
		assert_int_equal(put(tier, n++, 1000), KILN_OK);
	assert_true(sum_of(directory) <= 400000 / 3 * 2 + 1000);
	tier->ops->close(tier);
	free(directory);
}

/* Small values: their records are most of it. */
static void kiln_records_is_in_the_limit_and_renewed(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_at(directory, 65536);
	struct kiln_verify_report report;

	for (unsigned n = 0; n < 2000; n++) {
		assert_int_equal(put(tier, n, 16), KILN_OK);
		assert_int_equal(get(tier, n), KILN_OK);
		if (n % 64 == 0)
			assert_true(bytes_of(tier) <= 65536);
	}
	assert_int_equal(tier->ops->verify(tier, KILN_VERIFY_ACCOUNTING, NULL,
					   NULL, &report),
			 KILN_OK);
	assert_int_equal(report.bytes_noted, report.bytes_counted);
	tier->ops->close(tier);
	free(directory);
}

static void a_limit_set_by_a_tool_holds_for_the_next_one(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_at(directory, 1 << 20), *other;

	for (unsigned n = 0; n < 20; n++)
		assert_int_equal(put(tier, n, 10000), KILN_OK);
	assert_int_equal(tier->ops->set_limit(tier, 50000), KILN_OK);
	assert_true(bytes_of(tier) <= 50000);
	other = open_at(directory, 1 << 20);
	for (unsigned n = 20; n < 40; n++) {
		assert_int_equal(put(other, n, 10000), KILN_OK);
		assert_true(bytes_of(other) <= 50000);
	}
	other->ops->close(other);
	tier->ops->close(tier);
	free(directory);
}

/* ---- Real directories ---------------------------------------------------------------------------- */

static void what_drivers_wrote_is_looked_at_and_left_alone(void **state)
{
	static const char *const names[] = { "neo_25.05_flat",
					     "neo_head_2026-08_tree",
					     "ocloc_22.43_debian12" };
	const char *root = getenv("KILN_TEST_NEO_DATA");

	if (!root || access(root, R_OK)) {
		print_message("# not tried: no real directories here "
			      "(KILN_TEST_NEO_DATA)\n");
		return;
	}
	for (unsigned i = 0; i < 3; i++) {
		char *directory = harness_path(root, names[i]);
		struct kiln_tier *tier = open_with(
			&ki_sys_posix, directory, 0,
			KILN_OPEN_READONLY | KILN_OPEN_ANY_OWNER, NULL);
		struct kiln_verify_report report;
		struct kiln_cursor cursor = { { 0 } };
		struct kiln_entry entry;

		assert_int_equal(neo_of(tier)->layout,
				 i == 1 ? KILN_NEO_TREE : KILN_NEO_FLAT);
		assert_int_equal(
			tier->ops->verify(tier, 0, NULL, NULL, &report),
			KILN_OK);
		assert_int_equal(report.n_damaged, 0);
		assert_int_equal(bytes_of(tier), i == 2 ? 0 : 7184);
		assert_int_equal(tier->ops->list(tier, &cursor, &entry),
				 KILN_END);
		tier->ops->close(tier);
		free(directory);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			an_entry_is_the_bare_value_under_a_hashed_name),
		cmocka_unit_test(the_front_names_the_extension),
		cmocka_unit_test(
			a_drivers_entry_is_no_ones_hit_and_not_overwritten),
		cmocka_unit_test(
			what_lost_its_record_is_taken_over_by_the_same_bytes),
		cmocka_unit_test(names_that_meet_never_give_a_wrong_value),
		cmocka_unit_test(a_layout_is_told_by_what_is_there),
		cmocka_unit_test(
			a_tree_reads_and_first_evicts_what_a_flat_one_left),
		cmocka_unit_test(a_full_disk_publishes_nothing_cut_short),
		cmocka_unit_test(an_empty_file_is_no_entry_and_makes_way),
		cmocka_unit_test(a_sum_that_is_too_low_does_not_wrap),
		cmocka_unit_test(
			a_low_sum_of_foreign_entries_is_put_right_by_eviction),
		cmocka_unit_test(
			a_config_file_that_is_short_or_garbage_is_counted_anew),
		cmocka_unit_test(orphan_temporaries_go_when_they_are_old),
		cmocka_unit_test(what_is_used_stays_whatever_the_mount_writes),
		cmocka_unit_test(only_kilns_own_get_a_time_of_use),
		cmocka_unit_test(a_link_that_leads_nowhere_stops_nothing),
		cmocka_unit_test(
			the_extension_in_a_directorys_name_makes_no_entry),
		cmocka_unit_test(a_shared_store_is_readable_to_its_group),
		cmocka_unit_test(a_bad_binary_is_a_miss_and_makes_way),
		cmocka_unit_test(as_much_goes_as_is_needed),
		cmocka_unit_test(a_lock_is_waited_for_a_moment_only),
		cmocka_unit_test(
			without_locks_nothing_is_stored_and_hits_go_on),
		cmocka_unit_test(
			the_least_recently_used_go_in_order_until_a_third_is_free),
		cmocka_unit_test(a_drivers_entries_take_their_turn),
		cmocka_unit_test(a_large_directory_is_evicted_in_steps),
		cmocka_unit_test(all_at_once_is_an_option),
		cmocka_unit_test(kiln_records_is_in_the_limit_and_renewed),
		cmocka_unit_test(a_limit_set_by_a_tool_holds_for_the_next_one),
		cmocka_unit_test(
			what_drivers_wrote_is_looked_at_and_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
