/* SPDX-License-Identifier: MIT */

/*
 * No thread of ours reads: of those that wait for an answer one reads for all,
 * until its own is there or its time is over, and then another does.
 *
 *	ask   connect, if need be; HELLO and the request in one go
 *	      nobody reads   -> read frames; give each to who waits for it
 *	      somebody reads -> wait to be given the answer, or the reading
 *
 * A frame that has begun to arrive belongs to the connection, so whoever reads
 * next goes on where the last one stopped.  What it says of its size is believed as
 * its bytes come: room for a body grows with it.  An answer that is longer than what
 * was asked for can be is a breach.  An answer that nobody waits for any
 * more is read and dropped, until the reader's time is over and no longer: there
 * may be no end to them.  One to what was never asked is a breach.
 *
 * A broken connection is closed by who reads, or by who notices, if nobody does:
 * no descriptor is closed under one that looks at it.  All who wait have a miss,
 * and the next request connects anew.
 *
 * Sending happens under the mutex, so that frames do not mix.  It does not wait:
 * frames are short, and where there is no room for one nothing is sent.  Only
 * who has sent half a frame must go on, for SEND_NS at most.  Notes wait in a list
 * until there is room, and for them whatever comes after them; many go at once.
 * Those that are of use by one connection go with it, others stay for the next.  What
 * was sent and not read yet is lost with a helper that ends.
 */

#include "remote/connection.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define SEND_NS		 ((uint64_t)20000000)
#define IN_BYTES	 4096
#define BODY_BYTES_FIRST ((size_t)256 << 10)
#define NOBODY		 ((uint64_t)0)
#define NOTES_BYTES	 4096 /* that go at once */

struct waiter {
	struct waiter *next;
	uint64_t id;
	struct ki_answer *answer;
	enum kiln_status status; /* KILN_MISS: not yet */
	size_t size_max;
};

/* A frame that is arriving. */
struct incoming {
	uint8_t buffer[IN_BYTES]; /* received, and not yet taken */
	size_t start, end;
	uint8_t head[KI_FRAME_BYTES];
	size_t n_head;
	struct ki_frame frame;
	uint8_t *body; /* NULL: it is dropped */
	size_t n_body, room;
};

struct ki_connection {
	/* Fixed. */
	const struct ki_sys *sys;
	char *path;
	int is_guest;
	uint64_t fork_generation;
	ki_welcome_fn *welcome;
	void *arg;
	/* Under mutex. */
	struct ki_mutex mutex;
	struct ki_cond changed;
	int fd; /* or -1 */
	struct ki_fork_close fork_close;
	int is_broken;
	int is_welcomed;
	int is_read; /* somebody is at `incoming`, without the mutex */
	unsigned n_users;
	uint64_t number; /* of connections that were made */
	uint64_t last_id;
	struct waiter *waiters;
	struct ki_note *notes, *last_note; /* that wait */
	_Atomic unsigned n_notes;	   /* read by anybody */
	/* The reader's. */
	struct incoming incoming;
};

/* ---- Life ------------------------------------------------------------------- */

struct ki_connection *ki_connection_new(const struct ki_sys *sys,
					const char *path, int is_guest,
					ki_welcome_fn *welcome, void *arg)
{
	struct ki_connection *connection = calloc(1, sizeof(*connection));

	if (!connection)
		return NULL;
	connection->path = strdup(path);
	if (!connection->path) {
		free(connection);
		return NULL;
	}
	connection->sys = sys;
	connection->is_guest = is_guest;
	connection->fork_generation = ki_fork_generation();
	connection->welcome = welcome;
	connection->arg = arg;
	connection->fd = -1;
	ki_mutex_init(&connection->mutex, KI_RANK_REMOTE);
	ki_cond_init(&connection->changed);
	return connection;
}

static void forget_incoming(struct ki_connection *connection)
{
	struct incoming *incoming = &connection->incoming;

	free(incoming->body);
	incoming->body = NULL;
	incoming->start = incoming->end = 0;
	incoming->n_head = incoming->n_body = 0;
}

static void drop_first_note(struct ki_connection *connection)
{
	struct ki_note *note = connection->notes;

	connection->notes = note->next;
	atomic_fetch_sub(&connection->n_notes, 1);
	free(note);
}

static void drop_notes(struct ki_connection *connection)
{
	while (connection->notes)
		drop_first_note(connection);
}

