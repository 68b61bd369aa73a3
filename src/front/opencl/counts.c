/* SPDX-License-Identifier: MIT */

/*
 * Reference counts of what a shadow holds besides its program: the context,
 * and with some drivers the devices.  An application sees them as if there
 * were no shadows.
 */

#include "front/opencl/layer.h"

#include <string.h>

static cl_uint context_count(cl_context context)
{
	cl_uint n = 0;

	(void)ki_cl_next.clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT,
					  sizeof(n), &n, NULL);
	return n;
}

static cl_uint device_count(cl_device_id device)
{
	cl_uint n = 0;

	(void)ki_cl_next.clGetDeviceInfo(device, CL_DEVICE_REFERENCE_COUNT,
					 sizeof(n), &n, NULL);
	return n;
}

/* Whether this driver's contexts, or devices, count their programs: seen by
   making one.  Other threads can blur that, but then they blur the count as
   well. */
static int counts_programs(cl_context context, cl_device_id device)
{
	const char *nothing = "\n";
	cl_uint without =
		device ? device_count(device) : context_count(context);
	cl_program program = ki_cl_next.clCreateProgramWithSource(
		context, 1, &nothing, NULL, NULL);
	cl_uint with;

	if (!program)
		return 0;
	with = device ? device_count(device) : context_count(context);
	(void)ki_cl_next.clReleaseProgram(program);
	return with > without;
}

static void take_off(void *count, cl_uint n)
{
	cl_uint value;

	memcpy(&value, count, sizeof(value));
	value -= n;
	memcpy(count, &value, sizeof(value));
}

cl_int CL_API_CALL ki_clGetContextInfo(cl_context context,
				       cl_context_info param_name,
				       size_t param_value_size,
				       void *param_value,
				       size_t *param_value_size_ret)
{
	cl_int result = ki_cl_next.clGetContextInfo(
		context, param_name, param_value_size, param_value,
		param_value_size_ret);
	cl_uint n;

	if (result || param_name != CL_CONTEXT_REFERENCE_COUNT || !param_value)
		return result;
	n = ki_cl_shadows_in(context);
	if (n && counts_programs(context, NULL))
		take_off(param_value, n);
	return result;
}

cl_int CL_API_CALL ki_clGetDeviceInfo(cl_device_id device,
				      cl_device_info param_name,
				      size_t param_value_size,
				      void *param_value,
				      size_t *param_value_size_ret)
{
	cl_int result =
		ki_cl_next.clGetDeviceInfo(device, param_name, param_value_size,
					   param_value, param_value_size_ret);
	struct ki_cl_shadow *one;
	cl_uint n;

	if (result || param_name != CL_DEVICE_REFERENCE_COUNT || !param_value)
		return result;
	n = ki_cl_shadows_on(device, &one);
	if (!n)
		return result;
	if (counts_programs(one->context, device))
		take_off(param_value, n);
	ki_cl_shadow_unref(one);
	return result;
}
