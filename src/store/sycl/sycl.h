/* SPDX-License-Identifier: MIT */
#ifndef KI_STORE_SYCL_SYCL_H
#define KI_STORE_SYCL_SYCL_H

/*
 * The inside of store/sycl; docs/formats/sycl.md has the bytes.
 *
 *	DIRECTORY/<device>/<image>/<spec>/<options>/	a place (layout.c)
 *	          <n>.src <n>.bin			an entry (entry.c)
 *	          <n>_access_time.txt			when it was used last
 *	          <n>.lock				its lock (lock.c)
 *	DIRECTORY/<device "kiln">/<0 to 15>/		places of kiln's alone, and
 *	DIRECTORY/ext_kernel_compiler/...		entries without .src
 *	DIRECTORY/cache_size.txt			the sum (size.c)
 *	DIRECTORY/kiln.records				what entries of kiln's lack
 *	DIRECTORY/kiln.lock kiln.held kiln.stats	turns and build locks, lock
 *							files of kiln's, counters
 *
 * sycl.c is the tier, put.c what it stores and removes, evict.c makes room,
 * walk.c finds all entries, list.c, upkeep.c and tidy.c look at them, describe.c tells
 * what a file is, gaps.c puts keys together of which .src has the half.
 */

#include <errno.h>

#include "base/bytes.h"
#include "store/records.h"
#include "store/store.h"

/* Files that one store removes, where the limit does not ask for more. */
#define KI_SYCL_STEP 128
/* Directories and entries that one store looks at. */
#define KI_SYCL_LOOKS 2048

#define KI_SYCL_PUT_NS	((uint64_t)100 * 1000000)
#define KI_SYCL_TOOL_NS ((uint64_t)2000 * 1000000)
/* A lock file of somebody else's that stands for so long has no owner. */
#define KI_SYCL_STALE_NS ((uint64_t)10 * 1000000000)

/* In the order of .src. */
enum ki_sycl_field {
	KI_SYCL_DEVICE,
	KI_SYCL_OPTIONS,
	KI_SYCL_SPEC,
	KI_SYCL_IMAGE,
	KI_SYCL_N_FIELDS
};

/* What an entry is compared by.  Borrowed, of a key. */
struct ki_sycl_fields {
	struct ki_piece of[KI_SYCL_N_FIELDS];
	int is_shared; /* the key says all four: it lives where DPC++ looks */
};

/* The hash of "kiln", for the device of what only kilns look for. */
#define KI_SYCL_OWN    "13701175970855024905"
#define KI_SYCL_N_FANS 16

/* Of an access time: nanoseconds since 1970, until 2286. */
#define KI_SYCL_USE_BYTES 19

#define KI_SYCL_PLACE_BYTES 96	/* "d/i/s/o" */
#define KI_SYCL_NAME_BYTES  128 /* "d/i/s/o/n_access_time.txt.lock" */

/* What there is of an entry. */
#define KI_SYCL_BIN	 1u
#define KI_SYCL_SRC	 2u
#define KI_SYCL_ACCESS	 4u
#define KI_SYCL_LOCK	 8u
#define KI_SYCL_USE_LOCK 16u /* of the time of access */

/* An entry that may have to go, as it was when it was looked at. */
struct ki_sycl_file {
	uint64_t name;	/* offset into the plan's names: without .bin */
	uint64_t size;	/* .bin and .src */
	uint64_t inode; /* of .bin, else of .src */
	int64_t used_ns;
	int64_t mtime_ns;
	uint64_t build_ns; /* by cost; 0: nobody knows */
	unsigned extra;	   /* bytes beside, which a count has */
	unsigned has;
};

/*
 * All entries of the directory in the order in which they go, as far as they have
 * been looked at:
 *
 *	gone | looked at, sorted if `is_sorted` | not looked at, in any order
 *	     ^ next                             ^ n_known              n ^
 *
 * and the directories that have not been opened yet.
 */
