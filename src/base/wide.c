/* SPDX-License-Identifier: MIT */

/* Compiled with -mavx2 where there is such a thing (meson.build): nothing here
   may run before hash.c has asked the processor. */

#include "base/wide.h"

#include "base/xxh3.h"

#if defined(__AVX2__)
const int ki_wide_is_compiled = 1;
#else
const int ki_wide_is_compiled = 0;
#endif

uint64_t ki_wide_xxh3_64(const void *data, size_t size)
{
	return xxh3_64(data, size);
}

void ki_wide_xxh3_128(const void *data, size_t size, uint8_t out[16])
{
	xxh3_128(data, size, out);
}

uint64_t ki_wide_xxh3_64_pieces(const struct ki_piece *pieces, size_t n_pieces)
{
	return xxh3_64_pieces(pieces, n_pieces);
}
