/* SPDX-License-Identifier: MIT */

/*
 * Whether a directory is ours to trust.  What lies in it is machine code that
 * this process will run, so whoever can write there can be this user: refused
 * are symbolic links, other owners than this user and root, and places where
 * the world or a group of several people may write, here or (without the
 * sticky bit) one level up.  With KILN_OPEN_OWN_FILES each file is looked at
 * instead, whenever it is opened.
 */

#include "store/store.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/status.h"

#define LOOK_NS ((uint64_t)1000000000)

/* "a/b/" and "a/b" -> "a"; "b" -> "."; "/b" -> "/". */
static int parent_of(const char *path, char out[KI_PATH_MAX])
{
	size_t size = strlen(path);

	if (size >= KI_PATH_MAX)
		return -ENAMETOOLONG;
	while (size > 1 && path[size - 1] == '/')
		size--;
	while (size && path[size - 1] != '/')
		size--;
	while (size > 1 && path[size - 1] == '/')
		size--;
	memcpy(out, size ? path : ".", size ? size : 1);
	out[size ? size : 1] = '\0';
	return 0;
}

const char *ki_owner_why_not(const struct ki_file_info *info, int shared,
			     int *out_err)
{
	uint32_t user = ki_user_id();
	int is_private;

	if (info->uid != user && info->uid != 0 && (!shared || user == 0))
		return "belongs to someone else";
	if (info->mode & S_IWOTH)
		return "can be written by everyone";
	if (!(info->mode & S_IWGRP) || shared)
		return NULL;
	is_private = ki_group_is_private(info->gid);
	if (is_private < 0)
		*out_err = is_private;
	return is_private ? NULL : "can be written by a group";
}

const char *ki_parent_why_not(const struct ki_sys *sys, const char *path)
{
	struct ki_file_info info;
	char parent[KI_PATH_MAX];

	if (parent_of(path, parent) || sys->stat(sys, parent, &info))
		return NULL;
	if ((info.mode & S_IWOTH) && !(info.mode & S_ISVTX))
		return "lies where everyone can replace it";
	return NULL;
}

/* lstat() follows a link that ends in a slash. */
static int look(const struct ki_sys *sys, const char *path,
		struct ki_file_info *out_info)
{
	char bare[KI_PATH_MAX];
	size_t size = strlen(path);

	if (size >= sizeof(bare))
		return -ENAMETOOLONG;
	if (size && path[size - 1] != '/')
		return sys->lstat(sys, path, out_info);
	memcpy(bare, path, size + 1);
	while (size > 1 && bare[size - 1] == '/')
		bare[--size] = '\0';
	return sys->lstat(sys, bare, out_info);
}

static enum kiln_status make_it(const struct ki_sys *sys, const char *path,
				unsigned flags, const char **out_why)
{
	int err = ki_make_directories(sys, path);

	if (err) {
		*out_why = "cannot be made";
		return err == -EROFS ? KILN_E_READONLY : KILN_E_IO;
	}
	if (flags & KILN_OPEN_SHARED)
		(void)sys->chmod(sys, path, 02770);
	return KILN_OK;
}

enum kiln_status ki_directory_check(const struct ki_sys *sys,
				    const char *directory, unsigned flags,
				    int make, const char **out_why)
{
	struct ki_file_info info;
	enum kiln_status status;
	const char *why;
	int err = look(sys, directory, &info);

	if (err == -ENOENT && make) {
		status = make_it(sys, directory, flags, out_why);
		if (status)
			return status;
		err = look(sys, directory, &info);
	}
	if (err == -ENOENT || err == -ENOTDIR) {
		*out_why = "does not exist";
		return KILN_MISS;
	}
	if (err) {
		*out_why = "cannot be looked at";
		return ki_status_from_errno(err);
	}
	if (flags & KILN_OPEN_ANY_OWNER) {
		if (S_ISDIR(info.mode) || S_ISLNK(info.mode))
			return KILN_OK;
		*out_why = "is not a directory";
		return KILN_E_IO;
	}
	if ((flags & KILN_OPEN_OWN_FILES) && S_ISDIR(info.mode))
		return KILN_OK;
	if (S_ISLNK(info.mode))
		why = "is a symbolic link";
	else if (!S_ISDIR(info.mode))
		why = "is not a directory";
	else
		why = ki_owner_why_not(&info, !!(flags & KILN_OPEN_SHARED),
				       &err);
	if (!why)
		why = ki_parent_why_not(sys, directory);
	if (!why && err) {
		*out_why = "cannot be looked at";
		return ki_status_from_errno(err);
	}
	if (!why)
		return KILN_OK;
	*out_why = why;
	return KILN_E_OWNER;
}

/* ---- While it is open ------------------------------------------------------------- */

void ki_directory_watch_begin(const struct ki_sys *sys,
			      struct ki_directory_watch *watch)
{
	__atomic_store_n(&watch->looked_ns, sys->coarse_ns(sys),
			 __ATOMIC_RELAXED);
}

enum kiln_status ki_directory_watch(const struct ki_sys *sys,
				    const char *directory, unsigned flags,
				    struct ki_directory_watch *watch,
				    const char **out_why)
{
	const uint64_t now = sys->coarse_ns(sys);
	uint64_t then = __atomic_load_n(&watch->looked_ns, __ATOMIC_RELAXED);
	enum kiln_status status;
	const char *why = NULL;
	int is_refused;

	*out_why = NULL;
	if (now - then < LOOK_NS ||
	    !__atomic_compare_exchange_n(&watch->looked_ns, &then, now, 0,
					 __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return ki_directory_is_refused(watch) ? KILN_E_OWNER : KILN_OK;
	/* That it is gone, or cannot be looked at, whoever needs it finds out: the
	   latter says nothing new of whose it is. */
	status = ki_directory_check(sys, directory, flags, 0, &why);
	is_refused = status == KILN_E_OWNER ||
		     (status < 0 && ki_directory_is_refused(watch));
	if (!__atomic_exchange_n(&watch->is_refused, is_refused,
				 __ATOMIC_RELAXED) &&
	    is_refused)
		*out_why = why;
	return is_refused ? KILN_E_OWNER : KILN_OK;
}
