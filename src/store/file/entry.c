/* SPDX-License-Identifier: MIT */

/*
 * One entry: NAME.files/<2 digits>/<32 digits>, an envelope and nothing else.
 *
 * It is read through one descriptor from begin to end, so a replacement or a
 * removal meanwhile does not matter: the old file stays whole until the last
 * reader closes it, or the server answers ESTALE, which is a miss.
 */

#include "store/file/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/blob.h"
#include "base/hash.h"
#include "base/status.h"

#define DIGITS (2 * KILN_DIGEST_BYTES)

/* ---- Names ----------------------------------------------------------------- */

static int format_path(char out[KI_PATH_MAX], int n)
{
	return n < 0 || n >= KI_PATH_MAX ? -ENAMETOOLONG : 0;
}

int ki_file_fan_path(const struct ki_file_store *store, unsigned fan,
		     char out[KI_PATH_MAX])
{
	return format_path(
		out, snprintf(out, KI_PATH_MAX, "%s/%02x", store->root, fan));
}

int ki_file_entry_path(const struct ki_file_store *store,
		       const uint8_t digest[KILN_DIGEST_BYTES],
		       char out[KI_PATH_MAX])
{
	char digits[DIGITS + 1];

	ki_hex(digest, KILN_DIGEST_BYTES, digits);
	return format_path(out, snprintf(out, KI_PATH_MAX, "%s/%.2s/%s",
					 store->root, digits, digits));
}

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int ki_file_is_fan(const char *name, unsigned *out_fan)
{
	int high = digit_of(name[0]);
	int low = high < 0 ? -1 : digit_of(name[1]);

	if (low < 0 || name[2])
		return 0;
	*out_fan = (unsigned)(high << 4 | low);
	return 1;
}

enum ki_file_kind ki_file_kind_of(const char *name,
				  uint8_t out_digest[KILN_DIGEST_BYTES])
{
	size_t size = strlen(name), suffix = sizeof(KI_TEMPORARY_SUFFIX) - 1;

	if (size < DIGITS)
		return KI_FILE_FOREIGN;
	for (size_t i = 0; i < KILN_DIGEST_BYTES; i++) {
		int high = digit_of(name[2 * i]);
		int low = digit_of(name[2 * i + 1]);

		if (high < 0 || low < 0)
			return KI_FILE_FOREIGN;
		out_digest[i] = (uint8_t)(high << 4 | low);
	}
	if (size == DIGITS)
		return KI_FILE_ENTRY;
	if (name[DIGITS] == '.' && size > DIGITS + suffix &&
	    !strcmp(name + size - suffix, KI_TEMPORARY_SUFFIX))
		return KI_FILE_TEMPORARY;
	return KI_FILE_FOREIGN;
}

static unsigned file_mode(const struct ki_file_store *store)
{
	return store->flags & KILN_OPEN_SHARED ? 0660 : 0600;
}

int ki_file_make_directory(const struct ki_file_store *store, const char *path)
{
	const struct ki_sys *sys = store->sys;
	int err = sys->mkdir(sys, path, 0700);

	if (!err && (store->flags & KILN_OPEN_SHARED))
		err = sys->chmod(sys, path, 02770);
	return err == -EEXIST ? 0 : err;
}

void ki_file_say(const struct ki_file_store *store, enum kiln_log_level level,
		 const char *path, const char *what)
{
	char line[KI_PATH_MAX + 128];

	if (!store->log)
		return;
	snprintf(line, sizeof(line), "%s: %s", path, what);
	store->log(store->log_arg, level, line);
}

/* ---- Reading --------------------------------------------------------------- */

/* Whether an error says that there is no file of ours under a name. */
static int is_absence(int err)
{
	switch (-err) {
	case ENOENT:
	case ENOTDIR:
	case ELOOP:
	case ENXIO:
	case EISDIR:
	case ESTALE:
		return 1;
	default:
		return 0;
	}
}

static enum kiln_status status_of(int err)
{
	if (is_absence(err))
		return KILN_MISS;
	return err == -ENODATA ? KILN_E_FORMAT : ki_status_from_errno(err);
}

static enum kiln_status read_bytes(const struct ki_sys *sys, int fd,
				   uint64_t size, struct ki_file_loaded *loaded)
{
	uint8_t header[KI_ENVELOPE_HEADER_BYTES];
	enum kiln_status status;
	uint8_t *data;
	void *bytes;
	int err;

	if (size < sizeof(header))
		return KILN_E_FORMAT;
	err = ki_pread_all(sys, fd, header, sizeof(header), 0);
	if (err)
		return status_of(err);
	/* Only what the header vouches for is worth allocating. */
	status = ki_envelope_peek(header, size, &loaded->envelope);
	if (status)
		return status;
	loaded->bytes = ki_blob_new((size_t)size, &bytes);
	if (!loaded->bytes)
		return KILN_E_NO_MEMORY;
	data = bytes;
	memcpy(data, header, sizeof(header));
	err = ki_pread_all(sys, fd, data + sizeof(header),
			   (size_t)size - sizeof(header), sizeof(header));
	if (err)
		return status_of(err);
	return ki_envelope_open(data, (size_t)size, &loaded->envelope);
}

enum kiln_status ki_file_load(const struct ki_file_store *store,
			      const uint8_t digest[KILN_DIGEST_BYTES],
			      struct ki_file_loaded *out_loaded)
{
	const struct ki_sys *sys = store->sys;
	const uint64_t user_version = store->wished.user_version;
	struct ki_file_loaded loaded = { 0 };
	enum kiln_status status;
	char path[KI_PATH_MAX];
	int fd, err = ki_file_entry_path(store, digest, path);

