/* SPDX-License-Identifier: MIT */

#include "nfs/client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/interpose.h"

#define NAMES_MAX 128

/* What was found under a path, held by a descriptor; -1: nothing. */
struct nfs_name {
	char *path;
	int fd;
	uint64_t until;
	struct ki_file_info info;
	uint64_t info_until;
};

static struct nfs_client *enter(const struct ki_sys *sys)
{
	struct nfs_client *client = (struct nfs_client *)(uintptr_t)sys;

	pthread_mutex_lock(&client->mutex);
	client->n_calls++;
	return client;
}

static int leave(struct nfs_client *client, int result)
{
	pthread_mutex_unlock(&client->mutex);
	return result;
}

static char *copy_string(const char *string)
{
	char *copy = strdup(string);

	if (!copy)
		abort();
	return copy;
}

/* ---- Names ------------------------------------------------------------------- */

static int is_served(const struct nfs_client *client, const char *path)
{
	return !strncmp(path, client->server, strlen(client->server));
}

static void drop(struct nfs_client *client, struct nfs_name *name)
{
	free(name->path);
	if (name->fd >= 0)
		close(name->fd);
	*name = client->names[--client->n_names];
}

static void forget(struct nfs_client *client, const char *path)
{
	for (unsigned i = 0; i < client->n_names; i++)
		if (!strcmp(client->names[i].path, path)) {
			drop(client, &client->names[i]);
			return;
		}
}

static struct nfs_name *recall(struct nfs_client *client, const char *path)
{
	for (unsigned i = 0; i < client->n_names; i++) {
		struct nfs_name *name = &client->names[i];

		if (strcmp(name->path, path) != 0)
			continue;
		if (name->until > client->n_calls)
			return name;
		drop(client, name);
		return NULL;
	}
	return NULL;
}

static void note(struct nfs_client *client, const char *path, int fd)
{
	if (client->n_names == NAMES_MAX)
		drop(client, &client->names[client->n_calls % NAMES_MAX]);
	client->names[client->n_names++] =
		(struct nfs_name){ .path = copy_string(path),
				   .fd = fd,
				   .until = client->n_calls + 1 +
					    client->quirks.lag };
}

static int is_removed(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && !st.st_nlink;
}

/* 0 with a name, or as the client sees it: -ENOENT, -ESTALE... */
static int look_up(struct nfs_client *client, const char *path,
		   struct nfs_name **out_name)
{
	struct nfs_name *name = recall(client, path);
	int fd;

	if (!name) {
		fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 && errno != ENOENT)
			return -errno;
		note(client, path, fd);
		name = &client->names[client->n_names - 1];
	}
	if (name->fd < 0)
		return -ENOENT;
	if (is_removed(name->fd)) {
		drop(client, name);
		return -ESTALE;
	}
	*out_name = name;
	return 0;
}

void nfs_forget(struct nfs_client *client)
{
	while (client->n_names)
		drop(client, &client->names[0]);
}

/* ---- Handles ----------------------------------------------------------------- */

static struct nfs_handle *handle_of(struct nfs_client *client, int fd)
{
	if (fd < 0 || fd >= NFS_HANDLES || !client->handles[fd].inode)
		return NULL;
	return &client->handles[fd];
}

static struct nfs_handle *first_open(struct nfs_client *client, uint64_t inode)
{
	for (int fd = 0; fd < NFS_HANDLES; fd++)
		if (client->handles[fd].inode == inode)
			return &client->handles[fd];
	return NULL;
}

static int begin_handle(struct nfs_client *client, const char *path, int fd)
{
	struct stat st;

	if (fd < 0)
		return fd;
	if (fd >= NFS_HANDLES || fstat(fd, &st))
		abort();
	client->handles[fd] = (struct nfs_handle){ .inode = st.st_ino,
						   .path = copy_string(path) };
	return fd;
}

/* 1 if a file is open here: it has another name now. */
static int hide_if_open(struct nfs_client *client, const char *path)
{
	struct nfs_handle *handle;
	struct stat st;
	char *hidden;

	if (lstat(path, &st) || !S_ISREG(st.st_mode))
		return 0;
	handle = first_open(client, st.st_ino);
	if (!handle || handle->hidden)
		return 0;
	if (asprintf(&hidden, "%.*s/.nfs%016llx%08x",
		     (int)(strrchr(path, '/') - path), path,
		     (unsigned long long)st.st_ino, client->n_hidden++) < 0)
		abort();
	if (rename(path, hidden)) {
		free(hidden);
		return 0;
	}
	handle->hidden = hidden;
	return 1;
}

