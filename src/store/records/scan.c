/* SPDX-License-Identifier: MIT */

/*
 * Catching up with the file: what was appended since, or all of it if another
 * one has the name.  What is damaged is passed over in steps of 8.  A record
 * that cannot be read at the very end may be one that is being written: `seen`
 * stays before it until the file is longer.
 */

#include "store/records/inside.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"

/* The bytes of the record at an offset, checked: 1; 0: there is none. */
static int record_at(struct ki_records *records, uint64_t offset, size_t ahead,
		     const uint8_t **out_bytes, uint64_t *out_size)
{
	int err;

	err = ki_records_look(records, offset, KI_RECORD_HEADER, ahead,
			      out_bytes);
	if (err)
		return err;
	*out_size = ki_records_claimed_size(*out_bytes, offset);
	if (!*out_size || *out_size > records->size - offset)
		return 0;
	err = ki_records_look(records, offset, *out_size, ahead, out_bytes);
	return err ? err : ki_records_is_whole(*out_bytes, *out_size);
}

/* 1 if these are settings, checked. */
static int take_settings(struct ki_records *records,
			 const uint8_t bytes[KI_RECORDS_HEAD])
{
	const uint32_t version = ki_get_u32(bytes + 8);

	if (memcmp(bytes, ki_records_magic, sizeof(ki_records_magic)) != 0 ||
	    ki_get_u64(bytes + 56) != ki_xxh3_64(bytes, 56))
		return 0;
	records->is_newer = version > KI_RECORDS_VERSION;
	records->has_settings = version == KI_RECORDS_VERSION;
	if (records->has_settings)
		records->settings = (struct ki_records_settings){
			.user_version = ki_get_u64(bytes + 32),
			.generation = ki_get_u64(bytes + 16),
			.bytes_max = ki_get_u64(bytes + 24),
			.by_cost =
				!!(ki_get_u64(bytes + 40) & KI_RECORDS_BY_COST),
		};
	return records->has_settings;
}

static int take_record(struct ki_records *records, const uint8_t *bytes,
		       uint64_t offset, uint64_t size)
{
	const uint8_t *digest;

	ki_records_note_change(records);
	if (bytes[4] == KI_RECORD_ENTRY)
		return ki_records_add(records, bytes, offset, (uint32_t)size);
	if (bytes[4] == KI_RECORD_SETTINGS) {
		if (!records->has_settings)
			(void)take_settings(records, bytes + KI_RECORD_HEADER);
		return 0;
	}
	digest = bytes + KI_RECORD_HEADER;
	for (uint32_t left = ki_get_u32(bytes + 8); left >= KILN_DIGEST_BYTES;
	     left -= KILN_DIGEST_BYTES) {
		ki_records_bury(records, ki_digest_low(digest),
				ki_digest_high(digest));
		digest += KILN_DIGEST_BYTES;
	}
	return 0;
}

int ki_records_parse(struct ki_records *records)
{
	uint64_t offset = records->seen, size = 0;

	while (offset + KI_RECORD_HEADER <= records->size) {
		const uint8_t *bytes;
		int err, found = record_at(records, offset, KI_RECORDS_AHEAD,
					   &bytes, &size);

		if (found < 0)
			return found;
		if (!found) {
			offset += 8;
			continue;
		}
		err = take_record(records, bytes, offset, size);
		if (err)
			return err;
		offset += size;
		records->seen = offset;
	}
	return 0;
}

static int read_header(struct ki_records *records)
{
	const uint8_t *bytes;
	int err;

	records->has_header = records->has_settings = 0;
	records->is_newer = 0;
	records->settings =
		(struct ki_records_settings){ .bytes_max = UINT64_MAX };
	records->seen = KI_RECORDS_HEAD;
	if (records->size < KI_RECORDS_HEAD)
		return 0;
	err = ki_records_look(records, 0, KI_RECORDS_HEAD, KI_RECORDS_AHEAD,
			      &bytes);
	if (!err)
		records->has_header = take_settings(records, bytes);
	return err;
}

void ki_records_forget(struct ki_records *records)
{
	ki_records_clear(records);
	ki_records_forget_buffer(records);
	records->inode = records->device = 0;
	records->size = records->seen = 0;
	records->is_behind = 0;
	records->has_header = records->has_settings = records->is_newer = 0;
	records->settings =
		(struct ki_records_settings){ .bytes_max = UINT64_MAX };
}

static int follow(struct ki_records *records, const struct ki_file_info *info)
{
	int err;

	if (info->inode == records->inode && info->device == records->device &&
	    info->size == records->size && !records->is_behind)
		return 0;
	records->is_behind = 0;
	if (info->inode != records->inode || info->device != records->device ||
	    info->size < records->size) {
		ki_records_forget(records);
		records->inode = info->inode;
		records->device = info->device;
		records->size = info->size;
		err = read_header(records);
	} else {
		records->size = info->size;
		records->buffer_size = 0;
		err = 0;
	}
	if (!err && !records->is_newer)
		err = ki_records_parse(records);
	ki_records_forget_buffer(records);
	/* What is half known is not known. */
	if (err && err != -ENODATA)
		ki_records_forget(records);
	return err ? err : 1;
}

/* Once more where it was shorter than it had been said to be: somebody cuts it
   off, or it is the one below another of the same name (overlayfs).  If it is still
   so, what there is of it is known. */
static int follow_again(struct ki_records *records)
{
	struct ki_file_info info;
	int err;

	ki_records_let_go(records);
	ki_records_forget(records);
	err = ki_records_open_file(records);
	if (err)
		return err;
	err = records->sys->fmeasure(records->sys, records->fd, &info);
	if (!err)
		err = follow(records, &info);
	return err == -ENODATA ? 1 : err;
}

int ki_records_refresh_locked(struct ki_records *records)
{
	struct ki_file_info info;
	int err;

	if (!ki_records_fd_is_current(records, &info)) {
		err = ki_records_open_file(records);
		if (err == -ENOENT || err == -ENOTDIR || err == -ELOOP) {
			int changed = records->inode != 0;

			ki_records_forget(records);
			return changed;
		}
		if (err)
			return err;
		err = records->sys->fmeasure(records->sys, records->fd, &info);
		if (err) {
			ki_records_close_file(records);
			return err;
		}
	}
	err = follow(records, &info);
	if (err == -ENODATA)
		err = follow_again(records);
	if (err < 0)
		ki_records_close_file(records);
	return err;
}

int ki_records_refresh(struct ki_records *records)
{
	int result;

	ki_records_enter(records);
	result = ki_records_refresh_locked(records);
	ki_records_leave(records);
	return result;
}

uint64_t ki_records_n_changes(struct ki_records *records)
{
	return __atomic_load_n(&records->n_changes, __ATOMIC_ACQUIRE);
}
