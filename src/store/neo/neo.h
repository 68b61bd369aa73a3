/* SPDX-License-Identifier: MIT */
#ifndef KI_STORE_NEO_NEO_H
#define KI_STORE_NEO_NEO_H

/*
 * The inside of store/neo; docs/formats/neo.md has the bytes.
 *
 *	DIRECTORY/config.file			the total, and the lock (config.c)
 *	          <16 digits>.cl_cache		entries, flat,
 *	          a/b/<16 digits>.cl_cache	or in a tree (layout.c)
 *	          cl_cache.XXXXXX		an entry being written
 *	          kiln.records			what entries of kiln's lack
 *	          kiln.lock kiln.stats kiln.history	build locks, counters
 *
 * neo.c is the tier, put.c what it stores, evict.c makes room and counts,
 * list.c and upkeep.c look at all entries, hash.c has the names,
 * describe.c what a file is.
 */

#include <errno.h>

#include <kiln/neo.h>

#include "base/bytes.h"
#include "store/records.h"
#include "store/store.h"

/* Files that one store removes, where the limit does not ask for more. */
#define KI_NEO_STEP 256
/* Files that one store looks at. */
#define KI_NEO_LOOKS 4096

#define KI_NEO_PUT_NS  ((uint64_t)100 * 1000000)
#define KI_NEO_TOOL_NS ((uint64_t)2000 * 1000000)

/* A file that may have to go, as it was when it was looked at. */
struct ki_neo_file {
	uint64_t name; /* offset into the plan's names */
	uint64_t size;
	uint64_t inode;
	int64_t atime_ns;
	int64_t mtime_ns;
	uint64_t build_ns; /* by cost; 0: nobody knows */
	int is_leftover;   /* of the flat layout, in a tree: goes first */
	int is_uncounted;  /* stays; listings have these only */
};

/*
 * All files of the directory in the order in which they go, as far as they have
 * been looked at:
 *
 *	gone | looked at, sorted if `is_sorted` | not looked at, in any order
 *	     ^ next                             ^ n_known              n ^
 */
struct ki_neo_plan {
	struct ki_bytes names;
	struct ki_neo_file *files;
	size_t n, capacity;
	size_t next, n_known;
	int is_active;
	int is_sorted;
	int err; /* why some could not be looked at: they are left out */
	int is_by_records;
	int is_doubtful; /* the records name files that are not there */
	int by_cost;
	int64_t now_ns; /* when files were looked at last */
	uint64_t begun_ns;
	uint64_t random; /* 0: not drawn from yet */
};

/* All files as they were when a listing began; list.c. */
struct ki_neo_survey {
	struct ki_neo_plan plan;     /* in the order in which they go */
	struct ki_neo_place *places; /* of the same files, by name */
};

struct ki_neo {
	struct kiln_tier tier;
	/* Fixed after open. */
	const struct ki_sys *sys;
	char *directory;
	size_t directory_size;
	char *config_path;
	char *lock_path;
	char *stats_path;
	const char *application; /* who counts */
	uint32_t flags;
	uint64_t user_version;
	uint64_t age_max_s;
	int is_detected;      /* the layout, by what is there */
	uint64_t name_mask;   /* of the hash; tests make names meet */
	size_t looks_max;     /* KI_NEO_LOOKS; tests have small directories */
	size_t step_max;      /* KI_NEO_STEP; SIZE_MAX: all at once */
	uint64_t wait_max_ns; /* for a lock; tests are in a hurry */
	struct ki_records *records;
	int place_fd; /* the directory, for hits; -1: none is kept */
	uint64_t place_device, place_inode;
	int traces;	 /* BinaryCacheTrace */
	int messages;	 /* PrintDebugMessages */
	int keeps_stats; /* NEO_CACHE_STATS */
	uint64_t fork_generation;
	kiln_log_fn *log;
	void *log_arg;
	struct ki_lock_file locks;	/* the file lock_path leads to */
	struct ki_lock_refusal refusal; /* of config.file */
	struct ki_directory_watch watch;
	/* Atomic, by __atomic builtins. */
	enum kiln_neo_layout layout; /* ki_neo_layout() */
	uint64_t generation;	     /* what tier.generation points to */
	uint64_t checked_ns;	     /* when it was last looked at */
	uint64_t bytes_max;	     /* this handle's own; 0: none */
	int place_is_other; /* the path leads to another directory by now */
	/* Held by who has, or waits for, the lock of config.file. */
	struct ki_mutex writer;
	struct ki_neo_plan plan;
	uint64_t random; /* names of temporaries */
	struct ki_mutex lister;
	struct ki_neo_survey survey;
};

/* Flat may become a tree at any time, never the other way round. */
static inline enum kiln_neo_layout ki_neo_layout(const struct ki_neo *neo)
{
	return __atomic_load_n(&neo->layout, __ATOMIC_RELAXED);
}

