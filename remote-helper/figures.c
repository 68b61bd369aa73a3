/* SPDX-License-Identifier: MIT */

#include "figures.h"

const char *const figures_names[FIGURES_N_COUNTS] = {
#define FIGURES_NAME(id, name, what) name,
	FIGURES_COUNTS(FIGURES_NAME)
#undef FIGURES_NAME
};

/* 4 k + j: up to 2^k (1 + (j + 1) / 4) us. */
static unsigned step_of(uint64_t us)
{
	unsigned power, step;

	if (us < 1)
		us = 1;
	power = 63 - (unsigned)__builtin_clzll(us);
	step = 4 * power +
	       (power >= 2 ? (us >> (power - 2) & 3) : (us << (2 - power) & 3));
	return step < FIGURES_STEPS ? step : FIGURES_STEPS - 1;
}

void figures_time(struct figures *figures, uint64_t ns)
{
	figures->steps[step_of(ns / 1000)]++;
	if (!figures->least_ns || ns < figures->least_ns)
		figures->least_ns = ns ? ns : 1;
}

uint64_t figures_percentile_ns(const struct figures *figures, unsigned percent)
{
	uint64_t n = 0, so_far = 0, wanted;

	for (unsigned i = 0; i < FIGURES_STEPS; i++)
		n += figures->steps[i];
	if (!n)
		return 0;
	wanted = (n * percent + 99) / 100;
	for (unsigned i = 0; i < FIGURES_STEPS; i++) {
		so_far += figures->steps[i];
		if (so_far >= wanted && so_far)
			return (((uint64_t)1 << i / 4) * (5 + i % 4)) * 250;
	}
	return 0;
}
