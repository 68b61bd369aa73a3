/* SPDX-License-Identifier: MIT */
#ifndef KI_TESTS_NFS_MOUNT_H
#define KI_TESTS_NFS_MOUNT_H

/*
 * A client of nfs/client.h as a mounted file system (libfuse3), served by a
 * process of its own.
 */

#include "nfs/client.h"

struct nfs_mount {
	int pid; /* 0: not mounted */
	char *where;
};

/* NULL, or why nothing can be mounted here. */
const char *nfs_mount(struct nfs_mount *mount, const char *where,
		      const char *server, const struct nfs_quirks *quirks);
void nfs_unmount(struct nfs_mount *mount);

#endif /* KI_TESTS_NFS_MOUNT_H */
