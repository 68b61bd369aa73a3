/* SPDX-License-Identifier: MIT */

/* Life of a process: forks, signals, closing, and all at once. */

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/shelf.h"

#include "core/cache_test.h"

static _Atomic int stop;

struct busy {
	struct kiln *kiln;
	pthread_t threads[3];
};

static void *keep_busy(void *arg)
{
	struct work work = { .text = "one" };
	char out[128];

	for (unsigned i = 0; !atomic_load(&stop); i++) {
		outcome(arg, i % 40, &work, out);
		if (i % 8 == 0)
			put(arg, i % 40, "two", KILN_PUT_REPLACE);
	}
	return NULL;
}

static void start(struct busy *busy, struct kiln *kiln)
{
	busy->kiln = kiln;
	atomic_store(&stop, 0);
	for (int i = 0; i < 3; i++)
		if (pthread_create(&busy->threads[i], NULL, keep_busy, kiln))
			abort();
}

static void end(struct busy *busy)
{
	atomic_store(&stop, 1);
	for (int i = 0; i < 3; i++)
		pthread_join(busy->threads[i], NULL);
}

/* In a forked child: the number of the first call that answers wrongly. */
static int use_inherited(struct kiln *kiln)
{
	struct work work = { .text = "one" };
	struct kiln_stats stats;
	struct kiln_verify_report report;
	struct kiln_store_info info;
	struct kiln_key *key = key_of(1);
	struct kiln_blob *blob;
	char out[128];

	kiln_stats_init(&stats);
	if (strcmp(outcome(kiln, 1, &work, out), "KILN_E_FORKED"))
		return 1;
	if (strcmp(got(kiln, 1, out), "KILN_E_FORKED"))
		return 2;
	if (put(kiln, 1, "x", 0) != KILN_E_FORKED)
		return 3;
	if (kiln_remove(kiln, key) != KILN_E_FORKED)
		return 4;
	if (kiln_wipe(kiln) != KILN_E_FORKED)
		return 5;
	if (kiln_stats(kiln, &stats) != KILN_E_FORKED)
		return 6;
	if (kiln_verify(kiln, 0, NULL, NULL, &report) != KILN_E_FORKED)
		return 7;
	if (kiln_store_info(kiln, &info) != KILN_E_FORKED)
		return 8;
	if (kiln_get_entry(kiln, key, &blob, &blob) != KILN_E_FORKED)
		return 9;
	kiln_trim(kiln, 0);
	kiln_count(kiln, KILN_COUNT_MISSES, 1);
	kiln_close(kiln);
	kiln_key_free(key);

	/* A kiln of the child's own. */
	kiln = open_with(defaults(), NULL, NULL);
	if (strcmp(outcome(kiln, 1, &work, out), "one from build"))
		return 10;
	if (strcmp(outcome(kiln, 1, &work, out), "one from memory"))
		return 11;
	kiln_close(kiln);
	return 0;
}

/* S40: whatever the other threads held at that moment. */
static void a_forked_child_is_told_and_may_close(void **state)
{
	struct shelf *shelf = shelf_new();
	struct kiln *kiln = open_with(defaults(), shelf, NULL);
	struct work work = { .text = "one" };
	struct busy busy;
	int wrong = 0;

	if (HARNESS_FORKS_AMONG_THREADS)
		start(&busy, kiln);
	for (int i = 0; i < 10; i++) {
		int status;
		pid_t pid = fork();

		if (!pid)
			_exit(use_inherited(kiln));
		if (waitpid(pid, &status, 0) != pid || status)
			wrong = status ? status : -1;
	}
	if (HARNESS_FORKS_AMONG_THREADS)
		end(&busy);
	assert_int_equal(wrong, 0);
	assert_outcome(kiln, 1000, &work, "one from build");
	kiln_close(kiln);
	shelf_free(shelf);
}

static void nothing(int signal)
{
}

/* S43: a storm of signals whose handler does not restart calls. */
static void signals_change_nothing(void **state)
{
	struct sigaction storm = { .sa_handler = nothing }, before, during;
	struct itimerval timer = { { 0, 300 }, { 0, 300 } }, none = { 0 };
	struct shelf *shelf = shelf_new();
	struct kiln *kiln = open_with(defaults(), shelf, NULL);
	struct crowd crowd = {
		.kilns = { kiln },
		.n_kilns = 1,
		.work = { .text = "one", .kiln = kiln, .wait_for = 15 },
	};

	sigaction(SIGALRM, &storm, &before);
	setitimer(ITIMER_REAL, &timer, NULL);
	harness_threads(16, ask_for_one, &crowd);
	setitimer(ITIMER_REAL, &none, NULL);
	sigaction(SIGALRM, &before, &during);
	assert_int_equal(crowd.n_wrong, 0);
	assert_int_equal(crowd.work.n_builds, 1);
	assert_ptr_equal(during.sa_handler, nothing);
	kiln_close(kiln);
	shelf_free(shelf);
}

struct closing {
	struct kiln *kiln;
	_Atomic int building;
	_Atomic int built;
};

