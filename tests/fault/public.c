/* SPDX-License-Identifier: MIT */

/*
 * S22, S29, S39, S44.  public KIND|none [OPERATION] [--all]: the public calls on
 * a kiln with a store of this kind, or without one, with every allocation and
 * every system call of them failed in turn, once and for good.  Whatever fails,
 * kiln_get_or_build() hands out the right bytes; the others answer rightly or
 * say why not, and count.  Nothing is lost or left behind.
 *
 * --all leaves no call out.
 */

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/inspect.h>

#include "core/config.h"
#include "fault/operations.h"

#define N_OPERATIONS_MAX 32
#define NEW_KEY		 100
#define VALUE_SIZE	 3000

static const char *kind_name;
static const struct kind *kind; /* NULL: without a store */
static int all;

static const int errors[] = { -ENOMEM, -EIO,	-ENOSPC, -EINTR,
			      -EMFILE, -EDQUOT, -EROFS,	 -ENOLCK,
			      -EACCES, -EPERM,	-EFBIG,	 FAULT_SHORT };

#define N_ERRORS (sizeof(errors) / sizeof(errors[0]))

struct public_scene {
	struct fault fault;
	const struct public_operation *operation;
	char *url;
	struct kiln *kiln;
	struct kiln_key *key; /* 1: there; NEW_KEY: not */
	struct kiln_key *new_key;
	/* What a build hands out: what is there, and what is new. */
	struct kiln_blob *built_again, *built;
	struct kiln_blob *blob; /* what came */
	enum kiln_status status;
};

struct public_operation {
	const char *name;
	int opens;
	int must_succeed;
	enum kiln_status expected; /* when nothing fails */
	void (*run)(struct public_scene *scene);
	unsigned expected_key; /* whose value comes */
	int removes;	       /* entries may be gone */
};

static void fail_public(const struct public_scene *scene, const char *what)
{
	fail_msg("%s, error %d, call %u (%s, %s), status %s: %s",
		 scene->operation->name, scene->fault.err, scene->fault.n,
		 scene->fault.fired, scene->fault.lasting ? "lasting" : "once",
		 kiln_status_name(scene->status), what);
}

/* ---- Operations ------------------------------------------------------------------ */

static enum kiln_status open_public(const char *url, struct kiln **out_kiln)
{
	struct kiln_options options;

	kiln_options_init(&options);
	options.store_url = url;
	options.store_bytes_max = BOUND;
	options.lock_timeout_ms = 1000;
	options.application = "test";
	return kiln_open(&options, out_kiln);
}

static void run_open(struct public_scene *scene)
{
	scene->status = open_public(scene->url, &scene->kiln);
}

/* Nobody is there to ask for what is on servers. */
static void run_open_far(struct public_scene *scene)
{
	struct kiln_options options;

	kiln_options_init(&options);
	options.store_url = scene->url;
	options.store_bytes_max = BOUND;
	options.lock_timeout_ms = 1000;
	options.packs = "/nowhere.pack,http://a/b.pack#timeout=5";
	options.remote = "redis://a,redis://b#no-lease http://c/d#timeout=5";
	scene->status = kiln_open(&options, &scene->kiln);
}

static void run_settings(struct public_scene *scene)
{
	static const char *const environment[] = {
		"KILN_DIR=/nowhere",
		"KILN_PACKS=/nowhere.pack,http://a/b.pack#timeout=5",
		"KILN_REMOTE=redis://a,redis://b#no-lease",
		NULL,
	};
	const struct ki_config_sources sources = {
		.environment = environment,
		.system_file = "/nowhere/kiln.conf",
		.system_directory = "/nowhere",
	};
	struct kiln_config *config = NULL;
	char message[256];

	scene->status =
		ki_config_load(&sources, &config, message, sizeof(message));
	kiln_config_free(config);
}

static void run_get(struct public_scene *scene)
{
	scene->status = kiln_get(scene->kiln, scene->key, &scene->blob);
}

static void run_get_new(struct public_scene *scene)
{
	scene->status = kiln_get(scene->kiln, scene->new_key, &scene->blob);
}

