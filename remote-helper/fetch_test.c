/* SPDX-License-Identifier: MIT */

/* Looking up: levels, shards, deadlines, breakers, verdicts and prefetch, before
   servers that do what the test says. */

#include "harness/harness.h"

#include <stdlib.h>
#include <string.h>

#include "scripted_test.h"
#include "trial.h"

#define LONG_MS 5000

/* Run the loop until something is so. */
#define AWAIT(stage, condition)                                                \
	for (int n_ms = 0; !(condition); n_ms++) {                             \
		assert_in_range(n_ms, 0, HARNESS_HANG_S * 1000);               \
		stage_run_ms(stage, 1);                                        \
	}

static void the_nearest_level_that_has_it_gives_it(void **state)
{
	struct stage stage;
	struct look_up look;

	stage_begin(&stage, "http://0 http://1 http://2");
	scripted_keep(&scripted[1], 1);
	scripted_keep(&scripted[2], 1);
	scripted_keep(&scripted[2], 2);
	look = look_up(&stage, 1, LONG_MS);
	assert_true(look.is_hit);
	assert_int_equal(look.level, 1);
	assert_int_equal(scripted[2].n_gets, 0);
	look = look_up(&stage, 2, LONG_MS);
	assert_true(look.is_hit);
	assert_int_equal(look.level, 2);
	look = look_up(&stage, 3, LONG_MS);
	assert_false(look.is_hit);
	assert_int_equal(look.reasons, KI_REMOTE_ABSENT);
	assert_int_equal(look.wait_ms, 0);
	stage_finish(&stage);
}

static void a_fault_is_said_and_the_next_level_is_asked(void **state)
{
	static const struct {
		enum kiln_status status;
		uint32_t reasons;
	} rows[] = {
		{ KILN_MISS, KI_REMOTE_ABSENT },
		{ KILN_E_TOO_LARGE, KI_REMOTE_ABSENT },
		{ KILN_E_IO, KI_REMOTE_FAULT },
		{ KILN_E_FORMAT, KI_REMOTE_FAULT },
		{ KILN_E_TIMEOUT, KI_REMOTE_LATE },
		{ KILN_E_OWNER, KI_REMOTE_FAULT | KI_REMOTE_REFUSED },
		{ KILN_E_UNSUPPORTED, KI_REMOTE_FAULT },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct stage stage;
		struct look_up look;

		stage_begin(&stage, "http://0 http://1");
		scripted[0].fails = rows[i].status;
		scripted_keep(&scripted[1], 1);
		look = look_up(&stage, 1, LONG_MS);
		assert_true(look.is_hit);
		look = look_up(&stage, 2, LONG_MS);
		assert_int_equal(look.reasons,
				 rows[i].reasons | KI_REMOTE_ABSENT);
		stage_finish(&stage);
	}
}

static void all_who_ask_for_a_name_share_a_request(void **state)
{
	struct look_up looks[50];
	struct stage stage;

	stage_begin(&stage, "http://0");
	scripted_keep(&scripted[0], 1);
	scripted[0].ms = 5;
	for (int i = 0; i < 50; i++)
		look_up_begin(&stage, &looks[i], 1, LONG_MS, 0);
	stage_run_until(&stage, &looks[49].is_done);
	for (int i = 0; i < 50; i++)
		assert_true(looks[i].is_hit);
	assert_int_equal(scripted[0].n_gets, 1);
	stage_finish(&stage);
}

static void who_waits_waits_no_longer_than_it_said(void **state)
{
	struct look_up look, other;
	struct stage stage;

	stage_begin(&stage, "http://0");
	scripted_keep(&scripted[0], 1);
	scripted[0].ms = 100;
	look_up_begin(&stage, &look, 1, 10, 0);
	look_up_begin(&stage, &other, 1, LONG_MS, 0);
	stage_run_until(&stage, &look.is_done);
	assert_false(look.is_hit);
	assert_int_equal(look.reasons, KI_REMOTE_LATE);
	assert_false(other.is_done);
	stage_run_until(&stage, &other.is_done);
	assert_true(other.is_hit);
	assert_int_equal(scripted[0].n_gets, 1);
	stage_finish(&stage);
}

