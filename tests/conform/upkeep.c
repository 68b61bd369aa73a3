/* SPDX-License-Identifier: MIT */

/*
 * upkeep KIND: what puts a store in order, for each kind that lies in a
 * directory: verify, changed limits, gc.
 */

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "conform/kinds.h"

#define BOUND	  ((uint64_t)20 << 20)
#define N_OWN	  3 /* tests */
#define N_DAMAGED 3

static const struct kind *kind;

/* The real system with a wall clock that a test moves. */
static int64_t shift_ns;

static uint64_t shifted_realtime(const struct ki_sys *self)
{
	return ki_sys_posix.realtime_ns(self) + (uint64_t)shift_ns;
}

static struct kiln_tier *open_in(const char *directory, uint64_t bytes_max)
{
	static struct ki_sys sys;
	struct ki_store_options options = { .sys = &sys,
					    .directory = directory,
					    .bytes_max = bytes_max };
	struct kiln_tier *tier = NULL;

	sys = ki_sys_posix;
	sys.realtime_ns = shifted_realtime;
	assert_int_equal(kind->open(&options, &tier), KILN_OK);
	return tier;
}

static void put(struct kiln_tier *tier, unsigned n, size_t size)
{
	assert_int_equal(put_numbered(tier, n, size, 0), KILN_OK);
}

static struct kiln_verify_report verified(struct kiln_tier *tier,
					  unsigned flags)
{
	struct kiln_verify_report report;

	assert_int_equal(tier->ops->verify(tier, flags, NULL, NULL, &report),
			 KILN_OK);
	return report;
}

static struct kiln_store_info info_of(struct kiln_tier *tier)
{
	struct kiln_store_info info;

	assert_int_equal(tier->ops->info(tier, &info), KILN_OK);
	return info;
}

/* ---- Files ------------------------------------------------------------------- */

typedef void file_fn(const char *path, void *arg);

static void each_file(const char *directory, file_fn *visit, void *arg)
{
	DIR *dir = opendir(directory);
	struct dirent *entry;

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		char *path = harness_path(directory, entry->d_name);
		struct stat st;

		if (*entry->d_name != '.' && !lstat(path, &st)) {
			if (S_ISDIR(st.st_mode))
				each_file(path, visit, arg);
			else
				visit(path, arg);
		}
		free(path);
	}
	closedir(dir);
}

/* Nobody wrote it: a medium does not set times. */
static void write_unseen(const char *path, const void *data, size_t size)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	harness_write(path, data, size);
	assert_int_equal(
		utimensat(AT_FDCWD, path,
			  (struct timespec[]){ st.st_atim, st.st_mtim }, 0),
		0);
}

/* Turn a bit in the middle of the value of key n, wherever it lies. */
struct hit {
	unsigned n;
	size_t size;
	unsigned n_hit;
};

static void hit_file(const char *path, void *arg)
{
	struct hit *hit = arg;
	size_t size;
	char *data = harness_read(path, &size), *found;
	char *value = malloc(hit->size);

	fill_value(hit->n, value, hit->size);
	found = data ? memmem(data, size, value, hit->size) : NULL;
	if (found) {
		found[hit->size / 2] ^= 1;
		write_unseen(path, data, size);
		hit->n_hit++;
	}
	free(value);
	free(data);
}

static void count_aside(const char *path, void *arg)
{
	*(unsigned *)arg += strstr(path, "quarantine/") != NULL;
}

static void remove_larger(const char *path, void *arg)
{
	struct stat st;

	if (!lstat(path, &st) && (size_t)st.st_size > *(size_t *)arg &&
	    !strstr(path, ".idx"))
		unlink(path);
}

/* Whether a report names the entry of key n. */
static int names(const struct kiln_verify_report *report, unsigned n)
{
	struct kiln_key *key = numbered_key(n);
	unsigned i, n_found = 0;

	for (i = 0; i < report->n_named; i++)
		n_found += report->named[i].has_digest &&
			   !memcmp(report->named[i].digest,
				   kiln_key_digest(key), KILN_DIGEST_BYTES);
	kiln_key_free(key);
	return n_found == 1;
}

