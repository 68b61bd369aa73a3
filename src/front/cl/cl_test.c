/* SPDX-License-Identifier: MIT */

/*
 * Programs for an OpenCL author, through the system's loader: on the driver
 * stand-in or, with the argument "pocl", on PoCL.  What is built is run.
 */

#include "harness/harness.h"

#include "front/cl/place_test.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <kiln/inspect.h>

#define INCLUDING "#include \"factor.h\"\n" SCALE

static int is_pocl;

static void a_program_is_built_once_and_shared(void **state)
{
	struct kiln_cl_build build = source_build(SCALE, "-DFACTOR=3");
	cl_program first, second;
	struct place place = { 0 };

	place_init(&place);
	first = program_of(&place, &build);
	second = program_of(&place, &build);
	assert_ptr_equal(first, second);
	assert_int_equal(value_of(&place, &build), 3);
	assert_int_equal(stats_of(&place).builds, 1);
	clReleaseProgram(first);
	clReleaseProgram(second);
	place_fini(&place);
}

/* Also with a store of its own: what programs under `kiln run` use. */
static void the_next_start_loads_the_binary(void **state)
{
	struct kiln_cl_build build = source_build(SCALE, "-DFACTOR=4");
	struct place place = { 0 };

	place_init(&place);
	assert_int_equal(value_of(&place, &build), 4);
	place_close(&place);
	place_open(&place);
	assert_int_equal(value_of(&place, &build), 4);
	assert_int_equal(stats_of(&place).builds, 0);
	assert_int_equal(stats_of(&place).from_store, 1);
	place_fini(&place);
}

/* PoCL takes no options for others than "": its kernels then tell more. */
static void with_no_options_it_does_too(void **state)
{
	static const char source[] = "#define FACTOR 17\n" SCALE;
	struct kiln_cl_build build = source_build(source, NULL);
	struct kiln_cl_build other = source_build(source, "");
	struct place place = { 0 };
	size_t sizes[2] = { 0 };
	cl_int results[2];
	cl_program programs[2];
	cl_kernel kernel;

	place_init(&place);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(value_of(&place, &build), 17);
		assert_int_equal(kiln_cl_kernel(place.cl, &build, "scale",
						&kernel, NULL),
				 KILN_OK);
		results[i] = clGetKernelArgInfo(kernel, 0, CL_KERNEL_ARG_NAME,
						0, NULL, &sizes[i]);
		clReleaseKernel(kernel);
		assert_int_equal(stats_of(&place).from_store, i);
		place_close(&place);
		place_open(&place);
	}
	assert_int_equal(results[0], results[1]);
	assert_int_equal(sizes[0], sizes[1]);
	programs[0] = program_of(&place, &build);
	programs[1] = program_of(&place, &other);
	assert_ptr_not_equal(programs[0], programs[1]);
	for (int i = 0; i < 2; i++)
		clReleaseProgram(programs[i]);
	place_fini(&place);
}

static void without_a_kiln_the_users_store_is_used(void **state)
{
	struct kiln_cl_build build = source_build(SCALE, "-DFACTOR=5");
	struct place place = { .directory = harness_directory() };

	setenv("KILN_DIR", place.directory, 1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(kiln_cl_open(context, NULL, &place.cl),
				 KILN_OK);
		assert_int_equal(value_of(&place, &build), 5);
		assert_int_equal(stats_of(&place).from_store, i);
		kiln_cl_close(place.cl);
	}
	unsetenv("KILN_DIR");
	free(place.directory);
}

static void whatever_counts_is_told_apart(void **state)
{
	static const struct {
		const char *source, *options;
		int value;
	} rows[] = {
		{ SCALE, "-DFACTOR=6", 6 },
		{ SCALE, "-DFACTOR=7", 7 },
		{ SCALE "\n", "-DFACTOR=6", 6 },
		{ "#define FACTOR 8\n" SCALE, NULL, 8 },
		{ "#define FACTOR 9\n" SCALE, NULL, 9 },
	};
	const size_t n = sizeof(rows) / sizeof(rows[0]);
	struct place place = { 0 };

	place_init(&place);
	for (size_t i = 0; i < 2 * n; i++) {
		struct kiln_cl_build build =
			source_build(rows[i % n].source, rows[i % n].options);

		assert_int_equal(value_of(&place, &build), rows[i % n].value);
		assert_int_equal(stats_of(&place).builds, i < n ? i + 1 : n);
	}
	place_fini(&place);
}

