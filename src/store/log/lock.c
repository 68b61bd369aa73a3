/* SPDX-License-Identifier: MIT */

/*
 * Byte-range locks on NAME.lock, each on a descriptor opened for it: the lock
 * ends with the descriptor, with the process, and in no other way.
 *
 *	byte 0                 rolls, eviction, growth, wipe     "structure"
 *	1 + digest             one process builds this key       "build"
 *	2^63 - 2               open D3D12 sessions, shared
 *
 * Order: build, byte 0.  The file's first bytes are a table of
 * who holds build locks: a holder that died while a stranger kept a copy of
 * its descriptor is told from one that lives.  Nobody looks at them for
 * byte 0, whose holder may be stopped half-way.
 *
 * No lock file blocks by existing: whoever removes it splits the world in two,
 * each half with a lock of its own, so a lock counts only if the path still
 * leads to the file that was locked.
 */

#include "store/log/log.h"

#include <errno.h>
#include <stdlib.h>

static int is_same_file(const struct ki_sys *sys, int fd, const char *path)
{
	struct ki_file_info ours, theirs;

	return !sys->fstat(sys, fd, &ours) && !sys->stat(sys, path, &theirs) &&
	       ours.inode == theirs.inode && ours.device == theirs.device;
}

/* -ENOLCK for every way of saying that there are no locks here. */
static int or_no_locks(int err)
{
	switch (err) {
	case -ENOSYS:
	case -EOPNOTSUPP:
	case -EINVAL:
	case -EROFS:
	case -EACCES:
	case -EPERM:
		return -ENOLCK;
	default:
		return err;
	}
}

static void drop(const struct ki_sys *sys, struct log_lock *lock)
{
	ki_fork_close_remove(&lock->place);
	(void)sys->close(sys, lock->fd);
	lock->fd = -1;
}

int ki_log_lock(struct ki_log *log, struct log_lock *lock, uint64_t offset,
		uint64_t deadline_ns)
{
	const struct ki_sys *sys = log->sys;
	int tries, err = -ESTALE;

	for (tries = 0; tries < LOG_TRIES && err == -ESTALE; tries++) {
		lock->fd = sys->open(sys, log->lock_path,
				     KI_OPEN_READ | KI_OPEN_WRITE |
					     KI_OPEN_CREATE | KI_OPEN_NOFOLLOW,
				     ki_log_mode(log));
		/* Someone removed the whole directory. */
		if (lock->fd == -ENOENT && !tries &&
		    !ki_directory_check(sys, log->directory, log->flags, 1,
					&(const char *){ NULL })) {
			err = -ESTALE;
			continue;
		}
		if (lock->fd < 0)
			return or_no_locks(lock->fd);
		ki_fork_close_add(&lock->place, lock->fd);
		if (log->flags & KILN_OPEN_SHARED)
			(void)sys->chmod(sys, log->lock_path, ki_log_mode(log));
		err = or_no_locks(ki_lock_until(sys, lock->fd,
						KI_LOCK_EXCLUSIVE, offset, 1,
						deadline_ns));
		if (!err && !is_same_file(sys, lock->fd, log->lock_path))
			err = -ESTALE;
		if (err)
			drop(sys, lock);
	}
	return err;
}

void ki_log_unlock(struct ki_log *log, struct log_lock *lock)
{
	if (lock->fd >= 0)
		drop(log->sys, lock);
}

/* ---- Structure ------------------------------------------------------- */

enum kiln_status ki_log_structure_begin(struct ki_log *log,
					struct log_lock *lock,
					uint32_t timeout_ms)
{
	const struct ki_sys *sys = log->sys;
	uint64_t deadline_ns =
		sys->monotonic_ns(sys) + (uint64_t)timeout_ms * 1000000;
	int err = 0;

	/* Threads of one handle queue here, without polling. */
	ki_mutex_lock(&log->mutex);
	while (log->structure_is_busy && !err)
		err = ki_cond_wait_until(&log->changed, &log->mutex,
					 deadline_ns);
	if (!log->structure_is_busy)
		err = 0;
	if (!err)
		log->structure_is_busy = 1;
	ki_mutex_unlock(&log->mutex);
	if (err)
		return KILN_E_TIMEOUT;

	err = ki_log_lock(log, lock, LOG_LOCK_STRUCTURE, deadline_ns);
	if (err) {
		lock->fd = -1;
		ki_log_structure_end(log, lock);
	}
	return ki_log_status(err);
}

