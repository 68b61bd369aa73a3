/* SPDX-License-Identifier: MIT */

/*
 * Keeping the bound without an index.
 *
 * Counting all files at each put would be exact and slow, so NAME.files/usage
 * holds a total that is never below what is there: a process adds to it
 * *before* it writes, a 256th of the bound at a time, and uses that up.  Who
 * dies leaves the total too high, which the next sweep puts right.
 *
 *	usage	total := total + chunk		under the file's lock
 *	write files that together take at most chunk
 *	usage	total := total - rest		at close
 *
 * A file larger than such a chunk is reserved by itself, and named in a second
 * sum, `pending`, until it is there: its writer holds byte 1 of the file shared
 * meanwhile.
 *
 *	usage	total += size, pending += size
 *	write the file
 *	usage	pending -= size
 *
 * When the total comes near the bound, one process sweeps: counts all files,
 * removes those not used for longest until an eighth is free, and writes the
 * true total with a new epoch.  If it can have byte 1 alone, nothing large is
 * being written, and what the dead left in `pending` is forgotten; else it
 * counts.  The chunks that others had under the old epoch are void; a 16th of
 * the bound is kept free for what they may still use of them.  So where there
 * are locks the bound holds exactly for up to 16 writers of small files and any
 * number of writers of large ones.  Without locks two processes may add at once
 * and one addition is lost until the next sweep.
 *
 * After a power loss the total may be older than the files it counts.  So it
 * says which boots have counted, of all machines that have the store, and the
 * first one to reserve room in another sweeps.  The list is lost along with the
 * total: what came back is older than both.
 *
 * Last use is the file's modification time, which a hit renews (file.c): it
 * comes from the file server's clock, so it is one clock for all.
 */

#include "store/file/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/status.h"
#include "store/evict.h"
#include "tier/envelope.h"

#define USAGE_BYTES   (48 + 4 * KI_FILE_BOOTS)
#define SUM_AT	      (USAGE_BYTES - 8)
#define CHUNKS	      256
#define BLOCK_BYTES   4096
#define TOTAL_UNKNOWN UINT64_MAX

static const char usage_name[] = "usage";
static const uint8_t magic[4] = { 'K', 'F', 'U', 'S' };

/* ---- The file of the total --------------------------------------------------- */

static uint64_t usable(uint64_t bytes_max)
{
	return bytes_max - bytes_max / 16;
}

uint64_t ki_file_charge(const struct ki_file_info *info)
{
	return info->size > info->blocks_bytes ? info->size
					       : info->blocks_bytes;
}

static void encode(const struct ki_file_usage *usage,
		   uint8_t bytes[USAGE_BYTES])
{
	size_t i;

	memcpy(bytes, magic, sizeof(magic));
	ki_put_u32(bytes + 4, KI_FILE_VERSION);
	ki_put_u64(bytes + 8, usage->total);
	ki_put_u64(bytes + 16, usage->pending);
	ki_put_u64(bytes + 24, usage->epoch);
	ki_put_u64(bytes + 32, (uint64_t)usage->swept_ns);
	for (i = 0; i < KI_FILE_BOOTS; i++)
		ki_put_u32(bytes + 40 + 4 * i, usage->boots[i]);
	ki_put_u64(bytes + SUM_AT, ki_xxh3_64(bytes, SUM_AT));
}

static struct ki_file_usage read_usage(const struct ki_sys *sys, int fd)
{
	struct ki_file_usage usage = { .total = TOTAL_UNKNOWN,
				       .swept_ns = INT64_MIN };
	uint8_t bytes[USAGE_BYTES];
	size_t i;

