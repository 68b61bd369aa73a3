/* SPDX-License-Identifier: MIT */

/*
 * One run of a compiler, and whether what came of it may be kept.
 *
 * What the compiler says goes to files in memory, and from there to where it was
 * to go.  What it loads the loader of the C library tells: every place where it
 * looked for a library, in vain or not.  So a library that changes is noticed, and
 * one that comes to stand before another.
 */

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "out.h"
#include "parent.h"
#include "wrap.h"

#define SYS		(&ki_sys_posix)
#define EXTRA_ARGUMENTS 4

void ki_wrap_result_fini(struct ki_wrap_result *result)
{
	size_t i;

	for (i = 0; i < 2; i++)
		ki_bytes_fini(&result->streams[i]);
	for (i = 0; i < result->n_outputs; i++) {
		free(result->outputs[i].path);
		if (result->owns_data)
			free((void *)result->outputs[i].data);
	}
	memset(result, 0, sizeof(*result));
}

/* ---- Streams ----------------------------------------------------------------- */

int ki_wrap_is_merged(void)
{
	struct stat out, err;

	if (fstat(STDOUT_FILENO, &out) || fstat(STDERR_FILENO, &err))
		return -1;
	return out.st_dev == err.st_dev && out.st_ino == err.st_ino;
}

struct capture {
	int files[2];
	int saved[2];
};

static void end_capture(struct capture *capture)
{
	int i;

	for (i = 0; i < 2; i++) {
		if (capture->saved[i] >= 0) {
			dup2(capture->saved[i], STDOUT_FILENO + i);
			close(capture->saved[i]);
		}
		capture->saved[i] = -1;
	}
}

/* The standard streams, of us and so of the compiler, go to memory. */
static int begin_capture(struct capture *capture, int is_merged)
{
	int i, failed = 0;

	for (i = 0; i < 2; i++) {
		capture->saved[i] =
			fcntl(STDOUT_FILENO + i, F_DUPFD_CLOEXEC, 3);
		capture->files[i] = is_merged && i
					    ? capture->files[0]
					    : memfd_create("kiln", MFD_CLOEXEC);
		failed |= capture->saved[i] < 0 || capture->files[i] < 0;
	}
	for (i = 0; i < 2 && !failed; i++)
		failed = dup2(capture->files[i], STDOUT_FILENO + i) < 0;
	return failed ? -1 : 0;
}

static int read_capture(struct capture *capture, int is_merged,
			struct ki_wrap_result *result)
{
	struct ki_file_info info;
	int i, err = 0;
	void *room;

	for (i = 0; i < 2 - is_merged && !err; i++) {
		err = SYS->fstat(SYS, capture->files[i], &info);
		room = err || !info.size
			       ? NULL
			       : ki_bytes_grow(&result->streams[i], info.size);
		if (room)
			err = ki_pread_all(SYS, capture->files[i], room,
					   info.size, 0);
		if (!err)
			err = result->streams[i].failed;
	}
	return err;
}

static void write_all(int fd, const struct ki_bytes *bytes)
{
	size_t done = 0;
	ssize_t n;

	while (done < bytes->size) {
		n = write(fd, bytes->data + done, bytes->size - done);
		if (n < 0 && errno != EINTR)
			return;
		if (n > 0)
			done += (size_t)n;
	}
}

void ki_wrap_say(const struct ki_wrap_result *result)
{
	write_all(STDOUT_FILENO, &result->streams[0]);
	write_all(STDERR_FILENO, &result->streams[1]);
}

/* ---- The run ------------------------------------------------------------------ */

static char **make_environment(const struct ki_wrap_command *command,
			       const struct ki_wrap_told *told)
{
	size_t n = 0;
	char **copy;

	while (environ[n])
		n++;
	copy = calloc(n + 4, sizeof(*copy));
	if (!copy)
		return NULL;
	memcpy(copy, environ, n * sizeof(*copy));
	copy[n++] = (char *)"LD_DEBUG=libs";
	copy[n++] = (char *)told->trace;
	if (command->rule->programs)
		copy[n] = (char *)told->dependencies;
	return copy;
}

