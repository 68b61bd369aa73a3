/* SPDX-License-Identifier: MIT */
#ifndef KILN_TESTS_NEO_ORIGINAL_H
#define KILN_TESTS_NEO_ORIGINAL_H

/*
 * Intel's compiler cache, flat (24.13 to 26.04) and as a tree (26.14 on, with
 * NEO_CACHE_STATS), by the driver's own protocol, step by step as it is described:
 * what kiln shares directories with, and is measured against.  Its defects are left
 * in.
 */

#include <stddef.h>
#include <stdint.h>

enum original_layout { ORIGINAL_FLAT, ORIGINAL_TREE };

struct original {
	const char *directory;
	enum original_layout layout;
	uint64_t bytes_max;
};

/* config.file, open and locked, and what it says; made and counted if it is not
   there.  -1. */
int original_lock(const char *directory, enum original_layout layout,
		  uint64_t *out_total);
void original_unlock(int fd);

/* Store under a name, 16 digits and an extension, evicting for it: 0, also if it
   is there; -1. */
int original_store(const struct original *original, const char *name,
		   const void *data, size_t size);

/* What is stored under a name, from malloc(), or NULL; counted in the tree.  Flat
   an empty file is a hit. */
void *original_look_up(const struct original *original, const char *name,
		       size_t *out_size);

/* The sizes of all entries added up, under nobody's lock; the tree's with what a
   flat one has left.  UINT64_MAX: something could not be looked at. */
uint64_t original_sum(const char *directory, enum original_layout layout);

#endif /* KILN_TESTS_NEO_ORIGINAL_H */
