/* SPDX-License-Identifier: MIT */
#ifndef KI_TESTS_LIBCACHE_ORIGINAL_H
#define KI_TESTS_LIBCACHE_ORIGINAL_H

/*
 * A plain stand-in of the original's way, to compare with: sets of four lines,
 * a table of pointers sorted by tag that is searched and sorted with callbacks,
 * a list in order of use that every hit relinks, memory per line, and one mutex
 * around every call, device I/O included.  Its mistakes are there too: a line
 * that goes leaves the table unsorted.
 *
 * The functions are those of <cache.h>, under names of their own.
 */

#include <cache.h>

#ifdef __cplusplus
extern "C" {
#endif

struct original;

struct original *original_init(size_t size, size_t line_size, size_t n_lines,
			       const cache_ops_t *ops);
int original_deinit(struct original *cache);
ssize_t original_read(struct original *cache, uint64_t addr, void *buffer,
		      size_t count);
ssize_t original_write(struct original *cache, uint64_t addr,
		       const void *buffer, size_t count, int policy);
int original_flush(struct original *cache, uint64_t begin, uint64_t end);
int original_invalidate(struct original *cache, uint64_t begin, uint64_t end);
int original_clean(struct original *cache, uint64_t begin, uint64_t end);

/* Bytes that a line takes besides its data. */
size_t original_bytes_per_line(void);

#ifdef __cplusplus
}
#endif
#endif /* KI_TESTS_LIBCACHE_ORIGINAL_H */
