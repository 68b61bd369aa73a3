/* SPDX-License-Identifier: MIT */
#ifndef KI_STORE_STORE_H
#define KI_STORE_STORE_H

/*
 * Formats on disk behind <kiln/tier.h>, and the parts that they share.
 */

#include <kiln/kiln.h>
#include <kiln/tier.h>

#include "sys/sys.h"

struct ki_store_options {
	const struct ki_sys *sys;
	const char *directory;
	const char *name;   /* of the files; NULL: "kiln" */
	uint64_t bytes_max; /* at creation; 0: no bound */
	uint64_t age_max_s;
	uint64_t quota_bytes;  /* log: of keys' fields and values; 0: none */
	uint64_t user_version; /* 0: any, but for sessions */
	uint32_t flags;	       /* KILN_OPEN_* */
	/* Who counts; NULL: the program's executable.  Lives as the store. */
	const char *application;
	int is_local; /* the caller has asked for the directory's file system */
	kiln_log_fn *log; /* may be NULL */
	void *log_arg;
	const char *const *trusted_keys; /* pack: one must have signed */
	size_t n_trusted_keys;
};

/*
 * Open a store, making directory and files as needed.  KILN_E_OWNER (the
 * directory is a symlink, someone else's, or writable by others), IO, FORMAT
 * (made by a newer version: left alone), FULL (the medium has no room, or the
 * bound is too small to hold anything), READONLY, NO_MEMORY, INVALID; EXISTS of
 * log, with KILN_OPEN_SESSION.
 */
enum kiln_status ki_store_log_open(const struct ki_store_options *options,
				   struct kiln_tier **out_tier);
enum kiln_status ki_store_file_open(const struct ki_store_options *options,
				    struct kiln_tier **out_tier);

/* `name`: "flat" or "tree", the layout (else by what is there); "at-once": an
   eviction is done by the store that begins it.  Commas between, or NULL. */
enum kiln_status ki_store_neo_open(const struct ki_store_options *options,
				   struct kiln_tier **out_tier);

enum kiln_status ki_store_sycl_open(const struct ki_store_options *options,
				    struct kiln_tier **out_tier);
/* SYCL_CACHE_TRACE's text, NULL or not, as bits. */
unsigned ki_sycl_trace_mask(const char *text);

/* kiln_pack_open() and kiln_pack_create() on another system than the real one. */
struct kiln_pack_options;
struct kiln_pack_writer;
struct kiln_pack_writer_options;
enum kiln_status ki_pack_open(const struct ki_sys *sys, const char *path,
			      const struct kiln_pack_options *options,
			      struct kiln_tier **out_tier);
enum kiln_status ki_pack_create(const struct ki_sys *sys, const char *path,
				const struct kiln_pack_writer_options *options,
				struct kiln_pack_writer **out_writer);

/* ---- Shared parts ------------------------------------------------------------ */

/*
 * Write `pieces` as DIRECTORY/NAME: a temporary, then link (replace == 0:
 * KILN_EXISTS if it is there) or rename.  The temporary never survives a
 * return.
 */
enum kiln_status ki_publish(const struct ki_sys *sys, const char *directory,
			    const char *name, const struct ki_piece *pieces,
			    int n_pieces, int replace);

/* A temporary is NAME.<digits>.tmp; a writer that died leaves it. */
#define KI_TEMPORARY_SUFFIX ".tmp"

/* Who writes, as named in temporaries. */
struct ki_writer {
	uint32_t boot;
	int process;
	uint64_t start;
};
void ki_writer_init(const struct ki_sys *sys, struct ki_writer *writer);

/*
 * The same with the reason as a negative errno (-EEXIST for KILN_EXISTS), the
 * file's mode, which the umask does not narrow, and a writer (NULL: unnamed).
 */
int ki_publish_file(const struct ki_sys *sys, const char *directory,
		    const char *name, const struct ki_piece *pieces,
		    int n_pieces, int replace, unsigned mode,
		    const struct ki_writer *writer);

/*
 * The same in two steps, for what is written little by little: a descriptor of a
 * new file and in `out` its name, or a negative errno; then the name, after which
 * the temporary is gone, whatever is returned.
 */
