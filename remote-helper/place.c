/* SPDX-License-Identifier: MIT */

#include "place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 1024

static int refuse(char *why, size_t why_size, int err, const char *path,
		  const char *what)
{
	snprintf(why, why_size, "%s %s", path, what);
	return err;
}

static int fail(char *why, size_t why_size, const char *path, const char *what)
{
	int err = errno;

	snprintf(why, why_size, "%s cannot be %s: %s", path, what,
		 strerror(err));
	return -err;
}

/* The directory of a path, opened, if it is one to trust. */
static int open_directory(const char *path, const char **out_name, char *why,
			  size_t why_size)
{
	char directory[KI_PATH_MAX];
	const char *slash = strrchr(path, '/');
	struct stat info;
	int fd;

	if (*path != '/' || slash == path || !slash[1] ||
	    (size_t)(slash - path) >= sizeof(directory))
		return refuse(why, why_size, -EINVAL, path,
			      "is not the path of a socket");
	snprintf(directory, sizeof(directory), "%.*s", (int)(slash - path),
		 path);
	fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return fail(why, why_size, directory, "opened");
	if (fstat(fd, &info) || info.st_uid != geteuid() ||
	    (info.st_mode & (S_IRWXG | S_IRWXO))) {
		(void)close(fd);
		return refuse(why, why_size, -EPERM, directory,
			      "is not a directory of this user alone "
			      "(chmod 700)");
	}
	*out_name = slash + 1;
	return fd;
}

static int is_own_file(int fd)
{
	struct stat info;

	return !fstat(fd, &info) && S_ISREG(info.st_mode) &&
	       info.st_uid == geteuid();
}

/* Take the lock beside the socket. */
static int lock(int directory, const char *name, const char *path, char *why,
		size_t why_size)
{
	struct flock whole = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	const char *end = strrchr(name, '.');
	char lock_name[NAME_MAX + 1];
	int fd, err;

	if (!end || strcmp(end, PLACE_SOCKET))
		return refuse(why, why_size, -EINVAL, path,
			      "does not end in " PLACE_SOCKET);
	snprintf(lock_name, sizeof(lock_name), "%.*s" PLACE_LOCK,
		 (int)(end - name), name);
	fd = openat(directory, lock_name,
		    O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
		    0600);
	if (fd < 0)
		return fail(why, why_size, path, "locked");
	if (!is_own_file(fd))
		err = refuse(why, why_size, -EPERM, path,
			     "has a lock that is not this user's own file");
	else if (!fcntl(fd, F_OFD_SETLK, &whole))
		return fd;
	else if (errno == EAGAIN || errno == EACCES)
		err = refuse(why, why_size, -EAGAIN, path,
			     "is served by another kiln-remote");
	else
		err = fail(why, why_size, path, "locked");
	(void)close(fd);
	return err;
}

/* Through the directory's descriptor, so that no path is too long. */
static int listen_at(int directory, const char *name, const char *path,
		     char *why, size_t why_size)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct stat info;
	mode_t mask;
	int fd, err;

	if (snprintf(address.sun_path, sizeof(address.sun_path),
		     "/proc/self/fd/%d/%s", directory,
		     name) >= (int)sizeof(address.sun_path))
		return refuse(why, why_size, -ENAMETOOLONG, path,
			      "is too long a name");
	if (!fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW)) {
		if (!S_ISSOCK(info.st_mode) || info.st_uid != geteuid())
			return refuse(why, why_size, -EPERM, path,
				      "is there, and no socket of this user");
		(void)unlinkat(directory, name, 0);
	}
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return fail(why, why_size, path, "made");
	mask = umask(0177);
	err = bind(fd, (struct sockaddr *)&address, sizeof(address));
	(void)umask(mask);
	if (!err)
		err = listen(fd, BACKLOG);
	if (!err)
		return fd;
	err = fail(why, why_size, path, "listened at");
	(void)close(fd);
	return err;
}

static void identify(struct place *place)
{
	struct stat info;

	if (!lstat(place->path, &info)) {
		place->device = info.st_dev;
		place->inode = info.st_ino;
	}
}

int place_take(struct place *place, const char *path, char *why,
	       size_t why_size)
{
	const char *name = NULL;
	int directory, err;

	*place = (struct place){ .listen_fd = -1, .lock_fd = -1 };
	directory = open_directory(path, &name, why, why_size);
	if (directory < 0)
		return directory;
	snprintf(place->path, sizeof(place->path), "%s", path);
	err = lock(directory, name, path, why, why_size);
	if (err >= 0) {
		place->lock_fd = err;
		err = listen_at(directory, name, path, why, why_size);
	}
	if (err >= 0) {
		place->listen_fd = err;
		identify(place);
		err = 0;
	} else if (place->lock_fd >= 0) {
		(void)close(place->lock_fd);
		place->lock_fd = -1;
	}
	(void)close(directory);
	return err;
}

static int is_listening(int fd)
{
	int domain = 0, listens = 0;
	socklen_t size = sizeof(int);

	return !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) &&
	       domain == AF_UNIX &&
	       !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) &&
	       listens;
}

int place_adopt(struct place *place, const char *path, int listen_fd,
		int lock_fd, char *why, size_t why_size)
{
	const char *name;
	int directory, flags;

	*place = (struct place){ .listen_fd = -1, .lock_fd = -1 };
	if (!is_listening(listen_fd))
		return refuse(why, why_size, -EINVAL, path,
			      "came without a socket that listens");
	if (!is_own_file(lock_fd))
		return refuse(why, why_size, -EINVAL, path,
			      "came without the file of its lock");
	directory = open_directory(path, &name, why, why_size);
	if (directory < 0)
		return directory;
	(void)close(directory);
	flags = fcntl(listen_fd, F_GETFL);
	(void)fcntl(listen_fd, F_SETFL, flags | O_NONBLOCK);
	(void)fcntl(listen_fd, F_SETFD, FD_CLOEXEC);
	(void)fcntl(lock_fd, F_SETFD, FD_CLOEXEC);
	place->listen_fd = listen_fd;
	place->lock_fd = lock_fd;
	snprintf(place->path, sizeof(place->path), "%s", path);
	identify(place);
	return 0;
}

int place_is_ours(const struct place *place)
{
	struct stat info;

	return !lstat(place->path, &info) && S_ISSOCK(info.st_mode) &&
	       info.st_dev == place->device && info.st_ino == place->inode;
}

/* The lock is let go last: who gets it finds no name of ours. */
void place_leave(struct place *place)
{
	if (place->listen_fd < 0)
		return;
	if (place_is_ours(place))
		(void)unlink(place->path);
	(void)close(place->listen_fd);
	(void)close(place->lock_fd);
	place->listen_fd = place->lock_fd = -1;
}
