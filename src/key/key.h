/* SPDX-License-Identifier: MIT */
#ifndef KI_KEY_KEY_H
#define KI_KEY_KEY_H

/*
 * The inside of a key.  The record's bytes (docs/formats/key.md):
 *
 *	"KK" version:u8 flags:u8 (bit 0: has local fields)
 *	then for each field
 *	kind:u8 (bit 7: local) label_size:u8 zero:u16 size:u32 label data
 *
 * little-endian, nothing aligned.  A digest field's data is the original's
 * size as u64 and 32 bytes of BLAKE2b-256.
 */

#include <stdatomic.h>

#include <kiln/inspect.h>
#include <kiln/kiln.h>

#include "base/bytes.h"

#define KI_KEY_VERSION	    1
#define KI_KEY_HEADER_BYTES 4

/* In one cache line: what a look-up in memory reads. */
struct kiln_key {
	_Alignas(64) struct ki_bytes record;
	uint64_t digest_low;  /* first 8 bytes of digest, as a number */
	uint64_t digest_high; /* last 8 */
	int finished;
	enum kiln_status failed;
	uint8_t digest[KILN_DIGEST_BYTES];
	_Atomic size_t refs;
};

/* Whether a record is well formed.  KILN_OK or KILN_E_FORMAT. */
enum kiln_status ki_record_check(const void *record, size_t size);

/* The two halves of a digest as numbers. */
uint64_t ki_digest_low(const uint8_t digest[KILN_DIGEST_BYTES]);
uint64_t ki_digest_high(const uint8_t digest[KILN_DIGEST_BYTES]);

/* The canonical bytes of metadata (NULL: empty); KILN_E_NO_MEMORY or
   KILN_E_TOO_LARGE if adding went wrong.  Live as long as `metadata`. */
enum kiln_status ki_metadata_bytes(const struct kiln_metadata *metadata,
				   const void **out_bytes, size_t *out_size);

#endif /* KI_KEY_KEY_H */
