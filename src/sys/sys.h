/* SPDX-License-Identifier: MIT */
#ifndef KI_SYS_SYS_H
#define KI_SYS_SYS_H

/*
 * Everything that kiln asks of the operating system about files and time, as
 * a table, so that tests can let the n-th call fail, tear writes and stop the
 * clock.  Whoever touches files is given a table; ki_sys_posix is the real one.
 *
 * Results are >= 0 or a negative errno.  EINTR is dealt with here: callers
 * never see it.  read and write do as much as the system does in one call
 * (short transfers happen); ki_pread_all and ki_pwrite_all go on to the end.
 * All descriptors are opened O_CLOEXEC and never 0, 1 or 2.
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/hash.h"

struct ki_file_info {
	uint64_t device;
	uint64_t inode;
	uint64_t size;
	uint64_t blocks_bytes; /* 512 x st_blocks */
	uint64_t n_links;
	int64_t mtime_ns; /* since 1970 */
	int64_t ctime_ns;
	int64_t atime_ns;
	uint32_t mode; /* S_IFMT and permissions */
	uint32_t uid;
	uint32_t gid;
};

enum ki_file_system {
	KI_FS_UNKNOWN = 0, /* network, FUSE, anything not known to be local */
	KI_FS_LOCAL = 1,   /* ext4, xfs, btrfs, f2fs, tmpfs, overlayfs */
};

struct ki_dir;

/* Flags of open. */
#define KI_OPEN_READ	  1u
#define KI_OPEN_WRITE	  2u /* both: READ | WRITE */
#define KI_OPEN_CREATE	  4u
#define KI_OPEN_EXCLUSIVE 8u
#define KI_OPEN_NOFOLLOW  16u /* a symlink as last part: -ELOOP */
#define KI_OPEN_APPEND	  32u
#define KI_OPEN_OWN	  128u /* not this user's own file, by its one name: -ELOOP */
#define KI_OPEN_NO_ATIME  64u /* reading it leaves no trace, if it is ours */
/* Always set: O_CLOEXEC, O_NOCTTY, O_NONBLOCK (a FIFO never blocks us). */

#define KI_MAP_SHARED_WRITE 1u /* else read only */

enum ki_lock_kind { KI_LOCK_SHARED, KI_LOCK_EXCLUSIVE };

struct ki_sys {
	int (*open)(const struct ki_sys *sys, const char *path, unsigned flags,
		    unsigned mode);
	/* The same of a name in an open directory. */
	int (*open_in)(const struct ki_sys *sys, int directory,
		       const char *name, unsigned flags, unsigned mode);
	int (*close)(const struct ki_sys *sys, int fd);
	ssize_t (*pread)(const struct ki_sys *sys, int fd, void *data,
			 size_t size, uint64_t offset);
	/* At most 8 pieces. */
	ssize_t (*pwritev)(const struct ki_sys *sys, int fd,
			   const struct ki_piece *pieces, int n_pieces,
			   uint64_t offset);
	/* Real blocks, never by writing zeros: -EOPNOTSUPP where it can't. */
	int (*fallocate)(const struct ki_sys *sys, int fd, uint64_t offset,
			 uint64_t size);
	int (*punch_hole)(const struct ki_sys *sys, int fd, uint64_t offset,
			  uint64_t size);
	int (*fsync)(const struct ki_sys *sys, int fd);
	int (*fstat)(const struct ki_sys *sys, int fd,
		     struct ki_file_info *out_info);
	/* Which file it is, and no more: who asks for its times has the system
	   write them anew at the next write. */
	int (*fidentify)(const struct ki_sys *sys, int fd, uint64_t *out_device,
			 uint64_t *out_inode);
	/* In between: size and links as well; the rest is 0. */
	int (*fmeasure)(const struct ki_sys *sys, int fd,
			struct ki_file_info *out_info);
	/* The same of a path; no link is followed at its end. */
	int (*measure)(const struct ki_sys *sys, const char *path,
		       struct ki_file_info *out_info);
	int (*stat)(const struct ki_sys *sys, const char *path,
		    struct ki_file_info *out_info);
	int (*lstat)(const struct ki_sys *sys, const char *path,
		     struct ki_file_info *out_info);
	int (*link)(const struct ki_sys *sys, const char *from,
		    const char *to); /* -EEXIST if `to` is there */
	int (*rename)(const struct ki_sys *sys, const char *from,
		      const char *to);
	/* The same, but -EEXIST if `to` is there.  Some file systems cannot do
	   that at once: both names lead to the file for a moment, and for
	   longer if the caller dies or `from` cannot be removed. */
	int (*rename_new)(const struct ki_sys *sys, const char *from,
			  const char *to);
	int (*unlink)(const struct ki_sys *sys, const char *path);
	int (*mkdir)(const struct ki_sys *sys, const char *path, unsigned mode);
	int (*rmdir)(const struct ki_sys *sys, const char *path);
	int (*chmod)(const struct ki_sys *sys, const char *path, unsigned mode);
	/* Set the modification time to the file system's own now. */
	int (*touch)(const struct ki_sys *sys, const char *path);
	/* Set the time of last access, and leave that of modification. */
	int (*set_access_time)(const struct ki_sys *sys, int fd, int64_t ns);

