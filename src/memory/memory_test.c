/* SPDX-License-Identifier: MIT */

#include "harness/harness.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/blob.h"
#include "memory/find.h"
#include "memory/memory.h"
#include "memory/slots.h"
#include "sys/sys.h"

static struct kiln_key *key_of(uint64_t number)
{
	struct kiln_key *key = kiln_key_new();
	char text[32];

	snprintf(text, sizeof(text), "kernel %llu", (unsigned long long)number);
	kiln_key_add_string(key, "source", text);
	if (kiln_key_finish(key))
		abort();
	return key;
}

static struct kiln_blob *blob_of(uint64_t number, size_t size)
{
	struct kiln_blob *blob;
	uint64_t *bytes = calloc(1, size < 8 ? 8 : size);

	bytes[0] = number;
	if (kiln_blob_copy(bytes, size, &blob))
		abort();
	free(bytes);
	return blob;
}

static uint64_t number_of(const struct kiln_blob *blob)
{
	return *(const uint64_t *)kiln_blob_data(blob);
}

static struct ki_memory *memory_of(struct ki_memory_options options)
{
	struct ki_memory *memory;

	if (ki_memory_new(&options, &memory))
		abort();
	return memory;
}

static void put(struct ki_memory *memory, uint64_t number, uint64_t value,
		size_t size)
{
	struct kiln_key *key = key_of(number);
	struct kiln_blob *blob = blob_of(value, size);

	ki_memory_put(memory, key, blob);
	kiln_blob_unref(blob);
	kiln_key_free(key);
}

/* The value's number, or UINT64_MAX. */
static uint64_t get(struct ki_memory *memory, uint64_t number)
{
	struct kiln_key *key = key_of(number);
	struct kiln_blob *blob;
	uint64_t value = UINT64_MAX;

	if (!ki_memory_get(memory, key, &blob)) {
		value = number_of(blob);
		kiln_blob_unref(blob);
	}
	kiln_key_free(key);
	return value;
}

#define NOTHING UINT64_MAX

/* ---- Values ---------------------------------------------------------------- */

static void what_is_put_is_found(void **state)
{
	struct ki_memory *memory = memory_of((struct ki_memory_options){ 0 });
	struct kiln_key *key = key_of(1);
	uint64_t bytes, n_entries, i;

	assert_int_equal(get(memory, 1), NOTHING);
	for (i = 0; i < 3000; i++)
		put(memory, i, i * 2, 16);
	for (i = 0; i < 3000; i++)
		assert_int_equal(get(memory, i), i * 2);
	put(memory, 1, 7, 16);
	assert_int_equal(get(memory, 1), 7);
	ki_memory_size(memory, &bytes, &n_entries);
	assert_int_equal(n_entries, 3000);
	assert_int_equal(ki_memory_hits(memory), 3001);

	assert_int_equal(ki_memory_remove(memory, key), KILN_OK);
	assert_int_equal(ki_memory_remove(memory, key), KILN_MISS);
	assert_int_equal(get(memory, 1), NOTHING);
	ki_memory_wipe(memory);
	assert_int_equal(get(memory, 2), NOTHING);
	ki_memory_size(memory, &bytes, &n_entries);
	assert_int_equal(bytes, 0);
	assert_int_equal(n_entries, 0);
	kiln_key_free(key);
	ki_memory_free(memory);
}

/* S02: digests are cut to 8 bits, so that most keys share one. */
static void equal_digests_never_mix_values_up(void **state)
{
	struct ki_memory *memory = memory_of((struct ki_memory_options){ 0 });
	struct kiln_key *keys[1000];
	struct kiln_blob *blob;
	uint64_t i;

	for (i = 0; i < 1000; i++) {
		keys[i] = key_of(i);
		keys[i]->digest_low &= 0xff;
		keys[i]->digest_high = 0;
		keys[i]->tags = 0x01010101;
		blob = blob_of(i, 8);
		ki_memory_put(memory, keys[i], blob);
		kiln_blob_unref(blob);
	}
	for (i = 0; i < 1000; i++) {
		assert_int_equal(ki_memory_get(memory, keys[i], &blob),
				 KILN_OK);
		assert_int_equal(number_of(blob), i);
		kiln_blob_unref(blob);
		kiln_key_free(keys[i]);
	}
	ki_memory_free(memory);
}

/* S48 */
static void bounds_are_never_exceeded(void **state)
{
	static const struct ki_memory_options rows[] = {
		{ .bytes_max = 100000 },
		{ .entries_max = 37 },
		{ .bytes_max = 30000, .entries_max = 20 },
		{ .entries_max = 1 },
	};
	uint64_t seed = 1;

	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		struct ki_memory *memory = memory_of(rows[r]);
		uint64_t bytes, n_entries;

		for (int i = 0; i < 2000; i++) {
			uint64_t number = harness_random(&seed) % 200;
			size_t size = 8 + harness_random(&seed) % 4000;

			put(memory, number, number, size);
			assert_int_equal(get(memory, number), number);
			ki_memory_size(memory, &bytes, &n_entries);
			if (rows[r].bytes_max)
				assert_true(bytes <= rows[r].bytes_max);
			if (rows[r].entries_max)
				assert_true(n_entries <= rows[r].entries_max);
		}
		ki_memory_free(memory);
	}
}

/* Its entries lie in chunks, which count, and which go back. */
static void a_large_table_keeps_its_bound_and_gives_back(void **state)
{
	struct ki_memory *memory =
		memory_of((struct ki_memory_options){ .bytes_max = 16 << 20 });
	struct ki_arena *arena = &memory->table.arena;
	uint64_t bytes, n_entries, i, held = 0, n_wrong = 0, n_over = 0;
	size_t idle, n_idle = 0;

	for (i = 0; i < 120000; i++) {
		put(memory, i, i, 8);
		if (i % 2)
			assert_int_equal(get(memory, i), i);
		idle = ki_arena_idle(arena);
		n_idle += idle > 0;
		ki_memory_size(memory, &bytes, &n_entries);
		n_over += bytes > (uint64_t)16 << 20;
		n_wrong += idle > n_entries * 16 + KI_PAGES_HUGE;
	}
	assert_true(n_idle > 0);
	assert_int_equal(n_over, 0);
	assert_int_equal(n_wrong, 0);
	ki_memory_size(memory, &bytes, &n_entries);
	for (i = 0; i < 120000; i++)
		held += get(memory, i) == i;
	assert_int_equal(held, n_entries);
	ki_memory_trim(memory, 0);
	assert_int_equal(ki_arena_idle(arena), 0);
	put(memory, 1, 1, 8);
	assert_int_equal(ki_arena_idle(arena), 0);
	assert_int_equal(get(memory, 1), 1);
	ki_memory_free(memory);
}

/* One of 16 MiB and many kernels, where chunks come and go; what it holds while
   another thread puts. */
struct watched {
	struct ki_memory *memory;
	_Atomic int is_done;
};