/* ---- Verify ------------------------------------------------------------------- */

/* S13 */
static void repair_moves_what_is_damaged_and_nothing_else(void **state)
{
	static const unsigned damaged[N_DAMAGED] = { 3, 17, 29 };
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory, BOUND);
	struct kiln_verify_report report;
	unsigned n, n_aside = 0;

	for (n = 0; n < 30; n++)
		put(tier, n, 1000 + n);
	tier->ops->close(tier);
	for (n = 0; n < N_DAMAGED; n++) {
		struct hit hit = { damaged[n], 1000 + damaged[n], 0 };

		each_file(directory, hit_file, &hit);
		assert_int_equal(hit.n_hit, 1);
	}

	tier = open_in(directory, BOUND);
	report = verified(tier, 0);
	assert_int_equal(report.n_damaged, N_DAMAGED);
	assert_int_equal(report.n_repaired, 0);
	assert_int_equal(report.n_entries, 30 - N_DAMAGED);
	assert_int_equal(report.n_named, N_DAMAGED);
	for (n = 0; n < N_DAMAGED; n++)
		assert_true(names(&report, damaged[n]));
	report = verified(tier, KILN_VERIFY_REPAIR);
	assert_int_equal(report.n_damaged, N_DAMAGED);
	assert_int_equal(report.n_repaired, N_DAMAGED);
	each_file(directory, count_aside, &n_aside);
	assert_int_equal(n_aside, kind->is_own ? N_DAMAGED : 0);
	assert_int_equal(report.n_dropped, N_DAMAGED - n_aside);
	report = verified(tier, 0);
	assert_int_equal(report.n_damaged, 0);
	assert_int_equal(report.n_entries, 30 - N_DAMAGED);
	for (n = 0; n < 30; n++)
		assert_int_equal(get_numbered(tier, n),
				 n == 3 || n == 17 || n == 29 ? KILN_MISS
							      : KILN_OK);
	tier->ops->close(tier);
	free(directory);
}

static void remove_large(const char *path, void *arg)
{
	unsigned *n_removed = arg;
	struct stat st;

	if (!*n_removed && !lstat(path, &st) && S_ISREG(st.st_mode) &&
	    st.st_size > 2900000 && st.st_size < 4 << 20)
		*n_removed += !unlink(path);
}

/* S49: a file that somebody removed is a lost entry, and no damage. */
static void a_file_removed_by_hand_is_lost_and_no_damage(void **state)
{
	static const unsigned flags[] = { KILN_VERIFY_REPAIR,
					  KILN_VERIFY_ACCOUNTING };

	for (size_t i = 0; i < 2; i++) {
		char *directory = harness_directory();
		struct kiln_tier *tier = open_in(directory, BOUND);
		struct kiln_verify_report report;
		unsigned n_removed = 0, n_found = 0;

		for (unsigned n = 0; n < 4; n++)
			put(tier, n, 3000000);
		tier->ops->close(tier);
		each_file(directory, remove_large, &n_removed);
		assert_int_equal(n_removed, 1);
		tier = open_in(directory, BOUND);
		report = verified(tier, 0);
		assert_int_equal(report.n_damaged, 0);
		assert_int_equal(report.n_entries, 3);
		report = verified(tier, flags[i]);
		assert_int_equal(report.n_damaged, 0);
		/* Who has no account of entries counts none. */
		assert_true(!report.n_counted || report.n_counted == 3);
		assert_int_equal(verified(tier, 0).n_gone, 0);
		for (unsigned n = 0; n < 4; n++)
			n_found += get_numbered(tier, n) == KILN_OK;
		assert_int_equal(n_found, 3);
		tier->ops->close(tier);
		free(directory);
	}
}

