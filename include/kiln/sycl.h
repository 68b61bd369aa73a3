/* SPDX-License-Identifier: MIT */
#ifndef KILN_SYCL_H
#define KILN_SYCL_H

/*
 * What the two files of an entry say in the directory of DPC++'s persistent cache:
 * for tools.  docs/formats/sycl.md has the bytes.
 */

#include <stddef.h>
#include <stdint.h>

#include <kiln/api.h>
#include <kiln/kiln.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where something lies in a file. */
struct kiln_sycl_span {
	uint64_t offset;
	uint64_t size;
};

/* Of <n>.src: what the binary was made of. */
struct kiln_sycl_source {
	uint64_t file_size;
	struct kiln_sycl_span device, options, constants, images;
	char device_text[256]; /* cut if it is longer, as the next */
	char options_text[1024];
};

/* Of <n>.bin. */
struct kiln_sycl_binary {
	uint64_t file_size;
	struct kiln_sycl_span first;
	uint64_t n; /* binaries in it */
};

/*
 * Say what an entry is made of.  KILN_OK, KILN_MISS (no file, or no regular
 * one; links are not followed), KILN_E_FORMAT if its sizes are not those of
 * the file, of which only `file_size` is then said, KILN_E_IO.  No size is
 * believed, and no time of access left behind.
 */
KILN_API enum kiln_status kiln_sycl_describe_source(
	const char *path, struct kiln_sycl_source *out_source);
KILN_API enum kiln_status kiln_sycl_describe_binary(
	const char *path, struct kiln_sycl_binary *out_binary);

#ifdef __cplusplus
}
#endif
#endif /* KILN_SYCL_H */
