/* SPDX-License-Identifier: MIT */
#ifndef KIR_PLACE_H
#define KIR_PLACE_H

/*
 * Where a helper listens: a socket, and beside it a lock that says that its
 * holder lives.
 *
 *	remote-<digest>.sock	a name that is left over by the dead is replaced
 *	remote-<digest>.lock	open file description lock; never removed
 *
 * Usually whoever starts a helper has taken the lock and listens already, and
 * hands both descriptors over: its own connection waits in the backlog.
 */

#include "sys/sys.h"

#define PLACE_SOCKET ".sock"
#define PLACE_LOCK   ".lock"

struct place {
	char path[KI_PATH_MAX]; /* of the socket */
	int listen_fd;
	int lock_fd;
	uint64_t device, inode; /* of the socket's name */
};

/*
 * Take a place: the directory must be this user's own, and closed to others.  0,
 * or a negative errno with a sentence in `why`; -EAGAIN: a helper lives there.
 */
int place_take(struct place *place, const char *path, char *why,
	       size_t why_size);

/* The same with descriptors that a starter opened; they are owned from then on,
   if it succeeds. */
int place_adopt(struct place *place, const char *path, int listen_fd,
		int lock_fd, char *why, size_t why_size);

/* Whether the name still leads to our socket: if not, nobody new will come. */
int place_is_ours(const struct place *place);

/* Remove the name if it is ours; close both. */
void place_leave(struct place *place);

#endif /* KIR_PLACE_H */
