/* SPDX-License-Identifier: MIT */

/*
 * S11.  Who writes a pack dies by SIGKILL at its n-th system call, a write half
 * done, for all n: under the name is the pack of before, or none, or the new one
 * whole.
 */

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kiln/pack.h>

#include "conform/kinds.h"
#include "fault/fault.h"
#include "harness/harness.h"

#define OLD 3
#define NEW 7

static enum kiln_status write_pack(const struct ki_sys *sys, const char *path,
				   unsigned n_entries)
{
	const struct kiln_pack_writer_options replace = {
		.size = sizeof(replace),
		.flags = KILN_PACK_REPLACE,
	};
	struct kiln_pack_writer *writer;
	enum kiln_status status = ki_pack_create(sys, path, &replace, &writer);
	char value[100];

	for (unsigned n = 0; !status && n < n_entries; n++) {
		struct kiln_key *key = numbered_key(n);

		fill_value(n, value, sizeof(value));
		status = kiln_pack_add(writer, key, NULL, 0, value,
				       sizeof(value));
		kiln_key_free(key);
	}
	return status ? status : kiln_pack_finish(writer, NULL);
}

/* 1 if the child died. */
static int die_at(unsigned n, const char *path)
{
	struct fault fault;
	int status;
	pid_t pid;

	fault_begin(&fault, FAULT_DIE);
	fault.n = n;
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		fault_arm(&fault);
		_exit(write_pack(&fault.sys, path, NEW) ? 1 : 0);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		return 1;
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
	return 0;
}

/* How many entries the pack has, all of them right; 0: there is none. */
static unsigned count(const char *path)
{
	struct kiln_verify_report report;
	struct kiln_tier *tier;

	if (access(path, F_OK))
		return 0;
	assert_int_equal(kiln_pack_open(path, NULL, &tier), KILN_OK);
	assert_int_equal(tier->ops->verify(tier, 0, NULL, NULL, &report),
			 KILN_OK);
	assert_int_equal(report.n_damaged, 0);
	tier->ops->close(tier);
	return (unsigned)report.n_entries;
}

static void a_writer_that_dies_leaves_what_was_there(void **state)
{
	for (unsigned before = 0; before <= OLD; before += OLD) {
		unsigned n = 1, n_new = 0, died;

		do {
			char *directory = harness_directory();
			char *path = harness_path(directory, "test.pack");
			unsigned n_there;

			if (before)
				assert_int_equal(
					write_pack(&ki_sys_posix, path, before),
					KILN_OK);
			died = (unsigned)die_at(n++, path);
			n_there = count(path);
			assert_true(n_there == before || n_there == NEW);
			n_new += n_there == NEW;
			harness_remove(directory);
			free(path);
			free(directory);
		} while (died);
		assert_true(n_new > 0 && n > NEW);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_writer_that_dies_leaves_what_was_there),
	};

	return cmocka_run_group_tests_name("crash packs", tests, NULL, NULL);
}
