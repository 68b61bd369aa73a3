/* SPDX-License-Identifier: MIT */
#ifndef KIR_S3_H
#define KIR_S3_H

/*
 * s3://BUCKET/PREFIX: HTTP with signatures of version 4, and names without a
 * query, which is what libcurl signs right.  Where an endpoint is named, the
 * bucket is the first part of the path there; else it is Amazon's, by region.
 */

#include "backend.h"
#include "credentials.h"
#include "loop.h"
#include "remote/url.h"

/* `credential` NULL or without a secret: unsigned, for buckets that everybody
   reads.  Empties the URL on success.  NO_MEMORY. */
enum kiln_status s3_open(struct loop *loop, struct url *url,
			 const char *ca_file,
			 const struct credential *credential,
			 struct backend **out_backend);

#endif /* KIR_S3_H */
