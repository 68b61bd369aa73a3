/* SPDX-License-Identifier: MIT */

#include <errno.h>
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

static enum kiln_status publish(const struct ki_sys *sys,
				const char *directory, const char *text,
				int replace)
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
					 1, 1, 0660),
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

	assert_int_equal(ki_publish(&ki_sys_posix, directory, "t", pieces, 9,
				    0),
			 KILN_E_INVALID);
	assert_int_equal(n_files(directory), 0);
	free(directory);
}

/* A file system without links, and one whose answers get lost. */
static int no_link(const struct ki_sys *sys, const char *from, const char *to)
{
	return -EPERM;
}

static int link_and_say_it_was_there(const struct ki_sys *sys,
				     const char *from, const char *to)
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			creating_keeps_what_is_there_and_replacing_does_not),
		cmocka_unit_test(nobody_else_may_read_it),
		cmocka_unit_test(more_pieces_than_one_call_takes_are_refused),
		cmocka_unit_test(without_links_creating_is_still_exact),
		cmocka_unit_test(a_link_whose_answer_got_lost_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
