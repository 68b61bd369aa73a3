/* SPDX-License-Identifier: MIT */

/*
 * What is told of a run, in a folder of its own: by the C library's loader, which
 * places it tried for libraries and which programs it started (LD_DEBUG), and by a
 * preprocessor, what it included.
 *
 * A folder whose kiln was killed is removed by a later one: who lives has a lock on
 * it, which goes with the process.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wrap.h"

#define SYS	  (&ki_sys_posix)
#define PREFIX	  "kiln-wrap-"
#define TRACE	  "t"
#define LIST	  "list"
#define TRACE_MAX ((size_t)16 << 20)
#define SWEPT_MAX 4096 /* names that are looked at */

/* ---- The folder ---------------------------------------------------------------- */

/* A directory of our own, whoever may write where it is; its lock if it is free. */
static int lock_folder(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat info;

	if (fd < 0)
		return -1;
	if (!fstat(fd, &info) && info.st_uid == (uid_t)ki_user_id() &&
	    !flock(fd, LOCK_EX | LOCK_NB))
		return fd;
	close(fd);
	return -1;
}

/* With what we put there, and nothing else: the name may be chance. */
static void remove_folder(const char *folder)
{
	char path[KI_PATH_MAX];
	struct ki_dir *dir;
	const char *name;

	if (!SYS->opendir(SYS, folder, &dir)) {
		while (SYS->readdir(SYS, dir, &name) > 0)
			if ((!strncmp(name, TRACE ".", strlen(TRACE) + 1) ||
			     !strcmp(name, LIST)) &&
			    !ki_path_join(path, folder, name))
				(void)SYS->unlink(SYS, path);
		SYS->closedir(SYS, dir);
	}
	(void)SYS->rmdir(SYS, folder);
}

/* Those that nobody has any more. */
static void sweep(const char *top)
{
	char path[KI_PATH_MAX];
	struct ki_dir *dir;
	const char *name;
	int i, fd;

	if (SYS->opendir(SYS, top, &dir))
		return;
	for (i = 0; i < SWEPT_MAX && SYS->readdir(SYS, dir, &name) > 0; i++) {
		if (strncmp(name, PREFIX, strlen(PREFIX)) ||
		    ki_path_join(path, top, name))
			continue;
		fd = lock_folder(path);
		if (fd < 0)
			continue;
		remove_folder(path);
		close(fd);
	}
	SYS->closedir(SYS, dir);
}

static int make_folder(const char *top, struct ki_wrap_told *told)
{
	int i;

	/* Another's sweep may come before our lock. */
	for (i = 0; i < 100; i++) {
		if (ki_path_join(told->folder, top, PREFIX "XXXXXX") ||
		    !mkdtemp(told->folder))
			return -1;
		told->lock = lock_folder(told->folder);
		if (told->lock >= 0 && !access(told->folder, F_OK))
			return 0;
		ki_wrap_told_end(told);
	}
	return -1;
}

int ki_wrap_told_begin(struct ki_wrap_told *told)
{
	const char *top = getenv("TMPDIR");

	told->lock = -1;
	/* gcc would take what is behind a blank for something else. */
	if (!top || *top != '/' || strpbrk(top, " \t"))
		top = "/tmp";
	sweep(top);
	if (make_folder(top, told))
		return -1;
	if (snprintf(told->trace, sizeof(told->trace),
		     "LD_DEBUG_OUTPUT=%s/" TRACE,
		     told->folder) < (int)sizeof(told->trace) &&
	    snprintf(told->dependencies, sizeof(told->dependencies),
		     "SUNPRO_DEPENDENCIES=%s/" LIST,
		     told->folder) < (int)sizeof(told->dependencies)) {
		told->list = strchr(told->dependencies, '=') + 1;
		return 0;
	}
	ki_wrap_told_end(told);
	return -1;
}

void ki_wrap_told_end(struct ki_wrap_told *told)
{
	remove_folder(told->folder);
	if (told->lock >= 0)
		close(told->lock);
	told->lock = -1;
}

/* ---- What the loader tells ----------------------------------------------------- */

