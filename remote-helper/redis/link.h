/* SPDX-License-Identifier: MIT */
#ifndef KIR_REDIS_LINK_H
#define KIR_REDIS_LINK_H

/*
 * One connection to a Redis: requests go out in order, without waiting for the
 * answers, which come back in the same order.  It connects when there is
 * something to ask.
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/list.h"

#include "backend.h"
#include "loop.h"
#include "remote/url.h"

#include "remote-helper/redis/reply.h"

struct link;

/* A command, and who waits for its answer. */
struct request {
	struct ki_list node;
	enum question question;
	done_fn *done; /* NULL: answered already, its time was over */
	void *arg;
	uint64_t body_max;
	uint64_t timeout_ns, deadline_ns;
	uint64_t begun_ns; /* the first byte was sent; 0: none was */
	struct iovec pieces[3];
	size_t n_pieces;
	/* Of one piece: what is sent instead where that may have been done and the
	   answer is lost; empty: the same, which does no more by being done twice. */
	struct iovec again;
	enum question question_again;
	unsigned n_asked; /* on connections that ended */
	char text[];	  /* what the pieces point to, but for a body */
};

/* What a connection begins with: AUTH and SELECT as they are sent, borrowed. */
struct greeting {
	struct iovec commands[2];
	size_t n_commands;
};

/* NULL: no memory.  All but the loop is borrowed for the link's life. */
struct link *link_new(struct loop *loop, const struct url *url,
		      const struct greeting *greeting);
/* Whoever still waits is answered IO.  NULL is fine. */
void link_close(struct link *link);

/* Takes the request over (malloc).  Nothing is sent before link_flush(). */
void link_ask(struct link *link, struct request *request, uint32_t timeout_ms);
void link_flush(struct link *link);

#endif /* KIR_REDIS_LINK_H */
