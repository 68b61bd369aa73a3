/* SPDX-License-Identifier: MIT */

/*
 * The tier over a directory of DPC++'s persistent cache, which SYCL programs may
 * use at the same time: docs/formats/sycl.md.
 *
 * A key that says what DPC++ says shares its entries with it, both ways.  What
 * kiln stored is found by its record (records.h), and handed out only if the
 * whole key record is the same and the file, its size and its bytes are those
 * recorded; what DPC++ stored only if its .src is the same in full.  Readers take
 * no lock and wait for nobody.
 *
 * No descriptor outlives a call but those of kiln.records, which guests do not
 * keep either, and those of build locks.
 */

#include "store/sycl/sycl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/blob.h"
#include "base/status.h"
#include "key/key.h"

#define CHECK_NS	  ((uint64_t)1000000000)
#define SECOND_NS	  ((int64_t)1000000000)
#define RENEW_NS	  ((uint64_t)60 * 1000000000)
#define TRIES_MAX	  16
#define FOREIGN_TRIES_MAX 3

static struct ki_sycl *sycl_of(struct kiln_tier *tier)
{
	return (struct ki_sycl *)tier;
}

void ki_sycl_say(const struct ki_sycl *sycl, enum kiln_log_level level,
		 const char *path, const char *what)
{
	char line[KI_PATH_MAX + 128];

	if (!sycl->log)
		return;
	snprintf(line, sizeof(line), "%s: %s", path, what);
	sycl->log(sycl->log_arg, level, line);
}

uint64_t ki_sycl_limit(struct ki_sycl *sycl)
{
	const uint64_t own =
		__atomic_load_n(&sycl->bytes_max, __ATOMIC_ACQUIRE);
	const uint64_t noted = ki_records_settings(sycl->records).bytes_max;

	if (noted == UINT64_MAX || !noted)
		return own;
	return own && own < noted ? own : noted;
}

int ki_sycl_is_other_version(struct ki_sycl *sycl)
{
	return sycl->user_version &&
	       ki_records_settings(sycl->records).user_version !=
		       sycl->user_version;
}

void ki_sycl_note_generation(struct ki_sycl *sycl)
{
	const uint64_t generation =
		ki_records_settings(sycl->records).generation;

	if (generation != __atomic_load_n(&sycl->generation, __ATOMIC_RELAXED))
		__atomic_store_n(&sycl->generation, generation,
				 __ATOMIC_RELEASE);
}

int ki_sycl_refresh(struct ki_sycl *sycl)
{
	int changed = ki_records_refresh(sycl->records);

	ki_sycl_note_generation(sycl);
	return changed;
}

/* Before each call reads or writes. */
static enum kiln_status check_directory(struct ki_sycl *sycl)
{
	const char *why;
	enum kiln_status status = ki_directory_watch(
		sycl->sys, sycl->directory, sycl->flags, &sycl->watch, &why);

	if (why)
		ki_sycl_say(sycl, KILN_LOG_ERROR, sycl->directory, why);
	return status;
}

/* At most once a second, whether somebody wiped it. */
static void follow_others(struct ki_sycl *sycl)
{
	uint64_t now = sycl->sys->coarse_ns(sycl->sys);
	uint64_t then = __atomic_load_n(&sycl->checked_ns, __ATOMIC_RELAXED);

	if (now - then >= CHECK_NS &&
	    __atomic_compare_exchange_n(&sycl->checked_ns, &then, now, 0,
					__ATOMIC_RELAXED, __ATOMIC_RELAXED))
		(void)ki_sycl_refresh(sycl);
}

/* ---- Get ----------------------------------------------------------------------------- */

int ki_sycl_is_expired(const struct ki_sycl *sycl, const char *stem,
		       const struct ki_file_info *info)
{
	int64_t used_ns, age_ns;

	if (!sycl->age_max_s)
		return 0;
	if (ki_sycl_read_use(sycl, stem, &used_ns))
		used_ns = info->atime_ns > info->mtime_ns ? info->atime_ns
							  : info->mtime_ns;
	age_ns = (int64_t)sycl->sys->realtime_ns(sycl->sys) - used_ns;
	return age_ns > 0 && (uint64_t)(age_ns / SECOND_NS) >= sycl->age_max_s;
}

/* By the first hit of a process, and once a minute afterwards: so the order of
   eviction is that of use, and who hits the same all the time writes nothing. */
