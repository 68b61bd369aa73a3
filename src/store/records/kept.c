/* SPDX-License-Identifier: MIT */

/*
 * Bytes of records that were found, so that the next find of one reads nothing.
 * Who was read first goes first.  They are as they were when they were checked,
 * whatever becomes of the file.
 */

#include "store/records/inside.h"

#include <stdlib.h>
#include <string.h>

#define KEPT_BYTES_MAX ((size_t)8 << 20)
#define ONE_BYTES_MAX  ((size_t)64 << 10)

static size_t bytes_for(const struct ki_records_entry *entry)
{
	return sizeof(struct ki_records_kept) + ki_records_entry_bytes(entry);
}

static void forget_first(struct ki_records *records)
{
	struct ki_records_kept *kept = records->kept_first;

	records->kept_first = kept->next;
	if (!kept->next)
		records->kept_last = NULL;
	records->kept_bytes -= bytes_for(kept->entry);
	kept->entry->kept = NULL;
	free(kept);
}

void ki_records_keep(struct ki_records *records, struct ki_records_entry *entry,
		     const uint8_t *bytes)
{
	const size_t size = bytes_for(entry);
	struct ki_records_kept *kept;

	if (entry->kept || size > ONE_BYTES_MAX)
		return;
	while (records->kept_bytes + size > KEPT_BYTES_MAX)
		forget_first(records);
	kept = malloc(size);
	if (!kept)
		return;
	kept->next = NULL;
	kept->entry = entry;
	memcpy(kept->bytes, bytes, ki_records_entry_bytes(entry));
	if (records->kept_last)
		records->kept_last->next = kept;
	else
		records->kept_first = kept;
	records->kept_last = kept;
	records->kept_bytes += size;
	entry->kept = kept;
}

void ki_records_forget_kept(struct ki_records *records)
{
	while (records->kept_first)
		forget_first(records);
}
