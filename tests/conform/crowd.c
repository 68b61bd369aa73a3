/* SPDX-License-Identifier: MIT */

/* Many at once: threads of one handle, processes, and the locks between them. */

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conform/conform.h"

struct crowd {
	struct kiln_tier *tier;
	const char *directory;
	_Atomic int *n_won; /* shared by processes, as the next */
	pid_t *stranger;
};

/*
 * The lock to make room, the first time too, is waited for some ms and no
 * longer: on a busy machine puts are dropped.  Each is taken in the end.
 */
static enum kiln_status put_in_the_end(struct kiln_tier *tier, unsigned number,
				       size_t size, unsigned flags)
{
	enum kiln_status status;

	do {
		status = put_numbered(tier, number, size, flags);
	} while (status == KILN_E_TIMEOUT);
	return status;
}

/* Returns how many creations it won; 1000 for anything wrong. */
static int create_and_get(unsigned index, void *arg)
{
	struct crowd *crowd = arg;
	struct kiln_tier *tier = crowd->tier;
	int won = 0;

	for (unsigned n = 0; n < 50; n++) {
		enum kiln_status status = put_in_the_end(tier, n, 500, 0);

		if (status != KILN_OK && status != KILN_EXISTS)
			return 1000;
		won += status == KILN_OK;
		if (get_numbered(tier, n) != KILN_OK)
			return 1000;
		if (put_in_the_end(tier, 1000 + index, 500 + n,
				   KILN_PUT_REPLACE))
			return 1000;
		if (get_numbered(tier, 1000 + index) != KILN_OK)
			return 1000;
	}
	return won;
}

static void of_many_threads_one_creates(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory);
	struct crowd crowd = { .tier = tier };

	assert_int_equal(harness_threads(6, create_and_get, &crowd), 50);
	tier->ops->close(tier);
	free(directory);
}

/* Values replaced under a reader are the old one or the new one. */
static int replace_or_get(unsigned index, void *arg)
{
	struct crowd *crowd = arg;

	for (unsigned i = 0; i < 150; i++) {
		int status;

		if (index % 2)
			status = put_in_the_end(crowd->tier, 7, 100 + i * 97,
						KILN_PUT_REPLACE);
		else
			status = get_numbered(crowd->tier, 7);
		if (status)
			return 1;
	}
	return 0;
}

/* S24 */
static void a_reader_sees_the_old_value_or_the_new(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *tier = open_in(directory);
	struct crowd crowd = { .tier = tier };

	assert_int_equal(put_numbered(tier, 7, 100, 0), KILN_OK);
	assert_int_equal(harness_threads(4, replace_or_get, &crowd), 0);
	tier->ops->close(tier);
	free(directory);
}

/* ---- Processes ----------------------------------------------------------------- */

static int create_in_process(unsigned index, void *arg)
{
	struct crowd *crowd = arg;
	struct ki_store_options options = options_of(crowd->directory);
	struct kiln_tier *tier;
	int won = 0;

	if (kind->open(&options, &tier))
		return 1;
	for (unsigned n = 0; n < 100; n++) {
		enum kiln_status status = put_in_the_end(tier, n, 500, 0);

		if (status != KILN_OK && status != KILN_EXISTS)
			return 2;
		won += status == KILN_OK;
		if (get_numbered(tier, n) != KILN_OK)
			return 3;
	}
	tier->ops->close(tier);
	*crowd->n_won += won;
	return 0;
}

