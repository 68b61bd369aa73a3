/* SPDX-License-Identifier: MIT */
#ifndef KI_MEMORY_ARENA_H
#define KI_MEMORY_ARENA_H

/*
 * Places for the entries of a large table, in chunks of 2 MiB that the system
 * is asked to map by huge pages: with a million entries in small pages each
 * hit walks the page tables twice.  A chunk has places of one size and goes
 * back to the system when the last is free.
 *
 * A small table has no chunk, and a new one is begun only while those that
 * there are are nearly full: what lies idle in new chunks stays below 16 bytes
 * for each entry of the table and one chunk.  ki_arena_idle() is what lies
 * idle, for whoever counts.
 */

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "sys/sys.h"

#define KI_ARENA_STEP	     64u /* places are multiples of this, and so lie */
#define KI_ARENA_PLACE_MAX   2048u
#define KI_ARENA_CHUNK_BYTES KI_PAGES_HUGE
#define KI_ARENA_CLASSES     (KI_ARENA_PLACE_MAX / KI_ARENA_STEP + 1)
#define KI_ARENA_ENTRIES_MIN 32768u /* so large is a large table */

struct ki_arena {
	_Atomic size_t idle;
	struct ki_mutex mutex;
	/* Under mutex. */
	struct ki_list open[KI_ARENA_CLASSES]; /* chunks with free places */
};

void ki_arena_init(struct ki_arena *arena);
/* Every place is free. */
void ki_arena_fini(struct ki_arena *arena);

/* A place of `size` bytes, a multiple of KI_ARENA_STEP, in a chunk that there
   is; or NULL. */
void *ki_arena_take(struct ki_arena *arena, size_t size);
/* Whether a table of so many entries should have one more chunk for it; if not,
   malloc() does as well. */
int ki_arena_wants_chunk(struct ki_arena *arena, size_t size,
			 uint64_t n_entries);
/* The same in a new chunk: KI_ARENA_CHUNK_BYTES more that lie idle, for which
   the caller has made room.  NULL without memory. */
void *ki_arena_take_new(struct ki_arena *arena, size_t size);
void ki_arena_give_back(struct ki_arena *arena, void *place);

static inline size_t ki_arena_idle(struct ki_arena *arena)
{
	return atomic_load_explicit(&arena->idle, memory_order_relaxed);
}

#endif /* KI_MEMORY_ARENA_H */
