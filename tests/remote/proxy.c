/* SPDX-License-Identifier: MIT */

/*
 * One process, one loop.  Its owner speaks to it through a socket of packets: a
 * script, which is answered when it holds, or a question for the counts.
 *
 *	link	a client's connection and the one to the server for it
 *	flow	bytes on their way in one direction, each chunk with the time at
 *		which it may go on
 */

#include "proxy.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LINKS_MAX  256
#define READ_BYTES 65536
#define SLOW_BYTES 1024 /* of a chunk where there is a rate */
#define AWAIT_MS   60000

struct proxy {
	pid_t pid;
	int control;
	uint16_t port;
};

struct address {
	union {
		struct sockaddr any;
		struct sockaddr_in in;
		struct sockaddr_un un;
	} as;
	socklen_t size;
};

struct chunk {
	struct chunk *next;
	uint64_t due_ns;
	size_t size, done;
	uint8_t bytes[];
};

struct flow {
	struct chunk *first, **last;
	uint64_t last_due_ns;
};

struct link {
	int client, server;
	struct flow to_server, to_client;
	uint8_t *request; /* as much of one as there is */
	size_t request_size;
	/* What the answer on its way is to suffer. */
	enum proxy_fault fault;
	uint64_t after;
	int is_endless;
	int is_ending;	    /* when all has gone to the client */
	int is_deaf;	    /* what the server says goes nowhere */
	int is_server_gone; /* it has hung up */
};

static struct proxy_script script;
static struct proxy_counts counts;
static unsigned times_left;
static struct proxy_counts awaited;
static int is_awaited; /* the owner waits for that */
static struct address server_address;
static struct link links[LINKS_MAX];
static size_t n_links;
static int listener = -1;

static void fail(const char *what) __attribute__((noreturn));

