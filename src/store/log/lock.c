/* SPDX-License-Identifier: MIT */

/*
 * Locks on NAME.lock (store/locks.c has how they are taken):
 *
 *	byte 0                 rolls, eviction, growth, wipe     "structure"
 *	1 + digest             one process builds this key       "build"
 *	2^63 - 2               open D3D12 sessions, shared
 *
 * Order: build, byte 0.  Nobody asks whether the holder of byte 0 is dead: it
 * may be stopped half-way.
 */

#include "store/log/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Structure ------------------------------------------------------- */

enum kiln_status ki_log_structure_begin(struct ki_log *log,
					struct ki_lock *lock,
					uint32_t timeout_ms)
{
	const struct ki_sys *sys = log->sys;
	uint64_t deadline_ns =
		sys->monotonic_ns(sys) + (uint64_t)timeout_ms * 1000000;
	int err = 0;

	/* Threads of one handle queue here, without polling. */
	ki_mutex_lock(&log->mutex);
	while (log->structure_is_busy && !err)
		err = ki_cond_wait_until(&log->changed, &log->mutex,
					 deadline_ns);
	if (!log->structure_is_busy)
		err = 0;
	if (!err)
		log->structure_is_busy = 1;
	ki_mutex_unlock(&log->mutex);
	if (err)
		return KILN_E_TIMEOUT;

	err = ki_lock_byte(&log->locks, LOG_LOCK_STRUCTURE, deadline_ns, lock);
	if (err) {
		lock->fd = -1;
		ki_log_structure_end(log, lock);
	}
	return ki_log_status(err);
}

void ki_log_structure_end(struct ki_log *log, struct ki_lock *lock)
{
	ki_unlock(log->sys, lock);
	ki_mutex_lock(&log->mutex);
	log->structure_is_busy = 0;
	ki_cond_signal_all(&log->changed);
	ki_mutex_unlock(&log->mutex);
}

/* ---- Patience ---------------------------------------------------------- */

#define VAIN_STORES 16

/* Of the process: a program may open and close a hundred times.  Wrong, where
   two stores share a place or two threads write it, is only slow or hasty. */
static struct {
	_Atomic uint64_t store;
	_Atomic uint64_t since_ns;
} vain[VAIN_STORES];

static uint64_t store_name(const struct ki_log *log)
{
	return ki_xxh3_64(log->lock_path, strlen(log->lock_path));
}

uint32_t ki_log_patience_ms(const struct ki_log *log)
{
	uint64_t store = store_name(log);
	uint64_t since_ns = vain[store % VAIN_STORES].since_ns;

	if (vain[store % VAIN_STORES].store == store && since_ns &&
	    log->sys->monotonic_ns(log->sys) - since_ns < LOG_VAIN_NS)
		return LOG_ROLL_TIMEOUT_MS;
	return LOG_CHANGE_TIMEOUT_MS;
}

void ki_log_note_wait(const struct ki_log *log, int was_in_vain)
{
	uint64_t store = store_name(log);

	if (was_in_vain) {
		vain[store % VAIN_STORES].store = store;
		vain[store % VAIN_STORES].since_ns =
			log->sys->monotonic_ns(log->sys);
	} else if (vain[store % VAIN_STORES].store == store) {
		vain[store % VAIN_STORES].since_ns = 0;
	}
}

/* ---- Build locks ----------------------------------------------------- */

struct kiln_tier_lock {
	struct ki_lock lock;
};

enum kiln_status ki_log_build_lock(struct kiln_tier *tier,
				   const struct kiln_key *key,
				   uint32_t timeout_ms,
				   struct kiln_tier_lock **out_lock)
{
	struct ki_log *log = (struct ki_log *)tier;
	struct kiln_tier_lock *lock;
	int err;

