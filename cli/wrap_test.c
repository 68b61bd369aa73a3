/* SPDX-License-Identifier: MIT */

/*
 * kiln wrap, with the compilers that are here, and for odd cases with a shell that
 * goes by the name of glslc: the source is a script that says what the compiler
 * does, with "-o OUT" for arguments.  Each run leaves a line in `count`.
 */

#include "harness/harness.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <kiln/inspect.h>

#include "testing.h"

#define SHELL	  "/bin/dash"
#define WORDS_MAX 15

static char *program;
static char *directory;		   /* where we are */
static const char *more;	   /* a setting */
static int closed;		   /* bit n: descriptor n */
static void (*prepare)(void *arg); /* is called in kiln's place */
static size_t n_again;		   /* runs that others spoiled */

/* ---- Files ------------------------------------------------------------------- */

static void write_file(const char *name, const char *text)
{
	harness_write(name, text, strlen(text));
}

/* Of an hour ago: what has just been written is not trusted. */
static void write_old(const char *name, const char *text)
{
	struct timespec times[2] = { { .tv_sec = time(NULL) - 3600 } };

	times[1] = times[0];
	write_file(name, text);
	assert_int_equal(utimensat(AT_FDCWD, name, times, 0), 0);
}

static void write_source(const char *text)
{
	char source[600];

	snprintf(source, sizeof(source), "echo run >>count\n%s", text);
	write_file("in", source);
}

static size_t n_runs(void)
{
	size_t size = 0;
	char *text = harness_read("count", &size);

	free(text);
	return size / strlen("run\n") - n_again;
}

/* The shell, or one with another build-id. */
static void make_compiler(int is_other)
{
	static const char note[] = "\3\0\0\0GNU";
	size_t size;
	char *data = harness_read(SHELL, &size), *found;

	assert_non_null(data);
	found = memmem(data, size, note, sizeof(note));
	assert_non_null(found);
	found[sizeof(note)] ^= (char)is_other;
	harness_write("bin/glslc", data, size);
	assert_int_equal(chmod("bin/glslc", 0700), 0);
	free(data);
}

/* Without files but the compiler's, and without a store. */
static void begin(void)
{
	assert_int_equal(chdir("/"), 0);
	free(directory);
	directory = harness_directory();
	assert_int_equal(chdir(directory), 0);
	assert_int_equal(mkdir("bin", 0700), 0);
	assert_int_equal(mkdir("a", 0700), 0);
	assert_int_equal(mkdir("b", 0700), 0);
	make_compiler(0);
	more = "KILN_READONLY";
	n_again = 0;
}

/* ---- Running ----------------------------------------------------------------- */

/* The words of `line`, which is cut, behind `first`. */
static void fill(struct spawn *spawn, const char *first[], char *line)
{
	size_t n = 0;
	char *rest = NULL, *word;

	for (; first && first[n]; n++)
		spawn->arguments[n] = first[n];
	for (word = strtok_r(line, " ", &rest); word;
	     word = strtok_r(NULL, " ", &rest)) {
		assert_true(n < WORDS_MAX);
		spawn->arguments[n++] = word;
	}
}

static struct spawned start_wrap(const char *command)
{
	static char setting[600];
	static const char *first[] = { "wrap", "--verbose", "--", NULL };
	struct spawn spawn = { .program = program,
			       .variables = { setting, more,
					      "XDG_CONFIG_HOME=/nowhere" },
			       .closed = closed,
			       .before = prepare };
	char line[500];

	snprintf(setting, sizeof(setting), "KILN_DIR=%s/kiln", directory);
	snprintf(line, sizeof(line), "%s", command);
	fill(&spawn, first, line);
	return spawn_start(&spawn);
}

static struct ended wrap(const char *command)
{
	struct spawned spawned = start_wrap(command);

	return spawn_finish(&spawned);
}

static struct ended native(const char *command)
{
	struct spawn spawn = { .program = "/usr/bin/env" };
	char line[500];

	snprintf(line, sizeof(line), "%s", command);
	fill(&spawn, NULL, line);
	return spawn_run(&spawn);
}

#define RECENT "not kept: a file has just been written"

/*
 * Whether a file of the system has changed since then.  A run depends on hundreds of
 * them: an installation writes some, and a profiler that keeps libraries under other
 * names gives these a new time of change.  Then kiln is right to keep nothing.
 */
static int has_system_changed(time_t since)
{
	struct ended ended;
	char command[100];
	int has;

	snprintf(command, sizeof(command),
		 "find /bin/ /lib/ /usr /etc -newerct @%lld -print -quit",
		 (long long)since);
	ended = native(command);
	has = *ended.out != '\0';
	ended_free(&ended);
	return has;
}

static int is_spoiled(const struct ended *ended, time_t begun)
{
	return strstr(ended->err, RECENT) && has_system_changed(begun);
}