/* With the arguments that make it list its includes. */
static char **make_arguments(const struct ki_wrap_command *command,
			     const char *list)
{
	const char *const *extra = command->rule->dependencies;
	size_t n = 0;
	char **copy;

	while (command->argv[n])
		n++;
	copy = calloc(n + EXTRA_ARGUMENTS + 1, sizeof(*copy));
	if (!copy)
		return NULL;
	memcpy(copy, command->argv, n * sizeof(*copy));
	if (!extra || command->lists_includes || command->is_printing)
		return copy;
	for (; *extra; extra++)
		copy[n++] = (char *)(strcmp(*extra, "%") ? *extra : list);
	return copy;
}

/* Whether one of the words is in it. */
static int has_any(const char *text, const char *const *words)
{
	for (; *words; words++)
		if (strcasestr(text, *words))
			return 1;
	return 0;
}

/* "FILE:12", "FILE(12)": a place in a source. */
static int names_place(const char *line)
{
	const char *at;

	for (at = line; (at = strpbrk(at, ":(")); at++)
		if (at > line && isgraph((unsigned char)at[-1]) &&
		    isdigit((unsigned char)at[1]))
			return strchr(*at == ':' ? ":" : ")",
				      at[1 + strspn(at + 1, "0123456789")]) !=
			       NULL;
	return 0;
}

/* "2 errors generated.", and what ocloc says at the end of each such failure. */
static int sums_up(const char *line)
{
	const char *count = line;

	if (!strncmp(count, "ERROR: ", 7))
		count += 7;
	return (isdigit((unsigned char)*count) &&
		!strncmp(count + strspn(count, "0123456789"), " ", 1)) ||
	       !strcmp(line, "Build failed with error code: -11");
}

/*
 * Whether it would fail again: each error is at a place in a source, and no word is
 * of a reason that lies in the machine.  A disk that is full and memory that is short
 * have no place, but in a compiler's own bug report.
 */
int ki_wrap_is_lasting(const char *said)
{
	static const char *const passing[] = { "memory",      "bad_alloc",
					       "space left",  "permission",
					       "denied",      "no such",
					       "cannot open", "could not open",
					       "can't open",  "failed to open",
					       "unable to",   "too many open",
					       "resource",    "input/output",
					       "i/o error",   "quota",
					       "internal",    "abort",
					       "bus error",   "segmentation",
					       "killed",      NULL };
	char *copy = strdup(said), *line, *rest = NULL;
	int n_placed = 0, n_others = 0;

	if (!copy)
		return 0;
	for (line = strtok_r(copy, "\n", &rest); line;
	     line = strtok_r(NULL, "\n", &rest)) {
		if (!strcasestr(line, "error") || sums_up(line))
			continue;
		n_placed += names_place(line);
		n_others += !names_place(line);
	}
	free(copy);
	return n_placed && !n_others && !has_any(said, passing);
}

static int is_lasting(const struct ki_wrap_result *result)
{
	struct ki_bytes all;
	int is;
	size_t i;

	ki_bytes_init(&all);
	for (i = 0; i < 2; i++)
		ki_bytes_add(&all, result->streams[i].data,
			     result->streams[i].size);
	ki_bytes_add_u8(&all, 0);
	is = !all.failed && ki_wrap_is_lasting((char *)all.data);
	ki_bytes_fini(&all);
	return is;
}

static const char *judge_status(const struct ki_wrap_result *result)
{
	if (!WIFEXITED(result->wait_status))
		return "it ended by a signal";
	if (result->wait_status &&
	    (WEXITSTATUS(result->wait_status) > 125 || !is_lasting(result)))
		return "it failed for a reason that may pass";
	return NULL;
}

static const char *judge_includes(const struct ki_wrap_command *command,
				  const struct ki_wrap_driver *driver,
				  const struct ki_wrap_told *told,
				  struct ki_wrap_paths *paths,
				  enum kiln_counter *out_counter)
{
	char *list = ki_wrap_told_list(told);
	enum kiln_counter counter;
	int is_known;