static void drop_notes_of_connection(struct ki_connection *connection)
{
	struct ki_note **link = &connection->notes, *note;

	connection->last_note = NULL;
	while ((note = *link)) {
		if (note->connection) {
			*link = note->next;
			atomic_fetch_sub(&connection->n_notes, 1);
			free(note);
		} else {
			connection->last_note = note;
			link = &note->next;
		}
	}
}

static void close_locked(struct ki_connection *connection)
	KI_REQUIRES(&connection->mutex)
{
	if (connection->fd >= 0) {
		ki_fork_close_remove(&connection->fork_close);
		(void)connection->sys->close(connection->sys, connection->fd);
	}
	connection->fd = -1;
	connection->is_broken = 0;
	forget_incoming(connection);
	drop_notes_of_connection(connection);
}

void ki_connection_free(struct ki_connection *connection)
{
	if (!connection)
		return;
	/* In a child the descriptor is closed, and the locks are the parent's. */
	if (ki_fork_generation() == connection->fork_generation) {
		ki_connection_say_notes(connection);
		ki_mutex_lock(&connection->mutex);
		close_locked(connection);
		ki_mutex_unlock(&connection->mutex);
		ki_mutex_fini(&connection->mutex);
		ki_cond_fini(&connection->changed);
	}
	drop_notes(connection);
	free(connection->incoming.body);
	free(connection->path);
	free(connection);
}

void ki_connection_begin(struct ki_connection *connection)
{
	ki_mutex_lock(&connection->mutex);
	connection->n_users++;
	ki_mutex_unlock(&connection->mutex);
}

void ki_connection_finish(struct ki_connection *connection)
{
	ki_mutex_lock(&connection->mutex);
	if (!--connection->n_users && connection->is_guest)
		close_locked(connection);
	ki_mutex_unlock(&connection->mutex);
}

/* ---- Breaking --------------------------------------------------------------- */

/* Nobody gets an answer any more. */
static void break_locked(struct ki_connection *connection,
			 enum kiln_status status)
	KI_REQUIRES(&connection->mutex)
{
	for (struct waiter *waiter = connection->waiters; waiter;
	     waiter = waiter->next)
		if (waiter->status == KILN_MISS)
			waiter->status = status;
	connection->is_broken = 1;
	if (!connection->is_read)
		close_locked(connection);
	ki_cond_signal_all(&connection->changed);
}

/* ---- Sending ---------------------------------------------------------------- */

/* 0; -EAGAIN: there is no room, and nothing was sent; else the connection is of no
   use any more.  The deadline begins when it is needed. */
static int send_all(const struct ki_sys *sys, int fd, const uint8_t *data,
		    size_t size, int fd_along, uint64_t *deadline_ns)
{
	const size_t whole = size;

	while (size) {
		ssize_t n = sys->send(sys, fd, data, size, fd_along);
		int err;

		if (n > 0) {
			data += n;
			size -= (size_t)n;
			fd_along = -1;
			continue;
		}
		if (n != -EAGAIN)
			return n ? (int)n : -EPIPE;
		if (size == whole)
			return -EAGAIN;
		if (!*deadline_ns)
			*deadline_ns = sys->monotonic_ns(sys) + SEND_NS;
		err = sys->wait(sys, fd, 1, *deadline_ns);
		if (err)
			return err == -ETIMEDOUT ? -EPIPE : err;
	}
	return 0;
}

static int send_frame(const struct ki_connection *connection, uint64_t id,
		      const struct ki_request *request)
{
	const struct ki_frame frame = { .size = (uint32_t)request->size,
					.type = request->type,
					.flags = request->flags,
					.id = id };
	uint8_t small[256], *bytes = small;
	const size_t size = KI_FRAME_BYTES + request->size;
	uint64_t deadline_ns = 0;
	int err;

	if (size > sizeof(small)) {
		bytes = malloc(size);
		if (!bytes)
			return -ENOMEM;
	}
	ki_frame_put(bytes, &frame);
	if (request->size)
		memcpy(bytes + KI_FRAME_BYTES, request->body, request->size);
	err = send_all(connection->sys, connection->fd, bytes, size,
		       request->fd_along, &deadline_ns);
	if (bytes != small)
		free(bytes);
	return err;
}

