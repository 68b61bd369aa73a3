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

#define BOUND	  ((uint64_t)2 << 20)
#define N_ENTRIES 6

/* What an operation may do to entries that it was not asked about. */
enum harm { SPARES_OTHERS, MAY_EVICT };

/*
 * What an operation begins with: a few entries, so many bytes that the next put
 * evicts, so many entries that one of the next makes it grow, no directory.
 */
enum before { SOME, FULL, MANY, NOTHING };

struct scene {
	const struct kind *kind;
	struct fault *fault;
	const char *directory;
	struct kiln_tier *tier;
	enum kiln_status status; /* below 0 also for: cut short */
	struct kiln_blob *blob;	 /* what a get handed out */
};

struct operation {
	const char *name;
	enum harm harm;
	enum before before;
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

/* A store to begin with, made once; and the copy of a round. */
void prepare_store(const struct kind *kind, const char *directory,
		   enum before before);
void copy_store(const char *from, const char *to, enum before before);

/* Open with the fault's table, bounded. */
enum kiln_status open_scene(struct scene *scene);

/* What must hold afterwards; ends with a store that was put to. */
void check_scene(struct scene *scene, const struct operation *operation);

void fail_scene(const struct scene *scene, const char *what);

#endif /* KI_TESTS_FAULT_OPERATIONS_H */
