/* SPDX-License-Identifier: MIT */
#ifndef KILN_BENCH_BLOCK_PACK_H
#define KILN_BENCH_BLOCK_PACK_H

#include "bench.h"

/* What a first start asks of a pack that lies 20 ms away. */
void block_pack_rows(struct bench *bench);

#endif /* KILN_BENCH_BLOCK_PACK_H */
