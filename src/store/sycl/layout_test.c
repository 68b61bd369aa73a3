/* SPDX-License-Identifier: MIT */

/* Names: the hash, the places, and what is a name at all. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"

#include "key/key.h"
#include "store/sycl/sycl.h"

/* As libstdc++ on a machine of 64 bits answers. */
static void the_hash_is_that_of_libstdcxx(void **state)
{
	static const struct {
		const char *data;
		size_t size;
		uint64_t hash;
	} rows[] = {
		{ "", 0, 6142509188972423790u },
		{ "a", 1, 4993892634952068459u },
		{ "abc", 3, 3663726644998027833u },
		{ "12345678", 8, 10113836418918046885u },
		{ "123456789", 9, 12315982496267331008u },
		{ "-cl-fast-relaxed-math", 21, 6586820193979656031u },
		{ "1\0"
		  "34\0",
		  5, 11120727974528640760u },
	};
	char many[1000];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_true(ki_sycl_hash(rows[i].data, rows[i].size) ==
			    rows[i].hash);
	memset(many, 'x', sizeof(many));
	assert_true(ki_sycl_hash(many, sizeof(many)) == 8681964282549520334u);
}

static void kilns_own_device_is_named_by_its_hash(void **state)
{
	char name[24];

	snprintf(name, sizeof(name), "%llu",
		 (unsigned long long)ki_sycl_hash("kiln", 4));
	assert_string_equal(name, KI_SYCL_OWN);
}

#define DEVICE                                                                 \
	"Intel(R) oneAPI Unified Runtime over Level-Zero/Arc "                 \
	"A770/1.3/1.3.29735"

static struct kiln_key *key_with(const char *device, const char *extra)
{
	static const uint8_t image[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 };
	struct kiln_key *key = kiln_key_new();

	kiln_key_add_string(key, "sycl.device", device);
	kiln_key_add_string(key, "sycl.options", "-cl-fast");
	if (extra)
		kiln_key_add_string(key, extra, "x");
	kiln_key_add(key, "sycl.spec", "", 0);
	kiln_key_add(key, "sycl.image", image, sizeof(image));
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	return key;
}

static void a_key_of_four_fields_lives_where_dpcxx_looks(void **state)
{
	struct kiln_key *key = key_with(DEVICE, NULL);
	char place[KI_SYCL_PLACE_BYTES];
	struct ki_sycl_fields fields;

	ki_sycl_fields_of(key, &fields);
	assert_true(fields.is_shared);
	assert_int_equal(ki_sycl_src_size(&fields), 120);
	ki_sycl_place(key, &fields, place);
	assert_string_equal(place, "1044156885828193918/16574976699107597140/"
				   "6142509188972423790/15346329282916004953");
	kiln_key_free(key);
}

