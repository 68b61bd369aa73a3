/* SPDX-License-Identifier: MIT */

/* The hash and the names, by the vectors that docs/formats/neo.md lists. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"

#include <kiln/neo.h>

static uint64_t hash_of(const char *const *pieces, const size_t *sizes,
			unsigned n)
{
	struct kiln_neo_state state;

	kiln_neo_begin(&state);
	for (unsigned i = 0; i < n; i++)
		kiln_neo_add(&state, pieces[i], sizes[i]);
	return kiln_neo_end(&state);
}

static void the_published_vectors_hold(void **state)
{
	static const struct row {
		const char *text;
		size_t size;
		uint64_t hash;
	} rows[] = {
		{ "", 0, 0x71374491b5c0fbcf },
		{ NULL, 7, 0x71374491b5c0fbcf },
		{ "a", 1, 0x3a48535b03a612ff },
		{ "ab", 2, 0xf7b92e597509bd4e },
		{ "abc", 3, 0x4516b184b32890a5 },
		{ "abcd", 4, 0x79e8f94289c07bab },
		{ "abcde", 5, 0xdbe14182936a1f03 },
		{ "----", 4, 0xe09d90a65f219b89 },
		{ "\1", 1, 0x088350e6600f29c2 },
		{ "__kernel void f(){}", 19, 0xaf3f6a6f540c59f7 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(hash_of(&rows[i].text, &rows[i].size, 1),
				 rows[i].hash);
}

/* Of 1 to 9 bytes, the last one changed. */
static void the_last_byte_of_each_tail_counts(void **state)
{
	for (size_t size = 1; size < 10; size++) {
		char one[] = "abcdefghi", other[] = "abcdefghi";
		const char *const pieces[] = { one, other };

		other[size - 1]++;
		assert_int_not_equal(hash_of(&pieces[0], &size, 1),
				     hash_of(&pieces[1], &size, 1));
	}
}

static void bytes_need_no_alignment(void **state)
{
	char bytes[32] = { 0 };

	for (size_t i = 0; i < 8; i++) {
		const char *place = bytes + i;
		const size_t size = 19;

		memcpy(bytes + i, "__kernel void f(){}", size);
		assert_int_equal(hash_of(&place, &size, 1), 0xaf3f6a6f540c59f7);
	}
}

/* Why no name is believed: these are different builds. */
static void different_builds_may_have_one_name(void **state)
{
	static const char *const one[] = { "----", "abcd----", "----", "efgh" };
	static const size_t one_sizes[] = { 4, 8, 4, 4 };
	static const char *const two[] = { "----", "abcd", "----", "----efgh" };
	static const size_t two_sizes[] = { 4, 4, 4, 8 };
	static const char *const zero = "\0ab", *const none = "ab";
	const size_t three = 3, both = 2;

	assert_int_equal(hash_of(one, one_sizes, 4), 0x2a4c8ae1b14f7721);
	assert_int_equal(hash_of(two, two_sizes, 4), 0x2a4c8ae1b14f7721);
	assert_int_equal(hash_of(&zero, &three, 1), hash_of(&none, &both, 1));
}

static const uint32_t ids[] = { 1, 2 };
static const uint64_t values[] = { 3, 4 };

static struct kiln_neo_fields fields_of(enum kiln_neo_release release)
{
	return (struct kiln_neo_fields){
		.size = sizeof(struct kiln_neo_fields),
		.release = release,
		.igc_revision = "revision",
		.igc_revision_size = 8,
		.igc_library_size = 1000,
		.igc_library_mtime = 2000,
		.igc_registry_keys = "keys",
		.igc_registry_keys_size = 4,
		.input = "input",
		.input_size = 5,
		.options = "options",
		.options_size = 7,
		.internal_options = "internal",
		.internal_options_size = 8,
		.constant_ids = ids,
		.constant_values = values,
		.n_constants = 2,
		.platform = { .product = 1, .device_id = 2 },
		.feature_hash = 10,
		.workaround_hash = 11,
		.ip_version = 12,
	};
}

