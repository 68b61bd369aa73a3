/* SPDX-License-Identifier: MIT */
#ifndef KI_WORKER_HELPERS_TEST_H
#define KI_WORKER_HELPERS_TEST_H

/*
 * For the tests that run kiln-worker, which KILN_WORKER names: the program with its
 * lines on a pipe, and the store that it works on.
 */

#include <sys/types.h>

#include <kiln/kiln.h>

#include "front/opencl/recipe.h"

struct running {
	pid_t pid;
	int fd;
	char text[16384]; /* all that was read */
	size_t size;
};

/* What is in `more` (NULL-ended, or NULL) stands behind spool and store. */
void running_start(struct running *running, const char *spool, const char *url,
		   const char *const *more);
/* 0 at the end of the output. */
int read_more(struct running *running);
/* To its end: the wait status. */
int running_finish(struct running *running);

/* Fails with the text if a part is not in it. */
void assert_has(const char *text, const char *part);

/* One that can be used. */
struct kiln *open_store_at(const char *url, uint32_t flags);

/* A build of one source. */
struct ki_cl_recipe *recipe_of_text(const char *text, const char *options);

#endif /* KI_WORKER_HELPERS_TEST_H */
