/* SPDX-License-Identifier: MIT */

/* What is uploaded, tried again and dropped; and leases, which wait for it. */

#include "harness/harness.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client_test.h"
#include "scripted_test.h"

static int set_up(void **state)
{
	scripted_reset();
	return 0;
}

static void put(struct stage *stage, uint64_t number, size_t size, int replaces)
{
	struct entry entry = entry_new(number, size);
	struct upload_put put = { .name = entry.name,
				  .value_size = size,
				  .replaces = replaces };
	size_t record_size;

	put.fd = entry_memory(&entry, &record_size);
	put.record_size = record_size;
	assert_int_equal(uploads_put(&stage->uploads, &put), KILN_OK);
	entry_fini(&entry);
}

static void await_empty(struct stage *stage)
{
	for (int i = 0; i < HARNESS_HANG_S * 1000 && stage->uploads.n; i++)
		stage_run_ms(stage, 1);
	assert_int_equal(stage->uploads.n, 0);
	assert_int_equal(stage->uploads.bytes, 0);
	assert_int_equal(stage->uploads.n_active, 0);
}

static uint64_t count(const struct stage *stage, enum uploads_count which)
{
	return stage->uploads.counts[which];
}

static void what_is_put_goes_to_every_level_that_is_written(void **state)
{
	struct stage stage;

	stage_begin(&stage,
		    "http://0#zstd=0 http://1#read-only http://2#zstd=9");
	put(&stage, 1, 5000, 0);
	put(&stage, 1, 5000, 0);
	await_empty(&stage);
	assert_non_null(scripted_find(&scripted[0], 1));
	assert_null(scripted_find(&scripted[1], 1));
	assert_true(scripted_find(&scripted[2], 1)->size <
		    scripted_find(&scripted[0], 1)->size);
	assert_int_equal(count(&stage, UPLOADS_DONE), 1);
	assert_int_equal(count(&stage, UPLOADS_TWICE), 1);
	stage_finish(&stage);
}

static void a_fault_is_tried_again_three_times(void **state)
{
	static const struct {
		unsigned n_fails;
		int arrives;
	} rows[] = { { 1, 1 }, { 2, 1 }, { 0, 0 } };

	for (size_t i = 0; i < 3; i++) {
		struct stage stage;

		stage_begin(&stage, "http://0");
		scripted[0].fails_put = KILN_E_IO;
		scripted[0].n_fails = rows[i].n_fails;
		put(&stage, 1, 100, 0);
		stage.uploads.retry_ms = 2;
		await_empty(&stage);
		assert_int_equal(scripted_find(&scripted[0], 1) != NULL,
				 rows[i].arrives);
		assert_int_equal(count(&stage, UPLOADS_DROPPED_FAULT),
				 !rows[i].arrives);
		stage_finish(&stage);
	}
}

static void a_level_that_fails_holds_no_other_up(void **state)
{
	struct stage stage;

	stage_begin(&stage, "http://0 http://1");
	scripted[0].fails_put = KILN_E_IO;
	stage.uploads.retry_ms = 60000;
	put(&stage, 1, 100, 0);
	for (int i = 0;
	     !count(&stage, UPLOADS_RETRIED) || !scripted_find(&scripted[1], 1);
	     i++) {
		assert_in_range(i, 0, HARNESS_HANG_S * 1000);
		stage_run_ms(&stage, 1);
	}
	assert_int_equal(stage.uploads.n, 1); /* the other is tried again */
	assert_int_equal(count(&stage, UPLOADS_RETRIED), 1);
	stage_finish(&stage);
}

static void all_levels_may_fail(void **state)
{
	struct stage stage;

	stage_begin(&stage, "http://0 http://1");
	scripted[0].fails_put = scripted[1].fails_put = KILN_E_IO;
	stage.uploads.retry_ms = 1;
	put(&stage, 1, 100, 0);
	await_empty(&stage);
	assert_int_equal(count(&stage, UPLOADS_DROPPED_FAULT), 2);
	assert_int_equal(count(&stage, UPLOADS_DONE), 0);
	stage_finish(&stage);
}

/* S53 */
static void who_may_not_write_is_not_asked_again(void **state)
{
	static const enum kiln_status rows[] = { KILN_E_OWNER, KILN_E_FULL,
						 KILN_E_UNSUPPORTED };

	for (size_t i = 0; i < 3; i++) {
		struct stage stage;

		stage_begin(&stage, "http://0");
		scripted_keep(&scripted[0], 99);
		scripted[0].fails_put = rows[i];
		for (unsigned j = 0; j < 5; j++) {
			put(&stage, j, 100, 0);
			stage_run_ms(&stage, 5);
		}
		assert_in_range(scripted[0].n_puts, 1, 5);
		assert_true(look_up(&stage, 99, 5000).is_hit);
		stage_finish(&stage);
	}
}

