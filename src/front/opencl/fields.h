/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_OPENCL_FIELDS_H
#define KI_FRONT_OPENCL_FIELDS_H

/* Fields that are made once and added to many keys, and the driver's answers
   that most of them hold. */

#include "front/opencl/key.h"

struct ki_cl_field {
	char *label;
	void *data;
	size_t size;
};

struct ki_cl_fields {
	struct ki_cl_field *fields;
	size_t n;
	int failed; /* 0 or -ENOMEM */
};

void ki_cl_fields_fini(struct ki_cl_fields *fields);
/* A field "GROUP NAME"; what goes wrong is remembered. */
void ki_cl_fields_add(struct ki_cl_fields *fields, const char *group,
		      const char *name, const void *data, size_t size);
void ki_cl_fields_add_string(struct ki_cl_fields *fields, const char *group,
			     const char *name, const char *text);
/* Add all to a key, `prefix` before their labels. */
void ki_cl_fields_to_key(const struct ki_cl_fields *fields, const char *prefix,
			 struct kiln_key *key);

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
void ki_cl_ask_all(struct ki_cl_fields *fields, const char *group,
		   ki_cl_info_fn *info, const void *handle,
		   const cl_icd_dispatch *calls,
		   const struct ki_cl_question *questions,
		   const char *extensions);

#endif /* KI_FRONT_OPENCL_FIELDS_H */
