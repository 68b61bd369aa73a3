/* SPDX-License-Identifier: MIT */

/*
 * kiln-worker as its callers meet it: a spool, a store, lines on a pipe and an
 * exit status.  The driver is the stand-in, once PoCL.  KILN_WORKER is the
 * program, OCL_ICD_VENDORS the driver; jobs are written with the key that this
 * process computes itself, as a layer would.
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"

#include <jansson.h>

#include <kiln/inspect.h>

#include "front/opencl/capture.h"
#include "front/opencl/job.h"
#include "front/opencl/kept.h"
#include "front/opencl/key.h"
#include "front/opencl/produce.h"
#include "helpers_test.h"
#include "loader.h"
#include "sys/sys.h"
#include "worker.h"

#define SOURCE "kernel void twice(global int *p) { p[0] = 2 * p[0]; }\n"
#define HANG_S 60
/* Of the devices here; where a job says nothing, only the first is there. */
#define NAMES "kiln test device,device b,device c"

static cl_icd_dispatch calls;
static struct ki_cl_identities *identities;

/* ---- A spool and a store ----------------------------------------------- */

struct place {
	char *directory;
	char *spool;
	char *url;
	char *marker; /* a FIFO, into which the driver says what it does */
	int marker_fd;
};

static void place_init(struct place *place)
{
	char *store;

	place->directory = harness_directory();
	place->spool = harness_path(place->directory, "spool");
	place->marker = harness_path(place->directory, "calls");
	assert_int_equal(mkfifo(place->marker, 0600), 0);
	place->marker_fd = open(place->marker, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	assert_true(place->marker_fd >= 0);
	store = harness_path(place->directory, "store");
	assert_true(asprintf(&place->url, "log:%s", store) > 0);
	free(store);
}

static void place_fini(struct place *place)
{
	close(place->marker_fd);
	free(place->directory);
	free(place->spool);
	free(place->url);
	free(place->marker);
}

static struct kiln *open_store(const struct place *place)
{
	return open_store_at(place->url, 0);
}

static uint64_t counter(const struct place *place, enum kiln_counter which)
{
	struct kiln *kiln = open_store(place);
	struct kiln_store_counters *counters = calloc(1, sizeof(*counters));
	uint64_t value;

	assert_non_null(counters);
	assert_int_equal(kiln_store_counters(kiln, counters), KILN_OK);
	value = counters->total[which];
	free(counters);
	kiln_close(kiln);
	return value;
}

static size_t count_jobs(const struct place *place)
{
	char **paths;
	size_t n_paths, i;

	assert_int_equal(ki_cl_jobs(place->spool, &paths, &n_paths), KILN_OK);
	for (i = 0; i < n_paths; i++)
		free(paths[i]);
	free(paths);
	return n_paths;
}

static char *only_job(const struct place *place)
{
	char **paths, *path;
	size_t n_paths;

	assert_int_equal(ki_cl_jobs(place->spool, &paths, &n_paths), KILN_OK);
	assert_int_equal(n_paths, 1);
	path = paths[0];
	free(paths);
	return path;
}

/* ---- Jobs -------------------------------------------------------------- */

struct wish {
	const struct ki_cl_recipe *recipe; /* or: */
	const char *source;
	const char *options;
	const char *driver;	    /* NULL: the platform's */
	const char *environment[6]; /* besides the marker's */
	cl_device_id *devices;	    /* NULL: the first */
	cl_uint n_devices;
	uint32_t tries;
	pid_t writer; /* 0: one that has ended */
	uint64_t age_s;
};

static cl_platform_id first_platform(void)
{
	cl_platform_id platform;

	assert_int_equal(calls.clGetPlatformIDs(1, &platform, NULL), 0);
	return platform;
}

/* The identities of a process that starts now. */
static void forget_identities(void)
{
	ki_cl_identities_free(identities);
	identities = ki_cl_identities_new(&calls);
	assert_non_null(identities);
}

static struct ki_cl_recipe *recipe_of(const struct wish *wish)
{
	return wish->recipe ? ki_cl_recipe_ref(wish->recipe)
			    : recipe_of_text(wish->source, wish->options);
}

static struct kiln_key *key_of(const struct wish *wish)
{
	struct ki_cl_recipe *recipe = recipe_of(wish);
	cl_device_id device;
	struct ki_cl_build build = {
		.platform = first_platform(),
		.devices = wish->devices,
		.n_devices = wish->n_devices,
		.recipe = recipe,
	};
	enum kiln_counter reason = KILN_N_COUNTERS;
	struct kiln_key *key;

	if (!wish->devices) {
		assert_int_equal(calls.clGetDeviceIDs(build.platform,
						      CL_DEVICE_TYPE_ALL, 1,
						      &device, NULL),
				 0);
		build.devices = &device;
		build.n_devices = 1;
	}
	assert_int_equal(ki_cl_key(identities, &build, &key, &reason), KILN_OK);
	ki_cl_recipe_unref(recipe);
	return key;
}

static char *here(void)
{
	char *directory = getcwd(NULL, 0);

	assert_non_null(directory);
	return directory;
}

/* Those that are set here; what the job has already comes first. */
static void add_variables(struct ki_cl_job *job, const char **environment,
			  const char *const *names)
{
	for (; *names && job->n_environment < 32; names++) {
		char *variable;

		if (!getenv(*names))
			continue;
		assert_true(asprintf(&variable, "%s=%s", *names,
				     getenv(*names)) > 0);
		environment[job->n_environment++] = variable;
	}
}

/* Write the job and hand out its key. */
static struct kiln_key *write_job(const struct place *place,
				  const struct wish *wish)
{
	const char *environment[32];
	const struct ki_cl_driver *driver =
		ki_cl_driver(identities, first_platform());
	struct ki_cl_recipe *recipe = recipe_of(wish);
	struct kiln_key *key = key_of(wish);
	char *marker, *directory = here();
	struct ki_cl_job job = {
		.platform_name = "a platform",
		.driver = wish->driver,
		.n_devices = wish->devices ? wish->n_devices : 1,
		.recipe = recipe,
		.directory = directory,
		.environment = environment,
		.application = "/usr/bin/the application",
		.name_space = "mine",
		.created =
			ki_sys_posix.realtime_ns(&ki_sys_posix) / 1000000000 -
			wish->age_s,
		.build_ns = 123456789,
		.stage = KI_CL_STAGE_FULL,
		.tries = wish->tries,
		.writer_pid = wish->writer ? (uint32_t)wish->writer : 1,
		.writer_start =
			wish->writer ? ki_process_start(wish->writer) : 0,
	};
	size_t i, n_own;

	if (!job.driver)
		job.driver = driver->name;
	job.record = kiln_key_record(key, &job.record_size);
	assert_true(asprintf(&marker, "KILN_TEST_ICD_CALLS=%s", place->marker) >
		    0);
	environment[job.n_environment++] = marker;
	for (i = 0; wish->environment[i]; i++)
		environment[job.n_environment++] = wish->environment[i];
	n_own = job.n_environment;
	add_variables(&job, environment, driver->code_variables);
	add_variables(&job, environment, ki_cl_loader_variables);
	assert_int_equal(ki_cl_job_write(place->spool, &job), KILN_OK);
	for (i = n_own; i < job.n_environment; i++)
		free((char *)(uintptr_t)environment[i]);
	free(marker);
	free(directory);
	ki_cl_recipe_unref(recipe);
	return key;
}

static int has_entry(const struct place *place, const struct kiln_key *key)
{
	struct kiln *kiln = open_store(place);
	struct kiln_blob *blob = NULL;
	enum kiln_status status = kiln_get(kiln, key, &blob);

	kiln_blob_unref(blob);
	kiln_close(kiln);
	assert_true(status == KILN_OK || status == KILN_MISS);
	return status == KILN_OK;
}

/* ---- The program ------------------------------------------------------- */

static void start(const struct place *place, struct running *running,
		  const char *const *more)
{
	running_start(running, place->spool, place->url, more);
}

static int has_line(const struct running *running, const char *begins)
{
	size_t size = strlen(begins);
	const char *line;

	for (line = running->text; *line; line++) {
		if (!strncmp(line, begins, size))
			return 1;
		line = strchr(line, '\n');
		if (!line)
			return 0;
	}
	return 0;
}

static void read_until(struct running *running, const char *begins)
{
	while (!has_line(running, begins))
		assert_true(read_more(running));
}

/* The wait status; *out_text, if asked for, is the caller's. */
static int finish(struct running *running, char **out_text)
{
	int status = running_finish(running);

	if (out_text)
		*out_text = strdup(running->text);
	return status;
}

static int run_with(const struct place *place, char **out_text,
		    const char *const *more)
{
	struct running running;
	int status;

	start(place, &running, more);
	status = finish(&running, out_text);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static const char *const nothing[] = { NULL };

static int run(const struct place *place, char **out_text)
{
	return run_with(place, out_text, nothing);
}

/* Until the driver has begun to build. */
static void wait_for_build(const struct place *place)
{
	struct pollfd pollfd = { .fd = place->marker_fd, .events = POLLIN };
	char text[4096];
	size_t size = 0;

	do {
		ssize_t n;

		assert_int_equal(poll(&pollfd, 1, HANG_S * 1000), 1);
		n = read(place->marker_fd, text + size,
			 sizeof(text) - 1 - size);
		assert_true(n > 0);
		size += (size_t)n;
		text[size] = '\0';
	} while (!strstr(text, "build-source"));
}

static int driver_was_called(const struct place *place)
{
	struct pollfd pollfd = { .fd = place->marker_fd, .events = POLLIN };

	return poll(&pollfd, 1, 0) > 0;
}

/* ---- Jobs that are made ------------------------------------------------ */

static void assert_metadata(const struct kiln_blob *metadata,
			    enum kiln_metadata_field field, const char *wanted)
{
	const void *data;
	size_t size;

	assert_int_equal(kiln_metadata_find(kiln_blob_data(metadata),
					    kiln_blob_size(metadata), field,
					    &data, &size),
			 KILN_OK);
	assert_int_equal(size, strlen(wanted));
	assert_memory_equal(data, wanted, size);
}

static uint64_t metadata_number(const struct kiln_blob *metadata,
				enum kiln_metadata_field field)
{
	uint64_t number;

	assert_int_equal(kiln_metadata_find_u64(kiln_blob_data(metadata),
						kiln_blob_size(metadata), field,
						&number),
			 KILN_OK);
	return number;
}

/* By the entry alone. */
static void assert_kept(struct kiln *kiln, const struct kiln_key *key,
			const struct kiln_blob *metadata, const char *source)
{
	struct ki_cl_recipe *recipe;
	size_t size;
	const void *record = kiln_key_record(key, &size);

	assert_int_equal(ki_cl_recall(kiln, record, size,
				      kiln_blob_data(metadata),
				      kiln_blob_size(metadata), &recipe),
			 KILN_OK);
	assert_int_equal(recipe->kind, KI_CL_BUILD);
	assert_string_equal(recipe->source->strings[0], source);
	ki_cl_recipe_unref(recipe);
}

static void a_job_becomes_an_entry(void **state)
{
	struct wish wish = { .source = SOURCE, .options = "-DX=1" };
	const unsigned char *binary;
	struct kiln_blob *blob, *metadata;
	struct kiln_key *key, *family;
	struct place place;
	struct kiln *kiln;
	char *text, *directory = here();
	size_t size;

	place_init(&place);
	key = write_job(&place, &wish);
	assert_int_equal(run(&place, &text), 0);
	assert_int_equal(strncmp(text, "jobs 1\nbegin ", 13), 0);
	assert_has(text, " 1 /usr/bin/the application\n");
	assert_has(text, "\ndone ");
	assert_has(text, "\njobs 0\nend 1 0 0\n");
	assert_int_equal(count_jobs(&place), 0);

	kiln = open_store(&place);
	assert_int_equal(kiln_get_entry(kiln, key, &blob, &metadata), KILN_OK);
	assert_int_equal(ki_cl_unpack(kiln_blob_data(blob),
				      kiln_blob_size(blob), 1, &binary, &size),
			 KILN_OK);
	assert_true(size > 0);
	assert_metadata(metadata, KILN_META_OPTIONS, "-DX=1");
	assert_metadata(metadata, KILN_META_DIRECTORY, directory);
	assert_metadata(metadata, KILN_META_APPLICATION,
			"/usr/bin/the application");
	assert_metadata(metadata, KILN_META_NAMESPACE, "mine");
	assert_metadata(metadata, KILN_META_FRONT, "opencl");
	assert_int_equal(metadata_number(metadata, KILN_META_BUILD_TIME),
			 123456789);
	assert_int_equal(metadata_number(metadata, KILN_META_STAGE),
			 KI_CL_STAGE_FULL);
	assert_true(metadata_number(metadata, KILN_META_CREATED) > 1700000000);
	assert_kept(kiln, key, metadata, SOURCE);
	kiln_blob_unref(blob);
	kiln_blob_unref(metadata);
	assert_int_equal(ki_cl_family_key(key, &family), KILN_OK);
	assert_int_equal(kiln_get(kiln, family, &blob), KILN_OK);
	kiln_blob_unref(blob);
	kiln_key_free(family);
	kiln_close(kiln);
	assert_int_equal(counter(&place, KILN_COUNT_JOBS_DONE), 1);
	assert_int_equal(counter(&place, KILN_COUNT_JOBS_FAILED), 0);
	/* Its own looking is not the programs'. */
	assert_int_equal(counter(&place, KILN_COUNT_MISSES), 0);
	kiln_key_free(key);
	free(text);
	free(directory);
	place_fini(&place);
}

static void all_jobs_are_made_and_those_that_come_meanwhile(void **state)
{
	struct wish first = { .source = SOURCE,
			      .options = "-DN=1",
			      .environment = { "KILN_TEST_ICD_BUILD_MS=300" } };
	struct wish second = { .source = SOURCE, .options = "-DN=2" };
	struct wish third = { .source = SOURCE, .options = "-DN=3" };
	struct kiln_key *keys[3];
	struct running running;
	struct place place;
	char *text;
	int i;

	place_init(&place);
	keys[0] = write_job(&place, &first);
	keys[1] = write_job(&place, &second);
	start(&place, &running, nothing);
	read_until(&running, "begin ");
	keys[2] = write_job(&place, &third);
	assert_int_equal(finish(&running, &text), 0);
	assert_has(text, "\nend 3 0 0\n");
	for (i = 0; i < 3; i++) {
		assert_true(has_entry(&place, keys[i]));
		kiln_key_free(keys[i]);
	}
	free(text);
	place_fini(&place);
}

static void devices_are_found_in_the_order_of_the_job(void **state)
{
	struct wish wish = {
		.source = SOURCE,
		.environment = { "KILN_TEST_ICD_DEVICES=3",
				 "KILN_TEST_ICD_NAMES=" NAMES },
		.n_devices = 2,
	};
	cl_device_id all[3], devices[2];
	const unsigned char *binaries[2];
	struct kiln_blob *blob;
	struct kiln_key *key;
	struct place place;
	struct kiln *kiln;
	size_t sizes[2];

	place_init(&place);
	assert_int_equal(calls.clGetDeviceIDs(first_platform(),
					      CL_DEVICE_TYPE_ALL, 3, all, NULL),
			 0);
	devices[0] = all[2];
	devices[1] = all[0];
	wish.devices = devices;
	key = write_job(&place, &wish);
	assert_int_equal(run(&place, NULL), 0);
	kiln = open_store(&place);
	assert_int_equal(kiln_get(kiln, key, &blob), KILN_OK);
	assert_int_equal(ki_cl_unpack(kiln_blob_data(blob),
				      kiln_blob_size(blob), 2, binaries, sizes),
			 KILN_OK);
	assert_non_null(memmem(binaries[0], sizes[0], "device c", 8));
	assert_null(memmem(binaries[1], sizes[1], "device c", 8));
	kiln_blob_unref(blob);
	kiln_close(kiln);
	kiln_key_free(key);
	place_fini(&place);
}

/* The worker splits a device as the program did. */
static void sub_devices_are_made_where_there_are_too_few(void **state)
{
	static const cl_device_partition_property how[] = {
		CL_DEVICE_PARTITION_EQUALLY, 1, 0
	};
	struct wish wish = { .source = SOURCE, .n_devices = 2 };
	cl_device_id whole, parts[16];
	struct kiln_key *key;
	struct place place;
	cl_uint n = 0, i;

	place_init(&place);
	assert_int_equal(calls.clGetDeviceIDs(first_platform(),
					      CL_DEVICE_TYPE_ALL, 1, &whole,
					      NULL),
			 0);
	assert_int_equal(calls.clCreateSubDevices(whole, how, 16, parts, &n),
			 0);
	assert_true(n >= 2);
	wish.devices = parts;
	wish.environment[0] = "KILN_TEST_ICD_DEVICES=1";
	key = write_job(&place, &wish);
	assert_int_equal(run(&place, NULL), 0);
	assert_true(has_entry(&place, key));
	for (i = 0; i < n; i++)
		calls.clReleaseDevice(parts[i]);
	kiln_key_free(key);
	place_fini(&place);
}

static void with_too_few_devices_nothing_is_published(void **state)
{
	struct wish wish = { .source = SOURCE, .n_devices = 1 };
	cl_device_id all[3];
	struct kiln_key *key;
	struct place place;
	char *text;

	place_init(&place);
	assert_int_equal(calls.clGetDeviceIDs(first_platform(),
					      CL_DEVICE_TYPE_ALL, 3, all, NULL),
			 0);
	wish.devices = &all[1];
	key = write_job(&place, &wish);
	assert_int_equal(run(&place, &text), 1);
	assert_has(text, " changed device: none here is the same\n");
	assert_false(has_entry(&place, key));
	kiln_key_free(key);
	free(text);
	place_fini(&place);
}

static void put_stage(const struct place *place, const struct kiln_key *key,
		      enum ki_cl_stage stage)
{
	struct kiln *kiln = open_store(place);
	struct kiln_metadata *metadata = kiln_metadata_new();

	assert_int_equal(ki_cl_publish(kiln, key, "old", 3, metadata, stage),
			 KILN_OK);
	kiln_metadata_free(metadata);
	kiln_close(kiln);
}

static void only_an_entry_of_a_lower_stage_is_replaced(void **state)
{
	static const struct {
		enum ki_cl_stage stage;
		int stays;
	} rows[] = { { KI_CL_STAGE_EARLY, 0 }, { KI_CL_STAGE_FULL, 1 } };
	size_t i;

	for (i = 0; i < 2; i++) {
		struct wish wish = { .source = SOURCE };
		struct kiln_blob *blob;
		struct kiln_key *key;
		struct place place;
		struct kiln *kiln;

		place_init(&place);
		key = write_job(&place, &wish);
		put_stage(&place, key, rows[i].stage);
		assert_int_equal(run(&place, NULL), 0);
		assert_int_equal(count_jobs(&place), 0);
		assert_int_equal(driver_was_called(&place), !rows[i].stays);
		kiln = open_store(&place);
		assert_int_equal(kiln_get(kiln, key, &blob), KILN_OK);
		assert_int_equal(kiln_blob_size(blob) == 3, rows[i].stays);
		kiln_blob_unref(blob);
		kiln_close(kiln);
		kiln_key_free(key);
		place_fini(&place);
	}
}

/* ---- Jobs that are not ------------------------------------------------- */

static void a_changed_include_publishes_nothing(void **state)
{
	struct wish wish = { .source = "#include \"a.h\"\n" SOURCE };
	char *text, *old = here(), *header;
	struct kiln_key *key;
	struct place place;

	place_init(&place);
	assert_int_equal(chdir(place.directory), 0);
	header = harness_path(place.directory, "a.h");
	harness_write(header, "#define A 1\n", 12);
	key = write_job(&place, &wish);
	harness_write(header, "#define A 22\n", 13);
	assert_int_equal(chdir(old), 0);
	assert_int_equal(run(&place, &text), 1);
	assert_has(text, " changed include ");
	assert_has(text, "\nend 0 1 0\n");
	assert_false(has_entry(&place, key));
	assert_int_equal(count_jobs(&place), 0);
	assert_int_equal(counter(&place, KILN_COUNT_JOBS_FAILED), 1);
	kiln_key_free(key);
	free(header);
	free(text);
	free(old);
	place_fini(&place);
}

static void an_include_changed_while_it_builds_publishes_nothing(void **state)
{
	struct wish wish = { .source = "#include \"a.h\"\n" SOURCE,
			     .environment = { "KILN_TEST_ICD_BUILD_MS=600" } };
	char *text, *old = here(), *header;
	struct running running;
	struct kiln_key *key;
	struct place place;

	place_init(&place);
	assert_int_equal(chdir(place.directory), 0);
	header = harness_path(place.directory, "a.h");
	harness_write(header, "#define A 1\n", 12);
	key = write_job(&place, &wish);
	assert_int_equal(chdir(old), 0);
	start(&place, &running, nothing);
	wait_for_build(&place);
	harness_write(header, "#define A 22\n", 13);
	assert_int_equal(WEXITSTATUS(finish(&running, &text)), 1);
	assert_has(text, " changed include ");
	assert_false(has_entry(&place, key));
	kiln_key_free(key);
	free(header);
	free(text);
	free(old);
	place_fini(&place);
}

/* What the driver read is not known then: the old text or the other. */
static void an_include_changed_and_back_is_built_once_more(void **state)
{
	struct wish wish = { .source = "#include \"a.h\"\n" SOURCE,
			     .environment = { "KILN_TEST_ICD_BUILD_MS=600" } };
	char *text, *old = here(), *header;
	struct running running;
	struct kiln_key *key;
	struct place place;

	place_init(&place);
	assert_int_equal(chdir(place.directory), 0);
	header = harness_path(place.directory, "a.h");
	harness_write(header, "#define A 1\n", 12);
	key = write_job(&place, &wish);
	assert_int_equal(chdir(old), 0);
	start(&place, &running, nothing);
	wait_for_build(&place);
	harness_write(header, "#define A 22\n", 13);
	harness_write(header, "#define A 1\n", 12);
	assert_int_equal(WEXITSTATUS(finish(&running, &text)), 0);
	assert_has(text, " worker an include was written to meanwhile");
	assert_has(text, "\nend 1 0 0\n");
	assert_true(has_entry(&place, key));
	kiln_key_free(key);
	free(header);
	free(text);
	free(old);
	place_fini(&place);
}

static void what_fails_is_tried_twice_and_then_given_up(void **state)
{
	static const struct {
		const char *source;
		const char *environment;
		const char *retry;
		const char *failed;
		const char *limit;
	} rows[] = {
		{ SOURCE, "KILN_TEST_ICD_FAIL_BUILDS=1", " build -11",
		  " build -11", "60" },
		{ SOURCE, "KILN_TEST_ICD_CRASH_BUILDS=1", " crash Aborted\n",
		  " crash Aborted\n", "60" },
		{ SOURCE, "KILN_TEST_ICD_BUILD_MS=60000", " time ", " time ",
		  "1" },
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *limit[] = { "--time-limit", rows[i].limit, NULL };
		struct wish wish = { .source = rows[i].source,
				     .environment = { rows[i].environment } };
		struct kiln_key *key;
		struct place place;
		char *text;

		place_init(&place);
		key = write_job(&place, &wish);
		assert_int_equal(run_with(&place, &text, limit), 1);
		assert_has(text, "\nretry ");
		assert_has(text, rows[i].retry);
		assert_has(text, "\nfailed ");
		assert_has(strstr(text, "\nfailed "), rows[i].failed);
		assert_has(text, "\nend 0 1 0\n");
		assert_false(has_entry(&place, key));
		assert_int_equal(count_jobs(&place), 0);
		assert_int_equal(counter(&place, KILN_COUNT_JOBS_FAILED), 1);
		kiln_key_free(key);
		free(text);
		place_fini(&place);
	}
}

/* S60 */
static void one_that_crashes_does_not_keep_the_others(void **state)
{
	struct wish bad = {
		.source = SOURCE,
		.options = "-DBAD",
		.environment = { "KILN_TEST_ICD_CRASH_BUILDS=1" },
	};
	struct wish good = { .source = SOURCE };
	struct kiln_key *bad_key, *good_key;
	struct place place;
	char *text;

	place_init(&place);
	bad_key = write_job(&place, &bad);
	good_key = write_job(&place, &good);
	assert_int_equal(run(&place, &text), 1);
	assert_has(text, "\nend 1 1 0\n");
	assert_true(has_entry(&place, good_key));
	assert_false(has_entry(&place, bad_key));
	kiln_key_free(bad_key);
	kiln_key_free(good_key);
	free(text);
	place_fini(&place);
}

static void tries_of_earlier_workers_count(void **state)
{
	struct wish wish = { .source = SOURCE, .tries = 2 };
	struct place place;
	char *text;

	place_init(&place);
	kiln_key_free(write_job(&place, &wish));
	assert_int_equal(run(&place, &text), 1);
	assert_null(strstr(text, "begin"));
	assert_int_equal(count_jobs(&place), 0);
	free(text);
	place_fini(&place);
}

static void what_no_worker_may_make_here_stays(void **state)
{
	static const struct {
		const char *driver;
		const char *environment;
		const char *reason;
	} rows[] = {
		{ "a driver that is not here", NULL, " absent " },
		{ NULL, "OCL_ICD_VENDORS=/nonexistent", " absent " },
		{ NULL, "KILN_TEST_ICD_TYPE=gpu", " device " },
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct wish wish = { .source = SOURCE,
				     .driver = rows[i].driver,
				     .environment = { rows[i].environment } };
		struct ki_cl_job_file *file;
		struct place place;
		char *text, *path;

		place_init(&place);
		/* The device's type may be of its identity. */
		if (rows[i].environment &&
		    strstr(rows[i].environment, "TYPE")) {
			assert_int_equal(setenv("KILN_TEST_ICD_TYPE", "gpu", 1),
					 0);
			forget_identities();
		}
		kiln_key_free(write_job(&place, &wish));
		assert_int_equal(unsetenv("KILN_TEST_ICD_TYPE"), 0);
		forget_identities();
		assert_int_equal(run(&place, &text), 0);
		assert_has(text, "\nskipped ");
		assert_has(text, rows[i].reason);
		assert_has(text, "a platform: ");
		assert_has(text, "\nend 0 0 1\n");
		path = only_job(&place);
		assert_int_equal(ki_cl_job_read(path, &file), KILN_OK);
		assert_int_equal(ki_cl_job(file)->tries, 0);
		ki_cl_job_free(file);
		free(path);
		free(text);
		place_fini(&place);
	}
}

static void what_is_past_its_age_goes_unmade(void **state)
{
	struct wish wish = { .source = SOURCE, .age_s = 8 * 24 * 3600 };
	struct place place;
	char *text;

	place_init(&place);
	kiln_key_free(write_job(&place, &wish));
	assert_int_equal(run(&place, &text), 0);
	assert_has(text, "\nend 0 0 0\n");
	assert_false(driver_was_called(&place));
	assert_int_equal(count_jobs(&place), 0);
	free(text);
	place_fini(&place);
}

/* S13, S15 */
static void damaged_jobs_go_and_foreign_files_stay(void **state)
{
	struct wish wish = { .source = SOURCE };
	struct place place;
	char *text, *path, *bytes, *foreign;
	size_t size;

	place_init(&place);
	kiln_key_free(write_job(&place, &wish));
	path = only_job(&place);
	bytes = harness_read(path, &size);
	bytes[size / 2] ^= 1;
	harness_write(path, bytes, size);
	foreign = harness_path(place.spool, "foreign");
	harness_write(foreign, "x", 1);
	assert_int_equal(run(&place, &text), 1);
	assert_has(text, " damaged ");
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(access(foreign, F_OK), 0);
	free(foreign);
	free(bytes);
	free(path);
	free(text);
	place_fini(&place);
}

static void a_job_under_another_keys_name_is_damage(void **state)
{
	struct wish wish = { .source = SOURCE };
	struct kiln_key *key;
	struct place place;
	char *text, *path, *other;

	place_init(&place);
	key = write_job(&place, &wish);
	path = only_job(&place);
	other = harness_path(place.spool,
			     "00000000000000000000000000000000.job");
	assert_int_equal(rename(path, other), 0);
	assert_int_equal(run(&place, &text), 1);
	assert_has(text, " damaged ");
	assert_false(has_entry(&place, key));
	kiln_key_free(key);
	free(other);
	free(path);
	free(text);
	place_fini(&place);
}

/* S37, S39 */
static void without_spool_or_store_jobs_stay(void **state)
{
	struct wish wish = { .source = SOURCE };
	struct place place;
	char *url, *file;

	place_init(&place);
	assert_int_equal(run(&place, NULL), 0); /* no spool: no jobs */
	assert_int_equal(access(place.spool, F_OK), -1);
	kiln_key_free(write_job(&place, &wish));
	url = place.url;
	file = harness_path(place.directory, "file");
	harness_write(file, "x", 1);
	assert_true(asprintf(&place.url, "log:%s/sub", file) > 0);
	assert_int_equal(run(&place, NULL), 5);
	free(place.url);
	place.url = url;
	assert_int_equal(count_jobs(&place), 1);
	assert_int_equal(chmod(place.spool, 0777), 0);
	assert_int_equal(run(&place, NULL), 5);
	assert_int_equal(chmod(place.spool, 0700), 0);
	assert_int_equal(run(&place, NULL), 0);
	free(file);
	place_fini(&place);
}

static void wrong_usage_is_2(void **state)
{
	static const char *const rows[][3] = {
		{ "--nonsense", NULL },
		{ "operand", NULL },
		{ "--time-limit", "soon", NULL },
		{ "--time-limit", "0", NULL },
		{ "--memory-limit", "1Q", NULL },
		{ "--progress-fd", "-1", NULL },
	};
	struct place place;
	size_t i;

	place_init(&place);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(run_with(&place, NULL, rows[i]), 2);
	place_fini(&place);
}

/* ---- Others ------------------------------------------------------------ */

static int take_workers_lock(const struct place *place)
{
	const struct ki_sys *sys = &ki_sys_posix;
	char *path = harness_path(place->spool, "worker.lock");
	int fd = sys->open(sys, path,
			   KI_OPEN_READ | KI_OPEN_WRITE | KI_OPEN_CREATE, 0600);

	assert_true(fd >= 0);
	assert_int_equal(sys->try_lock(sys, fd, KI_LOCK_EXCLUSIVE, 0, 1), 0);
	free(path);
	return fd;
}

static void a_second_worker_leaves_or_waits(void **state)
{
	static const char *const wait[] = { "--wait", NULL };
	struct wish wish = { .source = SOURCE };
	struct running running;
	struct place place;
	char *text;
	int fd;

	place_init(&place);
	kiln_key_free(write_job(&place, &wish));
	fd = take_workers_lock(&place);
	assert_int_equal(run(&place, NULL), 6);
	assert_int_equal(count_jobs(&place), 1);
	start(&place, &running, wait);
	read_until(&running, "wait worker\n");
	read_until(&running, "jobs 1\n");
	close(fd);
	assert_int_equal(finish(&running, &text), 0);
	assert_has(text, "\nend 1 0 0\n");
	assert_int_equal(count_jobs(&place), 0);
	free(text);
	place_fini(&place);
}

/* Room for the lines of one job, whose numbers have up to ten digits together, but
   not for the last one as well. */
static void fill_pipe(int fd)
{
	static const char lines[] =
		"jobs 1\nbegin 0123456789abcdef0123456789abcdef 1 "
		"/usr/bin/the application\n"
		"done 0123456789abcdef0123456789abcdef  \njobs 0\n";
	const size_t room = sizeof(lines) - 1 + 10;
	char text[4096];
	int size = fcntl(fd, F_SETPIPE_SZ, sizeof(text));

	assert_int_equal(size, sizeof(text));
	memset(text, '\n', sizeof(text));
	assert_int_equal(write(fd, text, sizeof(text) - room),
			 sizeof(text) - room);
}

/* Whoever waits for it finds in the store what it counted, however long it takes
   to end. */
static void what_it_counted_is_there_before_another_has_its_turn(void **state)
{
	static const char *const wait[] = { "--wait", NULL };
	char number[16], text[4096];
	const char *const slow[] = { "--progress-fd", number, NULL };
	struct wish wish = { .source = SOURCE };
	struct running running;
	struct place place;
	int ends[2];
	ssize_t n;

	place_init(&place);
	kiln_key_free(write_job(&place, &wish));
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(fcntl(ends[1], F_SETFD, 0), 0);
	fill_pipe(ends[1]);
	snprintf(number, sizeof(number), "%d", ends[1]);
	start(&place, &running, slow);
	close(ends[1]);
	/* It has begun once there is no job. */
	wait_for_build(&place);
	assert_int_equal(run_with(&place, NULL, wait), 0);
	assert_int_equal(counter(&place, KILN_COUNT_JOBS_DONE), 1);
	while ((n = read(ends[0], text, sizeof(text))) > 0)
		;
	assert_int_equal(n, 0);
	close(ends[0]);
	assert_int_equal(finish(&running, NULL), 0);
	place_fini(&place);
}

static void told_to_end_while_it_waits_it_ends(void **state)
{
	static const char *const wait[] = { "--wait", NULL };
	struct wish wish = { .source = SOURCE };
	struct running running;
	struct place place;
	int fd, status;

	place_init(&place);
	kiln_key_free(write_job(&place, &wish));
	fd = take_workers_lock(&place);
	start(&place, &running, wait);
	read_until(&running, "wait worker\n");
	assert_int_equal(kill(running.pid, SIGTERM), 0);
	status = finish(&running, NULL);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(count_jobs(&place), 1);
	close(fd);
	place_fini(&place);
}

static void programs_that_build_come_first(void **state)
{
	struct wish wish = { .source = SOURCE };
	struct running running;
	struct place place;
	struct kiln *kiln;
	char *text;

	place_init(&place);
	kiln_key_free(write_job(&place, &wish));
	kiln = open_store(&place);
	kiln_note_build(kiln, 1);
	start(&place, &running, nothing);
	read_until(&running, "wait builds 1\n");
	assert_false(has_line(&running, "begin "));
	assert_false(driver_was_called(&place));
	kiln_note_build(kiln, 0);
	assert_int_equal(finish(&running, &text), 0);
	assert_has(text, "\nend 1 0 0\n");
	kiln_close(kiln);
	free(text);
	place_fini(&place);
}

static void a_program_that_runs_is_given_time_to_launch(void **state)
{
	struct wish wish = { .source = SOURCE };
	struct running running;
	struct place place;
	char *text;

	place_init(&place);
	wish.writer = fork();
	if (!wish.writer) {
		pause();
		_exit(0);
	}
	kiln_key_free(write_job(&place, &wish));
	start(&place, &running, nothing);
	read_until(&running, "wait writers 1\n");
	assert_false(has_line(&running, "begin "));
	assert_int_equal(kill(wish.writer, SIGKILL), 0);
	assert_int_equal(waitpid(wish.writer, NULL, 0), wish.writer);
	assert_int_equal(finish(&running, &text), 0);
	assert_has(text, "\nend 1 0 0\n");
	free(text);
	place_fini(&place);
}

static uint32_t tries_of_only_job(const struct place *place)
{
	struct ki_cl_job_file *file;
	char *path = only_job(place);
	uint32_t tries;

	assert_int_equal(ki_cl_job_read(path, &file), KILN_OK);
	tries = ki_cl_job(file)->tries;
	ki_cl_job_free(file);
	free(path);
	return tries;
}

/* The only child of a process, once it runs the job; a zombie has none. */
static pid_t child_of(pid_t pid)
{
	const struct ki_sys *sys = &ki_sys_posix;
	struct ki_dir *dir;
	const char *name;
	pid_t found = 0;

	assert_int_equal(sys->opendir(sys, "/proc", &dir), 0);
	while (!found && sys->readdir(sys, dir, &name) > 0) {
		char path[64], *text, *place;
		int parent;
		pid_t candidate = (pid_t)atoi(name);

		if (!candidate)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/stat", (int)candidate);
		text = harness_read(path, NULL);
		place = text ? strrchr(text, ')') : NULL;
		if (place && sscanf(place, ") %*c %d", &parent) == 1 &&
		    parent == pid)
			found = candidate;
		free(text);
	}
	sys->closedir(sys, dir);
	return found;
}

/* S43, S60 */
static void told_to_end_it_takes_its_child_along_and_keeps_the_job(void **state)
{
	static const int rows[] = { SIGTERM, SIGINT, SIGHUP };
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct wish wish = {
			.source = SOURCE,
			.environment = { "KILN_TEST_ICD_BUILD_MS=60000" },
		};
		struct running running;
		struct place place;
		pid_t child;
		int status;

		place_init(&place);
		kiln_key_free(write_job(&place, &wish));
		start(&place, &running, nothing);
		wait_for_build(&place);
		child = child_of(running.pid);
		assert_true(child > 0);
		assert_int_equal(kill(running.pid, rows[i]), 0);
		status = finish(&running, NULL);
		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), rows[i]);
		assert_int_equal(kill(child, 0), -1);
		assert_int_equal(tries_of_only_job(&place), 0);
		place_fini(&place);
	}
}