static void build_while_closing(const struct kiln_key *key, void *arg,
				struct kiln_build_result *result)
{
	struct closing *closing = arg;

	atomic_store(&closing->building, 1);
	/* The kiln is being closed once it refuses other calls. */
	while (counter(closing->kiln, KILN_COUNT_MISSES) != UINT64_MAX)
		sched_yield();
	atomic_store(&closing->built, 1);
	if (kiln_blob_copy("one", 4, &result->blob))
		abort();
}

static void *build_one(void *arg)
{
	struct closing *closing = arg;
	struct kiln_key *key = key_of(1);
	struct kiln_build_result result;

	kiln_build_result_init(&result);
	if (kiln_get_or_build(closing->kiln, key, build_while_closing, closing,
			      &result))
		abort();
	kiln_build_result_fini(&result);
	kiln_key_free(key);
	return NULL;
}

static void closing_waits_for_calls_in_progress(void **state)
{
	struct shelf *shelf = shelf_new();
	struct closing closing = { .kiln = open_with(defaults(), shelf, NULL) };
	pthread_t thread;

	if (pthread_create(&thread, NULL, build_one, &closing))
		abort();
	while (!atomic_load(&closing.building))
		sched_yield();
	kiln_close(closing.kiln);
	assert_int_equal(closing.built, 1);
	assert_int_equal(shelf_n_entries(shelf), 1);
	pthread_join(thread, NULL);
	shelf_free(shelf);
}

static struct kiln *never_closed;
static struct shelf *never_freed;

/* What happens at exit, with threads at work: S42. */
static int leave_open(unsigned index, void *arg)
{
	struct busy busy;
	struct work work = { .text = "one" };
	char out[128];

	never_freed = shelf_new();
	never_closed = open_with(defaults(), never_freed, NULL);
	outcome(never_closed, 1, &work, out);
	start(&busy, never_closed);
	if (index)
		exit(0);
	_exit(0);
}

static void a_process_may_end_with_a_kiln_open(void **state)
{
	assert_int_equal(harness_processes(6, leave_open, NULL, HARNESS_HANG_S),
			 0);
}

static void blobs_outlive_the_kiln(void **state)
{
	struct kiln *kiln = open_with(defaults(), NULL, NULL);
	struct kiln_key *key = key_of(1);
	struct kiln_blob *blob;

	assert_int_equal(put(kiln, 1, "one", 0), KILN_OK);
	assert_int_equal(kiln_get(kiln, key, &blob), KILN_OK);
	kiln_close(kiln);
	assert_string_equal(kiln_blob_data(blob), "one");
	kiln_blob_unref(blob);
	kiln_key_free(key);
}

static int use_heavily(unsigned index, void *arg)
{
	uint64_t seed = index + 1;
	struct crowd *crowd = arg;
	char out[128], text[128];

	for (int i = 0; i < 400; i++) {
		unsigned number = (unsigned)(harness_random(&seed) % 30);
		unsigned what = (unsigned)(harness_random(&seed) % 16);
		struct kiln *kiln = crowd->kilns[index % crowd->n_kilns];
		struct kiln_key *key = key_of(number);

		snprintf(text, sizeof(text), "kernel %u", number);
		if (what == 0)
			kiln_remove(kiln, key);
		else if (what == 1)
			put(kiln, number, text, KILN_PUT_REPLACE);
		else if (what == 2)
			kiln_trim(kiln, 3000);
		else if (what == 3 && number == 7)
			kiln_wipe(kiln);
		else if (strcmp(got(kiln, number, out), text) &&
			 strcmp(out, "KILN_MISS"))
			atomic_fetch_add(&crowd->n_wrong, 1);
		if (what > 8) {
			struct work work = { .text = text };

			outcome(kiln, number, &work, out);
			if (strncmp(out, text, strlen(text)))
				atomic_fetch_add(&crowd->n_wrong, 1);
		}
		kiln_key_free(key);
	}
	return 0;
}

static void many_threads_do_everything(void **state)
{
	struct kiln_options options = defaults();
	struct shelf *near = shelf_new(), *far = shelf_new();
	struct crowd crowd = { .n_kilns = 2 };

	options.memory_bytes_max = 8000;
	for (unsigned i = 0; i < 2; i++)
		crowd.kilns[i] = open_with(options, near, far);
	harness_threads(8, use_heavily, &crowd);
	for (unsigned i = 0; i < 2; i++)
		kiln_close(crowd.kilns[i]);
	assert_int_equal(crowd.n_wrong, 0);
	assert_int_equal(shelf_calls(near).open_locks, 0);
	shelf_free(near);
	shelf_free(far);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_forked_child_is_told_and_may_close),
		cmocka_unit_test(signals_change_nothing),
		cmocka_unit_test(closing_waits_for_calls_in_progress),
		cmocka_unit_test(a_process_may_end_with_a_kiln_open),
		cmocka_unit_test(blobs_outlive_the_kiln),
		cmocka_unit_test(many_threads_do_everything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
