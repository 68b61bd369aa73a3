/* SPDX-License-Identifier: MIT */

#include "base/hash.h"

#include <sodium.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t ki_xxh3_64(const void *data, size_t size)
{
	return XXH3_64bits(data, size);
}

void ki_xxh3_128(const void *data, size_t size, uint8_t out[16])
{
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, size));
	memcpy(out, canonical.digest, 16);
}

uint64_t ki_xxh3_64_pieces(const struct ki_piece *pieces, size_t n_pieces)
{
	XXH3_state_t state;
	size_t i;

	XXH3_64bits_reset(&state);
	for (i = 0; i < n_pieces; i++)
		XXH3_64bits_update(&state, pieces[i].data, pieces[i].size);
	return XXH3_64bits_digest(&state);
}

void ki_blake2b(const void *data, size_t size, uint8_t out[KI_BLAKE2B_BYTES])
{
	struct ki_piece piece = { data, size };

	ki_blake2b_pieces(&piece, 1, out);
}

void ki_blake2b_pieces(const struct ki_piece *pieces, size_t n_pieces,
		       uint8_t out[KI_BLAKE2B_BYTES])
{
	crypto_generichash_blake2b_state state;
	size_t i;

	crypto_generichash_blake2b_init(&state, NULL, 0, KI_BLAKE2B_BYTES);
	for (i = 0; i < n_pieces; i++)
		crypto_generichash_blake2b_update(&state, pieces[i].data,
						  pieces[i].size);
	crypto_generichash_blake2b_final(&state, out, KI_BLAKE2B_BYTES);
}

void ki_hex(const uint8_t *data, size_t size, char *out)
{
	static const char digits[] = "0123456789abcdef";
	size_t i;

	for (i = 0; i < size; i++) {
		out[2 * i] = digits[data[i] >> 4];
		out[2 * i + 1] = digits[data[i] & 15];
	}
	out[2 * size] = '\0';
}
