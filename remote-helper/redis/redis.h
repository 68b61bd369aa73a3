/* SPDX-License-Identifier: MIT */
#ifndef KIR_REDIS_H
#define KIR_REDIS_H

/*
 * Redis, and what speaks like it: Valkey, Dragonfly, a proxy before a cluster.
 * Every command names one key, so that a proxy knows where it goes.
 */

#include "backend.h"
#include "credentials.h"
#include "loop.h"
#include "remote/url.h"

/* For redis:// and unix:.  Takes the URL over on success.  NO_MEMORY. */
enum kiln_status redis_open(struct loop *loop, struct url *url,
			    const struct credential *credential,
			    struct backend **out_backend);

#endif /* KIR_REDIS_H */
