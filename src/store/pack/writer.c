/* SPDX-License-Identifier: MIT */

/*
 * Writing a pack.  Entries go to a temporary file as they come, each at a
 * multiple of 8; one that could not be written is written over by the next.
 * What is known of them is kept, sorted at the end, and written behind them
 * twice.  The first root comes last: until then the file is no pack.
 */

#include "store/pack/pack.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/map.h"
#include "base/status.h"
#include "key/key.h"

#define MODE	    0644
#define PIECE_BYTES ((size_t)1 << 20)

struct kiln_pack_writer {
	const struct ki_sys *sys;
	char path[KI_PATH_MAX];
	char temporary[KI_PATH_MAX];
	int fd;
	int replace;
	uint64_t user_version;
	uint64_t offset; /* of what comes next */
	struct ki_map by_name;
	struct ki_pack_entry *entries;
	size_t n_entries, capacity;
	struct ki_sign_secret secrets[KILN_PACK_SIGNATURES_MAX];
	size_t n_secrets;
};

/* ---- Beginning and end ----------------------------------------------------- */

static void free_writer(struct kiln_pack_writer *writer)
{
	for (size_t i = 0; i < writer->n_secrets; i++)
		ki_sign_secret_fini(&writer->secrets[i]);
	ki_map_fini(&writer->by_name);
	free(writer->entries);
	free(writer);
}

static enum kiln_status status_of(int err)
{
	return err == -EEXIST ? KILN_EXISTS : ki_status_from_errno(err);
}

static enum kiln_status take_keys(
	struct kiln_pack_writer *writer,
	const struct kiln_pack_writer_options *options)
{
	enum kiln_status status = KILN_OK;

	if (options->n_signing_keys > KILN_PACK_SIGNATURES_MAX)
		return KILN_E_INVALID;
	for (size_t i = 0; !status && i < options->n_signing_keys; i++) {
		status = ki_sign_secret_parse(options->signing_keys[i],
					      &writer->secrets[i]);
		writer->n_secrets += !status;
	}
	return status;
}

static enum kiln_status begin(struct kiln_pack_writer *writer)
{
	const struct ki_sys *sys = writer->sys;
	struct ki_file_info info;
	struct ki_writer self;

	if (!writer->replace && !sys->lstat(sys, writer->path, &info))
		return KILN_EXISTS;
	ki_writer_init(sys, &self);
	ki_temporary_sweep(sys, writer->path, &self);
	writer->fd = ki_temporary_open(sys, writer->temporary, writer->path,
				       MODE, &self);
	return writer->fd < 0 ? status_of(writer->fd) : KILN_OK;
}

enum kiln_status ki_pack_create(const struct ki_sys *sys, const char *path,
				const struct kiln_pack_writer_options *options,
				struct kiln_pack_writer **out_writer)
{
	struct kiln_pack_writer_options given;
	struct kiln_pack_writer *writer;
	enum kiln_status status;

	kiln_pack_writer_options_init(&given);
	if (options)
		memcpy(&given, options,
		       options->size < sizeof(given) ? options->size
						     : sizeof(given));
	if (!path || !out_writer || strlen(path) >= KI_PATH_MAX ||
	    given.flags & ~KILN_PACK_REPLACE)
		return KILN_E_INVALID;
	writer = calloc(1, sizeof(*writer));
	if (!writer)
		return KILN_E_NO_MEMORY;
	writer->sys = sys;
	writer->replace = !!(given.flags & KILN_PACK_REPLACE);
	writer->user_version = given.user_version;
	writer->offset = KI_PACK_ROOT_BYTES;
	memcpy(writer->path, path, strlen(path) + 1);
	ki_map_init(&writer->by_name);
	status = take_keys(writer, &given);
	if (!status)
		status = begin(writer);
	if (status)
		free_writer(writer);
	else
		*out_writer = writer;
	return status;
}

enum kiln_status kiln_pack_create(
	const char *path, const struct kiln_pack_writer_options *options,
	struct kiln_pack_writer **out_writer)
{
	return ki_pack_create(&ki_sys_posix, path, options, out_writer);
}

void kiln_pack_abandon(struct kiln_pack_writer *writer)
{
	if (!writer)
		return;
	(void)writer->sys->close(writer->sys, writer->fd);
	(void)writer->sys->unlink(writer->sys, writer->temporary);
	free_writer(writer);
}

static int write_pieces(struct kiln_pack_writer *writer,
			struct ki_piece *pieces, int n_pieces, uint64_t offset,
			uint64_t size)
{
	/* Past it comes a signal, which kills. */
	if (offset + size > ki_file_size_max())
		return -EFBIG;
	return ki_pwritev_all(writer->sys, writer->fd, pieces, n_pieces,
			      offset);
}

