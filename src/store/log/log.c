/* SPDX-License-Identifier: MIT */

/*
 * The native store: opening, closing, and the way from a call to an index that
 * can be used.  A hit goes on in find.c, a put in put.c, a remove in remove.c;
 * README.md has the promises, docs/formats/log.md the bytes.
 *
 *	  .--- the first look-up, by pread
 *	  v   |        another file at the path, or RETIRED
 *	[open]'--map--> [in use] --------------------------> [in use]
 *	                   |  ^
 *	 path gone, reading|  |made anew, writing
 *	                   v  |
 *	                  [none]
 *
 * An index that was replaced by a larger one of the same store (same id) hands
 * its open segments on; one of another store starts without.
 */

#include "store/log/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_EVERY_NS 1000000000u

/* ---- The guard ------------------------------------------------------- */

_Atomic uint64_t *ki_log_enter(struct ki_log *log)
{
	uint64_t thread = (uint64_t)(uintptr_t)pthread_self();
	unsigned i = (unsigned)(thread * 0x9e3779b97f4a7c15ull >> 60);
	_Atomic uint64_t *stripe = &log->stripes[i].n_inside;

	atomic_fetch_add(stripe, 1);
	return stripe;
}

void ki_log_leave(struct ki_log *log, _Atomic uint64_t *stripe)
{
	atomic_fetch_sub(stripe, 1);
	if (atomic_load_explicit(&log->has_retired, memory_order_relaxed))
		ki_log_reclaim(log);
}

/* ---- Small things ---------------------------------------------------- */

void ki_log_say(struct ki_log *log, enum kiln_log_level level,
		const char *format, ...)
{
	char text[KI_PATH_MAX + 256];
	va_list arguments;
	int n;

	if (!log->log)
		return;
	n = snprintf(text, sizeof(text), "%s: ", log->index_path);
	va_start(arguments, format);
	if (n >= 0 && (size_t)n < sizeof(text))
		vsnprintf(text + n, sizeof(text) - (size_t)n, format,
			  arguments);
	va_end(arguments);
	log->log(log->log_arg, level, text);
}

void ki_log_tell_left(struct ki_log *log)
{
	if (log->has_left && atomic_exchange(&log->has_left, 0))
		ki_log_say(log, KILN_LOG_WARNING,
			   "wiped, but not all files could be removed");
	if (log->refused_why) {
		const char *why = atomic_exchange(&log->refused_why, NULL);

		if (why)
			ki_log_say(log, KILN_LOG_WARNING, "the directory %s",
				   why);
	}
}

enum kiln_status ki_log_status(int err)
{
	if (err >= 0)
		return KILN_OK;
	if (err == -ELOOP)
		return KILN_E_OWNER;
	return err == -ENOLCK ? KILN_E_UNSUPPORTED : ki_status_from_errno(err);
}

unsigned ki_log_mode(const struct ki_log *log)
{
	return log->flags & KILN_OPEN_SHARED ? 0660 : 0600;
}

void ki_log_boot_id(struct ki_log *log, uint64_t out_id[2])
{
	int err;

	if (!atomic_load_explicit(&log->knows_boot, memory_order_acquire)) {
		err = ki_boot_id(log->sys, (uint8_t *)out_id);
		if (err && err != -ENOENT)
			return;
		log->boot_id[0] = out_id[0];
		log->boot_id[1] = out_id[1];
		log->knows_boot = 1;
	}
	out_id[0] = log->boot_id[0];
	out_id[1] = log->boot_id[1];
}

