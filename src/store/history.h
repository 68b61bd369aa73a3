/* SPDX-License-Identifier: MIT */
#ifndef KI_STORE_HISTORY_H
#define KI_STORE_HISTORY_H

/*
 * NAME.history: what stands beside the counters of NAME.stats; counters.c alone
 * calls this, and holds that file's lock where something is written.
 */

#include <kiln/inspect.h>

#include "sys/sys.h"

/*
 * Add what `application` ("": this process's executable) has counted.  Negative
 * errno: not, or not all of it; -EINVAL also of a newer version, which is left
 * alone.
 */
int ki_history_add(const struct ki_sys *sys, const char *path, unsigned flags,
		   const char *application,
		   const uint64_t deltas[KILN_N_COUNTERS]);

/* Fill in the fields of the history, the others being filled in already.  Where
   there is none to be read, they are 0. */
void ki_history_read(const struct ki_sys *sys, const char *path,
		     struct kiln_store_counters *counters);

/* Begin anew, where there is one. */
int ki_history_zero(const struct ki_sys *sys, const char *path, unsigned flags);

#endif /* KI_STORE_HISTORY_H */
