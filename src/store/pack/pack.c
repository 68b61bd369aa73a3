/* SPDX-License-Identifier: MIT */

/*
 * A pack that is open, and looking things up in it.
 *
 * Opening reads a root and the table of pages.  The root at the end comes first:
 * before it lies an index, which is then brought in by one call if it is small
 * against the cache.  A look-up reads a page and an entry; entries that follow
 * each other are what the block cache reads ahead for.
 *
 * Everything is there twice but the entries.  What does not match its digest is
 * looked for in the other place, so that no damage costs more than the entries
 * that it hits.
 *
 * Of the block cache's policies it has the plain one.  The pages of the index are
 * used by every look-up, so nothing flushes them; and one that has new lines on
 * trial keeps an eighth of its room for what was read ahead, of which most was
 * gone before its turn came (27 calls for the first 100 of 1000 entries, now 9).
 *
 * There is no lock here: what is read is checked in the reader's own memory, and
 * the block cache does the rest.
 */

#include "store/pack/pack.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/blob.h"
#include "base/status.h"
#include "key/key.h"

#define LINE_BYTES ((size_t)16 << 10)
#define N_WAYS	   8
/* How much is read ahead, of the whole, and at most: near and far. */
#define AHEAD_SHARE	64
#define AHEAD_NEAR_MAX	((uint64_t)128 << 10)
#define AHEAD_FAR_MAX	((uint64_t)4 << 20)
#define CACHE_AHEADS	4
#define CACHE_BYTES_MIN ((uint64_t)1 << 20)

static struct ki_pack *pack_of(struct kiln_tier *tier)
{
	return (struct ki_pack *)tier;
}

void ki_pack_say(const struct ki_pack *pack, enum kiln_log_level level,
		 const char *what)
{
	const char *name = pack->device.name ? pack->device.name : "pack";
	char line[KI_PATH_MAX + 128];

	if (!pack->log)
		return;
	snprintf(line, sizeof(line), "%s: %s", name, what);
	pack->log(pack->log_arg, level, line);
}

/* ---- Reading ---------------------------------------------------------------- */

enum kiln_status ki_pack_read(struct ki_pack *pack, uint64_t offset,
			      void *buffer, size_t size)
{
	ssize_t n;

	if (offset > pack->device_bytes || size > pack->device_bytes - offset)
		return KILN_E_FORMAT;
	n = kiln_block_read(pack->block, offset, buffer, size);
	return n < 0 ? ki_status_from_errno((int)n) : KILN_OK;
}

enum kiln_status ki_pack_read_page(struct ki_pack *pack, uint64_t i,
				   uint8_t out[KI_PACK_PAGE_BYTES],
				   size_t *out_n)
{
	const struct ki_pack_root *root = &pack->root;
	enum kiln_status status, worst = KILN_E_FORMAT;

	for (int copy = KI_PACK_N_INDEXES - 1; copy >= 0; copy--) {
		status = ki_pack_read(
			pack, root->index_offset[copy] + i * KI_PACK_PAGE_BYTES,
			out, KI_PACK_PAGE_BYTES);
		if (status == KILN_E_IO)
			worst = status;
		if (status)
			continue;
		*out_n = ki_pack_page_check(out, root, pack->table, i);
		if (*out_n)
			return KILN_OK;
	}
	return worst;
}

enum kiln_status ki_pack_find(struct ki_pack *pack,
			      const uint8_t name[KI_PACK_NAME_BYTES],
			      struct ki_pack_entry *out_entry)
{
	uint8_t page[KI_PACK_PAGE_BYTES];
	enum kiln_status status;
	uint64_t i;
	size_t n;

	if (pack->is_salvaged)
		return ki_pack_order_find(atomic_load(&pack->order), name,
					  out_entry)
			       ? KILN_OK
			       : KILN_MISS;
	i = ki_pack_table_find(pack->table, pack->root.n_pages, name);
	if (i == pack->root.n_pages)
		return KILN_MISS;
	status = ki_pack_read_page(pack, i, page, &n);
	if (status)
		return status;
	return ki_pack_page_find(page, n, name, out_entry) ? KILN_OK
							   : KILN_MISS;
}

