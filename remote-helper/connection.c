/* SPDX-License-Identifier: MIT */

/*
 * Bytes to frames, and answers to bytes.
 *
 * An answer is tried to be sent at once, from where it lies: for a small one that
 * the socket takes there is no copy, no memory, and no other system call.  What
 * it does not take becomes a parcel, and goes on when there is room.
 *
 *	frames ──> handled ──> answers ──> socket
 *	             ^            │
 *	             │            v
 *	             └ held ── parcels     while these are too many
 *
 * Parcels of one item share its bytes, so that of all that waits to be read they
 * count once; of a connection each counts, for that is what has to go through it.
 * Frames that are held are looked at when the socket takes something: that
 * needs no memory, and comes when there is room.
 */

#include "connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "helper.h"
#include "item.h"
#include "loop.h"
#include "requests.h"

#define IN_BYTES_FIRST 4096
#define HEAD_BYTES_MAX (KI_FRAME_BYTES + 64)

/* What is left of an answer. */
struct parcel {
	struct ki_list link;
	struct item *item; /* or NULL: `bytes` */
	uint8_t *bytes;	   /* behind the head, owned */
	size_t bytes_size;
	size_t n_sent; /* of head and bytes */
	size_t head_size;
	uint8_t head[HEAD_BYTES_MAX];
};

static size_t left_of(const struct parcel *parcel)
{
	return parcel->head_size + parcel->bytes_size - parcel->n_sent;
}

static void free_parcel(struct parcel *parcel)
{
	item_unref(parcel->item);
	if (!parcel->item)
		free(parcel->bytes);
	free(parcel);
}

/* It waits to be read from now on. */
static void add_parcel(struct connection *connection, struct parcel *parcel)
{
	ki_list_append(&connection->parcels, &parcel->link);
	connection->out_bytes += left_of(parcel);
	if (!parcel->item || !parcel->item->n_unread++)
		connection->helper->out_bytes += parcel->bytes_size;
}

static void drop_parcel(struct connection *connection, struct parcel *parcel)
{
	ki_list_remove(&parcel->link);
	connection->out_bytes -= left_of(parcel);
	if (!parcel->item || !--parcel->item->n_unread)
		connection->helper->out_bytes -= parcel->bytes_size;
	free_parcel(parcel);
}

static void drop_parcels(struct connection *connection)
{
	while (!ki_list_is_empty(&connection->parcels))
		drop_parcel(connection, ki_container(connection->parcels.next,
						     struct parcel, link));
}

/* ---- Its life ------------------------------------------------------------ */

static void free_if_unused(struct connection *connection)
{
	if (!connection->is_closed || connection->n_busy)
		return;
	free(connection->in);
	free(connection);
}

static void close_descriptors(struct connection *connection)
{
	for (unsigned i = 0; i < connection->n_descriptors; i++)
		(void)close(connection->descriptors[i]);
	connection->n_descriptors = 0;
}

void connection_close(struct connection *connection)
{
	if (connection->is_closed)
		return;
	connection->is_closed = 1;
	loop_unwatch(connection->watched);
	loop_cancel(connection->stall);
	(void)close(connection->fd);
	close_descriptors(connection);
	drop_parcels(connection);
	requests_forget(connection);
	ki_list_remove(&connection->link);
	helper_has_lost(connection->helper);
	free_if_unused(connection);
}

/* ---- Answers ------------------------------------------------------------- */

/* Whether there is room for answers to more requests. */
static int takes_requests(const struct connection *connection)
{
	const struct helper *helper = connection->helper;

	return connection->n_pending < CONNECTION_PENDING_MAX &&
	       connection->out_bytes < CONNECTION_OUT_BYTES_MAX &&
	       (ki_list_is_empty(&connection->parcels) ||
		helper->out_bytes < helper->out_bytes_max);
}

int connection_has_room(const struct connection *connection,
			const struct item *item)
{
	const struct helper *helper = connection->helper;
	uint64_t more = item->n_unread ? 0 : item->size;

	if (ki_list_is_empty(&connection->parcels)) {
		if (item->size <= CONNECTION_OUT_FIRST)
			return 1;
	} else if (connection->out_bytes + item->size >
		   helper->out_bytes_max / CONNECTION_OUT_PART) {
		return 0;
	}
	return !helper->out_bytes ||
	       helper->out_bytes + more <= helper->out_bytes_max;
}

