/* SPDX-License-Identifier: MIT */

/*
 * Keys on the stand-in driver, loaded by ourselves: its handles begin with its
 * table, and it may be loaded a second time under another name.
 *
 *	key_test LIBRARY TWIN
 */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"

#include <kiln/inspect.h>

#include "base/hash.h"
#include "front/opencl/device.h"
#include "front/opencl/identity.h"
#include "front/family.h"
#include "front/image.h"
#include "front/opencl/layers.h"
#include "front/parts.h"

static const char *library_path, *twin_path;

/* ---- Drivers --------------------------------------------------------- */

struct driver {
	const cl_icd_dispatch *calls;
	cl_platform_id platform;
	cl_device_id devices[4];
	cl_uint n_devices;
};

static struct driver load(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	clIcdGetPlatformIDsKHR_fn get;
	struct driver driver = { 0 };

	assert_non_null(library);
	*(void **)&get = dlsym(library, "clIcdGetPlatformIDsKHR");
	assert_non_null(get);
	assert_int_equal(get(1, &driver.platform, NULL), CL_SUCCESS);
	driver.calls = *(const cl_icd_dispatch **)driver.platform;
	assert_int_equal(driver.calls->clGetDeviceIDs(
				 driver.platform, CL_DEVICE_TYPE_ALL, 4,
				 driver.devices, &driver.n_devices),
			 CL_SUCCESS);
	return driver;
}

static struct driver driver; /* three devices; the first two equal */
static struct ki_cl_identities *identities;

/* ---- Builds ---------------------------------------------------------- */

/* Of all tests, until the last has ended. */
static struct ki_cl_recipe *recipes[512];
static size_t n_recipes;

static struct ki_cl_recipe *keep(struct ki_cl_recipe *recipe)
{
	assert_non_null(recipe);
	assert_true(n_recipes < sizeof(recipes) / sizeof(recipes[0]));
	return recipes[n_recipes++] = recipe;
}

static void free_recipes(void)
{
	while (n_recipes)
		ki_cl_recipe_unref(recipes[--n_recipes]);
}

static struct ki_cl_build build_of(const char *const *strings,
				   const size_t *lengths, cl_uint n,
				   const char *options)
{
	struct ki_cl_source *source = ki_cl_source_new(n, strings, lengths);
	struct ki_cl_build build = {
		.platform = driver.platform,
		.devices = driver.devices,
		.n_devices = 1,
		.recipe = keep(ki_cl_recipe_build(source, NULL, 0, options)),
	};

	ki_cl_source_unref(source);
	return build;
}

static struct kiln_key *key_of(const struct ki_cl_build *build)
{
	enum kiln_counter reason;
	struct kiln_key *key;

	assert_int_equal(ki_cl_key(identities, build, &key, &reason), KILN_OK);
	return key;
}

static struct kiln_key *key_of_text(const char *source, const char *options)
{
	size_t length = strlen(source);
	struct ki_cl_build build = build_of(&source, &length, 1, options);

	return key_of(&build);
}

/* Whether two keys are equal; frees both. */
static int same(struct kiln_key *a, struct kiln_key *b)
{
	int is_same = !memcmp(kiln_key_digest(a), kiln_key_digest(b),
			      KILN_DIGEST_BYTES);

	kiln_key_free(a);
	kiln_key_free(b);
	return is_same;
}

/* Why a look-up of `a` misses if `b` was built before; frees both. */
static enum kiln_counter reason_of(struct kiln_key *a, struct kiln_key *b)
{
	size_t size;
	const void *record = kiln_key_record(b, &size);
	enum kiln_counter reason = ki_family_miss_reason(a, record, size);

	kiln_key_free(a);
	kiln_key_free(b);
	return reason;
}

static enum kiln_counter refused(const char *source, const char *options)
{
	enum kiln_counter reason = KILN_COUNT_MISS_NEW;
	size_t length = strlen(source);
	struct ki_cl_build build = build_of(&source, &length, 1, options);
	struct kiln_key *key = NULL;

	assert_int_equal(ki_cl_key(identities, &build, &key, &reason),
			 KILN_E_UNSUPPORTED);
	assert_null(key);
	return reason;
}

/* ---- Sources and options --------------------------------------------- */

static void the_same_build_has_the_same_key(void **state)
{
	assert_true(same(key_of_text("k", "-DX"), key_of_text("k", "-DX")));
}

/* S01 */
static void source_and_options_do_not_run_together(void **state)
{
	assert_false(same(key_of_text("ab", "c"), key_of_text("a", "bc")));
	assert_false(same(key_of_text("", "ab"), key_of_text("ab", "")));
}

/* S03 */
static void an_option_added_or_removed_is_another_key(void **state)
{
	assert_false(same(key_of_text("k", "-DX"), key_of_text("k", "")));
	assert_false(same(key_of_text("k", "-DX"), key_of_text("k", "-DY")));
	assert_false(
		same(key_of_text("k", "-DX -DY"), key_of_text("k", "-DY -DX")));
}

static void strings_are_one_text(void **state)
{
	const char *whole[] = { "abcdef" }, *parts[] = { "ab", "", "cdef" };
	const size_t whole_size[] = { 6 }, part_sizes[] = { 2, 0, 4 };
	struct ki_cl_build a = build_of(whole, whole_size, 1, "");
	struct ki_cl_build b = build_of(parts, part_sizes, 3, "");

	assert_true(same(key_of(&a), key_of(&b)));
}

static void lengths_are_believed_not_nuls(void **state)
{
	const char *text[] = { "ab\0cd" }, *parts[] = { "ab\0", "cd" };
	const size_t five[] = { 5 }, two[] = { 2 }, six[] = { 6 };
	const size_t part_sizes[] = { 3, 2 };
	struct ki_cl_build a = build_of(text, five, 1, "");
	struct ki_cl_build b = build_of(text, two, 1, "");
	struct ki_cl_build c = build_of(text, six, 1, "");
	struct ki_cl_build d = build_of(parts, part_sizes, 2, "");

	assert_false(same(key_of(&a), key_of(&b)));
	assert_false(same(key_of(&a), key_of(&c)));
	/* Some driver may stop at the NUL of each string. */
	assert_false(same(key_of(&a), key_of(&d)));
}

static void what_cannot_be_known_is_refused_with_its_reason(void **state)
{
	assert_int_equal(refused("__DATE__", ""), KILN_COUNT_MISS_TIME_MACRO);
	assert_int_equal(refused("k", "-DX=__TIME__"),
			 KILN_COUNT_MISS_TIME_MACRO);
	assert_int_equal(refused("#import \"x\"\n", ""),
			 KILN_COUNT_MISS_DIRECTIVE);
	assert_int_equal(refused("k", "-DX(a)=__has_include(a)"),
			 KILN_COUNT_MISS_DIRECTIVE);
	assert_int_equal(refused("#include X\n", ""),
			 KILN_COUNT_MISS_UNRESOLVED);
	assert_int_equal(refused("k", "@file"), KILN_COUNT_MISS_UNRESOLVED);
	assert_int_equal(refused("k", "-save-temps"),
			 KILN_COUNT_MISS_UNSUPPORTED);
}

/* ---- Recipes --------------------------------------------------------- */

/* What a row's recipe is made of; texts end with the first NULL. */
struct made_of {
	enum ki_cl_recipe_kind kind;
	const char *text; /* source, or IL if it begins with '!' */
	const char *options;
	const char *headers[5]; /* name, text, ... */
	const char *constants;	/* id and value, a digit and a letter each */
	const struct made_of *inputs[4];
	const char *binary;
};

static struct ki_cl_source *source_of(const char *text)
{
	struct ki_cl_source *source =
		*text == '!' ? ki_cl_source_new_il(text + 1, strlen(text) - 1)
			     : ki_cl_source_new(1, &text, NULL);

	assert_non_null(source);
	return source;
}

