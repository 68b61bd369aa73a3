/* SPDX-License-Identifier: MIT */

/*
 * Many processes, one store.  A child that finds wrong bytes aborts, one that
 * finds something else wrong returns a number; parents only look at how
 * children ended.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"

#include "store/log/log_test.h"

#define N_PROCESSES 8
#define N_ROUNDS    200

struct shared {
	struct store store;
	_Atomic unsigned n_created[64];
	_Atomic unsigned n_operations;
	_Atomic unsigned n_ready;
	_Atomic unsigned n_winners[N_ROUNDS];
	size_t size_read[N_PROCESSES][N_ROUNDS];
	size_t size_max;
};

static struct shared *share(uint64_t bytes_max)
{
	struct shared *shared =
		mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(shared, MAP_FAILED);
	shared->store = store_new(bytes_max, 0);
	store_close(&shared->store);
	return shared;
}

static void unshare_it(struct shared *shared)
{
	store_free(&shared->store);
	munmap(shared, sizeof(*shared));
}

static uint32_t way_of(unsigned index)
{
	static const uint32_t ways[] = { 0, KILN_OPEN_COPY, KILN_OPEN_GUEST };

	return ways[index % 3];
}

/* ---- Exactly once ---------------------------------------------------- */

static int create_all(unsigned index, void *arg)
{
	struct shared *shared = arg;
	struct store store = store_beside(&shared->store, way_of(index));
	unsigned i;
	size_t size;

	for (i = 0; i < 64; i++) {
		enum kiln_status status =
			store_put_patiently(&store, i, index + 1);

		if (status == KILN_OK)
			shared->n_created[i]++;
		else if (status != KILN_EXISTS)
			return 1;
		if (store_get_any(&store, i, &size))
			return 2;
	}
	store_close(&store);
	return 0;
}

static void of_many_creators_exactly_one_succeeds(void **state)
{
	struct shared *shared = share(8 << 20);
	unsigned i;

	assert_int_equal(harness_processes(N_PROCESSES, create_all, shared,
					   HARNESS_HANG_S),
			 0);
	for (i = 0; i < 64; i++)
		assert_int_equal(shared->n_created[i], 1);
	unshare_it(shared);
}

/* All at once, key by key; each process has a size of its own. */
static int create_together(unsigned index, void *arg)
{
	struct shared *shared = arg;
	struct store store = store_beside(&shared->store, way_of(index));
	unsigned round;

	for (round = 0; round < N_ROUNDS; round++) {
		size_t size = round % 8 ? 100 : 200000;
		enum kiln_status status;

		shared->n_ready++;
		while (shared->n_ready < (round + 1) * N_PROCESSES)
			sched_yield();
		status = store_put_patiently(&store, round, size + index);
		if (status == KILN_OK)
			shared->n_winners[round]++;
		else if (status != KILN_EXISTS)
			return 1;
		if (store_get_any(&store, round,
				  &shared->size_read[index][round]))
			return 2;
	}
	store_close(&store);
	return 0;
}

static void of_all_who_create_at_once_one_wins_and_all_read_its_value(
	void **state)
{
	struct shared *shared = share(32 << 20);
	unsigned i, round;

	assert_int_equal(harness_processes(N_PROCESSES, create_together, shared,
					   HARNESS_HANG_S),
			 0);
	for (round = 0; round < N_ROUNDS; round++) {
		assert_int_equal(shared->n_winners[round], 1);
		for (i = 1; i < N_PROCESSES; i++)
			assert_int_equal(shared->size_read[i][round],
					 shared->size_read[0][round]);
	}
	unshare_it(shared);
}

static int open_it(unsigned index, void *arg)
{
	struct shared *shared = arg;
	struct store store = store_beside(&shared->store, way_of(index));
	int failed = store_put_patiently(&store, index, 1000) ||
		     store_get(&store, index, 1000);

	store_close(&store);
	return failed;
}

static void a_store_made_by_many_at_once_is_one(void **state)
{
	struct shared *shared = share(8 << 20);
	struct store store;
	unsigned i;

	harness_remove(shared->store.directory);
	assert_int_equal(
		harness_processes(N_PROCESSES, open_it, shared, HARNESS_HANG_S),
		0);
	store = store_beside(&shared->store, 0);
	for (i = 0; i < N_PROCESSES; i++)
		assert_int_equal(store_get(&store, i, 1000), KILN_OK);
	store_free(&store);
	unshare_it(shared);
}

