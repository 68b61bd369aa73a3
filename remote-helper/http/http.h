/* SPDX-License-Identifier: MIT */
#ifndef KIR_HTTP_H
#define KIR_HTTP_H

/*
 * Servers that take GET, HEAD and PUT of a name below a URL: nginx with WebDAV,
 * bazel-remote, and stores that speak S3 (s3/s3.h).
 */

#include "backend.h"
#include "credentials.h"
#include "loop.h"
#include "remote/url.h"

/* Where an HTTP backend is, in full. */
struct http_place {
	const char *scheme; /* of the configuration: "http", "https", "s3" */
	char *base;	    /* URL; a name comes behind it, after a "/" */
	char *shown;
	char *region; /* requests are signed as for S3; NULL: they are not */
};

/* For http:// and https://.  Empties the URL on success.  NO_MEMORY. */
enum kiln_status http_open(struct loop *loop, struct url *url,
			   const char *ca_file,
			   const struct credential *credential,
			   struct backend **out_backend);

/* The same of any place, which is emptied in every case. */
enum kiln_status http_open_place(struct loop *loop, struct http_place *place,
				 const char *ca_file,
				 const struct credential *credential,
				 struct backend **out_backend);

#endif /* KIR_HTTP_H */
