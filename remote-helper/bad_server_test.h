/* SPDX-License-Identifier: MIT */
#ifndef KIR_BAD_SERVER_TEST_H
#define KIR_BAD_SERVER_TEST_H

/*
 * A server on the loop of the test itself, that answers whatever it is asked
 * with the same bytes, and then does what no server should.
 */

#include <stddef.h>
#include <sys/types.h>

#include "loop.h"

enum bad_end {
	BAD_KEEP,    /* waits for the next request */
	BAD_CLOSE,   /* hangs up */
	BAD_RESET,   /* so that the other side is told of an error */
	BAD_HANG,    /* never says anything again */
	BAD_ENDLESS, /* goes on with zeros for ever */
	BAD_DRIP,    /* the bytes one by one, one each 4 ms */
};

struct bad_server;

struct bad_server *bad_server_new(struct loop *loop, const char *bytes,
				  size_t size, enum bad_end end);
void bad_server_free(struct bad_server *server);

/* From now on. */
void bad_server_say(struct bad_server *server, const char *bytes, size_t size,
		    enum bad_end end);

unsigned bad_server_port(const struct bad_server *server);
/* All that it was asked, of the last 16 KiB. */
const char *bad_server_asked(const struct bad_server *server);
unsigned bad_server_n_connections(const struct bad_server *server);

#endif /* KIR_BAD_SERVER_TEST_H */
