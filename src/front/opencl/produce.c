/* SPDX-License-Identifier: MIT */

/*
 * From a recipe to a program.  A recipe has limits on its depth, so this may
 * recurse.
 */

#include "front/opencl/produce.h"

#include <stdlib.h>

#include <CL/cl_ext.h>

struct maker {
	const cl_icd_dispatch *calls;
	cl_platform_id platform;
	cl_context context;
	const cl_device_id *devices;
	cl_uint n_devices;
};

static void release(const struct maker *maker, cl_program program)
{
	if (program)
		(void)maker->calls->clReleaseProgram(program);
}

static void release_all(const struct maker *maker, cl_program *programs,
			cl_uint n)
{
	while (programs && n)
		release(maker, programs[--n]);
	free(programs);
}

/* ---- Sources ------------------------------------------------------------- */

/* Drivers before OpenCL 2.1 have it as an extension only. */
static cl_program from_il_by_extension(const struct maker *maker,
				       const struct ki_cl_source *source,
				       cl_int *out_result)
{
	union {
		void *address;
		clCreateProgramWithILKHR_fn call;
	} create;

	create.address = maker->calls->clGetExtensionFunctionAddressForPlatform(
		maker->platform, "clCreateProgramWithILKHR");
	if (!create.address)
		return NULL;
	return create.call(maker->context, source->il, source->il_size,
			   out_result);
}

static cl_program from_source(const struct maker *maker,
			      const struct ki_cl_source *source,
			      cl_int *out_result)
{
	cl_program program;

	if (!source->il)
		return maker->calls->clCreateProgramWithSource(
			maker->context, source->n_strings,
			(const char **)(uintptr_t)source->strings,
			source->lengths, out_result);
	program = maker->calls->clCreateProgramWithIL(
		maker->context, source->il, source->il_size, out_result);
	if (!program && *out_result == CL_INVALID_OPERATION)
		program = from_il_by_extension(maker, source, out_result);
	return program;
}

static cl_int set_constants(const struct maker *maker,
			    const struct ki_cl_recipe *recipe,
			    cl_program program)
{
	cl_int result = CL_SUCCESS;
	cl_uint i;

	for (i = 0; i < recipe->n_constants && !result; i++)
		result = maker->calls->clSetProgramSpecializationConstant(
			program, recipe->constants[i].id,
			recipe->constants[i].size, recipe->constants[i].value);
	return result;
}

static cl_int compile(const struct maker *maker,
		      const struct ki_cl_recipe *recipe, cl_program program)
{
	cl_uint n = recipe->n_headers, i;
	cl_program *headers = calloc((size_t)n + 1, sizeof(*headers));
	const char **names = calloc((size_t)n + 1, sizeof(*names));
	cl_int result = headers && names ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;

	for (i = 0; i < n && !result; i++) {
		names[i] = recipe->headers[i].name;
		headers[i] =
			from_source(maker, recipe->headers[i].source, &result);
	}
	if (!result)
		result = maker->calls->clCompileProgram(
			program, maker->n_devices, maker->devices,
			ki_cl_recipe_options(recipe), n, n ? headers : NULL,
			n ? names : NULL, NULL, NULL);
	release_all(maker, headers, n);
	free(names);
	return result;
}

static cl_program make_from_source(const struct maker *maker,
				   const struct ki_cl_recipe *recipe,
				   cl_int *out_result)
{
	cl_program program = from_source(maker, recipe->source, out_result);

	if (!program)
		return NULL;
	*out_result = set_constants(maker, recipe, program);
	if (!*out_result && recipe->kind == KI_CL_COMPILE)
		*out_result = compile(maker, recipe, program);
	else if (!*out_result)
		*out_result = maker->calls->clBuildProgram(
			program, maker->n_devices, maker->devices,
			ki_cl_recipe_options(recipe), NULL, NULL);
	return program;
}

/* ---- Binaries ------------------------------------------------------------ */

/* As it was created: a link takes it so, whatever its options. */
static cl_program from_binaries(const struct maker *maker,
				const struct ki_cl_recipe *recipe,
				cl_int *out_result)
{
	cl_uint n = recipe->n_binaries, i;
	const unsigned char **binaries = calloc(n, sizeof(*binaries));
	size_t *sizes = calloc(n, sizeof(*sizes));
	cl_program program = NULL;

	*out_result = CL_OUT_OF_HOST_MEMORY;
	if (!binaries || !sizes)
		goto out;
	*out_result = CL_INVALID_VALUE;
	if (n != maker->n_devices || !ki_cl_recipe_is_whole(recipe))
		goto out;
	for (i = 0; i < n; i++) {
		binaries[i] = recipe->binaries[i].bytes;
		sizes[i] = recipe->binaries[i].size;
	}
	program = maker->calls->clCreateProgramWithBinary(
		maker->context, n, maker->devices, sizes, binaries, NULL,
		out_result);
out:
	free(binaries);
	free(sizes);
	return program;
}

/* ---- Links --------------------------------------------------------------- */

static cl_program make(const struct maker *maker,
		       const struct ki_cl_recipe *recipe, cl_int *out_result);

static cl_program link_inputs(const struct maker *maker,
			      const struct ki_cl_recipe *recipe,
			      cl_int *out_result)
{
	cl_program *inputs = calloc(recipe->n_inputs, sizeof(*inputs));
	cl_program program = NULL;
	cl_uint i;

	*out_result = inputs ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
	for (i = 0; i < recipe->n_inputs && !*out_result; i++)
		inputs[i] = make(maker, recipe->inputs[i].recipe, out_result);
	if (!*out_result) {
		program = maker->calls->clLinkProgram(
			maker->context, maker->n_devices, maker->devices,
			ki_cl_recipe_options(recipe), recipe->n_inputs, inputs,
			NULL, NULL, out_result);
	} else if (inputs && i) {
		program = inputs[i - 1];
		inputs[i - 1] = NULL;
	}
	release_all(maker, inputs, recipe->n_inputs);
	return program;
}

static cl_program make(const struct maker *maker,
		       const struct ki_cl_recipe *recipe, cl_int *out_result)
{
	switch (recipe->kind) {
	case KI_CL_LINK:
		return link_inputs(maker, recipe, out_result);
	case KI_CL_BINARY:
		return from_binaries(maker, recipe, out_result);
	default:
		return make_from_source(maker, recipe, out_result);
	}
}

cl_program ki_cl_produce(const cl_icd_dispatch *calls, cl_platform_id platform,
			 const struct ki_cl_recipe *recipe, cl_context context,
			 const cl_device_id *devices, cl_uint n_devices,
			 cl_int *out_result)
{
	const struct maker maker = { .calls = calls,
				     .platform = platform,
				     .context = context,
				     .devices = devices,
				     .n_devices = n_devices };

	*out_result = CL_SUCCESS;
	return make(&maker, recipe, out_result);
}
