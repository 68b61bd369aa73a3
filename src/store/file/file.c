/* SPDX-License-Identifier: MIT */

/*
 * The tier of one file per entry: for network file systems and any that kiln
 * does not know.  It needs from them only names that appear whole (link or
 * rename of a written file) and is right without locks, mappings, access times
 * or a common clock.  Every hit is read and verified in full.
 *
 * A hit on an entry not used for a minute renews its modification time, by
 * which the sweep in room.c chooses.  No descriptor outlives a call, but for
 * that of a build lock.
 */

#include "store/file/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/blob.h"
#include "base/status.h"
#include "key/key.h"

#define TOUCH_NS      ((int64_t)60 * 1000000000)
#define SECOND_NS     ((int64_t)1000000000)
#define PUTS_PER_TIDY 64
#define TRIES_MAX     3

static struct ki_file_store *store_of(struct kiln_tier *tier)
{
	return (struct ki_file_store *)tier;
}

static int is_of_key(const struct ki_envelope *envelope,
		     const struct kiln_key *key)
{
	size_t size;
	const void *record = kiln_key_record(key, &size);

	return envelope->record_size == size &&
	       !memcmp(envelope->record, record, size);
}

/* ---- Get ----------------------------------------------------------------- */

static int is_expired(struct ki_file_store *store, int64_t age_ns)
{
	const uint64_t age_max_s = ki_file_settings_now(store).age_max_s;

	return age_max_s && age_ns > 0 &&
	       (uint64_t)(age_ns / SECOND_NS) >= age_max_s;
}

/* What a hit owes to the order of last use. */
static void note_use(const struct ki_file_store *store,
		     const uint8_t digest[KILN_DIGEST_BYTES], int64_t age_ns)
{
	char path[KI_PATH_MAX];

	if (ki_file_is_readonly(store) ||
	    (age_ns < TOUCH_NS && age_ns > -TOUCH_NS))
		return;
	if (!ki_file_entry_path(store, digest, path))
		(void)store->sys->touch(store->sys, path);
}

static void set_aside(const struct ki_file_store *store,
		      const struct kiln_key *key,
		      const struct ki_file_loaded *loaded,
		      enum ki_file_aside what)
{
	if (!ki_file_is_readonly(store) &&
	    ki_file_set_aside(store, key->digest, &loaded->info, what) ==
		    KI_FILE_IS_ASIDE)
		ki_file_say_aside(store, key->digest);
}

/* The whole file's blob becomes the value's. */
static struct kiln_blob *narrow(const struct ki_file_store *store,
				const struct ki_file_loaded *loaded)
{
	struct kiln_blob *blob = loaded->bytes;

	blob->data = loaded->envelope.value;
	blob->size = loaded->envelope.value_size;
	blob->place = __atomic_load_n(&store->generation, __ATOMIC_ACQUIRE);
	return blob;
}

static enum kiln_status file_get(struct kiln_tier *tier,
				 const struct kiln_key *key,
				 struct kiln_blob **out_value,
				 struct kiln_blob **out_metadata)
{
	struct ki_file_store *store = store_of(tier);
	struct ki_file_loaded loaded;
	enum kiln_status status;
	int64_t age_ns;

	if (ki_file_settings_check(store, KI_FILE_AT_TIMES))
		return KILN_E_OWNER;
	if (ki_file_is_other_version(store))
		return KILN_MISS;
	status = ki_file_load(store, key->digest, &loaded);
	if (status == KILN_E_FORMAT)
		set_aside(store, key, &loaded, KI_FILE_QUARANTINE);
	if (status == KILN_E_UNSUPPORTED)
		return KILN_MISS;
	if (status)
		return status;

