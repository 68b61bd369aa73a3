/* SPDX-License-Identifier: MIT */

/*
 * Buckets of one cache line:
 *
 *	tags		a byte for each of the six entries, 0: free
 *	entry 0 .. 5
 *	next		a further bucket when six are not enough
 *
 * The low half of a key's digest chooses the bucket, a byte of the high half is
 * the tag; all tags are compared at once, and then the entry's key record in
 * full.  So a hit reads one line of the table and the entry; it writes nothing
 * but its thread's slot, and an entry's mark the first time after eviction has
 * passed it.
 *
 * Writers hold the mutex.  They set an entry's place when the entry is
 * complete, and its tag last; to remove they clear the tag and put the entry on
 * the garbage list with the time of its removal (slots.c).  A reader may see a
 * tag and another entry behind it: what it takes is what the key record says.
 * Behind a tag that it sees there is always an entry that lives as long as its
 * pin: the last one stays in its place until another comes.  Behind a free
 * place there may be none.  Growing makes a new array beside the old one, which
 * becomes garbage as well.
 *
 * Eviction is a clock hand that goes from the oldest entry to the newest: a
 * mark is cleared and the entry spared once.  New entries come in without a
 * mark, so keys that are never asked for again go first.  Where the order is
 * exact, the first of the ring goes: least recently used, if every hit takes
 * the mutex and moves its entry to the end, or else the oldest.
 *
 * Bounds.  An entry costs its value, its record, itself and its share of the
 * table.  What is held never passes the bounds, not even between two steps of
 * a put.  Garbage is extra: what puts have let come together, up to 64 things
 * or a quarter of garbage_max, and then what readers were looking at, normally
 * for some nanoseconds.  If it passes garbage_max (a reader is stopped in the
 * middle), look-ups take the mutex instead of a pin, and nothing new is kept
 * until the garbage is gone.  What lies idle in chunks of the arena is held, and
 * so are the places of garbage there, which may lie idle next.
 *
 * By insertion the bounds are a contract: an entry costs what its key's fields
 * and its value hold, the last one stays whatever it costs, and nothing else
 * counts.  There is no arena then, and garbage_max has nothing to do with them.
 */

#include "memory/table.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS_MIN	   64
#define ENTRIES_PER_BUCKET 3			/* on average, then it grows */
#define ENTRY_SHARE	   64			/* of the table, in bytes */
#define GARBAGE_MAX	   ((uint64_t)64 << 20) /* where there is no bound */
#define FINISH_AT_ONCE	   64
#define WAITING_MAX	   64

/* ---- Looking --------------------------------------------------------------- */

static int is_counted(const struct ki_table_entry *entry)
{
	return !(atomic_load_explicit(&entry->state, memory_order_relaxed) &
		 KI_ENTRY_UNCOUNTED);
}

/* 1 if it is the first since a sweep. */
static int note_use(struct ki_table_entry *entry)
{
	const uint32_t news = KI_ENTRY_IDLE | KI_ENTRY_STALE;

	return (atomic_load_explicit(&entry->state, memory_order_relaxed) &
		news) &&
	       (atomic_fetch_and(&entry->state, ~news) & KI_ENTRY_STALE);
}

static enum kiln_status get_by_lock(struct ki_table *table,
				    const struct kiln_key *key,
				    struct kiln_blob **out_blob, int *out_stale)
{
	enum kiln_status status = KILN_MISS;
	struct ki_table_entry *entry;

	ki_mutex_lock(&table->mutex);
	if (ki_table_find(atomic_load(&table->slots), key, &entry)) {
		*out_stale = note_use(entry);
		if (table->order == KI_MEMORY_LRU) {
			ki_list_remove(&entry->ring);
			ki_list_append(&table->ring, &entry->ring);
		}
		atomic_fetch_add(&entry->blob->refs, 1);
		*out_blob = entry->blob;
		status = KILN_OK;
	}
	ki_mutex_unlock(&table->mutex);
	return status;
}

enum kiln_status ki_table_get(struct ki_table *table,
			      const struct kiln_key *key, struct ki_slot *slot,
			      struct kiln_blob **out_blob, int *out_stale)
{
	struct ki_table_entry *entry;

