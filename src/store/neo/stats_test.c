/* SPDX-License-Identifier: MIT */

/* The driver's own counters, alone and with a driver. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "base/bytes.h"
#include "key/key.h"
#include "store/neo/helpers_test.h"

#define N_LOOKUPS 200

static struct kiln_tier *open_counting(const char *directory,
				       const char *layout, uint32_t flags)
{
	struct kiln_tier *tier;

	setenv("NEO_CACHE_STATS", "1", 1);
	tier = open_with(&ki_sys_posix, directory, 0, flags, layout);
	unsetenv("NEO_CACHE_STATS");
	return tier;
}

/* The three files of key n, from the root down. */
static char *stats_path(struct kiln_tier *tier, unsigned n, unsigned level)
{
	struct kiln_key *key = key_of(n);
	char name[KILN_NEO_NAME_BYTES];

	ki_neo_name_key(neo_of(tier), key, NULL, 0, name);
	kiln_key_free(key);
	strcpy(name + 2 * level, "stats");
	return harness_path(neo_of(tier)->directory, name);
}

struct numbers {
	uint64_t hits;
	uint64_t misses;
	uint64_t version;
};

static const struct numbers nothing = { UINT64_MAX, UINT64_MAX, UINT64_MAX };

static struct numbers read_numbers(const char *path)
{
	struct numbers numbers = nothing;
	size_t size;
	char *bytes = harness_read(path, &size);

	if (bytes && size >= 24)
		numbers = (struct numbers){ ki_get_u64(bytes),
					    ki_get_u64(bytes + 8),
					    ki_get_u64(bytes + 16) };
	free(bytes);
	return numbers;
}

static void write_numbers(const char *path, struct numbers numbers, size_t size)
{
	uint8_t bytes[32] = { 0 };

	ki_put_u64(bytes, numbers.hits);
	ki_put_u64(bytes + 8, numbers.misses);
	ki_put_u64(bytes + 16, numbers.version);
	harness_write(path, bytes, size);
}

static void assert_numbers(struct kiln_tier *tier, unsigned n, unsigned level,
			   uint64_t hits, uint64_t misses)
{
	char *path = stats_path(tier, n, level);
	const struct numbers numbers = read_numbers(path);

	assert_int_equal(numbers.hits, hits);
	assert_int_equal(numbers.misses, misses);
	assert_int_equal(numbers.version, hits == UINT64_MAX ? hits : 1);
	free(path);
}

static void lookups_count_from_the_root_down(void **state)
{
	char *directory = harness_directory(), *path;
	struct kiln_tier *tier = open_counting(directory, "tree", 0);
	struct stat st;

	/* There is no directory yet but the root. */
	assert_int_equal(get(tier, 1), KILN_MISS);
	assert_numbers(tier, 1, 0, 0, 1);
	assert_numbers(tier, 1, 1, UINT64_MAX, UINT64_MAX);
	assert_int_equal(put(tier, 1, 10), KILN_OK);
	assert_int_equal(get(tier, 1), KILN_OK);
	assert_int_equal(get(tier, 1), KILN_OK);
	assert_numbers(tier, 1, 0, 2, 1);
	assert_numbers(tier, 1, 1, 2, 0);
	assert_numbers(tier, 1, 2, 2, 0);
	path = path_of(tier, 1);
	assert_int_equal(unlink(path), 0);
	free(path);
	assert_int_equal(get(tier, 1), KILN_MISS);
	assert_numbers(tier, 1, 0, 2, 2);
	assert_numbers(tier, 1, 2, 2, 1);
	path = stats_path(tier, 1, 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0600, 0600);
	free(path);
	tier->ops->close(tier);
	free(directory);
}

static void nobody_counts_who_did_not_ask_or_only_reads(void **state)
{
	static const struct {
		const char *layout;
		uint32_t flags;
		int asks;
	} rows[] = { { "tree", 0, 0 },
		     { "tree", KILN_OPEN_READONLY, 1 },
		     { "flat", 0, 1 } };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *directory = harness_directory();
		struct kiln_tier *tier = open_at(directory, 0);

		assert_int_equal(put(tier, 1, 10), KILN_OK);
		tier->ops->close(tier);
		tier = rows[i].asks ? open_counting(directory, rows[i].layout,
						    rows[i].flags)
				    : open_with(&ki_sys_posix, directory, 0,
						rows[i].flags, rows[i].layout);
		(void)get(tier, 1);
		(void)get(tier, 2);
		assert_int_equal(n_names(directory, "^stats$"), 0);
		tier->ops->close(tier);
		free(directory);
	}
}

