/* SPDX-License-Identifier: MIT */
#ifndef KI_CORE_CACHE_H
#define KI_CORE_CACHE_H

/* The inside of a kiln, for the files of this folder. */

#include <stdatomic.h>

#include <kiln/inspect.h>
#include <kiln/kiln.h>
#include <kiln/tier.h>

#include "core/order.h"
#include "memory/memory.h"
#include "memory/slots.h"
#include "remote/remote.h"
#include "sign/sign.h"
#include "store/store.h"
#include "sys/sys.h"

#define KI_TIERS_MAX 8
#define KI_PACKS_MAX 16
#define KI_STRIPES   8		 /* of counters; a power of two */
#define KI_TICK_NS   1000000000u /* between two flushes of counters */

struct ki_stripe {
	_Alignas(64) _Atomic uint64_t counters[KILN_N_COUNTERS];
};

/* A pack as given; `tier` is NULL if it is not in use. */
struct ki_pack_given {
	char *path;
	enum kiln_status status;
	struct kiln_tier *tier;
};

struct kiln {
	/* Fixed after open. */
	struct ki_memory *memory;
	struct kiln_tier *tiers[KI_TIERS_MAX]; /* fastest first */
	size_t n_tiers;
	int has_store; /* tiers[0] is the store given */
	enum kiln_status store_status;
	uint64_t fork_counter;
	uint32_t flags;
	uint32_t lock_timeout_ms;
	int is_expected; /* at exit: a guest */
	int glances; /* values are looked for in tiers[0] from within a pin */
	uint64_t memory_bytes_max;
	char *name_space;	  /* or NULL */
	char *application;	  /* or NULL: the program's path */
	struct ki_order *order;	  /* or NULL: not recorded */
	struct ki_remote *remote; /* or NULL; asked when all else is */
	kiln_log_fn *log;
	void *log_arg;
	/* Atomic. */
	_Atomic uint64_t seen[KI_TIERS_MAX]; /* generations */
	_Atomic int attention; /* off the hot path: closing, traced, a guest,
				   or a flush may be due */
	_Atomic int closing;
	_Atomic uint64_t told; /* faults of tiers that the log has had */
	_Alignas(64) _Atomic uint64_t calls; /* in progress, off the hot path */
	_Atomic uint64_t next_tick_ns;
	_Atomic uint64_t next_halving_ns;
	_Atomic uint64_t n_waiting; /* a guest's calls since it flushed */
	_Atomic int is_patient;	    /* its hits may wait for that */
	_Atomic int is_urgent; /* something has been counted that may not */
	_Atomic int n_orders;  /* how often the remote was asked for it */
	_Atomic int has_sent;  /* something to the remote */
	struct ki_stripe stripes[KI_STRIPES];
	/* Under mutex. */
	struct ki_mutex mutex;
	struct ki_cond no_calls;
	struct ki_mutex stats_mutex;
	uint64_t flushed[KILN_N_COUNTERS];
	/* Fixed after open, too, and away from what hits read. */
	size_t n_packs;
	struct ki_pack_given packs[KI_PACKS_MAX]; /* asked behind the store */
	struct ki_sign_trust trust; /* of a shared store: whose entries count */
	struct ki_sign_trust remote_trust; /* the same of a remote */
	char *signing_key;		   /* as given, or NULL */
	char *quotas_path;		   /* or NULL: there cannot be quotas */
	/* Atomic. */
	_Atomic int quotas_state;	   /* enum ki_quotas_state */
	_Atomic int is_counting;	   /* somebody has `count` */
	_Atomic(struct kiln_blob *) maker; /* what puts say of it, or NULL */
	/* Of who is_counting: of a namespace that is over its quota. */
	struct ki_count *count;
};

/* A store without quotas is looked at once a second. */
enum ki_quotas_state {
	KI_QUOTAS_UNKNOWN = 0,
	KI_QUOTAS_NONE,
	KI_QUOTAS_THERE,
};

/* In `flags`, besides what was given: the store is shared, and there are keys. */
#define KI_KILN_SIGNED (1u << 31)

/*
 * Around every call that may take its time: KILN_OK, KILN_E_FORKED, or
 * KILN_E_INVALID when the kiln is being closed or is NULL.
 */
enum kiln_status ki_kiln_enter(struct kiln *kiln);
void ki_kiln_leave(struct kiln *kiln);

/* Back to the hot path, unless something keeps it closed. */
static inline void ki_kiln_calm(struct kiln *kiln)
{
	atomic_store(&kiln->attention,
		     kiln->log || (kiln->flags & KILN_OPEN_GUEST));
	if (atomic_load(&kiln->closing))
		atomic_store(&kiln->attention, 1);
}

/* The store, or without one the first tier given, or NULL. */
struct kiln_tier *ki_kiln_store(const struct kiln *kiln);

/* Whether tiers may be written. */
static inline int ki_kiln_writes(const struct kiln *kiln)
{
	return !(kiln->flags & KILN_OPEN_READONLY);
}

