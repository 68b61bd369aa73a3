/* SPDX-License-Identifier: MIT */

/*
 * kiln run seen from outside, against the same program without it.
 *
 * This program plays three parts: the tests (argument 1 is kiln), the program
 * under kiln (argument 1 is a role), and, under the name of kiln-worker in a
 * tree of links of our own, a worker that tells what it was given.
 */

#include "testing.h"
#include "harness/harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "sys/sys.h"

#define JOB   "00112233445566778899aabbccddeeff.job"
#define LAYER "libkiln-opencl.so"

static const char *self; /* this program */
static char *tree;	 /* links: cli/kiln, the layer, the worker */
static char *kiln;	 /* the link */
static char *layer;

/* ---- Roles ------------------------------------------------------------------- */

static void say(int fd, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void say(int fd, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vdprintf(fd, format, args);
	va_end(args);
}

static void say_descriptors(int fd)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *each;
	char path[300], target[300];
	int open_here[64] = { 0 }, i;

	while (dir && (each = readdir(dir)))
		if (atoi(each->d_name) < 64 && atoi(each->d_name) != dirfd(dir))
			open_here[atoi(each->d_name)] = *each->d_name != '.';
	if (dir)
		closedir(dir);
	for (i = 0; i < 64; i++) {
		ssize_t n;

		if (!open_here[i] || i == fd)
			continue;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", i);
		n = readlink(path, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		say(fd, "fd %d %s\n", i,
		    !strncmp(target, "pipe:", 5) ? "pipe" : target);
	}
}

/* Masks and dispositions, as the kernel has them. */
static void say_signals(int fd)
{
	FILE *status = fopen("/proc/self/status", "re");
	char line[256];

	while (status && fgets(line, sizeof(line), status))
		if (!strncmp(line, "SigBlk", 6) || !strncmp(line, "SigIgn", 6))
			say(fd, "%s", line);
	if (status)
		fclose(status);
}

/* Report each signal as "NUMBER CODE VALUE"; SIGUSR2 ends it, and that
   nobody listens. */
static int role_signals(int fd)
{
	siginfo_t info;
	sigset_t all;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigfillset(&all);
	sigdelset(&all, SIGTSTP);
	sigprocmask(SIG_SETMASK, &all, NULL);
	say(fd, "ready %d\n", getpid());
	for (;;) {
		int got = sigwaitinfo(&all, &info);

		if (got < 0)
			continue;
		if (dprintf(fd, "%d %s %d\n", got,
			    info.si_code == SI_KERNEL ? "kernel" : "user",
			    info.si_code == SI_QUEUE ? info.si_value.sival_int
						     : 0) < 0 ||
		    got == SIGUSR2)
			return 0;
	}
}

static int role_die(const char *number)
{
	signal(atoi(number), SIG_DFL); /* sanitizers have handlers */
	raise(atoi(number));
	return 98;
}

static int role_inside(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	int high = fcntl(fd, F_DUPFD_CLOEXEC, 40);

	close(fd);
	say_descriptors(high);
	say_signals(high);
	close(high);
	return 0;
}

/* -1: `role` is none. */
static int play(const char *role, const char *argument)
{
	if (!strcmp(role, "signals"))
		return role_signals(1);
	if (!strcmp(role, "die"))
		return role_die(argument);
	if (!strcmp(role, "inside"))
		return role_inside(argument);
	return -1;
}

/* Play back what the test wrote beside the spool, as a worker's progress. */
static int play_back(const char *spool, const char *number)
{
	char path[4096];
	char *script;
	size_t size;

	snprintf(path, sizeof(path), "%s.script", spool);
	script = harness_read(path, &size);
	if (!script)
		return -1;
	(void)!write(atoi(number), script, size);
	free(script);
	return 1;
}

/* The worker.  Tells what it was given into the FIFO beside the spool, where
   it waits until it is heard; unless there is a script. */
static int play_worker(int argc, char **argv)
{
	char path[4096], directory[300];
	int fd, i, status = -1;

	for (i = 1; i + 1 < argc; i++)
		if (!strcmp(argv[i], "--progress-fd"))
			status = play_back(argv[2], argv[i + 1]);
	if (status >= 0)
		return status;
	snprintf(path, sizeof(path), "%s.fifo", argv[2]);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	for (i = 1; i < argc; i++)
		say(fd, "argument %s\n", argv[i]);
	say(fd, "pid %d\n", getpid());
	say(fd, "session %d\n", getsid(0) == getpid());
	say(fd, "layers %s\n", getenv("OPENCL_LAYERS") ? "yes" : "no");
	say(fd, "directory %s\n", getcwd(directory, sizeof(directory)));
	say_signals(fd);
	say_descriptors(fd);
	close(fd);
	if (argc > 6)
		pause();
	return 0;
}

/* ---- Around it ------------------------------------------------------------------ */

/* A spawn of `kiln run ROLE...`, without whatever this user has set. */
static struct spawn under_kiln(const char *directory)
{
	static char setting[600];
	struct spawn spawn = { .program = kiln, .has_group = 1 };

	snprintf(setting, sizeof(setting), "KILN_DIR=%s", directory);
	spawn.arguments[0] = "run";
	spawn.arguments[1] = "--";
	spawn.variables[0] = setting;
	spawn.variables[1] = "OPENCL_LAYERS";
	spawn.variables[2] = "XDG_CONFIG_HOME=/nowhere";
	return spawn;
}

static struct spawn role_under_kiln(const char *directory, const char *role,
				    const char *argument)
{
	struct spawn spawn = under_kiln(directory);

	spawn.arguments[2] = self;
	spawn.arguments[3] = role;
	spawn.arguments[4] = argument;
	return spawn;
}

static struct spawn shell_under_kiln(const char *directory, const char *script)
{
	struct spawn spawn = under_kiln(directory);

	spawn.arguments[2] = "sh";
	spawn.arguments[3] = "-c";
	spawn.arguments[4] = script;
	return spawn;
}

static int is_line(const char *text, const char *line)
{
	size_t length = strlen(line);

	for (; text; text = strchr(text, '\n')) {
		text += *text == '\n';
		if (!strncmp(text, line, length) &&
		    (text[length] == '\n' || !text[length]))
			return 1;
	}
	return 0;
}

/* ---- Ends ------------------------------------------------------------------------ */

/* S43 */
static void exit_statuses_are_passed_on(void **state)
{
	static const int statuses[] = { 0, 1, 3, 125, 126, 127, 255 };
	char *directory = harness_directory(), script[32];
	size_t i;

	for (i = 0; i < sizeof(statuses) / sizeof(*statuses); i++) {
		struct spawn spawn;
		struct ended ended;

		snprintf(script, sizeof(script), "exit %d", statuses[i]);
		spawn = shell_under_kiln(directory, script);
		ended = spawn_run(&spawn);
		assert_int_equal(status_of(&ended), statuses[i]);
		assert_string_equal(ended.err, "");
		ended_free(&ended);
	}
	free(directory);
}

static void what_cannot_run_has_statuses_of_its_own(void **state)
{
	char *directory = harness_directory();
	char *plain = harness_path(directory, "plain");
	struct {
		const char *arguments[3];
		int status;
	} rows[] = {
		{ { "run", "/nowhere/at/all" }, 127 },
		{ { "run", "kiln-no-such-program" }, 127 },
		{ { "run", plain }, 126 },
		{ { "run", "/" }, 126 },
		{ { "run" }, 125 },
		{ { "run", "--nonsense" }, 125 },
		{ { "run", "--wait" }, 125 },
		{ { "run", "--help" }, 0 },
	};
	size_t i;

	harness_write(plain, "x", 1);
	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct spawn spawn = under_kiln(directory);
		struct ended ended;

		memcpy(spawn.arguments, rows[i].arguments,
		       sizeof(rows[i].arguments));
		ended = spawn_run(&spawn);
		assert_int_equal(status_of(&ended), rows[i].status);
		assert_int_equal(!*ended.err, !rows[i].status);
		ended_free(&ended);
	}
	free(plain);
	free(directory);
}