/* A zombie has ended; whoever reaps it may take his time. */
static int ends(pid_t pid, uint64_t birth)
{
	const struct ki_sys *sys = &ki_sys_posix;
	uint64_t deadline_ns =
		sys->monotonic_ns(sys) + (uint64_t)HANG_S * 1000000000;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	while (sys->monotonic_ns(sys) < deadline_ns) {
		char *text = harness_read(path, NULL);
		char *place = text ? strrchr(text, ')') : NULL;
		int is_over = !place || place[2] == 'Z';

		free(text);
		if (is_over || !ki_process_alive(pid, birth))
			return 1;
		sched_yield();
	}
	return 0;
}

static void killed_it_loses_nothing_and_its_child_dies(void **state)
{
	struct wish wish = {
		.source = SOURCE,
		.environment = { "KILN_TEST_ICD_BUILD_MS=60000" },
	};
	struct running running;
	struct place place;
	uint64_t birth;
	pid_t child;

	place_init(&place);
	kiln_key_free(write_job(&place, &wish));
	start(&place, &running, nothing);
	wait_for_build(&place);
	child = child_of(running.pid);
	birth = ki_process_start(child);
	assert_int_equal(kill(running.pid, SIGKILL), 0);
	assert_true(WIFSIGNALED(finish(&running, NULL)));
	assert_true(ends(child, birth));
	assert_int_equal(tries_of_only_job(&place), 1);
	place_fini(&place);
}

