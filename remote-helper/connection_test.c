/* SPDX-License-Identifier: MIT */

/* What programs that read slowly, or nothing, can make the helper hold. */

#include "harness/harness.h"

#include "whole_test.h"

#define KIB	   ((size_t)1 << 10)
#define MIB	   ((size_t)1 << 20)
#define BOUND	   (4 * MIB) /* of all that waits to be read */
#define PART	   (BOUND / CONNECTION_OUT_PART)
#define ITEM_BYTES (KIB + 192) /* the most that is around a value */

static int set_up(void **state)
{
	scripted_reset();
	whole_begin("http://0#timeout=60000", BOUND);
	return 0;
}

static int tear_down(void **state)
{
	whole_end();
	return 0;
}

/* ---- Bounds --------------------------------------------------------------- */

/* However many it asked for together, before the first came. */
static void what_a_program_leaves_unread_is_bounded(void **state)
{
	enum { N = 200 };
	struct program mute = program_begin();
	unsigned n_later;

	for (unsigned i = 0; i < N; i++)
		scripted_keep_sized(&scripted[0], i, 100 * KIB);
	scripted[0].ms = 30;
	program_get(&mute, 0, N, WHOLE_LONG_MS);
	whole_await_servers();
	assert_int_equal(scripted[0].n_gets, N);
	assert_in_range(mute.connection->out_bytes, PART / 2, PART + 8 * KIB);
	assert_in_range(whole.out_bytes, 1, PART);
	assert_true(whole.fetches.memory.bytes <= BOUND);
	program_read_until(&mute, N);
	assert_in_range(mute.n_items, 5, 20);
	assert_int_equal(mute.n_items + mute.n_late, N);
	assert_int_equal(whole.n_no_room, mute.n_late);
	assert_int_equal(whole.out_bytes, 0);
	/* What there was no room for waits to be asked for again. */
	scripted[0].n_gets = 0;
	n_later = mute.n_items;
	program_get(&mute, N - 10, 10, WHOLE_LONG_MS);
	program_read_until(&mute, N + 10);
	assert_int_equal(mute.n_items, n_later + 10);
	assert_int_equal(scripted[0].n_gets, 0);
	program_end(&mute);
}

static void what_all_programs_leave_unread_is_bounded(void **state)
{
	enum { N = 40, EACH = 12 };
	struct program mutes[N];

	for (unsigned i = 0; i < N * EACH; i++)
		scripted_keep_sized(&scripted[0], i, 80 * KIB);
	scripted[0].ms = 30;
	for (unsigned i = 0; i < N; i++) {
		mutes[i] = program_begin();
		program_get(&mutes[i], i * EACH, EACH, WHOLE_LONG_MS);
	}
	whole_await_servers();
	assert_in_range(whole.out_bytes, BOUND / 2, BOUND + N * KIB);
	for (unsigned i = 0; i < N; i++) {
		program_read_until(&mutes[i], EACH);
		assert_int_equal(mutes[i].n_items + mutes[i].n_late, EACH);
		program_end(&mutes[i]);
	}
	assert_int_equal(whole.out_bytes, 0);
}

static void what_many_wait_for_is_there_once(void **state)
{
	enum { N = 30 };
	struct program programs[N];

	scripted_keep_sized(&scripted[0], 1, 3 * MIB);
	scripted[0].ms = 30;
	for (unsigned i = 0; i < N; i++)
		programs[i] = program_begin();
	for (unsigned i = 0; i < N; i++)
		program_get(&programs[i], 1, 1, WHOLE_LONG_MS);
	whole_await_servers();
	assert_in_range(whole.out_bytes, 3 * MIB, 3 * MIB + ITEM_BYTES);
	for (unsigned i = 0; i < N; i++) {
		program_read_until(&programs[i], 1);
		assert_int_equal(programs[i].n_items, 1);
		program_end(&programs[i]);
	}
	assert_int_equal(scripted[0].n_gets, 1);
}

static void an_item_beyond_all_bounds_is_given_where_nothing_waits(void **state)
{
	struct program program = program_begin();

	scripted_keep_sized(&scripted[0], 1, 2 * BOUND);
	program_get(&program, 1, 1, WHOLE_LONG_MS);
	whole_await_servers();
	assert_true(whole.out_bytes > BOUND);
	program_read_until(&program, 1);
	assert_int_equal(program.n_items, 1);
	program_end(&program);
}

