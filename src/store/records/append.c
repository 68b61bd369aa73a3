/* SPDX-License-Identifier: MIT */

/* Adding to the file: each record in one write, at its end. */

#include "store/records/inside.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/status.h"

int ki_records_begin(struct ki_records *records)
{
	int result;

	ki_records_enter(records);
	result = ki_records_refresh_locked(records);
	if (result >= 0 && records->is_newer)
		result = -EPROTONOSUPPORT;
	records->is_held = result >= 0;
	ki_records_leave(records);
	return result;
}

void ki_records_end(struct ki_records *records)
{
	ki_records_enter(records);
	records->is_held = 0;
	ki_records_leave(records);
}

static size_t missing(const struct ki_record *record)
{
	size_t size = 0;

	for (unsigned i = 0; i < record->gaps.n; i++)
		size += record->gaps.of[i].size;
	return size;
}

uint64_t ki_records_size(const struct ki_record *record)
{
	const size_t name_size = strlen(record->name);

	if (name_size > KI_RECORDS_NAME_MAX ||
	    record->record_size > KILN_KEY_BYTES_MAX ||
	    record->metadata_size > KILN_METADATA_BYTES_MAX)
		return 0;
	return ki_records_size_of(name_size,
				  record->record_size - missing(record),
				  record->metadata_size, record->gaps.n);
}

int ki_records_ready_to_write(struct ki_records *records)
{
	int err = ki_records_is_readonly(records) ? -EROFS : 0;

	if (!err && (!records->is_held || records->fd < 0))
		err = ki_records_refresh_locked(records);
	if (err < 0)
		return err;
	if (records->is_newer)
		return -EPROTONOSUPPORT;
	if (!records->has_header)
		err = ki_records_renew(records, &records->settings, 1);
	if (err < 0)
		return err;
	return records->can_write ? 0 : -EROFS;
}

enum kiln_status ki_records_write_status(int err)
{
	return err == -EPROTONOSUPPORT ? KILN_E_FORMAT
				       : ki_status_from_errno(err);
}

static size_t total_of(const struct ki_piece *parts, int n_parts)
{
	size_t size = 0;

	for (int i = 0; i < n_parts; i++)
		size += parts[i].size;
	return size;
}

static int write_record(struct ki_records *records, const uint8_t *header,
			const struct ki_piece *parts, int n_parts)
{
	const uint64_t offset = ki_records_align(records->size);
	const size_t before = (size_t)(offset - records->size);
	const size_t size = (size_t)ki_records_align(KI_RECORD_HEADER +
						     total_of(parts, n_parts));
	uint8_t *bytes, *place;
	int err = ki_records_prepare(records, before + size, &bytes);

	if (err)
		return err;
	memset(bytes, 0, before);
	bytes += before;
	memcpy(bytes, header, KI_RECORD_HEADER);
	place = bytes + KI_RECORD_HEADER;
	for (int i = 0; i < n_parts; i++) {
		if (parts[i].size)
			memcpy(place, parts[i].data, parts[i].size);
		place += parts[i].size;
	}
	memset(place, 0, (size_t)(bytes + size - place));
	ki_put_u32(bytes, KI_RECORD_MAGIC);
	ki_put_u64(bytes + 32, offset);
	ki_put_u64(bytes + 40, records->last_serial + 1);
	ki_put_u64(bytes + KI_RECORD_HEADER - 8, ki_records_check(bytes, size));
	err = ki_records_extend(records, before + size);
	if (!err) {
		err = ki_records_parse(records);
		records->is_behind = !!err;
	}
	ki_records_forget_buffer(records);
	return err;
}

enum kiln_status ki_records_append(struct ki_records *records,
				   const struct ki_record *record)
{
	const struct ki_record_gaps *gaps = &record->gaps;
	struct ki_piece parts[KI_RECORDS_PIECES + 3];
	uint8_t header[KI_RECORD_HEADER] = { 0 };
	uint8_t gap_bytes[KI_RECORDS_GAPS_MAX][8];
	const size_t name_size = strlen(record->name);
	int err;

	if (!ki_records_size(record))
		return KILN_E_TOO_LARGE;
	parts[0] = (struct ki_piece){ record->name, name_size };
	ki_records_cut(record->record, record->record_size, gaps, parts + 1);
	parts[gaps->n + 2] =
		(struct ki_piece){ record->metadata, record->metadata_size };
	for (unsigned i = 0; i < gaps->n; i++) {
		ki_put_u32(gap_bytes[i], gaps->of[i].offset);
		ki_put_u32(gap_bytes[i] + 4, gaps->of[i].size);
	}
	parts[gaps->n + 3] =
		(struct ki_piece){ gap_bytes, sizeof(*gap_bytes) * gaps->n };
	header[4] = KI_RECORD_ENTRY;
	header[5] = (uint8_t)gaps->n;
	ki_put_u16(header + 6, (uint16_t)name_size);
	ki_put_u32(header + 8,
		   (uint32_t)(record->record_size - missing(record)));
	ki_put_u32(header + 12, (uint32_t)record->metadata_size);
	memcpy(header + 16, record->digest, KILN_DIGEST_BYTES);
	ki_put_u64(header + 48, record->value_size);
	ki_put_u64(header + 56, record->value_check);
	ki_put_u64(header + 64, record->inode);
	ki_put_u64(header + 72, record->file_size);
	ki_put_u64(header + 80, (uint64_t)record->mtime_ns);
	ki_records_enter(records);
	err = ki_records_ready_to_write(records);
	if (!err)
		err = write_record(records, header, parts, (int)gaps->n + 4);
	ki_records_leave(records);
	return ki_records_write_status(err);
}

enum kiln_status ki_records_drop(struct ki_records *records,
				 const uint8_t (*digests)[KILN_DIGEST_BYTES],
				 size_t n_digests)
{
	const size_t n_max = KILN_KEY_BYTES_MAX / KILN_DIGEST_BYTES;
	int err;

	ki_records_enter(records);
	err = ki_records_ready_to_write(records);
	while (!err && n_digests) {
		const size_t n = n_digests < n_max ? n_digests : n_max;
		const struct ki_piece part = { digests, n * KILN_DIGEST_BYTES };
		uint8_t header[KI_RECORD_HEADER] = { 0 };

		header[4] = KI_RECORD_DROP;
		ki_put_u32(header + 8, (uint32_t)part.size);
		err = write_record(records, header, &part, 1);
		digests += n;
		n_digests -= n;
	}
	ki_records_leave(records);
	return ki_records_write_status(err);
}
