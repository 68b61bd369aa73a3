/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_OPENCL_LAYERS_H
#define KI_FRONT_OPENCL_LAYERS_H

/*
 * The OpenCL layers between ours and the driver.  A loader puts each layer in
 * front of those before it, so what stands before ours in OPENCL_LAYERS is
 * below us: it sees our calls and may change what a build means.
 */

#include "front/image.h"
#include "front/opencl/options.h"

/*
 * Layers below ours, nearest first, as paths.  `own` is our image; NULL if we
 * are not a layer here (all are below then).  0, -errno.
 */
int ki_cl_layers_below(const struct ki_sys *sys, const struct ki_images *images,
		       const struct ki_image *own,
		       struct ki_cl_words *out_paths);

/* The entries of OPENCL_LAYERS in a block of NAME=VALUE strings, of which
   ocl-icd may have cut the list in pieces. */
int ki_cl_layers_listed(const char *block, size_t size,
			struct ki_cl_words *out_paths);

#endif /* KI_FRONT_OPENCL_LAYERS_H */
