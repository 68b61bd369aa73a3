/* SPDX-License-Identifier: MIT */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"

#include "sys/sys.h"

static const struct ki_sys *const sys = &ki_sys_posix;

static void a_descriptor_never_takes_a_standard_number(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "file");
	int saved = dup(0), fd, flags;

	close(0);
	fd = sys->open(sys, path, KI_OPEN_READ | KI_OPEN_WRITE | KI_OPEN_CREATE,
		       0600);
	dup2(saved, 0);
	close(saved);
	assert_true(fd > 2);
	flags = fcntl(fd, F_GETFD);
	assert_true(flags & FD_CLOEXEC);
	sys->close(sys, fd);
	/* S41: nor is one that came above them handed on. */
	fd = sys->open(sys, path, KI_OPEN_READ, 0);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	sys->close(sys, fd);
	free(path);
	free(directory);
}

static void two_opens_of_one_process_exclude_each_other(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "lock");
	unsigned flags = KI_OPEN_READ | KI_OPEN_WRITE | KI_OPEN_CREATE;
	int a = sys->open(sys, path, flags, 0600);
	int b = sys->open(sys, path, flags, 0600);

	assert_int_equal(ki_lock_until(sys, a, KI_LOCK_EXCLUSIVE, 5, 1, 0), 0);
	assert_int_equal(ki_lock_until(sys, b, KI_LOCK_EXCLUSIVE, 5, 1, 0),
			 -ETIMEDOUT);
	assert_int_equal(ki_lock_until(sys, b, KI_LOCK_EXCLUSIVE, 6, 1, 0), 0);
	sys->close(sys, a);
	assert_int_equal(ki_lock_until(sys, b, KI_LOCK_EXCLUSIVE, 5, 1, 0), 0);
	sys->close(sys, b);
	free(path);
	free(directory);
}

/* S41, and the reason for registering: the child would keep the lock. */
static void a_forked_child_does_not_keep_a_lock(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "lock");
	unsigned flags = KI_OPEN_READ | KI_OPEN_WRITE | KI_OPEN_CREATE;
	int holder = sys->open(sys, path, flags, 0600);
	int other = sys->open(sys, path, flags, 0600);
	struct ki_fork_close place;
	int gate[2];
	pid_t child;

	ki_fork_close_add(&place, holder);
	assert_int_equal(ki_lock_until(sys, holder, KI_LOCK_EXCLUSIVE, 0, 1, 0),
			 0);
	assert_int_equal(pipe(gate), 0);
	child = fork();
	if (!child) {
		char byte;
		close(gate[1]);
		_exit(read(gate[0], &byte, 1) < 0);
	}
	close(gate[0]);
	ki_fork_close_remove(&place);
	sys->close(sys, holder);
	assert_int_equal(
		ki_lock_until(sys, other, KI_LOCK_EXCLUSIVE, 0, 1,
			      sys->monotonic_ns(sys) +
				      HARNESS_HANG_S * (uint64_t)1000000000),
		0);
	close(gate[1]);
	waitpid(child, NULL, 0);
	sys->close(sys, other);
	free(path);
	free(directory);
}

static void a_fork_changes_the_generation_in_the_child_only(void **state)
{
	uint64_t before = ki_fork_generation();
	pid_t child = fork();
	int status;

	if (!child)
		_exit(ki_fork_generation() != before ? 0 : 1);
	waitpid(child, &status, 0);
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(ki_fork_generation(), before);
}

static void a_dead_process_is_not_alive(void **state)
{
	pid_t child = fork();
	uint64_t start;
	siginfo_t info;

	if (!child) {
		pause();
		_exit(0);
	}
	start = ki_process_start(child);
	assert_int_not_equal(start, 0);
	assert_true(ki_process_alive(child, start));
	assert_false(ki_process_alive(child, start + 1));
	kill(child, SIGKILL);
	/* Also as long as nobody has asked how it ended. */
	assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT),
			 0);
	assert_false(ki_process_alive(child, start));
	waitpid(child, NULL, 0);
	assert_false(ki_process_alive(child, start));
}

static void a_parent_is_no_younger_than_its_child(void **state)
{
	const uint64_t start = ki_process_start(getpid());
	const uint64_t age = ki_process_age_ns(start);

	assert_true(ki_process_age_ns(ki_process_start(getppid())) >= age);
	assert_true(ki_process_age_ns(start) >= age);
	/* One that is still to begin. */
	assert_int_equal(ki_process_age_ns(start + 1000000000), 0);
}

