/* SPDX-License-Identifier: MIT */

/*
 *	closed -> resolving -> connecting -> greeting -> open
 *	  ^           |            |            |         |
 *	  `--------- failing: whoever waits is told ------'
 *
 * hiredis takes the answers apart.  Its connections aren't used: they resolve
 * names while everybody waits, and copy what is sent, which may be 1 GiB.
 *
 * Memory     hiredis is given an answer once it is whole, and before that the
 *            announced size is looked at: a body beyond what its request allows
 *            is read past without being kept.  One beyond SKIP_MAX is not: that
 *            would hold up who waits behind it for longer than a new connection
 *            does, and may have no end.  The connection is left, and the next is
 *            asked all that was behind it once more, or, of a lease, which may be
 *            taken already, `again`.  What has been asked AT_ONCE_MAX times is
 *            asked alone: were all behind it always asked with it, a server would
 *            send as many as there are for each that is far too large.  Arrays,
 *            of which there are none for us, and lines without an end are no
 *            Redis, and end it for all.
 * Time       A request whose time is over is answered.  If it had not been sent it
 *            is forgotten; else its answer is awaited and thrown away, unless the
 *            server sent nothing at all in its time, or a part of it is still to
 *            be sent: that ends the connection.
 * Database   Nothing is sent before AUTH and SELECT have been answered: a SET must
 *            not end up in another database than the one that was meant.
 */

#include "remote-helper/redis/link.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "resolve.h"

#define BUFFER_BYTES	  ((size_t)128 << 10)
#define READS_OF_A_TURN	  8
#define SKIP_MAX	  ((uint64_t)64 << 20)
#define AT_ONCE_MAX	  2
#define LINE_BYTES_MAX	  ((size_t)64 << 10)
#define READER_BYTES_KEPT ((size_t)512 << 10)
#define SIZE_BYTES_MAX	  24 /* of "$SIZE\r\n" */
#define ATTEMPT_MS	  300
#define IOVECS		  64
#define NS_OF_MS	  1000000u

enum state { CLOSED, RESOLVING, CONNECTING, GREETING, OPEN, FAILING };

struct link {
	struct loop *loop;
	const struct url *url;
	const struct greeting *greeting;
	struct resolver *resolver; /* of a host by name */

	enum state state;
	int is_closing;
	int fd; /* -1: none */
	int is_broken;
	struct loop_fd *watched;
	struct address addresses[ADDRESSES_MAX];
	size_t n_addresses, next_address;
	struct loop_timer *attempt; /* on to the next address */
	struct loop_soon failure;   /* FAILING: why, and when to tell */
	enum kiln_status why_status;
	const char *why;

	struct ki_list requests;
	struct ki_list
		*unsent;   /* the first that is not all sent, or &requests */
	size_t sent_bytes; /* of that one */
	struct loop_timer *timer;
	uint64_t timer_ns;	   /* when it is due */
	struct loop_soon no_timer; /* for want of memory */

	redisReader *reader;
	uint64_t skip_bytes; /* of a body that nobody wants */
	uint64_t received_ns;
	char buffer[BUFFER_BYTES];
};

static const char not_redis[] = "what answers there is not Redis";

static void begin(struct link *link);
static void link_connect_next(struct link *link);

static struct request *request_of(struct ki_list *node)
{
	return ki_container(node, struct request, node);
}

static struct request *first_request(const struct link *link)
{
	return ki_list_is_empty(&link->requests)
		       ? NULL
		       : request_of(link->requests.next);
}

/* ---- Answering ---------------------------------------------------------- */

static void answer(const struct request *request, struct outcome *outcome)
{
	if (request->done)
		request->done(request->arg, outcome);
	else
		free(outcome->body);
}

static void forget(struct link *link, struct request *request)
{
	if (link->unsent == &request->node) {
		link->unsent = request->node.next;
		link->sent_bytes = 0;
	}
	ki_list_remove(&request->node);
}

static void disconnect(struct link *link)
{
	loop_unwatch(link->watched);
	link->watched = NULL;
	if (link->fd >= 0)
		(void)close(link->fd);
	link->fd = -1;
	loop_cancel(link->attempt);
	link->attempt = NULL;
	loop_soon_cancel(&link->failure);
	if (link->resolver)
		resolver_forget(link->resolver);
	if (link->reader)
		redisReaderFree(link->reader);
	link->reader = NULL;
	link->skip_bytes = 0;
	link->is_broken = 0;
	link->state = CLOSED;
}