	if (ki_pread_all(sys, fd, bytes, sizeof(bytes), 0) ||
	    memcmp(bytes, magic, sizeof(magic)) != 0 ||
	    ki_get_u32(bytes + 4) != KI_FILE_VERSION ||
	    ki_get_u64(bytes + SUM_AT) != ki_xxh3_64(bytes, SUM_AT))
		return usage;
	usage.total = ki_get_u64(bytes + 8);
	usage.pending = ki_get_u64(bytes + 16);
	usage.epoch = ki_get_u64(bytes + 24);
	usage.swept_ns = (int64_t)ki_get_u64(bytes + 32);
	for (i = 0; i < KI_FILE_BOOTS; i++)
		usage.boots[i] = ki_get_u32(bytes + 40 + 4 * i);
	return usage;
}

/* Whether somebody has counted since this system was started. */
static int knows_boot(const struct ki_file_usage *usage, uint32_t boot)
{
	size_t i;

	for (i = 0; i < KI_FILE_BOOTS; i++)
		if (usage->boots[i] == boot)
			return 1;
	return !boot; /* who cannot know asks for nothing */
}

static void note_boot(struct ki_file_usage *usage, uint32_t boot)
{
	if (knows_boot(usage, boot))
		return;
	memmove(usage->boots + 1, usage->boots,
		(KI_FILE_BOOTS - 1) * sizeof(usage->boots[0]));
	usage->boots[0] = boot;
}

static int write_usage(const struct ki_sys *sys, struct ki_file_access *access)
{
	uint8_t bytes[USAGE_BYTES];
	struct ki_file_info info;
	int err;

	encode(&access->usage, bytes);
	err = ki_pwrite_all(sys, access->fd, bytes, sizeof(bytes), 0);
	if (!err)
		err = sys->fstat(sys, access->fd, &info);
	if (!err)
		access->now_ns = info.mtime_ns;
	return err;
}

static int open_usage(const struct ki_file_store *store)
{
	const struct ki_sys *sys = store->sys;
	const struct ki_file_usage unknown = { .total = TOTAL_UNKNOWN,
					       .swept_ns = INT64_MIN };
	const unsigned flags = KI_OPEN_READ | KI_OPEN_WRITE | KI_OPEN_NOFOLLOW;
	uint8_t bytes[USAGE_BYTES];
	struct ki_piece piece = { bytes, sizeof(bytes) };
	char path[KI_PATH_MAX];
	int fd, err = ki_path_join(path, store->root, usage_name);

	if (err)
		return err;
	fd = sys->open(sys, path, flags, 0);
	if (!ki_file_is_gone(fd))
		return fd;
	encode(&unknown, bytes);
	err = ki_publish_file(sys, store->root, usage_name, &piece, 1, 0,
			      store->flags & KILN_OPEN_SHARED ? 0660 : 0600,
			      &store->writer);
	if (err && err != -EEXIST)
		return err;
	return sys->open(sys, path, flags, 0);
}

void ki_file_access_end(const struct ki_file_store *store,
			struct ki_file_access *access)
{
	ki_fork_close_remove(&access->place);
	(void)store->sys->close(store->sys, access->fd);
}

enum kiln_status ki_file_access_begin(const struct ki_file_store *store,
				      uint64_t wait_ns,
				      struct ki_file_access *access)
{
	const struct ki_sys *sys = store->sys;
	int err;

	access->fd = open_usage(store);
	if (access->fd < 0)
		return ki_status_from_errno(access->fd);
	ki_fork_close_add(&access->place, access->fd);
	err = ki_lock_until(sys, access->fd, KI_LOCK_EXCLUSIVE, 0, 1,
			    sys->monotonic_ns(sys) + wait_ns);
	if (err == -ETIMEDOUT) {
		ki_file_access_end(store, access);
		return KILN_E_TIMEOUT;
	}
	access->has_locks = !err;
	access->usage = read_usage(sys, access->fd);
	return KILN_OK;
}

int64_t ki_file_swept_ns(const struct ki_file_store *store)
{
	const struct ki_sys *sys = store->sys;
	int64_t swept_ns = INT64_MIN;
	char path[KI_PATH_MAX];
	int fd;

	if (ki_path_join(path, store->root, usage_name))
		return swept_ns;
	fd = sys->open(sys, path, KI_OPEN_READ | KI_OPEN_NOFOLLOW, 0);
	if (fd >= 0) {
		swept_ns = read_usage(sys, fd).swept_ns;
		(void)sys->close(sys, fd);
	}
	return swept_ns;
}

