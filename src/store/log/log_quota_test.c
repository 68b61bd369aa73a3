/* SPDX-License-Identifier: MIT */

/*
 * The quota: what is counted, that it holds whoever puts at the same time, and
 * that nothing stays counted of what is not there.
 */

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"

#include "store/log/log_test.h"

#define KEY_BYTES 104u /* of the fields of test_key() */
#define SIZE	  200u
#define ONE	  (KEY_BYTES + SIZE)
#define N_FIT	  300u
#define N_AT_ONCE 4u
#define KEYS_EACH 150u

static struct store store_of(uint64_t quota_bytes)
{
	struct store store = { .directory = harness_directory() };

	store.options = (struct ki_store_options){
		.sys = &ki_sys_posix,
		.directory = store.directory,
		.quota_bytes = quota_bytes,
		.flags = KILN_OPEN_SESSION | KILN_OPEN_REFUSE_FULL,
	};
	store_open(&store);
	return store;
}

/* How many of the keys below `n` are there. */
static unsigned n_there(struct store *store, unsigned n)
{
	unsigned i, n_found = 0;
	size_t size;

	for (i = 0; i < n; i++)
		n_found += !store_get_any(store, i, &size);
	return n_found;
}

/* ---- What is counted ----------------------------------------------------- */

static void what_comes_to_the_quota_fits_and_a_byte_more_does_not(void **state)
{
	struct store store = store_of(3 * ONE + 1);
	struct kiln_store_info info;
	unsigned i;

	for (i = 0; i < 3; i++)
		assert_int_equal(store_put(&store, i, SIZE, 0), KILN_OK);
	assert_int_equal(store_put(&store, 3, SIZE, 0), KILN_E_FULL);
	assert_int_equal(n_there(&store, 4), 3);
	assert_int_equal(store.tier->ops->info(store.tier, &info), KILN_OK);
	assert_int_equal(info.quota_bytes, 3 * ONE + 1);
	assert_int_equal(info.quota_used, 3 * ONE);
	store_free(&store);

	store = store_of(3 * ONE);
	assert_int_equal(store_put(&store, 0, SIZE + 1, 0), KILN_OK);
	assert_int_equal(store_put(&store, 1, SIZE, 0), KILN_OK);
	assert_int_equal(store_put(&store, 2, SIZE, 0), KILN_E_FULL);
	assert_int_equal(store_put(&store, 2, SIZE - 1, 0), KILN_OK);
	store_free(&store);
}

static void one_byte_is_a_quota(void **state)
{
	struct store store = store_of(1);

	assert_int_equal(store_put(&store, 0, 1, 0), KILN_E_FULL);
	assert_int_equal(n_there(&store, 1), 0);
	store_free(&store);
}

/* Native sessions count them, and answer CACHE_FULL in the end. */
static void a_refused_duplicate_costs_nothing(void **state)
{
	struct store store = store_of(2 * ONE);
	unsigned i;

	assert_int_equal(store_put(&store, 0, SIZE, 0), KILN_OK);
	for (i = 0; i < 50; i++)
		assert_int_equal(store_put(&store, 0, SIZE, 0), KILN_EXISTS);
	assert_int_equal(store_put(&store, 1, SIZE, 0), KILN_OK);
	assert_int_equal(store_put(&store, 0, SIZE, 0), KILN_EXISTS);
	store_free(&store);
}

static void what_is_removed_is_given_back(void **state)
{
	struct store store = store_of(2 * ONE);
	unsigned i;

	for (i = 0; i < 20; i++) {
		assert_int_equal(store_put(&store, 2 * i, SIZE, 0), KILN_OK);
		assert_int_equal(store_put(&store, 2 * i + 1, SIZE, 0),
				 KILN_OK);
		assert_int_equal(store_put(&store, 1000, SIZE, 0), KILN_E_FULL);
		assert_int_equal(store_remove(&store, 2 * i), KILN_OK);
		assert_int_equal(store_remove(&store, 2 * i + 1), KILN_OK);
	}
	assert_int_equal(store_put(&store, 2, SIZE, 0), KILN_OK);
	assert_int_equal(store.tier->ops->wipe(store.tier), KILN_OK);
	assert_int_equal(store_put(&store, 2, 2 * SIZE, 0), KILN_OK);
	store_free(&store);
}