static void note_use(const struct ki_sycl *sycl,
		     const struct ki_record_found *found, const char *stem)
{
	const uint64_t now_ns = sycl->sys->realtime_ns(sycl->sys);

	if (ki_sycl_is_readonly(sycl))
		return;
	/* A clock that was put back, or on, makes it due. */
	if (found->trusted_ns > now_ns &&
	    found->trusted_ns - now_ns <= RENEW_NS)
		return;
	if (!ki_sycl_write_use(sycl, stem, (int64_t)now_ns))
		ki_records_trust(sycl->records, found, now_ns + RENEW_NS);
}

/* As ki_sycl_load(), and before it: as long as .bin is there nobody gives its .src
   to another. */
static enum kiln_status check_key(struct ki_sycl *sycl,
				  const struct kiln_key *key,
				  const struct ki_record_found *found,
				  enum ki_sycl_state *out_state)
{
	enum kiln_status status = ki_sycl_check_key(sycl, found, key);
	struct ki_file_info info;

	if (status != KILN_MISS && status != KILN_E_FORMAT)
		return status;
	(void)ki_sycl_state(sycl, found, out_state, &info);
	if (status == KILN_MISS || *out_state != KI_SYCL_THERE)
		return KILN_MISS;
	*out_state = KI_SYCL_DAMAGED;
	return KILN_E_FORMAT;
}

/* By one record: as ki_sycl_load(). */
static enum kiln_status load_by(struct ki_sycl *sycl,
				const struct kiln_key *key, unsigned older,
				enum ki_sycl_state *out_state,
				struct kiln_blob **out_value,
				struct kiln_blob **out_metadata)
{
	struct kiln_blob *value, *metadata = NULL;
	char stem[KI_SYCL_NAME_BYTES];
	struct ki_record_found found;
	struct ki_file_info info;
	enum kiln_status status;

	*out_state = KI_SYCL_GONE;
	if (ki_sycl_is_other_version(sycl))
		return KILN_MISS;
	status = ki_records_find(sycl->records, key, older, &found,
				 out_metadata ? &metadata : NULL);
	if (!status)
		status = check_key(sycl, key, &found, out_state);
	if (!status)
		status = ki_sycl_load(sycl, &found, out_state, &value, &info);
	if (!status) {
		ki_sycl_stem(found.name, stem);
		if (ki_sycl_is_expired(sycl, stem, &info)) {
			kiln_blob_unref(value);
			status = KILN_MISS;
		}
	}
	if (status) {
		kiln_blob_unref(metadata);
		return status;
	}
	note_use(sycl, &found, stem);
	ki_sycl_trace_file(sycl, "using cached device binary: ", stem, ".bin;");
	value->place = __atomic_load_n(&sycl->generation, __ATOMIC_ACQUIRE);
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
static enum kiln_status look_up_own(struct ki_sycl *sycl,
				    const struct kiln_key *key,
				    struct kiln_blob **out_value,
				    struct kiln_blob **out_metadata)
{
	enum kiln_status status = KILN_MISS;
	enum ki_sycl_state state = KI_SYCL_GONE, newest = KI_SYCL_GONE;
	unsigned older = 0, oldest = 0;

	for (int tries = 0; tries < TRIES_MAX; tries++) {
		const uint64_t known = ki_records_n_changes(sycl->records);

		status = load_by(sycl, key, older, &state, out_value,
				 out_metadata);
		if (!older)
			newest = state;
		if (older && status == KILN_E_FORMAT)
			status = KILN_MISS;
		if ((status != KILN_MISS && status != KILN_E_FORMAT) ||
		    state == KI_SYCL_THERE || state == KI_SYCL_LOCKED)
			break;
		(void)ki_sycl_refresh(sycl);
		if (ki_records_n_changes(sycl->records) != known)
			older = oldest = 0;
		else if (older)
			older = 0;
		else if (state == KI_SYCL_TAKEN)
			older = ++oldest;
		else
			break;
	}
	if (status == KILN_E_FORMAT ||
	    (status == KILN_MISS && newest == KI_SYCL_TAKEN))
		ki_sycl_drop_unusable(sycl, key);
	return status;
}

/* Where DPC++ looks. */
static enum kiln_status look_up_foreign(struct ki_sycl *sycl,
					const struct kiln_key *key,
					const struct ki_sycl_fields *fields,
					struct kiln_blob **out_value,
					struct kiln_blob **out_metadata)
{
	char place[KI_SYCL_PLACE_BYTES], stem[KI_SYCL_NAME_BYTES];
	struct ki_file_info info;
	struct kiln_blob *value;
	enum kiln_status status;