/* Again, as long as the system changes meanwhile. */
static struct ended wrap_settled(const char *command)
{
	struct ended ended;
	time_t begun;

	for (;;) {
		begun = time(NULL);
		ended = wrap(command);
		if (!is_spoiled(&ended, begun))
			return ended;
		ended_free(&ended);
		n_again++;
	}
}

/* What --verbose says of it; the rest of standard error stays. */
static char *take_word(struct ended *ended)
{
	char *begin = strstr(ended->err, "kiln: wrap: "), *end, *word;

	assert_non_null(begin);
	end = strchr(begin, '\n');
	assert_non_null(end);
	word = strndup(begin + 12, (size_t)(end - begin - 12));
	memmove(begin, end + 1, strlen(end + 1) + 1);
	return word;
}

static void assert_word(struct ended *ended, const char *expected)
{
	char *word = take_word(ended);

	assert_string_equal(word, expected);
	free(word);
}

/* Runs it and frees what it said. */
static void assert_wrap(const char *command, const char *expected, int status)
{
	struct ended ended = wrap_settled(command);

	assert_word(&ended, expected);
	assert_int_equal(status_of(&ended), status);
	ended_free(&ended);
}

static void assert_same_file(const char *name, const char *expected,
			     size_t expected_size)
{
	size_t size = 0;
	char *data = harness_read(name, &size);

	assert_int_equal(!data, !expected);
	if (data) {
		assert_int_equal(size, expected_size);
		assert_memory_equal(data, expected, size);
	}
	free(data);
}

#define KEPT  "compiled and kept"
#define STORE "from the store"

/* The compiler alone, the first time and the second time are the same to see. */
static void assert_replayed(const char *command, const char *output)
{
	struct ended alone, wrapped;
	struct stat before, after;
	size_t size = 0;
	char *data;
	int has;

	(void)unlink(output);
	alone = native(command);
	has = !stat(output, &before);
	data = harness_read(output, &size);
	for (int i = 0; i < 2; i++) {
		(void)unlink(output);
		wrapped = wrap_settled(command);
		assert_word(&wrapped, i ? STORE : KEPT);
		assert_string_equal(wrapped.out, alone.out);
		assert_string_equal(wrapped.err, alone.err);
		assert_int_equal(status_of(&wrapped), status_of(&alone));
		assert_same_file(output, data, size);
		if (has) {
			assert_int_equal(stat(output, &after), 0);
			assert_int_equal(after.st_mode, before.st_mode);
		}
		ended_free(&wrapped);
	}
	ended_free(&alone);
	free(data);
}

/* ---- Tests ------------------------------------------------------------------- */

static void what_a_run_leaves_is_the_same_from_the_store(void **state)
{
	static const char *const rows[] = {
		"printf 'a\\0b' >\"$2\"",
		"echo said; echo warned >&2; echo data >\"$2\"",
		": >\"$2\"",
		"# We include/nothing, __include it: important\n: >\"$2\"",
		"umask 066; echo data >\"$2\"",
		"echo 'in:1: error: no' >&2; exit 3",
	};

	begin();
	write_source("printf 'a\\0b'; echo warned >&2");
	assert_replayed("bin/glslc in -o -", "out");

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		begin();
		write_source(rows[i]);
		assert_replayed("bin/glslc in -o out", "out");
		assert_int_equal(n_runs(), 2);
	}
}

#define SOURCE                                                                 \
	"#include \"h\"\n"                                                     \
	"if [ -e a/h ]; then read x <a/h; else read x <b/h; fi\n"              \
	"echo $x >\"$2\"\n"
#define INCLUDING "bin/glslc -Ia -Ib in -o out"

static void whatever_it_depends_on_makes_another_result(void **state)
{
	begin();
	write_source(SOURCE);
	write_old("b/h", "one");
	assert_wrap(INCLUDING, KEPT, 0);
	assert_wrap(INCLUDING, STORE, 0);
	write_old("b/h", "two");
	assert_wrap(INCLUDING, KEPT, 0);
	assert_same_file("out", "two\n", 4);
	/* One that comes before it on the path. */
	write_old("a/h", "three");
	assert_wrap(INCLUDING, KEPT, 0);
	assert_same_file("out", "three\n", 6);
	/* And goes: as it was before. */
	assert_int_equal(unlink("a/h"), 0);
	assert_wrap(INCLUDING, STORE, 0);
	assert_same_file("out", "two\n", 4);
	write_old("b/h", "one");
	assert_wrap(INCLUDING, STORE, 0);
	assert_same_file("out", "one\n", 4);
	/* The source, an argument, a variable, the compiler. */
	write_source(SOURCE "\n");
	assert_wrap(INCLUDING, KEPT, 0);
	assert_wrap("bin/glslc -Ib -Ia in -o out", KEPT, 0);
	more = "LANG=en_KILN";
	assert_wrap(INCLUDING, KEPT, 0);
	make_compiler(1);
	assert_wrap(INCLUDING, KEPT, 0);
	assert_wrap(INCLUDING, STORE, 0);
	/* The same file, but in another place, where other files may be. */
	assert_int_equal(rename("bin/glslc", "glslc"), 0);
	assert_int_equal(symlink("../glslc", "bin/glslc"), 0);
	assert_wrap(INCLUDING, KEPT, 0);
	assert_int_equal(n_runs(), 8);
}

