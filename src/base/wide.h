/* SPDX-License-Identifier: MIT */
#ifndef KI_BASE_WIDE_H
#define KI_BASE_WIDE_H

/*
 * XXH3 once more, compiled for processors with AVX2: the same values, more
 * than twice as fast over long runs of bytes.  hash.c chooses.
 */

#include "base/hash.h"

/* Whether this build has it. */
extern const int ki_wide_is_compiled;

/* Whether this build and this processor have it: only then may the others be
   called.  Defined in hash.c, which is compiled for any processor. */
int ki_wide_is_there(void);

uint64_t ki_wide_xxh3_64(const void *data, size_t size);
void ki_wide_xxh3_128(const void *data, size_t size, uint8_t out[16]);
uint64_t ki_wide_xxh3_64_pieces(const struct ki_piece *pieces, size_t n_pieces);

#endif /* KI_BASE_WIDE_H */
