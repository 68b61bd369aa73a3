/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_OPENCL_FIELDS_H
#define KI_FRONT_OPENCL_FIELDS_H

/* The driver's answers, as fields of keys. */

#include "front/fields.h"
#include "front/opencl/key.h"

/* clGetPlatformInfo and clGetDeviceInfo as one. */
typedef cl_int ki_cl_info_fn(const void *handle, const cl_icd_dispatch *calls,
			     cl_uint what, size_t size, void *data,
			     size_t *out_size);
extern ki_cl_info_fn ki_cl_platform_info;
extern ki_cl_info_fn ki_cl_device_info;

/* An answer with a NUL behind it, from malloc(); NULL if there is none. */
char *ki_cl_ask(ki_cl_info_fn *info, const void *handle,
		const cl_icd_dispatch *calls, cl_uint what, size_t *out_size);

struct ki_cl_question {
	cl_uint what;
	const char *name;
	const char *extension; /* asked only with this one; NULL: always */
};

/* Ask all up to one without a name, and add what is answered: strings without
   their NUL, numbers as they are. */
void ki_cl_ask_all(struct ki_fields *fields, const char *group,
		   ki_cl_info_fn *info, const void *handle,
		   const cl_icd_dispatch *calls,
		   const struct ki_cl_question *questions,
		   const char *extensions);

#endif /* KI_FRONT_OPENCL_FIELDS_H */