struct trace {
	const struct ki_wrap_command *command;
	const struct ki_wrap_driver *driver;
	struct ki_wrap_paths *paths;
	size_t n_libraries;
	size_t n_programs;
	size_t n_compilers; /* of them, by name */
	int is_complete;    /* a driver's preprocessor is in it */
	int is_unknown;	    /* a program is */
};

static void take_libraries(struct trace *trace, const char *text)
{
	static const char *const marks[] = { "trying file=", "calling init: " };
	const char *path;
	size_t i;

	for (i = 0; i < sizeof(marks) / sizeof(*marks); i++)
		for (path = strstr(text, marks[i]); path;
		     path = strstr(path, marks[i])) {
			path += strlen(marks[i]);
			if (i && *path != '/')
				continue;
			ki_wrap_paths_add(trace->paths, path,
					  strcspn(path, "\n"), 1);
			trace->n_libraries++;
		}
}

/* Beside the compiler proper gcc looks for a file that changes what it does. */
static void add_specs(struct trace *trace, const char *compiler)
{
	static const char *const files[] = { "specs", "../specs" };
	char path[KI_PATH_MAX];
	size_t i;

	for (i = 0; i < sizeof(files) / sizeof(*files); i++) {
		int n = snprintf(path, sizeof(path), "%.*s/%s",
				 (int)(strrchr(compiler, '/') - compiler),
				 compiler, files[i]);

		if (n >= (int)sizeof(path))
			trace->is_unknown = 1;
		else
			ki_wrap_paths_add(trace->paths, path, (size_t)n, 0);
	}
}

/* Each says by which name it was started; one of them is the compiler. */
static void take_programs(struct trace *trace, const char *text)
{
	static const char mark[] = "initialize program: ";
	char name[KI_PATH_MAX];
	const char *at, *last;
	int n;

	for (at = strstr(text, mark); at; at = strstr(at, mark)) {
		at += strlen(mark);
		trace->n_programs++;
		n = snprintf(name, sizeof(name), "%.*s", (int)strcspn(at, "\n"),
			     at);
		if (!strcmp(name, trace->command->argv[0]) &&
		    !trace->n_compilers++)
			continue;
		if (n >= (int)sizeof(name) || !trace->driver ||
		    ki_wrap_driver_add_program(trace->command, trace->driver,
					       name, trace->paths))
			trace->is_unknown = 1;
		last = strrchr(name, '/');
		if (last && !strcmp(last, "/cc1plus")) {
			trace->is_complete = 1;
			add_specs(trace, name);
		}
	}
}

static int read_file(struct trace *trace, const char *folder, const char *name)
{
	char path[KI_PATH_MAX];
	size_t size;
	void *text;

	if (ki_path_join(path, folder, name) ||
	    ki_read_file(SYS, path, TRACE_MAX, &text, &size))
		return -1;
	take_libraries(trace, text);
	take_programs(trace, text);
	free(text);
	return 0;
}

const char *ki_wrap_told_programs(const struct ki_wrap_told *told,
				  const struct ki_wrap_command *command,
				  const struct ki_wrap_driver *driver,
				  struct ki_wrap_paths *paths)
{
	struct trace trace = { .command = command,
			       .driver = driver,
			       .paths = paths };
	struct ki_dir *dir;
	const char *name;
	int err = SYS->opendir(SYS, told->folder, &dir);

	if (err)
		return "its libraries are not known";
	while (SYS->readdir(SYS, dir, &name) > 0)
		if (!strncmp(name, TRACE ".", strlen(TRACE) + 1))
			err |= read_file(&trace, told->folder, name);
	SYS->closedir(SYS, dir);
	if (trace.is_unknown || (!driver && trace.n_programs > 1))
		return "it starts other programs";
	return err || !trace.n_libraries || !trace.n_programs ||
			       (driver && !trace.is_complete)
		       ? "its libraries are not known"
		       : NULL;
}

/* ---- What a preprocessor tells ------------------------------------------------- */

char *ki_wrap_told_list(const struct ki_wrap_told *told)
{
	size_t size;
	void *text;

	return ki_read_file(SYS, told->list, TRACE_MAX, &text, &size) ? NULL
								      : text;
}
