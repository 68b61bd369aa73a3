/* SPDX-License-Identifier: MIT */

/*
 * A tier in memory, as <kiln/tier.h> asks for it and with nothing but the
 * public headers: what a user would write, and an honest double in tests.
 */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/inspect.h>
#include <kiln/kiln.h>
#include <kiln/tier.h>

#include "conform/kinds.h"

struct entry {
	struct entry *next;
	uint64_t number; /* in order of putting */
	uint64_t used;
	struct kiln_key *key;
	struct kiln_blob *metadata;
	struct kiln_blob *value;
};

struct double_tier {
	struct kiln_tier tier;
	pthread_mutex_t mutex;
	struct entry *entries;
	uint64_t n_used;
	uint64_t bytes_max;
	uint64_t generation;
	unsigned flags;
	uint64_t counters[KILN_N_COUNTERS];
};

static struct double_tier *lock(struct kiln_tier *tier)
{
	struct double_tier *self = (struct double_tier *)tier;

	pthread_mutex_lock(&self->mutex);
	return self;
}

static void unlock(struct double_tier *self)
{
	pthread_mutex_unlock(&self->mutex);
}

static uint64_t bytes_of(const struct entry *entry)
{
	size_t record_size;

	(void)kiln_key_record(entry->key, &record_size);
	return record_size + kiln_blob_size(entry->metadata) +
	       kiln_blob_size(entry->value) + sizeof(*entry);
}

static uint64_t bytes_of_all(const struct double_tier *self)
{
	const struct entry *entry;
	uint64_t bytes = 0;

	for (entry = self->entries; entry; entry = entry->next)
		bytes += bytes_of(entry);
	return bytes;
}

/* The place that points to the entry of a key, or to the end. */
static struct entry **find(struct double_tier *self, const struct kiln_key *key)
{
	struct entry **place;
	size_t size, other_size;
	const void *record = kiln_key_record(key, &size);

	for (place = &self->entries; *place; place = &(*place)->next) {
		const void *other = kiln_key_record((*place)->key, &other_size);
		if (size == other_size && !memcmp(record, other, size))
			break;
	}
	return place;
}

static void drop(struct entry **place)
{
	struct entry *entry = *place;

	*place = entry->next;
	kiln_key_free(entry->key);
	kiln_blob_unref(entry->metadata);
	kiln_blob_unref(entry->value);
	free(entry);
}

static struct entry **oldest(struct double_tier *self)
{
	struct entry **place, **found = &self->entries;

	for (place = &self->entries; *place; place = &(*place)->next)
		if ((*place)->used < (*found)->used)
			found = place;
	return found;
}

static enum kiln_status double_get(struct kiln_tier *tier,
				   const struct kiln_key *key,
				   struct kiln_blob **out_value,
				   struct kiln_blob **out_metadata)
{
	struct double_tier *self = lock(tier);
	struct entry *entry = *find(self, key);

	if (entry) {
		entry->used = ++self->n_used;
		*out_value = kiln_blob_ref(entry->value);
		if (out_metadata)
			*out_metadata = kiln_blob_ref(entry->metadata);
	}
	unlock(self);
	return entry ? KILN_OK : KILN_MISS;
}

static enum kiln_status new_entry(const struct kiln_key *key,
				  const void *metadata, size_t metadata_size,
				  const void *value, size_t value_size,
				  struct entry **out_entry)
{
	struct entry *entry = calloc(1, sizeof(*entry));
	size_t size;
	const void *record = kiln_key_record(key, &size);

	if (!entry)
		return KILN_E_NO_MEMORY;
	if (kiln_key_from_record(record, size, &entry->key) ||
	    kiln_blob_copy(metadata, metadata_size, &entry->metadata) ||
	    kiln_blob_copy(value, value_size, &entry->value)) {
		drop(&entry);
		return KILN_E_NO_MEMORY;
	}
	*out_entry = entry;
	return KILN_OK;
}

static enum kiln_status make_room_locked(struct double_tier *self,
					 uint64_t bytes)
{
	if (!self->bytes_max)
		return KILN_OK;
	if (bytes > self->bytes_max)
		return KILN_E_TOO_LARGE;
	while (bytes_of_all(self) > self->bytes_max - bytes) {
		if (self->flags & KILN_OPEN_REFUSE_FULL)
			return KILN_E_FULL;
		drop(oldest(self));
	}
	return KILN_OK;
}