	int (*opendir)(const struct ki_sys *sys, const char *path,
		       struct ki_dir **out_dir);
	/* 1 with a name valid until the next call, 0 at the end.  "." and ".."
	   are left out. */
	int (*readdir)(const struct ki_sys *sys, struct ki_dir *dir,
		       const char **out_name);
	/* lstat of a name in it. */
	int (*lstat_in)(const struct ki_sys *sys, struct ki_dir *dir,
			const char *name, struct ki_file_info *out_info);
	void (*closedir)(const struct ki_sys *sys, struct ki_dir *dir);

	/* fd is not needed afterwards. */
	int (*map)(const struct ki_sys *sys, int fd, uint64_t offset,
		   size_t size, unsigned flags, void **out_data);
	/* Also a part, that begins at a multiple of page_bytes(). */
	void (*unmap)(const struct ki_sys *sys, void *data, size_t size);
	size_t (*page_bytes)(const struct ki_sys *sys);
	/*
	 * Bring a part of a mapping in for reading: what the medium cannot give
	 * is an error here instead of a signal at the first look.  -EINVAL
	 * where the system cannot do that.
	 */
	int (*populate)(const struct ki_sys *sys, const void *data,
			size_t size);

	/*
	 * Open-file-description byte-range locks: they belong to the open file,
	 * so two opens in one process exclude each other, and they end with
	 * the last descriptor of that open.  -EAGAIN if someone else has it.
	 * -ENOLCK, -ENOSYS, -EOPNOTSUPP... where there are none.
	 */
	int (*try_lock)(const struct ki_sys *sys, int fd,
			enum ki_lock_kind kind, uint64_t offset, uint64_t size);
	int (*unlock)(const struct ki_sys *sys, int fd, uint64_t offset,
		      uint64_t size);

	/*
	 * The other kind, flock(2), for files that others lock by it: of the
	 * whole file, also the open file's own, ended by closing.  -EAGAIN.
	 */
	int (*try_flock)(const struct ki_sys *sys, int fd,
			 enum ki_lock_kind kind);

	int (*file_system)(const struct ki_sys *sys, const char *path,
			   enum ki_file_system *out_kind);

	uint64_t (*monotonic_ns)(const struct ki_sys *sys);
	/* The same as of some ms ago, for a tenth of the time. */
	uint64_t (*coarse_ns)(const struct ki_sys *sys);
	uint64_t (*realtime_ns)(const struct ki_sys *sys); /* since 1970 */
	/* The one permitted sleep: between two tries of a file lock. */
	void (*sleep_ns)(const struct ki_sys *sys, uint64_t ns);
	int (*random)(const struct ki_sys *sys, void *data, size_t size);

