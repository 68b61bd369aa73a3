/* SPDX-License-Identifier: MIT */
#ifndef KI_CORE_SYCL_H
#define KI_CORE_SYCL_H

/*
 * The variables of SYCL's caches and what they mean here, in two dialects:
 *
 *				seed		dpcpp
 *	MAX_SIZE		megabytes, 8192	bytes, 0: no bound
 *	THRESHOLD		days, 7		not read
 *	EVICTION_DISABLE	any		not read
 *
 * The first is that of SYCL's documents, the second what DPC++ reads.  Which one
 * holds says SYCL_CACHE_DIALECT; if that is not set it is dpcpp in a directory
 * where DPC++ keeps its sum of sizes, whose limit the two then share, else seed.
 */

#include <stddef.h>
#include <stdint.h>

#include "sys/sys.h"

enum ki_sycl_type {
	KI_SYCL_TEXT, /* may be set to nothing */
	KI_SYCL_FLAG,
	KI_SYCL_NUMBER,
	KI_SYCL_ROOTED,
	KI_SYCL_CHOICE,
	KI_SYCL_MASK, /* whatever it says means something */
};

/* Bits of SYCL_CACHE_TRACE. */
#define KI_SYCL_TRACE_DISK	      1u
#define KI_SYCL_TRACE_MEMORY	      2u
#define KI_SYCL_TRACE_KERNEL_COMPILER 4u

/* X(ID, "NAME", type, largest number, "default", "default in dpcpp") */
#define KI_SYCL_VARIABLES(X)                                                   \
	X(DIALECT, "SYCL_CACHE_DIALECT", CHOICE, 0, "seed", "dpcpp")           \
	X(PERSISTENT, "SYCL_CACHE_PERSISTENT", FLAG, 0, "0", "0")              \
	X(IN_MEM, "SYCL_CACHE_IN_MEM", FLAG, 0, "1", "1")                      \
	X(DIR, "SYCL_CACHE_DIR", ROOTED, 0, "", "")                            \
	X(MAX_SIZE, "SYCL_CACHE_MAX_SIZE", NUMBER, INT64_MAX, "8192", "0")     \
	X(THRESHOLD, "SYCL_CACHE_THRESHOLD", NUMBER, 36500, "7", "")           \
	X(EVICTION_DISABLE, "SYCL_CACHE_EVICTION_DISABLE", TEXT, 0, "", "")    \
	X(IN_MEM_THRESHOLD, "SYCL_IN_MEM_CACHE_EVICTION_THRESHOLD", NUMBER,    \
	  INT64_MAX, "0", "0")                                                 \
	X(IMAGE_MIN, "SYCL_CACHE_MIN_DEVICE_IMAGE_SIZE", NUMBER, INT64_MAX,    \
	  "0", "0")                                                            \
	X(IMAGE_MAX, "SYCL_CACHE_MAX_DEVICE_IMAGE_SIZE", NUMBER, INT64_MAX,    \
	  "1073741824", "1073741824")                                          \
	X(TRACE, "SYCL_CACHE_TRACE", MASK, 0, "0", "0")                        \
	X(COMPILE, "SYCL_PROGRAM_COMPILE_OPTIONS", TEXT, 0, "", "")            \
	X(LINK, "SYCL_PROGRAM_LINK_OPTIONS", TEXT, 0, "", "")                  \
	X(APPEND_COMPILE, "SYCL_PROGRAM_APPEND_COMPILE_OPTIONS", TEXT, 0, "",  \
	  "")                                                                  \
	X(APPEND_LINK, "SYCL_PROGRAM_APPEND_LINK_OPTIONS", TEXT, 0, "", "")

enum ki_sycl_variable {
#define KI_SYCL_VARIABLE(id, name, type, max, seed, dpcpp) KI_SYCL_##id,
	KI_SYCL_VARIABLES(KI_SYCL_VARIABLE)
#undef KI_SYCL_VARIABLE
		KI_SYCL_N_VARIABLES
};

const char *ki_sycl_variable_name(enum ki_sycl_variable variable);

#define KI_SYCL_LINES_MAX 4
#define KI_SYCL_LINE_MAX  320

struct ki_sycl_environment {
	/* As they stand in the environment, wrong or not; NULL: not set.
	   Borrowed from it. */
	const char *text[KI_SYCL_N_VARIABLES];
	/* Set, and to something that is right. */
	int is_given[KI_SYCL_N_VARIABLES];
	uint64_t number[KI_SYCL_N_VARIABLES]; /* what holds */
	int is_dpcpp;
	const char *dialect_why;
	uint64_t bytes_max; /* 0: none */
	uint64_t age_max_s; /* 0: none */
	/* Where the cache is, "" if nowhere, and how that was chosen or what is
	   missing. */
	char directory[KI_PATH_MAX];
	const char *why;
	/* "NAME: ...": of wrong values, the first, and what is doubtful. */
	int is_wrong;
	int is_too_large; /* that is it, in this dialect */
	char wrong[KI_SYCL_LINE_MAX];
	char lines[KI_SYCL_LINES_MAX][KI_SYCL_LINE_MAX];
	size_t n_lines;
};

/* From NAME=VALUE, NULL-ended; NULL is an empty one. */
void ki_sycl_environment_read(const char *const *variables,
			      struct ki_sycl_environment *out);
/* Of this process; nothing is set for programs with more rights than their
   user. */
void ki_sycl_environment(struct ki_sycl_environment *out);
/* The dialect, and with it limits, for another directory than its own. */
void ki_sycl_environment_choose(struct ki_sycl_environment *environment,
				const char *directory);
/* The default that holds; "" if nothing does. */
const char *ki_sycl_variable_default(
	const struct ki_sycl_environment *environment,
	enum ki_sycl_variable variable);

#endif /* KI_CORE_SYCL_H */
