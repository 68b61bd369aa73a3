/* SPDX-License-Identifier: MIT */
#ifndef KI_MEMORY_MEMORY_H
#define KI_MEMORY_MEMORY_H

/*
 * The memory tier: values by key, and flights.  A flight is one thread at work
 * on a key while others wait for its result (single flight).
 *
 * It does not know that disks exist.
 *
 * A key's states, as callers of ki_memory_begin() see them:
 *
 *	Initial --begin: lead--> InProgress --finish, value kept--> Done
 *	   ^                         |            (ki_memory_add before)
 *	   |                         |--finish, lasting------> Failed
 *	   |                         |      (policy KEEP; message and code)
 *	   |--finish, resources------|  those who wait get the failure
 *	   |--finish, spurious-------|  each who waits leads once, in turn
 *	   |--finish, status < 0-----'  the same
 *	   '--remove, wipe, eviction, time to live-- Done or Failed
 *
 * InProgress, others wait for that flight alone.  Done is read without a lock.
 * Failed answers everyone alike.
 */

#include <stdatomic.h>

#include <kiln/kiln.h>

#include "key/key.h"
#include "memory/slots.h"

struct ki_memory;
struct ki_flight;

/* Who goes when there is no room. */
enum ki_memory_order {
	KI_MEMORY_APPROXIMATE, /* what was not used lately */
	KI_MEMORY_LRU,	       /* the least recently used: hits take a lock */
	KI_MEMORY_INSERTION,   /* the oldest; bounds: KILN_MEMORY_INSERTION */
};

/* See ki_memory_sweep(). */
typedef void ki_memory_stale_fn(void *arg, const struct kiln_key *key);

struct ki_memory_options {
	uint64_t bytes_max;   /* 0: no bound */
	uint64_t entries_max; /* 0: no bound */
	enum ki_memory_order order;
	int hold_nothing; /* flights only: every look-up misses */
	int pin_nothing;  /* nobody will look by a pin */
	int no_column;	  /* hits are counted by whoever looks, elsewhere */
	enum kiln_failure_policy failure_policy;
	uint64_t failure_ttl_ms;
	int keep_all_failures; /* whoever made it bounds them */
	_Atomic int *due;      /* set at every 4096th hit of a thread; NULL */
	ki_memory_stale_fn *stale; /* NULL */
	void *stale_arg;
};

/* KILN_E_NO_MEMORY. */
enum kiln_status ki_memory_new(const struct ki_memory_options *options,
			       struct ki_memory **out_memory);
/*
 * Nobody uses it any more; flights are finished.  In a forked child it may
 * have been caught in the middle of a change: then its memory is left alone.
 */
void ki_memory_free(struct ki_memory *memory);

/*
 * Begin the use of a key:
 *   KILN_OK       *out_result is filled (hit, kept failure, or the result of a
 *                 flight that was waited for; a failed one has another kind
 *                 than KILN_BUILD_OK)
 *   KILN_MISS     this thread leads: *out_flight must be given to
 *                 ki_memory_finish(), by this thread, flights begun meanwhile
 *                 first.  A thread that leads another flight already never
 *                 waits: where it would, it gets a flight that nobody follows.
 *   KILN_E_INVALID  the key is being built by this very thread further up
 *   KILN_E_NO_MEMORY
 */
enum kiln_status ki_memory_begin(struct ki_memory *memory,
				 const struct kiln_key *key,
				 struct kiln_build_result *out_result,
				 struct ki_flight **out_flight);

/*
 * Lead without being followed, and without a look at what is there: for work
 * that is not shared.  KILN_MISS, else KILN_E_INVALID or KILN_E_NO_MEMORY as
 * above.
 */
enum kiln_status ki_memory_begin_alone(struct ki_memory *memory,
				       const struct kiln_key *key,
				       struct ki_flight **out_flight);

/* Whether the thread led another flight when this one began. */
int ki_flight_is_nested(const struct ki_flight *flight);

