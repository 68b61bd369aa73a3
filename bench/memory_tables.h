/* SPDX-License-Identifier: MIT */
#ifndef KILN_BENCH_MEMORY_TABLES_H
#define KILN_BENCH_MEMORY_TABLES_H

#include "bench.h"

/* kiln's memory tier against other tables (tables.h), which are all there
   where BENCH_TABLES is defined. */
void memory_tables_1k(struct bench *bench);
void memory_tables_1m(struct bench *bench);

#endif /* KILN_BENCH_MEMORY_TABLES_H */
