/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_STATS_REMOTE_H
#define KI_CLI_STATS_REMOTE_H

/* What kiln-remote tells of itself and of its servers, for kiln stats.  Nothing
   where no servers are set. */

#include <kiln/kiln.h>

#include "base/bytes.h"
#include "base/json.h"

void ki_stats_remote(struct ki_bytes *out, const struct kiln_options *options);
/* "remote": null; {"running": false}; or {"running": true, "helper": {...}}. */
void ki_stats_remote_json(struct ki_json *json,
			  const struct kiln_options *options);

#endif /* KI_CLI_STATS_REMOTE_H */
