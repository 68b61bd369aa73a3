/* SPDX-License-Identifier: MIT */
#ifndef KIR_TRIAL_H
#define KIR_TRIAL_H

/*
 * Trying every source end to end, for `kiln doctor`: whether it answers, takes a
 * small item, gives the same back, and has leases and ranges where they are of use.
 * All sources are tried at once.  The item has a name of its own for each user and
 * machine, so that no more than one is left behind.
 *
 *	{"sources": [{"url": ..., "level": 0, "ok": true, "steps": [
 *		{"step": "get", "ok": true, "us": 210}, ...]}, ...]}
 *
 * A step that failed has "why", in words.
 */

#include "base/bytes.h"
#include "sources.h"

struct trial;

/* OK with `json`, borrowed; NO_MEMORY. */
typedef void trial_fn(void *arg, enum kiln_status status, const char *json,
		      size_t size);

/* MISS: there are no sources; NO_MEMORY.  `done` is called if it is OK, and never
   within the call. */
enum kiln_status trial_begin(struct sources *sources, trial_fn *done, void *arg,
			     struct trial **out_trial);
/* Nobody wants to know any more. */
void trial_forget(struct trial *trial);

#endif /* KIR_TRIAL_H */
