/* SPDX-License-Identifier: MIT */

/*
 * Unix sockets between processes of one machine.
 *
 * A path may be longer than an address has room for: it is then reached through
 * its directory's descriptor, /proc/self/fd/N/NAME.
 */

#include "sys/sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 1024

/* Of Linux 6.3; older headers do not have it. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u
#endif

/* An address, and the directory that it goes through, or -1. */
struct address {
	struct sockaddr_un name;
	int directory;
};

static int through_directory(const char *path, struct address *out)
{
	const char *slash = strrchr(path, '/');
	char directory[KI_PATH_MAX];

	if (!slash || slash == path ||
	    (size_t)(slash - path) >= sizeof(directory))
		return -ENAMETOOLONG;
	memcpy(directory, path, (size_t)(slash - path));
	directory[slash - path] = '\0';
	out->directory = ki_above_standard(
		open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC));
	if (out->directory < 0)
		return out->directory;
	if (snprintf(out->name.sun_path, sizeof(out->name.sun_path),
		     "/proc/self/fd/%d/%s", out->directory,
		     slash + 1) < (int)sizeof(out->name.sun_path))
		return 0;
	close(out->directory);
	out->directory = -1;
	return -ENAMETOOLONG;
}

static int make_address(const char *path, struct address *out)
{
	*out = (struct address){ .name = { .sun_family = AF_UNIX },
				 .directory = -1 };
	if (strlen(path) >= sizeof(out->name.sun_path))
		return through_directory(path, out);
	strcpy(out->name.sun_path, path);
	return 0;
}

static void drop_address(struct address *address)
{
	if (address->directory >= 0)
		close(address->directory);
}

static int new_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return fd < 0 ? -errno : ki_above_standard(fd);
}

static int read_peer(int fd, uint32_t *out_uid)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size))
		return -errno;
	*out_uid = peer.uid;
	return 0;
}

static int connect_to(const struct sockaddr_un *name, uint32_t *out_uid)
{
	int err = 0, fd = new_socket();

	if (fd < 0)
		return fd;
	while (connect(fd, (const struct sockaddr *)name, sizeof(*name)) &&
	       (err = -errno) == -EINTR)
		err = 0;
	if (!err)
		err = read_peer(fd, out_uid);
	if (!err)
		return fd;
	close(fd);
	return err;
}

int ki_posix_connect(const struct ki_sys *sys, const char *path,
		     uint32_t *out_uid)
{
	struct address address;
	int fd, err = make_address(path, &address);

	if (err)
		return err;
	fd = connect_to(&address.name, out_uid);
	drop_address(&address);
	return fd;
}

/* The mode of the name is that of the descriptor, before bind(): no umask need be
   changed, which all threads would see. */
int ki_posix_listen(const struct ki_sys *sys, const char *path)
{
	struct address address;
	int fd, err = make_address(path, &address);

	if (err)
		return err;
	fd = new_socket();
	if (fd >= 0 &&
	    (fchmod(fd, 0600) ||
	     bind(fd, (struct sockaddr *)&address.name, sizeof(address.name)) ||
	     listen(fd, BACKLOG))) {
		err = -errno;
		close(fd);
		fd = err;
	}
	drop_address(&address);
	return fd;
}

ssize_t ki_posix_send(const struct ki_sys *sys, int fd, const void *data,
		      size_t size, int fd_along)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { .header = { .cmsg_len = CMSG_LEN(sizeof(int)),
				  .cmsg_level = SOL_SOCKET,
				  .cmsg_type = SCM_RIGHTS } };
	struct iovec piece = { (void *)(uintptr_t)data, size };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };
	ssize_t n;

	if (fd_along >= 0) {
		memcpy(CMSG_DATA(&control.header), &fd_along, sizeof(int));
		message.msg_control = control.bytes;
		message.msg_controllen = sizeof(control.bytes);
	}
	do {
		n = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

ssize_t ki_posix_recv(const struct ki_sys *sys, int fd, void *data, size_t size)
{
	ssize_t n;

	do {
		n = recv(fd, data, size, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

int ki_posix_wait(const struct ki_sys *sys, int fd, int for_room,
		  uint64_t deadline_ns)
{
	struct pollfd watched = { .fd = fd,
				  .events = for_room ? POLLOUT : POLLIN };

	for (;;) {
		uint64_t now = sys->monotonic_ns(sys);
		uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
		struct timespec rest = { (time_t)(left / 1000000000),
					 (long)(left % 1000000000) };
		int n = ppoll(&watched, 1, &rest, NULL);

		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (!n && !left)
			return -ETIMEDOUT;
	}
}

/* Never to be executed, where the system knows that: some refuse any other. */
static int make_memory(void)
{
	const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd = memfd_create("kiln", flags | MFD_NOEXEC_SEAL);

	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("kiln", flags);
	return fd;
}

int ki_posix_sealed_memory(const struct ki_sys *sys,
			   const struct ki_piece *pieces, int n_pieces)
{
	const int seals =
		F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
	int err = 0, fd = make_memory();
	uint64_t offset = 0;

	if (fd < 0)
		return -errno;
	fd = ki_above_standard(fd);
	for (int i = 0; i < n_pieces && fd >= 0 && !err; i++) {
		err = ki_pwrite_all(sys, fd, pieces[i].data, pieces[i].size,
				    offset);
		offset += pieces[i].size;
	}
	if (fd >= 0 && !err && fcntl(fd, F_ADD_SEALS, seals))
		err = -errno;
	if (!err)
		return fd;
	close(fd);
	return err;
}
