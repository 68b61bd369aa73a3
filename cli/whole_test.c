/* SPDX-License-Identifier: MIT */

/*
 * The whole way: a program that knows nothing of kiln, the loader, the layer,
 * the store, the spool, the worker, and the tool's view of it; on the driver
 * stand-in.
 */

#include "testing.h"
#include "harness/harness.h"

#include <fcntl.h>
#include <grp.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/sys.h"

static const char *program; /* kiln */
static const char *example;
static const char *driver;

static struct spawn tool(const char *directory, const char *name,
			 const char *option)
{
	static char dir[600], vendors[600];
	struct spawn spawn = { .program = program };

	snprintf(dir, sizeof(dir), "KILN_DIR=%s", directory);
	snprintf(vendors, sizeof(vendors), "OCL_ICD_VENDORS=%s", driver);
	spawn.arguments[0] = name;
	spawn.arguments[1] = option;
	spawn.variables[0] = dir;
	spawn.variables[1] = vendors;
	spawn.variables[2] = "OPENCL_LAYERS";
	spawn.variables[3] = "XDG_CONFIG_HOME=/nowhere";
	return spawn;
}

static json_t *ask(const char *directory, const char *name, int status)
{
	struct spawn spawn = tool(directory, name, "--json");
	struct ended ended = spawn_run(&spawn);
	json_t *json = json_loads(ended.out, 0, NULL);

	assert_int_equal(status_of(&ended), status);
	assert_non_null(json);
	ended_free(&ended);
	return json;
}

static int counter(const char *directory, const char *name)
{
	json_t *json = ask(directory, "stats", 0);
	const json_t *counters = json_object_get(json, "counters");
	int value = (int)json_integer_value(json_object_get(counters, name));

	json_decref(json);
	return value;
}

/* `kiln run OPTION EXAMPLE`, which must end well; what it said besides. */
static char *run_example(const char *directory, const char *option,
			 const char *variable)
{
	struct spawn spawn = tool(directory, "run", option);
	struct ended ended;

	spawn.arguments[2] = example;
	spawn.variables[4] = variable;
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 0);
	assert_string_equal(ended.out, "ok\n");
	free(ended.out);
	return ended.err;
}

static void doctor_says_that_it_works(void **state)
{
	char *directory = harness_directory();
	json_t *json = ask(directory, "doctor", 0);

	assert_true(json_is_true(json_object_get(json, "works")));
	json_decref(json);
	free(directory);
}

static void the_second_run_is_warm(void **state)
{
	char *directory = harness_directory();
	char *said = run_example(directory, "--wait", NULL);
	json_t *json, *entries, *entry;
	const char *application;

	assert_string_equal(said, "");
	free(said);
	assert_int_equal(counter(directory, "builds"), 1);
	assert_int_equal(counter(directory, "jobs_done"), 1);
	json = ask(directory, "ls", 0);
	entries = json_object_get(json, "entries");
	assert_int_equal(json_array_size(entries), 1);
	entry = json_array_get(entries, 0);
	application = json_string_value(json_object_get(entry, "application"));
	assert_non_null(strstr(application, "one_kernel"));
	json_decref(json);

	said = run_example(directory, "--", NULL);
	assert_string_equal(said, "");
	free(said);
	assert_int_equal(counter(directory, "builds"), 1);
	assert_int_equal(counter(directory, "hits_store"), 1);
	free(directory);
}

