/* SPDX-License-Identifier: MIT */

/*
 * What libkiln-cl has the driver do, and what it keeps of that, on the driver
 * stand-in with three devices, none of which takes another's binary.
 */

#include "harness/harness.h"

#include <kiln/pack.h>

#include "front/cl/place_test.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kiln/inspect.h>

#define REQUIRED                                                               \
	"__kernel __attribute__((reqd_work_group_size(1, 1, 1)))\n"            \
	"void scale(__global int *out)\n"                                      \
	"{ out[get_global_id(0)] = FACTOR; }\n"

/* ---- The driver's calls -------------------------------------------------------- */

static char *calls_path;

static void watch(const struct place *place)
{
	calls_path = harness_path(place->directory, "calls");
	setenv("KILN_TEST_ICD_CALLS", calls_path, 1);
}

static void watch_end(void)
{
	unsetenv("KILN_TEST_ICD_CALLS");
	free(calls_path);
}

/* How often since watch(). */
static int n_calls(const char *name)
{
	char *text = harness_read(calls_path, NULL), *line, *rest = text;
	int n = 0;

	while ((line = text ? strsep(&rest, "\n") : NULL))
		n += !strcmp(line, name);
	free(text);
	return n;
}

static uint64_t n_puts(const struct place *place)
{
	struct kiln_stats stats;

	kiln_stats_init(&stats);
	kiln_stats(place->kiln, &stats);
	return stats.counters[KILN_COUNT_PUTS];
}

/* What a program has that is started again. */
static void place_reopen(struct place *place)
{
	place_close(place);
	place_open(place);
}

/* ---- When binaries are fetched --------------------------------------------------- */

/* "When to capture": not while anything is built, not without a store. */
static void nothing_is_fetched_before_it_is_time(void **state)
{
	struct kiln_cl_build build = source_build(SCALE, "-DFACTOR=1");
	struct place place = { 0 };

	place_init(&place);
	watch(&place);
	assert_int_equal(value_of(&place, &build), 1);
	assert_int_equal(n_calls("build-source"), 1);
	assert_int_equal(n_calls("fetch"), 0);
	assert_int_equal(kiln_cl_keep(place.cl), KILN_OK);
	assert_int_equal(n_calls("fetch"), 1);
	assert_int_equal(kiln_cl_keep(place.cl), KILN_OK);
	place_reopen(&place);
	assert_int_equal(value_of(&place, &build), 1);
	place_reopen(&place);
	assert_int_equal(n_calls("fetch"), 1);
	assert_int_equal(n_calls("build-source"), 1);
	watch_end();
	place_fini(&place);
}

static void closing_at_once_keeps_nothing(void **state)
{
	struct kiln_cl_build build = source_build(SCALE, "-DFACTOR=2");
	struct place place = { .flags = KILN_CL_CLOSE_AT_ONCE };

	place_init(&place);
	watch(&place);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(value_of(&place, &build), 2);
		place_reopen(&place);
		assert_int_equal(n_calls("build-source"), i + 1);
	}
	assert_int_equal(n_calls("fetch"), 0);
	assert_int_equal(value_of(&place, &build), 2);
	kiln_cl_keep(place.cl);
	place_reopen(&place);
	assert_int_equal(value_of(&place, &build), 2);
	assert_int_equal(n_calls("build-source"), 3);
	watch_end();
	place_fini(&place);
}

static int n_files(const char *path)
{
	struct dirent *entry;
	DIR *directory = opendir(path);
	int n = 0;

	while (directory && (entry = readdir(directory)))
		n += entry->d_name[0] != '.';
	if (directory)
		closedir(directory);
	return n;
}

