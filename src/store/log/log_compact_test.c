/* SPDX-License-Identifier: MIT */

/* Segments that go before their time, where namespaces have quotas (compact.c). */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"

#include "store/log/log_test.h"

#define BOUND	     ((uint64_t)4 << 20)
#define SIZE	     4000
#define N_ALIVE	     200  /* a fifth of the bound */
#define FIRST	     1000 /* number of the first that is removed again */
#define N_KEPT	     20	  /* of those at a time */
#define N_IN_SEGMENT 16
#define N_FLOOD	     3000 /* three times the bound */

static struct store new_store(int has_quotas)
{
	struct store store = store_new(BOUND, 0);
	char *path = harness_path(store.directory, "kiln.quotas");

	if (has_quotas)
		harness_write(path, "", 1);
	free(path);
	return store;
}

static void remove_index(const struct store *store)
{
	char *path = harness_path(store->directory, "kiln.idx");

	assert_int_equal(unlink(path), 0);
	free(path);
}

static void put_alive(struct store *store)
{
	for (unsigned n = 0; n < N_ALIVE; n++)
		assert_int_equal(store_put(store, n, SIZE, 0), KILN_OK);
}

/* As a namespace at its quota does; nothing of it is left in the end. */
static void flood(struct store *store, unsigned first, unsigned n)
{
	for (unsigned i = first; i < first + n + N_KEPT; i++) {
		if (i < first + n)
			(void)store_put(store, i, SIZE, 0);
		if (i >= first + N_KEPT)
			(void)store_remove(store, i - N_KEPT);
	}
}

static unsigned count_alive(struct store *store)
{
	unsigned n, n_found = 0;

	for (n = 0; n < N_ALIVE; n++)
		n_found += !store_get(store, n, SIZE);
	return n_found;
}

static uint64_t n_compacted(const struct store *store)
{
	return store_index(store)->header->n_compacted;
}

/* ---- What stays ---------------------------------------------------------------- */

static void what_is_dead_goes_before_what_is_alive(void **state)
{
	struct store store = new_store(1);

	put_alive(&store);
	flood(&store, FIRST, N_FLOOD);
	assert_int_equal(count_alive(&store), N_ALIVE);
	assert_true(n_compacted(&store) > 10);
	store_free(&store);
}

/* Nobody asked for them, and there is no quota: the oldest go. */
static void without_quotas_the_oldest_goes(void **state)
{
	struct store store = new_store(0);

	put_alive(&store);
	flood(&store, FIRST, N_FLOOD);
	assert_int_equal(count_alive(&store), 0);
	assert_int_equal(n_compacted(&store), 0);
	store_free(&store);
}

/* Where all is alive there is nothing to be had, and evictions go on. */
static void a_store_in_which_all_is_alive_evicts_as_ever(void **state)
{
	struct store store = new_store(1);
	unsigned n;

	put_alive(&store);
	for (n = FIRST; n < FIRST + N_FLOOD; n++)
		assert_int_equal(store_put(&store, n, SIZE, 0), KILN_OK);
	assert_int_equal(count_alive(&store), 0);
	assert_int_equal(store_get(&store, n - 1, SIZE), KILN_OK);
	assert_int_equal(n_compacted(&store), 0);
	store_free(&store);
}

static void what_is_alive_among_the_dead_is_carried_along(void **state)
{
	struct store store = new_store(1);
	unsigned n;

	put_alive(&store);
	for (n = 0; n < N_FLOOD / 50; n++) {
		flood(&store, FIRST + n * 100, 50);
		assert_int_equal(store_put(&store, 500 + n, SIZE, 0), KILN_OK);
	}
	for (n = 0; n < N_FLOOD / 50; n++)
		assert_int_equal(store_get(&store, 500 + n, SIZE), KILN_OK);
	assert_int_equal(count_alive(&store), N_ALIVE);
	store_free(&store);
}