static void run_get_entry(struct public_scene *scene)
{
	struct kiln_blob *metadata;

	scene->status = kiln_get_entry(scene->kiln, scene->key, &scene->blob,
				       &metadata);
	if (!scene->status)
		kiln_blob_unref(metadata);
}

/* Needs no memory: all of it was made before. */
static void build(const struct kiln_key *key, void *arg,
		  struct kiln_build_result *result)
{
	struct public_scene *scene = arg;

	result->blob = kiln_blob_ref(key == scene->key ? scene->built_again
						       : scene->built);
}

static void get_or_build(struct public_scene *scene, struct kiln_key *key)
{
	struct kiln_build_result result;

	kiln_build_result_init(&result);
	scene->status =
		kiln_get_or_build(scene->kiln, key, build, scene, &result);
	if (!scene->status)
		scene->blob = kiln_blob_ref(result.blob);
	kiln_build_result_fini(&result);
}

static void run_build(struct public_scene *scene)
{
	get_or_build(scene, scene->new_key);
}

static void run_find(struct public_scene *scene)
{
	get_or_build(scene, scene->key);
}

static void put(struct public_scene *scene, struct kiln_key *key,
		unsigned flags)
{
	scene->status = kiln_put(scene->kiln, key, kiln_blob_data(scene->built),
				 kiln_blob_size(scene->built), NULL, flags);
}

static void run_put(struct public_scene *scene)
{
	put(scene, scene->new_key, 0);
}

static void run_replace(struct public_scene *scene)
{
	put(scene, scene->new_key, KILN_PUT_REPLACE);
}

static void run_remove(struct public_scene *scene)
{
	scene->status = kiln_remove(scene->kiln, scene->key);
}

static void run_trim(struct public_scene *scene)
{
	kiln_trim(scene->kiln, 0);
	scene->status = KILN_OK;
}

static void run_wipe(struct public_scene *scene)
{
	scene->status = kiln_wipe(scene->kiln);
}

static void run_list(struct public_scene *scene)
{
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;

	while (!(scene->status = kiln_list(scene->kiln, &cursor, &entry)))
		kiln_entry_fini(&entry);
}

static void run_verify(struct public_scene *scene)
{
	struct kiln_verify_report report;

	scene->status = kiln_verify(scene->kiln, KILN_VERIFY_REPAIR, NULL, NULL,
				    &report);
}

static void run_info(struct public_scene *scene)
{
	struct kiln_store_info info;

	scene->status = kiln_store_info(scene->kiln, &info);
}

static void run_stats(struct public_scene *scene)
{
	struct kiln_stats stats;

	kiln_stats_init(&stats);
	scene->status = kiln_stats(scene->kiln, &stats);
}

static void run_counters(struct public_scene *scene)
{
	static struct kiln_store_counters counters;

	kiln_count(scene->kiln, KILN_COUNT_JOBS_DONE, 1);
	scene->status = kiln_store_counters(scene->kiln, &counters);
}

static void run_close(struct public_scene *scene)
{
	kiln_count(scene->kiln, KILN_COUNT_JOBS_DONE, 1);
	kiln_close(scene->kiln);
	scene->kiln = NULL;
	scene->status = KILN_OK;
}

static void run_key(struct public_scene *scene)
{
	struct kiln_key *key = kiln_key_new(), *again;
	size_t size;
	const void *record;

	kiln_key_add_string(key, "family", "numbered");
	kiln_key_add_digest(key, "source", "source", 6);
	kiln_key_add_absent(key, "include");
	scene->status = kiln_key_finish(key);
	if (!scene->status) {
		record = kiln_key_record(key, &size);
		scene->status = kiln_key_from_record(record, size, &again);
		if (!scene->status)
			kiln_key_free(again);
	}
	kiln_key_free(key);
}

static void run_metadata(struct public_scene *scene)
{
	struct kiln_metadata *metadata = kiln_metadata_new(), *again;
	const void *bytes;
	size_t size;

	kiln_metadata_add_u64(metadata, KILN_META_CREATED, 1);
	kiln_metadata_add_string(metadata, KILN_META_OPTIONS, "-O2");
	scene->status = kiln_metadata_bytes(metadata, &bytes, &size);
	if (!scene->status) {
		scene->status = kiln_metadata_from_bytes(bytes, size, &again);
		if (!scene->status)
			kiln_metadata_free(again);
	}
	kiln_metadata_free(metadata);
}

