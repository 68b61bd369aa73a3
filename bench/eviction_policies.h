/* SPDX-License-Identifier: MIT */
#ifndef KILN_BENCH_EVICTION_POLICIES_H
#define KILN_BENCH_EVICTION_POLICIES_H

/*
 * What others do when a cache is full, each in a cache of `capacity` bytes that
 * holds entries and nothing else:
 *
 *	NEO's third	by last use, until a third of the capacity is gone
 *	SYCL's half	by last use, after the entry is in, until half is left
 *	LRU		by last use, until there is room
 *	second chance	in the order of arrival; who was used goes to the end once
 *	S3-FIFO		a tenth for what is new; who is used twice there moves on
 *	GDSF		GreedyDual-Size-Frequency: uses x seconds / bytes, over
 *			the level of what went last
 *	Belady		who knows the future: the time from one use of an entry to
 *			the next is worth keeping it over for the seconds of its
 *			build, and takes its bytes for so many look-ups.  By most
 *			seconds per byte and look-up first, each such time for
 *			which there is room throughout is taken.  Exact choice
 *			is a packing problem; this is near it.
 */

#include "eviction_trace.h"

struct eviction_policy {
	const char *name;
	struct eviction_outcome (*replay)(const struct eviction_trace *trace,
					  uint64_t capacity);
	int is_to_beat; /* what users have now */
};

extern const struct eviction_policy eviction_policies[];
extern const size_t n_eviction_policies;

/* The same by kiln's own store, its files in a folder of their own. */
struct eviction_outcome eviction_replay_store(
	const struct eviction_trace *trace, uint64_t capacity, int by_cost);

#endif /* KILN_BENCH_EVICTION_POLICIES_H */
