/* SPDX-License-Identifier: MIT */
#ifndef KI_SYS_SOCKETS_H
#define KI_SYS_SOCKETS_H

/* The part of the real table that is about sockets, for posix.c. */

#include "sys/sys.h"

int ki_posix_connect(const struct ki_sys *sys, const char *path,
		     uint32_t *out_uid);
int ki_posix_listen(const struct ki_sys *sys, const char *path);
ssize_t ki_posix_send(const struct ki_sys *sys, int fd, const void *data,
		      size_t size, int fd_along);
ssize_t ki_posix_recv(const struct ki_sys *sys, int fd, void *data,
		      size_t size);
int ki_posix_wait(const struct ki_sys *sys, int fd, int for_room,
		  uint64_t deadline_ns);
int ki_posix_sealed_memory(const struct ki_sys *sys,
			   const struct ki_piece *pieces, int n_pieces);

/* A descriptor that is not one of the standard three, or -errno. */
int ki_above_standard(int fd);

#endif /* KI_SYS_SOCKETS_H */
