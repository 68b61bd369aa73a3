/* SPDX-License-Identifier: MIT */

/* What is understood of that which nvcc and gcc say, without them. */

#include "harness/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wrap.h"

static char *directory;
static char *const argv[] = { (char *)"./nvcc", (char *)"-ptx", (char *)"k.cu",
			      NULL };

/* Programs that the loader starts, by these names. */
static int enter(void **state)
{
	static const char *const names[] = { "nvcc",	   "bin/ptxas",
					     "bin/cicc",   "bin/ccache",
					     "bin/gcc-12", "first/other" };
	char *data;
	size_t size, i;

	directory = harness_directory();
	data = harness_read("/proc/self/exe", &size);
	if (!data || chdir(directory) || mkdir("bin", 0700) ||
	    mkdir("first", 0700) || mkdir("f", 0700))
		return -1;
	harness_write("program", data, size);
	free(data);
	for (i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (link("program", names[i]))
			return -1;
	return chmod("program", 0700) || symlink("gcc-12", "bin/gcc") ||
	       symlink("ccache", "bin/g++");
}

static int leave(void **state)
{
	free(directory);
	return chdir("/");
}

static struct ki_wrap_command command(void)
{
	struct ki_wrap_command command;
	const char *why;

	assert_int_equal(ki_wrap_parse(&command, argv, &why), 0);
	return command;
}

static int has(const struct ki_wrap_paths *paths, const char *path)
{
	size_t i;

	for (i = 0; i < paths->n; i++)
		if (!strcmp(paths->paths[i].path, path))
			return 1;
	return 0;
}

static void assert_has(const struct ki_wrap_paths *paths, const char *format,
		       ...) __attribute__((format(printf, 2, 3)));

static void assert_has(const struct ki_wrap_paths *paths, const char *format,
		       ...)
{
	char path[600];
	va_list args;

	va_start(args, format);
	vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	if (!has(paths, path))
		fail_msg("not there: %s", path);
}

/* "%s" is where we are. */
static int read_plan(const char *format, struct ki_wrap_driver *driver)
{
	struct ki_wrap_command mine = command();
	char text[3000];
	int err;

	snprintf(text, sizeof(text), format, directory, directory);
	memset(driver, 0, sizeof(*driver));
	err = ki_wrap_driver_read_plan(&mine, text, driver);
	ki_wrap_command_fini(&mine);
	return err;
}

#define PLACES                                                                 \
	"#$ _HERE_=/usr/local/cuda/bin\n"                                      \
	"#$ CICC_PATH=bin\n"                                                   \
	"#$ PATH=%s/first:%s/bin\n"                                            \
	"nvcc warning : what it also says\n"
#define PREPROCESS "#$ gcc -E -x c++ -I\"i 1\" \"-Ii2\" "

static void a_plan_names_programs_folders_and_files(void **state)
{
	struct ki_wrap_driver driver;

	assert_int_equal(
		read_plan(
			PLACES PREPROCESS
			"-isystem i3 \"-isystem\" \"i4\" -D \"X=\\\"a b\\\"\" "
			"\"k.cu\" -o \"/tmp/tmpxft_1_k.ii\" \n"
			"#$ -- Filter Dependencies -- > k.d\n"
			"#$ \"$CICC_PATH/cicc\" -nvvmir-library "
			"\"/etc/passwd\" \"/tmp/tmpxft_1_k.ii\" -o k.ptx\n"
			"#$ ptxas -arch=sm_80 \"/tmp/none.ptx\" -o "
			"\"k.cubin\" \n",
			&driver),
		0);
	assert_int_equal(driver.n_lists, 1);
	assert_has(&driver.files, "/usr/local/cuda/bin/nvcc.profile");
	assert_has(&driver.files, "bin/cicc");
	assert_has(&driver.files, "%s/bin/gcc", directory);
	/* Where it is looked for before. */
	assert_has(&driver.files, "%s/first/gcc", directory);
	assert_has(&driver.files, "%s/first/ptxas", directory);
	assert_has(&driver.files, "/etc/passwd");
	assert_int_equal(driver.files.n, 7);
	assert_has(&driver.folders, "i 1");
	assert_has(&driver.folders, "i2");
	assert_has(&driver.folders, "i3");
	assert_has(&driver.folders, "i4");
	assert_int_equal(driver.folders.n, 4);
	assert_string_equal(driver.host + strlen(directory), "/bin/gcc");
	ki_wrap_driver_fini(&driver);
}

static void a_plan_with_other_programs_is_none(void **state)
{
	static const char *const rows[] = {
		/* Unknown, not there, a launcher behind a link. */
		PLACES PREPROCESS "k.cu\n#$ other x\n",
		PLACES PREPROCESS "k.cu\n#$ fatbinary x\n",
		PLACES "#$ g++ -E k.cu\n",
		PLACES "#$ \"$NOWHERE/cicc\" x\n",
		/* It preprocesses nothing; it says nothing. */
		PLACES "#$ ptxas x\n",
		"",
		"#$ PATH=%s:%s\n",
	};
	struct ki_wrap_driver driver;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		if (!read_plan(rows[i], &driver))
			fail_msg("row %zu is a plan", i);
		ki_wrap_driver_fini(&driver);
	}
}

