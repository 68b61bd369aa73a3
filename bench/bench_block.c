/* SPDX-License-Identifier: MIT */

/*
 * The block cache against a plain stand-in of the original's way and against
 * memcpy().  Turns of all that is compared are interleaved; ratios are of one
 * round, and their medians count.  Before it is timed everything is read and
 * compared with what the device has.  Groups by name: hits threads beside calls
 * traces memory pack.
 */

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cache.h>
#include <kiln/block.h>

#include "bench.h"
#include "block_pack.h"
#include "block_traces.h"
#include "original.h"
#include "together.h"

#define ROUNDS_MAX 31
#define N_LINES	   1024
#define N_PLACES   4096 /* where is read, again and again */

static struct bench bench;

static size_t n_rounds(void)
{
	return bench.quick ? 1 : ROUNDS_MAX;
}

/* ---- The device ------------------------------------------------------------------ */

struct cache_devCtx_s {
	uint8_t *bytes;
	size_t size;
	atomic_size_t n_reads, n_writes, bytes_written;
	unsigned delay_us;
	atomic_int is_inside; /* a call that takes its time */
};

/* As a buffer lies to where its bytes come from, so fast is a copy: 10 % up or
   down by chance.  Here all lie alike. */
#define PAGE  4096
#define ALIKE __attribute__((aligned(64)))

static void device_init(struct cache_devCtx_s *device, size_t size)
{
	*device = (struct cache_devCtx_s){
		.bytes = aligned_alloc(PAGE, (size + PAGE - 1) / PAGE * PAGE),
		.size = size
	};
	if (!device->bytes)
		bench_fail("out of memory");
	for (size_t i = 0; i < size; i++)
		device->bytes[i] = (uint8_t)(i * 2654435761u >> 11);
}

static ssize_t read_device(uint64_t offset, void *buffer, size_t count,
			   cache_devCtx_t *device)
{
	if (offset > device->size || count > device->size - offset)
		bench_fail("a read beyond the end of the device");
	if (device->delay_us) {
		const struct timespec delay = { 0, device->delay_us * 1000L };

		device->is_inside = 1;
		nanosleep(&delay, NULL);
		device->is_inside = 0;
	}
	memcpy(buffer, device->bytes + offset, count);
	atomic_fetch_add(&device->n_reads, 1);
	return (ssize_t)count;
}

static ssize_t write_device(uint64_t offset, const void *buffer, size_t count,
			    cache_devCtx_t *device)
{
	if (offset > device->size || count > device->size - offset)
		bench_fail("a write beyond the end of the device");
	memcpy(device->bytes + offset, buffer, count);
	atomic_fetch_add(&device->n_writes, 1);
	atomic_fetch_add(&device->bytes_written, count);
	return (ssize_t)count;
}

static ssize_t read_block_device(uint64_t offset, void *buffer, size_t count,
				 void *context)
{
	return read_device(offset, buffer, count, context);
}

static ssize_t write_block_device(uint64_t offset, const void *buffer,
				  size_t count, void *context)
{
	return write_device(offset, buffer, count, context);
}

/* ---- The caches ------------------------------------------------------------------- */

static struct kiln_block_options options_of(const struct cache_devCtx_s *device,
					    size_t line)
{
	struct kiln_block_options options = kiln_block_options_default();

	options.device_bytes = device->size;
	options.line_bytes = line;
	options.n_lines = N_LINES;
	return options;
}

static struct kiln_block *open_block(const struct kiln_block_options *options,
				     struct cache_devCtx_s *device)
{
	const struct kiln_block_device on = { .read = read_block_device,
					      .write = write_block_device,
					      .context = device };
	struct kiln_block *block;

	if (kiln_block_open(options, &on, &block))
		bench_fail("no block cache");
	return block;
}

static struct original *open_original(struct cache_devCtx_s *device,
				      size_t line)
{
	const cache_ops_t ops = { read_device, write_device, device };
	struct original *cache =
		original_init(device->size, line, N_LINES, &ops);

	if (!cache)
		bench_fail("no stand-in");
	return cache;
}

