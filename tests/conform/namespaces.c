/* SPDX-License-Identifier: MIT */

/*
 * namespaces KIND: entries of one maker among those of others, for each kind of store
 * that lies in a directory: cleaning up after one, quotas (S15, S49).
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness/harness.h"

#include "conform/kinds.h"

#define BOUND	 ((uint64_t)64 << 20)
#define SIZE	 4000
#define ENTRY	 ((uint64_t)SIZE + 300) /* with key and metadata, at most */
#define QUOTA	 (20 * ENTRY)
#define N_OTHERS 400 /* 1.6 MB */
#define WRITERS	 8
#define BY_EACH	 60
#define N_KILLED 6

static const struct kind *kind;

static struct kiln *open_as(const char *directory, const char *name_space,
			    uint32_t flags)
{
	struct kiln_options options;
	char *url = kind_url(kind, directory);
	struct kiln *kiln;

	kiln_options_init(&options);
	options.store_url = url;
	options.store_bytes_max = BOUND;
	options.name_space = name_space;
	options.application = "/usr/bin/program";
	options.flags = flags;
	if (kiln_open(&options, &kiln) || kiln_store_status(kiln))
		abort();
	free(url);
	return kiln;
}

static enum kiln_status put_sized(struct kiln *kiln, unsigned n, size_t size)
{
	struct kiln_key *key = numbered_key(n);
	char *value = malloc(size);
	enum kiln_status status;

	fill_value(n, value, size);
	status = kiln_put(kiln, key, value, size, NULL, 0);
	free(value);
	kiln_key_free(key);
	return status;
}

/* Where the machine is busy, counting takes more than one put may. */
static void put(struct kiln *kiln, unsigned n)
{
	time_t end = time(NULL) + HARNESS_HANG_S;
	enum kiln_status status;

	do {
		status = put_sized(kiln, n, SIZE);
	} while (status == KILN_E_TIMEOUT && time(NULL) < end);
	assert_int_equal(status, KILN_OK);
}

/* Made an hour after that of number n - 1. */
static void put_made(struct kiln *kiln, unsigned n)
{
	struct kiln_metadata *metadata = kiln_metadata_new();
	struct kiln_key *key = numbered_key(n);
	char value[SIZE];

	fill_value(n, value, sizeof(value));
	kiln_metadata_add_u64(metadata, KILN_META_CREATED,
			      (uint64_t)time(NULL) - 1000 * 3600 + n * 3600);
	assert_int_equal(kiln_put(kiln, key, value, sizeof(value), metadata, 0),
			 KILN_OK);
	kiln_metadata_free(metadata);
	kiln_key_free(key);
}

/* In the store, whatever memory has. */
static int has(const char *directory, unsigned n)
{
	struct kiln *kiln = open_as(directory, NULL, 0);
	struct kiln_key *key = numbered_key(n);
	struct kiln_blob *blob = NULL;
	int result = !kiln_get(kiln, key, &blob) &&
		     is_value_of(n, kiln_blob_data(blob), kiln_blob_size(blob));

	kiln_blob_unref(blob);
	kiln_key_free(key);
	kiln_close(kiln);
	return result;
}

struct sum {
	unsigned n;
	uint64_t bytes;
};

static struct sum sum_of(struct kiln *kiln, const char *name_space)
{
	struct kiln_cursor cursor = { { 0 } };
	struct sum sum = { 0, 0 };
	struct kiln_entry entry;

	while (!kiln_list(kiln, &cursor, &entry)) {
		char name[KILN_NAMESPACE_BYTES] = "";

		(void)kiln_namespace_of(kiln_blob_data(entry.metadata),
					kiln_blob_size(entry.metadata), name);
		if (!strcmp(name, name_space)) {
			sum.n++;
			sum.bytes += entry.value_size +
				     kiln_blob_size(entry.record) +
				     kiln_blob_size(entry.metadata);
		}
		kiln_entry_fini(&entry);
	}
	return sum;
}

static struct kiln_namespace quota_of(struct kiln *kiln, const char *name)
{
	struct kiln_namespace row;
	enum kiln_status status;
	size_t position = 0;

