/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_OPENCL_IDENTITY_H
#define KI_FRONT_OPENCL_IDENTITY_H

/* What compiler, device and environment add to a key. */

#include "front/opencl/driver.h"
#include "front/opencl/include.h"
#include "front/opencl/key.h"

/*
 * Add "platform ...", "compiler ...", "device ...", "environment NAME" and
 * "layer N" for a build.  KILN_OK, KILN_E_UNSUPPORTED with the counter,
 * KILN_E_NO_MEMORY.
 */
enum kiln_status ki_cl_identity_add(struct ki_cl_identities *identities,
				    const struct ki_cl_build *build,
				    struct kiln_key *key,
				    enum kiln_counter *out_reason);

/* Scans of include files, shared by all builds. */
struct ki_cl_includes *ki_cl_identities_includes(
	struct ki_cl_identities *identities);

/* The row of the platform's driver. */
const struct ki_cl_driver_row *ki_cl_identities_row(
	struct ki_cl_identities *identities, cl_platform_id platform);

/* Paths of the headers that the driver puts before every source: borrowed,
   as long as the identities live. */
size_t ki_cl_identities_headers(struct ki_cl_identities *identities,
				cl_platform_id platform,
				const char *const **out_paths);

#endif /* KI_FRONT_OPENCL_IDENTITY_H */