int ki_pack_is_in_place(const struct ki_pack *pack,
			const struct ki_pack_entry *entry)
{
	uint64_t end = pack->is_salvaged ? pack->device_bytes
					 : pack->root.index_offset[0];

	return entry->offset >= KI_PACK_ROOT_BYTES && entry->offset % 8 == 0 &&
	       entry->offset <= end && entry->size <= end - entry->offset &&
	       entry->size >= KI_ENVELOPE_HEADER_BYTES &&
	       entry->size <= SIZE_MAX / 2;
}

static enum kiln_status load_bytes(struct ki_pack *pack,
				   const struct ki_pack_entry *entry,
				   struct ki_pack_loaded *loaded)
{
	uint8_t digest[KI_BLAKE2B_BYTES];
	enum kiln_status status;
	void *data;

	loaded->bytes = ki_blob_new((size_t)entry->size, &data);
	if (!loaded->bytes)
		return KILN_E_NO_MEMORY;
	status = ki_pack_read(pack, entry->offset, data, (size_t)entry->size);
	if (status)
		return status;
	ki_blake2b(data, (size_t)entry->size, digest);
	if (memcmp(digest, entry->digest, sizeof(digest)) != 0)
		return KILN_E_FORMAT;
	return ki_envelope_open(data, (size_t)entry->size, &loaded->envelope);
}

static int is_named(const struct ki_envelope *envelope,
		    const uint8_t name[KI_PACK_NAME_BYTES])
{
	uint8_t own[KI_PACK_NAME_BYTES];

	ki_pack_name(envelope->record, envelope->record_size, own);
	return !memcmp(own, name, sizeof(own));
}

enum kiln_status ki_pack_load(struct ki_pack *pack,
			      const struct ki_pack_entry *entry,
			      struct ki_pack_loaded *out_loaded)
{
	uint8_t header[KI_ENVELOPE_HEADER_BYTES];
	struct ki_pack_loaded loaded = { 0 };
	enum kiln_status status;

	if (!ki_pack_is_in_place(pack, entry))
		return KILN_E_FORMAT;
	/* Only what the header vouches for is worth allocating. */
	status = ki_pack_read(pack, entry->offset, header, sizeof(header));
	if (!status)
		status =
			ki_envelope_peek(header, entry->size, &loaded.envelope);
	if (!status)
		status = load_bytes(pack, entry, &loaded);
	if (!status && !is_named(&loaded.envelope, entry->name))
		status = KILN_E_FORMAT;
	if (status) {
		kiln_blob_unref(loaded.bytes);
		return status == KILN_E_UNSUPPORTED ? KILN_E_FORMAT : status;
	}
	*out_loaded = loaded;
	return KILN_OK;
}

/* ---- Get -------------------------------------------------------------------- */

static int is_of_key(const struct ki_envelope *envelope,
		     const struct kiln_key *key)
{
	size_t size;
	const void *record = kiln_key_record(key, &size);

	return envelope->record_size == size &&
	       !memcmp(envelope->record, record, size);
}

/* The whole envelope's blob becomes the value's. */
static struct kiln_blob *narrow(const struct ki_pack_loaded *loaded)
{
	struct kiln_blob *blob = loaded->bytes;

	blob->data = loaded->envelope.value;
	blob->size = loaded->envelope.value_size;
	return blob;
}

static enum kiln_status pack_get(struct kiln_tier *tier,
				 const struct kiln_key *key,
				 struct kiln_blob **out_value,
				 struct kiln_blob **out_metadata)
{
	struct ki_pack *pack = pack_of(tier);
	uint8_t name[KI_PACK_NAME_BYTES];
	struct ki_pack_entry entry;
	struct ki_pack_loaded loaded;
	enum kiln_status status;
	const void *record;
	size_t size;

	record = kiln_key_record(key, &size);
	ki_pack_name(record, size, name);
	status = ki_pack_find(pack, name, &entry);
	if (!status)
		status = ki_pack_load(pack, &entry, &loaded);
	if (status)
		return status;
	if (!is_of_key(&loaded.envelope, key))
		status = KILN_E_COLLISION;
	else if (pack->user_version &&
		 loaded.envelope.user_version != pack->user_version)
		status = KILN_MISS;
	else if (out_metadata)
		status = kiln_blob_copy(loaded.envelope.metadata,
					loaded.envelope.metadata_size,
					out_metadata);
	if (status)
		kiln_blob_unref(loaded.bytes);
	else
		*out_value = narrow(&loaded);
	return status;
}

