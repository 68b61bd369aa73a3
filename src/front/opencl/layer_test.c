/* SPDX-License-Identifier: MIT */

/*
 * The layer in a program that nobody changed (tests/opencl/calls.c), through
 * the system's loader, on the driver stand-in.  What counts is that the
 * program prints the same natively, cold and warm; what the driver was asked
 * tells that warm was warm.
 */

#include "harness/harness.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kiln/inspect.h>

#include "front/opencl/capture.h"
#include "opencl/place.h"

/* ---- Cold and warm are alike --------------------------------------------- */

#define ANY 1000000u

struct row {
	const char *name;
	const char *script;
	const char *options;
	const char *switches;
	unsigned n_from_source; /* builds of this kind when warm */
	unsigned n_from_binary;
};

static const struct row rows[] = {
	{ "everything that can be asked", "everything", "-DK=2", NULL, 0, 1 },
	{ "without options", "everything", NULL, NULL, 0, 1 },
	{ "with argument information", "everything",
	  "-cl-kernel-arg-info -DK=2", NULL, 0, 1 },
	{ "with debugging", "everything", "-g", NULL, 0, 1 },
	{ "with a log of warnings (S10)", "everything", "-DK=2", "WARN=1", 0,
	  1 },
	{ "binaries that tell all", "everything", "-g", "POOR_BINARIES=0", 0,
	  1 },
	{ "a kernel that the driver does not make", "everything", "-g",
	  "HIDE_KERNEL=1", 0, 1 },
	{ "a kernel that must not be asked", "notify", "-DK=2", "HIDE_KERNEL=2",
	  0, 1 },
	{ "a kernel that must not be asked, made with others", "made-together",
	  "-DK=2", "HIDE_KERNEL=2", 0, 1 },
	{ "a driver that tells sizes anyhow", "everything", "-g", "TELL=1", 0,
	  1 },
	{ "two devices", "everything", "-g", "DEVICES=2", 0, 1 },
	{ "two devices of different names (S05)", "everything", "-g",
	  "DEVICES=2 NAMES=first,second", 0, 1 },
	{ "built again with other options", "again", "-DK=2", NULL, 1, 4 },
	{ "what any driver refuses", "errors", "-DK=2", NULL, 1, 1 },
	{ "a notification (S57)", "notify", "-DK=2", NULL, 0, 1 },
	{ "a notification from a thread (S57)", "notify", "-DK=2", "ASYNC=1", 0,
	  1 },
	{ "the context released first", "context-first", "-DK=2", NULL, 0, 1 },
	{ "a subset of the devices", "subsets", "-DK=2", "DEVICES=2", 2, 2 },
	{ "compiled and linked", "linked", "-DK=2", NULL, 1, 1 },
	{ "an extension that nobody knows", "extension", "-DK=2", NULL, 2, 1 },
	{ "a forked child (S40)", "forked", "-DK=2", NULL, 1, 1 },
	{ "four threads", "threads", "-DK=2", NULL, 0, 81 },
	{ "threads in each other's way", "storm", "-DK=2", NULL, 0, ANY },
	{ "compiled while it has kernels", "in-use", "-DK=2", NULL, 3, 1 },
	{ "programs that are not from source", "natives", "-DK=2", NULL, 0, 2 },
	{ "whatever comes", "whatever", "-DK=2", NULL, 131, 188 },
	{ "interrupted all the time (S43)", "alarms", "-DK=2", NULL, 1, 4 },
};

/* S56 */
static void a_program_cannot_tell_cold_from_warm_from_native(void **state)
{
	const struct row *row = *state;
	struct place place;
	char *native, *cold, *warm;
	int n_living;

	place_init(&place);
	set_all(&place, row->switches);
	native = run(&place, 0, row->script, row->options);
	n_living = living(&place);
	assert_non_null(strstr(native, "exit 0\n"));
	cold = run(&place, 1, row->script, row->options);
	same(native, cold);
	assert_true(lets_go(&place, n_living));
	prime(&place, row->options);
	warm = run(&place, 1, row->script, row->options);
	same(native, warm);
	assert_true(lets_go(&place, n_living));
	assert_int_equal(calls(&place, "build-source"), row->n_from_source);
	if (row->n_from_binary != ANY)
		assert_int_equal(calls(&place, "build-binary"),
				 row->n_from_binary);
	/* Of what is cached, binaries come from the entry; else the program asks
	   for them, and whoever keeps them for their sizes. */
	assert_int_equal(calls(&place, "fetch"),
			 strcmp(row->script, "subsets") ? 0 : 3);
	free(native);
	free(cold);
	free(warm);
	place_fini(&place);
}

/* ---- A real driver ------------------------------------------------------- */

static const struct row pocl_rows[] = {
	{ "PoCL: everything that can be asked", "everything", "-DK=2" },
	{ "PoCL: with argument information", "everything",
	  "-cl-kernel-arg-info -DK=2" },
	{ "PoCL: a notification", "notify", "-DK=2" },
	{ "PoCL: the context released first", "context-first", "-DK=2" },
	{ "PoCL: compiled and linked", "linked", "-DK=2" },
};

/* Warm runs find PoCL's own cache empty. */
static void on_pocl_too(void **state)
{
	const struct row *row = *state;
	char *native, *cold, *warm, *cache;
	struct place place;

	place_init(&place);
	set(&place, "OCL_ICD_VENDORS", "pocl.icd");
	cache = harness_path(place.directory, "pocl");
	assert_int_equal(mkdir(cache, 0700), 0);
	set(&place, "POCL_CACHE_DIR", cache);
	native = run(&place, 0, row->script, row->options);
	if (strstr(native, "exit 2\n")) {
		free(native);
		free(cache);
		place_fini(&place);
		HARNESS_LEAVE_OUT("no such driver here");
	}
	cold = run(&place, 1, row->script, row->options);
	same(native, cold);
	free(run(&place, 1, "binaries", row->options));
	assert_int_equal(counter(&place, KILN_COUNT_HITS_STORE), 0);
	harness_remove(cache);
	assert_int_equal(mkdir(cache, 0700), 0);
	warm = run(&place, 1, row->script, row->options);
	same(native, warm);
	assert_int_equal(counter(&place, KILN_COUNT_HITS_STORE), 1);
	assert_int_equal(counter(&place, KILN_COUNT_MISS_REFUSED), 0);
	free(native);
	free(cold);
	free(warm);
	free(cache);
	place_fini(&place);
}

