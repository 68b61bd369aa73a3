/* SPDX-License-Identifier: MIT */
#ifndef KIR_LEASE_H
#define KIR_LEASE_H

/*
 * One build per fleet: who has the lease of a name builds, others wait.
 *
 *	take ──> ASKING ──it is ours──> HELD ──> the first who waits has it
 *	            │ ^                  │  ^
 *	  another's │ │ now and then     │  └── renewed each third of its time
 *	            v │                  v
 *	         WAITING ──it is there   released when what was built is uploaded,
 *	                   now──>        when it is given back, or when its holder
 *	                   EXISTS        has gone
 *
 * Where several levels have leases the farthest counts: it is the one that most
 * machines share.  Of the programs of this machine one at a time has a lease, and
 * the next gets it without the server being asked.
 *
 * A question that a server does not answer as soon as it would answer a look-up
 * is a fault, and whoever waits is told to build: many do at worst, as without
 * leases.  Between questions whoever waits is patient, the more so the longer it
 * has waited, for the builds that others wait for are long ones.
 */

#include "base/list.h"
#include "names.h"
#include "refused.h"
#include "sources.h"

#define LEASE_TTL_MS	  10000
#define LEASE_ANSWER_MS	  200 /* longer is a fault */
#define LEASE_POLL_MS	  20  /* the first; then an eighth of the time so far */
#define LEASE_POLL_MS_MAX 1000
#define LEASES_MAX	  4096 /* held and waited for; beyond: UNSUPPORTED */
#define LEASE_ASK_EVERY	  5    /* else only whether the item is there */

struct uploads;
struct lease;
struct lease_waiter;

/* OK: it is yours, until lease_give_back(); EXISTS, TIMEOUT, UNSUPPORTED.  The
   waiter is the callee's again. */
typedef void lease_fn(struct lease_waiter *waiter, enum kiln_status status,
		      struct lease *lease);

/* Part of who waits. */
struct lease_waiter {
	struct ki_list link;
	struct lease *lease; /* NULL: it waits no more */
	struct loop_timer *deadline;
	lease_fn *done;
};

struct leases {
	struct loop *loop;
	struct sources *sources;
	struct refused *refused;
	struct uploads *uploads;
	uint32_t renew_ms;
	struct names names;
	/* Counted. */
	uint64_t n_taken, n_waited, n_existed, n_timeouts, n_faults, n_lost;
	uint64_t n_refused; /* beyond LEASES_MAX */
};

void leases_begin(struct leases *leases, struct loop *loop,
		  struct sources *sources, struct refused *refused,
		  struct uploads *uploads);
/* After the sources are closed. */
void leases_finish(struct leases *leases);

/* `waiter->done` is set; it may be called within the call. */
void leases_take(struct leases *leases, struct lease_waiter *waiter,
		 const uint8_t name[KI_REMOTE_NAME_BYTES], uint32_t ms);
/* Wait no longer, and be told nothing. */
void lease_waiter_leave(struct lease_waiter *waiter);

const uint8_t *lease_name(const struct lease *lease);
/* By its holder, once.  If its item is being uploaded, once that is done. */
void lease_give_back(struct lease *lease);
/* Give all back at the servers, whoever holds them; how many there are. */
unsigned leases_release_all(struct leases *leases);
/* An item of that name is there now, or never will be. */
void leases_uploaded(struct leases *leases,
		     const uint8_t name[KI_REMOTE_NAME_BYTES]);

#endif /* KIR_LEASE_H */
