/* SPDX-License-Identifier: MIT */

/* Finding one: by key, by name, by name and inode. */

#include "store/records/inside.h"

#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "base/status.h"
#include "key/key.h"
#include "store/evict.h"

#define BRING_MAX 2048

static enum kiln_status status_of(int err)
{
	return err == -ENODATA ? KILN_MISS : ki_status_from_errno(err);
}

/* All of a record is read, so all of it is asked for at once. */
static void bring(const struct ki_records_entry *entry)
{
	if (!entry->kept || ki_records_entry_bytes(entry) > BRING_MAX)
		return;
	for (uint32_t at = 0; at < ki_records_entry_bytes(entry);
	     at += KI_RECORDS_LINE)
		__builtin_prefetch(entry->kept->bytes + at);
}

static struct ki_records_entry *choose(const struct ki_records *records,
				       const struct kiln_key *key,
				       unsigned older)
{
	struct ki_records_entry *entry =
		ki_records_newest(records, key->digest_low, key->digest_high);

	while (entry && older--)
		entry = ki_records_older(entry);
	return entry;
}

static enum kiln_status find(struct ki_records *records,
			     const struct kiln_key *key, unsigned older,
			     struct ki_record_found *out_found,
			     struct kiln_blob **out_metadata)
{
	struct ki_records_entry *entry;
	const uint8_t *bytes, *data;
	size_t size;
	int err;

	entry = choose(records, key, older);
	if (!entry || !entry->kept) {
		err = ki_records_ready_to_read(records);
		if (err)
			return ki_status_from_errno(err);
		entry = choose(records, key, older);
	}
	if (!entry || (entry->flags & KI_RECORD_DROPPED))
		return KILN_MISS;
	bring(entry);
	err = ki_records_bytes_of(records, entry, 0, &bytes);
	if (err)
		return status_of(err);
	if (!ki_records_is_of(bytes, key))
		return KILN_E_COLLISION;
	ki_records_keep(records, entry, bytes);
	ki_records_fill(entry, bytes, out_found);
	data = ki_records_metadata_of(bytes, &size);
	return ki_records_copy_part(data, size, out_metadata);
}

enum kiln_status ki_records_find(struct ki_records *records,
				 const struct kiln_key *key, unsigned older,
				 struct ki_record_found *out_found,
				 struct kiln_blob **out_metadata)
{
	enum kiln_status status;

	ki_records_enter(records);
	status = find(records, key, older, out_found, out_metadata);
	ki_records_leave(records);
	return status;
}

int ki_records_glance(struct ki_records *records, const struct kiln_key *key,
		      char out_name[KI_RECORDS_GLANCE_MAX],
		      uint64_t *out_trusted_ns)
{
	const struct ki_records_entry *entry;
	int result;

	ki_records_enter(records);
	entry = ki_records_newest(records, key->digest_low, key->digest_high);
	result = entry && *entry->name && !(entry->flags & KI_RECORD_DROPPED);
	if (result) {
		bring(entry);
		memcpy(out_name, entry->name, sizeof(entry->name));
		*out_trusted_ns = ki_records_trusted_ns(entry);
	}
	ki_records_leave(records);
	return result;
}

void ki_records_trust(struct ki_records *records,
		      const struct ki_record_found *found, uint64_t until_ns)
{
	struct ki_records_entry *entry;

	ki_records_enter(records);
	entry = ki_records_newest(records, ki_digest_low(found->digest),
				  ki_digest_high(found->digest));
	while (entry && entry->serial != found->serial)
		entry = ki_records_older(entry);
	if (entry)
		ki_records_trust_until(entry, until_ns);
	ki_records_leave(records);
}

/* A name that the index has no room for is in the record. */
static enum kiln_status fill_named(struct ki_records *records,
				   const struct ki_records_entry *entry,
				   const char *name,
				   struct ki_record_found *out_found)
{
	const uint8_t *bytes;
	int err;

	ki_records_fill_file(entry, out_found);
	if (!*entry->name) {
		err = ki_records_bytes_of(records, entry, 0, &bytes);
		if (err)
			return status_of(err);
		ki_records_fill(entry, bytes, out_found);
	}
	return strcmp(out_found->name, name) ? KILN_MISS : KILN_OK;
}

static enum kiln_status find_named(struct ki_records *records, const char *name,
				   const uint64_t *inode,
				   struct ki_record_found *out_found)
{
	const uint64_t hash = ki_xxh3_64(name, strlen(name));
	const struct ki_records_entry *entry;
	enum kiln_status status = KILN_MISS;

	ki_records_enter(records);
	entry = ki_records_named(records, hash, inode);
	if (entry)
		status = fill_named(records, entry, name, out_found);
	ki_records_leave(records);
	return status;
}

enum kiln_status ki_records_by_name(struct ki_records *records,
				    const char *name,
				    struct ki_record_found *out_found)
{
	return find_named(records, name, NULL, out_found);
}

enum kiln_status ki_records_by_file(struct ki_records *records,
				    const char *name, uint64_t inode,
				    struct ki_record_found *out_found)
{
	return find_named(records, name, &inode, out_found);
}

static uint64_t build_ns_of(struct ki_records *records, const char *name,
			    uint64_t inode)
{
	const struct ki_records_entry *entry;
	struct ki_record_found found;
	const uint8_t *bytes, *data;
	size_t size;

	if (ki_records_ready_to_read(records))
		return 0;
	entry = ki_records_named(records, ki_xxh3_64(name, strlen(name)),
				 &inode);
	if (!entry || fill_named(records, entry, name, &found) ||
	    ki_records_bytes_of(records, entry, 0, &bytes))
		return 0;
	data = ki_records_metadata_of(bytes, &size);
	return ki_evict_build_ns(data, size);
}

uint64_t ki_records_build_ns(struct ki_records *records, const char *name,
			     uint64_t inode)
{
	uint64_t build_ns;

	ki_records_enter(records);
	build_ns = build_ns_of(records, name, inode);
	ki_records_leave(records);
	return build_ns;
}