static void fail(const char *what)
{
	perror(what);
	abort();
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- Flows ----------------------------------------------------------------- */

static void flow_add(struct flow *flow, const void *bytes, size_t size,
		     uint32_t delay_us, uint64_t bytes_s)
{
	const uint8_t *from = bytes;

	while (size) {
		const size_t n =
			bytes_s && size > SLOW_BYTES ? SLOW_BYTES : size;
		struct chunk *chunk = malloc(sizeof(*chunk) + n);

		if (!chunk)
			fail("proxy: malloc");
		chunk->next = NULL;
		chunk->size = n;
		chunk->done = 0;
		chunk->due_ns = now_ns() + (uint64_t)delay_us * 1000;
		if (chunk->due_ns < flow->last_due_ns)
			chunk->due_ns = flow->last_due_ns;
		if (bytes_s)
			chunk->due_ns += n * 1000000000u / bytes_s;
		flow->last_due_ns = chunk->due_ns;
		memcpy(chunk->bytes, from, n);
		*flow->last = chunk;
		flow->last = &chunk->next;
		from += n;
		size -= n;
	}
}

static void flow_empty(struct flow *flow)
{
	struct chunk *chunk;

	while ((chunk = flow->first)) {
		flow->first = chunk->next;
		free(chunk);
	}
	flow->last = &flow->first;
}

/* What may go, as far as it goes.  -1: nobody reads it. */
static int flow_push(struct flow *flow, int fd)
{
	struct chunk *chunk;

	while ((chunk = flow->first) && chunk->due_ns <= now_ns()) {
		ssize_t n = send(fd, chunk->bytes + chunk->done,
				 chunk->size - chunk->done,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -1;
		chunk->done += (size_t)n;
		if (chunk->done < chunk->size)
			return 0;
		flow->first = chunk->next;
		if (!flow->first)
			flow->last = &flow->first;
		free(chunk);
	}
	return 0;
}

/* ---- Links ----------------------------------------------------------------- */

static int connect_to_server(void)
{
	int fd = socket(server_address.as.any.sa_family,
			SOCK_STREAM | SOCK_CLOEXEC, 0),
	    on = 1;

	if (fd < 0)
		fail("proxy: socket");
	if (connect(fd, &server_address.as.any, server_address.size)) {
		close(fd);
		return -1;
	}
	if (server_address.as.any.sa_family == AF_INET)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

static void accept_client(void)
{
	struct link *link = &links[n_links];
	int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC), on = 1;

	if (client < 0)
		return;
	*link = (struct link){ .client = client };
	link->server = n_links < LINKS_MAX - 1 ? connect_to_server() : -1;
	if (link->server < 0) {
		close(client);
		return;
	}
	setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	link->to_server.last = &link->to_server.first;
	link->to_client.last = &link->to_client.first;
	counts.n_connections++;
	n_links++;
}

static void drop_link(size_t i, int by_reset)
{
	struct link *link = &links[i];
	struct linger now = { .l_onoff = 1 };

	if (by_reset)
		setsockopt(link->client, SOL_SOCKET, SO_LINGER, &now,
			   sizeof(now));
	close(link->client);
	close(link->server);
	flow_empty(&link->to_server);
	flow_empty(&link->to_client);
	free(link->request);
	*link = links[--n_links];
	/* The last pointers of what was moved point into where it was. */
	if (i == n_links)
		return;
	if (!link->to_server.first)
		link->to_server.last = &link->to_server.first;
	if (!link->to_client.first)
		link->to_client.last = &link->to_client.first;
}

/* ---- Requests -------------------------------------------------------------- */

/* How long the first request is, 0 as long as its end is not there. */
static size_t http_size(const uint8_t *bytes, size_t size)
{
	static const char length[] = "content-length:";
	const uint8_t *end = memmem(bytes, size, "\r\n\r\n", 4);
	size_t head, body = 0;

	if (!end)
		return 0;
	head = (size_t)(end - bytes) + 4;
	for (size_t i = 0; i + sizeof(length) < head; i++)
		if (!strncasecmp((const char *)bytes + i, length,
				 sizeof(length) - 1))
			body = strtoul((const char *)bytes + i +
					       sizeof(length) - 1,
				       NULL, 10);
	return size >= head + body ? head + body : 0;
}

/* "*3\r\n$3\r\nSET\r\n..." */
static size_t redis_size(const uint8_t *bytes, size_t size)
{
	size_t at = 0, n_words = 1;

	for (size_t i = 0; i <= n_words; i++) {
		const uint8_t *end = memchr(bytes + at, '\n', size - at);
		size_t number;

		if (!end)
			return 0;
		number = strtoul((const char *)bytes + at + 1, NULL, 10);
		at = (size_t)(end - bytes) + 1;
		if (!i)
			n_words = number;
		else
			at += number + 2;
		if (at > size)
			return 0;
	}
	return at;
}

/* Whether the verb is the script's. */
static int is_meant(const uint8_t *bytes, size_t size)
{
	char word[sizeof(script.verb) + 8];

	if (!*script.verb)
		return 1;
	if (*bytes == '*') {
		int n = snprintf(word, sizeof(word), "\n%s\r", script.verb);

		return memmem(bytes, size < 64 ? size : 64, word, (size_t)n) !=
		       NULL;
	}
	snprintf(word, sizeof(word), "%s ", script.verb);
	return size >= strlen(word) && !memcmp(bytes, word, strlen(word));
}

static void rename_all(uint8_t *bytes, size_t size)
{
	uint8_t *at;

	while ((at = memmem(bytes, size, script.from, PROXY_NAME)))
		memcpy(at, script.to, PROXY_NAME);
}

static void take_request(struct link *link, uint8_t *bytes, size_t size)
{
	enum proxy_fault fault = PROXY_PASS;
	const int is_one = is_meant(bytes, size);

	counts.n_requests++;
	counts.n_meant += (uint64_t)is_one;
	if (script.fault != PROXY_PASS && is_one &&
	    (!script.times || times_left)) {
		fault = script.fault;
		counts.n_faults++;
		times_left -= times_left > 0;
	}
	if (fault == PROXY_RENAME)
		rename_all(bytes, size);
	if (fault == PROXY_ANSWER || fault == PROXY_ENDLESS) {
		flow_add(&link->to_client, script.answer, strlen(script.answer),
			 script.to_server_us + script.to_client_us, 0);
		link->is_endless = fault == PROXY_ENDLESS;
		return;
	}
	if (fault != PROXY_PASS && fault != PROXY_RENAME) {
		link->fault = fault;
		link->after = script.after;
	}
	flow_add(&link->to_server, bytes, size, script.to_server_us, 0);
}

/* -1: the client has gone. */
static int hear_client(struct link *link)
{
	static uint8_t bytes[READ_BYTES];
	ssize_t n = recv(link->client, bytes, sizeof(bytes), MSG_DONTWAIT);
	size_t size;

	if (n <= 0)
		return n < 0 && errno == EAGAIN ? 0 : -1;
	/* One more, for who reads a number there. */
	link->request =
		realloc(link->request, link->request_size + (size_t)n + 1);
	if (!link->request)
		fail("proxy: realloc");
	memcpy(link->request + link->request_size, bytes, (size_t)n);
	link->request_size += (size_t)n;
	link->request[link->request_size] = '\0';
	while (link->request_size &&
	       (size = *link->request == '*'
			       ? redis_size(link->request, link->request_size)
			       : http_size(link->request,
					   link->request_size))) {
		take_request(link, link->request, size);
		link->request_size -= size;
		memmove(link->request, link->request + size,
			link->request_size + 1);
	}
	return 0;
}

/* ---- Answers --------------------------------------------------------------- */

static void spoil(struct link *link, uint8_t *bytes, size_t *inout_size)
{
	if (link->fault == PROXY_PASS)
		return;
	if (link->after >= *inout_size) {
		link->after -= *inout_size;
		return;
	}
	if (link->fault == PROXY_FLIP) {
		bytes[link->after] ^= 1;
	} else {
		*inout_size = (size_t)link->after;
		link->is_deaf = 1;
		link->is_ending = link->fault != PROXY_HANG;
		return;
	}
	link->fault = PROXY_PASS;
}

/* -1: the server has gone. */
static int hear_server(struct link *link)
{
	static uint8_t bytes[READ_BYTES];
	ssize_t n = recv(link->server, bytes, sizeof(bytes), MSG_DONTWAIT);
	size_t size = (size_t)n;

	if (n <= 0)
		return n < 0 && errno == EAGAIN ? 0 : -1;
	if (link->is_deaf)
		return 0;
	spoil(link, bytes, &size);
	counts.bytes_to_client += size;
	flow_add(&link->to_client, bytes, size, script.to_client_us,
		 script.bytes_s);
	return 0;
}

static void add_zeros(struct link *link)
{
	static const uint8_t zeros[READ_BYTES];

	if (!link->to_client.first)
		flow_add(&link->to_client, zeros, sizeof(zeros), 0,
			 script.bytes_s);
}

/* ---- The loop -------------------------------------------------------------- */

/* The port stays ours while nobody listens there. */
static void set_listening(void)
{
	if (script.fault != PROXY_REFUSE) {
		if (listen(listener, 128))
			fail("proxy: listen");
		return;
	}
	(void)shutdown(listener, SHUT_RDWR);
	while (n_links)
		drop_link(0, 1);
}

static int has_come(void)
{
	return counts.n_connections >= awaited.n_connections &&
	       counts.n_requests >= awaited.n_requests &&
	       counts.n_meant >= awaited.n_meant &&
	       counts.n_faults >= awaited.n_faults &&
	       counts.bytes_to_client >= awaited.bytes_to_client;
}

/* What the owner asked for is answered when it is so.  -1: the owner has gone. */
static int tell_owner(int control)
{
	if (!is_awaited || !has_come())
		return 0;
	is_awaited = 0;
	return send(control, &counts, sizeof(counts), MSG_NOSIGNAL) < 0 ? -1
									: 0;
}

static int hear_owner(int control)
{
	struct proxy_script next;
	ssize_t n = recv(control, &next, sizeof(next), 0);

	if (n <= 0)
		return -1;
	if (n == sizeof(next)) {
		script = next;
		times_left = script.times;
		set_listening();
	}
	memset(&awaited, 0, sizeof(awaited));
	if (n == sizeof(awaited))
		memcpy(&awaited, &next, sizeof(awaited));
	is_awaited = 1;
	return 0;
}

/* Whether what is first waits for its time, and otherwise for a reader. */
static int is_early(const struct flow *flow, uint64_t now)
{
	return flow->first && flow->first->due_ns > now;
}

static struct pollfd watch(int fd, const struct flow *out, uint64_t now,
			   uint64_t *inout_wake_ns)
{
	struct pollfd watched = { .fd = fd, .events = POLLIN };

	if (!is_early(out, now))
		watched.events |= out->first ? POLLOUT : 0;
	else if (out->first->due_ns < *inout_wake_ns)
		*inout_wake_ns = out->first->due_ns;
	return watched;
}

/* Whether the link is at its end. */
static int turn_link(struct link *link, short client, short server)
{
	const short heard = POLLIN | POLLHUP | POLLERR;

	if (client & heard && hear_client(link))
		return 1;
	if (server & heard && hear_server(link)) {
		link->is_server_gone = link->is_deaf = 1;
		link->is_ending = link->fault != PROXY_HANG;
	}
	if (flow_push(&link->to_client, link->client) ||
	    flow_push(&link->to_server, link->server))
		return 1;
	if (link->is_endless)
		add_zeros(link);
	return link->is_ending && !link->to_client.first;
}

static void wait_for_anything(struct pollfd *fds, int control)
{
	uint64_t wake_ns = UINT64_MAX;
	const uint64_t now = now_ns();
	struct timespec left;

	fds[0] = (struct pollfd){ .fd = control, .events = POLLIN };
	fds[1] = (struct pollfd){ .fd = script.fault == PROXY_REFUSE ? -1
								     : listener,
				  .events = POLLIN };
	for (size_t i = 0; i < n_links; i++) {
		struct link *link = &links[i];

		fds[2 + 2 * i] =
			watch(link->client, &link->to_client, now, &wake_ns);
		fds[3 + 2 * i] = watch(link->is_server_gone ? -1 : link->server,
				       &link->to_server, now, &wake_ns);
	}
	left.tv_sec = (time_t)((wake_ns - now) / 1000000000u);
	left.tv_nsec = (long)((wake_ns - now) % 1000000000u);
	if (ppoll(fds, 2 + 2 * n_links, wake_ns < UINT64_MAX ? &left : NULL,
		  NULL) < 0 &&
	    errno != EINTR)
		fail("proxy: ppoll");
}

static void serve(int control)
{
	static struct pollfd fds[2 + 2 * LINKS_MAX];

	for (;;) {
		wait_for_anything(fds, control);
		for (size_t i = n_links; i-- > 0;)
			if (turn_link(&links[i], fds[2 + 2 * i].revents,
				      fds[3 + 2 * i].revents))
				drop_link(i, links[i].fault == PROXY_RESET);
		if (fds[1].revents)
			accept_client();
		if ((fds[0].revents && hear_owner(control)) ||
		    tell_owner(control))
			_exit(0);
	}
}

/* ---- For the owner --------------------------------------------------------- */

static int bind_somewhere(struct address *inout_own)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int on = 1;

	if (fd < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(fd, &inout_own->as.any, inout_own->size) ||
	    getsockname(fd, &inout_own->as.any, &inout_own->size))
		fail("proxy: bind");
	return fd;
}

static struct proxy *open_before(const struct address *server)
{
	struct proxy *proxy = calloc(1, sizeof(*proxy));
	struct address own = { .size = sizeof(own.as.in) };
	int ends[2];

	if (!proxy ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		fail("proxy: socketpair");
	own.as.in.sin_family = AF_INET;
	own.as.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	/* A port that was chosen for us goes when we do not listen; one that we
	   have named stays. */
	close(bind_somewhere(&own));
	listener = bind_somewhere(&own);
	if (listen(listener, 128))
		fail("proxy: listen");
	proxy->port = ntohs(own.as.in.sin_port);
	proxy->pid = fork();
	if (proxy->pid < 0)
		fail("proxy: fork");
	if (!proxy->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ends[0]);
		server_address = *server;
		serve(ends[1]);
	}
	close(ends[1]);
	close(listener);
	listener = -1;
	proxy->control = ends[0];
	return proxy;
}

struct proxy *proxy_open(uint16_t server_port)
{
	struct address server = { .size = sizeof(server.as.in) };

	server.as.in.sin_family = AF_INET;
	server.as.in.sin_port = htons(server_port);
	server.as.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return open_before(&server);
}

struct proxy *proxy_open_path(const char *server_path)
{
	struct address server = { .size = sizeof(server.as.un) };

	server.as.un.sun_family = AF_UNIX;
	if (strlen(server_path) >= sizeof(server.as.un.sun_path)) {
		errno = ENAMETOOLONG;
		fail(server_path);
	}
	strcpy(server.as.un.sun_path, server_path);
	return open_before(&server);
}

void proxy_close(struct proxy *proxy)
{
	if (!proxy)
		return;
	close(proxy->control);
	kill(proxy->pid, SIGKILL);
	waitpid(proxy->pid, NULL, 0);
	free(proxy);
}

uint16_t proxy_port(const struct proxy *proxy)
{
	return proxy->port;
}

static struct proxy_counts ask(struct proxy *proxy, const void *what,
			       size_t size)
{
	struct proxy_counts answer;

	if (send(proxy->control, what, size, MSG_NOSIGNAL) < 0 ||
	    recv(proxy->control, &answer, sizeof(answer), 0) != sizeof(answer))
		fail("proxy: it has gone");
	return answer;
}

void proxy_set(struct proxy *proxy, const struct proxy_script *next)
{
	(void)ask(proxy, next, sizeof(*next));
}

struct proxy_counts proxy_counts(struct proxy *proxy)
{
	return ask(proxy, "", 1);
}

void proxy_await(struct proxy *proxy, const struct proxy_counts *at_least)
{
	struct pollfd answer = { .fd = proxy->control, .events = POLLIN };
	struct proxy_counts come;

	if (send(proxy->control, at_least, sizeof(*at_least), MSG_NOSIGNAL) < 0)
		fail("proxy: it has gone");
	if (poll(&answer, 1, AWAIT_MS) != 1) {
		errno = ETIMEDOUT;
		fail("proxy: what is waited for does not come");
	}
	if (recv(proxy->control, &come, sizeof(come), 0) != sizeof(come))
		fail("proxy: it has gone");
}
