/* SPDX-License-Identifier: MIT */

/*
 * One entry: a file that holds the value and nothing else, and a record of it.
 *
 * A file is kiln's as long as inode, size and modification time are those of the
 * record: whoever publishes makes another inode, and whoever writes into one sets
 * the time.  (Inodes are used again, so a driver's file may have one of kiln's.)
 * Any other file belongs to who wrote it and is not touched; the record goes.
 * Kiln's, with other bytes than the checksum says: damaged, a miss, removed.
 */

#include "store/neo/neo.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/blob.h"
#include "base/hash.h"
#include "base/status.h"

#define RENEW_NS  ((int64_t)60 * 1000000000)
#define OLDER_MAX 4

enum ki_neo_state ki_neo_compare(const struct ki_record_found *found,
				 const struct ki_file_info *info)
{
	return info->inode == found->inode && info->size == found->file_size &&
			       info->mtime_ns == found->mtime_ns
		       ? KI_NEO_THERE
		       : KI_NEO_TAKEN;
}

int ki_neo_state(const struct ki_neo *neo, const struct ki_record_found *found,
		 enum ki_neo_state *out_state, struct ki_file_info *out_info)
{
	int err = ki_neo_is_name(neo, found->name)
			  ? ki_neo_look(neo, found->name, out_info)
			  : -ENOENT;

	*out_state = err ? KI_NEO_GONE : ki_neo_compare(found, out_info);
	return err == -ENOENT ? 0 : err;
}

/* ---- Reading ----------------------------------------------------------------------- */

/*
 * The mount may not keep times of access, or a day late.  A clock that was ahead
 * has left some that never come.  Until it is due again nobody need ask for it,
 * nor which file it is, as long as the bytes are right.
 */
static void note_use_of(const struct ki_neo *neo, int fd,
			const struct ki_record_found *found,
			const struct ki_file_info *info)
{
	const struct ki_sys *sys = neo->sys;
	const int64_t now_ns = (int64_t)sys->realtime_ns(sys);
	int64_t age_ns = now_ns - info->atime_ns;

	if (age_ns > RENEW_NS || age_ns < -RENEW_NS) {
		(void)sys->set_access_time(sys, fd, now_ns);
		age_ns = 0;
	}
	if (age_ns < 0)
		age_ns = 0;
	ki_records_trust(neo->records, found,
			 sys->coarse_ns(sys) + (uint64_t)(RENEW_NS - age_ns));
}

/* Expiry wants the times of every hit. */
static int is_trusted(const struct ki_neo *neo, uint64_t trusted_ns)
{
	return trusted_ns && !neo->age_max_s &&
	       neo->sys->coarse_ns(neo->sys) < trusted_ns;
}

static enum kiln_status read_value(const struct ki_neo *neo, int fd,
				   const struct ki_record_found *found,
				   struct kiln_blob **out_value)
{
	struct kiln_blob *blob;
	void *data;
	int err;

	if (found->value_size > SIZE_MAX / 2)
		return KILN_E_TOO_LARGE;
	blob = ki_blob_new((size_t)found->value_size, &data);
	if (!blob)
		return KILN_E_NO_MEMORY;
	err = ki_pread_all(neo->sys, fd, data, (size_t)found->value_size, 0);
	if (!err &&
	    ki_xxh3_64(data, (size_t)found->value_size) == found->value_check) {
		*out_value = blob;
		return KILN_OK;
	}
	kiln_blob_unref(blob);
	return err && err != -ENODATA ? ki_status_from_errno(err)
				      : KILN_E_FORMAT;
}

static int has_place(const struct ki_neo *neo)
{
	return neo->place_fd >= 0 &&
	       !__atomic_load_n(&neo->place_is_other, __ATOMIC_RELAXED);
}

#define QUICK_FLAGS (KI_OPEN_READ | KI_OPEN_NOFOLLOW | KI_OPEN_NO_ATIME)

/* Where the directory's descriptor is kept without a walk along its path. */
static int open_quickly(const struct ki_neo *neo, const char *name)
{
	const struct ki_sys *sys = neo->sys;
	char path[KI_PATH_MAX];

	if (has_place(neo))
		return sys->open_in(sys, neo->place_fd, name, QUICK_FLAGS, 0);
	return ki_neo_path(neo, name, path)
		       ? -ENAMETOOLONG
		       : sys->open(sys, path, QUICK_FLAGS, 0);
}

void ki_neo_open_ahead(const struct ki_neo *neo, const struct kiln_key *key,
		       struct ki_neo_ahead *ahead)
{
	uint64_t trusted_ns;

