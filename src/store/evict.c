/* SPDX-License-Identifier: MIT */

#include "store/evict.h"

#include <stdlib.h>
#include <string.h>

#include <kiln/kiln.h>

uint64_t ki_evict_build_ns(const void *metadata, size_t metadata_size)
{
	uint64_t build_ns;

	if (kiln_metadata_find_u64(metadata, metadata_size,
				   KILN_META_BUILD_TIME, &build_ns) ||
	    build_ns > KI_EVICT_BUILD_NS_MAX)
		return 0;
	return build_ns;
}

static int by_last_use(const void *a, const void *b)
{
	const struct ki_evictable *x = a, *y = b;

	if (x->used_ns != y->used_ns)
		return x->used_ns < y->used_ns ? -1 : 1;
	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	return 0;
}

/* How many from the front must go. */
static size_t n_to_go(const struct ki_evictable *entries, size_t n,
		      uint64_t bytes_max, int64_t used_before_ns)
{
	uint64_t bytes = 0;
	size_t i;

	for (i = 0; i < n; i++)
		bytes += entries[i].bytes;
	for (i = 0; i < n; i++) {
		if (bytes <= bytes_max && entries[i].used_ns >= used_before_ns)
			break;
		bytes -= entries[i].bytes;
	}
	return i;
}

size_t ki_evict_choose(struct ki_evictable *entries, size_t n,
		       uint64_t bytes_max, int64_t used_before_ns)
{
	if (n)
		qsort(entries, n, sizeof(*entries), by_last_use);
	return n_to_go(entries, n, bytes_max, used_before_ns);
}

/* ---- By cost --------------------------------------------------------------- */

#define IDLE_LEAST 16.0 /* a part of the longest */

static int log_of(uint64_t n)
{
	return n ? 63 - __builtin_clzll(n) : 0;
}

/* Of the nanoseconds for a byte, in 1024ths. */
static int rate_of(const struct ki_evictable *entry)
{
	const uint64_t ns = entry->build_ns < KI_EVICT_BUILD_NS_MAX
				    ? entry->build_ns
				    : KI_EVICT_BUILD_NS_MAX;

	return log_of(ns * 1024 / (entry->bytes ? entry->bytes : 1));
}

static int mean_rate(const struct ki_evictable *entries, size_t n)
{
	int64_t sum = 0, n_known = 0;
	size_t i;

	for (i = 0; i < n; i++)
		if (entries[i].build_ns) {
			sum += rate_of(&entries[i]);
			n_known++;
		}
	return n_known ? (int)((sum + n_known / 2) / n_known) : 0;
}

/* Doublings above or below the mean. */
static int steps_of(const struct ki_evictable *entry, int mean)
{
	const int steps = entry->build_ns ? rate_of(entry) - mean : 0;

	if (steps > KI_EVICT_STEPS)
		return KI_EVICT_STEPS;
	return steps < -KI_EVICT_STEPS ? -KI_EVICT_STEPS : steps;
}

/* Since it was used, in ns. */
static double idle_of(const struct ki_evictable *entry, int64_t now_ns)
{
	return entry->used_ns < now_ns ? (double)now_ns - (double)entry->used_ns
				       : 0;
}

static double longest_idle(const struct ki_evictable *entries, size_t n,
			   int64_t now_ns)
{
	double longest = 0;
	size_t i;

	for (i = 0; i < n; i++)
		if (entries[i].used_ns != KI_EVICT_FIRST &&
		    idle_of(&entries[i], now_ns) > longest)
			longest = idle_of(&entries[i], now_ns);
	return longest;
}

static int by_weight(const void *a, const void *b)
{
	const struct ki_evictable *x = a, *y = b;

	if ((x->used_ns == KI_EVICT_FIRST) != (y->used_ns == KI_EVICT_FIRST))
		return x->used_ns == KI_EVICT_FIRST ? -1 : 1;
	if (x->weight > y->weight || x->weight < y->weight)
		return x->weight > y->weight ? -1 : 1;
	return by_last_use(a, b);
}

void ki_evict_order_by_cost(struct ki_evictable *entries, size_t n,
			    int64_t now_ns)
{
	const double more = longest_idle(entries, n, now_ns) / IDLE_LEAST;
	const int mean = mean_rate(entries, n);
	size_t i;

	for (i = 0; i < n; i++) {
		const int steps = KI_EVICT_STEPS - steps_of(&entries[i], mean);
		const double idle = idle_of(&entries[i], now_ns) + more;

		entries[i].weight = idle * idle * (double)(1 << steps);
	}
	if (n)
		qsort(entries, n, sizeof(*entries), by_weight);
}

size_t ki_evict_choose_by_cost(struct ki_evictable *entries, size_t n,
			       uint64_t bytes_max, int64_t now_ns)
{
	ki_evict_order_by_cost(entries, n, now_ns);
	return n_to_go(entries, n, bytes_max, INT64_MIN);
}

/* ---- Files ----------------------------------------------------------------- */

/* From last use to cost; without memory it stays as it is. */
static void order_files(const struct ki_evict_files *kind, char *files,
			size_t n, int64_t now_ns)
{
	struct ki_evictable *entries = calloc(n, sizeof(*entries));
	char *before = calloc(n, kind->size);
	size_t n_weighed = 0, i;

	if (entries && before) {
		memcpy(before, files, n * kind->size);
		while (n_weighed < n &&
		       kind->weigh(before + n_weighed * kind->size,
				   &entries[n_weighed])) {
			entries[n_weighed].id = n_weighed;
			n_weighed++;
		}
		ki_evict_order_by_cost(entries, n_weighed, now_ns);
		for (i = 0; i < n_weighed; i++)
			memcpy(files + i * kind->size,
			       before + entries[i].id * kind->size, kind->size);
	}
	free(entries);
	free(before);
}

void ki_evict_sort(const struct ki_evict_files *kind, void *files, size_t n,
		   void *names, int by_cost, int64_t now_ns)
{
	if (!n)
		return;
	qsort_r(files, n, kind->size, kind->by_last_use, names);
	if (by_cost)
		order_files(kind, files, n, now_ns);
}
