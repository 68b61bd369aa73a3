/* SPDX-License-Identifier: MIT */

/*
 * S11.  crash [KIND] [--kills N] [--seed S] [--all]
 *
 * First a child dies by SIGKILL at its n-th system call, for n from 1 on, in
 * each operation, and the parent looks at what it left: entries old or new, no
 * wrong byte, the bound kept, the store in use at once.  Then so many die one
 * after another in the middle of a put that what they leave passes the bound.
 *
 * Then eight processes get, put, replace, remove and evict in one store, and
 * one after another is killed, N times.  Processes tell each operation through
 * a pipe, and the parent kills after as many as chance says, so a run depends
 * on the seed and not on how fast the machine is.
 *
 * --all leaves no call out.
 */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fault/operations.h"

#define N_OPERATIONS_MAX 32
#define N_WORKERS	 8
#define N_KEYS		 64
#define STUCK_MS	 (HARNESS_HANG_S * 1000)

static const struct kind *kind;
static unsigned n_kills = 300;
static uint64_t seed;
static int all;

/* ---- At the n-th call ------------------------------------------------------------ */

static int child(struct scene *scene, const struct operation *operation)
{
	if (!operation->is_closed && open_scene(scene))
		return 2;
	fault_arm(scene->fault);
	scene->status = operation->run(scene);
	fault_disarm(scene->fault);
	return scene->status ? 3 : 0;
}

/* 1 if the child died at its n-th call, or its n-th of a name; 0 if it came to its
   end. */
static int die_at(struct scene *scene, const struct operation *operation,
		  const char *only, unsigned n)
{
	int status;
	pid_t pid;

	fault_begin(scene->fault, FAULT_DIE);
	scene->fault->only = only;
	scene->fault->n = n;
	scene->fault->fired = "death";
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(child(scene, operation));
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
		scene->status = KILN_E_IO;
		scene->is_whole = 0;
		return 1;
	}
	scene->status = KILN_OK;
	scene->is_whole = 1;
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail_scene(scene, "the child failed by itself");
	return 0;
}

/* A get hands out a blob in the child alone. */
static int has_check(const struct operation *operation)
{
	return operation->check && strcmp(operation->name, "get") != 0;
}

static void die_at_every_call(void **state)
{
	const struct operation *original = *state;
	struct operation operation = *original;
	char *master = harness_directory();
	char *place = harness_path(master, "store");
	char *copy = harness_path(master, "copy");
	struct fault fault;
	struct scene scene = { .kind = kind,
			       .fault = &fault,
			       .directory = copy };
	unsigned n = 1;
	int died = 1;

	if (!has_check(original))
		operation.check = NULL;
	scene.n_filled = prepare_store(kind, place, operation.before);
	scene.work_before = work_done(kind, place, operation.work);
	while (died) {
		harness_progress(operation.name, n, 0);
		copy_store(kind, place, copy, operation.before);
		died = die_at(&scene, &operation, NULL, n);
		check_scene(&scene, &operation);
		harness_remove(copy);
		n += 1 + (!all && n > 48 ? n / 4 : 0);
	}
	harness_progress_end();
	free(copy);
	free(place);
	free(master);
}

/* ---- One after another ----------------------------------------------------------- */

static enum kiln_status put_large(struct scene *scene)
{
	static unsigned char value[LARGE];

	return scene->tier->ops->put(scene->tier, scene->key, "metadata", 8,
				     value, sizeof(value), KILN_PUT_REPLACE);
}

/* Of what they leave there is soon more than fits. */
static void the_dead_do_not_fill_the_store(void **state)
{
	static const struct operation put = { .name = "put", .run = put_large };
	static const char *const calls[] = { "rename", "link", "pwritev",
					     "unlock" };
	char *directory = harness_directory();
	struct kiln_tier *tier = open_real(kind, directory);
	struct fault fault;
	struct scene scene = { .kind = kind,
			       .fault = &fault,
			       .directory = directory,
			       .key = numbered_key(1) };

	for (unsigned i = 0; i < 2 * BOUND / LARGE; i++)
		for (unsigned k = 0; k < sizeof(calls) / sizeof(calls[0]); k++)
			(void)die_at(&scene, &put, calls[k], 1 + i % 2);
	assert_int_equal(put_numbered(tier, 2, LARGE, 0), KILN_OK);
	assert_int_equal(get_numbered(tier, 2), KILN_OK);
	assert_true(kind_disk_bytes(kind, directory) <= BOUND);
	tier->ops->close(tier);
	kiln_key_free(scene.key);
	free(directory);
}

