/* SPDX-License-Identifier: MIT */
#ifndef KI_WORKER_LOADER_H
#define KI_WORKER_LOADER_H

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_icd.h>

/*
 * Load the OpenCL loader, which loads the drivers, and fill in what building
 * and capturing call; other entries stay as they are.  0, or -ENOENT with the
 * reason in *out_why.  It stays loaded.
 */
int ki_worker_load(cl_icd_dispatch *calls, const char **out_why);

#endif /* KI_WORKER_LOADER_H */
