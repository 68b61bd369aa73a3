/* SPDX-License-Identifier: MIT */

/* What is behind memory: a kiln that other contexts and processes share. */

#include "harness/harness.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"
#include "harness/shelf.h"
#include "program/program.h"
#include "program/runtime_test.h"

/* A context on a kiln of its own, on a shelf: as another process would be. */
struct context {
	struct rt rt;
	struct kiln *kiln;
	struct kiln_programs *programs;
};

static void context_open(struct context *context, struct shelf *shelf,
			 struct kiln_programs_options options,
			 void (*prepare)(struct context *context))
{
	struct kiln_options of_kiln;
	struct kiln_tier *tier = shelf_tier(shelf);

	rt_init(&context->rt);
	if (prepare)
		prepare(context);
	kiln_options_init(&of_kiln);
	of_kiln.tiers = &tier;
	of_kiln.n_tiers = 1;
	of_kiln.flags = KILN_OPEN_NO_MEMORY;
	if (kiln_open(&of_kiln, &context->kiln))
		abort();
	options.kiln = context->kiln;
	context->programs = rt_programs(&context->rt, options);
}

static void context_close(struct context *context)
{
	rt_free(&context->rt, context->programs);
	kiln_close(context->kiln);
	assert_true(rt_is_clean(&context->rt));
}

static uint64_t counter(const struct context *context, enum kiln_counter which)
{
	struct kiln_stats stats;

	kiln_stats_init(&stats);
	assert_int_equal(kiln_stats(context->kiln, &stats), KILN_OK);
	return stats.counters[which];
}

/* One use in a fresh context; how it came: 'b' built, 's' from the store. */
static char use_once(struct shelf *shelf, const struct ask *ask_of,
		     struct kiln_programs_options options,
		     void (*prepare)(struct context *context))
{
	struct context context;
	struct kiln_program_key *key;
	struct kiln_program *program;
	struct ask ask = *ask_of;
	char how;

	context_open(&context, shelf, options, prepare);
	/* The same devices by number, of this context. */
	ask.request.image = &ask.image;
	ask.request.devices = ask.devices;
	for (size_t i = 0; i < ask.request.n_devices; i++)
		ask.devices[i] =
			&context.rt.devices[(uintptr_t)ask_of->devices[i]];
	key = ask_key(context.programs, &ask);
	assert_int_equal(
		kiln_program_get(context.programs, key, &program, NULL),
		KILN_OK);
	assert_true(ask_is_right(&context.rt, &ask, program,
				 key->compile_options, key->link_options));
	how = ((struct rt_program *)kiln_program_handle(program))
			      ->is_from_binary
		      ? 's'
		      : 'b';
	assert_int_equal(rt_stats(context.programs).from_store, how == 's');
	assert_int_equal(rt_stats(context.programs).builds, how == 'b');
	kiln_program_unref(program);
	kiln_program_key_free(key);
	context_close(&context);
	return how;
}

/* Devices by number instead of by pointer. */
static void ask_numbers(struct ask *ask, const char *devices)
{
	static struct rt none;

	ask_init(ask, &none, 1, 0);
	ask->request.n_devices = strlen(devices);
	for (size_t i = 0; devices[i]; i++)
		ask->devices[i] = (void *)(uintptr_t)(devices[i] - '0');
}

/* ---- Found or not ---------------------------------------------------------- */

static void what_one_context_built_another_loads(void **state)
{
	struct shelf *shelf = shelf_new();
	struct ask ask;

	ask_numbers(&ask, "0");
	assert_int_equal(use_once(shelf, &ask, rt_options(), NULL), 'b');
	assert_int_equal(use_once(shelf, &ask, rt_options(), NULL), 's');
	assert_int_equal(shelf_n_entries(shelf), 1);
	shelf_free(shelf);
}

static void devices_are_told_apart_by_their_strings(void **state)
{
	struct shelf *shelf = shelf_new();
	struct ask ask;

	ask_numbers(&ask, "0");
	assert_int_equal(use_once(shelf, &ask, rt_options(), NULL), 'b');
	ask_numbers(&ask, "1");
	assert_int_equal(use_once(shelf, &ask, rt_options(), NULL), 'b');
	assert_int_equal(use_once(shelf, &ask, rt_options(), NULL), 's');
	shelf_free(shelf);
}

