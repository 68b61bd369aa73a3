/* SPDX-License-Identifier: MIT */

/*
 * By the driver what an entry stood for until now: a program is made again from
 * its recipe, with header programs and inputs of its own for the length of the
 * call.
 */

#include "front/opencl/layer.h"

#include <stdlib.h>
#include <string.h>

#include "front/opencl/produce.h"

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
		const struct ki_cl_source *source = recipe->headers[i].source;

		headers[i] = ki_cl_next.clCreateProgramWithSource(
			context, source->n_strings,
			(const char **)(uintptr_t)source->strings,
			source->lengths, NULL);
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

cl_program ki_cl_remake(cl_platform_id platform,
			const struct ki_cl_recipe *recipe, cl_context context,
			cl_uint n_devices, const cl_device_id *devices)
{
	cl_int result = CL_SUCCESS;
	cl_program program =
		ki_cl_produce(&ki_cl_next, platform, recipe, context, devices,
			      n_devices, &result);

	if (program && result) {
		(void)ki_cl_next.clReleaseProgram(program);
		program = NULL;
	}
	return program;
}
