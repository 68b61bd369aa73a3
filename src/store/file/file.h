/* SPDX-License-Identifier: MIT */
#ifndef KI_STORE_FILE_FILE_H
#define KI_STORE_FILE_FILE_H

/*
 * The inside of store/file; docs/formats/file.md has the bytes.
 *
 *	DIRECTORY/NAME.files/settings	limits, versions, generation
 *	                     usage	how many bytes are spoken for
 *	                     lock	build locks, by byte
 *	                     quarantine/
 *	                     00/ .. ff/	entries by the first byte of the digest
 *	DIRECTORY/NAME.stats NAME.history
 *
 * file.c is the tier, entry.c one entry's file, settings.c and room.c the two
 * small files, walk.c whatever looks at all entries.
 */

#include <errno.h>

#include "store/store.h"

#include "tier/envelope.h"

#define KI_FILE_VERSION 1
#define KI_FILE_N_FANS	256

struct ki_file_settings {
	uint64_t user_version;
	uint64_t bytes_max;  /* 0: no bound */
	uint64_t age_max_s;  /* 0: none */
	uint64_t generation; /* another one after each wipe */
	int by_cost;	     /* evictions go by it */
};

/* A bit for each fan that exists. */
struct ki_file_fans {
	uint64_t bits[KI_FILE_N_FANS / 64];
};

struct ki_file_store {
	struct kiln_tier tier;
	/* Fixed after open. */
	const struct ki_sys *sys;
	char *directory;
	char *root;  /* DIRECTORY/NAME.files */
	char *stats; /* DIRECTORY/NAME.stats */
	char *lock_path;
	struct ki_file_settings wished;
	const char *application; /* who counts */
	uint32_t flags;
	struct ki_writer writer;
	uint64_t fork_generation;
	kiln_log_fn *log;
	void *log_arg;
	struct ki_lock_file locks; /* the file lock_path leads to */
	struct ki_directory_watch watch;
	/* Atomic, by __atomic builtins. */
	uint64_t generation; /* what tier.generation points to */
	uint64_t checked_ns; /* when the settings were last looked at */
	uint64_t n_puts;
	/* Under mutex, never held across a system call. */
	struct ki_mutex mutex;
	struct ki_file_settings settings;
	uint64_t settings_inode; /* 0: none seen */
	int64_t settings_mtime_ns;
	uint64_t reserve;	/* bytes spoken for and not yet used */
	uint64_t reserve_epoch; /* sweep after which they were */
	/* Which fans there are, as seen when a listing began. */
	struct ki_file_fans fans;
	int has_fans;
	/* Names of one fan, sorted, kept between steps of a listing. */
	unsigned listed_fan; /* KI_FILE_N_FANS: none */
	uint8_t (*listed)[KILN_DIGEST_BYTES];
	size_t n_listed;
};

static inline int ki_file_is_readonly(const struct ki_file_store *store)
{
	return !!(store->flags & (KILN_OPEN_READONLY | KILN_OPEN_ANY_OWNER));
}

/* Whether an error says that a name leads nowhere any more: on a network also
   what this machine remembers of a file that another removed. */
static inline int ki_file_is_gone(int err)
{
	return err == -ENOENT || err == -ENOTDIR || err == -ESTALE;
}

/* A second time, past what this machine remembers: that may be wrong once. */
int ki_file_opendir(const struct ki_file_store *store, const char *path,
		    struct ki_dir **out_dir);
int ki_file_unlink(const struct ki_file_store *store, const char *path);

/* ---- Names (entry.c) ------------------------------------------------------ */

int ki_file_fan_path(const struct ki_file_store *store, unsigned fan,
		     char out[KI_PATH_MAX]);
int ki_file_entry_path(const struct ki_file_store *store,
		       const uint8_t digest[KILN_DIGEST_BYTES],
		       char out[KI_PATH_MAX]);

/* Whether a name is that of a fan's directory. */
int ki_file_is_fan(const char *name, unsigned *out_fan);

enum ki_file_kind {
	KI_FILE_ENTRY,
	KI_FILE_TEMPORARY,
	KI_FILE_FOREIGN,
};
/* What a name says, and the digest for the first two. */
enum ki_file_kind ki_file_kind_of(const char *name,
				  uint8_t out_digest[KILN_DIGEST_BYTES]);

