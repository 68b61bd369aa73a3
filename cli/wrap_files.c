/* SPDX-License-Identifier: MIT */

/*
 * The files that a run of a compiler depends on.
 *
 * Includes are found by looking for #include in the inputs and in what they
 * include.  In which order a compiler searches does not matter here: every place
 * where one of the names could be, the folders of all files seen, those of the
 * options and the working directory, belongs to the result, there or not.  A
 * file that comes, goes or changes at any of them makes another key.
 *
 * A source that could include by other means than a plain line (a macro's name, a
 * spliced line, a comment in between) is not known by looking.  What the compiler
 * itself lists then decides.
 */

#include <ctype.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "wrap.h"

#define SYS		(&ki_sys_posix)
#define NOTES_MAX	((size_t)1 << 16)
#define HEADERS_MAX	64
#define LIBRARY_MAX	((size_t)1 << 30)
#define CLOCK_COARSE_NS 20000000 /* what a file's time may lag behind */

/* ---- Lists of paths ---------------------------------------------------------- */

void ki_wrap_paths_add(struct ki_wrap_paths *paths, const char *path,
		       size_t size, int is_library)
{
	struct ki_wrap_path *more;
	size_t i;

	for (i = 0; i < paths->n; i++)
		if (!strncmp(paths->paths[i].path, path, size) &&
		    !paths->paths[i].path[size])
			return;
	if (paths->n == KI_WRAP_PATHS_MAX || size >= KI_PATH_MAX)
		paths->failed = -E2BIG;
	if (paths->failed)
		return;
	more = realloc(paths->paths, (paths->n + 1) * sizeof(*more));
	if (more)
		paths->paths = more;
	if (!more || !(more[paths->n].path = strndup(path, size))) {
		paths->failed = -ENOMEM;
		return;
	}
	more[paths->n++].is_library = is_library;
}

void ki_wrap_paths_fini(struct ki_wrap_paths *paths)
{
	size_t i;

	for (i = 0; i < paths->n; i++)
		free(paths->paths[i].path);
	free(paths->paths);
	memset(paths, 0, sizeof(*paths));
}

int ki_wrap_is_recent(const struct ki_wrap_paths *paths, int64_t begun_ns)
{
	struct ki_file_info info;
	size_t i;

	for (i = 0; i < paths->n; i++)
		if (!SYS->stat(SYS, paths->paths[i].path, &info) &&
		    (info.ctime_ns >= begun_ns ||
		     info.mtime_ns + CLOCK_COARSE_NS >= begun_ns))
			return 1;
	return 0;
}

/* ---- States ------------------------------------------------------------------ */

/* In the notes of a program header. */
static int find_build_id(const uint8_t *notes, size_t size, const uint8_t **out,
			 size_t *out_size)
{
	struct ki_reader reader = ki_reader(notes, size);

	while (reader.size && !reader.failed) {
		uint32_t name_size = ki_read_u32(&reader);
		uint32_t data_size = ki_read_u32(&reader);
		uint32_t type = ki_read_u32(&reader);
		const uint8_t *name, *data;

		if (name_size > size || data_size > size)
			return -1;
		name = ki_read(&reader, (name_size + 3) & ~(uint32_t)3);
		data = ki_read(&reader, (data_size + 3) & ~(uint32_t)3);
		if (name && data && type == NT_GNU_BUILD_ID && name_size == 4 &&
		    !memcmp(name, "GNU", 4) && data_size) {
			*out = data;
			*out_size = data_size;
			return 0;
		}
	}
	return -1;
}

static int add_notes(struct kiln_key *key, int fd, uint64_t offset,
		     uint64_t size)
{
	const uint8_t *build_id;
	size_t build_id_size;
	uint8_t *notes;
	int err;

	if (!size || size > NOTES_MAX)
		return -1;
	notes = malloc(size);
	err = !notes || ki_pread_all(SYS, fd, notes, size, offset) ||
	      find_build_id(notes, size, &build_id, &build_id_size);
	if (!err)
		kiln_key_add_local(key, "build-id", build_id, build_id_size);
	free(notes);
	return err ? -1 : 0;
}

/* Of a 64-bit ELF file of this machine's byte order; -1: it has none. */
static int add_build_id(struct kiln_key *key, int fd)
{
	Elf64_Phdr headers[HEADERS_MAX];
	Elf64_Ehdr elf;
	size_t i;

	if (ki_pread_all(SYS, fd, &elf, sizeof(elf), 0) ||
	    memcmp(elf.e_ident, ELFMAG, SELFMAG) ||
	    elf.e_ident[EI_CLASS] != ELFCLASS64 ||
	    elf.e_phentsize != sizeof(*headers) || !elf.e_phnum ||
	    elf.e_phnum > HEADERS_MAX ||
	    ki_pread_all(SYS, fd, headers, elf.e_phnum * sizeof(*headers),
			 elf.e_phoff))
		return -1;
	for (i = 0; i < elf.e_phnum; i++)
		if (headers[i].p_type == PT_NOTE &&
		    !add_notes(key, fd, headers[i].p_offset,
			       headers[i].p_filesz))
			return 0;
	return -1;
}

/* A library without a build-id, which may be long: XXH3 over the mapped file. */
static int add_library(struct kiln_key *key, int fd, size_t size)
{
	uint8_t digest[16];
	void *data;

	if (!add_build_id(key, fd))
		return 0;
	if (!size || size > LIBRARY_MAX || SYS->map(SYS, fd, 0, size, 0, &data))
		return -EINVAL;
	ki_xxh3_128(data, size, digest);
	SYS->unmap(SYS, data, size);
	kiln_key_add_local(key, "content", digest, sizeof(digest));
	return 0;
}

static int add_file(struct kiln_key *key, int fd, size_t size)
{
	char *data;
	int err;

	if (size > KI_WRAP_INPUT_MAX)
		return -EFBIG;
	data = malloc(size + 1);
	err = data ? ki_pread_all(SYS, fd, data, size, 0) : -ENOMEM;
	if (!err)
		kiln_key_add_digest(key, "content", data, size);
	free(data);
	return err;
}

int ki_wrap_add_state(struct kiln_key *key, const char *path, int is_library)
{
	struct ki_file_info info;
	int fd, err;

	kiln_key_add_local(key, "path", path, strlen(path));
	fd = SYS->open(SYS, path, KI_OPEN_READ, 0);
	if (fd == -ENOENT || fd == -ENOTDIR) {
		kiln_key_add_absent(key, "content");
		return 0;
	}
	if (fd < 0)
		return fd;
	err = SYS->fstat(SYS, fd, &info);
	if (!err && S_ISDIR(info.mode))
		kiln_key_add_string(key, "content", "a directory");
	else if (!err && !S_ISREG(info.mode))
		err = -EINVAL;
	else if (!err)
		err = is_library ? add_library(key, fd, info.size)
				 : add_file(key, fd, info.size);
	SYS->close(SYS, fd);
	return err;
}

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