static void a_program_killed_by_a_signal_takes_kiln_along(void **state)
{
	static const char *const numbers[] = {
		"15", "9", "11", "6", "1", "40"
	};
	char *directory = harness_directory();
	size_t i;

	for (i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		struct spawn spawn =
			role_under_kiln(directory, "die", numbers[i]);
		struct ended ended = spawn_run(&spawn);

		assert_int_equal(status_of(&ended), 1000 + atoi(numbers[i]));
		assert_false(WCOREDUMP(ended.wait_status));
		ended_free(&ended);
	}
	free(directory);
}

/* ---- Signals ------------------------------------------------------------------- */

static pid_t wait_until_ready(const struct spawned *spawned)
{
	char line[64];
	int pid = 0;

	assert_true(read_line(spawned->out, line, sizeof(line)));
	assert_int_equal(sscanf(line, "ready %d", &pid), 1);
	return pid;
}

static void expect(const struct spawned *spawned, const char *wanted)
{
	char line[64];

	read_line(spawned->out, line, sizeof(line));
	assert_string_equal(line, wanted);
}

static void end_well(struct spawned *spawned)
{
	struct ended ended;

	kill(spawned->pid, SIGUSR2);
	ended = spawn_finish(spawned);
	assert_int_equal(status_of(&ended), 0);
	ended_free(&ended);
}

