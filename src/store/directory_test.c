/* SPDX-License-Identifier: MIT */

#include "harness/harness.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/store.h"

/* Seconds pass as soon as they are asked for. */
static uint64_t passed_ns;

static uint64_t later_ns(const struct ki_sys *sys)
{
	return ki_sys_posix.coarse_ns(&ki_sys_posix) + passed_ns;
}

struct watched {
	struct ki_sys sys;
	struct ki_directory_watch watch;
	char *top, *path;
};

static void set_up(struct watched *watched, mode_t mode)
{
	passed_ns = 0;
	*watched = (struct watched){ .sys = ki_sys_posix };
	watched->sys.coarse_ns = later_ns;
	watched->top = harness_directory();
	watched->path = harness_path(watched->top, "store");
	assert_int_equal(mkdir(watched->path, 0700), 0);
	assert_int_equal(chmod(watched->path, mode), 0);
	ki_directory_watch_begin(&watched->sys, &watched->watch);
}

static void tear_down(struct watched *watched)
{
	free(watched->path);
	free(watched->top);
}

static enum kiln_status look(struct watched *watched)
{
	const char *why;

	passed_ns += 1000000000;
	return ki_directory_watch(&watched->sys, watched->path, 0,
				  &watched->watch, &why);
}

/* With no descriptor left. */
static enum kiln_status look_without(struct watched *watched)
{
	struct rlimit limit, none;
	enum kiln_status status;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	status = look(watched);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	return status;
}

/* S37: whose group it is stands in a file. */
static void for_want_of_descriptors_nothing_is_refused(void **state)
{
	struct watched watched;

	if (ki_group_is_private(getegid()) != 1)
		skip();
	set_up(&watched, 0770);
	assert_int_equal(look(&watched), KILN_OK);
	assert_int_equal(look_without(&watched), KILN_OK);
	assert_int_equal(look(&watched), KILN_OK);
	tear_down(&watched);
}

/* S37 */
static void what_is_refused_stays_so_until_it_can_be_looked_at(void **state)
{
	struct watched watched;

	if (ki_group_is_private(getegid()) != 1)
		skip();
	set_up(&watched, 0777);
	assert_int_equal(look(&watched), KILN_E_OWNER);
	assert_int_equal(chmod(watched.path, 0770), 0);
	assert_int_equal(look_without(&watched), KILN_E_OWNER);
	assert_int_equal(look(&watched), KILN_OK);
	tear_down(&watched);
}

/* Where it is opened nobody has said yet that it is ours. */
static void what_cannot_be_looked_at_is_not_opened(void **state)
{
	struct rlimit limit, none;
	struct watched watched;
	const char *why;
	enum kiln_status status;

	if (ki_group_is_private(getegid()) != 1)
		skip();
	set_up(&watched, 0770);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	status = ki_directory_check(&ki_sys_posix, watched.path, 0, 0, &why);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(status, KILN_E_IO);
	tear_down(&watched);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(for_want_of_descriptors_nothing_is_refused),
		cmocka_unit_test(
			what_is_refused_stays_so_until_it_can_be_looked_at),
		cmocka_unit_test(what_cannot_be_looked_at_is_not_opened),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
