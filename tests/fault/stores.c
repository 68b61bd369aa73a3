/* SPDX-License-Identifier: MIT */

/*
 * S29, S39, S44.  stores KIND [OPERATION|long]: every operation of a store, with every system call and every
 * allocation of it failed in turn, once and for good.  Afterwards: a right
 * result or a typed error, no wrong bytes, nothing lost that was not touched,
 * the bound kept, no descriptor leaked, and the store in use again at once.
 */

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "harness/harness.h"

#include "conform/kinds.h"
#include "fault/fault.h"

#define BOUND ((uint64_t)2 << 20)
#define N_ENTRIES 6

static const struct kind *kind;

/* The first ones are what stores tell apart; the others take a long run. */
static const int errors[] = { -EIO,	   -ENOSPC, -EROFS,  -ENOLCK,
			      -ENOMEM,	   -EACCES, -ESTALE, FAULT_SHORT,
			      -EMFILE,	   -EDQUOT, -EPERM,  -EFBIG };

#define N_ERRORS (sizeof(errors) / sizeof(errors[0]))
#define N_ERRORS_SHORT 8

static int is_long;

static size_t n_errors(void)
{
	return is_long ? N_ERRORS : N_ERRORS_SHORT;
}

/* The first round of an error. */
static void begin(struct fault *fault, size_t i)
{
	fault_begin(fault, errors[i]);
	fault->stride = is_long ? 0 : 16;
}

/* What an operation may do to entries that it was not asked about. */
enum harm { SPARES_OTHERS, MAY_EVICT };

struct scene {
	struct fault *fault;
	const char *directory;
	struct kiln_tier *tier;
	enum kiln_status status;
	struct kiln_blob *blob;		/* what a get handed out */
};

/* Made beforehand: nothing but the store allocates while a fault is armed. */
static struct kiln_key *keys[6];
static unsigned char value[100000];

enum { KEY_0, KEY_1, KEY_CREATED, KEY_EVICTING };

static const unsigned key_numbers[] = { 0, 1, 100, 200, 201, 202 };

struct operation {
	const char *name;
	enum harm harm;
	int is_full;		/* prepare a store that is near its bound */
	int is_closed;		/* the operation opens by itself */
	/* With the fault armed. */
	enum kiln_status (*run)(struct scene *scene);
	/* Afterwards, through a fresh handle: what must hold by status. */
	void (*check)(struct scene *scene, struct kiln_tier *tier);
};

static void fail_scene(const struct scene *scene, const char *what)
{
	fail_msg("error %d, call %u (%s, %s), status %s: %s",
		 scene->fault->err, scene->fault->n, scene->fault->fired,
		 scene->fault->lasting ? "lasting" : "once",
		 kiln_status_name(scene->status), what);
}

static struct ki_store_options options_of(const struct ki_sys *sys,
					  const char *directory)
{
	return (struct ki_store_options){ .sys = sys,
					  .directory = directory,
					  .bytes_max = BOUND };
}

static struct kiln_tier *open_real(const char *directory)
{
	struct ki_store_options options = options_of(&ki_sys_posix, directory);
	struct kiln_tier *tier = NULL;
	enum kiln_status status = kind->open(&options, &tier);

	if (status)
		fail_msg("open: %s", kiln_status_name(status));
	return tier;
}

static unsigned n_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* ---- Operations ------------------------------------------------------------------ */

static enum kiln_status run_open(struct scene *scene)
{
	struct ki_store_options options =
		options_of(&scene->fault->sys, scene->directory);

	return kind->open(&options, &scene->tier);
}

static enum kiln_status run_get(struct scene *scene)
{
	return scene->tier->ops->get(scene->tier, keys[KEY_1], &scene->blob,
				     NULL);
}

static void check_got(struct scene *scene, struct kiln_tier *tier)
{
	if (scene->status == KILN_OK &&
	    !is_value_of(1, kiln_blob_data(scene->blob),
			 kiln_blob_size(scene->blob)))
		fail_scene(scene, "wrong bytes");
	if (scene->status == KILN_OK)
		kiln_blob_unref(scene->blob);
}

static enum kiln_status put_value(struct scene *scene, unsigned key,
				  size_t size, unsigned flags)
{
	fill_value(key_numbers[key], value, size);
	return scene->tier->ops->put(scene->tier, keys[key], "metadata", 8,
				     value, size, flags);
}

static enum kiln_status run_create(struct scene *scene)
{
	return put_value(scene, KEY_CREATED, 3000, 0);
}

