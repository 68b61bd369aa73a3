/* SPDX-License-Identifier: MIT */

/*
 * What goes over all entries: the recorded order, listing, verifying, bringing
 * in what will be asked for.
 *
 * The index is by name, so the order is made of all pages at the first call that
 * needs it, by as many threads as ask at once; the first to be done is the one
 * whose order stays.
 */

#include "store/pack/pack.h"

#include <stdlib.h>
#include <string.h>

#include "base/blob.h"
#include "key/key.h"

/* ---- The order --------------------------------------------------------------- */

static int by_position(const void *a, const void *b)
{
	const struct ki_pack_entry *left = a, *right = b;

	if (left->position != right->position)
		return left->position < right->position ? -1 : 1;
	return left->offset < right->offset ? -1 : left->offset > right->offset;
}

/* Entries lie as they were recorded: what begins too early is not one. */
static void leave_out_overlaps(const struct ki_pack *pack,
			       struct ki_pack_order *order)
{
	uint64_t end = KI_PACK_ROOT_BYTES;
	size_t n = 0;

	for (size_t i = 0; i < order->n; i++) {
		const struct ki_pack_entry *entry = &order->entries[i];

		if (entry->offset < end || !ki_pack_is_in_place(pack, entry))
			continue;
		end = entry->offset + entry->size;
		order->entries[n++] = *entry;
	}
	order->n = n;
}

/* What of the index can be read. */
static enum kiln_status read_pages(struct ki_pack *pack,
				   struct ki_pack_order *order)
{
	uint8_t page[KI_PACK_PAGE_BYTES];

	for (uint64_t i = 0; i < pack->root.n_pages; i++) {
		size_t n;
		enum kiln_status status = ki_pack_read_page(pack, i, page, &n);

		if (status == KILN_E_NO_MEMORY)
			return status;
		for (size_t k = 0; !status && k < n; k++)
			ki_pack_page_entry(page, k,
					   &order->entries[order->n++]);
	}
	return KILN_OK;
}

static enum kiln_status make_order(struct ki_pack *pack,
				   struct ki_pack_order **out_order)
{
	struct ki_pack_order *order = calloc(1, sizeof(*order));
	size_t capacity = (size_t)pack->root.n_pages * KI_PACK_PAGE_ENTRIES;
	enum kiln_status status = KILN_E_NO_MEMORY;

	if (!order)
		return status;
	order->entries = malloc((capacity + 1) * sizeof(*order->entries));
	if (order->entries)
		status = read_pages(pack, order);
	if (status) {
		ki_pack_order_free(order);
		return status;
	}
	qsort(order->entries, order->n, sizeof(*order->entries), by_position);
	leave_out_overlaps(pack, order);
	*out_order = order;
	return KILN_OK;
}

enum kiln_status ki_pack_order(struct ki_pack *pack,
			       const struct ki_pack_order **out_order)
{
	struct ki_pack_order *order = atomic_load(&pack->order), *none = NULL;
	enum kiln_status status;

	if (!order) {
		status = make_order(pack, &order);
		if (status)
			return status;
		if (!atomic_compare_exchange_strong(&pack->order, &none,
						    order)) {
			ki_pack_order_free(order);
			order = none;
		}
	}
	*out_order = order;
	return KILN_OK;
}

void ki_pack_order_free(struct ki_pack_order *order)
{
	if (!order)
		return;
	free(order->entries);
	free(order->by_name);
	free(order);
}

/* ---- List --------------------------------------------------------------------- */

static enum kiln_status fill_entry(const struct ki_pack_entry *found,
				   const struct ki_envelope *envelope,
				   struct kiln_entry *out_entry)
{
	struct kiln_entry entry = { .stored_size = found->size };
	enum kiln_status status = ki_envelope_entry(envelope, &entry);

	if (!status)
		*out_entry = entry;
	return status;
}

/* A cursor is the number of the next in recorded order. */
enum kiln_status ki_pack_list(struct kiln_tier *tier,
			      struct kiln_cursor *cursor,
			      struct kiln_entry *out_entry)
{
	struct ki_pack *pack = (struct ki_pack *)tier;
	const struct ki_pack_order *order;
	enum kiln_status status = ki_pack_order(pack, &order);

