/* SPDX-License-Identifier: MIT */

/*
 * Looking at all entries: for the sweep, list, verify and info.  Names that are
 * not ours, directories, links and pipes are passed over.
 */

#include "store/file/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/status.h"

int ki_file_opendir(const struct ki_file_store *store, const char *path,
		    struct ki_dir **out_dir)
{
	int err = store->sys->opendir(store->sys, path, out_dir);

	return err == -ESTALE ? store->sys->opendir(store->sys, path, out_dir)
			      : err;
}

int ki_file_unlink(const struct ki_file_store *store, const char *path)
{
	int err = store->sys->unlink(store->sys, path);

	return err == -ESTALE ? store->sys->unlink(store->sys, path) : err;
}

/* What is stale twice is passed over like what is gone. */
static int look_at(const struct ki_sys *sys, const char *path,
		   struct ki_file_info *out_info)
{
	int err = sys->lstat(sys, path, out_info);

	return err == -ESTALE ? sys->lstat(sys, path, out_info) : err;
}

int ki_file_walk(const struct ki_file_store *store, const char *directory,
		 ki_file_visit_fn *visit, void *arg)
{
	const struct ki_sys *sys = store->sys;
	uint8_t digest[KILN_DIGEST_BYTES];
	struct ki_file_info info;
	struct ki_dir *dir;
	char path[KI_PATH_MAX];
	const char *name;
	int more, err = ki_file_opendir(store, directory, &dir);

	if (err)
		return err == -ENOENT || err == -ENOTDIR ? 0 : err;
	while (!err && (more = sys->readdir(sys, dir, &name)) > 0) {
		enum ki_file_kind kind = ki_file_kind_of(name, digest);

		if (kind == KI_FILE_FOREIGN ||
		    ki_path_join(path, directory, name))
			continue;
		err = look_at(sys, path, &info);
		if (ki_file_is_gone(err))
			err = 0; /* gone meanwhile */
		else if (!err && S_ISREG(info.mode))
			err = visit(arg, kind, digest, path, name, &info);
	}
	sys->closedir(sys, dir);
	return err ? err : more;
}

/* By one look at the root: asking for all 256 costs a server 256 answers. */
static int read_fans(const struct ki_file_store *store,
		     struct ki_file_fans *fans)
{
	const struct ki_sys *sys = store->sys;
	struct ki_dir *dir;
	const char *name;
	unsigned fan;
	int more, err = ki_file_opendir(store, store->root, &dir);

	*fans = (struct ki_file_fans){ { 0 } };
	if (err)
		return err == -ENOENT || err == -ENOTDIR ? 0 : err;
	while ((more = sys->readdir(sys, dir, &name)) > 0)
		if (ki_file_is_fan(name, &fan))
			fans->bits[fan / 64] |= (uint64_t)1 << fan % 64;
	sys->closedir(sys, dir);
	return more;
}

static int has_fan(const struct ki_file_fans *fans, unsigned fan)
{
	return (int)(fans->bits[fan / 64] >> fan % 64 & 1);
}

int ki_file_walk_all(const struct ki_file_store *store, ki_file_visit_fn *visit,
		     void *arg)
{
	struct ki_file_fans fans;
	char path[KI_PATH_MAX];
	unsigned fan;
	int err = read_fans(store, &fans);

	for (fan = 0; !err && fan < KI_FILE_N_FANS; fan++) {
		if (!has_fan(&fans, fan))
			continue;
		err = ki_file_fan_path(store, fan, path);
		if (!err)
			err = ki_file_walk(store, path, visit, arg);
	}
	return err;
}

uint64_t ki_file_fixed_bytes(const struct ki_file_store *store)
{
	static const char *const names[] = { "settings", "usage" };
	const struct ki_sys *sys = store->sys;
	struct ki_file_info info;
	char path[KI_PATH_MAX];
	uint64_t bytes = 0;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!ki_path_join(path, store->root, names[i]) &&
		    !sys->lstat(sys, path, &info))
			bytes += ki_file_charge(&info);
	/* As if they were there: whoever locks or counts makes them. */
	bytes += KI_LOCKS_BYTES;
	return bytes + ki_counters_bytes(sys, store->stats, ki_file_charge);
}

