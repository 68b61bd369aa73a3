/* SPDX-License-Identifier: MIT */
#ifndef KI_TESTS_FAULT_OPERATIONS_H
#define KI_TESTS_FAULT_OPERATIONS_H

/*
 * Every operation of a store, and what must hold after one that failed or was
 * cut short.  fault/stores.c lets calls fail, crash/crash.c lets the process
 * die.
 */

#include "harness/harness.h"

#include "conform/kinds.h"
#include "fault/fault.h"

#define BOUND	   ((uint64_t)2 << 20)
#define N_ENTRIES  6	/* of the numbers 0 to 5 */
#define FIRST_SIZE 1000 /* of their values */

#define FIRST_FILL 3000 /* numbers of what is there besides */
#define SMALL	   7000 /* of which a segment has several */
#define LARGE	   60000

/* What an operation may do to entries that it was not asked about. */
enum harm { SPARES_OTHERS, MAY_EVICT };

/*
 * What an operation begins with: no directory; a few entries; the same, of a store
 * with sessions; these and two large
 * ones, the index lost; the same with it; the few and so many
 * small ones that the next put rolls, or evicts the oldest segment, in which
 * some are in use; large ones, half of them in use, so many that the next
 * evicts; so many entries that the next put makes the store grow.
 */
enum before { NOTHING, SOME, SHARED, LOST, OWN, BRIM, USED, FULL, MANY };

/* What an operation is there for, and must really do if nothing stops it. */
enum work { NO_WORK, ROLLS, EVICTS, GROWS };

struct scene {
	const struct kind *kind;
	struct fault *fault;
	const char *directory;
	struct kiln_tier *tier;
	enum kiln_status status; /* below 0 also for: cut short */
	struct kiln_key *key;	 /* of an operation that is not listed */
	struct kiln_blob *blob;	 /* what a get handed out */
	unsigned n_filled;	 /* as prepare_store() says */
	int is_whole;		 /* nothing failed: its work was done */
	uint64_t work_before;	 /* how often the store had done it */
};

struct operation {
	const char *name;
	enum harm harm;
	enum before before;
	enum work work;
	int is_closed; /* the operation opens by itself */
	/* With the fault armed.  Asserts nothing, allocates nothing. */
	enum kiln_status (*run)(struct scene *scene);
	/* Afterwards, through a fresh handle: what must hold by status. */
	void (*check)(struct scene *scene, struct kiln_tier *tier);
};

extern const struct operation operations[]; /* the last has no name */

/* Before anything else, and at the end. */
void operations_begin(void);
void operations_end(void);

struct kiln_tier *open_real(const struct kind *kind, const char *directory);

/* Whether a kind has it. */
int has_operation(const struct kind *kind, const struct operation *operation);

/* A store to begin with, made once, with how many entries besides the first
   N_ENTRIES; and the copy of a round. */
unsigned prepare_store(const struct kind *kind, const char *directory,
		       enum before before);
void copy_store(const struct kind *kind, const char *from, const char *to,
		enum before before);

/* How often a store has done an operation's work, over all processes. */
uint64_t work_done(const struct kind *kind, const char *directory,
		   enum work work);

/* Open with the fault's table, bounded. */
enum kiln_status open_scene(struct scene *scene);

/*
 * What must hold afterwards: all that the store lists has the right bytes, its
 * files keep the bound.  Ends with a store that was put to.
 */
void check_scene(struct scene *scene, const struct operation *operation);

/* Whether entries that it was not asked about may be gone afterwards. */
int may_lose(const struct scene *scene, const struct operation *operation);

/* Part of it: everything that is listed is found with its bytes. */
void check_listed(struct scene *scene, struct kiln_tier *tier);

void fail_scene(const struct scene *scene, const char *what);

#endif /* KI_TESTS_FAULT_OPERATIONS_H */
