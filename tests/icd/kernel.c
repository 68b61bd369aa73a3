/* SPDX-License-Identifier: MIT */

/*
 * Kernels.  A kernel holds its program, visibly: the program's reference count
 * rises, as with PoCL.
 */

#include <stdlib.h>
#include <string.h>

#include "icd/icd.h"

static cl_kernel refuse(cl_int *errcode_ret, cl_int status)
{
	if (errcode_ret)
		*errcode_ret = status;
	return NULL;
}

static const struct icd_code *find(const struct icd_unit *unit,
				   const char *name)
{
	for (unsigned i = 0; i < unit->n_codes; i++)
		if (!strcmp(unit->codes[i].name, name))
			return &unit->codes[i];
	return NULL;
}

static bool is_executable(const struct icd_build *build)
{
	return build->status == CL_BUILD_SUCCESS && build->unit &&
	       build->unit->type == CL_PROGRAM_BINARY_TYPE_EXECUTABLE;
}

/* The kernel's code for each device; under the mutex. */
static cl_int fill_locked(cl_kernel kernel, const char *name)
{
	cl_program program = kernel->program;
	bool built = false;

	for (cl_uint i = 0; i < program->n_devices; i++) {
		struct icd_build *build = icd_program_build(program, i);
		const struct icd_code *code;
		if (!is_executable(build))
			continue;
		built = true;
		code = find(build->unit, name);
		if (!code)
			return CL_INVALID_KERNEL_NAME;
		kernel->units[i] = icd_unit_ref(build->unit);
		if (!kernel->code)
			kernel->code = code;
	}
	return built ? CL_SUCCESS : CL_INVALID_PROGRAM_EXECUTABLE;
}

static void kernel_free(cl_kernel kernel)
{
	for (cl_uint i = 0; i < ICD_DEVICES_MAX; i++)
		icd_unit_unref(kernel->units[i]);
	free(kernel);
}

cl_kernel CL_API_CALL clCreateKernel(cl_program program, const char *name,
				     cl_int *errcode_ret)
{
	cl_kernel kernel;
	cl_int status;

	if (!icd_is(program, ICD_PROGRAM))
		return refuse(errcode_ret, CL_INVALID_PROGRAM);
	if (!name)
		return refuse(errcode_ret, CL_INVALID_VALUE);
	kernel = icd_new(ICD_KERNEL, sizeof(*kernel));
	if (!kernel)
		return refuse(errcode_ret, CL_OUT_OF_HOST_MEMORY);
	kernel->program = program;
	pthread_mutex_lock(&icd_mutex);
	status = fill_locked(kernel, name);
	program->n_kernels += !status;
	pthread_mutex_unlock(&icd_mutex);
	refuse(errcode_ret, status);
	if (status) {
		kernel_free(kernel);
		return NULL;
	}
	icd_ref(program);
	icd_count("create-kernel %s", name);
	return kernel;
}

/* What stands for a kernel that cannot be made: nothing, or a handle that
   crashes when it is asked. */
static cl_kernel hidden(cl_program program, unsigned hiding)
{
	cl_kernel kernel =
		hiding > 1 ? icd_new(ICD_KERNEL, sizeof(*kernel)) : NULL;

	if (!kernel)
		return NULL;
	icd_ref(program);
	kernel->program = program;
	pthread_mutex_lock(&icd_mutex);
	program->n_kernels++;
	pthread_mutex_unlock(&icd_mutex);
	return kernel;
}

cl_int CL_API_CALL clCreateKernelsInProgram(cl_program program, cl_uint size,
					    cl_kernel *kernels,
					    cl_uint *out_size)
{
	struct icd_unit *unit = NULL;
	unsigned hiding = icd_number("HIDE_KERNEL", 0);
	cl_int status = CL_SUCCESS;
	cl_uint n = 0;

	if (!icd_is(program, ICD_PROGRAM))
		return CL_INVALID_PROGRAM;
	pthread_mutex_lock(&icd_mutex);
	for (cl_uint i = 0; i < program->n_devices && !unit; i++)
		if (is_executable(icd_program_build(program, i)))
			unit = icd_unit_ref(
				icd_program_build(program, i)->unit);
	pthread_mutex_unlock(&icd_mutex);
	if (!unit)
		return CL_INVALID_PROGRAM_EXECUTABLE;
	if (kernels && size < unit->n_codes)
		status = CL_INVALID_VALUE;
	while (kernels && !status && n < unit->n_codes) {
		kernels[n] =
			n + 1 == unit->n_codes && hiding
				? hidden(program, hiding)
				: clCreateKernel(program, unit->codes[n].name,
						 &status);
		n += !status;
	}
	while (status && n)
		if (kernels[--n])
			clReleaseKernel(kernels[n]);
	if (!status && out_size)
		*out_size = unit->n_codes;
	icd_unit_unref(unit);
	return status;
}

