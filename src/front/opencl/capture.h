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

/* More devices have no entry. */
#define KI_CL_DEVICES_MAX 1024

/* Stages: only a higher one replaces an entry. */
enum ki_cl_stage {
	KI_CL_STAGE_EARLY = 0, /* fetched before the first launch */
	KI_CL_STAGE_FULL = 1,  /* with what launches specialised */
};

/* The stage of the entry that this metadata is of. */
uint64_t ki_cl_stage_of(const struct kiln_blob *metadata);

/*
 * Fetch the binaries of a program whose last build was for these devices, in
 * the program's order, and pack them.  This may take the driver seconds: never
 * inside a build call.  KILN_E_UNSUPPORTED if the driver has no binary for one
 * of them.
 */
enum kiln_status ki_cl_fetch(const cl_icd_dispatch *calls, cl_program program,
			     const cl_device_id *devices, cl_uint n_devices,
			     struct ki_bytes *out_value);

/*
 * What only a program that was built, compiled or linked can tell: logs and
 * kernels (objects and libraries have none), added to metadata.  Cheap; makes
 * and releases kernel handles of `program`.  KILN_E_UNSUPPORTED if the logs
 * were added but the driver would not tell of its kernels: an entry may do
 * without them.
 */
enum kiln_status ki_cl_describe(const cl_icd_dispatch *calls,
				cl_program program, const cl_device_id *devices,
				cl_uint n_devices,
				struct kiln_metadata *metadata);

/* The same from what somebody fetched already: n binaries (those not wanted
   may be NULL), of these sizes, for as many devices as the driver said. */
enum kiln_status ki_cl_pack_fetched(const cl_icd_dispatch *calls,
				    cl_program program,
				    const cl_device_id *devices,
				    cl_uint n_devices,
				    const unsigned char *const *binaries,
				    const size_t *sizes, cl_uint n,
				    struct ki_bytes *out_value);

/* The same from the binaries of exactly these devices, all of size > 0. */
enum kiln_status ki_cl_pack(const unsigned char *const *binaries,
			    const size_t *sizes, cl_uint n_devices,
			    struct ki_bytes *out_value);

/* Take a value apart: pointers into it.  KILN_OK, KILN_E_FORMAT. */
enum kiln_status ki_cl_unpack(const void *value, size_t size, cl_uint n_devices,
			      const unsigned char **out_binaries,
			      size_t *out_sizes);

/*
 * Put an entry, unless one of this stage or a higher one is there
 * (KILN_EXISTS), and keep its key record for telling why later look-ups miss.
 * Adds KILN_META_STAGE and KILN_META_FRONT to the metadata.  Errors: those of
 * kiln_put().
 */
enum kiln_status ki_cl_publish(struct kiln *kiln, const struct kiln_key *key,
			       const void *value, size_t size,
			       struct kiln_metadata *metadata,
			       enum ki_cl_stage stage);

/* ---- What ki_cl_describe() wrote, read again --------------------------------- */

/* What the driver answered to a query; data points into the metadata. */
struct ki_cl_answer {
	cl_int result;
	const void *data; /* empty unless CL_SUCCESS */
	size_t size;
};

/* The log of a device, by its place in the key.  KILN_OK, KILN_E_FORMAT. */
enum kiln_status ki_cl_described_log(const void *logs, size_t size,
				     cl_uint device,
				     struct ki_cl_answer *out_answer);

/* CL_PROGRAM_KERNEL_NAMES.  KILN_OK, KILN_E_FORMAT. */
enum kiln_status ki_cl_described_names(const void *kernels, size_t size,
				       struct ki_cl_answer *out_answer);

/* Of one kernel, by name: KILN_OK, KILN_MISS (no such kernel, argument or
   device), KILN_E_FORMAT. */
enum kiln_status ki_cl_described_attributes(const void *kernels, size_t size,
					    const char *kernel,
					    struct ki_cl_answer *out_answer);
/* Three little-endian 64-bit numbers. */
enum kiln_status ki_cl_described_work_group(const void *kernels, size_t size,
					    const char *kernel, cl_uint device,
					    struct ki_cl_answer *out_answer);
/* `what` is CL_KERNEL_ARG_*. */
enum kiln_status ki_cl_described_arg(const void *kernels, size_t size,
				     const char *kernel, cl_uint arg,
				     cl_kernel_arg_info what,
				     struct ki_cl_answer *out_answer);
/* Whether KILN_META_KERNELS of one program have each answer of those of another
   that was not refused. */
int ki_cl_described_covers(const void *wanted, size_t wanted_size,
			   const void *told, size_t told_size);

#endif /* KI_FRONT_OPENCL_CAPTURE_H */
