/* SPDX-License-Identifier: MIT */
#ifndef KI_MEMORY_SLOTS_H
#define KI_MEMORY_SLOTS_H

/*
 * A slot for each thread that uses kiln: what it writes on a hit is here and
 * nowhere else, so two threads hitting one key write no common line.
 *
 *   pin      while set, nothing that the thread may have seen is freed
 *   hits     of each memory tier (the first KI_SLOT_OWNERS of the process)
 *   counts   references to blobs that memory tiers hold, signed: a reference
 *            may be taken by one thread and dropped by another
 *
 * Reading    ki_slot_enter(), look, take a reference, ki_slot_leave().  No
 *            lock, no callback, no other call in between.
 * Removing   make it unreachable, tag it with ki_slots_retire(), and free it
 *            when ki_slots_passed() says that no thread can see it any more.
 */

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/blob.h"

#define KI_SLOT_OWNERS 7
#define KI_SLOT_COUNTS 512	/* a power of two */

struct ki_slot {
	/* Written by the thread, read by everyone. */
	_Alignas(64) _Atomic uint64_t pin;	/* 0, or the epoch */
	_Atomic uint64_t hits[KI_SLOT_OWNERS];
	_Atomic uint64_t counts[KI_SLOT_COUNTS]; /* address 48, count 16 */
	/* Under the registry's mutex. */
	_Alignas(64) struct ki_slot *next;
	uint64_t thread;	/* 0: free */
	uint64_t start;
};

extern __thread struct ki_slot *ki_slot_mine;
extern _Atomic uint64_t ki_slot_epoch;
extern _Atomic int ki_slot_is_cheap;	/* the other side has the barrier */

/* The calling thread's slot, made at its first use; NULL without memory. */
struct ki_slot *ki_slot_new(void);

/*
 * The pin must be seen by whoever removes before this thread looks at
 * anything.  Where the system can run a barrier in all threads, the remover
 * does, and the pin costs a plain store.
 */
static inline struct ki_slot *ki_slot_enter(void)
{
	struct ki_slot *slot = ki_slot_mine;
	uint64_t epoch;

	if (__builtin_expect(!slot, 0)) {
		slot = ki_slot_new();
		if (!slot)
			return NULL;
	}
	epoch = atomic_load_explicit(&ki_slot_epoch, memory_order_acquire);
	if (atomic_load_explicit(&ki_slot_is_cheap, memory_order_relaxed)) {
		atomic_store_explicit(&slot->pin, epoch, memory_order_release);
		atomic_signal_fence(memory_order_seq_cst);
	} else {
		atomic_exchange(&slot->pin, epoch);
	}
	return slot;
}

static inline void ki_slot_leave(struct ki_slot *slot)
{
	atomic_store_explicit(&slot->pin, 0, memory_order_release);
}

#define KI_SLOT_ADDRESS (((uint64_t)1 << 48) - 1)

static inline size_t ki_slot_place(const struct kiln_blob *blob)
{
	return (size_t)((uint64_t)(uintptr_t)blob * 0x9e3779b97f4a7c15u >> 55);
}

/*
 * Count n references in a pinned slot: 1, or 0 if the place is taken by
 * another blob's count or full.  Only for blobs whose counter is set.
 */
static inline int ki_slot_count(struct ki_slot *slot, struct kiln_blob *blob,
				int n)
{
	_Atomic uint64_t *word = &slot->counts[ki_slot_place(blob)];
	uint64_t old = atomic_load_explicit(word, memory_order_relaxed);
	uint64_t address = (uint64_t)(uintptr_t)blob;
	int count = (int16_t)(old >> 48) + n;

	if ((old & KI_SLOT_ADDRESS) != address) {
		if (old >> 48)
			return 0;
		count = n;
	}
	if (count != (int16_t)count)
		return 0;
	atomic_store_explicit(word, address | (uint64_t)(uint16_t)count << 48,
			      memory_order_relaxed);
	return 1;
}

/* ---- Blobs that are counted by threads ----------------------------------- */

/*
 * Start counting by threads; the caller's reference becomes the holder's.  0
 * if somebody else does that already (then nothing is to be ended).
 */
int ki_slots_count_begin(struct kiln_blob *blob);
/* No reference is counted by threads from now on.  What was, is still theirs
   until ki_slots_count_finish(), after a grace period. */
void ki_slots_count_end(struct kiln_blob *blob);
/* Gather what the threads counted and drop the holder's references; blobs
   that nobody else has are freed (and call their release()). */
void ki_slots_count_finish(struct kiln_blob *const *blobs, size_t n_blobs);

/* ---- Grace periods --------------------------------------------------------- */

/* A tag for what was made unreachable just now. */
uint64_t ki_slots_retire(void);
/* Everything with a tag below this may be freed; 0 if nothing. */
uint64_t ki_slots_passed(void);
/* Wait until every thread has left what it is in now. */
void ki_slots_wait(void);

/* ---- Hits ------------------------------------------------------------------ */

/* A column of its own in every slot, or -1 if all are taken. */
int ki_slots_owner_new(void);
void ki_slots_owner_free(int owner);
uint64_t ki_slots_hits(int owner);

/* How many slots belong to living threads (for tests). */
size_t ki_slots_n_used(void);

/* To be called before anything else here; again is harmless. */
void ki_slots_prepare(void);

#endif /* KI_MEMORY_SLOTS_H */
