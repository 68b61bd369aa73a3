/* SPDX-License-Identifier: MIT */

/*
 * A table of pointers, open addressing, at most half full.  A seed that nobody
 * gives a kernel for any more leaves a mark in its place, so that searches go
 * on behind it; marks go when the table is made anew, at a size for what is
 * there.
 *
 * Seeds and tables that are out of reach are freed after a grace period
 * (memory/slots.h), some at a time: to ask for one interrupts all processors.
 */

#include "program/seeds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "memory/slots.h"
#include "program/program.h"

#define PLACES_MIN  64
#define WAITING_MAX 64

static struct ki_seed gone = { .unit = UINT32_MAX }; /* marks a place */

void ki_seed_key_init(struct ki_seed_key *key, const void *constants,
		      size_t constants_size, uint32_t unit, const char *name)
{
	*key = (struct ki_seed_key){ .constants = constants,
				     .constants_size = constants_size,
				     .name = name,
				     .name_size = strlen(name),
				     .unit = unit };
	key->hash = ki_xxh3_64(name, key->name_size) + unit;
	if (constants_size)
		key->hash ^= ki_xxh3_64(constants, constants_size) *
			     0x9e3779b97f4a7c15u;
}

/* ---- Looking --------------------------------------------------------------- */

static int is_it(const struct ki_seed *seed, const struct ki_seed_key *key)
{
	return seed->hash == key->hash && seed->unit == key->unit &&
	       seed->name_size == key->name_size &&
	       seed->constants_size == key->constants_size &&
	       (!key->constants_size ||
		!memcmp(seed->bytes, key->constants, key->constants_size)) &&
	       !memcmp(seed->bytes + seed->constants_size, key->name,
		       key->name_size);
}

static struct ki_seed *find(struct ki_seed_table *table,
			    const struct ki_seed_key *key)
{
	struct ki_seed *seed;

	if (!table)
		return NULL;
	for (size_t i = key->hash;; i++) {
		seed = atomic_load_explicit(&table->places[i & table->mask],
					    memory_order_acquire);
		if (!seed || is_it(seed, key))
			return seed;
	}
}

struct kiln_kernel *ki_seeds_find(struct ki_seeds *seeds,
				  const struct ki_seed_key *key)
{
	struct ki_seed *seed = find(atomic_load(&seeds->table), key);

	return seed ? atomic_load(&seed->kernel) : NULL;
}

/* ---- Garbage --------------------------------------------------------------- */

static void empty(struct ki_seed_garbage *garbage)
{
	while (garbage->seeds) {
		struct ki_seed *seed = garbage->seeds;

		garbage->seeds = seed->next;
		free(seed);
	}
	while (garbage->tables) {
		struct ki_seed_table *table = garbage->tables;

		garbage->tables = table->next;
		free(table);
	}
	garbage->n = 0;
}

static void collect(struct ki_seeds *seeds)
{
	if (seeds->waiting.n < WAITING_MAX)
		return;
	if (seeds->garbage.n) {
		if (seeds->garbage.tag >= ki_slots_passed())
			return;
		empty(&seeds->garbage);
	}
	seeds->garbage = seeds->waiting;
	seeds->garbage.tag = ki_slots_retire();
	seeds->waiting = (struct ki_seed_garbage){ 0 };
}

/* ---- Changing -------------------------------------------------------------- */

static void place(struct ki_seed_table *table, struct ki_seed *seed)
{
	size_t i = seed->hash;

	while (atomic_load(&table->places[i & table->mask]))
		i++;
	atomic_store(&table->places[i & table->mask], seed);
}

static void take_out(struct ki_seed_table *table, const struct ki_seed *seed)
{
	size_t i = seed->hash;

	while (atomic_load(&table->places[i & table->mask]) != seed)
		i++;
	atomic_store(&table->places[i & table->mask], &gone);
}