static int has_variable(const char *text, size_t size, const char *variable)
{
	size_t at;

	for (at = 0; at < size; at += strlen(text + at) + 1) {
		if (!strncmp(text + at, variable, strlen(variable)))
			return 1;
	}
	return 0;
}

static void the_child_is_idle_and_knows_only_what_it_may(void **state)
{
	struct wish wish = {
		.source = SOURCE,
		.environment = { "KILN_TEST_ICD_BUILD_MS=60000",
				 "OPENCL_LAYERS=/job", "HOME=/job" },
	};
	struct running running;
	static const char *const more[] = { "--memory-limit", "1G", NULL };
	struct rlimit limit;
	struct place place;
	char path[64], target[64], *text;
	size_t size;
	pid_t child;

	place_init(&place);
	kiln_key_free(write_job(&place, &wish));
	assert_int_equal(setenv("OPENCL_LAYERS", "/worker", 1), 0);
	assert_int_equal(setenv("SECRET", "1", 1), 0);
	start(&place, &running, more);
	unsetenv("OPENCL_LAYERS");
	unsetenv("SECRET");
	wait_for_build(&place);
	child = child_of(running.pid);
	snprintf(path, sizeof(path), "/proc/%d/environ", (int)child);
	text = harness_read(path, &size);
	assert_non_null(text);
	assert_false(has_variable(text, size, "OPENCL_LAYERS="));
	assert_false(has_variable(text, size, "SECRET="));
	assert_true(has_variable(text, size, "HOME=/job"));
	assert_true(has_variable(text, size, "PATH="));
	assert_true(has_variable(text, size, "KILN_DISABLE=1"));
	assert_true(has_variable(text, size, "KILN_TEST_ICD_BUILD_MS=60000"));
	free(text);
	assert_int_equal(sched_getscheduler(child), SCHED_IDLE);
	assert_int_equal(sched_getscheduler(running.pid), SCHED_OTHER);
	assert_int_equal(getsid(child), child);
	assert_int_equal(prlimit(child, RLIMIT_CORE, NULL, &limit), 0);
	assert_int_equal(limit.rlim_cur, 0);
	assert_int_equal(prlimit(child, RLIMIT_DATA, NULL, &limit), 0);
	if (!KI_WORKER_SANITIZED)
		assert_int_equal(limit.rlim_cur, 1 << 30);
	snprintf(path, sizeof(path), "/proc/%d/fd/1", (int)child);
	size = (size_t)readlink(path, target, sizeof(target));
	assert_int_equal(size, 9);
	assert_memory_equal(target, "/dev/null", 9);
	assert_int_equal(kill(running.pid, SIGTERM), 0);
	assert_true(WIFSIGNALED(finish(&running, NULL)));
	place_fini(&place);
}