struct ki_sycl_plan {
	struct ki_bytes names;
	struct ki_sycl_file *files;
	size_t n, capacity;
	size_t next, n_known;
	struct ki_bytes pending; /* offsets of directories' names, u64 each */
	uint64_t bytes;		 /* of all that was met, as a walk counts */
	int is_active;
	int is_counted; /* the sum has all of it, times of access too */
	int is_sorted;
	int by_cost;
	int64_t now_ns; /* when entries were looked at last */
	int err;	/* why some could not be looked at: they are left out */
	uint64_t begun_ns;
};

/* All entries as they were when a listing began; list.c. */
struct ki_sycl_survey {
	struct ki_sycl_plan plan;
	struct ki_sycl_listed *places; /* of the same, by name */
};

/* A foreign lock file that stood in the way. */
#define KI_SYCL_SIGHTINGS 32
struct ki_sycl_sighting {
	uint64_t path; /* hash */
	/* Numbers are given again: with the time when it was made, none is. */
	uint64_t device, inode;
	int64_t mtime_ns;
	uint64_t first_ns;
};

struct ki_sycl {
	struct kiln_tier tier;
	/* Fixed after open. */
	const struct ki_sys *sys;
	char *directory;
	size_t directory_size;
	char *size_path;
	char *evict_path;  /* "<directory>_eviction_in_progress" */
	char *evict_other; /* with a slash more, or none, at its end */
	char *held_path;
	char *lock_path;
	char *stats_path;
	const char *application; /* who counts */
	uint32_t flags;
	uint64_t user_version;
	uint64_t age_max_s;
	unsigned traces;      /* SYCL_CACHE_TRACE */
	size_t looks_max;     /* KI_SYCL_LOOKS; tests have small directories */
	size_t step_max;      /* KI_SYCL_STEP */
	uint64_t wait_max_ns; /* for a lock; tests are in a hurry */
	uint64_t stale_ns;    /* KI_SYCL_STALE_NS */
	struct ki_records *records;
	uint64_t fork_generation;
	kiln_log_fn *log;
	void *log_arg;
	struct ki_directory_watch watch;
	struct ki_lock_file locks;	/* the file lock_path leads to */
	struct ki_lock_refusal refusal; /* of the turn */
	/* Atomic, by __atomic builtins. */
	uint64_t generation; /* what tier.generation points to */
	uint64_t checked_ns; /* when it was last looked at */
	uint64_t bytes_max;  /* this handle's own; 0: none */
	/* Held by who has, or waits for, the turn. */
	struct ki_mutex writer;
	struct ki_sycl_plan plan;
	struct ki_sycl_sighting sightings[KI_SYCL_SIGHTINGS];
	struct ki_bytes taken; /* lock files that went: to be told afterwards */
	/* Of the last count: when, and what it left in doubt. */
	uint64_t counted_ns;
	unsigned doubts;
	uint64_t size_refused_ns; /* when its lock was not to be had; or 0 */
	uint64_t random;
	struct ki_mutex lister;
	struct ki_sycl_survey survey;
};

static inline int ki_sycl_is_readonly(const struct ki_sycl *sycl)
{
	return !!(sycl->flags & (KILN_OPEN_READONLY | KILN_OPEN_ANY_OWNER));
}

/* Never with the turn. */
void ki_sycl_say(const struct ki_sycl *sycl, enum kiln_log_level level,
		 const char *path, const char *what);

/* The limit that holds now: this handle's or the directory's, the lower. */
uint64_t ki_sycl_limit(struct ki_sycl *sycl);
/* Whether the directory is of another user version by now. */
int ki_sycl_is_other_version(struct ki_sycl *sycl);

/* Take over what other processes did to kiln.records: 1 if anything, 0,
   -errno. */
int ki_sycl_refresh(struct ki_sycl *sycl);
void ki_sycl_note_generation(struct ki_sycl *sycl);

/* Of unsigned totals. */
static inline uint64_t ki_sycl_less(uint64_t total, uint64_t bytes)
{
	return total > bytes ? total - bytes : 0;
}

/* ---- Names (layout.c) ---------------------------------------------------------- */

