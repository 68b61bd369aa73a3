/* SPDX-License-Identifier: MIT */

/*
 * Queues and events.  Every command is done when its enqueue returns, so
 * events are complete from the start; only user events can wait, and nothing
 * waits for them.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "icd/icd.h"

static void *refuse(cl_int *errcode_ret, cl_int status)
{
	if (errcode_ret)
		*errcode_ret = status;
	return NULL;
}

/* ---- Queues ------------------------------------------------------------- */

cl_command_queue CL_API_CALL clCreateCommandQueueWithProperties(
	cl_context context, cl_device_id device,
	const cl_queue_properties *properties, cl_int *errcode_ret)
{
	cl_command_queue queue;

	if (!icd_is(context, ICD_CONTEXT))
		return refuse(errcode_ret, CL_INVALID_CONTEXT);
	if (!icd_is(device, ICD_DEVICE) ||
	    icd_context_find(context, device) < 0)
		return refuse(errcode_ret, CL_INVALID_DEVICE);
	queue = icd_new(ICD_QUEUE, sizeof(*queue));
	if (!queue)
		return refuse(errcode_ret, CL_OUT_OF_HOST_MEMORY);
	for (size_t i = 0; properties && properties[i]; i += 2)
		if (properties[i] == CL_QUEUE_PROPERTIES)
			queue->properties = properties[i + 1];
	icd_ref(context);
	queue->context = context;
	queue->device = device;
	refuse(errcode_ret, CL_SUCCESS);
	return queue;
}

cl_command_queue CL_API_CALL clCreateCommandQueue(
	cl_context context, cl_device_id device,
	cl_command_queue_properties properties, cl_int *errcode_ret)
{
	cl_queue_properties list[3] = { CL_QUEUE_PROPERTIES, properties, 0 };

	return clCreateCommandQueueWithProperties(context, device, list,
						  errcode_ret);
}

cl_int CL_API_CALL clRetainCommandQueue(cl_command_queue queue)
{
	if (!icd_is(queue, ICD_QUEUE))
		return CL_INVALID_COMMAND_QUEUE;
	icd_ref(queue);
	return CL_SUCCESS;
}

static void queue_unref(cl_command_queue queue)
{
	if (!icd_unref(queue))
		return;
	icd_context_unref(queue->context);
	free(queue);
}

cl_int CL_API_CALL clReleaseCommandQueue(cl_command_queue queue)
{
	if (!icd_is(queue, ICD_QUEUE))
		return CL_INVALID_COMMAND_QUEUE;
	queue_unref(queue);
	return CL_SUCCESS;
}

cl_int CL_API_CALL clGetCommandQueueInfo(cl_command_queue queue,
					 cl_command_queue_info what,
					 size_t size, void *value,
					 size_t *out_size)
{
	if (!icd_is(queue, ICD_QUEUE))
		return CL_INVALID_COMMAND_QUEUE;
	switch (what) {
	case CL_QUEUE_CONTEXT:
		return icd_answer_pointer(queue->context, size, value,
					  out_size);
	case CL_QUEUE_DEVICE:
		return icd_answer_pointer(queue->device, size, value, out_size);
	case CL_QUEUE_REFERENCE_COUNT:
		return icd_answer_uint(atomic_load(&queue->head.refs), size,
				       value, out_size);
	case CL_QUEUE_PROPERTIES:
		return icd_answer_ulong(queue->properties, size, value,
					out_size);
	default:
		return CL_INVALID_VALUE;
	}
}

cl_int CL_API_CALL clFlush(cl_command_queue queue)
{
	return icd_is(queue, ICD_QUEUE) ? CL_SUCCESS : CL_INVALID_COMMAND_QUEUE;
}

cl_int CL_API_CALL clFinish(cl_command_queue queue)
{
	return clFlush(queue);
}

/* ---- Events ------------------------------------------------------------- */

static cl_ulong now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (cl_ulong)time.tv_sec * 1000000000u + (cl_ulong)time.tv_nsec;
}

cl_int icd_done(cl_command_queue queue, cl_command_type type,
		cl_event *out_event)
{
	cl_event event;

	if (!out_event)
		return CL_SUCCESS;
	event = icd_new(ICD_EVENT, sizeof(*event));
	if (!event)
		return CL_OUT_OF_HOST_MEMORY;
	icd_ref(queue);
	icd_ref(queue->context);
	event->queue = queue;
	event->context = queue->context;
	event->type = type;
	event->time_ns = now_ns();
	*out_event = event;
	return CL_SUCCESS;
}