static void verify_reads_what_nothing_leads_to(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory, BOUND);
	struct kiln_key *key = numbered_key(5);
	struct kiln_verify_report report;
	unsigned n;

	for (n = 0; n < 10; n++)
		put(tier, n, 1000);
	assert_int_equal(tier->ops->remove(tier, key), KILN_OK);
	assert_int_equal(put_numbered(tier, 6, 2000, KILN_PUT_REPLACE),
			 KILN_OK);
	report = verified(tier, 0);
	assert_int_equal(report.n_entries, 9);
	assert_int_equal(report.n_damaged, 0);
	/* A store of one file per entry leaves none. */
	if (report.n_dead) {
		assert_int_equal(report.n_dead, 2);
		assert_in_range(report.bytes_dead, 2000, 4096);
	}
	report = verified(tier, KILN_VERIFY_REPAIR);
	assert_int_equal(report.n_repaired, 0);
	assert_int_equal(get_numbered(tier, 5), KILN_MISS);
	tier->ops->close(tier);
	kiln_key_free(key);
	free(directory);
}

static int put_and_die(unsigned index, void *arg)
{
	struct ki_store_options options = { .sys = &ki_sys_posix,
					    .directory = arg,
					    .bytes_max = BOUND };
	struct kiln_tier *tier;
	unsigned n;

	if (kind->open(&options, &tier))
		return 1;
	for (n = 0; n < 10; n++)
		if (put_numbered(tier, 100 + n, 1000, 0))
			return 1;
	_exit(0);
}

/* S49 */
static void the_account_is_put_right_without_reading_entries(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory, BOUND);
	struct kiln_verify_report report;
	size_t larger_than = 2000000;
	unsigned n;

	for (n = 0; n < 20; n++)
		put(tier, n, 1000);
	put(tier, 20, 3000000);
	assert_int_equal(
		harness_processes(1, put_and_die, directory, HARNESS_HANG_S),
		0);
	each_file(directory, remove_larger, &larger_than);

	report = verified(tier, KILN_VERIFY_ACCOUNTING);
	assert_int_equal(report.n_entries, 0); /* none was read */
	assert_true(report.bytes_noted > report.bytes_counted + 1000);
	report = verified(tier, KILN_VERIFY_ACCOUNTING);
	assert_int_equal(report.bytes_noted, report.bytes_counted);
	assert_int_equal(report.n_noted, report.n_counted);
	assert_int_equal(info_of(tier).n_entries, 30);
	for (n = 0; n < 20; n++)
		assert_int_equal(get_numbered(tier, n), KILN_OK);
	assert_int_equal(get_numbered(tier, 20), KILN_MISS);
	put(tier, 20, 3000000);
	assert_int_equal(get_numbered(tier, 20), KILN_OK);
	assert_int_equal(verified(tier, 0).n_damaged, 0);
	tier->ops->close(tier);
	free(directory);
}

static int verify_or_write(unsigned index, void *arg)
{
	struct ki_store_options options = { .sys = &ki_sys_posix,
					    .directory = arg,
					    .bytes_max = BOUND / 5 };
	struct kiln_verify_report report;
	struct kiln_tier *tier;
	unsigned i;
	int status;

	if (kind->open(&options, &tier))
		return 1;
	for (i = 0; i < 200 && index; i++) {
		status = put_numbered(tier, i * 4 + index, 20000,
				      i % 2 ? KILN_PUT_REPLACE : 0);
		if (status && status != KILN_EXISTS && status != KILN_E_TIMEOUT)
			return 2;
		status = get_numbered(tier, i * 4 + index);
		if (status && status != KILN_MISS)
			return 3;
	}
	for (i = 0; i < 10 && !index; i++) {
		status = tier->ops->verify(tier, KILN_VERIFY_REPAIR, NULL, NULL,
					   &report);
		if (status && status != KILN_E_TIMEOUT)
			return 4;
		if (!status && report.n_damaged)
			return 5;
	}
	tier->ops->close(tier);
	return 0;
}

static void verify_finds_no_damage_in_a_store_in_use(void **state)
{
	char *directory = harness_directory();

	assert_int_equal(harness_processes(3, verify_or_write, directory,
					   HARNESS_HANG_S),
			 0);
	free(directory);
}

