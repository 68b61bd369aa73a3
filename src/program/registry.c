/* SPDX-License-Identifier: MIT */

/*
 * What is kept, and in which order it goes.
 *
 *	new --> in the table --> registered, is_kept --> dropped --> released
 *		  |  hits from here on  |      \            |  out of the table
 *		  |                     |       kernels,    '- when its last
 *		  |                     |       fast entries   user lets go
 *		  '- and its kernels are kept from here on
 *
 * Nothing of the runtime's is called under the mutex: what goes is taken out of
 * the registry and the table under it, collected in a struct gone, and let go
 * after it.
 *
 * A program for several devices also serves requests for some of them.  Such
 * are found by its base (the key without devices): one place for each program,
 * however many devices it is for.
 */

#include <assert.h>
#include <stdlib.h>

#include "program/program.h"

/* What has been dropped and is still to be let go. */
struct gone {
	struct ki_list programs; /* by `all` */
	struct ki_list links;	 /* of a program that stays */
};

static void gone_init(struct gone *gone)
{
	ki_list_init(&gone->programs);
	ki_list_init(&gone->links);
}

static int gone_is_empty(const struct gone *gone)
{
	return ki_list_is_empty(&gone->programs) &&
	       ki_list_is_empty(&gone->links);
}

static struct kiln_program *program_of(struct ki_list *link)
{
	return ki_container(link, struct kiln_program, all);
}

static struct kiln_program *program_of_item(struct ki_lru_item *item)
{
	return ki_container(item, struct kiln_program, lru);
}

/* ---- Links ----------------------------------------------------------------- */

static void free_link(struct ki_link *link)
{
	if (!link)
		return;
	kiln_key_free(link->key);
	kiln_blob_unref(link->blob);
	free(link);
}

static struct ki_link *new_link(const struct kiln_key *key,
				struct kiln_blob *blob)
{
	struct ki_link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	link->key = kiln_key_ref((struct kiln_key *)key);
	link->blob = kiln_blob_ref(blob);
	return link;
}

static int by_key_add_locked(struct kiln_programs *programs,
			     struct ki_link *link)
{
	link->next = ki_map_get(&programs->links, ki_hash_of(link->key));
	return ki_map_put(&programs->links, ki_hash_of(link->key), link);
}

static void by_key_remove_locked(struct kiln_programs *programs,
				 struct ki_link *link)
{
	uintptr_t hash = ki_hash_of(link->key);
	struct ki_link *first = ki_map_get(&programs->links, hash);
	struct ki_link **place = &first;

	while (*place != link)
		place = &(*place)->next;
	*place = link->next;
	if (first)
		/* Its place is there already: this cannot fail. */
		(void)ki_map_put(&programs->links, hash, first);
	else
		(void)ki_map_remove(&programs->links, hash);
}

static int is_known_locked(struct kiln_programs *programs,
			   const struct kiln_key *key,
			   const struct kiln_blob *blob)
{
	const struct ki_link *known =
		ki_map_get(&programs->links, ki_hash_of(key));

	while (known &&
	       !(known->blob == blob && ki_is_same_key(known->key, key)))
		known = known->next;
	return known != NULL;
}

/* By its own key: neither in the fast map, nor the program itself. */
static int is_kernel(const struct ki_link *link,
		     const struct kiln_program *program)
{
	return !link->is_fast && link->blob != &program->blob;
}

enum added { ADDED, THERE_ALREADY, NOT_KEPT };

static enum added add_link_locked(struct kiln_programs *programs,
				  struct kiln_program *program,
				  struct ki_link *link,
				  const struct ki_seed_key *seed)
{
	if (!atomic_load(&program->is_kept))
		return NOT_KEPT;
	if (is_known_locked(programs, link->key, link->blob))
		return THERE_ALREADY;
	if (by_key_add_locked(programs, link))
		return NOT_KEPT;
	if (seed &&
	    ki_seeds_join(&programs->seeds, seed,
			  (struct kiln_kernel *)link->blob, &link->giver)) {
		by_key_remove_locked(programs, link);
		return NOT_KEPT;
	}
	link->is_fast = seed != NULL;
	ki_list_append(&program->links, &link->link);
	if (is_kernel(link, program))
		programs->n_kernels++;
	return ADDED;
}

