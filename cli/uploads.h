/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_UPLOADS_H
#define KI_CLI_UPLOADS_H

/* What programs built and handed to kiln-remote, which sends it to the servers. */

#include <stdint.h>

#include <kiln/inspect.h>

#include "base/json_read.h"

/* Since the helper began. */
struct ki_uploads {
	uint64_t n_done, n_waiting, n_dropped;
};

/* Out of what a helper tells of itself. */
struct ki_uploads ki_uploads_of(const struct ki_json_value *told);

/*
 * Until none waits: each is on the servers, or was given up.  A helper that hangs
 * is waited for five minutes, and complained of.  0: no helper runs, so that
 * nothing waits, and nothing is known.
 */
int ki_uploads_wait(const struct kiln_options *options,
		    struct ki_uploads *out_uploads);

#endif /* KI_CLI_UPLOADS_H */
