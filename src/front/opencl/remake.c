/* SPDX-License-Identifier: MIT */

/*
 * By the driver what an entry stood for until now: a program is made again from
 * its recipe, with header programs and inputs of its own for the length of the
 * call.
 */

#include "front/opencl/layer.h"

#include <stdlib.h>
#include <string.h>

static cl_program from_source(cl_context context,
			      const struct ki_cl_source *source)
{
	if (source->il)
		return ki_cl_next.clCreateProgramWithIL(context, source->il,
							source->il_size, NULL);
	return ki_cl_next.clCreateProgramWithSource(
		context, source->n_strings,
		(const char **)(uintptr_t)source->strings, source->lengths,
		NULL);
}

static void release(cl_program *programs, cl_uint n)
{
	while (programs && n--)
		if (programs[n])
			(void)ki_cl_next.clReleaseProgram(programs[n]);
	free(programs);
}

static cl_int compile(cl_program program, cl_context context,
		      const struct ki_cl_recipe *recipe, const char *options,
		      const struct ki_cl_targets *targets)
{
	cl_program *headers = calloc(recipe->n_headers + 1, sizeof(*headers));
	const char **names = calloc(recipe->n_headers + 1, sizeof(*names));
	cl_int result = CL_OUT_OF_HOST_MEMORY;
	cl_uint i;

	if (!headers || !names)
		goto out;
	for (i = 0; i < recipe->n_headers; i++) {
		names[i] = recipe->headers[i].name;
		headers[i] = from_source(context, recipe->headers[i].source);
		if (!headers[i])
			goto out;
	}
	result = ki_cl_next.clCompileProgram(
		program, targets ? targets->n_given : 0,
		targets ? targets->given : NULL, options, recipe->n_headers,
		recipe->n_headers ? headers : NULL,
		recipe->n_headers ? names : NULL, NULL, NULL);
out:
	release(headers, recipe->n_headers);
	free(names);
	return result;
}

static cl_int set_constants(cl_program program,
			    const struct ki_cl_recipe *recipe)
{
	cl_int result = CL_SUCCESS;
	cl_uint i;

	for (i = 0; i < recipe->n_constants && !result; i++)
		result = ki_cl_next.clSetProgramSpecializationConstant(
			program, recipe->constants[i].id,
			recipe->constants[i].size, recipe->constants[i].value);
	return result;
}

static cl_int make(cl_program program, cl_context context,
		   const struct ki_cl_recipe *recipe, const char *options,
		   const struct ki_cl_targets *targets)
{
	cl_int result = set_constants(program, recipe);

	if (result)
		return result;
	if (recipe->kind == KI_CL_COMPILE)
		return compile(program, context, recipe, options, targets);
	return ki_cl_next.clBuildProgram(
		program, targets ? targets->n_given : 0,
		targets ? targets->given : NULL, options, NULL, NULL);
}

/* Whether constants can be set as they were for the recipe: one that was not
   set cannot be unset. */
static int can_go_back(const struct ki_cl_recipe *now,
		       const struct ki_cl_recipe *recipe)
{
	cl_uint i, j;

	for (i = 0; i < now->n_constants; i++) {
		for (j = 0; j < recipe->n_constants; j++)
			if (recipe->constants[j].id == now->constants[i].id)
				break;
		if (j == recipe->n_constants)
			return 0;
	}
	return 1;
}

/* Constants that were set since are for the next build. */
static cl_int make_il_again(struct ki_cl_program *program,
			    const struct ki_cl_recipe *recipe,
			    const char *options,
			    const struct ki_cl_targets *targets)
{
	const struct ki_cl_recipe *now =
		ki_cl_program_recipe(program, KI_CL_BUILD, NULL, 0, NULL);
	cl_int result = CL_OUT_OF_HOST_MEMORY;

	if (now && can_go_back(now, recipe)) {
		result = make(program->handle, program->context, recipe,
			      options, targets);
		(void)set_constants(program->handle, now);
	}
	ki_cl_recipe_unref(now);
	return result;
}

cl_int ki_cl_make_again(struct ki_cl_program *program,
			const struct ki_cl_recipe *recipe, const char *options,
			const struct ki_cl_targets *targets)
{
	if (recipe->source->il)
		return make_il_again(program, recipe, options, targets);
	return make(program->handle, program->context, recipe, options,
		    targets);
}

static cl_program from_binaries(const struct ki_cl_recipe *recipe,
				cl_context context, cl_uint n_devices,
				const cl_device_id *devices)
{
	const unsigned char **binaries = calloc(n_devices, sizeof(*binaries));
	size_t *sizes = calloc(n_devices, sizeof(*sizes));
	cl_program program = NULL;
	cl_uint i;

	if (!binaries || !sizes || recipe->n_binaries != n_devices)
		goto out;
	for (i = 0; i < n_devices; i++) {
		binaries[i] = recipe->binaries[i].bytes;
		sizes[i] = recipe->binaries[i].size;
		if (!binaries[i])
			goto out;
	}
	program = ki_cl_next.clCreateProgramWithBinary(
		context, n_devices, devices, sizes, binaries, NULL, NULL);
out:
	free(binaries);
	free(sizes);
	return program;
}

static cl_program link_inputs(const struct ki_cl_recipe *recipe,
			      cl_context context, cl_uint n_devices,
			      const cl_device_id *devices)
{
	cl_program *inputs = calloc(recipe->n_inputs, sizeof(*inputs));
	cl_program linked = NULL;
	cl_int result = CL_SUCCESS;
	cl_uint i;

	if (!inputs)
		return NULL;
	for (i = 0; i < recipe->n_inputs && !result; i++) {
		inputs[i] = ki_cl_remake(recipe->inputs[i].recipe, context,
					 n_devices, devices);
		result = inputs[i] ? CL_SUCCESS : CL_INVALID_PROGRAM;
	}
	if (!result)
		linked = ki_cl_next.clLinkProgram(
			context, n_devices, devices, recipe->options,
			recipe->n_inputs, inputs, NULL, NULL, &result);
	if (linked && result) {
		(void)ki_cl_next.clReleaseProgram(linked);
		linked = NULL;
	}
	release(inputs, recipe->n_inputs);
	return linked;
}

cl_program ki_cl_remake(const struct ki_cl_recipe *recipe, cl_context context,
			cl_uint n_devices, const cl_device_id *devices)
{
	cl_program program;

	if (recipe->kind == KI_CL_LINK)
		return link_inputs(recipe, context, n_devices, devices);
	if (recipe->kind == KI_CL_BINARY)
		return from_binaries(recipe, context, n_devices, devices);
	program = from_source(context, recipe->source);
	if (program && make(program, context, recipe, recipe->options, NULL)) {
		(void)ki_cl_next.clReleaseProgram(program);
		program = NULL;
	}
	return program;
}