	if (log->readonly || log->guest)
		return KILN_E_UNSUPPORTED;
	lock = calloc(1, sizeof(*lock));
	if (!lock)
		return KILN_E_NO_MEMORY;
	err = ki_lock_build(&log->locks, key, timeout_ms, &lock->lock);
	if (err) {
		free(lock);
		return ki_log_status(err);
	}
	*out_lock = lock;
	return KILN_OK;
}

void ki_log_build_unlock(struct kiln_tier *tier, struct kiln_tier_lock *lock)
{
	ki_unlock(((struct ki_log *)tier)->sys, &lock->lock);
	free(lock);
}

/* ---- Who is building ------------------------------------------------- */

#define BUILD_NS_MAX ((uint64_t)600 * 1000000000)

static int is_own_builder(const struct ki_log *log,
			  const struct log_builder *builder)
{
	return builder->process == log->locks.self.name &&
	       builder->start == log->locks.self.start &&
	       builder->handle == (uintptr_t)log;
}

static int is_dead(struct ki_log *log, const struct log_builder *builder)
{
	return ki_process_is_dead(log->sys, &log->locks.self, builder->process,
				  builder->start);
}

static struct log_builder *own_builder(struct ki_log *log,
				       struct log_header *header)
{
	const uint64_t process = ki_process_name(log->sys, &log->locks.self);
	int i, second;

	if (!process)
		return NULL;
	for (i = 0; i < LOG_BUILDERS; i++)
		if (is_own_builder(log, &header->builders[i]))
			return &header->builders[i];

	/* A free one, else a dead one's. */
	for (second = 0; second < 2; second++)
		for (i = 0; i < LOG_BUILDERS; i++) {
			struct log_builder *builder = &header->builders[i];
			uint64_t other = builder->process;

			if (other && (!second || !is_dead(log, builder)))
				continue;
			if (!atomic_compare_exchange_strong(&builder->process,
							    &other, process))
				continue;
			builder->begun_ns = 0;
			builder->start = log->locks.self.start;
			builder->handle = (uintptr_t)log;
			return builder;
		}
	return NULL;
}

void ki_log_note_build(struct kiln_tier *tier, int begins)
{
	struct ki_log *log = (struct ki_log *)tier;
	_Atomic uint64_t *stripe;
	struct log_builder *builder;
	struct log_index *index;
	unsigned n;

	n = begins ? ++log->n_building : --log->n_building;
	if (!begins && n)
		return;
	stripe = ki_log_enter(log);
	if (!ki_log_current(log, LOG_READ, &index) && index->writable) {
		builder = own_builder(log, index->header);
		if (builder)
			builder->begun_ns =
				begins ? log->sys->monotonic_ns(log->sys) : 0;
	}
	ki_log_leave(log, stripe);
}

unsigned ki_log_builds_now(struct kiln_tier *tier)
{
	struct ki_log *log = (struct ki_log *)tier;
	_Atomic uint64_t *stripe = ki_log_enter(log);
	uint64_t now_ns = log->sys->monotonic_ns(log->sys);
	struct log_index *index;
	unsigned n = 0, i;

	if (ki_log_current(log, LOG_READ, &index))
		index = NULL;
	for (i = 0; index && i < LOG_BUILDERS; i++) {
		struct log_builder *builder = &index->header->builders[i];
		uint64_t begun_ns = builder->begun_ns;

		n += builder->process && begun_ns && begun_ns <= now_ns &&
		     now_ns - begun_ns < BUILD_NS_MAX && !is_dead(log, builder);
	}
	ki_log_leave(log, stripe);
	return n;
}

void ki_log_forget_builder(struct ki_log *log)
{
	struct log_index *index = log->index;
	int i;

	/* Who never asked who it is has built nothing. */
	if (!log->locks.self.name || !index || !ki_log_is_mapped(index) ||
	    !index->writable)
		return;
	for (i = 0; i < LOG_BUILDERS; i++) {
		struct log_builder *builder = &index->header->builders[i];

		if (!is_own_builder(log, builder))
			continue;
		builder->begun_ns = 0;
		builder->process = 0;
	}
}