/* ---- At random ------------------------------------------------------------------- */

struct worker {
	pid_t pid;
	int pipe; /* a byte for each operation */
};

static struct kiln_tier *open_small(const char *directory)
{
	struct ki_store_options options = { .sys = &ki_sys_posix,
					    .directory = directory,
					    .bytes_max = BOUND };
	struct kiln_tier *tier;

	return kind->open(&options, &tier) ? NULL : tier;
}

static enum kiln_status remove_numbered(struct kiln_tier *tier, unsigned n)
{
	struct kiln_key *key = numbered_key(n);
	enum kiln_status status = tier->ops->remove(tier, key);

	kiln_key_free(key);
	return status;
}

/* One operation; not 0 is a reason to fail. */
static int work_once(struct kiln_tier *tier, uint64_t *random)
{
	uint64_t chance = harness_random(random);
	unsigned n = (unsigned)(chance >> 8) % N_KEYS;
	size_t size = 8 + (size_t)(chance >> 20) % 90000;
	int status;

	switch (chance % 16) {
	case 0:
	case 1:
	case 2:
		status = put_numbered(tier, n, size, KILN_PUT_REPLACE);
		return status == KILN_E_FORMAT || status == KILN_E_COLLISION;
	case 3:
	case 4:
	case 5:
		status = put_numbered(tier, n, size, 0);
		return status == KILN_E_FORMAT || status == KILN_E_COLLISION;
	case 6:
		status = remove_numbered(tier, n);
		return status != KILN_OK && status != KILN_MISS &&
		       status != KILN_E_TIMEOUT;
	default:
		status = get_numbered(tier, n);
		return status != KILN_OK && status != KILN_MISS;
	}
}

static int work(const char *directory, uint64_t random, int out)
{
	struct kiln_tier *tier = open_small(directory);

	if (!tier)
		return 2;
	for (;;) {
		char byte = (char)work_once(tier, &random);

		if (write(out, &byte, 1) != 1)
			return 3;
		if (byte)
			return 4;
		/* Some come and go. */
		if (!(harness_random(&random) % 256)) {
			tier->ops->close(tier);
			tier = open_small(directory);
			if (!tier)
				return 5;
		}
	}
}

static void start(struct worker *worker, const char *directory, uint64_t random)
{
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	worker->pid = fork();
	assert_true(worker->pid >= 0);
	if (!worker->pid) {
		signal(SIGPIPE, SIG_IGN);
		close(ends[0]);
		_exit(work(directory, random, ends[1]));
	}
	close(ends[1]);
	worker->pipe = ends[0];
}

/* Wait for some operations of one worker; 0 if it hangs or has failed. */
static int follow(const struct worker *worker, unsigned n_operations)
{
	while (n_operations) {
		struct pollfd fd = { .fd = worker->pipe, .events = POLLIN };
		char bytes[256];
		ssize_t n;

		if (poll(&fd, 1, STUCK_MS) <= 0)
			return 0;
		n = read(worker->pipe, bytes,
			 n_operations < sizeof(bytes) ? n_operations
						      : sizeof(bytes));
		if (n <= 0 || memchr(bytes, 1, (size_t)n))
			return 0;
		n_operations -= (unsigned)n;
	}
	return 1;
}

static void stop(struct worker *worker)
{
	int status;

	kill(worker->pid, SIGKILL);
	while (waitpid(worker->pid, &status, 0) < 0 && errno == EINTR)
		;
	close(worker->pipe);
	if (!WIFSIGNALED(status))
		fail_msg("seed %llu: a process ended by itself: %d",
			 (unsigned long long)seed, WEXITSTATUS(status));
}