static int put_or_watch(unsigned index, void *arg)
{
	struct watched *watched = arg;
	uint64_t bytes, n_entries, i;
	int n_over = 0;

	if (index) {
		while (!watched->is_done) {
			ki_memory_size(watched->memory, &bytes, &n_entries);
			n_over += bytes > (uint64_t)16 << 20;
		}
		return n_over;
	}
	for (i = 0; i < 120000; i++)
		put(watched->memory, i, i, 8);
	watched->is_done = 1;
	return 0;
}

/* S48 */
static void nobody_sees_a_bound_exceeded(void **state)
{
	struct watched watched = { .memory =
					   memory_of((struct ki_memory_options){
						   .bytes_max = 16 << 20 }) };

	assert_int_equal(harness_threads(2, put_or_watch, &watched), 0);
	ki_memory_free(watched.memory);
}

static void a_put_that_loses_leaves_the_bound(void **state)
{
	struct ki_memory *memory =
		memory_of((struct ki_memory_options){ .bytes_max = 16 << 20 });
	struct ki_table *table = &memory->table;
	uint64_t bytes, n_entries, n_over = 0, n_chunks = 0, i;
	struct kiln_blob *blob = blob_of(0, 8);

	put(memory, 0, 0, 8);
	for (i = 1; i < 120000; i++) {
		struct kiln_key *key = key_of(0);
		size_t before = ki_arena_idle(&table->arena);

		/* Each makes an entry, a chunk too if it is time, for nothing. */
		(void)ki_table_put(table, key, blob, KI_TABLE_FILL, NULL);
		ki_memory_size(memory, &bytes, &n_entries);
		n_over += bytes > (uint64_t)16 << 20;
		n_chunks += ki_arena_idle(&table->arena) > before + 1000;
		kiln_key_free(key);
		put(memory, i, i, 8);
		assert_int_equal(get(memory, 0), 0);
	}
	assert_true(n_chunks > 0);
	assert_int_equal(n_over, 0);
	kiln_blob_unref(blob);
	ki_memory_free(memory);
}

/* Of those that lie in chunks every other goes, so that no chunk does. */
static void trimming_counts_what_lies_idle(void **state)
{
	struct ki_memory *memory = memory_of((struct ki_memory_options){ 0 });
	const uint64_t n = 2 * KI_ARENA_ENTRIES_MIN;
	uint64_t bytes, n_entries, bound, i;

	for (i = 0; i < n; i++)
		put(memory, i, i, 8);
	for (i = 0; i < n; i += i < KI_ARENA_ENTRIES_MIN ? 1 : 2)
		assert_int_equal(get(memory, i), i);
	ki_memory_size(memory, &bytes, &n_entries);
	bound = bytes / 8 * 7;
	ki_memory_trim(memory, bound);
	ki_memory_size(memory, &bytes, &n_entries);
	assert_true(ki_arena_idle(&memory->table.arena) > KI_PAGES_HUGE / 4);
	assert_in_range(bytes, bound - 1000, bound);
	ki_memory_free(memory);
}

static void a_value_larger_than_the_bound_is_not_kept(void **state)
{
	struct ki_memory *memory =
		memory_of((struct ki_memory_options){ .bytes_max = 10000 });

	put(memory, 1, 1, 100);
	put(memory, 2, 2, 100);
	put(memory, 1, 3, 20000);
	assert_int_equal(get(memory, 1), NOTHING); /* nor an older one */
	assert_int_equal(get(memory, 2), 2);
	ki_memory_free(memory);
}

static void what_is_used_outlives_what_is_not(void **state)
{
	struct ki_memory *memory =
		memory_of((struct ki_memory_options){ .entries_max = 100 });

	for (uint64_t i = 0; i < 10; i++)
		put(memory, i, i, 8);
	for (uint64_t i = 10; i < 2000; i++) {
		put(memory, i, i, 8);
		if (i % 10 == 0)
			for (uint64_t j = 0; j < 10; j++)
				assert_int_equal(get(memory, j), j);
	}
	ki_memory_free(memory);
}

/* Against a list that is kept in the order itself. */
static void exact_orders_are_exact(void **state)
{
	static const struct {
		const char *name;
		enum ki_memory_order order;
	} rows[] = { { "least recently used", KI_MEMORY_LRU },
		     { "insertion", KI_MEMORY_INSERTION } };
	uint64_t seed = 7;

	for (size_t r = 0; r < 2; r++) {
		struct ki_memory *memory = memory_of((struct ki_memory_options){
			.entries_max = 8, .order = rows[r].order });
		uint64_t list[8] = { 0 }; /* who goes next first */
		size_t n = 0, i;

		for (int step = 0; step < 3000; step++) {
			uint64_t number = 1 + harness_random(&seed) % 20;
			int is_put = harness_random(&seed) % 4 == 0;

			for (i = 0; i < n && list[i] != number; i++)
				;
			if (is_put)
				put(memory, number, number, 8);
			else
				assert_int_equal(get(memory, number),
						 i < n ? number : NOTHING);
			if (!is_put &&
			    (i == n || rows[r].order == KI_MEMORY_INSERTION))
				continue;
			if (i == n && n == 8)
				i = 0;
			else if (i == n)
				n++;
			memmove(list + i, list + i + 1,
				(n - i - 1) * sizeof(*list));
			list[n - 1] = number;
		}
		for (i = 0; i < n; i++)
			assert_int_equal(get(memory, list[i]), list[i]);
		ki_memory_free(memory);
	}
}

static uint64_t data_size_of(uint64_t number)
{
	struct kiln_key *key = key_of(number);
	uint64_t size = key->data_size;

	kiln_key_free(key);
	return size;
}

/* As native sessions of D3D12 do it: 20 KiB twice into 32, 40 KiB into 32. */
static void by_insertion_the_bound_is_bytes_of_fields_and_values(void **state)
{
	const uint64_t one = data_size_of(1) + 100;
	struct ki_memory *memory = memory_of((struct ki_memory_options){
		.bytes_max = 2 * one, .order = KI_MEMORY_INSERTION });
	uint64_t bytes, n_entries;

	put(memory, 1, 1, 100);
	put(memory, 2, 2, 100);
	ki_memory_size(memory, &bytes, &n_entries);
	assert_int_equal(bytes, 2 * one);
	assert_int_equal(get(memory, 1), 1);
	put(memory, 3, 3, 100);
	assert_int_equal(get(memory, 1), NOTHING);
	assert_int_equal(get(memory, 2), 2);
	put(memory, 4, 4, 101);
	assert_int_equal(get(memory, 2), NOTHING);
	assert_int_equal(get(memory, 3), NOTHING);
	assert_int_equal(get(memory, 4), 4);

	put(memory, 5, 5, (size_t)(10 * one));
	assert_int_equal(get(memory, 4), NOTHING);
	assert_int_equal(get(memory, 5), 5);
	ki_memory_size(memory, &bytes, &n_entries);
	assert_int_equal(n_entries, 1);
	put(memory, 6, 6, 8);
	assert_int_equal(get(memory, 5), NOTHING);
	assert_int_equal(get(memory, 6), 6);
	ki_memory_free(memory);
}

