/* SPDX-License-Identifier: MIT */
#ifndef KIR_NAMES_H
#define KIR_NAMES_H

/*
 * A table by the names of items.  The link is part of what is found, as of a
 * list.  Names are digests: their first bytes are hash enough.
 */

#include <stddef.h>
#include <stdint.h>

#include "remote/protocol.h"

struct name_link {
	struct name_link *next;
	uint8_t name[KI_REMOTE_NAME_BYTES];
};

/* Zeros are an empty one. */
struct names {
	struct name_link **buckets;
	size_t n_buckets; /* a power of two, or 0 */
	size_t n;
};

/* The links are their owners'. */
void names_fini(struct names *names);

/* The one that was added last; NULL: none. */
struct name_link *names_find(const struct names *names,
			     const uint8_t name[KI_REMOTE_NAME_BYTES]);
/* The one of the same name that was added before. */
struct name_link *names_next(const struct name_link *link);

/* Several may have one name.  0: no memory. */
int names_add(struct names *names, struct name_link *link,
	      const uint8_t name[KI_REMOTE_NAME_BYTES]);
void names_remove(struct names *names, struct name_link *link);

/* Any; NULL: it is empty. */
struct name_link *names_any(const struct names *names);
/* One after the other, as long as nothing is added or removed; after NULL the
   first, after the last NULL. */
struct name_link *names_after(const struct names *names,
			      const struct name_link *link);

/* As servers are asked for it. */
#define NAME_TEXT_BYTES (2 * KI_REMOTE_NAME_BYTES + 1)

#endif /* KIR_NAMES_H */
