/* SPDX-License-Identifier: MIT */

/*
 * Two kinds of locks.
 *
 * Among kilns: a byte of kiln.lock, which the kernel frees.  Whoever has it has
 * the turn; nobody else of kiln's writes meanwhile.
 *
 * Towards DPC++, which knows nothing but its lock files: these are made and removed
 * for each step, within the turn.  They are links to one file, kiln.held, which
 * nobody opens.  So a kiln's lock file is told by its inode, and the dead one's
 * by the turn: whoever has it and has made no lock file yet knows that all links
 * to kiln.held but its name are leftovers.  Their number says whether there are
 * any: one lstat in each turn, and a search only after a death.  Links that it does
 * not find (backups make some) are left behind with their file: a new one takes
 * its name.
 *
 * A lock file that is no link to kiln.held is somebody else's.  It has no
 * content, no owner and no age to go by (clocks jump), so it is watched: if the
 * same file (inode, and when it was made) has stood for ten seconds of this
 * process's monotonic clock, whoever made it is gone.  Putting passes over such an entry, evicting too;
 * what has to wait waits no longer than that.
 *
 * Where there are no links the lock files are made as DPC++ makes them, and a dead
 * kiln's is a stranger's.
 */

#include "store/sycl/sycl.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/status.h"

#define TURN_BYTE    0
#define TRIES_MAX    4
#define RECOUNT_NS   ((uint64_t)10 * 1000000000)
#define SPARE_NS     ((uint64_t)5 * 1000000)
#define THREADS_NS   ((uint64_t)50 * 1000)
#define PAUSE_MIN_NS ((uint64_t)1000000)
#define PAUSE_MAX_NS ((uint64_t)50 * 1000000)

