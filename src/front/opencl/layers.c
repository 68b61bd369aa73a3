/* SPDX-License-Identifier: MIT */

/*
 * ocl-icd 2.3.1 writes a NUL over each ':' of the list while it reads it, in
 * the environment itself: getenv() then has the first entry only, and
 * /proc/self/environ, which shows the same memory, has the others as strings
 * that are no NAME=VALUE.  A program that has set the variable by itself keeps
 * it elsewhere; what can then be seen is only its first entry.
 *
 * Newer loaders also take layers from files in /etc/OpenCL/layers.  Those of
 * them that are loaded here count, and count as below us, where they are put.
 */

#include "front/opencl/layers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define ENVIRONMENT_BYTES_MAX ((size_t)4 << 20)
#define LAYER_FILE_BYTES_MAX  ((size_t)4096)
#define SYSTEM_LAYERS	      "/etc/OpenCL/layers"

/* Add the parts between ':'. */
static int add_list(struct ki_cl_words *paths, const char *list, size_t size)
{
	const char *end = list + size, *colon;
	int err = 0;

	while (list < end && !err) {
		colon = memchr(list, ':', (size_t)(end - list));
		if (!colon)
			colon = end;
		if (colon > list)
			err = ki_cl_words_add(paths, list,
					      (size_t)(colon - list));
		list = colon + 1;
	}
	return err;
}

static int is_variable(const char *text)
{
	size_t size = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				   "abcdefghijklmnopqrstuvwxyz0123456789_");

	return size && text[size] == '=';
}

int ki_cl_layers_listed(const char *block, size_t size,
			struct ki_cl_words *out_paths)
{
	static const char NAME[] = "OPENCL_LAYERS=";
	const char *p = block, *end = block + size;
	int err = 0, is_inside = 0;

	for (; p < end && !err; p += strnlen(p, (size_t)(end - p)) + 1) {
		size_t length = strnlen(p, (size_t)(end - p));

		if (!strncmp(p, NAME, sizeof(NAME) - 1)) {
			is_inside = 1;
			err = add_list(out_paths, p + sizeof(NAME) - 1,
				       length - (sizeof(NAME) - 1));
		} else if (is_inside && !is_variable(p)) {
			err = add_list(out_paths, p, length);
		} else if (is_inside) {
			break;
		}
	}
	return err;
}

/* /proc/self/environ, whole. */
static int read_environment(const struct ki_sys *sys, struct ki_bytes *out)
{
	int fd = sys->open(sys, "/proc/self/environ", KI_OPEN_READ, 0);
	uint8_t piece[4096];
	ssize_t n;

	if (fd < 0)
		return fd;
	do {
		n = sys->pread(sys, fd, piece, sizeof(piece), out->size);
		if (n > 0)
			ki_bytes_add(out, piece, (size_t)n);
	} while (n > 0 && !out->failed);
	(void)sys->close(sys, fd);
	return n < 0 ? (int)n : out->failed;
}

/* What the environment's memory lists; 0 also where it cannot be read, with
   nothing listed. */
static int list_from_memory(const struct ki_sys *sys, struct ki_cl_words *paths)
{
	struct ki_bytes block;
	int err;

	ki_bytes_init(&block);
	block.limit = ENVIRONMENT_BYTES_MAX;
	err = read_environment(sys, &block);
	ki_bytes_add_u8(&block, 0);
	if (!err && !block.failed)
		err = ki_cl_layers_listed((const char *)block.data, block.size,
					  paths);
	ki_bytes_fini(&block);
	return err == -ENOMEM || err == -E2BIG ? err : 0;
}

/* The first entry alone, which getenv() always has, is enough to be right: if
   it is ours nothing is below us, if not, something is. */
static int list_layers(const struct ki_sys *sys, struct ki_cl_words *paths)
{
	const char *value = ki_environment("OPENCL_LAYERS");
	int err = value ? list_from_memory(sys, paths) : 0;

	if (!value || err)
		return err;
	if (!paths->n ||
	    strncmp(paths->words[0], value, strlen(paths->words[0]))) {
		ki_cl_words_fini(paths);
		err = add_list(paths, value, strlen(value));
	}
	return err;
}

/* The same file, or if that cannot be told the same name. */
static int is_image(const struct ki_sys *sys, const char *path,
		    const struct ki_image *image)
{
	struct ki_file_info a, b;

	if (!image)
		return 0;
	if (sys->stat(sys, path, &a) || sys->stat(sys, image->path, &b))
		return !strcmp(ki_last_part(path), ki_last_part(image->path));
	return a.device == b.device && a.inode == b.inode;
}

/* The layers of the system that are loaded. */
static int add_system_layers(const struct ki_sys *sys,
			     const struct ki_images *images,
			     const struct ki_image *own,
			     struct ki_cl_words *paths)
{
	const char *folder = ki_environment("OPENCL_LAYER_PATH");
	char path[KI_PATH_MAX];
	const struct ki_image *image;
	struct ki_dir *dir;
	const char *name;
	size_t size;
	void *text;
	int err, more = 0;

	if (!folder)
		folder = SYSTEM_LAYERS;
	err = sys->opendir(sys, folder, &dir);
	if (err)
		return err == -ENOENT || err == -ENOTDIR || err == -EACCES
			       ? 0
			       : err;
	for (err = 0; !err && (more = sys->readdir(sys, dir, &name)) > 0;) {
		size = strlen(name);
		if (size < 4 || strcmp(name + size - 4, ".lay") ||
		    ki_path_join(path, folder, name) ||
		    ki_read_file(sys, path, LAYER_FILE_BYTES_MAX, &text, &size))
			continue;
		((char *)text)[strcspn(text, "\r\n")] = 0;
		image = *(char *)text ? ki_image_named(images, text) : NULL;
		if (image && !is_image(sys, image->path, own))
			err = ki_cl_words_add(paths, image->path,
					      strlen(image->path));
		free(text);
	}
	sys->closedir(sys, dir);
	return err ? err : more;
}

/* A path that leads nowhere is a layer that its loader passed over in silence.
   A name without a folder is searched in places that we do not know. */
static int may_be_there(const struct ki_sys *sys, const char *path)
{
	struct ki_file_info info;

	return !strchr(path, '/') || sys->stat(sys, path, &info) != -ENOENT;
}

int ki_cl_layers_below(const struct ki_sys *sys, const struct ki_images *images,
		       const struct ki_image *own,
		       struct ki_cl_words *out_paths)
{
	struct ki_cl_words listed = { 0 };
	size_t i, n;
	int err = list_layers(sys, &listed);

	for (n = 0; n < listed.n; n++)
		if (is_image(sys, listed.words[n], own))
			break;
	for (i = n; i > 0 && !err; i--)
		if (may_be_there(sys, listed.words[i - 1]))
			err = ki_cl_words_add(out_paths, listed.words[i - 1],
					      strlen(listed.words[i - 1]));
	if (!err)
		err = add_system_layers(sys, images, own, out_paths);
	ki_cl_words_fini(&listed);
	return err;
}
