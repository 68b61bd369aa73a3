/* SPDX-License-Identifier: MIT */

#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"

#include "base/hash.h"
#include "key/key.h"

static struct kiln_key *key_of(const char *a, const char *b)
{
	struct kiln_key *key = kiln_key_new();

	kiln_key_add_string(key, "source", a);
	kiln_key_add_string(key, "options", b);
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	return key;
}

static int equal(const struct kiln_key *a, const struct kiln_key *b)
{
	size_t a_size, b_size;
	const void *a_record = kiln_key_record(a, &a_size);
	const void *b_record = kiln_key_record(b, &b_size);

	return a_size == b_size && !memcmp(a_record, b_record, a_size);
}

/* S01 */
static void moving_a_byte_between_fields_changes_the_key(void **state)
{
	struct kiln_key *a = key_of("ab", "c");
	struct kiln_key *b = key_of("a", "bc");

	assert_false(equal(a, b));
	assert_memory_not_equal(a->digest, b->digest, KILN_DIGEST_BYTES);
	kiln_key_free(a);
	kiln_key_free(b);
}

/* S03 */
static void an_added_flag_changes_the_key(void **state)
{
	struct kiln_key *a = key_of("k", "-DX");
	struct kiln_key *b = key_of("k", "");

	assert_false(equal(a, b));
	kiln_key_free(a);
	kiln_key_free(b);
}

static void absent_is_not_empty(void **state)
{
	struct kiln_key *a = kiln_key_new(), *b = kiln_key_new();

	kiln_key_add_absent(a, "include a.h");
	kiln_key_add(b, "include a.h", NULL, 0);
	assert_int_equal(kiln_key_finish(a), KILN_OK);
	assert_int_equal(kiln_key_finish(b), KILN_OK);
	assert_false(equal(a, b));
	kiln_key_free(a);
	kiln_key_free(b);
}

static void a_digest_taken_before_makes_the_same_field(void **state)
{
	struct kiln_key *a = kiln_key_new(), *b = kiln_key_new();
	uint8_t digest[KI_BLAKE2B_BYTES];

	ki_blake2b("kernel", 6, digest);
	kiln_key_add_digest(a, "source", "kernel", 6);
	kiln_key_add_known_digest(b, "source", 6, digest);
	assert_int_equal(kiln_key_finish(a), KILN_OK);
	assert_int_equal(kiln_key_finish(b), KILN_OK);
	assert_true(equal(a, b));
	kiln_key_free(a);
	kiln_key_free(b);
}

static void a_record_gives_the_same_key_back(void **state)
{
	struct kiln_key *key = kiln_key_new(), *again;
	struct kiln_field field;
	const void *record;
	size_t size;

	kiln_key_add_string(key, "kind", "build");
	kiln_key_add_digest(key, "source", "kernel", 6);
	kiln_key_add_absent(key, "include x.h");
	kiln_key_add_local(key, "path", "/a", 2);
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	record = kiln_key_record(key, &size);
	assert_int_equal(kiln_key_from_record(record, size, &again), KILN_OK);
	assert_true(equal(key, again));
	assert_memory_equal(key->digest, again->digest, KILN_DIGEST_BYTES);
	assert_true(kiln_key_is_local(again));

	assert_int_equal(kiln_record_find(record, size, "source", &field),
			 KILN_OK);
	assert_int_equal(field.kind, KILN_FIELD_DIGEST);
	assert_int_equal(field.original_size, 6);
	assert_int_equal(field.size, 32);
	assert_int_equal(kiln_record_find(record, size, "none", &field),
			 KILN_MISS);
	kiln_key_free(key);
	kiln_key_free(again);
}

/* S13, for records: every byte flipped, every length cut. */
static void a_damaged_record_is_refused_or_another_key(void **state)
{
	struct kiln_key *key = kiln_key_new(), *other;
	const void *record;
	uint8_t copy[256];
	size_t size;

	kiln_key_add_string(key, "kind", "build");
	kiln_key_add_digest(key, "source", "kernel", 6);
	kiln_key_add_local(key, "path", "/a", 2);
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	record = kiln_key_record(key, &size);
	assert_true(size <= sizeof(copy));
	for (size_t i = 0; i < size; i++) {
		for (int bit = 0; bit < 8; bit++) {
			memcpy(copy, record, size);
			copy[i] ^= (uint8_t)(1 << bit);
			if (kiln_key_from_record(copy, size, &other))
				continue;
			assert_false(equal(key, other));
			kiln_key_free(other);
		}
		if (!kiln_key_from_record(record, i, &other)) {
			assert_false(equal(key, other));
			kiln_key_free(other);
		}
	}
	kiln_key_free(key);
}