int ki_log_segment_path(const struct ki_log *log, uint32_t number,
			char out[KI_PATH_MAX])
{
	size_t n_stem = strlen(log->index_path) - strlen("idx");
	unsigned i;

	if (n_stem + sizeof("00000000.val") > KI_PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(out, log->index_path, n_stem);
	for (i = 0; i < 8; i++)
		out[n_stem + i] =
			"0123456789abcdef"[number >> (28 - 4 * i) & 15];
	memcpy(out + n_stem + 8, ".val", sizeof(".val"));
	return 0;
}

/* ---- The index in use ------------------------------------------------ */

static void release_index(struct log_retired *retired)
{
	ki_log_index_close(
		(struct log_index *)(void *)((char *)retired -
					     offsetof(struct log_index,
						      retired)));
}

struct old_segments {
	struct log_retired retired;
	struct log_segments *segments;
};

static void release_segments(struct log_retired *retired)
{
	struct old_segments *old = (struct old_segments *)(void *)retired;

	ki_log_segments_free(old->segments);
	free(old);
}

static int same_store(const struct log_index *a, const struct log_index *b)
{
	const struct log_fixed *x = a ? ki_log_fixed(a->header) : NULL;
	const struct log_fixed *y = ki_log_fixed(b->header);

	return x && y && !memcmp(x->id, y->id, sizeof(x->id));
}

/* Of a mapped header, which is everybody's, or of the handle alone. */
static uint64_t shown_generation(const struct ki_log *log)
{
	const uint64_t *place =
		__atomic_load_n(&log->tier.generation, __ATOMIC_ACQUIRE);

	return place ? __atomic_load_n(place, __ATOMIC_RELAXED) : 0;
}

/* Take `index` (NULL: none) into use. */
static enum kiln_status switch_locked(struct ki_log *log,
				      struct log_index *index)
	KI_REQUIRES(&log->mutex)
{
	struct log_index *old = log->index;
	struct log_segments *kept = NULL;
	struct old_segments *left = NULL;
	struct log_page *page = NULL;
	int same = index && same_store(old, index);

	if (old && !same) {
		left = calloc(1, sizeof(*left));
		if (!left)
			return KILN_E_NO_MEMORY;
		left->segments = old->segments;
	}
	if (index && ki_log_is_mapped(index)) {
		kept = same ? old->segments : NULL;
		index->segments = kept ? kept : ki_log_segments_new();
		page = calloc(1, sizeof(*page));
		if (!index->segments || !page) {
			if (!kept)
				ki_log_segments_free(index->segments);
			index->segments = NULL;
			free(page);
			free(left);
			return KILN_E_NO_MEMORY;
		}
	}
	if (index) {
		if (!same) {
			log->epoch += 2;
			log->min_live_seen = index->header->min_live;
		}
		if (!same && log->epoch > 2)
			log->unplaced = LOG_UNPLACED_DEAD;
		if (!same && log->is_session && log->is_open)
			log->has_lost_session = 1;
		index->epoch = log->epoch;
	}
	if (page) {
		page->data = index->header;
		index->keeps_page = 1;
		page->next = log->pages;
		log->pages = page;
		__atomic_store_n(
			&log->tier.generation,
			(const uint64_t
				 *)(const void *)((const char *)page->data +
						  offsetof(struct log_header,
							   generation)),
			__ATOMIC_SEQ_CST);
	}
	if (!index && old) {
		log->gone_generation = ~shown_generation(log);
		__atomic_store_n(&log->tier.generation, &log->gone_generation,
				 __ATOMIC_SEQ_CST);
	}
	log->index = index;
	if (old)
		ki_log_retire_locked(log, &old->retired, release_index);
	if (left)
		ki_log_retire_locked(log, &left->retired, release_segments);
	return KILN_OK;
}

int ki_log_is_other_version(const struct ki_log *log,
			    const struct log_index *index)
{
	const struct log_fixed *fixed =
		index ? ki_log_fixed(index->header) : NULL;

	return (log->user_version || log->is_session) && fixed &&
	       fixed->user_version != log->user_version;
}

/* Look where the path leads, and follow.  Opening need not map.  KILN_E_FORMAT
   and no index: it is of another user version by now, which only opening
   wipes. */
static enum kiln_status follow(struct ki_log *log, int *out_damaged)
{
	const struct ki_sys *sys = log->sys;
	struct log_index *index, *next = NULL;
	struct ki_file_info info;
	enum kiln_status status = KILN_OK;
	int is_used, is_other = 0, err;

	*out_damaged = 0;
	ki_mutex_lock(&log->mutex);
	index = log->index;
	is_used = index && ki_log_is_mapped(index);
	err = is_used ? sys->stat(sys, log->index_path, &info) : 0;
	if (!is_used || err || info.inode != index->inode ||
	    info.device != index->device) {
		status = ki_log_index_open(log, log->is_open, &next,
					   out_damaged);
		is_other = !status && log->is_open &&
			   ki_log_is_other_version(log, next);
		if (is_other) {
			ki_log_index_close(next);
			next = NULL;
		}
		if (!status || status == KILN_MISS) {
			err = switch_locked(log, next);
			if (err) {
				ki_log_index_close(next);
				status = (enum kiln_status)err;
			}
		}
		if (!status && is_other)
			status = KILN_E_FORMAT;
	}
	if (!status)
		log->checked_ns = sys->coarse_ns(sys);
	ki_mutex_unlock(&log->mutex);
	return status;
}

int ki_log_needs_care(const struct log_index *index)
{
	return index && index->writable &&
	       (ki_log_is_retired(index) ||
		!log_number_is_sound(index->header->min_live));
}

/* Who makes it grow or wipes it has byte 0, and may have stopped.  There is an
   index to open until then: what is there can be read, or all of it is gone,
   and what follows is noticed like any other change. */
static int is_held_up(const struct ki_log *log)
{
	const struct log_index *index = log->index;

	return index && ki_log_is_retired(index);
}

/* Opening is, with a look now and then: others may have made it, and be at work
   in it so much that we never get the lock.  Repairs lie on a put's way. */
static int is_worth_a_wait(const struct ki_log *log)
{
	return !log->is_open || !log->index;
}

/* One of LOG_TRIES; *out_again: more of them are worth it. */
static enum kiln_status make_or_wait(struct ki_log *log, int is_first,
				     int *out_again)
{
	uint32_t patience_ms = is_worth_a_wait(log) ? ki_log_patience_ms(log)
						    : LOG_ROLL_TIMEOUT_MS;
	int waits = patience_ms > LOG_ROLL_TIMEOUT_MS;
	enum kiln_status status =
		ki_log_make(log, waits ? patience_ms / LOG_TRIES : patience_ms);

	ki_log_tell_left(log);
	*out_again = waits && status == KILN_E_TIMEOUT &&
		     (is_first || !is_held_up(log));
	if (!status || (waits && status == KILN_E_TIMEOUT && !*out_again))
		ki_log_note_wait(log, status != KILN_OK);
	return status;
}

/* All of them at once, where nothing can come of others. */
static enum kiln_status make_alone(struct ki_log *log)
{
	uint32_t patience_ms = ki_log_patience_ms(log);
	enum kiln_status status = ki_log_make(log, patience_ms);

	ki_log_tell_left(log);
	if (!status ||
	    (status == KILN_E_TIMEOUT && patience_ms > LOG_ROLL_TIMEOUT_MS))
		ki_log_note_wait(log, status != KILN_OK);
	return status;
}

/* What is refused stays due, so that nobody goes by the index that is known. */
static enum kiln_status check_directory(struct ki_log *log)
{
	const char *why;
	enum kiln_status status = ki_directory_watch(
		log->sys, log->directory, log->flags, &log->watch, &why);

	if (status)
		log->checked_ns = log->sys->coarse_ns(log->sys) -
				  2 * (uint64_t)LOOK_EVERY_NS;
	if (why)
		log->refused_why = why;
	return status;
}

/*
 * Follow the path; where there is nothing to follow, or something that a dead
 * process left half-way, put it right.
 */
static enum kiln_status come_to_it(struct ki_log *log, enum log_purpose purpose)
{
	enum kiln_status status = check_directory(log);
	const char *why;
	int tries, damaged, again = 0;

	if (status)
		return status;
	for (tries = 0; tries < LOG_TRIES; tries++) {
		status = follow(log, &damaged);
		if (purpose <= LOG_READ || log->readonly)
			return damaged || (status == KILN_E_FORMAT &&
					   !log->index)
				       ? KILN_MISS
				       : status;
		if (status == KILN_OK && !ki_log_needs_care(log->index))
			return KILN_OK;
		if (status == KILN_MISS && purpose != LOG_WRITE)
			return status;
		if (status && status != KILN_MISS && !damaged)
			return status;
		if (status == KILN_MISS) {
			status = ki_directory_check(log->sys, log->directory,
						    log->flags, 1, &why);
			if (status == KILN_E_OWNER)
				return status;
		}
		status = make_or_wait(log, !tries, &again);
		/* Someone may be removing the directory at this moment. */
		if (status && !again && (status != KILN_E_IO || tries >= 4))
			return status;
	}
	if (again)
		ki_log_note_wait(log, 1);
	return KILN_E_TIMEOUT;
}

static enum kiln_status catch_up(struct ki_log *log, enum log_purpose purpose)
{
	enum kiln_status status = come_to_it(log, purpose);

	if (log->is_session && log->is_open)
		ki_log_session_renew(log);
	return status;
}

int ki_log_is_due(const struct ki_log *log)
{
	return (int64_t)(log->sys->coarse_ns(log->sys) - log->checked_ns) >
	       LOOK_EVERY_NS;
}

/* Only one look-up goes on without a mapping, and only as long as there is
   nothing to do but to look. */
static int can_look_first(const struct ki_log *log, struct log_index *index)
{
	return !ki_log_is_mapped(index) && !ki_log_is_due(log) &&
	       !atomic_exchange(&index->has_looked, 1) &&
	       ki_log_index_refresh(index) && !ki_log_is_retired(index) &&
	       !index->header->limits.age_max_s;
}

/*
 * What the first look-up hands out is kept in memory, and nothing tells when it
 * is gone: whoever keeps it must ask about it once, which maps.
 */
static void say_generation(struct ki_log *log)
{
	const uint64_t *none = NULL;

	__atomic_compare_exchange_n(&log->tier.generation, &none,
				    &log->first_generation, 0, __ATOMIC_SEQ_CST,
				    __ATOMIC_RELAXED);
}

enum kiln_status ki_log_current(struct ki_log *log, enum log_purpose purpose,
				struct log_index **out_index)
{
	struct log_index *index = log->index;
	enum kiln_status status;

	if (purpose == LOG_LOOK && index && can_look_first(log, index)) {
		say_generation(log);
		*out_index = index;
		return KILN_OK;
	}
	if (purpose > LOG_READ || !index || !ki_log_is_mapped(index) ||
	    ki_log_is_retired(index) || ki_log_is_due(log)) {
		status = catch_up(log, purpose);
		if (status)
			return status;
		index = log->index;
	}
	if (!index)
		return KILN_MISS;
	if (index->header->retired == LOG_RETIRED_WIPED)
		return KILN_MISS;
	*out_index = index;
	return KILN_OK;
}

/* ---- Changes --------------------------------------------------------- */

enum kiln_status ki_log_change(struct ki_log *log, enum log_purpose purpose,
			       log_change_fn *change, void *arg)
{
	enum kiln_status status = LOG_AGAIN;
	_Atomic uint64_t *stripe;
	struct log_index *index;
	int tries;

	if (log->readonly)
		return KILN_E_READONLY;
	stripe = ki_log_enter(log);
	for (tries = 0; tries < LOG_TRIES && status == LOG_AGAIN; tries++) {
		status = ki_log_current(log, purpose, &index);
		if (!status)
			status = index->writable ? change(log, index, arg)
						 : KILN_E_READONLY;
	}
	ki_log_leave(log, stripe);
	if (status)
		ki_log_tell_left(log);
	return status == LOG_AGAIN ? KILN_E_TIMEOUT : status;
}

struct locked_change {
	log_change_fn *change;
	void *arg;
};

static enum kiln_status under_lock(struct ki_log *log, struct log_index *index,
				   void *arg)
{
	const struct locked_change *locked = arg;
	struct ki_lock lock;
	enum kiln_status status =
		ki_log_structure_begin(log, &lock, LOG_CHANGE_TIMEOUT_MS);

	if (status)
		return status;
	status = ki_log_is_current_locked(log, index)
			 ? locked->change(log, index, locked->arg)
			 : LOG_AGAIN;
	ki_log_structure_end(log, &lock);
	return status;
}

enum kiln_status ki_log_change_locked(struct ki_log *log,
				      enum log_purpose purpose,
				      log_change_fn *change, void *arg)
{
	struct locked_change locked = { .change = change, .arg = arg };

	return ki_log_change(log, purpose, under_lock, &locked);
}

/* ---- For the memory tier --------------------------------------------- */

static int is_live(struct kiln_tier *tier, const struct kiln_blob *blob)
{
	struct ki_log *log = (struct ki_log *)tier;
	uint64_t place = blob->place;
	_Atomic uint64_t *stripe;
	struct log_index *index;
	int live;

	stripe = ki_log_enter(log);
	live = !ki_log_current(log, LOG_READ, &index);
	if (place == KI_BLOB_NOWHERE) {
		live = live && log->unplaced == LOG_UNPLACED_LIVE;
		if (!live)
			log->unplaced = LOG_UNPLACED_SWEPT;
		ki_log_leave(log, stripe);
		return live;
	}
	live = live &&
	       (place >> 32 & 0x7fffffff) == (index->epoch & 0x7ffffffe) &&
	       (place >> 63 ||
		!log_is_before((uint32_t)place, ki_log_min_live(index)));
	ki_log_leave(log, stripe);
	return live;
}

static enum kiln_status count(struct kiln_tier *tier,
			      const uint64_t deltas[KILN_N_COUNTERS])
{
	struct ki_log *log = (struct ki_log *)tier;

	if (log->readonly)
		return KILN_E_READONLY;
	if (ki_directory_is_refused(&log->watch))
		return KILN_E_OWNER;
	return ki_counters_add(log->sys, log->stats_path, log->flags,
			       log->application, deltas);
}

static enum kiln_status counters(struct kiln_tier *tier,
				 struct kiln_store_counters *out_counters)
{
	struct ki_log *log = (struct ki_log *)tier;

	return ki_counters_read(log->sys, log->stats_path, out_counters);
}

static enum kiln_status zero_counters(struct kiln_tier *tier)
{
	struct ki_log *log = (struct ki_log *)tier;

	if (check_directory(log))
		return KILN_E_OWNER;
	return log->readonly ? KILN_E_READONLY
			     : ki_counters_zero(log->sys, log->stats_path,
						log->flags);
}

/* ---- Opening and closing --------------------------------------------- */

/* In a forked child too: takes no lock, writes nothing there. */
static void close_log(struct kiln_tier *tier)
{
	struct ki_log *log = (struct ki_log *)tier;
	struct log_index *index = log->index;
	struct log_segments *segments = index ? index->segments : NULL;

	int is_child = log->fork_generation != ki_fork_counter;

	if (!is_child) {
		ki_log_forget_builder(log);
		ki_log_session_end(log);
	}
	while (log->retired) {
		struct log_retired *retired = log->retired;

		log->retired = retired->next;
		retired->release(retired);
	}
	ki_log_index_close(index);
	ki_log_segments_free(segments);
	while (log->pages) {
		struct log_page *page = log->pages;

		log->pages = page->next;
		log->sys->unmap(log->sys, page->data,
				ki_log_page_bytes(log->sys));
		free(page);
	}
	/* In a child they may be in the hands of threads that do not exist. */
	if (!is_child) {
		ki_cond_fini(&log->changed);
		ki_mutex_fini(&log->mutex);
	}
	free(log->directory); /* and all other strings */
	free(log);
}

static const struct kiln_tier_ops ops = {
	.version = KILN_TIER_VERSION,
	.name = "log",
	.get = ki_log_get,
	.glance = ki_log_glance,
	.put = ki_log_put,
	.remove = ki_log_remove,
	.wipe = ki_log_wipe,
	.list = ki_log_list,
	.verify = ki_log_verify,
	.gc = ki_log_gc,
	.prefetch = ki_log_prefetch,
	.set_limit = ki_log_set_limit,
	.info = ki_log_info,
	.lock = ki_log_build_lock,
	.unlock = ki_log_build_unlock,
	.count = count,
	.counters = counters,
	.zero_counters = zero_counters,
	.note_build = ki_log_note_build,
	.builds_now = ki_log_builds_now,
	.remove_at_close = ki_log_remove_at_close,
	.keep_sources = ki_log_keep_sources,
	.find_source = ki_log_find_source,
	.set_eviction = ki_log_set_eviction,
	.close = close_log,
};

/*
 * The strings of a handle in one piece: "DIRECTORY/NAME." is put together once.
 * Where opening spends its time every 100 ns count, so no snprintf().
 */
static int set_paths(struct ki_log *log, const char *directory,
		     const char *name)
{
	static const char *const ends[] = { "idx", "lock", "stats", "spare" };
	char **const places[] = { &log->index_path, &log->lock_path,
				  &log->stats_path, &log->spare_path };
	size_t n_directory = strlen(directory), n_name = strlen(name);
	size_t n_stem = n_directory + n_name + 2;
	char *place = malloc(n_directory + n_name + 2 + 4 * (n_stem + 6));
	size_t i;

	if (!place)
		return 0;
	log->directory = memcpy(place, directory, n_directory + 1);
	place += n_directory + 1;
	log->name = memcpy(place, name, n_name + 1);
	place += n_name + 1;
	for (i = 0; i < 4; i++) {
		*places[i] = place;
		memcpy(place, directory, n_directory);
		place[n_directory] = '/';
		memcpy(place + n_directory + 1, name, n_name);
		place[n_stem - 1] = '.';
		memcpy(place + n_stem, ends[i], strlen(ends[i]) + 1);
		place += n_stem + 6;
	}
	return 1;
}

static struct ki_log *new_log(const struct ki_store_options *options)
{
	struct ki_log *log = calloc(1, sizeof(*log));
	uint32_t flags = options->flags;

	if (!log)
		return NULL;
	ki_mutex_init(&log->mutex, KI_RANK_STORE);
	ki_cond_init(&log->changed);
	log->tier.ops = &ops;
	log->tier.is_live = is_live;
	log->sys = options->sys;
	log->bytes_max = options->bytes_max;
	log->age_max_s = options->age_max_s;
	log->quota_bytes = options->quota_bytes;
	log->user_version = options->user_version;
	log->is_session = !!(flags & KILN_OPEN_SESSION);
	log->session.fd = -1;
	log->flags = flags;
	log->application = options->application ? options->application : "";
	log->log = options->log;
	log->log_arg = options->log_arg;
	log->fork_generation = ki_fork_generation();
	log->first_generation = 1; /* anything but nothing */
	log->readonly = !!(flags & (KILN_OPEN_READONLY | KILN_OPEN_ANY_OWNER));
	log->guest = !!(flags & KILN_OPEN_GUEST);
	log->maps_values = !(
		flags & (KILN_OPEN_GUEST | KILN_OPEN_COPY | KILN_OPEN_SHARED));
	log->verifies_always =
		!!(flags & (KILN_OPEN_GUEST | KILN_OPEN_VERIFY_ALWAYS |
			    KILN_OPEN_SHARED));
	log->glances = log->maps_values && !log->verifies_always;
	if (set_paths(log, options->directory,
		      options->name ? options->name : "kiln")) {
		log->locks.sys = log->sys;
		log->locks.path = log->lock_path;
		log->locks.directory = log->directory;
		log->locks.flags = flags;
		log->locks.watch = &log->watch;
		ki_directory_watch_begin(log->sys, &log->watch);
		return log;
	}
	close_log(&log->tier);
	return NULL;
}

static enum kiln_status check_place(struct ki_log *log, int is_local)
{
	enum ki_file_system kind;
	const char *why = "cannot be used";
	enum kiln_status status;
	int err;

	status = ki_directory_check(log->sys, log->directory, log->flags,
				    !log->readonly, &why);
	if (status) {
		ki_log_say(log, KILN_LOG_WARNING, "the directory %s", why);
		return status == KILN_MISS ? KILN_E_IO : status;
	}
	if (is_local)
		return KILN_OK;
	err = log->sys->file_system(log->sys, log->directory, &kind);
	if (err)
		return ki_status_from_errno(err);
	return kind == KI_FS_LOCAL ? KILN_OK : KILN_E_UNSUPPORTED;
}

enum kiln_status ki_store_log_open(const struct ki_store_options *options,
				   struct kiln_tier **out_tier)
{
	struct ki_log *log;
	enum kiln_status status;

	if (!options->directory || !options->directory[0] ||
	    (options->name &&
	     (!options->name[0] || strchr(options->name, '/'))))
		return KILN_E_INVALID;
	log = new_log(options);
	if (!log)
		return KILN_E_NO_MEMORY;
	status = check_place(log, options->is_local);
	if (status)
		goto out;
	if (log->is_session)
		status = ki_log_session_begin(log);
	if (status)
		goto out;
	status = catch_up(log, log->readonly ? LOG_READ : LOG_WRITE);
	if (status == KILN_E_TIMEOUT && is_held_up(log))
		status = KILN_OK;
	if (status == KILN_MISS)
		status = log->readonly ? KILN_OK : KILN_E_IO;
	if (!status && ki_log_is_other_version(log, log->index)) {
		status = log->readonly	   ? KILN_E_READONLY
			 : log->is_session ? KILN_E_FORMAT
					   : make_alone(log);
		if (!status)
			status = catch_up(log, LOG_WRITE);
	}
	/* Only the file system said so: from now on it is ours to read. */
	if (!status && log->index && !log->index->writable)
		log->readonly = 1;
	if (status)
		goto out;
	log->is_open = 1;
	*out_tier = &log->tier;
	log = NULL;
out:
	if (log)
		close_log(&log->tier);
	return status;
}