static void of_many_processes_one_creates(void **state)
{
	char *directory = harness_directory();
	struct crowd crowd = { .directory = directory };
	struct kiln_tier *tier;
	uint64_t bytes;

	crowd.n_won = mmap(NULL, sizeof(*crowd.n_won), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(crowd.n_won, MAP_FAILED);
	assert_int_equal(
		harness_processes(6, create_in_process, &crowd, HARNESS_HANG_S),
		0);
	assert_int_equal(*crowd.n_won, 100);
	munmap((void *)crowd.n_won, sizeof(*crowd.n_won));
	tier = open_in(directory);
	if (tier->ops->list)
		assert_int_equal(count_listed(tier, &bytes), 100);
	for (unsigned n = 0; n < 100; n++)
		assert_int_equal(get_numbered(tier, n), KILN_OK);
	tier->ops->close(tier);
	free(directory);
}

static int fill_in_process(unsigned index, void *arg)
{
	struct crowd *crowd = arg;
	struct ki_store_options options = options_of(crowd->directory);
	struct kiln_store_info info;
	struct kiln_tier *tier;

	options.bytes_max = BOUND;
	if (kind->open(&options, &tier))
		return 1;
	for (unsigned n = 0; n < 60; n++) {
		unsigned key = index * 1000 + n;
		int found;

		if (put_in_the_end(tier, key, 40000 + n, 0))
			return 2;
		found = get_numbered(tier, key);
		if (found != KILN_OK && found != KILN_MISS)
			return 3;
		if (n % 8 == 0 &&
		    (tier->ops->info(tier, &info) || info.bytes > BOUND)) {
			fprintf(stderr, "%llu bytes\n",
				(unsigned long long)info.bytes);
			return 4;
		}
	}
	tier->ops->close(tier);
	return 0;
}

/* S27 */
static void many_processes_keep_the_bound(void **state)
{
	char *directory = harness_directory();
	struct crowd crowd = { .directory = directory };
	struct kiln_tier *tier;

	assert_int_equal(
		harness_processes(6, fill_in_process, &crowd, HARNESS_HANG_S),
		0);
	tier = open_bounded(directory, BOUND, 0);
	assert_true(bytes_of(tier) <= BOUND);
	assert_true(disk_bytes(directory) <= BOUND);
	tier->ops->close(tier);
	free(directory);
}

/* ---- Build locks --------------------------------------------------------------- */

static void a_build_lock_has_one_holder(void **state)
{
	char *directory = harness_directory();
	struct kiln_tier *a = open_in(directory), *b = open_in(directory);
	struct kiln_key *one = numbered_key(1), *two = numbered_key(2);
	struct kiln_tier_lock *first, *second, *third;

	assert_int_equal(a->ops->lock(a, one, 0, &first), KILN_OK);
	assert_int_equal(b->ops->lock(b, one, 5, &second), KILN_E_TIMEOUT);
	assert_int_equal(a->ops->lock(a, one, 0, &second), KILN_E_TIMEOUT);
	assert_int_equal(b->ops->lock(b, two, 0, &second), KILN_OK);
	a->ops->unlock(a, first);
	assert_int_equal(b->ops->lock(b, one, 0, &third), KILN_OK);
	b->ops->unlock(b, third);
	b->ops->unlock(b, second);
	a->ops->close(a);
	b->ops->close(b);
	kiln_key_free(one);
	kiln_key_free(two);
	free(directory);
}

/* Descriptors that a program started now would have. */
static unsigned n_inherited(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++) {
		int flags = fcntl(fd, F_GETFD);

		n += flags >= 0 && !(flags & FD_CLOEXEC);
	}
	return n;
}

/* S41 */
static void no_descriptor_passes_an_exec(void **state)
{
	char *directory = harness_directory();
	unsigned before = n_inherited();
	struct kiln_tier *tier = open_in(directory);
	struct kiln_key *key = numbered_key(1);
	struct kiln_tier_lock *lock;

	assert_int_equal(tier->ops->lock(tier, key, 0, &lock), KILN_OK);
	assert_int_equal(put_numbered(tier, 1, 100, 0), KILN_OK);
	assert_int_equal(put_numbered(tier, 2, 3000000, 0), KILN_OK);
	assert_int_equal(get_numbered(tier, 1), KILN_OK);
	assert_int_equal(get_numbered(tier, 2), KILN_OK);
	assert_int_equal(n_inherited(), before);
	tier->ops->unlock(tier, lock);
	tier->ops->close(tier);
	kiln_key_free(key);
	free(directory);
}