/* ---- Limits ------------------------------------------------------------------- */

/* S47 */
static void a_limit_lowered_tenfold_keeps_the_newest_and_the_used(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory, BOUND);
	unsigned n, n_left = 0;

	for (n = 0; n < 500; n++)
		put(tier, n, 20000);
	assert_int_equal(get_numbered(tier, 0), KILN_OK);
	assert_int_equal(tier->ops->set_limit(tier, BOUND / 10), KILN_OK);
	assert_true(info_of(tier).bytes <= BOUND / 10);
	assert_int_equal(info_of(tier).bytes_max, BOUND / 10);
	for (n = 475; n < 500; n++)
		assert_int_equal(get_numbered(tier, n), KILN_OK);
	for (n = 1; n < 500; n++)
		n_left += get_numbered(tier, n) == KILN_OK;
	assert_in_range(n_left, 40, BOUND / 10 / 20000);
	for (n = 1; n < 350; n++)
		assert_int_equal(get_numbered(tier, n), KILN_MISS);
	/* And it goes on under the new limit, for whoever opens it. */
	tier->ops->close(tier);
	tier = open_in(directory, BOUND);
	for (n = 2000; n < 2200; n++) {
		put(tier, n, 20000);
		assert_int_equal(get_numbered(tier, n), KILN_OK);
	}
	assert_true(info_of(tier).bytes <= BOUND / 10);
	tier->ops->close(tier);
	free(directory);
}

/* S47 */
static void what_is_larger_than_the_limit_goes_or_never_comes(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory, BOUND);
	const uint64_t lower = BOUND / 20;

	put(tier, 1, 4000000);
	put(tier, 2, 1000);
	assert_int_equal(tier->ops->set_limit(tier, lower), KILN_OK);
	assert_true(info_of(tier).bytes <= lower);
	assert_int_equal(get_numbered(tier, 1), KILN_MISS);
	put(tier, 3, 1000);
	assert_int_equal(put_numbered(tier, 4, lower + 1, 0), KILN_E_TOO_LARGE);
	assert_int_equal(put_numbered(tier, 3, lower + 1, KILN_PUT_REPLACE),
			 KILN_E_TOO_LARGE);
	assert_int_equal(get_numbered(tier, 3), KILN_OK);
	tier->ops->close(tier);
	free(directory);
}

/* S47 */
static void limit_0_is_no_limit(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory, BOUND / 20);
	unsigned n;

	put(tier, 0, 1000);
	assert_int_equal(tier->ops->set_limit(tier, 0), KILN_OK);
	assert_int_equal(info_of(tier).bytes_max, 0);
	for (n = 1; n < 120; n++)
		put(tier, n, 50000);
	put(tier, 120, 3000000);
	for (n = 0; n <= 120; n++)
		assert_int_equal(get_numbered(tier, n), KILN_OK);
	assert_true(info_of(tier).bytes > BOUND / 20);
	assert_int_equal(tier->ops->set_limit(tier, BOUND / 20), KILN_OK);
	assert_true(info_of(tier).bytes <= BOUND / 20);
	tier->ops->close(tier);
	free(directory);
}

/* S47 */
static void a_limit_below_what_may_not_go_changes_nothing(void **state)
{
	char *directory = harness_directory();
	struct ki_store_options options = { .sys = &ki_sys_posix,
					    .directory = directory,
					    .bytes_max = BOUND,
					    .flags = KILN_OPEN_REFUSE_FULL };
	struct kiln_tier *tier;
	unsigned n;

	assert_int_equal(kind->open(&options, &tier), KILN_OK);
	for (n = 0; n < 200; n++)
		put(tier, n, 20000);
	assert_int_equal(tier->ops->set_limit(tier, BOUND / 10), KILN_E_FULL);
	for (n = 0; n < 200; n++)
		assert_int_equal(get_numbered(tier, n), KILN_OK);
	/* Also not what may come. */
	assert_int_equal(info_of(tier).bytes_max, BOUND);
	for (n = 200; n < 300; n++)
		put(tier, n, 20000);
	assert_int_equal(tier->ops->set_limit(tier, BOUND / 2), KILN_OK);
	for (n = 0; n < 300; n++)
		assert_int_equal(get_numbered(tier, n), KILN_OK);
	tier->ops->close(tier);
	free(directory);
}

