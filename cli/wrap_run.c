/* SPDX-License-Identifier: MIT */

/*
 * One run of a compiler, and its result put back.
 *
 * What the compiler says goes to files in memory, and from there to where it was
 * to go.  What it loads the loader of the C library tells, by LD_DEBUG: every
 * place where it looked for a library, in vain or not.  So a library that changes
 * is noticed, and one that comes to stand before another.
 */

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
#define TRACE		"t"
#define LIST		"list"
#define TRACE_MAX	((size_t)16 << 20)
#define CANDIDATES	64
#define ROOM		((uint64_t)1 << 20) /* for more than was written */
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

/* ---- Outputs ----------------------------------------------------------------- */

/* "BASE.bin", "BASE_Word.bin". */
static int has_ending(const struct ki_wrap_command *command, const char *name)
{
	const char *const *ending;
	size_t size = strlen(command->base), n;

	if (strncmp(name, command->base, size))
		return 0;
	name += size;
	if (*name == '_') {
		n = strspn(name + 1, "abcdefghijklmnopqrstuvwxyz"
				     "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");
		if (!n)
			return 0;
		name += n + 1;
	}
	for (ending = command->rule->endings; *ending; ending++)
		if (!strcmp(name, *ending))
			return 1;
	return 0;
}

int ki_wrap_is_output(const struct ki_wrap_command *command, const char *path)
{
	size_t size, i;

	if (command->rule->endings) {
		size = strlen(command->directory);
		return !strncmp(path, command->directory, size) &&
		       path[size] == '/' && !strchr(path + size + 1, '/') &&
		       has_ending(command, path + size + 1);
	}
	for (i = 0; i < command->n_outputs; i++)
		if (!strcmp(path, command->outputs[i]))
			return 1;
	return 0;
}

struct candidate {
	char path[KI_PATH_MAX];
	struct ki_file_info info;
	int is_there;
};

struct candidates {
	struct candidate list[CANDIDATES];
	size_t n;
	int failed;
};

static void add_candidate(struct candidates *candidates, const char *directory,
			  const char *name)
{
	struct candidate *next = &candidates->list[candidates->n];
	int err;

	if (candidates->n == CANDIDATES ||
	    (directory ? ki_path_join(next->path, directory, name) != 0
		       : strlen(name) >= KI_PATH_MAX)) {
		candidates->failed = 1;
		return;
	}
	if (!directory)
		strcpy(next->path, name);
	err = SYS->lstat(SYS, next->path, &next->info);
	next->is_there = !err;
	candidates->failed |= err && err != -ENOENT;
	candidates->n++;
}

/* What may be outputs of this command, as it is now. */
static struct candidates *look(const struct ki_wrap_command *command)
{
	struct candidates *candidates = calloc(1, sizeof(*candidates));
	struct ki_dir *dir;
	const char *name;
	size_t i;

	for (i = 0; candidates && i < command->n_outputs; i++)
		add_candidate(candidates, NULL, command->outputs[i]);
	if (!candidates || !command->rule->endings ||
	    SYS->opendir(SYS, command->directory, &dir))
		return candidates;
	while (SYS->readdir(SYS, dir, &name) > 0)
		if (has_ending(command, name))
			add_candidate(candidates, command->directory, name);
	SYS->closedir(SYS, dir);
	return candidates;
}

int ki_wrap_is_replaceable(const struct ki_wrap_command *command)
{
	struct candidates *candidates = look(command);
	int good = candidates && !candidates->failed;
	size_t i;

	for (i = 0; good && i < candidates->n; i++) {
		const struct ki_file_info *info = &candidates->list[i].info;

		if (candidates->list[i].is_there)
			good = S_ISREG(info->mode) && info->n_links == 1 &&
			       info->uid == ki_user_id() &&
			       !access(candidates->list[i].path, W_OK);
	}
	free(candidates);
	return good;
}

