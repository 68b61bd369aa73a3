/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_OPENCL_PARTS_H
#define KI_FRONT_OPENCL_PARTS_H

/* The files that belong to a compiler besides the libraries it links. */

#include "front/opencl/driver.h"
#include "front/opencl/image.h"
#include "sys/sys.h"

#define KI_CL_PART_FILES_MAX 512

struct ki_cl_part_file {
	const struct ki_cl_part *part;
	char *path;
	const char *name; /* its last part */
	struct ki_file_info info;
	/* "" until it is asked for, when the part is PER_DEVICE. */
	char identity[KI_CL_IDENTITY_BYTES];
};

struct ki_cl_part_files {
	struct ki_cl_part_file *files; /* by part, then by name */
	size_t n;
};

/*
 * Find and identify the files of a driver whose library is `library`.  0;
 * -ENOENT if one that it needs is not there; other errors.
 */
int ki_cl_parts_find(const struct ki_sys *sys,
		     const struct ki_cl_driver_row *row, const char *library,
		     struct ki_cl_part_files *out_files);
void ki_cl_parts_fini(struct ki_cl_part_files *files);

/* A number for the variables by which this driver's programs are found. */
uint64_t ki_cl_parts_variables(const struct ki_cl_driver_row *row);

int ki_cl_part_identify(const struct ki_sys *sys,
			const struct ki_cl_part_file *file,
			char out[KI_CL_IDENTITY_BYTES]);

/* Whether a file is no longer the one that was identified.  Looks only. */
int ki_cl_parts_changed(const struct ki_sys *sys,
			const struct ki_cl_part_files *files);

/*
 * Whether a library was loaded that was not identified on disk: one whose name
 * fits a part, with another identity than all files.
 */
int ki_cl_parts_loaded_otherwise(const struct ki_sys *sys,
				 const struct ki_cl_driver_row *row,
				 const struct ki_cl_part_files *files,
				 const struct ki_cl_images *images);

#endif /* KI_FRONT_OPENCL_PARTS_H */