static inline int ki_neo_is_readonly(const struct ki_neo *neo)
{
	return !!(neo->flags & (KILN_OPEN_READONLY | KILN_OPEN_ANY_OWNER));
}

/* Under no lock, the account's neither. */
void ki_neo_say(const struct ki_neo *neo, enum kiln_log_level level,
		const char *path, const char *what);

/* Before each call reads or writes: KILN_OK, or KILN_E_OWNER, as when it was
   opened. */
enum kiln_status ki_neo_check_directory(struct ki_neo *neo);

/* The limit that holds now: this handle's or the directory's, the lower. */
uint64_t ki_neo_limit(struct ki_neo *neo);
/* Whether the directory is of another user version by now: then kiln's entries
   in it are not this handle's, which changes nothing. */
int ki_neo_is_other_version(struct ki_neo *neo);

/* Take over what other processes did to kiln.records: 1 if anything, 0,
   -errno. */
int ki_neo_refresh(struct ki_neo *neo);
void ki_neo_note_generation(struct ki_neo *neo);

/* ---- Names (layout.c) --------------------------------------------------------- */

enum ki_neo_kind {
	KI_NEO_FOREIGN,
	KI_NEO_ENTRY,	  /* counted by the originals of this layout */
	KI_NEO_UNCOUNTED, /* .ocloc_cache in the flat one */
	KI_NEO_TEMPORARY,
	KI_NEO_RENEWING, /* kiln.records, being written anew */
};

/* What the base name of a path says. */
enum ki_neo_kind ki_neo_kind_of(enum kiln_neo_layout layout, const char *name);

/* DIRECTORY/NAME into `out`, -ENAMETOOLONG. */
int ki_neo_path(const struct ki_neo *neo, const char *name,
		char out[KI_PATH_MAX]);

/* What lies there; never KILN_NEO_DETECT. */
enum kiln_neo_layout ki_neo_detect(const struct ki_sys *sys,
				   const char *directory);
/* Whether a driver that makes a tree has come since, unless the layout was
   chosen.  Before anybody looks at all files. */
void ki_neo_detect_again(struct ki_neo *neo);

/* The name of a key's entry. */
void ki_neo_name_key(const struct ki_neo *neo, const struct kiln_key *key,
		     const void *metadata, size_t metadata_size,
		     char out[KILN_NEO_NAME_BYTES]);

/* Make the directories of a name, and the store's own if it is gone.  -ENOTDIR:
   something else has the place of one. */
int ki_neo_make_directories(const struct ki_neo *neo, const char *name);

/* Called with every name that is not foreign, relative to the directory.  Not
   0 ends the walk.  What it is, only lstat can tell. */
typedef int ki_neo_visit_fn(void *arg, const char *name, enum ki_neo_kind kind,
			    int is_leftover);
/* Of both layouts, whichever it is: who counts less than is there passes the
   limit.  0, -errno, or what a visit returned; -EACCES: all was visited but what lies in
   a directory that is not ours to read.  No directory: 0. */
int ki_neo_walk(const struct ki_neo *neo, ki_neo_visit_fn *visit, void *arg);

/* "x" or "a/b/x": nothing that leads out of the directory.  Records say what
   who wrote them liked. */
int ki_neo_is_inside(const char *name);
/* Whether an entry could have this name, where the walk would find it. */
int ki_neo_is_name(const struct ki_neo *neo, const char *name);

/* Whether the directories on the way to a name are there and none is a link,
   which leads to somebody else's files: 0, -ENOENT for all else. */
int ki_neo_check_fans(const struct ki_neo *neo, const char *name);
/* A regular file of that name, no link followed: 0, -ENOENT for all else. */
int ki_neo_look(const struct ki_neo *neo, const char *name,
		struct ki_file_info *out_info);
/* The same of what a walk has found; not before it is removed. */
int ki_neo_look_again(const struct ki_neo *neo, const char *name,
		      struct ki_file_info *out_info);

/* ---- Debug keys (trace.c) --------------------------------------------------------- */

/* PrintDebugMessages: "Open config file", -EACCES.  Nothing if `err` is 0. */
void ki_neo_failed(const struct ki_neo *neo, const char *what, int err);
/* The same of what goes into the log. */
void ki_neo_print(const struct ki_neo *neo, const char *path, const char *what);
void ki_neo_print_place(const struct ki_neo *neo);

/* BinaryCacheTrace: `name` is what the key's entry is or would be called. */
void ki_neo_trace(const struct ki_neo *neo, const struct kiln_key *key,
		  const char *name);

/* ---- The driver's counters (stats.c) ----------------------------------------------- */

struct ki_neo_lookups {
	uint64_t n_hits;
	uint64_t n_misses;
};

