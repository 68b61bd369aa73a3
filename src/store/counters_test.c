/* SPDX-License-Identifier: MIT */

/* NAME.stats and NAME.history, by the calls that all stores share. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"

#include "base/hash.h"
#include "store/store.h"

#define HOUR_NS ((uint64_t)3600 * 1000000000)

static uint64_t now_ns;

static uint64_t set_clock(const struct ki_sys *sys)
{
	return now_ns;
}

struct scene {
	struct ki_sys sys;
	char *directory;
	char *stats;
	char *history;
	struct kiln_store_counters counters;
	int parent;
};

static struct scene *scene_new(void)
{
	struct scene *scene = calloc(1, sizeof(*scene));

	assert_non_null(scene);
	scene->sys = ki_sys_posix;
	scene->sys.realtime_ns = set_clock;
	now_ns = 500000 * HOUR_NS;
	scene->directory = harness_directory();
	scene->stats = harness_path(scene->directory, "kiln.stats");
	scene->history = harness_path(scene->directory, "kiln.history");
	return scene;
}

static void scene_free(struct scene *scene)
{
	free(scene->history);
	free(scene->stats);
	free(scene->directory);
	free(scene);
}

/* `application` NULL: what a kiln does that knows of no history. */
static void add(struct scene *scene, const char *application,
		enum kiln_counter counter, uint64_t n)
{
	uint64_t deltas[KILN_N_COUNTERS] = { 0 };

	deltas[counter] = n;
	assert_int_equal(ki_counters_add(&scene->sys, scene->stats, 0,
					 application, deltas),
			 KILN_OK);
}

static const struct kiln_store_counters *look(struct scene *scene)
{
	memset(&scene->counters, 0xa5, sizeof(scene->counters));
	assert_int_equal(
		ki_counters_read(&scene->sys, scene->stats, &scene->counters),
		KILN_OK);
	return &scene->counters;
}

static void reasons_are_kept_by_the_hour(void **state)
{
	struct scene *scene = scene_new();
	const struct kiln_store_counters *counters = look(scene);

	assert_int_equal(counters->history_since, 0);
	add(scene, "/bin/a", KILN_COUNT_MISS_NEW, 3);
	now_ns += 2 * HOUR_NS;
	add(scene, "/bin/a", KILN_COUNT_MISS_BUSY, 5);
	add(scene, "/bin/a", KILN_COUNT_MISS_BUSY, UINT64_MAX);
	now_ns -= HOUR_NS; /* a clock that went back */
	add(scene, "/bin/a", KILN_COUNT_MISS_COMPILER, 7);
	counters = look(scene);
	assert_int_equal(counters->newest_hour, 500002);
	assert_int_equal(counters->history_since, (uint64_t)500000 * 3600);
	assert_int_equal(counters->reasons[0][15], UINT32_MAX);
	assert_int_equal(counters->reasons[1][1], 7);
	assert_int_equal(counters->reasons[2][0], 3);
	assert_int_equal(counters->reasons[2][15], 0);
	now_ns += KILN_HOURS * HOUR_NS;
	add(scene, "/bin/a", KILN_COUNT_MISS_NEW, 1);
	counters = look(scene);
	assert_int_equal(counters->reasons[0][0], 1);
	assert_int_equal(counters->reasons[KILN_HOURS - 1][15], UINT32_MAX);
	now_ns += 5 * KILN_HOURS * HOUR_NS;
	add(scene, "/bin/a", KILN_COUNT_MISS_NEW, 1);
	counters = look(scene);
	for (unsigned i = 1; i < KILN_HOURS; i++)
		assert_int_equal(counters->reasons[i][0], 0);
	scene_free(scene);
}

