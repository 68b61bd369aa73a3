/* SPDX-License-Identifier: MIT */

/* What tests/damage does not ask of every store. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "store/log/log_test.h"

#define N_ENTRIES 12
#define FILES_MAX 32

/* A small store's files, to be put back after each damage. */
struct file {
	char *path;
	char *data;
	size_t size;
};

struct picture {
	struct store store;
	struct file files[FILES_MAX];
	unsigned n_files;
};

static size_t size_of(unsigned number)
{
	return number * 37;
}

static struct picture take_picture(void)
{
	struct picture picture = { .store = store_new(256 << 10, 0) };
	DIR *dir;
	struct dirent *entry;
	unsigned i;

	for (i = 0; i < N_ENTRIES; i++)
		assert_int_equal(store_put(&picture.store, i, size_of(i), 0),
				 KILN_OK);
	assert_int_equal(store_put(&picture.store, 100, 100, 0), KILN_OK);
	assert_int_equal(store_remove(&picture.store, 100), KILN_OK);
	store_close(&picture.store);
	dir = opendir(picture.store.directory);
	while ((entry = readdir(dir))) {
		struct file *file = &picture.files[picture.n_files];

		if (entry->d_name[0] == '.')
			continue;
		assert_true(picture.n_files < FILES_MAX);
		file->path =
			harness_path(picture.store.directory, entry->d_name);
		file->data = harness_read(file->path, &file->size);
		picture.n_files++;
	}
	closedir(dir);
	return picture;
}

static void put_back(struct picture *picture)
{
	char path[4096];
	DIR *dir = opendir(picture->store.directory);
	struct dirent *entry;
	unsigned i;

	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.') {
			snprintf(path, sizeof(path), "%s/%s",
				 picture->store.directory, entry->d_name);
			unlink(path);
		}
	closedir(dir);
	for (i = 0; i < picture->n_files; i++)
		harness_write(picture->files[i].path, picture->files[i].data,
			      picture->files[i].size);
}

static void free_picture(struct picture *picture)
{
	unsigned i;

	for (i = 0; i < picture->n_files; i++) {
		free(picture->files[i].path);
		free(picture->files[i].data);
	}
	store_free(&picture->store);
}

/* S13 */
static void a_damaged_record_is_told_apart_from_a_miss(void **state)
{
	struct picture picture = take_picture();
	struct store *store = &picture.store;
	unsigned i, n_damaged = 0;
	struct kiln_verify_report report;
	char *quarantine;
	size_t size, at;

	put_back(&picture);
	for (i = 0; i < picture.n_files; i++) {
		struct file *file = &picture.files[i];

		if (!strstr(file->path, ".val"))
			continue;
		/* The last byte of the value of entry 5. */
		for (at = 0; at + size_of(5) <= file->size; at++) {
			uint8_t *value = test_value(5, size_of(5));
			int here = !memcmp(file->data + at, value, size_of(5));

			free(value);
			if (!here)
				continue;
			file->data[at + size_of(5) - 1] ^= 1;
			harness_write(file->path, file->data, file->size);
			file->data[at + size_of(5) - 1] ^= 1;
			n_damaged++;
		}
	}
	assert_int_equal(n_damaged, 1);
	store->options.flags = 0;
	store_open(store);
	assert_int_equal(
		store->tier->ops->verify(store->tier, 0, NULL, NULL, &report),
		KILN_OK);
	assert_int_equal(report.n_damaged, 1);
	assert_int_equal(report.n_entries, N_ENTRIES - 1);
	assert_int_equal(store_get_any(store, 5, &size), KILN_E_FORMAT);
	assert_int_equal(store_get_any(store, 5, &size), KILN_MISS);
	assert_int_equal(store_put(store, 5, 40, 0), KILN_OK);
	assert_int_equal(store_get(store, 5, 40), KILN_OK);
	store_close(store);

	/* The same, found by the repair. */
	put_back(&picture);
	for (i = 0; i < picture.n_files; i++)
		if (strstr(picture.files[i].path, ".val")) {
			char *data = picture.files[i].data;

			data[200] ^= 1;
			harness_write(picture.files[i].path, data,
				      picture.files[i].size);
			data[200] ^= 1;
		}
	store_open(store);
	assert_int_equal(store->tier->ops->verify(store->tier,
						  KILN_VERIFY_REPAIR, NULL,
						  NULL, &report),
			 KILN_OK);
	assert_in_range(report.n_damaged, 1, 2);
	assert_int_equal(report.n_repaired, report.n_damaged);
	quarantine = harness_path(store->directory, "kiln.quarantine");
	assert_int_equal(access(quarantine, F_OK), 0);
	free(quarantine);
	assert_int_equal(
		store->tier->ops->verify(store->tier, 0, NULL, NULL, &report),
		KILN_OK);
	assert_int_equal(report.n_damaged, 0);
	free_picture(&picture);
}

