/* SPDX-License-Identifier: MIT */
#ifndef KILN_BENCH_FLEET_H
#define KILN_BENCH_FLEET_H

/*
 * Many nodes that start together and share a remote: what that costs, event by
 * event, without the nodes.  What a server needs for a request is measured
 * (probe.c); how it queues, and what nodes do meanwhile, is computed (simulate.c).
 */

#include <stddef.h>
#include <stdint.h>

/* ---- Servers --------------------------------------------------------------- */

enum fleet_request {
	FLEET_MISS,  /* a get of what is not there */
	FLEET_HIT,   /* a get, one at a time on its connection */
	FLEET_BATCH, /* a get among many that were sent at once */
	FLEET_PUT,
	FLEET_LEASE, /* taken, asked for or given back; 0 where there are none */
	FLEET_REQUESTS
};

extern const char *const fleet_request_names[FLEET_REQUESTS];

/* Processor time of the server, of each request and of each byte of its value. */
struct fleet_engine {
	const char *name;
	unsigned n_workers; /* requests that it works on at the same time */
	double request_ns[FLEET_REQUESTS];
	double byte_ns[FLEET_REQUESTS];
};

/* Start the real one, measure, end it.  0, or -1 where it is not installed. */
int fleet_probe_redis(struct fleet_engine *out_engine, int is_quick);
int fleet_probe_nginx(struct fleet_engine *out_engine, int is_quick);

/* ---- Simulation ------------------------------------------------------------ */

struct fleet_kernel {
	uint64_t bytes;
	double build_s;
};

struct fleet_setup {
	const struct fleet_engine *engine;
	const struct fleet_kernel *kernels;
	unsigned n_kernels, n_nodes, n_shards;
	int is_warm;	   /* somebody has run this before */
	int has_leases;	   /* one build per fleet */
	int has_prefetch;  /* of what was asked for last time, if it is warm */
	int has_own_order; /* no two nodes ask in the same order */
	uint64_t seed;

	double round_trip_s;
	double start_spread_s; /* nodes start within this */
	double server_bytes_s; /* a shard's network, each direction */
	double node_bytes_s;   /* a node's */
	double open_s;	       /* to verify a value */
	/* Between questions for a lease: this part of the time waited so far. */
	double poll_part, poll_min_s, poll_max_s;
};

struct fleet_outcome {
	uint64_t n_builds, n_requests, n_late;
	uint64_t n_bytes; /* both directions, with frames */
	double all_s;	  /* until the last node has all kernels */
};

struct fleet_outcome fleet_simulate(const struct fleet_setup *setup);

/* When the last one had all without any remote. */
double fleet_alone_s(const struct fleet_setup *setup);

/* ---- Picture --------------------------------------------------------------- */

struct fleet_line {
	const char *name;
	double *values; /* one for each x; 0: none */
};

/* Both axes logarithmic, one picture above the other. */
void fleet_draw(const char *path, const char *const *titles,
		const unsigned *nodes, size_t n_nodes,
		const struct fleet_line *const *lines, size_t n_lines,
		size_t n_pictures);

#endif /* KILN_BENCH_FLEET_H */
