/* SPDX-License-Identifier: MIT */
#ifndef KI_STORE_LOG_LOG_H
#define KI_STORE_LOG_LOG_H

/*
 * The inside of the native store: one handle, what it maps, and the functions
 * that its files share.
 *
 *	log.c        open, close, the table of operations     start here
 *	find.c       key -> word -> record: a hit
 *	glance.c     the same, where it waits for nothing
 *	record.c     a word's record, by mapping or by pread; its checks
 *	put.c        reserve, write, publish
 *	remove.c     clear the words, and make that last
 *	index.c      the mapped index: words, marks, header
 *	segment.c    open segments, and when to let go of them
 *	census.c     what lies in the directory, as the bound counts it
 *	structure.c  under byte 0: numbers, new files, rolls, large files
 *	room.c       under byte 0: what goes for new bytes, in which order
 *	evict.c      under byte 0: the oldest segment goes
 *	weigh.c      under byte 0: what an entry is worth, by cost
 *	limit.c      under byte 0: another bound
 *	make.c       under byte 0: making, growing, wiping the index
 *	rebuild.c    what the records say, for an index made anew
 *	lock.c       byte-range locks; build locks; who is building
 *	session.c    who has it open; who is first, who is last
 *	quota.c      what keys and values may come to
 *	inspect.c    list, info
 *	verify.c     reading and checking everything
 *	quarantine.c what is left of damaged records
 *	orphan.c     large files that no word leads to
 *	sources.c    what was compiled, kept beside the entries
 *	clean.c      coming under all limits now
 *
 * Life of what is mapped:
 *
 *	log->index ---> index (words, header) ---> segments (open files)
 *	                                             ^
 *	                  a view (blob) holds one ---'
 *
 * An operation runs between ki_log_enter() and ki_log_leave().  What it finds
 * through log->index stays mapped until it leaves, without a reference: a
 * thing taken out of use is freed by whoever leaves after every stripe of the
 * guard was once seen empty.  A glance (glance.c) enters nothing: the caller's pin
 * stands for the guard.
 *
 * Statuses are kiln's; LOG_AGAIN besides, inside: the index was replaced,
 * begin the operation anew.
 */

#include <kiln/tier.h>

#include "base/blob.h"
#include "base/map.h"
#include "base/status.h"
#include "key/key.h"
#include "store/log/format.h"
#include "store/store.h"
#include "sys/sys.h"

#define LOG_AGAIN ((enum kiln_status)1000)

#define LOG_STRIPES	     16
#define LOG_SEGMENTS_OPEN    1024 /* a power of two, as the next */
#define LOG_DESCRIPTORS_OPEN 64
#define LOG_TRIES	     16 /* of what another may always disturb */
#define LOG_LOOKS	     64 /* of a put at its buckets */

/* How much of new segments is zeroed before they are used: others may wait for
   byte 0 meanwhile, and those of a full tail for no longer than 20 ms. */
#define LOG_ZEROED_TAIL	 ((uint64_t)4 << 20)
#define LOG_ZEROED_SPARE ((uint64_t)8 << 20)
#define LOG_ZEROED_FILES 4 /* remembered by who made them */
/* A sixth of when dirty pages are due: until then no page goes, however short
   the memory, that would have to be read from the medium. */
#define LOG_ZEROED_NS ((uint64_t)5000000000)

#define LOG_ROLL_TIMEOUT_MS   20
#define LOG_CHANGE_TIMEOUT_MS 2000	   /* making, wiping, changing limits */
#define LOG_VAIN_NS	      10000000000u /* see ki_log_patience_ms() */

/* Something taken out of use, waiting for the last operation to leave. */
struct log_retired {
	struct log_retired *next;
	void (*release)(struct log_retired *retired);
	uint32_t empty; /* stripes seen empty since */
	uint64_t tag;	/* of kiln_tier_retire(): glances see it no more */
};

struct log_segment {
	/* Fixed while it is open. */
	const struct ki_sys *sys;
	uint32_t number;
	uint64_t size;
	uint64_t device;
	uint64_t inode;
	const uint8_t *data; /* NULL: read through fd */
	uint64_t zeroed;     /* so much was made by us, and is in memory */
	uint64_t zeroed_ns;  /* when: LOG_ZEROED_NS later it may not be */
	int fd;		     /* -1: read through data */
	/* Atomic. */
	_Atomic int write_fd;		 /* -1: not yet */
	_Atomic uint32_t units_reserved; /* as far as this handle saw */
	/* Fixed: the last who drops it closes the segment.  The table has a
	   reference, and each value that was handed out. */
	struct kiln_blob *holder;
	/* Under log->mutex. */
	struct log_retired retired;
	/* A bit for each unit whose record was checked, in parts that come with
	   their first: most of a segment is never looked at. */
	_Atomic(_Atomic uint8_t *) checked[];
};

#define LOG_CHECKED_UNITS 4096 /* of a part */

static inline int ki_log_was_checked(const struct log_segment *segment,
				     uint32_t units)
{
	_Atomic uint8_t *part = atomic_load_explicit(
		&segment->checked[units / LOG_CHECKED_UNITS],
		memory_order_acquire);

	return part && (part[units % LOG_CHECKED_UNITS / 8] >> units % 8 & 1);
}

/* The open segments of one store's life; shared by an index and the larger
   one that follows it. */
struct log_segments {
	_Atomic(struct log_segment *) slots[LOG_SEGMENTS_OPEN];
};