static int make_room(struct ki_seeds *seeds)
{
	struct ki_seed_table *old = atomic_load(&seeds->table), *new;
	size_t n = PLACES_MIN;

	if (old && (seeds->n_used + 1) * 2 <= old->mask + 1)
		return 0;
	while (n < (seeds->n + 1) * 4)
		n *= 2;
	new = calloc(1, sizeof(*new) + n * sizeof(new->places[0]));
	if (!new)
		return -ENOMEM;
	new->mask = n - 1;
	for (size_t i = 0; old && i <= old->mask; i++) {
		struct ki_seed *seed = atomic_load(&old->places[i]);

		if (seed && seed != &gone)
			place(new, seed);
	}
	atomic_store(&seeds->table, new);
	seeds->n_used = seeds->n;
	if (old) {
		old->next = seeds->waiting.tables;
		seeds->waiting.tables = old;
		seeds->waiting.n++;
	}
	return 0;
}

static struct ki_seed *add(struct ki_seeds *seeds,
			   const struct ki_seed_key *key)
{
	struct ki_seed *seed;

	if (make_room(seeds))
		return NULL;
	seed = malloc(sizeof(*seed) + key->constants_size + key->name_size);
	if (!seed)
		return NULL;
	*seed = (struct ki_seed){ .hash = key->hash,
				  .constants_size = key->constants_size,
				  .name_size = key->name_size,
				  .unit = key->unit };
	ki_list_init(&seed->givers);
	if (key->constants_size)
		memcpy(seed->bytes, key->constants, key->constants_size);
	memcpy(seed->bytes + key->constants_size, key->name, key->name_size);
	place(atomic_load(&seeds->table), seed);
	seeds->n++;
	seeds->n_used++;
	return seed;
}

static int gives(const struct kiln_kernel *kernel, const struct ki_seed *seed)
{
	const struct ki_list *place;

	ki_list_for_each (place, &kernel->givers)
		if (ki_container(place, struct ki_seed_giver, of_kernel)
			    ->seed == seed)
			return 1;
	return 0;
}

/* The one kernel, if there is one. */
static void settle(struct ki_seed *seed)
{
	atomic_store(&seed->kernel,
		     seed->n_kernels == 1
			     ? ki_container(seed->givers.next,
					    struct ki_seed_giver, of_seed)
				       ->kernel
			     : NULL);
}

int ki_seeds_join(struct ki_seeds *seeds, const struct ki_seed_key *key,
		  struct kiln_kernel *kernel, struct ki_seed_giver *giver)
{
	struct ki_seed *seed = find(atomic_load(&seeds->table), key);

	if (!seed)
		seed = add(seeds, key);
	if (!seed)
		return -ENOMEM;
	if (!gives(kernel, seed))
		seed->n_kernels++;
	giver->seed = seed;
	giver->kernel = kernel;
	ki_list_append(&seed->givers, &giver->of_seed);
	ki_list_append(&kernel->givers, &giver->of_kernel);
	settle(seed);
	return 0;
}

void ki_seeds_leave(struct ki_seeds *seeds, struct ki_seed_giver *giver)
{
	struct ki_seed *seed = giver->seed;

	if (!seed)
		return;
	ki_list_remove(&giver->of_seed);
	ki_list_remove(&giver->of_kernel);
	giver->seed = NULL;
	if (!gives(giver->kernel, seed))
		seed->n_kernels--;
	settle(seed);
	if (seed->n_kernels)
		return;
	take_out(atomic_load(&seeds->table), seed);
	seeds->n--;
	seed->next = seeds->waiting.seeds;
	seeds->waiting.seeds = seed;
	seeds->waiting.n++;
	collect(seeds);
}

/* ---- Life ------------------------------------------------------------------ */

void ki_seeds_init(struct ki_seeds *seeds)
{
	memset(seeds, 0, sizeof(*seeds));
}

void ki_seeds_fini(struct ki_seeds *seeds)
{
	empty(&seeds->waiting);
	empty(&seeds->garbage);
	free(atomic_load(&seeds->table));
	ki_seeds_init(seeds);
}
