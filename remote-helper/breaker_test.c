/* SPDX-License-Identifier: MIT */

#include "harness/harness.h"

#include "breaker.h"

#define MS   ((uint64_t)1000000)
#define HALF (UINT32_MAX / 2)

/* A breaker and the time, which only the test moves. */
struct bench {
	struct breaker breaker;
	uint64_t now_ns;
};

static void note(struct bench *bench, enum breaker_answer answer)
{
	breaker_note(&bench->breaker, answer, bench->now_ns, 0);
}

static void open_it(struct bench *bench)
{
	for (int i = 0; i < BREAKER_FAULTS; i++)
		note(bench, BREAKER_FAULT);
	assert_int_equal(bench->breaker.state, BREAKER_OPEN);
}

/* On to the moment when a probe is due. */
static void wait_for_probe(struct bench *bench)
{
	bench->now_ns = bench->breaker.until_ns;
	assert_true(breaker_probes(&bench->breaker, bench->now_ns));
}

static void three_faults_in_a_row_open_it(void **state)
{
	struct bench bench = { .now_ns = 5 };

	for (int i = 0; i < 10; i++) {
		note(&bench, BREAKER_FAULT);
		note(&bench, BREAKER_FAULT);
		assert_true(breaker_lets(&bench.breaker, 1));
		note(&bench, BREAKER_GOOD);
	}
	assert_int_equal(breaker_wait_ms(&bench.breaker, bench.now_ns), 0);
	open_it(&bench);
	assert_false(breaker_lets(&bench.breaker, 1));
	assert_false(breaker_lets(&bench.breaker, 0));
	assert_int_equal(bench.breaker.n_opened, 1);
}

static void the_first_wait_is_a_second_and_each_next_twice_as_long(void **state)
{
	uint64_t expected_ms = BREAKER_WAIT_MS;
	struct bench bench = { .now_ns = 1 };

	open_it(&bench);
	for (int i = 0; i < 12; i++) {
		uint32_t ms = breaker_wait_ms(&bench.breaker, bench.now_ns);

		assert_true(ms >= expected_ms * 3 / 4);
		assert_true(ms <= expected_ms * 5 / 4 + 1);
		wait_for_probe(&bench);
		breaker_probed(&bench.breaker, BREAKER_FAULT, bench.now_ns,
			       (uint32_t)i * 0x10000001u);
		expected_ms *= 2;
		if (expected_ms > BREAKER_WAIT_MS_MAX)
			expected_ms = BREAKER_WAIT_MS_MAX;
	}
	assert_int_equal(bench.breaker.n_opened, 1);
}

static void a_fleet_does_not_come_back_in_step(void **state)
{
	static const uint32_t waits_ms[] = { 1000, 32000, 60000 };

	for (size_t row = 0; row < 3; row++) {
		const uint32_t wait_ms = waits_ms[row];
		uint32_t least = UINT32_MAX, most = 0;

		for (uint32_t i = 0; i < 64; i++) {
			struct breaker breaker = { .next_wait_ms = wait_ms };
			uint32_t ms;

			breaker_open(&breaker, BREAKER_FAULT, 0,
				     i * 0x9e3779b9u);
			ms = breaker_wait_ms(&breaker, 0);
			least = ms < least ? ms : least;
			most = ms > most ? ms : most;
		}
		assert_true(least >= wait_ms / 4 * 3);
		assert_true(most <= wait_ms / 4 * 5 + 1);
		assert_true(most - least > wait_ms / 10 * 3);
	}
}

static void one_probe_is_under_way_at_a_time(void **state)
{
	struct bench bench = { .now_ns = 1 };

	open_it(&bench);
	assert_false(breaker_probes(&bench.breaker, bench.now_ns));
	assert_false(
		breaker_probes(&bench.breaker, bench.breaker.until_ns - 1));
	wait_for_probe(&bench);
	assert_false(
		breaker_probes(&bench.breaker, bench.now_ns + 100000 * MS));
	assert_false(breaker_lets(&bench.breaker, 1));
	assert_int_equal(breaker_wait_ms(&bench.breaker, bench.now_ns), 1);
	breaker_probed(&bench.breaker, BREAKER_GOOD, bench.now_ns, 0);
	assert_true(breaker_lets(&bench.breaker, 1));
}

static void answers_of_before_change_nothing_while_it_is_open(void **state)
{
	struct bench bench = { .now_ns = 1 };
	uint64_t until_ns;

	open_it(&bench);
	until_ns = bench.breaker.until_ns;
	bench.now_ns += 100 * MS;
	note(&bench, BREAKER_GOOD);
	note(&bench, BREAKER_FAULT);
	assert_int_equal(bench.breaker.state, BREAKER_OPEN);
	assert_int_equal(bench.breaker.until_ns, until_ns);
	breaker_probed(&bench.breaker, BREAKER_GOOD, bench.now_ns, 0);
	assert_int_equal(bench.breaker.state, BREAKER_OPEN);
}

static void what_flaps_is_tried_once_and_waited_for_longer(void **state)
{
	struct bench bench = { .now_ns = 1 };
	uint32_t first_ms, ms;

	open_it(&bench);
	first_ms = breaker_wait_ms(&bench.breaker, bench.now_ns);
	wait_for_probe(&bench);
	breaker_probed(&bench.breaker, BREAKER_GOOD, bench.now_ns, 0);
	note(&bench, BREAKER_FAULT);
	assert_int_equal(bench.breaker.state, BREAKER_OPEN);
	ms = breaker_wait_ms(&bench.breaker, bench.now_ns);
	assert_true(ms > first_ms * 3 / 2);
}

