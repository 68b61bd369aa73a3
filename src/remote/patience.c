/* SPDX-License-Identifier: MIT */

#include "remote/patience.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define BUILDS_MIN   5
#define QUIETS_MAX   6 /* doublings */
#define QUIET_NS_MAX ((uint64_t)60 * 1000000000)

/* Of the process, whatever remotes it has. */
static _Atomic uint64_t spent_ns;
static _Atomic uint64_t factor_for_tests = 1;

void ki_patience_init(struct ki_patience *patience)
{
	*patience = (struct ki_patience){ .wait_ns = KI_PATIENCE_NS_MAX };
	ki_mutex_init(&patience->mutex, KI_RANK_REMOTE);
}

void ki_patience_fini(struct ki_patience *patience)
{
	ki_mutex_fini(&patience->mutex);
}

static int by_value(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static uint64_t median_of(const uint64_t *values, size_t n)
{
	uint64_t sorted[KI_PATIENCE_BUILDS];

	memcpy(sorted, values, n * sizeof(*values));
	qsort(sorted, n, sizeof(*sorted), by_value);
	return sorted[n / 2];
}

void ki_patience_note_build(struct ki_patience *patience, uint64_t ns)
{
	uint64_t half;
	size_t n;

	ki_mutex_lock(&patience->mutex);
	patience->builds[patience->n_builds++ % KI_PATIENCE_BUILDS] = ns;
	n = patience->n_builds < KI_PATIENCE_BUILDS ? (size_t)patience->n_builds
						    : KI_PATIENCE_BUILDS;
	if (n >= BUILDS_MIN) {
		half = median_of(patience->builds, n) / 2;
		atomic_store(&patience->wait_ns, half < KI_PATIENCE_NS_MAX
							 ? half
							 : KI_PATIENCE_NS_MAX);
	}
	ki_mutex_unlock(&patience->mutex);
}

uint64_t ki_patience_left_ns(void)
{
	const uint64_t spent =
		atomic_load_explicit(&spent_ns, memory_order_relaxed);

	return ki_patience_scaled(
		spent < KI_PATIENCE_VAIN_NS ? KI_PATIENCE_VAIN_NS - spent : 0);
}

uint64_t ki_patience_wait_ns(const struct ki_patience *patience)
{
	const uint64_t worth = ki_patience_worth_ns(patience);
	const uint64_t left = ki_patience_left_ns();

	return worth < left ? worth : left;
}

uint64_t ki_patience_worth_ns(const struct ki_patience *patience)
{
	return ki_patience_scaled(
		atomic_load_explicit(&patience->wait_ns, memory_order_relaxed));
}

void ki_patience_spend(uint64_t ns)
{
	atomic_fetch_add_explicit(&spent_ns, ns, memory_order_relaxed);
}

void ki_patience_forget(uint64_t factor)
{
	atomic_store(&spent_ns, 0);
	atomic_store(&factor_for_tests, factor);
}

uint64_t ki_patience_scaled(uint64_t ns)
{
	return ns *
	       atomic_load_explicit(&factor_for_tests, memory_order_relaxed);
}

void ki_patience_note_answer(struct ki_patience *patience)
{
	if (atomic_load_explicit(&patience->n_faults, memory_order_relaxed))
		atomic_store(&patience->n_faults, 0);
	if (atomic_load_explicit(&patience->n_quiets, memory_order_relaxed))
		atomic_store(&patience->n_quiets, 0);
}

/* After a time of quiet the next fault is enough: that was a trial. */
void ki_patience_note_fault(struct ki_patience *patience, uint64_t now_ns)
{
	uint32_t n_quiets = atomic_load(&patience->n_quiets);
	uint64_t quiet_ns;

	if (atomic_fetch_add(&patience->n_faults, 1) + 1 < KI_PATIENCE_FAULTS &&
	    !n_quiets)
		return;
	quiet_ns = KI_PATIENCE_QUIET_NS
		   << (n_quiets < QUIETS_MAX ? n_quiets : QUIETS_MAX);
	if (quiet_ns > QUIET_NS_MAX)
		quiet_ns = QUIET_NS_MAX;
	atomic_store(&patience->n_faults, 0);
	atomic_store(&patience->n_quiets, n_quiets + 1);
	ki_patience_be_quiet(patience, now_ns + quiet_ns);
}

void ki_patience_be_quiet(struct ki_patience *patience, uint64_t until_ns)
{
	uint64_t there = atomic_load(&patience->quiet_until_ns);

	while (there < until_ns &&
	       !atomic_compare_exchange_weak(&patience->quiet_until_ns, &there,
					     until_ns))
		;
}
