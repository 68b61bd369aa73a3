/* SPDX-License-Identifier: MIT */

/* Keys of which .src has the half: nothing is believed that is not there in full. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"

#include "key/key.h"
#include "store/sycl/helpers_test.h"

#define VALUE 100 /* bytes */

static size_t size_of_records(const char *directory)
{
	char *path = harness_path(directory, "kiln.records");
	size_t size;

	free(harness_read(path, &size));
	free(path);
	return size;
}

static void assert_lists(struct kiln_tier *tier, const struct kiln_key *key)
{
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;

	assert_int_equal(tier->ops->list(tier, &cursor, &entry), KILN_OK);
	assert_false(entry.is_foreign);
	assert_int_equal(kiln_blob_size(entry.record), key->record.size);
	assert_memory_equal(kiln_blob_data(entry.record), key->record.data,
			    key->record.size);
	kiln_blob_unref(entry.record);
	kiln_blob_unref(entry.metadata);
	assert_int_equal(tier->ops->list(tier, &cursor, &entry), KILN_END);
}

static void an_image_is_kept_once(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_at(directory, 0);
	struct kiln_key *key = key_of(LONG);
	struct kiln_verify_report report;

	assert_int_equal(put(tier, LONG, VALUE), KILN_OK);
	assert_in_range(size_of_records(directory), 1, 1000);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(get_sized(tier, LONG, VALUE), KILN_OK);
		assert_int_equal(put(tier, LONG, VALUE), KILN_EXISTS);
		assert_int_equal(get(tier, LONG + 1), KILN_MISS);
		assert_lists(tier, key);
		assert_int_equal(
			tier->ops->verify(tier, 0, NULL, NULL, &report),
			KILN_OK);
		assert_int_equal(report.n_entries, 1);
		assert_int_equal(report.n_damaged, 0);
		assert_int_equal(put_flags(tier, LONG, VALUE, KILN_PUT_REPLACE),
				 KILN_OK);
		tier->ops->close(tier);
		tier = open_at(directory, 0);
	}
	assert_int_equal(tier->ops->remove(tier, key), KILN_OK);
	assert_int_equal(bytes_on_disk(directory), 0);
	tier->ops->close(tier);
	kiln_key_free(key);
	free(directory);
}

/* In whatever order a key says them, and whatever else. */
static void every_long_field_is_left_to_src(void **state)
{
	static const char *const labels[] = { "sycl.image", "sycl.compile",
					      "sycl.spec", "sycl.options",
					      "sycl.device" };
	char *directory = harness_directory();
	struct kiln_tier *tier = open_at(directory, 0);
	struct kiln_key *key = kiln_key_new();
	struct kiln_blob *blob = NULL;
	char data[2000];

	for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++) {
		/* These two say the same. */
		const int n = i == 1 ? 3 : (int)i;

		memset(data, 'a' + n, sizeof(data));
		kiln_key_add(key, labels[i], data, sizeof(data) - (size_t)n);
	}
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	assert_int_equal(tier->ops->put(tier, key, "", 0, "value", 5, 0),
			 KILN_OK);
	assert_in_range(size_of_records(directory), 2000, 3000);
	assert_lists(tier, key);
	assert_int_equal(tier->ops->get(tier, key, &blob, NULL), KILN_OK);
	kiln_blob_unref(blob);
	tier->ops->close(tier);
	kiln_key_free(key);
	free(directory);
}

/* ---- Damage ------------------------------------------------------------------------- */

enum harm { FLIPPED, CUT, GONE, ANOTHERS, N_HARMS };

static void do_harm(const char *directory, enum harm harm, size_t at)
{
	char *path = path_of(directory, LONG, 0, ".src");
	char *other = path_of(directory, LONG + 1, 0, ".src");
	size_t size;
	char *bytes = harness_read(harm == ANOTHERS ? other : path, &size);

	if (harm == FLIPPED)
		bytes[at < size ? at : size - 1] ^= 1;
	if (harm == GONE)
		assert_int_equal(unlink(path), 0);
	else
		harness_write(path, bytes, harm == CUT ? at : size);
	free(bytes);
	free(path);
	free(other);
}

static void a_damaged_src_is_a_miss_and_written_anew(void **state)
{
	static const struct {
		enum harm harm;
		size_t at;
	} rows[] = {
		/* In sizes, the device, the image, its last byte. */
		{ FLIPPED, 0 },	  { FLIPPED, 7 },      { FLIPPED, 10 },
		{ FLIPPED, 200 }, { FLIPPED, 100000 }, { CUT, 0 },
		{ CUT, 100 },	  { CUT, LONG_IMAGE }, { GONE, 0 },
		{ ANOTHERS, 0 },
	};
	static const unsigned flags[] = { 0, KILN_PUT_REPLACE };

	for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
		char *directory = harness_directory();
		struct kiln_tier *tier = open_at(directory, 0);
		struct kiln_verify_report report;
		struct kiln_key *key = key_of(LONG);

		assert_int_equal(put(tier, LONG, VALUE), KILN_OK);
		assert_int_equal(put(tier, LONG + 1, VALUE), KILN_OK);
		do_harm(directory, rows[i / 2].harm, rows[i / 2].at);
		assert_int_equal(
			tier->ops->verify(tier, 0, NULL, NULL, &report),
			KILN_OK);
		assert_int_equal(report.n_entries, 1);
		assert_int_equal(report.n_damaged, 1);
		/* As the first thing, or after somebody has asked for it. */
		if (i / 2 % 2)
			assert_int_not_equal(get(tier, LONG), KILN_OK);
		assert_int_equal(put_flags(tier, LONG, VALUE + 1, flags[i % 2]),
				 KILN_OK);
		assert_int_equal(get_sized(tier, LONG, VALUE + 1), KILN_OK);
		assert_int_equal(get_sized(tier, LONG + 1, VALUE), KILN_OK);
		assert_int_equal(
			tier->ops->verify(tier, 0, NULL, NULL, &report),
			KILN_OK);
		assert_int_equal(report.n_entries, 2);
		assert_int_equal(report.n_damaged, 0);
		tier->ops->close(tier);
		kiln_key_free(key);
		free(directory);
	}
}