/* As another client may do at any moment. */
static void remove_behind(struct nfs_client *client,
			  const struct nfs_handle *handle)
{
	struct stat st;

	if (!client->quirks.removes_at ||
	    strlen(strrchr(handle->path, '/') + 1) !=
		    client->quirks.removes_long ||
	    ++client->n_reads % client->quirks.removes_at)
		return;
	if (!lstat(handle->path, &st) && st.st_ino == handle->inode &&
	    st.st_nlink == 1)
		unlink(handle->path);
}

static void coarsen(const struct nfs_client *client, struct ki_file_info *info)
{
	if (!client->quirks.coarse_times)
		return;
	info->mtime_ns -= info->mtime_ns % 2000000000;
	info->ctime_ns -= info->ctime_ns % 2000000000;
}

/* ---- Calls with a path ----------------------------------------------------------- */

static int nfs_create(struct nfs_client *client, const char *path,
		      unsigned flags, unsigned mode)
{
	struct nfs_name *name;
	int fd;

	if ((flags & KI_OPEN_EXCLUSIVE) && client->quirks.shares_exclusives) {
		fd = look_up(client, path, &name);
		if (fd != -ENOENT)
			return fd ? fd : -EEXIST;
		flags &= ~KI_OPEN_EXCLUSIVE;
	}
	forget(client, path);
	return real->open(real, path, flags, mode);
}

static int nfs_open(const struct ki_sys *sys, const char *path, unsigned flags,
		    unsigned mode)
{
	struct nfs_client *client = enter(sys);
	struct nfs_name *name;
	char place[64];
	int fd;

	if (!is_served(client, path))
		return leave(client, real->open(real, path, flags, mode));
	if (flags & KI_OPEN_CREATE) {
		fd = nfs_create(client, path, flags, mode);
	} else {
		fd = look_up(client, path, &name);
		if (fd)
			return leave(client, fd);
		snprintf(place, sizeof(place), "/proc/self/fd/%d", name->fd);
		fd = real->open(real, place, flags & ~KI_OPEN_NOFOLLOW, mode);
	}
	return leave(client, begin_handle(client, path, fd));
}

static int nfs_close(const struct ki_sys *sys, int fd)
{
	struct nfs_client *client = enter(sys);
	struct nfs_handle *handle = handle_of(client, fd), last, *other;

	if (!handle)
		return leave(client, real->close(real, fd));
	last = *handle;
	*handle = (struct nfs_handle){ 0 };
	other = last.hidden ? first_open(client, last.inode) : NULL;
	if (other)
		other->hidden = last.hidden;
	else if (last.hidden)
		unlink(last.hidden);
	if (!other)
		free(last.hidden);
	free(last.path);
	return leave(client, real->close(real, fd));
}

/* Attributes are as old as they may be. */
static int attributes(const struct ki_sys *sys, const char *path, int follows,
		      struct ki_file_info *out_info)
{
	struct nfs_client *client = enter(sys);
	struct nfs_name *name;
	int err;

	if (!is_served(client, path))
		return leave(client,
			     follows ? real->stat(real, path, out_info)
				     : real->lstat(real, path, out_info));
	err = look_up(client, path, &name);
	if (!err && name->info_until <= client->n_calls) {
		err = real->fstat(real, name->fd, &name->info);
		name->info_until = client->n_calls + 1 + client->quirks.lag;
	}
	if (!err) {
		*out_info = name->info;
		coarsen(client, out_info);
	}
	return leave(client, err);
}

static int nfs_stat(const struct ki_sys *sys, const char *path,
		    struct ki_file_info *out_info)
{
	return attributes(sys, path, 1, out_info);
}

static int nfs_lstat(const struct ki_sys *sys, const char *path,
		     struct ki_file_info *out_info)
{
	return attributes(sys, path, 0, out_info);
}

static int nfs_link(const struct ki_sys *sys, const char *from, const char *to)
{
	struct nfs_client *client = enter(sys);
	int err;

	if (client->quirks.no_links)
		return leave(client, -EOPNOTSUPP);
	err = real->link(real, from, to);
	if (!err && client->quirks.loses_answers)
		err = -EEXIST;
	forget(client, from);
	forget(client, to);
	return leave(client, err);
}

static int nfs_rename(const struct ki_sys *sys, const char *from,
		      const char *to)
{
	struct nfs_client *client = enter(sys);
	int err;

	(void)hide_if_open(client, to);
	err = real->rename(real, from, to);
	forget(client, from);
	forget(client, to);
	return leave(client, err);
}

static int nfs_unlink(const struct ki_sys *sys, const char *path)
{
	struct nfs_client *client = enter(sys);
	int err = hide_if_open(client, path) ? 0 : real->unlink(real, path);

	forget(client, path);
	return leave(client, err);
}

