/* SPDX-License-Identifier: MIT */
#ifndef KILN_BENCH_ORIGINAL_PROGRAMS_H
#define KILN_BENCH_ORIGINAL_PROGRAMS_H

/*
 * How SYCL's runtime finds kernels and programs, for comparison: maps behind a
 * lock, values shared by counted pointers.  Written for the benchmark after
 * what is known of the original: a standard map and mutex for what it calls
 * its fast cache (keyed by constants, device and name), the program map with
 * the move to the end of its eviction list, and the newest form of the fast
 * cache, a short vector for each kernel behind a spin lock.
 */

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

void original_put(const void *constants, size_t constants_size, void *device,
		  const char *name, void *handle);
/* The handle, with the value's count raised and dropped as by a caller. */
void *original_hit(const void *constants, size_t constants_size, void *device,
		   const char *name);

/* The newest: a kernel's own place, of which the caller has the number. */
void original_put_newest(unsigned number, void *device, void *handle);
void *original_hit_newest(unsigned number, void *device);

void original_free(void);

#ifdef __cplusplus
}
#endif
#endif /* KILN_BENCH_ORIGINAL_PROGRAMS_H */
