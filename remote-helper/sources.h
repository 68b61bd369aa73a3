/* SPDX-License-Identifier: MIT */
#ifndef KIR_SOURCES_H
#define KIR_SOURCES_H

/*
 * The servers: levels of shards, each with a breaker and figures.
 *
 * Everything that is asked of a server goes through here, so that its breaker and
 * figures know of it.  Each request is an `ask`, which is part of whoever asks and
 * has to stay until `done` is called, which is always, and within the call
 * only for want of memory.
 *
 * A source has two breakers: one of reads, which somebody may wait for, and one of
 * writes, so that a server that is full or may only be read is still read.  The
 * first is probed by sources.c itself, by a name that no item has; the second by
 * the next upload.
 */

#include "backend.h"
#include "breaker.h"
#include "figures.h"
#include "names.h"
#include "remote/url.h"

struct loop_timer;
struct sources;

struct source {
	struct sources *all;
	const struct level *settings;
	unsigned level;
	struct backend *backend;
	struct breaker reads, writes;
	struct loop_timer *probe;
	struct figures figures;
	unsigned n_damaged; /* items in a row */
	int is_replica;	    /* it refused the last put as one */
	char why[128];	    /* of the last fault */
};

struct source_level {
	const struct level *settings;
	struct source *sources;
	uint64_t *hashes;
	size_t n;
};

typedef enum kiln_status sources_open_fn(struct loop *loop, const char *url,
					 const char *ca_file,
					 const struct credentials *credentials,
					 struct backend **out_backend,
					 char *why, size_t why_size);

struct sources {
	struct loop *loop;
	struct levels settings;
	struct source_level *levels;
	size_t n_levels;
	uint64_t random;
	int is_closing; /* what is called back asks nothing more */
};

/* What KILN_REMOTE says; NULL: nothing.  INVALID with `why`, NO_MEMORY; sources
   are as good as closed then. */
enum kiln_status sources_open(struct sources *sources, struct loop *loop,
			      const char *remote,
			      const struct credentials *credentials,
			      sources_open_fn *open, char *why,
			      size_t why_size);
/* What is under way is called back with IO first. */
void sources_close(struct sources *sources);

uint32_t sources_random(struct sources *sources);
/* `ms`, or up to a half more or less. */
uint32_t sources_jitter(struct sources *sources, uint32_t ms);

/* The one of a level that has this name. */
struct source *sources_of(struct sources *sources, unsigned level,
			  const uint8_t name[KI_REMOTE_NAME_BYTES]);

/* Until any source may be asked by who waits; 0: now, or there are none. */
uint32_t sources_wait_ms(const struct sources *sources);

/* Whether to ask it for items now; `waits`: somebody waits for the answer. */
int source_lets(struct source *source, int waits);
/* Whether to ask it for a lease: not where nothing can be written, as what is built
   would not come there. */
int source_lets_lease(struct source *source);
/* Whether to write to it now; if so, go ahead: it may be the probe. */
int source_lets_write(struct source *source);
/* Whether there is no use in waiting until it does: it may only be read. */
int source_takes_nothing(const struct source *source);

/* Whether items are written to a level. */
int sources_is_written(const struct sources *sources, unsigned level);
/* The level whose leases count, the farthest that has them; -1: none has. */
int sources_lease_level(const struct sources *sources);

/* ---- Asking -------------------------------------------------------------- */

enum ask_kind {
	ASK_GET,
	ASK_HEAD,
	ASK_PUT,
	ASK_RANGE,
	ASK_LEASE,
	ASK_RENEW,
	ASK_RELEASE,
	ASK_PROBE
};

struct ask {
	struct source *source; /* NULL: nothing is under way */
	enum ask_kind kind;
	int is_late; /* counted as such: what comes yet is no good answer */
	uint64_t begun_ns;
	uint64_t bytes_out;
	done_fn *done;
	void *arg;
};

/* done(ask->arg): set `done` and `arg` of each before.  At most SOURCE_BATCH_MAX.
   `body_max`: of each, where that is less than the level's max-item; 0: as that
   says. */
#define SOURCE_BATCH_MAX 64
void source_get(struct source *source, struct ask *const *asks,
		const char *const *names, size_t n, uint64_t body_max);
void source_head(struct source *source, struct ask *ask, const char *name,
		 uint32_t timeout_ms);
void source_put(struct source *source, struct ask *ask, const char *name,
		const void *body, size_t size, int only_new);
void source_lease(struct source *source, struct ask *ask, enum ask_kind kind,
		  const char *name, const char *token, uint32_t ttl_ms,
		  uint32_t timeout_ms);

/* Somebody waited in vain for what is under way. */
void source_is_late(struct ask *ask);
/* What a program found of an item that came from there. */
enum verdict {
	VERDICT_GOOD,
	VERDICT_DAMAGED, /* three in a row, and the source is left alone */
	VERDICT_UNTRUSTED, /* nobody trusted has signed it: whoever put it there */
	VERDICT_UNWANTED, /* nothing came from there */
};
void source_verdict(struct source *source, enum verdict verdict);

#endif /* KIR_SOURCES_H */
