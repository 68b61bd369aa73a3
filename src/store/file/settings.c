/* SPDX-License-Identifier: MIT */

/*
 * NAME.files/settings: what a store is told at its making, and later by
 * set_limit, set_eviction and wipe.  Always published as a whole; whoever has the store open
 * notices by inode and time, at most a second late.
 */

#include "store/file/file.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/status.h"

#define SETTINGS_BYTES 64
#define CHECK_NS       ((uint64_t)1000000000)
#define POLICY_BY_COST ((uint64_t)1)

static const char settings_name[] = "settings";
static const uint8_t magic[4] = { 'K', 'F', 'S', 'T' };

static void encode(const struct ki_file_settings *settings,
		   uint8_t bytes[SETTINGS_BYTES])
{
	memset(bytes, 0, SETTINGS_BYTES);
	memcpy(bytes, magic, sizeof(magic));
	ki_put_u32(bytes + 4, KI_FILE_VERSION);
	ki_put_u64(bytes + 8, settings->user_version);
	ki_put_u64(bytes + 16, settings->bytes_max);
	ki_put_u64(bytes + 24, settings->age_max_s);
	ki_put_u64(bytes + 32, settings->generation);
	ki_put_u64(bytes + 40, settings->by_cost ? POLICY_BY_COST : 0);
	ki_put_u64(bytes + 56, ki_xxh3_64(bytes, 56));
}

/* KILN_OK, KILN_MISS (damaged), KILN_E_FORMAT (newer). */
static enum kiln_status decode(const uint8_t *bytes, size_t size,
			       struct ki_file_settings *out_settings)
{
	if (size < SETTINGS_BYTES || memcmp(bytes, magic, sizeof(magic)) != 0 ||
	    ki_get_u64(bytes + 56) != ki_xxh3_64(bytes, 56))
		return KILN_MISS;
	if (ki_get_u32(bytes + 4) > KI_FILE_VERSION)
		return KILN_E_FORMAT;
	if (ki_get_u32(bytes + 4) != KI_FILE_VERSION)
		return KILN_MISS;
	*out_settings = (struct ki_file_settings){
		.user_version = ki_get_u64(bytes + 8),
		.bytes_max = ki_get_u64(bytes + 16),
		.age_max_s = ki_get_u64(bytes + 24),
		.generation = ki_get_u64(bytes + 32),
		.by_cost = !!(ki_get_u64(bytes + 40) & POLICY_BY_COST),
	};
	return KILN_OK;
}

struct ki_file_settings ki_file_settings_now(struct ki_file_store *store)
{
	struct ki_file_settings settings;

	ki_mutex_lock(&store->mutex);
	settings = store->settings;
	ki_mutex_unlock(&store->mutex);
	return settings;
}

static void take_over(struct ki_file_store *store,
		      const struct ki_file_settings *settings,
		      const struct ki_file_info *info)
{
	ki_mutex_lock(&store->mutex);
	store->settings = *settings;
	store->settings_inode = info->inode;
	store->settings_mtime_ns = info->mtime_ns;
	ki_mutex_unlock(&store->mutex);
	__atomic_store_n(&store->generation, settings->generation,
			 __ATOMIC_RELEASE);
}

/* KILN_OK; KILN_MISS (none, or damaged); KILN_E_FORMAT (newer); IO. */
static enum kiln_status load(struct ki_file_store *store)
{
	const struct ki_sys *sys = store->sys;
	uint8_t bytes[SETTINGS_BYTES];
	struct ki_file_settings settings;
	struct ki_file_info info;
	enum kiln_status status;
	char path[KI_PATH_MAX];
	int fd, err = ki_path_join(path, store->root, settings_name);

	if (err)
		return ki_status_from_errno(err);
	fd = sys->open(sys, path, KI_OPEN_READ | KI_OPEN_NOFOLLOW, 0);
	if (fd < 0)
		return fd == -ENOENT || fd == -ESTALE
			       ? KILN_MISS
			       : ki_status_from_errno(fd);
	err = sys->fstat(sys, fd, &info);
	if (!err)
		err = ki_pread_all(sys, fd, bytes, sizeof(bytes), 0);
	(void)sys->close(sys, fd);
	if (err)
		return err == -ENODATA || err == -ESTALE
			       ? KILN_MISS
			       : ki_status_from_errno(err);
	status = decode(bytes, sizeof(bytes), &settings);
	if (!status)
		take_over(store, &settings, &info);
	return status;
}

static enum kiln_status publish(struct ki_file_store *store,
				const struct ki_file_settings *settings,
				int replace)
{
	uint8_t bytes[SETTINGS_BYTES];
	struct ki_piece piece = { bytes, sizeof(bytes) };
	int err;

	encode(settings, bytes);
	err = ki_publish_file(
		store->sys, store->root, settings_name, &piece, 1, replace,
		store->flags & KILN_OPEN_SHARED ? 0660 : 0600, &store->writer);
	if (err == -EEXIST)
		return KILN_EXISTS;
	return ki_status_from_errno(err);
}