/* S43 */
static void signals_sent_to_kiln_are_sent_on(void **state)
{
	static const int numbers[] = { SIGUSR1, SIGHUP,	 SIGINT,  SIGTERM,
				       SIGQUIT, SIGALRM, SIGPIPE, SIGWINCH };
	char *directory = harness_directory(), wanted[64];
	struct spawn spawn = role_under_kiln(directory, "signals", NULL);
	struct spawned spawned = spawn_start(&spawn);
	size_t i;

	assert_int_not_equal(wait_until_ready(&spawned), spawned.pid);
	for (i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		kill(spawned.pid, numbers[i]);
		snprintf(wanted, sizeof(wanted), "%d user 0", numbers[i]);
		expect(&spawned, wanted);
	}
	sigqueue(spawned.pid, SIGRTMIN + 1, (union sigval){ .sival_int = 42 });
	snprintf(wanted, sizeof(wanted), "%d user 42", SIGRTMIN + 1);
	expect(&spawned, wanted);
	end_well(&spawned);
	free(directory);
}

static void take_terminal(void *arg)
{
	int *terminal = arg;

	setsid();
	ioctl(*terminal, TIOCSCTTY, 0);
}

/* S43: Ctrl-C reaches the program by itself, and once. */
static void signals_of_the_terminal_are_not_sent_twice(void **state)
{
	char *directory = harness_directory();
	struct spawn spawn = role_under_kiln(directory, "signals", NULL);
	struct spawned spawned;
	int master, terminal, status;

	assert_int_equal(openpty(&master, &terminal, NULL, NULL, NULL), 0);
	spawn.has_group = 0;
	spawn.before = take_terminal;
	spawn.arg = &terminal;
	spawned = spawn_start(&spawn);
	wait_until_ready(&spawned);

	/* While kiln stands still the program takes its own; a second one
	   would come before the SIGCONT that is sent on. */
	kill(spawned.pid, SIGSTOP);
	assert_int_equal(waitpid(spawned.pid, &status, WUNTRACED), spawned.pid);
	assert_int_equal(write(master, "\003", 1), 1);
	expect(&spawned, "2 kernel 0");
	assert_int_equal(write(master, "\034", 1), 1);
	expect(&spawned, "3 kernel 0");
	kill(spawned.pid, SIGCONT);
	expect(&spawned, "18 user 0");
	end_well(&spawned);
	close(master);
	close(terminal);
	free(directory);
}

/* S43 */
static void kiln_stops_and_goes_on_with_the_program(void **state)
{
	static const int stops[] = { SIGSTOP, SIGTSTP };
	char *directory = harness_directory();
	struct spawn spawn = role_under_kiln(directory, "signals", NULL);
	size_t i;

	for (i = 0; i < 2; i++) {
		struct spawned spawned = spawn_start(&spawn);
		pid_t program = wait_until_ready(&spawned);
		int status;

		kill(program, stops[i]);
		assert_int_equal(waitpid(spawned.pid, &status, WUNTRACED),
				 spawned.pid);
		assert_true(WIFSTOPPED(status));
		assert_int_equal(WSTOPSIG(status), stops[i]);

		kill(spawned.pid, SIGCONT);
		assert_int_equal(waitpid(spawned.pid, &status, WCONTINUED),
				 spawned.pid);
		expect(&spawned, "18 user 0");
		kill(spawned.pid, SIGUSR1);
		expect(&spawned, "10 user 0");
		end_well(&spawned);
	}
	free(directory);
}

/* S43: by its own process id, of which only the program hears. */
static void kiln_goes_on_when_only_the_program_is_continued(void **state)
{
	static const int stops[] = { SIGSTOP, SIGTSTP };
	char *directory = harness_directory();
	struct spawn spawn = role_under_kiln(directory, "signals", NULL);
	size_t i;

	for (i = 0; i < 2; i++) {
		struct spawned spawned = spawn_start(&spawn);
		pid_t program = wait_until_ready(&spawned);
		struct ended ended;
		int status, round;

		for (round = 0; round < 2; round++) {
			kill(program, stops[i]);
			assert_int_equal(
				waitpid(spawned.pid, &status, WUNTRACED),
				spawned.pid);
			assert_true(WIFSTOPPED(status));
			kill(program, SIGCONT);
			assert_int_equal(
				waitpid(spawned.pid, &status, WCONTINUED),
				spawned.pid);
			assert_true(WIFCONTINUED(status));
			expect(&spawned, "18 user 0");
			/* And it is not told so twice. */
			kill(spawned.pid, SIGUSR1);
			expect(&spawned, "10 user 0");
		}
		/* Nor does it stand for ever when the program is killed. */
		kill(program, stops[i]);
		assert_int_equal(waitpid(spawned.pid, &status, WUNTRACED),
				 spawned.pid);
		kill(program, SIGKILL);
		ended = spawn_finish(&spawned);
		assert_int_equal(status_of(&ended), 1000 + SIGKILL);
		ended_free(&ended);
	}
	free(directory);
}

/* ---- What the program is given ---------------------------------------------------- */