/* A page of a mapping costs ten times what reading some bytes of it does, so
   the first look-up of a handle is by pread; whatever comes then maps. */
struct log_index {
	/* Fixed while it is open. */
	const struct ki_sys *sys;
	struct log_header *header; /* if it is not mapped: `head` */
	int keeps_page;		   /* the header's page is in log->pages */
	size_t size;
	_Atomic uint64_t *words; /* NULL: not mapped, read through fd */
	_Atomic uint8_t *marks;
	uint64_t n_buckets;
	uint64_t device;
	uint64_t inode;
	uint32_t epoch; /* changes when the store is another */
	int writable;
	int by_parts; /* a guest's: brought in before each look */
	int fd;	      /* -1: mapped */
	struct log_segments *segments; /* NULL: not mapped */
	/* Atomic. */
	_Atomic int has_looked; /* the one who set it may change `head` */
	/* Under log->mutex. */
	struct log_retired retired;
	/* What the header said when it was last read. */
	uint64_t head[LOG_HEAD_BYTES / sizeof(uint64_t)];
};

static inline int ki_log_is_mapped(const struct log_index *index)
{
	return index->words != NULL;
}

/* A header page stays mapped until close: tier->generation points into it. */
struct log_page {
	struct log_page *next;
	void *data;
};

struct log_stripe {
	_Alignas(64) _Atomic uint64_t n_inside;
};

/*
 * Blobs that came from no tier (put, not got) carry no place, so nothing tells
 * those of before a wipe from those of after.  From the wipe on they count as
 * dead, until they were asked about and the store is used again.
 */
enum log_unplaced { LOG_UNPLACED_LIVE, LOG_UNPLACED_DEAD, LOG_UNPLACED_SWEPT };

static inline void ki_log_trust_unplaced(_Atomic int *unplaced)
{
	if (atomic_load_explicit(unplaced, memory_order_relaxed) ==
	    LOG_UNPLACED_SWEPT)
		atomic_store(unplaced, LOG_UNPLACED_LIVE);
}

/* Atomic; wrong is only slow. */
struct log_zeroed {
	_Atomic uint64_t device;
	_Atomic uint64_t inode;
	_Atomic uint64_t made_ns;
	_Atomic uint64_t bytes;
};

struct ki_log {
	struct kiln_tier tier; /* first */

	/* Fixed after open. */
	const struct ki_sys *sys;
	char *directory;
	char *name;
	char *index_path;
	char *lock_path;
	char *stats_path;
	char *spare_path;
	const char *application; /* who counts */
	uint64_t bytes_max;	 /* as the opener wanted them */
	uint64_t age_max_s;
	uint64_t quota_bytes;
	uint64_t user_version;
	uint32_t flags;
	kiln_log_fn *log;
	void *log_arg;
	uint64_t fork_generation;
	uint64_t first_generation; /* from the first look-up until it maps */
	uint64_t gone_generation;
	int readonly;
	int is_open;
	int guest; /* no descriptor outlives a call */
	int is_session;
	int maps_values;
	int glances; /* see glance.c */
	int verifies_always;

	struct ki_lock_file locks; /* the file lock_path leads to */
	struct ki_directory_watch watch;

	/* Atomic. */
	_Atomic(struct log_index *) index; /* NULL: the store is gone */
	_Atomic uint64_t checked_ns;	   /* last look at the index's path */
	_Atomic uint64_t min_live_seen;
	/* Asked for when they are needed first. */
	_Atomic int knows_boot;
	_Atomic uint64_t boot_id[2];
	_Atomic int unplaced; /* enum log_unplaced */
	_Atomic uint32_t
		counted_epoch; /* of the store whose quota was counted */
	_Atomic unsigned n_building;
	_Atomic unsigned grow_pause;   /* puts until growing is tried again */
	_Atomic unsigned medium_pause; /* files, until room is made again */
	_Atomic int has_retired;       /* log->retired is not empty */
	_Atomic int has_told_damage;   /* of an index that cannot be written */
	_Atomic int has_left; /* a wipe, files: to be told without the lock */
	_Atomic(const char *) refused_why; /* the directory: the same */
	_Atomic int has_lost_session; /* another store is there, perhaps with
					  another lock file */
	_Atomic uint64_t session_ns; /* when its lock file was last looked at */
	_Atomic int removes;	     /* when it closes, if it is the last */
	struct log_zeroed zeroed[LOG_ZEROED_FILES];
	struct log_stripe stripes[LOG_STRIPES];

	/* Under byte 0. */
	uint64_t rolled_ns;  /* by this handle */
	uint64_t orphans_ns; /* last look for some */
	unsigned n_zeroed;

	/* Under mutex. */
	struct ki_mutex mutex;
	struct ki_cond changed;
	int structure_is_busy;
	uint32_t epoch;
	struct log_retired *retired;
	struct log_page *pages;
	unsigned n_temporaries;
	struct ki_lock session; /* fd -1: none */
};

/* A record that was found and whose header is sound. */
struct log_view {
	struct log_record record;
	const uint8_t *bytes;	     /* of the whole record */
	struct log_segment *segment; /* NULL in guests */
	struct kiln_blob *container; /* what owns `bytes`; NULL: mapped */
	uint32_t number;
	uint32_t units;
};

/* ---- log.c ----------------------------------------------------------- */

_Atomic uint64_t *ki_log_enter(struct ki_log *log);
void ki_log_leave(struct ki_log *log, _Atomic uint64_t *stripe);