/* ---- When something is wrong --------------------------------------------- */

/* S09. */
static void a_refused_binary_is_dropped_and_the_source_built(void **state)
{
	static const char *const refusals[] = { "REFUSE_BINARIES=1",
						"FAIL_BINARY_BUILDS=1" };
	static const char *const consents[] = { "REFUSE_BINARIES=0",
						"FAIL_BINARY_BUILDS=0" };
	size_t i;

	for (i = 0; i < 2; i++) {
		struct place place;
		char *native, *refused, *later;

		place_init(&place);
		native = run(&place, 0, "everything", "-DK=2");
		prime(&place, "-DK=2");
		set_all(&place, refusals[i]);
		refused = run(&place, 1, "everything", "-DK=2");
		same(native, refused);
		assert_int_equal(calls(&place, "build-source"), 1);
		assert_int_equal(counter(&place, KILN_COUNT_MISS_REFUSED), 1);
		set_all(&place, consents[i]);
		later = run(&place, 1, "everything", "-DK=2");
		same(native, later);
		assert_int_equal(calls(&place, "build-source"), 1);
		assert_int_equal(counter(&place, KILN_COUNT_MISS_REFUSED), 1);
		free(native);
		free(refused);
		free(later);
		place_fini(&place);
	}
}

/* What the driver has no memory for is no worse for that. */
static void a_binary_without_memory_is_kept(void **state)
{
	struct place place;
	char *native, *hungry, *later;

	place_init(&place);
	native = run(&place, 0, "everything", "-DK=2");
	prime(&place, "-DK=2");
	set_all(&place, "SHORT_OF_MEMORY=1");
	hungry = run(&place, 1, "everything", "-DK=2");
	same(native, hungry);
	assert_int_equal(calls(&place, "build-source"), 1);
	set_all(&place, "SHORT_OF_MEMORY=0");
	later = run(&place, 1, "everything", "-DK=2");
	same(native, later);
	assert_int_equal(calls(&place, "build-source"), 0);
	free(native);
	free(hungry);
	free(later);
	place_fini(&place);
}

/* Turn one bit in each 64 bytes of every file with values. */
static void damage(const char *store)
{
	DIR *dir = opendir(store);
	struct dirent *entry;

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		char *path = harness_path(store, entry->d_name), *data;
		size_t size, i;

		if (strstr(entry->d_name, ".val")) {
			data = harness_read(path, &size);
			assert_non_null(data);
			for (i = 128; i < size; i += 64)
				data[i] ^= 4;
			harness_write(path, data, size);
			free(data);
		}
		free(path);
	}
	closedir(dir);
}

/* What an entry that tells this is to tell. */
typedef struct kiln_metadata *retell_fn(const struct kiln_blob *metadata);

static struct kiln_metadata *without_kernels(const struct kiln_blob *metadata)
{
	return kiln_metadata_new();
}

/* Put the entries of the store anew. */
static void put_anew(const struct place *place, retell_fn *retell)
{
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_options options;
	struct kiln_entry entry;
	struct kiln *kiln;
	unsigned n = 0;
	char *url;

	assert_true(asprintf(&url, "log:%s", place->store) > 0);
	kiln_options_init(&options);
	options.store_url = url;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	while (!kiln_list(kiln, &cursor, &entry)) {
		struct kiln_metadata *metadata = retell(entry.metadata);
		struct kiln_blob *value;
		struct kiln_key *key;

		assert_int_equal(kiln_key_from_record(
					 kiln_blob_data(entry.record),
					 kiln_blob_size(entry.record), &key),
				 KILN_OK);
		assert_int_equal(kiln_get(kiln, key, &value), KILN_OK);
		assert_int_equal(kiln_put(kiln, key, kiln_blob_data(value),
					  kiln_blob_size(value), metadata,
					  KILN_PUT_REPLACE),
				 KILN_OK);
		kiln_metadata_free(metadata);
		kiln_blob_unref(value);
		kiln_key_free(key);
		kiln_entry_fini(&entry);
		assert_true(++n < 100);
	}
	kiln_close(kiln);
	free(url);
}

static void an_entry_without_kernels_serves_only_who_does_not_ask(void **state)
{
	static const char *const asks[] = { "-cl-kernel-arg-info -DK=2",
					    "-DK=2 -g" };
	struct place place;
	char *native, *text;
	size_t i;

	for (i = 0; i < 2; i++) {
		place_init(&place);
		native = run(&place, 0, "everything", asks[i]);
		prime(&place, asks[i]);
		put_anew(&place, without_kernels);
		text = run(&place, 1, "everything", asks[i]);
		same(native, text);
		assert_int_equal(calls(&place, "build-source"), 1);
		free(native);
		free(text);
		place_fini(&place);
	}
	place_init(&place);
	prime(&place, "-DK=2");
	put_anew(&place, without_kernels);
	text = run(&place, 1, "brief", "-DK=2");
	assert_int_equal(calls(&place, "build-source"), 0);
	free(text);
	place_fini(&place);
}

/* S13: bytes that did not verify never reach the driver, which would abort. */
static void damaged_entries_never_reach_the_driver(void **state)
{
	struct place place;
	char *native, *text;

	place_init(&place);
	set_all(&place, "DAMAGED=abort");
	native = run(&place, 0, "everything", "-DK=2");
	prime(&place, "-DK=2");
	damage(place.store);
	text = run(&place, 1, "everything", "-DK=2");
	same(native, text);
	assert_int_equal(calls(&place, "build-source"), 1);
	assert_int_equal(calls(&place, "create-binary"), 0);
	assert_int_equal(calls(&place, "damaged"), 0);
	assert_true(log_has(&place, "is damaged"));
	/* Of the entry, and of the order in which entries were used. */
	assert_int_equal(n_complaints(&place), 2);
	free(native);
	free(text);
	place_fini(&place);
}

/* The driver runs the first of PATH: in another environment, another. */
static void a_linker_from_another_folder_gets_no_entry(void **state)
{
	struct place place;
	char *linker, *path, *text;

	place_init(&place);
	linker = harness_path(place.directory, "kiln-test-linker");
	assert_true(asprintf(&path, "%s:/usr/bin:/bin", place.directory) > 0);
	prime(&place, "-DK=2");
	harness_write(linker, "#!/bin/sh\n", 10);
	assert_int_equal(chmod(linker, 0700), 0);
	set(&place, "PATH", path);
	text = run(&place, 1, "everything", "-DK=2");
	assert_int_equal(calls(&place, "create-binary"), 0);
	assert_int_equal(calls(&place, "build-source"), 1);
	assert_int_equal(counter(&place, KILN_COUNT_MISS_COMPILER), 1);
	free(text);
	free(path);
	free(linker);
	place_fini(&place);
}

