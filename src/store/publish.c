/* SPDX-License-Identifier: MIT */

/*
 * Publishing a file: nobody ever opens it half written under its name.
 *
 *	open DIRECTORY/NAME.<16 random digits>.tmp, create and exclusive
 *	write, close (network file systems report a full quota only here)
 *	link to NAME (create-only) or rename over NAME (replace)
 *	unlink the temporary
 *
 * Nothing is synced: what a power cut tears is found by the checksums of its
 * readers.
 *
 * A link whose answer got lost (NFS) reports EEXIST although it was made: two
 * links on our temporary tell.  Where a file system has no links, an empty
 * file created exclusively claims the name and the temporary is renamed over
 * it; readers take an empty file for damage, so for a miss.
 */

#include "store/store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/status.h"

#define PIECES_MAX 8
#define TRIES_MAX 8

static int open_temporary(const struct ki_sys *sys, char out[KI_PATH_MAX],
			  const char *directory, const char *name,
			  unsigned mode)
{
	int fd = -EEXIST, tries, n, err;

	for (tries = 0; fd == -EEXIST && tries < TRIES_MAX; tries++) {
		uint64_t number;

		err = sys->random(sys, &number, sizeof(number));
		if (err)
			return err;
		n = snprintf(out, KI_PATH_MAX, "%s/%s.%016llx%s", directory,
			     name, (unsigned long long)number,
			     KI_TEMPORARY_SUFFIX);
		if (n < 0 || n >= KI_PATH_MAX)
			return -ENAMETOOLONG;
		fd = sys->open(sys, out,
			       KI_OPEN_WRITE | KI_OPEN_CREATE |
				       KI_OPEN_EXCLUSIVE | KI_OPEN_NOFOLLOW,
			       mode);
	}
	return fd;
}

static int fill(const struct ki_sys *sys, const char *temporary, int fd,
		const struct ki_piece *pieces, int n_pieces, unsigned mode)
{
	struct ki_piece rest[PIECES_MAX];
	int err, close_err;

	memcpy(rest, pieces, (size_t)n_pieces * sizeof(*pieces));
	err = ki_pwritev_all(sys, fd, rest, n_pieces, 0);
	if (!err && (mode & 077))
		err = sys->chmod(sys, temporary, mode); /* whatever the umask */
	close_err = sys->close(sys, fd);
	return err ? err : close_err;
}

static int is_linked_twice(const struct ki_sys *sys, const char *temporary)
{
	struct ki_file_info info;

	return !sys->lstat(sys, temporary, &info) && info.n_links == 2;
}

static int claim_and_rename(const struct ki_sys *sys, const char *temporary,
			    const char *path, unsigned mode)
{
	int err, fd = sys->open(sys, path,
				KI_OPEN_WRITE | KI_OPEN_CREATE |
					KI_OPEN_EXCLUSIVE | KI_OPEN_NOFOLLOW,
				mode);

	if (fd < 0)
		return fd;
	(void)sys->close(sys, fd);
	err = sys->rename(sys, temporary, path);
	if (err)
		(void)sys->unlink(sys, path);
	return err;
}

static int link_new(const struct ki_sys *sys, const char *temporary,
		    const char *path, unsigned mode)
{
	int err = sys->link(sys, temporary, path);

	switch (-err) {
	case EPERM:
	case ENOSYS:
	case EOPNOTSUPP:
	case EMLINK:
		return claim_and_rename(sys, temporary, path, mode);
	case EEXIST:
		return is_linked_twice(sys, temporary) ? 0 : err;
	default:
		return err;
	}
}

int ki_publish_file(const struct ki_sys *sys, const char *directory,
		    const char *name, const struct ki_piece *pieces,
		    int n_pieces, int replace, unsigned mode)
{
	char path[KI_PATH_MAX], temporary[KI_PATH_MAX];
	int err, fd;

	if (n_pieces > PIECES_MAX)
		return -EINVAL;
	err = ki_path_join(path, directory, name);
	if (err)
		return err;
	fd = open_temporary(sys, temporary, directory, name, mode);
	if (fd < 0)
		return fd;
	err = fill(sys, temporary, fd, pieces, n_pieces, mode);
	if (!err && replace)
		err = sys->rename(sys, temporary, path);
	else if (!err)
		err = link_new(sys, temporary, path, mode);
	if (err || !replace)
		(void)sys->unlink(sys, temporary);
	return err;
}

enum kiln_status ki_publish(const struct ki_sys *sys, const char *directory,
			    const char *name, const struct ki_piece *pieces,
			    int n_pieces, int replace)
{
	int err = ki_publish_file(sys, directory, name, pieces, n_pieces,
				  replace, 0600);

	if (err == -EEXIST)
		return KILN_EXISTS;
	return err == -EINVAL ? KILN_E_INVALID : ki_status_from_errno(err);
}