/* A file, and no call of the driver; none for what is there. */
static void closing_at_once_leaves_jobs_in_the_users_store(void **state)
{
	struct kiln_cl_build build = source_build(SCALE, "-DFACTOR=17");
	struct place place = { .directory = harness_directory() };
	char *spool = harness_path(place.directory, "spool");
	struct kiln_cl_options options;

	kiln_cl_options_init(&options);
	options.flags = KILN_CL_CLOSE_AT_ONCE;
	setenv("KILN_DIR", place.directory, 1);
	watch(&place);
	for (int i = 0; i < 2; i++) {
		setenv("KILN_SPOOL", i ? "1" : "0", 1);
		assert_int_equal(kiln_cl_open(context, &options, &place.cl),
				 KILN_OK);
		assert_int_equal(value_of(&place, &build), 17);
		kiln_cl_close(place.cl);
		assert_int_equal(n_files(spool), i);
	}
	assert_int_equal(n_calls("fetch"), 0);
	harness_remove(spool);
	assert_int_equal(kiln_cl_open(context, &options, &place.cl), KILN_OK);
	assert_int_equal(value_of(&place, &build), 17);
	kiln_cl_keep(place.cl);
	kiln_cl_close(place.cl);
	assert_int_equal(n_files(spool), 0);
	watch_end();
	unsetenv("KILN_SPOOL");
	unsetenv("KILN_DIR");
	free(spool);
	free(place.directory);
}

static void the_binary_has_what_launches_specialised(void **state)
{
	struct kiln_cl_build build = source_build(SCALE, "-DFACTOR=3");
	struct place place = { 0 };

	setenv("KILN_TEST_ICD_SPECIALISE", "1", 1);
	place_init(&place);
	watch(&place);
	assert_int_equal(value_of(&place, &build), 3);
	assert_int_equal(n_calls("specialise"), 1);
	place_reopen(&place);
	assert_int_equal(value_of(&place, &build), 3);
	assert_int_equal(n_calls("specialise"), 1);
	watch_end();
	place_fini(&place);
	unsetenv("KILN_TEST_ICD_SPECIALISE");
}

/* Both fetch; of one the other would find the entry there. */
static void what_another_has_kept_is_not_fetched_again(void **state)
{
	struct kiln_cl_build build = source_build(SCALE, "-DFACTOR=4");
	struct place place = { 0 }, other;

	place_init(&place);
	other = place;
	place_open(&other);
	watch(&place);
	assert_int_equal(value_of(&place, &build), 4);
	assert_int_equal(value_of(&other, &build), 4);
	assert_int_equal(n_calls("build-source"), 2);
	place_close(&other);
	place_close(&place);
	assert_int_equal(n_calls("fetch"), 1);
	place_open(&place);
	watch_end();
	place_fini(&place);
}

static int build_and_keep(unsigned index, void *arg)
{
	char options[32];
	cl_program program;
	struct kiln_cl_build build = source_build(SCALE, options);

	snprintf(options, sizeof(options), "-DFACTOR=%u", 100 + index % 4);
	if (kiln_cl_program(arg, &build, &program, NULL) || kiln_cl_keep(arg))
		return 1;
	clReleaseProgram(program);
	return 0;
}

static void threads_keep_what_they_build_once(void **state)
{
	struct place place = { 0 };

	place_init(&place);
	watch(&place);
	assert_int_equal(harness_threads(16, build_and_keep, place.cl), 0);
	assert_int_equal(n_calls("build-source"), 4);
	assert_int_equal(n_calls("fetch"), 4);
	watch_end();
	place_fini(&place);
}

/* ---- Binaries that are not as good --------------------------------------------- */

static size_t required_size(const struct place *place,
			    const struct kiln_cl_build *build)
{
	size_t sizes[3] = { 0 };
	cl_kernel kernel;

	assert_int_equal(
		kiln_cl_kernel(place->cl, build, "scale", &kernel, NULL),
		KILN_OK);
	clGetKernelWorkGroupInfo(kernel, device,
				 CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
				 sizeof(sizes), sizes, NULL);
	clReleaseKernel(kernel);
	return sizes[0];
}

