/* SPDX-License-Identifier: MIT */
#ifndef KI_TESTS_CONFORM_KINDS_H
#define KI_TESTS_CONFORM_KINDS_H

/*
 * The kinds of tiers that must behave alike.  A new store adds one line to
 * kinds.c and its name to conform/meson.build.
 */

#include "key/key.h"
#include "store/store.h"

struct kind {
	const char *name;
	const char *scheme;   /* of its URL; NULL: the name */
	const char *fragment; /* "#..."; NULL: none */
	enum kiln_status (*open)(const struct ki_store_options *options,
				 struct kiln_tier **out_tier);
	int resembles; /* a kind before it: less of it is tried in a short time */
	int by_cost;   /* the kind before it, told to evict by cost */
	int persists; /* in the directory, for every process */
	/* How often it has done so, over all processes.  NULL: it never does. */
	uint64_t (*n_rolls)(struct kiln_tier *tier);
	uint64_t (*n_grown)(struct kiln_tier *tier);
	/* What the files of a directory take, as the kind's bound counts.  NULL:
	   harness_disk_bytes(). */
	uint64_t (*disk_bytes)(const char *directory);
	int is_alone; /* one store in a directory, whatever its name */
	/* How much of the bound one eviction sets free, at most: 1 / this.  0: an
	   8th. */
	unsigned evicts;
	/* Files that its records name by inode: a copy of the directory is one
	   only if it links them.  NULL: none. */
	int (*is_named_by_inode)(const char *base);
	/* A format of kiln's own: it puts aside what is damaged, and refuses a
	   limit below what it takes itself. */
	int is_own;
	int has_sessions;    /* and a quota */
	int has_sources;     /* keeps what was compiled */
	int has_eviction;    /* may be told by what it evicts */
	int has_files_clock; /* ages are by the file system's */
	/* Wait for locks as briefly as can be.  NULL: it does. */
	void (*hurry)(struct kiln_tier *tier);
	/* A file of which the record was lost keeps its name until it is
	   evicted: its key collides. */
	int may_collide;
	/* What is wrong with the directory's own account; NULL: nothing, or it
	   has none.  It may say too much where something failed, until the next
	   eviction: not if it `is_exact`. */
	const char *(*check_account)(const char *directory, int is_exact);
};

extern const struct kind kinds[]; /* the last one has no name */

/* NULL if there is none of this name. */
const struct kind *kind_find(const char *name);

/* From malloc(). */
char *kind_url(const struct kind *kind, const char *directory);

/* As the kind's bound counts. */
uint64_t kind_disk_bytes(const struct kind *kind, const char *directory);

/* A tier as a user of kiln may write one: a list in memory. */
enum kiln_status double_open(const struct ki_store_options *options,
			     struct kiln_tier **out_tier);

/* ---- Keys and values that can be told apart --------------------------------- */

/* Key number n of a family; never fails. */
struct kiln_key *numbered_key(unsigned n);

/* What is stored with key number n: a build time that is short, long, 0, absurd,
   or none. */
#define NUMBERED_METADATA_BYTES 16
void fill_metadata(unsigned n, uint8_t bytes[NUMBERED_METADATA_BYTES]);
/* That, or what the stores of tests/golden have. */
int is_metadata_of(unsigned n, const struct kiln_blob *metadata);

/* Whether `data` is a value that fill_value() makes for key n. */
int is_value_of(unsigned n, const void *data, size_t size);

/* `size` bytes that only key n has: at least 8. */
void fill_value(unsigned n, void *data, size_t size);

enum kiln_status put_numbered(struct kiln_tier *tier, unsigned n, size_t size,
			      unsigned flags);
/* KILN_OK with the right value, or a status; -1000 for wrong bytes. */
int get_numbered(struct kiln_tier *tier, unsigned n);
#define WRONG_BYTES (-1000)

#endif /* KI_TESTS_CONFORM_KINDS_H */
