/* SPDX-License-Identifier: MIT */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"

#include "store/log/log_test.h"

/* Text of so many bytes that follows from a number. */
static char *text_of(unsigned number, size_t size)
{
	char *text = malloc(size + 32);
	size_t at = 0;
	unsigned line = 0;

	for (; at < size; line++)
		at += (size_t)sprintf(text + at, "x[%u] = %u;\n", line,
				      number * 2654435761u + line * line);
	return text;
}

/* What does not become smaller. */
static char *noise_of(unsigned number, size_t size)
{
	uint64_t state = number * 0x9e3779b97f4a7c15u + 1;
	char *noise = malloc(size + 1);
	size_t i;

	for (i = 0; i < size; i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		noise[i] = (char)(state >> 56);
	}
	return noise;
}

static enum kiln_status keep(struct store *store, struct kiln_kept *sources,
			     size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		ki_blake2b(sources[i].data, sources[i].size, sources[i].digest);
		sources[i].is_kept = 0;
	}
	return store->tier->ops->keep_sources(store->tier, sources, n);
}

static enum kiln_status keep_one(struct store *store, const void *data,
				 size_t size)
{
	struct kiln_kept source = { .data = data, .size = size };
	enum kiln_status status = keep(store, &source, 1);

	assert_int_equal(source.is_kept, status == KILN_OK);
	return status;
}

/* Wrong bytes fail at once. */
static int is_found(struct store *store, const void *data, size_t size)
{
	uint8_t digest[KILN_SOURCE_DIGEST_BYTES];
	struct kiln_blob *blob;
	enum kiln_status status;

	ki_blake2b(data, size, digest);
	status = store->tier->ops->find_source(store->tier, digest, &blob);
	if (status) {
		assert_int_equal(status, KILN_MISS);
		return 0;
	}
	assert_int_equal(kiln_blob_size(blob), size);
	assert_memory_equal(kiln_blob_data(blob), data, size);
	kiln_blob_unref(blob);
	return 1;
}

static struct log_census census_of(struct store *store)
{
	struct log_census census;

	assert_int_equal(
		ki_log_census_take((struct ki_log *)store->tier, 0, &census),
		KILN_OK);
	return census;
}

static size_t n_files_of(struct store *store, uint64_t *out_bytes)
{
	struct log_census census = census_of(store);
	size_t n = census.n_sources;

	*out_bytes = census.bytes;
	ki_log_census_fini(&census);
	return n;
}

static char *file_of(const struct store *store, unsigned number)
{
	char name[64];

	snprintf(name, sizeof(name), "kiln.src.%08x.val", number);
	return harness_path(store->directory, name);
}

/* ---- Contract -------------------------------------------------------- */

static void what_was_kept_is_found_by_its_digest(void **state)
{
	static const size_t sizes[] = {
		0, 1, 63, 64, 65, 5000, 70001, 1 << 20
	};
	enum { N = sizeof(sizes) / sizeof(sizes[0]) };
	struct store store = store_new(1 << 30, 0);
	struct kiln_kept sources[2 * N];
	size_t i;

	for (i = 0; i < N; i++) {
		sources[i].data = text_of((unsigned)i, sizes[i]);
		sources[N + i].data = noise_of((unsigned)i, sizes[i]);
		sources[i].size = sources[N + i].size = sizes[i];
	}
	assert_false(is_found(&store, "another", 7));
	assert_int_equal(keep(&store, sources, (size_t)2 * N), KILN_OK);
	store_reopen(&store);
	for (i = 0; i < (size_t)2 * N; i++) {
		assert_true(sources[i].is_kept);
		assert_true(is_found(&store, sources[i].data, sources[i].size));
		free((void *)(uintptr_t)sources[i].data);
	}
	assert_false(is_found(&store, "another", 7));
	store_free(&store);
}