	while (!(status = kiln_next_namespace(kiln, &position, &row)))
		if (!strcmp(row.name, name))
			return row;
	assert_int_equal(status, KILN_END);
	return (struct kiln_namespace){ .bytes_max = 0 };
}

static void set_quota(struct kiln *kiln, const char *name, uint64_t bytes_max)
{
	assert_int_equal(kiln_set_namespace_limit(kiln, name, bytes_max),
			 KILN_OK);
}

static char *quotas_path(const char *directory)
{
	return harness_path(directory, "kiln.quotas");
}

/* ---- Cleaning up --------------------------------------------------------------- */

static void a_put_says_whose_entry_it_is(void **state)
{
	char *directory = harness_directory();
	struct kiln *named = open_as(directory, "flood", 0);
	struct kiln *unnamed = open_as(directory, NULL, 0);

	put(named, 1);
	put(unnamed, 2);
	put_made(unnamed, 3);
	assert_int_equal(sum_of(named, "flood").n, 1);
	assert_int_equal(sum_of(named, "program").n, 2);
	kiln_close(named);
	kiln_close(unnamed);
	free(directory);
}

static void gc_takes_the_oldest_of_one_namespace(void **state)
{
	char *directory = harness_directory();
	struct kiln *a = open_as(directory, "a", 0);
	struct kiln *b = open_as(directory, "b", 0);
	struct kiln_gc_options options = { .bytes_max = 5 * ENTRY };
	struct kiln_gc_report report;
	unsigned n;

	for (n = 0; n < 10; n++)
		put_made(a, n);
	for (; n < 20; n++)
		put_made(b, n);
	assert_int_equal(
		kiln_gc_namespace(a, "a", &options, NULL, NULL, &report),
		KILN_OK);
	assert_int_equal(sum_of(a, "b").n, 10);
	assert_int_equal(report.bytes_after, sum_of(a, "a").bytes);
	assert_in_range(report.bytes_after, 4 * SIZE, 5 * ENTRY);
	assert_int_equal(report.n_evicted, 10 - sum_of(a, "a").n);
	assert_true(has(directory, 9));
	assert_false(has(directory, 0));

	/* As old as that are all, and what says so goes, of the one alone. */
	options = (struct kiln_gc_options){ .bytes_max = 1 };
	assert_int_equal(
		kiln_gc_namespace(b, "a", &options, NULL, NULL, &report),
		KILN_OK);
	assert_int_equal(report.bytes_after, 0);
	assert_int_equal(sum_of(a, "a").n, 0);
	assert_int_equal(sum_of(a, "b").n, 10);
	assert_int_equal(
		kiln_gc_namespace(b, "nobody", NULL, NULL, NULL, &report),
		KILN_OK);
	assert_int_equal(report.bytes_before + report.n_evicted, 0);
	kiln_close(a);
	kiln_close(b);
	free(directory);
}

static void gc_by_age_leaves_other_namespaces(void **state)
{
	struct kiln_gc_options options = { .age_max_s = 996 * 3600 };
	char *directory = harness_directory();
	struct kiln *a = open_as(directory, "a", 0);
	struct kiln *b = open_as(directory, "b", 0);
	struct kiln_gc_report report;
	unsigned n;

	for (n = 0; n < 10; n++) {
		put_made(a, n);
		put_made(b, 10 + n);
	}
	assert_int_equal(
		kiln_gc_namespace(a, "a", &options, NULL, NULL, &report),
		KILN_OK);
	/* Where the files' own clock tells, they were all made just now. */
	assert_int_equal(report.n_expired, 10 - sum_of(a, "a").n);
	assert_true(!report.n_expired || report.n_expired == 4);
	assert_int_equal(sum_of(a, "b").n, 10);
	kiln_close(a);
	kiln_close(b);
	free(directory);
}

/* ---- Quotas -------------------------------------------------------------------- */

