/* SPDX-License-Identifier: MIT */

/* The keys that a kiln is given. */

#include "core/cache.h"

#include "sign/files.h"

/* A path is looked at when there is something to sign. */
static int is_signing_key(const char *text)
{
	struct ki_sign_secret secret;

	if (*text == '/')
		return strlen(text) < KI_PATH_MAX;
	if (ki_sign_secret_parse(text, &secret))
		return 0;
	ki_sign_secret_fini(&secret);
	return 1;
}

int ki_kiln_keys_are_good(const struct kiln_options *options)
{
	struct ki_sign_public key;

	if (options->n_trusted_keys > KI_SIGN_TRUST_MAX ||
	    (options->n_trusted_keys && !options->trusted_keys))
		return 0;
	for (size_t i = 0; i < options->n_trusted_keys; i++)
		if (!options->trusted_keys[i] ||
		    ki_sign_public_parse(options->trusted_keys[i], &key))
			return 0;
	return !options->signing_key || is_signing_key(options->signing_key);
}
