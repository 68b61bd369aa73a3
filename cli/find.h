/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_FIND_H
#define KI_CLI_FIND_H

/*
 * Entries by the beginning of their key.  Functions that return an int return
 * an exit status and have said what is wrong.
 */

#include <kiln/inspect.h>

#include "store.h"

/*
 * The one entry whose key begins so; free it with kiln_entry_fini().  `kiln`
 * may be NULL: nothing was ever cached.  Where there is only a job for it, says
 * so.
 */
int ki_find_entry(struct kiln *kiln, const struct ki_settings *settings,
		  const char *prefix, struct kiln_entry *out_entry);

/*
 * The entry whose whole key record has the digest of a field, as inputs of a
 * link have it: 1, to be freed with kiln_entry_fini(), or 0.  Says nothing.
 */
int ki_find_record(struct kiln *kiln, const struct kiln_field *field,
		   struct kiln_entry *out_entry);

#endif /* KI_CLI_FIND_H */
