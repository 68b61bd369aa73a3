/* SPDX-License-Identifier: MIT */

/*
 * Files of compilers, found by the patterns of the driver's row.  Identities
 * come from the disk, before a library is loaded or a file is read by the
 * driver; that nothing changed in between is what the two last functions see.
 */

#include "front/parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"

int ki_part_identify(const struct ki_sys *sys, const struct ki_part_file *file,
		     char out[KI_IDENTITY_BYTES])
{
	return file->part->kind == KI_PART_LIBRARY
		       ? ki_library_identity(sys, file->path, out)
		       : ki_data_identity(sys, file->path, out);
}

static int matches(const struct ki_part *part, const char *name)
{
	size_t size = strlen(name);
	size_t suffix = part->suffix ? strlen(part->suffix) : 0;

	if (!part->suffix)
		return !strcmp(name, part->prefix);
	return !strncmp(name, part->prefix, strlen(part->prefix)) &&
	       size >= suffix && !strcmp(name + size - suffix, part->suffix);
}

/* Add a file; those that are none are passed over. */
static int add_file(const struct ki_sys *sys, const struct ki_part *part,
		    const char *directory, const char *name,
		    struct ki_part_files *files)
{
	struct ki_part_file file = { .part = part }, *grown;
	char path[KI_PATH_MAX];

	if (ki_path_join(path, directory, name))
		return -ENAMETOOLONG;
	if (sys->stat(sys, path, &file.info) || !S_ISREG(file.info.mode))
		return 0;
	if (files->n == KI_PART_FILES_MAX)
		return -E2BIG;
	grown = realloc(files->files, (files->n + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	files->files = grown;
	file.path = strdup(path);
	if (!file.path)
		return -ENOMEM;
	file.name = ki_last_part(file.path);
	files->files[files->n++] = file;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct ki_part_file *)a)->name,
		      ((const struct ki_part_file *)b)->name);
}

/* "@/x" in the folder of the library. */
static int directory_of(const char *pattern, const char *library,
			char out[KI_PATH_MAX])
{
	size_t size = (size_t)(ki_last_part(library) - library);
	int n;

	if (*pattern == '@')
		n = snprintf(out, KI_PATH_MAX, "%.*s%s",
			     (int)(size ? size - 1 : 0), library, pattern + 1);
	else
		n = snprintf(out, KI_PATH_MAX, "%s", pattern);
	return n < 0 || n >= KI_PATH_MAX ? -ENAMETOOLONG : 0;
}

/* The files of one part in one folder; none if there is no such folder. */
static int find_in(const struct ki_sys *sys, const struct ki_part *part,
		   const char *directory, struct ki_part_files *files)
{
	struct ki_dir *dir;
	const char *name;
	int err, more = 0;

	if (!part->suffix) /* large folders take half a millisecond to list */
		return add_file(sys, part, directory, part->prefix, files);
	err = sys->opendir(sys, directory, &dir);
	if (err)
		return err == -ENOENT || err == -ENOTDIR ? 0 : err;
	while (!err && (more = sys->readdir(sys, dir, &name)) > 0)
		if (matches(part, name))
			err = add_file(sys, part, directory, name, files);
	sys->closedir(sys, dir);
	return err ? err : more;
}

/* The program that would be run by this name. */
static int find_program(const struct ki_sys *sys, const struct ki_part *part,
			struct ki_part_files *files)
{
	const char *folder = ki_environment("PATH"), *end;
	char directory[KI_PATH_MAX];
	size_t before = files->n;
	int err = 0;

	for (; folder && *folder && files->n == before && !err; folder = end) {
		end = folder + strcspn(folder, ":");
		if (end > folder && (size_t)(end - folder) < KI_PATH_MAX) {
			snprintf(directory, sizeof(directory), "%.*s",
				 (int)(end - folder), folder);
			err = add_file(sys, part, directory, part->prefix,
				       files);
		}
		if (files->n > before &&
		    !(files->files[before].info.mode & 0111))
			free(files->files[--files->n].path);
		end += *end == ':';
	}
	return err == -ENAMETOOLONG ? 0 : err;
}

/* All files of one part, from the first of its folders that has any. */
static int find_part(const struct ki_sys *sys, const struct ki_part *part,
		     const char *library, struct ki_part_files *files)
{
	size_t i, before = files->n;
	char directory[KI_PATH_MAX];
	int err = 0;

	for (i = 0; part->directories[i] && files->n == before && !err; i++) {
		if (!strcmp(part->directories[i], "$PATH")) {
			err = find_program(sys, part, files);
			continue;
		}
		err = directory_of(part->directories[i], library, directory);
		if (!err)
			err = find_in(sys, part, directory, files);
	}
	if (!err && part->is_needed && files->n == before)
		err = -ENOENT;
	if (files->n > before)
		qsort(files->files + before, files->n - before,
		      sizeof(*files->files), by_name);
	return err;
}