	if (status)
		return status;
	while (cursor->place[0] < order->n) {
		const struct ki_pack_entry *entry =
			&order->entries[cursor->place[0]];
		struct ki_pack_loaded loaded;

		status = ki_pack_load(pack, entry, &loaded);
		if (status == KILN_E_NO_MEMORY)
			return status;
		cursor->place[0]++;
		if (status)
			continue;
		status = fill_entry(entry, &loaded.envelope, out_entry);
		kiln_blob_unref(loaded.bytes);
		return status;
	}
	return KILN_END;
}

/* ---- Verify ------------------------------------------------------------------- */

static void note_damaged(struct ki_verifying *verifying, const uint8_t *digest,
			 const char *what, uint64_t offset)
{
	unsigned n = verifying->report.n_named;

	ki_verifying_damaged(verifying, digest, what);
	if (verifying->report.n_named > n)
		verifying->report.named[n].offset = offset;
}

static void verify_root(struct ki_pack *pack, struct ki_verifying *verifying,
			uint64_t offset)
{
	uint8_t bytes[KI_PACK_ROOT_BYTES], wanted[KI_PACK_ROOT_BYTES];

	ki_pack_root_write(&pack->root, wanted);
	if (ki_pack_read(pack, offset, bytes, sizeof(bytes)) ||
	    memcmp(bytes, wanted, sizeof(bytes)) != 0)
		note_damaged(verifying, NULL, "root", offset);
	ki_verifying_step(verifying, KI_PACK_ROOT_BYTES);
}

static void verify_index(struct ki_pack *pack, struct ki_verifying *verifying,
			 uint64_t offset)
{
	const struct ki_pack_root *root = &pack->root;
	size_t size = (size_t)root->n_pages * KI_PACK_TABLE_BYTES;
	uint8_t page[KI_PACK_PAGE_BYTES];
	uint8_t *table = malloc(size + 1);
	uint64_t i;

	for (i = 0; i < root->n_pages; i++) {
		uint64_t at = offset + i * KI_PACK_PAGE_BYTES;

		if (ki_pack_read(pack, at, page, sizeof(page)) ||
		    !ki_pack_page_check(page, root, pack->table, i))
			note_damaged(verifying, NULL, "index", at);
		ki_verifying_step(verifying, sizeof(page));
	}
	offset += i * KI_PACK_PAGE_BYTES;
	if (!table || ki_pack_read(pack, offset, table, size) ||
	    memcmp(table, pack->table, size) != 0)
		note_damaged(verifying, NULL, "index", offset);
	ki_verifying_step(verifying, size);
	free(table);
}

static enum kiln_status verify_entry(struct ki_pack *pack,
				     struct ki_verifying *verifying,
				     const struct ki_pack_entry *entry)
{
	struct kiln_verify_report *report = &verifying->report;
	uint8_t header[KI_ENVELOPE_HEADER_BYTES];
	struct ki_envelope envelope;
	struct ki_pack_loaded loaded;
	enum kiln_status status = ki_pack_load(pack, entry, &loaded);

	if (status == KILN_E_NO_MEMORY)
		return status;
	if (!status) {
		report->n_entries++;
		report->bytes += entry->size;
		kiln_blob_unref(loaded.bytes);
	} else {
		int has_digest =
			!ki_pack_read(pack, entry->offset, header,
				      sizeof(header)) &&
			!ki_envelope_peek(header, entry->size, &envelope);

		note_damaged(verifying, has_digest ? envelope.digest : NULL,
			     "entry", entry->offset);
	}
	ki_verifying_step(verifying, entry->size);
	return KILN_OK;
}

static void verify_around(struct ki_pack *pack, struct ki_verifying *verifying,
			  const struct ki_pack_order *order)
{
	struct kiln_verify_report *report = &verifying->report;

	if (pack->is_salvaged) {
		note_damaged(verifying, NULL, "index", 0);
		return;
	}
	verify_root(pack, verifying, 0);
	for (int i = 0; i < KI_PACK_N_INDEXES; i++)
		verify_index(pack, verifying, pack->root.index_offset[i]);
	verify_root(pack, verifying,
		    pack->root.file_bytes - KI_PACK_ROOT_BYTES);
	/* Overlapping, or in a page that is lost twice. */
	report->n_damaged += pack->root.n_entries - order->n;
}