/* std::hash<std::string> of libstdc++ where size_t has 64 bits. */
uint64_t ki_sycl_hash(const void *data, size_t size);

void ki_sycl_fields_of(const struct kiln_key *key,
		       struct ki_sycl_fields *out_fields);
/* The same of the record of a shared one, which may have gaps. */
void ki_sycl_fields_in(const void *record, size_t size,
		       struct ki_sycl_fields *out_fields);
/* "d/i/s/o", or "<kiln>/<fan>" */
void ki_sycl_place(const struct kiln_key *key,
		   const struct ki_sycl_fields *fields,
		   char out[KI_SYCL_PLACE_BYTES]);
/* The first number to try in a place of kiln's. */
uint32_t ki_sycl_first_number(const struct kiln_key *key);

/* DIRECTORY/NAME into `out`, -ENAMETOOLONG. */
int ki_sycl_path(const struct ki_sycl *sycl, const char *name,
		 char out[KI_PATH_MAX]);
/* The same with more behind it. */
int ki_sycl_path_of(const struct ki_sycl *sycl, const char *name,
		    const char *suffix, char out[KI_PATH_MAX]);

/* "7.bin": 7 and KI_SYCL_BIN.  Any other name: 0. */
unsigned ki_sycl_part(const char *base, uint32_t *out_n);
/* "d/i/s/o/n.bin" or "<kiln>/<fan>/n.bin": nothing that leads elsewhere.  Records say what who wrote them
   liked. */
int ki_sycl_is_name(const char *name);
/* Whether it lies where only kilns look: without .src and without lock files. */
int ki_sycl_is_own(const char *name);
/* "d/i/s/o/n.bin" -> "d/i/s/o/n" */
void ki_sycl_stem(const char *name, char out[KI_SYCL_NAME_BYTES]);

/* A regular file of that name, no link followed: 0, -ENOENT for all else. */
int ki_sycl_look(const struct ki_sycl *sycl, const char *name,
		 const char *suffix, struct ki_file_info *out_info);

/* 1 if something else than a directory is in the way there: a link leads to what
   is somebody else's. */
int ki_sycl_is_elsewhere(const struct ki_sycl *sycl, const char *place);
/* Make a place's directories, and the store's own if it is gone. */
int ki_sycl_make_place(const struct ki_sycl *sycl, const char *place);

/* ---- All there is (walk.c) ------------------------------------------------------ */

/*
 * Called with every entry, and with what there is of it: its name without .bin.
 * Not 0 ends the walk.
 */
typedef int ki_sycl_visit_fn(void *arg, const char *stem, unsigned has);
/* The same with every directory, to be opened later. */
typedef int ki_sycl_below_fn(void *arg, const char *name);

/* All that lies directly in a directory (the root: ""), no link followed.  0 (also
   if there is none), -errno, or what a function returned. */
int ki_sycl_open_one(const struct ki_sycl *sycl, const char *name,
		     ki_sycl_below_fn *below, ki_sycl_visit_fn *visit,
		     void *arg);
/* In all of them; -EACCES: all was visited but what is not ours to read. */
int ki_sycl_walk(const struct ki_sycl *sycl, ki_sycl_visit_fn *visit,
		 void *arg);

/* What lies in a place, by n. */
struct ki_sycl_slot {
	uint32_t n;
	unsigned has;
};
struct ki_sycl_slots {
	struct ki_sycl_slot *slots; /* from malloc() */
	size_t n;
};
/* 0 (also if there is no such place), -errno. */
int ki_sycl_read_place(const struct ki_sycl *sycl, const char *place,
		       struct ki_sycl_slots *out_slots);

/* ---- Locks (lock.c) -------------------------------------------------------------- */

/*
 * A turn: among kilns one writes at a time, by a byte of kiln.lock.  Whatever
 * lock files of kiln's there are when it begins were left by the dead, and go.
 */
