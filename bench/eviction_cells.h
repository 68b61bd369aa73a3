/* SPDX-License-Identifier: MIT */
#ifndef KILN_BENCH_EVICTION_CELLS_H
#define KILN_BENCH_EVICTION_CELLS_H

#include "bench.h"

/* Replay all traces; the two rows with bars, and with all cells before them or
   without. */
void eviction_replay_all(struct bench *bench, int with_cells);

#endif /* KILN_BENCH_EVICTION_CELLS_H */
