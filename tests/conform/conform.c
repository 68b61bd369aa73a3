/* SPDX-License-Identifier: MIT */

/*
 * conform KIND: what every tier does alike, whatever its format.  What a kind
 * cannot do (a NULL in its table, or nothing kept in a directory) is skipped.
 */

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "harness/harness.h"

#include "base/bytes.h"
#include "base/hash.h"

#include "conform/kinds.h"

#define BOUND	((uint64_t)4 << 20)
#define HOUR_NS ((int64_t)3600 * 1000000000)

static const struct kind *kind;

/* ---- Means ----------------------------------------------------------------- */

/* The real system with a wall clock that a test moves. */
static int64_t shift_ns;

static uint64_t shifted_realtime(const struct ki_sys *sys)
{
	return ki_sys_posix.realtime_ns(sys) + (uint64_t)shift_ns;
}

static struct ki_store_options options_of(const char *directory)
{
	static struct ki_sys sys;

	sys = ki_sys_posix;
	sys.realtime_ns = shifted_realtime;
	return (struct ki_store_options){ .sys = &sys, .directory = directory };
}

static struct kiln_tier *open_with(const struct ki_store_options *options)
{
	struct kiln_tier *tier = NULL;

	assert_int_equal(kind->open(options, &tier), KILN_OK);
	assert_non_null(tier->ops->get);
	assert_non_null(tier->ops->close);
	assert_int_equal(tier->ops->version, KILN_TIER_VERSION);
	return tier;
}

static struct kiln_tier *open_in(const char *directory)
{
	struct ki_store_options options = options_of(directory);

	return open_with(&options);
}

static struct kiln_tier *open_bounded(const char *directory, uint64_t bytes_max,
				      uint32_t flags)
{
	struct ki_store_options options = options_of(directory);

	options.bytes_max = bytes_max;
	options.flags = flags;
	return open_with(&options);
}

static uint64_t bytes_of(struct kiln_tier *tier)
{
	struct kiln_store_info info;

	assert_int_equal(tier->ops->info(tier, &info), KILN_OK);
	return info.bytes;
}

static uint64_t disk_bytes(const char *directory)
{
	return kind_disk_bytes(kind, directory);
}

/* Every file in a tree, by size, times and first bytes. */
typedef void file_fn(const char *path, const struct stat *st, void *arg);

static void each_file(const char *directory, file_fn *visit, void *arg)
{
	DIR *dir = opendir(directory);
	struct dirent *entry;

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		char *path = harness_path(directory, entry->d_name);
		struct stat st;

		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") &&
		    !lstat(path, &st)) {
			visit(path, &st, arg);
			if (S_ISDIR(st.st_mode))
				each_file(path, visit, arg);
		}
		free(path);
	}
	closedir(dir);
}

static unsigned count_listed(struct kiln_tier *tier, uint64_t *out_bytes)
{
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;
	enum kiln_status status;
	unsigned n = 0;

	*out_bytes = 0;
	while (!(status = tier->ops->list(tier, &cursor, &entry))) {
		n++;
		*out_bytes += entry.value_size;
		assert_int_equal(kiln_blob_size(entry.metadata), 8);
		kiln_blob_unref(entry.record);
		kiln_blob_unref(entry.metadata);
	}
	assert_int_equal(status, KILN_END);
	return n;
}

/* ---- One handle -------------------------------------------------------------- */

static void an_unknown_key_is_a_miss(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory);

	assert_int_equal(get_numbered(tier, 1), KILN_MISS);
	tier->ops->close(tier);
	free(directory);
}

static void what_was_put_is_found_with_its_metadata(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory);
	struct kiln_blob *blob;
	struct kiln_key *key = numbered_key(1);

	assert_int_equal(put_numbered(tier, 1, 1000, 0), KILN_OK);
	assert_int_equal(put_numbered(tier, 2, 1000, 0), KILN_OK);
	assert_int_equal(get_numbered(tier, 1), KILN_OK);
	assert_int_equal(get_numbered(tier, 2), KILN_OK);
	assert_int_equal(get_numbered(tier, 3), KILN_MISS);

	/* Without asking for metadata; and a blob outlives the tier. */
	assert_int_equal(tier->ops->get(tier, key, &blob, NULL), KILN_OK);
	assert_int_equal((uintptr_t)kiln_blob_data(blob) % 8, 0);
	tier->ops->close(tier);
	assert_true(is_value_of(1, kiln_blob_data(blob), kiln_blob_size(blob)));
	kiln_blob_unref(blob);
	kiln_key_free(key);
	free(directory);
}

static void creating_keeps_the_first_value(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory);
	struct kiln_key *key = numbered_key(1);

	assert_int_equal(put_numbered(tier, 1, 1000, 0), KILN_OK);
	assert_int_equal(tier->ops->put(tier, key, NULL, 0, "other", 5, 0),
			 KILN_EXISTS);
	assert_int_equal(get_numbered(tier, 1), KILN_OK);
	tier->ops->close(tier);
	kiln_key_free(key);
	free(directory);
}

static void replacing_keeps_the_last_value(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory);
	struct kiln_key *key = numbered_key(1);
	uint64_t bytes;

	for (unsigned i = 0; i < 10; i++) {
		assert_int_equal(tier->ops->put(tier, key, "m", 1, "other", 5,
						KILN_PUT_REPLACE),
				 KILN_OK);
		assert_int_equal(
			put_numbered(tier, 1, 100 + i * 1000, KILN_PUT_REPLACE),
			KILN_OK);
		assert_int_equal(get_numbered(tier, 1), KILN_OK);
	}
	if (tier->ops->list) {
		assert_int_equal(count_listed(tier, &bytes), 1);
		assert_int_equal(bytes, 9100);
	}
	tier->ops->close(tier);
	kiln_key_free(key);
	free(directory);
}

/* Where large values lie elsewhere, that is later than what comes after them. */
static void of_large_and_small_values_the_last_stays(void **state)
{
	static const size_t sizes[] = {
		100, 2000000, 300, 2000001, 70000, 200
	};
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory);
	struct kiln_key *key = numbered_key(1);

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct kiln_blob *blob;

		assert_int_equal(
			put_numbered(tier, 1, sizes[i], KILN_PUT_REPLACE),
			KILN_OK);
		assert_int_equal(tier->ops->get(tier, key, &blob, NULL),
				 KILN_OK);
		assert_int_equal(kiln_blob_size(blob), sizes[i]);
		kiln_blob_unref(blob);
		assert_int_equal(get_numbered(tier, 1), KILN_OK);
	}
	tier->ops->close(tier);
	kiln_key_free(key);
	free(directory);
}

static void what_was_removed_is_gone(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory);
	struct kiln_key *key = numbered_key(1);

	assert_int_equal(tier->ops->remove(tier, key), KILN_MISS);
	assert_int_equal(put_numbered(tier, 1, 1000, 0), KILN_OK);
	assert_int_equal(put_numbered(tier, 2, 1000, 0), KILN_OK);
	assert_int_equal(tier->ops->remove(tier, key), KILN_OK);
	assert_int_equal(tier->ops->remove(tier, key), KILN_MISS);
	assert_int_equal(get_numbered(tier, 1), KILN_MISS);
	assert_int_equal(get_numbered(tier, 2), KILN_OK);
	assert_int_equal(put_numbered(tier, 1, 1000, 0), KILN_OK);
	assert_int_equal(get_numbered(tier, 1), KILN_OK);
	tier->ops->close(tier);
	kiln_key_free(key);
	free(directory);
}