/* persistent-cache-multi-device: an entry for each, all of which are needed. */
static void all_devices_binaries_must_be_there(void **state)
{
	static const struct {
		const char *devices;
		char how;
		size_t n_entries;
	} rows[] = {
		{ "02", 'b', 2 }, { "02", 's', 2 },  { "20", 's', 2 },
		{ "0", 's', 2 },  { "012", 'b', 3 }, { "012", 's', 3 },
		{ "12", 's', 3 }, { "123", 'b', 4 },
	};
	struct shelf *shelf = shelf_new();

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ask ask;

		ask_numbers(&ask, rows[i].devices);
		assert_int_equal(use_once(shelf, &ask, rt_options(), NULL),
				 rows[i].how);
		assert_int_equal(shelf_n_entries(shelf), rows[i].n_entries);
	}
	shelf_free(shelf);
}

static void make_twins(struct context *context)
{
	context->rt.devices[1] = context->rt.devices[0];
}

static void identical_devices_have_one_entry(void **state)
{
	struct shelf *shelf = shelf_new();
	struct ask ask;

	ask_numbers(&ask, "01");
	assert_int_equal(use_once(shelf, &ask, rt_options(), make_twins), 'b');
	assert_int_equal(shelf_n_entries(shelf), 1);
	ask_numbers(&ask, "1");
	assert_int_equal(use_once(shelf, &ask, rt_options(), make_twins), 's');
	shelf_free(shelf);
}

/* The original's options "-a", "b" and "-ab", "" are one. */
static void where_options_are_cut_matters(void **state)
{
	struct shelf *shelf = shelf_new();
	struct ask ask;

	ask_numbers(&ask, "0");
	ask.request.compile_options = "-a";
	ask.request.link_options = "b";
	assert_int_equal(use_once(shelf, &ask, rt_options(), NULL), 'b');
	ask.request.compile_options = "-ab";
	ask.request.link_options = NULL;
	assert_int_equal(use_once(shelf, &ask, rt_options(), NULL), 'b');
	assert_int_equal(use_once(shelf, &ask, rt_options(), NULL), 's');
	shelf_free(shelf);
}

static void make_silent(struct context *context)
{
	context->rt.devices[0].is_silent = 1;
}

static void without_binaries(struct context *context)
{
	context->rt.table.create_from_binary = NULL;
}

/* S05 in part: what is kept on disk at all.  Sizes are the image's, 7 bytes. */
static void what_may_not_be_kept_is_built_each_time(void **state)
{
	static const struct {
		enum kiln_image_format format;
		enum kiln_program_origin origin;
		uint32_t flags, request_flags;
		uint64_t min, max;
		void (*prepare)(struct context *context);
		char second;
	} rows[] = {
		{ .second = 's' },
		{ .format = KILN_IMAGE_NATIVE, .second = 's' },
		{ .format = KILN_IMAGE_OTHER, .second = 'b' },
		{ .flags = KILN_PROGRAMS_NO_STORE, .second = 'b' },
		{ .flags = KILN_PROGRAMS_NO_MEMORY, .second = 's' },
		{ .flags = KILN_PROGRAMS_WHOLE_IMAGES, .second = 's' },
		{ .origin = KILN_PROGRAM_SOURCE, .second = 'b' },
		{ .origin = KILN_PROGRAM_SOURCE,
		  .request_flags = KILN_PROGRAM_KEEP,
		  .second = 's' },
		{ .origin = KILN_PROGRAM_INTEROP, .second = 'b' },
		{ .min = 7, .second = 's' },
		{ .min = 8, .second = 'b' },
		{ .max = 7, .second = 's' },
		{ .max = 6, .second = 'b' },
		{ .prepare = make_silent, .second = 'b' },
		{ .prepare = without_binaries, .second = 'b' },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_programs_options options = rt_options();
		struct shelf *shelf = shelf_new();
		struct ask ask;

		ask_numbers(&ask, "0");
		ask.image.format = rows[i].format;
		ask.image.origin = rows[i].origin;
		ask.request.flags = rows[i].request_flags;
		options.flags = rows[i].flags;
		options.image_bytes_min = rows[i].min;
		options.image_bytes_max = rows[i].max;
		assert_int_equal(
			use_once(shelf, &ask, options, rows[i].prepare), 'b');
		if (use_once(shelf, &ask, options, rows[i].prepare) !=
		    rows[i].second)
			fail_msg("row %zu", i);
		shelf_free(shelf);
	}
}

