/* SPDX-License-Identifier: MIT */

/*
 * Where the includes of a run are, and where else they were looked for.
 *
 * They are found by looking for #include in the inputs and in what they include.
 * In which order a compiler searches does not matter here: every place where one
 * of the names could be, the folders of all files seen, those of the options and
 * the working directory, belongs to the result, there or not.  A file that comes,
 * goes or changes at any of them makes another key.
 *
 * A source that could include by other means than a plain line (a macro's name, a
 * spliced line, a comment in between) is not known by looking.  What the compiler
 * itself lists then decides.
 */

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "wrap.h"

#define SYS	      (&ki_sys_posix)
#define NOTHING_WRONG KILN_N_COUNTERS

/* ---- Looking for includes ---------------------------------------------------- */

struct scan {
	const struct ki_wrap_command *command;
	struct ki_wrap_paths names;   /* as they are included */
	struct ki_wrap_paths folders; /* where they are looked for */
	struct ki_wrap_paths files;   /* that are there, to be read */
	int is_unknown;
	enum kiln_counter why;
};

static void give_up(struct scan *scan, enum kiln_counter why)
{
	if (!scan->is_unknown)
		scan->why = why;
	scan->is_unknown = 1;
}

static void add_folder_of(struct ki_wrap_paths *folders, const char *path)
{
	const char *slash = strrchr(path, '/');

	if (slash == path)
		ki_wrap_paths_add(folders, "/", 1, 0);
	else if (slash)
		ki_wrap_paths_add(folders, path, (size_t)(slash - path), 0);
}

/* What stands before the word, blanks left out; NULL: nothing. */
static const char *before(const char *text, const char *word)
{
	while (word > text && strchr(" \t\v\f\r", word[-1]))
		word--;
	return word > text ? word - 1 : NULL;
}

static int ends_in(const char *text, const char *end, const char *part)
{
	size_t size = strlen(part);

	return (size_t)(end - text) >= size && !memcmp(end - size, part, size);
}

/* Whether what ends there could make a directive of the word behind: a mark, a
   comment, a line that goes on, a question whether a file is there. */
static int may_direct(const char *text, const char *mark)
{
	while (mark && *mark == '\n')
		mark = ends_in(text, mark, "\\") ? mark - 1 : NULL;
	return mark && (strchr("#\\", *mark) || ends_in(text, mark + 1, "%:") ||
			ends_in(text, mark + 1, "*/") ||
			ends_in(text, mark + 1, "has_"));
}

static void take_include(struct scan *scan, const char *text, const char *word)
{
	const char *name = word + strlen("include"), *end;
	const char *mark = before(text, word);

	if (!may_direct(text, mark))
		return;
	name += strspn(name, " \t");
	end = *name == '"'   ? strpbrk(name + 1, "\"\n")
	      : *name == '<' ? strpbrk(name + 1, ">\n")
			     : NULL;
	if (*mark != '#' || !end || *end == '\n' || end == name + 1) {
		give_up(scan, KILN_COUNT_MISS_DIRECTIVE);
		return;
	}
	ki_wrap_paths_add(&scan->names, name + 1, (size_t)(end - name - 1), 0);
}

/* A word, or a directive, that goes on in the next line. */
static int has_spliced_word(const char *text)
{
	const char *at = text;

	while ((at = strstr(at, "\\\n"))) {
		if (at > text &&
		    (isalnum((unsigned char)at[-1]) || strchr("_#%", at[-1])) &&
		    (isalnum((unsigned char)at[2]) || at[2] == '_'))
			return 1;
		at += 2;
	}
	return strstr(text, "\\\r") != NULL;
}

/* Other directives that bring files in. */
static int has_directive(const char *text, const char *name)
{
	const char *word;

	for (word = strstr(text, name); word; word = strstr(word + 1, name))
		if (may_direct(text, before(text, word)))
			return 1;
	return 0;
}

