/* SPDX-License-Identifier: MIT */
#ifndef KI_STORE_RECORDS_H
#define KI_STORE_RECORDS_H

/*
 * kiln.records: what a foreign format lacks.  A directory whose entries are
 * files of somebody else's making has one such file for all of them; for each
 * entry of kiln's it holds the key record, metadata, the value's size and
 * checksum, and which file it is: name, inode, size, modification time.
 * docs/formats/records.md has the bytes.
 *
 * It only grows, but for a rewrite that leaves the dead out.  Nothing in it is
 * believed without its checksum; what is damaged costs that one record.
 *
 * Reading   from any thread, under no lock, at any time.  What others appended
 *           is seen after ki_records_refresh(), which also notices that the
 *           path leads to another file.
 * Writing   append, drop, rewrite and reset are for whoever holds the lock of
 *           the directory, which is the caller's: one writer at a time among
 *           all processes.  They refresh first.
 * Files     are never looked at here, but in a rewrite after a crash: whether
 *           an entry's file is still the recorded one is the caller's to ask.
 * Gaps      of a key record what is long and lies elsewhere need not be kept:
 *           such gaps are compared there, by the caller.
 * Memory    nothing is mapped: who cuts the file off ends no program.  The
 *           bytes of records that were found stay in memory, up to a bound.
 * Guests    (KILN_OPEN_GUEST) keep no descriptor between calls.
 * Read-only (KILN_OPEN_READONLY, _ANY_OWNER) writes nothing.
 */

#include <kiln/kiln.h>

#include "key/key.h"
#include "sys/sys.h"

#define KI_RECORDS_NAME_MAX	255 /* of an entry's file, in the directory */
#define KI_RECORDS_HEADER_BYTES 224 /* of the file, with its copy */

struct ki_records;

struct ki_records_options {
	const struct ki_sys *sys;
	const char *path; /* of the file */
	uint32_t flags;	  /* KILN_OPEN_* */
};

/* Of the directory as a whole; they change only with a new file. */
struct ki_records_settings {
	uint64_t generation; /* another one after each wipe; 0: none known */
	uint64_t bytes_max;  /* as a tool has set it; UINT64_MAX: nobody has */
	uint64_t user_version;
	int by_cost; /* evictions go by it */
};

/* Bytes of a key record that are not kept with it, in order. */
#define KI_RECORDS_GAPS_MAX 4
struct ki_record_gap {
	uint32_t offset; /* in the key record */
	uint32_t size;
};
struct ki_record_gaps {
	struct ki_record_gap of[KI_RECORDS_GAPS_MAX];
	unsigned n;
};

struct ki_record {
	uint8_t digest[KILN_DIGEST_BYTES];
	const char *name;
	const void *record; /* all of it */
	size_t record_size;
	struct ki_record_gaps gaps;
	const void *metadata;
	size_t metadata_size;
	uint64_t value_size;
	uint64_t value_check; /* XXH3-64 */
	uint64_t inode;
	uint64_t file_size;
	int64_t mtime_ns;
};

/* What is known of an entry: a copy. */
struct ki_record_found {
	uint8_t digest[KILN_DIGEST_BYTES];
	char name[KI_RECORDS_NAME_MAX + 1];
	uint64_t serial; /* rises with every record */
	uint64_t bytes;	 /* of the record */
	uint64_t value_size;
	uint64_t value_check;
	uint64_t inode;
	uint64_t file_size;
	int64_t mtime_ns;
	uint64_t trusted_ns; /* see ki_records_trust() */
	struct ki_record_gaps gaps;
};

/* No file is made before something is written.  FORMAT: made by a newer
   version.  IO, NO_MEMORY. */
enum kiln_status ki_records_open(const struct ki_records_options *options,
				 struct ki_records **out_records);
/* NULL is fine; also in a forked child. */
void ki_records_close(struct ki_records *records);

/* ---- Reading ---------------------------------------------------------------- */

/* Take over what others did: 1 if there was anything, 0, -errno. */
int ki_records_refresh(struct ki_records *records);

/* Another number once more is known, or less: whichever thread refreshed. */
uint64_t ki_records_n_changes(struct ki_records *records);

/*
 * The record of a key; the n-th one before it with `older` > 0, which counts as
 * long as the file that the newest names is not there.  KILN_OK: the gaps are
 * still to be compared; KILN_MISS, KILN_E_COLLISION (the digest is another
 * key's), IO, NO_MEMORY.  out_metadata may be NULL.
 */
