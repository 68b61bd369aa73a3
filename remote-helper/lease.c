/* SPDX-License-Identifier: MIT */

#include "lease.h"

#include <stdlib.h>

#include "base/hash.h"
#include "loop.h"
#include "sys/sys.h"
#include "upload.h"

#define TOKEN_BYTES 16
#define REGAIN_MS   1000 /* after a renewal that failed */

enum state {
	ASKING,
	WAITING,
	HELD,
	RELEASING, /* at the server */
};

struct lease {
	struct name_link by_name;
	struct leases *all;
	enum state state;
	int is_given_back; /* by its holder, while something is under way */
	int is_lost;	   /* another has it */
	unsigned n_polls;
	uint64_t begun_ns;
	struct ki_list waiters;
	struct loop_timer *timer;
	struct ask ask;
	char text[NAME_TEXT_BYTES];
	char token[2 * TOKEN_BYTES + 1];
};

static void ask_for(struct lease *lease);
static void let_go(struct lease *lease);

/* ---- Its life ------------------------------------------------------------ */

void leases_begin(struct leases *leases, struct loop *loop,
		  struct sources *sources, struct refused *refused,
		  struct uploads *uploads)
{
	*leases = (struct leases){ .loop = loop,
				   .sources = sources,
				   .refused = refused,
				   .uploads = uploads,
				   .renew_ms = LEASE_TTL_MS / 3 };
}

static void free_lease(struct lease *lease)
{
	names_remove(&lease->all->names, &lease->by_name);
	loop_cancel(lease->timer);
	free(lease);
}

void leases_finish(struct leases *leases)
{
	struct name_link *link;

	while ((link = names_any(&leases->names)))
		free_lease(ki_container(link, struct lease, by_name));
	names_fini(&leases->names);
}

static struct lease *new_lease(struct leases *leases, const uint8_t *name)
{
	struct lease *lease = calloc(1, sizeof(*lease));
	uint8_t token[TOKEN_BYTES];

	if (!lease)
		return NULL;
	if (ki_sys_posix.random(&ki_sys_posix, token, sizeof(token)) ||
	    !names_add(&leases->names, &lease->by_name, name)) {
		free(lease);
		return NULL;
	}
	lease->all = leases;
	lease->begun_ns = loop_now_ns(leases->loop);
	ki_list_init(&lease->waiters);
	ki_hex(name, KI_REMOTE_NAME_BYTES, lease->text);
	ki_hex(token, sizeof(token), lease->token);
	return lease;
}

/* ---- Who waits ----------------------------------------------------------- */

static void leave(struct lease_waiter *waiter)
{
	ki_list_remove(&waiter->link);
	loop_cancel(waiter->deadline);
	waiter->deadline = NULL;
	waiter->lease = NULL;
}

void lease_waiter_leave(struct lease_waiter *waiter)
{
	if (waiter->lease)
		leave(waiter);
}

static void tell_first(struct lease *lease, enum kiln_status status)
{
	struct lease_waiter *waiter =
		ki_container(lease->waiters.next, struct lease_waiter, link);

	leave(waiter);
	waiter->done(waiter, status, status ? NULL : lease);
}

static void tell_all(struct lease *lease, enum kiln_status status)
{
	while (!ki_list_is_empty(&lease->waiters)) {
		lease->all->n_existed += status == KILN_EXISTS;
		tell_first(lease, status);
	}
}

static void run_out(void *arg)
{
	struct lease_waiter *waiter = arg;
	struct leases *leases = waiter->lease->all;

	waiter->deadline = NULL;
	leave(waiter);
	leases->n_timeouts++;
	waiter->done(waiter, KILN_E_TIMEOUT, NULL);
}

/* ---- Holding ------------------------------------------------------------- */

static struct source *source_of(const struct lease *lease)
{
	int level = sources_lease_level(lease->all->sources);

	return sources_of(lease->all->sources, (unsigned)level,
			  lease->by_name.name);
}