static void what_is_kept_already_takes_no_more_room(void **state)
{
	struct store store = store_new(64 << 20, 0);
	char *noise = noise_of(1, 90000);
	struct kiln_kept twice[] = { { noise, 90000, { 0 }, 0 },
				     { noise, 90000, { 0 }, 0 } };
	uint64_t bytes, before;
	unsigned i;

	/* A file has 128 KiB: a second time would begin another. */
	assert_int_equal(keep(&store, twice, 2), KILN_OK);
	assert_true(twice[0].is_kept && twice[1].is_kept);
	assert_int_equal(n_files_of(&store, &before), 1);
	for (i = 0; i < 3; i++) {
		assert_int_equal(keep_one(&store, noise, 90000), KILN_OK);
		assert_int_equal(n_files_of(&store, &bytes), 1);
		assert_int_equal(bytes, before);
		store_reopen(&store);
	}
	free(noise);
	store_free(&store);
}

static void one_that_is_too_large_keeps_no_other_from_being_kept(void **state)
{
	struct store store = store_new(64 << 20, 0);
	char *noise = noise_of(1, 200000);
	struct kiln_kept sources[] = { { "first", 5, { 0 }, 0 },
				       { noise, 200000, { 0 }, 0 },
				       { "last", 4, { 0 }, 0 } };

	assert_int_equal(keep(&store, sources, 3), KILN_E_TOO_LARGE);
	assert_true(is_found(&store, "first", 5));
	assert_true(is_found(&store, "last", 4));
	assert_false(is_found(&store, noise, 200000));
	assert_false(sources[1].is_kept);
	free(noise);
	store_free(&store);
}

static void who_only_reads_finds_and_keeps_nothing(void **state)
{
	struct store store = store_new(8 << 20, 0), reader;

	assert_int_equal(keep_one(&store, "a", 1), KILN_OK);
	reader = store_beside(&store, KILN_OPEN_READONLY);
	assert_true(is_found(&reader, "a", 1));
	assert_int_equal(keep_one(&reader, "b", 1), KILN_E_READONLY);
	store_close(&reader);
	reader = store_beside(&store, KILN_OPEN_GUEST);
	assert_true(is_found(&reader, "a", 1));
	assert_int_equal(keep_one(&reader, "b", 1), KILN_OK);
	assert_true(is_found(&store, "b", 1));
	store_close(&reader);
	store_free(&store);
}

/* ---- Room ------------------------------------------------------------ */

static void the_oldest_sources_go_for_new_ones(void **state)
{
	const uint64_t bytes_max = 16 << 20;
	struct store store = store_new(bytes_max, 0);
	uint64_t bytes;
	unsigned i;

	for (i = 0; i < 40; i++) {
		char *noise = noise_of(i, 60000);

		assert_int_equal(keep_one(&store, noise, 60000), KILN_OK);
		assert_true(is_found(&store, noise, 60000));
		free(noise);
		/* A 16th of the bound. */
		assert_true(n_files_of(&store, &bytes) <= 16);
		assert_true(bytes <= bytes_max);
	}
	for (i = 0; i < 40; i++) {
		char *noise = noise_of(i, 60000);

		assert_int_equal(is_found(&store, noise, 60000), i >= 24);
		free(noise);
	}
	store_free(&store);
}

/* Keys 0 to n - 1 of this size. */
static unsigned n_found(struct store *store, unsigned n, size_t size)
{
	unsigned found = 0, i;

	for (i = 0; i < n; i++)
		found += store_get(store, i, size) == KILN_OK;
	return found;
}

static void sources_go_before_any_entry(void **state)
{
	const uint64_t bytes_max = 8 << 20;
	struct store store = store_new(bytes_max, 0);
	size_t n_before = 0, n;
	uint64_t bytes;
	unsigned i;

	for (i = 0; i < 8; i++) {
		char *noise = noise_of(i, 60000);

		assert_int_equal(keep_one(&store, noise, 60000), KILN_OK);
		free(noise);
	}
	n_before = n_files_of(&store, &bytes);
	assert_int_equal(n_before, 8);
	for (i = 0; (n = n_files_of(&store, &bytes)) > 0; i++) {
		assert_true(i < 10000);
		assert_true(n <= n_before);
		n_before = n;
		assert_int_equal(store_put(&store, i, 50000, 0), KILN_OK);
		assert_true(bytes <= bytes_max);
		if (n_files_of(&store, &bytes))
			assert_int_equal(n_found(&store, i + 1, 50000), i + 1);
	}
	store_free(&store);
}

