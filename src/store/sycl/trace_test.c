/* SPDX-License-Identifier: MIT */

/* SYCL_CACHE_TRACE: what is printed, and when. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"

#include "store/sycl/helpers_test.h"

#define VALUE 500 /* bytes */

static void a_mask_is_a_number_up_to_seven(void **state)
{
	static const struct {
		const char *text;
		unsigned mask;
	} rows[] = { { NULL, 0 }, { "", 0 },   { "0", 0 }, { "1", 1 },
		     { "2", 2 },  { "3", 3 },  { "4", 4 }, { "5", 5 },
		     { "6", 6 },  { "7", 7 },  { "8", 1 }, { "random", 1 },
		     { "-1", 1 }, { "10", 1 }, { "2x", 1 } };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(ki_sycl_trace_mask(rows[i].text),
				 rows[i].mask);
}

/* What one store, two look-ups and an eviction print, from malloc(). */
static char *traced(const char *directory, const char *mask)
{
	char *path = harness_path(directory, "said"), *text;
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	int before = dup(STDERR_FILENO);
	struct kiln_tier *tier;
	size_t size;

	assert_true(fd >= 0 && before >= 0);
	assert_int_equal(setenv("SYCL_CACHE_TRACE", mask, 1), 0);
	(void)dup2(fd, STDERR_FILENO);
	tier = open_at(directory, 1 << 20);
	(void)put(tier, 1, VALUE);
	(void)get(tier, 1);
	(void)get(tier, 2);
	(void)tier->ops->set_limit(tier, 2000);
	for (unsigned n = 2; n < 6; n++)
		(void)put(tier, n, VALUE);
	tier->ops->close(tier);
	(void)dup2(before, STDERR_FILENO);
	(void)unsetenv("SYCL_CACHE_TRACE");
	close(before);
	close(fd);
	text = harness_read(path, &size);
	free(path);
	return text;
}

static void assert_says(const char *text, const char *what,
			const char *directory, const char *path)
{
	char *line;

	assert_true(asprintf(&line, "[Persistent Cache]: %s%s%s", what,
			     directory ? directory : "", path) > 0);
	assert_non_null(strstr(text, line));
	free(line);
}

static void what_is_done_is_printed_in_dpcxxs_words(void **state)
{
	char *directory = harness_directory();
	char *bin = path_of(directory, 1, 0, ".bin");
	char *text = traced(directory, "1");

	assert_says(text, "enabled", NULL, "\n");
	assert_says(text, "device binary has been cached: ", bin, "\n");
	assert_says(text, "using cached device binary: ", bin, ";\n");
	assert_says(text, "Cache eviction triggered.", NULL, "\n");
	assert_says(text, "File removed: ", bin, "\n");
	assert_says(text,
		    "Updating the cache size file after eviction. New size: ",
		    NULL, "");
	free(text);
	free(bin);
	free(directory);
}

static void nothing_is_printed_unless_it_is_asked_for(void **state)
{
	static const char *const masks[] = { "0", "", "2", "4", "6" };

	for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
		char *directory = harness_directory();
		char *text = traced(directory, masks[i]);

		assert_string_equal(text, "");
		free(text);
		free(directory);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_mask_is_a_number_up_to_seven),
		cmocka_unit_test(what_is_done_is_printed_in_dpcxxs_words),
		cmocka_unit_test(nothing_is_printed_unless_it_is_asked_for),
	};

	return cmocka_run_group_tests_name("sycl_trace", tests, NULL, NULL);
}