struct ki_sycl_turn {
	struct ki_lock lock;
	uint64_t deadline_ns;		  /* for lock files of others' */
	uint64_t held_device, held_inode; /* of kiln.held; 0: there is none */
	int has_size;			  /* cache_size.txt is to be kept */
	int is_sure;	/* else the directory has to be counted */
	int is_counted; /* it was */
	uint64_t noted; /* what the file says; UINT64_MAX: nothing */
	uint64_t total; /* with what follows */
	uint64_t added, removed;
	/* Not yet in cache_size.txt, by kiln.owed. */
	uint64_t owed_added, owed_removed;
	int has_owed; /* there is such a file */
	int64_t now_ns;
};

/* TIMEOUT, READONLY, IO, OWNER, FORMAT, NO_MEMORY.  If KILN_OK,
   ki_sycl_turn_end() must follow. */
enum kiln_status ki_sycl_turn_begin(struct ki_sycl *sycl, uint64_t wait_ns,
				    struct ki_sycl_turn *turn)
	KI_TRY_ACQUIRE(0, sycl->writer) KI_NO_ANALYSIS;
enum kiln_status ki_sycl_turn_end(struct ki_sycl *sycl,
				  struct ki_sycl_turn *turn)
	KI_RELEASE(sycl->writer) KI_NO_ANALYSIS;

/*
 * Make PATH.lock, as DPC++ does; in a turn.  0, -EAGAIN (somebody else's stands
 * there, and did so at the turn's deadline, if `waits`), or why it cannot be
 * made.
 */
int ki_sycl_lock(struct ki_sycl *sycl, struct ki_sycl_turn *turn,
		 const char *path, int waits);
void ki_sycl_unlock(const struct ki_sycl *sycl, const char *path);

/* Whether an entry's lock file is there and somebody else's: then he is at it. */
int ki_sycl_is_locked(const struct ki_sycl *sycl, const char *stem);
/* In a turn: a lock file of this inode, which has no owner.  0, -errno. */
int ki_sycl_take_away(struct ki_sycl *sycl, const char *lock_path,
		      uint64_t inode);
/* Of lock files that kilns made, in a turn: it has no owner.  1 if it went. */
int ki_sycl_drop_dead_lock(const struct ki_sycl *sycl,
			   const struct ki_sycl_turn *turn, const char *path);

/* ---- The sum (size.c) -------------------------------------------------------------- */

/* What cache_size.txt says: 0, -ENOENT, -EINVAL if it is no sum, -errno. */
int ki_sycl_read_sum(const struct ki_sycl *sycl, uint64_t *out_sum);
/* What earlier turns could not add to it. */
void ki_sycl_read_owed(const struct ki_sycl *sycl, struct ki_sycl_turn *turn);
/* Whether somebody else has a lock file for evicting: he has read the sum, and will
   write what he makes of it. */
int ki_sycl_is_other_evicting(const struct ki_sycl *sycl);
/* In a turn: others may have changed it since that began. */
void ki_sycl_read_sum_again(const struct ki_sycl *sycl,
			    struct ki_sycl_turn *turn);
/* Count anew, and say so in cache_size.txt if it is kept. */
void ki_sycl_recount(struct ki_sycl *sycl, struct ki_sycl_turn *turn,
		     uint64_t counted);
/* Bring it up to date, at the end of a turn. */
void ki_sycl_settle(struct ki_sycl *sycl, struct ki_sycl_turn *turn);

static inline void ki_sycl_add(struct ki_sycl_turn *turn, uint64_t bytes)
{
	turn->total += bytes;
	turn->added += bytes;
}

static inline void ki_sycl_take(struct ki_sycl_turn *turn, uint64_t bytes)
{
	turn->total = ki_sycl_less(turn->total, bytes);
	turn->removed += bytes;
}

/* When an entry was used last; -ENOENT, -EINVAL. */
int ki_sycl_read_use(const struct ki_sycl *sycl, const char *stem,
		     int64_t *out_ns);
int ki_sycl_write_use(const struct ki_sycl *sycl, const char *stem,
		      int64_t now_ns);

/* ---- One entry (entry.c) ------------------------------------------------------------ */