static void set_odd_signals(void *arg)
{
	sigset_t mask;

	signal(SIGCHLD, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	sigaddset(&mask, SIGRTMIN + 3);
	sigprocmask(SIG_SETMASK, &mask, NULL);
	if (dup2(1, 7) != 7)
		_exit(99);
}

/* S41, S43: with one descriptor more, and with some of the three closed. */
static void the_program_starts_as_without_kiln(void **state)
{
	static const int closed[] = { 0, 1, 2, 4, 7 };
	char *directory = harness_directory();
	char *with = harness_path(directory, "with");
	char *without = harness_path(directory, "without");
	size_t i;

	for (i = 0; i < sizeof(closed) / sizeof(*closed); i++) {
		struct spawn spawn = role_under_kiln(directory, "inside", with);
		struct ended ended;
		char *seen, *wanted;

		spawn.closed = closed[i];
		spawn.before = set_odd_signals;
		ended = spawn_run(&spawn);
		assert_int_equal(status_of(&ended), 0);
		ended_free(&ended);

		spawn.program = self;
		spawn.arguments[0] = "inside";
		spawn.arguments[1] = without;
		spawn.arguments[2] = NULL;
		ended = spawn_run(&spawn);
		assert_int_equal(status_of(&ended), 0);
		ended_free(&ended);

		seen = harness_read(with, NULL);
		wanted = harness_read(without, NULL);
		assert_non_null(strstr(wanted, "fd 7 pipe"));
		assert_string_equal(seen, wanted);
		free(seen);
		free(wanted);
	}
	free(with);
	free(without);
	free(directory);
}

/* The shell is in kiln's session and group, and kiln is its parent. */
static void the_program_stays_in_group_and_session(void **state)
{
	char *directory = harness_directory();
	struct spawn spawn =
		shell_under_kiln(directory, "cut -d' ' -f4-6 /proc/$$/stat");
	struct spawned spawned = spawn_start(&spawn);
	pid_t pid = spawned.pid;
	int parent, group, session;
	struct ended ended = spawn_finish(&spawned);

	assert_int_equal(
		sscanf(ended.out, "%d %d %d", &parent, &group, &session), 3);
	assert_int_equal(parent, pid);
	assert_int_equal(group, pid);
	assert_int_equal(session, getsid(0));
	ended_free(&ended);
	free(directory);
}

static void the_layer_goes_first_and_once(void **state)
{
	char *directory = harness_directory(), *before, *twice, *wanted;
	struct {
		const char *variable;
		const char *wanted;
	} rows[3];
	size_t i;

	assert_true(asprintf(&wanted, "%s:/else/where.so\n", layer) > 0);
	assert_true(asprintf(&twice, "OPENCL_LAYERS=/a.so:%s", layer) > 0);
	assert_true(asprintf(&before, "%s\n", layer) > 0);
	rows[0].variable = "OPENCL_LAYERS";
	rows[0].wanted = before;
	rows[1].variable = "OPENCL_LAYERS=/else/where.so";
	rows[1].wanted = wanted;
	rows[2].variable = twice;
	rows[2].wanted = NULL;
	for (i = 0; i < 3; i++) {
		struct spawn spawn = shell_under_kiln(
			directory, "printf '%s\\n' \"$OPENCL_LAYERS\"");
		struct ended ended;

		spawn.variables[1] = rows[i].variable;
		ended = spawn_run(&spawn);
		if (rows[i].wanted)
			assert_string_equal(ended.out, rows[i].wanted);
		else
			assert_memory_equal(ended.out, twice + 14,
					    strlen(twice + 14));
		ended_free(&ended);
	}
	free(before);
	free(twice);
	free(wanted);
	free(directory);
}

/* The inner kiln becomes its program: the parent that it sees is the shell. */
static char *in_tree(const char *folder, const char *name)
{
	char *path = harness_path(tree, folder), *result;

	if (ki_make_directories(&ki_sys_posix, path))
		abort();
	result = harness_path(path, name);
	free(path);
	return result;
}

/* A row's text has "@" for our proxy. */
static void the_proxy_takes_the_place_of_one_driver(void **state)
{
	static const struct {
		const char *name;
		const char *list;
		const char *driver; /* KILN_ZE_DRIVER, or NULL */
		const char *wanted; /* both variables */
	} rows[] = {
		{ "one that it knows", "libze_intel_gpu.so.1", NULL,
		  "@ libze_intel_gpu.so.1\n" },
		{ "the first that it knows",
		  "/a/b.so,/c/libze_intel_gpu.so.1.3,libze_intel_gpu.so.1",
		  NULL,
		  "/a/b.so,@,libze_intel_gpu.so.1 "
		  "/c/libze_intel_gpu.so.1.3\n" },
		{ "the one that is wanted", "libze_intel_gpu.so.1,/d/mine.so",
		  "/d/mine.so", "libze_intel_gpu.so.1,@ /d/mine.so\n" },
		{ "none that it knows", "/a/b.so,c.so", NULL,
		  "/a/b.so,c.so \n" },
		{ "none that is wanted", "libze_intel_gpu.so.1", "/d/mine.so",
		  "libze_intel_gpu.so.1 /d/mine.so\n" },
		{ "a path that changes with the folder",
		  "./libze_intel_gpu.so.1", NULL, "./libze_intel_gpu.so.1 \n" },
		{ "a name that goes on", "libze_intel_gpu.so2", NULL,
		  "libze_intel_gpu.so2 \n" },
		{ "an empty list", "", NULL, " \n" },
	};
	char *directory = harness_directory(), *proxy, *list, *driver;
	const char *at;
	size_t i;

	proxy = in_tree("src/front/levelzero", "libkiln-ze.so");
	harness_write(proxy, "", 0);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct spawn spawn = shell_under_kiln(
			directory, "echo \"$ZE_ENABLE_ALT_DRIVERS "
				   "$KILN_ZE_DRIVER\"");
		struct ki_bytes wanted;
		struct ended ended;

		print_message("# %s\n", rows[i].name);
		ki_bytes_init(&wanted);
		for (at = rows[i].wanted; *at; at++)
			if (*at == '@')
				ki_bytes_add_string(&wanted, proxy);
			else
				ki_bytes_add_u8(&wanted, (uint8_t)*at);
		ki_bytes_add_u8(&wanted, '\0');
		assert_true(asprintf(&list, "ZE_ENABLE_ALT_DRIVERS=%s",
				     rows[i].list) > 0);
		assert_true(asprintf(&driver, "KILN_ZE_DRIVER=%s",
				     rows[i].driver ? rows[i].driver : "") > 0);
		spawn.variables[1] = list;
		spawn.variables[2] = rows[i].driver ? driver : "KILN_ZE_DRIVER";
		ended = spawn_run(&spawn);
		assert_string_equal(ended.out, (char *)wanted.data);
		ended_free(&ended);
		ki_bytes_fini(&wanted);
		free(list);
		free(driver);
	}
	assert_int_equal(unlink(proxy), 0);
	free(proxy);
	free(directory);
}