static enum kiln_status make_root(const struct ki_file_store *store)
{
	const char *why;
	enum kiln_status status;
	int err = ki_file_make_directory(store, store->root);

	if (err == -ENOENT) {
		status = ki_directory_check(store->sys, store->directory,
					    store->flags, 1, &why);
		if (status)
			return status;
		err = ki_file_make_directory(store, store->root);
	}
	return ki_status_from_errno(err);
}

enum kiln_status ki_file_settings_open(struct ki_file_store *store)
{
	struct ki_file_settings settings = store->wished;
	enum kiln_status status = load(store);
	int err, replace;

	if (status != KILN_MISS || ki_file_is_readonly(store))
		return status;
	status = make_root(store);
	if (status)
		return status;
	/* A generation that nobody saw before, also after a removal by hand. */
	err = store->sys->random(store->sys, &settings.generation,
				 sizeof(settings.generation));
	if (err)
		return ki_status_from_errno(err);
	for (replace = 0; replace < 2; replace++) {
		status = publish(store, &settings, replace);
		if (status && status != KILN_EXISTS)
			return status;
		status = load(store);
		if (status != KILN_MISS)
			return status; /* else: what exists is damaged */
	}
	return status == KILN_MISS ? KILN_E_IO : status;
}

int ki_file_is_other_version(struct ki_file_store *store)
{
	return store->wished.user_version &&
	       ki_file_settings_now(store).user_version !=
		       store->wished.user_version;
}

/* A generation is one that nobody saw before, also without a lock. */
static enum kiln_status change_loaded(struct ki_file_store *store,
				      const struct ki_file_change *change)
{
	struct ki_file_settings settings = ki_file_settings_now(store);
	enum kiln_status status;
	int err = 0;

	if (!change->user_version && ki_file_is_other_version(store))
		return KILN_E_FORMAT;
	if (change->bytes_max)
		settings.bytes_max = *change->bytes_max;
	if (change->user_version)
		settings.user_version = *change->user_version;
	if (change->eviction)
		settings.by_cost = *change->eviction == KILN_EVICT_BY_COST;
	if (change->is_wipe)
		err = store->sys->random(store->sys, &settings.generation,
					 sizeof(settings.generation));
	if (err)
		return ki_status_from_errno(err);
	status = publish(store, &settings, 1);
	return status ? status : load(store);
}

enum kiln_status ki_file_settings_change_locked(
	struct ki_file_store *store, const struct ki_file_change *change)
{
	enum kiln_status status = load(store); /* as it is now */

	if (!status)
		status = change_loaded(store, change);
	return status == KILN_MISS ? KILN_E_IO : status;
}

enum kiln_status ki_file_settings_change(struct ki_file_store *store,
					 const struct ki_file_change *change)
{
	struct ki_file_access access;
	enum kiln_status status = ki_file_settings_open(store);

	if (!status)
		status = ki_file_access_begin(store, KI_FILE_TOOL_NS, &access);
	if (status)
		return status;
	status = ki_file_settings_change_locked(store, change);
	ki_file_access_end(store, &access);
	return status;
}

static int is_as_seen(struct ki_file_store *store,
		      const struct ki_file_info *info)
{
	int result;

	ki_mutex_lock(&store->mutex);
	result = store->settings_inode == info->inode &&
		 store->settings_mtime_ns == info->mtime_ns;
	ki_mutex_unlock(&store->mutex);
	return result;
}

static void note_disappearance(struct ki_file_store *store)
{
	int had_one;

	ki_mutex_lock(&store->mutex);
	had_one = store->settings_inode != 0;
	store->settings_inode = 0;
	store->reserve = 0;
	ki_mutex_unlock(&store->mutex);
	if (had_one)
		__atomic_fetch_add(&store->generation, 1, __ATOMIC_RELEASE);
}

static void look_at_settings(struct ki_file_store *store)
{
	const struct ki_sys *sys = store->sys;
	struct ki_file_info info;
	char path[KI_PATH_MAX];
	int err;

	if (ki_path_join(path, store->root, settings_name))
		return;
	err = sys->lstat(sys, path, &info);
	if (err == -ENOENT || err == -ENOTDIR)
		note_disappearance(store);
	else if (!err && !is_as_seen(store, &info))
		(void)load(store);
}

enum kiln_status ki_file_settings_check(struct ki_file_store *store,
					enum ki_file_when when)
{
	const struct ki_sys *sys = store->sys;
	uint64_t now = sys->monotonic_ns(sys);
	uint64_t then = __atomic_load_n(&store->checked_ns, __ATOMIC_RELAXED);
	const char *why;
	enum kiln_status status = ki_directory_watch(
		sys, store->directory, store->flags, &store->watch, &why);

	if (why)
		ki_file_say(store, KILN_LOG_ERROR, store->directory, why);
	if (status)
		return status;
	if (when == KI_FILE_NOW ||
	    (now - then >= CHECK_NS &&
	     __atomic_compare_exchange_n(&store->checked_ns, &then, now, 0,
					 __ATOMIC_RELAXED, __ATOMIC_RELAXED)))
		look_at_settings(store);
	return KILN_OK;
}
