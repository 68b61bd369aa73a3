/* SPDX-License-Identifier: MIT */

/* How eviction goes. */

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
				 1 + n * 7 % 30 > 20 ? KILN_MISS : KILN_OK);
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

#define N_PLANTED 8

static int hours_of(int i)
{
	return 50 + i * 3 % N_PLANTED;
}

/* Nobody knows what these took. */
static void by_cost_too_a_drivers_entries_go_by_last_use(void **state)
{
	char *directory = harness_directory(), *paths[N_PLANTED];
	struct kiln_tier *tier = open_at(directory, 100000);
	int n_left = 0, i, j;
	char name[32];

	(void)state;
	for (i = 0; i < N_PLANTED; i++) {
		snprintf(name, sizeof(name), "%d123456789abcdef.cl_cache", i);
		paths[i] = plant(directory, name, 6000, hours_of(i));
	}
	assert_int_equal(tier->ops->set_eviction(tier, KILN_EVICT_BY_COST),
			 KILN_OK);
	assert_int_equal(put(tier, 0, 6000), KILN_OK);
	set_use_of(tier, 0, 60);
	assert_int_equal(put(tier, 1, 60000), KILN_OK);
	assert_int_equal(get(tier, 0), KILN_MISS);
	for (i = 0; i < N_PLANTED; i++) {
		n_left += exists(paths[i]);
		for (j = 0; j < N_PLANTED; j++)
			if (exists(paths[i]) && hours_of(j) < hours_of(i))
				assert_true(exists(paths[j]));
	}
	assert_in_range(n_left, 1, N_PLANTED - 1);
	tier->ops->close(tier);
	for (i = 0; i < N_PLANTED; i++)
		free(paths[i]);
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

static unsigned n_read; /* directories */

static int counting_opendir(const struct ki_sys *sys, const char *path,
			    struct ki_dir **out_dir)
{
	n_read++;
	return ki_sys_posix.opendir(sys, path, out_dir);
}

/* A directory of 300 entries, large for the steps that are set, and nearly full. */
static struct kiln_tier *open_large(struct ki_sys *sys, const char *directory)
{
	struct kiln_tier *tier;

	*sys = ki_sys_posix;
	sys->opendir = counting_opendir;
	tier = open_with(sys, directory, 400000, 0, NULL);
	neo_of(tier)->looks_max = 16;
	neo_of(tier)->step_max = 4;
	for (unsigned n = 0; n < 300; n++) {
		assert_int_equal(put(tier, n, 1000), KILN_OK);
		set_use_of(tier, n, 20);
	}
	n_read = 0;
	return tier;
}

/* Kiln's alone: kiln.records has all names. */
static void a_large_directory_is_not_read(void **state)
{
	char *directory = harness_directory();
	struct ki_sys sys;
	struct kiln_tier *tier = open_large(&sys, directory);
	unsigned n;

	for (n = 300; n < 420; n++)
		assert_int_equal(put(tier, n, 1000), KILN_OK);
	assert_int_equal(n_read, 0);
	assert_true(sum_there(directory) < 330000);
	assert_int_equal(sum_of(directory), sum_there(directory));
	for (n = 300; n < 420; n++)
		assert_int_equal(get(tier, n), KILN_OK);
	tier->ops->close(tier);
	free(directory);
}

/* Old ones of a driver go, also where they have taken the room of as much that it
   evicted, and the sum tells nothing. */
static void a_driver_in_a_large_directory_is_seen(void **state)
{
	for (unsigned evicts = 0; evicts < 2; evicts++) {
		char *directory = harness_directory(), *theirs[10];
		struct ki_sys sys;
		struct kiln_tier *tier = open_large(&sys, directory);
		uint64_t sum = sum_of(directory);
		unsigned n;

		for (n = 0; n < 10; n++) {
			char name[40], *path = path_of(tier, n * 30);

			snprintf(name, sizeof(name), "%016x.cl_cache", n + 1);
			theirs[n] = plant(directory, name, 1000, 50);
			if (evicts && unlink(path))
				abort();
			free(path);
		}
		sum += evicts ? 0 : 10000;
		write_sum(directory, &sum, sizeof(sum));
		for (n = 300; n < 420; n++)
			assert_int_equal(put(tier, n, 1000), KILN_OK);
		assert_true(n_read > 0);
		for (n = 0; n < 10; n++) {
			assert_false(exists(theirs[n]));
			free(theirs[n]);
		}
		assert_int_equal(sum_of(directory), sum_there(directory));
		tier->ops->close(tier);
		free(directory);
	}
}

/* A record of a file that is no entry, but for its name as it should be. */
static void forge(struct kiln_tier *tier, const struct kiln_key *key,
		  const char *name, const char *path) KI_NO_ANALYSIS
{
	struct ki_record record = { .name = name,
				    .record = key->record.data,
				    .record_size = key->record.size };
	struct ki_neo_account account;
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	memcpy(record.digest, key->digest, KILN_DIGEST_BYTES);
	record.inode = st.st_ino;
	record.value_size = record.file_size = (uint64_t)st.st_size;
	record.mtime_ns =
		(int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
	assert_int_equal(ki_neo_account_begin(neo_of(tier), 0, &account),
			 KILN_OK);
	assert_int_equal(ki_records_append(neo_of(tier)->records, &record),
			 KILN_OK);
	account.total += record.file_size;
	assert_int_equal(ki_neo_account_end(neo_of(tier), &account), KILN_OK);
}

static void no_record_makes_an_entry_of_another_file(void **state)
{
	char *directory = harness_directory();
	struct ki_sys sys;
	struct kiln_tier *tier = open_large(&sys, directory);
	char *path = plant(directory, "notes.txt", 100, 50);
	struct kiln_key *key = key_of(1000);
	struct kiln_blob *blob;

	forge(tier, key, "notes.txt", path);
	for (unsigned n = 300; n < 420; n++)
		assert_int_equal(put(tier, n, 1000), KILN_OK);
	assert_true(exists(path));
	forge(tier, key, "notes.txt", path);
	assert_int_equal(tier->ops->get(tier, key, &blob, NULL), KILN_MISS);
	assert_true(exists(path));
	forge(tier, key, "notes.txt", path);
	assert_int_equal(tier->ops->remove(tier, key), KILN_MISS);
	assert_true(exists(path));
	tier->ops->close(tier);
	kiln_key_free(key);
	free(path);
	free(directory);
}

static void all_at_once_is_an_option(void **state)
{
	static const struct {
		const char *name;
		int is_one_store;
	} rows[] = { { NULL, 0 },
		     { "flat", 0 },
		     { "at-once", 1 },
		     { "flat,at-once", 1 },
		     { "at-once,tree", 1 } };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *directory = harness_directory();
		struct kiln_tier *tier = open_with(&ki_sys_posix, directory,
						   60000, 0, rows[i].name);
		uint64_t before = 0, after = 0;

		if (neo_of(tier)->step_max == KI_NEO_STEP)
			neo_of(tier)->step_max = 4;
		for (unsigned n = 0; after >= before && n < 200; n++) {
			before = after;
			assert_int_equal(put(tier, n, 1000), KILN_OK);
			after = sum_of(directory);
		}
		assert_true(after < before);
		assert_int_equal(before - after + 1000 > 5000,
				 rows[i].is_one_store);
		assert_int_equal(after <= 40000, rows[i].is_one_store);
		tier->ops->close(tier);
		free(directory);
	}
}

static void words_behind_the_directory_are_known_ones(void **state)
{
	static const char *const names[] = { "other",	  "flat,",
					     ",flat",	  "flat,tree",
					     "tree,tree", "at-once,other",
					     "at-onces" };
	char *directory = harness_directory();

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct ki_store_options options = { .sys = &ki_sys_posix,
						    .directory = directory,
						    .name = names[i] };
		struct kiln_tier *tier;

		assert_int_equal(ki_store_neo_open(&options, &tier),
				 KILN_E_INVALID);
	}
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

static ino_t inode_of(const char *directory, const char *name)
{
	char path[512];
	struct stat info;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return stat(path, &info) ? 0 : info.st_ino;
}

/* While the order is being found out every store removes what it needs, and has
   some more dead. */
static void kiln_records_is_not_written_anew_for_each_file_that_goes(
	void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_at(directory, 700000);
	unsigned n = 0, n_renewed = 0;

	neo_of(tier)->looks_max = 8;
	while (bytes_of(tier) < 560000)
		assert_int_equal(put(tier, n++, 800), KILN_OK);
	assert_true(n > 400);
	for (unsigned end = n + 40; n < end; n++) {
		const ino_t before = inode_of(directory, "kiln.records");

		assert_int_equal(put(tier, n, 800), KILN_OK);
		n_renewed += inode_of(directory, "kiln.records") != before;
		assert_true(bytes_of(tier) <= 700000);
	}
	assert_true(n_renewed <= 1);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			the_least_recently_used_go_in_order_until_a_third_is_free),
		cmocka_unit_test(a_drivers_entries_take_their_turn),
		cmocka_unit_test(by_cost_too_a_drivers_entries_go_by_last_use),
		cmocka_unit_test(a_large_directory_is_evicted_in_steps),
		cmocka_unit_test(a_large_directory_is_not_read),
		cmocka_unit_test(a_driver_in_a_large_directory_is_seen),
		cmocka_unit_test(no_record_makes_an_entry_of_another_file),
		cmocka_unit_test(all_at_once_is_an_option),
		cmocka_unit_test(words_behind_the_directory_are_known_ones),
		cmocka_unit_test(kiln_records_is_in_the_limit_and_renewed),
		cmocka_unit_test(
			kiln_records_is_not_written_anew_for_each_file_that_goes),
		cmocka_unit_test(a_limit_set_by_a_tool_holds_for_the_next_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
