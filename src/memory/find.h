/* SPDX-License-Identifier: MIT */
#ifndef KI_MEMORY_FIND_H
#define KI_MEMORY_FIND_H

/*
 * The hot path, inline: for core, which has a few checks of its own around it,
 * and for memory.c.
 */

#include "base/list.h"
#include "base/map.h"
#include "memory/memory.h"
#include "memory/table.h"
#include "sys/sys.h"

#define KI_HITS_PER_TICK 4096
#define KI_FLIGHT_CHAINS 64

struct ki_memory {
	/* Fixed after new. */
	struct ki_memory_options options;
	int owner; /* column of hits, or -1 */
	uint64_t fork_counter;
	struct ki_table table;
	/* Atomic. */
	_Atomic uint64_t hits; /* those without a column */
	_Atomic uint64_t waited;
	/* Under mutex. */
	struct ki_mutex mutex;
	struct ki_list chains[KI_FLIGHT_CHAINS]; /* of flights */
	struct ki_map kept;	 /* failures: the first of a hash */
	struct ki_list failures; /* the same, oldest first */
	uint64_t n_failures;
	uint64_t failure_bytes;
};

/* A sum of its own column.  Only this thread writes here. */
static inline uint64_t ki_memory_raise(_Atomic uint64_t *sum, uint64_t n)
{
	uint64_t now = atomic_load_explicit(sum, memory_order_relaxed) + n;

	atomic_store_explicit(sum, now, memory_order_relaxed);
	return now;
}

static inline void ki_memory_tick_at(struct ki_memory *memory, uint64_t n)
{
	if (__builtin_expect(!(n % KI_HITS_PER_TICK), 0) && memory->options.due)
		atomic_store_explicit(memory->options.due, 1,
				      memory_order_relaxed);
}

static inline void ki_memory_count_hit(struct ki_memory *memory,
				       struct ki_slot *slot)
{
	if (__builtin_expect(!slot || memory->owner < 0, 0))
		atomic_fetch_add_explicit(&memory->hits, 1,
					  memory_order_relaxed);
	else
		ki_memory_tick_at(
			memory, ki_memory_raise(&slot->hits[memory->owner], 1));
}

/* A look at a store by a pinned slot, where ki_memory_counts_looks(). */
static inline void ki_memory_count_hit_at(struct ki_memory *memory,
					  struct ki_slot *slot, uint64_t size,
					  uint64_t saved_ns)
{
	_Atomic uint64_t *looks = slot->looks[memory->owner];

	(void)ki_memory_raise(&looks[KI_LOOK_BYTES], size);
	(void)ki_memory_raise(&looks[KI_LOOK_SAVED_NS], saved_ns);
	ki_memory_tick_at(memory, ki_memory_raise(&looks[KI_LOOK_HITS], 1));
}

static inline void ki_memory_count_miss_at(struct ki_memory *memory,
					   struct ki_slot *slot)
{
	_Atomic uint64_t *looks = slot->looks[memory->owner];

	ki_memory_tick_at(memory, ki_memory_raise(&looks[KI_LOOK_MISSES], 1));
}

/*
 * For whoever has pinned its slot: KILN_OK, or KILN_MISS, which may also mean
 * that ki_memory_get() would find more.  Nothing is called.
 */
static inline enum kiln_status ki_memory_find(struct ki_memory *memory,
					      const struct kiln_key *key,
					      struct ki_slot *slot,
					      struct kiln_blob **out_blob)
{
	if (__builtin_expect(
		    ki_table_is_by_lock(&memory->table) ||
			    !ki_table_glance(atomic_load(&memory->table.slots),
					     key, slot, out_blob),
		    0))
		return KILN_MISS;
	ki_memory_count_hit(memory, slot);
	return KILN_OK;
}

#endif /* KI_MEMORY_FIND_H */
