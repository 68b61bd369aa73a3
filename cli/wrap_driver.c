/* SPDX-License-Identifier: MIT */

/*
 * A compiler that starts others: nvcc.
 *
 * With --dryrun it prints variables that it sets and commands that it would give to a
 * shell, after "#$ ".  Of these we take which programs there are, files among their
 * arguments (libdevice, of older versions), and the folders of includes; the host's
 * compiler says the others, those too that are not there.  While it runs, the loader
 * of each program tells its name, and the preprocessor lists what it takes
 * (SUNPRO_DEPENDENCIES).
 *
 *	nvcc --dryrun	-> PATH, gcc -E -I..., cicc, ptxas
 *	gcc -E -v	-> /usr/include/c++/12 ...
 *	the run		-> programs, libraries, includes
 */

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wrap.h"

#define SYS	  (&ki_sys_posix)
#define TEXT_MAX  ((size_t)16 << 20)
#define MARK	  "#$ "
#define WORDS_MAX 512

void ki_wrap_driver_fini(struct ki_wrap_driver *driver)
{
	free(driver->search);
	ki_wrap_paths_fini(&driver->files);
	ki_wrap_paths_fini(&driver->folders);
	memset(driver, 0, sizeof(*driver));
}

/* ---- Programs ------------------------------------------------------------------ */

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static int is_allowed(const struct ki_wrap_rule *rule, const char *path)
{
	const char *const *pattern;

	for (pattern = rule->programs; *pattern; pattern++)
		if (!fnmatch(*pattern, last_part(path), 0))
			return 1;
	return 0;
}

/* Whether it is what its name says, not a compiler's launcher behind a link. */
static int is_honest(const struct ki_wrap_rule *rule, const char *path)
{
	char real[PATH_MAX];

	return ki_wrap_is_program(path) && ki_wrap_has_loader(path) &&
	       realpath(path, real) && is_allowed(rule, real);
}

/* The places along a PATH up to where it is; -1: nowhere. */
static int search(const char *places, const char *name,
		  struct ki_wrap_paths *paths, char out[KI_PATH_MAX])
{
	char directory[KI_PATH_MAX];
	const char *end;
	size_t size;

	for (; places && *places; places = *end ? end + 1 : end) {
		end = places + strcspn(places, ":");
		size = (size_t)(end - places);
		/* An empty part is the working directory, of old. */
		if (!size || size >= sizeof(directory))
			return -1;
		memcpy(directory, places, size);
		directory[size] = '\0';
		if (ki_path_join(out, directory, name))
			return -1;
		ki_wrap_paths_add(paths, out, strlen(out), 1);
		if (!access(out, X_OK))
			return 0;
	}
	return -1;
}

/* system(3) has it so. */
static const char *path_of_shell(const char *name)
{
	return strcmp(name, "sh") ? name : "/bin/sh";
}

static int find(const struct ki_wrap_driver *driver, const char *name,
		struct ki_wrap_paths *paths, char out[KI_PATH_MAX])
{
	name = path_of_shell(name);
	if (!strchr(name, '/'))
		return search(driver->search, name, paths, out);
	if (strlen(name) >= KI_PATH_MAX)
		return -1;
	strcpy(out, name);
	ki_wrap_paths_add(paths, out, strlen(out), 1);
	return 0;
}

int ki_wrap_driver_add_program(const struct ki_wrap_command *command,
			       const struct ki_wrap_driver *driver,
			       const char *name, struct ki_wrap_paths *paths)
{
	char path[KI_PATH_MAX];

	return is_allowed(command->rule, name) &&
			       !find(driver, name, paths, path) &&
			       is_honest(command->rule, path)
		       ? 0
		       : -1;
}

/* ---- The plan ------------------------------------------------------------------ */

/* A variable that it sets; "": it does not. */
static void read_variable(const char *text, const char *name, char *out,
			  size_t size)
{
	char mark[32];
	const char *line;
	int n = snprintf(mark, sizeof(mark), MARK "%s=", name);

	*out = '\0';
	for (line = strstr(text, mark); line; line = strstr(line, mark)) {
		line += n;
		snprintf(out, size, "%.*s", (int)strcspn(line, "\n"), line);
	}
}