static void by_insertion_one_byte_is_a_bound(void **state)
{
	struct ki_memory *memory = memory_of((struct ki_memory_options){
		.bytes_max = 1, .order = KI_MEMORY_INSERTION });

	for (uint64_t i = 0; i < 200; i++) {
		put(memory, i, i, 5000);
		assert_int_equal(get(memory, i), i);
		if (i)
			assert_int_equal(get(memory, i - 1), NOTHING);
	}
	ki_memory_free(memory);
}

static void trimming_keeps_what_fits(void **state)
{
	struct ki_memory *memory = memory_of((struct ki_memory_options){ 0 });
	uint64_t bytes, n_entries, i;

	for (i = 0; i < 100; i++)
		put(memory, i, i, 1000);
	ki_memory_trim(memory, 50000);
	ki_memory_size(memory, &bytes, &n_entries);
	assert_in_range(bytes, 45000, 50000);
	assert_in_range(n_entries, 30, 50);
	ki_memory_trim(memory, 0);
	ki_memory_size(memory, &bytes, &n_entries);
	assert_int_equal(bytes, 0);
	put(memory, 1, 1, 1000);
	assert_int_equal(get(memory, 1), 1);
	ki_memory_free(memory);
}

static int is_even(void *arg, const struct kiln_blob *blob)
{
	return number_of(blob) % 2 == 0;
}

static void sweeping_drops_what_is_not_wanted(void **state)
{
	struct ki_memory *memory = memory_of((struct ki_memory_options){ 0 });

	for (uint64_t i = 0; i < 100; i++)
		put(memory, i, i, 8);
	ki_memory_sweep(memory, is_even, NULL);
	for (uint64_t i = 0; i < 100; i++)
		assert_int_equal(get(memory, i), i % 2 ? NOTHING : i);
	ki_memory_free(memory);
}

static void note_stale(void *arg, const struct kiln_key *key)
{
	++*(unsigned *)arg;
}

static void the_first_hit_after_a_sweep_is_told(void **state)
{
	unsigned n_told = 0;
	struct ki_memory *memory = memory_of((struct ki_memory_options){
		.stale = note_stale, .stale_arg = &n_told });

	put(memory, 2, 2, 8);
	assert_int_equal(get(memory, 2), 2);
	assert_int_equal(n_told, 0);
	for (unsigned i = 1; i < 4; i++) {
		ki_memory_sweep(memory, is_even, NULL);
		assert_int_equal(get(memory, 2), 2);
		assert_int_equal(n_told, i);
		assert_int_equal(get(memory, 2), 2);
		assert_int_equal(n_told, i);
	}
	ki_memory_free(memory);
}

static void what_was_read_before_a_removal_does_not_come_back(void **state)
{
	struct ki_memory *memory = memory_of((struct ki_memory_options){ 0 });
	struct kiln_key *key = key_of(1);
	struct kiln_blob *blob = blob_of(1, 8);
	uint64_t changes = ki_memory_changes(memory);

	ki_memory_remove(memory, key);
	ki_memory_fill(memory, key, blob, changes);
	assert_int_equal(get(memory, 1), NOTHING);
	ki_memory_fill(memory, key, blob, ki_memory_changes(memory));
	assert_int_equal(get(memory, 1), 1);
	kiln_blob_unref(blob);
	kiln_key_free(key);
	ki_memory_free(memory);
}

static void a_tier_that_holds_nothing_misses(void **state)
{
	struct ki_memory *memory =
		memory_of((struct ki_memory_options){ .hold_nothing = 1 });
	uint64_t bytes, n_entries;

	put(memory, 1, 1, 8);
	assert_int_equal(get(memory, 1), NOTHING);
	ki_memory_size(memory, &bytes, &n_entries);
	assert_int_equal(bytes, 0);
	ki_memory_free(memory);
}

/* ---- References ------------------------------------------------------------ */

static _Atomic int n_released;

static void released(void *arg)
{
	atomic_fetch_add(&n_released, 1);
	free(arg);
}

static struct kiln_blob *watched(uint64_t number)
{
	uint64_t *bytes = malloc(8);
	struct kiln_blob *blob;

	*bytes = number;
	if (kiln_blob_wrap(bytes, 8, released, bytes, &blob))
		abort();
	return blob;
}

struct handover {
	struct ki_memory *memory;
	struct kiln_blob *blobs[64];
};

static void *take_references(void *arg)
{
	struct handover *handover = arg;
	struct kiln_key *key = key_of(1);

	for (int i = 0; i < 64; i++)
		if (ki_memory_get(handover->memory, key, &handover->blobs[i]))
			handover->blobs[i] = NULL;
	kiln_key_free(key);
	return NULL;
}

static void *drop_references(void *arg)
{
	struct handover *handover = arg;

	for (int i = 0; i < 64; i++)
		kiln_blob_unref(handover->blobs[i]);
	return NULL;
}

static void in_thread(void *(*body)(void *), void *arg)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, body, arg))
		abort();
	pthread_join(thread, NULL);
}

static void references_move_between_threads_that_end(void **state)
{
	static const char *const ends[] = { "removed before", "removed after",
					    "removed between" };

	for (size_t i = 0; i < 3; i++) {
		struct handover handover = {
			memory_of((struct ki_memory_options){ 0 }), { NULL }
		};
		struct kiln_key *key = key_of(1);
		struct kiln_blob *blob = watched(i);

		n_released = 0;
		ki_memory_put(handover.memory, key, blob);
		kiln_blob_unref(blob);
		in_thread(take_references, &handover);
		for (int j = 0; j < 64; j++)
			assert_non_null(handover.blobs[j]);
		if (i == 0)
			ki_memory_remove(handover.memory, key);
		assert_int_equal(number_of(handover.blobs[63]), i);
		in_thread(drop_references, &handover);
		if (i == 1)
			assert_int_equal(n_released, 0);
		ki_memory_remove(handover.memory, key);
		assert_string_equal(n_released == 1 ? ends[i] : "leak",
				    ends[i]);
		kiln_key_free(key);
		ki_memory_free(handover.memory);
	}
}

/* A hit writes nothing of the blob, whatever the thread has put before. */
static void putting_leaves_hits_the_quick_way(void **state)
{
	struct ki_memory *memory = memory_of((struct ki_memory_options){ 0 });
	uint64_t i;

	for (i = 0; i < 1000; i++)
		put(memory, i, i, 8);
	for (i = 0; i < 1000; i++) {
		struct kiln_key *key = key_of(i);
		struct kiln_blob *blob;
		size_t before;

		assert_int_equal(ki_memory_get(memory, key, &blob), KILN_OK);
		before = atomic_load(&blob->refs);
		kiln_blob_unref(blob);
		assert_int_equal(atomic_load(&blob->refs), before);
		kiln_key_free(key);
	}
	ki_memory_free(memory);
}

/* The way of core's hits: once its mark is made, without a call and without a
   write to the blob; and never for another key. */
