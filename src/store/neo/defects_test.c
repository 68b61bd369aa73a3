/* SPDX-License-Identifier: MIT */

/* The defects of the originals, one test each. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "store/neo/helpers_test.h"

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
	struct kiln_tier *tier = open_at(directory, 13000);

	for (unsigned n = 0; n < 3; n++)
		assert_int_equal(put(tier, n, 3000), KILN_OK);
	write_sum(directory, low, sizeof(low));
	assert_int_equal(put(tier, 3, 2000), KILN_OK);
	assert_int_equal(sum_of(directory), 11000);
	write_sum(directory, low, sizeof(low));
	assert_int_equal(put(tier, 4, 3000), KILN_OK);
	assert_true(sum_of(directory) <= 13000);
	assert_true(bytes_of(tier) <= 13000);
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

/* DIRECTORY/0 to f, or DIRECTORY/0/0 to f/f, are links to OUTSIDE or what is in
   it. */
static void link_fans(const char *directory, const char *outside,
		      unsigned depth)
{
	char from[KI_PATH_MAX], to[KI_PATH_MAX];

	for (unsigned i = 0; i < (depth == 1 ? 16 : 256); i++) {
		if (depth == 1) {
			snprintf(from, sizeof(from), "%s/%x", directory, i);
			snprintf(to, sizeof(to), "%s/%x", outside, i);
		} else {
			snprintf(from, sizeof(from), "%s/%x", directory,
				 i / 16);
			(void)mkdir(from, 0700);
			snprintf(from, sizeof(from), "%s/%x/%x", directory,
				 i / 16, i % 16);
			snprintf(to, sizeof(to), "%s/%x/%x", outside, i / 16,
				 i % 16);
		}
		assert_int_equal(symlink(to, from), 0);
	}
}

/* An entry at each place where one might be. */
static void fill_outside(const char *outside)
{
	char path[KI_PATH_MAX];

	for (unsigned i = 0; i < 256; i++) {
		snprintf(path, sizeof(path), "%s/%x", outside, i / 16);
		(void)mkdir(path, 0700);
		snprintf(path, sizeof(path), "%s/%x/%x", outside, i / 16,
			 i % 16);
		assert_int_equal(mkdir(path, 0700), 0);
	}
	free(plant(outside, "a/b/ab00000000000000.cl_cache", 50000, 9));
}

static void use_all(struct kiln_tier *tier)
{
	const struct kiln_gc_options options = { .bytes_max = 1 };
	struct kiln_gc_report gc;
	struct kiln_verify_report verify;
	struct kiln_key *key;

	for (unsigned n = 0; n < 8; n++) {
		assert_int_equal(get(tier, n), KILN_MISS);
		assert_int_equal(put(tier, n, 4096), KILN_E_IO);
		assert_int_equal(put_flags(tier, n, 4096, KILN_PUT_REPLACE),
				 KILN_E_IO);
		assert_int_equal(get(tier, n), KILN_MISS);
	}
	assert_int_equal(
		ki_neo_foreign_key("a/b/ab00000000000000.cl_cache", &key),
		KILN_OK);
	assert_int_equal(tier->ops->remove(tier, key), KILN_MISS);
	kiln_key_free(key);
	assert_int_equal(tier->ops->verify(tier, KILN_VERIFY_REPAIR, NULL, NULL,
					   &verify),
			 KILN_OK);
	assert_int_equal(verify.n_foreign, 0);
	assert_int_equal(tier->ops->gc(tier, &options, NULL, NULL, &gc),
			 KILN_OK);
	assert_int_equal(sum_of(neo_of(tier)->directory), 0);
	assert_int_equal(tier->ops->zero_counters(tier), KILN_OK);
	assert_int_equal(tier->ops->wipe(tier), KILN_OK);
}

static uint64_t n_outside(const char *outside)
{
	char command[KI_PATH_MAX + 64];
	unsigned long long n = 0;
	FILE *found;

	snprintf(command, sizeof(command), "find '%s' -type f | wc -l",
		 outside);
	found = popen(command, "r");
	assert_non_null(found);
	assert_int_equal(fscanf(found, "%llu", &n), 1);
	pclose(found);
	return n;
}

/* S15 */
static void a_link_in_the_place_of_a_directory_is_not_followed(void **state)
{
	for (unsigned depth = 1; depth <= 2; depth++) {
		char *directory = harness_directory();
		char *outside = harness_directory();
		struct kiln_tier *tier =
			open_with(&ki_sys_posix, directory, 0, 0, "tree");

		neo_of(tier)->keeps_stats = 1;
		fill_outside(outside);
		link_fans(directory, outside, depth);
		use_all(tier);
		assert_int_equal(n_outside(outside), 1);
		assert_int_equal(sum_there(outside), 50000);
		tier->ops->close(tier);
		free(outside);
		free(directory);
	}
}

