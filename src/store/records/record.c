/* SPDX-License-Identifier: MIT */

/* One record: what its bytes say, and whether they may be believed. */

#include "store/records/inside.h"

#include <errno.h>
#include <string.h>

#include "base/blob.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "key/key.h"

const uint8_t ki_records_magic[8] = { 'K', 'I', 'L', 'N', 'R', 'E', 'C', 'S' };

#define GAP_BYTES 8u

uint64_t ki_records_size_of(uint64_t name_size, uint64_t record_size,
			    uint64_t metadata_size, unsigned n_gaps)
{
	return ki_records_align(KI_RECORD_HEADER + name_size + record_size +
				metadata_size + n_gaps * GAP_BYTES);
}

uint64_t ki_records_claimed_size(const uint8_t *header, uint64_t offset)
{
	const uint64_t name_size = ki_get_u16(header + 6);
	const uint64_t record_size = ki_get_u32(header + 8);
	const uint64_t metadata_size = ki_get_u32(header + 12);

	if (ki_get_u32(header) != KI_RECORD_MAGIC ||
	    header[4] < KI_RECORD_ENTRY || header[4] > KI_RECORD_SETTINGS ||
	    (header[4] == KI_RECORD_SETTINGS &&
	     record_size != KI_RECORDS_HEAD) ||
	    name_size > KI_RECORDS_NAME_MAX ||
	    record_size > KILN_KEY_BYTES_MAX ||
	    metadata_size > KILN_METADATA_BYTES_MAX ||
	    header[5] > KI_RECORDS_GAPS_MAX ||
	    ki_get_u64(header + 32) != offset)
		return 0;
	return ki_records_size_of(name_size, record_size, metadata_size,
				  header[5]);
}

uint64_t ki_records_check(const uint8_t *bytes, uint64_t size)
{
	return ki_xxh3_64(bytes, KI_RECORD_HEADER - 8) +
	       ki_xxh3_64(bytes + KI_RECORD_HEADER,
			  (size_t)size - KI_RECORD_HEADER);
}

/* ---- Gaps --------------------------------------------------------------------------- */

static void read_gaps(const uint8_t *bytes, struct ki_record_gaps *gaps)
{
	size_t size;
	const uint8_t *place = ki_records_metadata_of(bytes, &size) + size;

	gaps->n = bytes[5];
	for (unsigned i = 0; i < gaps->n; i++, place += GAP_BYTES)
		gaps->of[i] = (struct ki_record_gap){ ki_get_u32(place),
						      ki_get_u32(place + 4) };
}

/* Between bytes that are there, one behind the other. */
static int has_true_gaps(const uint8_t *bytes)
{
	const uint64_t record_size = ki_get_u32(bytes + 8);
	uint64_t missing = 0, end = 0;
	struct ki_record_gaps gaps;

	read_gaps(bytes, &gaps);
	for (unsigned i = 0; i < gaps.n; i++) {
		if (gaps.of[i].offset < end ||
		    gaps.of[i].offset - missing > record_size)
			return 0;
		missing += gaps.of[i].size;
		end = (uint64_t)gaps.of[i].offset + gaps.of[i].size;
	}
	return record_size + missing <= KILN_KEY_BYTES_MAX;
}

void ki_records_cut(const void *record, size_t record_size,
		    const struct ki_record_gaps *gaps,
		    struct ki_piece out_pieces[KI_RECORDS_PIECES])
{
	size_t begin = 0;

	for (unsigned i = 0; i <= gaps->n; i++) {
		const int is_last = i == gaps->n;
		const size_t end = is_last ? record_size : gaps->of[i].offset;

		out_pieces[i] =
			(struct ki_piece){ (const uint8_t *)record + begin,
					   end - begin };
		begin = is_last ? end : end + gaps->of[i].size;
	}
}

int ki_records_is_whole(const uint8_t *bytes, uint64_t size)
{
	return ki_get_u64(bytes + KI_RECORD_HEADER - 8) ==
		       ki_records_check(bytes, size) &&
	       has_true_gaps(bytes);
}

static int read_entry(struct ki_records *records,
		      const struct ki_records_entry *entry, size_t ahead,
		      const uint8_t **out_bytes)
{
	int err = ki_records_look(records, entry->offset,
				  ki_records_entry_bytes(entry), ahead,
				  out_bytes);

	if (err)
		return err;
	return ki_records_claimed_size(*out_bytes, entry->offset) ==
				       ki_records_entry_bytes(entry) &&
			       ki_records_is_whole(
				       *out_bytes,
				       ki_records_entry_bytes(entry))
		       ? 0
		       : -ENODATA;
}

