/* SPDX-License-Identifier: MIT */

/*
 * A fleet that starts, by simulation: ./dev bench fleet [--svg FILE]
 *
 * Nodes start together, each runs a program of 500 kernels one after another, and
 * all share one remote.  Sizes and build times are those of real programs
 * (bench/traces), what servers need for a request is measured here and now on
 * redis-server and nginx; how requests queue is computed.  See fleet/fleet.h.
 *
 *	cold	the remote is empty; warm: it has everything
 *	lease	whoever has none of a key waits for the one that builds it
 *	order	every node asks in an order of its own, not all in the same
 *
 * Rows are for each number of nodes: builds of a kernel in the whole fleet, requests
 * and bytes at the servers, and when the last node had everything, beside the time
 * that it takes without a remote.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "eviction_trace.h"
#include "fleet.h"

#define N_KERNELS  500
#define N_ENGINES  2
#define PICTURES   2
#define SEED	   20261129
#define NAME_BYTES 120

static const unsigned fleet_sizes[] = { 1, 10, 100, 1000, 10000 };
#define N_SIZES (sizeof(fleet_sizes) / sizeof(*fleet_sizes))

enum engine { REDIS, NGINX };

static const struct scene {
	const char *name;
	enum engine engine;
	unsigned n_shards;
	int is_warm, has_leases, has_prefetch, has_own_order;
} scenes[] = {
	{ "redis cold", REDIS, 1, 0, 0, 0, 0 },
	{ "redis cold, lease", REDIS, 1, 0, 1, 0, 0 },
	{ "redis cold, lease, own order", REDIS, 1, 0, 1, 0, 1 },
	{ "redis warm", REDIS, 1, 1, 0, 0, 0 },
	{ "redis warm, lease", REDIS, 1, 1, 1, 0, 0 },
	{ "redis warm, prefetch", REDIS, 1, 1, 0, 1, 0 },
	{ "redis warm, lease, prefetch", REDIS, 1, 1, 1, 1, 0 },
	{ "16 redis cold, lease", REDIS, 16, 0, 1, 0, 0 },
	{ "16 redis warm, lease, prefetch", REDIS, 16, 1, 1, 1, 0 },
	{ "nginx cold", NGINX, 1, 0, 0, 0, 0 },
	{ "nginx warm", NGINX, 1, 1, 0, 0, 0 },
	{ "nginx warm, prefetch", NGINX, 1, 1, 0, 1, 0 },
	{ "16 nginx warm, prefetch", NGINX, 16, 1, 0, 1, 0 },
};
#define N_SCENES (sizeof(scenes) / sizeof(*scenes))

/* What is not measured, and can be set: --NAME VALUE. */
static struct parameter {
	const char *name, *unit;
	double value;
} parameters[] = {
	{ "server-gbit", "Gbit/s", 25 }, { "node-gbit", "Gbit/s", 10 },
	{ "round-trip-ms", "ms", 0.5 },	 { "spread-ms", "ms", 100 },
	{ "open-ms", "ms", 0.15 },	 { "poll-part", "", 0.125 },
	{ "poll-min-ms", "ms", 20 },	 { "poll-max-ms", "ms", 1000 },
};
enum {
	SERVER_GBIT,
	NODE_GBIT,
	ROUND_TRIP_MS,
	SPREAD_MS,
	OPEN_MS,
	POLL_PART,
	POLL_MIN_MS,
	POLL_MAX_MS,
	N_PARAMETERS
};

static struct bench bench;
static const char *picture;
static struct fleet_kernel kernels[N_KERNELS];
static struct fleet_engine engines[N_ENGINES];
static int is_installed[N_ENGINES];
static double values[PICTURES][N_SCENES + 1][N_SIZES];

static void take_arguments(void)
{
	for (int i = 0; i < bench.n_args; i++) {
		const char *name = bench.args[i] + 2;
		const char *value = bench.args[i + 1];
		size_t j = 0;

		if (strncmp(bench.args[i], "--", 2) || !value)
			bench_fail("'%s': --NAME VALUE was expected",
				   bench.args[i]);
		i++;
		if (!strcmp(name, "svg")) {
			picture = value;
			continue;
		}
		while (j < N_PARAMETERS && strcmp(parameters[j].name, name))
			j++;
		if (j == N_PARAMETERS)
			bench_fail("there is no '--%s'", name);
		parameters[j].value = strtod(value, NULL);
	}
}

/* Of all programs' entries, drawn with the seed. */
static void choose_kernels(void)
{
	size_t n_traces, n = 0;
	struct eviction_trace *traces =
		eviction_traces_read(BENCH_TRACES, &n_traces);
	uint64_t chance = SEED;
	double bytes = 0, s = 0;

	for (size_t i = 0; i < n_traces; i++)
		n += traces[i].n_entries;
	for (size_t i = 0; i < N_KERNELS; i++) {
		size_t at, j = 0;

		chance = chance * 6364136223846793005u + 1442695040888963407u;
		at = (size_t)(chance >> 33) % n;
		while (at >= traces[j].n_entries)
			at -= traces[j++].n_entries;
		kernels[i].bytes = traces[j].entries[at].bytes;
		kernels[i].build_s = traces[j].entries[at].build_s;
		bytes += (double)kernels[i].bytes;
		s += kernels[i].build_s;
	}
	eviction_traces_free(traces, n_traces);
	bench_row(&bench, "500 kernels, bytes", bytes / 1e6, "MB");
	bench_row(&bench, "500 kernels, builds one after another", s, "s");
}

/* ---- Service times ---------------------------------------------------------- */

