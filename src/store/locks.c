/* SPDX-License-Identifier: MIT */

/*
 * Byte-range locks on a store's lock file, each on a descriptor opened for it:
 * the lock ends with the descriptor, with the process, and in no other way.
 *
 *	1 + digest             one process builds this key       "build"
 *	1 + 2^62 + digest      the same after a dead one         "following"
 *
 * and single bytes that a store has its own meaning for.
 *
 * The file's first bytes are a table of who took build locks last.  A holder
 * that died while a stranger kept a copy of its descriptor (a child that was
 * forked past all handlers) is told by it from one that lives: those who find
 * the holder dead queue at the second byte, so that one of them follows.
 *
 * No lock file blocks by existing: whoever removes it splits the world in two,
 * each half with a lock of its own, so a lock counts only if the path still
 * leads to the file that was locked.
 */

#include <errno.h>
#include <stdlib.h>

#include "key/key.h"
#include "store/store.h"

#define N_HOLDERS 256
#define N_TRIES	  16 /* of opening a file that others remove */
#define SLICE_NS  200000000u

/* Slot: first half of the digest modulo N_HOLDERS. */
struct holder {
	uint64_t digest_low;
	uint64_t digest_high;
	uint64_t process; /* as in struct ki_process */
	uint64_t start;
};

_Static_assert(KI_LOCKS_BYTES == N_HOLDERS * sizeof(struct holder), "format");

#define BUILD(key)  (1 + ((key)->digest_low & (((uint64_t)1 << 61) - 1)))
#define FOLLOW(key) (((uint64_t)1 << 62) + BUILD(key))

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

static void drop(const struct ki_sys *sys, struct ki_lock *lock)
{
	ki_fork_close_remove(&lock->place);
	(void)sys->close(sys, lock->fd);
	lock->fd = -1;
}

/* Whether it is because of a file that another user has put there. */
static int is_of_another(const struct ki_lock_file *file, int err)
{
	struct ki_file_info info;

	return err == -EACCES && (file->flags & KILN_OPEN_OWN_FILES) &&
	       !file->sys->lstat(file->sys, file->path, &info) &&
	       info.uid != ki_user_id();
}

static int lock_byte(const struct ki_lock_file *file, enum ki_lock_kind kind,
		     uint64_t offset, uint64_t deadline_ns,
		     struct ki_lock *lock)
{
	const struct ki_sys *sys = file->sys;
	unsigned mode = file->flags & KILN_OPEN_SHARED ? 0660 : 0600;
	int tries, err = -ESTALE;

	if (file->watch && ki_directory_is_refused(file->watch))
		return -ENOLCK;
	for (tries = 0; tries < N_TRIES && err == -ESTALE; tries++) {
		lock->fd = sys->open(sys, file->path,
				     KI_OPEN_READ | KI_OPEN_WRITE |
					     KI_OPEN_CREATE |
					     ki_open_flags(file->flags),
				     mode);
		/* Someone removed the whole directory. */
		if (lock->fd == -ENOENT && !tries && file->directory &&
		    !ki_directory_check(sys, file->directory, file->flags, 1,
					&(const char *){ NULL })) {
			err = -ESTALE;
			continue;
		}
		if (lock->fd < 0)
			return is_of_another(file, lock->fd)
				       ? -ELOOP
				       : or_no_locks(lock->fd);
		ki_fork_close_add(&lock->place, lock->fd);
		/* Whatever the umask; where it is another's, he has done it. */
		if (file->flags & KILN_OPEN_SHARED)
			(void)sys->chmod(sys, file->path, mode);
		err = or_no_locks(ki_lock_until(sys, lock->fd, kind, offset, 1,
						deadline_ns));
		if (!err && !is_same_file(sys, lock->fd, file->path))
			err = -ESTALE;
		if (err)
			drop(sys, lock);
	}
	return err;
}

int ki_lock_byte(const struct ki_lock_file *file, uint64_t offset,
		 uint64_t deadline_ns, struct ki_lock *lock)
{
	return lock_byte(file, KI_LOCK_EXCLUSIVE, offset, deadline_ns, lock);
}

int ki_lock_shared(const struct ki_lock_file *file, uint64_t offset,
		   uint64_t deadline_ns, struct ki_lock *lock)
{
	return lock_byte(file, KI_LOCK_SHARED, offset, deadline_ns, lock);
}

int ki_lock_turn(const struct ki_lock_file *file, enum ki_lock_kind kind,
		 uint64_t offset, const struct ki_lock *lock)
{
	return file->sys->try_lock(file->sys, lock->fd, kind, offset, 1);
}

int ki_lock_is_current(const struct ki_lock_file *file,
		       const struct ki_lock *lock)
{
	return is_same_file(file->sys, lock->fd, file->path);
}

void ki_unlock(const struct ki_sys *sys, struct ki_lock *lock)
{
	if (lock->fd >= 0)
		drop(sys, lock);
}

/* ---- Patience --------------------------------------------------------------- */