static cachectx_t *open_libcache(struct cache_devCtx_s *device, size_t line)
{
	const cache_ops_t ops = { read_device, write_device, device };
	cachectx_t *cache = cache_init(device->size, line, N_LINES, &ops);

	if (!cache)
		bench_fail("no libcache");
	return cache;
}

/* ---- Hits --------------------------------------------------------------------------- */

/* All of a device is cached, or a part that fits, and is read at random. */
struct hits {
	struct cache_devCtx_s device;
	struct kiln_block *block;
	struct original *original;
	cachectx_t *libcache;
	size_t count;
	uint64_t places[N_PLACES];
	size_t n_times;
};

static uint64_t next_random(void)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

static void check_hits(struct hits *hits)
{
	uint8_t *buffer = malloc(hits->count);
	size_t n_reads;

	if (!buffer)
		bench_fail("out of memory");
	for (int turn = 0; turn < 2; turn++) {
		n_reads = hits->device.n_reads;
		for (size_t i = 0; i < N_PLACES; i++) {
			const uint64_t at = hits->places[i];
			const uint8_t *right = hits->device.bytes + at;
			const ssize_t n = (ssize_t)hits->count;

			if (kiln_block_read(hits->block, at, buffer,
					    hits->count) != n ||
			    memcmp(buffer, right, hits->count))
				bench_fail("the block cache reads wrongly");
			if (original_read(hits->original, at, buffer,
					  hits->count) != n ||
			    memcmp(buffer, right, hits->count))
				bench_fail("the stand-in reads wrongly");
			if (cache_read(hits->libcache, at, buffer,
				       hits->count) != n ||
			    memcmp(buffer, right, hits->count))
				bench_fail("libcache reads wrongly");
		}
	}
	if (hits->device.n_reads != n_reads)
		bench_fail("not all are hits");
	free(buffer);
}

static void hits_init(struct hits *hits, size_t line, size_t count)
{
	struct kiln_block_options options;

	device_init(&hits->device, line * N_LINES);
	options = options_of(&hits->device, line);
	hits->block = open_block(&options, &hits->device);
	hits->original = open_original(&hits->device, line);
	hits->libcache = open_libcache(&hits->device, line);
	hits->count = count;
	for (size_t i = 0; i < N_PLACES; i++) {
		const size_t unit = count < line ? count : line;
		const size_t n = (hits->device.size - count) / unit + 1;

		hits->places[i] = next_random() % n * unit;
	}
	hits->n_times = bench.quick ? 1 : 1 + 200 / (1 + count / 64);
	check_hits(hits);
}

static void hits_fini(struct hits *hits)
{
	if (kiln_block_close(hits->block) || original_deinit(hits->original) ||
	    cache_deinit(hits->libcache))
		bench_fail("a cache cannot be closed");
	free(hits->device.bytes);
}

enum who { BLOCK, ORIGINAL, LIBCACHE, MEMCPY, N_WHO };

static void read_block_hits(const struct hits *hits)
{
	ALIKE uint8_t buffer[4096];

	for (size_t i = 0; i < N_PLACES; i++) {
		(void)kiln_block_read(hits->block, hits->places[i], buffer,
				      hits->count);
		bench_use(buffer);
	}
}

static void read_original_hits(const struct hits *hits)
{
	ALIKE uint8_t buffer[4096];

	for (size_t i = 0; i < N_PLACES; i++) {
		(void)original_read(hits->original, hits->places[i], buffer,
				    hits->count);
		bench_use(buffer);
	}
}

static void read_libcache_hits(const struct hits *hits)
{
	ALIKE uint8_t buffer[4096];

	for (size_t i = 0; i < N_PLACES; i++) {
		(void)cache_read(hits->libcache, hits->places[i], buffer,
				 hits->count);
		bench_use(buffer);
	}
}

