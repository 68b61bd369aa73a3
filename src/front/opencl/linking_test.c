/* SPDX-License-Identifier: MIT */

/*
 * The layer and programs that are compiled and linked or made from IL and
 * binaries (tests/opencl/linking.c): each script prints the same natively,
 * cold, while it is captured, and warm.
 */

#include "harness/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "opencl/place.h"

#define ANY 1000000u

struct row {
	const char *name;
	const char *script;
	const char *switches;
	/* Calls when warm. */
	unsigned n_compile, n_link, n_from_source, n_create_binary;
};

static const struct row rows[] = {
	{ "compiled and linked", "separate", NULL, 0, 0, 0, 1 },
	{ "compiled and linked, two devices", "separate", "DEVICES=2", 0, 0, 0,
	  1 },
	{ "compiled and linked, a kernel asked", "separate-kernel", NULL, 0, 0,
	  0, 1 },
	{ "compiled and linked, everything asked", "separate-asked", NULL, 2, 0,
	  0, 1 },
	{ "compiled and linked, with warnings", "separate-asked", "WARN=1", 2,
	  0, 0, 1 },
	{ "compiled and linked, binaries that tell all", "separate-asked",
	  "POOR_BINARIES=0 DEVICES=2", 2, 0, 0, 1 },
	{ "compiled and linked, sizes told anyhow", "separate-asked", "TELL=1",
	  2, 0, 0, 1 },
	{ "binaries of objects, sizes told anyhow", "separate-binaries",
	  "TELL=1", 0, 0, 0, 1 },
	{ "binaries of objects and what is linked", "separate-binaries", NULL,
	  0, 0, 0, 1 },
	{ "compiled and linked, the context released first",
	  "separate-context-first", NULL, 0, 0, 0, 1 },
	{ "compiled and linked with notifications (S57)", "separate-notified",
	  NULL, 2, 0, 0, 1 },
	{ "compiled and linked from threads (S57)", "separate-notified",
	  "ASYNC=1", 2, 0, 0, 1 },
	{ "one object is another", "relinked", NULL, 0, 0, 0, 3 },
	{ "built, compiled, built", "rebuilt", NULL, ANY, 2, 0, ANY },
	{ "what is linked is built", "linked-built", NULL, 4, 2, 0, 1 },
	{ "variables of what is linked, and not built", "linked-counting", NULL,
	  2, 2, 0, 1 },
	{ "a library", "library", NULL, 0, 0, 0, 2 },
	{ "a library, everything asked", "library-asked", NULL, ANY, ANY, 0,
	  2 },
	{ "what any driver refuses", "link-errors", NULL, ANY, 1, 0, ANY },
	{ "what cannot be linked", "link-failures", NULL, ANY, ANY, ANY, ANY },
	{ "IL and its constants", "il", NULL, 0, 0, 0, 2 },
	{ "IL whose constant is set later", "il-set-later", NULL, 0, 0, ANY,
	  1 },
	{ "IL by name, compiled and linked", "il-linked", NULL, 0, 0, 0, 1 },
	{ "objects from binaries", "objects", NULL, 0, 0, 0, ANY },
	{ "the compiler unloaded", "unloaded", NULL, 0, 0, 0, 1 },
	{ "a kernel and its clone", "cloned", NULL, 0, 0, 0, 2 },
};

static void check(const struct place *place, const char *what, unsigned n)
{
	if (n != ANY && calls(place, what) != n)
		print_error("%s: %u calls\n", what, calls(place, what));
	if (n != ANY)
		assert_int_equal(calls(place, what), n);
}

/* What a script makes is captured, unless it was before. */
static void fill(struct place *place, const char *script)
{
	char *text;

	set(place, "KILN_TEST_CAPTURE", "1");
	text = run(place, 1, script, "-DK=2");
	assert_non_null(strstr(text, "exit 0\n"));
	free(text);
	set(place, "KILN_TEST_CAPTURE", "");
}