/* Loaders that stand between programs and drivers would call past it. */
static void newer_loaders_are_kept_from_passing_by_the_proxy(void **state)
{
#define HANDLES "ZE_ENABLE_LOADER_DRIVER_DDI_PATH"
#define LIST	"ZE_ENABLE_ALT_DRIVERS=libze_intel_gpu.so.1"
	static const struct {
		const char *list;
		const char *intercept;
		const char *handles;
		const char *wanted;
	} rows[] = {
		{ LIST, "ZE_ENABLE_LOADER_INTERCEPT", HANDLES, "\n" },
		{ LIST ",b.so", "ZE_ENABLE_LOADER_INTERCEPT", HANDLES, "0\n" },
		{ LIST, "ZE_ENABLE_LOADER_INTERCEPT=1", HANDLES, "0\n" },
		{ LIST ",b.so", "ZE_ENABLE_LOADER_INTERCEPT", HANDLES "=1",
		  "1\n" },
		{ "ZE_ENABLE_ALT_DRIVERS=a.so,b.so",
		  "ZE_ENABLE_LOADER_INTERCEPT", HANDLES, "\n" },
	};
	char *directory = harness_directory(), *proxy;
	size_t i;

	proxy = in_tree("src/front/levelzero", "libkiln-ze.so");
	harness_write(proxy, "", 0);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct spawn spawn =
			shell_under_kiln(directory, "echo \"$" HANDLES "\"");
		struct ended ended;

		spawn.variables[1] = rows[i].list;
		spawn.variables[2] = rows[i].intercept;
		spawn.variables[3] = rows[i].handles;
		ended = spawn_run(&spawn);
		assert_string_equal(ended.out, rows[i].wanted);
		ended_free(&ended);
	}
	assert_int_equal(unlink(proxy), 0);
	free(proxy);
	free(directory);
}

static void a_nested_kiln_adds_nothing(void **state)
{
	char *directory = harness_directory(), *parent, *layers, *shell, *name;
	struct spawn spawn =
		shell_under_kiln(directory, "\"$T\" run -- sh -c 'echo $PPID; "
					    "echo $OPENCL_LAYERS'; echo $$");
	struct ended ended;

	assert_true(asprintf(&name, "T=%s", kiln) > 0);
	spawn.variables[3] = name;
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 0);
	parent = strtok(ended.out, "\n");
	layers = strtok(NULL, "\n");
	shell = strtok(NULL, "\n");
	assert_string_equal(layers, layer);
	assert_string_equal(parent, shell);
	ended_free(&ended);
	free(name);
	free(directory);
}

/* ---- Settings ------------------------------------------------------------------- */