/* What such kernels tell must not depend on the start. */
static void a_program_tells_the_same_when_it_is_found(void **state)
{
	struct kiln_cl_build build = source_build(REQUIRED, "-DFACTOR=5");
	struct place place = { 0 };

	for (int is_rich = 0; is_rich < 2; is_rich++) {
		setenv("KILN_TEST_ICD_POOR_BINARIES", is_rich ? "0" : "1", 1);
		place_init(&place);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(required_size(&place, &build), 1);
			assert_int_equal(stats_of(&place).from_store,
					 i && is_rich);
			place_reopen(&place);
		}
		place_fini(&place);
	}
	unsetenv("KILN_TEST_ICD_POOR_BINARIES");
}

/* Not one start more is spent on it. */
static void what_the_driver_would_refuse_is_not_kept(void **state)
{
	static const char *const switches[] = {
		"KILN_TEST_ICD_REFUSE_BINARIES",
		"KILN_TEST_ICD_FAIL_BINARY_BUILDS",
	};
	struct kiln_cl_build build = source_build(SCALE, "-DFACTOR=6");

	for (int i = 0; i < 2; i++) {
		struct place place = { 0 };

		place_init(&place);
		setenv(switches[i], "1", 1);
		assert_int_equal(value_of(&place, &build), 6);
		place_reopen(&place);
		assert_int_equal(n_puts(&place), 0);
		watch(&place);
		assert_int_equal(value_of(&place, &build), 6);
		assert_int_equal(n_calls("create-binary"), 0);
		assert_int_equal(n_calls("create-binary-refused"), 0);
		watch_end();
		unsetenv(switches[i]);
		place_fini(&place);
	}
}

static void a_refused_binary_costs_the_entry_and_no_more(void **state)
{
	struct kiln_cl_build build = source_build(SCALE, "-DFACTOR=7");
	struct place place = { 0 };

	place_init(&place);
	assert_int_equal(value_of(&place, &build), 7);
	place_reopen(&place);
	setenv("KILN_TEST_ICD_SHORT_OF_MEMORY", "1", 1);
	assert_int_equal(value_of(&place, &build), 7);
	unsetenv("KILN_TEST_ICD_SHORT_OF_MEMORY");
	place_reopen(&place);
	assert_int_equal(value_of(&place, &build), 7);
	assert_int_equal(stats_of(&place).from_store, 1);
	place_reopen(&place);
	setenv("KILN_TEST_ICD_REFUSE_BINARIES", "1", 1);
	assert_int_equal(value_of(&place, &build), 7);
	assert_int_equal(stats_of(&place).builds, 1);
	place_reopen(&place);
	unsetenv("KILN_TEST_ICD_REFUSE_BINARIES");
	assert_int_equal(value_of(&place, &build), 7);
	assert_int_equal(stats_of(&place).from_store, 0);
	place_fini(&place);
}

/* All entries of its store that are any. */
static char *pack_of(const struct place *place)
{
	char *path = harness_path(place->directory, "its.pack");
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_pack_writer *writer;
	struct kiln_entry entry;

	assert_int_equal(kiln_pack_create(path, NULL, &writer), KILN_OK);
	while (!kiln_list(place->kiln, &cursor, &entry)) {
		struct kiln_blob *value, *metadata;
		struct kiln_key *key;

		assert_int_equal(kiln_key_from_record(
					 kiln_blob_data(entry.record),
					 kiln_blob_size(entry.record), &key),
				 KILN_OK);
		assert_int_equal(kiln_peek(place->kiln, key, &value, &metadata),
				 KILN_OK);
		/* Hidden ones are refused. */
		(void)kiln_pack_add(writer, key, kiln_blob_data(metadata),
				    kiln_blob_size(metadata),
				    kiln_blob_data(value),
				    kiln_blob_size(value));
		kiln_blob_unref(value);
		kiln_blob_unref(metadata);
		kiln_key_free(key);
		kiln_entry_fini(&entry);
	}
	assert_int_equal(kiln_pack_finish(writer, NULL), KILN_OK);
	return path;
}