/* S53: nor does anything wait to be tried again, until it is time to look. */
static void a_replica_is_not_written_to_for_a_while(void **state)
{
	struct stage stage;
	struct source *source;

	stage_begin(&stage, "http://0");
	source = &stage.sources.levels[0].sources[0];
	scripted_keep(&scripted[0], 99);
	scripted[0].fails_put = KILN_E_READONLY;
	for (unsigned i = 0; i < 5; i++) {
		put(&stage, i, 100, 0);
		await_empty(&stage);
	}
	assert_int_equal(scripted[0].n_puts, 1);
	assert_int_equal(count(&stage, UPLOADS_RETRIED), 0);
	assert_int_equal(count(&stage, UPLOADS_DROPPED_READONLY), 5);
	assert_int_equal(source->figures.counts[FIGURES_REPLICA], 1);
	assert_true(look_up(&stage, 99, 5000).is_hit);

	/* It is still one, and then it is the master. */
	for (unsigned i = 0; i < 2; i++) {
		source->writes.until_ns = loop_now_ns(stage.loop);
		scripted[0].fails_put = i ? KILN_OK : KILN_E_READONLY;
		put(&stage, 10 + i, 100, 0);
		await_empty(&stage);
		assert_int_equal(scripted[0].n_puts, 2 + i);
	}
	put(&stage, 12, 100, 0);
	await_empty(&stage);
	assert_null(scripted_find(&scripted[0], 10));
	assert_non_null(scripted_find(&scripted[0], 11));
	assert_non_null(scripted_find(&scripted[0], 12));
	stage_finish(&stage);
}

static void large_items_are_asked_for_before_they_are_sent(void **state)
{
	struct stage stage;

	stage_begin(&stage, "http://0#zstd=0");
	scripted_keep(&scripted[0], 1);
	put(&stage, 1, 100000, 0);
	await_empty(&stage);
	assert_int_equal(scripted[0].n_heads, 1);
	assert_int_equal(scripted[0].n_puts, 0);
	put(&stage, 2, 500000, 0); /* by its descriptor */
	await_empty(&stage);
	assert_int_equal(scripted[0].n_puts, 1);
	assert_true(scripted_find(&scripted[0], 2)->size > 500000);
	stage_finish(&stage);
}

static void what_is_there_stays_unless_it_was_refused_or_replaced(void **state)
{
	uint8_t name[KI_REMOTE_NAME_BYTES];
	struct stage stage;

	stage_begin(&stage, "http://0");
	scripted_keep(&scripted[0], 1);
	scripted_keep(&scripted[0], 2);
	scripted_keep(&scripted[0], 3);
	put(&stage, 1, 3000, 0);
	put(&stage, 2, 3000, 1);
	scripted_name(3, name);
	refused_add(&stage.fetches.refused, name, 0);
	put(&stage, 3, 3000, 0);
	await_empty(&stage);
	assert_true(scripted_find(&scripted[0], 1)->size <
		    scripted_find(&scripted[0], 2)->size);
	assert_true(scripted_find(&scripted[0], 1)->size <
		    scripted_find(&scripted[0], 3)->size);
	assert_int_equal(scripted[0].n_replacing, 2);
	assert_false(refused_has(&stage.fetches.refused, name, 0));
	stage_finish(&stage);
}

static void what_is_too_large_is_dropped(void **state)
{
	struct stage stage;

	stage_begin(&stage, "http://0#max-item=4K,zstd=0 http://1#zstd=0");
	put(&stage, 1, 5000, 0);
	await_empty(&stage);
	assert_null(scripted_find(&scripted[0], 1));
	assert_non_null(scripted_find(&scripted[1], 1));
	assert_int_equal(count(&stage, UPLOADS_DROPPED_LARGE), 1);
	stage_finish(&stage);
}

static void the_queue_is_bounded(void **state)
{
	struct stage stage;

	stage_begin(&stage, "http://0#zstd=0");
	scripted[0].ms = 100;
	for (unsigned i = 0; i < 80; i++)
		put(&stage, i, 1 << 20, 0);
	assert_in_range(stage.uploads.n, 62, 64);
	assert_true(stage.uploads.bytes <= UPLOADS_BYTES_MAX);
	assert_in_range(count(&stage, UPLOADS_DROPPED_FULL), 16, 18);
	assert_int_equal(stage.uploads.n_active, UPLOADS_ACTIVE_MAX);
	stage_finish(&stage);
}