static void free_pack(struct ki_pack *pack)
{
	kiln_block_abandon(pack->block);
	ki_pack_order_free(atomic_load(&pack->order));
	free(pack->table);
	free(pack);
}

static void pack_close(struct kiln_tier *tier)
{
	struct ki_pack *pack = pack_of(tier);

	if (pack->device.release)
		pack->device.release(pack->device.context);
	free_pack(pack);
}

static const struct kiln_tier_ops pack_ops = {
	.version = KILN_TIER_VERSION,
	.name = "pack",
	.get = pack_get,
	.list = ki_pack_list,
	.verify = ki_pack_verify,
	.prefetch = ki_pack_prefetch,
	.info = ki_pack_info,
	.close = pack_close,
};

/* ---- Opening ---------------------------------------------------------------- */

static int is_remote(const struct ki_pack *pack)
{
	return !!(pack->device.flags & KILN_PACK_REMOTE);
}

/* Of a small pack no more than there is; in whole sets. */
static void measure(struct ki_pack *pack)
{
	const uint64_t set_bytes = LINE_BYTES * N_WAYS;
	const uint64_t whole =
		(pack->device_bytes + set_bytes - 1) / set_bytes * set_bytes;
	uint64_t ahead_max = is_remote(pack) ? AHEAD_FAR_MAX : AHEAD_NEAR_MAX;

	pack->ahead_bytes = pack->device_bytes / AHEAD_SHARE;
	if (pack->ahead_bytes > ahead_max)
		pack->ahead_bytes = ahead_max;
	pack->ahead_bytes -= pack->ahead_bytes % LINE_BYTES;
	pack->cache_bytes = pack->ahead_bytes * CACHE_AHEADS;
	if (pack->cache_bytes < CACHE_BYTES_MIN)
		pack->cache_bytes = CACHE_BYTES_MIN;
	if (pack->cache_bytes > whole)
		pack->cache_bytes = whole;
	pack->cache_bytes -= pack->cache_bytes % set_bytes;
}

static enum kiln_status open_block(struct ki_pack *pack)
{
	struct kiln_block_options options = kiln_block_options_default();
	struct kiln_block_device device = {
		.read = pack->device.read,
		.context = pack->device.context,
	};

	measure(pack);
	options.device_bytes = pack->device_bytes;
	options.line_bytes = LINE_BYTES;
	options.n_ways = N_WAYS;
	options.n_lines = (size_t)(pack->cache_bytes / LINE_BYTES);
	options.index = KILN_BLOCK_HASHED;
	options.n_calls = pack->device.n_calls ? pack->device.n_calls : 1;
	options.call_bytes_max = (size_t)pack->cache_bytes / 2;
	options.read_ahead_bytes = (size_t)pack->ahead_bytes;
	return ki_status_from_errno(
		kiln_block_open(&options, &device, &pack->block));
}

/* ---- Trust ------------------------------------------------------------------ */

static int needs_signature(const struct ki_pack *pack)
{
	return is_remote(pack) || (pack->flags & KILN_PACK_SIGNED);
}

/* Whether somebody who is trusted has signed, where that is asked for. */
static enum kiln_status check_trust(const struct ki_pack *pack,
				    const uint8_t bytes[KI_PACK_ROOT_BYTES],
				    const struct ki_pack_root *root)
{
	uint8_t digest[KI_BLAKE2B_BYTES];

	if (!needs_signature(pack))
		return KILN_OK;
	ki_pack_root_digest(bytes, digest);
	for (uint32_t i = 0; i < root->n_signatures; i++)
		if (ki_sign_verify(&pack->trust, KI_SIGN_PACK, digest,
				   root->signatures[i]))
			return KILN_OK;
	return KILN_E_OWNER;
}