static int write_bytes(struct kiln_pack_writer *writer, const void *data,
		       size_t size, uint64_t offset)
{
	struct ki_piece piece = { data, size };

	return write_pieces(writer, &piece, 1, offset, size);
}

/* ---- Entries --------------------------------------------------------------- */

/* Under a number made of the name: the next free one, if the name is not
   there. */
static enum kiln_status find_free(const struct kiln_pack_writer *writer,
				  const uint8_t name[KI_PACK_NAME_BYTES],
				  uintptr_t *out_number)
{
	uintptr_t number = (uintptr_t)ki_get_u64(name) | 1;
	const struct ki_pack_entry *entry;
	uintptr_t i;

	while ((i = (uintptr_t)ki_map_get(&writer->by_name, number))) {
		entry = &writer->entries[i - 1];
		if (!memcmp(entry->name, name, KI_PACK_NAME_BYTES))
			return KILN_EXISTS;
		number += 2;
	}
	*out_number = number;
	return KILN_OK;
}

static enum kiln_status make_room(struct kiln_pack_writer *writer)
{
	size_t capacity = writer->capacity ? writer->capacity * 2 : 64;
	void *entries;

	if (writer->n_entries == KILN_PACK_ENTRIES_MAX)
		return KILN_E_FULL;
	if (writer->n_entries < writer->capacity)
		return KILN_OK;
	entries = realloc(writer->entries, capacity * sizeof(*writer->entries));
	if (!entries)
		return KILN_E_NO_MEMORY;
	writer->entries = entries;
	writer->capacity = capacity;
	return KILN_OK;
}

static enum kiln_status write_entry(struct kiln_pack_writer *writer,
				    const struct ki_envelope *envelope,
				    struct ki_pack_entry *entry)
{
	uint8_t header[KI_ENVELOPE_HEADER_BYTES];
	struct ki_piece pieces[KI_ENVELOPE_PIECES];

	entry->size = ki_envelope_size(envelope);
	entry->offset = writer->offset;
	entry->position = (uint32_t)writer->n_entries;
	if (!entry->size || entry->size > INT64_MAX / 2 - entry->offset)
		return KILN_E_TOO_LARGE;
	ki_envelope_seal(envelope, header, pieces);
	ki_blake2b_pieces(pieces, KI_ENVELOPE_PIECES, entry->digest);
	return status_of(write_pieces(writer, pieces, KI_ENVELOPE_PIECES,
				      entry->offset, entry->size));
}

static enum kiln_status add(struct kiln_pack_writer *writer,
			    const struct kiln_key *key,
			    struct ki_envelope *envelope)
{
	struct ki_pack_entry entry;
	enum kiln_status status;
	uintptr_t number;

	envelope->record = kiln_key_record(key, &envelope->record_size);
	memcpy(envelope->digest, key->digest, KILN_DIGEST_BYTES);
	envelope->user_version = writer->user_version;
	ki_pack_name(envelope->record, envelope->record_size, entry.name);
	status = find_free(writer, entry.name, &number);
	if (!status)
		status = make_room(writer);
	if (!status)
		status = write_entry(writer, envelope, &entry);
	if (!status && ki_map_put(&writer->by_name, number,
				  (void *)(uintptr_t)(writer->n_entries + 1)))
		status = KILN_E_NO_MEMORY;
	if (status)
		return status;
	writer->entries[writer->n_entries++] = entry;
	writer->offset += (entry.size + 7) & ~(uint64_t)7;
	return KILN_OK;
}

enum kiln_status kiln_pack_add(struct kiln_pack_writer *writer,
			       const struct kiln_key *key, const void *metadata,
			       size_t metadata_size, const void *value,
			       size_t value_size)
{
	struct ki_envelope envelope = { .value = value,
					.value_size = value_size };
	struct ki_bytes stripped;
	enum kiln_status status;

	if (!writer || !key || !key->finished || (!metadata && metadata_size) ||
	    (!value && value_size) || kiln_key_is_local(key) ||
	    ki_metadata_is_hidden(metadata, metadata_size))
		return KILN_E_INVALID;
	ki_bytes_init(&stripped);
	status = ki_metadata_portable(metadata, metadata_size, &stripped);
	envelope.metadata = stripped.data;
	envelope.metadata_size = stripped.size;
	if (!status)
		status = add(writer, key, &envelope);
	ki_bytes_fini(&stripped);
	return status;
}

/* ---- The index -------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
	return memcmp(((const struct ki_pack_entry *)a)->name,
		      ((const struct ki_pack_entry *)b)->name,
		      KI_PACK_NAME_BYTES);
}

/* Pages, then their table, in memory of the caller's. */
static void make_index(struct kiln_pack_writer *writer,
		       struct ki_pack_root *root, uint8_t *out)
{
	uint8_t *table = out + root->n_pages * KI_PACK_PAGE_BYTES;
	size_t rest = writer->n_entries;
	const struct ki_pack_entry *entries = writer->entries;