	age_ns = (int64_t)store->sys->realtime_ns(store->sys) -
		 loaded.info.mtime_ns;
	status = KILN_E_COLLISION;
	if (!is_of_key(&loaded.envelope, key))
		goto out;
	status = KILN_MISS;
	if (is_expired(store, age_ns)) {
		set_aside(store, key, &loaded, KI_FILE_DROP);
		goto out;
	}
	status = KILN_OK;
	if (out_metadata)
		status = kiln_blob_copy(loaded.envelope.metadata,
					loaded.envelope.metadata_size,
					out_metadata);
	if (status)
		goto out;
	note_use(store, key->digest, age_ns);
	*out_value = narrow(store, &loaded);
	loaded.bytes = NULL;
out:
	kiln_blob_unref(loaded.bytes);
	return status;
}

/* ---- Put ----------------------------------------------------------------- */

/* Whether a name is that of something no store ever made. */
static int is_foreign(const struct ki_file_store *store,
		      const struct kiln_key *key)
{
	struct ki_file_info info;
	char path[KI_PATH_MAX];

	return !ki_file_entry_path(store, key->digest, path) &&
	       !store->sys->lstat(store->sys, path, &info) &&
	       !S_ISREG(info.mode);
}

/* Who has the name: EXISTS, COLLISION, or MISS if it is free now, *out_aside if a
   damaged one has made way.  Under the lock, where there is one. */
static enum kiln_status judge_occupant(struct ki_file_store *store,
				       const struct kiln_key *key,
				       int *out_aside)
{
	struct ki_file_loaded loaded;
	enum kiln_status status = ki_file_load(store, key->digest, &loaded);
	enum ki_file_aside what = KI_FILE_DROP;
	int is_gone;

	switch (status) {
	case KILN_OK:
		status = is_of_key(&loaded.envelope, key) ? KILN_EXISTS
							  : KILN_E_COLLISION;
		kiln_blob_unref(loaded.bytes);
		return status;
	case KILN_E_FORMAT:
		what = KI_FILE_QUARANTINE;
		break;
	case KILN_MISS:
		if (is_foreign(store, key))
			return KILN_E_COLLISION;
		if (!loaded.info.inode)
			return KILN_MISS; /* gone meanwhile */
		break; /* a name that is claimed, or another version's */
	case KILN_E_UNSUPPORTED:
		return KILN_EXISTS; /* a newer format's */
	default:
		return status;
	}
	is_gone = ki_file_set_aside(store, key->digest, &loaded.info, what);
	*out_aside |= is_gone == KI_FILE_IS_ASIDE;
	return is_gone ? KILN_MISS : KILN_E_IO;
}

static enum kiln_status write_entry(struct ki_file_store *store,
				    const struct kiln_key *key,
				    const struct ki_envelope *envelope,
				    unsigned flags, int *out_aside)
{
	int tries, err = 0;

	if ((flags & KILN_PUT_REPLACE) && is_foreign(store, key))
		return KILN_E_COLLISION;
	for (tries = 0; tries < TRIES_MAX; tries++) {
		enum kiln_status status;

		err = ki_file_write(store, envelope,
				    !!(flags & KILN_PUT_REPLACE));
		if (err != -EEXIST)
			return ki_status_from_errno(err);
		status = judge_occupant(store, key, out_aside);
		if (status != KILN_MISS)
			return status;
	}
	return KILN_E_IO;
}

static enum kiln_status put_once(struct ki_file_store *store,
				 const struct kiln_key *key,
				 const struct ki_envelope *envelope,
				 unsigned flags)
{
	const uint64_t size = ki_envelope_size(envelope);
	struct ki_file_room room;
	enum kiln_status status;
	int has_aside = 0;

	if (!size)
		return KILN_E_TOO_LARGE;
	status = ki_file_room_begin(store, size, &room);
	if (status)
		return status;
	status = write_entry(store, key, envelope, flags, &has_aside);
	ki_file_room_finish(store, &room, !status);
	if (has_aside)
		ki_file_say_aside(store, key->digest);
	return status;
}

/* S16: someone removed the whole store. */
static int is_gone(const struct ki_file_store *store)
{
	struct ki_file_info info;

	return store->sys->lstat(store->sys, store->root, &info) == -ENOENT;
}

