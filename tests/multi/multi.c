/* SPDX-License-Identifier: MIT */

/*
 * multi KIND [PROCESSES]: many at once, through the public calls and on a real
 * store.  One cold key is built once, whoever asks and however its builder ends;
 * a store that is full makes room once for all, of whom there are so many.
 *
 * Times that a scenario states are waited for ten times as long here: the real
 * figures are in the benchmark.
 */

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"

#include "conform/kinds.h"

#define N_MANY	   64
#define N_WAITERS  4
#define VALUE_SIZE 100000
#define BOUND	   ((uint64_t)2 << 20)
#define TIMEOUT_S  60
#define TAKEN_S	   10 /* ten times what a take-over may last */

static const struct kind *kind;
static unsigned n_crowd = 200;

/* What all processes of a test see. */
static struct shared {
	_Atomic unsigned n_builds;
	_Atomic unsigned n_asking;
	_Atomic unsigned n_stored;
	_Atomic unsigned n_lock_timeouts;
	_Atomic int is_building;
	_Atomic int stranger; /* a process that the builder left */
} * shared;

struct crowd {
	char *directory;
	char *url;
	struct kiln *kiln; /* of all threads */
	uint32_t lock_timeout_ms;
	unsigned wait_for; /* so many must ask before the build ends */
	enum ending {
		LIVES,
		IS_KILLED,
		FORKS,	       /* and is killed */
		LEAVES_A_COPY, /* of its descriptors, and is killed */
		STOPS,
	} ending;
};

static struct crowd crowd_new(void)
{
	struct crowd crowd = { .directory = harness_directory(),
			       .lock_timeout_ms = TIMEOUT_S * 1000 };
	char *store = harness_path(crowd.directory, "store");

	crowd.url = kind_url(kind, store);
	free(store);
	memset(shared, 0, sizeof(*shared));
	return crowd;
}

static void crowd_free(struct crowd *crowd)
{
	free(crowd->url);
	free(crowd->directory);
}

static struct kiln *open_kiln(const struct crowd *crowd)
{
	struct kiln_options options;
	struct kiln *kiln;

	kiln_options_init(&options);
	options.store_url = crowd->url;
	options.lock_timeout_ms = crowd->lock_timeout_ms;
	if (kiln_open(&options, &kiln) || kiln_store_status(kiln))
		abort();
	return kiln;
}

/* For ever, but for a test that failed and left it behind. */
static void linger(void)
{
	alarm(2 * TAKEN_S);
	for (;;)
		pause();
}

/* ---- The one build --------------------------------------------------------------- */

static void leave_a_copy(void)
{
	/* Not fork(): as a library does that knows nothing of handlers. */
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);

	if (!pid)
		linger();
	shared->stranger = pid;
}

static void leave_a_child(void)
{
	pid_t pid = fork();

	if (!pid)
		linger();
	shared->stranger = pid;
}

static void build(const struct kiln_key *key, void *arg,
		  struct kiln_build_result *result)
{
	const struct crowd *crowd = arg;
	char *value = malloc(VALUE_SIZE);

	shared->n_builds++;
	if (crowd->ending == FORKS)
		leave_a_child();
	if (crowd->ending == LEAVES_A_COPY)
		leave_a_copy();
	shared->is_building = 1;
	if (crowd->ending == STOPS)
		raise(SIGSTOP);
	else if (crowd->ending != LIVES)
		linger();
	while (shared->n_asking < crowd->wait_for)
		sched_yield();
	fill_value(1, value, VALUE_SIZE);
	if (kiln_blob_copy(value, VALUE_SIZE, &result->blob))
		abort();
	free(value);
}

