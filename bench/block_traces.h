/* SPDX-License-Identifier: MIT */
#ifndef KILN_BENCH_BLOCK_TRACES_H
#define KILN_BENCH_BLOCK_TRACES_H

/*
 * Requests for blocks, the same in every run, by which policies are compared
 * for caches of 1024 lines; and the best that could be made of them.
 */

#include <stddef.h>
#include <stdint.h>

#define TRACE_LENGTH 400000
#define TRACE_LINES  1024

struct trace {
	const char *name;
	/* Hits of 100 requests, of LRU in four ways and of Belady's choice: by
	   them the trace is known to be the one that is meant. */
	double lru, best;
	/* What a policy that resists scans has to reach. */
	double bar;
	void (*make)(uint32_t blocks[TRACE_LENGTH]);
};

extern const struct trace traces[];
extern const size_t n_traces;

/* Blocks are below this. */
#define TRACE_BLOCKS 32768u

/* The hits of who knows the future, of 100. */
double trace_best(const uint32_t blocks[TRACE_LENGTH]);

#endif /* KILN_BENCH_BLOCK_TRACES_H */