/* If NEO_CACHE_STATS asks for it. */
void ki_neo_count_lookup(const struct ki_neo *neo, const struct kiln_key *key,
			 int is_hit);
/* Those of everybody who counted.  -ENOENT: there are none. */
int ki_neo_read_lookups(const struct ki_neo *neo,
			struct ki_neo_lookups *out_lookups);
void ki_neo_forget_lookups(const struct ki_neo *neo);

/* ---- The account (config.c) ----------------------------------------------------- */

/* config.file, open and locked. */
struct ki_neo_account {
	int fd;
	struct ki_fork_close place;
	int is_sure;  /* else the directory has to be counted, */
	int must_be;  /* and before the end: others believe what is there */
	int is_known; /* there is a total, right or not */
	uint64_t total;
	uint64_t noted; /* what the file says */
	int64_t now_ns; /* about, by the file system's clock */
};

/*
 * Wait for the lock until the deadline and read the total; kiln.records is up
 * to date then.  TIMEOUT, READONLY, IO, OWNER, FORMAT, NO_MEMORY.  If KILN_OK,
 * ki_neo_account_end() must follow: it writes a total that has changed.
 */
enum kiln_status ki_neo_account_begin(struct ki_neo *neo, uint64_t wait_ns,
				      struct ki_neo_account *account)
	KI_TRY_ACQUIRE(0, neo->writer) KI_NO_ANALYSIS;
/* The total is in doubt, by what was done under the lock: it may lack so much. */
static inline void ki_neo_account_doubt(struct ki_neo_account *account,
					uint64_t bytes)
{
	account->total += bytes;
	account->is_sure = 0;
	account->must_be = 1;
}
/* Have config.file say at least this much from now on, whoever dies.  -errno. */
int ki_neo_account_raise(struct ki_neo *neo, struct ki_neo_account *account,
			 uint64_t total);
enum kiln_status ki_neo_account_end(struct ki_neo *neo,
				    struct ki_neo_account *account)
	KI_RELEASE(neo->writer) KI_NO_ANALYSIS;

/* What config.file says, without a lock.  0 if it says nothing. */
uint64_t ki_neo_account_peek(const struct ki_neo *neo);

/* Of unsigned totals. */
static inline uint64_t ki_neo_less(uint64_t total, uint64_t bytes)
{
	return total > bytes ? total - bytes : 0;
}

/* ---- Room (evict.c), under the account's lock ------------------------------------- */

struct ki_neo_report {
	uint64_t n_evicted;
	uint64_t n_expired;
	uint64_t n_temporaries;
	uint64_t n_dropped; /* records of files that are no more */
	int is_partial;	    /* something could not be looked at, or removed */
};

/*
 * Count all files, drop the records of those that are no more, remove orphan
 * temporaries.
 */
enum kiln_status ki_neo_count(struct ki_neo *neo,
			      struct ki_neo_account *account,
			      struct ki_neo_report *report);

/* Whether what is there is within a bound, kiln.records written anew. */
int ki_neo_is_within(struct ki_neo *neo, const struct ki_neo_account *account,
		     uint64_t bytes_max);
/* Have `need` bytes fit: FULL, IO, NO_MEMORY. */
enum kiln_status ki_neo_make_room(struct ki_neo *neo,
				  struct ki_neo_account *account, uint64_t need,
				  struct ki_neo_report *report);

/* Count, and remove what was not used since, then until `bytes_max` (0: the
   limit) holds. */
enum kiln_status ki_neo_clean(struct ki_neo *neo,
			      struct ki_neo_account *account,
			      uint64_t bytes_max, uint64_t age_max_s,
			      struct ki_neo_report *report);

/* Look at all files and put them in order; nothing is changed.  0, -errno. */
int ki_neo_plan_all(struct ki_neo *neo, struct ki_neo_plan *plan);
void ki_neo_plan_end(struct ki_neo_plan *plan);

/* ---- One entry (entry.c) ------------------------------------------------------------ */

/* What became of the file that a record names. */
enum ki_neo_state {
	KI_NEO_THERE,
	KI_NEO_GONE,
	KI_NEO_TAKEN,	/* somebody else wrote what has the name */
	KI_NEO_DAMAGED, /* it is kiln's, with other bytes: ki_neo_load() only */
};
enum ki_neo_state ki_neo_compare(const struct ki_record_found *found,
				 const struct ki_file_info *info);
/* 0, or why it cannot be looked at; *out_info only if the state is not GONE. */
int ki_neo_state(const struct ki_neo *neo, const struct ki_record_found *found,
		 enum ki_neo_state *out_state, struct ki_file_info *out_info);

/* Whether the path leads to the directory whose descriptor is kept; if not, it
   is not used any more. */
void ki_neo_doubt_place(struct ki_neo *neo);

