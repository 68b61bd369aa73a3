/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_CHOICE_H
#define KI_CLI_CHOICE_H

/*
 * Which entries of a store are meant, and in which order they are best had: first
 * those that applications were seen to use, in the order of first use
 * (docs/formats/order.md), then the rest as they were made.
 */

#include <kiln/inspect.h>

#include "filter.h"

struct ki_chosen {
	struct kiln_blob *record;
	uint8_t name[KILN_ORDER_NAME_BYTES]; /* BLAKE2b-256 of the record */
	uint64_t made;			     /* seconds since 1970 */
	uint64_t bytes;			     /* of the value */
	uint32_t place; /* in recorded order, from 1; 0: not in it */
	int fits;	/* but for its application */
	int has_application;
	int is_of_application;
};

struct ki_choice {
	struct ki_chosen *entries;
	size_t n;
	size_t capacity;
	size_t n_foreign; /* somebody else's, which nobody has a key of */
	uint64_t bytes;	  /* of all values */
	struct ki_unknown unknown;
};

/* Hidden entries are never chosen.  KILN_OK, the store's reason; fini in any
   case. */
enum kiln_status ki_choose(struct kiln *kiln, const struct ki_filter *filter,
			   struct ki_choice *out_choice);
void ki_choice_fini(struct ki_choice *choice);

/* Whether an entry of this key record is among the chosen ones, once they were
   put in the order of their names for it. */
void ki_choice_index(struct ki_choice *choice);
int ki_choice_has(const struct ki_choice *choice,
		  const struct kiln_blob *record);

#endif /* KI_CLI_CHOICE_H */
