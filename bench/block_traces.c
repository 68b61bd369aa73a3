/* SPDX-License-Identifier: MIT */

#include "block_traces.h"

#include <math.h>
#include <stdlib.h>

#include "bench.h"

#define N_BLOCKS 16384u /* that are asked for by chance, or scanned */
#define NEVER	 UINT32_MAX

static uint64_t random_state;

static uint64_t random_64(void)
{
	uint64_t z = random_state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* In [0, 1). */
static double random_part(void)
{
	return (double)(random_64() >> 11) / 9007199254740992.0;
}

/* ---- Traces --------------------------------------------------------------------- */

/* A block's chance is 1 / rank to the power of `skew`; its number is its rank. */
static uint32_t random_zipf(double skew)
{
	static double sums[N_BLOCKS];
	static double sums_of;
	size_t low = 0, high = N_BLOCKS - 1;
	double at;

	if (sums_of != skew) {
		double sum = 0;

		for (size_t i = 0; i < N_BLOCKS; i++)
			sums[i] = sum += pow((double)(i + 1), -skew);
		sums_of = skew;
	}
	at = random_part() * sums[N_BLOCKS - 1];
	while (low < high) {
		const size_t middle = (low + high) / 2;

		if (sums[middle] < at)
			low = middle + 1;
		else
			high = middle;
	}
	return (uint32_t)low;
}

static void make_zipf_and_scan(uint32_t blocks[TRACE_LENGTH])
{
	uint32_t scanned = 0;

	for (size_t i = 0; i < TRACE_LENGTH; i++)
		blocks[i] = random_part() < 0.2
				    ? N_BLOCKS + scanned++ % N_BLOCKS
				    : random_zipf(0.99);
}

/* Half of what there is room for is hot. */
static void make_hot_and_scan(uint32_t blocks[TRACE_LENGTH])
{
	uint32_t scanned = 0;

	for (size_t i = 0; i < TRACE_LENGTH; i++)
		blocks[i] = random_part() < 0.5 ? 512 + scanned++ % N_BLOCKS
						: random_64() % 512;
}

/* A fifth more than there is room for. */
static void make_loop(uint32_t blocks[TRACE_LENGTH])
{
	for (size_t i = 0; i < TRACE_LENGTH; i++)
		blocks[i] = i % (TRACE_LINES * 12 / 10);
}

/* All of one set, where it is the remainder. */
static void make_stride(uint32_t blocks[TRACE_LENGTH])
{
	for (size_t i = 0; i < TRACE_LENGTH; i++)
		blocks[i] = (uint32_t)(random_64() % 64) * (TRACE_LINES / 4);
}

static void make_zipf(uint32_t blocks[TRACE_LENGTH])
{
	for (size_t i = 0; i < TRACE_LENGTH; i++)
		blocks[i] = random_zipf(0.99);
}

static void make_uniform(uint32_t blocks[TRACE_LENGTH])
{
	for (size_t i = 0; i < TRACE_LENGTH; i++)
		blocks[i] = random_64() % N_BLOCKS;
}

const struct trace traces[] = {
	{ "zipf 0.99 with 20 % scan", 45.52, 61.62, 50, make_zipf_and_scan },
	{ "half hot, half scan", 36.80, 51.41, 47, make_hot_and_scan },
	{ "loop of 1.2x", 16.89, 83.12, 40, make_loop },
	{ "stride conflict", 6.30, 99.98, 99, make_stride },
	{ "zipf 0.99", 62.09, 77.26, 0, make_zipf },
	{ "uniform", 6.30, 32.64, 0, make_uniform },
};
const size_t n_traces = sizeof(traces) / sizeof(*traces);

/* ---- Belady's choice ----------------------------------------------------------- */

/* The line whose next use is farthest is at the top of a heap; entries of lines
   that were used meanwhile are passed over. */
struct future {
	uint32_t next, block;
};

static struct future heap[TRACE_LENGTH];
static size_t n_heap;

static void push(struct future future)
{
	size_t i = n_heap++;

	while (i && heap[(i - 1) / 2].next < future.next) {
		heap[i] = heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	heap[i] = future;
}

static struct future pop(void)
{
	const struct future top = heap[0], last = heap[--n_heap];
	size_t i = 0;

	for (;;) {
		size_t child = 2 * i + 1;

		if (child + 1 < n_heap &&
		    heap[child + 1].next > heap[child].next)
			child++;
		if (child >= n_heap || heap[child].next <= last.next)
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = last;
	return top;
}

double trace_best(const uint32_t blocks[TRACE_LENGTH])
{
	uint32_t *next = malloc(TRACE_LENGTH * sizeof(*next));
	uint32_t *of_block = malloc(TRACE_BLOCKS * sizeof(*of_block));
	size_t n_hits = 0, n_inside = 0;

	if (!next || !of_block)
		bench_fail("out of memory");
	for (size_t i = 0; i < TRACE_BLOCKS; i++)
		of_block[i] = NEVER;
	for (size_t i = TRACE_LENGTH; i--;) {
		next[i] = of_block[blocks[i]];
		of_block[blocks[i]] = (uint32_t)i;
	}
	/* From here on: the next use of a block that is inside, or 0. */
	for (size_t i = 0; i < TRACE_BLOCKS; i++)
		of_block[i] = 0;
	n_heap = 0;
	for (size_t i = 0; i < TRACE_LENGTH; i++) {
		n_hits += of_block[blocks[i]] != 0;
		if (!of_block[blocks[i]] && n_inside++ >= TRACE_LINES) {
			struct future victim;

			do
				victim = pop();
			while (of_block[victim.block] != victim.next);
			of_block[victim.block] = 0;
		}
		of_block[blocks[i]] = next[i];
		push((struct future){ next[i], blocks[i] });
	}
	free(next);
	free(of_block);
	return 100.0 * (double)n_hits / TRACE_LENGTH;
}