/* ---- Progress ---------------------------------------------------------- */

/* S61 */
static void progress_is_json_if_asked_for(void **state)
{
	static const char *const more[] = { "--json", NULL };
	struct wish good = { .source = SOURCE };
	struct wish bad = { .source = SOURCE,
			    .options = "-DBAD",
			    .environment = { "KILN_TEST_ICD_FAIL_BUILDS=1" } };
	struct place place;
	char *text, *line, *rest = NULL;
	unsigned n_done = 0, n_failed = 0;

	place_init(&place);
	kiln_key_free(write_job(&place, &good));
	kiln_key_free(write_job(&place, &bad));
	assert_int_equal(run_with(&place, &text, more), 1);
	for (line = strtok_r(text, "\n", &rest); line;
	     line = strtok_r(NULL, "\n", &rest)) {
		json_error_t error;
		json_t *object = json_loads(line, 0, &error);
		const char *event;

		assert_non_null(object);
		event = json_string_value(json_object_get(object, "event"));
		assert_non_null(event);
		if (!strcmp(event, "done")) {
			n_done++;
			assert_true(json_is_integer(
				json_object_get(object, "bytes")));
		} else if (!strcmp(event, "failed")) {
			n_failed++;
			assert_string_equal(json_string_value(json_object_get(
						    object, "reason")),
					    "build");
		}
		json_decref(object);
	}
	assert_int_equal(n_done, 1);
	assert_int_equal(n_failed, 1);
	free(text);
	place_fini(&place);
}