static int tidy_temporary(void *arg, enum ki_file_kind kind,
			  const uint8_t digest[KILN_DIGEST_BYTES],
			  const char *path, const char *name,
			  const struct ki_file_info *info)
{
	const struct ki_file_store *store = arg;
	const struct ki_sys *sys = store->sys;

	if (kind == KI_FILE_TEMPORARY &&
	    ki_temporary_is_abandoned(sys, &store->writer, name, info->mtime_ns,
				      (int64_t)sys->realtime_ns(sys), 0))
		(void)sys->unlink(sys, path);
	return 0;
}

/* Unbounded stores never sweep: look at one fan now and then. */
static void tidy_sometimes(struct ki_file_store *store, unsigned fan)
{
	char path[KI_PATH_MAX];

	if (__atomic_fetch_add(&store->n_puts, 1, __ATOMIC_RELAXED) %
	    PUTS_PER_TIDY)
		return;
	if (!ki_file_fan_path(store, fan, path))
		(void)ki_file_walk(store, path, tidy_temporary, store);
}

static enum kiln_status file_put(struct kiln_tier *tier,
				 const struct kiln_key *key,
				 const void *metadata, size_t metadata_size,
				 const void *value, size_t value_size,
				 unsigned flags)
{
	struct ki_file_store *store = store_of(tier);
	struct ki_envelope envelope = { .metadata = metadata,
					.metadata_size = metadata_size,
					.value = value,
					.value_size = value_size };
	enum kiln_status status;

	if (ki_file_is_readonly(store))
		return KILN_E_READONLY;
	envelope.record = kiln_key_record(key, &envelope.record_size);
	memcpy(envelope.digest, key->digest, KILN_DIGEST_BYTES);
	if (ki_file_settings_check(store, KI_FILE_NOW))
		return KILN_E_OWNER;
	if (ki_file_is_other_version(store))
		return KILN_E_FORMAT;
	envelope.user_version = ki_file_settings_now(store).user_version;
	status = put_once(store, key, &envelope, flags);
	if (status == KILN_E_IO && is_gone(store)) {
		status = ki_file_settings_open(store);
		if (!status)
			status = put_once(store, key, &envelope, flags);
	}
	if (!status)
		tidy_sometimes(store, key->digest[0]);
	return status;
}

/* ---- Remove and wipe -------------------------------------------------------- */

static enum kiln_status file_remove(struct kiln_tier *tier,
				    const struct kiln_key *key)
{
	struct ki_file_store *store = store_of(tier);
	struct ki_file_loaded loaded;
	enum kiln_status status;
	char path[KI_PATH_MAX];
	int is_ours, err;

	if (ki_file_is_readonly(store))
		return KILN_E_READONLY;
	if (ki_file_settings_check(store, KI_FILE_NOW))
		return KILN_E_OWNER;
	if (ki_file_is_other_version(store))
		return KILN_E_FORMAT;
	status = ki_file_load(store, key->digest, &loaded);
	if (status == KILN_E_FORMAT) {
		set_aside(store, key, &loaded, KI_FILE_QUARANTINE);
		return KILN_MISS;
	}
	if (status)
		return status == KILN_E_UNSUPPORTED ? KILN_MISS : status;
	is_ours = is_of_key(&loaded.envelope, key);
	kiln_blob_unref(loaded.bytes);
	if (!is_ours)
		return KILN_MISS;
	err = ki_file_entry_path(store, key->digest, path);
	if (!err)
		err = ki_file_unlink(store, path);
	return err == -ENOENT ? KILN_MISS : ki_status_from_errno(err);
}

static int unlink_entry(void *arg, enum ki_file_kind kind,
			const uint8_t digest[KILN_DIGEST_BYTES],
			const char *path, const char *name,
			const struct ki_file_info *info)
{
	const struct ki_file_store *store = arg;
	int err = 0;

	if (kind == KI_FILE_ENTRY)
		err = ki_file_unlink(store, path);
	return err == -ENOENT ? 0 : err;
}