static cl_uint headers_of(const struct made_of *of,
			  struct ki_cl_header headers[2])
{
	cl_uint n;

	for (n = 0; of->headers[2 * n]; n++) {
		headers[n].name = of->headers[2 * n];
		headers[n].source = source_of(of->headers[2 * n + 1]);
	}
	return n;
}

/* Digits are ids, letters values; capitals have two bytes. */
static cl_uint constants_of(const struct made_of *of,
			    struct ki_cl_constant constants[4])
{
	const char *at = of->constants ? of->constants : "";
	cl_uint n;

	for (n = 0; at[2 * n]; n++) {
		constants[n].id = (cl_uint)(at[2 * n] - '0');
		constants[n].size = at[2 * n + 1] < 'a' ? 2 : 1;
		constants[n].value = (const uint8_t *)&at[2 * n + 1];
	}
	return n;
}

static struct ki_cl_recipe *recipe_of(const struct made_of *of);

static struct ki_cl_recipe *link_of(const struct made_of *of)
{
	struct ki_cl_input inputs[4] = { { 0 } };
	cl_uint n;

	for (n = 0; of->inputs[n]; n++)
		inputs[n].recipe = recipe_of(of->inputs[n]);
	return keep(ki_cl_recipe_link(inputs, n, of->options));
}

static struct ki_cl_recipe *recipe_of(const struct made_of *of)
{
	struct ki_cl_constant constants[4];
	struct ki_cl_header headers[2];
	struct ki_cl_source *source;
	struct ki_cl_recipe *recipe;
	cl_uint n_constants = constants_of(of, constants), n_headers;

	if (of->kind == KI_CL_LINK)
		return link_of(of);
	if (of->kind == KI_CL_BINARY) {
		const unsigned char *bytes = (const unsigned char *)of->binary;
		size_t size = strlen(of->binary);

		return keep(
			ki_cl_recipe_binary(&bytes, &size, 1, 1, of->options));
	}
	source = source_of(of->text);
	n_headers = headers_of(of, headers);
	recipe =
		of->kind == KI_CL_BUILD
			? ki_cl_recipe_build(source, constants, n_constants,
					     of->options)
			: ki_cl_recipe_compile(source, constants, n_constants,
					       headers, n_headers, of->options);
	while (n_headers)
		ki_cl_source_unref(headers[--n_headers].source);
	ki_cl_source_unref(source);
	return keep(recipe);
}

static struct ki_cl_build build_of_recipe(const struct ki_cl_recipe *recipe)
{
	return (struct ki_cl_build){
		.platform = driver.platform,
		.devices = driver.devices,
		.n_devices = 1,
		.recipe = recipe,
	};
}

static struct kiln_key *key_made_of(const struct made_of *of)
{
	struct ki_cl_build build = build_of_recipe(recipe_of(of));

	return key_of(&build);
}

#define BUILD(...)                                                             \
	{                                                                      \
		.kind = KI_CL_BUILD, __VA_ARGS__                               \
	}
#define COMPILE(...)                                                           \
	{                                                                      \
		.kind = KI_CL_COMPILE, __VA_ARGS__                             \
	}
#define BINARY(...)                                                            \
	{                                                                      \
		.kind = KI_CL_BINARY, __VA_ARGS__                              \
	}
#define LINK(...)                                                              \
	{                                                                      \
		.kind = KI_CL_LINK, __VA_ARGS__                                \
	}

static const struct made_of object_a = COMPILE(.text = "a");
static const struct made_of object_b = COMPILE(.text = "b");
static const struct made_of object_a_x = COMPILE(.text = "a", .options = "-DX");
static const struct made_of object_a_empty =
	COMPILE(.text = "a", .options = "");
static const struct made_of object_a_h =
	COMPILE(.text = "a", .headers = { "h", "1" });
static const struct made_of object_il = COMPILE(.text = "!a");
static const struct made_of binary_a = BINARY(.binary = "a");
static const struct made_of binary_b = BINARY(.binary = "b");
static const struct made_of binary_a_x =
	BINARY(.binary = "a", .options = "-DX");
static const struct made_of library_a =
	LINK(.inputs = { &object_a }, .options = "-create-library");
static const struct made_of library_b =
	LINK(.inputs = { &object_b }, .options = "-create-library");

enum { EQUAL = -1 };

static const struct {
	const char *name;
	struct made_of a;
	struct made_of b;
	int reason; /* EQUAL, or why b misses where a is there */
} RECIPES[] = {
	{ "a compilation is no build", BUILD(.text = "a"), COMPILE(.text = "a"),
	  KILN_COUNT_MISS_NEW },
	{ "no options are not empty ones", BUILD(.text = "a"),
	  BUILD(.text = "a", .options = ""), KILN_COUNT_MISS_OPTIONS },
	{ "nor are those of a compilation", COMPILE(.text = "a"),
	  COMPILE(.text = "a", .options = ""), KILN_COUNT_MISS_OPTIONS },
	{ "options of a compilation", COMPILE(.text = "a"),
	  COMPILE(.text = "a", .options = "-DX"), KILN_COUNT_MISS_OPTIONS },
	{ "IL is not a source of the same bytes", BUILD(.text = "a"),
	  BUILD(.text = "!a"), KILN_COUNT_MISS_NEW },
	{ "other IL", BUILD(.text = "!a"), BUILD(.text = "!b"),
	  KILN_COUNT_MISS_NEW },
	{ "constants in another order of setting",
	  BUILD(.text = "!a", .constants = "1x2y"),
	  BUILD(.text = "!a", .constants = "2y1x"), EQUAL },
	{ "a constant that is set again",
	  BUILD(.text = "!a", .constants = "1x2y1z"),
	  BUILD(.text = "!a", .constants = "1z2y"), EQUAL },
	{ "a constant of another value", BUILD(.text = "!a", .constants = "1x"),
	  BUILD(.text = "!a", .constants = "1y"), KILN_COUNT_MISS_OPTIONS },
	{ "a constant of another size", BUILD(.text = "!a", .constants = "1X"),
	  BUILD(.text = "!a", .constants = "1x"), KILN_COUNT_MISS_OPTIONS },
	{ "a constant of another id", BUILD(.text = "!a", .constants = "1x"),
	  BUILD(.text = "!a", .constants = "2x"), KILN_COUNT_MISS_OPTIONS },
	{ "a constant that is not set", BUILD(.text = "!a", .constants = "1x"),
	  BUILD(.text = "!a"), KILN_COUNT_MISS_OPTIONS },
	{ "no header", COMPILE(.text = "a", .headers = { "h", "1" }),
	  COMPILE(.text = "a"), KILN_COUNT_MISS_INCLUDE },
	{ "a header of another text",
	  COMPILE(.text = "a", .headers = { "h", "1" }),
	  COMPILE(.text = "a", .headers = { "h", "2" }),
	  KILN_COUNT_MISS_INCLUDE },
	{ "a header of another name",
	  COMPILE(.text = "a", .headers = { "h", "1" }),
	  COMPILE(.text = "a", .headers = { "i", "1" }),
	  KILN_COUNT_MISS_INCLUDE },
	{ "headers in another order",
	  COMPILE(.text = "a", .headers = { "h", "1", "i", "2" }),
	  COMPILE(.text = "a", .headers = { "i", "2", "h", "1" }),
	  KILN_COUNT_MISS_INCLUDE },
	{ "the same header name twice, in another order",
	  COMPILE(.text = "a", .headers = { "h", "1", "h", "2" }),
	  COMPILE(.text = "a", .headers = { "h", "2", "h", "1" }),
	  KILN_COUNT_MISS_INCLUDE },
	{ "name and text of a header do not run together",
	  COMPILE(.text = "a", .headers = { "h1", "2" }),
	  COMPILE(.text = "a", .headers = { "h", "12" }),
	  KILN_COUNT_MISS_INCLUDE },
	{ "the same link", LINK(.inputs = { &object_a, &object_b }),
	  LINK(.inputs = { &object_a, &object_b }), EQUAL },
	{ "inputs in another order", LINK(.inputs = { &object_a, &object_b }),
	  LINK(.inputs = { &object_b, &object_a }), KILN_COUNT_MISS_INCLUDE },
	{ "an input twice", LINK(.inputs = { &object_a }),
	  LINK(.inputs = { &object_a, &object_a }), KILN_COUNT_MISS_OPTIONS },
	{ "options of a link", LINK(.inputs = { &object_a }),
	  LINK(.inputs = { &object_a }, .options = "-create-library"),
	  KILN_COUNT_MISS_OPTIONS },
	{ "options of an input", LINK(.inputs = { &object_a }),
	  LINK(.inputs = { &object_a_x }), KILN_COUNT_MISS_OPTIONS },
	{ "no options of an input", LINK(.inputs = { &object_a }),
	  LINK(.inputs = { &object_a_empty }), KILN_COUNT_MISS_OPTIONS },
	{ "a header of an input", LINK(.inputs = { &object_a }),
	  LINK(.inputs = { &object_a_h }), KILN_COUNT_MISS_INCLUDE },
	{ "an input from IL", LINK(.inputs = { &object_a }),
	  LINK(.inputs = { &object_il }), KILN_COUNT_MISS_INCLUDE },
	{ "a binary", LINK(.inputs = { &binary_a }),
	  LINK(.inputs = { &binary_a }), EQUAL },
	{ "another binary", LINK(.inputs = { &binary_a }),
	  LINK(.inputs = { &binary_b }), KILN_COUNT_MISS_INCLUDE },
	{ "a binary that was built otherwise", LINK(.inputs = { &binary_a }),
	  LINK(.inputs = { &binary_a_x }), KILN_COUNT_MISS_OPTIONS },
	{ "a library", LINK(.inputs = { &library_a, &object_b }),
	  LINK(.inputs = { &library_a, &object_b }), EQUAL },
	{ "another library", LINK(.inputs = { &library_a }),
	  LINK(.inputs = { &library_b }), KILN_COUNT_MISS_INCLUDE },
	{ "a library is not its object", LINK(.inputs = { &library_a }),
	  LINK(.inputs = { &object_a }), KILN_COUNT_MISS_OPTIONS },
};