static void copy_hits(const struct hits *hits)
{
	ALIKE uint8_t buffer[4096];

	for (size_t i = 0; i < N_PLACES; i++) {
		memcpy(buffer, hits->device.bytes + hits->places[i],
		       hits->count);
		bench_use(buffer);
	}
}

static double time_hits(const struct hits *hits, enum who who)
{
	static void (*const ways[N_WHO])(const struct hits *hits) = {
		read_block_hits, read_original_hits, read_libcache_hits,
		copy_hits
	};
	const uint64_t begin = bench_now_ns();

	for (size_t i = 0; i < hits->n_times; i++)
		ways[who](hits);
	return (double)(bench_now_ns() - begin) /
	       (double)(hits->n_times * N_PLACES);
}

struct hit_times {
	double ns[N_WHO][ROUNDS_MAX];
};

static double ratio_of(const struct hit_times *times, enum who a, enum who b)
{
	double ratios[ROUNDS_MAX];

	for (size_t r = 0; r < n_rounds(); r++)
		ratios[r] = times->ns[a][r] / times->ns[b][r];
	return bench_median(ratios, n_rounds());
}

static void hit_rows(const char *what, size_t line, size_t count,
		     struct hit_times *times)
{
	static const char *const names[N_WHO] = { "block", "stand-in",
						  "libcache", "memcpy" };
	struct hits *hits = malloc(sizeof(*hits));
	char name[100];

	if (!hits)
		bench_fail("out of memory");
	hits_init(hits, line, count);
	for (size_t r = 0; r < n_rounds(); r++) {
		for (int who = 0; who < N_WHO; who++)
			times->ns[who][r] = time_hits(hits, (enum who)who);
	}
	hits_fini(hits);
	for (int who = 0; who < N_WHO; who++) {
		double copy[ROUNDS_MAX];

		memcpy(copy, times->ns[who], sizeof(copy));
		snprintf(name, sizeof(name), "%s, %s", what, names[who]);
		bench_row(&bench, name, bench_median(copy, n_rounds()), "ns");
	}
	free(hits);
}

static void hits_group(void)
{
	struct hit_times times;

	hit_rows("8 B hit, 64 B lines", 64, 8, &times);
	bench_row_bar(&bench, "8 B hit, 64 B lines : stand-in",
		      ratio_of(&times, BLOCK, ORIGINAL), "", 0.5, BENCH_LOWER);
	bench_row_bar(&bench, "libcache, 8 B hit, 64 B lines : stand-in",
		      ratio_of(&times, LIBCACHE, ORIGINAL), "", 0.5,
		      BENCH_LOWER);
	hit_rows("4096 B hit, 4096 B lines", 4096, 4096, &times);
	bench_row_bar(&bench, "4096 B hit, 4096 B lines : memcpy",
		      ratio_of(&times, BLOCK, MEMCPY), "", 1.15, BENCH_LOWER);
	bench_row_bar(&bench, "libcache, 4096 B hit, 4096 B lines : memcpy",
		      ratio_of(&times, LIBCACHE, MEMCPY), "", 1.15,
		      BENCH_LOWER);
	hit_rows("4096 B over 64 B lines", 64, 4096, &times);
	bench_row_bar(&bench, "4096 B over 64 B lines : stand-in",
		      ratio_of(&times, BLOCK, ORIGINAL), "", 0.4, BENCH_LOWER);
	bench_row_bar(&bench, "libcache, 4096 B over 64 B lines : stand-in",
		      ratio_of(&times, LIBCACHE, ORIGINAL), "", 0.4,
		      BENCH_LOWER);
}

/* ---- Threads ---------------------------------------------------------------------------- */

static void hits_in_a_thread(unsigned thread, void *arg)
{
	const struct hits *hits = arg;

	for (size_t i = 0; i < hits->n_times; i++)
		read_block_hits(hits);
}

static void originals_in_a_thread(unsigned thread, void *arg)
{
	const struct hits *hits = arg;

	for (size_t i = 0; i < hits->n_times; i++)
		read_original_hits(hits);
}

