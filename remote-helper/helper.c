/* SPDX-License-Identifier: MIT */

#include "helper.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "connection.h"
#include "loop.h"

#define ACCEPTED_OF_A_TURN 64
#define PAUSE_MS	   100
#define WATCH_MS	   1000

/* ---- When it ends -------------------------------------------------------- */

static void end_idle(void *arg)
{
	struct helper *helper = arg;

	helper->idle = NULL;
	loop_stop(helper->loop);
}

static void consider_idle(struct helper *helper);

static void look_at_name(void *arg)
{
	struct helper *helper = arg;

	helper->watch = NULL;
	if (!place_is_ours(helper->place))
		helper_drain(helper);
	consider_idle(helper);
}

/* Each of the two timers sees to it that there is the other, should that not have
   been to be had. */
static void consider_idle(struct helper *helper)
{
	int is_idle = !helper->n_connections && !helper->uploads.n;

	if (is_idle && !helper->idle)
		helper->idle = loop_after(helper->loop, helper->idle_ms,
					  end_idle, helper);
	if (!is_idle) {
		loop_cancel(helper->idle);
		helper->idle = NULL;
	}
	if (helper->listening && !helper->watch)
		helper->watch = loop_after(helper->loop, WATCH_MS, look_at_name,
					   helper);
}

void helper_has_lost(struct helper *helper)
{
	helper->n_connections--;
	consider_idle(helper);
}

/* ---- Until nothing is queued --------------------------------------------- */

void drain_leave(struct drain *drain)
{
	ki_list_remove(&drain->link);
	loop_cancel(drain->deadline);
	drain->deadline = NULL;
}

static void drain_runs_out(void *arg)
{
	struct drain *drain = arg;

	drain->deadline = NULL;
	drain_leave(drain);
	drain->done(drain, KILN_E_TIMEOUT);
}

void helper_await_drain(struct helper *helper, struct drain *drain, uint32_t ms)
{
	ki_list_init(&drain->link);
	drain->deadline = NULL;
	if (!helper->uploads.n) {
		drain->done(drain, KILN_OK);
		return;
	}
	drain->deadline = loop_after(helper->loop, ms, drain_runs_out, drain);
	if (drain->deadline)
		ki_list_append(&helper->drains, &drain->link);
	else
		drain->done(drain, KILN_E_TIMEOUT);
}

static void emptied(void *arg)
{
	struct helper *helper = arg;

	while (!ki_list_is_empty(&helper->drains)) {
		struct drain *drain =
			ki_container(helper->drains.next, struct drain, link);

		drain_leave(drain);
		drain->done(drain, KILN_OK);
	}
	consider_idle(helper);
}

static void stop(void *arg)
{
	loop_stop(arg);
}

/* Others need not wait until the leases run out. */
static void drained(struct drain *drain, enum kiln_status status)
{
	struct helper *helper = ki_container(drain, struct helper, last_drain);

	if (!leases_release_all(&helper->leases) ||
	    !loop_after(helper->loop, LEASE_ANSWER_MS, stop, helper->loop))
		loop_stop(helper->loop);
}

/* The name goes at once, so that the next helper need not wait for us. */
void helper_drain(struct helper *helper)
{
	if (!helper->listening)
		return;
	loop_unwatch(helper->listening);
	helper->listening = NULL;
	loop_cancel(helper->pause);
	helper->pause = NULL;
	place_leave(helper->place);
	helper->last_drain.done = drained;
	helper_await_drain(helper, &helper->last_drain, HELPER_DRAIN_MS);
}

/* ---- Who comes ----------------------------------------------------------- */

static int is_of_our_user(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) &&
	       peer.uid == geteuid();
}

static void welcome(struct helper *helper, int fd)
{
	struct connection *connection;

	if (!is_of_our_user(fd)) {
		helper->n_strangers++;
		(void)close(fd);
		return;
	}
	if (helper->n_connections == HELPER_CONNECTIONS_MAX) {
		helper->n_cut_off++;
		(void)close(fd);
		return;
	}
	connection = connection_new(helper, fd);
	if (!connection)
		return;
	helper->n_accepted++;
	helper->n_connections++;
	ki_list_append(&helper->connections, &connection->link);
	consider_idle(helper);
}