void ki_kiln_log(const struct kiln *kiln, enum kiln_log_level level,
		 const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- stats.c --------------------------------------------------------------- */

void ki_kiln_count(struct kiln *kiln, enum kiln_counter counter, uint64_t n);
/* What is done now and then: flush counters, look at the memory left. */
void ki_kiln_tick(struct kiln *kiln);
void ki_kiln_flush(struct kiln *kiln);
/* So much of the memory that there may be is in use. */
void ki_kiln_relieve(struct kiln *kiln, int percent, uint64_t now);

/* ---- open.c ---------------------------------------------------------------- */

/* What the options say of any of its stores: all but where that is.  Its texts are
   the options' and the kiln's. */
struct ki_store_options ki_kiln_store_options(
	const struct kiln *kiln, const struct kiln_options *options);

/* ---- packs.c --------------------------------------------------------------- */

/* Of one as the store; the directory is its path. */
enum kiln_status ki_store_pack_open(const struct ki_store_options *options,
				    struct kiln_tier **out_tier);
/* INVALID, and in `why` which pack of the list is wrong, what is, and what would be
   right; no password is repeated.  NO_MEMORY. */
enum kiln_status ki_packs_check(const char *list, char *why, size_t why_size);
/* Whether one of them lies on a server. */
int ki_packs_have_url(const char *list);
/* 0 without memory.  Packs that cannot be used are logged. */
int ki_kiln_open_packs(struct kiln *kiln, const struct kiln_options *options);
/* Also in a forked child. */
void ki_kiln_close_packs(struct kiln *kiln);
int ki_kiln_has_in_pack(const struct kiln *kiln, const struct kiln_key *key);

/* ---- signature.c ----------------------------------------------------------- */

/* Whether the keys in the options are keys. */
int ki_kiln_keys_are_good(const struct kiln_options *options);
/* Once the store is open: sets KI_KILN_SIGNED.  0 without memory. */
int ki_kiln_open_signatures(struct kiln *kiln,
			    const struct kiln_options *options);
void ki_kiln_close_signatures(struct kiln *kiln);
/* Whether the store's entry may be used: a key that is trusted has signed it, or
   none is trusted. */
int ki_kiln_is_vouched_for(const struct kiln *kiln, const struct kiln_key *key,
			   const struct kiln_blob *value,
			   const struct kiln_blob *metadata);
/* A put of the tier's, with our signature.  OWNER: it would have to have one,
   and there is no key to make it. */
enum kiln_status ki_kiln_put_signed(const struct kiln *kiln,
				    struct kiln_tier *tier,
				    const struct kiln_key *key,
				    const void *metadata, size_t metadata_size,
				    const void *value, size_t value_size,
				    unsigned flags);

/* ---- record.c -------------------------------------------------------------- */

/* Whether what is asked for may be noted, and kept. */
int ki_kiln_may_record(const struct kiln *kiln, const char *store_url);
/* Keep what was noted, if it is not what is kept. */
void ki_kiln_record(struct kiln *kiln);

/* ---- remote.c -------------------------------------------------------------- */

/* Whether a list of servers can be one, words and all: OK, or `why`, a sentence that
   has nothing in it which could be a password. */
enum kiln_status ki_remote_check(const char *list, char *why, size_t why_size);
/* NULL, or what is wrong with a word of trust, as half a sentence. */
const char *ki_remote_trust_fault(const char *word);
/* Once there are stores.  0 without memory; a remote that cannot be used is
   logged. */
int ki_kiln_open_remote(struct kiln *kiln, const struct kiln_options *options);
/* Also in a forked child. */
void ki_kiln_close_remote(struct kiln *kiln);
/* Whether the store is given what comes from it: 0 where our signature would vouch
   for what nobody has signed. */
int ki_kiln_keeps_remote(const struct kiln *kiln);
/* KILN_OK or KILN_MISS.  What is wrong is counted. */
enum kiln_status ki_kiln_ask_remote(struct kiln *kiln,
				    const struct kiln_key *key,
				    struct kiln_blob **out_value,
				    struct kiln_blob **out_metadata);
/* What was built here; a hint. */
void ki_kiln_send(struct kiln *kiln, const struct kiln_key *key,
		  const void *metadata, size_t metadata_size, const void *value,
		  size_t value_size, unsigned flags);
/* An order that is kept in the store by now. */
void ki_kiln_send_order(struct kiln *kiln, const struct kiln_key *key,
			const void *value, size_t value_size);
/* The path of the socket of these options' helper.  MISS: no place for one. */
enum kiln_status ki_kiln_socket(const struct kiln_options *options,
				char out_path[KI_PATH_MAX]);

/* ---- namespace.c ----------------------------------------------------------- */

/* Whether it may be the name of one: of KILN_NAMESPACE_OTHERS it is not. */
int ki_namespace_is_good(const char *name);

/* Entries of a namespace, as they are counted and put in order. */
struct ki_count;
/* NULL without memory. */
struct ki_count *ki_count_new(const char *name_space);
void ki_count_free(struct ki_count *count);
const char *ki_count_name(const struct ki_count *count);
/* Go on until `deadline_ns` (0: to the end): KILN_OK once all entries of the store
   were looked at, KILN_E_TIMEOUT, or why not. */
enum kiln_status ki_count_step(struct kiln *kiln, struct ki_count *count,
			       uint64_t deadline_ns, kiln_progress_fn *progress,
			       void *arg);
/* What they come to, by now. */
uint64_t ki_count_bytes(const struct ki_count *count);
/* Once all were looked at: remove what would go first until no more than this is
   left, or the time is over; how many went. */
uint64_t ki_count_evict(struct kiln *kiln, struct ki_count *count,
			uint64_t bytes_max, uint64_t deadline_ns);
/* Have the account of the namespace, if there is one, say what is left. */
void ki_count_end(struct kiln *kiln, const struct ki_count *count,
		  uint64_t n_evicted);

/* As kiln_gc_namespace(), of a kiln that has a store and writes. */
enum kiln_status ki_kiln_clean_namespace(struct kiln *kiln,
					 const char *name_space,
					 const struct kiln_gc_options *options,
					 kiln_progress_fn *progress, void *arg,
					 struct kiln_gc_report *out_report);

/* ---- quota.c ----------------------------------------------------------------- */

/* Of the store in this place; 0 without memory. */
int ki_kiln_open_quotas(struct kiln *kiln, const char *directory,
			const char *name);
void ki_kiln_close_quotas(struct kiln *kiln);
/* They may have changed. */
static inline void ki_kiln_doubt_quotas(struct kiln *kiln)
{
	if (kiln->quotas_path)
		atomic_store_explicit(&kiln->quotas_state, KI_QUOTAS_UNKNOWN,
				      memory_order_relaxed);
}
/* Whether a put has to ask. */
static inline int ki_kiln_has_quotas(const struct kiln *kiln)
{
	return atomic_load_explicit(&kiln->quotas_state,
				    memory_order_relaxed) != KI_QUOTAS_NONE;
}

/* What a put has taken of a quota: nothing if the name is "". */
struct ki_claim {
	char name_space[KILN_NAMESPACE_BYTES];
	uint64_t bytes;
	uint64_t n_begun;
	int is_uncounted; /* the account could not say */
};
/* KILN_OK: there is room, by now; TOO_LARGE, FULL, TIMEOUT: it is not to be put. */
enum kiln_status ki_quota_claim(struct kiln *kiln, const void *metadata,
				size_t metadata_size, uint64_t bytes,
				struct ki_claim *out_claim);
/* It was put. */
void ki_quota_confirm(struct kiln *kiln, const struct ki_claim *claim);
/* It was not put after all. */
void ki_quota_return(struct kiln *kiln, const struct ki_claim *claim);
/* 0: none. */
uint64_t ki_quota_of(struct kiln *kiln, const char *name_space);
/* Around counting: what the account says before, and what is true, unless somebody
   else has counted meanwhile. */
struct ki_quota_turn {
	char name_space[KILN_NAMESPACE_BYTES]; /* "": no account */
	uint64_t bytes;
	uint64_t turn;
};
void ki_quota_begin_turn(struct kiln *kiln, const char *name_space,
			 struct ki_quota_turn *out_turn);
void ki_quota_end_turn(struct kiln *kiln, const struct ki_quota_turn *turn,
		       uint64_t bytes, uint64_t n_evicted);
/* All entries have gone. */
void ki_quotas_wiped(struct kiln *kiln);

/* ---- exit.c ---------------------------------------------------------------- */

/* Whether a guest will be flushed at exit. */
int ki_exit_expect(struct kiln *kiln);
/* Not any more.  0: that is being done, and the kiln stays as it is. */
int ki_exit_withdraw(struct kiln *kiln);

/* ---- cache.c --------------------------------------------------------------- */

/* Whose entries these are: as given, or the program, then in `path`; NULL. */
const char *ki_kiln_application(const struct kiln *kiln,
				char path[KI_PATH_MAX]);

/* Of a kiln that has a store, for what is kept in it besides entries: under its
   rules, and counted nowhere.  A put replaces. */
enum kiln_status ki_kiln_put_in_store(struct kiln *kiln,
				      const struct kiln_key *key,
				      const void *metadata,
				      size_t metadata_size, const void *value,
				      size_t value_size);
enum kiln_status ki_kiln_get_from_store(struct kiln *kiln,
					const struct kiln_key *key,
					struct kiln_blob **out_value);
/* The metadata of what kiln keeps for itself about an application; NULL without
   memory. */
struct kiln_metadata *ki_kiln_describe_order(const char *application);

/* Tell the tiers that an entry is in use which this process has in memory. */
void ki_kiln_renew(void *kiln, const struct kiln_key *key);

#endif /* KI_CORE_CACHE_H */