	if (!slot || ki_table_is_by_lock(table))
		return get_by_lock(table, key, out_blob, out_stale);
	if (!ki_table_find(atomic_load(&table->slots), key, &entry))
		return KILN_MISS;
	*out_stale = note_use(entry);
	if (!is_counted(entry) ||
	    !ki_slot_take(slot, ki_slot_place(entry->blob), entry->blob))
		atomic_fetch_add(&entry->blob->refs, 1);
	*out_blob = entry->blob;
	return KILN_OK;
}

/* ---- Garbage --------------------------------------------------------------- */

static size_t place_size(uint64_t record_size)
{
	return (offsetof(struct ki_table_entry, record) + record_size +
		KI_ARENA_STEP - 1) /
	       KI_ARENA_STEP * KI_ARENA_STEP;
}

static size_t arena_place(const struct ki_table_entry *entry)
{
	return entry->is_in_arena ? place_size(entry->record_size) : 0;
}

/* What nobody can find any more. */
static void discard_locked(struct ki_table *table,
			   struct ki_table_garbage *garbage)
{
	garbage->next = table->waiting;
	table->waiting = garbage;
	table->n_waiting++;
	if (garbage->entry) {
		table->garbage_bytes += garbage->entry->bytes;
		table->garbage_places += arena_place(garbage->entry);
	}
}

static void let_go_locked(struct ki_table *table)
{
	while (table->waiting) {
		struct ki_table_garbage *garbage = table->waiting;

		table->waiting = garbage->next;
		if (garbage->entry && is_counted(garbage->entry))
			ki_slots_count_end(garbage->entry->blob);
		garbage->next = NULL;
		garbage->tag = ki_slots_retire();
		*table->garbage_end = garbage;
		table->garbage_end = &garbage->next;
	}
	table->n_waiting = 0;
}

/*
 * Cut off what nobody sees any more; the caller frees it without the lock.
 * A grace period costs microseconds and interrupts every processor: puts let
 * some things come together, everything else does not.
 */
static struct ki_table_garbage *collect_locked(struct ki_table *table,
					       int is_put)
{
	struct ki_table_garbage *first, **end = &first;
	unsigned by_lock = atomic_load(&table->by_lock) & ~KI_TABLE_CROWDED;
	uint64_t passed;

	if (!is_put || table->n_waiting >= WAITING_MAX ||
	    table->garbage_bytes > table->garbage_max / 4)
		let_go_locked(table);
	first = table->garbage;
	if (!first)
		return NULL;
	passed = ki_slots_passed();
	while (*end && (*end)->tag < passed) {
		if ((*end)->entry)
			table->garbage_bytes -= (*end)->entry->bytes;
		end = &(*end)->next;
	}
	table->garbage = *end;
	if (!table->garbage)
		table->garbage_end = &table->garbage;
	*end = NULL;
	if (table->garbage_bytes > table->garbage_max)
		by_lock |= KI_TABLE_CROWDED;
	atomic_store(&table->by_lock, by_lock);
	return first;
}

static size_t bytes_of(size_t n_buckets)
{
	return sizeof(struct ki_table_slots) +
	       n_buckets * sizeof(struct ki_bucket);
}

static void free_slots(struct ki_table_slots *slots)
{
	if (!slots)
		return;
	for (size_t i = 0; i < slots->n_buckets; i++) {
		struct ki_bucket *bucket = atomic_load(&slots->buckets[i].next);

		while (bucket) {
			struct ki_bucket *next = atomic_load(&bucket->next);

			free(bucket);
			bucket = next;
		}
	}
	if (slots->is_mapped)
		ki_pages_free(slots, bytes_of(slots->n_buckets));
	else
		free(slots);
}

static void free_entry(struct ki_table *table, struct ki_table_entry *entry)
{
	size_t place;

	if (!entry || !entry->is_in_arena) {
		free(entry);
		return;
	}
	place = arena_place(entry);
	ki_arena_give_back(&table->arena, entry);
	table->garbage_places -= place;
}

static void free_garbage(struct ki_table *table,
			 struct ki_table_garbage *garbage)
{
	struct kiln_blob *blobs[FINISH_AT_ONCE];
	size_t n = 0;

	while (garbage) {
		struct ki_table_entry *entry = garbage->entry;
		struct ki_table_slots *slots = garbage->slots;

		garbage = garbage->next;
		free_slots(slots);
		if (entry && is_counted(entry))
			blobs[n++] = entry->blob;
		else if (entry)
			kiln_blob_unref(entry->blob);
		free_entry(table, entry);
		if (n == FINISH_AT_ONCE || (n && !garbage)) {
			ki_slots_count_finish(blobs, n);
			n = 0;
		}
	}
}

