/* SPDX-License-Identifier: MIT */
#ifndef KI_STORE_PACK_PACK_H
#define KI_STORE_PACK_PACK_H

/*
 * The inside of store/pack; docs/formats/pack.md has the bytes.
 *
 *	root | entries | index | index again | root again
 *	                 index: pages, then the table of pages
 *
 * A root names both indexes and has the table's digest, the table has each
 * page's, a page each entry's.  So a look-up reads, of all that, one page, and
 * everything that it reads is what was signed with the root.
 *
 * format.c is the bytes, writer.c writes them, pack.c opens and looks up,
 * order.c does what goes over all entries, salvage.c finds entries without an
 * index, file.c is the device over a file.
 */

#include <stdatomic.h>

#include <kiln/pack.h>

#include "sign/sign.h"
#include "store/store.h"
#include "tier/envelope.h"

/* ---- Bytes (format.c) ----------------------------------------------------- */

#define KI_PACK_VERSION	     1
#define KI_PACK_ROOT_BYTES   1024
#define KI_PACK_SIGNED_BYTES 128 /* of a root */
#define KI_PACK_PAGE_BYTES   4096
#define KI_PACK_ENTRY_BYTES  88
#define KI_PACK_PAGE_ENTRIES 46
#define KI_PACK_TABLE_BYTES  64 /* a page's share of the table */
#define KI_PACK_NAME_BYTES   KI_BLAKE2B_BYTES
#define KI_PACK_N_INDEXES    2

struct ki_pack_root {
	uint64_t file_bytes;
	uint64_t n_entries;
	uint64_t n_pages;
	uint64_t index_offset[KI_PACK_N_INDEXES];
	uint64_t user_version;
	uint64_t created_s;
	uint8_t table_digest[KI_BLAKE2B_BYTES];
	uint32_t n_signatures;
	uint8_t signatures[KILN_PACK_SIGNATURES_MAX][KI_SIGNATURE_BYTES];
};

struct ki_pack_entry {
	uint8_t name[KI_PACK_NAME_BYTES];
	uint8_t digest[KI_BLAKE2B_BYTES]; /* of the envelope */
	uint64_t offset;
	uint64_t size;
	uint32_t position; /* in recorded order */
};

/* All pages but the last are full. */
static inline uint64_t ki_pack_pages_of(uint64_t n_entries)
{
	return (n_entries + KI_PACK_PAGE_ENTRIES - 1) / KI_PACK_PAGE_ENTRIES;
}

/* Of one index: pages and table. */
static inline uint64_t ki_pack_index_bytes(uint64_t n_pages)
{
	return n_pages * (KI_PACK_PAGE_BYTES + KI_PACK_TABLE_BYTES);
}

void ki_pack_root_write(const struct ki_pack_root *root,
			uint8_t out[KI_PACK_ROOT_BYTES]);
/* KILN_OK, KILN_E_FORMAT: damaged, newer, or its numbers cannot be. */
enum kiln_status ki_pack_root_read(const uint8_t bytes[KI_PACK_ROOT_BYTES],
				   struct ki_pack_root *out_root);
/* What is signed. */
void ki_pack_root_digest(const uint8_t bytes[KI_PACK_ROOT_BYTES],
			 uint8_t out[KI_BLAKE2B_BYTES]);

/* `n` entries from 1 to KI_PACK_PAGE_ENTRIES, in the order of their names. */
void ki_pack_page_write(const struct ki_pack_entry *entries, size_t n,
			uint8_t out[KI_PACK_PAGE_BYTES]);
/* How many there are; 0: it is not what root and table say of page `i`. */
size_t ki_pack_page_check(const uint8_t page[KI_PACK_PAGE_BYTES],
			  const struct ki_pack_root *root, const uint8_t *table,
			  uint64_t i);
void ki_pack_page_entry(const uint8_t *page, size_t i,
			struct ki_pack_entry *out_entry);
/* 1, and the entry, if the name is in a page of n entries. */
int ki_pack_page_find(const uint8_t *page, size_t n,
		      const uint8_t name[KI_PACK_NAME_BYTES],
		      struct ki_pack_entry *out_entry);

void ki_pack_table_write(const uint8_t page[KI_PACK_PAGE_BYTES],
			 uint8_t out[KI_PACK_TABLE_BYTES]);
/* Whether a table is the root's, and its pages are in order. */
int ki_pack_table_is_sound(const struct ki_pack_root *root,
			   const uint8_t *table);
/* The page where a name would be; n_pages: in none. */
uint64_t ki_pack_table_find(const uint8_t *table, uint64_t n_pages,
			    const uint8_t name[KI_PACK_NAME_BYTES]);

