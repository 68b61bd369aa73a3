/* SPDX-License-Identifier: MIT */

/*
 * Which devices a build is for, and what that leaves of earlier ones.
 *
 * A shadow answers for the devices of one build.  What was built before for
 * others stays as it is, or not: drivers differ (PoCL takes the last build for
 * the program's, others keep one for each device).  So a build that does not
 * cover all that have been built goes to the driver, who is first given what
 * a shadow stands for; and whatever is asked about a device that the shadow
 * does not know, or depends on what the driver does with the others, is
 * answered by the driver once it has built the same as the shadow.  The shadow
 * goes on answering for all else, and its kernels keep their variables.
 */

#include "front/opencl/layer.h"

#include <stdlib.h>
#include <string.h>

/* ---- Devices of a build -------------------------------------------------- */

static int has(const cl_device_id *devices, cl_uint n, cl_device_id device)
{
	cl_uint i;

	for (i = 0; i < n; i++)
		if (devices[i] == device)
			return 1;
	return 0;
}

int ki_cl_has_devices(const struct ki_cl_program *program, cl_uint n_given,
		      const cl_device_id *given)
{
	cl_uint i;

	for (i = 0; i < n_given; i++)
		if (!has(program->devices, program->n_devices, given[i]))
			return 0;
	return 1;
}

struct ki_cl_targets *ki_cl_targets_new(const struct ki_cl_program *program,
					cl_uint n_given,
					const cl_device_id *given)
{
	cl_uint n_all = program->n_devices, i;
	size_t n = (size_t)n_all + n_given;
	struct ki_cl_targets *targets;

	targets = calloc(1, sizeof(*targets) + n * sizeof(cl_device_id));
	if (!targets)
		return NULL;
	targets->refs = 1;
	targets->devices = (cl_device_id *)(targets + 1);
	for (i = 0; i < n_all; i++)
		if (!n_given || has(given, n_given, program->devices[i]))
			targets->devices[targets->n++] = program->devices[i];
	targets->is_partial = targets->n < n_all;
	targets->is_in_order = 1;
	if (!n_given)
		return targets;
	targets->n_given = n_given;
	targets->given = targets->devices + n_all;
	memcpy(targets->given, given, n_given * sizeof(*given));
	targets->is_in_order =
		n_given == targets->n &&
		!memcmp(given, targets->devices, n_given * sizeof(*given));
	return targets;
}

struct ki_cl_targets *ki_cl_targets_ref(struct ki_cl_targets *targets)
{
	ki_mutex_lock(&ki_cl_lock);
	targets->refs++;
	ki_mutex_unlock(&ki_cl_lock);
	return targets;
}

void ki_cl_targets_unref(struct ki_cl_targets *targets)
{
	int last;

	if (!targets)
		return;
	ki_mutex_lock(&ki_cl_lock);
	last = !--targets->refs;
	ki_mutex_unlock(&ki_cl_lock);
	if (last)
		free(targets);
}

const cl_device_id *ki_cl_devices_of(const struct ki_cl_program *program,
				     const struct ki_cl_targets *targets,
				     cl_uint *out_n)
{
	*out_n = targets ? targets->n : program->n_devices;
	return targets ? targets->devices : program->devices;
}

/* ---- What has been built ------------------------------------------------- */

int ki_cl_covers(const struct ki_cl_program *program,
		 const struct ki_cl_targets *targets)
{
	int covers = 1;
	cl_uint i;

	ki_mutex_lock(&ki_cl_lock);
	for (i = 0; program->built && i < program->n_devices; i++)
		if (program->built[i] &&
		    !has(targets->devices, targets->n, program->devices[i]))
			covers = 0;
	ki_mutex_unlock(&ki_cl_lock);
	return covers;
}

void ki_cl_mark_built(struct ki_cl_program *program, cl_uint n_given,
		      const cl_device_id *given)
{
	cl_uint i;

	ki_mutex_lock(&ki_cl_lock);
	for (i = 0; program->built && i < program->n_devices; i++)
		if (!n_given || has(given, n_given, program->devices[i]))
			program->built[i] = 1;
	ki_mutex_unlock(&ki_cl_lock);
}

/* ---- Questions about other devices --------------------------------------- */

static const struct ki_cl_targets *targets_of(const struct ki_cl_shadow *shadow)
{
	return shadow->made ? shadow->made->targets : NULL;
}

int ki_cl_is_usual(const struct ki_cl_shadow *shadow)
{
	const struct ki_cl_targets *targets = targets_of(shadow);

	return !targets || (!targets->is_partial && targets->is_in_order);
}

int ki_cl_is_other_device(const struct ki_cl_program *program,
			  const struct ki_cl_shadow *shadow,
			  cl_device_id device)
{
	const struct ki_cl_targets *targets = targets_of(shadow);

	if (!targets || !targets->is_partial ||
	    has(targets->devices, targets->n, device))
		return 0;
	return !device || has(program->devices, program->n_devices, device);
}

cl_kernel ki_cl_other_kernel(struct ki_cl_program *program,
			     struct ki_cl_shadow *shadow, cl_device_id device,
			     cl_kernel kernel)
{
	cl_kernel other = NULL;
	char few[256], *name;
	cl_int result;

	if (!ki_cl_is_other_device(program, shadow, device) ||
	    ki_cl_make_too(program, shadow))
		return NULL;
	name = ki_cl_kernel_name(kernel, few, sizeof(few));
	if (name)
		other = ki_cl_next.clCreateKernel(program->handle, name,
						  &result);
	if (name != few)
		free(name);
	return other;
}