static int stat_nothing(const struct ki_sys *table, const char *path,
			struct ki_file_info *out_info)
{
	return -EACCES;
}

static void nobody_is_dead_for_who_cannot_know(void **state)
{
	const uint64_t elsewhere = (uint64_t)1 << 40;
	struct ki_process self = { 0 }, lost = { 0 };
	struct ki_sys table = ki_sys_posix;
	uint64_t name = ki_process_name(sys, &self);

	assert_int_equal((uint32_t)name, getpid());
	assert_false(ki_process_is_dead(sys, &self, name, self.start));
	assert_true(ki_process_is_dead(sys, &self, name, self.start + 1));
	assert_false(ki_process_is_dead(sys, &self, name ^ elsewhere,
					self.start + 1));
	assert_false(ki_process_is_dead(sys, &self, 0, 1));

	table.stat = stat_nothing;
	assert_int_equal(ki_process_name(&table, &lost), 0);
	assert_false(ki_process_is_dead(&table, &lost, name, self.start + 1));
}

static void reading_a_fifo_does_not_block(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "fifo");
	void *data;
	size_t size;

	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(ki_read_file(sys, path, 100, &data, &size), -EINVAL);
	free(path);
	free(directory);
}

static void a_new_name_takes_no_place_that_is_taken(void **state)
{
	char *directory = harness_directory();
	char *from = harness_path(directory, "from");
	char *to = harness_path(directory, "to");
	unsigned flags = KI_OPEN_WRITE | KI_OPEN_CREATE;
	struct ki_file_info info, there;
	struct ki_dir *dir;

	sys->close(sys, sys->open(sys, from, flags, 0600));
	sys->close(sys, sys->open(sys, to, flags, 0600));
	assert_int_equal(sys->rename_new(sys, from, to), -EEXIST);
	assert_int_equal(sys->opendir(sys, directory, &dir), 0);
	assert_int_equal(sys->lstat_in(sys, dir, "from", &info), 0);
	assert_int_equal(sys->unlink(sys, to), 0);
	assert_int_equal(sys->rename_new(sys, from, to), 0);
	assert_int_equal(sys->lstat_in(sys, dir, "from", &there), -ENOENT);
	assert_int_equal(sys->lstat_in(sys, dir, "to", &there), 0);
	assert_int_equal(info.inode, there.inode);
	sys->closedir(sys, dir);
	free(to);
	free(from);
	free(directory);
}

static void missing_parents_are_made(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "a/b/c");
	struct ki_file_info info;

	assert_int_equal(ki_make_directories(sys, path), 0);
	assert_int_equal(ki_make_directories(sys, path), 0);
	assert_int_equal(sys->stat(sys, path, &info), 0);
	assert_true(S_ISDIR(info.mode));
	assert_int_equal(info.mode & 07777, 0700);
	free(path);
	free(directory);
}

static int unlink_nothing(const struct ki_sys *table, const char *path)
{
	return -EPERM;
}

static void a_new_name_stands_though_the_old_one_stays(void **state)
{
	char *directory = harness_directory();
	char *from = harness_path(directory, "from");
	char *to = harness_path(directory, "to");
	struct ki_sys table = ki_sys_posix;

	harness_write(from, "new", 3);
	assert_int_equal(ki_rename_by_link(sys, from, to), 0);
	assert_int_not_equal(access(from, F_OK), 0);
	harness_write(from, "newer", 5);
	assert_int_equal(ki_rename_by_link(sys, from, to), -EEXIST);
	assert_int_equal(access(from, F_OK), 0);

	assert_int_equal(unlink(to), 0);
	table.unlink = unlink_nothing;
	assert_int_equal(ki_rename_by_link(&table, from, to), 0);
	assert_int_equal(access(from, F_OK), 0);
	assert_int_equal(access(to, F_OK), 0);
	free(to);
	free(from);
	free(directory);
}

static void signal_mask_of_thread(void *arg)
{
	sigset_t mask;

	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	*(int *)arg = sigismember(&mask, SIGINT) && sigismember(&mask, SIGUSR1);
}

/* S43 */
static void our_threads_block_all_signals(void **state)
{
	struct ki_thread thread;
	int blocked = 0;

	assert_int_equal(
		ki_thread_start(&thread, signal_mask_of_thread, &blocked), 0);
	ki_thread_join(&thread);
	assert_true(blocked);
}

/* ---- Other processes ---------------------------------------------------------- */

/* What another thread might fork while a program is being started. */
static pid_t holder = -1;
static int is_holding;

