/* SPDX-License-Identifier: MIT */
#ifndef KI_PROGRAM_LRU_H
#define KI_PROGRAM_LRU_H

/*
 * Least recently used first, without a lock on use.  A use writes the item's
 * stamp if the clock has ticked since, about once in a microsecond: order is
 * exact to that.
 *
 * Where there are many items, each use would be a write then, and threads would
 * take lines from each other for an order among thousands.  There a use writes
 * only if something was added since the last one, or some milliseconds have
 * passed: of two that were both used more than once in such a time, with nothing
 * added, the one whose first use was first goes first.
 *
 * The queue is ordered by the stamps that it saw last, and what was used since is
 * put back when its turn comes.
 */

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "sys/sys.h"

struct ki_lru_item {
	/* Atomic. */
	_Atomic uint64_t stamp;
	/* Under the owner's mutex. */
	size_t place; /* in the queue + 1; 0: not in it */
};

struct ki_lru_entry {
	uint64_t stamp;
	uint64_t order;
	struct ki_lru_item *item;
};

struct ki_lru {
	/* Atomic: when something was added last, and how long a stamp holds
	   if nothing was since. */
	_Alignas(64) _Atomic uint64_t added;
	_Atomic uint64_t window;
	/* Under the owner's mutex. */
	_Alignas(64) struct ki_lru_entry *entries; /* a heap */
	size_t n;
	size_t capacity;
	uint64_t next_order;
};

/* Items, and ticks of the clock. */
#define KI_LRU_MANY   1024
#define KI_LRU_WINDOW 4096

static inline uint64_t ki_lru_now(void)
{
#if defined(__x86_64__) || defined(__i386__)
	return __builtin_ia32_rdtsc() >> 11;
#elif defined(__aarch64__)
	uint64_t ticks;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks >> 5;
#else
	return ki_sys_posix.monotonic_ns(&ki_sys_posix) >> 10;
#endif
}

static inline void ki_lru_touch(struct ki_lru *lru, struct ki_lru_item *item)
{
	uint64_t now = ki_lru_now();
	uint64_t stamp =
		atomic_load_explicit(&item->stamp, memory_order_relaxed);

	/* A processor whose clock is behind takes nothing back. */
	if (stamp < now &&
	    (stamp <= atomic_load_explicit(&lru->added, memory_order_relaxed) ||
	     stamp + atomic_load_explicit(&lru->window, memory_order_relaxed) <
		     now))
		atomic_store_explicit(&item->stamp, now, memory_order_relaxed);
}

void ki_lru_init(struct ki_lru *lru);
void ki_lru_fini(struct ki_lru *lru);

/* -ENOMEM.  It counts as used now. */
int ki_lru_add(struct ki_lru *lru, struct ki_lru_item *item);
void ki_lru_remove(struct ki_lru *lru, struct ki_lru_item *item);
/* The least recently used, or NULL; it stays.  If all are in use meanwhile, one
   of them. */
struct ki_lru_item *ki_lru_first(struct ki_lru *lru);

#endif /* KI_PROGRAM_LRU_H */
