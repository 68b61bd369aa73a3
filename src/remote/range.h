/* SPDX-License-Identifier: MIT */
#ifndef KI_REMOTE_RANGE_H
#define KI_REMOTE_RANGE_H

/*
 * Bytes of a file on a server, any part of it at any time, read through
 * kiln-remote: the device of a pack that is not downloaded.
 *
 * A file that changes on the server fails from then on.  Calls that fail, and what
 * others take beyond 200 ms, may come to 1 s in a process, and then to a sixtieth of
 * the time: calls beyond that fail at once.  Threads: any.
 */

#include <sys/types.h>

#include <kiln/kiln.h>

#include "sys/sys.h"

struct ki_range;

#define KI_RANGE_CALLS 8 /* that may be under way at once */

/*
 * Texts are copied.  `is_guest`: connected only within a call.  UNSUPPORTED: there
 * is no helper; TIMEOUT; what the helper says of the file: MISS, OWNER (credentials),
 * IO, UNSUPPORTED...; NO_MEMORY.
 */
enum kiln_status ki_range_open(const struct ki_sys *sys, const char *socket,
			       const char *url, int is_guest,
			       struct ki_range **out_range);
void ki_range_close(struct ki_range *range); /* NULL is fine */

uint64_t ki_range_bytes(const struct ki_range *range);

/* All that is asked for: `count`, or -1. */
ssize_t ki_range_read(struct ki_range *range, uint64_t offset, void *buffer,
		      size_t count);

/* For tests: as at the start of a process. */
void ki_range_forget(void);

#endif /* KI_REMOTE_RANGE_H */