/* S61 */
static void a_reader_that_goes_away_does_not_stop_the_work(void **state)
{
	struct wish wish = {
		.source = SOURCE,
		.environment = { "KILN_TEST_ICD_BUILD_MS=100" },
	};
	struct running running;
	struct kiln_key *key;
	struct place place;
	int status;

	place_init(&place);
	key = write_job(&place, &wish);
	start(&place, &running, nothing);
	close(running.fd);
	assert_int_equal(waitpid(running.pid, &status, 0), running.pid);
	assert_int_equal(status, 0);
	assert_true(has_entry(&place, key));
	kiln_key_free(key);
	place_fini(&place);
}

/* ---- PoCL ---------------------------------------------------------------- */

/* A program from the bytes of an entry, as the layer makes it. */
static cl_int build_binary(const void *value, size_t value_size)
{
	cl_platform_id platform = first_platform();
	cl_context_properties properties[] = { CL_CONTEXT_PLATFORM,
					       (cl_context_properties)platform,
					       0 };
	const unsigned char *binary;
	cl_device_id device;
	cl_context context;
	cl_program program;
	size_t size;
	cl_int err;

	assert_int_equal(ki_cl_unpack(value, value_size, 1, &binary, &size),
			 KILN_OK);
	assert_int_equal(calls.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1,
					      &device, NULL),
			 0);
	context =
		calls.clCreateContext(properties, 1, &device, NULL, NULL, &err);
	assert_non_null(context);
	program = calls.clCreateProgramWithBinary(context, 1, &device, &size,
						  &binary, NULL, &err);
	assert_non_null(program);
	err = calls.clBuildProgram(program, 1, &device, "", NULL, NULL);
	calls.clReleaseProgram(program);
	calls.clReleaseContext(context);
	return err;
}

