/* SPDX-License-Identifier: MIT */
#ifndef KIR_PACK_H
#define KIR_PACK_H

/*
 * Packs by URL: parts of a file on a server (docs/formats/pack.md), which is all
 * the time the one that was opened, or an error.  Programs that open the same URL
 * share its connections; they stay for PACK_LINGER_MS after the last has closed it.
 *
 * A URL may have words as levels have (ca=, timeout=); it is no level, and is asked
 * for nothing else.
 */

#include "base/list.h"
#include "sources.h"

#define PACK_RANGE_BYTES_MAX (16u << 20)
#define PACKS_BYTES_MAX	     (256u << 20) /* on their way; beyond: FULL */
#define PACK_LINGER_MS	     30000
#define PACK_TAG_BYTES	     128
#define PACKS_MAX	     64	 /* URLs open at once */
#define PACK_HANDLES_MAX     256 /* of one connection; beyond: FULL */

struct connection;
struct pack_handle;

struct packs {
	struct loop *loop;
	const struct credentials *credentials;
	sources_open_fn *open;
	uint64_t random;
	struct ki_list packs;
	unsigned n;
	uint64_t next_handle;
	uint64_t bytes_asked; /* of parts that are on their way */
	/* Counted. */
	uint64_t n_opened, n_ranges, n_faults, bytes_in;
};

void packs_begin(struct packs *packs, struct loop *loop,
		 const struct credentials *credentials, sources_open_fn *open);
/* After all connections are closed. */
void packs_finish(struct packs *packs);

/* Each is answered, later or now. */
void packs_open(struct packs *packs, struct connection *connection, uint64_t id,
		const char *url, size_t url_size);
void packs_range(struct packs *packs, struct connection *connection,
		 uint64_t id, uint64_t handle, uint64_t offset, uint32_t size);
/* The connection is gone. */
void packs_forget(struct packs *packs, struct connection *connection);

#endif /* KIR_PACK_H */
