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

/* `json`: borrowed. */
typedef void trial_fn(void *arg, const char *json, size_t size);

/* NULL: there are no sources, or no memory; `done` is not called. */
struct trial *trial_begin(struct sources *sources, trial_fn *done, void *arg);
/* Nobody wants to know any more. */
void trial_forget(struct trial *trial);

#endif /* KIR_TRIAL_H */