static void a_wiped_tier_is_empty_and_usable(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory);
	uint64_t generation, bytes;

	for (unsigned n = 0; n < 50; n++)
		assert_int_equal(put_numbered(tier, n, 1000, 0), KILN_OK);
	generation = tier->generation ? *tier->generation : 0;
	assert_int_equal(tier->ops->wipe(tier), KILN_OK);
	for (unsigned n = 0; n < 50; n++)
		assert_int_equal(get_numbered(tier, n), KILN_MISS);
	if (tier->generation)
		assert_int_not_equal(*tier->generation, generation);
	if (tier->ops->list)
		assert_int_equal(count_listed(tier, &bytes), 0);
	assert_int_equal(put_numbered(tier, 1, 1000, 0), KILN_OK);
	assert_int_equal(get_numbered(tier, 1), KILN_OK);
	tier->ops->close(tier);
	free(directory);
}

static void a_listing_shows_every_entry_once(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory);
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;
	unsigned char seen[200] = { 0 };
	enum kiln_status status;

	for (unsigned n = 0; n < 200; n++)
		assert_int_equal(put_numbered(tier, n, 100 + n, 0), KILN_OK);
	while (!(status = tier->ops->list(tier, &cursor, &entry))) {
		struct kiln_key *key;
		struct kiln_field field;
		unsigned n;

		assert_int_equal(kiln_key_from_record(
					 kiln_blob_data(entry.record),
					 kiln_blob_size(entry.record), &key),
				 KILN_OK);
		assert_memory_equal(kiln_key_digest(key), entry.digest,
				    KILN_DIGEST_BYTES);
		assert_int_equal(kiln_record_find(kiln_blob_data(entry.record),
						  kiln_blob_size(entry.record),
						  "number", &field),
				 KILN_OK);
		n = ki_get_u32(field.data);
		assert_true(n < 200);
		assert_int_equal(entry.value_size, 100 + n);
		assert_true(entry.stored_size >= entry.value_size);
		assert_memory_equal(kiln_blob_data(entry.metadata), "metadata",
				    8);
		seen[n]++;
		kiln_key_free(key);
		kiln_blob_unref(entry.record);
		kiln_blob_unref(entry.metadata);
	}
	assert_int_equal(status, KILN_END);
	assert_int_equal(tier->ops->list(tier, &cursor, &entry), KILN_END);
	for (unsigned n = 0; n < 200; n++)
		assert_int_equal(seen[n], 1);
	tier->ops->close(tier);
	free(directory);
}

static void a_listing_survives_changes_below_it(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory);
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;
	enum kiln_status status;
	unsigned n_listed = 0;

	for (unsigned n = 0; n < 60; n++)
		assert_int_equal(put_numbered(tier, n, 100, 0), KILN_OK);
	while (!(status = tier->ops->list(tier, &cursor, &entry))) {
		struct kiln_key *key;

		assert_int_equal(kiln_key_from_record(
					 kiln_blob_data(entry.record),
					 kiln_blob_size(entry.record), &key),
				 KILN_OK);
		assert_int_equal(tier->ops->remove(tier, key), KILN_OK);
		kiln_key_free(key);
		kiln_blob_unref(entry.record);
		kiln_blob_unref(entry.metadata);
		n_listed++;
	}
	assert_int_equal(status, KILN_END);
	assert_int_equal(n_listed, 60);
	for (unsigned n = 0; n < 60; n++)
		assert_int_equal(get_numbered(tier, n), KILN_MISS);
	tier->ops->close(tier);
	free(directory);
}

/* S14 */
static void every_size_comes_back(void **state)
{
	static const size_t sizes[] = { 0,	 1,	 7,	  8,
					9,	 63,	 64,	  65,
					4095,	 4096,	 4097,	  65535,
					65536,	 65537,	 1048575, 1048576,
					1048577, 5000000 };
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory);

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct kiln_key *key = numbered_key(i);
		struct kiln_blob *blob, *metadata;
		char *value = calloc(1, sizes[i] + 1);

		/* Zeros, but for the ends. */
		if (sizes[i]) {
			value[0] = 'a';
			value[sizes[i] - 1] = 'z';
		}
		assert_int_equal(tier->ops->put(tier, key, value,
						sizes[i] % 1000, value,
						sizes[i], 0),
				 KILN_OK);
		assert_int_equal(tier->ops->get(tier, key, &blob, &metadata),
				 KILN_OK);
		assert_int_equal(kiln_blob_size(blob), sizes[i]);
		assert_int_equal((uintptr_t)kiln_blob_data(blob) % 8, 0);
		if (sizes[i])
			assert_memory_equal(kiln_blob_data(blob), value,
					    sizes[i]);
		assert_int_equal(kiln_blob_size(metadata), sizes[i] % 1000);
		if (sizes[i] % 1000)
			assert_memory_equal(kiln_blob_data(metadata), value,
					    sizes[i] % 1000);
		kiln_blob_unref(blob);
		kiln_blob_unref(metadata);
		free(value);
		kiln_key_free(key);
	}
	tier->ops->close(tier);
	free(directory);
}

/* S01 */
/* x with x ^ x >> n == y. */
static uint64_t undo_shift(uint64_t y, unsigned n)
{
	uint64_t x = y;

	for (unsigned done = n; done < 64; done += n)
		x = y ^ x >> n;
	return x;
}

static uint64_t inverse(uint64_t odd)
{
	uint64_t x = odd;

	for (int i = 0; i < 6; i++)
		x *= 2 - odd * x;
	return x;
}

/*
 * Of 33 to 128 bytes XXH3 adds up products, one of them of the two halves of
 * the last 16 bytes, each under a part of the secret.  With one half so that
 * its factor is 1, the other sets the sum, and so the hash, to anything.
 */
static void aim_at_zero(uint8_t *bytes, size_t size)
{
	static const uint8_t secret[16] = { 0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90,
					    0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4,
					    0xb7, 0xb3, 0x67, 0x1f };
	uint8_t *low = bytes + size - 16, *high = bytes + size - 8;
	uint64_t sum;

	ki_put_u64(low, ki_get_u64(secret) ^ 1);
	ki_put_u64(high, ki_get_u64(secret + 8));
	sum = undo_shift(ki_xxh3_64(bytes, size), 32);
	sum = undo_shift(sum * inverse(0x165667919E3779F9u), 37);
	ki_put_u64(high, ki_get_u64(secret + 8) ^ (0 - sum));
	assert_int_equal(ki_xxh3_64(bytes, size), 0);
}

