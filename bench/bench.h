/* SPDX-License-Identifier: MIT */
#ifndef KILN_BENCH_H
#define KILN_BENCH_H

/*
 * What all benchmarks share: a clock, medians, and rows that come out as a
 * table for people and, with --json FILE, as one object:
 *
 *	{"host", "cpu", "fs", "build", "commit",
 *	 "rows": [{"name", "value", "unit", "bar", "better", "ok"}, ...]}
 *
 * bar, better and ok are there only where a bar is set.  --append keeps the
 * rows that FILE has already, except those measured again, so that several
 * programs can fill one table.  --quick asks for a short run: is it alive?
 *
 * A benchmark checks that what it times gives the right answer, and exits 0
 * when everything was measured, bars missed or not.
 *
 *	struct bench bench;
 *
 *	bench_begin(&bench, argc, argv, "memory");
 *	bench_row(&bench, "memory hit", 12.5, "ns");
 *	bench_row_bar(&bench, "hit : peer", 0.8, "", 1.0, BENCH_LOWER);
 *	return bench_end(&bench);
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum bench_better { BENCH_LOWER, BENCH_HIGHER };

struct bench_row {
	char *name;
	char *unit;
	double value;
	double bar;
	enum bench_better better;
	int has_bar;
};

struct bench {
	const char *title;
	const char *json;      /* FILE, or NULL */
	const char *directory; /* whose file system is named; may be set */
	int append;
	int quick;
	struct bench_row *rows;
	size_t n_rows;
	/* What the harness did not know, for the benchmark to parse. */
	char **args;
	int n_args;
};

/* Takes --json, --append and --quick; a wrong use ends the program with 2. */
void bench_begin(struct bench *bench, int argc, char **argv, const char *title);

/* Whether a group was asked for: all are where none is named, by its name or
   the beginning of it.  Says on standard error that it begins. */
int bench_wants(const struct bench *bench, const char *group);

void bench_row(struct bench *bench, const char *name, double value,
	       const char *unit);
void bench_row_bar(struct bench *bench, const char *name, double value,
		   const char *unit, double bar, enum bench_better better);

/* Print the table, write the file, free.  The exit status. */
int bench_end(struct bench *bench);

/* Say what went wrong and exit with 1: nothing was measured. */
void bench_fail(const char *format, ...)
	__attribute__((format(printf, 1, 2), noreturn));

/* CLOCK_MONOTONIC. */
uint64_t bench_now_ns(void);

/* Both sort `values`. */
double bench_median(double *values, size_t n);
double bench_best(double *values, size_t n);

/* On a terminal, a line with how far something is, five times a second; it goes
   when all is done.  Costs a look at the clock. */
void bench_progress(const char *what, size_t done, size_t total);

/* A new folder with so many bytes of room: in memory, unless $TMPDIR says otherwise.
   bench_remove_tree() in the end. */
#define BENCH_FOLDER_BYTES 256
void bench_make_folder(char path[BENCH_FOLDER_BYTES], uint64_t bytes);

/* A directory and all below it, as far as it may go. */
void bench_remove_tree(const char *path);

/* So that the compiler keeps what nobody reads. */
static inline void bench_use(const void *value)
{
	__asm__ volatile("" : : "g"(value) : "memory");
}

#ifdef __cplusplus
}
#endif
#endif /* KILN_BENCH_H */