static void a_marked_entry_is_found_the_quick_way(void **state)
{
	struct ki_memory *memory = memory_of((struct ki_memory_options){ 0 });
	struct kiln_key *key = key_of(1), *other = key_of(2);
	struct kiln_blob *blob = NULL, *wrong;
	enum kiln_status status, missed;
	struct ki_slot *slot;
	size_t before;

	other->digest_low = key->digest_low;
	other->digest_high = key->digest_high;
	other->tags = key->tags;
	put(memory, 1, 1, 8);
	assert_int_equal(ki_memory_get(memory, key, &blob), KILN_OK);
	before = atomic_load(&blob->refs);
	kiln_blob_unref(blob);
	slot = ki_slot_enter();
	assert_non_null(slot);
	missed = ki_memory_find(memory, other, slot, &wrong);
	status = ki_memory_find(memory, key, slot, &blob);
	ki_slot_leave(slot);
	assert_int_equal(missed, KILN_MISS);
	assert_int_equal(status, KILN_OK);
	assert_int_equal(number_of(blob), 1);
	assert_int_equal(atomic_load(&blob->refs), before);
	kiln_blob_unref(blob);
	kiln_key_free(other);
	kiln_key_free(key);
	ki_memory_free(memory);
}

static void a_blob_outlives_its_memory_tier(void **state)
{
	struct ki_memory *memory = memory_of((struct ki_memory_options){ 0 });
	struct kiln_key *key = key_of(1);
	struct kiln_blob *blob = watched(5), *got[3];

	n_released = 0;
	ki_memory_put(memory, key, blob);
	kiln_blob_unref(blob);
	for (int i = 0; i < 3; i++)
		assert_int_equal(ki_memory_get(memory, key, &got[i]), KILN_OK);
	ki_memory_free(memory);
	assert_int_equal(n_released, 0);
	assert_int_equal(number_of(got[0]), 5);
	for (int i = 0; i < 3; i++)
		kiln_blob_unref(got[i]);
	assert_int_equal(n_released, 1);
	kiln_key_free(key);
}

static void one_blob_may_be_in_several_tiers(void **state)
{
	struct ki_memory *a = memory_of((struct ki_memory_options){ 0 });
	struct ki_memory *b = memory_of((struct ki_memory_options){ 0 });
	struct kiln_key *key = key_of(1), *other = key_of(2);
	struct kiln_blob *blob = watched(5), *got[4];

	n_released = 0;
	ki_memory_put(a, key, blob);
	ki_memory_put(a, other, blob);
	ki_memory_put(b, key, blob);
	kiln_blob_unref(blob);
	assert_int_equal(ki_memory_get(a, key, &got[0]), KILN_OK);
	assert_int_equal(ki_memory_get(b, key, &got[1]), KILN_OK);
	ki_memory_put(a, key, got[0]);
	ki_memory_remove(a, key);
	ki_memory_put(a, key, got[0]);
	assert_int_equal(ki_memory_get(a, key, &got[2]), KILN_OK);
	assert_int_equal(ki_memory_get(a, other, &got[3]), KILN_OK);
	ki_memory_free(a);
	ki_memory_free(b);
	assert_int_equal(n_released, 0);
	for (int i = 0; i < 4; i++)
		kiln_blob_unref(got[i]);
	assert_int_equal(n_released, 1);
	kiln_key_free(other);
	kiln_key_free(key);
}

static void *take_a_slot(void *arg)
{
	get(arg, 1);
	return NULL;
}

static void slots_of_ended_threads_are_used_again(void **state)
{
	struct ki_memory *memory = memory_of((struct ki_memory_options){ 0 });
	size_t before;

	put(memory, 1, 1, 8);
	get(memory, 1);
	before = ki_slots_n_used();
	for (int i = 0; i < 20; i++)
		in_thread(take_a_slot, memory);
	assert_int_equal(ki_slots_n_used(), before);
	assert_int_equal(ki_memory_hits(memory), 21);
	ki_memory_free(memory);
}

/* A thread that stands still in the middle of a look-up. */
struct reader {
	pthread_t thread;
	pthread_barrier_t barrier;
};

static void *read_until_told(void *arg)
{
	struct reader *reader = arg;
	struct ki_slot *slot = ki_slot_enter();

	pthread_barrier_wait(&reader->barrier);
	pthread_barrier_wait(&reader->barrier);
	if (slot)
		ki_slot_leave(slot);
	return NULL;
}

static void reader_start(struct reader *reader)
{
	pthread_barrier_init(&reader->barrier, NULL, 2);
	if (pthread_create(&reader->thread, NULL, read_until_told, reader))
		abort();
	pthread_barrier_wait(&reader->barrier);
}

static void reader_end(struct reader *reader)
{
	pthread_barrier_wait(&reader->barrier);
	pthread_join(reader->thread, NULL);
	pthread_barrier_destroy(&reader->barrier);
}

static void put_watched(struct ki_memory *memory, uint64_t number)
{
	struct kiln_key *key = key_of(number);
	struct kiln_blob *blob = watched(number);

	ki_memory_put(memory, key, blob);
	kiln_blob_unref(blob);
	kiln_key_free(key);
}

/* It keeps garbage, which has a bound: a 16th of the tier's. */
static void a_stopped_reader_does_not_make_memory_grow(void **state)
{
	struct ki_memory *memory =
		memory_of((struct ki_memory_options){ .bytes_max = 160000 });
	struct reader reader;
	uint64_t bytes, n_entries, i, held = 0;

	reader_start(&reader);
	n_released = 0;
	for (i = 0; i < 5000; i++)
		put_watched(memory, i);
	ki_memory_size(memory, &bytes, &n_entries);
	assert_in_range(5000 - n_released, n_entries, n_entries * 17 / 16 + 2);
	for (i = 0; i < 5000; i++) /* they go on, by lock */
		if (get(memory, i) != NOTHING) {
			assert_int_equal(get(memory, i), i);
			held++;
		}
	assert_int_equal(held, n_entries);
	reader_end(&reader);
	put(memory, 9999, 1, 8); /* collects */
	put(memory, 9998, 2, 8);
	assert_int_equal(get(memory, 9998), 2);
	ki_memory_free(memory);
	assert_int_equal(n_released, 5000);
}

/* Where there is no bound, 64 MiB of garbage are the limit. */
static void garbage_has_a_limit_without_a_bound(void **state)
{
	struct ki_memory *memory = memory_of((struct ki_memory_options){ 0 });
	struct reader reader;
	uint64_t bytes, n_entries;

	put(memory, 1, 1, 16 << 20);
	reader_start(&reader);
	for (uint64_t i = 2; i <= 6; i++)
		put(memory, 1, i, 16 << 20);
	/* Five were replaced, the last of them passed the limit. */
	put(memory, 2, 2, 8);
	assert_int_equal(get(memory, 2), NOTHING);
	reader_end(&reader);
	put(memory, 2, 2, 8);
	put(memory, 2, 2, 8);
	assert_int_equal(get(memory, 2), 2);
	ki_memory_size(memory, &bytes, &n_entries);
	assert_true(bytes < (uint64_t)17 << 20);
	ki_memory_free(memory);
}

/* Neither sanitizer knows of threads that end without destructors. */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define HAS_VANISHING_THREADS
#endif
#if HARNESS_FORKS_AMONG_THREADS
#define HAS_FORKS
#endif

#ifdef HAS_VANISHING_THREADS
/* Destructors of thread-local values do not run for these. */
static void *vanish(void *arg)
{
	get(arg, 1);
	syscall(SYS_exit, 0);
	return NULL;
}