int ki_parts_find(const struct ki_sys *sys, const struct ki_part *parts,
		  size_t n_parts, const char *library,
		  struct ki_part_files *out_files)
{
	struct ki_part_files files = { 0 };
	size_t i;
	int err = 0;

	for (i = 0; i < n_parts && !err; i++)
		err = find_part(sys, &parts[i], library, &files);
	for (i = 0; i < files.n && !err; i++)
		if (files.files[i].part->kind != KI_PART_PER_DEVICE)
			err = ki_part_identify(sys, &files.files[i],
					       files.files[i].identity);
	if (err)
		ki_parts_fini(&files);
	else
		*out_files = files;
	return err;
}

void ki_parts_fini(struct ki_part_files *files)
{
	size_t i;

	for (i = 0; i < files->n; i++)
		free(files->files[i].path);
	free(files->files);
	*files = (struct ki_part_files){ 0 };
}

uint64_t ki_parts_variables(const struct ki_part *parts, size_t n_parts)
{
	const char *path = ki_environment("PATH");
	size_t i;

	for (i = 0; path && i < n_parts; i++)
		if (!strcmp(parts[i].directories[0], "$PATH"))
			return ki_xxh3_64(path, strlen(path));
	return 0;
}

static int is_other_in(const struct ki_sys *sys, const char *directory,
		       const struct ki_part_file *file)
{
	char path[KI_PATH_MAX];
	struct ki_file_info info;

	return !ki_path_join(path, directory, file->name) &&
	       !sys->stat(sys, path, &info) &&
	       (info.device != file->info.device ||
		info.inode != file->info.inode);
}

/* Whether another library of one of these names lies there. */
static int hides_in(const struct ki_sys *sys, const char *directory,
		    const struct ki_part_files *files)
{
	const struct ki_part *part;
	size_t i;

	for (i = 0; i < files->n; i++) {
		part = files->files[i].part;
		/* Programs are not found there. */
		if (part->kind == KI_PART_LIBRARY &&
		    strcmp(part->directories[0], "$PATH") != 0 &&
		    is_other_in(sys, directory, &files->files[i]))
			return 1;
	}
	return 0;
}

/* An empty folder is the working directory, as for the system. */
int ki_parts_hidden(const struct ki_sys *sys, const struct ki_part_files *files)
{
	const char *folder = ki_environment("LD_LIBRARY_PATH");
	char directory[KI_PATH_MAX];
	size_t size;

	while (folder && *folder) {
		size = strcspn(folder, ":;");
		if (size < sizeof(directory)) {
			snprintf(directory, sizeof(directory), "%.*s",
				 size ? (int)size : 1, size ? folder : ".");
			if (hides_in(sys, directory, files))
				return 1;
		}
		folder += size + (folder[size] != '\0');
	}
	return 0;
}

int ki_parts_changed(const struct ki_sys *sys,
		     const struct ki_part_files *files)
{
	const struct ki_file_info *before;
	struct ki_file_info now;
	size_t i;

	for (i = 0; i < files->n; i++) {
		before = &files->files[i].info;
		if (sys->stat(sys, files->files[i].path, &now) ||
		    now.device != before->device ||
		    now.inode != before->inode || now.size != before->size ||
		    now.mtime_ns != before->mtime_ns ||
		    now.ctime_ns != before->ctime_ns)
			return 1;
	}
	return 0;
}

/* The identity that a loaded image should have had on disk. */
static int is_identified(const struct ki_sys *sys,
			 const struct ki_part_files *files,
			 const struct ki_image *image)
{
	const char *name = ki_last_part(image->path);
	char identity[KI_IDENTITY_BYTES];
	size_t i;

	if (*image->build_id)
		strcpy(identity, image->build_id);
	else if (ki_library_identity(sys, image->path, identity))
		return 0;
	for (i = 0; i < files->n; i++)
		if (files->files[i].part->kind == KI_PART_LIBRARY &&
		    !strcmp(files->files[i].identity, identity) &&
		    matches(files->files[i].part, name))
			return 1;
	return 0;
}

int ki_parts_loaded_otherwise(const struct ki_sys *sys,
			      const struct ki_part *parts, size_t n_parts,
			      const struct ki_part_files *files,
			      const struct ki_images *images)
{
	const char *name;
	size_t i, j;

	for (i = 0; i < images->n; i++) {
		name = ki_last_part(images->images[i].path);
		for (j = 0; j < n_parts; j++)
			if (parts[j].kind == KI_PART_LIBRARY &&
			    matches(&parts[j], name) &&
			    !is_identified(sys, files, &images->images[i]))
				return 1;
	}
	return 0;
}