	/*
	 * Unix sockets, streams that never block.  A descriptor, and whose the
	 * process at the other end is; -ENOENT, -ECONNREFUSED, -EAGAIN (its queue
	 * is full).
	 */
	int (*connect)(const struct ki_sys *sys, const char *path,
		       uint32_t *out_uid);
	/* A name of mode 0600; -EADDRINUSE if anything is there. */
	int (*listen)(const struct ki_sys *sys, const char *path);
	/* With a descriptor to go along, or -1.  -EAGAIN: no room; -EPIPE, and
	   never a signal. */
	ssize_t (*send)(const struct ki_sys *sys, int fd, const void *data,
			size_t size, int fd_along);
	/* 0 at the end.  -EAGAIN: nothing is there. */
	ssize_t (*recv)(const struct ki_sys *sys, int fd, void *data,
			size_t size);
	/* Until there is something to receive, or room to send; an error of the
	   socket counts as either.  -ETIMEDOUT at the deadline (monotonic_ns). */
	int (*wait)(const struct ki_sys *sys, int fd, int for_room,
		    uint64_t deadline_ns);
	/* A descriptor of memory with these bytes, which nobody can change any
	   more, to be handed to another process. */
	int (*sealed_memory)(const struct ki_sys *sys,
			     const struct ki_piece *pieces, int n_pieces);
};

extern const struct ki_sys ki_sys_posix;

/* ---- On top of the table ------------------------------------------------ */

/* rename_new where the file system cannot refuse. */
int ki_rename_by_link(const struct ki_sys *sys, const char *from,
		      const char *to);

/* 0, or an error; -ENODATA when the file ends early. */
int ki_pread_all(const struct ki_sys *sys, int fd, void *data, size_t size,
		 uint64_t offset);
int ki_pwrite_all(const struct ki_sys *sys, int fd, const void *data,
		  size_t size, uint64_t offset);
/* `pieces` is used up.  At most 8. */
int ki_pwritev_all(const struct ki_sys *sys, int fd, struct ki_piece *pieces,
		   int n_pieces, uint64_t offset);

/* A whole regular file of at most `size_max` bytes, from malloc(), with a NUL
   behind.  -EFBIG, -EINVAL (not a regular file), -ENOMEM. */
int ki_read_whole(const struct ki_sys *sys, int fd, uint64_t size_max,
		  void **out_data, size_t *out_size);
/* The same by its name. */
int ki_read_file(const struct ki_sys *sys, const char *path, size_t size_max,
		 void **out_data, size_t *out_size);

/* Make a directory and its missing parents, 0700.  0 if it is there. */
int ki_make_directories(const struct ki_sys *sys, const char *path);

/* "DIRECTORY/NAME" into `out`; -ENAMETOOLONG. */
#define KI_PATH_MAX 4096
int ki_path_join(char out[KI_PATH_MAX], const char *directory,
		 const char *name);

/*
 * Lock, polling from 1 to 50 ms until the deadline (monotonic_ns; 0: one
 * try).  -ETIMEDOUT, or why there are no locks.
 */
int ki_lock_until(const struct ki_sys *sys, int fd, enum ki_lock_kind kind,
		  uint64_t offset, uint64_t size, uint64_t deadline_ns);
int ki_flock_until(const struct ki_sys *sys, int fd, enum ki_lock_kind kind,
		   uint64_t deadline_ns);

/*
 * A descriptor that holds a lock must not survive in a forked child, which
 * would keep the lock alive: register it for as long as it is open.  Children
 * close what is registered.  `place` belongs to the caller.
 */
struct ki_fork_close {
	struct ki_fork_close *next;
	struct ki_fork_close **link;
	int fd;
};
void ki_fork_close_add(struct ki_fork_close *place, int fd);
void ki_fork_close_remove(struct ki_fork_close *place);

/* ---- Process ------------------------------------------------------------ */

/*
 * Changes in every forked child: compare with the number kept at opening.
 * The first call in a process installs the pthread_atfork handlers.
 */
