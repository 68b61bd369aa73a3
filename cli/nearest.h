/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_NEAREST_H
#define KI_CLI_NEAREST_H

/*
 * Of entries that are looked at one after the other the nearest to one: of the same
 * kind and, if there is one, of the same source; then the one of which the fewest
 * fields differ; then the newest.
 */

#include <kiln/inspect.h>

#include "store.h"

struct ki_distance {
	int is_other_source;
	size_t n_differences;
	uint64_t created; /* seconds since 1970; more is nearer */
};

/* Zeros to begin with. */
struct ki_nearest {
	int is_found;
	struct kiln_entry entry; /* owned */
	struct ki_distance distance;
};

/* Takes references to a candidate that is nearer than all before; the entry itself
   and kiln's bookkeeping never are. */
void ki_nearest_offer(struct ki_nearest *nearest,
		      const struct kiln_entry *entry,
		      const struct kiln_entry *candidate);
void ki_nearest_fini(struct ki_nearest *nearest);

/* Whether a record says of what the entry is, or can be made to. */
int ki_nearest_is_known(const struct ki_settings *settings,
			struct kiln_entry *entry);

#endif /* KI_CLI_NEAREST_H */
