/* SPDX-License-Identifier: MIT */

/* All the living: one after another, or compared with what is there. */

#include "store/records/inside.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/status.h"

/* The first entry above a serial: they rise. */
static size_t above(const struct ki_records *records, uint64_t serial)
{
	size_t low = 0, high = records->n_entries;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (ki_records_entry(records, middle)->serial <= serial)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static enum kiln_status copy_entry(const struct ki_records_entry *entry,
				   const uint8_t *bytes,
				   struct ki_record_found *out_found,
				   struct kiln_blob **out_record,
				   struct kiln_blob **out_metadata)
{
	struct kiln_blob *record = NULL;
	enum kiln_status status = KILN_OK;
	const uint8_t *data;
	size_t size;

	if (out_record)
		status = ki_records_copy_key(bytes, &record);
	data = ki_records_metadata_of(bytes, &size);
	if (!status)
		status = ki_records_copy_part(data, size, out_metadata);
	if (status) {
		kiln_blob_unref(record);
		return status;
	}
	if (out_record)
		*out_record = record;
	ki_records_fill(entry, bytes, out_found);
	return KILN_OK;
}

enum kiln_status ki_records_next(struct ki_records *records, uint64_t *serial,
				 struct ki_record_found *out_found,
				 struct kiln_blob **out_record,
				 struct kiln_blob **out_metadata)
{
	enum kiln_status status = KILN_END;
	int err;

	ki_records_enter(records);
	err = ki_records_ready_to_read(records);
	for (size_t i = err ? records->n_entries : above(records, *serial);
	     i < records->n_entries; i++) {
		const struct ki_records_entry *entry =
			ki_records_entry(records, i);
		const uint8_t *bytes;

		if (entry->flags & (KI_RECORD_DEAD | KI_RECORD_DROPPED))
			continue;
		err = ki_records_bytes_of(records, entry, 0, &bytes);
		if (err == -ENODATA) {
			err = 0;
			continue;
		}
		if (err)
			break;
		status = copy_entry(entry, bytes, out_found, out_record,
				    out_metadata);
		*serial = entry->serial;
		break;
	}
	ki_records_leave(records);
	return err ? ki_status_from_errno(err) : status;
}

int ki_records_names(struct ki_records *records, ki_records_name_fn *visit,
		     void *arg)
{
	int err = 0;

	ki_records_enter(records);
	for (size_t i = 0; i < records->n_entries && !err; i++) {
		const struct ki_records_entry *entry =
			ki_records_entry(records, i);

		if (entry->flags & (KI_RECORD_DEAD | KI_RECORD_DROPPED))
			continue;
		err = *entry->name ? visit(arg, entry->name) : -ENAMETOOLONG;
	}
	ki_records_leave(records);
	return err;
}

/* ---- Comparing with what is there --------------------------------------------- */

void ki_records_sweep_begin(struct ki_records *records)
{
	ki_records_enter(records);
	for (size_t i = 0; i < records->n_entries; i++)
		ki_records_entry(records, i)->flags &= ~KI_RECORD_MARKED;
	ki_records_leave(records);
}

int ki_records_mark(struct ki_records *records, const char *name,
		    uint64_t inode)
{
	const uint64_t hash = ki_xxh3_64(name, strlen(name));
	struct ki_records_entry *entry;

	ki_records_enter(records);
	entry = ki_map_get(&records->by_name, ki_records_hash(hash));
	while (entry && (entry->name_hash != hash || entry->inode != inode ||
			 (entry->flags & KI_RECORD_DROPPED)))
		entry = entry->name_older;
	if (entry)
		entry->flags |= KI_RECORD_MARKED;
	ki_records_leave(records);
	return entry != NULL;
}

static int is_marked(const struct ki_records_entry *entry)
{
	for (; entry; entry = ki_records_older(entry))
		if (entry->flags & KI_RECORD_MARKED)
			return 1;
	return 0;
}

static void add_digest(struct ki_bytes *digests,
		       const struct ki_records_entry *entry)
{
	uint8_t *place = ki_bytes_grow(digests, KILN_DIGEST_BYTES);

	if (place)
		ki_records_digest(entry, place);
}

enum kiln_status ki_records_sweep_end(struct ki_records *records,
				      uint64_t *out_n_dropped)
{
	enum kiln_status status = KILN_OK;
	struct ki_bytes digests;

	ki_bytes_init(&digests);
	ki_records_enter(records);
	for (size_t i = 0; i < records->n_entries; i++) {
		const struct ki_records_entry *entry =
			ki_records_entry(records, i);

		if (!(entry->flags & (KI_RECORD_DEAD | KI_RECORD_DROPPED)) &&
		    !is_marked(entry))
			add_digest(&digests, entry);
	}
	ki_records_leave(records);
	if (digests.failed)
		status = KILN_E_NO_MEMORY;
	else if (digests.size)
		status = ki_records_drop(
			records,
			(const uint8_t(*)[KILN_DIGEST_BYTES])digests.data,
			digests.size / KILN_DIGEST_BYTES);
	if (!status && out_n_dropped)
		*out_n_dropped = digests.size / KILN_DIGEST_BYTES;
	ki_bytes_fini(&digests);
	return status;
}
