/* SPDX-License-Identifier: MIT */
#ifndef KIR_HELPER_H
#define KIR_HELPER_H

/*
 * The helper as a whole: who is connected, what there is for them, and when it
 * ends.
 *
 *	loop ── helper ──┬── connections ── requests
 *	                 ├── fetches ── memory ──┐
 *	                 ├── uploads ── sealer ──┼── sources ── breakers, backends
 *	                 ├── leases ─────────────┘
 *	                 └── packs ───────────────── backends
 *
 * It ends when nobody was connected and nothing queued for `idle_ms`, when its
 * socket's name leads elsewhere (whoever comes finds another), and when told to.
 * What is queued is given HELPER_DRAIN_MS then.
 */

#include <stdint.h>

#include "base/list.h"
#include "fetch.h"
#include "lease.h"
#include "pack.h"
#include "place.h"
#include "sources.h"
#include "upload.h"

struct loop;
struct loop_fd;
struct loop_timer;

#define HELPER_CONNECTIONS_MAX 4096
#define HELPER_DRAIN_MS	       2000
#define HELPER_STALL_MS	       10000

/* What it is told at the beginning. */
struct helper_options {
	struct place *place;
	uint32_t idle_ms;
	uint64_t memory_bytes_max; /* of what waits to be asked for; and as
				      much again of what waits to be read */
	const char *remote;	   /* KILN_REMOTE, or NULL */
	const char *signing_key;   /* its file or itself, or NULL; borrowed */
	int trusts_transport;	   /* items need no signature */
	const struct credentials *credentials; /* or NULL */
	sources_open_fn *open;
};

/* Somebody waits until nothing is queued. */
struct drain {
	struct ki_list link;
	struct loop_timer *deadline;
	void (*done)(struct drain *drain, enum kiln_status status);
};

struct helper {
	struct loop *loop;
	struct place *place;
	uint32_t idle_ms;
	uint32_t stall_ms;	/* who reads nothing for so long is cut off */
	uint64_t out_bytes_max; /* of answers that wait to be read, in all */

	/* Who is connected. */
	struct ki_list connections;
	unsigned n_connections;
	struct loop_fd *listening;
	struct loop_timer *pause; /* no descriptors left: accept later */
	struct loop_timer *idle;
	struct loop_timer *watch; /* of the socket's name */

	/* What there is for them. */
	struct sources sources;
	struct fetches fetches;
	struct sealer *sealer;
	struct uploads uploads;
	struct leases leases;
	struct packs packs;
	struct ki_list drains;
	struct drain last_drain; /* it ends then */

	/* Counted. */
	uint64_t started_ns;
	uint64_t n_accepted;
	uint64_t n_strangers; /* of other users */
	uint64_t n_cut_off;
	uint64_t out_bytes; /* that wait to be read now */
	uint64_t n_no_room; /* items that were not answered with, for these */
};

/* Begin to listen.  INVALID with `why`: the sources; NO_MEMORY. */
enum kiln_status helper_begin(struct helper *helper, struct loop *loop,
			      const struct helper_options *options, char *why,
			      size_t why_size);
/* Listen no more, and end once nothing is queued, soon. */
void helper_drain(struct helper *helper);
/* Close all connections, and free what it has. */
void helper_finish(struct helper *helper);

/* Whether anything is written anywhere. */
int helper_can_put(const struct helper *helper);

/* `drain->done` is set; it may be called within the call. */
void helper_await_drain(struct helper *helper, struct drain *drain,
			uint32_t ms);
void drain_leave(struct drain *drain);

/* A connection has gone. */
void helper_has_lost(struct helper *helper);

#endif /* KIR_HELPER_H */
