/* SPDX-License-Identifier: MIT */

/* OpenCL as the program cache wants it: <kiln/program.h>'s table. */

#include <stdlib.h>
#include <string.h>

#include "front/cl/cl.h"

enum kiln_build_kind ki_cl_failed(struct kiln_program_failure *failure,
				  cl_int code, const char *message)
{
	failure->code = code;
	failure->message = message ? strdup(message) : NULL;
	switch (code) {
	case CL_MEM_OBJECT_ALLOCATION_FAILURE:
	case CL_OUT_OF_RESOURCES:
	case CL_OUT_OF_HOST_MEMORY:
		return KILN_BUILD_RESOURCES;
	default:
		return KILN_BUILD_FAILED;
	}
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
	const struct kiln_cl_build *build = order->build;
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

static cl_program create(const struct ki_cl_order *order, cl_int *out_err)
{
	const struct kiln_cl_build *build = order->build;
	cl_context context = order->cl->context;
	const char *source = build->source;

	if (source)
		return clCreateProgramWithSource(context, 1, &source, NULL,
						 out_err);
	if (build->il)
		return clCreateProgramWithIL(context, build->il, build->il_size,
					     out_err);
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

static enum kiln_build_kind build_now(cl_program program,
				      const cl_device_id *devices,
				      cl_uint n_devices, const char *options,
				      struct kiln_program_failure *out_failure)
{
	cl_int err = clBuildProgram(program, n_devices, devices, options, NULL,
				    NULL);
	enum kiln_build_kind kind;
	char *log;

	if (!err)
		return KILN_BUILD_OK;
	log = build_log(program, devices, n_devices);
	kind = ki_cl_failed(out_failure, err, log);
	free(log);
	return kind;
}

/*
 * Built here and at once: only the order knows what the key was made of, and
 * nobody must get what a changed file is in.
 */
static enum kiln_build_kind create_from_image(
	void *context, const struct kiln_program_image *image,
	const void *constants, size_t constants_size, void *const *devices,
	size_t n_devices, void **out_program,
	struct kiln_program_failure *out_failure)
{
	struct ki_cl_order *order = image->user;
	enum kiln_build_kind kind;
	cl_int err = CL_SUCCESS;
	cl_program program = create(order, &err);

	if (!err)
		err = set_constants(program, order->build);
	if (err)
		kind = ki_cl_failed(out_failure, err, NULL);
	else
		kind = build_now(program, (const cl_device_id *)devices,
				 (cl_uint)n_devices, order->build->options,
				 out_failure);
	if (order->is_kept && order->key && !ki_cl_order_is_current(order)) {
		order->is_overtaken = 1;
		kind = KILN_BUILD_SPURIOUS;
	}
	if (kind && program)
		clReleaseProgram(program);
	*out_program = program;
	return kind;
}

static enum kiln_build_kind create_from_binary(
	void *context, void *const *devices, size_t n_devices,
	const void *const *binaries, const size_t *sizes, void **out_program,
	struct kiln_program_failure *out_failure)
{
	const struct kiln_cl *cl = context;
	cl_int err;
	cl_program program = clCreateProgramWithBinary(
		cl->context, (cl_uint)n_devices, (const cl_device_id *)devices,
		sizes, (const unsigned char **)(uintptr_t)binaries, NULL, &err);

	if (err) {
		if (program)
			clReleaseProgram(program);
		return ki_cl_failed(out_failure, err, NULL);
	}
	*out_program = program;
	return KILN_BUILD_OK;
}

static int is_built(cl_program program, cl_device_id device)
{
	cl_build_status status = CL_BUILD_NONE;

	return !clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_STATUS,
				      sizeof(status), &status, NULL) &&
	       status == CL_BUILD_SUCCESS;
}

/* Of binaries; an image's program is built already. */
static enum kiln_build_kind build(void *context, void *program,
				  void *const *devices, size_t n_devices,
				  const char *compile_options,
				  const char *link_options,
				  struct kiln_program_failure *out_failure)
{
	size_t n_built = 0;

	while (n_built < n_devices && is_built(program, devices[n_built]))
		n_built++;
	if (n_built == n_devices)
		return KILN_BUILD_OK;
	return build_now(program, (const cl_device_id *)devices,
			 (cl_uint)n_devices, compile_options, out_failure);
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
		return ki_cl_failed(out_failure, err, NULL);
	*out_kernel = kernel;
	return KILN_BUILD_OK;
}

static void release_kernel(void *context, void *kernel)
{
	clReleaseKernel(kernel);
}

/* ---- Binaries -------------------------------------------------------------- */

/* All devices of a program, and which of them `device` is; NULL: not among
   them, or no memory. */
static cl_device_id *devices_of(cl_program program, void *device,
				cl_uint *out_n, cl_uint *out_place)
{
	cl_device_id *devices = NULL;
	size_t size = 0;

	if (!clGetProgramInfo(program, CL_PROGRAM_DEVICES, 0, NULL, &size))
		devices = malloc(size + 1);
	if (!devices || clGetProgramInfo(program, CL_PROGRAM_DEVICES, size,
					 devices, NULL)) {
		free(devices);
		return NULL;
	}
	*out_n = (cl_uint)(size / sizeof(*devices));
	for (*out_place = 0; *out_place < *out_n; (*out_place)++)
		if (devices[*out_place] == device)
			return devices;
	free(devices);
	return NULL;
}

static size_t binary_size(void *context, void *program, void *device)
{
	cl_uint n, place;
	cl_device_id *devices = devices_of(program, device, &n, &place);
	size_t *sizes = devices ? calloc(n, sizeof(*sizes)) : NULL;
	size_t size = 0;

	if (sizes && !clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES,
				       n * sizeof(*sizes), sizes, NULL))
		size = sizes[place];
	free(sizes);
	free(devices);
	return size;
}

static int binary(void *context, void *program, void *device, void *data,
		  size_t size)
{
	cl_uint n, place;
	cl_device_id *devices = devices_of(program, device, &n, &place);
	unsigned char **binaries =
		devices ? calloc(n, sizeof(*binaries)) : NULL;
	int is_filled = 0;

	/* What has no place is left out. */
	if (binaries && binary_size(context, program, device) == size) {
		binaries[place] = data;
		is_filled = !clGetProgramInfo(program, CL_PROGRAM_BINARIES,
					      n * sizeof(*binaries), binaries,
					      NULL);
	}
	free(binaries);
	free(devices);
	return is_filled;
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
		.create_from_binary = create_from_binary,
		.build = build,
		.retain_program = retain_program,
		.release_program = release_program,
		.create_kernel = create_kernel,
		.release_kernel = release_kernel,
		.binary_size = binary_size,
		.binary = binary,
		.device_string = device_string,
	};
}