static void scan_text(struct scan *scan, const char *text)
{
	const char *word = text;

	while ((word = strstr(word, "include"))) {
		take_include(scan, text, word);
		word += strlen("include");
	}
	if (strstr(text, "?\?/") || strstr(text, "?\?=") ||
	    has_directive(text, "import") || has_directive(text, "embed") ||
	    has_spliced_word(text))
		give_up(scan, KILN_COUNT_MISS_DIRECTIVE);
	if (scan->command->rule->has_time_macros &&
	    (strstr(text, "__DATE") || strstr(text, "__TIME")))
		give_up(scan, KILN_COUNT_MISS_TIME_MACRO);
}

/* SPIR-V and bitcode have zeros and include nothing. */
static void scan_file(struct scan *scan, const char *path)
{
	size_t size;
	void *text;

	if (ki_read_file(SYS, path, KI_WRAP_INPUT_MAX, &text, &size)) {
		give_up(scan, KILN_COUNT_MISS_UNRESOLVED);
		return;
	}
	add_folder_of(&scan->folders, path);
	if (!memchr(text, 0, size))
		scan_text(scan, text);
	else if (size < 4 || (ki_get_u32(text) != 0x07230203 &&
			      memcmp(text, "BC\xc0\xde", 4)))
		give_up(scan, KILN_COUNT_MISS_DIRECTIVE);
	free(text);
}

static int is_file(const char *path)
{
	struct ki_file_info info;

	return !SYS->stat(SYS, path, &info) && S_ISREG(info.mode);
}

/* All places where this name may be; whether it is at one of them. */
static int look_for(struct scan *scan, const char *name,
		    struct ki_wrap_paths *paths)
{
	char path[KI_PATH_MAX];
	int found = is_file(name);
	size_t i;

	ki_wrap_paths_add(paths, name, strlen(name), 0);
	if (found)
		ki_wrap_paths_add(&scan->files, name, strlen(name), 0);
	for (i = 0; *name != '/' && i < scan->folders.n; i++) {
		if (ki_path_join(path, scan->folders.paths[i].path, name)) {
			paths->failed = -ENAMETOOLONG;
			return 0;
		}
		ki_wrap_paths_add(paths, path, strlen(path), 0);
		if (!is_file(path))
			continue;
		found = 1;
		ki_wrap_paths_add(&scan->files, path, strlen(path), 0);
	}
	return found;
}

/* Files bring folders and names, which bring files, until there are no more. */
static void scan_all(struct scan *scan, struct ki_wrap_paths *paths)
{
	size_t n_read = 0, n_folders, n_names, i;

	do {
		while (n_read < scan->files.n)
			scan_file(scan, scan->files.paths[n_read++].path);
		n_folders = scan->folders.n;
		n_names = scan->names.n;
		for (i = 0; i < n_names; i++)
			if (!look_for(scan, scan->names.paths[i].path, paths))
				give_up(scan, KILN_COUNT_MISS_UNRESOLVED);
	} while (n_read < scan->files.n || n_folders < scan->folders.n);
}

static void add_companions(const struct ki_wrap_command *command,
			   struct ki_wrap_paths *paths)
{
	const char *const *ending;
	char path[KI_PATH_MAX];
	size_t i;

	for (ending = command->rule->companions; *ending; ending++)
		for (i = 0; i < command->n_inputs; i++) {
			const char *dot = strrchr(command->inputs[i], '.');
			size_t size = dot ? (size_t)(dot - command->inputs[i])
					  : strlen(command->inputs[i]);

			if (snprintf(path, sizeof(path), "%.*s%s", (int)size,
				     command->inputs[i],
				     *ending) >= (int)sizeof(path))
				paths->failed = -ENAMETOOLONG;
			else
				ki_wrap_paths_add(paths, path, strlen(path), 0);
		}
}

enum kiln_counter ki_wrap_scan(const struct ki_wrap_command *command,
			       struct ki_wrap_paths *paths, int *out_is_known)
{
	struct scan scan = { .command = command };
	size_t i;

	add_companions(command, paths);
	for (i = 0; i < command->n_folders; i++)
		ki_wrap_paths_add(&scan.folders, command->folders[i],
				  strlen(command->folders[i]), 0);
	for (i = 0; i < command->n_inputs; i++)
		ki_wrap_paths_add(&scan.files, command->inputs[i],
				  strlen(command->inputs[i]), 0);
	scan_all(&scan, paths);
	if (scan.names.failed || scan.folders.failed || scan.files.failed)
		paths->failed = -ENOMEM;
	ki_wrap_paths_fini(&scan.names);
	ki_wrap_paths_fini(&scan.folders);
	ki_wrap_paths_fini(&scan.files);
	*out_is_known = !scan.is_unknown;
	return scan.why;
}

