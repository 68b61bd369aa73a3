/* SPDX-License-Identifier: MIT */

/*
 * kiln-worker --rebuild, on the stand-in driver: entries as another version of it
 * would have left them, and what becomes of them.
 */

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"

#include <kiln/inspect.h>

#include "front/opencl/capture.h"
#include "front/opencl/job.h"
#include "front/opencl/kept.h"
#include "front/opencl/key.h"
#include "helpers_test.h"
#include "loader.h"
#include "plan.h"
#include "sys/sys.h"
#include "worker.h"

#define SOURCE "kernel void k(global int *p) { p[0] = X; }"
#define NAMES  "the first,the second"
#define HANG_S HARNESS_HANG_S

static cl_icd_dispatch calls;
static struct ki_cl_identities *identities;

struct place {
	char *directory;
	char *spool;
	char *url;
};

static void place_init(struct place *place)
{
	place->directory = harness_directory();
	place->spool = harness_path(place->directory, "spool");
	assert_true(asprintf(&place->url, "log:%s", place->directory) > 0);
}

static void place_fini(struct place *place)
{
	free(place->directory);
	free(place->spool);
	free(place->url);
}

static struct kiln *open_store(const struct place *place, uint32_t flags)
{
	return open_store_at(place->url, flags);
}

/* ---- Entries of another driver --------------------------------------------- */

struct made {
	const char *source;  /* NULL: SOURCE */
	const char *options; /* NULL: "-DX=1" */
	const char *version; /* of its platform; NULL: "old" */
	const char *name;    /* of its device; NULL: as it is */
	const char *environment[4];
	const char *directory; /* NULL: this one */
	unsigned device;
	uint32_t flags; /* of the store, as it is put */
};

static struct ki_cl_recipe *recipe_of(const struct made *made)
{
	return recipe_of_text(made->source ? made->source : SOURCE,
			      made->options ? made->options : "-DX=1");
}

/* What the driver that is here gives it. */
static struct kiln_key *key_of(const struct made *made,
			       const struct ki_cl_recipe *recipe)
{
	cl_device_id devices[8];
	struct ki_cl_build build = { .n_devices = 1, .recipe = recipe };
	enum kiln_counter reason;
	struct kiln_key *key;

	assert_int_equal(calls.clGetPlatformIDs(1, &build.platform, NULL), 0);
	assert_int_equal(calls.clGetDeviceIDs(build.platform,
					      CL_DEVICE_TYPE_ALL, 8, devices,
					      NULL),
			 0);
	build.devices = &devices[made->device];
	assert_int_equal(ki_cl_key(identities, &build, &key, &reason), KILN_OK);
	return key;
}

static void copy_field(struct kiln_key *key, const struct kiln_field *field,
		       const char *label, const struct made *made)
{
	if (!strcmp(label, "platform version"))
		kiln_key_add_string(key, label,
				    made->version ? made->version : "old");
	else if (!strcmp(label, "device 0 name") && made->name)
		kiln_key_add_string(key, label, made->name);
	else if (field->kind == KILN_FIELD_BYTES)
		kiln_key_add(key, label, field->data, field->size);
	else if (field->kind == KILN_FIELD_ABSENT)
		kiln_key_add_absent(key, label);
	else
		kiln_key_add_known_digest(key, label, field->original_size,
					  field->data);
}

static struct kiln_key *key_of_another(const struct kiln_key *key,
				       const struct made *made)
{
	struct kiln_key *another = kiln_key_new();
	char label[KILN_LABEL_BYTES_MAX + 1];
	struct kiln_field field;
	size_t size, position = 0;
	const void *record = kiln_key_record(key, &size);

	while (!kiln_record_next(record, size, &position, &field)) {
		memcpy(label, field.label, field.label_size);
		label[field.label_size] = '\0';
		copy_field(another, &field, label, made);
	}
	assert_int_equal(kiln_key_finish(another), KILN_OK);
	return another;
}

static void add_variable(struct kiln_metadata *metadata, struct ki_bytes *bytes,
			 const char *name)
{
	const char *value = getenv(name);

	if (value) {
		ki_bytes_printf(bytes, "%s=%s", name, value);
		ki_bytes_add_u8(bytes, 0);
	}
}

