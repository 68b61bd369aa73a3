/* SPDX-License-Identifier: MIT */

/*
 * Programs for an OpenCL author.
 *
 *	kiln_cl_program
 *	  ki_cl_order_init ---- the build's key: source, options, include files,
 *	  |                     device, compiler (order.c)
 *	  kiln_program_get ---- in memory; else in the user's store; else built
 *	  |                     by the driver (runtime.c)
 *	  is it still so? ----- a file that changed meanwhile may be in the
 *	                        program and not in its key: then once more, and at
 *	                        last without keeping it
 *
 * The image that the program cache knows is the record of that key, so what
 * differs in anything that counts is another image.  It is told apart from what
 * the runtime's functions are given, which is in `user`.
 */

#include <stdlib.h>
#include <string.h>

#include "front/cl/cl.h"

#define TRIES 3

/* ---- Programs -------------------------------------------------------------- */

/* By the program cache. */
static enum kiln_status get(struct ki_cl_order *order,
			    struct kiln_program **out_program,
			    struct kiln_program_failure *failure)
{
	const struct kiln_cl_build *build = order->build;
	struct kiln_program_image image;
	struct kiln_program_request request;
	struct kiln_program_key *key;
	enum kiln_status status;

	kiln_program_image_init(&image);
	image.user = order;
	if (build->binary) {
		image.format = KILN_IMAGE_OTHER;
		image.data = build->binary;
		image.data_size = build->binary_size;
	} else if (order->key) {
		image.data = kiln_key_record(order->key, &image.data_size);
	} else {
		order->is_kept = 0;
		image.data = "";
	}
	if (!order->is_kept)
		image.origin = KILN_PROGRAM_INTEROP;
	kiln_program_request_init(&request);
	request.image = &image;
	request.devices = (void *const *)order->devices;
	request.n_devices = order->n_devices;
	request.compile_options = build->options;
	status = kiln_program_key_new(order->cl->programs, &request, &key);
	if (status)
		return status;
	status = kiln_program_get(order->cl->programs, key, out_program,
				  failure);
	kiln_program_key_free(key);
	return status;
}

static enum kiln_status get_program(struct kiln_cl *cl,
				    const struct kiln_cl_build *build,
				    struct kiln_program **out_program,
				    struct kiln_program_failure *failure)
{
	struct ki_cl_order order;
	enum kiln_status status;
	int n = 0;

	do {
		status = ki_cl_order_init(&order, cl, build);
		if (status)
			return status;
		order.is_kept = n++ < TRIES;
		if (failure)
			kiln_program_failure_fini(failure);
		status = get(&order, out_program, failure);
		ki_cl_order_fini(&order);
	} while (order.is_overtaken);
	return status;
}

enum kiln_status kiln_cl_program(struct kiln_cl *cl,
				 const struct kiln_cl_build *build,
				 cl_program *out_program,
				 struct kiln_program_failure *failure)
{
	struct kiln_program *program;
	enum kiln_status status;

	if (!cl || !out_program)
		return KILN_E_INVALID;
	status = get_program(cl, build, &program, failure);
	if (status)
		return status;
	*out_program = kiln_program_retain(program);
	kiln_program_unref(program);
	return KILN_OK;
}

/* ---- Kernels --------------------------------------------------------------- */

enum kiln_status kiln_cl_kernel(struct kiln_cl *cl,
				const struct kiln_cl_build *build,
				const char *name, cl_kernel *out_kernel,
				struct kiln_program_failure *failure)
{
	struct kiln_program_failure why;
	struct kiln_program *program;
	enum kiln_status status;
	cl_kernel kernel;
	cl_int err;

	if (!cl || !name || !out_kernel)
		return KILN_E_INVALID;
	status = get_program(cl, build, &program, failure);
	if (status)
		return status;
	kernel = clCreateKernel(kiln_program_handle(program), name, &err);
	kiln_program_unref(program);
	if (!err) {
		*out_kernel = kernel;
		return KILN_OK;
	}
	if (failure) {
		kiln_program_failure_init(&why);
		why.kind = ki_cl_failed(&why, err, NULL);
		*failure = why;
	}
	return KILN_E_BUILD;
}

/* ---- Opening --------------------------------------------------------------- */

static void tell(const struct kiln_cl *cl, const char *message)
{
	if (cl->log)
		cl->log(cl->log_arg, KILN_LOG_WARNING, message);
}

