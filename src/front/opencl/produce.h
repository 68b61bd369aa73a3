/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_OPENCL_PRODUCE_H
#define KI_FRONT_OPENCL_PRODUCE_H

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_icd.h>

#include "front/opencl/recipe.h"

/*
 * Let a driver make what a recipe describes, with header programs and inputs of
 * its own for as long as the call takes.  *out_result is the driver's.  If it
 * is not CL_SUCCESS the program, if there is one, is the one whose log tells
 * why, which may be an input.  The program is the caller's to release.
 */
cl_program ki_cl_produce(const cl_icd_dispatch *calls, cl_platform_id platform,
			 const struct ki_cl_recipe *recipe, cl_context context,
			 const cl_device_id *devices, cl_uint n_devices,
			 cl_int *out_result);

#endif /* KI_FRONT_OPENCL_PRODUCE_H */