static void large_values_count_too(void **state)
{
	struct store store = store_of(KEY_BYTES + (3 << 20) + ONE);

	assert_int_equal(store_put(&store, 0, (3 << 20) + SIZE, 0), KILN_OK);
	assert_int_equal(store_put(&store, 1, SIZE + 1, 0), KILN_E_FULL);
	assert_int_equal(store_remove(&store, 0), KILN_OK);
	assert_int_equal(store_put(&store, 1, 3 << 20, 0), KILN_OK);
	assert_int_equal(store_put(&store, 2, SIZE, 0), KILN_OK);
	store_free(&store);
}

/* ---- On disk ----------------------------------------------------------------- */

static uint64_t bytes_on_disk(struct store *store)
{
	struct log_census census;
	uint64_t bytes;

	assert_int_equal(
		ki_log_census_take((struct ki_log *)store->tier, 0, &census),
		KILN_OK);
	bytes = census.bytes - KI_COUNTERS_BYTES - KI_LOCKS_BYTES;
	ki_log_census_fini(&census);
	return bytes;
}

/* Not the 33 MB of a store that has neither bound nor quota. */
static void a_small_quota_takes_little_disk(void **state)
{
	static const struct {
		uint64_t quota, empty, with_one;
	} cases[] = {
		{ 1, 16 << 10, 16 << 10 },
		{ ONE, 16 << 10, 20 << 10 },
		{ 64 << 10, 16 << 10, 32 << 10 },
		{ 1 << 20, 16 << 10, 272 << 10 },
		{ 128 << 20, 608 << 10, 864 << 10 },
		{ 1 << 30, 608 << 10, 864 << 10 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct store store = store_of(cases[i].quota);

		assert_in_range(bytes_on_disk(&store), 1, cases[i].empty);
		assert_int_equal(store_put(&store, 0, SIZE, 0),
				 i ? KILN_OK : KILN_E_FULL);
		assert_in_range(bytes_on_disk(&store), 1, cases[i].with_one);
		store_free(&store);
	}
}

/* Segments double while there are few, whatever the values' sizes. */
static void what_is_set_aside_follows_what_is_there(void **state)
{
	static const size_t sizes[] = { 4000, 60000, 500000, 1000000 };
	const uint64_t quota = 48 << 20;
	struct store store = store_of(quota);
	uint64_t used = 0;
	unsigned i;

	for (i = 0;; i++) {
		size_t size = sizes[i % 4];

		if (used + KEY_BYTES + size > quota)
			break;
		assert_int_equal(store_put(&store, i, size, 0), KILN_OK);
		used += KEY_BYTES + size;
		assert_in_range(bytes_on_disk(&store), used,
				(2 << 20) + 3 * used);
	}
	assert_int_equal(store_put(&store, i, sizes[i % 4], 0), KILN_E_FULL);
	assert_int_equal(n_there(&store, i), i);
	store_reopen(&store);
	assert_int_equal(n_there(&store, i), i);
	store_free(&store);
}

/* ---- Opening ---------------------------------------------------------------- */

static void the_first_session_says_how_much(void **state)
{
	struct store store = store_of(2 * ONE), second;

	assert_int_equal(store_put(&store, 0, SIZE, 0), KILN_OK);
	second = store;
	second.directory = NULL;
	second.options.quota_bytes = 100 * ONE;
	store_open(&second);
	assert_int_equal(store_put(&second, 1, SIZE, 0), KILN_OK);
	assert_int_equal(store_put(&second, 2, SIZE, 0), KILN_E_FULL);
	store_close(&second);
	assert_int_equal(store_put(&store, 2, SIZE, 0), KILN_E_FULL);

	/* With all closed another is the first; what is there counts. */
	store.options.quota_bytes = 3 * ONE;
	store_reopen(&store);
	assert_int_equal(store_put(&store, 2, SIZE, 0), KILN_OK);
	assert_int_equal(store_put(&store, 3, SIZE, 0), KILN_E_FULL);
	store.options.quota_bytes = 0;
	store_reopen(&store);
	assert_int_equal(store_put(&store, 3, SIZE, 0), KILN_OK);
	store.options.quota_bytes = 5 * ONE;
	store_reopen(&store);
	assert_int_equal(store_put(&store, 4, SIZE, 0), KILN_OK);
	assert_int_equal(store_put(&store, 5, SIZE, 0), KILN_E_FULL);
	store_free(&store);
}

static void an_index_made_anew_counts_what_is_there(void **state)
{
	struct store store = store_of(3 * ONE);
	char *index = harness_path(store.options.directory, "kiln.idx");

	assert_int_equal(store_put(&store, 0, SIZE, 0), KILN_OK);
	assert_int_equal(store_put(&store, 1, SIZE, 0), KILN_OK);
	assert_int_equal(unlink(index), 0);
	assert_int_equal(store_put(&store, 2, SIZE, 0), KILN_OK);
	assert_int_equal(store_put(&store, 3, SIZE, 0), KILN_E_FULL);
	assert_int_equal(n_there(&store, 4), 3);
	free(index);
	store_free(&store);
}

static void a_larger_index_counts_on(void **state)
{
	struct store store = store_of(6000 * ONE);
	unsigned i;

	store_close(&store);
	harness_remove(store.options.directory);
	store.options.bytes_max = 8 << 20;
	store_open(&store);
	for (i = 0; i < 6000; i++)
		assert_int_equal(store_put(&store, i, SIZE, 0), KILN_OK);
	assert_true(store_index(&store)->header->n_grown > 0);
	assert_int_equal(store_put(&store, i, SIZE, 0), KILN_E_FULL);
	store_free(&store);
}

/* ---- Together ---------------------------------------------------------------- */

struct crowd {
	struct store store;
	_Atomic unsigned n_put;
	_Atomic unsigned n_wrong;
	_Atomic unsigned n_begun;
	unsigned same; /* keys that all put */
};

static struct crowd *crowd_of(uint64_t quota_bytes)
{
	struct crowd *crowd = mmap(NULL, sizeof(*crowd), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(crowd, MAP_FAILED);
	crowd->store = store_of(quota_bytes);
	return crowd;
}

static void disband(struct crowd *crowd)
{
	store_free(&crowd->store);
	munmap(crowd, sizeof(*crowd));
}

static void put_all(struct crowd *crowd, struct store *store, unsigned index)
{
	unsigned i;

	for (i = 0; i < KEYS_EACH; i++) {
		unsigned number =
			crowd->same ? i % crowd->same : index * KEYS_EACH + i;
		enum kiln_status status;

		crowd->n_begun++;
		status = store_put_patiently(store, number, SIZE);
		if (!status)
			crowd->n_put++;
		else if (status != KILN_E_FULL && status != KILN_EXISTS)
			crowd->n_wrong++;
	}
}

static int put_by_own(unsigned index, void *arg)
{
	struct crowd *crowd = arg;
	struct store store = crowd->store;

	store.directory = NULL;
	store_open(&store);
	put_all(crowd, &store, index);
	store_close(&store);
	return 0;
}

static int put_by_shared(unsigned index, void *arg)
{
	struct crowd *crowd = arg;

	put_all(crowd, &crowd->store, index);
	return 0;
}

static void many_fill_it_to_the_byte(void **state)
{
	static const struct {
		int by_processes;
		unsigned same;
	} rows[] = { { 1, 0 }, { 0, 0 }, { 1, 120 }, { 0, 120 } };
	size_t r;

	for (r = 0; r < 4; r++) {
		unsigned n_fit = rows[r].same ? rows[r].same : N_FIT;
		struct crowd *crowd = crowd_of((uint64_t)n_fit * ONE);

		crowd->same = rows[r].same;
		if (rows[r].by_processes)
			assert_int_equal(harness_processes(N_AT_ONCE,
							   put_by_own, crowd,
							   HARNESS_HANG_S),
					 0);
		else
			assert_int_equal(harness_threads(N_AT_ONCE,
							 put_by_shared, crowd),
					 0);
		assert_int_equal(crowd->n_wrong, 0);
		assert_int_equal(crowd->n_put, n_fit);
		assert_int_equal(n_there(&crowd->store, N_AT_ONCE * KEYS_EACH),
				 n_fit);
		assert_int_equal(store_put(&crowd->store, 9999, 0, 0),
				 KILN_E_FULL);
		disband(crowd);
	}
}

/* A child dies wherever it is when it has begun so many puts.  What it was at
   costs nothing in the end. */
static void what_the_killed_were_at_does_not_count(void **state)
{
	uint64_t seed = 5;
	unsigned round;

	for (round = 0; round < 20; round++) {
		struct crowd *crowd = crowd_of((uint64_t)N_FIT * ONE);
		unsigned until = 1 + harness_random(&seed) % KEYS_EACH, i, n;
		pid_t pid = fork();

		if (!pid) {
			put_by_own(0, crowd);
			_exit(0);
		}
		while (crowd->n_begun < until)
			;
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		n = n_there(&crowd->store, KEYS_EACH);
		for (i = 1000; n < N_FIT; i++, n++)
			assert_int_equal(
				store_put_patiently(&crowd->store, i, SIZE),
				KILN_OK);
		assert_int_equal(store_put(&crowd->store, i, SIZE, 0),
				 KILN_E_FULL);
		disband(crowd);
	}
}

/* The same in the midst of others, who find out. */
static void the_others_fill_it_to_the_byte_all_the_same(void **state)
{
	uint64_t seed = 11;
	unsigned round, i, n;

	for (round = 0; round < 8; round++) {
		struct crowd *crowd = crowd_of((uint64_t)N_FIT * ONE);
		pid_t pids[N_AT_ONCE];

		for (i = 0; i < N_AT_ONCE; i++) {
			pids[i] = fork();
			if (!pids[i]) {
				put_by_own(i, crowd);
				_exit(0);
			}
		}
		for (i = 0; i < N_AT_ONCE / 2; i++) {
			/* Of what those begin that are not killed. */
			unsigned until = i * KEYS_EACH + 1 +
					 harness_random(&seed) % KEYS_EACH;

			while (crowd->n_begun < until)
				;
			kill(pids[i], SIGKILL);
		}
		for (i = 0; i < N_AT_ONCE; i++)
			assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
		assert_int_equal(crowd->n_wrong, 0);
		n = n_there(&crowd->store, N_AT_ONCE * KEYS_EACH);
		assert_in_range(n, crowd->n_put, N_FIT);
		for (i = 1000; n < N_FIT; i++, n++)
			assert_int_equal(
				store_put_patiently(&crowd->store, i, SIZE),
				KILN_OK);
		assert_int_equal(store_put(&crowd->store, i, SIZE, 0),
				 KILN_E_FULL);
		disband(crowd);
	}
}

/* Keys that come and go: what is there in the end is all that counts. */
static int come_and_go(unsigned index, void *arg)
{
	struct crowd *crowd = arg;
	struct store store = crowd->store;
	uint64_t seed = index;
	unsigned i;

	store.directory = NULL;
	store_open(&store);
	for (i = 0; i < 2 * KEYS_EACH; i++) {
		unsigned number = harness_random(&seed) % 40;
		enum kiln_status status =
			harness_random(&seed) % 2
				? store_remove(&store, number)
				: store_put_patiently(&store, number, SIZE);

		if (status < 0 && status != KILN_E_FULL &&
		    status != KILN_E_TIMEOUT)
			crowd->n_wrong++;
	}
	store_close(&store);
	return 0;
}

static void what_came_and_went_does_not_count(void **state)
{
	struct crowd *crowd = crowd_of(10 * ONE);
	unsigned i, n;

	assert_int_equal(harness_processes(N_AT_ONCE, come_and_go, crowd,
					   HARNESS_HANG_S),
			 0);
	assert_int_equal(crowd->n_wrong, 0);
	n = n_there(&crowd->store, 40);
	assert_in_range(n, 0, 10);
	for (i = 1000; n < 10; i++, n++)
		assert_int_equal(store_put_patiently(&crowd->store, i, SIZE),
				 KILN_OK);
	assert_int_equal(store_put(&crowd->store, i, SIZE, 0), KILN_E_FULL);
	disband(crowd);
}

/* As a put leaves it that was killed between adding and its word; then one that
   is stopped there. */
static void a_claim_of_a_dead_one_is_found_out(void **state)
{
	struct store store = store_of(2 * ONE);
	struct log_header *header = store_index(&store)->header;
	struct ki_process self = { 0 };
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(store_put(&store, 0, SIZE, 0), KILN_OK);
	header->claims[3].bytes = ONE;
	header->claims[3].start = 1;
	header->claims[3].process =
		(ki_process_name(&ki_sys_posix, &self) >> 32 << 32) |
		(uint32_t)pid;
	header->quota.used += ONE;
	assert_int_equal(store_put(&store, 1, SIZE, 0), KILN_OK);
	assert_int_equal(header->claims[3].process, 0);
	assert_int_equal(store_put(&store, 2, SIZE, 0), KILN_E_FULL);

	assert_int_equal(store_remove(&store, 1), KILN_OK);
	header->claims[3].bytes = ONE;
	header->claims[3].process = ki_process_name(&ki_sys_posix, &self);
	header->claims[3].start = self.start;
	header->quota.used += ONE;
	assert_int_equal(store_put(&store, 1, SIZE, 0), KILN_E_FULL);
	header->claims[3].bytes = 0;
	header->claims[3].process = 0;
	assert_int_equal(store_put(&store, 1, SIZE, 0), KILN_OK);
	assert_int_equal(store_put(&store, 2, SIZE, 0), KILN_E_FULL);
	store_free(&store);
}

/* While one counts, it waits for another's put; then comes a third. */
static struct store third;
static enum kiln_status third_got;

static void meanwhile(const struct ki_sys *sys, uint64_t ns)
{
	struct log_index *index = store_index(&third);
	struct log_claim claim;

	third_got =
		ki_log_quota_begin((struct ki_log *)third.tier, index, &claim);
	if (!third_got)
		third_got = ki_log_quota_take(index, 1, &claim);
	ki_log_quota_end(&claim);
	index->header->claims[3].bytes = 0;
	index->header->claims[3].process = 0;
}

static void nobody_adds_while_it_is_counted(void **state)
{
	struct ki_sys sys = ki_sys_posix;
	struct store store = store_of(2 * ONE);
	struct log_header *header;
	struct ki_process self = { 0 };

	assert_int_equal(store_put(&store, 0, SIZE - 1, 0), KILN_OK);
	third = store;
	third.directory = NULL;
	store_open(&third);
	sys.sleep_ns = meanwhile;
	store_close(&store);
	store.options.sys = &sys;
	store_open(&store);
	header = store_index(&store)->header;
	header->claims[3].process = ki_process_name(&ki_sys_posix, &self);
	header->claims[3].start = self.start;
	header->claims[3].bytes = 2;
	header->quota.used += 2;
	assert_int_equal(store_put(&store, 1, SIZE, 0), KILN_OK);
	assert_int_equal(third_got, KILN_E_FULL);
	assert_int_equal(header->quota.used, 2 * ONE - 1);
	store_close(&third);
	store_free(&store);
}

/* Nor does a process that counts and is killed at it leave it closed. */
static void closed_by_a_dead_one_it_is_opened_again(void **state)
{
	struct store store = store_of(2 * ONE);
	struct log_header *header = store_index(&store)->header;

	assert_int_equal(store_put(&store, 0, SIZE, 0), KILN_OK);
	header->quota.used |= LOG_QUOTA_CLOSED;
	assert_int_equal(store_put(&store, 1, SIZE, 0), KILN_OK);
	assert_int_equal(header->quota.used, 2 * ONE);
	store_free(&store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			what_comes_to_the_quota_fits_and_a_byte_more_does_not),
		cmocka_unit_test(one_byte_is_a_quota),
		cmocka_unit_test(a_refused_duplicate_costs_nothing),
		cmocka_unit_test(what_is_removed_is_given_back),
		cmocka_unit_test(large_values_count_too),
		cmocka_unit_test(a_small_quota_takes_little_disk),
		cmocka_unit_test(what_is_set_aside_follows_what_is_there),
		cmocka_unit_test(the_first_session_says_how_much),
		cmocka_unit_test(an_index_made_anew_counts_what_is_there),
		cmocka_unit_test(a_larger_index_counts_on),
		cmocka_unit_test(many_fill_it_to_the_byte),
		cmocka_unit_test(what_the_killed_were_at_does_not_count),
		cmocka_unit_test(the_others_fill_it_to_the_byte_all_the_same),
		cmocka_unit_test(what_came_and_went_does_not_count),
		cmocka_unit_test(a_claim_of_a_dead_one_is_found_out),
		cmocka_unit_test(nobody_adds_while_it_is_counted),
		cmocka_unit_test(closed_by_a_dead_one_it_is_opened_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