static struct kiln_metadata *metadata_of(const struct made *made,
					 const char *directory)
{
	struct kiln_metadata *metadata = kiln_metadata_new();
	struct ki_bytes bytes;
	size_t i;

	ki_bytes_init(&bytes);
	for (i = 0; i < 4 && made->environment[i]; i++)
		ki_bytes_add(&bytes, made->environment[i],
			     strlen(made->environment[i]) + 1);
	add_variable(metadata, &bytes, "KILN_TEST_ICD_DEVICES");
	add_variable(metadata, &bytes, "KILN_TEST_ICD_NAMES");
	add_variable(metadata, &bytes, "OCL_ICD_VENDORS");
	add_variable(metadata, &bytes, "LD_LIBRARY_PATH");
	add_variable(metadata, &bytes, "LIBRARY_PATH");
	add_variable(metadata, &bytes, "POCL_CACHE_DIR");
	kiln_metadata_add(metadata, KILN_META_ENVIRONMENT, bytes.data,
			  bytes.size);
	ki_bytes_fini(&bytes);
	kiln_metadata_add_string(metadata, KILN_META_DIRECTORY, directory);
	kiln_metadata_add_string(metadata, KILN_META_APPLICATION, "/bin/app");
	kiln_metadata_add_u64(metadata, KILN_META_BUILD_TIME, 1000000);
	kiln_metadata_add_u64(metadata, KILN_META_CREATED, 1700000000);
	return metadata;
}

/* Put what another driver made, and hand out the key that this one gives. */
static struct kiln_key *put_old(const struct place *place,
				const struct made *made)
{
	char *here = getcwd(NULL, 0);
	const char *directory = made->directory ? made->directory : here;
	struct ki_cl_recipe *recipe = recipe_of(made);
	struct kiln_key *key = key_of(made, recipe);
	struct kiln_key *old = key_of_another(key, made);
	struct kiln_metadata *metadata = metadata_of(made, directory);
	struct kiln *kiln = open_store(place, made->flags);
	size_t size;
	const void *record = kiln_key_record(old, &size);

	ki_cl_keep_sources(kiln, recipe, record, size, directory, metadata);
	assert_int_equal(ki_cl_publish(kiln, old, "of another driver", 17,
				       metadata, KI_CL_STAGE_FULL),
			 KILN_OK);
	kiln_close(kiln);
	kiln_metadata_free(metadata);
	kiln_key_free(old);
	ki_cl_recipe_unref(recipe);
	free(here);
	return key;
}

/* Whether there is an entry that a program can use. */
static int is_made(const struct place *place, const struct kiln_key *key)
{
	struct kiln *kiln = open_store(place, 0);
	struct kiln_blob *blob = NULL, *metadata = NULL;
	const unsigned char *binary;
	size_t size;
	int made;

	made = !kiln_get_entry(kiln, key, &blob, &metadata);
	if (made)
		assert_int_equal(ki_cl_unpack(kiln_blob_data(blob),
					      kiln_blob_size(blob), 1, &binary,
					      &size),
				 KILN_OK);
	kiln_blob_unref(blob);
	kiln_blob_unref(metadata);
	kiln_close(kiln);
	return made;
}

/* ---- The worker ------------------------------------------------------------- */

static void start(const struct place *place, struct running *running,
		  const char *const *more)
{
	const char *arguments[16] = { "--rebuild" };

	for (size_t n = 1; more && *more; more++)
		arguments[n++] = *more;
	running_start(running, place->spool, place->url, arguments);
}