static void a_namespace_over_its_quota_evicts_its_own(void **state)
{
	char *directory = harness_directory();
	struct kiln *flood = open_as(directory, "flood", 0);
	struct kiln *other = open_as(directory, "other", 0);
	unsigned n;

	for (n = 0; n < 10; n++)
		put(other, n);
	set_quota(other, "flood", QUOTA);
	kiln_close(flood);
	flood = open_as(directory, "flood", 0);
	for (n = 100; n < 300; n++) {
		put(flood, n);
		assert_true(sum_of(other, "flood").bytes <= QUOTA);
	}
	assert_true(sum_of(other, "flood").n >= 15);
	assert_int_equal(sum_of(other, "other").n, 10);
	assert_true(has(directory, 299));
	assert_false(has(directory, 100));
	assert_true(quota_of(other, "flood").n_evicted >= 180);
	assert_true(quota_of(other, "flood").bytes >=
		    sum_of(other, "flood").bytes);
	kiln_close(flood);
	kiln_close(other);
	free(directory);
}

static void build_large(const struct kiln_key *key, void *arg,
			struct kiln_build_result *result)
{
	static const char large[4 * SIZE];

	result->kind = kiln_blob_copy(large, sizeof(large), &result->blob)
			       ? KILN_BUILD_RESOURCES
			       : KILN_BUILD_OK;
}

static void a_value_larger_than_the_quota_is_only_not_stored(void **state)
{
	char *directory = harness_directory();
	struct kiln *kiln = open_as(directory, "flood", 0);
	struct kiln_key *key = numbered_key(7);
	struct kiln_build_result result;

	set_quota(kiln, "flood", 2 * SIZE);
	put(kiln, 1);
	assert_int_equal(put_sized(kiln, 2, 3 * SIZE), KILN_E_TOO_LARGE);
	kiln_build_result_init(&result);
	assert_int_equal(
		kiln_get_or_build(kiln, key, build_large, NULL, &result),
		KILN_OK);
	assert_int_equal(kiln_blob_size(result.blob), 4 * SIZE);
	kiln_build_result_fini(&result);
	assert_true(has(directory, 1));
	assert_int_equal(quota_of(kiln, "flood").n_refused, 2);
	kiln_key_free(key);
	kiln_close(kiln);
	free(directory);
}

static void a_store_that_refuses_when_full_evicts_for_no_quota(void **state)
{
	char *directory = harness_directory();
	struct kiln *kiln = open_as(directory, "flood", KILN_OPEN_REFUSE_FULL);

	set_quota(kiln, "flood", 2 * ENTRY);
	put(kiln, 1);
	put(kiln, 2);
	assert_int_equal(put_sized(kiln, 3, SIZE), KILN_E_FULL);
	assert_true(has(directory, 1));
	kiln_close(kiln);
	free(directory);
}

static void a_quota_set_by_another_is_heeded_soon(void **state)
{
	char *directory = harness_directory();
	struct kiln *kiln = open_as(directory, "flood", 0), *other;
	time_t end = time(NULL) + HARNESS_HANG_S;
	enum kiln_status status;
	unsigned n = 0;

	put(kiln, n++);
	other = open_as(directory, "other", 0);
	set_quota(other, "flood", SIZE / 2);
	assert_int_equal(sum_of(other, "flood").n, 0);
	kiln_close(other);
	do {
		status = put_sized(kiln, n % 50, SIZE);
	} while (++n && status != KILN_E_TOO_LARGE && time(NULL) < end);
	assert_int_equal(status, KILN_E_TOO_LARGE);
	kiln_close(kiln);
	free(directory);
}