static void a_program_cannot_tell(void **state)
{
	const struct row *row = *state;
	struct place place;
	char *native, *cold, *warm;
	int n_living;

	place_init(&place);
	set_all(&place, row->switches);
	native = run(&place, 0, row->script, "-DK=2");
	n_living = living(&place);
	assert_non_null(strstr(native, "exit 0\n"));
	cold = run(&place, 1, row->script, "-DK=2");
	same(native, cold);
	assert_true(lets_go(&place, n_living));
	fill(&place, row->script);
	warm = run(&place, 1, row->script, "-DK=2");
	same(native, warm);
	assert_true(lets_go(&place, n_living));
	check(&place, "compile", row->n_compile);
	check(&place, "link", row->n_link);
	check(&place, "build-source", row->n_from_source);
	check(&place, "build-il", row->n_from_source);
	check(&place, "create-binary", row->n_create_binary);
	check(&place, "damaged", 0);
	free(native);
	free(cold);
	free(warm);
	place_fini(&place);
}

/* ---- Drivers that will not ----------------------------------------------- */

/* S09: whatever the driver refuses, it then makes all by itself. */
static void what_a_driver_refuses_it_makes_itself(void **state)
{
	static const char *const scripts[] = {
		"separate",  "separate-asked", "separate-notified", "relinked",
		"library",   "library-asked",  "linked-built",	    "il",
		"il-linked",
	};
	static const char *const refusals[] = { "REFUSE_BINARIES=1",
						"FAIL_BINARY_BUILDS=1" };
	static const char *const consents[] = { "REFUSE_BINARIES=0",
						"FAIL_BINARY_BUILDS=0" };
	size_t i, j;

	for (i = 0; i < 2; i++)
		for (j = 0; j < sizeof(scripts) / sizeof(scripts[0]); j++) {
			struct place place;
			char *native, *text;

			place_init(&place);
			native = run(&place, 0, scripts[j], "-DK=2");
			fill(&place, scripts[j]);
			set_all(&place, refusals[i]);
			text = run(&place, 1, scripts[j], "-DK=2");
			same(native, text);
			assert_true(counter(&place, KILN_COUNT_MISS_REFUSED) >
				    0);
			free(text);
			set_all(&place, consents[i]);
			text = run(&place, 1, scripts[j], "-DK=2");
			same(native, text);
			free(text);
			free(native);
			place_fini(&place);
		}
}

/* A driver whose objects' binaries are as good as the objects. */
static void use_rich_objects(struct place *place)
{
	set(place, "OCL_ICD_VENDORS", getenv("KILN_TEST_ICD_TWIN"));
	set_all(place, "POOR_BINARIES=0");
}

/* The objects are the driver's own in the second run, and are there again in
   the third. */
static void objects_that_a_driver_will_not_link_are_dropped(void **state)
{
	static const char *const scripts[] = { "relinked", "separate-asked",
					       "library-asked",
					       "separate-notified" };
	struct place place;
	char *native, *text;
	size_t i;

	for (i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
		place_init(&place);
		use_rich_objects(&place);
		native = run(&place, 0, scripts[i], "-DK=2");
		/* Objects alone are there. */
		set(&place, "KILN_TEST_CAPTURE", "objects");
		free(run(&place, 1, scripts[i], "-DK=2"));
		set(&place, "KILN_TEST_CAPTURE", "");
		set_all(&place, "REFUSE_OBJECTS=1");
		text = run(&place, 1, scripts[i], "-DK=2");
		same(native, text);
		/* Nothing else asks for the objects here. */
		if (!strcmp(scripts[i], "relinked"))
			assert_true(calls(&place, "link") > 3);
		free(text);
		text = run(&place, 1, scripts[i], "-DK=2");
		same(native, text);
		free(text);
		free(native);
		place_fini(&place);
	}
}