static void check_created(struct scene *scene, struct kiln_tier *tier)
{
	int status = get_numbered(tier, 100);

	if (scene->status == KILN_OK && status != KILN_OK)
		fail_scene(scene, "created, and not there");
	if (status != KILN_OK && status != KILN_MISS)
		fail_scene(scene, "half created");
}

static enum kiln_status run_replace(struct scene *scene)
{
	return put_value(scene, KEY_0, 5000, KILN_PUT_REPLACE);
}

static void check_replaced(struct scene *scene, struct kiln_tier *tier)
{
	struct kiln_blob *blob = NULL;
	enum kiln_status status =
		tier->ops->get(tier, keys[KEY_0], &blob, NULL);

	if (status != KILN_OK)
		fail_scene(scene, "replaced, and neither is there");
	if (scene->status == KILN_OK && kiln_blob_size(blob) != 5000)
		fail_scene(scene, "replaced, and the old one is there");
	kiln_blob_unref(blob);
	if (get_numbered(tier, 0) != KILN_OK)
		fail_scene(scene, "wrong bytes");
}

static enum kiln_status run_remove(struct scene *scene)
{
	return scene->tier->ops->remove(scene->tier, keys[KEY_0]);
}

static void check_removed(struct scene *scene, struct kiln_tier *tier)
{
	int status = get_numbered(tier, 0);

	if (scene->status == KILN_OK && status != KILN_MISS)
		fail_scene(scene, "removed, and still there");
	if (status != KILN_OK && status != KILN_MISS)
		fail_scene(scene, "half removed");
}

static enum kiln_status run_wipe(struct scene *scene)
{
	return scene->tier->ops->wipe(scene->tier);
}

static void check_wiped(struct scene *scene, struct kiln_tier *tier)
{
	for (unsigned n = 0; n < N_ENTRIES; n++)
		if (scene->status == KILN_OK &&
		    get_numbered(tier, n) != KILN_MISS)
			fail_scene(scene, "wiped, and still there");
}

static enum kiln_status run_list(struct scene *scene)
{
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;
	enum kiln_status status;
	unsigned n = 0;

	while (!(status = scene->tier->ops->list(scene->tier, &cursor,
						 &entry))) {
		n++;
		kiln_blob_unref(entry.record);
		kiln_blob_unref(entry.metadata);
	}
	if (status == KILN_END && !scene->fault->n_fired && n != N_ENTRIES)
		fail_scene(scene, "entries are missing in the list");
	return status == KILN_END ? KILN_OK : status;
}

static enum kiln_status run_verify(struct scene *scene)
{
	struct kiln_verify_report report;

	return scene->tier->ops->verify(scene->tier, KILN_VERIFY_REPAIR, NULL,
					NULL, &report);
}

static enum kiln_status run_evict(struct scene *scene)
{
	enum kiln_status status = KILN_OK;

	for (unsigned i = 0; i < 3 && !status; i++)
		status = put_value(scene, KEY_EVICTING + i, sizeof(value), 0);
	return status;
}

static enum kiln_status run_set_limit(struct scene *scene)
{
	return scene->tier->ops->set_limit(scene->tier, 2 * BOUND);
}

static enum kiln_status run_info(struct scene *scene)
{
	struct kiln_store_info info;

	return scene->tier->ops->info(scene->tier, &info);
}

static enum kiln_status run_count(struct scene *scene)
{
	uint64_t deltas[KILN_N_COUNTERS] = { 1 };

	scene->tier->ops->count(scene->tier, deltas);
	return KILN_OK;
}

static enum kiln_status run_lock(struct scene *scene)
{
	struct kiln_tier_lock *lock;
	enum kiln_status status =
		scene->tier->ops->lock(scene->tier, keys[KEY_1], 0, &lock);

	if (!status)
		scene->tier->ops->unlock(scene->tier, lock);
	return status;
}

static enum kiln_status run_close(struct scene *scene)
{
	scene->tier->ops->close(scene->tier);
	scene->tier = NULL;
	return KILN_OK;
}

/* ---- The loop -------------------------------------------------------------------- */

/* Made once, copied for each round. */
static void prepare(const char *directory, int is_full)
{
	struct kiln_tier *tier = open_real(directory);
	unsigned n;

	for (n = 0; n < N_ENTRIES; n++)
		assert_int_equal(put_numbered(tier, n, 1000, 0), KILN_OK);
	for (n = 1000; is_full && n < 1030; n++)
		assert_int_equal(put_numbered(tier, n, 60000, 0), KILN_OK);
	tier->ops->close(tier);
}

static void copy_file(const char *from, const char *to)
{
	size_t size;
	char *bytes = harness_read(from, &size);

	assert_non_null(bytes);
	harness_write(to, bytes, size);
	free(bytes);
}

