/* SPDX-License-Identifier: MIT */

/*
 * Items as they lie on servers (docs/formats/remote-item.md):
 *
 *	  0  "KITM"            magic
 *	  4  version:u16       1
 *	  6  flags:u16         bit 0: the value is one zstd frame
 *	  8  name              32 bytes
 *	 40  user_version:u64
 *	 48  record_size:u32
 *	 52  metadata_size:u32
 *	 56  value_size:u64    of the value itself
 *	 64  stored_size:u64   of the value as it lies here
 *	 72  check             XXH3-128 of everything behind the header
 *	 88  signature         72 bytes; zeros: none
 *	160  zeros             24 bytes
 *	184  header_check:u64  XXH3-64 of bytes 0 to 183
 *	192  key record, metadata, value
 *
 * Signed is the BLAKE2b-256 of bytes 0 to 71 and of everything behind the header.
 *
 * Whoever can write to a server can put anything there.  Nothing is allocated for
 * what an item says before its header is whole and its sizes agree with what
 * arrived, and nothing is decompressed before the signature has been verified, if
 * one is asked for.
 */

#include "remote/protocol.h"

#include <stdlib.h>

#include <zstd.h>

#include "base/blob.h"
#include "base/hash.h"
#include "key/key.h"

#define VERSION		 1
#define FLAG_ZSTD	 1u
#define NAME_OFFSET	 8
#define SIGNED_BYTES	 72 /* of the header */
#define CHECK_OFFSET	 72
#define CHECK_BYTES	 16
#define SIGNATURE_OFFSET 88
#define ZEROS_OFFSET	 160
#define ZEROS_BYTES	 24
#define HEADER_CHECK	 184

/* A value that is not compressed stays where it came to, if it is as long as this
   and this many times as long as what is kept with it. */
#define KEPT_BYTES_MIN ((size_t)4096)
#define KEPT_SHARE     8
#define BLOB_ALIGNMENT ((size_t)8)

static const uint8_t magic[4] = { 'K', 'I', 'T', 'M' };
static const uint8_t zeros[KI_SIGNATURE_BYTES];

/* An item that has been taken apart; pointers into it. */
struct parts {
	const uint8_t *header;
	unsigned flags;
	uint64_t user_version;
	const uint8_t *record, *metadata, *stored;
	size_t record_size, metadata_size, value_size, stored_size;
};

static size_t body_size(const struct parts *parts)
{
	return parts->record_size + parts->metadata_size + parts->stored_size;
}

/* What is verified of what is read, and asserted of what is written. */
static int sizes_are_good(size_t record_size, size_t metadata_size,
			  uint64_t value_size, uint64_t stored_size)
{
	return record_size <= KILN_KEY_BYTES_MAX &&
	       metadata_size <= KILN_METADATA_BYTES_MAX &&
	       value_size <= KI_REMOTE_ITEM_MAX &&
	       stored_size <= KI_REMOTE_ITEM_MAX &&
	       KI_ITEM_HEADER_BYTES + record_size + metadata_size +
			       stored_size <=
		       KI_REMOTE_ITEM_MAX;
}

static int is_signed(const struct parts *parts)
{
	return memcmp(parts->header + SIGNATURE_OFFSET, zeros,
		      KI_SIGNATURE_BYTES) != 0;
}

static void digest_of(const uint8_t *header, size_t size_behind,
		      uint8_t out[KI_SIGN_DIGEST_BYTES])
{
	const struct ki_piece pieces[] = {
		{ header, SIGNED_BYTES },
		{ header + KI_ITEM_HEADER_BYTES, size_behind },
	};

	ki_blake2b_pieces(pieces, 2, out);
}

/* ---- Sealing ---------------------------------------------------------------- */

/* The value, as it is. */
static void add_plain(const struct ki_item *item, struct ki_bytes *bytes)
{
	ki_bytes_add(bytes, item->value, item->value_size);
}

