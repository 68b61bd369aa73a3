/* SPDX-License-Identifier: MIT */
#ifndef KI_BASE_MAP_H
#define KI_BASE_MAP_H

/*
 * A hash table from pointers (or other non-zero numbers) to pointers, open
 * addressing, for one thread or under its owner's lock.  The memory tier has
 * a table of its own.
 */

#include <stddef.h>
#include <stdint.h>

struct ki_map {
	struct ki_map_slot *slots;
	size_t n_slots; /* a power of two, or 0 */
	size_t n_used;
};

struct ki_map_slot {
	uintptr_t key; /* 0: free */
	void *value;
};

void ki_map_init(struct ki_map *map);
void ki_map_fini(struct ki_map *map);

/* NULL if absent. */
void *ki_map_get(const struct ki_map *map, uintptr_t key);

/* Insert or replace; -ENOMEM leaves the map as it was, and comes of inserting
   alone. */
int ki_map_put(struct ki_map *map, uintptr_t key, void *value);

/* Returns what was there, or NULL. */
void *ki_map_remove(struct ki_map *map, uintptr_t key);

/* Step through: start with *position 0; NULL at the end.  Not while the map
   changes. */
void *ki_map_next(const struct ki_map *map, size_t *position);

#endif /* KI_BASE_MAP_H */
