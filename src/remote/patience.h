/* SPDX-License-Identifier: MIT */
#ifndef KI_REMOTE_PATIENCE_H
#define KI_REMOTE_PATIENCE_H

/*
 * How long it is worth waiting for a remote.
 *
 * A look-up may take half of what a build takes here, and never more than 100 ms;
 * what that is is known after five builds.  Waits that bring nothing may come to
 * 1 s in the whole life of a process; after that only what the helper has at hand
 * is taken.  Whoever failed three times in a row is left alone: 1 s, then twice as
 * long each time, up to 60 s; or as long as the helper says.
 *
 * Threads    Any.  Asking is a comparison of two numbers.
 */

#include <stdint.h>

#include "sys/sys.h"

#define KI_PATIENCE_NS_MAX   ((uint64_t)100000000)
#define KI_PATIENCE_VAIN_NS  ((uint64_t)1000000000) /* of a process */
#define KI_PATIENCE_BUILDS   31			    /* whose median counts */
#define KI_PATIENCE_FAULTS   3
#define KI_PATIENCE_QUIET_NS ((uint64_t)1000000000)

struct ki_patience {
	/* Atomic. */
	_Atomic uint64_t wait_ns;
	_Atomic uint64_t quiet_until_ns;
	_Atomic uint32_t n_faults; /* in a row */
	_Atomic uint32_t n_quiets; /* in a row */
	/* Under mutex. */
	struct ki_mutex mutex;
	uint64_t builds[KI_PATIENCE_BUILDS];
	uint64_t n_builds;
};

void ki_patience_init(struct ki_patience *patience);
void ki_patience_fini(struct ki_patience *patience);

/* A build that took so long. */
void ki_patience_note_build(struct ki_patience *patience, uint64_t ns);

/* Whether there is any use in asking now. */
static inline int ki_patience_is_quiet(const struct ki_patience *patience,
				       uint64_t now_ns)
{
	return now_ns < patience->quiet_until_ns;
}

/* How long a look-up may wait; 0: only for what is there. */
uint64_t ki_patience_wait_ns(const struct ki_patience *patience);

/* What is left for waits that bring nothing. */
uint64_t ki_patience_left_ns(void);

/* What a wait may be worth here, whatever was spent: half of a build. */
uint64_t ki_patience_worth_ns(const struct ki_patience *patience);

/* A wait that brought nothing. */
void ki_patience_spend(uint64_t ns);
/* For tests: as at the start of a process, and so many times as patient: there are
   machines that have other things to do. */
void ki_patience_forget(uint64_t factor);
/* A time by that factor. */
uint64_t ki_patience_scaled(uint64_t ns);

/* An answer, whatever it was; no answer, or none that can be. */
void ki_patience_note_answer(struct ki_patience *patience);
void ki_patience_note_fault(struct ki_patience *patience, uint64_t now_ns);
/* Not before that. */
void ki_patience_be_quiet(struct ki_patience *patience, uint64_t until_ns);

#endif /* KI_REMOTE_PATIENCE_H */
