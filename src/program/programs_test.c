/* SPDX-License-Identifier: MIT */

/* Programs: keys, options, devices, failures, lives. */

#include "harness/harness.h"

#include <sys/wait.h>
#include <unistd.h>

#include "program/runtime_test.h"

/* ---- Getting --------------------------------------------------------------- */

/* ProgramBuildPositive: two builds of one program are one. */
static void what_was_built_is_got_again(void **state)
{
	struct rt rt;
	struct kiln_programs *programs;
	struct kiln_program_key *key;
	struct kiln_program *first, *second;
	struct kiln_programs_stats stats;
	struct ask ask;

	rt_init(&rt);
	programs = rt_programs(&rt, rt_options());
	ask_init(&ask, &rt, 1, 0);
	key = ask_key(programs, &ask);
	assert_int_equal(kiln_program_get(programs, key, &first, NULL),
			 KILN_OK);
	assert_int_equal(kiln_program_get(programs, key, &second, NULL),
			 KILN_OK);
	assert_ptr_equal(first, second);
	assert_true(ask_is_right(&rt, &ask, first, "", ""));
	assert_int_equal(rt_calls(&rt, RT_BUILD), 1);
	stats = rt_stats(programs);
	assert_int_equal(stats.n_programs, 1);
	assert_int_equal(stats.builds, 1);
	assert_int_equal(stats.program_hits, 1);
	assert_int_equal(stats.bytes, 0);
	kiln_program_unref(first);
	kiln_program_unref(second);
	kiln_program_key_free(key);
	assert_int_equal(atomic_load(&rt.live_programs), 1);
	rt_free(&rt, programs);
	assert_true(rt_is_clean(&rt));
}

/* What makes another program of a request, and the options that come of it. */
struct variant {
	const char *what;
	unsigned image;
	const char *constants;
	size_t constants_size;
	unsigned device;
	const char *image_compile, *image_link, *compile, *link, *id;
	enum kiln_image_format format;
};

static void ask_variant(struct ask *ask, struct rt *rt, const struct variant *v)
{
	ask_init(ask, rt, v->image, v->device);
	ask->request.constants = v->constants;
	ask->request.constants_size = v->constants_size;
	ask->image.compile_options = v->image_compile;
	ask->image.link_options = v->image_link;
	ask->request.compile_options = v->compile;
	ask->request.link_options = v->link;
	ask->image.id = v->id;
	ask->image.id_size = v->id ? strlen(v->id) : 0;
	ask->image.format = v->format;
}

/*
 * Every part of a key counts (S05: devices too).  The original hashes constants
 * by the exclusive or of their bytes, compares them over the length of one side
 * alone, joins options without a mark between them, and has no options in its
 * key at all.
 */
static void every_part_of_a_request_counts(void **state)
{
	static const struct variant variants[] = {
		{ "plain", 1 },
		{ "another image", 2 },
		{ "constants", 1, "ab", 2 },
		{ "constants the other way round", 1, "ba", 2 },
		{ "a pair that would cancel out", 1, "xx", 2 },
		{ "a prefix", 1, "a", 1 },
		{ "a NUL behind", 1, "ab\0", 3 },
		{ "another device", 1, .device = 1 },
		{ "the image's compile options", 1, .image_compile = "-a" },
		{ "the image's link options", 1, .image_link = "-a" },
		{ "options given", 1, .compile = "-b" },
		{ "link options given", 1, .link = "-b" },
		{ "one string", 1, .compile = "-ab" },
		{ "cut in two", 1, .compile = "-a", .link = "b" },
		{ "an id", 1, .id = "set" },
		{ "another id", 1, .id = "set 2" },
		{ "native", 1, .format = KILN_IMAGE_NATIVE },
	};
	const size_t n = sizeof(variants) / sizeof(variants[0]);
	struct kiln_programs *programs;
	struct rt rt;

	rt_init(&rt);
	programs = rt_programs(&rt, rt_options());
	for (size_t i = 0; i < n; i++) {
		struct ask ask;

		ask_variant(&ask, &rt, &variants[i]);
		assert_int_equal(rt_get(programs, &ask), KILN_OK);
		if (rt_calls(&rt, RT_BUILD) != i + 1)
			fail_msg("%s: not built", variants[i].what);
	}
	for (size_t i = 0; i < n; i++) {
		struct ask ask;

		ask_variant(&ask, &rt, &variants[i]);
		assert_int_equal(rt_get(programs, &ask), KILN_OK);
	}
	assert_int_equal(rt_calls(&rt, RT_BUILD), n);
	rt_free(&rt, programs);
	assert_true(rt_is_clean(&rt));
}

/* ProgramBuildPositiveBuildOpts: five builds, three sets of options. */
static void equal_options_are_one_program(void **state)
{
	static const char *const given[] = { "-x", "-y", "-x", NULL, "-y" };
	struct kiln_programs *programs;
	struct rt rt;

	rt_init(&rt);
	programs = rt_programs(&rt, rt_options());
	for (size_t i = 0; i < 5; i++) {
		struct ask ask;

		ask_init(&ask, &rt, 1, 0);
		ask.request.compile_options = given[i];
		assert_int_equal(rt_get(programs, &ask), KILN_OK);
	}
	assert_int_equal(rt_calls(&rt, RT_BUILD), 3);
	rt_free(&rt, programs);
	assert_true(rt_is_clean(&rt));
}