/* Compressed, or as it is where that is not shorter, or as short as nobody would
   believe; the flags that say which. */
static unsigned add_value(const struct ki_item *item, int level,
			  struct ki_bytes *bytes)
{
	size_t start = bytes->size, room = ZSTD_compressBound(item->value_size);
	size_t size;
	void *place;

	if (!level || !item->value_size) {
		add_plain(item, bytes);
		return 0;
	}
	place = ki_bytes_grow(bytes, room);
	if (!place)
		return 0;
	size = ZSTD_compress(place, room, item->value, item->value_size, level);
	if (!ZSTD_isError(size) && size < item->value_size &&
	    item->value_size / KI_ITEM_RATIO_MAX < size) {
		bytes->size = start + size;
		return FLAG_ZSTD;
	}
	bytes->size = start;
	add_plain(item, bytes);
	return 0;
}

static void fill_header(const struct ki_item *item, size_t metadata_size,
			unsigned flags, size_t size_behind, uint8_t *header)
{
	uint8_t digest[KI_BLAKE2B_BYTES];

	memcpy(header, magic, sizeof(magic));
	ki_put_u16(header + 4, VERSION);
	ki_put_u16(header + 6, (uint16_t)flags);
	ki_blake2b(item->record, item->record_size, digest);
	ki_remote_name(digest, item->user_version, header + NAME_OFFSET);
	ki_put_u64(header + 40, item->user_version);
	ki_put_u32(header + 48, (uint32_t)item->record_size);
	ki_put_u32(header + 52, (uint32_t)metadata_size);
	ki_put_u64(header + 56, item->value_size);
	ki_put_u64(header + 64,
		   size_behind - item->record_size - metadata_size);
	ki_xxh3_128(header + KI_ITEM_HEADER_BYTES, size_behind,
		    header + CHECK_OFFSET);
}

enum kiln_status ki_item_seal(const struct ki_item *item,
			      const struct ki_item_seal *how,
			      struct ki_bytes *inout_bytes)
{
	size_t start = inout_bytes->size, metadata_size, size_behind;
	uint8_t digest[KI_SIGN_DIGEST_BYTES], *header;
	enum kiln_status status;
	unsigned flags;

	if (!sizes_are_good(item->record_size, item->metadata_size,
			    item->value_size, item->value_size))
		return KILN_E_TOO_LARGE;
	header = ki_bytes_grow(inout_bytes, KI_ITEM_HEADER_BYTES);
	if (!header)
		return KILN_E_NO_MEMORY;
	memset(header, 0, KI_ITEM_HEADER_BYTES);
	ki_bytes_add(inout_bytes, item->record, item->record_size);
	metadata_size = inout_bytes->size;
	status = ki_metadata_portable(item->metadata, item->metadata_size,
				      inout_bytes);
	metadata_size = inout_bytes->size - metadata_size;
	flags = add_value(item, how->zstd_level, inout_bytes);
	if (!status && inout_bytes->failed)
		status = KILN_E_NO_MEMORY;
	if (status) {
		inout_bytes->size = start;
		return status;
	}

	header = inout_bytes->data + start; /* it may have moved */
	size_behind = inout_bytes->size - start - KI_ITEM_HEADER_BYTES;
	fill_header(item, metadata_size, flags, size_behind, header);
	if (how->secret) {
		digest_of(header, size_behind, digest);
		ki_sign(how->secret, KI_SIGN_ITEM, digest,
			header + SIGNATURE_OFFSET);
	}
	ki_put_u64(header + HEADER_CHECK, ki_xxh3_64(header, HEADER_CHECK));
	return KILN_OK;
}

/* ---- Opening ---------------------------------------------------------------- */

/* The header, and whether what it says agrees with what is there. */
static enum kiln_status take_apart(const void *bytes, size_t size,
				   struct parts *out)
{
	const uint8_t *header = bytes;
	uint64_t value_size, stored_size;