/* Its exit status; what it reported stays in `running`. */
static int rebuild_with(const struct place *place, struct running *running,
			const char *const *more)
{
	int status;

	start(place, running, more);
	status = running_finish(running);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* ---- What is made again ------------------------------------------------------ */

static void what_another_driver_made_is_made_again_once(void **state)
{
	static const struct made mades[] = {
		{ .options = "-DX=1" },
		{ .options = "-DX=1", .version = "older" },
		{ .options = "-DX=2" },
		{ .source = "kernel void other() {}", .options = "" },
	};
	enum { N = sizeof(mades) / sizeof(mades[0]) };
	struct kiln_key *keys[N];
	struct running running;
	struct place place;
	size_t i;

	place_init(&place);
	for (i = 0; i < N; i++) {
		keys[i] = put_old(&place, &mades[i]);
		assert_false(is_made(&place, keys[i]));
	}
	assert_int_equal(rebuild_with(&place, &running, NULL), 0);
	assert_has(running.text, "\nend 3 0 0 0\n");
	for (i = 0; i < N; i++)
		assert_true(is_made(&place, keys[i]));
	assert_int_equal(rebuild_with(&place, &running, NULL), 0);
	assert_has(running.text, "\nend 0 0 0 3\n");
	for (i = 0; i < N; i++)
		kiln_key_free(keys[i]);
	place_fini(&place);
}

static void what_is_made_tells_what_the_entry_told(void **state)
{
	struct made made = { .environment = { "KILN_TEST_ICD_WARN=1" } };
	struct kiln_blob *blob, *metadata;
	struct running running;
	struct kiln_key *key;
	struct place place;
	struct kiln *kiln;
	const void *data;
	uint64_t stage;
	size_t size;

	place_init(&place);
	key = put_old(&place, &made);
	assert_int_equal(rebuild_with(&place, &running, NULL), 0);
	kiln = open_store(&place, 0);
	assert_int_equal(kiln_get_entry(kiln, key, &blob, &metadata), KILN_OK);
	data = kiln_blob_data(metadata);
	size = kiln_blob_size(metadata);
	/* What programs launch has not specialised it. */
	assert_int_equal(
		kiln_metadata_find_u64(data, size, KILN_META_STAGE, &stage),
		KILN_OK);
	assert_int_equal(stage, KI_CL_STAGE_EARLY);
	assert_non_null(memmem(data, size, "/bin/app", 8));
	assert_non_null(memmem(data, size, "KILN_TEST_ICD_WARN=1", 21));
	/* So that it can be made again itself. */
	assert_int_equal(kiln_metadata_find(kiln_blob_data(metadata),
					    kiln_blob_size(metadata),
					    KILN_META_SOURCES, &data, &size),
			 KILN_OK);
	assert_int_equal(size, KILN_SOURCE_DIGEST_BYTES);
	kiln_blob_unref(blob);
	kiln_blob_unref(metadata);
	kiln_close(kiln);
	kiln_key_free(key);
	place_fini(&place);
}

/* Programs run in temporary folders, too. */
static void what_includes_nothing_needs_no_directory(void **state)
{
	struct made made = { .directory = "/nowhere/at/all" };
	struct running running;
	struct kiln_key *key;
	struct place place;

	place_init(&place);
	key = put_old(&place, &made);
	assert_int_equal(rebuild_with(&place, &running, NULL), 0);
	assert_has(running.text, "\nend 1 0 0 0\n");
	assert_true(is_made(&place, key));
	kiln_key_free(key);
	place_fini(&place);
}

static void jobs_are_made_first(void **state)
{
	struct made made = { .options = "-DX=7" };
	struct ki_cl_recipe *recipe = recipe_of(&made);
	struct kiln_key *key = key_of(&made, recipe);
	char vendors[4200], *here = getcwd(NULL, 0);
	const char *environment[] = { vendors, "KILN_TEST_ICD_DEVICES=2",
				      "KILN_TEST_ICD_NAMES=" NAMES };
	struct ki_cl_job job = {
		.platform_name = "a platform",
		.driver = "kiln-test",
		.n_devices = 1,
		.recipe = recipe,
		.directory = here,
		.environment = environment,
		.n_environment = 3,
		.application = "/bin/app",
		.name_space = "",
		.created = ki_sys_posix.realtime_ns(&ki_sys_posix) / 1000000000,
		.build_ns = 1000,
		.writer_pid = 1,
	};
	struct running running;
	struct place place;

	place_init(&place);
	snprintf(vendors, sizeof(vendors), "OCL_ICD_VENDORS=%s",
		 getenv("OCL_ICD_VENDORS"));
	job.record = kiln_key_record(key, &job.record_size);
	assert_int_equal(ki_cl_job_write(place.spool, &job), KILN_OK);
	assert_int_equal(rebuild_with(&place, &running, NULL), 0);
	/* Which makes it an entry that is there. */
	assert_has(running.text, "\nend 1 0 0 1\n");
	assert_true(is_made(&place, key));
	kiln_key_free(key);
	ki_cl_recipe_unref(recipe);
	free(here);
	place_fini(&place);
}

static void only_the_devices_that_are_named(void **state)
{
	static const char *const more[] = { "--device", "SECOND", NULL };
	struct made first = { .device = 0 }, second = { .device = 1 };
	struct kiln_key *keys[2];
	struct running running;
	struct place place;

	place_init(&place);
	keys[0] = put_old(&place, &first);
	keys[1] = put_old(&place, &second);
	assert_int_equal(rebuild_with(&place, &running, more), 0);
	assert_has(running.text, "\nend 1 0 0 0\n");
	assert_false(is_made(&place, keys[0]));
	assert_true(is_made(&place, keys[1]));
	kiln_key_free(keys[0]);
	kiln_key_free(keys[1]);
	place_fini(&place);
}

static void a_device_that_has_another_name_now_is_made_for_once(void **state)
{
	static const char *const more[] = { "--device", "former", NULL };
	struct made made = { .name = "its former name" };
	struct running running;
	struct kiln_key *key;
	struct place place;

	place_init(&place);
	key = put_old(&place, &made);
	assert_int_equal(rebuild_with(&place, &running, more), 0);
	assert_has(running.text, "\nend 1 0 0 0\n");
	assert_true(is_made(&place, key));
	assert_int_equal(rebuild_with(&place, &running, more), 0);
	assert_has(running.text, "\nend 0 0 0 1\n");
	kiln_key_free(key);
	place_fini(&place);
}

static size_t n_there(const struct ki_plan *plan, const struct kiln_key *key)
{
	size_t size, n;
	const void *record = kiln_key_record(key, &size);
	uint8_t *digests;

	assert_int_equal(ki_plan_there(plan, record, size, &digests, &n),
			 KILN_OK);
	free(digests);
	return n;
}

/* However much the store has. */
static void a_child_is_told_what_is_there_of_its_own_sources_alone(void **state)
{
	static const struct made mades[] = {
		{ .options = "-DX=1" },
		{ .options = "-DX=1", .version = "older" },
		{ .options = "-DX=1", .name = "its former name" },
		{ .options = "-DX=2" },
		{ .source = "kernel void other() {}", .options = "-DX=1" },
	};
	enum { N = sizeof(mades) / sizeof(mades[0]) };
	static const size_t wanted[N] = { 3, 3, 3, 1, 1 };
	struct kiln_key *keys[N];
	struct ki_waiter waiter;
	struct ki_plan plan = { .waiter = &waiter };
	struct place place;
	const void *record;
	size_t i, size;

	place_init(&place);
	for (i = 0; i < N; i++)
		keys[i] = put_old(&place, &mades[i]);
	assert_int_equal(ki_waiter_init(&waiter), 0);
	plan.view = open_store(&place, KILN_OPEN_READONLY);
	assert_int_equal(ki_plan_make(&plan), KILN_OK);
	for (i = 0; i < N; i++)
		assert_int_equal(n_there(&plan, keys[i]), wanted[i]);
	record = kiln_key_record(keys[3], &size);
	ki_plan_note(&plan, record, size);
	for (i = 0; i < N; i++)
		assert_int_equal(n_there(&plan, keys[i]), wanted[i] + (i == 3));
	ki_plan_fini(&plan);
	kiln_close(plan.view);
	ki_waiter_finish(&waiter);
	(void)sigprocmask(SIG_SETMASK, &waiter.old_mask, NULL);
	for (i = 0; i < N; i++)
		kiln_key_free(keys[i]);
	place_fini(&place);
}

/* Under two names of one device, which neither child knows of the other. */
static void what_two_made_at_once_is_made_once(void **state)
{
	static const char *const more[] = { "--at-once", "2", NULL };
	struct made first = { .options = NULL };
	struct made second = { .name = "its former name" };
	struct running running;
	struct kiln_key *key;
	struct place place;
	char variable[4300], *gate;

	place_init(&place);
	gate = harness_path(place.directory, "gate");
	snprintf(variable, sizeof(variable), "KILN_TEST_ICD_WAIT_WHILE=%s",
		 gate);
	first.environment[0] = second.environment[0] = variable;
	key = put_old(&place, &first);
	kiln_key_free(put_old(&place, &second));
	harness_write(gate, "", 0);
	start(&place, &running, more);
	while (!strstr(running.text, "\nbegin ") ||
	       !strstr(strstr(running.text, "\nbegin ") + 1, "\nbegin "))
		assert_true(read_more(&running));
	assert_int_equal(unlink(gate), 0);
	assert_int_equal(running_finish(&running), 0);
	assert_has(running.text, "\nend 1 0 0 1\n");
	assert_true(is_made(&place, key));
	kiln_key_free(key);
	free(gate);
	place_fini(&place);
}

/* ---- What is not -------------------------------------------------------------- */

static void what_cannot_be_made_again_is_told_and_costs_no_other(void **state)
{
	static const struct {
		const char *name;
		struct made made;
		const char *told, *end;
		int exit;
	} rows[] = {
		{ "its source is not kept",
		  { .options = "-DX=2",
		    .flags = KILN_OPEN_NO_SOURCES,
		    .source = "kernel void unkept() {}" },
		  " source its source is not kept\n",
		  "\nend 1 0 1 0\n",
		  0 },
		{ "its directory is gone, and files were looked for there",
		  { .source = "#include \"a.h\"\nkernel void includes() {}",
		    .options = "-DX=2",
		    .directory = "/nowhere/at/all" },
		  " directory /nowhere/at/all\n",
		  "\nend 1 1 0 0\n",
		  1 },
		{ "the compiler refuses it",
		  { .options = "-DX=2",
		    .environment = { "KILN_TEST_ICD_FAIL_BUILDS=1" } },
		  " build ",
		  "\nend 1 1 0 0\n",
		  1 },
		{ "the driver crashes before it builds: there is no key yet",
		  { .options = "-DX=2",
		    .environment = { "KILN_TEST_ICD_CRASH_DEVICES=1" } },
		  " worker Aborted\n",
		  "\nend 1 1 0 0\n",
		  1 },
		{ "there is no such driver any more",
		  { .options = "-DX=2",
		    .environment = { "OCL_ICD_VENDORS=/nowhere" } },
		  " absent ",
		  "\nend 1 0 1 0\n",
		  0 },
	};
	struct made other = { .options = "-DX=1" };
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kiln_key *key, *other_key;
		struct running running;
		struct place place;

		print_message("# %s\n", rows[i].name);
		place_init(&place);
		key = put_old(&place, &rows[i].made);
		other_key = put_old(&place, &other);
		assert_int_equal(rebuild_with(&place, &running, NULL),
				 rows[i].exit);
		assert_has(running.text, rows[i].told);
		assert_has(running.text, rows[i].end);
		assert_false(is_made(&place, key));
		assert_true(is_made(&place, other_key));
		kiln_key_free(key);
		kiln_key_free(other_key);
		place_fini(&place);
	}
}

