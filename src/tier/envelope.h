/* SPDX-License-Identifier: MIT */
#ifndef KI_TIER_ENVELOPE_H
#define KI_TIER_ENVELOPE_H

/*
 * An entry as one run of bytes that says by itself whether it is whole: for
 * files of their own, packs and servers.
 *
 *	 0  "KENV"            magic
 *	 4  version:u16       1
 *	 6  zero:u16
 *	 8  digest            16 bytes, XXH3-128 of the key record
 *	24  record_size:u32
 *	28  metadata_size:u32
 *	32  value_size:u64
 *	40  body_check:u64    XXH3-64 of everything behind the header
 *	48  user_version:u64  of whoever wrote it; 0: none
 *	56  header_check:u64  XXH3-64 of bytes 0 to 55
 *	64  key record, metadata, value; zeros before the latter two up to a
 *	    multiple of 8
 *
 * Numbers are little-endian.  Nothing may follow the value.
 */

#include <stddef.h>
#include <stdint.h>

#include <kiln/inspect.h>
#include <kiln/kiln.h>

#include "base/hash.h"

#define KI_ENVELOPE_VERSION	 1
#define KI_ENVELOPE_HEADER_BYTES 64
#define KI_ENVELOPE_PIECES	 6

/* Pointers are borrowed: what they point to stays the caller's. */
struct ki_envelope {
	uint8_t digest[KILN_DIGEST_BYTES];
	const void *record;
	size_t record_size;
	const void *metadata;
	size_t metadata_size;
	const void *value;
	size_t value_size;
	uint64_t user_version;
};

/* Bytes of the whole; 0 if the sizes break a limit. */
uint64_t ki_envelope_size(const struct ki_envelope *envelope);

/*
 * The pieces to write, one after another.  They point into the envelope and
 * into `header`.
 */
void ki_envelope_seal(const struct ki_envelope *envelope,
		      uint8_t header[KI_ENVELOPE_HEADER_BYTES],
		      struct ki_piece pieces[KI_ENVELOPE_PIECES]);

/*
 * Check all of it; the envelope then points into `data`.  KILN_OK,
 * KILN_E_FORMAT (damaged), KILN_E_UNSUPPORTED (whole as far as one can tell,
 * but made by a newer version).
 */
enum kiln_status ki_envelope_open(const void *data, size_t size,
				  struct ki_envelope *out_envelope);

/*
 * Check a header alone: the numbers and the digest are filled in, the pointers
 * are NULL.  `size` is that of the whole.  The same answers.
 */
enum kiln_status ki_envelope_peek(const void *header, uint64_t size,
				  struct ki_envelope *out_envelope);

/*
 * The same of a header that stands among others: the size of the whole is what
 * it says itself, *out_size.
 */
enum kiln_status ki_envelope_measure(const void *header,
				     struct ki_envelope *out_envelope,
				     uint64_t *out_size);

/*
 * Fill in what an entry in a list has of its envelope: digest, size of the value,
 * copies of record and metadata.  The rest of it stays.  KILN_OK, or NO_MEMORY,
 * after which there is nothing to drop.
 */
enum kiln_status ki_envelope_entry(const struct ki_envelope *envelope,
				   struct kiln_entry *entry);

#endif /* KI_TIER_ENVELOPE_H */