/* The words of a line for a shell, quotes taken off, in place; their number. */
static size_t split(char *line, const char *words[WORDS_MAX])
{
	char *out = line, quote;
	size_t n = 0;

	while (*(line += strspn(line, " \t")) && n < WORDS_MAX) {
		words[n++] = out;
		for (quote = 0; *line && (quote || !strchr(" \t", *line));
		     line++) {
			if (quote ? *line == quote
				  : strchr("\"'", *line) != NULL)
				quote = quote ? 0 : *line;
			else if (*line == '\\' && quote != '\'' && line[1])
				*out++ = *++line;
			else
				*out++ = *line;
		}
		/* The end of a word takes the place of the blank. */
		line += *line != '\0';
		*out++ = '\0';
	}
	return n;
}

/* "$NAME/rest" */
static int expand(const char *text, const char *word, char out[KI_PATH_MAX])
{
	char name[32], value[KI_PATH_MAX];
	size_t size = strcspn(word, "/");
	int n;

	if (*word != '$') {
		n = snprintf(out, KI_PATH_MAX, "%s", word);
	} else {
		snprintf(name, sizeof(name), "%.*s", (int)size - 1, word + 1);
		read_variable(text, name, value, sizeof(value));
		n = snprintf(out, KI_PATH_MAX, "%s%s", value, word + size);
	}
	return n > 0 && n < KI_PATH_MAX ? 0 : -1;
}

static int is_own(const struct ki_wrap_command *command, const char *path)
{
	return !strncmp(last_part(path), "tmpxft_", 7) ||
	       ki_wrap_is_output(command, path) ||
	       !strcmp(command->inputs[0], path);
}

static void add_folder(struct ki_wrap_driver *driver, const char *path)
{
	ki_wrap_paths_add(&driver->folders, path, strlen(path), 0);
}

static void take_words(const struct ki_wrap_command *command,
		       const char *const *words, size_t n,
		       struct ki_wrap_driver *driver)
{
	static const char *const folders[] = { "-I", "-isystem", "-iquote",
					       "-idirafter" };
	struct ki_file_info info;
	size_t i, j;

	for (i = 1; i < n; i++) {
		const char *word = words[i];

		for (j = 0; j < 4; j++)
			if (!strcmp(word, folders[j]) && i + 1 < n)
				add_folder(driver, words[i + 1]);
		if (!strncmp(word, "-I", 2) && word[2])
			add_folder(driver, word + 2);
		if (*word == '/' && !is_own(command, word) &&
		    !SYS->stat(SYS, word, &info) && S_ISREG(info.mode))
			ki_wrap_paths_add(&driver->files, word, strlen(word),
					  0);
	}
}

static int has_word(const char *const *words, size_t n, const char *word)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (!strcmp(words[i], word))
			return 1;
	return 0;
}

static int take_command(const struct ki_wrap_command *command, const char *text,
			char *line, struct ki_wrap_driver *driver)
{
	const char *words[WORDS_MAX];
	size_t n = split(line, words);
	char program[KI_PATH_MAX];

	if (!n || n == WORDS_MAX || expand(text, words[0], program) ||
	    ki_wrap_driver_add_program(command, driver, program,
				       &driver->files))
		return -1;
	take_words(command, words, n, driver);
	if (!has_word(words, n, "-E"))
		return 0;
	driver->n_lists++;
	return find(driver, program, &driver->files, driver->host);
}

static int is_variable(const char *line)
{
	return line[strspn(line, "_ABCDEFGHIJKLMNOPQRSTUVWXYZ")] == '=';
}

static int read_commands(const struct ki_wrap_command *command,
			 const char *text, char *copy,
			 struct ki_wrap_driver *driver)
{
	char *line, *rest = NULL;

	for (line = strtok_r(copy, "\n", &rest); line;
	     line = strtok_r(NULL, "\n", &rest)) {
		if (strncmp(line, MARK, strlen(MARK)))
			continue; /* a warning */
		line += strlen(MARK);
		if (!is_variable(line) && strncmp(line, "-- ", 3) &&
		    take_command(command, text, line, driver))
			return -1;
	}
	return driver->n_lists ? 0 : -1;
}

int ki_wrap_driver_read_plan(const struct ki_wrap_command *command,
			     const char *text, struct ki_wrap_driver *driver)
{
	char value[KI_PATH_MAX], *copy = strdup(text);
	int err;

	driver->search = malloc(strlen(text) + 1);
	if (!copy || !driver->search) {
		free(copy);
		return -1;
	}
	read_variable(text, "PATH", driver->search, strlen(text) + 1);
	read_variable(text, "_HERE_", value, sizeof(value) - 16);
	strcat(value, "/nvcc.profile");
	ki_wrap_paths_add(&driver->files, value, strlen(value), 0);
	err = read_commands(command, text, copy, driver);
	free(copy);
	return err;
}