/* S28, S39: whatever is wrong with caching, the program runs. */
static void the_program_runs_whatever_is_wrong(void **state)
{
	char *directory = harness_directory();
	static const struct {
		const char *variables[5];
		int has_layer;
		const char *complaint;
	} rows[] = {
		{ { "KILN_DISABLE=1" }, 0, "" },
		{ { "KILN_DISABLE=perhaps" }, 0, "KILN_DISABLE" },
		{ { "KILN_MAX_SIZE=12 parsecs" }, 0, "KILN_MAX_SIZE" },
		{ { "KILN_SPOOL=0" }, 1, "" },
		{ { "KILN_DIR", "HOME", "XDG_CACHE_HOME" }, 1, "" },
		{ { "KILN_DIR=/proc/nowhere" }, 1, "" },
		{ { "KILN_DIR=/dev/null" }, 1, "" },
	};
	size_t i, j;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct spawn spawn = shell_under_kiln(
			directory, "echo \"<$OPENCL_LAYERS>\"; exit 7");
		struct ended ended;

		for (j = 0; rows[i].variables[j]; j++)
			spawn.variables[3 + j] = rows[i].variables[j];
		ended = spawn_run(&spawn);
		assert_int_equal(status_of(&ended), 7);
		assert_int_equal(strcmp(ended.out, "<>\n") != 0,
				 rows[i].has_layer);
		assert_non_null(strstr(ended.err, rows[i].complaint));
		assert_int_equal(!*ended.err, !*rows[i].complaint);
		ended_free(&ended);
	}
	free(directory);
}

/* ---- The worker -------------------------------------------------------------------- */

static void add_job(const char *directory)
{
	char *spool = harness_path(directory, "spool");
	char *job = harness_path(spool, JOB);
	char *fifo = harness_path(directory, "spool.fifo");

	assert_int_equal(mkdir(spool, 0700), 0);
	harness_write(job, "", 0);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	free(fifo);
	free(job);
	free(spool);
}

static char *hear_worker(const char *directory)
{
	char *fifo = harness_path(directory, "spool.fifo"), *text;
	int fd = open(fifo, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	text = read_to_end(fd);
	free(fifo);
	return text;
}

static void give_more_descriptors(void *arg)
{
	if (dup2(1, 9) != 9 || dup2(2, 12) != 12)
		_exit(99);
	set_odd_signals(NULL);
}

/* $(kiln run ...) ends with the program: the pipe comes to its end and the
   status is there, while the worker waits to be heard. */
static void the_worker_holds_nothing_of_ours(void **state)
{
	char *directory = harness_directory(), *told, *argument;
	struct spawn spawn;
	struct ended ended;

	add_job(directory);
	spawn = shell_under_kiln(directory, "echo from the program; exit 3");
	spawn.before = give_more_descriptors;
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 3);
	assert_string_equal(ended.out, "from the program\n");
	ended_free(&ended);

	told = hear_worker(directory);
	assert_true(asprintf(&argument, "argument %s/spool", directory) > 0);
	assert_true(is_line(told, "argument --spool"));
	assert_true(is_line(told, argument));
	assert_true(is_line(told, "argument --store"));
	assert_true(is_line(told, "session 1"));
	assert_true(is_line(told, "layers no"));
	assert_true(is_line(told, "directory /"));
	assert_true(is_line(told, "SigBlk:\t0000000000000000"));
	assert_true(is_line(told, "SigIgn:\t0000000000000000"));
	assert_true(is_line(told, "fd 0 /dev/null"));
	assert_true(is_line(told, "fd 1 /dev/null"));
	assert_true(is_line(told, "fd 2 /dev/null"));
	assert_null(strstr(strstr(told, "fd 2 /dev/null") + 1, "fd "));
	free(argument);
	free(told);
	free(directory);
}

static const char script[] =
	"jobs 2\n"
	"wait builds 1\n"
	"begin 11111111111111111111111111111111 1 /usr/bin/app\n"
	"done 11111111111111111111111111111111 1234 5678\n"
	"jobs 1\n"
	"something new\n"
	"failed 22222222222222222222222222222222 crash signal 11\n"
	"jobs 0\n"
	"skipped 33333333333333333333333333333333 driver Clover: unknown\n"
	"skipped 44444444444444444444444444444444 driver Clover: unknown\n"
	"skipped 55555555555555555555555555555555 driver rusticl: no\n"
	"end 1 1 1\n";

static void run_wait_names_what_stays(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "spool.script");
	struct spawn spawn = shell_under_kiln(directory, "exit 3");
	struct ended ended;

	add_job(directory);
	harness_write(path, script, sizeof(script) - 1);
	spawn.arguments[1] = "--wait";
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 3);
	assert_string_equal(ended.out, "");
	assert_string_equal(ended.err,
			    "kiln: not made: 222222222222.. (signal 11)\n"
			    "kiln: 3 jobs: no worker may make them here "
			    "(Clover: unknown, rusticl: no)\n");
	ended_free(&ended);
	free(path);
	free(directory);
}