#define KI_SYCL_SRC_HEADER ((uint64_t)32) /* four sizes */
#define KI_SYCL_BIN_HEADER ((size_t)16)

uint64_t ki_sycl_src_size(const struct ki_sycl_fields *fields);

/* 1 if PATH, a .src, says these fields and nothing else; 0; -errno. */
int ki_sycl_src_is(const struct ki_sys *sys, const char *path,
		   const struct ki_sycl_fields *fields);

/* Write NAME anew in the root, for a rename.  0, -errno. */
int ki_sycl_write_src(const struct ki_sycl *sycl, const char *path,
		      const struct ki_sycl_fields *fields);
int ki_sycl_write_bin(const struct ki_sycl *sycl, const char *path,
		      const void *value, size_t size,
		      struct ki_file_info *out_info);

/*
 * Where in a .bin of `size` bytes its (first) binary lies, by its first 16 bytes
 * (zeros behind the end) and, in the oldest form, what follows.  0, -EINVAL if
 * it is none, -errno.
 */
struct ki_sycl_span {
	uint64_t offset;
	uint64_t size;
	uint64_t n; /* binaries in it; 0: a file of the time without a count */
};
int ki_sycl_find_binary(const struct ki_sys *sys, int fd, uint64_t size,
			struct ki_sycl_span *out_span);

/* Where the fields of a .src lie; the same. */
int ki_sycl_find_fields(const struct ki_sys *sys, int fd, uint64_t size,
			struct ki_sycl_span out_spans[KI_SYCL_N_FIELDS]);

enum ki_sycl_state {
	KI_SYCL_THERE,
	KI_SYCL_GONE,
	KI_SYCL_TAKEN,	 /* somebody else wrote what has the name */
	KI_SYCL_LOCKED,	 /* somebody else is at it */
	KI_SYCL_DAMAGED, /* it is kiln's, with other bytes: load only */
};
enum ki_sycl_state ki_sycl_compare(const struct ki_record_found *found,
				   const struct ki_file_info *info);
int ki_sycl_state(const struct ki_sycl *sycl,
		  const struct ki_record_found *found,
		  enum ki_sycl_state *out_state, struct ki_file_info *out_info);

/* Read the file of a record, checked.  KILN_OK, KILN_MISS, KILN_E_FORMAT if it is
   damaged, or why it cannot be read. */
enum kiln_status ki_sycl_load(struct ki_sycl *sycl,
			      const struct ki_record_found *found,
			      enum ki_sycl_state *out_state,
			      struct kiln_blob **out_value,
			      struct ki_file_info *out_info);

/* Nothing of that name, by what open() said. */
static inline int ki_sycl_is_gone(int err)
{
	return err == -ENOENT || err == -ENOTDIR || err == -ELOOP ||
	       err == -ENXIO;
}

/* The record whose file is there, in a turn.  KILN_E_FORMAT: its .src is damaged,
   or gone. */
enum kiln_status ki_sycl_find_present(struct ki_sycl *sycl,
				      const struct kiln_key *key,
				      struct ki_record_found *out_found,
				      enum ki_sycl_state *out_state);

/* The lowest entry of DPC++'s own in a place that is this key's and whole: its
   name without .bin.  KILN_OK, KILN_MISS, IO, NO_MEMORY. */
enum kiln_status ki_sycl_find_foreign(struct ki_sycl *sycl, const char *place,
				      const struct ki_sycl_fields *fields,
				      char out_stem[KI_SYCL_NAME_BYTES],
				      struct kiln_blob **out_value);

/* What a .bin says that its binary takes; else the file's size. */
uint64_t ki_sycl_value_size(const struct ki_sycl *sycl, const char *stem);
/* Whether an entry that no record is about is whole as far as its form tells:
   KILN_OK, FORMAT, KILN_MISS if it is gone, or why it cannot be read. */
enum kiln_status ki_sycl_check_form(const struct ki_sycl *sycl,
				    const char *stem, unsigned has);

/* ---- What .src has of a key (gaps.c) ------------------------------------------------- */

