/* SPDX-License-Identifier: MIT */

/*
 * A heap of four children a node: at 100,000 entries it is nine levels deep, of
 * which the upper ones are in the cache.
 */

#include "program/lru.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHILDREN 4

void ki_lru_init(struct ki_lru *lru)
{
	memset(lru, 0, sizeof(*lru));
}

void ki_lru_fini(struct ki_lru *lru)
{
	free(lru->entries);
	ki_lru_init(lru);
}

static int is_before(const struct ki_lru_entry *a, const struct ki_lru_entry *b)
{
	return a->stamp < b->stamp ||
	       (a->stamp == b->stamp && a->order < b->order);
}

static void place(struct ki_lru *lru, size_t i, struct ki_lru_entry entry)
{
	lru->entries[i] = entry;
	entry.item->place = i + 1;
}

static void rise(struct ki_lru *lru, size_t i, struct ki_lru_entry entry)
{
	while (i && is_before(&entry, &lru->entries[(i - 1) / CHILDREN])) {
		place(lru, i, lru->entries[(i - 1) / CHILDREN]);
		i = (i - 1) / CHILDREN;
	}
	place(lru, i, entry);
}

static void sink(struct ki_lru *lru, size_t i, struct ki_lru_entry entry)
{
	for (;;) {
		size_t child = i * CHILDREN + 1, end = child + CHILDREN, first;

		if (end > lru->n)
			end = lru->n;
		if (child >= end)
			break;
		for (first = child++; child < end; child++)
			if (is_before(&lru->entries[child],
				      &lru->entries[first]))
				first = child;
		if (!is_before(&lru->entries[first], &entry))
			break;
		place(lru, i, lru->entries[first]);
		i = first;
	}
	place(lru, i, entry);
}

static void set_window(struct ki_lru *lru)
{
	uint64_t window = lru->n < KI_LRU_MANY ? 0 : KI_LRU_WINDOW;

	if (atomic_load(&lru->window) != window)
		atomic_store(&lru->window, window);
}

int ki_lru_add(struct ki_lru *lru, struct ki_lru_item *item)
{
	uint64_t now = ki_lru_now();

	if (lru->n == lru->capacity) {
		size_t capacity = lru->capacity ? lru->capacity * 2 : 64;
		struct ki_lru_entry *entries =
			realloc(lru->entries, capacity * sizeof(*entries));

		if (!entries)
			return -ENOMEM;
		lru->entries = entries;
		lru->capacity = capacity;
	}
	atomic_store_explicit(&item->stamp, now, memory_order_relaxed);
	atomic_store_explicit(&lru->added, now, memory_order_relaxed);
	set_window(lru);
	rise(lru, lru->n++,
	     (struct ki_lru_entry){ now, lru->next_order++, item });
	return 0;
}

void ki_lru_remove(struct ki_lru *lru, struct ki_lru_item *item)
{
	size_t i = item->place - 1;
	struct ki_lru_entry last;

	if (!item->place)
		return;
	item->place = 0;
	last = lru->entries[--lru->n];
	set_window(lru);
	if (i == lru->n)
		return;
	if (i && is_before(&last, &lru->entries[(i - 1) / CHILDREN]))
		rise(lru, i, last);
	else
		sink(lru, i, last);
}

/* Each is put back once: those that are used again while this goes on could be
   put back for ever. */
struct ki_lru_item *ki_lru_first(struct ki_lru *lru)
{
	for (size_t n_left = lru->n; lru->n; n_left--) {
		struct ki_lru_entry first = lru->entries[0];
		uint64_t stamp = atomic_load_explicit(&first.item->stamp,
						      memory_order_relaxed);

		if (stamp == first.stamp || !n_left)
			return first.item;
		first.stamp = stamp;
		sink(lru, 0, first);
	}
	return NULL;
}
