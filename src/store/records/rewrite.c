/* SPDX-License-Identifier: MIT */

/*
 * Another file in the place of this one: written beside it and renamed over it,
 * with the living or without, with the same settings or with others.
 */

#include "store/records/inside.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/status.h"

/* The header, and the record that says the same. */
static int seal_header(struct ki_records *records,
		       const struct ki_records_settings *given,
		       uint8_t bytes[KI_RECORDS_HEADER_BYTES])
{
	uint8_t *copy = bytes + KI_RECORDS_HEAD;
	struct ki_records_settings settings = *given;
	int err = 0;

	if (!settings.generation)
		err = records->sys->random(records->sys, &settings.generation,
					   sizeof(settings.generation));
	memset(bytes, 0, KI_RECORDS_HEADER_BYTES);
	memcpy(bytes, ki_records_magic, sizeof(ki_records_magic));
	ki_put_u32(bytes + 8, KI_RECORDS_VERSION);
	ki_put_u64(bytes + 32, settings.user_version);
	ki_put_u64(bytes + 16, settings.generation);
	ki_put_u64(bytes + 24, settings.bytes_max);
	ki_put_u64(bytes + 40, settings.by_cost ? KI_RECORDS_BY_COST : 0);
	ki_put_u64(bytes + 56, ki_xxh3_64(bytes, 56));
	ki_put_u32(copy, KI_RECORD_MAGIC);
	copy[4] = KI_RECORD_SETTINGS;
	ki_put_u32(copy + 8, KI_RECORDS_HEAD);
	ki_put_u64(copy + 32, KI_RECORDS_HEAD);
	memcpy(copy + KI_RECORD_HEADER, bytes, KI_RECORDS_HEAD);
	ki_put_u64(copy + KI_RECORD_HEADER - 8,
		   ki_records_check(copy,
				    KI_RECORDS_HEADER_BYTES - KI_RECORDS_HEAD));
	return err;
}

/* The living entry to keep: in the middle of a replacement somebody died, and
   the file is still the old one. */
static const struct ki_records_entry *true_one(
	const struct ki_records *records, const struct ki_records_entry *entry,
	const uint8_t *bytes)
{
	const struct ki_records_entry *older = ki_records_older(entry);
	const char *slash = strrchr(records->path, '/');
	const size_t directory =
		slash ? (size_t)(slash + 1 - records->path) : 0;
	const size_t name_size = ki_get_u16(bytes + 6);
	struct ki_file_info info;
	char path[KI_PATH_MAX];

	if (!older || (older->flags & KI_RECORD_DROPPED) ||
	    directory + name_size >= sizeof(path))
		return entry;
	memcpy(path, records->path, directory);
	memcpy(path + directory, bytes + KI_RECORD_HEADER, name_size);
	path[directory + name_size] = '\0';
	if (records->sys->lstat(records->sys, path, &info) ||
	    info.inode == entry->inode)
		return entry;
	while (older && !(older->flags & KI_RECORD_DROPPED) &&
	       older->inode != info.inode)
		older = ki_records_older(older);
	return older && !(older->flags & KI_RECORD_DROPPED) ? older : entry;
}

/* Add the living to `out` from entry *i on, until it has KI_RECORDS_AHEAD. */
static int gather(struct ki_records *records, size_t *i, uint64_t offset,
		  struct ki_bytes *out)
{
	for (; *i < records->n_entries && out->size < KI_RECORDS_AHEAD; ++*i) {
		const struct ki_records_entry *entry = ki_records_entry(records,
									*i),
					      *kept;
		const uint8_t *bytes;
		uint32_t size;
		uint8_t *copy;
		int err;

		if (entry->flags & (KI_RECORD_DEAD | KI_RECORD_DROPPED))
			continue;
		err = ki_records_bytes_of(records, entry, KI_RECORDS_AHEAD,
					  &bytes);
		kept = err ? entry : true_one(records, entry, bytes);
		if (kept != entry)
			err = ki_records_bytes_of(records, kept, 0, &bytes);
		if (err == -ENODATA)
			continue;
		if (err)
			return err;
		size = ki_records_entry_bytes(kept);
		copy = ki_bytes_grow(out, size);
		if (!copy)
			return -ENOMEM;
		memcpy(copy, bytes, size);
		ki_put_u64(copy + 32, offset + out->size - size);
		ki_put_u64(copy + 40, entry->serial);
		ki_put_u64(copy + KI_RECORD_HEADER - 8,
			   ki_records_check(copy, size));
	}
	return 0;
}

static int write_living(struct ki_records *records, int fd)
{
	uint64_t offset = KI_RECORDS_HEADER_BYTES;
	struct ki_bytes out;
	size_t i = 0;
	int err = 0;

	ki_bytes_init(&out);
	while (!err && i < records->n_entries) {
		ki_bytes_clear(&out);
		err = gather(records, &i, offset, &out);
		if (!err)
			err = ki_pwrite_all(records->sys, fd, out.data,
					    out.size, offset);
		offset += out.size;
	}
	ki_bytes_fini(&out);
	return err;
}

/* What a dead writer left goes: nobody else writes it now. */
static int open_renewing(struct ki_records *records)
{
	const struct ki_sys *sys = records->sys;
	const unsigned flags = KI_OPEN_WRITE | KI_OPEN_CREATE |
			       KI_OPEN_EXCLUSIVE | KI_OPEN_NOFOLLOW;
	const unsigned mode = records->flags & KILN_OPEN_SHARED ? 0660 : 0600;
	int err = 0, fd = sys->open(sys, records->renewing, flags, mode);

	if (fd == -EEXIST) {
		(void)sys->unlink(sys, records->renewing);
		fd = sys->open(sys, records->renewing, flags, mode);
	}
	if (fd >= 0 && (records->flags & KILN_OPEN_SHARED))
		err = sys->chmod(sys, records->renewing, mode);
	if (!err)
		return fd;
	(void)sys->close(sys, fd);
	return err;
}

int ki_records_renew(struct ki_records *records,
		     const struct ki_records_settings *settings, int keep)
{
	const struct ki_sys *sys = records->sys;
	uint8_t header[KI_RECORDS_HEADER_BYTES];
	int fd, close_err, err = seal_header(records, settings, header);

	if (err)
		return err;
	fd = open_renewing(records);
	if (fd < 0)
		return fd;
	err = ki_pwrite_all(sys, fd, header, sizeof(header), 0);
	if (!err && keep)
		err = write_living(records, fd);
	close_err = sys->close(sys, fd);
	if (!err)
		err = close_err;
	if (!err)
		err = sys->rename(sys, records->renewing, records->path);
	if (err) {
		(void)sys->unlink(sys, records->renewing);
		return err;
	}
	err = ki_records_refresh_locked(records);
	return err < 0 ? err : 0;
}

enum kiln_status ki_records_rewrite(struct ki_records *records,
				    const struct ki_records_settings *settings)
{
	int err;

	ki_records_enter(records);
	err = ki_records_ready_to_write(records);
	if (!err)
		err = ki_records_renew(
			records, settings ? settings : &records->settings, 1);
	ki_records_leave(records);
	return ki_records_write_status(err);
}

enum kiln_status ki_records_reset(struct ki_records *records,
				  const struct ki_records_settings *settings)
{
	int err;

	ki_records_enter(records);
	err = ki_records_is_readonly(records)
		      ? -EROFS
		      : ki_records_refresh_locked(records);
	if (err >= 0)
		err = records->is_newer
			      ? -EPROTONOSUPPORT
			      : ki_records_renew(records, settings, 0);
	ki_records_leave(records);
	return ki_records_write_status(err);
}
