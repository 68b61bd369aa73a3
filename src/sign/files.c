/* SPDX-License-Identifier: MIT */

/*
 * Reading keys is reading configuration that decides whose machine code runs.
 * Each file is judged by its open descriptor, so what is read is what was
 * judged; a secret must not be reached by a link either.
 */

#include "sign/files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/status.h"

#define FILE_BYTES_MAX ((size_t)64 << 10)
#define TEMPORARY      ".tmp"

int ki_sign_path(char out[KI_PATH_MAX], const char *directory,
		 const char *folder, const char *name, const char *suffix)
{
	int n = snprintf(out, KI_PATH_MAX, "%s/%s/%s%s", directory, folder,
			 name, suffix);

	return n < 0 || n >= KI_PATH_MAX ? -ENAMETOOLONG : 0;
}

/* ---- Reading --------------------------------------------------------------- */

static enum kiln_status judge(const struct ki_file_info *info, int is_secret,
			      const char **out_why)
{
	const char *why = NULL;
	int is_private = 1;

	if (info->mode & S_IWGRP)
		is_private = ki_group_is_private(info->gid);
	if (info->uid != ki_user_id() && info->uid != 0)
		why = "belongs to someone else";
	else if (info->mode & S_IWOTH)
		why = "can be written by everyone";
	else if (is_secret && (info->mode & 077))
		why = "can be read by others";
	else if (!is_private)
		why = "can be written by a group";
	if (why || is_private >= 0) {
		*out_why = why;
		return why ? KILN_E_OWNER : KILN_OK;
	}
	*out_why = "cannot be looked at";
	return ki_status_from_errno(is_private);
}

static enum kiln_status read_judged(const struct ki_sys *sys, int fd,
				    int is_secret, char **out_text,
				    const char **out_why)
{
	struct ki_file_info info;
	enum kiln_status status;
	char *text;
	int err = sys->fstat(sys, fd, &info);

	*out_why = "cannot be read";
	if (err)
		return ki_status_from_errno(err);
	if (!S_ISREG(info.mode) || info.size > FILE_BYTES_MAX) {
		*out_why = "is no file of keys";
		return KILN_E_FORMAT;
	}
	status = judge(&info, is_secret, out_why);
	if (status)
		return status;
	text = calloc(1, (size_t)info.size + 1);
	if (!text)
		return KILN_E_NO_MEMORY;
	*out_why = "cannot be read";
	err = ki_pread_all(sys, fd, text, (size_t)info.size, 0);
	if (!err) {
		*out_text = text;
		return KILN_OK;
	}
	ki_sign_wipe(text, (size_t)info.size);
	free(text);
	return ki_status_from_errno(err);
}

static enum kiln_status read_text(const struct ki_sys *sys, const char *path,
				  int is_secret, char **out_text,
				  const char **out_why)
{
	int fd =
		sys->open(sys, path,
			  KI_OPEN_READ | (is_secret ? KI_OPEN_NOFOLLOW : 0), 0);
	enum kiln_status status;

	if (fd == -ENOENT || fd == -ENOTDIR) {
		*out_why = "does not exist";
		return KILN_MISS;
	}
	if (fd == -ELOOP) {
		*out_why = "is a symbolic link";
		return KILN_E_OWNER;
	}
	if (fd < 0) {
		*out_why = "cannot be read";
		return ki_status_from_errno(fd);
	}
	status = read_judged(sys, fd, is_secret, out_text, out_why);
	(void)sys->close(sys, fd);
	return status;
}

enum kiln_status ki_sign_read_secret(const struct ki_sys *sys, const char *path,
				     struct ki_sign_secret *out_secret,
				     const char **out_why)
{
	const char *why = NULL;
	char *text = NULL;
	enum kiln_status status = read_text(sys, path, 1, &text, &why);

	if (!status) {
		if (ki_sign_secret_parse(text, out_secret)) {
			status = KILN_E_FORMAT;
			why = "is no secret key";
		}
		ki_sign_wipe(text, strlen(text));
		free(text);
	}
	if (status && out_why)
		*out_why = why;
	return status;
}

enum kiln_status ki_sign_read_given(const struct ki_sys *sys, const char *given,
				    struct ki_sign_secret *out_secret,
				    const char **out_why)
{
	enum kiln_status status;

	if (*given == '/')
		return ki_sign_read_secret(sys, given, out_secret, out_why);
	status = ki_sign_secret_parse(given, out_secret);
	if (status && out_why)
		*out_why = "is no secret key";
	return status ? KILN_E_FORMAT : KILN_OK;
}