/* ---- What a compiler lists --------------------------------------------------- */

/* A file of that name below another folder would have been taken before, or will
   be when it comes. */
static void add_elsewhere(const struct ki_wrap_command *command,
			  const char *path, struct ki_wrap_paths *paths)
{
	struct ki_wrap_paths folders = { 0 };
	const char *part = path;
	char other[KI_PATH_MAX];
	size_t i;

	for (i = 0; i < command->n_inputs; i++)
		add_folder_of(&folders, command->inputs[i]);
	for (i = 0; i < command->n_folders; i++)
		ki_wrap_paths_add(&folders, command->folders[i],
				  strlen(command->folders[i]), 0);
	for (; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL) {
		if (*part == '/' || !*part)
			continue;
		ki_wrap_paths_add(paths, part, strlen(part), 0);
		for (i = 0; i < folders.n; i++)
			if (!ki_path_join(other, folders.paths[i].path, part))
				ki_wrap_paths_add(paths, other, strlen(other),
						  0);
	}
	if (folders.failed)
		paths->failed = folders.failed;
	ki_wrap_paths_fini(&folders);
}

/* Up to a blank that has no backslash before it; the next one's beginning. */
static const char *take_word(const char *text, char *out, size_t size)
{
	size_t n = 0;

	for (; *text && !isspace((unsigned char)*text); text++) {
		if (text[0] == '\\' && text[1] && strchr(" #\\", text[1]))
			text++;
		else if (text[0] == '$' && text[1] == '$')
			text++;
		if (n + 1 < size)
			out[n++] = *text;
	}
	out[n] = '\0';
	return text;
}

static int is_input(const struct ki_wrap_command *command, const char *path)
{
	size_t i;

	for (i = 0; i < command->n_inputs; i++)
		if (!strcmp(command->inputs[i], path))
			return 1;
	return 0;
}

void ki_wrap_add_listed(const struct ki_wrap_command *command, const char *text,
			struct ki_wrap_paths *paths)
{
	char word[KI_PATH_MAX];
	const char *colon = strstr(text, ": ");

	text = colon ? colon + 2 : "";
	while (*text) {
		text += strspn(text, " \t\r\n");
		if (*text == '\\' && (text[1] == '\n' || text[1] == '\r')) {
			text += 2;
			continue;
		}
		text = take_word(text, word, sizeof(word));
		/* Inputs are in the command's key. */
		if (!*word || is_input(command, word))
			continue;
		ki_wrap_paths_add(paths, word, strlen(word), 0);
		add_elsewhere(command, word, paths);
	}
}

/* ---- What a driver's preprocessor lists --------------------------------------- */

/*
 * It says which files it took, and the folders that it looks into are known.  So each
 * file has its other places: below these folders by the part of its path behind the
 * one that it is in, and in the working directory.  Names that a text has may have
 * been looked for in vain, and beside the text: all that stand between quotes or
 * angles in a line with "include" are taken for such.
 */

struct places {
	const struct ki_wrap_paths *folders;
	const struct ki_wrap_paths *files;
	struct ki_wrap_paths names;
	struct ki_wrap_paths *paths; /* out */
};

/* A place where nothing is stands for all below it: its first `n` bytes are a folder,
   and the first missing part behind that is taken. */
static void add_place(struct places *places, char *path, size_t n)
{
	struct ki_file_info info;
	char *end;

	for (end = path + n; end && *end; end = strchr(end + 1, '/')) {
		if (end == path)
			continue;
		*end = '\0';
		if (SYS->stat(SYS, path, &info) == -ENOENT)
			break;
		*end = '/';
	}
	ki_wrap_paths_add(places->paths, path, strlen(path), 0);
}

