/* SPDX-License-Identifier: MIT */

/*
 * The bytes of root, page and table.  Reading believes nothing: a page or a
 * table is first compared with the digest that stands above it, and then must
 * be in order all the same, because whoever signed it may have erred.
 */

#include "store/pack/pack.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"

#define PAGE_HEADER_BYTES 16
#define CHECK_OFFSET	  (KI_PACK_ROOT_BYTES - 8)

static const uint8_t magic[8] = { 'K', 'I', 'L', 'N', 'P', 'A', 'C', 'K' };

static_assert(PAGE_HEADER_BYTES + KI_PACK_PAGE_ENTRIES * KI_PACK_ENTRY_BYTES <=
		      KI_PACK_PAGE_BYTES,
	      "a page holds its entries");
static_assert(KI_PACK_SIGNED_BYTES + 8 +
			      KILN_PACK_SIGNATURES_MAX * KI_SIGNATURE_BYTES <=
		      CHECK_OFFSET,
	      "a root holds its signatures");

/* ---- Root ------------------------------------------------------------------ */

void ki_pack_root_write(const struct ki_pack_root *root,
			uint8_t out[KI_PACK_ROOT_BYTES])
{
	memset(out, 0, KI_PACK_ROOT_BYTES);
	memcpy(out, magic, sizeof(magic));
	ki_put_u32(out + 8, KI_PACK_VERSION);
	ki_put_u32(out + 12, KI_PACK_PAGE_BYTES);
	ki_put_u64(out + 16, root->file_bytes);
	ki_put_u64(out + 24, root->n_entries);
	ki_put_u64(out + 32, root->n_pages);
	ki_put_u64(out + 40, root->index_offset[0]);
	ki_put_u64(out + 48, root->index_offset[1]);
	ki_put_u64(out + 56, root->user_version);
	ki_put_u64(out + 64, root->created_s);
	memcpy(out + 96, root->table_digest, KI_BLAKE2B_BYTES);
	ki_put_u32(out + 128, root->n_signatures);
	memcpy(out + 136, root->signatures,
	       root->n_signatures * KI_SIGNATURE_BYTES);
	ki_put_u64(out + CHECK_OFFSET, ki_xxh3_64(out, CHECK_OFFSET));
}

/* Whether the numbers can be of one file. */
static int is_possible(const struct ki_pack_root *root)
{
	uint64_t index, rest = root->file_bytes;

	if (rest > INT64_MAX || root->n_entries > KILN_PACK_ENTRIES_MAX ||
	    root->n_pages != ki_pack_pages_of(root->n_entries) ||
	    root->n_signatures > KILN_PACK_SIGNATURES_MAX)
		return 0;
	index = ki_pack_index_bytes(root->n_pages);
	/* From the end to the beginning; no difference goes below 0. */
	if (rest < KI_PACK_ROOT_BYTES || rest - KI_PACK_ROOT_BYTES < index ||
	    root->index_offset[1] != rest - KI_PACK_ROOT_BYTES - index)
		return 0;
	rest = root->index_offset[1];
	return rest >= index && root->index_offset[0] == rest - index &&
	       root->index_offset[0] >= KI_PACK_ROOT_BYTES;
}

enum kiln_status ki_pack_root_read(const uint8_t bytes[KI_PACK_ROOT_BYTES],
				   struct ki_pack_root *out_root)
{
	struct ki_pack_root root = { 0 };

	if (memcmp(bytes, magic, sizeof(magic)) != 0 ||
	    ki_get_u32(bytes + 8) != KI_PACK_VERSION ||
	    ki_get_u32(bytes + 12) != KI_PACK_PAGE_BYTES ||
	    ki_get_u64(bytes + CHECK_OFFSET) != ki_xxh3_64(bytes, CHECK_OFFSET))
		return KILN_E_FORMAT;
	root.file_bytes = ki_get_u64(bytes + 16);
	root.n_entries = ki_get_u64(bytes + 24);
	root.n_pages = ki_get_u64(bytes + 32);
	root.index_offset[0] = ki_get_u64(bytes + 40);
	root.index_offset[1] = ki_get_u64(bytes + 48);
	root.user_version = ki_get_u64(bytes + 56);
	root.created_s = ki_get_u64(bytes + 64);
	memcpy(root.table_digest, bytes + 96, KI_BLAKE2B_BYTES);
	root.n_signatures = ki_get_u32(bytes + 128);
	if (!is_possible(&root))
		return KILN_E_FORMAT;
	memcpy(root.signatures, bytes + 136,
	       root.n_signatures * KI_SIGNATURE_BYTES);
	*out_root = root;
	return KILN_OK;
}

void ki_pack_root_digest(const uint8_t bytes[KI_PACK_ROOT_BYTES],
			 uint8_t out[KI_BLAKE2B_BYTES])
{
	ki_blake2b(bytes, KI_PACK_SIGNED_BYTES, out);
}

/* ---- Pages ----------------------------------------------------------------- */

static const uint8_t *entry_at(const uint8_t *page, size_t i)
{
	return page + PAGE_HEADER_BYTES + i * KI_PACK_ENTRY_BYTES;
}

static int compare_names(const uint8_t *a, const uint8_t *b)
{
	return memcmp(a, b, KI_PACK_NAME_BYTES);
}