enum log_purpose {
	LOG_LOOK,   /* as LOG_READ, but it may not be mapped yet */
	LOG_READ,   /* a look at the path at most once a second */
	LOG_CHANGE, /* a look now */
	LOG_WRITE,  /* and a new store if there is none */
};

/* Whether a dead process left it half-way: to be put right under byte 0. */
int ki_log_needs_care(const struct log_index *index);

/* Whether it is time to look where the index's path leads. */
int ki_log_is_due(const struct ki_log *log);

/* The index to work with.  KILN_OK, KILN_MISS (there is none), READONLY, the
   reason why none could be made. */
enum kiln_status ki_log_current(struct ki_log *log, enum log_purpose purpose,
				struct log_index **out_index);

/*
 * A change of the store: called between enter and leave with an index that is
 * the store's and can be written to, and anew whenever it answers LOG_AGAIN.
 * As ki_log_current(), and TIMEOUT if that was too often.  _locked: it is
 * called under byte 0, and nobody replaces the index meanwhile.
 */
typedef enum kiln_status log_change_fn(struct ki_log *log,
				       struct log_index *index, void *arg);
enum kiln_status ki_log_change(struct ki_log *log, enum log_purpose purpose,
			       log_change_fn *change, void *arg);
enum kiln_status ki_log_change_locked(struct ki_log *log,
				      enum log_purpose purpose,
				      log_change_fn *change, void *arg);

/* That a wipe has left files, or why the directory is refused; nobody tells
   anything under a lock, the memory's neither. */
void ki_log_tell_left(struct ki_log *log);
void ki_log_say(struct ki_log *log, enum kiln_log_level level,
		const char *format, ...) __attribute__((format(printf, 3, 4)));
enum kiln_status ki_log_status(int err);
unsigned ki_log_mode(const struct ki_log *log);

/* Of every file: no links, or nothing that is not this user's own. */
static inline unsigned ki_log_open_flags(const struct ki_log *log)
{
	return ki_open_flags(log->flags);
}
/* Of the boot that runs now; zeros if nobody says, or cannot at the moment. */
void ki_log_boot_id(struct ki_log *log, uint64_t out_id[2]);
int ki_log_segment_path(const struct ki_log *log, uint32_t number,
			char out[KI_PATH_MAX]);

/* ---- lock.c ---------------------------------------------------------- */

/* Byte 0, and the same among the threads of this handle. */
enum kiln_status ki_log_structure_begin(struct ki_log *log,
					struct ki_lock *lock,
					uint32_t timeout_ms);
void ki_log_structure_end(struct ki_log *log, struct ki_lock *lock);

/*
 * How long it is worth to wait for byte 0 where there is no store without it:
 * LOG_CHANGE_TIMEOUT_MS, but no longer than a put waits if this process has done
 * so in vain just now, through whatever handle.
 */
uint32_t ki_log_patience_ms(const struct ki_log *log);
void ki_log_note_wait(const struct ki_log *log, int was_in_vain);

enum kiln_status ki_log_build_lock(struct kiln_tier *tier,
				   const struct kiln_key *key,
				   uint32_t timeout_ms,
				   struct kiln_tier_lock **out_lock);
void ki_log_build_unlock(struct kiln_tier *tier, struct kiln_tier_lock *lock);
void ki_log_note_build(struct kiln_tier *tier, int begins);
unsigned ki_log_builds_now(struct kiln_tier *tier);
void ki_log_forget_builder(struct ki_log *log);

/* ---- session.c ------------------------------------------------------- */

/* Be a session, of a store that is put right or made for that.  KILN_EXISTS:
   others are, with another user version. */
enum kiln_status ki_log_session_begin(struct ki_log *log);
/* The files go if this was the last and somebody asked for that. */
void ki_log_session_end(struct ki_log *log);
/* Once in a while, and after another store came to the path. */
void ki_log_session_renew(struct ki_log *log);
/* Under byte 0: whether there are any; 0 where that can't be known. */
int ki_log_has_sessions(struct ki_log *log);
enum kiln_status ki_log_remove_at_close(struct kiln_tier *tier);

/* ---- quota.c ----------------------------------------------------------- */

/* Of one put, from before its word is out until it is decided. */
struct log_claim {
	uint64_t quota;
	struct log_claim_slot *slot; /* NULL: there is no quota */
	int is_taken;
};

/* Whether so much more may be put: KILN_OK, or KILN_E_FULL after counting anew if
   that might help; LOG_AGAIN, TIMEOUT, why it cannot be counted. */
enum kiln_status ki_log_quota_check(struct ki_log *log, struct log_index *index,
				    uint64_t bytes);
/* Nothing is waited for between begin and end.  KILN_E_TIMEOUT: too many puts at
   once. */
enum kiln_status ki_log_quota_begin(struct ki_log *log, struct log_index *index,
				    struct log_claim *out_claim);
void ki_log_quota_end(struct log_claim *claim);
/* Add the bytes of the one word that is to be out: KILN_OK also if that was done;
   KILN_E_FULL: check anew.  Or take them back: it is not out. */
enum kiln_status ki_log_quota_take(struct log_index *index, uint64_t bytes,
				   struct log_claim *claim);
void ki_log_quota_return(struct log_index *index, struct log_claim *claim);
/* Of a header that nobody puts by: no claims; not known: what is used. */
void ki_log_quota_forget(struct log_header *header, int is_known);

/* ---- session.c, too ------------------------------------------------------ */

/* Whether an index is of another user version than the opener's. */
int ki_log_is_other_version(const struct ki_log *log,
			    const struct log_index *index);

