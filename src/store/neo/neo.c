/* SPDX-License-Identifier: MIT */

/*
 * The tier over a directory of Intel's compute runtime, which its driver may use
 * at the same time: docs/formats/neo.md.
 *
 * An entry is found by its record (records.h), never by a guessed name, and
 * handed out only if the whole key record is the same and the file, its size and
 * its bytes are those recorded.  Readers take no lock; what a driver wrote itself
 * is never handed out.
 *
 * No descriptor outlives a call but those of kiln.records and of the directory,
 * which guests do not keep either, and those of build locks.
 */

#include "store/neo/neo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/blob.h"
#include "base/status.h"
#include "key/key.h"
#include "store/neo/environment.h"

#define CHECK_NS  ((uint64_t)1000000000)
#define SECOND_NS ((int64_t)1000000000)
#define TRIES_MAX 16

static struct ki_neo *neo_of(struct kiln_tier *tier)
{
	return (struct ki_neo *)tier;
}

void ki_neo_say(const struct ki_neo *neo, enum kiln_log_level level,
		const char *path, const char *what)
{
	char line[KI_PATH_MAX + 128];

	ki_neo_print(neo, path, what);
	if (!neo->log)
		return;
	snprintf(line, sizeof(line), "%s: %s", path, what);
	neo->log(neo->log_arg, level, line);
}

enum kiln_status ki_neo_check_directory(struct ki_neo *neo)
{
	const char *why;
	enum kiln_status status = ki_directory_watch(
		neo->sys, neo->directory, neo->flags, &neo->watch, &why);

	if (why)
		ki_neo_say(neo, KILN_LOG_ERROR, neo->directory, why);
	return status;
}

uint64_t ki_neo_limit(struct ki_neo *neo)
{
	const uint64_t own = __atomic_load_n(&neo->bytes_max, __ATOMIC_ACQUIRE);
	const uint64_t noted = ki_records_settings(neo->records).bytes_max;

	if (noted == UINT64_MAX || !noted)
		return own;
	return own && own < noted ? own : noted;
}

int ki_neo_is_other_version(struct ki_neo *neo)
{
	return neo->user_version &&
	       ki_records_settings(neo->records).user_version !=
		       neo->user_version;
}

void ki_neo_note_generation(struct ki_neo *neo)
{
	const uint64_t generation =
		ki_records_settings(neo->records).generation;

	if (generation != __atomic_load_n(&neo->generation, __ATOMIC_RELAXED))
		__atomic_store_n(&neo->generation, generation,
				 __ATOMIC_RELEASE);
}

int ki_neo_refresh(struct ki_neo *neo)
{
	int changed = ki_records_refresh(neo->records);

	ki_neo_note_generation(neo);
	return changed;
}