static void copies_in_a_thread(unsigned thread, void *arg)
{
	const struct hits *hits = arg;

	for (size_t i = 0; i < hits->n_times; i++)
		copy_hits(hits);
}

#define TURN_NS	    1e8 /* new threads share a processor for some milliseconds */
#define N_TURNS	    11
#define N_TURNS_MAX (2 * N_TURNS)

static void count_in_a_thread(unsigned thread, void *arg)
{
	const size_t n = (size_t)TURN_NS;

	for (size_t i = 0; i < n; i++)
		bench_use(&i);
}

/* Whether there are two processors for two threads that share nothing. */
static int are_two_processors(void)
{
	const struct together counting = { .body = count_in_a_thread };
	const double one = together_run(&counting, 1);

	return 2 * one / together_run(&counting, 2) > 1.8;
}

/* The throughput of two threads to that of one, in turn.  A turn during which
   something else took a processor says nothing: it is taken again. */
static double scaling(struct hits *hits, void (*body)(unsigned, void *),
		      size_t *n_again)
{
	const struct together together = { .body = body, .arg = hits };
	const size_t n = bench.quick ? 1 : N_TURNS;
	double ratios[N_TURNS], one;
	size_t r = 0, turn;

	hits->n_times = 1;
	one = together_run(&together, 1);
	if (!bench.quick)
		hits->n_times += (size_t)(TURN_NS / one);
	for (turn = 0; r < n; turn++) {
		one = together_run(&together, 1);
		ratios[r] = 2 * one / together_run(&together, 2);
		if (bench.quick || turn - r >= N_TURNS_MAX - n ||
		    are_two_processors())
			r++;
		bench_progress("threads", r, n);
	}
	*n_again += turn - n;
	return bench_median(ratios, n);
}

static void threads_group(void)
{
	static const struct {
		const char *name;
		size_t line, count;
	} rows[] = { { "8 B hits", 64, 8 }, { "4096 B hits", 4096, 4096 } };
	size_t n_again = 0;

	for (size_t i = 0; i < 2; i++) {
		struct hits *hits = malloc(sizeof(*hits));
		char name[100];

		if (!hits)
			bench_fail("out of memory");
		hits_init(hits, rows[i].line, rows[i].count);
		snprintf(name, sizeof(name), "%s, 2 threads : 1 thread",
			 rows[i].name);
		bench_row_bar(&bench, name,
			      scaling(hits, hits_in_a_thread, &n_again), "",
			      1.7, BENCH_HIGHER);
		snprintf(name, sizeof(name), "%s, 2 : 1, stand-in",
			 rows[i].name);
		bench_row(&bench, name,
			  scaling(hits, originals_in_a_thread, &n_again), "");
		snprintf(name, sizeof(name), "%s, 2 : 1, memcpy", rows[i].name);
		bench_row(&bench, name,
			  scaling(hits, copies_in_a_thread, &n_again), "");
		hits_fini(hits);
		free(hits);
	}
	bench_row(&bench, "turns taken again: one processor was busy",
		  (double)n_again, "");
}

/* ---- A hit beside a miss ------------------------------------------------------------------ */

#define HOT_LINES 16
#define N_SAMPLES 1000
#define PAUSE_NS  20000

struct beside {
	struct cache_devCtx_s device;
	struct kiln_block *block;
	struct original *original; /* or NULL: the block */
	atomic_int stop;
};

static ssize_t read_beside(struct beside *beside, uint64_t at, void *buffer)
{
	return beside->original ? original_read(beside->original, at, buffer, 8)
				: kiln_block_read(beside->block, at, buffer, 8);
}