	ki_sycl_place(key, fields, place);
	status = ki_sycl_find_foreign(sycl, place, fields, stem, &value);
	if (status)
		return status;
	if (ki_sycl_look(sycl, stem, ".bin", &info) ||
	    ki_sycl_is_expired(sycl, stem, &info))
		status = KILN_MISS;
	if (!status && out_metadata)
		status = kiln_blob_copy("", 0, out_metadata);
	if (status) {
		kiln_blob_unref(value);
		return status;
	}
	ki_sycl_trace_file(sycl, "using cached device binary: ", stem, ".bin;");
	if (!ki_sycl_is_readonly(sycl))
		(void)ki_sycl_write_use(
			sycl, stem, (int64_t)sycl->sys->realtime_ns(sycl->sys));
	value->place = __atomic_load_n(&sycl->generation, __ATOMIC_ACQUIRE);
	*out_value = value;
	return KILN_OK;
}

static enum kiln_status sycl_get(struct kiln_tier *tier,
				 const struct kiln_key *key,
				 struct kiln_blob **out_value,
				 struct kiln_blob **out_metadata)
{
	struct ki_sycl *sycl = sycl_of(tier);
	struct ki_sycl_fields fields;
	enum kiln_status status;
	uint64_t known;
	int tries = 0;

	if (check_directory(sycl))
		return KILN_E_OWNER;
	follow_others(sycl);
	ki_sycl_fields_of(key, &fields);
	do {
		known = ki_records_n_changes(sycl->records);
		status = look_up_own(sycl, key, out_value, out_metadata);
		if (!status || status == KILN_E_NO_MEMORY || !fields.is_shared)
			return status;
		/* What is wrong with ours says nothing of theirs. */
		if (!look_up_foreign(sycl, key, &fields, out_value,
				     out_metadata))
			return KILN_OK;
		/* What seemed theirs may turn out to be ours. */
	} while (ki_records_n_changes(sycl->records) != known &&
		 ++tries < FOREIGN_TRIES_MAX);
	return status;
}

/* ---- Where the directory is as it was when it was opened ---------------------- */

static enum kiln_status sycl_put(struct kiln_tier *tier,
				 const struct kiln_key *key,
				 const void *metadata, size_t metadata_size,
				 const void *value, size_t value_size,
				 unsigned flags)
{
	enum kiln_status status = check_directory(sycl_of(tier));

	return status ? status
		      : ki_sycl_put(tier, key, metadata, metadata_size, value,
				    value_size, flags);
}

static enum kiln_status sycl_remove(struct kiln_tier *tier,
				    const struct kiln_key *key)
{
	enum kiln_status status = check_directory(sycl_of(tier));

	return status ? status : ki_sycl_remove(tier, key);
}

static enum kiln_status sycl_wipe(struct kiln_tier *tier)
{
	enum kiln_status status = check_directory(sycl_of(tier));

	return status ? status : ki_sycl_wipe(tier);
}

static enum kiln_status sycl_list(struct kiln_tier *tier,
				  struct kiln_cursor *cursor,
				  struct kiln_entry *out_entry)
{
	enum kiln_status status = check_directory(sycl_of(tier));

	return status ? status : ki_sycl_list(tier, cursor, out_entry);
}

static enum kiln_status sycl_verify(struct kiln_tier *tier, unsigned flags,
				    kiln_progress_fn *progress, void *arg,
				    struct kiln_verify_report *out_report)
{
	enum kiln_status status = check_directory(sycl_of(tier));

	return status ? status
		      : ki_sycl_verify(tier, flags, progress, arg, out_report);
}

static enum kiln_status sycl_gc(struct kiln_tier *tier,
				const struct kiln_gc_options *options,
				kiln_progress_fn *progress, void *arg,
				struct kiln_gc_report *out_report)
{
	enum kiln_status status = check_directory(sycl_of(tier));

	return status ? status
		      : ki_sycl_gc(tier, options, progress, arg, out_report);
}

static enum kiln_status sycl_set_limit(struct kiln_tier *tier,
				       uint64_t bytes_max)
{
	enum kiln_status status = check_directory(sycl_of(tier));

	return status ? status : ki_sycl_set_limit(tier, bytes_max);
}

static enum kiln_status sycl_set_eviction(struct kiln_tier *tier,
					  enum kiln_eviction eviction)
{
	enum kiln_status status = check_directory(sycl_of(tier));

	return status ? status : ki_sycl_set_eviction(tier, eviction);
}

static enum kiln_status sycl_info(struct kiln_tier *tier,
				  struct kiln_store_info *out_info)
{
	enum kiln_status status = check_directory(sycl_of(tier));