static int send_hello(const struct ki_connection *connection)
{
	uint8_t body[KI_FRAME_HELLO_BYTES] = { 0 };
	const struct ki_request request = { .type = KI_FRAME_HELLO,
					    .body = body,
					    .size = sizeof(body),
					    .fd_along = -1 };

	ki_put_u32(body, KI_REMOTE_MAGIC);
	ki_put_u16(body + 4, KI_REMOTE_VERSION);
	ki_put_u16(body + 6, KI_REMOTE_VERSION);
	ki_put_u32(body + 16, (uint32_t)ki_process_id());
	return send_frame(connection, NOBODY, &request);
}

/* A descriptor; -EPERM: it is somebody else. */
static int reach(const struct ki_sys *sys, const char *path)
{
	uint32_t uid;
	int fd = sys->connect(sys, path, &uid);

	if (fd < 0 || uid == ki_user_id())
		return fd;
	(void)sys->close(sys, fd);
	return -EPERM;
}

int ki_connection_can_be_at(const struct ki_sys *sys, const char *path)
{
	int fd = reach(sys, path);

	if (fd >= 0)
		(void)sys->close(sys, fd);
	return fd >= 0;
}

int ki_connection_can_be(const struct ki_connection *connection)
{
	return ki_connection_can_be_at(connection->sys, connection->path);
}

/* UNSUPPORTED: nobody is there, or somebody else; IO: for the moment. */
static enum kiln_status connect_locked(struct ki_connection *connection)
	KI_REQUIRES(&connection->mutex)
{
	int fd;

	if (connection->is_broken)
		return KILN_E_IO;
	if (connection->fd >= 0)
		return KILN_OK;
	fd = reach(connection->sys, connection->path);
	if (fd < 0)
		return fd == -EAGAIN || fd == -EMFILE || fd == -ENFILE ||
				       fd == -ENOMEM
			       ? KILN_E_IO
			       : KILN_E_UNSUPPORTED;
	connection->fd = fd;
	connection->is_welcomed = 0;
	connection->number++;
	connection->last_id = NOBODY;
	ki_fork_close_add(&connection->fork_close, fd);
	if (!send_hello(connection))
		return KILN_OK;
	close_locked(connection);
	return KILN_E_IO;
}

static size_t put_note(uint8_t *out, const struct ki_note *note, uint64_t id)
{
	const struct ki_frame frame = { .size = (uint32_t)note->size,
					.type = note->type,
					.flags = note->flags,
					.id = id };

	ki_frame_put(out, &frame);
	memcpy(out + KI_FRAME_BYTES, note->body, note->size);
	return KI_FRAME_BYTES + note->size;
}

/* The first of them; how many, or an error. */
static int send_some_notes_locked(struct ki_connection *connection,
				  uint64_t *deadline_ns)
	KI_REQUIRES(&connection->mutex)
{
	uint8_t bytes[NOTES_BYTES];
	size_t size = 0;
	int n = 0, err;

	for (const struct ki_note *note = connection->notes;
	     note && size + KI_FRAME_BYTES + note->size <= sizeof(bytes);
	     note = note->next, n++)
		size += put_note(bytes + size, note, ++connection->last_id);
	err = send_all(connection->sys, connection->fd, bytes, size, -1,
		       deadline_ns);
	return err ? err : n;
}

/* Whoever waits has asked for something else: all of them have SEND_NS in all. */
static int send_notes_locked(struct ki_connection *connection)
	KI_REQUIRES(&connection->mutex)
{
	uint64_t deadline_ns = 0;

	while (connection->notes) {
		int n = send_some_notes_locked(connection, &deadline_ns);

		if (n < 0)
			return n;
		while (n--)
			drop_first_note(connection);
	}
	return 0;
}

/* Behind the notes; NULL: these alone. */
static enum kiln_status send_locked(struct ki_connection *connection,
				    const struct ki_request *request)
	KI_REQUIRES(&connection->mutex)
{
	int err = send_notes_locked(connection);

	if (!err && request)
		err = send_frame(connection, ++connection->last_id, request);
	if (!err)
		return KILN_OK;
	if (err == -EAGAIN)
		return KILN_E_FULL;
	if (err == -ENOMEM)
		return KILN_E_NO_MEMORY;
	break_locked(connection, KILN_E_IO);
	return KILN_E_IO;
}

/* ---- Receiving -------------------------------------------------------------- */

static struct waiter *find_waiter(const struct ki_connection *connection,
				  uint64_t id)
{
	struct waiter *waiter = connection->waiters;

	while (waiter && (waiter->id != id || waiter->status != KILN_MISS))
		waiter = waiter->next;
	return waiter;
}