/* A link that is not found takes its objects from the store. */
static void an_object_is_linked_without_compiling(void **state)
{
	struct place place;
	char *native, *text;

	place_init(&place);
	use_rich_objects(&place);
	native = run(&place, 0, "separate", "-DK=2");
	set(&place, "KILN_TEST_CAPTURE", "objects");
	free(run(&place, 1, "separate", "-DK=2"));
	set(&place, "KILN_TEST_CAPTURE", "");
	text = run(&place, 1, "separate", "-DK=2");
	same(native, text);
	assert_int_equal(calls(&place, "compile"), 0);
	assert_int_equal(calls(&place, "create-binary"), 2);
	assert_int_equal(calls(&place, "link"), 1);
	free(text);
	free(native);
	place_fini(&place);
}

/* Binaries of objects may lose what kernels would tell: then the driver links
   what it compiles itself, and nothing poorer is kept. */
static void objects_that_lose_something_are_compiled_for_a_link(void **state)
{
	struct place place;
	static const char with[] = "-DK=2 -cl-kernel-arg-info";
	char *native, *text;
	int i;

	place_init(&place);
	native = run(&place, 0, "separate-kernel", with);
	set(&place, "KILN_TEST_CAPTURE", "objects");
	free(run(&place, 1, "separate-kernel", with));
	set(&place, "KILN_TEST_CAPTURE", "1");
	for (i = 0; i < 3; i++) {
		text = run(&place, 1, "separate-kernel", with);
		same(native, text);
		assert_int_equal(calls(&place, "link"), i ? 0 : 1);
		free(text);
	}
	free(native);
	place_fini(&place);
}

/* ---- Order and time ------------------------------------------------------ */

/* What is captured is found by what the same run makes next. */
static void what_was_made_of_something_else_is_not_kept(void **state)
{
	static const struct {
		const char *script;
		const char *switches;
	} runs[] = {
		{ "objects-turned", "DEVICES=2" },
		{ "objects-turned", "DEVICES=2 SORT_DEVICES=1" },
		{ "il-set-meanwhile", "ASYNC=1 START_MS=100" },
		{ "linked-meanwhile", "LINK_MS=100" },
	};
	struct place place;
	char *native, *text;
	size_t i;

	for (i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		place_init(&place);
		set_all(&place, runs[i].switches);
		native = run(&place, 0, runs[i].script, "-DK=2");
		assert_non_null(strstr(native, "exit 0\n"));
		set(&place, "KILN_TEST_CAPTURE", "1");
		text = run(&place, 1, runs[i].script, "-DK=2");
		same(native, text);
		free(text);
		free(native);
		place_fini(&place);
	}
}

/* ---- What is included ---------------------------------------------------- */

/* A link is of what its objects were made of, not of what stands there now. */
static void what_objects_include_is_the_same_or_nothing_is_kept(void **state)
{
	static const struct {
		const char *script;
		unsigned n_links;
	} runs[] = { { "linked-in-doubt", 1 },
		     { "linked-including", 1 },
		     { "linked-including", 0 },
		     { "linked-in-doubt", 0 } };
	struct place place;
	char *header, *options, *text;
	size_t i;

	place_init(&place);
	header = harness_path(place.directory, "k.h");
	harness_write(header, "#define K 4\n", 12);
	assert_true(asprintf(&options, "-I%s", place.directory) > 0);
	for (i = 0; i < 4; i++) {
		text = run(&place, 1, runs[i].script, options);
		assert_non_null(strstr(text, "exit 0\n"));
		assert_int_equal(calls(&place, "link"), runs[i].n_links);
		free(text);
	}
	free(options);
	free(header);
	place_fini(&place);
}

/* ---- Jobs ---------------------------------------------------------------- */

