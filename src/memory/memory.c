/* SPDX-License-Identifier: MIT */

/*
 * Flights, and the memory tier's face.  Values are in table.c, what threads
 * write on a hit is in slots.c.
 *
 *	begin --hit------------------------------------------> result
 *	      --kept failure---------------------------------> result
 *	      --flight of another thread: wait --its result--> result
 *	      |                       '--spurious, or it gave up: again, until
 *	      |                          it is this thread's turn to lead
 *	      '-lead: [tiers, build] -> finish --wakes those who wait
 *
 * A flight is in a chain of its key's hash while it is led and, if it failed
 * and the policy says so, in a map of its own afterwards: a kept failure is a
 * flight that nobody leads.
 *
 * Who leads is known by thread: each thread has a stack of the flights it
 * leads.  One that leads anything never waits for a flight, so two builds that
 * ask for each other's keys cannot wait in a ring.
 */

#include "memory/find.h"

#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "memory/table.h"
#include "sys/sys.h"

#define CHAINS		  KI_FLIGHT_CHAINS
#define FAILURES_MAX	  4096
#define FAILURE_BYTES_MAX ((uint64_t)16 << 20)

struct ki_flight {
	/* Fixed. */
	struct ki_memory *memory;
	struct kiln_key *key;
	struct ki_flight *outer; /* led by the same thread */
	int nested;
	int is_open; /* of its thread alone */
	/* Atomic. */
	_Atomic unsigned refs; /* leader, chain or map, those who wait */
	/* Under mutex. */
	struct ki_list link;	/* in a chain, while it is led */
	struct ki_flight *next; /* kept, of equal hash */
	struct ki_list age;	/* of kept failures */
	struct ki_cond cond;
	int done;
	/* Written once, before done. */
	enum kiln_status status;
	struct kiln_build_result result;
	uint64_t expires_ns; /* 0: never */
};

static __thread struct ki_flight *innermost;

/* ---- Hits ------------------------------------------------------------------ */

enum kiln_status ki_memory_get(struct ki_memory *memory,
			       const struct kiln_key *key,
			       struct kiln_blob **out_blob)
{
	struct ki_slot *slot;
	enum kiln_status status;
	int stale;

	if (memory->options.hold_nothing)
		return KILN_MISS;
	slot = ki_slot_enter();
	status = ki_table_get(&memory->table, key, slot, out_blob, &stale);
	if (!status)
		ki_memory_count_hit(memory, slot);
	if (slot)
		ki_slot_leave(slot);
	if (!status && stale && memory->options.stale)
		memory->options.stale(memory->options.stale_arg, key);
	return status;
}

/* ---- Flights --------------------------------------------------------------- */

static int is_same_key(const struct kiln_key *a, const struct kiln_key *b)
{
	return a == b ||
	       (a->digest_low == b->digest_low &&
		a->digest_high == b->digest_high &&
		a->record.size == b->record.size &&
		!memcmp(a->record.data, b->record.data, a->record.size));
}

static struct ki_list *chain_of(struct ki_memory *memory,
				const struct kiln_key *key)
{
	return &memory->chains[key->digest_low % CHAINS];
}

static uint64_t failure_cost(const struct ki_flight *flight)
{
	const char *message = flight->result.message;

	return sizeof(*flight) + flight->key->record.size +
	       (message ? strlen(message) : 0);
}

static void unref(struct ki_flight *flight)
{
	if (!flight || atomic_fetch_sub(&flight->refs, 1) != 1)
		return;
	kiln_key_free(flight->key);
	free(flight->result.message);
	kiln_blob_unref(flight->result.blob);
	/* A child's threads that never came back would be waited for. */
	if (atomic_load(&ki_fork_counter) == flight->memory->fork_counter)
		ki_cond_fini(&flight->cond);
	free(flight);
}

/* Never 0. */
static uintptr_t hash_of(const struct kiln_key *key)
{
	return (uintptr_t)key->digest_low | 1;
}

static void forget_failure_locked(struct ki_memory *memory,
				  struct ki_flight *flight)
{
	uintptr_t hash = hash_of(flight->key);
	struct ki_flight *first = ki_map_get(&memory->kept, hash);
	struct ki_flight **place = &first;

	while (*place != flight)
		place = &(*place)->next;
	*place = flight->next;
	if (first)
		/* Its place is there already: this cannot fail. */
		(void)ki_map_put(&memory->kept, hash, first);
	else
		(void)ki_map_remove(&memory->kept, hash);
	memory->n_failures--;
	memory->failure_bytes -= failure_cost(flight);
	ki_list_remove(&flight->age);
	unref(flight); /* a failure has no blob: nothing to call */
}

