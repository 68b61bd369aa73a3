/* SPDX-License-Identifier: MIT */

/* kiln.records: what is appended is found, by everybody, whatever is torn. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "key/key.h"
#include "store/records.h"

static struct ki_records *open_at(const char *path, uint32_t flags)
{
	const struct ki_records_options options = { .sys = &ki_sys_posix,
						    .path = path,
						    .flags = flags };
	struct ki_records *records = NULL;

	assert_int_equal(ki_records_open(&options, &records), KILN_OK);
	return records;
}

static struct kiln_key *key_of(unsigned n)
{
	struct kiln_key *key = kiln_key_new();

	kiln_key_add(key, "n", &n, sizeof(n));
	if (kiln_key_finish(key))
		abort();
	return key;
}

static void name_of(unsigned n, char out[32])
{
	snprintf(out, 32, "%016x.cl_cache", n);
}

/* Version v of entry n: its numbers say so. */
static enum kiln_status append(struct ki_records *records, unsigned n,
			       unsigned v)
{
	struct kiln_key *key = key_of(n);
	enum kiln_status status;
	char name[32], metadata[40];
	struct ki_record record = {
		.name = name,
		.metadata = metadata,
		.metadata_size = n % 40,
		.value_size = n,
		.value_check = v,
		.inode = 1000 * n + v,
		.file_size = 10,
		.mtime_ns = -(int64_t)n,
	};

	name_of(n, name);
	memset(metadata, (int)n, sizeof(metadata));
	record.record = kiln_key_record(key, &record.record_size);
	memcpy(record.digest, kiln_key_digest(key), KILN_DIGEST_BYTES);
	status = ki_records_append(records, &record);
	kiln_key_free(key);
	return status;
}

static enum kiln_status drop(struct ki_records *records, unsigned n)
{
	struct kiln_key *key = key_of(n);
	uint8_t digest[1][KILN_DIGEST_BYTES];
	enum kiln_status status;

	memcpy(digest[0], kiln_key_digest(key), KILN_DIGEST_BYTES);
	status = ki_records_drop(
		records, (const uint8_t(*)[KILN_DIGEST_BYTES])digest, 1);
	kiln_key_free(key);
	return status;
}

/* The version of entry n, 0 for a miss, -1 if anything is wrong. */
static int version(struct ki_records *records, unsigned n, unsigned older)
{
	struct kiln_key *key = key_of(n);
	struct ki_record_found found;
	struct kiln_blob *metadata = NULL;
	char name[32];
	enum kiln_status status =
		ki_records_find(records, key, older, &found, &metadata);
	int result = -1;

	name_of(n, name);
	if (status == KILN_MISS)
		result = 0;
	else if (!status && found.value_size == n &&
		 !strcmp(found.name, name) &&
		 found.inode == 1000 * n + found.value_check &&
		 found.mtime_ns == -(int64_t)n && found.file_size == 10 &&
		 !memcmp(found.digest, kiln_key_digest(key),
			 KILN_DIGEST_BYTES) &&
		 kiln_blob_size(metadata) == n % 40)
		result = (int)found.value_check;
	kiln_blob_unref(metadata);
	kiln_key_free(key);
	return result;
}

static unsigned count(struct ki_records *records)
{
	struct ki_record_found found;
	uint64_t serial = 0;
	unsigned n = 0;

	while (!ki_records_next(records, &serial, &found, NULL, NULL))
		n++;
	return n;
}

static const uint32_t ways[] = { 0, KILN_OPEN_GUEST, KILN_OPEN_READONLY,
				 KILN_OPEN_READONLY | KILN_OPEN_GUEST };
#define N_WAYS 4

/* ---- Reading and writing ------------------------------------------------------ */

static void what_is_appended_is_found(void **state)
{
	for (unsigned way = 0; way < 2; way++) {
		char *directory = harness_directory();
		char *path = harness_path(directory, "kiln.records");
		struct ki_records *records = open_at(path, ways[way]);
		struct ki_records_totals totals;
		struct ki_record_found found;

		assert_int_equal(version(records, 1, 0), 0);
		assert_int_equal(access(path, F_OK), -1);
		for (unsigned n = 1; n <= 300; n++)
			assert_int_equal(append(records, n, 1), KILN_OK);
		for (unsigned n = 1; n <= 300; n++)
			assert_int_equal(version(records, n, 0), 1);
		assert_int_equal(version(records, 301, 0), 0);
		assert_int_equal(ki_records_by_name(records,
						    "0000000000000007.cl_cache",
						    &found),
				 KILN_OK);
		assert_int_equal(found.inode, 7001);
		assert_int_equal(found.mtime_ns, -7);
		assert_int_equal(
			ki_records_by_name(records, "7.cl_cache", &found),
			KILN_MISS);
		totals = ki_records_totals(records);
		assert_int_equal(totals.n_living, 300);
		assert_int_equal(totals.bytes_files, 3000);
		assert_int_equal(totals.bytes, totals.bytes_living);
		ki_records_close(records);
		for (unsigned again = 0; again < N_WAYS; again++) {
			records = open_at(path, ways[again]);
			for (unsigned n = 1; n <= 300; n++)
				assert_int_equal(version(records, n, 0), 1);
			assert_int_equal(count(records), 300);
			ki_records_close(records);
		}
		free(path);
		free(directory);
	}
}

static void the_last_record_counts_and_the_one_before_is_known(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.records");
	struct ki_records *records = open_at(path, 0);

	for (unsigned v = 1; v <= 3; v++)
		assert_int_equal(append(records, 5, v), KILN_OK);
	assert_int_equal(version(records, 5, 0), 3);
	assert_int_equal(version(records, 5, 1), 2);
	assert_int_equal(version(records, 5, 3), 0);
	assert_int_equal(count(records), 1);
	assert_int_equal(drop(records, 5), KILN_OK);
	assert_int_equal(version(records, 5, 0), 0);
	assert_int_equal(version(records, 5, 1), 0);
	assert_int_equal(count(records), 0);
	assert_int_equal(append(records, 5, 4), KILN_OK);
	ki_records_close(records);
	records = open_at(path, 0);
	assert_int_equal(version(records, 5, 0), 4);
	assert_int_equal(version(records, 5, 1), 0);
	assert_int_equal(ki_records_totals(records).n_living, 1);
	ki_records_close(records);
	free(path);
	free(directory);
}

