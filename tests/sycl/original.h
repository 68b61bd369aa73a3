/* SPDX-License-Identifier: MIT */
#ifndef KILN_TESTS_SYCL_ORIGINAL_H
#define KILN_TESTS_SYCL_ORIGINAL_H

/*
 * DPC++'s persistent cache of 2025 and 2026, for one device and one image, by the
 * runtime's own protocol, system call by system call: what kiln shares directories
 * with, and is measured against.  Its defects are left in: lock files that a dead
 * owner leaves for ever, spinning without end, files written in place, sums that
 * an eviction writes over, lengths that are believed.
 */

#include <stddef.h>
#include <stdint.h>

struct original {
	const char *directory;
	uint64_t bytes_max; /* SYCL_CACHE_MAX_SIZE; 0: no eviction, no sum */
	/* NULL; or where an eviction adds what its sum says less than the one it
	   writes over should have said, atomically. */
	uint64_t *lost;
	/* The same of what it says more. */
	uint64_t *gained;
	/* NULL; or called in each eviction, before its sum is written. */
	void (*in_evict)(void);
};

struct original_bytes {
	const void *data;
	size_t size;
};

struct original_key {
	struct original_bytes device, options, spec, image;
};

/* std::hash<std::string>, as libstdc++ has it. */
uint64_t original_hash(const void *data, size_t size);

/* "DIRECTORY/d/i/s/o" */
#define ORIGINAL_PATH_BYTES 512
void original_place(const struct original *original,
		    const struct original_key *key,
		    char out[ORIGINAL_PATH_BYTES]);

/* Store as another entry, and evict: 0, -1 if nothing was stored. */
int original_put(const struct original *original,
		 const struct original_key *key, const void *binary,
		 size_t size);

/* The first binary whose .src says the same, from malloc(), or NULL; its time of
   access is written. */
void *original_get(const struct original *original,
		   const struct original_key *key, size_t *out_size);

/* The sizes of all .bin and .src added up. */
uint64_t original_sum(const char *directory);

/* What cache_size.txt says; 0 if it is not there. */
uint64_t original_noted(const char *directory);

#endif /* KILN_TESTS_SYCL_ORIGINAL_H */
