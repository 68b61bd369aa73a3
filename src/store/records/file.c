/* SPDX-License-Identifier: MIT */

/*
 * The file: its descriptor, and its bytes, by a mapping or by pread.
 *
 * The library maps the file and keeps a descriptor; before it writes through
 * that, it compares which file it is, once between begin and end.  A guest reads
 * what it needs by pread, and so does who may not write: on overlayfs a mapping
 * made before the first writer copies the file up stays that of the lower one, and
 * is too short.
 */

#include "store/records/inside.h"

#include <errno.h>
#include <stdlib.h>

#define MAP_MIN ((uint64_t)64 << 10)

/* ---- The descriptor ---------------------------------------------------------- */

void ki_records_close_file(struct ki_records *records)
{
	if (records->fd >= 0)
		(void)records->sys->close(records->sys, records->fd);
	records->fd = -1;
}

int ki_records_open_file(struct ki_records *records)
{
	const struct ki_sys *sys = records->sys;
	unsigned flags = KI_OPEN_READ | KI_OPEN_NOFOLLOW;

	records->can_write = !ki_records_is_readonly(records);
	if (records->can_write)
		records->fd =
			sys->open(sys, records->path, flags | KI_OPEN_WRITE, 0);
	if (!records->can_write || records->fd == -EACCES ||
	    records->fd == -EPERM || records->fd == -EROFS) {
		records->can_write = 0;
		records->fd = sys->open(sys, records->path, flags, 0);
	}
	if (records->fd >= 0)
		return 0;
	flags = (unsigned)-records->fd;
	records->fd = -1;
	return -(int)flags;
}

/* If it cannot be told whose the descriptor is, it is left alone. */
static int fd_is_ours(const struct ki_records *records)
{
	uint64_t device, inode;

	return !records->sys->fidentify(records->sys, records->fd, &device,
					&inode) &&
	       device == records->device && inode == records->inode;
}

int ki_records_fd_is_current(struct ki_records *records,
			     struct ki_file_info *out_info)
{
	int err;

	if (records->fd < 0)
		return 0;
	err = records->sys->fmeasure(records->sys, records->fd, out_info);
	if (err ? !fd_is_ours(records)
		: out_info->inode != records->inode ||
			    out_info->device != records->device) {
		records->fd = -1;
		return 0;
	}
	if (!err && out_info->n_links)
		return 1;
	ki_records_close_file(records);
	return 0;
}

/* ---- Bytes ------------------------------------------------------------------- */

void ki_records_unmap(struct ki_records *records)
{
	if (records->map)
		records->sys->unmap(records->sys, records->map,
				    (size_t)records->map_size);
	records->map = NULL;
	records->map_size = 0;
}

void ki_records_map(struct ki_records *records)
{
	uint64_t size = records->size < MAP_MIN ? MAP_MIN : records->size * 2;
	void *data;

	if (ki_records_is_guest(records) || !records->can_write ||
	    records->size <= records->map_size)
		return;
	ki_records_unmap(records);
	size = (size + MAP_MIN - 1) & ~(MAP_MIN - 1);
	if (size > SIZE_MAX / 2 || records->sys->map(records->sys, records->fd,
						     0, (size_t)size, 0, &data))
		return;
	records->map = data;
	records->map_size = size;
}

static int reserve(struct ki_records *records, size_t size)
{
	uint8_t *buffer;

	if (size <= records->buffer_capacity)
		return 0;
	buffer = realloc(records->buffer, size);
	if (!buffer)
		return -ENOMEM;
	records->buffer = buffer;
	records->buffer_capacity = size;
	return 0;
}

int ki_records_look(struct ki_records *records, uint64_t offset, uint64_t size,
		    size_t ahead, const uint8_t **out_bytes)
{
	uint64_t want = size + ahead;
	int err;

	if (records->map && offset + size <= records->map_size) {
		*out_bytes = records->map + offset;
		return 0;
	}
	if (offset >= records->buffer_offset &&
	    offset + size <= records->buffer_offset + records->buffer_size) {
		*out_bytes =
			records->buffer + (offset - records->buffer_offset);
		return 0;
	}
	if (want > records->size - offset)
		want = records->size - offset;
	err = reserve(records, (size_t)want);
	if (err)
		return err;
	records->buffer_size = 0;
	err = ki_pread_all(records->sys, records->fd, records->buffer,
			   (size_t)want, offset);
	if (err)
		return err;
	records->buffer_offset = offset;
	records->buffer_size = (size_t)want;
	*out_bytes = records->buffer;
	return 0;
}

void ki_records_forget_buffer(struct ki_records *records)
{
	records->buffer_size = 0;
	if (records->buffer_capacity < KI_RECORDS_AHEAD)
		return;
	free(records->buffer);
	records->buffer = NULL;
	records->buffer_capacity = 0;
}