enum kiln_status ki_sign_read_public(const struct ki_sys *sys, const char *path,
				     struct ki_sign_trust *trust,
				     const char **out_why)
{
	const char *why = NULL;
	char *text = NULL;
	enum kiln_status status = read_text(sys, path, 0, &text, &why);

	if (!status) {
		status = ki_sign_trust_add_text(trust, text);
		if (status == KILN_E_INVALID) {
			status = KILN_E_FORMAT;
			why = ki_sign_text_is_secret(text)
				      ? "is a secret key, which nobody else "
					"should have"
				      : "is no public key";
		} else if (status == KILN_E_FULL) {
			why = "is one key too many";
		}
		ki_sign_wipe(text, strlen(text));
		free(text);
	}
	if (status && out_why)
		*out_why = why;
	return status;
}

/* ---- A directory ----------------------------------------------------------- */

static int is_public_name(const char *name)
{
	size_t size = strlen(name), suffix = sizeof(KI_SIGN_PUBLIC) - 1;

	return size > suffix && !strcmp(name + size - suffix, KI_SIGN_PUBLIC) &&
	       ki_sign_name_is_good(name, size - suffix);
}

static enum kiln_status read_all(const struct ki_sys *sys,
				 const char *directory, struct ki_dir *dir,
				 struct ki_sign_trust *trust,
				 ki_sign_complain_fn *complain, void *arg)
{
	char path[KI_PATH_MAX];
	const char *name, *why = NULL;
	enum kiln_status status;
	int there;

	while ((there = sys->readdir(sys, dir, &name)) > 0) {
		if (!is_public_name(name) ||
		    ki_path_join(path, directory, name))
			continue;
		status = ki_sign_read_public(sys, path, trust, &why);
		if (status == KILN_E_NO_MEMORY)
			return status;
		if (status && status != KILN_MISS)
			complain(arg, path, why);
	}
	if (there < 0)
		complain(arg, directory, "cannot be read to its end");
	return KILN_OK;
}

enum kiln_status ki_sign_read_trusted(const struct ki_sys *sys,
				      const char *directory,
				      struct ki_sign_trust *trust,
				      ki_sign_complain_fn *complain, void *arg)
{
	struct ki_file_info info;
	enum kiln_status status;
	struct ki_dir *dir;
	const char *why;
	/* Most have none: one call, and nothing else. */
	int err = sys->stat(sys, directory, &info);

	if (err == -ENOENT || err == -ENOTDIR)
		return KILN_OK;
	if (err) {
		complain(arg, directory, "cannot be looked at");
		return KILN_OK;
	}
	if (judge(&info, 0, &why)) {
		complain(arg, directory, why);
		return KILN_OK;
	}
	if (sys->opendir(sys, directory, &dir)) {
		complain(arg, directory, "cannot be read");
		return KILN_OK;
	}
	status = read_all(sys, directory, dir, trust, complain, arg);
	sys->closedir(sys, dir);
	return status;
}

/* ---- Writing --------------------------------------------------------------- */

static int fill(const struct ki_sys *sys, int fd, const char *text)
{
	int err = ki_pwrite_all(sys, fd, text, strlen(text), 0), close_err;

	/* The only copy of a secret: it must be there after a power cut. */
	if (!err)
		err = sys->fsync(sys, fd);
	close_err = sys->close(sys, fd);
	return err ? err : close_err;
}

static int make_parent(const struct ki_sys *sys, const char *path)
{
	char parent[KI_PATH_MAX];
	const char *slash = strrchr(path, '/');

	if (!slash || slash == path)
		return 0;
	memcpy(parent, path, (size_t)(slash - path));
	parent[slash - path] = '\0';
	return ki_make_directories(sys, parent);
}

static int write_whole(const struct ki_sys *sys, const char *path,
		       const char *text, unsigned mode, int replace)
{
	char temporary[KI_PATH_MAX];
	uint64_t number;
	int fd, n, err = make_parent(sys, path);

	if (!err)
		err = sys->random(sys, &number, sizeof(number));
	if (err)
		return err;
	n = snprintf(temporary, sizeof(temporary), "%s.%016llx%s", path,
		     (unsigned long long)number, TEMPORARY);
	if (n < 0 || (size_t)n >= sizeof(temporary))
		return -ENAMETOOLONG;
	fd = sys->open(sys, temporary,
		       KI_OPEN_WRITE | KI_OPEN_CREATE | KI_OPEN_EXCLUSIVE |
			       KI_OPEN_NOFOLLOW,
		       mode);
	if (fd < 0)
		return fd;
	err = fill(sys, fd, text);
	if (!err)
		err = replace ? sys->rename(sys, temporary, path)
			      : sys->rename_new(sys, temporary, path);
	if (err)
		(void)sys->unlink(sys, temporary);
	return err;
}

enum kiln_status ki_sign_write(const struct ki_sys *sys, const char *path,
			       const char *text, unsigned mode, int replace)
{
	int err;

	if (strlen(path) >= KI_PATH_MAX)
		return KILN_E_INVALID;
	err = write_whole(sys, path, text, mode, replace);
	return err == -EEXIST ? KILN_EXISTS : ki_status_from_errno(err);
}