static void verify_repairs_what_cannot_be_told_any_more(void **state)
{
	for (unsigned harm = 0; harm < N_HARMS; harm++) {
		char *directory = harness_directory();
		struct kiln_tier *tier = open_at(directory, 0);
		struct kiln_cursor cursor = { { 0 } };
		struct kiln_verify_report report;
		struct kiln_entry entry;

		assert_int_equal(put(tier, LONG, VALUE), KILN_OK);
		assert_int_equal(put(tier, LONG + 1, VALUE), KILN_OK);
		do_harm(directory, (enum harm)harm, 300);
		assert_int_equal(tier->ops->verify(tier, KILN_VERIFY_REPAIR,
						   NULL, NULL, &report),
				 KILN_OK);
		assert_int_equal(report.n_damaged, 1);
		assert_int_equal(report.n_repaired, 1);
		assert_false(exists(directory, LONG, 0, ".bin"));
		assert_false(exists(directory, LONG, 0, ".src"));
		assert_int_equal(tier->ops->list(tier, &cursor, &entry),
				 KILN_OK);
		kiln_blob_unref(entry.record);
		kiln_blob_unref(entry.metadata);
		assert_int_equal(tier->ops->list(tier, &cursor, &entry),
				 KILN_END);
		tier->ops->close(tier);
		free(directory);
	}
}

/* S02: of the same digest, and equal in all but what lies in the gap. */
static void another_image_of_the_same_digest_is_a_collision(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_at(directory, 0);
	struct kiln_key *one = key_of(LONG), *two = key_of(LONG + 1);
	struct kiln_blob *blob = NULL;

	memcpy(two->digest, one->digest, KILN_DIGEST_BYTES);
	two->digest_low = one->digest_low;
	two->digest_high = one->digest_high;
	assert_int_equal(put(tier, LONG, VALUE), KILN_OK);
	assert_int_equal(tier->ops->get(tier, two, &blob, NULL),
			 KILN_E_COLLISION);
	assert_int_equal(tier->ops->put(tier, two, "", 0, "two", 3, 0),
			 KILN_E_COLLISION);
	assert_int_equal(
		tier->ops->put(tier, two, "", 0, "two", 3, KILN_PUT_REPLACE),
		KILN_E_COLLISION);
	assert_int_equal(tier->ops->remove(tier, two), KILN_MISS);
	assert_int_equal(get_sized(tier, LONG, VALUE), KILN_OK);
	tier->ops->close(tier);
	kiln_key_free(one);
	kiln_key_free(two);
	free(directory);
}

/* S21: between .bin and .src of a store, and in an eviction of DPC++'s, there is
   a .bin alone. */
static void an_entry_on_its_way_is_a_miss_and_stays(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_at(directory, 0);
	char *src = path_of(directory, LONG, 0, ".src");
	char *aside = harness_path(directory, "aside");
	struct kiln_verify_report report;

	assert_int_equal(put(tier, LONG, VALUE), KILN_OK);
	assert_int_equal(rename(src, aside), 0);
	write_at(directory, LONG, 0, ".lock", "", 0);
	assert_int_equal(get(tier, LONG), KILN_MISS);
	assert_int_equal(tier->ops->verify(tier, 0, NULL, NULL, &report),
			 KILN_OK);
	assert_int_equal(report.n_damaged, 0);
	assert_int_equal(rename(aside, src), 0);
	assert_int_equal(get(tier, LONG), KILN_MISS);
	free(src);
	src = path_of(directory, LONG, 0, ".lock");
	assert_int_equal(unlink(src), 0);
	assert_int_equal(get_sized(tier, LONG, VALUE), KILN_OK);
	tier->ops->close(tier);
	free(src);
	free(aside);
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_image_is_kept_once),
		cmocka_unit_test(every_long_field_is_left_to_src),
		cmocka_unit_test(a_damaged_src_is_a_miss_and_written_anew),
		cmocka_unit_test(verify_repairs_what_cannot_be_told_any_more),
		cmocka_unit_test(
			another_image_of_the_same_digest_is_a_collision),
		cmocka_unit_test(an_entry_on_its_way_is_a_miss_and_stays),
	};

	return cmocka_run_group_tests_name("sycl_gaps", tests, NULL, NULL);
}