static void no_entry_goes_for_a_source(void **state)
{
	const uint64_t bytes_max = 8 << 20;
	struct store store = store_new(bytes_max, 0);
	unsigned i, before;
	uint64_t bytes;

	for (i = 0; i < 400; i++)
		assert_int_equal(store_put(&store, i, 50000, 0), KILN_OK);
	before = n_found(&store, 400, 50000);
	assert_true(before > 0 && before < 400);
	for (i = 0; i < 40; i++) {
		char *noise = noise_of(i, 60000);
		enum kiln_status status = keep_one(&store, noise, 60000);

		assert_true(status == KILN_OK || status == KILN_E_FULL);
		assert_int_equal(is_found(&store, noise, 60000),
				 status == KILN_OK);
		free(noise);
		(void)n_files_of(&store, &bytes);
		assert_true(bytes <= bytes_max);
	}
	assert_int_equal(n_found(&store, 400, 50000), before);
	store_free(&store);
}

static void what_clears_the_store_takes_its_sources_along(void **state)
{
	struct store store = store_new(16 << 20, 0);
	struct kiln_gc_options options = { .bytes_max = 4 << 20 };
	struct kiln_gc_report report;
	uint64_t bytes;
	char *noise;
	unsigned i;

	for (i = 0; i < 12; i++) {
		noise = noise_of(i, 60000);
		assert_int_equal(keep_one(&store, noise, 60000), KILN_OK);
		free(noise);
	}
	for (i = 0; i < 60; i++)
		assert_int_equal(store_put(&store, i, 50000, 0), KILN_OK);
	assert_int_equal(
		store.tier->ops->gc(store.tier, &options, NULL, NULL, &report),
		KILN_OK);
	assert_true(n_files_of(&store, &bytes) < 12);
	assert_true(bytes <= 4 << 20);
	assert_int_equal(n_found(&store, 60, 50000), 60);
	assert_int_equal(keep_one(&store, "a", 1), KILN_OK);
	assert_true(is_found(&store, "a", 1));
	assert_int_equal(store.tier->ops->wipe(store.tier), KILN_OK);
	assert_int_equal(n_files_of(&store, &bytes), 0);
	assert_false(is_found(&store, "a", 1));
	store_free(&store);
}

/* ---- Damage ---------------------------------------------------------- */

static void a_damaged_source_is_not_there_and_costs_no_other(void **state)
{
	struct store store = store_new(8 << 20, 0);
	char *first = text_of(1, 300), *second = text_of(2, 300);
	char *path = file_of(&store, 1);
	uint64_t i, n_bytes = 0;
	unsigned n_lost = 0;
	uint8_t byte;
	int fd;

	assert_int_equal(keep_one(&store, first, 300), KILN_OK);
	assert_int_equal(keep_one(&store, second, 300), KILN_OK);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	for (i = 0; i < 320; i++) {
		assert_int_equal(pread(fd, &byte, 1, (off_t)i), 1);
		byte ^= 0x10;
		assert_int_equal(pwrite(fd, &byte, 1, (off_t)i), 1);
		n_lost += !is_found(&store, first, 300);
		n_bytes += is_found(&store, second, 300);
		byte ^= 0x10;
		assert_int_equal(pwrite(fd, &byte, 1, (off_t)i), 1);
		assert_true(is_found(&store, first, 300));
	}
	assert_true(n_lost >= 200); /* all but what pads the first */
	assert_true(n_bytes >= 64);
	close(fd);
	free(path);
	free(first);
	free(second);
	store_free(&store);
}

