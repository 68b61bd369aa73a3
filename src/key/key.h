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

#include <assert.h>
#include <stdatomic.h>

#include <kiln/inspect.h>
#include <kiln/kiln.h>

#include "base/bytes.h"

#define KI_KEY_VERSION	    1
#define KI_KEY_HEADER_BYTES 4

#define KI_KEY_INSIDE_BYTES 224

/* In one cache line what a look-up in memory reads, and then the record. */
struct kiln_key {
	_Alignas(64) struct ki_bytes record;
	uint64_t digest_low;  /* first 8 bytes of digest, as a number */
	uint64_t digest_high; /* last 8 */
	uint32_t finished;
	uint32_t tags; /* four times ki_key_tag(), once finished */
	/* Where a record lies that is short enough. */
	_Alignas(64) uint8_t inside[KI_KEY_INSIDE_BYTES];
	uint8_t digest[KILN_DIGEST_BYTES];
	_Atomic size_t refs;
	enum kiln_status failed;
	int is_in_room;	    /* of the caller's memory */
	uint64_t data_size; /* of all fields, without labels and frames */
};

static_assert(sizeof(struct kiln_key) + _Alignof(struct kiln_key) - 8 <=
		      sizeof(struct kiln_key_room),
	      "wherever it lies");

/* A byte of a digest's high half, never 0, for tables. */
static inline uint32_t ki_key_tag(uint64_t digest_high)
{
	return (uint32_t)(digest_high >> 56) + !(digest_high >> 56);
}

/* Whether a record is well formed.  KILN_OK or KILN_E_FORMAT. */
enum kiln_status ki_record_check(const void *record, size_t size);

/* What its fields hold, without labels and frames; 0 if it is not well formed. */
uint64_t ki_record_data_size(const void *record, size_t size);

/* The two halves of a digest as numbers. */
uint64_t ki_digest_low(const uint8_t digest[KILN_DIGEST_BYTES]);
uint64_t ki_digest_high(const uint8_t digest[KILN_DIGEST_BYTES]);

/* The canonical bytes of metadata (NULL: empty); KILN_E_NO_MEMORY or
   KILN_E_TOO_LARGE if adding went wrong.  Live as long as `metadata`. */
enum kiln_status ki_metadata_bytes(const struct kiln_metadata *metadata,
				   const void **out_bytes, size_t *out_size);

/*
 * Of metadata, what says nothing about the user and the machine that an entry
 * comes from: all that leaves it.  Appended to `out`.  FORMAT, NO_MEMORY,
 * TOO_LARGE.
 */
enum kiln_status ki_metadata_portable(const void *bytes, size_t size,
				      struct ki_bytes *out);
/* Whether it is bookkeeping: KILN_ENTRY_HIDDEN. */
int ki_metadata_is_hidden(const void *bytes, size_t size);

#endif /* KI_KEY_KEY_H */
