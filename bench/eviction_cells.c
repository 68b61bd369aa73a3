/* SPDX-License-Identifier: MIT */

/*
 * Traces of look-ups of real programs (bench/traces), replayed against caches
 * that have room for 10, 25 and 50 % of what the trace asks for in all: hits of
 * 100 look-ups, and the seconds that were spent on building again what had been
 * built before, for every policy in every cell.
 */

#include "eviction_cells.h"

#include <math.h>
#include <stdio.h>

#include "eviction_policies.h"

static const unsigned percents[] = { 10, 25, 50 };
#define N_PERCENTS (sizeof(percents) / sizeof(*percents))

/* By how much the store's choice is better or worse than the best of those to
   beat, over all cells. */
struct judgement {
	double log_sum;
	double worst;
	size_t n_cells;
};

/* `bench` NULL: no rows. */
static void add_rows(struct bench *bench, const char *cell, const char *policy,
		     const struct eviction_trace *trace,
		     const struct eviction_outcome *outcome)
{
	char name[200];

	if (!bench)
		return;
	snprintf(name, sizeof(name), "%s, %s: hits", cell, policy);
	bench_row(bench, name,
		  100.0 * (double)outcome->n_hits / (double)trace->n_lookups,
		  "%");
	snprintf(name, sizeof(name), "%s, %s: rebuilding", cell, policy);
	bench_row(bench, name, outcome->rebuilt_s, "s");
}

/* A cell in which those to beat built nothing again has no ratio: then it counts
   whether we did. */
static void judge(struct judgement *judgement, double best_s, double ours_s)
{
	double ratio = best_s > 0 ? ours_s / best_s : ours_s > 0 ? 2 : 1;

	judgement->n_cells++;
	judgement->log_sum += log(ratio > 0.01 ? ratio : 0.01);
	if (ratio > judgement->worst)
		judgement->worst = ratio;
}

static void replay_cell(struct bench *bench, const struct eviction_trace *trace,
			unsigned percent, struct judgement *judgement)
{
	const uint64_t capacity = trace->bytes * percent / 100;
	struct eviction_outcome outcome;
	double best_s = INFINITY;
	char cell[100];

	snprintf(cell, sizeof(cell), "%s at %u %%", trace->name, percent);
	for (size_t i = 0; i < n_eviction_policies; i++) {
		outcome = eviction_policies[i].replay(trace, capacity);
		add_rows(bench, cell, eviction_policies[i].name, trace,
			 &outcome);
		if (eviction_policies[i].is_to_beat &&
		    outcome.rebuilt_s < best_s)
			best_s = outcome.rebuilt_s;
	}
	outcome = eviction_replay_store(trace, capacity, 0);
	add_rows(bench, cell, "kiln by use", trace, &outcome);
	outcome = eviction_replay_store(trace, capacity, 1);
	add_rows(bench, cell, "kiln by cost", trace, &outcome);
	judge(judgement, best_s, outcome.rebuilt_s);
}

void eviction_replay_all(struct bench *bench, int with_cells)
{
	struct judgement judgement = { .worst = 0 };
	struct eviction_trace *traces;
	size_t n;

	traces = eviction_traces_read(BENCH_TRACES, &n);
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < N_PERCENTS; j++)
			replay_cell(with_cells ? bench : NULL, &traces[i],
				    percents[j], &judgement);
	eviction_traces_free(traces, n);
	bench_row_bar(bench,
		      "seconds of rebuilding, by cost : best of NEO's, SYCL's, "
		      "LRU, geometric mean",
		      exp(judgement.log_sum / (double)judgement.n_cells), "",
		      0.8, BENCH_LOWER);
	bench_row_bar(bench,
		      "seconds of rebuilding, by cost : best of NEO's, SYCL's, "
		      "LRU, worst cell",
		      judgement.worst, "", 1.0, BENCH_LOWER);
}