/* The user's own, as programs under `kiln run` have it; NULL: none. */
static void open_own(struct kiln_cl *cl)
{
	struct kiln_options options;
	char message[1024] = "no memory";

	if (kiln_config_load(&cl->config, message, sizeof(message))) {
		tell(cl, message);
		return;
	}
	for (size_t i = 0; kiln_config_warning(cl->config, i); i++)
		tell(cl, kiln_config_warning(cl->config, i));
	if (kiln_config_number(cl->config, KILN_SET_DISABLE))
		return;
	kiln_options_init(&options);
	kiln_config_options(cl->config, &options);
	options.log = cl->log;
	options.log_arg = cl->log_arg;
	(void)kiln_open(&options, &cl->own);
}

/* What identities ask the driver. */
static void fill_calls(cl_icd_dispatch *calls)
{
	calls->clGetPlatformInfo = clGetPlatformInfo;
	calls->clGetDeviceInfo = clGetDeviceInfo;
	calls->clGetExtensionFunctionAddressForPlatform =
		clGetExtensionFunctionAddressForPlatform;
}

/* KILN_OK, NO_MEMORY, INVALID. */
static enum kiln_status ask_context(struct kiln_cl *cl)
{
	size_t size = 0;

	if (clGetContextInfo(cl->context, CL_CONTEXT_DEVICES, 0, NULL, &size) ||
	    !size)
		return KILN_E_INVALID;
	cl->devices = malloc(size);
	if (!cl->devices)
		return KILN_E_NO_MEMORY;
	cl->n_devices = (cl_uint)(size / sizeof(*cl->devices));
	return clGetContextInfo(cl->context, CL_CONTEXT_DEVICES, size,
				cl->devices, NULL) ||
			       clGetDeviceInfo(cl->devices[0],
					       CL_DEVICE_PLATFORM,
					       sizeof(cl->platform),
					       &cl->platform, NULL)
		       ? KILN_E_INVALID
		       : KILN_OK;
}

static enum kiln_status open_programs(struct kiln_cl *cl,
				      const struct kiln_cl_options *options)
{
	struct kiln_program_runtime runtime;
	struct kiln_programs_options wanted;

	ki_cl_runtime(cl, &runtime);
	kiln_programs_options_init(&wanted);
	wanted.runtime = &runtime;
	wanted.kiln = options && options->kiln ? options->kiln : cl->own;
	wanted.bytes_max = options ? options->bytes_max : 0;
	wanted.flags = options ? options->flags : 0;
	return kiln_programs_new(&wanted, &cl->programs);
}

enum kiln_status kiln_cl_open(cl_context context,
			      const struct kiln_cl_options *options,
			      struct kiln_cl **out_cl)
{
	struct kiln_cl *cl;
	enum kiln_status status;

	if (!out_cl || !context ||
	    (options && options->size > sizeof(*options)))
		return KILN_E_INVALID;
	cl = calloc(1, sizeof(*cl));
	if (!cl)
		return KILN_E_NO_MEMORY;
	if (options) {
		cl->log = options->log;
		cl->log_arg = options->log_arg;
	}
	fill_calls(&cl->calls);
	if (clRetainContext(context)) {
		free(cl);
		return KILN_E_INVALID;
	}
	cl->context = context;
	status = ask_context(cl);
	if (!status) {
		cl->identities = ki_cl_identities_new(&cl->calls);
		if (!options || !options->kiln)
			open_own(cl);
		status = cl->identities ? open_programs(cl, options)
					: KILN_E_NO_MEMORY;
	}
	if (status) {
		kiln_cl_close(cl);
		return status;
	}
	*out_cl = cl;
	return KILN_OK;
}

void kiln_cl_close(struct kiln_cl *cl)
{
	if (!cl)
		return;
	kiln_programs_free(cl->programs);
	kiln_close(cl->own);
	kiln_config_free(cl->config);
	ki_cl_identities_free(cl->identities);
	free(cl->devices);
	clReleaseContext(cl->context);
	free(cl);
}

enum kiln_status kiln_cl_stats(struct kiln_cl *cl,
			       struct kiln_programs_stats *out_stats)
{
	return cl ? kiln_programs_stats(cl->programs, out_stats)
		  : KILN_E_INVALID;
}
