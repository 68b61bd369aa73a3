/* SPDX-License-Identifier: MIT */

/* One handle: what is put, found, replaced, removed, listed, verified. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/hash.h"

#include "conform/conform.h"

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
		assert_true(is_metadata_of(n, entry.metadata));
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

const struct row handle_rows[] = {
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
	ROWS_END,
};
