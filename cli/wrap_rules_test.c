/* SPDX-License-Identifier: MIT */

/* What is understood of command lines, without the compilers. */

#include "harness/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wrap.h"

#define WORDS_MAX 24

static char *directory;

/* Any program will do: only its name is looked at. */
static int enter(void **state)
{
	static const char *const names[] = { "nvcc", "glslc", "ocloc",
					     "glslangValidator" };
	char *self = realpath("/proc/self/exe", NULL);
	size_t i;

	directory = harness_directory();
	if (!self || chdir(directory))
		return -1;
	for (i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (symlink(self, names[i]))
			return -1;
	free(self);
	return 0;
}

static int leave(void **state)
{
	free(directory);
	return chdir("/");
}

/* NULL, or why it is not understood. */
static const char *parse(const char *line, struct ki_wrap_command *command)
{
	static char copy[400];
	static char *argv[WORDS_MAX + 1];
	const char *why = NULL;
	char *word, *rest = NULL;
	size_t n = 0;

	snprintf(copy, sizeof(copy), "./%s", line);
	for (word = strtok_r(copy, " ", &rest); word;
	     word = strtok_r(NULL, " ", &rest)) {
		assert_true(n < WORDS_MAX);
		argv[n++] = word;
	}
	argv[n] = NULL;
	return ki_wrap_parse(command, argv, &why) ? why : NULL;
}

static void what_comes_out_is_known(void **state)
{
	static const char *const rows[][2] = {
		{ "nvcc -cubin k.cu", "k.cubin" },
		{ "nvcc --ptx a/k.cu", "k.ptx" },
		{ "nvcc -fatbin a/k.cu -o b/out", "b/out" },
		{ "nvcc -ptx -o=out k.cu", "out" },
		{ "nvcc -ptx --output-file out k.cu", "out" },
		{ "nvcc -ptx -arch=sm_80 -std=c++17 -O3 -lineinfo k.cu",
		  "k.ptx" },
		{ "nvcc -ptx -gencode arch=compute_80,code=sm_80 -Ia -I b "
		  "-I=c -isystem d --include-path=e -DX=1 -D Y k.cu",
		  "k.ptx" },
		{ "nvcc -cubin -Xptxas -v,-O3 -Xcompiler=-fPIC,-Wall k.cu",
		  "k.cubin" },
		{ "nvcc -cubin native.cu", "native.cubin" },
		{ "nvcc -cubin -MD -MF k.d k.cu -o out", "k.d" },
		{ "glslc a.comp -o out", "out" },
		{ "glslangValidator -V a.comp -o out", "out" },
	};
	struct ki_wrap_command command;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const char *why = parse(rows[i][0], &command);

		if (why)
			fail_msg("%s: %s", rows[i][0], why);
		assert_string_equal(command.outputs[0], rows[i][1]);
		ki_wrap_command_fini(&command);
	}
}

static void folders_are_found_in_every_spelling(void **state)
{
	struct ki_wrap_command command;
	size_t i;

	assert_null(parse("nvcc -ptx -I0 -I 1 -I=2 --include-path 3 "
			  "--include-path=4 -isystem 5 -isystem=6 k.cu",
			  &command));
	assert_int_equal(command.n_folders, 7);
	for (i = 0; i < 7; i++)
		assert_int_equal(*command.folders[i], '0' + (int)i);
	ki_wrap_command_fini(&command);
}