/* S07 */
static void an_include_file_that_changes_is_another_program(void **state)
{
	static const char *const texts[] = { "#define FACTOR 11\n",
					     "#define FACTOR 12\n",
					     "#define FACTOR 11\n" };
	struct kiln_cl_build build;
	struct place place = { 0 };
	char options[320], *header;

	place_init(&place);
	header = harness_path(place.directory, "factor.h");
	snprintf(options, sizeof(options), "-I %s", place.directory);
	build = source_build(INCLUDING, options);
	for (int i = 0; i < 3; i++) {
		harness_write(header, texts[i], strlen(texts[i]));
		assert_int_equal(value_of(&place, &build), i == 1 ? 12 : 11);
	}
	assert_int_equal(stats_of(&place).builds, 2);
	free(header);
	place_fini(&place);
}

/* ---- A file that changes under the driver's hands ---------------------------- */

struct change {
	const char *calls; /* a line for each call of the driver */
	const char *header;
	const char *text;
	int was_early; /* the driver had not begun */
};

/* Once the program is created its key is made, but nothing is read yet. */
static void *change_when_created(void *arg)
{
	struct change *change = arg;
	time_t end = time(NULL) + HARNESS_HANG_S;
	char *calls = NULL;

	while (!(calls && strstr(calls, "create-source")) && time(NULL) < end) {
		free(calls);
		calls = harness_read(change->calls, NULL);
		sched_yield();
	}
	change->was_early = !(calls && strstr(calls, "create-source"));
	free(calls);
	harness_write(change->header, change->text, strlen(change->text));
	return NULL;
}

static void what_a_changed_file_is_in_is_nobody_elses(void **state)
{
	static const char *const before = "#define FACTOR 14\n";
	struct change change = { .text = "#define FACTOR 15\n" };
	struct kiln_cl_build build;
	struct place place = { 0 };
	char options[320], *header, *calls;
	pthread_t thread;

	if (is_pocl)
		HARNESS_LEAVE_OUT("PoCL does not wait for the change");
	place_init(&place);
	change.header = header = harness_path(place.directory, "factor.h");
	change.calls = calls = harness_path(place.directory, "calls");
	snprintf(options, sizeof(options), "-I %s", place.directory);
	build = source_build(INCLUDING, options);
	harness_write(header, before, strlen(before));
	setenv("KILN_TEST_ICD_CALLS", calls, 1);
	setenv("KILN_TEST_ICD_START_MS", "300", 1);
	assert_int_equal(
		pthread_create(&thread, NULL, change_when_created, &change), 0);
	assert_int_equal(value_of(&place, &build), 15);
	pthread_join(thread, NULL);
	unsetenv("KILN_TEST_ICD_START_MS");
	unsetenv("KILN_TEST_ICD_CALLS");
	assert_false(change.was_early);
	harness_write(header, before, strlen(before));
	assert_int_equal(value_of(&place, &build), 14);
	place_close(&place);
	place_open(&place);
	assert_int_equal(value_of(&place, &build), 14);
	free(calls);
	free(header);
	place_fini(&place);
}

/* The text of a build at another time is another. */
static void what_cannot_be_kept_is_built_each_time(void **state)
{
	struct kiln_cl_build build = source_build(
		"#define FACTOR (sizeof(__TIME__) ? 13 : 0)\n" SCALE, NULL);
	struct place place = { 0 };

	if (!is_pocl)
		HARNESS_LEAVE_OUT("the stand-in has no __TIME__");
	place_init(&place);
	assert_int_equal(value_of(&place, &build), 13);
	assert_int_equal(value_of(&place, &build), 13);
	assert_int_equal(stats_of(&place).builds, 2);
	assert_int_equal(stats_of(&place).n_programs, 0);
	place_fini(&place);
}

static void a_failure_has_the_drivers_code_and_log(void **state)
{
	struct kiln_cl_build build = source_build("what is this", "");
	struct kiln_program_failure failures[2];
	cl_program program;
	struct place place = { 0 };

	place_init(&place);
	for (int i = 0; i < 2; i++) {
		kiln_program_failure_init(&failures[i]);
		assert_int_equal(kiln_cl_program(place.cl, &build, &program,
						 &failures[i]),
				 KILN_E_BUILD);
		assert_int_equal(failures[i].code, CL_BUILD_PROGRAM_FAILURE);
		assert_int_equal(failures[i].kind, KILN_BUILD_FAILED);
		assert_non_null(failures[i].message);
	}
	assert_string_equal(failures[0].message, failures[1].message);
	kiln_program_failure_fini(&failures[0]);
	kiln_program_failure_fini(&failures[1]);
	assert_int_equal(kiln_cl_program(place.cl, &build, &program, NULL),
			 KILN_E_BUILD);
	assert_int_equal(stats_of(&place).build_failures, 1);
	place_fini(&place);
}