/* Where a pack has what the driver refuses, the store has it the next time. */
static void a_refused_binary_of_a_pack_is_kept_anew(void **state)
{
	struct kiln_cl_build build = source_build(SCALE, "-DFACTOR=9");
	struct place first = { 0 }, place = { 0 };
	char *pack;

	place_init(&first);
	assert_int_equal(value_of(&first, &build), 9);
	place_reopen(&first);
	pack = pack_of(&first);
	place.packs = pack;
	place_init(&place);
	assert_int_equal(value_of(&place, &build), 9);
	assert_int_equal(stats_of(&place).from_store, 1);
	assert_int_equal(stats_of(&place).builds, 0);
	place_reopen(&place);
	setenv("KILN_TEST_ICD_REFUSE_BINARIES", "1", 1);
	assert_int_equal(value_of(&place, &build), 9);
	assert_int_equal(stats_of(&place).builds, 1);
	unsetenv("KILN_TEST_ICD_REFUSE_BINARIES");
	place.packs = NULL;
	place_reopen(&place);
	assert_int_equal(value_of(&place, &build), 9);
	assert_int_equal(stats_of(&place).from_store, 1);
	place_fini(&place);
	place_fini(&first);
	free(pack);
}

/* ---- Devices ------------------------------------------------------------------- */

static void run_on(const struct place *place, const struct kiln_cl_build *build,
		   cl_device_id on, int value)
{
	cl_int err;
	cl_command_queue its =
		clCreateCommandQueueWithProperties(context, on, NULL, &err);

	assert_int_equal(err, CL_SUCCESS);
	assert_int_equal(value_on(place, build, its), value);
	clReleaseCommandQueue(its);
}

/* Some drivers answer for all devices, some for those of the last build. */
static void each_device_gets_its_own_binary(void **state)
{
	struct kiln_cl_build build = source_build(SCALE, "-DFACTOR=8");
	struct place place = { 0 };

	build.devices = &devices[1];
	build.n_devices = 2;
	for (int is_whole = 0; is_whole < 2; is_whole++) {
		setenv("KILN_TEST_ICD_WHOLE_BUILDS", is_whole ? "1" : "0", 1);
		place_init(&place);
		for (int i = 0; i < 2; i++) {
			run_on(&place, &build, devices[1], 8);
			run_on(&place, &build, devices[2], 8);
			assert_int_equal(stats_of(&place).from_store, i);
			place_reopen(&place);
		}
		place_fini(&place);
	}
	unsetenv("KILN_TEST_ICD_WHOLE_BUILDS");
}

static void the_order_of_devices_is_of_no_account(void **state)
{
	cl_device_id others[] = { devices[2], devices[1], devices[2] };
	struct kiln_cl_build build = source_build(SCALE, "-DFACTOR=9");
	struct kiln_cl_build same = build;
	cl_program first, second;
	struct place place = { 0 };

	build.devices = &devices[1];
	build.n_devices = 2;
	same.devices = others;
	same.n_devices = 3;
	place_init(&place);
	first = program_of(&place, &build);
	second = program_of(&place, &same);
	assert_ptr_equal(first, second);
	clReleaseProgram(first);
	clReleaseProgram(second);
	place_fini(&place);
}

/* ---- Without a store's key -------------------------------------------------------- */

/* Another layer below, as under `kiln run`: that one keeps, or nobody. */
static void below_a_layer_programs_are_shared_in_memory_alone(void **state)
{
	struct kiln_cl_build build = source_build(SCALE, "-DFACTOR=10");
	struct place place = { 0 };

	setenv("OPENCL_LAYERS", "/bin/true", 1);
	place_init(&place);
	watch(&place);
	for (int i = 0; i < 4; i++)
		assert_int_equal(value_of(&place, &build), 10);
	assert_int_equal(n_calls("build-source"), 1);
	setenv("KILN_TEST_ICD_WARN", "0", 1);
	assert_int_equal(value_of(&place, &build), 10);
	assert_int_equal(n_calls("build-source"), 2);
	unsetenv("KILN_TEST_ICD_WARN");
	place_reopen(&place);
	assert_int_equal(n_puts(&place), 0);
	assert_int_equal(n_calls("fetch"), 0);
	watch_end();
	place_fini(&place);
	unsetenv("OPENCL_LAYERS");
}

