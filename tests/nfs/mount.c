/* SPDX-License-Identifier: MIT */

/*
 * Every call of the kernel is one of the client's.  The kernel keeps nothing
 * itself, so what is seen late is seen late by the client.
 */

#define FUSE_USE_VERSION 31

#include "nfs/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of the process that serves. */
static struct nfs_client client;
static int ready = -1; /* a pipe, told once the mount is there */

#define SYS (&client.sys)

static const char *served(char out[KI_PATH_MAX], const char *path)
{
	snprintf(out, KI_PATH_MAX, "%s%s", client.server,
		 strcmp(path, "/") ? path : "");
	return out;
}

static void fill(struct stat *st, const struct ki_file_info *info)
{
	*st = (struct stat){
		.st_ino = info->inode,
		.st_size = (off_t)info->size,
		.st_blocks = (blkcnt_t)(info->blocks_bytes / 512),
		.st_nlink = info->n_links,
		.st_mode = info->mode,
		.st_uid = info->uid,
		.st_gid = info->gid,
		.st_mtim = { info->mtime_ns / 1000000000,
			     info->mtime_ns % 1000000000 },
		.st_ctim = { info->ctime_ns / 1000000000,
			     info->ctime_ns % 1000000000 },
	};
}

static void *do_init(struct fuse_conn_info *connection,
		     struct fuse_config *config)
{
	config->use_ino = 1;
	config->hard_remove = 1;
	config->attr_timeout = config->entry_timeout = 0;
	config->negative_timeout = 0;
	(void)!write(ready, "", 1);
	return NULL;
}

static int do_getattr(const char *path, struct stat *st,
		      struct fuse_file_info *file)
{
	char place[KI_PATH_MAX];
	struct ki_file_info info;
	int err = file ? SYS->fstat(SYS, (int)file->fh, &info)
		       : SYS->lstat(SYS, served(place, path), &info);

	if (!err)
		fill(st, &info);
	return err;
}

static int open_with(const char *path, unsigned more, unsigned mode,
		     struct fuse_file_info *file)
{
	unsigned flags = more | KI_OPEN_NOFOLLOW | KI_OPEN_READ;
	char place[KI_PATH_MAX];
	int fd;

	if ((file->flags & O_ACCMODE) != O_RDONLY)
		flags |= KI_OPEN_WRITE;
	if (file->flags & O_EXCL)
		flags |= KI_OPEN_EXCLUSIVE;
	fd = SYS->open(SYS, served(place, path), flags, mode);
	if (fd < 0)
		return fd;
	file->fh = (uint64_t)fd;
	file->direct_io = 1; /* so that nothing is mapped */
	return 0;
}

static int do_open(const char *path, struct fuse_file_info *file)
{
	return open_with(path, 0, 0, file);
}

static int do_create(const char *path, mode_t mode, struct fuse_file_info *file)
{
	return open_with(path, KI_OPEN_CREATE, mode & 07777, file);
}

static int do_release(const char *path, struct fuse_file_info *file)
{
	return SYS->close(SYS, (int)file->fh);
}

static int do_read(const char *path, char *data, size_t size, off_t offset,
		   struct fuse_file_info *file)
{
	return (int)SYS->pread(SYS, (int)file->fh, data, size,
			       (uint64_t)offset);
}

static int do_write(const char *path, const char *data, size_t size,
		    off_t offset, struct fuse_file_info *file)
{
	struct ki_piece piece = { data, size };

	return (int)SYS->pwritev(SYS, (int)file->fh, &piece, 1,
				 (uint64_t)offset);
}

static int do_link(const char *from, const char *to)
{
	char from_place[KI_PATH_MAX], to_place[KI_PATH_MAX];

	return SYS->link(SYS, served(from_place, from), served(to_place, to));
}

static int do_rename(const char *from, const char *to, unsigned flags)
{
	char from_place[KI_PATH_MAX], to_place[KI_PATH_MAX];

	return flags ? -EINVAL
		     : SYS->rename(SYS, served(from_place, from),
				   served(to_place, to));
}

static int do_unlink(const char *path)
{
	char place[KI_PATH_MAX];

	return SYS->unlink(SYS, served(place, path));
}