/* Those of a list, which are no link's any more. */
static void tell_all(struct ki_list *told, enum kiln_status status,
		     const char *why)
{
	struct outcome outcome = { .status = status, .why = why };
	struct request *request;

	while (!ki_list_is_empty(told)) {
		request = request_of(told->next);
		ki_list_remove(&request->node);
		answer(request, &outcome);
		free(request);
	}
}

static void move(struct ki_list *node, struct ki_list *to)
{
	ki_list_remove(node);
	ki_list_append(to, node);
}

/* Everybody is told the same.  Who asks again meanwhile connects anew. */
static void fail(struct link *link, enum kiln_status status, const char *why)
{
	struct ki_list told;

	disconnect(link);
	ki_list_init(&told);
	while (!ki_list_is_empty(&link->requests))
		move(link->requests.next, &told);
	link->unsent = &link->requests;
	link->sent_bytes = 0;
	tell_all(&told, status, why);
}

static void on_failure(void *arg)
{
	struct link *link = arg;

	fail(link, link->why_status, link->why);
}

/* The same, but not before whoever asks now has returned. */
static void fail_later(struct link *link, enum kiln_status status,
		       const char *why)
{
	disconnect(link);
	link->state = FAILING;
	link->why_status = status;
	link->why = why;
	loop_soon(link->loop, &link->failure);
}

static void ask_again(struct request *request)
{
	request->n_asked++;
	request->begun_ns = 0;
	if (!request->again.iov_len)
		return;
	request->question = request->question_again;
	request->pieces[0] = request->again;
}

/* The same, but for who is to be answered: another connection is asked in the
   time that is left. */
static void start_over(struct link *link)
{
	struct ki_list *node, *after;

	disconnect(link);
	ki_list_for_each_safe (node, after, &link->requests) {
		struct request *request = request_of(node);

		if (!request->done) {
			ki_list_remove(node);
			free(request);
		} else if (request->begun_ns) {
			ask_again(request);
		}
	}
	link->unsent = link->requests.next;
	link->sent_bytes = 0;
	if (!ki_list_is_empty(&link->requests))
		begin(link);
}

/* ---- Sending ------------------------------------------------------------ */

/* Whether nothing else may be under way: what was before it on other
   connections was far too large, and it may be, too. */
static int is_asked_alone(const struct request *request)
{
	return request->question == QUESTION_GET &&
	       request->n_asked >= AT_ONCE_MAX;
}

static int must_wait(const struct link *link, const struct request *request)
{
	const struct request *first = first_request(link);

	if (link->state == GREETING && request->question != QUESTION_GREETING)
		return 1;
	return request != first &&
	       (is_asked_alone(first) || is_asked_alone(request));
}

/* What of the requests goes out next. */
static size_t gather(struct link *link, struct iovec iovecs[IOVECS])
{
	size_t n = 0, skip = link->sent_bytes;
	struct ki_list *node = link->unsent;

	for (; node != &link->requests; node = node->next) {
		const struct request *request = request_of(node);

		if (must_wait(link, request))
			break;
		for (size_t i = 0; i < request->n_pieces; i++) {
			const struct iovec *piece = &request->pieces[i];

			if (n == IOVECS)
				return n;
			if (skip >= piece->iov_len) {
				skip -= piece->iov_len;
				continue;
			}
			iovecs[n].iov_base = (char *)piece->iov_base + skip;
			iovecs[n++].iov_len = piece->iov_len - skip;
			skip = 0;
		}
	}
	return n;
}

static size_t request_bytes(const struct request *request)
{
	size_t i, bytes = 0;

	for (i = 0; i < request->n_pieces; i++)
		bytes += request->pieces[i].iov_len;
	return bytes;
}

static void advance(struct link *link, size_t bytes)
{
	link->sent_bytes += bytes;
	while (link->unsent != &link->requests && link->sent_bytes) {
		struct request *request = request_of(link->unsent);
		size_t all = request_bytes(request);

		if (!request->begun_ns)
			request->begun_ns = loop_now_ns(link->loop);
		if (link->sent_bytes < all)
			return;
		link->sent_bytes -= all;
		link->unsent = link->unsent->next;
	}
}

/* An error is left to the next turn: whoever asks is never called back. */
static void send_some(struct link *link)
{
	struct iovec iovecs[IOVECS];
	struct msghdr message = { .msg_iov = iovecs };
	ssize_t n;

	while ((message.msg_iovlen = gather(link, iovecs))) {
		n = sendmsg(link->fd, &message, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			link->is_broken = errno != EAGAIN;
			loop_change(link->watched, LOOP_IN | LOOP_OUT);
			return;
		}
		advance(link, (size_t)n);
	}
	loop_change(link->watched, LOOP_IN);
}