/* ---- index.c --------------------------------------------------------- */

uint64_t ki_log_index_bytes(uint64_t n_buckets);
uint64_t ki_log_buckets_for(uint64_t bytes_max, uint64_t quota_bytes);

/* What the header says of the index's size, or NULL if neither copy is
   sound. */
const struct log_fixed *ki_log_fixed(const struct log_header *header);
void ki_log_fixed_seal(struct log_header *header);

/* Open NAME.idx; not `map`: it need not be mapped.  KILN_MISS if there is
   none, KILN_E_FORMAT with *out_damaged set if it should be rebuilt. */
enum kiln_status ki_log_index_open(struct ki_log *log, int map,
				   struct log_index **out_index,
				   int *out_damaged);
void ki_log_index_close(struct log_index *index);
/* What stays mapped of it for the header's sake. */
size_t ki_log_page_bytes(const struct ki_sys *sys);
/* Of one that is not mapped: read its head anew; 0 if that is another's. */
int ki_log_index_refresh(struct log_index *index);
/* Whether what stands at the index's path waits for a writer to make it anew. */
int ki_log_is_damaged(struct ki_log *log);

/*
 * In a guest, where a bad medium must not be a signal: bring in the buckets
 * that begin at these two slots, or all (NULL), before they are looked at.
 * KILN_E_IO.
 */
enum kiln_status ki_log_index_bring(const struct log_index *index,
				    const uint64_t slots[2]);

/* The same from memory that is not (yet) mapped by others. */
void ki_log_index_place(struct log_index *index, void *data, size_t size,
			uint64_t n_buckets);

static inline int ki_log_is_retired(const struct log_index *index)
{
	uint64_t retired = index->header->retired;

	return retired == LOG_RETIRED_GROWN || retired == LOG_RETIRED_WIPED;
}

static inline uint32_t ki_log_min_live(const struct log_index *index)
{
	return (uint32_t)index->header->min_live;
}

struct log_limit_values {
	uint64_t bytes_max;
	uint64_t age_max_s;
	uint64_t segment_bytes;
	uint64_t policy;
	uint64_t quota_bytes;
};
/* 0: they are damaged. */
int ki_log_limits_read(const struct log_limits *limits,
		       struct log_limit_values *out_limits);
/* Of the header; those the opener wanted if they are damaged. */
void ki_log_limits_get(const struct ki_log *log, const struct log_index *index,
		       struct log_limit_values *out_limits);
void ki_log_limits_set(struct log_header *header,
		       const struct log_limit_values *limits);
uint64_t ki_log_segment_bytes_for(uint64_t bytes_max, uint64_t policy);
/* Whether evictions go by what it costs to build what goes; not with an age
   limit. */
int ki_log_goes_by_cost(const struct log_index *index);

static inline uint64_t ki_log_scaled(uint64_t hash, uint64_t n)
{
	return (uint64_t)((unsigned __int128)hash * n >> 64);
}

/* The slots where a digest may stand: first word of each of two buckets. */
static inline void ki_log_slots_of(const struct log_index *index,
				   uint64_t digest_low, uint64_t digest_high,
				   uint64_t out_slots[2])
{
	uint64_t a = ki_log_scaled(digest_low, index->n_buckets);
	uint64_t b = ki_log_scaled(digest_high, index->n_buckets);

	if (a == b && ++b == index->n_buckets)
		b = 0;
	out_slots[0] = a * LOG_WORDS;
	out_slots[1] = b * LOG_WORDS;
}

static inline uint16_t ki_log_tag_of(uint64_t digest_low)
{
	return (uint16_t)(digest_low & LOG_TAG_MASK);
}

/* One word, the words of a bucket: by mapping or by pread.  A word that cannot
   be read is 0. */
uint64_t ki_log_word_read(const struct log_index *index, uint64_t slot);
enum kiln_status ki_log_bucket_read(const struct log_index *index,
				    uint64_t first_slot,
				    uint64_t out_words[LOG_WORDS]);

/* Whether a word at this slot is one of this digest. */
int ki_log_belongs(const struct log_index *index, uint64_t slot, uint64_t word,
		   const uint8_t digest[16]);

/* Compare and swap, keeping the account of entries and bytes. */
int ki_log_word_swap(struct log_index *index, uint64_t slot, uint64_t from,
		     uint64_t to);

/* Put a word where its digest belongs, in an index that nobody else has; 0 if
   both buckets are full. */
int ki_log_word_insert(struct log_index *index, uint64_t digest_low,
		       uint64_t digest_high, uint64_t word, uint8_t mark,
		       uint64_t *out_slot);
/* Above a load of 0.65, at which an index should have grown. */
int ki_log_is_loaded(uint64_t n_entries, uint64_t n_buckets);

/* Note a use. */
void ki_log_mark(struct ki_log *log, struct log_index *index, uint64_t slot,
		 uint64_t age_max_s);
/* Whether a slot's entry, written or last carried over at used_s, has been
   unused for longer than that.  *out_used_s (may be NULL): since when. */
int ki_log_is_expired(struct ki_log *log, const struct log_index *index,
		      uint64_t slot, uint32_t used_s, uint64_t age_max_s,
		      uint64_t *out_used_s);
/* Clear the words of entries unused for longer than `drop_s`, which is not more
   than the age limit, if there is one; how many there were. */
uint64_t ki_log_sweep(struct ki_log *log, struct log_index *index,
		      uint64_t age_max_s, uint64_t drop_s);