static void of_programs_the_least_recent_goes(void **state)
{
	struct scene *scene = scene_new();
	const struct kiln_store_counters *counters;
	char name[16];

	for (unsigned i = 0; i < KILN_PROGRAMS_MAX; i++) {
		snprintf(name, sizeof(name), "/bin/%u", i);
		add(scene, name, KILN_COUNT_HITS_STORE, i + 1);
		now_ns += HOUR_NS;
	}
	add(scene, "/bin/0", KILN_COUNT_HITS_STORE, 100);
	now_ns += HOUR_NS;
	add(scene, "/bin/new", KILN_COUNT_PUTS, 1);
	counters = look(scene);
	assert_int_equal(counters->n_programs, KILN_PROGRAMS_MAX);
	assert_string_equal(counters->programs[0].name, "/bin/new");
	assert_string_equal(counters->programs[1].name, "/bin/0");
	assert_int_equal(counters->programs[1].total[KILN_COUNT_HITS_STORE],
			 101);
	assert_int_equal(counters->programs[1].first, (uint64_t)500000 * 3600);
	assert_string_equal(counters->programs[15].name, "/bin/2");
	assert_int_equal(counters->total[KILN_COUNT_HITS_STORE], 136 + 100);
	assert_int_equal(ki_counters_zero(&scene->sys, scene->stats, 0),
			 KILN_OK);
	assert_int_equal(look(scene)->n_programs, 0);
	assert_int_equal(scene->counters.last_run.last, 0);
	scene_free(scene);
}

static void of_a_name_that_is_too_long_the_end_stays(void **state)
{
	struct scene *scene = scene_new();
	char name[1000];

	memset(name, 'x', sizeof(name));
	strcpy(name + 990, "/the-end");
	add(scene, name, KILN_COUNT_MISSES, 1);
	add(scene, name + 1, KILN_COUNT_MISSES, 1);
	look(scene);
	assert_int_equal(scene->counters.n_programs, 1);
	assert_string_equal(scene->counters.programs[0].name,
			    name + 998 - (KILN_PROGRAM_BYTES - 1));
	add(scene, "", KILN_COUNT_MISSES, 1);
	look(scene);
	assert_int_equal(scene->counters.n_programs, 2);
	scene_free(scene);
}

/* S17 */
static void a_kiln_without_history_counts_beside(void **state)
{
	struct scene *scene = scene_new();
	const struct kiln_store_counters *counters;

	add(scene, NULL, KILN_COUNT_MISSES, 2);
	counters = look(scene);
	assert_int_equal(counters->total[KILN_COUNT_MISSES], 2);
	assert_int_equal(counters->history_since, 0);
	now_ns += HOUR_NS;
	add(scene, "/bin/a", KILN_COUNT_MISS_NEW, 1);
	now_ns += HOUR_NS;
	add(scene, NULL, KILN_COUNT_MISSES, 4);
	counters = look(scene);
	assert_int_equal(counters->since, (uint64_t)500000 * 3600);
	assert_int_equal(counters->history_since, (uint64_t)500001 * 3600);
	assert_int_equal(counters->total[KILN_COUNT_MISSES], 6);
	assert_int_equal(counters->hours[0][2], 4);
	assert_int_equal(counters->hours[2][2], 2);
	assert_int_equal(counters->reasons[0][0], 0);
	assert_int_equal(counters->reasons[1][0], 1);
	assert_int_equal(counters->n_programs, 1);
	scene_free(scene);
}

/* S17 */
static void a_newer_history_is_left_alone(void **state)
{
	struct scene *scene = scene_new();
	size_t size, size_after;
	uint64_t head[8], *bytes, *bytes_after;

	add(scene, "/bin/a", KILN_COUNT_MISS_NEW, 1);
	bytes = (uint64_t *)harness_read(scene->history, &size);
	assert_int_equal(size, KI_HISTORY_BYTES);
	memcpy(head, bytes, sizeof(head));
	head[1] = 2;
	head[7] = ki_xxh3_64(head, 56);
	memcpy(bytes, head, sizeof(head));
	harness_write(scene->history, bytes, size);
	add(scene, "/bin/b", KILN_COUNT_MISS_NEW, 1);
	look(scene);
	assert_int_equal(scene->counters.total[KILN_COUNT_MISS_NEW], 2);
	assert_int_equal(scene->counters.history_since, 0);
	assert_int_equal(scene->counters.n_programs, 0);
	assert_int_equal(ki_counters_zero(&scene->sys, scene->stats, 0),
			 KILN_OK);
	bytes_after = (uint64_t *)harness_read(scene->history, &size_after);
	assert_int_equal(size_after, size);
	assert_memory_equal(bytes_after, bytes, size);
	free(bytes_after);
	free(bytes);
	scene_free(scene);
}

