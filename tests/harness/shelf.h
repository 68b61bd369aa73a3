/* SPDX-License-Identifier: MIT */
#ifndef KILN_TESTS_SHELF_H
#define KILN_TESTS_SHELF_H

/*
 * A tier that keeps entries in memory, and keeps every promise of
 * <kiln/tier.h>.  Its medium, the shelf, may be opened several times: tiers on
 * one shelf stand for processes on one store.
 */

#include <kiln/tier.h>

struct shelf;

struct shelf *shelf_new(void);
void shelf_free(struct shelf *shelf); /* after all its tiers are closed */

/* A tier on it, for kiln_options.tiers. */
struct kiln_tier *shelf_tier(struct shelf *shelf);

/* From now on get and put answer this (KILN_OK: they work again). */
void shelf_fail_get(struct shelf *shelf, enum kiln_status status);
void shelf_fail_put(struct shelf *shelf, enum kiln_status status);
/* What lock answers without trying; KILN_OK: it works. */
void shelf_fail_lock(struct shelf *shelf, enum kiln_status status);

/* How often each was called, of all tiers on the shelf. */
struct shelf_calls {
	unsigned get, put, remove, wipe, lock, count, prefetch, close;
	unsigned open_locks;
};
struct shelf_calls shelf_calls(struct shelf *shelf);

/* The counters that arrived. */
uint64_t shelf_counted(struct shelf *shelf, enum kiln_counter counter);

size_t shelf_n_entries(struct shelf *shelf);

#endif /* KILN_TESTS_SHELF_H */