/* What we listen for at the moment. */
static void listen_for(struct connection *connection)
{
	int events = 0;

	if (connection->is_closed)
		return;
	if (takes_requests(connection))
		events |= connection->is_held ? LOOP_OUT : LOOP_IN;
	if (!ki_list_is_empty(&connection->parcels))
		events |= LOOP_OUT;
	loop_change(connection->watched, events ? events : LOOP_HUP);
}

/* How much of the pieces the socket took; -errno. */
static ssize_t send_pieces(int fd, struct iovec *pieces, size_t n_pieces)
{
	struct msghdr message = { .msg_iov = pieces, .msg_iovlen = n_pieces };
	ssize_t n;

	do
		n = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n >= 0)
		return n;
	return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
}

/* Whoever answers may be in the middle of a list that we are in: the loop closes
   it, since a socket that is shut down is readable. */
static void give_up(struct connection *connection)
{
	(void)shutdown(connection->fd, SHUT_RDWR);
	connection->is_given_up = 1;
	connection->n_pending = 0;
	drop_parcels(connection);
	listen_for(connection);
}

/* What nobody would ever look at again must not wait. */
static void check_stall(void *arg)
{
	struct connection *connection = arg;
	struct helper *helper = connection->helper;
	uint64_t ms =
		(loop_now_ns(helper->loop) - connection->progress_ns) / 1000000;

	connection->stall = NULL;
	if (ki_list_is_empty(&connection->parcels))
		return;
	if (ms < helper->stall_ms)
		connection->stall = loop_after(
			helper->loop, (uint32_t)(helper->stall_ms - ms),
			check_stall, connection);
	if (!connection->stall) {
		helper->n_cut_off++;
		connection_close(connection);
	}
}

static void queue(struct connection *connection, struct parcel *parcel)
{
	struct helper *helper = connection->helper;

	if (ki_list_is_empty(&connection->parcels))
		connection->progress_ns = loop_now_ns(helper->loop);
	add_parcel(connection, parcel);
	if (!connection->stall)
		connection->stall = loop_after(helper->loop, helper->stall_ms,
					       check_stall, connection);
	if (connection->stall)
		listen_for(connection);
	else
		give_up(connection);
}

static struct parcel *new_parcel(const struct iovec *pieces, size_t n_sent,
				 struct item *item)
{
	struct parcel *parcel = calloc(1, sizeof(*parcel));

	if (!parcel)
		return NULL;
	ki_list_init(&parcel->link);
	parcel->head_size = pieces[0].iov_len;
	memcpy(parcel->head, pieces[0].iov_base, parcel->head_size);
	parcel->bytes_size = pieces[1].iov_len;
	parcel->n_sent = n_sent;
	if (item) {
		parcel->item = item_ref(item);
		parcel->bytes = item->bytes;
		return parcel;
	}
	parcel->bytes = malloc(parcel->bytes_size + 1);
	if (!parcel->bytes) {
		free(parcel);
		return NULL;
	}
	if (parcel->bytes_size)
		memcpy(parcel->bytes, pieces[1].iov_base, parcel->bytes_size);
	return parcel;
}

static void post(struct connection *connection, struct iovec pieces[2],
		 struct item *item)
{
	size_t size = pieces[0].iov_len + pieces[1].iov_len;
	struct parcel *parcel;
	ssize_t n = 0;

	if (connection->is_closed || connection->is_given_up)
		return;
	if (ki_list_is_empty(&connection->parcels))
		n = send_pieces(connection->fd, pieces, 2);
	if (n < 0) {
		give_up(connection);
		return;
	}
	if ((size_t)n == size)
		return;
	parcel = new_parcel(pieces, (size_t)n, item);
	if (parcel)
		queue(connection, parcel);
	else
		give_up(connection);
}

static size_t put_head(uint8_t out[HEAD_BYTES_MAX], enum ki_frame_type type,
		       enum kiln_status status, uint64_t id, const void *head,
		       size_t head_size, size_t rest)
{
	struct ki_frame frame = {
		.size = (uint32_t)(head_size + rest),
		.type = (uint8_t)type,
		.status = (int16_t)status,
		.id = id,
	};

	ki_frame_put(out, &frame);
	if (head_size)
		memcpy(out + KI_FRAME_BYTES, head, head_size);
	return KI_FRAME_BYTES + head_size;
}