/* A failure that still counts. */
static struct ki_flight *find_kept_locked(struct ki_memory *memory,
					  const struct kiln_key *key)
{
	struct ki_flight *flight = ki_map_get(&memory->kept, hash_of(key));

	while (flight && !is_same_key(flight->key, key))
		flight = flight->next;
	if (!flight || !flight->expires_ns ||
	    flight->expires_ns > ki_sys_posix.monotonic_ns(&ki_sys_posix))
		return flight;
	forget_failure_locked(memory, flight);
	return NULL;
}

/* A flight in the air or a failure that still counts. */
static struct ki_flight *find_locked(struct ki_memory *memory,
				     const struct kiln_key *key)
{
	struct ki_list *link;

	ki_list_for_each (link, chain_of(memory, key)) {
		struct ki_flight *flight =
			ki_container(link, struct ki_flight, link);

		if (is_same_key(flight->key, key))
			return flight;
	}
	return find_kept_locked(memory, key);
}

/* Whether this thread's waiting could close a ring. */
static int leads_any(void)
{
	const struct ki_flight *flight = innermost;

	while (flight && flight->is_open)
		flight = flight->outer;
	return flight != NULL;
}

static struct ki_flight *lead(struct ki_memory *memory,
			      const struct kiln_key *key)
{
	struct ki_flight *flight = calloc(1, sizeof(*flight));

	if (!flight)
		return NULL;
	flight->memory = memory;
	flight->key = kiln_key_ref((struct kiln_key *)key);
	if (!flight->key) {
		free(flight);
		return NULL;
	}
	flight->outer = innermost;
	flight->nested = leads_any();
	atomic_init(&flight->refs, 1);
	ki_list_init(&flight->link);
	ki_list_init(&flight->age);
	ki_cond_init(&flight->cond);
	innermost = flight;
	return flight;
}

/* A shortage of memory costs the message, not the result. */
static void copy_result(struct kiln_build_result *to,
			const struct kiln_build_result *from,
			enum kiln_source source)
{
	to->kind = from->kind;
	to->code = from->code;
	to->message = from->message ? strdup(from->message) : NULL;
	to->blob = kiln_blob_ref(from->blob);
	to->metadata = NULL;
	to->source = source;
}

static int is_led_here(const struct ki_memory *memory,
		       const struct kiln_key *key)
{
	const struct ki_flight *flight;

	for (flight = innermost; flight; flight = flight->outer)
		if (flight->memory == memory && is_same_key(flight->key, key))
			return 1;
	return 0;
}

static void wait_locked(struct ki_memory *memory, struct ki_flight *flight)
	KI_REQUIRES(&memory->mutex)
{
	atomic_fetch_add(&memory->waited, 1);
	atomic_fetch_add(&flight->refs, 1);
	while (!flight->done)
		ki_cond_wait(&flight->cond, &memory->mutex);
}

/*
 * What came of a flight that was waited for.  KILN_EXISTS: no result, ask
 * again.
 */
static enum kiln_status land(struct ki_flight *flight,
			     struct kiln_build_result *out_result)
{
	enum kiln_status status = KILN_EXISTS;

	if (flight->status >= 0 && flight->result.kind != KILN_BUILD_SPURIOUS &&
	    flight->result.kind != KILN_BUILD_UNCACHED) {
		copy_result(out_result, &flight->result, KILN_FROM_FLIGHT);
		status = KILN_OK;
	}
	unref(flight);
	return status;
}

/* KILN_OK with a result, KILN_MISS with a flight, or KILN_EXISTS (see land). */
static enum kiln_status join(struct ki_memory *memory,
			     const struct kiln_key *key,
			     struct kiln_build_result *out_result,
			     struct ki_flight **out_flight)
{
	struct ki_flight *flight, *mine;

	ki_mutex_lock(&memory->mutex);
	flight = find_locked(memory, key);
	if (flight && flight->done) {
		copy_result(out_result, &flight->result, KILN_FROM_FAILURE);
		ki_mutex_unlock(&memory->mutex);
		return KILN_OK;
	}
	if (flight && !leads_any()) {
		wait_locked(memory, flight);
		ki_mutex_unlock(&memory->mutex);
		return land(flight, out_result);
	}
	mine = lead(memory, key);
	if (mine && !flight) {
		atomic_fetch_add(&mine->refs, 1);
		ki_list_append(chain_of(memory, key), &mine->link);
	}
	ki_mutex_unlock(&memory->mutex);
	*out_flight = mine;
	return mine ? KILN_MISS : KILN_E_NO_MEMORY;
}