/* What was removed stays so, what was replaced too, whatever went with what. */
static void an_index_made_anew_finds_the_same(void **state)
{
	struct store store = new_store(1);
	unsigned n;

	put_alive(&store);
	for (n = 0; n < 40; n++) {
		flood(&store, FIRST + n * 100, 60);
		assert_int_equal(
			store_put(&store, n, SIZE + 8, KILN_PUT_REPLACE),
			KILN_OK);
		assert_int_equal(store_remove(&store, 100 + n), KILN_OK);
	}
	flood(&store, FIRST + 10000, 500);
	assert_true(n_compacted(&store) > 5);
	store_close(&store);
	remove_index(&store);
	store_open(&store);
	for (n = 0; n < 40; n++) {
		assert_int_equal(store_get(&store, n, SIZE + 8), KILN_OK);
		assert_int_equal(store_get(&store, 100 + n, SIZE), KILN_MISS);
		assert_int_equal(store_get(&store, 40 + n, SIZE), KILN_OK);
		assert_int_equal(store_get(&store, FIRST + n * 100, SIZE),
				 KILN_MISS);
	}
	store_free(&store);
}

/* ---- Others on their way --------------------------------------------------------- */

static struct store *flooding;
static unsigned hold_in; /* this many writes from now */
static int is_held;

static int segment_is_there(struct store *store, uint32_t number)
{
	char path[KI_PATH_MAX];

	assert_int_equal(
		ki_log_segment_path((struct ki_log *)store->tier, number, path),
		0);
	return !access(path, F_OK);
}

/* Before the record is written, or when it is and nobody knows. */
static ssize_t held_pwritev(const struct ki_sys *sys, int fd,
			    const struct ki_piece *pieces, int n_pieces,
			    uint64_t offset)
{
	uint32_t number;
	unsigned n;

	if (!hold_in || --hold_in)
		return ki_sys_posix.pwritev(sys, fd, pieces, n_pieces, offset);
	number = log_tail_segment(store_index(flooding)->header->tail);
	for (n = 0; segment_is_there(flooding, number) && n < 50; n++)
		flood(flooding, FIRST + n * 100, 100);
	is_held = !segment_is_there(flooding, number);
	return ki_sys_posix.pwritev(sys, fd, pieces, n_pieces, offset);
}

static void a_put_that_is_held_up_writes_anew(void **state)
{
	static struct ki_sys sys;
	struct store store = new_store(1), slow = { .options = store.options };

	sys = ki_sys_posix;
	sys.pwritev = held_pwritev;
	slow.options.sys = &sys;
	flooding = &store;
	put_alive(&store);
	store_open(&slow);
	assert_int_equal(store_put(&slow, 900, SIZE, 0), KILN_OK);
	for (int flags = 0; flags <= (int)KILN_PUT_REPLACE;
	     flags += KILN_PUT_REPLACE) {
		/* What is alive lies in segments of its own. */
		flood(&store, FIRST + 20000, 100);
		is_held = 0;
		hold_in = 1;
		assert_int_equal(store_put(&slow, 901 + (unsigned)flags, SIZE,
					   (unsigned)flags),
				 KILN_OK);
		assert_true(is_held);
		assert_int_equal(store_get(&store, 901 + (unsigned)flags, SIZE),
				 KILN_OK);
	}
	/* The oldest are older, and stay. */
	assert_int_equal(count_alive(&store), N_ALIVE);
	store_close(&slow);
	store_free(&store);
}

/* A word comes out while the file has a passing name. */
static struct store *late;
static uint32_t late_number;
static uint64_t late_slot;

static int late_rename(const struct ki_sys *sys, const char *from,
		       const char *to)
{
	int err = ki_sys_posix.rename(sys, from, to);
	struct log_index *index = store_index(late);

	if (err || late_number || !strstr(to, ".tmp."))
		return err;
	late_number = (uint32_t)strtoul(strrchr(from, '.') - 8, NULL, 16);
	while (index->words[late_slot])
		late_slot++;
	index->words[late_slot] = log_word(1, 1, late_number, 0);
	return 0;
}

static void a_word_that_comes_late_keeps_the_file(void **state)
{
	static struct ki_sys sys;
	struct store store = new_store(1);

	put_alive(&store);
	store_close(&store);
	sys = ki_sys_posix;
	sys.rename = late_rename;
	store.options.sys = &sys;
	store_open(&store);
	late = &store;
	for (unsigned n = FIRST; !late_number && n < FIRST + N_FLOOD; n++) {
		(void)store_put(&store, n, SIZE, 0);
		if (!late_number && n >= FIRST + N_KEPT)
			(void)store_remove(&store, n - N_KEPT);
	}
	assert_true(late_number != 0);
	assert_true(segment_is_there(&store, late_number));
	store_free(&store);
}

