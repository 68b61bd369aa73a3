/* SPDX-License-Identifier: MIT */

/*
 * What guests have counted and not yet flushed, and noted and not yet kept, when
 * their program ends.
 *
 * Such a kiln is never closed.  It stands here from its opening on, and exit(), or
 * whoever unloads the library, flushes it: not _exit(), and not a signal.  There
 * are no locks here, because exit() may be called while another thread is at
 * anything, and by a handler over a call of ours.  A call in progress may hold
 * locks that the kilns share, so while any guest has one none is flushed.  In a
 * forked child the parent's stay the parent's.
 *
 *	open -> a free place            none: flushes at each call
 *	close -> the place is free      exit() has it already: left as it is
 */

#include "core/cache.h"

#include "core/hot.h"

#define PLACES 8

static _Atomic(struct kiln *) guests[PLACES];

int ki_exit_expect(struct kiln *kiln)
{
	for (size_t i = 0; i < PLACES; i++) {
		struct kiln *none = NULL;

		if (atomic_compare_exchange_strong(&guests[i], &none, kiln))
			return 1;
	}
	return 0;
}

int ki_exit_withdraw(struct kiln *kiln)
{
	for (size_t i = 0; i < PLACES; i++) {
		struct kiln *mine = kiln;

		if (atomic_compare_exchange_strong(&guests[i], &mine, NULL))
			return 1;
	}
	return 0;
}

/* They are taken first: nobody closes them meanwhile. */
static int take_guests(struct kiln *taken[PLACES])
{
	int are_idle = 1;

	for (size_t i = 0; i < PLACES; i++) {
		struct kiln *kiln = atomic_exchange(&guests[i], NULL);

		taken[i] = kiln && !ki_is_forked(kiln) ? kiln : NULL;
		if (!taken[i])
			continue;
		atomic_store(&kiln->is_patient, 0);
		are_idle &= !atomic_load(&kiln->calls);
	}
	return are_idle;
}

static __attribute__((destructor)) void flush_guests(void)
{
	struct kiln *taken[PLACES];

	if (!take_guests(taken))
		return;
	for (size_t i = 0; i < PLACES; i++)
		if (taken[i]) {
			ki_kiln_record(taken[i]);
			ki_kiln_flush(taken[i]);
		}
}
