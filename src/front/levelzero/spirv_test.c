/* SPDX-License-Identifier: MIT */

#include "harness/harness.h"

#include <stdlib.h>
#include <string.h>

#include "front/levelzero/ze.h"

#define ID	    7
#define OP(n, code) ((uint32_t)(n) << 16 | (code))

/* clang-format off */
#define HEADER	 0x07230203, 0x00010000, 0, 20, 0
#define DECORATE OP(4, 71), 10, 1, ID
#define FUNCTION OP(5, 54), 2, 9, 0, 3
/* clang-format on */

#define WORDS_MAX 32

static const struct {
	const char *name;
	size_t bytes;
	uint32_t words[WORDS_MAX];
} rows[] = {
	{ "a byte",
	  1,
	  { HEADER, DECORATE, OP(4, 21), 2, 8, 0, OP(4, 50), 2, 10, 5 } },
	{ "two",
	  2,
	  { HEADER, DECORATE, OP(4, 21), 2, 16, 1, OP(4, 50), 2, 10, 5 } },
	{ "four",
	  4,
	  { HEADER, DECORATE, OP(4, 21), 2, 32, 0, OP(4, 50), 2, 10, 5 } },
	{ "eight",
	  8,
	  { HEADER, DECORATE, OP(4, 21), 2, 64, 0, OP(5, 50), 2, 10, 5, 0 } },
	{ "half",
	  2,
	  { HEADER, DECORATE, OP(3, 22), 2, 16, OP(4, 50), 2, 10, 0 } },
	{ "double",
	  8,
	  { HEADER, DECORATE, OP(3, 22), 2, 64, OP(5, 50), 2, 10, 0, 0 } },
	{ "true", 1, { HEADER, DECORATE, OP(2, 20), 2, OP(3, 48), 2, 10 } },
	{ "false", 1, { HEADER, DECORATE, OP(2, 20), 2, OP(3, 49), 2, 10 } },
	{ "a constant that cannot be set",
	  0,
	  { HEADER, DECORATE, OP(4, 21), 2, 32, 0, OP(4, 43), 2, 10, 5 } },
	{ "of no type", 0, { HEADER, DECORATE, OP(4, 50), 2, 10, 5 } },
	{ "of an odd width",
	  0,
	  { HEADER, DECORATE, OP(4, 21), 2, 24, 0, OP(4, 50), 2, 10, 5 } },
	{ "another number",
	  0,
	  { HEADER, OP(4, 71), 10, 1, 8, OP(4, 21), 2, 32, 0, OP(4, 50), 2, 10,
	    5 } },
	{ "another decoration",
	  0,
	  { HEADER, OP(4, 71), 10, 2, ID, OP(4, 21), 2, 32, 0, OP(4, 50), 2, 10,
	    5 } },
	{ "behind the first function",
	  0,
	  { HEADER, DECORATE, OP(4, 21), 2, 32, 0, FUNCTION, OP(4, 50), 2, 10,
	    5 } },
	{ "bytes the other way round",
	  0,
	  { 0x03022307, 0x00010000, 0, 20, 0, DECORATE, OP(4, 21), 2, 32, 0,
	    OP(4, 50), 2, 10, 5 } },
	{ "no header", 0, { 0 } },
};

static void the_type_tells_the_size(void **state)
{
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		print_message("# %s\n", rows[i].name);
		assert_int_equal(ki_spirv_constant_bytes(rows[i].words,
							 sizeof(rows[i].words),
							 ID),
				 rows[i].bytes);
	}
}

/* In memory of exactly that size, for those who watch. */
static void what_is_cut_short_is_read_to_its_end(void **state)
{
	size_t i, size;
	uint8_t *copy;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (size = 0; size < sizeof(rows[i].words); size++) {
			copy = malloc(size + !size);
			assert_non_null(copy);
			memcpy(copy, rows[i].words, size);
			if (ki_spirv_constant_bytes(copy, size, ID))
				assert_true(rows[i].bytes);
			free(copy);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_type_tells_the_size),
		cmocka_unit_test(what_is_cut_short_is_read_to_its_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
