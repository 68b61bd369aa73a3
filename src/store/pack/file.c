/* SPDX-License-Identifier: MIT */

/*
 * A file as the device of a pack.  Who may write to it can make this process run
 * anything, signatures or not where none are asked for: it must be this user's
 * or root's, and nobody else may write to it, nor put another of this user's files
 * in its place.  A link may lead to it; what counts is the file, and where the link
 * lies.
 *
 * A guest keeps no descriptor: the file is opened for each read and must be the
 * one that was judged.
 */

#include "store/pack/pack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/status.h"

#define N_CALLS 4

struct file {
	const struct ki_sys *sys;
	int fd; /* -1: opened for each read */
	struct ki_file_info info;
	char path[];
};

static int is_same(const struct ki_file_info *a, const struct ki_file_info *b)
{
	return a->device == b->device && a->inode == b->inode &&
	       a->size == b->size && a->mtime_ns == b->mtime_ns;
}

/* A descriptor of the file that was judged, or a negative errno. */
static int open_again(const struct file *file)
{
	const struct ki_sys *sys = file->sys;
	int fd = sys->open(sys, file->path, KI_OPEN_READ, 0);
	struct ki_file_info info;
	int err;

	if (fd < 0)
		return fd;
	err = sys->fstat(sys, fd, &info);
	if (!err && !is_same(&info, &file->info))
		err = -ESTALE;
	if (!err)
		return fd;
	(void)sys->close(sys, fd);
	return err;
}

static int64_t file_bytes(void *context)
{
	const struct file *file = context;

	return file->info.size > INT64_MAX ? -EFBIG : (int64_t)file->info.size;
}

static ssize_t file_read(uint64_t offset, void *buffer, size_t count,
			 void *context)
{
	const struct file *file = context;
	int fd = file->fd < 0 ? open_again(file) : file->fd;
	ssize_t n;

	if (fd < 0)
		return fd;
	n = file->sys->pread(file->sys, fd, buffer, count, offset);
	if (fd != file->fd)
		(void)file->sys->close(file->sys, fd);
	return n;
}

static void file_release(void *context)
{
	struct file *file = context;

	if (file->fd >= 0)
		(void)file->sys->close(file->sys, file->fd);
	free(file);
}

static enum kiln_status judge(const struct file *file, uint32_t flags,
			      const char **out_why)
{
	int err = 0;

	if (!S_ISREG(file->info.mode)) {
		*out_why = "is not a file";
		return KILN_E_IO;
	}
	if (flags & KILN_PACK_ANY_OWNER)
		return KILN_OK;
	*out_why = ki_owner_why_not(&file->info, 0, &err);
	if (!*out_why)
		*out_why = ki_parent_why_not(file->sys, file->path);
	if (!*out_why && !err)
		return KILN_OK;
	if (*out_why)
		return KILN_E_OWNER;
	*out_why = "cannot be looked at";
	return ki_status_from_errno(err);
}

/* Of the path from the root: a guest's program may go to another directory. */
static struct file *new_file(const struct ki_sys *sys, const char *path)
{
	char absolute[KI_PATH_MAX];
	struct file *file;
	size_t size;

	if (!ki_absolute_path(absolute, path))
		path = absolute;
	size = strlen(path) + 1;
	file = malloc(sizeof(*file) + size);
	if (!file)
		return NULL;
	*file = (struct file){ .sys = sys, .fd = -1 };
	memcpy(file->path, path, size);
	return file;
}

enum kiln_status ki_pack_file_open(const struct ki_sys *sys, const char *path,
				   uint32_t flags,
				   struct kiln_pack_device *out_device,
				   const char **out_why)
{
	struct file *file = new_file(sys, path);
	enum kiln_status status;
	int err;

	*out_why = "cannot be opened";
	if (!file)
		return KILN_E_NO_MEMORY;
	file->fd = sys->open(sys, file->path, KI_OPEN_READ, 0);
	if (file->fd < 0) {
		if (file->fd == -ENOENT)
			*out_why = "is not there";
		status = ki_status_from_errno(file->fd);
		free(file);
		return status;
	}
	err = sys->fstat(sys, file->fd, &file->info);
	status = err ? ki_status_from_errno(err) : judge(file, flags, out_why);
	if (status) {
		file_release(file);
		return status;
	}
	if (flags & KILN_PACK_GUEST) {
		(void)sys->close(sys, file->fd);
		file->fd = -1;
	}
	kiln_pack_device_init(out_device);
	out_device->n_calls = N_CALLS;
	out_device->bytes = file_bytes;
	out_device->read = file_read;
	out_device->release = file_release;
	out_device->context = file;
	out_device->name = file->path;
	return KILN_OK;
}