enum kiln_status ki_records_find(struct ki_records *records,
				 const struct kiln_key *key, unsigned older,
				 struct ki_record_found *out_found,
				 struct kiln_blob **out_metadata);

/*
 * Have the record of a key brought, and meanwhile say the name of its file, if
 * that is short, and until when it is trusted: 1, else 0.  Nobody may believe it
 * before the find.
 */
#define KI_RECORDS_GLANCE_MAX 32
int ki_records_glance(struct ki_records *records, const struct kiln_key *key,
		      char out_name[KI_RECORDS_GLANCE_MAX],
		      uint64_t *out_trusted_ns);

/* Have the finds of this record say, in this process, that the caller need not
   look again which file it is before then, by whatever clock. */
void ki_records_trust(struct ki_records *records,
		      const struct ki_record_found *found, uint64_t until_ns);

/* The newest record of a file, as far as the index has it: nothing of the value,
   nor of gaps.
   KILN_OK, KILN_MISS, IO, NO_MEMORY. */
enum kiln_status ki_records_by_name(struct ki_records *records,
				    const char *name,
				    struct ki_record_found *out_found);

/* The same of the file that has this inode: in a replacement the one before. */
enum kiln_status ki_records_by_file(struct ki_records *records,
				    const char *name, uint64_t inode,
				    struct ki_record_found *out_found);

/* What the build of this file took, as its record says; 0: it does not, or there is
   none. */
uint64_t ki_records_build_ns(struct ki_records *records, const char *name,
			     uint64_t inode);

/* The first living one with a serial above *serial, which is moved on.
   KILN_OK, KILN_END, IO, NO_MEMORY.  The blobs may be NULL; a key record has
   zeros in its gaps. */
enum kiln_status ki_records_next(struct ki_records *records, uint64_t *serial,
				 struct ki_record_found *out_found,
				 struct kiln_blob **out_record,
				 struct kiln_blob **out_metadata);

/* The names of the files of all the living, from memory; the visit must not call
   back.  0, what it gave that was not 0, -ENAMETOOLONG: there is one of
   KI_RECORDS_GLANCE_MAX, which only the file knows. */
typedef int ki_records_name_fn(void *arg, const char *name);
int ki_records_names(struct ki_records *records, ki_records_name_fn *visit,
		     void *arg);

struct ki_records_totals {
	uint64_t n_living;
	uint64_t bytes; /* of the file */
	uint64_t
		bytes_living; /* of it: records of the living, and the header */
	uint64_t bytes_files; /* of the files that the living name */
};
struct ki_records_totals ki_records_totals(struct ki_records *records);
struct ki_records_settings ki_records_settings(struct ki_records *records);

/* What appending this would add to the file; 0: it breaks a limit. */
uint64_t ki_records_size(const struct ki_record *record);

/* ---- Writing, under the directory's lock -------------------------------------- */

/* Refresh, and need not again before the end: the caller has the lock until
   then.  As ki_records_refresh(), or -EPROTONOSUPPORT: made by a newer version.
   The end follows unless it is -errno. */
int ki_records_begin(struct ki_records *records);
void ki_records_end(struct ki_records *records);

/* The key's record from now on. */
enum kiln_status ki_records_append(struct ki_records *records,
				   const struct ki_record *record);

/* The keys' records are dead, in one write. */
enum kiln_status ki_records_drop(struct ki_records *records,
				 const uint8_t (*digests)[KILN_DIGEST_BYTES],
				 size_t n_digests);

/* Write the living anew.  No settings: as they were. */
enum kiln_status ki_records_rewrite(struct ki_records *records,
				    const struct ki_records_settings *settings);

/* An empty file with these settings. */
enum kiln_status ki_records_reset(struct ki_records *records,
				  const struct ki_records_settings *settings);

/*
 * Compare with what is there: begin, mark each file of the directory, end.
 * What was not marked is dropped.  *out_n_dropped may be NULL.
 */
void ki_records_sweep_begin(struct ki_records *records);
/* 1 if it is the recorded one. */
int ki_records_mark(struct ki_records *records, const char *name,
		    uint64_t inode);
enum kiln_status ki_records_sweep_end(struct ki_records *records,
				      uint64_t *out_n_dropped);

#endif /* KI_STORE_RECORDS_H */
