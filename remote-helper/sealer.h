/* SPDX-License-Identifier: MIT */
#ifndef KIR_SEALER_H
#define KIR_SEALER_H

/*
 * Makes items of what programs hand over: reads it, compresses, signs.  That takes
 * milliseconds for large ones, so it has a thread of its own; the loop goes on
 * answering.  The secret key is read for each and wiped: a put follows a build.
 *
 * Threads    Jobs are the sealer's from sealer_begin() until `done`, which is
 *	      called from the loop.
 */

#include <kiln/kiln.h>

#include "base/list.h"
#include "item.h"

struct loop;
struct sealer;
struct seal;

typedef void sealed_fn(struct seal *seal);

/* Part of who has something sealed. */
struct seal {
	struct ki_list link;
	/* What: it lies in `plain`, or in the descriptor if that is NULL. */
	const uint8_t *plain;
	int fd;
	uint64_t user_version;
	size_t record_size, metadata_size, value_size;
	int zstd_level;
	sealed_fn *done;
	/* What became of it: OK; OWNER, MISS (the secret key); TOO_LARGE, FORMAT,
	   IO, NO_MEMORY. */
	enum kiln_status status;
	struct item *item;
};

/* `signing_key`: the file of the secret, or the secret, borrowed; or NULL: nothing is
   signed.  NULL: no memory, no thread. */
struct sealer *sealer_new(struct loop *loop, const char *signing_key);
/* Waits for the one at hand; `done` of the others is not called.  NULL is fine. */
void sealer_free(struct sealer *sealer);

void sealer_begin(struct sealer *sealer, struct seal *seal);

#endif /* KIR_SEALER_H */
