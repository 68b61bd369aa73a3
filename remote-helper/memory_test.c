/* SPDX-License-Identifier: MIT */

/* Memory, what was refused, and the table by names that both are made of. */

#include "harness/harness.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "memory.h"
#include "refused.h"

#define S ((uint64_t)1000000000)

static void name_of(unsigned number, uint8_t out[KI_REMOTE_NAME_BYTES])
{
	ki_blake2b(&number, sizeof(number), out);
}

static void put(struct memory *memory, unsigned number, size_t size,
		int is_served, uint64_t now_ns)
{
	struct item *item = item_new(malloc(size), size);
	uint8_t name[KI_REMOTE_NAME_BYTES];

	name_of(number, name);
	memory_put(memory, name, 0, item, is_served, now_ns);
	item_unref(item);
}

static struct memory_item *get(struct memory *memory, unsigned number)
{
	uint8_t name[KI_REMOTE_NAME_BYTES];

	name_of(number, name);
	return memory_get(memory, name);
}

static void it_stays_within_its_bound(void **state)
{
	struct memory memory;

	memory_init(&memory, 1000);
	for (unsigned i = 0; i < 100; i++) {
		put(&memory, i, 90 + i % 7, 0, i);
		assert_true(memory.bytes <= 1000);
		assert_non_null(get(&memory, i));
	}
	assert_null(get(&memory, 50));
	put(&memory, 1000, 1001, 0, 100);
	assert_null(get(&memory, 1000));
	assert_non_null(get(&memory, 99));
	memory_fini(&memory);
}

static void what_was_handed_out_goes_first(void **state)
{
	struct memory memory;

	memory_init(&memory, 1000);
	for (unsigned i = 0; i < 10; i++)
		put(&memory, i, 100, 0, i);
	memory_serve(&memory, get(&memory, 7), 20);
	put(&memory, 11, 100, 0, 21);
	assert_null(get(&memory, 7));
	assert_non_null(get(&memory, 0));
	assert_int_equal(memory.n_evicted, 0);
	put(&memory, 12, 100, 0, 22);
	assert_null(get(&memory, 0));
	assert_int_equal(memory.n_evicted, 1);
	memory_fini(&memory);
}

static void there_is_room_until_three_quarters_wait_to_be_asked_for(
	void **state)
{
	struct memory memory;

	memory_init(&memory, 1000);
	for (unsigned i = 0; i < 7; i++)
		put(&memory, i, 100, 0, i);
	assert_int_equal(memory_room(&memory), 50);
	put(&memory, 7, 100, 0, 8);
	assert_int_equal(memory_room(&memory), 0);
	memory_serve(&memory, get(&memory, 3), 9);
	assert_int_equal(memory_room(&memory), 50);
	memory_remove(&memory, get(&memory, 3));
	assert_int_equal(memory.bytes, 700);
	assert_int_equal(memory.unserved_bytes, 700);
	memory_fini(&memory);
}

static void what_is_set_aside_counts_and_only_what_was_served_goes_for_it(
	void **state)
{
	struct memory memory;

	memory_init(&memory, 1000);
	for (unsigned i = 0; i < 10; i++)
		put(&memory, i, 100, i >= 4, i);
	assert_int_equal(memory_room(&memory), 350);
	memory_set_aside(&memory, 350);
	assert_int_equal(memory_room(&memory), 0);
	assert_int_equal(memory.bytes, 600);
	assert_int_equal(memory.n_evicted, 0);
	put(&memory, 10, 651, 0, 10); /* there would never be room */
	assert_null(get(&memory, 10));
	memory_give_back(&memory, 350);
	put(&memory, 11, 350, 0, 11);
	assert_int_equal(memory.bytes, 950);
	assert_int_equal(memory.n_evicted, 0);
	memory_fini(&memory);
}