/* ---- What was removed or replaced ------------------------------------ */

/* Each process has a key of its own, and crowds the store with others. */
static int put_and_remove(unsigned index, void *arg)
{
	struct shared *shared = arg;
	struct store store = store_beside(&shared->store, way_of(index));
	uint64_t random = index;
	unsigned i;
	size_t size;

	for (i = 0; i < 300; i++) {
		enum kiln_status status = store_put(&store, index, 700, 0);

		if (status != KILN_OK && status != KILN_E_TIMEOUT)
			return 1;
		(void)store_get_any(&store, index, &size);
		status = store_put(
			&store,
			1000 + (unsigned)(harness_random(&random) % 100000),
			(size_t)(harness_random(&random) % 4000), 0);
		if (status < 0 && status != KILN_E_TIMEOUT)
			return 2;
		status = store_remove(&store, index);
		if (status < 0)
			return 3;
		if (store_get_any(&store, index, &size) != KILN_MISS)
			return 4;
	}
	store_close(&store);
	return 0;
}

static void a_removed_entry_never_comes_back(void **state)
{
	struct shared *shared = share(1 << 20);

	assert_int_equal(
		harness_processes(4, put_and_remove, shared, HARNESS_HANG_S),
		0);
	unshare_it(shared);
}

/* Own keys, ever longer values: what is found is never older than the last. */
static int replace(unsigned index, void *arg)
{
	struct shared *shared = arg;
	struct store store = store_beside(&shared->store, way_of(index));
	size_t size, i;

	for (i = 1; i < 300; i++) {
		enum kiln_status status =
			store_put(&store, index, i * 10, KILN_PUT_REPLACE);

		if (status)
			return status == KILN_E_TIMEOUT ? 0 : 1;
		if (!store_get_any(&store, index, &size) && size != i * 10)
			return 2;
		status = store_put(&store, 100, i * 10, KILN_PUT_REPLACE);
		if (status && status != KILN_E_TIMEOUT)
			return 3;
	}
	store_close(&store);
	return 0;
}

static void a_replaced_value_never_comes_back(void **state)
{
	struct shared *shared = share(1 << 20);

	assert_int_equal(harness_processes(4, replace, shared, HARNESS_HANG_S),
			 0);
	unshare_it(shared);
}

/* ---- Growth, wipes, disappearance under load ------------------------- */

static int put_small(unsigned index, void *arg)
{
	struct shared *shared = arg;
	struct store store = store_beside(&shared->store, way_of(index));
	unsigned i;

	for (i = 0; i < 300; i++) {
		unsigned number = index * 1000 + i;
		enum kiln_status status;
		unsigned tries = 0;

		do {
			status = store_put(&store, number, 8, 0);
		} while (status == KILN_E_TIMEOUT && ++tries < 1000);
		if (status)
			return 1;
		if (store_get(&store, number, 8))
			return 2;
	}
	store_close(&store);
	return 0;
}

static void the_index_grows_under_load(void **state)
{
	struct shared *shared = share(1 << 20);
	struct store store;
	unsigned i, lost = 0;

	assert_int_equal(
		harness_processes(4, put_small, shared, HARNESS_HANG_S), 0);
	store = store_beside(&shared->store, 0);
	assert_true(((struct ki_log *)store.tier)->index->header->n_grown > 0);
	for (i = 0; i < 1200; i++)
		lost += store_get(&store, i / 300 * 1000 + i % 300, 8) !=
			KILN_OK;
	assert_in_range(lost, 0, 12);
	store_free(&store);
	unshare_it(shared);
}

static int put_through_changes(unsigned index, void *arg)
{
	struct shared *shared = arg;
	struct store store = store_beside(&shared->store, way_of(index));
	unsigned i;
	size_t size;

	for (i = 0; i < 200; i++) {
		unsigned number = index * 1000 + i;

		if (index == 0 && i % 20 == 0) {
			enum kiln_status status =
				store.tier->ops->wipe(store.tier);

			if (status && status != KILN_E_TIMEOUT)
				return 1;
		}
		if (index == 1 && i % 70 == 50)
			harness_remove(store.options.directory);
		(void)store_put(&store, number, 500, 0);
		(void)store_get_any(&store, number, &size);
	}
	store_close(&store);
	return 0;
}

