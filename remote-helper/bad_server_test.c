/* SPDX-License-Identifier: MIT */

#include "harness/harness.h"

#include "bad_server_test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/list.h"

#define ASKED_BYTES ((size_t)16 << 10)
#define DRIP_MS	    4

struct bad_server {
	struct loop *loop;
	int fd;
	struct loop_fd *watched;
	unsigned port, n_connections;
	const char *bytes;
	size_t size;
	enum bad_end end;
	struct ki_list peers;
	char asked[ASKED_BYTES];
	size_t n_asked;
};

struct peer {
	struct ki_list node;
	struct bad_server *server;
	int fd;
	struct loop_fd *watched;
	struct loop_timer *drip;
	size_t sent;
	int is_answering;
};

static void peer_close(struct peer *peer)
{
	const struct linger reset = { .l_onoff = 1 };

	if (peer->server->end == BAD_RESET)
		(void)setsockopt(peer->fd, SOL_SOCKET, SO_LINGER, &reset,
				 sizeof(reset));
	ki_list_remove(&peer->node);
	loop_unwatch(peer->watched);
	loop_cancel(peer->drip);
	(void)close(peer->fd);
	free(peer);
}

static void on_drip(void *arg)
{
	struct peer *peer = arg;
	const struct bad_server *server = peer->server;

	peer->drip = NULL;
	(void)send(peer->fd, server->bytes + peer->sent++, 1, MSG_NOSIGNAL);
	if (peer->sent == server->size) {
		peer->sent = 0;
		peer->is_answering = 0;
		return;
	}
	peer->drip = loop_after(server->loop, DRIP_MS, on_drip, peer);
}

/* What comes when all has been said. */
static void end(struct peer *peer)
{
	switch (peer->server->end) {
	case BAD_CLOSE:
	case BAD_RESET:
		peer_close(peer);
		return;
	case BAD_KEEP:
		peer->is_answering = 0;
		peer->sent = 0;
		break;
	default:
		break;
	}
	loop_change(peer->watched, LOOP_IN);
}

static void send_zeros(struct peer *peer)
{
	static const char zeros[64 << 10];

	if (send(peer->fd, zeros, sizeof(zeros), MSG_NOSIGNAL | MSG_DONTWAIT) <
		    0 &&
	    errno != EAGAIN)
		peer_close(peer);
}

static void answer(struct peer *peer)
{
	const struct bad_server *server = peer->server;
	ssize_t n;

	while (peer->sent < server->size) {
		n = send(peer->fd, server->bytes + peer->sent,
			 server->size - peer->sent,
			 MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {
			peer_close(peer);
			return;
		}
		peer->sent += (size_t)n;
	}
	if (server->end == BAD_ENDLESS)
		send_zeros(peer);
	else
		end(peer);
}

static void begin_answer(struct peer *peer)
{
	peer->is_answering = 1;
	if (peer->server->end == BAD_DRIP)
		peer->drip =
			loop_after(peer->server->loop, DRIP_MS, on_drip, peer);
	else
		loop_change(peer->watched, LOOP_IN | LOOP_OUT);
}

static void on_peer(void *arg, int fd, int events)
{
	struct peer *peer = arg;
	struct bad_server *server = peer->server;
	ssize_t n;

	if (events & LOOP_IN) {
		if (server->n_asked > ASKED_BYTES / 2)
			server->n_asked = 0;
		n = recv(fd, server->asked + server->n_asked,
			 ASKED_BYTES - 1 - server->n_asked, MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN)) {
			peer_close(peer);
			return;
		}
		server->n_asked += n > 0 ? (size_t)n : 0;
		server->asked[server->n_asked] = '\0';
		if (n > 0 && !peer->is_answering)
			begin_answer(peer);
	}
	if ((events & LOOP_OUT) && peer->is_answering)
		answer(peer);
}

static void on_connection(void *arg, int fd, int events)
{
	struct bad_server *server = arg;
	struct peer *peer = calloc(1, sizeof(*peer));

	assert_non_null(peer);
	peer->server = server;
	peer->fd = accept(fd, NULL, NULL);
	assert_true(peer->fd >= 0);
	ki_list_append(&server->peers, &peer->node);
	peer->watched =
		loop_watch(server->loop, peer->fd, LOOP_IN, on_peer, peer);
	assert_non_null(peer->watched);
	server->n_connections++;
}

struct bad_server *bad_server_new(struct loop *loop, const char *bytes,
				  size_t size, enum bad_end end)
{
	struct sockaddr_in name = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t name_size = sizeof(name);
	struct bad_server *server = calloc(1, sizeof(*server));

	assert_non_null(server);
	server->loop = loop;
	ki_list_init(&server->peers);
	server->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(server->fd >= 0);
	assert_int_equal(bind(server->fd, (struct sockaddr *)&name, name_size),
			 0);
	assert_int_equal(listen(server->fd, 16), 0);
	assert_int_equal(
		getsockname(server->fd, (struct sockaddr *)&name, &name_size),
		0);
	server->port = ntohs(name.sin_port);
	server->watched =
		loop_watch(loop, server->fd, LOOP_IN, on_connection, server);
	bad_server_say(server, bytes, size, end);
	return server;
}

void bad_server_free(struct bad_server *server)
{
	while (!ki_list_is_empty(&server->peers))
		peer_close(ki_container(server->peers.next, struct peer, node));
	loop_unwatch(server->watched);
	(void)close(server->fd);
	free(server);
}

void bad_server_say(struct bad_server *server, const char *bytes, size_t size,
		    enum bad_end end)
{
	server->bytes = bytes;
	server->size = size;
	server->end = end;
}

unsigned bad_server_port(const struct bad_server *server)
{
	return server->port;
}

const char *bad_server_asked(const struct bad_server *server)
{
	return server->asked;
}

unsigned bad_server_n_connections(const struct bad_server *server)
{
	return server->n_connections;
}