	return status ? status : ki_sycl_info(tier, out_info);
}

/* ---- Locks and counters -------------------------------------------------------------------- */

static enum kiln_status sycl_lock(struct kiln_tier *tier,
				  const struct kiln_key *key,
				  uint32_t timeout_ms,
				  struct kiln_tier_lock **out_lock)
{
	return ki_tier_lock_build(&sycl_of(tier)->locks, key, timeout_ms,
				  out_lock);
}

static void sycl_unlock(struct kiln_tier *tier, struct kiln_tier_lock *lock)
{
	ki_tier_unlock(sycl_of(tier)->sys, lock);
}

static enum kiln_status sycl_count(struct kiln_tier *tier,
				   const uint64_t deltas[KILN_N_COUNTERS])
{
	struct ki_sycl *sycl = sycl_of(tier);

	if (ki_directory_is_refused(&sycl->watch))
		return KILN_E_OWNER;
	return ki_sycl_is_readonly(sycl)
		       ? KILN_E_READONLY
		       : ki_counters_add(sycl->sys, sycl->stats_path,
					 sycl->flags, sycl->application,
					 deltas);
}

static enum kiln_status sycl_counters(struct kiln_tier *tier,
				      struct kiln_store_counters *out_counters)
{
	struct ki_sycl *sycl = sycl_of(tier);

	return ki_counters_read(sycl->sys, sycl->stats_path, out_counters);
}

static enum kiln_status sycl_zero_counters(struct kiln_tier *tier)
{
	struct ki_sycl *sycl = sycl_of(tier);

	if (check_directory(sycl))
		return KILN_E_OWNER;
	return ki_sycl_is_readonly(sycl)
		       ? KILN_E_READONLY
		       : ki_counters_zero(sycl->sys, sycl->stats_path,
					  sycl->flags);
}

/* ---- Open and close --------------------------------------------------------------------------- */

static int sycl_is_live(struct kiln_tier *tier, const struct kiln_blob *blob)
{
	return !ki_directory_is_refused(&sycl_of(tier)->watch) &&
	       blob->place == __atomic_load_n(&sycl_of(tier)->generation,
					      __ATOMIC_ACQUIRE);
}

static void sycl_close(struct kiln_tier *tier)
{
	struct ki_sycl *sycl = sycl_of(tier);

	ki_records_close(sycl->records);
	ki_sycl_plan_end(&sycl->plan);
	ki_bytes_fini(&sycl->taken);
	ki_sycl_survey_end(&sycl->survey);
	ki_mutex_fini(&sycl->lister);
	ki_mutex_fini(&sycl->writer);
	free(sycl->directory);
	free(sycl->size_path);
	free(sycl->evict_path);
	free(sycl->evict_other);
	free(sycl->held_path);
	free(sycl->lock_path);
	free(sycl->stats_path);
	free(sycl);
}

static const struct kiln_tier_ops sycl_ops = {
	.version = KILN_TIER_VERSION,
	.name = "sycl",
	.get = sycl_get,
	.put = sycl_put,
	.remove = sycl_remove,
	.wipe = sycl_wipe,
	.list = sycl_list,
	.verify = sycl_verify,
	.gc = sycl_gc,
	.set_limit = sycl_set_limit,
	.set_eviction = sycl_set_eviction,
	.info = sycl_info,
	.lock = sycl_lock,
	.unlock = sycl_unlock,
	.count = sycl_count,
	.counters = sycl_counters,
	.zero_counters = sycl_zero_counters,
	.close = sycl_close,
};

static char *join(const char *directory, const char *name)
{
	char path[KI_PATH_MAX];

	return ki_path_join(path, directory, name) ? NULL : strdup(path);
}

/* DPC++ puts it behind the directory's name as that was given: beside the directory,
   or in it if there is a slash at the end. */
static int set_evict_paths(struct ki_sycl *sycl, const char *directory)
{
	static const char name[] = "_eviction_in_progress";
	size_t size = strlen(directory);
	const char *slash = size > 1 && directory[size - 1] == '/' ? "" : "/";

	if (asprintf(&sycl->evict_path, "%s%s", directory, name) < 0)
		sycl->evict_path = NULL;
	while (size > 1 && directory[size - 1] == '/')
		size--;
	if (asprintf(&sycl->evict_other, "%.*s%s%s", (int)size, directory,
		     slash, name) < 0)
		sycl->evict_other = NULL;
	return sycl->evict_path && sycl->evict_other;
}

static struct ki_sycl *new_sycl(const struct ki_store_options *options)
{
	struct ki_sycl *sycl = calloc(1, sizeof(*sycl));