/* ---- S60 ------------------------------------------------------------------------ */

static void what_ends_badly_is_remembered(void **state)
{
	static const struct {
		const char *name;
		const char *variable;
		const char *option, *value;
		const char *told;
		int needs_limits;
	} rows[] = {
		{ "crashes", "KILN_TEST_ICD_CRASH_BUILDS=1", NULL, NULL,
		  " crash Aborted\n", 0 },
		{ "ends the process", "KILN_TEST_ICD_EXIT_BUILDS=1", NULL, NULL,
		  " crash it ended in its build\n", 0 },
		{ "wants all memory", "KILN_TEST_ICD_HOG_MIB=3000",
		  "--memory-limit", "1G", " crash Aborted\n", 1 },
	};
	static const char *const retry[] = { "--retry", NULL };
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct made bad = { .options = "-DX=2",
				    .environment = { rows[i].variable } };
		struct made good = { .options = "-DX=1" };
		const char *more[] = { rows[i].option, rows[i].value, NULL };
		struct kiln_key *bad_key, *good_key;
		struct running running;
		struct place place;

		if (rows[i].needs_limits && KI_WORKER_SANITIZED)
			continue;
		print_message("# %s\n", rows[i].name);
		place_init(&place);
		bad_key = put_old(&place, &bad);
		good_key = put_old(&place, &good);
		assert_int_equal(rebuild_with(&place, &running, more), 1);
		assert_has(running.text, rows[i].told);
		assert_has(running.text, "\nend 1 1 0 0\n");
		assert_true(is_made(&place, good_key));
		assert_false(is_made(&place, bad_key));
		assert_int_equal(rebuild_with(&place, &running, more), 0);
		assert_has(running.text, " denied it ");
		assert_has(running.text, "\nend 0 0 1 1\n");
		/* Now it would end well, were it tried. */
		if (!rows[i].option) {
			assert_int_equal(rebuild_with(&place, &running, retry),
					 1);
			assert_has(running.text, "\nend 0 1 0 1\n");
		}
		kiln_key_free(bad_key);
		kiln_key_free(good_key);
		place_fini(&place);
	}
}