/* clang-format off */
static const struct public_operation public_operations[] = {
	{ "open", 1, 0, KILN_OK, run_open, 0, 0 },
	{ "open_with_packs_and_servers", 1, 0, KILN_OK, run_open_far, 0, 0 },
	{ "settings", 0, 0, KILN_OK, run_settings, 0, 0 },
	{ "get", 0, 0, KILN_OK, run_get, 1, 0 },
	{ "get_what_is_not_there", 0, 0, KILN_MISS, run_get_new, 0, 0 },
	{ "get_entry", 0, 0, KILN_OK, run_get_entry, 1, 0 },
	{ "get_or_build_what_is_there", 0, 1, KILN_OK, run_find, 1, 0 },
	{ "get_or_build_what_is_new", 0, 1, KILN_OK, run_build, NEW_KEY, 0 },
	{ "put", 0, 0, KILN_OK, run_put, 0, 0 },
	{ "replace", 0, 0, KILN_OK, run_replace, 0, 0 },
	{ "remove", 0, 0, KILN_OK, run_remove, 0, 1 },
	{ "trim", 0, 1, KILN_OK, run_trim, 0, 0 },
	{ "wipe", 0, 0, KILN_OK, run_wipe, 0, 1 },
	{ "list", 0, 0, KILN_END, run_list, 0, 0 },
	{ "verify", 0, 0, KILN_OK, run_verify, 0, 0 },
	{ "info", 0, 0, KILN_OK, run_info, 0, 0 },
	{ "stats", 0, 1, KILN_OK, run_stats, 0, 0 },
	{ "counters", 0, 0, KILN_OK, run_counters, 0, 0 },
	{ "key", 0, 0, KILN_OK, run_key, 0, 0 },
	{ "metadata", 0, 0, KILN_OK, run_metadata, 0, 0 },
	{ "close", 0, 1, KILN_OK, run_close, 0, 0 },
	{ NULL, 0, 0, KILN_OK, NULL, 0, 0 },
};
/* clang-format on */

/* ---- Rounds ---------------------------------------------------------------------- */

/* What the system does not finish because of a signal is asked for again. */
static int is_interrupted(const struct public_scene *scene)
{
	return scene->fault.err == -EINTR && scene->fault.n_fired;
}

static void check_answer(const struct public_scene *scene)
{
	const struct public_operation *operation = scene->operation;

	if (!scene->fault.n_fired && scene->status != operation->expected &&
	    (kind || scene->status != KILN_E_UNSUPPORTED))
		fail_public(scene, "nothing failed but this");
	if (is_interrupted(scene) && scene->status != operation->expected &&
	    (kind || scene->status != KILN_E_UNSUPPORTED))
		fail_public(scene, "an interrupted call was not repeated");
	if (operation->must_succeed && scene->status != KILN_OK)
		fail_public(scene, "only a build may fail");
	/* Of counters that were half written the sum is wrong. */
	if (scene->status == KILN_E_INVALID ||
	    (scene->status == KILN_E_FORMAT &&
	     operation->run != run_counters) ||
	    scene->status == KILN_E_COLLISION || scene->status == KILN_E_BUILD)
		fail_public(scene, "not a status for this");
	if (scene->blob &&
	    !is_value_of(operation->expected_key, kiln_blob_data(scene->blob),
			 kiln_blob_size(scene->blob)))
		fail_public(scene, "wrong bytes");
}

/* What a kiln answers for a key: KILN_OK with the right bytes, or a status. */
static enum kiln_status look(const struct public_scene *scene,
			     struct kiln *kiln, unsigned number)
{
	struct kiln_key *key = numbered_key(number);
	struct kiln_blob *blob;
	enum kiln_status status = kiln_get(kiln, key, &blob);

	if (!status &&
	    !is_value_of(number, kiln_blob_data(blob), kiln_blob_size(blob)))
		fail_public(scene, "wrong bytes afterwards");
	if (!status)
		kiln_blob_unref(blob);
	kiln_key_free(key);
	return status;
}