	ahead->fd = -1;
	if (!ki_neo_is_readonly(neo) &&
	    ki_records_glance(neo->records, key, ahead->name, &trusted_ns) &&
	    is_trusted(neo, trusted_ns))
		ahead->fd = open_quickly(neo, ahead->name);
}

void ki_neo_close_ahead(const struct ki_neo *neo, struct ki_neo_ahead *ahead)
{
	if (ahead->fd >= 0)
		(void)neo->sys->close(neo->sys, ahead->fd);
	ahead->fd = -1;
}

/* With no look at the file itself.  Any doubt is left to the long way. */
static int load_quickly(const struct ki_neo *neo,
			const struct ki_record_found *found,
			struct ki_neo_ahead *ahead,
			struct kiln_blob **out_value)
{
	enum kiln_status status;
	int fd;

	if (ahead && ahead->fd >= 0 && !strcmp(ahead->name, found->name)) {
		fd = ahead->fd;
		ahead->fd = -1;
	} else {
		fd = open_quickly(neo, found->name);
	}
	if (fd < 0)
		return 0;
	status = read_value(neo, fd, found, out_value);
	(void)neo->sys->close(neo->sys, fd);
	return !status;
}

void ki_neo_doubt_place(struct ki_neo *neo)
{
	struct ki_file_info info;

	if (has_place(neo) &&
	    (neo->sys->stat(neo->sys, neo->directory, &info) ||
	     info.device != neo->place_device ||
	     info.inode != neo->place_inode))
		__atomic_store_n(&neo->place_is_other, 1, __ATOMIC_RELAXED);
}

enum kiln_status ki_neo_load(struct ki_neo *neo,
			     const struct ki_record_found *found, int note_use,
			     struct ki_neo_ahead *ahead,
			     enum ki_neo_state *out_state,
			     struct kiln_blob **out_value,
			     struct ki_file_info *out_info)
{
	const struct ki_sys *sys = neo->sys;
	const int is_quick = note_use && is_trusted(neo, found->trusted_ns);
	enum kiln_status status;
	char path[KI_PATH_MAX];
	int fd;

	*out_state = KI_NEO_THERE;
	if (is_quick && load_quickly(neo, found, ahead, out_value))
		return KILN_OK;
	*out_state = KI_NEO_GONE;
	if (!ki_neo_is_name(neo, found->name) ||
	    ki_neo_path(neo, found->name, path))
		return KILN_MISS;
	fd = ki_neo_check_fans(neo, found->name);
	if (!fd)
		fd = sys->open(sys, path,
			       KI_OPEN_READ | KI_OPEN_NOFOLLOW |
				       (note_use ? 0 : KI_OPEN_NO_ATIME),
			       0);
	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP || fd == -ENXIO)
		return KILN_MISS;
	if (fd < 0)
		return ki_status_from_errno(fd);
	status = ki_status_from_errno(sys->fstat(sys, fd, out_info));
	if (status)
		goto out;
	status = KILN_MISS;
	*out_state = S_ISREG(out_info->mode) ? ki_neo_compare(found, out_info)
					     : KI_NEO_TAKEN;
	if (*out_state != KI_NEO_THERE)
		goto out;
	status = read_value(neo, fd, found, out_value);
	if (status == KILN_E_FORMAT)
		*out_state = KI_NEO_DAMAGED;
	if (!status && note_use) {
		note_use_of(neo, fd, found, out_info);
		/* What was not to be had that way is there by its path. */
		if (is_quick)
			ki_neo_doubt_place(neo);
	}
out:
	(void)sys->close(sys, fd);
	return status;
}

/* ---- Finding --------------------------------------------------------------------------- */

enum kiln_status ki_neo_find_present(struct ki_neo *neo,
				     const struct kiln_key *key,
				     struct ki_record_found *out_found,
				     enum ki_neo_state *out_state)
{
	struct ki_file_info info;
	enum kiln_status status =
		ki_records_find(neo->records, key, 0, out_found, NULL);
	int err;

	*out_state = KI_NEO_GONE;
	if (status)
		return status;
	err = ki_neo_state(neo, out_found, out_state, &info);
	if (err)
		return ki_status_from_errno(err);
	if (*out_state == KI_NEO_THERE)
		return KILN_OK;
	for (unsigned older = 1;
	     *out_state == KI_NEO_TAKEN && older < OLDER_MAX; older++) {
		struct ki_record_found before;

		if (ki_records_find(neo->records, key, older, &before, NULL))
			break;
		/* An older one's inode may be another's by now. */
		if (ki_neo_compare(&before, &info) != KI_NEO_THERE)
			continue;
		*out_state = KI_NEO_THERE;
		*out_found = before;
		return KILN_OK;
	}
	return KILN_MISS;
}