/* S47 */
static void a_limit_too_low_for_anything_is_refused(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory, BOUND);
	unsigned n;

	for (n = 0; n < 20; n++)
		put(tier, n, 1000);
	assert_int_equal(tier->ops->set_limit(tier, 1), KILN_E_FULL);
	assert_int_equal(tier->ops->set_limit(tier, 10000), KILN_E_FULL);
	assert_int_equal(info_of(tier).bytes_max, BOUND);
	for (n = 0; n < 20; n++)
		assert_int_equal(get_numbered(tier, n), KILN_OK);
	tier->ops->close(tier);
	free(directory);
}

/* ---- Gc ----------------------------------------------------------------------- */

static struct kiln_gc_report cleaned(struct kiln_tier *tier, uint64_t bytes_max,
				     uint64_t age_max_s, unsigned flags)
{
	struct kiln_gc_options options = { bytes_max, age_max_s, flags };
	struct kiln_gc_report report;

	assert_int_equal(tier->ops->gc(tier, &options, NULL, NULL, &report),
			 KILN_OK);
	assert_true(report.bytes_after <= report.bytes_before);
	assert_int_equal(report.bytes_after, info_of(tier).bytes);
	return report;
}

static void make_older(const char *path, void *arg)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT },
				     { .tv_nsec = UTIME_NOW } };
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	times[1] = st.st_mtim;
	times[1].tv_sec -= *(time_t *)arg;
	/* Where that is when it was used last. */
	if (kind->is_named_by_inode) {
		times[0] = st.st_atim;
		times[0].tv_sec -= *(time_t *)arg;
	}
	assert_int_equal(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW),
			 0);
}

static void gc_comes_under_a_lower_limit_this_once(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory, BOUND);
	struct kiln_gc_report report;
	unsigned n, n_left = 0;

	for (n = 0; n < 500; n++)
		put(tier, n, 20000);
	assert_int_equal(get_numbered(tier, 0), KILN_OK);
	report = cleaned(tier, BOUND / 10, 0, 0);
	assert_true(report.bytes_after <= BOUND / 10);
	for (n = 475; n < 500; n++)
		assert_int_equal(get_numbered(tier, n), KILN_OK);
	for (n = 1; n < 350; n++)
		assert_int_equal(get_numbered(tier, n), KILN_MISS);
	for (n = 0; n < 500; n++)
		n_left += get_numbered(tier, n) == KILN_OK;
	assert_int_equal(report.n_evicted, 500 - n_left);
	assert_true(n_left > 25);

	assert_int_equal(info_of(tier).bytes_max, BOUND);
	for (n = 2000; n < 2250; n++)
		put(tier, n, 20000);
	for (n = 2000; n < 2250; n++)
		assert_int_equal(get_numbered(tier, n), KILN_OK);
	tier->ops->close(tier);
	free(directory);
}

/* The tail is then the oldest segment that there is. */
static void gc_evicts_where_all_values_are_large(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory, BOUND);
	unsigned n;

	put(tier, 0, 1000);
	for (n = 1; n < 12; n++)
		put(tier, n, 1300000);
	assert_true(cleaned(tier, BOUND / 4, 0, 0).bytes_after <= BOUND / 4);
	for (n = 0; n < 8; n++)
		assert_int_equal(get_numbered(tier, n), KILN_MISS);
	assert_int_equal(get_numbered(tier, 11), KILN_OK);
	tier->ops->close(tier);
	free(directory);
}

