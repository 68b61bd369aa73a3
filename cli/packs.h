/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_PACKS_H
#define KI_CLI_PACKS_H

/* The packs of `kiln run`. */

#include <kiln/inspect.h>

#include "options.h"

/*
 * Have those of --pack asked first, then those that are set: by KILN_PACKS, for
 * the program and whatever it starts.  One that cannot be used is told in a line
 * and left out.
 */
void ki_packs_set(const struct ki_command *command,
		  const struct kiln_config *config);

#endif /* KI_CLI_PACKS_H */