/* ---- Greeting ----------------------------------------------------------- */

/* Its requests are before all that wait. */
static int add_greeting(struct link *link)
{
	struct ki_list *first = link->requests.next;

	for (size_t i = 0; i < link->greeting->n_commands; i++) {
		struct request *request = calloc(1, sizeof(*request));

		if (!request)
			return -ENOMEM;
		request->question = QUESTION_GREETING;
		request->deadline_ns = UINT64_MAX;
		request->pieces[0] = link->greeting->commands[i];
		request->n_pieces = 1;
		ki_list_append(first, &request->node);
	}
	link->unsent = link->requests.next;
	link->sent_bytes = 0;
	return 0;
}

static void connected(struct link *link)
{
	const int one = 1;

	loop_cancel(link->attempt);
	link->attempt = NULL;
	if (link->url->scheme == URL_REDIS)
		(void)setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &one,
				 sizeof(one));
	link->reader = redisReaderCreate();
	if (!link->reader || add_greeting(link)) {
		fail(link, KILN_E_NO_MEMORY, "no memory");
		return;
	}
	link->reader->maxbuf = READER_BYTES_KEPT;
	link->state = link->greeting->n_commands ? GREETING : OPEN;
	send_some(link);
}

static void greeted(struct link *link)
{
	const struct request *first = first_request(link);

	if (first && first->question == QUESTION_GREETING)
		return;
	link->state = OPEN;
	send_some(link);
}

/* ---- Receiving ---------------------------------------------------------- */

/* What is to be done with what has come of an answer. */
enum look { LOOK_WHOLE, LOOK_WAIT, LOOK_SKIP, LOOK_HUGE, LOOK_BAD };

static enum look look_at_line(const char *text, size_t size)
{
	if (memchr(text, '\n', size < LINE_BYTES_MAX ? size : LINE_BYTES_MAX))
		return LOOK_WHOLE;
	return size < LINE_BYTES_MAX ? LOOK_WAIT : LOOK_BAD;
}

/* "$SIZE\r\n": its bytes, 0 if it is not all there, -1 if it is none. */
static int parse_size(const char *text, size_t size, uint64_t *out_size)
{
	size_t i;

	*out_size = 0;
	for (i = 1; i < size && i < SIZE_BYTES_MAX; i++) {
		if (text[i] == '\r')
			return i + 1 < size ? (int)i + 2 : 0;
		if (text[i] < '0' || text[i] > '9')
			return -1;
		*out_size = *out_size * 10 + (uint64_t)(text[i] - '0');
	}
	return i == SIZE_BYTES_MAX ? -1 : 0;
}

static enum look look_at_body(const struct request *request, const char *text,
			      size_t size, uint64_t *out_bytes)
{
	uint64_t body;
	int header;

	if (size >= 2 && text[1] == '-') /* nil */
		return look_at_line(text, size);
	if (request->question != QUESTION_GET)
		return LOOK_BAD;
	header = parse_size(text, size, &body);
	if (header <= 0)
		return header ? LOOK_BAD : LOOK_WAIT;
	*out_bytes = (uint64_t)header + body + 2;
	if (body <= request->body_max)
		return size < *out_bytes ? LOOK_WAIT : LOOK_WHOLE;
	return body <= SKIP_MAX ? LOOK_SKIP : LOOK_HUGE;
}

static enum look look(const struct link *link, uint64_t *out_bytes)
{
	const struct request *request = first_request(link);
	const char *text = link->reader->buf + link->reader->pos;
	size_t size = link->reader->len - link->reader->pos;

	if (size == 0)
		return LOOK_WAIT;
	if (!request || !request->begun_ns)
		return LOOK_BAD;
	switch (*text) {
	case '$':
		return look_at_body(request, text, size, out_bytes);
	case '+':
	case '-':
	case ':':
		return look_at_line(text, size);
	default:
		return LOOK_BAD;
	}
}

/* The reader forgets the first `bytes` of what it has and will get. */
static int skip(struct link *link, uint64_t bytes)
{
	redisReader *old = link->reader, *reader = redisReaderCreate();
	size_t size = old->len - old->pos;
	int result = reader ? REDIS_OK : REDIS_ERR;

	if (!reader)
		return result;
	reader->maxbuf = READER_BYTES_KEPT;
	if (size > bytes)
		result = redisReaderFeed(reader, old->buf + old->pos + bytes,
					 size - (size_t)bytes);
	else
		link->skip_bytes = bytes - size;
	link->reader = reader;
	redisReaderFree(old);
	return result;
}

