/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_CL_PLACE_TEST_H
#define KI_FRONT_CL_PLACE_TEST_H

/*
 * What tests of this folder share: a context of all devices of the first
 * platform, a kiln of their own, and builds that are run.  Included after
 * harness/harness.h.  Inline is what not all of them use.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/front/opencl.h>

#define SCALE                                                                  \
	"__kernel void scale(__global int *out)\n"                             \
	"{ out[get_global_id(0)] = FACTOR; }\n"

#define DEVICES_MAX 4
static cl_context context;
static cl_device_id devices[DEVICES_MAX];
static cl_uint n_devices;
static cl_device_id device; /* the first of them */
static cl_command_queue queue;

/* ---- Set-up ---------------------------------------------------------------- */

struct place {
	char *directory;
	char url[300];
	uint32_t flags; /* of its kiln_cl */
	const char *packs;
	struct kiln *kiln;
	struct kiln_cl *cl;
};

static void place_open(struct place *place)
{
	struct kiln_options options;
	struct kiln_cl_options cl_options;

	kiln_options_init(&options);
	options.store_url = place->url;
	options.packs = place->packs;
	assert_int_equal(kiln_open(&options, &place->kiln), KILN_OK);
	assert_int_equal(kiln_store_status(place->kiln), KILN_OK);
	kiln_cl_options_init(&cl_options);
	cl_options.kiln = place->kiln;
	cl_options.flags = place->flags;
	assert_int_equal(kiln_cl_open(context, &cl_options, &place->cl),
			 KILN_OK);
}

static void place_close(struct place *place)
{
	kiln_cl_close(place->cl);
	kiln_close(place->kiln);
}

static inline void place_init(struct place *place)
{
	place->directory = harness_directory();
	snprintf(place->url, sizeof(place->url), "log:%s/store",
		 place->directory);
	place_open(place);
}

static inline void place_fini(struct place *place)
{
	place_close(place);
	free(place->directory);
}

static struct kiln_programs_stats stats_of(const struct place *place)
{
	struct kiln_programs_stats stats;

	kiln_programs_stats_init(&stats);
	assert_int_equal(kiln_cl_stats(place->cl, &stats), KILN_OK);
	return stats;
}

/* ---- Builds ---------------------------------------------------------------- */

static struct kiln_cl_build source_build(const char *source,
					 const char *options)
{
	struct kiln_cl_build build;

	kiln_cl_build_init(&build);
	build.source = source;
	build.options = options;
	return build;
}

static inline cl_program program_of(const struct place *place,
				    const struct kiln_cl_build *build)
{
	struct kiln_program_failure failure;
	cl_program program = NULL;

	kiln_program_failure_init(&failure);
	if (kiln_cl_program(place->cl, build, &program, &failure))
		print_message("# %d: %s\n", failure.code,
			      failure.message ? failure.message : "");
	kiln_program_failure_fini(&failure);
	assert_non_null(program);
	return program;
}

/* What the kernel writes when it runs there. */
static int value_on(const struct place *place,
		    const struct kiln_cl_build *build, cl_command_queue on)
{
	size_t one = 1;
	cl_kernel kernel;
	cl_mem out;
	cl_int err, value = -1;

	assert_int_equal(
		kiln_cl_kernel(place->cl, build, "scale", &kernel, NULL),
		KILN_OK);
	out = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof(value), NULL,
			     &err);
	assert_int_equal(err, CL_SUCCESS);
	clSetKernelArg(kernel, 0, sizeof(cl_mem), (const void *)&out);
	assert_int_equal(clEnqueueNDRangeKernel(on, kernel, 1, NULL, &one, NULL,
						0, NULL, NULL),
			 CL_SUCCESS);
	assert_int_equal(clEnqueueReadBuffer(on, out, CL_TRUE, 0, sizeof(value),
					     &value, 0, NULL, NULL),
			 CL_SUCCESS);
	clReleaseMemObject(out);
	clReleaseKernel(kernel);
	return value;
}

static int value_of(const struct place *place,
		    const struct kiln_cl_build *build)
{
	return value_on(place, build, queue);
}

static int set_up(void **state)
{
	cl_platform_id platform;
	cl_int err;

	if (clGetPlatformIDs(1, &platform, NULL) ||
	    clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, DEVICES_MAX, devices,
			   &n_devices))
		return -1;
	device = devices[0];
	context = clCreateContext(NULL, n_devices, devices, NULL, NULL, &err);
	if (err)
		return -1;
	queue = clCreateCommandQueueWithProperties(context, device, NULL, &err);
	return err ? -1 : 0;
}

static int tear_down(void **state)
{
	clReleaseCommandQueue(queue);
	clReleaseContext(context);
	return 0;
}

#endif /* KI_FRONT_CL_PLACE_TEST_H */