static void what_comes_late_is_kept_for_the_next(void **state)
{
	static const uint32_t waits_ms[] = { 0, 5 };

	for (size_t i = 0; i < 2; i++) {
		struct stage stage;
		struct look_up look;

		stage_begin(&stage, "http://0");
		scripted_keep(&scripted[0], 1);
		scripted[0].ms = 20;
		look = look_up(&stage, 1, waits_ms[i]);
		assert_false(look.is_hit);
		assert_int_equal(look.reasons, KI_REMOTE_LATE);
		assert_int_equal(look.wait_ms, 0);
		stage_run_ms(&stage, 40);
		look = look_up(&stage, 1, 0);
		assert_true(look.is_hit);
		assert_int_equal(scripted[0].n_gets, 1);
		stage_finish(&stage);
	}
}

/* Who leaves in the middle is told nothing. */
static void a_program_may_go_while_it_waits(void **state)
{
	struct stage stage;
	struct look_up look;

	stage_begin(&stage, "http://0");
	scripted_keep(&scripted[0], 1);
	scripted[0].ms = 5;
	look_up_begin(&stage, &look, 1, LONG_MS, 0);
	waiter_leave(&look.waiter);
	waiter_leave(&look.waiter);
	stage_run_ms(&stage, 15);
	assert_false(look.is_done);
	assert_true(look_up(&stage, 1, 0).is_hit);
	stage_finish(&stage);
}

static void the_helper_may_end_while_all_wait(void **state)
{
	struct look_up looks[8];
	struct stage stage;

	stage_begin(&stage, "http://0 http://1");
	scripted[0].ms = 1000;
	for (unsigned i = 0; i < 8; i++)
		look_up_begin(&stage, &looks[i], i, LONG_MS, 0);
	stage_run_ms(&stage, 2);
	sources_close(&stage.sources);
	for (unsigned i = 0; i < 8; i++) {
		assert_true(looks[i].is_done);
		assert_false(looks[i].is_hit);
	}
	assert_int_equal(scripted[1].n_gets, 0);
	stage_finish(&stage);
}

/* ---- Breakers ------------------------------------------------------------- */

static void a_source_that_fails_is_left_alone_and_asked_again(void **state)
{
	struct stage stage;
	struct look_up look;
	unsigned n;

	stage_begin(&stage, "http://0");
	scripted_keep(&scripted[0], 9);
	scripted[0].fails = KILN_E_IO;
	for (unsigned i = 0; i < BREAKER_FAULTS; i++)
		(void)look_up(&stage, i, LONG_MS);
	n = scripted[0].n_gets;
	look = look_up(&stage, 9, LONG_MS);
	assert_false(look.is_hit);
	assert_int_equal(look.reasons, KI_REMOTE_BROKEN);
	assert_in_range(look.wait_ms, 1, 1251);
	assert_int_equal(scripted[0].n_gets, n);
	scripted[0].fails = KILN_OK;
	AWAIT(&stage,
	      stage.sources.levels[0].sources[0].reads.state == BREAKER_CLOSED);
	assert_int_equal(scripted[0].n_gets, n + 1); /* the probe */
	assert_true(look_up(&stage, 9, LONG_MS).is_hit);
	stage_finish(&stage);
}

static void as_long_as_one_source_is_asked_nobody_is_sent_away(void **state)
{
	struct stage stage;
	struct look_up look;

	stage_begin(&stage, "http://0 http://1");
	scripted[0].fails = KILN_E_IO;
	for (unsigned i = 0; i < BREAKER_FAULTS + 1; i++)
		look = look_up(&stage, i, LONG_MS);
	assert_int_equal(look.reasons, KI_REMOTE_BROKEN | KI_REMOTE_ABSENT);
	assert_int_equal(look.wait_ms, 0);
	stage_finish(&stage);
}

/* S52: slow is not dead, but nobody waits for it. */
static void a_source_that_is_late_is_waited_for_three_times(void **state)
{
	uint8_t name[KI_REMOTE_NAME_BYTES];
	struct stage stage;
	struct look_up look;

	stage_begin(&stage, "http://0");
	scripted_keep(&scripted[0], 9);
	scripted[0].ms = 120;
	for (unsigned i = 0; i < BREAKER_FAULTS; i++) {
		look = look_up(&stage, i, 60);
		assert_int_equal(look.reasons, KI_REMOTE_LATE);
	}
	look = look_up(&stage, 8, LONG_MS);
	assert_int_equal(look.reasons, KI_REMOTE_BROKEN);
	scripted_name(9, name);
	fetches_prefetch(&stage.fetches, name, 1);
	stage_run_ms(&stage, 150);
	assert_true(look_up(&stage, 9, LONG_MS).is_hit);
	stage_finish(&stage);
}