static void answer_first(struct link *link, struct outcome *outcome)
{
	struct request *request = first_request(link);

	forget(link, request);
	answer(request, outcome);
	free(request);
}

/* 0, or -1: the connection has ended. */
static int skip_first(struct link *link, enum look looked, uint64_t bytes)
{
	struct outcome outcome = { .status = KILN_E_TOO_LARGE,
				   .why = "larger than max-item" };

	if (looked == LOOK_SKIP && skip(link, bytes) != REDIS_OK) {
		fail(link, KILN_E_NO_MEMORY, "no memory");
		return -1;
	}
	link->is_broken |= looked == LOOK_HUGE; /* nothing is sent any more */
	answer_first(link, &outcome);
	if (looked == LOOK_SKIP)
		return 0;
	start_over(link);
	return -1;
}

static int is_alone(const struct link *link, const struct request *request)
{
	return request->node.next == &link->requests;
}

/* Whether this answer to the first is the last of the connection. */
static int ends_with(const struct link *link, const redisReply *reply)
{
	const struct request *first = first_request(link);
	enum reply_end end = reply_ends_link(reply);

	if (link->unsent == &first->node) /* not all was sent */
		return 1;
	return end == REPLY_ENDS ||
	       (end == REPLY_ENDS_IDLE && is_alone(link, first));
}

/* 0, or -1: the connection has ended. */
static int take_reply(struct link *link, redisReply *reply)
{
	struct request *request = first_request(link);
	enum question question = request->question;
	int is_last = ends_with(link, reply);
	struct outcome outcome = reply_outcome(question, reply);

	/* Nor may anything be sent in the middle of what was not all sent. */
	link->is_broken |= is_last;
	freeReplyObject(reply);
	if (question == QUESTION_GREETING && outcome.status) {
		fail(link, outcome.status, outcome.why);
		return -1;
	}
	answer_first(link, &outcome);
	if (is_last) {
		fail(link, KILN_E_IO,
		     outcome.why ? outcome.why : "the server is not in step");
		return -1;
	}
	if (question == QUESTION_GREETING)
		greeted(link);
	return 0;
}

/* 0, or -1: the connection has ended. */
static int take_whole(struct link *link)
{
	void *reply = NULL;

	if (redisReaderGetReply(link->reader, &reply) != REDIS_OK || !reply) {
		fail(link, KILN_E_FORMAT, not_redis);
		return -1;
	}
	return take_reply(link, reply);
}

/* All that is whole.  0, or -1: the connection has ended. */
static int take_replies(struct link *link)
{
	enum look looked;
	uint64_t bytes;
	int result = 0;

	while (!result && (looked = look(link, &bytes)) != LOOK_WAIT) {
		switch (looked) {
		case LOOK_WAIT:
		case LOOK_WHOLE:
			result = take_whole(link);
			break;
		case LOOK_SKIP:
		case LOOK_HUGE:
			result = skip_first(link, looked, bytes);
			break;
		case LOOK_BAD:
			fail(link, KILN_E_FORMAT, not_redis);
			result = -1;
			break;
		}
	}
	return result;
}

static int consume(struct link *link, const char *bytes, size_t size)
{
	size_t skipped =
		link->skip_bytes < size ? (size_t)link->skip_bytes : size;

	link->received_ns = loop_now_ns(link->loop);
	link->skip_bytes -= skipped;
	if (skipped == size)
		return 0;
	if (redisReaderFeed(link->reader, bytes + skipped, size - skipped) !=
	    REDIS_OK) {
		fail(link, KILN_E_NO_MEMORY, "no memory");
		return -1;
	}
	return take_replies(link);
}

/* 0, or -1: the connection has ended. */
static int receive(struct link *link)
{
	ssize_t n;

	for (int i = 0; i < READS_OF_A_TURN; i++) {
		n = recv(link->fd, link->buffer, sizeof(link->buffer), 0);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return 0;
		if (n <= 0) {
			fail(link, KILN_E_IO, "the server hung up");
			return -1;
		}
		if (consume(link, link->buffer, (size_t)n))
			return -1;
		if ((size_t)n < sizeof(link->buffer))
			return 0;
	}
	return 0;
}

/* ---- Connecting --------------------------------------------------------- */