static void show_engine(const struct fleet_engine *engine)
{
	char row[NAME_BYTES];

	for (int i = 0; i < FLEET_REQUESTS; i++) {
		if (engine->request_ns[i] == 0)
			continue;
		snprintf(row, sizeof(row), "measured: %s, %s", engine->name,
			 fleet_request_names[i]);
		bench_row(&bench, row, engine->request_ns[i] / 1e3, "us");
		if (engine->byte_ns[i] == 0)
			continue;
		snprintf(row, sizeof(row), "measured: %s, %s, each KB",
			 engine->name, fleet_request_names[i]);
		bench_row(&bench, row, engine->byte_ns[i], "us");
	}
}

static void probe(void)
{
	is_installed[REDIS] = !fleet_probe_redis(&engines[REDIS], bench.quick);
	is_installed[NGINX] = !fleet_probe_nginx(&engines[NGINX], bench.quick);
	for (int i = 0; i < N_ENGINES; i++)
		if (is_installed[i])
			show_engine(&engines[i]);
		else
			fprintf(stderr, "fleet: %s is not installed\n",
				i == REDIS ? "redis-server" : "nginx");
	for (int i = 0; i < N_PARAMETERS; i++) {
		char row[NAME_BYTES];

		snprintf(row, sizeof(row), "assumed: %s", parameters[i].name);
		bench_row(&bench, row, parameters[i].value, parameters[i].unit);
	}
}

/* ---- Scenes ----------------------------------------------------------------- */

static struct fleet_setup set_up(const struct scene *scene, unsigned n_nodes)
{
	return (struct fleet_setup){
		.engine = &engines[scene->engine],
		.kernels = kernels,
		.n_kernels = N_KERNELS,
		.n_nodes = n_nodes,
		.n_shards = scene->n_shards,
		.is_warm = scene->is_warm,
		.has_leases = scene->has_leases,
		.has_prefetch = scene->has_prefetch,
		.has_own_order = scene->has_own_order,
		.seed = SEED,
		.round_trip_s = parameters[ROUND_TRIP_MS].value / 1e3,
		.start_spread_s = parameters[SPREAD_MS].value / 1e3,
		.server_bytes_s = parameters[SERVER_GBIT].value * 1e9 / 8,
		.node_bytes_s = parameters[NODE_GBIT].value * 1e9 / 8,
		.open_s = parameters[OPEN_MS].value / 1e3,
		.poll_min_s = parameters[POLL_MIN_MS].value / 1e3,
		.poll_max_s = parameters[POLL_MAX_MS].value / 1e3,
		.poll_part = parameters[POLL_PART].value,
	};
}

static void add_row(unsigned n_nodes, const char *scene, const char *what,
		    double value, const char *unit)
{
	char row[NAME_BYTES];

	snprintf(row, sizeof(row), "%u nodes, %s: %s", n_nodes, scene, what);
	bench_row(&bench, row, value, unit);
}

static void play(size_t number, size_t size)
{
	const struct scene *scene = &scenes[number];
	const unsigned n_nodes = fleet_sizes[size];
	const struct fleet_setup setup = set_up(scene, n_nodes);
	struct fleet_outcome outcome;

	if (!is_installed[scene->engine])
		return;
	outcome = fleet_simulate(&setup);
	add_row(n_nodes, scene->name, "builds of a kernel",
		(double)outcome.n_builds / N_KERNELS, "");
	add_row(n_nodes, scene->name, "requests", (double)outcome.n_requests,
		"");
	add_row(n_nodes, scene->name, "bytes", (double)outcome.n_bytes / 1e9,
		"GB");
	add_row(n_nodes, scene->name, "late answers", (double)outcome.n_late,
		"");
	add_row(n_nodes, scene->name, "all have all", outcome.all_s, "s");
	values[0][number][size] = outcome.all_s;
	values[1][number][size] = (double)outcome.n_builds / N_KERNELS;
}

static void draw(size_t n_sizes)
{
	static const char *const titles[PICTURES] = {
		"seconds until all nodes have all kernels",
		"builds of a kernel, in the whole fleet"
	};
	struct fleet_line lines[PICTURES][N_SCENES + 1];
	const struct fleet_line *pictures[PICTURES];

	for (size_t i = 0; i < PICTURES; i++) {
		for (size_t j = 0; j <= N_SCENES; j++)
			lines[i][j] = (struct fleet_line){
				j < N_SCENES ? scenes[j].name : "no remote",
				values[i][j]
			};
		pictures[i] = lines[i];
	}
	fleet_draw(picture, titles, fleet_sizes, n_sizes, pictures,
		   N_SCENES + 1, PICTURES);
}

int main(int argc, char **argv)
{
	size_t n_sizes, i, j;

	bench_begin(&bench, argc, argv, "fleet");
	take_arguments();
	n_sizes = bench.quick ? 3 : N_SIZES;
	choose_kernels();
	probe();
	for (i = 0; i < n_sizes; i++) {
		const struct fleet_setup setup =
			set_up(&scenes[0], fleet_sizes[i]);

		values[0][N_SCENES][i] = fleet_alone_s(&setup);
		values[1][N_SCENES][i] = fleet_sizes[i];
		add_row(fleet_sizes[i], "no remote", "all have all",
			values[0][N_SCENES][i], "s");
		for (j = 0; j < N_SCENES; j++) {
			play(j, i);
			bench_progress("fleet", i * N_SCENES + j + 1,
				       n_sizes * N_SCENES);
		}
	}
	if (picture)
		draw(n_sizes);
	return bench_end(&bench);
}