/* A child that a busy machine keeps from computing its key in time is not
   remembered: then the next has twice as long. */
static void let_it_take_too_long(const struct place *place,
				 struct running *running, const char *path)
{
	static const char *const limits[] = { "1", "2", "4", "8", "16", "32" };
	size_t i;

	for (i = 0; access(path, F_OK); i++) {
		const char *more[] = { "--time-limit", limits[i], NULL };

		assert_true(i < sizeof(limits) / sizeof(limits[0]));
		assert_int_equal(rebuild_with(place, running, more), 1);
		assert_has(running->text, " time it took too long\n");
		assert_has(running->text, "\nend 0 1 0 0\n");
	}
}

static void one_that_ends_well_after_all_is_denied_no_more(void **state)
{
	static const char *const retry[] = { "--retry", NULL };
	struct running running;
	struct kiln_key *key;
	struct place place;
	struct made made = { .options = NULL };
	char *path, *gate, *text;
	char variable[4300];

	place_init(&place);
	gate = harness_path(place.directory, "gate");
	snprintf(variable, sizeof(variable), "KILN_TEST_ICD_WAIT_WHILE=%s",
		 gate);
	made.environment[0] = variable;
	key = put_old(&place, &made);
	path = harness_path(place.spool, "rebuild.denied");
	harness_write(gate, "", 0);
	let_it_take_too_long(&place, &running, path);
	assert_int_equal(unlink(gate), 0);
	text = harness_read(path, NULL);
	assert_non_null(strstr(text, " time /bin/app\n"));
	free(text);
	assert_int_equal(rebuild_with(&place, &running, NULL), 0);
	assert_has(running.text, " denied it took too long before: /bin/app\n");
	assert_int_equal(rebuild_with(&place, &running, retry), 0);
	assert_has(running.text, "\nend 1 0 0 0\n");
	assert_true(is_made(&place, key));
	text = harness_read(path, NULL);
	assert_null(strstr(text, "/bin/app"));
	free(text);
	free(path);
	free(gate);
	kiln_key_free(key);
	place_fini(&place);
}

