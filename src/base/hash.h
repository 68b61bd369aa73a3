/* SPDX-License-Identifier: MIT */
#ifndef KI_BASE_HASH_H
#define KI_BASE_HASH_H

/*
 * XXH3 finds and checks: fast, no defence against someone who chooses the
 * bytes, which is why every hit compares whole key records.  BLAKE2b-256
 * stands for bytes that are not kept.
 */

#include <stddef.h>
#include <stdint.h>

#define KI_BLAKE2B_BYTES 32

uint64_t ki_xxh3_64(const void *data, size_t size);

/* Big-endian, as xxHash writes it (XXH128_canonical_t). */
void ki_xxh3_128(const void *data, size_t size, uint8_t out[16]);

/* XXH3-64 of several pieces as if they were one. */
struct ki_piece {
	const void *data;
	size_t size;
};
uint64_t ki_xxh3_64_pieces(const struct ki_piece *pieces, size_t n_pieces);

void ki_blake2b(const void *data, size_t size, uint8_t out[KI_BLAKE2B_BYTES]);
void ki_blake2b_pieces(const struct ki_piece *pieces, size_t n_pieces,
		       uint8_t out[KI_BLAKE2B_BYTES]);

/* 2 * size digits and a NUL. */
void ki_hex(const uint8_t *data, size_t size, char *out);

#endif /* KI_BASE_HASH_H */
