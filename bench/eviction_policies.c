/* SPDX-License-Identifier: MIT */

/*
 * Traces are short, so nobody has a queue here: who goes is found by a look at
 * all that are in.
 */

#include "eviction_policies.h"

#include <stdlib.h>
#include <string.h>

#include "bench.h"

struct resident {
	int is_in;
	int is_main;	    /* of S3-FIFO: not one of the new */
	unsigned n_uses;    /* after the one that brought it in */
	uint64_t turn;	    /* last use, or its place in a queue */
	uint64_t left_turn; /* of S3-FIFO: when it went, new; 0: not */
	double level;
};

struct cache {
	const struct eviction_trace *trace;
	uint64_t capacity;
	uint64_t bytes;
	uint64_t new_bytes; /* of those that are not in main */
	uint64_t turn;
	double level; /* of what went last */
	struct resident *residents;
};

/* What distinguishes the policies; both are told of an entry. */
struct ways {
	void (*use)(struct cache *cache, uint32_t entry);
	/* Room for the entry, which is not in, and put it in. */
	void (*put)(struct cache *cache, uint32_t entry);
};

static uint64_t bytes_of(const struct cache *cache, uint32_t entry)
{
	return cache->trace->entries[entry].bytes;
}

static int fits(const struct cache *cache, uint32_t entry)
{
	return cache->bytes + bytes_of(cache, entry) <= cache->capacity;
}

static void bring_in(struct cache *cache, uint32_t entry)
{
	struct resident *resident = &cache->residents[entry];

	resident->is_in = 1;
	resident->is_main = 0;
	resident->n_uses = 0;
	resident->turn = ++cache->turn;
	cache->bytes += bytes_of(cache, entry);
	cache->new_bytes += bytes_of(cache, entry);
}

static void move_to_main(struct cache *cache, uint32_t entry)
{
	cache->residents[entry].is_main = 1;
	cache->new_bytes -= bytes_of(cache, entry);
}

static void drop(struct cache *cache, uint32_t entry)
{
	cache->residents[entry].is_in = 0;
	cache->bytes -= bytes_of(cache, entry);
	if (!cache->residents[entry].is_main)
		cache->new_bytes -= bytes_of(cache, entry);
}

/* The first by turn of those in main, or not. */
static uint32_t first_of(const struct cache *cache, int is_main)
{
	uint32_t first = UINT32_MAX;

	for (uint32_t i = 0; i < cache->trace->n_entries; i++)
		if (cache->residents[i].is_in &&
		    cache->residents[i].is_main == is_main &&
		    (first == UINT32_MAX ||
		     cache->residents[i].turn < cache->residents[first].turn))
			first = i;
	return first;
}

/* ---- By last use ------------------------------------------------------------- */

static void use_now(struct cache *cache, uint32_t entry)
{
	cache->residents[entry].turn = ++cache->turn;
}

/* The oldest, until no more than this is left. */
static void drop_to(struct cache *cache, uint64_t bytes)
{
	while (cache->bytes > bytes)
		drop(cache, first_of(cache, 0));
}

static void put_neo(struct cache *cache, uint32_t entry)
{
	uint64_t goal = cache->bytes - cache->capacity / 3;

	if (!fits(cache, entry))
		drop_to(cache, cache->bytes > cache->capacity / 3 ? goal : 0);
	/* Once for each, as the original; a large one may find no place. */
	if (fits(cache, entry))
		bring_in(cache, entry);
}

static void put_sycl(struct cache *cache, uint32_t entry)
{
	bring_in(cache, entry);
	if (cache->bytes > cache->capacity)
		drop_to(cache, cache->capacity / 2);
}

static void put_lru(struct cache *cache, uint32_t entry)
{
	drop_to(cache, cache->capacity - bytes_of(cache, entry));
	bring_in(cache, entry);
}

static const struct ways neo = { use_now, put_neo };
static const struct ways sycl = { use_now, put_sycl };
static const struct ways lru = { use_now, put_lru };

/* ---- By arrival -------------------------------------------------------------- */