static int unlink_all(struct ki_file_store *store)
{
	char path[KI_PATH_MAX];
	int err = ki_path_join(path, store->root, "quarantine");

	if (!err)
		err = ki_file_walk(store, path, unlink_entry, store);
	return err ? err : ki_file_walk_all(store, unlink_entry, store);
}

static enum kiln_status wipe(struct ki_file_store *store,
			     const struct ki_file_change *change)
{
	enum kiln_status status = ki_file_settings_change(store, change);

	/* On a full disk settings have room where entries were. */
	if (status == KILN_E_FULL && !unlink_all(store))
		status = ki_file_settings_change(store, change);
	if (!status)
		status = ki_status_from_errno(unlink_all(store));
	return status ? status : ki_file_sweep(store, NULL);
}

static enum kiln_status file_wipe(struct kiln_tier *tier)
{
	struct ki_file_store *store = store_of(tier);

	if (ki_file_is_readonly(store))
		return KILN_E_READONLY;
	if (ki_file_settings_check(store, KI_FILE_NOW))
		return KILN_E_OWNER;
	if (is_gone(store))
		return ki_file_settings_open(store);
	return wipe(store, &(struct ki_file_change){ .is_wipe = 1 });
}

/* ---- Locks and counters ------------------------------------------------------ */

static enum kiln_status file_lock(struct kiln_tier *tier,
				  const struct kiln_key *key,
				  uint32_t timeout_ms,
				  struct kiln_tier_lock **out_lock)
{
	return ki_tier_lock_build(&store_of(tier)->locks, key, timeout_ms,
				  out_lock);
}

static void file_unlock(struct kiln_tier *tier, struct kiln_tier_lock *lock)
{
	ki_tier_unlock(store_of(tier)->sys, lock);
}

static enum kiln_status file_count(struct kiln_tier *tier,
				   const uint64_t deltas[KILN_N_COUNTERS])
{
	struct ki_file_store *store = store_of(tier);

	if (ki_directory_is_refused(&store->watch))
		return KILN_E_OWNER;
	return ki_file_is_readonly(store)
		       ? KILN_E_READONLY
		       : ki_counters_add(store->sys, store->stats, store->flags,
					 store->application, deltas);
}

static enum kiln_status file_counters(struct kiln_tier *tier,
				      struct kiln_store_counters *out_counters)
{
	struct ki_file_store *store = store_of(tier);

	return ki_counters_read(store->sys, store->stats, out_counters);
}

static enum kiln_status file_zero_counters(struct kiln_tier *tier)
{
	struct ki_file_store *store = store_of(tier);

	if (ki_file_is_readonly(store))
		return KILN_E_READONLY;
	if (ki_file_settings_check(store, KI_FILE_AT_TIMES))
		return KILN_E_OWNER;
	return ki_counters_zero(store->sys, store->stats, store->flags);
}

/* ---- Open and close ------------------------------------------------------------ */

static int file_is_live(struct kiln_tier *tier, const struct kiln_blob *blob)
{
	struct ki_file_store *store = store_of(tier);

	return !ki_directory_is_refused(&store->watch) &&
	       blob->place ==
		       __atomic_load_n(&store->generation, __ATOMIC_ACQUIRE);
}

static void free_store(struct ki_file_store *store)
{
	ki_mutex_fini(&store->mutex);
	free(store->listed);
	free(store->directory);
	free(store->root);
	free(store->stats);
	free(store->lock_path);
	free(store);
}

static void file_close(struct kiln_tier *tier)
{
	struct ki_file_store *store = store_of(tier);

	if (store->fork_generation == ki_fork_generation() &&
	    !ki_file_is_readonly(store) &&
	    !ki_file_settings_check(store, KI_FILE_AT_TIMES))
		ki_file_return_reserve(store);
	free_store(store);
}

static const struct kiln_tier_ops file_ops = {
	.version = KILN_TIER_VERSION,
	.name = "file",
	.get = file_get,
	.put = file_put,
	.remove = file_remove,
	.wipe = file_wipe,
	.list = ki_file_list,
	.verify = ki_file_verify,
	.gc = ki_file_gc,
	.set_limit = ki_file_set_limit,
	.set_eviction = ki_file_set_eviction,
	.info = ki_file_info_of,
	.lock = file_lock,
	.unlock = file_unlock,
	.count = file_count,
	.counters = file_counters,
	.zero_counters = file_zero_counters,
	.close = file_close,
};

