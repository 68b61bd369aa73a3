/* SPDX-License-Identifier: MIT */
#ifndef KI_TESTS_OPENCL_PLACE_H
#define KI_TESTS_OPENCL_PLACE_H

/*
 * A program that nobody changed (calls.c), run in a place of its own with or
 * without the layer.  What counts is that it prints the same natively, cold
 * and warm; what the driver was asked tells that warm was warm.
 */

#include <stddef.h>
#include <stdint.h>

#include <kiln/inspect.h>

#define VARIABLES_MAX 32

/* Where one test keeps its things, and the environment of its programs. */
struct place {
	char *directory;
	char *store;
	char *log;
	char *calls;
	char *variables[VARIABLES_MAX];
	size_t n_variables;
};
void place_init(struct place *place);
void place_fini(struct place *place);

void set(struct place *place, const char *name, const char *value);
void unset(struct place *place, const char *name);
/* "NAME=VALUE NAME=VALUE": the stand-in's switches. */
void set_all(struct place *place, const char *switches);

/* Run the program: what it printed, from malloc(), with "exit N" at the end. */
char *run_program(struct place *place, const char *program, const char *layer,
		  const char *script, const char *options);
/* The same of calls.c. */
char *run(struct place *place, int with_layer, const char *script,
	  const char *options);

/* How many lines of a file, or calls of the driver, begin with this. */
unsigned lines(const char *path, const char *what);
unsigned calls(const struct place *place, const char *what);
/* Programs that the stand-in has not seen the end of. */
int living(const struct place *place);
/* Whether no more are left than natively, but for a shadow for each. */
int lets_go(const struct place *place, int n_native);
int log_has(const struct place *place, const char *words);
/* Lines of the log, but for those about the stand-in's own variables. */
unsigned n_complaints(const struct place *place);
uint64_t counter(const struct place *place, enum kiln_counter which);

/* Fill the store: an application that fetches binaries is captured. */
void prime(struct place *place, const char *options);
/* The same with all that a script builds by build() or build_for(). */
void prime_with(struct place *place, const char *script, const char *options);
/* The first line that differs says more than the whole. */
void same(const char *expected, const char *text);

#endif /* KI_TESTS_OPENCL_PLACE_H */
