/* SPDX-License-Identifier: MIT */

/* Buffers.  The other kinds of memory are refused. */

#include <stdlib.h>
#include <string.h>

#include "icd/icd.h"

static void *refuse(cl_int *errcode_ret, cl_int status)
{
	if (errcode_ret)
		*errcode_ret = status;
	return NULL;
}

static void mem_unref(cl_mem mem)
{
	if (!icd_unref(mem))
		return;
	icd_callbacks_run(mem->callbacks, mem);
	if (mem->parent)
		mem_unref(mem->parent);
	else
		free(mem->data);
	icd_context_unref(mem->context);
	free(mem);
}

cl_mem CL_API_CALL clCreateBuffer(cl_context context, cl_mem_flags flags,
				  size_t size, void *host, cl_int *errcode_ret)
{
	cl_mem_flags needs_host = CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR;
	cl_mem mem;

	if (!icd_is(context, ICD_CONTEXT))
		return refuse(errcode_ret, CL_INVALID_CONTEXT);
	if (!size || size > 1 << 30)
		return refuse(errcode_ret, CL_INVALID_BUFFER_SIZE);
	if (!host != !(flags & needs_host))
		return refuse(errcode_ret, CL_INVALID_HOST_PTR);
	mem = icd_new(ICD_MEM, sizeof(*mem));
	if (!mem)
		return refuse(errcode_ret, CL_OUT_OF_HOST_MEMORY);
	mem->data = calloc(1, size);
	if (!mem->data) {
		free(mem);
		return refuse(errcode_ret, CL_MEM_OBJECT_ALLOCATION_FAILURE);
	}
	mem->context = context;
	mem->flags = flags ? flags : CL_MEM_READ_WRITE;
	mem->size = size;
	mem->host = flags & CL_MEM_USE_HOST_PTR ? host : NULL;
	if (host)
		memcpy(mem->data, host, size);
	icd_ref(context);
	refuse(errcode_ret, CL_SUCCESS);
	return mem;
}

cl_mem CL_API_CALL clCreateBufferWithProperties(
	cl_context context, const cl_mem_properties *properties,
	cl_mem_flags flags, size_t size, void *host, cl_int *errcode_ret)
{
	if (properties && properties[0])
		return refuse(errcode_ret, CL_INVALID_PROPERTY);
	return clCreateBuffer(context, flags, size, host, errcode_ret);
}

cl_mem CL_API_CALL clCreateSubBuffer(cl_mem parent, cl_mem_flags flags,
				     cl_buffer_create_type type,
				     const void *info, cl_int *errcode_ret)
{
	const cl_buffer_region *region = info;
	cl_mem mem;

	if (!icd_is(parent, ICD_MEM) || parent->parent)
		return refuse(errcode_ret, CL_INVALID_MEM_OBJECT);
	if (type != CL_BUFFER_CREATE_TYPE_REGION || !region ||
	    region->origin > parent->size ||
	    region->size > parent->size - region->origin)
		return refuse(errcode_ret, CL_INVALID_VALUE);
	if (!region->size)
		return refuse(errcode_ret, CL_INVALID_BUFFER_SIZE);
	mem = icd_new(ICD_MEM, sizeof(*mem));
	if (!mem)
		return refuse(errcode_ret, CL_OUT_OF_HOST_MEMORY);
	icd_ref(parent);
	icd_ref(parent->context);
	mem->parent = parent;
	mem->context = parent->context;
	mem->flags = flags ? flags : parent->flags;
	mem->origin = region->origin;
	mem->size = region->size;
	mem->data = parent->data + region->origin;
	refuse(errcode_ret, CL_SUCCESS);
	return mem;
}

cl_int CL_API_CALL clRetainMemObject(cl_mem mem)
{
	if (!icd_is(mem, ICD_MEM))
		return CL_INVALID_MEM_OBJECT;
	icd_ref(mem);
	return CL_SUCCESS;
}

cl_int CL_API_CALL clReleaseMemObject(cl_mem mem)
{
	if (!icd_is(mem, ICD_MEM))
		return CL_INVALID_MEM_OBJECT;
	mem_unref(mem);
	return CL_SUCCESS;
}