/* S02 */
static void another_key_of_the_same_digest_is_a_collision(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.records");
	struct ki_records *records = open_at(path, 0);
	struct kiln_key *key = key_of(1);
	struct ki_record record = { .name = "a",
				    .record = "other",
				    .record_size = 5 };
	struct ki_record_found found;

	memcpy(record.digest, kiln_key_digest(key), KILN_DIGEST_BYTES);
	assert_int_equal(ki_records_append(records, &record), KILN_OK);
	assert_int_equal(ki_records_find(records, key, 0, &found, NULL),
			 KILN_E_COLLISION);
	ki_records_close(records);
	kiln_key_free(key);
	free(path);
	free(directory);
}

/* ---- Gaps -------------------------------------------------------------------------- */

static struct kiln_key *long_key(char filling)
{
	struct kiln_key *key = kiln_key_new();
	char data[300];

	memset(data, filling, sizeof(data));
	kiln_key_add(key, "long", data, sizeof(data));
	if (kiln_key_finish(key))
		abort();
	return key;
}

static enum kiln_status append_with(struct ki_records *records,
				    const struct kiln_key *key,
				    const struct ki_record_gaps *gaps)
{
	struct ki_record record = { .name = "a",
				    .metadata = "meta",
				    .metadata_size = 4,
				    .gaps = *gaps };

	record.record = kiln_key_record(key, &record.record_size);
	memcpy(record.digest, kiln_key_digest(key), KILN_DIGEST_BYTES);
	return ki_records_append(records, &record);
}

/* What is not in a gap is compared, and comes back. */
static void check_gaps(struct ki_records *records, const struct kiln_key *key,
		       const struct ki_record_gaps *gaps)
{
	struct kiln_blob *record = NULL, *metadata = NULL;
	struct ki_record_found found;
	uint64_t serial = 0;
	const uint8_t *whole, *copy;
	size_t size;

	assert_int_equal(ki_records_find(records, key, 0, &found, &metadata),
			 KILN_OK);
	assert_int_equal(found.gaps.n, gaps->n);
	assert_memory_equal(found.gaps.of, gaps->of,
			    gaps->n * sizeof(*gaps->of));
	assert_int_equal(kiln_blob_size(metadata), 4);
	kiln_blob_unref(metadata);
	assert_int_equal(
		ki_records_next(records, &serial, &found, &record, NULL),
		KILN_OK);
	whole = kiln_key_record(key, &size);
	copy = kiln_blob_data(record);
	assert_int_equal(kiln_blob_size(record), size);
	for (size_t i = 0; i < size; i++) {
		int is_gap = 0;

		for (unsigned g = 0; g < gaps->n; g++)
			is_gap |= i >= gaps->of[g].offset &&
				  i - gaps->of[g].offset < gaps->of[g].size;
		assert_int_equal(copy[i], is_gap ? 0 : whole[i]);
	}
	kiln_blob_unref(record);
}

static void a_record_with_gaps_is_found_by_the_rest(void **state)
{
	static const struct ki_record_gaps rows[] = {
		{ { { 0, 1 } }, 1 },
		{ { { 20, 280 } }, 1 },
		{ { { 0, 4 }, { 4, 4 }, { 100, 50 }, { 299, 1 } }, 4 },
	};
	struct kiln_key *key = long_key('x');

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *directory = harness_directory();
		char *path = harness_path(directory, "kiln.records");
		struct ki_records *records = open_at(path, 0);
		struct kiln_key *other = long_key('y');
		struct ki_record_found found;

		assert_int_equal(append_with(records, key, &rows[i]), KILN_OK);
		check_gaps(records, key, &rows[i]);
		assert_int_equal(ki_records_rewrite(records, NULL), KILN_OK);
		check_gaps(records, key, &rows[i]);
		ki_records_close(records);
		records = open_at(path, 0);
		check_gaps(records, key, &rows[i]);
		/* The rest is another one's. */
		memcpy(other->digest, key->digest, KILN_DIGEST_BYTES);
		other->digest_low = key->digest_low;
		other->digest_high = key->digest_high;
		assert_int_equal(
			ki_records_find(records, other, 0, &found, NULL),
			KILN_E_COLLISION);
		ki_records_close(records);
		kiln_key_free(other);
		free(path);
		free(directory);
	}
	kiln_key_free(key);
}

/* Whoever wrote it, with a check that is right. */
static void a_record_with_gaps_that_cannot_be_is_none(void **state)
{
	static const struct {
		uint32_t offset[2], size[2];
	} rows[] = {
		{ { 300, 200 }, { 10, 10 } },	    /* not in order */
		{ { 0, 5 }, { 10, 10 } },	    /* one in the other */
		{ { 0, 400 }, { 10, 10 } },	    /* behind the end */
		{ { 10, UINT32_MAX }, { 10, 10 } }, /* far behind */
		{ { 0, 100 }, { 10, KILN_KEY_BYTES_MAX } }, /* too large */
	};
	const struct ki_record_gaps gaps = { { { 0, 10 }, { 100, 10 } }, 2 };
	struct kiln_key *key = long_key('x');

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *directory = harness_directory();
		char *path = harness_path(directory, "kiln.records");
		struct ki_records *records = open_at(path, 0);
		struct ki_record_found found;
		uint8_t *bytes, *at;
		size_t size, behind;

		assert_int_equal(append_with(records, key, &gaps), KILN_OK);
		ki_records_close(records);
		bytes = (uint8_t *)harness_read(path, &size);
		at = bytes + KI_RECORDS_HEADER_BYTES;
		/* Behind the name, what is kept, and the metadata. */
		behind = 96 + 1 + ki_get_u32(at + 8) + 4;
		for (unsigned g = 0; g < 2; g++) {
			ki_put_u32(at + behind + 8u * g, rows[i].offset[g]);
			ki_put_u32(at + behind + 8u * g + 4, rows[i].size[g]);
		}
		ki_put_u64(at + 88,
			   ki_xxh3_64(at, 88) +
				   ki_xxh3_64(at + 96,
					      size - KI_RECORDS_HEADER_BYTES -
						      96));
		harness_write(path, bytes, size);
		records = open_at(path, 0);
		assert_int_equal(ki_records_find(records, key, 0, &found, NULL),
				 KILN_MISS);
		ki_records_close(records);
		free(bytes);
		free(path);
		free(directory);
	}
	kiln_key_free(key);
}