/* By the kiln that saw the fault, then by another. */
static void check_kiln(const struct public_scene *scene, struct kiln *kiln,
		       int is_other)
{
	const struct public_operation *operation = scene->operation;
	enum kiln_status status;

	for (unsigned n = 0; n < N_ENTRIES; n++) {
		status = look(scene, kiln, n);
		if (status && status != KILN_MISS)
			fail_public(scene, "afterwards an error");
		if (status == KILN_MISS && kind && !operation->removes &&
		    !kiln_store_status(kiln))
			fail_public(scene, "an entry is lost");
	}
	status = look(scene, kiln, NEW_KEY);
	if (status && status != KILN_MISS)
		fail_public(scene, "afterwards an error");
	/* Memory alone may let go of anything when it is short. */
	if (status && scene->status == KILN_OK && !is_other && kind &&
	    (operation->run == run_put || operation->run == run_replace ||
	     (operation->run == run_build && !scene->fault.n_fired)))
		fail_public(scene, "put or built, and not there");
	if (operation->run == run_remove && scene->status == KILN_OK &&
	    look(scene, kiln, 1) != KILN_MISS)
		fail_public(scene, "removed, and still there");
}

/* In a thread of its own, which is new to the kiln. */
static void *run_armed(void *arg)
{
	struct public_scene *scene = arg;

	fault_arm_system(&scene->fault);
	scene->operation->run(scene);
	fault_disarm_system(&scene->fault);
	return NULL;
}

/* Without a store the first entries are in memory. */
static void put_first(struct kiln *kiln)
{
	char value[1000];

	for (unsigned n = 0; !kind && n < N_ENTRIES; n++) {
		struct kiln_key *key = numbered_key(n);

		fill_value(n, value, sizeof(value));
		assert_int_equal(
			kiln_put(kiln, key, value, sizeof(value), NULL, 0),
			KILN_OK);
		kiln_key_free(key);
	}
}

static void *warm_up(void *arg)
{
	struct kiln_key *key = numbered_key(1);
	struct kiln_blob *blob;
	struct kiln *kiln;

	if (open_public(NULL, &kiln) || kiln_put(kiln, key, "", 1, NULL, 0) ||
	    kiln_get(kiln, key, &blob))
		abort();
	kiln_blob_unref(blob);
	kiln_close(kiln);
	kiln_key_free(key);
	return NULL;
}

/* What is kept for each thread: of this one, and of one more at a time. */
static void warm_up_threads(void)
{
	pthread_t thread;

	warm_up(NULL);
	if (pthread_create(&thread, NULL, warm_up, NULL))
		abort();
	pthread_join(thread, NULL);
}

static void run_round(struct public_scene *scene)
{
	const long n_blocks = fault_n_blocks();
	struct kiln *other;
	pthread_t thread;

	scene->kiln = NULL;
	scene->blob = NULL;
	if (!scene->operation->opens) {
		assert_int_equal(open_public(scene->url, &scene->kiln),
				 KILN_OK);
		put_first(scene->kiln);
	}
	assert_int_equal(pthread_create(&thread, NULL, run_armed, scene), 0);
	pthread_join(thread, NULL);
	check_answer(scene);
	kiln_blob_unref(scene->blob);
	if (scene->kiln) {
		check_kiln(scene, scene->kiln, 0);
		kiln_close(scene->kiln);
	}
	if (kind) {
		assert_int_equal(open_public(scene->url, &other), KILN_OK);
		if (kiln_store_status(other))
			fail_public(scene, "the store is of no use any more");
		check_kiln(scene, other, 1);
		kiln_close(other);
	}
	if (fault_n_blocks() != n_blocks)
		fail_public(scene, "memory is left behind");
}

static struct public_scene scene_new(const struct public_operation *operation,
				     const char *directory)
{
	struct public_scene scene = {
		.operation = operation,
		.key = numbered_key(1),
		.new_key = numbered_key(NEW_KEY),
	};
	char value[VALUE_SIZE];

	fill_value(NEW_KEY, value, sizeof(value));
	if (kiln_blob_copy(value, sizeof(value), &scene.built))
		abort();
	fill_value(1, value, sizeof(value));
	if (kiln_blob_copy(value, sizeof(value), &scene.built_again))
		abort();
	if (kind)
		scene.url = kind_url(kind, directory);
	return scene;
}

