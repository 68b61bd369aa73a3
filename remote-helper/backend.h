/* SPDX-License-Identifier: MIT */
#ifndef KIR_BACKEND_H
#define KIR_BACKEND_H

/*
 * A backend talks to one server.  It never waits: it starts what is asked for,
 * and calls back from the loop (loop.h), never from within the call but with
 * NO_MEMORY, when that is done, has failed, or its time is over.  What is above it knows of levels, shards, breakers and retries;
 * a backend knows of none of that.
 *
 * Threads    All in the one thread of the loop.
 * Ownership  Bytes and names are borrowed for the call; a body handed to `done`
 *            is taken over by it (free()).
 * Names      32 bytes in hex.  On a server: Redis `kiln:NAME`, a lease
 *            `kiln:lease:NAME`; HTTP and S3 `NAME` below the URL.
 * Secrets    A backend holds credentials in memory of sodium_malloc() and puts
 *            none of them into a message.
 */

#include <stddef.h>
#include <stdint.h>

#include <kiln/kiln.h>

#include "remote/protocol.h"

struct loop;
struct backend;

/* What a request was answered with. */
struct outcome {
	/*
	 * OK; MISS (the server has none); EXISTS (a conditional put, a lease that
	 * another has); OWNER (401, 403: credentials); FULL (quota, 507);
	 * READONLY (a replica: what is there can be read);
	 * TOO_LARGE (body beyond the limit); TIMEOUT; IO; FORMAT (the server
	 * speaks something else); UNSUPPORTED.
	 */
	enum kiln_status status;
	uint8_t *body; /* of a get or a range, from malloc(); else NULL */
	size_t body_size;
	uint64_t
		total_bytes; /* of the whole thing, where head or range tells */
	const char *why;     /* half a sentence without secrets, or NULL */
};

typedef void done_fn(void *arg, const struct outcome *outcome);

struct backend_ops {
	const char *scheme; /* "redis", "unix", "http", "https", "s3" */

	/* Get many at once: one round trip where the server can.  `done` is
	   called once for each, args[i] with it. */
	void (*get)(struct backend *backend, const char *const *names,
		    size_t n_names, uint64_t body_max, uint32_t timeout_ms,
		    done_fn *done, void *const *args);
	void (*head)(struct backend *backend, const char *name,
		     uint32_t timeout_ms, done_fn *done, void *arg);
	/* `body` stays until `done`.  ttl_s 0: for good; a server that has no time
	   to live ignores it.  only_new: EXISTS if one is there, as far as the
	   server can say so; 0 also replaces one that turned out to be bad. */
	void (*put)(struct backend *backend, const char *name, const void *body,
		    size_t body_size, uint64_t ttl_s, int only_new,
		    uint32_t timeout_ms, done_fn *done, void *arg);
	/* Bytes of the thing at the backend's own URL + name ("" : the URL itself).
	   NULL: cannot.  `tag`, inout, stays until `done`: what the version is
	   called ("": any); a mismatch is IO. */
	void (*range)(struct backend *backend, const char *name,
		      uint64_t offset, uint32_t size, char tag[128],
		      uint32_t timeout_ms, done_fn *done, void *arg);
	/* SET NX PX with the token; OK, EXISTS.  NULL: no leases. */
	void (*lease)(struct backend *backend, const char *name,
		      const char *token, uint32_t ttl_ms, uint32_t timeout_ms,
		      done_fn *done, void *arg);
	/* Only while the token is still its value: OK, MISS (lost). */
	void (*renew)(struct backend *backend, const char *name,
		      const char *token, uint32_t ttl_ms, uint32_t timeout_ms,
		      done_fn *done, void *arg);
	void (*release)(struct backend *backend, const char *name,
			const char *token, uint32_t timeout_ms, done_fn *done,
			void *arg);
	/* Outstanding requests are called back with IO first, and may ask for
	   nothing then.  Not from `done`. */
	void (*close)(struct backend *backend);
};

struct backend {
	const struct backend_ops *ops;
	const char
		*shown; /* the URL as it may be shown: no user, no password */
};

struct credentials; /* credentials.h */

/*
 * Open by URL.  Connects when first asked.  INVALID with `why` for a URL that
 * cannot be (which thing, and the remedy): user or password in the URL, rediss://,
 * an unknown scheme or word.
 */
enum kiln_status backend_open(struct loop *loop, const char *url,
			      const char *ca_file,
			      const struct credentials *credentials,
			      struct backend **out_backend, char *why,
			      size_t why_size);

#endif /* KIR_BACKEND_H */
