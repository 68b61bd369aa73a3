/* SPDX-License-Identifier: MIT */
#ifndef KILN_BENCH_TOGETHER_H
#define KILN_BENCH_TOGETHER_H

/* Threads that start what is timed together, each on a processor of its own if
   there are enough. */

#define TOGETHER_MAX 2

struct together {
	void (*begin)(void *arg); /* in each thread, not timed; may be NULL */
	void (*body)(unsigned thread, void *arg);
	void (*end)(void *arg); /* the same as begin */
	void *arg;
};

/* The number-th of the processors that the calling thread may use is the only
   one it uses from now on; nothing happens if there are fewer. */
void together_have_a_processor(unsigned number);

/* ns from the first start to the last end. */
double together_run(const struct together *together, unsigned n_threads);

#endif /* KILN_BENCH_TOGETHER_H */