struct refusal {
	const char *source, *command, *word;
	int status;
};

static void what_is_not_understood_runs_each_time(void **state)
{
	static const struct refusal rows[] = {
		{ ":", "bin/glslc in -o out --unknown",
		  "not cached: an argument is not understood", 0 },
		{ ":", "bin/glslc in -o out @response",
		  "not cached: an argument is not understood", 0 },
		{ ":", "bin/glslc in -o",
		  "not cached: an argument is not "
		  "understood",
		  0 },
		{ ":", "bin/glslc in", "not cached: the output has no name",
		  0 },
		{ ":", "bin/glslc in -o /dev/null",
		  "not cached: where its output goes", 0 },
		{ ":", "bin/glslc in -MD -o out",
		  "not cached: the list of includes has no name", 0 },
		{ "/bin/true; echo >\"$2\"", "bin/glslc in -o out",
		  "not kept: it starts other programs", 0 },
		{ "echo >\"$2\"; exec /bin/true", "bin/glslc in -o out",
		  "not kept: it starts other programs", 0 },
		{ "exit 7", "bin/glslc in -o out",
		  "not kept: it failed for a reason that may pass", 7 },
		{ "echo 'error: out of memory'; exit 1", "bin/glslc in -o out",
		  "not kept: it failed for a reason that may pass", 1 },
		{ "echo 'error: No space left on device'; exit 1",
		  "bin/glslc in -o out",
		  "not kept: it failed for a reason that may pass", 1 },
		{ "kill -TERM $$", "bin/glslc in -o out",
		  "not kept: it ended by a signal", 1015 },
		{ ":", "bin/glslc in -o out",
		  "not kept: an output was not written", 0 },
		{ "echo in:1: error; echo >\"$2\"; exit 1",
		  "bin/glslc in -o out", "not kept: it failed and wrote", 1 },
		{ "echo >\"$2\"\n#include FILE", "bin/glslc in -o out",
		  "not kept: what it includes is not known", 0 },
		{ "echo >\"$2\"\n#/* */ include \"in\"", "bin/glslc in -o out",
		  "not kept: what it includes is not known", 0 },
		{ "echo >\"$2\"; exit\n# \\\n include \"in\"",
		  "bin/glslc in -o out",
		  "not kept: what it includes is not known", 0 },
		{ "echo >\"$2\"\n# import \"in\"", "bin/glslc in -o out",
		  "not kept: what it includes is not known", 0 },
		{ "echo >\"$2\"\n#include \"nowhere\"", "bin/glslc in -o out",
		  "not kept: what it includes is not known", 0 },
		{ "echo >\"$2\"; exit\n#inc\\\nlude \"x\"",
		  "bin/glslc in -o out",
		  "not kept: what it includes is not known", 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		begin();
		write_source(rows[i].source);
		for (int run = 0; run < 2; run++) {
			(void)unlink("out");
			assert_wrap(rows[i].command, rows[i].word,
				    rows[i].status);
		}
		assert_int_equal(n_runs(), 2);
	}
}

static void without_a_store_it_is_as_if_kiln_were_not_there(void **state)
{
	static const char *const rows[] = { "KILN_DISABLE=1",
					    "KILN_STORE=log:/dev/null/x",
					    "KILN_MAX_SIZE=much" };

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		begin();
		write_source("echo said; echo data >\"$2\"; exit 5");
		for (int run = 0; run < 2; run++) {
			struct ended ended;

			more = rows[i];
			ended = wrap("bin/glslc in -o out");
			assert_int_equal(status_of(&ended), 5);
			assert_string_equal(ended.out, "said\n");
			assert_same_file("out", "data\n", 5);
			ended_free(&ended);
		}
		assert_int_equal(n_runs(), 2);
	}
}

static void of_a_program_that_is_not_there_it_says_so(void **state)
{
	struct ended ended;

	begin();
	ended = wrap("bin/nothing in");
	assert_int_equal(status_of(&ended), 127);
	assert_non_null(strstr(ended.err, "cannot run 'bin/nothing'"));
	ended_free(&ended);
}

static void a_script_is_no_compiler(void **state)
{
	begin();
	write_file("in", "");
	write_file("bin/glslc", "#!/bin/sh\necho run >>count\n");
	assert_wrap("bin/glslc in -o out",
		    "not cached: the compiler is a script", 0);
	assert_int_equal(n_runs(), 1);
}