static void have_no_binary(struct context *context)
{
	context->rt.has_no_binary = 1;
}

static void a_program_without_a_binary_is_used_all_the_same(void **state)
{
	struct shelf *shelf = shelf_new();
	struct ask ask;

	ask_numbers(&ask, "01");
	assert_int_equal(use_once(shelf, &ask, rt_options(), have_no_binary),
			 'b');
	assert_int_equal(shelf_n_entries(shelf), 0);
	shelf_free(shelf);
}

/* ---- Refusals and faults --------------------------------------------------- */

/* S09: a binary that the driver refuses is dropped and built anew, once. */
static void a_refused_binary_is_dropped_and_built_anew(void **state)
{
	struct shelf *shelf = shelf_new();
	struct context context;
	struct ask ask, by_number;

	ask_numbers(&by_number, "0");
	assert_int_equal(use_once(shelf, &by_number, rt_options(), NULL), 'b');
	context_open(&context, shelf, rt_options(), NULL);
	context.rt.refuses = 1;
	ask_init(&ask, &context.rt, 1, 0);
	assert_int_equal(rt_get(context.programs, &ask), KILN_OK);
	assert_int_equal(rt_calls(&context.rt, RT_BINARY), 1);
	assert_int_equal(rt_calls(&context.rt, RT_BUILD), 1);
	assert_int_equal(counter(&context, KILN_COUNT_MISS_REFUSED), 1);
	assert_int_equal(rt_stats(context.programs).build_failures, 0);
	context_close(&context);
	/* And is there anew. */
	assert_int_equal(shelf_n_entries(shelf), 1);
	assert_int_equal(use_once(shelf, &by_number, rt_options(), NULL), 's');
	shelf_free(shelf);
}

/* The entry is fine, and stays. */
static void a_lack_of_memory_while_loading_costs_no_entry(void **state)
{
	struct shelf *shelf = shelf_new();
	struct context context;
	struct ask ask, by_number;

	ask_numbers(&by_number, "0");
	assert_int_equal(use_once(shelf, &by_number, rt_options(), NULL), 'b');
	context_open(&context, shelf, rt_options(), NULL);
	context.rt.plan =
		(struct rt_plan){ RT_BINARY, 0, 1, KILN_BUILD_RESOURCES };
	ask_init(&ask, &context.rt, 1, 0);
	assert_int_equal(rt_get(context.programs, &ask), KILN_OK);
	assert_int_equal(rt_calls(&context.rt, RT_BINARY), 2);
	assert_int_equal(rt_calls(&context.rt, RT_BUILD), 0);
	assert_int_equal(rt_stats(context.programs).resets, 1);
	context_close(&context);
	assert_int_equal(shelf_n_entries(shelf), 1);
	shelf_free(shelf);
}

static void a_store_that_fails_costs_nothing_but_builds(void **state)
{
	struct shelf *shelf = shelf_new();
	struct ask ask;

	ask_numbers(&ask, "0");
	shelf_fail_get(shelf, KILN_E_IO);
	shelf_fail_put(shelf, KILN_E_IO);
	shelf_fail_lock(shelf, KILN_E_IO);
	assert_int_equal(use_once(shelf, &ask, rt_options(), NULL), 'b');
	assert_int_equal(use_once(shelf, &ask, rt_options(), NULL), 'b');
	shelf_free(shelf);
}