static unsigned n_children(pid_t pid)
{
	char path[64], text[4096];
	unsigned n = 0;
	size_t size;
	FILE *file;
	char *at;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
	file = fopen(path, "r");
	if (!file)
		return 0;
	size = fread(text, 1, sizeof(text) - 1, file);
	text[size] = '\0';
	fclose(file);
	for (at = text; (at = strchr(at, ' ')); at++)
		n++;
	return n;
}

static pid_t child_of(pid_t pid)
{
	char path[64], *text;
	pid_t child;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
	text = harness_read(path, NULL);
	child = (pid_t)atoi(text);
	free(text);
	return child;
}

/* What has a person waiting for it gets its turn on a busy machine, too. */
static void a_child_is_nice_but_not_idle(void **state)
{
	struct made slow = {
		.environment = { "KILN_TEST_ICD_BUILD_MS=600000", NULL },
	};
	char *calls_path, variable[4300];
	struct running running;
	struct place place;
	uint64_t until_ns;
	int niceness;
	pid_t child;

	place_init(&place);
	calls_path = harness_path(place.directory, "calls");
	snprintf(variable, sizeof(variable), "KILN_TEST_ICD_CALLS=%s",
		 calls_path);
	slow.environment[1] = variable;
	kiln_key_free(put_old(&place, &slow));
	start(&place, &running, NULL);
	until_ns = ki_sys_posix.monotonic_ns(&ki_sys_posix) +
		   (uint64_t)HANG_S * 1000000000;
	while (access(calls_path, F_OK)) {
		assert_true(ki_sys_posix.monotonic_ns(&ki_sys_posix) <
			    until_ns);
		sched_yield();
	}
	child = child_of(running.pid);
	niceness = getpriority(PRIO_PROCESS, 0) + 10;
	assert_int_equal(sched_getscheduler(child), sched_getscheduler(0));
	assert_int_equal(getpriority(PRIO_PROCESS, (id_t)child),
			 niceness < 19 ? niceness : 19);
	assert_int_equal(kill(running.pid, SIGTERM), 0);
	assert_true(WIFSIGNALED(running_finish(&running)));
	free(calls_path);
	place_fini(&place);
}