#define STACK_BYTES ((size_t)64 << 10)

static pthread_t start_on(char *stack, void *(*body)(void *), void *arg)
{
	pthread_attr_t attributes;
	pthread_t thread;

	pthread_attr_init(&attributes);
	if (pthread_attr_setstack(&attributes, stack, STACK_BYTES) ||
	    pthread_create(&thread, &attributes, body, arg))
		abort();
	pthread_attr_destroy(&attributes);
	return thread;
}

static void slots_of_the_dead_are_reclaimed(void **state)
{
	struct ki_memory *memory = memory_of((struct ki_memory_options){ 0 });
	char *stack = aligned_alloc(4096, STACK_BYTES);

	assert_non_null(stack);
	put(memory, 1, 1, 8);
	for (size_t i = 0; i < 300; i++)
		pthread_join(start_on(stack, vanish, memory), NULL);
	assert_true(ki_slots_n_used() <= 66);
	assert_int_equal(ki_memory_hits(memory), 300);
	ki_memory_free(memory);
	free(stack);
}

#define N_DEAD 300 /* enough for them to be looked for */

/* Its thread-local variables lie where those of the dead one were. */
static void a_thread_in_a_dead_ones_place_keeps_its_pin(void **state)
{
	struct ki_memory *memory = memory_of((struct ki_memory_options){ 0 });
	char *stack = aligned_alloc(4096, (1 + N_DEAD) * STACK_BYTES);
	struct reader reader;
	uint64_t tag;
	int seen;

	assert_non_null(stack);
	put(memory, 1, 1, 8);
	pthread_join(start_on(stack, vanish, memory), NULL);
	pthread_barrier_init(&reader.barrier, NULL, 2);
	reader.thread = start_on(stack, read_until_told, &reader);
	pthread_barrier_wait(&reader.barrier);
	tag = ki_slots_retire();
	for (size_t i = 1; i <= N_DEAD; i++)
		pthread_join(start_on(stack + i * STACK_BYTES, vanish, memory),
			     NULL);
	seen = ki_slots_passed() <= tag;
	reader_end(&reader);
	assert_true(seen);
	assert_true(ki_slots_passed() > tag);
	ki_memory_free(memory);
	free(stack);
}

#endif