static void everybody_has_a_kernel_of_his_own(void **state)
{
	struct kiln_cl_build build = source_build(SCALE, "-DFACTOR=1");
	struct kiln_program_failure failure;
	cl_kernel kernels[2], none;
	struct place place = { 0 };

	place_init(&place);
	for (int i = 0; i < 2; i++)
		assert_int_equal(kiln_cl_kernel(place.cl, &build, "scale",
						&kernels[i], NULL),
				 KILN_OK);
	assert_ptr_not_equal(kernels[0], kernels[1]);
	clReleaseKernel(kernels[0]);
	clReleaseKernel(kernels[1]);
	kiln_program_failure_init(&failure);
	assert_int_equal(
		kiln_cl_kernel(place.cl, &build, "nobody", &none, &failure),
		KILN_E_BUILD);
	assert_int_equal(failure.code, CL_INVALID_KERNEL_NAME);
	kiln_program_failure_fini(&failure);
	assert_int_equal(stats_of(&place).builds, 1);
	place_fini(&place);
}

/* IL of the stand-in: a header's five words, and text. */
static void constants_of_il_are_told_apart(void **state)
{
	static const char text[] = "....................\n"
				   "__kernel void scale(__global int *out)\n"
				   "{ out[get_global_id(0)] = SPEC_1; }\n";
	static const cl_uint magic = 0x07230203u, id = 1;
	static const size_t size = sizeof(cl_int);
	unsigned char il[sizeof(text) - 1];
	struct kiln_cl_build build;
	struct place place = { 0 };

	if (is_pocl)
		HARNESS_LEAVE_OUT("PoCL here takes no IL");
	memcpy(il, text, sizeof(il));
	memcpy(il, &magic, sizeof(magic));
	place_init(&place);
	kiln_cl_build_init(&build);
	build.il = il;
	build.il_size = sizeof(il);
	build.constant_ids = &id;
	build.constant_sizes = &size;
	build.n_constants = 1;
	for (cl_int i = 0; i < 4; i++) {
		cl_int value = 20 + i % 2;
		const void *constant = &value;

		build.constants = &constant;
		assert_int_equal(value_of(&place, &build), value);
		assert_int_equal(stats_of(&place).builds, i < 2 ? i + 1 : 2);
	}
	place_close(&place);
	place_open(&place);
	for (cl_int i = 0; i < 2; i++) {
		cl_int value = 20 + i;
		const void *constant = &value;

		build.constants = &constant;
		assert_int_equal(value_of(&place, &build), value);
	}
	assert_int_equal(stats_of(&place).from_store, 2);
	place_fini(&place);
}

static void a_given_binary_is_loaded_and_never_kept_on_disk(void **state)
{
	struct kiln_cl_build build = source_build(SCALE, "-DFACTOR=30");
	struct kiln_cl_build given;
	struct kiln_stats before, after;
	unsigned char *binary;
	struct place place = { 0 };
	cl_program program;
	size_t size;

	place_init(&place);
	program = program_of(&place, &build);
	assert_int_equal(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES,
					  sizeof(size), &size, NULL),
			 CL_SUCCESS);
	binary = malloc(size);
	assert_int_equal(clGetProgramInfo(program, CL_PROGRAM_BINARIES,
					  sizeof(binary), &binary, NULL),
			 CL_SUCCESS);
	clReleaseProgram(program);
	kiln_stats_init(&before);
	kiln_stats(place.kiln, &before);
	kiln_cl_build_init(&given);
	given.binary = binary;
	given.binary_size = size;
	assert_int_equal(value_of(&place, &given), 30);
	assert_int_equal(value_of(&place, &given), 30);
	assert_int_equal(stats_of(&place).builds, 2);
	kiln_stats_init(&after);
	kiln_stats(place.kiln, &after);
	assert_int_equal(after.counters[KILN_COUNT_PUTS],
			 before.counters[KILN_COUNT_PUTS]);
	free(binary);
	place_fini(&place);
}

static void wrong_calls_are_refused(void **state)
{
	cl_device_id nobody = (cl_device_id)&nobody;
	struct kiln_cl_build builds[4];
	cl_program program;
	struct place place = { 0 };
	struct kiln_cl *cl;

	place_init(&place);
	for (int i = 0; i < 4; i++)
		builds[i] = source_build(i ? SCALE : NULL, NULL);
	builds[1].il = builds[1].source;
	builds[2].devices = &nobody;
	builds[2].n_devices = 1;
	builds[3].devices = &device;
	for (int i = 0; i < 4; i++)
		assert_int_equal(
			kiln_cl_program(place.cl, &builds[i], &program, NULL),
			KILN_E_INVALID);
	assert_int_equal(kiln_cl_program(place.cl, NULL, &program, NULL),
			 KILN_E_INVALID);
	assert_int_equal(kiln_cl_open(NULL, NULL, &cl), KILN_E_INVALID);
	kiln_cl_close(NULL);
	place_fini(&place);
}

