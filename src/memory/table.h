/* SPDX-License-Identifier: MIT */
#ifndef KI_MEMORY_TABLE_H
#define KI_MEMORY_TABLE_H

/*
 * The values of a memory tier: read without locks, written under one mutex,
 * bounded, the least useful evicted first.
 */

#include "base/list.h"
#include "key/key.h"
#include "memory/slots.h"
#include "sys/sys.h"

struct ki_table_slots;
struct ki_table_entry;
struct ki_table_garbage;

struct ki_table {
	/* Fixed after init. */
	uint64_t bytes_max;		/* 0: no bound */
	uint64_t entries_max;		/* 0: no bound */
	uint64_t garbage_max;
	/* Atomic. */
	struct ki_table_slots *_Atomic slots;
	_Atomic int crowded;		/* too much garbage: no pins, no puts */
	/* Under mutex. */
	struct ki_mutex mutex;
	struct ki_list ring;		/* entries, oldest first */
	struct ki_list *hand;		/* where eviction goes on */
	uint64_t bytes;
	uint64_t n_entries;
	uint64_t changes;		/* removals and replacements */
	struct ki_table_garbage *garbage;	/* oldest first */
	struct ki_table_garbage **garbage_end;
	uint64_t garbage_bytes;
};

/* KILN_E_NO_MEMORY. */
enum kiln_status ki_table_init(struct ki_table *table, uint64_t bytes_max,
			       uint64_t entries_max);
/* Nobody uses it any more.  In a forked child it may have been caught in the
   middle of a change: then its memory is left alone. */
void ki_table_fini(struct ki_table *table);

/* `slot` is entered by the caller, or NULL: then a lock is taken. */
enum kiln_status ki_table_get(struct ki_table *table,
			      const struct kiln_key *key, struct ki_slot *slot,
			      struct kiln_blob **out_blob);

enum ki_table_how {
	KI_TABLE_REPLACE,	/* whatever is there */
	KI_TABLE_FILL,		/* if nothing is there */
};

/*
 * Keep a value, if that can be.  With `changes` (from ki_table_changes(),
 * before the value was looked for) it is kept only if nothing was removed or
 * replaced since.  KILN_EXISTS: there was one, and how is KI_TABLE_FILL.
 */
enum kiln_status ki_table_put(struct ki_table *table,
			      const struct kiln_key *key,
			      struct kiln_blob *blob, enum ki_table_how how,
			      const uint64_t *changes);
uint64_t ki_table_changes(struct ki_table *table);

enum kiln_status ki_table_remove(struct ki_table *table,
				 const struct kiln_key *key);
void ki_table_wipe(struct ki_table *table);
void ki_table_trim(struct ki_table *table, uint64_t bytes);

typedef int ki_table_keep_fn(void *arg, const struct kiln_blob *blob);
void ki_table_sweep(struct ki_table *table, ki_table_keep_fn *keep, void *arg);

void ki_table_size(struct ki_table *table, uint64_t *out_bytes,
		   uint64_t *out_entries);

#endif /* KI_MEMORY_TABLE_H */