static void an_output_keeps_its_mode_and_its_other_names(void **state)
{
	struct stat info;

	begin();
	write_source("echo data >\"$2\"");
	assert_wrap("bin/glslc in -o out", KEPT, 0);
	assert_int_equal(chmod("out", 0640), 0);
	assert_wrap("bin/glslc in -o out", STORE, 0);
	assert_int_equal(stat("out", &info), 0);
	assert_int_equal(info.st_mode & 0777, 0640);
	assert_int_equal(link("out", "other"), 0);
	assert_wrap("bin/glslc in -o out", "not cached: where its output goes",
		    0);
	assert_int_equal(stat("out", &info), 0);
	assert_int_equal(info.st_nlink, 2);
}

static void no_directory_is_made(void **state)
{
	begin();
	write_source("echo data >\"$2\"");
	assert_int_equal(mkdir("there", 0700), 0);
	assert_wrap("bin/glslc in -o there/out", KEPT, 0);
	harness_remove("there");
	assert_wrap("bin/glslc in -o there/out",
		    "not used: an output cannot be written", 2);
	assert_int_equal(access("there", F_OK), -1);
	assert_int_equal(n_runs(), 2);
}

#define NO_MOUNTS 98

/* A file system of its own, so small. */
static void mount_small(const char *folder, const char *size)
{
	if (unshare(CLONE_NEWNS) ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("kiln", folder, "tmpfs", 0, size))
		_exit(NO_MOUNTS);
}