static void what_went_wrong_while_adding_is_told_at_the_end(void **state)
{
	struct kiln_key *key = kiln_key_new();
	char label[300];

	memset(label, 'x', sizeof(label));
	label[299] = '\0';
	kiln_key_add_string(key, label, "value");
	kiln_key_add_string(key, "good", "value");
	assert_int_equal(kiln_key_finish(key), KILN_E_INVALID);
	assert_int_equal(kiln_key_finish(key), KILN_E_INVALID);
	kiln_key_free(key);

	kiln_key_add_string(NULL, "label", "value");
	assert_int_equal(kiln_key_finish(NULL), KILN_E_NO_MEMORY);
}

static void unknown_metadata_is_skipped(void **state)
{
	struct kiln_metadata *metadata = kiln_metadata_new();
	const void *bytes, *data;
	size_t size, data_size;
	uint64_t value;

	kiln_metadata_add(metadata, (enum kiln_metadata_field)999, "new", 3);
	kiln_metadata_add_u64(metadata, KILN_META_BUILD_TIME, 12345);
	kiln_metadata_add_string(metadata, KILN_META_OPTIONS, "-DX=1");
	assert_int_equal(ki_metadata_bytes(metadata, &bytes, &size), KILN_OK);
	assert_int_equal(kiln_metadata_find_u64(bytes, size,
						KILN_META_BUILD_TIME, &value),
			 KILN_OK);
	assert_int_equal(value, 12345);
	assert_int_equal(kiln_metadata_find(bytes, size, KILN_META_OPTIONS,
					    &data, &data_size),
			 KILN_OK);
	assert_int_equal(data_size, 5);
	assert_memory_equal(data, "-DX=1", 5);
	assert_int_equal(kiln_metadata_find(bytes, size, KILN_META_BUILD_LOG,
					    &data, &data_size),
			 KILN_MISS);
	assert_int_equal(kiln_metadata_find(bytes, size - 1,
					    KILN_META_BUILD_LOG, &data,
					    &data_size),
			 KILN_E_FORMAT);
	kiln_metadata_free(metadata);
}

static void metadata_goes_away_and_comes_back_as_bytes(void **state)
{
	struct kiln_metadata *metadata = kiln_metadata_new(), *copy;
	const void *bytes, *copied, *data;
	size_t size, copied_size, data_size;
	uint64_t number;

	kiln_metadata_add_u64(metadata, KILN_META_CREATED, 7);
	kiln_metadata_add_string(metadata, KILN_META_OPTIONS, "-O");
	assert_int_equal(kiln_metadata_bytes(metadata, &bytes, &size), KILN_OK);
	assert_int_equal(kiln_metadata_from_bytes(bytes, size - 1, &copy),
			 KILN_E_FORMAT);
	assert_int_equal(kiln_metadata_from_bytes(bytes, size, &copy), KILN_OK);
	kiln_metadata_add_u64(copy, KILN_META_STAGE, 1);
	assert_int_equal(kiln_metadata_bytes(copy, &copied, &copied_size),
			 KILN_OK);
	assert_int_equal(kiln_metadata_find(copied, copied_size,
					    KILN_META_OPTIONS, &data,
					    &data_size),
			 KILN_OK);
	assert_int_equal(data_size, 2);
	assert_int_equal(kiln_metadata_find_u64(copied, copied_size,
						KILN_META_STAGE, &number),
			 KILN_OK);
	assert_int_equal(number, 1);
	kiln_metadata_free(copy);
	kiln_metadata_free(metadata);
	assert_int_equal(kiln_metadata_from_bytes(NULL, 0, &copy), KILN_OK);
	kiln_metadata_free(copy);
}