/* The message and the code are the runtime's, and disk knows nothing of it. */
static void a_failed_build_is_the_same_with_a_store(void **state)
{
	struct kiln_program_failure failure;
	struct shelf *shelf = shelf_new();
	struct kiln_program_key *key;
	struct kiln_program *program;
	struct context context;
	struct ask ask;

	context_open(&context, shelf, rt_options(), NULL);
	context.rt.plan = (struct rt_plan){ RT_BUILD, 0, 1, KILN_BUILD_FAILED };
	ask_init(&ask, &context.rt, 1, 0);
	key = ask_key(context.programs, &ask);
	kiln_program_failure_init(&failure);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(kiln_program_get(context.programs, key,
						  &program, &failure),
				 KILN_E_BUILD);
		assert_int_equal(failure.code, -11);
		assert_string_equal(failure.message, "planned, call 0");
		kiln_program_failure_fini(&failure);
	}
	assert_int_equal(rt_calls(&context.rt, RT_BUILD), 1);
	assert_int_equal(shelf_n_entries(shelf), 0);
	kiln_program_key_free(key);
	context_close(&context);
	shelf_free(shelf);
}

/* ---- Threads and processes ------------------------------------------------- */

struct contexts {
	struct context of[8];
	_Atomic unsigned n_wrong;
};

static int get_in_context(unsigned index, void *arg)
{
	struct contexts *contexts = arg;
	struct context *context = &contexts->of[index % 8];
	struct ask ask;

	ask_init(&ask, &context->rt, 1, 0);
	return rt_get(context->programs, &ask) != KILN_OK;
}

/* Contexts with one kiln: their threads wait for each other's builds. */
static void contexts_of_one_kiln_build_once(void **state)
{
	struct shelf *shelf = shelf_new();
	struct contexts contexts = { 0 };
	unsigned n_builds = 0;

	context_open(&contexts.of[0], shelf, rt_options(), NULL);
	for (size_t i = 1; i < 8; i++) {
		struct kiln_programs_options options = rt_options();

		rt_init(&contexts.of[i].rt);
		options.kiln = contexts.of[0].kiln;
		contexts.of[i].programs =
			rt_programs(&contexts.of[i].rt, options);
	}
	assert_int_equal(harness_threads(32, get_in_context, &contexts), 0);
	for (size_t i = 8; i--;) {
		n_builds += rt_calls(&contexts.of[i].rt, RT_BUILD);
		rt_free(&contexts.of[i].rt, contexts.of[i].programs);
		assert_true(rt_is_clean(&contexts.of[i].rt));
	}
	kiln_close(contexts.of[0].kiln);
	assert_int_equal(n_builds, 1);
	shelf_free(shelf);
}

struct job {
	const char *store; /* URL */
	const char *log;   /* a byte for each build */
	int dies;	   /* or is stopped, in the midst of the build */
	int stops;
	uint32_t timeout_ms; /* 0: the usual */
	uint32_t flags;	     /* of the programs */
	int ready[2];
};

static void note_build(struct rt *rt, void *arg)
{
	struct job *job = arg;
	FILE *log = fopen(job->log, "a");

	if (log && fputc('b', log) == 'b')
		fclose(log);
	if (job->stops)
		raise(SIGSTOP);
	if (!job->dies)
		return;
	(void)!write(job->ready[1], "x", 1);
	for (;;)
		pause();
}

static int build_in_process(unsigned index, void *arg)
{
	struct kiln_programs_options options = rt_options();
	struct kiln_options of_kiln;
	struct kiln_programs *programs;
	struct kiln *kiln;
	struct ask ask;
	struct rt rt;
	int failed;

	kiln_options_init(&of_kiln);
	of_kiln.store_url = ((struct job *)arg)->store;
	of_kiln.store_bytes_max = 4 << 20;
	if (((struct job *)arg)->timeout_ms)
		of_kiln.lock_timeout_ms = ((struct job *)arg)->timeout_ms;
	if (kiln_open(&of_kiln, &kiln))
		return 1;
	rt_init(&rt);
	rt.in_build = note_build;
	rt.in_build_arg = arg;
	options.kiln = kiln;
	options.flags = ((struct job *)arg)->flags;
	programs = rt_programs(&rt, options);
	ask_init(&ask, &rt, 1, 0);
	failed = rt_get(programs, &ask) != KILN_OK;
	rt_free(&rt, programs);
	kiln_close(kiln);
	return failed;
}