static void copy_tree(const char *from, const char *to)
{
	DIR *dir = opendir(from);
	struct dirent *entry;

	assert_non_null(dir);
	assert_int_equal(mkdir(to, 0700), 0);
	while ((entry = readdir(dir))) {
		char *source, *target;
		struct stat st;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		source = harness_path(from, entry->d_name);
		target = harness_path(to, entry->d_name);
		assert_int_equal(lstat(source, &st), 0);
		if (S_ISDIR(st.st_mode))
			copy_tree(source, target);
		else
			copy_file(source, target);
		free(source);
		free(target);
	}
	closedir(dir);
}

static int is_typed(enum kiln_status status)
{
	switch (status) {
	case KILN_OK:
	case KILN_MISS:
	case KILN_E_NO_MEMORY:
	case KILN_E_IO:
	case KILN_E_FULL:
	case KILN_E_OWNER:
	case KILN_E_TIMEOUT:
	case KILN_E_UNSUPPORTED:
	case KILN_E_READONLY:
		return 1;
	default:
		return 0;
	}
}

static void check_store(struct scene *scene, const struct operation *operation,
			struct kiln_tier *tier)
{
	struct kiln_store_info info;

	if (operation->check)
		operation->check(scene, tier);
	for (unsigned n = 0; n < N_ENTRIES; n++) {
		int status = get_numbered(tier, n);

		if (status != KILN_OK && status != KILN_MISS)
			fail_scene(scene, "an entry is damaged");
		if (n && status == KILN_MISS &&
		    operation->harm == SPARES_OTHERS)
			fail_scene(scene, "an entry that was not touched is "
					  "lost");
	}
	if (tier->ops->info(tier, &info) || info.bytes > 2 * BOUND ||
	    (info.bytes_max == BOUND && info.bytes > BOUND))
		fail_scene(scene, "the bound is passed");
	if (put_numbered(tier, 300, 2000, 0) != KILN_OK ||
	    get_numbered(tier, 300) != KILN_OK)
		fail_scene(scene, "the store is of no use any more");
}

static void run_round(struct scene *scene, const struct operation *operation)
{
	struct ki_store_options options =
		options_of(&scene->fault->sys, scene->directory);
	unsigned before = n_descriptors();
	struct kiln_tier *tier;

	scene->tier = NULL;
	if (!operation->is_closed)
		assert_int_equal(kind->open(&options, &scene->tier), KILN_OK);
	fault_arm(scene->fault);
	scene->status = operation->run(scene);
	fault_disarm(scene->fault);

	if (!is_typed(scene->status))
		fail_scene(scene, "not a status for this");
	if (!scene->fault->n_fired && scene->status)
		fail_scene(scene, "nothing failed but this");
	/* The handle that saw the fault goes on as if nothing had been. */
	if (scene->tier) {
		int status = get_numbered(scene->tier, 2);

		if (status != KILN_OK &&
		    !(status == KILN_MISS && operation->harm == MAY_EVICT))
			fail_scene(scene, "the handle is of no use any more");
		scene->tier->ops->close(scene->tier);
	}
	tier = open_real(scene->directory);
	check_store(scene, operation, tier);
	tier->ops->close(tier);
	if (n_descriptors() != before)
		fail_scene(scene, "a descriptor is left open");
}

static void run_operation(void **state)
{
	const struct operation *operation = *state;
	char *master = harness_directory();
	char *place = harness_path(master, "store");
	char *copy = harness_path(master, "copy");

	prepare(place, operation->is_full);
	for (size_t i = 0; i < n_errors(); i++) {
		struct fault fault;
		struct scene scene = { .fault = &fault, .directory = copy };

		for (begin(&fault, i); fault_next(&fault);) {
			copy_tree(place, copy);
			run_round(&scene, operation);
			harness_remove(copy);
		}
	}
	free(copy);
	free(place);
	free(master);
}

static const struct operation operations[] = {
	{ "open_an_existing_store", SPARES_OTHERS, 0, 1, run_open, NULL },
	{ "get", SPARES_OTHERS, 0, 0, run_get, check_got },
	{ "create", SPARES_OTHERS, 0, 0, run_create, check_created },
	{ "replace", SPARES_OTHERS, 0, 0, run_replace, check_replaced },
	{ "remove", SPARES_OTHERS, 0, 0, run_remove, check_removed },
	{ "wipe", MAY_EVICT, 0, 0, run_wipe, check_wiped },
	{ "list", SPARES_OTHERS, 0, 0, run_list, NULL },
	{ "verify", SPARES_OTHERS, 0, 0, run_verify, NULL },
	{ "evict", MAY_EVICT, 1, 0, run_evict, NULL },
	{ "set_limit", SPARES_OTHERS, 0, 0, run_set_limit, NULL },
	{ "info", SPARES_OTHERS, 0, 0, run_info, NULL },
	{ "count", SPARES_OTHERS, 0, 0, run_count, NULL },
	{ "lock", SPARES_OTHERS, 0, 0, run_lock, NULL },
	{ "close", SPARES_OTHERS, 0, 0, run_close, NULL },
};