static void what_a_program_is_made_of_is_its_key(void **state)
{
	size_t i;

	for (i = 0; i < sizeof(RECIPES) / sizeof(RECIPES[0]); i++) {
		struct kiln_key *a = key_made_of(&RECIPES[i].a);
		struct kiln_key *b = key_made_of(&RECIPES[i].b);

		print_message("# %s\n", RECIPES[i].name);
		if (RECIPES[i].reason == EQUAL)
			assert_true(same(a, b));
		else
			assert_int_equal(reason_of(b, kiln_key_ref(a)),
					 RECIPES[i].reason);
		if (RECIPES[i].reason != EQUAL) {
			assert_false(same(a, key_made_of(&RECIPES[i].b)));
		}
	}
}

/* S07: a header program may include files. */
static void headers_and_inputs_include_files(void **state)
{
	static const struct made_of compiled =
		COMPILE(.text = "#include \"h\"\n",
			.headers = { "h", "#include \"x.h\"\n" });
	static const struct made_of linked = LINK(.inputs = { &compiled });
	char *directory = harness_directory();
	struct kiln_key *absent_object, *absent_program;
	struct ki_cl_build build = build_of_recipe(recipe_of(&linked));
	uint64_t stamp = 0, later = 0;

	assert_int_equal(chdir(directory), 0);
	absent_object = key_made_of(&compiled);
	absent_program = key_made_of(&linked);
	harness_write("x.h", "a", 1);
	assert_false(same(absent_object, key_made_of(&compiled)));
	assert_false(same(absent_program, key_made_of(&linked)));

	build.out_stamp = &stamp;
	kiln_key_free(key_of(&build));
	build.out_stamp = &later;
	kiln_key_free(key_of(&build));
	assert_int_equal(stamp, later);
	assert_int_equal(unlink("x.h"), 0);
	harness_write("x.h", "a", 1);
	kiln_key_free(key_of(&build));
	assert_int_not_equal(stamp, later);
	free(directory);
}

/* An object stays what it is when a file that it was made from changes. */
static void an_input_counts_as_it_was_when_it_was_made(void **state)
{
	static const struct made_of compiled =
		COMPILE(.text = "#include \"x.h\"\n");
	static const struct made_of linked = LINK(.inputs = { &compiled });
	char *directory = harness_directory();
	struct ki_cl_input input = { .recipe = recipe_of(&compiled) };
	struct ki_cl_build build = build_of_recipe(input.recipe);
	struct kiln_key *before;

	assert_int_equal(chdir(directory), 0);
	build.out_stamp = &input.stamp;
	input.key = key_of(&build);
	before = key_made_of(&linked);
	harness_write("x.h", "a", 1);
	build = build_of_recipe(keep(ki_cl_recipe_link(&input, 1, NULL)));
	assert_true(same(key_of(&build), kiln_key_ref(before)));
	assert_false(same(before, key_made_of(&linked)));
	kiln_key_free(input.key);
	free(directory);
}

static void a_recipe_that_cannot_be_known_has_no_key(void **state)
{
	static const struct made_of timed =
		COMPILE(.text = "a", .headers = { "h", "__TIME__" });
	static const struct {
		const char *name;
		struct made_of of;
		enum kiln_counter reason;
	} rows[] = {
		{ "a binary", BINARY(.binary = "a"),
		  KILN_COUNT_MISS_UNSUPPORTED },
		{ "IL as a header",
		  COMPILE(.text = "a", .headers = { "h", "!a" }),
		  KILN_COUNT_MISS_UNSUPPORTED },
		{ "headers of IL",
		  COMPILE(.text = "!a", .headers = { "h", "a" }),
		  KILN_COUNT_MISS_UNSUPPORTED },
		{ "the time in a header",
		  COMPILE(.text = "a", .headers = { "h", "__TIME__" }),
		  KILN_COUNT_MISS_TIME_MACRO },
		{ "the time in a header of an input",
		  LINK(.inputs = { &object_a, &timed }),
		  KILN_COUNT_MISS_TIME_MACRO },
		{ "options of IL that read files",
		  BUILD(.text = "!a", .options = "@file"),
		  KILN_COUNT_MISS_UNRESOLVED },
		{ "options of a link that write files",
		  LINK(.inputs = { &object_a }, .options = "-save-temps"),
		  KILN_COUNT_MISS_UNSUPPORTED },
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ki_cl_build build =
			build_of_recipe(recipe_of(&rows[i].of));
		enum kiln_counter reason = KILN_COUNT_MISS_NEW;
		struct kiln_key *key;

		print_message("# %s\n", rows[i].name);
		assert_int_equal(ki_cl_key(identities, &build, &key, &reason),
				 KILN_E_UNSUPPORTED);
		assert_int_equal(reason, rows[i].reason);
	}
}

/* S15: drivers read what is where header programs are in name only. */
static void where_headers_are_in_name_only_nothing_may_be(void **state)
{
	static const struct made_of with =
		COMPILE(.text = "#include \"x.h\"\n", .headers = { "h", "1" });
	static const struct made_of without =
		COMPILE(.text = "#include \"x.h\"\n");
	char *directory = harness_directory();
	char *folder = harness_path(directory, "kiln-test-headers");
	struct ki_cl_build build = build_of_recipe(recipe_of(&with));
	enum kiln_counter reason = KILN_COUNT_MISS_NEW;
	struct kiln_key *before, *key;

	assert_int_equal(setenv("TMPDIR", directory, 1), 0);
	before = key_made_of(&with);
	kiln_key_free(key_made_of(&without));
	assert_int_equal(mkdir(folder, 0700), 0);
	assert_int_equal(ki_cl_key(identities, &build, &key, &reason),
			 KILN_E_UNSUPPORTED);
	assert_int_equal(reason, KILN_COUNT_MISS_UNRESOLVED);
	kiln_key_free(key_made_of(&without));
	assert_int_equal(rmdir(folder), 0);
	assert_true(same(before, key_made_of(&with)));
	assert_int_equal(unsetenv("TMPDIR"), 0);
	free(folder);
	free(directory);
}