#ifdef HAS_FORKS
#ifndef NDEBUG
static void pins_do_not_nest(void **state)
{
	struct kiln_blob *blob;
	int status;
	pid_t pid;

	assert_int_equal(kiln_blob_copy("x", 1, &blob), KILN_OK);
	ki_slots_prepare();
	pid = fork();
	if (!pid) {
		(void)!freopen("/dev/null", "w", stderr);
		signal(SIGABRT, SIG_DFL);
		(void)ki_slot_enter();
		kiln_blob_unref(blob);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	kiln_blob_unref(blob);
}
#endif

/* S40: readers that the child does not have keep nothing there. */
static void fork_resets_slots(void **state)
{
	struct reader reader;
	int status;
	pid_t pid;

	reader_start(&reader);
	pid = fork();
	if (!pid) {
		struct ki_memory *memory =
			memory_of((struct ki_memory_options){ 0 });

		n_released = 0;
		put_watched(memory, 1);
		ki_memory_wipe(memory);
		_exit(ki_slots_n_used() != 1 || n_released != 1);
	}
	reader_end(&reader);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

struct keeper {
	struct kiln_blob *blob;
	int in[2], out[2];
};

/* Stops between two steps of keeping a handle. */
static void *keep_one(void *arg)
{
	struct keeper *keeper = arg;
	struct ki_slot *slot = ki_slot_get();
	char byte = 0;

	slot->handles[0] = keeper->blob;
	slot->n_handles = 1;
	if (write(keeper->out[1], &byte, 1) != 1 ||
	    read(keeper->in[0], &byte, 1) != 1)
		abort();
	slot->n_handles = 0;
	return NULL;
}

static void a_child_frees_no_handle_of_threads_it_does_not_have(void **state)
{
	struct keeper keeper;
	pthread_t thread;
	char byte = 0;
	int status;
	pid_t pid;

	assert_int_equal(kiln_blob_copy("x", 1, &keeper.blob), KILN_OK);
	assert_int_equal(pipe(keeper.in) | pipe(keeper.out), 0);
	assert_int_equal(pthread_create(&thread, NULL, keep_one, &keeper), 0);
	assert_int_equal(read(keeper.out[0], &byte, 1), 1);
	pid = fork();
	if (!pid) {
		(void)!freopen("/dev/null", "w", stderr);
		signal(SIGABRT, SIG_DFL);
		kiln_blob_unref(keeper.blob); /* the second time, if freed */
		_exit(0);
	}
	assert_int_equal(write(keeper.in[1], &byte, 1), 1);
	pthread_join(thread, NULL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	kiln_blob_unref(keeper.blob);
	for (int i = 0; i < 2; i++) {
		close(keeper.in[i]);
		close(keeper.out[i]);
	}
}
#endif

struct crowd {
	struct ki_memory *memory;
	struct kiln_key *keys[64];
	_Atomic int n_made;
	_Atomic int n_wrong;
};

static int hammer(unsigned index, void *arg)
{
	struct crowd *crowd = arg;
	uint64_t seed = index + 1;

	for (int i = 0; i < 4000; i++) {
		uint64_t random = harness_random(&seed), n = random % 64;
		struct kiln_blob *blob;

		if (random >> 60 == 0) {
			ki_memory_remove(crowd->memory, crowd->keys[n]);
		} else if (random >> 60 < 4) {
			blob = watched(n);
			atomic_fetch_add(&crowd->n_made, 1);
			ki_memory_put(crowd->memory, crowd->keys[n], blob);
			kiln_blob_unref(blob);
		} else if (!ki_memory_get(crowd->memory, crowd->keys[n],
					  &blob)) {
			struct kiln_blob *more = kiln_blob_ref(blob);

			if (number_of(blob) != n)
				atomic_fetch_add(&crowd->n_wrong, 1);
			kiln_blob_unref(blob);
			kiln_blob_unref(more);
		}
	}
	return 0;
}

static void many_threads_get_put_and_remove(void **state)
{
	struct crowd crowd = { .memory = memory_of((struct ki_memory_options){
				       .entries_max = 32 }) };

	n_released = 0;
	for (uint64_t i = 0; i < 64; i++)
		crowd.keys[i] = key_of(i);
	harness_threads(8, hammer, &crowd);
	ki_memory_free(crowd.memory);
	assert_int_equal(crowd.n_wrong, 0);
	assert_int_equal(n_released, crowd.n_made);
	for (uint64_t i = 0; i < 64; i++)
		kiln_key_free(crowd.keys[i]);
}

/* ---- Flights --------------------------------------------------------------- */

struct party {
	struct ki_memory *memory;
	struct kiln_key *key;
	unsigned n_threads;
	enum kiln_build_kind kind;
	enum kiln_status status;
	_Atomic int n_led;
	_Atomic int n_from[5];
	_Atomic int n_failed;
};

/* Lead only once everybody else waits. */
static int fly(unsigned index, void *arg)
{
	struct party *party = arg;
	struct kiln_build_result result;
	struct ki_flight *flight;
	enum kiln_status status;

	kiln_build_result_init(&result);
	status = ki_memory_begin(party->memory, party->key, &result, &flight);
	if (status == KILN_MISS) {
		int turn = atomic_fetch_add(&party->n_led, 1);

		while (!turn &&
		       ki_memory_waited(party->memory) < party->n_threads - 1)
			ki_thread_yield();
		if (party->kind == KILN_BUILD_OK)
			result.blob = blob_of(42, 8);
		if (result.blob)
			ki_memory_add(party->memory, party->key, result.blob);
		result.kind = party->kind;
		result.code = 7;
		result.message = strdup("no");
		result.source = KILN_FROM_BUILD;
		ki_memory_finish(party->memory, flight, party->status, &result);
		status = KILN_OK;
	}
	if (status || result.code != 7 || strcmp(result.message, "no") ||
	    (party->kind == KILN_BUILD_OK && number_of(result.blob) != 42))
		atomic_fetch_add(&party->n_failed, 1);
	atomic_fetch_add(&party->n_from[result.source], 1);
	kiln_build_result_fini(&result);
	return 0;
}

/* S18, in the tier alone. */
static void one_leads_and_the_others_wait(void **state)
{
	struct party party = {
		.memory = memory_of((struct ki_memory_options){ 0 }),
		.key = key_of(1),
		.n_threads = 64,
	};

	harness_threads(64, fly, &party);
	assert_int_equal(party.n_failed, 0);
	assert_int_equal(party.n_led, 1);
	assert_int_equal(party.n_from[KILN_FROM_BUILD], 1);
	assert_int_equal(party.n_from[KILN_FROM_FLIGHT], 63);
	assert_int_equal(get(party.memory, 1), 42);
	kiln_key_free(party.key);
	ki_memory_free(party.memory);
}

/* S22 */
static void failures_reach_everyone_who_waits(void **state)
{
	static const struct {
		const char *name;
		enum kiln_build_kind kind;
		enum kiln_status status;
		int n_led_min;
		int n_led_max;
	} rows[] = {
		{ "lasting", KILN_BUILD_FAILED, KILN_OK, 1, 1 },
		{ "resources", KILN_BUILD_RESOURCES, KILN_OK, 1, 1 },
		/* Each of those who waited tries for itself, in turn. */
		{ "spurious", KILN_BUILD_SPURIOUS, KILN_OK, 8, 8 },
		{ "uncached", KILN_BUILD_UNCACHED, KILN_OK, 8, 8 },
		{ "given up", KILN_BUILD_FAILED, KILN_E_NO_MEMORY, 8, 8 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct party party = {
			.memory = memory_of((struct ki_memory_options){ 0 }),
			.key = key_of(1),
			.n_threads = 8,
			.kind = rows[i].kind,
			.status = rows[i].status,
		};

		harness_threads(8, fly, &party);
		assert_int_equal(party.n_failed, 0);
		assert_in_range(party.n_led, rows[i].n_led_min,
				rows[i].n_led_max);
		assert_int_equal(party.n_from[KILN_FROM_BUILD], party.n_led);
		kiln_key_free(party.key);
		ki_memory_free(party.memory);
	}
}

static struct ki_flight *lead(struct ki_memory *memory,
			      const struct kiln_key *key)
{
	struct kiln_build_result result;
	struct ki_flight *flight;

	return ki_memory_begin(memory, key, &result, &flight) == KILN_MISS
		       ? flight
		       : NULL;
}

static void finish_with_nothing(struct ki_memory *memory,
				struct ki_flight *flight)
{
	struct kiln_build_result result;

	kiln_build_result_init(&result);
	result.kind = KILN_BUILD_RESOURCES;
	ki_memory_finish(memory, flight, KILN_OK, &result);
}

static void who_leads_alone_is_followed_by_nobody(void **state)
{
	struct ki_memory *memory = memory_of((struct ki_memory_options){ 0 });
	struct kiln_key *key = key_of(1);
	struct ki_flight *alone, *again, *led;

	led = lead(memory, key);
	assert_int_equal(ki_memory_begin_alone(memory, key, &again),
			 KILN_E_INVALID);
	finish_with_nothing(memory, led);
	assert_int_equal(ki_memory_begin_alone(memory, key, &alone), KILN_MISS);
	assert_int_equal(ki_memory_begin_alone(memory, key, &again),
			 KILN_E_INVALID);
	assert_null(lead(memory, key));
	finish_with_nothing(memory, alone);
	/* What it came to is nobody's. */
	led = lead(memory, key);
	assert_non_null(led);
	finish_with_nothing(memory, led);
	kiln_key_free(key);
	ki_memory_free(memory);
}

static void an_open_flight_does_not_count_as_led(void **state)
{
	struct ki_memory *outer = memory_of((struct ki_memory_options){ 0 });
	struct ki_memory *inner = memory_of((struct ki_memory_options){ 0 });
	struct kiln_key *one = key_of(1), *two = key_of(2);
	struct ki_flight *flight = lead(outer, one), *nested;

	ki_flight_set_open(flight, 1);
	nested = lead(inner, two);
	assert_false(ki_flight_is_nested(nested));
	/* But it is known whose it is. */
	assert_null(lead(outer, one));
	finish_with_nothing(inner, nested);
	ki_flight_set_open(flight, 0);
	nested = lead(inner, two);
	assert_true(ki_flight_is_nested(nested));
	finish_with_nothing(inner, nested);
	finish_with_nothing(outer, flight);
	kiln_key_free(one);
	kiln_key_free(two);
	ki_memory_free(outer);
	ki_memory_free(inner);
}

static void note_release(void *arg)
{
	++*(int *)arg;
}

static void only_the_very_value_is_discarded(void **state)
{
	struct ki_memory *memory = memory_of((struct ki_memory_options){ 0 });
	struct kiln_key *key = key_of(1);
	struct kiln_blob *blob, *other = blob_of(2, 8);
	int n_ended = 0;

	assert_int_equal(kiln_blob_wrap("", 0, note_release, &n_ended, &blob),
			 KILN_OK);
	ki_memory_put(memory, key, blob);
	kiln_blob_unref(blob);
	ki_memory_discard(memory, key, other);
	assert_int_equal(ki_memory_get(memory, key, &blob), KILN_OK);
	ki_memory_discard(memory, key, blob);
	kiln_blob_unref(blob);
	assert_int_equal(get(memory, 1), NOTHING);
	ki_memory_let_go(memory);
	assert_int_equal(n_ended, 1);
	kiln_blob_unref(other);
	kiln_key_free(key);
	ki_memory_free(memory);
}

/* Fail once; whether the next caller leads. */
static int leads_after_failure(struct ki_memory *memory,
			       const struct kiln_key *key,
			       enum kiln_build_kind kind)
{
	struct kiln_build_result result;
	struct ki_flight *flight;
	enum kiln_status status;

	kiln_build_result_init(&result);
	status = ki_memory_begin(memory, key, &result, &flight);
	if (status != KILN_MISS)
		return -1;
	result.kind = kind;
	ki_memory_finish(memory, flight, KILN_OK, &result);
	kiln_build_result_init(&result);
	status = ki_memory_begin(memory, key, &result, &flight);
	if (status == KILN_MISS)
		ki_memory_finish(memory, flight, KILN_E_NO_MEMORY, &result);
	else if (status || result.source != KILN_FROM_FAILURE ||
		 result.kind != kind)
		return -1;
	return status == KILN_MISS;
}

/* S22 */
static void failures_are_kept_by_policy(void **state)
{
	static const struct {
		const char *name;
		enum kiln_failure_policy policy;
		uint64_t ttl_ms;
		enum kiln_build_kind kind;
		int leads;
	} rows[] = {
		{ "retry", KILN_FAILURE_RETRY, 0, KILN_BUILD_FAILED, 1 },
		{ "keep", KILN_FAILURE_KEEP, 0, KILN_BUILD_FAILED, 0 },
		{ "for long", KILN_FAILURE_KEEP_FOR, 60000, KILN_BUILD_FAILED,
		  0 },
		{ "expired", KILN_FAILURE_KEEP_FOR, 0, KILN_BUILD_FAILED, 1 },
		{ "spurious", KILN_FAILURE_KEEP, 0, KILN_BUILD_SPURIOUS, 1 },
		{ "resources", KILN_FAILURE_KEEP, 0, KILN_BUILD_RESOURCES, 1 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ki_memory *memory = memory_of((struct ki_memory_options){
			.failure_policy = rows[i].policy,
			.failure_ttl_ms = rows[i].ttl_ms });
		struct kiln_key *key = key_of(1);

		assert_int_equal(leads_after_failure(memory, key, rows[i].kind),
				 rows[i].leads);
		kiln_key_free(key);
		ki_memory_free(memory);
	}
}

static void a_kept_failure_ends(void **state)
{
	static const char *const ends[] = { "remove", "put", "wipe" };

	for (size_t i = 0; i < 3; i++) {
		struct ki_memory *memory = memory_of((struct ki_memory_options){
			.failure_policy = KILN_FAILURE_KEEP });
		struct kiln_key *key = key_of(1);

		assert_int_equal(
			leads_after_failure(memory, key, KILN_BUILD_FAILED), 0);
		if (!strcmp(ends[i], "remove"))
			ki_memory_remove(memory, key);
		else if (!strcmp(ends[i], "wipe"))
			ki_memory_wipe(memory);
		else {
			put(memory, 1, 1, 8);
			ki_memory_trim(memory, 0);
		}
		assert_int_equal(
			leads_after_failure(memory, key, KILN_BUILD_FAILED), 0);
		kiln_key_free(key);
		ki_memory_free(memory);
	}
}

/* S48 for failures.  Who bounds them elsewhere has all kept. */
static void kept_failures_have_a_bound(void **state)
{
	for (int keeps_all = 0; keeps_all < 2; keeps_all++) {
		struct ki_memory *memory = memory_of((struct ki_memory_options){
			.failure_policy = KILN_FAILURE_KEEP,
			.keep_all_failures = keeps_all });
		struct kiln_key *first = key_of(0);
		struct kiln_build_result result;
		struct ki_flight *flight;

		for (uint64_t i = 0; i < 5000; i++) {
			struct kiln_key *key = key_of(i);

			flight = lead(memory, key);
			assert_non_null(flight);
			kiln_build_result_init(&result);
			result.kind = KILN_BUILD_FAILED;
			assert_int_equal(ki_memory_finish(memory, flight,
							  KILN_OK, &result),
					 1);
			kiln_key_free(key);
		}
		flight = lead(memory, first);
		assert_int_equal(flight == NULL, keeps_all);
		if (flight)
			ki_memory_finish(memory, flight, KILN_E_NO_MEMORY,
					 &result);
		ki_memory_forget(memory, first);
		flight = lead(memory, first);
		assert_non_null(flight);
		ki_memory_finish(memory, flight, KILN_E_NO_MEMORY, &result);
		kiln_key_free(first);
		ki_memory_free(memory);
	}
}

static void forgetting_a_failure_removes_no_value(void **state)
{
	struct ki_memory *memory = memory_of((struct ki_memory_options){
		.failure_policy = KILN_FAILURE_KEEP });
	struct kiln_key *key = key_of(1);
	struct kiln_blob *blob;

	put(memory, 1, 1, 8);
	ki_memory_forget(memory, key);
	assert_int_equal(ki_memory_get(memory, key, &blob), KILN_OK);
	kiln_blob_unref(blob);
	kiln_key_free(key);
	ki_memory_free(memory);
}

/* Who keeps something along with it must know. */
static void what_cannot_be_kept_is_told(void **state)
{
	struct ki_memory *memory =
		memory_of((struct ki_memory_options){ .bytes_max = 4096 });
	struct kiln_key *key = key_of(1);
	struct kiln_blob *large = blob_of(1, 8192), *small = blob_of(2, 8);

	assert_int_equal(ki_memory_add(memory, key, large), KILN_MISS);
	assert_int_equal(ki_memory_add(memory, key, small), KILN_OK);
	assert_int_equal(ki_memory_add(memory, key, large), KILN_EXISTS);
	kiln_blob_unref(large);
	kiln_blob_unref(small);
	kiln_key_free(key);
	ki_memory_free(memory);
}

/* S02: nor does one get the failure of another, or wait for its flight. */
static void equal_digests_never_share_a_flight(void **state)
{
	struct ki_memory *memory = memory_of((struct ki_memory_options){
		.failure_policy = KILN_FAILURE_KEEP });
	struct kiln_key *keys[] = { key_of(1), key_of(2) };
	struct ki_flight *flights[2];
	struct kiln_build_result result;

	keys[1]->digest_low = keys[0]->digest_low;
	keys[1]->digest_high = keys[0]->digest_high;
	keys[1]->tags = keys[0]->tags;
	kiln_build_result_init(&result);
	for (int i = 0; i < 2; i++)
		assert_int_equal(
			ki_memory_begin(memory, keys[i], &result, &flights[i]),
			KILN_MISS);
	ki_memory_finish(memory, flights[1], KILN_E_NO_MEMORY, &result);
	result.kind = KILN_BUILD_FAILED;
	ki_memory_finish(memory, flights[0], KILN_OK, &result);
	assert_int_equal(ki_memory_begin(memory, keys[1], &result, &flights[1]),
			 KILN_MISS);
	ki_memory_finish(memory, flights[1], KILN_E_NO_MEMORY, &result);
	kiln_key_free(keys[0]);
	kiln_key_free(keys[1]);
	ki_memory_free(memory);
}

/* ---- Nesting --------------------------------------------------------------- */

struct pair {
	struct ki_memory *memory;
	struct kiln_key *keys[2];
	_Atomic int n_leading;
	_Atomic int n_wrong;
};

/* Each leads one key and asks for the other's: neither may wait. */
static int cross(unsigned index, void *arg)
{
	struct pair *pair = arg;
	struct kiln_build_result result;
	struct ki_flight *outer, *inner;

	kiln_build_result_init(&result);
	if (ki_memory_begin(pair->memory, pair->keys[index], &result, &outer) !=
		    KILN_MISS ||
	    ki_flight_is_nested(outer))
		atomic_fetch_add(&pair->n_wrong, 1);
	atomic_fetch_add(&pair->n_leading, 1);
	while (pair->n_leading < 2)
		ki_thread_yield();
	if (ki_memory_begin(pair->memory, pair->keys[!index], &result,
			    &inner) != KILN_MISS ||
	    !ki_flight_is_nested(inner))
		atomic_fetch_add(&pair->n_wrong, 1);
	/* S23: either key again, from inside. */
	for (int i = 0; i < 2; i++)
		if (ki_memory_begin(pair->memory, pair->keys[i], &result,
				    &inner) != KILN_E_INVALID)
			atomic_fetch_add(&pair->n_wrong, 1);
	atomic_fetch_add(&pair->n_leading, 1);
	while (pair->n_leading < 4)
		ki_thread_yield();
	ki_memory_finish(pair->memory, inner, KILN_E_NO_MEMORY, &result);
	ki_memory_finish(pair->memory, outer, KILN_E_NO_MEMORY, &result);
	return 0;
}

static void builds_that_need_each_other_do_not_wait(void **state)
{
	struct pair pair = {
		.memory = memory_of((struct ki_memory_options){ 0 }),
		.keys = { key_of(1), key_of(2) },
	};

	harness_threads(2, cross, &pair);
	assert_int_equal(pair.n_wrong, 0);
	kiln_key_free(pair.keys[0]);
	kiln_key_free(pair.keys[1]);
	ki_memory_free(pair.memory);
}

/* ---- Fork ------------------------------------------------------------------ */

#ifdef HAS_FORKS
static _Atomic int stop;

static void *keep_busy(void *arg)
{
	uint64_t i;

	for (i = 0; !atomic_load(&stop); i++) {
		put(arg, i % 50, 1, 64);
		get(arg, i % 50);
	}
	return NULL;
}

/* S40: the child frees what it inherited, whatever the other thread held. */
static void a_forked_child_can_free(void **state)
{
	struct ki_memory *memory =
		memory_of((struct ki_memory_options){ .entries_max = 20 });
	struct kiln_key *key = key_of(1000);
	struct kiln_blob *blob;
	pthread_t thread;
	int failed = 0;

	atomic_store(&stop, 0);
	put(memory, 1000, 3, 8);
	assert_int_equal(ki_memory_get(memory, key, &blob), KILN_OK);
	assert_int_equal(pthread_create(&thread, NULL, keep_busy, memory), 0);
	for (int i = 0; i < 20; i++) {
		int status;
		pid_t pid = fork();

		if (!pid) {
			ki_memory_free(memory);
			if (number_of(blob) != 3)
				_exit(1);
			kiln_blob_unref(blob);
			_exit(0);
		}
		if (waitpid(pid, &status, 0) != pid || status)
			failed++;
	}
	atomic_store(&stop, 1);
	pthread_join(thread, NULL);
	assert_int_equal(failed, 0);
	assert_int_equal(number_of(blob), 3);
	kiln_blob_unref(blob);
	kiln_key_free(key);
	ki_memory_free(memory);
}
#endif

/* Where tags are compared without a processor's help: one that differs in its
   lowest bit, behind one that is equal, is not taken for equal. */
static void of_the_bytes_of_a_word_those_that_are_zero_are_told(void **state)
{
	static const struct {
		uint64_t bytes, zero;
	} cases[] = {
		{ 0x0101010101010101u, 0 },
		{ 0x0101010101010100u, 0x80 },
		{ 0x0180010001800100u, 0x0000008000000080u },
		{ 0x8080808080808080u, 0 },
		{ 0xff7f00017fff0001u, 0x0000800000008000u },
		{ 0, 0x8080808080808080u },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_int_equal(ki_table_zero_bytes(cases[i].bytes),
				 cases[i].zero);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			of_the_bytes_of_a_word_those_that_are_zero_are_told),
		cmocka_unit_test(what_is_put_is_found),
		cmocka_unit_test(equal_digests_never_mix_values_up),
		cmocka_unit_test(bounds_are_never_exceeded),
		cmocka_unit_test(a_large_table_keeps_its_bound_and_gives_back),
		cmocka_unit_test(nobody_sees_a_bound_exceeded),
		cmocka_unit_test(a_put_that_loses_leaves_the_bound),
		cmocka_unit_test(trimming_counts_what_lies_idle),
		cmocka_unit_test(a_value_larger_than_the_bound_is_not_kept),
		cmocka_unit_test(what_is_used_outlives_what_is_not),
		cmocka_unit_test(exact_orders_are_exact),
		cmocka_unit_test(
			by_insertion_the_bound_is_bytes_of_fields_and_values),
		cmocka_unit_test(by_insertion_one_byte_is_a_bound),
		cmocka_unit_test(trimming_keeps_what_fits),
		cmocka_unit_test(sweeping_drops_what_is_not_wanted),
		cmocka_unit_test(the_first_hit_after_a_sweep_is_told),
		cmocka_unit_test(
			what_was_read_before_a_removal_does_not_come_back),
		cmocka_unit_test(a_tier_that_holds_nothing_misses),
		cmocka_unit_test(references_move_between_threads_that_end),
		cmocka_unit_test(putting_leaves_hits_the_quick_way),
		cmocka_unit_test(a_marked_entry_is_found_the_quick_way),
		cmocka_unit_test(a_blob_outlives_its_memory_tier),
		cmocka_unit_test(one_blob_may_be_in_several_tiers),
		cmocka_unit_test(slots_of_ended_threads_are_used_again),
		cmocka_unit_test(a_stopped_reader_does_not_make_memory_grow),
		cmocka_unit_test(garbage_has_a_limit_without_a_bound),
		cmocka_unit_test(many_threads_get_put_and_remove),
		cmocka_unit_test(one_leads_and_the_others_wait),
		cmocka_unit_test(failures_reach_everyone_who_waits),
		cmocka_unit_test(who_leads_alone_is_followed_by_nobody),
		cmocka_unit_test(an_open_flight_does_not_count_as_led),
		cmocka_unit_test(only_the_very_value_is_discarded),
		cmocka_unit_test(failures_are_kept_by_policy),
		cmocka_unit_test(a_kept_failure_ends),
		cmocka_unit_test(kept_failures_have_a_bound),
		cmocka_unit_test(forgetting_a_failure_removes_no_value),
		cmocka_unit_test(what_cannot_be_kept_is_told),
		cmocka_unit_test(equal_digests_never_share_a_flight),
		cmocka_unit_test(builds_that_need_each_other_do_not_wait),
#ifdef HAS_VANISHING_THREADS
		cmocka_unit_test(slots_of_the_dead_are_reclaimed),
		cmocka_unit_test(a_thread_in_a_dead_ones_place_keeps_its_pin),
#endif
#ifdef HAS_FORKS
#ifndef NDEBUG
		cmocka_unit_test(pins_do_not_nest),
#endif
		cmocka_unit_test(fork_resets_slots),
		cmocka_unit_test(
			a_child_frees_no_handle_of_threads_it_does_not_have),
		cmocka_unit_test(a_forked_child_can_free),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