static int is_changed(const struct candidates *before,
		      const struct candidate *now)
{
	size_t i;

	for (i = 0; i < before->n; i++)
		if (!strcmp(before->list[i].path, now->path))
			return before->list[i].is_there != now->is_there ||
			       memcmp(&before->list[i].info, &now->info,
				      offsetof(struct ki_file_info,
					       atime_ns)) != 0;
	return now->is_there;
}

static int keep_output(struct ki_wrap_result *result,
		       const struct candidate *file)
{
	struct ki_wrap_output *output = &result->outputs[result->n_outputs];
	void *data;

	if (result->n_outputs == KI_WRAP_OUTPUTS_MAX ||
	    !S_ISREG(file->info.mode) ||
	    ki_read_file(SYS, file->path, KI_WRAP_BYTES_MAX, &data,
			 &output->size))
		return -1;
	output->data = data;
	output->mode = file->info.mode & 0777;
	output->path = strdup(file->path);
	result->n_outputs++;
	return output->path ? 0 : -1;
}

/* Files of one command end in one word; another's may have come meanwhile. */
static int is_one_word(const struct ki_wrap_command *command,
		       const struct ki_wrap_result *result)
{
	const char *first = NULL, *word;
	size_t size = strlen(command->directory) + 1 + strlen(command->base);
	size_t i;

	for (i = 0; i < result->n_outputs; i++) {
		word = result->outputs[i].path + size;
		if (first && (strcspn(first, ".") != strcspn(word, ".") ||
			      strncmp(first, word, strcspn(word, "."))))
			return 0;
		first = word;
	}
	return first != NULL;
}

static int temporary_name(char out[KI_PATH_MAX], const char *path)
{
	int n = snprintf(out, KI_PATH_MAX, "%s.kiln-%d.tmp", path,
			 ki_process_id());

	return n < 0 || n >= KI_PATH_MAX ? -ENAMETOOLONG : 0;
}

/* glslc does not notice a full disk, ends well, and leaves an output cut short: where
   there is no room for more, none is trusted. */
static int has_room(const char *output)
{
	char path[KI_PATH_MAX];
	int fd, err;

	if (temporary_name(path, output))
		return 0;
	fd = SYS->open(SYS, path,
		       KI_OPEN_WRITE | KI_OPEN_CREATE | KI_OPEN_EXCLUSIVE,
		       0600);
	if (fd < 0)
		return 0;
	err = SYS->fallocate(SYS, fd, 0, ROOM);
	SYS->close(SYS, fd);
	(void)SYS->unlink(SYS, path);
	return !err || err == -EOPNOTSUPP;
}

/* A run that failed must not have changed any, one that did not all of them. */
static const char *keep_outputs(const struct ki_wrap_command *command,
				const struct candidates *before,
				struct ki_wrap_result *result)
{
	struct candidates *now = look(command);
	const char *why = now && !now->failed ? NULL : "an output has gone";
	size_t i;