static void header_folders_are_where_drivers_have_them(void **state)
{
	static const struct {
		const char *variable, *value, *library, *folder;
	} rows[] = {
		{ "TMPDIR", "/a", "libRusticlOpenCL.so", "/a/openclon12" },
		{ "TEMPDIR", "/b", "libRusticlOpenCL.so", "/b/openclon12" },
		{ "TMPDIR", "", "libRusticlOpenCL.so", "./openclon12" },
		{ NULL, NULL, "libRusticlOpenCL.so", "/tmp/openclon12" },
		{ "TMPDIR", "/a", "liboclgrind-rt-icd.so", "/remapped" },
		{ "TMPDIR", "/a", "libpocl.so", NULL },
	};
	char folder[KI_PATH_MAX];
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct ki_cl_driver_row *row =
			ki_cl_driver_of_library(rows[i].library);

		if (rows[i].variable)
			assert_int_equal(
				setenv(rows[i].variable, rows[i].value, 1), 0);
		assert_int_equal(ki_cl_driver_header_folder(row, folder),
				 rows[i].folder != NULL);
		if (rows[i].folder)
			assert_string_equal(folder, rows[i].folder);
		if (rows[i].variable)
			assert_int_equal(unsetenv(rows[i].variable), 0);
	}
}

/* Each a link of the one before, twice: the tree doubles. */
static void recipes_beyond_the_limits_are_not_made(void **state)
{
	struct ki_cl_input two[2] = { { .recipe = recipe_of(&object_a) } };
	const struct ki_cl_recipe *recipe = two[0].recipe;
	unsigned depth;

	for (depth = 2; recipe; depth++) {
		two[1] = two[0];
		recipe = ki_cl_recipe_link(two, 2, "");
		if (recipe)
			two[0].recipe =
				keep((struct ki_cl_recipe *)(uintptr_t)recipe);
	}
	assert_true(two[0].recipe->n_nodes <= KI_CL_RECIPE_NODES_MAX);
	assert_true(two[0].recipe->n_nodes > KI_CL_RECIPE_NODES_MAX / 4);
	two[0].recipe = recipe_of(&object_a);
	for (depth = 1; (recipe = ki_cl_recipe_link(two, 1, "")); depth++)
		two[0].recipe = keep((struct ki_cl_recipe *)(uintptr_t)recipe);
	assert_int_equal(depth, KI_CL_RECIPE_DEPTH_MAX);
	two[0].recipe = recipe_of(&(struct made_of)BUILD(.text = "a"));
	assert_null(ki_cl_recipe_link(two, 1, ""));
	assert_null(ki_cl_recipe_link(two, 0, ""));
}

/* ---- Devices (S05) --------------------------------------------------- */

static void equal_devices_share_and_others_do_not(void **state)
{
	const char *source[] = { "k" };
	const size_t size[] = { 1 };
	struct ki_cl_build first = build_of(source, size, 1, "");
	struct ki_cl_build second = first, other = first, both = first;

	assert_int_equal(driver.n_devices, 3);
	second.devices = &driver.devices[1];
	other.devices = &driver.devices[2];
	both.n_devices = 2;
	assert_true(same(key_of(&first), key_of(&second)));
	assert_false(same(key_of(&first), key_of(&other)));
	assert_false(same(key_of(&first), key_of(&both)));
	assert_int_equal(reason_of(key_of(&first), key_of(&other)),
			 KILN_COUNT_MISS_DEVICE);
	assert_int_equal(reason_of(key_of(&first), key_of(&both)),
			 KILN_COUNT_MISS_DEVICE);
}

static void the_order_of_devices_counts(void **state)
{
	const char *source[] = { "k" };
	const size_t size[] = { 1 };
	cl_device_id forth[] = { driver.devices[0], driver.devices[2] };
	cl_device_id back[] = { driver.devices[2], driver.devices[0] };
	struct ki_cl_build a = build_of(source, size, 1, ""), b;

	a.devices = forth;
	a.n_devices = 2;
	b = a;
	b.devices = back;
	assert_false(same(key_of(&a), key_of(&b)));
}

static void a_processor_says_the_same_on_every_core(void **state)
{
	char a[KI_CL_CPU_BYTES], b[KI_CL_CPU_BYTES];

	for (int i = 0; i < 100; i++) {
		ki_cl_cpu_identity(a);
		ki_cl_cpu_identity(b);
		assert_string_equal(a, b);
	}
	assert_true(strlen(a) > 4);
}

/* A word of the first "flags" line of /proc/cpuinfo. */
static int has_flag(const char *flag)
{
	char *text = harness_read("/proc/cpuinfo", NULL), *line, *word;
	char *save = NULL;
	int found = 0;

	line = text ? strstr(text, "\nflags") : NULL;
	if (line)
		line[1 + strcspn(line + 1, "\n")] = '\0';
	for (word = line ? strtok_r(line, " \t:\n", &save) : NULL; word;
	     word = strtok_r(NULL, " \t:\n", &save))
		found |= !strcmp(word, flag);
	free(text);
	return found;
}

/* Virtual machines hide these, one by one, of processors that are otherwise
   equal. */
static void what_a_processor_may_lack_is_told(void **state)
{
	static const struct {
		const char *flag;
		const char *label;
		int number;
		unsigned bit;
	} rows[] = {
		{ "sse4_2", "1:", 1, 20 },     { "avx2", " 7:", 0, 5 },
		{ "abm", " x1:", 0, 5 },       { "sse4a", " x1:", 0, 6 },
		{ "avx_vnni", " 7.1:", 0, 4 }, { "avx512_bf16", " 7.1:", 0, 5 },
	};
	char text[KI_CL_CPU_BYTES], *at;
	size_t i;

	ki_cl_cpu_identity(text);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (!has_flag(rows[i].flag))
			continue;
		at = strstr(text, rows[i].label);
		assert_non_null(at);
		at += strlen(rows[i].label) + 9 * (size_t)rows[i].number;
		assert_true(strtoul(at, NULL, 16) >> rows[i].bit & 1);
	}
}

/* ---- Compilers (S04) ------------------------------------------------- */

static struct kiln_key *key_with(const struct driver *other, const char *source)
{
	struct ki_cl_identities *theirs = ki_cl_identities_new(other->calls);
	size_t length = strlen(source);
	struct ki_cl_build build = build_of(&source, &length, 1, "");
	enum kiln_counter reason;
	struct kiln_key *key;

	build.platform = other->platform;
	build.devices = other->devices;
	assert_int_equal(ki_cl_key(theirs, &build, &key, &reason), KILN_OK);
	ki_cl_identities_free(theirs);
	return key;
}

/* All strings are equal, the build-id is not. */
static void another_build_of_the_driver_is_another_compiler(void **state)
{
	struct driver twin = load(twin_path);

	assert_false(same(key_of_text("k", ""), key_with(&twin, "k")));
	assert_int_equal(reason_of(key_of_text("k", ""), key_with(&twin, "k")),
			 KILN_COUNT_MISS_COMPILER);
	assert_true(same(key_of_text("k", ""), key_with(&driver, "k")));
}

static void copy_file(const char *from, const char *to)
{
	size_t size;
	char *data = harness_read(from, &size);

	assert_non_null(data);
	(void)unlink(to);
	harness_write(to, data, size);
	free(data);
}

/* S07: where a driver lies does not matter. */
static void the_same_driver_elsewhere_is_the_same_compiler(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "libkiln-test-icd.so");
	struct driver elsewhere;

	copy_file(library_path, path);
	elsewhere = load(path);
	assert_ptr_not_equal(elsewhere.platform, driver.platform);
	assert_true(same(key_of_text("k", ""), key_with(&elsewhere, "k")));
	free(path);
	free(directory);
}