/*
 * While a flight of this thread is open, it does not count as one that is led:
 * the thread may wait for others.  For a leader that asks another tier, where
 * none of the caller's code runs; that code must find the flight closed, or two
 * builds that ask for each other's keys would wait in a ring.
 */
void ki_flight_set_open(struct ki_flight *flight, int is_open);

/*
 * End a flight: waiters get the result (each its own reference), and a failure
 * is kept by policy: 1 if it is.  A value is kept by whoever knows its best
 * form, with ki_memory_add() or ki_memory_fill(), before this.  `result` stays
 * the caller's.  `status` below 0 (no memory, say) makes the waiters try for
 * themselves.
 */
int ki_memory_finish(struct ki_memory *memory, struct ki_flight *flight,
		     enum kiln_status status,
		     const struct kiln_build_result *result);

/* KILN_OK or KILN_MISS; never waits. */
enum kiln_status ki_memory_get(struct ki_memory *memory,
			       const struct kiln_key *key,
			       struct kiln_blob **out_blob);

/* Keep a value, replacing what is there.  Failing is not worth telling. */
void ki_memory_put(struct ki_memory *memory, const struct kiln_key *key,
		   struct kiln_blob *blob);

/* Keep a value unless there is one: KILN_EXISTS.  KILN_MISS: it is not kept (no
   memory, too much garbage). */
enum kiln_status ki_memory_add(struct ki_memory *memory,
			       const struct kiln_key *key,
			       struct kiln_blob *blob);

/*
 * Keep what another tier had, unless there is a value already or anything was
 * removed or replaced since ki_memory_changes() was asked: what was read
 * before a removal must not come back after it.
 */
uint64_t ki_memory_changes(struct ki_memory *memory);
void ki_memory_fill(struct ki_memory *memory, const struct kiln_key *key,
		    struct kiln_blob *blob, uint64_t changes);

/* Also forgets a kept failure.  KILN_OK or KILN_MISS. */
enum kiln_status ki_memory_remove(struct ki_memory *memory,
				  const struct kiln_key *key);
/* Forgets a kept failure and nothing else. */
void ki_memory_forget(struct ki_memory *memory, const struct kiln_key *key);
void ki_memory_wipe(struct ki_memory *memory);

/*
 * Remove a value if it is this very blob: 1, or 0 if it was not there.  Others
 * that are discarded may wait to be let go together, which interrupts every
 * processor once; until a grace period has passed, the blob lives.
 */
int ki_memory_discard(struct ki_memory *memory, const struct kiln_key *key,
		      const struct kiln_blob *blob);
void ki_memory_let_go(struct ki_memory *memory);

/* Drop entries until at most this many bytes are held. */
void ki_memory_trim(struct ki_memory *memory, uint64_t bytes);

/*
 * Drop the entries whose blob the predicate no longer wants.  It is asked
 * under the tier's lock: it may look at the blob and at little else.  The
 * first hit of each entry that is spared calls `stale` of the options, within
 * the look-up and without a lock: the medium may have forgotten how much the
 * entry is used.
 */
typedef int ki_memory_keep_fn(void *arg, const struct kiln_blob *blob);
void ki_memory_sweep(struct ki_memory *memory, ki_memory_keep_fn *keep,
		     void *arg);

void ki_memory_size(struct ki_memory *memory, uint64_t *out_bytes,
		    uint64_t *out_entries);

/* Since it was made: hits, and calls that waited for another thread's flight
   (counted when they begin to wait). */
uint64_t ki_memory_hits(struct ki_memory *memory);
uint64_t ki_memory_waited(struct ki_memory *memory);

/* Whether looks at a store from within a pin can be counted here, and what
   they came to. */
int ki_memory_counts_looks(const struct ki_memory *memory);
uint64_t ki_memory_looks(struct ki_memory *memory, enum ki_look what);

#endif /* KI_MEMORY_MEMORY_H */