static void compiling_and_linking_leave_jobs(void **state)
{
	static const struct {
		const char *script;
		unsigned n_jobs;
	} runs[] = { { "separate", 3 },
		     { "il-linked", 3 },
		     { "library", 4 },
		     { "il", 2 } };
	struct place place;
	char *text;
	size_t i;

	for (i = 0; i < 4; i++) {
		place_init(&place);
		text = run(&place, 1, runs[i].script, "-DK=2");
		assert_non_null(strstr(text, "exit 0\n"));
		assert_int_equal(counter(&place, KILN_COUNT_JOBS_WRITTEN),
				 runs[i].n_jobs);
		assert_int_equal(
			counter(&place, KILN_COUNT_MISS_NEW) +
				counter(&place, KILN_COUNT_MISS_OPTIONS),
			runs[i].n_jobs);
		assert_int_equal(counter(&place, KILN_COUNT_MISS_UNSUPPORTED),
				 0);
		assert_int_equal(counter(&place, KILN_COUNT_BUILDS),
				 runs[i].n_jobs);
		free(text);
		place_fini(&place);
	}
}

/* ---- A real driver ------------------------------------------------------- */

static const char *const pocl_scripts[] = {
	"separate-asked",
	"separate-notified",
	"relinked",
	"library-asked",
};

/* Warm runs find PoCL's own cache empty. */
static void on_pocl_too(void **state)
{
	struct place place;
	char *cache;
	size_t i;

	for (i = 0; i < sizeof(pocl_scripts) / sizeof(pocl_scripts[0]); i++) {
		char *native, *text;

		place_init(&place);
		set(&place, "OCL_ICD_VENDORS", "pocl.icd");
		cache = harness_path(place.directory, "pocl");
		assert_int_equal(mkdir(cache, 0700), 0);
		set(&place, "POCL_CACHE_DIR", cache);
		native = run(&place, 0, pocl_scripts[i], "-DK=2");
		if (strstr(native, "exit 2\n")) {
			free(native);
			free(cache);
			place_fini(&place);
			HARNESS_LEAVE_OUT("no such driver here");
		}
		text = run(&place, 1, pocl_scripts[i], "-DK=2");
		same(native, text);
		free(text);
		fill(&place, pocl_scripts[i]);
		harness_remove(cache);
		assert_int_equal(mkdir(cache, 0700), 0);
		text = run(&place, 1, pocl_scripts[i], "-DK=2");
		same(native, text);
		assert_true(counter(&place, KILN_COUNT_HITS_STORE) > 2);
		assert_int_equal(counter(&place, KILN_COUNT_MISS_REFUSED), 0);
		free(text);
		free(native);
		free(cache);
		place_fini(&place);
	}
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest others[] = {
		cmocka_unit_test(what_a_driver_refuses_it_makes_itself),
		cmocka_unit_test(
			objects_that_a_driver_will_not_link_are_dropped),
		cmocka_unit_test(an_object_is_linked_without_compiling),
		cmocka_unit_test(
			objects_that_lose_something_are_compiled_for_a_link),
		cmocka_unit_test(what_was_made_of_something_else_is_not_kept),
		cmocka_unit_test(compiling_and_linking_leave_jobs),
		cmocka_unit_test(
			what_objects_include_is_the_same_or_nothing_is_kept),
	};
	static const struct CMUnitTest pocl_tests[] = {
		cmocka_unit_test(on_pocl_too),
	};
	enum {
		N_ROWS = sizeof(rows) / sizeof(rows[0]),
		N_OTHERS = sizeof(others) / sizeof(others[0]),
	};
	struct CMUnitTest tests[N_ROWS + N_OTHERS];
	size_t n = 0, i;

	if (argc > 1 && !strcmp(argv[1], "pocl"))
		return cmocka_run_group_tests_name("opencl-linking-pocl",
						   pocl_tests, NULL, NULL);
	for (i = 0; i < N_ROWS; i++)
		tests[n++] = (struct CMUnitTest){
			.name = rows[i].name,
			.test_func = a_program_cannot_tell,
			.initial_state = (void *)&rows[i],
		};
	for (i = 0; i < N_OTHERS; i++)
		tests[n++] = others[i];
	return cmocka_run_group_tests_name("opencl-linking", tests, NULL, NULL);
}
