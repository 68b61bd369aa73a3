/* SPDX-License-Identifier: MIT */
#ifndef KILN_TESTS_NEO_ORIGINAL_H
#define KILN_TESTS_NEO_ORIGINAL_H

/*
 * Intel's compiler cache, flat, by the driver's own protocol, step by step as it
 * is described: what kiln shares directories with, and is measured against.  Its
 * defects are left in.
 */

#include <stddef.h>
#include <stdint.h>

/* config.file, open and locked, and what it says; made and counted if it is not
   there.  -1. */
int original_lock(const char *directory, uint64_t *out_total);
void original_unlock(int fd);

/* Store under a name, evicting for it: 0, also if it is there; -1. */
int original_store(const char *directory, uint64_t bytes_max, const char *name,
		   const void *data, size_t size);

/* The sizes of all entries added up, under nobody's lock. */
uint64_t original_sum(const char *directory);

#endif /* KILN_TESTS_NEO_ORIGINAL_H */