/* At most once a second, whether somebody wiped it or moved it away. */
static void follow_others(struct ki_neo *neo)
{
	uint64_t now = neo->sys->coarse_ns(neo->sys);
	uint64_t then = __atomic_load_n(&neo->checked_ns, __ATOMIC_RELAXED);

	if (now - then >= CHECK_NS &&
	    __atomic_compare_exchange_n(&neo->checked_ns, &then, now, 0,
					__ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
		(void)ki_neo_refresh(neo);
		ki_neo_doubt_place(neo);
	}
}

/* ---- Get ----------------------------------------------------------------------------- */

static int is_expired(const struct ki_neo *neo, const struct ki_file_info *info)
{
	int64_t used_ns, age_ns;

	if (!neo->age_max_s)
		return 0;
	used_ns = info->atime_ns > info->mtime_ns ? info->atime_ns
						  : info->mtime_ns;
	age_ns = (int64_t)neo->sys->realtime_ns(neo->sys) - used_ns;
	return age_ns > 0 && (uint64_t)(age_ns / SECOND_NS) >= neo->age_max_s;
}

/* By one record: as ki_neo_load(). */
static enum kiln_status load_by(struct ki_neo *neo, const struct kiln_key *key,
				unsigned older, enum ki_neo_state *out_state,
				struct kiln_blob **out_value,
				struct kiln_blob **out_metadata)
{
	struct kiln_blob *value, *metadata = NULL;
	struct ki_neo_ahead ahead = { .fd = -1 };
	struct ki_record_found found;
	struct ki_file_info info;
	enum kiln_status status;

	*out_state = KI_NEO_GONE;
	if (ki_neo_is_other_version(neo))
		return KILN_MISS;
	if (!older)
		ki_neo_open_ahead(neo, key, &ahead);
	status = ki_records_find(neo->records, key, older, &found,
				 out_metadata ? &metadata : NULL);
	if (!status)
		status = ki_neo_load(neo, &found, !ki_neo_is_readonly(neo),
				     &ahead, out_state, &value, &info);
	ki_neo_close_ahead(neo, &ahead);
	if (!status && is_expired(neo, &info)) {
		kiln_blob_unref(value);
		status = KILN_MISS;
		*out_state = KI_NEO_THERE;
	}
	if (status) {
		kiln_blob_unref(metadata);
		return status;
	}
	value->place = __atomic_load_n(&neo->generation, __ATOMIC_ACQUIRE);
	*out_value = value;
	if (out_metadata)
		*out_metadata = metadata;
	return KILN_OK;
}

/*
 * A record and its file are looked at one after another, so a replacement may
 * come between: then there is a newer record, or its file has just got the name,
 * or one of the records before holds until it does.  Only of the newest record's
 * inode can it be said that nobody else has it by now.
 */
static enum kiln_status look_up(struct ki_neo *neo, const struct kiln_key *key,
				struct kiln_blob **out_value,
				struct kiln_blob **out_metadata)
{
	enum kiln_status status = KILN_MISS;
	enum ki_neo_state state = KI_NEO_GONE, newest = KI_NEO_GONE;
	unsigned older = 0, oldest = 0;

	follow_others(neo);
	for (int tries = 0; tries < TRIES_MAX; tries++) {
		const uint64_t known = ki_records_n_changes(neo->records);

		status = load_by(neo, key, older, &state, out_value,
				 out_metadata);
		if (!older)
			newest = state;
		if (older && status == KILN_E_FORMAT)
			status = KILN_MISS;
		if ((status != KILN_MISS && status != KILN_E_FORMAT) ||
		    state == KI_NEO_THERE)
			break;
		(void)ki_neo_refresh(neo);
		if (ki_records_n_changes(neo->records) != known)
			older = oldest = 0;
		else if (older)
			older = 0;
		else if (state == KI_NEO_TAKEN)
			older = ++oldest;
		else
			break;
	}
	if (status == KILN_E_FORMAT ||
	    (status == KILN_MISS && newest == KI_NEO_TAKEN))
		ki_neo_drop_unusable(neo, key);
	return status;
}

/* As the driver does: the key is traced before, the outcome counted after. */
static enum kiln_status look_up_watched(struct ki_neo *neo,
					const struct kiln_key *key,
					struct kiln_blob **out_value,
					struct kiln_blob **out_metadata)
{
	char name[KILN_NEO_NAME_BYTES];
	enum kiln_status status;

	ki_neo_name_key(neo, key, NULL, 0, name);
	ki_neo_trace(neo, key, name);
	status = look_up(neo, key, out_value, out_metadata);
	ki_neo_count_lookup(neo, key, status == KILN_OK);
	return status;
}

static enum kiln_status neo_get(struct kiln_tier *tier,
				const struct kiln_key *key,
				struct kiln_blob **out_value,
				struct kiln_blob **out_metadata)
{
	struct ki_neo *neo = neo_of(tier);

	if (ki_neo_check_directory(neo))
		return KILN_E_OWNER;
	return neo->traces || neo->keeps_stats
		       ? look_up_watched(neo, key, out_value, out_metadata)
		       : look_up(neo, key, out_value, out_metadata);
}

/* ---- Locks and counters -------------------------------------------------------------------- */

static enum kiln_status neo_lock(struct kiln_tier *tier,
				 const struct kiln_key *key,
				 uint32_t timeout_ms,
				 struct kiln_tier_lock **out_lock)
{
	return ki_tier_lock_build(&neo_of(tier)->locks, key, timeout_ms,
				  out_lock);
}

static void neo_unlock(struct kiln_tier *tier, struct kiln_tier_lock *lock)
{
	ki_tier_unlock(neo_of(tier)->sys, lock);
}

static enum kiln_status neo_count(struct kiln_tier *tier,
				  const uint64_t deltas[KILN_N_COUNTERS])
{
	struct ki_neo *neo = neo_of(tier);

	if (ki_directory_is_refused(&neo->watch))
		return KILN_E_OWNER;
	return ki_neo_is_readonly(neo)
		       ? KILN_E_READONLY
		       : ki_counters_add(neo->sys, neo->stats_path, neo->flags,
					 neo->application, deltas);
}

static enum kiln_status neo_counters(struct kiln_tier *tier,
				     struct kiln_store_counters *out_counters)
{
	struct ki_neo *neo = neo_of(tier);

	return ki_counters_read(neo->sys, neo->stats_path, out_counters);
}

static enum kiln_status neo_zero_counters(struct kiln_tier *tier)
{
	struct ki_neo *neo = neo_of(tier);

	if (ki_neo_is_readonly(neo))
		return KILN_E_READONLY;
	if (ki_neo_check_directory(neo))
		return KILN_E_OWNER;
	ki_neo_forget_lookups(neo);
	return ki_counters_zero(neo->sys, neo->stats_path, neo->flags);
}

/* ---- Open and close --------------------------------------------------------------------------- */

static int neo_is_live(struct kiln_tier *tier, const struct kiln_blob *blob)
{
	return !ki_directory_is_refused(&neo_of(tier)->watch) &&
	       blob->place == __atomic_load_n(&neo_of(tier)->generation,
					      __ATOMIC_ACQUIRE);
}

/* Unless somebody closed it, and its number is another's. */
static void leave_place(struct ki_neo *neo)
{
	const struct ki_sys *sys = neo->sys;
	uint64_t device, inode;

	if (neo->place_fd >= 0 &&
	    !sys->fidentify(sys, neo->place_fd, &device, &inode) &&
	    device == neo->place_device && inode == neo->place_inode)
		(void)sys->close(sys, neo->place_fd);
}

static void neo_close(struct kiln_tier *tier)
{
	struct ki_neo *neo = neo_of(tier);

	leave_place(neo);
	ki_records_close(neo->records);
	ki_neo_plan_end(&neo->plan);
	ki_neo_survey_end(&neo->survey);
	ki_mutex_fini(&neo->lister);
	ki_mutex_fini(&neo->writer);
	free(neo->directory);
	free(neo->config_path);
	free(neo->lock_path);
	free(neo->stats_path);
	free(neo);
}

static const struct kiln_tier_ops neo_ops = {
	.version = KILN_TIER_VERSION,
	.name = "neo",
	.get = neo_get,
	.put = ki_neo_put,
	.remove = ki_neo_remove,
	.wipe = ki_neo_wipe,
	.list = ki_neo_list,
	.verify = ki_neo_verify,
	.gc = ki_neo_gc,
	.set_limit = ki_neo_set_limit,
	.set_eviction = ki_neo_set_eviction,
	.info = ki_neo_info,
	.lock = neo_lock,
	.unlock = neo_unlock,
	.count = neo_count,
	.counters = neo_counters,
	.zero_counters = neo_zero_counters,
	.close = neo_close,
};

/* What may stand behind # in a URL: words with commas between. */
struct wishes {
	enum kiln_neo_layout layout;
	int at_once;
};

static int is_word(const char *text, size_t size, const char *word)
{
	return strlen(word) == size && !memcmp(text, word, size);
}

/* 1, or 0 if there is a word that is unknown, or a second layout. */
static int parse_wishes(const char *name, struct wishes *out_wishes)
{
	*out_wishes = (struct wishes){ .layout = KILN_NEO_DETECT };
	for (const char *word = name; word;) {
		const size_t size = strcspn(word, ",");
		enum kiln_neo_layout layout = KILN_NEO_DETECT;

		if (is_word(word, size, "flat"))
			layout = KILN_NEO_FLAT;
		else if (is_word(word, size, "tree"))
			layout = KILN_NEO_TREE;
		else if (is_word(word, size, "at-once"))
			out_wishes->at_once = 1;
		else
			return 0;
		if (layout && out_wishes->layout)
			return 0;
		if (layout)
			out_wishes->layout = layout;
		word = word[size] ? word + size + 1 : NULL;
	}
	return 1;
}

static char *join(const char *directory, const char *name)
{
	char path[KI_PATH_MAX];

	return ki_path_join(path, directory, name) ? NULL : strdup(path);
}

static struct ki_neo *new_neo(const struct ki_store_options *options)
{
	struct ki_neo *neo = calloc(1, sizeof(*neo));

	if (!neo)
		return NULL;
	neo->tier.ops = &neo_ops;
	neo->tier.generation = &neo->generation;
	neo->tier.is_live = neo_is_live;
	neo->sys = options->sys;
	neo->flags = options->flags;
	neo->application = options->application ? options->application : "";
	neo->user_version = options->user_version;
	neo->age_max_s = options->age_max_s;
	neo->bytes_max = options->bytes_max;
	neo->log = options->log;
	neo->log_arg = options->log_arg;
	neo->place_fd = -1;
	neo->name_mask = UINT64_MAX;
	neo->looks_max = KI_NEO_LOOKS;
	neo->step_max = KI_NEO_STEP;
	neo->wait_max_ns = UINT64_MAX;
	neo->fork_generation = ki_fork_generation();
	ki_mutex_init(&neo->writer, KI_RANK_STORE);
	ki_mutex_init(&neo->lister, KI_RANK_STORE);
	neo->directory = strdup(options->directory);
	neo->directory_size = strlen(options->directory);
	neo->config_path = join(options->directory, "config.file");
	neo->lock_path = join(options->directory, "kiln.lock");
	neo->stats_path = join(options->directory, "kiln.stats");
	if (!neo->directory || !neo->config_path || !neo->lock_path ||
	    !neo->stats_path) {
		neo_close(&neo->tier);
		return NULL;
	}
	neo->locks.sys = options->sys;
	neo->locks.path = neo->lock_path;
	neo->locks.directory = neo->directory;
	neo->locks.flags = options->flags;
	neo->locks.watch = &neo->watch;
	ki_directory_watch_begin(neo->sys, &neo->watch);
	return neo;
}

/* With more room on the stack than opening needs otherwise. */
__attribute__((noinline)) static void read_environment(struct ki_neo *neo)
{
	struct ki_neo_environment environment;

	ki_neo_environment(&environment);
	neo->traces = environment.traces;
	neo->messages = environment.messages;
	neo->keeps_stats = environment.keeps_stats;
}

static enum kiln_status open_directory(struct ki_neo *neo)
{
	const char *why = NULL;
	enum kiln_status status =
		ki_directory_check(neo->sys, neo->directory, neo->flags,
				   !ki_neo_is_readonly(neo), &why);

	if (status && why)
		ki_neo_say(neo, KILN_LOG_ERROR, neo->directory, why);
	return status == KILN_MISS ? KILN_E_IO : status;
}

/* Elsewhere a descriptor that is kept may not show what others write. */
static int is_local(const struct ki_neo *neo)
{
	enum ki_file_system kind = KI_FS_UNKNOWN;

	(void)neo->sys->file_system(neo->sys, neo->directory, &kind);
	return kind == KI_FS_LOCAL;
}

/* What cannot be told apart later is not kept. */
static void keep_place(struct ki_neo *neo)
{
	const struct ki_sys *sys = neo->sys;

	if ((neo->flags & KILN_OPEN_GUEST) || !is_local(neo))
		return;
	neo->place_fd = sys->open(sys, neo->directory, KI_OPEN_READ, 0);
	if (neo->place_fd < 0 ||
	    !sys->fidentify(sys, neo->place_fd, &neo->place_device,
			    &neo->place_inode))
		return;
	(void)sys->close(sys, neo->place_fd);
	neo->place_fd = -1;
}

static enum kiln_status open_records(struct ki_neo *neo)
{
	char path[KI_PATH_MAX];
	struct ki_records_options options = { .sys = neo->sys,
					      .path = path,
					      .flags = neo->flags };
	int err = ki_neo_path(neo, "kiln.records", path);
	enum kiln_status status;

	if (!is_local(neo))
		options.flags |= KILN_OPEN_GUEST;
	status = err ? ki_status_from_errno(err)
		     : ki_records_open(&options, &neo->records);
	if (!status)
		neo->generation = ki_records_settings(neo->records).generation;
	return status;
}

enum kiln_status ki_store_neo_open(const struct ki_store_options *options,
				   struct kiln_tier **out_tier)
{
	enum kiln_status status;
	struct wishes wishes;
	struct ki_neo *neo;
	int err;

	if (!parse_wishes(options->name, &wishes) ||
	    strlen(options->directory) + KI_RECORDS_NAME_MAX >= KI_PATH_MAX)
		return KILN_E_INVALID;
	neo = new_neo(options);
	if (!neo)
		return KILN_E_NO_MEMORY;
	err = neo->sys->random(neo->sys, &neo->random, sizeof(neo->random));
	neo->random |= 1;
	status = ki_status_from_errno(err);
	read_environment(neo);
	if (!status)
		status = open_directory(neo);
	neo->is_detected = wishes.layout == KILN_NEO_DETECT;
	neo->layout = neo->is_detected ? ki_neo_detect(neo->sys, neo->directory)
				       : wishes.layout;
	if (wishes.at_once)
		neo->looks_max = neo->step_max = SIZE_MAX;
	if (!status)
		status = open_records(neo);
	if (!status)
		keep_place(neo);
	if (!status)
		status = ki_neo_adopt_user_version(neo);
	if (!status)
		ki_neo_print_place(neo);
	if (status)
		neo_close(&neo->tier);
	else
		*out_tier = &neo->tier;
	return status;
}