/* Never in the sets of what is hot. */
static void *keep_missing(void *arg)
{
	struct beside *beside = arg;
	const uint64_t n_blocks = beside->device.size / 64;
	uint8_t buffer[8];

	if (!beside->original)
		together_have_a_processor(1);
	for (uint64_t i = 0; !beside->stop; i++) {
		const uint64_t at = i * 64 % n_blocks * 64 + 32 * 64;

		if (at + 8 <= beside->device.size)
			(void)read_beside(beside, at, buffer);
	}
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Beside a miss, a hit begins while the device is at it: if they came one upon
   another, few would. */
static void wait_for_miss(struct beside *beside)
{
	const uint64_t until = bench_now_ns() + PAUSE_NS;

	while (bench_now_ns() < until ||
	       (beside->device.delay_us && !beside->device.is_inside))
		;
}

static double percentile_99(struct beside *beside)
{
	const size_t n = bench.quick ? 100 : N_SAMPLES;
	double *ns = malloc(n * sizeof(*ns)), result;
	uint8_t buffer[8];

	if (!ns)
		bench_fail("out of memory");
	for (size_t i = 0; i < n; i++) {
		uint64_t begin;

		wait_for_miss(beside);
		begin = bench_now_ns();
		(void)read_beside(beside, i % HOT_LINES * 64, buffer);
		ns[i] = (double)(bench_now_ns() - begin);
		bench_use(buffer);
	}
	qsort(ns, n, sizeof(*ns), by_value);
	result = ns[n * 99 / 100];
	free(ns);
	return result;
}

/* Alone, and beside a thread that always misses.  Each has a processor, or what
   is timed is the scheduler; but with the stand-in the hits then starve. */
static void measure_beside(struct beside *beside, double *alone, double *with)
{
	pthread_t thread;
	cpu_set_t all;

	beside->device.delay_us = 0;
	(void)percentile_99(beside); /* all are in */
	*alone = percentile_99(beside);
	beside->device.delay_us = 100;
	beside->stop = 0;
	if (sched_getaffinity(0, sizeof(all), &all) ||
	    pthread_create(&thread, NULL, keep_missing, beside))
		bench_fail("no thread");
	if (!beside->original)
		together_have_a_processor(0);
	*with = percentile_99(beside);
	beside->stop = 1;
	pthread_join(thread, NULL);
	(void)sched_setaffinity(0, sizeof(all), &all);
}

static void beside_group(void)
{
	const size_t n = bench.quick ? 1 : 7;
	struct beside beside = { 0 };
	struct kiln_block_options options;
	double alone[7], with[7], ratios[7], theirs[7];

	device_init(&beside.device, (size_t)64 * N_LINES * 64);
	options = options_of(&beside.device, 64);
	beside.block = open_block(&options, &beside.device);
	for (size_t i = 0; i < n; i++) {
		measure_beside(&beside, &alone[i], &with[i]);
		ratios[i] = with[i] / alone[i];
	}
	bench_row(&bench, "hit alone, 99th percentile", bench_median(alone, n),
		  "ns");
	bench_row(&bench, "hit beside a 100 us miss, 99th percentile",
		  bench_median(with, n), "ns");
	bench_row_bar(&bench, "hit beside a 100 us miss : alone, 99th",
		      bench_median(ratios, n), "", 3, BENCH_LOWER);
	(void)kiln_block_close(beside.block);
	beside.original = open_original(&beside.device, 64);
	measure_beside(&beside, &alone[0], &theirs[0]);
	bench_row(&bench, "the same, stand-in", theirs[0] / alone[0], "");
	(void)original_deinit(beside.original);
	free(beside.device.bytes);
}

/* ---- Calls of the device --------------------------------------------------------------------- */

static void cold_read(void)
{
	const size_t count = 65536;
	struct cache_devCtx_s device;
	struct kiln_block_options options;
	struct kiln_block *block;
	struct original *original;
	uint8_t *buffer = malloc(count);

	device_init(&device, count * 2);
	if (!buffer)
		bench_fail("out of memory");
	options = options_of(&device, 64);
	options.call_bytes_max = count;
	block = open_block(&options, &device);
	if (kiln_block_read(block, 0, buffer, count) != (ssize_t)count ||
	    memcmp(buffer, device.bytes, count))
		bench_fail("a cold read is wrong");
	bench_row_bar(&bench, "cold read of 64 KiB over 64 B lines",
		      (double)device.n_reads, "calls", 1, BENCH_LOWER);
	(void)kiln_block_close(block);
	device.n_reads = 0;
	original = open_original(&device, 64);
	(void)original_read(original, 0, buffer, count);
	bench_row(&bench, "cold read of 64 KiB, stand-in",
		  (double)device.n_reads, "calls");
	(void)original_deinit(original);
	free(device.bytes);
	free(buffer);
}

static void flush_of_dirty_lines(void)
{
	const size_t count = (size_t)64 * N_LINES;
	struct cache_devCtx_s device;
	struct kiln_block_options options;
	struct kiln_block *block;
	uint8_t *buffer = malloc(count);

	device_init(&device, count * 2);
	if (!buffer)
		bench_fail("out of memory");
	memset(buffer, 'f', count);
	options = options_of(&device, 64);
	options.call_bytes_max = 65536;
	block = open_block(&options, &device);
	if (kiln_block_write(block, 0, buffer, count, KILN_BLOCK_WRITE_BACK) !=
		    (ssize_t)count ||
	    device.n_writes || kiln_block_flush(block, 0, count) ||
	    memcmp(buffer, device.bytes, count))
		bench_fail("a flush is wrong");
	bench_row_bar(&bench, "flush of 1024 dirty lines of 64 B",
		      (double)device.n_writes, "calls", 16, BENCH_LOWER);
	(void)kiln_block_close(block);
	free(device.bytes);
	free(buffer);
}

static void little_written_through(void)
{
	struct cache_devCtx_s device;
	struct kiln_block_options options;
	struct kiln_block *block;

	device_init(&device, (size_t)1 << 20);
	options = options_of(&device, 4096);
	options.flush_granularity = 64;
	block = open_block(&options, &device);
	if (kiln_block_write(block, 4096 + 1000, "8 bytes", 8,
			     KILN_BLOCK_WRITE_THROUGH) != 8 ||
	    memcmp(device.bytes + 4096 + 1000, "8 bytes", 8))
		bench_fail("a write through is wrong");
	bench_row_bar(&bench,
		      "8 B written through, 4096 B lines, granules of 64",
		      (double)device.bytes_written, "bytes", 64, BENCH_LOWER);
	(void)kiln_block_close(block);
	free(device.bytes);
}

static void calls_group(void)
{
	cold_read();
	flush_of_dirty_lines();
	little_written_through();
}

/* ---- Traces ------------------------------------------------------------------------------------ */

#define TRACE_LINE 8

static double hits_of_100(const struct cache_devCtx_s *device)
{
	return 100.0 * (double)(TRACE_LENGTH - device->n_reads) / TRACE_LENGTH;
}

static double block_hits(struct cache_devCtx_s *device, const uint32_t *blocks,
			 enum kiln_block_policy policy,
			 enum kiln_block_index index)
{
	struct kiln_block_options options = options_of(device, TRACE_LINE);
	struct kiln_block *block;
	uint8_t byte;

	options.policy = policy;
	options.index = index;
	device->n_reads = 0;
	block = open_block(&options, device);
	for (size_t i = 0; i < TRACE_LENGTH; i++) {
		if (kiln_block_read(block, (uint64_t)blocks[i] * TRACE_LINE,
				    &byte, 1) != 1 ||
		    byte != device->bytes[(size_t)blocks[i] * TRACE_LINE])
			bench_fail("a trace reads wrongly");
	}
	(void)kiln_block_close(block);
	return hits_of_100(device);
}

static double original_hits(struct cache_devCtx_s *device,
			    const uint32_t *blocks)
{
	struct original *cache = open_original(device, TRACE_LINE);
	uint8_t byte;

	device->n_reads = 0;
	for (size_t i = 0; i < TRACE_LENGTH; i++)
		(void)original_read(cache, (uint64_t)blocks[i] * TRACE_LINE,
				    &byte, 1);
	(void)original_deinit(cache);
	return hits_of_100(device);
}

/* The trace is the one meant: LRU and the best are known of it. */
static void check_trace(const struct trace *trace, double lru, double best)
{
	if (fabs(lru - trace->lru) > 0.4 || fabs(best - trace->best) > 0.4)
		bench_fail("%s: LRU %.2f, not %.2f; best %.2f, not %.2f",
			   trace->name, lru, trace->lru, best, trace->best);
}

static void traces_group(void)
{
	uint32_t *blocks = malloc(TRACE_LENGTH * sizeof(*blocks));
	struct cache_devCtx_s device;

	device_init(&device, (size_t)TRACE_BLOCKS * TRACE_LINE);
	if (!blocks)
		bench_fail("out of memory");
	for (size_t i = 0; i < n_traces; i++) {
		const struct trace *trace = &traces[i];
		double lru, best, ours;
		char name[100];

		trace->make(blocks);
		lru = original_hits(&device, blocks);
		best = trace_best(blocks);
		check_trace(trace, lru, best);
		ours = block_hits(&device, blocks, KILN_BLOCK_SCAN_RESISTANT,
				  KILN_BLOCK_HASHED);
		snprintf(name, sizeof(name), "hits, %s", trace->name);
		if (trace->bar > 0)
			bench_row_bar(&bench, name, ours, "%", trace->bar,
				      BENCH_HIGHER);
		else
			bench_row(&bench, name, ours, "%");
		snprintf(name, sizeof(name), "hits, %s, LRU", trace->name);
		bench_row(&bench, name,
			  block_hits(&device, blocks, KILN_BLOCK_LRU,
				     KILN_BLOCK_MODULO),
			  "%");
		snprintf(name, sizeof(name), "hits, %s, stand-in", trace->name);
		bench_row(&bench, name, lru, "%");
		snprintf(name, sizeof(name), "hits, %s, Belady", trace->name);
		bench_row(&bench, name, best, "%");
	}
	free(blocks);
	free(device.bytes);
}

/* ---- Memory -------------------------------------------------------------------------------------- */

static size_t allocated;

/* What the cache really asks for. */
static void *allocate(size_t size, void *context)
{
	allocated += size;
	return malloc(size);
}

static void release(void *memory, void *context)
{
	free(memory);
}

static void memory_group(void)
{
	static const enum kiln_block_policy policies[] = {
		KILN_BLOCK_LRU, KILN_BLOCK_SCAN_RESISTANT
	};
	double most = 0;
	struct cache_devCtx_s device;

	device_init(&device, (size_t)1 << 20);
	for (size_t i = 0; i < 2; i++) {
		struct kiln_block_options options = options_of(&device, 64);
		struct kiln_block_stats stats = { .size = sizeof(stats) };
		struct kiln_block *block;

		options.policy = policies[i];
		options.allocator.allocate = allocate;
		options.allocator.release = release;
		allocated = 0;
		block = open_block(&options, &device);
		if (kiln_block_stats(block, &stats))
			bench_fail("no statistics");
		bench_row(&bench,
			  i ? "metadata as told, scan-resistant"
			    : "metadata as told, LRU",
			  (double)stats.metadata_bytes / N_LINES, "bytes/line");
		most = fmax(most, (double)allocated / N_LINES - 64);
		(void)kiln_block_close(block);
	}
	bench_row_bar(&bench, "all memory but lines, 64 B lines x 1024", most,
		      "bytes/line", 32, BENCH_LOWER);
	bench_row(&bench, "metadata, stand-in",
		  (double)original_bytes_per_line(), "bytes/line");
	free(device.bytes);
}

static void pack_group(void)
{
	block_pack_rows(&bench);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} groups[] = {
		{ "hits", hits_group },	    { "threads", threads_group },
		{ "beside", beside_group }, { "calls", calls_group },
		{ "traces", traces_group }, { "memory", memory_group },
		{ "pack", pack_group },
	};

	bench_begin(&bench, argc, argv, "block");
	for (size_t i = 0; i < sizeof(groups) / sizeof(*groups); i++) {
		if (bench_wants(&bench, groups[i].name))
			groups[i].run();
	}
	return bench_end(&bench);
}