/* S04, S05: the same driver from another build. */
static void a_driver_from_another_build_gets_no_entry(void **state)
{
	struct place place;
	char *text;

	place_init(&place);
	prime(&place, "-DK=2");
	set(&place, "OCL_ICD_VENDORS", getenv("KILN_TEST_ICD_TWIN"));
	text = run(&place, 1, "everything", "-DK=2");
	assert_int_equal(calls(&place, "create-binary"), 0);
	assert_int_equal(calls(&place, "build-source"), 1);
	assert_int_equal(counter(&place, KILN_COUNT_MISS_COMPILER), 1);
	free(text);
	place_fini(&place);
}

/* S03. */
static void other_options_get_no_entry(void **state)
{
	struct place place;
	char *text;

	place_init(&place);
	prime(&place, "-DK=2");
	text = run(&place, 1, "everything", "-DK=3");
	assert_int_equal(calls(&place, "create-binary"), 0);
	assert_true(counter(&place, KILN_COUNT_MISS_OPTIONS) >= 1);
	free(text);
	place_fini(&place);
}

static void make_file(struct place *place)
{
	harness_write(place->store, "not a directory", 15);
}

static void make_link(struct place *place)
{
	char *target = harness_path(place->directory, "target");

	assert_int_equal(mkdir(target, 0700), 0);
	assert_int_equal(symlink(target, place->store), 0);
	free(target);
}

static void make_open(struct place *place)
{
	assert_int_equal(mkdir(place->store, 0777), 0);
	assert_int_equal(chmod(place->store, 0777), 0);
}

static void no_home(struct place *place)
{
	set(place, "KILN_DIR", "");
	set(place, "HOME", "");
	set(place, "XDG_CACHE_HOME", "relative");
}

static void home_is_root(struct place *place)
{
	set(place, "KILN_DIR", "");
	set(place, "HOME", "/");
}

static void home_is_read_only(struct place *place)
{
	set(place, "KILN_DIR", "/proc/kiln");
}

static void wrong_size(struct place *place)
{
	set(place, "KILN_MAX_SIZE", "many");
}

static void size_of_two_lines(struct place *place)
{
	set(place, "KILN_MAX_SIZE", "\033[2J\nkiln[1]: all is well");
}

static void wrong_flag(struct place *place)
{
	set(place, "KILN_READONLY", "perhaps");
}

static void long_path(struct place *place)
{
	char path[6000];

	memset(path, 'x', sizeof(path));
	path[0] = '/';
	path[sizeof(path) - 1] = '\0';
	set(place, "KILN_DIR", path);
}

/* S28, S37 and wrong settings. */
static const struct trouble {
	const char *name;
	void (*make)(struct place *place);
	const char *in_log;
	unsigned n_notes; /* that are no complaints */
} troubles[] = {
	{ "the store is a file", make_file, "" },
	{ "the store is a symbolic link", make_link, "symbolic link" },
	{ "the store is open to all", make_open, "" },
	{ "no home", no_home, "directory: none", 1 },
	{ "a home that is the root", home_is_root, "directory: none" },
	{ "a home where nothing can be made", home_is_read_only, "", 1 },
	{ "a wrong size", wrong_size, "KILN_MAX_SIZE" },
	{ "a wrong size of two lines", size_of_two_lines, "KILN_MAX_SIZE" },
	{ "a wrong flag", wrong_flag, "KILN_READONLY" },
	{ "a path too long", long_path, "" },
};

static void trouble_costs_the_cache_and_one_line(void **state)
{
	const struct trouble *trouble = *state;
	struct place place;
	char *native, *text;

	place_init(&place);
	unsetenv("KILN_DIR");
	native = run(&place, 0, "everything", "-DK=2");
	trouble->make(&place);
	/* Not even a look-up: it would only cost time. */
	set(&place, "KILN_TRACE", "1");
	text = run(&place, 1, "everything", "-DK=2");
	same(native, text);
	assert_int_equal(calls(&place, "build-source"), 1);
	assert_true(log_has(&place, trouble->in_log));
	assert_false(log_has(&place, "opencl: "));
	assert_false(log_has(&place, "\033"));
	assert_int_equal(n_complaints(&place), 1 + trouble->n_notes);
	free(native);
	free(text);
	place_fini(&place);
}

static void a_wrong_setting_is_counted_in_the_store_that_is_there(void **state)
{
	struct place place;
	char *text;

	place_init(&place);
	prime(&place, "-DK=2");
	set(&place, "KILN_MAX_SIZE", "many");
	text = run(&place, 1, "everything", "-DK=2");
	assert_int_equal(calls(&place, "build-source"), 1);
	assert_int_equal(calls(&place, "create-binary"), 0);
	assert_int_equal(counter(&place, KILN_COUNT_MISS_UNAVAILABLE), 1);
	free(text);
	place_fini(&place);
}

static void a_store_that_vanishes_is_made_again(void **state)
{
	struct place place;
	char *native, *text;

	place_init(&place);
	native = run(&place, 0, "everything", "-DK=2");
	prime(&place, "-DK=2");
	harness_remove(place.store);
	text = run(&place, 1, "everything", "-DK=2");
	same(native, text);
	assert_int_equal(calls(&place, "build-source"), 1);
	free(native);
	free(text);
	place_fini(&place);
}

static void switched_off_it_does_nothing(void **state)
{
	struct place place;
	char *text;

	place_init(&place);
	prime(&place, "-DK=2");
	set(&place, "KILN_DISABLE", "1");
	text = run(&place, 1, "everything", "-DK=2");
	assert_int_equal(calls(&place, "create-binary"), 0);
	assert_int_equal(calls(&place, "build-source"), 1);
	free(text);
	place_fini(&place);
}

