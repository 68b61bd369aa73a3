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

static void look_at_name(void *arg)
{
	struct helper *helper = arg;

	helper->watch = NULL;
	if (!place_is_ours(helper->place))
		loop_stop(helper->loop);
	else
		helper->watch = loop_after(helper->loop, WATCH_MS, look_at_name,
					   helper);
}

static void consider_idle(struct helper *helper)
{
	int is_idle = !helper->n_connections;

	if (is_idle && !helper->idle)
		helper->idle = loop_after(helper->loop, helper->idle_ms,
					  end_idle, helper);
	if (!is_idle) {
		loop_cancel(helper->idle);
		helper->idle = NULL;
	}
}

void helper_has_lost(struct helper *helper)
{
	helper->n_connections--;
	consider_idle(helper);
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

int helper_begin(struct helper *helper, struct loop *loop, struct place *place,
		 uint32_t idle_ms)
{
	*helper = (struct helper){ .loop = loop,
				   .place = place,
				   .idle_ms = idle_ms,
				   .started_ns = loop_now_ns(loop) };
	ki_list_init(&helper->connections);
	helper->listening =
		loop_watch(loop, place->listen_fd, LOOP_IN, on_visitor, helper);
	helper->watch = loop_after(loop, WATCH_MS, look_at_name, helper);
	consider_idle(helper);
	return helper->listening && helper->watch && helper->idle;
}

void helper_finish(struct helper *helper)
{
	struct ki_list *link, *after;

	loop_unwatch(helper->listening);
	helper->listening = NULL;
	ki_list_for_each_safe (link, after, &helper->connections)
		connection_close(ki_container(link, struct connection, link));
	loop_cancel(helper->idle);
	loop_cancel(helper->watch);
	loop_cancel(helper->pause);
	helper->idle = helper->watch = helper->pause = NULL;
}
