/* SPDX-License-Identifier: MIT */
#ifndef KI_STORE_EVICT_H
#define KI_STORE_EVICT_H

/* Choosing what goes: a pure function, whatever the format. */

#include <stddef.h>
#include <stdint.h>

struct ki_evictable {
	uint64_t bytes;	 /* that its end sets free */
	int64_t used_ns; /* last use; any clock, one for all */
	uint64_t id;	 /* the caller's; breaks ties, lower first */
};

/*
 * Sort by last use, oldest first, and return how many from the front must go:
 * all last used before `used_before_ns`, and as many more until those that
 * stay take at most `bytes_max`.
 */
size_t ki_evict_choose(struct ki_evictable *entries, size_t n,
		       uint64_t bytes_max, int64_t used_before_ns);

#endif /* KI_STORE_EVICT_H */