static void a_handle_follows_what_others_do(void **state)
{
	for (unsigned way = 0; way < N_WAYS; way++) {
		char *directory = harness_directory();
		char *path = harness_path(directory, "kiln.records");
		struct ki_records *writer = open_at(path, 0);
		struct ki_records *reader = open_at(path, ways[way]);
		struct ki_records_settings settings = { .generation = 77,
							.bytes_max = 5 };

		assert_int_equal(append(writer, 1, 1), KILN_OK);
		assert_int_equal(ki_records_refresh(reader), 1);
		assert_int_equal(ki_records_refresh(reader), 0);
		assert_int_equal(version(reader, 1, 0), 1);
		for (unsigned n = 2; n < 2000; n++)
			assert_int_equal(append(writer, n, 1), KILN_OK);
		assert_int_equal(ki_records_refresh(reader), 1);
		assert_int_equal(count(reader), 1999);
		for (unsigned n = 2; n < 2000; n++)
			assert_int_equal(drop(writer, n), KILN_OK);
		assert_int_equal(ki_records_rewrite(writer, NULL), KILN_OK);
		assert_int_equal(append(writer, 9, 2), KILN_OK);
		assert_int_equal(ki_records_refresh(reader), 1);
		assert_int_equal(count(reader), 2);
		assert_int_equal(version(reader, 1, 0), 1);
		assert_int_equal(version(reader, 9, 0), 2);
		assert_int_equal(ki_records_reset(writer, &settings), KILN_OK);
		assert_int_equal(ki_records_refresh(reader), 1);
		assert_int_equal(count(reader), 0);
		assert_int_equal(ki_records_settings(reader).generation, 77);
		assert_int_equal(ki_records_settings(reader).bytes_max, 5);
		assert_int_equal(append(writer, 1, 3), KILN_OK);
		harness_remove(path);
		(void)unlink(path);
		assert_int_equal(ki_records_refresh(reader), 1);
		assert_int_equal(count(reader), 0);
		assert_int_equal(append(writer, 1, 4), KILN_OK);
		assert_int_equal(ki_records_refresh(reader), 1);
		assert_int_equal(version(reader, 1, 0), 4);
		ki_records_close(writer);
		ki_records_close(reader);
		free(path);
		free(directory);
	}
}

struct crowd {
	const char *path;
	const char *lock;
};

/* Under a lock of the test's own: one byte of a file. */
static int append_many(unsigned index, void *arg)
{
	const struct crowd *crowd = arg;
	struct ki_records *records =
		open_at(crowd->path, index % 2 ? KILN_OPEN_GUEST : 0);
	const struct ki_sys *sys = &ki_sys_posix;
	int result = 0;

	for (unsigned n = 0; n < 60 && !result; n++) {
		int fd = sys->open(
			sys, crowd->lock,
			KI_OPEN_READ | KI_OPEN_WRITE | KI_OPEN_CREATE, 0600);

		if (ki_lock_until(sys, fd, KI_LOCK_EXCLUSIVE, 0, 1, UINT64_MAX))
			result = 1;
		else if (append(records, 1 + index * 100 + n, 1) ||
			 (n % 20 == 19 && ki_records_rewrite(records, NULL)))
			result = 2;
		(void)sys->close(sys, fd);
		if (version(records, 1 + index * 100 + n, 0) != 1)
			result = 3;
	}
	ki_records_close(records);
	return result;
}

static void processes_append_to_one_file(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.records");
	char *lock = harness_path(directory, "lock");
	struct crowd crowd = { path, lock };
	struct ki_records *records;

	assert_int_equal(
		harness_processes(4, append_many, &crowd, HARNESS_HANG_S), 0);
	records = open_at(path, KILN_OPEN_READONLY);
	assert_int_equal(count(records), 240);
	for (unsigned index = 0; index < 4; index++)
		for (unsigned n = 0; n < 60; n++)
			assert_int_equal(
				version(records, 1 + index * 100 + n, 0), 1);
	ki_records_close(records);
	free(lock);
	free(path);
	free(directory);
}

/* ---- Damage ------------------------------------------------------------------- */

/* S11, S12: whoever dies in an append leaves a part of it. */
static void a_tail_torn_at_any_byte_costs_itself_alone(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.records");
	struct ki_records *records = open_at(path, 0);
	uint64_t before, after;
	char *bytes;
	size_t size;

	for (unsigned n = 1; n <= 3; n++)
		assert_int_equal(append(records, n, 1), KILN_OK);
	before = ki_records_totals(records).bytes;
	assert_int_equal(append(records, 39, 1), KILN_OK);
	after = ki_records_totals(records).bytes;
	ki_records_close(records);
	bytes = harness_read(path, &size);
	assert_int_equal(size, after);
	for (uint64_t cut = before; cut < after; cut++) {
		harness_write(path, bytes, (size_t)cut);
		records = open_at(path, cut % 2 ? KILN_OPEN_GUEST : 0);
		assert_int_equal(count(records), 3);
		assert_int_equal(version(records, 39, 0), 0);
		assert_int_equal(append(records, 40, 1), KILN_OK);
		assert_int_equal(version(records, 40, 0), 1);
		ki_records_close(records);
		records = open_at(path, KILN_OPEN_READONLY);
		assert_int_equal(count(records), 4);
		assert_int_equal(version(records, 40, 0), 1);
		ki_records_close(records);
	}
	free(bytes);
	free(path);
	free(directory);
}

