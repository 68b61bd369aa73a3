/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_EXPLAIN_H
#define KI_CLI_EXPLAIN_H

/*
 * What made an entry another than one of its like, field by field; of inputs of a
 * link that differ also what makes them differ, as far as they are stored.
 */

#include <kiln/inspect.h>

#include "base/json.h"

/* `other` may be NULL: nothing else of its kind is stored.  What fails, fails the
   bytes that are written to. */
void ki_explain_text(struct ki_bytes *out, struct kiln *kiln,
		     const struct kiln_entry *entry,
		     const struct kiln_entry *other);

/* Members "entry", "other" and "differences" of an object. */
void ki_explain_json(struct ki_json *json, struct kiln *kiln,
		     const struct kiln_entry *entry,
		     const struct kiln_entry *other);

#endif /* KI_CLI_EXPLAIN_H */