static void what_is_not_understood_is_refused(void **state)
{
	static const char *const rows[] = {
		/* Other outputs than one, or other files. */
		"nvcc k.cu",
		"nvcc -c k.cu",
		"nvcc -cubin",
		"nvcc -cubin k.cu l.cu",
		"nvcc -cubin k.ptx",
		"nvcc -cubin k.cpp",
		"nvcc -cubin -ptx k.cu",
		"nvcc -cubin k.cu -o a -o b",
		"nvcc -cubin k.cu -o -",
		"nvcc -cubin -odir b k.cu",
		"nvcc -cubin -MD k.cu",
		"nvcc -M -cubin k.cu",
		"nvcc -dryrun -cubin k.cu",
		"nvcc -cubin -keep k.cu",
		"nvcc -cubin --keep-dir b k.cu",
		"nvcc -cubin -save-temps k.cu",
		"nvcc -cubin -time t.csv k.cu",
		"nvcc -cubin -fdevice-time-trace t k.cu",
		"nvcc -cubin -opt-info inline k.cu",
		"nvcc -cubin -optf options k.cu",
		"nvcc -cubin --options-file=options k.cu",
		"nvcc -cubin @options k.cu",
		"nvcc -cubin -include h k.cu",
		"nvcc -cubin -run k.cu",
		/* Devices and times that are here and now. */
		"nvcc -cubin -arch=native k.cu",
		"nvcc -cubin -arch native k.cu",
		"nvcc -cubin -DT=__TIME__ k.cu",
		"nvcc -cubin -D T=__DATE__ k.cu",
		"nvcc -cubin -DT=__TIMESTAMP__ k.cu",
		/* Of the compilers inside. */
		"nvcc -cubin -Xcompiler -march=native k.cu",
		"nvcc -cubin -Xcompiler -include,h k.cu",
		"nvcc -cubin -Xcompiler -fplugin=x.so k.cu",
		"nvcc -cubin -Xcompiler=-Ia k.cu",
		"nvcc -cubin -Xptxas --options-file=x k.cu",
		"nvcc -cubin -Xptxas -v,, k.cu",
		/* Lists of folders, and of nothing. */
		"nvcc -cubin -Ia,b k.cu",
		"nvcc -cubin k.cu -I",
		"nvcc -cubin k.cu -o",
		"nvcc -cubin -unknown k.cu",
		"nvcc -cubin -m32 k.cu",
		"nvcc -cubin -libdevice-directory x k.cu",
	};
	struct ki_wrap_command command;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		if (!parse(rows[i], &command))
			fail_msg("understood: %s", rows[i]);
		ki_wrap_command_fini(&command);
	}
}

struct setting {
	const char *name, *value;
	int is_understood;
};

static void variables_with_arguments_are_read_like_these(void **state)
{
	static const struct setting rows[] = {
		{ "NVCC_APPEND_FLAGS", "-O3  -lineinfo", 1 },
		{ "NVCC_PREPEND_FLAGS", "-Ia", 1 },
		{ "NVCC_APPEND_FLAGS", "", 1 },
		{ "NVCC_APPEND_FLAGS", "-keep", 0 },
		{ "NVCC_PREPEND_FLAGS", "-DX='a b'", 0 },
		{ "NVCC_APPEND_FLAGS", "-arch", 0 },
		{ "NVCC_APPEND_FLAGS", "other.cu", 0 },
		{ "SUNPRO_DEPENDENCIES", "list", 0 },
		{ "DEPENDENCIES_OUTPUT", "list", 0 },
		{ "DUMP_KNOBS_TO_FILE", "knobs", 0 },
	};
	struct ki_wrap_command command;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		assert_int_equal(setenv(rows[i].name, rows[i].value, 1), 0);
		if ((parse("nvcc -ptx k.cu", &command) == NULL) !=
		    rows[i].is_understood)
			fail_msg("%s=%s", rows[i].name, rows[i].value);
		ki_wrap_command_fini(&command);
		assert_int_equal(unsetenv(rows[i].name), 0);
	}
}

struct said {
	const char *text;
	int is_lasting;
};

static void failures_last_where_all_errors_have_a_place(void **state)
{
	static const struct said rows[] = {
		{ "s.comp:3: error: 'x' : undeclared\n1 error generated.\n",
		  1 },
		{ "ERROR: s.comp:3: 'x' : undeclared\n"
		  "ERROR: 1 compilation errors.  No code generated.\n",
		  1 },
		{ "k.cl:3:2: error: expected ';'\n"
		  "Build failed with error code: -11\n",
		  1 },
		{ "k.cu(3): error: identifier \"x\" is undefined\n"
		  "1 error detected in the compilation of \"k.cu\".\n",
		  1 },
		{ "", 0 },
		{ "error: something\n", 0 },
		{ "k.cu:3: warning: what\nerror: something\n", 0 },
		{ "k.cu(3): error: no\nerror: something else\n", 0 },
		{ "k.cl:3: error: no\nBuild failed with error code: -6\n", 0 },
		{ "k.cu:3: error: No space left on device\n", 0 },
		{ "k.cu:3:9: fatal error: h: No such file or directory\n", 0 },
		{ "k.cu:3: internal compiler error: Killed\n", 0 },
		{ "glslc: error: a.comp: out of memory\n", 0 },
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (ki_wrap_is_lasting(rows[i].text) != rows[i].is_lasting)
			fail_msg("%s", rows[i].text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_comes_out_is_known),
		cmocka_unit_test(folders_are_found_in_every_spelling),
		cmocka_unit_test(what_is_not_understood_is_refused),
		cmocka_unit_test(variables_with_arguments_are_read_like_these),
		cmocka_unit_test(failures_last_where_all_errors_have_a_place),
	};

	return cmocka_run_group_tests(tests, enter, leave);
}