	*out_loaded = loaded;
	if (err)
		return ki_status_from_errno(err);
	fd = sys->open(sys, path, KI_OPEN_READ | KI_OPEN_NOFOLLOW, 0);
	if (fd < 0)
		return status_of(fd);
	status = status_of(sys->fstat(sys, fd, &loaded.info));
	if (status)
		goto out;
	status = KILN_MISS;
	if (!S_ISREG(loaded.info.mode) || !loaded.info.size)
		goto out; /* foreign, or a name that is just claimed */
	status = read_bytes(sys, fd, loaded.info.size, &loaded);
	if (!status &&
	    memcmp(loaded.envelope.digest, digest, KILN_DIGEST_BYTES) != 0)
		status = KILN_E_FORMAT;
	/* What a wipe that was cut short left, or who did not know of it. */
	if (!status && user_version &&
	    loaded.envelope.user_version != user_version)
		status = KILN_MISS;
out:
	(void)sys->close(sys, fd);
	if (status) {
		kiln_blob_unref(loaded.bytes);
		loaded.bytes = NULL;
	}
	*out_loaded = loaded;
	return status;
}

/* ---- Writing --------------------------------------------------------------- */

static int publish(const struct ki_file_store *store, const char *directory,
		   const struct ki_envelope *envelope, int replace)
{
	char name[DIGITS + 1];
	uint8_t header[KI_ENVELOPE_HEADER_BYTES];
	struct ki_piece pieces[KI_ENVELOPE_PIECES];

	ki_hex(envelope->digest, KILN_DIGEST_BYTES, name);
	ki_envelope_seal(envelope, header, pieces);
	return ki_publish_file(store->sys, directory, name, pieces,
			       KI_ENVELOPE_PIECES, replace, file_mode(store),
			       &store->writer);
}

int ki_file_write(const struct ki_file_store *store,
		  const struct ki_envelope *envelope, int replace)
{
	char directory[KI_PATH_MAX];
	int err = ki_file_fan_path(store, envelope->digest[0], directory);

	if (err)
		return err;
	err = publish(store, directory, envelope, replace);
	if (!ki_file_is_gone(err))
		return err;
	err = ki_file_make_directory(store, directory);
	return err ? err : publish(store, directory, envelope, replace);
}

static int is_same_file(const struct ki_file_info *a,
			const struct ki_file_info *b)
{
	return a->inode == b->inode && a->device == b->device;
}

/* Back to its name, unless that is taken again. */
static void put_back(const struct ki_sys *sys, const char *aside,
		     const char *path)
{
	int err = sys->link(sys, aside, path);

	if (err && err != -EEXIST && !ki_file_is_gone(err))
		(void)sys->rename(sys, aside, path); /* no links here */
	else
		(void)sys->unlink(sys, aside);
}

/*
 * A rename takes what has the name by then: that is looked at afterwards, and
 * put back if it is not what was judged.  Whoever looks in between misses.
 */
static int move_aside(const struct ki_file_store *store, const char *path,
		      const char *directory, const char *aside,
		      const struct ki_file_info *judged)
{
	const struct ki_sys *sys = store->sys;
	struct ki_file_info info;
	int err = sys->lstat(sys, path, &info);

	if (!err && !is_same_file(&info, judged))
		return -ENOENT;
	/* A power loss may have left both names for one file, which rename(2)
	   would leave so. */
	(void)sys->unlink(sys, aside);
	err = sys->rename(sys, path, aside);
	if (err == -ENOENT && !ki_file_make_directory(store, directory))
		err = sys->rename(sys, path, aside);
	if (err || sys->lstat(sys, aside, &info) || is_same_file(&info, judged))
		return err;
	put_back(sys, aside, path);
	return -ENOENT;
}

int ki_file_set_aside(const struct ki_file_store *store,
		      const uint8_t digest[KILN_DIGEST_BYTES],
		      const struct ki_file_info *judged,
		      enum ki_file_aside what)
{
	const struct ki_sys *sys = store->sys;
	char digits[DIGITS + 1], path[KI_PATH_MAX], aside[KI_PATH_MAX],
		directory[KI_PATH_MAX];
	int err;

	ki_hex(digest, KILN_DIGEST_BYTES, digits);
	if (ki_file_entry_path(store, digest, path) ||
	    ki_path_join(directory, store->root, "quarantine") ||
	    ki_path_join(aside, directory, digits))
		return 0;
	err = move_aside(store, path, directory, aside, judged);
	if (ki_file_is_gone(err))
		return 1;
	if (err)
		err = sys->unlink(sys, path);
	else if (what == KI_FILE_DROP)
		(void)sys->unlink(sys, aside);
	else
		(void)sys->touch(sys, aside); /* since when it is there */
	if (!err && what == KI_FILE_QUARANTINE)
		return KI_FILE_IS_ASIDE;
	return !err || ki_file_is_gone(err);
}

void ki_file_say_aside(const struct ki_file_store *store,
		       const uint8_t digest[KILN_DIGEST_BYTES])
{
	char path[KI_PATH_MAX];

	if (!ki_file_entry_path(store, digest, path))
		ki_file_say(store, KILN_LOG_ERROR, path,
			    "damaged, put aside in quarantine");
}