enum kiln_status ki_memory_begin(struct ki_memory *memory,
				 const struct kiln_key *key,
				 struct kiln_build_result *out_result,
				 struct ki_flight **out_flight)
{
	struct kiln_build_result hit = { .source = KILN_FROM_MEMORY };
	struct ki_flight *flight = NULL;
	enum kiln_status status;

	if (!ki_memory_get(memory, key, &hit.blob)) {
		copy_result(out_result, &hit, KILN_FROM_MEMORY);
		kiln_blob_unref(hit.blob);
		return KILN_OK;
	}
	if (is_led_here(memory, key))
		return KILN_E_INVALID;
	do {
		status = join(memory, key, out_result, &flight);
	} while (status == KILN_EXISTS);
	if (status != KILN_MISS)
		return status;

	/* Another flight may have landed since the first look. */
	if (!ki_memory_get(memory, key, &hit.blob)) {
		copy_result(out_result, &hit, KILN_FROM_MEMORY);
		ki_memory_finish(memory, flight, KILN_OK, &hit);
		kiln_blob_unref(hit.blob);
		return KILN_OK;
	}
	*out_flight = flight;
	return KILN_MISS;
}

enum kiln_status ki_memory_begin_alone(struct ki_memory *memory,
				       const struct kiln_key *key,
				       struct ki_flight **out_flight)
{
	if (is_led_here(memory, key))
		return KILN_E_INVALID;
	*out_flight = lead(memory, key);
	return *out_flight ? KILN_MISS : KILN_E_NO_MEMORY;
}

int ki_flight_is_nested(const struct ki_flight *flight)
{
	return flight->nested;
}

void ki_flight_set_open(struct ki_flight *flight, int is_open)
{
	flight->is_open = is_open;
}

static int is_to_be_kept(const struct ki_memory *memory,
			 const struct ki_flight *flight)
{
	return flight->status >= 0 &&
	       flight->result.kind == KILN_BUILD_FAILED &&
	       memory->options.failure_policy != KILN_FAILURE_RETRY;
}

static int has_too_many_failures(const struct ki_memory *memory)
{
	return !memory->options.keep_all_failures &&
	       (memory->n_failures > FAILURES_MAX ||
		memory->failure_bytes > FAILURE_BYTES_MAX);
}

/* Takes over a reference, if it is kept: 1. */
static int keep_failure_locked(struct ki_memory *memory,
			       struct ki_flight *flight)
{
	uintptr_t hash = hash_of(flight->key);

	flight->next = ki_map_get(&memory->kept, hash);
	if (ki_map_put(&memory->kept, hash, flight))
		return 0;
	if (memory->options.failure_policy == KILN_FAILURE_KEEP_FOR)
		flight->expires_ns = ki_sys_posix.monotonic_ns(&ki_sys_posix) +
				     memory->options.failure_ttl_ms * 1000000;
	ki_list_append(&memory->failures, &flight->age);
	memory->n_failures++;
	memory->failure_bytes += failure_cost(flight);
	while (has_too_many_failures(memory))
		forget_failure_locked(memory,
				      ki_container(memory->failures.next,
						   struct ki_flight, age));
	return 1;
}

int ki_memory_finish(struct ki_memory *memory, struct ki_flight *flight,
		     enum kiln_status status,
		     const struct kiln_build_result *result)
{
	struct ki_flight *chained = NULL;
	int is_kept = 0;

	innermost = flight->outer;
	flight->status = status;
	if (status >= 0)
		copy_result(&flight->result, result, KILN_FROM_FLIGHT);
	ki_mutex_lock(&memory->mutex);
	flight->done = 1;
	ki_cond_signal_all(&flight->cond);
	if (!ki_list_is_empty(&flight->link)) {
		ki_list_remove(&flight->link);
		is_kept = is_to_be_kept(memory, flight) &&
			  keep_failure_locked(memory, flight);
		chained = is_kept ? NULL : flight;
	}
	ki_mutex_unlock(&memory->mutex);
	unref(chained);
	unref(flight);
	return is_kept;
}

void ki_memory_forget(struct ki_memory *memory, const struct kiln_key *key)
{
	struct ki_flight *flight;

	ki_mutex_lock(&memory->mutex);
	flight = find_kept_locked(memory, key);
	if (flight)
		forget_failure_locked(memory, flight);
	ki_mutex_unlock(&memory->mutex);
}

/* ---- Values ---------------------------------------------------------------- */