cl_event CL_API_CALL clCreateUserEvent(cl_context context, cl_int *errcode_ret)
{
	return refuse(errcode_ret, CL_INVALID_OPERATION);
}

cl_int CL_API_CALL clSetUserEventStatus(cl_event event, cl_int status)
{
	return CL_INVALID_EVENT;
}

cl_int CL_API_CALL clRetainEvent(cl_event event)
{
	if (!icd_is(event, ICD_EVENT))
		return CL_INVALID_EVENT;
	icd_ref(event);
	return CL_SUCCESS;
}

cl_int CL_API_CALL clReleaseEvent(cl_event event)
{
	if (!icd_is(event, ICD_EVENT))
		return CL_INVALID_EVENT;
	if (icd_unref(event)) {
		queue_unref(event->queue);
		icd_context_unref(event->context);
		free(event);
	}
	return CL_SUCCESS;
}

static cl_int check_waits(cl_uint n, const cl_event *events)
{
	if (!n != !events)
		return CL_INVALID_EVENT_WAIT_LIST;
	for (cl_uint i = 0; i < n; i++)
		if (!icd_is(events[i], ICD_EVENT))
			return CL_INVALID_EVENT_WAIT_LIST;
	return CL_SUCCESS;
}

cl_int CL_API_CALL clWaitForEvents(cl_uint n, const cl_event *events)
{
	if (!n || !events)
		return CL_INVALID_VALUE;
	return check_waits(n, events) ? CL_INVALID_EVENT : CL_SUCCESS;
}

cl_int CL_API_CALL
clSetEventCallback(cl_event event, cl_int type,
		   void(CL_CALLBACK *pfn_notify)(cl_event event, cl_int status,
						 void *user_data),
		   void *user_data)
{
	if (!icd_is(event, ICD_EVENT))
		return CL_INVALID_EVENT;
	if (!pfn_notify)
		return CL_INVALID_VALUE;
	pfn_notify(event, type, user_data);
	return CL_SUCCESS;
}

cl_int CL_API_CALL clGetEventInfo(cl_event event, cl_event_info what,
				  size_t size, void *value, size_t *out_size)
{
	if (!icd_is(event, ICD_EVENT))
		return CL_INVALID_EVENT;
	switch (what) {
	case CL_EVENT_COMMAND_QUEUE:
		return icd_answer_pointer(event->queue, size, value, out_size);
	case CL_EVENT_CONTEXT:
		return icd_answer_pointer(event->context, size, value,
					  out_size);
	case CL_EVENT_COMMAND_TYPE:
		return icd_answer_uint(event->type, size, value, out_size);
	case CL_EVENT_REFERENCE_COUNT:
		return icd_answer_uint(atomic_load(&event->head.refs), size,
				       value, out_size);
	case CL_EVENT_COMMAND_EXECUTION_STATUS:
		return icd_answer_uint(CL_COMPLETE, size, value, out_size);
	default:
		return CL_INVALID_VALUE;
	}
}

cl_int CL_API_CALL clGetEventProfilingInfo(cl_event event,
					   cl_profiling_info what, size_t size,
					   void *value, size_t *out_size)
{
	if (!icd_is(event, ICD_EVENT))
		return CL_INVALID_EVENT;
	return icd_answer_ulong(event->time_ns, size, value, out_size);
}

/* ---- Copies ------------------------------------------------------------- */

static bool inside(cl_mem mem, size_t offset, size_t size)
{
	return offset <= mem->size && size <= mem->size - offset;
}

static cl_int check(cl_command_queue queue, cl_mem mem, size_t offset,
		    size_t size, cl_uint n_waits, const cl_event *waits)
{
	if (!icd_is(queue, ICD_QUEUE))
		return CL_INVALID_COMMAND_QUEUE;
	if (!icd_is(mem, ICD_MEM))
		return CL_INVALID_MEM_OBJECT;
	if (mem->context != queue->context)
		return CL_INVALID_CONTEXT;
	if (!size || !inside(mem, offset, size))
		return CL_INVALID_VALUE;
	return check_waits(n_waits, waits);
}

cl_int CL_API_CALL clEnqueueReadBuffer(cl_command_queue queue, cl_mem mem,
				       cl_bool blocking, size_t offset,
				       size_t size, void *to, cl_uint n_waits,
				       const cl_event *waits, cl_event *event)
{
	cl_int status = check(queue, mem, offset, size, n_waits, waits);

	if (!status && !to)
		status = CL_INVALID_VALUE;
	if (status)
		return status;
	memcpy(to, mem->data + offset, size);
	return icd_done(queue, CL_COMMAND_READ_BUFFER, event);
}

