/* SPDX-License-Identifier: MIT */

#include "fault/operations.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"

/* Made beforehand: nothing but the store allocates while a fault is armed. */
static struct kiln_key *keys[7];
static unsigned char value[100000];

enum { KEY_0, KEY_1, KEY_CREATED, KEY_LARGE, KEY_NEW };

static const unsigned key_numbers[] = { 0, 1, 100, FIRST_FILL, 200, 201, 202 };

#define N_NEW	   3
#define N_FILL_MAX 4000

/* The first fills a file. */
static unsigned char source_data[2][60000];
static struct kiln_kept sources[] = { { source_data[0], 60000, { 0 }, 0 },
				      { source_data[1], 60000, { 0 }, 0 } };

static void make_sources(void)
{
	unsigned char *byte = &source_data[0][0];
	uint64_t state = 1;
	size_t i;

	for (i = 0; i < sizeof(source_data); i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		byte[i] = (unsigned char)(state >> 56);
	}
	for (i = 0; i < 2; i++)
		ki_blake2b(sources[i].data, sources[i].size, sources[i].digest);
}

void operations_begin(void)
{
	make_sources();
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		keys[i] = numbered_key(key_numbers[i]);
}

void operations_end(void)
{
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
	uint8_t metadata[NUMBERED_METADATA_BYTES];

	fill_value(key_numbers[key], value, size);
	fill_metadata(key_numbers[key], metadata);
	return scene->tier->ops->put(scene->tier, keys[key], metadata,
				     sizeof(metadata), value, size, flags);
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

/* What has a file of its own where a store makes that difference. */
static enum kiln_status run_replace_large(struct scene *scene)
{
	return put_value(scene, KEY_LARGE, sizeof(value), KILN_PUT_REPLACE);
}

static void check_replaced_large(struct scene *scene, struct kiln_tier *tier)
{
	struct kiln_blob *blob = NULL;
	enum kiln_status status =
		tier->ops->get(tier, keys[KEY_LARGE], &blob, NULL);

	if (status != KILN_OK)
		fail_scene(scene, "replaced, and neither is there");
	if (kiln_blob_size(blob) !=
		    (scene->status == KILN_OK ? sizeof(value) : LARGE) &&
	    (scene->status == KILN_OK || kiln_blob_size(blob) != sizeof(value)))
		fail_scene(scene, "replaced, and the old one is there");
	kiln_blob_unref(blob);
	if (get_numbered(tier, FIRST_FILL) != KILN_OK)
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

/* A file that is made anew from the others. */
static int has_index(const struct kind *kind)
{
	return kind->n_grown != NULL;
}

static void lose_index(const char *directory)
{
	char *path = harness_path(directory, "kiln.idx");

	(void)unlink(path);
	free(path);
}

static void expect_none(struct scene *scene, struct kiln_tier *tier)
{
	for (unsigned n = 0; n < N_ENTRIES; n++)
		if (get_numbered(tier, n) != KILN_MISS)
			fail_scene(scene, "wiped, and still there");
}

static void check_wiped(struct scene *scene, struct kiln_tier *tier)
{
	struct kiln_tier *later;

	if (scene->status != KILN_OK)
		return;
	expect_none(scene, tier);
	if (!has_index(scene->kind))
		return;
	lose_index(scene->directory);
	later = open_real(scene->kind, scene->directory);
	expect_none(scene, later);
	later->ops->close(later);
}

static enum kiln_status run_open_other_version(struct scene *scene)
{
	struct ki_store_options options =
		options_of(&scene->fault->sys, scene->directory);

	options.user_version = 7;
	return scene->kind->open(&options, &scene->tier);
}

/* ---- Sessions, with a quota for one entry more than there are ---------------- */

static enum kiln_status open_session(const struct ki_sys *sys,
				     const struct scene *scene,
				     uint64_t user_version, unsigned n_fit,
				     struct kiln_tier **out_tier)
{
	struct ki_store_options options = options_of(sys, scene->directory);

	options.flags = KILN_OPEN_SESSION;
	options.user_version = user_version;
	options.quota_bytes = n_fit * (keys[KEY_0]->data_size + FIRST_SIZE);
	return scene->kind->open(&options, out_tier);
}

/* There is one more, with none but this one: then without a quota, for what
   comes. */
static struct kiln_tier *come_after(struct scene *scene, unsigned n_fit)
{
	struct kiln_tier *session = NULL;

	if (open_session(&ki_sys_posix, scene, 0, n_fit, &session))
		fail_scene(scene, "no session comes after that");
	return session;
}

static void check_session(struct scene *scene, struct kiln_tier *tier)
{
	struct kiln_tier *session = come_after(scene, 0);

	session->ops->close(session);
}

static enum kiln_status run_open_session(struct scene *scene)
{
	return open_session(&scene->fault->sys, scene, 0, N_ENTRIES + 1,
			    &scene->tier);
}

static enum kiln_status run_open_other_session(struct scene *scene)
{
	return open_session(&scene->fault->sys, scene, 7, N_ENTRIES + 1,
			    &scene->tier);
}

static enum kiln_status run_remove_at_close(struct scene *scene)
{
	struct kiln_tier *tier;
	enum kiln_status status = open_session(&scene->fault->sys, scene, 0,
					       N_ENTRIES + 1, &tier);

	if (status)
		return status;
	status = tier->ops->remove_at_close(tier);
	tier->ops->close(tier);
	return status;
}

/* Whatever became of the files: who comes next finds nothing. */
static void check_removed_at_close(struct scene *scene, struct kiln_tier *tier)
{
	struct kiln_tier *later = come_after(scene, 0);

	if (scene->status == KILN_OK)
		expect_none(scene, later);
	later->ops->close(later);
}

/* One fits.  KILN_E_COLLISION: two do. */
static enum kiln_status run_fill_quota(struct scene *scene)
{
	enum kiln_status first, second;

	first = open_session(&scene->fault->sys, scene, 0, N_ENTRIES + 1,
			     &scene->tier);
	if (first)
		return first;
	first = put_value(scene, KEY_NEW, FIRST_SIZE, 0);
	second = put_value(scene, KEY_NEW + 1, FIRST_SIZE, 0);
	if (!first && !second)
		return KILN_E_COLLISION;
	return first ? first : second == KILN_E_FULL ? KILN_OK : second;
}

/* And one it still is, neither less nor more. */
static void check_quota(struct scene *scene, struct kiln_tier *tier)
{
	unsigned n = key_numbers[KEY_NEW], n_there;
	struct kiln_tier *session;

	n_there = !get_numbered(tier, n) + !get_numbered(tier, n + 1);
	if (n_there > 1)
		fail_scene(scene, "more than the quota");
	session = come_after(scene, N_ENTRIES + 1);
	if (!n_there && put_numbered(session, n, FIRST_SIZE, 0))
		fail_scene(scene, "what is not there counts");
	if (put_numbered(session, n + 2, 8, 0) != KILN_E_FULL)
		fail_scene(scene, "what is there does not count");
	session->ops->close(session);
	check_session(scene, tier);
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

static enum kiln_status run_gc(struct scene *scene)
{
	static const struct kiln_gc_options options = {
		.age_max_s = 3600, .flags = KILN_GC_QUARANTINE
	};
	struct kiln_gc_report report;

	return scene->tier->ops->gc(scene->tier, &options, NULL, NULL, &report);
}

static enum kiln_status run_keep_sources(struct scene *scene)
{
	sources[0].is_kept = sources[1].is_kept = 0;
	return scene->tier->ops->keep_sources(scene->tier, sources, 2);
}

/* What is said to be kept is there, unless its process died; the rest may be. */
static void check_sources(struct scene *scene, struct kiln_tier *tier)
{
	struct kiln_blob *blob;
	size_t i;

	for (i = 0; i < 2; i++) {
		enum kiln_status status =
			tier->ops->find_source(tier, sources[i].digest, &blob);

		if (status == KILN_OK) {
			if (kiln_blob_size(blob) != sources[i].size ||
			    memcmp(kiln_blob_data(blob), sources[i].data,
				   sources[i].size) != 0)
				fail_scene(scene, "other bytes of a source");
			kiln_blob_unref(blob);
		} else if (status != KILN_MISS) {
			fail_scene(scene, "a source can't be looked for");
		} else if (sources[i].is_kept || scene->is_whole) {
			fail_scene(scene, "a source that was kept is gone");
		}
	}
}

static enum kiln_status run_gc_below(struct scene *scene)
{
	static const struct kiln_gc_options options = { .bytes_max =
								BOUND / 2 };
	struct kiln_gc_report report;

	return scene->tier->ops->gc(scene->tier, &options, NULL, NULL, &report);
}

static enum kiln_status put_new(struct scene *scene, size_t size)
{
	enum kiln_status status = KILN_OK;

	for (unsigned i = 0; i < N_NEW && !status; i++)
		status = put_value(scene, KEY_NEW + i, size, 0);
	return status;
}

static enum kiln_status run_put_small(struct scene *scene)
{
	return put_new(scene, SMALL);
}

static enum kiln_status run_put_large(struct scene *scene)
{
	return put_new(scene, sizeof(value));
}

static enum kiln_status run_put_tiny(struct scene *scene)
{
	return put_new(scene, 8);
}

/* By cost one that was built fast may go for the next. */
static void check_new(struct scene *scene, struct kiln_tier *tier)
{
	for (unsigned i = scene->kind->by_cost ? N_NEW - 1 : 0; i < N_NEW;
	     i++) {
		int status = get_numbered(tier, key_numbers[KEY_NEW + i]);

		if (status != KILN_OK &&
		    (status != KILN_MISS || scene->status == KILN_OK))
			fail_scene(scene, "a new entry is not there");
	}
}

static void check_grown(struct scene *scene, struct kiln_tier *tier)
{
	check_new(scene, tier);
	for (unsigned n = FIRST_FILL; n < FIRST_FILL + scene->n_filled; n++)
		if (get_numbered(tier, n) != KILN_OK)
			fail_scene(scene, "growing lost an entry");
}

static enum kiln_status run_set_limit(struct scene *scene)
{
	return scene->tier->ops->set_limit(scene->tier, 2 * BOUND);
}

static enum kiln_status run_lower_limit(struct scene *scene)
{
	return scene->tier->ops->set_limit(scene->tier, BOUND / 2);
}

static void check_lowered(struct scene *scene, struct kiln_tier *tier)
{
	struct kiln_store_info info;

	if (scene->status == KILN_OK &&
	    (tier->ops->info(tier, &info) || info.bytes_max != BOUND / 2))
		fail_scene(scene, "lowered, and it is not");
}

static enum kiln_eviction other_eviction(const struct scene *scene)
{
	return scene->kind->by_cost ? KILN_EVICT_BY_USE : KILN_EVICT_BY_COST;
}

static enum kiln_status run_set_eviction(struct scene *scene)
{
	return scene->tier->ops->set_eviction(scene->tier,
					      other_eviction(scene));
}

/* A handle of a kind by cost has set it again by now. */
static void check_set_eviction(struct scene *scene, struct kiln_tier *tier)
{
	struct kiln_store_info info;

	if (scene->status == KILN_OK && !scene->kind->by_cost &&
	    (tier->ops->info(tier, &info) ||
	     info.eviction != other_eviction(scene)))
		fail_scene(scene, "told what goes first, and it is not so");
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

#define ROW(name, harm, before, work, is_closed, run, check)                   \
	{                                                                      \
		name, harm, before, work, is_closed, run, check                \
	}

/* clang-format off */
const struct operation operations[] = {
	ROW("open_a_new_store", MAY_EVICT, NOTHING, NO_WORK, 1, run_open, NULL),
	ROW("open_an_existing_store", SPARES_OTHERS, SOME, NO_WORK, 1, run_open, NULL),
	ROW("open_with_another_version", MAY_EVICT, SOME, NO_WORK, 1, run_open_other_version, check_wiped),
	ROW("open_with_a_lost_index", SPARES_OTHERS, LOST, NO_WORK, 1, run_open, NULL),
	ROW("open_a_session", SPARES_OTHERS, SHARED, NO_WORK, 1, run_open_session, check_session),
	ROW("open_a_session_of_another_version", MAY_EVICT, SHARED, NO_WORK, 1, run_open_other_session, check_wiped),
	ROW("remove_at_close", MAY_EVICT, SHARED, NO_WORK, 1, run_remove_at_close, check_removed_at_close),
	ROW("fill_the_quota", SPARES_OTHERS, SHARED, NO_WORK, 1, run_fill_quota, check_quota),
	ROW("get", SPARES_OTHERS, SOME, NO_WORK, 0, run_get, check_got),
	ROW("create", SPARES_OTHERS, SOME, NO_WORK, 0, run_create, check_created),
	ROW("replace", SPARES_OTHERS, SOME, NO_WORK, 0, run_replace, check_replaced),
	ROW("replace_large", SPARES_OTHERS, OWN, NO_WORK, 0, run_replace_large, check_replaced_large),
	ROW("remove", SPARES_OTHERS, SOME, NO_WORK, 0, run_remove, check_removed),
	ROW("wipe", MAY_EVICT, SOME, NO_WORK, 0, run_wipe, check_wiped),
	ROW("list", SPARES_OTHERS, SOME, NO_WORK, 0, run_list, NULL),
	ROW("verify", SPARES_OTHERS, SOME, NO_WORK, 0, run_verify, NULL),
	ROW("gc", SPARES_OTHERS, SOME, NO_WORK, 0, run_gc, NULL),
	ROW("gc_below_the_bound", MAY_EVICT, FULL, EVICTS, 0, run_gc_below, NULL),
	ROW("roll", SPARES_OTHERS, BRIM, ROLLS, 0, run_put_small, check_new),
	ROW("evict", MAY_EVICT, USED, EVICTS, 0, run_put_small, check_new),
	ROW("evict_large", MAY_EVICT, FULL, EVICTS, 0, run_put_large, check_new),
	ROW("grow", SPARES_OTHERS, MANY, GROWS, 0, run_put_tiny, check_grown),
	ROW("set_limit", SPARES_OTHERS, SOME, NO_WORK, 0, run_set_limit, NULL),
	ROW("lower_limit", MAY_EVICT, FULL, EVICTS, 0, run_lower_limit, check_lowered),
	ROW("set_eviction", SPARES_OTHERS, SOME, NO_WORK, 0, run_set_eviction, check_set_eviction),
	ROW("keep_sources", SPARES_OTHERS, SOME, NO_WORK, 0, run_keep_sources, check_sources),
	ROW("info", SPARES_OTHERS, SOME, NO_WORK, 0, run_info, NULL),
	ROW("count", SPARES_OTHERS, SOME, NO_WORK, 0, run_count, NULL),
	ROW("lock", SPARES_OTHERS, SOME, NO_WORK, 0, run_lock, NULL),
	ROW("close", SPARES_OTHERS, SOME, NO_WORK, 0, run_close, NULL),
	ROW(NULL, SPARES_OTHERS, SOME, NO_WORK, 0, NULL, NULL),
};
/* clang-format on */

/* ---- Before ---------------------------------------------------------------------- */

/* What goes otherwise by cost. */
static int weighs(const struct operation *operation)
{
	return operation->work != NO_WORK || operation->before == LOST ||
	       operation->run == run_set_eviction || operation->run == run_wipe;
}

int has_operation(const struct kind *kind, const struct operation *operation)
{
	return (!kind->by_cost || weighs(operation)) &&
	       (operation->run != run_set_eviction || kind->has_eviction) &&
	       (operation->before != LOST || has_index(kind)) &&
	       (operation->work != ROLLS || kind->n_rolls) &&
	       (operation->work != GROWS || kind->n_grown) &&
	       (operation->before != SHARED || kind->has_sessions) &&
	       (operation->run != run_keep_sources || kind->has_sources);
}

static uint64_t work_of(const struct kind *kind, struct kiln_tier *tier,
			enum work work)
{
	static struct kiln_store_counters counters;

	switch (work) {
	case ROLLS:
		return kind->n_rolls(tier);
	case GROWS:
		return kind->n_grown(tier);
	case EVICTS:
		assert_int_equal(tier->ops->counters(tier, &counters), KILN_OK);
		return counters.total[KILN_COUNT_EVICTED];
	default:
		return 0;
	}
}

uint64_t work_done(const struct kind *kind, const char *directory,
		   enum work work)
{
	struct kiln_tier *tier;
	uint64_t done;

	if (work == NO_WORK)
		return 0;
	tier = open_real(kind, directory);
	done = work_of(kind, tier, work);
	tier->ops->close(tier);
	return done;
}

/* What fills a store beside the first entries: some that are large, then
   others until one more would do the work. */
static const struct filling {
	enum work until;
	unsigned n_large;
	size_t size;
	int uses_first; /* look at the first entries once more */
	int uses_large; /* and at every other one of the large */
} fillings[] = {
	[NOTHING] = { 0 },
	[SOME] = { 0 },
	[SHARED] = { 0 },
	[LOST] = { NO_WORK, 2, 0, 0, 0 },
	[OWN] = { NO_WORK, 2, 0, 0, 0 },
	[BRIM] = { ROLLS, 0, SMALL, 0, 0 },
	[USED] = { EVICTS, 26, SMALL, 1, 0 },
	[FULL] = { EVICTS, N_FILL_MAX, LARGE, 0, 1 },
	[MANY] = { GROWS, 0, 8, 0, 0 },
};

static void fill_one(struct kiln_tier *tier, const struct filling *filling,
		     unsigned n)
{
	size_t size = n < filling->n_large ? LARGE : filling->size;

	assert_int_equal(put_numbered(tier, FIRST_FILL + n, size, 0), KILN_OK);
}

static void put_first(struct kiln_tier *tier)
{
	for (unsigned n = 0; n < N_ENTRIES; n++)
		assert_int_equal(put_numbered(tier, n, FIRST_SIZE, 0), KILN_OK);
}

/* How many entries a store takes before the one that makes it do its work. */
static unsigned n_before(const struct kind *kind, const struct filling *filling)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_real(kind, directory);
	uint64_t done;
	unsigned n;

	put_first(tier);
	done = work_of(kind, tier, filling->until);
	for (n = 0;
	     n < N_FILL_MAX && work_of(kind, tier, filling->until) == done;
	     n++) {
		fill_one(tier, filling, n);
		/* As the one that comes later: with nothing in reserve. */
		if (filling->until == EVICTS) {
			tier->ops->close(tier);
			tier = open_real(kind, directory);
		}
	}
	assert_in_range(n, 1, N_FILL_MAX - 1);
	tier->ops->close(tier);
	harness_remove(directory);
	free(directory);
	return n - 1;
}

unsigned prepare_store(const struct kind *kind, const char *directory,
		       enum before before)
{
	const struct filling *filling = &fillings[before];
	unsigned n, n_filled = filling->n_large;
	struct kiln_tier *tier;

	if (before == NOTHING)
		return 0;
	if (filling->until != NO_WORK)
		n_filled = n_before(kind, filling);
	tier = open_real(kind, directory);
	put_first(tier);
	for (n = 0; n < n_filled; n++)
		fill_one(tier, filling, n);
	for (n = 0; filling->uses_first && n < N_ENTRIES; n++)
		assert_int_equal(get_numbered(tier, n), KILN_OK);
	for (n = 0; filling->uses_large && n < n_filled; n += 2)
		assert_int_equal(get_numbered(tier, FIRST_FILL + n), KILN_OK);
	tier->ops->close(tier);
	if (before == LOST)
		lose_index(directory);
	return n_filled;
}

static void copy_file(const char *from, const char *to)
{
	size_t size;
	char *bytes = harness_read(from, &size);

	assert_non_null(bytes);
	harness_write(to, bytes, size);
	free(bytes);
}

static void copy_tree(const struct kind *kind, const char *from, const char *to)
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
			copy_tree(kind, source, target);
		else if (kind->is_named_by_inode &&
			 kind->is_named_by_inode(entry->d_name))
			assert_int_equal(link(source, target), 0);
		else
			copy_file(source, target);
		free(source);
		free(target);
	}
	closedir(dir);
}

void copy_store(const struct kind *kind, const char *from, const char *to,
		enum before before)
{
	if (before != NOTHING)
		copy_tree(kind, from, to);
}

/* ---- After ----------------------------------------------------------------------- */

/* A medium that is full takes what there is room for by eviction. */
int may_lose(const struct scene *scene, const struct operation *operation)
{
	return operation->harm == MAY_EVICT ||
	       (operation->work != NO_WORK &&
		(scene->fault->err == -ENOSPC || scene->fault->err == -EDQUOT));
}

static int keeps_bound(const struct scene *scene, struct kiln_tier *tier)
{
	struct kiln_store_info info;

	return !tier->ops->info(tier, &info) && info.bytes <= info.bytes_max &&
	       kind_disk_bytes(scene->kind, scene->directory) <= info.bytes_max;
}

/* Until the next roll: by what a dead process left, or by a lower limit that was
   set when it could not be brought about. */
static int may_be_over(const struct scene *scene,
		       const struct operation *operation)
{
	return scene->fault->err == FAULT_DIE ||
	       (operation->run == run_lower_limit && scene->status);
}

static int roll(struct kiln_tier *tier)
{
	for (unsigned n = 2000; n < 2040; n++)
		if (put_numbered(tier, n, LARGE, 0))
			return 0;
	return 1;
}

void check_listed(struct scene *scene, struct kiln_tier *tier)
{
	struct kiln_cursor cursor = { { 0 } };
	struct kiln_entry entry;
	enum kiln_status status;

	while (!(status = tier->ops->list(tier, &cursor, &entry))) {
		struct kiln_field field;

		if (entry.is_foreign) {
			kiln_entry_fini(&entry);
			continue;
		}
		if (kiln_record_find(kiln_blob_data(entry.record),
				     kiln_blob_size(entry.record), "number",
				     &field))
			fail_scene(scene, "a record is damaged");
		if (get_numbered(tier, ki_get_u32(field.data)) != KILN_OK)
			fail_scene(scene, "an entry that is listed is not "
					  "right");
		kiln_entry_fini(&entry);
	}
	if (status != KILN_END)
		fail_scene(scene, "the store cannot be listed");
}

/* At once the store may not say less than there is, and once it has evicted,
   which takes its time, it says the same. */
static void check_account(const struct scene *scene, struct kiln_tier *tier)
{
	const struct kind *kind = scene->kind;
	const char *wrong;

	if (!kind->check_account)
		return;
	wrong = kind->check_account(scene->directory, scene->is_whole);
	if (!wrong && scene->fault->n % 8 == 1) {
		roll(tier);
		wrong = kind->check_account(scene->directory, 1);
	}
	if (wrong)
		fail_scene(scene, wrong);
}

void check_scene(struct scene *scene, const struct operation *operation)
{
	struct kiln_tier *tier = open_real(scene->kind, scene->directory);

	if (scene->is_whole && operation->work != NO_WORK &&
	    work_of(scene->kind, tier, operation->work) <= scene->work_before)
		fail_scene(scene, "the operation did not do its work");
	if (operation->check)
		operation->check(scene, tier);
	for (unsigned n = 0; n < N_ENTRIES; n++) {
		int status = get_numbered(tier, n);

		if (status != KILN_OK && status != KILN_MISS)
			fail_scene(scene, "an entry is damaged");
		if (n && status == KILN_MISS && !may_lose(scene, operation))
			fail_scene(scene, "an entry that was not touched is "
					  "lost");
	}
	check_listed(scene, tier);
	if (!keeps_bound(scene, tier) &&
	    (!may_be_over(scene, operation) || !roll(tier) ||
	     !keeps_bound(scene, tier)))
		fail_scene(scene, "the bound is passed");
	if (put_numbered(tier, 300, 2000, 0) != KILN_OK ||
	    get_numbered(tier, 300) != KILN_OK)
		fail_scene(scene, "the store is of no use any more");
	check_account(scene, tier);
	tier->ops->close(tier);
}