/* S15.  Entries of kiln's own that somebody moved away, and linked. */
static void what_lies_behind_a_link_is_gone(void **state)
{
	static const char command[] =
		"cd '%s' && for i in ?; do mv $i '%s' && ln -s '%s'/$i; done";
	char *directory = harness_directory(), *outside = harness_directory();
	char line[3 * KI_PATH_MAX];
	struct kiln_tier *tier =
		open_with(&ki_sys_posix, directory, 60000, 0, "tree");

	for (unsigned n = 0; n < 8; n++)
		assert_int_equal(put(tier, n, 4096), KILN_OK);
	tier->ops->close(tier);
	snprintf(line, sizeof(line), command, directory, outside, outside);
	assert_int_equal(system(line), 0);
	tier = open_with(&ki_sys_posix, directory, 60000, 0, "tree");
	for (unsigned n = 0; n < 8; n++) {
		struct kiln_key *key = key_of(n);

		assert_int_equal(get(tier, n), KILN_MISS);
		assert_int_equal(tier->ops->remove(tier, key), KILN_MISS);
		kiln_key_free(key);
	}
	for (unsigned n = 0; n < 30; n++)
		(void)put(tier, n, 9000);
	assert_true(bytes_of(tier) <= 60000);
	assert_int_equal(tier->ops->wipe(tier), KILN_OK);
	assert_int_equal(sum_there(outside), 8 * 4096);
	tier->ops->close(tier);
	free(outside);
	free(directory);
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

/* The bytes changed, with inode, size and time as they were: by a bad disk, say. */
static void spoil(const char *path)
{
	struct timespec times[2];
	struct stat st;
	size_t size;
	char *bytes = harness_read(path, &size);

	assert_int_equal(stat(path, &st), 0);
	bytes[size / 2] ^= 1;
	harness_write(path, bytes, size);
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	free(bytes);
}

/* S13 */
static void a_bad_binary_is_a_miss_and_makes_way(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_at(directory, 0);

	for (unsigned n = 0; n < 4; n++) {
		char *path;

		assert_int_equal(put(tier, n, 500), KILN_OK);
		path = path_of(tier, n);
		spoil(path);
		assert_true(get(tier, n) != KILN_OK);
		assert_false(exists(path));
		assert_int_equal(put(tier, n, 500), KILN_OK);
		assert_int_equal(get(tier, n), KILN_OK);
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

/* Only sleeping moves it. */
static uint64_t now_ns;

static uint64_t clock_by_hand(const struct ki_sys *sys)
{
	return now_ns;
}

static void sleep_by_hand(const struct ki_sys *sys, uint64_t ns)
{
	now_ns += ns;
}

static uint64_t waits_in_vain(struct kiln_tier *tier)
{
	const uint64_t begun_ns = now_ns;

	assert_int_equal(put(tier, 2, 100), KILN_E_TIMEOUT);
	return now_ns - begun_ns;
}

/* S21, S31 */
static void a_lock_is_waited_for_a_moment_only(void **state)
{
	char *directory = harness_directory();
	char *config = harness_path(directory, "config.file");
	struct ki_sys sys = ki_sys_posix;
	struct kiln_tier *tier;
	int fd;

	now_ns = sys.monotonic_ns(&sys);
	sys.monotonic_ns = clock_by_hand;
	sys.sleep_ns = sleep_by_hand;
	tier = open_with(&sys, directory, 0, 0, NULL);
	assert_int_equal(put(tier, 1, 100), KILN_OK);
	fd = open(config, O_RDWR);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	assert_int_equal(waits_in_vain(tier), KI_NEO_PUT_NS);
	/* He may be stopped: a program that stores much does not wait each
	   time. */
	assert_true(waits_in_vain(tier) <= KI_NEO_PUT_NS / 10);
	now_ns += (uint64_t)60 * 1000000000;
	assert_int_equal(waits_in_vain(tier), KI_NEO_PUT_NS);
	assert_int_equal(get(tier, 1), KILN_OK);
	assert_int_equal(get(tier, 2), KILN_MISS);
	close(fd);
	assert_int_equal(put(tier, 2, 100), KILN_OK);
	tier->ops->close(tier);
	free(config);
	free(directory);
}

static uint64_t clears_in_vain(struct kiln_tier *tier)
{
	const uint64_t begun_ns = now_ns;

	assert_int_equal(tier->ops->wipe(tier), KILN_E_TIMEOUT);
	return now_ns - begun_ns;
}

/* S61: what a store, or a hit of what is damaged, would not wait for is none of
   the tools' business. */
static void each_has_the_patience_that_it_brings(void **state)
{
	char *directory = harness_directory();
	char *config = harness_path(directory, "config.file"), *path;
	struct ki_sys sys = ki_sys_posix;
	struct kiln_tier *tier;
	int fd;

	now_ns = sys.monotonic_ns(&sys);
	sys.monotonic_ns = clock_by_hand;
	sys.sleep_ns = sleep_by_hand;
	tier = open_with(&sys, directory, 0, 0, NULL);
	assert_int_equal(put(tier, 1, 100), KILN_OK);
	path = path_of(tier, 1);
	replace_file(path, "damaged", 7);
	fd = open(config, O_RDWR);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	assert_int_equal(get(tier, 1), KILN_MISS);
	assert_int_equal(waits_in_vain(tier), KI_NEO_PUT_NS);
	assert_int_equal(clears_in_vain(tier), KI_NEO_TOOL_NS);
	assert_true(clears_in_vain(tier) <= KI_NEO_PUT_NS / 10);
	assert_true(waits_in_vain(tier) <= KI_NEO_PUT_NS / 10);
	close(fd);
	assert_int_equal(tier->ops->wipe(tier), KILN_OK);
	tier->ops->close(tier);
	free(path);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
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
			a_link_in_the_place_of_a_directory_is_not_followed),
		cmocka_unit_test(what_lies_behind_a_link_is_gone),
		cmocka_unit_test(
			the_extension_in_a_directorys_name_makes_no_entry),
		cmocka_unit_test(a_shared_store_is_readable_to_its_group),
		cmocka_unit_test(a_bad_binary_is_a_miss_and_makes_way),
		cmocka_unit_test(as_much_goes_as_is_needed),
		cmocka_unit_test(a_lock_is_waited_for_a_moment_only),
		cmocka_unit_test(each_has_the_patience_that_it_brings),
		cmocka_unit_test(
			without_locks_nothing_is_stored_and_hits_go_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