static void all_others_have_a_quota_each(void **state)
{
	static const char *const names[] = { "a", "b", "new" };
	char *directory = harness_directory();
	struct kiln *kilns[3];
	unsigned i, n;

	for (i = 0; i < 2; i++) {
		kilns[i] = open_as(directory, names[i], 0);
		for (n = 0; n < 30; n++)
			put(kilns[i], 100 * i + n);
	}
	set_quota(kilns[0], "b", 25 * ENTRY);
	set_quota(kilns[0], KILN_NAMESPACE_OTHERS, QUOTA);
	assert_true(sum_of(kilns[0], "a").bytes <= QUOTA);
	assert_in_range(sum_of(kilns[0], "b").n, 24, 27);
	kilns[2] = open_as(directory, names[2], 0);
	for (n = 0; n < 60; n++)
		put(kilns[2], 1000 + n);
	assert_true(sum_of(kilns[0], "new").bytes <= QUOTA);
	assert_true(sum_of(kilns[0], "new").n > 10);
	assert_in_range(sum_of(kilns[0], "b").n, 24, 27);
	assert_true(quota_of(kilns[0], "new").is_by_default);
	assert_false(quota_of(kilns[0], "b").is_by_default);

	/* Without it, a quota of its own is all there is. */
	set_quota(kilns[0], KILN_NAMESPACE_OTHERS, 0);
	assert_int_equal(quota_of(kilns[0], "new").bytes_max, 0);
	assert_int_equal(quota_of(kilns[0], "b").bytes_max, 25 * ENTRY);
	for (i = 0; i < 3; i++)
		kiln_close(kilns[i]);
	free(directory);
}

static void a_quota_taken_back_leaves_nothing(void **state)
{
	char *directory = harness_directory(), *path = quotas_path(directory);
	struct kiln *kiln = open_as(directory, "flood", 0);
	unsigned n;

	set_quota(kiln, "flood", 2 * ENTRY);
	assert_int_equal(access(path, F_OK), 0);
	set_quota(kiln, "flood", 0);
	assert_int_equal(access(path, F_OK), -1);
	set_quota(kiln, "flood", 0);
	for (n = 0; n < 10; n++)
		put(kiln, n);
	assert_int_equal(sum_of(kiln, "flood").n, 10);
	kiln_close(kiln);
	free(path);
	free(directory);
}

static void wiping_keeps_the_quotas(void **state)
{
	char *directory = harness_directory();
	struct kiln *kiln = open_as(directory, "flood", 0);
	unsigned n;

	set_quota(kiln, "flood", 5 * ENTRY);
	for (n = 0; n < 5; n++)
		put(kiln, n);
	assert_int_equal(kiln_wipe(kiln), KILN_OK);
	assert_int_equal(quota_of(kiln, "flood").bytes_max, 5 * ENTRY);
	assert_int_equal(quota_of(kiln, "flood").bytes, 0);
	for (n = 10; n < 30; n++)
		put(kiln, n);
	assert_in_range(sum_of(kiln, "flood").n, 1, 5);
	kiln_close(kiln);
	free(directory);
}

static void who_may_not_write_sets_no_quota(void **state)
{
	char *directory = harness_directory();
	struct kiln *kiln = open_as(directory, "a", 0);
	struct kiln_gc_report report;

	put(kiln, 1);
	set_quota(kiln, "a", QUOTA);
	assert_int_equal(kiln_set_namespace_limit(kiln, "", QUOTA),
			 KILN_E_INVALID);
	kiln_close(kiln);
	kiln = open_as(directory, "a", KILN_OPEN_READONLY);
	assert_int_equal(kiln_set_namespace_limit(kiln, "a", 1),
			 KILN_E_READONLY);
	assert_int_equal(
		kiln_gc_namespace(kiln, "a", NULL, NULL, NULL, &report),
		KILN_E_READONLY);
	assert_int_equal(quota_of(kiln, "a").bytes_max, QUOTA);
	kiln_close(kiln);
	free(directory);
}

/* Others keep what they have though nobody uses it, and more is put than the whole
   store holds. */