/* The same for the age limit, four times in each: of so many slots at most, so
   that who looks something up walks no index.  But once nobody was here for
   twice the limit, of all, which reads no record. */
#define LOG_SWEEP_BY_HIT  256
#define LOG_SWEEP_BY_ROLL 16384
void ki_log_sweep_if_due(struct ki_log *log, struct log_index *index,
			 uint64_t age_max_s, uint64_t n_max);

/* ---- segment.c ------------------------------------------------------- */

struct log_segments *ki_log_segments_new(void);
void ki_log_segments_free(struct log_segments *segments);

/* Its place among the open ones. */
static inline unsigned ki_log_segment_place(const struct ki_log *log,
					    uint32_t number)
{
	return number &
	       ((log->maps_values ? LOG_SEGMENTS_OPEN : LOG_DESCRIPTORS_OPEN) -
		1);
}

/* KILN_MISS if there is no such file. */
enum kiln_status ki_log_segment_get(struct ki_log *log, struct log_index *index,
				    uint32_t number,
				    struct log_segment **out_segment);
/* From now on ki_log_was_checked(), unless there is no memory for that. */
void ki_log_note_checked(struct log_segment *segment, uint32_t units);
/* Its file was unlinked: do not pin it for look-ups to come. */
void ki_log_segment_forget(struct ki_log *log, struct log_index *index,
			   uint32_t number);
/* Unlink the file of a large record, and forget it. */
void ki_log_segment_unlink(struct ki_log *log, struct log_index *index,
			   uint32_t number);
/* Whether a kept descriptor still is this file's, or this segment's: a number
   that the program closed may be another file's by now. */
int ki_log_is_file(const struct ki_sys *sys, int fd, uint64_t device,
		   uint64_t inode);
int ki_log_is_ours(const struct log_segment *segment, int fd);
/* Close those below min_live, if it has changed. */
void ki_log_segments_sweep(struct ki_log *log, struct log_index *index);

/* A descriptor for reading and writing of its own; -ENOENT if there is no such
   file. */
int ki_log_segment_open_to_write(struct ki_log *log, uint32_t number,
				 struct ki_file_info *out_info);

/* The file to write to. */
struct log_target {
	int fd;
	uint64_t size;
	struct log_segment *segment; /* NULL in guests */
};
enum kiln_status ki_log_target_open(struct ki_log *log, struct log_index *index,
				    uint32_t number,
				    struct log_target *out_target);
void ki_log_target_close(struct ki_log *log, const struct log_target *target);

void ki_log_retire_locked(struct ki_log *log, struct log_retired *retired,
			  void (*release)(struct log_retired *retired))
	KI_REQUIRES(&log->mutex);
/* Free what nobody can see any more. */
void ki_log_reclaim(struct ki_log *log);

/* ---- record.c -------------------------------------------------------- */

/* Fill a record's header from key and sizes; sums and segment come later. */
void ki_log_record_init(struct log_record *record, const struct kiln_key *key,
			uint64_t metadata_size, uint64_t value_size,
			uint32_t flags, uint64_t now_s);
/* Set the segment, then the header's sum. */
void ki_log_record_seal(struct log_record *record, uint32_t segment);
/* No word leads to this record or ever will: nor shall an index made anew. */
void ki_log_record_void(struct ki_log *log, int fd, struct log_record *record,
			uint32_t number, uint32_t units);
/* Whether these are the first bytes of a sound record of this segment. */
int ki_log_record_is_sound(const struct log_record *record, uint32_t segment,
			   uint32_t units);
/* Whether what follows a sound header is what was written; `bytes` is the whole
   record. */
int ki_log_body_is_sound(const struct log_record *record, const uint8_t *bytes);

/* Only the header of the record that a word leads to.  As view_open. */
enum kiln_status ki_log_header_read(struct ki_log *log, struct log_index *index,
				    uint64_t word,
				    struct log_record *out_record);

/* KILN_MISS: gone, or not for this version; KILN_E_FORMAT: damaged; IO,
   NO_MEMORY; LOG_AGAIN: too large for a look without mapping. */
enum kiln_status ki_log_view_open(struct ki_log *log, struct log_index *index,
				  uint64_t word, struct log_view *out_view);
/* The same by a descriptor of its own, into memory. */
enum kiln_status ki_log_view_open_alone(struct ki_log *log,
					struct log_index *index, uint64_t word,
					struct log_view *out_view);
void ki_log_view_close(struct log_view *view);
int ki_log_view_is_of(const struct log_view *view, const struct kiln_key *key);
/* Whether the body is what was written; looks only once if that is enough. */
int ki_log_view_check(struct ki_log *log, struct log_view *view);
/* Where a blob of this view lies, for the memory tier to ask about. */
uint64_t ki_log_place_of(const struct log_index *index, uint32_t number,
			 int is_copy);
enum kiln_status ki_log_view_value(struct ki_log *log,
				   const struct log_index *index,
				   struct log_view *view,
				   struct kiln_blob **out_value);

static inline const uint8_t *ki_log_view_key(const struct log_view *view)
{
	return view->bytes + sizeof(struct log_record);
}

static inline const uint8_t *ki_log_view_metadata(const struct log_view *view)
{
	return ki_log_view_key(view) + view->record.key_size;
}

static inline const uint8_t *ki_log_view_data(const struct log_view *view)
{
	return view->bytes + log_value_offset(&view->record);
}

/* ---- find.c ---------------------------------------------------------- */

struct log_found {
	uint64_t slot;
	uint64_t word;
	struct log_view view;
};

