/* SPDX-License-Identifier: MIT */
#ifndef KI_STORE_RECORDS_INSIDE_H
#define KI_STORE_RECORDS_INSIDE_H

/*
 * The inside of kiln.records; docs/formats/records.md has the bytes.
 *
 * records.c opens and closes; file.c has the descriptor and the bytes, record.c
 * what the bytes of one record say, index.c what is known of all of them, kept.c
 * has bytes of some, scan.c brings the index up to date.  find.c, each.c, append.c and rewrite.c are what others
 * ask for.  All of it runs under the mutex.
 */

#include "base/map.h"
#include "store/records.h"

#define KI_RECORDS_VERSION 1
#define KI_RECORDS_HEAD	   64
#define KI_RECORD_HEADER   96
#define KI_RECORD_MAGIC	   0x6552694bu /* "KiRe" */
#define KI_RECORD_ENTRY	   1
#define KI_RECORD_DROP	   2
#define KI_RECORD_SETTINGS 3
#define KI_RECORDS_BY_COST ((uint64_t)1) /* a bit of the header's policy */
#define KI_RECORDS_AHEAD   ((size_t)256 << 10)
#define KI_RECORDS_CHUNK   1024 /* entries */
#define KI_RECORDS_LINE	   64	/* of the processor's caches */

_Static_assert(KI_RECORDS_HEADER_BYTES ==
		       KI_RECORDS_HEAD + KI_RECORD_HEADER + KI_RECORDS_HEAD,
	       "the header, and a record with the same");

extern const uint8_t ki_records_magic[8];

#define KI_RECORD_DEAD	  1u /* replaced */
#define KI_RECORD_DROPPED 2u
#define KI_RECORD_MARKED  4u

/*
 *	older         the same digest, before it
 *	name_older    the same name, before it
 *
 * An entry that was replaced stays in its chain: between the record of the new
 * file and the rename that gives it its name, the old one is the true one.
 * What a find needs is in the first line.
 */
struct ki_records_entry {
	uint64_t digest_low;
	uint64_t digest_high;
	struct ki_records_entry *older;
	struct ki_records_kept *kept; /* its bytes; NULL: in the file alone */
	uint32_t n_words : 29;	      /* its size, in words of 8 bytes */
	uint32_t flags : 3;
	uint32_t trusted_s;
	uint64_t serial;
	uint64_t offset;
	int64_t mtime_ns;
	struct ki_records_entry *name_older;
	uint64_t name_hash;
	uint64_t inode;
	uint64_t file_size;
	char name[KI_RECORDS_GLANCE_MAX]; /* "" if it is longer */
} __attribute__((aligned(KI_RECORDS_LINE)));

static inline uint32_t ki_records_entry_bytes(
	const struct ki_records_entry *entry)
{
	return entry->n_words * 8u;
}

/* Bytes of a record that was found, checked when they were read. */
struct ki_records_kept {
	struct ki_records_kept *next; /* read after it */
	struct ki_records_entry *entry;
	uint8_t bytes[];
};

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
	int is_behind;	  /* what was appended could not be read back */
	int has_header;	  /* else it is to be written anew */
	int has_settings; /* from the header or its copy */
	int is_newer;
	struct ki_records_settings settings;
	uint64_t last_serial;
	uint64_t n_changes; /* to what is known; read without the mutex */
	uint8_t *buffer;
	size_t buffer_size, buffer_capacity;
	uint64_t buffer_offset;
	/* The index. */
	struct ki_records_entry **chunks;
	size_t n_entries;
	struct ki_map by_digest, by_name;
	struct ki_records_totals totals;
	struct ki_records_kept *kept_first, *kept_last;
	size_t kept_bytes;
};

static inline int ki_records_is_guest(const struct ki_records *records)
{
	return !!(records->flags & KILN_OPEN_GUEST);
}

static inline int ki_records_is_readonly(const struct ki_records *records)
{
	return !!(records->flags & (KILN_OPEN_READONLY | KILN_OPEN_ANY_OWNER));
}

static inline uint64_t ki_records_align(uint64_t n)
{
	return (n + 7) & ~(uint64_t)7;
}

static inline uintptr_t ki_records_hash(uint64_t hash)
{
	return hash ? (uintptr_t)hash : 1;
}

/* ---- Each call (records.c) ------------------------------------------------------ */

void ki_records_enter(struct ki_records *records) KI_ACQUIRE(records->mutex);
void ki_records_leave(struct ki_records *records) KI_RELEASE(records->mutex);
/* A guest's descriptor is opened for the call: of the file that is known. */
int ki_records_ready_to_read(struct ki_records *records);

/* ---- The index (index.c) -------------------------------------------------------- */

static inline struct ki_records_entry *ki_records_entry(
	const struct ki_records *records, size_t i)
{
	return &records->chunks[i / KI_RECORDS_CHUNK][i % KI_RECORDS_CHUNK];
}

void ki_records_note_change(struct ki_records *records);
void ki_records_clear(struct ki_records *records);
/* The bytes of a record, checked.  0, -ENOMEM. */
int ki_records_add(struct ki_records *records, const uint8_t *bytes,
		   uint64_t offset, uint32_t size);