static void fill_disk(void *arg)
{
	char bytes[4096] = "";
	int fd;

	mount_small("full", "size=64k,mode=700");
	fd = open("full/rest", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	while (write(fd, bytes, sizeof(bytes)) > 0)
		;
	close(fd);
}

/* It ends well all the same, as glslc does. */
static void an_output_on_a_full_disk_is_not_kept(void **state)
{
	struct ended ended;
	int status;

	begin();
	write_source("echo data >\"$2\"; exit 0");
	assert_int_equal(mkdir("full", 0700), 0);
	prepare = fill_disk;
	ended = wrap("bin/glslc in -o full/out");
	prepare = NULL;
	status = status_of(&ended);
	if (status != NO_MOUNTS) {
		assert_int_equal(status, 0);
		assert_word(&ended, "not kept: the disk may be full");
	}
	ended_free(&ended);
	if (status == NO_MOUNTS)
		HARNESS_LEAVE_OUT("nothing may be mounted here");
	assert_wrap("bin/glslc in -o full/out", KEPT, 0);
	assert_same_file("full/out", "data\n", 5);
}

/* All wait at a gate that one comes through at a time. */
static void of_many_at_once_one_compiles(void **state)
{
	struct spawned spawned[4];
	int gate;
	time_t begun;

	begin();
	assert_int_equal(mkfifo("gate", 0600), 0);
	gate = open("gate", O_RDWR | O_CLOEXEC);
	assert_true(gate >= 0);
	write_source("read line <gate; echo data >\"$2\"");
	begun = time(NULL);
	for (int i = 0; i < 4; i++)
		spawned[i] = start_wrap("bin/glslc in -o out");
	assert_int_equal(write(gate, "1\n2\n3\n4\n", 8), 8);
	for (int i = 0; i < 4; i++) {
		struct ended ended = spawn_finish(&spawned[i]);

		assert_int_equal(status_of(&ended), 0);
		n_again += (size_t)is_spoiled(&ended, begun);
		ended_free(&ended);
	}
	assert_same_file("out", "data\n", 5);
	assert_int_equal(n_runs(), n_again < 4);
	close(gate);
}

/* The folder of one that was killed goes, that of one that lives stays. */
static void folders_that_nobody_has_are_removed(void **state)
{
	char setting[300];
	int fd;

	begin();
	write_source("echo data >\"$2\"");
	assert_int_equal(mkdir("tmp", 0700), 0);
	assert_int_equal(mkdir("tmp/kiln-wrap-dead00", 0700), 0);
	write_file("tmp/kiln-wrap-dead00/t.1", "trace");
	assert_int_equal(mkdir("tmp/kiln-wrap-alive0", 0700), 0);
	fd = open("tmp/kiln-wrap-alive0", O_RDONLY | O_CLOEXEC);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	/* By chance; not ours to empty. */
	assert_int_equal(mkdir("tmp/kiln-wrap-notes0", 0700), 0);
	write_file("tmp/kiln-wrap-notes0/today", "");
	assert_int_equal(mkdir("tmp/other", 0700), 0);
	snprintf(setting, sizeof(setting), "TMPDIR=%s/tmp", directory);
	more = setting;
	assert_wrap("bin/glslc in -o out", KEPT, 0);
	assert_int_equal(rmdir("tmp/kiln-wrap-alive0"), 0);
	assert_int_equal(unlink("tmp/kiln-wrap-notes0/today"), 0);
	assert_int_equal(rmdir("tmp/kiln-wrap-notes0"), 0);
	assert_int_equal(rmdir("tmp/other"), 0);
	assert_int_equal(rmdir("tmp"), 0);
	close(fd);
}

/* gcc takes the value of SUNPRO_DEPENDENCIES for two words then. */
static void no_blank_is_in_the_folders_name(void **state)
{
	char setting[300], *text;
	size_t size;

	begin();
	write_source("echo $LD_DEBUG_OUTPUT >\"$2\"");
	assert_int_equal(mkdir("t mp", 0700), 0);
	snprintf(setting, sizeof(setting), "TMPDIR=%s/t mp", directory);
	more = setting;
	assert_wrap("bin/glslc in -o out", KEPT, 0);
	text = harness_read("out", &size);
	assert_non_null(text);
	assert_int_equal(strncmp(text, "/tmp/kiln-wrap-", 15), 0);
	free(text);
}

static void who_asks_the_loader_gets_its_answers(void **state)
{
	static const char *const rows[] = { "LD_DEBUG=statistics",
					    "LD_DEBUG_OUTPUT=trace" };

	for (size_t i = 0; i < 2; i++) {
		begin();
		write_source("echo data >\"$2\"");
		more = rows[i];
		struct ended ended = wrap("bin/glslc in -o out");

		assert_non_null(
			strstr(ended.err, "not cached: its loader is asked"));
		assert_int_equal(status_of(&ended), 0);
		ended_free(&ended);
	}
}

/* ---- Stores that are not as they should be ------------------------------------ */

/* Other bytes in the place of all values that begin so. */
static int spoil(const char *magic)
{
	struct kiln_options options;
	struct kiln_cursor cursor = { 0 };
	struct kiln_entry entry;
	struct kiln *kiln;
	char url[300];
	int n = 0;

	snprintf(url, sizeof(url), "log:%s/kiln", directory);
	kiln_options_init(&options);
	options.store_url = url;
	assert_int_equal(kiln_open(&options, &kiln), KILN_OK);
	while (!kiln_list(kiln, &cursor, &entry)) {
		struct kiln_key *key;
		struct kiln_blob *blob;

		assert_int_equal(kiln_key_from_record(
					 kiln_blob_data(entry.record),
					 kiln_blob_size(entry.record), &key),
				 KILN_OK);
		assert_int_equal(kiln_get(kiln, key, &blob), KILN_OK);
		if (!memcmp(kiln_blob_data(blob), magic, 4)) {
			n++;
			assert_int_equal(kiln_put(kiln, key, magic, 4, NULL,
						  KILN_PUT_REPLACE),
					 KILN_OK);
		}
		kiln_blob_unref(blob);
		kiln_key_free(key);
		kiln_entry_fini(&entry);
	}
	kiln_close(kiln);
	return n;
}

static void entries_that_cannot_be_read_are_made_anew(void **state)
{
	static const char *const rows[] = { "KWS1", "KWR1" };

	begin();
	write_source("echo data >\"$2\"");
	assert_wrap("bin/glslc in -o out", KEPT, 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(spoil(rows[i]), 1);
		assert_wrap("bin/glslc in -o out", KEPT, 0);
		assert_wrap("bin/glslc in -o out", STORE, 0);
	}
	assert_same_file("out", "data\n", 5);
	assert_int_equal(n_runs(), 3);
}

static int count_of(const char *name)
{
	struct spawn spawn = { .program = program,
			       .arguments = { "stats", "--json" } };
	char setting[300];
	struct ended ended;
	const char *number;
	int n;

	snprintf(setting, sizeof(setting), "KILN_DIR=%s/kiln", directory);
	spawn.variables[0] = setting;
	ended = spawn_run(&spawn);
	number = strstr(ended.out, name);
	assert_non_null(number);
	n = atoi(number + strlen(name) + strlen("\":"));
	ended_free(&ended);
	return n;
}

static void only_compilers_that_fail_are_failed_builds(void **state)
{
	begin();
	write_source("echo data >\"$2\"\n#include FILE");
	assert_wrap("bin/glslc in -o out",
		    "not kept: what it includes is not known", 0);
	assert_int_equal(count_of("build_failures"), 0);
	write_source("exit 7");
	assert_wrap("bin/glslc in -o out",
		    "not kept: it failed for a reason that may pass", 7);
	assert_int_equal(count_of("build_failures"), 1);
	write_source("echo 'in:1: error: no'; exit 1");
	assert_wrap("bin/glslc in -o out", KEPT, 1);
	assert_int_equal(count_of("build_failures"), 2);
	assert_wrap("bin/glslc in -o out", STORE, 1);
	assert_int_equal(count_of("build_failures"), 2);
}

static void what_is_not_cached_is_counted(void **state)
{
	begin();
	write_source("echo data >\"$2\"");
	assert_wrap("bin/glslc in -o out --unknown",
		    "not cached: an argument is not understood", 0);
	assert_int_equal(count_of("miss_unsupported"), 1);
	assert_wrap("bin/glslc in -o /dev/null",
		    "not cached: where its output goes", 0);
	assert_int_equal(count_of("miss_unsupported"), 2);
	assert_wrap("bin/glslc in -o out", KEPT, 0);
	assert_int_equal(count_of("miss_unsupported"), 2);
}

/* Nothing of ours gets the number of a stream that is closed. */
static void closed_streams_stay_closed(void **state)
{
	for (int fd = 1; fd <= 2; fd++) {
		struct ended ended;

		begin();
		write_source("echo data >\"$2\"; [ ! -e /proc/self/fd/$3 ]");
		closed = 1 << fd;
		ended = wrap(fd == 1 ? "bin/glslc in -o out 1"
				     : "bin/glslc in -o out 2");
		closed = 0;
		assert_int_equal(status_of(&ended), 0);
		ended_free(&ended);
		assert_same_file("out", "data\n", 5);
		assert_int_equal(access("kiln", F_OK), -1);
	}
}

#define WRITERS 8

static void eight_at_once_keep_what_they_make(void **state)
{
	struct spawned spawned[WRITERS];
	char line[100], name[20], data[20];
	int i, round;

	begin();
	for (i = 0; i < WRITERS; i++) {
		snprintf(name, sizeof(name), "in%d", i);
		snprintf(line, sizeof(line), "echo %d >\"$2\"", i);
		write_file(name, line);
	}
	for (round = 0; round < 2; round++) {
		const time_t begun = time(NULL);

		for (i = 0; i < WRITERS; i++) {
			snprintf(line, sizeof(line), "bin/glslc in%d -o out%d",
				 i, i);
			spawned[i] = start_wrap(line);
		}
		for (i = 0; i < WRITERS; i++) {
			struct ended ended = spawn_finish(&spawned[i]);

			if (!round && is_spoiled(&ended, begun)) {
				ended_free(&ended);
				snprintf(line, sizeof(line),
					 "bin/glslc in%d -o out%d", i, i);
				ended = wrap_settled(line);
			}
			assert_word(&ended, round ? STORE : KEPT);
			assert_int_equal(status_of(&ended), 0);
			ended_free(&ended);
			snprintf(name, sizeof(name), "out%d", i);
			snprintf(data, sizeof(data), "%d\n", i);
			assert_same_file(name, data, 2);
			assert_int_equal(unlink(name), 0);
		}
	}
}

static void a_store_that_is_only_read_answers_and_keeps_nothing(void **state)
{
	begin();
	write_source("echo data >\"$2\"");
	assert_wrap("bin/glslc in -o out", KEPT, 0);
	more = "KILN_READONLY=1";
	assert_int_equal(unlink("out"), 0);
	assert_wrap("bin/glslc in -o out", STORE, 0);
	assert_same_file("out", "data\n", 5);
	write_source("echo other >\"$2\"");
	for (int i = 0; i < 2; i++)
		assert_wrap("bin/glslc in -o out", "not kept: read only", 0);
	assert_same_file("out", "other\n", 6);
	/* What cannot be removed is no answer, either. */
	write_source("echo data >\"$2\"");
	assert_int_equal(spoil("KWR1"), 1);
	assert_wrap("bin/glslc in -o out", "not used: the entry is none", 0);
	assert_same_file("out", "data\n", 5);
}

/* No index, or no segment, has room there. */
static void have_no_room(void *arg)
{
	mount_small("kiln", "size=64k,mode=700");
}

static void have_little_room(void *arg)
{
	mount_small("kiln", "size=9m,mode=700");
}

static void a_store_without_room_is_as_none(void **state)
{
	static void (*const rows[])(void *) = { have_no_room,
						have_little_room };
	static const char *const words[] = { "without cache: full",
					     "not kept: full" };

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct ended ended;
		int status;

		begin();
		write_source("echo said; echo data >\"$2\"");
		assert_int_equal(mkdir("kiln", 0700), 0);
		prepare = rows[i];
		ended = wrap_settled("bin/glslc in -o out");
		prepare = NULL;
		status = status_of(&ended);
		if (status == NO_MOUNTS) {
			ended_free(&ended);
			HARNESS_LEAVE_OUT("nothing may be mounted here");
		}
		assert_int_equal(status, 0);
		assert_string_equal(ended.out, "said\n");
		assert_word(&ended, words[i]);
		ended_free(&ended);
		assert_same_file("out", "data\n", 5);
		assert_int_equal(n_runs(), 1);
	}
}