/* The name of a key. */
void ki_pack_name(const void *record, size_t size,
		  uint8_t out[KI_PACK_NAME_BYTES]);

/* ---- An open pack --------------------------------------------------------- */

/* All entries in recorded order, but for those that are none: they lie elsewhere,
   or begin before the one before ends. */
struct ki_pack_order {
	size_t n;
	struct ki_pack_entry *entries;
	/* Of a salvaged pack, else NULL. */
	const struct ki_pack_entry **by_name;
};

struct ki_pack {
	struct kiln_tier tier;
	/* Fixed after open. */
	struct kiln_pack_device device;
	struct kiln_block *block;
	uint64_t device_bytes;
	uint64_t ahead_bytes; /* how much it is worth to read at once */
	uint64_t cache_bytes;
	uint32_t flags; /* KILN_PACK_* */
	uint64_t user_version;
	kiln_log_fn *log;
	void *log_arg;
	struct ki_sign_trust trust; /* empty once it is open */
	struct ki_pack_root root;
	uint8_t *table; /* of root.n_pages */
	int is_salvaged;
	/* Atomic. */
	struct ki_pack_order *_Atomic order; /* NULL: not asked for yet */
};

/* What of a pack was asked for and why it is not to be had. */
void ki_pack_say(const struct ki_pack *pack, enum kiln_log_level level,
		 const char *what);

/* Bytes of the device: KILN_OK, IO; FORMAT: it ends before. */
enum kiln_status ki_pack_read(struct ki_pack *pack, uint64_t offset,
			      void *buffer, size_t size);

/* A page of the index, from whichever copy is sound; *out_n entries.  KILN_OK,
   FORMAT, IO. */
enum kiln_status ki_pack_read_page(struct ki_pack *pack, uint64_t i,
				   uint8_t out[KI_PACK_PAGE_BYTES],
				   size_t *out_n);

/* Where a key is: KILN_OK, MISS, FORMAT, IO. */
enum kiln_status ki_pack_find(struct ki_pack *pack,
			      const uint8_t name[KI_PACK_NAME_BYTES],
			      struct ki_pack_entry *out_entry);

/* Whether it lies where entries do. */
int ki_pack_is_in_place(const struct ki_pack *pack,
			const struct ki_pack_entry *entry);

struct ki_pack_loaded {
	struct kiln_blob *bytes;     /* of the whole envelope */
	struct ki_envelope envelope; /* points into them */
};
/* Read an entry and check it in full against what the index says of it.
   KILN_OK, FORMAT, IO, NO_MEMORY. */
enum kiln_status ki_pack_load(struct ki_pack *pack,
			      const struct ki_pack_entry *entry,
			      struct ki_pack_loaded *out_loaded);

/* ---- All entries (order.c) ------------------------------------------------ */

/* Made at the first call; lives as long as the pack.  KILN_OK, IO, NO_MEMORY. */
enum kiln_status ki_pack_order(struct ki_pack *pack,
			       const struct ki_pack_order **out_order);
void ki_pack_order_free(struct ki_pack_order *order);

enum kiln_status ki_pack_list(struct kiln_tier *tier,
			      struct kiln_cursor *cursor,
			      struct kiln_entry *out_entry);
enum kiln_status ki_pack_verify(struct kiln_tier *tier, unsigned flags,
				kiln_progress_fn *progress, void *arg,
				struct kiln_verify_report *out_report);
void ki_pack_prefetch(struct kiln_tier *tier,
		      const struct kiln_key *const *keys, size_t n_keys);
enum kiln_status ki_pack_info(struct kiln_tier *tier,
			      struct kiln_store_info *out_info);

/* ---- Without an index (salvage.c) ------------------------------------------ */

/* Find what is whole, with `by_name`.  KILN_OK, IO, NO_MEMORY. */
enum kiln_status ki_pack_salvage(struct ki_pack *pack,
				 struct ki_pack_order **out_order);
/* 1 if the name is there. */
int ki_pack_order_find(const struct ki_pack_order *order,
		       const uint8_t name[KI_PACK_NAME_BYTES],
		       struct ki_pack_entry *out_entry);

/* ---- A file as a device (file.c) ------------------------------------------- */

/* KILN_OK; OWNER, IO, NO_MEMORY, with *out_why. */
enum kiln_status ki_pack_file_open(const struct ki_sys *sys, const char *path,
				   uint32_t flags,
				   struct kiln_pack_device *out_device,
				   const char **out_why);

#endif /* KI_STORE_PACK_PACK_H */
