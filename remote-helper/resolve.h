/* SPDX-License-Identifier: MIT */
#ifndef KIR_RESOLVE_H
#define KIR_RESOLVE_H

/*
 * Addresses of a host, without waiting: getaddrinfo() may take half a minute
 * where a name server is silent, so a thread of its own waits for it.  However
 * often one asks meanwhile, and whoever has gone in the end, there is one such
 * thread for a resolver.
 */

#include <stddef.h>
#include <sys/socket.h>

#include <kiln/kiln.h>

#include "loop.h"

struct address {
	struct sockaddr_storage bytes;
	socklen_t size;
};

#define ADDRESSES_MAX 8

/* Of a host that is written as an address: 1; else 0. */
int address_parse(const char *host, unsigned port, struct address *out_address);

struct resolver;

/* KILN_OK with addresses that are good for the call; IO: there are none. */
typedef void resolved_fn(void *arg, enum kiln_status status,
			 const struct address *addresses, size_t n_addresses);

/* NULL: no memory.  `host` is borrowed for as long as it is there. */
struct resolver *resolver_new(struct loop *loop, const char *host,
			      unsigned port);
void resolver_free(struct resolver *resolver); /* NULL is fine */

/* `fn` is called from the loop, once, unless it is forgotten before.  IO,
   NO_MEMORY: it will not be. */
enum kiln_status resolver_begin(struct resolver *resolver, resolved_fn *fn,
				void *arg);
void resolver_forget(struct resolver *resolver);

#endif /* KIR_RESOLVE_H */