static enum kiln_status take_keys(struct ki_pack *pack,
				  const struct kiln_pack_options *options)
{
	enum kiln_status status = KILN_OK;

	for (size_t i = 0; !status && i < options->n_trusted_keys; i++)
		status = ki_sign_trust_add_text(&pack->trust,
						options->trusted_keys[i]);
	return status;
}

/* ---- The index -------------------------------------------------------------- */

static enum kiln_status read_root(struct ki_pack *pack, uint64_t offset)
{
	uint8_t bytes[KI_PACK_ROOT_BYTES];
	struct ki_pack_root root;
	enum kiln_status status =
		ki_pack_read(pack, offset, bytes, sizeof(bytes));

	if (!status)
		status = ki_pack_root_read(bytes, &root);
	/* Another pack's, behind this one. */
	if (!status && offset && root.file_bytes != pack->device_bytes)
		status = KILN_E_FORMAT;
	if (!status)
		status = check_trust(pack, bytes, &root);
	if (!status)
		pack->root = root;
	return status;
}

static enum kiln_status read_table(struct ki_pack *pack)
{
	const struct ki_pack_root *root = &pack->root;
	size_t size = (size_t)root->n_pages * KI_PACK_TABLE_BYTES;
	enum kiln_status status = KILN_E_FORMAT, worst = KILN_E_FORMAT;

	/* It must be there before there is room made for it. */
	if (size > pack->device_bytes)
		return KILN_E_FORMAT;
	pack->table = malloc(size ? size : 1);
	if (!pack->table)
		return KILN_E_NO_MEMORY;
	for (int copy = KI_PACK_N_INDEXES - 1; copy >= 0; copy--) {
		status =
			ki_pack_read(pack,
				     root->index_offset[copy] +
					     root->n_pages * KI_PACK_PAGE_BYTES,
				     pack->table, size);
		if (status == KILN_E_IO)
			worst = status;
		if (!status && ki_pack_table_is_sound(root, pack->table))
			return KILN_OK;
	}
	free(pack->table);
	pack->table = NULL;
	return worst;
}

/* Of several reasons the one that says most. */
static enum kiln_status worse(enum kiln_status a, enum kiln_status b)
{
	static const enum kiln_status order[] = {
		KILN_E_NO_MEMORY,
		KILN_E_OWNER,
		KILN_E_IO,
	};

	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
		if (a == order[i] || b == order[i])
			return order[i];
	return a;
}

static enum kiln_status read_index_of(struct ki_pack *pack, uint64_t offset)
{
	enum kiln_status status = read_root(pack, offset);

	return status ? status : read_table(pack);
}

static enum kiln_status read_index(struct ki_pack *pack)
{
	enum kiln_status first, last = KILN_E_FORMAT;

	if (pack->device_bytes >= 2 * KI_PACK_ROOT_BYTES)
		last = read_index_of(pack,
				     pack->device_bytes - KI_PACK_ROOT_BYTES);
	if (!last)
		return KILN_OK;
	first = read_index_of(pack, 0);
	return first ? worse(first, last) : KILN_OK;
}

/* All pages by one call, if they leave room for entries. */
static void bring_in_pages(struct ki_pack *pack)
{
	uint64_t size = pack->root.n_pages * KI_PACK_PAGE_BYTES;
	uint64_t offset = pack->root.index_offset[KI_PACK_N_INDEXES - 1];

	if (offset + size <= pack->device_bytes &&
	    size <= pack->cache_bytes / 2)
		(void)kiln_block_prefetch(pack->block, offset, size);
}

static enum kiln_status salvage(struct ki_pack *pack)
{
	struct ki_pack_order *order;
	enum kiln_status status = KILN_E_OWNER;

	if (!needs_signature(pack))
		status = ki_pack_salvage(pack, &order);
	if (status)
		return status;
	pack->is_salvaged = 1;
	pack->root = (struct ki_pack_root){ 0 };
	atomic_store(&pack->order, order);
	ki_pack_say(pack, KILN_LOG_WARNING,
		    "its index is lost; what is whole was looked for");
	return KILN_OK;
}

static enum kiln_status open_pack(struct ki_pack *pack)
{
	int64_t bytes = pack->device.bytes(pack->device.context);
	enum kiln_status status;

