/* SPDX-License-Identifier: MIT */

/* What `kiln wrap` keeps, as bytes that anybody may have changed. */

#include "harness/harness.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "wrap.h"

static const struct ki_wrap_rule rule = { .name = "glslc" };

static struct ki_wrap_command command_to(const char *output)
{
	return (struct ki_wrap_command){ .rule = &rule,
					 .outputs = { output },
					 .n_outputs = 1 };
}

static void encode(struct ki_bytes *out)
{
	struct ki_wrap_result result = {
		.wait_status = W_EXITCODE(3, 0),
		.outputs = { { .path = strdup("a/out"),
			       .mode = 0640,
			       .data = "data",
			       .size = 4 } },
		.n_outputs = 1,
	};

	ki_bytes_add_string(&result.streams[0], "said");
	ki_bytes_add_string(&result.streams[1], "warned");
	ki_bytes_init(out);
	assert_int_equal(ki_wrap_encode(&result, out), 0);
	ki_wrap_result_fini(&result);
}

static int decode(const void *data, size_t size, const char *output,
		  struct ki_wrap_result *out_result)
{
	const struct ki_wrap_command command = command_to(output);

	return ki_wrap_decode(&command, data, size, out_result);
}

static void a_result_comes_back_as_it_was(void **state)
{
	struct ki_wrap_result result;
	struct ki_bytes bytes;

	encode(&bytes);
	assert_int_equal(decode(bytes.data, bytes.size, "a/out", &result), 0);
	assert_int_equal(result.wait_status, W_EXITCODE(3, 0));
	assert_int_equal(result.streams[0].size, 4);
	assert_memory_equal(result.streams[1].data, "warned", 6);
	assert_int_equal(result.n_outputs, 1);
	assert_string_equal(result.outputs[0].path, "a/out");
	assert_int_equal(result.outputs[0].mode, 0640);
	assert_int_equal(result.outputs[0].size, 4);
	assert_memory_equal(result.outputs[0].data, "data", 4);
	ki_wrap_result_fini(&result);
	ki_bytes_fini(&bytes);
}

static void nothing_is_written_but_what_the_command_names(void **state)
{
	struct ki_wrap_result result;
	struct ki_bytes bytes;

	encode(&bytes);
	assert_int_equal(decode(bytes.data, bytes.size, "out", &result),
			 -EINVAL);
	ki_wrap_result_fini(&result);
	ki_bytes_fini(&bytes);
}

static void bytes_cut_short_are_no_result(void **state)
{
	struct ki_wrap_result result;
	struct ki_bytes bytes;

	encode(&bytes);
	for (size_t size = 0; size < bytes.size; size++) {
		void *copy = malloc(size + !size);

		assert_non_null(copy);
		memcpy(copy, bytes.data, size);
		assert_int_equal(decode(copy, size, "a/out", &result), -EINVAL);
		ki_wrap_result_fini(&result);
		free(copy);
	}
	ki_bytes_fini(&bytes);
}

/* Whatever it becomes: it has one output at most, and that is the command's. */
static void changed_bytes_do_no_harm(void **state)
{
	struct ki_wrap_result result;
	struct ki_bytes bytes;

	encode(&bytes);
	for (size_t i = 0; i < 8 * bytes.size; i++) {
		bytes.data[i / 8] ^= (uint8_t)(1 << i % 8);
		if (!decode(bytes.data, bytes.size, "a/out", &result) &&
		    result.n_outputs)
			assert_string_equal(result.outputs[0].path, "a/out");
		ki_wrap_result_fini(&result);
		bytes.data[i / 8] ^= (uint8_t)(1 << i % 8);
	}
	ki_bytes_fini(&bytes);
}

static void lists_of_paths_come_back_or_are_none(void **state)
{
	struct ki_wrap_sets sets = { .n = 2 }, read;
	struct ki_bytes bytes;

	ki_wrap_paths_add(&sets.sets[0], "a/h", 3, 0);
	ki_wrap_paths_add(&sets.sets[0], "a/h", 3, 0);
	ki_wrap_paths_add(&sets.sets[1], "/lib/libc", 9, 1);
	ki_bytes_init(&bytes);
	assert_int_equal(ki_wrap_sets_encode(&sets, &bytes), 0);
	assert_int_equal(ki_wrap_sets_decode(bytes.data, bytes.size, &read), 0);
	assert_int_equal(read.n, 2);
	assert_int_equal(read.sets[0].n, 1);
	assert_string_equal(read.sets[1].paths[0].path, "/lib/libc");
	assert_int_equal(read.sets[1].paths[0].is_library, 1);
	ki_wrap_sets_fini(&read);
	for (size_t size = 0; size < bytes.size; size++) {
		assert_int_equal(ki_wrap_sets_decode(bytes.data, size, &read),
				 -EINVAL);
		ki_wrap_sets_fini(&read);
	}
	ki_wrap_sets_fini(&sets);
	ki_bytes_fini(&bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_result_comes_back_as_it_was),
		cmocka_unit_test(nothing_is_written_but_what_the_command_names),
		cmocka_unit_test(bytes_cut_short_are_no_result),
		cmocka_unit_test(changed_bytes_do_no_harm),
		cmocka_unit_test(lists_of_paths_come_back_or_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
