/* SPDX-License-Identifier: MIT */
#ifndef KILN_BENCH_OWN_MEMORY_H
#define KILN_BENCH_OWN_MEMORY_H

/*
 * What one shared library of this process allocates and maps.  A program that
 * is linked with this has malloc() and its relatives, mmap(), munmap() and
 * pthread_create() of its own, in place of libc's for everybody: a call that
 * returns into the library is the library's, and so is one from inside libc
 * (strdup(), opendir(), ...) that the library called.  Everything else goes by
 * uncounted.  Of a block what malloc() takes for it is counted, with its
 * header; of a mapping its pages, touched or not; of a thread its whole stack.
 *
 * glibc only.
 */

#include <stddef.h>

struct own_memory {
	size_t blocks; /* bytes of living malloc()s */
	size_t n_blocks;
	size_t mapped; /* bytes */
	size_t stacks; /* bytes */
	size_t peak;   /* of the sum of these three */
};

/* From now on, for the library of this file name, loaded yet or not. */
void own_memory_begin(const char *library);

void own_memory_read(struct own_memory *out_memory);

/* The call sites that hold most, one a line, as "BYTES BLOCKS OFFSET" with the
   offset that addr2line takes, to stderr. */
void own_memory_print_sites(void);

#endif /* KILN_BENCH_OWN_MEMORY_H */