/* ---- Changing -------------------------------------------------------------- */

static void retire_locked(struct ki_table *table, struct ki_table_entry *entry)
{
	if (table->hand == &entry->ring)
		table->hand = entry->ring.next;
	ki_list_remove(&entry->ring);
	table->bytes -= entry->bytes;
	table->n_entries--;
	discard_locked(table, &entry->garbage);
}

static uint64_t tag_of(struct ki_bucket *bucket, size_t i)
{
	return atomic_load(&bucket->tags) >> 8 * i & 0xff;
}

static void set_tag(struct ki_bucket *bucket, size_t i, uint64_t tag)
{
	uint64_t tags = atomic_load(&bucket->tags);

	tags &= ~((uint64_t)0xff << 8 * i);
	atomic_store(&bucket->tags, tags | tag << 8 * i);
}

/* Free the place that holds this very entry. */
static void take_out(struct ki_table_slots *slots,
		     const struct ki_table_entry *entry)
{
	struct ki_bucket *bucket = ki_table_bucket(slots, entry->low);

	for (;; bucket = atomic_load(&bucket->next))
		for (size_t i = 0; i < KI_BUCKET_ENTRIES; i++)
			if (tag_of(bucket, i) &&
			    atomic_load(&bucket->entries[i]) == entry) {
				set_tag(bucket, i, 0);
				return;
			}
}

static void drop_locked(struct ki_table *table, struct ki_table_entry *entry)
{
	take_out(atomic_load(&table->slots), entry);
	retire_locked(table, entry);
}

/*
 * Who goes next, `spared` excepted.  Readers may set marks as fast as the hand
 * clears them: after two rounds the one it points to goes.
 */
static struct ki_table_entry *victim_locked(struct ki_table *table,
					    const struct ki_table_entry *spared)
{
	uint64_t steps = 0, steps_max = 2 * table->n_entries + 2;

	if (table->order != KI_MEMORY_APPROXIMATE) {
		table->hand = table->ring.next;
		steps_max = 0;
		steps = 1;
	}
	for (;;) {
		struct ki_table_entry *entry;

		if (table->hand == &table->ring)
			table->hand = table->ring.next;
		entry = ki_container(table->hand, struct ki_table_entry, ring);
		if (entry != spared &&
		    ((atomic_load(&entry->state) & KI_ENTRY_IDLE) ||
		     steps > steps_max))
			return entry;
		atomic_fetch_or(&entry->state, KI_ENTRY_IDLE);
		table->hand = table->hand->next;
		steps++;
	}
}

/* What counts: all that is kept, what lies idle beside it, and what will. */
static uint64_t held_locked(struct ki_table *table)
{
	return table->bytes + ki_arena_idle(&table->arena) +
	       table->garbage_places;
}

static int is_by_insertion(const struct ki_table *table)
{
	return table->order == KI_MEMORY_INSERTION;
}

static int is_over(struct ki_table *table, uint64_t bytes)
{
	const uint64_t held =
		is_by_insertion(table) ? table->bytes : held_locked(table);

	return table->bytes_max && held + bytes > table->bytes_max;
}

/* By insertion nothing lies idle, and the last one may be too large. */
static void keep_bound_locked(struct ki_table *table, uint64_t bytes)
{
	while (!is_by_insertion(table) && table->n_entries &&
	       is_over(table, bytes))
		drop_locked(table, victim_locked(table, NULL));
}

/* Make room for one of `bytes`, which takes the place of `old` (or NULL). */
static void make_room_locked(struct ki_table *table, uint64_t bytes,
			     const struct ki_table_entry *old)
{
	uint64_t n_old = old ? 1 : 0;

	if (old)
		bytes += arena_place(old) - old->bytes;
	while (table->n_entries > n_old &&
	       (is_over(table, bytes) ||
		(table->entries_max &&
		 table->n_entries - n_old + 1 > table->entries_max)))
		drop_locked(table, victim_locked(table, old));
}

static struct ki_bucket *add_bucket(struct ki_bucket *last)
{
	struct ki_bucket *bucket =
		aligned_alloc(_Alignof(struct ki_bucket), sizeof(*bucket));

	if (bucket) {
		memset(bucket, 0, sizeof(*bucket));
		atomic_store(&last->next, bucket);
	}
	return bucket;
}

