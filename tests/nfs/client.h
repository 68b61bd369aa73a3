/* SPDX-License-Identifier: MIT */
#ifndef KI_TESTS_NFS_CLIENT_H
#define KI_TESTS_NFS_CLIENT_H

/*
 * A directory as the clients of a network file system see it.  The directory
 * itself is the server; each client has
 *
 * - names: what a look-up found, or did not find, counts for `lag` more calls,
 *   and so do sizes and times;
 * - handles: a file that is removed on the server is ESTALE to who has it open
 *   or remembers its name; one that this client has open itself gets a name
 *   ".nfs..." instead, until it is closed;
 * - no mappings, no allocation in advance, and, if so wished, no locks and no
 *   links.
 *
 * Stores are opened with client.sys, on the server's path, or on a mount that
 * asks the same client (nfs/mount.h).
 */

#include <pthread.h>

#include "sys/sys.h"

struct nfs_quirks {
	unsigned lag;
	int no_locks;	       /* ENOLCK */
	int no_links;	       /* EOPNOTSUPP */
	int loses_answers;     /* of link: made, and EEXIST */
	int shares_exclusives; /* O_EXCL looks, then creates */
	int coarse_times;      /* of two seconds, as FAT has them */
	unsigned removes_at;   /* each such read finds its file just removed */
	size_t removes_long;   /* if its name has so many letters */
};

#define NFS_HANDLES 4096

struct nfs_name;

struct nfs_handle {
	uint64_t inode; /* 0: not open */
	char *path;	/* as it was opened */
	char *hidden;	/* its last name, to be removed at the end */
};

struct nfs_client {
	struct ki_sys sys;
	struct nfs_quirks quirks;
	char *server;
	pthread_mutex_t mutex;
	/* Under mutex. */
	struct nfs_name *names;
	unsigned n_names;
	uint64_t n_calls;
	unsigned n_reads;
	unsigned n_hidden;
	struct nfs_handle handles[NFS_HANDLES];
};

void nfs_begin(struct nfs_client *client, const char *server,
	       const struct nfs_quirks *quirks);
void nfs_end(struct nfs_client *client);

/* Whatever was remembered is too old now. */
void nfs_forget(struct nfs_client *client);

#endif /* KI_TESTS_NFS_CLIENT_H */
