/* SPDX-License-Identifier: MIT */

#include "base/map.h"

#include <errno.h>
#include <stdlib.h>

#define SLOTS_MIN 16

void ki_map_init(struct ki_map *map)
{
	*map = (struct ki_map){ 0 };
}

void ki_map_fini(struct ki_map *map)
{
	free(map->slots);
	ki_map_init(map);
}

static size_t home(const struct ki_map *map, uintptr_t key)
{
	uint64_t mixed = (uint64_t)key * 0x9e3779b97f4a7c15u;

	return (size_t)(mixed >> 32) & (map->n_slots - 1);
}

/* The slot of the key, or the free one where it would go. */
static struct ki_map_slot *find(const struct ki_map *map, uintptr_t key)
{
	size_t i = home(map, key);

	while (map->slots[i].key && map->slots[i].key != key)
		i = (i + 1) & (map->n_slots - 1);
	return &map->slots[i];
}

void *ki_map_get(const struct ki_map *map, uintptr_t key)
{
	return map->n_slots && key ? find(map, key)->value : NULL;
}

static int grow(struct ki_map *map)
{
	struct ki_map bigger = { 0 };
	size_t i;

	bigger.n_slots = map->n_slots ? map->n_slots * 2 : SLOTS_MIN;
	bigger.n_used = map->n_used;
	bigger.slots = calloc(bigger.n_slots, sizeof(*bigger.slots));
	if (!bigger.slots)
		return -ENOMEM;
	for (i = 0; i < map->n_slots; i++)
		if (map->slots[i].key)
			*find(&bigger, map->slots[i].key) = map->slots[i];
	free(map->slots);
	*map = bigger;
	return 0;
}

int ki_map_put(struct ki_map *map, uintptr_t key, void *value)
{
	struct ki_map_slot *slot;

	if (!key)
		return -EINVAL;
	slot = map->n_slots ? find(map, key) : NULL;
	if (slot && slot->key) {
		slot->value = value;
		return 0;
	}
	if ((map->n_used + 1) * 4 > map->n_slots * 3) {
		int err = grow(map);
		if (err)
			return err;
	}
	slot = find(map, key);
	map->n_used++;
	slot->key = key;
	slot->value = value;
	return 0;
}

void *ki_map_remove(struct ki_map *map, uintptr_t key)
{
	struct ki_map_slot *slot;
	void *value;
	size_t hole, i;

	if (!map->n_slots || !key)
		return NULL;
	slot = find(map, key);
	if (!slot->key)
		return NULL;
	value = slot->value;
	map->n_used--;

	/* Move later slots of the run back, so that no search stops early. */
	hole = (size_t)(slot - map->slots);
	for (i = (hole + 1) & (map->n_slots - 1); map->slots[i].key;
	     i = (i + 1) & (map->n_slots - 1)) {
		size_t distance =
			(i - home(map, map->slots[i].key)) & (map->n_slots - 1);
		if (distance >= ((i - hole) & (map->n_slots - 1))) {
			map->slots[hole] = map->slots[i];
			hole = i;
		}
	}
	map->slots[hole] = (struct ki_map_slot){ 0 };
	return value;
}

void *ki_map_next(const struct ki_map *map, size_t *position)
{
	while (*position < map->n_slots) {
		const struct ki_map_slot *slot = &map->slots[(*position)++];
		if (slot->key)
			return slot->value;
	}
	return NULL;
}