void ki_memory_put(struct ki_memory *memory, const struct kiln_key *key,
		   struct kiln_blob *blob)
{
	ki_memory_forget(memory, key);
	if (memory->options.hold_nothing)
		(void)ki_table_remove(&memory->table, key);
	else
		(void)ki_table_put(&memory->table, key, blob, KI_TABLE_REPLACE,
				   NULL);
}

enum kiln_status ki_memory_add(struct ki_memory *memory,
			       const struct kiln_key *key,
			       struct kiln_blob *blob)
{
	ki_memory_forget(memory, key);
	if (memory->options.hold_nothing)
		return KILN_OK;
	return ki_table_put(&memory->table, key, blob, KI_TABLE_FILL, NULL);
}

uint64_t ki_memory_changes(struct ki_memory *memory)
{
	return ki_table_changes(&memory->table);
}

void ki_memory_fill(struct ki_memory *memory, const struct kiln_key *key,
		    struct kiln_blob *blob, uint64_t changes)
{
	if (!memory->options.hold_nothing)
		(void)ki_table_put(&memory->table, key, blob, KI_TABLE_FILL,
				   &changes);
}

enum kiln_status ki_memory_remove(struct ki_memory *memory,
				  const struct kiln_key *key)
{
	ki_memory_forget(memory, key);
	return ki_table_remove(&memory->table, key);
}

void ki_memory_wipe(struct ki_memory *memory)
{
	ki_mutex_lock(&memory->mutex);
	while (memory->n_failures)
		forget_failure_locked(memory,
				      ki_container(memory->failures.next,
						   struct ki_flight, age));
	ki_mutex_unlock(&memory->mutex);
	ki_table_wipe(&memory->table);
}

int ki_memory_discard(struct ki_memory *memory, const struct kiln_key *key,
		      const struct kiln_blob *blob)
{
	return ki_table_discard(&memory->table, key, blob);
}

void ki_memory_let_go(struct ki_memory *memory)
{
	ki_table_let_go(&memory->table);
}

void ki_memory_trim(struct ki_memory *memory, uint64_t bytes)
{
	ki_table_trim(&memory->table, bytes);
}

void ki_memory_sweep(struct ki_memory *memory, ki_memory_keep_fn *keep,
		     void *arg)
{
	ki_table_sweep(&memory->table, keep, arg);
}

void ki_memory_size(struct ki_memory *memory, uint64_t *out_bytes,
		    uint64_t *out_entries)
{
	ki_table_size(&memory->table, out_bytes, out_entries);
}

uint64_t ki_memory_hits(struct ki_memory *memory)
{
	return atomic_load(&memory->hits) + ki_slots_hits(memory->owner);
}

int ki_memory_counts_looks(const struct ki_memory *memory)
{
	return memory->owner >= 0;
}

uint64_t ki_memory_looks(struct ki_memory *memory, enum ki_look what)
{
	return ki_slots_looks(memory->owner, what);
}

uint64_t ki_memory_waited(struct ki_memory *memory)
{
	return atomic_load(&memory->waited);
}

/* ---- Life ------------------------------------------------------------------ */

enum kiln_status ki_memory_new(const struct ki_memory_options *options,
			       struct ki_memory **out_memory)
{
	struct ki_memory *memory = calloc(1, sizeof(*memory));

	if (!memory)
		return KILN_E_NO_MEMORY;
	memory->options = *options;
	memory->fork_counter = ki_fork_generation();
	/* A process with threads waits some ms for leave to run barriers. */
	if (!options->pin_nothing)
		ki_slots_prepare();
	if (ki_table_init(&memory->table, options->order, options->bytes_max,
			  options->entries_max)) {
		free(memory);
		return KILN_E_NO_MEMORY;
	}
	memory->owner = options->pin_nothing || options->no_column
				? -1
				: ki_slots_owner_new();
	ki_mutex_init(&memory->mutex, KI_RANK_FLIGHT);
	ki_map_init(&memory->kept);
	ki_list_init(&memory->failures);
	for (size_t i = 0; i < CHAINS; i++)
		ki_list_init(&memory->chains[i]);
	*out_memory = memory;
	return KILN_OK;
}

void ki_memory_free(struct ki_memory *memory) KI_NO_ANALYSIS
{
	if (!memory || !ki_mutex_try_lock(&memory->mutex))
		return;
	while (memory->n_failures)
		forget_failure_locked(memory,
				      ki_container(memory->failures.next,
						   struct ki_flight, age));
	ki_mutex_unlock(&memory->mutex);
	ki_map_fini(&memory->kept);
	ki_table_fini(&memory->table);
	ki_slots_owner_free(memory->owner);
	ki_mutex_fini(&memory->mutex);
	free(memory);
}