static void the_helper_may_end_while_all_is_queued(void **state)
{
	struct stage stage;

	stage_begin(&stage, "http://0");
	scripted[0].ms = 1000;
	for (unsigned i = 0; i < 300; i++)
		put(&stage, i, i % 2 ? 100 : 30000, 0);
	stage_run_ms(&stage, 3);
	stage_finish(&stage);
}

static void without_a_sealer_nothing_is_queued(void **state)
{
	struct stage stage;

	stage_begin(&stage, "http://0");
	stage.uploads.sealer = NULL;
	put(&stage, 1, 100, 0);
	assert_int_equal(count(&stage, UPLOADS_DROPPED_UNSIGNED), 1);
	assert_int_equal(stage.uploads.n, 0);
	stage_finish(&stage);
}

/* ---- Leases --------------------------------------------------------------- */

struct take {
	struct lease_waiter waiter;
	unsigned is_done;
	enum kiln_status status;
	struct lease *lease;
};

static void taken(struct lease_waiter *waiter, enum kiln_status status,
		  struct lease *lease)
{
	struct take *take = ki_container(waiter, struct take, waiter);

	take->is_done = 1;
	take->status = status;
	take->lease = lease;
}

static void take_begin(struct stage *stage, struct take *take, uint64_t number,
		       uint32_t ms)
{
	uint8_t name[KI_REMOTE_NAME_BYTES];

	*take = (struct take){ .waiter.done = taken };
	scripted_name(number, name);
	leases_take(&stage->leases, &take->waiter, name, ms);
}

static struct take take(struct stage *stage, uint64_t number, uint32_t ms)
{
	struct take take;

	take_begin(stage, &take, number, ms);
	stage_run_until(stage, &take.is_done);
	return take;
}

static void begin_leases(struct stage *stage)
{
	scripted[0].has_leases = scripted[1].has_leases = 1;
	stage_begin(stage, "http://0 http://1 http://2");
}