static void damage_costs_what_it_hit(void **state)
{
	static const struct row {
		const char *name;
		size_t offset, size;
		unsigned n_programs, has_run, reason;
	} rows[] = {
		{ "the header: the history begins anew", 24, 65536, 0, 0, 0 },
		{ "a file cut short begins anew", 0, 1000, 0, 0, 0 },
		{ "the last run", 64 + 80, 65536, 2, 0, 4 },
		{ "a program", 64 + 1024 + 80, 65536, 1, 1, 4 },
		{ "a program's name without end", 64 + 2 * 1024 + 1023, 65536,
		  1, 1, 4 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct scene *scene = scene_new();
		size_t size;
		char *bytes;

		add(scene, "/bin/a", KILN_COUNT_MISSES, 1);
		add(scene, "/bin/b", KILN_COUNT_MISS_NEW, 4);
		bytes = harness_read(scene->history, &size);
		bytes[rows[i].offset] ^= 1;
		harness_write(scene->history, bytes, rows[i].size);
		free(bytes);
		look(scene);
		if (scene->counters.n_programs != rows[i].n_programs ||
		    !!scene->counters.last_run.last != !!rows[i].has_run ||
		    scene->counters.reasons[0][0] != rows[i].reason)
			fail_msg("%s", rows[i].name);
		add(scene, "/bin/c", KILN_COUNT_MISS_NEW, 1);
		look(scene);
		assert_int_equal(scene->counters.n_programs,
				 rows[i].n_programs + 1);
		assert_int_equal(scene->counters.total[KILN_COUNT_MISS_NEW], 5);
		scene_free(scene);
	}
}

static unsigned n_torn;

static ssize_t torn_pread(const struct ki_sys *sys, int fd, void *data,
			  size_t size, uint64_t offset)
{
	ssize_t n = ki_sys_posix.pread(&ki_sys_posix, fd, data, size, offset);

	if (n_torn && size >= KI_HISTORY_BYTES) {
		((uint8_t *)data)[64 + 1024 + 100] ^= 1;
		n_torn--;
	}
	return n;
}

static void a_record_that_is_being_written_is_read_again(void **state)
{
	struct scene *scene = scene_new();

	add(scene, "/bin/a", KILN_COUNT_MISSES, 1);
	scene->sys.pread = torn_pread;
	n_torn = 3;
	assert_int_equal(look(scene)->n_programs, 1);
	n_torn = 1000;
	assert_int_equal(look(scene)->n_programs, 0);
	assert_int_equal(scene->counters.last_run.total[KILN_COUNT_MISSES], 1);
	n_torn = 0;
	scene_free(scene);
}

/* 1: it did not begin later than its parent, by the system's clock. */
static int run_later(unsigned index, void *arg)
{
	struct scene *scene = arg;
	uint64_t deltas[KILN_N_COUNTERS] = { [KILN_COUNT_MISSES] = 10 };

	if (ki_process_start(ki_process_id()) ==
	    ki_process_start(scene->parent))
		return 1;
	return ki_counters_add(&scene->sys, scene->stats, 0, "/bin/later",
			       deltas)
		       ? 2
		       : 0;
}

static void the_last_run_is_the_process_that_began_last(void **state)
{
	struct scene *scene = scene_new();
	const struct kiln_store_counters *counters;

	add(scene, "/bin/worker", KILN_COUNT_PUTS, 1);
	assert_int_equal(look(scene)->last_run.last, 0);
	add(scene, "/bin/first", KILN_COUNT_MISSES, 1);
	add(scene, "/bin/first", KILN_COUNT_PUTS, 1);
	counters = look(scene);
	assert_string_equal(counters->last_run.name, "/bin/first");
	assert_int_equal(counters->last_run.total[KILN_COUNT_MISSES], 1);
	assert_int_equal(counters->last_run.total[KILN_COUNT_PUTS], 1);
	scene->parent = ki_process_id();
	while (harness_processes(1, run_later, scene, HARNESS_HANG_S))
		;
	add(scene, "/bin/first", KILN_COUNT_MISSES, 1);
	counters = look(scene);
	assert_string_equal(counters->last_run.name, "/bin/later");
	assert_int_equal(counters->last_run.total[KILN_COUNT_MISSES], 10);
	assert_int_equal(counters->n_programs, 3);
	scene_free(scene);
}

static int count_many(unsigned index, void *arg)
{
	struct scene *scene = arg;
	uint64_t deltas[KILN_N_COUNTERS] = {
		[KILN_COUNT_MISSES] = 1, [KILN_COUNT_MISS_NEW] = 1
	};
	enum kiln_status status;
	char name[16];

	snprintf(name, sizeof(name), "/bin/%u", index % 4);
	for (unsigned i = 0; i < 50;) {
		status = ki_counters_add(&scene->sys, scene->stats, 0, name,
					 deltas);
		if (status && status != KILN_E_TIMEOUT)
			return 1;
		i += !status;
	}
	return 0;
}

static void eight_processes_lose_nothing(void **state)
{
	struct scene *scene = scene_new();
	const struct kiln_store_counters *counters;

	assert_int_equal(
		harness_processes(8, count_many, scene, HARNESS_HANG_S), 0);
	counters = look(scene);
	assert_int_equal(counters->total[KILN_COUNT_MISSES], 400);
	assert_int_equal(counters->reasons[0][0], 400);
	assert_int_equal(counters->n_programs, 4);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(counters->programs[i].total[KILN_COUNT_MISSES],
				 100);
	scene_free(scene);
}

/* Older readers know two kinds of hits by the hour. */
static void hits_in_packs_are_apart_but_by_the_hour(void **state)
{
	struct scene *scene = scene_new();

	add(scene, "/bin/a", KILN_COUNT_HITS_STORE, 2);
	add(scene, "/bin/b", KILN_COUNT_HITS_PACK, 3);
	look(scene);
	assert_int_equal(scene->counters.total[KILN_COUNT_HITS_STORE], 2);
	assert_int_equal(scene->counters.total[KILN_COUNT_HITS_PACK], 3);
	assert_int_equal(scene->counters.hours[0][1], 5);
	assert_string_equal(scene->counters.last_run.name, "/bin/a");
	assert_int_equal(scene->counters.last_run.total[KILN_COUNT_HITS_PACK],
			 3);
	scene_free(scene);
}

static unsigned n_refusals;

static int refuse_some(const struct ki_sys *sys, int fd, enum ki_lock_kind kind,
		       uint64_t offset, uint64_t size)
{
	if (!n_refusals)
		return ki_sys_posix.try_lock(sys, fd, kind, offset, size);
	n_refusals--;
	return -EAGAIN;
}

static void who_adds_waits_for_nobody_and_who_zeroes_does(void **state)
{
	const uint64_t deltas[KILN_N_COUNTERS] = { 1 };
	struct scene *scene = scene_new();

	add(scene, "/bin/a", KILN_COUNT_PUTS, 7);
	scene->sys.try_lock = refuse_some;
	n_refusals = 3;
	assert_int_equal(
		ki_counters_add(&scene->sys, scene->stats, 0, "/bin/a", deltas),
		KILN_E_TIMEOUT);
	assert_int_equal(n_refusals, 2);
	assert_int_equal(ki_counters_zero(&scene->sys, scene->stats, 0),
			 KILN_OK);
	assert_int_equal(n_refusals, 0);
	assert_int_equal(look(scene)->total[KILN_COUNT_PUTS], 0);
	n_refusals = UINT32_MAX;
	assert_int_equal(ki_counters_zero(&scene->sys, scene->stats, 0),
			 KILN_E_TIMEOUT);
	scene_free(scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reasons_are_kept_by_the_hour),
		cmocka_unit_test(of_programs_the_least_recent_goes),
		cmocka_unit_test(of_a_name_that_is_too_long_the_end_stays),
		cmocka_unit_test(a_kiln_without_history_counts_beside),
		cmocka_unit_test(a_newer_history_is_left_alone),
		cmocka_unit_test(damage_costs_what_it_hit),
		cmocka_unit_test(a_record_that_is_being_written_is_read_again),
		cmocka_unit_test(the_last_run_is_the_process_that_began_last),
		cmocka_unit_test(hits_in_packs_are_apart_but_by_the_hour),
		cmocka_unit_test(who_adds_waits_for_nobody_and_who_zeroes_does),
		cmocka_unit_test(eight_processes_lose_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
