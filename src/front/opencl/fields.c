/* SPDX-License-Identifier: MIT */

#include "front/opencl/fields.h"

#include <stdlib.h>
#include <string.h>

#define INFO_BYTES_MAX ((size_t)1 << 20) /* of one answer */

cl_int ki_cl_platform_info(const void *handle, const cl_icd_dispatch *calls,
			   cl_uint what, size_t size, void *data,
			   size_t *out_size)
{
	return calls->clGetPlatformInfo((cl_platform_id)(uintptr_t)handle, what,
					size, data, out_size);
}

cl_int ki_cl_device_info(const void *handle, const cl_icd_dispatch *calls,
			 cl_uint what, size_t size, void *data,
			 size_t *out_size)
{
	return calls->clGetDeviceInfo((cl_device_id)(uintptr_t)handle, what,
				      size, data, out_size);
}

char *ki_cl_ask(ki_cl_info_fn *info, const void *handle,
		const cl_icd_dispatch *calls, cl_uint what, size_t *out_size)
{
	size_t size = 0;
	char *data;

	if (info(handle, calls, what, 0, NULL, &size) != CL_SUCCESS ||
	    size > INFO_BYTES_MAX)
		return NULL;
	data = calloc(1, size + 1);
	if (data && info(handle, calls, what, size, data, NULL) != CL_SUCCESS) {
		free(data);
		return NULL;
	}
	*out_size = size;
	return data;
}

void ki_cl_ask_all(struct ki_fields *fields, const char *group,
		   ki_cl_info_fn *info, const void *handle,
		   const cl_icd_dispatch *calls,
		   const struct ki_cl_question *questions,
		   const char *extensions)
{
	size_t size;
	char *data;

	for (; questions->name; questions++) {
		if (questions->extension &&
		    !(extensions && strstr(extensions, questions->extension)))
			continue;
		data = ki_cl_ask(info, handle, calls, questions->what, &size);
		if (!data)
			continue;
		if (size > 1 && strlen(data) == size - 1)
			size--;
		ki_fields_add(fields, group, questions->name, data, size);
		free(data);
	}
}