/* In the folder of a file. */
static void add_beside(struct places *places, const char *file,
		       const char *name, size_t size)
{
	const char *slash = strrchr(file, '/');
	char path[KI_PATH_MAX];
	int folder = slash && *name != '/' ? (int)(slash - file) : 0;
	int n = snprintf(path, sizeof(path), "%.*s%s%.*s", folder, file,
			 slash && *name != '/' ? "/" : "", (int)size, name);

	if (n < 0 || n >= (int)sizeof(path))
		places->paths->failed = -ENAMETOOLONG;
	else
		add_place(places, path, (size_t)folder);
}

static void take_names(struct places *places, const char *file,
		       const char *line)
{
	const char *end;

	for (; (line = strpbrk(line, "\"<")); line++) {
		end = strchr(line + 1, *line == '<' ? '>' : '"');
		if (!end || end == line + 1)
			continue;
		ki_wrap_paths_add(&places->names, line + 1,
				  (size_t)(end - line - 1), 0);
		add_beside(places, file, line + 1, (size_t)(end - line - 1));
	}
}

/* Behind one of the folders; NULL: it is not below that. */
static const char *rest_behind(const char *folder, const char *path)
{
	size_t size = strlen(folder);

	return !strncmp(path, folder, size) && path[size] == '/'
		       ? path + size + strspn(path + size, "/")
		       : NULL;
}

/* The name is a macro's: it is that of one of the files. */
static void take_any_name(struct places *places, const char *file)
{
	const char *rest;
	size_t i, j;

	for (i = 0; i < places->files->n; i++)
		for (j = 0; j < places->folders->n; j++) {
			rest = rest_behind(places->folders->paths[j].path,
					   places->files->paths[i].path);
			if (rest)
				add_beside(places, file, rest, strlen(rest));
		}
}

static int is_computed(const char *line, const char *word)
{
	const char *mark = before(line, word);

	if (!mark || (*mark != '#' && !ends_in(line, mark + 1, "%:") &&
		      !ends_in(line, mark + 1, "*/")))
		return 0;
	word += strlen("include");
	if (!strncmp(word, "_next", 5))
		word += 5;
	word += strspn(word, " \t");
	return *word != '"' && *word != '<';
}

/* Whether "__has_include" stands there without a name, or with that of a macro. */
static int asks_without_name(const char *line, int is_definition)
{
	const char *at = line;

	while ((at = strstr(at, "__has_include"))) {
		at += strspn(at, "_abcdefghijklmnopqrstuvwxyz");
		at += strspn(at, " \t");
		if (*at != '(' && !is_definition)
			continue;
		at += *at == '(';
		at += strspn(at, " \t");
		if (*at != '<' && *at != '"')
			return 1;
	}
	return 0;
}

/* The name that a line defines; NULL: it defines none. */
static const char *defined_name(const char *line)
{
	const char *word = strstr(line, "define");
	const char *mark = word ? before(line, word) : NULL;

	if (!mark || !strchr("#:/", *mark))
		return NULL;
	word += strlen("define");
	return word + strspn(word, " \t");
}

/* A question that has another name: where that is used names would be overlooked,
   but for the word "include" in it. */
static int hides_question(const char *line)
{
	const char *name = defined_name(line);
	size_t size;

	if (!asks_without_name(line, name != NULL))
		return 0;
	if (!name)
		return 1;
	for (size = strcspn(name, " \t("); size >= 7; size--, name++)
		if (!strncasecmp(name, "include", 7))
			return 0;
	return 1;
}

static int scan_line(struct places *places, const char *file, const char *line)
{
	const char *word;

	if (!strcasestr(line, "include"))
		return 0;
	take_names(places, file, line);
	for (word = strstr(line, "include"); word;
	     word = strstr(word + 1, "include"))
		if (is_computed(line, word))
			take_any_name(places, file);
	return hides_question(line) ? -1 : 0;
}

/* The macro itself, not one that begins like it. */
static int has_word(const char *text, const char *word)
{
	size_t size = strlen(word);
	const char *at = text;

	while ((at = strstr(at, word))) {
		if ((at == text ||
		     !(isalnum((unsigned char)at[-1]) || at[-1] == '_')) &&
		    !isalnum((unsigned char)at[size]) && at[size] != '_')
			return 1;
		at += size;
	}
	return 0;
}