/* 0 if all is as it should be. */
static int ask(struct kiln *kiln, struct crowd *crowd)
{
	struct kiln_key *key = numbered_key(1);
	struct kiln_build_result result;
	int wrong;

	kiln_build_result_init(&result);
	shared->n_asking++;
	wrong = kiln_get_or_build(kiln, key, build, crowd, &result) !=
			KILN_OK ||
		kiln_blob_size(result.blob) != VALUE_SIZE ||
		!is_value_of(1, kiln_blob_data(result.blob), VALUE_SIZE);
	kiln_build_result_fini(&result);
	kiln_key_free(key);
	return wrong;
}

static uint64_t counter(struct kiln *kiln, enum kiln_counter which)
{
	struct kiln_stats stats;

	kiln_stats_init(&stats);
	return kiln_stats(kiln, &stats) ? UINT64_MAX : stats.counters[which];
}

static int ask_in_thread(unsigned index, void *arg)
{
	struct crowd *crowd = arg;

	return ask(crowd->kiln, crowd);
}

/* S18 */
static void of_many_threads_one_builds(void **state)
{
	struct crowd crowd = crowd_new();

	crowd.kiln = open_kiln(&crowd);
	crowd.wait_for = N_MANY;
	assert_int_equal(harness_threads(N_MANY, ask_in_thread, &crowd), 0);
	assert_int_equal(shared->n_builds, 1);
	assert_int_equal(counter(crowd.kiln, KILN_COUNT_BUILDS), 1);
	kiln_close(crowd.kiln);
	crowd_free(&crowd);
}

static int ask_in_process(unsigned index, void *arg)
{
	struct crowd *crowd = arg;
	struct kiln *kiln = open_kiln(crowd);
	int wrong = ask(kiln, crowd);

	shared->n_lock_timeouts +=
		(unsigned)counter(kiln, KILN_COUNT_LOCK_TIMEOUTS);
	kiln_close(kiln);
	return wrong;
}

/* S19 */
static void of_many_processes_one_builds(void **state)
{
	struct crowd crowd = crowd_new();

	crowd.wait_for = N_MANY;
	assert_int_equal(
		harness_processes(N_MANY, ask_in_process, &crowd, TIMEOUT_S),
		0);
	assert_int_equal(shared->n_builds, 1);
	crowd_free(&crowd);
}

/* ---- A builder that comes to grief ----------------------------------------------- */

static pid_t start_builder(struct crowd crowd)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(ask_in_process(0, &crowd));
	}
	while (!shared->is_building)
		sched_yield();
	return pid;
}

static int reap(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		assert_int_equal(errno, EINTR);
	return status;
}

struct grief {
	struct crowd *crowd;
	pid_t builder;
};

/* The last one kills the builder when the others have asked. */
static int wait_or_kill(unsigned index, void *arg)
{
	struct grief *grief = arg;

	if (index < N_WAITERS)
		return ask_in_process(index, grief->crowd);
	while (shared->n_asking < N_WAITERS + 1)
		sched_yield();
	return kill(grief->builder, SIGKILL) != 0;
}

static void check_store(const struct crowd *crowd)
{
	struct kiln *kiln = open_kiln(crowd);
	struct kiln_key *key = numbered_key(1);
	struct kiln_verify_report report;
	struct kiln_blob *blob;

	assert_int_equal(kiln_get(kiln, key, &blob), KILN_OK);
	assert_true(is_value_of(1, kiln_blob_data(blob), kiln_blob_size(blob)));
	kiln_blob_unref(blob);
	assert_int_equal(kiln_verify(kiln, 0, NULL, NULL, &report), KILN_OK);
	assert_int_equal(report.n_entries, 1);
	assert_int_equal(report.n_damaged, 0);
	kiln_key_free(key);
	kiln_close(kiln);
}

static void builder_ends(enum ending ending)
{
	struct crowd crowd = crowd_new(), builders;
	struct grief grief = { .crowd = &crowd };

	builders = crowd;
	builders.ending = ending;
	grief.builder = start_builder(builders);
	assert_int_equal(
		harness_processes(N_WAITERS + 1, wait_or_kill, &grief, TAKEN_S),
		0);
	reap(grief.builder);
	if (shared->stranger)
		kill(shared->stranger, SIGKILL);
	/* The dead one's, and one more. */
	assert_int_equal(shared->n_builds, 2);
	assert_int_equal(shared->n_lock_timeouts, 0);
	check_store(&crowd);
	crowd_free(&crowd);
}

