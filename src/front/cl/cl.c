/* SPDX-License-Identifier: MIT */

/*
 * Programs for an OpenCL author.
 *
 *	kiln_cl_program
 *	  ki_cl_order_init ---- the build's key: source, options, include files,
 *	  |                     device, compiler (order.c)
 *	  kiln_program_get ---- in memory; else in the user's store (store.c);
 *	  |                     else built by the driver (runtime.c)
 *	  is it still so? ----- a file that changed meanwhile may be in the
 *	                        program and not in its key: then once more, and at
 *	                        last without keeping it
 *	kiln_cl_keep, kiln_cl_close
 *	  ki_cl_keep ---------- fetch what was built, into the store (store.c)
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

int ki_cl_is_forked(const struct kiln_cl *cl)
{
	return ki_fork_generation() != cl->generation;
}

/* By the program cache. */
static enum kiln_status get(struct ki_cl_order *order,
			    struct kiln_program **out_program,
			    struct kiln_program_failure *failure)
{
	struct kiln_program_image image;
	struct kiln_program_request request;
	struct kiln_program_key *key;
	enum kiln_status status;

	kiln_program_image_init(&image);
	image.user = order;
	image.data = "";
	if (order->key)
		image.data = kiln_key_record(order->key, &image.data_size);
	else
		order->is_kept = 0;
	if (!order->is_kept)
		image.origin = KILN_PROGRAM_INTEROP;
	kiln_program_request_init(&request);
	request.image = &image;
	request.devices = (void *const *)order->devices;
	request.n_devices = order->n_devices;
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

	if (ki_cl_is_forked(cl))
		return KILN_E_FORKED;
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
		failure->kind = ki_cl_kind(err);
		failure->code = err;
	}
	return KILN_E_BUILD;
}

/* ---- Keeping --------------------------------------------------------------- */

enum kiln_status kiln_cl_keep(struct kiln_cl *cl)
{
	if (!cl)
		return KILN_E_INVALID;
	if (ki_cl_is_forked(cl))
		return KILN_E_FORKED;
	ki_cl_keep(cl, KI_CL_KEEP_NOW);
	return KILN_OK;
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
	options.flags |= KILN_OPEN_ORDER;
	options.log = cl->log;
	options.log_arg = cl->log_arg;
	if (kiln_open(&options, &cl->own))
		return;
	if (kiln_config_number(cl->config, KILN_SET_READONLY))
		atomic_store(&cl->no_puts, 1);
	else if (kiln_store_status(cl->own) == KILN_OK)
		cl->spool = kiln_config_spool(cl->config);
}

/* What a kiln of the caller's has in memory alone is his, too; of our own that would
   be for nobody. */
static void look_at_store(struct kiln_cl *cl)
{
	const enum kiln_status status = kiln_store_status(cl->kiln);

	if (status && (status < 0 || cl->own))
		atomic_store(&cl->no_puts, 1);
}

/* What identities and entries ask the driver. */
static void fill_calls(cl_icd_dispatch *calls)
{
	calls->clCreateKernel = clCreateKernel;
	calls->clGetKernelArgInfo = clGetKernelArgInfo;
	calls->clGetKernelInfo = clGetKernelInfo;
	calls->clGetKernelWorkGroupInfo = clGetKernelWorkGroupInfo;
	calls->clGetProgramBuildInfo = clGetProgramBuildInfo;
	calls->clGetProgramInfo = clGetProgramInfo;
	calls->clReleaseKernel = clReleaseKernel;
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
	wanted.bytes_max = options->bytes_max;
	wanted.flags = options->flags & ~KILN_CL_CLOSE_AT_ONCE;
	return kiln_programs_new(&wanted, &cl->programs);
}

static enum kiln_status fill(struct kiln_cl *cl,
			     const struct kiln_cl_options *options)
{
	enum kiln_status status = ask_context(cl);

	if (status)
		return status;
	cl->log = options->log;
	cl->log_arg = options->log_arg;
	cl->closes_at_once = !!(options->flags & KILN_CL_CLOSE_AT_ONCE);
	fill_calls(&cl->calls);
	cl->identities = ki_cl_identities_new(&cl->calls);
	if (!cl->identities)
		return KILN_E_NO_MEMORY;
	status = open_programs(cl, options);
	if (status || (options->flags & KILN_PROGRAMS_NO_STORE))
		return status;
	if (!options->kiln)
		open_own(cl);
	cl->kiln = options->kiln ? options->kiln : cl->own;
	if (cl->kiln)
		look_at_store(cl);
	return KILN_OK;
}

/* As kiln_open() does: what a newer caller may have behind must be zero. */
static int take_options(const struct kiln_cl_options *given,
			struct kiln_cl_options *out)
{
	const unsigned char *bytes = (const unsigned char *)given;

	kiln_cl_options_init(out);
	if (!given)
		return 0;
	if (given->size < sizeof(given->size))
		return -1;
	for (size_t i = sizeof(*out); i < given->size; i++)
		if (bytes[i])
			return -1;
	memcpy(out, given,
	       given->size < sizeof(*out) ? given->size : sizeof(*out));
	return 0;
}

enum kiln_status kiln_cl_open(cl_context context,
			      const struct kiln_cl_options *given,
			      struct kiln_cl **out_cl)
{
	struct kiln_cl_options options;
	struct kiln_cl *cl;
	enum kiln_status status;

	if (!out_cl || !context || take_options(given, &options))
		return KILN_E_INVALID;
	cl = calloc(1, sizeof(*cl));
	if (!cl)
		return KILN_E_NO_MEMORY;
	if (clRetainContext(context)) {
		free(cl);
		return KILN_E_INVALID;
	}
	cl->generation = ki_fork_generation();
	cl->context = context;
	ki_mutex_init(&cl->mutex, KI_RANK_FRONT);
	status = fill(cl, &options);
	if (status) {
		kiln_cl_close(cl);
		return status;
	}
	*out_cl = cl;
	return KILN_OK;
}

/* In a forked child the driver may not be touched, and locks may be held by
   threads that are not there: all but the store is left as it is. */
void kiln_cl_close(struct kiln_cl *cl)
{
	if (!cl)
		return;
	if (ki_cl_is_forked(cl)) {
		kiln_close(cl->own);
		return;
	}
	ki_cl_keep(cl, cl->closes_at_once ? KI_CL_KEEP_LATER : KI_CL_KEEP_NOW);
	kiln_programs_free(cl->programs);
	kiln_close(cl->own);
	kiln_config_free(cl->config);
	ki_cl_identities_free(cl->identities);
	ki_mutex_fini(&cl->mutex);
	free(cl->devices);
	clReleaseContext(cl->context);
	free(cl);
}

/* ---- Statistics -------------------------------------------------------------- */

/* What was found was, to the programs, built. */
enum kiln_status kiln_cl_stats(struct kiln_cl *cl,
			       struct kiln_programs_stats *out_stats)
{
	struct kiln_programs_stats stats;
	uint64_t n_found;
	enum kiln_status status;

	if (!cl || !out_stats || out_stats->size < sizeof(size_t))
		return KILN_E_INVALID;
	n_found = atomic_load(&cl->n_found);
	kiln_programs_stats_init(&stats);
	status = kiln_programs_stats(cl->programs, &stats);
	if (status)
		return status;
	stats.from_store = n_found < stats.builds ? n_found : stats.builds;
	stats.builds -= stats.from_store;
	if (out_stats->size < stats.size)
		stats.size = out_stats->size;
	memcpy(out_stats, &stats, stats.size);
	return KILN_OK;
}
