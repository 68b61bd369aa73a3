/* SPDX-License-Identifier: MIT */

/*
 * Vendors' functions that look into a program: its variables, also read and
 * written as host pipes that are one value deep, where its kernels are, and
 * how many of them there are.
 */

#include <string.h>

#include "icd/icd.h"

/* The compiled program of a device; not counted, so not for long. */
static struct icd_unit *unit_of(cl_program program, cl_device_id device)
{
	struct icd_unit *unit = NULL;

	pthread_mutex_lock(&icd_mutex);
	for (cl_uint i = 0; i < program->n_devices; i++)
		if (program->devices[i] == device)
			unit = program->builds[i].unit;
	pthread_mutex_unlock(&icd_mutex);
	return unit;
}

static struct icd_variable *find(cl_program program, cl_device_id device,
				 const char *name, cl_int *out_status)
{
	struct icd_unit *unit;
	struct icd_variable *variable;

	*out_status = CL_INVALID_PROGRAM;
	if (!icd_is(program, ICD_PROGRAM))
		return NULL;
	*out_status = CL_INVALID_DEVICE;
	if (!icd_is(device, ICD_DEVICE))
		return NULL;
	unit = unit_of(program, device);
	*out_status = CL_INVALID_PROGRAM_EXECUTABLE;
	if (!unit)
		return NULL;
	*out_status = CL_INVALID_ARG_VALUE;
	variable = name ? icd_variable_find(unit, name, strlen(name)) : NULL;
	if (variable)
		*out_status = CL_SUCCESS;
	return variable;
}

static cl_int CL_API_CALL clGetDeviceGlobalVariablePointerINTEL(
	cl_device_id device, cl_program program, const char *name,
	size_t *out_size, void **out_pointer)
{
	cl_int status;
	struct icd_variable *variable = find(program, device, name, &status);

	icd_count("extension");
	if (status)
		return status;
	if (!out_pointer)
		return CL_INVALID_ARG_VALUE;
	if (out_size)
		*out_size = variable->type.element;
	*out_pointer = variable->data;
	return CL_SUCCESS;
}

static cl_int CL_API_CALL clGetDeviceFunctionPointerINTEL(cl_device_id device,
							  cl_program program,
							  const char *name,
							  cl_ulong *out_pointer)
{
	struct icd_unit *unit;

	icd_count("extension");
	if (!icd_is(program, ICD_PROGRAM))
		return CL_INVALID_PROGRAM;
	if (!icd_is(device, ICD_DEVICE))
		return CL_INVALID_DEVICE;
	unit = unit_of(program, device);
	for (unsigned i = 0; unit && i < unit->n_codes; i++)
		if (!strcmp(unit->codes[i].name, name)) {
			*out_pointer = (cl_ulong)(uintptr_t)&unit->codes[i];
			return CL_SUCCESS;
		}
	return unit ? CL_INVALID_ARG_VALUE : CL_INVALID_PROGRAM_EXECUTABLE;
}

static cl_int transfer(cl_command_queue queue, cl_program program,
		       const char *name, size_t size, size_t offset, void *to,
		       const void *from, cl_event *event)
{
	struct icd_variable *variable;
	cl_int status = CL_INVALID_COMMAND_QUEUE;

	icd_count("extension");
	if (!icd_is(queue, ICD_QUEUE))
		return status;
	variable = find(program, queue->device, name, &status);
	if (status)
		return status;
	if (offset > variable->type.element ||
	    size > variable->type.element - offset)
		return CL_INVALID_VALUE;
	if (to)
		memcpy(to, variable->data + offset, size);
	else if (from)
		memcpy(variable->data + offset, from, size);
	else
		return CL_INVALID_VALUE;
	return icd_done(queue, CL_COMMAND_USER, event);
}

static cl_int CL_API_CALL clEnqueueReadGlobalVariableINTEL(
	cl_command_queue queue, cl_program program, const char *name,
	cl_bool blocking, size_t size, size_t offset, void *data,
	cl_uint n_waits, const cl_event *waits, cl_event *event)
{
	return transfer(queue, program, name, size, offset, data, NULL, event);
}

static cl_int CL_API_CALL clEnqueueWriteGlobalVariableINTEL(
	cl_command_queue queue, cl_program program, const char *name,
	cl_bool blocking, size_t size, size_t offset, const void *data,
	cl_uint n_waits, const cl_event *waits, cl_event *event)
{
	return transfer(queue, program, name, size, offset, NULL, data, event);
}

static cl_int CL_API_CALL clEnqueueReadHostPipeINTEL(
	cl_command_queue queue, cl_program program, const char *name,
	cl_bool blocking, void *data, size_t size, cl_uint n_waits,
	const cl_event *waits, cl_event *event)
{
	return transfer(queue, program, name, size, 0, data, NULL, event);
}

static cl_int CL_API_CALL clEnqueueWriteHostPipeINTEL(
	cl_command_queue queue, cl_program program, const char *name,
	cl_bool blocking, const void *data, size_t size, cl_uint n_waits,
	const cl_event *waits, cl_event *event)
{
	return transfer(queue, program, name, size, 0, NULL, data, event);
}

/* The profile is how many kernels are alive. */
static cl_int CL_API_CALL clGetProfileDataDeviceIntelFPGA(
	cl_device_id device, cl_program program, cl_bool read_enqueue_kernels,
	cl_bool read_auto_enqueued, cl_bool clear_counters, size_t size,
	void *value, size_t *out_size, cl_int *errcode_ret)
{
	cl_int status = CL_INVALID_PROGRAM;
	cl_uint n;

	icd_count("extension");
	if (icd_is(program, ICD_PROGRAM)) {
		pthread_mutex_lock(&icd_mutex);
		n = program->n_kernels;
		pthread_mutex_unlock(&icd_mutex);
		status = icd_answer_uint(n, size, value, out_size);
	}
	if (errcode_ret)
		*errcode_ret = status;
	return status;
}

/* An extension of ours that nobody's list knows. */
static cl_int CL_API_CALL clCountProgramKernelsKILN(cl_program program,
						    cl_uint *out_count)
{
	size_t count;
	cl_int status = clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS,
					 sizeof(count), &count, NULL);

	icd_count("extension");
	if (!status)
		*out_count = (cl_uint)count;
	return status;
}

void *icd_extension(const char *name)
{
#define FUNCTION(name)                                                         \
	{                                                                      \
#name, (void *)name                                            \
	}
	static const struct {
		const char *name;
		void *address;
	} functions[] = {
		FUNCTION(clGetDeviceGlobalVariablePointerINTEL),
		FUNCTION(clGetDeviceFunctionPointerINTEL),
		FUNCTION(clEnqueueReadGlobalVariableINTEL),
		FUNCTION(clEnqueueWriteGlobalVariableINTEL),
		FUNCTION(clEnqueueReadHostPipeINTEL),
		FUNCTION(clEnqueueWriteHostPipeINTEL),
		FUNCTION(clGetProfileDataDeviceIntelFPGA),
		FUNCTION(clCountProgramKernelsKILN),
	};
#undef FUNCTION

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		if (!strcmp(functions[i].name, name))
			return functions[i].address;
	return NULL;
}
