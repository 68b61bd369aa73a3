/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_OPENCL_DRIVER_H
#define KI_FRONT_OPENCL_DRIVER_H

/*
 * What is known of drivers, one row each.  A driver that has no row is not
 * cached: nobody has looked which libraries it loads late, which files it
 * reads and which variables change its code.
 */

#include "front/opencl/key.h"
#include "front/parts.h"
#include "sys/sys.h"

struct ki_cl_driver_row {
	struct ki_cl_driver driver;
	/* How it is recognised: by its library, "libNAME.so"; where the driver
	   does not tell where that is, by CL_PLATFORM_NAME too. */
	const char *library;
	const char *platform;
	const struct ki_part *parts;
	size_t n_parts;
	/* Variables that hold build options; they are among code_variables. */
	const char *const *option_variables;
	/* Variables that, set, end caching: they switch things that have no
	   row here. */
	const char *const *refused_variables;
	/* Where header programs are, in name only: the driver makes no file
	   there, but reads what others put there, before all else.
	   "$TMPDIR/NAME" is in the folder for temporary files.  NULL: none. */
	const char *header_folder;
	/* "NAME=VALUE": cached only where this variable is so; else the driver
	   shows people what comes from an entry.  NULL: always. */
	const char *needed_variable;
};

/* By a library's last path part; the row of unknown drivers if none fits. */
const struct ki_cl_driver_row *ki_cl_driver_of_library(const char *name);
/* By CL_PLATFORM_NAME, or NULL. */
const struct ki_cl_driver_row *ki_cl_driver_of_platform(const char *name);
int ki_cl_driver_is_known(const struct ki_cl_driver_row *row);

/*
 * Whether a device of this CL_DEVICE_NAME uses this builtin library: 1, 0, or
 * -1 if the name does not tell.
 */
int ki_cl_driver_uses(const struct ki_part *part, const char *file,
		      const char *device_name);

/*
 * The folders for temporary sources of this driver now: it looks there for
 * includes too.  Returns how many; paths into `out`.
 */
#define KI_CL_DRIVER_FOLDERS_MAX 2
size_t ki_cl_driver_folders(const struct ki_cl_driver_row *row,
			    char out[KI_CL_DRIVER_FOLDERS_MAX][KI_PATH_MAX]);

/* That of its row, now: whether it has one. */
int ki_cl_driver_header_folder(const struct ki_cl_driver_row *row,
			       char out[KI_PATH_MAX]);

#endif /* KI_FRONT_OPENCL_DRIVER_H */