static void a_reader_waits_for_a_record_that_is_being_written(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.records");
	struct ki_records *records = open_at(path, 0), *reader;
	char *bytes;
	size_t size;
	int fd;

	assert_int_equal(append(records, 1, 1), KILN_OK);
	assert_int_equal(append(records, 2, 1), KILN_OK);
	ki_records_close(records);
	bytes = harness_read(path, &size);
	assert_int_equal(truncate(path, (off_t)size - 40), 0);
	reader = open_at(path, KILN_OPEN_READONLY);
	assert_int_equal(version(reader, 2, 0), 0);
	fd = open(path, O_WRONLY | O_APPEND);
	assert_int_equal(write(fd, bytes + size - 40, 40), 40);
	close(fd);
	assert_int_equal(ki_records_refresh(reader), 1);
	assert_int_equal(version(reader, 2, 0), 1);
	ki_records_close(reader);
	free(bytes);
	free(path);
	free(directory);
}

/* S13: every byte of the file once. */
static void a_flipped_byte_costs_one_record_at_most(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.records");
	struct ki_records *records = open_at(path, 0);
	char *bytes;
	size_t size;

	for (unsigned n = 1; n <= 5; n++)
		assert_int_equal(append(records, n, 1), KILN_OK);
	ki_records_close(records);
	bytes = harness_read(path, &size);
	for (size_t i = 0; i < size; i++) {
		unsigned found = 0;

		bytes[i] ^= 0x10;
		harness_write(path, bytes, size);
		bytes[i] ^= 0x10;
		records = open_at(path, i % 2 ? KILN_OPEN_GUEST : 0);
		for (unsigned n = 1; n <= 5; n++) {
			int seen = version(records, n, 0);

			assert_true(seen == 0 || seen == 1);
			found += seen == 1;
		}
		assert_true(found >= (i < KI_RECORDS_HEADER_BYTES ? 5 : 4));
		assert_int_equal(append(records, 6, 1), KILN_OK);
		assert_int_equal(version(records, 6, 0), 1);
		ki_records_close(records);
	}
	free(bytes);
	free(path);
	free(directory);
}

/* Who has read it before it was damaged has it still. */
static void what_is_damaged_later_is_not_believed(void **state)
{
	for (unsigned way = 0; way < 2; way++) {
		char *directory = harness_directory();
		char *path = harness_path(directory, "kiln.records");
		struct ki_records *records = open_at(path, ways[way]);
		uint64_t second;
		int fd;

		assert_int_equal(append(records, 38, 1), KILN_OK);
		second = ki_records_totals(records).bytes;
		assert_int_equal(append(records, 39, 1), KILN_OK);
		assert_int_equal(version(records, 38, 0), 1);
		fd = open(path, O_WRONLY);
		assert_int_equal(
			pwrite(fd, "x", 1, KI_RECORDS_HEADER_BYTES + 60), 1);
		assert_int_equal(pwrite(fd, "x", 1, (off_t)second + 60), 1);
		close(fd);
		assert_int_equal(version(records, 38, 0), 1);
		assert_int_equal(version(records, 39, 0), 0);
		assert_int_equal(count(records), 1);
		ki_records_close(records);
		records = open_at(path, ways[way]);
		assert_int_equal(version(records, 38, 0), 0);
		ki_records_close(records);
		free(path);
		free(directory);
	}
}

/* Cut off at any place while it is open, before or after it was read. */
static void a_file_cut_off_under_a_handle_ends_nobody(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.records");
	struct ki_records *records = open_at(path, 0);
	char *bytes;
	size_t size;

	for (unsigned n = 1; n <= 20; n++)
		assert_int_equal(append(records, n, 1), KILN_OK);
	ki_records_close(records);
	bytes = harness_read(path, &size);
	for (size_t left = 0; left < size; left += 197) {
		unsigned n_found = 0;

		harness_write(path, bytes, size);
		records = open_at(path, ways[left % N_WAYS]);
		for (unsigned n = 1; n <= 5; n++)
			assert_int_equal(version(records, n, 0), 1);
		assert_int_equal(truncate(path, (off_t)left), 0);
		for (unsigned n = 1; n <= 20; n++) {
			int seen = version(records, n, 0);

			assert_true(seen == 0 || seen == 1);
			assert_true(seen || n > 5 || left % N_WAYS % 2);
		}
		assert_true(ki_records_refresh(records) >= 0);
		for (unsigned n = 1; n <= 20; n++)
			n_found += version(records, n, 0) == 1;
		assert_int_equal(n_found, count(records));
		assert_in_range(n_found, 0, left < 200 ? 0 : 19);
		if (left % N_WAYS < 2) {
			assert_int_equal(append(records, 21, 1), KILN_OK);
			assert_int_equal(version(records, 21, 0), 1);
			assert_int_equal(count(records), n_found + 1);
		}
		ki_records_close(records);
	}
	free(bytes);
	free(path);
	free(directory);
}

/* Between the look at its size and the reading. */
static const char *cut_path;

static int measure_and_cut(const struct ki_sys *sys, int fd,
			   struct ki_file_info *out_info)
{
	int err = ki_sys_posix.fmeasure(&ki_sys_posix, fd, out_info);

	if (cut_path && out_info->size > 300)
		assert_int_equal(
			truncate(cut_path, (off_t)out_info->size - 300), 0);
	return err;
}

static void a_file_cut_off_while_it_is_read_is_known_as_it_is(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.records");
	struct ki_sys sys = ki_sys_posix;
	const struct ki_records_options options = { .sys = &sys, .path = path };
	struct ki_records *records = open_at(path, 0);

	for (unsigned n = 1; n <= 20; n++)
		assert_int_equal(append(records, n, 1), KILN_OK);
	ki_records_close(records);
	sys.fmeasure = measure_and_cut;
	cut_path = path;
	assert_int_equal(ki_records_open(&options, &records), KILN_OK);
	cut_path = NULL;
	assert_in_range(count(records), 10, 19);
	assert_int_equal(append(records, 21, 1), KILN_OK);
	ki_records_close(records);
	records = open_at(path, 0);
	assert_in_range(count(records), 11, 20);
	assert_int_equal(version(records, 21, 0), 1);
	ki_records_close(records);
	free(path);
	free(directory);
}