/* S38: a set-gid program, which only root can make here. */
static void in_a_set_gid_program_the_layer_is_inert(void **state)
{
	const char *program = getenv("KILN_TEST_CALLS_PROGRAM");
	struct statvfs fs;
	struct place place;
	char *copy, *data, *native, *text;
	size_t size;

	place_init(&place);
	copy = harness_path(place.directory, "program");
	data = harness_read(program, &size);
	assert_non_null(data);
	harness_write(copy, data, size);
	free(data);
	if (geteuid() || statvfs(copy, &fs) || (fs.f_flag & ST_NOSUID) ||
	    chown(copy, (uid_t)-1, 65534) || chmod(copy, 02755)) {
		free(copy);
		place_fini(&place);
		HARNESS_LEAVE_OUT("nobody can be another here");
	}
	native = run(&place, 0, "everything", "-DK=2");
	text = run_program(&place, copy, getenv("KILN_TEST_LAYER"),
			   "everything", "-DK=2");
	same(native, text);
	assert_int_equal(calls(&place, "build-source"), 1);
	assert_int_equal(access(place.store, F_OK), -1);
	assert_int_equal(access(place.log, F_OK), -1);
	free(native);
	free(text);
	free(copy);
	place_fini(&place);
}

static void a_read_only_store_is_read_and_not_written(void **state)
{
	struct place place;
	char *native, *text;

	place_init(&place);
	native = run(&place, 0, "everything", "-DK=2");
	prime(&place, "-DK=2");
	set(&place, "KILN_READONLY", "1");
	assert_int_equal(chmod(place.store, 0500), 0);
	text = run(&place, 1, "everything", "-DK=2");
	same(native, text);
	assert_int_equal(calls(&place, "create-binary"), 1);
	free(text);
	text = run(&place, 1, "binaries", "-DK=9");
	assert_non_null(strstr(text, "exit 0\n"));
	free(text);
	free(native);
	place_fini(&place);
}

/* ---- Loaders ------------------------------------------------------------- */

static cl_int CL_API_CALL nothing(void)
{
	return CL_SUCCESS;
}

static void *CL_API_CALL address_of(cl_platform_id platform, const char *name)
{
	static char place;

	return &place;
}

typedef cl_int CL_API_CALL init_fn(cl_uint n, const cl_icd_dispatch *next,
				   cl_uint *out_n,
				   const cl_icd_dispatch **out_table,
				   const void *properties);

/* A table of `n` calls, none of which is there to be read behind the last. */
static const cl_icd_dispatch *init_layer(void *layer, const char *name,
					 cl_uint n)
{
	init_fn *init = (init_fn *)dlsym(layer, name);
	void **next = calloc(n, sizeof(*next));
	const cl_icd_dispatch *table = NULL;
	cl_uint told = 0, i;

	assert_non_null(init);
	assert_non_null(next);
	for (i = 0; i < n; i++)
		next[i] =
			i == offsetof(
				     cl_icd_dispatch,
				     clGetExtensionFunctionAddressForPlatform) /
						sizeof(void *)
				? (void *)address_of
				: (void *)nothing;
	assert_int_equal(
		init(n, (const cl_icd_dispatch *)next, &told, &table, NULL),
		CL_SUCCESS);
	assert_true(told <= n);
	assert_true(told <= sizeof(cl_icd_dispatch) / sizeof(void *));
	assert_non_null(table);
	free(next);
	return table;
}

/* What the loader's table has not, the driver's own function does. */
static void check_short_table(void *layer)
{
	const cl_uint upto_clone =
		offsetof(cl_icd_dispatch, clCloneKernel) / sizeof(void *);
	const cl_icd_dispatch *table =
		init_layer(layer, "clInitLayer", upto_clone);
	cl_platform_id platform = (cl_platform_id)&table;

	assert_ptr_equal(table->clGetExtensionFunctionAddressForPlatform(
				 platform, "clCloneKernel"),
			 address_of(platform, "clCloneKernel"));
	assert_ptr_equal(table->clGetExtensionFunctionAddressForPlatform(
				 platform, "clBuildProgram"),
			 (void *)table->clBuildProgram);
}

/* As a loader does that finds it among the system's layers and in
   OPENCL_LAYERS. */
static void check_loaded_twice(void *layer, const cl_icd_dispatch *first)
{
	const cl_uint n = sizeof(cl_icd_dispatch) / sizeof(void *);
	init_fn *init = (init_fn *)dlsym(layer, "clInitLayerWithProperties");
	const cl_icd_dispatch *second = NULL;
	const cl_icd_dispatch before = *first;
	cl_uint told = 0, i;

	assert_int_equal(init(n, first, &told, &second, NULL), CL_SUCCESS);
	for (i = 0; i < told; i++)
		assert_null(((void *const *)second)[i]);
	assert_memory_equal(first, &before, sizeof(before));
	assert_ptr_equal(
		first->clGetExtensionFunctionAddressForPlatform(
			(cl_platform_id)&before, "clAddCommentINTEL"),
		address_of((cl_platform_id)&before, "clAddCommentINTEL"));
}

static void both_loaders_find_their_entry_points(void **state)
{
	void *layer = dlopen(getenv("KILN_TEST_LAYER"), RTLD_LAZY);
	const cl_uint all = sizeof(cl_icd_dispatch) / sizeof(void *);
	const cl_uint upto_kernel =
		offsetof(cl_icd_dispatch, clCreateKernel) / sizeof(void *);
	cl_int (*told)(cl_uint what, size_t size, void *value, size_t *out_n);
	const cl_icd_dispatch *table;
	cl_uint version = 0;
	size_t size = 0;
	char name[8];

	assert_non_null(layer);
	told = (cl_int(*)(cl_uint, size_t, void *, size_t *))dlsym(
		layer, "clGetLayerInfo");
	assert_int_equal(told(0x4240, sizeof(version), &version, &size), 0);
	assert_int_equal(version, 100);
	assert_int_equal(told(0x4241, sizeof(name), name, &size), 0);
	assert_string_equal(name, "kiln");
	assert_int_equal(told(0x4241, 1, name, NULL), CL_INVALID_VALUE);
	assert_int_equal(told(1, 0, NULL, &size), CL_INVALID_VALUE);

	table = init_layer(layer, "clInitLayer", upto_kernel);
	assert_non_null(table->clBuildProgram);
	assert_null(table->clCreateKernel);
	check_short_table(layer);
	table = init_layer(layer, "clInitLayerWithProperties", all + 1);
	assert_non_null(table->clCreateKernel);
	assert_null(table->clEnqueueNDRangeKernel);
	assert_null(table->clSetKernelArg);
	assert_null(table->clCreateBuffer);
	check_loaded_twice(layer, table);
	assert_non_null(dlsym(layer, "clDeinitLayer"));
	dlclose(layer);
}