static void folders_that_are_not_there_count(void **state)
{
	struct ki_wrap_driver driver = { 0 };

	ki_wrap_driver_read_folders("ignoring duplicate directory \"/d\"\n"
				    "ignoring nonexistent directory \"/n/a\"\n"
				    "#include \"...\" search starts here:\n"
				    " /q\n"
				    "#include <...> search starts here:\n"
				    " /usr/include/c++/12\n"
				    " /usr/include\n"
				    "End of search list.\n"
				    " /no\n",
				    &driver);
	assert_int_equal(driver.folders.n, 4);
	assert_has(&driver.folders, "/n/a");
	assert_has(&driver.folders, "/q");
	assert_has(&driver.folders, "/usr/include/c++/12");
	assert_has(&driver.folders, "/usr/include");
	ki_wrap_driver_fini(&driver);
}

/* A run's places, with s/x.h and s/sub/y.h taken from s. */
static enum kiln_counter add_places(const char *source, const char *header,
				    const char *list,
				    struct ki_wrap_paths *paths,
				    int *out_is_known)
{
	static const char *const folders[] = { "f", "s", "gone" };
	struct ki_wrap_driver driver = { .n_lists = 1 };
	struct ki_wrap_command mine = command();
	enum kiln_counter why;
	size_t i;

	harness_remove("s");
	assert_int_equal(mkdir("s", 0700), 0);
	assert_int_equal(mkdir("s/sub", 0700), 0);
	harness_write("k.cu", source, strlen(source));
	harness_write("s/x.h", header, strlen(header));
	harness_write("s/sub/y.h", "", 0);
	for (i = 0; i < 3; i++)
		ki_wrap_paths_add(&driver.folders, folders[i],
				  strlen(folders[i]), 0);
	memset(paths, 0, sizeof(*paths));
	why = ki_wrap_add_places(&mine, &driver, list, paths, out_is_known);
	assert_int_equal(paths->failed, 0);
	ki_wrap_driver_fini(&driver);
	ki_wrap_command_fini(&mine);
	return why;
}

#define LIST                                                                   \
	"tmpxft_0001_00-2.o: /usr/include/stdc-predef.h\n"                     \
	"k.o: s/x.h \\\n s/sub/y.h\n"

/* Words of prose may stand for names; no file has one that is so long. */
static void a_name_that_is_too_long_is_no_file(void **state)
{
	struct ki_wrap_paths paths = { 0 };
	struct kiln_key *key = kiln_key_new();
	char name[400];

	memset(name, 'a', sizeof(name));
	ki_wrap_paths_add(&paths, name, sizeof(name), 0);
	assert_int_equal(ki_wrap_add_states(key, &paths), 0);
	assert_int_equal(kiln_key_finish(key), 0);
	kiln_key_free(key);
	ki_wrap_paths_fini(&paths);
}

static void digest_of(const char *path, uint8_t out[KILN_DIGEST_BYTES])
{
	struct ki_wrap_paths paths = { 0 };
	struct kiln_key *key = kiln_key_new();

	ki_wrap_paths_add(&paths, path, strlen(path), 1);
	assert_int_equal(ki_wrap_add_states(key, &paths), 0);
	assert_int_equal(kiln_key_finish(key), 0);
	memcpy(out, kiln_key_digest(key), KILN_DIGEST_BYTES);
	kiln_key_free(key);
	ki_wrap_paths_fini(&paths);
}

/* S06: its size is the same, and its times may be. */
static void a_program_that_changes_within_a_tick_is_another(void **state)
{
	uint8_t one[KILN_DIGEST_BYTES], other[KILN_DIGEST_BYTES];
	size_t size = 600000, i;
	char *bytes = calloc(1, size);

	assert_non_null(bytes);
	harness_write("library", bytes, size);
	digest_of("library", one);
	digest_of("library", other);
	assert_memory_equal(one, other, sizeof(one));
	for (i = 0; i < 20; i++) {
		bytes[size - 1]++;
		harness_write("library", bytes, size);
		digest_of("library", other);
		assert_memory_not_equal(one, other, sizeof(one));
		memcpy(one, other, sizeof(one));
	}
	free(bytes);
}

