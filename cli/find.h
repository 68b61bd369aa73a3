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

#endif /* KI_CLI_FIND_H */