void ki_registry_keep_link(struct kiln_programs *programs,
			   struct kiln_program *program,
			   const struct kiln_key *key,
			   const struct ki_seed_key *seed,
			   struct kiln_blob *blob)
{
	struct ki_link *link = new_link(key, blob);
	enum added added = NOT_KEPT;

	if (link) {
		ki_mutex_lock(&programs->mutex);
		added = add_link_locked(programs, program, link, seed);
		ki_mutex_unlock(&programs->mutex);
	}
	if (added == ADDED && blob != &program->blob)
		ki_trace_kernel(program, key, "Kernel inserted.");
	if (added == ADDED)
		return;
	free_link(link);
	/* Gone meanwhile, or no memory to know it by: not to be found. */
	if (added == NOT_KEPT) {
		(void)ki_memory_discard(programs->memory, key, blob);
		ki_memory_let_go(programs->memory);
	}
}

/* ---- Hints ----------------------------------------------------------------- */

/* Keys are the caller's and constant; what they lead to is ours. */
static struct ki_hint *ours(const struct ki_hint *hint)
{
	return (struct ki_hint *)(uintptr_t)hint;
}

static void clear_hint_locked(struct ki_hint *hint)
{
	atomic_store(&hint->blob, NULL);
	ki_list_remove(&hint->link);
}

/* What a key's request has led to may also be a kernel that is not kept, made
   beside another of the same. */
static int is_kept_locked(struct kiln_programs *programs,
			  const struct kiln_program *program,
			  const struct kiln_key *key,
			  const struct kiln_blob *blob)
{
	return atomic_load(&program->is_kept) &&
	       (blob == &program->blob || is_known_locked(programs, key, blob));
}

/* Only to what is counted by threads: where that is not so, or the thread has
   no room for another count, the way by the table is taken every time. */
void ki_registry_set_hint(struct kiln_programs *programs,
			  struct kiln_program *program,
			  const struct kiln_key *key,
			  const struct ki_hint *hint, struct kiln_blob *blob)
{
	if (atomic_load(&hint->blob) || !atomic_load(&blob->counter) ||
	    !atomic_load(&program->is_kept) || ki_programs_are_traced(programs))
		return;
	ki_mutex_lock(&programs->mutex);
	if (!atomic_load(&hint->blob) &&
	    is_kept_locked(programs, program, key, blob)) {
		atomic_store(&ours(hint)->blob, blob);
		ki_list_append(&program->hints, &ours(hint)->link);
	}
	ki_mutex_unlock(&programs->mutex);
}

void ki_registry_end_hint(struct kiln_programs *programs, struct ki_hint *hint)
{
	ki_mutex_lock(&programs->mutex);
	clear_hint_locked(hint);
	ki_mutex_unlock(&programs->mutex);
}

/* ---- Dropping -------------------------------------------------------------- */

/* Nobody finds it any more; who has just found it has until a grace period has
   passed to take a reference. */
static void hide_locked(struct kiln_programs *programs,
			const struct kiln_key *key,
			const struct kiln_blob *blob)
{
	int was_there = ki_memory_discard(programs->memory, key, blob);

	assert(was_there);
	(void)was_there;
}

static void drop_failed_locked(struct kiln_programs *programs,
			       struct ki_failed *failed)
{
	ki_memory_forget(programs->memory, failed->key);
	ki_list_remove(&failed->age);
	ki_list_remove(&failed->of_program);
	programs->n_failed--;
	programs->failed_bytes -= failed->bytes;
	kiln_key_free(failed->key);
	free(failed);
}

static void drop_all_failed_locked(struct kiln_programs *programs)
{
	while (!ki_list_is_empty(&programs->failed))
		drop_failed_locked(programs,
				   ki_container(programs->failed.next,
						struct ki_failed, age));
}

static void take_links_locked(struct kiln_programs *programs,
			      struct kiln_program *program)
{
	struct ki_list *place;