void ki_pack_page_write(const struct ki_pack_entry *entries, size_t n,
			uint8_t out[KI_PACK_PAGE_BYTES])
{
	assert(n && n <= KI_PACK_PAGE_ENTRIES);
	memset(out, 0, KI_PACK_PAGE_BYTES);
	ki_put_u32(out, (uint32_t)n);
	for (size_t i = 0; i < n; i++) {
		uint8_t *place =
			out + PAGE_HEADER_BYTES + i * KI_PACK_ENTRY_BYTES;

		memcpy(place, entries[i].name, KI_PACK_NAME_BYTES);
		memcpy(place + 32, entries[i].digest, KI_BLAKE2B_BYTES);
		ki_put_u64(place + 64, entries[i].offset);
		ki_put_u64(place + 72, entries[i].size);
		ki_put_u32(place + 80, entries[i].position);
	}
}

/* All names of a page are behind each other, behind the page's first and before
   the next page's. */
static int is_in_order(const uint8_t *page, size_t n, const uint8_t *table,
		       uint64_t n_pages, uint64_t i)
{
	const uint8_t *own = table + i * KI_PACK_TABLE_BYTES;

	if (compare_names(entry_at(page, 0), own) != 0)
		return 0;
	for (size_t k = 1; k < n; k++)
		if (compare_names(entry_at(page, k - 1), entry_at(page, k)) >=
		    0)
			return 0;
	return i + 1 == n_pages || compare_names(entry_at(page, n - 1),
						 own + KI_PACK_TABLE_BYTES) < 0;
}

/* How many entries page `i` has to have. */
static size_t entries_of(const struct ki_pack_root *root, uint64_t i)
{
	uint64_t rest = root->n_entries - i * KI_PACK_PAGE_ENTRIES;

	return rest < KI_PACK_PAGE_ENTRIES ? (size_t)rest
					   : KI_PACK_PAGE_ENTRIES;
}

size_t ki_pack_page_check(const uint8_t page[KI_PACK_PAGE_BYTES],
			  const struct ki_pack_root *root, const uint8_t *table,
			  uint64_t i)
{
	const uint8_t *own = table + i * KI_PACK_TABLE_BYTES;
	uint8_t digest[KI_BLAKE2B_BYTES];
	size_t n = entries_of(root, i);

	ki_blake2b(page, KI_PACK_PAGE_BYTES, digest);
	if (memcmp(digest, own + KI_PACK_NAME_BYTES, sizeof(digest)) != 0 ||
	    ki_get_u32(page) != n ||
	    !is_in_order(page, n, table, root->n_pages, i))
		return 0;
	return n;
}

void ki_pack_page_entry(const uint8_t *page, size_t i,
			struct ki_pack_entry *out_entry)
{
	const uint8_t *place = entry_at(page, i);

	memcpy(out_entry->name, place, KI_PACK_NAME_BYTES);
	memcpy(out_entry->digest, place + 32, KI_BLAKE2B_BYTES);
	out_entry->offset = ki_get_u64(place + 64);
	out_entry->size = ki_get_u64(place + 72);
	out_entry->position = ki_get_u32(place + 80);
}

/* The last of n rows that is not behind the name; n: they all are. */
static uint64_t last_before(const uint8_t *rows, size_t row_bytes, uint64_t n,
			    const uint8_t *name)
{
	uint64_t low = 0, high = n;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (compare_names(rows + middle * row_bytes, name) <= 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? low - 1 : n;
}

int ki_pack_page_find(const uint8_t *page, size_t n,
		      const uint8_t name[KI_PACK_NAME_BYTES],
		      struct ki_pack_entry *out_entry)
{
	uint64_t i =
		last_before(entry_at(page, 0), KI_PACK_ENTRY_BYTES, n, name);

	if (i == n || compare_names(entry_at(page, (size_t)i), name) != 0)
		return 0;
	ki_pack_page_entry(page, (size_t)i, out_entry);
	return 1;
}

/* ---- The table ------------------------------------------------------------- */

void ki_pack_table_write(const uint8_t page[KI_PACK_PAGE_BYTES],
			 uint8_t out[KI_PACK_TABLE_BYTES])
{
	memcpy(out, entry_at(page, 0), KI_PACK_NAME_BYTES);
	ki_blake2b(page, KI_PACK_PAGE_BYTES, out + KI_PACK_NAME_BYTES);
}

int ki_pack_table_is_sound(const struct ki_pack_root *root,
			   const uint8_t *table)
{
	uint8_t digest[KI_BLAKE2B_BYTES];

	ki_blake2b(table, (size_t)root->n_pages * KI_PACK_TABLE_BYTES, digest);
	if (memcmp(digest, root->table_digest, sizeof(digest)) != 0)
		return 0;
	for (uint64_t i = 1; i < root->n_pages; i++)
		if (compare_names(table + (i - 1) * KI_PACK_TABLE_BYTES,
				  table + i * KI_PACK_TABLE_BYTES) >= 0)
			return 0;
	return 1;
}

uint64_t ki_pack_table_find(const uint8_t *table, uint64_t n_pages,
			    const uint8_t name[KI_PACK_NAME_BYTES])
{
	return last_before(table, KI_PACK_TABLE_BYTES, n_pages, name);
}

void ki_pack_name(const void *record, size_t size,
		  uint8_t out[KI_PACK_NAME_BYTES])
{
	ki_blake2b(record, size, out);
}
