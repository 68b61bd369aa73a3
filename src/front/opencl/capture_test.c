/* SPDX-License-Identifier: MIT */

#include "harness/harness.h"

#include <stdlib.h>
#include <string.h>

#include "front/opencl/capture.h"

static struct ki_bytes packed(void)
{
	static const unsigned char one[] = "first", two[] = "the second";
	const unsigned char *binaries[] = { one, two };
	size_t sizes[] = { sizeof(one), sizeof(two) };
	struct ki_bytes value;

	assert_int_equal(ki_cl_pack(binaries, sizes, 2, &value), KILN_OK);
	return value;
}

static void packed_binaries_come_apart_again(void **state)
{
	struct ki_bytes value = packed();
	const unsigned char *binaries[2];
	size_t sizes[2];

	assert_int_equal(
		ki_cl_unpack(value.data, value.size, 2, binaries, sizes),
		KILN_OK);
	assert_int_equal(sizes[0], 6);
	assert_string_equal((const char *)binaries[0], "first");
	assert_int_equal(sizes[1], 11);
	assert_string_equal((const char *)binaries[1], "the second");
	ki_bytes_fini(&value);
}

static void a_value_for_another_number_of_devices_is_refused(void **state)
{
	struct ki_bytes value = packed();
	const unsigned char *binaries[3];
	size_t sizes[3];

	assert_int_equal(
		ki_cl_unpack(value.data, value.size, 1, binaries, sizes),
		KILN_E_FORMAT);
	assert_int_equal(
		ki_cl_unpack(value.data, value.size, 3, binaries, sizes),
		KILN_E_FORMAT);
	ki_bytes_fini(&value);
}

/* S13: the store verifies, and this does not trust it. */
static void a_truncated_or_longer_value_is_refused(void **state)
{
	struct ki_bytes value = packed();
	const unsigned char *binaries[2];
	size_t sizes[2], size;

	for (size = 0; size < value.size; size++)
		assert_int_equal(
			ki_cl_unpack(value.data, size, 2, binaries, sizes),
			KILN_E_FORMAT);
	ki_bytes_add_u64(&value, 0);
	assert_int_equal(
		ki_cl_unpack(value.data, value.size, 2, binaries, sizes),
		KILN_E_FORMAT);
	ki_bytes_fini(&value);
}

static void an_empty_binary_is_not_packed(void **state)
{
	static const unsigned char one[] = "first";
	const unsigned char *binaries[] = { one, one };
	size_t sizes[] = { sizeof(one), 0 };
	struct ki_bytes value;

	assert_int_equal(ki_cl_pack(binaries, sizes, 2, &value),
			 KILN_E_UNSUPPORTED);
	assert_int_equal(ki_cl_pack(binaries, sizes, 0, &value),
			 KILN_E_UNSUPPORTED);
}

/* A driver that only says which devices its program has. */
static cl_int CL_API_CALL three_devices(cl_program program,
					cl_program_info what, size_t size,
					void *value, size_t *out_size)
{
	cl_device_id devices[] = { (cl_device_id)1, (cl_device_id)2,
				   (cl_device_id)3 };
	cl_uint n = 3;

	memcpy(value, what == CL_PROGRAM_NUM_DEVICES ? (void *)&n : devices,
	       size);
	return CL_SUCCESS;
}

static enum kiln_status pack_two_of(cl_uint n, const char *const *texts,
				    struct ki_bytes *value)
{
	cl_icd_dispatch calls = { .clGetProgramInfo = three_devices };
	cl_device_id devices[] = { (cl_device_id)1, (cl_device_id)3 };
	size_t sizes[4] = { 0 };
	cl_uint i;

	for (i = 0; i < n; i++)
		sizes[i] = texts[i] ? strlen(texts[i]) : 0;
	return ki_cl_pack_fetched(&calls, (cl_program)1, devices, 2,
				  (const unsigned char *const *)texts, sizes, n,
				  value);
}

static void binaries_of_some_devices_are_found_among_those_of_all(void **state)
{
	static const char *const of_all[] = { "one", NULL, "three" };
	static const char *const of_the_build[] = { "one", "three" };
	static const char *const of_another[] = { "two" };
	const unsigned char *binaries[2];
	struct ki_bytes value;
	size_t sizes[2], i;

	for (i = 0; i < 2; i++) {
		assert_int_equal(pack_two_of(i ? 2 : 3,
					     i ? of_the_build : of_all, &value),
				 KILN_OK);
		assert_int_equal(ki_cl_unpack(value.data, value.size, 2,
					      binaries, sizes),
				 KILN_OK);
		assert_memory_equal(binaries[0], "one", 3);
		assert_memory_equal(binaries[1], "three", 5);
		ki_bytes_fini(&value);
	}
	assert_int_equal(pack_two_of(1, of_another, &value),
			 KILN_E_UNSUPPORTED);
	assert_int_equal(pack_two_of(0, NULL, &value), KILN_E_UNSUPPORTED);
}