	if (!sycl)
		return NULL;
	sycl->tier.ops = &sycl_ops;
	sycl->tier.generation = &sycl->generation;
	sycl->tier.is_live = sycl_is_live;
	sycl->sys = options->sys;
	sycl->flags = options->flags;
	sycl->application = options->application ? options->application : "";
	sycl->user_version = options->user_version;
	sycl->age_max_s = options->age_max_s;
	sycl->bytes_max = options->bytes_max;
	sycl->log = options->log;
	sycl->log_arg = options->log_arg;
	sycl->looks_max = KI_SYCL_LOOKS;
	sycl->step_max = KI_SYCL_STEP;
	sycl->wait_max_ns = UINT64_MAX;
	sycl->stale_ns = KI_SYCL_STALE_NS;
	sycl->fork_generation = ki_fork_generation();
	ki_bytes_init(&sycl->taken);
	ki_mutex_init(&sycl->writer, KI_RANK_STORE);
	ki_mutex_init(&sycl->lister, KI_RANK_STORE);
	sycl->directory = strdup(options->directory);
	sycl->directory_size = strlen(options->directory);
	sycl->size_path = join(options->directory, "cache_size.txt");
	sycl->held_path = join(options->directory, "kiln.held");
	sycl->lock_path = join(options->directory, "kiln.lock");
	sycl->stats_path = join(options->directory, "kiln.stats");
	if (!set_evict_paths(sycl, options->directory) || !sycl->directory ||
	    !sycl->size_path || !sycl->held_path || !sycl->lock_path ||
	    !sycl->stats_path) {
		sycl_close(&sycl->tier);
		return NULL;
	}
	sycl->locks.sys = options->sys;
	sycl->locks.path = sycl->lock_path;
	sycl->locks.directory = sycl->directory;
	sycl->locks.flags = options->flags;
	sycl->locks.watch = &sycl->watch;
	ki_directory_watch_begin(sycl->sys, &sycl->watch);
	return sycl;
}

static enum kiln_status open_directory(struct ki_sycl *sycl)
{
	const char *why = NULL;
	enum kiln_status status =
		ki_directory_check(sycl->sys, sycl->directory, sycl->flags,
				   !ki_sycl_is_readonly(sycl), &why);

	if (status && why)
		ki_sycl_say(sycl, KILN_LOG_ERROR, sycl->directory, why);
	return status == KILN_MISS ? KILN_E_IO : status;
}

static enum kiln_status open_records(struct ki_sycl *sycl)
{
	char path[KI_PATH_MAX];
	struct ki_records_options options = { .sys = sycl->sys,
					      .path = path,
					      .flags = sycl->flags };
	enum ki_file_system kind = KI_FS_UNKNOWN;
	int err = ki_sycl_path(sycl, "kiln.records", path);
	enum kiln_status status;

	/* Elsewhere a mapping may not show what others write. */
	(void)sycl->sys->file_system(sycl->sys, sycl->directory, &kind);
	if (kind != KI_FS_LOCAL)
		options.flags |= KILN_OPEN_GUEST;
	status = err ? ki_status_from_errno(err)
		     : ki_records_open(&options, &sycl->records);
	if (!status)
		sycl->generation =
			ki_records_settings(sycl->records).generation;
	return status;
}

/* What a dead kiln holds, DPC++ would wait for without end: not until somebody
   writes again. */
static void free_the_dead(struct ki_sycl *sycl)
{
	struct ki_file_info info;
	struct ki_sycl_turn turn;

	if (ki_sycl_is_readonly(sycl) ||
	    sycl->sys->lstat(sycl->sys, sycl->held_path, &info) ||
	    info.n_links < 2)
		return;
	if (!ki_sycl_turn_begin(sycl, 0, &turn))
		(void)ki_sycl_turn_end(sycl, &turn);
}

enum kiln_status ki_store_sycl_open(const struct ki_store_options *options,
				    struct kiln_tier **out_tier)
{
	enum kiln_status status;
	struct ki_sycl *sycl;
	int err;

	if (strlen(options->directory) + KI_RECORDS_NAME_MAX >= KI_PATH_MAX)
		return KILN_E_INVALID;
	sycl = new_sycl(options);
	if (!sycl)
		return KILN_E_NO_MEMORY;
	err = sycl->sys->random(sycl->sys, &sycl->random, sizeof(sycl->random));
	sycl->random |= 1;
	status = ki_status_from_errno(err);
	if (!status)
		status = open_directory(sycl);
	if (!status)
		status = open_records(sycl);
	if (!status)
		status = ki_sycl_adopt_user_version(sycl);
	if (status) {
		sycl_close(&sycl->tier);
		return status;
	}
	ki_sycl_trace_begin(sycl);
	free_the_dead(sycl);
	*out_tier = &sycl->tier;
	return KILN_OK;
}