	if (size < KI_ITEM_HEADER_BYTES ||
	    memcmp(header, magic, sizeof(magic)) != 0 ||
	    ki_get_u64(header + HEADER_CHECK) !=
		    ki_xxh3_64(header, HEADER_CHECK) ||
	    ki_get_u16(header + 4) != VERSION ||
	    memcmp(header + ZEROS_OFFSET, zeros, ZEROS_BYTES) != 0)
		return KILN_E_FORMAT;
	out->header = header;
	out->flags = ki_get_u16(header + 6);
	out->user_version = ki_get_u64(header + 40);
	out->record_size = ki_get_u32(header + 48);
	out->metadata_size = ki_get_u32(header + 52);
	value_size = ki_get_u64(header + 56);
	stored_size = ki_get_u64(header + 64);
	if (!sizes_are_good(out->record_size, out->metadata_size, value_size,
			    stored_size) ||
	    out->flags & ~FLAG_ZSTD ||
	    (out->flags & FLAG_ZSTD
		     ? value_size / KI_ITEM_RATIO_MAX >= stored_size
		     : value_size != stored_size))
		return KILN_E_FORMAT;
	out->value_size = (size_t)value_size;
	out->stored_size = (size_t)stored_size;
	if (size - KI_ITEM_HEADER_BYTES != body_size(out))
		return KILN_E_FORMAT;
	out->record = header + KI_ITEM_HEADER_BYTES;
	out->metadata = out->record + out->record_size;
	out->stored = out->metadata + out->metadata_size;
	return KILN_OK;
}

static int is_whole(const struct parts *parts)
{
	uint8_t check[CHECK_BYTES];

	ki_xxh3_128(parts->record, body_size(parts), check);
	return !memcmp(check, parts->header + CHECK_OFFSET, CHECK_BYTES);
}

static enum kiln_status check_signature(const struct parts *parts,
					const struct ki_sign_trust *trust)
{
	const uint8_t *signature = parts->header + SIGNATURE_OFFSET;
	uint8_t digest[KI_SIGN_DIGEST_BYTES];

	if (!is_signed(parts) || !ki_sign_trust_find(trust, signature))
		return KILN_E_OWNER;
	digest_of(parts->header, body_size(parts), digest);
	if (ki_sign_verify(trust, KI_SIGN_ITEM, digest, signature))
		return KILN_OK;
	return is_whole(parts) ? KILN_E_OWNER : KILN_E_FORMAT;
}

/* Whether it is the key's, and not what a server has under a wrong name. */
static enum kiln_status check_key(const struct parts *parts,
				  const struct kiln_key *key,
				  uint64_t user_version)
{
	uint8_t digest[KI_BLAKE2B_BYTES], name[KI_REMOTE_NAME_BYTES];

	if (parts->user_version != user_version)
		return KILN_MISS;
	if (parts->record_size != key->record.size ||
	    memcmp(parts->record, key->record.data, key->record.size) != 0)
		return KILN_E_COLLISION;
	ki_blake2b(key->record.data, key->record.size, digest);
	ki_remote_name(digest, user_version, name);
	return memcmp(name, parts->header + NAME_OFFSET, sizeof(name))
		       ? KILN_E_FORMAT
		       : KILN_OK;
}

/* A copy, or what it was compressed from. */
static enum kiln_status copy_value(const struct parts *parts,
				   struct kiln_blob **out_value)
{
	struct kiln_blob *blob;
	void *data;

	if (!(parts->flags & FLAG_ZSTD))
		return kiln_blob_copy(parts->stored, parts->stored_size,
				      out_value);
	if (ZSTD_getFrameContentSize(parts->stored, parts->stored_size) !=
	    parts->value_size)
		return KILN_E_FORMAT;
	blob = ki_blob_new(parts->value_size, &data);
	if (!blob)
		return KILN_E_NO_MEMORY;
	if (ZSTD_decompress(data, parts->value_size, parts->stored,
			    parts->stored_size) != parts->value_size) {
		kiln_blob_unref(blob);
		return KILN_E_FORMAT;
	}
	*out_value = blob;
	return KILN_OK;
}

