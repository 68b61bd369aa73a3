/* SPDX-License-Identifier: MIT */

/*
 * OpenCL as the program cache wants it: <kiln/program.h>'s table.  The cache is
 * given no kiln: what is behind memory is store.c's, which knows when a driver
 * may be asked for a binary.
 */

#include <stdlib.h>
#include <string.h>

/* First: it says which OpenCL is meant. */
#include <kiln/front/opencl.h>

#include <CL/cl_ext.h>

#include "front/cl/cl.h"
#include "front/opencl/capture.h"

/* Vendors' own codes are below these: nobody knows what they say. */
#define VENDORS_OWN (-1000)

enum kiln_build_kind ki_cl_kind(cl_int code)
{
	switch (code) {
	case CL_SUCCESS:
		return KILN_BUILD_OK;
	case CL_MEM_OBJECT_ALLOCATION_FAILURE:
	case CL_OUT_OF_RESOURCES:
	case CL_OUT_OF_HOST_MEMORY:
		return KILN_BUILD_RESOURCES;
	case CL_DEVICE_NOT_AVAILABLE:
		return KILN_BUILD_SPURIOUS;
	default:
		return code <= VENDORS_OWN ? KILN_BUILD_SPURIOUS
					   : KILN_BUILD_FAILED;
	}
}

static enum kiln_build_kind failed(struct kiln_program_failure *failure,
				   cl_int code, char *message)
{
	failure->code = code;
	failure->message = message;
	return ki_cl_kind(code);
}

/* ---- Programs -------------------------------------------------------------- */

static cl_int set_constants(cl_program program,
			    const struct kiln_cl_build *build)
{
	cl_int err = CL_SUCCESS;

	for (size_t i = 0; i < build->n_constants && !err; i++)
		err = clSetProgramSpecializationConstant(
			program, build->constant_ids[i],
			build->constant_sizes[i], build->constants[i]);
	return err;
}

static cl_program create_from_given_binary(const struct ki_cl_order *order,
					   cl_int *out_err)
{
	const struct kiln_cl_build *build = &order->build;
	const unsigned char **binaries =
		calloc(order->n_devices, sizeof(*binaries));
	size_t *sizes = calloc(order->n_devices, sizeof(*sizes));
	cl_program program = NULL;

	*out_err = CL_OUT_OF_HOST_MEMORY;
	for (cl_uint i = 0; i < order->n_devices && binaries && sizes; i++) {
		binaries[i] = build->binary;
		sizes[i] = build->binary_size;
	}
	if (binaries && sizes)
		program = clCreateProgramWithBinary(
			order->cl->context, order->n_devices, order->devices,
			sizes, binaries, NULL, out_err);
	free(binaries);
	free(sizes);
	return program;
}

/* Before OpenCL 2.1 an extension has it. */
static cl_program create_from_il(const struct ki_cl_order *order,
				 cl_int *out_err)
{
	const struct kiln_cl_build *build = &order->build;
	const struct kiln_cl *cl = order->cl;
	cl_program program = clCreateProgramWithIL(cl->context, build->il,
						   build->il_size, out_err);
	clCreateProgramWithILKHR_fn older;

	if (program || *out_err != CL_INVALID_OPERATION)
		return program;
	older = (clCreateProgramWithILKHR_fn)
		clGetExtensionFunctionAddressForPlatform(
			cl->platform, "clCreateProgramWithILKHR");
	return older ? older(cl->context, build->il, build->il_size, out_err)
		     : NULL;
}

static cl_program create(const struct ki_cl_order *order, cl_int *out_err)
{
	const char *source = order->build.source;

	if (source)
		return clCreateProgramWithSource(order->cl->context, 1, &source,
						 NULL, out_err);
	if (order->build.il)
		return create_from_il(order, out_err);
	return create_from_given_binary(order, out_err);
}

/* Of the first device that has something to say; NULL: none. */
static char *build_log(cl_program program, const cl_device_id *devices,
		       cl_uint n_devices)
{
	for (cl_uint i = 0; i < n_devices; i++) {
		cl_build_status status = CL_BUILD_ERROR;
		size_t size = 0;
		char *log;

		(void)clGetProgramBuildInfo(program, devices[i],
					    CL_PROGRAM_BUILD_STATUS,
					    sizeof(status), &status, NULL);
		if (status != CL_BUILD_ERROR ||
		    clGetProgramBuildInfo(program, devices[i],
					  CL_PROGRAM_BUILD_LOG, 0, NULL,
					  &size) ||
		    !size)
			continue;
		log = calloc(1, size + 1);
		if (log && !clGetProgramBuildInfo(program, devices[i],
						  CL_PROGRAM_BUILD_LOG, size,
						  log, NULL))
			return log;
		free(log);
	}
	return NULL;
}

/* By the driver; NULL with the code and what it has to say. */
static cl_program build_order(const struct ki_cl_order *order, cl_int *out_err,
			      char **out_log)
{
	cl_program program;

	*out_err = CL_SUCCESS;
	program = create(order, out_err);
	if (!*out_err)
		*out_err = set_constants(program, &order->build);
	if (!*out_err) {
		*out_err = clBuildProgram(program, order->n_devices,
					  order->devices, order->build.options,
					  NULL, NULL);
		if (*out_err)
			*out_log = build_log(program, order->devices,
					     order->n_devices);
	}
	if (*out_err && program)
		clReleaseProgram(program);
	return *out_err ? NULL : program;
}

static uint64_t now_ns(void)
{
	return ki_sys_posix.monotonic_ns(&ki_sys_posix);
}