static int take_welcome(struct ki_connection *connection, const uint8_t *body,
			size_t size)
{
	const uint16_t lowest = ki_get_u16(body + 4),
		       highest = ki_get_u16(body + 6);

	if (size < KI_FRAME_WELCOME_BYTES ||
	    ki_get_u32(body) != KI_REMOTE_MAGIC || lowest > highest ||
	    KI_REMOTE_VERSION < lowest || KI_REMOTE_VERSION > highest)
		return 0;
	connection->is_welcomed = 1;
	connection->welcome(connection->arg, ki_get_u64(body + 8),
			    ki_get_u32(body + 28));
	return 1;
}

static int is_over(const struct ki_connection *connection, uint64_t deadline_ns)
{
	const struct ki_sys *sys = connection->sys;

	return sys->monotonic_ns(sys) >= deadline_ns;
}

/* Something to take: bytes of the buffer, or the socket's.  0 at the end, which is
   none here. */
static ssize_t fill_buffer(struct ki_connection *connection,
			   uint64_t deadline_ns)
{
	const struct ki_sys *sys = connection->sys;
	struct incoming *incoming = &connection->incoming;
	ssize_t n;

	if (incoming->start < incoming->end)
		return 1;
	n = sys->recv(sys, connection->fd, incoming->buffer, IN_BYTES);
	if (n == -EAGAIN) {
		int err = sys->wait(sys, connection->fd, 0, deadline_ns);

		if (err)
			return err;
		n = sys->recv(sys, connection->fd, incoming->buffer, IN_BYTES);
	}
	incoming->start = 0;
	incoming->end = n > 0 ? (size_t)n : 0;
	return n ? n : -EPIPE;
}

static size_t take_buffered(struct incoming *incoming, void *out, size_t size)
{
	const size_t there = incoming->end - incoming->start;
	const size_t n = size < there ? size : there;

	if (out && n)
		memcpy(out, incoming->buffer + incoming->start, n);
	incoming->start += n;
	return n;
}

static int receive_head(struct ki_connection *connection, uint64_t deadline_ns)
{
	struct incoming *incoming = &connection->incoming;

	while (incoming->n_head < KI_FRAME_BYTES) {
		ssize_t n = fill_buffer(connection, deadline_ns);

		if (n < 0)
			return (int)n;
		incoming->n_head += take_buffered(
			incoming, incoming->head + incoming->n_head,
			KI_FRAME_BYTES - incoming->n_head);
		if (incoming->n_head == KI_FRAME_BYTES)
			return 1;
	}
	return 0;
}

/* Without memory the rest is dropped, and comes too late. */
static void make_room(struct incoming *incoming)
{
	const size_t size = incoming->frame.size;
	size_t room = 2 * incoming->room;
	uint8_t *body;

	if (room > size)
		room = size;
	body = realloc(incoming->body, room);
	if (body)
		incoming->room = room;
	else
		free(incoming->body);
	incoming->body = body;
}

/* Long bodies go where they belong without a stay in the buffer. */
static int receive_body(struct ki_connection *connection, uint64_t deadline_ns)
{
	const struct ki_sys *sys = connection->sys;
	struct incoming *incoming = &connection->incoming;
	const size_t size = incoming->frame.size;

	while (incoming->n_body < size) {
		size_t left;
		uint8_t *place;
		ssize_t n;

		if (incoming->body && incoming->n_body == incoming->room)
			make_room(incoming);
		left = (incoming->body ? incoming->room : size) -
		       incoming->n_body;
		place = incoming->body ? incoming->body + incoming->n_body
				       : NULL;
		if (place && left > IN_BYTES &&
		    incoming->start == incoming->end) {
			n = sys->recv(sys, connection->fd, place, left);
			if (!n)
				return -EPIPE;
			if (n == -EAGAIN)
				n = sys->wait(sys, connection->fd, 0,
					      deadline_ns);
		} else {
			n = fill_buffer(connection, deadline_ns);
			if (n > 0)
				n = (ssize_t)take_buffered(incoming, place,
							   left);
		}
		if (n < 0)
			return (int)n;
		incoming->n_body += (size_t)n;
		if (!place && is_over(connection, deadline_ns))
			return -ETIMEDOUT;
	}
	return 0;
}

/* Room for what somebody waits for.  -EPROTO: nobody ever asked, or it is no frame
   that comes from there. */
