/* SPDX-License-Identifier: MIT */

#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/servers_test.h"

struct stock world_stock;
struct world_run *world_run;

struct node *world_node(const char *trust)
{
	struct node *node = node_new();

	node_set(node, "KILN_REMOTE", world_stock.url);
	node_set(node, "KILN_REMOTE_TRUST", trust);
	if (world_stock.kind == STOCK_S3) {
		node_set(node, "AWS_ENDPOINT_URL", world_stock.endpoint);
		node_set(node, "AWS_REGION", "us-east-1");
		node_set(node, "AWS_ACCESS_KEY_ID", SERVER_S3_ACCESS);
		node_set(node, "AWS_SECRET_ACCESS_KEY", SERVER_S3_SECRET);
	}
	return node;
}

int world_program(unsigned index, void *arg)
{
	struct world_run *run = world_run;
	struct kiln *kiln = node_open_kiln(run->flags);
	struct kiln_stats stats;

	if (!kiln)
		return 1;
	for (unsigned i = run->first; i < run->first + run->n; i++) {
		struct node_use use = { .size = WORLD_VALUE_BYTES,
					.build_ns = run->build_ns,
					.n_builds = &run->n_builds };

		run->n_wrong += node_use(kiln, i, &use) != 0;
		run->n_remote += use.source == KILN_FROM_REMOTE;
		run->n_done++;
		run->ns += use.ns;
		if (use.ns > run->ns_max)
			run->ns_max = use.ns;
	}
	kiln_stats_init(&stats);
	if (kiln_stats(kiln, &stats) == KILN_OK)
		memcpy(run->counters, stats.counters, sizeof(run->counters));
	kiln_close(kiln);
	return 0;
}

void world_use_slow(struct node *node, unsigned first, unsigned n,
		    uint64_t build_ns)
{
	const uint32_t flags = world_run->flags;

	*world_run = (struct world_run){
		.first = first, .n = n, .build_ns = build_ns, .flags = flags
	};
	assert_int_equal(node_run(node, world_program, NULL), 0);
	assert_int_equal(world_run->n_wrong, 0);
}

void world_use(struct node *node, unsigned first, unsigned n)
{
	world_use_slow(node, first, n, 0);
}

void world_await(unsigned n_done)
{
	const uint64_t deadline_ns =
		node_now_ns() + HARNESS_HANG_S * (uint64_t)1000000000;

	while (world_run->n_done < n_done) {
		assert_true(node_now_ns() < deadline_ns);
		(void)usleep(1000);
	}
}

void world_fill(struct node *node, unsigned first, unsigned n)
{
	world_use(node, first, n);
	assert_int_equal(world_run->n_builds, n);
	node_drain(node);
}

int main(int argc, char **argv)
{
	int kind = 0;

	if (argc != 4)
		return 2;
	node_programs(argv[1], argv[2]);
	while (kind < STOCK_N_KINDS && strcmp(stock_names[kind], argv[3]))
		kind++;
	if (kind == STOCK_N_KINDS)
		return 2;
	world_run = node_shared(sizeof(*world_run));
	if (!stock_open(&world_stock, (enum stock_kind)kind)) {
		printf("1..0 # SKIP no such server is installed\n");
		return 0;
	}
	kind = world_tests((enum stock_kind)kind);
	stock_close(&world_stock);
	return kind;
}