/* ---- Sweeping ------------------------------------------------------------------ */

struct candidate {
	uint8_t digest[KILN_DIGEST_BYTES];
	int is_quarantined;
};

struct sweep {
	const struct ki_file_store *store;
	struct ki_file_sweep *report;
	int64_t now_ns;
	int64_t used_since_ns; /* what was not has expired */
	int64_t aside_since_ns;
	uint64_t dropped;
	int in_quarantine;
	int is_pressed; /* temporaries take up too much */
	int by_cost;
	struct ki_evictable *evictable;
	struct candidate *candidates;
	size_t n, capacity;
	uint64_t total;
	uint64_t fixed; /* of what cannot be evicted */
	uint64_t temporary;
};

static int grow(struct sweep *sweep)
{
	size_t capacity = sweep->capacity ? sweep->capacity * 2 : 256;
	struct ki_evictable *evictable;
	struct candidate *candidates;

	if (sweep->n < sweep->capacity)
		return 0;
	evictable = realloc(sweep->evictable, capacity * sizeof(*evictable));
	if (evictable)
		sweep->evictable = evictable;
	candidates = realloc(sweep->candidates, capacity * sizeof(*candidates));
	if (candidates)
		sweep->candidates = candidates;
	if (!evictable || !candidates)
		return -ENOMEM;
	sweep->capacity = capacity;
	return 0;
}

/* A temporary: abandoned ones go. */
static void count_temporary(struct sweep *sweep, const char *path,
			    const char *name, const struct ki_file_info *info)
{
	const struct ki_file_store *store = sweep->store;

	if (ki_temporary_is_abandoned(store->sys, &store->writer, name,
				      info->mtime_ns, sweep->now_ns,
				      sweep->is_pressed) &&
	    !store->sys->unlink(store->sys, path)) {
		sweep->report->n_temporaries++;
		sweep->dropped += ki_file_charge(info);
		return;
	}
	sweep->total += ki_file_charge(info);
	sweep->fixed += ki_file_charge(info);
	sweep->temporary += ki_file_charge(info);
}

/* 1: it was too old, and is gone. */
static int drop_old(struct sweep *sweep, const char *path,
		    const struct ki_file_info *info)
{
	const struct ki_sys *sys = sweep->store->sys;
	int64_t since_ns = sweep->in_quarantine ? sweep->aside_since_ns
						: sweep->used_since_ns;

	if (info->mtime_ns >= since_ns || sys->unlink(sys, path))
		return 0;
	sweep->dropped += ki_file_charge(info);
	if (sweep->in_quarantine)
		sweep->report->n_aside++;
	else
		sweep->report->n_expired++;
	return 1;
}

static int count_file(void *arg, enum ki_file_kind kind,
		      const uint8_t digest[KILN_DIGEST_BYTES], const char *path,
		      const char *name, const struct ki_file_info *info)
{
	struct sweep *sweep = arg;
	int err;

	if (kind == KI_FILE_TEMPORARY) {
		count_temporary(sweep, path, name, info);
		return 0;
	}
	if (drop_old(sweep, path, info))
		return 0;
	err = grow(sweep);
	if (err)
		return err;
	sweep->total += ki_file_charge(info);
	memcpy(sweep->candidates[sweep->n].digest, digest, KILN_DIGEST_BYTES);
	sweep->candidates[sweep->n].is_quarantined = sweep->in_quarantine;
	sweep->evictable[sweep->n] = (struct ki_evictable){
		.bytes = ki_file_charge(info),
		.used_ns =
			sweep->in_quarantine ? KI_EVICT_FIRST : info->mtime_ns,
		.id = sweep->n,
	};
	sweep->n++;
	return 0;
}