/* ---- Capturing ----------------------------------------------------------- */

static unsigned n_jobs(const struct place *place)
{
	char *spool = harness_path(place->store, "spool");
	DIR *dir = opendir(spool);
	struct dirent *entry;
	unsigned n = 0;

	while (dir && (entry = readdir(dir)))
		n += strstr(entry->d_name, ".job") != NULL;
	if (dir)
		closedir(dir);
	free(spool);
	return n;
}

static void a_miss_leaves_a_job_and_fetches_nothing(void **state)
{
	struct place place;
	char *text;

	place_init(&place);
	text = run(&place, 1, "brief", "-DK=2");
	assert_non_null(strstr(text, "exit 0\n"));
	assert_int_equal(n_jobs(&place), 1);
	assert_int_equal(counter(&place, KILN_COUNT_JOBS_WRITTEN), 1);
	assert_int_equal(counter(&place, KILN_COUNT_MISS_NEW), 1);
	assert_int_equal(counter(&place, KILN_COUNT_MISSES), 1);
	assert_int_equal(counter(&place, KILN_COUNT_BUILDS), 1);
	assert_int_equal(calls(&place, "fetch"), 0);
	assert_int_equal(calls(&place, "binaries"), 0);
	free(text);
	place_fini(&place);
}

static void forget_jobs(const struct place *place)
{
	char *spool = harness_path(place->store, "spool");

	harness_remove(spool);
	free(spool);
}

static struct kiln_metadata *with_launches(const struct kiln_blob *metadata)
{
	struct kiln_metadata *full = kiln_metadata_new();
	const void *kernels;
	size_t size;

	kiln_metadata_add_u64(full, KILN_META_STAGE, KI_CL_STAGE_FULL);
	if (!kiln_metadata_find(kiln_blob_data(metadata),
				kiln_blob_size(metadata), KILN_META_KERNELS,
				&kernels, &size))
		kiln_metadata_add(full, KILN_META_KERNELS, kernels, size);
	return full;
}

/* What a rebuild made is made again once somebody has launched it.  The stand-in's
   binaries are as good whenever they are fetched. */
static void a_hit_asks_for_a_better_entry(const char *driver, unsigned n)
{
	struct place place;
	uint64_t n_hits;
	char *text;

	place_init(&place);
	if (driver) {
		set(&place, "OCL_ICD_VENDORS", driver);
		set(&place, "POCL_CACHE_DIR", place.directory);
	}
	text = run(&place, 1, "binaries", "-DK=2");
	if (driver && strstr(text, "exit 2\n")) {
		free(text);
		place_fini(&place);
		HARNESS_LEAVE_OUT("no such driver here");
	}
	assert_non_null(strstr(text, "exit 0\n"));
	free(text);
	forget_jobs(&place);
	for (size_t i = 0; i < 2; i++) {
		free(run(&place, 1, "brief", "-DK=2"));
		assert_int_equal(counter(&place, KILN_COUNT_HITS_STORE), i + 1);
		assert_int_equal(n_jobs(&place), n);
	}
	forget_jobs(&place);
	put_anew(&place, with_launches);
	n_hits = counter(&place, KILN_COUNT_HITS_STORE);
	free(run(&place, 1, "brief", "-DK=2"));
	assert_int_equal(counter(&place, KILN_COUNT_HITS_STORE), n_hits + 1);
	assert_int_equal(n_jobs(&place), 0);
	place_fini(&place);
}

static void a_hit_leaves_no_job_where_fetching_is_cheap(void **state)
{
	a_hit_asks_for_a_better_entry(NULL, 0);
}

static void a_hit_of_an_early_entry_leaves_a_job(void **state)
{
	a_hit_asks_for_a_better_entry("pocl.icd", 1);
}

static void a_failed_build_leaves_no_job(void **state)
{
	struct place place;
	char *text;

	place_init(&place);
	text = run(&place, 1, "brief", "-DK=nowhere");
	assert_int_equal(n_jobs(&place), 0);
	assert_int_equal(counter(&place, KILN_COUNT_BUILD_FAILURES), 1);
	free(text);
	place_fini(&place);
}

static void jobs_can_be_forbidden(void **state)
{
	struct place place;
	char *text;

	place_init(&place);
	set(&place, "KILN_SPOOL", "0");
	text = run(&place, 1, "brief", "-DK=2");
	assert_non_null(strstr(text, "exit 0\n"));
	assert_int_equal(n_jobs(&place), 0);
	free(text);
	place_fini(&place);
}

static void a_full_spool_refuses_and_is_counted(void **state)
{
	struct place place;
	char *spool, *job, *text;

	place_init(&place);
	spool = harness_path(place.store, "spool");
	job = harness_path(spool, "0123456789abcdef0123456789abcdef.job");
	assert_int_equal(mkdir(place.store, 0700), 0);
	assert_int_equal(mkdir(spool, 0700), 0);
	harness_write(job, "", 0);
	assert_int_equal(truncate(job, 64 << 20), 0);
	text = run(&place, 1, "brief", "-DK=2");
	assert_non_null(strstr(text, "exit 0\n"));
	assert_int_equal(n_jobs(&place), 1);
	assert_int_equal(counter(&place, KILN_COUNT_JOBS_REFUSED), 1);
	assert_int_equal(counter(&place, KILN_COUNT_JOBS_WRITTEN), 0);
	free(text);
	free(job);
	free(spool);
	place_fini(&place);
}

static void an_idle_program_is_fetched_from_in_the_background(void **state)
{
	struct place place;
	char *native, *text;

	place_init(&place);
	native = run(&place, 0, "everything", "-DK=2");
	text = run(&place, 1, "idle", "-DK=2");
	assert_non_null(strstr(text, "exit 0\n"));
	assert_int_equal(calls(&place, "binaries"), 1);
	assert_int_equal(n_jobs(&place), 0);
	free(text);
	text = run(&place, 1, "everything", "-DK=2");
	same(native, text);
	assert_int_equal(calls(&place, "build-source"), 0);
	free(text);
	free(native);
	place_fini(&place);
}