cl_int CL_API_CALL clEnqueueWriteBuffer(cl_command_queue queue, cl_mem mem,
					cl_bool blocking, size_t offset,
					size_t size, const void *from,
					cl_uint n_waits, const cl_event *waits,
					cl_event *event)
{
	cl_int status = check(queue, mem, offset, size, n_waits, waits);

	if (!status && !from)
		status = CL_INVALID_VALUE;
	if (status)
		return status;
	memcpy(mem->data + offset, from, size);
	return icd_done(queue, CL_COMMAND_WRITE_BUFFER, event);
}

cl_int CL_API_CALL clEnqueueCopyBuffer(cl_command_queue queue, cl_mem from,
				       cl_mem to, size_t from_offset,
				       size_t to_offset, size_t size,
				       cl_uint n_waits, const cl_event *waits,
				       cl_event *event)
{
	cl_int status = check(queue, from, from_offset, size, n_waits, waits);

	if (!status)
		status = check(queue, to, to_offset, size, n_waits, waits);
	if (status)
		return status;
	memmove(to->data + to_offset, from->data + from_offset, size);
	return icd_done(queue, CL_COMMAND_COPY_BUFFER, event);
}

cl_int CL_API_CALL clEnqueueFillBuffer(cl_command_queue queue, cl_mem mem,
				       const void *pattern, size_t pattern_size,
				       size_t offset, size_t size,
				       cl_uint n_waits, const cl_event *waits,
				       cl_event *event)
{
	cl_int status = check(queue, mem, offset, size, n_waits, waits);

	if (!status && (!pattern || !pattern_size || size % pattern_size))
		status = CL_INVALID_VALUE;
	if (status)
		return status;
	for (size_t i = 0; i < size; i += pattern_size)
		memcpy(mem->data + offset + i, pattern, pattern_size);
	return icd_done(queue, CL_COMMAND_FILL_BUFFER, event);
}

void *CL_API_CALL clEnqueueMapBuffer(cl_command_queue queue, cl_mem mem,
				     cl_bool blocking, cl_map_flags flags,
				     size_t offset, size_t size,
				     cl_uint n_waits, const cl_event *waits,
				     cl_event *event, cl_int *errcode_ret)
{
	cl_int status = check(queue, mem, offset, size, n_waits, waits);

	if (!status)
		status = icd_done(queue, CL_COMMAND_MAP_BUFFER, event);
	refuse(errcode_ret, status);
	return status ? NULL : mem->data + offset;
}

cl_int CL_API_CALL clEnqueueUnmapMemObject(cl_command_queue queue, cl_mem mem,
					   void *pointer, cl_uint n_waits,
					   const cl_event *waits,
					   cl_event *event)
{
	cl_int status = check(queue, mem, 0, 1, n_waits, waits);

	if (status)
		return status;
	return icd_done(queue, CL_COMMAND_UNMAP_MEM_OBJECT, event);
}

static cl_int nothing(cl_command_queue queue, cl_command_type type, cl_uint n,
		      const cl_event *waits, cl_event *event)
{
	cl_int status = CL_INVALID_COMMAND_QUEUE;

	if (icd_is(queue, ICD_QUEUE))
		status = check_waits(n, waits);
	return status ? status : icd_done(queue, type, event);
}

cl_int CL_API_CALL clEnqueueMigrateMemObjects(cl_command_queue queue, cl_uint n,
					      const cl_mem *mems,
					      cl_mem_migration_flags flags,
					      cl_uint n_waits,
					      const cl_event *waits,
					      cl_event *event)
{
	return nothing(queue, CL_COMMAND_MIGRATE_MEM_OBJECTS, n_waits, waits,
		       event);
}

cl_int CL_API_CALL clEnqueueMarkerWithWaitList(cl_command_queue queue,
					       cl_uint n_waits,
					       const cl_event *waits,
					       cl_event *event)
{
	return nothing(queue, CL_COMMAND_MARKER, n_waits, waits, event);
}

cl_int CL_API_CALL clEnqueueBarrierWithWaitList(cl_command_queue queue,
						cl_uint n_waits,
						const cl_event *waits,
						cl_event *event)
{
	return nothing(queue, CL_COMMAND_BARRIER, n_waits, waits, event);
}