/* S14: a checksum of 0 is a checksum. */
static void a_checksum_of_zero_is_like_any_other(void **state)
{
	static const uint32_t ways[] = { KILN_OPEN_COPY, KILN_OPEN_GUEST,
					 KILN_OPEN_VERIFY_ALWAYS };
	char *directory = harness_directory();
	struct ki_store_options options = options_of(directory);
	struct kiln_key *key = kiln_key_new();
	struct kiln_tier *tier = open_in(directory);
	uint8_t body[128] = { 0 };
	size_t size;
	const void *record;

	/* A multiple of 8, so that no store has zeros behind it. */
	kiln_key_add(key, "zero", "12345678", 8);
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	record = kiln_key_record(key, &size);
	assert_int_equal(size % 8, 0);
	memcpy(body, record, size);
	aim_at_zero(body, size + 16);
	assert_int_equal(tier->ops->put(tier, key, NULL, 0, body + size, 16, 0),
			 KILN_OK);
	for (size_t i = 0; i <= sizeof(ways) / sizeof(ways[0]); i++) {
		struct kiln_verify_report report;
		struct kiln_blob *blob;

		assert_int_equal(tier->ops->get(tier, key, &blob, NULL),
				 KILN_OK);
		assert_int_equal(kiln_blob_size(blob), 16);
		assert_memory_equal(kiln_blob_data(blob), body + size, 16);
		kiln_blob_unref(blob);
		if (tier->ops->verify) {
			assert_int_equal(
				tier->ops->verify(tier, 0, NULL, NULL, &report),
				KILN_OK);
			assert_int_equal(report.n_damaged, 0);
		}
		if (!kind->persists || i == sizeof(ways) / sizeof(ways[0]))
			break;
		tier->ops->close(tier);
		options.flags = ways[i];
		tier = open_with(&options);
	}
	tier->ops->close(tier);
	kiln_key_free(key);
	free(directory);
}

/* S14: nobody looks at a value that can never fit. */
static void a_huge_value_is_refused_unseen(void **state)
{
	static const uint64_t sizes[] = { (uint64_t)1 << 31, (uint64_t)1 << 32,
					  (uint64_t)1 << 40, (uint64_t)1 << 62,
					  INT64_MAX,	     SIZE_MAX };
	char *directory = harness_directory();
	struct kiln_tier *tier = open_bounded(directory, BOUND, 0);
	struct kiln_key *key = numbered_key(1);
	const size_t size = (size_t)1 << 20;
	/* Whoever reads its first byte dies of it. */
	void *value =
		mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(value, MAP_FAILED);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (unsigned flags = 0; flags < 2; flags++)
			assert_int_equal(
				tier->ops->put(tier, key, NULL, 0, value,
					       (size_t)sizes[i],
					       flags ? KILN_PUT_REPLACE : 0),
				KILN_E_TOO_LARGE);
	assert_int_equal(get_numbered(tier, 1), KILN_MISS);
	assert_int_equal(put_numbered(tier, 1, 1000, 0), KILN_OK);
	tier->ops->close(tier);
	munmap(value, size);
	kiln_key_free(key);
	free(directory);
}

static void keys_may_hold_any_bytes(void **state)
{
	static const struct row {
		const char *label;
		const char *data;
		size_t size;
	} rows[] = {
		{ "a", "", 0 },
		{ "a", "\0", 1 },
		{ "a", "\0\0", 2 },
		{ "a\xff\n/", "x", 1 },
		{ "b", "../../etc/passwd", 16 },
		{ "b", "\xff\xfe\0\r\n", 5 },
	};
	const unsigned n_rows = sizeof(rows) / sizeof(rows[0]);
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory);
	struct kiln_key *keys[sizeof(rows) / sizeof(rows[0]) + 1];
	char *large = malloc(300000);

	for (unsigned i = 0; i <= n_rows; i++) {
		char value = (char)i;

		keys[i] = kiln_key_new();
		if (i < n_rows)
			kiln_key_add(keys[i], rows[i].label, rows[i].data,
				     rows[i].size);
		else
			kiln_key_add(keys[i], "large",
				     memset(large, 0x5a, 300000), 300000);
		assert_int_equal(kiln_key_finish(keys[i]), KILN_OK);
		assert_int_equal(
			tier->ops->put(tier, keys[i], NULL, 0, &value, 1, 0),
			KILN_OK);
	}
	for (unsigned i = 0; i <= n_rows; i++) {
		struct kiln_blob *blob;

		assert_int_equal(tier->ops->get(tier, keys[i], &blob, NULL),
				 KILN_OK);
		assert_int_equal(*(const char *)kiln_blob_data(blob), (int)i);
		kiln_blob_unref(blob);
		kiln_key_free(keys[i]);
	}
	free(large);
	tier->ops->close(tier);
	free(directory);
}

struct steps {
	unsigned n;
	uint64_t last, total;
};

static void note_step(void *arg, uint64_t done, uint64_t total)
{
	struct steps *steps = arg;

	steps->n++;
	steps->last = done;
	steps->total = total;
}

static void verify_finds_nothing_wrong_with_a_sound_store(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory);
	struct kiln_verify_report report;
	struct steps steps = { 0 };

	for (unsigned n = 0; n < 40; n++)
		assert_int_equal(put_numbered(tier, n, 1000, 0), KILN_OK);
	assert_int_equal(tier->ops->verify(tier, 0, note_step, &steps, &report),
			 KILN_OK);
	assert_int_equal(report.n_entries, 40);
	assert_int_equal(report.n_damaged, 0);
	assert_int_equal(report.n_repaired, 0);
	assert_true(report.bytes >= 40000);
	assert_true(steps.n > 0);
	assert_int_equal(steps.last, steps.total);
	assert_int_equal(tier->ops->verify(tier, KILN_VERIFY_REPAIR, NULL, NULL,
					   &report),
			 KILN_OK);
	for (unsigned n = 0; n < 40; n++)
		assert_int_equal(get_numbered(tier, n), KILN_OK);
	tier->ops->close(tier);
	free(directory);
}

/* ---- Bounds ------------------------------------------------------------------ */

/* S47 */
static void the_bound_is_never_passed_and_the_newest_stays(void **state)
{
	static const size_t sizes[] = { 100, 5000, 20000, 60000, 9000 };
	char *directory = harness_directory();
	struct kiln_tier *tier = open_bounded(directory, BOUND, 0);
	unsigned n_left = 0;

	for (unsigned n = 0; n < 800; n++) {
		assert_int_equal(put_numbered(tier, n, sizes[n % 5], 0),
				 KILN_OK);
		assert_int_equal(get_numbered(tier, n), KILN_OK);
		if (n % 16)
			continue;
		assert_true(bytes_of(tier) <= BOUND);
		if (kind->persists)
			assert_true(disk_bytes(directory) <= BOUND);
	}
	for (unsigned n = 0; n < 800; n++) {
		int status = get_numbered(tier, n);

		assert_true(status == KILN_OK || status == KILN_MISS);
		n_left += status == KILN_OK;
	}
	/* Half of the bound at least is of use. */
	assert_true(n_left > (unsigned)(BOUND / 2 / 19000));
	tier->ops->close(tier);
	free(directory);
}

/* Nothing but values so large that they have files of their own. */
static void large_values_alone_make_room_for_each_other(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_bounded(directory, BOUND, 0);

	assert_int_equal(put_numbered(tier, 0, 100, 0), KILN_OK);
	for (unsigned n = 1; n < 40; n++) {
		assert_int_equal(put_numbered(tier, n, 500000 + n, 0), KILN_OK);
		assert_int_equal(get_numbered(tier, n), KILN_OK);
		assert_true(bytes_of(tier) <= BOUND);
	}
	tier->ops->close(tier);
	free(directory);
}

static void what_is_used_is_not_evicted(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_bounded(directory, BOUND, 0);

	assert_int_equal(put_numbered(tier, 0, 20000, 0), KILN_OK);
	for (unsigned n = 1; n < 600; n++) {
		shift_ns += HOUR_NS;
		assert_int_equal(put_numbered(tier, n, 20000, 0), KILN_OK);
		assert_int_equal(get_numbered(tier, 0), KILN_OK);
	}
	assert_int_equal(get_numbered(tier, 1), KILN_MISS);
	shift_ns = 0;
	tier->ops->close(tier);
	free(directory);
}