/* Whether it can be handed out where it lies, and little else with it. */
static int is_kept(const struct parts *parts)
{
	return !(parts->flags & FLAG_ZSTD) &&
	       parts->stored_size >= KEPT_BYTES_MIN &&
	       parts->record_size + parts->metadata_size <=
		       parts->stored_size / KEPT_SHARE;
}

/* The memory becomes the value's, which goes down to where blobs begin. */
static enum kiln_status keep_value(const struct parts *parts,
				   uint8_t **inout_memory,
				   struct kiln_blob **out_value)
{
	uint8_t *memory = *inout_memory;
	const size_t offset = (size_t)(parts->stored - memory);
	uint8_t *place = memory + (offset & ~(BLOB_ALIGNMENT - 1));
	enum kiln_status status = kiln_blob_wrap(place, parts->stored_size,
						 free, memory, out_value);

	if (status)
		return status;
	memmove(place, parts->stored, parts->stored_size);
	*inout_memory = NULL;
	return KILN_OK;
}

static enum kiln_status verify(const struct kiln_key *key,
			       uint64_t user_version,
			       const struct ki_sign_trust *trust,
			       const void *bytes, size_t size,
			       struct parts *out_parts)
{
	enum kiln_status status = take_apart(bytes, size, out_parts);

	if (status)
		return status;
	if (trust)
		status = check_signature(out_parts, trust);
	else if (!is_whole(out_parts))
		status = KILN_E_FORMAT;
	return status ? status : check_key(out_parts, key, user_version);
}

/* `inout_memory` NULL: the bytes are somebody else's.  The metadata first, since a
   value may move over where it lies. */
static enum kiln_status hand_out(const struct parts *parts,
				 uint8_t **inout_memory,
				 struct kiln_blob **out_value,
				 struct kiln_blob **out_metadata)
{
	struct kiln_blob *metadata = NULL;
	enum kiln_status status = KILN_OK;

	if (out_metadata)
		status = kiln_blob_copy(parts->metadata, parts->metadata_size,
					&metadata);
	if (status)
		return status;
	if (inout_memory && is_kept(parts))
		status = keep_value(parts, inout_memory, out_value);
	else
		status = copy_value(parts, out_value);
	if (status)
		kiln_blob_unref(metadata);
	else if (out_metadata)
		*out_metadata = metadata;
	return status;
}

enum kiln_status ki_item_open(const struct kiln_key *key, uint64_t user_version,
			      const struct ki_sign_trust *trust,
			      const void *bytes, size_t size,
			      struct kiln_blob **out_value,
			      struct kiln_blob **out_metadata)
{
	struct parts parts;
	enum kiln_status status =
		verify(key, user_version, trust, bytes, size, &parts);

	return status ? status
		      : hand_out(&parts, NULL, out_value, out_metadata);
}

enum kiln_status ki_item_take(const struct kiln_key *key, uint64_t user_version,
			      const struct ki_sign_trust *trust,
			      uint8_t **inout_memory, size_t offset,
			      size_t size, struct kiln_blob **out_value,
			      struct kiln_blob **out_metadata)
{
	struct parts parts;
	enum kiln_status status = verify(key, user_version, trust,
					 *inout_memory + offset, size, &parts);

	return status ? status
		      : hand_out(&parts, inout_memory, out_value, out_metadata);
}

enum kiln_status ki_item_glance(const uint8_t name[KI_REMOTE_NAME_BYTES],
				const void *bytes, size_t size)
{
	struct parts parts;
	enum kiln_status status = take_apart(bytes, size, &parts);

	if (!status &&
	    memcmp(name, parts.header + NAME_OFFSET, KI_REMOTE_NAME_BYTES) != 0)
		status = KILN_E_FORMAT;
	return status;
}