/* ---- Signals ------------------------------------------------------------------- */

/* A shell starts what it does not wait for with SIGINT ignored. */
static void heed_signals(void *arg)
{
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
}

struct signal_row {
	const char *trap;
	int signal_number, status;
};

/* S43: as of a program under `kiln run`. */
static void signals_reach_the_compiler_and_end_as_it_ends(void **state)
{
	static const struct signal_row rows[] = {
		{ "", SIGINT, 1000 + SIGINT },
		{ "", SIGTERM, 1000 + SIGTERM },
		{ "trap 'exit 3' TERM\n", SIGTERM, 3 },
		{ "trap 'echo data >out; exit 0' INT\n", SIGINT, 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct spawned spawned;
		char source[200], setting[300];
		int up;

		begin();
		assert_int_equal(mkdir("tmp", 0700), 0);
		assert_int_equal(mkfifo("up", 0600), 0);
		assert_int_equal(mkfifo("gate", 0600), 0);
		snprintf(source, sizeof(source),
			 "%s: >up\nread line <gate\nexit 9", rows[i].trap);
		write_source(source);
		snprintf(setting, sizeof(setting), "TMPDIR=%s/tmp", directory);
		more = setting;
		prepare = heed_signals;
		spawned = start_wrap("bin/glslc in -o out");
		prepare = NULL;
		up = open("up", O_RDONLY | O_CLOEXEC);
		assert_true(up >= 0);
		assert_int_equal(kill(spawned.pid, rows[i].signal_number), 0);
		struct ended ended = spawn_finish(&spawned);

		assert_int_equal(status_of(&ended), rows[i].status);
		ended_free(&ended);
		close(up);
		assert_int_equal(rmdir("tmp"), 0); /* nothing is left there */
	}
}

/* ---- Outputs -------------------------------------------------------------------- */

static void places_that_are_no_files_are_left_to_the_compiler(void **state)
{
	struct stat info;

	begin();
	write_source("echo data >\"$2\"");
	write_file("target", "old");
	assert_int_equal(symlink("target", "out"), 0);
	for (int i = 0; i < 2; i++)
		assert_wrap("bin/glslc in -o out",
			    "not cached: where its output goes", 0);
	assert_int_equal(lstat("out", &info), 0);
	assert_true(S_ISLNK(info.st_mode));
	assert_same_file("target", "data\n", 5);
	assert_int_equal(symlink("nowhere", "dangling"), 0);
	assert_wrap("bin/glslc in -o dangling",
		    "not cached: where its output goes", 0);
	assert_same_file("nowhere", "data\n", 5);
	assert_wrap("bin/glslc in -o b", "not cached: where its output goes",
		    2);
}

#define SHADER                                                                 \
	"#version 450\n"                                                       \
	"#extension GL_GOOGLE_include_directive : require\n"                   \
	"#include \"h\"\n"                                                     \
	"layout(local_size_x = 1) in;\n"                                       \
	"layout(std430, binding = 0) buffer B { float x[]; } b;\n"             \
	"void main() { b.x[gl_GlobalInvocationID.x] *= FACTOR; }\n"

static void compilers_of_shaders_are_known(void **state)
{
	static const char *const rows[][2] = {
		{ "glslc", "glslc -Ib -O s.comp -o s.spv" },
		{ "glslangValidator",
		  "glslangValidator -Ib -V s.comp -o s.spv" },
		{ "glslangValidator", "glslangValidator -Ib s.comp" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char path[64];

		snprintf(path, sizeof(path), "/usr/bin/%s", rows[i][0]);
		if (access(path, X_OK)) {
			print_message("# left out: there is no %s\n", path);
			continue;
		}
		begin();
		write_file("s.comp", SHADER);
		write_old("b/h", "#define FACTOR 2.0\n");
		assert_replayed(rows[i][1], "s.spv");
		write_old("b/h", "#define FACTOR 3.0\n");
		assert_replayed(rows[i][1], "s.spv");
		write_old("b/h", "#define FACTOR no\n");
		assert_replayed(rows[i][1], "s.spv");
	}
}

static void the_compiler_of_intel_is_known(void **state)
{
	begin();
	if (access("/usr/bin/ocloc", X_OK))
		HARNESS_LEAVE_OUT("there is no ocloc");
	write_file("k.cl", "#include \"h\"\n"
			   "__kernel void k(__global int *x)\n"
			   "{\n\tx[get_global_id(0)] = FACTOR;\n}\n");
	write_old("b/h", "#define FACTOR 2\n");
#define OCLOC                                                                  \
	"ocloc compile -file k.cl -device tgllp -options -Ib "                 \
	"-output k -output_no_suffix"
	assert_replayed(OCLOC, "k.bin");
	assert_int_equal(unlink("k.spv"), 0);
	assert_wrap(OCLOC, STORE, 0);
	assert_int_equal(access("k.spv", F_OK), 0);
	write_old("b/h", "#define FACTOR __LINE__ + 1\n");
	assert_wrap(OCLOC, KEPT, 0);
	write_old("b/h", "#define FACTOR sizeof(__TIME__)\n");
	assert_wrap(OCLOC, "not kept: what it includes is not known", 0);
}

#define CUDA                                                                   \
	"#include \"h\"\n"                                                     \
	"extern \"C\" __global__ void k(float *x) { *x = sinf(*x) * FACTOR; "  \
	"}\n"
#define NVCC "nvcc -cubin -arch=sm_80 -Ia -Ib k.cu -o k.cubin"

/* Whether there is one, and not only a script of its name. */
static int has_nvcc(void)
{
	struct ended ended = native("which nvcc");
	char *data;
	int has;

	ended.out[strcspn(ended.out, "\n")] = '\0';
	data = harness_read(ended.out, NULL);
	has = data && strncmp(data, "#!", 2) != 0;
	free(data);
	ended_free(&ended);
	return has;
}

/* Each run is a second or so. */
static void the_compiler_of_nvidia_is_known(void **state)
{
	if (!has_nvcc())
		HARNESS_LEAVE_OUT("there is no nvcc");
	begin();
	write_file("k.cu", CUDA);
	write_old("b/h", "#define FACTOR 2.0f\n");
	assert_replayed(NVCC, "k.cubin");
	/* S06: one that comes before it on the path. */
	write_old("a/h", "#define FACTOR 3.0f\n");
	assert_wrap(NVCC, KEPT, 0);
	assert_int_equal(unlink("a/h"), 0);
	assert_wrap(NVCC, STORE, 0);
	/* And before one of the system's. */
	write_old("a/math.h", "#include_next <math.h>\n");
	assert_wrap(NVCC, KEPT, 0);
	write_old("b/h", "#define FACTOR no\n");
	assert_replayed(NVCC, "k.cubin");
	write_old("b/h", "#define FACTOR sizeof(__TIME__)\n");
	assert_wrap(NVCC, "not kept: what it includes is not known", 0);
}

#define TOOLKIT "/usr/local/cuda/bin"

/* Nothing is known of a compiler that is a launcher's link: what has such is left out
   of the PATH.  A script is no compiler, and some systems have one by the name of nvcc:
   the toolkit's own comes first. */
static void look_for_compilers_only(void)
{
	char *path = strdup(getenv("PATH")), *rest = NULL, *part;
	char *kept = calloc(1, sizeof(TOOLKIT) + strlen(path) + 2);
	char real[PATH_MAX];

	if (!access(TOOLKIT, X_OK))
		strcpy(kept, TOOLKIT);
	for (part = strtok_r(path, ":", &rest); part;
	     part = strtok_r(NULL, ":", &rest)) {
		char *gcc = harness_path(part, "gcc");

		if (!realpath(gcc, real) || !strstr(real, "ccache"))
			strcat(strcat(kept, *kept ? ":" : ""), part);
		free(gcc);
	}
	if (setenv("PATH", kept, 1))
		abort();
	free(kept);
	free(path);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_a_run_leaves_is_the_same_from_the_store),
		cmocka_unit_test(whatever_it_depends_on_makes_another_result),
		cmocka_unit_test(what_is_not_understood_runs_each_time),
		cmocka_unit_test(
			without_a_store_it_is_as_if_kiln_were_not_there),
		cmocka_unit_test(of_a_program_that_is_not_there_it_says_so),
		cmocka_unit_test(a_script_is_no_compiler),
		cmocka_unit_test(an_output_keeps_its_mode_and_its_other_names),
		cmocka_unit_test(no_directory_is_made),
		cmocka_unit_test(an_output_on_a_full_disk_is_not_kept),
		cmocka_unit_test(of_many_at_once_one_compiles),
		cmocka_unit_test(folders_that_nobody_has_are_removed),
		cmocka_unit_test(no_blank_is_in_the_folders_name),
		cmocka_unit_test(who_asks_the_loader_gets_its_answers),
		cmocka_unit_test(entries_that_cannot_be_read_are_made_anew),
		cmocka_unit_test(only_compilers_that_fail_are_failed_builds),
		cmocka_unit_test(what_is_not_cached_is_counted),
		cmocka_unit_test(closed_streams_stay_closed),
		cmocka_unit_test(eight_at_once_keep_what_they_make),
		cmocka_unit_test(
			a_store_that_is_only_read_answers_and_keeps_nothing),
		cmocka_unit_test(a_store_without_room_is_as_none),
		cmocka_unit_test(signals_reach_the_compiler_and_end_as_it_ends),
		cmocka_unit_test(
			places_that_are_no_files_are_left_to_the_compiler),
		cmocka_unit_test(compilers_of_shaders_are_known),
		cmocka_unit_test(the_compiler_of_intel_is_known),
		cmocka_unit_test(the_compiler_of_nvidia_is_known),
	};
	int status;

	program = argc == 2 ? realpath(argv[1], NULL) : NULL;
	if (!program)
		return 2;
	umask(022);
	look_for_compilers_only();
	if (access(SHELL, X_OK)) {
		print_message("# left out: there is no " SHELL "\n");
		return 0;
	}
	status = cmocka_run_group_tests(tests, NULL, NULL);
	free(directory);
	free(program);
	return status;
}