int ki_temporary_open(const struct ki_sys *sys, char out[KI_PATH_MAX],
		      const char *path, unsigned mode,
		      const struct ki_writer *writer);
int ki_temporary_publish(const struct ki_sys *sys, const char *temporary,
			 const char *path, int replace, unsigned mode);

/*
 * Whether the writer of a temporary is certainly gone, whatever the clocks do:
 * `now_ns` is the file system's time (of a file written just now).  Who needs
 * the room at once takes a writer for gone that cannot be seen from here.
 */
int ki_temporary_is_abandoned(const struct ki_sys *sys,
			      const struct ki_writer *self, const char *name,
			      int64_t mtime_ns, int64_t now_ns, int at_once);

/* Remove what writers of this path left behind that are gone, this user's. */
void ki_temporary_sweep(const struct ki_sys *sys, const char *path,
			const struct ki_writer *self);

/* Of each file of a store, by the flags that it is opened with. */
static inline unsigned ki_open_flags(unsigned flags)
{
	return flags & KILN_OPEN_OWN_FILES ? KI_OPEN_NOFOLLOW | KI_OPEN_OWN
					   : KI_OPEN_NOFOLLOW;
}

/*
 * Whether a directory is ours to trust (made, 0700, if missing and `make`):
 * KILN_OK, KILN_E_OWNER, KILN_E_IO, KILN_E_READONLY, KILN_MISS (not there, not
 * made).  flags: KILN_OPEN_SHARED, _ANY_OWNER, _OWN_FILES.  *out_why is a static
 * half sentence, "is a symbolic link".
 */
enum kiln_status ki_directory_check(const struct ki_sys *sys,
				    const char *directory, unsigned flags,
				    int make, const char **out_why);

/* What of owner and permissions speaks against a file or directory, as such a half
   sentence, or NULL; then *out_err is written if it cannot be said. */
const char *ki_owner_why_not(const struct ki_file_info *info, int shared,
			     int *out_err);

/* What of the directory that a path lies in speaks against it, or NULL. */
const char *ki_parent_why_not(const struct ki_sys *sys, const char *path);

/*
 * The same of a directory that is open, for whoever is about to read or write in
 * it: somebody may have put a link in its place, or opened it to others.  Looked
 * at once a second; KILN_OK, or KILN_E_OWNER until it is as it should be.  *out_why
 * is NULL but for the first who is told.
 */
struct ki_directory_watch {
	/* Atomic, by __atomic builtins. */
	uint64_t looked_ns;
	int is_refused;
};
void ki_directory_watch_begin(const struct ki_sys *sys,
			      struct ki_directory_watch *watch);
enum kiln_status ki_directory_watch(const struct ki_sys *sys,
				    const char *directory, unsigned flags,
				    struct ki_directory_watch *watch,
				    const char **out_why);
/* What the last look said. */
static inline int ki_directory_is_refused(
	const struct ki_directory_watch *watch)
{
	return __atomic_load_n(&watch->is_refused, __ATOMIC_RELAXED);
}

/*
 * NAME.stats: counters over all processes, of fixed size, in the totals and
 * per hour; NAME.history beside it: reasons per hour, programs, the last run.
 * Adding never waits longer than one try of a lock takes and keeps no
 * descriptor; KILN_E_TIMEOUT: another had it, nothing was added.  A missing
 * file reads as zeros; a damaged one is begun anew by the next who adds.
 */
#define KI_STATS_BYTES	  49152 /* of the files */
#define KI_HISTORY_BYTES  65536
#define KI_COUNTERS_BYTES (KI_STATS_BYTES + KI_HISTORY_BYTES)
/* Of this program (as ki_store_options; NULL: no program's, no run's). */
enum kiln_status ki_counters_add(const struct ki_sys *sys, const char *path,
				 unsigned flags, /* KILN_OPEN_* */
				 const char *application,
				 const uint64_t deltas[KILN_N_COUNTERS]);
enum kiln_status ki_counters_read(const struct ki_sys *sys, const char *path,
				  struct kiln_store_counters *out_counters);
enum kiln_status ki_counters_zero(const struct ki_sys *sys, const char *path,
				  unsigned flags);
