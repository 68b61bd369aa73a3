/* SPDX-License-Identifier: MIT */
#ifndef KIR_HTTP_WEB_H
#define KIR_HTTP_WEB_H

/*
 * Requests over HTTP, by libcurl on the loop: connections are kept and limited in
 * number, certificates verified, bytes taken as they are.
 *
 * Proxies    From the environment, as curl has it: http_proxy (small letters),
 *            HTTPS_PROXY, ALL_PROXY, NO_PROXY.
 * Redirects  Only within the same scheme, host and port; others are an error.
 */

#include <stddef.h>
#include <stdint.h>

#include "backend.h"
#include "credentials.h"
#include "loop.h"

struct web;

enum web_method { WEB_GET, WEB_HEAD, WEB_PUT };

struct web_ask {
	enum web_method method;
	const char *url;
	const void *body; /* of a put; stays until `done` */
	size_t body_size;
	uint64_t body_max; /* of what comes */
	/* A range: these bytes and no others; size 0: all. */
	uint64_t offset;
	uint32_t size;
	char *tag; /* 128 bytes, stays until `done`; NULL: none */
	int only_new;
	uint32_t timeout_ms;
	done_fn *done;
	void *arg;
};

/* All but the loop is borrowed for its life.  `region`: requests are signed as
   S3 wants it; NULL: they are not.  NULL: no memory. */
struct web *web_new(struct loop *loop, const char *ca_file,
		    const struct credential *credential, const char *region);
/* Whoever still waits is answered IO.  NULL is fine. */
void web_close(struct web *web);

void web_begin(struct web *web, const struct web_ask *ask);

#endif /* KIR_HTTP_WEB_H */