static const char *why_not_connected(int error)
{
	switch (error) {
	case ECONNREFUSED:
		return "nobody listens there";
	case ENOENT:
		return "there is no such socket";
	case EACCES:
	case EPERM:
		return "this user may not connect to it";
	case EHOSTUNREACH:
	case ENETUNREACH:
		return "there is no way to that host";
	case EMFILE:
	case ENFILE:
		return "too many files are open here";
	default:
		return "no connection";
	}
}

static void on_event(void *arg, int fd, int events)
{
	struct link *link = arg;
	int error = 0;
	socklen_t size = sizeof(error);

	if (link->state == CONNECTING) {
		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size))
			error = errno;
		link->why = why_not_connected(error);
		if (error)
			link_connect_next(link);
		else
			connected(link);
		return;
	}
	if (link->is_broken) {
		fail(link, KILN_E_IO, "the connection broke");
		return;
	}
	if ((events & LOOP_IN) && receive(link))
		return;
	if ((events & LOOP_OUT) || link->unsent != &link->requests)
		send_some(link);
}

static void on_attempt(void *arg)
{
	struct link *link = arg;

	link->attempt = NULL;
	link->why = "the host does not answer";
	link_connect_next(link);
}

/* 0: it is on its way. */
static int connect_to(struct link *link, const struct address *address)
{
	int fd = socket(address->bytes.ss_family,
			SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)&address->bytes,
		    address->size) &&
	    errno != EINPROGRESS) {
		int error = errno;

		(void)close(fd);
		return -error;
	}
	link->watched = loop_watch(link->loop, fd, LOOP_OUT, on_event, link);
	if (!link->watched) {
		(void)close(fd);
		return -ENOMEM;
	}
	link->fd = fd;
	link->state = CONNECTING;
	return 0;
}

/* The next address that can be tried; if there is none, why the last could
   not be reached. */
static void link_connect_next(struct link *link)
{
	const char *why = link->why;
	int error = -1;

	disconnect(link);
	while (link->next_address < link->n_addresses && error) {
		error = connect_to(link, &link->addresses[link->next_address]);
		link->next_address++;
		if (error)
			why = why_not_connected(-error);
	}
	if (error)
		fail_later(link, KILN_E_IO, why);
	else if (link->next_address < link->n_addresses)
		link->attempt =
			loop_after(link->loop, ATTEMPT_MS, on_attempt, link);
}

static void on_resolved(void *arg, enum kiln_status status,
			const struct address *addresses, size_t n_addresses)
{
	struct link *link = arg;

	if (status) {
		fail(link, KILN_E_IO, "the host's name is not known");
		return;
	}
	memcpy(link->addresses, addresses, n_addresses * sizeof(*addresses));
	link->n_addresses = n_addresses;
	link->next_address = 0;
	link_connect_next(link);
}

static void unix_address(const char *path, struct address *out_address)
{
	struct sockaddr_un *name = (struct sockaddr_un *)&out_address->bytes;

	memset(name, 0, sizeof(*name));
	name->sun_family = AF_UNIX;
	memcpy(name->sun_path, path, strlen(path) + 1);
	out_address->size = sizeof(*name);
}

static void begin(struct link *link)
{
	link->next_address = 0;
	link->n_addresses = 1;
	if (link->url->scheme == URL_UNIX) {
		unix_address(link->url->path, &link->addresses[0]);
		link_connect_next(link);
	} else if (!link->resolver) {
		(void)address_parse(link->url->host, link->url->port,
				    &link->addresses[0]);
		link_connect_next(link);
	} else if (resolver_begin(link->resolver, on_resolved, link)) {
		fail_later(link, KILN_E_NO_MEMORY, "no memory");
	} else {
		link->state = RESOLVING;
	}
}

/* ---- Time --------------------------------------------------------------- */

/* Whether a server that has let the time of this one pass is to be left. */
static int is_stuck(const struct link *link, const struct request *request,
		    uint64_t now_ns)
{
	if (link->unsent == &request->node)
		return 1;
	if (link->received_ns <= request->begun_ns)
		return 1;
	return now_ns > request->deadline_ns + request->timeout_ns;
}

