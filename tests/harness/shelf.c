/* SPDX-License-Identifier: MIT */

#include "harness/shelf.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define LOCKS_MAX 64

struct entry {
	struct entry *next;
	struct kiln_key *key;
	struct kiln_blob *value;
	struct kiln_blob *metadata;
};

struct kiln_tier_lock {
	uint8_t digest[KILN_DIGEST_BYTES];
	int held;
};

struct shelf {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	struct entry *entries;
	size_t n_entries;
	uint64_t generation; /* also read without the mutex */
	enum kiln_status get_status, put_status, lock_status;
	struct kiln_tier_lock locks[LOCKS_MAX];
	struct shelf_calls calls;
	struct kiln_store_counters counters;
	unsigned builds_now;
};

struct tier {
	struct kiln_tier base;
	struct shelf *shelf;
};

/* The shelf of a tier, locked, and one call counted. */
#define ENTER(tier, name)                                                      \
	struct shelf *shelf = ((struct tier *)(tier))->shelf;                  \
	pthread_mutex_lock(&shelf->mutex);                                     \
	shelf->calls.name++

static int is_key(const struct entry *entry, const struct kiln_key *key)
{
	size_t a_size, b_size;
	const void *a = kiln_key_record(entry->key, &a_size);
	const void *b = kiln_key_record(key, &b_size);

	return a_size == b_size && !memcmp(a, b, a_size);
}

static struct entry **find(struct shelf *shelf, const struct kiln_key *key)
{
	struct entry **place = &shelf->entries;

	while (*place && !is_key(*place, key))
		place = &(*place)->next;
	return place;
}

static void change_generation(struct shelf *shelf)
{
	__atomic_add_fetch(&shelf->generation, 1, __ATOMIC_RELEASE);
}

static void drop(struct shelf *shelf, struct entry **place)
{
	struct entry *entry = *place;

	*place = entry->next;
	kiln_key_free(entry->key);
	kiln_blob_unref(entry->value);
	kiln_blob_unref(entry->metadata);
	free(entry);
	shelf->n_entries--;
	change_generation(shelf);
}

static enum kiln_status tier_get(struct kiln_tier *tier,
				 const struct kiln_key *key,
				 struct kiln_blob **out_value,
				 struct kiln_blob **out_metadata)
{
	enum kiln_status status;
	struct entry *entry;

	ENTER(tier, get);
	status = shelf->get_status;
	entry = *find(shelf, key);
	if (!status && !entry)
		status = KILN_MISS;
	if (!status) {
		*out_value = kiln_blob_ref(entry->value);
		if (out_metadata)
			*out_metadata = kiln_blob_ref(entry->metadata);
	}
	pthread_mutex_unlock(&shelf->mutex);
	return status;
}

static enum kiln_status insert(struct shelf *shelf, const struct kiln_key *key,
			       const void *metadata, size_t metadata_size,
			       const void *value, size_t value_size)
{
	struct entry *entry = calloc(1, sizeof(*entry));

	if (!entry || kiln_blob_copy(value, value_size, &entry->value) ||
	    kiln_blob_copy(metadata, metadata_size, &entry->metadata))
		abort();
	entry->key = kiln_key_ref((struct kiln_key *)key);
	entry->next = shelf->entries;
	shelf->entries = entry;
	shelf->n_entries++;
	return KILN_OK;
}

static enum kiln_status tier_put(struct kiln_tier *tier,
				 const struct kiln_key *key,
				 const void *metadata, size_t metadata_size,
				 const void *value, size_t value_size,
				 unsigned flags)
{
	enum kiln_status status;
	struct entry **old;

	ENTER(tier, put);
	status = shelf->put_status;
	old = find(shelf, key);
	if (!status && *old && !(flags & KILN_PUT_REPLACE))
		status = KILN_EXISTS;
	if (!status && *old)
		drop(shelf, old);
	if (!status)
		status = insert(shelf, key, metadata, metadata_size, value,
				value_size);
	pthread_mutex_unlock(&shelf->mutex);
	return status;
}

static enum kiln_status tier_remove(struct kiln_tier *tier,
				    const struct kiln_key *key)
{
	enum kiln_status status = KILN_MISS;
	struct entry **place;

	ENTER(tier, remove);
	place = find(shelf, key);
	if (*place) {
		drop(shelf, place);
		status = KILN_OK;
	}
	pthread_mutex_unlock(&shelf->mutex);
	return status;
}

static enum kiln_status tier_wipe(struct kiln_tier *tier)
{
	ENTER(tier, wipe);
	while (shelf->entries)
		drop(shelf, &shelf->entries);
	change_generation(shelf);
	pthread_mutex_unlock(&shelf->mutex);
	return KILN_OK;
}