static int has_byte_1(const struct place *place)
{
	const struct ki_sys *sys = &ki_sys_posix;
	char *path = harness_path(place->spool, "worker.lock");
	int fd = sys->open(sys, path, KI_OPEN_READ | KI_OPEN_WRITE, 0), err;

	assert_true(fd >= 0);
	err = sys->try_lock(sys, fd, KI_LOCK_SHARED, 1, 1);
	assert_int_equal(sys->close(sys, fd), 0);
	free(path);
	return err == -EAGAIN;
}

static void it_says_that_no_job_is_waited_for(void **state)
{
	struct made slow = {
		.environment = { "KILN_TEST_ICD_BUILD_MS=600000" },
	};
	struct running running;
	struct place place;

	place_init(&place);
	kiln_key_free(put_old(&place, &slow));
	start(&place, &running, NULL);
	while (!strstr(running.text, "\nbegin "))
		assert_true(read_more(&running));
	assert_true(has_byte_1(&place));
	assert_int_equal(kill(running.pid, SIGTERM), 0);
	assert_true(WIFSIGNALED(running_finish(&running)));
	assert_false(has_byte_1(&place));
	place_fini(&place);
}

static void interrupted_it_ends_at_once_and_can_go_on(void **state)
{
	static const char *const more[] = { "--at-once", "2", NULL };
	struct made slow[] = {
		{ .options = "-DX=1",
		  .environment = { "KILN_TEST_ICD_BUILD_MS=600000" } },
		{ .options = "-DX=2",
		  .environment = { "KILN_TEST_ICD_BUILD_MS=600000" } },
		{ .options = "-DX=3",
		  .environment = { "KILN_TEST_ICD_BUILD_MS=600000" } },
	};
	struct kiln_key *keys[3];
	struct running running;
	struct place place;
	uint64_t begun_ns;
	int status, i;

	place_init(&place);
	for (i = 0; i < 3; i++)
		keys[i] = put_old(&place, &slow[i]);
	start(&place, &running, more);
	while (!strstr(running.text, "\nbegin ") ||
	       !strstr(strstr(running.text, "\nbegin ") + 1, "\nbegin "))
		assert_true(read_more(&running));
	assert_int_equal(n_children(running.pid), 2);
	begun_ns = ki_sys_posix.monotonic_ns(&ki_sys_posix);
	assert_int_equal(kill(running.pid, SIGINT), 0);
	status = running_finish(&running);
	/* A second, and time for a machine that is busy. */
	assert_true(ki_sys_posix.monotonic_ns(&ki_sys_posix) - begun_ns <
		    (uint64_t)10 * 1000000000);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGINT);
	/* Nothing is held against them. */
	start(&place, &running, more);
	while (!strstr(running.text, "\nbegin "))
		assert_true(read_more(&running));
	assert_null(strstr(running.text, "denied"));
	assert_int_equal(kill(running.pid, SIGTERM), 0);
	status = running_finish(&running);
	assert_true(WIFSIGNALED(status));
	for (i = 0; i < 3; i++) {
		assert_false(is_made(&place, keys[i]));
		kiln_key_free(keys[i]);
	}
	place_fini(&place);
}

/* The most that were begun and not done, by the lines in their order. */
static int most_at_once(const char *text)
{
	int n = 0, most = 0;

	for (; text; text = strchr(text, '\n')) {
		text += *text == '\n';
		n += !strncmp(text, "begin ", 6);
		n -= !strncmp(text, "done ", 5);
		most = n > most ? n : most;
	}
	return most;
}

static void no_more_at_once_than_asked_for_or_than_memory_is_for(void **state)
{
	static const struct {
		const char *options[5];
		int most;
	} rows[] = {
		{ { "--at-once", "3" }, 3 },
		{ { "--at-once", "1" }, 1 },
		{ { "--at-once", "4", "--memory-limit", "1G" }, 2 },
		{ { "--at-once", "4", "--memory-limit", "100M" }, 1 },
	};
	static const struct made mades[] = {
		{ .options = "-DX=1",
		  .environment = { "KILN_TEST_ICD_BUILD_MS=50" } },
		{ .options = "-DX=2",
		  .environment = { "KILN_TEST_ICD_BUILD_MS=50" } },
		{ .options = "-DX=3",
		  .environment = { "KILN_TEST_ICD_BUILD_MS=50" } },
	};
	size_t i, j;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct running running;
		struct place place;

		place_init(&place);
		for (j = 0; j < 3; j++)
			kiln_key_free(put_old(&place, &mades[j]));
		assert_int_equal(
			rebuild_with(&place, &running, rows[i].options), 0);
		assert_has(running.text, "\nend 3 0 0 0\n");
		assert_int_equal(most_at_once(running.text), rows[i].most);
		place_fini(&place);
	}
}