static void use_terminal_for_errors(void *arg)
{
	if (dup2(*(int *)arg, 2) != 2)
		_exit(99);
}

/* S61: a bar that is gone at the end, and only where it can be drawn. */
static void progress_is_for_terminals(void **state)
{
	static const char *const rows[] = { "TERM=xterm", "TERM=dumb", "TERM" };
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char *directory = harness_directory();
		char *path = harness_path(directory, "spool.script");
		struct spawn spawn = shell_under_kiln(directory, "exit 0");
		int master, terminal;
		struct ended ended;
		char *text;

		add_job(directory);
		harness_write(path, script, sizeof(script) - 1);
		assert_int_equal(openpty(&master, &terminal, NULL, NULL, NULL),
				 0);
		spawn.arguments[1] = "--wait";
		spawn.variables[3] = rows[i];
		spawn.before = use_terminal_for_errors;
		spawn.arg = &terminal;
		ended = spawn_run(&spawn);
		assert_int_equal(status_of(&ended), 0);
		close(terminal);
		text = read_to_end(master);
		assert_int_equal(strstr(text, "\r[#####.....] 1/2 app") != NULL,
				 i == 0);
		/* What is done is not left, before the worker counts again. */
		assert_null(strstr(text, "/3 "));
		assert_int_equal(strchr(text, '\033') != NULL, i == 0);
		assert_int_equal(strstr(text, "\r\033[Kkiln: not made") != NULL,
				 i == 0);
		ended_free(&ended);
		free(text);
		free(path);
		free(directory);
	}
}

static struct spawn verb(const char *directory, const char *name,
			 const char *option)
{
	struct spawn spawn = under_kiln(directory);

	spawn.arguments[0] = name;
	spawn.arguments[1] = option;
	return spawn;
}

static void wait_counts_what_was_made(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "spool.script");
	struct spawn spawn = verb(directory, "wait", "--json");
	struct ended ended;
	json_t *json;

	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 0);
	ended_free(&ended);

	add_job(directory);
	harness_write(path, script, sizeof(script) - 1);
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 1);
	json = json_loads(ended.out, 0, NULL);
	assert_int_equal(json_integer_value(json_object_get(json, "done")), 1);
	assert_int_equal(json_integer_value(json_object_get(json, "failed")),
			 1);
	assert_int_equal(json_integer_value(json_object_get(json, "skipped")),
			 3);
	assert_int_equal(json_integer_value(json_object_get(json, "left")), 1);
	json_decref(json);
	ended_free(&ended);
	free(path);
	free(directory);
}

/* No job is left, but whoever made the last one may not be done. */
static void wait_lets_a_worker_before_it_come_to_its_end(void **state)
{
	static const char lines[] =
		"jobs 1\ndone 0123456789abcdef0123456789abcdef 1 1\nend 1 0 "
		"0\n";
	char *directory = harness_directory();
	char *path = harness_path(directory, "spool.script");
	char *lock = harness_path(directory, "spool/worker.lock");
	char *job = harness_path(directory, "spool/" JOB);
	struct spawn spawn = verb(directory, "wait", "--json");
	struct ended ended;
	json_t *json;

	add_job(directory);
	assert_int_equal(unlink(job), 0);
	harness_write(lock, "", 0);
	harness_write(path, lines, sizeof(lines) - 1);
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 1);
	json = json_loads(ended.out, 0, NULL);
	assert_int_equal(json_integer_value(json_object_get(json, "done")), 1);
	json_decref(json);
	ended_free(&ended);
	free(job);
	free(lock);
	free(path);
	free(directory);
}

/* A rebuild takes as long as it takes, and is nobody's job. */
static void wait_lets_a_rebuild_go_on(void **state)
{
	const struct ki_sys *sys = &ki_sys_posix;
	char *directory = harness_directory();
	char *lock = harness_path(directory, "spool/worker.lock");
	char *job = harness_path(directory, "spool/" JOB);
	struct spawn spawn = verb(directory, "wait", NULL);
	struct ended ended;
	int fd;

	add_job(directory);
	assert_int_equal(unlink(job), 0);
	fd = sys->open(sys, lock, KI_OPEN_READ | KI_OPEN_WRITE | KI_OPEN_CREATE,
		       0600);
	assert_true(fd >= 0);
	assert_int_equal(sys->try_lock(sys, fd, KI_LOCK_EXCLUSIVE, 0, 2), 0);
	ended = spawn_run(&spawn);
	assert_int_equal(status_of(&ended), 0);
	assert_string_equal(ended.out, "nothing to wait for\n");
	ended_free(&ended);
	assert_int_equal(sys->close(sys, fd), 0);
	free(job);
	free(lock);
	free(directory);
}

