/* SPDX-License-Identifier: MIT */

#include "front/opencl/fields.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INFO_BYTES_MAX ((size_t)1 << 20) /* of one answer */

void ki_cl_fields_fini(struct ki_cl_fields *fields)
{
	size_t i;

	for (i = 0; i < fields->n; i++) {
		free(fields->fields[i].label);
		free(fields->fields[i].data);
	}
	free(fields->fields);
	*fields = (struct ki_cl_fields){ 0 };
}

void ki_cl_fields_add(struct ki_cl_fields *fields, const char *group,
		      const char *name, const void *data, size_t size)
{
	char label[KILN_LABEL_BYTES_MAX + 1];
	struct ki_cl_field *grown;

	if (fields->failed)
		return;
	snprintf(label, sizeof(label), "%s %s", group, name);
	grown = realloc(fields->fields, (fields->n + 1) * sizeof(*grown));
	if (!grown) {
		fields->failed = -ENOMEM;
		return;
	}
	fields->fields = grown;
	grown += fields->n;
	grown->label = strdup(label);
	grown->data = malloc(size + 1);
	grown->size = size;
	fields->n++;
	if (!grown->label || !grown->data)
		fields->failed = -ENOMEM;
	else
		memcpy(grown->data, data, size);
}

void ki_cl_fields_add_string(struct ki_cl_fields *fields, const char *group,
			     const char *name, const char *text)
{
	ki_cl_fields_add(fields, group, name, text, strlen(text));
}

void ki_cl_fields_to_key(const struct ki_cl_fields *fields, const char *prefix,
			 struct kiln_key *key)
{
	char label[KILN_LABEL_BYTES_MAX + 1];
	size_t i;

	for (i = 0; i < fields->n; i++) {
		snprintf(label, sizeof(label), "%s%s", prefix,
			 fields->fields[i].label);
		kiln_key_add(key, label, fields->fields[i].data,
			     fields->fields[i].size);
	}
}

/* ---- Questions ------------------------------------------------------- */

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

void ki_cl_ask_all(struct ki_cl_fields *fields, const char *group,
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
		ki_cl_fields_add(fields, group, questions->name, data, size);
		free(data);
	}
}