/* Make a directory of this store.  0, or a negative errno. */
int ki_file_make_directory(const struct ki_file_store *store, const char *path);

/* ---- One entry (entry.c) --------------------------------------------------- */

struct ki_file_loaded {
	struct kiln_blob *bytes;     /* of the whole file */
	struct ki_envelope envelope; /* points into them */
	struct ki_file_info info;    /* inode 0: there was no file */
};

/*
 * Read and check an entry.  KILN_OK; KILN_MISS (no such file, or not a file of
 * ours, or left over from another user version); KILN_E_FORMAT (damaged);
 * KILN_E_UNSUPPORTED (newer); IO, NO_MEMORY.  What was looked at stands in
 * `info` whatever the answer; there are bytes with KILN_OK only.
 */
enum kiln_status ki_file_load(const struct ki_file_store *store,
			      const uint8_t digest[KILN_DIGEST_BYTES],
			      struct ki_file_loaded *out_loaded);

/* Write an entry.  Errors as ki_publish_file(). */
int ki_file_write(const struct ki_file_store *store,
		  const struct ki_envelope *envelope, int replace);

/*
 * Take the file that was judged from an entry's name, and none that has come in
 * its place: not 0 if it is gone from there.  A damaged one is kept in quarantine,
 * of which KI_FILE_IS_ASIDE tells; who has no lock says so to the user.
 * (Where nothing can be moved there, for want of room, it is unlinked after a
 * look, and what comes within that moment goes with it: a miss.)
 */
enum ki_file_aside { KI_FILE_DROP, KI_FILE_QUARANTINE };
#define KI_FILE_IS_ASIDE 2
void ki_file_say_aside(const struct ki_file_store *store,
		       const uint8_t digest[KILN_DIGEST_BYTES]);
int ki_file_set_aside(const struct ki_file_store *store,
		      const uint8_t digest[KILN_DIGEST_BYTES],
		      const struct ki_file_info *judged,
		      enum ki_file_aside what);

void ki_file_say(const struct ki_file_store *store, enum kiln_log_level level,
		 const char *path, const char *what);

/* ---- Settings (settings.c) -------------------------------------------------- */

/*
 * Make the store's directory and settings if they are missing or damaged, and
 * take over what is there.  KILN_E_FORMAT: made by a newer version.
 */
enum kiln_status ki_file_settings_open(struct ki_file_store *store);

/* Look whether another process changed them: now, or at most once a second.
   KILN_OK, or KILN_E_OWNER: nothing may be read or written in the directory. */
enum ki_file_when { KI_FILE_AT_TIMES, KI_FILE_NOW };
enum kiln_status ki_file_settings_check(struct ki_file_store *store,
					enum ki_file_when when);

struct ki_file_settings ki_file_settings_now(struct ki_file_store *store);

/* Whether the store is of another user version by now: nothing in it is for
   this handle, which leaves it alone. */
int ki_file_is_other_version(struct ki_file_store *store);

/*
 * Change what is there at this moment, whoever put it there, under the lock
 * where there are locks (_locked: the caller has it).  TIMEOUT, IO, NO_MEMORY;
 * FORMAT if it is of another user version, unless that is what changes.
 */
struct ki_file_change {
	const uint64_t *bytes_max;	    /* NULL: as it is */
	const uint64_t *user_version;	    /* NULL: as it is */
	const enum kiln_eviction *eviction; /* NULL: as it is */
	int is_wipe;			    /* another generation */
};
enum kiln_status ki_file_settings_change(struct ki_file_store *store,
					 const struct ki_file_change *change);
enum kiln_status ki_file_settings_change_locked(
	struct ki_file_store *store, const struct ki_file_change *change);

/* ---- Room (room.c) ---------------------------------------------------------- */

/* What a file counts for. */
uint64_t ki_file_charge(const struct ki_file_info *info);

#define KI_FILE_BOOTS 64

struct ki_file_usage {
	uint64_t total;
	uint64_t pending; /* of it, large files being written */
	uint64_t epoch;
	int64_t swept_ns;
	uint32_t boots[KI_FILE_BOOTS]; /* that have counted, latest first */
};

/* The file of the total, open and, where there are locks, locked. */
struct ki_file_access {
	int fd;
	int has_locks;
	int64_t now_ns; /* of the file system */
	struct ki_fork_close place;
	struct ki_file_usage usage;
};