/* Of whatever size the record is: on both sides of what has room inside. */
static void a_key_in_a_room_is_like_any_other(void **state)
{
	static const size_t sizes[] = { 0,   1,	  100, 160, 192, 205,
					206, 207, 224, 300, 5000 };
	char data[5000];

	memset(data, 'x', sizeof(data));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct kiln_key_room room;
		struct kiln_key *like = kiln_key_new(), *key, *copy;

		memset(&room, 0xa5, sizeof(room));
		key = kiln_key_in(&room);
		for (int part = 0; part < 2; part++) {
			kiln_key_add(key, "k", data, sizes[i] / 2);
			kiln_key_add(like, "k", data, sizes[i] / 2);
		}
		assert_int_equal(kiln_key_finish(key), KILN_OK);
		assert_int_equal(kiln_key_finish(like), KILN_OK);
		assert_true(equal(key, like));
		assert_int_equal(key->data_size, sizes[i] / 2 * 2);
		assert_memory_equal(key->digest, like->digest,
				    KILN_DIGEST_BYTES);
		copy = kiln_key_ref(key);
		kiln_key_free(key);
		memset(&room, 0, sizeof(room));
		assert_true(equal(copy, like));
		assert_int_equal(copy->data_size, like->data_size);
		kiln_key_free(copy);
		kiln_key_free(like);
	}
}

/* All lengths of labels that are treated apart, and data on both sides of what has
   room inside. */
static void a_key_of_one_field_is_like_any_other(void **state)
{
	static const size_t labels[] = { 1, 2, 3, 4, 5, 8, 255 };
	static const size_t sizes[] = { 0, 1, 16, 100, 205, 210, 224, 300 };
	struct kiln_key_room room;
	struct kiln_key *key, *like;
	char label[257], data[300];

	memset(data, 'x', sizeof(data));
	for (size_t l = 0; l < sizeof(labels) / sizeof(labels[0]); l++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			memset(label, 'l', labels[l]);
			label[labels[l]] = '\0';
			memset(&room, 0xa5, sizeof(room));
			assert_int_equal(kiln_key_of(&room, label,
						     sizes[i] ? data : NULL,
						     sizes[i], &key),
					 KILN_OK);
			like = kiln_key_new();
			kiln_key_add(like, label, data, sizes[i]);
			assert_int_equal(kiln_key_finish(like), KILN_OK);
			assert_true(equal(key, like));
			assert_int_equal(key->data_size, sizes[i]);
			assert_memory_equal(key->digest, like->digest,
					    KILN_DIGEST_BYTES);
			kiln_key_free(key);
			kiln_key_free(like);
		}
	memset(label, 'l', 256);
	label[256] = '\0';
	assert_int_equal(kiln_key_of(&room, label, data, 1, &key),
			 KILN_E_INVALID);
	kiln_key_free(key);
	assert_int_equal(kiln_key_of(&room, "", data, 1, &key), KILN_E_INVALID);
	kiln_key_free(key);
	assert_int_equal(kiln_key_of(&room, NULL, data, 1, &key),
			 KILN_E_INVALID);
	kiln_key_free(key);
}

static void a_forced_digest_goes_with_the_key(void **state)
{
	const uint8_t digest[KILN_DIGEST_BYTES] = { 1, 2, 3 };
	struct kiln_key_room room;
	struct kiln_key *key = kiln_key_in(&room), *copy;

	kiln_key_add_string(key, "k", "v");
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	kiln_key_force_digest(key, digest);
	copy = kiln_key_ref(key);
	assert_memory_equal(kiln_key_digest(copy), digest, sizeof(digest));
	assert_int_equal(copy->digest_low, key->digest_low);
	kiln_key_free(copy);
	kiln_key_free(key);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(moving_a_byte_between_fields_changes_the_key),
		cmocka_unit_test(an_added_flag_changes_the_key),
		cmocka_unit_test(absent_is_not_empty),
		cmocka_unit_test(a_key_in_a_room_is_like_any_other),
		cmocka_unit_test(a_key_of_one_field_is_like_any_other),
		cmocka_unit_test(a_forced_digest_goes_with_the_key),
		cmocka_unit_test(a_digest_taken_before_makes_the_same_field),
		cmocka_unit_test(a_record_gives_the_same_key_back),
		cmocka_unit_test(a_damaged_record_is_refused_or_another_key),
		cmocka_unit_test(
			what_went_wrong_while_adding_is_told_at_the_end),
		cmocka_unit_test(unknown_metadata_is_skipped),
		cmocka_unit_test(metadata_goes_away_and_comes_back_as_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