cl_int CL_API_CALL clSetMemObjectDestructorCallback(
	cl_mem mem,
	void(CL_CALLBACK *pfn_notify)(cl_mem memobj, void *user_data),
	void *user_data)
{
	if (!icd_is(mem, ICD_MEM))
		return CL_INVALID_MEM_OBJECT;
	return icd_callback_add(&mem->callbacks, (void *)pfn_notify, user_data);
}

cl_int CL_API_CALL clGetMemObjectInfo(cl_mem mem, cl_mem_info what, size_t size,
				      void *value, size_t *out_size)
{
	if (!icd_is(mem, ICD_MEM))
		return CL_INVALID_MEM_OBJECT;
	switch (what) {
	case CL_MEM_TYPE:
		return icd_answer_uint(CL_MEM_OBJECT_BUFFER, size, value,
				       out_size);
	case CL_MEM_FLAGS:
		return icd_answer_ulong(mem->flags, size, value, out_size);
	case CL_MEM_SIZE:
		return icd_answer_size(mem->size, size, value, out_size);
	case CL_MEM_HOST_PTR:
		return icd_answer_pointer(mem->host, size, value, out_size);
	case CL_MEM_MAP_COUNT:
		return icd_answer_uint(0, size, value, out_size);
	case CL_MEM_REFERENCE_COUNT:
		return icd_answer_uint(atomic_load(&mem->head.refs), size,
				       value, out_size);
	case CL_MEM_CONTEXT:
		return icd_answer_pointer(mem->context, size, value, out_size);
	case CL_MEM_ASSOCIATED_MEMOBJECT:
		return icd_answer_pointer(mem->parent, size, value, out_size);
	case CL_MEM_OFFSET:
		return icd_answer_size(mem->origin, size, value, out_size);
	case CL_MEM_USES_SVM_POINTER:
		return icd_answer_uint(CL_FALSE, size, value, out_size);
	case CL_MEM_PROPERTIES:
		return icd_answer(NULL, 0, size, value, out_size);
	default:
		return CL_INVALID_VALUE;
	}
}

/* ---- What this driver does not have ---------------------------------------- */

cl_int CL_API_CALL clGetSupportedImageFormats(
	cl_context context, cl_mem_flags flags, cl_mem_object_type type,
	cl_uint size, cl_image_format *formats, cl_uint *out_size)
{
	if (!icd_is(context, ICD_CONTEXT))
		return CL_INVALID_CONTEXT;
	if (out_size)
		*out_size = 0;
	return CL_SUCCESS;
}

cl_mem CL_API_CALL clCreateImage(cl_context context, cl_mem_flags flags,
				 const cl_image_format *format,
				 const cl_image_desc *desc, void *host,
				 cl_int *errcode_ret)
{
	return refuse(errcode_ret, CL_INVALID_OPERATION);
}

cl_mem CL_API_CALL clCreateImageWithProperties(
	cl_context context, const cl_mem_properties *properties,
	cl_mem_flags flags, const cl_image_format *format,
	const cl_image_desc *desc, void *host, cl_int *errcode_ret)
{
	return refuse(errcode_ret, CL_INVALID_OPERATION);
}

cl_sampler CL_API_CALL clCreateSampler(cl_context context, cl_bool normalized,
				       cl_addressing_mode addressing,
				       cl_filter_mode filter,
				       cl_int *errcode_ret)
{
	return refuse(errcode_ret, CL_INVALID_OPERATION);
}

cl_mem CL_API_CALL clCreatePipe(cl_context context, cl_mem_flags flags,
				cl_uint packet_size, cl_uint max_packets,
				const cl_pipe_properties *properties,
				cl_int *errcode_ret)
{
	return refuse(errcode_ret, CL_INVALID_OPERATION);
}

void *CL_API_CALL clSVMAlloc(cl_context context, cl_svm_mem_flags flags,
			     size_t size, cl_uint alignment)
{
	return NULL;
}

void CL_API_CALL clSVMFree(cl_context context, void *pointer)
{
}
