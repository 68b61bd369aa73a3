/* SPDX-License-Identifier: MIT */

/* What is printed of programs and kernels, where that was asked for. */

#include "harness/harness.h"

#include <fcntl.h>
#include <unistd.h>

#include "program/program.h"
#include "program/runtime_test.h"

#define PROGRAM "][Program Cache][Key:{imageId = "
#define SLOW	"][Kernel Cache][IsFastCache: 0][Key:{Name = k}]: "
#define FAST	"][Kernel Cache][IsFastCache: 1][Key:{Name = k}]: "

static void use(struct kiln_programs *programs,
		const struct kiln_kernel_key *key)
{
	struct kiln_kernel *kernel;

	assert_int_equal(kiln_kernel_get(programs, key, &kernel, NULL),
			 KILN_OK);
	kiln_kernel_unref(kernel);
}

/* A kernel, twice, and one of another program, for which the first goes. */
static void work(uint32_t flags)
{
	struct kiln_programs_options options = rt_options();
	struct kiln_program_key *keys[2];
	struct kiln_kernel_key *kernel_keys[2];
	struct kiln_programs *programs;
	struct ask asks[2];
	struct rt rt;

	rt_init(&rt);
	rt.pad = 10000;
	options.bytes_max = 15000;
	options.flags |= flags;
	programs = rt_programs(&rt, options);
	for (unsigned i = 0; i < 2; i++) {
		ask_init(&asks[i], &rt, i, 0);
		keys[i] = ask_key(programs, &asks[i]);
		kernel_keys[i] = ask_kernel(keys[i], &rt.devices[0], "k");
	}
	use(programs, kernel_keys[0]);
	use(programs, kernel_keys[0]);
	use(programs, kernel_keys[1]);
	for (unsigned i = 0; i < 2; i++) {
		kiln_kernel_key_free(kernel_keys[i]);
		kiln_program_key_free(keys[i]);
	}
	rt_free(&rt, programs);
	assert_true(rt_is_clean(&rt));
}

/* From malloc(). */
static char *said(uint32_t flags)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "said"), *text;
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	int before = dup(STDERR_FILENO);
	size_t size;

	assert_true(fd >= 0 && before >= 0);
	(void)dup2(fd, STDERR_FILENO);
	work(flags);
	(void)dup2(before, STDERR_FILENO);
	close(before);
	close(fd);
	text = harness_read(path, &size);
	free(path);
	free(directory);
	return text;
}

static void insertions_uses_and_evictions_are_told_in_their_order(void **state)
{
	static const char *const lines[][2] = {
		{ PROGRAM, "}]: Program inserted.\n" },
		{ PROGRAM, "}]: Program added to the end of eviction list.\n" },
		{ SLOW, "Kernel inserted.\n" },
		{ FAST, "Kernel inserted.\n" },
		{ FAST, "Kernel fetched.\n" },
		{ PROGRAM, "}]: Program inserted.\n" },
		{ PROGRAM, "}]: Program added to the end of eviction list.\n" },
		{ SLOW, "Kernel evicted.\n" },
		{ FAST, "Kernel evicted.\n" },
		{ PROGRAM, "}]: Program evicted.\n" },
		{ SLOW, "Kernel inserted.\n" },
		{ FAST, "Kernel inserted.\n" },
	};
	char *text = said(KILN_PROGRAMS_TRACE);
	const char *at = text;

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		const char *first, *second, *end = strchr(at, '\n');

		assert_non_null(end);
		assert_ptr_equal(strstr(at, "[In-Memory Cache][Thread Id:"),
				 at);
		first = strstr(at, lines[i][0]);
		assert_true(first && first < end);
		second = strstr(first, lines[i][1]);
		assert_ptr_equal(second + strlen(lines[i][1]), end + 1);
		at = end + 1;
	}
	free(text);
}

static void without_it_nothing_is(void **state)
{
	char *text = said(0);

	assert_string_equal(text, "");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			insertions_uses_and_evictions_are_told_in_their_order),
		cmocka_unit_test(without_it_nothing_is),
	};

	return cmocka_run_group_tests_name("program_trace", tests, NULL, NULL);
}