enum kiln_status ki_pack_verify(struct kiln_tier *tier, unsigned flags,
				kiln_progress_fn *progress, void *arg,
				struct kiln_verify_report *out_report)
{
	struct ki_pack *pack = (struct ki_pack *)tier;
	struct ki_verifying verifying = { .progress = progress,
					  .arg = arg,
					  .total = pack->device_bytes };
	const struct ki_pack_order *order;
	enum kiln_status status;

	if (flags)
		return KILN_E_READONLY;
	status = ki_pack_order(pack, &order);
	if (status)
		return status;
	verify_around(pack, &verifying, order);
	for (size_t i = 0; !status && i < order->n; i++)
		status = verify_entry(pack, &verifying, &order->entries[i]);
	if (!status)
		ki_verifying_end(&verifying, out_report);
	return status;
}

/* ---- Prefetch ------------------------------------------------------------------ */

#define PREFETCH_MAX ((size_t)4096)
/* What lies between two is cheaper to read than to ask twice. */
#define GAP_BYTES_MAX ((uint64_t)32 << 10)

struct range {
	uint64_t offset;
	uint64_t size;
};

static int by_offset(const void *a, const void *b)
{
	const struct range *left = a, *right = b;

	return left->offset < right->offset ? -1 : left->offset > right->offset;
}

/* Where the keys are, as far as the cache has room: how many ranges. */
static size_t find_ranges(struct ki_pack *pack,
			  const struct kiln_key *const *keys, size_t n_keys,
			  struct range *out_ranges)
{
	uint64_t room = pack->cache_bytes / 2;
	size_t n = 0;

	for (size_t i = 0; i < n_keys; i++) {
		uint8_t name[KI_PACK_NAME_BYTES];
		struct ki_pack_entry entry;
		size_t size;
		const void *record = kiln_key_record(keys[i], &size);

		ki_pack_name(record, size, name);
		if (ki_pack_find(pack, name, &entry) ||
		    !ki_pack_is_in_place(pack, &entry))
			continue;
		if (entry.size > room)
			break;
		room -= entry.size;
		out_ranges[n++] = (struct range){ entry.offset, entry.size };
	}
	return n;
}

void ki_pack_prefetch(struct kiln_tier *tier,
		      const struct kiln_key *const *keys, size_t n_keys)
{
	struct ki_pack *pack = (struct ki_pack *)tier;
	struct range *ranges;
	size_t n, i = 0;

	if (!n_keys)
		return;
	if (n_keys > PREFETCH_MAX)
		n_keys = PREFETCH_MAX;
	ranges = malloc(n_keys * sizeof(*ranges));
	if (!ranges)
		return;
	n = find_ranges(pack, keys, n_keys, ranges);
	if (n)
		qsort(ranges, n, sizeof(*ranges), by_offset);
	while (i < n) {
		uint64_t begin = ranges[i].offset;
		uint64_t end = begin + ranges[i].size;

		while (++i < n && ranges[i].offset <= end + GAP_BYTES_MAX)
			if (ranges[i].offset + ranges[i].size > end)
				end = ranges[i].offset + ranges[i].size;
		if (kiln_block_prefetch(pack->block, begin, end - begin))
			break;
	}
	free(ranges);
}

/* ---- The pack as a whole --------------------------------------------------------- */

enum kiln_status ki_pack_info(struct kiln_tier *tier,
			      struct kiln_store_info *out_info)
{
	const struct ki_pack *pack = (const struct ki_pack *)tier;
	const struct ki_pack_order *order = atomic_load(&pack->order);

	*out_info = (struct kiln_store_info){
		.kind = "pack",
		.format_version = KI_PACK_VERSION,
		.user_version = pack->root.user_version,
		.n_entries =
			pack->is_salvaged ? order->n : pack->root.n_entries,
		.bytes = pack->device_bytes,
		.bytes_live = pack->is_salvaged ? pack->device_bytes
						: pack->root.index_offset[0] -
							  KI_PACK_ROOT_BYTES,
	};
	return KILN_OK;
}
