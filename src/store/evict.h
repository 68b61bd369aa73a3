/* SPDX-License-Identifier: MIT */
#ifndef KI_STORE_EVICT_H
#define KI_STORE_EVICT_H

/* Choosing what goes: pure functions, whatever the format. */

#include <stddef.h>
#include <stdint.h>

/* Longer than this no build takes: a clock was set meanwhile, or somebody made
   it up. */
#define KI_EVICT_BUILD_NS_MAX ((uint64_t)24 * 3600 * 1000000000)

/* How long the build of an entry took, as its metadata say; 0: they say nothing,
   or what cannot be. */
uint64_t ki_evict_build_ns(const void *metadata, size_t metadata_size);

/* Last use of what goes before all that was ever used. */
#define KI_EVICT_FIRST INT64_MIN

struct ki_evictable {
	uint64_t bytes;	   /* that its end sets free */
	int64_t used_ns;   /* last use; any clock, one for all */
	uint64_t build_ns; /* by cost alone; 0: nobody knows */
	uint64_t id;	   /* the caller's; breaks ties, lower first */
	double weight;	   /* of ki_evict_order_by_cost() */
};

/*
 * Sort by last use, oldest first, and return how many from the front must go:
 * all last used before `used_before_ns`, and as many more until those that
 * stay take at most `bytes_max`.
 */
size_t ki_evict_choose(struct ki_evictable *entries, size_t n,
		       uint64_t bytes_max, int64_t used_before_ns);
/*
 * Sort into the order in which entries go by cost; `now_ns` by the clock of their
 * last use.
 *
 * An entry weighs the square of the time since it was used, in parts of what its
 * build took for each byte: what is four times as dear to build, byte by byte,
 * stays twice as long.  To the time a 16th of the longest is added, or of what was
 * used just now the cheapest would go, however often it is used.
 *
 * Dear and cheap is what is above and below the mean of all, of logarithms, by at
 * most KI_EVICT_STEPS doublings; an entry of which nobody knows is neither, and
 * among such the order is that of last use.  So nothing stays for ever, and a
 * clock that was set costs choices and no more: what was used later than now was
 * used now.
 */
#define KI_EVICT_STEPS 3
void ki_evict_order_by_cost(struct ki_evictable *entries, size_t n,
			    int64_t now_ns);
/* And how many from the front must go. */
size_t ki_evict_choose_by_cost(struct ki_evictable *entries, size_t n,
			       uint64_t bytes_max, int64_t now_ns);

/* What a format has for a file of its directory. */
struct ki_evict_files {
	size_t size;
	/* `names` is that of ki_evict_sort(). */
	int (*by_last_use)(const void *a, const void *b, void *names);
	/* Say what it weighs by cost, all but the id; 0: it stays, and so do all
	   behind it in the order of last use. */
	int (*weigh)(const void *file, struct ki_evictable *out_entry);
};

/* Put files into the order in which they go: that of last use, or by cost.  What
   weighs the same, and without memory all, stays in that of last use. */
void ki_evict_sort(const struct ki_evict_files *kind, void *files, size_t n,
		   void *names, int by_cost, int64_t now_ns);

#endif /* KI_STORE_EVICT_H */