static enum kiln_status double_put(struct kiln_tier *tier,
				   const struct kiln_key *key,
				   const void *metadata, size_t metadata_size,
				   const void *value, size_t value_size,
				   unsigned flags)
{
	struct double_tier *self = lock(tier);
	struct entry **place = find(self, key), *entry = NULL;
	enum kiln_status status = KILN_EXISTS;

	if (*place && !(flags & KILN_PUT_REPLACE))
		goto out;
	status = new_entry(key, metadata, metadata_size, value, value_size,
			   &entry);
	if (status)
		goto out;
	status = make_room_locked(self, bytes_of(entry));
	if (status) {
		drop(&entry);
		goto out;
	}
	place = find(self, key);
	if (*place)
		drop(place);
	entry->number = entry->used = ++self->n_used;
	entry->next = self->entries;
	self->entries = entry;
out:
	unlock(self);
	return status;
}

static enum kiln_status double_remove(struct kiln_tier *tier,
				      const struct kiln_key *key)
{
	struct double_tier *self = lock(tier);
	struct entry **place = find(self, key);
	enum kiln_status status = *place ? KILN_OK : KILN_MISS;

	if (*place)
		drop(place);
	unlock(self);
	return status;
}

static enum kiln_status double_wipe(struct kiln_tier *tier)
{
	struct double_tier *self = lock(tier);

	while (self->entries)
		drop(&self->entries);
	__atomic_fetch_add(&self->generation, 1, __ATOMIC_RELEASE);
	unlock(self);
	return KILN_OK;
}

/* By number, so that a cursor survives changes. */
static enum kiln_status double_list(struct kiln_tier *tier,
				    struct kiln_cursor *cursor,
				    struct kiln_entry *out_entry)
{
	struct double_tier *self = lock(tier);
	struct entry *entry, *next = NULL;
	enum kiln_status status = KILN_END;
	struct kiln_entry out = { 0 };
	const void *record;
	size_t size;

	for (entry = self->entries; entry; entry = entry->next)
		if (entry->number > cursor->place[0] &&
		    (!next || entry->number < next->number))
			next = entry;
	if (!next)
		goto out;
	record = kiln_key_record(next->key, &size);
	status = kiln_blob_copy(record, size, &out.record);
	if (status)
		goto out;
	cursor->place[0] = next->number;
	memcpy(out.digest, kiln_key_digest(next->key), sizeof(out.digest));
	out.metadata = kiln_blob_ref(next->metadata);
	out.value_size = kiln_blob_size(next->value);
	out.stored_size = bytes_of(next);
	*out_entry = out;
out:
	unlock(self);
	return status;
}

static enum kiln_status double_set_limit(struct kiln_tier *tier,
					 uint64_t bytes_max)
{
	struct double_tier *self = lock(tier);

	self->bytes_max = bytes_max;
	(void)make_room_locked(self, 0);
	unlock(self);
	return KILN_OK;
}

static enum kiln_status double_info(struct kiln_tier *tier,
				    struct kiln_store_info *out_info)
{
	struct double_tier *self = lock(tier);
	struct kiln_store_info info = { .kind = "double",
					.bytes_max = self->bytes_max };
	const struct entry *entry;

	for (entry = self->entries; entry; entry = entry->next)
		info.n_entries++;
	info.bytes = info.bytes_live = bytes_of_all(self);
	info.generation = self->generation;
	unlock(self);
	*out_info = info;
	return KILN_OK;
}

static void double_close(struct kiln_tier *tier)
{
	struct double_tier *self = (struct double_tier *)tier;

	while (self->entries)
		drop(&self->entries);
	pthread_mutex_destroy(&self->mutex);
	free(self);
}

static const struct kiln_tier_ops double_ops = {
	.version = KILN_TIER_VERSION,
	.name = "double",
	.get = double_get,
	.put = double_put,
	.remove = double_remove,
	.wipe = double_wipe,
	.list = double_list,
	.set_limit = double_set_limit,
	.info = double_info,
	.close = double_close,
};

enum kiln_status double_open(const struct ki_store_options *options,
			     struct kiln_tier **out_tier)
{
	struct double_tier *self = calloc(1, sizeof(*self));

	if (!self)
		return KILN_E_NO_MEMORY;
	self->tier.ops = &double_ops;
	self->tier.generation = &self->generation;
	self->bytes_max = options->bytes_max;
	self->flags = options->flags;
	pthread_mutex_init(&self->mutex, NULL);
	*out_tier = &self->tier;
	return KILN_OK;
}