static void options_are_composed_from_all_sources(void **state)
{
	static const struct {
		const char *override, *append, *image, *given, *right;
	} rows[] = {
		{ NULL, NULL, NULL, NULL, "" },
		{ NULL, NULL, "-i", NULL, "-i" },
		{ NULL, NULL, "-i", "-g", "-i -g" },
		{ NULL, "-e", "-i", "-g", "-i -g -e" },
		{ "-o", NULL, "-i", "-g", "-o -g" },
		{ "-o", "-e", "-i", "-g", "-o -g -e" },
		{ "", "-e", "-i", NULL, "-e" },
		{ "-o", "", NULL, "", "-o" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (int is_link = 0; is_link < 2; is_link++) {
			struct kiln_programs_options options = rt_options();
			struct kiln_programs *programs;
			struct kiln_program_key *key;
			struct kiln_program *program;
			struct ask ask;
			struct rt rt;

			rt_init(&rt);
			ask_init(&ask, &rt, 1, 0);
			*(is_link ? &options.link_options_override
				  : &options.compile_options_override) =
				rows[i].override;
			*(is_link ? &options.link_options_append
				  : &options.compile_options_append) =
				rows[i].append;
			*(is_link ? &ask.image.link_options
				  : &ask.image.compile_options) = rows[i].image;
			*(is_link ? &ask.request.link_options
				  : &ask.request.compile_options) =
				rows[i].given;
			programs = rt_programs(&rt, options);
			key = ask_key(programs, &ask);
			assert_int_equal(
				kiln_program_get(programs, key, &program, NULL),
				KILN_OK);
			assert_true(ask_is_right(&rt, &ask, program,
						 is_link ? "" : rows[i].right,
						 is_link ? rows[i].right : ""));
			kiln_program_unref(program);
			kiln_program_key_free(key);
			rt_free(&rt, programs);
			assert_true(rt_is_clean(&rt));
		}
	}
}

/* The original appends the environment's options again when it builds once
   more after a lack of memory. */
static void options_are_appended_once_however_often_it_is_built(void **state)
{
	struct kiln_programs_options options = rt_options();
	struct kiln_programs *programs;
	struct kiln_program_key *key;
	struct kiln_program *program;
	struct ask ask;
	struct rt rt;

	rt_init(&rt);
	rt.plan = (struct rt_plan){ RT_BUILD, 0, 1, KILN_BUILD_RESOURCES };
	options.compile_options_append = "-e";
	programs = rt_programs(&rt, options);
	ask_init(&ask, &rt, 1, 0);
	key = ask_key(programs, &ask);
	assert_int_equal(kiln_program_get(programs, key, &program, NULL),
			 KILN_OK);
	assert_int_equal(rt_calls(&rt, RT_BUILD), 2);
	assert_true(ask_is_right(&rt, &ask, program, "-e", ""));
	kiln_program_unref(program);
	kiln_program_key_free(key);
	rt_free(&rt, programs);
	assert_true(rt_is_clean(&rt));
}

/* ---- What is kept at all --------------------------------------------------- */

/* ProgramSourceNegativeBuild, ..CompileAndLink, ProgramBuildNegativeCompileOpts,
   KernelNegativeLinkedProgs and their like. */
static void what_may_be_kept_is_decided_by_origin(void **state)
{
	static const struct {
		enum kiln_program_origin origin;
		uint32_t flags;
		const char *options;
		int is_kept;
	} rows[] = {
		{ KILN_PROGRAM_IMAGE, 0, NULL, 1 },
		{ KILN_PROGRAM_IMAGE, 0, "-g", 1 },
		{ KILN_PROGRAM_SOURCE, 0, NULL, 0 },
		{ KILN_PROGRAM_SOURCE, 0, "-g", 0 },
		{ KILN_PROGRAM_SOURCE, KILN_PROGRAM_KEEP, NULL, 1 },
		{ KILN_PROGRAM_LINKED, 0, NULL, 0 },
		{ KILN_PROGRAM_LINKED, KILN_PROGRAM_KEEP, "-g", 1 },
		{ KILN_PROGRAM_INTEROP, 0, NULL, 0 },
		{ KILN_PROGRAM_INTEROP, KILN_PROGRAM_KEEP, NULL, 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_programs *programs;
		struct kiln_program_key *key;
		struct kiln_kernel_key *kernel_key;
		struct kiln_kernel *kernel;
		struct ask ask;
		struct rt rt;

		rt_init(&rt);
		programs = rt_programs(&rt, rt_options());
		ask_init(&ask, &rt, 1, 0);
		ask.image.origin = rows[i].origin;
		ask.request.flags = rows[i].flags;
		ask.request.compile_options = rows[i].options;
		assert_int_equal(kiln_program_is_cacheable(&ask.request),
				 rows[i].is_kept);
		key = ask_key(programs, &ask);
		kernel_key = ask_kernel(key, &rt.devices[0], "k");
		for (int twice = 0; twice < 2; twice++) {
			assert_int_equal(kiln_kernel_get(programs, kernel_key,
							 &kernel, NULL),
					 KILN_OK);
			kiln_kernel_unref(kernel);
		}
		assert_int_equal(rt_calls(&rt, RT_BUILD),
				 rows[i].is_kept ? 1 : 2);
		assert_int_equal(rt_calls(&rt, RT_KERNEL),
				 rows[i].is_kept ? 1 : 2);
		assert_int_equal(rt_stats(programs).n_programs,
				 rows[i].is_kept);
		assert_int_equal(rt_stats(programs).n_kernels, rows[i].is_kept);
		assert_int_equal(atomic_load(&rt.live_programs),
				 rows[i].is_kept);
		kiln_kernel_key_free(kernel_key);
		kiln_program_key_free(key);
		rt_free(&rt, programs);
		assert_true(rt_is_clean(&rt));
	}
}

/* SYCL_CACHE_IN_MEM=0 */
static void without_memory_every_request_is_built(void **state)
{
	struct kiln_programs_options options = rt_options();
	struct kiln_programs *programs;
	struct ask ask;
	struct rt rt;

	rt_init(&rt);
	options.flags = KILN_PROGRAMS_NO_MEMORY;
	programs = rt_programs(&rt, options);
	ask_init(&ask, &rt, 1, 0);
	for (unsigned i = 1; i < 4; i++) {
		assert_int_equal(rt_get(programs, &ask), KILN_OK);
		assert_int_equal(rt_calls(&rt, RT_BUILD), i);
		assert_int_equal(atomic_load(&rt.live_programs), 0);
	}
	rt_free(&rt, programs);
	assert_true(rt_is_clean(&rt));
}

/* ---- Failures -------------------------------------------------------------- */

static void get_failing(struct kiln_programs *programs, const struct ask *ask,
			struct kiln_program_failure *failure)
{
	struct kiln_program_key *key = ask_key(programs, ask);
	struct kiln_program *program;

	kiln_program_failure_fini(failure);
	assert_int_equal(kiln_program_get(programs, key, &program, failure),
			 KILN_E_BUILD);
	kiln_program_key_free(key);
}

/* S22; cache-build-result: a failing build twice gives the same message and
   code, and is not built twice. */
static void a_lasting_failure_is_given_to_everyone_alike(void **state)
{
	struct kiln_program_failure failure;
	struct kiln_programs *programs;
	struct ask ask, other;
	struct rt rt;

	rt_init(&rt);
	rt.plan = (struct rt_plan){ RT_BUILD, 0, 1, KILN_BUILD_FAILED };
	programs = rt_programs(&rt, rt_options());
	ask_init(&ask, &rt, 1, 0);
	ask_init(&other, &rt, 2, 0);
	kiln_program_failure_init(&failure);
	for (int i = 0; i < 3; i++) {
		get_failing(programs, &ask, &failure);
		assert_int_equal(failure.kind, KILN_BUILD_FAILED);
		assert_int_equal(failure.code, -11);
		assert_string_equal(failure.message, "planned, call 0");
		/* Others do not mind. */
		assert_int_equal(rt_get(programs, &other), KILN_OK);
	}
	assert_int_equal(rt_calls(&rt, RT_BUILD), 2);
	assert_int_equal(rt_stats(programs).build_failures, 1);
	assert_int_equal(kiln_programs_wipe(programs), KILN_OK);
	assert_int_equal(rt_get(programs, &ask), KILN_OK);
	kiln_program_failure_fini(&failure);
	rt_free(&rt, programs);
	assert_true(rt_is_clean(&rt));
}

static void a_spurious_failure_is_not_kept(void **state)
{
	struct kiln_program_failure failure;
	struct kiln_programs *programs;
	struct ask ask;
	struct rt rt;

	rt_init(&rt);
	rt.plan = (struct rt_plan){ RT_BUILD, 0, 1, KILN_BUILD_SPURIOUS };
	programs = rt_programs(&rt, rt_options());
	ask_init(&ask, &rt, 1, 0);
	kiln_program_failure_init(&failure);
	get_failing(programs, &ask, &failure);
	assert_int_equal(failure.kind, KILN_BUILD_SPURIOUS);
	assert_int_equal(rt_get(programs, &ask), KILN_OK);
	kiln_program_failure_fini(&failure);
	rt_free(&rt, programs);
	assert_true(rt_is_clean(&rt));
}

/*
 * OutOfResources and OutOfHostMemory: everything is dropped and the build tried
 * once more.  The original's sum of sizes stays what it was; ours is what is
 * there.
 */
static void short_of_resources_everything_goes_and_it_is_tried_again(
	void **state)
{
	static const enum rt_call calls[] = { RT_CREATE, RT_BUILD };

	for (size_t i = 0; i < 2; i++) {
		struct kiln_programs_options options = rt_options();
		struct kiln_programs *programs;
		struct kiln_programs_stats stats;
		uint64_t bytes_of_one;
		struct ask ask;
		struct rt rt;

		rt_init(&rt);
		rt.plan = (struct rt_plan){ calls[i], 2, 1,
					    KILN_BUILD_RESOURCES };
		options.bytes_max = 1000;
		programs = rt_programs(&rt, options);
		ask_init(&ask, &rt, 1, 0);
		assert_int_equal(rt_get(programs, &ask), KILN_OK);
		bytes_of_one = rt_stats(programs).bytes;
		ask_init(&ask, &rt, 2, 0);
		assert_int_equal(rt_get(programs, &ask), KILN_OK);
		ask_init(&ask, &rt, 3, 0);
		assert_int_equal(rt_get(programs, &ask), KILN_OK);
		stats = rt_stats(programs);
		assert_int_equal(stats.n_programs, 1);
		assert_int_equal(stats.bytes, bytes_of_one);
		assert_int_equal(stats.resets, 1);
		assert_int_equal(atomic_load(&rt.live_programs), 1);
		assert_int_equal(rt_calls(&rt, calls[i]), 4);
		/* It stays so. */
		ask_init(&ask, &rt, 4, 0);
		assert_int_equal(rt_get(programs, &ask), KILN_OK);
		assert_int_equal(rt_stats(programs).n_programs, 2);
		rt_free(&rt, programs);
		assert_true(rt_is_clean(&rt));
	}
}

static void a_second_lack_of_resources_is_the_answer(void **state)
{
	struct kiln_program_failure failure;
	struct kiln_programs *programs;
	struct ask ask;
	struct rt rt;

	rt_init(&rt);
	rt.plan = (struct rt_plan){ RT_BUILD, 0, 2, KILN_BUILD_RESOURCES };
	programs = rt_programs(&rt, rt_options());
	ask_init(&ask, &rt, 1, 0);
	kiln_program_failure_init(&failure);
	get_failing(programs, &ask, &failure);
	assert_int_equal(failure.kind, KILN_BUILD_RESOURCES);
	assert_string_equal(failure.message, "planned, call 1");
	assert_int_equal(rt_calls(&rt, RT_BUILD), 2);
	/* Never kept. */
	assert_int_equal(rt_get(programs, &ask), KILN_OK);
	kiln_program_failure_fini(&failure);
	rt_free(&rt, programs);
	assert_true(rt_is_clean(&rt));
}

static void the_cold_half_may_go_first(void **state)
{
	static const struct {
		unsigned n_failures, n_left, resets;
	} rows[] = { { 1, 3, 0 }, { 2, 1, 1 } };

	for (size_t i = 0; i < 2; i++) {
		struct kiln_programs_options options = rt_options();
		struct kiln_programs *programs;
		struct ask ask;
		struct rt rt;

		rt_init(&rt);
		rt.plan = (struct rt_plan){ RT_BUILD, 4, rows[i].n_failures,
					    KILN_BUILD_RESOURCES };
		options.flags = KILN_PROGRAMS_COLD_HALF;
		programs = rt_programs(&rt, options);
		for (unsigned image = 1; image < 6; image++) {
			ask_init(&ask, &rt, image, 0);
			assert_int_equal(rt_get(programs, &ask), KILN_OK);
		}
		assert_int_equal(rt_stats(programs).n_programs, rows[i].n_left);
		assert_int_equal(rt_stats(programs).resets, rows[i].resets);
		rt_free(&rt, programs);
		assert_true(rt_is_clean(&rt));
	}
}

/* ---- Lives ----------------------------------------------------------------- */

static void what_is_in_use_outlives_the_cache(void **state)
{
	struct kiln_programs *programs;
	struct kiln_program_key *key;
	struct kiln_program *program, *again;
	struct kiln_kernel *kernel;
	struct ask ask;
	struct rt rt;

	rt_init(&rt);
	programs = rt_programs(&rt, rt_options());
	ask_init(&ask, &rt, 1, 0);
	key = ask_key(programs, &ask);
	assert_int_equal(kiln_program_get(programs, key, &program, NULL),
			 KILN_OK);
	assert_int_equal(kiln_programs_wipe(programs), KILN_OK);
	assert_int_equal(rt_stats(programs).n_programs, 0);
	assert_true(ask_is_right(&rt, &ask, program, "", ""));
	assert_int_equal(kiln_program_get(programs, key, &again, NULL),
			 KILN_OK);
	assert_ptr_not_equal(program, again);
	kiln_program_unref(again);
	kiln_program_key_free(key);
	rt_free(&rt, programs);
	assert_int_equal(atomic_load(&rt.live_programs), 1);
	assert_int_equal(kiln_program_kernel(program, "k", &kernel, NULL),
			 KILN_OK);
	assert_ptr_equal(kiln_kernel_program(kernel), program);
	kiln_program_unref(program);
	assert_int_equal(atomic_load(&rt.live_programs), 1);
	kiln_kernel_unref(kernel);
	assert_true(rt_is_clean(&rt));
}

static void native_references_are_the_runtimes(void **state)
{
	struct kiln_programs *programs;
	struct kiln_program_key *key;
	struct kiln_program *program;
	struct kiln_kernel *kernel;
	void *handles[2];
	struct ask ask;
	struct rt rt;

	rt_init(&rt);
	programs = rt_programs(&rt, rt_options());
	ask_init(&ask, &rt, 1, 0);
	key = ask_key(programs, &ask);
	assert_int_equal(kiln_program_get(programs, key, &program, NULL),
			 KILN_OK);
	assert_int_equal(kiln_program_kernel(program, "k", &kernel, NULL),
			 KILN_OK);
	handles[0] = kiln_program_retain(program);
	handles[1] = kiln_kernel_retain(kernel);
	assert_ptr_equal(handles[0], kiln_program_handle(program));
	assert_ptr_equal(handles[1], kiln_kernel_handle(kernel));
	kiln_kernel_unref(kernel);
	kiln_program_unref(program);
	kiln_program_key_free(key);
	rt_free(&rt, programs);
	assert_int_equal(atomic_load(&rt.live_kernels), 1);
	assert_int_equal(atomic_load(&rt.live_programs), 1);
	rt.table.release_kernel(&rt, handles[1]);
	rt.table.release_program(&rt, handles[0]);
	assert_true(rt_is_clean(&rt));
}

static void a_runtime_may_have_no_references_to_give(void **state)
{
	struct kiln_programs *programs;
	struct kiln_program_key *key;
	struct kiln_program *program;
	struct kiln_kernel *kernel;
	struct ask ask;
	struct rt rt;

	rt_init(&rt);
	rt.table.retain_program = NULL;
	rt.table.retain_kernel = NULL;
	programs = rt_programs(&rt, rt_options());
	ask_init(&ask, &rt, 1, 0);
	key = ask_key(programs, &ask);
	assert_int_equal(kiln_program_get(programs, key, &program, NULL),
			 KILN_OK);
	assert_int_equal(kiln_program_kernel(program, "k", &kernel, NULL),
			 KILN_OK);
	assert_null(kiln_program_retain(program));
	assert_null(kiln_kernel_retain(kernel));
	kiln_kernel_unref(kernel);
	kiln_program_unref(program);
	kiln_program_key_free(key);
	rt_free(&rt, programs);
	assert_true(rt_is_clean(&rt));
}

/* The original forgets only the first program of an image. */
static void a_forgotten_image_takes_all_its_programs_along(void **state)
{
	for (int has_id = 0; has_id < 2; has_id++) {
		struct kiln_program_failure failure;
		struct kiln_programs *programs;
		struct ask ask;
		struct rt rt;

		rt_init(&rt);
		rt.plan = (struct rt_plan){ RT_BUILD, 5, 1, KILN_BUILD_FAILED };
		programs = rt_programs(&rt, rt_options());
		kiln_program_failure_init(&failure);
		for (unsigned i = 0; i < 6; i++) {
			ask_init(&ask, &rt, i == 4 ? 2 : 1, i < 4 ? i : 0);
			if (has_id) {
				ask.image.id = i == 4 ? "two" : "one";
				ask.image.id_size = 3;
			}
			if (i < 5) {
				assert_int_equal(rt_get(programs, &ask),
						 KILN_OK);
				continue;
			}
			ask.request.compile_options = "-fail";
			get_failing(programs, &ask, &failure);
		}
		assert_int_equal(rt_stats(programs).n_programs, 5);
		assert_int_equal(
			kiln_programs_forget_image(programs, &ask.image),
			KILN_OK);
		assert_int_equal(rt_stats(programs).n_programs, 1);
		assert_int_equal(atomic_load(&rt.live_programs), 1);
		/* Also the failure: another image may have that id next. */
		assert_int_equal(rt_get(programs, &ask), KILN_OK);
		kiln_program_failure_fini(&failure);
		rt_free(&rt, programs);
		assert_true(rt_is_clean(&rt));
	}
}

/* ---- Devices --------------------------------------------------------------- */

static void ask_devices(struct ask *ask, struct rt *rt, const char *devices)
{
	ask_init(ask, rt, 1, 0);
	ask->request.n_devices = strlen(devices);
	for (size_t i = 0; devices[i]; i++)
		ask->devices[i] = &rt->devices[devices[i] - '0'];
}

/* MultipleDevsCache, and that one program serves some of its devices without a
   key for each of the 2^D sets. */
static void a_program_for_several_devices_serves_some_of_them(void **state)
{
	static const struct {
		const char *devices;
		unsigned n_builds;
	} rows[] = {
		{ "012", 1 }, { "210", 1 }, { "0120", 1 }, { "0", 1 },
		{ "2", 1 },   { "02", 1 },  { "12", 1 },   { "3", 2 },
		{ "03", 3 },  { "13", 4 },  { "30", 4 },   { "0123", 5 },
		{ "023", 5 },
	};
	struct kiln_programs *programs;
	struct rt rt;

	rt_init(&rt);
	programs = rt_programs(&rt, rt_options());
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (int twice = 0; twice < 2; twice++) {
			struct ask ask;

			ask_devices(&ask, &rt, rows[i].devices);
			assert_int_equal(rt_get(programs, &ask), KILN_OK);
			if (rt_calls(&rt, RT_BUILD) != rows[i].n_builds)
				fail_msg("%s: %u builds", rows[i].devices,
					 rt_calls(&rt, RT_BUILD));
		}
	}
	assert_int_equal(rt_stats(programs).n_programs, 5);
	rt_free(&rt, programs);
	assert_true(rt_is_clean(&rt));
}

/* The original throws from 32 on, after 2^31 keys. */
static void a_program_may_be_for_more_than_31_devices(void **state)
{
	struct kiln_programs *programs;
	struct ask ask;
	struct rt rt;

	rt_init(&rt);
	programs = rt_programs(&rt, rt_options());
	ask_init(&ask, &rt, 1, 0);
	ask.request.n_devices = RT_DEVICES_MAX;
	for (size_t i = 0; i < RT_DEVICES_MAX; i++)
		ask.devices[i] = &rt.devices[i];
	assert_int_equal(rt_get(programs, &ask), KILN_OK);
	for (unsigned i = 0; i < RT_DEVICES_MAX; i++) {
		ask_init(&ask, &rt, 1, i);
		assert_int_equal(rt_get(programs, &ask), KILN_OK);
	}
	assert_int_equal(rt_calls(&rt, RT_BUILD), 1);
	rt_free(&rt, programs);
	assert_true(rt_is_clean(&rt));
}

/* S05, and the seed's "employ the same built object for multiple devices". */
static void identical_devices_share_if_the_runtime_says_so(void **state)
{
	static const struct {
		int serves_identical;
		int other_driver;
		int is_silent;
		unsigned n_builds;
	} rows[] = {
		{ 1, 0, 0, 1 },
		{ 0, 0, 0, 2 },
		{ 1, 1, 0, 2 },
		{ 1, 0, 1, 2 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_programs *programs;
		struct ask ask;
		struct rt rt;

		rt_init(&rt);
		rt.table.serves_identical = rows[i].serves_identical;
		rt.devices[1] = rt.devices[0];
		rt.devices[0].is_silent = rt.devices[1].is_silent =
			rows[i].is_silent;
		if (rows[i].other_driver)
			rt.devices[1].names[KILN_DEVICE_DRIVER_VERSION][0]++;
		programs = rt_programs(&rt, rt_options());
		ask_init(&ask, &rt, 1, 0);
		assert_int_equal(rt_get(programs, &ask), KILN_OK);
		ask_init(&ask, &rt, 1, 1);
		assert_int_equal(rt_get(programs, &ask), KILN_OK);
		assert_int_equal(rt_calls(&rt, RT_BUILD), rows[i].n_builds);
		rt_free(&rt, programs);
		assert_true(rt_is_clean(&rt));
	}
}

/* Joined by "/" the strings of both are the same. */
static void devices_are_told_apart_by_each_of_their_strings(void **state)
{
	struct kiln_programs *programs;
	struct rt rt;

	rt_init(&rt);
	rt.table.serves_identical = 1;
	rt.devices[1] = rt.devices[0];
	strcpy(rt.devices[0].names[KILN_DEVICE_NAME], "a/b");
	strcpy(rt.devices[0].names[KILN_DEVICE_VERSION], "c");
	strcpy(rt.devices[1].names[KILN_DEVICE_NAME], "a");
	strcpy(rt.devices[1].names[KILN_DEVICE_VERSION], "b/c");
	programs = rt_programs(&rt, rt_options());
	for (unsigned i = 0; i < 2; i++) {
		struct ask ask;

		ask_init(&ask, &rt, 1, i);
		assert_int_equal(rt_get(programs, &ask), KILN_OK);
		assert_int_equal(rt_calls(&rt, RT_BUILD), i + 1);
	}
	rt_free(&rt, programs);
	assert_true(rt_is_clean(&rt));
}

/* ---- Contract -------------------------------------------------------------- */

static void what_breaks_the_contract_is_refused(void **state)
{
	struct kiln_programs_options options = rt_options();
	struct kiln_programs *programs, *others;
	struct kiln_program_key *key, *none;
	struct kiln_kernel_key *kernel_key;
	struct kiln_kernel *kernel;
	struct kiln_program *program;
	struct ask ask;
	struct rt rt;

	rt_init(&rt);
	assert_int_equal(kiln_programs_new(&options, &programs),
			 KILN_E_INVALID);
	assert_int_equal(kiln_programs_new(NULL, &programs), KILN_E_INVALID);
	options.runtime = &rt.table;
	options.flags = 1u << 31;
	assert_int_equal(kiln_programs_new(&options, &programs),
			 KILN_E_INVALID);
	options.flags = 0;
	rt.table.size = sizeof(size_t);
	assert_int_equal(kiln_programs_new(&options, &programs),
			 KILN_E_INVALID);
	rt.table.size = sizeof(rt.table);
	programs = rt_programs(&rt, rt_options());
	others = rt_programs(&rt, rt_options());
	ask_init(&ask, &rt, 1, 0);
	ask.request.n_devices = 0;
	assert_int_equal(kiln_program_key_new(programs, &ask.request, &none),
			 KILN_E_INVALID);
	ask_init(&ask, &rt, 1, 0);
	ask.request.flags = 2;
	assert_int_equal(kiln_program_key_new(programs, &ask.request, &none),
			 KILN_E_INVALID);
	/* Nothing is read behind what the caller says is there. */
	ask_init(&ask, &rt, 1, 0);
	ask.request.size = sizeof(size_t);
	assert_int_equal(kiln_program_key_new(programs, &ask.request, &none),
			 KILN_E_INVALID);
	assert_int_equal(kiln_program_is_cacheable(&ask.request), 0);
	ask_init(&ask, &rt, 1, 0);
	ask.image.size = sizeof(size_t);
	assert_int_equal(kiln_program_key_new(programs, &ask.request, &none),
			 KILN_E_INVALID);
	assert_int_equal(kiln_program_is_cacheable(&ask.request), 0);
	ask_init(&ask, &rt, 1, 0);
	key = ask_key(programs, &ask);
	assert_int_equal(
		kiln_kernel_key_new(key, &rt.devices[1], "k", &kernel_key),
		KILN_E_INVALID);
	kernel_key = ask_kernel(key, &rt.devices[0], "k");
	assert_int_equal(kiln_program_get(others, key, &program, NULL),
			 KILN_E_INVALID);
	assert_int_equal(kiln_kernel_get(others, kernel_key, &kernel, NULL),
			 KILN_E_INVALID);
	assert_int_equal(kiln_program_get(NULL, key, &program, NULL),
			 KILN_E_INVALID);
	kiln_program_unref(NULL);
	kiln_kernel_unref(NULL);
	kiln_program_key_free(NULL);
	kiln_kernel_key_free(NULL);
	kiln_programs_free(NULL);
	kiln_kernel_key_free(kernel_key);
	kiln_program_key_free(key);
	rt.probe = NULL;
	kiln_programs_free(programs);
	kiln_programs_free(others);
	assert_true(rt_is_clean(&rt));
}

static void what_is_too_long_is_called_so(void **state)
{
	struct kiln_kernel_key *kernel_key;
	struct kiln_program_key *key, *none;
	struct kiln_programs *programs;
	struct kiln_program *program;
	struct kiln_kernel *kernel;
	struct ask ask;
	struct rt rt;
	char *name = malloc(KILN_KEY_BYTES_MAX + 2);

	assert_non_null(name);
	memset(name, 'k', KILN_KEY_BYTES_MAX + 1);
	name[KILN_KEY_BYTES_MAX + 1] = '\0';
	rt_init(&rt);
	programs = rt_programs(&rt, rt_options());
	ask_init(&ask, &rt, 1, 0);
	key = ask_key(programs, &ask);
	assert_int_equal(
		kiln_kernel_key_new(key, &rt.devices[0], name, &kernel_key),
		KILN_E_TOO_LARGE);
	assert_int_equal(kiln_program_get(programs, key, &program, NULL),
			 KILN_OK);
	assert_int_equal(kiln_program_kernel(program, name, &kernel, NULL),
			 KILN_E_TOO_LARGE);
	ask.request.compile_options = name;
	assert_int_equal(kiln_program_key_new(programs, &ask.request, &none),
			 KILN_E_TOO_LARGE);
	kiln_program_unref(program);
	kiln_program_key_free(key);
	rt_free(&rt, programs);
	assert_true(rt_is_clean(&rt));
	free(name);
}

/* S23: builds that ask for what they build. */
struct nested {
	struct kiln_programs *programs;
	const struct kiln_program_key *key, *other;
	enum kiln_status status, other_status;
};

static void ask_again(struct rt *rt, void *arg)
{
	struct nested *nested = arg;
	struct kiln_program *program;

	rt->in_build = NULL;
	nested->status =
		kiln_program_get(nested->programs, nested->key, &program, NULL);
	nested->other_status = kiln_program_get(nested->programs, nested->other,
						&program, NULL);
	if (!nested->other_status)
		kiln_program_unref(program);
}

static void a_build_that_asks_for_itself_is_told(void **state)
{
	static const uint32_t flags[] = { 0, KILN_PROGRAMS_NO_MEMORY };

	for (size_t i = 0; i < 2; i++) {
		struct kiln_programs_options options = rt_options();
		struct kiln_program_key *key, *other;
		struct kiln_program *program;
		struct nested nested;
		struct ask ask, second;
		struct rt rt;

		rt_init(&rt);
		options.flags = flags[i];
		nested.programs = rt_programs(&rt, options);
		ask_init(&ask, &rt, 1, 0);
		ask_init(&second, &rt, 2, 0);
		nested.key = key = ask_key(nested.programs, &ask);
		nested.other = other = ask_key(nested.programs, &second);
		rt.in_build = ask_again;
		rt.in_build_arg = &nested;
		assert_int_equal(
			kiln_program_get(nested.programs, key, &program, NULL),
			KILN_OK);
		assert_int_equal(nested.status, KILN_E_INVALID);
		assert_int_equal(nested.other_status, KILN_OK);
		kiln_program_unref(program);
		kiln_program_key_free(key);
		kiln_program_key_free(other);
		rt_free(&rt, nested.programs);
		assert_true(rt_is_clean(&rt));
	}
}

static int in_child(struct kiln_programs *programs,
		    const struct kiln_program_key *key,
		    const struct kiln_kernel_key *kernel_key,
		    const struct ask *ask)
{
	struct kiln_programs_stats stats;
	struct kiln_program *program;
	struct kiln_kernel *kernel;
	struct kiln_program_key *another;

	kiln_programs_stats_init(&stats);
	if (kiln_program_get(programs, key, &program, NULL) != KILN_E_FORKED ||
	    kiln_kernel_get(programs, kernel_key, &kernel, NULL) !=
		    KILN_E_FORKED ||
	    kiln_kernel_find(programs, NULL, 0, ask->devices[0], "k",
			     &kernel) != KILN_E_FORKED ||
	    kiln_program_key_new(programs, &ask->request, &another) !=
		    KILN_E_FORKED ||
	    kiln_programs_wipe(programs) != KILN_E_FORKED ||
	    kiln_programs_stats(programs, &stats) != KILN_E_FORKED)
		return 1;
	kiln_programs_free(programs);
	return 0;
}

static void a_forked_child_is_told(void **state)
{
	struct kiln_programs *programs;
	struct kiln_program_key *key;
	struct kiln_kernel_key *kernel_key;
	struct kiln_kernel *kernel;
	struct ask ask;
	struct rt rt;
	pid_t child;
	int status;

	rt_init(&rt);
	programs = rt_programs(&rt, rt_options());
	ask_init(&ask, &rt, 1, 0);
	key = ask_key(programs, &ask);
	kernel_key = ask_kernel(key, &rt.devices[0], "k");
	assert_int_equal(kiln_kernel_get(programs, kernel_key, &kernel, NULL),
			 KILN_OK);
	child = fork();
	if (!child)
		_exit(in_child(programs, key, kernel_key, &ask));
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	kiln_kernel_unref(kernel);
	kiln_kernel_key_free(kernel_key);
	kiln_program_key_free(key);
	rt_free(&rt, programs);
	assert_true(rt_is_clean(&rt));
}

/* What only the user had: the child's last reference is not the runtime's. */
static int drop_in_child(struct rt *rt, struct kiln_program *program,
			 struct kiln_kernel *kernel)
{
	struct kiln_kernel *none;

	if (kiln_program_kernel(program, "k", &none, NULL) != KILN_E_FORKED ||
	    kiln_program_retain(program) || kiln_kernel_retain(kernel))
		return 1;
	kiln_program_unref(program);
	kiln_kernel_unref(kernel);
	return rt->live_programs != 1 || rt->live_kernels != 1;
}

static void a_forked_child_releases_nothing(void **state)
{
	struct kiln_programs *programs;
	struct kiln_program_key *key;
	struct kiln_program *program;
	struct kiln_kernel *kernel;
	struct ask ask;
	struct rt rt;
	pid_t child;
	int status;

	rt_init(&rt);
	programs = rt_programs(&rt, rt_options());
	ask_init(&ask, &rt, 1, 0);
	key = ask_key(programs, &ask);
	assert_int_equal(kiln_program_get(programs, key, &program, NULL),
			 KILN_OK);
	kiln_program_key_free(key);
	rt_free(&rt, programs);
	assert_int_equal(kiln_program_kernel(program, "k", &kernel, NULL),
			 KILN_OK);
	child = fork();
	if (!child)
		_exit(drop_in_child(&rt, program, kernel));
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	kiln_kernel_unref(kernel);
	kiln_program_unref(program);
	assert_true(rt_is_clean(&rt));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_built_is_got_again),
		cmocka_unit_test(every_part_of_a_request_counts),
		cmocka_unit_test(equal_options_are_one_program),
		cmocka_unit_test(options_are_composed_from_all_sources),
		cmocka_unit_test(
			options_are_appended_once_however_often_it_is_built),
		cmocka_unit_test(what_may_be_kept_is_decided_by_origin),
		cmocka_unit_test(without_memory_every_request_is_built),
		cmocka_unit_test(a_lasting_failure_is_given_to_everyone_alike),
		cmocka_unit_test(a_spurious_failure_is_not_kept),
		cmocka_unit_test(
			short_of_resources_everything_goes_and_it_is_tried_again),
		cmocka_unit_test(a_second_lack_of_resources_is_the_answer),
		cmocka_unit_test(the_cold_half_may_go_first),
		cmocka_unit_test(what_is_in_use_outlives_the_cache),
		cmocka_unit_test(native_references_are_the_runtimes),
		cmocka_unit_test(a_runtime_may_have_no_references_to_give),
		cmocka_unit_test(
			a_forgotten_image_takes_all_its_programs_along),
		cmocka_unit_test(
			a_program_for_several_devices_serves_some_of_them),
		cmocka_unit_test(a_program_may_be_for_more_than_31_devices),
		cmocka_unit_test(
			identical_devices_share_if_the_runtime_says_so),
		cmocka_unit_test(
			devices_are_told_apart_by_each_of_their_strings),
		cmocka_unit_test(what_breaks_the_contract_is_refused),
		cmocka_unit_test(what_is_too_long_is_called_so),
		cmocka_unit_test(a_build_that_asks_for_itself_is_told),
		cmocka_unit_test(a_forked_child_is_told),
		cmocka_unit_test(a_forked_child_releases_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