/* Removed, replaced and carried over by eviction: what an index that is made
   anew finds is what the old one found. */
static void an_index_made_anew_finds_the_same(void **state)
{
	struct store store = store_new(1 << 20, 0);
	char *path = harness_path(store.directory, "kiln.idx");
	static size_t before[500], after;
	unsigned i, n = 0;

	for (i = 0; i < 500; i++) {
		assert_int_equal(store_put(&store, i, 100 + i, 0), KILN_OK);
		if (i % 3 == 1)
			assert_int_equal(
				store_put(&store, i, 5000, KILN_PUT_REPLACE),
				KILN_OK);
		if (i % 10 == 7)
			assert_int_equal(store_remove(&store, i), KILN_OK);
		/* Keep every fifth in use, also across removals. */
		for (n = 0; n < i; n += 5)
			(void)store_get_any(&store, n, &after);
	}
	for (i = 0; i < 500; i++)
		if (store_get_any(&store, i, &before[i]))
			before[i] = SIZE_MAX;
	store_close(&store);
	assert_int_equal(unlink(path), 0);
	store_open(&store);
	for (i = 0, n = 0; i < 500; i++) {
		if (store_get_any(&store, i, &after))
			after = SIZE_MAX;
		assert_int_equal(before[i], after);
		n += after != SIZE_MAX;
	}
	assert_in_range(n, 100, 450);
	free(path);
	store_free(&store);
}

/* The newest entries there are, all of `n` being of one size. */
static unsigned newest_found(struct store *store, unsigned n)
{
	unsigned i;

	for (i = 0; i < n && !store_get(store, n - 1 - i, 10); i++)
		;
	return i;
}

static void an_index_made_anew_has_the_size_it_needs(void **state)
{
	static const uint64_t bounds[] = { 1 << 20, 256 << 10 };
	size_t i;

	for (i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
		struct store store = store_new(bounds[i], 0);
		char *path = harness_path(store.directory, "kiln.idx");
		unsigned n, n_before, n_max = (unsigned)(bounds[i] / 700);

		for (n = 0; n < n_max; n++)
			assert_int_equal(store_put(&store, n, 10, 0), KILN_OK);
		n_before = newest_found(&store, n);
		assert_true(n_before >
			    ki_log_buckets_for(bounds[i], 0) * LOG_WORDS);
		store_close(&store);
		assert_int_equal(unlink(path), 0);
		store_open(&store);
		assert_int_equal(newest_found(&store, n), n_before);
		free(path);
		store_free(&store);
	}
}

/* The bound that it is opened with has no room for a larger one. */
static void where_an_index_made_anew_is_full_the_oldest_go(void **state)
{
	struct store store = store_new(0, 0);
	char *path = harness_path(store.directory, "kiln.idx");
	unsigned n, found = 0;

	for (n = 0; n < 2000; n++)
		assert_int_equal(store_put(&store, n, 10, 0), KILN_OK);
	store_close(&store);
	assert_int_equal(unlink(path), 0);
	store.options.bytes_max = 512 << 10;
	store_open(&store);
	assert_true(store_index(&store)->n_buckets * LOG_WORDS < n);
	assert_true(newest_found(&store, n) >= 100);
	for (n = 0; n < 2000; n++)
		found += !store_get(&store, n, 10);
	assert_true(found > store_index(&store)->n_buckets * LOG_WORDS / 2);
	free(path);
	store_free(&store);
}

/* ---- Opening --------------------------------------------------------- */

static char *index_path;
static int has_cut;

static int is_index(int fd)
{
	char name[64], where[4096];
	ssize_t n;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	n = readlink(name, where, sizeof(where) - 1);
	where[n > 0 ? n : 0] = '\0';
	return !strcmp(where, index_path);
}