/* ---- Folders ------------------------------------------------------------------- */

void ki_wrap_driver_read_folders(const char *text,
				 struct ki_wrap_driver *driver)
{
	static const char ignored[] = "ignoring nonexistent directory \"";
	const char *line, *end;

	for (line = strstr(text, ignored); line; line = strstr(line, ignored)) {
		line += strlen(ignored);
		end = line + strcspn(line, "\"\n");
		ki_wrap_paths_add(&driver->folders, line, (size_t)(end - line),
				  0);
	}
	line = strstr(text, "search starts here:\n");
	for (; line && *line && strncmp(line, "End of search", 13);
	     line = strchr(line, '\n'), line += line != NULL) {
		if (*line != ' ')
			continue;
		end = line + strcspn(line, "\n");
		ki_wrap_paths_add(&driver->folders, line + 1,
				  (size_t)(end - line - 1), 0);
	}
}

/* ---- Asking -------------------------------------------------------------------- */

/* In words that are not translated. */
static char **make_environment(void)
{
	size_t n = 0, kept = 0, i;
	char **copy;

	while (environ[n])
		n++;
	copy = calloc(n + 2, sizeof(*copy));
	for (i = 0; copy && i < n; i++)
		if (strncmp(environ[i], "LC_ALL=", 7))
			copy[kept++] = environ[i];
	if (copy)
		copy[kept] = (char *)"LC_ALL=C";
	return copy;
}

static int run(const char *path, char *const *argv, int out)
{
	posix_spawn_file_actions_t actions;
	char **environment = make_environment();
	int status = -1, failed;
	pid_t child;

	if (!environment || posix_spawn_file_actions_init(&actions)) {
		free(environment);
		return -1;
	}
	failed = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO,
						  "/dev/null", O_RDONLY, 0) ||
		 posix_spawn_file_actions_adddup2(&actions, out,
						  STDOUT_FILENO) ||
		 posix_spawn_file_actions_adddup2(&actions, out,
						  STDERR_FILENO) ||
		 posix_spawn(&child, path, &actions, NULL, argv, environment);
	while (!failed && waitpid(child, &status, 0) < 0)
		failed = errno != EINTR;
	posix_spawn_file_actions_destroy(&actions);
	free(environment);
	return !failed && status == 0 ? 0 : -1;
}

/* What it says, of both streams; NULL: it failed. */
static char *ask(const char *path, char *const *argv)
{
	struct ki_file_info info;
	char *text = NULL;
	int out = memfd_create("kiln", MFD_CLOEXEC);

	if (out < 0)
		return NULL;
	if (!run(path, argv, out) && !SYS->fstat(SYS, out, &info) &&
	    info.size <= TEXT_MAX)
		text = calloc(1, info.size + 1);
	if (text && ki_pread_all(SYS, out, text, info.size, 0)) {
		free(text);
		text = NULL;
	}
	close(out);
	return text;
}

static int ask_plan(const struct ki_wrap_command *command,
		    struct ki_wrap_driver *driver)
{
	char **argv, *text;
	size_t n = 0;
	int err;

	while (command->argv[n])
		n++;
	argv = calloc(n + 2, sizeof(*argv));
	if (!argv)
		return -1;
	memcpy(argv, command->argv, n * sizeof(*argv));
	argv[n] = (char *)"--dryrun";
	text = ask(command->compiler, argv);
	err = text ? ki_wrap_driver_read_plan(command, text, driver) : -1;
	free(text);
	free(argv);
	return err;
}

static int ask_host(struct ki_wrap_driver *driver)
{
	char *const argv[] = { driver->host, (char *)"-E",  (char *)"-v",
			       (char *)"-x", (char *)"c++", (char *)"/dev/null",
			       NULL };
	char *text = ask(driver->host, argv);

	if (text)
		ki_wrap_driver_read_folders(text, driver);
	free(text);
	return text && driver->folders.n ? 0 : -1;
}

int ki_wrap_driver_ask(const struct ki_wrap_command *command,
		       struct ki_wrap_driver *out_driver)
{
	memset(out_driver, 0, sizeof(*out_driver));
	return ask_plan(command, out_driver) || ask_host(out_driver) ||
			       out_driver->files.failed ||
			       out_driver->folders.failed
		       ? -1
		       : 0;
}
