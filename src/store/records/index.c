/* SPDX-License-Identifier: MIT */

/*
 * The index: what is in the file, by digest and by name, in this process.
 * Entries only end together; a record that was replaced or dropped is marked.
 */

#include "store/records/inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"

#define SECOND_NS ((uint64_t)1000000000)

void ki_records_note_change(struct ki_records *records)
{
	__atomic_store_n(&records->n_changes, records->n_changes + 1,
			 __ATOMIC_RELEASE);
}

void ki_records_clear(struct ki_records *records)
{
	if (records->n_entries)
		ki_records_note_change(records);
	ki_records_forget_kept(records);
	for (size_t i = 0; i < records->n_entries; i += KI_RECORDS_CHUNK)
		free(records->chunks[i / KI_RECORDS_CHUNK]);
	free(records->chunks);
	records->chunks = NULL;
	records->n_entries = 0;
	ki_map_fini(&records->by_digest);
	ki_map_fini(&records->by_name);
	records->totals = (struct ki_records_totals){ 0 };
	records->last_serial = 0;
}

_Static_assert(sizeof(struct ki_records_entry) == (size_t)2 * KI_RECORDS_LINE,
	       "two lines");

static struct ki_records_entry *new_entry(struct ki_records *records)
{
	const size_t n = records->n_entries;
	struct ki_records_entry **chunks;

	if (n % KI_RECORDS_CHUNK)
		goto out;
	chunks = realloc(records->chunks,
			 (n / KI_RECORDS_CHUNK + 1) *
				 sizeof(struct ki_records_entry *));
	if (!chunks)
		return NULL;
	records->chunks = chunks;
	chunks[n / KI_RECORDS_CHUNK] = aligned_alloc(
		KI_RECORDS_LINE,
		KI_RECORDS_CHUNK * sizeof(struct ki_records_entry));
	if (!chunks[n / KI_RECORDS_CHUNK])
		return NULL;
out:
	records->n_entries++;
	return ki_records_entry(records, n);
}

static int is_of(const struct ki_records_entry *entry, uint64_t low,
		 uint64_t high)
{
	return entry->digest_low == low && entry->digest_high == high;
}

struct ki_records_entry *ki_records_newest(const struct ki_records *records,
					   uint64_t low, uint64_t high)
{
	struct ki_records_entry *entry =
		ki_map_get(&records->by_digest, ki_records_hash(low));

	while (entry && !is_of(entry, low, high))
		entry = entry->older;
	return entry;
}

struct ki_records_entry *ki_records_older(const struct ki_records_entry *entry)
{
	struct ki_records_entry *older = entry->older;

	while (older && !is_of(older, entry->digest_low, entry->digest_high))
		older = older->older;
	return older;
}

struct ki_records_entry *ki_records_named(const struct ki_records *records,
					  uint64_t hash, const uint64_t *inode)
{
	struct ki_records_entry *entry =
		ki_map_get(&records->by_name, ki_records_hash(hash));

	while (entry && (entry->name_hash != hash ||
			 (entry->flags & KI_RECORD_DROPPED) ||
			 (inode && entry->inode != *inode)))
		entry = entry->name_older;
	return entry;
}

void ki_records_digest(const struct ki_records_entry *entry,
		       uint8_t out[KILN_DIGEST_BYTES])
{
	for (unsigned i = 0; i < 8; i++) {
		const unsigned shift = 56 - 8 * i;

		out[i] = (uint8_t)(entry->digest_low >> shift);
		out[8 + i] = (uint8_t)(entry->digest_high >> shift);
	}
}

void ki_records_fill_file(const struct ki_records_entry *entry,
			  struct ki_record_found *found)
{
	ki_records_digest(entry, found->digest);
	strcpy(found->name, entry->name);
	found->serial = entry->serial;
	found->bytes = ki_records_entry_bytes(entry);
	found->value_size = found->value_check = 0;
	found->inode = entry->inode;
	found->file_size = entry->file_size;
	found->mtime_ns = entry->mtime_ns;
	found->trusted_ns = ki_records_trusted_ns(entry);
}

void ki_records_trust_until(struct ki_records_entry *entry, uint64_t ns)
{
	const uint64_t s = ns / SECOND_NS;

	entry->trusted_s = s < UINT32_MAX ? (uint32_t)s : UINT32_MAX;
}

uint64_t ki_records_trusted_ns(const struct ki_records_entry *entry)
{
	return entry->trusted_s * SECOND_NS;
}

static void bury(struct ki_records *records, struct ki_records_entry *entry,
		 unsigned flags)
{
	if (!(entry->flags & (KI_RECORD_DEAD | KI_RECORD_DROPPED))) {
		records->totals.n_living--;
		records->totals.bytes_living -= ki_records_entry_bytes(entry);
		records->totals.bytes_files -= entry->file_size;
	}
	entry->flags |= flags;
}

void ki_records_bury(struct ki_records *records, uint64_t low, uint64_t high)
{
	struct ki_records_entry *entry = ki_records_newest(records, low, high);

	for (; entry; entry = ki_records_older(entry))
		bury(records, entry, KI_RECORD_DROPPED);
}

int ki_records_add(struct ki_records *records, const uint8_t *bytes,
		   uint64_t offset, uint32_t size)
{
	struct ki_records_entry *entry = new_entry(records), *before;

	if (!entry)
		return -ENOMEM;
	*entry = (struct ki_records_entry){
		.digest_low = ki_digest_low(bytes + 16),
		.digest_high = ki_digest_high(bytes + 16),
		.name_hash = ki_xxh3_64(bytes + KI_RECORD_HEADER,
					ki_get_u16(bytes + 6)),
		.offset = offset,
		.serial = ki_get_u64(bytes + 40),
		.inode = ki_get_u64(bytes + 64),
		.file_size = ki_get_u64(bytes + 72),
		.mtime_ns = (int64_t)ki_get_u64(bytes + 80),
		.n_words = size / 8,
	};
	if (ki_get_u16(bytes + 6) < sizeof(entry->name))
		memcpy(entry->name, bytes + KI_RECORD_HEADER,
		       ki_get_u16(bytes + 6));
	before = ki_records_newest(records, entry->digest_low,
				   entry->digest_high);
	entry->older = ki_map_get(&records->by_digest,
				  ki_records_hash(entry->digest_low));
	entry->name_older = ki_map_get(&records->by_name,
				       ki_records_hash(entry->name_hash));
	if (ki_map_put(&records->by_name, ki_records_hash(entry->name_hash),
		       entry))
		goto fail;
	if (ki_map_put(&records->by_digest, ki_records_hash(entry->digest_low),
		       entry))
		goto fail_name;
	if (before)
		bury(records, before, KI_RECORD_DEAD);
	records->totals.n_living++;
	records->totals.bytes_living += size;
	records->totals.bytes_files += entry->file_size;
	if (entry->serial > records->last_serial)
		records->last_serial = entry->serial;
	return 0;
fail_name:
	if (entry->name_older)
		(void)ki_map_put(&records->by_name,
				 ki_records_hash(entry->name_hash),
				 entry->name_older);
	else
		(void)ki_map_remove(&records->by_name,
				    ki_records_hash(entry->name_hash));
fail:
	records->n_entries--;
	if (records->n_entries % KI_RECORDS_CHUNK == 0)
		free(records->chunks[records->n_entries / KI_RECORDS_CHUNK]);
	return -ENOMEM;
}
