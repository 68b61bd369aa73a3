/* SPDX-License-Identifier: MIT */

#include "loader.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#define LOADER "libOpenCL.so.1"

#define CALL(name)                                                             \
	{                                                                      \
#name, offsetof(cl_icd_dispatch, name)                         \
	}

static const struct {
	const char *name;
	size_t offset;
} wanted[] = {
	CALL(clGetPlatformIDs),
	CALL(clGetPlatformInfo),
	CALL(clGetDeviceIDs),
	CALL(clGetDeviceInfo),
	CALL(clCreateSubDevices),
	CALL(clReleaseDevice),
	CALL(clCreateContext),
	CALL(clRetainContext),
	CALL(clReleaseContext),
	CALL(clGetContextInfo),
	CALL(clCreateProgramWithSource),
	CALL(clCreateProgramWithBinary),
	CALL(clCreateProgramWithIL),
	CALL(clSetProgramSpecializationConstant),
	CALL(clRetainProgram),
	CALL(clReleaseProgram),
	CALL(clBuildProgram),
	CALL(clCompileProgram),
	CALL(clLinkProgram),
	CALL(clGetProgramInfo),
	CALL(clGetProgramBuildInfo),
	CALL(clCreateKernel),
	CALL(clCreateKernelsInProgram),
	CALL(clRetainKernel),
	CALL(clReleaseKernel),
	CALL(clGetKernelInfo),
	CALL(clGetKernelArgInfo),
	CALL(clGetKernelWorkGroupInfo),
	CALL(clGetExtensionFunctionAddress),
	CALL(clGetExtensionFunctionAddressForPlatform),
};

int ki_worker_load(cl_icd_dispatch *calls, const char **out_why)
{
	void *library = dlopen(LOADER, RTLD_NOW | RTLD_LOCAL);
	size_t i;

	if (!library) {
		*out_why = dlerror();
		return -ENOENT;
	}
	for (i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		void *call = dlsym(library, wanted[i].name);

		if (!call) {
			*out_why = dlerror();
			return -ENOENT;
		}
		memcpy((char *)calls + wanted[i].offset, &call, sizeof(call));
	}
	return 0;
}