/* As one who was stopped while writing leaves it. */
static void behind_what_is_torn_a_new_file_begins(void **state)
{
	static const char torn[200] = { 1 };
	struct store store = store_new(8 << 20, 0);
	char *path = file_of(&store, 1);
	uint64_t bytes;
	int fd;

	assert_int_equal(keep_one(&store, "one", 3), KILN_OK);
	assert_int_equal(keep_one(&store, "two", 3), KILN_OK);
	assert_int_equal(n_files_of(&store, &bytes), 1);
	fd = open(path, O_RDWR);
	assert_int_equal(pwrite(fd, torn, sizeof(torn), 256), sizeof(torn));
	close(fd);
	assert_int_equal(keep_one(&store, "three", 5), KILN_OK);
	assert_int_equal(n_files_of(&store, &bytes), 2);
	assert_true(is_found(&store, "one", 3));
	assert_true(is_found(&store, "two", 3));
	assert_true(is_found(&store, "three", 5));
	free(path);
	store_free(&store);
}

static void anything_in_the_place_of_a_file_is_borne(void **state)
{
	static const struct {
		const char *name;
		size_t size;
		int byte;
	} rows[] = {
		{ "empty", 0, 0 },
		{ "shorter than a header", 79, 'K' },
		{ "no multiple of a unit", 1000, 0 },
		{ "noise", 5000, -1 },
		{ "larger than any", (size_t)LOG_SOURCE_FILE_BYTES_MAX + 5, 0 },
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct store store = store_new(64 << 20, 0);
		char *path = file_of(&store, 7);
		char *data = noise_of(1, rows[i].size);

		print_message("# %s\n", rows[i].name);
		if (rows[i].byte >= 0)
			memset(data, rows[i].byte, rows[i].size);
		harness_write(path, data, rows[i].size);
		assert_false(is_found(&store, "one", 3));
		assert_int_equal(keep_one(&store, "one", 3), KILN_OK);
		assert_true(is_found(&store, "one", 3));
		free(data);
		free(path);
		store_free(&store);
	}
}

/* A header that is whole and says what cannot be. */
static void a_header_that_lies_is_passed_over(void **state)
{
	static const struct {
		const char *name;
		uint64_t plain_size, stored_size;
		uint32_t file, flags;
	} rows[] = {
		{ "another size", 4, 12, 1, 0 },
		{ "a huge size", LOG_SOURCE_BYTES_MAX, 12, 1, 0 },
		{ "beyond what is allowed", UINT64_MAX, 12, 1, 0 },
		{ "beyond the file", 3, UINT64_MAX - 100, 1, 0 },
		{ "longer than the file", 3, 1 << 20, 1, 0 },
		{ "of another file", 3, 12, 2, 0 },
		{ "of a newer version", 3, 12, 1, 1 },
	};
	struct store store = store_new(8 << 20, 0);
	char *path = file_of(&store, 1);
	struct log_source header, changed;
	size_t i;
	int fd;

	assert_int_equal(keep_one(&store, "one", 3), KILN_OK);
	fd = open(path, O_RDWR);
	assert_int_equal(pread(fd, &header, sizeof(header), 0), sizeof(header));
	assert_int_equal(header.stored_size, 12);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		print_message("# %s\n", rows[i].name);
		changed = header;
		changed.plain_size = rows[i].plain_size;
		changed.stored_size = rows[i].stored_size;
		changed.file = rows[i].file;
		changed.flags = rows[i].flags;
		changed.header_sum = ki_xxh3_64(
			&changed, offsetof(struct log_source, header_sum));
		assert_int_equal(pwrite(fd, &changed, sizeof(changed), 0),
				 sizeof(changed));
		assert_false(is_found(&store, "one", 3));
	}
	assert_int_equal(pwrite(fd, &header, sizeof(header), 0),
			 sizeof(header));
	assert_true(is_found(&store, "one", 3));
	close(fd);
	free(path);
	store_free(&store);
}