static void end_pause(void *arg)
{
	struct helper *helper = arg;

	helper->pause = NULL;
	loop_change(helper->listening, LOOP_IN);
}

static void on_visitor(void *arg, int listen_fd, int events)
{
	struct helper *helper = arg;
	int fd;

	for (int i = 0; i < ACCEPTED_OF_A_TURN; i++) {
		fd = accept4(listen_fd, NULL, NULL,
			     SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0) {
			welcome(helper, fd);
			continue;
		}
		/* Out of descriptors or memory: asked again at once, the
		   system would say so again at once. */
		if (errno != EAGAIN && errno != ECONNABORTED &&
		    errno != EINTR && !helper->pause) {
			helper->pause = loop_after(helper->loop, PAUSE_MS,
						   end_pause, helper);
			if (helper->pause)
				loop_change(helper->listening, 0);
		}
		break;
	}
}

/* ---- Its life ------------------------------------------------------------ */

static void uploaded(void *arg, const uint8_t name[KI_REMOTE_NAME_BYTES])
{
	struct helper *helper = arg;

	leases_uploaded(&helper->leases, name);
}

int helper_can_put(const struct helper *helper)
{
	for (unsigned i = 0; helper->sealer && i < helper->sources.n_levels;
	     i++)
		if (sources_is_written(&helper->sources, i))
			return 1;
	return 0;
}

/* Where signatures count, what nobody has signed would only be in the way. */
static int may_seal(const struct helper_options *options)
{
	return options->signing_key || options->trusts_transport;
}

static int begin_parts(struct helper *helper,
		       const struct helper_options *options)
{
	struct loop *loop = helper->loop;
	struct refused *refused = &helper->fetches.refused;

	fetches_begin(&helper->fetches, loop, &helper->sources,
		      options->memory_bytes_max);
	if (may_seal(options))
		helper->sealer = sealer_new(loop, options->signing_key);
	uploads_begin(&helper->uploads, loop, &helper->sources, refused,
		      helper->sealer);
	helper->uploads.uploaded = uploaded;
	helper->uploads.emptied = emptied;
	helper->uploads.arg = helper;
	leases_begin(&helper->leases, loop, &helper->sources, refused,
		     &helper->uploads);
	packs_begin(&helper->packs, loop, options->credentials, options->open);
	helper->listening = loop_watch(loop, options->place->listen_fd, LOOP_IN,
				       on_visitor, helper);
	consider_idle(helper);
	return helper->listening && helper->watch && helper->idle &&
	       (helper->sealer || !may_seal(options));
}

enum kiln_status helper_begin(struct helper *helper, struct loop *loop,
			      const struct helper_options *options, char *why,
			      size_t why_size)
{
	enum kiln_status status;

	*helper = (struct helper){ .loop = loop,
				   .place = options->place,
				   .idle_ms = options->idle_ms,
				   .stall_ms = HELPER_STALL_MS,
				   .out_bytes_max = options->memory_bytes_max,
				   .started_ns = loop_now_ns(loop) };
	ki_list_init(&helper->connections);
	ki_list_init(&helper->drains);
	status = sources_open(&helper->sources, loop, options->remote,
			      options->credentials, options->open, why,
			      why_size);
	if (!status && !begin_parts(helper, options)) {
		helper_finish(helper);
		status = KILN_E_NO_MEMORY;
	}
	return status;
}

/* Whoever calls back comes before what it calls. */
void helper_finish(struct helper *helper)
{
	struct ki_list *link, *after;

	loop_unwatch(helper->listening);
	helper->listening = NULL;
	ki_list_for_each_safe (link, after, &helper->connections)
		connection_close(ki_container(link, struct connection, link));
	sources_close(&helper->sources);
	packs_finish(&helper->packs);
	sealer_free(helper->sealer);
	leases_finish(&helper->leases);
	uploads_finish(&helper->uploads);
	fetches_finish(&helper->fetches);
	while (!ki_list_is_empty(&helper->drains))
		drain_leave(
			ki_container(helper->drains.next, struct drain, link));
	loop_cancel(helper->idle);
	loop_cancel(helper->watch);
	loop_cancel(helper->pause);
}
