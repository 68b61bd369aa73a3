/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_GUEST_H
#define KI_FRONT_GUEST_H

/* The kiln inside a program that did not ask for one: what every front that is
   loaded into such programs has of it. */

#include <kiln/inspect.h>
#include <kiln/kiln.h>

#include "sys/sys.h"

/* Opened at the first use; fixed from then on. */
struct ki_guest {
	struct kiln *kiln;
	struct kiln_config *config;
	const char *spool;	/* NULL: no jobs */
	const char *name_space; /* or "" */
	int trace;
};

/* What a front makes of its own, once, when the kiln has been opened: 0, or -1
   if it cannot and there is to be no caching. */
typedef int ki_guest_ready_fn(const struct ki_guest *guest);

/* NULL if there is no caching in this process: switched off, set wrongly, or
   without memory.  `ready` may be NULL.  A forked child must not ask. */
const struct ki_guest *ki_guest(ki_guest_ready_fn *ready);

/* One line to the log, if there is one. */
void ki_guest_log(const struct ki_guest *guest, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* How a look-up of `front` ended, in one line, if that is wanted: the key's digest
   (NULL: there is none), in what words, how long it took since began_ns, and of
   an entry that was found (else NULL) its size and how long its build took. */
void ki_guest_trace(const struct ki_guest *guest, const char *front,
		    const struct kiln_key *key, const char *what,
		    uint64_t began_ns, const struct kiln_blob *value,
		    const struct kiln_blob *metadata);

/* fork() waits until no other thread is opening the kiln. */
void ki_guest_hold(void) KI_NO_ANALYSIS;
void ki_guest_let_go(void) KI_NO_ANALYSIS;

#endif /* KI_FRONT_GUEST_H */