/* Entries as a rebuild makes them: of stage 0, which nobody has launched. */
static void forget_launches(const char *directory)
{
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_options options;
	struct kiln_entry entry;
	struct kiln *kiln;
	char url[300];

	snprintf(url, sizeof(url), "log:%s", directory);
	kiln_options_init(&options);
	options.store_url = url;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	while (!kiln_list(kiln, &cursor, &entry)) {
		struct kiln_metadata *metadata = kiln_metadata_new();
		struct kiln_blob *value;
		const void *kernels;
		struct kiln_key *key;
		size_t size;

		assert_int_equal(kiln_key_from_record(
					 kiln_blob_data(entry.record),
					 kiln_blob_size(entry.record), &key),
				 KILN_OK);
		assert_int_equal(kiln_get(kiln, key, &value), KILN_OK);
		kiln_metadata_add_u64(metadata, KILN_META_STAGE, 0);
		if (!kiln_metadata_find(kiln_blob_data(entry.metadata),
					kiln_blob_size(entry.metadata),
					KILN_META_KERNELS, &kernels, &size)) {
			kiln_metadata_add(metadata, KILN_META_KERNELS, kernels,
					  size);
			assert_int_equal(kiln_put(kiln, key,
						  kiln_blob_data(value),
						  kiln_blob_size(value),
						  metadata, KILN_PUT_REPLACE),
					 KILN_OK);
		}
		kiln_metadata_free(metadata);
		kiln_blob_unref(value);
		kiln_key_free(key);
		kiln_entry_fini(&entry);
	}
	kiln_close(kiln);
}

static int n_jobs(const char *directory)
{
	char *spool = harness_path(directory, "spool");
	DIR *dir = opendir(spool);
	struct dirent *entry;
	int n = 0;

	while (dir && (entry = readdir(dir)))
		n += strstr(entry->d_name, ".job") != NULL;
	if (dir)
		closedir(dir);
	free(spool);
	return n;
}

static void forget_jobs(const char *directory)
{
	char *spool = harness_path(directory, "spool");

	harness_remove(spool);
	free(spool);
}

/* Of the stand-in, binaries are as good whenever they are fetched.  A process asks
   once, whatever became of it. */
static void what_was_never_launched_is_left_to_the_worker(void **state)
{
	struct kiln_cl_build build = source_build(SCALE, "-DFACTOR=41");
	struct place place = { .directory = harness_directory() };

	setenv("KILN_DIR", place.directory, 1);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(kiln_cl_open(context, NULL, &place.cl),
				 KILN_OK);
		assert_int_equal(value_of(&place, &build), 41);
		assert_int_equal(stats_of(&place).from_store, i > 0);
		kiln_cl_close(place.cl);
		assert_int_equal(n_jobs(place.directory), i == 2 && is_pocl);
		if (i == 1)
			forget_launches(place.directory);
		if (i == 2)
			forget_jobs(place.directory);
	}
	unsetenv("KILN_DIR");
	free(place.directory);
}

static int build_one(unsigned index, void *arg)
{
	struct kiln_cl_build build = source_build(SCALE, "-DFACTOR=40");
	cl_program program;

	if (kiln_cl_program(arg, &build, &program, NULL))
		return 1;
	clReleaseProgram(program);
	return 0;
}

/* S18 */
static void threads_that_ask_at_once_cause_one_build(void **state)
{
	struct place place = { 0 };

	place_init(&place);
	assert_int_equal(harness_threads(16, build_one, place.cl), 0);
	assert_int_equal(stats_of(&place).builds, 1);
	place_fini(&place);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_program_is_built_once_and_shared),
		cmocka_unit_test(the_next_start_loads_the_binary),
		cmocka_unit_test(with_no_options_it_does_too),
		cmocka_unit_test(without_a_kiln_the_users_store_is_used),
		cmocka_unit_test(whatever_counts_is_told_apart),
		cmocka_unit_test(
			an_include_file_that_changes_is_another_program),
		cmocka_unit_test(what_a_changed_file_is_in_is_nobody_elses),
		cmocka_unit_test(what_cannot_be_kept_is_built_each_time),
		cmocka_unit_test(a_failure_has_the_drivers_code_and_log),
		cmocka_unit_test(everybody_has_a_kernel_of_his_own),
		cmocka_unit_test(constants_of_il_are_told_apart),
		cmocka_unit_test(
			a_given_binary_is_loaded_and_never_kept_on_disk),
		cmocka_unit_test(wrong_calls_are_refused),
		cmocka_unit_test(what_was_never_launched_is_left_to_the_worker),
		cmocka_unit_test(threads_that_ask_at_once_cause_one_build),
	};

	is_pocl = argc > 1 && !strcmp(argv[1], "pocl");
	if (is_pocl && !getenv("POCL_CACHE_DIR")) {
		char *cache = harness_directory();

		setenv("POCL_CACHE_DIR", cache, 1);
		free(cache);
	}
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