/* The first opening of all has nothing to copy. */
static void open_a_new_store(void **state)
{
	char *directory = harness_directory();
	char *below = harness_path(directory, "store");

	for (size_t i = 0; i < n_errors(); i++) {
		struct fault fault;
		struct scene scene = { .fault = &fault, .directory = below };

		for (begin(&fault, i); fault_next(&fault);) {
			struct kiln_tier *tier;

			scene.tier = NULL;
			fault_arm(&fault);
			scene.status = run_open(&scene);
			fault_disarm(&fault);
			if (!is_typed(scene.status))
				fail_scene(&scene, "not a status for this");
			if (!fault.n_fired && scene.status)
				fail_scene(&scene, "nothing failed but this");
			if (scene.tier)
				scene.tier->ops->close(scene.tier);
			tier = open_real(below);
			assert_int_equal(put_numbered(tier, 1, 1000, 0),
					 KILN_OK);
			assert_int_equal(get_numbered(tier, 1), KILN_OK);
			tier->ops->close(tier);
			harness_remove(below);
		}
	}
	free(below);
	free(directory);
}

/* ---- Limits of the process --------------------------------------------------------- */

static int put_within(const char *directory, int resource, rlim_t limit)
{
	struct rlimit limits = { limit, limit };
	struct kiln_tier *tier = open_real(directory);
	enum kiln_status status;

	if (setrlimit(resource, &limits))
		return 1;
	fill_value(100, value, sizeof(value));
	status = tier->ops->put(tier, keys[KEY_CREATED], "metadata", 8, value,
				sizeof(value), 0);
	if (!is_typed(status))
		return 2;
	tier->ops->close(tier);
	return 0;
}

static int under_a_file_size_limit(unsigned index, void *arg)
{
	return put_within(arg, RLIMIT_FSIZE, 50000);
}

static int without_descriptors(unsigned index, void *arg)
{
	return put_within(arg, RLIMIT_NOFILE, 0);
}

/* Nobody is killed by SIGXFSZ, and the others' store is as good as before. */
static void limits_of_a_process_cost_only_its_put(void **state)
{
	static harness_child_fn *const bodies[] = { under_a_file_size_limit,
						    without_descriptors };
	char *directory = harness_directory();
	struct kiln_tier *tier;

	prepare(directory, 0);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(harness_processes(1, bodies[i], directory, 30),
				 0);
		tier = open_real(directory);
		for (unsigned n = 0; n < N_ENTRIES; n++)
			assert_int_equal(get_numbered(tier, n), KILN_OK);
		assert_int_equal(put_numbered(tier, 400 + (unsigned)i, 100000,
					      0),
				 KILN_OK);
		tier->ops->close(tier);
	}
	free(directory);
}

#define N_OPERATIONS (sizeof(operations) / sizeof(operations[0]))

int main(int argc, char **argv)
{
	struct CMUnitTest tests[N_OPERATIONS + 2];
	size_t n = 0;
	int failed;

	kind = argc > 1 ? kind_find(argv[1]) : NULL;
	if (!kind) {
		fprintf(stderr, "usage: stores KIND [OPERATION|long]\n");
		return 2;
	}
	if (argc > 2 && !strcmp(argv[2], "long")) {
		is_long = 1;
		argc--;
	}
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		keys[i] = numbered_key(key_numbers[i]);
	for (size_t i = 0; i < N_OPERATIONS; i++)
		if (argc < 3 || !strcmp(argv[2], operations[i].name))
			tests[n++] = (struct CMUnitTest){
				.name = operations[i].name,
				.test_func = run_operation,
				.initial_state = (void *)(uintptr_t)&operations[i],
			};
	if (argc < 3) {
		tests[n++] = (struct CMUnitTest)cmocka_unit_test(
			open_a_new_store);
		tests[n++] = (struct CMUnitTest)cmocka_unit_test(
			limits_of_a_process_cost_only_its_put);
	}
	failed = _cmocka_run_group_tests(kind->name, tests, n, NULL, NULL);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		kiln_key_free(keys[i]);
	return failed;
}
