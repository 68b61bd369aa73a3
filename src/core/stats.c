/* SPDX-License-Identifier: MIT */

/*
 * Counters, and what is done once a second by whichever call comes by.
 *
 * Events are counted in stripes, so that threads rarely meet on a line; hits
 * in memory are counted by the memory tier, in each thread's slot.  What was
 * counted since the last flush goes to the store's counters at most once a
 * second, and at closing.
 *
 * A guest is never closed, and its program may be killed at any moment.  Builds
 * take milliseconds, so whatever comes with one is flushed by the call that
 * counted it; hits are for a second, or 256 of them, or exit() (exit.c).
 *
 * Memory.  If the cgroup's memory in use passes 90 percent of its limit, the
 * memory tier is halved, at most once in 10 s, and never below an eighth of
 * its bound.
 */

#include "core/cache.h"

#include <string.h>

#include "base/hash.h"

#define PERCENT_MAX 90
#define HALVING_NS  ((uint64_t)10 * 1000000000)
#define UNBOUNDED   ((uint64_t)64 << 20) /* stands for no bound */
#define WAITING_MAX 256			 /* calls of a guest */

/* What is counted with a hit. */
#define OF_HITS                                                                \
	((uint64_t)1 << KILN_COUNT_HITS_MEMORY |                               \
	 (uint64_t)1 << KILN_COUNT_HITS_STORE |                                \
	 (uint64_t)1 << KILN_COUNT_HITS_PACK |                                 \
	 (uint64_t)1 << KILN_COUNT_HITS_REMOTE |                               \
	 (uint64_t)1 << KILN_COUNT_REMOTE_WAIT_NS |                            \
	 (uint64_t)1 << KILN_COUNT_BYTES_READ |                                \
	 (uint64_t)1 << KILN_COUNT_SAVED_NS)

static const char *const names[KILN_N_COUNTERS] = {
#define NAME(name, json, words) [KILN_COUNT_##name] = json,
	KILN_COUNTERS(NAME)
#undef NAME
};

static const char *const words_of[KILN_N_COUNTERS] = {
#define WORDS(name, json, words) [KILN_COUNT_##name] = words,
	KILN_COUNTERS(WORDS)
#undef WORDS
};

const char *kiln_counter_name(unsigned counter)
{
	return counter < KILN_N_COUNTERS ? names[counter] : NULL;
}

const char *kiln_counter_words(unsigned counter)
{
	return counter < KILN_N_COUNTERS ? words_of[counter] : NULL;
}

void ki_kiln_count(struct kiln *kiln, enum kiln_counter counter, uint64_t n)
{
	/* Threads have slots of their own. */
	uint64_t place =
		(uint64_t)(uintptr_t)ki_slot_get() * 0x9e3779b97f4a7c15u >> 61;

	if (!n)
		return;
	atomic_fetch_add_explicit(
		&kiln->stripes[place % KI_STRIPES].counters[counter], n,
		memory_order_relaxed);
	if ((kiln->flags & KILN_OPEN_GUEST) && !(OF_HITS >> counter & 1))
		atomic_store(&kiln->is_urgent, 1);
}

static void sum(struct kiln *kiln, uint64_t out[KILN_N_COUNTERS])
{
	for (size_t c = 0; c < KILN_N_COUNTERS; c++) {
		out[c] = 0;
		for (size_t i = 0; i < KI_STRIPES; i++)
			out[c] += atomic_load_explicit(
				&kiln->stripes[i].counters[c],
				memory_order_relaxed);
	}
	out[KILN_COUNT_HITS_MEMORY] += ki_memory_hits(kiln->memory);
	out[KILN_COUNT_HITS_STORE] +=
		ki_memory_looks(kiln->memory, KI_LOOK_HITS);
	out[KILN_COUNT_MISSES] += ki_memory_looks(kiln->memory, KI_LOOK_MISSES);
	out[KILN_COUNT_BYTES_READ] +=
		ki_memory_looks(kiln->memory, KI_LOOK_BYTES);
	out[KILN_COUNT_SAVED_NS] +=
		ki_memory_looks(kiln->memory, KI_LOOK_SAVED_NS);
	out[KILN_COUNT_WAITED] += ki_memory_waited(kiln->memory);
}

/* They count as not flushed: the next flush brings them, soon. */
static void keep(struct kiln *kiln, const uint64_t deltas[KILN_N_COUNTERS])
{
	ki_mutex_lock(&kiln->stats_mutex);
	for (size_t c = 0; c < KILN_N_COUNTERS; c++)
		kiln->flushed[c] -= deltas[c];
	ki_mutex_unlock(&kiln->stats_mutex);
	atomic_store(&kiln->is_urgent, 1);
}

void ki_kiln_flush(struct kiln *kiln)
{
	struct kiln_tier *store = kiln->has_store ? kiln->tiers[0] : NULL;
	uint64_t now[KILN_N_COUNTERS], deltas[KILN_N_COUNTERS], any = 0;

	if (!store || !store->ops->count || !ki_kiln_writes(kiln))
		return;
	ki_mutex_lock(&kiln->stats_mutex);
	sum(kiln, now);
	for (size_t c = 0; c < KILN_N_COUNTERS; c++) {
		deltas[c] = now[c] - kiln->flushed[c];
		kiln->flushed[c] = now[c];
		any |= deltas[c];
	}
	ki_mutex_unlock(&kiln->stats_mutex);
	if (any && store->ops->count(store, deltas) == KILN_E_TIMEOUT)
		keep(kiln, deltas);
}