	if (driver) {
		counter = ki_wrap_add_places(command, driver, list ? list : "",
					     paths, &is_known);
	} else {
		if (list)
			ki_wrap_add_listed(command, list, paths);
		counter = ki_wrap_scan(command, paths, &is_known);
		is_known |= list && counter != KILN_COUNT_MISS_TIME_MACRO;
	}
	free(list);
	ki_wrap_paths_add(paths, "/etc/ld.so.cache", 16, 1);
	ki_wrap_paths_add(paths, "/etc/ld.so.preload", 18, 1);
	if (is_known)
		return NULL;
	*out_counter = counter;
	return "what it includes is not known";
}

/* The compiler, as it is started. */
static int start(const struct ki_wrap_command *command,
		 const struct ki_wrap_told *told, struct ki_wrap_result *result,
		 int is_merged)
{
	struct capture capture;
	char **arguments = make_arguments(command, told->list);
	char **environment = make_environment(command, told);
	int err = -ENOMEM, is_exec = 0;
	sigset_t mask;

	sigprocmask(SIG_SETMASK, NULL, &mask);
	if (arguments && environment) {
		err = begin_capture(&capture, is_merged);
		if (!err)
			err = ki_parent_run(arguments, environment, &mask,
					    &result->wait_status, &is_exec);
		end_capture(&capture);
		/* Who takes our place must have the signals that we had. */
		if (err)
			sigprocmask(SIG_SETMASK, &mask, NULL);
		else if (read_capture(&capture, is_merged, result))
			ki_complain("what the compiler said is lost");
		close(capture.files[0]);
		if (!is_merged)
			close(capture.files[1]);
	}
	free(arguments);
	free(environment);
	return err;
}

static void add_driver(const struct ki_wrap_driver *driver,
		       struct ki_wrap_paths *paths)
{
	size_t i;

	for (i = 0; i < driver->files.n; i++)
		ki_wrap_paths_add(paths, driver->files.paths[i].path,
				  strlen(driver->files.paths[i].path),
				  driver->files.paths[i].is_library);
}

/* NULL: it may be kept. */
static const char *judge(const struct ki_wrap_command *command,
			 const struct ki_wrap_driver *driver,
			 const struct ki_wrap_told *told,
			 const struct ki_wrap_candidates *before,
			 struct ki_wrap_result *result,
			 struct ki_wrap_paths *paths,
			 enum kiln_counter *out_counter)
{
	const char *why = judge_status(result);

	if (!why)
		why = ki_wrap_keep_outputs(command, before, result);
	if (!why)
		why = ki_wrap_told_programs(told, command, driver, paths);
	if (!why)
		why = judge_includes(command, driver, told, paths, out_counter);
	if (!why && driver)
		add_driver(driver, paths);
	return !why && paths->failed ? "it depends on too much" : why;
}

static int run(const struct ki_wrap_command *command,
	       const struct ki_wrap_driver *driver,
	       struct ki_wrap_result *result, struct ki_wrap_paths *paths,
	       enum kiln_counter *out_counter, const char **out_why)
{
	struct ki_wrap_candidates *before = ki_wrap_look(command);
	int64_t begun = (int64_t)SYS->realtime_ns(SYS);
	struct ki_wrap_told told;
	int err = -1;

	*out_why = "nothing can be told of its run";
	if (before && !ki_wrap_told_begin(&told)) {
		err = start(command, &told, result, ki_wrap_is_merged());
		if (!err) {
			result->owns_data = 1;
			*out_why = judge(command, driver, &told, before, result,
					 paths, out_counter);
			if (!*out_why && ki_wrap_is_recent(paths, begun))
				*out_why = "a file has just been written";
		}
		ki_wrap_told_end(&told);
	}
	free(before);
	return err ? KI_WRAP_NO_RUN : KI_WRAP_RAN;
}

int ki_wrap_run(const struct ki_wrap_command *command,
		struct ki_wrap_result *result, struct ki_wrap_paths *paths,
		enum kiln_counter *out_counter, const char **out_why)
{
	struct ki_wrap_driver driver;
	int ran = KI_WRAP_NO_RUN;

	*out_counter = KILN_COUNT_MISS_UNSUPPORTED;
	if (!command->rule->programs)
		return run(command, NULL, result, paths, out_counter, out_why);
	*out_why = "what it starts is not known";
	if (!ki_wrap_driver_ask(command, &driver))
		ran = run(command, &driver, result, paths, out_counter,
			  out_why);
	ki_wrap_driver_fini(&driver);
	return ran;
}