/* ---- Trouble ------------------------------------------------------------------------ */

static unsigned fails_each, n_calls;

static int fails(void)
{
	return fails_each && !(++n_calls % fails_each);
}

static int failing_rename(const struct ki_sys *sys, const char *from,
			  const char *to)
{
	return fails() ? -EIO : ki_sys_posix.rename(sys, from, to);
}

static int failing_unlink(const struct ki_sys *sys, const char *path)
{
	return fails() ? -EIO : ki_sys_posix.unlink(sys, path);
}

static ssize_t failing_pread(const struct ki_sys *sys, int fd, void *data,
			     size_t size, uint64_t offset)
{
	return fails() ? -EIO : ki_sys_posix.pread(sys, fd, data, size, offset);
}

static void calls_that_fail_leave_no_damage(void **state)
{
	static struct ki_sys sys;

	for (fails_each = 2; fails_each < 40; fails_each += 5) {
		struct store store = new_store(1);
		struct kiln_verify_report report;

		put_alive(&store);
		store_close(&store);
		sys = ki_sys_posix;
		sys.rename = failing_rename;
		sys.unlink = failing_unlink;
		if (fails_each > 20)
			sys.pread = failing_pread;
		store.options.sys = &sys;
		store_open(&store);
		flood(&store, FIRST, N_FLOOD / 4);
		store_close(&store);
		store.options.sys = &ki_sys_posix;
		store_open(&store);
		assert_int_equal(store.tier->ops->verify(store.tier, 0, NULL,
							 NULL, &report),
				 KILN_OK);
		assert_int_equal(report.n_damaged, 0);
		(void)count_alive(&store); /* wrong bytes abort */
		store_free(&store);
	}
}

/* A child of whom nothing is left after one of these calls. */
static int die_at; /* 1: before the passing name, 2: after, 3: before it goes */

static int dying_rename(const struct ki_sys *sys, const char *from,
			const char *to)
{
	if (strstr(to, ".tmp.") && die_at == 1)
		_exit(0);
	(void)ki_sys_posix.rename(sys, from, to);
	if (strstr(to, ".tmp.") && die_at == 2)
		_exit(0);
	return 0;
}

static int dying_unlink(const struct ki_sys *sys, const char *path)
{
	if (strstr(path, ".tmp.") && die_at == 3)
		_exit(0);
	return ki_sys_posix.unlink(sys, path);
}

static void killed_at_any_step_it_leaves_all_that_is_alive(void **state)
{
	static struct ki_sys sys;

	sys = ki_sys_posix;
	sys.rename = dying_rename;
	sys.unlink = dying_unlink;
	for (die_at = 1; die_at <= 3; die_at++) {
		struct store store = new_store(1);
		unsigned n_left;
		int status;
		pid_t child;

		put_alive(&store);
		store_close(&store);
		child = fork();
		if (!child) {
			store.options.sys = &sys;
			store_open(&store);
			flood(&store, FIRST, N_FLOOD);
			_exit(1);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
		store_open(&store);
		assert_int_equal(count_alive(&store), N_ALIVE);
		/* Without a spare, the first time the oldest go. */
		flood(&store, FIRST + N_FLOOD, N_FLOOD);
		n_left = count_alive(&store);
		assert_true(n_left >= N_ALIVE - 2 * N_IN_SEGMENT);
		store_close(&store);
		remove_index(&store);
		store_open(&store);
		assert_int_equal(count_alive(&store), n_left);
		store_free(&store);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_dead_goes_before_what_is_alive),
		cmocka_unit_test(without_quotas_the_oldest_goes),
		cmocka_unit_test(a_store_in_which_all_is_alive_evicts_as_ever),
		cmocka_unit_test(what_is_alive_among_the_dead_is_carried_along),
		cmocka_unit_test(an_index_made_anew_finds_the_same),
		cmocka_unit_test(a_put_that_is_held_up_writes_anew),
		cmocka_unit_test(a_word_that_comes_late_keeps_the_file),
		cmocka_unit_test(calls_that_fail_leave_no_damage),
		cmocka_unit_test(
			killed_at_any_step_it_leaves_all_that_is_alive),
	};

	return cmocka_run_group_tests_name("log_compact", tests, NULL, NULL);
}