static void ask(struct lease *lease, enum ask_kind kind, done_fn *done)
{
	lease->ask.done = done;
	lease->ask.arg = lease;
	source_lease(source_of(lease), &lease->ask, kind, lease->text,
		     lease->token, LEASE_TTL_MS, LEASE_ANSWER_MS);
}

static void renew(void *arg);

static void renew_after(struct lease *lease, uint32_t ms)
{
	lease->timer = loop_after(lease->all->loop, ms, renew, lease);
}

/* A server that was started again has forgotten it: it is asked for anew. */
static void regained(void *arg, const struct outcome *outcome)
{
	struct lease *lease = arg;

	if (outcome->status == KILN_EXISTS) {
		lease->is_lost = 1;
		lease->all->n_lost++;
	}
	if (lease->is_given_back)
		let_go(lease);
	else if (!lease->is_lost)
		renew_after(lease,
			    outcome->status ? REGAIN_MS : lease->all->renew_ms);
}

static void renewed(void *arg, const struct outcome *outcome)
{
	struct lease *lease = arg;

	if (lease->is_given_back)
		let_go(lease);
	else if (lease->all->sources->is_closing)
		return;
	else if (outcome->status == KILN_MISS)
		ask(lease, ASK_LEASE, regained);
	else
		renew_after(lease,
			    outcome->status ? REGAIN_MS : lease->all->renew_ms);
}

static void renew(void *arg)
{
	struct lease *lease = arg;

	lease->timer = NULL;
	ask(lease, ASK_RENEW, renewed);
}

static void hold(struct lease *lease)
{
	lease->state = HELD;
	lease->is_given_back = 0;
	lease->all->n_taken++;
	tell_first(lease, KILN_OK);
}

/* ---- Giving back --------------------------------------------------------- */

static void released(void *arg, const struct outcome *outcome)
{
	struct lease *lease = arg;

	if (ki_list_is_empty(&lease->waiters) ||
	    lease->all->sources->is_closing) {
		tell_all(lease, KILN_E_UNSUPPORTED);
		free_lease(lease);
		return;
	}
	ask_for(lease);
}

static void release(struct lease *lease)
{
	loop_cancel(lease->timer);
	lease->timer = NULL;
	if (lease->all->sources->is_closing || lease->is_lost) {
		tell_all(lease, KILN_E_UNSUPPORTED);
		free_lease(lease);
		return;
	}
	lease->state = RELEASING;
	ask(lease, ASK_RELEASE, released);
}

/* Its holder is done, and nothing is under way. */
static void let_go(struct lease *lease)
{
	lease->is_given_back = 1;
	if (lease->ask.source ||
	    uploads_has(lease->all->uploads, lease->by_name.name))
		return;
	if (!lease->is_lost && !ki_list_is_empty(&lease->waiters)) {
		if (!lease->timer)
			renew_after(lease, lease->all->renew_ms);
		hold(lease);
		return;
	}
	release(lease);
}

const uint8_t *lease_name(const struct lease *lease)
{
	return lease->by_name.name;
}

void lease_give_back(struct lease *lease)
{
	let_go(lease);
}

static void forget(void *arg, const struct outcome *outcome)
{
}

/* But for those that are being asked about: they run out. */
unsigned leases_release_all(struct leases *leases)
{
	struct name_link *link = NULL;
	unsigned n = 0;

	while ((link = names_after(&leases->names, link))) {
		struct lease *lease = ki_container(link, struct lease, by_name);

		if (lease->state != HELD || lease->is_lost || lease->ask.source)
			continue;
		loop_cancel(lease->timer);
		lease->timer = NULL;
		lease->is_lost = 1; /* to us */
		ask(lease, ASK_RELEASE, forget);
		n++;
	}
	return n;
}

void leases_uploaded(struct leases *leases,
		     const uint8_t name[KI_REMOTE_NAME_BYTES])
{
	struct name_link *link = names_find(&leases->names, name);
	struct lease *lease;

	if (!link)
		return;
	lease = ki_container(link, struct lease, by_name);
	if (lease->state != HELD || !lease->is_given_back)
		return;
	tell_all(lease, KILN_EXISTS);
	let_go(lease);
}