/* ---- Listing --------------------------------------------------------------- */

/*
 * A cursor is (fan + 1, digest of the last one, whether there was one).  A
 * fan's names are read and sorted once, and kept for the next step.
 */

struct names {
	uint8_t (*digests)[KILN_DIGEST_BYTES];
	size_t n, capacity;
	unsigned fan;
};

static int by_digest(const void *a, const void *b)
{
	return memcmp(a, b, KILN_DIGEST_BYTES);
}

static int add_name(void *arg, enum ki_file_kind kind,
		    const uint8_t digest[KILN_DIGEST_BYTES], const char *path,
		    const char *name, const struct ki_file_info *info)
{
	struct names *names = arg;

	if (kind != KI_FILE_ENTRY || digest[0] != names->fan)
		return 0;
	if (names->n == names->capacity) {
		size_t capacity = names->capacity ? names->capacity * 2 : 16;
		void *digests =
			realloc(names->digests, capacity * KILN_DIGEST_BYTES);

		if (!digests)
			return -ENOMEM;
		names->digests = digests;
		names->capacity = capacity;
	}
	memcpy(names->digests[names->n++], digest, KILN_DIGEST_BYTES);
	return 0;
}

static int read_names(const struct ki_file_store *store, unsigned fan,
		      struct names *names)
{
	char path[KI_PATH_MAX];
	int err = ki_file_fan_path(store, fan, path);

	*names = (struct names){ .fan = fan };
	if (!err)
		err = ki_file_walk(store, path, add_name, names);
	if (!err && names->n)
		qsort(names->digests, names->n, KILN_DIGEST_BYTES, by_digest);
	if (err)
		free(names->digests);
	return err;
}

static void keep_names(struct ki_file_store *store, const struct names *names)
{
	void *before;

	ki_mutex_lock(&store->mutex);
	before = store->listed;
	store->listed = names->digests;
	store->n_listed = names->n;
	store->listed_fan = names->fan;
	ki_mutex_unlock(&store->mutex);
	free(before);
}

/* The first kept name behind `last` (NULL: the first of all): 1, 0 at the
   end, -1 if another fan is kept. */
static int next_kept(struct ki_file_store *store, unsigned fan,
		     const uint8_t *last, uint8_t out[KILN_DIGEST_BYTES])
{
	int result = -1;
	size_t low = 0, high;

	ki_mutex_lock(&store->mutex);
	if (store->listed_fan != fan)
		goto out;
	high = store->n_listed;
	while (last && low < high) {
		size_t middle = low + (high - low) / 2;

		if (by_digest(store->listed[middle], last) <= 0)
			low = middle + 1;
		else
			high = middle;
	}
	result = low < store->n_listed;
	if (result)
		memcpy(out, store->listed[low], KILN_DIGEST_BYTES);
out:
	ki_mutex_unlock(&store->mutex);
	return result;
}

/* 1 with the next digest of the cursor's fan, 0 at its end, -errno. */
static int next_of_fan(struct ki_file_store *store,
		       const struct kiln_cursor *cursor, unsigned fan,
		       uint8_t out[KILN_DIGEST_BYTES])
{
	const uint8_t *last = NULL;
	struct names names;
	int result, err;

	if (cursor->place[3])
		last = (const uint8_t *)&cursor->place[1];
	result = last ? next_kept(store, fan, last, out) : -1;
	if (result >= 0)
		return result;
	err = read_names(store, fan, &names);
	if (err)
		return err;
	keep_names(store, &names);
	result = next_kept(store, fan, last, out);
	return result < 0 ? 0 : result;
}

/* A cursor at its begin, or from another handle, sees the fans anew. */
static int look_at_fans(struct ki_file_store *store, int begins)
{
	struct ki_file_fans fans;
	int has_fans, err;

	ki_mutex_lock(&store->mutex);
	has_fans = store->has_fans;
	ki_mutex_unlock(&store->mutex);
	if (has_fans && !begins)
		return 0;
	err = read_fans(store, &fans);
	if (err)
		return err;
	ki_mutex_lock(&store->mutex);
	store->fans = fans;
	store->has_fans = 1;
	ki_mutex_unlock(&store->mutex);
	return 0;
}