/*
 * The entry of a key, its body not yet checked.  KILN_OK (close the view);
 * KILN_MISS; KILN_E_FORMAT (a damaged one was in the way, and is gone);
 * KILN_E_COLLISION; NO_MEMORY, IO.
 */
enum kiln_status ki_log_find(struct ki_log *log, struct log_index *index,
			     const struct kiln_key *key,
			     struct log_found *out_found);
/* The same in one slot, and tentative words count. */
enum kiln_status ki_log_find_in(struct ki_log *log, struct log_index *index,
				const struct kiln_key *key, uint64_t slot,
				struct log_found *out_found);
enum kiln_status ki_log_get(struct kiln_tier *tier, const struct kiln_key *key,
			    struct kiln_blob **out_value,
			    struct kiln_blob **out_metadata);
void ki_log_prefetch(struct kiln_tier *tier, const struct kiln_key *const *keys,
		     size_t n_keys);

/* ---- glance.c -------------------------------------------------------- */

/* See <kiln/tier.h>. */
enum kiln_status ki_log_glance(struct kiln_tier *tier,
			       const struct kiln_key *key,
			       struct kiln_glance *out_found);

/* ---- put.c ----------------------------------------------------------- */

enum kiln_status ki_log_put(struct kiln_tier *tier, const struct kiln_key *key,
			    const void *metadata, size_t metadata_size,
			    const void *value, size_t value_size,
			    unsigned flags);
/* A record that says that nothing of the key counts up to its order: of its
   place, with a roll if the tail is full, or as given (KILN_MISS: no room). */
enum kiln_status ki_log_write_tombstone(struct ki_log *log,
					struct log_index *index,
					const struct kiln_key *key,
					uint64_t order);

/* `bytes` of the tail's segment, which are empty; close the target.  KILN_MISS:
   no room is to be had without a roll. */
enum kiln_status ki_log_take_room(struct ki_log *log, struct log_index *index,
				  uint64_t bytes, struct log_target *out_target,
				  uint32_t *out_number, uint32_t *out_units);
/* Whether the tail is one of before the system was started.  Not for those who
   do not know (without /proc): they would roll in turn with those who do. */
int ki_log_is_other_boot(struct ki_log *log, const struct log_index *index);

/* ---- remove.c -------------------------------------------------------- */

enum kiln_status ki_log_remove(struct kiln_tier *tier,
			       const struct kiln_key *key);

/* ---- census.c -------------------------------------------------------- */

#define LOG_SLACK_BYTES 8192 /* blocks that a file system adds of its own */

struct log_file {
	uint32_t number;
	uint64_t size;
	uint64_t bytes;	  /* as the bound counts it */
	uint64_t inode;	  /* 0: this is its only name */
	int64_t mtime_ns; /* 0: made since the counting began */
	int stays;	  /* it could not be compacted */
};

/* What lies in the directory, kept up while it is changed. */
struct log_census {
	struct log_file *files; /* segments, oldest first */
	size_t n_files;
	size_t n_files_max;
	uint64_t bytes; /* of all files of NAME */
	int has_spare;
	uint64_t spare_size;
	uint64_t spare_bytes;
	struct log_file *sources; /* files of kept ones, oldest first */
	size_t n_sources;
	size_t n_sources_max;
	uint64_t quarantine_bytes;
	uint64_t wanted_bytes;	  /* a new tail holds, at least */
	uint64_t n_cleaned;	  /* files left unfinished, now gone */
	uint64_t copy_bytes_left; /* of this operation */
	uint64_t move_bytes_left; /* the same, of large files */
	uint64_t n_evicted;
	int weighs; /* by cost: what is worth more than the next stays */
	unsigned goes_up_to; /* LOG_WORTHS: nothing stays */
	size_t n_to_pass;    /* segments, until it is that */
	int has_quotas;	     /* of namespaces */
};

/* Count.  `clean`, under byte 0 only: remove what was left unfinished. */
enum kiln_status ki_log_census_take(struct ki_log *log, int clean,
				    struct log_census *out_census);
void ki_log_census_fini(struct log_census *census);
int ki_log_census_add(struct log_census *census, uint32_t number, uint64_t size,
		      uint64_t bytes, uint64_t inode);

/* A file of kept sources. */
int ki_log_census_add_source(struct log_census *census, uint32_t number,
			     const struct ki_file_info *info);

/* One that was unlinked. */
void ki_log_census_remove(struct log_census *census, size_t i);

/* Whether a segment is counted that is this file. */
int ki_log_census_has_inode(const struct log_census *census, uint64_t inode);
/* Whether what follows "NAME." is a file of kept sources. */
int ki_log_is_source(const char *rest, uint32_t *out_number);
/* What the bound counts of a file. */
uint64_t ki_log_counted(const struct ki_file_info *info);
/* What there must be room for besides index and segments: counters, lock. */
uint64_t ki_log_other_bytes(void);

/* ---- structure.c ----------------------------------------------------- */

/* Under byte 0: a passing name; a file of real blocks under one, open. */
int ki_log_temporary_path(struct ki_log *log, char out_path[KI_PATH_MAX]);
int ki_log_temporary(struct ki_log *log, uint64_t size,
		     char out_path[KI_PATH_MAX], int *out_fd);

/* A new tail, if it still is in the segment of `seen_tail` and has not
   `bytes` of room (or is unsound, or `force`). */
enum kiln_status ki_log_roll(struct ki_log *log, struct log_index *index,
			     uint64_t seen_tail, uint64_t bytes, int force);