static void fork_a_holder(void)
{
	if (!is_holding)
		return;
	is_holding = 0;
	holder = fork();
	if (holder)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		(void)pause();
}

static void a_start_is_not_held_up_by_whom_others_fork(void **state)
{
	char *const nothing[] = { NULL };
	char *const arguments[] = { "true", NULL };
	const int none = -1;

	assert_int_equal(pthread_atfork(fork_a_holder, NULL, NULL), 0);
	is_holding = 1;
	/* The test has a time in which it must end. */
	assert_int_equal(
		ki_process_launch("/bin/true", arguments, nothing, &none, 0),
		0);
	assert_true(holder > 0);
	(void)kill(holder, SIGKILL);
	assert_int_equal(waitpid(holder, NULL, 0), holder);
}

static void a_start_that_fails_is_told(void **state)
{
	char *const nothing[] = { NULL };
	char *const arguments[] = { "nothing", NULL };
	const int none = -1;

	assert_int_equal(ki_process_launch("/nowhere/nothing", arguments,
					   nothing, &none, 0),
			 -ENOENT);
}

/* Linux 6.3 knows it, and a system may demand it. */
static void memory_that_is_handed_over_is_not_for_execution(void **state)
{
	const struct ki_piece piece = { "bytes", 5 };
	const int seals =
		F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
	const int no_exec = 0x20; /* F_SEAL_EXEC */
	int known = memfd_create("test", MFD_CLOEXEC | 8u);
	int fd = sys->sealed_memory(sys, &piece, 1);
	char bytes[5];

	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GET_SEALS),
			 known < 0 ? seals : seals | no_exec);
	assert_int_equal(ki_pread_all(sys, fd, bytes, 5, 0), 0);
	assert_memory_equal(bytes, "bytes", 5);
	(void)close(fd);
	if (known >= 0)
		(void)close(known);
}

static void sizes_are_rounded_to_the_pages_there_are(void **state)
{
	static const struct {
		size_t size, page_bytes, expected;
	} rows[] = {
		{ 0, 4096, 0 },		  { 1, 4096, 4096 },
		{ 4096, 4096, 4096 },	  { 4097, 4096, 8192 },
		{ 4096, 65536, 65536 },	  { 65536, 65536, 65536 },
		{ 65537, 65536, 131072 },
	};
	size_t page_bytes = ki_sys_posix.page_bytes(&ki_sys_posix);

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		assert_int_equal(ki_in_pages(rows[i].size, rows[i].page_bytes),
				 rows[i].expected);
	assert_true(page_bytes >= 4096);
	assert_int_equal(page_bytes & (page_bytes - 1), 0);
}

static void pages_are_zeroed_and_lie_where_huge_ones_can(void **state)
{
	static const size_t sizes[] = { 1, 4096, KI_PAGES_HUGE,
					2 * KI_PAGES_HUGE + 64 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		unsigned char *pages = ki_pages_new(sizes[i]);

		assert_non_null(pages);
		assert_int_equal((uintptr_t)pages % KI_PAGES_HUGE, 0);
		assert_int_equal(pages[0] | pages[sizes[i] - 1], 0);
		pages[0] = pages[sizes[i] - 1] = 1;
		ki_pages_free(pages, sizes[i]);
	}
	ki_pages_free(NULL, 1);
	assert_null(ki_pages_new((size_t)1 << 60));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_descriptor_never_takes_a_standard_number),
		cmocka_unit_test(two_opens_of_one_process_exclude_each_other),
		cmocka_unit_test(a_forked_child_does_not_keep_a_lock),
		cmocka_unit_test(
			a_fork_changes_the_generation_in_the_child_only),
		cmocka_unit_test(a_dead_process_is_not_alive),
		cmocka_unit_test(a_parent_is_no_younger_than_its_child),
		cmocka_unit_test(nobody_is_dead_for_who_cannot_know),
		cmocka_unit_test(reading_a_fifo_does_not_block),
		cmocka_unit_test(missing_parents_are_made),
		cmocka_unit_test(a_new_name_takes_no_place_that_is_taken),
		cmocka_unit_test(a_new_name_stands_though_the_old_one_stays),
		cmocka_unit_test(our_threads_block_all_signals),
		cmocka_unit_test(a_start_is_not_held_up_by_whom_others_fork),
		cmocka_unit_test(a_start_that_fails_is_told),
		cmocka_unit_test(
			memory_that_is_handed_over_is_not_for_execution),
		cmocka_unit_test(sizes_are_rounded_to_the_pages_there_are),
		cmocka_unit_test(pages_are_zeroed_and_lie_where_huge_ones_can),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