	if (rest)
		qsort(writer->entries, rest, sizeof(*entries), by_name);
	for (uint64_t i = 0; i < root->n_pages; i++) {
		uint8_t *page = out + i * KI_PACK_PAGE_BYTES;
		size_t n = rest < KI_PACK_PAGE_ENTRIES ? rest
						       : KI_PACK_PAGE_ENTRIES;

		ki_pack_page_write(entries, n, page);
		ki_pack_table_write(page, table + i * KI_PACK_TABLE_BYTES);
		entries += n;
		rest -= n;
	}
	ki_blake2b(table, (size_t)root->n_pages * KI_PACK_TABLE_BYTES,
		   root->table_digest);
}

static int write_index(struct kiln_pack_writer *writer, const uint8_t *index,
		       uint64_t size, uint64_t offset)
{
	uint64_t done;
	int err = 0;

	for (done = 0; done < size && !err; done += PIECE_BYTES)
		err = write_bytes(writer, index + done,
				  size - done < PIECE_BYTES
					  ? (size_t)(size - done)
					  : PIECE_BYTES,
				  offset + done);
	return err;
}

static void lay_out(const struct kiln_pack_writer *writer,
		    struct ki_pack_root *root)
{
	uint64_t index;

	root->n_entries = writer->n_entries;
	root->n_pages = ki_pack_pages_of(writer->n_entries);
	root->user_version = writer->user_version;
	root->created_s = writer->sys->realtime_ns(writer->sys) / 1000000000;
	index = ki_pack_index_bytes(root->n_pages);
	root->index_offset[0] = (writer->offset + KI_PACK_PAGE_BYTES - 1) &
				~(uint64_t)(KI_PACK_PAGE_BYTES - 1);
	root->index_offset[1] = root->index_offset[0] + index;
	root->file_bytes = root->index_offset[1] + index + KI_PACK_ROOT_BYTES;
}

/* The root's bytes, with the signatures of its first part. */
static void sign_root(const struct kiln_pack_writer *writer,
		      struct ki_pack_root *root,
		      uint8_t out[KI_PACK_ROOT_BYTES])
{
	uint8_t digest[KI_BLAKE2B_BYTES];

	ki_pack_root_write(root, out);
	ki_pack_root_digest(out, digest);
	for (size_t i = 0; i < writer->n_secrets; i++)
		ki_sign(&writer->secrets[i], KI_SIGN_PACK, digest,
			root->signatures[i]);
	root->n_signatures = (uint32_t)writer->n_secrets;
	ki_pack_root_write(root, out);
}

static enum kiln_status write_end(struct kiln_pack_writer *writer,
				  struct ki_pack_root *root)
{
	uint8_t bytes[KI_PACK_ROOT_BYTES];
	uint64_t size;
	uint8_t *index;
	int err;

	lay_out(writer, root);
	size = ki_pack_index_bytes(root->n_pages);
	index = malloc(size ? (size_t)size : 1);
	if (!index)
		return KILN_E_NO_MEMORY;
	make_index(writer, root, index);
	sign_root(writer, root, bytes);
	err = write_index(writer, index, size, root->index_offset[0]);
	if (!err)
		err = write_index(writer, index, size, root->index_offset[1]);
	if (!err)
		err = write_bytes(writer, bytes, sizeof(bytes),
				  root->file_bytes - sizeof(bytes));
	if (!err)
		err = write_bytes(writer, bytes, sizeof(bytes), 0);
	free(index);
	return status_of(err);
}

/* Ends the file, and the temporary. */
static int publish(struct kiln_pack_writer *writer)
{
	const struct ki_sys *sys = writer->sys;
	int err = sys->fsync(sys, writer->fd);
	int close_err = sys->close(sys, writer->fd);

	err = err ? err : close_err;
	if (!err)
		return ki_temporary_publish(sys, writer->temporary,
					    writer->path, writer->replace,
					    MODE);
	(void)sys->unlink(sys, writer->temporary);
	return err;
}

enum kiln_status kiln_pack_finish(struct kiln_pack_writer *writer,
				  struct kiln_pack_report *out_report)
{
	struct ki_pack_root root = { 0 };
	enum kiln_status status;

	if (!writer)
		return KILN_E_INVALID;
	status = write_end(writer, &root);
	if (status) {
		kiln_pack_abandon(writer);
		return status;
	}
	status = status_of(publish(writer));
	free_writer(writer);
	if (!status && out_report)
		*out_report = (struct kiln_pack_report){
			.n_entries = root.n_entries,
			.bytes = root.file_bytes,
			.n_signatures = root.n_signatures,
		};
	return status;
}
