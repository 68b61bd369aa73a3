/* SPDX-License-Identifier: MIT */

/*
 * The registry of slots, grace periods, and references counted by threads.
 *
 * Grace periods.  `epoch` is a clock of removals: a reader's pin holds the
 * time when it entered, a removed thing the time when it was removed.  Once
 * no pin is as old as that, nobody can see the thing.  In letters:
 *
 *	(a) the reader stores its pin before it loads anything from the table;
 *	(b) the remover makes the thing unreachable, then moves the clock, then
 *	    runs a barrier in all threads, then reads the pins.
 *
 * By (a), (b) and the barrier, a reader whose pin is not seen finds the thing
 * unreachable.  Where the system has no such barrier, pins are exchanged
 * atomically instead, and table words are loaded in sequential order.
 *
 * References.  While a memory tier holds a blob, `blob->refs` carries a bias
 * that keeps it from zero and each thread counts for itself, in a word of its
 * slot, those that it took and has not dropped.  One that another thread took
 * is dropped in `refs`: a word that went below zero would stay taken, and so
 * end the quick way for all blobs of its place.  When the tier lets go, it
 * clears `blob->counter` (from then on references go to `refs`), waits a grace
 * period (no thread then touches its word for this blob any more), and moves
 * all words' counts and the bias to `refs` in one addition:
 *
 *	refs = own                    counter NULL
 *	  count_begin
 *	refs = own + BIAS + ...       counter set   words count
 *	  count_end
 *	refs = own + BIAS + ...       counter NULL  words frozen
 *	  grace period, count_finish
 *	refs = sum of all references  counter NULL  words 0
 *
 * Threads drop what they have counted by their word alone, without a look at
 * the blob, unless `n_ending` says that some counting is being ended: it is
 * raised before the grace period, so whoever read 0 is waited for.
 *
 * A word whose count is not zero is changed by its thread only for the blob
 * whose address it has; one whose count is zero is free for any.  So a frozen
 * word has one writer, whoever gathers it under the registry's mutex.
 *
 * fork().  The mutex is held over it.  The child has one thread: the other
 * slots are emptied, their counts moved to `refs`.  Their handles are left
 * alone: a list that was caught in the middle of a change is no list.
 */

#include "memory/near.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/tier.h>

#include "sys/sys.h"

#define BIAS ((size_t)1 << (sizeof(size_t) * 8 - 2))

/* Look for slots of the dead at most when this many are in use. */
#define CROWD_MIN 64

struct ki_slots ki_slots = { .epoch = 1 };
__thread struct ki_slot *ki_slot_mine;

/* A plain mutex: fork handlers of several modules run inside each other. */
static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t exit_key;
static int has_exit_key;

/* Under registry; slots are never freed, and `next` never changes. */
static struct ki_slot *_Atomic slots;
static size_t n_used;
static size_t crowd = CROWD_MIN;
static unsigned owners; /* a bit each */
static uint64_t retired_hits[KI_SLOT_OWNERS];
static uint64_t retired_looks[KI_SLOT_OWNERS][KI_SLOT_LOOKS];

/* ---- Slots ----------------------------------------------------------------- */

/* Move what the slot has counted to where it is not lost, and free it. */
static void empty_locked(struct ki_slot *slot)
{
	size_t i, l;

	for (i = 0; i < KI_SLOT_COUNTS; i++) {
		uint64_t word = atomic_load_explicit(&slot->counts[i],
						     memory_order_relaxed);
		struct kiln_blob *blob =
			(struct kiln_blob *)(uintptr_t)(word >> 16);

		if (word & KI_SLOT_COUNT_MAX)
			atomic_fetch_add(&blob->refs, word & KI_SLOT_COUNT_MAX);
		atomic_store_explicit(&slot->counts[i], 0,
				      memory_order_relaxed);
	}
	while (slot->n_handles)
		free(slot->handles[--slot->n_handles]);
	for (i = 0; i < KI_SLOT_OWNERS; i++) {
		retired_hits[i] += atomic_exchange(&slot->hits[i], 0);
		for (l = 0; l < KI_SLOT_LOOKS; l++)
			retired_looks[i][l] +=
				atomic_exchange(&slot->looks[i][l], 0);
	}
	atomic_store_explicit(&slot->pin, 0, memory_order_release);
	slot->thread = 0;
	n_used--;
}