static void a_record_within_a_record_is_none(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.records");
	struct ki_records *records = open_at(path, 0);
	struct kiln_key *key = key_of(3);
	struct ki_record record = { .name = "outer" };
	char *bytes;
	size_t size;
	int fd;

	assert_int_equal(append(records, 3, 1), KILN_OK);
	bytes = harness_read(path, &size);
	assert_int_equal(drop(records, 3), KILN_OK);
	/* A key that holds the bytes of a whole record, at a place of 8. */
	record.record = bytes + 64 - 3;
	record.record_size = size - 64 + 3;
	assert_int_equal(ki_records_append(records, &record), KILN_OK);
	size = (size_t)ki_records_totals(records).bytes;
	ki_records_close(records);
	fd = open(path, O_WRONLY);
	/* The outer one is damaged, so what is in it is looked at. */
	assert_int_equal(pwrite(fd, "\xff\xff", 2,
				(off_t)(size - (record.record_size + 3)) - 50),
			 2);
	close(fd);
	records = open_at(path, 0);
	assert_int_equal(version(records, 3, 0), 0);
	ki_records_close(records);
	free(bytes);
	kiln_key_free(key);
	free(path);
	free(directory);
}

static void assert_settings(struct ki_records *records,
			    const struct ki_records_settings *expected)
{
	const struct ki_records_settings settings =
		ki_records_settings(records);

	assert_int_equal(settings.user_version, expected->user_version);
	assert_true(settings.generation == expected->generation);
	assert_true(settings.bytes_max == expected->bytes_max);
}

/* Of either the other is left, and the next writer makes both whole. */
static void damage_to_the_header_or_its_copy_costs_no_setting(void **state)
{
	const struct ki_records_settings settings = { .user_version = 7,
						      .generation = 41,
						      .bytes_max = 100000 };
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.records");
	struct ki_records *records = open_at(path, 0);
	char *bytes, *after;
	size_t size, size_after;

	assert_int_equal(ki_records_reset(records, &settings), KILN_OK);
	assert_int_equal(append(records, 1, 1), KILN_OK);
	ki_records_close(records);
	bytes = harness_read(path, &size);
	for (size_t i = 0; i < KI_RECORDS_HEADER_BYTES; i++) {
		bytes[i] ^= 0x10;
		harness_write(path, bytes, size);
		bytes[i] ^= 0x10;
		records = open_at(path, ways[i % N_WAYS]);
		assert_settings(records, &settings);
		assert_int_equal(version(records, 1, 0), 1);
		if (ways[i % N_WAYS] & KILN_OPEN_READONLY)
			goto next;
		assert_int_equal(append(records, 2, 1), KILN_OK);
		assert_int_equal(version(records, 1, 0), 1);
		assert_settings(records, &settings);
		after = harness_read(path, &size_after);
		assert_memory_equal(after, bytes,
				    i < 64 ? KI_RECORDS_HEADER_BYTES : 64);
		free(after);
	next:
		ki_records_close(records);
	}
	free(bytes);
	free(path);
	free(directory);
}

static void a_newer_version_is_left_alone(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.records");
	const struct ki_records_options options = { .sys = &ki_sys_posix,
						    .path = path };
	struct ki_records *records = open_at(path, 0);
	char *bytes, *after;
	size_t size, size_after;

	assert_int_equal(append(records, 1, 1), KILN_OK);
	bytes = harness_read(path, &size);
	ki_put_u32(bytes + 8, 2);
	ki_put_u64(bytes + 56, ki_xxh3_64(bytes, 56));
	harness_write(path, bytes, size);
	ki_records_close(records);
	assert_int_equal(ki_records_open(&options, &records), KILN_E_FORMAT);
	after = harness_read(path, &size_after);
	assert_int_equal(size, size_after);
	assert_memory_equal(bytes, after, size);
	free(after);
	free(bytes);
	free(path);
	free(directory);
}

/* S17: whoever has it open learns that before it does anything. */
static void a_newer_version_that_comes_later_is_left_alone(void **state)
{
	for (unsigned way = 0; way < 2; way++) {
		char *directory = harness_directory();
		char *path = harness_path(directory, "kiln.records");
		char *newer = harness_path(directory, "newer");
		struct ki_records_settings settings = { .bytes_max = 1 };
		struct ki_records *records = open_at(path, ways[way]);
		char *bytes, *after;
		size_t size, size_after;

		assert_int_equal(append(records, 1, 1), KILN_OK);
		bytes = harness_read(path, &size);
		ki_put_u32(bytes + 8, 2);
		ki_put_u64(bytes + 56, ki_xxh3_64(bytes, 56));
		harness_write(newer, bytes, size);
		assert_int_equal(rename(newer, path), 0);
		assert_int_equal(ki_records_begin(records), -EPROTONOSUPPORT);
		assert_int_equal(append(records, 2, 1), KILN_E_FORMAT);
		assert_int_equal(drop(records, 1), KILN_E_FORMAT);
		assert_int_equal(ki_records_rewrite(records, NULL),
				 KILN_E_FORMAT);
		assert_int_equal(ki_records_reset(records, &settings),
				 KILN_E_FORMAT);
		assert_int_equal(version(records, 1, 0), 0);
		ki_records_close(records);
		after = harness_read(path, &size_after);
		assert_int_equal(size, size_after);
		assert_memory_equal(bytes, after, size);
		free(after);
		free(bytes);
		free(newer);
		free(path);
		free(directory);
	}
}

/* ---- Another file ------------------------------------------------------------------- */

