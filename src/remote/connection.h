/* SPDX-License-Identifier: MIT */
#ifndef KI_REMOTE_CONNECTION_H
#define KI_REMOTE_CONNECTION_H

/*
 * The connection to kiln-remote: made when it is first used, made again when it
 * has broken, and used by all threads at once.  A guest's lasts for as long as
 * anybody is at it.
 *
 *	ki_connection_begin(c);
 *	status = ki_connection_ask(c, &request, deadline_ns, &answer);
 *	ki_connection_finish(c);
 *
 * Threads    Any, at any time; free is called once and last.
 * fork()     The child has no connection; it may free.
 */

#include "remote/protocol.h"
#include "sys/sys.h"

struct ki_connection;

/* What the helper says about itself, at each new connection. */
typedef void ki_welcome_fn(void *arg, uint64_t capabilities, uint32_t later_ms);

struct ki_request {
	uint8_t type; /* enum ki_frame_type */
	uint8_t flags;
	const void *body;
	size_t size;
	int fd_along;	   /* -1: none */
	size_t answer_max; /* bytes of body that an answer may have */
	/* NULL, or where the number of the connection goes that it is sent by. */
	uint64_t *sent_by;
};

#define KI_NOTE_BYTES KI_FRAME_VERDICT_BYTES

/* Something short that is not answered and must not be lost; from malloc(). */
struct ki_note {
	struct ki_note *next;
	uint64_t connection; /* by which it is of use; 0: by any */
	uint8_t type, flags;
	size_t size;
	uint8_t body[KI_NOTE_BYTES];
};

#define KI_NOTES_MAX 1024 /* that wait, but for those that were taken over */

struct ki_answer {
	uint8_t type;
	int16_t status;
	uint8_t *body; /* from malloc(); NULL if it has none */
	size_t size;
};

/* NULL: no memory.  `path` is copied. */
struct ki_connection *ki_connection_new(const struct ki_sys *sys,
					const char *path, int is_guest,
					ki_welcome_fn *welcome, void *arg);
void ki_connection_free(struct ki_connection *connection);

void ki_connection_begin(struct ki_connection *connection);
void ki_connection_finish(struct ki_connection *connection);

/* Whether somebody is there that we may speak to: 1 or 0.  Nothing is said, so nothing is
   waited for. */
int ki_connection_can_be(const struct ki_connection *connection);
/* The same of who listens at a path. */
int ki_connection_can_be_at(const struct ki_sys *sys, const char *path);

/*
 * KILN_OK with an answer whose body is the caller's to free().  TIMEOUT: not by
 * the deadline; what comes later is dropped.  UNSUPPORTED: nobody is there that
 * we may speak to.  IO: the connection broke, or the system refuses.  FORMAT: the
 * other side does not keep to the protocol, and is left.  NO_MEMORY.
 */
enum kiln_status ki_connection_ask(struct ki_connection *connection,
				   const struct ki_request *request,
				   uint64_t deadline_ns,
				   struct ki_answer *out_answer);

/* The same of what is not answered, never waiting.  FULL: the other side does not
   read, and nothing was sent. */
enum kiln_status ki_connection_tell(struct ki_connection *connection,
				    const struct ki_request *request);

/*
 * The same of what must not be lost, of KI_NOTE_BYTES at most.  Where there is no room
 * it waits as a note (OK), and goes before whatever is said next; nothing passes it.
 * So it does where the connection breaks, or cannot be made for the moment (IO):
 * the next one has it.  Memory is needed only where it has to wait.
 * FULL: KI_NOTES_MAX wait, and it is dropped.  NO_MEMORY: so it is.
 */
enum kiln_status ki_connection_tell_surely(struct ki_connection *connection,
					   const struct ki_request *request);
/* A note, which is taken over, so that it needs no memory now.  If the end of its
   connection has come before it is dropped (OK).  There is always room for it to
   wait. */
enum kiln_status ki_connection_note(struct ki_connection *connection,
				    struct ki_note *note);
/* What waits, for who says nothing else, by a new connection if need be; a look at a
   number if nothing does.  ki_connection_free() does so, too. */
void ki_connection_say_notes(struct ki_connection *connection);

#endif /* KI_REMOTE_CONNECTION_H */