static void who_is_impatient_opens_no_breaker(void **state)
{
	struct stage stage;
	struct look_up look;

	stage_begin(&stage, "http://0");
	scripted[0].ms = 12;
	for (unsigned i = 0; i < 10; i++)
		(void)look_up(&stage, i, 2);
	look = look_up(&stage, 100, LONG_MS);
	assert_int_equal(look.reasons, KI_REMOTE_ABSENT);
	stage_finish(&stage);
}

/* ---- Verdicts (S50, S51) -------------------------------------------------- */

static struct item *judge(struct stage *stage, uint64_t number, unsigned level,
			  enum verdict verdict)
{
	uint8_t name[KI_REMOTE_NAME_BYTES];

	scripted_name(number, name);
	return fetches_verdict(&stage->fetches, name, level, verdict);
}

static void what_was_refused_is_asked_of_the_next_level(void **state)
{
	struct stage stage;
	struct look_up look;
	unsigned n;

	stage_begin(&stage, "http://0 http://1");
	scripted_keep(&scripted[0], 1);
	scripted_keep(&scripted[1], 1);
	assert_int_equal(look_up(&stage, 1, LONG_MS).level, 0);
	assert_null(judge(&stage, 1, 0, VERDICT_DAMAGED));
	look_up_begin(&stage, &look, 1, LONG_MS, 1);
	stage_run_until(&stage, &look.is_done);
	assert_true(look.is_hit);
	assert_int_equal(look.level, 1);
	n = scripted[0].n_gets;
	look = look_up(&stage, 1, LONG_MS);
	assert_int_equal(look.level, 1);
	assert_int_equal(scripted[0].n_gets, n);
	stage_finish(&stage);
}

static void a_source_whose_items_are_damaged_is_left_alone(void **state)
{
	struct stage stage;
	struct look_up look;

	stage_begin(&stage, "http://0");
	for (unsigned i = 0; i < 10; i++)
		scripted_keep(&scripted[0], i);
	for (unsigned i = 0; i < BREAKER_FAULTS; i++) {
		assert_true(look_up(&stage, i, LONG_MS).is_hit);
		(void)judge(&stage, i, 0, VERDICT_DAMAGED);
	}
	look = look_up(&stage, 5, LONG_MS);
	assert_false(look.is_hit);
	assert_int_equal(look.reasons, KI_REMOTE_BROKEN);
	stage_finish(&stage);
}

/* Each is a miss, and what is there is asked for all the same: somebody else may
   have signed the next. */
static void who_has_items_that_nobody_trusted_signed_is_asked_on(void **state)
{
	static const enum verdict rows[] = { VERDICT_UNTRUSTED,
					     VERDICT_UNWANTED };

	for (size_t i = 0; i < 2; i++) {
		struct stage stage;
		const struct figures *figures;

		stage_begin(&stage, "http://0");
		figures = &stage.sources.levels[0].sources[0].figures;
		for (unsigned j = 0; j < 4 * BREAKER_FAULTS; j++) {
			scripted_keep(&scripted[0], j);
			assert_true(look_up(&stage, j, LONG_MS).is_hit);
			assert_null(judge(&stage, j, 0, rows[i]));
			assert_int_equal(look_up(&stage, j, LONG_MS).reasons,
					 KI_REMOTE_FAULT);
		}
		assert_int_equal(figures->counts[FIGURES_REFUSED], 0);
		assert_int_equal(figures->counts[FIGURES_UNSIGNED],
				 i ? 0 : 4 * BREAKER_FAULTS);
		stage_finish(&stage);
	}
}

static void one_good_item_makes_up_for_those_damaged(void **state)
{
	struct stage stage;

	stage_begin(&stage, "http://0");
	for (unsigned i = 0; i < 20; i++)
		scripted_keep(&scripted[0], i);
	for (unsigned i = 0; i < 18; i++) {
		assert_true(look_up(&stage, i, LONG_MS).is_hit);
		(void)judge(&stage, i, 0,
			    i % BREAKER_FAULTS == 2 ? VERDICT_GOOD
						    : VERDICT_DAMAGED);
	}
	assert_true(look_up(&stage, 19, LONG_MS).is_hit);
	stage_finish(&stage);
}

