/* SPDX-License-Identifier: MIT */

/* The hot path with a compare of 32 bytes at once: nothing here may run before
   cache.c has asked the processor. */

#define KI_TABLE_WIDE
#include "core/hot.h"

#if defined(__x86_64__)
enum kiln_status ki_wide_get_or_build(struct kiln *kiln,
				      const struct kiln_key *key,
				      kiln_build_fn *build, void *arg,
				      struct kiln_build_result *result,
				      struct ki_slot *slot)
{
	return ki_hot_get_or_build(kiln, key, build, arg, result, slot);
}
#endif