/* Leave to .src what is long.  The fields are of this record. */
void ki_sycl_leave_out(struct ki_record *record,
		       const struct ki_sycl_fields *fields);
/* Compare the gaps of what ki_records_find() found: KILN_OK, COLLISION, KILN_MISS
   (no .src), FORMAT (it is damaged), or why it cannot be read. */
enum kiln_status ki_sycl_check_key(struct ki_sycl *sycl,
				   const struct ki_record_found *found,
				   const struct kiln_key *key);
/* The same of an entry that DPC++ has to find, too. */
enum kiln_status ki_sycl_check_src(struct ki_sycl *sycl,
				   const struct ki_record_found *found,
				   const struct kiln_key *key);
/* Put together what ki_records_next() gave.  The same, but COLLISION. */
enum kiln_status ki_sycl_whole_record(const struct ki_sycl *sycl,
				      const struct ki_record_found *found,
				      struct kiln_blob **record);

/* ---- Storing (put.c), in a turn where it says so -------------------------------------- */

enum kiln_status ki_sycl_put(struct kiln_tier *tier, const struct kiln_key *key,
			     const void *metadata, size_t metadata_size,
			     const void *value, size_t value_size,
			     unsigned flags);
enum kiln_status ki_sycl_remove(struct kiln_tier *tier,
				const struct kiln_key *key);
enum kiln_status ki_sycl_wipe(struct kiln_tier *tier);
/* The same of kiln's own entries, under another version of the user. */
enum kiln_status ki_sycl_adopt_user_version(struct ki_sycl *sycl);
/* Remove an entry whose file is damaged, forget one whose file somebody else
   wrote; if the turn is to be had. */
void ki_sycl_drop_unusable(struct ki_sycl *sycl, const struct kiln_key *key);
/* Remove an entry whose key cannot be told any more. */
enum kiln_status ki_sycl_remove_found(struct ki_sycl *sycl,
				      const struct ki_record_found *found);
/* The same of one that no record is about and that is not whole. */
enum kiln_status ki_sycl_remove_damaged(struct ki_sycl *sycl, const char *stem);
/* Whether it was not used for too long. */
int ki_sycl_is_expired(const struct ki_sycl *sycl, const char *stem,
		       const struct ki_file_info *bin);

/*
 * Remove all files of an entry, in a turn, under its lock.  0 (also if there is
 * none), -EAGAIN if somebody else is at it, -errno.  What kiln.records knows of
 * it is the caller's to drop.
 */
int ki_sycl_remove_entry(struct ki_sycl *sycl, struct ki_sycl_turn *turn,
			 const char *stem);

/* The same of one that was looked at before: -EAGAIN if it is another by now. */
int ki_sycl_remove_file(struct ki_sycl *sycl, struct ki_sycl_turn *turn,
			const char *stem, const struct ki_sycl_file *file);

/* ---- Room (evict.c), in a turn ---------------------------------------------------------- */

struct ki_sycl_report {
	uint64_t n_evicted;
	uint64_t n_expired;
	uint64_t n_temporaries;
	uint64_t n_dropped; /* records of files that are no more */
	int is_partial;	    /* something could not be looked at */
};

/* Count all files, drop the records of those that are no more, remove what dead
   writers left. */
enum kiln_status ki_sycl_count(struct ki_sycl *sycl, struct ki_sycl_turn *turn,
			       struct ki_sycl_report *report);
/* Have `need` bytes fit: FULL, IO, NO_MEMORY, TIMEOUT. */
enum kiln_status ki_sycl_make_room(struct ki_sycl *sycl,
				   struct ki_sycl_turn *turn, uint64_t need,
				   struct ki_sycl_report *report);
/* Whether nothing would have to go under this limit (0: none). */
int ki_sycl_would_fit(struct ki_sycl *sycl, const struct ki_sycl_turn *turn,
		      uint64_t limit);
/* What was looked at without the turn becomes the plan; `is_still`: nobody has
   changed anything since, so the sum can be put right. */