static char *join(const char *directory, const char *name, const char *suffix)
{
	size_t size = strlen(directory) + strlen(name) + strlen(suffix) + 2;
	char *path = size <= KI_PATH_MAX ? malloc(size) : NULL;

	if (path)
		snprintf(path, size, "%s/%s%s", directory, name, suffix);
	return path;
}

static struct ki_file_store *new_store(const struct ki_store_options *options)
{
	const char *name = options->name ? options->name : "kiln";
	struct ki_file_store *store = calloc(1, sizeof(*store));

	if (!store)
		return NULL;
	store->tier.ops = &file_ops;
	store->tier.generation = &store->generation;
	store->tier.is_live = file_is_live;
	store->sys = options->sys;
	store->wished.bytes_max = options->bytes_max;
	store->wished.age_max_s = options->age_max_s;
	store->wished.user_version = options->user_version;
	store->flags = options->flags;
	store->application = options->application ? options->application : "";
	store->log = options->log;
	store->log_arg = options->log_arg;
	store->listed_fan = KI_FILE_N_FANS;
	store->fork_generation = ki_fork_generation();
	ki_mutex_init(&store->mutex, KI_RANK_STORE);
	ki_writer_init(options->sys, &store->writer);
	store->directory = strdup(options->directory);
	store->root = join(options->directory, name, ".files");
	store->stats = join(options->directory, name, ".stats");
	store->lock_path = join(options->directory, name, ".files/lock");
	if (!store->directory || !store->root || !store->stats ||
	    !store->lock_path) {
		free_store(store);
		return NULL;
	}
	store->locks.sys = options->sys;
	store->locks.path = store->lock_path;
	store->locks.flags = options->flags;
	store->locks.watch = &store->watch;
	ki_directory_watch_begin(store->sys, &store->watch);
	return store;
}

/*
 * A store of another user version is emptied and takes the new one.  Emptied
 * first, so that whoever is cut short leaves it to the next; and after, of what
 * others have put meanwhile.
 */
static enum kiln_status adopt_user_version(struct ki_file_store *store)
{
	const struct ki_file_change change = {
		.user_version = &store->wished.user_version,
		.is_wipe = 1,
	};
	int err;

	if (!ki_file_is_other_version(store))
		return KILN_OK;
	if (ki_file_is_readonly(store))
		return KILN_E_READONLY;
	err = unlink_all(store);
	return err ? ki_status_from_errno(err) : wipe(store, &change);
}

static enum kiln_status open_directory(struct ki_file_store *store)
{
	const char *why = NULL;
	enum kiln_status status =
		ki_directory_check(store->sys, store->directory, store->flags,
				   !ki_file_is_readonly(store), &why);

	if (status && why)
		ki_file_say(store, KILN_LOG_ERROR, store->directory, why);
	return status == KILN_MISS ? KILN_E_IO : status;
}

enum kiln_status ki_store_file_open(const struct ki_store_options *options,
				    struct kiln_tier **out_tier)
{
	struct ki_file_store *store;
	enum kiln_status status;

	if (strlen(options->directory) + KILN_LABEL_BYTES_MAX >= KI_PATH_MAX)
		return KILN_E_INVALID;
	if (options->bytes_max && options->bytes_max < KI_FILE_BYTES_MIN)
		return KILN_E_FULL;
	store = new_store(options);
	if (!store)
		return KILN_E_NO_MEMORY;
	status = open_directory(store);
	if (!status)
		status = ki_file_settings_open(store);
	/* Read only, and nothing there yet: an empty store. */
	if (status == KILN_MISS)
		status = KILN_OK;
	else if (!status)
		status = adopt_user_version(store);
	if (status)
		free_store(store);
	else
		*out_tier = &store->tier;
	return status;
}
