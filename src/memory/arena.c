/* SPDX-License-Identifier: MIT */

/*
 *	chunk ---- header --- place --- place --- ... --- never used yet
 *
 * Free places are a list through their first words.  A chunk that became open
 * again is the last to be asked, so that it may become empty.
 */

#include "memory/arena.h"

#define IDLE_SHARE 16 /* bytes for each entry of the table */

struct place {
	struct place *next;
};

/* Under the arena's mutex. */
struct chunk {
	_Alignas(KI_ARENA_STEP) struct ki_list link; /* in open; or empty */
	struct place *free;
	size_t unused; /* offset of what was never used */
	size_t size;   /* of a place */
	size_t n_used;
};

void ki_arena_init(struct ki_arena *arena)
{
	atomic_init(&arena->idle, 0);
	ki_mutex_init(&arena->mutex, KI_RANK_ARENA);
	for (size_t i = 0; i < KI_ARENA_CLASSES; i++)
		ki_list_init(&arena->open[i]);
}

void ki_arena_fini(struct ki_arena *arena)
{
	ki_mutex_fini(&arena->mutex);
}

static void add_idle_locked(struct ki_arena *arena, size_t bytes)
	KI_REQUIRES(&arena->mutex)
{
	atomic_store_explicit(&arena->idle, ki_arena_idle(arena) + bytes,
			      memory_order_relaxed);
}

static int is_full(const struct chunk *chunk)
{
	return !chunk->free &&
	       chunk->unused + chunk->size > KI_ARENA_CHUNK_BYTES;
}

static struct chunk *begin_locked(struct ki_arena *arena, size_t size)
	KI_REQUIRES(&arena->mutex)
{
	struct chunk *chunk;

	chunk = ki_pages_new(KI_ARENA_CHUNK_BYTES);
	if (!chunk)
		return NULL;
	chunk->size = size;
	chunk->unused = sizeof(*chunk);
	ki_list_append(&arena->open[size / KI_ARENA_STEP], &chunk->link);
	add_idle_locked(arena, KI_ARENA_CHUNK_BYTES);
	return chunk;
}

static void *take_locked(struct ki_arena *arena, struct chunk *chunk)
	KI_REQUIRES(&arena->mutex)
{
	struct place *place = chunk->free;

	if (place) {
		chunk->free = place->next;
	} else {
		place = (struct place *)((char *)chunk + chunk->unused);
		chunk->unused += chunk->size;
	}
	chunk->n_used++;
	if (is_full(chunk))
		ki_list_remove(&chunk->link);
	add_idle_locked(arena, -chunk->size);
	return place;
}

static void *take(struct ki_arena *arena, size_t size, int may_begin)
{
	struct ki_list *open = &arena->open[size / KI_ARENA_STEP];
	struct chunk *chunk = NULL;
	void *place = NULL;

	ki_mutex_lock(&arena->mutex);
	if (!ki_list_is_empty(open))
		chunk = ki_container(open->next, struct chunk, link);
	else if (may_begin)
		chunk = begin_locked(arena, size);
	if (chunk)
		place = take_locked(arena, chunk);
	ki_mutex_unlock(&arena->mutex);
	return place;
}

void *ki_arena_take(struct ki_arena *arena, size_t size)
{
	return size > KI_ARENA_PLACE_MAX ? NULL : take(arena, size, 0);
}

int ki_arena_wants_chunk(struct ki_arena *arena, size_t size,
			 uint64_t n_entries)
{
	return size <= KI_ARENA_PLACE_MAX &&
	       n_entries >= KI_ARENA_ENTRIES_MIN &&
	       ki_arena_idle(arena) <= n_entries * IDLE_SHARE;
}

void *ki_arena_take_new(struct ki_arena *arena, size_t size)
{
	return take(arena, size, 1);
}

void ki_arena_give_back(struct ki_arena *arena, void *given)
{
	struct chunk *chunk =
		(struct chunk *)((uintptr_t)given &
				 ~(uintptr_t)(KI_ARENA_CHUNK_BYTES - 1));
	struct place *place = given;
	int is_empty;

	ki_mutex_lock(&arena->mutex);
	if (is_full(chunk))
		ki_list_append(&arena->open[chunk->size / KI_ARENA_STEP],
			       &chunk->link);
	place->next = chunk->free;
	chunk->free = place;
	chunk->n_used--;
	add_idle_locked(arena, chunk->size);
	is_empty = !chunk->n_used;
	if (is_empty) {
		ki_list_remove(&chunk->link);
		add_idle_locked(arena, -KI_ARENA_CHUNK_BYTES);
	}
	ki_mutex_unlock(&arena->mutex);
	if (is_empty)
		ki_pages_free(chunk, KI_ARENA_CHUNK_BYTES);
}