/* In one process builds can be told apart all the same, as long as nobody need
   know where this driver looks for files. */
static void expect_passing_keys(struct ki_cl_identities *theirs,
				const struct driver *other)
{
	static const char *const texts[] = { "a", "b", "#include \"c\"\n" };
	struct kiln_key *keys[3], *again;

	for (int i = 0; i < 3; i++) {
		struct ki_cl_build build = build_of(&texts[i], NULL, 1, "-DX");

		build.platform = other->platform;
		build.devices = other->devices;
		assert_int_equal(ki_cl_passing_key(theirs, &build, &keys[i]),
				 i < 2 ? KILN_OK : KILN_E_UNSUPPORTED);
		if (i)
			continue;
		assert_int_equal(ki_cl_passing_key(theirs, &build, &again),
				 KILN_OK);
		assert_true(same(kiln_key_ref(keys[0]), again));
		setenv("NOBODY_KNOWS", "what it does", 1);
		assert_int_equal(ki_cl_passing_key(theirs, &build, &again),
				 KILN_OK);
		unsetenv("NOBODY_KNOWS");
		assert_false(same(kiln_key_ref(keys[0]), again));
	}
	assert_false(same(keys[0], keys[1]));
}

/* The same driver under a name that nobody has heard of, SONAME included. */
static void a_driver_without_a_row_is_not_cached(void **state)
{
	char *directory = harness_directory(), *why = NULL, *data, *at;
	char *path = harness_path(directory, "libwhatever.so");
	struct ki_cl_identities *theirs;
	struct driver other;
	size_t size;

	data = harness_read(library_path, &size);
	assert_non_null(data);
	while ((at = memmem(data, size, "libkiln-test-icd.so", 19)))
		memcpy(at, "libkilo", 7);
	harness_write(path, data, size);
	free(data);
	other = load(path);
	theirs = ki_cl_identities_new(other.calls);
	assert_int_equal(ki_cl_platform_status(theirs, other.platform,
					       (const char **)&why),
			 KILN_E_UNSUPPORTED);
	assert_non_null(why);
	assert_string_equal(ki_cl_driver(theirs, other.platform)->name,
			    "unknown");
	expect_passing_keys(theirs, &other);
	ki_cl_identities_free(theirs);
	free(path);
	free(directory);
}

/* No build-id, equal size, equal times: the content decides. */
static void a_library_without_build_id_is_known_by_its_content(void **state)
{
	char a[KI_IDENTITY_BYTES], b[KI_IDENTITY_BYTES];
	const struct timespec epoch[2] = { { 0 } };
	char *directory = harness_directory();
	char *path = harness_path(directory, "library.so");

	harness_write(path, "contents 1", 10);
	assert_int_equal(utimensat(AT_FDCWD, path, epoch, 0), 0);
	assert_int_equal(ki_library_identity(&ki_sys_posix, path, a), 0);
	harness_write(path, "contents 2", 10);
	assert_int_equal(utimensat(AT_FDCWD, path, epoch, 0), 0);
	assert_int_equal(ki_library_identity(&ki_sys_posix, path, b), 0);
	assert_int_equal(strncmp(a, "blake2b ", 8), 0);
	assert_string_not_equal(a, b);
	assert_int_equal(ki_library_identity(&ki_sys_posix, directory, a),
			 -EINVAL);
	free(path);
	free(directory);
}

static void a_library_says_the_same_loaded_and_on_disk(void **state)
{
	char identity[KI_IDENTITY_BYTES];
	const struct ki_image *image;
	struct ki_images images;

	ki_images_take(&images);
	assert_int_equal(images.failed, 0);
	image = ki_image_named(&images, library_path);
	assert_non_null(image);
	assert_int_equal(
		ki_library_identity(&ki_sys_posix, library_path, identity), 0);
	assert_string_equal(identity, image->build_id);
	assert_non_null(ki_image_named(&images, "libc.so.6"));
	assert_non_null(ki_image_at(
		&images, (const void *)(uintptr_t)
				 a_library_says_the_same_loaded_and_on_disk));
	ki_images_fini(&images);
}

/* ---- A compiler's other files ---------------------------------------- */

static const struct ki_part TEST_PARTS[] = {
	{ KI_PART_LIBRARY, { "@/none", "@/late" }, "liblate", ".so", 0 },
	{ KI_PART_DATA, { "@/data" }, "builtins.bc", NULL, 1 },
};

static void parts_are_found_watched_and_missed(void **state)
{
	const struct ki_cl_driver_row row = { .parts = TEST_PARTS,
					      .n_parts = 2 };
	char *directory = harness_directory();
	char *driver_path = harness_path(directory, "libdriver.so");
	struct ki_part_files files;
	struct ki_images images;

	assert_int_equal(chdir(directory), 0);
	assert_int_equal(ki_parts_find(&ki_sys_posix, row.parts, row.n_parts,
				       driver_path, &files),
			 -ENOENT);
	assert_int_equal(mkdir("late", 0700) | mkdir("data", 0700), 0);
	copy_file(library_path, "late/liblate-1.so");
	harness_write("late/other.so", "", 0);
	harness_write("data/builtins.bc", "1234", 4);
	assert_int_equal(ki_parts_find(&ki_sys_posix, row.parts, row.n_parts,
				       driver_path, &files),
			 0);
	assert_int_equal(files.n, 2);
	assert_string_equal(files.files[0].name, "liblate-1.so");
	assert_int_equal(strncmp(files.files[0].identity, "build-id ", 9), 0);
	assert_int_equal(strncmp(files.files[1].identity, "xxh3 ", 5), 0);
	assert_false(ki_parts_changed(&ki_sys_posix, &files));

	/* Replaced before it is loaded. */
	copy_file(twin_path, "late/liblate-1.so");
	assert_true(ki_parts_changed(&ki_sys_posix, &files));
	assert_non_null(dlopen(files.files[0].path, RTLD_NOW | RTLD_LOCAL));
	ki_images_take(&images);
	assert_true(ki_parts_loaded_otherwise(&ki_sys_posix, row.parts,
					      row.n_parts, &files, &images));
	ki_images_fini(&images);
	ki_parts_fini(&files);

	/* Identified as it is loaded. */
	assert_int_equal(ki_parts_find(&ki_sys_posix, row.parts, row.n_parts,
				       driver_path, &files),
			 0);
	ki_images_take(&images);
	assert_false(ki_parts_loaded_otherwise(&ki_sys_posix, row.parts,
					       row.n_parts, &files, &images));
	ki_images_fini(&images);
	ki_parts_fini(&files);
	free(driver_path);
	free(directory);
}

static int n_opens_left;

static int opendir_without_descriptors(const struct ki_sys *sys,
				       const char *path,
				       struct ki_dir **out_dir)
{
	return n_opens_left-- > 0
		       ? ki_sys_posix.opendir(&ki_sys_posix, path, out_dir)
		       : -EMFILE;
}

/* A folder that cannot be listed may hold anything. */
static void a_folder_that_cannot_be_read_is_not_an_empty_one(void **state)
{
	const struct ki_cl_driver_row row = { .parts = TEST_PARTS,
					      .n_parts = 1 };
	char *directory = harness_directory();
	struct ki_sys sys = ki_sys_posix;
	struct ki_part_files files;

	assert_int_equal(chdir(directory), 0);
	assert_int_equal(mkdir("late", 0700), 0);
	copy_file(library_path, "late/liblate-1.so");
	sys.opendir = opendir_without_descriptors;
	n_opens_left = 1; /* the folder that is not there */
	assert_int_equal(ki_parts_find(&sys, row.parts, row.n_parts,
				       "./libdriver.so", &files),
			 -EMFILE);
	n_opens_left = 2;
	assert_int_equal(ki_parts_find(&sys, row.parts, row.n_parts,
				       "./libdriver.so", &files),
			 0);
	assert_int_equal(files.n, 1);
	ki_parts_fini(&files);
	free(directory);
}

