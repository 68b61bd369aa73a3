/* SPDX-License-Identifier: MIT */

#include "store/evict.h"

#include <stdlib.h>

#include <kiln/kiln.h>

uint64_t ki_evict_build_ns(const void *metadata, size_t metadata_size)
{
	uint64_t build_ns;

	if (kiln_metadata_find_u64(metadata, metadata_size,
				   KILN_META_BUILD_TIME, &build_ns) ||
	    build_ns > KI_EVICT_BUILD_NS_MAX)
		return 0;
	return build_ns;
}

static int by_last_use(const void *a, const void *b)
{
	const struct ki_evictable *x = a, *y = b;

	if (x->used_ns != y->used_ns)
		return x->used_ns < y->used_ns ? -1 : 1;
	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	return 0;
}

size_t ki_evict_choose(struct ki_evictable *entries, size_t n,
		       uint64_t bytes_max, int64_t used_before_ns)
{
	uint64_t bytes = 0;
	size_t i;

	if (!n)
		return 0;
	qsort(entries, n, sizeof(*entries), by_last_use);
	for (i = 0; i < n; i++)
		bytes += entries[i].bytes;
	for (i = 0; i < n; i++) {
		if (bytes <= bytes_max && entries[i].used_ns >= used_before_ns)
			break;
		bytes -= entries[i].bytes;
	}
	return i;
}