/* A server alone, from the beginning, from memory and after something was refused;
   a level with one before it that is written, or is not. */
static void a_verdict_is_wanted_where_it_changes_something(void **state)
{
	struct look_up look;
	struct stage stage;

	stage_begin(&stage, "http://0");
	for (unsigned i = 1; i < 5; i++)
		scripted_keep(&scripted[0], i);
	assert_false(look_up(&stage, 1, LONG_MS).waiter.wants_verdict);
	(void)look_up(&stage, 4, 0);
	AWAIT(&stage, !stage.fetches.names.n);
	look = look_up(&stage, 4, LONG_MS);
	assert_true(look.is_hit);
	assert_int_equal(stage.fetches.n_from_memory, 1);
	assert_false(look.waiter.wants_verdict);
	(void)judge(&stage, 1, 0, VERDICT_DAMAGED);
	assert_true(look_up(&stage, 2, LONG_MS).waiter.wants_verdict);
	assert_true(look_up(&stage, 4, LONG_MS).waiter.wants_verdict);
	(void)judge(&stage, 2, 0, VERDICT_GOOD);
	assert_false(look_up(&stage, 3, LONG_MS).waiter.wants_verdict);
	stage_finish(&stage);

	stage_begin(&stage, "http://0 http://1");
	scripted_keep(&scripted[0], 1);
	scripted_keep(&scripted[1], 2);
	assert_false(look_up(&stage, 1, LONG_MS).waiter.wants_verdict);
	assert_true(look_up(&stage, 2, LONG_MS).waiter.wants_verdict);
	assert_true(look_up(&stage, 2, LONG_MS).waiter.wants_verdict);
	stage_finish(&stage);

	stage_begin(&stage, "http://0#read-only http://1");
	scripted_keep(&scripted[1], 2);
	assert_false(look_up(&stage, 2, LONG_MS).waiter.wants_verdict);
	stage_finish(&stage);
}

static void a_body_that_is_no_item_of_that_name_goes_to_nobody(void **state)
{
	static const char *const whats[] = { "nothing", "cut", "another's",
					     "noise" };

	for (size_t i = 0; i < 4; i++) {
		struct scripted_item *item, *others;
		struct stage stage;
		struct look_up look;

		print_message("# %s\n", whats[i]);
		stage_begin(&stage, "http://0 http://1");
		scripted_keep(&scripted[0], 1);
		scripted_keep(&scripted[0], 2);
		scripted_keep(&scripted[1], 1);
		item = scripted_find(&scripted[0], 1);
		others = scripted_find(&scripted[0], 2);
		if (i == 0)
			item->size = 0;
		else if (i == 1)
			item->size -= 5;
		else if (i == 2)
			memcpy(item->bytes, others->bytes, item->size);
		else
			memset(item->bytes, 'x', item->size);
		look = look_up(&stage, 1, LONG_MS);
		assert_true(look.is_hit);
		assert_int_equal(look.level, 1);
		assert_int_equal(stage.sources.levels[0]
					 .sources[0]
					 .figures.counts[FIGURES_REFUSED],
				 1);
		stage_finish(&stage);
	}
}

static void a_good_item_of_a_far_level_fills_those_nearer(void **state)
{
	uint8_t name[KI_REMOTE_NAME_BYTES];
	struct stage stage;
	struct item *item;

	stage_begin(&stage, "http://0 http://1#read-only http://2");
	scripted_keep(&scripted[2], 1);
	assert_int_equal(look_up(&stage, 1, LONG_MS).level, 2);
	stage_run_ms(&stage, 5);
	assert_int_equal(scripted[0].n_puts, 0); /* not before it is good */
	item = judge(&stage, 1, 2, VERDICT_GOOD);
	assert_non_null(item);
	scripted_name(1, name);
	uploads_fill(&stage.uploads, name, 2, item);
	stage_run_ms(&stage, 10);
	assert_non_null(scripted_find(&scripted[0], 1));
	assert_null(scripted_find(&scripted[1], 1));
	assert_int_equal(look_up(&stage, 1, LONG_MS).level, 2); /* memory */
	stage_finish(&stage);
}