static void a_kernel_is_made_with_pocl(void **state)
{
	char *cache, *variable;
	struct wish wish = { .source = SOURCE };
	struct kiln_blob *blob;
	struct kiln_key *key;
	struct place place;
	struct kiln *kiln;
	char *text;

	place_init(&place);
	cache = harness_path(place.directory, "pocl");
	assert_true(asprintf(&variable, "POCL_CACHE_DIR=%s", cache) > 0);
	wish.environment[0] = variable;
	key = write_job(&place, &wish);
	(void)run(&place, &text);
	assert_has(text, "\nend 1 0 0\n");
	assert_int_equal(access(cache, F_OK), 0);
	kiln = open_store(&place);
	assert_int_equal(kiln_get(kiln, key, &blob), KILN_OK);
	assert_int_equal(
		build_binary(kiln_blob_data(blob), kiln_blob_size(blob)), 0);
	kiln_blob_unref(blob);
	kiln_close(kiln);
	kiln_key_free(key);
	free(text);
	free(variable);
	free(cache);
	place_fini(&place);
}

/* ---- Objects, libraries, IL -------------------------------------------- */

#define KERNEL "kernel void k(global int *p) { p[0] = K * p[0]; }\n"

static struct ki_cl_recipe *object_of(const char *text)
{
	const char *define = "#define K 9\n";
	struct ki_cl_source *source = ki_cl_source_new(1, &text, NULL);
	struct ki_cl_header header = {
		.name = "k.h", .source = ki_cl_source_new(1, &define, NULL)
	};
	struct ki_cl_recipe *recipe =
		ki_cl_recipe_compile(source, NULL, 0, &header, 1, "-DX=1");