static void the_farthest_level_that_has_leases_counts(void **state)
{
	static const struct {
		const char *remote;
		int level;
	} rows[] = {
		{ "http://0 http://1 http://2", 1 },
		{ "http://0 http://1#no-lease", 0 },
		{ "http://0 http://1#read-only", 0 },
		{ "http://2 http://3", -1 },
		{ "http://0,http://2", -1 },
		{ "http://0,http://1", 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct stage stage;

		scripted[0].has_leases = scripted[1].has_leases = 1;
		stage_begin(&stage, rows[i].remote);
		assert_int_equal(sources_lease_level(&stage.sources),
				 rows[i].level);
		assert_int_equal(take(&stage, 1, 100).status,
				 rows[i].level < 0 ? KILN_E_UNSUPPORTED
						   : KILN_OK);
		stage_finish(&stage);
	}
}

static void it_is_handed_on_here_without_a_question(void **state)
{
	struct take first, second, third;
	struct stage stage;

	begin_leases(&stage);
	first = take(&stage, 1, 5000);
	assert_int_equal(first.status, KILN_OK);
	take_begin(&stage, &second, 1, 5000);
	take_begin(&stage, &third, 1, 10);
	stage_run_until(&stage, &third.is_done);
	assert_int_equal(third.status, KILN_E_TIMEOUT);
	assert_false(second.is_done);
	lease_give_back(first.lease);
	assert_int_equal(second.status, KILN_OK);
	assert_int_equal(scripted[1].n_leases, 1);
	lease_give_back(second.lease);
	stage_run_ms(&stage, 5);
	assert_int_equal(scripted[1].n_releases, 1);
	assert_int_equal(stage.leases.names.n, 0);
	stage_finish(&stage);
}

static void it_ends_when_what_was_built_is_there(void **state)
{
	struct take first, second;
	struct stage stage;

	begin_leases(&stage);
	first = take(&stage, 1, 5000);
	take_begin(&stage, &second, 1, 5000);
	scripted[1].ms = 20;
	put(&stage, 1, 100, 0);
	lease_give_back(first.lease);
	stage_run_ms(&stage, 5);
	assert_false(second.is_done);
	assert_true(*scripted[1].holder);
	stage_run_until(&stage, &second.is_done);
	assert_int_equal(second.status, KILN_EXISTS);
	assert_non_null(scripted_find(&scripted[1], 1));
	stage_run_ms(&stage, 60);
	assert_false(*scripted[1].holder);
	assert_int_equal(stage.leases.names.n, 0);
	stage_finish(&stage);
}

static void who_waits_for_another_machine_hears_of_the_item(void **state)
{
	struct stage stage;
	struct take waits;

	begin_leases(&stage);
	strcpy(scripted[1].holder, "another machine");
	take_begin(&stage, &waits, 1, 5000);
	stage_run_ms(&stage, 10);
	assert_false(waits.is_done);
	scripted_keep(&scripted[1], 1);
	stage_run_until(&stage, &waits.is_done);
	assert_int_equal(waits.status, KILN_EXISTS);
	stage_finish(&stage);
}

static void who_waits_for_a_machine_that_died_builds(void **state)
{
	struct stage stage;
	struct take waits;

	begin_leases(&stage);
	strcpy(scripted[1].holder, "another machine");
	take_begin(&stage, &waits, 1, 30000);
	stage_run_ms(&stage, 30);
	*scripted[1].holder = '\0'; /* its time is over */
	stage_run_until(&stage, &waits.is_done);
	assert_int_equal(waits.status, KILN_OK);
	lease_give_back(waits.lease);
	stage_finish(&stage);
}

static void a_server_that_cannot_say_lets_all_build(void **state)
{
	static const struct {
		enum kiln_status fails;
		uint32_t ms;
	} rows[] = { { KILN_E_IO, 0 }, { KILN_OK, LEASE_ANSWER_MS + 1000 } };

	for (size_t i = 0; i < 2; i++) {
		struct take first, second;
		struct stage stage;

		begin_leases(&stage);
		scripted[1].fails = rows[i].fails;
		scripted[1].ms = rows[i].ms;
		take_begin(&stage, &first, 1, 30000);
		take_begin(&stage, &second, 1, 30000);
		stage_run_until(&stage, &second.is_done);
		assert_int_equal(first.status, KILN_E_UNSUPPORTED);
		assert_int_equal(second.status, KILN_E_UNSUPPORTED);
		assert_int_equal(stage.leases.names.n, 0);
		stage_finish(&stage);
	}
}

/* S53: of several programs that ask at once, so that no other answer comes between. */
static void a_server_that_refuses_leases_is_still_read(void **state)
{
	static const enum kiln_status rows[] = { KILN_E_OWNER, KILN_E_FULL,
						 KILN_E_READONLY,
						 KILN_E_UNSUPPORTED };

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct take takes[6];
		struct stage stage;

		scripted[0].has_leases = 1;
		stage_begin(&stage, "http://0");
		scripted_keep(&scripted[0], 99);
		scripted[0].fails_lease = rows[i];
		for (unsigned j = 0; j < 6; j++) {
			take_begin(&stage, &takes[j], j, 30000);
			if (j >= 2) /* three are refused before the fourth */
				stage_run_until(&stage, &takes[j].is_done);
		}
		for (unsigned j = 0; j < 6; j++)
			assert_int_equal(takes[j].status, KILN_E_UNSUPPORTED);
		assert_int_equal(scripted[0].n_leases, 3);
		assert_true(look_up(&stage, 99, 30000).is_hit);
		stage_finish(&stage);
	}
}

/* A user of redis without EVAL, which is all that renewing and giving back are. */
static void a_server_that_refuses_scripts_is_read_and_written(void **state)
{
	static const enum kiln_status rows[] = { KILN_E_OWNER,
						 KILN_E_UNSUPPORTED };

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct stage stage;
		struct source *source;

		begin_leases(&stage);
		scripted[1].fails_script = rows[i];
		for (uint64_t j = 1; j <= 4; j++) {
			struct take held = take(&stage, j, 5000);

			assert_int_equal(held.status, KILN_OK);
			lease_give_back(held.lease);
			while (stage.leases.names.n)
				stage_run_ms(&stage, 1);
			assert_int_equal(scripted[1].n_releases, j);
			*scripted[1].holder = '\0'; /* its time is over */
		}
		source = sources_of(&stage.sources, 1,
				    (const uint8_t[KI_REMOTE_NAME_BYTES]){ 0 });
		assert_int_equal(source->reads.state, BREAKER_CLOSED);
		assert_int_equal(source->writes.state, BREAKER_CLOSED);
		stage_finish(&stage);
	}
}