/* Ctrl-C and the like end the worker of `kiln wait`, and kiln as the worker
   ends; of `kiln run --wait` they end the waiting alone. */
static void waiting_can_be_ended(void **state)
{
	struct spawn rows[2];
	size_t i;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	for (i = 0; i < 2; i++) {
		char *directory = harness_directory(), *told;
		struct spawned spawned;
		struct ended ended;
		pid_t worker;

		add_job(directory);
		rows[0] = verb(directory, "wait", NULL);
		rows[1] = shell_under_kiln(directory, "exit 0");
		rows[1].arguments[1] = "--wait";
		spawned = spawn_start(&rows[i]);
		told = hear_worker(directory);
		assert_true(is_line(told, "argument --wait"));
		kill(spawned.pid, SIGTERM);
		ended = spawn_finish(&spawned);
		assert_int_equal(status_of(&ended), 1000 + SIGTERM);
		ended_free(&ended);

		worker = atoi(strstr(told, "pid ") + 4);
		assert_int_equal(waitpid(worker, NULL, WNOHANG), i ? 0 : -1);
		if (i) {
			kill(worker, SIGKILL);
			waitpid(worker, NULL, 0);
		}
		free(told);
		free(directory);
	}
	prctl(PR_SET_CHILD_SUBREAPER, 0);
}

/* Orphans come to us, so that one that was started can be seen. */
static void no_worker_starts_without_reason(void **state)
{
	static char nested[64];
	const char *rows[] = { "NO_JOB=1", "KILN_SPOOL=0", "KILN_DISABLE=1",
			       nested };
	size_t i;

	snprintf(nested, sizeof(nested), "_KILN_RUN=%d:%llu", ki_process_id(),
		 (unsigned long long)ki_process_start(ki_process_id()));
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char *directory = harness_directory();
		struct spawn spawn = shell_under_kiln(directory, "exit 4");
		char *job = harness_path(directory, "spool/" JOB);
		struct ended ended;

		add_job(directory);
		if (!i)
			unlink(job);
		spawn.variables[3] = rows[i];
		ended = spawn_run(&spawn);
		assert_int_equal(status_of(&ended), 4);
		assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
		assert_int_equal(errno, ECHILD);
		ended_free(&ended);
		free(job);
		free(directory);
	}
	prctl(PR_SET_CHILD_SUBREAPER, 0);
}

/* ---- The tree ------------------------------------------------------------------ */

/* kiln finds the others from where it really is: a copy. */
static void make_tree(const char *program)
{
	char *worker, *data;
	size_t size;

	tree = harness_directory();
	kiln = in_tree("cli", "kiln");
	layer = in_tree("src/front/opencl", LAYER);
	worker = in_tree("worker", "kiln-worker");
	data = harness_read(program, &size);
	harness_write(kiln, data, size);
	harness_write(layer, "", 0);
	if (chmod(kiln, 0700) || symlink(self, worker))
		abort();
	free(data);
	free(worker);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exit_statuses_are_passed_on),
		cmocka_unit_test(what_cannot_run_has_statuses_of_its_own),
		cmocka_unit_test(a_program_killed_by_a_signal_takes_kiln_along),
		cmocka_unit_test(signals_sent_to_kiln_are_sent_on),
		cmocka_unit_test(signals_of_the_terminal_are_not_sent_twice),
		cmocka_unit_test(kiln_stops_and_goes_on_with_the_program),
		cmocka_unit_test(
			kiln_goes_on_when_only_the_program_is_continued),
		cmocka_unit_test(the_program_starts_as_without_kiln),
		cmocka_unit_test(the_program_stays_in_group_and_session),
		cmocka_unit_test(the_layer_goes_first_and_once),
		cmocka_unit_test(the_proxy_takes_the_place_of_one_driver),
		cmocka_unit_test(
			newer_loaders_are_kept_from_passing_by_the_proxy),
		cmocka_unit_test(a_nested_kiln_adds_nothing),
		cmocka_unit_test(the_program_runs_whatever_is_wrong),
		cmocka_unit_test(the_worker_holds_nothing_of_ours),
		cmocka_unit_test(no_worker_starts_without_reason),
		cmocka_unit_test(run_wait_names_what_stays),
		cmocka_unit_test(progress_is_for_terminals),
		cmocka_unit_test(wait_counts_what_was_made),
		cmocka_unit_test(wait_lets_a_worker_before_it_come_to_its_end),
		cmocka_unit_test(wait_lets_a_rebuild_go_on),
		cmocka_unit_test(waiting_can_be_ended),
	};
	static char path[4096];
	int status;

	if (strstr(argv[0], "kiln-worker"))
		return play_worker(argc, argv);
	status = play(argv[1], argv[2]);
	if (status >= 0)
		return status;
	if (readlink("/proc/self/exe", path, sizeof(path) - 1) < 0)
		abort();
	self = path;
	make_tree(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