static void a_store_that_refuses_keeps_what_it_has(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier =
		open_bounded(directory, BOUND, KILN_OPEN_REFUSE_FULL);
	struct kiln_key *key = numbered_key(0);
	enum kiln_status status = KILN_OK;
	unsigned n;

	for (n = 0; n < 1000 && !status; n++)
		status = put_numbered(tier, n, 20000, 0);
	assert_int_equal(status, KILN_E_FULL);
	assert_true(n > BOUND / 2 / 20000);
	for (unsigned i = 0; i + 1 < n; i++)
		assert_int_equal(get_numbered(tier, i), KILN_OK);
	assert_int_equal(get_numbered(tier, n - 1), KILN_MISS);
	if (tier->ops->wipe) {
		assert_int_equal(tier->ops->wipe(tier), KILN_OK);
		assert_int_equal(put_numbered(tier, n, 20000, 0), KILN_OK);
	}
	tier->ops->close(tier);
	kiln_key_free(key);
	free(directory);
}

static void what_can_never_fit_is_refused_and_costs_nothing(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_bounded(directory, BOUND, 0);

	assert_int_equal(put_numbered(tier, 1, 1000, 0), KILN_OK);
	assert_int_equal(put_numbered(tier, 2, 2 * BOUND, 0), KILN_E_TOO_LARGE);
	assert_int_equal(get_numbered(tier, 1), KILN_OK);
	assert_int_equal(get_numbered(tier, 2), KILN_MISS);
	tier->ops->close(tier);
	free(directory);
}

static void a_lower_limit_holds_at_once(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_bounded(directory, 4 * BOUND, 0);

	for (unsigned n = 0; n < 400; n++)
		assert_int_equal(put_numbered(tier, n, 20000, 0), KILN_OK);
	assert_true(bytes_of(tier) > BOUND);
	assert_int_equal(tier->ops->set_limit(tier, BOUND), KILN_OK);
	assert_true(bytes_of(tier) <= BOUND);
	if (kind->persists)
		assert_true(disk_bytes(directory) <= BOUND);
	assert_int_equal(put_numbered(tier, 400, 20000, 0), KILN_OK);
	assert_int_equal(get_numbered(tier, 400), KILN_OK);
	tier->ops->close(tier);
	free(directory);
}

/* S24 */
static void what_was_handed_out_outlives_its_eviction(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_bounded(directory, BOUND, 0);
	struct kiln_blob *small, *large;
	struct kiln_key *keys[] = { numbered_key(0), numbered_key(1) };

	assert_int_equal(put_numbered(tier, 0, 1000, 0), KILN_OK);
	assert_int_equal(put_numbered(tier, 1, 300000, 0), KILN_OK);
	assert_int_equal(tier->ops->get(tier, keys[0], &small, NULL), KILN_OK);
	assert_int_equal(tier->ops->get(tier, keys[1], &large, NULL), KILN_OK);
	for (unsigned n = 2; n < 1200; n++)
		assert_int_equal(put_numbered(tier, n, 9000, 0), KILN_OK);
	assert_int_equal(get_numbered(tier, 0), KILN_MISS);
	assert_true(
		is_value_of(0, kiln_blob_data(small), kiln_blob_size(small)));
	tier->ops->close(tier);
	assert_true(
		is_value_of(1, kiln_blob_data(large), kiln_blob_size(large)));
	kiln_blob_unref(small);
	kiln_blob_unref(large);
	kiln_key_free(keys[0]);
	kiln_key_free(keys[1]);
	free(directory);
}

/* S33 */
static void a_clock_that_jumps_costs_nothing(void **state)
{
	static const int64_t jumps[] = { -24, 24 * 3650, -24, 1, -1, 0 };
	char *directory = harness_directory();
	struct kiln_tier *tier = open_bounded(directory, BOUND, 0);
	struct kiln_tier *other = open_bounded(directory, BOUND, 0);
	struct kiln_key *key = numbered_key(0);
	struct kiln_tier_lock *lock = NULL, *second;

	assert_int_equal(put_numbered(tier, 0, 9000, 0), KILN_OK);
	if (kind->persists)
		assert_int_equal(tier->ops->lock(tier, key, 0, &lock), KILN_OK);
	for (unsigned i = 0; i < sizeof(jumps) / sizeof(jumps[0]); i++) {
		shift_ns = jumps[i] * HOUR_NS;
		for (unsigned n = 1; n < 60; n++) {
			unsigned number = 1000 * i + n;

			assert_int_equal(put_numbered(tier, number, 9000, 0),
					 KILN_OK);
			assert_int_equal(get_numbered(tier, number), KILN_OK);
		}
		/* What was put and used just now is what was used last. */
		for (unsigned n = 30; n < 60; n++)
			assert_int_equal(get_numbered(tier, 1000 * i + n),
					 KILN_OK);
		assert_true(bytes_of(tier) <= BOUND);
		if (lock)
			assert_int_equal(
				other->ops->lock(other, key, 0, &second),
				KILN_E_TIMEOUT);
	}
	shift_ns = 0;
	if (lock)
		tier->ops->unlock(tier, lock);
	tier->ops->close(tier);
	other->ops->close(other);
	kiln_key_free(key);
	free(directory);
}

/* ---- Threads ------------------------------------------------------------------- */

struct crowd {
	struct kiln_tier *tier;
	const char *directory;
	_Atomic int *n_won; /* shared by processes, as the next */
	pid_t *stranger;
};

/*
 * The lock to make room, the first time too, is waited for some ms and no
 * longer: on a busy machine puts are dropped.  Each is taken in the end.
 */
static enum kiln_status put_in_the_end(struct kiln_tier *tier, unsigned number,
				       size_t size, unsigned flags)
{
	enum kiln_status status;

	do {
		status = put_numbered(tier, number, size, flags);
	} while (status == KILN_E_TIMEOUT);
	return status;
}

/* Returns how many creations it won; 1000 for anything wrong. */
static int create_and_get(unsigned index, void *arg)
{
	struct crowd *crowd = arg;
	struct kiln_tier *tier = crowd->tier;
	int won = 0;

	for (unsigned n = 0; n < 50; n++) {
		enum kiln_status status = put_in_the_end(tier, n, 500, 0);

		if (status != KILN_OK && status != KILN_EXISTS)
			return 1000;
		won += status == KILN_OK;
		if (get_numbered(tier, n) != KILN_OK)
			return 1000;
		if (put_in_the_end(tier, 1000 + index, 500 + n,
				   KILN_PUT_REPLACE))
			return 1000;
		if (get_numbered(tier, 1000 + index) != KILN_OK)
			return 1000;
	}
	return won;
}

static void of_many_threads_one_creates(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory);
	struct crowd crowd = { .tier = tier };

	assert_int_equal(harness_threads(6, create_and_get, &crowd), 50);
	tier->ops->close(tier);
	free(directory);
}

/* Values replaced under a reader are the old one or the new one. */
static int replace_or_get(unsigned index, void *arg)
{
	struct crowd *crowd = arg;

	for (unsigned i = 0; i < 150; i++) {
		int status;

		if (index % 2)
			status = put_in_the_end(crowd->tier, 7, 100 + i * 97,
						KILN_PUT_REPLACE);
		else
			status = get_numbered(crowd->tier, 7);
		if (status)
			return 1;
	}
	return 0;
}