/* Temporaries of the files that stand in the root itself. */
static int count_root(struct sweep *sweep)
{
	const struct ki_file_store *store = sweep->store;
	const struct ki_sys *sys = store->sys;
	const size_t suffix = sizeof(KI_TEMPORARY_SUFFIX) - 1;
	struct ki_file_info info;
	char path[KI_PATH_MAX];
	struct ki_dir *dir;
	const char *name;
	int more, err = ki_file_opendir(store, store->root, &dir);

	if (err)
		return err;
	while ((more = sys->readdir(sys, dir, &name)) > 0) {
		size_t size = strlen(name);

		if (size > suffix &&
		    !strcmp(name + size - suffix, KI_TEMPORARY_SUFFIX) &&
		    !ki_path_join(path, store->root, name) &&
		    !sys->lstat(sys, path, &info) && S_ISREG(info.mode))
			count_temporary(sweep, path, name, &info);
	}
	sys->closedir(sys, dir);
	return more;
}

static int count_once(struct sweep *sweep)
{
	const struct ki_file_store *store = sweep->store;
	char path[KI_PATH_MAX];
	int err = ki_path_join(path, store->root, "quarantine");

	sweep->fixed = sweep->total = ki_file_fixed_bytes(store);
	sweep->temporary = 0;
	sweep->n = 0;
	if (!err)
		err = count_root(sweep);
	sweep->in_quarantine = 1;
	if (!err)
		err = ki_file_walk(store, path, count_file, sweep);
	sweep->in_quarantine = 0;
	if (!err)
		err = ki_file_walk_all(store, count_file, sweep);
	return err;
}

/* Writers may die faster than what they leave grows old. */
static int count_all(struct sweep *sweep, uint64_t limit)
{
	int err = count_once(sweep);

	if (err || sweep->temporary <= limit / 8)
		return err;
	sweep->is_pressed = 1;
	return count_once(sweep);
}

static int remove_victim(const struct ki_file_store *store,
			 const struct candidate *victim)
{
	char path[KI_PATH_MAX], directory[KI_PATH_MAX];
	char digits[2 * KILN_DIGEST_BYTES + 1];
	int err;

	ki_hex(victim->digest, KILN_DIGEST_BYTES, digits);
	if (victim->is_quarantined) {
		err = ki_path_join(directory, store->root, "quarantine");
		if (!err)
			err = ki_path_join(path, directory, digits);
	} else {
		err = ki_file_entry_path(store, victim->digest, path);
	}
	if (!err)
		err = ki_file_unlink(store, path);
	return ki_file_is_gone(err) ? 0 : err;
}

/* ---- By cost ------------------------------------------------------------------- */

#define LOOK_BYTES 4096 /* of a file: header, key and metadata of most */

/* What a file's metadata say, unchecked: wrong ones cost a choice.  0: nothing. */
static uint64_t read_build_ns(const struct ki_sys *sys, int fd)
{
	uint8_t bytes[LOOK_BYTES];
	struct ki_envelope envelope;
	struct ki_file_info info;
	uint64_t at, size;

	if (sys->fstat(sys, fd, &info))
		return 0;
	size = info.size < sizeof(bytes) ? info.size : sizeof(bytes);
	if (size < KI_ENVELOPE_HEADER_BYTES ||
	    ki_pread_all(sys, fd, bytes, (size_t)size, 0) ||
	    ki_envelope_peek(bytes, info.size, &envelope))
		return 0;
	at = (KI_ENVELOPE_HEADER_BYTES + (uint64_t)envelope.record_size + 7) &
	     ~(uint64_t)7;
	if (at + envelope.metadata_size <= size)
		return ki_evict_build_ns(bytes + at, envelope.metadata_size);
	/* Behind a long key. */
	if (envelope.metadata_size > sizeof(bytes) ||
	    ki_pread_all(sys, fd, bytes, envelope.metadata_size, at))
		return 0;
	return ki_evict_build_ns(bytes, envelope.metadata_size);
}