/* What changes below a running program: each ends caching for good. */
static void a_compiler_that_changes_ends_caching(void **state)
{
	static const char *const FILES[] = { "late/libkiln-test-late-1.so",
					     "late/builtins-1.bc" };

	for (size_t i = 0; i < 3; i++) {
		char *directory = harness_directory();
		char *path = harness_path(directory, "libkiln-test-icd.so");
		struct ki_cl_identities *theirs;
		struct driver other;
		const char *why = NULL;
		void *late = NULL;

		assert_int_equal(chdir(directory), 0);
		assert_int_equal(mkdir("late", 0700), 0);
		copy_file(library_path, path);
		copy_file(library_path, FILES[0]);
		harness_write(FILES[1], "1234", 4);
		other = load(path);
		theirs = ki_cl_identities_new(other.calls);
		assert_int_equal(
			ki_cl_platform_status(theirs, other.platform, &why),
			KILN_OK);
		if (i < 2) {
			copy_file(twin_path, FILES[i]);
		} else { /* the name of a known one, from elsewhere */
			copy_file(twin_path, "libkiln-test-late-2.so");
			late = dlopen("./libkiln-test-late-2.so",
				      RTLD_NOW | RTLD_LOCAL);
			assert_non_null(late);
		}
		assert_int_equal(
			ki_cl_platform_status(theirs, other.platform, &why),
			KILN_E_UNSUPPORTED);
		assert_non_null(why);
		if (i < 2)
			copy_file(library_path, FILES[i]);
		else
			assert_int_equal(dlclose(late), 0);
		assert_int_equal(
			ki_cl_platform_status(theirs, other.platform, &why),
			KILN_E_UNSUPPORTED);
		ki_cl_identities_free(theirs);
		free(path);
		free(directory);
	}
}

/* A driver that loads it by name would get the other. */
static void another_compiler_by_the_library_path_is_not_cached(void **state)
{
	static const struct {
		const char *path; /* "@" is the working directory */
		int may_be_cached;
	} rows[] = {
		{ "", 1 },
		{ "@/empty", 1 },
		{ "@/late", 1 }, /* the same file */
		{ "@/empty:@/hidden", 0 },
		{ "@/hidden;@/empty", 0 },
		{ "hidden", 0 },
	};
	char *directory = harness_directory(), value[1024];
	char *path = harness_path(directory, "libkiln-test-icd.so");
	struct ki_cl_identities *theirs;
	struct driver other;
	const char *why, *at;
	size_t i, n;

	assert_int_equal(chdir(directory), 0);
	assert_int_equal(mkdir("late", 0700) | mkdir("empty", 0700) |
				 mkdir("hidden", 0700),
			 0);
	copy_file(library_path, path);
	copy_file(library_path, "late/libkiln-test-late-1.so");
	copy_file(twin_path, "hidden/libkiln-test-late-1.so");
	other = load(path);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (at = rows[i].path, n = 0; *at; at++)
			n += (size_t)snprintf(value + n, sizeof(value) - n,
					      "%.*s", *at == '@' ? 1000 : 1,
					      *at == '@' ? directory : at);
		value[n] = '\0';
		setenv("LD_LIBRARY_PATH", value, 1);
		theirs = ki_cl_identities_new(other.calls);
		why = NULL;
		assert_int_equal(
			ki_cl_platform_status(theirs, other.platform, &why),
			rows[i].may_be_cached ? KILN_OK : KILN_E_UNSUPPORTED);
		assert_int_equal(why && strstr(why, "LD_LIBRARY_PATH"),
				 !rows[i].may_be_cached);
		ki_cl_identities_free(theirs);
	}
	unsetenv("LD_LIBRARY_PATH");
	free(path);
	free(directory);
}

/* The compiler's own programs are those that would be run. */
static void a_program_is_the_first_of_the_path(void **state)
{
	static const struct ki_part part = {
		KI_PART_LIBRARY, { "$PATH", "last" }, "link", NULL, 0
	};
	const struct ki_cl_driver_row row = { .parts = &part, .n_parts = 1 };
	static const struct {
		const char *path;
		const char *found;
	} rows[] = {
		{ "one:two", "one/link" },   { "two:one", "two/link" },
		{ "none:two", "two/link" },  { ":two:", "two/link" },
		{ "plain:one", "one/link" }, { "folder:two", "two/link" },
		{ "none", "last/link" },     { "", "last/link" },
		{ NULL, "last/link" },
	};
	static const char *const folders[] = { "one", "two", "plain", "last",
					       "folder" };
	char *directory = harness_directory(), *old = getenv("PATH");
	struct ki_part_files files;
	char path[64];
	size_t i;

	old = old ? strdup(old) : NULL;
	assert_int_equal(chdir(directory), 0);
	for (i = 0; i < 5; i++) {
		assert_int_equal(mkdir(folders[i], 0700), 0);
		snprintf(path, sizeof(path), "%s/link", folders[i]);
		if (i == 4) {
			assert_int_equal(mkdir(path, 0700), 0);
			continue;
		}
		harness_write(path, folders[i], strlen(folders[i]));
		assert_int_equal(chmod(path, i == 2 ? 0600 : 0700), 0);
	}
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (rows[i].path)
			setenv("PATH", rows[i].path, 1);
		else
			unsetenv("PATH");
		assert_int_equal(ki_parts_find(&ki_sys_posix, row.parts,
					       row.n_parts, "libdriver.so",
					       &files),
				 0);
		assert_int_equal(files.n, 1);
		assert_string_equal(files.files[0].path, rows[i].found);
		ki_parts_fini(&files);
	}
	if (old)
		setenv("PATH", old, 1);
	free(old);
	free(directory);
}

/* A driver may look at variables when it runs a program, which may be long
   after it was identified. */
static void a_path_that_changes_ends_caching(void **state)
{
	struct ki_cl_identities *theirs = ki_cl_identities_new(driver.calls);
	const char *why = NULL;
	char *old = strdup(getenv("PATH"));

	assert_int_equal(ki_cl_platform_status(theirs, driver.platform, &why),
			 KILN_OK);
	setenv("PATH", "/elsewhere", 1);
	assert_int_equal(ki_cl_platform_status(theirs, driver.platform, &why),
			 KILN_E_UNSUPPORTED);
	assert_non_null(strstr(why, "variable"));
	setenv("PATH", old, 1);
	ki_cl_identities_free(theirs);
	free(old);
}

static void a_builtin_library_is_found_by_its_device(void **state)
{
	static const char *const FILES[] = {
		"kernel-x86_64-pc-linux-gnu-sse2.bc",
		"kernel-x86_64-pc-linux-gnu-avx.bc",
		"kernel-x86_64-pc-linux-gnu-avx2.bc",
		"kernel-x86_64-pc-linux-gnu-avx512.bc",
	};
	static const struct {
		const char *device;
		int uses[4];
	} DEVICES[] = {
		{ "pthread-skylake-avx512-AMD EPYC", { 0, 0, 0, 1 } },
		{ "basic-haswell-Intel(R) Core(TM)", { 0, 0, 1, 0 } },
		{ "cpu-sandybridge-Xeon", { 0, 1, 0, 0 } },
		{ "cpu-znver9-Some CPU", { -1, -1, -1, -1 } },
	};
	const struct ki_cl_driver_row *row =
		ki_cl_driver_of_library("libpocl.so.2.10.0");
	const struct ki_part *part = NULL;

	for (size_t i = 0; i < row->n_parts; i++)
		if (row->parts[i].kind == KI_PART_PER_DEVICE)
			part = &row->parts[i];
	assert_non_null(part);
	for (size_t i = 0; i < 4; i++)
		for (size_t j = 0; j < 4; j++)
			assert_int_equal(ki_cl_driver_uses(part, FILES[j],
							   DEVICES[i].device),
					 DEVICES[i].uses[j]);
}

