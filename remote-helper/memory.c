/* SPDX-License-Identifier: MIT */

#include "memory.h"

#include <stdlib.h>

#define NS_OF_S 1000000000u

void memory_init(struct memory *memory, uint64_t bytes_max)
{
	*memory = (struct memory){ .bytes_max = bytes_max };
	ki_list_init(&memory->unserved);
	ki_list_init(&memory->served);
}

void memory_fini(struct memory *memory)
{
	struct name_link *link;

	while ((link = names_any(&memory->names)))
		memory_remove(memory,
			      ki_container(link, struct memory_item, by_name));
	names_fini(&memory->names);
}

void memory_remove(struct memory *memory, struct memory_item *kept)
{
	names_remove(&memory->names, &kept->by_name);
	ki_list_remove(&kept->link);
	memory->bytes -= kept->item->size;
	if (!kept->is_served)
		memory->unserved_bytes -= kept->item->size;
	item_unref(kept->item);
	free(kept);
}

static void evict_first(struct memory *memory, struct ki_list *list)
{
	memory_remove(memory,
		      ki_container(list->next, struct memory_item, link));
}

/* Until `size` bytes more are within the bound; 0: they never are. */
static int make_room(struct memory *memory, uint64_t size)
{
	if (memory->aside + size > memory->bytes_max)
		return 0;
	while (memory->bytes + memory->aside + size > memory->bytes_max) {
		if (!ki_list_is_empty(&memory->served)) {
			evict_first(memory, &memory->served);
			continue;
		}
		evict_first(memory, &memory->unserved);
		memory->n_evicted++;
	}
	return 1;
}

void memory_put(struct memory *memory, const uint8_t name[KI_REMOTE_NAME_BYTES],
		unsigned level, struct item *item, int is_served,
		uint64_t now_ns)
{
	struct memory_item *kept = memory_get(memory, name);

	if (kept)
		memory_remove(memory, kept);
	if (!make_room(memory, item->size))
		return;
	kept = malloc(sizeof(*kept));
	if (!kept)
		return;
	*kept = (struct memory_item){ .item = item_ref(item),
				      .level = level,
				      .is_served = is_served,
				      .since_ns = now_ns };
	if (!names_add(&memory->names, &kept->by_name, name)) {
		item_unref(kept->item);
		free(kept);
		return;
	}
	ki_list_append(is_served ? &memory->served : &memory->unserved,
		       &kept->link);
	memory->bytes += item->size;
	if (!is_served)
		memory->unserved_bytes += item->size;
}

struct memory_item *memory_get(const struct memory *memory,
			       const uint8_t name[KI_REMOTE_NAME_BYTES])
{
	struct name_link *link = names_find(&memory->names, name);

	return link ? ki_container(link, struct memory_item, by_name) : NULL;
}

void memory_serve(struct memory *memory, struct memory_item *kept,
		  uint64_t now_ns)
{
	if (!kept->is_served)
		memory->unserved_bytes -= kept->item->size;
	kept->is_served = 1;
	kept->since_ns = now_ns;
	ki_list_remove(&kept->link);
	ki_list_append(&memory->served, &kept->link);
}

uint64_t memory_room(const struct memory *memory)
{
	uint64_t most = memory->bytes_max / 4 * 3;
	uint64_t taken = memory->unserved_bytes + memory->aside;

	return taken < most ? most - taken : 0;
}

void memory_set_aside(struct memory *memory, uint64_t bytes)
{
	(void)make_room(memory, bytes);
	memory->aside += bytes;
}

void memory_give_back(struct memory *memory, uint64_t bytes)
{
	memory->aside -= bytes;
}

static void sweep(struct memory *memory, struct ki_list *list, uint64_t age_s,
		  uint64_t now_ns)
{
	while (!ki_list_is_empty(list) &&
	       now_ns - ki_container(list->next, struct memory_item, link)
				       ->since_ns >
		       age_s * NS_OF_S) {
		memory->n_evicted += list == &memory->unserved;
		evict_first(memory, list);
	}
}

void memory_sweep(struct memory *memory, uint64_t now_ns)
{
	sweep(memory, &memory->served, MEMORY_SERVED_S, now_ns);
	sweep(memory, &memory->unserved, MEMORY_UNSERVED_S, now_ns);
}