/* 0 without memory.  The entry comes before its tag. */
static int insert(struct ki_table_slots *slots, struct ki_table_entry *entry)
{
	struct ki_bucket *bucket = ki_table_bucket(slots, entry->low);

	while (bucket) {
		struct ki_bucket *next = atomic_load(&bucket->next);

		for (size_t i = 0; i < KI_BUCKET_ENTRIES; i++) {
			if (tag_of(bucket, i))
				continue;
			atomic_store(&bucket->entries[i], entry);
			set_tag(bucket, i, ki_key_tag(entry->high));
			return 1;
		}
		bucket = next ? next : add_bucket(bucket);
	}
	return 0;
}

static struct ki_table_slots *new_slots(size_t n_buckets)
{
	size_t bytes = bytes_of(n_buckets);
	struct ki_table_slots *slots =
		bytes > KI_PAGES_HUGE ? ki_pages_new(bytes) : NULL;
	int is_mapped = slots != NULL;

	if (!slots)
		slots = aligned_alloc(_Alignof(struct ki_table_slots), bytes);
	if (!slots)
		return NULL;
	if (!is_mapped)
		memset(slots, 0, bytes);
	slots->is_mapped = is_mapped;
	slots->n_buckets = n_buckets;
	slots->mask = (n_buckets - 1) * sizeof(struct ki_bucket);
	slots->garbage.slots = slots;
	return slots;
}

/* Without memory the table stays as it is, with longer chains. */
static void grow_locked(struct ki_table *table)
{
	struct ki_table_slots *old = atomic_load(&table->slots), *new;
	struct ki_list *link;

	if (table->n_entries < old->n_buckets * ENTRIES_PER_BUCKET)
		return;
	new = new_slots(old->n_buckets * 2);
	if (!new)
		return;
	ki_list_for_each (link, &table->ring) {
		if (!insert(new,
			    ki_container(link, struct ki_table_entry, ring))) {
			free_slots(new);
			return;
		}
	}
	atomic_store(&table->slots, new);
	discard_locked(table, &old->garbage);
}

static uint64_t cost(const struct ki_table *table, const struct kiln_key *key,
		     const struct kiln_blob *blob)
{
	if (is_by_insertion(table))
		return key->data_size + blob->size;
	return sizeof(struct ki_table_entry) + key->record.size + ENTRY_SHARE +
	       sizeof(*blob) + blob->size;
}

/* Another chunk of the arena counts from its beginning: what has to go for it
   goes before. */
static void *new_chunk(struct ki_table *table, size_t size)
{
	struct ki_table_garbage *garbage;
	void *place = NULL;

	ki_mutex_lock(&table->mutex);
	keep_bound_locked(table, KI_ARENA_CHUNK_BYTES);
	if (!is_over(table, KI_ARENA_CHUNK_BYTES) &&
	    ki_arena_wants_chunk(&table->arena, size, table->n_entries))
		place = ki_arena_take_new(&table->arena, size);
	garbage = collect_locked(table, 1);
	ki_mutex_unlock(&table->mutex);
	free_garbage(table, garbage);
	return place;
}

/* NULL without memory.  Takes a reference to the blob. */
static struct ki_table_entry *new_entry(struct ki_table *table,
					const struct kiln_key *key,
					struct kiln_blob *blob)
{
	size_t size = place_size(key->record.size);
	const int may_lie_idle = !is_by_insertion(table);
	struct ki_table_entry *entry =
		may_lie_idle ? ki_arena_take(&table->arena, size) : NULL;
	int is_in_arena;

	if (!entry && may_lie_idle &&
	    ki_arena_wants_chunk(&table->arena, size,
				 atomic_load(&table->n_entries)))
		entry = new_chunk(table, size);
	is_in_arena = entry != NULL;
	if (!entry)
		entry = aligned_alloc(_Alignof(struct ki_table_entry), size);
	if (!entry)
		return NULL;
	*entry = (struct ki_table_entry){
		.low = key->digest_low,
		.high = key->digest_high,
		.blob = kiln_blob_ref(blob),
		.record_size = (uint32_t)key->record.size,
		.bytes = cost(table, key, blob),
		.garbage = { .entry = entry },
		.is_in_arena = is_in_arena,
	};
	memcpy(entry->record, key->record.data, key->record.size);
	atomic_init(
		&entry->state,
		(uint32_t)ki_slot_place(blob) | KI_ENTRY_IDLE |
			(ki_slots_count_begin(blob) ? 0 : KI_ENTRY_UNCOUNTED));
	return entry;
}

