/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_CL_CL_H
#define KI_FRONT_CL_CL_H

/* The inside of <kiln/front/opencl.h>, for the files of this folder. */

#include <kiln/front/opencl.h>
#include <kiln/inspect.h>

#include "front/opencl/key.h"

struct kiln_cl {
	/* Fixed after opening. */
	cl_context context;
	cl_platform_id platform;
	cl_device_id *devices; /* of the context */
	cl_uint n_devices;
	cl_icd_dispatch calls;
	struct ki_cl_identities *identities;
	struct kiln *own; /* opened here, or NULL */
	struct kiln_config *config;
	kiln_log_fn *log;
	void *log_arg;
	struct kiln_programs *programs;
};

/*
 * One call's build: what the runtime's functions have by the image's `user`.
 * The key is that of docs/formats/opencl-key.md; NULL where there can be none.
 */
struct ki_cl_order {
	struct kiln_cl *cl;
	const struct kiln_cl_build *build;
	const cl_device_id *devices;
	cl_uint n_devices;
	struct kiln_key *key;
	uint64_t stamp;	  /* of the files that it includes */
	int is_kept;	  /* what comes of it may be another's */
	int is_overtaken; /* files changed while the driver read them */
};

/* ---- order.c --------------------------------------------------------------- */

/* KILN_OK, also without a key; INVALID, NO_MEMORY. */
enum kiln_status ki_cl_order_init(struct ki_cl_order *order, struct kiln_cl *cl,
				  const struct kiln_cl_build *build);
void ki_cl_order_fini(struct ki_cl_order *order);
/* Whether the key would be the same now. */
int ki_cl_order_is_current(const struct ki_cl_order *order);

/* ---- runtime.c ------------------------------------------------------------- */

/* OpenCL as the program cache wants it. */
void ki_cl_runtime(struct kiln_cl *cl, struct kiln_program_runtime *out);
/* Of a call that failed. */
enum kiln_build_kind ki_cl_failed(struct kiln_program_failure *failure,
				  cl_int code, const char *message);

#endif /* KI_FRONT_CL_CL_H */