cl_kernel CL_API_CALL clCloneKernel(cl_kernel source, cl_int *errcode_ret)
{
	cl_kernel kernel;

	if (!icd_is(source, ICD_KERNEL))
		return refuse(errcode_ret, CL_INVALID_KERNEL);
	kernel = icd_new(ICD_KERNEL, sizeof(*kernel));
	if (!kernel)
		return refuse(errcode_ret, CL_OUT_OF_HOST_MEMORY);
	kernel->program = source->program;
	kernel->code = source->code;
	for (cl_uint i = 0; i < ICD_DEVICES_MAX; i++)
		kernel->units[i] = icd_unit_ref(source->units[i]);
	pthread_mutex_lock(&icd_mutex);
	memcpy(kernel->values, source->values, sizeof(kernel->values));
	kernel->program->n_kernels++;
	pthread_mutex_unlock(&icd_mutex);
	icd_ref(kernel->program);
	refuse(errcode_ret, CL_SUCCESS);
	return kernel;
}

cl_int CL_API_CALL clRetainKernel(cl_kernel kernel)
{
	if (!icd_is(kernel, ICD_KERNEL))
		return CL_INVALID_KERNEL;
	icd_ref(kernel);
	return CL_SUCCESS;
}

cl_int CL_API_CALL clReleaseKernel(cl_kernel kernel)
{
	cl_program program;

	if (!icd_is(kernel, ICD_KERNEL))
		return CL_INVALID_KERNEL;
	program = kernel->program;
	if (!icd_unref(kernel))
		return CL_SUCCESS;
	kernel_free(kernel);
	pthread_mutex_lock(&icd_mutex);
	program->n_kernels--;
	pthread_mutex_unlock(&icd_mutex);
	icd_program_unref(program);
	return CL_SUCCESS;
}

static cl_int set_buffer(struct icd_value *value,
			 const struct icd_argument *arg, size_t size,
			 const void *data)
{
	cl_mem mem = NULL;

	if (arg->address == CL_KERNEL_ARG_ADDRESS_LOCAL) {
		if (data || !size)
			return data ? CL_INVALID_ARG_VALUE
				    : CL_INVALID_ARG_SIZE;
		value->size = size;
		value->set = true;
		return CL_SUCCESS;
	}
	if (size != sizeof(mem))
		return CL_INVALID_ARG_SIZE;
	if (data)
		memcpy(&mem, data, sizeof(mem));
	if (mem && !icd_is(mem, ICD_MEM))
		return CL_INVALID_MEM_OBJECT;
	value->mem = mem;
	value->set = true;
	return CL_SUCCESS;
}

cl_int CL_API_CALL clSetKernelArg(cl_kernel kernel, cl_uint index, size_t size,
				  const void *data)
{
	const struct icd_argument *arg;
	struct icd_value value = { .size = size };
	cl_int status = CL_SUCCESS;

	if (!icd_is(kernel, ICD_KERNEL))
		return CL_INVALID_KERNEL;
	if (index >= kernel->code->n_arguments)
		return CL_INVALID_ARG_INDEX;
	arg = &kernel->code->arguments[index];
	if (arg->pointer) {
		status = set_buffer(&value, arg, size, data);
	} else if (size != arg->element) {
		status = CL_INVALID_ARG_SIZE;
	} else if (!data) {
		status = CL_INVALID_ARG_VALUE;
	} else {
		memcpy(value.bytes, data, size);
		value.set = true;
	}
	if (status)
		return status;
	pthread_mutex_lock(&icd_mutex);
	kernel->values[index] = value;
	pthread_mutex_unlock(&icd_mutex);
	return CL_SUCCESS;
}

/* ---- Questions ---------------------------------------------------------- */

/* A handle that stands for a kernel that cannot be made. */
static void crash_if_hidden(cl_kernel kernel)
{
	if (!kernel->code)
		abort();
}

cl_int CL_API_CALL clGetKernelInfo(cl_kernel kernel, cl_kernel_info what,
				   size_t size, void *value, size_t *out_size)
{
	if (!icd_is(kernel, ICD_KERNEL))
		return CL_INVALID_KERNEL;
	crash_if_hidden(kernel);
	switch (what) {
	case CL_KERNEL_FUNCTION_NAME:
		return icd_answer_string(kernel->code->name, size, value,
					 out_size);
	case CL_KERNEL_NUM_ARGS:
		return icd_answer_uint(kernel->code->n_arguments, size, value,
				       out_size);
	case CL_KERNEL_REFERENCE_COUNT:
		return icd_answer_uint(atomic_load(&kernel->head.refs), size,
				       value, out_size);
	case CL_KERNEL_CONTEXT:
		return icd_answer_pointer(kernel->program->context, size, value,
					  out_size);
	case CL_KERNEL_PROGRAM:
		return icd_answer_pointer(kernel->program, size, value,
					  out_size);
	case CL_KERNEL_ATTRIBUTES:
		return icd_answer_string(kernel->code->attributes, size, value,
					 out_size);
	default:
		return CL_INVALID_VALUE;
	}
}