static void job_begin(struct job *job, const char *kind, char *directory)
{
	char *store = malloc(strlen(kind) + strlen(directory) + 4);

	sprintf(store, "%s:%s/s", kind, directory);
	*job = (struct job){ .store = store,
			     .log = harness_path(directory, "builds") };
}

static size_t job_end(struct job *job, char *directory)
{
	size_t n = 0;

	free(harness_read(job->log, &n));
	free((void *)job->store);
	free((void *)job->log);
	free(directory);
	return n;
}

/* S19 */
static void sixty_four_processes_build_once(void **state)
{
	char *directory = harness_directory();
	struct job job;

	job_begin(&job, "log", directory);
	assert_int_equal(
		harness_processes(64, build_in_process, &job, HARNESS_HANG_S),
		0);
	assert_int_equal(job_end(&job, directory), 1);
}

/* In DPC++'s directories, by the bytes of the image as it keeps them. */
static void programs_are_kept_in_dpcpps_directories(void **state)
{
	char *directory = harness_directory();
	struct job job;

	job_begin(&job, "sycl", directory);
	job.flags = KILN_PROGRAMS_WHOLE_IMAGES;
	for (int i = 0; i < 3; i++)
		assert_int_equal(build_in_process(0, &job), 0);
	assert_int_equal(
		harness_processes(8, build_in_process, &job, HARNESS_HANG_S),
		0);
	assert_int_equal(job_end(&job, directory), 1);
}

/* S20: the next one does not wait for it. */
static void a_builder_that_is_killed_holds_nobody_up(void **state)
{
	char *directory = harness_directory();
	struct job job;
	pid_t child;
	char byte;

	job_begin(&job, "log", directory);
	assert_int_equal(pipe(job.ready), 0);
	job.dies = 1;
	child = fork();
	if (!child)
		_exit(build_in_process(0, &job));
	assert_true(child > 0);
	assert_int_equal(read(job.ready[0], &byte, 1), 1);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	job.dies = 0;
	assert_int_equal(build_in_process(0, &job), 0);
	close(job.ready[0]);
	close(job.ready[1]);
	assert_int_equal(job_end(&job, directory), 2);
}

/* S21: who waits gives up and builds; the other goes on later, and no harm is
   done. */
static void a_builder_that_is_stopped_is_not_waited_for_for_ever(void **state)
{
	char *directory = harness_directory();
	struct job job;
	pid_t child;
	int status;

	job_begin(&job, "log", directory);
	job.stops = 1;
	child = fork();
	if (!child)
		_exit(build_in_process(0, &job));
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, WUNTRACED), child);
	assert_true(WIFSTOPPED(status));
	job.stops = 0;
	job.timeout_ms = 20;
	assert_int_equal(build_in_process(0, &job), 0);
	kill(child, SIGCONT);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	/* Both have built; there is one entry, and it is good. */
	assert_int_equal(build_in_process(0, &job), 0);
	assert_int_equal(job_end(&job, directory), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_one_context_built_another_loads),
		cmocka_unit_test(devices_are_told_apart_by_their_strings),
		cmocka_unit_test(all_devices_binaries_must_be_there),
		cmocka_unit_test(identical_devices_have_one_entry),
		cmocka_unit_test(where_options_are_cut_matters),
		cmocka_unit_test(what_may_not_be_kept_is_built_each_time),
		cmocka_unit_test(
			a_program_without_a_binary_is_used_all_the_same),
		cmocka_unit_test(a_refused_binary_is_dropped_and_built_anew),
		cmocka_unit_test(a_lack_of_memory_while_loading_costs_no_entry),
		cmocka_unit_test(a_store_that_fails_costs_nothing_but_builds),
		cmocka_unit_test(a_failed_build_is_the_same_with_a_store),
		cmocka_unit_test(contexts_of_one_kiln_build_once),
		cmocka_unit_test(sixty_four_processes_build_once),
		cmocka_unit_test(programs_are_kept_in_dpcpps_directories),
		cmocka_unit_test(a_builder_that_is_killed_holds_nobody_up),
		cmocka_unit_test(
			a_builder_that_is_stopped_is_not_waited_for_for_ever),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