static int begin_body_locked(struct ki_connection *connection)
	KI_REQUIRES(&connection->mutex)
{
	struct incoming *incoming = &connection->incoming;
	struct ki_frame *frame = &incoming->frame;
	const int is_hello = !connection->is_welcomed;
	const struct waiter *waiter;

	if (ki_frame_get(incoming->head, frame) ||
	    (frame->type == KI_FRAME_HELLO) != is_hello ||
	    (is_hello ? frame->id != NOBODY
		      : frame->id == NOBODY || frame->id > connection->last_id))
		return -EPROTO;
	incoming->n_body = 0;
	waiter = is_hello ? NULL : find_waiter(connection, frame->id);
	if (waiter && frame->size > waiter->size_max)
		return -EPROTO;
	if (!frame->size || (!is_hello && !waiter))
		return 0;
	incoming->room =
		frame->size < BODY_BYTES_FIRST ? frame->size : BODY_BYTES_FIRST;
	incoming->body = malloc(incoming->room);
	/* Without memory it is dropped, and comes too late. */
	return is_hello && !incoming->body ? -ENOMEM : 0;
}

static int end_body_locked(struct ki_connection *connection)
	KI_REQUIRES(&connection->mutex)
{
	struct incoming *incoming = &connection->incoming;
	const struct ki_frame *frame = &incoming->frame;
	struct waiter *waiter;
	int is_good = 1;

	if (!connection->is_welcomed) {
		is_good = take_welcome(connection, incoming->body, frame->size);
		free(incoming->body);
	} else {
		waiter = find_waiter(connection, frame->id);
		if (waiter && (incoming->body || !frame->size)) {
			*waiter->answer =
				(struct ki_answer){ frame->type, frame->status,
						    incoming->body,
						    frame->size };
			waiter->status = KILN_OK;
		} else {
			free(incoming->body);
		}
	}
	incoming->body = NULL;
	incoming->n_head = incoming->n_body = 0;
	return is_good ? 0 : -EPROTO;
}

/* One frame, to its end or until the deadline. */
static int receive_frame(struct ki_connection *connection, uint64_t deadline_ns)
{
	int err = receive_head(connection, deadline_ns);

	if (err > 0) {
		ki_mutex_lock(&connection->mutex);
		err = begin_body_locked(connection);
		ki_mutex_unlock(&connection->mutex);
	}
	if (!err)
		err = receive_body(connection, deadline_ns);
	if (!err) {
		ki_mutex_lock(&connection->mutex);
		err = end_body_locked(connection);
		ki_mutex_unlock(&connection->mutex);
	}
	return err;
}

/* Read for all, until this one has its answer.  TIMEOUT at the deadline. */
static void read_locked(struct ki_connection *connection,
			const struct waiter *waiter, uint64_t deadline_ns)
	KI_REQUIRES(&connection->mutex)
{
	int err = 0;

	connection->is_read = 1;
	while (!err && waiter->status == KILN_MISS && !connection->is_broken) {
		ki_mutex_unlock(&connection->mutex);
		err = receive_frame(connection, deadline_ns);
		ki_mutex_lock(&connection->mutex);
		if (!err && connection->waiters->next)
			ki_cond_signal_all(&connection->changed);
		if (!err && waiter->status == KILN_MISS &&
		    is_over(connection, deadline_ns))
			err = -ETIMEDOUT;
	}
	connection->is_read = 0;
	if (err && err != -ETIMEDOUT)
		break_locked(connection,
			     err == -EPROTO ? KILN_E_FORMAT : KILN_E_IO);
	else if (connection->is_broken)
		close_locked(connection);
	ki_cond_signal_all(&connection->changed);
}

/* ---- Asking ----------------------------------------------------------------- */

static void remove_waiter(struct ki_connection *connection,
			  struct waiter *waiter)
{
	struct waiter **link = &connection->waiters;

	while (*link != waiter)
		link = &(*link)->next;
	*link = waiter->next;
}

static void wait_locked(struct ki_connection *connection, struct waiter *waiter,
			uint64_t deadline_ns) KI_REQUIRES(&connection->mutex)
{
	const struct ki_sys *sys = connection->sys;

	while (waiter->status == KILN_MISS) {
		if (!connection->is_read)
			read_locked(connection, waiter, deadline_ns);
		else
			(void)ki_cond_wait_until(&connection->changed,
						 &connection->mutex,
						 deadline_ns);
		if (waiter->status == KILN_MISS &&
		    sys->monotonic_ns(sys) >= deadline_ns)
			waiter->status = KILN_E_TIMEOUT;
	}
}