/* And ends up in the format of Intel's driver. */
static void run_takes_a_store_of_any_kind(void **state)
{
	static const char *const layouts[] = { "flat", "tree" };

	for (int i = 0; i < 2; i++) {
		char *directory = harness_directory(), *url;
		struct spawn spawn = tool("/nowhere", "run", "--wait");
		struct ended ended;
		json_t *json, *entry;

		assert_true(asprintf(&url, "neo:%s#%s", directory, layouts[i]) >
			    0);
		spawn.arguments[2] = "--store";
		spawn.arguments[3] = url;
		spawn.arguments[4] = example;
		ended = spawn_run(&spawn);
		assert_int_equal(status_of(&ended), 0);
		assert_string_equal(ended.out, "ok\n");
		assert_string_equal(ended.err, "");
		ended_free(&ended);

		spawn = tool("/nowhere", "ls", "--json");
		spawn.arguments[2] = url;
		ended = spawn_run(&spawn);
		json = json_loads(ended.out, 0, NULL);
		entry = json_array_get(json_object_get(json, "entries"), 0);
		assert_true(json_is_false(json_object_get(entry, "foreign")));
		assert_non_null(strstr(
			json_string_value(json_object_get(entry, "file")),
			".cl_cache"));
		assert_int_equal(json_string_value(json_object_get(
					 entry, "file"))[1] == '/',
				 i);
		json_decref(json);
		ended_free(&ended);
		free(url);
		free(directory);
	}
}

/* ---- Of a group -------------------------------------------------------------- */

#define GROUP 54321

static void become_user(void *user)
{
	gid_t group = GROUP;

	if (setgroups(1, &group) || setgid(GROUP) || setuid(*(uid_t *)user))
		_exit(99);
}

static struct ended run_as(uid_t user, const char *directory)
{
	struct spawn spawn = tool(directory, "run", "--wait");

	spawn.arguments[2] = "--";
	spawn.arguments[3] = example;
	spawn.variables[4] = "KILN_SHARED=1";
	spawn.variables[5] = "HOME=/nowhere";
	spawn.before = become_user;
	spawn.arg = &user;
	return spawn_run(&spawn);
}

/* Whether what was built here, and the directory, can be reached by others. */
static int others_may_run(const char *directory)
{
	uid_t user = 60001;
	struct spawn spawn = tool(directory, "run", "--");
	struct ended ended;
	int status;

	spawn.arguments[2] = program;
	spawn.arguments[3] = "--version";
	spawn.variables[4] = "KILN_DISABLE=1";
	spawn.before = become_user;
	spawn.arg = &user;
	ended = spawn_run(&spawn);
	status = status_of(&ended);
	ended_free(&ended);
	return !status && !access(driver, R_OK);
}

static void use_as_two(const char *directory)
{
	json_t *json;

	for (int i = 0; i < 2; i++) {
		struct ended ended = run_as((uid_t)(60001 + i), directory);

		assert_string_equal(ended.err, "");
		assert_int_equal(status_of(&ended), 0);
		ended_free(&ended);
		assert_int_equal(counter(directory, "jobs_done"), 1);
		assert_int_equal(counter(directory, "builds"), 1);
		assert_int_equal(counter(directory, "hits_store"), i);
	}
	json = ask(directory, "ls", 0);
	assert_int_equal(json_array_size(json_object_get(json, "entries")), 1);
	json_decref(json);
}

/* S35: what one of them has compiled the other one finds. */
static void a_group_shares_a_directory(void **state)
{
	char *above, *directory;

	if (getuid())
		HARNESS_LEAVE_OUT("only root can become two others");
	above = harness_directory();
	directory = harness_path(above, "store");
	assert_int_equal(chmod(above, 0711), 0);
	assert_int_equal(mkdir(directory, 0700), 0);
	assert_int_equal(chown(directory, 0, GROUP), 0);
	assert_int_equal(chmod(directory, 02770), 0);
	if (others_may_run(directory))
		use_as_two(directory);
	else
		print_message("# left out: others may not run what was built "
			      "here\n");
	free(directory);
	free(above);
}

static void wait_sees_what_runs_behind(void **state)
{
	char *directory = harness_directory();
	char *said = run_example(directory, "--", NULL);
	json_t *json = ask(directory, "wait", 0);

	assert_string_equal(said, "");
	free(said);
	assert_int_equal(json_integer_value(json_object_get(json, "left")), 0);
	json_decref(json);
	assert_int_equal(counter(directory, "jobs_done"), 1);
	free(directory);
}