static void which_keys_are_shared(void **state)
{
	static const struct {
		const char *device;
		const char *extra;
		int is_shared;
	} rows[] = {
		{ DEVICE, NULL, 1 },
		/* DPC++ does not know of these. */
		{ DEVICE, "sycl.options.split", 0 },
		{ DEVICE, "compiler", 0 },
		{ DEVICE, "sycl.", 0 },
		/* Twice. */
		{ DEVICE, "sycl.options", 0 },
		/* Kiln's own place. */
		{ "kiln", NULL, 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_key *key = key_with(rows[i].device, rows[i].extra);
		char place[KI_SYCL_PLACE_BYTES];
		struct ki_sycl_fields fields;

		ki_sycl_fields_of(key, &fields);
		assert_int_equal(fields.is_shared, rows[i].is_shared);
		ki_sycl_place(key, &fields, place);
		assert_int_equal(
			!strncmp(place, KI_SYCL_OWN "/", sizeof(KI_SYCL_OWN)),
			!rows[i].is_shared);
		kiln_key_free(key);
	}
}

/* With options of the linker .src does not say where these begin. */
static void options_of_two_kinds_are_not_shared(void **state)
{
	static const struct {
		const char *options, *compile;
		int is_shared;
	} rows[] = {
		{ "-a-b", "-a-b", 1 }, { "", "", 1 },	    { "-a-b", "-a", 0 },
		{ "-a-b", "", 0 },     { "-a", "-a-b", 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_key *key = kiln_key_new();
		struct ki_sycl_fields fields;

		kiln_key_add_string(key, "sycl.device", DEVICE);
		kiln_key_add_string(key, "sycl.options", rows[i].options);
		kiln_key_add_string(key, "sycl.compile", rows[i].compile);
		kiln_key_add_string(key, "sycl.spec", "");
		kiln_key_add_string(key, "sycl.image", "image");
		assert_int_equal(kiln_key_finish(key), KILN_OK);
		ki_sycl_fields_of(key, &fields);
		assert_int_equal(fields.is_shared, rows[i].is_shared);
		kiln_key_free(key);
	}
}

/* A digest is not what DPC++ compares. */
static void an_image_by_digest_is_not_shared(void **state)
{
	struct kiln_key *key = kiln_key_new();
	struct ki_sycl_fields fields;

	kiln_key_add_string(key, "sycl.device", DEVICE);
	kiln_key_add_string(key, "sycl.options", "");
	kiln_key_add_string(key, "sycl.spec", "");
	kiln_key_add_digest(key, "sycl.image", "image", 5);
	assert_int_equal(kiln_key_finish(key), KILN_OK);
	ki_sycl_fields_of(key, &fields);
	assert_false(fields.is_shared);
	kiln_key_free(key);
}

static void what_names_mean(void **state)
{
	static const struct {
		const char *base;
		unsigned part;
		uint32_t n;
	} rows[] = {
		{ "0.bin", KI_SYCL_BIN, 0 },
		{ "17.src", KI_SYCL_SRC, 17 },
		{ "3_access_time.txt", KI_SYCL_ACCESS, 3 },
		{ "3.lock", KI_SYCL_LOCK, 3 },
		{ "3_access_time.txt.lock", KI_SYCL_USE_LOCK, 3 },
		{ "00.bin", 0, 0 },
		{ "01.bin", 0, 0 },
		{ "-1.bin", 0, 0 },
		{ "999999999.bin", KI_SYCL_BIN, 999999999 },
		{ "1000000000.bin", 0, 0 },
		{ ".bin", 0, 0 },
		{ "1.bin.tmp", 0, 0 },
		{ "1bin", 0, 0 },
		{ "", 0, 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint32_t n = 0;

		assert_int_equal(ki_sycl_part(rows[i].base, &n), rows[i].part);
		if (rows[i].part)
			assert_int_equal(n, rows[i].n);
	}
}

static void a_name_leads_nowhere_else(void **state)
{
	static const struct {
		const char *name;
		int is_name;
	} rows[] = {
		{ "1/2/3/4/0.bin", 1 },
		{ KI_SYCL_OWN "/15/7.bin", 1 },
		{ "1/2/7.bin", 0 },
		{ "1/2/3/0.bin", 0 },
		{ "1/2/3/4/5/0.bin", 0 },
		{ "../2/3/4/0.bin", 0 },
		{ "1/2/3/../0.bin", 0 },
		{ "/1/2/3/4/0.bin", 0 },
		{ "1/2/3/4/0.src", 0 },
		{ "1/2/3/4/../0.bin", 0 },
		{ "123456789012345678901/2/3/4/0.bin", 0 },
		{ "", 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(ki_sycl_is_name(rows[i].name),
				 rows[i].is_name);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_hash_is_that_of_libstdcxx),
		cmocka_unit_test(kilns_own_device_is_named_by_its_hash),
		cmocka_unit_test(a_key_of_four_fields_lives_where_dpcxx_looks),
		cmocka_unit_test(which_keys_are_shared),
		cmocka_unit_test(options_of_two_kinds_are_not_shared),
		cmocka_unit_test(an_image_by_digest_is_not_shared),
		cmocka_unit_test(what_names_mean),
		cmocka_unit_test(a_name_leads_nowhere_else),
	};

	return cmocka_run_group_tests_name("sycl_layout", tests, NULL, NULL);
}
