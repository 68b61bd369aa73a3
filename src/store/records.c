/* SPDX-License-Identifier: MIT */

/*
 * kiln.records, read and written.
 *
 *	header | record | record | ... | torn | record | record
 *	                                 ^ costs itself: the next one is found
 *	                                   by alignment, magic, place and check
 *
 * What is in the file is known by an index in this process, by digest and by
 * name, which points into the file; it is brought up to date from where it
 * ended (`seen`), or made anew when another inode has the name.  A record that
 * cannot be read at the very end may be one that is being written: `seen` stays
 * before it until the file is longer.
 *
 *	entry.older         the same digest, before it
 *	entry.name_older    the same name, before it
 *
 * An entry that was replaced stays in its chain: between the record of the new
 * file and the rename that gives it its name, the old one is the true one.
 *
 * The library maps the file and keeps a descriptor; before it writes through
 * that, it compares which file it is, once between begin and end.  A guest reads
 * what it needs by pread, and so does who may not write: on overlayfs a mapping
 * made before the first writer copies the file up stays that of the lower one, and
 * is too short.
 */

#include "store/records.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/blob.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/status.h"

#define VERSION	      1
#define FILE_HEADER   KI_RECORDS_HEADER_BYTES
#define RECORD_HEADER 96
#define MAGIC	      0x6552694bu /* "KiRe" */
#define KIND_ENTRY    1
#define KIND_DROP     2
#define AHEAD	      ((size_t)256 << 10)
#define MAP_MIN	      ((uint64_t)64 << 10)
#define CHUNK	      1024 /* entries */
#define BRING_MAX     2048
#define LINE	      64 /* of the processor's caches */
#define RENEWING      ".new"

static const uint8_t file_magic[8] = { 'K', 'I', 'L', 'N', 'R', 'E', 'C', 'S' };

#define DEAD	1u /* replaced */
#define DROPPED 2u
#define MARKED	4u

/* What a find needs is in the first line. */
struct entry {
	uint64_t digest_low;
	uint64_t digest_high;
	struct entry *older;
	uint64_t offset;
	uint32_t bytes;
	uint32_t flags;
	uint64_t serial;
	uint64_t trusted_ns;
	struct entry *name_older;
	uint64_t name_hash;
	uint64_t inode;
	uint64_t file_size;
	char name[KI_RECORDS_GLANCE_MAX]; /* "" if it is longer */
} __attribute__((aligned(LINE)));

struct ki_records {
	/* Fixed after open. */
	const struct ki_sys *sys;
	char *path;
	char *renewing; /* what is being written */
	uint32_t flags;
	/* Under mutex. */
	struct ki_mutex mutex;
	int fd; /* -1: none */
	int can_write;
	int is_held;		/* nobody else writes: what is known is all */
	uint64_t device, inode; /* what the index is of; inode 0: nothing */
	uint64_t size;
	uint64_t seen;
	int has_settings;
	int is_newer;
	struct ki_records_settings settings;
	uint64_t last_serial;
	uint64_t n_changes; /* to what is known; read without the mutex */
	uint8_t *map;
	uint64_t map_size;
	uint8_t *buffer;
	size_t buffer_size, buffer_capacity;
	uint64_t buffer_offset;
	/* The index. */
	struct entry **chunks;
	size_t n_entries;
	struct ki_map by_digest, by_name;
	struct ki_records_totals totals;
};

static int is_guest(const struct ki_records *records)
{
	return !!(records->flags & KILN_OPEN_GUEST);
}

static int is_readonly(const struct ki_records *records)
{
	return !!(records->flags & (KILN_OPEN_READONLY | KILN_OPEN_ANY_OWNER));
}

static uint64_t align8(uint64_t n)
{
	return (n + 7) & ~(uint64_t)7;
}

/* ---- The index --------------------------------------------------------------- */

static struct entry *entry_at(const struct ki_records *records, size_t i)
{
	return &records->chunks[i / CHUNK][i % CHUNK];
}

static uintptr_t not_0(uint64_t hash)
{
	return hash ? (uintptr_t)hash : 1;
}

static void note_change(struct ki_records *records)
{
	__atomic_store_n(&records->n_changes, records->n_changes + 1,
			 __ATOMIC_RELEASE);
}

static void clear_index(struct ki_records *records)
{
	for (size_t i = 0; i < records->n_entries; i += CHUNK)
		free(records->chunks[i / CHUNK]);
	free(records->chunks);
	records->chunks = NULL;
	records->n_entries = 0;
	ki_map_fini(&records->by_digest);
	ki_map_fini(&records->by_name);
	records->totals = (struct ki_records_totals){ 0 };
	records->last_serial = 0;
	note_change(records);
}

static struct entry *new_entry(struct ki_records *records)
{
	const size_t n = records->n_entries;
	struct entry **chunks;

	if (n % CHUNK)
		goto out;
	chunks = realloc(records->chunks,
			 (n / CHUNK + 1) * sizeof(struct entry *));
	if (!chunks)
		return NULL;
	records->chunks = chunks;
	chunks[n / CHUNK] = aligned_alloc(LINE, CHUNK * sizeof(struct entry));
	if (!chunks[n / CHUNK])
		return NULL;
out:
	records->n_entries++;
	return entry_at(records, n);
}