	while (!ki_list_is_empty(&program->hints))
		clear_hint_locked(ki_container(program->hints.next,
					       struct ki_hint, link));
	ki_list_for_each (place, &program->links) {
		struct ki_link *link =
			ki_container(place, struct ki_link, link);

		by_key_remove_locked(programs, link);
		ki_seeds_leave(&programs->seeds, &link->giver);
		hide_locked(programs, link->key, link->blob);
		if (is_kernel(link, program))
			programs->n_kernels--;
		if (link->blob != &program->blob)
			ki_trace_kernel(program, link->key, "Kernel evicted.");
	}
	while (!ki_list_is_empty(&program->failed))
		drop_failed_locked(programs,
				   ki_container(program->failed.next,
						struct ki_failed, of_program));
}

static void take_wide_locked(struct kiln_programs *programs,
			     struct kiln_program *program)
{
	uintptr_t hash = ki_hash_of(program->base);
	struct kiln_program *first, **place = &first;

	if (program->n_units < 2)
		return;
	first = ki_map_get(&programs->wide, hash);
	while (*place && *place != program)
		place = &(*place)->next_wide;
	if (*place)
		*place = program->next_wide;
	if (first)
		(void)ki_map_put(&programs->wide, hash, first);
	else
		(void)ki_map_remove(&programs->wide, hash);
}

static void take_program_locked(struct kiln_programs *programs,
				struct kiln_program *program, struct gone *gone)
{
	atomic_store(&program->is_kept, 0);
	take_links_locked(programs, program);
	take_wide_locked(programs, program);
	hide_locked(programs, program->key, &program->blob);
	ki_lru_remove(&programs->lru, &program->lru);
	ki_list_remove(&program->all);
	ki_list_append(&gone->programs, &program->all);
	programs->bytes -= program->bytes;
	programs->n_programs--;
	ki_trace_program(program, "Program evicted.");
}

static void free_links(struct ki_list *links)
{
	struct ki_list *place, *after;

	ki_list_for_each_safe (place, after, links) {
		ki_list_remove(place);
		free_link(ki_container(place, struct ki_link, link));
	}
}

/*
 * Without the lock: here the runtime's objects may end.  Hints to them have
 * been cleared, but who has just read one may not have taken its reference: the
 * table holds them until then, so what it lets go may be later than this.
 */
static void let_go(struct kiln_programs *programs, struct gone *gone)
{
	struct ki_list *place, *after;

	if (gone_is_empty(gone))
		return;
	free_links(&gone->links);
	ki_list_for_each_safe (place, after, &gone->programs) {
		struct kiln_program *program = program_of(place);

		ki_list_remove(place);
		free_links(&program->links);
		kiln_program_unref(program);
	}
	ki_memory_let_go(programs->memory);
}

/* The same, and it has ended when this returns, if nobody uses it. */
static void let_go_now(struct kiln_programs *programs, struct gone *gone)
{
	let_go(programs, gone);
	ki_slots_wait();
	ki_memory_let_go(programs->memory);
}

static void take_all_locked(struct kiln_programs *programs,
			    const struct kiln_program *spared,
			    struct gone *gone)
{
	struct ki_list *place, *after;

	ki_list_for_each_safe (place, after, &programs->all) {
		struct kiln_program *program = program_of(place);

		if (program != spared) {
			take_program_locked(programs, program, gone);
			continue;
		}
		take_links_locked(programs, program);
		while (!ki_list_is_empty(&program->links)) {
			struct ki_list *link = program->links.next;

			ki_list_remove(link);
			ki_list_append(&gone->links, link);
		}
	}
	drop_all_failed_locked(programs);
}

static void take_cold_half_locked(struct kiln_programs *programs,
				  struct kiln_program *spared,
				  struct gone *gone)
{
	size_t n = (programs->lru.n + 1) / 2;
	int is_queued = spared && spared->lru.place;

	if (is_queued)
		ki_lru_remove(&programs->lru, &spared->lru);
	for (; n && programs->lru.n; n--)
		take_program_locked(
			programs, program_of_item(ki_lru_first(&programs->lru)),
			gone);
	/* Its place is there still: this cannot fail. */
	if (is_queued)
		(void)ki_lru_add(&programs->lru, &spared->lru);
}