/* S20 */
static void a_killed_builder_is_followed_by_one(void **state)
{
	builder_ends(IS_KILLED);
}

/* S20, S41 */
static void a_killed_builders_child_keeps_nobody_waiting(void **state)
{
	builder_ends(FORKS);
}

/* S20, S41 */
static void a_copy_of_the_builders_lock_keeps_nobody_waiting(void **state)
{
	builder_ends(LEAVES_A_COPY);
}

/* S21 */
static void a_stopped_builder_is_waited_for_in_bounds(void **state)
{
	struct crowd crowd = crowd_new(), builders;
	pid_t builder;
	int status;

	crowd.lock_timeout_ms = 200;
	builders = crowd;
	builders.ending = STOPS;
	builder = start_builder(builders);
	assert_int_equal(waitpid(builder, &status, WUNTRACED), builder);
	assert_true(WIFSTOPPED(status));
	assert_int_equal(
		harness_processes(N_WAITERS, ask_in_process, &crowd, TAKEN_S),
		0);
	/* Those who came late found the entry. */
	assert_in_range(shared->n_builds, 2, 1 + N_WAITERS);
	assert_in_range(shared->n_lock_timeouts, 1, N_WAITERS);
	check_store(&crowd);
	kill(builder, SIGCONT);
	assert_int_equal(reap(builder), 0);
	check_store(&crowd);
	crowd_free(&crowd);
}

/* ---- A build that asks for itself -------------------------------------------------- */

struct twice {
	struct crowd *crowd;
	int forks;
	int wrong;
};

/* Another kiln of the same store is as a stranger, from whom the lock is kept. */
static void build_twice(const struct kiln_key *key, void *arg,
			struct kiln_build_result *result)
{
	struct twice *twice = arg;
	pid_t child = twice->forks ? fork() : 0;

	if (!child)
		twice->wrong = ask_in_process(0, twice->crowd);
	if (twice->forks && !child)
		_exit(twice->wrong);
	if (child)
		twice->wrong = waitpid(child, &twice->wrong, 0) != child ||
			       twice->wrong;
	build(key, twice->crowd, result);
}

/* S23: by another handle, and by a child of its own. */
static void a_build_that_asks_for_itself_waits_in_bounds(void **state)
{
	for (int forks = 0; forks < 2; forks++) {
		struct crowd crowd = crowd_new();
		struct twice twice = { .crowd = &crowd, .forks = forks };
		struct kiln_key *key = numbered_key(1);
		struct kiln_build_result result;
		struct kiln *kiln;

		crowd.lock_timeout_ms = 100;
		kiln = open_kiln(&crowd);
		kiln_build_result_init(&result);
		assert_int_equal(kiln_get_or_build(kiln, key, build_twice,
						   &twice, &result),
				 KILN_OK);
		assert_int_equal(twice.wrong, 0);
		assert_int_equal(shared->n_builds, 2);
		assert_int_equal(shared->n_lock_timeouts, 1);
		assert_true(is_value_of(1, kiln_blob_data(result.blob),
					VALUE_SIZE));
		kiln_build_result_fini(&result);
		kiln_key_free(key);
		kiln_close(kiln);
		check_store(&crowd);
		crowd_free(&crowd);
	}
}

/* ---- Many over the limit --------------------------------------------------------- */

static struct kiln_tier *open_full(const struct crowd *crowd)
{
	struct ki_store_options options = { .sys = &ki_sys_posix,
					    .directory = crowd->directory,
					    .bytes_max = BOUND };
	struct kiln_tier *tier;

