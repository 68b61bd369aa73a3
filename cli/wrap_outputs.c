/* SPDX-License-Identifier: MIT */

/* The files that a compiler writes: which they are, kept, and put back. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wrap.h"

#define SYS	   (&ki_sys_posix)
#define CANDIDATES 64
#define ROOM	   ((uint64_t)1 << 20) /* for more than was written */

/* ---- Which they are ----------------------------------------------------------- */

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

struct ki_wrap_candidates {
	struct candidate list[CANDIDATES];
	size_t n;
	int failed;
};

static void add_candidate(struct ki_wrap_candidates *candidates,
			  const char *directory, const char *name)
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
struct ki_wrap_candidates *ki_wrap_look(const struct ki_wrap_command *command)
{
	struct ki_wrap_candidates *candidates = calloc(1, sizeof(*candidates));
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
	struct ki_wrap_candidates *candidates = ki_wrap_look(command);
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

static int is_changed(const struct ki_wrap_candidates *before,
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
const char *ki_wrap_keep_outputs(const struct ki_wrap_command *command,
				 const struct ki_wrap_candidates *before,
				 struct ki_wrap_result *result)
{
	struct ki_wrap_candidates *now = ki_wrap_look(command);
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
