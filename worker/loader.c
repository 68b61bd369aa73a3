/* SPDX-License-Identifier: MIT */

#include "loader.h"

#include <dlfcn.h>
#include <errno.h>

#define LOADER "libOpenCL.so.1"

#define CALLS(X) \
	X(clGetPlatformIDs) X(clGetPlatformInfo) X(clGetDeviceIDs) \
	X(clGetDeviceInfo) X(clCreateContext) X(clRetainContext) \
	X(clReleaseContext) X(clGetContextInfo) X(clCreateProgramWithSource) \
	X(clCreateProgramWithBinary) X(clRetainProgram) X(clReleaseProgram) \
	X(clBuildProgram) X(clGetProgramInfo) X(clGetProgramBuildInfo) \
	X(clCreateKernel) X(clCreateKernelsInProgram) X(clRetainKernel) \
	X(clReleaseKernel) X(clGetKernelInfo) X(clGetKernelWorkGroupInfo) \
	X(clGetExtensionFunctionAddress) X(clGetKernelArgInfo) \
	X(clGetExtensionFunctionAddressForPlatform)

int ki_worker_load(cl_icd_dispatch *calls, const char **out_why)
{
	void *library = dlopen(LOADER, RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		*out_why = dlerror();
		return -ENOENT;
	}
#define CALLS_LOAD(name) \
	*(void **)&calls->name = dlsym(library, #name); \
	if (!calls->name) { \
		*out_why = LOADER " lacks " #name; \
		return -ENOENT; \
	}
	CALLS(CALLS_LOAD)
#undef CALLS_LOAD
	return 0;
}