static void below_a_layer_a_changed_file_is_seen(void **state)
{
	static const char *const texts[] = { "#define FACTOR 11\n",
					     "#define FACTOR 12\n" };
	struct kiln_cl_build build;
	struct place place = { 0 };
	char options[320], *header;

	setenv("OPENCL_LAYERS", "/bin/true", 1);
	place_init(&place);
	header = harness_path(place.directory, "factor.h");
	snprintf(options, sizeof(options), "-I %s", place.directory);
	build = source_build("#include \"factor.h\"\n" SCALE, options);
	for (int i = 0; i < 4; i++) {
		harness_write(header, texts[i / 2], strlen(texts[0]));
		assert_int_equal(value_of(&place, &build), 11 + i / 2);
	}
	assert_int_equal(stats_of(&place).builds, 2);
	free(header);
	place_fini(&place);
	unsetenv("OPENCL_LAYERS");
}

/* ---- Without a store --------------------------------------------------------------- */

static void count_line(void *arg, enum kiln_log_level level,
		       const char *message)
{
	*(int *)arg += !strstr(message, "KILN_TEST_"); /* are unknown */
}

/* S48: as without a cache, but for sharing. */
static void a_store_that_is_not_there_is_no_trouble(void **state)
{
	static const struct {
		const char *name, *value; /* NULL: a path that cannot be */
		int is_silent;
	} rows[] = {
		{ "KILN_DIR", NULL, 0 },
		{ "KILN_MAX_SIZE", "plenty", 0 },
		{ "KILN_DISABLE", "1", 1 },
		{ "KILN_READONLY", "1", 1 },
	};
	struct kiln_cl_build build = source_build(SCALE, "-DFACTOR=13");

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct place place = { .directory = harness_directory() };
		char *file = harness_path(place.directory, "file");
		struct kiln_cl_options options;
		int n_lines = 0;

		harness_write(file, "", 0);
		setenv("KILN_DIR", place.directory, 1);
		setenv(rows[i].name, rows[i].value ? rows[i].value : file, 1);
		kiln_cl_options_init(&options);
		options.log = count_line;
		options.log_arg = &n_lines;
		watch(&place);
		assert_int_equal(kiln_cl_open(context, &options, &place.cl),
				 KILN_OK);
		for (int n = 0; n < 2; n++)
			assert_int_equal(value_of(&place, &build), 13);
		kiln_cl_close(place.cl);
		assert_int_equal(n_lines > 0, !rows[i].is_silent);
		assert_int_equal(n_calls("build-source"), 1);
		/* For nobody. */
		assert_int_equal(n_calls("fetch"), 0);
		watch_end();
		unsetenv(rows[i].name);
		unsetenv("KILN_DIR");
		free(file);
		free(place.directory);
	}
}

/* ---- Lives ------------------------------------------------------------------------- */

static void the_context_may_be_released_first(void **state)
{
	struct kiln_cl_build build = source_build(SCALE, "-DFACTOR=14");
	struct kiln_cl_options options;
	struct place place = { 0 };
	struct kiln_cl *cl;
	cl_program program;
	cl_int err;

	place_init(&place);
	watch(&place);
	kiln_cl_options_init(&options);
	options.kiln = place.kiln;
	cl_context other = clCreateContext(NULL, 1, &device, NULL, NULL, &err);
	assert_int_equal(kiln_cl_open(other, &options, &cl), KILN_OK);
	clReleaseContext(other);
	assert_int_equal(kiln_cl_program(cl, &build, &program, NULL), KILN_OK);
	kiln_cl_close(cl);
	assert_int_equal(n_puts(&place) > 0, 1);
	assert_int_equal(n_calls("destroy-program"), 1); /* a trial */
	clReleaseProgram(program);
	assert_int_equal(n_calls("destroy-program"), 2);
	watch_end();
	place_fini(&place);
}

