/* SPDX-License-Identifier: MIT */

/* Where libfuse3 is missing. */

#include "nfs/mount.h"

#include <stddef.h>

const char *nfs_mount(struct nfs_mount *mount, const char *where,
		      const char *server, const struct nfs_quirks *quirks)
{
	*mount = (struct nfs_mount){ 0 };
	return "built without libfuse3";
}

void nfs_unmount(struct nfs_mount *mount)
{
}