/* S16: the directory is moved away, and there is another one. */
static void a_file_moved_away_is_left_alone(void **state)
{
	for (unsigned way = 0; way < 4; way++) {
		const int is_made = way / 2;
		char *directory = harness_directory();
		char *here = harness_path(directory, "here");
		char *path = harness_path(here, "kiln.records");
		char *there = harness_path(directory, "there");
		char *moved = harness_path(there, "kiln.records");
		struct ki_records *records, *other;
		char *before, *after;
		size_t size, size_after;

		assert_int_equal(mkdir(here, 0700), 0);
		records = open_at(path, ways[way % 2]);
		assert_int_equal(append(records, 1, 1), KILN_OK);
		assert_int_equal(version(records, 1, 0), 1);
		assert_int_equal(rename(here, there), 0);
		assert_int_equal(mkdir(here, 0700), 0);
		if (is_made) {
			other = open_at(path, 0);
			assert_int_equal(append(other, 2, 1), KILN_OK);
			ki_records_close(other);
		}
		before = harness_read(moved, &size);
		assert_int_equal(append(records, 3, 1), KILN_OK);
		assert_int_equal(version(records, 1, 0), 0);
		assert_int_equal(version(records, 2, 0), is_made);
		assert_int_equal(version(records, 3, 0), 1);
		after = harness_read(moved, &size_after);
		assert_int_equal(size, size_after);
		assert_memory_equal(before, after, size);
		other = open_at(path, KILN_OPEN_READONLY);
		assert_int_equal(count(other), 1 + (unsigned)is_made);
		ki_records_close(other);
		ki_records_close(records);
		free(after);
		free(before);
		free(moved);
		free(there);
		free(path);
		free(here);
		free(directory);
	}
}

static void who_reads_notices_that_it_was_moved_away(void **state)
{
	for (unsigned way = 0; way < N_WAYS; way++) {
		char *directory = harness_directory();
		char *path = harness_path(directory, "kiln.records");
		char *moved = harness_path(directory, "moved");
		struct ki_records *records = open_at(path, 0), *reader;

		assert_int_equal(append(records, 1, 1), KILN_OK);
		ki_records_close(records);
		reader = open_at(path, ways[way]);
		assert_int_equal(version(reader, 1, 0), 1);
		assert_int_equal(rename(path, moved), 0);
		assert_int_equal(ki_records_refresh(reader), 1);
		assert_int_equal(version(reader, 1, 0), 0);
		assert_int_equal(ki_records_totals(reader).bytes, 0);
		assert_int_equal(rename(moved, path), 0);
		assert_int_equal(ki_records_refresh(reader), 1);
		assert_int_equal(version(reader, 1, 0), 1);
		ki_records_close(reader);
		free(moved);
		free(path);
		free(directory);
	}
}

/* ---- Rewriting ----------------------------------------------------------------- */

static void a_rewrite_leaves_out_the_dead(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.records");
	struct ki_records *records = open_at(path, 0);
	struct ki_records_totals before, after;
	struct ki_record_found found;
	uint64_t serial = 0, last;

	for (unsigned v = 1; v <= 3; v++)
		for (unsigned n = 1; n <= 500; n++)
			assert_int_equal(append(records, n, v), KILN_OK);
	for (unsigned n = 1; n <= 500; n += 2)
		assert_int_equal(drop(records, n), KILN_OK);
	before = ki_records_totals(records);
	assert_int_equal(before.n_living, 250);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(
			ki_records_next(records, &serial, &found, NULL, NULL),
			KILN_OK);
	last = found.value_size;
	assert_int_equal(ki_records_rewrite(records, NULL), KILN_OK);
	after = ki_records_totals(records);
	assert_int_equal(after.bytes, before.bytes_living);
	assert_int_equal(after.bytes, after.bytes_living);
	for (unsigned n = 1; n <= 500; n++)
		assert_int_equal(version(records, n, 0), n % 2 ? 0 : 3);
	/* A cursor goes on where it was. */
	assert_int_equal(ki_records_next(records, &serial, &found, NULL, NULL),
			 KILN_OK);
	assert_int_equal(found.value_size, last + 2);
	ki_records_close(records);
	free(path);
	free(directory);
}

/* Between record and rename, the file is the old one. */
static void a_rewrite_keeps_the_record_of_the_file_that_is_there(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.records");
	char *file = harness_path(directory, "entry");
	struct ki_records *records = open_at(path, 0);
	struct kiln_key *key = key_of(1);
	struct ki_record record = { .name = "entry", .value_check = 1 };
	struct ki_record_found found;
	struct stat st;

	harness_write(file, "old", 3);
	assert_int_equal(stat(file, &st), 0);
	record.record = kiln_key_record(key, &record.record_size);
	memcpy(record.digest, kiln_key_digest(key), KILN_DIGEST_BYTES);
	record.inode = st.st_ino;
	assert_int_equal(ki_records_append(records, &record), KILN_OK);
	record.inode = st.st_ino + 1;
	record.value_check = 2;
	assert_int_equal(ki_records_append(records, &record), KILN_OK);
	assert_int_equal(ki_records_rewrite(records, NULL), KILN_OK);
	assert_int_equal(ki_records_find(records, key, 0, &found, NULL),
			 KILN_OK);
	assert_int_equal(found.value_check, 1);
	assert_int_equal(found.inode, st.st_ino);
	ki_records_close(records);
	kiln_key_free(key);
	free(file);
	free(path);
	free(directory);
}

static void a_sweep_drops_what_is_not_there(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.records");
	struct ki_records *records = open_at(path, 0);
	uint64_t n_dropped = 0;
	char name[32];

	for (unsigned n = 1; n <= 100; n++)
		assert_int_equal(append(records, n, 1), KILN_OK);
	ki_records_sweep_begin(records);
	for (unsigned n = 1; n <= 100; n++) {
		name_of(n, name);
		/* Of every fourth nothing, of the next another file. */
		if (n % 4)
			assert_int_equal(ki_records_mark(records, name,
							 1000 * n + n % 4),
					 n % 4 == 1);
	}
	assert_int_equal(ki_records_sweep_end(records, &n_dropped), KILN_OK);
	assert_int_equal(n_dropped, 75);
	assert_int_equal(count(records), 25);
	ki_records_close(records);
	records = open_at(path, 0);
	assert_int_equal(count(records), 25);
	ki_records_close(records);
	free(path);
	free(directory);
}