static uint64_t build_ns_of(const struct ki_file_store *store,
			    const uint8_t digest[KILN_DIGEST_BYTES])
{
	const struct ki_sys *sys = store->sys;
	char path[KI_PATH_MAX];
	uint64_t build_ns;
	int fd = ki_file_entry_path(store, digest, path)
			 ? -ENAMETOOLONG
			 : sys->open(sys, path, KI_OPEN_READ | KI_OPEN_NOFOLLOW,
				     0);

	if (fd < 0)
		return 0;
	build_ns = read_build_ns(sys, fd);
	(void)sys->close(sys, fd);
	return build_ns;
}

static void look_at_costs(struct sweep *sweep)
{
	for (size_t i = 0; i < sweep->n; i++)
		if (!sweep->candidates[i].is_quarantined)
			sweep->evictable[i].build_ns = build_ns_of(
				sweep->store, sweep->candidates[i].digest);
}

/* ---- Evicting ------------------------------------------------------------------ */

static size_t choose(struct sweep *sweep, uint64_t bytes_left)
{
	if (!sweep->by_cost)
		return ki_evict_choose(sweep->evictable, sweep->n, bytes_left,
				       INT64_MIN);
	look_at_costs(sweep);
	return ki_evict_choose_by_cost(sweep->evictable, sweep->n, bytes_left,
				       sweep->now_ns);
}

/* Damaged ones first, then what was not used for longest, or by cost. */
static void evict(struct sweep *sweep, uint64_t bytes_left)
{
	size_t i, n = choose(sweep, bytes_left);

	for (i = 0; i < n; i++) {
		const struct ki_evictable *victim = &sweep->evictable[i];
		const struct candidate *candidate =
			&sweep->candidates[victim->id];

		if (remove_victim(sweep->store, candidate))
			continue;
		sweep->total -= victim->bytes;
		if (candidate->is_quarantined)
			sweep->report->n_aside++;
		else
			sweep->report->n_evicted++;
	}
}

/* The time that lies this long ago; 0 is for ever. */
static int64_t since(int64_t now_ns, uint64_t age_s)
{
	if (!age_s || age_s > (uint64_t)INT64_MAX / 1000000000)
		return INT64_MIN;
	return now_ns - (int64_t)age_s * 1000000000;
}

/* The lower of two limits of which 0 is none. */
static uint64_t lower(uint64_t a, uint64_t b)
{
	if (!a || !b)
		return a ? a : b;
	return a < b ? a : b;
}

/* What large files being written may still add to what is counted. */
static uint64_t still_pending(const struct ki_sys *sys,
			      const struct ki_file_access *access)
{
	if (!access->has_locks)
		return 0;
	if (sys->try_lock(sys, access->fd, KI_LOCK_EXCLUSIVE, 1, 1))
		return access->usage.pending;
	(void)sys->unlock(sys, access->fd, 1, 1);
	return 0;
}

static void count_evicted(const struct ki_file_store *store, uint64_t n)
{
	uint64_t deltas[KILN_N_COUNTERS] = { 0 };

	deltas[KILN_COUNT_EVICTED] = n;
	if (n)
		(void)ki_counters_add(store->sys, store->stats, store->flags,
				      NULL, deltas);
}

/* Under the lock: make `need` bytes fit and write the true total. */
static enum kiln_status sweep_locked(const struct ki_file_store *store,
				     const struct ki_file_settings *settings,
				     struct ki_file_access *access,
				     uint64_t need,
				     struct ki_file_sweep *report)
{
	struct sweep sweep = {
		.store = store,
		.report = report,
		.by_cost = settings->by_cost && !settings->age_max_s,
	};
	uint64_t limit = settings->bytes_max ? usable(settings->bytes_max)
					     : UINT64_MAX / 2;
	const uint64_t pending = still_pending(store->sys, access);
	const int refuse =
		(store->flags & KILN_OPEN_REFUSE_FULL) && !report->bytes_max;
	enum kiln_status status = KILN_OK;
	int err = write_usage(store->sys, access); /* for its time */