#define REFUSED_NS ((uint64_t)10 * 1000000000)
#define RETRY_NS   ((uint64_t)5 * 1000000)

uint64_t ki_lock_patience(const struct ki_lock_refusal *refusal,
			  uint64_t now_ns, uint64_t wait_ns)
{
	const uint64_t since_ns =
		__atomic_load_n(&refusal->since_ns, __ATOMIC_RELAXED);
	const int is_refused = since_ns && now_ns - since_ns < REFUSED_NS &&
			       wait_ns <= __atomic_load_n(&refusal->waited_ns,
							  __ATOMIC_RELAXED);

	return is_refused && wait_ns > RETRY_NS ? RETRY_NS : wait_ns;
}

/* Who would hardly wait has not learned anything new. */
void ki_lock_note_wait(struct ki_lock_refusal *refusal, uint64_t begun_ns,
		       uint64_t patience_ns, int err)
{
	if (!err) {
		__atomic_store_n(&refusal->since_ns, 0, __ATOMIC_RELAXED);
	} else if (err == -ETIMEDOUT && patience_ns > RETRY_NS) {
		__atomic_store_n(&refusal->waited_ns, patience_ns,
				 __ATOMIC_RELAXED);
		__atomic_store_n(&refusal->since_ns, begun_ns,
				 __ATOMIC_RELAXED);
	}
}

/* ---- Who holds build locks ------------------------------------------------ */

static uint64_t offset_of(const struct kiln_key *key)
{
	return key->digest_low % N_HOLDERS * sizeof(struct holder);
}

/* Whether the table says that the one who holds the key's lock is dead. */
static int holder_is_dead(struct ki_lock_file *file, const struct kiln_key *key)
{
	const struct ki_sys *sys = file->sys;
	struct holder holder;
	int err, fd = sys->open(sys, file->path,
				KI_OPEN_READ | ki_open_flags(file->flags), 0);

	if (fd < 0)
		return 0;
	err = ki_pread_all(sys, fd, &holder, sizeof(holder), offset_of(key));
	(void)sys->close(sys, fd);
	return !err && holder.digest_low == key->digest_low &&
	       holder.digest_high == key->digest_high &&
	       ki_process_is_dead(sys, &file->self, holder.process,
				  holder.start);
}

static void note_holder(struct ki_lock_file *file, int fd,
			const struct kiln_key *key)
{
	struct holder holder = { .digest_low = key->digest_low,
				 .digest_high = key->digest_high,
				 .process = ki_process_name(file->sys,
							    &file->self) };

	holder.start = file->self.start;
	(void)ki_pwrite_all(file->sys, fd, &holder, sizeof(holder),
			    offset_of(key));
}

/*
 * Between slices look whether we wait for a dead one; twice, because a new
 * holder may not have written its name yet.
 */
int ki_lock_build(struct ki_lock_file *file, const struct kiln_key *key,
		  uint32_t timeout_ms, struct ki_lock *lock)
{
	const struct ki_sys *sys = file->sys;
	uint64_t deadline_ns =
		sys->monotonic_ns(sys) + (uint64_t)timeout_ms * 1000000;
	uint64_t slice_ns = 1, offset = BUILD(key);
	int err, n_dead = 0;

	do {
		err = ki_lock_byte(
			file, offset,
			slice_ns < deadline_ns ? slice_ns : deadline_ns, lock);
		slice_ns = sys->monotonic_ns(sys) + SLICE_NS;
		if (err != -ETIMEDOUT || offset != BUILD(key))
			continue;
		n_dead = holder_is_dead(file, key) ? n_dead + 1 : 0;
		if (n_dead == 2)
			offset = FOLLOW(key);
	} while (err == -ETIMEDOUT && slice_ns - SLICE_NS < deadline_ns);
	if (!err && offset == BUILD(key))
		note_holder(file, lock->fd, key);
	return err;
}

/* ---- Of a tier -------------------------------------------------------------- */

struct kiln_tier_lock {
	struct ki_lock lock;
};

enum kiln_status ki_tier_lock_build(struct ki_lock_file *file,
				    const struct kiln_key *key,
				    uint32_t timeout_ms,
				    struct kiln_tier_lock **out_lock)
{
	struct kiln_tier_lock *lock;
	int err;

	if (file->flags & (KILN_OPEN_READONLY | KILN_OPEN_ANY_OWNER))
		return KILN_E_UNSUPPORTED;
	lock = malloc(sizeof(*lock));
	if (!lock)
		return KILN_E_NO_MEMORY;
	err = ki_lock_build(file, key, timeout_ms, &lock->lock);
	if (!err) {
		*out_lock = lock;
		return KILN_OK;
	}
	free(lock);
	return err == -ETIMEDOUT ? KILN_E_TIMEOUT : KILN_E_UNSUPPORTED;
}

void ki_tier_unlock(const struct ki_sys *sys, struct kiln_tier_lock *lock)
{
	ki_unlock(sys, &lock->lock);
	free(lock);
}