	assert_non_null(recipe);
	ki_cl_source_unref(header.source);
	ki_cl_source_unref(source);
	return recipe;
}

static struct ki_cl_recipe *link_of(const struct ki_cl_recipe *recipe,
				    const char *options)
{
	const struct ki_cl_input input = { .recipe = recipe };
	struct ki_cl_recipe *linked = ki_cl_recipe_link(&input, 1, options);

	assert_non_null(linked);
	return linked;
}

static struct ki_cl_recipe *binary_of(const struct kiln_blob *value)
{
	const unsigned char *binary;
	struct ki_cl_recipe *recipe;
	size_t size;

	assert_int_equal(ki_cl_unpack(kiln_blob_data(value),
				      kiln_blob_size(value), 1, &binary, &size),
			 KILN_OK);
	recipe = ki_cl_recipe_binary(&binary, &size, 1, 1, NULL);
	assert_non_null(recipe);
	return recipe;
}

/* Whether the driver makes a kernel of what is in the entry: an object or a
   library is linked, a program built. */
static int gives_a_kernel(const struct kiln_blob *value, int is_program)
{
	struct ki_cl_recipe *recipe = binary_of(value), *linked;
	cl_platform_id platform = first_platform();
	cl_context_properties properties[] = { CL_CONTEXT_PLATFORM,
					       (cl_context_properties)platform,
					       0 };
	cl_device_id device;
	cl_context context;
	cl_program program;
	cl_kernel kernel;
	cl_int err;

	assert_int_equal(calls.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1,
					      &device, NULL),
			 CL_SUCCESS);
	context =
		calls.clCreateContext(properties, 1, &device, NULL, NULL, &err);
	assert_int_equal(err, CL_SUCCESS);
	if (!is_program) {
		linked = link_of(recipe, "");
		ki_cl_recipe_unref(recipe);
		recipe = linked;
	}
	program = ki_cl_produce(&calls, platform, recipe, context, &device, 1,
				&err);
	assert_int_equal(err, CL_SUCCESS);
	if (is_program)
		assert_int_equal(calls.clBuildProgram(program, 1, &device, "",
						      NULL, NULL),
				 CL_SUCCESS);
	kernel = calls.clCreateKernel(program, "k", &err);
	if (kernel)
		calls.clReleaseKernel(kernel);
	calls.clReleaseProgram(program);
	calls.clReleaseContext(context);
	ki_cl_recipe_unref(recipe);
	return !err;
}

static int tells_of_kernels(const struct kiln_blob *metadata)
{
	const void *data;
	size_t size;

	return !kiln_metadata_find(kiln_blob_data(metadata),
				   kiln_blob_size(metadata), KILN_META_KERNELS,
				   &data, &size);
}