/* Between the look at its size and what comes then. */
static int cut_short(const struct ki_sys *sys, int fd,
		     struct ki_file_info *out_info)
{
	int err = ki_sys_posix.fstat(&ki_sys_posix, fd, out_info);

	if (!has_cut && is_index(fd))
		has_cut = !truncate(index_path, 0);
	return err;
}

static ssize_t read_badly(const struct ki_sys *sys, int fd, void *data,
			  size_t size, uint64_t offset)
{
	if (is_index(fd))
		return -EIO;
	return ki_sys_posix.pread(&ki_sys_posix, fd, data, size, offset);
}

/* Nobody can tell whether the put that replaced it has returned. */
static void what_a_torn_record_replaced_does_not_come_back(void **state)
{
	struct store store = store_new(8 << 20, 0);
	char *index = harness_path(store.directory, "kiln.idx");
	uint8_t *value = test_value(1, 5000);
	char path[KI_PATH_MAX];
	char *data, *found;
	size_t size;

	assert_int_equal(store_put(&store, 1, 3000, 0), KILN_OK);
	assert_int_equal(store_put(&store, 1, 5000, KILN_PUT_REPLACE), KILN_OK);
	assert_int_equal(
		ki_log_segment_path((struct ki_log *)store.tier,
				    ki_log_min_live(store_index(&store)), path),
		0);
	store_close(&store);
	data = harness_read(path, &size);
	found = memmem(data, size, value, 5000);
	assert_non_null(found);
	memset(found + 4096, 0, 5000 - 4096);
	harness_write(path, data, size);
	assert_int_equal(remove(index), 0);
	store_open(&store);
	assert_int_equal(store_get_any(&store, 1, &size), KILN_E_FORMAT);
	assert_int_equal(store_get_any(&store, 1, &size), KILN_MISS);
	free(data);
	free(value);
	free(index);
	store_free(&store);
}

static void an_index_cut_short_while_it_is_opened_is_made_anew(void **state)
{
	static const uint32_t ways[] = { 0, KILN_OPEN_GUEST };
	struct ki_sys sys = ki_sys_posix;
	unsigned i, n;

	sys.fstat = cut_short;
	for (i = 0; i < 2; i++) {
		struct store store = store_new(8 << 20, ways[i]);

		for (n = 0; n < 10; n++)
			assert_int_equal(store_put(&store, n, 100, 0), KILN_OK);
		store_close(&store);
		index_path = harness_path(store.directory, "kiln.idx");
		has_cut = 0;
		store.options.sys = &sys;
		store_open(&store);
		assert_true(has_cut);
		for (n = 0; n < 10; n++)
			assert_int_equal(store_get(&store, n, 100), KILN_OK);
		free(index_path);
		store_free(&store);
	}
}

static void an_index_that_cannot_be_read_is_an_error(void **state)
{
	static const uint32_t ways[] = { 0, KILN_OPEN_GUEST,
					 KILN_OPEN_READONLY };
	struct store store = store_new(8 << 20, 0);
	struct ki_sys sys = ki_sys_posix;
	unsigned i;

	assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
	store_close(&store);
	index_path = harness_path(store.directory, "kiln.idx");
	sys.pread = read_badly;
	for (i = 0; i < 3; i++) {
		store.options.sys = &sys;
		store.options.flags = ways[i];
		assert_int_equal(ki_store_log_open(&store.options, &store.tier),
				 KILN_E_IO);
		store.options.sys = &ki_sys_posix;
		store_open(&store);
		assert_int_equal(store_get(&store, 1, 100), KILN_OK);
		store_close(&store);
	}
	free(index_path);
	store_free(&store);
}

/* Longer than any memory: nothing of it is mapped. */
static void an_index_that_is_too_long_is_made_anew(void **state)
{
	static const uint32_t ways[] = { 0, KILN_OPEN_GUEST };
	unsigned i;

	for (i = 0; i < 2; i++) {
		struct store store = store_new(8 << 20, ways[i]);
		char *path = harness_path(store.directory, "kiln.idx");

		assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
		store_close(&store);
		if (truncate(path, (off_t)1 << 48))
			assert_int_equal(truncate(path, (off_t)1 << 43), 0);
		store_open(&store);
		assert_int_equal(store_get(&store, 1, 100), KILN_OK);
		free(path);
		store_free(&store);
	}
}

/* ---- Records --------------------------------------------------------- */