static enum kiln_counter scan_listed(struct places *places, const char *file,
				     char *text)
{
	char *line, *at, *rest = NULL;

	if (has_word(text, "__DATE__") || has_word(text, "__TIME__") ||
	    has_word(text, "__TIMESTAMP__"))
		return KILN_COUNT_MISS_TIME_MACRO;
	if (strstr(text, "?\?/") || strstr(text, "?\?=") ||
	    has_directive(text, "import") || has_directive(text, "embed") ||
	    has_spliced_word(text))
		return KILN_COUNT_MISS_DIRECTIVE;
	for (at = strstr(text, "\\\n"); at; at = strstr(at, "\\\n"))
		at[0] = at[1] = ' ';
	for (line = strtok_r(text, "\n", &rest); line;
	     line = strtok_r(NULL, "\n", &rest))
		if (scan_line(places, file, line))
			return KILN_COUNT_MISS_DIRECTIVE;
	return NOTHING_WRONG;
}

static enum kiln_counter scan_listed_file(struct places *places,
					  const char *file)
{
	enum kiln_counter why = KILN_COUNT_MISS_UNRESOLVED;
	size_t size;
	void *text;

	if (ki_read_file(SYS, file, KI_WRAP_INPUT_MAX, &text, &size))
		return why;
	why = memchr(text, 0, size) ? KILN_COUNT_MISS_DIRECTIVE
				    : scan_listed(places, file, text);
	free(text);
	return why;
}

static void add_places(struct places *places)
{
	char path[KI_PATH_MAX];
	size_t i, j;

	for (i = 0; i < places->names.n; i++)
		for (j = 0; j < places->folders->n; j++) {
			const char *name = places->names.paths[i].path;
			const char *folder = places->folders->paths[j].path;

			if (*name == '/')
				continue;
			if (ki_path_join(path, folder, name))
				places->paths->failed = -ENAMETOOLONG;
			else
				add_place(places, path, strlen(folder));
		}
}

/* A file that was taken, and what it may have been named. */
static void take_file(struct places *places, const char *file)
{
	const char *rest;
	size_t i;

	ki_wrap_paths_add(places->paths, file, strlen(file), 0);
	for (i = 0; i < places->folders->n; i++) {
		rest = rest_behind(places->folders->paths[i].path, file);
		if (!rest)
			continue;
		ki_wrap_paths_add(&places->names, rest, strlen(rest), 0);
		ki_wrap_paths_add(places->paths, rest, strlen(rest), 0);
	}
}

/* How many lists there are of sources, and the files in them.  Lists of temporary
   files are those of questions that the driver asks. */
static size_t read_lists(const char *text, struct ki_wrap_paths *files)
{
	char word[KI_PATH_MAX];
	size_t n_lists = 0, size;

	while (*(text += strspn(text, " \t\r\n"))) {
		if (*text == '\\' && (text[1] == '\n' || text[1] == '\r')) {
			text += 2;
			continue;
		}
		text = take_word(text, word, sizeof(word));
		size = strlen(word);
		if (size && word[size - 1] == ':')
			n_lists += strncmp(word, "tmpxft_", 7) != 0;
		else
			ki_wrap_paths_add(files, word, size, 0);
	}
	return n_lists;
}

enum kiln_counter ki_wrap_add_places(const struct ki_wrap_command *command,
				     const struct ki_wrap_driver *driver,
				     const char *text,
				     struct ki_wrap_paths *paths,
				     int *out_is_known)
{
	struct ki_wrap_paths files = { 0 };
	struct places places = { .folders = &driver->folders,
				 .files = &files,
				 .paths = paths };
	enum kiln_counter why = KILN_COUNT_MISS_UNRESOLVED;
	size_t i;

	if (read_lists(text, &files) == driver->n_lists)
		why = scan_listed_file(&places, command->inputs[0]);
	for (i = 0; i < files.n && why == NOTHING_WRONG; i++) {
		take_file(&places, files.paths[i].path);
		why = scan_listed_file(&places, files.paths[i].path);
	}
	add_places(&places);
	if (files.failed || places.names.failed)
		paths->failed = -E2BIG;
	*out_is_known = why == NOTHING_WRONG;
	ki_wrap_paths_fini(&files);
	ki_wrap_paths_fini(&places.names);
	return why;
}
