/* SPDX-License-Identifier: MIT */

#include "together.h"

#include <pthread.h>
#include <sched.h>

#include "bench.h"

struct runner {
	pthread_t thread;
	unsigned number;
	const struct together *together;
	pthread_barrier_t *barrier;
	uint64_t start_ns, end_ns;
};

/* Left to the scheduler, new threads share a processor until it notices, which
   may be as long as what is timed. */
void together_have_a_processor(unsigned number)
{
	cpu_set_t allowed, one;

	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		return;
	CPU_ZERO(&one);
	for (size_t i = 0; i < CPU_SETSIZE; i++) {
		if (CPU_ISSET(i, &allowed) && !number--) {
			CPU_SET(i, &one);
			(void)sched_setaffinity(0, sizeof(one), &one);
			return;
		}
	}
}

static void *run(void *arg)
{
	struct runner *runner = arg;
	const struct together *together = runner->together;

	together_have_a_processor(runner->number);
	if (together->begin)
		together->begin(together->arg);
	pthread_barrier_wait(runner->barrier);
	runner->start_ns = bench_now_ns();
	together->body(runner->number, together->arg);
	runner->end_ns = bench_now_ns();
	if (together->end)
		together->end(together->arg);
	return NULL;
}

double together_run(const struct together *together, unsigned n_threads)
{
	struct runner runners[TOGETHER_MAX];
	uint64_t start = UINT64_MAX, end = 0;
	pthread_barrier_t barrier;
	unsigned i;

	pthread_barrier_init(&barrier, NULL, n_threads);
	for (i = 0; i < n_threads; i++) {
		runners[i] = (struct runner){ .number = i,
					      .together = together,
					      .barrier = &barrier };
		if (pthread_create(&runners[i].thread, NULL, run, &runners[i]))
			bench_fail("no thread");
	}
	for (i = 0; i < n_threads; i++) {
		pthread_join(runners[i].thread, NULL);
		if (runners[i].start_ns < start)
			start = runners[i].start_ns;
		if (runners[i].end_ns > end)
			end = runners[i].end_ns;
	}
	pthread_barrier_destroy(&barrier);
	return (double)(end - start);
}
