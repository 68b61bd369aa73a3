/* SPDX-License-Identifier: MIT */
#ifndef KI_STORE_QUOTAS_H
#define KI_STORE_QUOTAS_H

/*
 * NAME.quotas: what single namespaces of a store may take, and about how much they
 * do.  There is no such file before somebody sets a quota, nor after the last one
 * was taken back.
 *
 * It is opened for one change or look and closed again, and locked in between, so
 * that what is read here may be written here.  Where there are no locks changes may
 * be lost: an account that is wrong is put right when it is counted.
 */

#include <kiln/inspect.h>

#include "sys/sys.h"

#define KI_QUOTAS_END "quotas"

struct ki_quota {
	char name[KILN_NAMESPACE_BYTES]; /* "": no row, to be used */
	uint64_t bytes_max;		 /* 0: that of the others, or none */
	/* What its entries came to when they were counted, and what was put since;
	   KILN_NAMESPACE_UNCOUNTED. */
	uint64_t bytes;
	uint64_t turn;	  /* how often they were counted */
	uint64_t n_begun; /* and how often that was begun */
	uint64_t n_evicted;
	uint64_t n_refused;
};

struct ki_quotas {
	/* All there are from 0 to n - 1, and room for more. */
	struct ki_quota rows[KILN_NAMESPACES_MAX];
	size_t n;
	/* Whether what has no row has no entries, as far as kilns know that count. */
	int is_complete;
	/* Of the file. */
	const struct ki_sys *sys;
	int fd;
	struct ki_fork_close place;
};

/* PEEK: without the lock; a row that is being written may be none, or without an
   account. */
enum ki_quotas_mode {
	KI_QUOTAS_PEEK,
	KI_QUOTAS_LOOK,
	KI_QUOTAS_CHANGE,
	KI_QUOTAS_MAKE
};

/*
 * 0 with a structure for ki_quotas_close(), or -ENOENT (but in MAKE), -ETIMEDOUT
 * (others have it), -EINVAL (of a newer version, or no file), -EBADMSG (damaged;
 * MAKE begins its head anew), -ENOMEM, and what the system says.  flags:
 * KILN_OPEN_*.
 */
int ki_quotas_open(const struct ki_sys *sys, const char *path, unsigned flags,
		   enum ki_quotas_mode mode, uint64_t deadline_ns,
		   struct ki_quotas **out_quotas);
void ki_quotas_close(struct ki_quotas *quotas);

/* NULL if there is none. */
struct ki_quota *ki_quotas_find(struct ki_quotas *quotas, const char *name);
/* A row for a name that has none, not written yet: the one of another that has no
   quota of its own where there is no room.  NULL: all have. */
struct ki_quota *ki_quotas_add(struct ki_quotas *quotas, const char *name);
/* What a row may take, by its own quota or that of the others; 0: no end. */
uint64_t ki_quotas_limit(struct ki_quotas *quotas, const struct ki_quota *row);

/* Write a row as it is now; the head, after is_complete was changed. */
int ki_quotas_write(struct ki_quotas *quotas, const struct ki_quota *row);
int ki_quotas_write_head(struct ki_quotas *quotas);

#endif /* KI_STORE_QUOTAS_H */