static void thread_exits(void *arg)
{
	struct ki_slot *slot = arg;

	pthread_mutex_lock(&registry);
	empty_locked(slot);
	pthread_mutex_unlock(&registry);
	ki_slot_mine = NULL;
}

static void before_fork(void)
{
	pthread_mutex_lock(&registry);
}

static void after_fork_in_parent(void)
{
	pthread_mutex_unlock(&registry);
}

static void after_fork_in_child(void)
{
	struct ki_slot *slot;

	for (slot = slots; slot; slot = slot->next) {
		if (slot == ki_slot_mine || !slot->thread)
			continue;
		/* Caught at it, it may name one that is in use. */
		slot->n_handles = 0;
		empty_locked(slot);
	}
	if (ki_slot_mine)
		ki_slot_mine->thread = ki_thread_id();
	(void)ki_process_barrier_prepare();
	pthread_mutex_unlock(&registry);
}

static ki_blob_unref_fn drop;

static void install(void)
{
	has_exit_key = !pthread_key_create(&exit_key, thread_exits);
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
	atomic_store(&ki_slots.is_cheap, ki_process_barrier_prepare());
	atomic_store(&ki_blob_unref, drop);
}

void ki_slots_prepare(void)
{
	pthread_once(&once, install);
}

/*
 * A thread that ends without running its destructors (or uses kiln in the last
 * of them) leaves its slot behind.  Its number may be a new thread's: that one
 * takes the slot away when it wants one of its own.
 */
static void bury_dead_locked(void)
{
	struct ki_slot *slot;

	for (slot = slots; slot; slot = slot->next)
		if (slot->thread && !ki_thread_is_alive(slot->thread))
			empty_locked(slot);
	crowd = n_used * 2 > CROWD_MIN ? n_used * 2 : CROWD_MIN;
}

static struct ki_slot *take_locked(uint64_t thread)
{
	struct ki_slot *slot;

	if (n_used >= crowd)
		bury_dead_locked();
	for (slot = slots; slot; slot = slot->next)
		if (slot->thread == thread)
			empty_locked(slot);
	for (slot = slots; slot; slot = slot->next)
		if (!slot->thread)
			return slot;
	slot = aligned_alloc(_Alignof(struct ki_slot), sizeof(*slot));
	if (!slot)
		return NULL;
	memset(slot, 0, sizeof(*slot));
	slot->next = slots;
	atomic_store_explicit(&slots, slot, memory_order_release);
	return slot;
}

static struct ki_slot *new_slot(void)
{
	uint64_t thread = ki_thread_id();
	struct ki_slot *slot;

	pthread_once(&once, install);
	if (!has_exit_key)
		return NULL;
	pthread_mutex_lock(&registry);
	slot = take_locked(thread);
	if (slot) {
		slot->thread = thread;
		n_used++;
	}
	pthread_mutex_unlock(&registry);
	if (slot && pthread_setspecific(exit_key, slot)) {
		thread_exits(slot);
		slot = NULL;
	}
	return slot;
}

struct ki_slot *ki_slot_get(void)
{
	if (!ki_slot_mine)
		ki_slot_mine = new_slot();
	return ki_slot_mine;
}

struct ki_slot *ki_slot_enter(void)
{
	struct ki_slot *slot = ki_slot_get();

	if (slot)
		ki_slot_pin(slot);
	return slot;
}

size_t ki_slots_n_used(void)
{
	size_t n;

	pthread_mutex_lock(&registry);
	n = n_used;
	pthread_mutex_unlock(&registry);
	return n;
}

/* ---- Grace periods --------------------------------------------------------- */