static void look_at(const char *directory, unsigned n_killed)
{
	struct kiln_tier *tier = open_small(directory);
	struct kiln_store_info info;
	struct kiln_verify_report report;

	assert_non_null(tier);
	for (unsigned n = 0; n < N_KEYS; n++) {
		int status = get_numbered(tier, n);

		if (status != KILN_OK && status != KILN_MISS)
			fail_msg("seed %llu, after %u kills: entry %u: %d",
				 (unsigned long long)seed, n_killed, n, status);
	}
	/* Enough for several rolls. */
	for (unsigned n = 0; n < 40; n++)
		assert_int_equal(
			put_numbered(tier, 1000 + n, 60000, KILN_PUT_REPLACE),
			KILN_OK);
	assert_int_equal(tier->ops->info(tier, &info), KILN_OK);
	if (info.bytes > BOUND)
		fail_msg("seed %llu, after %u kills: %llu bytes",
			 (unsigned long long)seed, n_killed,
			 (unsigned long long)info.bytes);
	assert_int_equal(tier->ops->verify(tier, 0, NULL, NULL, &report),
			 KILN_OK);
	assert_int_equal(report.n_damaged, 0);
	tier->ops->close(tier);
}

static void killed_at_random(void **state)
{
	char *directory = harness_directory();
	struct worker workers[N_WORKERS];
	uint64_t random = seed;
	unsigned i;

	fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
	for (i = 0; i < N_WORKERS; i++)
		start(&workers[i], directory, harness_random(&random));
	for (i = 0; i < n_kills; i++) {
		struct worker *victim =
			&workers[harness_random(&random) % N_WORKERS];

		harness_progress("kills", i, n_kills);
		if (!follow(victim,
			    1 + (unsigned)(harness_random(&random) % 20)))
			fail_msg("seed %llu: after %u kills a process hangs or "
				 "got wrong bytes",
				 (unsigned long long)seed, i);
		stop(victim);
		start(victim, directory, harness_random(&random));
	}
	harness_progress_end();
	/* Nobody waits for the dead. */
	for (i = 0; i < N_WORKERS; i++)
		if (!follow(&workers[i], 30))
			fail_msg("seed %llu: a process hangs or got wrong "
				 "bytes",
				 (unsigned long long)seed);
	for (i = 0; i < N_WORKERS; i++)
		stop(&workers[i]);
	look_at(directory, n_kills);
	free(directory);
}

/* ---- Begin ----------------------------------------------------------------------- */

static int read_arguments(int argc, char **argv)
{
	kind = kind_find("log");
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--kills") && i + 1 < argc)
			n_kills = (unsigned)strtoul(argv[++i], NULL, 10);
		else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
			seed = strtoull(argv[++i], NULL, 10);
		else if (!strcmp(argv[i], "--all"))
			all = 1;
		else
			kind = kind_find(argv[i]);
		if (!kind)
			return 0;
	}
	return 1;
}

int main(int argc, char **argv)
{
	struct CMUnitTest tests[N_OPERATIONS_MAX + 1];
	const struct operation *operation;
	size_t n = 0;
	int failed;

	seed = (uint64_t)time(NULL);
	if (!read_arguments(argc, argv)) {
		fprintf(stderr,
			"usage: crash [KIND] [--kills N] [--seed S] [--all]\n");
		return 2;
	}
	operations_begin();
	for (operation = operations; operation->name && n < N_OPERATIONS_MAX;
	     operation++)
		if (has_operation(kind, operation))
			tests[n++] = (struct CMUnitTest){
				.name = operation->name,
				.test_func = die_at_every_call,
				.initial_state = (void *)(uintptr_t)operation,
			};
	tests[n++] = (struct CMUnitTest)cmocka_unit_test(
		the_dead_do_not_fill_the_store);
	if (n_kills)
		tests[n++] =
			(struct CMUnitTest)cmocka_unit_test(killed_at_random);
	failed = _cmocka_run_group_tests(kind->name, tests, n, NULL, NULL);
	operations_end();
	return failed;
}
