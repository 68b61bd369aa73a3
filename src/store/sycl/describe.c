/* SPDX-License-Identifier: MIT */

/*
 * What can be told of an entry of DPC++'s by its .src: device, options, and how
 * long constants and images are.  What has none, or one that does not add up, says
 * nothing.
 */

#include "store/sycl/sycl.h"

#include <string.h>

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

int ki_sycl_describe(const struct ki_sycl *sycl, const char *stem,
		     struct ki_sycl_description *out_description)
{
	const struct ki_sys *sys = sycl->sys;
	struct ki_sycl_description *is = out_description;
	struct ki_sycl_span spans[KI_SYCL_N_FIELDS];
	struct ki_file_info info = { 0 };
	char path[KI_PATH_MAX];
	int fd, err = ki_sycl_path_of(sycl, stem, ".src", path);

	memset(is, 0, sizeof(*is));
	fd = err ? err
		 : sys->open(sys, path,
			     KI_OPEN_READ | KI_OPEN_NOFOLLOW | KI_OPEN_NO_ATIME,
			     0);
	if (fd < 0)
		return fd;
	err = sys->fmeasure(sys, fd, &info);
	if (!err)
		err = ki_sycl_find_fields(sys, fd, info.size, spans);
	if (!err)
		err = copy_text(sys, fd, &spans[KI_SYCL_DEVICE], is->device,
				sizeof(is->device));
	if (!err)
		err = copy_text(sys, fd, &spans[KI_SYCL_OPTIONS], is->options,
				sizeof(is->options));
	if (!err) {
		is->spec_size = spans[KI_SYCL_SPEC].size;
		is->image_size = spans[KI_SYCL_IMAGE].size;
	}
	(void)sys->close(sys, fd);
	return err;
}