/* The cursor counts from the end, so new entries do not move it. */
static enum kiln_status tier_list(struct kiln_tier *tier,
				  struct kiln_cursor *cursor,
				  struct kiln_entry *out_entry)
{
	struct shelf *shelf = ((struct tier *)tier)->shelf;
	enum kiln_status status = KILN_END;
	const struct entry *entry;
	const void *record;
	size_t i, size;

	pthread_mutex_lock(&shelf->mutex);
	if (cursor->place[0] < shelf->n_entries) {
		entry = shelf->entries;
		for (i = shelf->n_entries - 1; i > cursor->place[0]; i--)
			entry = entry->next;
		record = kiln_key_record(entry->key, &size);
		memset(out_entry, 0, sizeof(*out_entry));
		memcpy(out_entry->digest, kiln_key_digest(entry->key),
		       KILN_DIGEST_BYTES);
		if (kiln_blob_copy(record, size, &out_entry->record))
			abort();
		out_entry->metadata = kiln_blob_ref(entry->metadata);
		out_entry->value_size = kiln_blob_size(entry->value);
		out_entry->stored_size = out_entry->value_size + size;
		cursor->place[0]++;
		status = KILN_OK;
	}
	pthread_mutex_unlock(&shelf->mutex);
	return status;
}

static enum kiln_status tier_verify(struct kiln_tier *tier, unsigned flags,
				    kiln_progress_fn *progress, void *arg,
				    struct kiln_verify_report *out_report)
{
	struct shelf *shelf = ((struct tier *)tier)->shelf;
	size_t n = shelf_n_entries(shelf);

	*out_report = (struct kiln_verify_report){ .n_entries = n };
	if (progress)
		progress(arg, n, n);
	return KILN_OK;
}

static void tier_prefetch(struct kiln_tier *tier,
			  const struct kiln_key *const *keys, size_t n_keys)
{
	ENTER(tier, prefetch);
	pthread_mutex_unlock(&shelf->mutex);
}

static enum kiln_status tier_info(struct kiln_tier *tier,
				  struct kiln_store_info *out_info)
{
	struct shelf *shelf = ((struct tier *)tier)->shelf;

	*out_info = (struct kiln_store_info){
		.kind = "shelf",
		.n_entries = shelf_n_entries(shelf),
	};
	return KILN_OK;
}

/* The key's lock, or a free place; NULL if it is held. */
static struct kiln_tier_lock *free_lock(struct shelf *shelf,
					const uint8_t *digest)
{
	struct kiln_tier_lock *place = NULL;

	for (size_t i = 0; i < LOCKS_MAX; i++) {
		struct kiln_tier_lock *lock = &shelf->locks[i];

		if (!lock->held)
			place = lock;
		else if (!memcmp(lock->digest, digest, KILN_DIGEST_BYTES))
			return NULL;
	}
	return place;
}

static enum kiln_status tier_lock(struct kiln_tier *tier,
				  const struct kiln_key *key,
				  uint32_t timeout_ms,
				  struct kiln_tier_lock **out_lock)
{
	const uint8_t *digest = kiln_key_digest(key);
	struct kiln_tier_lock *lock;
	enum kiln_status status;
	struct timespec deadline;
	int err = 0;

	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_sec += timeout_ms / 1000;
	deadline.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
	if (deadline.tv_nsec >= 1000000000) {
		deadline.tv_nsec -= 1000000000;
		deadline.tv_sec++;
	}
	ENTER(tier, lock);
	status = shelf->lock_status;
	lock = free_lock(shelf, digest);
	while (!status && !lock && err != ETIMEDOUT) {
		err = pthread_cond_timedwait(&shelf->changed, &shelf->mutex,
					     &deadline);
		lock = free_lock(shelf, digest);
	}
	if (!status && !lock)
		status = KILN_E_TIMEOUT;
	if (!status) {
		memcpy(lock->digest, digest, KILN_DIGEST_BYTES);
		lock->held = 1;
		shelf->calls.open_locks++;
		*out_lock = lock;
	}
	pthread_mutex_unlock(&shelf->mutex);
	return status;
}

static void tier_unlock(struct kiln_tier *tier, struct kiln_tier_lock *lock)
{
	struct shelf *shelf = ((struct tier *)tier)->shelf;

	pthread_mutex_lock(&shelf->mutex);
	lock->held = 0;
	shelf->calls.open_locks--;
	pthread_cond_broadcast(&shelf->changed);
	pthread_mutex_unlock(&shelf->mutex);
}

static enum kiln_status tier_count(struct kiln_tier *tier,
				   const uint64_t deltas[KILN_N_COUNTERS])
{
	ENTER(tier, count);
	for (size_t i = 0; i < KILN_N_COUNTERS; i++)
		shelf->counters.total[i] += deltas[i];
	pthread_mutex_unlock(&shelf->mutex);
	return KILN_OK;
}

static enum kiln_status tier_counters(struct kiln_tier *tier,
				      struct kiln_store_counters *out_counters)
{
	struct shelf *shelf = ((struct tier *)tier)->shelf;