/* TIMEOUT: another process has it for longer. */
#define KI_FILE_PUT_NS	((uint64_t)20 * 1000000)
#define KI_FILE_TOOL_NS ((uint64_t)2000 * 1000000)
enum kiln_status ki_file_access_begin(const struct ki_file_store *store,
				      uint64_t wait_ns,
				      struct ki_file_access *access);
void ki_file_access_end(const struct ki_file_store *store,
			struct ki_file_access *access);

/* Room that is spoken for, from begin to finish. */
struct ki_file_room {
	uint64_t need;
	uint64_t epoch;
	int is_pending;
	struct ki_file_access access; /* if so */
};

/*
 * Speak for room for a file of `size` bytes, evicting if need be.  FULL,
 * TOO_LARGE, TIMEOUT (another process is sweeping), IO, NO_MEMORY.  If KILN_OK,
 * ki_file_room_finish() must follow.
 */
enum kiln_status ki_file_room_begin(struct ki_file_store *store, uint64_t size,
				    struct ki_file_room *room);
void ki_file_room_finish(struct ki_file_store *store, struct ki_file_room *room,
			 int is_written);

/* At close: give back what is left. */
void ki_file_return_reserve(struct ki_file_store *store);

/* What is asked of a sweep beyond keeping the limits, and what it did. */
struct ki_file_sweep {
	/* Asked.  0: nothing beyond. */
	uint64_t bytes_max;
	uint64_t age_max_s;
	uint64_t aside_max_s; /* how long damaged ones are kept */
	int drops_aside;      /* all of them */
	/* Done. */
	uint64_t noted; /* 0: the total was not known */
	uint64_t before;
	uint64_t counted; /* after what was too old had gone */
	uint64_t left;
	uint64_t n_evicted;
	uint64_t n_expired;
	uint64_t n_aside;
	uint64_t n_temporaries;
};

/* Count all files anew and evict until the bound holds; waits for its turn.
   `sweep` may be NULL. */
enum kiln_status ki_file_sweep(struct ki_file_store *store,
			       struct ki_file_sweep *sweep);
/* Another bound, and come under it; the one of before if that fails. */
enum kiln_status ki_file_set_limit(struct kiln_tier *tier, uint64_t bytes_max);
enum kiln_status ki_file_set_eviction(struct kiln_tier *tier,
				      enum kiln_eviction eviction);
enum kiln_status ki_file_gc(struct kiln_tier *tier,
			    const struct kiln_gc_options *options,
			    kiln_progress_fn *progress, void *arg,
			    struct kiln_gc_report *out_report);

/* A bounded store is not smaller. */
#define KI_FILE_BYTES_MIN ((uint64_t)256 << 10)

/* When the last sweep was, by the file system's clock; INT64_MIN: never. */
int64_t ki_file_swept_ns(const struct ki_file_store *store);

/* ---- All entries (walk.c) ---------------------------------------------------- */

/*
 * Called for every regular file of a fan that is an entry or a temporary by
 * its name.  Not 0 ends the walk.
 */
typedef int ki_file_visit_fn(void *arg, enum ki_file_kind kind,
			     const uint8_t digest[KILN_DIGEST_BYTES],
			     const char *path, const char *name,
			     const struct ki_file_info *info);

/* 0, a negative errno, or what a visit returned.  No such fan: 0. */
int ki_file_walk(const struct ki_file_store *store, const char *directory,
		 ki_file_visit_fn *visit, void *arg);
/* The same for all fans. */
int ki_file_walk_all(const struct ki_file_store *store, ki_file_visit_fn *visit,
		     void *arg);

/* Bytes of the files that are neither entries nor temporaries. */
uint64_t ki_file_fixed_bytes(const struct ki_file_store *store);

enum kiln_status ki_file_list(struct kiln_tier *tier,
			      struct kiln_cursor *cursor,
			      struct kiln_entry *out_entry);
enum kiln_status ki_file_verify(struct kiln_tier *tier, unsigned flags,
				kiln_progress_fn *progress, void *arg,
				struct kiln_verify_report *out_report);
enum kiln_status ki_file_info_of(struct kiln_tier *tier,
				 struct kiln_store_info *out_info);

#endif /* KI_STORE_FILE_FILE_H */