	if (report->bytes_max && report->bytes_max < limit)
		limit = report->bytes_max;
	sweep.now_ns = access->now_ns;
	sweep.used_since_ns = since(
		sweep.now_ns, lower(settings->age_max_s, report->age_max_s));
	sweep.aside_since_ns =
		report->drops_aside ? INT64_MAX
				    : since(sweep.now_ns, report->aside_max_s);
	if (!err)
		err = count_all(&sweep, limit);
	if (err) {
		status = ki_status_from_errno(err);
		goto out;
	}
	if (access->usage.total != TOTAL_UNKNOWN)
		report->noted = access->usage.total;
	sweep.total += pending;
	sweep.fixed += pending;
	report->counted = sweep.total;
	report->before = sweep.total + sweep.dropped;
	if (sweep.fixed > limit || need > limit - sweep.fixed)
		status = KILN_E_FULL; /* of what is being written */
	else if (sweep.total + need > limit && !refuse)
		evict(&sweep, limit - sweep.fixed - need < limit / 8 * 7
				      ? limit - sweep.fixed - need
				      : limit / 8 * 7);
	if (!status && sweep.total + need > limit)
		status = KILN_E_FULL;
	report->left = sweep.total;
	access->usage.total = sweep.total;
	access->usage.pending = pending;
	access->usage.epoch++;
	access->usage.swept_ns = sweep.now_ns;
	note_boot(&access->usage, store->writer.boot);
	err = write_usage(store->sys, access);
	if (err && !status)
		status = ki_status_from_errno(err);
	count_evicted(store, report->n_evicted + report->n_expired);
out:
	free(sweep.evictable);
	free(sweep.candidates);
	return status;
}

enum kiln_status ki_file_sweep(struct ki_file_store *store,
			       struct ki_file_sweep *sweep)
{
	const struct ki_file_settings settings = ki_file_settings_now(store);
	struct ki_file_sweep report = { 0 };
	struct ki_file_access access;
	enum kiln_status status =
		ki_file_access_begin(store, KI_FILE_TOOL_NS, &access);

	if (status)
		return status;
	status = sweep_locked(store, &settings, &access, 0,
			      sweep ? sweep : &report);
	ki_file_access_end(store, &access);
	return status;
}

static enum kiln_status limit_locked(struct ki_file_store *store,
				     struct ki_file_access *access,
				     uint64_t bytes_max)
{
	struct ki_file_sweep report = { 0 };
	struct ki_file_settings settings;
	enum kiln_status status;
	uint64_t before;

	if (ki_file_settings_check(store, KI_FILE_NOW))
		return KILN_E_OWNER;
	before = ki_file_settings_now(store).bytes_max;
	status = ki_file_settings_change_locked(
		store, &(struct ki_file_change){ .bytes_max = &bytes_max });
	if (status)
		return status;
	settings = ki_file_settings_now(store);
	status = sweep_locked(store, &settings, access, 0, &report);
	if (status)
		(void)ki_file_settings_change_locked(
			store,
			&(struct ki_file_change){ .bytes_max = &before });
	return status;
}

enum kiln_status ki_file_set_limit(struct kiln_tier *tier, uint64_t bytes_max)
{
	struct ki_file_store *store = (struct ki_file_store *)tier;
	struct ki_file_access access;
	enum kiln_status status;

	if (ki_file_is_readonly(store))
		return KILN_E_READONLY;
	if (bytes_max && bytes_max < KI_FILE_BYTES_MIN)
		return KILN_E_FULL;
	if (ki_file_settings_check(store, KI_FILE_AT_TIMES))
		return KILN_E_OWNER;
	status = ki_file_settings_open(store);
	if (!status)
		status = ki_file_access_begin(store, KI_FILE_TOOL_NS, &access);
	if (status)
		return status;
	status = limit_locked(store, &access, bytes_max);
	ki_file_access_end(store, &access);
	return status;
}