uint64_t ki_slots_retire(void)
{
	return atomic_fetch_add(&ki_slots.epoch, 1);
}

/*
 * A barrier that is denied later (by a filter that the program installed
 * meanwhile) makes pins dear from now on; by the next try no cheap one can be
 * on its way to memory any more.
 */
static int barrier(void)
{
	if (!atomic_load(&ki_slots.is_cheap) || !ki_process_barrier())
		return 1;
	atomic_store(&ki_slots.is_cheap, 0);
	return 0;
}

uint64_t ki_slots_passed(void)
{
	uint64_t oldest = atomic_load(&ki_slots.epoch);
	struct ki_slot *slot;

	if (!barrier())
		return 0;
	for (slot = atomic_load(&slots); slot; slot = slot->next) {
		uint64_t pin = atomic_load(&slot->pin);

		if (pin && pin < oldest)
			oldest = pin;
	}
	return oldest;
}

void ki_slots_wait(void)
{
	uint64_t tag = ki_slots_retire();

	while (ki_slots_passed() <= tag)
		ki_thread_yield();
}

/* ---- Handles ------------------------------------------------------------- */

static void release_holder(void *arg)
{
	ki_blob_drop(arg, 1);
}

struct kiln_blob *ki_slot_handle_new(void)
{
	struct kiln_blob *handle;

	return kiln_blob_wrap(NULL, 0, release_holder, NULL, &handle) ? NULL
								      : handle;
}

/* ---- Blobs that are counted by threads ------------------------------------- */

/* Within a pin. */
static int is_counted(const struct kiln_blob *blob)
{
	return atomic_load_explicit(&blob->counter, memory_order_acquire) !=
	       NULL;
}

static void count(struct kiln_blob *blob)
{
	struct ki_slot *slot = ki_slot_enter();
	int done = slot && is_counted(blob) &&
		   ki_slot_take(slot, ki_slot_place(blob), blob);

	if (slot)
		ki_slot_leave(slot);
	if (!done)
		atomic_fetch_add(&blob->refs, 1);
}

__attribute__((noinline, cold)) static void drop_slowly(struct kiln_blob *blob)
{
	struct ki_slot *slot;
	int done;

	if (!blob)
		return;
	slot = ki_slot_enter();
	done = slot && is_counted(blob) && ki_slot_drop(slot, blob);
	if (slot)
		ki_slot_leave(slot);
	if (!done)
		ki_blob_drop(blob, 1);
}

/* A handle that nobody else has is kept for the next value. */
static inline void drop_uncounted(struct ki_slot *slot, struct kiln_blob *blob)
{
	struct kiln_blob *holder = blob->arg;

	if (blob->release != release_holder ||
	    slot->n_handles + 1 > KI_HANDLES_KEPT ||
	    atomic_load_explicit(&blob->refs, memory_order_acquire) != 1) {
		ki_blob_drop(blob, 1);
		return;
	}
	slot->handles[slot->n_handles++] = blob;
	ki_blob_drop(holder, 1);
}

/*
 * A reference that this thread has counted is dropped without a look at the
 * blob, which would be the first and only one on the way of a hit.  While any
 * counting is being ended, which may be this blob's, there is no such way.
 */
static void drop(struct kiln_blob *blob)
{
	struct ki_slot *slot = ki_slot_mine;
	int done, is_ending;

	if (__builtin_expect(!slot, 0)) {
		drop_slowly(blob);
		return;
	}
	ki_slot_pin(slot);
	is_ending = !!atomic_load(&ki_slots.n_ending);
	done = !is_ending && ki_slot_drop(slot, blob);
	ki_slot_leave(slot);
	if (__builtin_expect(done, 1))
		return;
	if (is_ending)
		drop_slowly(blob);
	else if (blob)
		drop_uncounted(slot, blob);
}

