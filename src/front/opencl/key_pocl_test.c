/* SPDX-License-Identifier: MIT */

/*
 * Keys against a real compiler: whatever PoCL includes, by whichever spelling,
 * must be in the key.  The header stops the compiler with a message of its
 * own, so the build log tells whether it was read, and quickly.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include <kiln/inspect.h>

#include "front/opencl/key.h"

static cl_icd_dispatch calls;
static struct ki_cl_identities *identities;
static cl_platform_id platform;
static cl_device_id device;
static cl_context context;
static char *directory;

/* ---- Builds ---------------------------------------------------------- */

static struct kiln_key *key_of(const char *source, const char *options,
			       enum kiln_counter *out_reason)
{
	struct ki_cl_source *text = ki_cl_source_new(1, &source, NULL);
	struct ki_cl_recipe *recipe =
		ki_cl_recipe_build(text, NULL, 0, options);
	struct ki_cl_build build = {
		.platform = platform,
		.devices = &device,
		.n_devices = 1,
		.recipe = recipe,
	};
	struct kiln_key *key = NULL;

	(void)ki_cl_key(identities, &build, &key, out_reason);
	ki_cl_recipe_unref(recipe);
	ki_cl_source_unref(text);
	return key;
}

/* Whether the compiler read the header. */
static int includes_header(const char *source, const char *options)
{
	static char log[1 << 16];
	cl_program program;
	cl_int err;

	program = clCreateProgramWithSource(context, 1, &source, NULL, &err);
	assert_int_equal(err, CL_SUCCESS);
	assert_int_not_equal(
		clBuildProgram(program, 1, &device, options, NULL, NULL),
		CL_SUCCESS);
	log[0] = 0;
	(void)clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG,
				    sizeof(log), log, NULL);
	clReleaseProgram(program);
	return !!strstr(log, "kiln_was_here");
}

/* ---- Includes -------------------------------------------------------- */

static void write_text(const char *path, const char *text)
{
	harness_write(path, text, strlen(text));
}

#define INCLUDE "#include \"x.h\"\n"

static const struct {
	const char *name;
	const char *path; /* of the header, below the directory */
	const char *options;
	const char *source;
} ROWS[] = {
	{ "here", "x.h", "", INCLUDE },
	{ "here, angled", "x.h", "", "#include <x.h>\n" },
	{ "joined", "inc/x.h", "-Iinc", INCLUDE },
	{ "separate", "inc/x.h", "-I inc", INCLUDE },
	{ "quoted", "inc/x.h", "-I\"inc\"", INCLUDE },
	{ "quoted, as this PoCL reads it", " inc /x.h", "-I\"inc\"", INCLUDE },
	{ "a blank", "a b/x.h", "-I \"a b\"", INCLUDE },
	{ "in the compiler's folder", "cache/x.h", "", INCLUDE },
	{ "in the compiler's folder, angled", "cache/x.h", "",
	  "#include <x.h>\n" },
	{ "nested", "inc/sub/x.h", "-Iinc", "#include \"sub/outer.h\"\n" },
	{ "a digraph", "x.h", "", "%:include \"x.h\"\n" },
	{ "a trigraph", "x.h", "", "\?\?=include \"x.h\"\n" },
	{ "spliced", "x.h", "", "#in\\\nclude \"x.h\"\n" },
	{ "spliced over a blank", "x.h", "", "#in\\ \nclude \"x.h\"\n" },
	{ "behind a comment that may go on", "x.h", "",
	  "// x \?\?/\n#include \"x.h\"\n#error end\n" },
	{ "behind a stray quote", "x.h", "",
	  "#if 0\ndon't /* go */\n#endif\n#include \"x.h\"\n" },
	{ "computed", "inc/x.h", "-D M2S(x)=XM2S(x) -D XM2S(x)=#x -D P=inc/",
	  "#include M2S(P/x.h)\n" },
	{ "computed, quoted", "x.h", "-DX=<x.h>", "#include X\n" },
};