#define FORWARD(name, parameters, arguments)                                   \
	static int nfs_##name parameters                                       \
	{                                                                      \
		struct nfs_client *client = enter(sys);                        \
		int err = real->name arguments;                                \
                                                                               \
		forget(client, path);                                          \
		return leave(client, err);                                     \
	}

INTERPOSED_PATH_CALLS(FORWARD)

/* ---- Calls with a handle ---------------------------------------------------------- */

static ssize_t nfs_pread(const struct ki_sys *sys, int fd, void *data,
			 size_t size, uint64_t offset)
{
	struct nfs_client *client = enter(sys);
	const struct nfs_handle *handle = handle_of(client, fd);
	int stale = 0;

	if (handle) {
		remove_behind(client, handle);
		stale = is_removed(fd);
	}
	leave(client, 0);
	return stale ? -ESTALE : real->pread(real, fd, data, size, offset);
}

static ssize_t nfs_pwritev(const struct ki_sys *sys, int fd,
			   const struct ki_piece *pieces, int n_pieces,
			   uint64_t offset)
{
	struct nfs_client *client = enter(sys);
	const struct nfs_handle *handle = handle_of(client, fd);
	int stale = handle && is_removed(fd);

	if (handle)
		forget(client, handle->path);
	leave(client, 0);
	return stale ? -ESTALE
		     : real->pwritev(real, fd, pieces, n_pieces, offset);
}

static int nfs_fstat(const struct ki_sys *sys, int fd,
		     struct ki_file_info *out_info)
{
	struct nfs_client *client = enter(sys);
	int err = handle_of(client, fd) && is_removed(fd)
			  ? -ESTALE
			  : real->fstat(real, fd, out_info);

	if (!err)
		coarsen(client, out_info);
	return leave(client, err);
}

static int nfs_fallocate(const struct ki_sys *sys, int fd, uint64_t offset,
			 uint64_t size)
{
	return -EOPNOTSUPP;
}

static int nfs_map(const struct ki_sys *sys, int fd, uint64_t offset,
		   size_t size, unsigned flags, void **out_data)
{
	return -ENODEV;
}

static int nfs_try_lock(const struct ki_sys *sys, int fd,
			enum ki_lock_kind kind, uint64_t offset, uint64_t size)
{
	const struct nfs_client *client = (const struct nfs_client *)sys;

	return client->quirks.no_locks
		       ? -ENOLCK
		       : real->try_lock(real, fd, kind, offset, size);
}

static int nfs_unlock(const struct ki_sys *sys, int fd, uint64_t offset,
		      uint64_t size)
{
	const struct nfs_client *client = (const struct nfs_client *)sys;

	return client->quirks.no_locks ? -ENOLCK
				       : real->unlock(real, fd, offset, size);
}

static int nfs_try_flock(const struct ki_sys *sys, int fd,
			 enum ki_lock_kind kind)
{
	const struct nfs_client *client = (const struct nfs_client *)sys;

	return client->quirks.no_locks ? -ENOLCK
				       : real->try_flock(real, fd, kind);
}

static int nfs_file_system(const struct ki_sys *sys, const char *path,
			   enum ki_file_system *out_kind)
{
	*out_kind = KI_FS_UNKNOWN;
	return 0;
}

/* ---- Beginning and end ------------------------------------------------------- */

void nfs_begin(struct nfs_client *client, const char *server,
	       const struct nfs_quirks *quirks)
{
	memset(client, 0, sizeof(*client));
	client->sys = *real;
	client->quirks = *quirks;
	client->server = copy_string(server);
	client->names = calloc(NAMES_MAX, sizeof(*client->names));
	if (!client->names || pthread_mutex_init(&client->mutex, NULL))
		abort();
	INTERPOSE_CHANGES(&client->sys, nfs);
	INTERPOSE(&client->sys, nfs, pread);
	INTERPOSE(&client->sys, nfs, fstat);
	client->sys.fmeasure = nfs_fstat;
	client->sys.measure = nfs_lstat;
	INTERPOSE(&client->sys, nfs, stat);
	INTERPOSE(&client->sys, nfs, lstat);
	INTERPOSE(&client->sys, nfs, chmod);
	INTERPOSE(&client->sys, nfs, touch);
	INTERPOSE(&client->sys, nfs, try_lock);
	INTERPOSE(&client->sys, nfs, unlock);
	INTERPOSE(&client->sys, nfs, try_flock);
	INTERPOSE(&client->sys, nfs, file_system);
	client->sys.punch_hole = nfs_fallocate;
}

void nfs_end(struct nfs_client *client)
{
	nfs_forget(client);
	free(client->names);
	free(client->server);
	pthread_mutex_destroy(&client->mutex);
}