/* The bias also says that an earlier counting has not been finished yet. */
int ki_slots_count_begin(struct kiln_blob *blob)
{
	size_t refs = atomic_load(&blob->refs);

	if ((uint64_t)(uintptr_t)blob >> 48)
		return 0;
	do {
		if (refs >= BIAS / 2)
			return 0;
	} while (
		!atomic_compare_exchange_weak(&blob->refs, &refs, refs + BIAS));
	atomic_store(&blob->counter, count);
	return 1;
}

void ki_slots_count_end(struct kiln_blob *blob)
{
	atomic_fetch_add(&ki_slots.n_ending, 1);
	atomic_store(&blob->counter, NULL);
}

static size_t gather_locked(const struct kiln_blob *blob)
{
	uint64_t none = ki_slot_none(blob);
	size_t place = ki_slot_place(blob), sum = 0;
	struct ki_slot *slot;

	for (slot = slots; slot; slot = slot->next) {
		uint64_t word = atomic_load_explicit(&slot->counts[place],
						     memory_order_relaxed);

		if (word - none - 1 >= KI_SLOT_COUNT_MAX)
			continue;
		sum += word - none;
		atomic_store_explicit(&slot->counts[place], 0,
				      memory_order_relaxed);
	}
	return sum;
}

void ki_slots_count_finish(struct kiln_blob *const *blobs, size_t n_blobs)
{
	size_t i;

	pthread_mutex_lock(&registry);
	for (i = 0; i < n_blobs; i++)
		atomic_fetch_add(&blobs[i]->refs, gather_locked(blobs[i]));
	atomic_fetch_sub(&ki_slots.n_ending, (unsigned)n_blobs);
	pthread_mutex_unlock(&registry);
	for (i = 0; i < n_blobs; i++)
		ki_blob_drop(blobs[i], BIAS + 1);
}

/* ---- Hits ------------------------------------------------------------------ */

int ki_slots_owner_new(void)
{
	int owner = -1, i;

	pthread_mutex_lock(&registry);
	for (i = 0; i < KI_SLOT_OWNERS && owner < 0; i++)
		if (!(owners & 1u << i))
			owner = i;
	if (owner >= 0)
		owners |= 1u << owner;
	pthread_mutex_unlock(&registry);
	return owner;
}

/* Nobody uses the owner any more: its columns are nobody's. */
void ki_slots_owner_free(int owner)
{
	struct ki_slot *slot;
	size_t l;

	if (owner < 0)
		return;
	pthread_mutex_lock(&registry);
	for (slot = slots; slot; slot = slot->next) {
		atomic_store(&slot->hits[owner], 0);
		for (l = 0; l < KI_SLOT_LOOKS; l++)
			atomic_store(&slot->looks[owner][l], 0);
	}
	retired_hits[owner] = 0;
	memset(retired_looks[owner], 0, sizeof(retired_looks[owner]));
	owners &= ~(1u << owner);
	pthread_mutex_unlock(&registry);
}

uint64_t ki_slots_hits(int owner)
{
	struct ki_slot *slot;
	uint64_t sum;

	if (owner < 0)
		return 0;
	pthread_mutex_lock(&registry);
	sum = retired_hits[owner];
	for (slot = slots; slot; slot = slot->next)
		sum += atomic_load_explicit(&slot->hits[owner],
					    memory_order_relaxed);
	pthread_mutex_unlock(&registry);
	return sum;
}

uint64_t ki_slots_looks(int owner, enum ki_look what)
{
	struct ki_slot *slot;
	uint64_t sum;

	if (owner < 0)
		return 0;
	pthread_mutex_lock(&registry);
	sum = retired_looks[owner][what];
	for (slot = slots; slot; slot = slot->next)
		sum += atomic_load_explicit(&slot->looks[owner][what],
					    memory_order_relaxed);
	pthread_mutex_unlock(&registry);
	return sum;
}

/* ---- For tiers ------------------------------------------------------------- */

uint64_t kiln_tier_retire(void)
{
	return ki_slots_retire();
}

int kiln_tier_passed(uint64_t tag)
{
	return tag < ki_slots_passed();
}