static void answer(struct ki_bytes *bytes, int result, const char *text)
{
	ki_bytes_add_u32(bytes, (uint32_t)result);
	ki_bytes_add_u32(bytes, (uint32_t)strlen(text));
	ki_bytes_add(bytes, text, strlen(text));
}

/* One device; kernel "k" with one argument, of which it tells no name. */
static struct ki_bytes described(void)
{
	struct ki_bytes all, kernel;

	ki_bytes_init(&all);
	ki_bytes_init(&kernel);
	ki_bytes_add_u32(&kernel, 1);
	ki_bytes_add(&kernel, "k", 1);
	ki_bytes_add_u32(&kernel, 1);
	answer(&kernel, 0, "attributes");
	answer(&kernel, 0, "work group");
	answer(&kernel, 0, "address");
	answer(&kernel, 0, "access");
	answer(&kernel, 0, "type name");
	answer(&kernel, 0, "qualifier");
	answer(&kernel, CL_KERNEL_ARG_INFO_NOT_AVAILABLE, "");
	ki_bytes_add_u32(&all, 1);
	ki_bytes_add_u32(&all, 1);
	answer(&all, 0, "k");
	ki_bytes_add_u32(&all, 1);
	ki_bytes_add_u32(&all, (uint32_t)kernel.size);
	ki_bytes_add(&all, kernel.data, kernel.size);
	ki_bytes_fini(&kernel);
	return all;
}

static int says(const struct ki_cl_answer *found, const char *text)
{
	return found->size == strlen(text) &&
	       !memcmp(found->data, text, found->size);
}

static void a_kernel_is_found_with_what_the_driver_said_of_it(void **state)
{
	struct ki_bytes all = described();
	struct ki_cl_answer found;

	assert_int_equal(ki_cl_described_names(all.data, all.size, &found), 0);
	assert_true(says(&found, "k"));
	assert_int_equal(
		ki_cl_described_attributes(all.data, all.size, "k", &found), 0);
	assert_true(says(&found, "attributes"));
	assert_int_equal(
		ki_cl_described_work_group(all.data, all.size, "k", 0, &found),
		0);
	assert_true(says(&found, "work group"));
	assert_int_equal(ki_cl_described_arg(all.data, all.size, "k", 0,
					     CL_KERNEL_ARG_TYPE_NAME, &found),
			 0);
	assert_true(says(&found, "type name"));
	assert_int_equal(ki_cl_described_arg(all.data, all.size, "k", 0,
					     CL_KERNEL_ARG_NAME, &found),
			 0);
	assert_int_equal(found.result, CL_KERNEL_ARG_INFO_NOT_AVAILABLE);
	ki_bytes_fini(&all);
}

static void what_is_not_described_is_a_miss(void **state)
{
	struct ki_bytes all = described();
	struct ki_cl_answer found;

	assert_int_equal(
		ki_cl_described_attributes(all.data, all.size, "kk", &found),
		KILN_MISS);
	assert_int_equal(
		ki_cl_described_work_group(all.data, all.size, "k", 1, &found),
		KILN_MISS);
	assert_int_equal(ki_cl_described_arg(all.data, all.size, "k", 1,
					     CL_KERNEL_ARG_NAME, &found),
			 KILN_MISS);
	assert_int_equal(
		ki_cl_described_arg(all.data, all.size, "k", 0, 0, &found),
		KILN_MISS);
	ki_bytes_fini(&all);
}

static void a_truncated_description_is_never_read_past_its_end(void **state)
{
	struct ki_bytes all = described();
	struct ki_cl_answer found;
	size_t size;

	for (size = 0; size < all.size; size++) {
		uint8_t *copy = malloc(size + !size);

		assert_non_null(copy);
		memcpy(copy, all.data, size);
		assert_int_not_equal(ki_cl_described_arg(copy, size, "k", 0,
							 CL_KERNEL_ARG_NAME,
							 &found),
				     KILN_OK);
		free(copy);
	}
	ki_bytes_fini(&all);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(packed_binaries_come_apart_again),
		cmocka_unit_test(
			a_value_for_another_number_of_devices_is_refused),
		cmocka_unit_test(a_truncated_or_longer_value_is_refused),
		cmocka_unit_test(an_empty_binary_is_not_packed),
		cmocka_unit_test(
			binaries_of_some_devices_are_found_among_those_of_all),
		cmocka_unit_test(
			a_kernel_is_found_with_what_the_driver_said_of_it),
		cmocka_unit_test(what_is_not_described_is_a_miss),
		cmocka_unit_test(
			a_truncated_description_is_never_read_past_its_end),
	};

	return cmocka_run_group_tests_name("capture", tests, NULL, NULL);
}
