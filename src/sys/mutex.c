/* SPDX-License-Identifier: MIT */

/*
 * Mutexes with ranks.  In debug builds each thread remembers which ranks it
 * holds, as one bit each, and taking a rank that is not below all of them
 * stops the program: a deadlock found by its order, not by its luck.
 *
 * They are made by assignment, without a call of the system's library: each
 * one that a program needs first costs it about 1 us (lazy binding).
 */

#include "sys/sys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifndef NDEBUG
static __thread unsigned held __attribute__((tls_model("global-dynamic")));

static const char *const rank_names[] = {
#define NAME(name) #name,
	KI_MUTEX_RANKS(NAME)
#undef NAME
};

static void check_order(enum ki_mutex_rank rank)
{
	unsigned same_or_below = held >> rank;

	if (!same_or_below)
		return;
	fprintf(stderr, "kiln: lock order: took %s while holding %s\n",
		rank_names[rank],
		rank_names[(unsigned)__builtin_ctz(same_or_below) + rank]);
	abort();
}

static void note_held(enum ki_mutex_rank rank)
{
	held |= 1u << rank;
}

static void note_free(enum ki_mutex_rank rank)
{
	held &= ~(1u << rank);
}
#else
static void check_order(enum ki_mutex_rank rank)
{
}

static void note_held(enum ki_mutex_rank rank)
{
}

static void note_free(enum ki_mutex_rank rank)
{
}
#endif

void ki_mutex_init(struct ki_mutex *mutex, enum ki_mutex_rank rank)
{
	*mutex = (struct ki_mutex){ PTHREAD_MUTEX_INITIALIZER, rank };
}

void ki_mutex_fini(struct ki_mutex *mutex)
{
	pthread_mutex_destroy(&mutex->mutex);
}

void ki_mutex_lock(struct ki_mutex *mutex) KI_NO_ANALYSIS
{
	check_order(mutex->rank);
	pthread_mutex_lock(&mutex->mutex);
	note_held(mutex->rank);
}

int ki_mutex_try_lock(struct ki_mutex *mutex) KI_NO_ANALYSIS
{
	if (pthread_mutex_trylock(&mutex->mutex))
		return 0;
	note_held(mutex->rank);
	return 1;
}

void ki_mutex_unlock(struct ki_mutex *mutex) KI_NO_ANALYSIS
{
	note_free(mutex->rank);
	pthread_mutex_unlock(&mutex->mutex);
}

void ki_cond_init(struct ki_cond *cond)
{
	*cond = (struct ki_cond){ PTHREAD_COND_INITIALIZER };
}

void ki_cond_fini(struct ki_cond *cond)
{
	pthread_cond_destroy(&cond->cond);
}

void ki_cond_wait(struct ki_cond *cond, struct ki_mutex *mutex)
{
	pthread_cond_wait(&cond->cond, &mutex->mutex);
}

int ki_cond_wait_until(struct ki_cond *cond, struct ki_mutex *mutex,
		       uint64_t deadline_ns)
{
	struct timespec t = { .tv_sec = (time_t)(deadline_ns / 1000000000),
			      .tv_nsec = (long)(deadline_ns % 1000000000) };

	return -pthread_cond_clockwait(&cond->cond, &mutex->mutex,
				       CLOCK_MONOTONIC, &t);
}

void ki_cond_signal_all(struct ki_cond *cond)
{
	pthread_cond_broadcast(&cond->cond);
}