static void nothing_stays_for_long(void **state)
{
	struct memory memory;

	memory_init(&memory, 1000);
	put(&memory, 1, 100, 1, 0);
	put(&memory, 2, 100, 0, 0);
	memory_sweep(&memory, MEMORY_SERVED_S * S);
	assert_non_null(get(&memory, 1));
	memory_sweep(&memory, MEMORY_SERVED_S * S + 1);
	assert_null(get(&memory, 1));
	assert_non_null(get(&memory, 2));
	memory_sweep(&memory, MEMORY_UNSERVED_S * S + 1);
	assert_null(get(&memory, 2));
	assert_int_equal(memory.bytes, 0);
	memory_fini(&memory);
}

static void the_same_name_again_replaces(void **state)
{
	struct memory memory;

	memory_init(&memory, 1000);
	put(&memory, 1, 100, 0, 0);
	put(&memory, 1, 250, 1, 0);
	assert_int_equal(memory.bytes, 250);
	assert_int_equal(memory.unserved_bytes, 0);
	assert_int_equal(memory.names.n, 1);
	memory_fini(&memory);
}

/* ---- Names ---------------------------------------------------------------- */

static void names_are_found_among_thousands(void **state)
{
	enum { N = 5000 };
	static struct name_link links[N], twins[N];
	uint8_t name[KI_REMOTE_NAME_BYTES];
	struct names names = { 0 };

	for (unsigned i = 0; i < N; i++) {
		name_of(i, name);
		assert_true(names_add(&names, &links[i], name));
		assert_true(names_add(&names, &twins[i], name));
	}
	for (unsigned i = 0; i < N; i += 2)
		names_remove(&names, &links[i]);
	for (unsigned i = 0; i < N; i++) {
		struct name_link *link;

		name_of(i, name);
		link = names_find(&names, name);
		assert_ptr_equal(link, &twins[i]);
		assert_ptr_equal(names_next(link), i % 2 ? &links[i] : NULL);
	}
	name_of(N, name);
	assert_null(names_find(&names, name));
	assert_int_equal(names.n, N + N / 2);
	names_fini(&names);
	assert_null(names_any(&names));
}

/* ---- Refused -------------------------------------------------------------- */

static void what_was_refused_is_known_by_level(void **state)
{
	uint8_t name[KI_REMOTE_NAME_BYTES];
	struct refused refused;

	refused_init(&refused);
	name_of(1, name);
	refused_add(&refused, name, 0);
	refused_add(&refused, name, 2);
	assert_true(refused_has(&refused, name, 0));
	assert_false(refused_has(&refused, name, 1));
	refused_forget(&refused, name, 0);
	refused_forget(&refused, name, 1);
	assert_false(refused_has(&refused, name, 0));
	assert_true(refused_has(&refused, name, 2));
	refused_forget(&refused, name, 2);
	assert_int_equal(refused.names.n, 0);
	refused_fini(&refused);
}

static void of_what_was_refused_the_latest_are_remembered(void **state)
{
	uint8_t name[KI_REMOTE_NAME_BYTES];
	struct refused refused;

	refused_init(&refused);
	for (unsigned i = 0; i <= REFUSED_MAX; i++) {
		name_of(i, name);
		refused_add(&refused, name, 0);
	}
	assert_int_equal(refused.names.n, REFUSED_MAX);
	assert_true(refused_has(&refused, name, 0));
	name_of(0, name);
	assert_false(refused_has(&refused, name, 0));
	refused_fini(&refused);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_stays_within_its_bound),
		cmocka_unit_test(what_was_handed_out_goes_first),
		cmocka_unit_test(
			there_is_room_until_three_quarters_wait_to_be_asked_for),
		cmocka_unit_test(
			what_is_set_aside_counts_and_only_what_was_served_goes_for_it),
		cmocka_unit_test(nothing_stays_for_long),
		cmocka_unit_test(the_same_name_again_replaces),
		cmocka_unit_test(names_are_found_among_thousands),
		cmocka_unit_test(what_was_refused_is_known_by_level),
		cmocka_unit_test(of_what_was_refused_the_latest_are_remembered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
