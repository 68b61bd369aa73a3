/* SPDX-License-Identifier: MIT */

/*
 * What an entry's files say, of DPC++'s or kiln's: where its fields and its binary
 * lie.  What does not add up says nothing.
 */

#include "store/sycl/sycl.h"

#include <string.h>
#include <sys/stat.h>

#include <kiln/sycl.h>

#include "base/status.h"

/* A regular file, or -ENOENT; -errno. */
static int open_file(const struct ki_sys *sys, const char *path,
		     uint64_t *out_size)
{
	struct ki_file_info info = { 0 };
	int fd = sys->open(sys, path,
			   KI_OPEN_READ | KI_OPEN_NOFOLLOW | KI_OPEN_NO_ATIME,
			   0);
	int err;

	if (fd == -ELOOP || fd == -ENXIO)
		return -ENOENT;
	if (fd < 0)
		return fd;
	err = sys->fstat(sys, fd, &info);
	if (!err && !S_ISREG(info.mode))
		err = -ENOENT;
	if (err) {
		(void)sys->close(sys, fd);
		return err;
	}
	*out_size = info.size;
	return fd;
}

static struct kiln_sycl_span span_of(const struct ki_sycl_span *span)
{
	return (struct kiln_sycl_span){ span->offset, span->size };
}

/* The beginning of a field, as text. */
static int copy_text(const struct ki_sys *sys, int fd,
		     const struct ki_sycl_span *span, char *out,
		     size_t out_size)
{
	const size_t size =
		span->size < out_size - 1 ? (size_t)span->size : out_size - 1;
	int err = ki_pread_all(sys, fd, out, size, span->offset);

	out[err ? 0 : size] = '\0';
	return err;
}

static int describe_source(const struct ki_sys *sys, int fd,
			   struct kiln_sycl_source *is)
{
	struct ki_sycl_span spans[KI_SYCL_N_FIELDS];
	int err = ki_sycl_find_fields(sys, fd, is->file_size, spans);

	if (!err)
		err = copy_text(sys, fd, &spans[KI_SYCL_DEVICE],
				is->device_text, sizeof(is->device_text));
	if (!err)
		err = copy_text(sys, fd, &spans[KI_SYCL_OPTIONS],
				is->options_text, sizeof(is->options_text));
	if (err)
		return err;
	is->device = span_of(&spans[KI_SYCL_DEVICE]);
	is->options = span_of(&spans[KI_SYCL_OPTIONS]);
	is->constants = span_of(&spans[KI_SYCL_SPEC]);
	is->images = span_of(&spans[KI_SYCL_IMAGE]);
	return 0;
}

static enum kiln_status status_of(int err)
{
	if (err == -EINVAL || err == -ENODATA)
		return KILN_E_FORMAT;
	return ki_status_from_errno(err);
}

enum kiln_status ki_sycl_describe(const struct ki_sys *sys, const char *path,
				  struct kiln_sycl_source *out_source)
{
	uint64_t size = 0;
	int fd, err;

	memset(out_source, 0, sizeof(*out_source));
	fd = open_file(sys, path, &size);
	if (fd < 0)
		return ki_status_from_errno(fd);
	out_source->file_size = size;
	err = describe_source(sys, fd, out_source);
	(void)sys->close(sys, fd);
	if (err) {
		memset(out_source, 0, sizeof(*out_source));
		out_source->file_size = size;
	}
	return status_of(err);
}

enum kiln_status kiln_sycl_describe_source(const char *path,
					   struct kiln_sycl_source *out_source)
{
	return ki_sycl_describe(&ki_sys_posix, path, out_source);
}

enum kiln_status kiln_sycl_describe_binary(const char *path,
					   struct kiln_sycl_binary *out_binary)
{
	const struct ki_sys *sys = &ki_sys_posix;
	struct ki_sycl_span span;
	int fd, err;

	memset(out_binary, 0, sizeof(*out_binary));
	fd = open_file(sys, path, &out_binary->file_size);
	if (fd < 0)
		return ki_status_from_errno(fd);
	err = ki_sycl_find_binary(sys, fd, out_binary->file_size, &span);
	(void)sys->close(sys, fd);
	if (!err) {
		out_binary->first = span_of(&span);
		out_binary->n = span.n ? span.n : 1;
	}
	return status_of(err);
}
