/* SPDX-License-Identifier: MIT */
#ifndef KI_REMOTE_REMOTE_H
#define KI_REMOTE_REMOTE_H

/*
 * The remote tier: servers, asked through kiln-remote.
 *
 * get        As tiers do; it waits no longer than it is worth (patience.h).  A
 *            local key is a MISS at once, and so is anything where signatures are
 *            asked for and nobody is trusted.
 * put        Hands the entry to the helper and waits for nothing.  INVALID: what
 *            does not leave the machine, local keys and bookkeeping.
 * remove     Tells the helper that what the servers have is of no use, so that
 *            the next put replaces it.  They keep it.  What nobody is told of is no
 *            OK: UNSUPPORTED, FULL, NO_MEMORY; MISS of a local key, and while the
 *            helper is left alone.
 * lock       The lease on a key among machines.  KILN_EXISTS: no lease, the entry
 *            is there by now.  UNSUPPORTED: there are no leases, no helper,
 *            or the last one took longer than half a build, a minute ago or less.
 * prefetch   Hints, of which those are lost that find a helper too busy to read: what
 *            they name is looked up like anything else.  Those of an order
 *            (ki_remote_expect()) are told again.  Without keys it is a tick: what
 *            waits to be said is, if there is room now.
 * Busy       A helper that does not read now is not waited for.  The end of a lease,
 *            and what was found of an item, wait until it does and are told before
 *            anything else, at the next call or tick, or when it is closed; the first
 *            ends with the connection anyhow.  The second waits for the next
 *            connection, too, as of a guest whose helper takes none just now, which
 *            has no ticks.  It is lost with a helper that ends before it reads it.
 * Faults     are counted, and misses: get() answers OK, MISS, NO_MEMORY.
 */

#include <kiln/tier.h>

#include "remote/protocol.h"
#include "sys/sys.h"

struct ki_remote;

typedef void ki_remote_count_fn(void *arg, enum kiln_counter counter,
				uint64_t n);

/* All is borrowed as long as it is open, but for `socket`, which is copied. */
struct ki_remote_options {
	const struct ki_sys *sys;
	const char *socket; /* of the helper */
	uint64_t user_version;
	int is_guest; /* connected only within a call */
	/* Who must have signed; NULL: nobody.  Without keys nothing is asked. */
	const struct ki_sign_trust *trust;
	ki_remote_count_fn *count; /* or NULL */
	void *count_arg;
	kiln_log_fn *log; /* or NULL */
	void *log_arg;
};

/* NO_MEMORY.  Connects when first asked. */
enum kiln_status ki_remote_open(const struct ki_remote_options *options,
				struct ki_remote **out_remote);

static inline struct kiln_tier *ki_remote_tier(struct ki_remote *remote)
{
	return (struct kiln_tier *)remote;
}

/* A look-up of what is known to be there: it may take so long, whatever a build
   takes, but no more than is left for waits that bring nothing. */
enum kiln_status ki_remote_get_patiently(struct ki_remote *remote,
					 const struct kiln_key *key,
					 uint32_t wait_ms,
					 struct kiln_blob **out_value,
					 struct kiln_blob **out_metadata);

/* A look-up that may be made again: TIMEOUT, it has not come yet, and may be at hand
   when it is asked for `again`, which does not wait.  OK, MISS, NO_MEMORY. */
enum kiln_status ki_remote_get_in_time(struct ki_remote *remote,
				       const struct kiln_key *key, int again,
				       struct kiln_blob **out_value,
				       struct kiln_blob **out_metadata);

/* As put, of an order (core/order.h), which is bookkeeping that leaves. */
enum kiln_status ki_remote_put_order(struct ki_remote *remote,
				     const struct kiln_key *key,
				     const void *value, size_t value_size);

/* Whether what is put is handed to a helper: one is there, which is not asked anything,
   has not said that its servers are only read, and is not left alone for a while. */
int ki_remote_takes(const struct ki_remote *remote);

/* Whether a look-up would be asked at all just now. */
int ki_remote_is_worth_asking(struct ki_remote *remote);

/* Whether somebody has to have signed what it gives. */
int ki_remote_is_signed(const struct ki_remote *remote);

uint64_t ki_remote_user_version(const struct ki_remote *remote);

/* A build of this front took so long. */
void ki_remote_note_build(struct ki_remote *remote, uint64_t ns);

/*
 * What will probably be asked for, and in which order: names as ki_remote_name()
 * has them.  What comes next is fetched ahead as look-ups go along it.  Once; the
 * names are copied.
 */
void ki_remote_expect(struct ki_remote *remote, const uint8_t *names,
		      size_t n_names);

#endif /* KI_REMOTE_REMOTE_H */