/* S24 */
static void a_reader_sees_the_old_value_or_the_new(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory);
	struct crowd crowd = { .tier = tier };

	assert_int_equal(put_numbered(tier, 7, 100, 0), KILN_OK);
	assert_int_equal(harness_threads(4, replace_or_get, &crowd), 0);
	tier->ops->close(tier);
	free(directory);
}

/* ---- The directory ---------------------------------------------------------------- */

static void what_was_put_is_there_after_reopening(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory);

	for (unsigned n = 0; n < 50; n++)
		assert_int_equal(put_numbered(tier, n, 100 * n + 8, 0),
				 KILN_OK);
	tier->ops->close(tier);
	tier = open_in(directory);
	for (unsigned n = 0; n < 50; n++)
		assert_int_equal(get_numbered(tier, n), KILN_OK);
	assert_int_equal(put_numbered(tier, 1, 100, 0), KILN_EXISTS);
	tier->ops->close(tier);
	free(directory);
}

static void two_handles_see_one_store(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *a = open_in(directory), *b = open_in(directory);
	struct kiln_key *key = numbered_key(1);

	assert_int_equal(put_numbered(a, 1, 100, 0), KILN_OK);
	assert_int_equal(get_numbered(b, 1), KILN_OK);
	assert_int_equal(put_numbered(b, 1, 200, 0), KILN_EXISTS);
	assert_int_equal(put_numbered(b, 1, 200, KILN_PUT_REPLACE), KILN_OK);
	assert_int_equal(get_numbered(a, 1), KILN_OK);
	assert_int_equal(a->ops->remove(a, key), KILN_OK);
	assert_int_equal(get_numbered(b, 1), KILN_MISS);
	assert_int_equal(put_numbered(b, 2, 200, 0), KILN_OK);
	assert_int_equal(a->ops->wipe(a), KILN_OK);
	assert_int_equal(get_numbered(b, 2), KILN_MISS);
	assert_int_equal(put_numbered(b, 2, 200, 0), KILN_OK);
	assert_int_equal(get_numbered(a, 2), KILN_OK);
	a->ops->close(a);
	b->ops->close(b);
	kiln_key_free(key);
	free(directory);
}

static int create_in_process(unsigned index, void *arg)
{
	struct crowd *crowd = arg;
	struct ki_store_options options = options_of(crowd->directory);
	struct kiln_tier *tier;
	int won = 0;

	if (kind->open(&options, &tier))
		return 1;
	for (unsigned n = 0; n < 100; n++) {
		enum kiln_status status = put_in_the_end(tier, n, 500, 0);

		if (status != KILN_OK && status != KILN_EXISTS)
			return 2;
		won += status == KILN_OK;
		if (get_numbered(tier, n) != KILN_OK)
			return 3;
	}
	tier->ops->close(tier);
	*crowd->n_won += won;
	return 0;
}

static void of_many_processes_one_creates(void **state)
{
	char *directory = harness_directory();
	struct crowd crowd = { .directory = directory };
	struct kiln_tier *tier;
	uint64_t bytes;

	crowd.n_won = mmap(NULL, sizeof(*crowd.n_won), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(crowd.n_won, MAP_FAILED);
	assert_int_equal(
		harness_processes(6, create_in_process, &crowd, HARNESS_HANG_S),
		0);
	assert_int_equal(*crowd.n_won, 100);
	munmap((void *)crowd.n_won, sizeof(*crowd.n_won));
	tier = open_in(directory);
	if (tier->ops->list)
		assert_int_equal(count_listed(tier, &bytes), 100);
	for (unsigned n = 0; n < 100; n++)
		assert_int_equal(get_numbered(tier, n), KILN_OK);
	tier->ops->close(tier);
	free(directory);
}

static int fill_in_process(unsigned index, void *arg)
{
	struct crowd *crowd = arg;
	struct ki_store_options options = options_of(crowd->directory);
	struct kiln_store_info info;
	struct kiln_tier *tier;

	options.bytes_max = BOUND;
	if (kind->open(&options, &tier))
		return 1;
	for (unsigned n = 0; n < 60; n++) {
		unsigned key = index * 1000 + n;
		int found;

		if (put_in_the_end(tier, key, 40000 + n, 0))
			return 2;
		found = get_numbered(tier, key);
		if (found != KILN_OK && found != KILN_MISS)
			return 3;
		if (n % 8 == 0 &&
		    (tier->ops->info(tier, &info) || info.bytes > BOUND)) {
			fprintf(stderr, "%llu bytes\n",
				(unsigned long long)info.bytes);
			return 4;
		}
	}
	tier->ops->close(tier);
	return 0;
}

/* S27 */
static void many_processes_keep_the_bound(void **state)
{
	char *directory = harness_directory();
	struct crowd crowd = { .directory = directory };
	struct kiln_tier *tier;

	assert_int_equal(
		harness_processes(6, fill_in_process, &crowd, HARNESS_HANG_S),
		0);
	tier = open_bounded(directory, BOUND, 0);
	assert_true(bytes_of(tier) <= BOUND);
	assert_true(disk_bytes(directory) <= BOUND);
	tier->ops->close(tier);
	free(directory);
}

struct snapshot {
	uint64_t hash;
	unsigned n;
};

static void add_file(const char *path, const struct stat *st, void *arg)
{
	struct snapshot *snapshot = arg;
	uint64_t facts[] = { st->st_ino,
			     (uint64_t)st->st_size,
			     (uint64_t)st->st_mtim.tv_sec,
			     (uint64_t)st->st_mtim.tv_nsec,
			     (uint64_t)st->st_ctim.tv_sec,
			     (uint64_t)st->st_ctim.tv_nsec,
			     st->st_mode };

	snapshot->hash += ki_xxh3_64(facts, sizeof(facts));
	if (S_ISREG(st->st_mode)) {
		size_t size;
		char *bytes = harness_read(path, &size);

		if (bytes)
			snapshot->hash += ki_xxh3_64(bytes, size);
		free(bytes);
	}
	snapshot->n++;
}

/* S30 */
static void read_only_means_no_write_of_any_kind(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory);
	struct snapshot before = { 0 }, after = { 0 };
	uint64_t deltas[KILN_N_COUNTERS] = { 1 }, bytes;
	struct kiln_key *key = numbered_key(1);
	struct kiln_tier_lock *lock;
	struct kiln_store_info info;

	for (unsigned n = 0; n < 20; n++)
		assert_int_equal(put_numbered(tier, n, 1000, 0), KILN_OK);
	tier->ops->close(tier);
	each_file(directory, add_file, &before);

	shift_ns = 48 * HOUR_NS;
	tier = open_bounded(directory, 0, KILN_OPEN_READONLY);
	for (unsigned n = 0; n < 20; n++)
		assert_int_equal(get_numbered(tier, n), KILN_OK);
	assert_int_equal(get_numbered(tier, 20), KILN_MISS);
	assert_int_equal(put_numbered(tier, 20, 1000, 0), KILN_E_READONLY);
	assert_int_equal(put_numbered(tier, 1, 1000, KILN_PUT_REPLACE),
			 KILN_E_READONLY);
	assert_int_equal(tier->ops->remove(tier, key), KILN_E_READONLY);
	assert_int_equal(tier->ops->wipe(tier), KILN_E_READONLY);
	assert_int_equal(tier->ops->set_limit(tier, BOUND), KILN_E_READONLY);
	if (tier->ops->count)
		tier->ops->count(tier, deltas);
	if (tier->ops->lock && !tier->ops->lock(tier, key, 0, &lock))
		tier->ops->unlock(tier, lock);
	assert_int_equal(tier->ops->info(tier, &info), KILN_OK);
	assert_int_equal(count_listed(tier, &bytes), 20);
	tier->ops->close(tier);
	shift_ns = 0;

	each_file(directory, add_file, &after);
	assert_int_equal(before.n, after.n);
	assert_true(before.hash == after.hash);
	kiln_key_free(key);
	free(directory);
}