/* All of this digest are dropped. */
void ki_records_bury(struct ki_records *records, uint64_t low, uint64_t high);
struct ki_records_entry *ki_records_newest(const struct ki_records *records,
					   uint64_t low, uint64_t high);
struct ki_records_entry *ki_records_older(const struct ki_records_entry *entry);
void ki_records_digest(const struct ki_records_entry *entry,
		       uint8_t out[KILN_DIGEST_BYTES]);
/* All that is known without its bytes: not the value, nor a long name. */
void ki_records_fill_file(const struct ki_records_entry *entry,
			  struct ki_record_found *found);
void ki_records_trust_until(struct ki_records_entry *entry, uint64_t ns);
uint64_t ki_records_trusted_ns(const struct ki_records_entry *entry);
/* The newest that is not dropped; `inode` may be NULL. */
struct ki_records_entry *ki_records_named(const struct ki_records *records,
					  uint64_t hash, const uint64_t *inode);

/* ---- The file (file.c) ----------------------------------------------------------- */

/* 0, -errno. */
int ki_records_open_file(struct ki_records *records);
void ki_records_close_file(struct ki_records *records);
/* Whether there is a descriptor, of the file that is known, and the path leads
   to that file; else it is let go. */
int ki_records_fd_is_current(struct ki_records *records,
			     struct ki_file_info *out_info);
/* Close it, if it is ours. */
void ki_records_let_go(struct ki_records *records);
/* If the descriptor is another's, or the path leads elsewhere: open the file
   again.  1 if it is the one that is known. */
int ki_records_reopen(struct ki_records *records);
/* Bytes of the file, and up to `ahead` more in the same read.  Valid until the
   next call.  -ENODATA: it is shorter by now. */
int ki_records_look(struct ki_records *records, uint64_t offset, uint64_t size,
		    size_t ahead, const uint8_t **out_bytes);
void ki_records_forget_buffer(struct ki_records *records);
/* Room for so many bytes that are to be written, and write them at the end; then
   a look finds them without reading. */
int ki_records_prepare(struct ki_records *records, size_t size,
		       uint8_t **out_bytes);
int ki_records_extend(struct ki_records *records, size_t size);

/* ---- One record (record.c) --------------------------------------------------------- */

/* With what is kept of the key record. */
uint64_t ki_records_size_of(uint64_t name_size, uint64_t record_size,
			    uint64_t metadata_size, unsigned n_gaps);
/* What a header says of the whole; 0: it is none, or not of this place. */
uint64_t ki_records_claimed_size(const uint8_t *header, uint64_t offset);
uint64_t ki_records_check(const uint8_t *bytes, uint64_t size);
int ki_records_is_whole(const uint8_t *bytes, uint64_t size);
/* The bytes of an entry; -ENODATA if they are damaged, -EIO if there is no file to
   read them from. */
int ki_records_bytes_of(struct ki_records *records,
			const struct ki_records_entry *entry, size_t ahead,
			const uint8_t **out_bytes);
void ki_records_fill(const struct ki_records_entry *entry, const uint8_t *bytes,
		     struct ki_record_found *found);
const uint8_t *ki_records_metadata_of(const uint8_t *bytes, size_t *out_size);

/* The pieces of a key record between its gaps: one more than there are gaps. */
#define KI_RECORDS_PIECES (KI_RECORDS_GAPS_MAX + 1)
void ki_records_cut(const void *record, size_t record_size,
		    const struct ki_record_gaps *gaps,
		    struct ki_piece out_pieces[KI_RECORDS_PIECES]);
int ki_records_is_of(const uint8_t *bytes, const struct kiln_key *key);
/* With zeros in the gaps.  KILN_OK, NO_MEMORY. */
enum kiln_status ki_records_copy_key(const uint8_t *bytes,
				     struct kiln_blob **out_blob);
/* Nothing if out_blob is NULL. */
enum kiln_status ki_records_copy_part(const uint8_t *data, size_t size,
				      struct kiln_blob **out_blob);

/* ---- What was found (kept.c) ------------------------------------------------------- */

/* Until there are too many. */
void ki_records_keep(struct ki_records *records, struct ki_records_entry *entry,
		     const uint8_t *bytes);
void ki_records_forget_kept(struct ki_records *records);

/* ---- Catching up (scan.c) ----------------------------------------------------------- */

/* 1 if there was anything, 0, -errno. */
int ki_records_refresh_locked(struct ki_records *records);
/* What lies behind what was seen. */
int ki_records_parse(struct ki_records *records);
/* Nothing is known any more. */
void ki_records_forget(struct ki_records *records);

/* ---- Writing (append.c, rewrite.c) --------------------------------------------------- */

/* Whether writing may begin: a file that is there, with a header that is
   whole. */
int ki_records_ready_to_write(struct ki_records *records);
enum kiln_status ki_records_write_status(int err);
/* Another file in the place of this one, with the living or without. */
int ki_records_renew(struct ki_records *records,
		     const struct ki_records_settings *settings, int keep);

#endif /* KI_STORE_RECORDS_INSIDE_H */