void ki_log_structure_end(struct ki_log *log, struct log_lock *lock)
{
	ki_log_unlock(log, lock);
	ki_mutex_lock(&log->mutex);
	log->structure_is_busy = 0;
	ki_cond_signal_all(&log->changed);
	ki_mutex_unlock(&log->mutex);
}

/* ---- Build locks ----------------------------------------------------- */

struct kiln_tier_lock {
	struct log_lock lock;
	uint64_t slot;
};

/* In the lock table and in the index a process stands with its namespace of
   pids and its start.  Nobody has 0. */
static uint64_t self(struct ki_log *log)
{
	const struct ki_sys *sys = log->sys;
	struct ki_file_info info;
	uint64_t process = log->process;

	if (process)
		return process;
	process = (uint64_t)ki_process_id();
	log->process_start = ki_process_start((int)process);
	if (!sys->stat(sys, "/proc/self/ns/pid", &info))
		process |= info.inode << 32;
	log->process = process;
	return process;
}

static uint64_t holder_offset(const struct kiln_key *key)
{
	return key->digest_low % LOG_HOLDERS * sizeof(struct log_holder);
}

/* Numbers of processes mean nothing in another namespace: those live. */
static int is_alive(struct ki_log *log, uint64_t process, uint64_t start)
{
	return process >> 32 != self(log) >> 32 ||
	       (uint32_t)process > INT32_MAX ||
	       ki_process_alive((int)(uint32_t)process, start);
}

/* Whether the table says that the one who holds the key's lock is dead. */
static int holder_is_dead(struct ki_log *log, const struct kiln_key *key)
{
	const struct ki_sys *sys = log->sys;
	struct log_holder holder;
	int err, fd = sys->open(sys, log->lock_path,
				KI_OPEN_READ | KI_OPEN_NOFOLLOW, 0);

	if (fd < 0)
		return 0;
	err = ki_pread_all(sys, fd, &holder, sizeof(holder),
			   holder_offset(key));
	(void)sys->close(sys, fd);
	return !err && holder.digest_low == key->digest_low &&
	       holder.digest_high == key->digest_high && holder.process &&
	       !is_alive(log, holder.process, holder.start);
}

static void note_holder(struct ki_log *log, int fd, const struct kiln_key *key)
{
	struct log_holder holder = { .digest_low = key->digest_low,
				     .digest_high = key->digest_high,
				     .process = self(log) };

	holder.start = log->process_start;

	(void)ki_pwrite_all(log->sys, fd, &holder, sizeof(holder),
			    holder_offset(key));
}

#define SLICE_NS 200000000u

enum kiln_status ki_log_build_lock(struct kiln_tier *tier,
				   const struct kiln_key *key,
				   uint32_t timeout_ms,
				   struct kiln_tier_lock **out_lock)
{
	struct ki_log *log = (struct ki_log *)tier;
	const struct ki_sys *sys = log->sys;
	const uint64_t own = LOG_LOCK_BUILD(key->digest_low);
	struct kiln_tier_lock *lock;
	uint64_t deadline_ns, slice_ns, offset = own;
	int err, n_dead = 0;

	if (log->readonly || log->guest)
		return KILN_E_UNSUPPORTED;
	lock = calloc(1, sizeof(*lock));
	if (!lock)
		return KILN_E_NO_MEMORY;
	deadline_ns = sys->monotonic_ns(sys) + (uint64_t)timeout_ms * 1000000;

