/* SPDX-License-Identifier: MIT */
#ifndef KI_PROGRAM_SEEDS_H
#define KI_PROGRAM_SEEDS_H

/*
 * Kernels by what seed 001 has for a key: constants, device and name.  Read
 * within a pin, without a lock; changed under the registry's mutex.
 *
 * Several programs may give a kernel for one such key: then it leads to none.
 * One kernel may be given several times, by keys for several sets of devices.
 */

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

struct kiln_kernel;

/* What is looked for. */
struct ki_seed_key {
	const void *constants;
	size_t constants_size;
	const char *name;
	size_t name_size;
	uint32_t unit;
	uint64_t hash;
};

void ki_seed_key_init(struct ki_seed_key *key, const void *constants,
		      size_t constants_size, uint32_t unit, const char *name);

/* One that gives a kernel: a part of what the registry has of it. */
struct ki_seed_giver {
	struct ki_seed *seed; /* NULL: it gives none */
	struct kiln_kernel *kernel;
	struct ki_list of_seed;
	struct ki_list of_kernel; /* all its givers, few */
};

struct ki_seed {
	/* Fixed. */
	uint64_t hash;
	size_t constants_size;
	size_t name_size;
	uint32_t unit;
	/* Atomic: the one that is given, or NULL. */
	struct kiln_kernel *_Atomic kernel;
	/* Under mutex. */
	struct ki_list givers;
	size_t n_kernels;     /* that are given */
	struct ki_seed *next; /* of those that are out of reach */
	/* Fixed. */
	char bytes[]; /* constants, name */
};

struct ki_seed_table {
	size_t mask;
	struct ki_seed_table *next;	  /* out of reach */
	struct ki_seed *_Atomic places[]; /* NULL: here a search ends */
};

/* Of one time. */
struct ki_seed_garbage {
	uint64_t tag;
	unsigned n;
	struct ki_seed *seeds;
	struct ki_seed_table *tables;
};

struct ki_seeds {
	/* Atomic. */
	struct ki_seed_table *_Atomic table; /* NULL: there are none */
	/* Under mutex. */
	size_t n;			/* that are there */
	size_t n_used;			/* places that are not NULL */
	struct ki_seed_garbage waiting; /* to be let go together */
	struct ki_seed_garbage garbage; /* until no reader sees it */
};

void ki_seeds_init(struct ki_seeds *seeds);
/* Nobody looks any more, and nobody gives. */
void ki_seeds_fini(struct ki_seeds *seeds);

/* -ENOMEM. */
int ki_seeds_join(struct ki_seeds *seeds, const struct ki_seed_key *key,
		  struct kiln_kernel *kernel, struct ki_seed_giver *giver);
void ki_seeds_leave(struct ki_seeds *seeds, struct ki_seed_giver *giver);

/* Within a pin, or under the mutex: the kernel, or NULL. */
struct kiln_kernel *ki_seeds_find(struct ki_seeds *seeds,
				  const struct ki_seed_key *key);

#endif /* KI_PROGRAM_SEEDS_H */