/* S42: a fetch takes two seconds, the end of the program does not. */
static void a_program_that_ends_does_not_wait_for_a_fetch(void **state)
{
	struct place place;
	char *text;

	place_init(&place);
	set_all(&place, "FETCH_MS=20000");
	text = run(&place, 1, "hurried", "-DK=2");
	assert_non_null(strstr(text, "exit 0\n"));
	assert_int_equal(calls(&place, "fetch"), 1);
	assert_int_equal(calls(&place, "binaries"), 0);
	free(text);
	place_fini(&place);
}

/* A slow fetch ends fetching in the background for its driver. */
static void a_slow_fetch_is_the_last(void **state)
{
	struct place place;
	char *text;

	place_init(&place);
	set_all(&place, "FETCH_MS=30");
	text = run(&place, 1, "idle-twice", "-DK=2");
	assert_non_null(strstr(text, "exit 0\n"));
	assert_int_equal(calls(&place, "build-source"), 2);
	assert_int_equal(calls(&place, "binaries"), 1);
	free(text);
	place_fini(&place);
}

/* What is fetched from a program that is built otherwise meanwhile is of
   neither build. */
static void a_fetch_that_a_build_overtakes_is_kept_nowhere(void **state)
{
	static const char *const scripts[] = { "overtaken",
					       "overtaken-in-a-thread" };
	static const char options[] = "-DK=2 -cl-kernel-arg-info";
	struct place place;
	char *native, *text;
	size_t i;

	for (i = 0; i < 2; i++) {
		place_init(&place);
		native = run(&place, 0, "everything", options);
		set_all(&place, "FETCH_MS=400");
		text = run(&place, 1, scripts[i], options);
		assert_non_null(strstr(text, "exit 0\n"));
		assert_int_equal(calls(&place, "build-source"), 2);
		assert_int_equal(calls(&place, "binaries"), 1);
		free(text);
		set_all(&place, "FETCH_MS=0");
		text = run(&place, 1, "everything", options);
		same(native, text);
		free(text);
		free(native);
		place_fini(&place);
	}
}

/* Equal to what it was is not what it was all the time. */
static void what_is_included_is_the_same_all_the_time_or_not_kept(void **state)
{
	static const struct {
		const char *script;
		unsigned n_builds;
	} runs[] = { { "included-in-doubt", 1 },
		     { "included", 1 },
		     { "included-in-doubt", 0 } };
	struct place place;
	char *header, *options, *text;
	size_t i;

	place_init(&place);
	header = harness_path(place.directory, "k.h");
	harness_write(header, "#define K 4\n", 12);
	assert_true(asprintf(&options, "-I%s", place.directory) > 0);
	for (i = 0; i < 3; i++) {
		text = run(&place, 1, runs[i].script, options);
		assert_non_null(strstr(text, "exit 0\n"));
		assert_int_equal(calls(&place, "build-source"),
				 runs[i].n_builds);
		free(text);
	}
	free(options);
	free(header);
	place_fini(&place);
}

static void every_look_up_is_traced_in_one_line(void **state)
{
	struct place place;
	char *text;

	place_init(&place);
	set(&place, "KILN_TRACE", "1");
	text = run(&place, 1, "brief", "-DK=2");
	free(text);
	assert_true(log_has(&place, "miss: new key"));
	prime(&place, "-DK=2");
	unlink(place.log);
	text = run(&place, 1, "brief", "-DK=2");
	free(text);
	assert_true(log_has(&place, " hit "));
	place_fini(&place);
}

/* ---- Why a build was not found ------------------------------------------- */

/* Write the source that `from-file` builds. */
static void set_source(struct place *place, const char *text)
{
	char *path = harness_path(place->directory, "source.cl");

	harness_write(path, text, strlen(text));
	set(place, "KILN_TEST_SOURCE", path);
	free(path);
}

static void set_part(struct place *place, const char *text)
{
	char *path = harness_path(place->directory, "part.h");

	harness_write(path, text, strlen(text));
	free(path);
}

static void change_include(struct place *place)
{
	set_part(place, "#define PART 6\n");
}

static void other_driver(struct place *place)
{
	set(place, "OCL_ICD_VENDORS", getenv("KILN_TEST_ICD_TWIN"));
}

static void damage_all(struct place *place)
{
	damage(place->store);
}

#define KERNEL "__kernel void scale(__global int *out)\n{ out[0] = PART; }\n"
#define SOURCE "#include \"part.h\"\n" KERNEL

static const struct reason {
	const char *name;
	enum kiln_counter outcome;
	const char *source;  /* NULL: as the first time */
	const char *options; /* NULL: none more */
	const char *switches;
	void (*change)(struct place *place);
	int is_looked_up;
} reasons[] = {
	{ "nothing has changed: a hit", KILN_COUNT_HITS_STORE, NULL, NULL, NULL,
	  NULL, 1 },
	{ "another source: a new key", KILN_COUNT_MISS_NEW, SOURCE "\n", NULL,
	  NULL, NULL, 1 },
	{ "the compiler has changed", KILN_COUNT_MISS_COMPILER, NULL, NULL,
	  NULL, other_driver, 1 },
	{ "another device", KILN_COUNT_MISS_DEVICE, NULL, NULL, "NAMES=other",
	  NULL, 1 },
	{ "other options", KILN_COUNT_MISS_OPTIONS, NULL, " -DX", NULL, NULL,
	  1 },
	{ "an include has changed", KILN_COUNT_MISS_INCLUDE, NULL, NULL, NULL,
	  change_include, 1 },
	{ "the environment has changed", KILN_COUNT_MISS_ENVIRONMENT, NULL,
	  NULL, "CODE=1", NULL, 1 },
	{ "the entry is damaged", KILN_COUNT_MISS_DAMAGED, NULL, NULL, NULL,
	  damage_all, 1 },
	{ "the driver refuses the binary", KILN_COUNT_MISS_REFUSED, NULL, NULL,
	  "REFUSE_BINARIES=1", NULL, 1 },
	{ "an include that cannot be told", KILN_COUNT_MISS_UNRESOLVED,
	  "#define NAME \"part.h\"\n#include NAME\n" KERNEL, NULL, NULL, NULL,
	  0 },
	{ "a time macro", KILN_COUNT_MISS_TIME_MACRO,
	  "#ifdef NEVER\n__TIME__\n#endif\n" SOURCE, NULL, NULL, NULL, 0 },
	{ "a directive", KILN_COUNT_MISS_DIRECTIVE,
	  "#ifdef NEVER\n#import \"x\"\n#endif\n" SOURCE, NULL, NULL, NULL, 0 },
};