/* S30, on a directory that cannot be written. */
static void a_directory_that_cannot_be_written_still_gives_hits(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory);

	assert_int_equal(put_numbered(tier, 1, 1000, 0), KILN_OK);
	tier->ops->close(tier);
	assert_int_equal(chmod(directory, 0500), 0);
	tier = open_bounded(directory, 0, KILN_OPEN_READONLY);
	assert_int_equal(get_numbered(tier, 1), KILN_OK);
	tier->ops->close(tier);
	assert_int_equal(chmod(directory, 0700), 0);
	free(directory);
}

/* S16 */
static void a_directory_that_vanishes_is_made_anew(void **state)
{
	char *directory = harness_directory();
	char *below = harness_path(directory, "store");
	struct kiln_tier *tier = open_in(below);
	int status;

	assert_int_equal(put_numbered(tier, 1, 1000, 0), KILN_OK);
	harness_remove(below);
	status = get_numbered(tier, 1);
	assert_true(status == KILN_MISS || status == KILN_OK);
	/* The first put may be the one that notices. */
	(void)put_numbered(tier, 2, 1000, 0);
	assert_int_equal(put_numbered(tier, 3, 1000, 0), KILN_OK);
	assert_int_equal(get_numbered(tier, 3), KILN_OK);
	tier->ops->close(tier);
	tier = open_in(below);
	assert_int_equal(get_numbered(tier, 3), KILN_OK);
	tier->ops->close(tier);
	free(below);
	free(directory);
}

static void another_user_version_empties_the_store(void **state)
{
	char *directory = harness_directory();
	struct ki_store_options options = options_of(directory);
	struct kiln_tier *tier;

	options.user_version = 7;
	tier = open_with(&options);
	assert_int_equal(put_numbered(tier, 1, 1000, 0), KILN_OK);
	tier->ops->close(tier);
	options.user_version = 0;
	tier = open_with(&options);
	assert_int_equal(get_numbered(tier, 1), KILN_OK);
	tier->ops->close(tier);
	options.user_version = 7;
	tier = open_with(&options);
	assert_int_equal(get_numbered(tier, 1), KILN_OK);
	tier->ops->close(tier);
	options.user_version = 8;
	tier = open_with(&options);
	assert_int_equal(get_numbered(tier, 1), KILN_MISS);
	assert_int_equal(put_numbered(tier, 1, 1000, 0), KILN_OK);
	tier->ops->close(tier);
	tier = open_with(&options);
	assert_int_equal(get_numbered(tier, 1), KILN_OK);
	tier->ops->close(tier);
	free(directory);
}

static void stores_of_two_names_are_strangers(void **state)
{
	char *directory = harness_directory();
	struct ki_store_options options = options_of(directory);
	struct kiln_tier *a, *b;

	a = open_with(&options);
	options.name = "other";
	b = open_with(&options);
	assert_int_equal(put_numbered(a, 1, 1000, 0), KILN_OK);
	assert_int_equal(get_numbered(b, 1), KILN_MISS);
	assert_int_equal(put_numbered(b, 1, 1000, 0), KILN_OK);
	assert_int_equal(a->ops->wipe(a), KILN_OK);
	assert_int_equal(get_numbered(b, 1), KILN_OK);
	a->ops->close(a);
	b->ops->close(b);
	free(directory);
}

static void counters_add_up_over_handles(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *a = open_in(directory), *b = open_in(directory);
	struct kiln_store_counters *counters = calloc(1, sizeof(*counters));
	uint64_t deltas[KILN_N_COUNTERS] = { 0 };

	deltas[KILN_COUNT_MISSES] = 3;
	deltas[KILN_N_COUNTERS - 1] = 1;
	a->ops->count(a, deltas);
	b->ops->count(b, deltas);
	assert_int_equal(a->ops->counters(a, counters), KILN_OK);
	assert_int_equal(counters->total[KILN_COUNT_MISSES], 6);
	assert_int_equal(counters->total[KILN_N_COUNTERS - 1], 2);
	assert_int_equal(a->ops->zero_counters(a), KILN_OK);
	assert_int_equal(b->ops->counters(b, counters), KILN_OK);
	assert_int_equal(counters->total[KILN_COUNT_MISSES], 0);
	free(counters);
	a->ops->close(a);
	b->ops->close(b);
	free(directory);
}

static void a_build_lock_has_one_holder(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *a = open_in(directory), *b = open_in(directory);
	struct kiln_key *one = numbered_key(1), *two = numbered_key(2);
	struct kiln_tier_lock *first, *second, *third;

	assert_int_equal(a->ops->lock(a, one, 0, &first), KILN_OK);
	assert_int_equal(b->ops->lock(b, one, 5, &second), KILN_E_TIMEOUT);
	assert_int_equal(a->ops->lock(a, one, 0, &second), KILN_E_TIMEOUT);
	assert_int_equal(b->ops->lock(b, two, 0, &second), KILN_OK);
	a->ops->unlock(a, first);
	assert_int_equal(b->ops->lock(b, one, 0, &third), KILN_OK);
	b->ops->unlock(b, third);
	b->ops->unlock(b, second);
	a->ops->close(a);
	b->ops->close(b);
	kiln_key_free(one);
	kiln_key_free(two);
	free(directory);
}

/* Descriptors that a program started now would have. */
static unsigned n_inherited(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++) {
		int flags = fcntl(fd, F_GETFD);

		n += flags >= 0 && !(flags & FD_CLOEXEC);
	}
	return n;
}

/* S41 */
static void no_descriptor_passes_an_exec(void **state)
{
	char *directory = harness_directory();
	unsigned before = n_inherited();
	struct kiln_tier *tier = open_in(directory);
	struct kiln_key *key = numbered_key(1);
	struct kiln_tier_lock *lock;

	assert_int_equal(tier->ops->lock(tier, key, 0, &lock), KILN_OK);
	assert_int_equal(put_numbered(tier, 1, 100, 0), KILN_OK);
	assert_int_equal(put_numbered(tier, 2, 3000000, 0), KILN_OK);
	assert_int_equal(get_numbered(tier, 1), KILN_OK);
	assert_int_equal(get_numbered(tier, 2), KILN_OK);
	assert_int_equal(n_inherited(), before);
	tier->ops->unlock(tier, lock);
	tier->ops->close(tier);
	kiln_key_free(key);
	free(directory);
}

static int hold_and_die(unsigned index, void *arg)
{
	struct crowd *crowd = arg;
	struct ki_store_options options = options_of(crowd->directory);
	struct kiln_key *key = numbered_key(1);
	struct kiln_tier_lock *lock;
	struct kiln_tier *tier;

	if (kind->open(&options, &tier) || tier->ops->lock(tier, key, 0, &lock))
		return 1;
	_exit(0);
}

