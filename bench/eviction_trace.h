/* SPDX-License-Identifier: MIT */
#ifndef KILN_BENCH_EVICTION_TRACE_H
#define KILN_BENCH_EVICTION_TRACE_H

/* Look-ups that real programs made, as tools/record writes them down. */

#include <stddef.h>
#include <stdint.h>

struct eviction_entry {
	uint64_t bytes;
	double build_s;
};

struct eviction_trace {
	char *name;
	struct eviction_entry *entries;
	size_t n_entries;
	uint32_t *lookups; /* numbers of entries */
	size_t n_lookups;
	uint64_t bytes; /* of all entries: the working set */
};

/* All files NAME.trace of a folder, by name; ends the program if one is wrong or
   there is none. */
struct eviction_trace *eviction_traces_read(const char *folder, size_t *out_n);
void eviction_traces_free(struct eviction_trace *traces, size_t n);

/* What a look-up in vain costs, but the first of each entry, which no cache
   saves. */
struct eviction_outcome {
	size_t n_hits;
	double rebuilt_s;
};

#endif /* KILN_BENCH_EVICTION_TRACE_H */
