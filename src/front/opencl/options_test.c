/* SPDX-License-Identifier: MIT */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"

#include "front/opencl/options.h"

/* "A|B|C", to compare lists with. */
static const char *joined(const struct ki_cl_words *words, char out[4096])
{
	size_t n = 0;

	out[0] = 0;
	for (size_t i = 0; i < words->n; i++)
		n += (size_t)snprintf(out + n, 4096 - n, "%s%s", i ? "|" : "",
				      words->words[i]);
	return out;
}

static const struct {
	const char *name;
	const char *text;
	const char *directories;
	const char *doubtful;
	const char *macros;
} ROWS[] = {
	{ "nothing", "", "", "", "" },
	{ "joined", "-Iinc", "inc", "", "" },
	{ "separate", "-I inc", "inc", "", "" },
	{ "several blanks", "  -I\t inc \n -Ib  ", "inc|b", "", "" },
	{ "twice the same", "-Iinc -I inc", "inc", "", "" },
	{ "quoted and joined", "-I\"inc\"", "inc", " inc |\"inc\"", "" },
	{ "quoted and separate", "-I \"inc\"", "inc", " inc |\"inc\"", "" },
	{ "a blank inside quotes", "-I \"a b\" -DX", "a b", " a b |\"a", "X" },
	{ "a blank inside quotes, joined", "-I\"a b\"", "a b", " a b |\"a",
	  "" },
	{ "the whole in quotes", "\"-Ia b\"", "a b", "", "" },
	{ "single quotes", "-I'a b'", "a b", "'a", "" },
	{ "an escaped blank", "-Ia\\ b", "a b", "a\\", "" },
	{ "an apostrophe hides nothing", "-DX=don't -Iinc -DY='", "", "inc",
	  "X=dont -Iinc -DY=|X=don't|Y='" },
	{ "an unfinished quote", "-I\"a -Ib", "a -Ib", " a -Ib|\"a|b", "" },
	{ "no argument", "-I", "", "", "" },
	{ "an absolute path", "-I/usr/include -I..", "/usr/include|..", "",
	  "" },
	{ "long form", "--include-directory=a --include-directory b", "a|b", "",
	  "" },
	{ "system directories", "-isystem a -iquoteb -idirafter c", "a|b|c", "",
	  "" },
	{ "macros", "-DA -D B=1 -DC(x)=x", "", "", "A|B=1|C(x)=x" },
	{ "a quoted body", "-DA=\"b\"", "", "", "A=b" },
	{ "an escaped quote", "-DA=\\\"b\\\"", "", "", "A=\"b\"" },
	{ "quotes in the middle are doubtful", "-DA=b\"c\"d", "", "",
	  "A=bcd|A=b c d" },
	{ "long macros", "--define-macro=A --define-macro B", "", "", "A|B" },
	{ "unknown options", "-cl-fast-relaxed-math -foo -Ia -w", "a", "", "" },
	{ "-cl-std", "-cl-std=CL1.2 -Werror -Ia", "a", "", "" },
};

static void directories_and_macros_are_found(void **state)
{
	char text[4096];

	for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
		struct ki_cl_options options;

		ki_cl_options_init(&options);
		ki_cl_options_read(&options, ROWS[i].text);
		print_message("# %s\n", ROWS[i].name);
		assert_int_equal(options.failed, 0);
		assert_int_equal(options.opaque, 0);
		assert_string_equal(joined(&options.directories, text),
				    ROWS[i].directories);
		assert_string_equal(joined(&options.doubtful_directories, text),
				    ROWS[i].doubtful);
		assert_string_equal(joined(&options.macros, text),
				    ROWS[i].macros);
		ki_cl_options_fini(&options);
	}
}

static void options_that_read_files_otherwise_are_opaque(void **state)
{
	static const char *const TEXTS[] = {
		"-include-pch x",
		"@file",
		"-Xclang -include -Xclang x",
		"-I-",
		"-I=x",
		"--sysroot=/x",
		"-isysroot /x",
		"-ivfsoverlay x",
		"-DX -fmodules",
		"-Wp,-include,x",
		"--include-directory-after=x",
		"-include-pth x",
		"-finclude-default-header",
		"-chain-include x",
		"-remap-file a;b",
		"-traditional-cpp",
		"-mllvm -load=x",
		"--config x",
		"-DX @file",
	};

	for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
		struct ki_cl_options options;

		ki_cl_options_init(&options);
		ki_cl_options_read(&options, TEXTS[i]);
		print_message("# %s\n", TEXTS[i]);
		assert_int_equal(options.opaque, 1);
		ki_cl_options_fini(&options);
	}
}

static void options_that_write_files_are_known(void **state)
{
	static const char *const TEXTS[] = {
		"-save-temps",
		"-MD",
		"-MFx",
		"-dependency-file x",
		"-header-include-file x",
		"-ftime-trace",
		"-stats-file=x",
		"-serialize-diagnostic-file x",
		"-fdump-record-layouts",
		"-coverage-notes-file x",
	};

	for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
		struct ki_cl_options options;

		ki_cl_options_init(&options);
		ki_cl_options_read(&options, TEXTS[i]);
		print_message("# %s\n", TEXTS[i]);
		assert_int_equal(options.writes, 1);
		ki_cl_options_fini(&options);
	}
}

static void files_and_undefined_names_are_found(void **state)
{
	struct ki_cl_options options;
	char text[4096];

	ki_cl_options_init(&options);
	ki_cl_options_read(&options, "-include a.h -imacros b.h -UX -U Y");
	ki_cl_options_read(&options, "-includec.h -save-temps");
	assert_string_equal(joined(&options.files, text), "a.h|b.h|c.h");
	assert_string_equal(joined(&options.undefined, text), "X|Y");
	assert_int_equal(options.writes, 1);
	ki_cl_options_fini(&options);
}

static void too_much_is_refused(void **state)
{
	size_t size = KI_CL_OPTIONS_BYTES_MAX + 1;
	char *text = malloc(size + 1);
	struct ki_cl_options options;

	memset(text, 'x', size);
	text[size] = 0;
	ki_cl_options_init(&options);
	ki_cl_options_read(&options, text);
	assert_int_not_equal(options.failed, 0);
	ki_cl_options_fini(&options);

	text[0] = 0;
	for (size_t i = 0, n = 0; i <= KI_CL_WORDS_MAX; i++)
		n += (size_t)snprintf(text + n, size - n, "-D%zu ", i);
	ki_cl_options_init(&options);
	ki_cl_options_read(&options, text);
	assert_int_not_equal(options.failed, 0);
	ki_cl_options_fini(&options);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(directories_and_macros_are_found),
		cmocka_unit_test(options_that_read_files_otherwise_are_opaque),
		cmocka_unit_test(options_that_write_files_are_known),
		cmocka_unit_test(files_and_undefined_names_are_found),
		cmocka_unit_test(too_much_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
