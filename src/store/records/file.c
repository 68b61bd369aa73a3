/* SPDX-License-Identifier: MIT */

/*
 * The file: its descriptor, and its bytes, by pread.  A mapping would cost less,
 * but whoever cuts the file off ends every program that looks at one.
 *
 * The library keeps a descriptor.  Once between begin and end it compares which
 * file that is, and which one the path leads to: programs close descriptors that
 * they do not know, and directories are moved away with another in their place.
 * What is read needs no such question: records say themselves what they are.
 */

#include "store/records/inside.h"

#include <errno.h>
#include <stdlib.h>

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

void ki_records_let_go(struct ki_records *records)
{
	if (records->fd >= 0 && fd_is_ours(records))
		ki_records_close_file(records);
	records->fd = -1;
}

int ki_records_fd_is_current(struct ki_records *records,
			     struct ki_file_info *out_info)
{
	if (records->fd < 0)
		return 0;
	if (fd_is_ours(records) &&
	    !records->sys->measure(records->sys, records->path, out_info) &&
	    out_info->inode == records->inode &&
	    out_info->device == records->device)
		return 1;
	ki_records_let_go(records);
	return 0;
}

int ki_records_reopen(struct ki_records *records)
{
	struct ki_file_info info;

	if (ki_records_fd_is_current(records, &info))
		return 0;
	records->buffer_size = 0;
	if (ki_records_open_file(records))
		return 0;
	if (fd_is_ours(records))
		return 1;
	ki_records_close_file(records);
	return 0;
}

/* ---- Bytes ------------------------------------------------------------------- */

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

	if (offset >= records->buffer_offset &&
	    offset + size <= records->buffer_offset + records->buffer_size) {
		*out_bytes =
			records->buffer + (offset - records->buffer_offset);
		return 0;
	}
	if (size > records->size || offset > records->size - size)
		return -ENODATA;
	if (want > records->size - offset)
		want = records->size - offset;
	err = reserve(records, (size_t)want);
	if (err)
		return err;
	records->buffer_size = 0;
	err = ki_pread_all(records->sys, records->fd, records->buffer,
			   (size_t)want, offset);
	if (err == -ENODATA && want > size) {
		want = size;
		err = ki_pread_all(records->sys, records->fd, records->buffer,
				   (size_t)want, offset);
	}
	if (err)
		return err;
	records->buffer_offset = offset;
	records->buffer_size = (size_t)want;
	*out_bytes = records->buffer;
	return 0;
}

int ki_records_prepare(struct ki_records *records, size_t size,
		       uint8_t **out_bytes)
{
	int err = reserve(records, size);

	if (err)
		return err;
	records->buffer_size = 0;
	*out_bytes = records->buffer;
	return 0;
}

int ki_records_extend(struct ki_records *records, size_t size)
{
	int err = ki_pwrite_all(records->sys, records->fd, records->buffer,
				size, records->size);

	if (err)
		return err;
	records->buffer_offset = records->size;
	records->buffer_size = size;
	records->size += size;
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
