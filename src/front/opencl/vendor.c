/* SPDX-License-Identifier: MIT */

/*
 * Functions by name that are given a program, or make one.  An application
 * gets ours, which name the program that answers: a shadow has variables,
 * functions and pipes of its own, and its kernels use those.
 *
 * Each platform has its own function of a name.  Whoever hands one out tells
 * us; which one a call is for, its device or queue tells.
 */

#include "front/opencl/layer.h"

#include <string.h>

#define DRIVERS_MAX 16

enum function {
	GLOBAL_VARIABLE_POINTER,
	FUNCTION_POINTER,
	READ_GLOBAL_VARIABLE,
	WRITE_GLOBAL_VARIABLE,
	READ_HOST_PIPE,
	WRITE_HOST_PIPE,
	PROFILE_DATA,
	CREATE_WITH_IL,
	N_FUNCTIONS
};

typedef cl_int(CL_API_CALL *global_variable_pointer_fn)(cl_device_id device,
							cl_program program,
							const char *name,
							size_t *size_ret,
							void **pointer_ret);
typedef cl_int(CL_API_CALL *function_pointer_fn)(cl_device_id device,
						 cl_program program,
						 const char *name,
						 cl_ulong *pointer_ret);
typedef cl_int(CL_API_CALL *read_global_variable_fn)(
	cl_command_queue queue, cl_program program, const char *name,
	cl_bool blocking, size_t size, size_t offset, void *data,
	cl_uint num_waits, const cl_event *waits, cl_event *event);
typedef cl_int(CL_API_CALL *write_global_variable_fn)(
	cl_command_queue queue, cl_program program, const char *name,
	cl_bool blocking, size_t size, size_t offset, const void *data,
	cl_uint num_waits, const cl_event *waits, cl_event *event);
typedef cl_int(CL_API_CALL *read_host_pipe_fn)(
	cl_command_queue queue, cl_program program, const char *name,
	cl_bool blocking, void *data, size_t size, cl_uint num_waits,
	const cl_event *waits, cl_event *event);
typedef cl_int(CL_API_CALL *write_host_pipe_fn)(
	cl_command_queue queue, cl_program program, const char *name,
	cl_bool blocking, const void *data, size_t size, cl_uint num_waits,
	const cl_event *waits, cl_event *event);
typedef cl_int(CL_API_CALL *profile_data_fn)(
	cl_device_id device, cl_program program, cl_bool read_enqueue_kernels,
	cl_bool read_auto_enqueued, cl_bool clear_counters, size_t value_size,
	void *value, size_t *value_size_ret, cl_int *errcode_ret);

typedef cl_program(CL_API_CALL *create_with_il_fn)(cl_context context,
						   const void *il,
						   size_t length,
						   cl_int *errcode_ret);

/* ---- The drivers' own ---------------------------------------------------- */

/* Under the lock. */
static struct drivers {
	size_t n;
	struct {
		cl_platform_id platform; /* NULL: it was not said */
		void *address;
	} list[DRIVERS_MAX];
} drivers[N_FUNCTIONS];

/* 0, or -1 if there is no room. */
static int remember(enum function function, cl_platform_id platform,
		    void *address)
{
	struct drivers *known = &drivers[function];
	size_t i;

	ki_mutex_lock(&ki_cl_lock);
	for (i = 0; i < known->n; i++)
		if (known->list[i].platform == platform)
			break;
	if (i < DRIVERS_MAX) {
		known->list[i].platform = platform;
		known->list[i].address = address;
		if (i == known->n)
			known->n++;
	}
	ki_mutex_unlock(&ki_cl_lock);
	return i < DRIVERS_MAX ? 0 : -1;
}

/* Of one driver alone, whose platform then does not matter. */
static void *only_driver(enum function function)
{
	const struct drivers *known = &drivers[function];
	void *address;
	size_t i;

	ki_mutex_lock(&ki_cl_lock);
	address = known->list[0].address;
	for (i = 1; i < known->n; i++)
		if (known->list[i].address != address)
			address = NULL;
	ki_mutex_unlock(&ki_cl_lock);
	return address;
}

/* The platform's; else what was handed out for no platform in particular, or
   first of all. */