static int is_reason(unsigned c)
{
	return !strncmp(kiln_counter_name(c), "miss_", 5);
}

static void all_counters(const struct place *place,
			 uint64_t out[KILN_N_COUNTERS])
{
	unsigned c;

	for (c = 0; c < KILN_N_COUNTERS; c++)
		out[c] = counter(place, (enum kiln_counter)c);
}

/* What a second run adds: one reason, once, and all that goes with it. */
static void each_outcome_is_counted_once(void **state)
{
	const struct reason *reason = *state;
	const unsigned outcome = reason->outcome;
	const unsigned is_hit = outcome == KILN_COUNT_HITS_STORE;
	uint64_t before[KILN_N_COUNTERS], after[KILN_N_COUNTERS];
	struct place place;
	char *text, *options;
	unsigned c;

	place_init(&place);
	assert_true(asprintf(&options, "-I%s", place.directory) > 0);
	set_source(&place, SOURCE);
	set_part(&place, "#define PART 5\n");
	text = run(&place, 1, "from-file", options);
	assert_non_null(strstr(text, "build: 0\n"));
	free(text);
	free(options);
	all_counters(&place, before);
	assert_int_equal(before[KILN_COUNT_MISS_NEW], 1);
	assert_int_equal(before[KILN_COUNT_MISSES], 1);
	assert_int_equal(before[KILN_COUNT_SAVED_NS], 0);

	if (reason->source)
		set_source(&place, reason->source);
	if (reason->change)
		reason->change(&place);
	set_all(&place, reason->switches);
	assert_true(asprintf(&options, "-I%s%s", place.directory,
			     reason->options ? reason->options : "") > 0);
	text = run(&place, 1, "from-file", options);
	assert_non_null(strstr(text, "build: 0\n"));
	all_counters(&place, after);
	for (c = 0; c < KILN_N_COUNTERS; c++)
		if (is_reason(c))
			assert_int_equal(after[c] - before[c], c == outcome);
	assert_int_equal(after[KILN_COUNT_HITS_STORE], is_hit);
	assert_int_equal(after[KILN_COUNT_SAVED_NS] > 0, is_hit);
	assert_int_equal(after[KILN_COUNT_BUILDS], 2 - is_hit);
	assert_int_equal(after[KILN_COUNT_MISSES],
			 1 + (reason->is_looked_up && !is_hit));
	free(text);
	free(options);
	place_fini(&place);
}

/* One of its links is of a program that is built already. */
static void a_link_of_what_is_no_object_is_counted(void **state)
{
	struct place place;

	place_init(&place);
	free(run(&place, 1, "linked", "-DK=2"));
	assert_true(counter(&place, KILN_COUNT_MISS_UNSUPPORTED) >= 1);
	place_fini(&place);
}

static void an_unknown_layer_below_is_counted(void **state)
{
	struct place place;
	char *layers, *text;

	place_init(&place);
	assert_true(asprintf(&layers, "%s:%s", getenv("KILN_TEST_ICD_TWIN"),
			     getenv("KILN_TEST_LAYER")) > 0);
	text = run_program(&place, getenv("KILN_TEST_CALLS_PROGRAM"), layers,
			   "brief", "-DK=2");
	assert_int_equal(counter(&place, KILN_COUNT_MISS_UNKNOWN_LAYER), 1);
	assert_int_equal(counter(&place, KILN_COUNT_MISSES), 0);
	assert_int_equal(counter(&place, KILN_COUNT_BUILDS), 1);
	free(text);
	free(layers);
	place_fini(&place);
}

/* A store that refuses when it is full, and is. */
static void fill_up(const struct place *place)
{
	static unsigned char bytes[65536];
	struct kiln_options options;
	enum kiln_status status = KILN_OK;
	struct kiln *kiln;
	unsigned i;
	char *url;

	assert_true(asprintf(&url, "log:%s", place->store) > 0);
	kiln_options_init(&options);
	options.store_url = url;
	options.store_bytes_max = 4 << 20;
	options.flags = KILN_OPEN_REFUSE_FULL;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	for (i = 0; i < 1000 && !status; i++) {
		struct kiln_key *key = kiln_key_new();

		kiln_key_add(key, "number", &i, sizeof(i));
		assert_int_equal(kiln_key_finish(key), KILN_OK);
		status = kiln_put(kiln, key, bytes, sizeof(bytes) >> (i / 100),
				  NULL, 0);
		kiln_key_free(key);
		if (status == KILN_E_FULL && i < 900) {
			i = (i / 100 + 1) * 100;
			status = KILN_OK;
		}
	}
	assert_int_equal(kiln_store_counters_zero(kiln), KILN_OK);
	kiln_close(kiln);
	free(url);
}

/* A build that never began takes nothing from the one before. */
static void a_refused_build_does_not_lose_the_capture(void **state)
{
	struct place place;
	char *native, *cold, *warm;

	place_init(&place);
	set(&place, "KILN_SPOOL", "0");
	native = run(&place, 0, "refused-then-fetched", "-DK=2");
	cold = run(&place, 1, "refused-then-fetched", "-DK=2");
	assert_string_equal(cold, native);
	assert_int_equal(counter(&place, KILN_COUNT_MISS_NEW), 1);
	warm = run(&place, 1, "refused-then-fetched", "-DK=2");
	assert_string_equal(warm, native);
	assert_int_equal(counter(&place, KILN_COUNT_HITS_STORE), 1);
	free(native);
	free(cold);
	free(warm);
	place_fini(&place);
}

static void a_full_store_is_counted(void **state)
{
	struct place place;
	char *text;

	place_init(&place);
	assert_int_equal(mkdir(place.store, 0700), 0);
	fill_up(&place);
	text = run(&place, 1, "binaries", "-DK=2");
	assert_non_null(strstr(text, "exit 0\n"));
	assert_true(counter(&place, KILN_COUNT_MISS_FULL) > 0);
	assert_int_equal(counter(&place, KILN_COUNT_MISS_FULL),
			 counter(&place, KILN_COUNT_PUTS_DROPPED));
	assert_int_equal(counter(&place, KILN_COUNT_MISS_NEW), 2);
	assert_true(log_has(&place, "takes no entry: KILN_E_FULL"));
	assert_int_equal(n_complaints(&place), 1);
	free(text);
	place_fini(&place);
}