void ki_registry_drop(struct kiln_programs *programs, enum ki_drop what,
		      struct kiln_program *spared)
{
	struct gone gone;

	gone_init(&gone);
	ki_mutex_lock(&programs->mutex);
	if (what == KI_DROP_ALL)
		take_all_locked(programs, spared, &gone);
	else
		take_cold_half_locked(programs, spared, &gone);
	ki_mutex_unlock(&programs->mutex);
	let_go_now(programs, &gone);
}

void ki_registry_drop_image(struct kiln_programs *programs,
			    const uint8_t image[KI_BLAKE2B_BYTES])
{
	struct ki_list *place, *after;
	struct gone gone;

	gone_init(&gone);
	ki_mutex_lock(&programs->mutex);
	ki_list_for_each_safe (place, after, &programs->all) {
		struct kiln_program *program = program_of(place);

		if (!memcmp(program->image, image, KI_BLAKE2B_BYTES))
			take_program_locked(programs, program, &gone);
	}
	ki_list_for_each_safe (place, after, &programs->failed) {
		struct ki_failed *failed =
			ki_container(place, struct ki_failed, age);

		if (!memcmp(failed->image, image, KI_BLAKE2B_BYTES))
			drop_failed_locked(programs, failed);
	}
	ki_mutex_unlock(&programs->mutex);
	let_go_now(programs, &gone);
}

/* ---- Keeping --------------------------------------------------------------- */

static int add_wide_locked(struct kiln_programs *programs,
			   struct kiln_program *program)
{
	uintptr_t hash = ki_hash_of(program->base);

	if (program->n_units < 2)
		return 0;
	program->next_wide = ki_map_get(&programs->wide, hash);
	return ki_map_put(&programs->wide, hash, program);
}

static int register_locked(struct kiln_programs *programs,
			   struct kiln_program *program)
{
	if (programs->keeps_time && ki_lru_add(&programs->lru, &program->lru))
		return 0;
	if (add_wide_locked(programs, program)) {
		ki_lru_remove(&programs->lru, &program->lru);
		return 0;
	}
	ki_list_append(&programs->all, &program->all);
	programs->bytes += program->bytes;
	programs->n_programs++;
	atomic_store(&program->is_kept, 1);
	ki_trace_program(program, "Program inserted.");
	if (programs->keeps_time)
		ki_trace_program(program,
				 "Program added to the end of eviction list.");
	return 1;
}

/* The new one is the last that was used; it alone is within the bound. */
static void keep_bound_locked(struct kiln_programs *programs, struct gone *gone)
{
	while (programs->bytes_max && programs->bytes > programs->bytes_max) {
		take_program_locked(
			programs, program_of_item(ki_lru_first(&programs->lru)),
			gone);
		ki_programs_count(programs, KI_COUNT_EVICTED);
	}
}

void ki_registry_keep(struct kiln_programs *programs,
		      struct kiln_program *program)
{
	struct gone gone;
	int is_kept;

	if (programs->bytes_max && program->bytes > programs->bytes_max)
		return;
	if (ki_memory_add(programs->memory, program->key, &program->blob))
		return;
	gone_init(&gone);
	kiln_program_ref(program);
	ki_mutex_lock(&programs->mutex);
	is_kept = register_locked(programs, program);
	keep_bound_locked(programs, &gone);
	ki_mutex_unlock(&programs->mutex);
	if (!is_kept) {
		(void)ki_memory_discard(programs->memory, program->key,
					&program->blob);
		ki_memory_let_go(programs->memory);
		kiln_program_unref(program);
	}
	let_go(programs, &gone);
}

static struct ki_failed *new_failed(const struct kiln_key *key,
				    const struct kiln_program_failure *failure,
				    const uint8_t image[KI_BLAKE2B_BYTES])
{
	struct ki_failed *failed = calloc(1, sizeof(*failed));

	if (!failed)
		return NULL;
	ki_list_init(&failed->age);
	ki_list_init(&failed->of_program);
	failed->key = kiln_key_ref((struct kiln_key *)key);
	failed->bytes = sizeof(*failed) + key->record.size +
			(failure->message ? strlen(failure->message) : 0);
	memcpy(failed->image, image, KI_BLAKE2B_BYTES);
	return failed;
}