/* Both files, and NAME.quotas, for who removes a store whole. */
void ki_counters_remove(const struct ki_sys *sys, const char *path);
/* What they take in the store's bound, there or not; NAME.quotas if it is there. */
uint64_t ki_counters_bytes(const struct ki_sys *sys, const char *path,
			   uint64_t (*charge)(const struct ki_file_info *info));

/* A store's lock file. */
#define KI_LOCKS_BYTES 8192 /* of the file, once build locks were taken */
struct ki_lock_file {
	/* Fixed. */
	const struct ki_sys *sys;
	const char *path;
	const char *directory; /* to be made if it is gone; may be NULL */
	uint32_t flags;	       /* KILN_OPEN_* */
	/* Of the directory: no lock while it is refused. */
	const struct ki_directory_watch *watch;
	/* Atomic. */
	struct ki_process self;
};

struct ki_lock {
	int fd; /* -1: none */
	struct ki_fork_close place;
};

/* 0, -ETIMEDOUT, -ENOLCK (there are no locks), why it cannot be opened. */
int ki_lock_byte(const struct ki_lock_file *file, uint64_t offset,
		 uint64_t deadline_ns, struct ki_lock *lock);
/* The same beside others that do so. */
int ki_lock_shared(const struct ki_lock_file *file, uint64_t offset,
		   uint64_t deadline_ns, struct ki_lock *lock);
/* One that is held becomes the other kind, in one step: -EAGAIN, and stays as it
   was, if somebody is in the way. */
int ki_lock_turn(const struct ki_lock_file *file, enum ki_lock_kind kind,
		 uint64_t offset, const struct ki_lock *lock);
/* Whether the path still leads to the file that was locked. */
int ki_lock_is_current(const struct ki_lock_file *file,
		       const struct ki_lock *lock);
/* That one process builds the key.  A holder known to be dead counts as gone,
   though a stranger may have kept its descriptor. */
int ki_lock_build(struct ki_lock_file *file, const struct kiln_key *key,
		  uint32_t timeout_ms, struct ki_lock *lock);
void ki_unlock(const struct ki_sys *sys, struct ki_lock *lock);

/*
 * Patience with a lock that all who write take.  A holder for whom somebody waited
 * in vain may be stopped: for ten seconds none waits as long for him again, or each
 * store of a program would.  Who has more patience than that has it all the same: a
 * store that many write to is only busy, and a tool is not to fail there because it
 * had a short look before.
 */
struct ki_lock_refusal {
	/* Atomic, by __atomic builtins. */
	uint64_t since_ns; /* when the wait began; or 0 */
	uint64_t waited_ns;
};

/* How long to wait, of `wait_ns`. */
uint64_t ki_lock_patience(const struct ki_lock_refusal *refusal,
			  uint64_t now_ns, uint64_t wait_ns);
/* A wait of that length came to an end: 0, or -ETIMEDOUT.  Other errors say nothing
   of the holder. */
void ki_lock_note_wait(struct ki_lock_refusal *refusal, uint64_t begun_ns,
		       uint64_t patience_ns, int err);

/* The same for a tier's calls: TIMEOUT, NO_MEMORY; UNSUPPORTED where there are no
   locks, or nothing may be written. */
enum kiln_status ki_tier_lock_build(struct ki_lock_file *file,
				    const struct kiln_key *key,
				    uint32_t timeout_ms,
				    struct kiln_tier_lock **out_lock);
void ki_tier_unlock(const struct ki_sys *sys, struct kiln_tier_lock *lock);

/* A store that is verified, entry by entry (verifying.c). */
struct ki_verifying {
	kiln_progress_fn *progress; /* may be NULL */
	void *arg;
	uint64_t total; /* bytes, about */
	uint64_t done;
	struct kiln_verify_report report;
};

void ki_verifying_step(struct ki_verifying *verifying, uint64_t bytes);
/* Counted, and named if there is room.  The digest may be NULL. */
void ki_verifying_damaged(struct ki_verifying *verifying,
			  const uint8_t digest[KILN_DIGEST_BYTES],
			  const char *file);
void ki_verifying_end(struct ki_verifying *verifying,
		      struct kiln_verify_report *out_report);

#endif /* KI_STORE_STORE_H */