static int use_in_child(struct place *place, const struct kiln_cl_build *build)
{
	struct kiln_programs_stats stats;
	cl_program program;
	cl_kernel kernel;

	kiln_programs_stats_init(&stats);
	if (kiln_cl_program(place->cl, build, &program, NULL) !=
		    KILN_E_FORKED ||
	    kiln_cl_kernel(place->cl, build, "scale", &kernel, NULL) !=
		    KILN_E_FORKED ||
	    kiln_cl_keep(place->cl) != KILN_E_FORKED ||
	    kiln_cl_stats(place->cl, &stats) != KILN_E_FORKED)
		return 1;
	kiln_cl_close(place->cl);
	return 0;
}

/* Its threads are not there: any call could wait for one. */
static void a_child_leaves_the_driver_alone(void **state)
{
	struct kiln_cl_build build = source_build(SCALE, "-DFACTOR=15");
	struct place place = { 0 };
	int status = -1;
	pid_t child;

	place_init(&place);
	assert_int_equal(value_of(&place, &build), 15);
	watch(&place);
	child = fork();
	if (!child)
		_exit(use_in_child(&place, &build));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_null(harness_read(calls_path, NULL));
	place_reopen(&place);
	assert_int_equal(n_calls("fetch"), 1);
	watch_end();
	place_fini(&place);
}

/* ---- Structures --------------------------------------------------------------------- */

/* Of an older caller and of a newer one. */
static void structures_of_other_sizes_are_understood(void **state)
{
	struct {
		struct kiln_cl_build build;
		size_t more;
	} newer = { .build = source_build(SCALE, "-DFACTOR=16") };
	struct kiln_cl_options options;
	struct place place = { 0 };
	struct kiln_cl *cl;
	cl_program program;

	place_init(&place);
	newer.build.size = sizeof(newer);
	program = program_of(&place, &newer.build);
	clReleaseProgram(program);
	newer.more = 1;
	assert_int_equal(
		kiln_cl_program(place.cl, &newer.build, &program, NULL),
		KILN_E_INVALID);
	newer.build.size = 0;
	assert_int_equal(
		kiln_cl_program(place.cl, &newer.build, &program, NULL),
		KILN_E_INVALID);
	memset(&options, 0xff, sizeof(options));
	options.size = offsetof(struct kiln_cl_options, bytes_max);
	options.kiln = place.kiln;
	assert_int_equal(kiln_cl_open(context, &options, &cl), KILN_OK);
	kiln_cl_close(cl);
	options.size = 0;
	assert_int_equal(kiln_cl_open(context, &options, &cl), KILN_E_INVALID);
	place_fini(&place);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_fetched_before_it_is_time),
		cmocka_unit_test(closing_at_once_keeps_nothing),
		cmocka_unit_test(
			closing_at_once_leaves_jobs_in_the_users_store),
		cmocka_unit_test(the_binary_has_what_launches_specialised),
		cmocka_unit_test(what_another_has_kept_is_not_fetched_again),
		cmocka_unit_test(threads_keep_what_they_build_once),
		cmocka_unit_test(a_program_tells_the_same_when_it_is_found),
		cmocka_unit_test(what_the_driver_would_refuse_is_not_kept),
		cmocka_unit_test(a_refused_binary_costs_the_entry_and_no_more),
		cmocka_unit_test(a_refused_binary_of_a_pack_is_kept_anew),
		cmocka_unit_test(each_device_gets_its_own_binary),
		cmocka_unit_test(the_order_of_devices_is_of_no_account),
		cmocka_unit_test(
			below_a_layer_programs_are_shared_in_memory_alone),
		cmocka_unit_test(below_a_layer_a_changed_file_is_seen),
		cmocka_unit_test(a_store_that_is_not_there_is_no_trouble),
		cmocka_unit_test(the_context_may_be_released_first),
		cmocka_unit_test(a_child_leaves_the_driver_alone),
		cmocka_unit_test(structures_of_other_sizes_are_understood),
	};

	setenv("KILN_TEST_ICD_DEVICES", "3", 1);
	setenv("KILN_TEST_ICD_NAMES", "first,second,third", 1);
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
