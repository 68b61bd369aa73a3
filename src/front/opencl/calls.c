/* SPDX-License-Identifier: MIT */

/*
 * The calls that make, keep and end programs and kernels.  A program that a
 * shadow answers for makes its kernels from that; everything else goes to the
 * driver as it came.
 */

#include "front/opencl/layer.h"

#include <stdlib.h>

cl_program CL_API_CALL ki_clCreateProgramWithSource(cl_context context,
						    cl_uint count,
						    const char **strings,
						    const size_t *lengths,
						    cl_int *errcode_ret)
{
	cl_program program = ki_cl_next.clCreateProgramWithSource(
		context, count, strings, lengths, errcode_ret);

	if (program)
		ki_cl_program_add(program, context,
				  ki_cl_source_new(count,
						   (const char *const *)strings,
						   lengths));
	return program;
}

/* Whether all devices were given what a link takes. */
static int is_linkable(cl_program program, cl_uint n_devices,
		       const cl_device_id *devices)
{
	cl_program_binary_type type;
	cl_uint i;

	for (i = 0; i < n_devices; i++)
		if (ki_cl_next.clGetProgramBuildInfo(
			    program, devices[i], CL_PROGRAM_BINARY_TYPE,
			    sizeof(type), &type, NULL) ||
		    (type != CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT &&
		     type != CL_PROGRAM_BINARY_TYPE_LIBRARY))
			return 0;
	return n_devices > 0;
}

/* What a call gave for each device. */
struct given {
	cl_uint n;
	const cl_device_id *devices;
	const size_t *sizes;
	const unsigned char **binaries;
};

/* In the program's order of devices, which need not be the call's; NULL if it
   does not have the same. */
static struct ki_cl_recipe *recipe_of(const struct ki_cl_program *program,
				      const struct given *given)
{
	cl_uint n = program->n_devices, i, j;
	const unsigned char **binaries = calloc(n, sizeof(*binaries));
	size_t *sizes = calloc(n, sizeof(*sizes));
	struct ki_cl_recipe *recipe = NULL;

	if (!binaries || !sizes || n != given->n)
		goto out;
	for (i = 0; i < n; i++) {
		for (j = 0; j < n; j++)
			if (given->devices[j] == program->devices[i])
				break;
		if (j == n)
			goto out;
		binaries[i] = given->binaries[j];
		sizes[i] = given->sizes[j];
	}
	recipe = ki_cl_recipe_binary((const unsigned char *const *)binaries,
				     sizes, n, 1, NULL);
out:
	free(binaries);
	free(sizes);
	return recipe;
}

/* The driver's alone, but known as what may be linked. */
static void add_object(cl_program handle, cl_context context,
		       const struct given *given)
{
	struct ki_cl_program *program = ki_cl_program_new(context, NULL);
	struct ki_cl_recipe *recipe = NULL;
	struct ki_cl_made *made = NULL;

	if (!program || !ki_cl_program_list(program, handle)) {
		ki_cl_program_forget(handle);
		goto out;
	}
	if (!ki_cl_program_devices(program))
		recipe = recipe_of(program, given);
	if (recipe)
		made = ki_cl_made_new(recipe, NULL, 0, NULL);
	ki_cl_program_become(program, 0, made);
out:
	ki_cl_program_unref(program);
	ki_cl_made_unref(made);
	ki_cl_recipe_unref(recipe);
}

cl_program CL_API_CALL ki_clCreateProgramWithBinary(
	cl_context context, cl_uint num_devices,
	const cl_device_id *device_list, const size_t *lengths,
	const unsigned char **binaries, cl_int *binary_status,
	cl_int *errcode_ret)
{
	const struct given given = { .n = num_devices,
				     .devices = device_list,
				     .sizes = lengths,
				     .binaries = binaries };
	cl_program program = ki_cl_next.clCreateProgramWithBinary(
		context, num_devices, device_list, lengths, binaries,
		binary_status, errcode_ret);

	if (program && is_linkable(program, num_devices, device_list))
		add_object(program, context, &given);
	else
		ki_cl_program_forget(program);
	return program;
}

