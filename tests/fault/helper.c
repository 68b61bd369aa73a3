/* SPDX-License-Identifier: MIT */

/*
 * kiln-remote whose allocations fail one after another, and then all from one on.
 * Whatever it was asked is answered, or its program is cut off; nothing stays under
 * way; and a server that is well is asked again.
 */

#include "harness/harness.h"

#include <errno.h>
#include <string.h>

#include "fault/fault.h"
#include "remote-helper/client_test.h"
#include "remote-helper/whole_test.h"

#define ITEM	 1   /* that a server has */
#define NOWHERE	 100 /* that none has */
#define PREFETCH 5
#define PACK_URL "http://2/a.pack"
#define ARMED_MS 2

static struct entry entry;

/* ---- What is asked ---------------------------------------------------------- */

static void get(struct program *program)
{
	program_get(program, ITEM, 2, WHOLE_LONG_MS);
}

static void get_impatiently(struct program *program)
{
	program_get(program, ITEM, 1, 0);
	program_get(program, ITEM + 1, 1, 1);
}

static void try_all(struct program *program)
{
	client_send(program->fd, KI_FRAME_TELL, 7, "\1\0\0", 4);
}

static void tell(struct program *program)
{
	client_send(program->fd, KI_FRAME_TELL, 7, "\0\0\0", 4);
}

static void lease(struct program *program)
{
	client_lease(program->fd, 8, entry.name, WHOLE_LONG_MS);
	client_lease(program->fd, 9, entry.name, 1);
}

static void put(struct program *program)
{
	client_put(program->fd, &entry, KI_REMOTE_PUT_REPLACE);
}

static void put_and_drain(struct program *program)
{
	uint8_t body[4];

	put(program);
	ki_put_u32(body, WHOLE_LONG_MS);
	client_send(program->fd, KI_FRAME_DRAIN, 10, body, sizeof(body));
}

static void prefetch(struct program *program)
{
	uint8_t names[PREFETCH][KI_REMOTE_NAME_BYTES];

	for (unsigned i = 0; i < PREFETCH; i++)
		scripted_name(20 + i, names[i]);
	client_send(program->fd, KI_FRAME_PREFETCH, 0, names, sizeof(names));
}

static void open_pack(struct program *program)
{
	client_send(program->fd, KI_FRAME_OPEN, 11, PACK_URL, strlen(PACK_URL));
}

static void range(struct program *program)
{
	uint8_t body[KI_FRAME_RANGE_BYTES] = { 0 };

	ki_put_u64(body, program->handle);
	ki_put_u32(body + 16, 100);
	client_send(program->fd, KI_FRAME_RANGE, 12, body, sizeof(body));
}

/* ---- What comes before it --------------------------------------------------- */

/* It has failed, and its time is over: the next who asks has a probe sent. */
static void be_due(struct breaker *breaker)
{
	breaker_open(breaker, BREAKER_FAULT, loop_now_ns(whole.loop), 0);
	breaker->until_ns = loop_now_ns(whole.loop);
}

static void reads_are_due(struct program *program)
{
	be_due(&whole.sources.levels[0].sources[0].reads);
	be_due(&whole.sources.levels[1].sources[0].reads);
}

static void writes_are_due(struct program *program)
{
	be_due(&whole.sources.levels[0].sources[0].writes);
}

static void is_opened(struct program *program)
{
	open_pack(program);
	program_read_until(program, 1);
	assert_int_equal(program->status, KILN_OK);
}

/* ---- Afterwards ------------------------------------------------------------- */

static int is_at_rest(void)
{
	return !whole.fetches.names.n && !whole.fetches.n_wanted &&
	       !whole.uploads.n && !whole.leases.names.n;
}

static void await_rest(const char *name)
{
	for (int i = 0; !is_at_rest(); i++) {
		if (i == WHOLE_LONG_MS)
			fail_msg("%s: something is under way for good", name);
		whole_run_ms(1);
	}
	assert_int_equal(whole.fetches.memory.aside, 0);
	assert_int_equal(whole.fetches.n_batches, 0);
}

/* Until it is closed: by a probe that somebody who asks has sent. */
static void assert_is_asked_again(struct source *source,
				  struct program *program, const char *name)
{
	for (int i = 0; source->reads.state != BREAKER_CLOSED; i++) {
		if (i == 3)
			fail_msg("%s: the breaker is %s for good", name,
				 breaker_state_name(&source->reads));
		/* Its wait is over. */
		source->reads.until_ns = loop_now_ns(whole.loop);
		loop_cancel(source->probe);
		source->probe = NULL;
		program_get(program, NOWHERE, 1, WHOLE_LONG_MS);
		program_read_until(program, program->n_answers + 1);
		whole_run_ms(3);
	}
	if (source->writes.state == BREAKER_HALF_OPEN)
		fail_msg("%s: writes are half open for good", name);
	source->writes = (struct breaker){ 0 };
}