static void drivers_are_known_by_their_libraries(void **state)
{
	static const char *const ROWS[][2] = {
		{ "libpocl.so.2.10.0", "pocl" },
		{ "libRusticlOpenCL.so.1", "rusticl" },
		{ "libMesaOpenCL.so.1.0.0", "clover" },
		{ "liboclgrind-rt-icd.so", "oclgrind" },
		{ "libigdrcl.so", "neo" },
		{ "libkiln-test-icd.so", "kiln-test" },
		{ "libkiln-test-icd-twin.so", "kiln-test" },
		{ "libpocl.sox", "unknown" },
		{ "libnvidia-opencl.so.1", "unknown" },
	};

	for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++)
		assert_string_equal(
			ki_cl_driver_of_library(ROWS[i][0])->driver.name,
			ROWS[i][1]);
}

/* kiln-worker has no other variables than a job's. */
static void what_a_driver_needs_to_be_cached_goes_with_jobs(void **state)
{
	const struct ki_cl_driver_row *row =
		ki_cl_driver_of_library("liboclgrind-rt-icd.so");
	const char *needed = row->needed_variable;
	const char *const *names = row->driver.place_variables;
	int n = 0;

	assert_non_null(needed);
	for (; *names; names++)
		n += strlen(*names) == strcspn(needed, "=") &&
		     !strncmp(*names, needed, strlen(*names));
	assert_int_equal(n, 1);
}

/* ---- Environment, includes, reasons ---------------------------------- */

static void variables_that_change_code_are_in_the_key(void **state)
{
	struct kiln_key *before = key_of_text("k", ""), *with;

	assert_int_equal(setenv("KILN_TEST_ICD_CODE", "fast", 1), 0);
	with = key_of_text("k", "");
	assert_int_equal(unsetenv("KILN_TEST_ICD_CODE"), 0);
	assert_int_equal(reason_of(before, with), KILN_COUNT_MISS_ENVIRONMENT);
	assert_int_equal(setenv("KILN_TEST_ICD_CALLS", "/dev/null", 1), 0);
	with = key_of_text("k", "");
	assert_int_equal(unsetenv("KILN_TEST_ICD_CALLS"), 0);
	assert_true(same(key_of_text("k", ""), with));
}

static void options_from_the_environment_are_options(void **state)
{
	char *directory = harness_directory(), options[512];
	struct kiln_key *before, *after;

	assert_int_equal(chdir(directory), 0);
	harness_write("x.h", "a", 1);
	snprintf(options, sizeof(options), "-I%s", directory);
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(setenv("KILN_TEST_ICD_BUILD_OPTIONS", options, 1), 0);
	before = key_of_text("#include <x.h>\n", "");
	assert_int_equal(chdir(directory), 0);
	harness_write("x.h", "b", 1);
	assert_int_equal(chdir("/"), 0);
	after = key_of_text("#include <x.h>\n", "");
	assert_int_equal(reason_of(before, after), KILN_COUNT_MISS_INCLUDE);
	assert_int_equal(
		setenv("KILN_TEST_ICD_BUILD_OPTIONS", "-DX=__DATE__", 1), 0);
	assert_int_equal(refused("k", ""), KILN_COUNT_MISS_TIME_MACRO);
	assert_int_equal(unsetenv("KILN_TEST_ICD_BUILD_OPTIONS"), 0);
	free(directory);
}

static void a_miss_has_its_reason(void **state)
{
	char *directory = harness_directory();
	struct kiln_key *before;

	assert_int_equal(chdir(directory), 0);
	assert_int_equal(reason_of(key_of_text("k", ""), key_of_text("k", "")),
			 KILN_COUNT_MISS_NEW);
	assert_int_equal(
		reason_of(key_of_text("k", "-DX"), key_of_text("k", "")),
		KILN_COUNT_MISS_OPTIONS);
	before = key_of_text("#include \"x.h\"\n", "");
	harness_write("x.h", "a", 1);
	assert_int_equal(
		reason_of(before, key_of_text("#include \"x.h\"\n", "")),
		KILN_COUNT_MISS_INCLUDE);
	/* A damaged record blames something, and nothing else happens. */
	before = key_of_text("k", "");
	(void)ki_family_miss_reason(before, "KK\1", 3);
	(void)ki_family_miss_reason(before, "", 0);
	kiln_key_free(before);
	free(directory);
}

static void a_family_is_its_source(void **state)
{
	struct kiln_key *keys[] = { key_of_text("k", ""),
				    key_of_text("k", "-DX"),
				    key_of_text("l", "") };
	struct kiln_key *families[3];

	for (int i = 0; i < 3; i++) {
		assert_int_equal(ki_cl_family_key(keys[i], &families[i]),
				 KILN_OK);
		kiln_key_free(keys[i]);
	}
	assert_true(same(kiln_key_ref(families[0]), families[1]));
	assert_false(same(families[0], families[2]));
}

static struct kiln_key *family_made_of(const struct made_of *of)
{
	struct kiln_key *key = key_made_of(of), *family;

	assert_int_equal(ki_cl_family_key(key, &family), KILN_OK);
	kiln_key_free(key);
	return family;
}

static void links_and_il_have_families_too(void **state)
{
	static const struct made_of built = BUILD(.text = "a");
	static const struct made_of il = BUILD(.text = "!a");
	static const struct made_of il_1 =
		BUILD(.text = "!a", .constants = "1x");
	static const struct made_of linked =
		LINK(.inputs = { &object_a, &library_b });
	static const struct made_of linked_x =
		LINK(.inputs = { &object_a_x, &library_b }, .options = "-w");
	static const struct made_of of_binary =
		LINK(.inputs = { &object_a, &binary_b });

	assert_true(same(family_made_of(&il), family_made_of(&il_1)));
	assert_true(same(family_made_of(&linked), family_made_of(&linked_x)));
	assert_false(same(family_made_of(&linked), family_made_of(&of_binary)));
	assert_false(same(family_made_of(&built), family_made_of(&object_a)));
}

/* ---- Layers ---------------------------------------------------------- */

#define BLOCK(text) text, sizeof(text)

static const struct {
	const char *name;
	const char *block;
	size_t size;
	const char *layers; /* each with a ':' behind */
} BLOCKS[] = {
	{ "no variable", BLOCK("A=b\0C=d"), "" },
	{ "one", BLOCK("A=b\0OPENCL_LAYERS=/x/a.so\0C=d"), "/x/a.so:" },
	{ "whole", BLOCK("OPENCL_LAYERS=/a.so:/b.so:c.so\0C=d"),
	  "/a.so:/b.so:c.so:" },
	{ "cut", BLOCK("OPENCL_LAYERS=/a.so\0/b.so\0c.so\0C=d\0/e.so"),
	  "/a.so:/b.so:c.so:" },
	{ "cut half", BLOCK("OPENCL_LAYERS=/a.so\0/b.so:c.so\0C=d"),
	  "/a.so:/b.so:c.so:" },
	{ "a path with =", BLOCK("OPENCL_LAYERS=/a=b.so\0/c=d.so\0C=d"),
	  "/a=b.so:/c=d.so:" },
	{ "cut at the end", BLOCK("OPENCL_LAYERS=/a.so\0/b.so"),
	  "/a.so:/b.so:" },
	{ "empty", BLOCK("OPENCL_LAYERS=\0C=d"), "" },
	{ "empty parts", BLOCK("OPENCL_LAYERS=::/a.so:\0C=d"), "/a.so:" },
};