uint64_t ki_fork_generation(void);
/* The same, a plain load, once the former has been called. */
extern _Atomic uint64_t ki_fork_counter __attribute__((visibility("hidden")));

int ki_process_id(void);
/* Start time of a process in clock ticks since boot; 0 if there is none, or it
   has died and its parent does not know yet. */
uint64_t ki_process_start(int pid);
/* How long ago, by the clock that start times are of. */
uint64_t ki_process_age_ns(uint64_t start);
/* Whether the process with this id and start time still runs. */
int ki_process_alive(int pid, uint64_t start);

/*
 * Start a program that outlives this one: in a session of its own, no child of
 * ours, in the directory "/", signals as they are by default, /dev/null for the
 * three standard descriptors, those given as 3, 4... and no other.  Returns when
 * it has begun, or after 1 s if that cannot be told.  -errno: it has not.
 */
int ki_process_launch(const char *path, char *const *arguments,
		      char *const *environment, const int *fds, int n_fds);

/*
 * A process by a name that can be left in files for others to ask about:
 * numbers of processes mean something in one namespace of one machine, as long
 * as it runs.  Zeros at first, then filled in as needed.
 */
struct ki_process {
	/* Atomic. */
	_Atomic uint64_t name; /* where its number means something 32, pid 32 */
	_Atomic uint64_t start;
};
/* Of this one; 0: it cannot be known, or not at the moment. */
uint64_t ki_process_name(const struct ki_sys *sys, struct ki_process *self);
/* Whether the one that left this is gone.  Nobody is for those who do not know
   where they are themselves, nor is one of another place. */
int ki_process_is_dead(const struct ki_sys *sys, struct ki_process *self,
		       uint64_t name, uint64_t start);

/* What may still be written to the disk that `path` is on; nothing, where it
   has no room for the name of another file.  0, or a negative errno. */
int ki_disk_room(const char *path, uint64_t *out_bytes);

uint32_t ki_user_id(void);
uint32_t ki_group_id(void);
/* Whether only this user is in the group `gid`.  -errno: not to be known now. */
int ki_group_is_private(uint32_t gid);
/* Set-uid, set-gid or with file capabilities: the environment is not ours. */
int ki_process_is_secure(void);
/* getenv(), but NULL in secure processes. */
const char *ki_environment(const char *name);
/* /proc/self/exe; -errno. */
int ki_executable(char out[KI_PATH_MAX]);
/* RLIMIT_FSIZE: writing past it would kill the program by SIGXFSZ. */
uint64_t ki_file_size_max(void);
/* The path from the root, against the working directory; -errno. */
int ki_absolute_path(char out[KI_PATH_MAX], const char *path);
/* 16 bytes that change at each boot; zeros and -errno if they cannot be read:
   -ENOENT where there is no /proc, others for the moment. */
int ki_boot_id(const struct ki_sys *sys, uint8_t out[16]);
/* The system's memory pressure of this cgroup, in percent; -1 unknown. */
int ki_cgroup_memory_percent(const struct ki_sys *sys);

/* ---- Threads ------------------------------------------------------------ */

/*
 * Ranks from the outside in: a thread that holds one may only take those
 * further down.  Debug builds stop at a breach.
 */
/* clang-format off */
#define KI_MUTEX_RANKS(X) \
	X(FRONT) X(KEY) X(PROGRAM) X(CACHE) X(MEMORY) X(ARENA) X(FLIGHT) X(STORE) \
	X(RECORDS) X(BLOCK) X(STATS) X(REMOTE) X(SYS)
/* clang-format on */

enum ki_mutex_rank {
#define KI_RANK_ENUM(name) KI_RANK_##name,
	KI_MUTEX_RANKS(KI_RANK_ENUM)
#undef KI_RANK_ENUM
		KI_N_RANKS
};