void connection_answer(struct connection *connection, enum ki_frame_type type,
		       enum kiln_status status, uint64_t id, const void *body,
		       size_t body_size)
{
	uint8_t head[HEAD_BYTES_MAX];
	struct iovec pieces[2] = {
		{ head, put_head(head, type, status, id, NULL, 0, body_size) },
		{ (void *)(uintptr_t)body, body_size },
	};

	post(connection, pieces, NULL);
}

void connection_answer_item(struct connection *connection,
			    enum ki_frame_type type, enum kiln_status status,
			    uint64_t id, const void *head_bytes,
			    size_t head_size, struct item *item)
{
	uint8_t head[HEAD_BYTES_MAX];
	struct iovec pieces[2] = {
		{ head, put_head(head, type, status, id, head_bytes, head_size,
				 item->size) },
		{ item->bytes, item->size },
	};

	post(connection, pieces, item);
}

/* 1: all of it is gone.  Else it may be gone itself. */
static int send_parcel(struct connection *connection, struct parcel *parcel)
{
	struct iovec pieces[2] = {
		{ parcel->head, parcel->head_size },
		{ parcel->bytes, parcel->bytes_size },
	};
	size_t skipped = parcel->n_sent;
	ssize_t n;

	for (int i = 0; i < 2; i++) {
		size_t part = skipped < pieces[i].iov_len ? skipped
							  : pieces[i].iov_len;

		pieces[i].iov_base = (uint8_t *)pieces[i].iov_base + part;
		pieces[i].iov_len -= part;
		skipped -= part;
	}
	n = send_pieces(connection->fd, pieces, 2);
	if (n < 0) {
		give_up(connection);
		return 0;
	}
	if (n)
		connection->progress_ns = loop_now_ns(connection->helper->loop);
	parcel->n_sent += (size_t)n;
	connection->out_bytes -= (size_t)n;
	return !left_of(parcel);
}

static void send_parcels(struct connection *connection)
{
	struct ki_list *link, *after;

	ki_list_for_each_safe (link, after, &connection->parcels) {
		struct parcel *parcel = ki_container(link, struct parcel, link);

		if (!send_parcel(connection, parcel))
			break;
		drop_parcel(connection, parcel);
	}
	listen_for(connection);
}

void connection_pend(struct connection *connection)
{
	connection->n_pending++;
	listen_for(connection);
}

void connection_settle(struct connection *connection)
{
	if (connection->n_pending)
		connection->n_pending--;
	listen_for(connection);
}

/* ---- Frames -------------------------------------------------------------- */

/* Room for what the frame at hand needs; a connection at rest has little. */
static int make_room(struct connection *connection, size_t size)
{
	uint8_t *in;

	if (size == connection->in_room || connection->in_size > size)
		return 1;
	in = realloc(connection->in, size);
	if (!in)
		return 0;
	connection->in = in;
	connection->in_room = size;
	return 1;
}

/* Descriptors that came with bytes; one with each frame that has one. */
static int take_descriptors(struct connection *connection,
			    struct msghdr *message)
{
	struct cmsghdr *part;
	int is_good = !(message->msg_flags & MSG_CTRUNC);

	for (part = CMSG_FIRSTHDR(message); part;
	     part = CMSG_NXTHDR(message, part)) {
		size_t n = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		int fd;

		if (part->cmsg_level != SOL_SOCKET ||
		    part->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			memcpy(&fd, CMSG_DATA(part) + i * sizeof(int),
			       sizeof(fd));
			if (connection->n_descriptors <
			    CONNECTION_DESCRIPTORS_MAX) {
				connection->descriptors
					[connection->n_descriptors++] = fd;
				continue;
			}
			(void)close(fd);
			is_good = 0;
		}
	}
	return is_good;
}