int ki_records_bytes_of(struct ki_records *records,
			const struct ki_records_entry *entry, size_t ahead,
			const uint8_t **out_bytes)
{
	int err;

	if (entry->kept) {
		*out_bytes = entry->kept->bytes;
		return 0;
	}
	err = read_entry(records, entry, ahead, out_bytes);
	/* Was it our file that was read? */
	if (err && err != -ENOMEM && ki_records_reopen(records))
		err = read_entry(records, entry, ahead, out_bytes);
	return records->fd < 0 ? -EIO : err;
}

void ki_records_fill(const struct ki_records_entry *entry, const uint8_t *bytes,
		     struct ki_record_found *found)
{
	const size_t name_size = ki_get_u16(bytes + 6);

	memcpy(found->digest, bytes + 16, KILN_DIGEST_BYTES);
	memcpy(found->name, bytes + KI_RECORD_HEADER, name_size);
	found->name[name_size] = '\0';
	found->serial = entry->serial;
	found->bytes = ki_records_entry_bytes(entry);
	found->value_size = ki_get_u64(bytes + 48);
	found->value_check = ki_get_u64(bytes + 56);
	found->inode = ki_get_u64(bytes + 64);
	found->file_size = ki_get_u64(bytes + 72);
	found->mtime_ns = (int64_t)ki_get_u64(bytes + 80);
	found->trusted_ns = ki_records_trusted_ns(entry);
	read_gaps(bytes, &found->gaps);
}

/* What is kept of the key record. */
static const uint8_t *key_of(const uint8_t *bytes, size_t *out_size)
{
	*out_size = ki_get_u32(bytes + 8);
	return bytes + KI_RECORD_HEADER + ki_get_u16(bytes + 6);
}

const uint8_t *ki_records_metadata_of(const uint8_t *bytes, size_t *out_size)
{
	size_t record_size;
	const uint8_t *record = key_of(bytes, &record_size);

	*out_size = ki_get_u32(bytes + 12);
	return record + record_size;
}

static size_t whole_key_size(const uint8_t *bytes,
			     const struct ki_record_gaps *gaps)
{
	size_t size = ki_get_u32(bytes + 8);

	for (unsigned i = 0; i < gaps->n; i++)
		size += gaps->of[i].size;
	return size;
}

int ki_records_is_of(const uint8_t *bytes, const struct kiln_key *key)
{
	struct ki_piece pieces[KI_RECORDS_PIECES];
	struct ki_record_gaps gaps;
	const uint8_t *data;
	size_t size;

	read_gaps(bytes, &gaps);
	if (whole_key_size(bytes, &gaps) != key->record.size)
		return 0;
	data = key_of(bytes, &size);
	ki_records_cut(key->record.data, key->record.size, &gaps, pieces);
	for (unsigned i = 0; i <= gaps.n; i++) {
		if (memcmp(data, pieces[i].data, pieces[i].size) != 0)
			return 0;
		data += pieces[i].size;
	}
	return 1;
}

enum kiln_status ki_records_copy_key(const uint8_t *bytes,
				     struct kiln_blob **out_blob)
{
	struct ki_piece pieces[KI_RECORDS_PIECES];
	struct ki_record_gaps gaps;
	struct kiln_blob *blob;
	const uint8_t *data;
	uint8_t *place;
	size_t size, kept;
	void *copy;

	read_gaps(bytes, &gaps);
	size = whole_key_size(bytes, &gaps);
	blob = ki_blob_new(size, &copy);
	if (!blob)
		return KILN_E_NO_MEMORY;
	data = key_of(bytes, &kept);
	place = copy;
	memset(place, 0, size);
	ki_records_cut(copy, size, &gaps, pieces);
	for (unsigned i = 0; i <= gaps.n; i++) {
		memcpy(place, data, pieces[i].size);
		data += pieces[i].size;
		place += pieces[i].size + (i < gaps.n ? gaps.of[i].size : 0);
	}
	*out_blob = blob;
	return KILN_OK;
}

enum kiln_status ki_records_copy_part(const uint8_t *data, size_t size,
				      struct kiln_blob **out_blob)
{
	return out_blob ? kiln_blob_copy(data, size, out_blob) : KILN_OK;
}