static void count_build(struct kiln *kiln, uint64_t build_ns, cl_int err)
{
	kiln_note_build(kiln, 0);
	kiln_count(kiln, KILN_COUNT_BUILDS, 1);
	kiln_count(kiln, KILN_COUNT_BUILD_NS, build_ns);
	if (err)
		kiln_count(kiln, KILN_COUNT_BUILD_FAILURES, 1);
}

/* Nobody must get what a changed file is in. */
static int is_overtaken(const struct ki_cl_order *order)
{
	return order->is_kept && order->is_stored &&
	       !ki_cl_is_current(order->cl, order->recipe, order->devices,
				 order->n_devices, order->key, order->stamp);
}

static enum kiln_build_kind build_anew(struct ki_cl_order *order,
				       void **out_program,
				       struct kiln_program_failure *out_failure)
{
	struct kiln *kiln = order->cl->kiln;
	uint64_t began_ns = now_ns();
	cl_program program;
	char *log = NULL;
	cl_int err;

	if (kiln)
		kiln_note_build(kiln, 1);
	program = build_order(order, &err, &log);
	if (kiln)
		count_build(kiln, now_ns() - began_ns, err);
	order->is_overtaken = is_overtaken(order);
	if (order->is_overtaken) {
		if (program)
			clReleaseProgram(program);
		free(log);
		return KILN_BUILD_SPURIOUS;
	}
	if (err)
		return failed(out_failure, err, log);
	if (order->is_kept)
		ki_cl_order_built(order, program, now_ns() - began_ns);
	*out_program = program;
	return KILN_BUILD_OK;
}

/* Found or built here and at once: only the order knows what the key was made
   of. */
static enum kiln_build_kind create_from_image(
	void *context, const struct kiln_program_image *image,
	const void *constants, size_t constants_size, void *const *devices,
	size_t n_devices, void **out_program,
	struct kiln_program_failure *out_failure)
{
	struct ki_cl_order *order = image->user;
	cl_program program = NULL;

	if (order->cl->kiln && order->recipe)
		program = ki_cl_order_find(order);
	if (!program)
		return build_anew(order, out_program, out_failure);
	*out_program = program;
	return KILN_BUILD_OK;
}

static enum kiln_build_kind is_built(void *context, void *program,
				     void *const *devices, size_t n_devices,
				     const char *compile_options,
				     const char *link_options,
				     struct kiln_program_failure *out_failure)
{
	return KILN_BUILD_OK;
}

static void retain_program(void *context, void *program)
{
	clRetainProgram(program);
}

static void release_program(void *context, void *program)
{
	clReleaseProgram(program);
}

/* ---- Kernels --------------------------------------------------------------- */

static enum kiln_build_kind create_kernel(
	void *context, void *program, const char *name, void **out_kernel,
	struct kiln_program_failure *out_failure)
{
	cl_int err;
	cl_kernel kernel = clCreateKernel(program, name, &err);

	if (err)
		return failed(out_failure, err, NULL);
	*out_kernel = kernel;
	return KILN_BUILD_OK;
}

static void release_kernel(void *context, void *kernel)
{
	clReleaseKernel(kernel);
}

/* ---- Sizes ------------------------------------------------------------------- */

/* A device's share: drivers answer for those of the last build, or for all. */
static size_t binary_size(void *context, void *program, void *device)
{
	size_t *sizes = calloc(KI_CL_DEVICES_MAX, sizeof(*sizes));
	size_t answered = 0, sum = 0, n;

	if (sizes)
		(void)clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES,
				       KI_CL_DEVICES_MAX * sizeof(*sizes),
				       sizes, &answered);
	n = answered / sizeof(*sizes);
	for (size_t i = 0; i < n && i < KI_CL_DEVICES_MAX; i++)
		sum += sizes[i];
	free(sizes);
	return n ? sum / n : 0;
}

/* ---- Devices --------------------------------------------------------------- */

static cl_int ask(const struct kiln_cl *cl, cl_device_id device,
		  enum kiln_device_string which, size_t size, void *out,
		  size_t *out_size)
{
	static const cl_device_info names[] = {
		[KILN_DEVICE_NAME] = CL_DEVICE_NAME,
		[KILN_DEVICE_VERSION] = CL_DEVICE_VERSION,
		[KILN_DEVICE_DRIVER_VERSION] = CL_DRIVER_VERSION,
	};

	if (which == KILN_DEVICE_PLATFORM_NAME)
		return clGetPlatformInfo(cl->platform, CL_PLATFORM_NAME, size,
					 out, out_size);
	return clGetDeviceInfo(device, names[which], size, out, out_size);
}

static char *device_string(void *context, void *device,
			   enum kiln_device_string which)
{
	const struct kiln_cl *cl = context;
	size_t size = 0;
	char *text;

	if (ask(cl, device, which, 0, NULL, &size))
		return NULL;
	text = calloc(1, size + 1);
	if (text && ask(cl, device, which, size, text, NULL)) {
		free(text);
		return NULL;
	}
	return text;
}

void ki_cl_runtime(struct kiln_cl *cl, struct kiln_program_runtime *out)
{
	*out = (struct kiln_program_runtime){
		.size = sizeof(*out),
		.context = cl,
		.create_from_image = create_from_image,
		.build = is_built,
		.retain_program = retain_program,
		.release_program = release_program,
		.create_kernel = create_kernel,
		.release_kernel = release_kernel,
		.binary_size = binary_size,
		.device_string = device_string,
	};
}