	if (bytes < 0)
		return bytes < INT_MIN ? KILN_E_IO
				       : ki_status_from_errno((int)bytes);
	if (bytes < KI_PACK_ROOT_BYTES)
		return KILN_E_FORMAT;
	pack->device_bytes = (uint64_t)bytes;
	status = open_block(pack);
	if (status)
		return status;
	status = read_index(pack);
	if (status == KILN_E_FORMAT && (pack->flags & KILN_PACK_SALVAGE))
		return salvage(pack);
	if (!status)
		bring_in_pages(pack);
	return status;
}

static void complain(const struct ki_pack *pack, enum kiln_status status)
{
	switch (status) {
	case KILN_E_FORMAT:
		ki_pack_say(pack, KILN_LOG_ERROR,
			    "is no pack, of a newer version, or damaged");
		break;
	case KILN_E_OWNER:
		ki_pack_say(pack, KILN_LOG_ERROR,
			    "has no signature of a key that is trusted");
		break;
	case KILN_E_INVALID:
		ki_pack_say(pack, KILN_LOG_ERROR,
			    "a key that is to be trusted is none");
		break;
	default:
		ki_pack_say(pack, KILN_LOG_ERROR, "cannot be read");
	}
}

/* Structures of an older caller are shorter; what is missing is 0. */
static void copy_known(void *to, size_t to_size, const void *from,
		       size_t from_size)
{
	memset(to, 0, to_size);
	memcpy(to, from, from_size < to_size ? from_size : to_size);
}

static struct ki_pack *new_pack(const struct kiln_pack_device *device,
				const struct kiln_pack_options *options)
{
	struct ki_pack *pack = calloc(1, sizeof(*pack));

	if (!pack)
		return NULL;
	pack->tier.ops = &pack_ops;
	copy_known(&pack->device, sizeof(pack->device), device, device->size);
	pack->flags = options->flags;
	pack->user_version = options->user_version;
	pack->log = options->log;
	pack->log_arg = options->log_arg;
	if (options->n_trusted_keys && !(options->flags & KILN_PACK_UNSIGNED))
		pack->flags |= KILN_PACK_SIGNED;
	return pack;
}

enum kiln_status kiln_pack_open_device(const struct kiln_pack_device *device,
				       const struct kiln_pack_options *options,
				       struct kiln_tier **out_tier)
{
	struct kiln_pack_options given;
	struct ki_pack *pack;
	enum kiln_status status;

	kiln_pack_options_init(&given);
	if (options)
		copy_known(&given, sizeof(given), options, options->size);
	if (!device || !device->bytes || !device->read || !out_tier)
		return KILN_E_INVALID;
	pack = new_pack(device, &given);
	if (!pack)
		return KILN_E_NO_MEMORY;
	status = take_keys(pack, &given);
	if (!status)
		status = open_pack(pack);
	ki_sign_trust_fini(&pack->trust);
	if (status) {
		complain(pack, status);
		free_pack(pack);
		return status;
	}
	*out_tier = &pack->tier;
	return KILN_OK;
}

enum kiln_status ki_pack_open(const struct ki_sys *sys, const char *path,
			      const struct kiln_pack_options *options,
			      struct kiln_tier **out_tier)
{
	struct kiln_pack_options given;
	struct kiln_pack_device device;
	enum kiln_status status;
	const char *why;

	kiln_pack_options_init(&given);
	if (options)
		copy_known(&given, sizeof(given), options, options->size);
	if (!path || !out_tier)
		return KILN_E_INVALID;
	status = ki_pack_file_open(sys, path, given.flags, &device, &why);
	if (status) {
		const struct ki_pack nobody = { .device.name = path,
						.log = given.log,
						.log_arg = given.log_arg };

		ki_pack_say(&nobody, KILN_LOG_ERROR, why);
		return status;
	}
	status = kiln_pack_open_device(&device, &given, out_tier);
	if (status)
		device.release(device.context);
	return status;
}

enum kiln_status kiln_pack_open(const char *path,
				const struct kiln_pack_options *options,
				struct kiln_tier **out_tier)
{
	return ki_pack_open(&ki_sys_posix, path, options, out_tier);
}