/* S06 */
static void whatever_may_come_before_an_include_counts(void **state)
{
	struct ki_wrap_paths paths;
	int is_known;

	(void)add_places("#include <x.h>\n#include \"sub/y.h\"\n"
			 "#if __has_include(<z.h>)\n#endif\n",
			 "#  include_next \"deep/w.h\"\n", LIST, &paths,
			 &is_known);
	assert_true(is_known);
	assert_has(&paths, "s/x.h");
	assert_has(&paths, "s/sub/y.h");
	assert_has(&paths, "/usr/include/stdc-predef.h");
	/* Before what was taken, beside the source and where it runs. */
	assert_has(&paths, "f/x.h");
	assert_has(&paths, "x.h");
	/* Of what has no folder, that. */
	assert_has(&paths, "gone");
	assert_has(&paths, "f/sub");
	assert_has(&paths, "sub");
	/* What was asked for in vain, from the source and from the header. */
	assert_has(&paths, "f/z.h");
	assert_has(&paths, "z.h");
	assert_has(&paths, "s/deep");
	assert_has(&paths, "f/deep");
	ki_wrap_paths_fini(&paths);
}

static void a_computed_name_is_that_of_any_file(void **state)
{
	struct ki_wrap_paths paths;
	int is_known;

	(void)add_places("#include <x.h>\n", "#include NAME\n", LIST, &paths,
			 &is_known);
	assert_true(is_known);
	assert_has(&paths, "s/sub/y.h");
	assert_has(&paths, "f/sub");
	assert_has(&paths, "s/x.h");
	ki_wrap_paths_fini(&paths);
	(void)add_places("#include <x.h>\n", "/* */ # /* */ include NAME\n",
			 "k.o: sub/other.h s/x.h s/sub/y.h", &paths, &is_known);
	assert_false(is_known); /* sub/other.h is not to be read */
	ki_wrap_paths_fini(&paths);
}

static void lists_that_lack_something_are_none(void **state)
{
	static const char *const rows[] = { "", "tmpxft_1.o: s/x.h\n",
					    "k.o: s/x.h\nk.o: s/sub/y.h\n",
					    "k.o: nowhere.h\n" };
	struct ki_wrap_paths paths;
	int is_known;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		assert_int_equal(add_places("", "", rows[i], &paths, &is_known),
				 KILN_COUNT_MISS_UNRESOLVED);
		assert_false(is_known);
		ki_wrap_paths_fini(&paths);
	}
}

struct text {
	const char *text;
	enum kiln_counter why;
};

static void texts_that_hide_includes_or_times_are_not_kept(void **state)
{
	static const struct text rows[] = {
		{ "int a = __TIME__;", KILN_COUNT_MISS_TIME_MACRO },
		{ "__DATE__", KILN_COUNT_MISS_TIME_MACRO },
		{ "(__TIMESTAMP__)", KILN_COUNT_MISS_TIME_MACRO },
		{ "__TIMESIZE __TIME__x my__DATE__", KILN_N_COUNTERS },
		{ "#inc\\\nlude <x.h>", KILN_COUNT_MISS_DIRECTIVE },
		{ "#define X \\\n  1", KILN_N_COUNTERS },
		{ "#import <x.h>", KILN_COUNT_MISS_DIRECTIVE },
		{ "#embed <x.h>", KILN_COUNT_MISS_DIRECTIVE },
		{ "?\?=include <x.h>", KILN_COUNT_MISS_DIRECTIVE },
		{ "#if __has_include(X)", KILN_COUNT_MISS_DIRECTIVE },
		{ "#define ASK(x) __has_include(x)",
		  KILN_COUNT_MISS_DIRECTIVE },
		{ "#define ASK __has_include", KILN_COUNT_MISS_DIRECTIVE },
		{ "#define HAS_INCLUDE(x) __has_include(x)", KILN_N_COUNTERS },
		{ "#define HAS __has_include(<x.h>)", KILN_N_COUNTERS },
		{ "#ifdef __has_include", KILN_N_COUNTERS },
		{ "#if __has_include ( <x.h> )", KILN_N_COUNTERS },
	};
	struct ki_wrap_paths paths;
	int is_known;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		if (add_places("", rows[i].text, LIST, &paths, &is_known) !=
			    rows[i].why ||
		    is_known != (rows[i].why == KILN_N_COUNTERS))
			fail_msg("%s", rows[i].text);
		ki_wrap_paths_fini(&paths);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_plan_names_programs_folders_and_files),
		cmocka_unit_test(a_plan_with_other_programs_is_none),
		cmocka_unit_test(folders_that_are_not_there_count),
		cmocka_unit_test(a_name_that_is_too_long_is_no_file),
		cmocka_unit_test(
			a_program_that_changes_within_a_tick_is_another),
		cmocka_unit_test(whatever_may_come_before_an_include_counts),
		cmocka_unit_test(a_computed_name_is_that_of_any_file),
		cmocka_unit_test(lists_that_lack_something_are_none),
		cmocka_unit_test(
			texts_that_hide_includes_or_times_are_not_kept),
	};

	return cmocka_run_group_tests(tests, enter, leave);
}
