/* SPDX-License-Identifier: MIT */
#ifndef KIR_UPLOAD_H
#define KIR_UPLOAD_H

/*
 * What programs built goes to the servers after they have gone on.
 *
 *	put ──> queue ──> sealed ──> level 0 ──> level 1 ──> ... ──> done
 *	          │                   │  ^
 *	          full: dropped       └──┘ faults: 3 more tries, further and
 *	                                   further apart, then dropped there
 *
 * The queue is bounded by items and by bytes; what does not fit is dropped and
 * counted, as is what fails: whoever needs it builds it again.  Large items are
 * asked for before they are sent; all are written only where there is none, unless
 * a program refused what lies there.
 *
 * Also, what came from a far level and was found good is written to those nearer.
 */

#include "base/list.h"
#include "names.h"
#include "refused.h"
#include "sealer.h"
#include "sources.h"

#define UPLOADS_MAX	      4096
#define UPLOADS_BYTES_MAX     ((uint64_t)64 << 20)
#define UPLOADS_ACTIVE_MAX    8
#define UPLOAD_TRIES_MAX      4
#define UPLOAD_RETRY_MS	      250 /* then four times as long, and so on */
#define UPLOAD_KEPT_BYTES_MAX ((size_t)256 << 10) /* larger: by descriptor */

struct upload;

/* X(ID, "name") */
#define UPLOADS_COUNTS(X)                                                      \
	X(QUEUED, "queued")                                                    \
	X(TWICE, "twice")                                                      \
	X(DONE, "done")                                                        \
	X(FILLED, "filled")                                                    \
	X(RETRIED, "retried")                                                  \
	X(DROPPED_FULL, "dropped_full")                                        \
	X(DROPPED_UNSIGNED, "dropped_unsigned")                                \
	X(DROPPED_LARGE, "dropped_large")                                      \
	X(DROPPED_READONLY, "dropped_readonly")                                \
	X(DROPPED_FAULT, "dropped_fault")                                      \
	X(DROPPED_BAD, "dropped_bad")

enum uploads_count {
#define UPLOADS_ENUM(id, name) UPLOADS_##id,
	UPLOADS_COUNTS(UPLOADS_ENUM)
#undef UPLOADS_ENUM
		UPLOADS_N_COUNTS
};

extern const char *const uploads_names[UPLOADS_N_COUNTS];

/* A name has been uploaded, or given up. */
typedef void uploaded_fn(void *arg, const uint8_t name[KI_REMOTE_NAME_BYTES]);

struct uploads {
	struct loop *loop;
	struct sources *sources;
	struct refused *refused;
	struct sealer *sealer; /* NULL: nothing is sealed, so nothing written */
	uploaded_fn *uploaded;
	void (*emptied)(void *arg);
	void *arg;
	uint32_t retry_ms; /* the first wait */

	struct names names;
	struct ki_list waiting; /* the oldest first */
	unsigned n, n_active;
	int is_pumping;
	uint64_t bytes;
	uint64_t counts[UPLOADS_N_COUNTS];
};

void uploads_begin(struct uploads *uploads, struct loop *loop,
		   struct sources *sources, struct refused *refused,
		   struct sealer *sealer);
/* After sources and sealer: what is still there is dropped. */
void uploads_finish(struct uploads *uploads);

struct upload_put {
	const uint8_t *name;
	uint64_t user_version;
	uint64_t record_size, metadata_size, value_size;
	int replaces; /* what is there; else only where there is none */
	int fd;	      /* owned from now on */
};

/* Queue it.  FORMAT: the descriptor is not sealed memory of that size. */
enum kiln_status uploads_put(struct uploads *uploads,
			     const struct upload_put *put);

/* Write to the levels nearer than `level` what came from there. */
void uploads_fill(struct uploads *uploads,
		  const uint8_t name[KI_REMOTE_NAME_BYTES], unsigned level,
		  struct item *item);

int uploads_has(const struct uploads *uploads,
		const uint8_t name[KI_REMOTE_NAME_BYTES]);

#endif /* KIR_UPLOAD_H */