static int is_of(const struct entry *entry, uint64_t low, uint64_t high)
{
	return entry->digest_low == low && entry->digest_high == high;
}

static struct entry *newest(const struct ki_records *records, uint64_t low,
			    uint64_t high)
{
	struct entry *entry = ki_map_get(&records->by_digest, not_0(low));

	while (entry && !is_of(entry, low, high))
		entry = entry->older;
	return entry;
}

static struct entry *older_of(const struct entry *entry)
{
	struct entry *older = entry->older;

	while (older && !is_of(older, entry->digest_low, entry->digest_high))
		older = older->older;
	return older;
}

static void bury(struct ki_records *records, struct entry *entry,
		 unsigned flags)
{
	if (!(entry->flags & (DEAD | DROPPED))) {
		records->totals.n_living--;
		records->totals.bytes_living -= entry->bytes;
		records->totals.bytes_files -= entry->file_size;
	}
	entry->flags |= flags;
}

static void drop_digest(struct ki_records *records, uint64_t low, uint64_t high)
{
	struct entry *entry = newest(records, low, high);

	for (; entry; entry = older_of(entry))
		bury(records, entry, DROPPED);
}

static int add_entry(struct ki_records *records, const uint8_t *bytes,
		     uint64_t offset, uint32_t size)
{
	struct entry *entry = new_entry(records), *before;

	if (!entry)
		return -ENOMEM;
	*entry = (struct entry){
		.digest_low = ki_digest_low(bytes + 16),
		.digest_high = ki_digest_high(bytes + 16),
		.name_hash = ki_xxh3_64(bytes + RECORD_HEADER,
					ki_get_u16(bytes + 6)),
		.offset = offset,
		.serial = ki_get_u64(bytes + 40),
		.inode = ki_get_u64(bytes + 64),
		.file_size = ki_get_u64(bytes + 72),
		.bytes = size,
	};
	if (ki_get_u16(bytes + 6) < sizeof(entry->name))
		memcpy(entry->name, bytes + RECORD_HEADER,
		       ki_get_u16(bytes + 6));
	before = newest(records, entry->digest_low, entry->digest_high);
	entry->older =
		ki_map_get(&records->by_digest, not_0(entry->digest_low));
	entry->name_older =
		ki_map_get(&records->by_name, not_0(entry->name_hash));
	if (ki_map_put(&records->by_name, not_0(entry->name_hash), entry))
		goto fail;
	if (ki_map_put(&records->by_digest, not_0(entry->digest_low), entry))
		goto fail_name;
	if (before)
		bury(records, before, DEAD);
	records->totals.n_living++;
	records->totals.bytes_living += size;
	records->totals.bytes_files += entry->file_size;
	if (entry->serial > records->last_serial)
		records->last_serial = entry->serial;
	return 0;
fail_name:
	if (entry->name_older)
		(void)ki_map_put(&records->by_name, not_0(entry->name_hash),
				 entry->name_older);
	else
		(void)ki_map_remove(&records->by_name, not_0(entry->name_hash));
fail:
	records->n_entries--;
	if (records->n_entries % CHUNK == 0)
		free(records->chunks[records->n_entries / CHUNK]);
	return -ENOMEM;
}

/* ---- Bytes of the file --------------------------------------------------------- */

static void unmap(struct ki_records *records)
{
	if (records->map)
		records->sys->unmap(records->sys, records->map,
				    (size_t)records->map_size);
	records->map = NULL;
	records->map_size = 0;
}

/* A mapping that the file may grow into.  Without one, reads do. */
static void map_all(struct ki_records *records)
{
	uint64_t size = records->size < MAP_MIN ? MAP_MIN : records->size * 2;
	void *data;

	if (is_guest(records) || !records->can_write ||
	    records->size <= records->map_size)
		return;
	unmap(records);
	size = (size + MAP_MIN - 1) & ~(MAP_MIN - 1);
	if (size > SIZE_MAX / 2 || records->sys->map(records->sys, records->fd,
						     0, (size_t)size, 0, &data))
		return;
	records->map = data;
	records->map_size = size;
}

static int reserve(struct ki_records *records, size_t size)
{
	uint8_t *buffer;

	if (size <= records->buffer_capacity)
		return 0;
	buffer = realloc(records->buffer, size);
	if (!buffer)
		return -ENOMEM;
	records->buffer = buffer;
	records->buffer_capacity = size;
	return 0;
}

/* Bytes of the file, which has them; `ahead` more are read if they are read at
   all.  Valid until the next call. */
static int look(struct ki_records *records, uint64_t offset, uint64_t size,
		size_t ahead, const uint8_t **out_bytes)
{
	uint64_t want = size + ahead;
	int err;

	if (records->map && offset + size <= records->map_size) {
		*out_bytes = records->map + offset;
		return 0;
	}
	if (offset >= records->buffer_offset &&
	    offset + size <= records->buffer_offset + records->buffer_size) {
		*out_bytes =
			records->buffer + (offset - records->buffer_offset);
		return 0;
	}
	if (want > records->size - offset)
		want = records->size - offset;
	err = reserve(records, (size_t)want);
	if (err)
		return err;
	records->buffer_size = 0;
	err = ki_pread_all(records->sys, records->fd, records->buffer,
			   (size_t)want, offset);
	if (err)
		return err;
	records->buffer_offset = offset;
	records->buffer_size = (size_t)want;
	*out_bytes = records->buffer;
	return 0;
}

