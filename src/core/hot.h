/* SPDX-License-Identifier: MIT */
#ifndef KI_CORE_HOT_H
#define KI_CORE_HOT_H

/*
 * The hot path, for cache.c and, once more for processors that compare 32 bytes
 * at once, for hot_wide.c.  It saves no registers and calls nothing: entry.c
 * has found the thread's slot.  The fewer the instructions, the more hits are in
 * the air at once while the memory of each is waited for.
 */

#include "core/cache.h"
#include "key/key.h"
#include "memory/find.h"

#define KI_HOT __attribute__((always_inline)) static inline

/* kiln_get_or_build(), by a thread whose slot this is; NULL: it is new. */
typedef enum kiln_status ki_get_or_build_fn(struct kiln *kiln,
					    const struct kiln_key *key,
					    kiln_build_fn *build, void *arg,
					    struct kiln_build_result *result,
					    struct ki_slot *slot);

/* Whatever is not a hit of the plainest kind; the slot is pinned by whoever
   calls this, if the thread has one. */
ki_get_or_build_fn ki_get_or_build_slowly;

/* Where the store is asked from within the pin; the arguments are checked. */
ki_get_or_build_fn ki_get_or_build_by_glance;

/* One function twice.  The latter only where ki_wide_is_there(). */
ki_get_or_build_fn ki_get_or_build, ki_wide_get_or_build;

/* What kiln_get_or_build() goes on to, and who chooses it. */
#pragma GCC visibility push(hidden)
extern ki_get_or_build_fn *_Atomic ki_get_or_build_chosen;
#pragma GCC visibility pop
void ki_get_or_build_choose(void);

/* The same for kiln_get(). */
enum kiln_status ki_get(struct kiln *kiln, const struct kiln_key *key,
			struct kiln_blob **out_blob, struct ki_slot *slot);

KI_HOT int ki_is_forked(const struct kiln *kiln)
{
	return atomic_load_explicit(&ki_fork_counter, memory_order_relaxed) !=
	       kiln->fork_counter;
}

static inline uint64_t ki_generation_of(const struct kiln_tier *tier)
{
	const uint64_t *place =
		__atomic_load_n(&tier->generation, __ATOMIC_ACQUIRE);

	return place ? __atomic_load_n(place, __ATOMIC_ACQUIRE) : 0;
}

static inline int ki_is_current(struct kiln *kiln)
{
	size_t i = 0, n = kiln->n_tiers;

	if (__builtin_expect(!n, 1))
		return 1;
	for (; i < n; i++)
		if (ki_generation_of(kiln->tiers[i]) !=
		    atomic_load_explicit(&kiln->seen[i], memory_order_relaxed))
			return 0;
	return 1;
}

/* What a look-up may be asked with: KILN_OK, INVALID, FORKED. */
KI_HOT enum kiln_status ki_hot_check(const struct kiln *kiln,
				     const struct kiln_key *key)
{
	if (__builtin_expect(!kiln || !key || !key->finished, 0))
		return KILN_E_INVALID;
	return __builtin_expect(ki_is_forked(kiln), 0) ? KILN_E_FORKED
						       : KILN_OK;
}

/*
 * A look at the memory tier.  KILN_MISS: or something asks for attention, or
 * the thread is new here (no slot); the caller enters and asks again.
 *
 * A closing kiln is found out under the pin; the pin is held until the kiln is
 * not touched any more, or `calls` says that somebody is there.
 */
KI_HOT enum kiln_status ki_hot_look(struct kiln *kiln,
				    const struct kiln_key *key,
				    struct ki_slot *slot,
				    struct kiln_blob **out_blob)
{
	if (__builtin_expect(!slot, 0))
		return KILN_MISS;
	ki_slot_pin(slot);
	if (__builtin_expect(atomic_load_explicit(&kiln->attention,
						  memory_order_acquire),
			     0) ||
	    !ki_is_current(kiln) ||
	    ki_memory_find(kiln->memory, key, slot, out_blob))
		return KILN_MISS;
	ki_slot_leave(slot);
	return KILN_OK;
}

KI_HOT void ki_hand_out_hit(struct kiln_build_result *result,
			    struct kiln_blob *blob, enum kiln_source source)
{
	result->kind = KILN_BUILD_OK;
	result->code = 0;
	result->message = NULL;
	result->blob = blob;
	result->metadata = NULL;
	result->source = source;
}

KI_HOT enum kiln_status ki_hot_get_or_build(struct kiln *kiln,
					    const struct kiln_key *key,
					    kiln_build_fn *build, void *arg,
					    struct kiln_build_result *result,
					    struct ki_slot *slot)
{
	struct {
		const struct kiln_key *key;
		kiln_build_fn *build;
		void *arg;
	} kept = { key, build, arg };
	enum kiln_status status = ki_hot_check(kiln, key);
	struct kiln_blob *blob;

	if (__builtin_expect(status || !build || !result, 0))
		return status ? status : KILN_E_INVALID;
	if (__builtin_expect(kiln->glances, 0))
		return ki_get_or_build_by_glance(kiln, key, build, arg, result,
						 slot);
	/* In memory and not in registers, of which a hit needs all. */
	__asm__("" : "+m"(kept));
	if (__builtin_expect(ki_hot_look(kiln, key, slot, &blob), 0))
		return ki_get_or_build_slowly(kiln, kept.key, kept.build,
					      kept.arg, result, slot);
	ki_hand_out_hit(result, blob, KILN_FROM_MEMORY);
	return KILN_OK;
}

#endif /* KI_CORE_HOT_H */