/* 1: bytes came; 0: none for now; -1: it is over. */
static int receive(struct connection *connection)
{
	union {
		struct cmsghdr aligned;
		char bytes[CMSG_SPACE(16 * sizeof(int))];
	} control;
	struct iovec piece = {
		.iov_base = connection->in + connection->in_size,
		.iov_len = connection->in_room - connection->in_size,
	};
	struct msghdr message = {
		.msg_iov = &piece,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t n;

	do
		n = recvmsg(connection->fd, &message,
			    MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
	if (!take_descriptors(connection, &message) || !n)
		return -1;
	connection->in_size += (size_t)n;
	return 1;
}

static int take_descriptor(struct connection *connection)
{
	int fd;

	if (!connection->n_descriptors)
		return -1;
	fd = connection->descriptors[0];
	connection->n_descriptors--;
	memmove(connection->descriptors, connection->descriptors + 1,
		connection->n_descriptors * sizeof(int));
	return fd;
}

/* The first frame says who it is; no other does. */
static enum kiln_status handle(struct connection *connection,
			       const struct ki_frame *frame,
			       const uint8_t *body)
{
	int fd = -1;

	if (connection->is_greeted == (frame->type == KI_FRAME_HELLO))
		return KILN_E_FORMAT;
	connection->is_greeted = 1;
	if (frame->type == KI_FRAME_PUT) {
		fd = take_descriptor(connection);
		if (fd < 0)
			return KILN_E_FORMAT;
	}
	return requests_handle(connection, frame, body, fd);
}

/* All whole frames that there is room for; 0: a rule was broken. */
static int handle_frames(struct connection *connection)
{
	size_t done = 0, left, needed = IN_BYTES_FIRST;
	struct ki_frame frame;

	while (!connection->is_closed && takes_requests(connection) &&
	       (left = connection->in_size - done) >= KI_FRAME_BYTES) {
		const uint8_t *at = connection->in + done;

		if (ki_frame_get(at, &frame) || frame.size > KI_REMOTE_BODY_MAX)
			return 0;
		needed = KI_FRAME_BYTES + frame.size;
		if (left < needed)
			break;
		if (handle(connection, &frame, at + KI_FRAME_BYTES))
			return 0;
		done += needed;
		needed = IN_BYTES_FIRST;
	}
	if (connection->is_closed)
		return 1;
	connection->in_size -= done;
	connection->is_held =
		connection->in_size && !takes_requests(connection);
	memmove(connection->in, connection->in + done, connection->in_size);
	/* A descriptor belongs to a frame that is there, or begins there. */
	if (!connection->in_size && connection->n_descriptors)
		return 0;
	return make_room(connection, needed);
}

static void on_event(void *arg, int fd, int events)
{
	struct connection *connection = arg;
	int got = 0;

	connection->n_busy++;
	if (events & LOOP_OUT)
		send_parcels(connection);
	if (events == LOOP_HUP)
		got = -1;
	else if (connection->is_held)
		got = takes_requests(connection);
	else if (events & LOOP_IN)
		got = receive(connection);
	if (got < 0 || (got > 0 && !handle_frames(connection)))
		connection_close(connection);
	listen_for(connection);
	connection->n_busy--;
	free_if_unused(connection);
}

/* ---- The beginning ------------------------------------------------------- */

/* Who says nothing has no use for a connection. */
static void check_greeting(void *arg)
{
	struct connection *connection = arg;

	connection->stall = NULL;
	if (!connection->is_greeted)
		connection_close(connection);
	else if (!ki_list_is_empty(&connection->parcels))
		check_stall(connection);
}

struct connection *connection_new(struct helper *helper, int fd)
{
	struct connection *connection = calloc(1, sizeof(*connection));

	if (!connection) {
		(void)close(fd);
		return NULL;
	}
	*connection = (struct connection){ .helper = helper, .fd = fd };
	ki_list_init(&connection->link);
	ki_list_init(&connection->parcels);
	ki_list_init(&connection->waits);
	ki_list_init(&connection->held);
	ki_list_init(&connection->packs);
	ki_list_init(&connection->pack_requests);
	connection->progress_ns = loop_now_ns(helper->loop);
	connection->watched =
		loop_watch(helper->loop, fd, LOOP_IN, on_event, connection);
	connection->stall =
		loop_after(helper->loop, connection->helper->stall_ms,
			   check_greeting, connection);
	if (!connection->watched || !connection->stall ||
	    !make_room(connection, IN_BYTES_FIRST)) {
		loop_unwatch(connection->watched);
		loop_cancel(connection->stall);
		(void)close(fd);
		free(connection);
		return NULL;
	}
	return connection;
}
