/* SPDX-License-Identifier: MIT */
#ifndef KI_MEMORY_MEMORY_H
#define KI_MEMORY_MEMORY_H

/*
 * The memory tier: values by key, and flights.  A flight is one thread at work
 * on a key while others wait for its result (single flight).
 *
 * It does not know that disks exist.
 */

#include <kiln/kiln.h>

#include "key/key.h"

struct ki_memory;
struct ki_flight;

struct ki_memory_options {
	uint64_t bytes_max;	/* 0: no bound */
	uint64_t entries_max;	/* 0: no bound */
	int hold_nothing;	/* flights only: every look-up misses */
	enum kiln_failure_policy failure_policy;
	uint64_t failure_ttl_ms;
};

/* KILN_E_NO_MEMORY. */
enum kiln_status ki_memory_new(const struct ki_memory_options *options,
			       struct ki_memory **out_memory);
void ki_memory_free(struct ki_memory *memory);

/*
 * Begin the use of a key:
 *   KILN_OK       *out_result is filled (hit, kept failure, or the result of a
 *                 flight that was waited for; a failed one has another kind
 *                 than KILN_BUILD_OK)
 *   KILN_MISS     this thread leads: *out_flight must be given to
 *                 ki_memory_finish(), or NULL for a nested call that must not
 *                 wait and builds for itself
 *   KILN_E_INVALID  the key is being built by this very thread further up
 */
enum kiln_status ki_memory_begin(struct ki_memory *memory,
				 const struct kiln_key *key,
				 struct kiln_build_result *out_result,
				 struct ki_flight **out_flight);

/*
 * End a flight: waiters get the result (each its own reference), and it is
 * kept by policy.  `result` stays the caller's.  `status` below 0 (no memory,
 * say) makes the waiters try for themselves.
 */
void ki_memory_finish(struct ki_memory *memory, struct ki_flight *flight,
		      enum kiln_status status,
		      const struct kiln_build_result *result);

/* KILN_OK or KILN_MISS; never waits. */
enum kiln_status ki_memory_get(struct ki_memory *memory,
			       const struct kiln_key *key,
			       struct kiln_blob **out_blob);

/* Keep a value, replacing what is there.  Failing is not worth telling. */
void ki_memory_put(struct ki_memory *memory, const struct kiln_key *key,
		   struct kiln_blob *blob);

/* KILN_OK or KILN_MISS. */
enum kiln_status ki_memory_remove(struct ki_memory *memory,
				  const struct kiln_key *key);
void ki_memory_wipe(struct ki_memory *memory);

/* Drop entries until at most this many bytes are held. */
void ki_memory_trim(struct ki_memory *memory, uint64_t bytes);

/* Drop the entries whose blob the predicate no longer wants. */
typedef int ki_memory_keep_fn(void *arg, const struct kiln_blob *blob);
void ki_memory_sweep(struct ki_memory *memory, ki_memory_keep_fn *keep,
		     void *arg);

void ki_memory_size(struct ki_memory *memory, uint64_t *out_bytes,
		    uint64_t *out_entries);

#endif /* KI_MEMORY_MEMORY_H */