/* The order, written down once more by hand. */
static void a_build_is_hashed_in_the_drivers_order(void **state)
{
	static const char platform[32] = { 1, [20] = 2 };
	static const char *const pieces[] = {
		"----",
		"revision",
		"\xe8\3\0\0\0\0\0\0",
		"\xd0\7\0\0\0\0\0\0",
		"----",
		"input",
		"----",
		"options",
		"----",
		"internal",
		"----",
		"\1\0\0\0\2\0\0\0",
		"\3\0\0\0\0\0\0\0\4\0\0\0\0\0\0",
		"----",
		platform,
		"----",
		"10",
		"----",
		"11",
		"----",
		"\14\0\0\0",
	};
	static const size_t sizes[] = { 4, 8,  8, 8,  4, 5, 4, 7, 4, 8, 4,
					8, 16, 4, 32, 4, 2, 4, 2, 4, 4 };
	struct kiln_neo_fields fields = fields_of(KILN_NEO_24_26);

	assert_int_equal(kiln_neo_hash(&fields), hash_of(pieces, sizes, 21));
	fields.release = KILN_NEO_24_13;
	assert_int_equal(kiln_neo_hash(&fields), hash_of(pieces, sizes, 19));
}

static void releases_and_fields_tell_apart(void **state)
{
	static const uint32_t other_ids[] = { 1, 3 };
	static const uint64_t other_values[] = { 3, 5 };
	uint64_t seen[32];
	unsigned n = 0;

#define CHANGED(change)                                                        \
	do {                                                                   \
		struct kiln_neo_fields fields = fields_of(KILN_NEO_26_32);     \
		change;                                                        \
		seen[n++] = kiln_neo_hash(&fields);                            \
	} while (0)
	CHANGED((void)0);
	CHANGED(fields.release = KILN_NEO_24_26);
	CHANGED(fields.release = KILN_NEO_24_13);
	CHANGED(fields.release = KILN_NEO_22_43);
	CHANGED(fields.igc_revision = "revisioN");
	CHANGED(fields.igc_library_size++);
	CHANGED(fields.igc_library_mtime++);
	CHANGED(fields.igc_registry_keys = "keyz");
	CHANGED(fields.input = "inpuT");
	CHANGED(fields.options = "optionS");
	CHANGED(fields.internal_options = "internaL");
	CHANGED(fields.n_constants = 1);
	CHANGED(fields.constant_ids = other_ids);
	CHANGED(fields.constant_values = other_values);
	CHANGED(fields.platform.product++);
	CHANGED(fields.platform.pch_product++);
	CHANGED(fields.platform.display_core++);
	CHANGED(fields.platform.render_core++);
	CHANGED(fields.platform.platform_type++);
	CHANGED(fields.platform.device_id++);
	CHANGED(fields.platform.revision_id++);
	CHANGED(fields.platform.pch_device_id++);
	CHANGED(fields.platform.pch_revision_id++);
	CHANGED(fields.platform.gt_type++);
	CHANGED(fields.feature_hash++);
	CHANGED(fields.workaround_hash++);
	/* Revision, release, architecture. */
	CHANGED(fields.ip_version++);
	CHANGED(fields.ip_version += 1 << 14);
	CHANGED(fields.ip_version += 1 << 22);
#undef CHANGED
	for (unsigned i = 0; i < n; i++)
		for (unsigned j = 0; j < i; j++)
			assert_int_not_equal(seen[i], seen[j]);
}

static void a_structure_of_another_size_is_refused(void **state)
{
	struct kiln_neo_fields fields = fields_of(KILN_NEO_24_26);

	fields.size--;
	assert_int_equal(kiln_neo_hash(&fields), 0);
	assert_int_equal(kiln_neo_hash(NULL), 0);
}

static void names_are_sixteen_digits(void **state)
{
	char name[KILN_NEO_NAME_BYTES];

	assert_string_equal(kiln_neo_name(0x0123456789abcdef, KILN_NEO_OPENCL,
					  KILN_NEO_FLAT, name),
			    "0123456789abcdef.cl_cache");
	assert_string_equal(kiln_neo_name(0x4c2e2716b7f7afef,
					  KILN_NEO_LEVEL_ZERO, KILN_NEO_TREE,
					  name),
			    "4/c/4c2e2716b7f7afef.l0_cache");
	assert_string_equal(
		kiln_neo_name(0, KILN_NEO_OCLOC, KILN_NEO_TREE, name),
		"0/0/0000000000000000.ocloc_cache");
	assert_null(kiln_neo_name(0, ".an_extension_that_is_long_enough",
				  KILN_NEO_TREE, name));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_published_vectors_hold),
		cmocka_unit_test(the_last_byte_of_each_tail_counts),
		cmocka_unit_test(bytes_need_no_alignment),
		cmocka_unit_test(different_builds_may_have_one_name),
		cmocka_unit_test(a_build_is_hashed_in_the_drivers_order),
		cmocka_unit_test(releases_and_fields_tell_apart),
		cmocka_unit_test(a_structure_of_another_size_is_refused),
		cmocka_unit_test(names_are_sixteen_digits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
