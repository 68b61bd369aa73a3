/* SPDX-License-Identifier: MIT */

/* What is evicted, by kiln and by others: ./dev bench eviction */

#include "bench.h"
#include "eviction_cells.h"

int main(int argc, char **argv)
{
	struct bench bench;

	bench_begin(&bench, argc, argv, "eviction");
	eviction_replay_all(&bench, 1);
	return bench_end(&bench);
}