	pthread_mutex_lock(&shelf->mutex);
	*out_counters = shelf->counters;
	pthread_mutex_unlock(&shelf->mutex);
	return KILN_OK;
}

static enum kiln_status tier_zero_counters(struct kiln_tier *tier)
{
	struct shelf *shelf = ((struct tier *)tier)->shelf;

	pthread_mutex_lock(&shelf->mutex);
	shelf->counters = (struct kiln_store_counters){ 0 };
	pthread_mutex_unlock(&shelf->mutex);
	return KILN_OK;
}

static void tier_note_build(struct kiln_tier *tier, int begins)
{
	struct shelf *shelf = ((struct tier *)tier)->shelf;

	pthread_mutex_lock(&shelf->mutex);
	shelf->builds_now += begins ? 1u : -1u;
	pthread_mutex_unlock(&shelf->mutex);
}

static unsigned tier_builds_now(struct kiln_tier *tier)
{
	struct shelf *shelf = ((struct tier *)tier)->shelf;
	unsigned n;

	pthread_mutex_lock(&shelf->mutex);
	n = shelf->builds_now;
	pthread_mutex_unlock(&shelf->mutex);
	return n;
}

/* May be called in a child, where the mutex may be somebody's for ever. */
static void tier_close(struct kiln_tier *tier)
{
	struct shelf *shelf = ((struct tier *)tier)->shelf;

	__atomic_add_fetch(&shelf->calls.close, 1, __ATOMIC_RELAXED);
	free(tier);
}

/* One reference is looked for among all entries: is it still ours? */
static int tier_is_live(struct kiln_tier *tier, const struct kiln_blob *blob)
{
	struct shelf *shelf = ((struct tier *)tier)->shelf;
	const struct entry *entry;

	pthread_mutex_lock(&shelf->mutex);
	for (entry = shelf->entries; entry; entry = entry->next)
		if (entry->value == blob)
			break;
	pthread_mutex_unlock(&shelf->mutex);
	return entry != NULL;
}

static const struct kiln_tier_ops ops = {
	.version = KILN_TIER_VERSION,
	.name = "shelf",
	.get = tier_get,
	.put = tier_put,
	.remove = tier_remove,
	.wipe = tier_wipe,
	.list = tier_list,
	.verify = tier_verify,
	.prefetch = tier_prefetch,
	.info = tier_info,
	.lock = tier_lock,
	.unlock = tier_unlock,
	.count = tier_count,
	.counters = tier_counters,
	.zero_counters = tier_zero_counters,
	.note_build = tier_note_build,
	.builds_now = tier_builds_now,
	.close = tier_close,
};

struct kiln_tier *shelf_tier(struct shelf *shelf)
{
	struct tier *tier = calloc(1, sizeof(*tier));

	if (!tier)
		abort();
	tier->base.ops = &ops;
	tier->base.generation = &shelf->generation;
	tier->base.is_live = tier_is_live;
	tier->shelf = shelf;
	return &tier->base;
}

struct shelf *shelf_new(void)
{
	struct shelf *shelf = calloc(1, sizeof(*shelf));

	if (!shelf || pthread_mutex_init(&shelf->mutex, NULL) ||
	    pthread_cond_init(&shelf->changed, NULL))
		abort();
	return shelf;
}

void shelf_free(struct shelf *shelf)
{
	while (shelf->entries)
		drop(shelf, &shelf->entries);
	pthread_cond_destroy(&shelf->changed);
	pthread_mutex_destroy(&shelf->mutex);
	free(shelf);
}

static void set(struct shelf *shelf, enum kiln_status *place,
		enum kiln_status status)
{
	pthread_mutex_lock(&shelf->mutex);
	*place = status;
	pthread_mutex_unlock(&shelf->mutex);
}

void shelf_fail_get(struct shelf *shelf, enum kiln_status status)
{
	set(shelf, &shelf->get_status, status);
}

void shelf_fail_put(struct shelf *shelf, enum kiln_status status)
{
	set(shelf, &shelf->put_status, status);
}

void shelf_fail_lock(struct shelf *shelf, enum kiln_status status)
{
	set(shelf, &shelf->lock_status, status);
}

struct shelf_calls shelf_calls(struct shelf *shelf)
{
	struct shelf_calls calls;

	pthread_mutex_lock(&shelf->mutex);
	calls = shelf->calls;
	pthread_mutex_unlock(&shelf->mutex);
	return calls;
}

uint64_t shelf_counted(struct shelf *shelf, enum kiln_counter counter)
{
	uint64_t n;

	pthread_mutex_lock(&shelf->mutex);
	n = shelf->counters.total[counter];
	pthread_mutex_unlock(&shelf->mutex);
	return n;
}

size_t shelf_n_entries(struct shelf *shelf)
{
	size_t n;

	pthread_mutex_lock(&shelf->mutex);
	n = shelf->n_entries;
	pthread_mutex_unlock(&shelf->mutex);
	return n;
}