/* The fan itself or the next that there is; KI_FILE_N_FANS: none. */
static unsigned fan_from(struct ki_file_store *store, unsigned fan)
{
	ki_mutex_lock(&store->mutex);
	while (fan < KI_FILE_N_FANS && !has_fan(&store->fans, fan))
		fan++;
	ki_mutex_unlock(&store->mutex);
	return fan;
}

static enum kiln_status fill_entry(const struct ki_file_store *store,
				   const struct ki_file_loaded *loaded,
				   struct kiln_entry *out_entry)
{
	const struct ki_envelope *envelope = &loaded->envelope;
	struct kiln_entry entry = {
		.stored_size = ki_file_charge(&loaded->info),
		.referenced = loaded->info.mtime_ns > ki_file_swept_ns(store),
	};
	enum kiln_status status = ki_envelope_entry(envelope, &entry);

	if (!status)
		*out_entry = entry;
	return status;
}

enum kiln_status ki_file_list(struct kiln_tier *tier,
			      struct kiln_cursor *cursor,
			      struct kiln_entry *out_entry)
{
	struct ki_file_store *store = (struct ki_file_store *)tier;
	uint8_t digest[KILN_DIGEST_BYTES];
	int err;

	if (ki_file_settings_check(store, KI_FILE_AT_TIMES))
		return KILN_E_OWNER;
	err = look_at_fans(store, !cursor->place[0]);
	if (err)
		return ki_status_from_errno(err);
	if (!cursor->place[0])
		*cursor = (struct kiln_cursor){ { 1, 0, 0, 0 } };
	while (cursor->place[0] <= KI_FILE_N_FANS) {
		unsigned fan = (unsigned)cursor->place[0] - 1;
		struct ki_file_loaded loaded;
		enum kiln_status status;
		int more;

		if (!cursor->place[3]) {
			fan = fan_from(store, fan);
			cursor->place[0] = fan + 1;
			if (fan == KI_FILE_N_FANS)
				break;
		}
		more = next_of_fan(store, cursor, fan, digest);
		if (more < 0)
			return ki_status_from_errno(more);
		if (!more) {
			*cursor = (struct kiln_cursor){ { fan + 2, 0, 0, 0 } };
			continue;
		}
		memcpy(&cursor->place[1], digest, sizeof(digest));
		cursor->place[3] = 1;
		status = ki_file_load(store, digest, &loaded);
		if (status == KILN_E_NO_MEMORY)
			return status;
		if (status)
			continue;
		status = fill_entry(store, &loaded, out_entry);
		kiln_blob_unref(loaded.bytes);
		return status;
	}
	return KILN_END;
}

/* ---- Verify ------------------------------------------------------------------ */

struct verification {
	struct ki_verifying base;
	struct ki_file_store *store;
	int repair;
};

static int count_entry(void *arg, enum ki_file_kind kind,
		       const uint8_t digest[KILN_DIGEST_BYTES],
		       const char *path, const char *name,
		       const struct ki_file_info *info)
{
	struct verification *verification = arg;

	verification->base.total += kind == KI_FILE_ENTRY ? info->size : 0;
	return 0;
}

static void note_damaged(struct verification *verification,
			 const uint8_t digest[KILN_DIGEST_BYTES])
{
	const struct ki_file_store *store = verification->store;
	char path[KI_PATH_MAX];

	if (!ki_file_entry_path(store, digest, path))
		ki_verifying_damaged(&verification->base, digest,
				     path + strlen(store->directory) + 1);
}

static int verify_entry(void *arg, enum ki_file_kind kind,
			const uint8_t digest[KILN_DIGEST_BYTES],
			const char *path, const char *name,
			const struct ki_file_info *info)
{
	struct verification *verification = arg;
	struct kiln_verify_report *report = &verification->base.report;
	struct ki_file_loaded loaded;
	enum kiln_status status;
	int aside = 0;

	if (kind != KI_FILE_ENTRY)
		return 0;
	status = ki_file_load(verification->store, digest, &loaded);
	if (status == KILN_E_NO_MEMORY)
		return -ENOMEM;
	if (!status) {
		report->n_entries++;
		report->bytes += loaded.info.size;
		kiln_blob_unref(loaded.bytes);
	} else if (status == KILN_E_FORMAT || status == KILN_E_IO) {
		note_damaged(verification, digest);
		if (status == KILN_E_FORMAT && verification->repair &&
		    (aside = ki_file_set_aside(verification->store, digest,
					       &loaded.info,
					       KI_FILE_QUARANTINE)))
			report->n_repaired++;
		if (aside == KI_FILE_IS_ASIDE)
			ki_file_say_aside(verification->store, digest);
	}
	ki_verifying_step(&verification->base, info->size);
	return 0;
}

