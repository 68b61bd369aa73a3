/* SPDX-License-Identifier: MIT */
#ifndef KIR_REQUESTS_H
#define KIR_REQUESTS_H

/* What each frame of a program asks for. */

#include "remote/protocol.h"

struct connection;

/*
 * One whole frame; `body` has frame->size bytes, borrowed.  `fd`: the descriptor
 * that came with a PUT, owned by the callee; else -1.  FORMAT: a rule was
 * broken, and the connection is to be closed.
 */
enum kiln_status requests_handle(struct connection *connection,
				 const struct ki_frame *frame,
				 const uint8_t *body, int fd);

/* The connection is gone: so is what it waits for and holds. */
void requests_forget(struct connection *connection);

#endif /* KIR_REQUESTS_H */