/* The flags of the first record of the tail's segment, sealed again. */
static void set_flags(struct store *store, uint32_t flags)
{
	struct ki_log *log = (struct ki_log *)store->tier;
	uint32_t number = log_tail_segment(log->index->header->tail);
	struct log_record record;
	char path[KI_PATH_MAX];
	int fd;

	assert_int_equal(ki_log_segment_path(log, number, path), 0);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &record, sizeof(record), 0), sizeof(record));
	record.flags = flags & 0xffff;
	ki_log_record_seal(&record, number);
	assert_int_equal(pwrite(fd, &record, sizeof(record), 0),
			 sizeof(record));
	close(fd);
}

/* What a later version may write means nothing to this one, and stays. */
static void a_record_that_is_stored_otherwise_is_a_miss(void **state)
{
	static const struct {
		uint32_t flags;
		enum kiln_status found;
	} rows[] = {
		{ LOG_REPLACES, KILN_OK }, { LOG_SIGNED, KILN_OK },
		{ 0x8000u, KILN_OK },	   { LOG_COMPRESSED, KILN_MISS },
		{ 0x0080u, KILN_MISS },
	};
	static const uint32_t ways[] = { 0, KILN_OPEN_GUEST, KILN_OPEN_COPY };
	size_t i, way;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (way = 0; way < 3; way++) {
			struct store store = store_new(8 << 20, ways[way]);

			assert_int_equal(store_put(&store, 1, 100, 0), KILN_OK);
			set_flags(&store, rows[i].flags);
			store_reopen(&store);
			assert_int_equal(store_get(&store, 1, 100),
					 rows[i].found);
			assert_int_equal(
				store_put(&store, 1, 200, KILN_PUT_REPLACE),
				KILN_OK);
			assert_int_equal(store_get(&store, 1, 200), KILN_OK);
			store_free(&store);
		}
}

/* Only 8 bits of the digest are left. */
static struct kiln_key *colliding_key(unsigned number)
{
	struct kiln_key *key = test_key(number);

	memset(key->digest, 0, sizeof(key->digest));
	key->digest[0] = (uint8_t)number;
	key->digest[9] = (uint8_t)number;
	key->digest_low = ki_digest_low(key->digest);
	key->digest_high = ki_digest_high(key->digest);
	return key;
}

/* S02: what shares a digest is told apart by its record. */
static void equal_digests_never_mix_up_values(void **state)
{
	struct store store = store_new(4 << 20, 0);
	unsigned i, found = 0, collisions = 0;

	for (i = 0; i < 1000; i++) {
		struct kiln_key *key = colliding_key(i);
		uint8_t *value = test_value(i, 64);

		assert_int_equal(store.tier->ops->put(store.tier, key, NULL, 0,
						      value, 64, 0),
				 KILN_OK);
		free(value);
		kiln_key_free(key);
	}
	for (i = 0; i < 1100; i++) {
		struct kiln_key *key = colliding_key(i);
		struct kiln_blob *blob;
		enum kiln_status status;

		status = store.tier->ops->get(store.tier, key, &blob, NULL);
		if (!status) {
			assert_true(i < 1000);
			assert_true(test_value_is(blob, i));
			kiln_blob_unref(blob);
			found++;
		} else {
			collisions += status == KILN_E_COLLISION;
		}
		kiln_key_free(key);
	}
	assert_true(found > 900);
	assert_true(collisions > 0);
	store_free(&store);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_damaged_record_is_told_apart_from_a_miss),
		cmocka_unit_test(an_index_made_anew_finds_the_same),
		cmocka_unit_test(an_index_made_anew_has_the_size_it_needs),
		cmocka_unit_test(
			where_an_index_made_anew_is_full_the_oldest_go),
		cmocka_unit_test(
			what_a_torn_record_replaced_does_not_come_back),
		cmocka_unit_test(
			an_index_cut_short_while_it_is_opened_is_made_anew),
		cmocka_unit_test(an_index_that_cannot_be_read_is_an_error),
		cmocka_unit_test(an_index_that_is_too_long_is_made_anew),
		cmocka_unit_test(a_record_that_is_stored_otherwise_is_a_miss),
		cmocka_unit_test(equal_digests_never_mix_up_values),
	};

	/* A sparse file of any length, where there is such a place. */
	if (!access("/dev/shm", W_OK))
		setenv("TMPDIR", "/dev/shm", 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