/* ---- Shards --------------------------------------------------------------- */

static void each_name_is_asked_of_one_shard(void **state)
{
	enum { N = 60 };
	struct stage stage;
	unsigned n = 0;

	stage_begin(&stage, "http://0,http://1,http://2");
	for (unsigned i = 0; i < N; i++)
		(void)look_up(&stage, i, LONG_MS);
	for (int i = 0; i < 3; i++) {
		assert_in_range(scripted[i].n_gets, 5, 40);
		n += scripted[i].n_gets;
	}
	assert_int_equal(n, N);
	stage_finish(&stage);
}

static void a_shard_that_fails_takes_no_other_with_it(void **state)
{
	unsigned n_hits = 0, n_broken = 0;
	struct stage stage;

	stage_begin(&stage, "http://0,http://1");
	for (unsigned i = 0; i < 60; i++)
		for (int j = 0; j < 2; j++)
			scripted_keep(&scripted[j], i);
	scripted[0].fails = KILN_E_IO;
	for (unsigned i = 0; i < 60; i++) {
		struct look_up look = look_up(&stage, i, LONG_MS);

		n_hits += (unsigned)look.is_hit;
		n_broken += look.reasons == KI_REMOTE_BROKEN;
		assert_int_equal(look.wait_ms, 0);
	}
	assert_int_equal(n_hits, scripted[1].n_gets);
	assert_int_equal(n_hits + n_broken + BREAKER_FAULTS, 60);
	stage_finish(&stage);
}

/* ---- Prefetch ------------------------------------------------------------- */

static void prefetch_from(struct stage *stage, unsigned first, unsigned n)
{
	uint8_t *names = malloc((size_t)n * KI_REMOTE_NAME_BYTES);

	for (unsigned i = 0; i < n; i++)
		scripted_name(first + i,
			      names + (size_t)i * KI_REMOTE_NAME_BYTES);
	fetches_prefetch(&stage->fetches, names, n);
	free(names);
}

static void prefetch(struct stage *stage, unsigned n)
{
	prefetch_from(stage, 0, n);
}

static void await_prefetched(struct stage *stage, unsigned n)
{
	AWAIT(stage, stage->fetches.n_prefetched >= n);
}

static void prefetch_begins_with_one_name_and_doubles(void **state)
{
	enum { N = 300 };
	struct stage stage;

	stage_begin(&stage, "http://0");
	for (unsigned i = 0; i < N; i++)
		scripted_keep(&scripted[0], i);
	scripted[0].ms = 1;
	prefetch(&stage, N);
	stage_run_ms(&stage, 0);
	assert_in_range(scripted[0].n_at_once, 1, 2);
	await_prefetched(&stage, N);
	assert_in_range(scripted[0].most_at_once, 32, 64);
	assert_in_range(scripted[0].n_batches, N / 32, 24);
	for (unsigned i = 0; i < N; i++)
		assert_true(look_up(&stage, i, 0).is_hit);
	assert_int_equal(scripted[0].n_gets, N);
	stage_finish(&stage);
}

