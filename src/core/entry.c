/* SPDX-License-Identifier: MIT */

/*
 * Where hits come in: the thread's slot is looked up here, in a file that is
 * compiled for that (memory/near.h), and handed on to cache.c.
 */

#include "core/hot.h"
#include "memory/near.h"

enum kiln_status kiln_get_or_build(struct kiln *kiln,
				   const struct kiln_key *key,
				   kiln_build_fn *build, void *arg,
				   struct kiln_build_result *result)
{
	ki_get_or_build_fn *chosen = atomic_load_explicit(
		&ki_get_or_build_chosen, memory_order_relaxed);

	return chosen(kiln, key, build, arg, result, ki_slot_mine);
}

enum kiln_status kiln_get(struct kiln *kiln, const struct kiln_key *key,
			  struct kiln_blob **out_blob)
{
	return ki_get(kiln, key, out_blob, ki_slot_mine);
}
