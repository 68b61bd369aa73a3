/* SPDX-License-Identifier: MIT */

/*
 * Memory hits: kiln_get_or_build() and kiln_blob_unref().  A name as argument
 * runs only that group: "map", and "1k" and "1M" (memory_tables.c) where all
 * of their peers are there.
 *
 * Group "map" is against what a C++ programmer would write (peer_map.h).  1000
 * entries; key records of 200 bytes, compared in full, by key objects
 * other than those that the values were put with.  Both sides have their
 * digests beforehand and walk the same shuffled order.  Rounds of the two are
 * interleaved, and each ratio is of one round; the median counts.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/kiln.h>

#include "bench.h"
#include "memory_tables.h"
#include "peer_map.h"
#include "together.h"

#define ENTRIES	     1000
#define RECORD_BYTES 200
#define VALUE_BYTES  4096
#define ROUNDS	     15

static struct kiln *kiln;
static struct kiln_key *keys[ENTRIES];
static unsigned order[ENTRIES];
static uint64_t n_ops = 2000000; /* of a thread in a round */

/* The record's frame around one field is the rest of its 200 bytes. */
static struct kiln_key *make_key(unsigned number)
{
	struct kiln_key *key = kiln_key_new();
	char text[RECORD_BYTES];
	size_t size;

	memset(text, 'k', sizeof(text));
	snprintf(text, 16, "%u", number);
	kiln_key_add(key, "source", text, RECORD_BYTES - 18);
	if (kiln_key_finish(key))
		bench_fail("no key");
	kiln_key_record(key, &size);
	if (size != RECORD_BYTES)
		bench_fail("a record of %zu bytes", size);
	return key;
}

static void never_build(const struct kiln_key *key, void *arg,
			struct kiln_build_result *result)
{
	bench_fail("a build instead of a hit");
}

static void fill(void)
{
	unsigned char value[VALUE_BYTES] = { 0 };
	struct kiln_options options;
	uint64_t seed = 1;

	kiln_options_init(&options);
	if (kiln_open(&options, &kiln))
		bench_fail("no kiln");
	for (unsigned i = 0; i < ENTRIES; i++) {
		struct kiln_key *key = make_key(i);

		memcpy(value, &i, sizeof(i));
		if (kiln_put(kiln, key, value, sizeof(value), NULL, 0))
			bench_fail("a value was not put");
		peer_put(kiln_key_digest(key), value, sizeof(value));
		kiln_key_free(key);
		order[i] = i;
	}
	for (unsigned i = 0; i < ENTRIES; i++)
		keys[i] = make_key(i);
	for (unsigned i = ENTRIES - 1; i; i--) {
		unsigned j, t = order[i];

		seed = seed * 6364136223846793005u + 1442695040888963407u;
		j = (unsigned)((seed >> 33) % (i + 1));
		order[i] = order[j];
		order[j] = t;
	}
}

static struct kiln_blob *hit(const struct kiln_key *key)
{
	struct kiln_build_result result;

	kiln_build_result_init(&result);
	if (kiln_get_or_build(kiln, key, never_build, NULL, &result))
		bench_fail("no hit");
	return result.blob;
}

/* Right first, then fast. */
static void check(void)
{
	for (unsigned i = 0; i < ENTRIES; i++) {
		struct kiln_blob *blob = hit(keys[i]);
		struct peer_value *value = peer_get(kiln_key_digest(keys[i]));

		if (memcmp(kiln_blob_data(blob), &i, sizeof(i)) || !value ||
		    memcmp(peer_data(value), &i, sizeof(i)))
			bench_fail("a wrong value");
		kiln_blob_unref(blob);
		peer_unref(value);
	}
}

typedef void side_fn(unsigned thread, void *arg);

static void kiln_side(unsigned thread, void *arg)
{
	unsigned place = 0;

	for (uint64_t i = 0; i < n_ops; i++) {
		struct kiln_blob *blob = hit(keys[order[place]]);

		bench_use(blob);
		kiln_blob_unref(blob);
		if (++place == ENTRIES)
			place = 0;
	}
}

static uint8_t digests[ENTRIES][16];

static void peer_side(unsigned thread, void *arg)
{
	unsigned place = 0;

	for (uint64_t i = 0; i < n_ops; i++) {
		struct peer_value *value = peer_get(digests[order[place]]);

		bench_use(value);
		peer_unref(value);
		if (++place == ENTRIES)
			place = 0;
	}
}

static void begin(void *arg)
{
	kiln_blob_unref(hit(keys[0])); /* a thread's first hit is dearer */
}

/* Wall time for one operation, over all threads. */
static double measure(side_fn *side, unsigned n_threads)
{
	struct together together = { .begin = begin, .body = side };

	return together_run(&together, n_threads) / (double)(n_ops * n_threads);
}

static void compare(struct bench *bench, unsigned n_threads, double bar)
{
	double kilns[ROUNDS], peers[ROUNDS], ratios[ROUNDS];
	const char *s = n_threads > 1 ? "s" : "";
	char name[80];

	for (int i = 0; i < ROUNDS; i++) {
		kilns[i] = measure(kiln_side, n_threads);
		peers[i] = measure(peer_side, n_threads);
		ratios[i] = kilns[i] / peers[i];
	}
	snprintf(name, sizeof(name), "memory hit, %u thread%s", n_threads, s);
	bench_row(bench, name, bench_median(kilns, ROUNDS), "ns");
	snprintf(name, sizeof(name), "unordered_map + mutex, %u thread%s",
		 n_threads, s);
	bench_row(bench, name, bench_median(peers, ROUNDS), "ns");
	snprintf(name, sizeof(name),
		 "memory hit : unordered_map + mutex, %u thread%s", n_threads,
		 s);
	bench_row_bar(bench, name, bench_median(ratios, ROUNDS), "", bar,
		      BENCH_LOWER);
}

static void map_group(struct bench *bench)
{
	if (bench->quick)
		n_ops /= 100;
	fill();
	for (unsigned i = 0; i < ENTRIES; i++)
		memcpy(digests[i], kiln_key_digest(keys[i]), 16);
	check();
	compare(bench, 1, 1.0);
	compare(bench, 2, 0.4);
	for (unsigned i = 0; i < ENTRIES; i++)
		kiln_key_free(keys[i]);
	kiln_close(kiln);
}

static const struct {
	const char *name;
	void (*run)(struct bench *bench);
} groups[] = {
	{ "map", map_group },
#ifdef BENCH_TABLES
	{ "1k", memory_tables_1k },
	{ "1M", memory_tables_1m },
#endif
};

int main(int argc, char **argv)
{
	struct bench bench;

	bench_begin(&bench, argc, argv, "memory");
	for (size_t i = 0; i < sizeof(groups) / sizeof(*groups); i++)
		if (bench_wants(&bench, groups[i].name))
			groups[i].run(&bench);
	return bench_end(&bench);
}
