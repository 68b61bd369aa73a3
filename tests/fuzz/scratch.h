/* SPDX-License-Identifier: MIT */
#ifndef KI_TESTS_FUZZ_SCRATCH_H
#define KI_TESTS_FUZZ_SCRATCH_H

/* A directory for targets that read files, removed at the end. */

#include <stddef.h>

/* The same each time; never fails. */
const char *scratch_directory(void);

void scratch_write(const char *path, const void *data, size_t size);

/* Remove what is in a directory, not itself. */
void scratch_empty(const char *path);

#endif /* KI_TESTS_FUZZ_SCRATCH_H */