/* ---- Taking -------------------------------------------------------------- */

static void give_up(struct lease *lease)
{
	lease->all->n_faults++;
	tell_all(lease, KILN_E_UNSUPPORTED);
	free_lease(lease);
}

static void poll(void *arg);

static void wait_more(struct lease *lease)
{
	struct leases *leases = lease->all;
	uint64_t ms = (loop_now_ns(leases->loop) - lease->begun_ns) / 8000000;

	if (ms < LEASE_POLL_MS)
		ms = LEASE_POLL_MS;
	if (ms > LEASE_POLL_MS_MAX)
		ms = LEASE_POLL_MS_MAX;
	lease->state = WAITING;
	lease->timer = loop_after(leases->loop,
				  sources_jitter(leases->sources, (uint32_t)ms),
				  poll, lease);
	if (!lease->timer)
		give_up(lease);
}

static void asked(void *arg, const struct outcome *outcome)
{
	struct lease *lease = arg;

	if (outcome->status == KILN_OK) {
		if (ki_list_is_empty(&lease->waiters)) {
			release(lease);
			return;
		}
		renew_after(lease, lease->all->renew_ms);
		hold(lease);
	} else if (outcome->status == KILN_EXISTS) {
		wait_more(lease);
	} else {
		give_up(lease);
	}
}

static void looked(void *arg, const struct outcome *outcome)
{
	struct lease *lease = arg;

	if (outcome->status == KILN_OK) {
		tell_all(lease, KILN_EXISTS);
		free_lease(lease);
	} else if (outcome->status == KILN_MISS) {
		wait_more(lease);
	} else {
		give_up(lease);
	}
}

static void ask_for(struct lease *lease)
{
	lease->state = ASKING;
	if (source_lets_lease(source_of(lease)))
		ask(lease, ASK_LEASE, asked);
	else
		give_up(lease);
}

static void poll(void *arg)
{
	struct lease *lease = arg;
	struct source *source = source_of(lease);

	lease->timer = NULL;
	if (ki_list_is_empty(&lease->waiters)) {
		free_lease(lease);
		return;
	}
	if (++lease->n_polls % LEASE_ASK_EVERY == 0 ||
	    refused_has(lease->all->refused, lease->by_name.name,
			source->level) ||
	    !source_lets(source, 1)) {
		ask_for(lease);
		return;
	}
	lease->state = ASKING;
	lease->ask.done = looked;
	lease->ask.arg = lease;
	source_head(source, &lease->ask, lease->text, LEASE_ANSWER_MS);
}

void leases_take(struct leases *leases, struct lease_waiter *waiter,
		 const uint8_t name[KI_REMOTE_NAME_BYTES], uint32_t ms)
{
	struct name_link *link = names_find(&leases->names, name);
	struct lease *lease = NULL;

	waiter->lease = NULL;
	waiter->deadline = NULL;
	ki_list_init(&waiter->link);
	if (link)
		lease = ki_container(link, struct lease, by_name);
	else if (leases->names.n < LEASES_MAX &&
		 sources_lease_level(leases->sources) >= 0)
		lease = new_lease(leases, name);
	if (!lease) {
		leases->n_refused += leases->names.n >= LEASES_MAX;
		waiter->done(waiter, KILN_E_UNSUPPORTED, NULL);
		return;
	}
	waiter->deadline = loop_after(leases->loop, ms, run_out, waiter);
	if (!waiter->deadline) { /* nobody waits without an end */
		if (!link)
			free_lease(lease);
		waiter->done(waiter, KILN_E_UNSUPPORTED, NULL);
		return;
	}
	ki_list_append(&lease->waiters, &waiter->link);
	waiter->lease = lease;
	if (link)
		leases->n_waited++;
	else
		ask_for(lease);
}