static void what_has_been_well_for_long_begins_at_a_second_again(void **state)
{
	struct bench bench = { .now_ns = 1 };

	open_it(&bench);
	for (int i = 0; i < 4; i++) {
		wait_for_probe(&bench);
		breaker_probed(&bench.breaker, BREAKER_FAULT, bench.now_ns, 0);
	}
	wait_for_probe(&bench);
	breaker_probed(&bench.breaker, BREAKER_GOOD, bench.now_ns, 0);
	for (int i = 0; i < BREAKER_GOOD_AGAIN; i++)
		note(&bench, BREAKER_GOOD);
	open_it(&bench);
	assert_true(breaker_wait_ms(&bench.breaker, bench.now_ns) <= 1251);
}

static void what_is_only_late_is_asked_by_who_does_not_wait(void **state)
{
	struct bench bench = { .now_ns = 1 };

	for (int i = 0; i < BREAKER_FAULTS; i++)
		note(&bench, BREAKER_LATE);
	assert_int_equal(bench.breaker.state, BREAKER_OPEN);
	assert_false(breaker_lets(&bench.breaker, 1));
	assert_true(breaker_lets(&bench.breaker, 0));
	note(&bench, BREAKER_FAULT);
	assert_false(breaker_lets(&bench.breaker, 0));
}

static void a_fault_among_late_answers_is_more_than_lateness(void **state)
{
	static const enum breaker_answer rows[][BREAKER_FAULTS] = {
		{ BREAKER_FAULT, BREAKER_LATE, BREAKER_LATE },
		{ BREAKER_LATE, BREAKER_FAULT, BREAKER_LATE },
		{ BREAKER_LATE, BREAKER_LATE, BREAKER_FAULT },
	};

	for (size_t i = 0; i < 3; i++) {
		struct bench bench = { .now_ns = 1 };

		for (int j = 0; j < BREAKER_FAULTS; j++)
			note(&bench, rows[i][j]);
		assert_int_equal(bench.breaker.state, BREAKER_OPEN);
		assert_false(breaker_lets(&bench.breaker, 0));
	}
}

/* Nothing is known of the source, and another probe comes. */
static void what_was_never_asked_says_nothing_and_gives_the_probe_back(
	void **state)
{
	struct bench bench = { .now_ns = 1 };
	uint32_t next_wait_ms;

	note(&bench, BREAKER_FAULT);
	note(&bench, BREAKER_FAULT);
	note(&bench, BREAKER_UNASKED);
	assert_int_equal(bench.breaker.state, BREAKER_CLOSED);
	note(&bench, BREAKER_FAULT);
	assert_int_equal(bench.breaker.state, BREAKER_OPEN);
	next_wait_ms = bench.breaker.next_wait_ms;
	for (int i = 0; i < 5; i++) {
		wait_for_probe(&bench);
		breaker_probed(&bench.breaker, BREAKER_UNASKED, bench.now_ns,
			       HALF);
		assert_int_equal(bench.breaker.state, BREAKER_OPEN);
		assert_int_equal(bench.breaker.next_wait_ms, next_wait_ms);
		assert_in_range(breaker_wait_ms(&bench.breaker, bench.now_ns),
				BREAKER_WAIT_MS * 3 / 4,
				BREAKER_WAIT_MS * 5 / 4 + 1);
	}
	wait_for_probe(&bench);
	breaker_probed(&bench.breaker, BREAKER_GOOD, bench.now_ns, 0);
	assert_int_equal(bench.breaker.state, BREAKER_CLOSED);
}

/* The clock is monotonic, but a machine may have slept. */
static void a_clock_that_jumps_makes_a_probe_due_and_no_more(void **state)
{
	struct bench bench = { .now_ns = 1 };

	open_it(&bench);
	bench.now_ns = UINT64_MAX / 2;
	assert_int_equal(breaker_wait_ms(&bench.breaker, bench.now_ns), 1);
	assert_true(breaker_probes(&bench.breaker, bench.now_ns));
	breaker_probed(&bench.breaker, BREAKER_FAULT, bench.now_ns, HALF);
	assert_true(breaker_wait_ms(&bench.breaker, bench.now_ns) <= 2501);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(three_faults_in_a_row_open_it),
		cmocka_unit_test(
			the_first_wait_is_a_second_and_each_next_twice_as_long),
		cmocka_unit_test(a_fleet_does_not_come_back_in_step),
		cmocka_unit_test(one_probe_is_under_way_at_a_time),
		cmocka_unit_test(
			answers_of_before_change_nothing_while_it_is_open),
		cmocka_unit_test(
			what_flaps_is_tried_once_and_waited_for_longer),
		cmocka_unit_test(
			what_has_been_well_for_long_begins_at_a_second_again),
		cmocka_unit_test(
			what_is_only_late_is_asked_by_who_does_not_wait),
		cmocka_unit_test(
			a_fault_among_late_answers_is_more_than_lateness),
		cmocka_unit_test(
			what_was_never_asked_says_nothing_and_gives_the_probe_back),
		cmocka_unit_test(
			a_clock_that_jumps_makes_a_probe_due_and_no_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