/* All of the store's locks are held for the length of the run. */
/* Whatever else is put would need a new segment. */
static void fill_segment(const struct place *place)
{
	static const size_t sizes[] = { 65536, 4096, 256 };
	static char zeros[65536];
	struct kiln_options options;
	struct kiln *kiln;
	uint64_t n = 0;
	char *url;
	size_t i;

	assert_true(asprintf(&url, "log:%s", place->store) > 0);
	kiln_options_init(&options);
	options.store_url = url;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	for (i = 0; i < 3; i++) {
		enum kiln_status status = KILN_OK;

		while (status == KILN_OK) {
			struct kiln_key *key = kiln_key_new();

			n++;
			kiln_key_add(key, "number", &n, sizeof(n));
			assert_int_equal(kiln_key_finish(key), KILN_OK);
			status = kiln_put(kiln, key, zeros, sizes[i], NULL, 0);
			kiln_key_free(key);
		}
		assert_int_equal(status, KILN_E_TIMEOUT);
	}
	kiln_close(kiln);
	free(url);
}

static void a_busy_store_is_counted(void **state)
{
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct place place;
	uint64_t n_busy, n_dropped;
	char *text, *path;
	int fd;

	place_init(&place);
	prime(&place, "-DK=2");
	path = harness_path(place.store, "kiln.lock");
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_OFD_SETLK, &whole), 0);
	fill_segment(&place);
	n_busy = counter(&place, KILN_COUNT_MISS_BUSY);
	n_dropped = counter(&place, KILN_COUNT_PUTS_DROPPED);
	text = run(&place, 1, "binaries", "-DK=9");
	assert_non_null(strstr(text, "exit 0\n"));
	assert_int_equal(counter(&place, KILN_COUNT_MISS_BUSY), n_busy + 1);
	assert_int_equal(counter(&place, KILN_COUNT_PUTS_DROPPED),
			 n_dropped + 1);
	close(fd);
	free(text);
	free(path);
	place_fini(&place);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest others[] = {
		cmocka_unit_test(
			a_refused_binary_is_dropped_and_the_source_built),
		cmocka_unit_test(a_binary_without_memory_is_kept),
		cmocka_unit_test(
			an_entry_without_kernels_serves_only_who_does_not_ask),
		cmocka_unit_test(damaged_entries_never_reach_the_driver),
		cmocka_unit_test(a_driver_from_another_build_gets_no_entry),
		cmocka_unit_test(a_linker_from_another_folder_gets_no_entry),
		cmocka_unit_test(other_options_get_no_entry),
		cmocka_unit_test(
			a_wrong_setting_is_counted_in_the_store_that_is_there),
		cmocka_unit_test(a_store_that_vanishes_is_made_again),
		cmocka_unit_test(switched_off_it_does_nothing),
		cmocka_unit_test(in_a_set_gid_program_the_layer_is_inert),
		cmocka_unit_test(a_read_only_store_is_read_and_not_written),
		cmocka_unit_test(both_loaders_find_their_entry_points),
		cmocka_unit_test(a_miss_leaves_a_job_and_fetches_nothing),
		cmocka_unit_test(a_hit_leaves_no_job_where_fetching_is_cheap),
		cmocka_unit_test(a_failed_build_leaves_no_job),
		cmocka_unit_test(jobs_can_be_forbidden),
		cmocka_unit_test(a_full_spool_refuses_and_is_counted),
		cmocka_unit_test(
			an_idle_program_is_fetched_from_in_the_background),
		cmocka_unit_test(a_program_that_ends_does_not_wait_for_a_fetch),
		cmocka_unit_test(a_slow_fetch_is_the_last),
		cmocka_unit_test(
			a_fetch_that_a_build_overtakes_is_kept_nowhere),
		cmocka_unit_test(
			what_is_included_is_the_same_all_the_time_or_not_kept),
		cmocka_unit_test(every_look_up_is_traced_in_one_line),
		cmocka_unit_test(a_link_of_what_is_no_object_is_counted),
		cmocka_unit_test(an_unknown_layer_below_is_counted),
		cmocka_unit_test(a_refused_build_does_not_lose_the_capture),
		cmocka_unit_test(a_full_store_is_counted),
		cmocka_unit_test(a_busy_store_is_counted),
	};
	enum {
		N_ROWS = sizeof(rows) / sizeof(rows[0]),
		N_POCL_ROWS = sizeof(pocl_rows) / sizeof(pocl_rows[0]),
		N_TROUBLES = sizeof(troubles) / sizeof(troubles[0]),
		N_REASONS = sizeof(reasons) / sizeof(reasons[0]),
		N_OTHERS = sizeof(others) / sizeof(others[0]),
	};
	struct CMUnitTest tests[N_ROWS + N_TROUBLES + N_REASONS + N_OTHERS];
	struct CMUnitTest pocl_tests[N_POCL_ROWS + 1];
	size_t n = 0, i;

	for (i = 0; i < N_POCL_ROWS; i++)
		pocl_tests[i] = (struct CMUnitTest){
			.name = pocl_rows[i].name,
			.test_func = on_pocl_too,
			.initial_state = (void *)&pocl_rows[i],
		};
	pocl_tests[i] = (struct CMUnitTest)cmocka_unit_test(
		a_hit_of_an_early_entry_leaves_a_job);
	if (argc > 1 && !strcmp(argv[1], "pocl"))
		return cmocka_run_group_tests_name("opencl-layer-pocl",
						   pocl_tests, NULL, NULL);
	for (i = 0; i < N_ROWS; i++)
		tests[n++] = (struct CMUnitTest){
			.name = rows[i].name,
			.test_func =
				a_program_cannot_tell_cold_from_warm_from_native,
			.initial_state = (void *)&rows[i],
		};
	for (i = 0; i < N_TROUBLES; i++)
		tests[n++] = (struct CMUnitTest){
			.name = troubles[i].name,
			.test_func = trouble_costs_the_cache_and_one_line,
			.initial_state = (void *)&troubles[i],
		};
	for (i = 0; i < N_REASONS; i++)
		tests[n++] = (struct CMUnitTest){
			.name = reasons[i].name,
			.test_func = each_outcome_is_counted_once,
			.initial_state = (void *)&reasons[i],
		};
	for (i = 0; i < N_OTHERS; i++)
		tests[n++] = others[i];
	return cmocka_run_group_tests_name("opencl-layer", tests, NULL, NULL);
}