enum kiln_status ki_connection_ask(struct ki_connection *connection,
				   const struct ki_request *request,
				   uint64_t deadline_ns,
				   struct ki_answer *out_answer)
{
	struct ki_answer answer = { 0 };
	struct waiter waiter = { .answer = &answer,
				 .status = KILN_MISS,
				 .size_max = request->answer_max };
	enum kiln_status status;

	ki_mutex_lock(&connection->mutex);
	status = connect_locked(connection);
	if (!status) {
		waiter.next = connection->waiters;
		connection->waiters = &waiter;
		status = send_locked(connection, request);
		waiter.id = connection->last_id;
		if (!status && request->sent_by)
			*request->sent_by = connection->number;
		if (!status) {
			wait_locked(connection, &waiter, deadline_ns);
			status = waiter.status;
		}
		remove_waiter(connection, &waiter);
	}
	ki_mutex_unlock(&connection->mutex);
	if (!status)
		*out_answer = answer;
	return status;
}

static enum kiln_status tell_locked(struct ki_connection *connection,
				    const struct ki_request *request)
	KI_REQUIRES(&connection->mutex)
{
	enum kiln_status status = connect_locked(connection);

	return status ? status : send_locked(connection, request);
}

enum kiln_status ki_connection_tell(struct ki_connection *connection,
				    const struct ki_request *request)
{
	enum kiln_status status;

	ki_mutex_lock(&connection->mutex);
	status = tell_locked(connection, request);
	ki_mutex_unlock(&connection->mutex);
	return status;
}

/* ---- Notes ------------------------------------------------------------------ */

static void append_note(struct ki_connection *connection, struct ki_note *note)
{
	note->next = NULL;
	if (connection->notes)
		connection->last_note->next = note;
	else
		connection->notes = note;
	connection->last_note = note;
	atomic_fetch_add(&connection->n_notes, 1);
}

static enum kiln_status keep_locked(struct ki_connection *connection,
				    const struct ki_request *request)
	KI_REQUIRES(&connection->mutex)
{
	struct ki_note *note;

	if (atomic_load(&connection->n_notes) >= KI_NOTES_MAX)
		return KILN_E_FULL;
	note = malloc(sizeof(*note));
	if (!note)
		return KILN_E_NO_MEMORY;
	*note = (struct ki_note){ .type = request->type,
				  .flags = request->flags,
				  .size = request->size };
	memcpy(note->body, request->body, request->size);
	append_note(connection, note);
	return KILN_OK;
}

enum kiln_status ki_connection_tell_surely(struct ki_connection *connection,
					   const struct ki_request *request)
{
	enum kiln_status status;

	assert(request->size && request->size <= KI_NOTE_BYTES);
	ki_mutex_lock(&connection->mutex);
	status = tell_locked(connection, request);
	if (status == KILN_E_FULL || status == KILN_E_IO)
		status = keep_locked(connection, request);
	ki_mutex_unlock(&connection->mutex);
	return status;
}

/* Of a connection that has ended. */
static int is_past(const struct ki_connection *connection,
		   const struct ki_note *note)
{
	return note->connection &&
	       (note->connection != connection->number || connection->fd < 0);
}

static enum kiln_status note_locked(struct ki_connection *connection,
				    struct ki_note *note)
	KI_REQUIRES(&connection->mutex)
{
	enum kiln_status status = connect_locked(connection);

	if (status) {
		free(note);
		return status;
	}
	append_note(connection, note);
	status = send_locked(connection, NULL);
	return status == KILN_E_FULL ? KILN_OK : status;
}

enum kiln_status ki_connection_note(struct ki_connection *connection,
				    struct ki_note *note)
{
	enum kiln_status status = KILN_OK;

	ki_mutex_lock(&connection->mutex);
	if (is_past(connection, note))
		free(note);
	else
		status = note_locked(connection, note);
	ki_mutex_unlock(&connection->mutex);
	return status;
}

void ki_connection_say_notes(struct ki_connection *connection)
{
	if (!atomic_load_explicit(&connection->n_notes, memory_order_relaxed))
		return;
	ki_connection_begin(connection);
	ki_mutex_lock(&connection->mutex);
	(void)tell_locked(connection, NULL);
	ki_mutex_unlock(&connection->mutex);
	ki_connection_finish(connection);
}