static int hold_and_die(unsigned index, void *arg)
{
	struct crowd *crowd = arg;
	struct ki_store_options options = options_of(crowd->directory);
	struct kiln_key *key = numbered_key(1);
	struct kiln_tier_lock *lock;
	struct kiln_tier *tier;

	if (kind->open(&options, &tier) || tier->ops->lock(tier, key, 0, &lock))
		return 1;
	_exit(0);
}

/* S20 */
static void a_dead_holders_build_lock_is_free(void **state)
{
	char *directory = harness_directory();
	struct crowd crowd = { .directory = directory };
	struct kiln_tier *tier = open_in(directory);
	struct kiln_key *key = numbered_key(1);
	struct kiln_tier_lock *lock;

	assert_int_equal(
		harness_processes(1, hold_and_die, &crowd, HARNESS_HANG_S), 0);
	assert_int_equal(
		tier->ops->lock(tier, key, HARNESS_HANG_S * 1000, &lock),
		KILN_OK);
	tier->ops->unlock(tier, lock);
	tier->ops->close(tier);
	kiln_key_free(key);
	free(directory);
}

/* A stranger that no handler of a fork knows of, with copies of all
   descriptors. */
static int hold_leave_a_copy_and_die(unsigned index, void *arg)
{
	struct crowd *crowd = arg;
	struct ki_store_options options = options_of(crowd->directory);
	struct kiln_key *key = numbered_key(1);
	struct kiln_tier_lock *lock;
	struct kiln_tier *tier;
	pid_t pid;

	if (kind->open(&options, &tier) || tier->ops->lock(tier, key, 0, &lock))
		return 1;
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (!pid) {
		alarm(30);
		for (;;)
			pause();
	}
	*crowd->stranger = pid;
	_exit(0);
}

/* S20, S41 */
static void a_copy_of_a_dead_holders_lock_holds_nothing(void **state)
{
	char *directory = harness_directory();
	pid_t *stranger = mmap(NULL, sizeof(*stranger), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct crowd crowd = { .directory = directory, .stranger = stranger };
	struct kiln_tier *tier = open_in(directory);
	struct kiln_tier *other = open_in(directory);
	struct kiln_key *key = numbered_key(1);
	struct kiln_tier_lock *lock, *second;

	assert_true(stranger != MAP_FAILED);
	assert_int_equal(harness_processes(1, hold_leave_a_copy_and_die, &crowd,
					   HARNESS_HANG_S),
			 0);
	assert_int_equal(
		tier->ops->lock(tier, key, HARNESS_HANG_S * 1000, &lock),
		KILN_OK);
	/* One follows; the others wait for it. */
	assert_int_equal(other->ops->lock(other, key, 600, &second),
			 KILN_E_TIMEOUT);
	tier->ops->unlock(tier, lock);
	assert_int_equal(other->ops->lock(other, key, 5000, &second), KILN_OK);
	other->ops->unlock(other, second);
	kill(*stranger, SIGKILL);
	assert_int_equal(
		tier->ops->lock(tier, key, HARNESS_HANG_S * 1000, &lock),
		KILN_OK);
	tier->ops->unlock(tier, lock);
	tier->ops->close(tier);
	other->ops->close(other);
	munmap(stranger, sizeof(*stranger));
	kiln_key_free(key);
	free(directory);
}

const struct row crowd_rows[] = {
	ROW(of_many_threads_one_creates, 0),
	ROW(a_reader_sees_the_old_value_or_the_new, 0),
	ROW(of_many_processes_one_creates, DISK),
	ROW(many_processes_keep_the_bound, DISK),
	ROW(no_descriptor_passes_an_exec, DISK | LOCK),
	ROW(a_build_lock_has_one_holder, DISK | LOCK),
	ROW(a_dead_holders_build_lock_is_free, DISK | LOCK),
	ROW(a_copy_of_a_dead_holders_lock_holds_nothing, DISK | LOCK),
	ROWS_END,
};
