/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_SIGNING_H
#define KI_CLI_SIGNING_H

/* The secret keys that an export signs with, and whether a pack is signed. */

#include <kiln/pack.h>

#include "options.h"
#include "sign/sign.h"
#include "store.h"

struct ki_signing {
	const char *texts[KILN_PACK_SIGNATURES_MAX];
	size_t n;
	char room[KILN_PACK_SIGNATURES_MAX][KI_SIGN_TEXT_BYTES];
};

/* Those of --key, else the one that signs here if none is named, else none.  An
   exit status, and has said what is wrong; fini in any case. */
int ki_signing_load(struct ki_signing *signing,
		    const struct ki_command *command,
		    const struct ki_settings *settings);
/* Wipes them. */
void ki_signing_fini(struct ki_signing *signing);

/* Whether a key has signed the pack that is trusted here. */
int ki_signing_is_trusted(const struct ki_settings *settings, const char *path);

#endif /* KI_CLI_SIGNING_H */