	return kind->open(&options, &tier) ? NULL : tier;
}

static uint64_t n_evicted(struct kiln_tier *tier)
{
	static struct kiln_store_counters counters;

	assert_int_equal(tier->ops->counters(tier, &counters), KILN_OK);
	return counters.total[KILN_COUNT_EVICTED];
}

#define ENTRY_SIZE 7000
#define N_FILL_MAX 1000

/* Entries: of the bound / 32, and of the smallest there is by cost. */
static unsigned per_segment(void)
{
	return kind->by_cost ? 4 : 9;
}

static int put_one(unsigned index, void *arg)
{
	struct kiln_tier *tier = open_full(arg);
	int status, found;

	if (!tier)
		return 1;
	status = put_numbered(tier, N_FILL_MAX + index, ENTRY_SIZE, 0);
	if (status != KILN_OK && status != KILN_E_TIMEOUT)
		return 2;
	shared->n_stored += status == KILN_OK;
	for (unsigned n = 0; n < 40; n++) {
		found = get_numbered(tier, index + n * 8);
		if (found != KILN_OK && found != KILN_MISS)
			return 3;
	}
	found = get_numbered(tier, N_FILL_MAX + index);
	if (found != KILN_OK && found != KILN_MISS)
		return 4;
	tier->ops->close(tier);
	return 0;
}

/* S27 */
static void of_many_over_the_limit_one_evicts(void **state)
{
	struct crowd crowd = crowd_new();
	struct kiln_tier *tier = open_full(&crowd);
	uint64_t evicted, rolls = 0;
	unsigned n;

	assert_non_null(tier);
	for (n = 0; n < N_FILL_MAX && !n_evicted(tier); n++)
		assert_int_equal(put_numbered(tier, n, ENTRY_SIZE, 0), KILN_OK);
	evicted = n_evicted(tier);
	if (kind->n_rolls)
		rolls = kind->n_rolls(tier);
	assert_int_equal(harness_processes(n_crowd, put_one, &crowd, TIMEOUT_S),
			 0);
	/* Busy for many, on few processors.  What is new takes the room of as
	   much that was old, whoever made it; a sweep makes an eighth more, and
	   half of each new segment may be copies of what is in use. */
	assert_in_range(shared->n_stored, 1, n_crowd);
	assert_in_range(n_evicted(tier) - evicted, 0,
			shared->n_stored + n / 8 + 2 * per_segment());
	if (kind->n_rolls)
		assert_in_range(kind->n_rolls(tier) - rolls,
				shared->n_stored > per_segment()
					? shared->n_stored / per_segment() - 1
					: 0,
				2 * n_crowd / per_segment() + 2);
	assert_true(kind_disk_bytes(kind, crowd.directory) <= BOUND);
	tier->ops->close(tier);
	crowd_free(&crowd);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_many_threads_one_builds),
		cmocka_unit_test(of_many_processes_one_builds),
		cmocka_unit_test(a_killed_builder_is_followed_by_one),
		cmocka_unit_test(a_killed_builders_child_keeps_nobody_waiting),
		cmocka_unit_test(a_stopped_builder_is_waited_for_in_bounds),
		cmocka_unit_test(a_build_that_asks_for_itself_waits_in_bounds),
		cmocka_unit_test(of_many_over_the_limit_one_evicts),
		cmocka_unit_test(
			a_copy_of_the_builders_lock_keeps_nobody_waiting),
	};
	kind = argc > 1 ? kind_find(argv[1]) : NULL;
	if (argc > 2)
		n_crowd = (unsigned)strtoul(argv[2], NULL, 10);
	if (!kind || !kind->persists || !n_crowd) {
		fprintf(stderr, "usage: multi KIND [PROCESSES]\n");
		return 2;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 1;
	return _cmocka_run_group_tests(kind->name, tests,
				       sizeof(tests) / sizeof(tests[0]), NULL,
				       NULL);
}