/* ---- The list --------------------------------------------------------------------- */

static struct ki_denied_row row_of(unsigned number, const char *text)
{
	struct ki_denied_row row = { .when = number, .reason = "crash" };

	memcpy(row.digest, &number, sizeof(number));
	snprintf(row.text, sizeof(row.text), "%.*s", (int)sizeof(row.text) - 1,
		 text);
	return row;
}

static void a_list_comes_back_and_is_bounded(void **state)
{
	char *directory = harness_directory(), text[400];
	struct ki_denied denied = { .n = 0 }, again;
	struct ki_denied_row row;
	unsigned i;

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	for (i = 0; i < KI_DENIED_MAX + 10; i++) {
		row = row_of(i, i % 3 ? text : "a\nb");
		ki_denied_add(&denied, &row);
	}
	assert_int_equal(denied.n, KI_DENIED_MAX);
	assert_int_equal(ki_denied_write(&denied, directory), 0);
	ki_denied_read(&again, directory);
	assert_int_equal(again.n, KI_DENIED_MAX);
	for (i = 0; i < KI_DENIED_MAX + 10; i++) {
		row = row_of(i, "");
		assert_int_equal(ki_denied_find(&again, row.digest) != NULL,
				 i >= 10);
	}
	assert_int_equal(again.rows[0].when, 10);
	assert_string_equal(again.rows[0].reason, "crash");
	assert_string_equal(again.rows[2].text, "a b");
	free(directory);
}

static void a_list_that_is_damaged_is_empty(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "rebuild.denied"), *data;
	struct ki_denied denied = { .n = 0 };
	struct ki_denied_row row = row_of(1, "/bin/app");
	size_t size, i;

	ki_denied_read(&denied, directory);
	assert_int_equal(denied.n, 0);
	ki_denied_add(&denied, &row);
	assert_int_equal(ki_denied_write(&denied, directory), 0);
	data = harness_read(path, &size);
	for (i = 0; i < size; i++) {
		data[i] ^= 1;
		harness_write(path, data, size);
		ki_denied_read(&denied, directory);
		assert_int_equal(denied.n, 0);
		data[i] ^= 1;
		harness_write(path, data, i);
		ki_denied_read(&denied, directory);
		assert_int_equal(denied.n, 0);
	}
	free(data);
	free(path);
	free(directory);
}

static int set_up(void **state)
{
	const char *why;

	if (!getenv("KILN_WORKER") || !getenv("OCL_ICD_VENDORS") ||
	    setenv("KILN_TEST_ICD_DEVICES", "2", 1) ||
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

/* One child for each item and run, each of which loads a compiler. */
static int test_pocl(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_another_driver_made_is_made_again_once),
		cmocka_unit_test(what_is_made_tells_what_the_entry_told),
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
		cmocka_unit_test(what_another_driver_made_is_made_again_once),
		cmocka_unit_test(what_is_made_tells_what_the_entry_told),
		cmocka_unit_test(what_includes_nothing_needs_no_directory),
		cmocka_unit_test(jobs_are_made_first),
		cmocka_unit_test(only_the_devices_that_are_named),
		cmocka_unit_test(
			a_device_that_has_another_name_now_is_made_for_once),
		cmocka_unit_test(
			a_child_is_told_what_is_there_of_its_own_sources_alone),
		cmocka_unit_test(what_two_made_at_once_is_made_once),
		cmocka_unit_test(
			what_cannot_be_made_again_is_told_and_costs_no_other),
		cmocka_unit_test(what_ends_badly_is_remembered),
		cmocka_unit_test(
			one_that_ends_well_after_all_is_denied_no_more),
		cmocka_unit_test(a_child_is_nice_but_not_idle),
		cmocka_unit_test(it_says_that_no_job_is_waited_for),
		cmocka_unit_test(interrupted_it_ends_at_once_and_can_go_on),
		cmocka_unit_test(
			no_more_at_once_than_asked_for_or_than_memory_is_for),
		cmocka_unit_test(a_list_comes_back_and_is_bounded),
		cmocka_unit_test(a_list_that_is_damaged_is_empty),
	};

	if (argc > 1 && !strcmp(argv[1], "pocl"))
		return test_pocl();
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
