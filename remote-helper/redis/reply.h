/* SPDX-License-Identifier: MIT */
#ifndef KIR_REDIS_REPLY_H
#define KIR_REDIS_REPLY_H

/* What answers of a Redis mean. */

#include <hiredis/hiredis.h>

#include "backend.h"

enum question {
	QUESTION_GREETING, /* AUTH, SELECT */
	QUESTION_GET,
	QUESTION_LENGTH, /* STRLEN */
	QUESTION_SET,	 /* also NX */
	QUESTION_SCRIPT, /* 1: done, 0: not the one with the token */
	QUESTION_LEASE,	 /* by a script: 1: it is ours, 0: another has it */
};

/*
 * `text` of `why` is one of this program's: what a server says is never passed
 * on.  The body of an answer to GET is taken out of the reply.
 */
struct outcome reply_outcome(enum question question, redisReply *reply);

/*
 * Whether after this answer the connection is of no use: another one may lead to
 * a server that is.  A replica gives what it has, so who waits for that is not
 * cut off; once nobody waits, another connection may lead to its master.
 */
enum reply_end { REPLY_STAYS, REPLY_ENDS_IDLE, REPLY_ENDS };

enum reply_end reply_ends_link(const redisReply *reply);

#endif /* KIR_REDIS_REPLY_H */