	/* Between slices look whether we wait for a dead one; twice, because a
	   new holder may not have written its name yet.  Those who know queue
	   elsewhere, so that one of them follows. */
	slice_ns = 1;
	do {
		err = ki_log_lock(log, &lock->lock, offset,
				  slice_ns < deadline_ns ? slice_ns
							 : deadline_ns);
		slice_ns = sys->monotonic_ns(sys) + SLICE_NS;
		if (err != -ETIMEDOUT || offset != own)
			continue;
		n_dead = holder_is_dead(log, key) ? n_dead + 1 : 0;
		if (n_dead == 2)
			offset = LOG_LOCK_FOLLOW(key->digest_low);
	} while (err == -ETIMEDOUT && slice_ns - SLICE_NS < deadline_ns);
	if (err) {
		free(lock);
		return ki_log_status(err);
	}
	if (offset == own)
		note_holder(log, lock->lock.fd, key);
	*out_lock = lock;
	return KILN_OK;
}

void ki_log_build_unlock(struct kiln_tier *tier, struct kiln_tier_lock *lock)
{
	ki_log_unlock((struct ki_log *)tier, &lock->lock);
	free(lock);
}

/* ---- Who is building ------------------------------------------------- */

#define BUILD_NS_MAX ((uint64_t)600 * 1000000000)

static int is_own_builder(const struct ki_log *log,
			  const struct log_builder *builder)
{
	return builder->process == log->process &&
	       builder->start == log->process_start &&
	       builder->handle == (uintptr_t)log;
}

static struct log_builder *own_builder(struct ki_log *log,
				       struct log_header *header)
{
	const uint64_t process = self(log);
	int i, second;

	for (i = 0; i < LOG_BUILDERS; i++)
		if (is_own_builder(log, &header->builders[i]))
			return &header->builders[i];

	/* A free one, else a dead one's. */
	for (second = 0; second < 2; second++)
		for (i = 0; i < LOG_BUILDERS; i++) {
			struct log_builder *builder = &header->builders[i];
			uint64_t other = builder->process;

			if (other &&
			    (!second || is_alive(log, other, builder->start)))
				continue;
			if (!atomic_compare_exchange_strong(&builder->process,
							    &other, process))
				continue;
			builder->begun_ns = 0;
			builder->start = log->process_start;
			builder->handle = (uintptr_t)log;
			return builder;
		}
	return NULL;
}

void ki_log_note_build(struct kiln_tier *tier, int begins)
{
	struct ki_log *log = (struct ki_log *)tier;
	_Atomic uint64_t *stripe;
	struct log_builder *builder;
	struct log_index *index;
	unsigned n;

	n = begins ? ++log->n_building : --log->n_building;
	if (!begins && n)
		return;
	stripe = ki_log_enter(log);
	index = log->index;
	if (index && index->writable) {
		builder = own_builder(log, index->header);
		if (builder)
			builder->begun_ns =
				begins ? log->sys->monotonic_ns(log->sys) : 0;
	}
	ki_log_leave(log, stripe);
}

unsigned ki_log_builds_now(struct kiln_tier *tier)
{
	struct ki_log *log = (struct ki_log *)tier;
	_Atomic uint64_t *stripe = ki_log_enter(log);
	struct log_index *index = log->index;
	uint64_t now_ns = log->sys->monotonic_ns(log->sys);
	unsigned n = 0, i;

	for (i = 0; index && i < LOG_BUILDERS; i++) {
		struct log_builder *builder = &index->header->builders[i];
		uint64_t process = builder->process;
		uint64_t begun_ns = builder->begun_ns;

		n += process && begun_ns && begun_ns <= now_ns &&
		     now_ns - begun_ns < BUILD_NS_MAX &&
		     is_alive(log, process, builder->start);
	}
	ki_log_leave(log, stripe);
	return n;
}

void ki_log_forget_builder(struct ki_log *log)
{
	struct log_index *index = log->index;
	int i;

	/* Who never asked who it is has built nothing. */
	if (!log->process)
		return;
	for (i = 0; index && index->writable && i < LOG_BUILDERS; i++) {
		struct log_builder *builder = &index->header->builders[i];

		if (!is_own_builder(log, builder))
			continue;
		builder->begun_ns = 0;
		builder->process = 0;
	}
}