/* S20 */
static void a_dead_holders_build_lock_is_free(void **state)
{
	char *directory = harness_directory();
	struct crowd crowd = { .directory = directory };
	struct kiln_tier *tier = open_in(directory);
	struct kiln_key *key = numbered_key(1);
	struct kiln_tier_lock *lock;

	assert_int_equal(
		harness_processes(1, hold_and_die, &crowd, HARNESS_HANG_S), 0);
	assert_int_equal(tier->ops->lock(tier, key, 1000, &lock), KILN_OK);
	tier->ops->unlock(tier, lock);
	tier->ops->close(tier);
	kiln_key_free(key);
	free(directory);
}

/* A stranger that no handler of a fork knows of, with copies of all
   descriptors. */
static int hold_leave_a_copy_and_die(unsigned index, void *arg)
{
	struct crowd *crowd = arg;
	struct ki_store_options options = options_of(crowd->directory);
	struct kiln_key *key = numbered_key(1);
	struct kiln_tier_lock *lock;
	struct kiln_tier *tier;
	pid_t pid;

	if (kind->open(&options, &tier) || tier->ops->lock(tier, key, 0, &lock))
		return 1;
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (!pid) {
		alarm(30);
		for (;;)
			pause();
	}
	*crowd->stranger = pid;
	_exit(0);
}

/* S20, S41 */
static void a_copy_of_a_dead_holders_lock_holds_nothing(void **state)
{
	char *directory = harness_directory();
	pid_t *stranger = mmap(NULL, sizeof(*stranger), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct crowd crowd = { .directory = directory, .stranger = stranger };
	struct kiln_tier *tier = open_in(directory);
	struct kiln_tier *other = open_in(directory);
	struct kiln_key *key = numbered_key(1);
	struct kiln_tier_lock *lock, *second;

	assert_true(stranger != MAP_FAILED);
	assert_int_equal(harness_processes(1, hold_leave_a_copy_and_die, &crowd,
					   HARNESS_HANG_S),
			 0);
	assert_int_equal(tier->ops->lock(tier, key, 5000, &lock), KILN_OK);
	/* One follows; the others wait for it. */
	assert_int_equal(other->ops->lock(other, key, 600, &second),
			 KILN_E_TIMEOUT);
	tier->ops->unlock(tier, lock);
	assert_int_equal(other->ops->lock(other, key, 5000, &second), KILN_OK);
	other->ops->unlock(other, second);
	kill(*stranger, SIGKILL);
	assert_int_equal(tier->ops->lock(tier, key, 5000, &lock), KILN_OK);
	tier->ops->unlock(tier, lock);
	tier->ops->close(tier);
	other->ops->close(other);
	munmap(stranger, sizeof(*stranger));
	kiln_key_free(key);
	free(directory);
}

/* ---- Damage ---------------------------------------------------------------------- */

struct damage {
	uint64_t random;
	unsigned n_changes;
	int how;
};

/* As a bad disk does it: the times stay as they are. */
static void damage_file(const char *path, const struct stat *st, void *arg)
{
	const struct timespec times[2] = { st->st_atim, st->st_mtim };
	struct damage *damage = arg;
	int fd;

	if (!S_ISREG(st->st_mode) || !st->st_size)
		return;
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	for (unsigned i = 0; i < damage->n_changes; i++) {
		off_t place = (off_t)(harness_random(&damage->random) %
				      (uint64_t)st->st_size);
		unsigned char byte;

		if (damage->how == 1) {
			assert_int_equal(ftruncate(fd, place), 0);
			break;
		}
		if (damage->how == 2) {
			char junk[512];

			memset(junk, (int)place, sizeof(junk));
			assert_true(pwrite(fd, junk, sizeof(junk), place) > 0);
			continue;
		}
		assert_int_equal(pread(fd, &byte, 1, place), 1);
		byte ^= (unsigned char)(1
					<< harness_random(&damage->random) % 8);
		assert_int_equal(pwrite(fd, &byte, 1, place), 1);
	}
	assert_int_equal(futimens(fd, times), 0);
	close(fd);
}

/* S13: flips, cuts and overwritten stretches, in every file of the store. */
static void damage_never_yields_wrong_bytes(void **state)
{
	for (unsigned round = 0; round < 36; round++) {
		struct damage damage = { .random = round,
					 .n_changes = 1 + round % 4 * 8,
					 .how = (int)(round % 3) };
		char *directory = harness_directory();
		struct ki_store_options options = options_of(directory);
		struct kiln_tier *tier;
		enum kiln_status status;
		struct kiln_verify_report report;

		options.bytes_max = BOUND;
		options.flags = KILN_OPEN_VERIFY_ALWAYS | KILN_OPEN_COPY;
		tier = open_with(&options);
		for (unsigned n = 0; n < 40; n++)
			assert_int_equal(put_numbered(tier, n, 100 + 50 * n, 0),
					 KILN_OK);
		tier->ops->close(tier);
		each_file(directory, damage_file, &damage);

		status = kind->open(&options, &tier);
		if (status) {
			/* The version itself may have been hit. */
			assert_int_equal(status, KILN_E_FORMAT);
			harness_remove(directory);
			free(directory);
			continue;
		}
		for (unsigned n = 0; n < 40; n++)
			assert_int_not_equal(get_numbered(tier, n),
					     WRONG_BYTES);
		if (tier->ops->verify)
			(void)tier->ops->verify(tier, KILN_VERIFY_REPAIR, NULL,
						NULL, &report);
		for (unsigned n = 0; n < 40; n++) {
			(void)put_numbered(tier, n, 100 + 50 * n,
					   KILN_PUT_REPLACE);
			assert_int_not_equal(get_numbered(tier, n),
					     WRONG_BYTES);
		}
		tier->ops->close(tier);
		harness_remove(directory);
		free(directory);
	}
}

static void only_the_entry_that_is_hit_is_lost(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory);
	struct kiln_verify_report report;
	struct damage damage = { .random = 1, .n_changes = 1 };
	unsigned n_lost = 0;

	/* Large enough for files of their own, wherever that is done. */
	for (unsigned n = 0; n < 4; n++)
		assert_int_equal(put_numbered(tier, n, 3000000, 0), KILN_OK);
	tier->ops->close(tier);
	{
		struct stat st;
		char *largest = NULL;
		char command[KI_PATH_MAX];
		FILE *found;

		snprintf(command, sizeof(command),
			 "find '%s' -type f -size +2900k -size -4M | sort | "
			 "head -1",
			 directory);
		found = popen(command, "r");
		assert_non_null(found);
		largest = fgets(command, sizeof(command), found);
		pclose(found);
		largest[strcspn(largest, "\n")] = '\0';
		assert_int_equal(lstat(largest, &st), 0);
		damage_file(largest, &st, &damage);
	}
	tier = open_in(directory);
	assert_int_equal(tier->ops->verify(tier, 0, NULL, NULL, &report),
			 KILN_OK);
	assert_int_equal(report.n_damaged, 1);
	assert_int_equal(report.n_repaired, 0);
	assert_int_equal(tier->ops->verify(tier, KILN_VERIFY_REPAIR, NULL, NULL,
					   &report),
			 KILN_OK);
	assert_int_equal(report.n_repaired, 1);
	assert_int_equal(tier->ops->verify(tier, 0, NULL, NULL, &report),
			 KILN_OK);
	assert_int_equal(report.n_damaged, 0);
	for (unsigned n = 0; n < 4; n++)
		n_lost += get_numbered(tier, n) != KILN_OK;
	assert_int_equal(n_lost, 1);
	tier->ops->close(tier);
	free(directory);
}

struct spoiling {
	unsigned n;
	int punches; /* holes, instead of removing files */
};