/* Two keys over a change of the header: equal only if it was not read. */
static void what_the_compiler_includes_is_in_the_key(void **state)
{
	enum kiln_counter reason;

	for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
		struct kiln_key *before, *after;
		int is_read, is_equal;

		write_text(ROWS[i].path, "#error kiln_was_here\n");
		is_read = includes_header(ROWS[i].source, ROWS[i].options);
		before = key_of(ROWS[i].source, ROWS[i].options, &reason);
		assert_non_null(before);
		write_text(ROWS[i].path, "#error kiln_was_hero\n");
		after = key_of(ROWS[i].source, ROWS[i].options, &reason);
		assert_non_null(after);
		is_equal = !memcmp(kiln_key_digest(before),
				   kiln_key_digest(after), KILN_DIGEST_BYTES);
		print_message("# %s: %sread\n", ROWS[i].name,
			      is_read ? "" : "not ");
		assert_false(is_read && is_equal);
		assert_int_equal(unlink(ROWS[i].path), 0);
		kiln_key_free(before);
		kiln_key_free(after);
	}
}

/* ---- Identity -------------------------------------------------------- */

static void find(const struct kiln_key *key, const char *label, int is_there)
{
	struct kiln_field field;
	size_t size;
	const void *record = kiln_key_record(key, &size);

	assert_int_equal(kiln_record_find(record, size, label, &field),
			 is_there ? KILN_OK : KILN_MISS);
}

static unsigned count(const struct kiln_key *key, const char *beginning)
{
	struct kiln_field field;
	size_t position = 0, size, length = strlen(beginning);
	const void *record = kiln_key_record(key, &size);
	unsigned n = 0;

	while (!kiln_record_next(record, size, &position, &field))
		n += field.label_size >= length &&
		     !memcmp(field.label, beginning, length);
	return n;
}

static void pocl_is_identified_down_to_its_builtins(void **state)
{
	enum kiln_counter reason;
	struct kiln_key *key = key_of("k", "", &reason);

	assert_non_null(key);
	assert_string_equal(ki_cl_driver(identities, platform)->name, "pocl");
	find(key, "compiler library libc.so.6", 1);
	find(key, "compiler library libpocl.so.2", 1);
	assert_int_equal(count(key, "compiler library libLLVM"), 1);
	assert_true(count(key, "compiler file kernel-") >= 1);
	assert_true(count(key, "compiler file opencl-c.h") == 1);
	find(key, "device 0 processor", 1);
	find(key, "environment POCL_CACHE_DIR", 0);
	find(key, "environment POCL_WORK_GROUP_METHOD", 0);
	kiln_key_free(key);
	setenv("POCL_WORK_GROUP_METHOD", "loops", 1);
	key = key_of("k", "", &reason);
	unsetenv("POCL_WORK_GROUP_METHOD");
	find(key, "environment POCL_WORK_GROUP_METHOD", 1);
	kiln_key_free(key);
}

/* Nobody identifies the programs that these lead to. */
static void a_variable_that_leads_to_programs_ends_caching(void **state)
{
	static const char *const names[] = {
		"COMPILER_PATH",       "CCC_OVERRIDE_OPTIONS",
		"POCL_PATH_CLANG",     "POCL_PATH_LLVM_LINK",
		"POCL_PATH_LLVM_OPT",  "POCL_PATH_LLVM_LLC",
		"POCL_PATH_LLVM_SPIRV"
	};
	struct ki_cl_identities *before = identities;
	enum kiln_counter reason;
	struct kiln_key *key;
	size_t i;

	for (i = 0; i < 2 * sizeof(names) / sizeof(names[0]); i++) {
		setenv(names[i / 2], i % 2 ? "" : directory, 1);
		identities = ki_cl_identities_new(&calls);
		key = key_of("k", "", &reason);
		assert_int_equal(key != NULL, i % 2);
		if (!key)
			assert_int_equal(reason, KILN_COUNT_MISS_UNSUPPORTED);
		kiln_key_free(key);
		ki_cl_identities_free(identities);
		unsetenv(names[i / 2]);
	}
	identities = before;
}

static int make_key(unsigned index, void *arg)
{
	struct ki_cl_identities *own = ki_cl_identities_new(&calls);
	enum kiln_counter reason;
	struct kiln_key *key;

	identities = own;
	key = key_of("k", "-DX", &reason);
	return !key || memcmp(kiln_key_digest(key), arg, KILN_DIGEST_BYTES);
}