static void gc_leaves_what_is_within_all_limits(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory, BOUND);
	struct kiln_gc_report report;
	unsigned n;

	for (n = 0; n < 50; n++)
		put(tier, n, 1000 * n + 8);
	put(tier, 50, 3000000);
	report = cleaned(tier, 0, 3600, KILN_GC_QUARANTINE);
	assert_int_equal(report.bytes_after, report.bytes_before);
	assert_int_equal(report.n_evicted + report.n_expired +
				 report.n_segments + report.n_temporaries +
				 report.n_quarantined,
			 0);
	for (n = 0; n <= 50; n++)
		assert_int_equal(get_numbered(tier, n), KILN_OK);
	tier->ops->close(tier);
	free(directory);
}

static void gc_refuses_less_than_the_store_needs_for_itself(void **state)
{
	struct kiln_gc_options options = { .bytes_max = 1000 };
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory, BOUND);
	struct kiln_gc_report report;

	put(tier, 1, 1000);
	assert_int_equal(tier->ops->gc(tier, &options, NULL, NULL, &report),
			 KILN_E_FULL);
	assert_int_equal(get_numbered(tier, 1), KILN_OK);
	tier->ops->close(tier);
	free(directory);
}

/* By the clock where entries say when they were used, else by their files. */
static void gc_removes_what_was_not_used_for_long(void **state)
{
	time_t two_hours = 7200;
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory, BOUND);
	struct kiln_gc_report report;
	unsigned n;

	for (n = 0; n < 10; n++)
		put(tier, n, 1000);
	each_file(directory, make_older, &two_hours);
	shift_ns = two_hours * (int64_t)1000000000;
	for (n = 10; n < 20; n++)
		put(tier, n, 1000);
	if (kind->has_files_clock)
		shift_ns = 0;
	report = cleaned(tier, 0, 3600, 0);
	assert_int_equal(report.n_expired, 10);
	assert_int_equal(report.n_evicted, 0);
	for (n = 0; n < 20; n++)
		assert_int_equal(get_numbered(tier, n),
				 n < 10 ? KILN_MISS : KILN_OK);
	shift_ns = 0;
	tier->ops->close(tier);
	free(directory);
}

static void age_quarantine(const char *path, void *arg)
{
	if (strstr(path, "quarantine/"))
		make_older(path, arg);
}

static void damaged_ones_put_aside_go_by_age_or_on_request(void **state)
{
	time_t days[] = { 29 * 86400, 2 * 86400 };
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory, BOUND);
	struct hit hit = { 3, 1003, 0 };
	unsigned n;

	for (n = 0; n < 10; n++)
		put(tier, n, 1000 + n);
	tier->ops->close(tier);
	each_file(directory, hit_file, &hit);
	tier = open_in(directory, BOUND);
	assert_int_equal(verified(tier, KILN_VERIFY_REPAIR).n_repaired, 1);
	assert_int_equal(cleaned(tier, 0, 0, 0).n_quarantined, 0);
	each_file(directory, age_quarantine, &days[0]);
	assert_int_equal(cleaned(tier, 0, 0, 0).n_quarantined, 0);
	each_file(directory, age_quarantine, &days[1]);
	assert_int_equal(cleaned(tier, 0, 0, 0).n_quarantined, 1);

	hit = (struct hit){ 4, 1004, 0 };
	tier->ops->close(tier);
	each_file(directory, hit_file, &hit);
	tier = open_in(directory, BOUND);
	assert_int_equal(verified(tier, KILN_VERIFY_REPAIR).n_repaired, 1);
	assert_int_equal(cleaned(tier, 0, 0, KILN_GC_QUARANTINE).n_quarantined,
			 1);
	tier->ops->close(tier);
	free(directory);
}