/* S30 */
static void read_only_writes_nothing(void **state)
{
	static const uint32_t flags[] = { KILN_OPEN_READONLY,
					  KILN_OPEN_ANY_OWNER };
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.records");
	struct ki_records_settings settings = { .bytes_max = 1 };
	struct ki_records *records = open_at(path, 0);
	struct stat before, after;

	assert_int_equal(append(records, 1, 1), KILN_OK);
	ki_records_close(records);
	assert_int_equal(truncate(path, 64 + 100 + 3), 0);
	assert_int_equal(stat(path, &before), 0);
	for (unsigned i = 0; i < 2; i++) {
		records = open_at(path, flags[i]);
		assert_int_equal(version(records, 1, 0), 0);
		assert_int_equal(append(records, 2, 1), KILN_E_READONLY);
		assert_int_equal(drop(records, 1), KILN_E_READONLY);
		assert_int_equal(ki_records_rewrite(records, NULL),
				 KILN_E_READONLY);
		assert_int_equal(ki_records_reset(records, &settings),
				 KILN_E_READONLY);
		ki_records_close(records);
	}
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	assert_int_equal(before.st_size, after.st_size);
	assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
	free(path);
	free(directory);
}

/* ---- Memory --------------------------------------------------------------------- */

static unsigned n_reads;

static ssize_t counted_pread(const struct ki_sys *sys, int fd, void *data,
			     size_t size, uint64_t offset)
{
	n_reads++;
	return ki_sys_posix.pread(&ki_sys_posix, fd, data, size, offset);
}

static void what_was_found_is_not_read_again(void **state)
{
	for (unsigned way = 0; way < N_WAYS; way++) {
		char *directory = harness_directory();
		char *path = harness_path(directory, "kiln.records");
		struct ki_sys sys = ki_sys_posix;
		const struct ki_records_options options = {
			.sys = &sys, .path = path, .flags = ways[way]
		};
		struct ki_records *records = open_at(path, 0);

		for (unsigned n = 1; n <= 50; n++)
			assert_int_equal(append(records, n, 1), KILN_OK);
		ki_records_close(records);
		sys.pread = counted_pread;
		assert_int_equal(ki_records_open(&options, &records), KILN_OK);
		for (unsigned n = 1; n <= 50; n++)
			assert_int_equal(version(records, n, 0), 1);
		n_reads = 0;
		for (unsigned n = 1; n <= 50; n++)
			assert_int_equal(version(records, n, 0), 1);
		assert_int_equal(n_reads, 0);
		assert_int_equal(ki_records_refresh(records), 0);
		assert_int_equal(n_reads, 0);
		ki_records_close(records);
		free(path);
		free(directory);
	}
}

/* Thrice what may stay. */
static void more_is_found_than_stays_in_memory(void **state)
{
	enum { N = 480, METADATA_BYTES = 50000 };
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.records");
	struct ki_records *records = open_at(path, 0);
	char *metadata = calloc(1, METADATA_BYTES);
	struct ki_record_found found;
	struct kiln_blob *blob;

	for (unsigned n = 0; n < N; n++) {
		struct kiln_key *key = key_of(n);
		struct ki_record record = { .name = "a",
					    .metadata = metadata,
					    .metadata_size = METADATA_BYTES,
					    .inode = n };

		metadata[0] = (char)n;
		record.record = kiln_key_record(key, &record.record_size);
		memcpy(record.digest, kiln_key_digest(key), KILN_DIGEST_BYTES);
		assert_int_equal(ki_records_append(records, &record), KILN_OK);
		kiln_key_free(key);
	}
	for (unsigned i = 0; i < 3 * N; i++) {
		const unsigned n = i * 7 % N;
		struct kiln_key *key = key_of(n);

		assert_int_equal(
			ki_records_find(records, key, 0, &found, &blob),
			KILN_OK);
		assert_int_equal(found.inode, n);
		assert_int_equal(kiln_blob_size(blob), METADATA_BYTES);
		assert_int_equal(*(const char *)kiln_blob_data(blob), (char)n);
		kiln_blob_unref(blob);
		kiln_key_free(key);
	}
	ki_records_close(records);
	free(metadata);
	free(path);
	free(directory);
}

/* ---- Descriptors ---------------------------------------------------------------- */