static void other_processes_make_the_same_key(void **state)
{
	enum kiln_counter reason;
	struct kiln_key *key = key_of("k", "-DX", &reason);
	uint8_t digest[KILN_DIGEST_BYTES];

	memcpy(digest, kiln_key_digest(key), sizeof(digest));
	kiln_key_free(key);
	assert_int_equal(harness_processes(2, make_key, digest, HARNESS_HANG_S),
			 0);
}

/* S07: built after moving elsewhere, with the same files there. */
static void another_working_directory_has_the_same_key(void **state)
{
	enum kiln_counter reason;
	struct kiln_key *here, *there;
	char *other = harness_directory();

	write_text("x.h", "int a;\n");
	here = key_of(INCLUDE, "-I inc", &reason);
	assert_int_equal(unlink("x.h"), 0);
	assert_int_equal(chdir(other), 0);
	write_text("x.h", "int a;\n");
	there = key_of(INCLUDE, "-I inc", &reason);
	assert_int_equal(chdir(directory), 0);
	assert_memory_equal(kiln_key_digest(here), kiln_key_digest(there),
			    KILN_DIGEST_BYTES);
	kiln_key_free(here);
	kiln_key_free(there);
	free(other);
}

/* S07: what counts is the program that PATH leads to, not how it leads. */
static void the_order_of_path_and_links_to_tools_do_not_matter(void **state)
{
	char *folder = harness_directory(), *old = strdup(getenv("PATH"));
	char *tool = harness_path(folder, "ld");
	struct ki_cl_identities *before = identities;
	enum kiln_counter reason;
	struct kiln_key *first = key_of("k", "", &reason), *key;
	char path[4096];

	for (size_t i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s:%s", i ? folder : old,
			 i ? old : folder);
		if (i == 2)
			assert_int_equal(symlink("/usr/bin/ld", tool), 0);
		setenv("PATH", path, 1);
		identities = ki_cl_identities_new(&calls);
		key = key_of("k", "", &reason);
		assert_memory_equal(kiln_key_digest(first),
				    kiln_key_digest(key), KILN_DIGEST_BYTES);
		kiln_key_free(key);
		ki_cl_identities_free(identities);
	}
	identities = before;
	setenv("PATH", old, 1);
	kiln_key_free(first);
	free(tool);
	free(folder);
	free(old);
}

/* ---- The whole ------------------------------------------------------- */

static int setup(void **state)
{
	static const char *const FOLDERS[] = { "inc", "inc/sub", " inc ", "a b",
					       "cache" };
	char *cache;
	cl_int err;

	directory = harness_directory();
	assert_int_equal(chdir(directory), 0);
	for (size_t i = 0; i < sizeof(FOLDERS) / sizeof(FOLDERS[0]); i++)
		assert_int_equal(mkdir(FOLDERS[i], 0700), 0);
	write_text("inc/sub/outer.h", INCLUDE);
	cache = harness_path(directory, "cache");
	assert_int_equal(setenv("POCL_CACHE_DIR", cache, 1), 0);
	free(cache);
	assert_int_equal(clGetPlatformIDs(1, &platform, NULL), CL_SUCCESS);
	assert_int_equal(
		clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL),
		CL_SUCCESS);
	context = clCreateContext(NULL, 1, &device, NULL, NULL, &err);
	assert_int_equal(err, CL_SUCCESS);
	calls.clGetPlatformInfo = clGetPlatformInfo;
	calls.clGetDeviceInfo = clGetDeviceInfo;
	calls.clGetExtensionFunctionAddressForPlatform =
		clGetExtensionFunctionAddressForPlatform;
	identities = ki_cl_identities_new(&calls);
	assert_non_null(identities);
	return 0;
}

static int teardown(void **state)
{
	ki_cl_identities_free(identities);
	clReleaseContext(context);
	assert_int_equal(chdir("/"), 0);
	free(directory);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_the_compiler_includes_is_in_the_key),
		cmocka_unit_test(pocl_is_identified_down_to_its_builtins),
		cmocka_unit_test(
			a_variable_that_leads_to_programs_ends_caching),
		cmocka_unit_test(other_processes_make_the_same_key),
		cmocka_unit_test(another_working_directory_has_the_same_key),
		cmocka_unit_test(
			the_order_of_path_and_links_to_tools_do_not_matter),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
