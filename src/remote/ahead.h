/* SPDX-License-Identifier: MIT */
#ifndef KI_REMOTE_AHEAD_H
#define KI_REMOTE_AHEAD_H

/*
 * Fetching ahead along a recorded order, as readers of files do: at a look-up the
 * next few names are asked for, and twice as many whenever look-ups come near the
 * end of these.  A machine that has most of it and lacks one fetches a few in vain,
 * one that has nothing soon fetches hundreds at a time.
 */

#include "remote/protocol.h"
#include "sys/sys.h"

#define KI_AHEAD_FIRST 32
#define KI_AHEAD_MAX   1024

struct ki_ahead {
	/* Under mutex. */
	struct ki_mutex mutex;
	uint8_t *names; /* NULL: no order */
	size_t n_names;
	size_t next;  /* where the next look-up is expected */
	size_t asked; /* names before that have been asked for */
	size_t window;
};

void ki_ahead_init(struct ki_ahead *ahead);
void ki_ahead_fini(struct ki_ahead *ahead);

/* Once.  Without memory there is none. */
void ki_ahead_set(struct ki_ahead *ahead, const uint8_t *names, size_t n_names);

/* A look-up: how many names are to be asked for now, from *out_names on; they stay
   as they are until fini. */
size_t ki_ahead_note(struct ki_ahead *ahead,
		     const uint8_t name[KI_REMOTE_NAME_BYTES],
		     const uint8_t **out_names);

/* Those from `names` on could not be asked for after all: they are at the next look-up,
   and no more of them than now. */
void ki_ahead_refused(struct ki_ahead *ahead, const uint8_t *names);

#endif /* KI_REMOTE_AHEAD_H */