	for (i = 0; !why && i < now->n; i++) {
		int changed = is_changed(before, &now->list[i]);

		if (result->wait_status)
			why = changed ? "it failed and wrote" : NULL;
		else if (!changed && !command->rule->endings)
			why = "an output was not written";
		else if (changed && keep_output(result, &now->list[i]))
			why = "an output cannot be kept";
		else if (changed && !has_room(now->list[i].path))
			why = "the disk may be full";
	}
	if (!why && command->rule->endings && !result->wait_status &&
	    !is_one_word(command, result))
		why = "which outputs are its own is not known";
	free(now);
	return why;
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

/* A folder of its own, for what is told of the run. */
static int make_folder(char out[KI_PATH_MAX])
{
	const char *top = getenv("TMPDIR");

	if (!top || *top != '/')
		top = "/tmp";
	if (ki_path_join(out, top, "kiln-wrap-XXXXXX"))
		return -1;
	return mkdtemp(out) ? 0 : -1;
}

static void remove_folder(const char *folder)
{
	char path[KI_PATH_MAX];
	struct ki_dir *dir;
	const char *name;

	if (!SYS->opendir(SYS, folder, &dir)) {
		while (SYS->readdir(SYS, dir, &name) > 0)
			if (!ki_path_join(path, folder, name))
				(void)SYS->unlink(SYS, path);
		SYS->closedir(SYS, dir);
	}
	(void)SYS->rmdir(SYS, folder);
}

static char **make_environment(const char *output)
{
	size_t n = 0;
	char **copy;

	while (environ[n])
		n++;
	copy = calloc(n + 3, sizeof(*copy));
	if (!copy)
		return NULL;
	memcpy(copy, environ, n * sizeof(*copy));
	copy[n] = (char *)"LD_DEBUG=libs";
	copy[n + 1] = (char *)output;
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

static void take_trace(const char *text, struct ki_wrap_paths *paths)
{
	static const char *const marks[] = { "trying file=", "calling init: " };
	const char *path;
	size_t i;

	for (i = 0; i < sizeof(marks) / sizeof(*marks); i++)
		for (path = strstr(text, marks[i]); path;
		     path = strstr(path, marks[i])) {
			path += strlen(marks[i]);
			if (!i || *path == '/')
				ki_wrap_paths_add(paths, path,
						  strcspn(path, "\n"), 1);
		}
}

/*
 * What the loader told.  Of a second program, started by the first, it would not say
 * which file it was: then what the result depends on is not known.
 */
static const char *read_trace(const char *folder, struct ki_wrap_paths *paths)
{
	char path[KI_PATH_MAX];
	struct ki_dir *dir;
	const char *name, *why = NULL;
	size_t size, n = paths->n;
	int n_programs = 0;
	void *text;

	if (SYS->opendir(SYS, folder, &dir))
		return "its libraries are not known";
	while (SYS->readdir(SYS, dir, &name) > 0) {
		if (strncmp(name, TRACE ".", strlen(TRACE) + 1))
			continue;
		n_programs++;
		if (ki_path_join(path, folder, name) ||
		    ki_read_file(SYS, path, TRACE_MAX, &text, &size)) {
			why = "its libraries are not known";
			continue;
		}
		take_trace(text, paths);
		free(text);
	}
	SYS->closedir(SYS, dir);
	if (n_programs > 1)
		return "it starts other programs";
	return paths->n > n ? why : "its libraries are not known";
}

static int read_list(const struct ki_wrap_command *command, const char *list,
		     struct ki_wrap_paths *paths)
{
	size_t size;
	void *text;

	if (ki_read_file(SYS, list, TRACE_MAX, &text, &size))
		return -1;
	ki_wrap_add_listed(command, text, paths);
	free(text);
	return 0;
}

/* Whether it would fail again: by what the source says, and for no reason that
   lies in the machine. */
static int is_lasting(const struct ki_wrap_result *result)
{
	static const char *const passing[] = { "memory",       "bad_alloc",
					       "space",	       "permission",
					       "denied",       "no such",
					       "cannot open",  "could not open",
					       "can't open",   "failed to open",
					       "unable",       "write",
					       "too many",     "resource",
					       "input/output", "i/o",
					       "quota",	       "disk",
					       "internal",     "abort",
					       "busy" };
	struct ki_bytes all;
	int is_error, is_passing = 0;
	size_t i;

	ki_bytes_init(&all);
	for (i = 0; i < 2; i++)
		ki_bytes_add(&all, result->streams[i].data,
			     result->streams[i].size);
	ki_bytes_add_u8(&all, 0);
	is_error = !all.failed && strcasestr((char *)all.data, "error");
	for (i = 0; is_error && i < sizeof(passing) / sizeof(*passing); i++)
		is_passing |= strcasestr((char *)all.data, passing[i]) != NULL;
	ki_bytes_fini(&all);
	return is_error && !is_passing;
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
				  const char *list, struct ki_wrap_paths *paths,
				  enum kiln_counter *out_counter)
{
	int is_known, is_listed = !read_list(command, list, paths);
	enum kiln_counter counter = ki_wrap_scan(command, paths, &is_known);

	ki_wrap_paths_add(paths, "/etc/ld.so.cache", 16, 1);
	ki_wrap_paths_add(paths, "/etc/ld.so.preload", 18, 1);
	if (!is_known &&
	    (!is_listed || counter == KILN_COUNT_MISS_TIME_MACRO)) {
		*out_counter = counter;
		return "what it includes is not known";
	}
	return NULL;
}

/* The compiler, as it is started. */
static int start(const struct ki_wrap_command *command, const char *folder,
		 const char *list, struct ki_wrap_result *result, int is_merged)
{
	char variable[KI_PATH_MAX + 32];
	struct capture capture;
	char **arguments = make_arguments(command, list);
	char **environment;
	int err = -ENOMEM, is_exec = 0;
	sigset_t mask;

	sigprocmask(SIG_SETMASK, NULL, &mask);
	snprintf(variable, sizeof(variable), "LD_DEBUG_OUTPUT=%s/" TRACE,
		 folder);
	environment = make_environment(variable);
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

int ki_wrap_run(const struct ki_wrap_command *command,
		struct ki_wrap_result *result, struct ki_wrap_paths *paths,
		enum kiln_counter *out_counter, const char **out_why)
{
	char folder[KI_PATH_MAX], list[KI_PATH_MAX];
	struct candidates *before = look(command);
	int64_t begun = (int64_t)SYS->realtime_ns(SYS);
	int err = -1;

	*out_counter = KILN_COUNT_MISS_UNSUPPORTED;
	if (!before || make_folder(folder)) {
		free(before);
		return KI_WRAP_NO_RUN;
	}
	if (!ki_path_join(list, folder, LIST))
		err = start(command, folder, list, result, ki_wrap_is_merged());
	if (!err) {
		result->owns_data = 1;
		*out_why = judge_status(result);
		if (!*out_why)
			*out_why = keep_outputs(command, before, result);
		if (!*out_why)
			*out_why = read_trace(folder, paths);
		if (!*out_why)
			*out_why = judge_includes(command, list, paths,
						  out_counter);
		if (!*out_why && paths->failed)
			*out_why = "it depends on too much";
		if (!*out_why && ki_wrap_is_recent(paths, begun))
			*out_why = "a file has just been written";
	}
	free(before);
	remove_folder(folder);
	return err ? KI_WRAP_NO_RUN : KI_WRAP_RAN;
}

/* ---- Replay ------------------------------------------------------------------- */

/* Beside where it belongs; a file that is there keeps its permissions. */
static int write_temporary(const struct ki_wrap_output *output)
{
	struct ki_file_info info;
	char path[KI_PATH_MAX];
	uint32_t mode = output->mode;
	int fd, err = temporary_name(path, output->path);

	if (err)
		return err;
	if (!SYS->lstat(SYS, output->path, &info))
		mode = info.mode & 0777;
	fd = SYS->open(SYS, path,
		       KI_OPEN_WRITE | KI_OPEN_CREATE | KI_OPEN_EXCLUSIVE,
		       0600);
	if (fd < 0)
		return fd;
	err = output->size
		      ? ki_pwrite_all(SYS, fd, output->data, output->size, 0)
		      : 0;
	if (!err)
		err = SYS->chmod(SYS, path, mode);
	SYS->close(SYS, fd);
	if (err)
		(void)SYS->unlink(SYS, path);
	return err;
}

int ki_wrap_replay(const struct ki_wrap_result *result)
{
	char path[KI_PATH_MAX];
	size_t written = 0, i;
	int err = 0;

	while (!err && written < result->n_outputs) {
		err = write_temporary(&result->outputs[written]);
		written += !err;
	}
	for (i = 0; i < written; i++) {
		(void)temporary_name(path, result->outputs[i].path);
		if (!err)
			err = SYS->rename(SYS, path, result->outputs[i].path);
		if (err)
			(void)SYS->unlink(SYS, path);
	}
	return err;
}