static void *driver_of(enum function function, cl_device_id device)
{
	const struct drivers *known = &drivers[function];
	cl_platform_id platform = NULL;
	void *address;
	size_t i, found = 0;

	if (device)
		(void)ki_cl_next.clGetDeviceInfo(device, CL_DEVICE_PLATFORM,
						 sizeof(platform), &platform,
						 NULL);
	ki_mutex_lock(&ki_cl_lock);
	for (i = known->n; i--;)
		if (!known->list[i].platform)
			found = i;
	for (i = known->n; platform && i--;)
		if (known->list[i].platform == platform)
			found = i;
	address = known->list[found].address;
	ki_mutex_unlock(&ki_cl_lock);
	return address;
}

static void *for_device(enum function function, cl_device_id device)
{
	void *address = only_driver(function);

	return address ? address : driver_of(function, device);
}

/* NULL if there is no such context. */
static cl_device_id first_device(cl_context context)
{
	cl_device_id devices[64] = { NULL };
	size_t size = 0;

	if (!context ||
	    ki_cl_next.clGetContextInfo(context, CL_CONTEXT_DEVICES, 0, NULL,
					&size) ||
	    size > sizeof(devices) ||
	    ki_cl_next.clGetContextInfo(context, CL_CONTEXT_DEVICES, size,
					devices, NULL))
		return NULL;
	return devices[0];
}

static void *for_queue(enum function function, cl_command_queue queue)
{
	void *address = only_driver(function);
	cl_device_id device = NULL;

	if (address)
		return address;
	if (queue)
		(void)ki_cl_next.clGetCommandQueueInfo(
			queue, CL_QUEUE_DEVICE, sizeof(device), &device, NULL);
	return driver_of(function, device);
}

/* ---- Who answers --------------------------------------------------------- */

struct answerer {
	struct ki_cl_shadow *shadow; /* one reference, or NULL */
	cl_program program;
};

static struct answerer answerer(cl_program handle)
{
	struct ki_cl_program *program = ki_cl_program_get(handle);
	struct answerer who = { .program = handle };

	if (program)
		who.program = ki_cl_answerer(program, &who.shadow);
	if (who.shadow)
		ki_cl_program_is_used(program);
	ki_cl_program_unref(program);
	return who;
}

static cl_int CL_API_CALL global_variable_pointer(cl_device_id device,
						  cl_program program,
						  const char *name,
						  size_t *size_ret,
						  void **pointer_ret)
{
	global_variable_pointer_fn call =
		(global_variable_pointer_fn)for_device(GLOBAL_VARIABLE_POINTER,
						       device);
	struct answerer who = answerer(program);
	cl_int result = call(device, who.program, name, size_ret, pointer_ret);

	ki_cl_shadow_unref(who.shadow);
	return result;
}

static cl_int CL_API_CALL function_pointer(cl_device_id device,
					   cl_program program, const char *name,
					   cl_ulong *pointer_ret)
{
	function_pointer_fn call =
		(function_pointer_fn)for_device(FUNCTION_POINTER, device);
	struct answerer who = answerer(program);
	cl_int result = call(device, who.program, name, pointer_ret);

	ki_cl_shadow_unref(who.shadow);
	return result;
}

static cl_int CL_API_CALL read_global_variable(
	cl_command_queue queue, cl_program program, const char *name,
	cl_bool blocking, size_t size, size_t offset, void *data,
	cl_uint num_waits, const cl_event *waits, cl_event *event)
{
	read_global_variable_fn call =
		(read_global_variable_fn)for_queue(READ_GLOBAL_VARIABLE, queue);
	struct answerer who = answerer(program);
	cl_int result = call(queue, who.program, name, blocking, size, offset,
			     data, num_waits, waits, event);

	ki_cl_shadow_unref(who.shadow);
	return result;
}

static cl_int CL_API_CALL write_global_variable(
	cl_command_queue queue, cl_program program, const char *name,
	cl_bool blocking, size_t size, size_t offset, const void *data,
	cl_uint num_waits, const cl_event *waits, cl_event *event)
{
	write_global_variable_fn call = (write_global_variable_fn)for_queue(
		WRITE_GLOBAL_VARIABLE, queue);
	struct answerer who = answerer(program);
	cl_int result = call(queue, who.program, name, blocking, size, offset,
			     data, num_waits, waits, event);

	ki_cl_shadow_unref(who.shadow);
	return result;
}