/* What is lost or wrong is the sum of what lies below it. */
static void damaged_counts_are_counted_anew(void **state)
{
	static const struct {
		struct numbers numbers;
		size_t size;
		int is_believed;
	} rows[] = {
		{ { 7, 5, 1 }, 24, 1 },
		{ { 7, 5, 1 }, 30, 1 },
		{ { 7, 5, 1 }, 23, 0 },
		{ { 7, 5, 1 }, 0, 0 },
		{ { 7, 5, 2 }, 24, 0 },
		{ { 7, 5, 0 }, 24, 0 },
		{ { UINT64_MAX, 5, 1 }, 24, 0 },
		{ { 7, UINT64_MAX, 1 }, 24, 0 },
	};
	char *directory = harness_directory();
	struct kiln_tier *tier = open_counting(directory, "tree", 0);
	uint64_t hits = 1;
	char *root, *middle, *leaf;

	assert_int_equal(put(tier, 1, 10), KILN_OK);
	assert_int_equal(get(tier, 1), KILN_OK);
	root = stats_path(tier, 1, 0);
	middle = stats_path(tier, 1, 1);
	leaf = stats_path(tier, 1, 2);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t misses = rows[i].is_believed ? 5 : 0;

		write_numbers(root, rows[i].numbers, rows[i].size);
		assert_int_equal(get(tier, 1), KILN_OK);
		assert_numbers(tier, 1, 0, rows[i].is_believed ? 8 : hits + 1,
			       misses);
		hits++;
		unlink(root);
	}
	/* Two levels at once, and a leaf, which begins anew. */
	write_numbers(root, nothing, 24);
	write_numbers(middle, nothing, 24);
	assert_int_equal(get(tier, 1), KILN_OK);
	hits++;
	assert_numbers(tier, 1, 0, hits, 0);
	assert_numbers(tier, 1, 1, hits, 0);
	assert_numbers(tier, 1, 2, hits, 0);
	write_numbers(leaf, nothing, 24);
	assert_int_equal(get(tier, 1), KILN_OK);
	assert_numbers(tier, 1, 0, hits + 1, 0);
	assert_numbers(tier, 1, 2, 1, 0);
	tier->ops->close(tier);
	free(root);
	free(middle);
	free(leaf);
	free(directory);
}

static void counts_are_read_and_set_to_nothing(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_counting(directory, "tree", 0);
	struct ki_neo_lookups lookups;
	struct kiln_store_info info;

	assert_int_equal(ki_neo_read_lookups(neo_of(tier), &lookups), -ENOENT);
	for (unsigned n = 0; n < 8; n++) {
		assert_int_equal(put(tier, n, 10), KILN_OK);
		assert_int_equal(get(tier, n), KILN_OK);
	}
	assert_int_equal(get(tier, 99), KILN_MISS);
	assert_int_equal(ki_neo_read_lookups(neo_of(tier), &lookups), 0);
	assert_int_equal(lookups.n_hits, 8);
	assert_int_equal(lookups.n_misses, 1);
	assert_int_equal(tier->ops->info(tier, &info), KILN_OK);
	assert_int_equal(info.n_format_hits, 8);
	assert_int_equal(info.n_format_misses, 1);
	assert_int_equal(tier->ops->zero_counters(tier), KILN_OK);
	assert_int_equal(ki_neo_read_lookups(neo_of(tier), &lookups), 0);
	assert_int_equal(lookups.n_hits + lookups.n_misses, 0);
	for (unsigned n = 0; n < 8; n++)
		for (unsigned level = 0; level < 3; level++)
			assert_numbers(tier, n, level, 0, 0);
	tier->ops->close(tier);
	free(directory);
}

/* ---- With a driver ---------------------------------------------------------------- */

/* As the driver does it; 0 if it could. */
static int count_as_an_original(const char *path, int is_hit)
{
	uint64_t words[3] = { 0, 0, 1 };
	int fd = open(path, O_RDWR), result = -1;

	if (fd < 0)
		fd = open(path, O_CREAT | O_EXCL | O_RDWR, 0664);
	if (fd < 0)
		fd = open(path, O_RDWR);
	if (fd < 0 || flock(fd, LOCK_EX))
		return -1;
	if (pread(fd, words, sizeof(words), 0) >= 0) {
		if (words[2] != 1)
			words[0] = words[1] = 0;
		words[2] = 1;
		words[is_hit ? 0 : 1]++;
		result = pwrite(fd, words, sizeof(words), 0) == sizeof(words)
				 ? 0
				 : -1;
	}
	flock(fd, LOCK_UN);
	close(fd);
	return result;
}

static int look_up_often(unsigned index, void *arg)
{
	struct kiln_tier *tier = open_counting(arg, "tree", 0);
	char *paths[3];
	int result = 0;

	for (unsigned level = 0; level < 3; level++)
		paths[level] = stats_path(tier, 1, level);
	for (unsigned i = 0; i < N_LOOKUPS && !result; i++) {
		if (index % 2)
			result = get(tier, 1) != KILN_OK;
		for (unsigned level = 0; level < 3 && !(index % 2); level++)
			result |= count_as_an_original(paths[level], 1) != 0;
	}
	for (unsigned level = 0; level < 3; level++)
		free(paths[level]);
	tier->ops->close(tier);
	return result;
}

static void kiln_and_originals_count_in_one_file(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_counting(directory, "tree", 0);

	assert_int_equal(put(tier, 1, 10), KILN_OK);
	assert_int_equal(harness_processes(4, look_up_often, directory, 60), 0);
	for (unsigned level = 0; level < 3; level++) {
		char *path = stats_path(tier, 1, level);
		const struct numbers numbers = read_numbers(path);

		/* Kiln gives up a count rather than wait for long. */
		assert_true(numbers.hits >= 2 * N_LOOKUPS);
		assert_true(numbers.hits <= 4 * N_LOOKUPS);
		assert_int_equal(numbers.misses, 0);
		assert_int_equal(numbers.version, 1);
		free(path);
	}
	tier->ops->close(tier);
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lookups_count_from_the_root_down),
		cmocka_unit_test(nobody_counts_who_did_not_ask_or_only_reads),
		cmocka_unit_test(damaged_counts_are_counted_anew),
		cmocka_unit_test(counts_are_read_and_set_to_nothing),
		cmocka_unit_test(kiln_and_originals_count_in_one_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