/* One that is near takes longer than it did; one that is far, than is of use. */
static void prefetch_of_a_slow_server_ends(void **state)
{
	enum { N = 200 };
	static const struct {
		unsigned n_before; /* look-ups, of 1 ms */
		uint32_t ms;
		unsigned n_names; /* or one more, in the other batch */
	} rows[] = {
		{ 5, 70, 1 },
		{ 0, 260, 3 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const unsigned n_names = rows[i].n_names;
		struct stage stage;

		stage_begin(&stage, "http://0");
		scripted[0].ms = 1;
		for (unsigned n = 0; n < rows[i].n_before; n++)
			(void)look_up(&stage, N + n, LONG_MS);
		scripted[0].ms = rows[i].ms;
		prefetch(&stage, N);
		AWAIT(&stage, stage.fetches.n_prefetch_ended);
		assert_in_range(scripted[0].n_gets - rows[i].n_before, n_names,
				n_names + 1);
		assert_int_equal(stage.fetches.n_wanted, 0);
		assert_in_range(stage.fetches.n_prefetch_dropped,
				N - n_names - 1, N - n_names);
		stage_finish(&stage);
	}
}

/* Nobody may wait 100 ms for it, which makes it no bad one. */
static void prefetch_of_a_far_server_brings_all_and_grows(void **state)
{
	enum { N = 30 };
	struct stage stage;

	stage_begin(&stage, "http://0");
	for (unsigned i = 0; i < N; i++)
		scripted_keep(&scripted[0], i);
	scripted[0].ms = 100;
	prefetch(&stage, N);
	await_prefetched(&stage, N);
	assert_int_equal(stage.fetches.n_prefetch_dropped, 0);
	/* Two names together, one of each batch, if it never grew. */
	assert_in_range(scripted[0].n_batches, 1, N / 2 - 1);
	for (unsigned i = 0; i < N; i++)
		assert_true(look_up(&stage, i, 0).is_hit);
	assert_int_equal(scripted[0].n_gets, N);
	stage_finish(&stage);
}

static void prefetch_goes_on_to_the_next_level_in_batches(void **state)
{
	enum { N = 100 };
	struct stage stage;

	stage_begin(&stage, "http://0 http://1");
	for (unsigned i = 0; i < N; i++)
		scripted_keep(&scripted[1], i);
	prefetch(&stage, N);
	await_prefetched(&stage, N);
	assert_in_range(scripted[1].n_batches, 1, N / 3);
	stage_finish(&stage);
}

static void who_asks_for_a_name_on_its_way_waits_for_it(void **state)
{
	struct stage stage;
	struct look_up look;

	stage_begin(&stage, "http://0");
	for (unsigned i = 0; i < 4; i++)
		scripted_keep(&scripted[0], i);
	scripted[0].ms = 10;
	prefetch(&stage, 4);
	look = look_up(&stage, 0, LONG_MS);
	assert_true(look.is_hit);
	assert_int_equal(stage.fetches.n_joined, 1);
	look = look_up(&stage, 3, LONG_MS); /* not on its way yet */
	assert_true(look.is_hit);
	stage_run_ms(&stage, 60);
	assert_int_equal(scripted[0].n_gets, 4);
	stage_finish(&stage);
}

static void prefetch_until_it_waits(struct stage *stage, unsigned n)
{
	prefetch(stage, n);
	AWAIT(stage, !stage->fetches.n_batches);
	assert_true(stage->fetches.n_wanted > 0);
}

static void prefetch_waits_while_memory_is_full(void **state)
{
	enum { N = 64 };
	struct stage stage;
	unsigned n_gets;

	stage_begin(&stage, "http://0");
	for (unsigned i = 0; i < N; i++)
		scripted_keep(&scripted[0], i);
	stage.fetches.memory.bytes_max = 6000;
	prefetch_until_it_waits(&stage, N);
	n_gets = scripted[0].n_gets;
	assert_in_range(n_gets, 5, N - 1);
	for (unsigned i = 0; i < N; i++)
		assert_true(look_up(&stage, i, LONG_MS).is_hit);
	assert_true(stage.fetches.memory.bytes <= 6000);
	stage_finish(&stage);
}

/* Nothing that nobody has taken yet goes for what comes, nor is there more on its
   way than there is room for. */
static void batches_bring_no_more_than_there_is_room_for(void **state)
{
	enum { N = 200, MAX = 400 << 10 };
	struct stage stage;
	struct memory *memory = &stage.fetches.memory;

	stage_begin(&stage, "http://0");
	for (unsigned i = 0; i < N; i++)
		scripted_keep_sized(&scripted[0], i, 10 << 10);
	scripted[0].ms = 2;
	memory->bytes_max = MAX;
	prefetch_until_it_waits(&stage, N);
	assert_int_equal(memory->n_evicted, 0);
	assert_in_range(memory->unserved_bytes, MAX / 2, MAX / 4 * 3);
	assert_in_range(scripted[0].most_bytes_at_once, 20 << 10, MAX / 4 * 3);
	for (unsigned i = 0; i < N; i++) {
		assert_true(look_up(&stage, i, LONG_MS).is_hit);
		assert_true(memory->bytes + scripted[0].bytes_at_once <= MAX);
		assert_int_equal(memory->n_evicted, 0);
	}
	assert_int_equal(scripted[0].n_gets, N);
	assert_int_equal(memory->aside, 0);
	stage_finish(&stage);
}

static void an_item_beyond_its_share_waits_for_who_asks_for_it(void **state)
{
	enum { N = 60, MAX = 200 << 10, LARGE = N / 2 };
	struct stage stage;
	struct look_up look;

	stage_begin(&stage, "http://0");
	for (unsigned i = 0; i < N; i++)
		scripted_keep_sized(&scripted[0], i,
				    i == LARGE ? 120 << 10 : 100);
	scripted[0].ms = 5;
	stage.fetches.memory.bytes_max = MAX;
	prefetch(&stage, N);
	await_prefetched(&stage, N - 1);
	assert_in_range(scripted[0].most_bytes_at_once, 1, MAX);
	assert_int_equal(stage.fetches.n_prefetch_dropped, 1);
	assert_true(look_up(&stage, LARGE, LONG_MS).is_hit);

	/* Asked for while it is on its way with others. */
	for (unsigned i = 1000; i < 1000 + N; i++)
		scripted_keep_sized(&scripted[0], i, 120 << 10);
	prefetch_from(&stage, 1000, N);
	look_up_begin(&stage, &look, 1000, LONG_MS, 0);
	stage_run_until(&stage, &look.is_done);
	assert_true(look.is_hit);
	stage_finish(&stage);
}

/* Programs have asked for as many as there may be, or nearly. */
static void prefetch_waits_until_there_is_room_for_fetches(void **state)
{
	enum { N = 100 };
	static struct look_up looks[FETCHES_MAX];
	struct stage stage;

	for (unsigned n_left = 0; n_left < 3; n_left++) {
		stage_begin(&stage, "http://0");
		for (unsigned i = 0; i < N; i++)
			scripted_keep(&scripted[0], i);
		scripted[0].ms = 10;
		for (unsigned i = n_left; i < FETCHES_MAX; i++)
			look_up_begin(&stage, &looks[i], N + i, LONG_MS, 0);
		prefetch(&stage, N);
		assert_int_equal(stage.fetches.names.n, FETCHES_MAX - n_left);
		await_prefetched(&stage, N);
		assert_int_equal(stage.fetches.n_prefetch_dropped, 0);
		assert_int_equal(stage.fetches.n_prefetch_ended, 0);
		stage_finish(&stage);
	}
}

/* A server that is near is slow while all that a program asks for is under way, and
   no longer. */
static void prefetch_outlasts_what_programs_ask_for(void **state)
{
	enum { N = 100, N_BEFORE = 5 };
	static const unsigned rows[] = { FETCHES_MAX, FETCHES_MAX / 2, 200 };
	static struct look_up looks[FETCHES_MAX];
	struct stage stage;

	for (size_t row = 0; row < sizeof(rows) / sizeof(*rows); row++) {
		stage_begin(&stage, "http://0");
		for (unsigned i = 0; i < N; i++)
			scripted_keep(&scripted[0], i);
		scripted[0].ms = 1;
		for (unsigned i = 0; i < N_BEFORE; i++)
			(void)look_up(&stage, N + i, LONG_MS);
		for (unsigned i = 0; i < rows[row]; i++) {
			scripted[0].ms = i < rows[row] / 2 ? 60 : 200;
			look_up_begin(&stage, &looks[i], N + N_BEFORE + i,
				      LONG_MS, 0);
		}
		scripted[0].ms = 60;
		prefetch(&stage, N);
		AWAIT(&stage, looks[rows[row] - 1].is_done);
		scripted[0].ms = 1;
		await_prefetched(&stage, N);
		assert_int_equal(stage.fetches.n_prefetch_dropped, 0);
		assert_int_equal(stage.fetches.n_prefetch_ended, 0);
		stage_finish(&stage);
	}
}

/* The places that become free are theirs. */
static void programs_find_room_before_prefetch_does(void **state)
{
	enum { N = 100, N_FAST = 10 };
	static struct look_up looks[FETCHES_MAX + N_FAST];
	struct stage stage;

	stage_begin(&stage, "http://0");
	scripted[0].ms = 5;
	for (unsigned i = 0; i < FETCHES_MAX; i++) {
		if (i == N_FAST)
			scripted[0].ms = 40;
		look_up_begin(&stage, &looks[i], N + i, LONG_MS, 0);
	}
	prefetch(&stage, N);
	AWAIT(&stage, looks[N_FAST - 1].is_done);
	for (unsigned i = FETCHES_MAX; i < FETCHES_MAX + N_FAST; i++) {
		look_up_begin(&stage, &looks[i], N + i, LONG_MS, 0);
		assert_false(looks[i].is_done);
	}
	AWAIT(&stage, looks[FETCHES_MAX + N_FAST - 1].is_done);
	for (unsigned i = 0; i < FETCHES_MAX + N_FAST; i++)
		assert_int_equal(looks[i].reasons, KI_REMOTE_ABSENT);
	stage_finish(&stage);
}

/* All of it, though no batch is ever asked. */
static void prefetch_from_nobody_is_dropped(void **state)
{
	enum { N = 2000 };
	struct stage stage;

	stage_begin(&stage, "http://0");
	breaker_open(&stage.sources.levels[0].sources[0].reads, BREAKER_FAULT,
		     loop_now_ns(stage.loop), 0);
	prefetch(&stage, N);
	assert_int_equal(scripted[0].n_gets, 0);
	assert_int_equal(stage.fetches.n_wanted, 0);
	assert_int_equal(stage.fetches.n_batches, 0);
	stage_finish(&stage);
}

/* ---- Trials --------------------------------------------------------------- */

static void told(void *arg, enum kiln_status status, const char *json,
		 size_t size)
{
	fail_msg("told who has gone");
}

/* One source after the other goes, and with the last the trial. */
static void the_helper_may_end_while_sources_are_tried(void **state)
{
	struct stage stage;
	struct trial *trial;

	stage_begin(&stage, "http://0 http://1 http://2,http://3");
	for (int i = 0; i < 4; i++)
		scripted[i].ms = 1000;
	assert_int_equal(trial_begin(&stage.sources, told, NULL, &trial),
			 KILN_OK);
	trial_forget(trial);
	stage_finish(&stage);
}

static int set_up(void **state)
{
	stage_is_stepped = 1;
	scripted_reset();
	return 0;
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup(test, set_up)
	static const struct CMUnitTest tests[] = {
		ROW(the_nearest_level_that_has_it_gives_it),
		ROW(a_fault_is_said_and_the_next_level_is_asked),
		ROW(all_who_ask_for_a_name_share_a_request),
		ROW(who_waits_waits_no_longer_than_it_said),
		ROW(what_comes_late_is_kept_for_the_next),
		ROW(a_program_may_go_while_it_waits),
		ROW(the_helper_may_end_while_all_wait),
		ROW(a_source_that_fails_is_left_alone_and_asked_again),
		ROW(as_long_as_one_source_is_asked_nobody_is_sent_away),
		ROW(a_source_that_is_late_is_waited_for_three_times),
		ROW(who_is_impatient_opens_no_breaker),
		ROW(what_was_refused_is_asked_of_the_next_level),
		ROW(a_source_whose_items_are_damaged_is_left_alone),
		ROW(who_has_items_that_nobody_trusted_signed_is_asked_on),
		ROW(one_good_item_makes_up_for_those_damaged),
		ROW(a_verdict_is_wanted_where_it_changes_something),
		ROW(a_body_that_is_no_item_of_that_name_goes_to_nobody),
		ROW(a_good_item_of_a_far_level_fills_those_nearer),
		ROW(each_name_is_asked_of_one_shard),
		ROW(a_shard_that_fails_takes_no_other_with_it),
		ROW(prefetch_begins_with_one_name_and_doubles),
		ROW(prefetch_of_a_slow_server_ends),
		ROW(prefetch_of_a_far_server_brings_all_and_grows),
		ROW(prefetch_goes_on_to_the_next_level_in_batches),
		ROW(who_asks_for_a_name_on_its_way_waits_for_it),
		ROW(prefetch_waits_while_memory_is_full),
		ROW(batches_bring_no_more_than_there_is_room_for),
		ROW(an_item_beyond_its_share_waits_for_who_asks_for_it),
		ROW(prefetch_waits_until_there_is_room_for_fetches),
		ROW(prefetch_outlasts_what_programs_ask_for),
		ROW(programs_find_room_before_prefetch_does),
		ROW(prefetch_from_nobody_is_dropped),
		ROW(the_helper_may_end_while_sources_are_tried),
	};
#undef ROW

	return cmocka_run_group_tests(tests, NULL, NULL);
}