static cl_int CL_API_CALL read_host_pipe(cl_command_queue queue,
					 cl_program program, const char *name,
					 cl_bool blocking, void *data,
					 size_t size, cl_uint num_waits,
					 const cl_event *waits, cl_event *event)
{
	read_host_pipe_fn call =
		(read_host_pipe_fn)for_queue(READ_HOST_PIPE, queue);
	struct answerer who = answerer(program);
	cl_int result = call(queue, who.program, name, blocking, data, size,
			     num_waits, waits, event);

	ki_cl_shadow_unref(who.shadow);
	return result;
}

static cl_int CL_API_CALL write_host_pipe(cl_command_queue queue,
					  cl_program program, const char *name,
					  cl_bool blocking, const void *data,
					  size_t size, cl_uint num_waits,
					  const cl_event *waits,
					  cl_event *event)
{
	write_host_pipe_fn call =
		(write_host_pipe_fn)for_queue(WRITE_HOST_PIPE, queue);
	struct answerer who = answerer(program);
	cl_int result = call(queue, who.program, name, blocking, data, size,
			     num_waits, waits, event);

	ki_cl_shadow_unref(who.shadow);
	return result;
}

static cl_int CL_API_CALL profile_data(
	cl_device_id device, cl_program program, cl_bool read_enqueue_kernels,
	cl_bool read_auto_enqueued, cl_bool clear_counters, size_t value_size,
	void *value, size_t *value_size_ret, cl_int *errcode_ret)
{
	profile_data_fn call =
		(profile_data_fn)for_device(PROFILE_DATA, device);
	struct answerer who = answerer(program);
	cl_int result = call(device, who.program, read_enqueue_kernels,
			     read_auto_enqueued, clear_counters, value_size,
			     value, value_size_ret, errcode_ret);

	ki_cl_shadow_unref(who.shadow);
	return result;
}

/* Not a vendor's, but by name alone before OpenCL 2.1. */
static cl_program CL_API_CALL create_with_il(cl_context context, const void *il,
					     size_t length, cl_int *errcode_ret)
{
	create_with_il_fn call = (create_with_il_fn)for_device(
		CREATE_WITH_IL, first_device(context));
	cl_program program = call(context, il, length, errcode_ret);

	if (program)
		ki_cl_program_add(program, context,
				  ki_cl_source_new_il(il, length));
	return program;
}

static const struct {
	const char *name;
	void *own;
} functions[N_FUNCTIONS] = {
	[GLOBAL_VARIABLE_POINTER] = { "clGetDeviceGlobalVariablePointerINTEL",
				      (void *)global_variable_pointer },
	[FUNCTION_POINTER] = { "clGetDeviceFunctionPointerINTEL",
			       (void *)function_pointer },
	[READ_GLOBAL_VARIABLE] = { "clEnqueueReadGlobalVariableINTEL",
				   (void *)read_global_variable },
	[WRITE_GLOBAL_VARIABLE] = { "clEnqueueWriteGlobalVariableINTEL",
				    (void *)write_global_variable },
	[READ_HOST_PIPE] = { "clEnqueueReadHostPipeINTEL",
			     (void *)read_host_pipe },
	[WRITE_HOST_PIPE] = { "clEnqueueWriteHostPipeINTEL",
			      (void *)write_host_pipe },
	[PROFILE_DATA] = { "clGetProfileDataDeviceIntelFPGA",
			   (void *)profile_data },
	[CREATE_WITH_IL] = { "clCreateProgramWithILKHR",
			     (void *)create_with_il },
};

void *ki_cl_vendor_call(cl_platform_id platform, const char *name,
			void *address)
{
	int i;

	for (i = 0; i < N_FUNCTIONS; i++)
		if (!strcmp(functions[i].name, name))
			break;
	if (i == N_FUNCTIONS || remember((enum function)i, platform, address))
		return NULL;
	return functions[i].own;
}