/* An empty segment of its own for a large record, open for writing. */
enum kiln_status ki_log_large_make(struct ki_log *log, struct log_index *index,
				   uint64_t bytes, uint32_t *out_number,
				   uint64_t *out_order, int *out_fd);

/* Under byte 0, each: begin a new tail, in whatever way; make the spare the
   tail (an error: there is none of the right size); make one; give up the
   spare. */
enum kiln_status ki_log_new_tail(struct ki_log *log, struct log_index *index,
				 struct log_census *census);
int ki_log_use_spare(struct ki_log *log, struct log_index *index,
		     struct log_census *census);
enum kiln_status ki_log_make_tail(struct ki_log *log, struct log_index *index,
				  struct log_census *census);
int ki_log_drop_spare(struct ki_log *log, struct log_census *census);
int ki_log_tail_is_nearly_full(const struct log_index *index,
			       const struct log_census *census);
uint64_t ki_log_next_segment_bytes(const struct log_limit_values *limits,
				   const struct log_census *census);

/* Also where files of a former store came back that are far ahead. */
void ki_log_repair_numbers(struct log_index *index,
			   const struct log_census *census);

/* Under byte 0: a number never used, as far as can be known; the same, and take
   it: *out_path is its file's. */
uint32_t ki_log_next_number(const struct log_header *header,
			    const struct log_census *census);
int ki_log_take_number(struct ki_log *log, struct log_index *index,
		       const struct log_census *census, uint32_t *out_number,
		       char out_path[KI_PATH_MAX]);

/* Under byte 0: whether the index still is the store's. */
int ki_log_is_current_locked(struct ki_log *log, const struct log_index *index);

/* ---- room.c ---------------------------------------------------------- */

/* Under byte 0: let go until so many bytes more fit, in a file beside the tail
   or in the tail that follows.  FULL, TOO_LARGE. */
enum kiln_status ki_log_make_room(struct ki_log *log, struct log_index *index,
				  struct log_census *census, uint64_t bytes);
enum kiln_status ki_log_make_room_for_tail(struct ki_log *log,
					   struct log_index *index,
					   struct log_census *census,
					   uint64_t bytes);

/* Whether so many bytes more would pass a bound, or a number its span. */
int ki_log_is_over(const struct log_index *index,
		   const struct log_census *census, uint64_t bytes,
		   uint64_t bytes_max);

/* ---- evict.c --------------------------------------------------------- */

/* Under byte 0, each: let the oldest segment go (FULL: there is none); the same
   unless it is the tail (FULL); let those go in which age has left nothing. */
enum kiln_status ki_log_evict_oldest(struct ki_log *log,
				     struct log_index *index,
				     struct log_census *census);
enum kiln_status ki_log_evict_before_tail(struct ki_log *log,
					  struct log_index *index,
					  struct log_census *census);
void ki_log_drop_empty(struct ki_log *log, struct log_index *index,
		       struct log_census *census);

/* Half a segment may be copied for what is done with this census; else
   nothing. */
void ki_log_allow_copies(const struct ki_log *log,
			 const struct log_index *index,
			 struct log_census *census);
/* Bring one entry of a segment, open as `fd`, to the tail.  0: it was not
   possible; copy_bytes_left is 0 then if there is no room. */
int ki_log_copy_entry(struct ki_log *log, struct log_index *index,
		      struct log_census *census, int fd, uint32_t number,
		      uint64_t slot, uint64_t word);
void ki_log_count_evicted(struct ki_log *log, uint64_t n);

/* Of descriptors or memory, of this process or of all at the moment: such an
   error says nothing about the file. */
int ki_log_is_shortage(int err);

/* ---- compact.c --------------------------------------------------------- */

/* Where namespaces have quotas, under byte 0: have segments go of which little is
   alive, until `bytes` more fit, or none is left. */
void ki_log_compact(struct ki_log *log, struct log_index *index,
		    struct log_census *census, uint64_t bytes,
		    uint64_t bytes_max);

/* ---- weigh.c --------------------------------------------------------- */

#define LOG_WORTHS 40u

/* Whether what stands in a slot was used since it was written or carried over;
   by cost: since all were aged last. */
static inline int ki_log_was_used(const struct log_index *index, uint64_t slot)
{
	uint8_t mark = index->marks[slot];

	return ki_log_goes_by_cost(index) ? mark & LOG_MARK_USED : mark != 0;
}

/* Where it goes by cost, under byte 0: find the level below which enough lies
   for `bytes` more under the bound (0: none), for evictions with this census. */
void ki_log_weigh(struct ki_log *log, struct log_index *index,
		  struct log_census *census, uint64_t bytes,
		  uint64_t bytes_max);
/* After that: let large records below the level go until `bytes` more fit. */
void ki_log_evict_cheap(struct ki_log *log, struct log_index *index,
			struct log_census *census, uint64_t bytes,
			uint64_t bytes_max);
/* Below LOG_WORTHS, the more the better. */
unsigned ki_log_worth(const struct log_index *index, uint64_t slot);
/* The level for one segment: no lower, and what is above it may be copied. */
unsigned ki_log_level_of_segment(const struct log_index *index,
				 const struct log_census *census,
				 uint32_t number);

/* ---- limit.c --------------------------------------------------------- */

enum kiln_status ki_log_set_limit(struct kiln_tier *tier, uint64_t bytes_max);
enum kiln_status ki_log_set_eviction(struct kiln_tier *tier,
				     enum kiln_eviction eviction);

/* ---- make.c ---------------------------------------------------------- */

