/* SPDX-License-Identifier: MIT */

#include "fault/operations.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Made beforehand: nothing but the store allocates while a fault is armed. */
static struct kiln_key *keys[6];
static unsigned char value[100000];

enum { KEY_0, KEY_1, KEY_CREATED, KEY_EVICTING };

static const unsigned key_numbers[] = { 0, 1, 100, 200, 201, 202 };

#define N_GROWING 40

static struct kiln_key *growing_keys[N_GROWING];

void operations_begin(void)
{
	for (unsigned i = 0; i < N_GROWING; i++)
		growing_keys[i] = numbered_key(9000 + i);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		keys[i] = numbered_key(key_numbers[i]);
}

void operations_end(void)
{
	for (unsigned i = 0; i < N_GROWING; i++)
		kiln_key_free(growing_keys[i]);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		kiln_key_free(keys[i]);
}

void fail_scene(const struct scene *scene, const char *what)
{
	fail_msg("error %d, call %u (%s, %s), status %s: %s", scene->fault->err,
		 scene->fault->n, scene->fault->fired,
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

struct kiln_tier *open_real(const struct kind *kind, const char *directory)
{
	struct ki_store_options options = options_of(&ki_sys_posix, directory);
	struct kiln_tier *tier = NULL;
	enum kiln_status status = kind->open(&options, &tier);

	if (status)
		fail_msg("open: %s", kiln_status_name(status));
	return tier;
}

enum kiln_status open_scene(struct scene *scene)
{
	struct ki_store_options options =
		options_of(&scene->fault->sys, scene->directory);

	return scene->kind->open(&options, &scene->tier);
}

/* ---- Operations ------------------------------------------------------------------ */

static enum kiln_status run_open(struct scene *scene)
{
	return open_scene(scene);
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

static enum kiln_status run_grow(struct scene *scene)
{
	enum kiln_status status = KILN_OK;

	for (unsigned i = 0; i < N_GROWING && !status; i++) {
		fill_value(9000 + i, value, 8);
		status = scene->tier->ops->put(scene->tier, growing_keys[i],
					       "metadata", 8, value, 8, 0);
	}
	return status;
}

static void check_grown(struct scene *scene, struct kiln_tier *tier)
{
	for (unsigned n = 5000; n < 5000 + scene->kind->grows_after; n++)
		if (get_numbered(tier, n) != KILN_OK)
			fail_scene(scene, "growing lost an entry");
	for (unsigned n = 9000; n < 9000 + N_GROWING; n++) {
		int status = get_numbered(tier, n);

		if (status != KILN_OK &&
		    (status != KILN_MISS || scene->status == KILN_OK))
			fail_scene(scene, "growing lost a new entry");
	}
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

const struct operation operations[] = {
	{ "open_a_new_store", MAY_EVICT, NOTHING, 1, run_open, NULL },
	{ "open_an_existing_store", SPARES_OTHERS, SOME, 1, run_open, NULL },
	{ "get", SPARES_OTHERS, SOME, 0, run_get, check_got },
	{ "create", SPARES_OTHERS, SOME, 0, run_create, check_created },
	{ "replace", SPARES_OTHERS, SOME, 0, run_replace, check_replaced },
	{ "remove", SPARES_OTHERS, SOME, 0, run_remove, check_removed },
	{ "wipe", MAY_EVICT, SOME, 0, run_wipe, check_wiped },
	{ "list", SPARES_OTHERS, SOME, 0, run_list, NULL },
	{ "verify", SPARES_OTHERS, SOME, 0, run_verify, NULL },
	{ "evict", MAY_EVICT, FULL, 0, run_evict, NULL },
	{ "grow", SPARES_OTHERS, MANY, 0, run_grow, check_grown },
	{ "set_limit", SPARES_OTHERS, SOME, 0, run_set_limit, NULL },
	{ "info", SPARES_OTHERS, SOME, 0, run_info, NULL },
	{ "count", SPARES_OTHERS, SOME, 0, run_count, NULL },
	{ "lock", SPARES_OTHERS, SOME, 0, run_lock, NULL },
	{ "close", SPARES_OTHERS, SOME, 0, run_close, NULL },
	{ NULL, SPARES_OTHERS, SOME, 0, NULL, NULL },
};

/* ---- Before and after ------------------------------------------------------------ */

int has_operation(const struct kind *kind, const struct operation *operation)
{
	return operation->before != MANY || kind->grows_after;
}

void prepare_store(const struct kind *kind, const char *directory,
		   enum before before)
{
	struct kiln_tier *tier;
	unsigned n;

	if (before == NOTHING)
		return;
	tier = open_real(kind, directory);
	for (n = 0; n < N_ENTRIES; n++)
		assert_int_equal(put_numbered(tier, n, 1000, 0), KILN_OK);
	for (n = 1000; before == FULL && n < 1030; n++)
		assert_int_equal(put_numbered(tier, n, 60000, 0), KILN_OK);
	for (n = 0; before == MANY && n < kind->grows_after; n++)
		assert_int_equal(put_numbered(tier, 5000 + n, 8, 0), KILN_OK);
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

void copy_store(const char *from, const char *to, enum before before)
{
	if (before != NOTHING)
		copy_tree(from, to);
}

static int keeps_bound(struct kiln_tier *tier)
{
	struct kiln_store_info info;

	return !tier->ops->info(tier, &info) && info.bytes <= info.bytes_max;
}

/* What a dead process left counts again from the next roll on. */
static int roll(struct kiln_tier *tier)
{
	for (unsigned n = 2000; n < 2040; n++)
		if (put_numbered(tier, n, 60000, 0))
			return 0;
	return 1;
}

void check_scene(struct scene *scene, const struct operation *operation)
{
	struct kiln_tier *tier = open_real(scene->kind, scene->directory);

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
	if (!keeps_bound(tier) && (scene->fault->err != FAULT_DIE ||
				   !roll(tier) || !keeps_bound(tier)))
		fail_scene(scene, "the bound is passed");
	if (put_numbered(tier, 300, 2000, 0) != KILN_OK ||
	    get_numbered(tier, 300) != KILN_OK)
		fail_scene(scene, "the store is of no use any more");
	tier->ops->close(tier);
}
