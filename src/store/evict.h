/* SPDX-License-Identifier: MIT */
#ifndef KI_STORE_EVICT_H
#define KI_STORE_EVICT_H

/* Choosing what goes: a pure function, whatever the format. */

#include <stddef.h>
#include <stdint.h>

/* Longer than this no build takes: a clock was set meanwhile, or somebody made
   it up. */
#define KI_EVICT_BUILD_NS_MAX ((uint64_t)24 * 3600 * 1000000000)

/* How long the build of an entry took, as its metadata say; 0: they say nothing,
   or what cannot be. */
uint64_t ki_evict_build_ns(const void *metadata, size_t metadata_size);

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