static unsigned n_open(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void a_guest_keeps_no_descriptor(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.records");
	unsigned before = n_open();
	struct ki_records *records = open_at(path, KILN_OPEN_GUEST);

	assert_int_equal(append(records, 1, 1), KILN_OK);
	assert_int_equal(n_open(), before);
	assert_int_equal(version(records, 1, 0), 1);
	assert_int_equal(ki_records_rewrite(records, NULL), KILN_OK);
	assert_int_equal(drop(records, 1), KILN_OK);
	assert_int_equal(n_open(), before);
	ki_records_close(records);
	free(path);
	free(directory);
}

/* A program closes what it does not know and gets our number for its own. */
static void a_strangers_file_under_our_number_is_not_touched(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.records");
	char *theirs = harness_path(directory, "theirs");
	struct ki_records *records;
	size_t size;
	int fd;

	harness_write(theirs, "theirs", 6);
	records = open_at(path, 0);
	/* The next number is the one that it will have. */
	fd = open(theirs, O_RDWR);
	close(fd);
	assert_int_equal(append(records, 1, 1), KILN_OK);
	close(fd);
	assert_int_equal(open(theirs, O_RDWR), fd);
	assert_int_equal(append(records, 2, 1), KILN_OK);
	assert_int_equal(version(records, 2, 0), 1);
	/* The other way round: theirs is read, and ours again. */
	for (unsigned n = 3; n < 10; n++)
		assert_int_equal(append(records, n, 1), KILN_OK);
	assert_int_equal(dup2(fd, fd + 1), fd + 1);
	for (unsigned n = 3; n < 10; n++)
		assert_int_equal(version(records, n, 0), 1);
	ki_records_close(records);
	assert_int_equal(fcntl(fd, F_GETFD) >= 0, 1);
	close(fd + 1);
	close(fd);
	path = (free(path), harness_read(theirs, &size));
	assert_int_equal(size, 6);
	assert_memory_equal(path, "theirs", 6);
	free(path);
	free(theirs);
	free(directory);
}

/* Our number is another's, and there is none for us. */
static const char *out_of_reach;

static int open_or_not(const struct ki_sys *sys, const char *path,
		       unsigned flags, unsigned mode)
{
	return out_of_reach && !strcmp(path, out_of_reach)
		       ? -EMFILE
		       : ki_sys_posix.open(&ki_sys_posix, path, flags, mode);
}

static void what_cannot_be_read_is_not_left_out(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.records");
	char *theirs = harness_path(directory, "theirs");
	struct ki_sys sys = ki_sys_posix;
	const struct ki_records_options options = { .sys = &sys, .path = path };
	struct ki_records *records = open_at(path, 0);
	struct ki_record_found found;
	uint64_t serial = 0;
	int fd, ours;

	for (unsigned n = 1; n <= 20; n++)
		assert_int_equal(append(records, n, 1), KILN_OK);
	ki_records_close(records);
	harness_write(theirs, "theirs", 6);
	fd = open(theirs, O_RDWR);
	/* The next number is the one that it will have. */
	ours = dup(fd);
	close(ours);
	sys.open = open_or_not;
	assert_int_equal(ki_records_open(&options, &records), KILN_OK);
	assert_true(ki_records_begin(records) >= 0);
	assert_int_equal(dup2(fd, ours), ours);
	out_of_reach = path;
	assert_int_equal(ki_records_rewrite(records, NULL), KILN_E_IO);
	out_of_reach = NULL;
	ki_records_end(records);
	close(ours);
	assert_int_equal(count(records), 20);
	assert_int_equal(dup2(fd, ours), ours);
	out_of_reach = path;
	assert_int_equal(ki_records_next(records, &serial, &found, NULL, NULL),
			 KILN_E_IO);
	out_of_reach = NULL;
	ki_records_close(records);
	records = open_at(path, 0);
	assert_int_equal(count(records), 20);
	ki_records_close(records);
	close(ours);
	close(fd);
	free(theirs);
	free(path);
	free(directory);
}

static int is_unread;

static ssize_t read_or_not(const struct ki_sys *sys, int fd, void *data,
			   size_t size, uint64_t offset)
{
	return is_unread ? -EIO
			 : ki_sys_posix.pread(&ki_sys_posix, fd, data, size,
					      offset);
}

/* Behind something torn, which is read once more with what follows it. */
static void what_was_appended_and_not_read_back_is_found_later(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "kiln.records");
	struct ki_sys sys = ki_sys_posix;
	const struct ki_records_options options = { .sys = &sys, .path = path };
	struct ki_records *records;
	static const char torn[256];
	int fd;

	sys.pread = read_or_not;
	assert_int_equal(ki_records_open(&options, &records), KILN_OK);
	assert_int_equal(append(records, 1, 1), KILN_OK);
	fd = open(path, O_WRONLY | O_APPEND);
	assert_int_equal(write(fd, torn, sizeof(torn)), sizeof(torn));
	close(fd);
	assert_true(ki_records_begin(records) >= 0);
	is_unread = 1;
	assert_int_equal(append(records, 2, 1), KILN_E_IO);
	is_unread = 0;
	ki_records_end(records);
	assert_int_equal(ki_records_refresh(records), 1);
	assert_int_equal(ki_records_refresh(records), 0);
	assert_int_equal(version(records, 2, 0), 1);
	assert_int_equal(count(records), 2);
	ki_records_close(records);
	free(path);
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_appended_is_found),
		cmocka_unit_test(
			the_last_record_counts_and_the_one_before_is_known),
		cmocka_unit_test(another_key_of_the_same_digest_is_a_collision),
		cmocka_unit_test(a_record_with_gaps_is_found_by_the_rest),
		cmocka_unit_test(a_record_with_gaps_that_cannot_be_is_none),
		cmocka_unit_test(a_handle_follows_what_others_do),
		cmocka_unit_test(processes_append_to_one_file),
		cmocka_unit_test(a_tail_torn_at_any_byte_costs_itself_alone),
		cmocka_unit_test(
			a_reader_waits_for_a_record_that_is_being_written),
		cmocka_unit_test(a_flipped_byte_costs_one_record_at_most),
		cmocka_unit_test(what_is_damaged_later_is_not_believed),
		cmocka_unit_test(a_file_cut_off_under_a_handle_ends_nobody),
		cmocka_unit_test(
			a_file_cut_off_while_it_is_read_is_known_as_it_is),
		cmocka_unit_test(a_record_within_a_record_is_none),
		cmocka_unit_test(a_file_moved_away_is_left_alone),
		cmocka_unit_test(who_reads_notices_that_it_was_moved_away),
		cmocka_unit_test(what_was_found_is_not_read_again),
		cmocka_unit_test(more_is_found_than_stays_in_memory),
		cmocka_unit_test(
			damage_to_the_header_or_its_copy_costs_no_setting),
		cmocka_unit_test(a_newer_version_is_left_alone),
		cmocka_unit_test(
			a_newer_version_that_comes_later_is_left_alone),
		cmocka_unit_test(a_rewrite_leaves_out_the_dead),
		cmocka_unit_test(
			a_rewrite_keeps_the_record_of_the_file_that_is_there),
		cmocka_unit_test(a_sweep_drops_what_is_not_there),
		cmocka_unit_test(read_only_writes_nothing),
		cmocka_unit_test(a_guest_keeps_no_descriptor),
		cmocka_unit_test(what_cannot_be_read_is_not_left_out),
		cmocka_unit_test(
			what_was_appended_and_not_read_back_is_found_later),
		cmocka_unit_test(
			a_strangers_file_under_our_number_is_not_touched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
