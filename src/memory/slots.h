/* SPDX-License-Identifier: MIT */
#ifndef KI_MEMORY_SLOTS_H
#define KI_MEMORY_SLOTS_H

/*
 * A slot for each thread that uses kiln: what it writes on a hit is here and
 * nowhere else, so two threads hitting one key write no common line.
 *
 *   pin      while set, nothing that the thread may have seen is freed
 *   hits     of each memory tier (the first KI_SLOT_OWNERS of the process)
 *   looks    the same of stores that were asked from within the pin
 *   counts   references to blobs that memory tiers hold, taken and not yet
 *            dropped by this thread; what another thread took is dropped in
 *            the blob's own count
 *   handles  of values that lie in stores: some that were dropped, to be used
 *            again without malloc()
 *
 * Reading    ki_slot_enter(), look, take a reference, ki_slot_leave().  No
 *            lock in between, and no call but a tier's glance().  Pins do not
 *            nest: kiln_blob_unref() pins too, and its leaving would end the
 *            pin around it.  Builds with assertions stop there.
 * Removing   make it unreachable, tag it with ki_slots_retire(), and free it
 *            when ki_slots_passed() says that no thread can see it any more.
 */

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/blob.h"

#define KI_SLOT_OWNERS 7

/* What a look at a store, from within a pin, came to. */
enum ki_look { KI_LOOK_HITS, KI_LOOK_MISSES, KI_LOOK_BYTES, KI_LOOK_SAVED_NS };
#define KI_SLOT_LOOKS	   4
#define KI_SLOT_COUNT_BITS 7
#define KI_SLOT_COUNTS	   (1 << KI_SLOT_COUNT_BITS) /* few: they stay in L1 */

/* Where use after the last unref is looked for, none is used again. */
#if defined(__SANITIZE_ADDRESS__)
#define KI_SLOT_HANDLES 1
#define KI_HANDLES_KEPT 0
#else
#define KI_SLOT_HANDLES 15
#define KI_HANDLES_KEPT KI_SLOT_HANDLES
#endif

struct ki_slot {
	/* Written by the thread, read by everyone. */
	_Alignas(64) _Atomic uint64_t pin; /* 0, or the epoch */
	_Atomic uint64_t hits[KI_SLOT_OWNERS];
	_Atomic uint64_t looks[KI_SLOT_OWNERS][KI_SLOT_LOOKS];
	_Atomic uint64_t counts[KI_SLOT_COUNTS]; /* address 48, count 16 bits */
	/* Of the thread alone. */
	unsigned n_handles;
	struct kiln_blob *handles[KI_SLOT_HANDLES];
	/* Under the registry's mutex. */
	_Alignas(64) struct ki_slot *next;
	uint64_t thread; /* 0: free */
};

struct ki_slots {
	_Alignas(64) _Atomic uint64_t epoch;
	_Atomic int is_cheap;	   /* the other side has the barrier */
	_Atomic unsigned n_ending; /* blobs whose counting is being ended */
};

#pragma GCC visibility push(hidden)
extern struct ki_slots ki_slots;
#pragma GCC visibility pop

/* The calling thread's slot, made at its first use; NULL without memory.  A hit
   has it from core/entry.c. */
struct ki_slot *ki_slot_get(void);
/* The same, pinned. */
struct ki_slot *ki_slot_enter(void);

/*
 * The pin must be seen by whoever removes before this thread looks at
 * anything.  Where the system can run a barrier in all threads, the remover
 * does, and the pin costs a plain store.
 */
static inline void ki_slot_pin(struct ki_slot *slot)
{
	uint64_t epoch =
		atomic_load_explicit(&ki_slots.epoch, memory_order_acquire);

	assert(!atomic_load_explicit(&slot->pin, memory_order_relaxed));
	if (__builtin_expect(atomic_load_explicit(&ki_slots.is_cheap,
						  memory_order_relaxed),
			     1)) {
		atomic_store_explicit(&slot->pin, epoch, memory_order_release);
		atomic_signal_fence(memory_order_seq_cst);
	} else {
		atomic_exchange(&slot->pin, epoch);
	}
}

static inline void ki_slot_leave(struct ki_slot *slot)
{
	atomic_store_explicit(&slot->pin, 0, memory_order_release);
}

/* Of a blob in the counts of every slot. */
static inline size_t ki_slot_place(const struct kiln_blob *blob)
{
	return (size_t)((uint64_t)(uintptr_t)blob * 0x9e3779b97f4a7c15u >>
			(64 - KI_SLOT_COUNT_BITS));
}

#define KI_SLOT_COUNT_MAX ((uint64_t)0xffff)

/* The word that counts no reference to this blob. */
static inline uint64_t ki_slot_none(const struct kiln_blob *blob)
{
	return (uint64_t)(uintptr_t)blob << 16;
}

/*
 * Count a reference in a pinned slot: 1, or 0 if the place (ki_slot_place()) is
 * taken by another blob's count or full.  Only for blobs whose counter is set.
 */
static inline int ki_slot_take(struct ki_slot *slot, size_t place,
			       const struct kiln_blob *blob)
{
	_Atomic uint64_t *word = &slot->counts[place];
	uint64_t old = atomic_load_explicit(word, memory_order_relaxed);
	uint64_t none = ki_slot_none(blob);

	/* Whose word it was is nothing that a processor could guess: only
	   whether it can be ours now is a branch. */
	old = old & KI_SLOT_COUNT_MAX ? old : none;
	if (__builtin_expect(old - none >= KI_SLOT_COUNT_MAX, 0))
		return 0;
	atomic_store_explicit(word, old + 1, memory_order_relaxed);
	return 1;
}

/* Drop a reference that this slot has counted: 1, or 0 if it has none. */
static inline int ki_slot_drop(struct ki_slot *slot,
			       const struct kiln_blob *blob)
{
	_Atomic uint64_t *word = &slot->counts[ki_slot_place(blob)];
	uint64_t old = atomic_load_explicit(word, memory_order_relaxed);

	if (old - ki_slot_none(blob) - 1 >= KI_SLOT_COUNT_MAX)
		return 0;
	atomic_store_explicit(word, old - 1, memory_order_relaxed);
	return 1;
}

/* ---- Handles --------------------------------------------------------------- */

/* One that is new. */
struct kiln_blob *ki_slot_handle_new(void);

/*
 * A blob for a value within a holder, of which it takes a reference; NULL
 * without memory.
 */
static inline struct kiln_blob *ki_slot_handle(struct ki_slot *slot,
					       const void *data, size_t size,
					       struct kiln_blob *holder)
{
	struct kiln_blob *handle = slot->n_handles
					   ? slot->handles[--slot->n_handles]
					   : ki_slot_handle_new();

	if (__builtin_expect(!handle, 0))
		return NULL;
	handle->data = data;
	handle->size = size;
	handle->arg = holder;
	handle->place = holder->place;
	atomic_store_explicit(&handle->refs, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&holder->refs, 1, memory_order_relaxed);
	return handle;
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
uint64_t ki_slots_looks(int owner, enum ki_look what);

/* How many slots belong to living threads (for tests). */
size_t ki_slots_n_used(void);

/* To be called before anything is held or looked up; again is harmless. */
void ki_slots_prepare(void);

#endif /* KI_MEMORY_SLOTS_H */