/* Nothing depends on them: a torn one is no damage. */
static void verify_reads_them_and_says_which_are_torn(void **state)
{
	struct store store = store_new(8 << 20, 0);
	struct kiln_verify_report report;
	struct kiln_store_info info;
	char *path = file_of(&store, 1);
	struct stat st;
	int fd;

	assert_int_equal(store.tier->ops->info(store.tier, &info), KILN_OK);
	assert_int_equal(info.bytes_sources, 0);
	assert_int_equal(keep_one(&store, "one", 3), KILN_OK);
	assert_int_equal(keep_one(&store, "two", 3), KILN_OK);
	assert_int_equal(keep_one(&store, "three", 5), KILN_OK);
	assert_int_equal(
		store.tier->ops->verify(store.tier, 0, NULL, NULL, &report),
		KILN_OK);
	assert_int_equal(report.n_sources, 3);
	assert_int_equal(report.n_sources_torn, 0);

	fd = open(path, O_RDWR);
	assert_int_equal(pwrite(fd, "\377", 1, sizeof(struct log_source) + 5),
			 1);
	assert_int_equal(fstat(fd, &st), 0);
	close(fd);
	assert_int_equal(store.tier->ops->verify(store.tier, KILN_VERIFY_REPAIR,
						 NULL, NULL, &report),
			 KILN_OK);
	assert_int_equal(report.n_sources, 2);
	assert_int_equal(report.n_sources_torn, 1);
	assert_int_equal(report.n_damaged, 0);
	assert_false(is_found(&store, "one", 3));
	assert_int_equal(store.tier->ops->info(store.tier, &info), KILN_OK);
	assert_int_equal(info.bytes_sources, st.st_size);
	assert_true(info.bytes_sources < info.bytes);
	free(path);
	store_free(&store);
}

/* ---- Several at once ------------------------------------------------- */

enum { KEEPERS = 4, KEPT = 25 };

static void keep_some(struct store *store, unsigned keeper)
{
	unsigned i;

	store_open(store);
	for (i = 0; i < KEPT; i++) {
		char *text = text_of(keeper * KEPT + i, 2000);
		enum kiln_status status;

		do {
			status = keep_one(store, text, 2000);
		} while (status == KILN_E_TIMEOUT);
		if (status)
			_exit(1);
		free(text);
	}
	store_close(store);
	_exit(0);
}

static void several_processes_keep_all_of_theirs(void **state)
{
	struct store store = store_new(64 << 20, 0);
	pid_t children[KEEPERS];
	unsigned i;
	int code;

	store_close(&store);
	for (i = 0; i < KEEPERS; i++) {
		children[i] = fork();
		if (!children[i])
			keep_some(&store, i);
	}
	for (i = 0; i < KEEPERS; i++) {
		assert_int_equal(waitpid(children[i], &code, 0), children[i]);
		assert_int_equal(code, 0);
	}
	store_open(&store);
	for (i = 0; i < KEEPERS * KEPT; i++) {
		char *text = text_of(i, 2000);

		assert_true(is_found(&store, text, 2000));
		free(text);
	}
	store_free(&store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_kept_is_found_by_its_digest),
		cmocka_unit_test(what_is_kept_already_takes_no_more_room),
		cmocka_unit_test(
			one_that_is_too_large_keeps_no_other_from_being_kept),
		cmocka_unit_test(who_only_reads_finds_and_keeps_nothing),
		cmocka_unit_test(the_oldest_sources_go_for_new_ones),
		cmocka_unit_test(sources_go_before_any_entry),
		cmocka_unit_test(no_entry_goes_for_a_source),
		cmocka_unit_test(what_clears_the_store_takes_its_sources_along),
		cmocka_unit_test(
			a_damaged_source_is_not_there_and_costs_no_other),
		cmocka_unit_test(behind_what_is_torn_a_new_file_begins),
		cmocka_unit_test(anything_in_the_place_of_a_file_is_borne),
		cmocka_unit_test(a_header_that_lies_is_passed_over),
		cmocka_unit_test(verify_reads_them_and_says_which_are_torn),
		cmocka_unit_test(several_processes_keep_all_of_theirs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
