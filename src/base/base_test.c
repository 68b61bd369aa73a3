/* SPDX-License-Identifier: MIT */

#include <errno.h>
#include <stdlib.h>

#include <jansson.h>

#include "harness/harness.h"

#include "base/blob.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/json_read.h"
#include "base/map.h"
#include "base/text.h"
#include "base/wide.h"
#include "base/xxh3.h"

static void a_size_is_digits_and_one_unit(void **state)
{
	static const struct {
		const char *text;
		int err;
		uint64_t bytes;
	} rows[] = {
		{ "0", 0, 0 },
		{ "17", 0, 17 },
		{ "4k", 0, 4096 },
		{ "4K", 0, 4096 },
		{ "3M", 0, 3u << 20 },
		{ "1G", 0, 1u << 30 },
		{ "2T", 0, (uint64_t)2 << 40 },
		{ "18446744073709551615", 0, UINT64_MAX },
		{ "18446744073709551616", -ERANGE, 0 },
		{ "16777216T", -ERANGE, 0 },
		{ "", -EINVAL, 0 },
		{ "K", -EINVAL, 0 },
		{ "-1", -EINVAL, 0 },
		{ "1 K", -EINVAL, 0 },
		{ "1KB", -EINVAL, 0 },
		{ "1.5G", -EINVAL, 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t bytes = 0;
		assert_int_equal(ki_parse_size(rows[i].text, &bytes),
				 rows[i].err);
		assert_int_equal(bytes, rows[i].bytes);
	}
}

static void an_age_has_units_from_seconds_to_weeks(void **state)
{
	static const struct row {
		const char *text;
		int err;
		uint64_t seconds;
	} rows[] = {
		{ "0", 0, 0 },
		{ "17", 0, 17 },
		{ "17s", 0, 17 },
		{ "5m", 0, 300 },
		{ "12h", 0, 43200 },
		{ "30d", 0, 2592000 },
		{ "2w", 0, 1209600 },
		{ "18446744073709551615", 0, UINT64_MAX },
		{ "18446744073709551615m", -ERANGE, 0 },
		{ "", -EINVAL, 0 },
		{ "d", -EINVAL, 0 },
		{ "-1d", -EINVAL, 0 },
		{ "1 d", -EINVAL, 0 },
		{ "1dd", -EINVAL, 0 },
		{ "1y", -EINVAL, 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t seconds = 0;
		assert_int_equal(ki_parse_age(rows[i].text, &seconds),
				 rows[i].err);
		assert_int_equal(seconds, rows[i].seconds);
	}
}

static void a_boolean_is_one_of_six_words(void **state)
{
	int value;

	assert_int_equal(ki_parse_bool("on", &value), 0);
	assert_int_equal(value, 1);
	assert_int_equal(ki_parse_bool("false", &value), 0);
	assert_int_equal(value, 0);
	assert_int_equal(ki_parse_bool("yes", &value), -EINVAL);
	assert_int_equal(ki_parse_bool("", &value), -EINVAL);
	assert_int_equal(ki_parse_bool("01", &value), -EINVAL);
}

static void a_reader_stops_at_the_end_and_says_so(void **state)
{
	uint8_t bytes[5] = { 1, 2, 3, 4, 5 };
	struct ki_reader reader = ki_reader(bytes, sizeof(bytes));

	assert_int_equal(ki_read_u32(&reader), 0x04030201);
	assert_int_equal(ki_read_u16(&reader), 0);
	assert_true(reader.failed);
	assert_null(ki_read(&reader, 1));
}

static void growing_past_the_limit_is_remembered(void **state)
{
	struct ki_bytes bytes;
	size_t size;

	ki_bytes_init(&bytes);
	bytes.limit = 8;
	ki_bytes_add_u64(&bytes, 1);
	assert_int_equal(bytes.failed, 0);
	ki_bytes_add_u8(&bytes, 1);
	assert_int_equal(bytes.failed, -EFBIG);
	assert_int_equal(bytes.size, 8);
	assert_null(ki_bytes_take(&bytes, &size));
}

static void a_map_finds_what_was_put_after_many_removals(void **state)
{
	struct ki_map map;
	uintptr_t key;

	ki_map_init(&map);
	for (key = 1; key <= 5000; key++)
		assert_int_equal(ki_map_put(&map, key * 64, (void *)key), 0);
	for (key = 1; key <= 5000; key += 3)
		assert_ptr_equal(ki_map_remove(&map, key * 64), (void *)key);
	for (key = 1; key <= 5000; key++)
		assert_ptr_equal(ki_map_get(&map, key * 64),
				 key % 3 == 1 ? NULL : (void *)key);
	ki_map_fini(&map);
}

static void count_release(void *arg)
{
	(*(int *)arg)++;
}

static void a_wrapped_blob_is_released_once(void **state)
{
	struct kiln_blob *blob = NULL;
	int released = 0;

	assert_int_equal(
		kiln_blob_wrap("abc", 3, count_release, &released, &blob),
		KILN_OK);
	kiln_blob_ref(blob);
	kiln_blob_unref(blob);
	assert_int_equal(released, 0);
	kiln_blob_unref(blob);
	assert_int_equal(released, 1);
	kiln_blob_unref(NULL);
}

static void a_variable_is_found_by_its_whole_name(void **state)
{
	const char *const list[] = { "AB=1",  "A=", "A=2", "B",
				     "ABC=x", "AB", NULL };

	(void)state;
	assert_string_equal(ki_find_variable(list, "AB"), "1");
	assert_string_equal(ki_find_variable(list, "A"), "");
	assert_string_equal(ki_find_variable(list, "ABC"), "x");
	assert_null(ki_find_variable(list, "B"));
	assert_null(ki_find_variable(list, "BC"));
	assert_null(ki_find_variable(NULL, "AB"));
}

static void json_with_bytes_that_are_not_text_still_parses(void **state)
{
	struct ki_bytes bytes;
	struct ki_json json;
	json_t *parsed;

	ki_bytes_init(&bytes);
	ki_json_begin(&json, &bytes);
	ki_json_object(&json, NULL);
	ki_json_string(&json, "a\"\\", "x\n\x01\xff\xc3\xa9\xed\xa0\x80");
	ki_json_array(&json, "list");
	ki_json_number(&json, NULL, UINT64_MAX / 2);
	ki_json_double(&json, NULL, 0.5);
	ki_json_null(&json, NULL);
	ki_json_ready(&json, NULL, "{\"a\":[]}");
	ki_json_end(&json);
	ki_json_end(&json);
	parsed = json_loadb((char *)bytes.data, bytes.size, 0, NULL);
	assert_non_null(parsed);
	assert_int_equal(json_array_size(json_object_get(parsed, "list")), 4);
	assert_non_null(json_object_get(parsed, "a\"\\"));
	json_decref(parsed);
	ki_bytes_fini(&bytes);
}

static void json_is_read_where_it_is(void **state)
{
	static const char text[] =
		" {\"a\": {\"b\": [1, {\"c\": \"x\\n\\u0041\\u20ac\\\"\"}, [], "
		"{}]},"
		" \"n\": 18446744073709551616, \"t\": true, \"ab\": 7} ";
	struct ki_json_value root, value, list;
	char out[16];

	assert_true(ki_json_parse(text, sizeof(text) - 1, &root));
	value = ki_json_member(&root, "ab");
	assert_int_equal(ki_json_number_of(&value), 7);
	value = ki_json_member(&root, "n");
	assert_true(ki_json_number_of(&value) == UINT64_MAX);
	value = ki_json_member(&root, "t");
	assert_true(ki_json_is_true(&value));
	assert_int_equal(ki_json_number_of(&value), 0);
	value = ki_json_member(&root, "a");
	list = ki_json_member(&value, "b");
	value = ki_json_first(&list);
	assert_int_equal(ki_json_number_of(&value), 1);
	value = ki_json_after(&list, &value);
	value = ki_json_member(&value, "c");
	assert_string_equal(ki_json_text_of(&value, out, sizeof(out)),
			    "x\nA?\"");
	assert_string_equal(ki_json_text_of(&value, out, 3), "x\n");
	value = ki_json_member(&root, "none");
	assert_int_equal(value.size, 0);
	assert_string_equal(ki_json_text_of(&value, out, sizeof(out)), "");
	value = ki_json_member(&list, "c");
	assert_int_equal(value.size, 0);
}

/* Each cut of it, too. */
static void what_is_no_json_is_refused(void **state)
{
	static const char *const rows[] = {
		"",
		" ",
		"{",
		"}",
		"{\"a\"}",
		"[1,]",
		"[1 2]",
		"{\"a\":}",
		"\"a",
		"\"a\\\"",
		"1 2",
		"{a: 1}",
		"[\"\n\"]",
		"[1}",
		"{\"a\": 1,}",
		"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1",
	};
	static const char good[] = "{\"a\": [1, \"b\\\\\", {\"c\": null}]}";
	struct ki_json_value value;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_false(ki_json_parse(rows[i], strlen(rows[i]), &value));
	for (size_t i = 0; i < sizeof(good) - 1; i++) {
		char *cut = malloc(i + 1); /* so that a step beyond is seen */

		memcpy(cut, good, i);
		assert_false(ki_json_parse(cut, i, &value));
		free(cut);
	}
	assert_true(ki_json_parse(good, sizeof(good) - 1, &value));
}

static void pieces_hash_like_the_whole(void **state)
{
	static const char text[] = "the quick brown fox";
	struct ki_piece pieces[] = { { text, 4 },
				     { text + 4, 0 },
				     { text + 4, sizeof(text) - 4 } };
	uint8_t a[32], b[32];

	assert_int_equal(ki_xxh3_64(text, sizeof(text)),
			 ki_xxh3_64_pieces(pieces, 3));
	ki_blake2b(text, sizeof(text), a);
	ki_blake2b_pieces(pieces, 3, b);
	assert_memory_equal(a, b, 32);
}

static void wide_and_narrow_hash_alike(void **state)
{
	uint8_t data[5000], a[16], b[16];
	uint64_t seed = 7;
	size_t i, size;

	for (i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)harness_random(&seed);
	if (!ki_wide_is_there())
		HARNESS_LEAVE_OUT("no wide registers here");
	for (size = 0; size <= sizeof(data); size += 1 + size / 16) {
		struct ki_piece pieces[] = {
			{ data, size / 3 }, { data + size / 3, size - size / 3 }
		};

		assert_int_equal(ki_wide_xxh3_64(data, size),
				 xxh3_64(data, size));
		assert_int_equal(ki_wide_xxh3_64_pieces(pieces, 2),
				 xxh3_64(data, size));
		assert_int_equal(ki_xxh3_64_pieces(pieces, 2),
				 xxh3_64(data, size));
		ki_wide_xxh3_128(data, size, a);
		xxh3_128(data, size, b);
		assert_memory_equal(a, b, sizeof(a));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_size_is_digits_and_one_unit),
		cmocka_unit_test(an_age_has_units_from_seconds_to_weeks),
		cmocka_unit_test(a_boolean_is_one_of_six_words),
		cmocka_unit_test(a_variable_is_found_by_its_whole_name),
		cmocka_unit_test(a_reader_stops_at_the_end_and_says_so),
		cmocka_unit_test(growing_past_the_limit_is_remembered),
		cmocka_unit_test(a_map_finds_what_was_put_after_many_removals),
		cmocka_unit_test(a_wrapped_blob_is_released_once),
		cmocka_unit_test(
			json_with_bytes_that_are_not_text_still_parses),
		cmocka_unit_test(json_is_read_where_it_is),
		cmocka_unit_test(what_is_no_json_is_refused),
		cmocka_unit_test(pieces_hash_like_the_whole),
		cmocka_unit_test(wide_and_narrow_hash_alike),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