static void scene_free(struct public_scene *scene)
{
	kiln_blob_unref(scene->built_again);
	kiln_blob_unref(scene->built);
	kiln_key_free(scene->key);
	kiln_key_free(scene->new_key);
	free(scene->url);
}

/* ---- A process's first calls ----------------------------------------------------- */

static int first_calls(struct public_scene *scene, unsigned n, int lasting)
{
	fault_begin(&scene->fault, -ENOMEM);
	scene->fault.n = n;
	scene->fault.lasting = lasting;
	fault_arm(&scene->fault);
	run_open(scene);
	if (scene->status == KILN_OK)
		run_build(scene);
	if (scene->kiln && scene->status)
		return 1;
	if (!scene->kiln && scene->status != KILN_E_NO_MEMORY)
		return 2;
	if (scene->kiln)
		run_close(scene);
	fault_disarm(&scene->fault);
	if (scene->blob && !is_value_of(NEW_KEY, kiln_blob_data(scene->blob),
					kiln_blob_size(scene->blob)))
		return 3;
	return scene->fault.n_fired ? 0 : 4;
}

static int first_calls_in_process(unsigned index, void *arg)
{
	struct public_scene *scene = arg;
	int result = first_calls(scene, scene->fault.n, scene->fault.lasting);

	return result == 4 ? 0 : result;
}

/* What is made once for a process or a thread is not there yet. */
static void first_calls_need_no_memory_they_cannot_have(void **state)
{
	char *directory = harness_directory();
	struct public_scene scene = scene_new(&public_operations[0], directory);

	for (unsigned i = 0; i < 80; i++) {
		scene.fault.n = 1 + i / 2;
		scene.fault.lasting = i % 2;
		if (harness_processes(1, first_calls_in_process, &scene,
				      HARNESS_HANG_S))
			fail_public(&scene, "the first calls went wrong");
	}
	scene_free(&scene);
	free(directory);
}

static void run_operation(void **state)
{
	char *master = harness_directory();
	char *place = harness_path(master, "store");
	char *copy = harness_path(master, "copy");
	struct public_scene scene = scene_new(*state, copy);

	warm_up_threads();
	if (kind)
		prepare_store(kind, place, SOME);
	for (unsigned i = 0; i < N_ERRORS; i++) {
		const int err = errors[i];

		for (fault_begin(&scene.fault, err);
		     fault_next(&scene.fault);) {
			/* A lasting EINTR is waited for. */
			if (err == -EINTR && scene.fault.lasting)
				break;
			harness_progress(scene.operation->name, scene.fault.n,
					 0);
			scene.fault.stride = all ? 0 : 16;
			scene.fault.n_all = 24;
			if (kind)
				copy_store(kind, place, copy, SOME);
			run_round(&scene);
			if (kind)
				harness_remove(copy);
		}
	}
	harness_progress_end();
	scene_free(&scene);
	free(copy);
	free(place);
	free(master);
}

int main(int argc, char **argv)
{
	struct CMUnitTest tests[N_OPERATIONS_MAX];
	const struct public_operation *operation;
	size_t n = 0;

	all = argc > 2 && !strcmp(argv[argc - 1], "--all");
	argc -= all;
	kind_name = argc > 1 ? argv[1] : "";
	kind = kind_find(kind_name);
	if (!kind && strcmp(kind_name, "none") != 0) {
		fprintf(stderr,
			"usage: public KIND|none [OPERATION] [--all]\n");
		return 2;
	}
	/* Before anything else has been called here. */
	if (argc < 3)
		tests[n++] = (struct CMUnitTest)cmocka_unit_test(
			first_calls_need_no_memory_they_cannot_have);
	for (operation = public_operations; operation->name; operation++)
		if (argc < 3 || !strcmp(argv[2], operation->name))
			tests[n++] = (struct CMUnitTest){
				.name = operation->name,
				.test_func = run_operation,
				.initial_state = (void *)(uintptr_t)operation,
			};
	return _cmocka_run_group_tests(kind_name, tests, n, NULL, NULL);
}
