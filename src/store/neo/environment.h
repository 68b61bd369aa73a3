/* SPDX-License-Identifier: MIT */
#ifndef KI_STORE_NEO_ENVIRONMENT_H
#define KI_STORE_NEO_ENVIRONMENT_H

/*
 * The variables by which users tell Intel's driver about its cache, and what they
 * mean here.  Values are read strictly; what the driver reads otherwise is told.
 */

#include <stddef.h>
#include <stdint.h>

#include "sys/sys.h"

/* X(ID, "NAME", "default", "default on Windows") */
#define KI_NEO_VARIABLES(X)                                                    \
	X(PERSISTENT, "NEO_CACHE_PERSISTENT", "1", "1")                        \
	X(DIR, "NEO_CACHE_DIR",                                                \
	  "$XDG_CACHE_HOME/neo_compiler_cache, else "                          \
	  "$HOME/.cache/neo_compiler_cache",                                   \
	  "%LocalAppData%\\NEO\\neo_compiler_cache")                           \
	X(MAX_SIZE, "NEO_CACHE_MAX_SIZE", "1G", "1G")                          \
	X(STATS, "NEO_CACHE_STATS", "0", "0")                                  \
	X(TRACE, "BinaryCacheTrace", "0", "0")                                 \
	X(MESSAGES, "PrintDebugMessages", "0", "0")                            \
	X(READ_KEYS, "NEOReadDebugKeys", "1", "1")

enum ki_neo_variable {
#define KI_NEO_VARIABLE(id, name, value, windows) KI_NEO_##id,
	KI_NEO_VARIABLES(KI_NEO_VARIABLE)
#undef KI_NEO_VARIABLE
		KI_NEO_N_VARIABLES
};

/* The name of one of them, and the default that holds here. */
const char *ki_neo_variable_name(enum ki_neo_variable variable);
const char *ki_neo_variable_default(enum ki_neo_variable variable);

#define KI_NEO_LINES_MAX 6
#define KI_NEO_LINE_MAX	 320

struct ki_neo_environment {
	/* As they stand in the environment, or NULL; borrowed from it. */
	const char *text[KI_NEO_N_VARIABLES];
	/* What holds; meaningless if is_wrong. */
	int is_on;
	int keeps_stats;
	int traces;   /* and NEOReadDebugKeys is not 0 */
	int messages; /* the same */
	uint64_t bytes_max;
	/* Where the cache is, "" if nowhere.  `why` is how it was chosen, or what
	   is missing. */
	char directory[KI_PATH_MAX];
	const char *why;
	/* What is to be told if the variables are in use, "NAME: ..."; of wrong
	   values, the first. */
	int is_wrong;
	char wrong[KI_NEO_LINE_MAX];
	char lines[KI_NEO_LINES_MAX][KI_NEO_LINE_MAX];
	size_t n_lines;
};

/* From NAME=VALUE, NULL-ended; NULL is an empty one. */
void ki_neo_environment_read(const char *const *variables,
			     struct ki_neo_environment *out);
/* Of this process; nothing is set for programs with more rights than their
   user. */
void ki_neo_environment(struct ki_neo_environment *out);

#endif /* KI_STORE_NEO_ENVIRONMENT_H */