static void a_flood_pushes_out_nobody_else(void **state)
{
	const uint64_t bound = (uint64_t)6 << 20;
	char *directory = harness_directory();
	struct kiln *flood = open_as(directory, "flood", 0);
	struct kiln *other = open_as(directory, "other", 0);
	unsigned n;

	assert_int_equal(kiln_set_limit(other, bound), KILN_OK);
	for (n = 0; n < N_OTHERS; n++)
		put(other, n);
	set_quota(other, "flood", bound / 6);
	kiln_close(flood);
	flood = open_as(directory, "flood", 0);
	for (n = 0; n * SIZE < 2 * bound; n++) {
		put(flood, 10000 + n);
		/* Some of theirs lie among it. */
		if (n % 100 == 0)
			put(other, N_OTHERS + n / 100);
	}
	assert_int_equal(sum_of(other, "other").n, N_OTHERS + (n + 99) / 100);
	assert_true(sum_of(other, "flood").bytes <= bound / 6);
	assert_true(sum_of(other, "flood").bytes > bound / 12);
	kiln_close(flood);
	kiln_close(other);
	for (n = 0; n < N_OTHERS; n += 10)
		assert_true(has(directory, n));
	free(directory);
}

/* ---- Damage, older versions ---------------------------------------------------- */

/* S17: a kiln that knows nothing of quotas puts as it likes. */
static void what_was_put_without_account_is_counted_in_the_end(void **state)
{
	char *directory = harness_directory();
	struct kiln *kiln = open_as(directory, "flood", 0);
	struct ki_store_options options = { .sys = &ki_sys_posix,
					    .directory = directory,
					    .bytes_max = BOUND };
	struct kiln_metadata *metadata = kiln_metadata_new();
	struct kiln_gc_report report;
	struct kiln_tier *tier;
	const void *bytes;
	size_t size;
	unsigned n;

	set_quota(kiln, "flood", QUOTA);
	kiln_metadata_add_string(metadata, KILN_META_NAMESPACE, "flood");
	assert_int_equal(kiln_metadata_bytes(metadata, &bytes, &size), KILN_OK);
	assert_int_equal(kind->open(&options, &tier), KILN_OK);
	for (n = 0; n < 40; n++) {
		struct kiln_key *key = numbered_key(n);
		char value[SIZE];

		fill_value(n, value, sizeof(value));
		assert_int_equal(tier->ops->put(tier, key, bytes, size, value,
						sizeof(value), 0),
				 KILN_OK);
		kiln_key_free(key);
	}
	tier->ops->close(tier);
	kiln_metadata_free(metadata);
	assert_int_equal(sum_of(kiln, "flood").n, 40);
	for (n = 100; n < 125; n++)
		put(kiln, n);
	assert_true(sum_of(kiln, "flood").bytes <= QUOTA);
	assert_int_equal(
		kiln_gc_namespace(kiln, "flood", NULL, NULL, NULL, &report),
		KILN_OK);
	assert_int_equal(quota_of(kiln, "flood").bytes, report.bytes_after);
	assert_int_equal(report.bytes_after, sum_of(kiln, "flood").bytes);
	kiln_close(kiln);
	free(directory);
}

static void quotas_that_are_damaged_are_none_and_can_be_set_again(void **state)
{
	char *directory = harness_directory(), *path = quotas_path(directory);
	struct kiln *kiln = open_as(directory, "flood", 0);
	size_t size, at;
	char *good;

	set_quota(kiln, "flood", 2 * ENTRY);
	kiln_close(kiln);
	good = harness_read(path, &size);
	for (at = 0; at < size; at += 20) {
		char *bad = malloc(size);

		memcpy(bad, good, size);
		bad[at] = (char)~bad[at];
		harness_write(path, bad, at % 3 ? size : at);
		kiln = open_as(directory, "flood", 0);
		put(kiln, (unsigned)at);
		set_quota(kiln, "flood", 3 * ENTRY);
		put(kiln, (unsigned)at + 1);
		assert_int_equal(quota_of(kiln, "flood").bytes_max, 3 * ENTRY);
		assert_true(sum_of(kiln, "flood").bytes <= 3 * ENTRY);
		kiln_close(kiln);
		free(bad);
	}
	free(good);
	free(path);
	free(directory);
}

/* ---- Processes ----------------------------------------------------------------- */