enum kiln_status ki_file_set_eviction(struct kiln_tier *tier,
				      enum kiln_eviction eviction)
{
	struct ki_file_store *store = (struct ki_file_store *)tier;

	if (ki_file_is_readonly(store))
		return KILN_E_READONLY;
	if (ki_file_settings_check(store, KI_FILE_AT_TIMES))
		return KILN_E_OWNER;
	return ki_file_settings_change(
		store, &(struct ki_file_change){ .eviction = &eviction });
}

enum kiln_status ki_file_gc(struct kiln_tier *tier,
			    const struct kiln_gc_options *options,
			    kiln_progress_fn *progress, void *arg,
			    struct kiln_gc_report *out_report)
{
	struct ki_file_store *store = (struct ki_file_store *)tier;
	struct ki_file_sweep sweep = {
		.bytes_max = options->bytes_max,
		.age_max_s = options->age_max_s,
		.aside_max_s = KILN_GC_QUARANTINE_DAYS * 24 * 3600,
		.drops_aside = !!(options->flags & KILN_GC_QUARANTINE),
	};
	enum kiln_status status;

	if (ki_file_is_readonly(store))
		return KILN_E_READONLY;
	if (options->bytes_max && options->bytes_max < KI_FILE_BYTES_MIN)
		return KILN_E_FULL;
	if (ki_file_settings_check(store, KI_FILE_AT_TIMES))
		return KILN_E_OWNER;
	status = ki_file_sweep(store, &sweep);
	if (status && status != KILN_E_FULL && status != KILN_E_TOO_LARGE)
		return status;
	if (progress)
		progress(arg, sweep.before - sweep.left,
			 sweep.before - sweep.left);
	*out_report = (struct kiln_gc_report){
		.bytes_before = sweep.before,
		.bytes_after = sweep.left,
		.n_evicted = sweep.n_evicted,
		.n_expired = sweep.n_expired,
		.n_temporaries = sweep.n_temporaries,
		.n_quarantined = sweep.n_aside,
	};
	return KILN_OK;
}

/* ---- Reserving ------------------------------------------------------------------ */