static void count_use(struct cache *cache, uint32_t entry)
{
	cache->residents[entry].n_uses++;
}

static void put_chance(struct cache *cache, uint32_t entry)
{
	while (!fits(cache, entry)) {
		uint32_t first = first_of(cache, 0);
		struct resident *resident = &cache->residents[first];

		if (!resident->n_uses) {
			drop(cache, first);
			continue;
		}
		resident->n_uses = 0;
		resident->turn = ++cache->turn;
	}
	bring_in(cache, entry);
}

static const struct ways second_chance = { count_use, put_chance };

/* A use counts up to three. */
static void count_some(struct cache *cache, uint32_t entry)
{
	if (cache->residents[entry].n_uses < 3)
		cache->residents[entry].n_uses++;
}

static void evict_new(struct cache *cache)
{
	uint32_t first = first_of(cache, 0);
	struct resident *resident = &cache->residents[first];

	if (resident->n_uses > 1) {
		resident->n_uses = 0;
		resident->turn = ++cache->turn;
		move_to_main(cache, first);
	} else {
		drop(cache, first);
		resident->left_turn = ++cache->turn;
	}
}

static void evict_main(struct cache *cache)
{
	uint32_t first = first_of(cache, 1);
	struct resident *resident = &cache->residents[first];

	if (!resident->n_uses) {
		drop(cache, first);
		return;
	}
	resident->n_uses--;
	resident->turn = ++cache->turn;
}

/* Whether it is remembered: what went after it is less than main. */
static int is_remembered(const struct cache *cache, uint32_t entry)
{
	const uint64_t turn = cache->residents[entry].left_turn;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < cache->trace->n_entries; i++)
		if (cache->residents[i].left_turn > turn)
			bytes += bytes_of(cache, i);
	return turn && bytes < cache->capacity / 10 * 9;
}

static void put_s3_fifo(struct cache *cache, uint32_t entry)
{
	int is_known = is_remembered(cache, entry);

	while (!fits(cache, entry))
		if (cache->new_bytes > cache->capacity / 10 ||
		    cache->new_bytes == cache->bytes)
			evict_new(cache);
		else
			evict_main(cache);
	bring_in(cache, entry);
	cache->residents[entry].left_turn = 0;
	if (is_known)
		move_to_main(cache, entry);
}

static const struct ways s3_fifo = { count_some, put_s3_fifo };

/* ---- By cost ----------------------------------------------------------------- */

static void raise(struct cache *cache, uint32_t entry)
{
	const struct eviction_entry *what = &cache->trace->entries[entry];
	struct resident *resident = &cache->residents[entry];

	resident->level = cache->level + (1 + resident->n_uses) *
						 what->build_s /
						 (double)what->bytes;
}

static void use_gdsf(struct cache *cache, uint32_t entry)
{
	cache->residents[entry].n_uses++;
	raise(cache, entry);
}

static uint32_t lowest(const struct cache *cache)
{
	uint32_t found = UINT32_MAX;

	for (uint32_t i = 0; i < cache->trace->n_entries; i++)
		if (cache->residents[i].is_in &&
		    (found == UINT32_MAX ||
		     cache->residents[i].level < cache->residents[found].level))
			found = i;
	return found;
}

static void put_gdsf(struct cache *cache, uint32_t entry)
{
	while (!fits(cache, entry)) {
		uint32_t victim = lowest(cache);

		cache->level = cache->residents[victim].level;
		drop(cache, victim);
	}
	bring_in(cache, entry);
	raise(cache, entry);
}

static const struct ways gdsf = { use_gdsf, put_gdsf };

/* ---- Replaying --------------------------------------------------------------- */