/* One line, the program's own status, and no second try. */
static void jobs_that_no_worker_may_make_are_named(void **state)
{
	char *directory = harness_directory();
	char *said = run_example(directory, "--wait", "KILN_TEST_ICD_TYPE=gpu");

	assert_non_null(strstr(said, "1 job: no worker may make it here ("));
	assert_ptr_equal(strchr(said, '\n') + 1, said + strlen(said));
	free(said);
	assert_int_equal(counter(directory, "jobs_done"), 0);
	free(directory);
}

/* ---- kiln rebuild ------------------------------------------------------------ */

/* A driver of its own, whose compiler has a file that changes. */
static char *own_driver(void)
{
	char *directory = harness_directory(), *late, *library, *bytes;
	size_t size;

	late = harness_path(directory, "late");
	library = harness_path(directory, "libkiln-test-icd.so");
	bytes = harness_read(driver, &size);
	harness_write(library, bytes, size);
	assert_int_equal(mkdir(late, 0700), 0);
	free(bytes);
	free(late);
	free(directory);
	return library;
}

static void upgrade(const char *library, const char *version)
{
	char path[4300];

	snprintf(path, sizeof(path), "%.*s/late/builtins.bc",
		 (int)(strrchr(library, '/') - library), library);
	harness_write(path, version, strlen(version));
}

static void assert_rebuilt(const char *directory, int status, int rebuilt,
			   int current, int failed)
{
	json_t *json = ask(directory, "rebuild", status);

	assert_int_equal(json_integer_value(json_object_get(json, "schema")),
			 1);
	assert_int_equal(json_integer_value(json_object_get(json, "rebuilt")),
			 rebuilt);
	assert_int_equal(json_integer_value(json_object_get(json, "current")),
			 current);
	assert_int_equal(json_integer_value(json_object_get(json, "failed")),
			 failed);
	assert_int_equal(json_integer_value(json_object_get(json, "skipped")),
			 0);
	assert_int_equal(json_integer_value(json_object_get(json, "left")), 0);
	assert_int_equal(json_array_size(json_object_get(json, "problems")),
			 failed);
	json_decref(json);
}

static void after_an_upgrade_a_rebuild_makes_the_next_run_warm(void **state)
{
	char *directory = harness_directory(), *library = own_driver();
	const char *before = driver;

	driver = library;
	upgrade(library, "1");
	free(run_example(directory, "--wait", NULL));
	assert_rebuilt(directory, 0, 0, 1, 0);
	upgrade(library, "2");
	assert_rebuilt(directory, 0, 1, 0, 0);
	assert_rebuilt(directory, 0, 0, 1, 0);
	free(run_example(directory, "--", NULL));
	assert_int_equal(counter(directory, "builds"), 1);
	assert_int_equal(counter(directory, "hits_store"), 1);
	driver = before;
	free(library);
	free(directory);
}

static void what_a_rebuild_cannot_do_is_said(void **state)
{
	char *directory = harness_directory(), *library = own_driver();
	struct spawn spawn = tool(directory, "rebuild", NULL);
	const char *before = driver;
	struct ended ended;

	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 0);
	assert_string_equal(ended.out, "nothing to rebuild\n");
	assert_string_equal(ended.err, "");
	ended_free(&ended);
	/* It cannot be made: what ran with it fails again. */
	driver = library;
	upgrade(library, "1");
	free(run_example(directory, "--wait", NULL));
	upgrade(library, "2");
	spawn = tool(directory, "rebuild", NULL);
	spawn.variables[4] = "KILN_KEEP_SOURCES=0";
	spawn.arguments[1] = "--time-limit";
	spawn.arguments[2] = "soon";
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 2);
	assert_non_null(strstr(ended.err, "--time-limit"));
	assert_string_equal(ended.out, "");
	ended_free(&ended);
	driver = before;
	free(library);
	free(directory);
}

static void without_sources_nothing_is_rebuilt(void **state)
{
	char *directory = harness_directory(), *library = own_driver();
	const char *before = driver;
	struct spawn spawn;
	struct ended ended;

	driver = library;
	upgrade(library, "1");
	free(run_example(directory, "--wait", "KILN_KEEP_SOURCES=0"));
	upgrade(library, "2");
	spawn = tool(directory, "rebuild", NULL);
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 0);
	assert_int_equal(strncmp(ended.out, "1 skipped\n", 10), 0);
	assert_non_null(strstr(ended.out, "its source is not kept"));
	ended_free(&ended);
	driver = before;
	free(library);
	free(directory);
}