/* Of all whose time is over; 1: the connection is of no use. */
static int answer_late(struct link *link, uint64_t now_ns)
{
	struct outcome outcome = { .status = KILN_E_TIMEOUT,
				   .why = "no answer in time" };
	struct ki_list *node, *after;
	int stuck = 0;

	ki_list_for_each_safe (node, after, &link->requests) {
		struct request *request = request_of(node);

		if (request->deadline_ns > now_ns)
			continue;
		if (request->begun_ns) {
			stuck |= is_stuck(link, request, now_ns);
			/* Whoever asks meanwhile must not send the rest: it
			   belongs to who is told now. */
			link->is_broken |= link->unsent == &request->node;
			answer(request, &outcome);
			request->done = NULL;
			continue;
		}
		forget(link, request);
		answer(request, &outcome);
		free(request);
	}
	return stuck;
}

static uint64_t next_deadline_ns(const struct link *link)
{
	const struct ki_list *node;
	uint64_t next_ns = UINT64_MAX;

	ki_list_for_each (node, &link->requests) {
		const struct request *request =
			request_of((struct ki_list *)node);
		uint64_t deadline_ns = request->deadline_ns;

		if (!request->done && deadline_ns != UINT64_MAX)
			deadline_ns += request->timeout_ns + 1;
		if (deadline_ns < next_ns)
			next_ns = deadline_ns;
	}
	return next_ns;
}

static void on_timer(void *arg);

static void arm(struct link *link, uint64_t due_ns)
{
	uint64_t now_ns = loop_now_ns(link->loop), wait_ns;
	uint32_t ms;

	if (due_ns == UINT64_MAX || (link->timer && link->timer_ns <= due_ns))
		return;
	wait_ns = due_ns > now_ns ? due_ns - now_ns : 0;
	ms = (uint32_t)(wait_ns / NS_OF_MS) + 1;
	link->timer_ns = due_ns;
	if (link->timer)
		loop_move(link->timer, ms);
	else
		link->timer = loop_after(link->loop, ms, on_timer, link);
	if (!link->timer)
		loop_soon(link->loop, &link->no_timer);
}

/* Nobody waits without an end, or, if there is a timer now, for that of who asked
   later. */
static void on_no_timer(void *arg)
{
	struct link *link = arg;

	if (link->timer)
		arm(link, next_deadline_ns(link));
	else
		fail(link, KILN_E_NO_MEMORY, "no memory");
}

static int has_waiting(const struct link *link)
{
	const struct ki_list *node;

	ki_list_for_each (node, &link->requests)
		if (request_of((struct ki_list *)node)->done)
			return 1;
	return 0;
}

static void on_timer(void *arg)
{
	struct link *link = arg;

	link->timer = NULL;
	if (answer_late(link, loop_now_ns(link->loop)))
		fail(link, KILN_E_TIMEOUT, "the server does not answer");
	else if (link->state != OPEN && link->state != CLOSED &&
		 link->state != FAILING && !has_waiting(link))
		fail(link, KILN_E_TIMEOUT, "the server does not answer");
	arm(link, next_deadline_ns(link));
}

/* ---- Outside ------------------------------------------------------------ */

void link_ask(struct link *link, struct request *request, uint32_t timeout_ms)
{
	assert(!link->is_closing);
	request->timeout_ns = (uint64_t)timeout_ms * NS_OF_MS;
	request->deadline_ns = loop_now_ns(link->loop) + request->timeout_ns;
	request->begun_ns = 0;
	ki_list_append(&link->requests, &request->node);
	if (link->unsent == &link->requests)
		link->unsent = &request->node;
	arm(link, request->deadline_ns);
}

void link_flush(struct link *link)
{
	if (link->state == CLOSED)
		begin(link);
	else if (link->state == OPEN && !link->is_broken)
		send_some(link);
}

struct link *link_new(struct loop *loop, const struct url *url,
		      const struct greeting *greeting)
{
	struct link *link = calloc(1, sizeof(*link));
	struct address address;

	if (!link)
		return NULL;
	link->loop = loop;
	link->url = url;
	link->greeting = greeting;
	link->fd = -1;
	ki_list_init(&link->requests);
	loop_soon_init(&link->failure, on_failure, link);
	loop_soon_init(&link->no_timer, on_no_timer, link);
	link->unsent = &link->requests;
	if (url->scheme != URL_REDIS ||
	    address_parse(url->host, url->port, &address))
		return link;
	link->resolver = resolver_new(loop, url->host, url->port);
	if (link->resolver)
		return link;
	free(link);
	return NULL;
}

void link_close(struct link *link)
{
	if (!link)
		return;
	link->is_closing = 1;
	fail(link, KILN_E_IO, "closed here");
	loop_cancel(link->timer);
	loop_soon_cancel(&link->no_timer);
	resolver_free(link->resolver);
	free(link);
}
