/* SPDX-License-Identifier: MIT */
#ifndef KIR_FETCH_H
#define KIR_FETCH_H

/*
 * Looking up: memory, then the levels from the nearest on, each until it answers
 * or fails.
 *
 *	get ─── in memory? ──> item
 *	  └──── a fetch of that name is under way? wait for it
 *	  └──── begin one ──> level 0 ──absent, fault──> level 1 ──> ... ──> miss
 *
 * Whoever waits waits no longer than it said; the fetch goes on without it, and
 * what comes is kept in memory.  What programs refused of a level is not asked of
 * it again (refused.h).
 *
 * Prefetch   begins with one name and goes on with twice as many as long as its
 *	      batches come back fast, with half as many if they do not: a server that
 *	      a whole fleet prefetches from must still answer those who wait.  If one
 *	      name alone is slow, it ends.
 *
 *	      Fast and slow are 25 and 50 ms or, of a server that is far, 9/8 and 12/8
 *	      of its fastest answer ever, and 250 ms at most.  There the first two
 *	      batches may be slow, too: a new connection takes several ways.
 *
 *	      It is the fastest, and the bounds are close to it, because an answer
 *	      that waited behind those of others looks like one from far away.  With
 *	      10/8 and 16/8, or if it took three slow names, a thousand nodes that
 *	      start at once beside one nginx need 190 s instead of 23 (bench/fleet).
 *
 *	      What a batch may bring is set aside in memory before it is asked for,
 *	      the same share for each name; an item that is larger than that waits for
 *	      who asks for it.  There are as many names in a batch as items of the
 *	      size of late have room.
 *
 *	      The last quarter of what may be under way is for look-ups: with more
 *	      than three quarters it waits until some are done.  With more than it
 *	      has itself, one slow name does not end it, for that is what those who
 *	      wait make of a server.
 */

#include "base/list.h"
#include "memory.h"
#include "names.h"
#include "refused.h"
#include "sources.h"

#define FETCHES_MAX	   4096 /* under way */
#define PREFETCH_NAMES_MAX 65536

struct fetch;
struct waiter;

/* `item` NULL: a miss, why (KI_REMOTE_*), and how long it makes no sense to ask
   anything.  The item is borrowed.  The waiter is the callee's again.  Returns 0
   if it has no room for the item, which is kept then. */
typedef int waiter_fn(struct waiter *waiter, unsigned level, struct item *item,
		      uint32_t reasons, uint32_t wait_ms);

/* Part of who waits. */
struct waiter {
	struct ki_list link;
	struct fetches *fetches;
	struct fetch *fetch;
	struct loop_timer *deadline;
	waiter_fn *done;
	int wants_verdict; /* on an item, even if it is good */
};

struct fetches {
	struct loop *loop;
	struct sources *sources;
	struct memory memory;
	struct refused refused;
	struct names names; /* of fetches under way */
	struct loop_timer *sweep;

	/* Names to prefetch: a ring, the most wanted first. */
	uint8_t (*wanted)[KI_REMOTE_NAME_BYTES];
	size_t n_wanted, first_wanted, wanted_room;
	/* Fetches that go to a source together, at the end of the turn. */
	struct ki_list together;
	struct loop_timer *flush;
	unsigned n_batches; /* of prefetch, under way */
	unsigned batch_size;
	unsigned n_first; /* that came since it began, BATCHES_MAX at most */
	uint64_t largest; /* item that they brought of late */
	int is_pumping;

	/* Counted. */
	uint64_t n_gets, n_from_memory, n_joined, n_late, n_misses;
	uint64_t n_prefetched, n_prefetch_dropped, n_prefetch_ended;
};

/* 0: no memory. */
int fetches_begin(struct fetches *fetches, struct loop *loop,
		  struct sources *sources, uint64_t memory_bytes_max);
/* After the sources are closed. */
void fetches_finish(struct fetches *fetches);

/* From level `from` on; wait at most `ms`.  `waiter->done` is set; it may be
   called within the call. */
void fetches_get(struct fetches *fetches, struct waiter *waiter,
		 const uint8_t name[KI_REMOTE_NAME_BYTES], uint32_t ms,
		 unsigned from);
/* Wait no longer, and be told nothing. */
void waiter_leave(struct waiter *waiter);

/* How long it makes no sense to ask anything; 0: it does now. */
uint32_t fetches_wait_ms(const struct fetches *fetches);

void fetches_prefetch(struct fetches *fetches, const uint8_t *names,
		      size_t n_names);

/* What a program found: the item to fill nearer levels from, borrowed until the
   next call, or NULL. */
struct item *fetches_verdict(struct fetches *fetches,
			     const uint8_t name[KI_REMOTE_NAME_BYTES],
			     unsigned level, enum verdict verdict);

#endif /* KIR_FETCH_H */
