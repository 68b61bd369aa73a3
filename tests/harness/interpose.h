/* SPDX-License-Identifier: MIT */
#ifndef KI_TESTS_INTERPOSE_H
#define KI_TESTS_INTERPOSE_H

/*
 * A table between a store and the system: copied from the real one, with calls
 * of its own, PREFIX_open and so on.  Here is what all such tables have in
 * common.
 */

#include "sys/sys.h"

/* Whom they ask in the end. */
static const struct ki_sys *const real = &ki_sys_posix;

#define INTERPOSE(table, prefix, name) ((table)->name = prefix##_##name)

/* The calls by which names and bytes change. */
#define INTERPOSE_CHANGES(table, prefix)                                       \
	do {                                                                   \
		INTERPOSE(table, prefix, open);                                \
		INTERPOSE(table, prefix, close);                               \
		INTERPOSE(table, prefix, pwritev);                             \
		INTERPOSE(table, prefix, fallocate);                           \
		INTERPOSE(table, prefix, link);                                \
		INTERPOSE(table, prefix, rename);                              \
		INTERPOSE(table, prefix, unlink);                              \
		INTERPOSE(table, prefix, mkdir);                               \
		INTERPOSE(table, prefix, rmdir);                               \
		INTERPOSE(table, prefix, map);                                 \
	} while (0)

/* Calls that are told a path and nothing else of interest: X(name, parameters,
   arguments of the real one). */
/* clang-format off */
#define INTERPOSED_PATH_CALLS(X)                                               \
	X(mkdir, (const struct ki_sys *sys, const char *path, unsigned mode),  \
	  (real, path, mode))                                                  \
	X(rmdir, (const struct ki_sys *sys, const char *path), (real, path))   \
	X(chmod, (const struct ki_sys *sys, const char *path, unsigned mode),  \
	  (real, path, mode))                                                  \
	X(touch, (const struct ki_sys *sys, const char *path), (real, path))
/* clang-format on */

#endif /* KI_TESTS_INTERPOSE_H */