static void gc_removes_what_dead_writers_left(void **state)
{
	static const char *const names[][2] = {
		{ "log", "kiln.tmp.4000000.1" },
		{ "file", "kiln.files/settings.0123456789abcdef.tmp" },
		{ "neo", "kiln.records.new" },
		{ "neo-tree", "kiln.records.new" },
	};
	time_t three_days = 3 * 86400;
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory, BOUND);
	struct kiln_gc_report report;
	unsigned i;

	put(tier, 1, 1000);
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char *path = harness_path(directory, names[i][1]);

		if (!strcmp(kind->name, names[i][0])) {
			harness_write(path, "unfinished", 10);
			make_older(path, &three_days);
			report = cleaned(tier, 0, 0, 0);
			assert_int_equal(report.n_temporaries, 1);
			assert_int_equal(access(path, F_OK), -1);
		}
		free(path);
	}
	assert_int_equal(get_numbered(tier, 1), KILN_OK);
	tier->ops->close(tier);
	free(directory);
}

static int clean_or_write(unsigned index, void *arg)
{
	struct kiln_gc_options gc = { BOUND / 10, 0, KILN_GC_QUARANTINE };
	struct ki_store_options options = { .sys = &ki_sys_posix,
					    .directory = arg,
					    .bytes_max = BOUND / 5 };
	struct kiln_gc_report report;
	struct kiln_tier *tier;
	unsigned i, n_found = 0;
	int status;

	if (kind->open(&options, &tier))
		return 1;
	for (i = 0; i < 200 && index; i++) {
		status = put_numbered(tier, i * 4 + index,
				      i % 16 ? 10000 : 300000, 0);
		if (status && status != KILN_E_TIMEOUT)
			return 2;
		status = get_numbered(tier, i * 4 + index);
		if (status && status != KILN_MISS)
			return 3;
		n_found += !status;
	}
	for (i = 0; i < 20 && !index; i++) {
		status = tier->ops->gc(tier, &gc, NULL, NULL, &report);
		if (status && status != KILN_E_TIMEOUT)
			return 4;
	}
	tier->ops->close(tier);
	return !index || n_found > 100 ? 0 : 5;
}

static void gc_disturbs_nobody(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier;

	assert_int_equal(
		harness_processes(3, clean_or_write, directory, HARNESS_HANG_S),
		0);
	tier = open_in(directory, BOUND / 5);
	assert_int_equal(verified(tier, 0).n_damaged, 0);
	tier->ops->close(tier);
	free(directory);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(repair_moves_what_is_damaged_and_nothing_else),
		cmocka_unit_test(a_file_removed_by_hand_is_lost_and_no_damage),
		cmocka_unit_test(verify_reads_what_nothing_leads_to),
		cmocka_unit_test(
			the_account_is_put_right_without_reading_entries),
		cmocka_unit_test(verify_finds_no_damage_in_a_store_in_use),
		cmocka_unit_test(
			a_limit_lowered_tenfold_keeps_the_newest_and_the_used),
		cmocka_unit_test(
			what_is_larger_than_the_limit_goes_or_never_comes),
		cmocka_unit_test(limit_0_is_no_limit),
		cmocka_unit_test(a_limit_below_what_may_not_go_changes_nothing),
		cmocka_unit_test(gc_comes_under_a_lower_limit_this_once),
		cmocka_unit_test(gc_evicts_where_all_values_are_large),
		cmocka_unit_test(gc_leaves_what_is_within_all_limits),
		cmocka_unit_test(gc_removes_what_was_not_used_for_long),
		cmocka_unit_test(gc_removes_what_dead_writers_left),
		cmocka_unit_test(gc_disturbs_nobody),
		/* Of formats that are kiln's own. */
		cmocka_unit_test(a_limit_too_low_for_anything_is_refused),
		cmocka_unit_test(
			gc_refuses_less_than_the_store_needs_for_itself),
		cmocka_unit_test(
			damaged_ones_put_aside_go_by_age_or_on_request),
	};
	size_t n = sizeof(tests) / sizeof(tests[0]);

	kind = argc > 1 ? kind_find(argv[1]) : NULL;
	if (!kind) {
		fprintf(stderr, "usage: upkeep KIND\n");
		return 2;
	}
	if (!kind->is_own)
		n -= N_OWN;
	return _cmocka_run_group_tests(kind->name, tests, n, NULL, NULL);
}