cl_program CL_API_CALL ki_clCreateProgramWithBuiltInKernels(
	cl_context context, cl_uint num_devices,
	const cl_device_id *device_list, const char *kernel_names,
	cl_int *errcode_ret)
{
	cl_program program = ki_cl_next.clCreateProgramWithBuiltInKernels(
		context, num_devices, device_list, kernel_names, errcode_ret);

	ki_cl_program_forget(program);
	return program;
}

cl_program CL_API_CALL ki_clCreateProgramWithIL(cl_context context,
						const void *il, size_t length,
						cl_int *errcode_ret)
{
	cl_program program = ki_cl_next.clCreateProgramWithIL(
		context, il, length, errcode_ret);

	if (program)
		ki_cl_program_add(program, context,
				  ki_cl_source_new_il(il, length));
	return program;
}

cl_int CL_API_CALL ki_clSetProgramSpecializationConstant(cl_program handle,
							 cl_uint spec_id,
							 size_t spec_size,
							 const void *spec_value)
{
	struct ki_cl_program *program = ki_cl_program_get(handle);
	cl_int result;

	if (program)
		ki_cl_program_begin_set(program);
	result = ki_cl_next.clSetProgramSpecializationConstant(
		handle, spec_id, spec_size, spec_value);
	if (program && !result)
		ki_cl_program_constant(program, spec_id, spec_size, spec_value);
	if (program)
		ki_cl_program_end_set(program);
	ki_cl_program_unref(program);
	return result;
}

cl_int CL_API_CALL ki_clRetainProgram(cl_program handle)
{
	struct ki_cl_program *program = ki_cl_program_get(handle);
	cl_int result;

	if (!program)
		return ki_cl_next.clRetainProgram(handle);
	result = ki_cl_program_retain(program);
	ki_cl_program_unref(program);
	return result;
}

cl_int CL_API_CALL ki_clReleaseProgram(cl_program handle)
{
	struct ki_cl_program *program = ki_cl_program_get(handle);
	cl_int result;

	if (!program)
		return ki_cl_next.clReleaseProgram(handle);
	result = ki_cl_program_release(program);
	ki_cl_program_unref(program);
	return result;
}

/* Remember a new kernel.  Without memory it may be one of H's: the driver then
   knows best whether H can be built.  One of a shadow must not be given out.
   It is not asked anything: Oclgrind gives handles of kernels that it cannot
   run, and crashes when one of them is. */
static cl_int take_kernel(struct ki_cl_program *program,
			  struct ki_cl_shadow *shadow, cl_kernel kernel)
{
	if (!ki_cl_kernel_add(program, shadow, kernel))
		return CL_SUCCESS;
	if (shadow)
		return CL_OUT_OF_HOST_MEMORY;
	ki_cl_program_stay_native(program);
	return CL_SUCCESS;
}

/* A shadow's kernel could not be remembered: whether H can make it, of which
   it need not be. */
static int can_do_without(struct ki_cl_program *program,
			  const struct ki_cl_shadow *shadow)
{
	struct ki_cl_shadow *now = NULL;
	int can = !ki_cl_go_native(program);

	if (can)
		now = ki_cl_shadow_of(program);
	can = can && now != shadow;
	ki_cl_shadow_unref(now);
	return can;
}

/* *out_may_again: it was a shadow that lost it, which no longer answers. */
static cl_kernel create_kernel(cl_program handle, const char *name,
			       cl_int *out_result, int *out_may_again)
{
	struct ki_cl_program *program = ki_cl_program_get(handle);
	struct ki_cl_shadow *shadow = NULL;
	cl_program who = program ? ki_cl_answerer(program, &shadow) : handle;
	cl_kernel kernel = ki_cl_next.clCreateKernel(who, name, out_result);

	*out_may_again = 0;
	if (kernel && program) {
		*out_result = take_kernel(program, shadow, kernel);
		ki_cl_background_touch();
	}
	if (kernel && *out_result) {
		(void)ki_cl_next.clReleaseKernel(kernel);
		kernel = NULL;
		*out_may_again = can_do_without(program, shadow);
	}
	ki_cl_shadow_unref(shadow);
	ki_cl_program_unref(program);
	return kernel;
}