/* clang checks these; elsewhere they are words. */
#if defined(__clang__)
#define KI_CAPABILITY	__attribute__((capability("mutex")))
#define KI_ACQUIRE(...) __attribute__((acquire_capability(__VA_ARGS__)))
/* If the function returns `result`. */
#define KI_TRY_ACQUIRE(result, ...)                                            \
	__attribute__((try_acquire_capability(result, __VA_ARGS__)))
#define KI_RELEASE(...)	 __attribute__((release_capability(__VA_ARGS__)))
#define KI_REQUIRES(...) __attribute__((requires_capability(__VA_ARGS__)))
#define KI_EXCLUDES(...) __attribute__((locks_excluded(__VA_ARGS__)))
#define KI_NO_ANALYSIS	 __attribute__((no_thread_safety_analysis))
#else
#define KI_CAPABILITY
#define KI_ACQUIRE(...)
#define KI_TRY_ACQUIRE(result, ...)
#define KI_RELEASE(...)
#define KI_REQUIRES(...)
#define KI_EXCLUDES(...)
#define KI_NO_ANALYSIS
#endif
#define KI_GUARDED_BY(mutex) /* words: clang cannot check members in C */

#include <pthread.h>

struct KI_CAPABILITY ki_mutex {
	pthread_mutex_t mutex;
	enum ki_mutex_rank rank;
};

#define KI_MUTEX_INIT(name)                                                    \
	{                                                                      \
		.mutex = PTHREAD_MUTEX_INITIALIZER, .rank = KI_RANK_##name     \
	}

void ki_mutex_init(struct ki_mutex *mutex, enum ki_mutex_rank rank);
void ki_mutex_fini(struct ki_mutex *mutex);
void ki_mutex_lock(struct ki_mutex *mutex) KI_ACQUIRE(mutex);
/* 1: got it. */
int ki_mutex_try_lock(struct ki_mutex *mutex) KI_TRY_ACQUIRE(1, mutex);
void ki_mutex_unlock(struct ki_mutex *mutex) KI_RELEASE(mutex);

/* Waits by CLOCK_MONOTONIC. */
struct ki_cond {
	pthread_cond_t cond;
};
void ki_cond_init(struct ki_cond *cond);
void ki_cond_fini(struct ki_cond *cond);
void ki_cond_wait(struct ki_cond *cond, struct ki_mutex *mutex)
	KI_REQUIRES(mutex);
/* 0, or -ETIMEDOUT at the deadline (as monotonic_ns). */
int ki_cond_wait_until(struct ki_cond *cond, struct ki_mutex *mutex,
		       uint64_t deadline_ns) KI_REQUIRES(mutex);
void ki_cond_signal_all(struct ki_cond *cond);

/* A thread with all signals blocked.  Join it with ki_thread_join(). */
struct ki_thread {
	pthread_t id;
};
typedef void ki_thread_fn(void *arg);
int ki_thread_start(struct ki_thread *thread, ki_thread_fn *body, void *arg);
void ki_thread_join(struct ki_thread *thread);
/* A number for the calling thread, never 0, never that of another living
   thread of this process. */
uint64_t ki_thread_id(void);
/* Whether a thread of this process has that number now. */
int ki_thread_is_alive(uint64_t id);
/* Let another thread run. */
void ki_thread_yield(void);

/*
 * A full memory barrier in every running thread of this process, paid for by
 * the caller alone.  Ask once whether there is one: 1 or 0 (denied, or not in
 * this kernel).  The barrier returns 0 or -errno.
 */
int ki_process_barrier_prepare(void);
int ki_process_barrier(void);

/*
 * Memory for large things: zeroed, at a multiple of KI_PAGES_HUGE, and as far
 * as it goes in huge pages where the system has them to give.  NULL if there is
 * no memory.
 */
#define KI_PAGES_HUGE ((size_t)2 << 20)
static inline size_t ki_in_pages(size_t size, size_t page_bytes)
{
	return (size + page_bytes - 1) & ~(page_bytes - 1);
}
void *ki_pages_new(size_t size);
void ki_pages_free(void *pages, size_t size);

#endif /* KI_SYS_SYS_H */