/* The first puts what shall stay. */
static int write_much(unsigned index, void *arg)
{
	struct kiln *kiln = open_as(arg, index ? "flood" : "other", 0);
	unsigned n, n_stored = 0;

	for (n = 0; n < BY_EACH; n++) {
		enum kiln_status status =
			put_sized(kiln, 1000 * index + n, SIZE);

		if (status && status != KILN_E_TIMEOUT)
			return 1;
		n_stored += !status;
	}
	kiln_close(kiln);
	return n_stored ? 0 : 2;
}

static void eight_writers_stay_within_the_quota(void **state)
{
	char *directory = harness_directory();
	struct kiln *kiln = open_as(directory, "looker", 0);
	uint64_t others;

	set_quota(kiln, "flood", QUOTA);
	assert_int_equal(harness_processes(WRITERS, write_much, directory,
					   HARNESS_HANG_S),
			 0);
	assert_true(sum_of(kiln, "flood").bytes <= QUOTA);
	assert_true(sum_of(kiln, "flood").n > 0);
	/* A put may find the store busy; nothing else costs an entry. */
	others = sum_of(kiln, "other").n;
	assert_in_range(others, BY_EACH / 2, BY_EACH);
	kiln_close(kiln);
	free(directory);
}

/* Puts until it is killed, and tells of each. */
static void put_for_ever(const char *directory, unsigned first, int fd)
{
	struct kiln *kiln = open_as(directory, "flood", 0);

	for (unsigned n = first;; n++) {
		(void)put_sized(kiln, n, SIZE);
		if (write(fd, "", 1) != 1)
			_exit(1);
	}
}

static void writers_that_are_killed_leave_a_quota_that_holds(void **state)
{
	char *directory = harness_directory();
	struct kiln *kiln = open_as(directory, "looker", 0);
	unsigned i, n;

	set_quota(kiln, "flood", 3 * ENTRY);
	for (i = 0; i < N_KILLED; i++) {
		int ends[2];
		pid_t child;
		char byte;

		assert_int_equal(pipe(ends), 0);
		child = fork();
		if (!child)
			put_for_ever(directory, 10000 * (i + 1), ends[1]);
		for (n = 0; n < 5 + i; n++)
			assert_int_equal(read(ends[0], &byte, 1), 1);
		kill(child, SIGKILL);
		assert_int_equal(waitpid(child, NULL, 0), child);
		close(ends[0]);
		close(ends[1]);
	}
	kiln_close(kiln);
	kiln = open_as(directory, "flood", 0);
	for (n = 0; n < 5; n++)
		put(kiln, n);
	assert_true(sum_of(kiln, "flood").bytes <= 3 * ENTRY);
	kiln_close(kiln);
	free(directory);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_put_says_whose_entry_it_is),
		cmocka_unit_test(gc_takes_the_oldest_of_one_namespace),
		cmocka_unit_test(gc_by_age_leaves_other_namespaces),
		cmocka_unit_test(a_namespace_over_its_quota_evicts_its_own),
		cmocka_unit_test(
			a_value_larger_than_the_quota_is_only_not_stored),
		cmocka_unit_test(
			a_store_that_refuses_when_full_evicts_for_no_quota),
		cmocka_unit_test(a_quota_set_by_another_is_heeded_soon),
		cmocka_unit_test(all_others_have_a_quota_each),
		cmocka_unit_test(a_quota_taken_back_leaves_nothing),
		cmocka_unit_test(wiping_keeps_the_quotas),
		cmocka_unit_test(who_may_not_write_sets_no_quota),
		cmocka_unit_test(a_flood_pushes_out_nobody_else),
		cmocka_unit_test(
			what_was_put_without_account_is_counted_in_the_end),
		cmocka_unit_test(
			quotas_that_are_damaged_are_none_and_can_be_set_again),
		cmocka_unit_test(eight_writers_stay_within_the_quota),
		cmocka_unit_test(
			writers_that_are_killed_leave_a_quota_that_holds),
	};

	kind = argc > 1 ? kind_find(argv[1]) : NULL;
	if (!kind) {
		fprintf(stderr, "usage: namespaces KIND\n");
		return 2;
	}
	return cmocka_run_group_tests_name(kind->name, tests, NULL, NULL);
}