/* What has begun to be sent is there in spite of those that read nothing. */
static void small_answers_are_given_whatever_waits_elsewhere(void **state)
{
	struct program mute = program_begin(), other = program_begin();

	scripted_keep_sized(&scripted[0], 1, 2 * BOUND);
	scripted_keep_sized(&scripted[0], 2, CONNECTION_OUT_FIRST - 4 * KIB);
	program_get(&mute, 1, 1, WHOLE_LONG_MS);
	whole_await_servers();
	assert_true(whole.out_bytes > BOUND);
	for (unsigned i = 0; i < 5; i++) {
		program_get(&other, 2, 1, WHOLE_LONG_MS);
		program_read_until(&other, i + 1);
	}
	assert_int_equal(other.n_items, 5);
	program_end(&mute);
	program_end(&other);
}

/* ---- Requests that have to wait ------------------------------------------- */

/* Nor are servers asked for them; they go on when there is room. */
static void requests_of_who_reads_nothing_wait(void **state)
{
	enum { N = 1500 }; /* more than may be without an answer */
	struct program program = program_begin();

	scripted_keep_sized(&scripted[0], 0, 2 * CONNECTION_OUT_BYTES_MAX);
	program_get(&program, 0, 1, WHOLE_LONG_MS);
	whole_await_servers();
	assert_true(program.connection->out_bytes > CONNECTION_OUT_BYTES_MAX);
	program_get(&program, 1, N, WHOLE_LONG_MS);
	whole_run_ms(20);
	assert_int_equal(scripted[0].n_gets, 1);
	program_read_until(&program, 1 + N);
	assert_int_equal(program.n_items, 1);
	assert_int_equal(scripted[0].n_gets, 1 + N);
	program_end(&program);
}

/* What has come already is not looked at either. */
static void requests_that_came_together_are_looked_at_as_there_is_room(
	void **state)
{
	enum { N = 70 }; /* of one piece that is read */
	struct program program = program_begin();
	uint8_t name[KI_REMOTE_NAME_BYTES];

	scripted_keep_sized(&scripted[0], 0,
			    CONNECTION_OUT_BYTES_MAX + 400 * KIB);
	scripted_name(0, name);
	fetches_prefetch(&whole.fetches, name, 1);
	whole_await_servers();
	program_get(&program, 0, 1 + N, WHOLE_LONG_MS);
	whole_run_ms(20);
	assert_true(program.connection->out_bytes > CONNECTION_OUT_BYTES_MAX);
	assert_int_equal(scripted[0].n_gets, 1);
	program_read_until(&program, 1 + N);
	assert_int_equal(program.n_items, 1);
	assert_int_equal(scripted[0].n_gets, 1 + N);
	program_end(&program);
}

/* With so many requests without an answer nothing is read of it, and still it is
   noticed that it is gone. */
static void who_is_gone_is_noticed_whatever_it_waits_for(void **state)
{
	struct program program = program_begin();
	unsigned n = whole.n_connections;

	scripted[0].ms = WHOLE_LONG_MS;
	program_get(&program, 0, CONNECTION_PENDING_MAX, WHOLE_LONG_MS);
	while (program.connection->n_pending < CONNECTION_PENDING_MAX)
		whole_run_ms(1);
	assert_int_equal(whole.n_connections, n);
	program_end(&program);
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	static const struct CMUnitTest tests[] = {
		ROW(what_a_program_leaves_unread_is_bounded),
		ROW(what_all_programs_leave_unread_is_bounded),
		ROW(what_many_wait_for_is_there_once),
		ROW(an_item_beyond_all_bounds_is_given_where_nothing_waits),
		ROW(small_answers_are_given_whatever_waits_elsewhere),
		ROW(requests_of_who_reads_nothing_wait),
		ROW(requests_that_came_together_are_looked_at_as_there_is_room),
		ROW(who_is_gone_is_noticed_whatever_it_waits_for),
	};
#undef ROW

	return cmocka_run_group_tests(tests, NULL, NULL);
}
