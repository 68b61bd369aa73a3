/* SPDX-License-Identifier: MIT */
#ifndef KI_WORKER_PLAN_H
#define KI_WORKER_PLAN_H

/*
 * What a rebuild makes again: the entries of a store, gathered into items.  An
 * item is what gives one binary on one machine: all entries of the same sources,
 * options, devices and variables, whatever driver they came from.
 *
 * Threads    One.
 * Ownership  An entry that is handed out is the caller's, kiln_entry_fini().
 */

#include <kiln/inspect.h>

#include "worker.h"

/* An entry of the store: what finds it again. */
struct ki_known {
	uint8_t digest[KILN_DIGEST_BYTES];
	uint8_t item[KILN_DIGEST_BYTES]; /* equal: of one item */
	struct kiln_cursor place;
	uint64_t created;
	uint64_t build_ns;
};

/* Any entry, in a chain of those that may be of the same sources and options. */
struct ki_there {
	uint8_t digest[KILN_DIGEST_BYTES];
	size_t before; /* its place and one; 0: none */
};

struct ki_plan {
	/* Given. */
	struct kiln *view;
	struct ki_waiter *waiter; /* looked at on the way */
	const char *device;	  /* part of its name, or NULL: all */
	/* Made. */
	struct ki_known *known; /* by item, the newest of each first */
	size_t n_known;
	size_t n_known_max;
	size_t *items; /* the first of each, longest builds first */
	size_t n_items;
	struct ki_there *there; /* entries for any device, and those noted */
	size_t n_there;
	size_t n_there_max;
	struct ki_map last; /* by hash of sources and options: place and one */
};

/* KILN_OK; KILN_END: told to end meanwhile; NO_MEMORY, or why the store cannot be
   listed.  Whatever it says, ki_plan_fini() ends it. */
enum kiln_status ki_plan_make(struct ki_plan *plan);
void ki_plan_fini(struct ki_plan *plan);

/* The entry of an item.  KILN_MISS: it has been evicted meanwhile. */
enum kiln_status ki_plan_find(struct ki_plan *plan, size_t item,
			      struct kiln_entry *out_entry);

/* An entry that is there from now on; without memory it is not known, and found
   when it is published again. */
void ki_plan_note(struct ki_plan *plan, const void *record, size_t size);

/* The digests of what is there of the same sources and options, one behind the other
   and from malloc(): no more is asked of whoever makes the entry again.  NO_MEMORY. */
enum kiln_status ki_plan_there(const struct ki_plan *plan, const void *record,
			       size_t size, uint8_t **out_digests,
			       size_t *out_n);

/* Whether a record is of the same sources and options as another. */
int ki_plan_is_same(const void *a, size_t a_size, const void *b, size_t b_size);

/* ---- Fields of records, and numbers of metadata -------------------------- */

int ki_field_begins(const struct kiln_field *field, const char *prefix);
/* "device N" and `what`. */
int ki_field_is_of_device(const struct kiln_field *field, const char *what);
/* 0: it is not there. */
uint64_t ki_entry_number(const struct kiln_entry *entry,
			 enum kiln_metadata_field field);

#endif /* KI_WORKER_PLAN_H */
