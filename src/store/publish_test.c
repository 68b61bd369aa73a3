/* SPDX-License-Identifier: MIT */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/harness.h"

#include "store/store.h"

static unsigned n_files(const char *directory)
{
	const struct ki_sys *sys = &ki_sys_posix;
	struct ki_dir *dir;
	const char *name;
	unsigned n = 0;

	assert_int_equal(sys->opendir(sys, directory, &dir), 0);
	while (sys->readdir(sys, dir, &name) > 0)
		n++;
	sys->closedir(sys, dir);
	return n;
}

static void holds(const char *directory, const char *name, const char *text)
{
	char *path = harness_path(directory, name);
	size_t size = 0;
	char *bytes = harness_read(path, &size);

	assert_non_null(bytes);
	assert_int_equal(size, strlen(text));
	assert_memory_equal(bytes, text, size);
	free(bytes);
	free(path);
}

static enum kiln_status publish(const struct ki_sys *sys, const char *directory,
				const char *text, int replace)
{
	struct ki_piece pieces[] = { { text, 1 },
				     { "", 0 },
				     { text + 1, strlen(text) - 1 } };

	return ki_publish(sys, directory, "t", pieces, 3, replace);
}

static void creating_keeps_what_is_there_and_replacing_does_not(void **state)
{
	char *directory = harness_directory();

	assert_int_equal(publish(&ki_sys_posix, directory, "one", 0), KILN_OK);
	assert_int_equal(publish(&ki_sys_posix, directory, "two", 0),
			 KILN_EXISTS);
	holds(directory, "t", "one");
	assert_int_equal(publish(&ki_sys_posix, directory, "three", 1),
			 KILN_OK);
	holds(directory, "t", "three");
	assert_int_equal(n_files(directory), 1);
	free(directory);
}

static void nobody_else_may_read_it(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "t");
	struct stat st;
	struct ki_piece piece = { "x", 1 };

	assert_int_equal(publish(&ki_sys_posix, directory, "one", 0), KILN_OK);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	umask(077);
	assert_int_equal(ki_publish_file(&ki_sys_posix, directory, "t", &piece,
					 1, 1, 0660, NULL),
			 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0660);
	free(path);
	free(directory);
}

static void more_pieces_than_one_call_takes_are_refused(void **state)
{
	struct ki_piece pieces[9] = { { "x", 1 } };
	char *directory = harness_directory();

	assert_int_equal(
		ki_publish(&ki_sys_posix, directory, "t", pieces, 9, 0),
		KILN_E_INVALID);
	assert_int_equal(n_files(directory), 0);
	free(directory);
}

/* A file system without links, and one whose answers get lost. */
static int no_link(const struct ki_sys *sys, const char *from, const char *to)
{
	return -EPERM;
}

static int link_and_say_it_was_there(const struct ki_sys *sys, const char *from,
				     const char *to)
{
	(void)ki_sys_posix.link(sys, from, to);
	return -EEXIST;
}

static void without_links_creating_is_still_exact(void **state)
{
	char *directory = harness_directory();
	struct ki_sys sys = ki_sys_posix;

	sys.link = no_link;
	assert_int_equal(publish(&sys, directory, "one", 0), KILN_OK);
	assert_int_equal(publish(&sys, directory, "two", 0), KILN_EXISTS);
	holds(directory, "t", "one");
	assert_int_equal(n_files(directory), 1);
	free(directory);
}

/* S31 */
static void a_link_whose_answer_got_lost_counts(void **state)
{
	char *directory = harness_directory();
	struct ki_sys sys = ki_sys_posix;

	sys.link = link_and_say_it_was_there;
	assert_int_equal(publish(&sys, directory, "one", 0), KILN_OK);
	assert_int_equal(publish(&sys, directory, "two", 0), KILN_EXISTS);
	holds(directory, "t", "one");
	assert_int_equal(n_files(directory), 1);
	free(directory);
}

/* Clocks that are set by hand. */
static uint64_t monotonic, realtime;

static uint64_t told_monotonic(const struct ki_sys *sys)
{
	return monotonic;
}

static uint64_t told_realtime(const struct ki_sys *sys)
{
	return realtime;
}

/* S33 */
static void only_a_dead_writers_temporary_is_abandoned(void **state)
{
	static const char mine[] = "%x-%x-%llx-%llx";
	static const struct row {
		const char *name;
		int other_boot, dead, unnamed;
		uint64_t monotonic_h; /* hours since the writing */
		int64_t system_h, our_h;
		int abandoned, at_once;
	} rows[] = {
		{ "a living writer", 0, 0, 0, 0, 0, 0, 0, 0 },
		{ "a writer stopped for days", 0, 0, 0, 99, 99, 99, 0, 0 },
		{ "clocks jump by ten years", 0, 0, 0, 0, 87600, 87600, 0, 0 },
		{ "just died, or in another container", 0, 1, 0, 0, 0, 0, 0,
		  1 },
		{ "just died, clocks jump", 0, 1, 0, 0, 87600, 87600, 0, 1 },
		{ "died long ago", 0, 1, 0, 2, 2, 2, 1, 1 },
		{ "died long ago, clocks jump back", 0, 1, 0, 2, -9, -9, 1, 1 },
		{ "another host, at work", 1, 1, 0, 5, 1, 1, 0, 0 },
		{ "another host, our clock jumps", 1, 1, 0, 5, 1, 87600, 0, 0 },
		{ "another host, its clock jumps", 1, 1, 0, 5, 87600, 1, 0, 0 },
		{ "another host, days ago", 1, 1, 0, 5, 48, 48, 1, 1 },
		{ "unnamed, at work", 0, 0, 1, 5, 1, 1, 0, 0 },
		{ "unnamed, days ago", 0, 0, 1, 5, 48, 48, 1, 1 },
	};
	const int64_t hour = (int64_t)3600 * 1000000000;
	struct ki_sys sys = ki_sys_posix;
	struct ki_writer self;

	sys.monotonic_ns = told_monotonic;
	sys.realtime_ns = told_realtime;
	ki_writer_init(&sys, &self);
	assert_int_not_equal(self.boot, 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char tag[128], name[256];
		const int64_t written = 1000000 * hour;
		int64_t now;

		snprintf(tag, sizeof(tag), mine,
			 self.boot ^ (unsigned)rows[i].other_boot,
			 (unsigned)self.process,
			 (unsigned long long)self.start +
				 (unsigned)rows[i].dead,
			 (unsigned long long)hour * 5);
		snprintf(name, sizeof(name), "t.%s%s",
			 rows[i].unnamed ? "0123456789abcdef" : tag,
			 KI_TEMPORARY_SUFFIX);
		monotonic = (uint64_t)hour * (5 + rows[i].monotonic_h) + 1;
		realtime = (uint64_t)(written + rows[i].our_h * hour);
		now = written + rows[i].system_h * hour;
		if (ki_temporary_is_abandoned(&sys, &self, name, written, now,
					      0) != rows[i].abandoned)
			fail_msg("%s", rows[i].name);
		if (ki_temporary_is_abandoned(&sys, &self, name, written, now,
					      1) != rows[i].at_once)
			fail_msg("%s, at once", rows[i].name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			creating_keeps_what_is_there_and_replacing_does_not),
		cmocka_unit_test(nobody_else_may_read_it),
		cmocka_unit_test(more_pieces_than_one_call_takes_are_refused),
		cmocka_unit_test(without_links_creating_is_still_exact),
		cmocka_unit_test(a_link_whose_answer_got_lost_counts),
		cmocka_unit_test(only_a_dead_writers_temporary_is_abandoned),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
