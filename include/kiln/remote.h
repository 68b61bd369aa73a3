/* SPDX-License-Identifier: MIT */
#ifndef KILN_REMOTE_H
#define KILN_REMOTE_H

/*
 * The helper behind kiln_options.remote: kiln-remote, a process that talks to the
 * servers for all programs of this user that have the same configuration.
 *
 *	kiln_config_options(config, &options);
 *	kiln_remote_start(&options, NULL, why, sizeof(why));
 *	kiln_open(&options, &kiln);
 *
 * It is started by `kiln run` or by kiln_remote_start(), never by a look-up, and
 * goes when nobody has used it for a while.  Whoever opens a kiln right after the
 * start finds it.
 *
 * Threads    Any.
 * Ownership  Options are borrowed for the call.
 */

#include <kiln/kiln.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Start the helper of these options, unless it runs.  `program` is the path of
 * kiln-remote; NULL: where it is installed with this library.  What it knows is what
 * the options say, signing_key included, and of the environment what docs/env.md
 * names under "Servers".  KILN_OK also if it runs already.  Else `why`, half a
 * sentence, is written: INVALID (neither a remote nor a pack on a server in the
 * options, or one that cannot be), MISS (there is no kiln-remote), OWNER (the
 * directory of its socket is not this user's alone), IO, NO_MEMORY.  Takes about a
 * millisecond, and does not wait for any server.
 */
KILN_API enum kiln_status kiln_remote_start(const struct kiln_options *options,
					    const char *program, char *why,
					    size_t why_size);

/* Whether a helper of these options is there to be asked: 1 or 0.  It is not asked
   anything, so nothing is waited for. */
KILN_API int kiln_remote_is_there(const struct kiln_options *options);

/*
 * Whether what is put into this kiln now is handed to its helper, whatever becomes of
 * the store: 1 or 0, NULL is fine.  0: the kiln was opened to read alone, the helper
 * is not there, or it said that all its servers are only read, which is known from
 * the first look-up on, or it is left alone for a while, for it failed or said so.
 * Each call connects, and asks nothing: microseconds.
 */
KILN_API int kiln_remote_takes(const struct kiln *kiln);

/* What kiln_remote_tell() tells. */
#define KILN_REMOTE_STATE 0u /* its counters, and how its servers are */
#define KILN_REMOTE_TRIAL 1u /* after each server was tried end to end */

/*
 * Ask the helper about itself: a JSON object (docs/formats/remote-protocol.md)
 * from malloc(), ended by a NUL.  INVALID; MISS: it does not run; TIMEOUT; IO;
 * FORMAT; NO_MEMORY.
 */
KILN_API enum kiln_status kiln_remote_tell(const struct kiln_options *options,
					   unsigned what, uint32_t timeout_ms,
					   char **out_json);

/* Wait until what was handed to the helper is on the servers, or was given up.
   KILN_OK, TIMEOUT; the others as above. */
KILN_API enum kiln_status kiln_remote_drain(const struct kiln_options *options,
					    uint32_t timeout_ms);

#ifdef __cplusplus
}
#endif

#endif /* KILN_REMOTE_H */
