/* SPDX-License-Identifier: MIT */
#ifndef KI_TESTS_REMOTE_STOCK_H
#define KI_TESTS_REMOTE_STOCK_H

/*
 * What lies on a real server, seen and changed behind kiln's back: items by their
 * names, 64 hexadecimal digits.
 */

#include <stddef.h>

#include "proxy.h"

#define STOCK_KINDS(X) X(REDIS, "redis") X(NGINX, "nginx") X(S3, "s3")

enum stock_kind {
#define STOCK_ENUM(id, name) STOCK_##id,
	STOCK_KINDS(STOCK_ENUM)
#undef STOCK_ENUM
		STOCK_N_KINDS
};

extern const char *const stock_names[STOCK_N_KINDS];

struct server;

struct stock {
	enum stock_kind kind;
	struct server *server;
	struct proxy *proxy; /* before it: what kiln is told to ask */
	char *directory;
	char url[128];	    /* of the proxy */
	char endpoint[128]; /* of S3, else "" */
};

/* 0: such a server is not installed here. */
int stock_open(struct stock *stock, enum stock_kind kind);
void stock_close(struct stock *stock);

/* From malloc(); NULL: there is none. */
char *stock_take(const struct stock *stock, const char *name, size_t *out_size);
void stock_lay(const struct stock *stock, const char *name, const void *bytes,
	       size_t size);
void stock_remove(const struct stock *stock, const char *name);

/* Until it is there. */
char *stock_await(const struct stock *stock, const char *name,
		  size_t *out_size);

#endif /* KI_TESTS_REMOTE_STOCK_H */
