/* SPDX-License-Identifier: MIT */
#ifndef KI_BASE_XXH3_H
#define KI_BASE_XXH3_H

/*
 * The three shapes in which we use XXH3, for hash.c and wide.c, which are
 * compiled for different processors.  Static, as all of xxHash is here.
 */

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/hash.h"

static inline uint64_t xxh3_64(const void *data, size_t size)
{
	return XXH3_64bits(data, size);
}

static inline void xxh3_128(const void *data, size_t size, uint8_t out[16])
{
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, size));
	memcpy(out, canonical.digest, 16);
}

static inline uint64_t xxh3_64_pieces(const struct ki_piece *pieces,
				      size_t n_pieces)
{
	XXH3_state_t state;
	size_t i;

	XXH3_64bits_reset(&state);
	for (i = 0; i < n_pieces; i++)
		XXH3_64bits_update(&state, pieces[i].data, pieces[i].size);
	return XXH3_64bits_digest(&state);
}

#endif /* KI_BASE_XXH3_H */