static int lock_path_of(const char *path, char out[KI_PATH_MAX])
{
	const size_t size = strlen(path);

	if (size + sizeof(".lock") > KI_PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(out, path, size);
	memcpy(out + size, ".lock", sizeof(".lock"));
	return 0;
}

/* ---- kiln.held ----------------------------------------------------------------------- */

static int make_held(const struct ki_sycl *sycl, const char *path)
{
	const struct ki_sys *sys = sycl->sys;
	int fd = sys->open(sys, path,
			   KI_OPEN_WRITE | KI_OPEN_CREATE | KI_OPEN_EXCLUSIVE |
				   KI_OPEN_NOFOLLOW,
			   0600);

	if (fd < 0)
		return fd;
	/* Who may not write into a file may not link to it either. */
	if (sycl->flags & KILN_OPEN_SHARED)
		(void)sys->chmod(sys, path, 0660);
	return sys->close(sys, fd);
}

/* How many lock files there are, and -1 if there can be none of ours. */
static int look_at_held(const struct ki_sycl *sycl, struct ki_sycl_turn *turn)
{
	const struct ki_sys *sys = sycl->sys;
	struct ki_file_info info;
	int err = sys->lstat(sys, sycl->held_path, &info);

	if (err == -ENOENT && !make_held(sycl, sycl->held_path))
		err = sys->lstat(sys, sycl->held_path, &info);
	turn->held_device = turn->held_inode = 0;
	if (err || !S_ISREG(info.mode))
		return -1;
	turn->held_device = info.device;
	turn->held_inode = info.inode;
	return info.n_links > 1;
}

static int is_held(const struct ki_sycl_turn *turn,
		   const struct ki_file_info *info)
{
	return turn->held_inode && info->inode == turn->held_inode &&
	       info->device == turn->held_device;
}

int ki_sycl_drop_dead_lock(const struct ki_sycl *sycl,
			   const struct ki_sycl_turn *turn, const char *path)
{
	const struct ki_sys *sys = sycl->sys;
	char lock_path[KI_PATH_MAX];
	struct ki_file_info info;

	return !lock_path_of(path, lock_path) &&
	       !sys->lstat(sys, lock_path, &info) && is_held(turn, &info) &&
	       !sys->unlink(sys, lock_path);
}

/* Whether PATH.lock stands, and no kiln made it. */
static int is_others(const struct ki_sycl *sycl, const char *path)
{
	const struct ki_sys *sys = sycl->sys;
	struct ki_file_info info, held;
	char lock_path[KI_PATH_MAX];

	if (lock_path_of(path, lock_path) || sys->lstat(sys, lock_path, &info))
		return 0;
	return sys->lstat(sys, sycl->held_path, &held) ||
	       held.inode != info.inode || held.device != info.device;
}

int ki_sycl_is_locked(const struct ki_sycl *sycl, const char *stem)
{
	char path[KI_PATH_MAX];

	return !ki_sycl_path(sycl, stem, path) && is_others(sycl, path);
}

int ki_sycl_is_other_evicting(const struct ki_sycl *sycl)
{
	return is_others(sycl, sycl->evict_path) ||
	       is_others(sycl, sycl->evict_other);
}

/* ---- Somebody else's ------------------------------------------------------------------- */

static struct ki_sycl_sighting *sighting_of(struct ki_sycl *sycl, uint64_t path)
{
	struct ki_sycl_sighting *oldest = &sycl->sightings[0];

	for (size_t i = 0; i < KI_SYCL_SIGHTINGS; i++) {
		struct ki_sycl_sighting *sighting = &sycl->sightings[i];

		if (sighting->path == path)
			return sighting;
		if (sighting->first_ns < oldest->first_ns)
			oldest = sighting;
	}
	return oldest;
}

static int is_of(const struct ki_sycl_sighting *sighting,
		 const struct ki_file_info *info)
{
	return sighting->device == info->device &&
	       sighting->inode == info->inode &&
	       sighting->mtime_ns == info->mtime_ns;
}

/* Whether this file has stood there for long. */
static int is_stale(struct ki_sycl *sycl, const char *lock_path,
		    const struct ki_file_info *info)
{
	const uint64_t path = ki_xxh3_64(lock_path, strlen(lock_path)) | 1;
	const uint64_t now_ns = sycl->sys->monotonic_ns(sycl->sys);
	struct ki_sycl_sighting *sighting = sighting_of(sycl, path);

	if (sighting->path == path && is_of(sighting, info))
		return now_ns - sighting->first_ns >= sycl->stale_ns;
	*sighting = (struct ki_sycl_sighting){ path, info->device, info->inode,
					       info->mtime_ns, now_ns };
	return 0;
}

/* Where it cannot be renamed to: the one for evicting lies beside the directory,
   which may be a file system of its own. */
static int unlink_it(const struct ki_sycl *sycl, const char *lock_path,
		     uint64_t inode)
{
	const struct ki_sys *sys = sycl->sys;
	struct ki_file_info info;
	int err = sys->lstat(sys, lock_path, &info);

	if (!err && info.inode == inode)
		err = sys->unlink(sys, lock_path);
	return err == -ENOENT ? 0 : err;
}

/* It, and nothing that has come in its place meanwhile. */
int ki_sycl_take_away(struct ki_sycl *sycl, const char *lock_path,
		      uint64_t inode)
{
	const struct ki_sys *sys = sycl->sys;
	struct ki_file_info info;
	char aside[KI_PATH_MAX];
	int err = ki_sycl_path(sycl, "kiln.stale.tmp", aside);

	if (!err)
		err = sys->rename(sys, lock_path, aside);
	if (err && err != -ENOENT)
		return unlink_it(sycl, lock_path, inode);
	if (err)
		return 0;
	if (!sys->lstat(sys, aside, &info) && info.inode != inode)
		(void)sys->rename_new(sys, aside, lock_path);
	(void)sys->unlink(sys, aside);
	ki_bytes_add(&sycl->taken, lock_path, strlen(lock_path) + 1);
	return 0;
}

/* What stands in the way goes, if it has no owner: 0, -EAGAIN, or why it cannot
   be removed. */
static int clear(struct ki_sycl *sycl, const struct ki_sycl_turn *turn,
		 const char *lock_path)
{
	const struct ki_sys *sys = sycl->sys;
	struct ki_file_info info;
	int err = sys->lstat(sys, lock_path, &info);

	if (err)
		return err == -ENOENT ? 0 : err;
	if (is_held(turn, &info)) {
		err = sys->unlink(sys, lock_path);
		return err == -ENOENT ? 0 : err;
	}
	if (!is_stale(sycl, lock_path, &info))
		return -EAGAIN;
	return ki_sycl_take_away(sycl, lock_path, info.inode);
}

/* ---- Making one -------------------------------------------------------------------------- */

static int make_lock_file(const struct ki_sycl *sycl,
			  const struct ki_sycl_turn *turn,
			  const char *lock_path)
{
	const struct ki_sys *sys = sycl->sys;
	int fd, err = turn->held_inode
			      ? sys->link(sys, sycl->held_path, lock_path)
			      : -ENOSYS;

	switch (-err) {
	case EPERM:
	case EACCES:
	case EXDEV:
	case ENOSYS:
	case EOPNOTSUPP:
	case EMLINK:
		break;
	default:
		return err;
	}
	fd = sys->open(sys, lock_path,
		       KI_OPEN_WRITE | KI_OPEN_CREATE | KI_OPEN_EXCLUSIVE |
			       KI_OPEN_NOFOLLOW,
		       0200);
	return fd < 0 ? fd : sys->close(sys, fd);
}

static int try_lock(struct ki_sycl *sycl, const struct ki_sycl_turn *turn,
		    const char *lock_path)
{
	int err = -EAGAIN;

	for (int tries = 0; tries < TRIES_MAX; tries++) {
		err = make_lock_file(sycl, turn, lock_path);
		if (err != -EEXIST)
			return err;
		err = clear(sycl, turn, lock_path);
		if (err)
			return err;
	}
	return -EAGAIN;
}

int ki_sycl_lock(struct ki_sycl *sycl, struct ki_sycl_turn *turn,
		 const char *path, int waits)
{
	const struct ki_sys *sys = sycl->sys;
	uint64_t pause_ns = PAUSE_MIN_NS;
	char lock_path[KI_PATH_MAX];
	int err = lock_path_of(path, lock_path);

	while (!err) {
		uint64_t now_ns;

		err = try_lock(sycl, turn, lock_path);
		now_ns = sys->monotonic_ns(sys);
		if (err != -EAGAIN || !waits || now_ns >= turn->deadline_ns)
			return err;
		sys->sleep_ns(sys, pause_ns);
		pause_ns = pause_ns * 2 < PAUSE_MAX_NS ? pause_ns * 2
						       : PAUSE_MAX_NS;
		err = 0;
	}
	return err;
}

void ki_sycl_unlock(const struct ki_sycl *sycl, const char *path)
{
	char lock_path[KI_PATH_MAX];

	if (!lock_path_of(path, lock_path))
		(void)sycl->sys->unlink(sycl->sys, lock_path);
}

/* ---- What the dead left --------------------------------------------------------------------- */

struct search {
	const struct ki_sycl *sycl;
	const struct ki_sycl_turn *turn;
};

static int drop_lock_of(void *arg, const char *stem, unsigned has)
{
	const struct search *search = arg;
	char path[KI_PATH_MAX];

	if ((has & KI_SYCL_LOCK) && !ki_sycl_path(search->sycl, stem, path))
		(void)ki_sycl_drop_dead_lock(search->sycl, search->turn, path);
	return 0;
}

/* A name that no search finds is no lock file: of a backup that links instead of
   copying.  Whoever has it keeps the file, and here another takes its place. */
static void leave_held(const struct ki_sycl *sycl, struct ki_sycl_turn *turn)
{
	const struct ki_sys *sys = sycl->sys;
	char temporary[KI_PATH_MAX];

	if (ki_sycl_path(sycl, "kiln.held.tmp", temporary))
		return;
	(void)sys->unlink(sys, temporary);
	if (!make_held(sycl, temporary) &&
	    sys->rename(sys, temporary, sycl->held_path))
		(void)sys->unlink(sys, temporary);
	(void)look_at_held(sycl, turn);
}

/* The two that have one place, then wherever they are. */
static void recover(const struct ki_sycl *sycl, struct ki_sycl_turn *turn)
{
	struct search search = { sycl, turn };

	(void)ki_sycl_drop_dead_lock(sycl, turn, sycl->size_path);
	(void)ki_sycl_drop_dead_lock(sycl, turn, sycl->evict_path);
	(void)ki_sycl_drop_dead_lock(sycl, turn, sycl->evict_other);
	if (look_at_held(sycl, turn) <= 0)
		return;
	(void)ki_sycl_walk(sycl, drop_lock_of, &search);
	if (look_at_held(sycl, turn) > 0)
		leave_held(sycl, turn);
}

/* ---- The turn ------------------------------------------------------------------------------- */

static uint64_t patience(const struct ki_sycl *sycl, uint64_t now_ns,
			 uint64_t wait_ns)
{
	const uint64_t patience_ns =
		ki_lock_patience(&sycl->refusal, now_ns, wait_ns);

	return patience_ns < sycl->wait_max_ns ? patience_ns
					       : sycl->wait_max_ns;
}

/* Why a sum may be wrong; 0 if nothing speaks against it. */
static unsigned doubts_of(struct ki_sycl *sycl, uint64_t total)
{
	const uint64_t limit = ki_sycl_limit(sycl);

	return (limit && total > limit ? 1u : 0) |
	       (total < ki_records_totals(sycl->records).bytes_files ? 2u : 0);
}

/* What a count has left as it was (nothing can be removed, say), another does not
   change so soon: each would walk the directory. */
static int is_plausible(const struct ki_sycl *sycl, unsigned doubts)
{
	return !doubts ||
	       (doubts == sycl->doubts &&
		sycl->sys->monotonic_ns(sycl->sys) - sycl->counted_ns <
			RECOUNT_NS);
}

static void read_account(struct ki_sycl *sycl, struct ki_sycl_turn *turn)
{
	const int err = ki_sycl_read_sum(sycl, &turn->noted);

	turn->has_size = err != -ENOENT || ki_sycl_limit(sycl);
	if (err)
		turn->noted = UINT64_MAX;
	if (turn->has_size)
		ki_sycl_read_owed(sycl, turn);
	turn->total = ki_sycl_less((err ? 0 : turn->noted) + turn->owed_added,
				   turn->owed_removed);
	turn->is_sure =
		!err && is_plausible(sycl, doubts_of(sycl, turn->total));
}

/* The same among threads: 1, 0. */
static int lock_writer(struct ki_sycl *sycl,
		       uint64_t deadline_ns) KI_NO_ANALYSIS
{
	const struct ki_sys *sys = sycl->sys;
	uint64_t pause_ns = THREADS_NS;

	while (!ki_mutex_try_lock(&sycl->writer)) {
		if (sys->monotonic_ns(sys) >= deadline_ns)
			return 0;
		sys->sleep_ns(sys, pause_ns);
		pause_ns = pause_ns * 2 < PAUSE_MIN_NS ? pause_ns * 2
						       : PAUSE_MIN_NS;
	}
	return 1;
}

enum kiln_status ki_sycl_turn_begin(struct ki_sycl *sycl, uint64_t wait_ns,
				    struct ki_sycl_turn *turn)
{
	const struct ki_sys *sys = sycl->sys;
	const uint64_t begun_ns = sys->monotonic_ns(sys);
	const uint64_t patience_ns = patience(sycl, begun_ns, wait_ns);
	int err, is_late;

	*turn = (struct ki_sycl_turn){ .lock = { .fd = -1 } };
	if (!lock_writer(sycl, begun_ns + patience_ns))
		return KILN_E_TIMEOUT;
	is_late = sys->monotonic_ns(sys) - begun_ns > patience_ns / 2;
	err = ki_lock_byte(&sycl->locks, TURN_BYTE, begun_ns + patience_ns,
			   &turn->lock);
	/* Who came late says nothing of the holder. */
	if (!err || !is_late)
		ki_lock_note_wait(&sycl->refusal, begun_ns, patience_ns, err);
	if (!err) {
		err = ki_records_begin(sycl->records);
		ki_sycl_note_generation(sycl);
		if (err >= 0)
			goto begun;
		ki_unlock(sys, &turn->lock);
	}
	ki_mutex_unlock(&sycl->writer);
	return ki_status_from_errno(err);
begun:
	/* Tools see a lock file of the dead to its end. */
	turn->deadline_ns = begun_ns + (wait_ns < KI_SYCL_TOOL_NS
						? patience_ns
						: sycl->stale_ns + SPARE_NS);
	turn->now_ns = (int64_t)sys->realtime_ns(sys);
	if (look_at_held(sycl, turn) > 0)
		recover(sycl, turn);
	read_account(sycl, turn);
	return KILN_OK;
}

/* A user's function may call us again. */
static void tell_taken(const struct ki_sycl *sycl, struct ki_bytes *taken)
{
	for (size_t at = 0; !taken->failed && at < taken->size;
	     at += strlen((const char *)taken->data + at) + 1)
		ki_sycl_say(sycl, KILN_LOG_WARNING,
			    (const char *)taken->data + at,
			    "left by somebody who is gone, removed");
	ki_bytes_fini(taken);
}

enum kiln_status ki_sycl_turn_end(struct ki_sycl *sycl,
				  struct ki_sycl_turn *turn)
{
	struct ki_bytes taken;

	if (turn->is_counted) {
		sycl->doubts = doubts_of(sycl, turn->total);
		sycl->counted_ns = sycl->sys->monotonic_ns(sycl->sys);
	}
	ki_sycl_settle(sycl, turn);
	ki_records_end(sycl->records);
	ki_unlock(sycl->sys, &turn->lock);
	ki_sycl_note_generation(sycl);
	taken = sycl->taken;
	ki_bytes_init(&sycl->taken);
	ki_mutex_unlock(&sycl->writer);
	tell_taken(sycl, &taken);
	return KILN_OK;
}
