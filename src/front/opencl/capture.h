/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_OPENCL_CAPTURE_H
#define KI_FRONT_OPENCL_CAPTURE_H

/*
 * From a built program to an entry and back (docs/formats/opencl-entry.md).
 *
 * Value: the driver's binaries, one for each device of the key, framed.
 * Metadata: the build log for each device, and what a binary may not tell of
 * its kernels (attributes, argument information with return codes, compile
 * work-group sizes), in KILN_META_BUILD_LOG and KILN_META_KERNELS.
 */

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_icd.h>

#include <kiln/kiln.h>

#include "base/bytes.h"

/* Stages: only a higher one replaces an entry. */
enum ki_cl_stage {
	KI_CL_STAGE_EARLY = 0,	/* fetched before the first launch */
	KI_CL_STAGE_FULL = 1,	/* with what launches specialised */
};

/*
 * Fetch the binaries of a program that is built for these devices and pack
 * them.  This may take the driver seconds: never inside a build call.
 * KILN_E_UNSUPPORTED if the driver has no binary for one of them.
 */
enum kiln_status ki_cl_fetch(const cl_icd_dispatch *calls, cl_program program,
			     const cl_device_id *devices, cl_uint n_devices,
			     struct ki_bytes *out_value);

/*
 * What only the built program can tell: logs and kernels, added to metadata.
 * Cheap; makes and releases kernel handles of `program`.
 */
enum kiln_status ki_cl_describe(const cl_icd_dispatch *calls,
				cl_program program,
				const cl_device_id *devices, cl_uint n_devices,
				struct kiln_metadata *metadata);

/* Take a value apart: pointers into it.  KILN_OK, KILN_E_FORMAT. */
enum kiln_status ki_cl_unpack(const void *value, size_t size,
			      cl_uint n_devices,
			      const unsigned char **out_binaries,
			      size_t *out_sizes);

#endif /* KI_FRONT_OPENCL_CAPTURE_H */