/* A file of `size` takes up whole blocks. */
static uint64_t rounded(uint64_t size)
{
	return (size + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
}

static int take_from_reserve(struct ki_file_store *store, uint64_t need)
{
	int took;

	ki_mutex_lock(&store->mutex);
	took = store->reserve >= need;
	if (took)
		store->reserve -= need;
	ki_mutex_unlock(&store->mutex);
	return took;
}

static void add_reserve(struct ki_file_store *store, uint64_t bytes,
			uint64_t epoch)
{
	ki_mutex_lock(&store->mutex);
	if (store->reserve_epoch != epoch)
		store->reserve = 0;
	store->reserve += bytes;
	store->reserve_epoch = epoch;
	ki_mutex_unlock(&store->mutex);
}

/* Add what of `chunk` can be had beside `need`, sweeping if need be. */
static enum kiln_status speak_for(const struct ki_file_store *store,
				  const struct ki_file_settings *settings,
				  struct ki_file_access *access, uint64_t need,
				  uint64_t *chunk)
{
	const uint64_t limit = usable(settings->bytes_max);
	struct ki_file_sweep report = { 0 };
	struct ki_file_usage *usage = &access->usage;
	enum kiln_status status;

	if (need > limit)
		return KILN_E_TOO_LARGE;
	if (usage->total > limit || *chunk > limit - usage->total ||
	    !knows_boot(usage, store->writer.boot)) {
		status = sweep_locked(store, settings, access, need, &report);
		if (status)
			return status;
		if (*chunk > limit - usage->total)
			*chunk = need;
	}
	usage->total += *chunk;
	return KILN_OK;
}

static enum kiln_status begin_small(struct ki_file_store *store,
				    const struct ki_file_settings *settings,
				    struct ki_file_room *room)
{
	uint64_t chunk = settings->bytes_max / CHUNKS;
	struct ki_file_access access;
	enum kiln_status status =
		ki_file_access_begin(store, KI_FILE_PUT_NS, &access);

	if (status)
		return status;
	status = speak_for(store, settings, &access, room->need, &chunk);
	if (!status)
		status = ki_status_from_errno(write_usage(store->sys, &access));
	if (!status)
		add_reserve(store, chunk - room->need, access.usage.epoch);
	ki_file_access_end(store, &access);
	return status;
}

static enum kiln_status begin_large(struct ki_file_store *store,
				    const struct ki_file_settings *settings,
				    struct ki_file_room *room)
{
	const struct ki_sys *sys = store->sys;
	struct ki_file_access *access = &room->access;
	uint64_t chunk = room->need;
	enum kiln_status status =
		ki_file_access_begin(store, KI_FILE_PUT_NS, access);

	if (status)
		return status;
	status = speak_for(store, settings, access, room->need, &chunk);
	if (!status) {
		access->usage.pending += room->need;
		status = ki_status_from_errno(write_usage(sys, access));
	}
	if (status) {
		ki_file_access_end(store, access);
		return status;
	}
	if (access->has_locks) {
		(void)sys->try_lock(sys, access->fd, KI_LOCK_SHARED, 1, 1);
		(void)sys->unlock(sys, access->fd, 0, 1);
	}
	room->epoch = access->usage.epoch;
	room->is_pending = 1;
	return KILN_OK;
}

enum kiln_status ki_file_room_begin(struct ki_file_store *store, uint64_t size,
				    struct ki_file_room *room)
{
	const struct ki_file_settings settings = ki_file_settings_now(store);

	*room = (struct ki_file_room){ .need = rounded(size) };
	if (!settings.bytes_max) {
		room->need = 0;
		return KILN_OK;
	}
	if (room->need > settings.bytes_max / CHUNKS)
		return begin_large(store, &settings, room);
	if (take_from_reserve(store, room->need))
		return KILN_OK;
	return begin_small(store, &settings, room);
}

/* What cannot be noted stays too high until the next sweep. */
static void finish_large(const struct ki_file_store *store,
			 struct ki_file_room *room, int is_written)
{
	const struct ki_sys *sys = store->sys;
	struct ki_file_access *access = &room->access;
	struct ki_file_usage *usage = &access->usage;

	if (access->has_locks &&
	    ki_lock_until(sys, access->fd, KI_LOCK_EXCLUSIVE, 0, 1,
			  sys->monotonic_ns(sys) + KI_FILE_PUT_NS))
		goto out;
	*usage = read_usage(sys, access->fd);
	if (usage->total == TOTAL_UNKNOWN)
		goto out;
	usage->pending -=
		usage->pending < room->need ? usage->pending : room->need;
	if (!is_written && usage->epoch == room->epoch &&
	    usage->total >= room->need)
		usage->total -= room->need;
	(void)write_usage(sys, access);
out:
	ki_file_access_end(store, access);
}

void ki_file_room_finish(struct ki_file_store *store, struct ki_file_room *room,
			 int is_written)
{
	if (room->is_pending) {
		finish_large(store, room, is_written);
	} else if (!is_written) {
		ki_mutex_lock(&store->mutex);
		store->reserve += room->need;
		ki_mutex_unlock(&store->mutex);
	}
}

void ki_file_return_reserve(struct ki_file_store *store)
{
	uint64_t reserve = store->reserve;
	struct ki_file_access access;

	store->reserve = 0;
	if (!reserve || ki_file_access_begin(store, KI_FILE_PUT_NS, &access))
		return;
	if (access.usage.epoch == store->reserve_epoch &&
	    access.usage.total != TOTAL_UNKNOWN &&
	    access.usage.total >= reserve) {
		access.usage.total -= reserve;
		(void)write_usage(store->sys, &access);
	}
	ki_file_access_end(store, &access);
}