static struct eviction_outcome replay(const struct eviction_trace *trace,
				      uint64_t capacity,
				      const struct ways *ways)
{
	struct eviction_outcome outcome = { .n_hits = 0 };
	struct cache cache = { .trace = trace, .capacity = capacity };
	uint8_t *was_seen = calloc(trace->n_entries, 1);

	cache.residents = calloc(trace->n_entries, sizeof(*cache.residents));
	if (!cache.residents || !was_seen)
		bench_fail("out of memory");
	for (size_t i = 0; i < trace->n_lookups; i++) {
		const uint32_t entry = trace->lookups[i];

		if (cache.residents[entry].is_in) {
			outcome.n_hits++;
			ways->use(&cache, entry);
			continue;
		}
		if (was_seen[entry])
			outcome.rebuilt_s += trace->entries[entry].build_s;
		was_seen[entry] = 1;
		if (trace->entries[entry].bytes <= capacity)
			ways->put(&cache, entry);
		if (cache.bytes > capacity)
			bench_fail("%s: more than fits", trace->name);
	}
	free(was_seen);
	free(cache.residents);
	return outcome;
}

#define REPLAY(name)                                                           \
	static struct eviction_outcome replay_##name(                          \
		const struct eviction_trace *trace, uint64_t capacity)         \
	{                                                                      \
		return replay(trace, capacity, &name);                         \
	}
REPLAY(neo)
REPLAY(sycl)
REPLAY(lru)
REPLAY(second_chance)
REPLAY(s3_fifo)
REPLAY(gdsf)

/* ---- Who knows the future ---------------------------------------------------- */

/* From one use of an entry to the next. */
struct gap {
	size_t from, to;
	uint32_t entry;
	double worth; /* seconds per byte and look-up */
};

static int by_worth(const void *a, const void *b)
{
	const struct gap *x = a, *y = b;

	if (x->worth != y->worth)
		return x->worth > y->worth ? -1 : 1;
	return x->from < y->from ? -1 : 1;
}

static size_t find_gaps(const struct eviction_trace *trace, struct gap *gaps)
{
	size_t *last = calloc(trace->n_entries, sizeof(*last)), n = 0;

	if (!last)
		bench_fail("out of memory");
	for (size_t i = 0; i < trace->n_lookups; i++) {
		const uint32_t entry = trace->lookups[i];
		const struct eviction_entry *what = &trace->entries[entry];

		if (last[entry])
			gaps[n++] = (struct gap){
				last[entry] - 1, i, entry,
				what->build_s / ((double)what->bytes *
						 (double)(i + 1 - last[entry]))
			};
		last[entry] = i + 1;
	}
	free(last);
	return n;
}

/* Whether there is room throughout, which is taken then. */
static int take(uint64_t *taken, const struct gap *gap, uint64_t bytes,
		uint64_t capacity)
{
	for (size_t i = gap->from; i < gap->to; i++)
		if (taken[i] + bytes > capacity)
			return 0;
	for (size_t i = gap->from; i < gap->to; i++)
		taken[i] += bytes;
	return 1;
}

static struct eviction_outcome replay_belady(const struct eviction_trace *trace,
					     uint64_t capacity)
{
	struct eviction_outcome outcome = { .n_hits = 0 };
	struct gap *gaps = calloc(trace->n_lookups + 1, sizeof(*gaps));
	uint64_t *taken = calloc(trace->n_lookups + 1, sizeof(*taken));
	size_t n;

	if (!gaps || !taken)
		bench_fail("out of memory");
	n = find_gaps(trace, gaps);
	if (n)
		qsort(gaps, n, sizeof(*gaps), by_worth);
	for (size_t i = 0; i < n; i++) {
		const struct eviction_entry *what =
			&trace->entries[gaps[i].entry];

		if (take(taken, &gaps[i], what->bytes, capacity))
			outcome.n_hits++;
		else
			outcome.rebuilt_s += what->build_s;
	}
	free(gaps);
	free(taken);
	return outcome;
}

const struct eviction_policy eviction_policies[] = {
	{ "NEO's third", replay_neo, 1 },
	{ "SYCL's half", replay_sycl, 1 },
	{ "LRU", replay_lru, 1 },
	{ "second chance", replay_second_chance, 0 },
	{ "S3-FIFO", replay_s3_fifo, 0 },
	{ "GDSF", replay_gdsf, 0 },
	{ "Belady, by cost", replay_belady, 0 },
};
const size_t n_eviction_policies =
	sizeof(eviction_policies) / sizeof(*eviction_policies);