static int do_mkdir(const char *path, mode_t mode)
{
	char place[KI_PATH_MAX];

	return SYS->mkdir(SYS, served(place, path), mode & 07777);
}

static int do_rmdir(const char *path)
{
	char place[KI_PATH_MAX];

	return SYS->rmdir(SYS, served(place, path));
}

static int do_chmod(const char *path, mode_t mode, struct fuse_file_info *file)
{
	char place[KI_PATH_MAX];

	return SYS->chmod(SYS, served(place, path), mode & 07777);
}

static int do_utimens(const char *path, const struct timespec times[2],
		      struct fuse_file_info *file)
{
	char place[KI_PATH_MAX];

	return SYS->touch(SYS, served(place, path));
}

static int do_readdir(const char *path, void *buffer, fuse_fill_dir_t add,
		      off_t offset, struct fuse_file_info *file,
		      enum fuse_readdir_flags flags)
{
	char place[KI_PATH_MAX];
	struct ki_dir *dir;
	const char *name;
	int err = SYS->opendir(SYS, served(place, path), &dir);

	if (err)
		return err;
	while ((err = SYS->readdir(SYS, dir, &name)) > 0)
		add(buffer, name, NULL, 0, 0);
	SYS->closedir(SYS, dir);
	return err;
}

static int do_lock(const char *path, struct fuse_file_info *file, int command,
		   struct flock *lock)
{
	struct flock copy = *lock;

	if (client.quirks.no_locks)
		return -ENOLCK;
	copy.l_pid = 0;
	return fcntl((int)file->fh,
		     command == F_SETLKW ? F_OFD_SETLKW : F_OFD_SETLK, &copy)
		       ? -errno
		       : 0;
}

static const struct fuse_operations operations = {
	.init = do_init,
	.getattr = do_getattr,
	.open = do_open,
	.create = do_create,
	.release = do_release,
	.read = do_read,
	.write = do_write,
	.link = do_link,
	.rename = do_rename,
	.unlink = do_unlink,
	.mkdir = do_mkdir,
	.rmdir = do_rmdir,
	.chmod = do_chmod,
	.utimens = do_utimens,
	.readdir = do_readdir,
	.lock = do_lock,
};

static int serve(const char *where, const char *server,
		 const struct nfs_quirks *quirks)
{
	char name[] = "nfs", in_front[] = "-f", one_thread[] = "-s";
	char *place = strdup(where);
	char *arguments[] = { name, in_front, one_thread, place, NULL };
	int result;

	nfs_begin(&client, server, quirks);
	result = fuse_main(4, arguments, &operations, NULL);
	nfs_end(&client);
	free(place);
	return result;
}

const char *nfs_mount(struct nfs_mount *mount, const char *where,
		      const char *server, const struct nfs_quirks *quirks)
{
	int ends[2], status, device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	ssize_t n;
	char byte;

	*mount = (struct nfs_mount){ 0 };
	if (device < 0)
		return "/dev/fuse cannot be opened";
	close(device);
	if (pipe(ends))
		return "no pipe";
	mount->pid = fork();
	if (!mount->pid) {
		int nowhere = open("/dev/null", O_RDWR);

		prctl(PR_SET_PDEATHSIG, SIGTERM);
		close(ends[0]);
		ready = ends[1];
		/* Its words are no part of a test's. */
		dup2(nowhere, STDOUT_FILENO);
		dup2(nowhere, STDERR_FILENO);
		_exit(serve(where, server, quirks));
	}
	close(ends[1]);
	do {
		n = read(ends[0], &byte, 1);
	} while (n < 0 && errno == EINTR);
	close(ends[0]);
	if (mount->pid > 0 && n == 1) {
		mount->where = strdup(where);
		return NULL;
	}
	if (mount->pid > 0)
		(void)waitpid(mount->pid, &status, 0);
	mount->pid = 0;
	return "nothing can be mounted";
}

void nfs_unmount(struct nfs_mount *mount)
{
	int status;

	if (!mount->pid)
		return;
	kill(mount->pid, SIGTERM);
	while (waitpid(mount->pid, &status, 0) < 0 && errno == EINTR)
		;
	free(mount->where);
	*mount = (struct nfs_mount){ 0 };
}
