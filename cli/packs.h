/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_PACKS_H
#define KI_CLI_PACKS_H

/* The packs of `kiln run`, and those on servers. */

#include <kiln/inspect.h>

#include "options.h"

/*
 * Have those of --pack, files or URLs, asked first, then those that are set: by
 * KILN_PACKS, for the program and whatever it starts.  One that cannot be used is told in a line
 * and left out.
 */
void ki_packs_set(const struct ki_command *command,
		  const struct kiln_config *config);

/* The first of --pack that is on a server; NULL: none.  To try one takes kiln-remote,
   which is started before. */
const char *ki_packs_url(const struct ki_command *command);

/* Whether these settings want kiln-remote: for servers, or for a pack on one. */
int ki_packs_want_remote(const struct kiln_options *options);

#endif /* KI_CLI_PACKS_H */