/* What the driver says of its calls, until it builds or says no more. */
static int has_begun_to_build(int fd, int timeout_ms)
{
	struct pollfd pollfd = { .fd = fd, .events = POLLIN };
	char text[8192];
	size_t size = 0;
	ssize_t n;

	while (poll(&pollfd, 1, timeout_ms) == 1) {
		n = read(fd, text + size, sizeof(text) - 1 - size);
		assert_true(n > 0);
		size += (size_t)n;
		text[size] = '\0';
		if (timeout_ms && strstr(text, "build-source"))
			return 1;
	}
	return 0;
}

/* S60.  What a terminal does on Ctrl-C: a signal for the whole group. */
static void interrupted_a_rebuild_ends_at_once(void **state)
{
	char *directory = harness_directory(), *library = own_driver();
	const char *before = driver;
	struct spawned spawned;
	struct spawn spawn;
	struct ended ended;
	uint64_t begun_ns;
	int fd;
	char *calls, *gate;
	char calls_variable[4300], gate_variable[4300];

	driver = library;
	upgrade(library, "1");
	calls = harness_path(directory, "calls");
	gate = harness_path(directory, "gate");
	assert_int_equal(mkfifo(calls, 0600), 0);
	fd = open(calls, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	assert_true(fd >= 0);
	snprintf(calls_variable, sizeof(calls_variable),
		 "KILN_TEST_ICD_CALLS=%s", calls);
	snprintf(gate_variable, sizeof(gate_variable),
		 "KILN_TEST_ICD_WAIT_WHILE=%s", gate);
	/* Both travel with the entry; the gate is closed from now on. */
	spawn = tool(directory, "run", "--wait");
	spawn.arguments[2] = example;
	spawn.variables[4] = calls_variable;
	spawn.variables[5] = gate_variable;
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 0);
	ended_free(&ended);
	upgrade(library, "2");
	(void)has_begun_to_build(fd, 0);
	harness_write(gate, "", 0);
	spawn = tool(directory, "rebuild", NULL);
	spawn.has_group = 1;
	spawned = spawn_start(&spawn);
	assert_true(has_begun_to_build(fd, HARNESS_HANG_S * 1000));
	begun_ns = ki_sys_posix.monotonic_ns(&ki_sys_posix);
	assert_int_equal(kill(-spawned.pid, SIGINT), 0);
	ended = spawn_finish(&spawned);
	assert_true(ki_sys_posix.monotonic_ns(&ki_sys_posix) - begun_ns <
		    (uint64_t)10 * 1000000000);
	assert_int_equal(status_of(&ended), 1000 + SIGINT);
	assert_non_null(strstr(ended.out, "1 left"));
	ended_free(&ended);
	assert_int_equal(unlink(gate), 0);
	assert_rebuilt(directory, 0, 1, 0, 0);
	close(fd);
	free(gate);
	free(calls);
	driver = before;
	free(library);
	free(directory);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(doctor_says_that_it_works),
		cmocka_unit_test(the_second_run_is_warm),
		cmocka_unit_test(run_takes_a_store_of_any_kind),
		cmocka_unit_test(a_group_shares_a_directory),
		cmocka_unit_test(wait_sees_what_runs_behind),
		cmocka_unit_test(jobs_that_no_worker_may_make_are_named),
		cmocka_unit_test(
			after_an_upgrade_a_rebuild_makes_the_next_run_warm),
		cmocka_unit_test(what_a_rebuild_cannot_do_is_said),
		cmocka_unit_test(without_sources_nothing_is_rebuilt),
		cmocka_unit_test(interrupted_a_rebuild_ends_at_once),
	};

	if (argc < 4)
		return 77;
	program = argv[1];
	example = argv[2];
	driver = realpath(argv[3], NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