static void forget_buffer(struct ki_records *records)
{
	records->buffer_size = 0;
	if (records->buffer_capacity < AHEAD)
		return;
	free(records->buffer);
	records->buffer = NULL;
	records->buffer_capacity = 0;
}

/* ---- One record ------------------------------------------------------------------ */

static uint64_t size_of(uint64_t name_size, uint64_t record_size,
			uint64_t metadata_size)
{
	return align8(RECORD_HEADER + name_size + record_size + metadata_size);
}

/* What a header says of the whole; 0: it is none, or not of this place. */
static uint64_t claimed_size(const uint8_t *header, uint64_t offset)
{
	const uint64_t name_size = ki_get_u16(header + 6);
	const uint64_t record_size = ki_get_u32(header + 8);
	const uint64_t metadata_size = ki_get_u32(header + 12);

	if (ki_get_u32(header) != MAGIC ||
	    (header[4] != KIND_ENTRY && header[4] != KIND_DROP) ||
	    name_size > KI_RECORDS_NAME_MAX ||
	    record_size > KILN_KEY_BYTES_MAX ||
	    metadata_size > KILN_METADATA_BYTES_MAX ||
	    ki_get_u64(header + 32) != offset)
		return 0;
	return size_of(name_size, record_size, metadata_size);
}

static uint64_t check_of(const uint8_t *bytes, uint64_t size)
{
	return ki_xxh3_64(bytes, RECORD_HEADER - 8) +
	       ki_xxh3_64(bytes + RECORD_HEADER, (size_t)size - RECORD_HEADER);
}

static int is_whole(const uint8_t *bytes, uint64_t size)
{
	return ki_get_u64(bytes + RECORD_HEADER - 8) == check_of(bytes, size);
}

/* The bytes of the record at an offset, checked: 1; 0: there is none. */
static int record_at(struct ki_records *records, uint64_t offset, size_t ahead,
		     const uint8_t **out_bytes, uint64_t *out_size)
{
	int err;

	err = look(records, offset, RECORD_HEADER, ahead, out_bytes);
	if (err)
		return err;
	*out_size = claimed_size(*out_bytes, offset);
	if (!*out_size || *out_size > records->size - offset)
		return 0;
	err = look(records, offset, *out_size, ahead, out_bytes);
	return err ? err : is_whole(*out_bytes, *out_size);
}

static int take_record(struct ki_records *records, const uint8_t *bytes,
		       uint64_t offset, uint64_t size)
{
	const uint8_t *digest;

	note_change(records);
	if (bytes[4] == KIND_ENTRY)
		return add_entry(records, bytes, offset, (uint32_t)size);
	digest = bytes + RECORD_HEADER;
	for (uint32_t left = ki_get_u32(bytes + 8); left >= KILN_DIGEST_BYTES;
	     left -= KILN_DIGEST_BYTES) {
		drop_digest(records, ki_digest_low(digest),
			    ki_digest_high(digest));
		digest += KILN_DIGEST_BYTES;
	}
	return 0;
}

/* ---- Catching up ------------------------------------------------------------------- */