static void a_list_of_layers_is_put_together_again(void **state)
{
	for (size_t i = 0; i < sizeof(BLOCKS) / sizeof(BLOCKS[0]); i++) {
		struct ki_cl_words layers = { 0 };
		char text[256] = "";

		print_message("# %s\n", BLOCKS[i].name);
		assert_int_equal(ki_cl_layers_listed(BLOCKS[i].block,
						     BLOCKS[i].size, &layers),
				 0);
		for (size_t j = 0; j < layers.n; j++) {
			strcat(text, layers.words[j]);
			strcat(text, ":");
		}
		assert_string_equal(text, BLOCKS[i].layers);
		ki_cl_words_fini(&layers);
	}
}

/* Our own program again, with another environment: its status tells. */
static int status_with_layers(const char *layers)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		(void)setenv("OPENCL_LAYERS", layers, 1);
		execl("/proc/self/exe", "key_test", library_path, twin_path,
		      "layers", (char *)NULL);
		_exit(99);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

enum { CACHED = 0, UNKNOWN_LAYER = 1, KNOWN_LAYER = 2, OTHERWISE = 3 };

static int outcome_of(const struct ki_cl_build *build)
{
	enum kiln_counter reason = KILN_COUNT_MISS_NEW;
	enum kiln_status status;
	struct kiln_key *key = NULL;
	struct kiln_field field;
	const void *record;
	size_t size;
	int outcome = OTHERWISE;

	status = ki_cl_key(identities, build, &key, &reason);
	if (status == KILN_E_UNSUPPORTED &&
	    reason == KILN_COUNT_MISS_UNKNOWN_LAYER)
		outcome = UNKNOWN_LAYER;
	if (!status) {
		record = kiln_key_record(key, &size);
		outcome = kiln_record_find(record, size, "layer 0", &field) ==
					  KILN_OK
				  ? KNOWN_LAYER
				  : CACHED;
	}
	kiln_key_free(key);
	return outcome;
}

static int report_layers(void)
{
	const char *source = "k";
	size_t length = 1;
	struct ki_cl_build build;
	int outcome;

	driver = load(library_path);
	identities = ki_cl_identities_new(driver.calls);
	build = build_of(&source, &length, 1, "");
	outcome = outcome_of(&build);
	free_recipes();
	ki_cl_identities_free(identities);
	return outcome;
}

static void an_unknown_layer_below_ends_caching(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "libkiln-opencl.so");
	char list[512];

	assert_int_equal(status_with_layers(library_path), UNKNOWN_LAYER);
	snprintf(list, sizeof(list), "/nowhere/layer.so:%s", twin_path);
	assert_int_equal(status_with_layers(list), UNKNOWN_LAYER);
	/* A name proves nothing. */
	copy_file(twin_path, path);
	assert_int_equal(status_with_layers(path), UNKNOWN_LAYER);
	assert_int_equal(status_with_layers("/nowhere/layer.so"), CACHED);
	assert_int_equal(status_with_layers(""), CACHED);
	free(path);
	free(directory);
}

static void a_known_layer_below_is_in_the_key(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "layer.so");

	copy_file("/proc/self/exe", path);
	assert_int_equal(status_with_layers(path), KNOWN_LAYER);
	free(path);
	free(directory);
}

/* ---- Threads --------------------------------------------------------- */

struct same_key {
	struct ki_cl_build build;
	uint8_t expected[KILN_DIGEST_BYTES];
};

static int make_keys(unsigned index, void *arg)
{
	const struct same_key *same_key = arg;
	struct ki_cl_build build = same_key->build;
	int wrong = 0;

	build.devices = &driver.devices[index % 2];
	for (int i = 0; i < 20; i++) {
		enum kiln_counter reason;
		struct kiln_key *key;

		if (ki_cl_key(identities, &build, &key, &reason))
			return 1;
		wrong |= !!memcmp(kiln_key_digest(key), same_key->expected,
				  KILN_DIGEST_BYTES);
		kiln_key_free(key);
	}
	return wrong;
}

static void many_threads_make_the_same_key(void **state)
{
	const char *source = "#include \"none.h\"\nk";
	size_t length = strlen(source);
	struct same_key same_key = { .build = build_of(&source, &length, 1,
						       "") };
	struct kiln_key *key = key_of(&same_key.build);

	memcpy(same_key.expected, kiln_key_digest(key), KILN_DIGEST_BYTES);
	kiln_key_free(key);
	ki_cl_identities_free(identities);
	identities = ki_cl_identities_new(driver.calls);
	assert_int_equal(harness_threads(4, make_keys, &same_key), 0);
}

static int setup(void **state)
{
	setenv("KILN_TEST_ICD_DEVICES", "3", 1);
	setenv("KILN_TEST_ICD_NAMES", "one,one,two", 1);
	unsetenv("OPENCL_LAYERS");
	driver = load(library_path);
	identities = ki_cl_identities_new(driver.calls);
	return identities ? 0 : -1;
}

static int teardown(void **state)
{
	ki_cl_identities_free(identities);
	free_recipes();
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_same_build_has_the_same_key),
		cmocka_unit_test(source_and_options_do_not_run_together),
		cmocka_unit_test(an_option_added_or_removed_is_another_key),
		cmocka_unit_test(strings_are_one_text),
		cmocka_unit_test(lengths_are_believed_not_nuls),
		cmocka_unit_test(
			what_cannot_be_known_is_refused_with_its_reason),
		cmocka_unit_test(what_a_program_is_made_of_is_its_key),
		cmocka_unit_test(headers_and_inputs_include_files),
		cmocka_unit_test(where_headers_are_in_name_only_nothing_may_be),
		cmocka_unit_test(header_folders_are_where_drivers_have_them),
		cmocka_unit_test(an_input_counts_as_it_was_when_it_was_made),
		cmocka_unit_test(a_recipe_that_cannot_be_known_has_no_key),
		cmocka_unit_test(recipes_beyond_the_limits_are_not_made),
		cmocka_unit_test(equal_devices_share_and_others_do_not),
		cmocka_unit_test(the_order_of_devices_counts),
		cmocka_unit_test(a_processor_says_the_same_on_every_core),
		cmocka_unit_test(what_a_processor_may_lack_is_told),
		cmocka_unit_test(
			another_build_of_the_driver_is_another_compiler),
		cmocka_unit_test(
			the_same_driver_elsewhere_is_the_same_compiler),
		cmocka_unit_test(a_driver_without_a_row_is_not_cached),
		cmocka_unit_test(
			a_library_without_build_id_is_known_by_its_content),
		cmocka_unit_test(a_library_says_the_same_loaded_and_on_disk),
		cmocka_unit_test(parts_are_found_watched_and_missed),
		cmocka_unit_test(
			a_folder_that_cannot_be_read_is_not_an_empty_one),
		cmocka_unit_test(a_compiler_that_changes_ends_caching),
		cmocka_unit_test(
			another_compiler_by_the_library_path_is_not_cached),
		cmocka_unit_test(a_program_is_the_first_of_the_path),
		cmocka_unit_test(a_path_that_changes_ends_caching),
		cmocka_unit_test(a_builtin_library_is_found_by_its_device),
		cmocka_unit_test(drivers_are_known_by_their_libraries),
		cmocka_unit_test(
			what_a_driver_needs_to_be_cached_goes_with_jobs),
		cmocka_unit_test(variables_that_change_code_are_in_the_key),
		cmocka_unit_test(options_from_the_environment_are_options),
		cmocka_unit_test(a_miss_has_its_reason),
		cmocka_unit_test(a_family_is_its_source),
		cmocka_unit_test(links_and_il_have_families_too),
		cmocka_unit_test(a_list_of_layers_is_put_together_again),
		cmocka_unit_test(an_unknown_layer_below_ends_caching),
		cmocka_unit_test(a_known_layer_below_is_in_the_key),
		cmocka_unit_test(many_threads_make_the_same_key),
	};

	if (argc < 3) {
		fprintf(stderr, "usage: key_test LIBRARY TWIN\n");
		return 2;
	}
	library_path = argv[1];
	twin_path = argv[2];
	if (argc > 3 && !strcmp(argv[3], "layers"))
		return report_layers();
	return cmocka_run_group_tests(tests, setup, teardown);
}
