/* SPDX-License-Identifier: MIT */
#ifndef KIR_HELPER_H
#define KIR_HELPER_H

/*
 * The helper as a whole: who is connected, and when it ends.
 *
 *	loop ── helper ──┬── connections ── requests
 *	                 ├── fetches ─┬── memory
 *	                 ├── uploads  │
 *	                 ├── leases   │
 *	                 └── packs    └── sources ── breakers, backends
 *
 * It ends when nobody was connected and nothing queued for `idle_ms`, when its
 * socket's name leads elsewhere (whoever comes finds another), and when told to.
 */

#include <stdint.h>

#include "base/list.h"
#include "place.h"

struct loop;
struct loop_fd;
struct loop_timer;

#define HELPER_CONNECTIONS_MAX 4096

struct helper {
	struct loop *loop;
	struct place *place;
	uint32_t idle_ms;

	/* Who is connected. */
	struct ki_list connections;
	unsigned n_connections;
	struct loop_fd *listening;
	struct loop_timer *pause; /* no descriptors left: accept later */
	struct loop_timer *idle;
	struct loop_timer *watch; /* of the socket's name */

	/* Counted. */
	uint64_t started_ns;
	uint64_t n_accepted;
	uint64_t n_strangers; /* of other users */
	uint64_t n_cut_off;
	uint64_t n_faulty; /* broke the rules */
	uint64_t n_gets, n_prefetched, n_puts, n_puts_dropped;
};

/* Begin to listen.  0: no memory. */
int helper_begin(struct helper *helper, struct loop *loop, struct place *place,
		 uint32_t idle_ms);
/* Close all connections, and free what it has. */
void helper_finish(struct helper *helper);

/* A connection has gone. */
void helper_has_lost(struct helper *helper);

#endif /* KIR_HELPER_H */