static int parse(struct ki_records *records)
{
	uint64_t offset = records->seen, size = 0;

	map_all(records);
	while (offset + RECORD_HEADER <= records->size) {
		const uint8_t *bytes;
		int err, found = record_at(records, offset, AHEAD, &bytes,
					   &size);

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

	records->has_settings = 0;
	records->is_newer = 0;
	records->settings =
		(struct ki_records_settings){ .bytes_max = UINT64_MAX };
	records->seen = FILE_HEADER;
	if (records->size < FILE_HEADER)
		return 0;
	err = look(records, 0, FILE_HEADER, AHEAD, &bytes);
	if (err)
		return err;
	if (memcmp(bytes, file_magic, sizeof(file_magic)) != 0 ||
	    ki_get_u64(bytes + 56) != ki_xxh3_64(bytes, 56))
		return 0;
	records->is_newer = ki_get_u32(bytes + 8) > VERSION;
	records->has_settings = ki_get_u32(bytes + 8) == VERSION;
	if (records->has_settings)
		records->settings = (struct ki_records_settings){
			.user_version = ki_get_u32(bytes + 12),
			.generation = ki_get_u64(bytes + 16),
			.bytes_max = ki_get_u64(bytes + 24),
		};
	return 0;
}

static void close_file(struct ki_records *records)
{
	if (records->fd >= 0)
		(void)records->sys->close(records->sys, records->fd);
	records->fd = -1;
}

static void forget_all(struct ki_records *records)
{
	unmap(records);
	clear_index(records);
	forget_buffer(records);
	records->inode = records->device = 0;
	records->size = records->seen = 0;
	records->has_settings = records->is_newer = 0;
	records->settings =
		(struct ki_records_settings){ .bytes_max = UINT64_MAX };
}

static int open_file(struct ki_records *records)
{
	const struct ki_sys *sys = records->sys;
	unsigned flags = KI_OPEN_READ | KI_OPEN_NOFOLLOW;

	records->can_write = !is_readonly(records);
	if (records->can_write)
		records->fd =
			sys->open(sys, records->path, flags | KI_OPEN_WRITE, 0);
	if (!records->can_write || records->fd == -EACCES ||
	    records->fd == -EPERM || records->fd == -EROFS) {
		records->can_write = 0;
		records->fd = sys->open(sys, records->path, flags, 0);
	}
	if (records->fd >= 0)
		return 0;
	flags = (unsigned)-records->fd;
	records->fd = -1;
	return -(int)flags;
}

/* If it cannot be told whose the descriptor is, it is left alone. */
static int fd_is_ours(const struct ki_records *records)
{
	uint64_t device, inode;

	return !records->sys->fidentify(records->sys, records->fd, &device,
					&inode) &&
	       device == records->device && inode == records->inode;
}

/* Whether the descriptor is still of the file that has the name; if it is no
   longer ours, somebody else's file has its number. */
static int fd_is_current(struct ki_records *records,
			 struct ki_file_info *out_info)
{
	int err;

	if (records->fd < 0)
		return 0;
	err = records->sys->fmeasure(records->sys, records->fd, out_info);
	if (err ? !fd_is_ours(records)
		: out_info->inode != records->inode ||
			    out_info->device != records->device) {
		records->fd = -1;
		return 0;
	}
	if (!err && out_info->n_links)
		return 1;
	close_file(records);
	return 0;
}

static int follow(struct ki_records *records, const struct ki_file_info *info)
{
	int err;

	if (info->inode == records->inode && info->device == records->device &&
	    info->size == records->size)
		return 0;
	if (info->inode != records->inode || info->device != records->device ||
	    info->size < records->size) {
		forget_all(records);
		records->inode = info->inode;
		records->device = info->device;
		records->size = info->size;
		map_all(records);
		err = read_header(records);
	} else {
		records->size = info->size;
		records->buffer_size = 0;
		err = 0;
	}
	if (!err && !records->is_newer)
		err = parse(records);
	forget_buffer(records);
	/* What is half known is not known. */
	if (err)
		forget_all(records);
	return err ? err : 1;
}

static int refresh(struct ki_records *records)
{
	struct ki_file_info info;
	int err;

	if (!fd_is_current(records, &info)) {
		err = open_file(records);
		if (err == -ENOENT || err == -ENOTDIR || err == -ELOOP) {
			int changed = records->inode != 0;

			forget_all(records);
			return changed;
		}
		if (err)
			return err;
		err = records->sys->fmeasure(records->sys, records->fd, &info);
		if (err) {
			close_file(records);
			return err;
		}
	}
	err = follow(records, &info);
	if (err < 0)
		close_file(records);
	return err;
}

static void enter(struct ki_records *records) KI_ACQUIRE(records->mutex)
{
	ki_mutex_lock(&records->mutex);
}

static void leave(struct ki_records *records) KI_RELEASE(records->mutex)
{
	if (is_guest(records))
		close_file(records);
	records->buffer_size = 0;
	ki_mutex_unlock(&records->mutex);
}

int ki_records_refresh(struct ki_records *records)
{
	int result;

	enter(records);
	result = refresh(records);
	leave(records);
	return result;
}

uint64_t ki_records_n_changes(struct ki_records *records)
{
	return __atomic_load_n(&records->n_changes, __ATOMIC_ACQUIRE);
}

/* ---- Reading ------------------------------------------------------------------------ */

/* A guest's descriptor is opened for the call: of the file that is known. */
static int ready_to_read(struct ki_records *records)
{
	int err = 0;

	if (!records->map && records->fd < 0)
		err = refresh(records);
	return err < 0 ? err : 0;
}

/* All of a record is read, so all of it is asked for at once. */
static void bring(const struct ki_records *records, const struct entry *entry)
{
	if (!records->map || entry->bytes > BRING_MAX)
		return;
	for (uint32_t at = 0; at < entry->bytes; at += LINE)
		__builtin_prefetch(records->map + entry->offset + at);
}

/* The bytes of an entry; -ENODATA if they are damaged. */
static int bytes_of(struct ki_records *records, const struct entry *entry,
		    const uint8_t **out_bytes)
{
	int err = look(records, entry->offset, entry->bytes, 0, out_bytes);

	if (err)
		return err;
	if (claimed_size(*out_bytes, entry->offset) != entry->bytes ||
	    !is_whole(*out_bytes, entry->bytes))
		return -ENODATA;
	return 0;
}

static void fill_found(const struct entry *entry, const uint8_t *bytes,
		       struct ki_record_found *found)
{
	const size_t name_size = ki_get_u16(bytes + 6);

	memcpy(found->digest, bytes + 16, KILN_DIGEST_BYTES);
	memcpy(found->name, bytes + RECORD_HEADER, name_size);
	found->name[name_size] = '\0';
	found->serial = entry->serial;
	found->bytes = entry->bytes;
	found->value_size = ki_get_u64(bytes + 48);
	found->value_check = ki_get_u64(bytes + 56);
	found->inode = ki_get_u64(bytes + 64);
	found->file_size = ki_get_u64(bytes + 72);
	found->mtime_ns = (int64_t)ki_get_u64(bytes + 80);
	found->trusted_ns = entry->trusted_ns;
}

static const uint8_t *record_of(const uint8_t *bytes, size_t *out_size)
{
	*out_size = ki_get_u32(bytes + 8);
	return bytes + RECORD_HEADER + ki_get_u16(bytes + 6);
}

static const uint8_t *metadata_of(const uint8_t *bytes, size_t *out_size)
{
	size_t record_size;
	const uint8_t *record = record_of(bytes, &record_size);

	*out_size = ki_get_u32(bytes + 12);
	return record + record_size;
}

static enum kiln_status copy_part(const uint8_t *data, size_t size,
				  struct kiln_blob **out_blob)
{
	return out_blob ? kiln_blob_copy(data, size, out_blob) : KILN_OK;
}

static enum kiln_status status_of(int err)
{
	return err == -ENODATA ? KILN_MISS : ki_status_from_errno(err);
}

static enum kiln_status find(struct ki_records *records,
			     const struct kiln_key *key, unsigned older,
			     struct ki_record_found *out_found,
			     struct kiln_blob **out_metadata)
{
	struct entry *entry;
	const uint8_t *bytes, *data;
	size_t size;
	int err = ready_to_read(records);

	if (err)
		return ki_status_from_errno(err);
	entry = newest(records, key->digest_low, key->digest_high);
	while (entry && older--)
		entry = older_of(entry);
	if (!entry || (entry->flags & DROPPED))
		return KILN_MISS;
	bring(records, entry);
	err = bytes_of(records, entry, &bytes);
	if (err)
		return status_of(err);
	data = record_of(bytes, &size);
	if (size != key->record.size ||
	    memcmp(data, key->record.data, size) != 0)
		return KILN_E_COLLISION;
	fill_found(entry, bytes, out_found);
	data = metadata_of(bytes, &size);
	return copy_part(data, size, out_metadata);
}

enum kiln_status ki_records_find(struct ki_records *records,
				 const struct kiln_key *key, unsigned older,
				 struct ki_record_found *out_found,
				 struct kiln_blob **out_metadata)
{
	enum kiln_status status;

	enter(records);
	status = find(records, key, older, out_found, out_metadata);
	leave(records);
	return status;
}

int ki_records_glance(struct ki_records *records, const struct kiln_key *key,
		      char out_name[KI_RECORDS_GLANCE_MAX],
		      uint64_t *out_trusted_ns)
{
	const struct entry *entry;
	int result;

	enter(records);
	entry = newest(records, key->digest_low, key->digest_high);
	result = entry && *entry->name && !(entry->flags & DROPPED);
	if (result) {
		bring(records, entry);
		memcpy(out_name, entry->name, sizeof(entry->name));
		*out_trusted_ns = entry->trusted_ns;
	}
	leave(records);
	return result;
}

void ki_records_trust(struct ki_records *records,
		      const struct ki_record_found *found, uint64_t until_ns)
{
	struct entry *entry;

	enter(records);
	entry = newest(records, ki_digest_low(found->digest),
		       ki_digest_high(found->digest));
	while (entry && entry->serial != found->serial)
		entry = older_of(entry);
	if (entry)
		entry->trusted_ns = until_ns;
	leave(records);
}

static struct entry *named(const struct ki_records *records, uint64_t hash,
			   const uint64_t *inode)
{
	struct entry *entry = ki_map_get(&records->by_name, not_0(hash));

	while (entry && (entry->name_hash != hash || (entry->flags & DROPPED) ||
			 (inode && entry->inode != *inode)))
		entry = entry->name_older;
	return entry;
}

static enum kiln_status find_named(struct ki_records *records, const char *name,
				   const uint64_t *inode,
				   struct ki_record_found *out_found)
{
	const uint64_t hash = ki_xxh3_64(name, strlen(name));
	enum kiln_status status = KILN_MISS;
	struct entry *entry;
	const uint8_t *bytes;
	int err;

	enter(records);
	err = ready_to_read(records);
	entry = err ? NULL : named(records, hash, inode);
	if (entry)
		err = bytes_of(records, entry, &bytes);
	if (err) {
		status = status_of(err);
	} else if (entry) {
		fill_found(entry, bytes, out_found);
		status = strcmp(out_found->name, name) ? KILN_MISS : KILN_OK;
	}
	leave(records);
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

/* The first entry above a serial: they rise. */
static size_t above(const struct ki_records *records, uint64_t serial)
{
	size_t low = 0, high = records->n_entries;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (entry_at(records, middle)->serial <= serial)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static enum kiln_status copy_entry(const struct entry *entry,
				   const uint8_t *bytes,
				   struct ki_record_found *out_found,
				   struct kiln_blob **out_record,
				   struct kiln_blob **out_metadata)
{
	struct kiln_blob *record = NULL;
	enum kiln_status status;
	const uint8_t *data;
	size_t size;

	data = record_of(bytes, &size);
	status = copy_part(data, size, out_record ? &record : NULL);
	data = metadata_of(bytes, &size);
	if (!status)
		status = copy_part(data, size, out_metadata);
	if (status) {
		kiln_blob_unref(record);
		return status;
	}
	if (out_record)
		*out_record = record;
	fill_found(entry, bytes, out_found);
	return KILN_OK;
}

enum kiln_status ki_records_next(struct ki_records *records, uint64_t *serial,
				 struct ki_record_found *out_found,
				 struct kiln_blob **out_record,
				 struct kiln_blob **out_metadata)
{
	enum kiln_status status = KILN_END;
	int err;

	enter(records);
	err = ready_to_read(records);
	for (size_t i = err ? records->n_entries : above(records, *serial);
	     i < records->n_entries; i++) {
		const struct entry *entry = entry_at(records, i);
		const uint8_t *bytes;

		if (entry->flags & (DEAD | DROPPED))
			continue;
		err = bytes_of(records, entry, &bytes);
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
	leave(records);
	return err ? ki_status_from_errno(err) : status;
}

struct ki_records_totals ki_records_totals(struct ki_records *records)
{
	struct ki_records_totals totals;

	enter(records);
	totals = records->totals;
	totals.bytes = records->size;
	if (records->size)
		totals.bytes_living += FILE_HEADER;
	leave(records);
	return totals;
}

struct ki_records_settings ki_records_settings(struct ki_records *records)
{
	struct ki_records_settings settings;

	enter(records);
	settings = records->settings;
	leave(records);
	return settings;
}

/* ---- Writing ------------------------------------------------------------------------- */

int ki_records_begin(struct ki_records *records)
{
	int result;

	enter(records);
	result = refresh(records);
	records->is_held = result >= 0;
	leave(records);
	return result;
}

void ki_records_end(struct ki_records *records)
{
	enter(records);
	records->is_held = 0;
	leave(records);
}

uint64_t ki_records_size(const struct ki_record *record)
{
	const size_t name_size = strlen(record->name);

	if (name_size > KI_RECORDS_NAME_MAX ||
	    record->record_size > KILN_KEY_BYTES_MAX ||
	    record->metadata_size > KILN_METADATA_BYTES_MAX)
		return 0;
	return size_of(name_size, record->record_size, record->metadata_size);
}

static int seal_header(struct ki_records *records,
		       const struct ki_records_settings *given,
		       uint8_t bytes[FILE_HEADER])
{
	struct ki_records_settings settings = *given;
	int err = 0;

	if (!settings.generation)
		err = records->sys->random(records->sys, &settings.generation,
					   sizeof(settings.generation));
	memset(bytes, 0, FILE_HEADER);
	memcpy(bytes, file_magic, sizeof(file_magic));
	ki_put_u32(bytes + 8, VERSION);
	ki_put_u32(bytes + 12, settings.user_version);
	ki_put_u64(bytes + 16, settings.generation);
	ki_put_u64(bytes + 24, settings.bytes_max);
	ki_put_u64(bytes + 56, ki_xxh3_64(bytes, 56));
	return err;
}

/* The living entry to keep: in the middle of a replacement somebody died, and
   the file is still the old one. */
static const struct entry *true_one(const struct ki_records *records,
				    const struct entry *entry,
				    const uint8_t *bytes)
{
	const struct entry *older = older_of(entry);
	const char *slash = strrchr(records->path, '/');
	const size_t directory =
		slash ? (size_t)(slash + 1 - records->path) : 0;
	const size_t name_size = ki_get_u16(bytes + 6);
	struct ki_file_info info;
	char path[KI_PATH_MAX];

	if (!older || (older->flags & DROPPED) ||
	    directory + name_size >= sizeof(path))
		return entry;
	memcpy(path, records->path, directory);
	memcpy(path + directory, bytes + RECORD_HEADER, name_size);
	path[directory + name_size] = '\0';
	if (records->sys->lstat(records->sys, path, &info) ||
	    info.inode == entry->inode)
		return entry;
	while (older && !(older->flags & DROPPED) && older->inode != info.inode)
		older = older_of(older);
	return older && !(older->flags & DROPPED) ? older : entry;
}

/* Add the living to `out`, at most `size_max` of it, from entry *i on. */
static int gather(struct ki_records *records, size_t *i, uint64_t offset,
		  struct ki_bytes *out)
{
	for (; *i < records->n_entries && out->size < AHEAD; ++*i) {
		const struct entry *entry = entry_at(records, *i), *kept;
		const uint8_t *bytes;
		uint8_t *copy;
		int err;

		if (entry->flags & (DEAD | DROPPED))
			continue;
		err = bytes_of(records, entry, &bytes);
		kept = err ? entry : true_one(records, entry, bytes);
		if (kept != entry)
			err = bytes_of(records, kept, &bytes);
		if (err == -ENODATA)
			continue;
		if (err)
			return err;
		copy = ki_bytes_grow(out, kept->bytes);
		if (!copy)
			return -ENOMEM;
		memcpy(copy, bytes, kept->bytes);
		ki_put_u64(copy + 32, offset + out->size - kept->bytes);
		ki_put_u64(copy + 40, entry->serial);
		ki_put_u64(copy + RECORD_HEADER - 8,
			   check_of(copy, kept->bytes));
	}
	return 0;
}

static int write_living(struct ki_records *records, int fd)
{
	uint64_t offset = FILE_HEADER;
	struct ki_bytes out;
	size_t i = 0;
	int err = 0;

	ki_bytes_init(&out);
	while (!err && i < records->n_entries) {
		ki_bytes_clear(&out);
		err = gather(records, &i, offset, &out);
		if (!err)
			err = ki_pwrite_all(records->sys, fd, out.data,
					    out.size, offset);
		offset += out.size;
	}
	ki_bytes_fini(&out);
	return err;
}

/* What a dead writer left goes: nobody else writes it now. */
static int open_renewing(struct ki_records *records)
{
	const struct ki_sys *sys = records->sys;
	const unsigned flags = KI_OPEN_WRITE | KI_OPEN_CREATE |
			       KI_OPEN_EXCLUSIVE | KI_OPEN_NOFOLLOW;
	const unsigned mode = records->flags & KILN_OPEN_SHARED ? 0660 : 0600;
	int err = 0, fd = sys->open(sys, records->renewing, flags, mode);

	if (fd == -EEXIST) {
		(void)sys->unlink(sys, records->renewing);
		fd = sys->open(sys, records->renewing, flags, mode);
	}
	if (fd >= 0 && (records->flags & KILN_OPEN_SHARED))
		err = sys->chmod(sys, records->renewing, mode);
	if (!err)
		return fd;
	(void)sys->close(sys, fd);
	return err;
}

/* Another file in the place of this one, with the living or without. */
static int renew(struct ki_records *records,
		 const struct ki_records_settings *settings, int keep)
{
	const struct ki_sys *sys = records->sys;
	uint8_t header[FILE_HEADER];
	int fd, close_err, err = seal_header(records, settings, header);

	if (err)
		return err;
	fd = open_renewing(records);
	if (fd < 0)
		return fd;
	err = ki_pwrite_all(sys, fd, header, sizeof(header), 0);
	if (!err && keep)
		err = write_living(records, fd);
	close_err = sys->close(sys, fd);
	if (!err)
		err = close_err;
	if (!err)
		err = sys->rename(sys, records->renewing, records->path);
	if (err) {
		(void)sys->unlink(sys, records->renewing);
		return err;
	}
	err = refresh(records);
	return err < 0 ? err : 0;
}

/* Whether writing may begin: a file that is there, with a header that is
   whole. */
static int ready_to_write(struct ki_records *records)
{
	int err = is_readonly(records) ? -EROFS : 0;

	if (!err && (!records->is_held || records->fd < 0))
		err = refresh(records);
	if (err < 0)
		return err;
	if (records->is_newer)
		return -EPROTONOSUPPORT;
	if (!records->has_settings)
		err = renew(records, &records->settings, 1);
	if (err < 0)
		return err;
	return records->can_write ? 0 : -EROFS;
}

static enum kiln_status write_status(int err)
{
	return err == -EPROTONOSUPPORT ? KILN_E_FORMAT
				       : ki_status_from_errno(err);
}

static int write_record(struct ki_records *records, uint8_t *header,
			const struct ki_piece *parts, int n_parts)
{
	static const uint8_t zeros[8];
	const uint64_t offset = align8(records->size);
	struct ki_piece pieces[6] = {
		{ zeros, (size_t)(offset - records->size) },
		{ header, RECORD_HEADER },
	};
	uint64_t size = RECORD_HEADER;
	int err;

	for (int i = 0; i < n_parts; i++) {
		pieces[2 + i] = parts[i];
		size += parts[i].size;
	}
	pieces[2 + n_parts] =
		(struct ki_piece){ zeros, (size_t)(align8(size) - size) };
	ki_put_u32(header, MAGIC);
	ki_put_u64(header + 32, offset);
	ki_put_u64(header + 40, records->last_serial + 1);
	ki_put_u64(header + RECORD_HEADER - 8,
		   ki_xxh3_64(header, RECORD_HEADER - 8) +
			   ki_xxh3_64_pieces(pieces + 2, (size_t)n_parts + 1));
	err = ki_pwritev_all(records->sys, records->fd, pieces, n_parts + 3,
			     records->size);
	if (err)
		return err;
	records->size = offset + align8(size);
	records->buffer_size = 0;
	return parse(records);
}

enum kiln_status ki_records_append(struct ki_records *records,
				   const struct ki_record *record)
{
	const size_t name_size = strlen(record->name);
	const struct ki_piece parts[] = {
		{ record->name, name_size },
		{ record->record, record->record_size },
		{ record->metadata, record->metadata_size },
	};
	uint8_t header[RECORD_HEADER] = { 0 };
	int err;

	if (!ki_records_size(record))
		return KILN_E_TOO_LARGE;
	header[4] = KIND_ENTRY;
	ki_put_u16(header + 6, (uint16_t)name_size);
	ki_put_u32(header + 8, (uint32_t)record->record_size);
	ki_put_u32(header + 12, (uint32_t)record->metadata_size);
	memcpy(header + 16, record->digest, KILN_DIGEST_BYTES);
	ki_put_u64(header + 48, record->value_size);
	ki_put_u64(header + 56, record->value_check);
	ki_put_u64(header + 64, record->inode);
	ki_put_u64(header + 72, record->file_size);
	ki_put_u64(header + 80, (uint64_t)record->mtime_ns);
	enter(records);
	err = ready_to_write(records);
	if (!err)
		err = write_record(records, header, parts, 3);
	leave(records);
	return write_status(err);
}

enum kiln_status ki_records_drop(struct ki_records *records,
				 const uint8_t (*digests)[KILN_DIGEST_BYTES],
				 size_t n_digests)
{
	const size_t n_max = KILN_KEY_BYTES_MAX / KILN_DIGEST_BYTES;
	int err;

	enter(records);
	err = ready_to_write(records);
	while (!err && n_digests) {
		const size_t n = n_digests < n_max ? n_digests : n_max;
		const struct ki_piece part = { digests, n * KILN_DIGEST_BYTES };
		uint8_t header[RECORD_HEADER] = { 0 };

		header[4] = KIND_DROP;
		ki_put_u32(header + 8, (uint32_t)part.size);
		err = write_record(records, header, &part, 1);
		digests += n;
		n_digests -= n;
	}
	leave(records);
	return write_status(err);
}

enum kiln_status ki_records_rewrite(struct ki_records *records,
				    const struct ki_records_settings *settings)
{
	int err;

	enter(records);
	err = ready_to_write(records);
	if (!err)
		err = renew(records, settings ? settings : &records->settings,
			    1);
	leave(records);
	return write_status(err);
}

enum kiln_status ki_records_reset(struct ki_records *records,
				  const struct ki_records_settings *settings)
{
	int err;

	enter(records);
	err = is_readonly(records) ? -EROFS : refresh(records);
	if (err >= 0)
		err = records->is_newer ? -EPROTONOSUPPORT
					: renew(records, settings, 0);
	leave(records);
	return write_status(err);
}

/* ---- Comparing with what is there ------------------------------------------------------ */

void ki_records_sweep_begin(struct ki_records *records)
{
	enter(records);
	for (size_t i = 0; i < records->n_entries; i++)
		entry_at(records, i)->flags &= ~MARKED;
	leave(records);
}

int ki_records_mark(struct ki_records *records, const char *name,
		    uint64_t inode)
{
	const uint64_t hash = ki_xxh3_64(name, strlen(name));
	struct entry *entry;

	enter(records);
	entry = ki_map_get(&records->by_name, not_0(hash));
	while (entry && (entry->name_hash != hash || entry->inode != inode ||
			 (entry->flags & DROPPED)))
		entry = entry->name_older;
	if (entry)
		entry->flags |= MARKED;
	leave(records);
	return entry != NULL;
}

static int is_marked(const struct entry *entry)
{
	for (; entry; entry = older_of(entry))
		if (entry->flags & MARKED)
			return 1;
	return 0;
}

static void add_digest(struct ki_bytes *digests, const struct entry *entry)
{
	uint8_t *place = ki_bytes_grow(digests, KILN_DIGEST_BYTES);

	if (!place)
		return;
	for (unsigned i = 0; i < 8; i++) {
		const unsigned shift = 56 - 8 * i;

		place[i] = (uint8_t)(entry->digest_low >> shift);
		place[8 + i] = (uint8_t)(entry->digest_high >> shift);
	}
}

enum kiln_status ki_records_sweep_end(struct ki_records *records,
				      uint64_t *out_n_dropped)
{
	enum kiln_status status = KILN_OK;
	struct ki_bytes digests;

	ki_bytes_init(&digests);
	enter(records);
	for (size_t i = 0; i < records->n_entries; i++) {
		const struct entry *entry = entry_at(records, i);

		if (!(entry->flags & (DEAD | DROPPED)) && !is_marked(entry))
			add_digest(&digests, entry);
	}
	leave(records);
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

/* ---- Open and close --------------------------------------------------------------------- */

static void free_records(struct ki_records *records)
{
	ki_mutex_fini(&records->mutex);
	free(records->path);
	free(records->renewing);
	free(records);
}

enum kiln_status ki_records_open(const struct ki_records_options *options,
				 struct ki_records **out_records)
{
	const size_t size = strlen(options->path);
	struct ki_records *records = calloc(1, sizeof(*records));
	int err;

	if (!records)
		return KILN_E_NO_MEMORY;
	records->sys = options->sys;
	records->flags = options->flags;
	records->fd = -1;
	ki_mutex_init(&records->mutex, KI_RANK_RECORDS);
	records->path = strdup(options->path);
	records->renewing = malloc(size + sizeof(RENEWING));
	if (!records->path || !records->renewing) {
		free_records(records);
		return KILN_E_NO_MEMORY;
	}
	memcpy(records->renewing, options->path, size);
	memcpy(records->renewing + size, RENEWING, sizeof(RENEWING));
	forget_all(records);
	err = ki_records_refresh(records);
	if (err >= 0 && !records->is_newer) {
		*out_records = records;
		return KILN_OK;
	}
	ki_records_close(records);
	return err < 0 ? ki_status_from_errno(err) : KILN_E_FORMAT;
}

/* A kept descriptor that is not our file's any more is not ours to close. */
void ki_records_close(struct ki_records *records)
{
	struct ki_file_info info;

	if (!records)
		return;
	(void)fd_is_current(records, &info);
	close_file(records);
	forget_all(records);
	free(records->buffer);
	free_records(records);
}