/* A file that is opened before its record has come from memory.  fd -1: none. */
struct ki_neo_ahead {
	int fd;
	char name[KI_RECORDS_GLANCE_MAX];
};
void ki_neo_open_ahead(const struct ki_neo *neo, const struct kiln_key *key,
		       struct ki_neo_ahead *ahead);
void ki_neo_close_ahead(const struct ki_neo *neo, struct ki_neo_ahead *ahead);

/*
 * Read the file of a record, checked.  *out_state says how it is; the status is
 * KILN_OK if it is there and whole, KILN_MISS, KILN_E_FORMAT if it is damaged, or
 * why it cannot be read.  `note_use` sets its time of last use if that is old, and
 * leaves *out_info alone as long as it cannot be and nothing expires.  `ahead` may
 * be NULL.
 */
enum kiln_status ki_neo_load(struct ki_neo *neo,
			     const struct ki_record_found *found, int note_use,
			     struct ki_neo_ahead *ahead,
			     enum ki_neo_state *out_state,
			     struct kiln_blob **out_value,
			     struct ki_file_info *out_info);

/* The record whose file is there: of the newest, or the one before it in a
   replacement.  KILN_OK, KILN_MISS, COLLISION, IO, NO_MEMORY.  With KILN_MISS
   and *out_state not GONE, *out_found is the newest. */
enum kiln_status ki_neo_find_present(struct ki_neo *neo,
				     const struct kiln_key *key,
				     struct ki_record_found *out_found,
				     enum ki_neo_state *out_state);

/* A new file under a name that is the originals' for what is being written, by who
   has the writer's mutex: a descriptor, -errno. */
int ki_neo_open_temporary(struct ki_neo *neo, unsigned mode,
			  char out_path[KI_PATH_MAX]);

enum kiln_status ki_neo_put(struct kiln_tier *tier, const struct kiln_key *key,
			    const void *metadata, size_t metadata_size,
			    const void *value, size_t value_size,
			    unsigned flags);
enum kiln_status ki_neo_remove(struct kiln_tier *tier,
			       const struct kiln_key *key);
enum kiln_status ki_neo_wipe(struct kiln_tier *tier);
/* The same of kiln's own entries, under another version of the user. */
enum kiln_status ki_neo_adopt_user_version(struct ki_neo *neo);

/* The same under the account's lock, of a directory that has become nobody's:
   made anew since it was opened.  FORMAT: it is another version's. */
enum kiln_status ki_neo_claim(struct ki_neo *neo,
			      struct ki_neo_account *account);

/* Remove an entry whose file is damaged, forget one whose file somebody else
   wrote; if the lock is to be had. */
void ki_neo_drop_unusable(struct ki_neo *neo, const struct kiln_key *key);

/* ---- A driver's own entries (list.c) --------------------------------------------------- */

/* Files that no record is about are listed under keys of one field, which no
   value is ever handed out for.  Whether this is such a key, and of what. */
int ki_neo_is_foreign_key(const struct ki_neo *neo, const struct kiln_key *key,
			  char out_name[KI_RECORDS_NAME_MAX + 1]);
/* The other way round.  NO_MEMORY. */
enum kiln_status ki_neo_foreign_key(const char *name,
				    struct kiln_key **out_key);
/* Whether it is there and not kiln's. */
int ki_neo_is_foreign(const struct ki_neo *neo, const char *name,
		      struct ki_file_info *out_info);
/* Remove it, under the account's lock.  KILN_OK, KILN_MISS, IO. */
enum kiln_status ki_neo_remove_foreign(struct ki_neo *neo,
				       struct ki_neo_account *account,
				       const char *name);
void ki_neo_survey_end(struct ki_neo_survey *survey);

/* ---- What a file is (describe.c) ------------------------------------------------------ */

enum kiln_status ki_neo_describe(const struct ki_sys *sys, const char *path,
				 struct kiln_neo_description *out_description);

/* ---- All entries (list.c, upkeep.c) ---------------------------------------------------------- */

enum kiln_status ki_neo_list(struct kiln_tier *tier, struct kiln_cursor *cursor,
			     struct kiln_entry *out_entry);
enum kiln_status ki_neo_verify(struct kiln_tier *tier, unsigned flags,
			       kiln_progress_fn *progress, void *arg,
			       struct kiln_verify_report *out_report);
enum kiln_status ki_neo_gc(struct kiln_tier *tier,
			   const struct kiln_gc_options *options,
			   kiln_progress_fn *progress, void *arg,
			   struct kiln_gc_report *out_report);
enum kiln_status ki_neo_set_limit(struct kiln_tier *tier, uint64_t bytes_max);
enum kiln_status ki_neo_set_eviction(struct kiln_tier *tier,
				     enum kiln_eviction eviction);
enum kiln_status ki_neo_info(struct kiln_tier *tier,
			     struct kiln_store_info *out_info);

#endif /* KI_STORE_NEO_NEO_H */