static void a_program_may_go_while_it_waits_for_a_lease(void **state)
{
	struct stage stage;
	struct take waits;

	begin_leases(&stage);
	scripted[1].ms = 5;
	take_begin(&stage, &waits, 1, 5000);
	lease_waiter_leave(&waits.waiter);
	lease_waiter_leave(&waits.waiter);
	stage_run_ms(&stage, 30);
	assert_false(waits.is_done);
	assert_int_equal(scripted[1].n_releases, 1);
	assert_int_equal(stage.leases.names.n, 0);
	stage_finish(&stage);
}

/* Redis was started again: it has forgotten, and is told anew. */
static void a_lease_that_was_forgotten_is_taken_again(void **state)
{
	struct stage stage;
	struct take held;

	begin_leases(&stage);
	stage.leases.renew_ms = 20;
	held = take(&stage, 1, 5000);
	*scripted[1].holder = '\0';
	stage_run_ms(&stage, 35);
	assert_true(*scripted[1].holder);
	assert_in_range(scripted[1].n_renews, 1, 2);
	strcpy(scripted[1].holder, "another machine");
	stage_run_ms(&stage, 50);
	assert_int_equal(stage.leases.n_lost, 1);
	lease_give_back(held.lease);
	stage_run_ms(&stage, 10);
	assert_string_equal(scripted[1].holder, "another machine");
	stage_finish(&stage);
}

static void there_are_so_many_leases_and_no_more(void **state)
{
	static struct take takes[LEASES_MAX + 1];
	struct stage stage;

	begin_leases(&stage);
	for (unsigned i = 0; i <= LEASES_MAX; i++)
		take_begin(&stage, &takes[i], i, 5000);
	assert_int_equal(stage.leases.names.n, LEASES_MAX);
	assert_false(takes[LEASES_MAX - 1].is_done);
	assert_true(takes[LEASES_MAX].is_done);
	assert_int_equal(takes[LEASES_MAX].status, KILN_E_UNSUPPORTED);
	assert_int_equal(stage.leases.n_refused, 1);
	take_begin(&stage, &takes[LEASES_MAX], 0, 5000); /* known */
	assert_false(takes[LEASES_MAX].is_done);
	for (unsigned i = 0; i <= LEASES_MAX; i++)
		lease_waiter_leave(&takes[i].waiter);
	stage_finish(&stage);
}

static void the_helper_may_end_while_leases_are_held(void **state)
{
	struct take held, waits, asks;
	struct stage stage;

	begin_leases(&stage);
	held = take(&stage, 1, 5000);
	assert_int_equal(held.status, KILN_OK);
	take_begin(&stage, &waits, 1, 5000);
	scripted[1].ms = 1000;
	take_begin(&stage, &asks, 2, 5000);
	lease_waiter_leave(&waits.waiter);
	lease_waiter_leave(&asks.waiter);
	stage_finish(&stage);
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup(test, set_up)
	static const struct CMUnitTest tests[] = {
		ROW(what_is_put_goes_to_every_level_that_is_written),
		ROW(a_fault_is_tried_again_three_times),
		ROW(a_level_that_fails_holds_no_other_up),
		ROW(all_levels_may_fail),
		ROW(who_may_not_write_is_not_asked_again),
		ROW(a_replica_is_not_written_to_for_a_while),
		ROW(large_items_are_asked_for_before_they_are_sent),
		ROW(what_is_there_stays_unless_it_was_refused_or_replaced),
		ROW(what_is_too_large_is_dropped),
		ROW(the_queue_is_bounded),
		ROW(there_are_so_many_leases_and_no_more),
		ROW(the_helper_may_end_while_all_is_queued),
		ROW(without_a_sealer_nothing_is_queued),
		ROW(the_farthest_level_that_has_leases_counts),
		ROW(it_is_handed_on_here_without_a_question),
		ROW(it_ends_when_what_was_built_is_there),
		ROW(who_waits_for_another_machine_hears_of_the_item),
		ROW(who_waits_for_a_machine_that_died_builds),
		ROW(a_server_that_cannot_say_lets_all_build),
		ROW(a_server_that_refuses_leases_is_still_read),
		ROW(a_server_that_refuses_scripts_is_read_and_written),
		ROW(a_program_may_go_while_it_waits_for_a_lease),
		ROW(a_lease_that_was_forgotten_is_taken_again),
		ROW(there_are_so_many_leases_and_no_more),
		ROW(the_helper_may_end_while_leases_are_held),
	};
#undef ROW

	return cmocka_run_group_tests(tests, NULL, NULL);
}