static void assert_all_is_well(const char *name)
{
	struct program program = program_begin();

	await_rest(name);
	for (size_t i = 0; i < whole.sources.n_levels; i++)
		assert_is_asked_again(&whole.sources.levels[i].sources[0],
				      &program, name);
	program_get(&program, ITEM, 1, WHOLE_LONG_MS);
	program_read_until(&program, program.n_answers + 1);
	if (program.n_items != 1)
		fail_msg("%s: nothing is found any more", name);
	program_end(&program);
}

/* ---- Rounds ----------------------------------------------------------------- */

static const struct {
	const char *name;
	void (*prepare)(struct program *program);
	void (*ask)(struct program *program);
	unsigned n_answers; /* of preparing, too */
} rows[] = {
	{ "look-ups", NULL, get, 2 },
	{ "look-ups of the impatient", NULL, get_impatiently, 2 },
	{ "a look-up that has a probe sent", reads_are_due, get, 2 },
	{ "a trial", NULL, try_all, 1 },
	{ "counters", NULL, tell, 1 },
	{ "leases", NULL, lease, 2 },
	{ "an upload", NULL, put, 0 },
	{ "an upload that is waited for", NULL, put_and_drain, 1 },
	{ "an upload that is a probe", writes_are_due, put, 0 },
	{ "prefetch", NULL, prefetch, 0 },
	{ "a pack is opened", NULL, open_pack, 1 },
	{ "a part of a pack", is_opened, range, 2 },
};

static void stop(void *arg)
{
	loop_stop(arg);
}

static void run_armed(struct fault *fault)
{
	assert_non_null(loop_after(whole.loop, ARMED_MS, stop, whole.loop));
	fault_arm(fault);
	assert_int_equal(loop_run(whole.loop), 0);
	fault_disarm(fault);
}

static void do_round(struct fault *fault, size_t row)
{
	struct program program = program_begin();

	*scripted[0].holder = '\0'; /* the time of a lease is over */
	if (rows[row].prepare)
		rows[row].prepare(&program);
	rows[row].ask(&program);
	run_armed(fault);
	program_read_until(&program, rows[row].n_answers);
	client_unlease(program.fd, entry.name); /* if it has one */
	await_rest(rows[row].name);
	if (!program.is_cut_off)
		assert_int_equal(program.connection->n_pending, 0);
	program_end(&program);
	assert_all_is_well(rows[row].name);
}

static void begin(void)
{
	scripted_reset();
	scripted[0].has_leases = 1;
	whole_begin("http://0 http://1", 1 << 20);
	whole.uploads.retry_ms = 1;
	for (unsigned i = 0; i < 30; i++)
		scripted_keep(&scripted[1], i);
}

static void a_failing_allocation_costs_an_answer(void **state)
{
	struct fault fault;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		unsigned n = 0;

		begin();
		for (fault_begin(&fault, -ENOMEM); fault_next(&fault); n++)
			do_round(&fault, i);
		print_message("# %s: %u rounds\n", rows[i].name, n);
		assert_true(n > 3);
		whole_end();
	}
}

/* Its breaker is due for a probe, and whoever is to be that cannot ask. */
static void the_probe_of_a_pack_is_given_back(void **state)
{
	struct program program;
	struct fault fault;
	unsigned n = 1;

	begin();
	program = program_begin();
	is_opened(&program);
	scripted[2].fails = KILN_E_IO;
	for (; n < 1 + BREAKER_FAULTS; n++) {
		range(&program);
		program_read_until(&program, n + 1);
		program.answered[12] = 0;
	}
	scripted[2].fails = KILN_OK;
	whole_run_ms(BREAKER_WAIT_MS * 5 / 4 + 10);
	fault_begin(&fault, -ENOMEM);
	assert_true(fault_next(&fault));
	range(&program);
	run_armed(&fault);
	assert_int_equal(fault.n_fired, 1);
	program_read_until(&program, ++n);
	assert_int_not_equal(program.status, KILN_OK);
	program.answered[12] = 0;
	range(&program);
	program_read_until(&program, ++n);
	assert_int_equal(program.status, KILN_OK);
	program_end(&program);
	whole_end();
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_failing_allocation_costs_an_answer),
		cmocka_unit_test(the_probe_of_a_pack_is_given_back),
	};
	int result;

	entry = entry_new(4711, 1000);
	result = cmocka_run_group_tests(tests, NULL, NULL);
	entry_fini(&entry);
	return result;
}