/* Every other file that holds values. */
static void spoil_file(const char *path, const struct stat *st, void *arg)
{
	struct spoiling *spoiling = arg;
	int fd;

	if (!S_ISREG(st->st_mode) || st->st_size < 8192 ||
	    strstr(path, "kiln.idx") || strstr(path, "kiln.stats") ||
	    strstr(path, "kiln.lock") || spoiling->n++ % 2)
		return;
	if (!spoiling->punches) {
		assert_int_equal(unlink(path), 0);
		return;
	}
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(fallocate(fd,
				   FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				   0, st->st_size),
			 0);
	close(fd);
}

static unsigned count_right(struct kiln_tier *tier, unsigned from, unsigned to)
{
	unsigned n_right = 0;

	for (; from < to; from++) {
		int status = get_numbered(tier, from);

		assert_int_not_equal(status, WRONG_BYTES);
		n_right += status == KILN_OK;
	}
	return n_right;
}

/* S49: nobody walks through it, and after as much as it holds was put once more
   the account is right again, and the store as full as ever. */
static void an_account_that_is_wrong_becomes_right(void **state)
{
	for (int punches = 0; punches < 2; punches++) {
		char *directory = harness_directory();
		struct kiln_tier *tier = open_bounded(directory, BOUND, 0);
		struct spoiling spoiling = { .punches = punches };
		unsigned n, n_full, swing;
		uint64_t bytes;

		for (n = 0; n < 600; n++)
			assert_int_equal(put_numbered(tier, n, 9000, 0),
					 KILN_OK);
		n_full = count_right(tier, 0, n);
		each_file(directory, spoil_file, &spoiling);
		assert_true(spoiling.n > 2);
		/* What is mapped stays, until it is closed. */
		(void)count_right(tier, 0, n);
		tier->ops->close(tier);
		tier = open_bounded(directory, BOUND, 0);
		assert_true(count_right(tier, 0, n) < n_full);
		for (; n < 1200; n++) {
			assert_int_equal(put_numbered(tier, n, 9000, 0),
					 KILN_OK);
			if (n % 16)
				continue;
			assert_true(disk_bytes(directory) <= BOUND);
		}
		/* Of one that evicts much at a time, how full it is depends. */
		swing = n_full / (kind->evicts ? kind->evicts - 1 : 8);
		assert_in_range(count_right(tier, 0, n), n_full - swing,
				n_full + swing);
		bytes = disk_bytes(directory);
		assert_in_range(bytes_of(tier), bytes - bytes / 16,
				bytes + bytes / 16);
		tier->ops->close(tier);
		free(directory);
	}
}

/* ---- The list ------------------------------------------------------------------- */

/* What a test needs; without it, it is left out. */
#define DISK   (1u << 0)
#define REMOVE (1u << 1)
#define WIPE   (1u << 2)
#define LIST   (1u << 3)
#define VERIFY (1u << 4)
#define LIMIT  (1u << 5)
#define LOCK   (1u << 6)
#define COUNT  (1u << 7)
#define NAMES  (1u << 8)

struct row {
	struct CMUnitTest test;
	unsigned needs;
};

#define ROW(name, needs)                                                       \
	{                                                                      \
		cmocka_unit_test(name), needs                                  \
	}

static const struct row rows[] = {
	ROW(an_unknown_key_is_a_miss, 0),
	ROW(what_was_put_is_found_with_its_metadata, 0),
	ROW(creating_keeps_the_first_value, 0),
	ROW(replacing_keeps_the_last_value, 0),
	ROW(of_large_and_small_values_the_last_stays, 0),
	ROW(what_was_removed_is_gone, REMOVE),
	ROW(a_wiped_tier_is_empty_and_usable, WIPE),
	ROW(a_listing_shows_every_entry_once, LIST),
	ROW(a_listing_survives_changes_below_it, REMOVE | LIST),
	ROW(every_size_comes_back, 0),
	ROW(a_checksum_of_zero_is_like_any_other, 0),
	ROW(a_huge_value_is_refused_unseen, DISK),
	ROW(keys_may_hold_any_bytes, 0),
	ROW(verify_finds_nothing_wrong_with_a_sound_store, VERIFY),
	ROW(the_bound_is_never_passed_and_the_newest_stays, 0),
	ROW(large_values_alone_make_room_for_each_other, 0),
	ROW(what_is_used_is_not_evicted, 0),
	ROW(a_store_that_refuses_keeps_what_it_has, 0),
	ROW(what_can_never_fit_is_refused_and_costs_nothing, 0),
	ROW(a_lower_limit_holds_at_once, LIMIT),
	ROW(what_was_handed_out_outlives_its_eviction, 0),
	ROW(a_clock_that_jumps_costs_nothing, 0),
	ROW(of_many_threads_one_creates, 0),
	ROW(a_reader_sees_the_old_value_or_the_new, 0),
	ROW(what_was_put_is_there_after_reopening, DISK),
	ROW(two_handles_see_one_store, DISK),
	ROW(of_many_processes_one_creates, DISK),
	ROW(many_processes_keep_the_bound, DISK),
	ROW(read_only_means_no_write_of_any_kind, DISK),
	ROW(a_directory_that_cannot_be_written_still_gives_hits, DISK),
	ROW(a_directory_that_vanishes_is_made_anew, DISK),
	ROW(another_user_version_empties_the_store, DISK),
	ROW(stores_of_two_names_are_strangers, DISK | NAMES),
	ROW(counters_add_up_over_handles, DISK | COUNT),
	ROW(no_descriptor_passes_an_exec, DISK | LOCK),
	ROW(a_build_lock_has_one_holder, DISK | LOCK),
	ROW(a_dead_holders_build_lock_is_free, DISK | LOCK),
	ROW(a_copy_of_a_dead_holders_lock_holds_nothing, DISK | LOCK),
	ROW(damage_never_yields_wrong_bytes, DISK),
	ROW(only_the_entry_that_is_hit_is_lost, DISK | VERIFY),
	ROW(an_account_that_is_wrong_becomes_right, DISK),
};

#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static unsigned abilities(void)
{
	char *directory = harness_directory();
	struct ki_store_options options = options_of(directory);
	struct kiln_tier *tier;
	unsigned result = 0;

	if (kind->open(&options, &tier))
		abort();
	result |= kind->persists ? DISK : 0;
	result |= kind->is_alone ? 0 : NAMES;
	result |= tier->ops->remove ? REMOVE : 0;
	result |= tier->ops->wipe ? WIPE : 0;
	result |= tier->ops->list ? LIST : 0;
	result |= tier->ops->verify ? VERIFY : 0;
	result |= tier->ops->set_limit ? LIMIT : 0;
	result |= tier->ops->lock ? LOCK : 0;
	result |= tier->ops->count ? COUNT : 0;
	tier->ops->close(tier);
	free(directory);
	return result;
}

int main(int argc, char **argv)
{
	struct CMUnitTest tests[N_ROWS];
	size_t n = 0;
	unsigned has;

	kind = argc > 1 ? kind_find(argv[1]) : NULL;
	if (!kind) {
		fprintf(stderr, "usage: conform KIND [TEST]\n");
		return 2;
	}
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	has = abilities();
	for (size_t i = 0; i < N_ROWS; i++)
		if (!(rows[i].needs & ~has))
			tests[n++] = rows[i].test;
	return _cmocka_run_group_tests(kind->name, tests, n, NULL, NULL);
}