enum kiln_status ki_sycl_use_plan(struct ki_sycl *sycl,
				  struct ki_sycl_turn *turn,
				  struct ki_sycl_plan *plan, int is_still,
				  struct ki_sycl_report *report);
/* What has to go; 0: none. */
struct ki_sycl_goal {
	uint64_t bytes_max;
	uint64_t age_max_s;
};
/* Remove so many of the plan's oldest, if they have to go: KILN_OK, KILN_END if
   nothing more has to, TIMEOUT if somebody else evicts, IO, NO_MEMORY. */
enum kiln_status ki_sycl_clean_some(struct ki_sycl *sycl,
				    struct ki_sycl_turn *turn,
				    const struct ki_sycl_goal *goal,
				    size_t n_max,
				    struct ki_sycl_report *report);
void ki_sycl_count_evicted(const struct ki_sycl *sycl,
			   const struct ki_sycl_report *report);

/* Look at all entries and put them in order; nothing is changed.  0, -errno. */
int ki_sycl_plan_all(const struct ki_sycl *sycl, struct ki_sycl_plan *plan);
void ki_sycl_plan_end(struct ki_sycl_plan *plan);

/* ---- Traces (trace.c) ---------------------------------------------------------- */

void ki_sycl_trace_begin(struct ki_sycl *sycl);
void ki_sycl_trace(const struct ki_sycl *sycl, const char *what);
/* WHAT DIRECTORY/STEM SUFFIX */
void ki_sycl_trace_file(const struct ki_sycl *sycl, const char *what,
			const char *stem, const char *suffix);

/* ---- What an entry is of (describe.c) -------------------------------------------- */

/* <kiln/sycl.h> */
struct kiln_sycl_source;
enum kiln_status ki_sycl_describe(const struct ki_sys *sys, const char *path,
				  struct kiln_sycl_source *out_source);

/* ---- Over all of it, with the turn for moments only (tidy.c) ----------------------- */

/* Remove all lock files of somebody else's that stand while we wait for them, ten
   seconds at most for all together. */
void ki_sycl_free_left(struct ki_sycl *sycl);
/* Tell of those that have stood for as long by the file system's clock. */
void ki_sycl_name_left(const struct ki_sycl *sycl);
enum kiln_status ki_sycl_count_anew(struct ki_sycl *sycl,
				    struct kiln_verify_report *report);

/* ---- All entries (list.c, upkeep.c, tidy.c) ------------------------------------------------------- */

/* Entries that no record is about are listed under keys of local fields: the name,
   and what it says of itself.  No value is ever handed out for them. */
int ki_sycl_is_foreign_key(const struct ki_sycl *sycl,
			   const struct kiln_key *key,
			   char out_stem[KI_SYCL_NAME_BYTES]);
enum kiln_status ki_sycl_foreign_key(const struct ki_sycl *sycl,
				     const char *stem,
				     struct kiln_key **out_key);
/* Whether it is there, in part at least, and not kiln's: its parts; 0. */
unsigned ki_sycl_is_foreign(const struct ki_sycl *sycl, const char *stem);
void ki_sycl_survey_end(struct ki_sycl_survey *survey);

enum kiln_status ki_sycl_list(struct kiln_tier *tier,
			      struct kiln_cursor *cursor,
			      struct kiln_entry *out_entry);
enum kiln_status ki_sycl_verify(struct kiln_tier *tier, unsigned flags,
				kiln_progress_fn *progress, void *arg,
				struct kiln_verify_report *out_report);
enum kiln_status ki_sycl_gc(struct kiln_tier *tier,
			    const struct kiln_gc_options *options,
			    kiln_progress_fn *progress, void *arg,
			    struct kiln_gc_report *out_report);
enum kiln_status ki_sycl_set_limit(struct kiln_tier *tier, uint64_t bytes_max);
enum kiln_status ki_sycl_set_eviction(struct kiln_tier *tier,
				      enum kiln_eviction eviction);
enum kiln_status ki_sycl_info(struct kiln_tier *tier,
			      struct kiln_store_info *out_info);

#endif /* KI_STORE_SYCL_SYCL_H */
