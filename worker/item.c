/* SPDX-License-Identifier: MIT */

/*
 * What a child is told to rebuild, in a file in memory that only the two know:
 *
 *	size:u64 and the job's file, then twice n:u64 and n digests
 *	(known, denied)
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker.h"

#define ITEM_BYTES_MAX ((uint64_t)1 << 30)

static void add_digests(struct ki_bytes *bytes, const uint8_t *digests,
			size_t n)
{
	ki_bytes_add_u64(bytes, n);
	ki_bytes_add(bytes, digests, n * KILN_DIGEST_BYTES);
}

static int encode(const struct ki_item *item, struct ki_bytes *bytes)
{
	struct ki_bytes job;

	ki_bytes_init(&job);
	if (ki_cl_job_bytes(item->job, &job)) {
		ki_bytes_fini(&job);
		return -EFBIG;
	}
	ki_bytes_add_u64(bytes, job.size);
	ki_bytes_add(bytes, job.data, job.size);
	ki_bytes_fini(&job);
	add_digests(bytes, item->known, item->n_known);
	add_digests(bytes, item->denied, item->n_denied);
	return bytes->failed;
}

int ki_item_write(const struct ki_item *item)
{
	const struct ki_sys *sys = &ki_sys_posix;
	struct ki_bytes bytes;
	int fd = -1, err;

	ki_bytes_init(&bytes);
	err = encode(item, &bytes);
	if (!err) {
		fd = memfd_create("kiln-item", MFD_CLOEXEC);
		err = fd < 0 ? -errno
			     : ki_pwrite_all(sys, fd, bytes.data, bytes.size,
					     0);
	}
	ki_bytes_fini(&bytes);
	if (err && fd >= 0)
		(void)close(fd);
	return err ? err : fd;
}

static const uint8_t *read_digests(struct ki_reader *reader, size_t *out_n)
{
	uint64_t n = ki_read_u64(reader);

	if (n > reader->size / KILN_DIGEST_BYTES) {
		reader->failed = 1;
		return NULL;
	}
	*out_n = (size_t)n;
	return ki_read(reader, (size_t)n * KILN_DIGEST_BYTES);
}

/* The job's bytes are copied: whoever parses them takes them. */
static int take(struct ki_reader reader, struct ki_item *item)
{
	uint64_t size = ki_read_u64(&reader);
	struct ki_cl_job_file *file;
	const void *job;
	void *copy;

	if (reader.failed || size > reader.size)
		return -EBADMSG;
	job = ki_read(&reader, (size_t)size);
	item->known = read_digests(&reader, &item->n_known);
	item->denied = read_digests(&reader, &item->n_denied);
	if (reader.failed || reader.size)
		return -EBADMSG;
	copy = malloc((size_t)size + 1);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, job, (size_t)size);
	if (ki_cl_job_parse(copy, (size_t)size, &file)) {
		free(copy);
		return -EBADMSG;
	}
	item->job = ki_cl_job(file);
	return 0;
}

int ki_item_read(int fd, struct ki_item *out_item)
{
	struct ki_item item = { .job = NULL };
	void *bytes;
	size_t size;
	int err =
		ki_read_whole(&ki_sys_posix, fd, ITEM_BYTES_MAX, &bytes, &size);

	if (err)
		return err;
	err = take(ki_reader(bytes, size), &item);
	if (err)
		free(bytes);
	else
		*out_item = item;
	return err;
}
