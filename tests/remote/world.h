/* SPDX-License-Identifier: MIT */
#ifndef KI_TESTS_REMOTE_WORLD_H
#define KI_TESTS_REMOTE_WORLD_H

/*
 * A server of a kind for all tests of a program, nodes that know it, and programs on
 * these that ask for values.  main() is here: a test program has world_tests().
 */

#include "harness/harness.h"

#include "node.h"
#include "stock.h"

#define WORLD_VALUE_BYTES 20000

extern struct stock world_stock;

/* A node that asks it, "signed" or "transport". */
struct node *world_node(const char *trust);

/* What programs did in world_use(), and what their kiln counted. */
struct world_run {
	unsigned first, n;
	uint64_t build_ns;
	uint32_t flags;	  /* of kiln_open() */
	unsigned n_wrong; /* errors, and values that are not the key's */
	_Atomic unsigned n_builds;
	_Atomic unsigned n_remote; /* that came from the remote */
	_Atomic unsigned n_done;   /* calls */
	uint64_t ns_max;	   /* the longest call */
	uint64_t ns;		   /* all calls */
	uint64_t counters[KILN_N_COUNTERS];
};
extern struct world_run *world_run;

/* Values first to first + n, one after the other in a process of their own, whose
   kiln is opened and closed; each takes build_ns to build. */
void world_use_slow(struct node *node, unsigned first, unsigned n,
		    uint64_t build_ns);
/* Builds take no time. */
void world_use(struct node *node, unsigned first, unsigned n);
/* What that process does, for who starts it otherwise: world_run is set. */
int world_program(unsigned index, void *arg);

/* Until so many of its calls are done. */
void world_await(unsigned n_done);

/* Values come to the server: built, and uploaded. */
void world_fill(struct node *node, unsigned first, unsigned n);

int world_tests(enum stock_kind kind); /* runs them: cmocka's result */

#endif /* KI_TESTS_REMOTE_WORLD_H */