/* The total, as it was noted and as it is; entries are counted by no one, and
   in a store without a bound nothing is. */
static enum kiln_status count_anew(struct ki_file_store *store,
				   struct kiln_verify_report *report)
{
	struct ki_file_sweep sweep = { 0 };
	enum kiln_status status = ki_file_sweep(store, &sweep);

	report->bytes_counted = sweep.counted;
	report->bytes_noted = ki_file_settings_now(store).bytes_max
				      ? sweep.noted
				      : sweep.counted;
	return status;
}

static int read_all(struct verification *verification)
{
	struct ki_file_store *store = verification->store;
	int err = ki_file_walk_all(store, count_entry, verification);

	return err ? err : ki_file_walk_all(store, verify_entry, verification);
}

enum kiln_status ki_file_verify(struct kiln_tier *tier, unsigned flags,
				kiln_progress_fn *progress, void *arg,
				struct kiln_verify_report *out_report)
{
	struct ki_file_store *store = (struct ki_file_store *)tier;
	struct verification verification = {
		.store = store,
		.repair = !!(flags & KILN_VERIFY_REPAIR),
		.base = { .progress = progress, .arg = arg },
	};
	enum kiln_status status = KILN_OK;

	if (flags && ki_file_is_readonly(store))
		return KILN_E_READONLY;
	if (ki_file_settings_check(store, KI_FILE_AT_TIMES))
		return KILN_E_OWNER;
	if (flags != KILN_VERIFY_ACCOUNTING)
		status = ki_status_from_errno(read_all(&verification));
	if (!status && flags)
		status = count_anew(store, &verification.base.report);
	if (!status)
		ki_verifying_end(&verification.base, out_report);
	return status;
}

/* ---- The store as a whole ---------------------------------------------------- */

static int add_up(void *arg, enum ki_file_kind kind,
		  const uint8_t digest[KILN_DIGEST_BYTES], const char *path,
		  const char *name, const struct ki_file_info *info)
{
	struct kiln_store_info *total = arg;

	total->bytes += ki_file_charge(info);
	if (kind == KI_FILE_ENTRY) {
		total->bytes_live += ki_file_charge(info);
		total->n_entries++;
	}
	return 0;
}

enum kiln_status ki_file_info_of(struct kiln_tier *tier,
				 struct kiln_store_info *out_info)
{
	struct ki_file_store *store = (struct ki_file_store *)tier;
	struct kiln_store_info info = { 0 }, aside = { 0 };
	struct ki_file_settings settings;
	struct ki_file_access access;
	char path[KI_PATH_MAX];
	int err = ki_path_join(path, store->root, "quarantine");
	int is_still;

	if (ki_file_settings_check(store, KI_FILE_NOW))
		return KILN_E_OWNER;
	settings = ki_file_settings_now(store);
	/* What is evicted here and written there must not count twice. */
	is_still = !ki_file_is_readonly(store) &&
		   !ki_file_access_begin(store, KI_FILE_PUT_NS, &access);
	if (!err)
		err = ki_file_walk(store, path, add_up, &aside);
	if (!err)
		err = ki_file_walk_all(store, add_up, &info);
	if (is_still)
		ki_file_access_end(store, &access);
	if (err)
		return ki_status_from_errno(err);
	*out_info = (struct kiln_store_info){
		.kind = "file",
		.format_version = KI_FILE_VERSION,
		.user_version = settings.user_version,
		.n_entries = info.n_entries,
		.bytes = info.bytes + aside.bytes + ki_file_fixed_bytes(store),
		.bytes_max = settings.bytes_max,
		.bytes_live = info.bytes_live,
		.generation = settings.generation,
		.eviction = settings.by_cost ? KILN_EVICT_BY_COST
					     : KILN_EVICT_BY_USE,
	};
	return KILN_OK;
}