/* Whether `next` has come, for one caller; it is then moved by `period`. */
static int claim(_Atomic uint64_t *next, uint64_t now, uint64_t period)
{
	uint64_t due = atomic_load(next);

	return now >= due &&
	       atomic_compare_exchange_strong(next, &due, now + period);
}

static void tick_as_guest(struct kiln *kiln)
{
	const uint64_t now = ki_sys_posix.coarse_ns(&ki_sys_posix);
	const int is_second = claim(&kiln->next_tick_ns, now, KI_TICK_NS);

	if (is_second)
		ki_kiln_doubt_quotas(kiln);
	if (!is_second && !atomic_load(&kiln->is_urgent) &&
	    atomic_load(&kiln->is_patient) &&
	    atomic_fetch_add(&kiln->n_waiting, 1) < WAITING_MAX - 1)
		return;
	atomic_store(&kiln->n_waiting, 0);
	atomic_store(&kiln->is_urgent, 0);
	ki_kiln_flush(kiln);
}

void ki_kiln_relieve(struct kiln *kiln, int percent, uint64_t now)
{
	uint64_t bound =
		kiln->memory_bytes_max ? kiln->memory_bytes_max : UNBOUNDED;
	uint64_t bytes, n_entries;

	if (percent <= PERCENT_MAX ||
	    !claim(&kiln->next_halving_ns, now, HALVING_NS))
		return;
	ki_memory_size(kiln->memory, &bytes, &n_entries);
	ki_memory_trim(kiln->memory,
		       bytes / 2 > bound / 8 ? bytes / 2 : bound / 8);
	ki_kiln_log(kiln, KILN_LOG_NOTE,
		    "memory is short: the memory tier is halved");
}

/* What is found in memory does not lead to the store, and a store that was
   removed whole says nothing by itself: let it look where its path leads. */
static void let_store_look(struct kiln *kiln)
{
	struct kiln_tier *store = ki_kiln_store(kiln);

	if (store && store->ops->prefetch)
		store->ops->prefetch(store, NULL, 0);
}

/* What a busy helper could not be told is told by now, whether or not it is asked
   anything. */
static void let_remote_speak(struct kiln *kiln)
{
	struct kiln_tier *tier;

	if (!kiln->remote)
		return;
	tier = ki_remote_tier(kiln->remote);
	tier->ops->prefetch(tier, NULL, 0);
}

void ki_kiln_tick(struct kiln *kiln)
{
	uint64_t now;

	if (kiln->flags & KILN_OPEN_GUEST) {
		tick_as_guest(kiln);
		return;
	}
	if (atomic_load_explicit(&kiln->attention, memory_order_relaxed))
		ki_kiln_calm(kiln);
	now = ki_sys_posix.coarse_ns(&ki_sys_posix);
	if (!claim(&kiln->next_tick_ns, now, KI_TICK_NS))
		return;
	ki_kiln_doubt_quotas(kiln);
	ki_kiln_flush(kiln);
	let_store_look(kiln);
	let_remote_speak(kiln);
	ki_kiln_relieve(kiln, ki_cgroup_memory_percent(&ki_sys_posix), now);
}

/* ---- Public ---------------------------------------------------------------- */

enum kiln_status kiln_stats(struct kiln *kiln, struct kiln_stats *out_stats)
{
	struct kiln_stats stats;
	enum kiln_status status;

	if (!out_stats || out_stats->size < sizeof(stats.size))
		return KILN_E_INVALID;
	status = ki_kiln_enter(kiln);
	if (status)
		return status;
	kiln_stats_init(&stats);
	ki_memory_size(kiln->memory, &stats.memory_bytes,
		       &stats.memory_entries);
	stats.n_counters = KILN_N_COUNTERS;
	sum(kiln, stats.counters);
	if (out_stats->size < stats.size)
		stats.size = out_stats->size;
	memcpy(out_stats, &stats, stats.size);
	ki_kiln_leave(kiln);
	return KILN_OK;
}

void kiln_count(struct kiln *kiln, enum kiln_counter counter, uint64_t n)
{
	if ((unsigned)counter >= KILN_N_COUNTERS || ki_kiln_enter(kiln))
		return;
	ki_kiln_count(kiln, counter, n);
	/* A front that builds by itself says so here. */
	if (kiln->remote && counter == KILN_COUNT_BUILD_NS)
		ki_remote_note_build(kiln->remote, n);
	ki_kiln_tick(kiln);
	ki_kiln_leave(kiln);
}

void kiln_trim(struct kiln *kiln, uint64_t memory_bytes)
{
	if (ki_kiln_enter(kiln))
		return;
	ki_memory_trim(kiln->memory, memory_bytes);
	ki_kiln_leave(kiln);
}