static void assert_made(const struct place *place,
			const struct ki_cl_recipe *recipe, const char *variable)
{
	struct wish wish = { .recipe = recipe, .environment = { variable } };
	int is_program = ki_cl_recipe_has_kernels(recipe);
	struct kiln_blob *value, *metadata;
	struct kiln_key *key = write_job(place, &wish);
	struct kiln *kiln;
	char *text;

	(void)run(place, &text);
	assert_has(text, "\nend 1 0 0\n");
	free(text);
	kiln = open_store(place);
	assert_int_equal(kiln_get_entry(kiln, key, &value, &metadata), KILN_OK);
	assert_int_equal(tells_of_kernels(metadata), is_program);
	assert_metadata(metadata, KILN_META_OPTIONS, recipe->options);
	assert_true(gives_a_kernel(value, is_program));
	kiln_blob_unref(value);
	kiln_blob_unref(metadata);
	kiln_close(kiln);
	kiln_key_free(key);
}

static void objects_libraries_and_links_are_made(void **state)
{
	struct ki_cl_recipe *object = object_of("#include <k.h>\n" KERNEL);
	struct ki_cl_recipe *library = link_of(object, "-create-library");
	struct ki_cl_recipe *program = link_of(object, "");
	struct ki_cl_recipe *of_library = link_of(library, "");
	char *cache, *variable;
	struct place place;

	place_init(&place);
	cache = harness_path(place.directory, "pocl");
	assert_true(asprintf(&variable, "POCL_CACHE_DIR=%s", cache) > 0);
	assert_made(&place, object, variable);
	assert_made(&place, library, variable);
	assert_made(&place, program, variable);
	assert_made(&place, of_library, variable);
	ki_cl_recipe_unref(of_library);
	ki_cl_recipe_unref(program);
	ki_cl_recipe_unref(library);
	ki_cl_recipe_unref(object);
	free(variable);
	free(cache);
	place_fini(&place);
}

/* The stand-in's IL: a header of 20 bytes, then a source. */
static void il_is_made_with_its_constants(void **state)
{
	static const char text[] = "\3\2\43\7________________"
				   "#define K SPEC_2\n"
				   "#ifndef SPEC_2\n#error\n#endif\n" KERNEL;
	static const int32_t value = 12;
	const struct ki_cl_constant constant = {
		.id = 2, .size = sizeof(value), .value = (const uint8_t *)&value
	};
	struct ki_cl_source *source =
		ki_cl_source_new_il(text, sizeof(text) - 1);
	struct ki_cl_recipe *recipe =
		ki_cl_recipe_build(source, &constant, 1, "-w");
	struct place place;

	place_init(&place);
	assert_made(&place, recipe, "B=");
	ki_cl_recipe_unref(recipe);
	ki_cl_source_unref(source);
	place_fini(&place);
}

/* What is said is what the compiler said of the input. */
static void a_link_fails_with_the_log_of_its_input(void **state)
{
	struct ki_cl_recipe *object = object_of("#include <k.h>\n#error why\n");
	struct ki_cl_recipe *program = link_of(object, "");
	struct wish wish = { .recipe = program };
	struct kiln_key *key;
	struct place place;
	char *text;

	place_init(&place);
	key = write_job(&place, &wish);
	(void)run(&place, &text);
	assert_has(text, "why");
	assert_int_equal(has_entry(&place, key), 0);
	free(text);
	kiln_key_free(key);
	ki_cl_recipe_unref(program);
	ki_cl_recipe_unref(object);
	place_fini(&place);
}

static int set_up(void **state)
{
	const char *why;

	if (!getenv("KILN_WORKER") || !getenv("OCL_ICD_VENDORS") ||
	    setenv("KILN_TEST_ICD_DEVICES", "3", 1) ||
	    setenv("KILN_TEST_ICD_NAMES", NAMES, 1) ||
	    ki_worker_load(&calls, &why))
		return -1;
	identities = ki_cl_identities_new(&calls);
	return identities ? 0 : -1;
}

static int tear_down(void **state)
{
	ki_cl_identities_free(identities);
	return 0;
}

static int test_pocl(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_kernel_is_made_with_pocl),
		cmocka_unit_test(objects_libraries_and_links_are_made),
	};
	char *cache = harness_directory();
	int failed = 0;

	setenv("POCL_CACHE_DIR", cache, 1);
	free(cache);
	if (access("/etc/OpenCL/vendors/pocl.icd", F_OK))
		puts("1..0 # SKIP no PoCL here");
	else
		failed = cmocka_run_group_tests(tests, set_up, tear_down);
	return failed;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_job_becomes_an_entry),
		cmocka_unit_test(objects_libraries_and_links_are_made),
		cmocka_unit_test(il_is_made_with_its_constants),
		cmocka_unit_test(a_link_fails_with_the_log_of_its_input),
		cmocka_unit_test(
			all_jobs_are_made_and_those_that_come_meanwhile),
		cmocka_unit_test(devices_are_found_in_the_order_of_the_job),
		cmocka_unit_test(sub_devices_are_made_where_there_are_too_few),
		cmocka_unit_test(with_too_few_devices_nothing_is_published),
		cmocka_unit_test(only_an_entry_of_a_lower_stage_is_replaced),
		cmocka_unit_test(a_changed_include_publishes_nothing),
		cmocka_unit_test(
			an_include_changed_while_it_builds_publishes_nothing),
		cmocka_unit_test(
			an_include_changed_and_back_is_built_once_more),
		cmocka_unit_test(what_fails_is_tried_twice_and_then_given_up),
		cmocka_unit_test(one_that_crashes_does_not_keep_the_others),
		cmocka_unit_test(tries_of_earlier_workers_count),
		cmocka_unit_test(what_no_worker_may_make_here_stays),
		cmocka_unit_test(what_is_past_its_age_goes_unmade),
		cmocka_unit_test(damaged_jobs_go_and_foreign_files_stay),
		cmocka_unit_test(a_job_under_another_keys_name_is_damage),
		cmocka_unit_test(without_spool_or_store_jobs_stay),
		cmocka_unit_test(wrong_usage_is_2),
		cmocka_unit_test(a_second_worker_leaves_or_waits),
		cmocka_unit_test(
			what_it_counted_is_there_before_another_has_its_turn),
		cmocka_unit_test(told_to_end_while_it_waits_it_ends),
		cmocka_unit_test(programs_that_build_come_first),
		cmocka_unit_test(a_program_that_runs_is_given_time_to_launch),
		cmocka_unit_test(
			told_to_end_it_takes_its_child_along_and_keeps_the_job),
		cmocka_unit_test(killed_it_loses_nothing_and_its_child_dies),
		cmocka_unit_test(the_child_is_idle_and_knows_only_what_it_may),
		cmocka_unit_test(progress_is_json_if_asked_for),
		cmocka_unit_test(
			a_reader_that_goes_away_does_not_stop_the_work),
	};

	if (argc > 1 && !strcmp(argv[1], "pocl"))
		return test_pocl();
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