cl_int CL_API_CALL clEnqueueMarker(cl_command_queue queue, cl_event *event)
{
	return nothing(queue, CL_COMMAND_MARKER, 0, NULL, event);
}

cl_int CL_API_CALL clEnqueueBarrier(cl_command_queue queue)
{
	return nothing(queue, CL_COMMAND_BARRIER, 0, NULL, NULL);
}

cl_int CL_API_CALL clEnqueueWaitForEvents(cl_command_queue queue, cl_uint n,
					  const cl_event *waits)
{
	return nothing(queue, CL_COMMAND_BARRIER, n, waits, NULL);
}

/* ---- Launches ----------------------------------------------------------- */

static cl_int fill_range(struct icd_range *range, const struct icd_code *code,
			 cl_uint dimensions, const size_t *offset,
			 const size_t *global, const size_t *local)
{
	bool required = code->work_group[0] != 0;
	size_t items = 1;

	if (!dimensions || dimensions > 3)
		return CL_INVALID_WORK_DIMENSION;
	range->dimensions = dimensions;
	for (cl_uint i = 0; i < 3; i++) {
		range->offset[i] = offset && i < dimensions ? offset[i] : 0;
		range->global[i] = global && i < dimensions ? global[i] : 1;
		range->local[i] = local && i < dimensions ? local[i] : 1;
		if (!local && required)
			range->local[i] = code->work_group[i];
		else if (required && range->local[i] != code->work_group[i])
			return CL_INVALID_WORK_GROUP_SIZE;
		if (!range->local[i] || range->global[i] % range->local[i])
			return CL_INVALID_WORK_GROUP_SIZE;
		items *= range->local[i];
	}
	return items > 256 ? CL_INVALID_WORK_GROUP_SIZE : CL_SUCCESS;
}

/* The kernel's code for the queue's device. */
static const struct icd_code *code_for(cl_kernel kernel, cl_device_id device)
{
	cl_program program = kernel->program;

	for (cl_uint i = 0; i < program->n_devices; i++) {
		const struct icd_unit *unit = kernel->units[i];
		if (program->devices[i] != device || !unit)
			continue;
		for (unsigned j = 0; j < unit->n_codes; j++)
			if (!strcmp(unit->codes[j].name, kernel->code->name))
				return &unit->codes[j];
	}
	return NULL;
}

static cl_int launch(cl_command_queue queue, cl_kernel kernel,
		     const struct icd_code *code, const struct icd_range *range)
{
	struct icd_value values[16];
	struct icd_text log = { 0 };
	bool good;

	pthread_mutex_lock(&icd_mutex);
	memcpy(values, kernel->values, sizeof(values));
	pthread_mutex_unlock(&icd_mutex);
	for (unsigned i = 0; i < code->n_arguments; i++)
		if (!values[i].set)
			return CL_INVALID_KERNEL_ARGS;
	icd_count("launch %s", code->name);
	if (icd_flag("SPECIALISE", false))
		icd_program_specialise(kernel->program, queue->device,
				       code->name, range);
	good = icd_run(code, values, range, &log);
	if (!good)
		fputs(log.data, stderr);
	free(log.data);
	return good ? CL_SUCCESS : CL_OUT_OF_RESOURCES;
}

cl_int CL_API_CALL clEnqueueNDRangeKernel(
	cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
	const size_t *offset, const size_t *global, const size_t *local,
	cl_uint n_waits, const cl_event *waits, cl_event *event)
{
	const struct icd_code *code;
	struct icd_range range = { 0 };
	cl_int status;

	if (!icd_is(queue, ICD_QUEUE))
		return CL_INVALID_COMMAND_QUEUE;
	if (!icd_is(kernel, ICD_KERNEL))
		return CL_INVALID_KERNEL;
	if (kernel->program->context != queue->context)
		return CL_INVALID_CONTEXT;
	code = code_for(kernel, queue->device);
	if (!code)
		return CL_INVALID_PROGRAM_EXECUTABLE;
	status = check_waits(n_waits, waits);
	if (!status)
		status = fill_range(&range, code, dimensions, offset, global,
				    local);
	if (!status)
		status = launch(queue, kernel, code, &range);
	return status ? status
		      : icd_done(queue, CL_COMMAND_NDRANGE_KERNEL, event);
}

cl_int CL_API_CALL clEnqueueTask(cl_command_queue queue, cl_kernel kernel,
				 cl_uint n_waits, const cl_event *waits,
				 cl_event *event)
{
	size_t one = 1;

	return clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL,
				      n_waits, waits, event);
}
