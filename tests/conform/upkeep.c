/* SPDX-License-Identifier: MIT */

/*
 * upkeep KIND: what puts a store in order, for each kind that lies in a
 * directory: verify and changed limits.
 */

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "conform/kinds.h"

#define BOUND	  ((uint64_t)40 << 20)
#define N_DAMAGED 3

static const struct kind *kind;

static struct kiln_tier *open_in(const char *directory, uint64_t bytes_max)
{
	struct ki_store_options options = { .sys = &ki_sys_posix,
					    .directory = directory,
					    .bytes_max = bytes_max };
	struct kiln_tier *tier = NULL;

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
		harness_write(path, data, size);
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
	report = verified(tier, KILN_VERIFY_REPAIR);
	assert_int_equal(report.n_damaged, N_DAMAGED);
	assert_int_equal(report.n_repaired, N_DAMAGED);
	each_file(directory, count_aside, &n_aside);
	assert_int_equal(n_aside, N_DAMAGED);
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
	assert_int_equal(harness_processes(1, put_and_die, directory, 30), 0);
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
					    .bytes_max = BOUND / 10 };
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

	assert_int_equal(harness_processes(3, verify_or_write, directory, 60),
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

	for (n = 0; n < 1000; n++)
		put(tier, n, 20000);
	assert_int_equal(get_numbered(tier, 0), KILN_OK);
	assert_int_equal(tier->ops->set_limit(tier, BOUND / 10), KILN_OK);
	assert_true(info_of(tier).bytes <= BOUND / 10);
	assert_int_equal(info_of(tier).bytes_max, BOUND / 10);
	for (n = 950; n < 1000; n++)
		assert_int_equal(get_numbered(tier, n), KILN_OK);
	for (n = 1; n < 1000; n++)
		n_left += get_numbered(tier, n) == KILN_OK;
	assert_in_range(n_left, 80, BOUND / 10 / 20000);
	for (n = 1; n < 700; n++)
		assert_int_equal(get_numbered(tier, n), KILN_MISS);
	/* And it goes on under the new limit, for whoever opens it. */
	tier->ops->close(tier);
	tier = open_in(directory, BOUND);
	for (n = 2000; n < 2400; n++) {
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

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(repair_moves_what_is_damaged_and_nothing_else),
		cmocka_unit_test(verify_reads_what_nothing_leads_to),
		cmocka_unit_test(
			the_account_is_put_right_without_reading_entries),
		cmocka_unit_test(verify_finds_no_damage_in_a_store_in_use),
		cmocka_unit_test(
			a_limit_lowered_tenfold_keeps_the_newest_and_the_used),
		cmocka_unit_test(
			what_is_larger_than_the_limit_goes_or_never_comes),
		cmocka_unit_test(limit_0_is_no_limit),
		cmocka_unit_test(a_limit_too_low_for_anything_is_refused),
	};

	kind = argc > 1 ? kind_find(argv[1]) : NULL;
	if (!kind) {
		fprintf(stderr, "usage: upkeep KIND\n");
		return 2;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