/* The new one may be the first to go. */
static void note_locked(struct kiln_programs *programs,
			struct ki_failed *failed)
{
	ki_list_append(&programs->failed, &failed->age);
	programs->n_failed++;
	programs->failed_bytes += failed->bytes;
	while (programs->bytes_max &&
	       (programs->n_failed > KI_PROGRAM_FAILURES_MAX ||
		programs->failed_bytes > KI_PROGRAM_FAILURE_BYTES_MAX))
		drop_failed_locked(programs,
				   ki_container(programs->failed.next,
						struct ki_failed, age));
}

void ki_registry_note_failure(struct kiln_programs *programs,
			      const struct kiln_program_key *key,
			      const struct kiln_program_failure *failure)
{
	struct ki_failed *failed =
		new_failed(key->key, failure, key->image_name);

	/* What could not be taken back is not kept. */
	if (!failed) {
		ki_memory_forget(programs->memory, key->key);
		return;
	}
	ki_mutex_lock(&programs->mutex);
	note_locked(programs, failed);
	ki_mutex_unlock(&programs->mutex);
}

void ki_registry_note_kernel(struct kiln_programs *programs,
			     struct kiln_program *program,
			     const struct kiln_key *key,
			     const struct kiln_program_failure *failure)
{
	struct ki_failed *failed = new_failed(key, failure, program->image);
	int is_noted = 0;

	ki_mutex_lock(&programs->mutex);
	if (failed && atomic_load(&program->is_kept)) {
		ki_list_append(&program->failed, &failed->of_program);
		note_locked(programs, failed);
		is_noted = 1;
	}
	ki_mutex_unlock(&programs->mutex);
	if (is_noted)
		return;
	ki_memory_forget(programs->memory, key);
	if (failed)
		kiln_key_free(failed->key);
	free(failed);
}

/* ---- Finding --------------------------------------------------------------- */

/* Whether the sorted units of a program include those of a key. */
static int covers(const struct kiln_program *program,
		  const struct kiln_program_key *key)
{
	size_t i = 0;

	for (size_t k = 0; k < key->n_devices; k++, i++) {
		while (i < program->n_units &&
		       program->units[i] < key->units[k])
			i++;
		if (i == program->n_units || program->units[i] != key->units[k])
			return 0;
	}
	return 1;
}

struct kiln_program *ki_registry_find_wider(struct kiln_programs *programs,
					    const struct kiln_program_key *key)
{
	struct kiln_program *program;

	ki_mutex_lock(&programs->mutex);
	program = ki_map_get(&programs->wide, ki_hash_of(key->base));
	while (program && !(ki_is_same_key(program->base, key->base) &&
			    covers(program, key)))
		program = program->next_wide;
	if (program)
		kiln_program_ref(program);
	ki_mutex_unlock(&programs->mutex);
	return program;
}

struct kiln_kernel *ki_registry_find_seed(struct kiln_programs *programs,
					  const struct ki_seed_key *seed)
{
	struct kiln_kernel *kernel;

	ki_mutex_lock(&programs->mutex);
	kernel = ki_seeds_find(&programs->seeds, seed);
	if (kernel)
		kiln_kernel_ref(kernel);
	ki_mutex_unlock(&programs->mutex);
	return kernel;
}

/* ---- Life ------------------------------------------------------------------ */

void ki_registry_init(struct kiln_programs *programs)
{
	ki_mutex_init(&programs->mutex, KI_RANK_PROGRAM);
	ki_lru_init(&programs->lru);
	ki_list_init(&programs->all);
	ki_list_init(&programs->failed);
	ki_map_init(&programs->wide);
	ki_map_init(&programs->links);
	ki_seeds_init(&programs->seeds);
}

void ki_registry_fini(struct kiln_programs *programs)
{
	ki_seeds_fini(&programs->seeds);
	ki_map_fini(&programs->links);
	ki_map_fini(&programs->wide);
	ki_lru_fini(&programs->lru);
	ki_mutex_fini(&programs->mutex);
}