cl_kernel CL_API_CALL ki_clCreateKernel(cl_program handle,
					const char *kernel_name,
					cl_int *errcode_ret)
{
	cl_int result = CL_SUCCESS;
	int may_again;
	cl_kernel kernel =
		create_kernel(handle, kernel_name, &result, &may_again);

	if (may_again)
		kernel =
			create_kernel(handle, kernel_name, &result, &may_again);
	if (errcode_ret)
		*errcode_ret = result;
	return kernel;
}

/* All of them, or none. */
static cl_int take_kernels(struct ki_cl_program *program,
			   struct ki_cl_shadow *shadow, cl_kernel *kernels,
			   cl_uint n)
{
	cl_int result = CL_SUCCESS;
	cl_uint i;

	for (i = 0; i < n && !result; i++)
		if (kernels[i])
			result = take_kernel(program, shadow, kernels[i]);
	for (i = 0; i < n && result; i++) {
		if (kernels[i])
			(void)ki_cl_kernel_release(kernels[i]);
		kernels[i] = NULL;
	}
	return result;
}

/* The same as create_kernel(). */
static cl_int create_kernels(cl_program handle, cl_uint n_room,
			     cl_kernel *kernels, cl_uint *out_n,
			     int *out_may_again)
{
	struct ki_cl_program *program = ki_cl_program_get(handle);
	struct ki_cl_shadow *shadow = NULL;
	cl_program who = program ? ki_cl_answerer(program, &shadow) : handle;
	cl_int result = ki_cl_next.clCreateKernelsInProgram(who, n_room,
							    kernels, out_n);

	*out_may_again = 0;
	if (!result && kernels && program) {
		result = take_kernels(program, shadow, kernels, *out_n);
		*out_may_again = result && can_do_without(program, shadow);
		ki_cl_background_touch();
	}
	ki_cl_shadow_unref(shadow);
	ki_cl_program_unref(program);
	return result;
}

cl_int CL_API_CALL ki_clCreateKernelsInProgram(cl_program handle,
					       cl_uint num_kernels,
					       cl_kernel *kernels,
					       cl_uint *num_kernels_ret)
{
	cl_uint n = 0;
	int may_again;
	cl_int result =
		create_kernels(handle, num_kernels, kernels, &n, &may_again);

	if (may_again)
		result = create_kernels(handle, num_kernels, kernels, &n,
					&may_again);
	if (!result && num_kernels_ret)
		*num_kernels_ret = n;
	return result;
}

cl_int CL_API_CALL ki_clRetainKernel(cl_kernel kernel)
{
	return ki_cl_kernel_retain(kernel);
}

cl_int CL_API_CALL ki_clReleaseKernel(cl_kernel kernel)
{
	return ki_cl_kernel_release(kernel);
}

cl_kernel CL_API_CALL ki_clCloneKernel(cl_kernel source_kernel,
				       cl_int *errcode_ret)
{
	struct ki_cl_program *program;
	struct ki_cl_shadow *shadow;
	cl_int result = CL_SUCCESS;
	cl_kernel kernel = ki_cl_next.clCloneKernel(source_kernel, &result);

	if (kernel && ki_cl_kernel_of(source_kernel, &program, &shadow)) {
		result = take_kernel(program, shadow, kernel);
		ki_cl_shadow_unref(shadow);
		ki_cl_program_unref(program);
	}
	if (kernel && result) {
		(void)ki_cl_next.clReleaseKernel(kernel);
		kernel = NULL;
	}
	if (errcode_ret)
		*errcode_ret = result;
	return kernel;
}