static enum kiln_status put_locked(struct ki_table *table,
				   const struct kiln_key *key,
				   struct ki_table_entry *entry,
				   enum ki_table_how how,
				   const uint64_t *changes)
{
	struct ki_table_entry *old = NULL;
	struct ki_table_entry *_Atomic *place =
		ki_table_find(atomic_load(&table->slots), key, &old);

	if (how == KI_TABLE_REPLACE)
		table->changes++;
	else if (place)
		return KILN_EXISTS;
	if ((atomic_load(&table->by_lock) & KI_TABLE_CROWDED) ||
	    (changes && *changes != table->changes))
		return KILN_MISS;
	make_room_locked(table, entry->bytes, old);
	if (place) {
		atomic_store(place, entry);
		retire_locked(table, old);
	} else {
		grow_locked(table);
		if (!insert(atomic_load(&table->slots), entry))
			return KILN_MISS;
	}
	ki_list_append(&table->ring, &entry->ring);
	table->bytes += entry->bytes;
	table->n_entries++;
	return KILN_OK;
}

/* What cannot be kept must not leave an older value either. */
static enum kiln_status put_nothing(struct ki_table *table,
				    const struct kiln_key *key,
				    enum ki_table_how how)
{
	struct ki_table_garbage *garbage;
	struct ki_table_entry *entry;
	enum kiln_status status = KILN_MISS;

	if (how == KI_TABLE_REPLACE) {
		(void)ki_table_remove(table, key);
		return KILN_MISS;
	}
	ki_mutex_lock(&table->mutex);
	if (ki_table_find(atomic_load(&table->slots), key, &entry))
		status = KILN_EXISTS;
	garbage = collect_locked(table, 1);
	ki_mutex_unlock(&table->mutex);
	free_garbage(table, garbage);
	return status;
}

enum kiln_status ki_table_put(struct ki_table *table,
			      const struct kiln_key *key,
			      struct kiln_blob *blob, enum ki_table_how how,
			      const uint64_t *changes)
{
	struct ki_table_entry *entry = NULL, *old;
	struct ki_table_garbage *garbage;
	enum kiln_status status;

	/* Even what is not kept would be garbage once it is made. */
	if (!(atomic_load(&table->by_lock) & KI_TABLE_CROWDED) &&
	    (!table->bytes_max || is_by_insertion(table) ||
	     cost(table, key, blob) <= table->bytes_max))
		entry = new_entry(table, key, blob);
	if (!entry)
		return put_nothing(table, key, how);
	ki_mutex_lock(&table->mutex);
	status = put_locked(table, key, entry, how, changes);
	if (status) {
		if (how == KI_TABLE_REPLACE &&
		    ki_table_find(atomic_load(&table->slots), key, &old))
			drop_locked(table, old);
		/* Its place, which did not lie idle any more, will again. */
		discard_locked(table, &entry->garbage);
		keep_bound_locked(table, 0);
	}
	garbage = collect_locked(table, 1);
	ki_mutex_unlock(&table->mutex);
	free_garbage(table, garbage);
	return status;
}

uint64_t ki_table_changes(struct ki_table *table)
{
	uint64_t changes;

	ki_mutex_lock(&table->mutex);
	changes = table->changes;
	ki_mutex_unlock(&table->mutex);
	return changes;
}

enum kiln_status ki_table_remove(struct ki_table *table,
				 const struct kiln_key *key)
{
	enum kiln_status status = KILN_MISS;
	struct ki_table_garbage *garbage;
	struct ki_table_entry *entry;

	ki_mutex_lock(&table->mutex);
	table->changes++;
	if (ki_table_find(atomic_load(&table->slots), key, &entry)) {
		drop_locked(table, entry);
		status = KILN_OK;
	}
	garbage = collect_locked(table, 0);
	ki_mutex_unlock(&table->mutex);
	free_garbage(table, garbage);
	return status;
}

int ki_table_discard(struct ki_table *table, const struct kiln_key *key,
		     const struct kiln_blob *blob)
{
	struct ki_table_entry *entry;
	int is_there;

	ki_mutex_lock(&table->mutex);
	is_there = ki_table_find(atomic_load(&table->slots), key, &entry) &&
		   entry->blob == blob;
	if (is_there) {
		table->changes++;
		drop_locked(table, entry);
	}
	ki_mutex_unlock(&table->mutex);
	return is_there;
}