static void wipes_and_disappearance_under_load_hurt_nobody(void **state)
{
	struct shared *shared = share(1 << 20);
	struct store store;

	assert_int_equal(harness_processes(4, put_through_changes, shared,
					   HARNESS_HANG_S),
			 0);
	store = store_beside(&shared->store, 0);
	assert_int_equal(store_put(&store, 9999, 100, 0), KILN_OK);
	assert_int_equal(store_get(&store, 9999, 100), KILN_OK);
	store_free(&store);
	unshare_it(shared);
}

/* ---- Killed at random ------------------------------------------------ */

static void work(struct shared *shared, unsigned seed)
{
	struct store store = store_beside(&shared->store, way_of(seed));
	uint64_t random = seed;
	size_t size;

	for (;; shared->n_operations++) {
		unsigned what = (unsigned)(harness_random(&random) % 100);
		unsigned number = (unsigned)(harness_random(&random) % 3000);
		enum kiln_status status;

		size = (size_t)(harness_random(&random) % shared->size_max);
		if (what == 0)
			size *= 100;
		if (what < 50)
			status = store_put(&store, number, size,
					   what % 2 ? KILN_PUT_REPLACE : 0);
		else if (what < 98)
			status = store_get_any(&store, number, &size);
		else
			status = store_remove(&store, number);
		if (status < 0 && status != KILN_E_TIMEOUT &&
		    status != KILN_E_FULL) {
			fprintf(stderr, "%u: %s\n", what,
				kiln_status_name(status));
			_exit(1);
		}
	}
}

static uint64_t directory_bytes(const char *path)
{
	uint64_t bytes = 0;
	DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		struct stat st;

		if (!fstatat(dirfd(dir), entry->d_name, &st,
			     AT_SYMLINK_NOFOLLOW) &&
		    S_ISREG(st.st_mode))
			bytes += (uint64_t)(st.st_size > st.st_blocks * 512
						    ? st.st_size
						    : st.st_blocks * 512);
	}
	if (dir)
		closedir(dir);
	return bytes;
}

static void kill_and_check(uint64_t bytes_max, size_t size_max,
			   unsigned n_kills)
{
	struct shared *shared = share(bytes_max);
	struct kiln_verify_report report;
	struct store store;
	pid_t pids[4];
	unsigned i, kills, n_started = 0, n_wrong = 0;
	uint64_t random = 11;
	int status;

	shared->size_max = size_max;
	for (i = 0; i < 4; i++) {
		pids[i] = fork();
		if (!pids[i])
			work(shared, n_started);
		n_started++;
	}
	for (kills = 0; kills < n_kills; kills++) {
		unsigned until = shared->n_operations +
				 (unsigned)(harness_random(&random) % 400);

		while (shared->n_operations < until)
			sched_yield();
		i = kills % 4;
		kill(pids[i], SIGKILL);
		waitpid(pids[i], &status, 0);
		n_wrong += !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL;
		pids[i] = fork();
		if (!pids[i])
			work(shared, n_started);
		n_started++;
	}
	for (i = 0; i < 4; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], &status, 0);
		n_wrong += !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL;
	}
	assert_int_equal(n_wrong, 0);
	store = store_beside(&shared->store, 0);
	assert_int_equal(
		store.tier->ops->verify(store.tier, 0, NULL, NULL, &report),
		KILN_OK);
	assert_int_equal(report.n_damaged, 0);
	for (i = 10000; i < 10100; i++)
		assert_int_equal(store_put(&store, i, 3000, 0), KILN_OK);
	for (i = 10000; i < 10100; i++)
		assert_int_equal(store_get(&store, i, 3000), KILN_OK);
	assert_true(directory_bytes(shared->store.directory) <= bytes_max);
	store_free(&store);
	unshare_it(shared);
}

/* Rolls and large files in one store, growth in the other. */
static void processes_killed_at_random_leave_a_sound_store(void **state)
{
	kill_and_check(4 << 20, 6000, 100);
	kill_and_check(2 << 20, 60, 60);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_many_creators_exactly_one_succeeds),
		cmocka_unit_test(
			of_all_who_create_at_once_one_wins_and_all_read_its_value),
		cmocka_unit_test(a_store_made_by_many_at_once_is_one),
		cmocka_unit_test(a_removed_entry_never_comes_back),
		cmocka_unit_test(a_replaced_value_never_comes_back),
		cmocka_unit_test(the_index_grows_under_load),
		cmocka_unit_test(
			wipes_and_disappearance_under_load_hurt_nobody),
		cmocka_unit_test(
			processes_killed_at_random_leave_a_sound_store),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