static bool tells_arguments(cl_kernel kernel)
{
	for (cl_uint i = 0; i < ICD_DEVICES_MAX; i++)
		if (kernel->units[i])
			return kernel->units[i]->tells_arguments;
	return false;
}

cl_int CL_API_CALL clGetKernelArgInfo(cl_kernel kernel, cl_uint index,
				      cl_kernel_arg_info what, size_t size,
				      void *value, size_t *out_size)
{
	const struct icd_argument *arg;

	if (!icd_is(kernel, ICD_KERNEL))
		return CL_INVALID_KERNEL;
	crash_if_hidden(kernel);
	if (index >= kernel->code->n_arguments)
		return CL_INVALID_ARG_INDEX;
	if (!tells_arguments(kernel))
		return CL_KERNEL_ARG_INFO_NOT_AVAILABLE;
	arg = &kernel->code->arguments[index];
	switch (what) {
	case CL_KERNEL_ARG_ADDRESS_QUALIFIER:
		return icd_answer_uint(arg->address, size, value, out_size);
	case CL_KERNEL_ARG_ACCESS_QUALIFIER:
		return icd_answer_uint(CL_KERNEL_ARG_ACCESS_NONE, size, value,
				       out_size);
	case CL_KERNEL_ARG_TYPE_QUALIFIER:
		return icd_answer_ulong(arg->qualifiers, size, value, out_size);
	case CL_KERNEL_ARG_TYPE_NAME:
		return icd_answer_string(arg->type, size, value, out_size);
	case CL_KERNEL_ARG_NAME:
		return icd_answer_string(arg->name, size, value, out_size);
	default:
		return CL_INVALID_VALUE;
	}
}

static int only_device(cl_kernel kernel)
{
	int found = -1;

	for (cl_uint i = 0; i < kernel->program->n_devices; i++) {
		if (!kernel->units[i])
			continue;
		if (found >= 0)
			return -1;
		found = (int)i;
	}
	return found;
}

cl_int CL_API_CALL clGetKernelWorkGroupInfo(cl_kernel kernel,
					    cl_device_id device,
					    cl_kernel_work_group_info what,
					    size_t size, void *value,
					    size_t *out_size)
{
	static const size_t untold[3];
	int index = -1;

	if (!icd_is(kernel, ICD_KERNEL))
		return CL_INVALID_KERNEL;
	crash_if_hidden(kernel);
	if (!device)
		index = only_device(kernel);
	for (cl_uint i = 0; device && i < kernel->program->n_devices; i++)
		if (kernel->program->devices[i] == device)
			index = (int)i;
	if (index < 0 || !kernel->units[index])
		return CL_INVALID_DEVICE;
	switch (what) {
	case CL_KERNEL_WORK_GROUP_SIZE:
		return icd_answer_size(256, size, value, out_size);
	case CL_KERNEL_COMPILE_WORK_GROUP_SIZE:
		return icd_answer(kernel->code->is_poor
					  ? untold
					  : kernel->code->work_group,
				  sizeof(untold), size, value, out_size);
	case CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE:
		return icd_answer_size(8, size, value, out_size);
	case CL_KERNEL_LOCAL_MEM_SIZE:
	case CL_KERNEL_PRIVATE_MEM_SIZE:
		return icd_answer_ulong(0, size, value, out_size);
	default:
		return CL_INVALID_VALUE;
	}
}

cl_int CL_API_CALL clGetKernelSubGroupInfo(cl_kernel kernel,
					   cl_device_id device,
					   cl_kernel_sub_group_info what,
					   size_t in_size, const void *in,
					   size_t size, void *value,
					   size_t *out_size)
{
	return icd_is(kernel, ICD_KERNEL) ? CL_INVALID_OPERATION
					  : CL_INVALID_KERNEL;
}

cl_int CL_API_CALL clSetKernelExecInfo(cl_kernel kernel,
				       cl_kernel_exec_info what, size_t size,
				       const void *value)
{
	return icd_is(kernel, ICD_KERNEL) ? CL_INVALID_OPERATION
					  : CL_INVALID_KERNEL;
}