void ki_table_let_go(struct ki_table *table)
{
	struct ki_table_garbage *garbage;

	ki_mutex_lock(&table->mutex);
	garbage = collect_locked(table, 0);
	ki_mutex_unlock(&table->mutex);
	free_garbage(table, garbage);
}

void ki_table_sweep(struct ki_table *table, ki_memory_keep_fn *keep, void *arg)
{
	struct ki_table_garbage *garbage;
	struct ki_list *link, *after;

	ki_mutex_lock(&table->mutex);
	table->changes++;
	ki_list_for_each_safe (link, after, &table->ring) {
		struct ki_table_entry *entry =
			ki_container(link, struct ki_table_entry, ring);

		if (keep(arg, entry->blob))
			atomic_fetch_or(&entry->state, KI_ENTRY_STALE);
		else
			drop_locked(table, entry);
	}
	garbage = collect_locked(table, 0);
	ki_mutex_unlock(&table->mutex);
	free_garbage(table, garbage);
}

static int keep_none(void *arg, const struct kiln_blob *blob)
{
	return 0;
}

void ki_table_wipe(struct ki_table *table)
{
	ki_table_sweep(table, keep_none, NULL);
}

/* The places of what goes lie idle where their chunk stays, which is known when
   they are free: then more has to go.  0: it was enough. */
static int trim_once(struct ki_table *table, uint64_t bytes)
{
	struct ki_table_garbage *garbage;
	uint64_t n_dropped = 0;

	ki_mutex_lock(&table->mutex);
	while (table->n_entries &&
	       table->bytes + ki_arena_idle(&table->arena) > bytes) {
		drop_locked(table, victim_locked(table, NULL));
		n_dropped++;
	}
	garbage = collect_locked(table, 0);
	ki_mutex_unlock(&table->mutex);
	free_garbage(table, garbage);
	return n_dropped != 0;
}

void ki_table_trim(struct ki_table *table, uint64_t bytes)
{
	while (trim_once(table, bytes))
		;
}

void ki_table_size(struct ki_table *table, uint64_t *out_bytes,
		   uint64_t *out_entries)
{
	ki_mutex_lock(&table->mutex);
	*out_bytes = table->bytes + ki_arena_idle(&table->arena);
	*out_entries = table->n_entries;
	ki_mutex_unlock(&table->mutex);
}

/* ---- Life ------------------------------------------------------------------ */

enum kiln_status ki_table_init(struct ki_table *table,
			       enum ki_memory_order order, uint64_t bytes_max,
			       uint64_t entries_max)
{
	struct ki_table_slots *slots = new_slots(BUCKETS_MIN);

	if (!slots)
		return KILN_E_NO_MEMORY;
	*table = (struct ki_table){
		.bytes_max = bytes_max,
		.entries_max = entries_max,
		.garbage_max = bytes_max && order != KI_MEMORY_INSERTION
				       ? bytes_max / 16
				       : GARBAGE_MAX,
		.order = order,
	};
	atomic_init(&table->by_lock,
		    order == KI_MEMORY_LRU ? KI_TABLE_EXACT : 0);
	atomic_init(&table->slots, slots);
	ki_mutex_init(&table->mutex, KI_RANK_MEMORY);
	ki_arena_init(&table->arena);
	ki_list_init(&table->ring);
	table->hand = &table->ring;
	table->garbage_end = &table->garbage;
	return KILN_OK;
}

void ki_table_fini(struct ki_table *table) KI_NO_ANALYSIS
{
	struct ki_table_garbage *garbage;

	if (!ki_mutex_try_lock(&table->mutex) ||
	    !ki_mutex_try_lock(&table->arena.mutex))
		return;
	ki_mutex_unlock(&table->arena.mutex);
	while (table->n_entries)
		drop_locked(table, ki_container(table->ring.next,
						struct ki_table_entry, ring));
	let_go_locked(table);
	ki_slots_wait();
	garbage = collect_locked(table, 0);
	ki_mutex_unlock(&table->mutex);
	free_garbage(table, garbage);
	free_slots(atomic_load(&table->slots));
	ki_arena_fini(&table->arena);
	ki_mutex_fini(&table->mutex);
}