/* Make, repair or finish what stands at the index's path. */
enum kiln_status ki_log_make(struct ki_log *log, uint32_t timeout_ms);
/* The same for whoever has byte 0. */
enum kiln_status ki_log_make_locked(struct ki_log *log);
/* KILN_OK: nothing is found any more.  *out_left: but files are still there,
   and why; NULL: that does not matter. */
enum kiln_status ki_log_wipe_locked(struct ki_log *log, struct log_index *index,
				    uint64_t user_version, int *out_left);
/* Under byte 0: no store is here any more. */
void ki_log_unlink_locked(struct ki_log *log, struct log_index *index);
enum kiln_status ki_log_grow(struct ki_log *log, struct log_index *index);
enum kiln_status ki_log_wipe(struct kiln_tier *tier);

/* ---- rebuild.c ------------------------------------------------------- */

/* What is known of a digest by the last of its records. */
struct log_known {
	uint64_t digest_low;
	uint64_t digest_high;
	uint64_t order;
	uint64_t word; /* 0: removed */
	uintptr_t
		next; /* 1 + the place of one whose name is the same; 0: none */
};

struct log_records {
	struct log_known *known; /* entries, the newest first */
	size_t n;
	size_t n_max;
	struct ki_map by_name; /* while they are read */
	int was_wiped;
	uint64_t wiped; /* what is earlier does not count */
};

/* Under byte 0: read what there is; to be let go of in any case. */
enum kiln_status ki_log_records_read(struct ki_log *log,
				     const struct log_census *census,
				     struct log_records *out_records);
/* Give each its word.  Where there is no place, the older one has none. */
void ki_log_records_place(const struct log_records *records,
			  struct log_index *index);
void ki_log_records_fini(struct log_records *records);

/* Each record of a segment that is sound, entry or not; IO: not all could be
   read. */
typedef enum kiln_status log_record_fn(void *arg,
				       const struct log_record *record,
				       uint32_t number, uint32_t units);
enum kiln_status ki_log_each_record(struct ki_log *log,
				    const struct log_file *file,
				    log_record_fn *visit, void *arg);

/* ---- inspect.c ------------------------------------------------------- */

enum kiln_status ki_log_list(struct kiln_tier *tier, struct kiln_cursor *cursor,
			     struct kiln_entry *out_entry);
enum kiln_status ki_log_info(struct kiln_tier *tier,
			     struct kiln_store_info *out_info);

/* ---- verify.c -------------------------------------------------------- */

enum kiln_status ki_log_verify(struct kiln_tier *tier, unsigned flags,
			       kiln_progress_fn *progress, void *arg,
			       struct kiln_verify_report *out_report);

/* Words that lead nowhere go (damaged, unless an eviction left them), and what
   is left is counted. */
void ki_log_count_anew(struct ki_log *log, struct log_index *index,
		       struct kiln_verify_report *report);

/* ---- quarantine.c ---------------------------------------------------- */

/* Keep the bytes that a word leads to; takes byte 0, and from *patience_ns what
   it waited for it.  KILN_E_FULL: there is no room to spare for them. */
enum kiln_status ki_log_quarantine_add(struct ki_log *log,
				       struct log_index *index, uint64_t word,
				       uint64_t *patience_ns);
/* Under byte 0: remove those put aside before then; the bytes that go. */
uint64_t ki_log_quarantine_drop(struct ki_log *log, int64_t before_ns,
				uint64_t *out_n);

/* ---- orphan.c -------------------------------------------------------- */

/* Under byte 0: unlink large files that no word leads to; how many.  The same,
   once a minute. */
uint64_t ki_log_drop_orphans(struct ki_log *log, struct log_index *index,
			     struct log_census *census);
/* Let the large record go that a word leads to, wherever its file lies; nothing
   is done where its tombstone finds no room. */
void ki_log_evict_large(struct ki_log *log, struct log_index *index,
			struct log_census *census, uint64_t slot, uint64_t word,
			uint32_t number);
/* Under byte 0: whether a record (its segment is open) may go with its file before
   older ones do.  Not if a word leads to it; and unless one leads to its key, a
   tombstone takes its place in the order. */
int ki_log_may_go(struct ki_log *log, struct log_index *index, int fd,
		  uint32_t number, uint32_t units,
		  const struct log_record *record);
void ki_log_drop_orphans_if_due(struct ki_log *log, struct log_index *index,
				struct log_census *census);

/* ---- sources.c ------------------------------------------------------- */

/* See kiln_keep_sources() and kiln_find_source(). */
enum kiln_status ki_log_keep_sources(struct kiln_tier *tier,
				     struct kiln_kept *sources,
				     size_t n_sources);
enum kiln_status ki_log_find_source(
	struct kiln_tier *tier, const uint8_t digest[KILN_SOURCE_DIGEST_BYTES],
	struct kiln_blob **out_source);
/* Read and count them all. */
void ki_log_check_sources(struct ki_log *log, const struct log_census *census,
			  struct kiln_verify_report *report);
/* Under byte 0: the oldest file of sources goes; 0: there is none left. */
int ki_log_drop_source(struct ki_log *log, struct log_census *census);
uint64_t ki_log_source_bytes(const struct log_census *census);

/* ---- clean.c --------------------------------------------------------- */

enum kiln_status ki_log_gc(struct kiln_tier *tier,
			   const struct kiln_gc_options *options,
			   kiln_progress_fn *progress, void *arg,
			   struct kiln_gc_report *out_report);

#endif /* KI_STORE_LOG_LOG_H */
